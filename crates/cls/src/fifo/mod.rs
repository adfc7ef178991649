//! Class `fifo`: a log in parts, which a RADOS Gateway keeps its data log in (`src/cls/fifo/` at
//! v16.2.15).
//!
//! One object has the FIFO's [`Info`] as its content; each part is an object of its own
//! ([`part`]). Clients move parts on under the version of the former, and note in its journal what
//! they are about to do.

mod part;
#[cfg(test)]
mod tests;
mod types;

use ::types::Errno;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bstr::BString;
use bytes::Bytes;
use denc::Denc;

pub use types::{
    CreateMetaOp, DataParams, GetMetaOp, GetMetaReply, GetPartInfoOp, GetPartInfoReply, Info,
    InitPartOp, JournalEntry, JournalOp, ListPartOp, ListPartReply, ObjVersion, PartHeader,
    PartListEntry, PushPartOp, TrimPartOp, UpdateMetaOp,
};

use crate::registry::class_method as method;
use crate::{Class, Flags, ObjectContext, argument, stored};

/// Bytes before the first entry of a part.
const PART_HEADER_LEN: u64 = 512;
/// Bytes before an entry's data: seven numbers that are its place, and its time in an envelope.
const ENTRY_OVERHEAD: u64 = part::PRE_HEADER_LEN + 6 + 8;

/// The class.
pub const CLASS: Class = Class {
    name: "fifo",
    methods: &[
        method!("create_meta", Flags::RD_WR, create_meta),
        method!("get_meta", Flags::RD, get_meta),
        method!("update_meta", Flags::RD_WR, update_meta),
        method!("init_part", Flags::RD_WR, part::init),
        method!("push_part", Flags::RD_WR, part::push),
        method!("trim_part", Flags::RD_WR, part::trim),
        method!("part_list", Flags::RD, part::list),
        method!("get_part_info", Flags::RD, part::info),
    ],
    filters: &[],
};

/// A random word of that many letters, at most 16.
fn random_word(ctx: &dyn ObjectContext, len: usize) -> BString {
    let mut bytes = [0; 12];
    ctx.fill_random(&mut bytes);
    let mut word = STANDARD.encode(bytes);
    word.truncate(len);
    word.into()
}

/// The FIFO; an object without content is `ENODATA`, one of another version `ECANCELED`.
async fn load(ctx: &mut dyn ObjectContext, version: Option<&ObjVersion>) -> Result<Info, Errno> {
    if ctx.stat().await?.size == 0 {
        return Err(Errno::ENODATA);
    }
    let info: Info = stored(&ctx.read(0, 0).await?)?;
    match version {
        Some(version) if *version != info.version => Err(Errno::ECANCELED),
        _ => Ok(info),
    }
}

async fn create_meta(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let op: CreateMetaOp = argument(input)?;
    if op.id.is_empty()
        || op.max_part_size == 0
        || op.max_entry_size == 0
        || op.max_entry_size > op.max_part_size
    {
        return Err(Errno::EINVAL);
    }
    match ctx.stat().await {
        Ok(_) if op.exclusive => return Err(Errno::EEXIST),
        Ok(_) => {
            let info: Info = stored(&ctx.read(0, 0).await?)?;
            let is_same = info.id == op.id
                && op.oid_prefix.is_none_or(|prefix| prefix == info.oid_prefix)
                && op.version.is_none_or(|version| version == info.version);
            return if is_same { Ok(()) } else { Err(Errno::EEXIST) };
        }
        Err(Errno::ENOENT) => {}
        Err(e) => return Err(e),
    }
    let oid_prefix = op.oid_prefix.unwrap_or_else(|| {
        let mut prefix = op.id.clone();
        prefix.push(b'.');
        prefix.extend_from_slice(&random_word(ctx, 11));
        prefix
    });
    let params = DataParams {
        max_part_size: op.max_part_size,
        max_entry_size: op.max_entry_size,
        // Of sizes too small it is a huge number, as in Ceph.
        full_size_threshold: (op.max_part_size - op.max_entry_size).wrapping_sub(ENTRY_OVERHEAD),
    };
    let version =
        op.version.unwrap_or_else(|| ObjVersion { instance: random_word(ctx, 16), ver: 1 });
    let info = Info { id: op.id, version, oid_prefix, params, ..Info::default() };
    store(ctx, info).await
}

async fn store(ctx: &mut dyn ObjectContext, mut info: Info) -> Result<(), Errno> {
    if info.version.instance.is_empty() {
        info.version.instance = random_word(ctx, 15);
    }
    ctx.write_full(info.to_bytes()).await
}

async fn get_meta(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<Bytes, Errno> {
    let op: GetMetaOp = argument(input)?;
    let reply = GetMetaReply {
        info: load(ctx, op.version.as_ref()).await?,
        part_header_size: PART_HEADER_LEN as u32,
        part_entry_overhead: ENTRY_OVERHEAD as u32,
    };
    Ok(reply.to_bytes())
}

async fn update_meta(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let op: UpdateMetaOp = argument(input)?;
    if op.version.instance.is_empty() {
        return Err(Errno::EINVAL);
    }
    let mut info = load(ctx, Some(&op.version)).await?;
    let before = info.clone();
    let set = |field: &mut i64, value: Option<u64>| *field = value.map_or(*field, |v| v as i64);
    set(&mut info.tail_part_num, op.tail_part_num);
    set(&mut info.head_part_num, op.head_part_num);
    set(&mut info.min_push_part_num, op.min_push_part_num);
    set(&mut info.max_push_part_num, op.max_push_part_num);
    // One that both begins and ends here is a change all the same.
    let mut is_changed = false;
    for entry in op.journal_entries_add {
        is_changed |= info.journal.insert(entry);
    }
    for entry in &op.journal_entries_rm {
        is_changed |= info.journal.remove(entry);
    }
    if !is_changed && info == before {
        return Ok(());
    }
    info.version.ver = info.version.ver.wrapping_add(1);
    store(ctx, info).await
}
