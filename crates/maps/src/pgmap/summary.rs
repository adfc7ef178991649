//! What `status`, `pg stat` and `osd pool stats` say of the PGs: states, recovery, rates.

use std::fmt::Write;

use command::{Formatter, format_bytes, format_si};
use types::UTime;
use types::osd::pg_state::state_string;
use types::osd::{ObjectStatSum, PoolStat};

use super::{PgMapDigest, used};
use crate::OsdMap;

/// A sum and how fast it changes: of the cluster or of one pool.
#[derive(Debug, Clone)]
pub struct IoSummary {
    sum: ObjectStatSum,
    /// The change, nothing below 0: OSDs may report less than before.
    delta: ObjectStatSum,
    seconds: f64,
}

impl IoSummary {
    fn new(sum: &PoolStat, delta: &PoolStat, took: UTime) -> IoSummary {
        let mut delta = delta.stats.sum;
        delta.for_each_field(|n| n.max(0));
        IoSummary { sum: sum.stats.sum, delta, seconds: took.as_secs_f64() }
    }

    fn per_second(&self, n: i64) -> i64 {
        // A change without time is infinite; casts saturate.
        (n as f64 / self.seconds) as i64
    }

    /// Objects degraded, misplaced and unfound: name, count, total, share.
    fn troubles(&self) -> Vec<(&'static str, i64, i64, f64)> {
        let s = &self.sum;
        [
            ("degraded", s.num_objects_degraded, s.num_object_copies),
            ("misplaced", s.num_objects_misplaced, s.num_object_copies),
            ("unfound", s.num_objects_unfound, s.num_objects),
        ]
        .into_iter()
        .filter(|(_, n, total)| *n != 0 && *total > 0)
        .map(|(name, n, total)| (name, n, total, n as f64 / total as f64 * 100.0))
        .collect()
    }

    /// The members about degraded, misplaced and unfound objects.
    pub fn dump_recovery(&self, f: &mut Formatter) {
        for (name, n, total, percent) in self.troubles() {
            f.dump_unsigned(&format!("{name}_objects"), n as u64);
            f.dump_unsigned(&format!("{name}_total"), total as u64);
            f.dump_float(&format!("{name}_ratio"), percent / 100.0);
        }
    }

    /// The lines about degraded, misplaced and unfound objects.
    pub fn recovery_lines(&self) -> Vec<String> {
        let line = |(name, n, total, percent): (&str, i64, i64, f64)| {
            format!("{n}/{total} objects {name} ({percent:.3}%)")
        };
        self.troubles().into_iter().map(line).collect()
    }

    fn recovers(&self) -> bool {
        let d = &self.delta;
        d.num_objects_recovered != 0 || d.num_bytes_recovered != 0 || d.num_keys_recovered != 0
    }

    /// The members about the speed of recovery.
    pub fn dump_recovery_rate(&self, f: &mut Formatter) {
        if self.recovers() {
            let d = &self.delta;
            f.dump_int("recovering_objects_per_sec", self.per_second(d.num_objects_recovered));
            f.dump_int("recovering_bytes_per_sec", self.per_second(d.num_bytes_recovered));
            f.dump_int("recovering_keys_per_sec", self.per_second(d.num_keys_recovered));
            f.dump_int("num_objects_recovered", d.num_objects_recovered);
            f.dump_int("num_bytes_recovered", d.num_bytes_recovered);
            f.dump_int("num_keys_recovered", d.num_keys_recovered);
        }
    }

    /// The speed of recovery as text; empty when there is none.
    pub fn recovery_rate(&self) -> String {
        if !self.recovers() {
            return String::new();
        }
        let d = &self.delta;
        let mut out = format!("{}/s", format_bytes(self.per_second(d.num_bytes_recovered) as u64));
        if d.num_keys_recovered != 0 {
            let keys = format_si(self.per_second(d.num_keys_recovered) as u64);
            let _ = write!(out, ", {keys} keys/s");
        }
        let objects = format_si(self.per_second(d.num_objects_recovered) as u64);
        let _ = write!(out, ", {objects} objects/s");
        out
    }

    fn read_bytes(&self) -> Option<i64> {
        (self.delta.num_rd != 0).then(|| self.per_second(self.delta.num_rd_kb << 10))
    }

