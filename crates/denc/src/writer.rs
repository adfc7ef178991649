//! The encoder: an append-only buffer with back-patched lengths.

use bytes::Bytes;

use crate::Denc;

/// Room that an encoding begins with, in bytes: most messages' parts fit, so that growing, which
/// copies, is rare.
const ROOM: usize = 256;

/// An encoding under construction.
#[derive(Debug, Default, Clone)]
pub struct Writer {
    buf: Vec<u8>,
}

macro_rules! ints {
    ($($name:ident)*) => {$(
        /// Appends the number, little-endian.
        #[inline]
        pub fn $name(&mut self, value: $name) {
            self.buf.extend_from_slice(&value.to_le_bytes());
        }
    )*};
}

impl Writer {
    /// An empty buffer.
    pub fn new() -> Writer {
        Writer::with_capacity(ROOM)
    }

    /// An empty buffer with room for `len` bytes.
    pub fn with_capacity(len: usize) -> Writer {
        Writer { buf: Vec::with_capacity(len) }
    }

    ints!(u8 u16 u32 u64 i8 i16 i32 i64 f32 f64);

    /// Appends a bool as one byte.
    #[inline]
    pub fn bool(&mut self, value: bool) {
        self.u8(u8::from(value));
    }

    /// Appends bytes as they are.
    #[inline]
    pub fn raw(&mut self, bytes: &[u8]) {
        self.buf.extend_from_slice(bytes);
    }

    /// Appends `len` zero bytes.
    pub fn zeros(&mut self, len: usize) {
        self.buf.resize(self.buf.len() + len, 0);
    }

    /// Appends a u32 length and the bytes: Ceph's string and bufferlist.
    #[inline]
    pub fn blob(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.raw(bytes);
    }

    /// Appends a count of elements.
    ///
    /// # Panics
    /// If the count is above u32, which no message or map of ours can reach.
    #[inline]
    pub fn count(&mut self, n: usize) {
        self.u32(u32::try_from(n).expect("more than 2^32 elements in one encoding"));
    }

    /// Appends a value.
    #[inline]
    pub fn put<T: Denc>(&mut self, value: &T) {
        value.encode(self);
    }

    /// Appends the version envelope around what `fields` writes (ENCODE_START).
    #[inline]
    pub fn envelope(&mut self, version: u8, compat: u8, fields: impl FnOnce(&mut Writer)) {
        self.u8(version);
        self.u8(compat);
        self.counted(fields);
    }

    /// Appends a u32 byte length around what `fields` writes: an encoding inside a blob.
    #[inline]
    pub fn counted(&mut self, fields: impl FnOnce(&mut Writer)) {
        let at = self.buf.len();
        self.u32(0);
        fields(self);
        let len = u32::try_from(self.buf.len() - at - 4).expect("an encoding above 4 GiB");
        self.buf[at..at + 4].copy_from_slice(&len.to_le_bytes());
    }

    /// Bytes written so far.
    pub fn len(&self) -> usize {
        self.buf.len()
    }

    /// Whether nothing is written yet.
    pub fn is_empty(&self) -> bool {
        self.buf.is_empty()
    }

    /// What is written so far.
    pub fn as_slice(&self) -> &[u8] {
        &self.buf
    }

    /// What is written so far, to patch in place.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.buf
    }

    /// The finished encoding.
    pub fn into_bytes(self) -> Bytes {
        Bytes::from(self.buf)
    }

    /// The finished encoding.
    pub fn into_vec(self) -> Vec<u8> {
        self.buf
    }
}
