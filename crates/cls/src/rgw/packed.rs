//! Numbers in as few bytes as they need, as bucket index entries hold them.
//!
//! ```text
//! below 0x80:  u8 value
//! else:        u8 0x80 | width (1, 2, 4 or 8),  little-endian value of that width
//! ```

use denc::{Error, Reader, Writer};

/// What the first byte says when a wider number follows.
const WIDE: u8 = 0x80;

/// Appends a number. Ceph itself writes 0x10000 in two bytes, which reads as zero; four are what
/// any reader understands.
pub(super) fn put(w: &mut Writer, value: u64) {
    match value {
        0..0x80 => w.u8(value as u8),
        0x80..0x100 => {
            w.u8(WIDE | 1);
            w.u8(value as u8);
        }
        0x100..0x1_0000 => {
            w.u8(WIDE | 2);
            w.u16(value as u16);
        }
        0x1_0000..=0x100_0000 => {
            w.u8(WIDE | 4);
            w.u32(value as u32);
        }
        _ => {
            w.u8(WIDE | 8);
            w.u64(value);
        }
    }
}

/// Reads a number; a width that is none is an error.
pub(super) fn get(r: &mut Reader<'_>) -> Result<u64, Error> {
    let first = r.u8()?;
    if first < WIDE {
        return Ok(first.into());
    }
    match first & !WIDE {
        1 => r.u8().map(u64::from),
        2 => r.u16().map(u64::from),
        4 => r.u32().map(u64::from),
        8 => r.u64(),
        width => Err(Error::Invalid { what: "packed number", value: width.into() }),
    }
}
