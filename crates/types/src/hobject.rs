//! Objects as OSDs name them, their one total order ("bitwise"), and cursors in that order.
//!
//! ```text
//! hobject_t  v4/c3: string key | string name | u64 snap | u32 hash | u8 max
//!                   | string namespace | s64 pool
//! ghobject_t v6/c3: the same | u64 generation | s8 shard | u8 max
//! ```
//!
//! (`src/common/hobject.cc` at v16.2.) Order: max last; pool; bits of the hash reversed;
//! namespace; key, or name where there is none; name; snap.

use core::cmp::Ordering;
use core::fmt;
use core::str::FromStr;
use std::borrow::Cow;

use bstr::{BString, ByteSlice};
use denc::{Denc, Error, Reader, Writer};

use crate::locator::ObjectLocator;
use crate::snap::{NOSNAP, SNAPDIR, SnapId, snap_text};

/// Generation of an object that is not a kept old version.
pub const NO_GEN: u64 = u64::MAX;

/// Pool of the smallest object.
const POOL_MIN: i64 = i64::MIN;

/// Pools at or below this hold temporary objects: pool p becomes -2 - p.
const POOL_TEMP_START: i64 = -2;

/// An object, one of its clones, or a position between objects. Wire: hobject_t v4.
#[derive(Debug, Clone, Eq)]
pub struct HObject {
    /// Locator key, empty when it equals the name.
    pub key: BString,
    /// Name.
    pub name: BString,
    /// Clone, or [`NOSNAP`] for the head.
    pub snap: SnapId,
    /// Placement hash.
    pub hash: u32,
    /// Behind all objects; nothing else counts then.
    pub max: bool,
    /// Namespace.
    pub namespace: BString,
    /// Pool.
    pub pool: i64,
}

/// Numbers first, which tell most apart, and no call for texts that are empty, as all but the name mostly are.
impl PartialEq for HObject {
    fn eq(&self, other: &HObject) -> bool {
        let same = |a: &BString, b: &BString| a.len() == b.len() && (a.is_empty() || a == b);
        (self.hash, self.snap, self.pool, self.max)
            == (other.hash, other.snap, other.pool, other.max)
            && same(&self.name, &other.name)
            && same(&self.key, &other.key)
            && same(&self.namespace, &other.namespace)
    }
}

/// By the placement hash, which is one of the name.
impl core::hash::Hash for HObject {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        state.write_u64(u64::from(self.hash) << 32 ^ self.snap);
    }
}

/// The smallest object.
impl Default for HObject {
    fn default() -> HObject {
        HObject {
            key: BString::default(),
            name: BString::default(),
            snap: 0,
            hash: 0,
            max: false,
            namespace: BString::default(),
            pool: POOL_MIN,
        }
    }
}

impl HObject {
    /// The smallest object.
    pub fn min() -> HObject {
        HObject::default()
    }

    /// The largest: behind everything.
    pub fn max() -> HObject {
        HObject { max: true, ..HObject::default() }
    }

    /// The head or a clone of `name` where `locator` says, with its hash.
    pub fn new(name: impl Into<BString>, locator: &ObjectLocator, snap: SnapId) -> HObject {
        let name = name.into();
        let hash = locator.hash_of(&name);
        let key = if locator.key == name { BString::default() } else { locator.key.clone() };
        HObject {
            key,
            name,
            snap,
            hash,
            max: false,
            namespace: locator.namespace.clone(),
            pool: locator.pool,
        }
    }

    /// Whether this is [`HObject::min`].
    pub fn is_min(&self) -> bool {
        *self == HObject::default()
    }

    /// Whether this is [`HObject::max`].
    pub fn is_max(&self) -> bool {
        self.max
    }

    /// Whether this is the head, not a clone.
    pub fn is_head(&self) -> bool {
        self.snap == NOSNAP
    }

    /// Whether this is a clone.
    pub fn is_snap(&self) -> bool {
        self.snap != NOSNAP && self.snap != SNAPDIR && !self.max && !self.is_min()
    }

    /// Whether this is a temporary object of recovery.
    pub fn is_temp(&self) -> bool {
        self.pool <= POOL_TEMP_START && self.pool != POOL_MIN
    }

    /// Whether this is where a PG keeps its own metadata: no name in a real pool.
    pub fn is_pgmeta(&self) -> bool {
        self.pool >= 0 && self.name.is_empty()
    }

    /// The head of this object.
    pub fn head(&self) -> HObject {
        self.with_snap(NOSNAP)
    }