    fn written_bytes(&self) -> Option<i64> {
        (self.delta.num_wr != 0).then(|| self.per_second(self.delta.num_wr_kb << 10))
    }

    /// The members about what clients do.
    pub fn dump_client_rate(&self, f: &mut Formatter) {
        let (read, written) = (self.read_bytes(), self.written_bytes());
        if let Some(bytes) = read {
            f.dump_int("read_bytes_sec", bytes);
        }
        if let Some(bytes) = written {
            f.dump_int("write_bytes_sec", bytes);
        }
        if read.is_some() || written.is_some() {
            f.dump_int("read_op_per_sec", self.per_second(self.delta.num_rd));
            f.dump_int("write_op_per_sec", self.per_second(self.delta.num_wr));
        }
    }

    /// What clients do as text; empty when they do nothing.
    pub fn client_rate(&self) -> String {
        let mut out = self.bytes_text();
        if !out.is_empty() {
            let reads = format_si(self.per_second(self.delta.num_rd) as u64);
            let writes = format_si(self.per_second(self.delta.num_wr) as u64);
            let _ = write!(out, "{reads} op/s rd, {writes} op/s wr");
        }
        out
    }

    fn bytes_text(&self) -> String {
        let mut out = String::new();
        if let Some(bytes) = self.read_bytes() {
            let _ = write!(out, "{}/s rd, ", format_bytes(bytes as u64));
        }
        if let Some(bytes) = self.written_bytes() {
            let _ = write!(out, "{}/s wr, ", format_bytes(bytes as u64));
        }
        out
    }

    /// What cache tiers do: key, rate, text. PGs in a mode are counted, not rated.
    fn cache(&self) -> Vec<(&'static str, i64, String)> {
        let d = &self.delta;
        let mut list = Vec::new();
        let mut bytes = |key, n: i64, kb: i64, what: &str| {
            if n != 0 {
                let rate = self.per_second(kb << 10);
                list.push((key, rate, format!("{}/s {what}", format_bytes(rate as u64))));
            }
        };
        bytes("flush_bytes_sec", d.num_flush, d.num_flush_kb, "flush");
        bytes("evict_bytes_sec", d.num_evict, d.num_evict_kb, "evict");
        if d.num_promote != 0 {
            let rate = self.per_second(d.num_promote);
            let text = format!("{} op/s promote", format_si(rate as u64));
            list.push(("promote_op_per_sec", rate, text));
        }
        for (key, n, what) in [
            ("num_flush_mode_low", d.num_flush_mode_low, "flushing"),
            ("num_flush_mode_high", d.num_flush_mode_high, "flushing (high)"),
            ("num_evict_mode_some", d.num_evict_mode_some, "evicting"),
            ("num_evict_mode_full", d.num_evict_mode_full, "evicting (full)"),
        ] {
            if n != 0 {
                list.push((key, n.into(), format!("{} PGs {what}", format_si(n as u64))));
            }
        }
        list
    }

    /// The members about cache tiers.
    pub fn dump_cache_rate(&self, f: &mut Formatter) {
        self.cache().into_iter().for_each(|(key, value, _)| f.dump_int(key, value));
    }

    /// What cache tiers do as text; empty when nothing.
    pub fn cache_rate(&self) -> String {
        self.cache().into_iter().map(|(_, _, text)| text).collect::<Vec<_>>().join(", ")
    }
}

impl PgMapDigest {
    /// The whole cluster's.
    pub fn io_summary(&self) -> IoSummary {
        IoSummary::new(&self.pg_sum, &self.pg_sum_delta, self.stamp_delta)
    }

    /// One pool's.
    pub fn pool_io_summary(&self, pool: i64) -> IoSummary {
        let sum = self.pg_pool_sum.get(&(pool as i32)).copied().unwrap_or_default();
        let delta = self.per_pool_sum_delta.get(&pool).map(|(d, _)| *d).unwrap_or_default();
        let took = self.per_pool_sum_deltas_stamps.get(&pool).copied().unwrap_or_default();
        IoSummary::new(&sum, &delta, took)
    }

