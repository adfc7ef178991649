//! What this OSD has of a range of a PG: sizes and attributes, and for deep scrub the checksums of
//! content and omap (`be_scan_list` in `src/osd/PGBackend.cc`, `be_deep_scrub` in
//! `src/osd/ReplicatedBackend.cc`).

use std::collections::BTreeSet;

use bytes::Bytes;
use denc::{Denc, Writer};
use maps::pool::pool_flags;
use store::StoreError;
use types::crc::crc32c;
use types::hobject::NO_GEN;
use types::osd::{ScrubMap, ScrubObject, SnapSet};
use types::{GhObject, HObject};

use super::ScrubSettings;
use crate::ec::hash_info::{self, Verdict};
use crate::ops::object_context::SS_ATTR;
use crate::pg::Pg;
use crate::pg::host::LogLevel;

/// Objects listed at a time.
const LIST_MAX: usize = 256;

/// A part of a PG that is scrubbed at once: whole objects, clones and heads together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::pg) struct Chunk {
    /// First object.
    pub start: HObject,
    /// First object behind it.
    pub end: HObject,
}

impl Chunk {
    /// Whether an object is in it.
    pub(in crate::pg) fn contains(&self, oid: &HObject) -> bool {
        self.start <= *oid && *oid < self.end
    }
}

fn is_scrubbed(oid: &GhObject) -> bool {
    !oid.is_pgmeta() && !oid.hobj.is_temp() && oid.generation == NO_GEN
}

impl Pg {
    /// The chunk that begins at `start`: about `max` objects and clones.
    pub(super) async fn next_chunk(
        &self,
        start: &HObject,
        max: usize,
    ) -> Result<Chunk, StoreError> {
        let store = self.host.store();
        let mut from = match start.is_min() {
            true => GhObject::min(),
            false => GhObject { generation: 0, ..self.goid(start) },
        };
        let mut count = 0;
        let mut last: Option<HObject> = None;
        loop {
            let page = store.list(&self.cid, &from, &GhObject::max(), max.max(1)).await?;
            for oid in page.objects.iter().filter(|oid| is_scrubbed(oid)) {
                // A chunk ends only where an object begins.
                let is_new = last.as_ref().is_none_or(|last| !last.same_object(&oid.hobj));
                if is_new && count >= max {
                    let end = oid.hobj.object_boundary();
                    return Ok(Chunk { start: start.clone(), end });
                }
                last = Some(oid.hobj.clone());
                count += 1;
            }
            from = page.next;
            if from.is_max() {
                return Ok(Chunk { start: start.clone(), end: HObject::max() });
            }
        }
    }

    /// Scans a chunk. Only a store that fails altogether is an error; objects that cannot be read
    /// are told in the map.
    pub(super) async fn scan(
        &self,
        chunk: &Chunk,
        deep: bool,
        settings: &ScrubSettings,
    ) -> Result<ScrubMap, StoreError> {
        let valid_through = self.core.borrow().info.last_update;
        let mut map = ScrubMap { valid_through, ..ScrubMap::default() };
        let mut from = match chunk.start.is_min() {
            true => GhObject::min(),
            false => GhObject { generation: 0, ..self.goid(&chunk.start) },
        };
        let end = match chunk.end.is_max() {
            true => GhObject::max(),
            false => GhObject { generation: 0, ..self.goid(&chunk.end) },
        };
        loop {
            let page = self.host.store().list(&self.cid, &from, &end, LIST_MAX).await?;
            for oid in page.objects.into_iter().filter(is_scrubbed) {
                if let Some(object) = self.scan_object(&oid, deep, settings).await {
                    map.objects.insert(oid.hobj, object);
                }
            }
            if page.next >= end {
                return Ok(map);
            }
            from = page.next;
        }
    }

    async fn scan_object(
        &self,
        oid: &GhObject,
        deep: bool,
        settings: &ScrubSettings,
    ) -> Option<ScrubObject> {
        let store = self.host.store();
        let mut object = ScrubObject::default();
        let known = match store.stat(&self.cid, oid).await {
            Ok(stat) => {
                object.size = stat.size;
                store.getattrs(&self.cid, oid).await
            }
            Err(e) => Err(e),
        };
        match known {
            Ok(attrs) => object.attrs = attrs.into_iter().collect(),
            Err(StoreError::NoObject) => return None,
            Err(e) => {
                tracing::error!(pg = %self.pgid, %oid, "metadata cannot be read: {e}");
                object.stat_error = true;
                return Some(object);
            }
        }
        if deep && let Err(e) = self.read_deep(oid, &mut object, settings).await {
            tracing::error!(pg = %self.pgid, %oid, "content cannot be read: {e}");
            object.read_error = true;
        }
        Some(object)
    }

