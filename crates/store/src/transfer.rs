//! Everything of one store, put into another, and whether two stores hold the same.
//!
//! Works on any backends through the contract alone. Data is moved as extents, so holes stay holes
//! where both stores know them; what clones share in one store is written for each in the other.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use bstr::BString;
use types::hobject::GhObject;

use crate::{CollId, ObjectStore, OmapPage, StoreError, Transaction};

/// Bytes of data read and compared at a time, and about the most of a transaction.
const PIECE_LEN: u64 = 1 << 20;
/// Operations of a transaction.
const OPS_MAX: usize = 256;
/// Objects listed at a time; keys and their bytes.
const LIST_MAX: usize = 256;
const KEYS_MAX: usize = 1024;
const KEY_BYTES_MAX: usize = 512 << 10;
/// Differences that are told.
const DIFFERENCES_MAX: usize = 100;

/// What has been walked so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Collections.
    pub collections: u64,
    /// Objects.
    pub objects: u64,
    /// Bytes of data, without holes.
    pub data: u64,
    /// Xattrs.
    pub attrs: u64,
    /// Omap keys.
    pub omap_keys: u64,
}

/// Objects of a collection in order, a page at a time.
#[derive(Debug)]
pub struct Objects {
    cid: CollId,
    next: GhObject,
}

impl Objects {
    /// From the first on.
    pub fn of(cid: &CollId) -> Objects {
        Objects { cid: *cid, next: GhObject::min() }
    }

    /// Some more; empty at the end.
    pub async fn page(&mut self, store: &dyn ObjectStore) -> Result<Vec<GhObject>, StoreError> {
        let end = GhObject::max();
        let listing = store.list(&self.cid, &self.next, &end, LIST_MAX).await?;
        self.next = listing.next;
        Ok(listing.objects)
    }
}

/// Omap entries of an object in order, a page at a time.
#[derive(Debug, Default)]
pub struct Keys {
    last: Option<BString>,
    ended: bool,
}

impl Keys {
    /// Some more; empty at the end.
    pub async fn page(
        &mut self,
        store: &dyn ObjectStore,
        cid: &CollId,
        oid: &GhObject,
    ) -> Result<OmapPage, StoreError> {
        if self.ended {
            return Ok(OmapPage::default());
        }
        let (from, after) = match &self.last {
            Some(last) => (last.as_slice(), true),
            None => (&b""[..], false),
        };
        let page = store.omap_range(cid, oid, from, after, KEYS_MAX, KEY_BYTES_MAX).await?;
        self.ended = !page.more;
        self.last = page.entries.last().map(|(key, _)| key.clone());
        Ok(page)
    }
}

/// A range in pieces that fit into memory.
fn pieces(range: Range<u64>) -> impl Iterator<Item = (u64, u64)> {
    let end = range.end;
    range.step_by(PIECE_LEN as usize).map(move |at| (at, PIECE_LEN.min(end - at)))
}

/// Changes that go into one transaction.
struct Batch<'a> {
    to: &'a dyn ObjectStore,
    t: Transaction,
}

impl Batch<'_> {
    async fn submit_if(&mut self, full: bool) -> Result<(), StoreError> {
        if full && !self.t.is_empty() {
            self.to.submit(std::mem::take(&mut self.t)).await?;
        }
        Ok(())
    }

    async fn submit_if_long(&mut self) -> Result<(), StoreError> {
        let bytes = self.t.data_len() + self.t.metadata_bytes();
        let long = self.t.ops().len() >= OPS_MAX || bytes >= PIECE_LEN;
        self.submit_if(long).await
    }
}

/// Copies everything of `from` into `to`, which is empty; `told` hears how far it is.
pub async fn copy(
    from: &dyn ObjectStore,
    to: &dyn ObjectStore,
    told: &mut dyn FnMut(&Tally),
) -> Result<Tally, StoreError> {
    let mut tally = Tally::default();
    let t = Transaction::new();
    let mut batch = Batch { to, t };
    for cid in from.collections().await? {
        tally.collections += 1;
        batch.t.mkcoll(&cid, from.collection_bits(&cid).await?);
        let mut objects = Objects::of(&cid);
        loop {
            let page = objects.page(from).await?;
            if page.is_empty() {
                break;
            }
            for oid in &page {
                copy_object(from, &cid, oid, &mut batch, &mut tally).await?;
                told(&tally);
            }
        }
    }
    batch.submit_if(true).await?;
    Ok(tally)
}

