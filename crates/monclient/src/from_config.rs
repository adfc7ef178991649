//! Settings from the options of a daemon or client.

use core::fmt;
use core::time::Duration;

use auth::{CryptoKey, Keyring, METHOD_CEPHX, METHOD_NONE, MODE_CRC, MODE_SECURE};
use config::Config;
use types::AuthEntityName;
use types::entity::kind_from_name;

use crate::{Settings, parse_mon_host};

/// What is wrong with the options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingsError {
    /// `mon_host` is missing.
    NoMonHost,
    /// `mon_host` does not parse; the word that does not.
    MonHost(String),
    /// cephx is required and the keyring has no key for us.
    NoKey(String),
    /// The daemon's or client's name is not one.
    Name(String),
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingsError::NoMonHost => f.write_str("the configuration has no mon_host"),
            SettingsError::MonHost(word) => {
                write!(f, "mon_host: {word:?} is not an address like [v2:127.0.0.1:3300]")
            }
            SettingsError::NoKey(name) => write!(f, "the keyring has no key for {name}"),
            SettingsError::Name(name) => write!(f, "{name:?} is not a name like client.admin"),
        }
    }
}

impl std::error::Error for SettingsError {}

/// Shortest pause between pings, whatever the option says.
const PING_INTERVAL_MIN: Duration = Duration::from_millis(100);

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split([',', ' ', ';', '\t']).filter(|word| !word.is_empty())
}

fn methods(text: &str) -> Vec<u32> {
    words(text)
        .filter_map(|word| match word {
            "cephx" => Some(METHOD_CEPHX),
            "none" => Some(METHOD_NONE),
            _ => None,
        })
        .collect()
}

fn modes(text: &str) -> Vec<u32> {
    words(text)
        .filter_map(|word| match word {
            "crc" => Some(MODE_CRC),
            "secure" => Some(MODE_SECURE),
            _ => None,
        })
        .collect()
}

impl Settings {
    /// Reads the options of `config`'s entity; `keyring` is the content of its keyring file, if
    /// there is one. A daemon's settings are those of [`Settings::daemon`].
    pub fn from_config(
        config: &Config,
        keyring: Option<&Keyring>,
    ) -> Result<Settings, SettingsError> {
        let kind =
            kind_from_name(config.kind()).ok_or_else(|| SettingsError::Name(config.name()))?;
        let name = AuthEntityName::new(kind, config.id());
        let is_client = config.kind() == "client";
        let required = if is_client { "auth_client_required" } else { "auth_cluster_required" };
        let methods = methods(&config.str(required));
        let key = match CryptoKey::from_base64(&config.str("key")) {
            Ok(key) if !key.is_empty() => Some(key),
            _ => keyring.and_then(|ring| ring.key(&name)).cloned(),
        };
        if key.is_none() && !methods.contains(&METHOD_NONE) {
            return Err(SettingsError::NoKey(name.to_string()));
        }
        let mons = parse_mon_host(&config.str("mon_host")).map_err(SettingsError::MonHost)?;
        if mons.is_empty() {
            return Err(SettingsError::NoMonHost);
        }
        let mut settings = Settings::new(name, key, mons);
        settings.methods = methods;
        settings.service_methods = self::methods(&config.str("auth_service_required"));
        settings.mon_modes = modes(&config.str("ms_mon_client_mode"));
        let service = if is_client { "ms_client_mode" } else { "ms_cluster_mode" };
        settings.service_modes = modes(&config.str(service));
        settings.accept_modes = modes(&config.str("ms_service_mode"));
        settings.cluster_modes = modes(&config.str("ms_cluster_mode"));
        settings.hostname = config.host().to_owned();
        settings.hunt_parallel =
            usize::try_from(config.uint("mon_client_hunt_parallel")).unwrap_or(3);
        settings.hunt_interval = config.duration("mon_client_hunt_interval");
        settings.hunt_backoff = config.float("mon_client_hunt_interval_backoff");
        settings.ping_interval = config.duration("mon_client_ping_interval").max(PING_INTERVAL_MIN);
        settings.ping_timeout = config.duration("mon_client_ping_timeout");
        let patience = config.duration("auth_service_ticket_ttl") / 4;
        settings.rotating_patience = settings.rotating_patience.min(patience);
        Ok(if is_client { settings } else { settings.daemon() })
    }
}
