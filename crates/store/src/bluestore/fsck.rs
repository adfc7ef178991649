//! Whether everything agrees: extent maps, shared blobs, freelist, totals, and data with its
//! checksums. A repair believes the extent maps: all else is counted anew from them. An object of
//! which an onode or a part of the extent map cannot be read is removed: other OSDs have it. Where it is
//! one that nobody else may have, what seems to be nobody's may be its, and stays.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use denc::Denc;
use device::{Piece, WriteCause};

use super::Core;
use super::extent_map::{Blob, Physical, SHARD_LEN, Shard};
use super::format::{BLOCK_LEN, Onode, Prefix, SharedBlob, Totals, shard_of, shared_key};
use super::pools::Pools;
use super::read::read_shard;
use super::txn::Txn;
use crate::keyed::keys::{
    behind, header_key, number_of, object_of, onodes_of, tail_key, totals_key,
};
use crate::keyed::{Keys, decoded};
use crate::kv::{KvBatch, storage};
use crate::{CollId, Fsck, FsckOptions, StoreError};

/// Who holds a unit: a shared blob, or a blob of one shard.
type Holder = (u64, Bytes, usize);

fn holder(blob: &Blob, key: &Bytes, index: usize) -> Holder {
    match blob.shared {
        0 => (0, key.clone(), index),
        shared => (shared, Bytes::new(), 0),
    }
}

/// The units of a blob by device offset.
fn units(blob: &Blob, unit: u64) -> impl Iterator<Item = u64> + '_ {
    let runs = blob.physical.iter().filter_map(|p| Some((p.offset?, p.len)));
    runs.flat_map(move |(start, len)| (start..start + len).step_by(unit as usize))
}

/// An onode that can be read.
struct Known {
    key: Bytes,
    size: u64,
    omap: u64,
}

/// The object an onode's key is of, for people, and whether it may be the OSD's own (its maps, a
/// placement group's log): nobody else has those.
fn of_onode_key(key: &Bytes) -> (String, bool) {
    match object_of(key) {
        Some(oid) => {
            let is_own = oid.is_pgmeta() || key.starts_with(&onodes_of(&CollId::Meta));
            (oid.to_string(), is_own)
        }
        None => (format!("an object whose key is {key:?}"), true),
    }
}

/// What extent maps say, and what must change.
#[derive(Default)]
struct Found {
    /// Every unit that is held, by its first holder.
    held: BTreeMap<u64, Holder>,
    /// Units that another holder has first.
    twice: BTreeSet<(u64, Holder)>,
    /// References of shared blobs to units.
    shared: BTreeMap<(u64, u64), u32>,
    totals: Totals,
    /// Numbers of objects that a repair removes, and of their omaps.
    lost: BTreeSet<u64>,
    lost_omaps: BTreeSet<u64>,
    /// Objects that cannot be read and are not removed: nobody knows what of the rest is theirs.
    unread: u64,
    /// Units taken for copies.
    copies: Vec<u64>,
    batch: KvBatch,
}

