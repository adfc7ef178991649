//! Who is connected and what they want to be told (`src/mon/Session.h` at v16.2).

use std::collections::BTreeMap;
use std::rc::Rc;

use types::Epoch;

use crate::caps::Caps;
use crate::event::{Peer, SessionId};

/// Names a session may subscribe to, at most.
pub(crate) const SUBSCRIPTIONS_MAX: usize = 64;

/// One subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Subscription {
    /// First version wanted; 0 is whatever is current.
    pub(crate) next: u64,
    /// Forgotten after one delivery.
    pub(crate) once: bool,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: SessionId,
    pub(crate) peer: Rc<Peer>,
    pub(crate) caps: Caps,
    /// At most [`SUBSCRIPTIONS_MAX`].
    pub(crate) subs: BTreeMap<String, Subscription>,
    /// Host name as the peer says.
    pub(crate) remote_host: String,
    /// Newest OSD map epoch it was sent.
    pub(crate) osd_epoch: Epoch,
    /// The options it was sent last; `None` before the first time.
    pub(crate) last_config: Option<BTreeMap<String, String>>,
}

impl Session {
    pub(crate) fn new(id: SessionId, peer: Rc<Peer>, caps: Caps) -> Session {
        Session {
            id,
            peer,
            caps,
            subs: BTreeMap::new(),
            remote_host: String::new(),
            osd_epoch: 0,
            last_config: None,
        }
    }

    /// `osd.0 v2:127.0.0.1:6800/1`, for logs.
    pub(crate) fn describe(&self) -> String {
        format!("{} {}", self.peer.name, self.peer.socket_addr)
    }
}
