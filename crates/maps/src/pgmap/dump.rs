//! `pg dump` and its parts, JSON and plain.

use std::fmt::Write;

use command::{Align, Formatter, TextTable, format_bytes};
use types::osd::osd_stat::Minutes;
use types::osd::pg_state::state_string;
use types::osd::{ObjectStatSum, OsdStat, PgStat, PoolStat, StoreStatfs};
use types::time::Calendar;
use types::{OsdId, PgId};

use super::{PgMap, used};

/// A placement as tables show it; a hole is NONE.
fn pg_vector(osds: &[OsdId]) -> String {
    let text = |osd: &OsdId| match *osd {
        OsdId::MAX => "NONE".to_owned(),
        osd => osd.to_string(),
    };
    format!("[{}]", osds.iter().map(text).collect::<Vec<_>>().join(","))
}

/// What tables append about omap counts.
pub const OMAP_NOTE: &str = "\n* NOTE: Omap statistics are gathered during deep scrub and may be \
    inaccurate soon afterwards depending on utilization. See \
    http://docs.ceph.com/en/latest/dev/placement-group/#omap-statistics for further details.\n";

fn dump_stat_sum(f: &mut Formatter, sum: &ObjectStatSum) {
    f.object("stat_sum", |f| {
        sum.dump_fields().into_iter().for_each(|(name, value)| f.dump_int(name, value));
    });
}

/// The members of a store's space.
pub fn dump_statfs(f: &mut Formatter, s: &StoreStatfs) {
    f.dump_int("total", s.total as i64);
    f.dump_int("available", s.available as i64);
    f.dump_int("internally_reserved", s.internally_reserved as i64);
    f.dump_int("allocated", s.allocated);
    f.dump_int("data_stored", s.data_stored);
    f.dump_int("data_compressed", s.data_compressed);
    f.dump_int("data_compressed_allocated", s.data_compressed_allocated);
    f.dump_int("data_compressed_original", s.data_compressed_original);
    f.dump_int("omap_allocated", s.omap_allocated);
    f.dump_int("internal_metadata", s.internal_metadata);
}

/// The members of a pool's counts.
pub fn dump_pool_stat(f: &mut Formatter, stat: &PoolStat) {
    dump_stat_sum(f, &stat.stats.sum);
    f.object("store_stats", |f| dump_statfs(f, &stat.store_stats));
    f.dump_int("log_size", stat.log_size);
    f.dump_int("ondisk_log_size", stat.ondisk_log_size);
    f.dump_int("up", stat.up);
    f.dump_int("acting", stat.acting);
    f.dump_int("num_store_stats", stat.num_store_stats);
}

