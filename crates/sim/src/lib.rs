//! A simulated world: virtual clock, modelled network and disks, faults, all from one seed.
//!
//! A [`World`] has hosts, each with an address, a clock and disks. [`Control::node`] starts a
//! host's process and gives its [`env::Env`]; daemons run on it unchanged. Nothing here sleeps or
//! does I/O: when no task can run, the clock jumps to the next timer. Tasks take no virtual time.
//!
//! The same seed gives the same run: every choice (delays, ports, torn sectors, a daemon's own
//! randomness) comes from it, tasks run in the order they were woken, and [`Control::trace_hash`]
//! sums up what happened so that a test can check it. `LOLIGO_SIM_TRACE=1` prints the events.
//!
//! ```
//! use std::time::Duration;
//! let world = sim::World::new(7);
//! let env = world.node("client");
//! world.run_until(async move { env.sleep(Duration::from_secs(3600)).await });
//! assert_eq!(world.now(), Duration::from_secs(3600));
//! ```

mod block_file;
mod disk;
mod history;
mod host;
mod image;
mod link;
mod listener;
mod network;
mod process;
mod rng;
mod stream;
mod sync_file;
mod trace;
mod world;

pub use disk::{Disk, DiskFaults, DiskModel};
pub use history::{Broken, History, Judged, Model, OpId};
pub use host::{Kill, Sockets};
pub use image::Unsynced;
pub use link::LinkModel;
pub use rng::Rng;
pub use world::{Control, World};
