//! `config ...`: the central configuration (`src/mon/ConfigMonitor.cc` at v16.2).
//!
//! Settings live in the config-key store under `config/`; every change leaves a record under
//! `config-history/VERSION/`: an empty-named key with time and title, `-KEY` with the old value,
//! `+KEY` with the new one.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use bytes::Bytes;
use command::{Align, CommandReply, TextTable};
use config::{ConfFile, Kind, OptionDef, module_options, option, options};
use denc::{Denc, Reader, Writer};
use types::{Errno, UTime};

use super::cmd::{Cmd, CmdResult, Refusal, done, fail, refuse, unhandled};
use crate::config_db::{Entity, Setting, parse_who, stored_key};
use crate::core::MonCore;

const CONFIG_DIR: &str = "config/";
const HISTORY_DIR: &str = "config-history/";

/// One recorded change.
struct Change {
    version: u64,
    stamp: UTime,
    name: String,
    /// Key to (old, new) value.
    keys: BTreeMap<String, (Option<String>, Option<String>)>,
}

impl MonCore {
    pub(crate) fn cmd_config(&mut self, cmd: &Cmd) -> CmdResult {
        match cmd.prefix.as_str() {
            "config set" => self.config_set(cmd),
            "config rm" => self.config_rm(cmd),
            "config dump" => Ok(self.config_dump(cmd)),
            "config get" => self.config_get(cmd),
            "config help" => config_help(cmd),
            "config ls" => Ok(cmd.output(
                |f| {
                    f.array("options", |f| {
                        all().for_each(|o| f.dump_string("option", o.name));
                    });
                },
                || all().map(|o| format!("{}\n", o.name)).collect(),
            )),
            "config log" => self.config_log(cmd),
            "config reset" => self.config_reset(cmd),
            "config generate-minimal-conf" => Ok(self.config_minimal()),
            "config assimilate-conf" => self.config_assimilate(cmd),
            _ => unhandled(),
        }
    }

    fn config_set(&mut self, cmd: &Cmd) -> CmdResult {
        let who = cmd.string("who")?;
        let name = cmd.string("name")?;
        let value = cmd.string("value")?;
        let force = cmd.map.flag("force");
        let (name, value) = check_setting(&who, &name, &value, force)?;
        let key = stored_key(&who, &name);
        let others = self.config_db.other_keys(&key);
        if others.is_empty() && self.config_db.get(&key) == Some(value.as_str()) {
            return done();
        }
        let mut changes: Vec<_> = others.into_iter().map(|other| (other, None)).collect();
        changes.push((key, Some(value)));
        self.config_change("", &changes)?;
        done()
    }

    fn config_rm(&mut self, cmd: &Cmd) -> CmdResult {
        let who = cmd.string("who")?;
        let name = cmd.string("name")?;
        let name = option(&name).map_or(name, |o| o.name.to_string());
        if parse_who(&who).is_none() {
            return fail(Errno::EINVAL, format!("unrecognized config target '{who}'"));
        }
        let key = stored_key(&who, &name);
        let mut keys = self.config_db.other_keys(&key);
        if self.config_db.get(&key).is_some() {
            keys.push(key);
        }
        if !keys.is_empty() {
            let changes: Vec<_> = keys.into_iter().map(|key| (key, None)).collect();
            self.config_change("", &changes)?;
        }
        done()
    }

    /// Changes settings, with one record of it.
    fn config_change(
        &mut self,
        title: &str,
        changes: &[(String, Option<String>)],
    ) -> Result<(), Refusal> {
        self.config_version += 1;
        let version = self.config_version;
        let history = format!("{HISTORY_DIR}{version}/");
        let mut w = Writer::new();
        w.put(&self.now.wall);
        w.put(&title.to_string());
        self.config_key_put(&history, w.into_bytes());
        for (key, value) in changes {
            if let Some(old) = self.config_db.get(key).map(str::to_string) {
                self.config_key_put(&format!("{history}-{key}"), Bytes::from(old));
            }
            match value {
                Some(value) => {
                    let bytes = Bytes::from(value.clone());
                    self.config_key_put(&format!("{history}+{key}"), bytes.clone());
                    self.config_key_put(&format!("{CONFIG_DIR}{key}"), bytes);
                    self.config_db.insert(key, value);
                }
                None => {
                    self.config_key_remove(&format!("{CONFIG_DIR}{key}"));
                    self.config_db.remove(key);
                }
            }
        }
        crate::layout::put_u64(self.batch(), crate::layout::CONFIG, "version", version);
        self.config_changed = true;
        Ok(())
    }

