//! InkStore tells the device what has become free, where that is wanted: `contract::mounted` wants
//! every block, so all of the suite's transactions, crashes and full devices are with discards.

use std::cell::Cell;
use std::io;
use std::rc::Rc;

use bytes::Bytes;
use device::BlockDevice;
use device::memory::{Choices, MemoryFile};
use env::sync::Notify;
use env::{AlignedBuf, BlockFile, LocalFuture, Until};
use store::inkstore::InkStore;
use store::{ObjectStore, Transaction};

use super::common::{block_on, bytes, numbered, pg};
use super::contract::made;

#[test]
fn a_removed_object_is_given_back_to_the_device() {
    block_on(|env| async move {
        let file = MemoryFile::new(16 << 20, 4096);
        made(&env, &file, 256 << 10).await.close().await.unwrap();
        for (shortest, wanted) in [(None, 0), (Some(64 << 10), 1 << 20), (Some(2 << 20), 0)] {
            let device = BlockDevice::new(file.clone());
            let store = InkStore::mount(env.clone(), device.clone()).await.unwrap();
            store.set_discard(shortest);
            // Many times what the device holds.
            for round in 0..40 {
                let data = bytes(&mut Choices::new(round), 1 << 20);
                let mut t = Transaction::new();
                if store.collections().await.unwrap().is_empty() {
                    t.mkcoll(&pg(0), 0);
                }
                t.write(&pg(0), &numbered(1), 0, data.clone());
                store.submit(t).await.unwrap();
                let read = store.read(&pg(0), &numbered(1), 0, 0).await.unwrap();
                assert!(read.to_contiguous() == data, "round {round}");
                let mut t = Transaction::new();
                t.remove(&pg(0), &numbered(1));
                store.submit(t).await.unwrap();
            }
            assert_eq!(store.fsck(true).await.unwrap().errors, Vec::<String>::new());
            store.close().await.unwrap();
            let discarded = device.ledger().discarded();
            assert!(discarded >= 30 * wanted && (wanted > 0 || discarded == 0), "{discarded}");
        }
    });
}

/// A device that is told of discards and does not answer until it may.
struct Reluctant {
    file: Rc<MemoryFile>,
    answers: Rc<(Cell<bool>, Notify)>,
}

impl BlockFile for Reluctant {
    fn len(&self) -> u64 {
        self.file.len()
    }
    fn block_len(&self) -> u32 {
        self.file.block_len()
    }
    fn read_at(&self, offset: u64, len: usize) -> LocalFuture<io::Result<AlignedBuf>> {
        self.file.read_at(offset, len)
    }
    fn write_until(
        &self,
        until: Until,
        offset: u64,
        bufs: Vec<Bytes>,
    ) -> LocalFuture<io::Result<()>> {
        self.file.write_until(until, offset, bufs)
    }
    fn sync(&self) -> LocalFuture<io::Result<()>> {
        self.file.sync()
    }
    fn discard(&self, offset: u64, len: u64) -> LocalFuture<io::Result<()>> {
        let (file, answers) = (self.file.clone(), self.answers.clone());
        Box::pin(async move {
            answers.1.until(|| answers.0.get()).await;
            file.discard(offset, len).await
        })
    }
}

/// Found by reading: an OSD stopped with `NoSpace` on a nearly empty device. What clients had removed
/// waited to be discarded, all of it, until the last discard had been answered; they went on writing and
/// used up the rest before that.
#[test]
fn what_waits_for_a_slow_discard_is_there_for_writes() {
    block_on(|env| async move {
        let file = MemoryFile::new(16 << 20, 4096);
        made(&env, &file, 256 << 10).await.close().await.unwrap();
        let answers = Rc::new((Cell::new(false), Notify::default()));
        let reluctant = Rc::new(Reluctant { file, answers: answers.clone() });
        let store = InkStore::mount(env.clone(), BlockDevice::new(reluctant)).await.unwrap();
        store.set_discard(Some(64 << 10));
        store.stop_when_full();
        let mut t = Transaction::new();
        t.mkcoll(&pg(0), 0);
        store.submit(t).await.unwrap();
        let data = |round: u64, n| bytes(&mut Choices::new(round * 100 + n), 1 << 20);
        for round in 0..6 {
            // Most of what there is; in the last rounds the device answers.
            for n in 0..11 {
                let mut t = Transaction::new();
                t.write(&pg(0), &numbered(n), 0, data(round, n));
                assert_eq!(store.submit(t).await, Ok(()), "round {round}, {n}");
            }
            for n in 0..11 {
                let read = store.read(&pg(0), &numbered(n), 0, 0).await.unwrap();
                assert!(read.to_contiguous() == data(round, n), "round {round}, {n}");
                let mut t = Transaction::new();
                t.remove(&pg(0), &numbered(n));
                store.submit(t).await.unwrap();
            }
            assert_eq!(store.fsck(true).await.unwrap().errors, Vec::<String>::new());
            if round == 3 {
                answers.0.set(true);
                answers.1.notify_all();
            }
        }
        store.close().await.unwrap();
    });
}
