//! A part of the monitors' key-value store, for the manager (54).

use std::collections::BTreeMap;

use bytes::Bytes;
use denc::Denc;

/// Type 54.
#[derive(Debug, Clone, PartialEq, Eq, Denc)]
pub struct MKVData {
    /// Version of the store.
    pub version: u64,
    /// Which part: keys with this prefix.
    pub prefix: String,
    /// Whether `data` only has changes; otherwise it is everything.
    pub incremental: bool,
    /// Values by key; `None` is a removal.
    pub data: BTreeMap<String, Option<Bytes>>,
}
message!(MKVData, 54, 1 / 1);
