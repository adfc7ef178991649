use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::Bytes;
use denc::Denc;
use maps::{OsdMap, PgPool};
use store::memstore::MemStore;
use store::transfer::{compare, copy};
use store::{CollId, FsckOptions, ObjectStore, Transaction};
use types::osd::{ObjectInfo, OsdSuperblock, PastIntervals, PgInfo, PgLog, PgLogEntry, SnapSet};
use types::{EVersion, GhObject, HObject, NOSNAP, PgId, SpgId, Uuid};

use super::*;
use crate::ops::object_context::{OI_ATTR, SS_ATTR};
use crate::ops::snap_mapper::SnapMapper;
use crate::pg::log::LogChanges;
use crate::pg::persist::{self, Keys};

const EPOCH: u32 = 5;

fn pgid() -> SpgId {
    PgId { pool: 2, seed: 3 }.spg()
}

fn cid() -> CollId {
    CollId::Pg(pgid())
}

fn object(name: &str, snap: u64) -> GhObject {
    GhObject::new(HObject { name: name.into(), snap, hash: 0x33, pool: 2, ..HObject::default() })
}

fn run<T: 'static>(main: impl Future<Output = T> + 'static) -> T {
    env::real::Runtime::new().unwrap().block_on(|_| main)
}

/// An OSD's store without placement groups.
async fn osd_store(cluster: u8) -> Rc<dyn ObjectStore> {
    let store: Rc<dyn ObjectStore> = Rc::new(MemStore::new(1 << 30));
    let superblock = OsdSuperblock {
        cluster_fsid: Uuid([cluster; 16]),
        newest_map: EPOCH,
        ..OsdSuperblock::default()
    };
    let pool = PgPool { pg_num: 8, pgp_num: 8, ..PgPool::default() };
    let map = OsdMap { epoch: EPOCH, pools: BTreeMap::from([(2, pool)]), ..OsdMap::default() };
    let mut t = Transaction::new();
    t.mkcoll(&CollId::Meta, 0);
    t.write(&CollId::Meta, &meta_object("osd_superblock"), 0, superblock.to_bytes());
    t.write(&CollId::Meta, &meta_object(format!("osdmap.{EPOCH}")), 0, map.to_bytes());
    t.touch(&CollId::Meta, &SnapMapper::default_object());
    store.submit(t).await.unwrap();
    store
}

fn put(t: &mut Transaction, oid: &GhObject, data: &[u8]) {
    let mut info = ObjectInfo::new(oid.hobj.clone());
    info.size = data.len() as u64;
    info.data_digest = types::crc::crc32c(u32::MAX, data);
    info.set_flag(types::osd::object_info::FLAG_DATA_DIGEST);
    t.write(&cid(), oid, 0, data.to_vec());
    t.setattr(&cid(), oid, OI_ATTR, info.to_bytes());
}

