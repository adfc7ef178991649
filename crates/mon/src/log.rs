//! The replicated log under the monitor: batches of database changes, committed in order.
//!
//! The core hands a batch to [`Log::propose`] and goes on when it is committed; whatever it told
//! anybody waits for that. One proposal is under way at a time. With one monitor the log is the
//! database itself ([`LocalLog`]); a quorum puts consensus behind the same trait.

use std::cell::Cell;
use std::rc::Rc;

use bytes::Bytes;
use env::LocalFuture;
use store::{Kv, KvBatch, KvError};

use crate::layout;

/// Commits batches, in the order proposed.
pub trait Log {
    /// Completes when the batch is durable wherever it must be; its version is one above the
    /// last. After an error nothing may be acknowledged any more.
    fn propose(&self, batch: KvBatch) -> LocalFuture<Result<u64, KvError>>;
    /// Version of the last committed batch; 0 if there is none.
    fn last_committed(&self) -> u64;
}

/// The log of a monitor that is alone.
pub struct LocalLog {
    kv: Rc<dyn Kv>,
    last: Cell<u64>,
}

impl LocalLog {
    /// The log of this database.
    pub fn new(kv: Rc<dyn Kv>) -> Result<LocalLog, KvError> {
        let last = layout::get_u64(&*kv, layout::PAXOS, "last_committed")?.unwrap_or(0);
        Ok(LocalLog {
            kv,
            last: Cell::new(last),
        })
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
    fn propose(&self, batch: KvBatch) -> LocalFuture<Result<u64, KvError>> {
        let result = self.commit(batch);
        Box::pin(async move { result })
    }

    fn last_committed(&self) -> u64 {
        self.last.get()
    }
}
