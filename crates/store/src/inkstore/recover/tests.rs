//! Mounts of stores that a device, a crash or somebody else has changed.

use std::rc::Rc;

use device::faults::{Faults, FaultyFile};
use device::memory::{Choices, MemoryFile};
use env::Env;
use types::crc::crc32c;

use super::*;
use crate::inkstore::InkStore;
use crate::testing::{block_on, numbered, pg};
use crate::{ObjectStore, Transaction};

async fn mounted(env: &Env, file: Rc<MemoryFile>) -> InkStore {
    InkStore::mount(env.clone(), BlockDevice::new(file)).await.unwrap()
}

/// A store with an empty object, the first of the first PG, and a short log.
async fn new_store(env: &Env, len: u64) -> (Rc<MemoryFile>, InkStore) {
    let file = MemoryFile::new(len, 512);
    let options = MkfsOptions { uuid: [7; 16], log_len: Some(64 << 10) };
    InkStore::mkfs(&BlockDevice::new(file.clone()), options).await.unwrap();
    let store = mounted(env, file.clone()).await;
    let mut t = Transaction::new();
    t.mkcoll(&pg(0), 0).touch(&pg(0), &numbered(1));
    store.submit(t).await.unwrap();
    (file, store)
}

/// A batch whose data was lost was dropped, and the one written with its number after the mount did
/// not fit in front of the ring's end. The mount after the next found the dropped one where it
/// had been and took it for the other.
#[test]
fn a_dropped_batch_stays_dropped() {
    block_on(|env| async move {
        let (file, store) = new_store(&env, 8 << 20).await;
        let (cid, oid) = (pg(0), numbered(1));
        let room = |store: &InkStore| {
            let log = &store.inner.core.borrow().log;
            log.len - log.next_pos % log.len
        };
        while room(&store) > 1024 {
            if room(&store) == 24 << 10 {
                // So that no mount writes one.
                store.checkpoint().await.unwrap();
            }
            let mut t = Transaction::new();
            t.setattr(&cid, &oid, "short", room(&store).to_le_bytes().to_vec());
            store.submit(t).await.unwrap();
        }
        let mut t = Transaction::new();
        t.write(&cid, &oid, 0, vec![1; 4096]);
        store.submit(t).await.unwrap();
        let lost = store.inner.core.borrow().state.find(&cid, &oid).unwrap().ptr(0).block;
        assert_eq!(room(&store), 512);
        let file = file.kill_image();
        file.rot(u64::from(lost) * BLOCK_LEN, 1);

        let store = mounted(&env, file.clone()).await;
        assert_eq!(room(&store), 1024, "the write was dropped");
        let mut t = Transaction::new();
        t.setattr(&cid, &oid, "long", vec![2; 2000]);
        store.submit(t).await.unwrap();
        assert!(room(&store) > 60 << 10);
        let file = file.kill_image();
        for _ in 0..3 {
            let store = mounted(&env, file.clone()).await;
            assert_eq!(store.stat(&cid, &oid).await.unwrap().size, 0);
            assert_eq!(store.getattr(&cid, &oid, b"long").await.unwrap(), vec![2; 2000]);
        }
    });
}

/// The newest superblock was damaged after a kill: the store went back to what the one before it knew, an empty
/// store here, and said that it was whole.
#[test]
fn a_lost_superblock_does_not_take_the_store_back() {
    block_on(|env| async move {
        let (file, store) = new_store(&env, 8 << 20).await;
        let newest = store.inner.core.borrow().superblock.offset();
        let file = file.kill_image();
        for copy in 0..2 {
            file.rot(newest + copy * BLOCK_LEN, 1);
        }
        let refused = InkStore::mount(env.clone(), BlockDevice::new(file)).await;
        assert!(matches!(refused, Err(StoreError::Format(_))));
    });
}