impl Core {
    fn entries(&self, prefix: Prefix) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        let mut all = Vec::new();
        let start = prefix.key();
        self.scan(&start, &behind(&start), &mut |key, value| {
            all.push((Bytes::copy_from_slice(key), Bytes::copy_from_slice(value)));
            true
        })?;
        Ok(all)
    }

    /// Compares all there is, and repairs what can be told from extent maps: they say what is stored.
    /// Data that fails its checksums stays an error. Bound: the memory of all onodes and units.
    pub(super) fn compare_all(&self, options: FsckOptions) -> Result<Fsck, StoreError> {
        if options.repair {
            // Nothing is under way.
            self.drain()?;
        }
        let (mut report, mut found) = (Fsck::default(), Found::default());
        let mut onodes = self.fsck_onodes(&mut report, &mut found, options)?;
        self.fsck_shards(&mut report, &mut found, options, &mut onodes)?;
        let is_repair = options.repair;
        let options = FsckOptions { repair: is_repair && found.unread == 0, ..options };
        self.fsck_extents(&mut report, &mut found, options, &onodes)?;
        let omaps: BTreeSet<u64> = onodes.values().map(|known| known.omap).collect();
        for (sbid, _) in found.shared.keys() {
            found.totals.last_id = found.totals.last_id.max(*sbid);
        }
        if options.repair && !found.twice.is_empty() {
            self.part(&mut report, &mut found)?;
        }
        self.fsck_shared(&mut report, &mut found, options)?;
        let mut told = None;
        for (key, _) in self.entries(Prefix::Omap)? {
            let omap = number_of(&key).unwrap_or(0);
            if omaps.contains(&omap) || found.lost_omaps.contains(&omap) {
                continue;
            }
            if told.replace(omap) != Some(omap) {
                report.error(format!("omap {omap} of no object"));
                report.repaired += u64::from(options.repair);
            }
            if options.repair {
                found.batch.delete(key);
            }
        }
        let before = report.errors.len();
        self.fsck_space(&mut report, &found);
        self.fsck_totals(&mut report, &found);
        self.fsck_pools(&mut report)?;
        if is_repair {
            self.mend(&mut report, found, before)?;
        }
        Ok(report)
    }

    /// Onodes by number. Those that cannot be read are removed by a repair; what was theirs is then
    /// nobody's.
    fn fsck_onodes(
        &self,
        report: &mut Fsck,
        found: &mut Found,
        options: FsckOptions,
    ) -> Result<BTreeMap<u64, Known>, StoreError> {
        let mut onodes = BTreeMap::new();
        for (key, value) in self.entries(Prefix::Onode)? {
            let onode = match decoded::<Onode>(&value, "an onode") {
                Ok(onode) if object_of(&key).is_some() => onode,
                _ => {
                    lose(report, found, options, &key, "the onode cannot be read");
                    continue;
                }
            };
            let last = &mut found.totals.last_id;
            *last = (*last).max(onode.nid).max(onode.omap_head);
            let (size, omap) = (onode.size, onode.omap_head);
            if onodes.insert(onode.nid, Known { key, size, omap }).is_some() {
                report.error(format!("two objects of number {}", onode.nid));
            }
        }
        Ok(onodes)
    }

    /// Parts of extent maps that cannot be read: a repair removes them and the objects they are of.
    fn fsck_shards(
        &self,
        report: &mut Fsck,
        found: &mut Found,
        options: FsckOptions,
        onodes: &mut BTreeMap<u64, Known>,
    ) -> Result<(), StoreError> {
        let mut lost = BTreeSet::new();
        let mut shards = Vec::new();
        for (key, value) in self.entries(Prefix::Extents)? {
            let (nid, index) = (number_of(&key), shard_of(&key));
            if Shard::decode(&value).is_none() {
                match nid.and_then(|nid| Some((nid, onodes.get(&nid)?))) {
                    Some((nid, _)) if lost.contains(&nid) => {}
                    Some((nid, known)) => {
                        let why = format!("part {index:?} of the extent map cannot be read");
                        if lose(report, found, options, &known.key, &why) {
                            lost.insert(nid);
                        }
                    }
                    None => {
                        report.error(format!(
                            "extent map {nid:?} {index:?} of no object cannot be read"
                        ));
                        if options.repair && found.unread == 0 {
                            found.batch.delete(key);
                            report.repaired += 1;
                        }
                        continue;
                    }
                }
            }
            shards.push((nid, key));
        }
        for (nid, key) in shards {
            if nid.is_some_and(|nid| lost.contains(&nid)) {
                found.batch.delete(key);
            }
        }
        for nid in lost {
            let omap = onodes.remove(&nid).map_or(0, |known| known.omap);
            if omap != 0 {
                let start = header_key(omap);
                found.batch.delete_range(start, tail_key(omap));
                found.lost_omaps.insert(omap);
            }
            found.lost.insert(nid);
        }
        Ok(())
    }

    fn fsck_extents(
        &self,
        report: &mut Fsck,
        found: &mut Found,
        options: FsckOptions,
        onodes: &BTreeMap<u64, Known>,
    ) -> Result<(), StoreError> {
        let unit = self.unit();
        let txn = Txn::new(self, self.state().totals);
        for (key, value) in self.entries(Prefix::Extents)? {
            let (nid, index) = (number_of(&key), shard_of(&key));
            // What cannot be read, and what went with it, has been told.
            let Some(shard) = Shard::decode(&value) else { continue };
            if nid.is_some_and(|nid| found.lost.contains(&nid)) {
                continue;
            }
            let size = nid.and_then(|nid| onodes.get(&nid)).map(|known| known.size);
            let base = u64::from(index.unwrap_or(0)) * SHARD_LEN;
            let end = shard.extents.last().map_or(0, |e| base + e.end());
            match size {
                None => {
                    report.error(format!("extent map of no object: {nid:?}"));
                    if options.repair {
                        found.batch.delete(key);
                        report.repaired += 1;
                        continue;
                    }
                }
                // An extent may fill the last block.
                Some(size) if end > size.next_multiple_of(BLOCK_LEN) => {
                    report.error(format!("object {nid:?} of {size} bytes maps up to {end}"));
                }
                Some(_) => {}
            }
            found.totals.stored += shard.stored();
            for (total, n) in found.totals.compressed.iter_mut().zip(shard.compressed()) {
                *total += n;
            }
            let mut whole = shard.clone();
            whole.release(unit, |offset, _, _| {
                report.error(format!("unit {offset:#x} is held and not referred to"));
            });
            for (index, blob) in shard.blobs.iter().enumerate() {
                let holder = holder(blob, &key, index);
                for offset in units(blob, unit) {
                    if blob.shared != 0 {
                        *found.shared.entry((blob.shared, offset)).or_insert(0) += 1;
                    }
                    let first = found.held.entry(offset).or_insert_with(|| holder.clone());
                    // A shared blob's units are in several shards; another's are in one, once.
                    let is_other = *first != holder;
                    if is_other && found.twice.insert((offset, holder.clone())) {
                        report.error(format!("unit {offset:#x} is two blobs'"));
                    }
                }
            }
            if options.deep
                && let Err(e) = verify(&txn, &shard)
            {
                report.error(format!("data of object {nid:?} shard {index:?}: {e}"));
            }
        }
        Ok(())
    }

    fn fsck_shared(
        &self,
        report: &mut Fsck,
        found: &mut Found,
        options: FsckOptions,
    ) -> Result<(), StoreError> {
        let mut said: BTreeMap<u64, BTreeMap<u64, u32>> = BTreeMap::new();
        for (key, value) in self.entries(Prefix::Shared)? {
            let sbid = number_of(&key).unwrap_or(0);
            let refs = match decoded::<SharedBlob>(&value, "a shared blob") {
                Ok(blob) if shared_key(sbid) == key => blob.refs,
                _ => BTreeMap::new(),
            };
            said.insert(sbid, refs);
        }
        let mut counted: BTreeMap<u64, BTreeMap<u64, u32>> = BTreeMap::new();
        for ((sbid, offset), refs) in &found.shared {
            counted.entry(*sbid).or_default().insert(*offset, *refs);
        }
        let all: BTreeSet<u64> = said.keys().chain(counted.keys()).copied().collect();
        for sbid in all {
            let (says, is) = (said.get(&sbid), counted.get(&sbid));
            if says == is {
                continue;
            }
            report.error(format!("shared blob {sbid} says {says:?}, there are {is:?}"));
            if !options.repair {
                continue;
            }
            report.repaired += 1;
            match is {
                Some(refs) => {
                    let blob = SharedBlob { refs: refs.clone() };
                    found.batch.put(shared_key(sbid), blob.to_bytes())
                }
                None => found.batch.delete(shared_key(sbid)),
            };
        }
        Ok(())
    }

    fn fsck_space(&self, report: &mut Fsck, found: &Found) {
        let alloc = self.alloc();
        for offset in found.held.keys().filter(|offset| !alloc.is_used(**offset)) {
            report.error(format!("unit {offset:#x} is used and called free"));
        }
        let used = alloc.used_offsets();
        let leaked: Vec<u64> = used.filter(|offset| !found.held.contains_key(offset)).collect();
        if let Some(first) = leaked.first() {
            let bytes = leaked.len() as u64 * self.unit();
            report.error(format!(
                "{bytes} bytes are leaked: called used, and nobody's, from {first:#x} on"
            ));
        }
    }

    fn fsck_totals(&self, report: &mut Fsck, found: &Found) {
        let (said, is) = (self.state().totals, found.totals);
        if said.stored != is.stored {
            report.error(format!("{} bytes are stored, the totals say {}", is.stored, said.stored));
        }
        if said.compressed != is.compressed {
            report.error(format!(
                "{:?} bytes are compressed, the totals say {:?}",
                is.compressed, said.compressed
            ));
        }
        if said.last_id < is.last_id {
            report.error(format!(
                "the largest number is {}, the totals say {}",
                is.last_id, said.last_id
            ));
        }
    }

    fn fsck_pools(&self, report: &mut Fsck) -> Result<(), StoreError> {
        let is = self.count_pools()?;
        let said = self.state().pools.clone();
        let all: BTreeSet<u64> = said.keys().chain(is.keys()).copied().collect();
        for pool in all {
            let of = |pools: &Pools| pools.get(&pool).copied().unwrap_or_default();
            let (said, is) = (of(&said), of(&is));
            if said != is {
                report.error(format!("pool {} takes {is:?}, the totals say {said:?}", pool as i64));
            }
        }
        Ok(())
    }

    /// Gives each holder but the first of a unit a copy of it: whose data it is, checksums tell.
    fn part(&self, report: &mut Fsck, found: &mut Found) -> Result<(), StoreError> {
        let unit = self.unit();
        let mut moved: BTreeMap<(u64, Holder), u64> = BTreeMap::new();
        for (offset, holder) in std::mem::take(&mut found.twice) {
            let Some(runs) = self.alloc().allocate(unit) else { break };
            let place = runs[0].start;
            found.copies.push(place);
            let data = self.device.read(offset, unit as usize)?.freeze();
            self.device.write(place, vec![Piece::new(data, WriteCause::Data)])?;
            moved.insert((offset, holder), place);
            report.repaired += 1;
        }
        self.device.sync()?;
        for (key, value) in self.entries(Prefix::Extents)? {
            let Some(mut shard) = Shard::decode(&value) else { continue };
            if number_of(&key).is_some_and(|nid| found.lost.contains(&nid)) {
                continue;
            }
            let mut changed = false;
            for (index, blob) in shard.blobs.iter_mut().enumerate() {
                let holder = holder(blob, &key, index);
                changed |=
                    replace(blob, unit, |offset| moved.get(&(offset, holder.clone())).copied());
            }
            if changed {
                found.batch.put(key, shard.encode());
            }
        }
        for ((offset, holder), place) in moved {
            if let Some(refs) = found.shared.remove(&(holder.0, offset)) {
                found.shared.insert((holder.0, place), refs);
            }
            found.held.insert(place, holder);
        }
        Ok(())
    }

    /// Writes what has been found to be so. Errors from `first` on are of space and totals. With objects
    /// unread that is what was removed, and no more.
    fn mend(&self, report: &mut Fsck, mut found: Found, first: usize) -> Result<(), StoreError> {
        let is_all_read = found.unread == 0;
        let of_space = if is_all_read { (report.errors.len() - first) as u64 } else { 0 };
        let held: BTreeSet<u64> = found.held.keys().copied().collect();
        let (mut state, mut alloc) = (self.state(), self.alloc());
        // These are held from now on.
        let unit = self.unit();
        found.copies.iter().for_each(|place| alloc.release(&(*place..*place + unit)));
        let lent = alloc.lent_among(&held);
        if !lent.is_empty() {
            for offset in lent {
                report.error(format!(
                    "unit {offset:#x} is the database's, too: this OSD must be made anew"
                ));
            }
            // A freelist with these units would not be mounted again, and what can be read could not be exported.
            report.repaired = 0;
            return Ok(());
        }
        let mut freed = Vec::new();
        if of_space > 0 || !found.batch.is_empty() {
            found.totals.last_id = found.totals.last_id.max(state.totals.last_id);
            found.batch.put(totals_key(), found.totals.to_bytes());
            if is_all_read && (of_space > 0 || report.repaired > 0) {
                let (keys, free) = alloc.rebuild(&held);
                freed = free;
                for (key, value) in keys {
                    found.batch.put(key, value);
                }
            }
            state.totals = found.totals;
            drop((state, alloc));
            self.kv.commit(found.batch).map_err(|e| self.latch(storage(e)))?;
            let mut alloc = self.alloc();
            freed.iter().for_each(|run| alloc.release(run));
            drop(alloc);
            let pools = self.count_pools()?;
            let said = std::mem::replace(&mut self.state().pools, pools.clone());
            self.set_pools(&said, &pools)?;
            report.repaired += of_space;
        }
        Ok(())
    }
}

