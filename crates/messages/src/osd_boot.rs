//! An OSD asks to be marked up (71).

use std::collections::BTreeMap;

use denc::Denc;
use types::osd::OsdSuperblock;
use types::{AddrVec, Epoch};

use crate::PaxosHeader;

/// Type 71. Its client addresses are those of the connection's sender.
#[derive(Debug, Clone, PartialEq, Denc)]
pub struct MOSDBoot {
    /// The sender's map.
    pub paxos: PaxosHeader,
    /// Who it is.
    pub sb: OsdSuperblock,
    /// For heartbeats on the cluster's network.
    pub hb_back_addrs: AddrVec,
    /// For other OSDs.
    pub cluster_addrs: AddrVec,
    /// Last epoch in which this process was up; 0 for none.
    pub boot_epoch: Epoch,
    /// For heartbeats on the clients' network.
    pub hb_front_addrs: AddrVec,
    /// What `ceph osd metadata` shows.
    pub metadata: BTreeMap<String, String>,
    /// Features of the OSD.
    pub osd_features: u64,
}
message!(MOSDBoot, 71, 7 / 7);
