//! Repair: damaged copies are noted as missing, and recovery brings good ones
//! (`repair_object`, `rep_repair_primary_object` in `src/osd/PrimaryLogPG.cc`).

use std::collections::BTreeSet;

use types::{EVersion, HObject, PgShard};

use super::compare::Findings;
use crate::ops::LockKind;
use crate::pg::Pg;
use crate::pg::host::LogLevel;
use crate::pg::peering::Peering;
use crate::pg::reserve::{Phase, Purpose};

impl Pg {
    /// Notes the damaged copies of a scrub; their number, or nothing if the interval ended first. Each object's once no
    /// write of it is on its way: one that had found nothing missing would give all copies a version that is not the
    /// one to be fetched, which nobody has then.
    pub(super) async fn mark_damaged(&self, found: &Findings) -> Option<u32> {
        let generation = self.generation.get();
        let mut count = 0;
        for (oid, good) in &found.good {
            let _guard = self.contexts.lock(&oid.head(), LockKind::Read).await;
            let own = self.own_version(oid).await;
            if generation != self.generation.get() {
                return None;
            }
            let none = BTreeSet::new();
            let missing = found.missing.get(oid).unwrap_or(&none);
            let wrong = found.inconsistent.get(oid).unwrap_or(&none);
            // Removed since, from all copies: nobody has anything to be fetched.
            let is_removed = !self.scrub.damaged.borrow().contains(oid);
            // Written since, and the log may have forgotten it: any version there is will do.
            let version = if own > good.version { EVersion::ZERO } else { good.version };
            for shard in missing.iter().chain(wrong) {
                if !is_removed {
                    self.mark_missing(oid, version, *shard);
                }
                count += 1;
            }
            if !is_removed {
                self.core.borrow_mut().info.stats.stats.sum.num_objects_repaired += 1;
            }
        }
        Some(count)
    }

    /// A copy is to be fetched anew, in the version the object has by now: it may have been written since the
    /// damage was seen, and nobody has the version of then. One that was removed needs nothing. The object's lock is held.
    fn mark_missing(&self, oid: &HObject, version: EVersion, shard: PgShard) {
        let newest = self.core.borrow().log.newest_of(oid).map(|e| (e.version, e.is_delete()));
        let version = match newest {
            Some((_, true)) => return,
            Some((newest, false)) => newest.max(version),
            None => version,
        };
        if self.reservations.phase() == Phase::Working(Purpose::Backfill) {
            self.recovery.while_backfilling.set(true);
        }
        let mut core = self.core.borrow_mut();
        if shard == core.whoami {
            core.missing.add(oid, version, EVersion::ZERO, false);
            core.lower_last_complete();
            core.mark_dirty_info();
        } else {
            let missing = core.peer_missing.entry(shard).or_default();
            missing.add(oid, version, EVersion::ZERO, false);
        }
    }

    /// Recovery of what is noted as missing begins.
    pub(super) fn begin_repair(&self) {
        self.core.borrow_mut().unclean();
        self.update_stamps();
        self.kick_recovery();
    }

    /// An object turned out to be unreadable here, which should have this version, or, if that is
    /// zero, the one that the log knows. `true` if another copy is fetched: the op is to wait for it.
    pub(in crate::pg) fn repair_unreadable(&self, oid: &HObject, version: EVersion) -> bool {
        let logged = || self.core.borrow().log.newest_of(oid).map(|e| e.version);
        let version = match version.is_zero() {
            // Still zero if it was written too long ago: then any version there is will do.
            true => logged().unwrap_or_default(),
            false => version,
        };
        let fetchable = {
            let core = self.core.borrow();
            core.is_primary()
                && core.is_activated()
                && !core.missing.contains(oid)
                && self.others_have(oid, version)
        };
        if !fetchable {
            return self.core.borrow().missing.contains(oid);
        }
        let text = format!(
            "{} missing primary copy of {oid}, will try copies on {}",
            self.pgid,
            self.sources_text(oid, version)
        );
        self.host.cluster_log(LogLevel::Error, text);
        let whoami = self.core.borrow().whoami;
        self.mark_missing(oid, version, whoami);
        self.scrub.repairing.set(true);
        self.core.borrow_mut().info.stats.stats.sum.num_objects_repaired += 1;
        self.begin_repair();
        true
    }

    /// An object is unreadable here and nobody else has it: it is missing, and so unfound
    /// (`PrimaryLogPG::primary_error`, `rep_repair_primary_object` in `src/osd/PrimaryLogPG.cc`).
    pub(in crate::pg) fn lose_own(&self, oid: &HObject, version: EVersion) {
        let leads = {
            let core = self.core.borrow();
            core.is_primary() && core.is_activated()
        };
        if !leads {
            return;
        }
        let text = format!("{} missing primary copy of {oid}, unfound", self.pgid);
        self.host.cluster_log(LogLevel::Error, text);
        let whoami = self.core.borrow().whoami;
        self.mark_missing(oid, version, whoami);
        self.begin_repair();
    }

    /// A shard that another one was to be made of turned out to be damaged: it is made anew next
    /// (`PrimaryLogPG::on_failed_pull` in `src/osd/PrimaryLogPG.cc`). Of a stray nothing is noted: nobody is to read it.
    pub(in crate::pg) fn source_is_damaged(
        &self,
        oid: &HObject,
        version: EVersion,
        shard: PgShard,
    ) {
        let is_member = {
            let core = self.core.borrow();
            shard == core.whoami || core.acting_backfill.contains(&shard)
        };
        if is_member {
            self.mark_missing(oid, version, shard);
        }
    }

    /// Shards of an object turned out to be damaged, and the others to be enough: they are made anew from
    /// those, once no write of the object is on its way.
    pub(in crate::pg) fn repair_shards(&self, oid: &HObject, mut damaged: Vec<PgShard>) {
        if damaged.is_empty() {
            return;
        }
        let text = format!("Error(s) ignored for {oid} enough copies available");
        self.host.cluster_log(LogLevel::Warn, text);
        let (pg, oid, generation) = (self.rc(), oid.clone(), self.generation.get());
        self.host.env().go(async move {
            let _guard = pg.contexts.lock(&oid.head(), LockKind::Read).await;
            // The log may not know it any more.
            let version = pg.own_version(&oid).await;
            let lacks = |core: &Peering, shard: &PgShard| match *shard == core.whoami {
                true => core.missing.contains(&oid),
                false => core.peer_missing.get(shard).is_some_and(|m| m.contains(&oid)),
            };
            damaged.retain(|shard| !lacks(&pg.core.borrow(), shard));
            if generation != pg.generation.get() || damaged.is_empty() {
                return;
            }
            for shard in damaged {
                pg.mark_missing(&oid, version, shard);
            }
            pg.scrub.repairing.set(true);
            pg.core.borrow_mut().info.stats.stats.sum.num_objects_repaired += 1;
            pg.begin_repair();
        });
    }

    /// Whether others have what the object can be made of.
    fn others_have(&self, oid: &HObject, version: EVersion) -> bool {
        let core = self.core.borrow();
        if !self.is_erasure() {
            return !core.sources(oid, version).is_empty();
        }
        let mut members = self.members_with(oid, version, true);
        members.remove(&core.whoami.shard);
        core.mapping.redundancy.is_recoverable(members.values())
    }

    fn sources_text(&self, oid: &HObject, version: EVersion) -> String {
        let sources = self.core.borrow().sources(oid, version);
        let names: Vec<String> = sources.iter().map(PgShard::to_string).collect();
        names.join(",")
    }
}
