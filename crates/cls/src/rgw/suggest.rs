//! `dir_suggest_changes`: a listing that found an entry with changes under way has looked at the
//! object itself, and tells the index what it should say.

use bytes::Bytes;
use denc::{Denc, Reader};
use types::Errno;

use super::bilog::{self, LogEntry};
use super::entry::{DirEntry, ModifyOp};
use super::header::DirHeader;
use super::{index, key};
use crate::{ObjectContext, stored};

/// The object is not there.
pub const REMOVE: u8 = b'r';
/// The object is as the entry says.
pub const UPDATE: u8 = b'u';
/// Added to the others: the change is to be logged.
pub const LOG_OP: u8 = 0x80;

/// After how many seconds a change under way counts as dead, unless the header says.
const TAG_TIMEOUT_SEC: u64 = 120;

pub(super) async fn suggest(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let mut header = DirHeader::load(ctx).await?;
    let mut changed = false;
    let mut r = Reader::new(input);
    while r.remaining() > 0 {
        let op = r.u8().map_err(|_| Errno::EINVAL)?;
        let change = DirEntry::decode(&mut r).map_err(|_| Errno::EINVAL)?;
        changed |= apply(ctx, &mut header, op, change).await?;
    }
    if changed { header.store(ctx).await } else { Ok(()) }
}

/// Applies one suggestion; whether the header has changed.
async fn apply(
    ctx: &mut dyn ObjectContext,
    header: &mut DirHeader,
    op: u8,
    mut change: DirEntry,
) -> Result<bool, Errno> {
    let index_key = key::entry_key(&change.key);
    let bytes = match ctx.omap_val(&index_key).await {
        Err(Errno::ENOENT) => return Ok(false),
        other => other.map_err(|_| Errno::EINVAL)?,
    };
    let mut entry = DirEntry::default();
    if !bytes.is_empty() {
        entry = stored(&bytes).map_err(|_| Errno::EINVAL)?;
        let timeout = if header.tag_timeout == 0 { TAG_TIMEOUT_SEC } else { header.tag_timeout };
        let timeout_ns = timeout.saturating_mul(1_000_000_000);
        let now = ctx.now().as_nanos();
        entry
            .pending
            .retain(|(_, info)| now <= info.timestamp.as_nanos().saturating_add(timeout_ns));
    }
    // A change has been completed since the suggestion was thought of, or is still under way: the
    // next listing will look again.
    if change.index_ver < entry.index_ver || !entry.pending.is_empty() {
        return Ok(false);
    }
    let mut changed = entry.exists;
    header.unaccount(&entry);
    // Even a removal makes sums of the category, if the header is written.
    let stats = header.stats_of(change.meta.category);
    let is_logged = op & LOG_OP != 0;
    let logged = match op & !LOG_OP {
        REMOVE => {
            ctx.omap_rm(&index_key).await?;
            entry.exists.then_some((ModifyOp::DEL, entry))
        }
        UPDATE => {
            stats.add(&change.meta);
            changed = true;
            change.index_ver = header.ver;
            index::write(ctx, index_key, &change).await?;
            Some((ModifyOp::ADD, change))
        }
        _ => None,
    };
    if let Some((op, entry)) = logged
        && is_logged
        && !header.syncstopped
    {
        let log_entry = LogEntry::of(op, entry.key.clone(), &entry, header.ver);
        bilog::append(ctx, header, log_entry).await?;
    }
    Ok(changed)
}
