//! What a run that is cut leaves behind, and how it goes: clusters, mounts, loop devices.
//!
//! A signal ends the clusters under test before the process goes; a process that was killed leaves
//! their folders, `lab-BACKEND-N-PID`, and the next run with the same `--data` ends what it finds
//! there of processes that are no more: a process holds a lock in each of its folders. (Its number
//! tells nothing: that of a process in another container is not known here.)

use std::fs::{self, File, TryLockError};
use std::io::Read;
use std::os::fd::IntoRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::{Host, LabError, ceph};

/// Exit code of a process that SIGINT ended, as shells have it.
const INTERRUPTED: i32 = 130;

/// The processes that are making clusters: they must not go on when those are ended. Bound: the
/// clusters that are made at once.
static MAKING: Mutex<Vec<i32>> = Mutex::new(Vec::new());

fn making() -> MutexGuard<'static, Vec<i32>> {
    MAKING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Folders of this process's clusters. Bound: one for each cluster it has made.
static MADE: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn made() -> MutexGuard<'static, Vec<PathBuf>> {
    MADE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs what makes a cluster to its end.
pub(crate) fn make(command: &mut Command) -> std::io::Result<Output> {
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // A signal to all (Ctrl-C) is dealt with here, not there.
    let command = command.process_group(0);
    let (child, pid) = {
        // Noted before a signal can be dealt with.
        let mut making = making();
        let child = command.spawn()?;
        let pid = i32::try_from(child.id()).unwrap_or(0);
        making.push(pid);
        (child, pid)
    };
    let out = child.wait_with_output();
    making().retain(|other| *other != pid);
    out
}

/// The file in a folder that is locked while its cluster is somebody's.
const LOCK: &str = "lab.lock";

/// A folder of this process, until it is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    _lock: File,
}

/// The folder of a new cluster of this process, made.
pub(crate) fn folder(data: &Path, backend: &str) -> std::io::Result<(PathBuf, Claim)> {
    fs::create_dir_all(data)?;
    let mut made = made();
    let mut n = made.len();
    // A process of the same number in another container may have such a one.
    let folder = loop {
        let folder = data.join(format!("lab-{backend}-{n}-{}", std::process::id()));
        match fs::create_dir(&folder) {
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => n += 1,
            done => break done.map(|()| folder)?,
        }
    };
    let lock = File::create(folder.join(LOCK))?;
    lock.lock()?;
    // By this one it is known as the laboratory's: only now.
    fs::create_dir(folder.join("osd"))?;
    made.push(folder.clone());
    Ok((folder, Claim { _lock: lock }))
}

/// Whether a folder is one of the laboratory's.
fn is_ours(folder: &Path) -> bool {
    let name = folder.file_name().and_then(|name| name.to_str()?.strip_prefix("lab-"));
    let pid = name.and_then(|name| name.rsplit_once('-')?.1.parse::<u32>().ok());
    pid.is_some() && folder.join("osd").is_dir()
}

fn folders(data: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(data).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| is_ours(path)).collect()
}

/// Takes a folder whose process is no more; none if that lives, or if it is not known.
fn take_over(folder: &Path) -> std::io::Result<Option<Claim>> {
    let lock = File::open(folder.join(LOCK))?;
    match lock.try_lock() {
        Ok(()) => Ok(Some(Claim { _lock: lock })),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(e)) => Err(e),
    }
}

/// Where [`on_signal`] writes.
static TOLD: AtomicI32 = AtomicI32::new(-1);

extern "C" fn on_signal(_: libc::c_int) {
    // SAFETY: write is async-signal-safe; the byte is this frame's.
    unsafe { libc::write(TOLD.load(Ordering::SeqCst), [0u8].as_ptr().cast(), 1) };
}

/// Makes SIGINT and SIGTERM end the clusters under test, and ends what earlier runs left.
///
/// By handlers, not by a mask: children inherit a mask, and daemons started by `loligo up` with
/// SIGTERM blocked did not end by it, so that `loligo down` waited its ten seconds for each and
/// killed them. Handlers are gone in what a child executes.
pub(crate) fn prepare(data: &Path, host: &Host) -> Result<(), LabError> {
    for folder in folders(data) {
        match take_over(&folder) {
            Ok(Some(_claim)) => {
                (host.tell)(&format!("ending what is left in {}", folder.display()));
                end(&folder, host);
            }
            Ok(None) => {}
            Err(e) => (host.tell)(&format!(
                "{} stays: whether its process lives is not known ({LOCK}: {e})",
                folder.display()
            )),
        }
    }
    let (mut told, teller) = std::io::pipe()?;
    TOLD.store(teller.into_raw_fd(), Ordering::SeqCst);
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let handler = on_signal as extern "C" fn(libc::c_int);
        // SAFETY: the handler calls nothing but write, on a descriptor that stays open.
        unsafe { libc::signal(signal, handler as libc::sighandler_t) };
    }
    let host = host.clone();
    std::thread::Builder::new().name("lab-signals".to_owned()).spawn(move || {
        if told.read_exact(&mut [0]).is_err() {
            return;
        }
        (host.tell)("interrupted: ending what runs; the same command goes on from here");
        // Held to the end: nobody makes another.
        let making = making();
        for pid in making.iter().filter(|pid| **pid > 0) {
            // SAFETY: the call takes two numbers; the process is a child not waited for yet, or
            // just being so.
            unsafe { libc::kill(*pid, libc::SIGKILL) };
        }
        for folder in made().iter().filter(|folder| folder.exists()) {
            end(folder, &host);
        }
        std::process::exit(INTERRUPTED);
    })?;
    Ok(())
}

