//! The encoder: an append-only buffer with back-patched lengths, and long payloads by reference.

use bytes::Bytes;

use crate::Denc;

/// Room that an encoding begins with, in bytes: most messages' parts fit, so that growing, which
/// copies, is rare.
const ROOM: usize = 256;
/// Payloads of fewer bytes are copied: what shares them keeps all alive that was received with them,
/// and a copy of so much costs little (4 KiB by reference saved no time).
pub const SHARED_MIN: usize = 64 << 10;

/// An encoding under construction.
#[derive(Debug, Clone)]
pub struct Writer {
    buf: Vec<u8>,
    /// Shorter payloads are copied.
    shared_min: usize,
    /// Payloads by reference, each with the place in `buf` that it belongs before.
    shared: Vec<(usize, Bytes)>,
    /// Their lengths together.
    shared_len: usize,
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

impl Default for Writer {
    fn default() -> Writer {
        Writer::with_capacity(0)
    }
}

impl Writer {
    /// An empty buffer.
    pub fn new() -> Writer {
        Writer::with_capacity(ROOM)
    }

    /// An empty buffer with room for `len` bytes.
    pub fn with_capacity(len: usize) -> Writer {
        Writer {
            buf: Vec::with_capacity(len),
            shared_min: SHARED_MIN,
            shared: Vec::new(),
            shared_len: 0,
        }
    }

    /// The same, which takes payloads of `len` bytes and more by reference instead of those from [`SHARED_MIN`] on.
    pub fn sharing_from(self, len: usize) -> Writer {
        Writer { shared_min: len, ..self }
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

    /// The same of bytes that are shared: if there are many, by reference ([`Writer::into_pieces`]).
    pub fn shared_blob(&mut self, bytes: &Bytes) {
        if bytes.len() < self.shared_min {
            return self.blob(bytes);
        }
        self.count(bytes.len());
        self.shared.push((self.buf.len(), bytes.clone()));
        self.shared_len += bytes.len();
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
        let (at, before) = (self.buf.len(), self.len());
        self.u32(0);
        fields(self);
        let len = u32::try_from(self.len() - before - 4).expect("an encoding above 4 GiB");
        self.buf[at..at + 4].copy_from_slice(&len.to_le_bytes());
    }

    /// Bytes written so far.
    pub fn len(&self) -> usize {
        self.buf.len() + self.shared_len
    }

    /// Whether nothing is written yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What is written so far, without what is shared.
    pub fn as_slice(&self) -> &[u8] {
        &self.buf
    }

    /// What is written so far, without what is shared, to patch in place.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.buf
    }

    /// The finished encoding.
    pub fn into_bytes(self) -> Bytes {
        Bytes::from(self.into_vec())
    }

    /// The finished encoding.
    pub fn into_vec(self) -> Vec<u8> {
        if self.shared.is_empty() {
            return self.buf;
        }
        let mut all = Vec::with_capacity(self.len());
        self.into_pieces().for_each(|piece| all.extend_from_slice(&piece));
        all
    }

    /// The finished encoding as pieces in order: long payloads by reference, what stands between
    /// them as slices of one buffer. Some may be empty.
    pub fn into_pieces(self) -> impl Iterator<Item = Bytes> {
        let mut rest = Bytes::from(self.buf);
        let mut taken = 0;
        let mut pieces = Vec::with_capacity(2 * self.shared.len() + 1);
        for (at, shared) in self.shared {
            pieces.push(rest.split_to(at - taken));
            pieces.push(shared);
            taken = at;
        }
        pieces.push(rest);
        pieces.into_iter()
    }
}