/// The members of a PG's report after its id.
pub fn dump_pg_stat(f: &mut Formatter, s: &PgStat) {
    f.dump_stream("version", s.version);
    f.dump_unsigned("reported_seq", s.reported_seq);
    f.dump_unsigned("reported_epoch", s.reported_epoch);
    f.dump_string("state", state_string(s.state));
    for (name, stamp) in [
        ("last_fresh", s.last_fresh),
        ("last_change", s.last_change),
        ("last_active", s.last_active),
        ("last_peered", s.last_peered),
        ("last_clean", s.last_clean),
        ("last_became_active", s.last_became_active),
        ("last_became_peered", s.last_became_peered),
        ("last_unstale", s.last_unstale),
        ("last_undegraded", s.last_undegraded),
        ("last_fullsized", s.last_fullsized),
    ] {
        f.dump_stream(name, stamp);
    }
    f.dump_unsigned("mapping_epoch", s.mapping_epoch);
    f.dump_stream("log_start", s.log_start);
    f.dump_stream("ondisk_log_start", s.ondisk_log_start);
    f.dump_unsigned("created", s.created);
    f.dump_unsigned("last_epoch_clean", s.last_epoch_clean);
    f.dump_stream("parent", s.parent);
    f.dump_unsigned("parent_split_bits", s.parent_split_bits);
    f.dump_stream("last_scrub", s.last_scrub);
    f.dump_stream("last_scrub_stamp", s.last_scrub_stamp);
    f.dump_stream("last_deep_scrub", s.last_deep_scrub);
    f.dump_stream("last_deep_scrub_stamp", s.last_deep_scrub_stamp);
    f.dump_stream("last_clean_scrub_stamp", s.last_clean_scrub_stamp);
    f.dump_int("log_size", s.log_size);
    f.dump_int("ondisk_log_size", s.ondisk_log_size);
    f.dump_bool("stats_invalid", s.stats_invalid);
    f.dump_bool("dirty_stats_invalid", s.dirty_stats_invalid);
    f.dump_bool("omap_stats_invalid", s.omap_stats_invalid);
    f.dump_bool("hitset_stats_invalid", s.hitset_stats_invalid);
    f.dump_bool("hitset_bytes_stats_invalid", s.hitset_bytes_stats_invalid);
    f.dump_bool("pin_stats_invalid", s.pin_stats_invalid);
    f.dump_bool("manifest_stats_invalid", s.manifest_stats_invalid);
    f.dump_unsigned("snaptrimq_len", s.snaptrimq_len);
    dump_stat_sum(f, &s.stats.sum);
    let osds = |f: &mut Formatter, name: &str, osds: &[OsdId]| {
        f.array(name, |f| osds.iter().for_each(|osd| f.dump_int("osd", *osd)));
    };
    osds(f, "up", &s.up);
    osds(f, "acting", &s.acting);
    f.array("avail_no_missing", |f| {
        s.avail_no_missing.iter().for_each(|shard| f.dump_stream("shard", shard));
    });
    f.array("object_location_counts", |f| {
        for (shards, count) in &s.object_location_counts {
            f.object("entry", |f| {
                let shards: Vec<String> = shards.iter().map(ToString::to_string).collect();
                f.dump_string("shards", shards.join(","));
                f.dump_int("objects", *count);
            });
        }
    });
    osds(f, "blocked_by", &s.blocked_by);
    f.dump_int("up_primary", s.up_primary);
    f.dump_int("acting_primary", s.acting_primary);
    f.array("purged_snaps", |f| {
        for (start, len) in s.purged_snaps.iter() {
            f.object("interval", |f| {
                f.dump_stream("start", format_args!("{start:x}"));
                f.dump_stream("length", format_args!("{len:x}"));
            });
        }
    });
}

/// The members of a PG's report that `pg dump pgs_brief` shows.
pub fn dump_pg_stat_brief(f: &mut Formatter, s: &PgStat) {
    f.dump_string("state", state_string(s.state));
    f.array("up", |f| s.up.iter().for_each(|osd| f.dump_int("osd", *osd)));
    f.array("acting", |f| s.acting.iter().for_each(|osd| f.dump_int("osd", *osd)));
    f.dump_int("up_primary", s.up_primary);
    f.dump_int("acting_primary", s.acting_primary);
}

