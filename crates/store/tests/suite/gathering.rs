//! How full batches are, and how long the alone wait, on a device whose syncs take time.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use device::BlockDevice;
use device::memory::{Choices, MemoryFile};
use env::{AlignedBuf, BlockFile, Env, LocalFuture, Until};
use store::inkstore::InkStore;
use store::{ObjectStore, Transaction};

use super::common::{block_on, numbered, pg};
use super::contract::made;

const SYNC: Duration = Duration::from_millis(1);
const ROUNDS: u32 = 200;

struct SlowSyncs {
    file: Rc<MemoryFile>,
    env: Env,
    syncs: Cell<u32>,
    /// When the flush of the last durable writes ends.
    flushed: Cell<Duration>,
}

impl BlockFile for SlowSyncs {
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
        let write = self.file.write_until(until, offset, bufs);
        if until == Until::Written {
            return write;
        }
        // One flush serves those that end together, as the kernel has it.
        let now = self.env.now();
        if now >= self.flushed.get() {
            self.syncs.set(self.syncs.get() + 1);
            self.flushed.set(now + SYNC);
        }
        let sleep = self.env.sleep(self.flushed.get() - now);
        Box::pin(async move {
            sleep.await;
            write.await
        })
    }
    fn sync(&self) -> LocalFuture<io::Result<()>> {
        self.syncs.set(self.syncs.get() + 1);
        let (sleep, sync) = (self.env.sleep(SYNC), self.file.sync());
        Box::pin(async move {
            sleep.await;
            sync.await
        })
    }
    fn discard(&self, offset: u64, len: u64) -> LocalFuture<io::Result<()>> {
        self.file.discard(offset, len)
    }
}

/// A store on a device with slow syncs, and one collection in it.
async fn slow_store(env: &Env) -> (Rc<SlowSyncs>, Rc<InkStore>) {
    let file = MemoryFile::new(64 << 20, 4096);
    drop(made(env, &file, 4 << 20).await);
    let slow = Rc::new(SlowSyncs {
        file,
        env: env.clone(),
        syncs: Cell::default(),
        flushed: Cell::default(),
    });
    let store =
        Rc::new(InkStore::mount(env.clone(), BlockDevice::new(slow.clone())).await.unwrap());
    let mut t = Transaction::new();
    t.mkcoll(&pg(0), 0);
    store.submit(t).await.unwrap();
    (slow, store)
}

/// How long one write takes.
async fn one_write(env: &Env, store: &InkStore, object: u32, byte: u8) -> Duration {
    let mut t = Transaction::new();
    t.write(&pg(0), &numbered(object.into()), 0, vec![byte; 4096]);
    let begun = env.now();
    store.submit(t).await.unwrap();
    env.now() - begun
}

/// `writers` that each write again up to `pause` after their answer: transactions for each sync,
/// and the mean time of a transaction.
async fn written(env: Env, writers: u32, pause: Duration) -> (f64, Duration) {
    let (slow, store) = slow_store(&env).await;
    let (before, waited) = (slow.syncs.get(), Rc::new(Cell::new(Duration::ZERO)));
    let tasks: Vec<_> = (0..writers)
        .map(|n| {
            let (env, store, waited) = (env.clone(), store.clone(), waited.clone());
            let mut choices = Choices::new(n.into());
            env.clone().spawn_with_handle(async move {
                for round in 0..ROUNDS {
                    env.sleep(pause * choices.below(100) as u32 / 100).await;
                    let took = one_write(&env, &store, n, round as u8).await;
                    waited.set(waited.get() + took);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await;
    }
    let (ops, syncs) = (writers * ROUNDS, slow.syncs.get() - before);
    (f64::from(ops) / f64::from(syncs), waited.get() / ops)
}

/// Story: with 16 writes in flight a batch held those who sent again first, two or three; the rest
/// waited for its flush and then had one of their own. Two flushes did the work of one, and 16
/// writes cost half as much again of the machine's time as they do in one batch.
#[test]
fn a_batch_waits_for_those_who_were_in_flight() {
    let (a_sync, time) = block_on(|env| written(env, 16, SYNC / 2));
    assert!(a_sync >= 12.0, "{a_sync:.1} transactions a sync");
    assert!(time <= SYNC * 2, "{time:?} a transaction");
}

/// Story: 16 writers who took longer to send again than a batch took were two halves that flushed
/// in turn, and a flush was the better part of what a write cost: waiting longer, once, lets them
/// come together, and the machine's time for a write fell by a fifth.
#[test]
fn a_few_who_came_apart_come_together() {
    let (a_sync, _) = block_on(|env| written(env, 16, SYNC * 3 / 2));
    assert!(a_sync >= 14.0, "{a_sync:.1} transactions a sync");
}

/// Story: with many in flight a batch waited for nine tenths of them, so the client, who sends when
/// it is answered, and the one thread of three OSDs waited for each other in turn: both cores were
/// idle for a fifth of the time. One part of them is computed while the other is flushed.
#[test]
fn many_are_not_waited_for_as_long() {
    let (a_sync, time) = block_on(|env| written(env, 64, SYNC * 4));
    assert!(a_sync <= 24.0, "{a_sync:.1} transactions a sync");
    assert!(time <= SYNC * 7 / 4, "{time:?} a transaction");
}

/// Writes that come at their own times, four while a sync lasts, whether the last was answered or
/// not: there is nobody to wait for.
#[test]
fn who_sends_when_it_likes_is_not_waited_for_with_patience() {
    let time = block_on(|env| async move {
        let (_, store) = slow_store(&env).await;
        let (mut choices, mut writes) = (Choices::new(1), Vec::new());
        for n in 0..4000 {
            env.sleep(SYNC * choices.below(50) as u32 / 100).await;
            let (own, store) = (env.clone(), store.clone());
            let write = async move { one_write(&own, &store, n % 64, n as u8).await };
            writes.push(env.spawn_with_handle(write));
        }
        let count = writes.len() as u32;
        let mut all = Duration::ZERO;
        for write in writes {
            all += write.await;
        }
        all / count
    });
    assert!(time <= SYNC * 9 / 4, "{time:?} a transaction");
}

#[test]
fn alone_nothing_is_waited_for() {
    let (_, time) = block_on(|env| written(env, 1, SYNC / 2));
    assert_eq!(time, SYNC);
}
