//! What time does to the map: OSDs down for long go out, blocklist entries end, quotas are
//! watched, old maps are forgotten.

use std::time::Duration;

use maps::OsdMap;
use maps::osdmap::{WEIGHT_OUT, osd_state, osdmap_flags};
use maps::pool::pool_flags;
use types::{Epoch, OsdId};

use crate::clog::{INFO, WARN};
use crate::core::MonCore;
use crate::layout::{self, OSDMAP};

impl MonCore {
    pub(crate) fn tick_osd(&mut self) {
        self.tick_failures();
        self.tick_out();
        self.tick_blocklist();
        self.tick_creating();
        self.tick_snaps();
        self.tick_pool_fullness();
        self.trim_osdmaps();
    }

    fn tick_out(&mut self) {
        let down: Vec<OsdId> = self.osd.down_since.keys().copied().collect();
        if down.is_empty() {
            return;
        }
        let of_down = self.conf.duration("mon_osd_down_out_interval");
        // One that was destroyed does not come back with its data.
        let of_destroyed = self.conf.duration("mon_osd_destroyed_out_interval");
        let level = self.conf.str("mon_osd_down_out_subtree_limit");
        for osd in down {
            let map = self.next_map();
            if !map.exists(osd) || map.is_up(osd) || map.is_out(osd) {
                self.osd.down_since.remove(&osd);
                continue;
            }
            let Some(since) = self.osd.down_since.get(&osd).copied() else { continue };
            let down_for = self.now.mono.saturating_sub(since);
            let interval = if map.is_destroyed(osd) { of_destroyed } else { of_down };
            if interval.is_zero() || down_for < interval || !self.can_mark_out(&map, osd) {
                continue;
            }
            if !level.is_empty() && self.subtree_is_down(&map, osd, &level) {
                // A whole rack that is gone is rather a broken switch: its data comes back.
                continue;
            }
            let old_weight = map.weight(osd);
            let known = map.xinfo(osd).cloned().unwrap_or_default();
            let inc = self.inc();
            let x = inc.new_xinfo.entry(osd).or_insert(known);
            if x.old_weight == 0 {
                x.old_weight = old_weight;
            }
            self.set_osd_weight(osd, WEIGHT_OUT);
            let state = self.osd_state(osd);
            self.set_osd_state(osd, state | osd_state::AUTOOUT);
            self.osd.down_since.remove(&osd);
            let text =
                format!("Marking osd.{osd} out (has been down for {} seconds)", down_for.as_secs());
            self.log_own("cluster", INFO, text);
        }
    }

    /// How long an OSD that is in has been down.
    pub(crate) fn down_for(&self, osd: OsdId) -> Duration {
        let since = self.osd.down_since.get(&osd);
        since.map_or(Duration::ZERO, |since| self.now.mono.saturating_sub(*since))
    }

    /// Whether flags and the share of OSDs that are in allow to mark it out: the share before, as
    /// Ceph has it (`OSDMonitor::can_mark_out`), so that of three OSDs one may go out.
    fn can_mark_out(&mut self, map: &OsdMap, osd: OsdId) -> bool {
        if map.has_flag(osdmap_flags::NOOUT) || self.osd_flags(osd) & osd_state::NOOUT != 0 {
            return false;
        }
        let total = map.num_osds().max(1) as f64;
        map.num_in_osds() as f64 / total >= self.conf.float("mon_osd_min_in_ratio")
    }

    /// Whether every OSD of the OSD's ancestor of type `level`, or of a wider type, is down.
    fn subtree_is_down(&self, map: &OsdMap, osd: OsdId, level: &str) -> bool {
        let crush = &map.crush;
        let Some(limit) = crush.types.iter().find(|(_, name)| *name == level).map(|(id, _)| *id)
        else {
            return false;
        };
        let mut node = osd;
        for _ in 0..32 {
            let Some(parent) = crush.each_bucket().find(|b| b.items.contains(&node)) else { break };
            node = parent.id;
            if i32::from(parent.kind) >= limit {
                let leaves = crush.devices_under(node);
                return leaves.iter().all(|leaf| map.is_down(*leaf));
            }
        }
        false
    }

    fn tick_blocklist(&mut self) {
        let now = self.now.wall;
        let map = self.next_map();
        let over: Vec<_> = map
            .blocklist
            .iter()
            .filter(|(_, until)| **until < now)
            .map(|(addr, _)| *addr)
            .collect();
        let ranges: Vec<_> = map
            .range_blocklist
            .iter()
            .filter(|(_, until)| **until < now)
            .map(|(range, _)| *range)
            .collect();
        if !over.is_empty() || !ranges.is_empty() {
            let inc = self.inc();
            inc.old_blocklist.extend(over);
            inc.old_range_blocklist.extend(ranges);
        }
    }

