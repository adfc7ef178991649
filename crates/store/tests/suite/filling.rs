//! Backends that are filled to the brim: what is refused, what goes on, what comes back.

use bstr::BString;
use device::memory::Choices;
use store::{CollId, StoreError, Transaction};
use types::hobject::GhObject;

use super::blue::Under;
use super::common::{Model, numbered, object, pg, scattered};
use super::contract::{Backend, Kind, each};

#[test]
fn a_full_device_refuses_and_recovers() {
    each(async |env, kind| {
        let mut backend = Backend::new(env, kind, 16 << 20).await;
        let cid = pg(0);
        let mut model = Model::default();
        let mut t = Transaction::new();
        t.mkcoll(&cid, 0);
        model.apply(&t).unwrap();
        backend.store.submit(t).await.unwrap();
        for round in 0..3 {
            let mut n = 0;
            let refused = loop {
                let mut t = Transaction::new();
                t.write(&cid, &numbered(n), 0, vec![(n + round) as u8; 100_000]);
                match backend.store.submit(t.clone()).await {
                    Ok(()) => model.apply(&t).unwrap(),
                    Err(e) => break e,
                };
                n += 1;
            };
            assert_eq!(refused, StoreError::NoSpace, "{kind:?}");
            let statfs = backend.store.statfs().await.unwrap();
            assert!(statfs.available < 200_000, "{kind:?} {statfs:?}");
            assert!(n > 90, "{kind:?}: only {n} objects of 100 kB fitted 16 MiB");
            assert_eq!(model.compare(&*backend.store).await, Ok(()));
            // Overwriting, removing and small changes still work.
            let mut t = Transaction::new();
            t.write(&cid, &numbered(1), 0, vec![1; 4096]);
            model.apply(&t).unwrap();
            backend.store.submit(t).await.unwrap();
            backend.reopen(round == 1).await;
            assert_eq!(model.compare(&*backend.store).await, Ok(()));
            for n in 0..n {
                let mut t = Transaction::new();
                t.remove(&cid, &numbered(n));
                model.apply(&t).unwrap();
                backend.store.submit(t).await.unwrap();
            }
            backend.check().await;
        }
    });
}

/// Whether keys take the store's room: a database of its own in the machine's files takes none of its device.
fn is_filled_by_keys(kind: Kind) -> bool {
    !matches!(kind, Kind::Blue { under: Under::Memory | Under::Compressed | Under::Files, .. })
}

/// Clients filled an OSD with omap alone: on KStore and FileStore nothing stopped them (a device of
/// 150 MiB took 1.4 GB), on BlueStore the database found no room for a compaction, and the OSD ended at
/// three quarters of its device, one of them for good.
#[test]
fn a_store_full_of_keys_refuses_more_opens_again_and_gives_them_back() {
    const LEN: u64 = 24 << 20;
    each(async |env, kind| {
        if !is_filled_by_keys(kind) {
            return;
        }
        let mut backend = Backend::new(env, kind, LEN).await;
        let cid = pg(0);
        let (mut model, mut choices) = (Model::default(), Choices::new(5));
        let mut t = Transaction::new();
        t.mkcoll(&cid, 0);
        model.apply(&t).unwrap();
        backend.store.submit(t).await.unwrap();
        for round in 0..3 {
            let (mut n, mut bytes) = (0, 0);
            let refused = loop {
                if n % 64 == 0 {
                    // As an OSD does while it writes.
                    backend.store.statfs().await.unwrap();
                }
                assert!(bytes < LEN * 5 / 4, "{kind:?}: {bytes} bytes of keys fitted {LEN}");
                let mut t = Transaction::new();
                t.omap_setkeys(&cid, &numbered(n % 3), scattered(&mut choices));
                if n < 3 {
                    let mut first = Transaction::new();
                    first.touch(&cid, &numbered(n));
                    first.append(t);
                    t = first;
                }
                match backend.store.submit(t.clone()).await {
                    Ok(()) => model.apply(&t).unwrap(),
                    Err(e) => break e,
                };
                bytes += t.metadata_bytes();
                n += 1;
            };
            assert_eq!(refused, StoreError::NoSpace, "{kind:?}");
            let least = match kind {
                // Twice what all keys take is kept for checkpoints.
                Kind::Ink { .. } => LEN / 4,
                _ if round == 0 => LEN / 3,
                _ => LEN / 8,
            };
            assert!(bytes > least, "{kind:?}, round {round}: only {bytes} bytes of keys fitted");
            let statfs = backend.store.statfs().await.unwrap();
            assert!(statfs.available < 200_000, "{kind:?} {statfs:?}");
            assert!(statfs.omap_allocated > LEN / 4, "{kind:?} {statfs:?}");
            assert_eq!(model.compare(&*backend.store).await, Ok(()), "{kind:?}");
            backend.reopen(round == 1).await;
            assert_eq!(model.compare(&*backend.store).await, Ok(()), "{kind:?}");
            // Some by name, the rest with their objects.
            let keys: Vec<BString> = {
                let (_, objects) = &model.colls[&cid];
                objects[&numbered(0)].omap.keys().cloned().collect()
            };
            for keys in keys.chunks(100) {
                let mut t = Transaction::new();
                t.omap_rmkeys(&cid, &numbered(0), keys.to_vec());
                model.apply(&t).unwrap();
                backend.store.submit(t).await.unwrap();
            }
            for n in 0..3 {
                let mut t = Transaction::new();
                t.remove(&cid, &numbered(n));
                model.apply(&t).unwrap();
                backend.store.submit(t).await.unwrap();
            }
            // Deletions take effect when the database compacts, which it does when it is asked for room.
            let mut tries = 0;
            while backend.store.statfs().await.unwrap().available < LEN / 4 {
                tries += 1;
                assert!(tries < 3000, "{kind:?}: {:?}", backend.store.statfs().await);
                std::thread::sleep(std::time::Duration::from_millis(10));
                let mut t = Transaction::new();
                t.write(&cid, &numbered(100), 0, vec![1; 100]).remove(&cid, &numbered(100));
                // Until then it may be full, of what was removed.
                let answer = backend.store.submit(t).await;
                assert!(
                    matches!(answer, Ok(()) | Err(StoreError::NoSpace)),
                    "{kind:?}: {answer:?}"
                );
            }
            backend.check().await;
        }
    });
}

