//! A transaction being applied: changes over the database, and what it counts.

use bytes::Bytes;

use super::format::{Onode, stripe_key};
use crate::StoreError;
use crate::keyed::Keys;
use crate::keyed::changes::Changes;

/// Changes over a database.
pub(super) struct Txn<'a> {
    pub(super) changes: Changes<'a, Onode>,
    /// Stripes of new objects, in bytes.
    pub(super) stripe_len: u32,
    /// Largest number given out.
    pub(super) last_nid: u64,
    /// Bytes in stripes, more or less than before.
    pub(super) data_delta: i64,
}

impl<'a> Txn<'a> {
    pub(super) fn new(keys: &'a dyn Keys, stripe_len: u32, last_nid: u64) -> Txn<'a> {
        Txn { changes: Changes::over(keys), stripe_len, last_nid, data_delta: 0 }
    }

    /// A stripe's bytes, empty if it is not there; may be shorter than a stripe, zeros follow.
    pub(super) fn stripe(&self, onode: &Onode, offset: u64) -> Result<Bytes, StoreError> {
        stripe(onode, offset, |key| self.changes.get(key))
    }
}

/// [`Txn::stripe`] by whatever reads keys.
pub(super) fn stripe(
    onode: &Onode,
    offset: u64,
    get: impl Fn(&[u8]) -> Result<Option<Bytes>, StoreError>,
) -> Result<Bytes, StoreError> {
    if !onode.has(offset / u64::from(onode.stripe_size.max(1))) {
        return Ok(Bytes::new());
    }
    get(&stripe_key(onode.nid, offset))?.ok_or(StoreError::Format("a stripe is missing"))
}
