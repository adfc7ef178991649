//! `osd crush rule ...` and what shows the CRUSH map.

use command::{Align, CommandReply, Formatter, TextTable};
use crush::{CrushMap, DEFAULT_CHOOSE_ARGS, Rule, Tunables, op};
use maps::OsdMap;
use types::Errno;

use super::cmd::{Cmd, CmdResult, done, fail, say};
use super::crush::crush_refusal;
use crate::core::MonCore;

impl MonCore {
    pub(crate) fn cmd_crush_rule(&mut self, cmd: &Cmd) -> CmdResult {
        let map = self.osdmap();
        match cmd.prefix.as_str() {
            "osd crush rule ls" | "osd crush rule list" => {
                let names: Vec<&String> = map.crush.rule_names.values().collect();
                Ok(name_list(cmd, "rules", &names))
            }
            "osd crush rule ls-by-class" => {
                let class = cmd.string("class")?;
                let Some(id) = map.crush.class_id(&class) else {
                    return fail(
                        Errno::ENOENT,
                        format!("failed to get rules by class '{class}'"),
                    );
                };
                let shadows: Vec<i32> = map
                    .crush
                    .class_buckets
                    .values()
                    .filter_map(|by| by.get(&id))
                    .copied()
                    .collect();
                let names: Vec<&String> = map
                    .crush
                    .rule_names
                    .iter()
                    .filter(|(rule, _)| {
                        map.crush.rule(**rule).is_some_and(|rule| {
                            rule.steps
                                .iter()
                                .any(|s| s.op == op::TAKE && shadows.contains(&s.arg1))
                        })
                    })
                    .map(|(_, name)| name)
                    .collect();
                Ok(name_list(cmd, "rules", &names))
            }
            "osd crush rule dump" => match cmd.map.opt_string("name")? {
                Some(name) => {
                    let Some(id) = map.crush.rule_id(&name) else {
                        return fail(Errno::ENOENT, format!("unknown crush rule '{name}'"));
                    };
                    Ok(cmd.structured(|f| dump_rule(f, &map.crush, id)))
                }
                None => Ok(cmd.structured(|f| dump_rules(f, &map.crush))),
            },
            "osd crush rule create-simple" | "osd crush rule create-replicated" => {
                self.rule_create(cmd)
            }
            "osd crush rule create-erasure" => {
                let name = cmd.string("name")?;
                let profile = cmd.map.opt_string("profile")?.unwrap_or_default();
                let profile = if profile.is_empty() {
                    "default".to_string()
                } else {
                    profile
                };
                let next = self.next_map();
                if next.crush.rule_id(&name).is_some() {
                    return say(format!("rule {name} already exists"));
                }
                let Some(profile) = next.erasure_code_profiles.get(&profile).cloned() else {
                    return fail(
                        Errno::ENOENT,
                        format!("unknown erasure code profile '{profile}'"),
                    );
                };
                let id = self.create_erasure_rule(&name, &profile)?;
                say(format!("created rule {name} at {id}"))
            }
            "osd crush rule rm" => {
                let name = cmd.string("name")?;
                let mut crush = self.crush_to_change();
                let Some(id) = crush.rule_id(&name) else {
                    return say(format!("rule {name} does not exist"));
                };
                let next = self.next_map();
                if next
                    .pools
                    .values()
                    .any(|pool| i32::from(pool.crush_rule) == id)
                {
                    return fail(Errno::EBUSY, format!("crush ruleset {name} {id} is in use"));
                }
                crush.remove_rule(id).map_err(crush_refusal)?;
                self.set_crush(&crush);
                done()
            }
            "osd crush rule rename" => {
                let (from, to) = (cmd.string("srcname")?, cmd.string("dstname")?);
                let mut crush = self.crush_to_change();
                match (crush.rule_id(&from), crush.rule_id(&to)) {
                    (None, Some(_)) => return say(format!("already renamed to '{to}'")),
                    (None, None) => {
                        let text = format!("source rule name '{from}' does not exist");
                        return fail(Errno::ENOENT, text);
                    }
                    _ => {}
                }
                crush.rename_rule(&from, &to).map_err(crush_refusal)?;
                self.set_crush(&crush);
                done()
            }
            "osd crush dump" => Ok(cmd.structured(|f| {
                f.object("crush_map", |f| dump_map_fields(f, &map.crush));
            })),
            "osd crush show-tunables" => Ok(cmd.structured(|f| {
                f.object("crush_map_tunables", |f| dump_tunables(f, &map.crush));
            })),
            "osd crush get-tunable" => {
                let value = map.crush.tunables.straw_calc_version;
                Ok(cmd.output(
                    |f| {
                        f.object("tunable", |f| f.dump_unsigned("straw_calc_version", value));
                    },
                    || format!("{value}\n"),
                ))
            }
            "osd crush tree" => {
                let shadow = cmd
                    .map
                    .opt_string("shadow")?
                    .is_some_and(|s| s == "--show-shadow");
                Ok(cmd.output(|f| dump_tree(f, &map, shadow), || tree_text(&map, shadow)))
            }
            "osd crush ls" => {
                let node = cmd.string("node")?;
                let Some(id) = map.crush.id_of(&node) else {
                    return fail(Errno::ENOENT, format!("node '{node}' does not exist"));
                };
                let items: Vec<i32> = match map.crush.bucket(id) {
                    Some(bucket) => bucket.items.clone(),
                    None => vec![id],
                };
                let names: Vec<&str> = items
                    .iter()
                    .filter_map(|item| map.crush.name_of(*item))
                    .collect();
                Ok(cmd.output(
                    |f| {
                        f.array("items", |f| {
                            names.iter().for_each(|n| f.dump_string("item", n))
                        })
                    },
                    || names.iter().map(|n| format!("{n}\n")).collect(),
                ))
            }
            "osd crush weight-set ls" => {
                let names: Vec<String> = map
                    .crush
                    .choose_args
                    .keys()
                    .map(|id| set_name(&map, *id))
                    .collect();
                Ok(cmd.output(
                    |f| {
                        f.array("weight_sets", |f| {
                            names.iter().for_each(|n| f.dump_string("pool", n));
                        });
                    },
                    || names.iter().map(|n| format!("{n}\n")).collect(),
                ))
            }
            "osd crush weight-set dump" => Ok(
                cmd.structured(|f| f.object("choose_args", |f| dump_choose_args(f, &map.crush)))
            ),
            _ => done(),
        }
    }

