//! What the objects of each pool take: what `ceph df` shows where every OSD tells it (Ceph's
//! per-pool statfs, `src/os/bluestore/BlueStore.cc` at v16.2).
//!
//! A pool's numbers are a value of their own, written with each transaction that changes them. A
//! store made before there were any is counted once, when it is mounted.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::Core;
use super::extent_map::{SHARD_LEN, Shard};
use super::format::{BLOCK_LEN, Onode, Prefix, shard_of};
use crate::keyed::keys::{SUPER, behind, number_of, prefix};
use crate::keyed::{Keys, decoded};
use crate::kv::{KvBatch, storage};
use crate::object_key::{COLLECTION_KEY_LEN, parse_collection_key};
use crate::{CollId, Statfs, StoreError};

/// Space of pools by their numbers. Bound: the pools of the cluster.
pub(super) type Pools = BTreeMap<u64, PoolSpace>;

/// What is in no pool: the OSD's own objects (Ceph's pool -1).
const NO_POOL: u64 = u64::MAX;

/// The pool of a collection's objects.
pub(super) fn pool_of(cid: &CollId) -> u64 {
    cid.spg().map_or(NO_POOL, |pg| pg.pgid.pool)
}

/// Value of [`pool_key`]: two numbers, and three more once anything has been compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct PoolSpace {
    /// Bytes of units. A unit of several clones counts once.
    pub(super) allocated: u64,
    /// Bytes that extents map, without those behind objects' ends: whole blocks are mapped.
    pub(super) stored: u64,
    /// As in [`Totals`](super::format::Totals).
    pub(super) compressed: [u64; 3],
}

/// `S`, `pool`, the pool's number.
pub(super) fn pool_key(pool: u64) -> Bytes {
    [&pools_prefix()[..], &pool.to_be_bytes()].concat().into()
}

fn pools_prefix() -> Vec<u8> {
    [&prefix(SUPER)[..], b"pool"].concat()
}

impl PoolSpace {
    /// Counts a shard of an extent map in the place of another.
    pub(super) fn change(&mut self, was: (u64, [u64; 3]), is: (u64, [u64; 3])) {
        self.change_stored(was.0, is.0);
        for (n, total) in self.compressed.iter_mut().enumerate() {
            *total = (*total + is.1[n]).saturating_sub(was.1[n]);
        }
    }

    /// Less than nothing in between: blocks go before what was behind an end comes back.
    pub(super) fn change_stored(&mut self, was: u64, is: u64) {
        self.stored = self.stored.wrapping_add(is).wrapping_sub(was);
    }

    pub(super) fn to_bytes(self) -> Bytes {
        let mut numbers = vec![self.allocated, self.stored];
        if self.compressed != [0; 3] {
            numbers.extend(self.compressed);
        }
        let bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
        bytes.into()
    }

    fn of_bytes(bytes: &[u8]) -> Option<PoolSpace> {
        let (numbers, rest) = bytes.as_chunks::<8>();
        let numbers: Vec<u64> = numbers.iter().map(|n| u64::from_le_bytes(*n)).collect();
        let (allocated, stored, compressed) = match numbers[..] {
            [allocated, stored] => (allocated, stored, [0; 3]),
            [allocated, stored, a, b, c] => (allocated, stored, [a, b, c]),
            _ => return None,
        };
        rest.is_empty().then_some(PoolSpace { allocated, stored, compressed })
    }

    pub(super) fn statfs(self) -> Statfs {
        let [compressed, compressed_allocated, compressed_original] = self.compressed;
        Statfs {
            allocated: self.allocated,
            data_stored: self.stored,
            data_compressed: compressed,
            data_compressed_allocated: compressed_allocated,
            data_compressed_original: compressed_original,
            ..Statfs::default()
        }
    }
}

/// What `changed` says where `before` says otherwise: for the database.
pub(super) fn changes(before: &Pools, changed: &Pools) -> Vec<(Bytes, Option<Bytes>)> {
    let differ = changed
        .iter()
        .filter(|(pool, space)| before.get(pool).copied().unwrap_or_default() != **space);
    let entry = |(pool, space): (&u64, &PoolSpace)| {
        let value = (*space != PoolSpace::default()).then(|| space.to_bytes());
        (pool_key(*pool), value)
    };
    differ.map(entry).collect()
}

impl Core {
    /// What the database says of pools; counted, and put there, if it says nothing.
    pub(super) fn load_pools(&self) -> Result<Pools, StoreError> {
        let start = pools_prefix();
        let mut pools = Pools::new();
        let mut bad = false;
        self.scan(&start, &behind(&start), &mut |key, value| {
            let pool = key[start.len()..].try_into().map(u64::from_be_bytes);
            match pool.ok().zip(PoolSpace::of_bytes(value)) {
                Some((pool, space)) => drop(pools.insert(pool, space)),
                None => bad = true,
            }
            true
        })?;
        if bad {
            return Err(StoreError::Format("what pools take"));
        }
        if pools.is_empty() && self.state().totals.stored > 0 {
            pools = self.count_pools()?;
            self.set_pools(&Pools::new(), &pools)?;
        }
        Ok(pools)
    }

