//! Cluster maps: who is where, and where data goes.
//!
//! [`OsdMap`] with its [`Incremental`] and placement, [`PgPool`]; the maps of monitors, managers
//! and file systems; PG statistics. Pure: no I/O, no clock. Encodings are byte for byte those of
//! Ceph 16.2, dumps those of its commands.

pub mod osdmap;
pub mod pool;

pub use osdmap::{ApplyError, Incremental, OsdInfo, OsdMap, OsdXinfo, UpActing};
pub use pool::PgPool;
