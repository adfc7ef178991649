//! A PG's objects go to several: the store's side of it, and the children's cores.

use std::rc::Rc;

use maps::OsdMap;
use store::{CollId, StoreError, Transaction};
use types::{Epoch, HObject, PgId, SpgId};

use super::Pg;
use super::peering::Peering;

/// Whether a collection of `pgid` with that many bits holds the objects of `other`, too.
pub(crate) fn spans(pgid: PgId, bits: u32, other: PgId) -> bool {
    let first = HObject { pool: other.pool_id(), hash: other.seed, ..HObject::default() };
    pgid.contains(bits, &first)
}

impl Pg {
    /// Before a split: nothing is under way any more.
    pub(crate) fn stop_for_split(&self) {
        self.splitting.set(true);
        self.on_interval_change();
    }

    /// Between the beginning of a split and the map that makes it.
    pub(crate) fn is_splitting(&self) -> bool {
        self.splitting.get()
    }

    /// Gives the objects that belong to `children` in a pool of `after` PGs to collections of their
    /// own; the new PGs are at the map before the split. All is one transaction: after a crash
    /// either all children are there or none.
    pub(crate) async fn split(
        &self,
        children: &[SpgId],
        after: u32,
        map: &OsdMap,
    ) -> Result<Vec<Rc<Pg>>, StoreError> {
        let mut t = Transaction::new();
        self.core.borrow_mut().info.history.last_epoch_split = map.epoch;
        let mut made = Vec::new();
        for (done, child) in children.iter().enumerate() {
            // The counts are shared out evenly until a scrub, due at once, counts.
            let parts = (children.len() - done + 1) as i64;
            let core = self.split_core(*child, after, map.epoch, parts);
            let bits = child.pgid.split_bits(after);
            let cid = CollId::Pg(*child);
            t.mkcoll(&cid, bits);
            t.split_collection(&self.cid, bits, child.pgid.seed, &cid);
            t.touch(&cid, &child.pgmeta());
            let child = Pg::new(self.host.clone(), core, self.map.borrow().clone());
            child.write_dirty(&mut t);
            made.push(child);
        }
        self.write_dirty(&mut t);
        self.host.store().submit(t).await?;
        Ok(made)
    }

    /// A child's core, taken out of this PG's.
    fn split_core(&self, child: SpgId, after: u32, epoch: Epoch, parts: i64) -> Peering {
        let bits = child.pgid.split_bits(after);
        let belongs = |oid: &HObject| child.pgid.contains(bits, oid);
        let mut core = self.core.borrow_mut();
        let mut info = core.info.clone();
        info.pgid = child;
        info.history.epoch_created = epoch;
        info.stats.stats.sum.for_each_field(|n| n / parts);
        info.stats.stats_invalid = true;
        core.info.stats.stats.sum.for_each_field(|n| n - n / parts);
        core.info.stats.stats_invalid = true;
        let mut made = Peering::load(
            core.whoami,
            child,
            core.settings.clone(),
            core.mapping.clone(),
            core.epoch,
            info,
            core.past_intervals.clone(),
        );
        made.inherit_leases(&core);
        made.log = core.log.split(belongs);
        for (oid, item) in core.missing.iter().filter(|(oid, _)| belongs(oid)) {
            made.missing.add(oid, item.need, item.have, item.is_delete);
        }
        core.retain_missing(|oid| !belongs(oid));
        core.update_last_complete();
        made.update_last_complete();
        core.mark_dirty_big_info();
        made.mark_dirty_big_info();
        made
    }
}
