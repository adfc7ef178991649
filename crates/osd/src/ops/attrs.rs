//! Ops that read attributes and omap.

use std::collections::BTreeMap;

use bstr::BString;
use bytes::Bytes;
use denc::{Denc, Reader, Writer};
use store::StoreError;
use types::Errno;
use types::bufferlist::BufferList;
use types::osd::OsdOp;
use types::osd::ops::{compare_mode, compare_op};

use super::object_context::{UserAttrs, user_attrs};
use super::op_context::{OpContext, Step};
use super::write::stored_attr;

/// Entries of one page asked of the store, when a listing filters or is long.
const PAGE_MAX: usize = 1024;

/// Bytes of entries of one page asked of the store: values are read for a list of keys, too.
const PAGE_BYTES_MAX: usize = 16 << 20;
/// Bytes that a list has beside its entries.
const PAGE_OVERHEAD: u64 = 5;

/// What is listed of omap entries; an entry counts with the bytes that it has in the answer.
#[derive(Clone, Copy)]
pub(super) enum Listed {
    /// Keys, without their values.
    Keys,
    /// Keys and values.
    Entries,
}

impl OpContext {
    /// A client's xattr as last submitted.
    pub(super) async fn user_attr(&self, name: &[u8]) -> Result<Bytes, Errno> {
        {
            let exists = self.obc.obs.borrow().exists;
            // One with no name is the object's own info, which is not kept here.
            if let (true, false, Some(attrs)) = (exists, name.is_empty(), &*self.obc.attrs.borrow())
            {
                return attrs.get(bstr::BStr::new(name)).cloned().ok_or(Errno::ENODATA);
            }
            if !exists {
                return Err(Errno::ENOENT);
            }
        }
        let read = self.pg.store().getattr(&self.coll, &self.goid, &stored_attr(name)).await;
        read.map_err(|e| Errno(e.errno()))
    }

    /// All xattrs of clients as last submitted.
    pub(super) async fn user_attrs(&self) -> Result<UserAttrs, Errno> {
        if !self.obc.obs.borrow().exists {
            // Ceph lists those of shards from memory, where there are none.
            let is_erasure = self.pool.is_erasure();
            return if is_erasure { Ok(UserAttrs::default()) } else { Err(Errno::ENOENT) };
        }
        if let Some(attrs) = &*self.obc.attrs.borrow() {
            return Ok(attrs.clone());
        }
        let read = self.pg.store().getattrs(&self.coll, &self.goid).await;
        Ok(user_attrs(read.map_err(|e| Errno(e.errno()))?))
    }

    pub(super) async fn op_getxattr(&mut self, op: &mut OsdOp) -> Step {
        self.num_read += 1;
        self.stats.num_rd += 1;
        let mut args = op.args.xattr();
        let name = op.indata.get(..args.name_len as usize).ok_or(Errno::EINVAL)?;
        let value = self.user_attr(name).await?;
        self.stats.num_rd -= 1;
        self.count_read(value.len());
        args.value_len = u32::try_from(value.len()).unwrap_or(u32::MAX);
        op.args.set_xattr(args);
        op.outdata.push(value);
        Ok(0)
    }

    pub(super) async fn op_getxattrs(&mut self, out: &mut BufferList) -> Step {
        self.num_read += 1;
        let attrs = self.user_attrs().await?.to_bytes();
        self.count_read(attrs.len());
        out.push(attrs);
        Ok(0)
    }

    pub(super) async fn op_cmpxattr(&mut self, op: &OsdOp) -> Step {
        self.num_read += 1;
        let args = op.args.xattr();
        let name_len = args.name_len as usize;
        let name = op.indata.get(..name_len).ok_or(Errno::EINVAL)?;
        let found = match self.user_attr(name).await {
            // An attribute that is not there compares as an empty one.
            Err(Errno::ENODATA) => Bytes::new(),
            other => other?,
        };
        self.count_read(found.len());
        let holds = match args.compare_mode {
            compare_mode::STRING => {
                let end = name_len.saturating_add(args.value_len as usize);
                let given = op.indata.get(name_len..end).ok_or(Errno::EINVAL)?;
                compare(args.compare_op, given, &found[..])?
            }
            compare_mode::U64 => {
                let rest = op.indata.slice(name_len..);
                let given = u64::from_bytes(&rest).map_err(|_| Errno::EINVAL)?;
                compare(args.compare_op, given, leading_number(&found))?
            }
            _ => return Err(Errno::EINVAL.into()),
        };
        if holds { Ok(1) } else { Err(Errno::ECANCELED.into()) }
    }

