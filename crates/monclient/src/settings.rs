//! Who we are and where the monitors are, from the configuration.

use core::fmt;
use std::net::{IpAddr, SocketAddr};

use auth::{CryptoKey, Keyring, METHOD_CEPHX, METHOD_NONE, MODE_CRC, MODE_SECURE};
use config::Config;
use types::entity::kind_from_name;
use types::{AddrVec, AuthEntityName, EntityAddr};

/// Port of messenger v2 when `mon_host` names none.
const MON_PORT: u16 = 3300;

/// What a session needs to know.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Our name.
    pub name: AuthEntityName,
    /// Our key; not needed with method none.
    pub key: Option<CryptoKey>,
    /// Methods we may use, best first.
    pub methods: Vec<u32>,
    /// Monitors to begin with.
    pub mon_host: Vec<AddrVec>,
    /// Connection modes to monitors and managers, best first.
    pub mon_modes: Vec<u32>,
    /// Connection modes to other services.
    pub service_modes: Vec<u32>,
    /// Connection modes we accept from clients and other kinds of daemons.
    pub accept_modes: Vec<u32>,
    /// Connection modes between daemons of one kind.
    pub cluster_modes: Vec<u32>,
    /// Bits of the services to get tickets for.
    pub want: u32,
    /// Whether others connect to us with tickets: rotating secrets are fetched.
    pub is_service: bool,
    /// This machine's name, sent with subscriptions.
    pub hostname: String,
}

/// What is wrong with the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingsError {
    /// `mon_host` is missing.
    NoMonHost,
    /// `mon_host` does not parse; the part that does not.
    MonHost(String),
    /// cephx is on and the keyring has no key for us.
    NoKey(String),
    /// The daemon's or client's name is not one.
    Name(String),
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingsError::NoMonHost => f.write_str("the configuration has no mon_host"),
            SettingsError::MonHost(part) => {
                write!(
                    f,
                    "mon_host: {part:?} is not an address like [v2:127.0.0.1:3300]"
                )
            }
            SettingsError::NoKey(name) => write!(f, "the keyring has no key for {name}"),
            SettingsError::Name(name) => write!(f, "{name:?} is not a name like client.admin"),
        }
    }
}

impl std::error::Error for SettingsError {}

fn methods(text: &str) -> Vec<u32> {
    text.split([',', ' ', ';', '\t'])
        .filter_map(|word| match word {
            "cephx" => Some(METHOD_CEPHX),
            "none" => Some(METHOD_NONE),
            _ => None,
        })
        .collect()
}

/// Connection modes from an option's text: `secure crc`.
pub(crate) fn modes(text: &str) -> Vec<u32> {
    text.split([',', ' ', ';', '\t'])
        .filter_map(|word| match word {
            "crc" => Some(MODE_CRC),
            "secure" => Some(MODE_SECURE),
            _ => None,
        })
        .collect()
}

impl Settings {
    /// Reads the options; `keyring` is the content of the keyring file, if there is one.
    /// `want` are bits of entity types.
    pub fn from_config(
        config: &Config,
        keyring: Option<&Keyring>,
        want: u32,
    ) -> Result<Settings, SettingsError> {
        let kind =
            kind_from_name(config.kind()).ok_or_else(|| SettingsError::Name(config.name()))?;
        let name = AuthEntityName::new(kind, config.id());
        let is_service = config.kind() != "client";
        let option = if is_service {
            "auth_cluster_required"
        } else {
            "auth_client_required"
        };
        let methods = methods(&config.str(option));
        let given = config.str("key");
        let key = match CryptoKey::from_base64(&given) {
            Ok(key) if !given.is_empty() => Some(key),
            _ => keyring.and_then(|ring| ring.key(&name)).cloned(),
        };
        if key.is_none() && methods == [METHOD_CEPHX] {
            return Err(SettingsError::NoKey(name.to_string()));
        }
        Ok(Settings {
            name,
            key,
            methods,
            mon_host: parse_mon_host(&config.str("mon_host"))?,
            mon_modes: modes(&config.str("ms_mon_client_mode")),
            service_modes: modes(&config.str("ms_client_mode")),
            accept_modes: modes(&config.str("ms_service_mode")),
            cluster_modes: modes(&config.str("ms_cluster_mode")),
            want,
            is_service,
            hostname: config.host().to_owned(),
        })
    }
}

/// Addresses of monitors as `mon_host` may give them: `a,b`, `1.2.3.4:3300`, `[v2:..,v1:..]`,
/// `[::1]:3300`. Only the v2 addresses count.
pub fn parse_mon_host(text: &str) -> Result<Vec<AddrVec>, SettingsError> {
    let mut found = Vec::new();
    for part in split_outside_brackets(text) {
        let bad = || SettingsError::MonHost(part.to_owned());
        if part.contains("v2:") || part.contains("v1:") {
            let addrs: AddrVec = with_nonces(part).parse().map_err(|_| bad())?;
            let v2 = addrs.msgr2().copied().ok_or_else(bad)?;
            found.push(AddrVec::of(v2));
        } else {
            let socket = part
                .parse::<SocketAddr>()
                .or_else(|_| {
                    part.parse::<IpAddr>()
                        .map(|ip| SocketAddr::new(ip, MON_PORT))
                })
                .map_err(|_| bad())?;
            found.push(AddrVec::of(EntityAddr::msgr2(socket, 0)));
        }
    }
    if found.is_empty() {
        Err(SettingsError::NoMonHost)
    } else {
        Ok(found)
    }
}

/// `v2:1.2.3.4:3300` to `v2:1.2.3.4:3300/0`, in each address of the list.
fn with_nonces(list: &str) -> String {
    let inner = list
        .strip_prefix('[')
        .and_then(|l| l.strip_suffix(']'))
        .unwrap_or(list);
    let each: Vec<String> = inner
        .split(',')
        .map(|a| {
            if a.contains('/') {
                a.to_owned()
            } else {
                format!("{a}/0")
            }
        })
        .collect();
    if each.len() == 1 {
        each[0].clone()
    } else {
        format!("[{}]", each.join(","))
    }
}

fn split_outside_brackets(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0_i32, 0);
    for (at, c) in text.char_indices() {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            ',' | ' ' | ';' | '\t' if depth <= 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts.into_iter().filter(|part| !part.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mon_host_is_read_in_all_its_forms() {
        let one = |text: &str| parse_mon_host(text).unwrap()[0].to_string();
        assert_eq!(
            one("[v2:127.0.0.1:3300,v1:127.0.0.1:6789]"),
            "v2:127.0.0.1:3300/0"
        );
        assert_eq!(one("[v2:127.0.0.1:3300/0]"), "v2:127.0.0.1:3300/0");
        assert_eq!(one("v2:127.0.0.1:3300"), "v2:127.0.0.1:3300/0");
        assert_eq!(one("127.0.0.1:4000"), "v2:127.0.0.1:4000/0");
        assert_eq!(one("127.0.0.1"), "v2:127.0.0.1:3300/0");
        assert_eq!(
            parse_mon_host("10.0.0.1, 10.0.0.2;10.0.0.3").unwrap().len(),
            3
        );
        assert_eq!(parse_mon_host(""), Err(SettingsError::NoMonHost));
        assert_eq!(
            parse_mon_host("nowhere"),
            Err(SettingsError::MonHost("nowhere".into()))
        );
    }
}
