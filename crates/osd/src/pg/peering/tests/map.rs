//! The map that a model monitor gives out: which OSDs are up and were alive until when, and which
//! of them a PG of copies or shards has.

use std::collections::BTreeMap;

use types::ids::OSD_NONE;
use types::{Epoch, OsdId, PgShard};

use super::super::{ClusterView, Mapping};
use crate::pg::backend::Redundancy;

#[derive(Clone, Debug, Default)]
pub(super) struct Map {
    pub(super) epoch: Epoch,
    pub(super) up: BTreeMap<OsdId, bool>,
    pub(super) up_from: BTreeMap<OsdId, Epoch>,
    pub(super) up_thru: BTreeMap<OsdId, Epoch>,
    pub(super) dead: BTreeMap<OsdId, Epoch>,
    pub(super) lost_at: BTreeMap<OsdId, Epoch>,
    pub(super) pg_temp: Vec<OsdId>,
    pub(super) order: Vec<OsdId>,
    pub(super) size: u32,
    pub(super) min_size: u32,
    /// Copies, or shards: then each OSD has one of its own, by its number.
    pub(super) redundancy: Redundancy,
}

impl Map {
    pub(super) fn member(&self, o: OsdId) -> PgShard {
        self.redundancy.shard_at((o as u32 % self.size) as usize, o)
    }

    pub(super) fn mapping(&self) -> Mapping {
        let is_up = |o: &OsdId| self.up.get(o).copied().unwrap_or(false);
        if self.redundancy.is_erasure() {
            return self.mapping_of_shards(is_up);
        }
        let up: Vec<OsdId> =
            self.order.iter().copied().filter(is_up).take(self.size as usize).collect();
        let temp: Vec<OsdId> = self.pg_temp.iter().copied().filter(is_up).collect();
        let acting = if temp.is_empty() { up.clone() } else { temp };
        Mapping {
            up_primary: up.first().copied().unwrap_or(-1),
            acting_primary: acting.first().copied().unwrap_or(-1),
            up,
            acting,
            size: self.size,
            min_size: self.min_size,
            pg_num: 1,
            pg_num_pending: 1,
            resend_epoch: 0,
            redundancy: Redundancy::Copies,
        }
    }

    fn mapping_of_shards(&self, is_up: impl Fn(&OsdId) -> bool) -> Mapping {
        let place = |at: u32| {
            let mut able = self.order.iter().filter(|o| **o as u32 % self.size == at);
            able.find(|o| is_up(o)).copied().unwrap_or(OSD_NONE)
        };
        let up: Vec<OsdId> = (0..self.size).map(place).collect();
        let hole = |o: &OsdId| if is_up(o) { *o } else { OSD_NONE };
        let temp: Vec<OsdId> = self.pg_temp.iter().map(hole).collect();
        let acting = if temp.iter().all(|o| *o == OSD_NONE) { up.clone() } else { temp };
        let first = |set: &[OsdId]| set.iter().find(|o| **o != OSD_NONE).copied().unwrap_or(-1);
        Mapping {
            up_primary: first(&up),
            acting_primary: first(&acting),
            up,
            acting,
            size: self.size,
            min_size: self.min_size,
            pg_num: 1,
            pg_num_pending: 1,
            resend_epoch: 0,
            redundancy: self.redundancy,
        }
    }
}

impl ClusterView for Map {
    fn epoch(&self) -> Epoch {
        self.epoch
    }
    fn exists(&self, osd: OsdId) -> bool {
        self.up.contains_key(&osd)
    }
    fn is_up(&self, osd: OsdId) -> bool {
        self.up.get(&osd).copied().unwrap_or(false)
    }
    fn up_from(&self, osd: OsdId) -> Epoch {
        self.up_from.get(&osd).copied().unwrap_or(0)
    }
    fn up_thru(&self, osd: OsdId) -> Epoch {
        self.up_thru.get(&osd).copied().unwrap_or(0)
    }
    fn lost_at(&self, osd: OsdId) -> Epoch {
        self.lost_at.get(&osd).copied().unwrap_or(0)
    }
    fn is_dead(&self, osd: OsdId) -> bool {
        self.dead.get(&osd).copied().unwrap_or(0) > self.up_from(osd)
    }
}