/// The members of an OSD's report after its id; `with_net` adds the times of its heartbeats.
pub fn dump_osd_stat(f: &mut Formatter, s: &OsdStat, with_net: bool) {
    f.dump_unsigned("up_from", s.up_from);
    f.dump_unsigned("seq", s.seq);
    f.dump_unsigned("num_pgs", s.num_pgs);
    f.dump_unsigned("num_osds", s.num_osds);
    f.dump_unsigned("num_per_pool_osds", s.num_per_pool_osds);
    f.dump_unsigned("num_per_pool_omap_osds", s.num_per_pool_omap_osds);
    f.dump_unsigned("kb", s.statfs.kb());
    f.dump_unsigned("kb_used", s.statfs.kb_used_raw());
    f.dump_unsigned("kb_used_data", s.statfs.kb_used_data());
    f.dump_unsigned("kb_used_omap", s.statfs.kb_used_omap());
    f.dump_unsigned("kb_used_meta", s.statfs.kb_used_internal_metadata());
    f.dump_unsigned("kb_avail", s.statfs.kb_avail());
    f.object("statfs", |f| dump_statfs(f, &s.statfs));
    f.array("hb_peers", |f| s.hb_peers.iter().for_each(|osd| f.dump_int("osd", *osd)));
    f.dump_int("snap_trim_queue_len", s.snap_trim_queue_len);
    f.dump_int("num_snap_trimming", s.num_snap_trimming);
    f.dump_unsigned("num_shards_repaired", s.num_shards_repaired);
    f.object("op_queue_age_hist", |f| {
        let counts = &s.op_queue_age_hist.counts;
        f.array("histogram", |f| counts.iter().for_each(|n| f.dump_int("count", *n)));
        f.dump_int("upper_bound", 1i64.checked_shl(counts.len() as u32).unwrap_or(0));
    });
    f.object("perf_stat", |f| dump_perf_stat(f, s));
    f.array("alerts", |f| {
        for (osd, alerts) in &s.os_alerts {
            for (name, text) in alerts {
                f.dump_string("alert", format!(" osd: {osd} {name}:{text}"));
            }
        }
    });
    if with_net {
        f.array("network_ping_times", |f| dump_ping_times(f, s));
    }
}

/// The members of an OSD's latencies.
pub fn dump_perf_stat(f: &mut Formatter, s: &OsdStat) {
    let perf = &s.os_perf_stat;
    f.dump_unsigned("commit_latency_ms", perf.commit_latency_ns / 1_000_000);
    f.dump_unsigned("apply_latency_ms", perf.apply_latency_ns / 1_000_000);
    f.dump_unsigned("commit_latency_ns", perf.commit_latency_ns);
    f.dump_unsigned("apply_latency_ns", perf.apply_latency_ns);
}

fn dump_ping_times(f: &mut Formatter, s: &OsdStat) {
    let millis = |us: u32| format!("{}.{:03}", us / 1000, us % 1000);
    let minutes = |f: &mut Formatter, name: &str, times: &Minutes| {
        f.object(name, |f| {
            for (name, us) in ["1min", "5min", "15min"].into_iter().zip(times.0) {
                f.dump_unquoted(name, millis(us));
            }
        });
    };
    for (osd, times) in s.hb_pingtime.iter().filter(|(_, t)| t.last_update != 0) {
        f.object("entry", |f| {
            f.dump_int("osd", *osd);
            f.dump_string("last update", date(times.last_update));
            f.array("interfaces", |f| {
                let back = (
                    "back",
                    &times.back_pingtime,
                    &times.back_min,
                    &times.back_max,
                    times.back_last,
                );
                let front = (
                    "front",
                    &times.front_pingtime,
                    &times.front_min,
                    &times.front_max,
                    times.front_last,
                );
                for (name, average, min, max, last) in [back, front] {
                    if name == "front" && last == 0 {
                        continue;
                    }
                    f.object("interface", |f| {
                        f.dump_string("interface", name);
                        minutes(f, "average", average);
                        minutes(f, "min", min);
                        minutes(f, "max", max);
                        f.dump_unquoted("last", millis(last));
                    });
                }
            });
        });
    }
}

/// `Sat Nov 21 02:47:51 2026`, in UTC.
fn date(sec: u32) -> String {
    const DAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let c = Calendar::of(sec);
    format!(
        "{} {} {:>2} {:02}:{:02}:{:02} {}",
        DAYS[c.weekday as usize % 7],
        MONTHS[(c.month as usize + 11) % 12],
        c.day,
        c.hour,
        c.minute,
        c.second,
        c.year
    )
}

impl PgMap {
    /// The members of `pg dump -f json`.
    pub fn dump(&self, f: &mut Formatter, with_net: bool) {
        self.dump_basic(f);
        self.dump_pg_stats(f, false);
        self.dump_pool_stats(f);
        self.dump_osd_stats(f, with_net);
    }

