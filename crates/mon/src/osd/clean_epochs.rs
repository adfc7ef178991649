//! Which old maps may go: what OSDs say in their beacons of the PGs they lead.
//!
//! A PG that falls silent is not forgotten, whatever has become of its OSDs: an older copy that comes
//! back must find in the maps who has served since (`LastEpochClean` in `src/mon/OSDMonitor.cc` at
//! v16.2). Nothing of this is stored; a new leader keeps every map until all have told.

use std::collections::BTreeMap;

use command::Formatter;
use maps::OsdMap;
use messages::MOSDBeacon;
use types::{Epoch, OsdId};

/// What was told: four bytes a PG, eight an OSD.
#[derive(Default)]
pub(super) struct CleanEpochs {
    /// The epoch up to which each PG of a pool needs no map; 0 of one that was not told of.
    pools: BTreeMap<i64, Vec<Epoch>>,
    /// The map that an OSD had.
    osds: BTreeMap<OsdId, Epoch>,
}

impl CleanEpochs {
    pub(super) fn report(&mut self, osd: OsdId, beacon: &MOSDBeacon, map: &OsdMap) {
        self.osds.insert(osd, beacon.paxos.version as Epoch);
        for pgid in &beacon.pgs {
            let Some(pool) = map.pool(pgid.pool_id()) else { continue };
            let pgs = self.pools.entry(pgid.pool_id()).or_default();
            pgs.resize(pool.pg_num as usize, 0);
            if let Some(known) = pgs.get_mut(pgid.seed as usize) {
                *known = beacon.min_last_epoch_clean.max(*known);
            }
        }
        self.pools.retain(|id, _| map.pool(*id).is_some());
        self.osds.retain(|osd, _| map.is_up(*osd));
    }

    /// The first epoch that somebody may need.
    pub(super) fn oldest_needed(&self, map: &OsdMap) -> Epoch {
        let of_pool = |(id, pool): (&i64, &maps::PgPool)| {
            // Those that split off have not told yet; those that have merged will not.
            let told = self.pools.get(id).map_or(&[][..], Vec::as_slice);
            let pg_num = pool.pg_num as usize;
            if told.len() < pg_num { 0 } else { told[..pg_num].iter().copied().min().unwrap_or(0) }
        };
        let pools = map.pools.iter().map(of_pool);
        let osds = map.up_osds().map(|osd| self.osds.get(&osd).copied().unwrap_or(0));
        pools.chain(osds).min().unwrap_or(map.epoch).min(map.epoch)
    }

    pub(super) fn dump(&self, map: &OsdMap, f: &mut Formatter) {
        f.dump_unsigned("min_last_epoch_clean", self.oldest_needed(map));
        f.object("last_epoch_clean", |f| {
            f.array("per_pool", |f| {
                for (id, pgs) in &self.pools {
                    f.object("pool", |f| {
                        f.dump_int("poolid", *id);
                        f.dump_unsigned("floor", pgs.iter().copied().min().unwrap_or(0));
                    });
                }
            });
        });
        f.array("osd_epochs", |f| {
            for (osd, epoch) in &self.osds {
                f.object("osd", |f| {
                    f.dump_int("id", *osd);
                    f.dump_unsigned("epoch", *epoch);
                });
            }
        });
    }
}
