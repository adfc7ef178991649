//! Bytes by cause, in the paper's words (section III-C).
//!
//! Stores count under names of their own (`written_pg_log`, `wal_client_data`, ...); here they
//! become the paper's categories. A name that is not known becomes metadata, never nothing: the
//! categories always add up to the store's own sum `written`, and [`Breakdown::of`] checks it.

use std::collections::BTreeMap;

use crate::ceph;

/// Counters of a store by name, or how they grew.
pub(crate) type Counters = BTreeMap<String, u64>;

/// Of the bytes in BlueFS's logs: those that only fill blocks.
pub(crate) const LOG_PADDING: &str = "bluefs_wal_padding";

/// Why bytes reached a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cause {
    /// What the client wrote, once for each replica.
    Data,
    /// Metadata in files or in a log of the store's own.
    Files,
    /// Tables a key-value store makes of what is in memory.
    RocksDb,
    /// A key-value store's log, without client data in it.
    RocksDbWal,
    /// FileStore's journal, data and all; InkStore's framing of its log.
    Journal,
    /// Tables made of tables; metadata written anew to be shorter.
    Compaction,
    /// Zeros around data in a new unit of allocation.
    ZeroFilled,
    /// Filling up to a device's blocks.
    Padding,
    /// Live data moved to make room.
    Cleaning,
    /// Inodes, bitmaps, directories of the file system under the store.
    FsMetadata,
    /// That file system's own journal.
    FsJournal,
}

impl Cause {
    pub(crate) const ALL: [Cause; 11] = [
        Cause::Data,
        Cause::Files,
        Cause::RocksDb,
        Cause::RocksDbWal,
        Cause::Journal,
        Cause::Compaction,
        Cause::ZeroFilled,
        Cause::Padding,
        Cause::Cleaning,
        Cause::FsMetadata,
        Cause::FsJournal,
    ];

    /// In results.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Cause::Data => "ceph_data",
            Cause::Files => "metadata_files",
            Cause::RocksDb => "rocksdb",
            Cause::RocksDbWal => "rocksdb_wal",
            Cause::Journal => "journal",
            Cause::Compaction => "compaction",
            Cause::ZeroFilled => "zero_filled",
            Cause::Padding => "padding",
            Cause::Cleaning => "cleaning",
            Cause::FsMetadata => "fs_metadata",
            Cause::FsJournal => "fs_journal",
        }
    }

    /// In tables and legends.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Cause::Data => "Ceph data",
            Cause::Files => "Metadata in files",
            Cause::RocksDb => "RocksDB",
            Cause::RocksDbWal => "RocksDB WAL",
            Cause::Journal => "Ceph journal",
            Cause::Compaction => "Compaction",
            Cause::ZeroFilled => "Zero-filled data",
            Cause::Padding => "Padding",
            Cause::Cleaning => "Cleaning",
            Cause::FsMetadata => "File system metadata",
            Cause::FsJournal => "File system journal",
        }
    }

    /// Where a store's counter belongs; `None` for one that counts no written bytes.
    fn of_counter(name: &str) -> Option<Cause> {
        Some(match name.strip_prefix("written_")? {
            // BlueStore's rewrite: a small overwrite that its log had first, in its place.
            "data" | "rewrite" => Cause::Data,
            "rocksdb" | "bluefs_sst" | "kv_flush" => Cause::RocksDb,
            "rocksdb_wal" | "wal" | "bluefs_wal" => Cause::RocksDbWal,
            "journal" | "journal_header" => Cause::Journal,
            "compaction" => Cause::Compaction,
            "zero_fill" | "zero_filled" => Cause::ZeroFilled,
            "padding" => Cause::Padding,
            "clean" => Cause::Cleaning,
            _ => Cause::Files,
        })
    }
}

/// Bytes of an interval by cause.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Breakdown(pub(crate) BTreeMap<Cause, u64>);

impl Breakdown {
    /// Sorts what a store counted in an interval. `data` is what clients wrote times the number
    /// of replicas: the store cannot have written more client data than that, so what it calls
    /// data beyond it (rests of stripes, objects that are not clients') counts as metadata, as in
    /// the paper. An error names both sums when they differ.
    /// A real Ceph's are its devices' sectors, shared out: the sum holds by their making.
    pub(crate) fn of(grown: &Counters, data: u64) -> Result<Breakdown, String> {
        let found = Breakdown::in_flight(grown, data);
        let written = grown.get("written").copied().unwrap_or(0);
        match found.sum() == written {
            true => Ok(found),
            false => Err(format!(
                "the store counted {written} bytes, its causes add up to {}",
                found.sum()
            )),
        }
    }

