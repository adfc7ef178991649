//! `osd df`: space by OSD and by CRUSH bucket (`print_osd_utilization` in
//! `src/osd/OSDMap.cc` at v16.2).

use std::collections::BTreeSet;

use command::{Align, CommandMap, CommandReply, Formatter, TextTable, format_bytes};
use crush::TreeItem;
use maps::OsdMap;
use maps::pgmap::PgMap;
use types::OsdId;
use types::osd::StoreStatfs;

use super::EINVAL;
use crate::daemon::Mgr;

/// Space of one line of the tree.
#[derive(Debug, Clone, Copy, Default)]
struct Space {
    kb: u64,
    used: u64,
    data: u64,
    omap: u64,
    meta: u64,
    avail: u64,
}

impl Space {
    fn of(statfs: &StoreStatfs) -> Space {
        Space {
            kb: statfs.kb(),
            used: statfs.kb_used_raw(),
            data: statfs.kb_used_data(),
            omap: statfs.kb_used_omap(),
            meta: statfs.kb_used_internal_metadata(),
            avail: statfs.kb_avail(),
        }
    }

    fn add(&mut self, other: &Space) {
        self.kb += other.kb;
        self.used += other.used;
        self.data += other.data;
        self.omap += other.omap;
        self.meta += other.meta;
        self.avail += other.avail;
    }

    fn utilization(&self) -> f64 {
        if self.kb == 0 || self.used == 0 {
            0.0
        } else {
            100.0 * self.used as f64 / self.kb as f64
        }
    }
}

/// One line.
struct Line {
    item: TreeItem,
    space: Space,
    utilization: f64,
    var: f64,
    pgs: i64,
}

struct Report<'a> {
    map: &'a OsdMap,
    lines: Vec<Line>,
    strays: Vec<Line>,
    total: StoreStatfs,
    average: f64,
    min_var: f64,
    max_var: f64,
    deviation: f64,
}

fn reweight_of(map: &OsdMap, item: i32) -> f64 {
    if item < 0 {
        -1.0
    } else {
        f64::from(map.weight(item)) / f64::from(maps::osdmap::WEIGHT_IN)
    }
}

fn crush_weight(item: &TreeItem) -> f64 {
    f64::from(item.weight) / 65536.0
}

