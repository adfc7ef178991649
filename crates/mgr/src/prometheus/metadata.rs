//! What daemons told the monitors of their hosts: labels of metrics, by which dashboards join others.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use crate::commands::metadata::ask;
use crate::daemon::Mgr;

/// It is asked for again after so long: it changes when daemons start.
const FRESH: Duration = Duration::from_secs(15);
/// Without an answer in time the page shows what was known.
const PATIENCE: Duration = Duration::from_secs(2);

/// Metadata of monitors, managers, OSDs and MDSs, by `mon.a`, `osd.0`. Bound: what the monitors keep.
#[derive(Debug, Default)]
pub(crate) struct Metadata {
    by_daemon: BTreeMap<String, Value>,
    /// The map of file systems, as `fs dump` shows it.
    pub(super) fsmap: Value,
    asked: Option<Duration>,
}

impl Metadata {
    /// A field of a daemon's, empty if it did not tell.
    pub(super) fn get(&self, daemon: &str, field: &str) -> &str {
        self.by_daemon.get(daemon).and_then(|of| of[field].as_str()).unwrap_or_default()
    }

    /// As if the monitors had told it.
    #[cfg(test)]
    pub(super) fn tell(&mut self, daemon: &str, of: Value) {
        self.by_daemon.insert(daemon.to_owned(), of);
    }

    /// The address in a field, without type, port and nonce.
    pub(super) fn address(&self, daemon: &str, field: &str) -> &str {
        let address = self.get(daemon, field);
        let address = address.rsplit_once("v2:").map_or(address, |(_, of_v2)| of_v2);
        ip_of(address)
    }
}

/// The host of an address with a port and perhaps a nonce: `[::1]` of `[::1]:6800/0`.
pub(super) fn ip_of(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(host, _)| host)
}

/// Asks the monitors, if that is due.
pub(super) async fn refresh(mgr: &Mgr) {
    let now = mgr.env.now();
    if mgr.metadata.borrow().asked.is_some_and(|asked| now < asked + FRESH) {
        return;
    }
    mgr.metadata.borrow_mut().asked = Some(now);
    // All of it together: who scrapes gives up after ten seconds.
    let _ = mgr.env.timeout(PATIENCE, ask_all(mgr)).await;
}

async fn ask_all(mgr: &Mgr) {
    let fsmap = ask(mgr, "fs dump").await;
    if !fsmap.is_null() {
        mgr.metadata.borrow_mut().fsmap = fsmap;
    }
    for (kind, id) in [("mon", "name"), ("mgr", "name"), ("osd", "id"), ("mds", "name")] {
        let Value::Array(daemons) = ask(mgr, &format!("{kind} metadata")).await else { continue };
        let mut metadata = mgr.metadata.borrow_mut();
        let prefix = format!("{kind}.");
        metadata.by_daemon.retain(|daemon, _| !daemon.starts_with(&prefix));
        for of in daemons {
            let name = match &of[id] {
                Value::String(name) => format!("{prefix}{name}"),
                number => format!("{prefix}{number}"),
            };
            metadata.by_daemon.insert(name, of);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn addresses_are_told_without_ports() {
        let mut metadata = Metadata::default();
        let of = json!({"a": "v2:10.0.0.1:6800/77", "b": "v2:[::1]:6800/77", "hostname": "vm"});
        metadata.by_daemon.insert("osd.0".to_owned(), of);
        assert_eq!(metadata.address("osd.0", "a"), "10.0.0.1");
        assert_eq!(metadata.address("osd.0", "b"), "[::1]");
        assert_eq!(metadata.get("osd.0", "hostname"), "vm");
        assert_eq!(metadata.address("osd.1", "a"), "");
    }

    /// Of an IPv6 address `[` was shown.
    #[test]
    fn an_address_is_shown_without_its_port() {
        for (address, ip) in
            [("10.0.0.1:6800/7", "10.0.0.1"), ("[fd00::7]:6800/0", "[fd00::7]"), ("", "")]
        {
            assert_eq!(ip_of(address), ip);
        }
    }
}
