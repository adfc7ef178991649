//! The decoder: a cursor over a shared buffer, confined to the innermost envelope.

use bytes::Bytes;

use crate::{Denc, Error};

/// A cursor over one buffer. Blobs taken from it share the buffer's memory.
#[derive(Debug)]
pub struct Reader<'a> {
    buf: &'a Bytes,
    pos: usize,
    end: usize,
}

macro_rules! ints {
    ($($name:ident)*) => {$(
        /// Reads the number, little-endian.
        #[inline]
        pub fn $name(&mut self) -> Result<$name, Error> {
            const LEN: usize = size_of::<$name>();
            let Some(bytes) = self.buf[self.pos..self.end].first_chunk::<LEN>() else {
                return Err(self.truncated(LEN));
            };
            self.pos += LEN;
            Ok($name::from_le_bytes(*bytes))
        }
    )*};
}

impl<'a> Reader<'a> {
    /// A cursor at the start of `buf`.
    pub fn new(buf: &'a Bytes) -> Reader<'a> {
        Reader { buf, pos: 0, end: buf.len() }
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
        self.end - self.pos
    }

    /// Offset from the start of the buffer.
    pub fn position(&self) -> usize {
        self.pos
    }

    /// Takes `len` bytes, borrowed.
    #[inline]
    pub fn slice(&mut self, len: usize) -> Result<&'a [u8], Error> {
        if len > self.remaining() {
            return Err(self.truncated(len));
        }
        let from = self.pos;
        self.pos += len;
        Ok(&self.buf[from..self.pos])
    }

    /// Takes `len` bytes as a shared slice of the buffer: no copy, keeps the buffer alive.
    #[inline]
    pub fn bytes(&mut self, len: usize) -> Result<Bytes, Error> {
        if len > self.remaining() {
            return Err(self.truncated(len));
        }
        let from = self.pos;
        self.pos += len;
        Ok(self.buf.slice(from..self.pos))
    }

    /// Takes all that is left, as a shared slice.
    pub fn rest(&mut self) -> Bytes {
        let from = self.pos;
        self.pos = self.end;
        self.buf.slice(from..self.end)
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
        if self.remaining() < HEAD {
            return Err(Error::Truncated { need: HEAD, have: self.remaining() });
        }
        let head = &self.buf[self.pos + 2..self.pos + HEAD];
        let len = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
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
        if len > self.remaining() {
            return Err(self.truncated(len));
        }
        let mut inner = Reader { buf: self.buf, pos: self.pos, end: self.pos + len };
        let value = fields(&mut inner)?;
        self.pos += len;
        Ok(value)
    }
}