    /// Omap keys and values from `after` on that have the prefix, within the limits of one
    /// request; and whether there are more of them. The last may go beyond
    /// osd_max_omap_bytes_per_request, and the second and later ones not beyond what an answer may
    /// hold: the client asks for the rest.
    pub(super) async fn omap_page(
        &mut self,
        after: &[u8],
        prefix: &[u8],
        max_entries: u64,
        listed: Listed,
    ) -> Result<(Vec<(BString, Bytes)>, bool), Errno> {
        if !self.obs.oi.is_omap() {
            return Ok((Vec::new(), false));
        }
        let store = self.pg.store().clone();
        let max = usize::try_from(max_entries.min(self.limits.omap_entries)).unwrap_or(PAGE_MAX);
        let max_bytes = usize::try_from(self.limits.omap_bytes).unwrap_or(usize::MAX);
        let held = self.held + self.data_len() + PAGE_OVERHEAD;
        let room = usize::try_from(self.limits.held.saturating_sub(held)).unwrap_or(usize::MAX);
        let (mut from, mut is_after) = match prefix > after {
            true => (BString::from(prefix), false),
            false => (BString::from(after), true),
        };
        let (mut entries, mut bytes) = (Vec::new(), 0);
        loop {
            // One entry more than wanted tells whether the next has the prefix too.
            let asked = (max - entries.len()).saturating_add(1);
            let asked_bytes = PAGE_BYTES_MAX.min(max_bytes.min(room).saturating_sub(bytes)).max(1);
            // An object that this very vector creates has none that could be listed: `ENOENT`.
            let page = store
                .omap_range(&self.coll, &self.goid, &from, is_after, asked, asked_bytes)
                .await
                .map_err(|e| Errno(e.errno()))?;
            for (key, value) in page.entries {
                if !key.starts_with(prefix) {
                    return Ok((entries, false));
                }
                let (value, len) = match listed {
                    Listed::Keys => (Bytes::new(), 4 + key.len()),
                    Listed::Entries => {
                        let len = 8 + key.len() + value.len();
                        (value, len)
                    }
                };
                let is_too_much = bytes + len > room && !entries.is_empty();
                if entries.len() >= max || bytes >= max_bytes || is_too_much {
                    return Ok((entries, true));
                }
                bytes += len;
                entries.push((key, value));
            }
            match entries.last() {
                Some((last, _)) if page.more => (from, is_after) = (last.clone(), true),
                _ => return Ok((entries, false)),
            }
        }
    }

    pub(super) async fn op_omap_get_keys(&mut self, input: &Bytes, out: &mut BufferList) -> Step {
        self.num_read += 1;
        let mut r = Reader::new(input);
        let after: BString = r.get().map_err(|_| Errno::EINVAL)?;
        let max = r.u64().map_err(|_| Errno::EINVAL)?;
        let (entries, more) = self.omap_page(&after, b"", max, Listed::Keys).await?;
        let mut w = Writer::new();
        w.count(entries.len());
        entries.iter().for_each(|(key, _)| w.blob(key));
        w.bool(more);
        self.count_read(w.len());
        out.push(w.into_bytes());
        Ok(0)
    }

    pub(super) async fn op_omap_get_vals(&mut self, input: &Bytes, out: &mut BufferList) -> Step {
        self.num_read += 1;
        let mut r = Reader::new(input);
        let after: BString = r.get().map_err(|_| Errno::EINVAL)?;
        let max = r.u64().map_err(|_| Errno::EINVAL)?;
        let prefix: BString = r.get().map_err(|_| Errno::EINVAL)?;
        let (entries, more) = self.omap_page(&after, &prefix, max, Listed::Entries).await?;
        let mut w = Writer::new();
        w.put(&entries);
        w.bool(more);
        self.count_read(w.len());
        out.push(w.into_bytes());
        Ok(0)
    }

