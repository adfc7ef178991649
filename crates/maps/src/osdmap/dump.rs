//! The map as `ceph osd dump -f json` shows it.

use std::collections::{BTreeMap, BTreeSet};

use bstr::ByteSlice;
use command::Formatter;
use types::{AddrVec, EntityAddr, IntervalSet, OsdId, UTime};

use super::{OsdMap, osd_state, osdmap_flags};
use crate::pool::{PgPool, PoolOpt, pool_opts};
use crate::release::release_name;

/// 16.16 as a fraction, in the single precision that Ceph prints.
pub(crate) fn fraction(weight: u32) -> f64 {
    f64::from(weight as f32 / 65536.0)
}

/// An address vector as `{"addrvec":[...]}`.
pub fn dump_addrvec(f: &mut Formatter, name: &str, addrs: &AddrVec) {
    f.object(name, |f| {
        f.array("addrvec", |f| {
            for addr in addrs.iter() {
                f.object("addr", |f| dump_addr(f, addr));
            }
        });
    });
}

/// The members of one address.
pub fn dump_addr(f: &mut Formatter, addr: &EntityAddr) {
    f.dump_string("type", addr.kind.name());
    f.dump_stream("addr", addr.sockaddr_text());
    f.dump_unsigned("nonce", addr.nonce);
}

impl OsdMap {
    /// The flags' names, comma separated.
    pub fn flags_text(&self) -> String {
        osdmap_flags::names(self.flags).join(",")
    }

    /// The members of the document.
    pub fn dump(&self, f: &mut Formatter) {
        self.dump_head(f);
        f.array("pools", |f| {
            for (id, pool) in &self.pools {
                f.object("pool", |f| self.dump_pool("pool", *id, pool, f));
            }
        });
        f.array("osds", |f| {
            for osd in self.osds() {
                f.object("osd_info", |f| self.dump_osd(osd, f));
            }
        });
        f.array("osd_xinfo", |f| {
            for osd in self.osds() {
                f.object("xinfo", |f| self.dump_xinfo(osd, f));
            }
        });
        self.dump_placement(f);
        dump_blocklist(f, "blocklist", &self.blocklist);
        dump_blocklist(f, "range_blocklist", &self.range_blocklist);
        self.dump_erasure_code_profiles(f);
        dump_snaps(f, "removed_snaps_queue", &self.removed_snaps_queue);
        dump_snaps(f, "new_removed_snaps", &self.new_removed_snaps);
        dump_snaps(f, "new_purged_snaps", &self.new_purged_snaps);
        self.dump_node_flags(f);
        f.object("stretch_mode", |f| {
            f.dump_bool("stretch_mode_enabled", self.stretch_mode_enabled);
            f.dump_unsigned("stretch_bucket_count", self.stretch_bucket_count);
            f.dump_unsigned("degraded_stretch_mode", self.degraded_stretch_mode);
            f.dump_unsigned("recovering_stretch_mode", self.recovering_stretch_mode);
            f.dump_int("stretch_mode_bucket", self.stretch_mode_bucket);
        });
    }

    fn dump_head(&self, f: &mut Formatter) {
        f.dump_int("epoch", self.epoch);
        f.dump_stream("fsid", self.fsid);
        f.dump_stream("created", self.created);
        f.dump_stream("modified", self.modified);
        f.dump_stream("last_up_change", self.last_up_change);
        f.dump_stream("last_in_change", self.last_in_change);
        f.dump_string("flags", self.flags_text());
        f.dump_unsigned("flags_num", self.flags);
        f.array("flags_set", |f| {
            let sorted: BTreeSet<&str> = osdmap_flags::names(self.flags).into_iter().collect();
            sorted.into_iter().for_each(|name| f.dump_string("flag", name));
        });
        f.dump_unsigned("crush_version", self.crush_version as u32);
        f.dump_float("full_ratio", self.full_ratio.into());
        f.dump_float("backfillfull_ratio", self.backfillfull_ratio.into());
        f.dump_float("nearfull_ratio", self.nearfull_ratio.into());
        f.dump_string("cluster_snapshot", &self.cluster_snapshot);
        f.dump_int("pool_max", self.pool_max);
        f.dump_int("max_osd", self.max_osd);
        f.dump_string("require_min_compat_client", release_name(self.require_min_compat_client));
        f.dump_string("min_compat_client", release_name(self.min_compat_client()));
        f.dump_string("require_osd_release", release_name(self.require_osd_release));
    }

