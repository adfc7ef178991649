//! `mgr ...`.

use std::collections::BTreeMap;

use command::Formatter;
use maps::mgrmap::{MgrMap, ModuleInfo};
use maps::release::PACIFIC;
use types::Errno;

use super::cmd::{Cmd, CmdResult, done, fail, refuse, say};
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
                Ok(cmd.structured(|f| f.object("mgrmap", |f| dump(f, &map))))
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
            _ => done(),
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

fn dump(f: &mut Formatter, map: &MgrMap) {
    f.dump_unsigned("epoch", map.epoch);
    f.dump_unsigned("active_gid", map.active_gid);
    f.dump_string("active_name", &map.active_name);
    crate::dump::addrvec(f, "active_addrs", &map.active_addrs);
    f.dump_stream("active_addr", map.active_addrs.legacy_text());
    f.dump_stream("active_change", map.active_change);
    f.dump_unsigned("active_mgr_features", map.active_mgr_features);
    f.dump_bool("available", map.available);
    f.array("standbys", |f| {
        for standby in map.standbys.values() {
            f.object("standby", |f| {
                f.dump_unsigned("gid", standby.gid);
                f.dump_string("name", &standby.name);
                f.dump_unsigned("mgr_features", standby.mgr_features);
                f.array("available_modules", |f| {
                    standby.available_modules.iter().for_each(|m| dump_module(f, m));
                });
            });
        }
    });
    f.array("modules", |f| map.modules.iter().for_each(|m| f.dump_string("module", m)));
    f.array("available_modules", |f| {
        map.available_modules.iter().for_each(|m| dump_module(f, m));
    });
    f.object("services", |f| {
        map.services.iter().for_each(|(name, url)| f.dump_string(name, url));
    });
    f.object("always_on_modules", |f| {
        for (release, names) in &map.always_on_modules {
            f.array(maps::release::release_name(*release as u8), |f| {
                names.iter().for_each(|name| f.dump_string("module", name));
            });
        }
    });
    f.dump_unsigned("last_failure_osd_epoch", map.last_failure_osd_epoch);
    f.array("active_clients", |f| {
        for (i, addrs) in map.clients.iter().enumerate() {
            f.object("client", |f| {
                if let Some(name) = map.client_names.as_ref().and_then(|names| names.get(i)) {
                    f.dump_string("name", name);
                }
                crate::dump::addrvec_fields(f, addrs);
            });
        }
    });
}

fn dump_module(f: &mut Formatter, m: &ModuleInfo) {
    f.object("module", |f| {
        f.dump_string("name", &m.name);
        f.dump_bool("can_run", m.can_run);
        f.dump_string("error_string", &m.error_string);
        f.object("module_options", |f| {
            for (name, o) in &m.module_options {
                f.object(name, |f| {
                    f.dump_string("name", &o.name);
                    f.dump_string("type", option_kind(o.kind));
                    f.dump_string(
                        "level",
                        ["basic", "advanced", "dev"][usize::from(o.level.min(2))],
                    );
                    f.dump_unsigned("flags", o.flags);
                    f.dump_string("default_value", &o.default_value);
                    f.dump_string("min", &o.min);
                    f.dump_string("max", &o.max);
                    f.array("enum_allowed", |f| {
                        o.enum_allowed.iter().for_each(|w| f.dump_string("allowed", w));
                    });
                    f.dump_string("desc", &o.desc);
                    f.dump_string("long_desc", &o.long_desc);
                    f.array("tags", |f| o.tags.iter().for_each(|t| f.dump_string("tag", t)));
                    f.array("see_also", |f| {
                        o.see_also.iter().for_each(|s| f.dump_string("option", s));
                    });
                });
            }
        });
    });
}

/// Names of option kinds, by their number on the wire.
fn option_kind(kind: u8) -> &'static str {
    const NAMES: [&str; 11] = [
        "uint",
        "int",
        "str",
        "float",
        "bool",
        "addr",
        "addrvec",
        "uuid",
        "size",
        "secs",
        "millisecs",
    ];
    NAMES.get(usize::from(kind)).copied().unwrap_or("str")
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
            disabled.for_each(|m| dump_module(f, m));
        });
    });
}
