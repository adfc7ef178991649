//! The snap mapper: which clones serve a snapshot, as rows in the omap of one object of the OSD
//! (`src/osd/SnapMapper.cc` at v16.2).
//!
//! ```text
//! SNA_{pool}_{snap:016X}_{shard}{object}  ->  v1 {u64 snap, hobject}
//! OBJ_{shard}{object}                     ->  v1 {hobject, set of u64 snaps}
//! object = {pool:016X}.{hash, nibbles reversed:08X}.{snap:x}.{name}.{key}.{namespace}, escaped
//! ```
//!
//! Every OSD of a PG keeps its own. Rows change in the transaction that makes, trims, recovers or
//! removes the clone: a row that is lost with power would leave its clone behind for ever when the
//! snapshot is trimmed. The primary's transaction has the rows in it, for its replicas too; a primary of
//! Ceph's leaves them to each OSD (`crate::pg`, `snap_rows.rs`), and a copy of Ceph's writes them a second time.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use bstr::BString;
use bytes::Bytes;
use denc::{Denc, Error, Reader, Writer};
use store::{CollId, ObjectStore, StoreError, Transaction};
use types::{GhObject, HObject, PgId, SnapId};

const MAPPING_PREFIX: &str = "SNA_";
const OBJECT_PREFIX: &str = "OBJ_";
/// Rows of one page asked of the store.
const PAGE_MAX: usize = 512;

/// The mapper's row of a clone. Wire: object_snaps v1.
struct ObjectSnaps {
    oid: HObject,
    snaps: BTreeSet<SnapId>,
}

impl Denc for ObjectSnaps {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.put(&self.oid);
            w.put(&self.snaps);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<ObjectSnaps, Error> {
        r.envelope("ObjectSnaps", 1, 1, |r, _| Ok(ObjectSnaps { oid: r.get()?, snaps: r.get()? }))
    }
}

/// The mapper's row of a snapshot's clone. Wire: SnapMapper::Mapping v1.
fn mapping(snap: SnapId, oid: &HObject) -> Bytes {
    let mut w = Writer::new();
    w.envelope(1, 1, |w| {
        w.u64(snap);
        w.put(oid);
    });
    w.into_bytes()
}

fn push_escaped(text: &[u8], out: &mut BString) {
    for &byte in text {
        match byte {
            b'%' => out.extend_from_slice(b"%p"),
            b'.' => out.extend_from_slice(b"%e"),
            b'_' => out.extend_from_slice(b"%u"),
            byte => out.push(byte),
        }
    }
}

/// The hash with its hexadecimal digits reversed: objects of one PG are together in this order.
fn nibblewise(hash: u32) -> u32 {
    let bytes = hash.swap_bytes();
    (bytes & 0x0f0f_0f0f) << 4 | (bytes & 0xf0f0_f0f0) >> 4
}

/// `hobject_t::to_str`.
pub(crate) fn object_text(oid: &HObject) -> BString {
    let mut out = BString::from(format!("{:016X}.{:08X}.", oid.pool as u64, nibblewise(oid.hash)));
    out.extend_from_slice(types::snap::snap_text(oid.snap).to_string().as_bytes());
    for part in [&oid.name, &oid.key, &oid.namespace] {
        out.push(b'.');
        push_escaped(part, &mut out);
    }
    out
}

/// The snap mapper of an OSD.
pub struct SnapMapper {
    store: Rc<dyn ObjectStore>,
    coll: CollId,
    oid: GhObject,
    /// Clones whose rows go if they are found to be gone. Bound: one for each task that takes rows out.
    looked_at: RefCell<BTreeSet<HObject>>,
}

impl SnapMapper {
    /// The mapper whose rows are in the omap of that object; Ceph's is `snapmapper` in `meta`.
    pub fn new(store: Rc<dyn ObjectStore>, coll: CollId, oid: GhObject) -> SnapMapper {
        SnapMapper { store, coll, oid, looked_at: RefCell::default() }
    }

