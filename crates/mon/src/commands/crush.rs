//! `osd crush ...`: changes to the tree and to its weights.

use std::sync::Arc;

use crush::{CrushMap, EditError, Location, fixed_weight};
use denc::Denc;
use maps::OsdMap;
use types::Errno;

use super::cmd::{Cmd, CmdResult, Refusal, done, fail, refuse, say};
use super::osd_query::parse_osd_id;
use crate::core::MonCore;
use command::{CommandReply, format_stream_float};

/// A refused change, as the user is told.
pub(crate) fn crush_refusal(error: EditError) -> Refusal {
    let errno = match &error {
        EditError::NotFound(what) if what.starts_with("device class") => Errno::EINVAL,
        EditError::NotFound(_) => Errno::ENOENT,
        EditError::Exists(_) => Errno::EEXIST,
        EditError::NotEmpty(_) => return refuse(Errno::ENOTEMPTY, "(39) Directory not empty"),
        EditError::Busy(_) => Errno::EBUSY,
        EditError::TooManyRules => Errno::ENOSPC,
        EditError::InvalidName(_)
        | EditError::BadLocation
        | EditError::BadWeight
        | EditError::WrongKind(_)
        | EditError::UnknownType(_) => Errno::EINVAL,
    };
    refuse(errno, error.to_string())
}

impl MonCore {
    /// A copy of the CRUSH map as it will be, to be changed and given to `set_crush`.
    pub(crate) fn crush_to_change(&mut self) -> CrushMap {
        (*self.next_map().crush).clone()
    }

    pub(crate) fn cmd_crush(&mut self, cmd: &Cmd) -> CmdResult {
        match cmd.prefix.as_str() {
            "osd getcrushmap" => {
                let map = self.wanted_map(cmd)?;
                let outs = map.crush_version.to_string();
                Ok(CommandReply { outs, ..CommandReply::data(self.crush_bytes(&map)) })
            }
            "osd setcrushmap" => self.set_crush_map(cmd),
            "osd crush set" if !cmd.map.contains("id") => self.set_crush_map(cmd),
            "osd crush set" | "osd crush add" => self.crush_set(cmd),
            "osd crush create-or-move" => self.crush_create_or_move(cmd),
            "osd crush add-bucket" => self.crush_add_bucket(cmd),
            "osd crush rename-bucket" => {
                let (from, to) = (cmd.string("srcname")?, cmd.string("dstname")?);
                let mut crush = self.crush_to_change();
                if crush.id_of(&from).is_none() && crush.id_of(&to).is_some() {
                    return say(format!("renamed bucket {from} into {to}"));
                }
                crush.rename_bucket(&from, &to).map_err(crush_refusal)?;
                self.set_crush(&crush);
                say(format!("renamed bucket {from} into {to}"))
            }
            "osd crush move" => self.crush_move(cmd),
            "osd crush link" => {
                let name = cmd.string("name")?;
                let place = location(cmd)?;
                let mut crush = self.crush_to_change();
                let Some(id) = crush.id_of(&name) else {
                    return fail(Errno::ENOENT, format!("item {name} does not exist"));
                };
                if crush.check_item_loc(id, &place).is_some() {
                    return say(format!(
                        "no need to move item id {id} name '{name}' to location {} in crush map",
                        place_text(&place)
                    ));
                }
                crush.link_bucket(id, &place).map_err(crush_refusal)?;
                self.set_crush(&crush);
                say(format!(
                    "linked item id {id} name '{name}' to location {} in crush map",
                    place_text(&place)
                ))
            }
            "osd crush swap-bucket" => self.crush_swap(cmd),
            "osd crush rm" | "osd crush remove" | "osd crush unlink" => self.crush_rm(cmd),
            "osd crush reweight-all" => {
                let mut crush = self.crush_to_change();
                crush.reweight();
                self.set_crush(&crush);
                say("reweighted crush hierarchy")
            }
            "osd crush reweight" => {
                let name = cmd.string("name")?;
                let weight = cmd.map.float("weight")?;
                let mut crush = self.crush_to_change();
                let Some(id) = crush.id_of(&name) else {
                    return fail(
                        Errno::ENOENT,
                        format!("device '{name}' does not appear in the crush map"),
                    );
                };
                if id < 0 {
                    return fail(
                        Errno::EINVAL,
                        format!("device '{name}' is not a leaf in the crush map"),
                    );
                }
                crush.adjust_item_weight(id, fixed(weight)?).map_err(crush_refusal)?;
                self.set_crush(&crush);
                let shown = format_stream_float(weight);
                say(format!("reweighted item id {id} name '{name}' to {shown} in crush map"))
            }
            "osd crush reweight-subtree" => {
                let name = cmd.string("name")?;
                let weight = cmd.map.float("weight")?;
                let mut crush = self.crush_to_change();
                let Some(id) = crush.id_of(&name) else {
                    return fail(
                        Errno::ENOENT,
                        format!("device '{name}' does not appear in the crush map"),
                    );
                };
                if id >= 0 {
                    return fail(
                        Errno::EINVAL,
                        format!("device '{name}' is not a bucket in the crush map"),
                    );
                }
                crush.adjust_subtree_weight(id, fixed(weight)?).map_err(crush_refusal)?;
                self.set_crush(&crush);
                let shown = format_stream_float(weight);
                say(format!("reweighted subtree id {id} name '{name}' to {shown} in crush map"))
            }
            "osd crush set-all-straw-buckets-to-straw2" => {
                let mut crush = self.crush_to_change();
                let mut changed = false;
                for slot in crush.buckets.iter_mut().flatten() {
                    if let crush::Weights::Straw { weights, .. } = &slot.weights {
                        slot.weights = crush::Weights::Straw2(weights.clone());
                        changed = true;
                    }
                }
                if changed {
                    self.check_clients_follow(&crush)?;
                    self.set_crush(&crush);
                }
                done()
            }
            _ => self.cmd_crush_class(cmd),
        }
    }

