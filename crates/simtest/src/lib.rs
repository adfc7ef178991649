//! A whole cluster in the simulated world: the daemons as they are, each on a host of its own with
//! a disk of its own, under the virtual clock of `sim`. For tests and for `loligo sim`; relied on by
//! no daemon.
//!
//! ```text
//! host mon.a, mon.b ..  database file, port 3300
//! host mgr.x            nothing kept
//! host osd.0, osd.1 ..  block file `/osd/block` (inkstore)
//! ```

mod audit;
mod campaign;
mod chaos;
mod cluster;
mod keys;
mod life;
mod mons;
mod object;
mod operator;
mod replicas;
mod scrubs;
mod workload;

pub use campaign::{Failure, Sum, run, try_live};
pub use chaos::{Chaos, Fault, Mischief};
pub use cluster::{Cluster, Plan};
pub use life::{Life, Settings, live};
pub use workload::{Load, Workload};
