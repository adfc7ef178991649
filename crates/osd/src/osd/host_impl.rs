//! The OSD as its PGs see it.

use std::rc::Rc;
use std::time::Duration;

use ::maps::OsdMap;
use env::sync::Semaphore;
use env::{Env, LocalFuture};
use store::{ObjectStore, StoreError};
use types::{EVersion, Epoch, Errno, OsdId, PgId, RawMessage, SpgId};

use super::Osd;
use super::commits::Commit;
use super::fullness::Lack;
use super::mclock::Turns;
use super::pace::Pace;
use super::session::Session;
use super::stats::Counters;
use crate::ops::snap_mapper::SnapMapper;
use crate::ops::{Limits, RemoteRead, RemoteReply};
use crate::pg::host::{Host, LogLevel, RecoveryLimits};
use crate::pg::peering::MergeRole;
use crate::pg::replication::Submitted;
use crate::pg::reserver::Reserver;
use crate::pg::scrub::ScrubSettings;
use crate::pg::scrub::schedule::Times;
use crate::pg::scrub::slots::ScrubSlots;

impl Host for Osd {
    fn env(&self) -> &Env {
        &self.env
    }

    fn store(&self) -> &Rc<dyn ObjectStore> {
        &self.store
    }

    fn whoami(&self) -> OsdId {
        self.whoami
    }

    fn moment_of(&self, osd: OsdId, moment: Duration) -> Option<Duration> {
        self.moment_of_peer(osd, moment)
    }

    fn osdmap(&self) -> Rc<OsdMap> {
        self.current_map()
    }

    fn limits(&self) -> Rc<Limits> {
        self.limits.borrow().clone()
    }

    fn snap_mapper(&self) -> &SnapMapper {
        &self.snap_mapper
    }

    fn snap_trim_sleep(&self) -> Duration {
        // Ceph rests after so many at once.
        let together = self.config.uint("osd_pg_max_concurrent_snap_trims").max(1);
        self.sleep_of("osd_snap_trim_sleep", "osd_snap_trim_sleep_ssd").div_f64(together as f64)
    }

    fn recovery_limits(&self) -> RecoveryLimits {
        let c = &self.config;
        RecoveryLimits {
            sleep: self.sleep_of("osd_recovery_sleep", "osd_recovery_sleep_ssd"),
            chunk: self.pace.piece(c.uint("osd_recovery_max_chunk").max(64 << 10)),
            omap_entries: c.uint("osd_recovery_max_omap_entries_per_chunk").max(1) as usize,
            single_start: c.uint("osd_recovery_max_single_start").max(1) as usize,
            retry: Duration::from_secs_f64(
                c.float("osd_backfill_retry_interval").clamp(0.1, 3600.0),
            ),
            scan: c.uint("osd_backfill_scan_max").max(2) as usize,
        }
    }

    fn scrub_settings(&self) -> ScrubSettings {
        let c = &self.config;
        ScrubSettings {
            slots: c.uint("osd_max_scrubs"),
            chunk: c.uint("osd_scrub_chunk_max").max(1) as usize,
            preemptions: c.uint("osd_scrub_max_preemptions") as u32,
            sleep_sec: c.float("osd_scrub_sleep"),
            stride: c.uint("osd_deep_scrub_stride").max(4096),
            omap_keys: c.uint("osd_deep_scrub_keys").max(1) as usize,
            large_omap_keys: c.uint("osd_deep_scrub_large_omap_object_key_threshold"),
            large_omap_bytes: c.uint("osd_deep_scrub_large_omap_object_value_sum_threshold"),
            object_size_max: c.uint("osd_max_object_size"),
            digest_min_age_sec: c.uint("osd_deep_scrub_update_digest_min_age"),
            auto_repair_max: c.uint("osd_scrub_auto_repair_num_errors") as usize,
            during_recovery: c.bool("osd_scrub_during_recovery"),
            repair_during_recovery: c.bool("osd_repair_during_recovery"),
            times: Times {
                min_interval_sec: c.float("osd_scrub_min_interval"),
                max_interval_sec: c.float("osd_scrub_max_interval"),
                deep_interval_sec: c.float("osd_deep_scrub_interval"),
                randomize: c.float("osd_scrub_interval_randomize_ratio"),
                deep_chance: c.float("osd_deep_scrub_randomize_ratio"),
                hours: (c.int("osd_scrub_begin_hour"), c.int("osd_scrub_end_hour")),
                week_days: (c.int("osd_scrub_begin_week_day"), c.int("osd_scrub_end_week_day")),
                auto_repair: c.bool("osd_scrub_auto_repair"),
                allow_shallow: true,
                allow_deep: true,
            },
        }
    }

    fn scrub_slots(&self) -> &ScrubSlots {
        &self.scrub_slots
    }

    fn cluster_log(&self, level: LogLevel, text: String) {
        self.log_to_cluster(level, text);
    }

