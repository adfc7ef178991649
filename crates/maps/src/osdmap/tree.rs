//! `osd tree`, `osd crush tree` and what they share with `osd df`.

use std::collections::{BTreeMap, BTreeSet};

use command::{Align, Formatter, TextTable};
use crush::{CrushMap, DEFAULT_CHOOSE_ARGS, TreeItem};
use types::OsdId;

use super::OsdMap;
use super::dump::fraction;

/// Which OSDs a tree shows; those that any set field names, all when none is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TreeFilter {
    /// Up ones.
    pub up: bool,
    /// Down ones.
    pub down: bool,
    /// In ones.
    pub within: bool,
    /// Out ones.
    pub out: bool,
    /// Destroyed ones.
    pub destroyed: bool,
}

impl TreeFilter {
    fn is_empty(self) -> bool {
        self == TreeFilter::default()
    }

    /// Whether an OSD is shown.
    pub fn shows(self, map: &OsdMap, osd: OsdId) -> bool {
        self.is_empty()
            || (self.up && map.is_up(osd))
            || (self.down && map.is_down(osd))
            || (self.within && map.is_in(osd))
            || (self.out && map.is_out(osd))
            || (self.destroyed && map.is_destroyed(osd))
    }
}

/// A weight with five decimals, `0` and `-` for none.
pub(crate) fn weight_text(weight: f64) -> String {
    match weight {
        w if w < -0.01 => "-".to_owned(),
        w if w < 0.000_001 => "0".to_owned(),
        w => format!("{w:.5}"),
    }
}

/// `    host a` at its depth.
pub(crate) fn type_and_name(crush: &CrushMap, item: &TreeItem) -> String {
    let indent = "    ".repeat(item.depth);
    match item.id {
        osd @ 0.. => format!("{indent}osd.{osd}"),
        id => {
            let kind = crush.type_name_of(id).unwrap_or_default();
            format!("{indent}{kind} {}", crush.name_of(id).unwrap_or_default())
        }
    }
}

/// An item that stands in no tree.
pub(crate) fn stray(osd: OsdId) -> TreeItem {
    TreeItem { id: osd, parent: 0, depth: 0, weight: 0, children: Vec::new() }
}

/// The members that every tree dump has of an item.
pub(crate) fn dump_item(
    f: &mut Formatter,
    crush: &CrushMap,
    pool_names: &BTreeMap<i64, String>,
    item: &TreeItem,
) {
    f.dump_int("id", item.id);
    if let Some(class) = crush.class_of(item.id) {
        f.dump_string("device_class", class);
    }
    if item.id < 0 {
        f.dump_string("name", crush.name_of(item.id).unwrap_or_default());
        f.dump_string("type", crush.type_name_of(item.id).unwrap_or_default());
        f.dump_int("type_id", crush.bucket(item.id).map_or(0, |b| b.kind));
    } else {
        f.dump_stream("name", format_args!("osd.{}", item.id));
        f.dump_string("type", crush.types.get(&0).map_or("", String::as_str));
        f.dump_int("type_id", 0);
        f.dump_float("crush_weight", fraction(item.weight));
        f.dump_unsigned("depth", item.depth as u64);
    }
    if item.parent < 0 {
        f.object("pool_weights", |f| {
            for (id, args) in &crush.choose_args {
                let Some(weights) = set_weights(crush, args, item) else { continue };
                f.array(&weight_set_name(*id, pool_names), |f| {
                    weights.iter().for_each(|w| f.dump_float("weight", fraction(*w)));
                });
            }
        });
    }
}

/// What a weight set is called: by its pool, or `(compat)`.
pub fn weight_set_name(id: i64, pool_names: &BTreeMap<i64, String>) -> String {
    match id {
        DEFAULT_CHOOSE_ARGS => "(compat)".to_owned(),
        id => pool_names.get(&id).cloned().unwrap_or_else(|| id.to_string()),
    }
}

/// An item's weights, by position, in a weight set.
fn set_weights(crush: &CrushMap, args: &crush::ChooseArgs, item: &TreeItem) -> Option<Vec<u32>> {
    let arg = args.get(&((-1 - item.parent) as u32)).filter(|a| !a.weight_set.is_empty())?;
    let position = crush.bucket(item.parent)?.position(item.id)?;
    Some(arg.weight_set.iter().map(|set| set.get(position).copied().unwrap_or(0)).collect())
}

pub(crate) fn dump_children(f: &mut Formatter, item: &TreeItem) {
    if item.id < 0 {
        f.array("children", |f| item.children.iter().for_each(|id| f.dump_int("child", *id)));
    }
}

/// `osd crush tree -f json`: nodes and stray.
pub fn dump_crush_tree(
    f: &mut Formatter,
    crush: &CrushMap,
    pool_names: &BTreeMap<i64, String>,
    show_shadow: bool,
) {
    f.array("nodes", |f| {
        for item in crush.tree(show_shadow) {
            f.object("item", |f| {
                dump_item(f, crush, pool_names, &item);
                dump_children(f, &item);
            });
        }
    });
    f.array("stray", |_| {});
}

