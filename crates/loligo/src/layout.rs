//! The folder of a cluster on one machine: which files it holds and the `ceph.conf` in it.
//!
//! ```text
//! DIR/ceph.conf                    read by our daemons and by any Ceph client
//! DIR/ceph.conf.new                while a new cluster is made: nothing has run yet
//! DIR/ceph.client.admin.keyring    the administrator's key
//! DIR/mon/a/  mgr/x/  osd/0/ ...   data and keyring of each daemon
//! DIR/osd/3.new/                   an OSD while it is made
//! DIR/run/NAME.pid, NAME.asok      process ids, admin sockets
//! DIR/log/NAME.log                 logs
//! ```
//!
//! DIR itself is locked by who starts and stops daemons.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, Write};
use std::net::TcpListener;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use config::ConfFile;

use crate::failure::Failure;
use crate::output::tell;

/// Messenger v2 port of the first monitor unless told otherwise (Ceph's own).
pub(crate) const DEFAULT_PORT: u16 = 3300;

/// Kinds of daemons that may have data in a folder: ours, then Ceph's own.
const KINDS: [&str; 5] = ["mon", "mgr", "osd", "mds", "rgw"];
/// How the first line of each `ceph.conf` begins that `up` writes.
const MARK: &str = "# Written by 'loligo up'";
/// Longest path of a unix socket, and what is longest of it in DIR.
const SOCKET_PATH_MAX: usize = 107;
const LONGEST_SOCKET: &str = "/run/osd.255.asok";

/// Between two tries to get a folder's lock.
const LOCK_PAUSE: Duration = Duration::from_millis(20);
/// How often before it counts as another's.
const LOCK_TRIES: u32 = 25;

/// One cluster's folder.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    dir: PathBuf,
}

impl Layout {
    /// The folder at `dir`, which must exist.
    pub(crate) fn open(dir: &Path) -> Result<Layout, Failure> {
        let found = dir.canonicalize().map_err(|e| {
            Failure::new(format!("{}: {e}; 'loligo up --dir {0}' makes a cluster", dir.display()))
        })?;
        Ok(Layout { dir: found })
    }

    /// The folder at `dir`, made if there is none.
    pub(crate) fn create(dir: &Path) -> Result<Layout, Failure> {
        make_folder(dir)?;
        Layout::open(dir)
    }

    /// What the folder of a cluster has in it.
    pub(crate) fn make_folders(&self) -> Result<(), Failure> {
        ["run", "log"].iter().try_for_each(|name| make_folder(&self.dir.join(name)))?;
        ["mon", "mgr", "osd"].iter().try_for_each(|name| make_private_folder(&self.dir.join(name)))
    }

    /// Refuses a path so long that the daemons in it could not be asked anything, and one that a `ceph.conf` cannot
    /// carry: `$` begins a variable, the others end a value or a path in a list of paths (`get_str_list`,
    /// `src/common/str_list.cc` at v16.2).
    pub(crate) fn check_path(&self) -> Result<(), Failure> {
        const NOT_IN_CONF: &str = "$#;,='\"\\";
        let bad = |c: char| {
            // Ceph's own clients abort at what is not ASCII.
            NOT_IN_CONF.contains(c) || c.is_whitespace() || c.is_control() || !c.is_ascii()
        };
        if let Some(bad) =
            self.dir.to_str().map_or(Some('\u{fffd}'), |dir| dir.chars().find(|c| bad(*c)))
        {
            return Err(Failure::new(format!(
                "{:?}: {bad:?} is in the path, which a ceph.conf cannot carry; give another --dir",
                self.dir
            )));
        }
        let (len, most) = (self.dir.as_os_str().len(), SOCKET_PATH_MAX - LONGEST_SOCKET.len());
        match len > most {
            true => Err(Failure::new(format!(
                "{}: the path has {len} bytes, {most} is the most: admin sockets are in it; give a shorter --dir",
                self.dir.display()
            ))),
            false => Ok(()),
        }
    }

