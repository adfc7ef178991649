//! Objects in a key-value database: what KStore and BlueStore share.
//!
//! Both keep collections, onodes with xattrs, and omaps under the same kinds of keys ([`keys`]),
//! collect what a transaction changes over the database ([`changes`]), give each operation the same
//! meaning ([`apply`]), read alike ([`read`]) and make durable together what waits ([`rounds`]). What
//! differs is where data is: a backend says so in [`apply::Objects`] and [`read::Reads`].

pub(crate) mod apply;
pub(crate) mod changes;
pub(crate) mod keys;
pub(crate) mod read;
pub(crate) mod rounds;

use std::collections::BTreeMap;

use bstr::BString;
use bytes::Bytes;
use denc::Denc;

use crate::StoreError;

/// A database, or one with changes over it, as readers of keys see it.
pub(crate) trait Keys {
    /// A key's value.
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError>;
    /// The entries of `start..end` in order, until `visit` says no.
    fn scan(
        &self,
        start: &[u8],
        end: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError>;
}

/// What is known of an object besides its data: the value under its key.
pub(crate) trait Onode: Denc + Clone + Send {
    /// Bytes of the object.
    fn size(&self) -> u64;
    /// Xattrs.
    fn attrs(&mut self) -> &mut BTreeMap<BString, Bytes>;
    /// The number of its omap, 0 if it never had one.
    fn omap(&mut self) -> &mut u64;
    /// What the client expects: object size, write size, flags.
    fn set_hint(&mut self, object_size: u64, write_size: u64, flags: u32);
}

/// A value of the database, decoded.
pub(crate) fn decoded<T: Denc>(value: &Bytes, what: &'static str) -> Result<T, StoreError> {
    T::from_bytes_exact(value).map_err(|_| StoreError::Format(what))
}