/// `osd crush tree`, with a column for each weight set.
pub fn crush_tree(
    crush: &CrushMap,
    pool_names: &BTreeMap<i64, String>,
    show_shadow: bool,
) -> String {
    let mut table = TextTable::new();
    for heading in ["ID", "CLASS", "WEIGHT"] {
        table.define_column(heading, Align::Left, Align::Right);
    }
    for id in crush.choose_args.keys() {
        table.define_column(&weight_set_name(*id, pool_names), Align::Left, Align::Right);
    }
    table.define_column("TYPE NAME", Align::Left, Align::Left);
    for item in crush.tree(show_shadow) {
        let mut row = vec![
            item.id.to_string(),
            crush.class_of(item.id).unwrap_or_default().to_owned(),
            weight_text(fraction(item.weight)),
        ];
        for args in crush.choose_args.values() {
            let weights = set_weights(crush, args, &item).filter(|_| item.parent < 0);
            let first = weights.and_then(|w| w.first().copied());
            row.push(first.map_or(String::new(), |w| weight_text(fraction(w))));
        }
        row.push(type_and_name(crush, &item));
        table.row(row);
    }
    table.to_string()
}

impl OsdMap {
    /// `up`, `down` or `destroyed`.
    pub fn status_name(&self, osd: OsdId) -> &'static str {
        if self.is_up(osd) {
            "up"
        } else if self.is_destroyed(osd) {
            "destroyed"
        } else {
            "down"
        }
    }

    /// The items below `root` (all roots if none) that `shows` names, with the buckets above
    /// them; all buckets when `all_buckets`.
    pub(crate) fn tree_items(
        &self,
        root: Option<i32>,
        all_buckets: bool,
        shows: impl Fn(OsdId) -> bool,
    ) -> Vec<TreeItem> {
        let wanted = |id: i32| match id {
            osd @ 0.. => shows(osd),
            _ if all_buckets => true,
            bucket => self.crush.subtree(bucket).into_iter().any(|item| item >= 0 && shows(item)),
        };
        let roots = root.map_or_else(|| self.crush.roots(false), |root| vec![root]);
        self.crush.tree_filtered(&roots, wanted)
    }

    /// OSDs that exist and stand in no tree.
    fn strays(&self, touched: &BTreeSet<i32>, filter: TreeFilter) -> Vec<OsdId> {
        self.osds().filter(|osd| !touched.contains(osd) && filter.shows(self, *osd)).collect()
    }

    /// `osd tree -f json`: nodes, and stray ones unless `root` is given.
    pub fn dump_tree(&self, f: &mut Formatter, root: Option<i32>, filter: TreeFilter) {
        let items = self.tree_items(root, filter.is_empty(), |osd| filter.shows(self, osd));
        let touched: BTreeSet<i32> = items.iter().map(|item| item.id).collect();
        let dump = |f: &mut Formatter, item: &TreeItem| {
            f.object("item", |f| {
                dump_item(f, &self.crush, &self.pool_names, item);
                if item.id >= 0 {
                    f.dump_unsigned("exists", u32::from(self.exists(item.id)));
                    f.dump_string("status", self.status_name(item.id));
                    f.dump_float("reweight", fraction(self.weight(item.id)));
                    f.dump_float("primary_affinity", fraction(self.primary_affinity(item.id)));
                }
                dump_children(f, item);
            });
        };
        f.array("nodes", |f| items.iter().for_each(|item| dump(f, item)));
        if root.is_none() {
            let strays = self.strays(&touched, filter);
            f.array("stray", |f| strays.into_iter().for_each(|osd| dump(f, &stray(osd))));
        }
    }

    /// `osd tree`.
    pub fn tree(&self, root: Option<i32>, filter: TreeFilter) -> String {
        let mut items = self.tree_items(root, filter.is_empty(), |osd| filter.shows(self, osd));
        let touched: BTreeSet<i32> = items.iter().map(|item| item.id).collect();
        if root.is_none() {
            items.extend(self.strays(&touched, filter).into_iter().map(stray));
        }
        let mut table = TextTable::new();
        for heading in ["ID", "CLASS", "WEIGHT"] {
            table.define_column(heading, Align::Left, Align::Right);
        }
        table.define_column("TYPE NAME", Align::Left, Align::Left);
        for heading in ["STATUS", "REWEIGHT", "PRI-AFF"] {
            table.define_column(heading, Align::Left, Align::Right);
        }
        for item in items {
            let mut row = vec![
                item.id.to_string(),
                self.crush.class_of(item.id).unwrap_or_default().to_owned(),
                weight_text(fraction(item.weight)),
                type_and_name(&self.crush, &item),
            ];
            if item.id >= 0 {
                if self.exists(item.id) {
                    row.push(self.status_name(item.id).to_owned());
                    row.push(weight_text(fraction(self.weight(item.id))));
                    row.push(weight_text(fraction(self.primary_affinity(item.id))));
                } else {
                    row.extend(["DNE".to_owned(), "0".to_owned(), String::new()]);
                }
            }
            table.row(row);
        }
        table.to_string()
    }
}