    /// Has the folder for this process until the lock is dropped. Daemons do not inherit it, but what is about to
    /// become one has it for a moment, longer than an `up` that is killed just then: so it is tried more than once.
    pub(crate) fn lock(&self) -> Result<Lock, Failure> {
        for _ in 0..LOCK_TRIES {
            if let Some(lock) = self.try_lock()? {
                return Ok(lock);
            }
            std::thread::sleep(LOCK_PAUSE);
        }
        Err(Failure::new(format!(
            "another 'loligo up' or 'loligo down' is at work in {}: wait for its end, or stop it",
            self.dir.display()
        )))
    }

    /// The same, once another that has it is done.
    pub(crate) fn lock_in_turn(&self) -> Result<Lock, Failure> {
        let mut told = false;
        loop {
            if let Some(lock) = self.try_lock()? {
                return Ok(lock);
            }
            if !std::mem::replace(&mut told, true) {
                tell!("waiting for another 'loligo up' or 'loligo down' to end");
            }
            std::thread::sleep(LOCK_PAUSE);
        }
    }

    fn try_lock(&self) -> Result<Option<Lock>, Failure> {
        let failed =
            |e: io::Error| Failure::new(format!("cannot lock {}: {e}", self.dir.display()));
        let file = File::open(&self.dir).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Lock { _dir: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(e)) => Err(failed(e)),
        }
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn conf(&self) -> PathBuf {
        self.dir.join("ceph.conf")
    }

    /// The configuration of a new cluster until all else of it is there.
    pub(crate) fn unfinished_conf(&self) -> PathBuf {
        self.dir.join("ceph.conf.new")
    }

    /// Whether `up` wrote the configuration.
    pub(crate) fn wrote_conf(&self) -> bool {
        is_marked(&self.conf())
    }

    /// Whether a cluster was being made here when that was cut off, so that nothing of it has run. OSDs come later.
    pub(crate) fn is_unfinished(&self) -> bool {
        is_marked(&self.unfinished_conf()) && self.ids("osd").is_empty()
    }

    /// A file that makes the folder somebody's who has no configuration in it.
    pub(crate) fn foreign_file(&self) -> Option<PathBuf> {
        let files = fs::read_dir(&self.dir).into_iter().flatten();
        let mut keyrings = files.filter_map(|entry| Some(entry.ok()?.path()));
        keyrings.find(|path| path.extension().is_some_and(|end| end == "keyring")).or_else(|| {
            let data = |kind| Some(self.data(kind, self.ids(kind).first()?));
            KINDS.into_iter().find_map(data)
        })
    }

