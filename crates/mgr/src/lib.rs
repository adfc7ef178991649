//! The manager: collects what daemons report about placement groups, disks and themselves, tells
//! the monitors the sums, and answers the commands about them (`src/mgr/*` at v16.2, without
//! modules in Python).

mod autoscaler;
mod balancer;
mod beacon;
mod cluster;
mod commands;
mod counters;
mod daemon;
mod daemons;
mod error;
mod health;
mod json;
mod pg_num;
mod progress;
mod prometheus;
mod rbd_support;
mod report;
mod text;

pub use daemon::Mgr;
pub use error::MgrError;
