//! The monitor map of a stopped monitor, taken out and put in (`ceph-mon --extract-monmap` and
//! `--inject-monmap`, `src/ceph_mon.cc` at v16.2): how a cluster goes on when a majority of its monitors
//! is gone for good, or when the only one gets another address.
//!
//! In Ceph each monitor that is left gets the new map, and they elect. Here the log of one becomes a log of
//! its own, so a map that is put in names that one alone: two whose logs were made so would each go on by
//! itself. The others begin anew and copy it.

use std::fmt;

use bytes::Bytes;
use denc::Denc;
use maps::MonMap;
use store::{Kv, KvBatch, KvError};
use types::{Epoch, UTime, Uuid};

use crate::core::LoadError;
use crate::{monmap, replica};

/// Why a map cannot be taken out or put in.
#[derive(Debug)]
pub enum InjectError {
    /// The store has none, or cannot be read.
    Load(LoadError),
    /// The state is a copy of another monitor's that has not come whole.
    NotWhole,
    /// The bytes are no monitor map.
    NoMonMap(denc::Error),
    /// The map is another cluster's.
    OtherCluster {
        /// The map's cluster.
        given: Uuid,
        /// The store's.
        own: Uuid,
    },
    /// The map does not name this monitor.
    NotNamed(String),
    /// It has no address of messenger v2 for it.
    NoAddress(String),
    /// The map names others, too.
    Others(Vec<String>),
}

impl fmt::Display for InjectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InjectError::Load(error) => error.fmt(f),
            InjectError::NotWhole => f.write_str(
                "this monitor was copying another's state and has not all of it: take another monitor's store",
            ),
            InjectError::NoMonMap(error) => write!(f, "this is no monitor map: {error}"),
            InjectError::OtherCluster { given, own } => {
                write!(f, "this is the map of cluster {given}, and the store is of {own}")
            }
            InjectError::NotNamed(name) => {
                write!(f, "the map has no mon.{name} (monmaptool MAP --add {name} IP:PORT)")
            }
            InjectError::NoAddress(name) => write!(
                f,
                "the map has no address of messenger v2 for mon.{name} (monmaptool MAP --rm {name} --addv {name} [v2:IP:PORT])"
            ),
            InjectError::Others(names) => write!(
                f,
                "the map names other monitors, too: take them out (monmaptool MAP{}). This one will serve alone; \
                 the others join it with an empty folder each (loligo mon --mkfs)",
                names.iter().map(|name| format!(" --rm {name}")).collect::<String>()
            ),
        }
    }
}

impl std::error::Error for InjectError {}

impl From<LoadError> for InjectError {
    fn from(error: LoadError) -> InjectError {
        InjectError::Load(error)
    }
}

impl From<KvError> for InjectError {
    fn from(error: KvError) -> InjectError {
        InjectError::Load(error.into())
    }
}

/// What a stopped monitor knows of the monitors.
#[derive(Debug)]
pub struct StoredMonMap {
    /// Its newest map.
    pub monmap: MonMap,
    /// Term and index of the newest entry of its log: of several monitors that are left the one that has
    /// the greatest knows most. Nothing if its state is not whole.
    pub last_entry: Option<(u64, u64)>,
}

/// Reads the map of a monitor that is stopped.
pub fn extract_monmap(kv: &dyn Kv) -> Result<StoredMonMap, InjectError> {
    Ok(StoredMonMap { monmap: monmap::load(kv)?, last_entry: replica::last_entry(kv)? })
}

/// Gives monitor `name`, which is stopped, a map that names it alone; gives the map's epoch. With its next
/// start it leads, with all that it has of the log, whatever became of the others.
pub fn inject_monmap(
    kv: &dyn Kv,
    name: &str,
    map: &Bytes,
    now: UTime,
) -> Result<Epoch, InjectError> {
    let StoredMonMap { monmap: own, last_entry } = extract_monmap(kv)?;
    let given = MonMap::from_bytes(map).map_err(InjectError::NoMonMap)?;
    if given.fsid != own.fsid {
        return Err(InjectError::OtherCluster { given: given.fsid, own: own.fsid });
    }
    let Some(mon) = given.mon_info.get(name) else {
        return Err(InjectError::NotNamed(name.to_owned()));
    };
    if mon.public_addrs.msgr2().is_none() {
        return Err(InjectError::NoAddress(name.to_owned()));
    }
    let others: Vec<String> = given.mon_info.keys().filter(|n| *n != name).cloned().collect();
    if !others.is_empty() {
        return Err(InjectError::Others(others));
    }
    if last_entry.is_none() {
        return Err(InjectError::NotWhole);
    }
    let epoch = own.epoch + 1;
    // A map that monmaptool has made anew lacks what the cluster has agreed on.
    let MonMap { mon_info, ranks, .. } = given;
    let mut changes = KvBatch::new();
    monmap::put(&mut changes, &MonMap { epoch, last_changed: now, mon_info, ranks, ..own });
    // In the log, too: entries that are not applied yet may have maps of before.
    let mut batch = changes.clone();
    replica::put_sole(kv, &mut batch, name, &changes)?;
    kv.commit(batch)?;
    Ok(epoch)
}
