//! What peering asks of the OSD map. A trait, so that peering is tested without whole maps.

use maps::OsdMap;
use types::{Epoch, OsdId, PgId, PgShard};

use super::intervals::is_osd;
use crate::pg::backend::Redundancy;

/// The state of OSDs in one epoch.
pub trait ClusterView {
    /// The epoch.
    fn epoch(&self) -> Epoch;
    /// Whether the OSD exists.
    fn exists(&self, osd: OsdId) -> bool;
    /// Whether it is up.
    fn is_up(&self, osd: OsdId) -> bool;
    /// Epoch it last came up in.
    fn up_from(&self, osd: OsdId) -> Epoch;
    /// Last epoch in which it is known to have been up (as it asked to have recorded).
    fn up_thru(&self, osd: OsdId) -> Epoch;
    /// Epoch in which an operator declared its data lost.
    fn lost_at(&self, osd: OsdId) -> Epoch;
    /// Whether its process is known to have ended: it serves no reads.
    fn is_dead(&self, osd: OsdId) -> bool;
}

impl ClusterView for OsdMap {
    fn epoch(&self) -> Epoch {
        self.epoch
    }
    fn exists(&self, osd: OsdId) -> bool {
        OsdMap::exists(self, osd)
    }
    fn is_up(&self, osd: OsdId) -> bool {
        OsdMap::is_up(self, osd)
    }
    fn up_from(&self, osd: OsdId) -> Epoch {
        self.info(osd).map_or(0, |i| i.up_from)
    }
    fn up_thru(&self, osd: OsdId) -> Epoch {
        self.info(osd).map_or(0, |i| i.up_thru)
    }
    fn lost_at(&self, osd: OsdId) -> Epoch {
        self.info(osd).map_or(0, |i| i.lost_at)
    }
    fn is_dead(&self, osd: OsdId) -> bool {
        let dead = self.xinfo(osd).map_or(0, |x| x.dead_epoch);
        !OsdMap::exists(self, osd) || dead > ClusterView::up_from(self, osd)
    }
}

/// Where a map puts a PG, with what of its pool decides about intervals.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mapping {
    /// Where CRUSH wants it.
    pub up: Vec<OsdId>,
    /// First of those, or by affinity.
    pub up_primary: OsdId,
    /// Who serves it.
    pub acting: Vec<OsdId>,
    /// Who leads them.
    pub acting_primary: OsdId,
    /// Replicas wanted.
    pub size: u32,
    /// Replicas without which it does not serve.
    pub min_size: u32,
    /// PGs of the pool.
    pub pg_num: u32,
    /// PGs that the pool is to have when those above this number have merged.
    pub pg_num_pending: u32,
    /// Pool's last_force_op_resend and flags that make an interval.
    pub resend_epoch: Epoch,
    /// Copies, or shards: then places in the sets are shards, and there may be holes.
    pub redundancy: Redundancy,
}

/// What a PG does in a merge that is pending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MergeRole {
    /// It goes; its objects become the other's.
    Source,
    /// It takes the objects of this one.
    Target(PgId),
}

impl Mapping {
    /// What the PG does in the merge that the map announces, if it takes part in one
    /// (`pg_pool_t::is_pending_merge`).
    pub fn pending_merge(&self, pgid: PgId) -> Option<MergeRole> {
        if self.pg_num_pending >= self.pg_num {
            return None;
        }
        if pgid.seed >= self.pg_num_pending {
            return Some(MergeRole::Source);
        }
        let mut going = (self.pg_num_pending..self.pg_num).map(|seed| PgId { seed, ..pgid });
        going.find(|source| source.parent() == pgid).map(MergeRole::Target)
    }

    fn members<'a>(&'a self, set: &'a [OsdId]) -> impl Iterator<Item = PgShard> + 'a {
        set.iter()
            .enumerate()
            .filter(|(_, osd)| is_osd(**osd))
            .map(|(at, osd)| self.redundancy.shard_at(at, *osd))
    }

    /// Members of the up set, in order.
    pub fn up_shards(&self) -> impl Iterator<Item = PgShard> + '_ {
        self.members(&self.up)
    }

    /// Members of the acting set, in order.
    pub fn acting_shards(&self) -> impl Iterator<Item = PgShard> + '_ {
        self.members(&self.acting)
    }

    /// The acting set's leader.
    pub fn primary(&self) -> Option<PgShard> {
        self.acting_shards().find(|s| s.osd == self.acting_primary)
    }

    /// The up set's leader.
    pub fn up_leader(&self) -> Option<PgShard> {
        self.up_shards().find(|s| s.osd == self.up_primary)
    }

    /// Whether it is in the up set.
    pub fn is_up(&self, shard: PgShard) -> bool {
        self.up_shards().any(|s| s == shard)
    }

    /// Whether it is in the acting set.
    pub fn is_acting(&self, shard: PgShard) -> bool {
        self.acting_shards().any(|s| s == shard)
    }
}