    /// Removes what is left of a cluster that [`Layout::is_unfinished`].
    pub(crate) fn clear_unfinished(&self) -> io::Result<()> {
        if !self.is_unfinished() {
            return Ok(());
        }
        let daemons = ["mon", "mgr"].into_iter();
        let daemons = daemons.flat_map(|kind| self.ids(kind).into_iter().map(move |id| (kind, id)));
        for (kind, id) in daemons {
            fs::remove_dir_all(self.data(kind, &id))?;
        }
        for n in self.unmade_osds() {
            fs::remove_dir_all(self.unmade_osd(n))?;
        }
        match fs::remove_file(self.admin_keyring()) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        }
    }

    pub(crate) fn admin_keyring(&self) -> PathBuf {
        self.dir.join("ceph.client.admin.keyring")
    }

    pub(crate) fn log(&self, daemon: &str) -> PathBuf {
        self.dir.join("log").join(format!("{daemon}.log"))
    }

    pub(crate) fn pid_file(&self, daemon: &str) -> PathBuf {
        self.dir.join("run").join(format!("{daemon}.pid"))
    }

    pub(crate) fn admin_socket(&self, daemon: &str) -> PathBuf {
        self.dir.join("run").join(format!("{daemon}.asok"))
    }

    /// The data folder of `kind`.`id`.
    pub(crate) fn data(&self, kind: &str, id: &str) -> PathBuf {
        self.dir.join(kind).join(id)
    }

    /// The folder of an OSD until all of it is there.
    pub(crate) fn unmade_osd(&self, n: u32) -> PathBuf {
        self.data("osd", &format!("{n}.new"))
    }

    /// OSDs that have only such a folder, or had when the last start was cut off.
    pub(crate) fn unmade_osds(&self) -> Vec<u32> {
        let known = self.ids("osd");
        let names = fs::read_dir(self.dir.join("osd")).into_iter().flatten();
        let names = names.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let unmade = names.filter_map(|name| name.strip_suffix(".new")?.parse().ok());
        unmade.filter(|n: &u32| !known.contains(&n.to_string())).collect()
    }

    /// The configuration, if the cluster has been made.
    pub(crate) fn read_conf(&self) -> Result<Option<ConfFile>, Failure> {
        match fs::read_to_string(self.conf()) {
            Ok(text) => parse_conf(&self.conf(), &text).map(Some),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Failure::new(format!("cannot read {}: {e}", self.conf().display()))),
        }
    }

    /// Names of the daemons that have data here.
    pub(crate) fn daemons(&self) -> Vec<String> {
        let kinds = KINDS.into_iter();
        let ids = |kind| self.ids(kind).into_iter().map(move |id| format!("{kind}.{id}"));
        kinds.flat_map(ids).collect()
    }

    /// Ids of the daemons of one kind that have data here, in order (numbers by value).
    pub(crate) fn ids(&self, kind: &str) -> Vec<String> {
        let mut ids: Vec<String> = fs::read_dir(self.dir.join(kind))
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            // 0.migrate, 0.old: what `loligo store migrate` makes. 0.new: one that is not made yet.
            .filter(|id| kind != "osd" || id.parse::<u32>().is_ok())
            .collect();
        ids.sort_by_key(|id| (id.parse::<u32>().unwrap_or(u32::MAX), id.clone()));
        ids
    }
}

/// See [`Layout::lock`].
#[derive(Debug)]
pub(crate) struct Lock {
    _dir: File,
}

fn make_folder(path: &Path) -> Result<(), Failure> {
    made(path, fs::create_dir_all(path))
}

/// A folder for its owner alone, as keys and data will be in it; one that is there stays as it is.
pub(crate) fn make_private_folder(path: &Path) -> Result<(), Failure> {
    made(path, DirBuilder::new().recursive(true).mode(0o700).create(path))
}

fn made(path: &Path, made: io::Result<()>) -> Result<(), Failure> {
    made.map_err(|e| Failure::new(format!("cannot create {}: {e}", path.display())))
}

fn is_marked(conf: &Path) -> bool {
    fs::read_to_string(conf).is_ok_and(|text| text.lines().any(|line| line.starts_with(MARK)))
}

