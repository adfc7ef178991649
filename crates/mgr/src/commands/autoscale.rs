//! `osd pool autoscale-status`: what pools hold of the space their rule reaches, and the number of
//! PGs that would suit it. Nothing is changed by it (`src/pybind/mgr/pg_autoscaler` at v16.2).

use command::{CommandMap, CommandReply, Format, Formatter};
use maps::{OsdMap, PgPool};
use maps::pgmap::PgMap;
use maps::pool::{PoolOpts, pool_flags, pool_opts};

use super::osd::short_number;
use crate::daemon::Mgr;

/// Fewest PGs a pool is thought to need, unless it says otherwise.
const PG_NUM_MIN: u64 = 32;
/// A pool is left alone until it is off by this factor.
const THRESHOLD: f64 = 3.0;
/// `pg_autoscale_mode` in words.
const MODES: [&str; 3] = ["off", "warn", "on"];

struct Row {
    id: i64,
    name: String,
    logical_used: u64,
    target_bytes: i64,
    rate: f64,
    capacity: u64,
    target_ratio: f64,
    effective_ratio: f64,
    capacity_ratio: f64,
    actual_ratio: f64,
    bias: f64,
    pg_num: u32,
    ideal: u64,
    wanted: u64,
    mode: &'static str,
    would_adjust: bool,
    bulk: bool,
    root: i32,
}

fn opt(opts: &PoolOpts, name: &str) -> Option<f64> {
    let (key, _) = pool_opts::by_name(name)?;
    opts.double(key).or_else(|| opts.int(key).map(|n| n as f64))
}

/// The power of two nearest to a number.
fn nearest_power_of_two(n: f64) -> u64 {
    let n = n.max(1.0) as u64;
    let above = n.next_power_of_two();
    let below = above / 2;
    if below > 0 && above - n > n - below { below } else { above }
}

/// The root a rule takes.
fn root_of(map: &OsdMap, pool: &PgPool) -> i32 {
    let osd = map.crush.rule_weights(i32::from(pool.crush_rule)).into_keys().next();
    let mut item = osd.unwrap_or(0);
    while let Some(parent) = map.crush.parent_of(item) {
        item = parent;
    }
    item
}

fn row_of(mgr: &Mgr, map: &OsdMap, pgs: &PgMap, id: i64, pool: &PgPool, shared: f64) -> Row {
    let osds = map.crush.rule_weights(i32::from(pool.crush_rule));
    let total = |osd: &i32| pgs.osd_stat.get(osd).map_or(0, |stat| stat.statfs.total);
    let capacity: u64 = osds.keys().map(total).sum();
    let rate = f64::from(map.pool_raw_used_rate(pool));
    let sum = pgs.digest.pg_pool_sum.get(&(id as i32));
    let logical_used = sum.map_or(0, |s| u64::try_from(s.stats.sum.num_bytes).unwrap_or(0));
    let target_bytes = opt(&pool.opts, "target_size_bytes").unwrap_or(0.0);
    let target_ratio = opt(&pool.opts, "target_size_ratio").unwrap_or(0.0);
    let of_capacity = |bytes: f64| if capacity > 0 { bytes * rate / capacity as f64 } else { 0.0 };
    let actual_ratio = of_capacity(logical_used as f64);
    let capacity_ratio = of_capacity(target_bytes.max(logical_used as f64));
    let effective_ratio = if target_ratio > 0.0 && shared > 0.0 { target_ratio / shared } else { 0.0 };
    let share = capacity_ratio.max(effective_ratio);
    let bias = opt(&pool.opts, "pg_autoscale_bias").unwrap_or(1.0);
    let per_osd = mgr.config.float("mon_target_pg_per_osd");
    let ideal = if rate > 0.0 { share * per_osd * osds.len() as f64 / rate * bias } else { 0.0 };
    let min = opt(&pool.opts, "pg_num_min").map_or(PG_NUM_MIN, |n| n as u64);
    let wanted = nearest_power_of_two(ideal).max(min);
    let pg_num = pool.pg_num_target;
    let mode = MODES.get(usize::from(pool.pg_autoscale_mode)).copied().unwrap_or("off");
    let (now, then) = (f64::from(pg_num), wanted as f64);
    let off = then > now * THRESHOLD || then < now / THRESHOLD;
    Row {
        id,
        name: map.pool_names.get(&id).cloned().unwrap_or_default(),
        logical_used,
        target_bytes: target_bytes as i64,
        rate,
        capacity,
        target_ratio,
        effective_ratio,
        capacity_ratio: share,
        actual_ratio,
        bias,
        pg_num,
        ideal: ideal as u64,
        wanted,
        mode,
        would_adjust: mode != "off" && off && (0.0..=1.0).contains(&share),
        bulk: pool.has_flag(pool_flags::BULK),
        root: root_of(map, pool),
    }
}