/// How often, and with what pauses, a cluster is told to stop.
const DOWN_TRIES: u32 = 20;
const DOWN_PAUSE: Duration = Duration::from_millis(500);

/// Daemons of a folder that run, by name.
pub(crate) fn running(folder: &Path) -> Vec<String> {
    let files = fs::read_dir(folder.join("run")).into_iter().flatten().flatten();
    let of_file = |path: PathBuf| {
        let name = path.file_name()?.to_str()?.strip_suffix(".pid")?.to_owned();
        let pid: u32 = fs::read_to_string(&path).ok()?.trim().parse().ok()?;
        is_alive(pid).then_some(name)
    };
    files.filter_map(|file| of_file(file.path())).collect()
}

/// Whether a process is there and has not ended.
fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The state stands behind the name, which may have anything in it.
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

/// Stops a cluster of ours; whether nothing of it runs any more.
pub(crate) fn stop(folder: &Path, host: &Host) -> bool {
    let down = || {
        let mut down = Command::new(&host.program);
        let down = down.args(["down", "--dir"]).arg(folder).stdin(Stdio::null()).process_group(0);
        down.output().is_ok_and(|out| out.status.success())
    };
    // It is refused while an `up` that was killed just now still has the folder.
    for _ in 0..DOWN_TRIES {
        if down() || running(folder).is_empty() {
            return true;
        }
        std::thread::sleep(DOWN_PAUSE);
    }
    (host.tell)(&format!("the daemons in {} do not stop: it is left", folder.display()));
    false
}

/// Stops what runs in a folder, takes its devices down and removes it.
fn end(folder: &Path, host: &Host) {
    if !stop(folder, host) {
        return;
    }
    ceph::down(folder);
    let program = |name: &str, args: &[&str]| {
        let out = Command::new(name).args(args).stdin(Stdio::null()).output();
        let out = out.ok().filter(|out| out.status.success())?;
        Some(String::from_utf8_lossy(&out.stdout).into_owned())
    };
    let osd = folder.join("osd");
    let is_mount = fs::read_to_string("/proc/self/mounts")
        .unwrap_or_default()
        .lines()
        .any(|line| line.split(' ').nth(1) == osd.to_str());
    if is_mount {
        program("umount", &[&osd.to_string_lossy()]);
    }
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if !entry.file_name().to_string_lossy().starts_with("device.") {
            continue;
        }
        // "/dev/loop7: [2049]:1234 (/path)", a line each.
        let file = entry.path();
        let found = program("losetup", &["--associated", &file.to_string_lossy()]);
        for line in found.unwrap_or_default().lines() {
            if let Some((device, _)) = line.split_once(':') {
                program("losetup", &["--detach", device]);
            }
        }
    }
    let _ = fs::remove_dir_all(folder);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(name: &str) -> PathBuf {
        let data = std::env::temp_dir().join(format!("lab-ending-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&data);
        data
    }

    #[test]
    fn only_the_laboratorys_folders_are_its() {
        let data = data("names");
        for name in
            ["lab-kstore-rocksdb-77/osd", "lab-inkstore-x/osd", "lab-bluestore-78", "other-5/osd"]
        {
            fs::create_dir_all(data.join(name)).unwrap();
        }
        assert_eq!(folders(&data), [data.join("lab-kstore-rocksdb-77")]);
        fs::remove_dir_all(&data).unwrap();
    }

    /// A run in another container was taken for dead, as no process here had its number, and its data
    /// was deleted under it.
    #[test]
    fn a_folder_is_its_process_until_that_lets_go() {
        let data = data("claims");
        let (first, claim) = folder(&data, "kstore").unwrap();
        assert!(folders(&data) == [first.clone()] && take_over(&first).unwrap().is_none());
        // Whatever its name says.
        let other = data.join("lab-kstore-0-4000000000");
        fs::rename(&first, &other).unwrap();
        assert!(is_ours(&other) && take_over(&other).unwrap().is_none());
        drop(claim);
        assert!(take_over(&other).unwrap().is_some());
        // One of a version that locked nothing.
        fs::remove_file(other.join(LOCK)).unwrap();
        assert!(take_over(&other).is_err());
        // A name that another container's process of the same number has.
        let taken = data.join(format!("lab-kstore-{}-{}", made().len(), std::process::id()));
        fs::create_dir(&taken).unwrap();
        assert_ne!(folder(&data, "kstore").unwrap().0, taken);
        fs::remove_dir_all(&data).unwrap();
    }
}
