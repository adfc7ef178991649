//! Methods of the object map's object, `rbd_object_map.ID` (`src/cls/rbd/cls_rbd.cc` at v16.2).

use bytes::Bytes;
use denc::{Denc, Reader, Writer};
use types::Errno;
use types::crc::crc32c;

use super::bit_vector::{self, BLOCK, BitVector, EXISTS, EXISTS_CLEAN, HEADER_LEN};
use super::keys::arguments;
use crate::{ObjectContext, argument};

/// Objects of the largest map: it is held in memory, 64 MB then.
const OBJECTS_MAX: u64 = 256_000_000;

async fn read(ctx: &mut dyn ObjectContext) -> Result<BitVector, Errno> {
    if ctx.stat().await?.size == 0 {
        return Err(Errno::ENOENT);
    }
    argument(&ctx.read(0, 0).await?)
}

pub(super) async fn load(ctx: &mut dyn ObjectContext, _: &Bytes) -> Result<Bytes, Errno> {
    let mut map = read(ctx).await?;
    map.crc_enabled = false;
    Ok(map.to_bytes())
}

pub(super) async fn save(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let mut map: BitVector = argument(input)?;
    map.crc_enabled = true;
    ctx.write_full(map.to_bytes()).await
}

pub(super) async fn resize(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let (count, state): (u64, u8) = argument(input)?;
    if count > OBJECTS_MAX {
        return Err(Errno::EINVAL);
    }
    let mut map = match read(ctx).await {
        Err(Errno::ENOENT) => BitVector::default(),
        other => other?,
    };
    let old = map.len();
    if (count..old).any(|object| map.get(object) != state) {
        return Err(Errno::ESTALE);
    }
    map.resize(count, state);
    ctx.write_full(map.to_bytes()).await
}

/// Sets the states of a range of objects: only the blocks it touches and their checksums are read
/// and written.
pub(super) async fn update(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let (first, end, new, current) =
        arguments(input, |r| Ok((r.u64()?, r.u64()?, r.u8()?, r.get::<Option<u8>>()?)))?;
    ctx.stat().await?;
    let header = ctx.read(0, HEADER_LEN as u64).await?;
    let (len, _) =
        bit_vector::decode_header(&mut Reader::new(&header)).map_err(|_| Errno::EINVAL)?;
    if first >= end || end > len {
        return Err(Errno::ERANGE);
    }
    let data_len = bit_vector::byte_len(len);
    let block = BLOCK as u64;
    let (first_block, last_block) = (first / 4 / block, (end - 1) / 4 / block);
    let from = first_block * block;
    let data_at = HEADER_LEN as u64 + from;
    let to = data_len.min((last_block + 1) * block);

    // Behind the data: length of the footer, the header's checksum (Ceph does not fail on a wrong
    // one here either), a count, the blocks'.
    let crcs_at = HEADER_LEN as u64 + data_len + 12 + first_block * 4;
    let crcs = ctx.read(crcs_at, (last_block - first_block + 1) * 4).await?;
    let mut data = ctx.read(data_at, to - from).await?.to_vec();
    if data.len() as u64 != to - from || !blocks_match(&data, &crcs) {
        return Err(Errno::EINVAL);
    }

    let mut is_changed = false;
    for object in first..end {
        let index = (object - from * 4) as usize;
        let state = bit_vector::value_at(&data, index);
        let is_wanted = current
            .is_none_or(|current| state == current || current == EXISTS && state == EXISTS_CLEAN);
        if is_wanted && state != new {
            bit_vector::put_value(&mut data, index, new);
            is_changed = true;
        }
    }
    if !is_changed {
        return Ok(());
    }
    let mut crcs = Writer::new();
    data.chunks(BLOCK).for_each(|block| crcs.u32(crc32c(0, block)));
    ctx.write(data_at, data.into()).await?;
    ctx.write(crcs_at, crcs.into_bytes()).await
}

fn blocks_match(data: &[u8], crcs: &[u8]) -> bool {
    let computed: Vec<u8> =
        data.chunks(BLOCK).flat_map(|block| crc32c(0, block).to_le_bytes()).collect();
    computed == crcs
}

/// A snapshot is taken: what exists is clean until it changes.
pub(super) async fn snap_add(ctx: &mut dyn ObjectContext, _: &Bytes) -> Result<(), Errno> {
    let mut map = read(ctx).await?;
    let mut is_changed = false;
    for object in 0..map.len() {
        if map.get(object) == EXISTS {
            map.set(object, EXISTS_CLEAN);
            is_changed = true;
        }
    }
    if is_changed {
        ctx.write_full(map.to_bytes()).await?;
    }
    Ok(())
}

/// A snapshot, whose map is the argument, is removed: what changed since the one before it has
/// changed for the next.
pub(super) async fn snap_remove(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let removed: BitVector = argument(input)?;
    let mut map = read(ctx).await?;
    let mut is_changed = false;
    for object in 0..map.len() {
        let had_changed = object >= removed.len() || removed.get(object) == EXISTS;
        if map.get(object) == EXISTS_CLEAN && had_changed {
            map.set(object, EXISTS);
            is_changed = true;
        }
    }
    if is_changed {
        ctx.write_full(map.to_bytes()).await?;
    }
    Ok(())
}
