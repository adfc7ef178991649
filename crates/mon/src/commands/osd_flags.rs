//! `osd set`, `osd unset` and their like: flags of the cluster, of OSDs, of CRUSH nodes and of
//! device classes.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use maps::osdmap::{osd_state, osdmap_flags};
use types::{Errno, OsdId};

use super::cmd::{Cmd, CmdResult, Refusal, fail, say};
use crate::core::MonCore;

impl MonCore {
    pub(crate) fn cmd_osd_flags(&mut self, cmd: &Cmd) -> CmdResult {
        match cmd.prefix.as_str() {
            "osd pause" | "osd unpause" => self.set_flag(
                osdmap_flags::PAUSERD | osdmap_flags::PAUSEWR,
                "pauserd,pausewr",
                cmd.prefix == "osd pause",
            ),
            "osd set" | "osd unset" => {
                let key = cmd.string("key")?;
                let (bits, name) = match key.as_str() {
                    "pause" => (osdmap_flags::PAUSERD | osdmap_flags::PAUSEWR, "pauserd,pausewr"),
                    // Fullness follows from the OSDs.
                    "full" => {
                        return fail(Errno::EINVAL, "unrecognized flag 'full'");
                    }
                    key => match osdmap_flags::NAMES.iter().find(|(_, name)| *name == key) {
                        Some((bit, name)) => (*bit, *name),
                        None => return fail(Errno::EINVAL, format!("unrecognized flag '{key}'")),
                    },
                };
                self.set_flag(bits, name, cmd.prefix == "osd set")
            }
            "osd set-group" | "osd unset-group" => {
                let mut bits = 0;
                for name in cmd.string("flags")?.split(',') {
                    bits |= group_flag(name)?;
                }
                self.set_group(cmd, "who", bits, cmd.prefix == "osd set-group")
            }
            prefix => {
                let set = prefix.starts_with("osd add-");
                let name = prefix.trim_start_matches("osd add-").trim_start_matches("osd rm-");
                let bits = group_flag(name)?;
                self.set_group(cmd, "ids", bits, set)
            }
        }
    }

    fn set_flag(&mut self, bits: u32, name: &str, set: bool) -> CmdResult {
        if set {
            self.set_osdmap_flags(bits, 0);
        } else {
            self.set_osdmap_flags(0, bits);
        }
        say(format!("{name} is {}", if set { "set" } else { "unset" }))
    }

    fn set_group(&mut self, cmd: &Cmd, key: &str, bits: u32, set: bool) -> CmdResult {
        let map = self.next_map();
        // A target that is one but has nothing to change is no error; none at all is.
        let mut named = false;
        let mut words = String::new();
        let (mut osds, mut nodes, mut classes) =
            (BTreeSet::<OsdId>::new(), BTreeSet::new(), BTreeSet::new());
        for who in cmd.map.strings(key)? {
            if matches!(who.as_str(), "any" | "all" | "*") {
                named = true;
                osds.extend(map.osds().filter(|osd| set || map.state(*osd) & bits != 0));
                break;
            }
            let digits = who.strip_prefix("osd.").unwrap_or(&who);
            // Ids end at 0xffff: what is above is no OSD (`parse_osd_id`).
            if let Ok(osd) = digits.parse::<u16>().map(OsdId::from) {
                named = true;
                if map.exists(osd) {
                    osds.insert(osd);
                } else {
                    let _ = write!(words, "osd.{osd} does not exist. ");
                }
            } else if let Some(id) = map.crush.id_of(&who) {
                nodes.insert(id);
            } else if let Some(class) = map.crush.class_id(&who) {
                classes.insert(class);
            } else {
                let _ = write!(
                    words,
                    "unable to parse osd id or crush node or device class: \"{who}\". "
                );
            }
        }
        if !named && osds.is_empty() && nodes.is_empty() && classes.is_empty() {
            return fail(Errno::EINVAL, words);
        }
        let change = |old: u32| if set { old | bits } else { old & !bits };
        for osd in osds {
            let old = map.state(osd);
            if change(old) != old {
                self.set_osd_state(osd, change(old));
            }
        }
        for id in nodes {
            let old = map.crush_node_flags.get(&id).copied().unwrap_or(0);
            self.inc().new_crush_node_flags.insert(id, change(old));
        }
        for class in classes {
            let old = map.device_class_flags.get(&class).copied().unwrap_or(0);
            self.inc().new_device_class_flags.insert(class, change(old));
        }
        say(words)
    }
}

fn group_flag(name: &str) -> Result<u32, Refusal> {
    Ok(match name {
        "noup" => osd_state::NOUP,
        "nodown" => osd_state::NODOWN,
        "noin" => osd_state::NOIN,
        "noout" => osd_state::NOOUT,
        _ => {
            return fail(
                Errno::EINVAL,
                format!("unrecognized flag '{name}', must be one of {{noup,nodown,noin,noout}}"),
            );
        }
    })
}
