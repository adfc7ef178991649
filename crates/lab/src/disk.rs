//! A device under the OSDs whose sectors the kernel counts: loop devices over sparse files. Root
//! only; whoever may not make one is told so, and nothing is guessed.
//!
//! Backends that keep files get XFS with its journal on a second loop device: sectors of the
//! second are the file system's journal, sectors of the first that the store did not write its
//! metadata. Backends that write a raw device (InkStore, BlueStore) get one loop device for each
//! OSD: its sectors are what the store wrote and nothing else. BlueStore's database may lie in
//! files beside its device: it gets both. Under a real Ceph ([`Disk::for_ceph`]) each part of a
//! store has devices of its own, as in the paper: what the kernel counts of them is all that is
//! known of some causes.

use std::fs;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use crate::LabError;
use crate::cell::REPLICAS;

/// Smallest journal mkfs.xfs makes on a device of its own, and a little.
const LOG_SIZE: u64 = 96 << 20;
/// Smallest file system mkfs.xfs makes.
const XFS_MIN: u64 = 512 << 20;
/// Backends that write a device without a file system.
const RAW: [&str; 2] = ["inkstore", "bluestore"];
/// Those of them that keep no files worth counting beside it.
const NO_FILES: [&str; 1] = ["inkstore"];

/// `FIFREEZE`, `FITHAW` of linux/fs.h: `_IOWR('X', 119, int)` and 120.
const FIFREEZE: libc::c_ulong = 0xC004_5877;
const FITHAW: libc::c_ulong = 0xC004_5878;

/// See the module. Dropped, everything is taken down.
pub(crate) struct Disk {
    /// `/dev/loopN` of data.
    data: Vec<String>,
    journal: Option<String>,
    mount: Option<PathBuf>,
    /// Where the OSDs find raw devices.
    raw: Option<PathBuf>,
    /// Devices of parts of Ceph's stores: [`JOURNAL`], [`DB`], [`WAL`].
    parts: Vec<(&'static str, String)>,
    /// What making the file system quiet writes when there is nothing to write.
    quiet_cost: (u64, u64),
}

/// FileStore's journal, an OSD's own.
pub(crate) const JOURNAL: &str = "journal";
/// BlueStore's `block.db` and `block.wal`.
pub(crate) const DB: &str = "db";
pub(crate) const WAL: &str = "wal";
/// Data, raw or under a file system; that file system's journal.
pub(crate) const DATA: &str = "data";
pub(crate) const FS_JOURNAL: &str = "fs_journal";

/// Room for a journal or a database beside the data: sparse, so that only what is used is taken.
const PART_SIZE: u64 = 4 << 30;

fn run(program: &str, args: &[&str]) -> Result<String, LabError> {
    let out = Command::new(program).args(args).output();
    let out = out.map_err(|e| LabError::new(format!("cannot run {program}: {e}")))?;
    if out.status.success() {
        return Ok(String::from_utf8_lossy(&out.stdout).trim().to_owned());
    }
    let said = String::from_utf8_lossy(&out.stderr);
    let said = said.lines().next().unwrap_or("it said nothing").to_owned();
    Err(LabError::new(format!("{program} {}: {said}", args.join(" "))))
}

fn loop_device(file: &Path, size: u64) -> Result<String, LabError> {
    fs::File::create(file)?.set_len(size)?;
    let file = file.to_string_lossy();
    // Two that look for a free one at once may find the same.
    static FINDING: Mutex<()> = Mutex::new(());
    let _finding = FINDING.lock().unwrap_or_else(PoisonError::into_inner);
    run("losetup", &["--find", "--show", &file]).map_err(|e| {
        LabError::new(format!("{e}; a loop device needs root, '--disk files' does without"))
    })
}

/// Bytes written to `/dev/NAME` since it was made.
pub(crate) fn device_bytes(device: &str) -> Result<u64, LabError> {
    let name = device.trim_start_matches("/dev/");
    let stat = fs::read_to_string(format!("/sys/block/{name}/stat"))?;
    // The seventh number: sectors of 512 bytes written (Documentation/block/stat.rst).
    let sectors = stat.split_whitespace().nth(6).and_then(|n| n.parse::<u64>().ok());
    sectors.map(|n| n * 512).ok_or_else(|| {
        LabError::new(format!("/sys/block/{name}/stat does not say what was written"))
    })
}

impl Disk {
    /// Devices for OSDs of `osd_size` bytes each whose folders are under `dir/osd`.
    ///
    /// XFS writes its journal in sectors, or in multiples of `log_unit`.
    pub(crate) fn make(
        dir: &Path,
        store: &str,
        osd_size: u64,
        log_unit: Option<u64>,
    ) -> Result<Disk, LabError> {
        let mut disk = Disk::none();
        if RAW.contains(&store) {
            let devices = dir.join("devices");
            fs::create_dir_all(&devices)?;
            for n in 0..REPLICAS {
                let device = loop_device(&dir.join(format!("device.{n}")), osd_size)?;
                std::os::unix::fs::symlink(&device, devices.join(n.to_string()))?;
                disk.data.push(device);
            }
            disk.raw = Some(devices);
        }
        if !NO_FILES.contains(&store) {
            disk.mount_xfs(dir, osd_size, log_unit)?;
        }
        Ok(disk)
    }

