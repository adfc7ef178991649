//! Reading and writing the omap keys of an object, and a method's arguments.

use std::collections::BTreeMap;

use bstr::{BStr, BString};
use bytes::Bytes;
use denc::{Denc, Error, Reader};
use types::Errno;

use crate::{ObjectContext, stored};

/// Keys of one step of a listing.
pub(super) const PAGE: u64 = 64;

/// A method's arguments, read by `fields`; bytes that are none are the caller's fault.
pub(super) fn arguments<T>(
    input: &Bytes,
    fields: impl FnOnce(&mut Reader<'_>) -> Result<T, Error>,
) -> Result<T, Errno> {
    fields(&mut Reader::new(input)).map_err(|_| Errno::EINVAL)
}

/// An argument that older clients leave away.
pub(super) fn optional<T: Denc>(r: &mut Reader<'_>) -> Result<Option<T>, Error> {
    if r.remaining() == 0 {
        return Ok(None);
    }
    r.get().map(Some)
}

/// `ENOENT` if the object does not exist.
pub(super) async fn check_exists(ctx: &mut dyn ObjectContext) -> Result<(), Errno> {
    ctx.stat().await.map(|_| ())
}

/// A key's value; `ENOENT` if it is not set, `EIO` if it is no `T`.
pub(super) async fn read<T: Denc>(ctx: &mut dyn ObjectContext, key: &[u8]) -> Result<T, Errno> {
    stored(&ctx.omap_val(key).await?)
}

/// A key's value, if it is set.
pub(super) async fn find<T: Denc>(
    ctx: &mut dyn ObjectContext,
    key: &[u8],
) -> Result<Option<T>, Errno> {
    match read(ctx, key).await {
        Err(Errno::ENOENT) => Ok(None),
        other => other.map(Some),
    }
}

/// A key's bytes, if it is set.
pub(super) async fn find_raw(
    ctx: &mut dyn ObjectContext,
    key: &[u8],
) -> Result<Option<Bytes>, Errno> {
    match ctx.omap_val(key).await {
        Err(Errno::ENOENT) => Ok(None),
        other => other.map(Some),
    }
}

/// Sets a key.
pub(super) async fn write<T: Denc>(
    ctx: &mut dyn ObjectContext,
    key: &[u8],
    value: &T,
) -> Result<(), Errno> {
    write_raw(ctx, key, value.to_bytes()).await
}

/// Sets a key to bytes as they are.
pub(super) async fn write_raw(
    ctx: &mut dyn ObjectContext,
    key: &[u8],
    value: Bytes,
) -> Result<(), Errno> {
    ctx.omap_set(BTreeMap::from([(key.into(), value)])).await
}

/// Removes a key; neither it nor its object need exist.
pub(super) async fn remove(ctx: &mut dyn ObjectContext, key: &[u8]) -> Result<(), Errno> {
    match ctx.omap_rm(key).await {
        Err(Errno::ENOENT) => Ok(()),
        other => other,
    }
}

/// `prefix` and `rest`.
pub(super) fn key(prefix: &[u8], rest: &[u8]) -> BString {
    [prefix, rest].concat().into()
}

/// `prefix` and a number in 16 hexadecimal digits.
pub(super) fn number_key(prefix: &str, number: u64) -> BString {
    format!("{prefix}{number:016x}").into()
}

/// The number of such a key, if it is one.
pub(super) fn key_number(prefix: &[u8], key: &[u8]) -> Option<u64> {
    let digits = core::str::from_utf8(key.strip_prefix(prefix)?).ok()?;
    u64::from_str_radix(digits, 16).ok()
}

/// Up to `max` keys with the prefix after `prefix` + `after`, without the prefix.
pub(super) async fn list(
    ctx: &mut dyn ObjectContext,
    prefix: &[u8],
    after: &[u8],
    max: u64,
) -> Result<Vec<(BString, Bytes)>, Errno> {
    let mut last = key(prefix, after);
    let mut found = Vec::new();
    while (found.len() as u64) < max {
        let (page, more) = ctx.omap_vals(&last, prefix, PAGE).await?;
        let Some(end) = page.keys().next_back() else { break };
        last = end.clone();
        let room = usize::try_from(max).unwrap_or(usize::MAX) - found.len();
        let names = page.into_iter().map(|(k, v)| (k[prefix.len()..].into(), v));
        found.extend(names.take(room));
        if !more {
            break;
        }
    }
    Ok(found)
}

/// All keys with the prefix, without it.
pub(super) async fn list_all(
    ctx: &mut dyn ObjectContext,
    prefix: &[u8],
) -> Result<Vec<(BString, Bytes)>, Errno> {
    list(ctx, prefix, b"", u64::MAX).await
}

/// Whether the text is an id: letters and digits only.
pub(super) fn is_id(id: &BStr) -> bool {
    !id.is_empty() && id.iter().all(u8::is_ascii_alphanumeric)
}
