//! RocksDB and LevelDB behind [`Kv`]: like the simplest map, over kills, with every byte counted.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use bytes::Bytes;
use device::memory::Choices;
use store::kv::{
    Direction, Engine, Kv, KvBatch, KvError, LevelDbOptions, MemKv, NativeKv, RocksDbOptions,
    joined_key,
};

use super::common::Dir;

/// Both, with buffers small enough that short tests flush and compact.
pub(super) fn engines() -> Vec<(&'static str, Engine)> {
    let options = "compression=kNoCompression,write_buffer_size=262144,max_background_jobs=2,\
                   target_file_size_base=262144,max_bytes_for_level_base=1048576,\
                   level0_file_num_compaction_trigger=2";
    let rocks = RocksDbOptions { options: options.into(), ..RocksDbOptions::default() };
    let level = LevelDbOptions { write_buffer_len: 256 << 10, ..LevelDbOptions::default() };
    vec![("rocksdb", Engine::RocksDb(rocks)), ("leveldb", Engine::LevelDb(level))]
}

/// Copies a directory with all below it: what a kill of the process would leave.
pub(super) fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_dir(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn everything(kv: &dyn Kv) -> Vec<(Bytes, Bytes)> {
    kv.range(b"", b"", usize::MAX).unwrap()
}

fn random_batch(choices: &mut Choices, round: u64) -> KvBatch {
    let key = |choices: &mut Choices| {
        let prefix = ["O", "D", "M"][choices.below(3) as usize];
        joined_key(prefix, choices.below(60).to_string().as_bytes())
    };
    let mut batch = KvBatch::new();
    for _ in 0..choices.below(7) {
        match choices.below(5) {
            0 => {
                batch.delete(key(choices));
            }
            1 => {
                batch.delete_range(key(choices), key(choices));
            }
            _ => {
                let len = choices.below(3000) as usize;
                batch.put(key(choices), vec![round as u8; len]);
            }
        }
    }
    batch
}

#[test]
fn they_do_what_a_map_does_over_kills() {
    for (name, engine) in engines() {
        let dir = Dir::new(&format!("kv-{name}"));
        let path = dir.0.join("0");
        let mut kv = NativeKv::open(&path, &engine, true).unwrap();
        let (mem, mut choices) = (MemKv::new(), Choices::new(5));
        for round in 0..600 {
            let batch = random_batch(&mut choices, round);
            mem.commit(batch.clone()).unwrap();
            if choices.below(3) == 0 {
                kv.commit(batch).unwrap();
            } else {
                kv.commit_later(batch).unwrap();
            }
            let (from, to) = (choices.below(60).to_string(), choices.below(60).to_string());
            let (from, to) = (joined_key("D", from.as_bytes()), joined_key("M", to.as_bytes()));
            assert_eq!(mem.range(&from, &to, 7), kv.range(&from, &to, 7), "{name} {round}");
            assert_eq!(mem.last(&from, &to), kv.last(&from, &to), "{name} {round}");
            assert_eq!(mem.last(&from, b""), kv.last(&from, b""), "{name} {round}");
            assert_eq!(mem.get(&from), kv.get(&from), "{name} {round}");
            match round % 200 {
                50 => kv.compact().unwrap(),
                // As after a kill: neither library flushes when it closes.
                100 | 150 => {
                    drop(kv);
                    kv = NativeKv::open(&path, &engine, false).unwrap();
                    assert_eq!(everything(&mem), everything(&kv), "{name} {round}");
                }
                _ => {}
            }
        }
        let mut backwards = Vec::new();
        kv.scan(b"", b"", Direction::Backwards, &mut |key, value| {
            backwards.push((Bytes::copy_from_slice(key), Bytes::copy_from_slice(value)));
            true
        })
        .unwrap();
        backwards.reverse();
        assert_eq!(backwards, everything(&mem), "{name}");
    }
}

#[test]
fn a_long_range_is_deleted_whole() {
    for (name, engine) in engines() {
        let dir = Dir::new(&format!("kv-range-{name}"));
        let kv = NativeKv::open(&dir.0.join("kv"), &engine, true).unwrap();
        let key = |n: u32| joined_key("M", format!("{n:08}").as_bytes());
        let mut batch = KvBatch::new();
        for n in 0..10_000 {
            batch.put(key(n), &b"v"[..]);
        }
        kv.commit(batch).unwrap();
        // Keys that the same batch puts before the deletion go, too; those after it stay.
        let mut batch = KvBatch::new();
        batch.put(key(5_000), &b"before"[..]).delete_range(key(10), key(9_990));
        batch.put(key(6_000), &b"after"[..]);
        kv.commit(batch).unwrap();
        let left = everything(&kv);
        assert_eq!(left.len(), 21, "{name}");
        assert_eq!(kv.get(&key(5_000)), Ok(None));
        assert_eq!(kv.get(&key(6_000)).unwrap().as_deref(), Some(&b"after"[..]));
    }
}

/// Sizes of a directory's files by the kind of their names.
fn sizes(dir: &Path) -> BTreeMap<&'static str, u64> {
    let mut sizes = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let kind = match name.rsplit('.').next() {
            Some("log") => "wal",
            Some("sst" | "ldb") => "tables",
            _ if name.starts_with("MANIFEST") || name == "CURRENT" => "manifest",
            _ => "other",
        };
        *sizes.entry(kind).or_default() += entry.metadata().unwrap().len();
    }
    sizes
}

