//! The contract's test suite: random transactions against a simple model, on every backend, with
//! crashes, faults and full devices.

mod blue;
mod blue_crash;
mod caching;
mod common;
mod contract;
mod cost;
mod crash;
mod discarding;
mod faults;
mod filling;
mod gathering;
mod growing;
mod kstore_crash;
mod native;
mod pg_log;
mod real;
