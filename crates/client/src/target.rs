//! Where an operation goes, from the map and the operation alone; and what a new map means for an
//! operation that is under way.

use maps::osdmap::osdmap_flags;
use maps::pool::pool_flags;
use maps::{OsdMap, PgPool};
use types::osd::ops::message_flags;
use types::{Epoch, ObjectLocator, OsdId, PgId, SpgId};

/// What an operation acts on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Base {
    pub(crate) object: bstr::BString,
    pub(crate) locator: ObjectLocator,
    /// `message_flags`.
    pub(crate) flags: u32,
    /// Which copy is asked where any may be (BALANCE_READS): a number at random.
    pub(crate) copy: u64,
    /// It keeps a watch alive, or says that one has heard: who waits for room must not lose what it holds by its
    /// watch (`_send_linger_ping` in `src/osdc/Objecter.cc`).
    pub(crate) keeps_watch: bool,
}

/// The state of the map an operation was sent under. Any difference in it ends the interval in
/// which the OSD may still answer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Interval {
    pg: PgId,
    acting: Vec<OsdId>,
    acting_primary: OsdId,
    up: Vec<OsdId>,
    up_primary: OsdId,
    size: u8,
    min_size: u8,
    /// Only whether it splits this PG matters, but a change is rare enough to resend.
    pg_num: u32,
    pg_num_pending: u32,
    force_resend: Epoch,
    flags: u32,
    peering_crush: [u32; 3],
    peering_crush_mandatory: i32,
}

/// Where it goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    /// The primary, -1 when nobody serves the PG; of reads that any copy may answer, one of them.
    pub(crate) osd: OsdId,
    pub(crate) spg: SpgId,
    /// The whole hash.
    pub(crate) hash: u32,
    pub(crate) interval: Interval,
    /// The map says: not now.
    pub(crate) paused: bool,
}

/// Flags of the map whose change ends an interval.
const INTERVAL_FLAGS: u32 = osdmap_flags::SORTBITWISE | osdmap_flags::RECOVERY_DELETES;

/// The target in a map; `None` when the pool does not exist.
pub(crate) fn calc_target(map: &OsdMap, base: &Base) -> Option<Target> {
    let pool = map.pool(base.locator.pool)?;
    let raw = map.object_to_raw_pg(&base.object, &base.locator)?;
    let pg = pool.raw_pg_to_pg(raw);
    let places = map.pg_to_up_acting(pg);
    let osd = match any_copy(pool, &places.acting, base) {
        Some(osd) if places.acting_primary >= 0 => osd,
        _ => places.acting_primary,
    };
    let shard = map.shard_of(pool, &places.acting, osd).unwrap_or(types::pg::NO_SHARD);
    Some(Target {
        osd,
        spg: SpgId { pgid: pg, shard },
        hash: raw.seed,
        paused: is_paused(map, pool, base),
        interval: Interval {
            pg,
            acting: places.acting,
            acting_primary: places.acting_primary,
            up: places.up,
            up_primary: places.up_primary,
            size: pool.size,
            min_size: pool.min_size,
            pg_num: pool.pg_num,
            pg_num_pending: pool.pg_num_pending,
            force_resend: pool.last_force_op_resend,
            flags: map.flags & INTERVAL_FLAGS,
            peering_crush: [
                pool.peering_crush_bucket_count,
                pool.peering_crush_bucket_target,
                pool.peering_crush_bucket_barrier,
            ],
            peering_crush_mandatory: pool.peering_crush_mandatory_member,
        },
    })
}

/// Who is asked for what any copy may answer; shards of erasure coded pools are no copies.
fn any_copy(pool: &PgPool, acting: &[OsdId], base: &Base) -> Option<OsdId> {
    let may = base.flags & message_flags::BALANCE_READS != 0
        && base.flags & message_flags::WRITE == 0
        && !pool.is_erasure();
    let chosen = base.copy.checked_rem(acting.len() as u64)? as usize;
    acting.get(chosen).copied().filter(|osd| may && *osd >= 0)
}

/// Whether the cluster or the pool takes no such operation at the moment.
fn is_paused(map: &OsdMap, pool: &PgPool, base: &Base) -> bool {
    let flags = base.flags;
    let pauses_read = map.has_flag(osdmap_flags::PAUSERD);
    if base.keeps_watch {
        return pauses_read;
    }
    let respects_full = flags & (message_flags::FULL_TRY | message_flags::FULL_FORCE) == 0;
    let full = map.has_flag(osdmap_flags::FULL) || pool.has_flag(pool_flags::FULL);
    let pauses_write = map.has_flag(osdmap_flags::PAUSEWR) || (full && respects_full);
    (flags & message_flags::READ != 0 && pauses_read)
        || (flags & message_flags::WRITE != 0 && pauses_write)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pings of watches waited with the writes for room in a full pool. After 30 s the watch was gone, so whoever wanted the
    /// image next took its writer for dead, and blocklisted it.
    #[test]
    fn watches_outlive_a_full_pool() {
        let op = |flags, keeps_watch| Base {
            object: "rbd_header.1".into(),
            locator: ObjectLocator::default(),
            flags,
            copy: 0,
            keeps_watch,
        };
        let (write, read) = (message_flags::WRITE, message_flags::READ);
        let paused = |map_flags, pool_flags, base: &Base| {
            let map = OsdMap { flags: map_flags, ..OsdMap::default() };
            is_paused(&map, &PgPool { flags: pool_flags, ..PgPool::default() }, base)
        };
        for (map, pool) in
            [(0, pool_flags::FULL), (osdmap_flags::FULL, 0), (osdmap_flags::PAUSEWR, 0)]
        {
            assert!(paused(map, pool, &op(write, false)));
            assert!(!paused(map, pool, &op(write, true)));
            assert!(!paused(map, pool, &op(read, false)));
        }
        assert!(!paused(0, pool_flags::FULL, &op(write | message_flags::FULL_TRY, false)));
        assert!(paused(osdmap_flags::PAUSERD, 0, &op(write, true)));
        assert!(!paused(0, 0, &op(write | read, false)));
    }
}
