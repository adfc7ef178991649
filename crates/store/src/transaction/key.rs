//! Names of xattrs and omap keys in a transaction.

use core::ops::Deref;

use bstr::{BStr, BString};
use denc::{Denc, Error, Reader, Writer};
use smallvec::SmallVec;

/// An xattr's name or an omap key in a list ([`super::Pairs`]). Those that each write has (`_`, `snapset`, a PG's
/// log entry and what is remembered of a request, 31 and 35 bytes) stand in place; longer ones are allocated.
/// Ops of one name or a range have them elsewhere: an op takes 64 bytes, with two of these it would take 112.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key(SmallVec<[u8; 36]>);

impl Key {
    /// Appends bytes.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }
}

impl Deref for Key {
    type Target = BStr;

    fn deref(&self) -> &BStr {
        BStr::new(&self.0)
    }
}

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl From<&[u8]> for Key {
    fn from(key: &[u8]) -> Key {
        Key(key.into())
    }
}

impl<const N: usize> From<[u8; N]> for Key {
    fn from(key: [u8; N]) -> Key {
        key[..].into()
    }
}

impl From<&str> for Key {
    fn from(key: &str) -> Key {
        key.as_bytes().into()
    }
}

impl From<String> for Key {
    fn from(key: String) -> Key {
        key.into_bytes()[..].into()
    }
}

impl From<BString> for Key {
    fn from(key: BString) -> Key {
        key[..].into()
    }
}

impl From<&Key> for BString {
    fn from(key: &Key) -> BString {
        (**key).to_owned()
    }
}

impl Denc for Key {
    fn encode(&self, w: &mut Writer) {
        w.blob(&self.0);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(r.blob_slice()?.into())
    }
}
