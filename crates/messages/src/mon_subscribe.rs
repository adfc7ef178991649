//! Subscriptions to maps (15), acknowledged only to peers older than 16.2 (16).

use std::collections::BTreeMap;

use denc::Denc;
use types::Uuid;

/// Flag: one delivery, then forgotten.
pub const SUBSCRIBE_ONETIME: u8 = 1;

/// One wish. Wire: ceph_mon_subscribe_item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Denc)]
pub struct SubscribeItem {
    /// First version wanted; 0 for whatever is current, whole.
    pub start: u64,
    /// [`SUBSCRIBE_ONETIME`] or 0.
    pub flags: u8,
}

/// Type 15: replaces the entries it names.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
pub struct MMonSubscribe {
    /// Name of the map to the wish.
    pub what: BTreeMap<String, SubscribeItem>,
    /// The subscriber's host.
    pub hostname: String,
}
message!(MMonSubscribe, 15, 3 / 1);

/// Type 16.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
pub struct MMonSubscribeAck {
    /// Seconds until a renewal is due.
    pub interval: u32,
    /// The cluster.
    pub fsid: Uuid,
}
message!(MMonSubscribeAck, 16, 1 / 1);