/// Answers the command.
pub(super) fn run(mgr: &Mgr, map: &CommandMap) -> CommandReply {
    let osdmap = mgr.osdmaps.current();
    let cluster = mgr.cluster.borrow();
    let ratio = |pool: &PgPool| opt(&pool.opts, "target_size_ratio").unwrap_or(0.0);
    let shared: f64 = osdmap.pools.values().map(ratio).sum();
    let rows: Vec<Row> = osdmap
        .pools
        .iter()
        .map(|(id, pool)| row_of(mgr, &osdmap, &cluster.pg_map, *id, pool, shared))
        .collect();
    if map.format().is_plain() {
        return CommandReply::data(table(&rows));
    }
    let mut f = Formatter::new(Format::JsonPretty);
    f.array("pools", |f| rows.iter().for_each(|row| dump(f, row)));
    CommandReply::data(f.finish().trim_end().to_owned())
}

fn dump(f: &mut Formatter, row: &Row) {
    f.object("pool", |f| {
        let raw = row.logical_used as f64 * row.rate;
        f.dump_float("actual_capacity_ratio", row.actual_ratio);
        f.dump_float("actual_raw_used", raw);
        f.dump_float("bias", row.bias);
        f.dump_bool("bulk", row.bulk);
        f.dump_float("capacity_ratio", row.capacity_ratio);
        f.dump_int("crush_root_id", row.root);
        f.dump_float("effective_target_ratio", row.effective_ratio);
        f.dump_unsigned("logical_used", row.logical_used);
        f.dump_string("pg_autoscale_mode", row.mode);
        f.dump_unsigned("pg_num_final", row.wanted);
        f.dump_unsigned("pg_num_ideal", row.ideal);
        f.dump_unsigned("pg_num_target", row.pg_num);
        f.dump_int("pool_id", row.id);
        f.dump_string("pool_name", &row.name);
        f.dump_float("raw_used", raw.max(row.target_bytes as f64 * row.rate));
        f.dump_float("raw_used_rate", row.rate);
        f.dump_unsigned("subtree_capacity", row.capacity);
        f.dump_int("target_bytes", row.target_bytes);
        f.dump_float("target_ratio", row.target_ratio);
        f.dump_bool("would_adjust", row.would_adjust);
    });
}

fn table(rows: &[Row]) -> String {
    const HEADS: [&str; 13] = [
        "POOL",
        "SIZE",
        "TARGET SIZE",
        "RATE",
        "RAW CAPACITY",
        "RATIO",
        "TARGET RATIO",
        "EFFECTIVE RATIO",
        "BIAS",
        "PG_NUM",
        "NEW PG_NUM",
        "AUTOSCALE",
        "BULK",
    ];
    const LEFT: [usize; 3] = [0, 11, 12];
    let bytes = |n: u64| short_number(n, 6, 1024);
    let some = |ratio: f64| if ratio > 0.0 { format!("{ratio:.4}") } else { String::new() };
    let cells = |row: &Row| {
        vec![
            row.name.clone(),
            bytes(row.logical_used),
            if row.target_bytes > 0 { bytes(row.target_bytes as u64) } else { String::new() },
            format!("{:.1}", row.rate),
            bytes(row.capacity),
            format!("{:.4}", row.capacity_ratio),
            some(row.target_ratio),
            some(row.effective_ratio),
            format!("{:.1}", row.bias),
            row.pg_num.to_string(),
            if row.would_adjust { row.wanted.to_string() } else { String::new() },
            row.mode.to_owned(),
            if row.bulk { "True" } else { "False" }.to_owned(),
        ]
    };
    let mut lines = vec![HEADS.map(str::to_owned).to_vec()];
    lines.extend(rows.iter().map(cells));
    let width = |i: usize| lines.iter().map(|line| line[i].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..HEADS.len()).map(width).collect();
    let mut out = String::new();
    for line in &lines {
        for (i, cell) in line.iter().enumerate() {
            let width = widths[i];
            if LEFT.contains(&i) {
                out += &format!("{cell:<width$}  ");
            } else {
                out += &format!("{cell:>width$}  ");
            }
        }
        out.push('\n');
    }
    out
}
