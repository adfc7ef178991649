//! `osd df` and `osd df tree`: how full each OSD is, against the average.

use std::collections::BTreeSet;

use command::{Align, Formatter, TextTable, format_bytes};
use crush::TreeItem;
use types::OsdId;

use super::PgMap;
use crate::OsdMap;
use crate::osdmap::dump::fraction;
use crate::osdmap::tree::{dump_children, dump_item, stray, type_and_name, weight_text};

/// KiB of one OSD or of all below a bucket.
#[derive(Debug, Clone, Copy, Default)]
struct Kib {
    total: u64,
    used: u64,
    data: u64,
    omap: u64,
    meta: u64,
    avail: u64,
}

impl Kib {
    fn add(&mut self, other: Kib) {
        self.total += other.total;
        self.used += other.used;
        self.data += other.data;
        self.omap += other.omap;
        self.meta += other.meta;
        self.avail += other.avail;
    }

    fn percent(&self) -> f64 {
        match (self.used, self.total) {
            (0, _) | (_, 0) => 0.0,
            (used, total) => 100.0 * used as f64 / total as f64,
        }
    }
}

/// One line.
struct Line {
    item: TreeItem,
    reweight: f64,
    kib: Kib,
    utilization: f64,
    /// Against the average.
    var: f64,
    pgs: i32,
}

/// The whole report.
struct Report {
    nodes: Vec<Line>,
    strays: Vec<Line>,
    total: Kib,
    average: f64,
    min_var: f64,
    max_var: f64,
    deviation: f64,
}

/// Two decimals, `0` and `-` for none.
fn low_precision(value: f64) -> String {
    match value {
        v if v < -0.01 => "-".to_owned(),
        v if v < 0.001 => "0".to_owned(),
        v => format!("{v:.2}"),
    }
}

impl PgMap {
    fn osd_kib(&self, osd: OsdId) -> Kib {
        let Some(stat) = self.osd_stat.get(&osd) else { return Kib::default() };
        let s = &stat.statfs;
        Kib {
            total: s.kb(),
            used: s.kb_used_raw(),
            data: s.kb_used_data(),
            omap: s.kb_used_omap(),
            meta: s.kb_used_internal_metadata(),
            avail: s.kb_avail(),
        }
    }

    fn report(&self, map: &OsdMap, only: Option<&BTreeSet<OsdId>>, tree: bool) -> Report {
        let shows = |osd: OsdId| only.is_none_or(|only| only.contains(&osd));
        let mut sum = Kib::default();
        for osd in map.osds().filter(|osd| map.weight(*osd) != 0 && shows(*osd)) {
            sum.add(self.osd_kib(osd));
        }
        let average = sum.percent();
        let line = |item: TreeItem| {
            let mut kib = Kib::default();
            for osd in map.crush.subtree(item.id).into_iter().filter(|i| *i >= 0) {
                if !map.is_out(osd) && shows(osd) {
                    kib.add(self.osd_kib(osd));
                }
            }
            let bucket = item.id < 0;
            let reweight = if bucket { -1.0 } else { fraction(map.weight(item.id)) };
            let utilization = kib.percent();
            let var = if average == 0.0 { 1.0 } else { utilization / average };
            let pgs = if bucket { 0 } else { self.num_pg_of(item.id).acting };
            Line { item, reweight, kib, utilization, var, pgs }
        };
        let items = map.tree_items(None, only.is_none(), shows);
        let touched: BTreeSet<i32> = items.iter().map(|item| item.id).collect();
        let mut seen = BTreeSet::new();
        let nodes: Vec<Line> = items
            .into_iter()
            .filter(|item| tree || (item.id >= 0 && seen.insert(item.id)))
            .map(line)
            .collect();
        let stray_osds = map.osds().filter(|osd| !touched.contains(osd) && shows(*osd));
        let strays: Vec<Line> = stray_osds.map(|osd| line(stray(osd))).collect();

        let (mut min_var, mut max_var) = (-1.0, -1.0);
        let (mut squares, mut weights) = (0.0, 0.0);
        for line in nodes.iter().chain(&strays).filter(|l| l.item.id >= 0 && l.reweight > 0.0) {
            if min_var < 0.0 || line.var < min_var {
                min_var = line.var;
            }
            if max_var < 0.0 || line.var > max_var {
                max_var = line.var;
            }
            squares += line.reweight * (line.utilization - average).powi(2);
            weights += line.reweight;
        }
        let deviation = if weights > 0.0 { (squares / weights).sqrt() } else { 0.0 };
        let total = match only {
            Some(_) => sum,
            None => {
                let s = &self.digest.osd_sum.statfs;
                Kib {
                    total: s.kb(),
                    used: s.kb_used_raw(),
                    data: s.kb_used_data(),
                    omap: s.kb_used_omap(),
                    meta: s.kb_used_internal_metadata(),
                    avail: s.kb_avail(),
                }
            }
        };
        Report { nodes, strays, total, average, min_var, max_var, deviation }
    }