    fn set_crush_map(&mut self, cmd: &Cmd) -> CmdResult {
        let map = self.next_map();
        let crush = CrushMap::from_bytes(&cmd.input).map_err(|error| {
            let text = match error {
                denc::Error::Truncated { .. } => "End of buffer".to_string(),
                other => other.to_string(),
            };
            refuse(Errno::EINVAL, format!("Failed to parse crushmap: {text}"))
        })?;
        if let Some(prior) = cmd.map.opt_int("prior_version")? {
            let version = i64::from(map.crush_version);
            if prior == version - 1 && map.crush.to_bytes() == crush.to_bytes() {
                // Sent again by somebody who did not hear that it was done.
                return say(version.to_string());
            }
            if prior != version {
                return fail(
                    Errno::EPERM,
                    format!("prior_version {prior} != crush version {version}"),
                );
            }
        }
        if (0..).zip(&crush.rules).any(|(id, rule)| rule.as_ref().is_some_and(|r| r.ruleset != id))
        {
            let text = "crush maps with ruleset != ruleid are no longer allowed";
            return fail(Errno::EINVAL, text);
        }
        // All daemons and clients would follow it, and hang.
        if let Err(unfit) = crush.check() {
            return fail(Errno::EINVAL, format!("crushmap is refused: {unfit}"));
        }
        check_rules(&map, &crush)?;
        self.check_clients_follow(&crush)?;
        self.set_crush(&crush);
        say((map.crush_version + 1).to_string())
    }

    /// Refuses a CRUSH map that clients as old as the map allows cannot follow.
    pub(super) fn check_clients_follow(&mut self, crush: &CrushMap) -> Result<(), Refusal> {
        let mut map = (*self.next_map()).clone();
        map.crush = Arc::new(crush.clone());
        let (needed, allowed) = (map.min_compat_client(), map.require_min_compat_client);
        if allowed == 0 || needed <= allowed {
            return Ok(());
        }
        let name = maps::release::release_name;
        let (needed, allowed) = (name(needed), name(allowed));
        let text = format!(
            "new crush map requires client version {needed} but require_min_compat_client is {allowed}"
        );
        fail(Errno::EINVAL, text)
    }

