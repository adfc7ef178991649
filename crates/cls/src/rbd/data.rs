//! Methods of data objects: what a clone takes from its parent, and giving back zeros
//! (`src/cls/rbd/cls_rbd.cc` at v16.2).

use std::collections::BTreeMap;

use bytes::Bytes;
use types::Errno;

use super::keys::arguments;
use crate::{ObjectContext, argument};

/// The parent's bytes, unless the clone has the object already.
pub(super) async fn copyup(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    if ctx.stat().await.is_ok() {
        return Ok(());
    }
    ctx.write(0, input.clone()).await
}

/// The same, without the holes.
pub(super) async fn sparse_copyup(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let (extents, mut data): (BTreeMap<u64, u64>, Bytes) = argument(input)?;
    if ctx.stat().await.is_ok() {
        return Ok(());
    }
    if extents.is_empty() {
        return ctx.create(true).await;
    }
    for (offset, len) in extents {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        if len > data.len() {
            return Err(Errno::EINVAL);
        }
        ctx.write(offset, data.split_to(len)).await?;
    }
    Ok(())
}

/// The write's snap context must be newer than all the object knows.
const NEWER: u8 = 0;
/// It must not be.
const NOT_NEWER: u8 = 1;

pub(super) async fn assert_snapc_seq(
    ctx: &mut dyn ObjectContext,
    input: &Bytes,
) -> Result<(), Errno> {
    let (seq, expected) = arguments(input, |r| Ok((r.u64()?, r.u8()?)))?;
    let is_newer = ctx.snap_seq().is_none_or(|newest| seq > newest);
    match expected {
        NEWER if is_newer => Ok(()),
        NOT_NEWER if !is_newer => Ok(()),
        NEWER | NOT_NEWER => Err(Errno::ERANGE),
        _ => Err(Errno::EOPNOTSUPP),
    }
}

/// Writes the object anew without its zeros, in pieces of a size that the caller chooses.
pub(super) async fn sparsify(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let (sparse_size, remove_empty) = arguments(input, |r| Ok((r.u64()?, r.bool()?)))?;
    ctx.stat().await?;
    let data = ctx.read(0, 0).await?;
    if is_zero(&data) {
        if remove_empty {
            return ctx.remove().await;
        }
        if !data.is_empty() {
            return ctx.truncate(0).await;
        }
        return Ok(());
    }
    let runs = runs(&data, chunk_len(data.len(), sparse_size));
    if runs == [(0, data.len())] {
        return Ok(());
    }
    ctx.truncate(0).await?;
    for (from, to) in runs {
        ctx.write(from as u64, data.slice(from..to)).await?;
    }
    Ok(())
}

/// Chunks of the largest object: 128 MiB by the 4096 bytes that are librbd's least.
pub(super) const CHUNKS_MAX: usize = 32_768;

/// The length of the chunks that are looked at: not so short that the runs of a long object, each of
/// which is a write, would be many more than its bytes are worth.
pub(super) fn chunk_len(len: usize, sparse_size: u64) -> usize {
    let wanted = usize::try_from(sparse_size).unwrap_or(usize::MAX);
    wanted.max(len.div_ceil(CHUNKS_MAX)).max(1)
}

fn is_zero(data: &[u8]) -> bool {
    data.iter().all(|&byte| byte == 0)
}

/// Runs of chunks of `size` bytes that are not zero.
pub(super) fn runs(data: &[u8], size: usize) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    let mut at = 0;
    for chunk in data.chunks(size) {
        let end = at + chunk.len();
        if !is_zero(chunk) {
            match runs.last_mut() {
                Some(last) if last.1 == at => last.1 = end,
                _ => runs.push((at, end)),
            }
        }
        at = end;
    }
    runs
}
