//! InkStore tells the device what has become free, where that is wanted: `contract::mounted` wants
//! every block, so all of the suite's transactions, crashes and full devices are with discards.

use device::BlockDevice;
use device::memory::{Choices, MemoryFile};

use super::contract::made;
use super::driver::block_on;
use super::workload::{bytes, numbered, pg};
use crate::inkstore::InkStore;
use crate::{ObjectStore, Transaction};

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
