//! A device that has become larger.

use std::cell::RefCell;
use std::rc::Rc;

use device::BlockDevice;
use device::memory::{Choices, MemoryFile};
use env::Env;
use store::inkstore::{InkStore, MkfsOptions};
use store::{ObjectStore, StoreError, Transaction};

use super::common::{block_on, numbered, pg};

async fn mounted(env: &Env, file: Rc<MemoryFile>) -> InkStore {
    InkStore::mount(env.clone(), BlockDevice::new(file)).await.unwrap()
}

/// A store kept the length that its device had when it was made: one that was full was not helped by a larger device.
#[test]
fn a_store_grows_with_its_device() {
    const LEN: u64 = 8 << 20;
    const GROWN_LEN: u64 = 2 * LEN;
    async fn write(store: &InkStore, n: u64) -> Result<(), StoreError> {
        let mut t = Transaction::new();
        t.write(&pg(0), &numbered(n), 0, vec![n as u8; 64 << 10]);
        store.submit(t).await
    }
    async fn check(store: &InkStore, objects: u64) {
        for n in 1..objects {
            let read = store.read(&pg(0), &numbered(n), 0, 0).await.unwrap();
            assert_eq!(read.to_contiguous(), vec![n as u8; 64 << 10]);
        }
        assert_eq!(store.fsck(true).await.unwrap().errors, Vec::<String>::new());
    }
    block_on(|env| async move {
        let file = MemoryFile::new(LEN, 512);
        let options = MkfsOptions { uuid: [7; 16], log_len: Some(64 << 10) };
        InkStore::mkfs(&BlockDevice::new(file.clone()), options).await.unwrap();
        let store = mounted(&env, file.clone()).await;
        let mut t = Transaction::new();
        t.mkcoll(&pg(0), 0);
        store.submit(t).await.unwrap();
        let mut n = 1;
        while write(&store, n).await.is_ok() {
            n += 1;
        }
        let before = store.statfs().await.unwrap();
        // A part of a block at the end does not count.
        let grown = file.image_of_len(GROWN_LEN + 512);
        let images = Rc::new(RefCell::new(Vec::new()));
        let taken = images.clone();
        grown.set_hook(move |file| {
            let mut taken = taken.borrow_mut();
            let seed = taken.len() as u64;
            taken.push(file.crash_image(&mut Choices::new(seed)));
        });
        let store = mounted(&env, grown.clone()).await;
        let after = store.statfs().await.unwrap();
        assert_eq!((before.total, after.total), (LEN, GROWN_LEN));
        assert!(after.available > before.available + LEN / 4 * 3, "{after:?}");
        let full = n;
        while write(&store, n).await.is_ok() {
            n += 1;
        }
        assert!(n - full > LEN / 4 * 3 / (64 << 10), "{full} {n}");
        assert_eq!(store.device().len(), GROWN_LEN + 512);
        check(&store, n).await;
        for image in images.take() {
            check(&mounted(&env, image).await, full).await;
        }
        store.close().await.unwrap();
        let shrunk = InkStore::mount(env.clone(), BlockDevice::new(grown.image_of_len(LEN)));
        let refused = shrunk.await.unwrap_err();
        assert_eq!(refused, StoreError::Shrunk { store_len: GROWN_LEN, device_len: LEN });
        assert_eq!(refused.to_string(), "the device has 8388608 bytes, the store on it 16777216");
        check(&mounted(&env, grown).await, n).await;
    });
}
