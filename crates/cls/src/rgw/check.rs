//! `bucket_check_index` and `bucket_rebuild_index`: the sums of the header from its entries.

use bstr::BString;
use bytes::Bytes;
use denc::Denc;
use types::Errno;

use super::bi::{self, BiEntry, Side};
use super::entry::DirEntry;
use super::header::DirHeader;
use crate::{ObjectContext, stored};

/// Entries read at once.
const CHUNK: u32 = 1000;

/// Reply of `bucket_check_index`. Wire: rgw_cls_check_index_ret v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct CheckRet {
    /// The header as it is.
    pub existing_header: DirHeader,
    /// As it should be.
    pub calculated_header: DirHeader,
}

/// Which entries are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Range {
    Plain(Side),
    Instances,
}

/// Header as it is and as it should be.
async fn both(ctx: &mut dyn ObjectContext) -> Result<CheckRet, Errno> {
    let existing = DirHeader::load(ctx).await?;
    let mut sums = DirHeader {
        tag_timeout: existing.tag_timeout,
        ver: existing.ver,
        syncstopped: existing.syncstopped,
        ..DirHeader::default()
    };
    for range in [Range::Plain(Side::Below), Range::Plain(Side::Above), Range::Instances] {
        count(ctx, range, &mut sums).await?;
    }
    Ok(CheckRet { existing_header: existing, calculated_header: sums })
}

async fn count(
    ctx: &mut dyn ObjectContext,
    range: Range,
    sums: &mut DirHeader,
) -> Result<(), Errno> {
    let (all, mut marker) = (BString::default(), BString::default());
    loop {
        let mut entries: Vec<BiEntry> = Vec::new();
        let more = match range {
            Range::Plain(side) => {
                bi::list_plain(ctx, &all, &marker, CHUNK, side, &mut entries).await?
            }
            Range::Instances => {
                bi::list_special(ctx, bi::INSTANCE, &all, &marker, CHUNK, &mut entries).await?
            }
        };
        for BiEntry { data, .. } in &entries {
            let entry: DirEntry = stored(data)?;
            // A version has an entry for listings and one of its own; the latter counts.
            if entry.exists && (range == Range::Instances || entry.flags == 0) {
                sums.stats_of(entry.meta.category).add(&entry.meta);
            }
        }
        match entries.pop() {
            Some(last) if more => marker = last.idx,
            _ => return Ok(()),
        }
    }
}

pub(super) async fn check(ctx: &mut dyn ObjectContext, _input: &Bytes) -> Result<Bytes, Errno> {
    Ok(both(ctx).await?.to_bytes())
}

pub(super) async fn rebuild(ctx: &mut dyn ObjectContext, _input: &Bytes) -> Result<(), Errno> {
    both(ctx).await?.calculated_header.store(ctx).await
}
