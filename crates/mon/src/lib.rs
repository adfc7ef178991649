//! The monitor: cluster maps, keys, options and the cluster log, kept in a replicated log; and
//! the commands by which operators read and change them.
//!
//! [`MonCore`] is the monitor without I/O: events in, effects out (`core.rs`). [`Log`] is where it
//! commits. [`Mon`] is the daemon: it listens, authenticates, and performs the effects.
//!
//! | part | files |
//! |---|---|
//! | core | `core.rs standing.rs event.rs session.rs subs.rs dispatch.rs caps.rs` |
//! | storage | `log.rs replica.rs layout.rs mkfs.rs collected.rs inject.rs` |
//! | services | `monmap.rs osd/ auth.rs config_db.rs clog.rs mgr.rs mds/ stat.rs health.rs counters.rs` |
//! | commands | `commands/`, `answered.rs`, `commands.tsv` |
//! | other monitors | `peer.rs`, `shell/` |
//! | daemon | `shell/` |

mod answered;
mod auth;
mod caps;
mod clog;
mod collected;
mod commands;
mod config_db;
mod core;
mod counters;
mod dispatch;
mod event;
mod full_ratios;
mod health;
mod inject;
mod layout;
mod log;
mod mds;
mod mgr;
mod mkfs;
mod monmap;
mod osd;
mod peer;
mod replica;
mod session;
mod shell;
mod standing;
mod stat;
mod subs;
mod sync;

pub use crate::core::{FillRandom, Identity, LoadError, MonCore};
pub use collected::{CollectError, Collected, OsdPart, Rebuilt};
pub use counters::Counters;
pub use event::{Effect, Event, Now, Peer, SessionId};
pub use inject::{InjectError, StoredMonMap, extract_monmap, inject_monmap};
pub use log::{LocalLog, Log, LogError};
pub use mkfs::{MkfsError, mkfs, mkfs_from_osds, mkfs_joining};
pub use shell::{Mon, StartError};
pub use standing::{Disk, Role, Skew, Standing};