    /// The same, where it mostly is the head already.
    pub fn as_head(&self) -> Cow<'_, HObject> {
        match self.is_head() {
            true => Cow::Borrowed(self),
            false => Cow::Owned(self.head()),
        }
    }

    /// The same object at another snap id.
    pub fn with_snap(&self, snap: SnapId) -> HObject {
        HObject { snap, ..self.clone() }
    }

    /// The position before the clones and the head of this object.
    pub fn object_boundary(&self) -> HObject {
        if self.max { self.clone() } else { self.with_snap(0) }
    }

    /// The hash with its bits reversed: what objects of a pool are sorted by.
    pub fn bitwise_key(&self) -> u32 {
        self.hash.reverse_bits()
    }

    /// Key for placement among objects of one hash.
    pub fn effective_key(&self) -> &[u8] {
        if self.key.is_empty() { &self.name } else { &self.key }
    }

    /// Same object, whatever the snap.
    pub fn same_object(&self, other: &HObject) -> bool {
        self.hash == other.hash
            && self.pool == other.pool
            && self.name == other.name
            && self.key == other.key
            && self.namespace == other.namespace
            && self.max == other.max
    }

    /// The locator this object was found by.
    pub fn locator(&self) -> ObjectLocator {
        ObjectLocator {
            pool: self.pool,
            key: self.key.clone(),
            namespace: self.namespace.clone(),
            hash: -1,
        }
    }

    /// A temporary object of the same pool and hash.
    pub fn make_temp(&self, name: impl Into<BString>) -> HObject {
        HObject {
            key: BString::default(),
            name: name.into(),
            snap: NOSNAP,
            hash: self.hash,
            max: false,
            namespace: BString::default(),
            pool: POOL_TEMP_START - self.pool,
        }
    }
}

impl Ord for HObject {
    fn cmp(&self, other: &HObject) -> Ordering {
        self.max
            .cmp(&other.max)
            .then_with(|| self.pool.cmp(&other.pool))
            .then_with(|| cmp_reversed(self.hash, other.hash))
            .then_with(|| {
                if self.namespace.is_empty() && other.namespace.is_empty() {
                    Ordering::Equal
                } else {
                    self.namespace.cmp(&other.namespace)
                }
            })
            .then_with(|| {
                if self.key.is_empty() && other.key.is_empty() {
                    Ordering::Equal
                } else {
                    self.effective_key().cmp(other.effective_key())
                }
            })
            .then_with(|| self.name.cmp(&other.name))
            .then_with(|| self.snap.cmp(&other.snap))
            // Never reached by objects that exist (a key equal to the name is not stored);
            // keeps the order consistent with equality.
            .then_with(|| self.key.len().cmp(&other.key.len()))
            .then_with(|| self.key.cmp(&other.key))
    }
}

/// How two numbers compare with their bits in reverse: by the lowest bit in which they differ.
fn cmp_reversed(a: u32, b: u32) -> Ordering {
    let differ = a ^ b;
    let lowest = differ & differ.wrapping_neg();
    (a & lowest).cmp(&(b & lowest))
}

impl PartialOrd for HObject {
    fn partial_cmp(&self, other: &HObject) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Writes a part of an object's text form; what would be mistaken for structure is %-escaped.
fn write_escaped(f: &mut fmt::Formatter<'_>, text: &[u8]) -> fmt::Result {
    for &c in text {
        match c {
            b'%' | b':' | b'/' => write!(f, "%{c:02x}")?,
            32..127 => write!(f, "{}", char::from(c))?,
            _ => write!(f, "%{c:02x}")?,
        }
    }
    Ok(())
}

fn unescape(text: &[u8]) -> Result<BString, ParseHObjectError> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&c, tail)) = rest.split_first() {
        if c != b'%' {
            out.push(c);
            rest = tail;
            continue;
        }
        let digits = tail.get(..2).and_then(|d| core::str::from_utf8(d).ok());
        let byte = digits.and_then(|d| u8::from_str_radix(d, 16).ok()).ok_or(ParseHObjectError)?;
        out.push(byte);
        rest = &tail[2..];
    }
    Ok(BString::from(out))
}

/// `2:4a2b1c3d:namespace:key:name:head`, the hash bit-reversed in eight hex digits; `MIN`,
/// `MAX`.
impl fmt::Display for HObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.max {
            return f.write_str("MAX");
        }
        if self.is_min() {
            return f.write_str("MIN");
        }
        write!(f, "{}:{:08x}:", self.pool, self.bitwise_key())?;
        write_escaped(f, &self.namespace)?;
        f.write_str(":")?;
        write_escaped(f, &self.key)?;
        f.write_str(":")?;
        write_escaped(f, &self.name)?;
        write!(f, ":{}", snap_text(self.snap))
    }
}

