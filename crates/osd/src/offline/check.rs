//! Whether what placement groups keep belongs together: their notes, objects, clones, and the snap
//! mapper's rows. What other OSDs have is not seen: that is scrub.

use std::collections::BTreeSet;
use std::rc::Rc;

use denc::Denc;
use store::transfer::Objects;
use store::{CollId, Fsck, FsckOptions, ObjectStore, StoreError, Transaction};
use types::crc::crc32c;
use types::osd::{ObjectInfo, SnapSet};
use types::pg::NO_SHARD;
use types::{GhObject, HObject, SnapId, SpgId};

use crate::ops::object_context::{OI_ATTR, SS_ATTR};
use crate::ops::snap_mapper::SnapMapper;
use crate::pg::missing::Missing;
use crate::pg::persist::{self, LoadError};

/// Bytes of data read at a time.
const PIECE_LEN: u64 = 1 << 20;

/// What was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FsckTally {
    /// Placement groups.
    pub pgs: u64,
    /// Objects, the OSD's own among them.
    pub objects: u64,
    /// Bytes of data read.
    pub bytes_read: u64,
}

struct Check<'a> {
    store: &'a Rc<dyn ObjectStore>,
    mapper: SnapMapper,
    options: FsckOptions,
    tally: FsckTally,
    report: Fsck,
}

/// Checks all placement groups; `told` hears how many objects are done. Rows of the snap mapper are
/// put right if the options say so; nothing else can be without other OSDs.
pub async fn fsck(
    store: &Rc<dyn ObjectStore>,
    options: FsckOptions,
    told: &mut dyn FnMut(u64),
) -> Result<(FsckTally, Fsck), StoreError> {
    let mapper = SnapMapper::new(store.clone(), CollId::Meta, SnapMapper::default_object());
    let tally = FsckTally::default();
    let mut check = Check { store, mapper, options, tally, report: Fsck::default() };
    for cid in store.collections().await? {
        match cid {
            CollId::Pg(pgid) => check.pg(&cid, pgid, told).await?,
            _ => check.own_objects(&cid, told).await?,
        }
    }
    check.rows().await?;
    Ok((check.tally, check.report))
}

/// Whether an error is about the object alone, so that the check goes on.
fn is_damage(e: &StoreError) -> bool {
    matches!(e, StoreError::Checksum { .. } | StoreError::Format(_) | StoreError::Device(_))
}

