//! A daemon's or client's session with the monitors: finds one, authenticates, subscribes, asks,
//! and begins again with another one when it is lost. Holds tickets and rotating secrets, and
//! plugs them into the messengers of the process.
//!
//! The owner of the messenger passes on what it is told:
//!
//! ```text
//! on_message(con, incoming)   let Some(incoming) = monc.on_message(con, incoming) else { return };
//! on_connect(con)             monc.on_connect(con)
//! on_reset(con)               monc.on_reset(con)
//! ```
//!
//! Maps other than the monmap come to the owner, who says which version it has
//! ([`MonClient::got`]).

mod client;
mod credentials;
mod dispatch;
mod from_config;
mod host_names;
mod monitors_only;
mod osd_maps;
mod requests;
mod settings;
mod subs;

pub use client::{MonClient, MonError, MonEvents};
pub use from_config::SettingsError;
pub use host_names::{UnknownHost, resolve_mon_host};
pub use monitors_only::MonitorsOnly;
pub use osd_maps::OsdMaps;
pub use requests::{Answer, Versions};
pub use settings::{MON_PORT_V1, MON_PORT_V2, Settings, parse_mon_host};
