//! What the environment says to a daemon or client that somebody starts: stronger than `ceph.conf`, weaker than the
//! command line (`md_config_t::parse_env`, `src/common/config.cc` at v16.2).

use std::path::PathBuf;

use config::{Config, Kind, Source};

use crate::failure::Failure;

const ARGS: &str = "CEPH_ARGS";
const KEYRING: &str = "CEPH_KEYRING";
/// Bytes of memory that Kubernetes has promised.
const MEMORY: &str = "POD_MEMORY_REQUEST";
/// What is read here. The daemons of `up` are started without: their cluster has keys and options of its own.
pub(crate) const VARIABLES: [&str; 3] = [ARGS, KEYRING, MEMORY];

/// Short forms of options.
const SHORT: [(&str, &str); 5] =
    [("-c", "conf"), ("-k", "keyring"), ("-K", "keyfile"), ("-m", "mon_host"), ("-n", "name")];

/// What `CEPH_ARGS` says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct CephArgs {
    /// The configuration file.
    pub(crate) conf: Option<PathBuf>,
    /// The client's name without its kind.
    pub(crate) id: Option<String>,
    options: Vec<(&'static str, String)>,
}

impl CephArgs {
    /// Of this process.
    pub(crate) fn of_process() -> Result<CephArgs, Failure> {
        CephArgs::parse(&variable(ARGS)?.unwrap_or_default())
    }

    /// Words as on a command line of Ceph's, without quoting. What is no option of the configuration is for the
    /// programs that know it.
    fn parse(text: &str) -> Result<CephArgs, Failure> {
        let mut said = CephArgs::default();
        let mut words = text.split_whitespace();
        while let Some(word) = words.next() {
            if word == "--" {
                break;
            }
            let (name, value) = word.split_once('=').map_or((word, None), |(n, v)| (n, Some(v)));
            let short = SHORT.iter().find(|(short, _)| *short == name).map(|(_, long)| *long);
            let Some(name) = short.or(name.strip_prefix("--")) else { continue };
            let name = name.replace('-', "_");
            let mut text = || {
                let text = value.or_else(|| words.next()).map(str::to_owned);
                text.ok_or_else(|| Failure::new(format!("{ARGS}: {word} wants a value")))
            };
            match name.as_str() {
                "conf" => said.conf = Some(text()?.into()),
                "id" | "user" => said.id = Some(text()?),
                "name" => {
                    let name = text()?;
                    let id = name.strip_prefix("client.").map(str::to_owned);
                    said.id = Some(id.ok_or_else(|| {
                        Failure::new(format!("{ARGS}: the name {name} is not client.ID"))
                    })?);
                }
                _ => said.options.extend(match config::option(&name) {
                    Some(option) if option.kind == Kind::Bool && value.is_none() => {
                        Some((option.name, "true".to_owned()))
                    }
                    Some(option) => Some((option.name, text()?)),
                    None => {
                        let negated = name.strip_prefix("no_").and_then(config::option);
                        let negated = negated.filter(|option| option.kind == Kind::Bool);
                        negated.map(|option| (option.name, "false".to_owned()))
                    }
                }),
            }
        }
        Ok(said)
    }
}

fn variable(name: &str) -> Result<Option<String>, Failure> {
    let text = std::env::var_os(name).map(|text| text.into_string());
    text.transpose().map_err(|text| Failure::new(format!("{name}: {text:?} is not UTF-8")))
}

/// Sets what the environment of this process says.
pub(crate) fn apply(config: &Config) -> Result<(), Failure> {
    apply_of(config, variable)
}

fn apply_of(
    config: &Config,
    variable: impl Fn(&str) -> Result<Option<String>, Failure>,
) -> Result<(), Failure> {
    let set = |variable: &str, name: &str, value: &str| {
        let taken = config.set(name, value, Source::Env);
        taken.map_err(|e| Failure::new(format!("{variable}: {name}: {e}")))
    };
    if let Some(keyring) = variable(KEYRING)? {
        set(KEYRING, "keyring", &keyring)?;
    }
    let memory = variable(MEMORY)?.filter(|_| config.name().starts_with("osd."));
    if let Some(memory) = memory.filter(|bytes| bytes.parse::<u64>().is_ok_and(|bytes| bytes > 0)) {
        set(MEMORY, "osd_memory_target", &memory)?;
    }
    for (name, value) in CephArgs::parse(&variable(ARGS)?.unwrap_or_default())?.options {
        set(ARGS, name, &value)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn applied(kind: &str, said: &[(&str, &str)]) -> Result<Config, String> {
        let config = Config::new(kind, "7");
        config.set("keyring", "/from/the/file", Source::File).unwrap();
        let said: BTreeMap<&str, &str> = said.iter().copied().collect();
        let variable = |name: &str| Ok(said.get(name).map(|&text| text.to_owned()));
        apply_of(&config, variable).map_err(|e| e.to_string())?;
        Ok(config)
    }

    #[test]
    fn options_are_taken_as_on_a_command_line_of_ceph() {
        let args = "--debug-osd 20/5 -m 10.0.0.1:6789 --no-cephx-sign-messages --osd_max_backfills=3 \
                    --rbd-balance-snap-reads --unknown 5 word -k /k --id x -- --osd_max_backfills=9";
        let config = applied("osd", &[("CEPH_ARGS", args)]).unwrap();
        let values =
            ["debug_osd", "mon_host", "cephx_sign_messages", "osd_max_backfills", "keyring"];
        let values = values.map(|name| config.str(name));
        assert_eq!(values, ["20/5", "10.0.0.1:6789", "false", "3", "/k"]);
        assert_eq!(config.source("keyring"), Some(Source::Env));
        config.set("keyring", "/by/hand", Source::Cmdline).unwrap();
        assert_eq!(config.str("keyring"), "/by/hand");
    }

    #[test]
    fn who_and_where_is_for_clients() {
        let expected =
            CephArgs { conf: Some("/c".into()), id: Some("rbd".to_owned()), options: Vec::new() };
        assert_eq!(CephArgs::parse("--name client.rbd -c /c").unwrap(), expected);
        assert_eq!(CephArgs::parse("--user=me").unwrap().id.as_deref(), Some("me"));
    }

    #[test]
    fn a_pod_has_as_much_memory_as_it_asked_for() {
        for (kind, said, expected) in [
            ("osd", "3221225472", "3221225472"),
            ("osd", "0", "4294967296"),
            ("osd", "much", "4294967296"),
            ("mon", "3221225472", "4294967296"),
        ] {
            let config = applied(kind, &[("POD_MEMORY_REQUEST", said)]).unwrap();
            assert_eq!(config.uint("osd_memory_target").to_string(), expected, "{kind} {said}");
        }
        let config = applied("mgr", &[("CEPH_KEYRING", "/ring")]).unwrap();
        assert_eq!(config.str("keyring"), "/ring");
    }

    #[test]
    fn what_is_wrong_is_told_with_its_name() {
        for (args, wanted) in [
            ("--osd_max_backfills many", "CEPH_ARGS: osd_max_backfills"),
            ("--osd_max_backfills", "CEPH_ARGS: --osd_max_backfills wants a value"),
            ("-n osd.3", "CEPH_ARGS: the name osd.3 is not client.ID"),
        ] {
            let error = applied("client", &[("CEPH_ARGS", args)]).err().unwrap();
            assert!(error.starts_with(wanted), "{error}");
        }
    }
}
