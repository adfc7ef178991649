//! Devices that fill up.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use client::IoCtx;
use sim::{Kill, World};
use simtest::{Cluster, Plan};
use types::ObjectLocator;
use types::osd::ops::message_flags;

const LIMIT: Duration = Duration::from_secs(120);
const MIB: usize = 1 << 20;
/// Writes at a time: less together than there is between the full ratio and the brim.
const WRITERS: usize = 8;

/// Names of objects whose writes fill one OSD twice as fast as those that lead them: two primaries,
/// one other copy. That OSD and the names.
fn names(map: &maps::OsdMap, io: &IoCtx) -> (i32, Vec<String>) {
    let locator = ObjectLocator { pool: io.pool_id(), ..ObjectLocator::default() };
    let mut by_copies: BTreeMap<(i32, i32), Vec<String>> = BTreeMap::new();
    for n in 0..2000 {
        let name = format!("o{n}");
        let pg = map.object_to_pg(name.as_bytes(), &locator).expect("the pool");
        let place = map.pg_to_up_acting(pg);
        let other = place.acting.iter().find(|osd| **osd != place.acting_primary);
        by_copies
            .entry((*other.expect("two copies"), place.acting_primary))
            .or_default()
            .push(name);
    }
    let of = |osd| by_copies.iter().filter(move |((other, _), _)| *other == osd);
    let osd = (0..3).find(|osd| of(*osd).count() == 2).expect("an OSD that follows two others");
    let leaders: Vec<_> = of(osd).map(|(_, names)| names).collect();
    (osd, leaders[0].iter().zip(leaders[1]).flat_map(|(a, b)| [a.clone(), b.clone()]).collect())
}

/// An OSD ended by itself ("the store fails: NoSpace") when clients filled the cluster within a second
/// (3 minutes of chaos on a fast machine). It had told the monitors that it was full; before a map with that
/// reached those who lead its PGs, these had sent it more than there was room for, and a copy cannot refuse.
/// Here no map comes at all: the monitor is dead.
#[test]
fn a_copy_that_is_full_stops_its_primaries_without_a_monitor() {
    let world = World::new(11);
    let plan = Plan { size: 2, min_size: 1, disk_len: 96 << 20, ..Plan::default() };
    let cluster = Cluster::make(&world.control(), plan);
    world.run_until(async move {
        let (world, admin) = (cluster.world().clone(), cluster.start().await);
        for (word, ratio) in [("nearfull", 0.6), ("backfillfull", 0.65), ("full", 0.7)] {
            let set =
                serde_json::json!({"prefix": format!("osd set-{word}-ratio"), "ratio": ratio});
            cluster.command(&admin, set).await;
        }
        cluster.create_pool(&admin, 8).await;
        cluster.wait_until_clean(&admin, LIMIT).await;
        let io = admin.io_ctx("p").await.unwrap();
        let (full, names) = names(&admin.osdmap(), &io);
        cluster.kill_mon("a", Kill::PROCESS);
        let (next, answered) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let last = Rc::new(Cell::new(usize::MAX));
        for _ in 0..WRITERS {
            let (io, names) = (io.clone(), names.clone());
            let (next, answered, last) = (next.clone(), answered.clone(), last.clone());
            world.node("client.admin").go(async move {
                while next.get() < last.get() {
                    let name = &names[next.replace(next.get() + 1)];
                    io.write_full(name.as_str(), Bytes::from(vec![7; MIB])).await.unwrap();
                    answered.set(answered.get() + 1);
                }
            });
        }
        world.sleep(Duration::from_secs(30)).await;
        // All disks together have room for twice as much; the one has not (it would have failed, and the life with it).
        let stored = answered.get();
        assert!((30..80).contains(&stored), "{stored} MiB stored");
        world.sleep(Duration::from_secs(5)).await;
        assert_eq!(answered.get(), stored, "osd.{full} is full");
        // What is removed makes room; those who wait need no map for that either.
        last.set(0);
        let forced = io.clone().with_flags(message_flags::FULL_FORCE);
        for name in &names[..stored] {
            let removal = cluster.in_time(&admin, "a removal", LIMIT, forced.remove(name.as_str()));
            // Writes are answered out of turn: one of the first may still wait.
            let _ = removal.await;
        }
        let end = world.now() + LIMIT;
        while answered.get() < next.get() {
            assert!(world.now() < end, "{} of {} answered", answered.get(), next.get());
            world.sleep(Duration::from_millis(100)).await;
        }
        cluster.start_mon();
        cluster.wait_until_clean(&admin, LIMIT).await;
        cluster.compare_replicas(&admin).await;
    });
}