/// A sector in a part of the log that holds nothing made a store that could not be opened. Where the next batch may
/// be, it still does: what cannot be read may have been acknowledged.
#[test]
fn what_nobody_needs_of_the_log_need_not_be_readable() {
    block_on(|env| async move {
        let (file, store) = new_store(&env, 8 << 20).await;
        let (cid, oid) = (pg(0), numbered(1));
        let place = |store: &InkStore| {
            let log = &store.inner.core.borrow().log;
            (log.start, log.offset(log.next_pos), log.len)
        };
        let mount = async |file: &MemoryFile, bad: u64| {
            let faults = Rc::new(Faults::default());
            faults.unreadable.borrow_mut().push(bad..bad + 512);
            let faulty = FaultyFile::new(file.kill_image(), faults);
            let store = InkStore::mount(env.clone(), BlockDevice::new(Rc::new(faulty))).await?;
            store.getattr(&cid, &oid, b"n").await
        };
        for n in 1..200_u64 {
            let mut t = Transaction::new();
            t.setattr(&cid, &oid, "n", n.to_le_bytes().to_vec());
            store.submit(t).await.unwrap();
            if n % 7 == 0 {
                // So that nothing in front of this is needed.
                store.checkpoint().await.unwrap();
            }
            let (start, next, len) = place(&store);
            let read = Ok(Bytes::copy_from_slice(&n.to_le_bytes()));
            if start + len - next > len / 4 {
                assert_eq!(mount(&file, next + 512).await, read, "{n}");
                assert_eq!(mount(&file, next + 4096).await, read, "{n}");
                if n % 7 == 0 {
                    assert_eq!(mount(&file, start).await, read, "{n}");
                }
            }
            let refused = mount(&file, next).await.unwrap_err();
            assert!(
                matches!(refused, StoreError::Unreadable { device_offset, .. } if device_offset == next),
                "{refused:?}"
            );
            if start + len - next < len / 4 {
                let refused = mount(&file, start).await.unwrap_err();
                assert!(matches!(refused, StoreError::Unreadable { .. }), "{refused:?}");
            }
        }
    });
}

/// Values that looked like the beginnings of batches as long as the log made a mount read the log for each of them.
#[test]
fn what_looks_like_a_batch_is_read_once() {
    block_on(|env| async move {
        let file = MemoryFile::new(64 << 20, 512);
        let device = BlockDevice::new(file.clone());
        let log_len = 16 << 20;
        let options = MkfsOptions { uuid: [7; 16], log_len: Some(log_len) };
        InkStore::mkfs(&device, options).await.unwrap();
        let store = mounted(&env, file.clone()).await;
        let mut t = Transaction::new();
        t.mkcoll(&pg(0), 0);
        store.submit(t).await.unwrap();
        let behind = {
            let log = &store.inner.core.borrow().log;
            log.offset(log.next_pos)
        };
        for n in 1..40 {
            let mut sector = AlignedBuf::zeroed(512);
            let header = BatchHeader {
                seq: n,
                pos: 0,
                epoch: 1,
                durable: 0,
                payload_len: log_len as u32 / 2,
                transactions: 1,
                spilled: false,
                data_hash: 0,
            };
            header.seal(&[7; 16], &mut sector);
            let piece = Piece::new(sector.freeze(), WriteCause::Journal);
            device.write(behind + n * 512, vec![piece]).await.unwrap();
        }
        device.sync().await.unwrap();
        let device = BlockDevice::new(file.kill_image());
        let store = InkStore::mount(env, device.clone()).await.unwrap();
        assert_eq!(store.collections().await.unwrap(), [pg(0)]);
        let read = device.ledger().read();
        assert!(read < log_len, "{read} bytes read");
    });
}

/// Ends with its own checksum from `seed`.
fn self_checked(n: u32, len: usize, seed: u32) -> Vec<u8> {
    let mut bytes = vec![0; len - 4];
    bytes[..4].copy_from_slice(&n.to_le_bytes());
    bytes[len / 2] = n as u8;
    let crc = crc32c(seed, &bytes);
    bytes.extend(crc.to_le_bytes());
    bytes
}

fn page_of_a_database(n: u32) -> Vec<u8> {
    let mut bytes = self_checked(n, 4096, !0);
    bytes[4092..].iter_mut().for_each(|b| *b = !*b);
    bytes
}

fn superblock_of_ext4(n: u32) -> Vec<u8> {
    [vec![0; 1024], self_checked(n, 1024, !0), vec![0; 2048]].concat()
}

