//! What a client of the monitors is told at its start.

use std::time::Duration;

use auth::{CryptoKey, METHOD_CEPHX, MODE_CRC, MODE_SECURE};
use types::addr::{AddrType, AddrVec, EntityAddr};
use types::entity::{self, AuthEntityName};

/// Port of the monitors' messenger v2.
pub const MON_PORT_V2: u16 = 3300;
/// Port of their messenger v1.
pub const MON_PORT_V1: u16 = 6789;

/// Who we are, where the monitors are, and how long to wait for them. Times have Ceph's defaults.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The entity: `client.admin`, `osd.3`.
    pub name: AuthEntityName,
    /// Its key; without one only method none is possible.
    pub key: Option<CryptoKey>,
    /// Methods to offer monitors, best first (`auth_client_required`; daemons:
    /// `auth_cluster_required`).
    pub methods: Vec<u32>,
    /// Methods that peers of ours may use (`auth_service_required`, `auth_cluster_required`).
    pub service_methods: Vec<u32>,
    /// Where to begin (`mon_host`, see [`parse_mon_host`]).
    pub mons: Vec<AddrVec>,
    /// Services to hold tickets for (bits of entity types).
    pub want_keys: u32,
    /// Whether to hold the own service's rotating secrets: daemons whom others connect to.
    pub want_rotating: bool,
    /// Preferred modes to monitors and managers, best first (`ms_mon_client_mode`).
    pub mon_modes: Vec<u32>,
    /// Preferred modes to the others (`ms_client_mode`, `ms_cluster_mode`).
    pub service_modes: Vec<u32>,
    /// Modes that peers of other kinds may use (`ms_service_mode`).
    pub accept_modes: Vec<u32>,
    /// Modes that peers of the own kind may use (`ms_cluster_mode`).
    pub cluster_modes: Vec<u32>,
    /// Name of this host.
    pub hostname: String,
    /// Monitors tried at the same time (`mon_client_hunt_parallel`).
    pub hunt_parallel: usize,
    /// How long to wait before others are tried (`mon_client_hunt_interval`).
    pub hunt_interval: Duration,
    /// How much longer to wait each time, up to ten times (`mon_client_hunt_interval_backoff`).
    pub hunt_backoff: f64,
    /// Pause between signs of life (`mon_client_ping_interval`).
    pub ping_interval: Duration,
    /// Silence after which a monitor is given up (`mon_client_ping_timeout`).
    pub ping_timeout: Duration,
    /// How long an expired rotating secret is kept before the next are asked for, so that the
    /// monitors have rotated: 30 s, or a quarter of `auth_service_ticket_ttl`.
    pub rotating_patience: Duration,
}

impl Settings {
    /// A client of these monitors with Ceph's defaults.
    pub fn new(name: AuthEntityName, key: Option<CryptoKey>, mons: Vec<AddrVec>) -> Settings {
        let methods = match key {
            Some(_) => vec![METHOD_CEPHX],
            None => vec![auth::METHOD_NONE],
        };
        Settings {
            name,
            key,
            service_methods: methods.clone(),
            methods,
            mons,
            want_keys: u32::from(entity::MON | entity::OSD | entity::MGR),
            want_rotating: false,
            mon_modes: vec![MODE_SECURE, MODE_CRC],
            service_modes: vec![MODE_CRC, MODE_SECURE],
            accept_modes: vec![MODE_CRC, MODE_SECURE],
            cluster_modes: vec![MODE_CRC, MODE_SECURE],
            hostname: String::new(),
            hunt_parallel: 3,
            hunt_interval: Duration::from_secs(3),
            hunt_backoff: 1.5,
            ping_interval: Duration::from_secs(10),
            ping_timeout: Duration::from_secs(30),
            rotating_patience: Duration::from_secs(30),
        }
    }

    /// The same for a daemon that others connect to with tickets.
    pub fn daemon(mut self) -> Settings {
        self.want_rotating = true;
        self.want_keys |= u32::from(entity::MDS);
        self
    }
}