    /// The object Ceph keeps the rows in, by the very name: a real OSD that follows finds it in our transactions.
    pub fn default_object() -> GhObject {
        // std::hash<sobject_t>, as `OSD::make_snapmapper_oid` has it.
        let hash = 0xa468_ec03;
        GhObject::from(HObject { name: "snapmapper".into(), pool: -1, hash, ..HObject::default() })
    }

    /// Creates the object (mkfs).
    pub fn create(&self, t: &mut Transaction) {
        t.touch(&self.coll, &self.oid);
    }

    /// Takes over the rows of an OSD made when the object's hash was 0 here.
    pub async fn take_over(&self) -> Result<(), StoreError> {
        let mut old = self.oid.clone();
        old.hobj.hash = 0;
        match self.store.stat(&self.coll, &old).await {
            Err(StoreError::NoObject) => Ok(()),
            Err(e) => Err(e),
            Ok(_) => {
                let mut t = Transaction::new();
                t.coll_move_rename(&self.coll, &old, &self.coll, &self.oid);
                self.store.submit(t).await
            }
        }
    }

    fn mapping_prefix(pool: i64, snap: SnapId) -> String {
        format!("{MAPPING_PREFIX}{pool}_{snap:016X}_")
    }

    fn mapping_key(snap: SnapId, oid: &HObject) -> BString {
        let mut key = BString::from(SnapMapper::mapping_prefix(oid.pool, snap));
        key.extend_from_slice(&object_text(oid));
        key
    }

    fn object_key(oid: &HObject) -> BString {
        let mut key = BString::from(OBJECT_PREFIX);
        key.extend_from_slice(&object_text(oid));
        key
    }

    /// A clone that serves these snapshots.
    pub fn add(&self, oid: &HObject, snaps: BTreeSet<SnapId>, t: &mut Transaction) {
        let mut rows: BTreeMap<BString, Bytes> = snaps
            .iter()
            .map(|&snap| (SnapMapper::mapping_key(snap, oid), mapping(snap, oid)))
            .collect();
        let row = ObjectSnaps { oid: oid.clone(), snaps };
        rows.insert(SnapMapper::object_key(oid), row.to_bytes());
        t.omap_setkeys(&self.coll, &self.oid, rows);
        self.has_come(oid);
    }

    /// The clone is written, with its rows.
    pub fn has_come(&self, oid: &HObject) {
        self.looked_at.borrow_mut().remove(oid);
    }

    /// The snapshots a clone serves, as recorded; none if it is not.
    pub async fn snaps(&self, oid: &HObject) -> Result<BTreeSet<SnapId>, StoreError> {
        let key = [SnapMapper::object_key(oid)];
        let rows = match self.store.omap_values(&self.coll, &self.oid, &key).await {
            Err(StoreError::NoObject) => return Ok(BTreeSet::new()),
            rows => rows?,
        };
        let Some((_, row)) = rows.first() else { return Ok(BTreeSet::new()) };
        let row = ObjectSnaps::from_bytes(row)
            .map_err(|_| StoreError::Format("a row of the snap mapper"))?;
        Ok(row.snaps)
    }

    /// A clone served the snapshots `old` and serves `new` from now on; none: it is gone.
    pub fn replace(
        &self,
        oid: &HObject,
        old: &[SnapId],
        new: BTreeSet<SnapId>,
        t: &mut Transaction,
    ) {
        let mut keys: BTreeSet<BString> = old
            .iter()
            .filter(|snap| !new.contains(snap))
            .map(|&snap| SnapMapper::mapping_key(snap, oid))
            .collect();
        if new.is_empty() {
            keys.insert(SnapMapper::object_key(oid));
        }
        if !keys.is_empty() {
            t.omap_rmkeys(&self.coll, &self.oid, keys);
        }
        if !new.is_empty() {
            self.add(oid, new, t);
        }
    }