    /// Version and sums.
    pub fn dump_basic(&self, f: &mut Formatter) {
        f.dump_unsigned("version", self.version);
        f.dump_stream("stamp", self.stamp);
        f.dump_unsigned("last_osdmap_epoch", self.last_osdmap_epoch);
        f.dump_unsigned("last_pg_scan", self.last_pg_scan);
        f.object("pg_stats_sum", |f| dump_pool_stat(f, &self.digest.pg_sum));
        f.object("osd_stats_sum", |f| dump_osd_stat(f, &self.digest.osd_sum, true));
        self.dump_delta(f);
    }

    /// The change of the sum.
    pub fn dump_delta(&self, f: &mut Formatter) {
        f.object("pg_stats_delta", |f| {
            dump_pool_stat(f, &self.digest.pg_sum_delta);
            f.dump_stream("stamp_delta", self.digest.stamp_delta);
        });
    }

    /// Every PG.
    pub fn dump_pg_stats(&self, f: &mut Formatter, brief: bool) {
        self.dump_some_pg_stats(f, "pg_stats", self.pg_stat.keys(), brief);
    }

    /// Some PGs.
    pub fn dump_some_pg_stats<'a>(
        &self,
        f: &mut Formatter,
        name: &str,
        pgs: impl IntoIterator<Item = &'a PgId>,
        brief: bool,
    ) {
        f.array(name, |f| {
            for (pg, stat) in pgs.into_iter().filter_map(|pg| Some((pg, self.pg_stat.get(pg)?))) {
                f.object("pg_stat", |f| {
                    f.dump_stream("pgid", pg);
                    match brief {
                        true => dump_pg_stat_brief(f, stat),
                        false => dump_pg_stat(f, stat),
                    }
                });
            }
        });
    }

    /// Every pool.
    pub fn dump_pool_stats(&self, f: &mut Formatter) {
        f.array("pool_stats", |f| {
            for (pool, stat) in &self.digest.pg_pool_sum {
                f.object("pool_stat", |f| {
                    f.dump_int("poolid", *pool);
                    if let Some(n) = self.digest.num_pg_by_pool.get(&i64::from(*pool)) {
                        f.dump_unsigned("num_pg", *n as u64);
                    }
                    dump_pool_stat(f, stat);
                });
            }
        });
    }

    /// Every OSD, and space by pool and OSD.
    pub fn dump_osd_stats(&self, f: &mut Formatter, with_net: bool) {
        f.array("osd_stats", |f| {
            for (osd, stat) in &self.osd_stat {
                f.object("osd_stat", |f| {
                    f.dump_int("osd", *osd);
                    dump_osd_stat(f, stat, with_net);
                });
            }
        });
        f.array("pool_statfs", |f| {
            for ((pool, osd), statfs) in &self.pool_statfs {
                f.object("item", |f| {
                    f.dump_int("poolid", *pool);
                    f.dump_int("osd", *osd);
                    dump_statfs(f, statfs);
                });
            }
        });
    }

    /// `osd perf -f json`.
    pub fn dump_osd_perf(&self, f: &mut Formatter) {
        f.array("osd_perf_infos", |f| {
            for (osd, stat) in &self.osd_stat {
                f.object("osd", |f| {
                    f.dump_int("id", *osd);
                    f.object("perf_stats", |f| dump_perf_stat(f, stat));
                });
            }
        });
    }

    /// `osd perf`.
    pub fn osd_perf(&self) -> String {
        let mut table = TextTable::new();
        for heading in ["osd", "commit_latency(ms)", "apply_latency(ms)"] {
            table.define_column(heading, Align::Left, Align::Right);
        }
        for (osd, stat) in &self.osd_stat {
            let perf = &stat.os_perf_stat;
            table.row([
                osd.to_string(),
                (perf.commit_latency_ns / 1_000_000).to_string(),
                (perf.apply_latency_ns / 1_000_000).to_string(),
            ]);
        }
        table.to_string()
    }

    /// `osd blocked-by -f json`.
    pub fn dump_blocked_by(&self, f: &mut Formatter) {
        f.array("osd_blocked_by_infos", |f| {
            for (osd, n) in &self.blocked_by_sum {
                f.object("osd", |f| {
                    f.dump_int("id", *osd);
                    f.dump_int("num_blocked", *n);
                });
            }
        });
    }

    /// `osd blocked-by`.
    pub fn blocked_by(&self) -> String {
        let mut table = TextTable::new();
        table.define_column("osd", Align::Left, Align::Right);
        table.define_column("num_blocked", Align::Left, Align::Right);
        for (osd, n) in &self.blocked_by_sum {
            table.row([osd.to_string(), n.to_string()]);
        }
        table.to_string()
    }

    /// `pg dump`, without the note on omap.
    pub fn print(&self) -> String {
        let mut out = self.print_basic();
        out.push_str(&self.print_pg_stats(self.pg_stat.keys(), false));
        out.push_str(&self.print_pool_stats(false));
        out.push_str(&self.print_pg_sum(false));
        out.push_str(&self.print_osd_stats());
        out
    }

    /// The head of `pg dump` and `pg dump summary`.
    pub fn print_basic(&self) -> String {
        let mut out = String::new();
        let _ = writeln!(out, "version {}", self.version);
        let _ = writeln!(out, "stamp {}", self.stamp);
        let _ = writeln!(out, "last_osdmap_epoch {}", self.last_osdmap_epoch);
        let _ = writeln!(out, "last_pg_scan {}", self.last_pg_scan);
        out
    }

    /// The table of PGs.
    pub fn print_pg_stats<'a>(
        &self,
        pgs: impl IntoIterator<Item = &'a PgId>,
        brief: bool,
    ) -> String {
        let headings: &[&str] = match brief {
            true => &["STATE", "UP", "UP_PRIMARY", "ACTING", "ACTING_PRIMARY"],
            false => &PG_HEADINGS,
        };
        let mut table = TextTable::new();
        table.define_column("PG_STAT", Align::Left, Align::Left);
        headings.iter().for_each(|h| table.define_column(h, Align::Left, Align::Right));
        for (pg, stat) in pgs.into_iter().filter_map(|pg| Some((pg, self.pg_stat.get(pg)?))) {
            table.row(match brief {
                true => vec![
                    pg.to_string(),
                    state_string(stat.state),
                    pg_vector(&stat.up),
                    stat.up_primary.to_string(),
                    pg_vector(&stat.acting),
                    stat.acting_primary.to_string(),
                ],
                false => pg_row(*pg, stat),
            });
        }
        table.to_string()
    }

    fn sum_row(name: String, stat: &PoolStat) -> Vec<String> {
        let s = &stat.stats.sum;
        let mut row = vec![name];
        row.extend(
            [
                s.num_objects,
                s.num_objects_missing_on_primary,
                s.num_objects_degraded,
                s.num_objects_misplaced,
                s.num_objects_unfound,
                s.num_bytes,
                s.num_omap_bytes,
                s.num_omap_keys,
                stat.log_size,
                stat.ondisk_log_size,
            ]
            .map(|n| n.to_string()),
        );
        row
    }

    fn sum_table(first: &str, heading: bool) -> TextTable {
        let mut table = TextTable::new();
        let name = |heading_text: &'static str| if heading { heading_text } else { "" };
        table.define_column(if heading { first } else { "" }, Align::Left, Align::Left);
        for text in &PG_HEADINGS[..10] {
            table.define_column(name(text), Align::Left, Align::Right);
        }
        table
    }

    /// The table of pools.
    pub fn print_pool_stats(&self, heading: bool) -> String {
        let mut table = PgMap::sum_table("POOLID", heading);
        for (pool, stat) in self.digest.pg_pool_sum.iter().rev() {
            table.row(PgMap::sum_row(pool.to_string(), stat));
        }
        table.to_string()
    }

    /// The line of the sum.
    pub fn print_pg_sum(&self, heading: bool) -> String {
        let mut table = PgMap::sum_table("PG_STAT", heading);
        table.row(PgMap::sum_row("sum".to_owned(), &self.digest.pg_sum));
        table.to_string()
    }

    /// The table of OSDs.
    pub fn print_osd_stats(&self) -> String {
        let mut table = TextTable::new();
        table.define_column("OSD_STAT", Align::Left, Align::Left);
        for heading in
            ["USED", "AVAIL", "USED_RAW", "TOTAL", "HB_PEERS", "PG_SUM", "PRIMARY_PG_SUM"]
        {
            table.define_column(heading, Align::Left, Align::Right);
        }
        for (osd, stat) in self.osd_stat.iter().rev() {
            let count = self.num_pg_of(*osd);
            let mut row = space_row(osd.to_string(), &stat.statfs);
            row.push(pg_vector(&stat.hb_peers));
            row.push(count.acting.to_string());
            row.push(count.primary.to_string());
            table.row(row);
        }
        table.row(space_row("sum".to_owned(), &self.digest.osd_sum.statfs));
        table.to_string()
    }

    /// The line of the sum of OSDs.
    pub fn print_osd_sum(&self) -> String {
        let mut table = TextTable::new();
        table.define_column("OSD_STAT", Align::Left, Align::Left);
        for heading in ["USED", "AVAIL", "USED_RAW", "TOTAL"] {
            table.define_column(heading, Align::Left, Align::Right);
        }
        table.row(space_row("sum".to_owned(), &self.digest.osd_sum.statfs));
        table.to_string()
    }
}

