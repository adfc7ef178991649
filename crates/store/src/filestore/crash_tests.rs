//! FileStore over kills: what was answered is there, every transaction whole or not at all, in
//! order, wherever the process died, and however much of the journal is applied again over files
//! that have it already.

use std::ffi::{CStr, CString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use device::memory::Choices;
use env::Env;

use crate::filestore::{FileStore, Settings, make_current};
use crate::kv::{Direction, Kv, KvBatch, KvError, MemKv, SharedKv, Visit};
use crate::testing::{
    Dir, Model, Sizes, block_on, file_settings, numbered, object, pg, transaction,
};
use crate::{FsckOptions, ObjectStore, StoreError, Transaction};

const LIMIT: u64 = 64 << 20;

/// Syncs only when told: the journal keeps everything.
fn settings(dir: &Dir) -> Settings {
    Settings { max_sync_interval: Duration::from_secs(1 << 30), ..file_settings(&dir.0, LIMIT) }
}

async fn made(env: &Env, dir: &Dir, kv: &SharedKv, journal_len: u64) -> Rc<FileStore> {
    let journal = dir.0.join("journal");
    let made = FileStore::mkfs(env, &dir.0, kv.clone(), [7; 16], &journal, journal_len, true);
    made.await.unwrap();
    mounted(env, dir, kv).await.unwrap()
}

async fn mounted(env: &Env, dir: &Dir, kv: &SharedKv) -> Result<Rc<FileStore>, StoreError> {
    let store = FileStore::mount(env.clone(), &dir.0, kv.clone(), settings(dir)).await?;
    Ok(Rc::new(store))
}

fn database() -> SharedKv {
    Arc::new(MemKv::new())
}

/// Everything since the mount is applied once more, over files that have all of it.
async fn apply_all_again(env: Env, seed: u64) {
    let dir = Dir::new("file-again");
    let kv = database();
    let mut store = made(&env, &dir, &kv, 32 << 20).await;
    let (mut model, mut choices) = (Model::default(), Choices::new(seed));
    for round in 0..6 {
        for _ in 0..60 {
            let t = transaction(&mut choices, &model, Sizes::SMALL);
            let expected = model.apply(&t);
            assert_eq!(store.submit(t).await, expected);
        }
        drop(store);
        store = mounted(&env, &dir, &kv).await.unwrap();
        let same = model.compare(&*store).await;
        assert_eq!(same, Ok(()), "seed {seed} round {round}");
    }
}

#[test]
fn a_journal_applied_again_over_all_of_its_effects_changes_nothing() {
    for seed in 0..6 {
        block_on(move |env| apply_all_again(env, seed));
    }
}

/// The process dies between two operations, again and again.
async fn die_anywhere(env: Env, seed: u64) {
    let dir = Dir::new("file-die");
    let kv = database();
    let mut store = made(&env, &dir, &kv, 32 << 20).await;
    let (mut model, mut choices) = (Model::default(), Choices::new(seed));
    for round in 0..25 {
        store.die_after(choices.below(40));
        for _ in 0..30 {
            let t = transaction(&mut choices, &model, Sizes::SMALL);
            let mut after = model.clone();
            let expected = after.apply(&t);
            match store.submit(t).await {
                // It "died" before: this one was never taken on.
                Err(StoreError::Latched) => break,
                got => assert_eq!(got, expected),
            }
            model = after;
        }
        drop(store);
        store = mounted(&env, &dir, &kv).await.unwrap();
        let same = model.compare(&*store).await;
        assert_eq!(same, Ok(()), "seed {seed} round {round}");
    }
}

#[test]
fn a_process_that_dies_between_any_two_operations_loses_nothing() {
    for seed in 0..6 {
        block_on(move |env| die_anywhere(env, seed));
    }
}

/// `STORE_SEEDS=100..200 cargo test -p loligo-store more_kills -- --ignored`
#[test]
#[ignore = "long: as many seeds as STORE_SEEDS says"]
fn more_kills() {
    let text = std::env::var("STORE_SEEDS").unwrap_or("100..120".into());
    let (from, to) = text.split_once("..").unwrap();
    let seeds: std::ops::Range<u64> = from.parse().unwrap()..to.parse().unwrap();
    for seed in seeds {
        println!("seed {seed}");
        block_on(move |env| apply_all_again(env, seed));
        block_on(move |env| die_anywhere(env, seed));
    }
}

/// A journal much shorter than what goes through it: it is emptied when full, and goes round.
#[test]
fn a_short_journal_goes_round() {
    block_on(|env| async move {
        let dir = Dir::new("file-round");
        let kv = database();
        let mut store = made(&env, &dir, &kv, (1 << 20) + 8192).await;
        let (mut model, mut choices) = (Model::default(), Choices::new(3));
        for step in 0..400 {
            let t = transaction(&mut choices, &model, Sizes::SMALL);
            let expected = model.apply(&t);
            assert_eq!(store.submit(t).await, expected);
            if step % 90 == 89 {
                drop(store);
                store = mounted(&env, &dir, &kv).await.unwrap();
                assert_eq!(model.compare(&*store).await, Ok(()), "step {step}");
            }
        }
        let counters = store.counters();
        let of = |name: &str| counters.iter().find(|c| c.name == name).unwrap().value;
        assert!(of("written_journal") > 0 && of("written_data") > 0);
        let too_long = vec![1; 2 << 20];
        let mut t = Transaction::new();
        t.write(&pg(0), &numbered(1), 0, too_long);
        if model.clone().apply(&t).is_ok() {
            assert_eq!(store.submit(t).await, Err(StoreError::TooBig));
        }
        assert_eq!(model.compare(&*store).await, Ok(()));
    });
}

/// What a power loss left of the last writes of the journal: it ends where it first does not check.
#[test]
fn a_torn_journal_ends_there() {
    block_on(|env| async move {
        for cut in [0_u64, 40, 5000, 9000] {
            let dir = Dir::new("file-torn");
            let kv = database();
            let store = made(&env, &dir, &kv, 4 << 20).await;
            let mut t = Transaction::new();
            t.mkcoll(&pg(0), 0);
            store.submit(t).await.unwrap();
            let mut models = vec![];
            let mut model = Model::default();
            let mut t = Transaction::new();
            t.mkcoll(&pg(0), 0);
            model.apply(&t).unwrap();
            models.push(model.clone());
            store.die_after(0);
            // Only the first of these is taken on: what the process did not live to apply.
            let mut t = Transaction::new();
            t.write(&pg(0), &numbered(1), 0, vec![7; 10_000]);
            model.apply(&t).unwrap();
            models.push(model);
            store.submit(t).await.unwrap();
            drop(store);
            // Two headers, one entry of a block, then this one of three.
            let journal = fs::OpenOptions::new().write(true).open(dir.0.join("journal")).unwrap();
            journal.write_all_at(&[0xee; 16], 3 * 4096 + cut).unwrap();
            let store = mounted(&env, &dir, &kv).await.unwrap();
            assert_eq!(models[0].compare(&*store).await, Ok(()), "cut at {cut}");
            // And goes on.
            let mut t = Transaction::new();
            t.write(&pg(0), &numbered(2), 0, vec![8; 100]);
            models[0].apply(&t).unwrap();
            store.submit(t).await.unwrap();
            drop(store);
            let store = mounted(&env, &dir, &kv).await.unwrap();
            assert_eq!(models[0].compare(&*store).await, Ok(()), "cut at {cut}");
        }
    });
}

/// Where the journal's entries begin, in order, as their heads say.
fn entries(journal: &[u8]) -> Vec<usize> {
    let (mut at, mut found) = (2 * 4096, Vec::new());
    while u64_at(journal, at) != 0 {
        found.push(at);
        at += (40 + u64_at(journal, at + 16) as usize).next_multiple_of(4096);
    }
    found
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// A journal with four entries that are still needed, the second of them long, each written by itself; what
/// the store is then.
async fn four_entries(env: &Env, dir: &Dir, kv: &SharedKv) -> Model {
    let store = made(env, dir, kv, 4 << 20).await;
    let mut model = Model::default();
    for (n, len) in [(0, 10), (1, 300_000), (2, 10), (3, 5000)] {
        let mut t = Transaction::new();
        if n == 0 {
            t.mkcoll(&pg(0), 0);
        }
        t.write(&pg(0), &numbered(n), 0, vec![n as u8; len]);
        model.apply(&t).unwrap();
        store.submit(t).await.unwrap();
    }
    model
}

/// Found by reading: one flipped bit in an entry of the journal was taken for its end. A mount after a kill
/// threw away all that had been answered behind it, and told nobody.
#[test]
fn a_journal_that_has_rotted_in_the_middle_is_refused() {
    block_on(|env| async move {
        let dir = Dir::new("file-rotten");
        let kv = database();
        let model = four_entries(&env, &dir, &kv).await;
        let path = dir.0.join("journal");
        let journal = fs::read(&path).unwrap();
        let at = entries(&journal);
        assert_eq!(at.len(), 4);
        // Its head, which tells how long it is; its payload.
        for (entry, inside) in [(0, 3), (0, 50), (1, 17), (1, 200_000), (2, 41)] {
            let mut rotten = journal.clone();
            rotten[at[entry] + inside] ^= 4;
            fs::write(&path, rotten).unwrap();
            let refused = mounted(&env, &dir, &kv).await.map(drop);
            let why = "a damaged entry in the middle of the journal";
            assert_eq!(refused, Err(StoreError::Format(why)), "entry {entry}, byte {inside}");
        }
        fs::write(&path, journal).unwrap();
        let store = mounted(&env, &dir, &kv).await.unwrap();
        assert_eq!(model.compare(&*store).await, Ok(()));
    });
}

/// Journals of version 1 have shorter heads.
#[test]
fn a_journal_of_version_1_is_applied() {
    block_on(|env| async move {
        let dir = Dir::new("file-version-1");
        let kv = database();
        let model = four_entries(&env, &dir, &kv).await;
        let path = dir.0.join("journal");
        let mut journal = fs::read(&path).unwrap();
        let crc = |bytes: &[u8]| types::crc::crc32c(u32::MAX, bytes).to_le_bytes();
        for at in entries(&journal) {
            let len = u64_at(&journal, at + 16) as usize;
            journal.copy_within(at + 32..at + 36, at + 24);
            let sum = crc(&journal[at..at + 28]);
            journal[at + 28..at + 32].copy_from_slice(&sum);
            journal.copy_within(at + 40..at + 40 + len, at + 32);
        }
        for header in [0, 4096] {
            journal[header + 12] = 1;
            journal[header + 72..header + 80].fill(0);
            let sum = crc(&journal[header + 12..header + 4096]);
            journal[header + 8..header + 12].copy_from_slice(&sum);
        }
        fs::write(&path, journal).unwrap();
        for _ in 0..2 {
            let store = mounted(&env, &dir, &kv).await.unwrap();
            assert_eq!(model.compare(&*store).await, Ok(()));
        }
    });
}

/// Found by reading: mkfs emptied the database and left the files of the store before, and a collection of the same
/// name took them over. A new object of an old one's name had its data, the size it was known with was 0, and the
/// next mount listed objects that had never been made.
#[test]
fn a_store_made_again_has_nothing_of_the_one_before() {
    block_on(|env| async move {
        let dir = Dir::new("file-again");
        let kv = database();
        let old = made(&env, &dir, &kv, 4 << 20).await;
        let (cid, oid) = (pg(0), object("o", 1));
        let mut t = Transaction::new();
        t.mkcoll(&cid, 0).write(&cid, &oid, 0, vec![7; 10_000]);
        t.setattr(&cid, &oid, "a", "v").touch(&cid, &numbered(1));
        old.submit(t).await.unwrap();
        drop(old);
        make_current(&dir.0, true).unwrap();
        let store = made(&env, &dir, &kv, 4 << 20).await;
        let (mut model, mut t) = (Model::default(), Transaction::new());
        t.mkcoll(&cid, 0).touch(&cid, &oid);
        model.apply(&t).unwrap();
        store.submit(t).await.unwrap();
        assert_eq!(store.stat(&cid, &oid).await.unwrap().size, 0);
        assert_eq!(model.compare(&*store).await, Ok(()));
        drop(store);
        let store = mounted(&env, &dir, &kv).await.unwrap();
        assert_eq!(model.compare(&*store).await, Ok(()));
    });
}

#[test]
fn folders_split_by_the_hash() {
    block_on(|env| async move {
        let dir = Dir::new("file-split");
        let kv = database();
        let mut store = made(&env, &dir, &kv, 8 << 20).await;
        let mut model = Model::default();
        let mut t = Transaction::new();
        t.mkcoll(&pg(0), 0);
        for n in 0..600 {
            t.write(&pg(0), &numbered(n), 0, vec![n as u8; 10]);
        }
        model.apply(&t).unwrap();
        store.submit(t).await.unwrap();
        assert!(store.folders(&pg(0)) > 16, "{}", store.folders(&pg(0)));
        assert_eq!(model.compare(&*store).await, Ok(()));
        store.close().await.unwrap();
        // A split that was cut off: files above where they belong.
        let root = dir.0.join("current").join(pg(0).to_string());
        let deep = fs::read_dir(root.join("DIR_1"))
            .unwrap()
            .flat_map(|e| fs::read_dir(e.unwrap().path()).into_iter().flatten())
            .map(|e| e.unwrap().path())
            .find(|p| p.is_file());
        if let Some(file) = deep {
            fs::rename(&file, root.join(file.file_name().unwrap())).unwrap();
        }
        store = mounted(&env, &dir, &kv).await.unwrap();
        assert_eq!(model.compare(&*store).await, Ok(()));
    });
}

/// A database whose durable content is another than what it shows, and who watches it may look after each change.
#[derive(Default)]
struct Lazy {
    shown: MemKv,
    durable: Arc<MemKv>,
    later: Mutex<KvBatch>,
    watch: Option<Box<dyn Fn(&MemKv) + Send + Sync>>,
}

impl Kv for Lazy {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, KvError> {
        self.shown.get(key)
    }
    fn scan(
        &self,
        start: &[u8],
        end: &[u8],
        direction: Direction,
        visit: Visit<'_>,
    ) -> Result<(), KvError> {
        self.shown.scan(start, end, direction, visit)
    }
    fn commit(&self, batch: KvBatch) -> Result<(), KvError> {
        self.commit_later(batch)?;
        self.durable.commit(std::mem::take(&mut *self.later.lock().unwrap()))
    }
    fn commit_later(&self, batch: KvBatch) -> Result<(), KvError> {
        self.later.lock().unwrap().append(batch.clone());
        self.shown.commit(batch)?;
        self.watch.iter().for_each(|look| look(&self.shown));
        Ok(())
    }
    fn stored_bytes(&self) -> Result<u64, KvError> {
        self.shown.stored_bytes()
    }
}

/// Found by reading: an object was gone after a power loss. It had been renamed to a name that is too
/// long for a file; the file system had made the rename durable, the database not yet the key that
/// says whose the file is, and the mount removed it.
#[test]
fn a_file_that_gets_a_long_name_is_known_by_it_after_a_power_loss() {
    block_on(|env| async move {
        let dir = Dir::new("file-long");
        let database = Lazy::default();
        let durable: SharedKv = database.durable.clone();
        let kv: SharedKv = Arc::new(database);
        let store = made(&env, &dir, &kv, 2 << 20).await;
        let names = ["one", "two"].map(|name| object(&name.repeat(200), 1));
        let mut model = Model::default();
        let mut t = Transaction::new();
        t.mkcoll(&pg(0), 0).mkcoll(&pg(1), 0).write(&pg(0), &names[0], 0, vec![7; 1000]);
        model.apply(&t).unwrap();
        store.submit(t).await.unwrap();
        store.close().await.unwrap();
        drop(store);
        let store = mounted(&env, &dir, &kv).await.unwrap();
        let mut t = Transaction::new();
        t.coll_move_rename(&pg(0), &names[0], &pg(1), &names[1]);
        model.apply(&t).unwrap();
        store.submit(t).await.unwrap();
        assert_eq!(model.compare(&*store).await, Ok(()));
        drop(store);
        let store = mounted(&env, &dir, &durable).await.unwrap();
        assert_eq!(model.compare(&*store).await, Ok(()));
    });
}

/// Found by reading: the key of a removed or merged collection went before its folder. After a power loss between the two nobody looked into
/// the folder, where objects were whose renames the file system had not made durable; and a collection made anew under the name began with
/// what had been removed from the old one.
#[test]
fn the_key_of_a_collection_goes_behind_its_folder() {
    block_on(|env| async move {
        let dir = Dir::new("file-order");
        let folder = dir.0.join("current").join(pg(1).to_string());
        // Each time a key has gone: whether the folder is there.
        let seen: Arc<Mutex<Vec<bool>>> = Arc::default();
        let (of_watch, notes, before) = (folder.clone(), seen.clone(), AtomicUsize::new(0));
        let look = move |kv: &MemKv| {
            let mut keys = 0;
            let count = &mut |_: &[u8], _: &[u8]| {
                keys += 1;
                true
            };
            kv.scan(b"", &[0xff; 16], Direction::Forwards, count).unwrap();
            if before.swap(keys, Ordering::Relaxed) > keys {
                notes.lock().unwrap().push(of_watch.exists());
            }
        };
        let kv: SharedKv = Arc::new(Lazy { watch: Some(Box::new(look)), ..Lazy::default() });
        let store = made(&env, &dir, &kv, 2 << 20).await;
        let mut t = Transaction::new();
        t.mkcoll(&pg(0), 1).mkcoll(&pg(1), 1).write(&pg(1), &object("a", 1), 0, vec![7; 1000]);
        store.submit(t).await.unwrap();
        assert!(folder.exists());
        let mut t = Transaction::new();
        t.merge_collection(&pg(1), &pg(0), 0);
        store.submit(t).await.unwrap();
        store.close().await.unwrap();
        assert!(!folder.exists());
        let seen = seen.lock().unwrap();
        assert!(!seen.is_empty() && seen.iter().all(|there| !there), "{seen:?}");
    });
}

/// Found by reading: one xattr that could not be read at a mount, and the omap of its object was gone for good, as that of no object.
#[test]
fn an_omap_stays_when_its_objects_id_cannot_be_read() {
    fn file_in(dir: &Path) -> Option<PathBuf> {
        fs::read_dir(dir).unwrap().find_map(|entry| {
            let path = entry.unwrap().path();
            if path.is_dir() { file_in(&path) } else { Some(path) }
        })
    }
    const ID: &CStr = c"user.loligo.id";
    fn set_id(path: &Path, value: &[u8]) {
        let path = CString::new(path.as_os_str().as_bytes()).unwrap();
        let (value, len) = (value.as_ptr().cast(), value.len());
        // SAFETY: all pointers are valid for the call.
        let done = unsafe { libc::setxattr(path.as_ptr(), ID.as_ptr(), value, len, 0) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    }
    fn id_of(path: &Path) -> [u8; 8] {
        let path = CString::new(path.as_os_str().as_bytes()).unwrap();
        let mut id = [0; 8];
        // SAFETY: all pointers are valid for the call, and the buffer is as long as it is told.
        let got = unsafe { libc::getxattr(path.as_ptr(), ID.as_ptr(), id.as_mut_ptr().cast(), 8) };
        assert_eq!(got, 8, "{}", std::io::Error::last_os_error());
        id
    }
    block_on(|env| async move {
        let dir = Dir::new("file-id");
        let kv = database();
        let store = made(&env, &dir, &kv, 2 << 20).await;
        let mut t = Transaction::new();
        t.mkcoll(&pg(0), 0).touch(&pg(0), &object("a", 1));
        t.omap_setkeys(&pg(0), &object("a", 1), [("key", Bytes::from_static(b"value"))]);
        let mut model = Model::default();
        model.apply(&t).unwrap();
        store.submit(t).await.unwrap();
        store.close().await.unwrap();
        drop(store);
        let file = file_in(&dir.0.join("current").join(pg(0).to_string())).unwrap();
        let id = id_of(&file);
        set_id(&file, b"bad");
        let store = mounted(&env, &dir, &kv).await.unwrap();
        let repair = FsckOptions { deep: true, repair: true };
        assert!(!store.fsck(repair).await.unwrap().errors.is_empty());
        store.close().await.unwrap();
        drop(store);
        set_id(&file, &id);
        let store = mounted(&env, &dir, &kv).await.unwrap();
        assert_eq!(model.compare(&*store).await, Ok(()));
    });
}

/// Found by reading: a write was answered, could then not be applied to the object's file (EIO, EDQUOT), and
/// every read gave what was there before it, until some later transaction was refused: an OSD that was
/// only read from went on for ever.
#[test]
fn what_is_answered_and_cannot_be_applied_stops_reads_and_is_told_to_who_asks() {
    block_on(|env| async move {
        let dir = Dir::new("file-unapplied");
        let kv = database();
        let store = made(&env, &dir, &kv, 2 << 20).await;
        let write = |byte: u8| {
            let mut t = Transaction::new();
            t.write(&pg(0), &numbered(1), 0, vec![byte; 1000]);
            t
        };
        let mut t = Transaction::new();
        t.mkcoll(&pg(0), 0);
        t.append(write(1));
        store.submit(t).await.unwrap();
        assert_eq!(store.read(&pg(0), &numbered(1), 0, 1).await.unwrap().to_contiguous()[..], [1]);
        assert!(store.statfs().await.is_ok());
        // What cannot be opened as a file.
        let folder = dir.0.join("current").join(pg(0).to_string());
        let file = fs::read_dir(folder).unwrap().next().unwrap().unwrap().path();
        let aside = dir.0.join("aside");
        fs::rename(&file, &aside).unwrap();
        fs::create_dir(&file).unwrap();
        store.submit(write(2)).await.unwrap();
        fs::remove_dir(&file).unwrap();
        fs::rename(&aside, &file).unwrap();
        // As the file can be read again, the old byte would be.
        assert_eq!(store.stat(&pg(0), &numbered(1)).await, Err(StoreError::Latched));
        let read = store.read(&pg(0), &numbered(1), 0, 1).await;
        assert_eq!(read.map(|data| data.to_contiguous()), Err(StoreError::Latched));
        assert_eq!(store.statfs().await.map(drop), Err(StoreError::Latched));
        drop(store);
        let store = mounted(&env, &dir, &kv).await.unwrap();
        assert_eq!(store.read(&pg(0), &numbered(1), 0, 1).await.unwrap().to_contiguous()[..], [2]);
    });
}

#[test]
fn another_store_s_journal_is_refused() {
    block_on(|env| async move {
        let (one, two) = (Dir::new("file-one"), Dir::new("file-two"));
        let (kv, other) = (database(), database());
        drop(made(&env, &one, &kv, 2 << 20).await);
        let journal = two.0.join("journal");
        let mkfs = FileStore::mkfs(&env, &two.0, other, [8; 16], &journal, 2 << 20, true);
        mkfs.await.unwrap();
        fs::copy(&journal, one.0.join("journal")).unwrap();
        assert!(matches!(mounted(&env, &one, &kv).await, Err(StoreError::Format(_))));
    });
}
