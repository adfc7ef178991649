//! Where the monitor keeps what, in its database.
//!
//! ```text
//! paxos/last_committed            u64 le: the newest log entry applied
//! raft/...                        the replicated log, see replica.rs; never leaves this monitor
//! monmap/<epoch>, monmap/last     MonMap; epoch of the newest
//! osdmap/full_<epoch>             OSDMap           (epochs as 16 hex digits: they sort)
//! osdmap/inc_<epoch>              OSDMap::Incremental
//! osdmap/first, osdmap/last       u64 le
//! osd_metadata/<id>               map string -> string
//! osd_pg_creating/creating        creating_pgs_t
//! osd_pending_metadata            -
//! osd_snap/purged_<pool>          interval set of purged snapshot ids and of removals' numbers
//! auth/entity_<name>              EntityAuth
//! auth/rotating                   KeyServerData's rotating part
//! auth/max_global_id              u64 le: ids below are given out or reserved
//! mon_config_key/<key>            config-key values; also config/... and config-history/...
//! config/version                  u64 le: changes of options so far
//! logm/<seq>                      LogEntry; logm/first, logm/last
//! mgr/<epoch>, mgr/last           MgrMap; mgr/commands: MgrMap's command descriptions
//! mgr_metadata/<name>             map string -> string
//! mdsmap/<epoch>, mdsmap/last      FSMap: nothing before somebody asks for a file system or an MDS
//! mds_metadata/<gid>              map string -> string
//! mds_health/<gid>                MDSHealth
//! mgrstat/digest, /service_map, /progress, /health
//! mon_metadata/<name>             map string -> string
//! mon_sync/force_sync             u64 le: the database goes at the next start; see sync.rs
//! answered/<number>               answers to commands that changed something
//! health/mutes                    JSON-free list, see health.rs
//! rebuild/osd_<id>                u64 le: the OSD's newest map; in what is collected of OSDs only, see collected.rs
//! ```

use bytes::Bytes;
use store::kv::{joined_key, prefix_range};
use store::{Kv, KvBatch, KvError};

pub(crate) const PAXOS: &str = "paxos";
pub(crate) const RAFT: &str = "raft";
pub(crate) const MONMAP: &str = "monmap";
pub(crate) const OSDMAP: &str = "osdmap";
pub(crate) const OSD_METADATA: &str = "osd_metadata";
pub(crate) const OSD_CREATING: &str = "osd_pg_creating";
pub(crate) const AUTH: &str = "auth";
pub(crate) const CONFIG_KEY: &str = "mon_config_key";
pub(crate) const CONFIG: &str = "config";
pub(crate) const LOGM: &str = "logm";
pub(crate) const MGR: &str = "mgr";
pub(crate) const MGR_METADATA: &str = "mgr_metadata";
pub(crate) const MDSMAP: &str = "mdsmap";
pub(crate) const MDS_METADATA: &str = "mds_metadata";
pub(crate) const MDS_HEALTH: &str = "mds_health";
pub(crate) const MGRSTAT: &str = "mgrstat";
pub(crate) const MON_METADATA: &str = "mon_metadata";
pub(crate) const MON_SYNC: &str = "mon_sync";
pub(crate) const HEALTH: &str = "health";
pub(crate) const REBUILD: &str = "rebuild";
pub(crate) const ANSWERED: &str = "answered";

/// A key of a service.
pub(crate) fn key(prefix: &str, key: &str) -> Bytes {
    joined_key(prefix, key.as_bytes())
}

/// A key with a number in it, sorted by the number.
pub(crate) fn numbered(prefix: &str, stem: &str, number: u64) -> Bytes {
    key(prefix, &format!("{stem}{number:016x}"))
}

/// The end of a service's keys.
pub(crate) fn end_of(prefix: &str) -> Bytes {
    prefix_range(prefix).1
}

/// A value.
pub(crate) fn get(kv: &dyn Kv, prefix: &str, name: &str) -> Result<Option<Bytes>, KvError> {
    kv.get(&key(prefix, name))
}

/// A number stored by [`put_u64`].
pub(crate) fn get_u64(kv: &dyn Kv, prefix: &str, name: &str) -> Result<Option<u64>, KvError> {
    let Some(value) = get(kv, prefix, name)? else { return Ok(None) };
    match <[u8; 8]>::try_from(&value[..]) {
        Ok(bytes) => Ok(Some(u64::from_le_bytes(bytes))),
        Err(_) => Err(KvError::Corrupt(format!("{prefix}/{name} is no number"))),
    }
}

/// Stores a number.
pub(crate) fn put_u64(batch: &mut KvBatch, prefix: &str, name: &str, value: u64) {
    batch.put(key(prefix, name), Bytes::copy_from_slice(&value.to_le_bytes()));
}

/// Every key of a service below `start`, without the service's prefix. For what is small: at most
/// a million entries are read.
pub(crate) fn all(kv: &dyn Kv, prefix: &str) -> Result<Vec<(String, Bytes)>, KvError> {
    let (start, end) = prefix_range(prefix);
    let skip = prefix.len() + 1;
    let entries = kv.range(&start, &end, 1_000_000)?;
    Ok(entries
        .into_iter()
        .filter(|(k, _)| k.len() >= skip)
        .map(|(k, v)| (String::from_utf8_lossy(&k[skip..]).into_owned(), v))
        .collect())
}
