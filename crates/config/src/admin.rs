//! The `config ...` commands every daemon answers by `ceph tell` and on its admin socket, and those on the log, whose place
//! is an option's.

use std::fmt::Write;

use command::{CommandMap, CommandReply, Formatter, Signature};
use types::Errno;

use crate::{Config, Kind, OptionDef, SetError, Source, option};

const ENOENT: i32 = 2;
const EINVAL: i32 = 22;
const ENOSYS: i32 = 38;
/// Of an option whose change a running daemon does not follow.
const LATE: &str = "(not observed, change may require restart) ";

/// Signatures of the commands answered here.
pub fn admin_signatures() -> Vec<Signature> {
    [
        ("config diff", "list options that differ from their defaults"),
        ("config diff get name=var,type=CephString", "show one option's value in every source"),
        ("config get name=var,type=CephString", "show an option's value"),
        ("config help name=var,type=CephString,req=false", "describe one option or all"),
        (
            "config set name=var,type=CephString name=val,type=CephString,n=N",
            "set an option until the daemon restarts",
        ),
        ("config show", "list all options with their values"),
        ("config unset name=var,type=CephString", "take a value set at run time away"),
        (
            "log dump",
            "write recent log lines out (none are kept back: log_max_recent has no effect)",
        ),
        ("log flush", "write waiting log lines out (none ever wait)"),
        ("log reopen", "open the log's file anew, where it was moved away"),
        ("injectargs name=injected_args,type=CephString,n=N", "set options by --name=value"),
    ]
    .into_iter()
    .map(|(sig, help)| Signature::new(sig, help, "", "", 0))
    .collect()
}

/// Answers a `config ...`, `log ...` or `injectargs` command; `None` for any other.
pub fn admin_command(config: &Config, map: &CommandMap) -> Option<CommandReply> {
    Some(match map.prefix() {
        "config show" => show(config, map),
        "config get" => get(config, map),
        "config set" => set(config, map),
        "config unset" => unset(config, map),
        "config diff" => diff(config, map),
        "config diff get" => diff_get(config, map),
        "config help" => help(map),
        "injectargs" => injectargs(config, map),
        // Lines are written as they come: none waits, and none is kept beside.
        "log dump" | "log flush" => log_done(map),
        "log reopen" => {
            config.reopen_log();
            log_done(map)
        }
        _ => return None,
    })
}

/// Writes an option's description as the open section `name` of `config help`.
pub fn dump_option(f: &mut Formatter, section: &str, def: &OptionDef) {
    f.object(section, |f| {
        f.dump_string("name", def.name);
        f.dump_string("type", def.kind.name());
        f.dump_string("level", def.level.name());
        f.dump_string("desc", def.desc);
        f.dump_string("long_desc", "");
        dump_typed(f, "default", def, def.default);
        dump_typed(f, "daemon_default", def, def.daemon_default);
        f.array("tags", |_| {});
        f.array("services", |f| {
            for service in def.services.split(',').filter(|s| !s.is_empty()) {
                f.dump_string("service", service);
            }
        });
        f.array("see_also", |_| {});
        if def.kind == Kind::Str {
            f.array("enum_values", |f| {
                if !def.choices.is_empty() {
                    def.choices.split('|').for_each(|word| f.dump_string("enum_value", word));
                }
            });
        }
        dump_typed(f, "min", def, def.min);
        dump_typed(f, "max", def, def.max);
        f.dump_bool("can_update_at_runtime", def.can_update_at_runtime());
        f.array("flags", |f| {
            for flag in def.flag_names() {
                f.dump_string("option", flag);
            }
        });
    });
}

/// Numbers and switches unquoted; sizes and times are text, as in Ceph.
fn dump_typed(f: &mut Formatter, name: &str, def: &OptionDef, value: &str) {
    match def.kind {
        Kind::Int | Kind::Uint | Kind::Float if value.parse::<f64>().is_ok() => {
            f.dump_unquoted(name, value);
        }
        Kind::Bool if !value.is_empty() => f.dump_unquoted(name, value),
        _ => f.dump_string(name, value),
    }
}