    /// The omap header as last submitted, empty if there is none.
    pub(super) async fn omap_header(&self) -> Result<Bytes, Errno> {
        if !self.obs.oi.is_omap() {
            return Ok(Bytes::new());
        }
        or_empty(self.pg.store().omap_header(&self.coll, &self.goid).await)
    }

    pub(super) async fn op_omap_get_header(&mut self, out: &mut BufferList) -> Step {
        if self.obs.oi.is_omap() {
            self.num_read += 1;
            let header = self.omap_header().await?;
            self.count_read(header.len());
            out.push(header);
        }
        Ok(0)
    }

    /// The values of those of `keys` that are set.
    pub(super) async fn omap_values(
        &self,
        keys: &[BString],
    ) -> Result<BTreeMap<BString, Bytes>, StoreError> {
        if !self.obs.oi.is_omap() {
            return Ok(BTreeMap::new());
        }
        let read = self.pg.store().omap_values(&self.coll, &self.goid, keys).await;
        Ok(read?.into_iter().collect())
    }

    pub(super) async fn op_omap_get_vals_by_keys(
        &mut self,
        input: &Bytes,
        out: &mut BufferList,
    ) -> Step {
        self.num_read += 1;
        let mut keys: Vec<BString> = Vec::from_bytes(input).map_err(|_| Errno::EINVAL)?;
        keys.sort_unstable();
        keys.dedup();
        let vals = or_empty(self.omap_values(&keys).await)?.to_bytes();
        self.count_read(vals.len());
        out.push(vals);
        Ok(0)
    }

    pub(super) async fn op_omap_cmp(&mut self, input: &Bytes) -> Step {
        self.num_read += 1;
        self.need_visible()?;
        let wanted: BTreeMap<BString, (Bytes, i32)> =
            BTreeMap::from_bytes(input).map_err(|_| Errno::EINVAL)?;
        let keys: Vec<BString> = wanted.keys().cloned().collect();
        let found = self.omap_values(&keys).await.map_err(|e| Errno(e.errno()))?;
        self.stats.num_rd += 1;
        for (key, (given, op)) in wanted {
            let value = found.get(&key).cloned().unwrap_or_default();
            let holds = match u8::try_from(op) {
                Ok(compare_op::EQ) => value == given,
                Ok(compare_op::LT) => value < given,
                Ok(compare_op::GT) => value > given,
                _ => return Err(Errno::EINVAL.into()),
            };
            if !holds {
                return Err(Errno::ECANCELED.into());
            }
        }
        Ok(0)
    }
}

/// What the store says of an omap; nothing for an object that this very vector creates.
pub(super) fn or_empty<T: Default>(read: Result<T, StoreError>) -> Result<T, Errno> {
    match read {
        Err(StoreError::NoObject) => Ok(T::default()),
        read => read.map_err(|e| Errno(e.errno())),
    }
}

/// `given OP found`.
fn compare<T: PartialOrd>(op: u8, given: T, found: T) -> Result<bool, Errno> {
    Ok(match op {
        compare_op::EQ => given == found,
        compare_op::NE => given != found,
        compare_op::GT => given > found,
        compare_op::GTE => given >= found,
        compare_op::LT => given < found,
        compare_op::LTE => given <= found,
        _ => return Err(Errno::EINVAL),
    })
}

/// What strtoull makes of a text: the number it begins with, saturating, else 0.
fn leading_number(text: &[u8]) -> u64 {
    let text = text.trim_ascii_start();
    let (negative, digits) = match text.first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let mut number = 0_u64;
    for digit in digits.iter().take_while(|b| b.is_ascii_digit()) {
        let next = number.checked_mul(10).and_then(|n| n.checked_add(u64::from(digit - b'0')));
        match next {
            Some(next) => number = next,
            None => return u64::MAX,
        }
    }
    if negative { number.wrapping_neg() } else { number }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_strtoull_reads_them() {
        for (text, number) in [
            (&b""[..], 0),
            (b"12", 12),
            (b" 12abc", 12),
            (b"x", 0),
            (b"-1", u64::MAX),
            (b"99999999999999999999999", u64::MAX),
        ] {
            assert_eq!(leading_number(text), number);
        }
    }
}