/// An InkStore full of long keys found no room for a checkpoint when they were removed one by one, and stopped for
/// good ("broken pipe"): what was small had half of the room that is kept for a checkpoint of everything, and
/// what names the keys that are gone took the rest.
#[test]
fn long_keys_of_a_full_store_can_be_removed_by_name() {
    const LEN: u64 = 24 << 20;
    // Bytes of a value, keys of a transaction, objects.
    const SHAPES: [(usize, u64, u64); 3] = [(0, 4, 3), (20, 12, 1), (300, 4, 1000)];
    each(async |env, kind| {
        if !matches!(kind, Kind::Ink { .. }) {
            return;
        }
        for (value_len, keys, objects) in SHAPES {
            let mut backend = Backend::new(env, kind, LEN).await;
            let cid = pg(0);
            let (mut model, mut choices) = (Model::default(), Choices::new(5));
            let mut t = Transaction::new();
            t.mkcoll(&cid, 0);
            model.apply(&t).unwrap();
            backend.store.submit(t).await.unwrap();
            for round in 0..2 {
                let refused = loop {
                    let mut t = Transaction::new();
                    let oid = numbered(choices.below(objects));
                    let key = |choices: &mut Choices| format!("{:04000}", choices.below(50_000));
                    let values = (0..keys).map(|_| (key(&mut choices), vec![1; value_len].into()));
                    t.touch(&cid, &oid).omap_setkeys(&cid, &oid, values.collect::<Vec<_>>());
                    match backend.store.submit(t.clone()).await {
                        Ok(()) => model.apply(&t).unwrap(),
                        Err(e) => break e,
                    }
                };
                let about = format!("{kind:?} {value_len} {keys} {objects}, round {round}");
                assert_eq!(refused, StoreError::NoSpace, "{about}");
                backend.reopen(round == 1).await;
                let held: Vec<(GhObject, Vec<BString>)> = {
                    let (_, objects) = &model.colls[&cid];
                    let names = objects.iter().map(|(oid, o)| (oid, o.omap.keys().cloned()));
                    names.map(|(oid, keys)| (oid.clone(), keys.collect())).collect()
                };
                for (oid, names) in held {
                    for some in names.chunks(keys as usize) {
                        let mut t = Transaction::new();
                        t.omap_rmkeys(&cid, &oid, some.to_vec());
                        model.apply(&t).unwrap();
                        assert_eq!(backend.store.submit(t).await, Ok(()), "{about}");
                    }
                }
                assert_eq!(model.compare(&*backend.store).await, Ok(()), "{about}");
                // Their room is there again, not when the log is next long.
                let mut tries = 0;
                while backend.store.statfs().await.unwrap().available < LEN / 2 {
                    tries += 1;
                    assert!(tries < 300, "{about}: {:?}", backend.store.statfs().await);
                    env.sleep(std::time::Duration::from_millis(10)).await;
                    let mut t = Transaction::new();
                    t.write(&cid, &numbered(objects), 0, vec![1; 100]);
                    t.remove(&cid, &numbered(objects));
                    assert_eq!(backend.store.submit(t).await, Ok(()), "{about}");
                }
            }
            backend.check().await;
        }
    });
}