    fn publish_stats(&self) {
        self.report_soon();
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn send_osd(&self, osd: OsdId, message: RawMessage) {
        if !self.is_active() {
            return;
        }
        let Some(con) = self.connection_to(osd) else { return };
        if osd != self.whoami {
            self.share_with_peer(osd, &con);
        }
        con.send(message);
    }

    fn tell_when_durable(&self, write: Submitted) {
        self.replica_writes.push(write);
    }

    fn tell_commit(&self, primary: OsdId, commit: Commit) {
        self.replica_writes.tell_together(primary, commit);
    }

    fn share_maps(&self, session: &Rc<Session>) {
        self.share_with_session(session);
    }

    fn want_up_thru(&self, epoch: Epoch) {
        self.request_up_thru(epoch);
    }

    fn want_pg_temp(&self, pgid: SpgId, acting: Vec<OsdId>) {
        self.request_pg_temp(pgid, acting);
    }

    fn forget_pg_temp(&self, pgid: SpgId) {
        self.withdraw_pg_temp(pgid);
    }

    fn pg_created(&self, pgid: PgId) {
        self.tell_created(pgid);
    }

    fn ready_to_merge(&self, pgid: SpgId, role: MergeRole, at: EVersion, epochs: (Epoch, Epoch)) {
        self.merges.set_ready(pgid, role, at, epochs);
        self.send_ready_to_merge();
    }

    fn not_ready_to_merge(&self, pgid: SpgId, role: MergeRole) {
        self.merges.set_not_ready(pgid, role);
        self.send_ready_to_merge();
    }

    fn clear_ready_to_merge(&self, pgid: SpgId) {
        self.merges.clear(pgid);
    }

    fn has_other_shard(&self, pgid: SpgId) -> bool {
        self.pgs.borrow().keys().any(|other| other.pgid == pgid.pgid && *other != pgid)
    }

    fn remove_pg(&self, pgid: SpgId) {
        let osd = self.rc();
        let pg = self.pgs.borrow().get(&pgid).and_then(super::pgs::Slot::ready);
        if let Some(pg) = pg {
            osd.remove(&pg);
        }
    }

    fn next_tid(&self) -> u64 {
        let tid = self.next_tid.get();
        self.next_tid.set(tid + 1);
        tid
    }

    fn read_remote(&self, read: RemoteRead) -> LocalFuture<Result<RemoteReply, Errno>> {
        super::remote_read::read(self.rc(), read)
    }

    fn store_failed(&self, error: &StoreError) {
        if *error != StoreError::Closed {
            self.fail(format!("the store fails: {error}"));
        }
    }

    fn give_up(&self, why: String) {
        self.fail(why);
    }

    fn backs_off_while_peering(&self) -> bool {
        self.config.bool("osd_backoff_on_peering")
    }

    fn backs_off_unfound(&self) -> bool {
        self.config.bool("osd_backoff_on_unfound")
    }

    fn is_failsafe_full(&self) -> bool {
        self.refuses_writes()
    }

    fn is_full(&self, osd: OsdId) -> bool {
        self.room.is_full(osd)
    }

    fn no_room_for(&self, session: &Rc<Session>, lack: Lack) {
        self.room.drops(session, lack);
    }

    fn will_write(&self, bytes: u64) {
        if self.room.take(bytes) {
            let osd = self.rc();
            self.env.go(async move { osd.measure_room().await });
        }
    }

    fn pg_entered(&self, state: &'static str) {
        self.state_times.enter(state);
    }

    fn pg_left(&self, state: &'static str, stayed: Duration, steps: u64) {
        self.state_times.leave(state, stayed, steps);
    }

    fn pg_state_changed(&self) {
        self.report_soon();
    }

    fn turns(&self) -> &Rc<Turns> {
        &self.turns
    }

    fn pace(&self) -> &Pace {
        &self.pace
    }

    fn local_reserver(&self) -> &Reserver {
        self.limit_reservers();
        &self.local_reserver
    }

    fn remote_reserver(&self) -> &Reserver {
        self.limit_reservers();
        &self.remote_reserver
    }

    fn is_backfill_full(&self, more_bytes: u64) -> bool {
        let ratio = f64::from(self.current_map().backfillfull_ratio);
        let total = self.statfs.get().total;
        let more = if total == 0 { 0.0 } else { more_bytes as f64 / total as f64 };
        ratio > 0.0 && self.used_ratio() + more >= ratio
    }

    fn recovery_slots(&self) -> &Semaphore {
        self.recovery_slots.set_total(self.recovery_max_active());
        &self.recovery_slots
    }
}

impl Osd {
    /// How long something rests: what `option` says, or else what is told for devices of our kind, which all call themselves
    /// ssd.
    fn sleep_of(&self, option: &str, of_ssd: &str) -> Duration {
        let sleep = match self.config.float(option) {
            s if s > 0.0 => s,
            _ => self.config.float(of_ssd),
        };
        Duration::from_secs_f64(sleep.clamp(0.0, 60.0))
    }
}
