//! BlueFS alone, and a RocksDB on it: over power loss at every write, full devices, rot.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering as Memory};

use device::memory::Choices;
use device::shared_memory::SharedMemoryFile;
use env::SharedBlockFile;

use super::*;
use crate::kv::{Kv, KvBatch, KvError, RocksDbOptions};

const UUID: [u8; 16] = [9; 16];

/// Devices of BlueFS: wal, db, main.
type Files = [Option<Arc<SharedMemoryFile>>; 3];

fn files(wal: u64, db: u64, main: u64) -> Files {
    [wal, db, main].map(|len| (len > 0).then(|| SharedMemoryFile::new(len, 4096)))
}

fn places(files: &Files) -> Places {
    let own = |file: &Option<Arc<SharedMemoryFile>>| {
        let device = file.clone().map(|file| SharedDevice::new(file));
        device.map(Place::own)
    };
    [own(&files[0]), own(&files[1]), own(&files[2])]
}

fn made(files: &Files) -> Arc<BlueFs> {
    let places = places(files);
    BlueFs::mkfs(&places, UUID, 5).unwrap();
    Arc::new(BlueFs::mount(places, UUID).unwrap())
}

fn mounted(files: &Files) -> Result<Arc<BlueFs>, FsError> {
    BlueFs::mount(places(files), UUID).map(Arc::new)
}

fn contents(fs: &Arc<BlueFs>, path: &[u8]) -> Vec<u8> {
    let reader = fs.open(path).unwrap();
    let mut out = vec![0; fs.size(path).unwrap() as usize + 7];
    let n = reader.read(0, &mut out).unwrap();
    out.truncate(n);
    // From anywhere it is the same.
    for start in [1, n / 3, n.saturating_sub(5000)] {
        let mut part = vec![0; n.saturating_sub(start).min(3001)];
        assert_eq!(reader.read(start as u64, &mut part), Ok(part.len()));
        assert_eq!(part, out[start.min(n)..][..part.len()]);
    }
    out
}

/// Extents are within the devices and overlap nowhere: mounting finds that out. Space in use is
/// what files and log have.
fn sound(fs: &BlueFs) {
    let lent: u64 = Role::ALL.iter().map(|role| fs.space_of(*role).0).sum();
    let waiting: u64 = {
        let state = fs.state();
        let files = state.gone.iter().chain(&state.unlinked);
        files.map(|f| extents_len(&f.map().extents)).sum()
    };
    assert_eq!(lent, fs.used_len() + waiting);
}

/// What a crash may leave of a file: at least what was synced of what was appended.
#[derive(Clone, Default)]
struct Appended {
    data: Vec<u8>,
    synced: usize,
}