    /// Pools over their quota, or with OSDs that are full, refuse writes.
    fn tick_pool_fullness(&mut self) {
        let map = self.next_map();
        let any = osd_state::FULL | osd_state::BACKFILLFULL | osd_state::NEARFULL;
        let filling: Vec<(OsdId, u32)> = map
            .up_osds()
            .filter(|osd| map.is_in(*osd) && map.state(*osd) & any != 0)
            .map(|osd| (osd, map.state(osd)))
            .collect();
        for (id, pool) in &map.pools {
            let name = map.pool_names.get(id).cloned().unwrap_or_default();
            let stats = self.stat.pool_sum(*id);
            let over_bytes = pool.quota_max_bytes > 0 && stats.0 >= pool.quota_max_bytes;
            let over_objects = pool.quota_max_objects > 0 && stats.1 >= pool.quota_max_objects;
            let quota = over_bytes || over_objects;
            let mut flags = pool.flags
                & !(pool_flags::FULL
                    | pool_flags::FULL_QUOTA
                    | pool_flags::NEARFULL
                    | pool_flags::BACKFILLFULL);
            if quota {
                flags |= pool_flags::FULL | pool_flags::FULL_QUOTA;
            }
            // Of those that the pool may have copies on (`OSDMap::get_full_pools`).
            let mut state = 0;
            if !filling.is_empty() {
                let reached = map.crush.rule_weights(i32::from(pool.crush_rule));
                let of_pool = filling.iter().filter(|(osd, _)| reached.contains_key(osd));
                state = of_pool.fold(0, |all, (_, state)| all | state);
            }
            if state & osd_state::FULL != 0 {
                flags |= pool_flags::FULL;
            } else if state & osd_state::BACKFILLFULL != 0 {
                flags |= pool_flags::BACKFILLFULL | pool_flags::NEARFULL;
            } else if state & osd_state::NEARFULL != 0 {
                flags |= pool_flags::NEARFULL;
            }
            if flags == pool.flags {
                continue;
            }
            if quota && !pool.has_flag(pool_flags::FULL_QUOTA) {
                if over_bytes {
                    let text = format!(
                        "pool '{name}' is full (reached quota's max_bytes: {})",
                        command::format_bytes(pool.quota_max_bytes)
                    );
                    self.log_own("cluster", WARN, text);
                }
                if over_objects {
                    let text = format!(
                        "pool '{name}' is full (reached quota's max_objects: {})",
                        pool.quota_max_objects
                    );
                    self.log_own("cluster", WARN, text);
                }
            } else if !quota && pool.has_flag(pool_flags::FULL_QUOTA) {
                let text = format!("pool '{name}' no longer out of quota; removing NO_QUOTA flag");
                self.log_own("cluster", INFO, text);
            }
            let mut changed = pool.clone();
            changed.flags = flags;
            self.put_pool(*id, changed);
        }
    }

    /// Forgets maps that nobody can need any more: older than any PG's last clean epoch, and
    /// beyond the number kept in any case.
    fn trim_osdmaps(&mut self) {
        let last = self.osd.published.epoch;
        let keep = self.conf.uint("mon_min_osdmap_epochs") as Epoch;
        let floor = last.saturating_sub(keep);
        let clean = self.oldest_epoch_needed();
        let to = floor.min(clean);
        // A hundred at a time, so that a batch stays small.
        if to <= self.osd.first + self.conf.uint("paxos_service_trim_min") as Epoch {
            return;
        }
        let to = to.min(self.osd.first + 500);
        let first = self.osd.first;
        let batch = self.batch();
        for stem in ["full_", "inc_"] {
            batch.delete_range(
                layout::numbered(OSDMAP, stem, first.into()),
                layout::numbered(OSDMAP, stem, to.into()),
            );
        }
        layout::put_u64(batch, OSDMAP, "first", to.into());
        self.osd.first = to;
        self.osd.forget_maps_before(to);
    }

    /// Oldest epoch that some PG's history may reach back to: what OSDs say in their beacons.
    fn oldest_epoch_needed(&self) -> Epoch {
        // A PG that is being made has no history yet that its OSDs could tell of, and other PGs need
        // theirs as before (`OSDMonitor::get_trim_to`).
        if self.osd.creating.is_creating_any() {
            return 0;
        }
        self.osd.clean_epochs.oldest_needed(&self.osd.published)
    }

    /// What OSDs say of the oldest epochs they need.
    pub(crate) fn dump_clean_epochs(&self, f: &mut command::Formatter) {
        f.object("osdmap_clean_epochs", |f| {
            self.osd.clean_epochs.dump(&self.osd.published, f);
        });
    }
}
