//! Whether all keys belong together.
//!
//! A mount looks at none of them. What no object names (stripes and omaps left behind) takes space and
//! does no harm: a repair removes it. What an object names and is not there is lost.

use std::collections::BTreeMap;

use bytes::Bytes;
use denc::Denc;

use super::format::{Onode, Prefix};
use super::{Core, Totals};
use crate::keyed::decoded;
use crate::keyed::keys::{behind, object_of, totals_key};
use crate::kv::{Direction, KvBatch, storage};
use crate::object_key::{COLLECTION_KEY_LEN, parse_collection_key};
use crate::{Fsck, FsckOptions, StoreError};

/// Most keys deleted in one batch.
const BATCH_MAX: usize = 1000;

/// What is known of an object: where its data is.
struct Known {
    name: String,
    onode: Onode,
    stripes_left: u64,
}

fn number(key: &[u8], at: usize) -> Option<u64> {
    let bytes = key.get(at..at + 8)?;
    bytes.try_into().ok().map(u64::from_be_bytes)
}

impl Core {
    fn each(&self, prefix: Prefix, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), StoreError> {
        let start = prefix.key();
        let scanned = self.kv.scan(&start, &behind(&start), Direction::Forwards, &mut |k, v| {
            visit(k, v);
            true
        });
        scanned.map_err(storage)
    }

    /// Compares all keys with each other. Bound: the memory of all onodes.
    pub(super) fn check_keys(&self, options: FsckOptions) -> Result<Fsck, StoreError> {
        let mut report = Fsck::default();
        let (mut objects, mut omaps, mut orphans) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        // Objects whose numbers nobody knows: their content looks as if it belonged to none.
        let mut unread = 0;
        let mut totals = Totals::default();
        self.each(Prefix::Onode, &mut |key, value| {
            let cid = key.get(2..2 + COLLECTION_KEY_LEN).and_then(parse_collection_key);
            let (Some(cid), Some(oid)) = (cid, object_of(key)) else {
                unread += 1;
                return report.error(format!("{}: an onode's key that names nothing", hex(key)));
            };
            let name = format!("{cid} {oid}");
            let Ok(onode) = Onode::from_bytes_exact(&Bytes::copy_from_slice(value)) else {
                unread += 1;
                return report.error(format!("{name}: its onode does not decode"));
            };
            totals.data += onode.data_len();
            totals.last_nid = totals.last_nid.max(onode.nid).max(onode.omap_head);
            if onode.omap_head != 0 && omaps.insert(onode.omap_head, ()).is_some() {
                report.error(format!("{name}: another object has its omap's number"));
            }
            let stripes_left = onode.present().count() as u64;
            let nid = onode.nid;
            if objects.insert(nid, Known { name, onode, stripes_left }).is_some() {
                report.error(format!("two objects have the number {nid}"));
            }
        })?;
        self.each(Prefix::Data, &mut |key, value| {
            let whose = number(key, 2).and_then(|nid| objects.get_mut(&nid));
            let at = number(key, 10).filter(|_| key.len() == 18);
            match (whose, at) {
                (Some(known), Some(at)) if is_stripe(&known.onode, at) => {
                    known.stripes_left = known.stripes_left.saturating_sub(1);
                    if value.len() as u64 > u64::from(known.onode.stripe_size) {
                        report.error(format!("{}: its stripe at {at} is too long", known.name));
                    }
                }
                _ => orphans.push(key.to_vec()),
            }
        })?;
        for known in objects.values().filter(|known| known.stripes_left > 0) {
            report.error(format!("{}: {} stripes are not there", known.name, known.stripes_left));
        }
        self.each(Prefix::Omap, &mut |key, _| {
            if !number(key, 2).is_some_and(|id| omaps.contains_key(&id)) {
                orphans.push(key.to_vec());
            }
        })?;
        if !orphans.is_empty() {
            let whose =
                if unread > 0 { ", or to those that cannot be read: they stay" } else { "" };
            report.error(format!("{} keys belong to no object{whose}", orphans.len()));
        }
        if unread > 0 {
            orphans.clear();
        }
        let counted = match self.kv.get(&totals_key()).map_err(storage)? {
            Some(value) => decoded(&value, "the totals")?,
            None => Totals::default(),
        };
        let wrong = counted.data != totals.data || counted.last_nid < totals.last_nid;
        if wrong {
            report.error(format!(
                "{} bytes in stripes up to number {}, but {} up to {} counted",
                totals.data, totals.last_nid, counted.data, counted.last_nid
            ));
        }
        if options.repair {
            self.remove(&orphans)?;
            report.repaired += u64::from(!orphans.is_empty());
            if wrong {
                totals.last_nid = totals.last_nid.max(counted.last_nid);
                let mut batch = KvBatch::new();
                batch.put(totals_key(), totals.to_bytes());
                self.kv.commit(batch).map_err(storage)?;
                *self.totals() = totals;
                report.repaired += 1;
            }
        }
        Ok(report)
    }

    fn remove(&self, keys: &[Vec<u8>]) -> Result<(), StoreError> {
        for some in keys.chunks(BATCH_MAX) {
            let mut batch = KvBatch::new();
            for key in some {
                batch.delete(key.clone());
            }
            self.kv.commit(batch).map_err(storage)?;
        }
        Ok(())
    }
}