    /// The same of stores that write meanwhile: their counters are read one after the other, so
    /// that sum and causes may be of different moments, and only the causes are looked at.
    pub(crate) fn in_flight(grown: &Counters, data: u64) -> Breakdown {
        if ceph::causes::are_of_ceph(grown) {
            return ceph::causes::of(grown, data);
        }
        let mut bytes: BTreeMap<Cause, u64> = BTreeMap::new();
        for (name, n) in grown {
            if let Some(cause) = Cause::of_counter(name) {
                *bytes.entry(cause).or_default() += n;
            }
        }
        // A log's bytes that are client data.
        let in_log = grown.get("wal_client_data").copied().unwrap_or(0);
        let log = bytes.entry(Cause::RocksDbWal).or_default();
        let in_log = in_log.min(*log);
        *log -= in_log;
        // BlueFS writes the last block of a log anew with each append, and says how much of the
        // log's bytes that is.
        let again = grown.get(LOG_PADDING).copied().unwrap_or(0).min(*log);
        *log -= again;
        *bytes.entry(Cause::Padding).or_default() += again;
        let all_data = bytes.remove(&Cause::Data).unwrap_or(0) + in_log;
        let client = all_data.min(data);
        bytes.insert(Cause::Data, client);
        if in_log > 0 {
            *bytes.entry(Cause::RocksDbWal).or_default() += all_data - client;
        } else {
            *bytes.entry(Cause::Files).or_default() += all_data - client;
        }
        bytes.retain(|_, n| *n > 0);
        Breakdown(bytes)
    }

    /// All of them.
    pub(crate) fn sum(&self) -> u64 {
        self.0.values().sum()
    }

    pub(crate) fn bytes(&self, cause: Cause) -> u64 {
        self.0.get(&cause).copied().unwrap_or(0)
    }

    pub(crate) fn add(&mut self, cause: Cause, bytes: u64) {
        *self.0.entry(cause).or_default() += bytes;
    }
}

/// How counters grew. A counter that shrank means that its OSD started anew: an error.
pub(crate) fn grown(before: &Counters, after: &Counters) -> Result<Counters, String> {
    let mut all = Counters::new();
    for (name, now) in after {
        let then = before.get(name).copied().unwrap_or(0);
        // Some are levels (queued_bytes), not counts.
        let counts = name.starts_with("written") || name.starts_with("wal_");
        match now.checked_sub(then) {
            Some(n) => drop(all.insert(name.clone(), n)),
            None if counts => {
                return Err(format!("{name} went from {then} to {now}: an OSD restarted"));
            }
            None => {}
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(list: &[(&str, u64)]) -> Counters {
        list.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect()
    }

    #[test]
    fn causes_add_up_to_what_was_written() {
        let grown = counters(&[
            ("written", 1250),
            ("written_rocksdb_wal", 1000),
            ("wal_client_data", 300),
            ("written_compaction", 200),
            ("written_something_new", 50),
            ("syncs", 7),
        ]);
        let found = Breakdown::of(&grown, 300).unwrap();
        assert_eq!(found.bytes(Cause::Data), 300);
        assert_eq!(found.bytes(Cause::RocksDbWal), 700);
        assert_eq!(found.bytes(Cause::Files), 50);
        assert_eq!(found.sum(), 1250);
        // What fills up a log's blocks is told apart, the sum stays.
        let bluefs =
            counters(&[("written", 90), ("written_rocksdb_wal", 90), ("bluefs_wal_padding", 50)]);
        let found = Breakdown::of(&bluefs, 0).unwrap();
        assert_eq!(found.bytes(Cause::RocksDbWal), 40);
        assert_eq!(found.bytes(Cause::Padding), 50);
        // Data beyond the clients' is metadata.
        let found = Breakdown::of(&counters(&[("written", 90), ("written_data", 90)]), 60).unwrap();
        assert_eq!((found.bytes(Cause::Data), found.bytes(Cause::Files)), (60, 30));
        let torn = counters(&[("written", 91), ("written_data", 90)]);
        assert!(Breakdown::of(&torn, 60).is_err());
        // A store on threads wrote 64 KiB between the reading of its sum and of its causes: a
        // sample of a run that goes on, no error.
        assert_eq!(Breakdown::in_flight(&torn, 60).sum(), 90);
    }

    #[test]
    fn a_restart_is_noticed() {
        let (old, new) = (counters(&[("written", 5)]), counters(&[("written", 4)]));
        assert!(grown(&old, &new).is_err());
        assert_eq!(grown(&new, &old).unwrap()["written"], 1);
    }
}