    /// An OSD argument with its id and its name in the CRUSH map.
    fn crush_osd(&mut self, cmd: &Cmd) -> Result<(i32, String), Refusal> {
        let osd = match cmd.map.value("id") {
            Some(command::ArgValue::String(text)) => parse_osd_id(text)?,
            _ => self.osd_id(cmd, "id")?,
        };
        let name = format!("osd.{osd}");
        if !self.next_map().exists(osd) {
            return fail(
                Errno::ENOENT,
                format!("{name} does not exist. Create it before updating the crush map"),
            );
        }
        Ok((osd, name))
    }

    fn crush_set(&mut self, cmd: &Cmd) -> CmdResult {
        let (osd, name) = self.crush_osd(cmd)?;
        let weight = cmd.map.float("weight")?;
        let place = location(cmd)?;
        let mut crush = self.crush_to_change();
        if cmd.prefix == "osd crush set" && !crush.item_exists(osd) {
            return fail(
                Errno::ENOENT,
                format!(
                    "unable to set item id {osd} name '{name}' weight {} at location {}: does not exist",
                    format_stream_float(weight),
                    place_text(&place)
                ),
            );
        }
        let what = format!(
            "set item id {osd} name '{name}' weight {} at location {}",
            format_stream_float(weight),
            place_text(&place)
        );
        if !crush.update_item(osd, fixed(weight)?, &name, &place).map_err(crush_refusal)? {
            return say(format!("{what}: no change"));
        }
        self.set_crush(&crush);
        say(format!("{what} to crush map"))
    }

    fn crush_create_or_move(&mut self, cmd: &Cmd) -> CmdResult {
        let (osd, name) = self.crush_osd(cmd)?;
        let weight = cmd.map.float("weight")?;
        let place = location(cmd)?;
        let mut crush = self.crush_to_change();
        let changed =
            crush.create_or_move_item(osd, fixed(weight)?, &name, &place).map_err(crush_refusal)?;
        if changed {
            self.set_crush(&crush);
        }
        say(format!(
            "create-or-move updated item name '{name}' weight {} at location {} to crush map",
            format_stream_float(weight),
            place_text(&place)
        ))
    }

    fn crush_add_bucket(&mut self, cmd: &Cmd) -> CmdResult {
        let (name, kind) = (cmd.string("name")?, cmd.string("type")?);
        let place = location(cmd)?;
        let mut crush = self.crush_to_change();
        if crush.id_of(&name).is_some() {
            return say(format!("bucket '{name}' already exists"));
        }
        if crush.type_id(&kind).is_none() {
            return fail(Errno::EINVAL, format!("type '{kind}' does not exist"));
        }
        if kind == "osd" {
            return fail(Errno::EINVAL, "type 'osd' is for devices, not buckets");
        }
        let id = crush.add_named_bucket(&name, &kind).map_err(crush_refusal)?;
        let text = if place.is_empty() {
            format!("added bucket {name} type {kind} to crush map")
        } else {
            crush.move_bucket(id, &place).map_err(crush_refusal)?;
            format!("added bucket {name} type {kind} to location {}", place_text(&place))
        };
        self.set_crush(&crush);
        say(text)
    }

    fn crush_move(&mut self, cmd: &Cmd) -> CmdResult {
        let name = cmd.string("name")?;
        let place = location(cmd)?;
        let mut crush = self.crush_to_change();
        let Some(id) = crush.id_of(&name) else {
            return fail(Errno::ENOENT, format!("item {name} does not exist"));
        };
        if crush.check_item_loc(id, &place).is_some() {
            return say(format!(
                "no need to move item id {id} name '{name}' to location {} in crush map",
                place_text(&place)
            ));
        }
        if id >= 0 {
            let weight = crush.weight_of(id).unwrap_or(0);
            crush.create_or_move_item(id, weight, &name, &place).map_err(crush_refusal)?;
        } else {
            crush.move_bucket(id, &place).map_err(crush_refusal)?;
        }
        self.set_crush(&crush);
        say(format!(
            "moved item id {id} name '{name}' to location {} in crush map",
            place_text(&place)
        ))
    }

