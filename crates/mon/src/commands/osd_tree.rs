//! `osd tree` and `osd tree-from`.

use std::collections::BTreeSet;

use command::{Align, Formatter, TextTable};
use crush::TreeItem;
use maps::OsdMap;
use maps::osdmap::WEIGHT_IN;
use types::{Errno, OsdId};

use super::cmd::{Cmd, CmdResult, fail};
use super::crush_rule::{dump_tree_item, item_name, tree_name, weight_text};
use crate::core::MonCore;

/// Which OSDs are wanted.
#[derive(Default)]
struct Filter {
    up: bool,
    down: bool,
    in_: bool,
    out: bool,
    destroyed: bool,
}

impl Filter {
    fn is_off(&self) -> bool {
        !(self.up || self.down || self.in_ || self.out || self.destroyed)
    }

    fn wants(&self, map: &OsdMap, osd: OsdId) -> bool {
        if self.destroyed {
            return map.is_destroyed(osd);
        }
        let life = match (self.up, self.down) {
            (false, false) | (true, true) => true,
            (true, false) => map.is_up(osd),
            (false, true) => map.is_down(osd) && !map.is_destroyed(osd),
        };
        let place = match (self.in_, self.out) {
            (false, false) | (true, true) => true,
            (true, false) => map.is_in(osd),
            (false, true) => map.is_out(osd),
        };
        life && place
    }
}

impl MonCore {
    pub(crate) fn osd_tree(&mut self, cmd: &Cmd) -> CmdResult {
        let map = self.wanted_map(cmd)?;
        let mut filter = Filter::default();
        for state in cmd.map.strings("states")? {
            match state.as_str() {
                "up" => filter.up = true,
                "down" => filter.down = true,
                "in" => filter.in_ = true,
                "out" => filter.out = true,
                "destroyed" => filter.destroyed = true,
                _ => return fail(Errno::EINVAL, format!("unrecognized state '{state}'")),
            }
        }
        if filter.in_ && filter.out {
            return fail(Errno::EINVAL, "cannot specify both 'in' and 'out'");
        }
        let stands = [filter.up, filter.down, filter.destroyed];
        if stands.into_iter().filter(|asked| *asked).count() > 1 {
            let text = "can specify only one of 'up', 'down' and 'destroyed'";
            return fail(Errno::EINVAL, text);
        }
        let mut bucket = None;
        if cmd.prefix == "osd tree-from" {
            let name = cmd.string("bucket")?;
            match map.crush.id_of(&name) {
                Some(id) if id < 0 => bucket = Some(id),
                Some(id) => {
                    return fail(
                        Errno::EINVAL,
                        format!("\"{name}\" is not a bucket, it is an osd (id {id})"),
                    );
                }
                None => return fail(Errno::ENOENT, format!("bucket '{name}' does not exist")),
            }
        }
        let from = bucket.is_some();
        let (lines, stray) = lines(&map, bucket, &filter);
        Ok(cmd.output(
            |f| dump(f, &map, &lines, (!from).then_some(&stray[..])),
            || text(&map, &lines, &stray),
        ))
    }
}

/// Lines of the tree, and OSDs that are in the map but not in the tree.
fn lines(map: &OsdMap, bucket: Option<i32>, filter: &Filter) -> (Vec<TreeItem>, Vec<OsdId>) {
    let crush = &map.crush;
    let wanted: BTreeSet<i32> = match filter.is_off() {
        true => crush
            .each_bucket()
            .map(|b| b.id)
            .chain(map.osds())
            .chain(0..crush.max_devices)
            .collect(),
        false => {
            let mut wanted = BTreeSet::new();
            for osd in map.osds().filter(|osd| filter.wants(map, *osd)) {
                wanted.insert(osd);
                for b in crush.each_bucket() {
                    if crush.subtree_contains(b.id, osd) {
                        wanted.insert(b.id);
                    }
                }
            }
            wanted
        }
    };
    let roots = bucket.map_or_else(|| crush.roots(false), |id| vec![id]);
    let lines = crush.tree_filtered(&roots, |item| wanted.contains(&item));
    let mut stray = Vec::new();
    if bucket.is_none() {
        let placed: BTreeSet<i32> = lines.iter().map(|line| line.id).collect();
        stray = map
            .osds()
            .filter(|osd| !placed.contains(osd) && !crush.is_linked(*osd))
            .filter(|osd| filter.is_off() || filter.wants(map, *osd))
            .collect();
    }
    (lines, stray)
}