    /// A clone is gone; the snapshots it served are read.
    pub async fn remove(&self, oid: &HObject, t: &mut Transaction) -> Result<(), StoreError> {
        let mut keys: BTreeSet<BString> = self
            .snaps(oid)
            .await?
            .into_iter()
            .map(|snap| SnapMapper::mapping_key(snap, oid))
            .collect();
        if !keys.is_empty() {
            keys.insert(SnapMapper::object_key(oid));
            t.omap_rmkeys(&self.coll, &self.oid, keys);
        }
        Ok(())
    }

    /// Takes out what rows there are of a clone that is found to be gone. Not if it comes while that is found, in a
    /// new interval for instance: its rows are new, and without them it would never be trimmed. Whether there were
    /// any.
    pub async fn remove_of_gone(
        &self,
        oid: &HObject,
        is_gone: impl Future<Output = bool>,
    ) -> Result<bool, StoreError> {
        self.looked_at.borrow_mut().insert(oid.clone());
        let mut t = Transaction::new();
        let rows = self.remove(oid, &mut t).await;
        let is_gone = is_gone.await;
        let is_still_gone = self.looked_at.borrow_mut().remove(oid) && is_gone;
        rows?;
        if !is_still_gone || t.is_empty() {
            return Ok(false);
        }
        self.store.submit(t).await.map(|()| true)
    }

    /// Some clones that have rows, in no order of theirs; and where to go on, if there are more.
    pub async fn clones_after(
        &self,
        after: Option<BString>,
    ) -> Result<(Vec<HObject>, Option<BString>), StoreError> {
        let (from, skip) = match &after {
            Some(last) => (last.as_slice(), true),
            None => (OBJECT_PREFIX.as_bytes(), false),
        };
        let page =
            self.store.omap_range(&self.coll, &self.oid, from, skip, PAGE_MAX, usize::MAX).await;
        let page = match page {
            Err(StoreError::NoObject | StoreError::NoCollection(_)) => return Ok((vec![], None)),
            page => page?,
        };
        let is_row = |key: &BString| key.starts_with(OBJECT_PREFIX.as_bytes());
        let last = page.entries.last().map(|(key, _)| key.clone());
        let last = last.filter(|key| page.more && is_row(key));
        let rows = page.entries.iter().filter(|(key, _)| is_row(key));
        let clones = rows.map(|(_, row)| ObjectSnaps::from_bytes(row).map(|row| row.oid));
        let clones: Result<Vec<_>, _> = clones.collect();
        Ok((clones.map_err(|_| StoreError::Format("a row of the snap mapper"))?, last))
    }

    /// A clone serves these snapshots from now on.
    pub async fn update(
        &self,
        oid: &HObject,
        snaps: BTreeSet<SnapId>,
        t: &mut Transaction,
    ) -> Result<(), StoreError> {
        self.remove(oid, t).await?;
        if !snaps.is_empty() {
            self.add(oid, snaps, t);
        }
        Ok(())
    }

    /// Up to `max` clones of a PG that serve a snapshot; empty when it is trimmed. `bits` is the
    /// number of hash bits the PG's objects share.
    pub async fn objects_to_trim(
        &self,
        pgid: PgId,
        bits: u32,
        snap: SnapId,
        max: usize,
    ) -> Result<Vec<HObject>, StoreError> {
        let mut found = Vec::new();
        for hash in hash_prefixes(pgid.seed, bits) {
            let pool = pgid.pool_id();
            let prefix =
                format!("{}{:016X}.{hash}", SnapMapper::mapping_prefix(pool, snap), pool as u64);
            let page = self.store.omap_range(
                &self.coll,
                &self.oid,
                prefix.as_bytes(),
                false,
                PAGE_MAX.min(max - found.len()),
                usize::MAX,
            );
            let entries = match page.await {
                Err(StoreError::NoObject) => return Ok(found),
                page => page?.entries,
            };
            for (key, row) in entries {
                if !key.starts_with(prefix.as_bytes()) {
                    break;
                }
                let mut r = Reader::new(&row);
                let oid = r.envelope("Mapping", 1, 1, |r, _| {
                    r.u64()?;
                    r.get::<HObject>()
                });
                found.push(oid.map_err(|_| StoreError::Format("a row of the snap mapper"))?);
            }
            if found.len() >= max {
                break;
            }
        }
        Ok(found)
    }
}

