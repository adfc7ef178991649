//! The object store: transactions on collections of objects, and the backends that keep them.
//!
//! [`ObjectStore`] is the contract, [`Transaction`] what changes an object, [`memstore`] the
//! backend that forgets, [`inkstore`] the one on a device,
//! [`bluestore`] the one on a device with its metadata in a key-value database,
//! [`kstore`] the one in a key-value database (`keyed` is what these two share), [`filestore`] the one in
//! files. [`kv`] is key-value databases.
//! Knows objects and collections; knows neither placement groups nor maps.

mod blocking;
pub mod bluestore;
mod check;
mod coll;
mod error;
pub mod filestore;
pub mod injected;
pub mod inkstore;
mod keyed;
pub mod kstore;
pub mod kv;
pub mod memstore;
mod object_key;
mod object_store;
mod pool_options;
mod room;
mod transaction;
pub mod transfer;
mod varint;

/// `tests/suite/common`, whose files name this crate as they do in the suite.
#[cfg(test)]
#[path = "../tests/suite/common/mod.rs"]
#[allow(dead_code, unused_imports)]
mod testing;
#[cfg(test)]
extern crate self as store;

pub use check::{Existing, check, split_moves};
pub use coll::CollId;
pub use error::StoreError;
pub use kv::{Kv, KvBatch, KvError, KvOp};
pub use object_store::StoreCounter;
pub use object_store::{
    Fsck, FsckOptions, Listing, OBJECT_LEN_MAX, ObjectStat, ObjectStore, OmapPage,
};
pub use object_store::{PoolStatfs, Statfs};
pub use pool_options::PoolOptions;
pub use transaction::{CollIndex, Key, ObjectIndex, Op, Pairs, Transaction};
