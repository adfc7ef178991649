//! `osd crush class ...`, tunables, weight-sets.

use std::collections::BTreeMap;

use command::CommandReply;
use crush::{DEFAULT_CHOOSE_ARGS, Tunables, fixed_weight};
use types::{Errno, OsdId};

use super::cmd::{Cmd, CmdResult, Refusal, done, fail, refuse, say};
use super::crush::crush_refusal;
use super::osd_query::parse_osd_id;
use crate::core::MonCore;

impl MonCore {
    pub(crate) fn cmd_crush_class(&mut self, cmd: &Cmd) -> CmdResult {
        match cmd.prefix.as_str() {
            "osd crush set-device-class" => self.set_device_class(cmd),
            "osd crush rm-device-class" => self.rm_device_class(cmd),
            "osd crush class create" => {
                let class = cmd.string("class")?;
                let mut crush = self.crush_to_change();
                if crush.class_id(&class).is_some() {
                    return say(format!("class '{class}' already exists"));
                }
                let id = crush.add_class(&class).map_err(crush_refusal)?;
                self.set_crush(&crush);
                say(format!("created class {class} with id {id} to crush map"))
            }
            "osd crush class rm" => self.class_rm(cmd),
            "osd crush class rename" => {
                let (from, to) = (cmd.string("srcname")?, cmd.string("dstname")?);
                let mut crush = self.crush_to_change();
                if crush.class_id(&from).is_none() && crush.class_id(&to).is_some() {
                    return say(format!("already renamed to '{to}'"));
                }
                crush.rename_class(&from, &to).map_err(crush_refusal)?;
                self.set_crush(&crush);
                say(format!("rename class '{from}' to '{to}'"))
            }
            "osd crush class ls" => {
                let map = self.osdmap();
                Ok(cmd.structured(|f| {
                    f.array("crush_classes", |f| {
                        map.crush.class_names.values().for_each(|n| f.dump_string("class", n));
                    });
                }))
            }
            "osd crush class ls-osd" => {
                let class = cmd.string("class")?;
                let map = self.osdmap();
                let osds = map.crush.devices_of_class(&class);
                Ok(cmd.output(
                    |f| f.array("osds", |f| osds.iter().for_each(|o| f.dump_int("osd", *o))),
                    || osds.iter().map(|o| format!("{o}\n")).collect(),
                ))
            }
            "osd crush get-device-class" => self.get_device_class(cmd),
            "osd crush tunables" => {
                let profile = cmd.string("profile")?;
                let mut crush = self.crush_to_change();
                // Profiles named for a release leave how straws are computed as it is.
                let straw_calc_version = crush.tunables.straw_calc_version;
                let of_release = |tunables| Tunables { straw_calc_version, ..tunables };
                crush.tunables = match profile.as_str() {
                    "legacy" => Tunables::argonaut(),
                    "argonaut" => of_release(Tunables::argonaut()),
                    "bobtail" => of_release(Tunables::bobtail()),
                    "firefly" => of_release(Tunables::firefly()),
                    "hammer" => of_release(Tunables::hammer()),
                    "jewel" => of_release(Tunables::jewel()),
                    _ => Tunables::fresh(),
                };
                self.check_clients_follow(&crush)?;
                self.set_crush(&crush);
                say(format!("adjusted tunables profile to {profile}"))
            }
            "osd crush set-tunable" => {
                let name = cmd.string("tunable")?;
                let value = cmd.map.int("value")?;
                let Ok(straw) = u8::try_from(value) else {
                    return fail(Errno::EINVAL, "value must be 0 or 1; got something else");
                };
                if straw > 1 {
                    return fail(Errno::EINVAL, format!("value must be 0 or 1; got {value}"));
                }
                let mut crush = self.crush_to_change();
                crush.tunables.straw_calc_version = straw;
                self.set_crush(&crush);
                say(format!("adjusted tunable {name} to {value}"))
            }
            "osd crush weight-set create-compat" => {
                let mut crush = self.crush_to_change();
                if crush.choose_args.contains_key(&DEFAULT_CHOOSE_ARGS) {
                    return fail(Errno::EPERM, "compat weight-set already exists")
                        .or_else(|_: Refusal| done());
                }
                crush.create_choose_args(DEFAULT_CHOOSE_ARGS, 1);
                self.set_crush(&crush);
                done()
            }
            "osd crush weight-set create" => {
                let (id, _, pool) = self.weight_set_pool(cmd)?;
                let required = self.next_map().require_min_compat_client;
                if required != 0 && required < 12 {
                    let required = maps::release::release_name(required);
                    let text = format!(
                        "require_min_compat_client {required} < luminous, which is required for per-pool weight-sets. Try 'ceph osd set-require-min-compat-client luminous' before using the new interface"
                    );
                    return fail(Errno::EPERM, text);
                }
                let positional = cmd.string("mode")? == "positional";
                let mut crush = self.crush_to_change();
                if crush.choose_args.contains_key(&id) {
                    return done();
                }
                let positions = if positional { usize::from(pool.size) } else { 1 };
                crush.create_choose_args(id, positions);
                self.set_crush(&crush);
                done()
            }
            "osd crush weight-set rm" => {
                let (id, _, _) = self.weight_set_pool(cmd)?;
                self.weight_set_rm(id)
            }
            "osd crush weight-set rm-compat" => self.weight_set_rm(DEFAULT_CHOOSE_ARGS),
            "osd crush weight-set reweight" | "osd crush weight-set reweight-compat" => {
                self.weight_set_reweight(cmd)
            }
            _ => self.cmd_crush_rule(cmd),
        }
    }

