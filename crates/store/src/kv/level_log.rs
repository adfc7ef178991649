//! The end of LevelDB's log after a power loss.
//!
//! Behind the last sync a power loss leaves any pages of a log and zeros in place of others. LevelDB
//! refuses a log with a record that does not check; told not to (`paranoid_checks`) it would leave that
//! one out and take those behind it, and zeros it passes over in any case. A store needs a prefix: so
//! before an opening the log is cut where it first does not check, as RocksDB does by itself
//! (`kPointInTimeRecovery`).
//!
//! Only the last log that holds anything is cut: one is synced before the next gets its first byte
//! (`native/level.cc`), so damage in an earlier one is no power loss's, and LevelDB tells of it. In the
//! last nothing marks where the last sync was, and rot in front of it looks the same: what is left out
//! is told in a warning.
//!
//! ```text
//! log:    blocks of 32 KiB; less than a head at the end of one is left empty
//! record: one part, or a first, middles and a last, of which none reaches over a block's end
//! part:   u32 masked crc32c of kind and bytes | u16 length | u8 kind | bytes
//! ```

use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;

use types::crc::crc32c;

const BLOCK_LEN: usize = 32 << 10;
const HEAD_LEN: usize = 7;

const WHOLE: u8 = 1;
const FIRST: u8 = 2;
const MIDDLE: u8 = 3;
const LAST: u8 = 4;

/// Cuts the last log of a database where it first does not check. Nobody may have the database open.
pub(super) fn cut_torn(dir: &Path) -> io::Result<()> {
    let mut logs = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        let Some(number) = name.strip_suffix(".log").and_then(|n| n.parse::<u64>().ok()) else {
            continue;
        };
        if fs::metadata(&path)?.len() > 0 {
            logs.push((number, path));
        }
    }
    logs.sort();
    for (n, (_, path)) in logs.iter().enumerate() {
        let log = fs::read(path)?;
        let kept = whole_len(&log);
        let left_out = log.len() - kept;
        if left_out == 0 {
            continue;
        }
        if n + 1 < logs.len() {
            tracing::error!(
                ?path,
                kept,
                left_out,
                "a log of the database that was synced is damaged"
            );
            break;
        }
        tracing::warn!(
            ?path,
            kept,
            left_out,
            "the database's log ends in bytes that do not check, as after a power loss: they are left out"
        );
        let file = OpenOptions::new().write(true).open(path)?;
        file.set_len(kept as u64)?;
        // LevelDB removes it soon: after another power loss it must not be back with its torn end.
        file.sync_all()?;
    }
    Ok(())
}

/// Where the last record ends in front of which all check.
fn whole_len(log: &[u8]) -> usize {
    let (mut at, mut end, mut is_inside) = (0, 0, false);
    while at < log.len() {
        let left = BLOCK_LEN - at % BLOCK_LEN;
        if left < HEAD_LEN {
            at += left;
            continue;
        }
        let Some((kind, len)) = part(&log[at..log.len().min(at + left)]) else { break };
        is_inside = match (kind, is_inside) {
            (WHOLE, false) | (LAST, true) => false,
            (FIRST, false) | (MIDDLE, true) => true,
            _ => break,
        };
        at += len;
        if !is_inside {
            end = at;
        }
    }
    end
}