/// Random appends, syncs, renames and removals, a power loss after a third of the writes and flushes
/// of the devices, and what is mounted then has all that was synced.
fn history(seed: u64, files: &Files) {
    let mut fs = made(files);
    Arc::get_mut(&mut fs).unwrap().log_len_min = 8 << 10;
    let (step_of, images) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
    for file in files.iter().flatten() {
        let (step_of, images, all) = (step_of.clone(), images.clone(), files.clone());
        let mut choices = Choices::new(seed);
        file.set_hook(move |_| {
            if choices.below(3) != 0 {
                return;
            }
            let image =
                all.each_ref().map(|file| file.as_ref().map(|f| f.crash_image(&mut choices)));
            images.lock().unwrap().push((step_of.load(Memory::SeqCst), image));
        });
    }
    fs.make_dir(b"db").unwrap();
    fs.sync_names().unwrap();
    let mut choices = Choices::new(seed);
    let mut open: BTreeMap<Vec<u8>, file::Writer> = BTreeMap::new();
    // Names are durable when synced; until then a file may be under either.
    let mut model: BTreeMap<Vec<u8>, Appended> = BTreeMap::new();
    let mut durable: Vec<BTreeMap<Vec<u8>, Appended>> = vec![model.clone()];
    for step in 0..120 {
        let name = format!("db/{}.{}", choices.below(6), ["log", "sst"][choices.below(2) as usize]);
        let name = name.into_bytes();
        match choices.below(12) {
            0 if open.len() < 4 => {
                let framed = name.ends_with(b"log");
                let cause = WriteCause::DatabaseOther;
                open.insert(name.clone(), fs.create(&name, framed, cause).unwrap());
                model.insert(name, Appended::default());
            }
            1 => {
                open.remove(&name);
                let there = model.remove(&name).is_some();
                assert_eq!(fs.remove(&name).is_ok(), there);
            }
            2 => fs.sync_names().unwrap(),
            _ => {
                let Some((name, writer)) = open.iter().nth(choices.below(4) as usize) else {
                    continue;
                };
                let max = [90, 90, 5000, 5000, 30_000, 600_000][choices.below(6) as usize];
                let data = vec![step as u8 | 1; choices.below(max) as usize];
                writer.append(&data).unwrap();
                let file = model.get_mut(name).unwrap();
                file.data.extend_from_slice(&data);
                if choices.below(2) == 0 {
                    writer.sync().unwrap();
                    file.synced = file.data.len();
                }
            }
        }
        step_of.store(durable.len(), Memory::SeqCst);
        // Of what this step began nothing is promised; of what was before, all.
        let taken = std::mem::take(&mut *images.lock().unwrap());
        durable.push(model.clone());
        for (at, image) in taken {
            let fs = mounted(&image).unwrap_or_else(|e| panic!("seed {seed} step {step}: {e}"));
            sound(&fs);
            for (name, before) in &durable[at.saturating_sub(1).min(durable.len() - 1)] {
                let now = model.get(name).filter(|now| now.data.starts_with(&before.data));
                // Only files that this step did not remove or make anew.
                let (Some(now), true) = (now, before.synced > 0) else { continue };
                let found = contents(&fs, name);
                assert!(found.len() >= before.synced, "seed {seed} step {step}: lost");
                let sound = found[..before.synced] == now.data[..before.synced];
                assert!(sound, "seed {seed} step {step}: other bytes");
            }
        }
        sound(&fs);
    }
    assert!(fs.counts.log_compactions.load(Ordering::Relaxed) > 1);
    for (name, file) in &model {
        if let Some(writer) = open.get(name) {
            writer.sync().unwrap();
        }
        assert_eq!(contents(&fs, name), file.data[..contents(&fs, name).len()]);
    }
}

#[test]
fn what_was_synced_survives_power_loss() {
    for seed in 0..2 {
        history(seed, &files(0, 0, 64 << 20));
        history(seed + 10, &files(8 << 20, 8 << 20, 64 << 20));
    }
}

/// Found by reading: a power loss while the log was lengthened left one that nobody mounts. The record
/// that says where the log goes on and the one behind it were one write, of which the second may be
/// there alone.
#[test]
fn a_log_that_is_lengthened_survives_power_loss() {
    let files = files(0, 0, 16 << 20);
    let fs = made(&files);
    let was = extents_len(&fs.state().log.extents);
    for n in 0..100_u32 {
        if n == 60 {
            let mut choices = Choices::new(1);
            files[2].as_ref().unwrap().set_hook(move |file| {
                for _ in 0..32 {
                    let image = file.crash_image(&mut choices);
                    mounted(&[None, None, Some(image)]).unwrap();
                }
            });
        }
        fs.make_dir(format!("{n}").as_bytes()).unwrap();
        fs.sync_names().unwrap();
    }
    assert!(extents_len(&fs.state().log.extents) > was);
}

/// Found by reading: a process is killed between a write and its flush; the next one mounts, reads what
/// was written, and writes over what that frees; then the power goes, and with it what had been
/// read, alone.
#[test]
fn what_a_dead_process_did_not_flush_is_durable_once_mounted() {
    let files = files(0, 1 << 20, 8 << 20);
    drop(made(&files));
    for file in files.iter().flatten() {
        file.write_at(768 << 10, vec![vec![7; 4096].into()]).unwrap();
    }
    drop(mounted(&files).unwrap());
    let mut choices = Choices::new(1);
    for file in files.iter().flatten() {
        for _ in 0..8 {
            let image = file.crash_image(&mut choices);
            assert_eq!(image.read_at(768 << 10, 4096).unwrap()[..], [7; 4096]);
        }
    }
}