fn is_stripe(onode: &Onode, at: u64) -> bool {
    let len = u64::from(onode.stripe_size.max(1));
    at.is_multiple_of(len) && onode.has(at / len)
}

fn hex(key: &[u8]) -> String {
    key.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::keyed::keys::onode_key;
    use crate::kstore::format::stripe_key;
    use crate::kstore::{KStore, MkfsOptions};
    use crate::kv::{MemKv, SharedKv};
    use crate::testing::{block_on, numbered, object, pg};
    use crate::{ObjectStore, Transaction};

    #[test]
    fn what_no_object_names_is_found_and_removed_and_what_is_lost_is_told() {
        block_on(|env| async move {
            let kv: SharedKv = Arc::new(MemKv::new());
            let options = MkfsOptions { uuid: [7; 16], stripe_len: 4096 };
            KStore::mkfs(&env, kv.clone(), options).await.unwrap();
            let store = KStore::mount(env, kv.clone(), 1 << 30).await.unwrap();
            let mut t = Transaction::new();
            t.mkcoll(&pg(0), 0);
            t.write(&pg(0), &numbered(1), 0, vec![7; 10_000]);
            t.omap_setkeys(&pg(0), &numbered(1), [("k", "v".into())]);
            store.submit(t).await.unwrap();
            let fsck = |repair| store.fsck(FsckOptions { deep: true, repair });
            assert_eq!(fsck(false).await.unwrap(), Fsck::default());
            let mut batch = KvBatch::new();
            batch.put(stripe_key(99, 0), vec![1; 100]);
            batch.put(b"M\0\0\0\0\0\0\0\0\x63.key".to_vec(), vec![1]);
            batch.put(totals_key(), Totals { last_nid: 1000, data: 5 }.to_bytes());
            kv.commit(batch).unwrap();
            assert_eq!(fsck(false).await.unwrap().errors.len(), 2);
            assert_eq!(fsck(true).await.unwrap().repaired, 2);
            assert_eq!(fsck(false).await.unwrap(), Fsck::default());
            // A stripe that is lost stays lost.
            let mut stripes = Vec::new();
            kv.scan(b"D", b"E", Direction::Forwards, &mut |key, _| {
                stripes.push(key.to_vec());
                true
            })
            .unwrap();
            let mut batch = KvBatch::new();
            batch.delete(stripes.remove(1));
            kv.commit(batch).unwrap();
            let report = fsck(true).await.unwrap();
            assert_eq!((report.errors.len(), report.repaired), (1, 0));
            assert!(report.errors[0].contains("1 stripes"), "{report:?}");
        });
    }

    /// `fsck --repair` took the content of an object whose onode did not decode, or whose key did not, for nobody's, and
    /// removed it; of a placement group's own object that is its log.
    #[test]
    fn what_may_be_an_unreadable_objects_stays() {
        block_on(|env| async move {
            let kv: SharedKv = Arc::new(MemKv::new());
            let options = MkfsOptions { uuid: [1; 16], stripe_len: 4096 };
            KStore::mkfs(&env, kv.clone(), options).await.unwrap();
            let store = KStore::mount(env.clone(), kv.clone(), 64 << 20).await.unwrap();
            let (cid, oid) = (pg(0), object("o", 1));
            let mut t = Transaction::new();
            t.mkcoll(&cid, 0).touch(&cid, &oid).write(&cid, &oid, 0, vec![1; 10_000]);
            t.omap_setkeys(&cid, &oid, [("k", "v".into())]);
            store.submit(t).await.unwrap();
            store.close().await.unwrap();
            let key = onode_key(&cid, &oid);
            let onode = kv.get(&key).unwrap().expect("the object's onode");
            let put = |value: Bytes| {
                let mut batch = KvBatch::new();
                batch.put(key.clone(), value);
                kv.commit(batch).unwrap();
            };
            let repaired = async || {
                let store = KStore::mount(env.clone(), kv.clone(), 64 << 20).await.unwrap();
                let repair = FsckOptions { deep: true, repair: true };
                let found = store.fsck(repair).await.unwrap();
                store.close().await.unwrap();
                found.errors.join("\n")
            };
            put(Bytes::from_static(b"rot"));
            let said = repaired().await;
            assert!(said.contains("does not decode") && said.contains("they stay"), "{said}");
            // The same of a key.
            let cut = key.slice(..key.len() - 5);
            let mut batch = KvBatch::new();
            batch.delete(key.clone()).put(cut.clone(), onode.clone());
            kv.commit(batch).unwrap();
            let said = repaired().await;
            assert!(said.contains("names nothing") && said.contains("they stay"), "{said}");
            // Somebody who can, mends it.
            let mut batch = KvBatch::new();
            batch.delete(cut);
            kv.commit(batch).unwrap();
            put(onode);
            let store = KStore::mount(env.clone(), kv.clone(), 64 << 20).await.unwrap();
            let data = store.read(&cid, &oid, 0, 20_000).await.unwrap();
            assert_eq!(data.to_contiguous(), vec![1; 10_000]);
            assert_eq!(store.omap_values(&cid, &oid, &["k".into()]).await.unwrap().len(), 1);
        });
    }
}
