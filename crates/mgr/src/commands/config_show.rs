//! `config show`: a daemon's running configuration as it told it.

use std::collections::BTreeMap;

use command::{Align, CommandMap, CommandReply, Formatter, TextTable};

use super::{EINVAL, ENOENT};
use crate::daemon::Mgr;
use crate::daemons::Daemon;

/// Ceph's numbers of the sources of values.
const SOURCES: [&str; 7] = ["default", "mon", "file", "env", "cmdline", "override", "final"];

fn source_name(source: i32) -> &'static str {
    usize::try_from(source).ok().and_then(|i| SOURCES.get(i)).copied().unwrap_or("???")
}

struct Shown {
    name: String,
    value: String,
    source: &'static str,
    /// Source and value, from the weakest.
    overrides: Vec<(&'static str, String)>,
}

fn shown(name: &str, values: &BTreeMap<i32, String>) -> Option<Shown> {
    let (source, value) = values.last_key_value()?;
    let overrides = values
        .iter()
        .take(values.len() - 1)
        .map(|(source, value)| (source_name(*source), value.clone()))
        .collect();
    let source = source_name(*source);
    Some(Shown { name: name.to_owned(), value: value.clone(), source, overrides })
}

/// Answers `config show` and `config show-with-defaults`.
pub(super) fn run(mgr: &Mgr, map: &CommandMap) -> CommandReply {
    let who = map.string("who").unwrap_or_default();
    let Some((kind, name)) = who.split_once('.') else {
        return CommandReply::error(EINVAL, "invalid daemon name: use <type>.<id>");
    };
    let daemons = mgr.daemons.borrow();
    let own = (kind == "mgr" && name == mgr.id()).then(|| Daemon::of_config(&mgr.config));
    let daemon = own.as_ref().or_else(|| daemons.find(kind, name));
    let Some(daemon) = daemon.filter(|d| !d.config.is_empty() || !d.config_defaults.is_empty())
    else {
        return CommandReply::error(ENOENT, format!("no config state for daemon {who}"));
    };
    let mut all: BTreeMap<&str, Shown> = BTreeMap::new();
    let with_defaults = map.prefix() == "config show-with-defaults";
    if let Ok(Some(key)) = map.opt_string("key") {
        let set = daemon.config.get(&key).and_then(|values| shown(&key, values));
        let value = set.map(|s| s.value).or_else(|| daemon.config_defaults.get(&key).cloned());
        return match value {
            Some(value) => CommandReply::data(format!("{value}\n")),
            None => CommandReply::error(ENOENT, ""),
        };
    }
    if with_defaults {
        for (name, value) in &daemon.config_defaults {
            let shown = Shown {
                name: name.clone(),
                value: value.clone(),
                source: "default",
                overrides: Vec::new(),
            };
            all.insert(name, shown);
        }
    }
    for (name, values) in &daemon.config {
        if let Some(shown) = shown(name, values) {
            all.insert(name, shown);
        }
    }
    if map.format().is_plain() {
        return CommandReply::data(table(all.values()));
    }
    let mut f = Formatter::new(map.format());
    f.array("config", |f| {
        for shown in all.values() {
            f.object("value", |f| dump(f, shown));
        }
    });
    CommandReply::formatted(f)
}

fn dump(f: &mut Formatter, shown: &Shown) {
    f.dump_string("name", &shown.name);
    f.dump_string("value", &shown.value);
    f.dump_string("source", shown.source);
    if !shown.overrides.is_empty() {
        f.array("overrides", |f| {
            for (source, value) in &shown.overrides {
                f.object("value", |f| {
                    f.dump_string("source", source);
                    f.dump_string("value", value);
                });
            }
        });
    }
}

fn table<'a>(all: impl Iterator<Item = &'a Shown>) -> String {
    let mut table = TextTable::new();
    for heading in ["NAME", "VALUE", "SOURCE", "OVERRIDES", "IGNORES"] {
        table.define_column(heading, Align::Left, Align::Left);
    }
    for shown in all {
        let text = |(source, value): &(&str, String)| {
            if *value == shown.value {
                format!("({source}[{value}])")
            } else {
                format!("{source}[{value}]")
            }
        };
        let overrides: Vec<String> = shown.overrides.iter().rev().map(text).collect();
        table.row([
            shown.name.clone(),
            shown.value.clone(),
            shown.source.to_owned(),
            overrides.join(","),
            String::new(),
        ]);
    }
    table.to_string()
}
