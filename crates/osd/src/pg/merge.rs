//! PGs become one: what is before it (they are quiet, and tell the OSD when they are ready), and
//! the store's side of it.

use std::cell::RefMut;
use std::rc::Rc;

use maps::OsdMap;
use store::{StoreError, Transaction};
use types::SpgId;

use super::Pg;
use super::log::Undo;
use super::peering::{MergeRole, Peering};

impl Pg {
    /// All followers are activated in a PG that is to merge: if there are not enough of them, the
    /// merge is off.
    pub(super) fn merge_on_activated(&self) {
        let (role, enough) = {
            let core = self.core.borrow();
            (core.pending_merge(), core.acting_len() >= core.mapping.size as usize)
        };
        if let (Some(role), false) = (role, enough) {
            self.host.not_ready_to_merge(self.pgid, role);
        }
    }

    /// The PG is clean: if it is to merge, it can. Nothing is written to it from now on.
    pub(super) fn merge_on_clean(&self) {
        let core = self.core.borrow();
        let Some(role) = core.pending_merge() else { return };
        let (info, history) = (&core.info, &core.info.history);
        let at = info.last_update;
        let started = history.last_epoch_started.max(info.last_epoch_started);
        let clean = history.last_epoch_clean;
        drop(core);
        self.host.ready_to_merge(self.pgid, role, at, (started, clean));
    }

    /// Whether the PG is to merge: nothing is to change in it.
    pub(crate) fn is_premerge(&self) -> bool {
        self.core.borrow().pending_merge().is_some()
    }

    /// Takes over what `sources` have; `map` is the one that makes the merge, and the PG is at it
    /// then. All is one transaction: after a crash it is as before, or done.
    pub(crate) async fn merge_from(
        &self,
        sources: &[(SpgId, Option<Rc<Pg>>)],
        map: &Rc<OsdMap>,
    ) -> Result<(), StoreError> {
        let Some(pool) = map.pool(self.pgid.pgid.pool_id()) else { return Ok(()) };
        let bits = self.pgid.pgid.split_bits(pool.pg_num);
        let mut t = Transaction::new();
        {
            let mut core = self.core.borrow_mut();
            let mut cores: Vec<Option<RefMut<'_, Peering>>> =
                sources.iter().map(|(_, pg)| pg.as_ref().map(|pg| pg.core.borrow_mut())).collect();
            let mut parts: Vec<_> = sources
                .iter()
                .zip(&mut cores)
                .map(|((spgid, _), core)| (spgid.pgid, core.as_deref_mut()))
                .collect();
            let (mine, theirs) = core.merge_from(&mut parts, &pool.last_pg_merge_meta);
            drop(cores);
            drop(core);
            self.let_go(mine, &mut t);
            for ((_, source), undo) in sources.iter().zip(theirs) {
                if let Some(source) = source {
                    source.let_go(undo, &mut t);
                    t.remove(&source.cid, &source.pgmeta);
                    t.merge_collection(&source.cid, &self.cid, bits);
                }
            }
        }
        // If no source is here, nothing else has said it.
        t.coll_set_bits(&self.cid, bits);
        self.advance_quietly(map);
        self.write_dirty(&mut t);
        self.host.store().submit(t).await
    }

    fn let_go(&self, kept: Vec<Undo>, t: &mut Transaction) {
        for undo in kept {
            if let Undo::Trim(e) = undo {
                self.trim_entry(&e, t);
            }
        }
    }
}

/// The PG that says whether a merge can be: the source, whose name the monitor is told.
pub(crate) fn source_of(pgid: types::PgId, role: MergeRole) -> types::PgId {
    match role {
        MergeRole::Source => pgid,
        MergeRole::Target(source) => source,
    }
}