    fn config_dump(&self, cmd: &Cmd) -> CommandReply {
        let settings = self.config_db.dump();
        cmd.output(
            |f| {
                f.array("config", |f| {
                    for s in &settings {
                        f.object("option", |f| {
                            f.dump_string("section", &s.section);
                            f.dump_string("name", &s.option);
                            f.dump_string("value", &s.value);
                            f.dump_string("level", level(&s.option));
                            f.dump_bool("can_update_at_runtime", updatable(&s.option));
                            f.dump_string("mask", s.mask.text());
                            if let Some((kind, name)) = &s.mask.location {
                                f.dump_string("location_type", kind);
                                f.dump_string("location_value", name);
                            }
                            if !s.mask.device_class.is_empty() {
                                f.dump_string("device_class", &s.mask.device_class);
                            }
                        });
                    }
                });
            },
            || {
                let mut table = settings_table();
                for s in &settings {
                    let who = match s.section.as_str() {
                        "global" => "global".to_string(),
                        name if name.contains('.') => format!("    {name}"),
                        kind => format!("  {kind}"),
                    };
                    table.row(setting_row(who, s));
                }
                table.to_string()
            },
        )
    }

    fn config_get(&self, cmd: &Cmd) -> CmdResult {
        let who = cmd.string("who")?;
        let entity_name = if who.contains('.') { who.clone() } else { format!("{who}.") };
        let known = entity_name
            .parse::<types::AuthEntityName>()
            .map_err(|_| refuse(Errno::EINVAL, format!("unrecognized entity '{who}'")))?;
        let host = self.host_of(&known);
        let (location, class) = self.crush_place_of(&known);
        let name = entity_name.trim_end_matches('.');
        let entity = Entity { name, host: &host, location: &location, device_class: &class };
        let settings = self.config_db.for_entity(&entity);
        if let Some(key) = cmd.map.opt_string("key")? {
            let Some(def) = option(&key) else {
                return match settings.get(&key) {
                    Some(s) => Ok(CommandReply::data(format!("{}\n", s.value))),
                    None => fail(Errno::ENOENT, format!("unrecognized key '{key}'")),
                };
            };
            if def.no_mon_update() {
                // Kept by the monitors themselves or known only to the daemon.
                let value = match def.name {
                    "fsid" => self.monmap().fsid.to_string(),
                    _ => self.conf.default_of(def).to_string(),
                };
                return Ok(CommandReply::data(format!("{value}\n")));
            }
            let value = match settings.get(def.name) {
                Some(s) => s.value.clone(),
                None => {
                    let plain = config::Config::new(known.kind_name(), &known.id);
                    let default = plain.default_of(def);
                    match def.kind {
                        Kind::Str => default.to_string(),
                        _ => {
                            config::normalize(def, default).unwrap_or_else(|_| default.to_string())
                        }
                    }
                }
            };
            return Ok(CommandReply::data(format!("{value}\n")));
        }
        Ok(cmd.output(
            |f| {
                f.object("config", |f| {
                    for (name, s) in &settings {
                        f.object(name, |f| {
                            f.dump_string("value", &s.value);
                            f.dump_string("section", &s.section);
                            f.object("mask", |f| {
                                if let Some((kind, name)) = &s.mask.location {
                                    f.dump_string("location_type", kind);
                                    f.dump_string("location_value", name);
                                }
                                if !s.mask.device_class.is_empty() {
                                    f.dump_string("device_class", &s.mask.device_class);
                                }
                            });
                            f.dump_bool("can_update_at_runtime", updatable(&s.option));
                        });
                    }
                });
            },
            || {
                let mut table = settings_table();
                for s in settings.values() {
                    table.row(setting_row(s.section.clone(), s));
                }
                table.to_string()
            },
        ))
    }