    /// Makes the database say so.
    pub(super) fn set_pools(&self, before: &Pools, pools: &Pools) -> Result<(), StoreError> {
        // A pool that has nothing any more is told apart from one that did not change.
        let gone = before.keys().map(|pool| (*pool, PoolSpace::default()));
        let all: Pools = gone.chain(pools.iter().map(|(pool, space)| (*pool, *space))).collect();
        let mut batch = KvBatch::new();
        for (key, value) in changes(before, &all) {
            match value {
                Some(value) => drop(batch.put(key, value)),
                None => drop(batch.delete(key)),
            }
        }
        match batch.is_empty() {
            true => Ok(()),
            false => self.kv.commit(batch).map_err(storage),
        }
    }

    /// Counts them by all extent maps; what cannot be read is left out. Bound: the memory of all
    /// objects' numbers and of all shared units.
    pub(super) fn count_pools(&self) -> Result<Pools, StoreError> {
        // Pool and size of objects.
        let mut objects: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        let start = Prefix::Onode.key();
        self.scan(&start, &behind(&start), &mut |key, value| {
            let cid = key.get(2..2 + COLLECTION_KEY_LEN).and_then(parse_collection_key);
            let onode = decoded::<Onode>(&Bytes::copy_from_slice(value), "an onode");
            if let (Some(cid), Ok(onode)) = (cid, onode) {
                objects.insert(onode.nid, (pool_of(&cid), onode.size));
            }
            true
        })?;
        let mut pools = Pools::new();
        let mut shared: BTreeSet<u64> = BTreeSet::new();
        let unit = self.unit();
        let start = Prefix::Extents.key();
        self.scan(&start, &behind(&start), &mut |key, value| {
            let object = number_of(key).and_then(|nid| objects.get(&nid));
            let found = object.zip(Shard::decode(value)).zip(shard_of(key));
            let Some(((&(pool, size), shard), index)) = found else { return true };
            let space = pools.entry(pool).or_default();
            space.change((0, [0; 3]), (shard.stored(), shard.compressed()));
            if !size.is_multiple_of(BLOCK_LEN) && size / SHARD_LEN == u64::from(index) {
                space.stored -= shard.behind_end(size % SHARD_LEN);
            }
            for blob in &shard.blobs {
                for run in blob.physical.iter().filter_map(|p| Some((p.offset?, p.len))) {
                    let units = (run.0..run.0 + run.1).step_by(unit as usize);
                    let own = units.filter(|at| blob.shared == 0 || shared.insert(*at));
                    space.allocated += own.count() as u64 * unit;
                }
            }
            true
        })?;
        pools.retain(|_, space| *space != PoolSpace::default());
        Ok(pools)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bluestore::Compression;
    use crate::bluestore::tests::made;
    use crate::keyed::rounds::Durable;
    use crate::testing::{block_on, numbered, pg};
    use crate::{PoolOptions, Transaction};

    /// A pool's numbers follow writes, compression, clones and removals; an older store, which has
    /// none, is counted when it is opened, and comes to the same.
    #[test]
    fn what_a_pool_takes_is_known_and_counted_where_it_is_not() {
        block_on(|env| async move {
            let (device, database) = made(&env).await;
            let open = || Core::open(device.clone(), &database, Compression::default()).unwrap();
            let core = open();
            let (cid, data) = (pg(0), vec![5; 64 << 10]);
            let pool = pool_of(&cid);
            let apply = |change: &dyn Fn(&mut Transaction)| {
                let mut t = Transaction::new();
                change(&mut t);
                core.apply(&t).unwrap();
                core.state().pools.get(&pool).copied().unwrap_or_default()
            };
            apply(&|t| {
                t.mkcoll(&cid, 0);
                t.write(&cid, &numbered(1), 0, data.clone());
            });
            // Clients' bytes, not blocks; of a hole nothing.
            let small = apply(&|t| {
                t.write(&cid, &numbered(4), 1 << 20, vec![1; 100]);
            });
            assert_eq!((small.allocated, small.stored), (68 << 10, (64 << 10) + 100));
            let cut = apply(&|t| {
                t.truncate(&cid, &numbered(4), (1 << 20) + 7);
            });
            assert_eq!(cut.stored, (64 << 10) + 7);
            apply(&|t| {
                t.remove(&cid, &numbered(4));
            });
            let cloned = apply(&|t| {
                t.clone_object(&cid, &numbered(1), &numbered(2));
            });
            assert_eq!((cloned.allocated, cloned.stored), (64 << 10, 128 << 10));
            core.set_pool_options(
                pool,
                &PoolOptions { compression_mode: Some("force".into()), ..PoolOptions::default() },
            );
            let squeezed = apply(&|t| {
                t.write(&cid, &numbered(3), 0, data.clone());
            });
            assert_eq!(squeezed.compressed[2], 64 << 10);
            assert_eq!(squeezed.allocated, cloned.allocated + squeezed.compressed[1]);
            let left = apply(&|t| {
                t.remove(&cid, &numbered(1));
            });
            assert_eq!((left.allocated, left.stored), (squeezed.allocated, 128 << 10));
            assert_eq!(core.count_pools().unwrap(), core.state().pools);
            core.sync().unwrap();
            core.set_pools(&core.state().pools.clone(), &Pools::new()).unwrap();
            core.finish().unwrap();
            drop(core);
            let core = open();
            assert_eq!(core.state().pools.get(&pool), Some(&left));
            core.finish().unwrap();
            drop(core);
            assert_eq!(open().load_pools().unwrap().get(&pool), Some(&left));
        });
    }
}
