//! Images of format 1: the header is the content of the object `NAME.rbd`
//! (`src/include/rbd_types.h`, `src/cls/rbd/cls_rbd.cc` at v16.2).
//!
//! ```text
//! text 40 | object prefix 24 | signature 4 | version 8 | order, crypt, compression, 0
//! | u64 size | u64 snap seq | u32 snapshots | u32 0 | u64 length of names
//! | (u64 id, u64 size) each | names, each with a 0 behind it
//! ```

use bstr::{BStr, BString, ByteSlice};
use bytes::Bytes;
use denc::{Error, Reader, Writer};
use types::Errno;

use super::keys;
use crate::{ObjectContext, argument};

/// What a header begins with.
pub(super) const TEXT: &[u8] = b"<<< Rados Block Device Image >>>\n\0";
/// What the header of an image that migrates begins with.
pub(super) const MIGRATING_TEXT: &[u8] = b"<<< Migrating RBD Image      >>>\n\0";

/// Bytes before the image's size.
const HEAD_LEN: usize = 80;
/// Bytes before the snapshots.
const HEADER_LEN: usize = 112;

/// A header.
pub(super) struct Header {
    head: Bytes,
    image_size: u64,
    snap_seq: u64,
    reserved: u32,
    /// Newest first.
    pub(super) snaps: Vec<Snap>,
}

/// A snapshot in it.
pub(super) struct Snap {
    id: u64,
    image_size: u64,
    name: BString,
}

impl Header {
    /// Reads the object; `EINVAL` if it has no such header.
    pub(super) async fn read(ctx: &mut dyn ObjectContext) -> Result<Header, Errno> {
        let bytes = ctx.read(0, 0).await?;
        if bytes.len() < HEADER_LEN {
            return Err(Errno::EINVAL);
        }
        Header::decode(&mut Reader::new(&bytes)).map_err(|_| Errno::EIO)
    }

    fn decode(r: &mut Reader<'_>) -> Result<Header, Error> {
        let head = r.bytes(HEAD_LEN)?;
        let (image_size, snap_seq) = (r.u64()?, r.u64()?);
        let (count, reserved, names_len) = (r.u32()?, r.u32()?, r.u64()?);
        let mut snaps = Vec::new();
        for _ in 0..count {
            snaps.push(Snap { id: r.u64()?, image_size: r.u64()?, name: BString::default() });
        }
        let names = r.slice(usize::try_from(names_len).unwrap_or(usize::MAX))?;
        let mut names = names.split_str("\0");
        for snap in &mut snaps {
            let missing = Error::Truncated { need: 1, have: 0 };
            snap.name = names.next().ok_or(missing)?.into();
        }
        Ok(Header { head, image_size, snap_seq, reserved, snaps })
    }

    async fn write(&self, ctx: &mut dyn ObjectContext) -> Result<(), Errno> {
        let mut names = Writer::new();
        for snap in &self.snaps {
            names.raw(&snap.name);
            names.u8(0);
        }
        let mut w = Writer::new();
        w.raw(&self.head);
        w.u64(self.image_size);
        w.u64(self.snap_seq);
        w.count(self.snaps.len());
        w.u32(self.reserved);
        w.u64(names.len() as u64);
        for snap in &self.snaps {
            w.u64(snap.id);
            w.u64(snap.image_size);
        }
        w.raw(names.as_slice());
        ctx.write_full(w.into_bytes()).await
    }

    fn has(&self, name: &BStr) -> bool {
        self.snaps.iter().any(|snap| snap.name == name)
    }
}

pub(super) async fn snap_list(ctx: &mut dyn ObjectContext, _: &Bytes) -> Result<Bytes, Errno> {
    let header = Header::read(ctx).await?;
    let mut w = Writer::new();
    w.u64(header.snap_seq);
    w.count(header.snaps.len());
    for snap in &header.snaps {
        w.u64(snap.id);
        w.u64(snap.image_size);
        w.put(&snap.name);
    }
    Ok(w.into_bytes())
}

pub(super) async fn snap_add(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let mut header = Header::read(ctx).await?;
    let (name, id): (BString, u64) = argument(input)?;
    if header.snap_seq > id {
        return Err(Errno::ESTALE);
    }
    let limit = keys::find::<u64>(ctx, b"snap_limit").await?.unwrap_or(u64::MAX);
    if header.snaps.len() as u64 >= limit {
        return Err(Errno::EDQUOT);
    }
    if header.has(BStr::new(&name)) {
        return Err(Errno::EEXIST);
    }
    header.snap_seq = id;
    let image_size = header.image_size;
    header.snaps.insert(0, Snap { id, image_size, name });
    header.write(ctx).await
}

pub(super) async fn snap_remove(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let mut header = Header::read(ctx).await?;
    let name: BString = argument(input)?;
    let found = header.snaps.iter().position(|snap| snap.name == name);
    header.snaps.remove(found.ok_or(Errno::ENOENT)?);
    header.write(ctx).await
}

pub(super) async fn snap_rename(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let mut header = Header::read(ctx).await?;
    let (id, name): (u64, BString) = argument(input)?;
    if header.has(BStr::new(&name)) {
        return Err(Errno::EEXIST);
    }
    let found = header.snaps.iter_mut().find(|snap| snap.id == id);
    found.ok_or(Errno::ENOENT)?.name = name;
    header.write(ctx).await
}

/// Which kind of format 1 header the object has; `ENXIO` for none.
pub(super) async fn is_migrating(ctx: &mut dyn ObjectContext) -> Result<bool, Errno> {
    let text = ctx.read(0, TEXT.len() as u64).await?;
    if text == TEXT {
        Ok(false)
    } else if text == MIGRATING_TEXT {
        Ok(true)
    } else {
        Err(Errno::ENXIO)
    }
}