#[test]
fn names_are_as_one_expects() {
    let fs = made(&files(0, 0, 16 << 20));
    assert_eq!(fs.create(b"db/x", false, WriteCause::DatabaseOther).err(), Some(FsError::NotFound));
    fs.make_dir(b"/db/").unwrap();
    let write = |path: &[u8], data: &[u8]| {
        let writer = fs.create(path, false, WriteCause::DatabaseOther).unwrap();
        writer.append(data).unwrap();
        writer.sync().unwrap();
    };
    write(b"db//a", b"first");
    write(b"db/b", b"second");
    assert_eq!(fs.children(b"db").unwrap(), [b"a".to_vec(), b"b".to_vec()]);
    assert_eq!(fs.children(b"").unwrap(), [b"db".to_vec()]);
    assert_eq!(fs.remove_dir(b"db"), Err(FsError::Exists));
    fs.rename(b"db/b", b"db/a").unwrap();
    assert_eq!(contents(&fs, b"db/a"), b"second");
    assert_eq!(fs.open(b"db/b").err(), Some(FsError::NotFound));
    write(b"db/a", b"third");
    assert_eq!(contents(&fs, b"db/a"), b"third");
    fs.lock(b"db/LOCK").unwrap();
    assert_eq!(fs.lock(b"db/LOCK"), Err(FsError::Exists));
    fs.unlock(b"db/LOCK");
    fs.lock(b"db/LOCK").unwrap();
    fs.remove(b"db/a").unwrap();
    fs.remove_dir(b"db").unwrap();
    assert!(!fs.is_dir(b"db"));
    sound(&fs);
}

#[test]
fn a_full_one_says_so_and_goes_on_when_files_go() {
    let mut fs = made(&files(0, 0, 4 << 20));
    Arc::get_mut(&mut fs).unwrap().space_wait = Duration::ZERO;
    for round in 0..5 {
        let writer = fs.create(b"big", false, WriteCause::DatabaseOther).unwrap();
        let refused = loop {
            let appended = writer.append(&[round; 100_000]).and_then(|()| writer.sync());
            if let Err(e) = appended {
                break e;
            }
        };
        assert_eq!(refused, FsError::NoSpace);
        assert_eq!(writer.append(b"more"), Err(FsError::NoSpace));
        drop(writer);
        assert!(contents(&fs, b"big").iter().all(|byte| *byte == round));
        assert!(fs.size(b"big").unwrap() > 2 << 20);
        fs.remove(b"big").unwrap();
    }
    sound(&fs);
}

/// A store full of omap did not open, on a busy machine: RocksDB found the device full. Compactions had
/// followed each other while the tables of those before were still there, as something read them, and
/// had taken what was kept for the log and for flushes, too.
#[test]
fn space_that_will_be_free_is_waited_for() {
    let fs = made(&files(0, 0, 2 << 20));
    fs.make_dir(b"db").unwrap();
    let write = |name: &[u8], cause, len: usize| {
        let writer = fs.create(name, false, cause).unwrap();
        writer.append(&vec![1; len]).and_then(|()| writer.sync())
    };
    let half = fs.free_len() as usize / 2;
    write(b"db/1.sst", WriteCause::DatabaseFlush, half).unwrap();
    fs.keep(half as u64);
    let remove = |name: &'static [u8]| {
        let fs = fs.clone();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            fs.remove(name).unwrap();
        })
    };
    // What is kept is there, and is no compaction's.
    let (since, removal) = (Instant::now(), remove(b"db/1.sst"));
    write(b"db/2.sst", WriteCause::DatabaseCompaction, half / 2).unwrap();
    assert!(since.elapsed() >= Duration::from_millis(50));
    removal.join().unwrap();
    // A flush has it at once, and waits for more.
    write(b"db/3.sst", WriteCause::DatabaseFlush, half).unwrap();
    let removal = remove(b"db/3.sst");
    write(b"db/4.sst", WriteCause::DatabaseFlush, half).unwrap();
    removal.join().unwrap();
    sound(&fs);
}