/// Contents of which every one, of at most a block, has the same checksum.
const ALIKE: [fn(u32) -> Vec<u8>; 5] = [
    // OSD maps, short and long.
    |n| self_checked(n, 3000 + n as usize, !0),
    |n| self_checked(n, 4096, !0),
    page_of_a_database,
    superblock_of_ext4,
    // A block of an extent tree: the seed is its inode's.
    |n| self_checked(n, 4096, 0x1234_5678),
];

/// Life 52007210: an OSD came up with a map that was 769 epochs old where the newest should have been, and split its
/// placement groups as that said. The process had been killed when the newest map's record had reached the
/// disk and the map itself had not. The mount compares what a last batch wrote with its checksums; but a map ends with its
/// own crc32c, so that the block has the same checksum whatever is in it, and an old map was there. Two such checksums were
/// known then, and what had them was written before its record; those of an image's ext4 are others, and one image got
/// another's superblock.
#[test]
fn data_whose_checksum_tells_nothing_is_told_from_what_was_there() {
    block_on(|env| async move {
        for (kind, content) in ALIKE.into_iter().enumerate() {
            let (file, store) = new_store(&env, 1 << 20).await;
            let (cid, oid) = (pg(0), numbered(1));
            let checksum = |n| {
                let mut block = content(n);
                block.resize(4096, 0);
                data_crc(&block)
            };
            assert_eq!(checksum(1), checksum(2));
            let write = async |n: u32| {
                let mut t = Transaction::new();
                t.remove(&cid, &oid).write(&cid, &oid, 0, content(n));
                t.setattr(&cid, &oid, "n", n.to_le_bytes().to_vec());
                store.submit(t).await.unwrap();
            };
            // Until every block has held one.
            for n in 1..300 {
                write(n).await;
            }
            let images = Rc::new(std::cell::RefCell::new(Vec::new()));
            let taken = images.clone();
            file.set_hook(move |file| {
                let mut taken = taken.borrow_mut();
                for _ in 0..3 {
                    let seed = taken.len() as u64;
                    taken.push(file.crash_image(&mut Choices::new(seed)));
                }
            });
            for n in 300..360 {
                write(n).await;
            }
            let images = std::mem::take(&mut *images.borrow_mut());
            assert!(images.len() > 100, "{}", images.len());
            for image in images {
                let store = mounted(&env, image).await;
                let n = store.getattr(&cid, &oid, b"n").await.unwrap();
                let n = u32::from_le_bytes(n[..].try_into().unwrap());
                let found = store.read(&cid, &oid, 0, 0).await.unwrap().to_contiguous();
                assert!(found[..] == content(n)[..], "{n} of kind {kind}");
            }
        }
    });
}

/// Life 52100915: a device read wrong now and then. The store was mounted after a kill, did not find the last batch of its
/// log where it was, and left it out; it had been acknowledged. (Of shards a write is undone that one of them lacks.)
#[test]
fn the_end_of_the_log_is_read_twice() {
    block_on(|env| async move {
        let (file, store) = new_store(&env, 8 << 20).await;
        let (cid, oid) = (pg(0), numbered(1));
        let (log, pos) = {
            let log = &store.inner.core.borrow().log;
            (log.start, log.next_pos)
        };
        let mut t = Transaction::new();
        t.write(&cid, &oid, 0, vec![1; 4096]);
        store.submit(t).await.unwrap();
        let data = store.inner.core.borrow().state.find(&cid, &oid).unwrap().ptr(0).block;
        let file = file.kill_image();
        for at in [log + pos + 70, u64::from(data) * BLOCK_LEN + 9] {
            let faults = Rc::new(Faults::default());
            faults.flipped_once.borrow_mut().push((at, 4));
            let device = BlockDevice::new(Rc::new(FaultyFile::new(file.kill_image(), faults)));
            let refused = InkStore::mount(env.clone(), device).await;
            assert!(matches!(refused, Err(StoreError::Format(UNSTEADY))));
        }
        let store = mounted(&env, file).await;
        assert_eq!(store.stat(&cid, &oid).await.unwrap().size, 4096);
    });
}

