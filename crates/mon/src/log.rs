//! The replicated log under the monitor: batches of database changes, committed in order.
//!
//! The core hands a batch to [`Log::propose`] and goes on when it is committed; whatever it told
//! anybody waits for that. One proposal is under way at a time. A monitor's log is replicated
//! (`replica.rs`); [`LocalLog`] is the database alone, for whoever runs a core without a daemon.

use std::cell::Cell;
use std::rc::Rc;

use bytes::Bytes;
use env::LocalFuture;
use store::{Kv, KvBatch, KvError};

use crate::layout;

/// Why a batch was not committed, as far as is known here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogError {
    /// The database failed: nothing may be acknowledged any more.
    Kv(KvError),
    /// This monitor does not lead (any more). The batch may be committed all the same.
    NotLeader,
}

impl std::fmt::Display for LogError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LogError::Kv(error) => error.fmt(f),
            LogError::NotLeader => f.write_str("another monitor leads"),
        }
    }
}

/// Commits batches, in the order proposed.
pub trait Log {
    /// Completes when the batch is durable wherever it must be; its version is one above the
    /// last.
    fn propose(&self, batch: KvBatch) -> LocalFuture<Result<u64, LogError>>;
    /// Version of the last committed batch; 0 if there is none.
    fn last_committed(&self) -> u64;
}

/// The log of a core that is alone.
pub struct LocalLog {
    kv: Rc<dyn Kv>,
    last: Cell<u64>,
}

impl LocalLog {
    /// The log of this database.
    pub fn new(kv: Rc<dyn Kv>) -> Result<LocalLog, KvError> {
        let last = layout::get_u64(&*kv, layout::PAXOS, "last_committed")?.unwrap_or(0);
        Ok(LocalLog { kv, last: Cell::new(last) })
    }

    fn commit(&self, mut batch: KvBatch) -> Result<u64, KvError> {
        let version = self.last.get() + 1;
        batch.put(
            layout::key(layout::PAXOS, "last_committed"),
            Bytes::copy_from_slice(&version.to_le_bytes()),
        );
        self.kv.commit(batch)?;
        self.last.set(version);
        Ok(version)
    }
}

impl Log for LocalLog {
    fn propose(&self, batch: KvBatch) -> LocalFuture<Result<u64, LogError>> {
        let result = self.commit(batch).map_err(LogError::Kv);
        Box::pin(async move { result })
    }

    fn last_committed(&self) -> u64 {
        self.last.get()
    }
}
