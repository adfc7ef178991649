//! Recording checksums that a deep scrub took in object infos.

use std::rc::Rc;

use denc::Denc;
use store::Transaction;
use types::osd::{
    LogExtras, LogOp, ObjectCleanRegions, ObjectInfo, ObjectModDesc, ObjectStatSum, PgLogEntry,
};
use types::{EVersion, Errno, HObject};

use super::execute::Reply;
use super::finish::{Mutation, Pending, PendingWrite};
use super::object_context::{OI_ATTR, ObjectContext, ObjectGuard};
use super::pg::Pg;
use super::watch::Effects;

/// A new object info, waiting for its version.
pub(super) struct InfoUpdate {
    pg: Rc<dyn Pg>,
    guard: ObjectGuard,
    object: Rc<ObjectContext>,
    oi: ObjectInfo,
}

/// Checksums of an object in one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Digests {
    /// Which.
    pub version: EVersion,
    /// Of the content.
    pub data: Option<u32>,
    /// Of the omap.
    pub omap: Option<u32>,
}

/// Records the digests of `oid` (forgets those that are `None`). The guard is a `Write` lock of its
/// object. `None` if there is no such object any more, or if it has been written since: a digest of what it
/// was would make all copies unreadable.
pub async fn record(
    pg: &Rc<dyn Pg>,
    guard: ObjectGuard,
    oid: &HObject,
    digests: &Digests,
) -> Result<Option<PendingWrite>, Errno> {
    let object = guard.context(pg, oid.snap).await?;
    let mut oi = {
        let obs = object.obs.borrow();
        if !obs.exists || obs.oi.version != digests.version {
            return Ok(None);
        }
        obs.oi.clone()
    };
    match digests.data {
        Some(digest) => oi.set_data_digest(digest),
        None => oi.clear_data_digest(),
    }
    match digests.omap {
        Some(digest) => oi.set_omap_digest(digest),
        None => oi.clear_omap_digest(),
    }
    let update = InfoUpdate { pg: pg.clone(), guard, object, oi };
    Ok(Some(PendingWrite { inner: Pending::Info(Box::new(update)) }))
}

impl InfoUpdate {
    /// The object.
    pub(super) fn objects(&self) -> [HObject; 1] {
        [self.oi.soid.clone()]
    }

    pub(super) fn finish(self, at: EVersion, last_user_version: u64) -> Mutation {
        let InfoUpdate { pg, guard, object, mut oi } = self;
        let soid = oi.soid.clone();
        let prior_version = oi.version;
        oi.prior_version = prior_version;
        oi.version = at;
        let mut transaction = Transaction::new();
        let goid = pg.goid(&soid);
        transaction.setattr(&pg.coll(), &goid, OI_ATTR, oi.to_bytes());
        let snaps = object
            .ssc
            .borrow()
            .snapset
            .clone_snaps
            .get(&soid.snap)
            .map(|snaps| snaps.to_bytes())
            .unwrap_or_default();
        let entry = PgLogEntry {
            op: LogOp::MODIFY,
            soid: soid.clone(),
            version: at,
            prior_version,
            user_version: oi.user_version,
            extras: LogExtras { snaps, ..LogExtras::default() }.boxed(),
            mod_desc: ObjectModDesc::unrollbackable(),
            clean_regions: ObjectCleanRegions::default(),
            ..PgLogEntry::default()
        };
        object.obs.borrow_mut().oi = oi;
        guard.submitted();
        Mutation {
            soid,
            transaction,
            entries: vec![entry],
            at_version: at,
            user_version: last_user_version,
            stats: ObjectStatSum::default(),
            guard,
            effects: Effects::default(),
            reply: Reply::default(),
        }
    }
}