fn space_row(name: String, statfs: &StoreStatfs) -> Vec<String> {
    vec![
        name,
        format_bytes(used(statfs)),
        format_bytes(statfs.available),
        format_bytes(statfs.used_raw()),
        format_bytes(statfs.total),
    ]
}

const PG_HEADINGS: [&str; 23] = [
    "OBJECTS",
    "MISSING_ON_PRIMARY",
    "DEGRADED",
    "MISPLACED",
    "UNFOUND",
    "BYTES",
    "OMAP_BYTES*",
    "OMAP_KEYS*",
    "LOG",
    "DISK_LOG",
    "STATE",
    "STATE_STAMP",
    "VERSION",
    "REPORTED",
    "UP",
    "UP_PRIMARY",
    "ACTING",
    "ACTING_PRIMARY",
    "LAST_SCRUB",
    "SCRUB_STAMP",
    "LAST_DEEP_SCRUB",
    "DEEP_SCRUB_STAMP",
    "SNAPTRIMQ_LEN",
];

fn pg_row(pg: PgId, stat: &PgStat) -> Vec<String> {
    let s = &stat.stats.sum;
    vec![
        pg.to_string(),
        s.num_objects.to_string(),
        s.num_objects_missing_on_primary.to_string(),
        s.num_objects_degraded.to_string(),
        s.num_objects_misplaced.to_string(),
        s.num_objects_unfound.to_string(),
        s.num_bytes.to_string(),
        s.num_omap_bytes.to_string(),
        s.num_omap_keys.to_string(),
        stat.log_size.to_string(),
        stat.ondisk_log_size.to_string(),
        state_string(stat.state),
        stat.last_change.to_string(),
        stat.version.to_string(),
        format!("{}:{}", stat.reported_epoch, stat.reported_seq),
        pg_vector(&stat.up),
        stat.up_primary.to_string(),
        pg_vector(&stat.acting),
        stat.acting_primary.to_string(),
        stat.last_scrub.to_string(),
        stat.last_scrub_stamp.to_string(),
        stat.last_deep_scrub.to_string(),
        stat.last_deep_scrub_stamp.to_string(),
        stat.snaptrimq_len.to_string(),
    ]
}