/// With a placement group that has an object with a clone, one with an omap, one with a hole.
async fn filled() -> Rc<dyn ObjectStore> {
    let store = osd_store(1).await;
    let mapper = SnapMapper::new(store.clone(), CollId::Meta, SnapMapper::default_object());
    let mut t = Transaction::new();
    t.mkcoll(&cid(), 3);
    put(&mut t, &object("a", 4), b"as it was");
    put(&mut t, &object("a", NOSNAP), b"as it is");
    put(&mut t, &object("b", NOSNAP), b"");
    put(&mut t, &object("hole", NOSNAP), &[0; 3 << 20]);
    t.zero(&cid(), &object("hole", NOSNAP), 0, 3 << 20);
    let clones = SnapSet {
        seq: 4,
        clones: vec![4],
        clone_size: [(4, 9)].into(),
        clone_overlap: [(4, types::IntervalSet::default())].into(),
        clone_snaps: [(4, vec![4, 3])].into(),
        ..SnapSet::default()
    };
    t.setattr(&cid(), &object("a", NOSNAP), SS_ATTR, clones.to_bytes());
    for name in ["b", "hole"] {
        t.setattr(&cid(), &object(name, NOSNAP), SS_ATTR, SnapSet::default().to_bytes());
    }
    mapper.add(&object("a", 4).hobj, [3, 4].into(), &mut t);
    let keys = (0..3000).map(|n| (n.to_string(), Bytes::from_static(b"value")));
    t.omap_setheader(&cid(), &object("b", NOSNAP), &b"header"[..]);
    t.omap_setkeys(&cid(), &object("b", NOSNAP), keys);
    let entries = (1..=3_u64).map(|v| PgLogEntry {
        version: EVersion { epoch: EPOCH, version: v },
        soid: object("a", NOSNAP).hobj,
        ..PgLogEntry::default()
    });
    let log = PgLog { log: entries.collect(), ..PgLog::default() };
    let info = PgInfo {
        pgid: pgid(),
        last_update: EVersion { epoch: EPOCH, version: 3 },
        ..PgInfo::default()
    };
    let mut notes = Keys::default();
    notes.info(&info, Some(&PastIntervals::default()), EPOCH);
    let encodings: Vec<_> = log.log.iter().map(|e| (e.version, e.to_bytes())).collect();
    notes.log(LogChanges {
        written: encodings.iter().map(|(version, encoding)| (*version, &encoding[..])).collect(),
        ..LogChanges::default()
    });
    t.touch(&cid(), &pgid().pgmeta());
    notes.add_to(&cid(), &pgid().pgmeta(), &mut t);
    store.submit(t).await.unwrap();
    store
}

async fn exported(store: &Rc<dyn ObjectStore>) -> Vec<u8> {
    let (moved, file) = export(store, pgid(), Vec::new(), &mut |_| {}).await.unwrap();
    assert_eq!((moved.objects, moved.log_entries, moved.epoch), (4, 3, EPOCH));
    file
}

#[test]
fn what_is_exported_is_imported_the_same() {
    run(async {
        let store = filled().await;
        let file = exported(&store).await;
        let other = osd_store(1).await;
        let moved = import(&other, &file[..], &mut |_| {}).await.unwrap();
        assert_eq!((moved.pgid, moved.objects), (pgid(), 4));
        let (tally, differences) = compare(&*store, &*other, &mut |_| {}).await.unwrap();
        assert_eq!(differences, Vec::<String>::new());
        assert!(tally.omap_keys > 3000, "{tally:?}");
        // And once more, from there.
        let third = osd_store(1).await;
        import(&third, &exported(&other).await[..], &mut |_| {}).await.unwrap();
        let (_, differences) = compare(&*store, &*third, &mut |_| {}).await.unwrap();
        assert_eq!(differences, Vec::<String>::new());
    });
}

/// A shard keeps what a write replaced, under a generation, until the write is on all shards; it comes before what
/// replaced it. The head of before a clone was made says nothing of the clone: an import that took it for the head noted
/// no snapshots of the clone, and whoever removed them later left the clone where it was, for ever.
#[test]
fn what_is_kept_to_undo_writes_tells_nothing_of_snapshots() {
    run(async {
        let store = filled().await;
        let head = store.getattr(&cid(), &object("a", NOSNAP), SS_ATTR).await.unwrap();
        let kept = |name, snap| GhObject { generation: 7, ..object(name, snap) };
        let mut t = Transaction::new();
        put(&mut t, &kept("a", NOSNAP), b"as it is");
        t.setattr(&cid(), &kept("a", NOSNAP), SS_ATTR, SnapSet::default().to_bytes());
        // Removed here, but for the one that it can be had back from.
        put(&mut t, &kept("c", 4), b"as it was");
        put(&mut t, &object("c", NOSNAP), b"as it is");
        t.setattr(&cid(), &object("c", NOSNAP), SS_ATTR, head);
        store.submit(t).await.unwrap();
        let (_, file) = export(&store, pgid(), Vec::new(), &mut |_| {}).await.unwrap();
        let other = osd_store(1).await;
        assert_eq!(import(&other, &file[..], &mut |_| {}).await.unwrap().objects, 7);
        let (_, differences) = compare(&*store, &*other, &mut |_| {}).await.unwrap();
        assert_eq!(differences, Vec::<String>::new());
    });
}