    /// The OSDs that `ids` names, of those that exist; words about the others.
    fn class_targets(&mut self, cmd: &Cmd) -> Result<(Vec<OsdId>, String), Refusal> {
        let map = self.next_map();
        let (mut osds, mut words) = (Vec::new(), String::new());
        for id in cmd.map.strings("ids")? {
            if matches!(id.as_str(), "any" | "all" | "*") {
                osds = map.osds().collect();
                break;
            }
            let osd = parse_osd_id(&id)?;
            if map.exists(osd) {
                osds.push(osd);
            } else {
                words.push_str(&format!("osd.{osd} does not exist. "));
            }
        }
        Ok((osds, words))
    }

    fn set_device_class(&mut self, cmd: &Cmd) -> CmdResult {
        let class = cmd.string("class")?;
        let (osds, mut words) = self.class_targets(cmd)?;
        let mut crush = self.crush_to_change();
        let mut updated = Vec::new();
        for osd in osds {
            match crush.class_of(osd) {
                Some(old) if old == class => {
                    words.push_str(&format!("osd.{osd} already set to class {class}. "));
                    words.push_str(&format!(
                        "set-device-class item id {osd} name 'osd.{osd}' device_class '{class}': no change. "
                    ));
                    continue;
                }
                Some(old) => {
                    return fail(
                        Errno::EBUSY,
                        format!(
                            "osd.{osd} has already bound to class '{old}', can not reset class to '{class}'; use 'ceph osd crush rm-device-class <id>' to remove old class first"
                        ),
                    );
                }
                None => {}
            }
            if crush.name_of(osd).is_none() {
                // Known to the map before it has a place: a new OSD says its class first.
                crush.names.insert(osd, format!("osd.{osd}"));
                crush.max_devices = crush.max_devices.max(osd + 1);
            }
            crush.set_device_class(osd, &class).map_err(crush_refusal)?;
            updated.push(osd.to_string());
        }
        if !updated.is_empty() {
            self.set_crush(&crush);
        }
        words.push_str(&format!("set osd(s) {} to class '{class}'", updated.join(",")));
        say(words)
    }

    fn rm_device_class(&mut self, cmd: &Cmd) -> CmdResult {
        let (osds, mut words) = self.class_targets(cmd)?;
        let mut crush = self.crush_to_change();
        let mut updated = Vec::new();
        for osd in osds {
            if crush.remove_device_class(osd) {
                updated.push(osd.to_string());
            } else {
                words.push_str(&format!("osd.{osd} belongs to no class, "));
            }
        }
        if !updated.is_empty() {
            self.set_crush(&crush);
        }
        words.push_str(&format!("done removing class of osd(s): {}", updated.join(",")));
        say(words)
    }

