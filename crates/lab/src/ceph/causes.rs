//! A real Ceph's bytes by cause. The devices' sectors are the sum and are shared out: what a
//! device holds, then what counters say of it. Nothing is added that was not written, and what no
//! counter tells apart is named for what it is with (metadata in files; of BlueStore's log the
//! data that waits there is in the log's share, as in the paper).

use std::collections::BTreeMap;

use super::counters::{PAGES, TABLES_COMPACTED, TABLES_FLUSHED, device};
use crate::causes::{Breakdown, Cause, Counters};
use crate::disk::{DATA, DB, FS_JOURNAL, JOURNAL, WAL};

/// Whether counters are of this kind.
pub(crate) fn are_of_ceph(counters: &Counters) -> bool {
    counters.contains_key(&device(DATA))
}

/// Sorts an interval; `data` is what clients wrote times the number of replicas.
pub(crate) fn of(grown: &Counters, data: u64) -> Breakdown {
    let number = |name: &str| grown.get(name).copied().unwrap_or(0);
    let sectors = |part: &str| number(&device(part));
    let mut shares = Shares::default();
    if grown.contains_key(&device(DB)) {
        // Zeros up to blocks are written with data into new places; the rest of the device is data
        // in its place and objects of the OSD's own.
        let mut left = sectors(DATA);
        shares.take(Cause::ZeroFilled, number("bluestore_write_pad_bytes"), &mut left);
        shares.take(Cause::Data, data, &mut left);
        shares.take(Cause::Files, u64::MAX, &mut left);
        // BlueFS writes the last block of a log anew with each append.
        let mut left = sectors(WAL);
        shares.take(Cause::RocksDbWal, number("bluefs_bytes_written_wal"), &mut left);
        shares.take(Cause::Files, number("bluefs_logged_bytes"), &mut left);
        shares.take(Cause::Padding, u64::MAX, &mut left);
        let mut left = sectors(DB);
        shares.take(Cause::Compaction, number(TABLES_COMPACTED), &mut left);
        shares.take(Cause::RocksDb, number(TABLES_FLUSHED), &mut left);
        shares.take(Cause::Files, u64::MAX, &mut left);
    } else {
        shares.add(Cause::Journal, sectors(JOURNAL));
        shares.add(Cause::FsJournal, sectors(FS_JOURNAL));
        // As in the paper: of the files' bytes what clients wrote is data, the rest metadata.
        // The journal is written past the page cache and counted with the process all the same.
        let files = number(PAGES).saturating_sub(sectors(JOURNAL));
        let mut left = sectors(DATA);
        let beyond = left.saturating_sub(files);
        shares.add(Cause::FsMetadata, beyond);
        left -= beyond;
        shares.take(Cause::Data, data, &mut left);
        shares.take(Cause::Compaction, number(TABLES_COMPACTED), &mut left);
        shares.take(Cause::RocksDb, number(TABLES_FLUSHED), &mut left);
        shares.take(Cause::Files, u64::MAX, &mut left);
    }
    Breakdown(shares.0)
}

#[derive(Default)]
struct Shares(BTreeMap<Cause, u64>);

impl Shares {
    fn add(&mut self, cause: Cause, bytes: u64) {
        if bytes > 0 {
            *self.0.entry(cause).or_default() += bytes;
        }
    }

    /// Up to `most` of what is left.
    fn take(&mut self, cause: Cause, most: u64, left: &mut u64) {
        let taken = most.min(*left);
        *left -= taken;
        self.add(cause, taken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(list: &[(&str, u64)]) -> Counters {
        list.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect()
    }

    #[test]
    fn bluestores_devices_are_shared_out_whole() {
        let grown = counters(&[
            ("written", 370),
            ("device_data", 150),
            ("device_wal", 120),
            ("device_db", 100),
            ("bluestore_write_pad_bytes", 20),
            ("bluefs_bytes_written_wal", 90),
            ("bluefs_logged_bytes", 10),
            ("rocksdb_tables_flushed", 60),
            ("rocksdb_tables_compacted", 30),
        ]);
        assert!(are_of_ceph(&grown));
        let found = of(&grown, 120);
        assert_eq!(found.sum(), 370);
        assert_eq!(found.bytes(Cause::Data), 120);
        assert_eq!(found.bytes(Cause::ZeroFilled), 20);
        assert_eq!(found.bytes(Cause::RocksDbWal), 90);
        assert_eq!(found.bytes(Cause::Padding), 20);
        assert_eq!(found.bytes(Cause::Compaction), 30);
        assert_eq!(found.bytes(Cause::RocksDb), 60);
        assert_eq!(found.bytes(Cause::Files), 10 + 10 + 10);
    }

    /// Counters run ahead of the devices (a log's bytes before they are on it): a share is never
    /// larger than what reached the device.
    #[test]
    fn no_share_is_larger_than_its_device() {
        let grown = counters(&[
            ("written", 130),
            ("device_data", 100),
            ("device_journal", 20),
            ("device_fs_journal", 10),
            ("osd_write_bytes", 500),
            ("rocksdb_tables_compacted", 900),
        ]);
        let found = of(&grown, 90);
        assert_eq!(found.sum(), 130);
        assert_eq!(found.bytes(Cause::FsMetadata), 0);
        assert_eq!(found.bytes(Cause::Data), 90);
        assert_eq!(found.bytes(Cause::Compaction), 10);
        let quiet = counters(&[("written", 50), ("device_data", 50), ("osd_write_bytes", 30)]);
        let found = of(&quiet, 20);
        assert_eq!(found.bytes(Cause::FsMetadata), 20);
        assert_eq!(found.bytes(Cause::Files), 10);
    }
}
