//! How a messenger treats peers of one entity type (src/msg/Policy.h at v16.2), with the bounds on
//! what it takes from them.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::Throttle;

/// All feature bits of 16.2.15; what sessions advertise unless told otherwise.
pub const FEATURES_ALL: u64 = 0x3f01_cfbd_fffd_ffff;

/// Treatment of peers of one entity type.
#[derive(Debug, Clone)]
pub struct Policy {
    /// A broken connection ends the session: nothing is kept, nothing is sent again.
    pub lossy: bool,
    /// Never connects by itself; the peer does.
    pub server: bool,
    /// A broken connection with nothing to send waits instead of reconnecting.
    pub standby: bool,
    /// A peer that lost its session state is a restarted peer: tell the dispatcher.
    pub resetcheck: bool,
    /// Keep sessions of lossy clients in the messenger's table, by address.
    pub register_lossy_clients: bool,
    /// Feature bits offered.
    pub features_supported: u64,
    /// Feature bits without which a peer is refused.
    pub features_required: u64,
    /// Bytes of messages received and not yet dropped; shared by all peers under this policy.
    pub throttle_bytes: Option<Rc<Throttle>>,
    /// Number of messages received and not yet dropped; shared likewise.
    pub throttle_messages: Option<Rc<Throttle>>,
}

impl Policy {
    const fn new(lossy: bool, server: bool, standby: bool, resetcheck: bool, reg: bool) -> Policy {
        Policy {
            lossy,
            server,
            standby,
            resetcheck,
            register_lossy_clients: reg,
            features_supported: FEATURES_ALL,
            features_required: 0,
            throttle_bytes: None,
            throttle_messages: None,
        }
    }

    /// Server of lossy clients, kept by address (OSD to clients).
    pub const fn stateless_registered_server() -> Policy {
        Policy::new(true, true, false, true, true)
    }

    /// Server of lossy clients (mon and mgr to everybody else).
    pub const fn stateless_server() -> Policy {
        Policy::new(true, true, false, true, false)
    }

    /// Two daemons that resend what was lost (OSD to OSD).
    pub const fn lossless_peer() -> Policy {
        Policy::new(false, false, true, false, true)
    }

    /// The same, noticing that the peer restarted (mon to mon).
    pub const fn lossless_peer_reuse() -> Policy {
        Policy::new(false, false, true, true, true)
    }

    /// Client of a lossy server (everybody to mon and mgr, clients to OSDs, heartbeats).
    pub const fn lossy_client() -> Policy {
        Policy::new(true, false, false, false, true)
    }

    /// The same, refusing peers that lack any of these feature bits.
    pub fn requiring(mut self, features: u64) -> Policy {
        self.features_required |= features;
        self
    }

    /// The same, holding at most this many bytes and messages of such peers at a time.
    ///
    /// An OSD's bounds for clients: 500 MiB (`osd_client_message_size_cap`) and 256 messages
    /// (`osd_client_message_cap`).
    pub fn throttled(mut self, bytes: u64, messages: u64) -> Policy {
        self.throttle_bytes = Some(Throttle::new(bytes));
        self.throttle_messages = Some(Throttle::new(messages));
        self
    }
}

/// A policy for each entity type.
#[derive(Debug, Clone)]
pub struct Policies {
    default: Policy,
    by_kind: BTreeMap<u8, Policy>,
}

impl Policies {
    /// One policy for all.
    pub fn new(default: Policy) -> Policies {
        Policies { default, by_kind: BTreeMap::new() }
    }

    /// The same, with another policy for peers of entity type `kind`.
    pub fn with(mut self, kind: u8, policy: Policy) -> Policies {
        self.by_kind.insert(kind, policy);
        self
    }

    /// The policy for peers of entity type `kind`.
    pub fn of(&self, kind: u8) -> &Policy {
        self.by_kind.get(&kind).unwrap_or(&self.default)
    }
}
