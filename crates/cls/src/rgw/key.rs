//! Names of objects and the omap keys of a bucket index.
//!
//! ```text
//! plain         name                                  unversioned object, or marker of a versioned
//! list          name \0v epoch \0i instance           one version, the newest first
//! log           \x80 0_ index_ver.pg_ver.step         bucket index log
//! instance      \x80 1000_ name \0i instance [\0d]    one version; \0d: null delete marker
//! OLH           \x80 1001_ name                       which version is the current one
//! ```
//!
//! No UTF-8 text begins with 0x80, so the special keys stand apart, but names stand on both sides
//! of them.

use bstr::{BStr, BString, ByteSlice};
use denc::Denc;
use types::Errno;

/// First byte of the special keys.
pub(super) const SPECIAL: u8 = 0x80;
/// What keys of the bucket index log begin with.
pub(super) const LOG: &[u8] = b"\x800_";
/// Behind all of them.
pub(super) const LOG_END: &[u8] = b"\x801000_";
/// What keys of instances begin with.
pub(super) const INSTANCE: &[u8] = b"\x801000_";
/// What keys of OLHs begin with.
pub(super) const OLH: &[u8] = b"\x801001_";
/// Behind all special keys, before all names that begin with a higher byte.
pub(super) const SPECIAL_END: &[u8] = b"\x809999_";
/// Behind each special key in a listing that skips them.
pub(super) const AFTER_SPECIAL: &[u8] = b"\x81";
/// In no UTF-8 text: a path with it stands behind all that begins with the path.
const AFTER_PREFIX: u8 = 0xff;
/// The instance by which S3 names the version without one.
pub(super) const NULL_INSTANCE: &[u8] = b"null";

/// An object of a bucket. Wire: cls_rgw_obj_key v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct ObjKey {
    /// Name.
    pub name: BString,
    /// Version id, empty where there are no versions.
    pub instance: BString,
}

impl ObjKey {
    /// The object without a version.
    pub fn of_name(name: impl Into<BString>) -> ObjKey {
        ObjKey { name: name.into(), instance: BString::default() }
    }

    /// The same with S3's `null` as no instance.
    pub(super) fn without_null(&self) -> ObjKey {
        let mut key = self.clone();
        if key.instance == NULL_INSTANCE {
            key.instance.clear();
        }
        key
    }
}

fn joined(parts: &[&[u8]]) -> BString {
    parts.concat().into()
}

/// Where the object's entry is: the instance's, or the plain one where there is no instance.
pub(super) fn entry_key(key: &ObjKey) -> BString {
    if key.instance.is_empty() { key.name.clone() } else { instance_key(key) }
}

/// The instance's key, also of the null version.
pub(super) fn instance_key(key: &ObjKey) -> BString {
    joined(&[INSTANCE, &key.name, b"\0i", &key.instance])
}

/// The key of a delete marker without an instance: the null version may be there beside it.
pub(super) fn delete_marker_key(key: &ObjKey) -> BString {
    joined(&[INSTANCE, &key.name, b"\0i", &key.instance, b"\0d"])
}

/// The key of a name's OLH.
pub(super) fn olh_key(name: &[u8]) -> BString {
    joined(&[OLH, name])
}

/// A log entry's key.
pub(super) fn log_key(id: &[u8]) -> BString {
    joined(&[LOG, id])
}

/// Where a version stands in listings.
pub(super) fn list_key(key: &ObjKey, versioned_epoch: u64) -> BString {
    let epoch = decreasing(versioned_epoch);
    joined(&[&key.name, b"\0v", epoch.as_bytes(), b"\0i", &key.instance])
}

/// Behind all versions of a name whose instance is not known.
pub(super) fn after_name(name: &[u8]) -> BString {
    joined(&[name, b"\x01"])
}

/// Behind all names that begin with `path`.
pub(super) fn after_path(path: &[u8]) -> BString {
    joined(&[path, &[AFTER_PREFIX]])
}

/// A number as text that sorts the higher the lower it is, and is longer the higher it is.
fn decreasing(value: u64) -> String {
    match value {
        0..0x10 => format!("9{:02}", 0xf - value),
        0x10..0x100 => format!("8{:03}", 0xff - value),
        0x100..0x1000 => format!("7{:04}", 0xfff - value),
        0x1000..0x1_0000 => format!("6{:05}", 0xffff - value),
        0x1_0000..0x1_0000_0000 => format!("5{:010}", 0xffff_ffff - value),
        _ => format!("4{:020}", value.wrapping_neg().cast_signed()),
    }
}

/// The name in a listed key. A key whose parts make no sense is `EIO`.
pub(super) fn listed_name(key: &[u8]) -> Result<&[u8], Errno> {
    let Some((name, rest)) = key.split_once_str(b"\0") else { return Ok(key) };
    if rest.is_empty() {
        return Err(Errno::EIO);
    }
    let epochs = rest.split_str(b"\0").filter_map(|part| part.strip_prefix(b"v"));
    for epoch in epochs {
        let number = core::str::from_utf8(epoch).ok().and_then(|text| text.parse::<i64>().ok());
        number.ok_or(Errno::EIO)?;
    }
    Ok(name)
}

/// Whether a key is none of the special ones. An empty key is a marker before all.
pub(super) fn is_plain(key: &[u8]) -> bool {
    key.first() != Some(&SPECIAL)
}

/// Whether `first` is behind `second` by the order of the listing of all entries: plain ones, log,
/// instances, OLHs; special keys of no known kind stand before all.
pub(super) fn is_behind(first: &[u8], second: &[u8]) -> bool {
    let kind = |key: &[u8]| {
        if is_plain(key) {
            return 1;
        }
        let known = [LOG, INSTANCE, OLH, SPECIAL_END].iter().position(|p| key.starts_with(p));
        known.map_or(0, |position| position + 2)
    };
    (kind(first), BStr::new(first)) > (kind(second), BStr::new(second))
}
