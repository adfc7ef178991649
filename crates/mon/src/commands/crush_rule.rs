//! `osd crush rule ...` and what shows the CRUSH map.

use command::CommandReply;
use crush::op;
use maps::crush_dump::{dump_choose_args, dump_crush, dump_rule, dump_rules, dump_tunables};
use maps::osdmap::{crush_tree, dump_crush_tree, weight_set_name};
use types::Errno;

use super::cmd::{Cmd, CmdResult, done, fail, say, unhandled};
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
                    return fail(Errno::ENOENT, format!("failed to get rules by class '{class}'"));
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
                            rule.steps.iter().any(|s| s.op == op::TAKE && shadows.contains(&s.arg1))
                        })
                    })
                    .map(|(_, name)| name)
                    .collect();
                Ok(name_list(cmd, "rules", &names))
            }
            "osd crush rule dump" => match cmd.map.opt_string("name")? {
                Some(name) => {
                    let found = map.crush.rule_id(&name);
                    let Some((id, rule)) = found.and_then(|id| Some((id, map.crush.rule(id)?)))
                    else {
                        return fail(Errno::ENOENT, format!("unknown crush rule '{name}'"));
                    };
                    Ok(cmd.structured(|f| dump_rule(f, &map.crush, id, rule)))
                }
                None => Ok(cmd.structured(|f| f.array("rules", |f| dump_rules(f, &map.crush)))),
            },
            "osd crush rule create-simple" | "osd crush rule create-replicated" => {
                self.rule_create(cmd)
            }
            "osd crush rule create-erasure" => {
                let name = cmd.string("name")?;
                let profile = cmd.map.opt_string("profile")?.unwrap_or_default();
                let profile = if profile.is_empty() { "default".to_string() } else { profile };
                let next = self.next_map();
                if next.crush.rule_id(&name).is_some() {
                    return say(format!("rule {name} already exists"));
                }
                let Some(profile) = self.erasure_profile(&profile)? else {
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
                if next.pools.values().any(|pool| i32::from(pool.crush_rule) == id) {
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
                f.object("crush_map", |f| dump_crush(f, &map.crush));
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
                let shadow = cmd.map.opt_string("shadow")?.is_some_and(|s| s == "--show-shadow");
                let (crush, pools) = (&map.crush, &map.pool_names);
                Ok(cmd.output(
                    |f| f.object("crush_tree", |f| dump_crush_tree(f, crush, pools, shadow)),
                    || crush_tree(crush, pools, shadow),
                ))
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
                let names: Vec<&str> =
                    items.iter().filter_map(|item| map.crush.name_of(*item)).collect();
                Ok(cmd.output(
                    |f| f.array("items", |f| names.iter().for_each(|n| f.dump_string("item", n))),
                    || names.iter().map(|n| format!("{n}\n")).collect(),
                ))
            }
            "osd crush weight-set ls" => {
                let names: Vec<String> = map
                    .crush
                    .choose_args
                    .keys()
                    .map(|id| weight_set_name(*id, &map.pool_names))
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
            "osd crush weight-set dump" => Ok(cmd.structured(|f| dump_choose_args(f, &map.crush))),
            _ => unhandled(),
        }
    }

    fn rule_create(&mut self, cmd: &Cmd) -> CmdResult {
        let name = cmd.string("name")?;
        let (root, kind) = (cmd.string("root")?, cmd.string("type")?);
        let class = cmd.map.opt_string("class")?.unwrap_or_default();
        let indep = cmd.map.opt_string("mode")?.is_some_and(|mode| mode == "indep");
        let mut crush = self.crush_to_change();
        if crush.rule_id(&name).is_some() {
            return say(format!("rule {name} already exists"));
        }
        let rule_kind = if indep { crush::RULE_ERASURE } else { crush::RULE_REPLICATED };
        let domain = if kind == "osd" { "" } else { &kind };
        crush
            .add_simple_rule(&name, &root, domain, &class, !indep, rule_kind)
            .map_err(crush_refusal)?;
        self.set_crush(&crush);
        done()
    }
}

fn name_list(cmd: &Cmd, section: &str, names: &[&String]) -> CommandReply {
    cmd.output(
        |f| f.array(section, |f| names.iter().for_each(|n| f.dump_string("name", n))),
        || names.iter().map(|n| format!("{n}\n")).collect(),
    )
}