/// Kind and length, with its head, of the part of a record that the rest of a block begins with.
fn part(block: &[u8]) -> Option<(u8, usize)> {
    let head: &[u8; HEAD_LEN] = block.first_chunk()?;
    let [s0, s1, s2, s3, l0, l1, kind] = *head;
    let len = HEAD_LEN + usize::from(u16::from_le_bytes([l0, l1]));
    let sum = !crc32c(!0, block.get(HEAD_LEN - 1..len)?);
    let masked = sum.rotate_right(15).wrapping_add(0xa282_ead8);
    (u32::from_le_bytes([s0, s1, s2, s3]) == masked).then_some((kind, len))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::{Engine, Kv, KvBatch, KvError, LevelDbOptions, NativeKv};
    use crate::testing::Dir;

    fn open(dir: &Path) -> Result<NativeKv, KvError> {
        NativeKv::open(dir, &Engine::LevelDb(LevelDbOptions::default()), true)
    }

    fn put(kv: &NativeKv, n: u8, len: usize) {
        let mut batch = KvBatch::new();
        batch.put(vec![n], vec![n; len]);
        kv.commit(batch).unwrap();
    }

    fn keys(kv: &NativeKv) -> Vec<u8> {
        kv.range(b"", b"", usize::MAX).unwrap().iter().map(|(key, _)| key[0]).collect()
    }

    fn logs(dir: &Path) -> Vec<std::path::PathBuf> {
        let all = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        let mut logs: Vec<_> =
            all.filter(|path| path.extension().is_some_and(|e| e == "log")).collect();
        logs.sort();
        logs
    }

    /// A log of a record in each of many sizes, and where they end.
    fn written(dir: &Path) -> (Vec<u8>, Vec<usize>) {
        let kv = open(dir).unwrap();
        let (log, mut ends) = (logs(dir).remove(0), vec![0]);
        for n in 0..60_u8 {
            put(&kv, n, usize::from(n) * usize::from(n) * 40 % 50_000);
            ends.push(fs::metadata(&log).unwrap().len() as usize);
        }
        (fs::read(log).unwrap(), ends)
    }

    #[test]
    fn a_log_is_whole_up_to_the_record_that_does_not_check() {
        let dir = Dir::new("level-log");
        let (log, ends) = written(&dir.0);
        assert!(log.len() > 10 * BLOCK_LEN);
        assert_eq!(whole_len(&log), log.len());
        let before = |at: usize| *ends.iter().rfind(|end| **end <= at).unwrap();
        for at in (0..log.len()).step_by(331) {
            assert_eq!(whole_len(&log[..at]), before(at), "cut at {at}");
            let mut rotten = log.clone();
            rotten[at] ^= 0x10;
            // What fills up a block is not looked at.
            let is_filling = at % BLOCK_LEN > BLOCK_LEN - HEAD_LEN && before(at + 1) == before(at);
            let len = whole_len(&rotten);
            assert!(len == before(at) || is_filling && len == log.len(), "bit of {at}: {len}");
            let mut zeros = log.clone();
            zeros[at..].fill(0);
            assert_eq!(whole_len(&zeros), before(at), "zeros from {at}");
        }
    }

    /// Only the last log may not have been synced whole: of damage in another LevelDB tells, and nothing is cut.
    #[test]
    fn damage_in_a_log_that_was_synced_is_told() {
        let dir = Dir::new("level-logs");
        let path = dir.0.join("kv");
        let kv = open(&path).unwrap();
        put(&kv, 1, 10_000);
        put(&kv, 2, 10_000);
        drop(kv);
        let old = logs(&path).remove(0);
        let newer = old.with_file_name("999999.log");
        let mut rotten = fs::read(&old).unwrap();
        rotten[15_000] ^= 1;
        fs::write(&old, &rotten).unwrap();
        fs::write(&newer, b"\0").unwrap();
        assert!(matches!(open(&path), Err(KvError::Corrupt(_))));
        assert_eq!(fs::read(&old).unwrap(), rotten);
        assert_eq!(fs::read(&newer).unwrap(), b"\0");
        // One that nothing was written to says nothing of the one before it.
        fs::write(&newer, b"").unwrap();
        assert_eq!(keys(&open(&path).unwrap()), [1]);
    }

    /// A store tool that is started beside a running store must not cut what that is just writing.
    #[test]
    fn the_log_of_an_open_database_is_left_alone() {
        let dir = Dir::new("level-lock");
        let path = dir.0.join("kv");
        let kv = open(&path).unwrap();
        put(&kv, 1, 100);
        let log = logs(&path).remove(0);
        let mut torn = fs::read(&log).unwrap();
        torn.extend([1; 20]);
        fs::write(&log, &torn).unwrap();
        assert!(open(&path).is_err());
        assert_eq!(fs::read(&log).unwrap(), torn);
    }
}
