//! Intervals: stretches of epochs in which a PG's sets do not change. Which past ones may have
//! taken writes decides whom peering must ask (`PastIntervals` in `src/osd/osd_types.cc`).

use types::osd::{PastIntervals, PgHistory, PgInterval};
use types::{Epoch, OsdId, PgId, PgShard};

use super::view::{ClusterView, Mapping};

/// An entry of a set that is an OSD.
pub(super) fn is_osd(osd: OsdId) -> bool {
    osd >= 0 && osd != types::ids::OSD_NONE
}

/// Whether a PG splits, is split from another, or takes part in a merge between two numbers of PGs.
fn changes_shape(pgid: PgId, old: u32, new: u32) -> bool {
    let (fewer, more) = (old.min(new), old.max(new));
    if fewer == more || pgid.seed >= more {
        return false;
    }
    pgid.seed >= fewer || !pgid.children(fewer, more).is_empty()
}

/// Whether an interval ends between two maps. PGs that a change of `pg_num` does not touch go on;
/// those that are to merge stop to serve as soon as that is announced.
pub fn is_new_interval(pgid: PgId, old: &Mapping, new: &Mapping) -> bool {
    old.acting_primary != new.acting_primary
        || old.acting != new.acting
        || old.up_primary != new.up_primary
        || old.up != new.up
        || old.size != new.size
        || old.min_size != new.min_size
        || changes_shape(pgid, old.pg_num, new.pg_num)
        || changes_shape(pgid, old.pg_num_pending, new.pg_num_pending)
        || old.resend_epoch != new.resend_epoch
}

/// Records the interval that ended with `last`, whose mapping was `old`.
///
/// It may have gone read-write if it had `min_size` replicas and its primary was recorded as up
/// during it: a primary activates only after that (`WaitUpThru`). One that began in maps that this OSD
/// never had, and which `known_since` is the first it has of, may have been activated in those.
pub(super) fn record_interval(
    past: &mut PastIntervals,
    history: &PgHistory,
    old: &Mapping,
    last: &dyn ClusterView,
    known_since: Epoch,
) {
    let (first, primary) = (history.same_interval_since, old.acting_primary);
    let acting: Vec<PgShard> = old.acting_shards().collect();
    let enough =
        acting.len() >= old.min_size.max(1) as usize && old.redundancy.is_recoverable(&acting);
    let was_up_thru = last.up_thru(primary) >= first || first == known_since;
    let maybe_went_rw = enough
        && is_osd(primary)
        && ((was_up_thru && last.up_from(primary) <= first)
            || (first..=last.epoch()).contains(&history.last_epoch_clean));
    past.add_interval(
        old.redundancy.is_erasure(),
        &PgInterval {
            first,
            last: last.epoch(),
            up: old.up.clone(),
            acting: old.acting.clone(),
            maybe_went_rw,
            primary,
            up_primary: old.up_primary,
        },
    );
}
