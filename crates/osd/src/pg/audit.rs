//! What must hold of a PG at any moment, for simulations and tests: no command, no cost in a
//! daemon that nobody audits.

use types::osd::{PgInfo, PgLog};
use types::{EVersion, Epoch, OsdId, SpgId};

use super::Pg;
use super::peering::ClusterView;

/// A PG as it is at a moment between two events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PgAudit {
    /// Which.
    pub pgid: SpgId,
    /// The map it is at.
    pub epoch: Epoch,
    /// First epoch of the interval.
    pub interval: Epoch,
    /// Who leads it in the interval, in this OSD's eyes.
    pub primary: OsdId,
    /// Serves clients.
    pub active: bool,
    /// Writes not durable everywhere, and ops that wait for something.
    pub in_flight: usize,
    /// Leads, and has snapshots left to trim that wait for no repair.
    pub trims: bool,
    /// The newest entry.
    pub last_update: EVersion,
    /// Objects that this copy lacks, by its own account.
    pub missing: usize,
    /// What does not hold, in words.
    pub wrong: Vec<String>,
    /// Where peering and recovery stand, for reports.
    pub about: String,
}

impl Pg {
    /// The log as it is told to others, and what it is of.
    pub fn log_audit(&self) -> (PgInfo, PgLog) {
        let core = self.core.borrow();
        (core.info.clone(), core.log.wire())
    }

    /// Looks at log, info and missing set.
    pub fn audit(&self) -> PgAudit {
        let core = self.core.borrow();
        let (info, log) = (&core.info, &core.log);
        let mut wrong = Vec::new();
        // In words only what does not hold: an audit looks at all entries, and there are many audits.
        let mut expect = |holds: bool, what: std::fmt::Arguments<'_>| {
            if !holds {
                wrong.push(what.to_string());
            }
        };
        expect(
            log.head() == info.last_update,
            format_args!("log head {}, last_update {}", log.head(), info.last_update),
        );
        expect(
            log.tail() == info.log_tail,
            format_args!("log tail {}, log_tail {}", log.tail(), info.log_tail),
        );
        expect(
            info.last_complete <= info.last_update,
            format_args!("last_complete {} above {}", info.last_complete, info.last_update),
        );
        let mut last = log.tail();
        for entry in log.iter() {
            let (version, prior_version) = (entry.version, entry.prior_version);
            // Versions grow in both parts: an epoch's first entry follows the last one before it.
            let follows = version > last && version.version > last.version;
            expect(follows, format_args!("entry {version} after {last}"));
            expect(prior_version < version, format_args!("entry {version} of {prior_version}"));
            last = version;
        }
        // After a split the newest entries may be in another PG's log: the head stays, as in Ceph.
        let has_split = log.head().epoch < info.history.last_epoch_split;
        let is_newest = last == log.head() || (has_split && last < log.head());
        expect(log.is_empty() || is_newest, format_args!("newest {last}, head {}", log.head()));
        let interval = info.history.same_interval_since;
        let (acting, min_size) = (core.acting_len(), core.mapping.min_size as usize);
        // An entry carries the epoch that it was made in.
        expect(
            info.last_update.epoch < interval || acting >= min_size || interval == 0,
            format_args!(
                "writes of the interval from {interval} on with {acting} members of {min_size}"
            ),
        );
        if core.is_activated() && core.is_primary() {
            // Else later primaries would not wait for what this interval has written.
            let up_thru = self.map.borrow().up_thru(core.whoami.osd);
            expect(
                up_thru >= interval,
                format_args!("active from {interval} on, up_thru {up_thru}"),
            );
        }
        for (oid, item) in core.missing.iter() {
            expect(
                item.need <= info.last_update && item.have < item.need,
                format_args!("{oid:?} is missing at {}, has {}", item.need, item.have),
            );
        }
        let in_flight = self.repops.borrow().len()
            + self.waiting.borrow().len()
            + self.waiting_for_object.borrow().values().map(Vec::len).sum::<usize>();
        let peers: Vec<String> = core
            .acting_backfill
            .iter()
            .filter_map(|peer| Some((peer, core.peer_info.get(peer)?)))
            .map(|(peer, info)| {
                let missing = core.peer_missing.get(peer).map_or(0, |missing| missing.len());
                format!("{peer} at {} to {} lacks {missing}", info.last_update, info.last_backfill)
            })
            .collect();
        let about = format!(
            "{} up {:?} acting {:?} lacks {} moving {} unfound {} phase {:?} peers {peers:?}",
            core.state().name(),
            core.mapping.up,
            core.mapping.acting,
            core.missing.len(),
            self.recovery.active_len(),
            self.recovery.unfound_len(),
            self.reservations.phase(),
        );
        let has_snaps_to_trim = core.is_primary() && !self.snap_trim_error.get();
        PgAudit {
            about,
            pgid: self.pgid,
            epoch: core.epoch,
            interval,
            primary: core.mapping.acting_primary,
            active: core.is_active(),
            in_flight,
            trims: has_snaps_to_trim && !self.snaps_to_trim().is_empty(),
            last_update: info.last_update,
            missing: core.missing.len(),
            wrong,
        }
    }
}