#[test]
fn what_does_not_fit_beside_spills_over() {
    let files = files(512 << 10, 1 << 20, 32 << 20);
    let fs = made(&files);
    let write = |name: &[u8], framed, len: usize| {
        let writer = fs.create(name, framed, WriteCause::DatabaseOther).unwrap();
        writer.append(&vec![1; len]).unwrap();
        writer.sync().unwrap();
    };
    write(b"log", true, 100_000);
    write(b"table", false, 100_000);
    let used = |role| fs.space_of(role).0;
    assert!(used(Role::Wal) > 100_000 && used(Role::Db) > 100_000);
    assert_eq!(used(Role::Main), 0);
    write(b"log 2", true, 1_000_000);
    write(b"table 2", false, 1_000_000);
    assert!(used(Role::Main) > 1_000_000);
    drop(fs);
    let fs = mounted(&files).unwrap();
    assert_eq!(contents(&fs, b"table 2"), vec![1; 1_000_000]);
    assert_eq!(contents(&fs, b"log 2"), vec![1; 1_000_000]);
    // A device that is missing, or another's, is not taken.
    let [wal, db, main] = files;
    for wrong in [
        [None, db.clone(), main.clone()],
        [wal.clone(), None, main.clone()],
        [db.clone(), wal.clone(), main.clone()],
        [Some(SharedMemoryFile::new(1 << 20, 4096)), db, main],
    ] {
        assert!(matches!(mounted(&wrong), Err(FsError::Corrupt(_))));
    }
}

#[test]
fn rot_is_an_error_or_harmless() {
    let files = files(0, 0, 8 << 20);
    let fs = made(&files);
    let mut all = BTreeMap::new();
    for n in 0..20_u8 {
        let name = vec![b'a' + n];
        let writer = fs.create(&name, n % 2 == 0, WriteCause::DatabaseOther).unwrap();
        for _ in 0..3 {
            writer.append(&[n; 3000]).unwrap();
            writer.sync().unwrap();
        }
        all.insert(name, vec![n; 9000]);
    }
    drop(fs);
    let file = files[2].clone().unwrap();
    let (pages, mut choices) = (file.written_pages(), Choices::new(4));
    let (mut refused, mut harmless) = (0, 0);
    for _ in 0..300 {
        let rotten = file.kill_image();
        let page = pages[choices.below(pages.len() as u64) as usize];
        rotten.rot(page + choices.below(4096), 1 << choices.below(8));
        match mounted(&[None, None, Some(rotten)]) {
            Err(FsError::Corrupt(_)) => refused += 1,
            Err(e) => panic!("{e}"),
            Ok(fs) => {
                harmless += 1;
                for (name, data) in &all {
                    // Tables have checksums of RocksDB's; write-ahead logs of ours.
                    if name[0] % 2 == b'a' % 2 && fs.is_file(name) {
                        let found = contents(&fs, name);
                        assert!(data.starts_with(&found), "other bytes");
                        assert!(found.len() >= 6000, "what was followed by more is lost");
                    }
                }
            }
        }
    }
    assert!(refused > 10 && harmless > 10, "{refused} {harmless}");
}

fn rocks() -> RocksDbOptions {
    RocksDbOptions {
        options: "compression=kNoCompression,write_buffer_size=262144,max_background_jobs=2,\
                  target_file_size_base=262144,max_bytes_for_level_base=1048576,\
                  level0_file_num_compaction_trigger=2"
            .into(),
        ..RocksDbOptions::default()
    }
}