    fn rule_create(&mut self, cmd: &Cmd) -> CmdResult {
        let name = cmd.string("name")?;
        let (root, kind) = (cmd.string("root")?, cmd.string("type")?);
        let class = cmd.map.opt_string("class")?.unwrap_or_default();
        let indep = cmd
            .map
            .opt_string("mode")?
            .is_some_and(|mode| mode == "indep");
        let mut crush = self.crush_to_change();
        if crush.rule_id(&name).is_some() {
            return say(format!("rule {name} already exists"));
        }
        let rule_kind = if indep {
            crush::RULE_ERASURE
        } else {
            crush::RULE_REPLICATED
        };
        let domain = if kind == "osd" { "" } else { &kind };
        crush
            .add_simple_rule(&name, &root, domain, &class, !indep, rule_kind)
            .map_err(crush_refusal)?;
        self.set_crush(&crush);
        done()
    }
}

fn set_name(map: &OsdMap, id: i64) -> String {
    if id == DEFAULT_CHOOSE_ARGS {
        return "(compat)".to_string();
    }
    map.pool_names
        .get(&id)
        .cloned()
        .unwrap_or_else(|| id.to_string())
}

fn name_list(cmd: &Cmd, section: &str, names: &[&String]) -> CommandReply {
    cmd.output(
        |f| {
            f.array(section, |f| {
                names.iter().for_each(|n| f.dump_string("name", n))
            })
        },
        || names.iter().map(|n| format!("{n}\n")).collect(),
    )
}

fn dump_rules(f: &mut Formatter, map: &CrushMap) {
    f.array("rules", |f| {
        for id in 0..map.rules.len() as i32 {
            if map.rule(id).is_some() {
                dump_rule(f, map, id);
            }
        }
    });
}

