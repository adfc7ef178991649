//! A placement group on one OSD.

pub mod log;
pub mod missing;
pub mod peering;
