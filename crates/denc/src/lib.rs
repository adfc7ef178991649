//! Ceph's encoding: little-endian integers, counted strings and containers, and the version
//! envelope. Knows no Ceph type.
//!
//! ```text
//! envelope:  u8 version | u8 compat | u32 length of what follows | fields ...
//! ```
//!
//! A reader refuses an envelope whose compat is above the version it knows, reads the fields of
//! the version it finds, never past `length`, and skips what newer versions appended
//! (`src/include/encoding.h` at v16.2: ENCODE_START, DECODE_START). Lengths are back-patched.
//! Every count is checked against the bytes that are left before anything is allocated.

#[allow(unused_extern_crates, reason = "the derive names ::denc from inside this crate's tests")]
extern crate self as denc;

mod containers;
mod error;
mod reader;
mod writer;

pub use denc_derive::Denc;

pub use error::Error;
pub use reader::Reader;
pub use writer::{SHARED_MIN, Writer};

use bytes::Bytes;

/// A value with one Ceph encoding, that of release 16.2.
pub trait Denc: Sized {
    /// Appends the value.
    fn encode(&self, w: &mut Writer);
    /// Reads one value, leaving the reader behind it.
    fn decode(r: &mut Reader<'_>) -> Result<Self, Error>;

    /// The encoding as a buffer of its own.
    fn to_bytes(&self) -> Bytes {
        let mut w = Writer::new();
        self.encode(&mut w);
        w.into_bytes()
    }

    /// The same in a buffer that has room for so many bytes from the beginning: growing copies.
    fn to_bytes_in(&self, room: usize) -> Bytes {
        let mut w = Writer::with_capacity(room);
        self.encode(&mut w);
        w.into_bytes()
    }

    /// Decodes a buffer that may hold more than the value (Ceph appends).
    fn from_bytes(buf: &Bytes) -> Result<Self, Error> {
        Self::decode(&mut Reader::new(buf))
    }

    /// Decodes a buffer that must hold exactly one value.
    fn from_bytes_exact(buf: &Bytes) -> Result<Self, Error> {
        let mut r = Reader::new(buf);
        let value = Self::decode(&mut r)?;
        match r.remaining() {
            0 => Ok(value),
            left => Err(Error::TrailingBytes { left }),
        }
    }
}
