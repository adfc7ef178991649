//! The backends under test: their names here, and how `loligo up` makes them.

use crate::{Host, LabError};

/// One backend with its options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Backend {
    /// Its name here and in results: `kstore-leveldb`.
    pub(crate) name: &'static str,
    /// Its name in the paper and in plots.
    pub(crate) title: &'static str,
    /// Whose it is.
    pub(crate) system: System,
    /// For `up --store`; for Ceph `osd_objectstore`.
    pub(crate) store: &'static str,
    /// Options it is made with, as in the paper's set-up.
    pub(crate) sets: &'static [&'static str],
}

/// Whose daemons a backend is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum System {
    /// This binary's.
    Loligo,
    /// Those of Ceph's packages on this machine.
    Ceph,
}

/// The paper's backends in its order, then ours, then Ceph's own of today. Options are the paper's: `section III-C`.
pub(crate) const KNOWN: [Backend; 10] = [
    // A sync soon after each write instead of within 5 s: the same bytes, sooner.
    Backend {
        name: "filestore",
        title: "FileStore",
        system: System::Loligo,
        store: "filestore",
        sets: &["filestore_min_sync_interval=0.05", "filestore_max_sync_interval=0.2"],
    },
    Backend {
        name: "kstore-leveldb",
        title: "KStore (LevelDB)",
        system: System::Loligo,
        store: "kstore",
        sets: &["kstore_backend=leveldb", "kstore_default_stripe_size=4096"],
    },
    Backend {
        name: "kstore-rocksdb",
        title: "KStore (RocksDB)",
        system: System::Loligo,
        store: "kstore",
        sets: &["kstore_backend=rocksdb", "kstore_default_stripe_size=4096"],
    },
    Backend {
        name: "bluestore",
        title: "BlueStore",
        system: System::Loligo,
        store: "bluestore",
        sets: &["bluestore_min_alloc_size=65536"],
    },
    Backend {
        name: "bluestore-4k",
        title: "BlueStore (4 KiB units)",
        system: System::Loligo,
        store: "bluestore",
        sets: &["bluestore_min_alloc_size=4096"],
    },
    Backend {
        name: "inkstore",
        title: "InkStore",
        system: System::Loligo,
        store: "inkstore",
        sets: &[],
    },
    Backend {
        name: "ceph-filestore",
        title: "Ceph's FileStore",
        system: System::Ceph,
        store: "filestore",
        sets: &["filestore_min_sync_interval=0.05", "filestore_max_sync_interval=0.2"],
    },
    // A loop device says that it rotates, and BlueStore then logs whatever is below 64 KiB first;
    // without that it does what it does on an SSD, as ours.
    Backend {
        name: "ceph-bluestore",
        title: "Ceph's BlueStore",
        system: System::Ceph,
        store: "bluestore",
        sets: &["bluestore_min_alloc_size=65536", "bluestore_prefer_deferred_size_hdd=0"],
    },
    Backend {
        name: "ceph-bluestore-4k",
        title: "Ceph's BlueStore (4 KiB units)",
        system: System::Ceph,
        store: "bluestore",
        sets: &["bluestore_min_alloc_size=4096", "bluestore_prefer_deferred_size_hdd=0"],
    },
    Backend {
        name: "ceph-kstore",
        title: "Ceph's KStore (RocksDB)",
        system: System::Ceph,
        store: "kstore",
        sets: &[
            "enable_experimental_unrecoverable_data_corrupting_features=*",
            "kstore_backend=rocksdb",
            "kstore_default_stripe_size=4096",
        ],
    },
];

/// Left out of `all`: variants of another one.
const VARIANTS: [&str; 2] = ["bluestore-4k", "ceph-bluestore-4k"];

impl Backend {
    /// A line for `lab backends`.
    pub(crate) fn line(&self) -> String {
        let of = match self.system {
            System::Loligo => format!("--store {}", self.store),
            System::Ceph => format!("Ceph's packages, osd_objectstore = {}", self.store),
        };
        let sets: String = self.sets.iter().map(|set| format!(" --set {set}")).collect();
        format!("{:<18} {:<31} {of}{sets}", self.name, self.title)
    }
}

/// All that this binary can make, and Ceph's.
pub(crate) fn all(host: &Host) -> Vec<Backend> {
    KNOWN
        .into_iter()
        .filter(|b| b.system == System::Ceph || host.stores.contains(&b.store))
        .collect()
}

/// Those of a system, without variants of the same store.
pub(crate) fn of(system: System, host: &Host) -> Vec<Backend> {
    let all = all(host).into_iter();
    all.filter(|b| b.system == system && !VARIANTS.contains(&b.name)).collect()
}

/// Those of a list of names, each once; `all` stands for all of this binary but variants.
pub(crate) fn chosen(names: &[String], host: &Host) -> Result<Vec<Backend>, LabError> {
    let all = all(host);
    let mut found: Vec<Backend> = Vec::new();
    for name in names {
        let meant = match all.iter().find(|b| b.name == *name) {
            Some(backend) => vec![backend.clone()],
            None if name == "all" => of(System::Loligo, host),
            None => {
                let known: Vec<&str> = all.iter().map(|b| b.name).collect();
                return Err(LabError::new(format!(
                    "--backend {name}: there are all, {}",
                    known.join(", ")
                )));
            }
        };
        for backend in meant {
            if !found.contains(&backend) {
                found.push(backend);
            }
        }
    }
    Ok(found)
}
