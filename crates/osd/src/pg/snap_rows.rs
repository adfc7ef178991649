//! Rows of the snap mapper where the primary is Ceph's: its transactions have none, each OSD makes them of the
//! log's entries (`PG::update_snap_map`). Ours come with the transaction.

use std::collections::BTreeSet;

use denc::Denc;
use store::{CollId, StoreError, Transaction};
use types::osd::PgLogEntry;
use types::{HObject, SnapId};

use super::Pg;

impl Pg {
    /// What the entries of a write say of clones, in the same transaction if nothing need be read for it: a
    /// clone without rows would stay for ever. What it served before is read; rows of it that are left when
    /// power fails first are dropped when somebody comes by.
    pub(super) fn map_snaps(&self, entries: &[PgLogEntry], t: &mut Transaction) {
        let of_clones = || entries.iter().filter(|e| e.soid.is_snap());
        for e in of_clones().filter(|e| e.is_clone()) {
            self.host.snap_mapper().has_come(&e.soid);
        }
        if of_clones().next().is_none() || t.collections().contains(&CollId::Meta) {
            return;
        }
        let mut changed = Vec::new();
        for e in of_clones() {
            // What is behind, backfill brings as it is then.
            if e.soid > self.core.borrow().info.last_backfill {
                continue;
            }
            let snaps = match e.is_delete() {
                true => BTreeSet::new(),
                false => match Vec::<SnapId>::from_bytes(&e.extras().snaps) {
                    Ok(snaps) => snaps.into_iter().collect(),
                    Err(_) => continue,
                },
            };
            if e.is_clone() {
                self.host.snap_mapper().add(&e.soid, snaps, t);
            } else {
                changed.push((e.soid.clone(), snaps));
            }
        }
        if changed.is_empty() {
            return;
        }
        let pg = self.rc();
        self.host.env().go(async move {
            for (oid, snaps) in changed {
                if let Err(e) = pg.remap(&oid, snaps).await {
                    return pg.host.store_failed(&e);
                }
            }
        });
    }

    /// Not every change of a clone is one of its snapshots: what is so already is left, as a write that comes next
    /// may be of these rows.
    async fn remap(&self, oid: &HObject, snaps: BTreeSet<SnapId>) -> Result<(), StoreError> {
        let mapper = self.host.snap_mapper();
        if mapper.snaps(oid).await? == snaps {
            return Ok(());
        }
        let mut t = Transaction::new();
        mapper.update(oid, snaps, &mut t).await?;
        self.host.store().submit(t).await
    }
}