impl<'a> Report<'a> {
    fn new(
        map: &'a OsdMap,
        pgs: &PgMap,
        wanted: impl Fn(OsdId) -> bool,
        with_buckets: bool,
    ) -> Report<'a> {
        let space_of = |osd: OsdId| pgs.osd_stat.get(&osd).map(|stat| Space::of(&stat.statfs));
        let space_of_item = |item: i32| {
            let mut sum = Space::default();
            let osds = if item >= 0 { vec![item] } else { map.crush.devices_under(item) };
            let unique: BTreeSet<OsdId> = osds.into_iter().filter(|osd| wanted(*osd)).collect();
            unique.into_iter().filter_map(space_of).for_each(|space| sum.add(&space));
            sum
        };
        let mut all_in = Space::default();
        let mut total = StoreStatfs::default();
        for osd in map.osds().filter(|osd| wanted(*osd)) {
            if let Some(stat) = pgs.osd_stat.get(&osd) {
                total.add(&stat.statfs);
                if map.weight(osd) != 0 {
                    all_in.add(&Space::of(&stat.statfs));
                }
            }
        }
        let average = all_in.utilization();
        let line = |item: TreeItem| {
            let space = space_of_item(item.id);
            let utilization = space.utilization();
            let var = if average != 0.0 { utilization / average } else { 1.0 };
            let pgs = if item.id >= 0 { i64::from(pgs.num_pg_of(item.id).acting) } else { 0 };
            Line { item, space, utilization, var, pgs }
        };
        let tree = map.crush.tree(false);
        let placed: BTreeSet<i32> = tree.iter().map(|item| item.id).collect();
        let has_wanted = |item: i32| {
            if item >= 0 {
                wanted(item)
            } else {
                map.crush.devices_under(item).into_iter().any(&wanted)
            }
        };
        let shown = |item: &TreeItem| {
            has_wanted(item.id) && (with_buckets || item.id >= 0)
        };
        let lines: Vec<Line> = tree.into_iter().filter(shown).map(line).collect();
        let stray = |osd: OsdId| TreeItem {
            id: osd,
            parent: 0,
            depth: 0,
            weight: 0,
            children: Vec::new(),
        };
        let strays: Vec<Line> = map
            .osds()
            .filter(|osd| !placed.contains(osd) && wanted(*osd))
            .map(|osd| line(stray(osd)))
            .collect();
        let mut report = Report {
            map,
            lines,
            strays,
            total,
            average,
            min_var: -1.0,
            max_var: -1.0,
            deviation: 0.0,
        };
        report.sum_up();
        report
    }

    fn sum_up(&mut self) {
        let (mut squares, mut weights) = (0.0, 0.0);
        for line in self.lines.iter().chain(&self.strays).filter(|line| line.item.id >= 0) {
            let weight = reweight_of(self.map, line.item.id);
            if weight <= 0.0 {
                continue;
            }
            if self.min_var < 0.0 || line.var < self.min_var {
                self.min_var = line.var;
            }
            self.max_var = self.max_var.max(line.var);
            squares += weight * (line.utilization - self.average).powi(2);
            weights += weight;
        }
        self.deviation = if weights > 0.0 { (squares / weights).sqrt() } else { 0.0 };
    }

    fn status(&self, osd: OsdId) -> &'static str {
        if self.map.is_up(osd) {
            "up"
        } else if self.map.is_destroyed(osd) {
            "destroyed"
        } else {
            "down"
        }
    }

    fn dump_line(&self, f: &mut Formatter, line: &Line) {
        let (crush, id) = (&self.map.crush, line.item.id);
        f.object("item", |f| {
            f.dump_int("id", id);
            if let Some(class) = crush.class_of(id) {
                f.dump_string("device_class", class);
            }
            if id < 0 {
                f.dump_string("name", crush.name_of(id).unwrap_or_default());
                f.dump_string("type", crush.type_name_of(id).unwrap_or_default());
                f.dump_int("type_id", crush.bucket(id).map_or(0, |b| i32::from(b.kind)));
            } else {
                f.dump_string("name", format!("osd.{id}"));
                f.dump_string("type", crush.type_name_of(id).unwrap_or("osd"));
                f.dump_int("type_id", 0);
                f.dump_float("crush_weight", crush_weight(&line.item));
                f.dump_unsigned("depth", line.item.depth as u64);
            }
            if line.item.parent < 0 {
                f.object("pool_weights", |_| {});
            }
            f.dump_float("reweight", reweight_of(self.map, id));
            let space = &line.space;
            f.dump_unsigned("kb", space.kb);
            f.dump_unsigned("kb_used", space.used);
            f.dump_unsigned("kb_used_data", space.data);
            f.dump_unsigned("kb_used_omap", space.omap);
            f.dump_unsigned("kb_used_meta", space.meta);
            f.dump_unsigned("kb_avail", space.avail);
            f.dump_float("utilization", line.utilization);
            f.dump_float("var", line.var);
            f.dump_int("pgs", line.pgs);
            if id < 0 {
                f.array("children", |f| {
                    line.item.children.iter().for_each(|child| f.dump_int("child", *child));
                });
            } else {
                f.dump_string("status", self.status(id));
            }
        });
    }

    fn dump(&self, f: &mut Formatter) {
        f.object("df", |f| {
            f.array("nodes", |f| self.lines.iter().for_each(|line| self.dump_line(f, line)));
            f.array("stray", |f| self.strays.iter().for_each(|line| self.dump_line(f, line)));
            f.object("summary", |f| {
                let total = Space::of(&self.total);
                f.dump_unsigned("total_kb", total.kb);
                f.dump_unsigned("total_kb_used", total.used);
                f.dump_unsigned("total_kb_used_data", total.data);
                f.dump_unsigned("total_kb_used_omap", total.omap);
                f.dump_unsigned("total_kb_used_meta", total.meta);
                f.dump_unsigned("total_kb_avail", total.avail);
                f.dump_float("average_utilization", self.average);
                f.dump_float("min_var", self.min_var);
                f.dump_float("max_var", self.max_var);
                f.dump_float("dev", self.deviation);
            });
        });
    }

    fn table(&self, is_tree: bool) -> String {
        let mut table = TextTable::new();
        for (heading, heading_align) in [
            ("ID", Align::Left),
            ("CLASS", Align::Left),
            ("WEIGHT", Align::Left),
            ("REWEIGHT", Align::Left),
            ("SIZE", Align::Left),
            ("RAW USE", Align::Left),
            ("DATA", Align::Left),
            ("OMAP", Align::Left),
            ("META", Align::Left),
            ("AVAIL", Align::Left),
            ("%USE", Align::Left),
            ("VAR", Align::Left),
            ("PGS", Align::Left),
            ("STATUS", Align::Left),
        ] {
            table.define_column(heading, heading_align, Align::Right);
        }
        if is_tree {
            table.define_column("TYPE NAME", Align::Left, Align::Left);
        }
        for line in self.lines.iter().chain(&self.strays) {
            let (id, space) = (line.item.id, &line.space);
            let bytes = |kb: u64| format_bytes(kb << 10);
            let mut row = vec![
                id.to_string(),
                self.map.crush.class_of(id).unwrap_or_default().to_owned(),
                weight_text(crush_weight(&line.item)),
                weight_text(reweight_of(self.map, id)),
                bytes(space.kb),
                bytes(space.used),
                bytes(space.data),
                bytes(space.omap),
                bytes(space.meta),
                bytes(space.avail),
                low_precision(line.utilization),
                low_precision(line.var),
                if id < 0 { "-".to_owned() } else { line.pgs.to_string() },
                if id < 0 { String::new() } else { self.status(id).to_owned() },
            ];
            if is_tree {
                row.push(self.name(&line.item));
            }
            table.row(row);
        }
        let total = &self.total;
        let positive = |n: i64| format_bytes(u64::try_from(n).unwrap_or(0));
        table.row([
            String::new(),
            String::new(),
            String::new(),
            "TOTAL".to_owned(),
            format_bytes(total.total),
            format_bytes(total.used_raw()),
            positive(total.allocated),
            positive(total.omap_allocated),
            positive(total.internal_metadata),
            format_bytes(total.available),
            low_precision(self.average),
        ]);
        format!(
            "{table}MIN/MAX VAR: {}/{}  STDDEV: {}\n",
            low_precision(self.min_var),
            low_precision(self.max_var),
            low_precision(self.deviation)
        )
    }

    fn name(&self, item: &TreeItem) -> String {
        let crush = &self.map.crush;
        let indent = "    ".repeat(item.depth);
        if item.id < 0 {
            let kind = crush.type_name_of(item.id).unwrap_or_default();
            format!("{indent}{kind} {}", crush.name_of(item.id).unwrap_or_default())
        } else {
            format!("{indent}osd.{}", item.id)
        }
    }
}

