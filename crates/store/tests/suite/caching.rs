//! InkStore's cache of data: what it saves the device, and that nobody sees anything but what was
//! written last.

use std::rc::Rc;

use bytes::Bytes;
use device::BlockDevice;
use device::memory::{Choices, MemoryFile};
use env::Env;
use store::inkstore::InkStore;
use store::{CollId, ObjectStore, StoreError, Transaction};
use types::crc::crc32c;

use super::common::{all_of, block_on, bytes, numbered, pg};
use super::contract::made;

const LEN: u64 = 256 << 10;
/// Small: places are used again and again.
const DEVICE_LEN: u64 = 3 << 20;

/// A store without a cache whose first object is `LEN` bytes.
async fn with_object(env: &Env) -> (Rc<MemoryFile>, BlockDevice, InkStore, Vec<u8>) {
    let file = MemoryFile::new(DEVICE_LEN, 4096);
    let store = made(env, &file, 256 << 10).await;
    let data = bytes(&mut Choices::new(5), LEN);
    let mut t = Transaction::new();
    t.mkcoll(&pg(0), 0);
    t.write(&pg(0), &numbered(1), 0, data.clone());
    store.submit(t).await.unwrap();
    store.close().await.unwrap();
    drop(store);
    let device = BlockDevice::new(file.clone());
    let store = InkStore::mount(env.clone(), device.clone()).await.unwrap();
    (file, device, store, data.to_vec())
}

async fn read(store: &InkStore, offset: u64, len: u64) -> Vec<u8> {
    all_of(&store.read(&pg(0), &numbered(1), offset, len).await.unwrap()).unwrap().to_vec()
}

#[test]
fn what_was_read_is_read_once() {
    block_on(|env| async move {
        let (_, device, store, data) = with_object(&env).await;
        store.set_cache_size(1 << 20);
        assert_eq!(read(&store, 8192, 100).await, data[8192..8292]);
        let reads = device.ledger().reads();
        for at in [8192, 9000, 12000] {
            assert_eq!(read(&store, at, 288).await, data[at as usize..][..288]);
        }
        assert_eq!(device.ledger().reads(), reads);
        // Without a cache each read is one of the device.
        store.set_cache_size(0);
        read(&store, 8192, 100).await;
        read(&store, 8192, 100).await;
        assert_eq!(device.ledger().reads(), reads + 2);
    });
}

#[test]
fn who_goes_through_an_object_finds_it_fetched() {
    block_on(|env| async move {
        let (_, device, store, data) = with_object(&env).await;
        store.set_cache_size(1 << 20);
        let reads = device.ledger().reads();
        for at in (0..LEN).step_by(4096) {
            assert_eq!(read(&store, at, 4096).await, data[at as usize..][..4096]);
            // What is fetched comes before the next read.
            env.sleep(std::time::Duration::from_millis(10)).await;
        }
        let reads = device.ledger().reads() - reads;
        assert!(reads < LEN / 4096 / 4, "{reads} reads for {} blocks", LEN / 4096);
    });
}

/// The checksums by which blocks were verified come along, so that who sends them need take none.
#[test]
fn what_is_read_has_its_checksums() {
    block_on(|env| async move {
        let (_, _, store, data) = with_object(&env).await;
        store.set_cache_size(1 << 20);
        // Of the device, then kept; then more than one block, and parts of blocks.
        for (at, len) in [(8192, 4096), (8192, 4096), (4096, 40_960), (5000, 9000), (8192, 5000)] {
            let read = store.read(&pg(0), &numbered(1), at, len).await.unwrap();
            let sums = read.sums().unwrap();
            let wanted = &data[at as usize..][..len as usize];
            assert_eq!(
                sums.crc32c(0, &read.pieces()[0]),
                Some(crc32c(0, &wanted[..read.pieces()[0].len()]))
            );
            assert_eq!(read.crc32c(!0), crc32c(!0, wanted));
        }
    });
}

/// A block of random bytes whose checksum is the same each time: the last four make up for the others.
fn same_checksum(choices: &mut Choices) -> Bytes {
    let mut block = bytes(choices, 4096).to_vec();
    let before = crc32c(u32::MAX, &block[..4092]);
    block[4092..].copy_from_slice(&(before ^ 0x1234_5678).to_le_bytes());
    block.into()
}

/// A block that is given back must be forgotten: its checksum, with which it is kept, tells what comes
/// after it at the same place from it only as long as the two differ.
#[test]
fn what_is_written_again_is_read_anew() {
    block_on(|env| async move {
        let (_, _, store, mut data) = with_object(&env).await;
        store.set_cache_size(1 << 20);
        let mut choices = Choices::new(11);
        let one = [same_checksum(&mut choices), same_checksum(&mut choices)];
        assert!(one[0] != one[1] && crc32c(u32::MAX, &one[0]) == crc32c(u32::MAX, &one[1]));
        for _ in 0..3000 {
            let at = choices.below(LEN / 4096) * 4096;
            let new = same_checksum(&mut choices);
            data[at as usize..][..4096].copy_from_slice(&new);
            let mut t = Transaction::new();
            t.write(&pg(0), &numbered(1), at, new);
            store.submit(t).await.unwrap();
            let (from, len) = (choices.below(LEN), 1 + choices.below(20_000));
            let end = LEN.min(from + len);
            assert!(read(&store, from, len).await == data[from as usize..end as usize]);
        }
        assert!(store.counters().iter().any(|c| c.name == "cache_hit" && c.value > 0));
    });
}

/// A deep scrub reads what the device holds: rot under a block that is kept is found, though readers
/// still get what was written.
#[test]
fn rot_under_a_kept_block_is_found_by_a_scrub() {
    block_on(|env| async move {
        let (file, _, store, data) = with_object(&env).await;
        store.set_cache_size(1 << 20);
        assert_eq!(read(&store, 0, 4096).await, data[..4096]);
        for block in 1..DEVICE_LEN / 4096 {
            file.rot(block * 4096 + 7, 1);
        }
        assert_eq!(read(&store, 0, 4096).await, data[..4096]);
        let cid: CollId = pg(0);
        let scrubbed = store.read_device(&cid, &numbered(1), 0, 4096).await;
        assert!(matches!(scrubbed, Err(StoreError::Checksum { .. })), "{scrubbed:?}");
        // What could not be verified is not kept.
        for _ in 0..2 {
            let other = store.read(&cid, &numbered(1), 8192, 4096).await;
            assert!(matches!(other, Err(StoreError::Checksum { .. })));
        }
    });
}
