//! The backends under test: their names here, and how `loligo up` makes them.

use crate::{Host, LabError};

/// One backend with its options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Backend {
    /// Its name here and in results: `kstore-leveldb`.
    pub(crate) name: &'static str,
    /// Its name in the paper and in plots.
    pub(crate) title: &'static str,
    /// For `up --store`.
    pub(crate) store: &'static str,
    /// Options it is made with, as in the paper's set-up.
    pub(crate) sets: &'static [&'static str],
}

/// The paper's backends in its order, then ours. Options are the paper's: `section III-C`.
pub(crate) const KNOWN: [Backend; 6] = [
    // A sync soon after each write instead of within 5 s: the same bytes, sooner.
    Backend {
        name: "filestore",
        title: "FileStore",
        store: "filestore",
        sets: &[
            "filestore_min_sync_interval=0.05",
            "filestore_max_sync_interval=0.2",
        ],
    },
    Backend {
        name: "kstore-leveldb",
        title: "KStore (LevelDB)",
        store: "kstore",
        sets: &["kstore_backend=leveldb", "kstore_default_stripe_size=4096"],
    },
    Backend {
        name: "kstore-rocksdb",
        title: "KStore (RocksDB)",
        store: "kstore",
        sets: &["kstore_backend=rocksdb", "kstore_default_stripe_size=4096"],
    },
    Backend {
        name: "bluestore",
        title: "BlueStore",
        store: "bluestore",
        sets: &["bluestore_min_alloc_size=65536"],
    },
    Backend {
        name: "bluestore-4k",
        title: "BlueStore (4 KiB units)",
        store: "bluestore",
        sets: &["bluestore_min_alloc_size=4096"],
    },
    Backend {
        name: "inkstore",
        title: "InkStore",
        store: "inkstore",
        sets: &[],
    },
];

impl Backend {
    /// A line for `lab backends`.
    pub(crate) fn line(&self) -> String {
        let sets: String = self
            .sets
            .iter()
            .map(|set| format!(" --set {set}"))
            .collect();
        format!(
            "{:<16} {:<24} --store {}{sets}",
            self.name, self.title, self.store
        )
    }
}

/// All that this binary can make.
pub(crate) fn all(host: &Host) -> Vec<Backend> {
    KNOWN
        .into_iter()
        .filter(|b| host.stores.contains(&b.store))
        .collect()
}

/// Those of a list of names; `all` stands for all but variants of the same store.
pub(crate) fn chosen(names: &[String], host: &Host) -> Result<Vec<Backend>, LabError> {
    let all = all(host);
    let mut found = Vec::new();
    for name in names {
        match all.iter().find(|b| b.name == *name) {
            Some(backend) => found.push(backend.clone()),
            None if name == "all" => {
                found.extend(all.iter().filter(|b| b.name != "bluestore-4k").cloned());
            }
            None => {
                let known: Vec<&str> = all.iter().map(|b| b.name).collect();
                return Err(LabError::new(format!(
                    "--backend {name}: this binary has all, {}",
                    known.join(", ")
                )));
            }
        }
    }
    Ok(found)
}