    fn config_history(&self, max: usize) -> Result<Vec<Change>, Refusal> {
        let mut changes: BTreeMap<u64, Change> = BTreeMap::new();
        for (key, value) in self.config_keys(HISTORY_DIR)? {
            let rest = &key[HISTORY_DIR.len()..];
            let Some((number, item)) = rest.split_once('/') else { continue };
            let Ok(version) = number.parse::<u64>() else { continue };
            let change = changes.entry(version).or_insert_with(|| Change {
                version,
                stamp: UTime::ZERO,
                name: String::new(),
                keys: BTreeMap::new(),
            });
            let text = String::from_utf8_lossy(&value).into_owned();
            if item.is_empty() {
                let mut r = Reader::new(&value);
                if let (Ok(stamp), Ok(name)) = (UTime::decode(&mut r), String::decode(&mut r)) {
                    (change.stamp, change.name) = (stamp, name);
                }
            } else if let Some(name) = item.strip_prefix('-') {
                change.keys.entry(name.to_string()).or_default().0 = Some(text);
            } else if let Some(name) = item.strip_prefix('+') {
                change.keys.entry(name.to_string()).or_default().1 = Some(text);
            }
        }
        // The first version is the empty configuration of a new cluster.
        changes.entry(1).or_insert_with(|| Change {
            version: 1,
            stamp: UTime::ZERO,
            name: String::new(),
            keys: BTreeMap::new(),
        });
        Ok(changes.into_values().rev().take(max).collect())
    }

    fn config_log(&self, cmd: &Cmd) -> CmdResult {
        let max = cmd.map.opt_int("num")?.unwrap_or(10);
        let changes = self.config_history(usize::try_from(max).unwrap_or(0))?;
        Ok(cmd.output(
            |f| {
                f.array("changesets", |f| {
                    for change in &changes {
                        f.object("changeset", |f| {
                            f.dump_unsigned("version", change.version);
                            f.dump_stream("timestamp", change.stamp);
                            f.dump_string("name", &change.name);
                            f.array("changes", |f| {
                                for (key, (old, new)) in &change.keys {
                                    f.object("change", |f| {
                                        f.dump_string("name", key);
                                        if let Some(old) = old {
                                            f.dump_string("previous_value", old);
                                        }
                                        if let Some(new) = new {
                                            f.dump_string("new_value", new);
                                        }
                                    });
                                }
                            });
                        });
                    }
                });
            },
            || {
                let mut out = String::new();
                for c in &changes {
                    let _ = write!(out, "--- {} --- {} ---", c.version, c.stamp);
                    let _ = match c.name.is_empty() {
                        true => writeln!(out),
                        false => writeln!(out, " {} ---", c.name),
                    };
                    for (key, (old, new)) in &c.keys {
                        if let Some(old) = old {
                            let _ = writeln!(out, "- {key} = {old}");
                        }
                        if let Some(new) = new {
                            let _ = writeln!(out, "+ {key} = {new}");
                        }
                    }
                }
                out
            },
        ))
    }

    fn config_reset(&mut self, cmd: &Cmd) -> CmdResult {
        let target = u64::try_from(cmd.map.int("num")?).unwrap_or(0);
        if target > self.config_version {
            return fail(
                Errno::EINVAL,
                "must specify a valid historical version to revert to; see 'ceph config log' for a list of avialable configuration historical versions",
            );
        }
        let mut undo: BTreeMap<String, Option<String>> = BTreeMap::new();
        for change in self.config_history(usize::MAX)? {
            if change.version <= target {
                break;
            }
            for (key, (old, _)) in change.keys {
                undo.insert(key, old);
            }
        }
        let changes: Vec<(String, Option<String>)> = undo
            .into_iter()
            .filter(|(key, value)| self.config_db.get(key) != value.as_deref())
            .collect();
        if !changes.is_empty() {
            self.config_change(&format!("reset to {target}"), &changes)?;
        }
        done()
    }

    fn config_minimal(&self) -> CommandReply {
        let fsid = self.monmap().fsid;
        let hosts: Vec<String> =
            self.monmap().mon_info.values().map(|mon| mon.public_addrs.to_string()).collect();
        CommandReply::data(format!(
            "# minimal ceph.conf for {fsid}\n[global]\n\tfsid = {fsid}\n\tmon_host = {}\n",
            hosts.join(" ")
        ))
    }

