//! Block devices on this side of the wire: `loligo rbd`, `nbd`, `ublk`, `bench`, all over the
//! `client` crate.

pub(crate) mod bench;
pub(crate) mod cli;
pub(crate) mod connect;
pub(crate) mod nbd;
pub(crate) mod rbd;
mod requests;
pub(crate) mod spec;
pub(crate) mod ublk;
