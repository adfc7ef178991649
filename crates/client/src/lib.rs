//! librados in Rust: a session with the monitors, an objecter that brings operations to the right
//! OSD through every change of the map, and the objects of a pool as async calls
//! (`src/osdc/Objecter.cc`, `src/librados/*` at v16.2).
//!
//! ```text
//! IoCtx -- Operation --> Objecter -- MOSDOp --> OSD
//!                           ^  calc_target(map)
//! Client -- commands --> MonClient, OSD, manager
//! ```

mod client;
mod commands;
mod error;
mod io;
mod objecter;
mod operation;
pub mod rbd;
mod sessions;
mod target;
mod watch;

pub use client::{Client, Options};
pub use error::ClientError;
pub use io::{IoCtx, ObjectEntry};
pub use monclient::Answer;
pub use objecter::{WaitReason, Waiting};
pub use operation::{OpOutcome, Operation, Outcome};
pub use watch::{Notified, Watch, WatchEvent, WatchHandler};