/// The text is no object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParseHObjectError;

impl fmt::Display for ParseHObjectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not an object of the form pool:hash:namespace:key:name:snap")
    }
}

impl std::error::Error for ParseHObjectError {}

fn hex<T>(text: &[u8], parse: fn(&str, u32) -> Result<T, core::num::ParseIntError>) -> Option<T> {
    parse(core::str::from_utf8(text).ok()?, 16).ok()
}

impl HObject {
    fn parse(text: &[u8]) -> Option<HObject> {
        if text == b"MIN" {
            return Some(HObject::min());
        }
        if text == b"MAX" {
            return Some(HObject::max());
        }
        let mut parts = text.split(|&c| c == b':');
        let pool = core::str::from_utf8(parts.next()?).ok()?.parse().ok()?;
        let bitwise_key = hex(parts.next()?, u32::from_str_radix)?;
        let namespace = unescape(parts.next()?).ok()?;
        let key = unescape(parts.next()?).ok()?;
        let name = unescape(parts.next()?).ok()?;
        let snap = match parts.next()? {
            b"head" => NOSNAP,
            b"snapdir" => SNAPDIR,
            snap => hex(snap, u64::from_str_radix)?,
        };
        if parts.next().is_some() {
            return None;
        }
        let hash = bitwise_key.reverse_bits();
        Some(HObject { key, name, snap, hash, max: false, namespace, pool })
    }
}

impl FromStr for HObject {
    type Err = ParseHObjectError;
    fn from_str(s: &str) -> Result<HObject, ParseHObjectError> {
        HObject::parse(s.as_bytes()).ok_or(ParseHObjectError)
    }
}

impl HObject {
    fn encode_fields(&self, w: &mut Writer) {
        w.put(&self.key);
        w.put(&self.name);
        w.u64(self.snap);
        w.u32(self.hash);
        w.bool(self.max);
        w.put(&self.namespace);
        w.i64(self.pool);
    }

    fn decode_fields(r: &mut Reader<'_>) -> Result<HObject, Error> {
        let mut object = HObject {
            key: r.get()?,
            name: r.get()?,
            snap: r.u64()?,
            hash: r.u32()?,
            max: r.bool()?,
            namespace: r.get()?,
            pool: r.i64()?,
        };
        // Releases before jewel wrote the smallest object with pool -1.
        if object.pool == -1 {
            object.pool = POOL_MIN;
            if !object.is_min() {
                object.pool = -1;
            }
        }
        Ok(object)
    }
}

impl Denc for HObject {
    fn encode(&self, w: &mut Writer) {
        w.envelope(4, 3, |w| self.encode_fields(w));
    }
    fn decode(r: &mut Reader<'_>) -> Result<HObject, Error> {
        r.envelope("HObject", 4, 4, |r, _| HObject::decode_fields(r))
    }
}

/// An object in a store: with the shard of its PG and, for erasure coded pools, a generation
/// kept for rollback. Wire: ghobject_t v6.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct GhObject {
    /// The object.
    pub hobj: HObject,
    /// [`NO_GEN`] unless this is a kept old version.
    pub generation: u64,
    /// The shard, -1 for none.
    pub shard: i8,
    /// Behind all objects.
    pub max: bool,
}

/// The smallest object.
impl Default for GhObject {
    fn default() -> GhObject {
        GhObject {
            hobj: HObject::default(),
            generation: NO_GEN,
            shard: crate::pg::NO_SHARD,
            max: false,
        }
    }
}

impl GhObject {
    /// The smallest object.
    pub fn min() -> GhObject {
        GhObject::default()
    }

    /// The largest: behind everything.
    pub fn max() -> GhObject {
        GhObject { hobj: HObject::max(), max: true, ..GhObject::default() }
    }

    /// The object in a replicated pool.
    pub fn new(hobj: HObject) -> GhObject {
        GhObject { hobj, ..GhObject::default() }
    }

    /// Whether this is [`GhObject::max`].
    pub fn is_max(&self) -> bool {
        self.max
    }

    /// Whether this is a PG's own metadata object.
    pub fn is_pgmeta(&self) -> bool {
        self.hobj.is_pgmeta()
    }
}

impl From<HObject> for GhObject {
    fn from(hobj: HObject) -> GhObject {
        GhObject::new(hobj)
    }
}

