//! What a session may do at the monitor, and checks of capabilities' texts.

use std::collections::BTreeMap;

use auth::caps::{MdsCap, MgrCap, MonCap, MonRequest, OsdCap, Rwx};
use maps::PgPool;
use types::entity;

use crate::event::Peer;

/// A session's rights.
#[derive(Debug, Clone)]
pub(crate) struct Caps {
    pub(crate) mon: MonCap,
}

impl Caps {
    /// The rights of somebody who has proved who he is.
    pub(crate) fn of_peer(peer: &Peer) -> Caps {
        if peer.caps.allow_all {
            return Caps { mon: MonCap::allow_all() };
        }
        // A text that does not parse allows nothing.
        let text = peer.caps.text().unwrap_or_default();
        Caps { mon: MonCap::parse(&text).unwrap_or_default() }
    }

    /// Whether a command may be run.
    pub(crate) fn allows_command(
        &self,
        peer: &Peer,
        service: &str,
        prefix: &str,
        arguments: &BTreeMap<String, String>,
        perm: &str,
    ) -> bool {
        let wanted = Rwx::wanted(perm.contains('r'), perm.contains('w'), perm.contains('x'));
        self.mon.is_capable(&MonRequest {
            daemon: entity::MON,
            name: &peer.auth_name,
            service,
            command: prefix,
            arguments,
            wanted,
            addr: &peer.socket_addr,
        })
    }

    /// Whether a message of a service may be sent.
    pub(crate) fn allows(&self, peer: &Peer, service: &str, perm: &str) -> bool {
        self.allows_command(peer, service, "", &BTreeMap::new(), perm)
    }
}

/// Whether OSD capabilities allow to write to objects of a pool, all or some.
pub(crate) fn osd_pool_writable(text: &str, name: &str, pool: &PgPool, peer: &Peer) -> bool {
    if peer.caps.allow_all {
        return true;
    }
    let Ok(cap) = OsdCap::parse(text) else { return false };
    cap.writes_to_pool(name, &pool.application_metadata, &peer.socket_addr)
}

/// Whether a capability's text parses; if not, what to tell the user.
pub(crate) fn check_text(service: &str, text: &str) -> Result<(), String> {
    // Old keys may hold it (it grants nothing); who writes it now has forgotten what to grant.
    if text.is_empty() && ["mon", "osd", "mgr", "mds"].contains(&service) {
        let place = if ["mon", "mgr"].contains(&service) { "end" } else { "''" };
        return Err(format!("{service} capability parse failed, stopped at {place} of ''"));
    }
    let result = match service {
        "mon" => MonCap::parse(text).map(drop),
        "osd" => OsdCap::parse(text).map(drop),
        "mgr" => MgrCap::parse(text).map(drop),
        "mds" => MdsCap::parse(text).map(drop),
        _ => return Err(format!("unknown cap type '{service}'")),
    };
    result.map_err(|error| error.to_string())
}