    /// The members of one pool, as `osd dump` (`id_key` "pool") and `osd pool ls detail`
    /// ("pool_id") show it.
    pub fn dump_pool(&self, id_key: &str, id: i64, pool: &PgPool, f: &mut Formatter) {
        f.dump_int(id_key, id);
        let name = self.pool_names.get(&id).map_or("<unknown>", String::as_str);
        f.dump_string("pool_name", name);
        pool.dump(f);
    }

    /// The members of one OSD that exists.
    pub fn dump_osd(&self, osd: OsdId, f: &mut Formatter) {
        let i = osd as usize;
        f.dump_int("osd", osd);
        f.dump_stream("uuid", self.osd_uuid[i]);
        f.dump_int("up", i32::from(self.is_up(osd)));
        f.dump_int("in", i32::from(self.is_in(osd)));
        f.dump_float("weight", fraction(self.osd_weight[i]));
        f.dump_float("primary_affinity", fraction(self.primary_affinity(osd)));
        let info = &self.osd_info[i];
        f.dump_int("last_clean_begin", info.last_clean_begin);
        f.dump_int("last_clean_end", info.last_clean_end);
        f.dump_int("up_from", info.up_from);
        f.dump_int("up_thru", info.up_thru);
        f.dump_int("down_at", info.down_at);
        f.dump_int("lost_at", info.lost_at);
        let addrs = [
            ("public_addr", &self.client_addrs[i]),
            ("cluster_addr", &self.cluster_addrs[i]),
            ("heartbeat_back_addr", &self.hb_back_addrs[i]),
            ("heartbeat_front_addr", &self.hb_front_addrs[i]),
        ];
        for (name, addrs) in addrs {
            dump_addrvec(f, &format!("{name}s"), addrs);
        }
        for (name, addrs) in addrs {
            f.dump_stream(name, addrs.legacy_text());
        }
        f.array("state", |f| {
            let sorted: BTreeSet<&str> = osd_state::names(self.osd_state[i]).into_iter().collect();
            sorted.into_iter().for_each(|name| f.dump_string("state", name));
        });
    }

    fn dump_xinfo(&self, osd: OsdId, f: &mut Formatter) {
        let x = &self.osd_xinfo[osd as usize];
        f.dump_int("osd", osd);
        f.dump_stream("down_stamp", x.down_stamp);
        f.dump_float("laggy_probability", x.laggy_probability.into());
        f.dump_int("laggy_interval", x.laggy_interval);
        f.dump_unsigned("features", x.features);
        f.dump_unsigned("old_weight", x.old_weight);
        f.dump_stream("last_purged_snaps_scrub", x.last_purged_snaps_scrub);
        f.dump_int("dead_epoch", x.dead_epoch);
    }

    fn dump_placement(&self, f: &mut Formatter) {
        f.array("pg_upmap", |f| {
            for (pg, osds) in &self.pg_upmap {
                f.object("mapping", |f| dump_pg_osds(f, pg, osds));
            }
        });
        f.array("pg_upmap_items", |f| {
            for (pg, items) in &self.pg_upmap_items {
                f.object("mapping", |f| {
                    f.dump_stream("pgid", pg);
                    f.array("mappings", |f| {
                        for (from, to) in items {
                            f.object("mapping", |f| {
                                f.dump_int("from", *from);
                                f.dump_int("to", *to);
                            });
                        }
                    });
                });
            }
        });
        f.array("pg_temp", |f| {
            for (pg, osds) in &self.pg_temp {
                f.object("osds", |f| dump_pg_osds(f, pg, osds));
            }
        });
        f.array("primary_temp", |f| {
            // Not objects: PG and OSD in turn.
            for (pg, osd) in &self.primary_temp {
                f.dump_stream("pgid", pg);
                f.dump_int("osd", *osd);
            }
        });
    }

    /// The erasure code profiles as one object.
    pub fn dump_erasure_code_profiles(&self, f: &mut Formatter) {
        f.object("erasure_code_profiles", |f| {
            for (name, profile) in &self.erasure_code_profiles {
                f.object(name, |f| {
                    profile.iter().for_each(|(key, value)| f.dump_string(key, value));
                });
            }
        });
    }

