//! A placement group out of a file.
//!
//! Its own notes are written last, in one transaction: an import that is cut off leaves a
//! collection without them, which the OSD removes when it starts, and so does the next import.

use std::collections::BTreeSet;
use std::io::Read;
use std::rc::Rc;

use bytes::Bytes;
use denc::Denc;
use maps::OsdMap;
use store::transfer::Objects;
use store::{CollId, ObjectStore, StoreError, Transaction};
use types::hobject::NO_GEN;
use types::osd::{PgLog, SnapSet};
use types::{Epoch, GhObject, HObject, SpgId};

use super::pg_file::{Data, Kind, Map, ObjectBegin, One, PgBegin, PgFileReader, PgMetadata};
use super::{Moved, TransferError, load_error, superblock};
use crate::features;
use crate::ops::object_context::SS_ATTR;
use crate::ops::snap_mapper::SnapMapper;
use crate::osd::map_store::meta_object;
use crate::pg::log::LogChanges;
use crate::pg::missing::Missing;
use crate::pg::persist::{self, Keys, LoadError};
use crate::pg::split::spans;

/// Bytes of data in one transaction.
const TRANSACTION_LEN: u64 = 1 << 20;
/// Keys removed in one.
const REMOVED_MAX: usize = 256;

struct Import<'a, R> {
    store: &'a Rc<dyn ObjectStore>,
    file: PgFileReader<R>,
    cid: CollId,
    pgid: SpgId,
    mapper: SnapMapper,
    /// Of the hash, those that the file's objects share.
    file_bits: u32,
    /// And those that the collection's do: others are here already.
    bits: u32,
    /// Clones that came: they are before their head.
    clones: BTreeSet<HObject>,
    moved: Moved,
}

fn refused<T>(why: String) -> Result<T, TransferError> {
    Err(TransferError::Refused(why))
}

/// Makes the placement group that the file holds; `told` hears how many objects are written.
pub async fn import<R: Read>(
    store: &Rc<dyn ObjectStore>,
    input: R,
    told: &mut dyn FnMut(u64),
) -> Result<Moved, TransferError> {
    let mut file = PgFileReader::new(input)?;
    let begin: PgBegin = expect(&mut file, Kind::PgBegin)?;
    let own = superblock(store).await?;
    let (theirs, ours) = (begin.superblock.cluster_fsid, own.cluster_fsid);
    if theirs != ours {
        return refused(format!("it is of cluster {theirs}, this OSD of {ours}"));
    }
    if let Some(names) = features::unknown(&begin.superblock.compat_features) {
        return refused(format!("it has features that this version does not know: {names}"));
    }
    let pgid = begin.pgid;
    let cid = CollId::Pg(pgid);
    make_room(store, pgid, &cid).await?;
    let mut metadata: PgMetadata = expect(&mut file, Kind::PgMetadata)?;
    if metadata.info.pgid != pgid {
        return refused(format!("it begins as {pgid} and goes on as {}", metadata.info.pgid));
    }
    let map = OsdMap::from_bytes(&metadata.osdmap)?;
    let Some(pool) = map.pool(pgid.pgid.pool as i64) else {
        return refused(format!("its own map has no pool {}", pgid.pgid.pool));
    };
    let file_bits = pgid.pgid.split_bits(pool.pg_num);
    check_pool(store, &own, pgid, (metadata.epoch, pool.pg_num)).await?;
    let bits = free_bits(store, pgid, file_bits).await?;
    if bits > file_bits {
        leave_to_others(&mut metadata, |oid| !pgid.pgid.contains(bits, oid));
    }
    let mut t = Transaction::new();
    t.mkcoll(&cid, bits);
    store.submit(t).await?;
    let mapper = SnapMapper::new(store.clone(), CollId::Meta, SnapMapper::default_object());
    let log_entries = metadata.log.log.len() as u64;
    let moved = Moved { pgid, objects: 0, skipped: 0, data: 0, log_entries, epoch: metadata.epoch };
    let clones = BTreeSet::new();
    let mut import = Import { store, file, cid, pgid, mapper, file_bits, bits, clones, moved };
    loop {
        match import.file.section()? {
            (Kind::ObjectBegin, body) => {
                import.object(ObjectBegin::from_bytes(&body)?).await?;
                told(import.moved.objects);
            }
            (Kind::PgEnd, _) => break,
            (kind, _) => return unexpected(kind),
        }
    }
    // It may have been trimmed here; the placement group begins at it.
    let map = meta_object(format!("osdmap.{}", metadata.epoch));
    let mut t = Transaction::new();
    if let Err(StoreError::NoObject) = store.stat(&CollId::Meta, &map).await {
        t.write(&CollId::Meta, &map, 0, metadata.osdmap.clone());
    }
    add_own_notes(&cid, pgid, metadata, &mut t);
    store.submit(t).await?;
    Ok(import.moved)
}