/// Tells of an object that cannot be read; a repair removes its onode, if others have the object, and
/// counts it as unread otherwise. Whether it is removed.
fn lose(
    report: &mut Fsck,
    found: &mut Found,
    options: FsckOptions,
    key: &Bytes,
    why: &str,
) -> bool {
    let (name, is_own) = of_onode_key(key);
    if is_own {
        found.unread += 1;
        report.error(format!(
            "{name}: {why}; other OSDs do not have this: it stays, and what may be its; export what can be read, make the OSD anew"
        ));
        return false;
    }
    if !options.repair {
        report.error(format!(
            "{name}: {why}; a repair removes the object here, 'ceph pg repair' brings it back from other OSDs"
        ));
        return false;
    }
    report.error(format!(
        "{name}: {why}; removed here, 'ceph pg repair' brings it back from other OSDs"
    ));
    found.batch.delete(key.clone());
    report.repaired += 1;
    true
}

/// Gives a blob's units other places. Whether any was.
fn replace(blob: &mut Blob, unit: u64, place_of: impl Fn(u64) -> Option<u64>) -> bool {
    let mut changed = false;
    let mut physical: Vec<Physical> = Vec::new();
    for p in &blob.physical {
        for n in 0..p.len / unit {
            let offset = p.offset.map(|start| {
                let was = start + n * unit;
                let is = place_of(was);
                changed |= is.is_some();
                is.unwrap_or(was)
            });
            match physical.last_mut() {
                Some(last)
                    if last.offset.is_some() == offset.is_some()
                        && last.offset.map(|start| start + last.len) == offset =>
                {
                    last.len += unit;
                }
                _ => physical.push(Physical { offset, len: unit }),
            }
        }
    }
    blob.physical = physical;
    changed
}

