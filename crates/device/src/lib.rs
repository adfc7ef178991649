//! Block devices: the only place that writes data devices, and the ledger of what was written why.
//!
//! A [`BlockDevice`] stands on a file of the environment. Every write says for each of its bytes
//! why it is written ([`WriteCause`]); the sums in the [`Ledger`] are those of all bytes submitted
//! to the file, so write amplification can be read at any time. [`SharedDevice`] is the same for
//! threads that block, as databases have them. [`memory`] is a device in memory
//! that can show what a crash would leave, [`faults`] one that fails on demand: both for tests.

mod block_device;
mod error;
pub mod faults;
mod ledger;
pub mod memory;
mod shared;
pub mod shared_memory;

pub use block_device::{BlockDevice, Causes, Piece};
pub use error::DeviceError;
pub use ledger::{Ledger, WriteCause};
pub use shared::SharedDevice;
