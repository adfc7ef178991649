//! Data in stripes, each a value.

use bytes::{Bytes, BytesMut};

use super::format::{Onode, stripe_key};
use super::txn::Txn;
use crate::keyed::apply::Objects;
use crate::keyed::changes::Changes;
use crate::{CollId, StoreError};

impl<'a> Objects<'a> for Txn<'a> {
    type Onode = Onode;

    fn changes(&mut self) -> &mut Changes<'a, Onode> {
        &mut self.changes
    }

    fn new_id(&mut self) -> u64 {
        self.last_nid += 1;
        self.last_nid
    }

    fn new_onode(&mut self) -> Onode {
        Onode { nid: self.new_id(), stripe_size: self.stripe_len, ..Onode::default() }
    }

    fn read(&self, onode: &Onode, offset: u64, len: u64) -> Result<Bytes, StoreError> {
        let stripe = |at| self.stripe(onode, at);
        read(onode, offset, len, stripe)
    }

    fn write(
        &mut self,
        _cid: &CollId,
        onode: &mut Onode,
        offset: u64,
        data: &Bytes,
    ) -> Result<(), StoreError> {
        write(self, onode, offset, data)
    }

    fn zero(&mut self, onode: &mut Onode, offset: u64, len: u64) -> Result<(), StoreError> {
        zero(self, onode, offset, len)
    }

    fn truncate(&mut self, onode: &mut Onode, size: u64) -> Result<(), StoreError> {
        truncate(self, onode, size)
    }

    /// Copies all stripes, as Ceph's KStore does: it shares nothing.
    fn copy(&mut self, from: &Onode) -> Result<Onode, StoreError> {
        let copy = Onode { nid: self.new_id(), omap_head: 0, ..from.clone() };
        for offset in from.present() {
            let data = self.stripe(from, offset)?;
            self.changes.put(stripe_key(copy.nid, offset), data);
        }
        self.data_delta += copy.data_len() as i64;
        Ok(copy)
    }
}

/// The bytes of the range that lie before the end.
/// `stripe_at` gives what is stored of the stripe at an offset.
pub(super) fn read(
    onode: &Onode,
    offset: u64,
    len: u64,
    stripe_at: impl Fn(u64) -> Result<Bytes, StoreError>,
) -> Result<Bytes, StoreError> {
    let stripe_len = u64::from(onode.stripe_size.max(1));
    let end = offset.saturating_add(len).min(onode.size);
    let mut out = BytesMut::new();
    let mut at = offset;
    while at < end {
        let stripe = at / stripe_len * stripe_len;
        let to = end.min(stripe + stripe_len);
        let data = stripe_at(stripe)?;
        let (from, until) = ((at - stripe) as usize, (to - stripe) as usize);
        let have = &data[from.min(data.len())..until.min(data.len())];
        out.extend_from_slice(have);
        out.resize(out.len() + (until - from - have.len()), 0);
        at = to;
    }
    Ok(out.freeze())
}

/// Says which stripes an object has after a change of it, and counts.
fn recount(txn: &mut Txn<'_>, before: u64, onode: &mut Onode, present: impl Fn(u64) -> bool) {
    onode.set_present(present);
    txn.data_delta += onode.data_len() as i64 - before as i64;
}

fn write(
    txn: &mut Txn<'_>,
    onode: &mut Onode,
    offset: u64,
    data: &Bytes,
) -> Result<(), StoreError> {
    let stripe_len = u64::from(onode.stripe_size.max(1));
    let end = offset + data.len() as u64;
    let before = onode.data_len();
    let old = onode.clone();
    let mut at = offset;
    while at < end {
        let stripe = at / stripe_len * stripe_len;
        let to = end.min(stripe + stripe_len);
        let piece = data.slice((at - offset) as usize..(to - offset) as usize);
        let (from, until) = ((at - stripe) as usize, (to - stripe) as usize);
        let whole = from == 0 && (until as u64 == stripe_len || to >= old.size);
        let value = if whole {
            piece
        } else {
            let mut value = BytesMut::from(&txn.stripe(&old, stripe)?[..]);
            if value.len() < until {
                value.resize(until, 0);
            }
            value[from..until].copy_from_slice(&piece);
            value.freeze()
        };
        txn.changes.put(stripe_key(onode.nid, stripe), value);
        at = to;
    }
    onode.size = onode.size.max(end);
    let touched = offset / stripe_len..end.div_ceil(stripe_len);
    recount(txn, before, onode, |n| touched.contains(&n) || old.has(n));
    Ok(())
}

fn zero(txn: &mut Txn<'_>, onode: &mut Onode, offset: u64, len: u64) -> Result<(), StoreError> {
    if len == 0 {
        return Ok(());
    }
    let before = onode.data_len();
    let end = offset + len;
    let gone = punch(txn, onode, offset, end.min(onode.size))?;
    let old = onode.clone();
    onode.size = onode.size.max(end);
    recount(txn, before, onode, |n| old.has(n) && !gone.contains(&n));
    Ok(())
}

fn truncate(txn: &mut Txn<'_>, onode: &mut Onode, size: u64) -> Result<(), StoreError> {
    let before = onode.data_len();
    let gone = punch(txn, onode, size, onode.size)?;
    let old = onode.clone();
    onode.size = size;
    recount(txn, before, onode, |n| old.has(n) && !gone.contains(&n));
    Ok(())
}

/// Makes the range read as zeros: whole stripes go (their numbers are returned), others are
/// rewritten. What is behind the end of the object counts as zero already.
fn punch(
    txn: &mut Txn<'_>,
    onode: &Onode,
    offset: u64,
    end: u64,
) -> Result<std::ops::Range<u64>, StoreError> {
    let stripe_len = u64::from(onode.stripe_size.max(1));
    if offset >= end {
        return Ok(0..0);
    }
    // A stripe whose rest is cut off up to the end of the object goes whole, too.
    let whole_end = if end >= onode.size { end.div_ceil(stripe_len) } else { end / stripe_len };
    let whole = offset.div_ceil(stripe_len)..whole_end;
    for n in whole.clone().filter(|&n| onode.has(n)) {
        txn.changes.delete(stripe_key(onode.nid, n * stripe_len));
    }
    let mut edges = vec![offset / stripe_len, (end - 1) / stripe_len];
    edges.dedup();
    for n in edges.into_iter().filter(|n| !whole.contains(n) && onode.has(*n)) {
        let stripe = n * stripe_len;
        let mut value = BytesMut::from(&txn.stripe(onode, stripe)?[..]);
        let from = (offset.max(stripe) - stripe) as usize;
        let until = (end.min(stripe + stripe_len) - stripe) as usize;
        if end >= onode.size && stripe + stripe_len >= end {
            value.truncate(from);
        } else {
            let until = until.min(value.len());
            value[from.min(until)..until].fill(0);
        }
        txn.changes.put(stripe_key(onode.nid, stripe), value.freeze());
    }
    Ok(whole)
}
