//! Daemons that report to the manager: gateways, mirrors and the like. Wire: ServiceMap v1
//! (`src/mgr/ServiceMap.h` at v16.2).

use std::collections::BTreeMap;

use denc::Denc;
use types::{EntityAddr, Epoch, UTime};

/// One daemon.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 2, compat = 1)]
pub struct ServiceDaemon {
    /// Its global id.
    pub gid: u64,
    /// Where it is.
    pub addr: EntityAddr,
    /// Epoch it began in.
    pub start_epoch: Epoch,
    /// When it began.
    pub start_stamp: UTime,
    /// What it says of itself.
    pub metadata: BTreeMap<String, String>,
    /// What it is doing.
    #[denc(since = 2)]
    pub task_status: BTreeMap<String, String>,
}

/// The daemons of one service.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct Service {
    /// By name.
    pub daemons: BTreeMap<String, ServiceDaemon>,
    /// One line; empty: the names are listed.
    pub summary: String,
}

/// All services.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct ServiceMap {
    /// This map's number.
    pub epoch: Epoch,
    /// When it changed.
    pub modified: UTime,
    /// By name: rgw, rbd-mirror, ...
    pub services: BTreeMap<String, Service>,
}