/// A weight: five digits, `0` for none, `-` for what has none.
fn weight_text(weight: f64) -> String {
    if weight < -0.01 {
        "-".to_owned()
    } else if weight < 0.000_001 {
        "0".to_owned()
    } else {
        format!("{weight:.5}")
    }
}

/// Two digits, `0` for next to nothing, `-` for what is not known.
fn low_precision(value: f64) -> String {
    if value < -0.01 {
        "-".to_owned()
    } else if value < 0.001 {
        "0".to_owned()
    } else {
        format!("{value:.2}")
    }
}

/// Which OSDs are shown.
fn filter(map: &OsdMap, by: &str, text: &str) -> Result<Option<BTreeSet<OsdId>>, CommandReply> {
    if text.is_empty() {
        return Ok(None);
    }
    let missing = |what: &str| {
        CommandReply::error(EINVAL, format!("specified {what} '{text}' does not exist"))
    };
    if by == "class" {
        map.crush.class_id(text).ok_or_else(|| missing("class"))?;
        return Ok(Some(map.crush.devices_of_class(text).into_iter().collect()));
    }
    if let Some(item) = map.crush.id_of(text) {
        let osds = if item >= 0 { vec![item] } else { map.crush.devices_under(item) };
        return Ok(Some(osds.into_iter().collect()));
    }
    let pool = map.lookup_pool(text).and_then(|id| map.pool(id));
    let pool = pool.ok_or_else(|| missing("name"))?;
    let osds = map.crush.rule_weights(i32::from(pool.crush_rule)).into_keys();
    Ok(Some(osds.collect()))
}

/// Answers `osd df`.
pub(super) fn run(mgr: &Mgr, map: &CommandMap) -> CommandReply {
    let text = |key: &str| map.opt_string(key).ok().flatten().unwrap_or_default();
    let osdmap = mgr.osdmaps.current();
    let wanted = match filter(&osdmap, &text("filter_by"), &text("filter")) {
        Ok(wanted) => wanted,
        Err(reply) => return reply,
    };
    let is_tree = text("output_method") == "tree";
    let cluster = mgr.cluster.borrow();
    let shows = |osd: OsdId| wanted.as_ref().is_none_or(|osds| osds.contains(&osd));
    let report = Report::new(&osdmap, &cluster.pg_map, shows, is_tree);
    if map.format().is_plain() {
        return CommandReply::data(report.table(is_tree));
    }
    let mut f = Formatter::new(map.format());
    report.dump(&mut f);
    CommandReply::data(format!("{}\n", f.finish()))
}