fn show(config: &Config, map: &CommandMap) -> CommandReply {
    let mut f = Formatter::new(map.format());
    f.object("config_show", |f| {
        f.dump_string("name", config.name());
        f.dump_string("cluster", config.cluster());
        for shown in config.show() {
            f.dump_string(shown.name, &shown.value);
        }
    });
    CommandReply::formatted(f)
}

fn get(config: &Config, map: &CommandMap) -> CommandReply {
    let Ok(name) = map.string("var") else { return missing("var") };
    let Some(def) = option(&name) else {
        return CommandReply::error(
            ENOENT,
            format!("error getting '{name}': (2) No such file or directory"),
        );
    };
    let mut f = Formatter::new(map.format());
    f.object("config_get", |f| f.dump_string(def.name, config.str(def.name)));
    CommandReply::formatted(f)
}

fn set(config: &Config, map: &CommandMap) -> CommandReply {
    let Ok(name) = map.string("var") else { return missing("var") };
    let Ok(words) = map.strings("val") else { return missing("val") };
    let value = words.join(" ");
    let failed = |errno: i32, text: &str| {
        CommandReply::error(errno, format!("error setting '{name}' to '{value}': {text}"))
    };
    match config.set_at_runtime(&name, &value) {
        Ok(()) => {
            let mut f = Formatter::new(map.format());
            let shown = option(&name).map_or(name.as_str(), |def| def.name);
            let late = option(&name).filter(|def| def.is_followed_late()).map_or("", |_| LATE);
            let success = format!("{shown} = '{}' {late}", config.value(&name).unwrap_or_default());
            f.object("config_set", |f| f.dump_string("success", success));
            CommandReply::formatted(f)
        }
        Err(SetError::Unknown) => failed(ENOENT, "(2) No such file or directory"),
        Err(SetError::NotAtRuntime) => failed(ENOSYS, "(38) Function not implemented"),
        Err(SetError::Value(error)) => {
            let errno = Errno(error.errno());
            failed(errno.0, &errno.to_string())
        }
    }
}

fn unset(config: &Config, map: &CommandMap) -> CommandReply {
    let Ok(name) = map.string("var") else { return missing("var") };
    match config.unset(&name, Source::Override) {
        Ok(_) => {
            let mut f = Formatter::new(map.format());
            f.object("config_unset", |_| {});
            let value = config.value(&name).unwrap_or_default();
            let late = option(&name).filter(|def| def.is_followed_late()).map_or("", |_| LATE);
            let outs = format!("{name} = '{value}' {late}");
            CommandReply { outs, ..CommandReply::formatted(f) }
        }
        Err(_) => CommandReply::error(
            ENOENT,
            format!("error unsetting '{name}': (2) No such file or directory"),
        ),
    }
}

fn diff(config: &Config, map: &CommandMap) -> CommandReply {
    let mut f = Formatter::new(map.format());
    f.object("config_diff", |f| {
        f.object("diff", |f| {
            for shown in config.show() {
                if !shown.values.is_empty() {
                    dump_sources(f, config, &shown);
                }
            }
        });
    });
    CommandReply::formatted(f)
}

fn diff_get(config: &Config, map: &CommandMap) -> CommandReply {
    let Ok(name) = map.string("var") else { return missing("var") };
    let mut f = Formatter::new(map.format());
    f.object("config_diff_get", |f| {
        f.object("diff", |f| {
            if let Some(def) = option(&name) {
                dump_sources(f, config, &config.show_one(def));
            }
        });
    });
    CommandReply::formatted(f)
}

fn dump_sources(f: &mut Formatter, config: &Config, shown: &crate::Shown) {
    f.object(shown.name, |f| {
        let Some(def) = option(shown.name) else { return };
        // Tools compare these with what they have, as numbers.
        let mut dump = |name: &str, value: &str| match (def.kind, value.parse()) {
            (Kind::Float, Ok(n)) => f.dump_float(name, n),
            _ => dump_typed(f, name, def, value),
        };
        dump("default", config.default_of(def));
        for (source, value) in &shown.values {
            dump(source.name(), value);
        }
        dump("final", &shown.value);
    });
}