    /// Takes every setting that a monitor may store; what is left comes back as a file.
    fn config_assimilate(&mut self, cmd: &Cmd) -> CmdResult {
        let text = std::str::from_utf8(&cmd.input)
            .map_err(|_| refuse(Errno::EINVAL, "the file is not UTF-8 text"))?;
        let file = ConfFile::parse(text)
            .map_err(|error| refuse(Errno::EINVAL, format!("failed to parse config: {error}")))?;
        let mut changes = Vec::new();
        let mut rest = String::new();
        for section in file.sections() {
            let mut left = String::new();
            for (name, value) in file.settings(section) {
                let takes = option(name)
                    .is_some_and(|o| !o.no_mon_update() && !o.at_cluster_create())
                    && check_setting(section, name, value, false).is_ok();
                if !takes {
                    let _ = writeln!(left, "\t{name} = {value}");
                    continue;
                }
                let (name, value) = check_setting(section, name, value, false)?;
                let key = stored_key(section, &name);
                if self.config_db.get(&key) != Some(value.as_str()) {
                    changes.push((key, Some(value)));
                }
            }
            if !left.is_empty() {
                let _ = write!(rest, "\n[{section}]\n{left}");
            }
        }
        if !changes.is_empty() {
            self.config_change("", &changes)?;
        }
        Ok(CommandReply::data(rest))
    }
}

/// Every option, those of the manager's modules at the end.
fn all() -> impl Iterator<Item = &'static OptionDef> {
    options().iter().chain(module_options())
}

/// Name and value in the form stored, or why not.
fn check_setting(
    who: &str,
    name: &str,
    value: &str,
    force: bool,
) -> Result<(String, String), Refusal> {
    if parse_who(who).is_none() {
        return fail(Errno::EINVAL, format!("unrecognized config target '{who}'"));
    }
    let Some(def) = option(name) else {
        if force {
            return Ok((name.to_string(), value.to_string()));
        }
        return fail(Errno::EINVAL, format!("unrecognized config option '{name}'"));
    };
    if def.no_mon_update() && !(def.kind == Kind::Uuid && config::normalize(def, value).is_err()) {
        return fail(Errno::EINVAL, format!("{name} is special and cannot be stored by the mon"));
    }
    let normal = match value.contains('$') && def.takes_variables() {
        true => value.to_string(),
        false => config::normalize(def, value).map_err(|error| {
            refuse(Errno(error.errno()), format!("error parsing value: {error}"))
        })?,
    };
    Ok((def.name.to_string(), normal))
}

fn config_help(cmd: &Cmd) -> CmdResult {
    let key = cmd.string("key")?;
    let Some(def) = option(&key) else { return fail(Errno::ENOENT, "") };
    Ok(cmd.output(
        |f| config::dump_option(f, "option", def),
        || {
            let mut out = format!("{} - {}\n", def.name, def.desc);
            let _ = writeln!(out, "  ({}, {})", def.kind.name(), def.level.name());
            if def.daemon_default.is_empty() {
                let _ = writeln!(out, "  Default: {}", def.default);
            } else {
                let _ = writeln!(out, "  Default (non-daemon): {}", def.default);
                let _ = writeln!(out, "  Default (daemon): {}", def.daemon_default);
            }
            if !def.choices.is_empty() {
                let _ = writeln!(out, "  Possible values: {}", def.choices.replace('|', "  "));
            }
            match (def.min, def.max) {
                ("", "") => {}
                (min, "") => drop(writeln!(out, "  Minimum: {min}")),
                (min, max) => drop(writeln!(out, "  Minimum: {min}\n  Maximum: {max}")),
            }
            let runtime = def.can_update_at_runtime();
            let _ = writeln!(out, "  Can update at runtime: {runtime}");
            if !def.services.is_empty() {
                let _ = writeln!(out, "  Services: [{}]", def.services);
            }
            out
        },
    ))
}

fn settings_table() -> TextTable {
    let mut table = TextTable::new();
    for heading in ["WHO", "MASK", "LEVEL", "OPTION", "VALUE", "RO"] {
        table.define_column(heading, Align::Left, Align::Left);
    }
    table
}

fn setting_row(who: String, s: &Setting) -> [String; 6] {
    [
        who,
        s.mask.text(),
        level(&s.option).to_string(),
        s.option.clone(),
        s.value.clone(),
        if updatable(&s.option) { "" } else { "*" }.to_string(),
    ]
}

fn level(name: &str) -> &'static str {
    option(name).map_or("advanced", |o| o.level.name())
}

fn updatable(name: &str) -> bool {
    option(name).is_some_and(|o| o.can_update_at_runtime())
}