/// Stores and files of a version that knows more were read, and written to, as if they were ours.
#[test]
fn what_has_unknown_features_is_left_alone() {
    run(async {
        let file = exported(&filled().await).await;
        let newer = |store: Rc<dyn ObjectStore>| async move {
            let mut known = superblock(&store).await.unwrap();
            known.compat_features = crate::features::compat_features();
            known.compat_features.incompat.names.insert(40, "of tomorrow".to_owned());
            let mut t = Transaction::new();
            t.write(&CollId::Meta, &meta_object("osd_superblock"), 0, known.to_bytes());
            store.submit(t).await.unwrap();
            store
        };
        let into = newer(osd_store(1).await).await;
        let why = import(&into, &file[..], &mut |_| {}).await.unwrap_err().to_string();
        assert!(why.contains("of tomorrow"), "{why}");
        let from = newer(filled().await).await;
        let why = export(&from, pgid(), Vec::new(), &mut |_| {}).await.unwrap_err().to_string();
        assert!(why.contains("of tomorrow"), "{why}");
    });
}

#[test]
fn imports_that_cannot_be_are_refused_and_cut_ones_leave_no_placement_group() {
    run(async {
        let store = filled().await;
        let file = exported(&store).await;
        let why = async |store: &Rc<dyn ObjectStore>, file: &[u8]| {
            import(store, file, &mut |_| {}).await.unwrap_err().to_string()
        };
        assert!(why(&store, &file).await.contains("already"));
        assert!(why(&osd_store(9).await, &file).await.contains("cluster"));
        assert!(why(&osd_store(1).await, b"something else, quite").await.contains("begin"));
        let other = osd_store(1).await;
        // Wherever it ends: the next one goes over what is left.
        let step = file.len() / 150;
        for len in (0..file.len()).step_by(step).chain([file.len() - 1]) {
            let why = why(&other, &file[..len]).await;
            assert!(why.contains("cut off"), "{len} of {}: {why}", file.len());
        }
        import(&other, &file[..], &mut |_| {}).await.unwrap();
        let (_, differences) = compare(&*store, &*other, &mut |_| {}).await.unwrap();
        assert_eq!(differences, Vec::<String>::new());
    });
}

#[test]
fn no_byte_of_a_file_makes_an_import_panic() {
    run(async {
        let file = exported(&filled().await).await;
        for at in (0..file.len()).step_by(file.len() / 400) {
            let mut bad = file.clone();
            bad[at] ^= 0xff;
            // Data is as the file says; all else is told or does not matter.
            let _ = import(&osd_store(1).await, &bad[..], &mut |_| {}).await;
        }
    });
}

