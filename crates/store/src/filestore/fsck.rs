//! Whether files, names and keys belong together.
//!
//! A mount has applied the journal, moved files to where they belong and deleted omaps without a
//! file already; here is what it takes for granted.

use std::collections::{BTreeMap, BTreeSet};

use super::apply::Place;
use super::core::long_names;
use super::files::{ENTRY_KEY_AT, Files, entry_key, locked, long_key};
use super::state::Names;
use super::xattr::{self, GUARD};
use crate::kv::storage;
use crate::kv::{Direction, KvBatch};
use crate::{CollId, Fsck, FsckOptions, StoreError};

/// Bytes of a file read at a time.
const PIECE_LEN: u64 = 1 << 20;

pub(super) fn check(
    files: &Files,
    names: &Names,
    options: FsckOptions,
) -> Result<Fsck, StoreError> {
    let mut report = Fsck::default();
    let mut ids: BTreeMap<u64, String> = BTreeMap::new();
    let mut unread = 0;
    for (cid, coll) in &names.colls {
        let tree = locked(&files.colls).get(cid).cloned();
        let Some(tree) = tree else {
            report.error(format!("{cid}: there is no folder"));
            continue;
        };
        let on_disk: BTreeSet<_> = locked(&tree).objects()?.into_iter().collect();
        for oid in on_disk.iter().filter(|oid| !coll.objects.contains_key(oid)) {
            report.error(format!("{cid} {oid}: a file that was not there at the mount"));
        }
        for (oid, size) in &coll.objects {
            let name = format!("{cid} {oid}");
            let Some(file) = files.open(cid, oid)? else {
                report.error(format!("{name}: its file is not there"));
                continue;
            };
            let len = file.metadata()?.len();
            if len != *size {
                report.error(format!("{name}: {len} bytes in its file, {size} known"));
            }
            if let Some(guard) = xattr::get(&file, GUARD)?
                && Place::parse(&guard).is_none()
            {
                report.error(format!("{name}: its guard does not decode"));
                if options.repair {
                    // Nothing is left to be replayed.
                    xattr::remove(&file, GUARD)?;
                    report.repaired += 1;
                }
            }
            match files.id(&file) {
                Ok(Some(id)) => {
                    if let Some(other) = ids.insert(id, name.clone()) {
                        report.error(format!("{name}: has the omap of {other}"));
                    }
                }
                Ok(None) => {}
                Err(e) => {
                    report.error(format!("{name}: {e}"));
                    unread += 1;
                }
            }
            if options.deep
                && let Err(e) = read_all(&file, len)
            {
                report.error(format!("{name}: cannot be read: {e}"));
            }
        }
        check_long_names(files, cid, names, options, &mut report)?;
    }
    // Keys may be of those whose ids cannot be read.
    let options = FsckOptions { repair: options.repair && unread == 0, ..options };
    check_omaps(files, &ids, options, &mut report)?;
    Ok(report)
}

fn read_all(file: &std::fs::File, len: u64) -> std::io::Result<()> {
    use std::os::unix::fs::FileExt;
    let mut buf = vec![0; PIECE_LEN.min(len) as usize];
    for range in xattr::data_ranges(file, len)? {
        let mut at = range.start;
        while at < range.end {
            let n = (range.end - at).min(PIECE_LEN) as usize;
            file.read_exact_at(&mut buf[..n], at)?;
            at += n as u64;
        }
    }
    Ok(())
}

/// Long names that no object has take space only.
fn check_long_names(
    files: &Files,
    cid: &CollId,
    names: &Names,
    options: FsckOptions,
    report: &mut Fsck,
) -> Result<(), StoreError> {
    let mut batch = KvBatch::new();
    for oid in long_names(&files.kv, cid)?.into_keys() {
        if !names.coll(cid)?.objects.contains_key(&oid) {
            report.error(format!("{cid} {oid}: a long name without a file"));
            batch.delete(long_key(cid, &oid));
            report.repaired += u64::from(options.repair);
        }
    }
    if options.repair && !batch.is_empty() {
        files.kv.commit(batch).map_err(storage)?;
    }
    Ok(())
}

/// Omaps whose id no file has.
fn check_omaps(
    files: &Files,
    ids: &BTreeMap<u64, String>,
    options: FsckOptions,
    report: &mut Fsck,
) -> Result<(), StoreError> {
    let mut orphans = Vec::new();
    let start = entry_key(0, 0, b"");
    files
        .kv
        .scan(&start, b"N", Direction::Forwards, &mut |key, _| {
            let id = key.get(2..ENTRY_KEY_AT - 1);
            let id = id.and_then(|id| id.try_into().ok()).map(u64::from_be_bytes);
            if !id.is_some_and(|id| ids.contains_key(&id)) {
                orphans.push(key.to_vec());
            }
            true
        })
        .map_err(storage)?;
    if orphans.is_empty() {
        return Ok(());
    }
    report.error(format!("{} keys belong to no file", orphans.len()));
    if options.repair {
        let mut batch = KvBatch::new();
        for key in orphans {
            batch.delete(key);
        }
        files.kv.commit(batch).map_err(storage)?;
        report.repaired += 1;
    }
    Ok(())
}