    /// `osd df -f json`; `only` limits it to some OSDs, `tree` shows the buckets too.
    pub fn dump_osd_df(
        &self,
        f: &mut Formatter,
        map: &OsdMap,
        only: Option<&BTreeSet<OsdId>>,
        tree: bool,
    ) {
        let report = self.report(map, only, tree);
        let dump = |f: &mut Formatter, line: &Line| {
            f.object("item", |f| {
                dump_item(f, &map.crush, &map.pool_names, &line.item);
                f.dump_float("reweight", line.reweight);
                f.dump_int("kb", line.kib.total as i64);
                f.dump_int("kb_used", line.kib.used as i64);
                f.dump_int("kb_used_data", line.kib.data as i64);
                f.dump_int("kb_used_omap", line.kib.omap as i64);
                f.dump_int("kb_used_meta", line.kib.meta as i64);
                f.dump_int("kb_avail", line.kib.avail as i64);
                f.dump_float("utilization", line.utilization);
                f.dump_float("var", line.var);
                f.dump_unsigned("pgs", line.pgs as u64);
                if line.item.id >= 0 {
                    f.dump_string("status", map.status_name(line.item.id));
                }
                dump_children(f, &line.item);
            });
        };
        f.array("nodes", |f| report.nodes.iter().for_each(|line| dump(f, line)));
        f.array("stray", |f| report.strays.iter().for_each(|line| dump(f, line)));
        f.object("summary", |f| {
            f.dump_int("total_kb", report.total.total as i64);
            f.dump_int("total_kb_used", report.total.used as i64);
            f.dump_int("total_kb_used_data", report.total.data as i64);
            f.dump_int("total_kb_used_omap", report.total.omap as i64);
            f.dump_int("total_kb_used_meta", report.total.meta as i64);
            f.dump_int("total_kb_avail", report.total.avail as i64);
            f.dump_float("average_utilization", report.average);
            f.dump_float("min_var", report.min_var);
            f.dump_float("max_var", report.max_var);
            f.dump_float("dev", report.deviation);
        });
    }

    /// `osd df`, its last line included.
    pub fn osd_df(&self, map: &OsdMap, only: Option<&BTreeSet<OsdId>>, tree: bool) -> String {
        let report = self.report(map, only, tree);
        let mut table = TextTable::new();
        for heading in [
            "ID", "CLASS", "WEIGHT", "REWEIGHT", "SIZE", "RAW USE", "DATA", "OMAP", "META",
            "AVAIL", "%USE", "VAR", "PGS", "STATUS",
        ] {
            table.define_column(heading, Align::Left, Align::Right);
        }
        if tree {
            table.define_column("TYPE NAME", Align::Left, Align::Left);
        }
        for line in report.nodes.iter().chain(&report.strays) {
            let osd = line.item.id >= 0;
            let mut row = vec![
                line.item.id.to_string(),
                map.crush.class_of(line.item.id).unwrap_or_default().to_owned(),
                weight_text(fraction(line.item.weight)),
                weight_text(line.reweight),
            ];
            row.extend(kib_cells(&line.kib));
            row.push(low_precision(line.utilization));
            row.push(low_precision(line.var));
            row.push(if osd { line.pgs.to_string() } else { "-".to_owned() });
            row.push(if osd { map.status_name(line.item.id).to_owned() } else { String::new() });
            row.push(type_and_name(&map.crush, &line.item));
            table.row(row);
        }
        let mut row = vec![String::new(), String::new(), String::new(), "TOTAL".to_owned()];
        // From bytes where there are bytes: KiB would round twice.
        row.extend(match only {
            Some(_) => kib_cells(&report.total),
            None => {
                let s = &self.digest.osd_sum.statfs;
                [
                    s.total,
                    s.used_raw(),
                    s.allocated as u64,
                    s.omap_allocated as u64,
                    s.internal_metadata as u64,
                    s.available,
                ]
                .map(format_bytes)
            }
        });
        row.push(low_precision(report.average));
        table.row(row);
        format!(
            "{table}MIN/MAX VAR: {}/{}  STDDEV: {}\n",
            low_precision(report.min_var),
            low_precision(report.max_var),
            low_precision(report.deviation)
        )
    }
}

fn kib_cells(kib: &Kib) -> [String; 6] {
    [kib.total, kib.used, kib.data, kib.omap, kib.meta, kib.avail]
        .map(|kib| format_bytes(kib.wrapping_mul(1024)))
}
