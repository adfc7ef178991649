//! The monitor's part in merges of placement groups: a pool's last PG goes when the OSDs that hold
//! it say that it can (`OSDMonitor::prepare_pg_ready_to_merge` in `src/mon/OSDMonitor.cc`,
//! `pg_pool_t::dec_pg_num` at v16.2).

use maps::PgPool;
use maps::pool::PgMergeMeta;
use messages::MOSDPGReadyToMerge;
use types::Epoch;

use crate::core::MonCore;
use crate::event::SessionId;

/// What a pool becomes by what an OSD says, in the map of epoch `next`; none if it is about
/// something else than the merge that is announced.
fn heed(pool: &PgPool, m: &MOSDPGReadyToMerge, next: Epoch) -> Option<PgPool> {
    if pool.pg_num != m.pgid.seed + 1 || pool.pg_num_pending > m.pgid.seed {
        return None;
    }
    let mut pool = pool.clone();
    if m.ready {
        // Of an earlier announcement, which was taken back: there may have been writes since. OSDs
        // say it again at each map.
        if m.paxos.version < u64::from(pool.last_change) {
            return None;
        }
        pool.pg_num = m.pgid.seed;
        pool.last_pg_merge_meta = PgMergeMeta {
            source_pgid: m.pgid,
            ready_epoch: next,
            last_epoch_started: m.last_epoch_started,
            last_epoch_clean: m.last_epoch_clean,
            source_version: m.source_version,
            target_version: m.target_version,
        };
    } else {
        pool.pg_num_pending = pool.pg_num;
    }
    pool.last_force_op_resend_prenautilus = next;
    Some(pool)
}

impl MonCore {
    /// Both halves of a merge are quiet and complete, or cannot be.
    pub(crate) fn on_ready_to_merge(&mut self, from: SessionId, m: &MOSDPGReadyToMerge) {
        if self.osd_of_session(from).is_none() {
            return;
        }
        let id = m.pgid.pool_id();
        let Some(pool) = self.pool_to_change(id) else { return };
        let next = self.osd.map.epoch + 1;
        let Some(pool) = heed(&pool, m, next) else { return };
        tracing::info!("pg {}: merge, ready: {}", m.pgid, m.ready);
        self.put_pool(id, pool);
    }
}

#[cfg(test)]
mod tests {
    use messages::PaxosHeader;
    use types::{EVersion, PgId};

    use super::*;

    fn ready(seed: u32, epoch: u64) -> MOSDPGReadyToMerge {
        MOSDPGReadyToMerge {
            paxos: PaxosHeader { version: epoch, ..PaxosHeader::default() },
            pgid: PgId::new(1, seed),
            source_version: EVersion { epoch: 9, version: 5 },
            target_version: EVersion { epoch: 9, version: 7 },
            last_epoch_started: 11,
            last_epoch_clean: 12,
            ready: true,
        }
    }

    fn pool(pg_num: u32, pending: u32) -> PgPool {
        PgPool { pg_num, pg_num_pending: pending, last_change: 20, ..PgPool::default() }
    }

    #[test]
    fn the_last_pg_goes_when_it_is_ready() {
        let merged = heed(&pool(8, 7), &ready(7, 20), 23).unwrap();
        assert_eq!((merged.pg_num, merged.pg_num_pending), (7, 7));
        assert_eq!(merged.last_pg_merge_meta.source_pgid, PgId::new(1, 7));
        assert_eq!(merged.last_pg_merge_meta.target_version.version, 7);
        assert_eq!(merged.last_pg_merge_meta.ready_epoch, 23);
    }

    #[test]
    fn a_merge_that_cannot_be_is_off() {
        let off = MOSDPGReadyToMerge { ready: false, ..ready(7, 20) };
        let pool = heed(&pool(8, 7), &off, 23).unwrap();
        assert_eq!((pool.pg_num, pool.pg_num_pending), (8, 8));
    }

    #[test]
    fn what_is_said_of_another_merge_is_not_heeded() {
        assert_eq!(heed(&pool(8, 8), &ready(7, 20), 23), None);
        assert_eq!(heed(&pool(7, 7), &ready(7, 20), 23), None);
        assert_eq!(heed(&pool(8, 7), &ready(6, 20), 23), None);
        // Announced, taken back, written to, announced again: what was said the first time would
        // make all copies count for nothing.
        assert_eq!(heed(&pool(8, 7), &ready(7, 19), 23), None);
    }
}