    /// States by falling count.
    fn states_by_count(&self) -> Vec<(i32, u64)> {
        let mut states: Vec<(i32, u64)> =
            self.num_pg_by_state.iter().map(|(state, n)| (*n, *state)).collect();
        states.sort_by_key(|(n, _)| *n);
        states.reverse();
        states
    }

    /// Share of PGs, in single precision.
    fn share(&self, n: i64) -> f32 {
        n as f32 / self.num_pg as f32
    }

    fn num_pg_inactive(&self) -> i64 {
        self.num_pg - self.num_pg_active - self.num_pg_unknown
    }

    /// The members of `pgmap` in `ceph status -f json`.
    pub fn dump_summary(&self, f: &mut Formatter) {
        f.array("pgs_by_state", |f| {
            for (n, state) in self.states_by_count() {
                f.object("pgs_by_state_element", |f| {
                    f.dump_string("state_name", state_string(state));
                    f.dump_unsigned("count", n as u64);
                });
            }
        });
        f.dump_unsigned("num_pgs", self.num_pg as u64);
        f.dump_unsigned("num_pools", self.pg_pool_sum.len() as u64);
        f.dump_unsigned("num_objects", self.pg_sum.stats.sum.num_objects as u64);
        f.dump_unsigned("data_bytes", self.pg_sum.stats.sum.num_bytes as u64);
        f.dump_unsigned("bytes_used", self.osd_sum.statfs.used_raw());
        f.dump_unsigned("bytes_avail", self.osd_sum.statfs.available);
        f.dump_unsigned("bytes_total", self.osd_sum.statfs.total);
        if self.num_pg_unknown > 0 {
            f.dump_float("unknown_pgs_ratio", self.share(self.num_pg_unknown).into());
        }
        if self.num_pg_inactive() > 0 {
            f.dump_float("inactive_pgs_ratio", self.share(self.num_pg_inactive()).into());
        }
        let io = self.io_summary();
        io.dump_recovery(f);
        io.dump_recovery_rate(f);
        io.dump_client_rate(f);
        io.dump_cache_rate(f);
    }

    /// The lines of `data:` and `io:` in `ceph status`.
    pub fn summary(&self) -> String {
        let mut out = String::new();
        let (sum, statfs) = (&self.pg_sum.stats.sum, &self.osd_sum.statfs);
        let _ = writeln!(
            out,
            "    pools:   {} pools, {} pgs\n    objects: {} objects, {}\n    usage:   {} used, {} / \
             {} avail",
            self.pg_pool_sum.len(),
            self.num_pg,
            format_si(sum.num_objects as u64),
            format_bytes(sum.num_bytes as u64),
            format_bytes(statfs.used_raw()),
            format_bytes(statfs.available),
            format_bytes(statfs.total),
        );
        let mut lines = Vec::new();
        if self.num_pg_unknown > 0 {
            let percent = f64::from(self.share(self.num_pg_unknown)) * 100.0;
            lines.push(format!("{percent:.3}% pgs unknown"));
        }
        if self.num_pg_inactive() > 0 {
            let percent = f64::from(self.share(self.num_pg_inactive())) * 100.0;
            lines.push(format!("{percent:.3}% pgs not active"));
        }
        let io = self.io_summary();
        lines.extend(io.recovery_lines());
        let states = self.states_by_count();
        let width = states.iter().map(|(n, _)| n.to_string().len()).max().unwrap_or(1);
        for (n, state) in states {
            lines.push(format!("{n:<width$} {}", state_string(state)));
        }
        let _ = write!(out, "    pgs:     ");
        out.push_str(&lines.join("\n             "));
        if !lines.is_empty() {
            out.push('\n');
        }
        let rates = [
            ("client:   ", io.client_rate()),
            ("recovery: ", io.recovery_rate()),
            ("cache:    ", io.cache_rate()),
        ];
        if rates.iter().any(|(_, text)| !text.is_empty()) {
            out.push_str(" \n  io:\n");
            for (name, text) in rates.into_iter().filter(|(_, text)| !text.is_empty()) {
                let _ = writeln!(out, "    {name}{text}");
            }
        }
        out
    }