    fn dump_node_flags(&self, f: &mut Formatter) {
        let flags = |f: &mut Formatter, name: &str, bits: u32| {
            f.array(name, |f| {
                let sorted: BTreeSet<&str> = osd_state::names(bits).into_iter().collect();
                sorted.into_iter().for_each(|name| f.dump_string("flag", name));
            });
        };
        f.object("crush_node_flags", |f| {
            for (node, bits) in &self.crush_node_flags {
                flags(f, self.crush.name_of(*node).unwrap_or("unknown"), *bits);
            }
        });
        f.object("device_class_flags", |f| {
            for (class, bits) in &self.device_class_flags {
                let name = self.crush.class_names.get(class).map_or("unknown", String::as_str);
                flags(f, name, *bits);
            }
        });
    }
}

fn dump_pg_osds(f: &mut Formatter, pg: &types::PgId, osds: &[OsdId]) {
    f.dump_stream("pgid", pg);
    f.array("osds", |f| osds.iter().for_each(|osd| f.dump_int("osd", *osd)));
}

fn dump_blocklist(f: &mut Formatter, name: &str, entries: &BTreeMap<EntityAddr, UTime>) {
    f.object(name, |f| {
        for (addr, until) in entries {
            f.dump_stream(&addr.to_string(), until);
        }
    });
}

fn dump_snaps(f: &mut Formatter, name: &str, pools: &BTreeMap<i64, IntervalSet>) {
    f.array(name, |f| {
        for (pool, snaps) in pools {
            f.object("pool", |f| {
                f.dump_int("pool", *pool);
                f.array("snaps", |f| {
                    for (start, len) in snaps.iter() {
                        f.object("interval", |f| {
                            f.dump_unsigned("begin", start);
                            f.dump_unsigned("length", len);
                        });
                    }
                });
            });
        }
    });
}