impl Ord for GhObject {
    fn cmp(&self, other: &GhObject) -> Ordering {
        self.max
            .cmp(&other.max)
            .then_with(|| self.shard.cmp(&other.shard))
            .then_with(|| self.hobj.cmp(&other.hobj))
            .then_with(|| self.generation.cmp(&other.generation))
    }
}

impl PartialOrd for GhObject {
    fn partial_cmp(&self, other: &GhObject) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// `shard#object#generation`, shard and generation left out when none; `GHMIN`, `GHMAX`.
impl fmt::Display for GhObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.max {
            return f.write_str("GHMAX");
        }
        if *self == GhObject::default() {
            return f.write_str("GHMIN");
        }
        if self.shard != crate::pg::NO_SHARD {
            write!(f, "{:x}", self.shard as u8)?;
        }
        write!(f, "#{}#", self.hobj)?;
        if self.generation != NO_GEN {
            write!(f, "{:x}", self.generation)?;
        }
        Ok(())
    }
}

impl FromStr for GhObject {
    type Err = ParseHObjectError;
    fn from_str(s: &str) -> Result<GhObject, ParseHObjectError> {
        match s {
            "GHMIN" => return Ok(GhObject::min()),
            "GHMAX" => return Ok(GhObject::max()),
            _ => {}
        }
        let text = s.as_bytes();
        let first = text.find_byte(b'#').ok_or(ParseHObjectError)?;
        let last = text.rfind_byte(b'#').filter(|&l| l > first).ok_or(ParseHObjectError)?;
        let shard = match &text[..first] {
            b"" => crate::pg::NO_SHARD,
            digits => hex(digits, i8::from_str_radix).ok_or(ParseHObjectError)?,
        };
        let generation = match &text[last + 1..] {
            b"" => NO_GEN,
            digits => hex(digits, u64::from_str_radix).ok_or(ParseHObjectError)?,
        };
        let hobj = HObject::parse(&text[first + 1..last]).ok_or(ParseHObjectError)?;
        Ok(GhObject { hobj, generation, shard, max: false })
    }
}

impl Denc for GhObject {
    fn encode(&self, w: &mut Writer) {
        w.envelope(6, 3, |w| {
            self.hobj.encode_fields(w);
            w.u64(self.generation);
            w.i8(self.shard);
            w.bool(self.max);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<GhObject, Error> {
        r.envelope("GhObject", 6, 4, |r, v| {
            let hobj = HObject::decode_fields(r)?;
            let (generation, shard) =
                if v >= 5 { (r.u64()?, r.i8()?) } else { (NO_GEN, crate::pg::NO_SHARD) };
            let max = if v >= 6 { r.bool()? } else { false };
            Ok(GhObject { hobj, generation, shard, max })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(name: &str) -> HObject {
        HObject::new(name, &ObjectLocator::pool(2), NOSNAP)
    }

    #[test]
    fn text_forms() {
        let mut o = object("obj1");
        assert_eq!(o.to_string(), "2:ff7b1f36:::obj1:head");
        o.namespace = "n/s".into();
        o.key = "k:".into();
        o.snap = 0x1f;
        assert_eq!(o.to_string(), "2:ff7b1f36:n%2fs:k%3a:obj1:1f");
        for o in [o, HObject::min(), HObject::max(), object("\u{e9}%")] {
            assert_eq!(o.to_string().parse(), Ok(o));
        }
        let g = GhObject { shard: 3, generation: 0x2a, ..GhObject::new(object("a#b")) };
        assert!(g.to_string().starts_with("3#2:") && g.to_string().ends_with(":::a#b:head#2a"));
        assert_eq!(g.to_string().parse(), Ok(g));
    }

    #[test]
    fn order_is_bitwise() {
        let at = |hash: u32, name: &str| HObject { hash, name: name.into(), ..object("") };
        let sorted = [
            HObject::min(),
            at(0, "z"),
            at(4, "a"),
            at(2, "a"),
            at(6, "a"),
            at(1, "a"),
            at(1, "b"),
            HObject { key: "c".into(), ..at(1, "0") },
            HObject { pool: 3, ..at(0, "a") },
            HObject::max(),
        ];
        assert!(sorted.is_sorted(), "{sorted:?}");
        assert!(object("x").with_snap(5) < object("x"));
        assert!(GhObject::new(HObject::max()) < GhObject::max());
    }

    #[test]
    fn encodings_return() {
        for o in [object("a"), HObject::min(), HObject::max()] {
            assert_eq!(HObject::from_bytes_exact(&o.to_bytes()), Ok(o));
        }
    }
}