fn dump_rule(f: &mut Formatter, map: &CrushMap, id: i32) {
    let Some(rule) = map.rule(id) else { return };
    f.object("rule", |f| {
        f.dump_int("rule_id", id);
        if let Some(name) = map.rule_names.get(&id) {
            f.dump_string("rule_name", name);
        }
        f.dump_unsigned("ruleset", rule.ruleset);
        f.dump_unsigned("type", rule.kind);
        f.dump_unsigned("min_size", rule.min_size);
        f.dump_unsigned("max_size", rule.max_size);
        f.array("steps", |f| dump_steps(f, map, rule));
    });
}

fn dump_steps(f: &mut Formatter, map: &CrushMap, rule: &Rule) {
    for step in &rule.steps {
        f.object("step", |f| {
            let choose = |f: &mut Formatter, name: &str| {
                f.dump_string("op", name);
                f.dump_int("num", step.arg1);
                f.dump_string("type", map.types.get(&step.arg2).map_or("", String::as_str));
            };
            let number = |f: &mut Formatter, name: &str| {
                f.dump_string("op", name);
                f.dump_int("num", step.arg1);
            };
            match step.op {
                op::NOOP => f.dump_string("op", "noop"),
                op::TAKE => {
                    f.dump_string("op", "take");
                    f.dump_int("item", step.arg1);
                    f.dump_string("item_name", map.name_of(step.arg1).unwrap_or_default());
                }
                op::EMIT => f.dump_string("op", "emit"),
                op::CHOOSE_FIRSTN => choose(f, "choose_firstn"),
                op::CHOOSE_INDEP => choose(f, "choose_indep"),
                op::CHOOSELEAF_FIRSTN => choose(f, "chooseleaf_firstn"),
                op::CHOOSELEAF_INDEP => choose(f, "chooseleaf_indep"),
                op::SET_CHOOSE_TRIES => number(f, "set_choose_tries"),
                op::SET_CHOOSELEAF_TRIES => number(f, "set_chooseleaf_tries"),
                other => {
                    f.dump_unsigned("opcode", other);
                    f.dump_int("arg1", step.arg1);
                    f.dump_int("arg2", step.arg2);
                }
            }
        });
    }
}

/// Members of the whole map.
pub(crate) fn dump_map_fields(f: &mut Formatter, map: &CrushMap) {
    f.array("devices", |f| {
        for id in 0..map.max_devices {
            f.object("device", |f| {
                f.dump_int("id", id);
                match map.name_of(id) {
                    Some(name) => f.dump_string("name", name),
                    None => f.dump_string("name", format!("device{id}")),
                }
                if let Some(class) = map.class_of(id) {
                    f.dump_string("class", class);
                }
            });
        }
    });
    f.array("types", |f| {
        for (id, name) in &map.types {
            f.object("type", |f| {
                f.dump_int("type_id", *id);
                f.dump_string("name", name);
            });
        }
    });
    f.array("buckets", |f| {
        for b in map.each_bucket() {
            f.object("bucket", |f| {
                f.dump_int("id", b.id);
                if let Some(name) = map.name_of(b.id) {
                    f.dump_string("name", name);
                }
                f.dump_unsigned("type_id", b.kind);
                if let Some(kind) = map.types.get(&b.kind.into()) {
                    f.dump_string("type_name", kind);
                }
                f.dump_unsigned("weight", b.weight);
                f.dump_string("alg", b.algorithm().name());
                f.dump_string("hash", if b.hash == 0 { "rjenkins1" } else { "unknown" });
                f.array("items", |f| {
                    for (position, (item, weight)) in b.weighted_items().into_iter().enumerate() {
                        f.object("item", |f| {
                            f.dump_int("id", item);
                            f.dump_unsigned("weight", weight);
                            f.dump_unsigned("pos", position as u64);
                        });
                    }
                });
            });
        }
    });
    dump_rules(f, map);
    f.object("tunables", |f| dump_tunables(f, map));
    f.object("choose_args", |f| dump_choose_args(f, map));
}