    fn class_rm(&mut self, cmd: &Cmd) -> CmdResult {
        let class = cmd.string("class")?;
        let mut crush = self.crush_to_change();
        let Some(id) = crush.class_id(&class) else { return done() };
        let shadows: Vec<i32> =
            crush.class_buckets.values().filter_map(|by| by.get(&id)).copied().collect();
        let takes = |rule: &&crush::Rule| {
            let mut steps = rule.steps.iter();
            steps.any(|step| step.op == crush::op::TAKE && shadows.contains(&step.arg1))
        };
        let taken: Vec<String> = crush
            .rules
            .iter()
            .enumerate()
            .filter(|(_, rule)| rule.as_ref().is_some_and(|rule| takes(&rule)))
            .filter_map(|(id, _)| crush.rule_names.get(&i32::try_from(id).ok()?))
            .map(|name| format!("'{name}'"))
            .collect();
        if !taken.is_empty() {
            return fail(
                Errno::EBUSY,
                format!("class '{class}' still referenced by crush_rule(s): {}", taken.join(",")),
            );
        }
        let map = self.next_map();
        let profiles = map.erasure_code_profiles.iter();
        let named: Vec<&str> = profiles
            .filter(|(_, profile)| profile.get("crush-device-class") == Some(&class))
            .map(|(name, _)| name.as_str())
            .collect();
        if !named.is_empty() {
            let named = named.join(",");
            let text =
                format!("class '{class}' is still referenced by erasure-code-profile(s): {named}");
            return fail(Errno::EBUSY, text);
        }
        for osd in crush.devices_of_class(&class) {
            crush.remove_device_class(osd);
        }
        crush.class_names.remove(&id);
        crush.rebuild_shadow_trees();
        self.set_crush(&crush);
        say(format!("removed class {class} with id {id} from crush map"))
    }

    fn get_device_class(&mut self, cmd: &Cmd) -> CmdResult {
        let (osds, _) = self.class_targets(cmd)?;
        let map = self.osdmap();
        let classes: BTreeMap<OsdId, String> = osds
            .into_iter()
            .map(|osd| (osd, map.crush.class_of(osd).unwrap_or_default().to_string()))
            .collect();
        Ok(cmd.output(
            |f| {
                f.array("osd_device_classes", |f| {
                    for (osd, class) in &classes {
                        f.object("osd_device_class", |f| {
                            f.dump_int("osd", *osd);
                            f.dump_string("device_class", class);
                        });
                    }
                });
            },
            || match classes.len() {
                1 => classes.values().map(|class| format!("{class}\n")).collect(),
                _ => classes.iter().map(|(osd, class)| format!("osd.{osd} {class}\n")).collect(),
            },
        ))
    }

    fn weight_set_rm(&mut self, id: i64) -> CmdResult {
        let mut crush = self.crush_to_change();
        if crush.choose_args.remove(&id).is_some() {
            self.set_crush(&crush);
        }
        done()
    }

    /// The pool whose weights are meant; these commands have their own words for one missing.
    fn weight_set_pool(&mut self, cmd: &Cmd) -> Result<(i64, String, maps::PgPool), Refusal> {
        let name = cmd.string("pool")?;
        self.pool_arg(cmd).map_err(|refusal| match refusal.errno {
            Errno::ENOENT => refuse(Errno::ENOENT, format!("pool '{name}' not found")),
            _ => refusal,
        })
    }

    fn weight_set_reweight(&mut self, cmd: &Cmd) -> CmdResult {
        let (set, positions) = if cmd.prefix.ends_with("compat") {
            (DEFAULT_CHOOSE_ARGS, 1)
        } else {
            let (id, _, _) = self.weight_set_pool(cmd)?;
            let crush = self.crush_to_change();
            let positions = crush
                .choose_args
                .get(&id)
                .and_then(|args| args.values().map(|arg| arg.weight_set.len()).max())
                .unwrap_or(0);
            (id, positions)
        };
        let mut crush = self.crush_to_change();
        if !crush.choose_args.contains_key(&set) {
            let what = if set < 0 { "compat weight-set" } else { "weight-set for that pool" };
            return fail(Errno::ENOENT, format!("no {what} exists"));
        }
        let item = cmd.string("item")?;
        let Some(id) = crush.id_of(&item) else {
            return fail(Errno::ENOENT, format!("item '{item}' does not exist"));
        };
        let weights = cmd.map.floats("weight")?;
        if weights.len() != positions.max(1) {
            return fail(
                Errno::EINVAL,
                format!("must specify exactly {} weight values", positions.max(1)),
            );
        }
        let fixed: Option<Vec<u32>> = weights.iter().map(|w| fixed_weight(*w)).collect();
        let fixed = fixed.ok_or_else(|| refuse(Errno::EINVAL, "weight is out of range"))?;
        crush.choose_args_adjust(set, id, &fixed);
        self.set_crush(&crush);
        Ok(CommandReply::default())
    }
}