    fn none() -> Disk {
        Disk {
            data: Vec::new(),
            journal: None,
            mount: None,
            raw: None,
            parts: Vec::new(),
            quiet_cost: (0, 0),
        }
    }

    /// Devices for a real Ceph's OSDs; `dir/devices/PART.N` is OSD N's.
    pub(crate) fn for_ceph(
        dir: &Path,
        store: &str,
        osd_size: u64,
        log_unit: Option<u64>,
    ) -> Result<Disk, LabError> {
        let mut disk = Disk::none();
        let devices = dir.join("devices");
        fs::create_dir_all(&devices)?;
        let part = |name: &str, n: u64, size: u64| -> Result<String, LabError> {
            let device = loop_device(&dir.join(format!("device.{name}.{n}")), size)?;
            std::os::unix::fs::symlink(&device, devices.join(format!("{name}.{n}")))?;
            Ok(device)
        };
        let parts: &[&'static str] = match store {
            "bluestore" => &[DB, WAL],
            "filestore" => &[JOURNAL],
            _ => &[],
        };
        for n in 0..REPLICAS {
            if store == "bluestore" {
                disk.data.push(part(DATA, n, osd_size)?);
            }
            for name in parts {
                disk.parts.push((name, part(name, n, PART_SIZE)?));
            }
        }
        if store != "bluestore" {
            disk.mount_xfs(dir, osd_size, log_unit)?;
        }
        Ok(disk)
    }

    /// All devices with what is on them.
    pub(crate) fn devices(&self) -> Vec<(&'static str, String)> {
        let data = self.data.iter().map(|device| (DATA, device.clone()));
        let journal = self.journal.iter().map(|d| (FS_JOURNAL, d.clone()));
        data.chain(journal).chain(self.parts.iter().cloned()).collect()
    }

    fn mount_xfs(
        &mut self,
        dir: &Path,
        osd_size: u64,
        log_unit: Option<u64>,
    ) -> Result<(), LabError> {
        // Key-value stores hold old and new tables side by side while they compact.
        let size = (osd_size * REPLICAS * 3).max(XFS_MIN);
        let data = loop_device(&dir.join("device.data"), size)?;
        self.data.push(data.clone());
        let journal = loop_device(&dir.join("device.journal"), LOG_SIZE)?;
        let log = format!("logdev={journal}");
        let mount = dir.join("osd");
        let unit = log_unit.map_or_else(String::new, |unit| format!(",su={unit}"));
        let sized = format!("{log},size=64m{unit}");
        self.journal = Some(journal);
        run("mkfs.xfs", &["-q", "-l", &sized, &data])?;
        let at = mount.to_string_lossy();
        run("mount", &["-t", "xfs", "-o", &log, &data, &at])?;
        self.mount = Some(mount);
        self.quiet()?;
        let before = self.sectors()?;
        self.quiet()?;
        let after = self.sectors()?;
        self.quiet_cost = (after.0 - before.0, after.1 - before.1);
        Ok(())
    }

    /// Options that make the OSDs use it.
    pub(crate) fn sets(&self) -> Vec<String> {
        let raw = self.raw.as_ref();
        raw.map(|dir| format!("bluestore_block_path={}/$id", dir.display())).into_iter().collect()
    }

    /// Makes the file system write all it has, its metadata in place, too (freeze and thaw).
    pub(crate) fn quiet(&self) -> Result<(), LabError> {
        let Some(mount) = &self.mount else { return Ok(()) };
        let folder = fs::File::open(mount)?;
        for request in [FIFREEZE, FITHAW] {
            // SAFETY: both calls take an int that they do not read; the descriptor is open.
            let rc = unsafe { libc::ioctl(folder.as_raw_fd(), request as _, 0) };
            if rc < 0 {
                let e = std::io::Error::last_os_error();
                return Err(LabError::new(format!("cannot quiet {}: {e}", mount.display())));
            }
        }
        Ok(())
    }

    /// Bytes written to data and journal devices since they were made.
    pub(crate) fn sectors(&self) -> Result<(u64, u64), LabError> {
        let mut data = 0;
        for device in &self.data {
            data += device_bytes(device)?;
        }
        let journal = self.journal.as_deref();
        Ok((data, journal.map_or(Ok(0), device_bytes)?))
    }

    /// What making the file system quiet writes by itself, to data and journal devices.
    pub(crate) fn quiet_cost(&self) -> (u64, u64) {
        self.quiet_cost
    }

    /// What an interval wrote: sectors after less sectors before, less what quieting itself costs.
    pub(crate) fn grown(&self, before: (u64, u64), after: (u64, u64)) -> (u64, u64) {
        let less = |after: u64, before: u64, cost| (after - before).saturating_sub(cost);
        let (data, journal) = self.quiet_cost;
        (less(after.0, before.0, data), less(after.1, before.1, journal))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Some(mount) = &self.mount {
            // A daemon that was just stopped may still be letting go of its files.
            for _ in 0..50 {
                if run("umount", &[&mount.to_string_lossy()]).is_ok() {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(100));
            }
        }
        for (_, device) in self.devices() {
            let _ = run("losetup", &["--detach", &device]);
        }
    }
}
