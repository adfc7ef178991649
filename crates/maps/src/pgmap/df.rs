//! Space: `ceph df`, plain and JSON.

use command::{Align, Formatter, TextTable, format_bytes, format_si};
use types::osd::{PoolStat, StoreStatfs};

use super::{PgMapDigest, used, used_raw_ratio};
use crate::OsdMap;
use crate::pool::PgPool;

/// What `df` says of a pool.
struct PoolSpace {
    stored_data: u64,
    stored_omap: u64,
    stored_raw: f32,
    used_data: u64,
    used_omap: u64,
    /// Share used of what could be used.
    share: f32,
    /// Bytes that clients may still write.
    max_avail: u64,
    /// The same times the copies.
    avail_raw: u64,
}

impl OsdMap {
    /// Raw bytes per byte of a pool's clients; 0 when the erasure code profile does not say.
    pub fn pool_raw_used_rate(&self, pool: &PgPool) -> f32 {
        if !pool.is_erasure() {
            return f32::from(pool.size);
        }
        let number = |key: &str| {
            let profile = self.erasure_code_profiles.get(&pool.erasure_code_profile)?;
            profile.get(key)?.parse::<u32>().ok()
        };
        match (number("k"), number("m")) {
            (Some(k), Some(m)) if k > 0 => k.saturating_add(m) as f32 / k as f32,
            _ => 0.0,
        }
    }
}

/// `0` below a hundredth, else two decimals.
fn percent(share: f64) -> String {
    let share = share as f32;
    if share < 0.01 { "0".to_owned() } else { format!("{share:.2}") }
}

impl PgMapDigest {
    /// Bytes that clients may still write to a pool.
    pub fn pool_free_space(&self, osdmap: &OsdMap, pool: i64) -> u64 {
        let Some(pool) = osdmap.pool(pool) else { return 0 };
        let rate = osdmap.pool_raw_used_rate(pool);
        if rate == 0.0 { 0 } else { (self.rule_avail_raw(pool) as f32 / rate) as u64 }
    }

    /// Bytes that clients have stored in a pool, with what objects have in their omap: STORED of `df`.
    pub fn pool_stored(&self, osdmap: &OsdMap, id: i64) -> u64 {
        let stat = i32::try_from(id).ok().and_then(|id| self.pg_pool_sum.get(&id));
        let (Some(pool), Some(stat)) = (osdmap.pool(id), stat) else { return 0 };
        let space = self.space(osdmap, pool, stat);
        space.stored_data.wrapping_add(space.stored_omap)
    }

    fn rule_avail_raw(&self, pool: &PgPool) -> u64 {
        let avail = self.avail_space_by_rule.get(&i32::from(pool.crush_rule)).copied();
        avail.unwrap_or(0).max(0) as u64
    }

    fn space(&self, osdmap: &OsdMap, pool: &PgPool, stat: &PoolStat) -> PoolSpace {
        let rate = osdmap.pool_raw_used_rate(pool);
        let avail = self.rule_avail_raw(pool);
        let (sum, store) = (&stat.stats.sum, &stat.store_stats);
        let content = sum.num_bytes.wrapping_add(sum.num_bytes_hit_set_archive) as u64;
        let by_rate = |n: i64| {
            if rate == 0.0 { 0 } else { (n as f32 / rate) as u64 }
        };
        let (used_data, stored_data) = match self.use_per_pool_stats() {
            true => (store.allocated as u64, by_rate(store.data_stored)),
            false => (content, content),
        };
        let omap = sum.num_omap_bytes as u64;
        let (used_omap, stored_omap) = match self.use_per_pool_omap_stats() {
            true => (store.omap_allocated as u64, by_rate(store.omap_allocated)),
            false => (omap, omap),
        };
        let bytes = used_data.wrapping_add(used_omap) as f32;
        let share = match avail {
            0 if bytes == 0.0 => 0.0,
            0 => 1.0,
            avail => bytes / (bytes + avail as f32),
        };
        PoolSpace {
            stored_data,
            stored_omap,
            stored_raw: stored_data.wrapping_add(stored_omap) as f32 * rate,
            used_data,
            used_omap,
            share,
            max_avail: if rate == 0.0 { 0 } else { (avail as f32 / rate) as u64 },
            avail_raw: avail,
        }
    }

