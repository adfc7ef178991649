//! What a scrub found, kept for `rados list-inconsistent-obj|snapset` in the omap of a temporary
//! object of the PG until the next scrub or interval (`Scrub::Store` in `src/osd/ScrubStore.cc`).
//!
//! ```text
//! SCRUB_OBJ_{object}  ->  inconsistent_obj_t
//! SCRUB_SS_{object}   ->  inconsistent_snapset_t
//! object: as in the snap mapper, with a hash of 0: by name
//! ```

use std::collections::BTreeMap;

use bstr::BString;
use bytes::Bytes;
use denc::Denc;
use store::Transaction;
use types::osd::scrub_errors::{InconsistentObject, InconsistentSnapset};
use types::{GhObject, HObject, SpgId};

use crate::ops::snap_mapper::object_text;
use crate::pg::Pg;

const OBJECTS: &str = "SCRUB_OBJ_";
const SNAPSETS: &str = "SCRUB_SS_";

/// The prefix of one kind of rows.
pub fn prefix(snapsets: bool) -> &'static str {
    if snapsets { SNAPSETS } else { OBJECTS }
}

/// The row of an object.
pub fn key(snapsets: bool, oid: &HObject) -> BString {
    let mut key = BString::from(prefix(snapsets));
    key.extend_from_slice(&object_text(&HObject { hash: 0, ..oid.clone() }));
    key
}

/// The object that holds the rows.
pub fn object_of(pgid: SpgId) -> GhObject {
    let in_pg = HObject { pool: pgid.pgid.pool_id(), hash: pgid.pgid.seed, ..HObject::default() };
    let oid = in_pg.make_temp(format!("scrub_{pgid}"));
    GhObject { shard: pgid.shard, ..GhObject::from(oid) }
}

impl Pg {
    /// A scrub begins: what the last one found goes.
    pub(super) fn clear_results(&self) -> Transaction {
        let mut t = Transaction::new();
        let oid = object_of(self.pgid);
        t.remove(&self.cid, &oid);
        t.touch(&self.cid, &oid);
        t
    }

    /// The rows of what was found in a chunk.
    pub(super) fn add_results(
        &self,
        objects: &[(HObject, InconsistentObject)],
        snapsets: &[(HObject, InconsistentSnapset)],
    ) -> Transaction {
        let mut rows: BTreeMap<BString, Bytes> = BTreeMap::new();
        rows.extend(objects.iter().map(|(oid, told)| (key(false, oid), told.to_bytes())));
        rows.extend(snapsets.iter().map(|(oid, told)| (key(true, oid), told.to_bytes())));
        let mut t = Transaction::new();
        if !rows.is_empty() {
            t.omap_setkeys(&self.cid, &object_of(self.pgid), rows);
        }
        t
    }
}