fn status(map: &OsdMap, osd: OsdId) -> &'static str {
    if map.is_up(osd) {
        "up"
    } else if map.is_destroyed(osd) {
        "destroyed"
    } else {
        "down"
    }
}

fn share(n: u32) -> f64 {
    f64::from(n as f32 / WEIGHT_IN as f32)
}

fn dump(f: &mut Formatter, map: &OsdMap, lines: &[TreeItem], stray: Option<&[OsdId]>) {
    let osd_fields = |f: &mut Formatter, osd: OsdId| {
        f.dump_unsigned("exists", u32::from(map.exists(osd)));
        f.dump_string("status", status(map, osd));
        f.dump_float("reweight", share(map.weight(osd)));
        f.dump_float("primary_affinity", share(map.primary_affinity(osd)));
    };
    f.object("tree", |f| {
        let mut seen = BTreeSet::new();
        f.array("nodes", |f| {
            for item in lines {
                if !seen.insert(item.id) {
                    continue;
                }
                f.object("item", |f| {
                    dump_tree_item(f, map, item);
                    if item.id < 0 {
                        f.array("children", |f| {
                            item.children.iter().for_each(|id| f.dump_int("child", *id));
                        });
                    } else {
                        osd_fields(f, item.id);
                    }
                });
            }
        });
        let Some(stray) = stray else { return };
        f.array("stray", |f| {
            for osd in stray {
                f.object("osd", |f| {
                    f.dump_int("id", *osd);
                    f.dump_string("name", format!("osd.{osd}"));
                    f.dump_string(
                        "type",
                        map.crush.types.get(&0).map_or("osd", String::as_str),
                    );
                    f.dump_int("type_id", 0);
                    f.dump_float("crush_weight", 0.0);
                    f.dump_unsigned("depth", 0u32);
                    osd_fields(f, *osd);
                });
            }
        });
    });
}

fn text(map: &OsdMap, lines: &[TreeItem], stray: &[OsdId]) -> String {
    let mut t = TextTable::new();
    t.define_column("ID", Align::Left, Align::Right);
    t.define_column("CLASS", Align::Left, Align::Right);
    t.define_column("WEIGHT", Align::Left, Align::Right);
    t.define_column("TYPE NAME", Align::Left, Align::Left);
    t.define_column("STATUS", Align::Left, Align::Right);
    t.define_column("REWEIGHT", Align::Left, Align::Right);
    t.define_column("PRI-AFF", Align::Left, Align::Right);
    let osd_cells = |osd: OsdId| -> Vec<String> {
        if !map.exists(osd) {
            return vec!["DNE".to_string(), "0".to_string(), String::new()];
        }
        vec![
            status(map, osd).to_string(),
            weight_text(map.weight(osd)),
            weight_text(map.primary_affinity(osd)),
        ]
    };
    for item in lines {
        let class = match item.id >= 0 {
            true => map.crush.class_of(item.id).unwrap_or_default().to_string(),
            false => String::new(),
        };
        let mut row = vec![
            item.id.to_string(),
            class,
            weight_text(item.weight),
            tree_name(&map.crush, item),
        ];
        if item.id >= 0 {
            row.extend(osd_cells(item.id));
        }
        t.row(row);
    }
    for osd in stray {
        let class = map.crush.class_of(*osd).unwrap_or_default().to_string();
        let mut row = vec![
            osd.to_string(),
            class,
            "0".to_string(),
            item_name(&map.crush, *osd),
        ];
        row.extend(osd_cells(*osd));
        t.row(row);
    }
    t.to_string()
}