/// Found by reading: whatever came with the removal of a range was taken for something that shrinks. A write that
/// trims its placement group's log has one, so clients could go on filling a store with omap until its database
/// found no room.
#[test]
fn keys_that_come_with_a_trim_are_refused_too() {
    const LEN: u64 = 24 << 20;
    each(async |env, kind| {
        if !is_filled_by_keys(kind) {
            return;
        }
        // What BlueFS keeps free is reckoned by RocksDB's write buffers, which on so short a device are 256 KiB.
        let value_len = if matches!(kind, Kind::Blue { .. }) { 8 << 10 } else { 64 << 10 };
        let backend = Backend::new(env, kind, LEN).await;
        let (cid, log) = (pg(0), object("log", 1));
        let mut t = Transaction::new();
        let own = cid.spg().unwrap().pgmeta();
        t.mkcoll(&cid, 0).touch(&cid, &log).touch(&cid, &own);
        backend.store.submit(t).await.unwrap();
        let trim = |n: u64| {
            let mut t = Transaction::new();
            t.omap_rmkeyrange(&cid, &log, "", format!("{n:09}"));
            t.omap_setkeys(&cid, &log, [(format!("{n:09}"), vec![1; 300].into())]);
            t
        };
        let mut choices = Choices::new(5);
        let mut n = 0;
        let refused = loop {
            let bytes = n * 16 * value_len;
            assert!(bytes < LEN * 5 / 4, "{kind:?}: {bytes} bytes of keys fitted {LEN}");
            let mut t = trim(n);
            let values = (0..16).map(|key| {
                let value: Vec<u8> = (0..value_len / 8)
                    .flat_map(|_| choices.below(u64::MAX).to_le_bytes())
                    .collect();
                (format!("{key:02}"), value.into())
            });
            t.touch(&cid, &numbered(n)).omap_setkeys(&cid, &numbered(n), values);
            match backend.store.submit(t).await {
                Ok(()) => n += 1,
                Err(e) => break e,
            }
        };
        assert_eq!(refused, StoreError::NoSpace, "{kind:?}");
        // A placement group's log that is written anew is taken, though: its OSD would end.
        let mut t = Transaction::new();
        t.omap_rmkeyrange(&cid, &own, "", "x").omap_setkeys(
            &cid,
            &own,
            [("1", vec![1; 100_000].into())],
        );
        assert_eq!(backend.store.submit(t).await, Ok(()), "{kind:?}: a log");
        assert!(n * 16 * value_len > LEN / 8, "{kind:?}: only {n} transactions fitted");
        for removed in 0..n {
            let mut t = trim(n + removed);
            t.remove(&cid, &numbered(removed));
            assert_eq!(backend.store.submit(t).await, Ok(()), "{kind:?}: removal {removed}");
        }
        backend.check().await;
    });
}

/// An OSD was told that a write found no room after it had handed over the next one, a small one
/// that fitted: the PG's log was durable with that entry and without the one before it.
#[test]
fn nothing_follows_what_found_no_room() {
    each(async |env, kind| {
        let mut backend = Backend::new(env, kind, 16 << 20).await;
        let cid = pg(0);
        let mut model = Model::default();
        let mut t = Transaction::new();
        t.mkcoll(&cid, 0);
        model.apply(&t).unwrap();
        backend.store.submit(t).await.unwrap();
        backend.store.stop_when_full();
        let mut refused = 0;
        for n in 0..40 {
            let mut long = Transaction::new();
            long.write(&cid, &numbered(n), 0, vec![n as u8; 1 << 20]);
            let mut short = Transaction::new();
            short.touch(&cid, &numbered(100 + n));
            // Handed over together, as by two requests that came together.
            let (first, second) =
                (backend.store.submit(long.clone()), backend.store.submit(short.clone()));
            match (first.await, second.await) {
                (Ok(()), Ok(())) if refused == 0 => {
                    model.apply(&long).unwrap();
                    model.apply(&short).unwrap();
                }
                (Err(e), Err(StoreError::Latched)) => {
                    let wanted =
                        if refused == 0 { StoreError::NoSpace } else { StoreError::Latched };
                    assert_eq!(e, wanted, "{kind:?}");
                    refused += 1;
                }
                other => panic!("{kind:?}: {other:?} for number {n}"),
            }
        }
        assert!(refused > 0, "{kind:?}: 40 MiB fitted 16 MiB");
        backend.reopen(false).await;
        assert_eq!(model.compare(&*backend.store).await, Ok(()), "{kind:?}");
        backend.check().await;
    });
}

