//! Merges of PGs on this OSD: what the primaries of both halves say is told to the monitor
//! (`OSDService::send_ready_to_merge`), and the map that makes the merge makes one PG of them
//! (`OSD::advance_pg` in `src/osd/OSD.cc` at v16.2).
//!
//! Source and target lie on the same OSDs with the same primary, or nothing is told.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use ::maps::OsdMap;
use messages::{MOSDPGReadyToMerge, Message, PaxosHeader};
use types::{EVersion, Epoch, PgId, SpgId};

use super::{Osd, OsdError};
use crate::pg::Pg;
use crate::pg::merge::source_of;
use crate::pg::peering::MergeRole;

/// A PG to take the objects of others, and those; `None` where no copy is here.
type Family = (Rc<Pg>, Vec<(SpgId, Option<Rc<Pg>>)>);

/// What the PGs of this OSD said of their merges; one entry a PG at most.
#[derive(Debug, Default)]
pub(super) struct Merges(RefCell<Told>);

/// By copy: beside the one that leads, an OSD may have a stray of another shard, whose intervals
/// end (with its removal) when the leader's do not.
#[derive(Debug, Default)]
struct Told {
    sources: BTreeMap<SpgId, EVersion>,
    /// With `last_epoch_started` and `last_epoch_clean`.
    targets: BTreeMap<SpgId, (EVersion, Epoch, Epoch)>,
    /// PGs that lack copies, and the source of their merge.
    not_ready: BTreeMap<SpgId, PgId>,
    /// Sources of which the monitor has been told.
    sent: BTreeSet<PgId>,
}

impl Merges {
    pub(super) fn set_ready(
        &self,
        pgid: SpgId,
        role: MergeRole,
        at: EVersion,
        (started, clean): (Epoch, Epoch),
    ) {
        let mut told = self.0.borrow_mut();
        told.not_ready.remove(&pgid);
        match role {
            MergeRole::Source => drop(told.sources.insert(pgid, at)),
            MergeRole::Target(_) => drop(told.targets.insert(pgid, (at, started, clean))),
        }
    }

    pub(super) fn set_not_ready(&self, pgid: SpgId, role: MergeRole) {
        let mut told = self.0.borrow_mut();
        told.sources.remove(&pgid);
        told.targets.remove(&pgid);
        told.not_ready.insert(pgid, source_of(pgid.pgid, role));
    }

    pub(super) fn clear(&self, pgid: SpgId) {
        let mut told = self.0.borrow_mut();
        let said = told.sources.remove(&pgid).is_some()
            | told.targets.remove(&pgid).is_some()
            | told.not_ready.remove(&pgid).is_some();
        if said {
            let of = pgid.pgid;
            told.sent.retain(|source| *source != of && source.parent() != of);
        }
    }

    /// The monitor may not have heard it, or not heeded it.
    pub(super) fn forget_sent(&self) {
        self.0.borrow_mut().sent.clear();
    }

    /// What the monitor is to be told now.
    fn due(&self, epoch: Epoch) -> Vec<MOSDPGReadyToMerge> {
        let mut told = self.0.borrow_mut();
        let told = &mut *told;
        let blank = |pgid: PgId| MOSDPGReadyToMerge {
            paxos: PaxosHeader { version: epoch.into(), ..PaxosHeader::default() },
            pgid,
            source_version: EVersion::ZERO,
            target_version: EVersion::ZERO,
            last_epoch_started: 0,
            last_epoch_clean: 0,
            ready: false,
        };
        let mut due = Vec::new();
        for source in told.not_ready.values() {
            if told.sent.insert(*source) {
                due.push(blank(*source));
            }
        }
        for (SpgId { pgid: source, .. }, at) in &told.sources {
            let off = told.not_ready.values().any(|other| other == source);
            let mut targets = told.targets.iter();
            let Some((_, (target_at, started, clean))) =
                targets.find(|(target, _)| target.pgid == source.parent())
            else {
                continue;
            };
            if !off && told.sent.insert(*source) {
                due.push(MOSDPGReadyToMerge {
                    source_version: *at,
                    target_version: *target_at,
                    last_epoch_started: *started,
                    last_epoch_clean: *clean,
                    ready: true,
                    ..blank(*source)
                });
            }
        }
        due
    }
}

impl Osd {
    pub(super) fn send_ready_to_merge(&self) {
        if !self.is_active() {
            return;
        }
        for message in self.merges.due(self.current_map().epoch) {
            tracing::info!("pg {}: ready to merge: {}", message.pgid, message.ready);
            self.monc.send(message.encode());
        }
    }

