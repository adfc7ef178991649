//! What the contract says, in the simplest form: every object a byte vector and two maps.

use std::collections::BTreeMap;

use bstr::BString;
use bytes::Bytes;
use store::{CollId, Existing, ObjectStore, Op, StoreError, Transaction, check, split_moves};
use types::bufferlist::BufferList;
use types::crc::crc32c;
use types::hobject::GhObject;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Object {
    pub(crate) data: Vec<u8>,
    pub(crate) attrs: BTreeMap<BString, Bytes>,
    pub(crate) omap: BTreeMap<BString, Bytes>,
    pub(crate) header: Bytes,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Model {
    pub(crate) colls: BTreeMap<CollId, (u32, BTreeMap<GhObject, Object>)>,
}

impl Existing for Model {
    fn collection_len(&self, cid: &CollId) -> Option<usize> {
        self.colls.get(cid).map(|(_, objects)| objects.len())
    }
    fn object_exists(&self, cid: &CollId, oid: &GhObject) -> bool {
        self.colls.get(cid).is_some_and(|(_, objects)| objects.contains_key(oid))
    }
}

impl Object {
    fn put(&mut self, offset: u64, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        let (from, to) = (offset as usize, offset as usize + data.len());
        if self.data.len() < to {
            self.data.resize(to, 0);
        }
        self.data[from..to].copy_from_slice(data);
    }
}

impl Model {
    pub(crate) fn apply(&mut self, t: &Transaction) -> Result<(), StoreError> {
        check(t, self)?;
        for op in t.ops() {
            self.step(t, op);
        }
        Ok(())
    }

    fn objects(&mut self, cid: CollId) -> &mut BTreeMap<GhObject, Object> {
        &mut self.colls.get_mut(&cid).unwrap().1
    }

    fn step(&mut self, t: &Transaction, op: &Op) {
        let c = |i: u32| t.collections()[i as usize];
        let o = |i: u32| t.objects()[i as usize].clone();
        match op.clone() {
            Op::Nop | Op::CollHint { .. } | Op::SetAllocHint { .. } => {}
            Op::Touch { cid, oid } | Op::Create { cid, oid } => {
                self.objects(c(cid)).entry(o(oid)).or_default();
            }
            Op::Write { cid, oid, offset, data } => {
                self.objects(c(cid)).entry(o(oid)).or_default().put(offset, &data);
            }
            Op::Zero { cid, oid, offset, len } => {
                let object = self.objects(c(cid)).entry(o(oid)).or_default();
                object.put(offset, &vec![0; len as usize]);
            }
            Op::Truncate { cid, oid, size } => {
                if let Some(object) = self.objects(c(cid)).get_mut(&o(oid)) {
                    object.data.resize(size as usize, 0);
                }
            }
            Op::Remove { cid, oid } => {
                self.objects(c(cid)).remove(&o(oid));
            }
            Op::SetAttr { cid, oid, name, value } => {
                self.objects(c(cid)).get_mut(&o(oid)).unwrap().attrs.insert(name, value);
            }
            Op::SetAttrs { cid, oid, attrs } => {
                self.objects(c(cid))
                    .get_mut(&o(oid))
                    .unwrap()
                    .attrs
                    .extend(attrs.iter().map(|(k, v)| (k.into(), v.clone())));
            }
            Op::RmAttr { cid, oid, name } => {
                self.objects(c(cid)).get_mut(&o(oid)).unwrap().attrs.remove(&name);
            }
            Op::RmAttrs { cid, oid } => {
                if let Some(object) = self.objects(c(cid)).get_mut(&o(oid)) {
                    object.attrs.clear();
                }
            }
            Op::Clone { cid, oid, to } => {
                let copy = self.objects(c(cid))[&o(oid)].clone();
                self.objects(c(cid)).insert(o(to), copy);
            }
            Op::CloneRange { cid, oid, to, offset, len, to_offset } => {
                let source = &self.objects(c(cid))[&o(oid)].data;
                let from = source.len().min(offset as usize);
                let until = source.len().min((offset + len) as usize);
                let part = source[from..until].to_vec();
                self.objects(c(cid)).entry(o(to)).or_default().put(to_offset, &part);
            }
            Op::MkColl { cid, bits } => {
                self.colls.insert(c(cid), (bits, BTreeMap::new()));
            }
            Op::RmColl { cid } => {
                self.colls.remove(&c(cid));
            }
            Op::OmapClear { cid, oid } => {
                if let Some(object) = self.objects(c(cid)).get_mut(&o(oid)) {
                    object.omap.clear();
                    object.header = Bytes::new();
                }
            }
            Op::OmapSetKeys { cid, oid, entries } => {
                self.objects(c(cid))
                    .get_mut(&o(oid))
                    .unwrap()
                    .omap
                    .extend(entries.iter().map(|(k, v)| (k.into(), v.clone())));
            }
            Op::OmapRmKeys { cid, oid, keys } => {
                self.objects(c(cid))
                    .get_mut(&o(oid))
                    .unwrap()
                    .omap
                    .retain(|k, _| !keys.contains(k));
            }
            Op::OmapRmKeyRange { cid, oid, first, last } => {
                let object = self.objects(c(cid)).get_mut(&o(oid)).unwrap();
                object.omap.retain(|k, _| !(*k >= first && *k < last));
            }
            Op::OmapSetHeader { cid, oid, header } => {
                self.objects(c(cid)).get_mut(&o(oid)).unwrap().header = header;
            }
            Op::CollMoveRename { cid, oid, to_cid, to } => {
                if let Some(object) = self.objects(c(cid)).remove(&o(oid)) {
                    self.objects(c(to_cid)).insert(o(to), object);
                }
            }
            Op::TryRename { cid, oid, to } => {
                if let Some(object) = self.objects(c(cid)).remove(&o(oid)) {
                    self.objects(c(cid)).insert(o(to), object);
                }
            }
            Op::CollSetBits { cid, bits } => self.colls.get_mut(&c(cid)).unwrap().0 = bits,
            Op::SplitCollection { cid, bits, rem, to_cid } => {
                let all = std::mem::take(self.objects(c(cid)));
                for (oid, object) in all {
                    let to = if split_moves(&oid, bits, rem) { to_cid } else { cid };
                    self.objects(c(to)).insert(oid, object);
                }
                self.colls.get_mut(&c(cid)).unwrap().0 = bits;
                self.colls.get_mut(&c(to_cid)).unwrap().0 = bits;
            }
            Op::MergeCollection { cid, to_cid, bits } => {
                let (_, objects) = self.colls.remove(&c(cid)).unwrap();
                self.objects(c(to_cid)).extend(objects);
                self.colls.get_mut(&c(to_cid)).unwrap().0 = bits;
            }
        }
    }

    /// Whether the store holds exactly this. The error says where it does not.
    pub(crate) async fn compare(&self, store: &dyn ObjectStore) -> Result<(), String> {
        let wrong = |what: String| Err(what);
        let colls = store.collections().await.map_err(|e| e.to_string())?;
        if colls != self.colls.keys().copied().collect::<Vec<_>>() {
            return wrong(format!("collections {colls:?}"));
        }
        for (cid, (bits, objects)) in &self.colls {
            if store.collection_bits(cid).await != Ok(*bits) {
                return wrong(format!("bits of {cid}"));
            }
            let listed = list_all(store, cid, 7).await.map_err(|e| e.to_string())?;
            if listed != objects.keys().cloned().collect::<Vec<_>>() {
                return wrong(format!("listing of {cid}: {listed:?}, not {:?}", objects.keys()));
            }
            for (oid, object) in objects {
                compare_object(store, cid, oid, object)
                    .await
                    .map_err(|e| format!("{cid} {oid}: {e}"))?;
            }
        }
        Ok(())
    }
}

pub(crate) async fn list_all(
    store: &dyn ObjectStore,
    cid: &CollId,
    page: usize,
) -> Result<Vec<GhObject>, StoreError> {
    let (mut all, mut start) = (Vec::new(), GhObject::min());
    loop {
        let listing = store.list(cid, &start, &GhObject::max(), page).await?;
        all.extend(listing.objects);
        start = listing.next;
        if start == GhObject::max() {
            return Ok(all);
        }
    }
}

/// What was read, in one piece, if the checksums that came with it are its own.
pub(crate) fn all_of(read: &BufferList) -> Result<Bytes, String> {
    let data = read.to_contiguous();
    match read.crc32c(7) == crc32c(7, &data) {
        true => Ok(data),
        false => Err("checksums of what was read".into()),
    }
}

async fn compare_object(
    store: &dyn ObjectStore,
    cid: &CollId,
    oid: &GhObject,
    object: &Object,
) -> Result<(), String> {
    let text = |e: StoreError| e.to_string();
    let size = store.stat(cid, oid).await.map_err(text)?.size;
    if size != object.data.len() as u64 {
        return Err(format!("size {size}, not {}", object.data.len()));
    }
    let data = all_of(&store.read(cid, oid, 0, 0).await.map_err(text)?)?;
    if data != object.data {
        let at = data.iter().zip(&object.data).position(|(a, b)| a != b);
        return Err(format!("data of {} bytes differ at {at:?}, length {}", size, data.len()));
    }
    // A window somewhere, too.
    let (from, len) = (size / 3, size / 2 + 1);
    let window = all_of(&store.read(cid, oid, from, len).await.map_err(text)?)?;
    let end = object.data.len().min((from + len) as usize);
    if window != object.data[from as usize..end] {
        return Err(format!("window {from}+{len} differs"));
    }
    let mut covered = vec![false; object.data.len()];
    for r in store.extents(cid, oid, 0, size).await.map_err(text)? {
        covered[r.start as usize..r.end as usize].fill(true);
    }
    if let Some(at) = (0..covered.len()).find(|&i| !covered[i] && object.data[i] != 0) {
        return Err(format!("byte {at} is data in what extents call a hole"));
    }
    let attrs = store.getattrs(cid, oid).await.map_err(text)?;
    if !attrs.iter().map(|(k, v)| (k, v)).eq(object.attrs.iter()) {
        return Err(format!("xattrs {attrs:?}, not {:?}", object.attrs));
    }
    if store.omap_header(cid, oid).await.as_ref() != Ok(&object.header) {
        return Err("omap header".into());
    }
    let (mut omap, mut from, mut after) = (Vec::new(), BString::default(), false);
    loop {
        let page = store.omap_range(cid, oid, &from, after, 5, 400).await.map_err(text)?;
        omap.extend(page.entries);
        match omap.last() {
            Some((last, _)) if page.more => (from, after) = (last.clone(), true),
            _ => break,
        }
    }
    if !omap.iter().map(|(k, v)| (k, v)).eq(object.omap.iter()) {
        return Err(format!("omap {omap:?}, not {:?}", object.omap));
    }
    Ok(())
}
