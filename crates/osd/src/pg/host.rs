//! What a PG needs of the OSD around it.

use std::rc::Rc;
use std::time::Duration;

use env::{Env, LocalFuture};
use maps::OsdMap;
use store::{ObjectStore, StoreError};
use types::{EVersion, Epoch, Errno, OsdId, PgId, RawMessage, SpgId};

use super::peering::MergeRole;
use super::reserver::Reserver;
use super::scrub::ScrubSettings;
use super::scrub::slots::ScrubSlots;
use crate::ops::snap_mapper::SnapMapper;
use crate::ops::{Limits, RemoteRead, RemoteReply};
use crate::osd::commits::Commit;
use crate::osd::fullness::Lack;
use crate::osd::mclock::Turns;
use crate::osd::pace::Pace;
use crate::osd::session::Session;
use crate::osd::stats::Counters;
use crate::pg::replication::Submitted;

/// The OSD as its PGs see it.
pub trait Host {
    /// Time, randomness, tasks.
    fn env(&self) -> &Env;
    /// The store.
    fn store(&self) -> &Rc<dyn ObjectStore>;
    /// Our number.
    fn whoami(&self) -> OsdId;
    /// The newest map.
    fn osdmap(&self) -> Rc<OsdMap>;
    /// Limits of ops.
    fn limits(&self) -> Rc<Limits>;
    /// Where clones' snapshots are kept.
    fn snap_mapper(&self) -> &SnapMapper;
    /// Options that recovery reads.
    fn recovery_limits(&self) -> RecoveryLimits;
    /// osd_snap_trim_sleep, of which each clone has its share: how long trimming rests after it.
    fn snap_trim_sleep(&self) -> std::time::Duration;
    /// Options that scrub reads.
    fn scrub_settings(&self) -> ScrubSettings;
    /// The OSD's slots for scrubs.
    fn scrub_slots(&self) -> &ScrubSlots;
    /// A line for the cluster log.
    fn cluster_log(&self, level: LogLevel, text: String);
    /// The manager gets the PGs' statistics now.
    fn publish_stats(&self);
    /// Counters.
    fn counters(&self) -> &Counters;
    /// Sends to an OSD that is up, after what maps it lacks.
    fn send_osd(&self, osd: OsdId, message: RawMessage);
    /// Has a primary's write told of when it is durable here.
    fn tell_when_durable(&self, write: Submitted);
    /// Tells a primary that takes such news together of a write that is durable here.
    fn tell_commit(&self, primary: OsdId, commit: Commit);
    /// A moment of another OSD's clock by ours, or an earlier one; unless nothing is known of that clock.
    fn moment_of(&self, osd: OsdId, moment: Duration) -> Option<Duration>;
    /// Sends a client the maps it lacks.
    fn share_maps(&self, session: &Rc<Session>);
    /// The monitor must record us as up through this epoch.
    fn want_up_thru(&self, epoch: Epoch);
    /// The monitor is asked for another acting set.
    fn want_pg_temp(&self, pgid: SpgId, acting: Vec<OsdId>);
    /// The acting set is what was wanted, or the question is moot.
    fn forget_pg_temp(&self, pgid: SpgId);
    /// A PG has been created.
    fn pg_created(&self, pgid: PgId);
    /// A PG that is to merge is clean at a version: its `(last_epoch_started, last_epoch_clean)`.
    fn ready_to_merge(&self, pgid: SpgId, role: MergeRole, at: EVersion, epochs: (Epoch, Epoch));
    /// A PG that is to merge lacks copies.
    fn not_ready_to_merge(&self, pgid: SpgId, role: MergeRole);
    /// What was said of a PG's merge does not hold any more.
    fn clear_ready_to_merge(&self, pgid: SpgId);
    /// Whether another shard of the PG is on this OSD: it moves from one place to another.
    fn has_other_shard(&self, pgid: SpgId) -> bool;
    /// Remove this copy.
    fn remove_pg(&self, pgid: SpgId);
    /// A number for a request to other OSDs.
    fn next_tid(&self) -> u64;
    /// See [`crate::ops::Pg::read_remote`].
    fn read_remote(&self, read: RemoteRead) -> LocalFuture<Result<RemoteReply, Errno>>;
    /// The store fails: the OSD goes down.
    fn store_failed(&self, error: &StoreError);
    /// What this OSD holds is not what its peers think it is: it goes down, and is made whole by the
    /// peering after its next start.
    fn give_up(&self, why: String);
    /// Whether the device is so full that nothing may be written (osd_failsafe_full_ratio).
    fn is_failsafe_full(&self) -> bool;
    /// Whether that OSD, this one or one that takes part in a PG led here, is past the map's full
    /// ratio by its own word; the map may not know yet.
    fn is_full(&self, osd: OsdId) -> bool;
    /// An op was dropped for that: the client is to send again once there is room.
    fn no_room_for(&self, session: &Rc<Session>, lack: Lack);
    /// So many bytes more go to the store: how full it is may be another question soon.
    fn will_write(&self, bytes: u64);
    /// osd_backoff_on_peering: clients keep their ops during every peering, not only in states that
    /// last.
    fn backs_off_while_peering(&self) -> bool;
    /// osd_backoff_on_unfound.
    fn backs_off_unfound(&self) -> bool;
    /// A PG that this OSD leads has come to another state: users wait to see it.
    fn pg_state_changed(&self) {}
    /// A PG has come to a peering state.
    fn pg_entered(&self, _state: &'static str) {}
    /// A PG has left a peering state after so many steps in it.
    fn pg_left(&self, _state: &'static str, _stayed: Duration, _steps: u64) {}
    /// Whose turn it is at the disk, where osd_op_queue says that this is decided.
    fn turns(&self) -> &Rc<Turns>;
    /// How much of recovery may be on its way.
    fn pace(&self) -> &Pace;
    /// Slots of PGs that this OSD leads.
    fn local_reserver(&self) -> &Reserver;
    /// Slots of PGs that this OSD follows in.
    fn remote_reserver(&self) -> &Reserver;
    /// Whether the device, with so many bytes more, would be past the map's backfillfull ratio.
    fn is_backfill_full(&self, more_bytes: u64) -> bool;
    /// A slot for recovery or backfill of one object, from the OSD's budget.
    fn recovery_slots(&self) -> &env::sync::Semaphore;
}

/// Options that recovery reads.
#[derive(Debug, Clone, Copy)]
pub struct RecoveryLimits {
    /// osd_recovery_max_chunk, bytes of one push; less beside clients.
    pub chunk: u64,
    /// osd_recovery_max_omap_entries_per_chunk.
    pub omap_entries: usize,
    /// osd_recovery_max_single_start: objects that a PG starts before others have their turn.
    pub single_start: usize,
    /// osd_backfill_retry_interval: how long a backfill rests that a full target refused.
    pub retry: std::time::Duration,
    /// osd_backfill_scan_max: objects listed at a time.
    pub scan: usize,
    /// osd_recovery_sleep: how long a slot rests after an object.
    pub sleep: std::time::Duration,
}

/// How grave a line of the cluster log is; its number on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    /// For those who look for it.
    Debug = 0,
    /// Good to know.
    Info = 1,
    /// Somebody should look at it.
    Warn = 3,
    /// Somebody must.
    Error = 4,
}