#[test]
fn every_byte_of_every_file_is_counted_under_its_cause() {
    for (name, engine) in engines() {
        let dir = Dir::new(&format!("kv-bytes-{name}"));
        let path = dir.0.join("kv");
        let kv = NativeKv::open(&path, &engine, true).unwrap();
        let mut batch = KvBatch::new();
        batch.put(&b"key"[..], vec![7; 10_000]);
        kv.commit(batch).unwrap();
        let (written, files) = (kv.written(), sizes(&path));
        // Nothing has been flushed: the log holds it all.
        assert_eq!((written.flush, written.compaction), (0, 0), "{name}");
        assert_eq!(Some(&written.wal), files.get("wal"), "{name} {written:?}");
        assert!(written.wal > 10_000 && written.wal < 11_000, "{name} {written:?}");
        assert!(written.syncs > 0);
        // The manifest's files may have been renamed and replaced, never be longer than written.
        assert!(files["manifest"] <= written.manifest, "{name} {written:?} {files:?}");
        for n in 0..400_u32 {
            let mut batch = KvBatch::new();
            batch.put(n.wrapping_mul(0x9e37_79b9).to_be_bytes().to_vec(), vec![n as u8; 10_000]);
            kv.commit_later(batch).unwrap();
        }
        kv.compact().unwrap();
        let written = kv.written();
        assert!(written.wal > 4_000_000, "{name} {written:?}");
        assert!(written.flush > 1_000_000, "{name} {written:?}");
        assert!(written.compaction > 1_000_000, "{name} {written:?}");
        assert!(sizes(&path)["tables"] <= written.flush + written.compaction);
        assert!(written.other < 100_000, "{name}: a log that nobody asked for? {written:?}");
    }
}

#[test]
fn rot_is_an_error_never_another_value() {
    for (name, engine) in engines() {
        let dir = Dir::new(&format!("kv-rot-{name}"));
        let path = dir.0.join("kv");
        let kv = NativeKv::open(&path, &engine, true).unwrap();
        let mut batch = KvBatch::new();
        for n in 0..200_u8 {
            batch.put(vec![n], vec![n; 2000]);
        }
        kv.commit(batch).unwrap();
        kv.compact().unwrap();
        drop(kv);
        let tables: Vec<_> = fs::read_dir(&path)
            .unwrap()
            .map(|e| e.unwrap().path())
            .filter(|p| p.extension().is_some_and(|e| e == "sst" || e == "ldb"))
            .collect();
        let (mut choices, mut refused) = (Choices::new(3), 0);
        for round in 0..40 {
            let table = &tables[choices.below(tables.len() as u64) as usize];
            let whole = fs::read(table).unwrap();
            let mut rotten = whole.clone();
            rotten[choices.below(whole.len() as u64) as usize] ^= 1 << choices.below(8);
            fs::write(table, &rotten).unwrap();
            match NativeKv::open(&path, &engine, false) {
                Err(KvError::Corrupt(_) | KvError::Storage(_)) => refused += 1,
                Err(e) => panic!("{name} {round}: {e}"),
                Ok(kv) => {
                    for n in 0..200_u8 {
                        match kv.get(&[n]) {
                            Ok(Some(value)) => assert_eq!(value, vec![n; 2000], "{name} {round}"),
                            Err(KvError::Corrupt(_) | KvError::Storage(_)) => refused += 1,
                            other => panic!("{name} {round}: key {n} is {other:?}"),
                        }
                    }
                }
            }
            fs::write(table, &whole).unwrap();
        }
        assert!(refused > 0, "{name}: no damage was ever noticed");
    }
}

#[test]
fn bad_settings_are_told() {
    let dir = Dir::new("kv-options");
    let engine = Engine::RocksDb(RocksDbOptions {
        options: "no_such_thing=1".into(),
        ..RocksDbOptions::default()
    });
    let error = NativeKv::open(&dir.0.join("kv"), &engine, true).unwrap_err();
    assert!(error.to_string().contains("no_such_thing"), "{error}");
    for (name, engine) in engines() {
        let missing = NativeKv::open(&dir.0.join("none").join(name), &engine, false);
        assert!(missing.is_err(), "{name}");
    }
}

/// Found by the laboratory: devices under LevelDB had fewer sectors than bytes were written.
///
/// 1. A write without sync filled the memtable: it was in the log, which nobody had synced.
/// 2. The write with sync that was to make it durable made LevelDB begin another log, and only that
///    one was synced.
/// 3. The first one went, unsynced, when its table was there: until then a power loss took away
///    what had been acknowledged.
#[test]
fn leveldb_syncs_a_log_before_it_begins_another() {
    let dir = Dir::new("kv-leveldb-logs");
    let engine = Engine::LevelDb(LevelDbOptions {
        write_buffer_len: 256 << 10,
        ..LevelDbOptions::default()
    });
    let kv = NativeKv::open(&dir.0.join("0"), &engine, true).unwrap();
    let before = kv.written().syncs;
    let mut batch = KvBatch::new();
    batch.put(&b"key"[..], vec![1; 300 << 10]);
    kv.commit_later(batch).unwrap();
    assert_eq!(kv.written().syncs, before);
    kv.commit(KvBatch::new()).unwrap();
    // The old log, the new one; the table and the manifest follow on a thread of LevelDB's own.
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while kv.written().syncs < before + 4 {
        assert!(std::time::Instant::now() < end, "{} syncs", kv.written().syncs - before);
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}