fn help(map: &CommandMap) -> CommandReply {
    let mut f = Formatter::new(map.format());
    match map.opt_string("var") {
        Ok(Some(name)) => {
            let Some(def) = option(&name) else {
                return CommandReply::error(ENOENT, format!("Setting not found: '{name}'"));
            };
            f.object("config_help", |f| dump_option(f, "option", def));
        }
        _ => f.array("options", |f| {
            for def in crate::options() {
                dump_option(f, "option", def);
            }
        }),
    }
    CommandReply::formatted(f)
}

/// `--name value`, `--name=value`, several of them; names with dashes or underscores.
fn injectargs(config: &Config, map: &CommandMap) -> CommandReply {
    let Ok(words) = map.strings("injected_args") else { return missing("injected_args") };
    let joined = words.join(" ");
    let mut words = joined.split_ascii_whitespace().peekable();
    let (mut outs, mut bad) = (String::new(), None);
    while let Some(word) = words.next() {
        let Some(body) = word.strip_prefix("--") else {
            bad.get_or_insert((EINVAL, format!(" failed to parse arguments: {word}\n")));
            continue;
        };
        let (name, value) = match body.split_once('=') {
            Some((name, value)) => (name.to_string(), value.to_string()),
            None => {
                let is_switch = option(body).is_some_and(|o| o.kind == Kind::Bool);
                let off = body.strip_prefix("no-").or_else(|| body.strip_prefix("no_"));
                let off = off.filter(|name| option(name).is_some_and(|o| o.kind == Kind::Bool));
                let next = words.peek().filter(|w| !w.starts_with("--")).copied();
                match next {
                    _ if off.is_some() && option(body).is_none() => {
                        (off.unwrap_or(body).to_string(), "false".to_string())
                    }
                    Some(value) => {
                        words.next();
                        (body.to_string(), value.to_string())
                    }
                    None if is_switch => (body.to_string(), "true".to_string()),
                    None if option(body).is_some() => {
                        let why = format!("Option {word} requires an argument.\n");
                        bad.get_or_insert((EINVAL, parse_error(body, "", &why)));
                        continue;
                    }
                    None => (body.to_string(), String::new()),
                }
            }
        };
        let shown = name.replace('-', "_");
        match config.set_at_runtime(&name, &value) {
            Ok(()) => {
                let late = option(&name).filter(|def| def.is_followed_late()).map_or("", |_| LATE);
                let value = config.value(&name).unwrap_or_default();
                let _ = write!(outs, "{shown} = '{value}' {late}");
            }
            Err(SetError::NotAtRuntime) => {
                let _ = write!(outs, "{shown} = '{value}' {LATE}");
            }
            Err(SetError::Unknown) => {
                bad.get_or_insert((EINVAL, format!(" failed to parse arguments: {word}\n")));
            }
            Err(SetError::Value(error)) => {
                let text = parse_error(&name, &value, &error.to_string());
                bad.get_or_insert((error.errno(), text));
            }
        }
    }
    match bad {
        Some((errno, text)) => CommandReply::error(errno, text),
        None => CommandReply { rc: 0, outs, ..CommandReply::default() },
    }
}

fn log_done(map: &CommandMap) -> CommandReply {
    let mut f = Formatter::new(map.format());
    f.object("log", |_| {});
    CommandReply::formatted(f)
}

/// As `md_config_t::parse_option` says it (`src/common/config.cc` at v16.2).
fn parse_error(name: &str, value: &str, why: &str) -> String {
    let name = name.replace('-', "_");
    format!("Parse error setting {name} to '{value}' using injectargs ({why}).\n")
}

