//! Class `cmpomap`: omap values that are compared before they are changed (`src/cls/cmpomap/` at
//! v16.2).

use std::cmp::Ordering;
use std::collections::BTreeMap;

use bstr::BString;
use bytes::Bytes;
use denc::Denc;
use types::Errno;

use crate::registry::class_method as method;
use crate::{Class, Flags, ObjectContext, argument};

const MODE_STRING: u8 = 1;
const MODE_U64: u8 = 2;

/// Argument of `cmp_vals` and `cmp_set_vals`. Wire: cls::cmpomap::cmp_vals_op and
/// cls::cmpomap::cmp_set_vals_op v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct CmpValsOp {
    /// 1 compares bytes, 2 numbers: `CEPH_OSD_CMPXATTR_MODE_*`.
    pub mode: u8,
    /// What is asked of the given value and the stored one: 1 to 6 stand for `==`, `!=`, `>`, `>=`,
    /// `<`, `<=`, as in `CEPH_OSD_CMPXATTR_OP_*`.
    pub comparison: u8,
    /// The given values.
    pub values: BTreeMap<BString, Bytes>,
    /// The value of keys that have none.
    pub default_value: Option<Bytes>,
}

/// Argument of `cmp_rm_keys`. Wire: cls::cmpomap::cmp_rm_keys_op v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct CmpRmKeysOp {
    /// As in [`CmpValsOp`].
    pub mode: u8,
    /// As in [`CmpValsOp`].
    pub comparison: u8,
    /// The given values.
    pub values: BTreeMap<BString, Bytes>,
}

/// The class.
pub const CLASS: Class = Class {
    name: "cmpomap",
    methods: &[
        method!("cmp_vals", Flags::RD, cmp_vals),
        method!("cmp_set_vals", Flags::RD_WR, cmp_set_vals),
        method!("cmp_rm_keys", Flags::RD_WR, cmp_rm_keys),
    ],
    filters: &[],
};

fn ask(comparison: u8, order: Ordering) -> Result<bool, Errno> {
    Ok(match comparison {
        1 => order.is_eq(),
        2 => order.is_ne(),
        3 => order.is_gt(),
        4 => order.is_ge(),
        5 => order.is_lt(),
        6 => order.is_le(),
        _ => return Err(Errno::EINVAL),
    })
}

/// A given number that is none is `EINVAL`, a stored one `EIO`; nothing stored is 0.
fn compare(mode: u8, comparison: u8, given: &Bytes, value: &Bytes) -> Result<bool, Errno> {
    match mode {
        // Bytes are signed in Ceph.
        MODE_STRING => {
            let signed = |bytes: &Bytes| bytes.iter().map(|byte| *byte as i8).collect::<Vec<_>>();
            ask(comparison, signed(given).cmp(&signed(value)))
        }
        MODE_U64 => {
            let given = u64::from_bytes(given).map_err(|_| Errno::EINVAL)?;
            let stored = match value.is_empty() {
                true => 0,
                false => u64::from_bytes(value).map_err(|_| Errno::EIO)?,
            };
            ask(comparison, given.cmp(&stored))
        }
        _ => Err(Errno::EINVAL),
    }
}

/// As [`compare`]; a stored value that is no number is one that does not match.
fn matches(mode: u8, comparison: u8, given: &Bytes, value: &Bytes) -> Result<bool, Errno> {
    match compare(mode, comparison, given, value) {
        Err(Errno::EIO) => Ok(false),
        other => other,
    }
}

async fn load(
    ctx: &mut dyn ObjectContext,
    keys: &BTreeMap<BString, Bytes>,
) -> Result<BTreeMap<BString, Bytes>, Errno> {
    ctx.omap_vals_by_keys(keys.keys().cloned().collect()).await
}

/// `ECANCELED` unless all match.
async fn cmp_vals(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let op: CmpValsOp = argument(input)?;
    let stored = load(ctx, &op.values).await?;
    for (key, given) in &op.values {
        let value = stored.get(key).or(op.default_value.as_ref()).ok_or(Errno::ECANCELED)?;
        if !compare(op.mode, op.comparison, given, value)? {
            return Err(Errno::ECANCELED);
        }
    }
    Ok(())
}

/// Sets those that match.
async fn cmp_set_vals(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let op: CmpValsOp = argument(input)?;
    let stored = load(ctx, &op.values).await?;
    let mut set = BTreeMap::new();
    for (key, given) in op.values {
        let Some(value) = stored.get(&key).or(op.default_value.as_ref()) else { continue };
        if matches(op.mode, op.comparison, &given, value)? {
            set.insert(key, given);
        }
    }
    if set.is_empty() { Ok(()) } else { ctx.omap_set(set).await }
}

/// Removes those that match.
async fn cmp_rm_keys(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let op: CmpRmKeysOp = argument(input)?;
    let stored = load(ctx, &op.values).await?;
    for (key, given) in &op.values {
        let Some(value) = stored.get(key) else { continue };
        if matches(op.mode, op.comparison, given, value)? {
            ctx.omap_rm(key).await?;
        }
    }
    Ok(())
}
