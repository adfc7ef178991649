//! Names of collections. Wire: coll_t (`src/osd/osd_types.h` at v16.2).

use core::fmt;
use std::str::FromStr;

use bstr::BString;
use denc::{Denc, Error, Reader, Writer};
use types::pg::{PgId, SpgId};

/// A collection: what a transaction creates, removes, splits and lists.
///
/// The order is Ceph's: by kind, then by placement group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CollId {
    /// The OSD's own objects: superblock, maps.
    Meta,
    /// A placement group's objects.
    Pg(SpgId),
    /// A placement group's objects under recovery. Ceph keeps the name; nothing creates it.
    PgTemp(SpgId),
}

/// Kinds on the wire (coll_t::type_t).
const TYPE_META: u8 = 0;
const TYPE_PG: u8 = 2;
/// CEPH_NOSNAP, the only snap a collection has had since Ceph's objects carry theirs.
const NOSNAP: u64 = u64::MAX - 1;
/// Shard of a replicated pool.
const NO_SHARD: i8 = -1;

impl CollId {
    /// The placement group, if it is one's.
    pub fn spg(&self) -> Option<SpgId> {
        match self {
            CollId::Meta => None,
            CollId::Pg(pg) | CollId::PgTemp(pg) => Some(*pg),
        }
    }
}

impl fmt::Display for CollId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CollId::Meta => f.write_str("meta"),
            CollId::Pg(pg) => write!(f, "{pg}_head"),
            CollId::PgTemp(pg) => write!(f, "{pg}_TEMP"),
        }
    }
}

/// Not a collection's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParseCollIdError;

impl FromStr for CollId {
    type Err = ParseCollIdError;
    fn from_str(s: &str) -> Result<CollId, ParseCollIdError> {
        if s == "meta" {
            return Ok(CollId::Meta);
        }
        let spg = |s: &str| s.parse::<SpgId>().map_err(|_| ParseCollIdError);
        if let Some(pg) = s.strip_suffix("_head") {
            Ok(CollId::Pg(spg(pg)?))
        } else if let Some(pg) = s.strip_suffix("_TEMP") {
            Ok(CollId::PgTemp(spg(pg)?))
        } else {
            Err(ParseCollIdError)
        }
    }
}

impl Denc for CollId {
    /// v2 (kind, pg, snap); a temp collection is v3 (its name), as v2 readers took v2's for older.
    fn encode(&self, w: &mut Writer) {
        let (kind, pg) = match self {
            CollId::Meta => (TYPE_META, SpgId { pgid: PgId { pool: 0, seed: 0 }, shard: NO_SHARD }),
            CollId::Pg(pg) => (TYPE_PG, *pg),
            CollId::PgTemp(_) => {
                w.u8(3);
                w.put(&BString::from(self.to_string()));
                return;
            }
        };
        w.u8(2);
        w.u8(kind);
        w.put(&pg);
        w.u64(NOSNAP);
    }

    fn decode(r: &mut Reader<'_>) -> Result<CollId, Error> {
        match r.u8()? {
            2 => {
                let kind = r.u8()?;
                let pg = r.get::<SpgId>()?;
                r.u64()?;
                match kind {
                    TYPE_META => Ok(CollId::Meta),
                    TYPE_PG => Ok(CollId::Pg(pg)),
                    kind => Err(Error::Invalid { what: "coll_t type", value: kind.into() }),
                }
            }
            3 => {
                let name = r.get::<String>()?;
                name.parse()
                    .map_err(|_| Error::Invalid { what: "coll_t name", value: name.len() as u64 })
            }
            version => Err(Error::Invalid { what: "coll_t version", value: version.into() }),
        }
    }
}