fn verify(txn: &Txn<'_>, shard: &Shard) -> Result<(), StoreError> {
    let end = shard.extents.last().map_or(0, |e| e.end());
    read_shard(txn, shard, 0, end).map(|_| ())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use device::SharedDevice;
    use device::shared_memory::SharedMemoryFile;
    use env::Env;

    use super::*;
    use crate::bluestore::format::{freelist_key, shard_key};
    use crate::bluestore::{BlueStore, Compression, Database, MkfsOptions};
    use crate::keyed::keys::onode_key;
    use crate::kv::{Direction, Kv, KvError, MemKv, SharedKv, Visit};
    use crate::testing::{block_on, numbered, pg};
    use crate::{ObjectStore, Transaction};

    /// A store with some objects, closed.
    async fn filled(env: &Env) -> (SharedDevice, SharedKv) {
        let device = SharedDevice::new(SharedMemoryFile::new(16 << 20, 4096));
        let kv: SharedKv = Arc::new(MemKv::new());
        let options = MkfsOptions { uuid: [7; 16], min_alloc_len: 4096 };
        let database = Database::Given(kv.clone());
        BlueStore::mkfs(env, device.clone(), database, options).await.unwrap();
        let store = mounted(env, &device, &kv).await;
        let mut t = Transaction::new();
        t.mkcoll(&pg(0), 0);
        for n in 1..4 {
            t.write(&pg(0), &numbered(n), 0, vec![n as u8; 10_000]);
        }
        t.omap_setkeys(&pg(0), &numbered(1), [("k", "v".into())]);
        t.clone_object(&pg(0), &numbered(1), &numbered(9));
        store.submit(t).await.unwrap();
        store.close().await.unwrap();
        (device, kv)
    }

    async fn mounted(env: &Env, device: &SharedDevice, kv: &SharedKv) -> BlueStore {
        let database = Database::Given(kv.clone());
        BlueStore::mount(env.clone(), device.clone(), database, Compression::default())
            .await
            .unwrap()
    }

    /// Damages a store, and sees it told, repaired but for `left` errors, and gone. Objects that are
    /// `lost` cannot be read afterwards, the others can.
    async fn one(env: &Env, name: &str, left: u64, lost: u64, damage: impl FnOnce(&dyn Kv)) {
        let (device, kv) = filled(env).await;
        damage(&*kv);
        let store = mounted(env, &device, &kv).await;
        let fsck = |repair| store.fsck(FsckOptions { deep: false, repair });
        let told = fsck(false).await.unwrap();
        assert!(!told.errors.is_empty(), "{name}");
        let report = fsck(true).await.unwrap();
        assert_eq!(report.errors.len() as u64 - report.repaired, left, "{name} {report:?}");
        if left == 0 {
            assert_eq!(fsck(false).await, Ok(Fsck::default()), "{name}");
        }
        store.close().await.unwrap();
        drop(store);
        let store = mounted(env, &device, &kv).await;
        let mut unreadable = 0;
        for n in [1, 2, 3, 9] {
            match store.read(&pg(0), &numbered(n), 0, 0).await {
                Ok(data) => {
                    let expected = vec![if n == 9 { 1 } else { n as u8 }; 10_000];
                    assert!(data.to_contiguous() == expected, "{name} {n}");
                }
                Err(StoreError::Checksum { .. } | StoreError::NoObject) => unreadable += 1,
                Err(e) => panic!("{name} {n}: {e}"),
            }
        }
        assert_eq!(unreadable, lost, "{name}");
        // Life goes on: what is free is, and what is held is not given to another.
        let mut t = Transaction::new();
        t.write(&pg(0), &numbered(20), 0, vec![8; 1_000_000]);
        t.remove(&pg(0), &numbered(1));
        t.remove(&pg(0), &numbered(2));
        store.submit(t).await.unwrap();
        if left == 0 {
            let fsck = store.fsck(FsckOptions { deep: lost == 0, repair: false });
            assert_eq!(fsck.await, Ok(Fsck::default()), "{name}");
        }
    }

    fn shards(kv: &dyn Kv) -> Vec<(Bytes, Bytes)> {
        kv.range(b"E", b"F", usize::MAX).unwrap()
    }

    fn put(kv: &dyn Kv, key: Bytes, value: impl Into<Bytes>) {
        let mut batch = KvBatch::new();
        batch.put(key, value.into());
        kv.commit(batch).unwrap();
    }

    #[test]
    fn what_extent_maps_tell_is_repaired() {
        block_on(|env| async move {
            one(&env, "leaked units", 0, 0, |kv| {
                put(kv, freelist_key(3), vec![0xff; 16]);
            })
            .await;
            one(&env, "units called free", 0, 0, |kv| {
                put(kv, freelist_key(0), vec![0; 16]);
            })
            .await;
            one(&env, "a shared blob that says another number", 0, 0, |kv| {
                let (key, value) = kv.range(b"X", b"Y", 1).unwrap().remove(0);
                let mut blob = SharedBlob::from_bytes_exact(&value).unwrap();
                blob.refs.values_mut().for_each(|refs| *refs = 1);
                put(kv, key, blob.to_bytes());
            })
            .await;
            one(&env, "a shared blob that is gone, and one of nothing", 0, 0, |kv| {
                let (key, value) = kv.range(b"X", b"Y", 1).unwrap().remove(0);
                let mut batch = KvBatch::new();
                batch.delete(key).put(shared_key(500), value);
                kv.commit(batch).unwrap();
            })
            .await;
            one(&env, "no totals", 0, 0, |kv| {
                let mut batch = KvBatch::new();
                batch.delete(totals_key());
                kv.commit(batch).unwrap();
            })
            .await;
            one(&env, "omap and extents of no object", 0, 0, |kv| {
                let (_, shard) = shards(kv).remove(1);
                put(kv, b"M\0\0\0\0\0\0\0\0\x63.key".to_vec().into(), vec![1]);
                put(kv, shard_key(77, 0), shard);
            })
            .await;
            // Object 3 says it has what is object 2's: its own data is lost, and nobody else's.
            one(&env, "units of two objects", 0, 1, |kv| {
                let all = shards(kv);
                let own = all.iter().filter(|(_, value)| {
                    Shard::decode(value).unwrap().blobs.iter().all(|b| b.shared == 0)
                });
                let own: Vec<_> = own.collect();
                let (two, three) = (Shard::decode(&own[0].1).unwrap(), Shard::decode(&own[1].1));
                let mut three = three.unwrap();
                three.blobs[0].physical = two.blobs[0].physical.clone();
                put(kv, own[1].0.clone(), three.encode());
            })
            .await;
            one(&env, "a shared blob that cannot be read", 0, 0, |kv| {
                let (key, _) = kv.range(b"X", b"Y", 1).unwrap().remove(0);
                put(kv, key, vec![9]);
            })
            .await;
            one(&env, "an extent map of no object that cannot be read", 0, 0, |kv| {
                put(kv, shard_key(78, 0), vec![9, 9]);
            })
            .await;
        });
    }

    /// A database that takes no more changes once it is told so.
    struct Refusing {
        kv: SharedKv,
        refuses: AtomicBool,
    }

    impl Kv for Refusing {
        fn get(&self, key: &[u8]) -> Result<Option<Bytes>, KvError> {
            self.kv.get(key)
        }
        fn scan(
            &self,
            start: &[u8],
            end: &[u8],
            direction: Direction,
            visit: Visit<'_>,
        ) -> Result<(), KvError> {
            self.kv.scan(start, end, direction, visit)
        }
        fn commit(&self, batch: KvBatch) -> Result<(), KvError> {
            match self.refuses.load(Ordering::Relaxed) {
                true => Err(KvError::Storage("refused".into())),
                false => self.kv.commit(batch),
            }
        }
        fn commit_later(&self, batch: KvBatch) -> Result<(), KvError> {
            self.commit(batch)
        }
        fn stored_bytes(&self) -> Result<u64, KvError> {
            self.kv.stored_bytes()
        }
    }

    /// A store whose repair could not be written went on with what it would have been.
    #[test]
    fn a_repair_that_is_not_written_ends_the_store() {
        block_on(|env| async move {
            let (device, kv) = filled(&env).await;
            put(&*kv, freelist_key(3), vec![0xff; 16]);
            let refusing = Arc::new(Refusing { kv, refuses: AtomicBool::new(false) });
            let store = mounted(&env, &device, &(refusing.clone() as SharedKv)).await;
            refusing.refuses.store(true, Ordering::Relaxed);
            assert!(store.fsck(FsckOptions { deep: false, repair: true }).await.is_err());
            refusing.refuses.store(false, Ordering::Relaxed);
            let mut t = Transaction::new();
            t.write(&pg(0), &numbered(20), 0, vec![8; 100]);
            assert_eq!(store.submit(t).await, Err(StoreError::Latched));
        });
    }

    /// Where objects and the database had the same unit, which a repair cannot mend, one that found something else to mend
    /// wrote a freelist with which the store did not mount any more: nothing could be exported.
    #[test]
    fn nothing_is_repaired_where_the_database_has_what_objects_have() {
        block_on(|env| async move {
            let (device, kv) = filled(&env).await;
            put(&*kv, freelist_key(0), vec![0; 16]);
            put(&*kv, b"M\0\0\0\0\0\0\0\0\x63.key".to_vec().into(), vec![1]);
            let store = mounted(&env, &device, &kv).await;
            // As a database on the device would.
            store.0.core().unwrap().alloc().lend(4096).unwrap();
            let all = || kv.range(b"", b"\xff", usize::MAX).unwrap();
            let before = all();
            let report = store.fsck(FsckOptions { deep: false, repair: true }).await.unwrap();
            let is_told = report.errors.iter().any(|error| error.contains("must be made anew"));
            assert!(is_told && report.repaired == 0, "{report:?}");
            assert!(all() == before);
        });
    }

    /// What cannot be read made every look at the store fail, repairs, too: the object had to stay.
    #[test]
    fn an_object_that_cannot_be_read_is_removed_and_nothing_else() {
        block_on(|env| async move {
            for n in [1, 2, 9] {
                one(&env, "an onode", 0, 1, |kv| {
                    put(kv, onode_key(&pg(0), &numbered(n)), vec![9]);
                })
                .await;
            }
            // Of object 1, which shares blobs with 9 and has an omap; and of the last.
            for which in [0, 3] {
                one(&env, "a part of an extent map", 0, 1, |kv| {
                    let all = shards(kv);
                    assert_eq!(all.len(), 4);
                    put(kv, all[which].0.clone(), vec![9, 9]);
                })
                .await;
            }
            // It may be a log's.
            one(&env, "a key", 1, 0, |kv| {
                let mut key = onode_key(&pg(0), &numbered(3)).to_vec();
                key.truncate(key.len() - 5);
                put(kv, key.into(), vec![9]);
            })
            .await;
            // Nobody else has a placement group's log.
            one(&env, "the onode of a log", 1, 0, |kv| {
                let own = pg(0).spg().unwrap().pgmeta();
                put(kv, onode_key(&pg(0), &own), vec![9]);
            })
            .await;
        });
    }

    /// Of the OSD's own objects that could not be read a repair said that they were left alone, and then removed
    /// their extents and omaps, which seemed to be nobody's, and gave their units to others: a placement group's log
    /// was gone for good.
    #[test]
    fn what_may_be_an_own_objects_stays() {
        block_on(|env| async move {
            let (device, kv) = filled(&env).await;
            let own = pg(0).spg().unwrap().pgmeta();
            let store = mounted(&env, &device, &kv).await;
            let mut t = Transaction::new();
            t.write(&pg(0), &own, 0, vec![5; 20_000]);
            t.omap_setkeys(&pg(0), &own, [("log", "entry".into())]);
            t.clone_object(&pg(0), &own, &numbered(7));
            store.submit(t).await.unwrap();
            store.close().await.unwrap();
            drop(store);
            let keys = |prefix: &[u8], end: &[u8]| kv.range(prefix, end, usize::MAX).unwrap();
            let key = onode_key(&pg(0), &own);
            let onode = kv.get(&key).unwrap().expect("the onode");
            let shard = shard_key(Onode::from_bytes_exact(&onode).unwrap().nid, 0);
            let mut cut = key.to_vec();
            cut.truncate(cut.len() - 5);
            // Its onode, a part of its extent map, its key. Another's goes all the same.
            for damaged in [key.clone(), shard, cut.into()] {
                let was = kv.get(&damaged).unwrap();
                put(&*kv, damaged.clone(), vec![9]);
                if was.is_none() {
                    let mut batch = KvBatch::new();
                    batch.delete(key.clone());
                    kv.commit(batch).unwrap();
                }
                let another = onode_key(&pg(0), &numbered(3));
                put(&*kv, another.clone(), vec![9]);
                let content = || (keys(b"E", b"F"), keys(b"M", b"N"), keys(b"X", b"Y"));
                let before = content();
                let store = mounted(&env, &device, &kv).await;
                let repair = FsckOptions { deep: false, repair: true };
                let report = store.fsck(repair).await.unwrap();
                assert_eq!(report.repaired, 1, "{damaged:?} {report:?}");
                assert!(report.errors.iter().any(|e| e.contains("it stays")), "{report:?}");
                assert_eq!(kv.get(&another), Ok(None));
                assert!(content() == before, "{damaged:?} {report:?}");
                // What is written from now on does not go to where its data is.
                let mut t = Transaction::new();
                t.write(&pg(0), &numbered(20), 0, vec![8; 4_000_000]);
                store.submit(t).await.unwrap();
                let mut t = Transaction::new();
                t.remove(&pg(0), &numbered(20));
                store.submit(t).await.unwrap();
                store.close().await.unwrap();
                drop(store);
                // Somebody who can, mends it.
                let mut batch = KvBatch::new();
                match was {
                    Some(was) => batch.put(damaged.clone(), was),
                    None => batch.delete(damaged.clone()).put(key.clone(), onode.clone()),
                };
                kv.commit(batch).unwrap();
                let store = mounted(&env, &device, &kv).await;
                let data = store.read(&pg(0), &own, 0, 0).await.unwrap();
                assert!(data.to_contiguous() == vec![5; 20_000], "{damaged:?}");
                let log = store.omap_values(&pg(0), &own, &["log".into()]).await.unwrap();
                assert_eq!(log.len(), 1, "{damaged:?}");
                store.close().await.unwrap();
            }
        });
    }

    #[test]
    fn lost_objects_are_named() {
        block_on(|env| async move {
            let (device, kv) = filled(&env).await;
            put(&*kv, onode_key(&pg(0), &numbered(2)), vec![9]);
            let store = mounted(&env, &device, &kv).await;
            let fsck = |repair| store.fsck(FsckOptions { deep: false, repair });
            let name = numbered(2).to_string();
            let named = |report: &Fsck| report.errors.iter().any(|e| e.contains(&name));
            assert!(named(&fsck(false).await.unwrap()));
            assert!(named(&fsck(true).await.unwrap()));
        });
    }
}
