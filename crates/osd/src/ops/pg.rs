//! What the interpreter asks of the PG around it, and the limits it keeps.

use std::rc::Rc;

use bstr::BString;
use bytes::Bytes;
use env::{Env, LocalFuture};
use maps::PgPool;
use store::{CollId, ObjectStore};
use types::osd::OsdOp;
use types::{
    EVersion, EntityAddr, EntityName, Epoch, Errno, GhObject, HObject, ObjectLocator, OsdReqId,
    SnapId, SpgId,
};

use super::{ClassLists, SnapMapper};

/// The PG an op runs in. All answers are of the moment of the call.
pub trait Pg {
    /// Time, randomness, tasks.
    fn env(&self) -> &Env;
    /// The OSD's store.
    fn store(&self) -> &Rc<dyn ObjectStore>;
    /// Which clones serve which snapshot; its rows are in the same store.
    fn snap_mapper(&self) -> &SnapMapper;
    /// The PG's collection.
    fn coll(&self) -> CollId;
    /// The PG.
    fn pgid(&self) -> SpgId;
    /// The name of an object of the PG in the store.
    fn goid(&self, oid: &HObject) -> GhObject {
        GhObject { shard: self.pgid().shard, ..GhObject::from(oid.clone()) }
    }
    /// Reads a range of an object that is not whole in the store: of an erasure coded PG. `None`
    /// of a replicated one.
    fn read_shards(
        &self,
        oid: &HObject,
        offset: u64,
        len: u64,
    ) -> Option<LocalFuture<Result<Bytes, Errno>>> {
        let _ = (oid, offset, len);
        None
    }
    /// The PG's pool in the map the PG is at.
    fn pool(&self) -> Rc<PgPool>;
    /// Configured limits.
    fn limits(&self) -> Rc<Limits>;
    /// `info.last_update`, counting writes that are still under way.
    fn last_update(&self) -> EVersion;
    /// First epoch of this interval.
    fn interval_since(&self) -> Epoch;
    /// Whether the snapshot is removed: waiting to be trimmed here, or trimmed.
    fn is_snap_removed(&self, snap: SnapId) -> bool;
    /// `info.last_user_version`, counting writes that are still under way.
    fn last_user_version(&self) -> u64;
    /// Whether the object (a head or a clone) is missing here: it cannot be read before recovery.
    fn is_unreadable(&self, oid: &HObject) -> bool;
    /// Whether an acting replica lacks the object: it cannot be written or cloned from before.
    fn is_degraded(&self, oid: &HObject) -> bool;
    /// The PG's own missing objects from `from` on, in order, at most `max` (a listing must show
    /// what is not in the store yet).
    fn missing_from(&self, from: &HObject, max: usize) -> Vec<MissingObject>;
    /// The last requests that changed the object, newest first, at most `max`, with the results
    /// of those that failed (for copy-get; from the log).
    fn object_reqids(&self, oid: &HObject, max: usize) -> Vec<(OsdReqId, u64, i32)>;
    /// Sends a read to the primary of another object (copy-from), as an objecter would: finds the
    /// OSD, resends on map changes. Ends with an error only if the pool is gone.
    fn read_remote(&self, read: RemoteRead) -> LocalFuture<Result<RemoteReply, Errno>>;
    /// The object in whose omap the last scrub of this interval left what it found.
    fn scrub_results(&self) -> Option<GhObject>;
    /// The object's copy here turned out to be unreadable; it should have this version, which is
    /// zero if that is not known. `true` if a good one is being fetched: run the op again after
    /// that.
    fn on_unreadable(&self, oid: &HObject, version: EVersion) -> bool;
    /// A number for the next notify: (epoch << 32) | counter.
    fn next_notify_id(&self) -> u64;
    /// Whether the map shuts that client out.
    fn is_blocklisted(&self, addr: &EntityAddr) -> bool;
    /// A watch has not been heard of for its timeout: run [`super::watch::execute_timeout`] for
    /// it, as one runs an op.
    fn on_watch_timeout(&self, oid: &HObject, cookie: u64, watcher: EntityName);
}

/// An object that the PG should have and has not.
#[derive(Debug, Clone)]
pub struct MissingObject {
    /// The object.
    pub oid: HObject,
    /// Whether its newest version is its deletion.
    pub is_delete: bool,
}

/// A read of another object, perhaps of another pool.
#[derive(Debug, Clone)]
pub struct RemoteRead {
    /// Name.
    pub name: BString,
    /// Pool, key and namespace.
    pub locator: ObjectLocator,
    /// Snapshot or head.
    pub snap: SnapId,
    /// The ops.
    pub ops: Vec<OsdOp>,
    /// MOSDOp flags beside READ.
    pub flags: u32,
}

/// What the other OSD answered.
#[derive(Debug, Clone)]
pub struct RemoteReply {
    /// Result of the vector.
    pub result: i32,
    /// Result and output of each op.
    pub ops: Vec<(i32, Bytes)>,
    /// The object's user version.
    pub user_version: u64,
}

/// Limits from the configuration; the defaults are Ceph's.
#[derive(Debug, Clone)]
pub struct Limits {
    /// osd_class_load_list and osd_class_default_list.
    pub classes: ClassLists,
    /// osd_max_object_size, bytes.
    pub object_size: u64,
    /// osd_max_object_name_len, bytes; also of locator keys.
    pub object_name_len: usize,
    /// osd_max_object_namespace_len, bytes.
    pub namespace_len: usize,
    /// osd_max_attr_name_len, bytes.
    pub attr_name_len: usize,
    /// osd_max_attr_size, bytes; 0 for no limit.
    pub attr_size: u64,
    /// osd_max_write_size, bytes of one message's data.
    pub write_size: u64,
    /// osd_max_omap_entries_per_request.
    pub omap_entries: u64,
    /// osd_max_omap_bytes_per_request.
    pub omap_bytes: u64,
    /// osd_max_write_op_reply_len, bytes of one write op's output with RETURNVEC.
    pub write_op_reply_len: usize,
    /// osd_max_pgls, entries of one listing.
    pub pgls: u64,
    /// osd_client_watch_timeout, seconds.
    pub watch_timeout_sec: u32,
    /// osd_default_notify_timeout, seconds.
    pub notify_timeout_sec: u32,
    /// osd_copyfrom_max_chunk, bytes of one copy-get.
    pub copy_chunk: u64,
    /// Bytes that one request's ops may answer and write together, or one copy has: few bytes can
    /// ask for much (reads, `writesame`, a copy of all keys), and all of it is in memory at once.
    pub held: u64,
    /// osd_hit_set_namespace: never listed.
    pub hit_set_namespace: BString,
    /// Whether data digests are left out of object info (osd_skip_data_digest). On by default,
    /// unlike Ceph's: every store of ours checks its own data, and a digest costs each write a
    /// pass over it.
    pub skip_data_digest: bool,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            classes: ClassLists::default(),
            object_size: 128 << 20,
            object_name_len: 2048,
            namespace_len: 256,
            attr_name_len: 100,
            attr_size: 0,
            write_size: 90 << 20,
            omap_entries: 1024,
            omap_bytes: 1 << 30,
            write_op_reply_len: 64,
            pgls: 1024,
            watch_timeout_sec: 30,
            notify_timeout_sec: 30,
            copy_chunk: 8 << 20,
            held: 256 << 20, // twice the largest object
            hit_set_namespace: BString::from(".ceph-internal"),
            skip_data_digest: true,
        }
    }
}
