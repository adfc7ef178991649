//! `osd pool autoscale-status`: what pools hold of the space their rule reaches, and the number of
//! PGs that would suit it; `osd pool ... noautoscale` (`src/pybind/mgr/pg_autoscaler` at v16.2).

use command::{CommandMap, CommandReply, Format, Formatter};

use super::EAGAIN;
use super::osd::short_number;
use crate::autoscaler::{self, Row};
use crate::daemon::Mgr;

/// Answers `autoscale-status`.
pub(super) fn run(mgr: &Mgr, map: &CommandMap) -> CommandReply {
    let osdmap = mgr.osdmaps.current();
    let rows = autoscaler::rows(mgr, &osdmap, &mgr.cluster.borrow().pg_map);
    if map.format().is_plain() {
        return CommandReply::data(table(&rows));
    }
    let mut f = Formatter::new(Format::JsonPretty);
    f.array("pools", |f| rows.iter().for_each(|row| dump(f, row)));
    CommandReply::data(f.finish().trim_end().to_owned())
}

/// Answers `osd pool get|set|unset noautoscale`.
pub(super) async fn noautoscale(mgr: &Mgr, map: &CommandMap) -> CommandReply {
    let is_off = autoscaler::is_off(mgr);
    let say = |text: &str| CommandReply { rc: 0, outs: text.to_owned(), outb: Default::default() };
    let off = map.prefix() == "osd pool set noautoscale";
    if map.prefix() == "osd pool get noautoscale" {
        return say(if is_off { "noautoscale is on" } else { "noautoscale is off" });
    }
    if off == is_off {
        let text =
            if off { "noautoscale is already set!" } else { "noautoscale is already unset!" };
        return say(text);
    }
    match autoscaler::set_off(mgr, off).await {
        Ok(()) if off => say("noautoscale is set, all pools now have autoscale off"),
        Ok(()) => say("noautoscale is unset, all pools now have autoscale on"),
        Err(why) => CommandReply::error(EAGAIN, why),
    }
}

fn dump(f: &mut Formatter, row: &Row) {
    f.object("pool", |f| {
        let raw = row.raw_used();
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
        f.dump_bool("would_adjust", row.would_adjust());
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
    let some = |ratio: f64| {
        if ratio > 0.0 { format!("{ratio:.4}") } else { String::new() }
    };
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
            if row.would_adjust() { row.wanted.to_string() } else { String::new() },
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
