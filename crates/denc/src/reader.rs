//! The decoder: a cursor over a shared buffer, confined to the innermost envelope.

use bytes::Bytes;

use crate::{Denc, Error};

/// A cursor over one buffer. Blobs taken from it share the buffer's memory.
#[derive(Debug)]
pub struct Reader<'a> {
    buf: &'a Bytes,
    /// What is left before the end of the buffer or of the innermost envelope.
    left: &'a [u8],
}

macro_rules! ints {
    ($($name:ident)*) => {$(
        /// Reads the number, little-endian.
        #[inline]
        pub fn $name(&mut self) -> Result<$name, Error> {
            let Some((bytes, left)) = self.left.split_first_chunk() else {
                return Err(self.truncated(size_of::<$name>()));
            };
            self.left = left;
            Ok($name::from_le_bytes(*bytes))
        }
    )*};
}

impl<'a> Reader<'a> {
    /// A cursor at the start of `buf`.
    pub fn new(buf: &'a Bytes) -> Reader<'a> {
        Reader { buf, left: buf }
    }

    ints!(u8 u16 u32 u64 i8 i16 i32 i64 f32 f64);

    #[cold]
    fn truncated(&self, need: usize) -> Error {
        Error::Truncated { need, have: self.remaining() }
    }

    /// Reads a bool: any byte but 0 is true.
    #[inline]
    pub fn bool(&mut self) -> Result<bool, Error> {
        Ok(self.u8()? != 0)
    }

    /// Bytes left before the end of the buffer or of the innermost envelope.
    #[inline]
    pub fn remaining(&self) -> usize {
        self.left.len()
    }

    /// Takes `len` bytes, borrowed.
    #[inline]
    pub fn slice(&mut self, len: usize) -> Result<&'a [u8], Error> {
        let Some((taken, left)) = self.left.split_at_checked(len) else {
            return Err(self.truncated(len));
        };
        self.left = left;
        Ok(taken)
    }

    /// Takes `len` bytes as a shared slice of the buffer: no copy, keeps the buffer alive.
    #[inline]
    pub fn bytes(&mut self, len: usize) -> Result<Bytes, Error> {
        let taken = self.slice(len)?;
        Ok(self.buf.slice_ref(taken))
    }

    /// Takes all that is left, as a shared slice.
    pub fn rest(&mut self) -> Bytes {
        let left = std::mem::take(&mut self.left);
        self.buf.slice_ref(left)
    }

    /// Takes a counted blob as a shared slice.
    #[inline]
    pub fn blob(&mut self) -> Result<Bytes, Error> {
        let len = self.u32()? as usize;
        self.bytes(len)
    }

    /// Takes a counted blob, borrowed.
    #[inline]
    pub fn blob_slice(&mut self) -> Result<&'a [u8], Error> {
        let len = self.u32()? as usize;
        self.slice(len)
    }

    /// Reads a count of elements of at least `min_len` bytes each; a count that the bytes left
    /// cannot hold is refused here, before anything is allocated for it.
    #[inline]
    pub fn count(&mut self, min_len: usize) -> Result<usize, Error> {
        let n = self.u32()? as usize;
        let need = n.saturating_mul(min_len.max(1));
        if need > self.remaining() {
            return Err(Error::Truncated { need, have: self.remaining() });
        }
        Ok(n)
    }

    /// Reads a value.
    #[inline]
    pub fn get<T: Denc>(&mut self) -> Result<T, Error> {
        T::decode(self)
    }

    /// Reads a versioned struct (DECODE_START): `fields` gets a cursor that ends with the struct
    /// and the version found; what it leaves is skipped.
    ///
    /// `known` is the newest version this reader knows, `oldest` the oldest it accepts.
    #[inline]
    pub fn envelope<T>(
        &mut self,
        what: &'static str,
        known: u8,
        oldest: u8,
        fields: impl FnOnce(&mut Reader<'a>, u8) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let version = self.u8()?;
        let compat = self.u8()?;
        if compat > known {
            return Err(Error::Incompatible { what, compat, known });
        }
        if version < oldest {
            return Err(Error::TooOld { what, version, oldest });
        }
        self.counted(|r| fields(r, version))
    }

    /// Takes a versioned struct as it stands, envelope included, to be decoded later or passed on.
    pub fn raw_envelope(&mut self) -> Result<Bytes, Error> {
        const HEAD: usize = 6;
        let Some(&[_, _, a, b, c, d]) = self.left.first_chunk::<HEAD>() else {
            return Err(self.truncated(HEAD));
        };
        let len = u32::from_le_bytes([a, b, c, d]) as usize;
        self.bytes(HEAD.saturating_add(len))
    }

    /// Reads a u32 byte length and gives `fields` a cursor confined to it; what it leaves is
    /// skipped.
    #[inline]
    pub fn counted<T>(
        &mut self,
        fields: impl FnOnce(&mut Reader<'a>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let len = self.u32()? as usize;
        let mut inner = Reader { buf: self.buf, left: self.slice(len)? };
        fields(&mut inner)
    }
}