/// Whether two paths lead to the same place, which need not be there.
pub(crate) fn same_place(one: &Path, two: &Path) -> bool {
    one == two || matches!((one.canonicalize(), two.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

/// Has the name of a file or folder, new or changed, outlive a power failure.
pub(crate) fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        // Of a relative name.
        Some(parent) if parent.as_os_str().is_empty() => File::open(".")?.sync_all(),
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

/// Parses a configuration file, naming it and the line in the error.
pub(crate) fn parse_conf(path: &Path, text: &str) -> Result<ConfFile, Failure> {
    ConfFile::parse(text).map_err(|e| Failure::new(format!("{}: {e}", path.display())))
}

/// What goes into a new cluster's `ceph.conf`.
#[derive(Debug)]
pub(crate) struct NewConf<'a> {
    pub(crate) fsid: &'a str,
    pub(crate) port: u16,
    pub(crate) mons: u32,
    pub(crate) size: u32,
    pub(crate) store: &'a str,
    pub(crate) osd_size: u64,
}

impl NewConf<'_> {
    /// The file's text. `$`-variables keep the folder movable only with its path: Ceph clients
    /// want absolute paths.
    pub(crate) fn text(&self, layout: &Layout) -> String {
        let dir = layout.dir().display();
        let NewConf { fsid, port, mons, size, store, osd_size, .. } = self;
        let ports = (*port..=u16::MAX).zip(0..*mons);
        let hosts: Vec<String> = ports.map(|(port, _)| format!("[v2:127.0.0.1:{port}]")).collect();
        let hosts = hosts.join(",");
        let min_size = size - size / 2;
        format!(
            "{MARK}. Any Ceph 16.2 client reads it: export CEPH_CONF={dir}/ceph.conf\n\
             [global]\n\
             fsid = {fsid}\n\
             mon_initial_members = a\n\
             mon_host = {hosts}\n\
             public_addr = 127.0.0.1\n\
             auth_cluster_required = cephx\n\
             auth_service_required = cephx\n\
             auth_client_required = cephx\n\
             auth_allow_insecure_global_id_reclaim = false\n\
             run_dir = {dir}/run\n\
             admin_socket = {dir}/run/$name.asok\n\
             log_file = {dir}/log/$name.log\n\
             osd_crush_chooseleaf_type = 0\n\
             osd_pool_default_size = {size}\n\
             osd_pool_default_min_size = {min_size}\n\
             osd_pool_default_pg_num = 32\n\
             osd_pool_default_pg_autoscale_mode = off\n\
             mon_allow_pool_delete = true\n\
             mon_allow_pool_size_one = true\n\
             mon_warn_on_pool_no_redundancy = false\n\
             # As on a developer's machine, whose disk has other uses.\n\
             mon_data_avail_warn = 2\n\
             mon_data_avail_crit = 1\n\
             # All OSDs are on this host: without this no two of them could report a third.\n\
             mon_osd_reporter_subtree_level = osd\n\n\
             [mon]\n\
             mon_data = {dir}/mon/$id\n\
             keyring = {dir}/mon/$id/keyring\n\n\
             [mgr]\n\
             mgr_data = {dir}/mgr/$id\n\
             keyring = {dir}/mgr/$id/keyring\n\n\
             [osd]\n\
             osd_data = {dir}/osd/$id\n\
             keyring = {dir}/osd/$id/keyring\n\
             osd_objectstore = {store}\n\
             bluestore_block_size = {osd_size}\n\n\
             [client]\n\
             keyring = {dir}/ceph.$name.keyring\n\
             admin_socket =\n\
             log_file =\n"
        )
    }
}

/// Writes a file that only its owner may read, whole or not at all, and durably.
pub(crate) fn write_private(path: &Path, text: &str) -> Result<(), Failure> {
    let temporary = path.with_extension("new");
    let write = || -> io::Result<()> {
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        sync_parent(path)
    };
    write().map_err(|e| Failure::new(format!("cannot write {}: {e}", path.display())))
}

/// Writes a file in its place, durably: one that is locked, or that nobody looks at before all of it is there.
pub(crate) fn write_durably(path: &Path, text: &str) -> Result<(), Failure> {
    let write = || -> io::Result<()> {
        let mut file = File::create(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        sync_parent(path)
    };
    write().map_err(|e| Failure::new(format!("cannot write {}: {e}", path.display())))
}

/// Whether `port` can be listened on, now or soon: the kernel lets go of a killed process's sockets
/// some time after the process itself is gone.
pub(crate) fn port_is_free(port: u16) -> bool {
    const PATIENCE: Duration = Duration::from_secs(1);
    const PAUSE: Duration = Duration::from_millis(10);
    let begin = Instant::now();
    loop {
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return true;
        }
        if begin.elapsed() > PATIENCE {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
}
