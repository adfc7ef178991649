//! [`Kv`] on redb, over a file of the environment.
//!
//! One table. A batch is one redb transaction with immediate durability: one sync of the file by
//! its two-phase or checksummed commit, so a crash leaves the batch whole or absent. After a
//! failed write redb refuses every later one (`PreviousIo`), as it must.

use std::fmt;
use std::io;
use std::path::Path;

use bytes::Bytes;
use env::{Env, SyncFile};
use redb::{
    Database, Durability, ReadableDatabase, ReadableTableMetadata, StorageBackend, TableDefinition,
};

use super::{Direction, Kv, KvBatch, KvError, KvOp, Visit, bounds, is_empty_range};

const TABLE: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("kv");

/// Cache of redb's pages in bytes. A monitor's working set is its latest maps.
const CACHE_LEN: usize = 8 << 20;

/// A database in one file.
pub struct RedbKv {
    db: Database,
}

impl fmt::Debug for RedbKv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RedbKv")
    }
}

impl RedbKv {
    /// Opens the database at `path`, creating it if there is none.
    pub fn open(env: &Env, path: &Path) -> Result<RedbKv, KvError> {
        let file = env.open_sync(path).map_err(|e| KvError::Storage(e.to_string()))?;
        RedbKv::on(file)
    }

    /// Opens the database in `file`, creating it if the file is empty.
    pub fn on(file: Box<dyn SyncFile>) -> Result<RedbKv, KvError> {
        let db = Database::builder()
            .set_cache_size(CACHE_LEN)
            .create_with_backend(Backend(file))
            .map_err(redb::Error::from)?;
        // Later reads rely on the table being there.
        let txn = db.begin_write().map_err(redb::Error::from)?;
        txn.open_table(TABLE).map_err(redb::Error::from)?;
        txn.commit().map_err(redb::Error::from)?;
        Ok(RedbKv { db })
    }

    fn table(&self) -> Result<redb::ReadOnlyTable<&'static [u8], &'static [u8]>, redb::Error> {
        Ok(self.db.begin_read()?.open_table(TABLE)?)
    }

    fn show(
        &self,
        start: &[u8],
        end: &[u8],
        direction: Direction,
        visit: Visit<'_>,
    ) -> Result<(), redb::Error> {
        let table = self.table()?;
        let mut entries = table.range::<&[u8]>(bounds(start, end))?;
        while let Some(entry) = match direction {
            Direction::Forwards => entries.next(),
            Direction::Backwards => entries.next_back(),
        } {
            let (key, value) = entry?;
            if !visit(key.value(), value.value()) {
                break;
            }
        }
        Ok(())
    }

    fn write(&self, batch: KvBatch, durability: Durability) -> Result<(), redb::Error> {
        let mut txn = self.db.begin_write()?;
        let none = env::mutant("mon-early");
        let durability = if none { Durability::None } else { durability };
        txn.set_durability(durability).map_err(|e| redb::Error::Io(std::io::Error::other(e)))?;
        {
            let mut table = txn.open_table(TABLE)?;
            for op in &batch.ops {
                match op {
                    KvOp::Put(key, value) => {
                        table.insert(&key[..], &value[..])?;
                    }
                    KvOp::Delete(key) => {
                        table.remove(&key[..])?;
                    }
                    KvOp::DeleteRange(start, end) if is_empty_range(start, end) => {}
                    KvOp::DeleteRange(start, end) => {
                        table.retain_in::<&[u8], _>(bounds(start, end), |_, _| false)?;
                    }
                }
            }
        }
        txn.commit()?;
        Ok(())
    }
}

impl Kv for RedbKv {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, KvError> {
        let get = || -> Result<_, redb::Error> {
            Ok(self.table()?.get(key)?.map(|v| Bytes::copy_from_slice(v.value())))
        };
        Ok(get()?)
    }

    fn scan(
        &self,
        start: &[u8],
        end: &[u8],
        direction: Direction,
        visit: Visit<'_>,
    ) -> Result<(), KvError> {
        if is_empty_range(start, end) {
            return Ok(());
        }
        Ok(self.show(start, end, direction, visit)?)
    }

    fn commit(&self, batch: KvBatch) -> Result<(), KvError> {
        Ok(self.write(batch, Durability::Immediate)?)
    }

    fn commit_later(&self, batch: KvBatch) -> Result<(), KvError> {
        Ok(self.write(batch, Durability::None)?)
    }

    fn stored_bytes(&self) -> Result<u64, KvError> {
        let stats = || -> Result<_, redb::Error> {
            let stats = self.table()?.stats()?;
            Ok(stats.stored_bytes() + stats.metadata_bytes() + stats.fragmented_bytes())
        };
        Ok(stats()?)
    }
}

impl From<redb::Error> for KvError {
    fn from(e: redb::Error) -> KvError {
        match e {
            redb::Error::Corrupted(what) => KvError::Corrupt(what),
            e => KvError::Storage(e.to_string()),
        }
    }
}

/// The environment's file as redb wants it.
#[derive(Debug)]
struct Backend(Box<dyn SyncFile>);

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, out)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.0.sync()
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_at(offset, data)
    }
}
