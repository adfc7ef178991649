//! `mgr ...`.

use std::collections::BTreeMap;

use command::Formatter;
use maps::MgrMap;
use maps::release::PACIFIC;
use types::Errno;

use super::cmd::{Cmd, CmdResult, done, fail, refuse, say, unhandled};
use crate::core::MonCore;

impl MonCore {
    pub(crate) fn cmd_mgr(&mut self, cmd: &Cmd) -> CmdResult {
        let map = self.mgr.published.clone();
        match cmd.prefix.as_str() {
            "mgr stat" => Ok(cmd.structured(|f| {
                f.object("stat", |f| {
                    f.dump_unsigned("epoch", map.epoch);
                    f.dump_bool("available", map.available);
                    f.dump_string("active_name", &map.active_name);
                    f.dump_unsigned("num_standby", map.standbys.len() as u64);
                });
            })),
            "mgr dump" => {
                let map = match cmd.map.opt_int("epoch")? {
                    Some(epoch) if epoch > 0 => {
                        self.mgrmap_of_epoch(epoch as u32).map_err(|errno| {
                            refuse(errno, format!("there is no map for epoch {epoch}"))
                        })?
                    }
                    _ => map,
                };
                Ok(cmd.structured(|f| f.object("mgrmap", |f| map.dump(f))))
            }
            "mgr services" => Ok(cmd.structured(|f| {
                f.object("services", |f| {
                    map.services.iter().for_each(|(name, url)| f.dump_string(name, url));
                });
            })),
            "mgr module ls" => Ok(cmd.structured(|f| dump_modules(f, &map))),
            "mgr module enable" => {
                let module = cmd.string("module")?;
                if map.always_on(u32::from(PACIFIC)).contains(&module) {
                    return say(format!("module '{module}' is already enabled (always-on)"));
                }
                if map.modules.contains(&module) {
                    return say(format!("module '{module}' is already enabled"));
                }
                let force = cmd.map.opt_string("force")?.is_some_and(|f| f == "--force");
                if !force && !map.available_modules.iter().any(|m| m.name == module) {
                    return fail(
                        Errno::ENOENT,
                        format!(
                            "all mgr daemons do not support module '{module}', pass --force to force enablement"
                        ),
                    );
                }
                self.mgr_change(|map| {
                    map.modules.insert(module);
                });
                done()
            }
            "mgr module disable" => {
                let module = cmd.string("module")?;
                if map.always_on(u32::from(PACIFIC)).contains(&module) {
                    return fail(
                        Errno::EINVAL,
                        format!("module '{module}' cannot be disabled (always-on)"),
                    );
                }
                if !map.modules.contains(&module) {
                    return say(format!("module '{module}' is already disabled"));
                }
                self.mgr_change(|map| {
                    map.modules.remove(&module);
                });
                done()
            }
            "mgr fail" => {
                let who = match cmd.map.opt_string("who")? {
                    Some(who) => who,
                    None if map.active_gid != 0 => map.active_name.clone(),
                    None => return say("Currently no active mgr"),
                };
                if self.fail_mgr(&who) {
                    return done();
                }
                say(format!("Daemon not found '{who}', already failed?"))
            }
            "mgr metadata" => match cmd.map.opt_string("who")? {
                Some(who) => {
                    if !map.contains_name(&who) {
                        return fail(Errno::ENOENT, format!("mgr.{who} does not exist"));
                    }
                    let facts = self.mgr.metadata.get(&who).cloned().unwrap_or_default();
                    Ok(cmd.structured(|f| dump_facts(f, &who, &facts)))
                }
                None => Ok(cmd.structured(|f| {
                    f.array("mgr_metadata", |f| {
                        for name in map.all_names() {
                            let facts = self.mgr.metadata.get(&name).cloned().unwrap_or_default();
                            dump_facts(f, &name, &facts);
                        }
                    });
                })),
            },
            "mgr versions" => {
                let counts = self.mgr_counts("ceph_version");
                Ok(cmd.structured(|f| super::status::dump_counts(f, "versions", &counts)))
            }
            "mgr count-metadata" => {
                let property = cmd.string("property")?;
                let counts = self.mgr_counts(&property);
                Ok(cmd.structured(|f| super::status::dump_counts(f, &property, &counts)))
            }
            _ => unhandled(),
        }
    }

    /// Managers by the value of one fact about them.
    pub(crate) fn mgr_counts(&self, property: &str) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for name in self.mgr.published.all_names() {
            let value = self.mgr.metadata.get(&name).and_then(|facts| facts.get(property));
            *counts.entry(value.cloned().unwrap_or_else(|| "unknown".into())).or_default() += 1;
        }
        counts
    }
}

fn dump_facts(f: &mut Formatter, name: &str, facts: &BTreeMap<String, String>) {
    f.object("mgr", |f| {
        f.dump_string("name", name);
        facts.iter().for_each(|(key, value)| f.dump_string(key, value));
    });
}

fn dump_modules(f: &mut Formatter, map: &MgrMap) {
    let always = map.always_on(u32::from(PACIFIC));
    f.object("modules", |f| {
        f.array("always_on_modules", |f| {
            always.iter().for_each(|name| f.dump_string("module", name));
        });
        f.array("enabled_modules", |f| {
            let enabled = map.modules.iter().filter(|m| !always.contains(*m));
            enabled.for_each(|name| f.dump_string("module", name));
        });
        f.array("disabled_modules", |f| {
            let disabled = map
                .available_modules
                .iter()
                .filter(|m| !always.contains(&m.name) && !map.modules.contains(&m.name));
            disabled.for_each(|m| m.dump(f));
        });
    });
}