/// A store that an earlier version wrote last was mounted by one that compares data by a hash: that there is none is not
/// that it is another.
#[test]
fn a_batch_without_a_hash_is_compared_by_its_checksums() {
    block_on(|env| async move {
        let (file, store) = new_store(&env, 8 << 20).await;
        let (cid, oid) = (pg(0), numbered(1));
        let at = {
            let log = &store.inner.core.borrow().log;
            log.offset(log.next_pos)
        };
        let mut t = Transaction::new();
        t.write(&cid, &oid, 0, vec![1; 4096]);
        store.submit(t).await.unwrap();
        let data = store.inner.core.borrow().state.find(&cid, &oid).unwrap().ptr(0).block;
        let file = file.kill_image();
        let device = BlockDevice::new(file.clone());
        let mut sector = device.read(at, 512).await.unwrap();
        let mut header = BatchHeader::decode(&sector).unwrap();
        let len = BATCH_HEADER_LEN + header.payload_len as usize;
        assert_ne!(header.data_hash, 0);
        header.data_hash = 0;
        header.seal(&[7; 16], &mut sector[..len]);
        device.write(at, vec![Piece::new(sector.freeze(), WriteCause::Journal)]).await.unwrap();
        device.sync().await.unwrap();
        for (rot, size) in [(false, 4096), (true, 0)] {
            let file = file.kill_image();
            if rot {
                file.rot(u64::from(data) * BLOCK_LEN, 1);
            }
            let store = mounted(&env, file).await;
            assert_eq!(store.stat(&cid, &oid).await.unwrap().size, size);
        }
    });
}

/// A sector that could not be read, under what was written last before a kill, kept the whole store from being opened,
/// and nothing said where it was.
#[test]
fn an_unreadable_block_of_the_last_batch_fails_its_reads_only() {
    block_on(|env| async move {
        let (file, store) = new_store(&env, 8 << 20).await;
        let (cid, oid) = (pg(0), numbered(1));
        let mut t = Transaction::new();
        t.write(&cid, &oid, 0, [[1; 4096], [2; 4096], [3; 4096]].concat());
        store.submit(t).await.unwrap();
        let block = |at| {
            let core = store.inner.core.borrow();
            u64::from(core.state.find(&cid, &oid).unwrap().ptr(at).block) * BLOCK_LEN
        };
        let faults = Rc::new(Faults::default());
        faults.unreadable.borrow_mut().push(block(1)..block(1) + 512);
        let mount = async |file: &MemoryFile| {
            let device = FaultyFile::new(file.kill_image(), faults.clone());
            InkStore::mount(env.clone(), BlockDevice::new(Rc::new(device))).await.unwrap()
        };
        let store = mount(&file).await;
        for (at, readable) in [(0, true), (1, false), (2, true)] {
            let read = store.read(&cid, &oid, at * BLOCK_LEN, BLOCK_LEN).await;
            match readable {
                true => assert_eq!(read.unwrap().to_contiguous(), vec![at as u8 + 1; 4096]),
                false => assert!(matches!(read, Err(StoreError::Device(_))), "{read:?}"),
            }
        }
        // The others still say whether the batch was ended.
        let torn = file.kill_image();
        torn.rot(block(2), 1);
        assert_eq!(mount(&torn).await.stat(&cid, &oid).await.unwrap().size, 0);
    });
}

/// A store made for sectors of 512 bytes was refused on a device that was taken for one of 4096, by a message with neither number.
#[test]
fn a_store_of_smaller_sectors_says_so() {
    block_on(|env| async move {
        let (file, _) = new_store(&env, 1 << 20).await;
        let image = BlockDevice::new(file).read(0, 1 << 20).await.unwrap();
        let device = BlockDevice::new(MemoryFile::new(1 << 20, 4096));
        device.write(0, vec![Piece::new(image.freeze(), WriteCause::Data)]).await.unwrap();
        let refused = InkStore::mount(env, device).await.unwrap_err();
        assert_eq!(refused, StoreError::Sectors { store_len: 512, device_len: 4096 });
        assert_eq!(
            refused.to_string(),
            "the store was made for sectors of 512 bytes, the device is taken for one of 4096"
        );
    });
}
