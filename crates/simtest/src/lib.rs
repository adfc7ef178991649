//! A whole cluster in the simulated world: the daemons as they are, each on a host of its own with
//! a disk of its own, under the virtual clock of `sim`. For tests and for `loligo sim`; relied on by
//! no daemon.
//!
//! ```text
//! host mon.a, mon.b ..  database file, port 3300
//! host mgr.x            nothing kept
//! host osd.0, osd.1 ..  block file `/osd/block` (inkstore)
//! ```

mod aimed;
mod audit;
mod campaign;
mod chaos;
mod cluster;
mod cut;
pub mod diary;
mod keys;
mod life;
mod minimise;
mod mons;
mod object;
mod operator;
mod pg_logs;
mod pool_snaps;
mod replicas;
mod scrubs;
mod slow_reads;
pub mod timeline;
mod workload;

pub use aimed::Aim;
pub use campaign::{Failure, Sum, run, try_live};
pub use chaos::{Chaos, Fault, Mischief};
pub use cluster::{Cluster, Plan};
pub use cut::Cut;
pub use life::{Life, Settings, live};
pub use minimise::{Small, live_with_diary, minimise};
pub use workload::{Load, Workload};