    async fn read_deep(
        &self,
        oid: &GhObject,
        object: &mut ScrubObject,
        settings: &ScrubSettings,
    ) -> Result<(), StoreError> {
        let store = self.host.store();
        let (mut at, mut digest) = (0, u32::MAX);
        while at < object.size {
            let len = settings.stride.min(object.size - at);
            let data = store.read_device(&self.cid, oid, at, len).await?;
            if data.is_empty() {
                break;
            }
            at += data.len() as u64;
            digest = data.crc32c(digest);
        }
        match self.codec() {
            Some(_) => self.check_shard(object, at, digest),
            None => {
                object.digest = digest;
                object.digest_present = true;
            }
        }
        let header = store.omap_header(&self.cid, oid).await?;
        let mut digest = crc32c(u32::MAX, &header);
        let (mut from, mut after) = (Bytes::new(), false);
        loop {
            let page = store
                .omap_range(&self.cid, oid, &from, after, settings.omap_keys, OMAP_BYTES)
                .await?;
            for (key, value) in &page.entries {
                digest = omap_digest(digest, key, value);
                object.object_omap_keys += 1;
                object.object_omap_bytes += value.len() as u64;
            }
            match page.entries.last() {
                Some((key, _)) if page.more => {
                    from = Bytes::copy_from_slice(key);
                    after = true;
                }
                _ => break,
            }
        }
        object.omap_digest = digest;
        object.omap_digest_present = true;
        if object.object_omap_keys > settings.large_omap_keys
            || object.object_omap_bytes > settings.large_omap_bytes
        {
            object.large_omap_object_found = true;
            object.large_omap_object_key_count = object.object_omap_keys;
            object.large_omap_object_value_size = object.object_omap_bytes;
        }
        Ok(())
    }

    /// Checks a shard's chunk by what is recorded of it.
    fn check_shard(&self, object: &mut ScrubObject, len: u64, digest: u32) {
        let shard = usize::try_from(self.pgid.shard).unwrap_or(usize::MAX);
        let overwrites = self.pool().has_flag(pool_flags::EC_OVERWRITES);
        note_verdict(object, hash_info::judge(&object.attrs, shard, len, digest), overwrites);
    }

    /// Sets right what the snap mapper says of clones, by their heads' snap sets (`_scan_snaps`). In another interval, or
    /// once the scrub has ended, what was scanned may have been trimmed.
    pub(super) async fn check_snap_mapper(&self, map: &ScrubMap) {
        let session = self.scrub_session();
        let mut set: Option<(HObject, SnapSet)> = None;
        for (oid, object) in map.objects.iter().rev() {
            if !oid.is_snap() {
                let attr = object.attrs.get(bstr::BStr::new(SS_ATTR));
                let decoded = attr.and_then(|bytes| SnapSet::from_bytes(bytes).ok());
                set = decoded.map(|set| (oid.clone(), set));
                continue;
            }
            let Some((head, set)) = &set else { continue };
            let Some(snaps) = set.clone_snaps.get(&oid.snap) else { continue };
            if *head != oid.head() {
                continue;
            }
            let wanted: BTreeSet<u64> = snaps.iter().copied().collect();
            let mapper = self.host.snap_mapper();
            let Ok(known) = mapper.snaps(oid).await else { continue };
            if known == wanted {
                continue;
            }
            let mut t = store::Transaction::new();
            if mapper.update(oid, wanted, &mut t).await.is_err() || t.is_empty() {
                continue;
            }
            if session != self.scrub_session() {
                return;
            }
            let text = format!(
                "osd.{} found snap mapper error on pg {} oid {oid} snaps in mapper: {known:?}, \
                 oi: {snaps:?}...repaired",
                self.host.whoami(),
                self.pgid
            );
            self.host.cluster_log(LogLevel::Error, text);
            if let Err(e) = self.host.store().submit(t).await {
                self.host.store_failed(&e);
            }
        }
    }
}

/// Tells what was found of a shard's chunk. A hash of the object there is not: what is recorded of shard 0 stands for it,
/// the same on all shards that are right; 0 where objects may be overwritten, whether this one was or not
/// (`ECBackend::be_deep_scrub` in `src/osd/ECBackend.cc`).
fn note_verdict(object: &mut ScrubObject, verdict: Verdict, overwrites: bool) {
    match verdict {
        Verdict::Absent => object.read_error = true,
        Verdict::Length => object.ec_size_mismatch = true,
        Verdict::Hash => object.ec_hash_mismatch = true,
        Verdict::Unknown => object.digest_present = true,
        Verdict::Good { first } => {
            object.digest = if overwrites { 0 } else { first };
            object.digest_present = true;
        }
    }
}

/// Bytes of omap read at a time.
const OMAP_BYTES: usize = 1 << 20;

/// The digest of an omap after another pair: both with their lengths.
fn omap_digest(digest: u32, key: &[u8], value: &[u8]) -> u32 {
    let mut w = Writer::new();
    for part in [key, value] {
        w.count(part.len());
        w.raw(part);
    }
    crc32c(digest, &w.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shards of ours told the hash of an object that had not been overwritten, in a pool where others could be. Shards of
    /// Ceph's tell 0 there, and their primary counted an error.
    #[test]
    fn no_hash_is_told_where_objects_may_be_overwritten() {
        let told = |overwrites| {
            let mut object = ScrubObject::default();
            note_verdict(&mut object, Verdict::Good { first: 7 }, overwrites);
            (object.digest_present, object.digest)
        };
        assert_eq!((told(false), told(true)), ((true, 7), (true, 0)));
    }

    /// As a real Ceph printed it for an object with the one pair k = v.
    #[test]
    fn the_digest_is_cephs() {
        assert_eq!(omap_digest(u32::MAX, b"k", b"v"), 0x671636db);
    }
}