fn dump_choose_args(f: &mut Formatter, map: &CrushMap) {
    for (set, args) in &map.choose_args {
        f.array(&set.to_string(), |f| {
            for (slot, arg) in args {
                f.object("choose_args", |f| {
                    f.dump_int("bucket_id", -1 - i64::from(*slot));
                    if !arg.weight_set.is_empty() {
                        f.array("weight_set", |f| {
                            for weights in &arg.weight_set {
                                f.array("weights", |f| {
                                    for w in weights {
                                        f.dump_float("weight", f64::from(*w) / 65536.0);
                                    }
                                });
                            }
                        });
                    }
                    if !arg.ids.is_empty() {
                        f.array("ids", |f| {
                            arg.ids.iter().for_each(|id| f.dump_int("id", *id))
                        });
                    }
                });
            }
        });
    }
}

fn dump_tunables(f: &mut Formatter, map: &CrushMap) {
    let t = &map.tunables;
    f.dump_unsigned("choose_local_tries", t.choose_local_tries);
    f.dump_unsigned("choose_local_fallback_tries", t.choose_local_fallback_tries);
    f.dump_unsigned("choose_total_tries", t.choose_total_tries);
    f.dump_unsigned("chooseleaf_descend_once", t.chooseleaf_descend_once);
    f.dump_unsigned("chooseleaf_vary_r", t.chooseleaf_vary_r);
    f.dump_unsigned("chooseleaf_stable", t.chooseleaf_stable);
    f.dump_unsigned("straw_calc_version", t.straw_calc_version);
    f.dump_unsigned("allowed_bucket_algs", t.allowed_bucket_algs);
    let profiles = [
        ("jewel", Tunables::jewel()),
        ("hammer", Tunables::hammer()),
        ("firefly", Tunables::firefly()),
        ("bobtail", Tunables::bobtail()),
        ("argonaut", Tunables::argonaut()),
    ];
    let profile = profiles
        .iter()
        .find(|(_, p)| t.same_behaviour(p))
        .map_or("unknown", |(name, _)| *name);
    f.dump_string("profile", profile);
    f.dump_int(
        "optimal_tunables",
        i32::from(t.same_behaviour(&Tunables::jewel())),
    );
    f.dump_int(
        "legacy_tunables",
        i32::from(t.same_behaviour(&Tunables::argonaut())),
    );
    let any_step = |ops: &[u32]| {
        map.rules
            .iter()
            .flatten()
            .flat_map(|rule| &rule.steps)
            .any(|s| ops.contains(&s.op))
    };
    let v2 = any_step(&[
        op::CHOOSE_INDEP,
        op::CHOOSELEAF_INDEP,
        op::SET_CHOOSE_TRIES,
        op::SET_CHOOSELEAF_TRIES,
    ]);
    let v3 = any_step(&[op::SET_CHOOSELEAF_VARY_R]);
    let v4 = map
        .each_bucket()
        .any(|b| b.algorithm() == crush::Algorithm::Straw2);
    let v5 = any_step(&[op::SET_CHOOSELEAF_STABLE]);
    let needs = t.choose_local_tries != 2
        || t.choose_local_fallback_tries != 5
        || t.choose_total_tries != 19;
    let needs2 = t.chooseleaf_descend_once != 0;
    let needs3 = t.chooseleaf_vary_r != 0;
    let needs5 = t.chooseleaf_stable != 0;
    let version = if needs5 || v5 {
        "jewel"
    } else if v4 {
        "hammer"
    } else if needs3 || v3 {
        "firefly"
    } else if needs2 || needs {
        "bobtail"
    } else {
        "argonaut"
    };
    f.dump_string("minimum_required_version", version);
    f.dump_int("require_feature_tunables", i32::from(needs));
    f.dump_int("require_feature_tunables2", i32::from(needs2));
    f.dump_int("has_v2_rules", i32::from(v2));
    f.dump_int("require_feature_tunables3", i32::from(needs3));
    f.dump_int("has_v3_rules", i32::from(v3));
    f.dump_int("has_v4_buckets", i32::from(v4));
    f.dump_int("require_feature_tunables5", i32::from(needs5));
    f.dump_int("has_v5_rules", i32::from(v5));
}

/// A weight as trees show it.
pub(crate) fn weight_text(weight: u32) -> String {
    let value = f64::from(weight) / 65536.0;
    if value < 0.000_01 {
        "0".to_string()
    } else {
        format!("{value:.5}")
    }
}

