//! The object storage daemon: placement groups on one OSD, their peering, replication, recovery,
//! and what a daemon does around them (maps, boot, heartbeats, commands).
//!
//! * [`ec`]: what objects of erasure coded pools are on shards; pure.
//! * [`offline`]: what can be done to the store of an OSD that is stopped.
//! * [`ops`]: what a client's op does to an object.
//! * [`pg`]: placement groups: peering (a pure state machine), log, recovery, replication.
//! * [`osd`]: the daemon: dispatch, maps, boot, heartbeats, statistics.
//! * [`tell`]: what operators ask of it.
//!
//! Relies on `store` for durability and on `msgr`/`monclient` for peers; all I/O goes by `env`.

pub mod ec;
mod features;
pub mod offline;
pub mod ops;
pub mod osd;
pub mod pg;
pub mod tell;

pub use osd::{MkfsOptions, Osd, OsdError};
