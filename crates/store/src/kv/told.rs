//! What a database tells, in the words of stores: its failures and its counters.

use super::{KvError, KvWritten};
use crate::{StoreCounter, StoreError};

/// A database's failure in the contract's words.
pub(crate) fn storage(e: KvError) -> StoreError {
    match e {
        KvError::Corrupt(what) => {
            tracing::error!(what, "the database is damaged");
            StoreError::Checksum { device_offset: u64::MAX }
        }
        KvError::NoSpace(what) => {
            tracing::error!(what, "the database has no space");
            StoreError::Device(std::io::ErrorKind::StorageFull.into())
        }
        KvError::Storage(what) => {
            tracing::error!(what, "the database failed");
            StoreError::Device(std::io::ErrorKind::Other.into())
        }
    }
}

/// A database's bytes by cause as counters.
pub(crate) fn written_counters(written: &KvWritten) -> Vec<StoreCounter> {
    let causes = [
        ("written_rocksdb_wal", written.wal),
        ("written_rocksdb", written.flush),
        ("written_compaction", written.compaction),
        ("written_manifest", written.manifest),
        ("written_other", written.other),
        ("written", written.total()),
        ("read", written.read),
    ];
    let mut counters: Vec<StoreCounter> = causes
        .into_iter()
        .map(|(name, value)| StoreCounter { name: name.to_owned(), is_bytes: true, value })
        .collect();
    counters.push(StoreCounter { name: "syncs".to_owned(), is_bytes: false, value: written.syncs });
    counters
}