#[test]
fn a_check_finds_what_does_not_belong_together() {
    run(async {
        let good = filled().await;
        let check = async |store: &Rc<dyn ObjectStore>, repair| {
            let options = FsckOptions { deep: true, repair };
            fsck(store, options, &mut |_| {}).await.unwrap()
        };
        let (tally, report) = check(&good, false).await;
        assert_eq!((tally.pgs, report), (1, store::Fsck::default()));
        let (a, clone, b) = (object("a", NOSNAP), object("a", 4), object("b", NOSNAP));
        let mut elsewhere = object("stray", NOSNAP);
        elsewhere.hobj.hash = 4;
        type Damage<'a> = &'a dyn Fn(&mut Transaction);
        let of_a = ObjectInfo::new(a.hobj.clone()).to_bytes();
        let rot = |t: &mut Transaction| _ = t.write(&cid(), &clone, 0, &b"A"[..]);
        let cut = |t: &mut Transaction| _ = t.truncate(&cid(), &clone, 3);
        let lose = |t: &mut Transaction| _ = t.remove(&cid(), &clone);
        let bare = |t: &mut Transaction| _ = t.rmattr(&cid(), &b, SS_ATTR);
        let stray = |t: &mut Transaction| put(t, &elsewhere, b"x");
        let swap = |t: &mut Transaction| _ = t.setattr(&cid(), &b, OI_ATTR, of_a.clone());
        let damages: [(&str, Damage<'_>); 6] = [
            ("checksum", &rot),
            ("by its info", &cut),
            ("is not there", &lose),
            ("no xattr", &bare),
            ("another placement group", &stray),
            ("that of", &swap),
        ];
        for (word, damage) in damages {
            let store: Rc<dyn ObjectStore> = Rc::new(MemStore::new(1 << 30));
            copy(&*good, &*store, &mut |_| {}).await.unwrap();
            let mut t = Transaction::new();
            damage(&mut t);
            store.submit(t).await.unwrap();
            let (_, report) = check(&store, false).await;
            assert!(report.errors.iter().any(|line| line.contains(word)), "{word}: {report:?}");
        }
        // The mapper's rows are put right.
        let mapper = SnapMapper::new(good.clone(), CollId::Meta, SnapMapper::default_object());
        let mut t = Transaction::new();
        mapper.replace(&clone.hobj, &[3, 4], [9].into(), &mut t);
        mapper.add(&object("gone", 4).hobj, [4].into(), &mut t);
        good.submit(t).await.unwrap();
        let (_, report) = check(&good, true).await;
        assert_eq!((report.errors.len(), report.repaired), (2, 2), "{report:?}");
        assert_eq!(check(&good, false).await.1, store::Fsck::default());
        assert_eq!(mapper.snaps(&clone.hobj).await.unwrap(), [3, 4].into());
    });
}

/// A placement group has been split since it was exported, and what split off is here, newer: the import had its objects in the other's
/// collection as well, and a merge brought back those that had been removed. What split off and is not here comes, and splits
/// off when the OSD starts.
#[test]
fn what_split_off_and_is_here_is_not_imported() {
    run(async {
        let store = filled().await;
        let mut of_child = object("of the child", NOSNAP);
        of_child.hobj.hash = 0x3b;
        let mut t = Transaction::new();
        put(&mut t, &of_child, b"as it was");
        t.setattr(&cid(), &of_child, SS_ATTR, SnapSet::default().to_bytes());
        let version = EVersion { epoch: EPOCH, version: 4 };
        let entry =
            PgLogEntry { version, soid: of_child.hobj.clone(), ..PgLogEntry::default() }.to_bytes();
        let item = types::osd::PgMissingItem { need: version, ..Default::default() };
        let last_update = version;
        let info = PgInfo { pgid: pgid(), last_update, ..PgInfo::default() };
        let mut notes = Keys::default();
        notes.info(&info, Some(&PastIntervals::default()), EPOCH);
        notes.log(LogChanges {
            written: [(version, &entry[..])].into_iter().collect(),
            ..LogChanges::default()
        });
        notes.missing(vec![(of_child.hobj.clone(), Some(item))]);
        notes.add_to(&cid(), &pgid().pgmeta(), &mut t);
        store.submit(t).await.unwrap();
        let (moved, file) = export(&store, pgid(), Vec::new(), &mut |_| {}).await.unwrap();
        assert_eq!((moved.objects, moved.log_entries), (5, 4));
        // What split off 2.3, what split off that, and something else.
        for (child, is_here) in [(0xb, true), (0x1b, true), (0x4, false)] {
            let other = osd_store(1).await;
            let mut t = Transaction::new();
            t.mkcoll(&CollId::Pg(PgId { pool: 2, seed: child }.spg()), 5);
            other.submit(t).await.unwrap();
            let moved = import(&other, &file[..], &mut |_| {}).await.unwrap();
            let bits = other.collection_bits(&cid()).await.unwrap();
            let came = other.stat(&cid(), &of_child).await.is_ok();
            let notes = persist::load(&*other, &cid(), &pgid().pgmeta()).await.unwrap();
            let found = (moved.objects, moved.skipped, moved.log_entries, came);
            let left = (notes.log.len(), notes.missing.iter().count());
            let expected = match is_here {
                true => ((4, 1, 3, false), (3, 0)),
                false => ((5, 0, 4, true), (4, 1)),
            };
            assert_eq!((found, left), expected, "2.{child:x}");
            assert!(!crate::pg::split::spans(pgid().pgid, bits, PgId { pool: 2, seed: child }));
            if is_here {
                assert_eq!(notes.info.last_complete, notes.info.last_update);
                assert!(notes.info.stats.stats_invalid);
            }
        }
    });
}