async fn copy_object(
    from: &dyn ObjectStore,
    cid: &CollId,
    oid: &GhObject,
    batch: &mut Batch<'_>,
    tally: &mut Tally,
) -> Result<(), StoreError> {
    tally.objects += 1;
    let size = from.stat(cid, oid).await?.size;
    batch.t.touch(cid, oid);
    let mut end = 0;
    for range in from.extents(cid, oid, 0, size).await? {
        end = range.end;
        for (at, len) in pieces(range) {
            let data = from.read(cid, oid, at, len).await?;
            tally.data += data.len() as u64;
            batch.t.write_list(cid, oid, at, &data);
            batch.submit_if_long().await?;
        }
    }
    if end < size {
        batch.t.truncate(cid, oid, size);
    }
    let attrs: BTreeMap<_, _> = from.getattrs(cid, oid).await?.into_iter().collect();
    if !attrs.is_empty() {
        tally.attrs += attrs.len() as u64;
        batch.t.setattrs(cid, oid, attrs);
    }
    let header = from.omap_header(cid, oid).await?;
    if !header.is_empty() {
        batch.t.omap_setheader(cid, oid, header);
    }
    let mut keys = Keys::default();
    loop {
        let page = keys.page(from, cid, oid).await?;
        if page.entries.is_empty() {
            break;
        }
        tally.omap_keys += page.entries.len() as u64;
        let whole = page.entries.len() >= KEYS_MAX / 2;
        batch.t.omap_setkeys(cid, oid, page.entries);
        batch.submit_if(whole).await?;
        batch.submit_if_long().await?;
    }
    batch.submit_if_long().await
}

/// What differs between two stores, a line each, at most 100; and what was looked at.
pub async fn compare(
    one: &dyn ObjectStore,
    two: &dyn ObjectStore,
    told: &mut dyn FnMut(&Tally),
) -> Result<(Tally, Vec<String>), StoreError> {
    let (mut tally, mut found) = (Tally::default(), Vec::new());
    let (colls, others) = (one.collections().await?, two.collections().await?);
    for cid in colls.iter().filter(|cid| !others.contains(cid)) {
        found.push(format!("{cid} is only in the first"));
    }
    for cid in others.iter().filter(|cid| !colls.contains(cid)) {
        found.push(format!("{cid} is only in the second"));
    }
    for cid in colls.iter().filter(|cid| others.contains(cid)) {
        tally.collections += 1;
        if one.collection_bits(cid).await? != two.collection_bits(cid).await? {
            found.push(format!("{cid}: bits"));
        }
        let (mut objects, mut counterparts) = (Objects::of(cid), Objects::of(cid));
        loop {
            let page = objects.page(one).await?;
            if page != counterparts.page(two).await? {
                found.push(format!("{cid}: other objects"));
                break;
            }
            if page.is_empty() {
                break;
            }
            for oid in &page {
                for what in differences(one, two, cid, oid, &mut tally).await? {
                    found.push(format!("{cid} {oid}: {what}"));
                }
                told(&tally);
            }
            if found.len() > DIFFERENCES_MAX {
                found.truncate(DIFFERENCES_MAX);
                return Ok((tally, found));
            }
        }
    }
    Ok((tally, found))
}

async fn differences(
    one: &dyn ObjectStore,
    two: &dyn ObjectStore,
    cid: &CollId,
    oid: &GhObject,
    tally: &mut Tally,
) -> Result<Vec<&'static str>, StoreError> {
    tally.objects += 1;
    let mut found = Vec::new();
    let size = one.stat(cid, oid).await?.size;
    if size != two.stat(cid, oid).await?.size {
        found.push("size");
    }
    let mut ranges = one.extents(cid, oid, 0, size).await?;
    tally.data += ranges.iter().map(|r| r.end - r.start).sum::<u64>();
    ranges.extend(two.extents(cid, oid, 0, size).await?);
    'data: for range in merged(ranges) {
        for (at, len) in pieces(range) {
            let data = one.read(cid, oid, at, len).await?.to_contiguous();
            if data != two.read(cid, oid, at, len).await?.to_contiguous() {
                found.push("data");
                break 'data;
            }
        }
    }
    let attrs = one.getattrs(cid, oid).await?;
    tally.attrs += attrs.len() as u64;
    if attrs != two.getattrs(cid, oid).await? {
        found.push("xattrs");
    }
    if one.omap_header(cid, oid).await? != two.omap_header(cid, oid).await? {
        found.push("omap header");
    }
    let (mut keys, mut counterparts) = (Keys::default(), Keys::default());
    // Backends may cut their pages at different places.
    let (mut left, mut right) = (VecDeque::new(), VecDeque::new());
    loop {
        if left.is_empty() {
            left.extend(keys.page(one, cid, oid).await?.entries);
        }
        if right.is_empty() {
            right.extend(counterparts.page(two, cid, oid).await?.entries);
        }
        let both = left.len().min(right.len());
        if left.range(..both).ne(right.range(..both)) || left.is_empty() != right.is_empty() {
            found.push("omap");
            break;
        }
        if both == 0 {
            break;
        }
        tally.omap_keys += both as u64;
        left.drain(..both);
        right.drain(..both);
    }
    Ok(found)
}

/// Ranges in order, none touching another.
fn merged(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_by_key(|r| r.start);
    let mut out: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match out.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => out.push(range),
        }
    }
    out
}