fn unexpected<T>(kind: Kind) -> Result<T, TransferError> {
    Err(TransferError::Format(format!("a section {kind:?} where none belongs")))
}

fn expect<T: Denc, R: Read>(file: &mut PgFileReader<R>, wanted: Kind) -> Result<T, TransferError> {
    match file.section()? {
        (kind, body) if kind == wanted => Ok(T::from_bytes(&body)?),
        (kind, _) => unexpected(kind),
    }
}

/// Bits of the hash that the collection's objects share. Where the placement group has split since, what split off may
/// be here, newer than in the file: its objects would be in two collections, and a merge would bring back what has been
/// removed. What is not here splits off when the OSD starts.
async fn free_bits(
    store: &Rc<dyn ObjectStore>,
    pgid: SpgId,
    file_bits: u32,
) -> Result<u32, TransferError> {
    let mut bits = file_bits;
    for cid in store.collections().await? {
        let CollId::Pg(other) = cid else { continue };
        if other != pgid && other.shard == pgid.shard {
            while bits < u32::BITS && spans(pgid.pgid, bits, other.pgid) {
                bits += 1;
            }
        }
    }
    Ok(bits)
}

/// Takes out of the notes what is said of objects that do not come, as a split does.
fn leave_to_others(metadata: &mut PgMetadata, leaves: impl Fn(&HObject) -> bool) {
    metadata.log.log.retain(|e| !leaves(&e.soid));
    metadata.missing.retain(|oid| !leaves(oid));
    if metadata.missing.is_empty() {
        metadata.info.last_complete = metadata.info.last_update;
    }
    // A scrub, due at once, counts.
    metadata.info.stats.stats_invalid = true;
}

/// The placement group must not be there; what an import that was cut off left of it goes.
async fn make_room(
    store: &Rc<dyn ObjectStore>,
    pgid: SpgId,
    cid: &CollId,
) -> Result<(), TransferError> {
    if !store.collections().await?.contains(cid) {
        return Ok(());
    }
    match persist::load(&**store, cid, &pgid.pgmeta()).await {
        Err(LoadError::Empty) => {}
        Err(LoadError::Store(e)) => return Err(e.into()),
        Err(e @ LoadError::Damaged(_)) => return Err(load_error(pgid, e)),
        Ok(_) => return refused(format!("this OSD has {pgid} already")),
    }
    loop {
        let page = Objects::of(cid).page(&**store).await?;
        let mut t = Transaction::new();
        for oid in page.iter().take(REMOVED_MAX) {
            t.remove(cid, oid);
        }
        if page.is_empty() {
            t.rmcoll(cid);
        }
        store.submit(t).await?;
        if page.is_empty() {
            return Ok(());
        }
    }
}

/// The pool must be as it was: a placement group that has been split since, or whose pool is gone,
/// is not what the file holds.
async fn check_pool(
    store: &Rc<dyn ObjectStore>,
    own: &types::osd::OsdSuperblock,
    pgid: SpgId,
    (epoch, pg_num): (Epoch, u32),
) -> Result<(), TransferError> {
    if own.newest_map < epoch {
        return refused(format!(
            "{pgid} is at map {epoch}, this OSD knows maps up to {}: start it, and when it is up stop it",
            own.newest_map
        ));
    }
    let newest = meta_object(format!("osdmap.{}", own.newest_map));
    let newest = store.read(&CollId::Meta, &newest, 0, 0).await?.to_contiguous();
    let newest = OsdMap::from_bytes(&newest)?;
    match newest.pool(pgid.pgid.pool as i64) {
        None => refused(format!("pool {} is gone", pgid.pgid.pool)),
        Some(pool) if pool.pg_num < pg_num => refused(format!(
            "pool {} had {pg_num} placement groups and has {}: {pgid} may have been merged",
            pgid.pgid.pool, pool.pg_num
        )),
        // A split is made up for when the OSD starts.
        Some(_) => Ok(()),
    }
}