    /// The members of `df -f json`; `verbose` for `df detail`.
    pub fn dump_df(&self, osdmap: &OsdMap, verbose: bool, f: &mut Formatter) {
        f.object("stats", |f| {
            dump_totals(f, &self.osd_sum.statfs);
            f.dump_unsigned("num_osds", self.osd_sum.num_osds);
            f.dump_unsigned("num_per_pool_osds", self.osd_sum.num_per_pool_osds);
            f.dump_unsigned("num_per_pool_omap_osds", self.osd_sum.num_per_pool_omap_osds);
        });
        f.object("stats_by_class", |f| {
            for (class, sum) in &self.osd_sum_by_class {
                f.object(class, |f| dump_totals(f, &sum.statfs));
            }
        });
        f.array("pools", |f| {
            for (id, pool) in &osdmap.pools {
                let Some(stat) = self.pg_pool_sum.get(&(*id as i32)) else { continue };
                f.object("pool", |f| {
                    let name = osdmap.pool_names.get(id).map_or("", String::as_str);
                    f.dump_string("name", name);
                    f.dump_int("id", *id);
                    let space = self.space(osdmap, pool, stat);
                    f.object("stats", |f| dump_pool_space(f, pool, stat, &space, verbose));
                });
            }
        });
    }

    /// The text of `df`; `verbose` for `df detail`.
    pub fn df(&self, osdmap: &OsdMap, verbose: bool) -> String {
        let mut raw = TextTable::new();
        raw.define_column("CLASS", Align::Left, Align::Left);
        for heading in ["SIZE", "AVAIL", "USED", "RAW USED", "%RAW USED"] {
            raw.define_column(heading, Align::Right, Align::Right);
        }
        let classes = self.osd_sum_by_class.iter().map(|(name, sum)| (name.as_str(), sum));
        for (name, sum) in classes.chain([("TOTAL", &self.osd_sum)]) {
            raw.row([
                name.to_owned(),
                format_bytes(sum.statfs.total),
                format_bytes(sum.statfs.available),
                format_bytes(used(&sum.statfs)),
                format_bytes(sum.statfs.used_raw()),
                percent(f64::from(used_raw_ratio(&sum.statfs)) * 100.0),
            ]);
        }
        let mut pools = pool_table(verbose);
        for (id, pool) in &osdmap.pools {
            if let Some(stat) = self.pg_pool_sum.get(&(*id as i32)) {
                let name = osdmap.pool_names.get(id).map_or("", String::as_str);
                let mut row = vec![name.to_owned(), id.to_string(), pool.pg_num.to_string()];
                row.extend(pool_cells(pool, stat, &self.space(osdmap, pool, stat), verbose));
                pools.row(row);
            }
        }
        format!("--- RAW STORAGE ---\n{raw} \n--- POOLS ---\n{pools}")
    }
}

fn dump_totals(f: &mut Formatter, statfs: &StoreStatfs) {
    f.dump_int("total_bytes", statfs.total as i64);
    f.dump_int("total_avail_bytes", statfs.available as i64);
    f.dump_int("total_used_bytes", used(statfs) as i64);
    f.dump_int("total_used_raw_bytes", statfs.used_raw() as i64);
    f.dump_float("total_used_raw_ratio", used_raw_ratio(statfs).into());
}