fn missing(field: &str) -> CommandReply {
    CommandReply::error(EINVAL, format!("missing required parameter {field}(<string>)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(config: &Config, json: &str) -> CommandReply {
        admin_command(config, &CommandMap::parse(&[json.to_string()]).unwrap()).unwrap()
    }

    #[test]
    fn set_get_and_diff() {
        let c = Config::new("osd", "0");
        let r = run(&c, r#"{"prefix":"config set","var":"osd_max_backfills","val":["3"]}"#);
        assert_eq!(r.outb, "{\n    \"success\": \"osd_max_backfills = '3' \"\n}\n");
        let r = run(&c, r#"{"prefix":"config get","var":"osd_max_backfills","format":"json"}"#);
        assert_eq!(r.outb, r#"{"osd_max_backfills":"3"}"#);
        let r = run(&c, r#"{"prefix":"config diff","format":"json"}"#);
        assert_eq!(
            r.outb,
            r#"{"diff":{"osd_max_backfills":{"default":1,"override":3,"final":3}}}"#
        );
        let r = run(&c, r#"{"prefix":"config set","var":"bogus","val":["1"]}"#);
        assert_eq!(r.outs, "error setting 'bogus' to '1': (2) No such file or directory");
        assert_eq!(r.rc, -2);
        let r = run(&c, r#"{"prefix":"injectargs","injected_args":["--debug_osd=1/5"]}"#);
        assert_eq!((r.rc, r.outs.as_str()), (0, "debug_osd = '1/5' "));
    }

    /// `log reopen` said that it had, and did nothing.
    #[test]
    fn the_log_is_opened_anew_by_command() {
        use std::sync::atomic::{AtomicU32, Ordering};
        static REOPENED: AtomicU32 = AtomicU32::new(0);
        let c = Config::new("osd", "0");
        // Where nobody has a file.
        assert_eq!(run(&c, r#"{"prefix":"log reopen"}"#).rc, 0);
        c.on_log_reopen(|| {
            REOPENED.fetch_add(1, Ordering::SeqCst);
        });
        for prefix in ["log reopen", "log flush", "log dump"] {
            let r = run(&c, &format!(r#"{{"prefix":"{prefix}","format":"json"}}"#));
            assert_eq!((r.rc, &r.outb[..]), (0, &b"{}"[..]));
        }
        assert_eq!(REOPENED.load(Ordering::SeqCst), 1);
    }

    /// `filestore_max_sync_interval` and the like were refused as read-only, which Ceph takes and says of
    /// that they wait for a restart.
    #[test]
    fn what_is_followed_late_is_taken_and_said() {
        let c = Config::new("osd", "0");
        let r = run(&c, r#"{"prefix":"config set","var":"rocksdb_cache_size","val":["1M"]}"#);
        let text = String::from_utf8_lossy(&r.outb).into_owned();
        let words = "rocksdb_cache_size = '1048576' (not observed, change may require restart) ";
        assert!(r.rc == 0 && text.contains(words), "{text}");
        let r = run(&c, r#"{"prefix":"injectargs","injected_args":["--rocksdb_cache_size=2M"]}"#);
        assert_eq!(r.outs, words.replace("1048576", "2097152"));
    }

    /// Tools look for these words; the bare reason was told.
    #[test]
    fn injected_values_are_refused_in_cephs_words() {
        let c = Config::new("osd", "0");
        let inject = |words: &str| {
            let json = format!(r#"{{"prefix":"injectargs","injected_args":["{words}"]}}"#);
            let r = run(&c, &json);
            (r.rc, r.outs)
        };
        let (rc, outs) = inject("--osd-scrub-auto-repair-num-errors -1");
        assert_eq!(rc, -EINVAL);
        assert!(
            outs.starts_with(
                "Parse error setting osd_scrub_auto_repair_num_errors to '-1' using injectargs ("
            ),
            "{outs}"
        );
        assert_eq!(inject("--debug_osd=200").0, -34);
        let (rc, outs) = inject("--osd_op_history_duration");
        assert_eq!(rc, -EINVAL);
        let words = "Option --osd_op_history_duration requires an argument.";
        assert!(outs.contains(words), "{outs}");
        assert_eq!(inject("--osd_enable_op_tracker").0, 0);
    }
}