/// Members of a line of a tree that do not depend on the OSD map: id, class, name, type, weight.
pub(crate) fn dump_tree_item(f: &mut Formatter, map: &OsdMap, item: &crush::TreeItem) {
    let crush = &map.crush;
    f.dump_int("id", item.id);
    if let (true, Some(class)) = (item.id >= 0, crush.class_of(item.id)) {
        f.dump_string("device_class", class);
    }
    f.dump_string("name", item_name(crush, item.id));
    let kind = crush.bucket(item.id).map_or(0, |b| i32::from(b.kind));
    f.dump_string("type", crush.types.get(&kind).map_or("", String::as_str));
    f.dump_int("type_id", kind);
    if item.id >= 0 {
        f.dump_float("crush_weight", f64::from(item.weight) / 65536.0);
        f.dump_unsigned("depth", item.depth as u64);
    }
    if item.parent < 0 {
        f.object("pool_weights", |f| {
            for (set, args) in &crush.choose_args {
                let position = crush.bucket(item.parent).and_then(|b| b.position(item.id));
                let (Some(arg), Some(position)) =
                    (args.get(&((-1 - item.parent) as u32)), position)
                else {
                    continue;
                };
                f.array(&set_name(map, *set), |f| {
                    for weights in &arg.weight_set {
                        let w = weights.get(position).copied().unwrap_or(0);
                        f.dump_float("weight", f64::from(w) / 65536.0);
                    }
                });
            }
        });
    }
}

/// The name of an item, made up for a device without one.
pub(crate) fn item_name(crush: &CrushMap, id: i32) -> String {
    crush
        .name_of(id)
        .map_or_else(|| format!("osd.{id}"), str::to_string)
}

fn dump_tree(f: &mut Formatter, map: &OsdMap, shadow: bool) {
    f.object("crush_tree", |f| {
        let mut seen = std::collections::BTreeSet::new();
        f.array("nodes", |f| {
            for item in map.crush.tree(shadow) {
                if !seen.insert(item.id) {
                    continue;
                }
                f.object("item", |f| {
                    dump_tree_item(f, map, &item);
                    if item.id < 0 {
                        f.array("children", |f| {
                            item.children.iter().for_each(|id| f.dump_int("child", *id));
                        });
                    }
                });
            }
        });
        f.array("stray", |_| {});
    });
}

fn tree_text(map: &OsdMap, shadow: bool) -> String {
    let crush = &map.crush;
    let mut t = TextTable::new();
    t.define_column("ID", Align::Left, Align::Right);
    t.define_column("CLASS", Align::Left, Align::Right);
    t.define_column("WEIGHT", Align::Left, Align::Right);
    for set in crush.choose_args.keys() {
        t.define_column(&set_name(map, *set), Align::Left, Align::Right);
    }
    t.define_column("TYPE NAME", Align::Left, Align::Left);
    for item in crush.tree(shadow) {
        let class = match item.id >= 0 {
            true => crush.class_of(item.id).unwrap_or_default().to_string(),
            false => {
                let (_, class) = crush.split_id_class(item.id);
                class
                    .and_then(|id| crush.class_names.get(&id))
                    .cloned()
                    .unwrap_or_default()
            }
        };
        let mut row = vec![item.id.to_string(), class, weight_text(item.weight)];
        for args in crush.choose_args.values() {
            let position = crush.bucket(item.parent).and_then(|b| b.position(item.id));
            let weight = (item.parent < 0)
                .then(|| args.get(&((-1 - item.parent) as u32)))
                .flatten()
                .zip(position)
                .and_then(|(arg, p)| arg.weight_set.first().and_then(|w| w.get(p)).copied());
            row.push(weight.map(weight_text).unwrap_or_default());
        }
        row.push(tree_name(crush, &item));
        t.row(row);
    }
    t.to_string()
}

/// Indented type and name; devices have their name alone.
pub(crate) fn tree_name(crush: &CrushMap, item: &crush::TreeItem) -> String {
    let indent = "    ".repeat(item.depth);
    let name = item_name(crush, item.id);
    if item.id >= 0 {
        return format!("{indent}{name}");
    }
    let kind = crush.bucket(item.id).map_or(0, |b| i32::from(b.kind));
    format!(
        "{indent}{} {name}",
        crush.types.get(&kind).map_or("", String::as_str)
    )
}
