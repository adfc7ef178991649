//! Who speaks: `osd.3`, `client.4123`, `client.admin`.

use core::fmt;
use core::str::FromStr;

use denc::{Denc, Error, Reader, Writer};

/// A monitor.
pub const MON: u8 = 1;
/// A metadata server.
pub const MDS: u8 = 2;
/// An OSD.
pub const OSD: u8 = 4;
/// A client.
pub const CLIENT: u8 = 8;
/// A manager.
pub const MGR: u8 = 16;
/// The authentication service (only in tickets and keys).
pub const AUTH: u8 = 32;
/// Any of them.
pub const ANY: u8 = 255;

/// The word for a kind of entity; `unknown` for a number without one.
pub fn kind_name(kind: u8) -> &'static str {
    match kind {
        MON => "mon",
        MDS => "mds",
        OSD => "osd",
        CLIENT => "client",
        MGR => "mgr",
        AUTH => "auth",
        _ => "unknown",
    }
}

/// The kind of entity a word names.
pub fn kind_from_name(name: &str) -> Option<u8> {
    [MON, MDS, OSD, CLIENT, MGR, AUTH].into_iter().find(|kind| kind_name(*kind) == name)
}

/// A peer on a connection: kind and number (an OSD's id, a mon's rank, a client's global id).
/// Wire: entity_name_t (u8, s64).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Denc)]
pub struct EntityName {
    /// One of this module's constants.
    pub kind: u8,
    /// The number, -1 while unknown.
    pub num: i64,
}

impl EntityName {
    /// A name.
    pub const fn new(kind: u8, num: i64) -> EntityName {
        EntityName { kind, num }
    }
    /// `osd.N`.
    pub fn osd(id: i32) -> EntityName {
        EntityName { kind: OSD, num: id.into() }
    }
    /// `mon.RANK`.
    pub fn mon(rank: i64) -> EntityName {
        EntityName { kind: MON, num: rank }
    }
    /// `client.GID`.
    pub fn client(gid: i64) -> EntityName {
        EntityName { kind: CLIENT, num: gid }
    }
    /// `mgr.GID`.
    pub fn mgr(gid: i64) -> EntityName {
        EntityName { kind: MGR, num: gid }
    }
    /// Whether this is an OSD.
    pub fn is_osd(&self) -> bool {
        self.kind == OSD
    }
    /// Whether this is a monitor.
    pub fn is_mon(&self) -> bool {
        self.kind == MON
    }
    /// Whether this is a client.
    pub fn is_client(&self) -> bool {
        self.kind == CLIENT
    }
    /// Whether this is a metadata server.
    pub fn is_mds(&self) -> bool {
        self.kind == MDS
    }
    /// Whether this is a manager.
    pub fn is_mgr(&self) -> bool {
        self.kind == MGR
    }
}

impl fmt::Display for EntityName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.num < 0 {
            write!(f, "{}.?", kind_name(self.kind))
        } else {
            write!(f, "{}.{}", kind_name(self.kind), self.num)
        }
    }
}

/// The text names no entity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParseEntityError;

impl fmt::Display for ParseEntityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not an entity of the form type.id")
    }
}

impl std::error::Error for ParseEntityError {}

impl FromStr for EntityName {
    type Err = ParseEntityError;
    fn from_str(s: &str) -> Result<EntityName, ParseEntityError> {
        let (kind, num) = s.split_once('.').ok_or(ParseEntityError)?;
        Ok(EntityName {
            kind: kind_from_name(kind).ok_or(ParseEntityError)?,
            num: num.parse().map_err(|_| ParseEntityError)?,
        })
    }
}

/// A name with a key: `client.admin`, `osd.0`. Wire: EntityName (u32 type, string id).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct AuthEntityName {
    /// One of this module's constants, as u32.
    pub kind: u32,
    /// What follows the dot.
    pub id: String,
}

impl AuthEntityName {
    /// A name.
    pub fn new(kind: u8, id: impl Into<String>) -> AuthEntityName {
        AuthEntityName { kind: kind.into(), id: id.into() }
    }

    /// The kind as connections say it; [`ANY`] for a number that is no kind.
    pub fn kind_u8(&self) -> u8 {
        u8::try_from(self.kind).unwrap_or(ANY)
    }

    /// The word before the dot.
    pub fn kind_name(&self) -> &'static str {
        kind_name(self.kind_u8())
    }

    /// Whether this is a client.
    pub fn is_client(&self) -> bool {
        self.kind == u32::from(CLIENT)
    }
}

impl Denc for AuthEntityName {
    fn encode(&self, w: &mut Writer) {
        w.u32(self.kind);
        w.put(&self.id);
    }
    fn decode(r: &mut Reader<'_>) -> Result<AuthEntityName, Error> {
        Ok(AuthEntityName { kind: r.u32()?, id: r.get()? })
    }
}

impl fmt::Display for AuthEntityName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.kind_name(), self.id)
    }
}

impl FromStr for AuthEntityName {
    type Err = ParseEntityError;
    fn from_str(s: &str) -> Result<AuthEntityName, ParseEntityError> {
        let (kind, id) = s.split_once('.').ok_or(ParseEntityError)?;
        Ok(AuthEntityName::new(kind_from_name(kind).ok_or(ParseEntityError)?, id))
    }
}

/// A name and an address. Wire: entity_inst_t, bare.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
pub struct EntityInst {
    /// The name.
    pub name: EntityName,
    /// The address.
    pub addr: crate::addr::EntityAddr,
}
