//! A whole cluster in the simulated world: the daemons as they are, each on a host of its own with
//! a disk of its own, under the virtual clock of `sim`. For tests only.
//!
//! ```text
//! host mon.a, mon.b ..  database file, port 3300
//! host mgr.x            nothing kept
//! host osd.0, osd.1 ..  block file `/osd/block` (inkstore)
//! ```

mod chaos;
mod cluster;
mod keys;
mod mons;
mod replicas;
mod workload;

pub use chaos::{Chaos, Mischief};
pub use cluster::{Cluster, Plan};
pub use workload::{Load, Workload};