/// Found by reading: in a store that was nearly full a write over what the same transaction had cloned counted as one that frees what it
/// overwrites, though the clone keeps that. Each took a part of what is kept for overwrites, until these were refused, too; and these were once
/// the next checkpoint had written some blocks of metadata, whatever else happened.
#[test]
fn a_write_over_what_is_cloned_frees_nothing() {
    each(async |env, kind| {
        if !matches!(kind, Kind::Ink { .. }) {
            return;
        }
        let backend = Backend::new(env, kind, 16 << 20).await;
        let cid = pg(0);
        let mut t = Transaction::new();
        t.mkcoll(&cid, 0);
        backend.store.submit(t).await.unwrap();
        let write = |n: u64| {
            let mut t = Transaction::new();
            t.write(&cid, &numbered(n), 0, vec![n as u8; 4096]);
            t
        };
        let mut count = 0;
        while backend.store.submit(write(count)).await.is_ok() {
            count += 1;
        }
        let mut taken = 0;
        for n in 0..count {
            let mut t = Transaction::new();
            t.clone_object(&cid, &numbered(n), &numbered(count + n));
            t.write(&cid, &numbered(n), 0, vec![1; 4096]);
            taken += u64::from(backend.store.submit(t).await.is_ok());
        }
        // A new object finds room again when freed blocks of metadata have come back.
        assert!(taken <= 8, "{taken} of {count}");
        for n in 0..count {
            assert_eq!(backend.store.submit(write(n)).await, Ok(()), "number {n}");
        }
        backend.check().await;
    });
}

/// An OSD that clients had filled to the brim could not store the maps it missed, and so not start.
#[test]
fn what_the_owner_notes_fits_when_nothing_else_does() {
    each(async |env, kind| {
        if kind == Kind::Mem {
            return;
        }
        let backend = Backend::new(env, kind, 16 << 20).await;
        let cid = pg(0);
        let mut t = Transaction::new();
        t.mkcoll(&cid, 0);
        t.mkcoll(&CollId::Meta, 0);
        backend.store.submit(t).await.unwrap();
        let write = |cid: &CollId, n: u64, len: usize| {
            let mut t = Transaction::new();
            t.write(cid, &numbered(n), 0, vec![n as u8; len]);
            backend.store.submit(t)
        };
        for len in [100_000, 4096] {
            // A database that compacts gives some room back meanwhile.
            let (mut n, mut refused) = (len as u64, 0);
            while refused < 3 {
                match write(&cid, n, len).await {
                    Ok(()) => (n, refused) = (n + 1, 0),
                    Err(e) => {
                        assert_eq!(e, StoreError::NoSpace, "{kind:?}");
                        refused += 1;
                    }
                }
            }
        }
        // Units of 64 KiB are soon taken.
        let maps = if matches!(kind, Kind::Ink { .. }) { 8 } else { 3 };
        for n in 0..maps {
            assert_eq!(write(&CollId::Meta, n, 4096).await, Ok(()), "{kind:?}, map {n}");
        }
    });
}

#[test]
fn space_comes_back() {
    each(async |env, kind| {
        let backend = Backend::new(env, kind, 16 << 20).await;
        let (cid, oid) = (pg(0), object("o", 1));
        let mut t = Transaction::new();
        t.mkcoll(&cid, 0);
        backend.store.submit(t).await.unwrap();
        let before = backend.store.statfs().await.unwrap();
        // Ten times the device, over and over the same object.
        for n in 0..160_u64 {
            let mut t = Transaction::new();
            t.write(&cid, &oid, n % 3 * 4096, vec![n as u8; 1 << 20]);
            let written = backend.store.submit(t).await;
            assert_eq!(written, Ok(()), "{kind:?}, write {n}");
        }
        let mut t = Transaction::new();
        t.remove(&cid, &oid);
        backend.store.submit(t).await.unwrap();
        let after = backend.store.statfs().await.unwrap();
        assert_eq!((after.allocated, after.data_stored), (0, 0));
        // A database on the same device may hold on to some of it.
        let given_back = after.available + after.internal_metadata + (1 << 20);
        assert!(given_back >= before.available, "{kind:?} {after:?} {before:?}");
        backend.check().await;
    });
}
