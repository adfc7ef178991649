//! Encodings of numbers, strings, options, pairs and containers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bstr::BString;
use bytes::Bytes;

use crate::{Denc, Error, Reader, Writer};

/// Trees of more elements are built from a sorted list; fewer (usually none or one) are put in one
/// after the other, which is several times cheaper for them.
const COLLECT_MIN: usize = 8;

macro_rules! ints {
    ($($name:ident)*) => {$(
        impl Denc for $name {
            #[inline]
            fn encode(&self, w: &mut Writer) { w.$name(*self) }
            #[inline]
            fn decode(r: &mut Reader<'_>) -> Result<Self, Error> { r.$name() }
        }
    )*};
}
ints!(u8 u16 u32 u64 i8 i16 i32 i64 f32 f64 bool);

/// Text. Ceph's own strings may hold any byte: where a client chooses the bytes (object names,
/// keys), use [`BString`].
impl Denc for String {
    fn encode(&self, w: &mut Writer) {
        w.blob(self.as_bytes());
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, Error> {
        core::str::from_utf8(r.blob_slice()?).map(str::to_owned).map_err(|_| Error::NotUtf8)
    }
}

impl Denc for BString {
    fn encode(&self, w: &mut Writer) {
        w.blob(self);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(BString::from(r.blob_slice()?))
    }
}

impl Denc for Bytes {
    fn encode(&self, w: &mut Writer) {
        w.blob(self);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, Error> {
        r.blob()
    }
}

impl<const N: usize> Denc for [u8; N] {
    fn encode(&self, w: &mut Writer) {
        w.raw(self);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, Error> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(r.slice(N)?);
        Ok(bytes)
    }
}

impl<T: Denc> Denc for Option<T> {
    fn encode(&self, w: &mut Writer) {
        w.bool(self.is_some());
        if let Some(value) = self {
            value.encode(w);
        }
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(if r.bool()? { Some(T::decode(r)?) } else { None })
    }
}

impl<T: Denc> Denc for Box<T> {
    fn encode(&self, w: &mut Writer) {
        (**self).encode(w);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, Error> {
        T::decode(r).map(Box::new)
    }
}

impl<A: Denc, B: Denc> Denc for (A, B) {
    fn encode(&self, w: &mut Writer) {
        self.0.encode(w);
        self.1.encode(w);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, Error> {
        Ok((A::decode(r)?, B::decode(r)?))
    }
}

impl<A: Denc, B: Denc, C: Denc> Denc for (A, B, C) {
    fn encode(&self, w: &mut Writer) {
        self.0.encode(w);
        self.1.encode(w);
        self.2.encode(w);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, Error> {
        Ok((A::decode(r)?, B::decode(r)?, C::decode(r)?))
    }
}

impl<T: Denc> Denc for Vec<T> {
    fn encode(&self, w: &mut Writer) {
        w.count(self.len());
        self.iter().for_each(|value| value.encode(w));
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, Error> {
        let n = r.count(1)?;
        // The count is bounded by the bytes left, but an element in memory can be much larger
        // than one byte on the wire: grow with what really decodes.
        let mut values = Vec::with_capacity(n.min(1024));
        for _ in 0..n {
            values.push(T::decode(r)?);
        }
        Ok(values)
    }
}

impl<T: Denc> Denc for VecDeque<T> {
    fn encode(&self, w: &mut Writer) {
        w.count(self.len());
        self.iter().for_each(|value| value.encode(w));
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, Error> {
        Vec::decode(r).map(VecDeque::from)
    }
}

impl<T: Denc + Ord> Denc for BTreeSet<T> {
    fn encode(&self, w: &mut Writer) {
        w.count(self.len());
        self.iter().for_each(|value| value.encode(w));
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, Error> {
        let n = r.count(1)?;
        let mut values = (0..n).map(|_| T::decode(r));
        if n > COLLECT_MIN {
            return values.collect();
        }
        values.try_fold(BTreeSet::new(), |mut set, value| {
            set.insert(value?);
            Ok(set)
        })
    }
}

impl<K: Denc + Ord, V: Denc> Denc for BTreeMap<K, V> {
    fn encode(&self, w: &mut Writer) {
        w.count(self.len());
        for (key, value) in self {
            key.encode(w);
            value.encode(w);
        }
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, Error> {
        let n = r.count(1)?;
        let mut entries = (0..n).map(|_| Ok::<_, Error>((K::decode(r)?, V::decode(r)?)));
        if n > COLLECT_MIN {
            return entries.collect();
        }
        entries.try_fold(BTreeMap::new(), |mut map, entry| {
            let (key, value) = entry?;
            map.insert(key, value);
            Ok(map)
        })
    }
}