    /// Which PGs of a pool become one at `map`, and copies of PGs that go whose target is not here:
    /// they are of no use to anybody, for when the merge was agreed on, all of the acting set had
    /// both.
    fn families(&self, map: &OsdMap, id: i64) -> (Vec<Family>, Vec<Rc<Pg>>) {
        let mut families = Vec::new();
        let mut used = BTreeSet::new();
        let after = map.pool(id).map_or(0, |pool| pool.pg_num);
        let of_pool = self.all_pgs().into_iter().filter(|pg| pg.pgid().pgid.pool_id() == id);
        let pgs: BTreeMap<SpgId, Rc<Pg>> = of_pool.map(|pg| (pg.pgid(), pg)).collect();
        let shrinks = |pg: &Rc<Pg>| after > 0 && pg.pool().pg_num > after && pg.epoch() < map.epoch;
        for (pgid, pg) in pgs.iter().filter(|(_, pg)| shrinks(pg)) {
            // What it would split into if the pool grew back.
            let sources: Vec<_> = pgid
                .pgid
                .children(after, pg.pool().pg_num)
                .into_iter()
                .map(|source| SpgId { pgid: source, shard: pgid.shard })
                .map(|source| (source, pgs.get(&source).filter(|pg| shrinks(pg)).cloned()))
                .collect();
            if !sources.is_empty() {
                used.extend(sources.iter().map(|(source, _)| *source));
                families.push((pg.clone(), sources));
            }
        }
        let orphans = pgs
            .iter()
            .filter(|(pgid, pg)| shrinks(pg) && pgid.pgid.seed >= after && !used.contains(pgid))
            .map(|(_, pg)| pg.clone())
            .collect();
        (families, orphans)
    }

    /// Moves the PGs of a pool that shrinks to new maps, one map after the other.
    pub(super) async fn advance_and_merge(self: &Rc<Osd>, id: i64, new: &[Rc<OsdMap>]) {
        for map in new {
            let (families, orphans) = self.families(map, id);
            for pg in orphans {
                self.remove(&pg);
            }
            for (target, mut sources) in families {
                // Copies may have begun to go while other families were merged.
                for (_, source) in &mut sources {
                    *source = source.take().filter(|source| self.keeps(source));
                }
                if !self.keeps(&target) {
                    sources
                        .iter()
                        .filter_map(|(_, source)| source.as_ref())
                        .for_each(|pg| self.remove(pg));
                    continue;
                }
                // Nothing may be under way: writes of before are in these collections.
                target.stop_for_split();
                for (pgid, source) in &sources {
                    if let Some(source) = source {
                        source.stop();
                        self.pgs.borrow_mut().remove(pgid);
                    }
                }
                if let Err(e) = target.merge_from(&sources, map).await {
                    self.fail(format!("cannot merge into {}: {e}", target.pgid()));
                    return;
                }
                target.advance(std::slice::from_ref(map));
            }
            for pg in self.all_pgs() {
                if pg.pgid().pgid.pool_id() == id {
                    self.advance_and_split(&pg, std::slice::from_ref(map)).await;
                }
            }
        }
    }

    /// At the start: merges that the last life left undone. `known` are the PGs found in the store.
    pub(super) async fn merge_at_load(
        &self,
        map: &Rc<OsdMap>,
        known: &mut BTreeSet<SpgId>,
    ) -> Result<(), OsdError> {
        for id in map.pools.keys() {
            let (families, orphans) = self.families(map, *id);
            // The last life was about to remove them. Gone now, they are not taken for copies of a
            // PG of the same name should the pool have grown again.
            for pg in orphans {
                self.pgs.borrow_mut().remove(&pg.pgid());
                known.remove(&pg.pgid());
                self.remove_collection(&store::CollId::Pg(pg.pgid())).await?;
            }
            for (target, sources) in families {
                for (pgid, _) in &sources {
                    self.pgs.borrow_mut().remove(pgid);
                    known.remove(pgid);
                }
                target.merge_from(&sources, map).await?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: PgId = PgId::new(1, 7);
    const TARGET: PgId = PgId::new(1, 3);

    fn shard(pgid: PgId, shard: i8) -> SpgId {
        SpgId { pgid, shard }
    }

    /// Both halves are ready, on an OSD that leads them with shard 0.
    fn ready() -> Merges {
        let merges = Merges::default();
        let at = |version| EVersion { epoch: 5, version };
        merges.set_ready(shard(SOURCE, 0), MergeRole::Source, at(9), (4, 4));
        assert_eq!(merges.due(10), []);
        merges.set_ready(shard(TARGET, 0), MergeRole::Target(SOURCE), at(7), (4, 4));
        merges
    }

    fn said(merges: &Merges) -> Vec<(PgId, bool)> {
        merges.due(10).iter().map(|m| (m.pgid, m.ready)).collect()
    }

    /// The leader of a PG of shards was ready; then a stray of another shard on the same OSD was
    /// removed, and with it what the leader had said: the merge waited for ever.
    #[test]
    fn a_stray_that_goes_does_not_take_back_what_the_leader_said() {
        let merges = ready();
        for stray in [shard(SOURCE, 2), shard(TARGET, 1)] {
            merges.clear(stray);
        }
        assert_eq!(said(&merges), [(SOURCE, true)]);
        merges.clear(shard(TARGET, 2));
        merges.forget_sent();
        assert_eq!(said(&merges), [(SOURCE, true)]);
        merges.clear(shard(TARGET, 0));
        merges.forget_sent();
        assert_eq!(said(&merges), []);
    }

    /// A monitor that lost it, with the leader it passed it on to, never asked: it is said again
    /// until the map answers (`Osd::resend_to_mon`), and not in between.
    #[test]
    fn it_is_said_again_until_a_map_answers() {
        let merges = ready();
        for _ in 0..2 {
            assert_eq!(said(&merges), [(SOURCE, true)]);
            assert_eq!(said(&merges), []);
            merges.forget_sent();
        }
        merges.set_not_ready(shard(TARGET, 0), MergeRole::Target(SOURCE));
        assert_eq!(said(&merges), [(SOURCE, false)]);
    }
}