impl<R: Read> Import<'_, R> {
    async fn object(&mut self, begin: ObjectBegin) -> Result<(), TransferError> {
        let ObjectBegin { oid, .. } = begin;
        let (cid, pgid) = (self.cid, self.pgid);
        let is_of = |bits| pgid.pgid.contains(bits, &oid.hobj);
        if oid.is_pgmeta() || oid.shard != pgid.shard || !is_of(self.file_bits) {
            return Err(TransferError::Format(format!("{oid} is no object of {pgid}")));
        }
        if !is_of(self.bits) {
            while self.file.section()?.0 != Kind::ObjectEnd {}
            self.moved.skipped += 1;
            return Ok(());
        }
        // What is kept to undo a write (of shards) has no rows, and is before what it was.
        let is_current = oid.generation == NO_GEN;
        let mut t = Transaction::new();
        t.touch(&cid, &oid);
        loop {
            match self.file.section()? {
                (Kind::Data, body) => {
                    let data = Data::from_bytes(&body)?;
                    self.moved.data += data.bytes.len() as u64;
                    t.write(&cid, &oid, data.offset, data.bytes);
                }
                (Kind::Attrs, body) => {
                    let attrs = Map::from_bytes(&body)?.0;
                    if let Some(set) = attrs.get(SS_ATTR).filter(|_| is_current) {
                        self.note_clones(&oid, &SnapSet::from_bytes(set)?, &mut t);
                    }
                    t.setattrs(&cid, &oid, attrs);
                }
                (Kind::OmapHeader, body) => {
                    t.omap_setheader(&cid, &oid, One::<Bytes>::from_bytes(&body)?.0);
                }
                (Kind::Omap, body) => {
                    t.omap_setkeys(&cid, &oid, Map::from_bytes(&body)?.0);
                }
                (Kind::ObjectEnd, _) => break,
                (kind, _) => return unexpected(kind),
            }
            if t.data_len() >= TRANSACTION_LEN || t.ops().len() > 8 {
                self.store.submit(std::mem::take(&mut t)).await?;
            }
        }
        self.store.submit(t).await?;
        self.moved.objects += 1;
        if oid.hobj.is_snap() && is_current {
            self.clones.insert(oid.hobj);
        }
        Ok(())
    }

    /// Which snapshots the clones serve, for the snap mapper.
    fn note_clones(&mut self, head: &GhObject, set: &SnapSet, t: &mut Transaction) {
        for (clone, snaps) in &set.clone_snaps {
            let oid = head.hobj.with_snap(*clone);
            if self.clones.remove(&oid) {
                self.mapper.add(&oid, snaps.iter().copied().collect(), t);
            }
        }
        self.clones.clear();
    }
}

/// Everything the placement group notes about itself.
fn add_own_notes(cid: &CollId, pgid: SpgId, metadata: PgMetadata, t: &mut Transaction) {
    let PgMetadata { epoch, info, log, past_intervals, missing, .. } = metadata;
    let PgLog { head, can_rollback_to, log, dups, .. } = log;
    let encodings: Vec<_> = log.iter().map(|e| (e.version, e.to_bytes())).collect();
    let mut keys = Keys::default();
    keys.info(&info, Some(&past_intervals), epoch);
    keys.log(LogChanges {
        can_rollback_to: (can_rollback_to < head).then_some(can_rollback_to),
        written: encodings.iter().map(|(version, encoding)| (*version, &encoding[..])).collect(),
        dups_written: dups.into_iter().collect(),
        ..LogChanges::default()
    });
    let missing = Missing::from_wire(missing);
    let items = missing.iter().map(|(oid, item)| (oid.clone(), Some(item.clone())));
    keys.missing(items.collect());
    t.touch(cid, &pgid.pgmeta());
    keys.add_to(cid, &pgid.pgmeta(), t);
}
