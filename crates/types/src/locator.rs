//! Where an object is looked for: pool, namespace, and what overrides its name in placement.

use core::fmt;

use bstr::BString;
use denc::{Denc, Error, Reader, Writer};

/// Wire: object_locator_t v6, compat 6 when a hash is given, else 3.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectLocator {
    /// The pool, -1 for none.
    pub pool: i64,
    /// Placement key instead of the name; empty for none.
    pub key: BString,
    /// Namespace.
    pub namespace: BString,
    /// Placement hash itself (PG listings), -1 for none.
    pub hash: i64,
}

impl Default for ObjectLocator {
    fn default() -> ObjectLocator {
        ObjectLocator { pool: -1, key: BString::default(), namespace: BString::default(), hash: -1 }
    }
}

impl ObjectLocator {
    /// The default namespace of a pool.
    pub fn pool(pool: i64) -> ObjectLocator {
        ObjectLocator { pool, ..ObjectLocator::default() }
    }

    /// Whether nothing is set.
    pub fn is_empty(&self) -> bool {
        self.pool == -1
    }

    /// Placement hash of an object here.
    pub fn hash_of(&self, name: &[u8]) -> u32 {
        match u32::try_from(self.hash) {
            Ok(hash) => hash,
            Err(_) => crate::hash::object_hash(&self.namespace, &self.key, name),
        }
    }
}

impl Denc for ObjectLocator {
    fn encode(&self, w: &mut Writer) {
        // A reader that does not know the hash would place the object by its name.
        let compat = if self.hash == -1 { 3 } else { 6 };
        w.envelope(6, compat, |w| {
            w.i64(self.pool);
            w.i32(-1); // preferred OSD, gone
            w.put(&self.key);
            w.put(&self.namespace);
            w.i64(self.hash);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<ObjectLocator, Error> {
        r.envelope("ObjectLocator", 6, 3, |r, v| {
            let pool = r.i64()?;
            r.i32()?;
            Ok(ObjectLocator {
                pool,
                key: r.get()?,
                namespace: if v >= 5 { r.get()? } else { BString::default() },
                hash: if v >= 6 { r.i64()? } else { -1 },
            })
        })
    }
}

impl fmt::Display for ObjectLocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{}", self.pool)?;
        if !self.namespace.is_empty() {
            write!(f, ";{}", self.namespace)?;
        }
        if !self.key.is_empty() {
            write!(f, ":{}", self.key)?;
        }
        Ok(())
    }
}
