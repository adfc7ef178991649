//! The contract's test suite: random transactions against a simple model, on every backend, with
//! crashes, faults and full devices.

mod blue;
mod blue_crash;
mod caching;
mod contract;
mod cost;
mod crash;
mod discarding;
mod driver;
mod faults;
mod filestore_crash;
mod filling;
mod gathering;
mod kstore_crash;
mod model;
mod native;
mod pg_log;
mod real;
mod workload;

pub(crate) use driver::block_on;
pub(crate) use real::Dir;
pub(crate) use workload::{numbered, pg};