/// Reads `mon_host`: addresses or bracketed groups of addresses of one monitor each, separated by
/// commas, semicolons or white space. An address without a type is tried at both ports, one with a
/// port but no type is v2 at 3300 and v1 at 6789 or both types elsewhere. The error is the word that is none;
/// host names are to be replaced before ([`crate::resolve_mon_host`]).
pub fn parse_mon_host(text: &str) -> Result<Vec<AddrVec>, String> {
    let mut mons = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([',', ';', ' ', '\t', '\n']);
        if rest.is_empty() {
            return Ok(mons);
        }
        let grouped = ["[v", "[any:"].iter().any(|open| rest.starts_with(open));
        let end = if grouped {
            Some(group_end(rest).ok_or_else(|| rest.to_owned())?)
        } else {
            rest.find([',', ';', ' ', '\t', '\n'])
        };
        let (word, after) = rest.split_at(end.unwrap_or(rest.len()));
        rest = after;
        let group = if grouped { &word[1..word.len() - 1] } else { word };
        let mut addrs = Vec::new();
        for one in group.split(',') {
            addrs.extend(parse_one(one).ok_or_else(|| word.to_owned())?);
        }
        mons.push(addrs.into_iter().collect());
    }
}

/// The end of the group that `text` begins with: IPv6 addresses in it have brackets of their own.
fn group_end(text: &str) -> Option<usize> {
    let mut depth = 0_i32;
    for (at, c) in text.char_indices() {
        depth += i32::from(c == '[') - i32::from(c == ']');
        if depth == 0 {
            return Some(at + 1);
        }
    }
    None
}

fn parse_one(text: &str) -> Option<Vec<EntityAddr>> {
    let typed = ["v1:", "v2:"].iter().any(|prefix| text.starts_with(prefix));
    let addr = EntityAddr::parse(text, AddrType::Any).ok()?;
    let mut sock = addr.sock?;
    let mut at = |kind: AddrType, port: u16| {
        if addr.port() == 0 {
            sock.set_port(port);
        }
        EntityAddr { kind, nonce: addr.nonce, sock: Some(sock) }
    };
    Some(match (typed, addr.port()) {
        (true, _) if addr.kind == AddrType::Legacy => vec![at(AddrType::Legacy, MON_PORT_V1)],
        (true, _) | (false, MON_PORT_V2) => vec![at(AddrType::Msgr2, MON_PORT_V2)],
        (false, MON_PORT_V1) => vec![at(AddrType::Legacy, MON_PORT_V1)],
        (false, _) => vec![at(AddrType::Msgr2, MON_PORT_V2), at(AddrType::Legacy, MON_PORT_V1)],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mon_host_forms() {
        let show = |text: &str| {
            parse_mon_host(text)
                .map(|mons| mons.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        let both = "[v2:10.0.0.1:3300/0,v1:10.0.0.1:6789/0]";
        assert_eq!(show("10.0.0.1"), Ok(vec![both.to_owned()]));
        assert_eq!(
            show("[v2:10.0.0.1:3300,v1:10.0.0.1:6789], [v2:10.0.0.2:4000/0]"),
            Ok(vec![both.to_owned(), "v2:10.0.0.2:4000/0".to_owned()])
        );
        assert_eq!(
            show("[v2:[fd00::1]:3300/0,v1:[fd00::1]:6789/0],v2:[fd00::2]:3300"),
            Ok(vec![
                "[v2:[fd00::1]:3300/0,v1:[fd00::1]:6789/0]".to_owned(),
                "v2:[fd00::2]:3300/0".to_owned()
            ])
        );
        assert!(show("[v2:[fd00::1]:3300").is_err() && show("[v2:").is_err());
        assert_eq!(
            show("v2:10.0.0.1:3300 10.0.0.2:6789;10.0.0.3:3300"),
            Ok(vec![
                "v2:10.0.0.1:3300/0".to_owned(),
                "v1:10.0.0.2:6789/0".to_owned(),
                "v2:10.0.0.3:3300/0".to_owned()
            ])
        );
        assert_eq!(show("[::1]:3300"), Ok(vec!["v2:[::1]:3300/0".to_owned()]));
        assert_eq!(show("mon.example"), Err("mon.example".to_owned()));
    }
}
