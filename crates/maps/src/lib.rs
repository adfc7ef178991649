//! Cluster maps: who is where, and where data goes.
//!
//! [`OsdMap`] with its [`Incremental`] and placement, [`PgPool`]; the maps of monitors, managers
//! and file systems; PG statistics. Pure: no I/O, no clock. Encodings are byte for byte those of
//! Ceph 16.2, dumps those of its commands.

pub mod crush_dump;
pub mod fsmap;
pub mod health;
pub mod mdsmap;
pub mod mgrmap;
pub mod monmap;
pub mod osdmap;
pub mod pgmap;
pub mod ping_times;
pub mod pool;
pub mod release;
pub mod servicemap;

pub use fsmap::FsMap;
pub use health::{HealthCheck, HealthCheckMap, HealthMute, Severity};
pub use mdsmap::MdsMap;
pub use mgrmap::MgrMap;
pub use monmap::{MonInfo, MonMap};
pub use osdmap::{ApplyError, Incremental, OsdInfo, OsdMap, OsdXinfo, UpActing};
pub use pgmap::{PgMap, PgMapDigest, PgMapIncremental};
pub use pool::PgPool;
pub use servicemap::ServiceMap;