impl Check<'_> {
    async fn own_objects(
        &mut self,
        cid: &CollId,
        told: &mut dyn FnMut(u64),
    ) -> Result<(), StoreError> {
        let mut objects = Objects::of(cid);
        loop {
            let page = objects.page(&**self.store).await?;
            if page.is_empty() {
                return Ok(());
            }
            for oid in &page {
                self.tally.objects += 1;
                self.read(cid, oid).await?;
                told(self.tally.objects);
            }
        }
    }

    /// Size and, if asked for, the checksum of the data; errors are noted.
    async fn read(
        &mut self,
        cid: &CollId,
        oid: &GhObject,
    ) -> Result<Option<(u64, Option<u32>)>, StoreError> {
        let done = self.try_read(cid, oid).await;
        match done {
            Ok(done) => Ok(Some(done)),
            Err(e) if is_damage(&e) => {
                self.report.error(format!("{cid} {oid}: cannot be read: {e}"));
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    async fn try_read(
        &mut self,
        cid: &CollId,
        oid: &GhObject,
    ) -> Result<(u64, Option<u32>), StoreError> {
        let size = self.store.stat(cid, oid).await?.size;
        if !self.options.deep {
            return Ok((size, None));
        }
        let (mut at, mut crc) = (0, u32::MAX);
        while at < size {
            let data = self.store.read(cid, oid, at, PIECE_LEN.min(size - at)).await?;
            data.pieces().iter().for_each(|piece| crc = crc32c(crc, piece));
            self.tally.bytes_read += data.len() as u64;
            at += PIECE_LEN;
        }
        Ok((size, Some(crc)))
    }

    async fn pg(
        &mut self,
        cid: &CollId,
        pgid: SpgId,
        told: &mut dyn FnMut(u64),
    ) -> Result<(), StoreError> {
        self.tally.pgs += 1;
        let missing = match persist::load(&**self.store, cid, &pgid.pgmeta()).await {
            Ok(loaded) => loaded.missing,
            // The OSD removes it when it starts.
            Err(LoadError::Empty) => Missing::default(),
            Err(LoadError::Store(e)) if !is_damage(&e) => return Err(e),
            Err(LoadError::Store(e)) => {
                self.report.error(format!("{pgid}: its notes cannot be read: {e}"));
                Missing::default()
            }
            Err(LoadError::Damaged(e)) => {
                self.report.error(format!("{pgid}: its notes do not decode: {e}"));
                Missing::default()
            }
        };
        let bits = self.store.collection_bits(cid).await?;
        let mut clones = BTreeSet::new();
        let mut objects = Objects::of(cid);
        loop {
            let page = objects.page(&**self.store).await?;
            if page.is_empty() {
                return Ok(());
            }
            for oid in page.iter().filter(|oid| !oid.is_pgmeta() && !oid.hobj.is_temp()) {
                self.tally.objects += 1;
                if oid.shard != pgid.shard || !pgid.pgid.contains(bits, &oid.hobj) {
                    self.report.error(format!("{cid} {oid}: belongs to another placement group"));
                }
                // What is kept to undo a write has no info of its own.
                if oid.generation == types::hobject::NO_GEN {
                    self.object(cid, oid, &mut clones, &missing).await?;
                } else {
                    self.read(cid, oid).await?;
                }
                told(self.tally.objects);
            }
        }
    }

    async fn attr<T: Denc>(
        &mut self,
        cid: &CollId,
        oid: &GhObject,
        name: &[u8],
    ) -> Result<Option<T>, StoreError> {
        let what = bstr::BStr::new(name);
        let value = match self.store.getattr(cid, oid, name).await {
            Err(StoreError::NoAttr) => {
                self.report.error(format!("{cid} {oid}: no xattr {what}"));
                return Ok(None);
            }
            value => value?,
        };
        match T::from_bytes(&value) {
            Ok(value) => Ok(Some(value)),
            Err(e) => {
                self.report.error(format!("{cid} {oid}: xattr {what}: {e}"));
                Ok(None)
            }
        }
    }

    async fn object(
        &mut self,
        cid: &CollId,
        oid: &GhObject,
        clones: &mut BTreeSet<HObject>,
        missing: &Missing,
    ) -> Result<(), StoreError> {
        let Some((size, crc)) = self.read(cid, oid).await? else { return Ok(()) };
        let info = self.attr::<ObjectInfo>(cid, oid, OI_ATTR).await?;
        if let Some(info) = info {
            if info.soid != oid.hobj {
                self.report.error(format!("{cid} {oid}: its info is that of {}", info.soid));
            }
            // A shard holds a part only.
            let whole = oid.shard == NO_SHARD && !missing.contains(&oid.hobj);
            if whole && info.size != size {
                let known = info.size;
                self.report.error(format!("{cid} {oid}: {size} bytes, {known} by its info"));
            } else if whole && info.is_data_digest() && crc.is_some_and(|c| c != info.data_digest) {
                self.report.error(format!("{cid} {oid}: its data has another checksum"));
            }
        }
        if oid.hobj.is_snap() {
            clones.insert(oid.hobj.clone());
        } else if oid.hobj.is_head() {
            self.head(cid, oid, std::mem::take(clones), missing).await?;
        }
        Ok(())
    }

    /// A head, whose clones have just been seen.
    async fn head(
        &mut self,
        cid: &CollId,
        oid: &GhObject,
        mut clones: BTreeSet<HObject>,
        missing: &Missing,
    ) -> Result<(), StoreError> {
        clones.retain(|clone| clone.same_object(&oid.hobj));
        let Some(set) = self.attr::<SnapSet>(cid, oid, SS_ATTR).await? else { return Ok(()) };
        for snap in &set.clones {
            let clone = oid.hobj.with_snap(*snap);
            if !clones.remove(&clone) {
                if !missing.contains(&clone) && !missing.contains(&oid.hobj) {
                    self.report.error(format!("{cid} {oid}: its clone {snap:x} is not there"));
                }
                continue;
            }
            let snaps = set.clone_snaps.get(snap).into_iter().flatten().copied().collect();
            self.row(&clone, snaps).await?;
        }
        for clone in clones {
            self.report.error(format!("{cid} {clone}: a clone that its head does not know"));
        }
        Ok(())
    }

    async fn row(&mut self, clone: &HObject, snaps: BTreeSet<SnapId>) -> Result<(), StoreError> {
        let known = self.mapper.snaps(clone).await?;
        if known == snaps {
            return Ok(());
        }
        self.report
            .error(format!("{clone}: serves snapshots {snaps:?}, the mapper says {known:?}"));
        if self.options.repair {
            let mut t = Transaction::new();
            let old: Vec<SnapId> = known.into_iter().collect();
            self.mapper.replace(clone, &old, snaps, &mut t);
            self.store.submit(t).await?;
            self.report.repaired += 1;
        }
        Ok(())
    }

    /// Rows about clones that are not there.
    async fn rows(&mut self) -> Result<(), StoreError> {
        let pgs: BTreeSet<SpgId> =
            self.store.collections().await?.iter().filter_map(CollId::spg).collect();
        let mut after = None;
        loop {
            let (rows, last) = self.mapper.clones_after(after).await?;
            for clone in rows {
                if self.is_there(&pgs, &clone).await? {
                    continue;
                }
                self.report.error(format!("{clone}: the mapper knows a clone that is not there"));
                if self.options.repair {
                    let mut t = Transaction::new();
                    self.mapper.remove(&clone, &mut t).await?;
                    self.store.submit(t).await?;
                    self.report.repaired += 1;
                }
            }
            match last {
                Some(last) => after = Some(last),
                None => return Ok(()),
            }
        }
    }

    async fn is_there(&self, pgs: &BTreeSet<SpgId>, clone: &HObject) -> Result<bool, StoreError> {
        for pgid in pgs.iter().filter(|pgid| pgid.pgid.pool as i64 == clone.pool) {
            let cid = CollId::Pg(*pgid);
            let oid = GhObject { shard: pgid.shard, ..GhObject::new(clone.clone()) };
            match self.store.stat(&cid, &oid).await {
                Err(StoreError::NoObject) => {}
                Err(e) if !is_damage(&e) => return Err(e),
                _ => return Ok(true),
            }
        }
        Ok(false)
    }
}