    /// The members of `pg stat -f json`.
    pub fn dump_oneline(&self, f: &mut Formatter) {
        f.array("num_pg_by_state", |f| {
            for (n, state) in self.states_by_count() {
                f.object("state", |f| {
                    f.dump_string("name", state_string(state));
                    f.dump_unsigned("num", n as u64);
                });
            }
        });
        let statfs = &self.osd_sum.statfs;
        f.dump_unsigned("num_pgs", self.num_pg as u64);
        f.dump_unsigned("num_bytes", self.pg_sum.stats.sum.num_bytes as u64);
        f.dump_int("total_bytes", statfs.total as i64);
        f.dump_int("total_avail_bytes", statfs.available as i64);
        f.dump_int("total_used_bytes", used(statfs) as i64);
        f.dump_int("total_used_raw_bytes", statfs.used_raw() as i64);
        let io = self.io_summary();
        if let Some(bytes) = io.read_bytes() {
            f.dump_unsigned("read_bytes_sec", bytes as u64);
        }
        if let Some(bytes) = io.written_bytes() {
            f.dump_unsigned("write_bytes_sec", bytes as u64);
        }
        if io.delta.num_rd != 0 || io.delta.num_wr != 0 {
            let ops = io.per_second(io.delta.num_rd + io.delta.num_wr);
            f.dump_unsigned("io_sec", ops as u64);
        }
        io.dump_recovery(f);
        io.dump_recovery_rate(f);
    }

    /// The line of `pg stat`.
    pub fn oneline(&self) -> String {
        let states: Vec<String> = self
            .states_by_count()
            .into_iter()
            .map(|(n, state)| format!("{n} {}", state_string(state)))
            .collect();
        let statfs = &self.osd_sum.statfs;
        let mut out = format!(
            "{} pgs: {}; {} data, {} used, {} / {} avail",
            self.num_pg,
            states.join(", "),
            format_bytes(self.pg_sum.stats.sum.num_bytes as u64),
            format_bytes(used(statfs)),
            format_bytes(statfs.available),
            format_bytes(statfs.total),
        );
        let io = self.io_summary();
        if io.delta.num_rd != 0 || io.delta.num_wr != 0 {
            let ops = io.per_second(io.delta.num_rd + io.delta.num_wr);
            let _ = write!(out, "; {}{} op/s", io.bytes_text(), format_si(ops as u64));
        }
        for line in io.recovery_lines() {
            let _ = write!(out, "; {line}");
        }
        let recovery = io.recovery_rate();
        if !recovery.is_empty() {
            let _ = write!(out, "; {recovery} recovering");
        }
        out
    }

    /// One pool of `osd pool stats -f json`.
    pub fn dump_pool_io(&self, osdmap: &OsdMap, pool: i64, f: &mut Formatter) {
        let io = self.pool_io_summary(pool);
        f.object("pool", |f| {
            f.dump_string("pool_name", osdmap.pool_names.get(&pool).map_or("", String::as_str));
            f.dump_int("pool_id", pool);
            f.object("recovery", |f| io.dump_recovery(f));
            f.object("recovery_rate", |f| io.dump_recovery_rate(f));
            f.object("client_io_rate", |f| io.dump_client_rate(f));
            if osdmap.pool(pool).is_some_and(|p| p.is_tier()) {
                f.object("cache_io_rate", |f| io.dump_cache_rate(f));
            }
        });
    }

    /// One pool of `osd pool stats`.
    pub fn pool_io(&self, osdmap: &OsdMap, pool: i64) -> String {
        let io = self.pool_io_summary(pool);
        let name = osdmap.pool_names.get(&pool).map_or("", String::as_str);
        let mut lines: Vec<String> =
            io.recovery_lines().into_iter().map(|line| format!("  {line}\n")).collect();
        for (what, text) in [
            ("recovery io", io.recovery_rate()),
            ("client io", io.client_rate()),
            ("cache tier io", io.cache_rate()),
        ] {
            let shown = what != "cache tier io" || osdmap.pool(pool).is_some_and(|p| p.is_tier());
            if !text.is_empty() && shown {
                lines.push(format!("  {what} {text}\n"));
            }
        }
        if lines.is_empty() {
            lines.push("  nothing is going on\n".to_owned());
        }
        format!("pool {name} id {pool}\n{}\n", lines.concat())
    }
}