    fn crush_swap(&mut self, cmd: &Cmd) -> CmdResult {
        let (source, dest) = (cmd.string("source")?, cmd.string("dest")?);
        let mut crush = self.crush_to_change();
        let find = |name: &str, what: &str| {
            let id = crush.id_of(name).filter(|id| *id < 0);
            id.ok_or_else(|| refuse(Errno::ENOENT, format!("{what} item {name} does not exist")))
        };
        let (a, b) = (find(&source, "source")?, find(&dest, "dest")?);
        let sure = cmd.map.flag("yes_i_really_mean_it");
        if crush.parent_of(a).is_some() && !sure {
            return fail(
                Errno::EPERM,
                format!(
                    "source item {source} is not an orphan bucket; pass --yes-i-really-mean-it to proceed anyway"
                ),
            );
        }
        crush.swap_buckets(a, b).map_err(crush_refusal)?;
        self.set_crush(&crush);
        say(format!("swapped bucket of {source} to {dest}"))
    }

    fn crush_rm(&mut self, cmd: &Cmd) -> CmdResult {
        let name = cmd.string("name")?;
        let unlink = cmd.prefix == "osd crush unlink";
        let mut crush = self.crush_to_change();
        let Some(id) = crush.id_of(&name) else {
            return say(format!("device '{name}' does not appear in the crush map"));
        };
        let mut ancestor = None;
        if let Some(above) = cmd.map.opt_string("ancestor")? {
            let Some(found) = crush.id_of(&above) else {
                return fail(
                    Errno::ENOENT,
                    format!("ancestor item '{above}' does not appear in the crush map"),
                );
            };
            ancestor = Some(found);
        }
        match crush.remove_item(id, ancestor, unlink) {
            Ok(()) => {}
            Err(EditError::NotFound(_)) => {
                return say(format!("item '{name}' does not appear in that position"));
            }
            Err(other) => return Err(crush_refusal(other)),
        }
        self.set_crush(&crush);
        if !unlink {
            self.inc().new_crush_node_flags.insert(id, 0);
        }
        say(format!("removed item id {id} name '{name}' from crush map"))
    }
}

/// Each pool's rule must be there and be for pools like it, or its placement groups would be nowhere.
fn check_rules(map: &OsdMap, crush: &CrushMap) -> Result<(), Refusal> {
    for (id, pool) in &map.pools {
        let (number, size) = (pool.crush_rule, pool.size);
        let Some(rule) = crush.rule(number.into()) else {
            return fail(
                Errno::EINVAL,
                format!("pool {id} references crush_rule {number} but it is not present"),
            );
        };
        if rule.kind != pool.kind {
            return fail(Errno::EINVAL, format!("pool {id} type does not match rule {number}"));
        }
        if !(rule.min_size..=rule.max_size).contains(&size) {
            return fail(
                Errno::EINVAL,
                format!(
                    "pool {id} size {size} does not fall within rule {number} min_size {} and max_size {}",
                    rule.min_size, rule.max_size
                ),
            );
        }
    }
    Ok(())
}

/// The place that arguments like `root=default host=a` name.
fn location(cmd: &Cmd) -> Result<Location, Refusal> {
    let mut place = Location::new();
    for word in cmd.map.strings("args")? {
        match word.split_once('=') {
            Some((kind, name)) if !name.is_empty() => {
                place.insert(kind.to_string(), name.to_string());
            }
            _ => {
                return fail(
                    Errno::EINVAL,
                    format!("bad location argument '{word}', expected type=name"),
                );
            }
        }
    }
    Ok(place)
}

/// `{host=a,root=default}`.
fn place_text(place: &Location) -> String {
    let parts: Vec<String> = place.iter().map(|(kind, name)| format!("{kind}={name}")).collect();
    format!("{{{}}}", parts.join(","))
}

fn fixed(weight: f64) -> Result<u32, Refusal> {
    fixed_weight(weight).ok_or_else(|| refuse(Errno::EOVERFLOW, "weight is out of range"))
}