fn dump_pool_space(
    f: &mut Formatter,
    pool: &PgPool,
    stat: &PoolStat,
    s: &PoolSpace,
    verbose: bool,
) {
    let sum = &stat.stats.sum;
    f.dump_int("stored", s.stored_data.wrapping_add(s.stored_omap) as i64);
    if verbose {
        f.dump_int("stored_data", s.stored_data as i64);
        f.dump_int("stored_omap", s.stored_omap as i64);
    }
    f.dump_int("objects", sum.num_objects);
    let bytes = s.used_data.wrapping_add(s.used_omap);
    f.dump_int("kb_used", bytes.div_ceil(1024) as i64);
    f.dump_int("bytes_used", bytes as i64);
    if verbose {
        f.dump_int("data_bytes_used", s.used_data as i64);
        f.dump_int("omap_bytes_used", s.used_omap as i64);
    }
    f.dump_float("percent_used", s.share.into());
    f.dump_unsigned("max_avail", s.max_avail);
    if verbose {
        f.dump_int("quota_objects", pool.quota_max_objects as i64);
        f.dump_int("quota_bytes", pool.quota_max_bytes as i64);
        f.dump_int("dirty", if pool.is_tier() { sum.num_objects_dirty } else { 0 });
        f.dump_int("rd", sum.num_rd);
        f.dump_int("rd_bytes", sum.num_rd_kb.wrapping_mul(1024));
        f.dump_int("wr", sum.num_wr);
        f.dump_int("wr_bytes", sum.num_wr_kb.wrapping_mul(1024));
        f.dump_int("compress_bytes_used", stat.store_stats.data_compressed_allocated);
        f.dump_int("compress_under_bytes", stat.store_stats.data_compressed_original);
        f.dump_int("stored_raw", s.stored_raw as i64);
        f.dump_unsigned("avail_raw", s.avail_raw);
    }
}

fn pool_table(verbose: bool) -> TextTable {
    let mut table = TextTable::new();
    table.define_column("POOL", Align::Left, Align::Left);
    let mut headings = vec!["ID", "PGS", "STORED"];
    if verbose {
        headings.extend(["(DATA)", "(OMAP)"]);
    }
    headings.extend(["OBJECTS", "USED"]);
    if verbose {
        headings.extend(["(DATA)", "(OMAP)"]);
    }
    headings.extend(["%USED", "MAX AVAIL"]);
    if verbose {
        headings.extend(["QUOTA OBJECTS", "QUOTA BYTES", "DIRTY", "USED COMPR", "UNDER COMPR"]);
    }
    for heading in headings {
        table.define_column(heading, Align::Right, Align::Right);
    }
    table
}

fn pool_cells(pool: &PgPool, stat: &PoolStat, s: &PoolSpace, verbose: bool) -> Vec<String> {
    let sum = &stat.stats.sum;
    let mut cells = vec![format_bytes(s.stored_data.wrapping_add(s.stored_omap))];
    if verbose {
        cells.extend([format_bytes(s.stored_data), format_bytes(s.stored_omap)]);
    }
    cells.push(format_si(sum.num_objects as u64));
    cells.push(format_bytes(s.used_data.wrapping_add(s.used_omap)));
    if verbose {
        cells.extend([format_bytes(s.used_data), format_bytes(s.used_omap)]);
    }
    cells.push(percent(f64::from(s.share * 100.0)));
    cells.push(format_bytes(s.max_avail));
    if verbose {
        let quota = |n: u64, text: fn(u64) -> String| match n {
            0 => "N/A".to_owned(),
            n => text(n),
        };
        cells.push(quota(pool.quota_max_objects, format_si));
        cells.push(quota(pool.quota_max_bytes, format_bytes));
        cells.push(match pool.is_tier() {
            true => format_si(sum.num_objects_dirty as u64),
            false => "N/A".to_owned(),
        });
        cells.push(format_bytes(stat.store_stats.data_compressed_allocated as u64));
        cells.push(format_bytes(stat.store_stats.data_compressed_original as u64));
    }
    cells
}