#[test]
fn every_byte_that_rocksdb_sends_to_a_device_is_counted_under_its_cause() {
    for files in [files(0, 0, 64 << 20), files(4 << 20, 8 << 20, 64 << 20)] {
        let fs = made(&files);
        let kv = open_rocksdb(&fs, &rocks(), Mode::Create).unwrap();
        for n in 0..400_u32 {
            let mut batch = KvBatch::new();
            let key = n.wrapping_mul(0x9e37_79b9).to_be_bytes();
            batch.put(key.to_vec(), vec![n as u8; 10_000]);
            kv.commit(batch).unwrap();
        }
        kv.compact().unwrap();
        let logical = kv.written();
        // Its threads end here.
        drop(kv);
        let devices: Vec<SharedDevice> =
            fs.places.iter().flatten().map(|p| p.device.clone()).collect();
        let sum = |cause| devices.iter().map(|d| d.ledger().written(cause)).sum::<u64>();
        let all: u64 = WriteCause::ALL.iter().map(|cause| sum(*cause)).sum();
        let to_devices: u64 = files.iter().flatten().map(|f| f.bytes_written()).sum();
        assert_eq!(all, to_devices);
        // What RocksDB appended, and what fills its files' blocks.
        let wal = sum(WriteCause::DatabaseLog);
        assert!(wal >= logical.wal && wal < logical.wal * 2, "{wal} {logical:?}");
        for (cause, logical) in [
            (WriteCause::DatabaseFlush, logical.flush),
            (WriteCause::DatabaseCompaction, logical.compaction),
        ] {
            let n = sum(cause);
            assert!(
                logical > 100_000 && n >= logical && n < logical * 11 / 10,
                "{cause:?} {n} {logical}"
            );
        }
        assert!(sum(WriteCause::DatabaseManifest) > 0);
        assert!(sum(WriteCause::FileSystem) > 0);
        sound(&fs);
        // All of it is there, and nothing is lost by looking.
        for mode in [Mode::Look, Mode::Open] {
            let kv = open_rocksdb(&fs, &rocks(), mode).unwrap();
            assert_eq!(kv.range(b"", b"", usize::MAX).unwrap().len(), 400);
        }
    }
}

#[test]
fn looking_writes_nothing() {
    let files = files(0, 0, 16 << 20);
    let fs = made(&files);
    let kv = open_rocksdb(&fs, &rocks(), Mode::Create).unwrap();
    let mut batch = KvBatch::new();
    batch.put(&b"key"[..], vec![7; 10_000]);
    kv.commit(batch.clone()).unwrap();
    drop(kv);
    drop(fs);
    let fs = mounted(&files).unwrap();
    let written = files[2].as_ref().unwrap().bytes_written();
    let kv = open_rocksdb(&fs, &rocks(), Mode::Look).unwrap();
    assert_eq!(kv.get(b"key").unwrap().unwrap(), vec![7; 10_000]);
    assert!(kv.commit(batch).is_err());
    drop(kv);
    assert_eq!(files[2].as_ref().unwrap().bytes_written(), written);
}

#[test]
fn a_database_on_a_full_one_says_so_and_is_there_again() {
    let files = files(0, 0, 8 << 20);
    let fs = made(&files);
    let kv = open_rocksdb(&fs, &rocks(), Mode::Create).unwrap();
    let key = |n: u32| n.wrapping_mul(0x9e37_79b9).to_be_bytes().to_vec();
    let mut acknowledged = 0;
    let refused = loop {
        let mut batch = KvBatch::new();
        batch.put(key(acknowledged), vec![acknowledged as u8; 10_000]);
        match kv.commit(batch) {
            Ok(()) => acknowledged += 1,
            Err(e) => break e,
        }
    };
    assert!(matches!(refused, KvError::NoSpace(_)), "{refused}");
    assert!(acknowledged > 100, "{acknowledged}");
    drop((kv, fs));
    let fs = mounted(&files).unwrap();
    let kv = open_rocksdb(&fs, &rocks(), Mode::Look).unwrap();
    for n in 0..acknowledged {
        assert_eq!(kv.get(&key(n)).unwrap().unwrap(), vec![n as u8; 10_000]);
    }
}