/// What the reversed hashes of a PG's objects begin with, in order.
fn hash_prefixes(seed: u32, bits: u32) -> Vec<String> {
    let whole = (bits / 4) as usize;
    let digits = format!("{:08X}", nibblewise(seed));
    let rest = bits % 4;
    if rest == 0 {
        return vec![digits[..whole].to_owned()];
    }
    // The next digit's low bits are the PG's, its high bits any.
    let low = seed >> (4 * whole) & ((1 << rest) - 1);
    (0..16 >> rest).map(|high| format!("{}{:X}", &digits[..whole], high << rest | low)).collect()
}

#[cfg(test)]
mod tests {
    use sim::World;
    use store::memstore::MemStore;

    use super::*;

    /// What reads found was acted on, whatever had come since: the rows of a clone that was brought back while it was
    /// looked for went (`simtest`, `snapshots.rs`).
    #[test]
    fn rows_of_a_clone_that_comes_meanwhile_stay() {
        World::new(1).run_until(async move {
            let store: Rc<dyn ObjectStore> = Rc::new(MemStore::new(1 << 20));
            let mapper = SnapMapper::new(store.clone(), CollId::Meta, SnapMapper::default_object());
            let mut t = Transaction::new();
            t.mkcoll(&CollId::Meta, 0);
            mapper.create(&mut t);
            let oid = HObject { name: "o".into(), snap: 3, pool: 1, ..HObject::default() };
            mapper.add(&oid, [2, 3].into(), &mut t);
            store.submit(t).await.unwrap();
            let comes = async {
                let mut t = Transaction::new();
                mapper.update(&oid, [3].into(), &mut t).await.unwrap();
                store.submit(t).await.unwrap();
                true
            };
            assert!(!mapper.remove_of_gone(&oid, comes).await.unwrap());
            assert_eq!(mapper.snaps(&oid).await.unwrap(), [3].into());
            assert!(!mapper.remove_of_gone(&oid, async { false }).await.unwrap());
            assert_eq!(mapper.snaps(&oid).await.unwrap(), [3].into());
            assert!(mapper.remove_of_gone(&oid, async { true }).await.unwrap());
            assert!(mapper.snaps(&oid).await.unwrap().is_empty());
            let found = mapper.objects_to_trim(PgId::new(1, 0), 0, 3, 10).await.unwrap();
            assert!(found.is_empty());
        });
    }

    #[test]
    fn keys_are_cephs() {
        let oid = HObject {
            name: "a_b.c%".into(),
            snap: 0x1f,
            hash: 0x1234_abcd,
            pool: 2,
            namespace: "ns".into(),
            ..HObject::default()
        };
        assert_eq!(
            SnapMapper::mapping_key(0x1f, &oid),
            "SNA_2_000000000000001F_0000000000000002.DCBA4321.1f.a%ub%ec%p..ns"
        );
        assert_eq!(SnapMapper::object_key(&oid), "OBJ_0000000000000002.DCBA4321.1f.a%ub%ec%p..ns");
    }

    #[test]
    fn prefixes_cover_a_pg() {
        assert_eq!(hash_prefixes(0x5, 0), [""]);
        assert_eq!(hash_prefixes(0xab, 8), ["BA"]);
        assert_eq!(hash_prefixes(0x5, 3), ["5", "D"]);
        assert_eq!(hash_prefixes(0x15, 5).len(), 8);
        assert!(hash_prefixes(0x15, 5).contains(&"5F".to_owned()));
    }
}