impl PgPool {
    /// Name of the cache mode.
    pub fn cache_mode_name(&self) -> &'static str {
        match self.cache_mode {
            0 => "none",
            1 => "writeback",
            2 => "forward",
            3 => "readonly",
            4 => "readforward",
            5 => "readproxy",
            6 => "proxy",
            _ => "unknown",
        }
    }

    /// Name of the autoscale mode.
    pub fn autoscale_mode_name(&self) -> &'static str {
        match self.pg_autoscale_mode {
            0 => "off",
            1 => "warn",
            2 => "on",
            _ => "???",
        }
    }

    /// The members of the pool's document, after its id and name.
    pub fn dump(&self, f: &mut Formatter) {
        f.dump_stream("create_time", self.create_time);
        f.dump_unsigned("flags", self.flags);
        f.dump_string("flags_names", self.flags_text());
        f.dump_int("type", self.kind);
        f.dump_int("size", self.size);
        f.dump_int("min_size", self.min_size);
        f.dump_int("crush_rule", self.crush_rule);
        f.dump_int("peering_crush_bucket_count", self.peering_crush_bucket_count);
        f.dump_int("peering_crush_bucket_target", self.peering_crush_bucket_target);
        f.dump_int("peering_crush_bucket_barrier", self.peering_crush_bucket_barrier);
        f.dump_int("peering_crush_bucket_mandatory_member", self.peering_crush_mandatory_member);
        f.dump_int("object_hash", self.object_hash);
        f.dump_string("pg_autoscale_mode", self.autoscale_mode_name());
        f.dump_unsigned("pg_num", self.pg_num);
        f.dump_unsigned("pg_placement_num", self.pgp_num);
        f.dump_unsigned("pg_placement_num_target", self.pgp_num_target);
        f.dump_unsigned("pg_num_target", self.pg_num_target);
        f.dump_unsigned("pg_num_pending", self.pg_num_pending);
        f.object("last_pg_merge_meta", |f| {
            let meta = &self.last_pg_merge_meta;
            f.dump_stream("source_pgid", meta.source_pgid);
            f.dump_unsigned("ready_epoch", meta.ready_epoch);
            f.dump_unsigned("last_epoch_started", meta.last_epoch_started);
            f.dump_unsigned("last_epoch_clean", meta.last_epoch_clean);
            f.dump_stream("source_version", meta.source_version);
            f.dump_stream("target_version", meta.target_version);
        });
        f.dump_stream("last_change", self.last_change);
        f.dump_stream("last_force_op_resend", self.last_force_op_resend);
        f.dump_stream("last_force_op_resend_prenautilus", self.last_force_op_resend_prenautilus);
        f.dump_stream("last_force_op_resend_preluminous", self.last_force_op_resend_preluminous);
        f.dump_unsigned("auid", self.auid);
        let mode = if self.is_pool_snaps_mode() { "pool" } else { "selfmanaged" };
        f.dump_string("snap_mode", mode);
        f.dump_unsigned("snap_seq", self.snap_seq);
        f.dump_unsigned("snap_epoch", self.snap_epoch);
        f.array("pool_snaps", |f| {
            for snap in self.snaps.values() {
                f.object("pool_snap_info", |f| {
                    f.dump_unsigned("snapid", snap.snapid);
                    f.dump_stream("stamp", snap.stamp);
                    f.dump_string("name", snap.name.to_str_lossy());
                });
            }
        });
        f.dump_stream("removed_snaps", format_args!("{:x}", self.removed_snaps));
        f.dump_unsigned("quota_max_bytes", self.quota_max_bytes);
        f.dump_unsigned("quota_max_objects", self.quota_max_objects);
        self.dump_tiering(f);
        f.dump_unsigned("stripe_width", self.stripe_width);
        f.dump_unsigned("expected_num_objects", self.expected_num_objects);
        f.dump_bool("fast_read", self.fast_read);
        f.object("options", |f| self.opts.dump(f));
        f.object("application_metadata", |f| {
            for (application, pairs) in &self.application_metadata {
                f.object(application, |f| {
                    pairs.iter().for_each(|(key, value)| f.dump_string(key, value));
                });
            }
        });
    }

    fn dump_tiering(&self, f: &mut Formatter) {
        f.array("tiers", |f| {
            self.tiers.iter().for_each(|pool| f.dump_unsigned("pool_id", *pool));
        });
        f.dump_int("tier_of", self.tier_of);
        f.dump_int("read_tier", self.read_tier);
        f.dump_int("write_tier", self.write_tier);
        f.dump_string("cache_mode", self.cache_mode_name());
        f.dump_unsigned("target_max_bytes", self.target_max_bytes);
        f.dump_unsigned("target_max_objects", self.target_max_objects);
        f.dump_unsigned("cache_target_dirty_ratio_micro", self.cache_target_dirty_ratio_micro);
        let high = self.cache_target_dirty_high_ratio_micro;
        f.dump_unsigned("cache_target_dirty_high_ratio_micro", high);
        f.dump_unsigned("cache_target_full_ratio_micro", self.cache_target_full_ratio_micro);
        f.dump_unsigned("cache_min_flush_age", self.cache_min_flush_age);
        f.dump_unsigned("cache_min_evict_age", self.cache_min_evict_age);
        f.dump_string("erasure_code_profile", &self.erasure_code_profile);
        f.object("hit_set_params", |f| {
            let kind = match self.hit_set_params.kind {
                0 => "none",
                1 => "explicit_hash",
                2 => "explicit_object",
                3 => "bloom",
                _ => "???",
            };
            f.dump_string("type", kind);
        });
        f.dump_unsigned("hit_set_period", self.hit_set_period);
        f.dump_unsigned("hit_set_count", self.hit_set_count);
        f.dump_bool("use_gmt_hitset", self.use_gmt_hitset);
        f.dump_unsigned("min_read_recency_for_promote", self.min_read_recency_for_promote);
        f.dump_unsigned("min_write_recency_for_promote", self.min_write_recency_for_promote);
        f.dump_unsigned("hit_set_grade_decay_rate", self.hit_set_grade_decay_rate);
        f.dump_unsigned("hit_set_search_last_n", self.hit_set_search_last_n);
        f.array("grade_table", |f| {
            // What a hit n sets ago counts, in millionths.
            let mut grade = 1_000_000.0;
            for _ in 0..self.hit_set_count.min(1000) {
                f.dump_unsigned("value", grade as u32);
                grade *= 1.0 - f64::from(self.hit_set_grade_decay_rate) / 100.0;
            }
        });
    }
}

impl crate::pool::PoolOpts {
    /// The options that are set, by name.
    pub fn dump(&self, f: &mut Formatter) {
        for (name, key, _) in pool_opts::NAMES {
            match self.0.get(&key) {
                Some(PoolOpt::Str(value)) => f.dump_string(name, value),
                Some(PoolOpt::Int(value)) => f.dump_int(name, *value),
                Some(PoolOpt::Double(value)) => f.dump_float(name, *value),
                None => {}
            }
        }
    }
}
