//! Lives in which the pool gets more placement groups, OSDs are removed and come back as new ones,
//! and three monitors lead, while daemons fall. `loligo sim --faults grow,remove,osd,mon --mons 3`
//! lives the same. `LOLIGO_SIM_SEEDS`, `LOLIGO_SIM_FIRST` and `LOLIGO_SIM_SEED` as in `cluster.rs`.

use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use sim::{DiskModel, Kill, LinkModel, World};
use simtest::{Cluster, Fault, Plan, Settings, live};
use types::PgId;

use crate::{keep_their_word, log, number};

#[test]
fn lives_with_growth_and_removal() {
    log();
    let faults = [Fault::Grow, Fault::Remove, Fault::Osd, Fault::Mon, Fault::Mgr, Fault::Admin];
    let settings = Settings { mons: Some(3), faults: Some(faults.into()), ..Settings::default() };
    if let Some(seed) = number("LOLIGO_SIM_SEED") {
        eprintln!("seed {seed}: {:?}", live(seed, &settings));
        return;
    }
    // Debug builds are some twenty times slower.
    let seeds = number("LOLIGO_SIM_SEEDS").unwrap_or(if cfg!(debug_assertions) { 1 } else { 4 });
    let first = number("LOLIGO_SIM_FIRST").unwrap_or(1);
    let sum = keep_their_word(first..first + seeds, &settings);
    eprintln!("{} lives of {:?}, {} answers judged", sum.lives, sum.time, sum.answers);
}

/// Found by `loligo sim --faults grow,shrink,snaps,rot,osd --short`, one life of twelve: scrub found
/// objects of a PG that its other copies lacked.
///
/// 1. An OSD is down while its pool grows from 1 PG to 2 and, in a later map, to 4.
/// 2. It comes back and goes through both maps at once: 1.0 splits into 1.1, and 1.1 should split into
///    1.3 at the next map. What had split off was left at the map that made it.
/// 3. The objects of 1.3 stayed in 1.1's collection, and 1.3 came into being empty. With all OSDs
///    down meanwhile they would have been lost.
#[test]
fn an_osd_that_was_away_while_its_pool_grew_twice_splits_twice() {
    log();
    let world = World::new(5);
    let cluster = Cluster::make(&world.control(), Plan::default());
    world.run_until(async move {
        let admin = cluster.start().await;
        let pool = json!({"prefix": "osd pool create", "pool": "p", "pg_num": 1, "autoscale_mode": "off"});
        cluster.command(&admin, pool).await;
        let io = admin.io_ctx("p").await.unwrap();
        for n in 0..40 {
            io.write_full(format!("object{n}"), Bytes::from(vec![n; 100])).await.unwrap();
        }
        cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
        cluster.kill_osd(0, Kill::PROCESS);
        while admin.osdmap().is_up(0) {
            cluster.world().sleep(Duration::from_millis(100)).await;
            admin.wait_for_latest_osdmap().await.unwrap();
        }
        for pg_num in [2, 4] {
            let grow = json!({"prefix": "osd pool set", "pool": "p", "var": "pg_num", "val": pg_num.to_string()});
            cluster.command(&admin, grow).await;
            while admin.osdmap().pool(io.pool_id()).unwrap().pg_num != pg_num {
                cluster.world().sleep(Duration::from_millis(100)).await;
                admin.wait_for_latest_osdmap().await.unwrap();
            }
        }
        cluster.start_osd(0);
        cluster.wait_until_up(&admin).await;
        cluster.wait_until_clean(&admin, Duration::from_secs(300)).await;
        cluster.compare_replicas(&admin).await;
    });
}

/// Found by `loligo sim --seed 30502 --faults grow,shrink,snaps,remove,osd,power,mon --short`: a client's
/// read was never answered.
///
/// 1. A placement group has moved away from an OSD, which removes its copy.
/// 2. It comes back, to be led there, while the copy is being removed. A read that comes now was given
///    to the copy that goes, which took nothing any more: it was lost without a word.
/// 3. The log reaches back to the beginning, so the OSD goes on leading as soon as it has it, without an
///    interval that would have made the client send again.
#[test]
fn a_read_that_comes_while_an_older_copy_is_removed_is_answered() {
    log();
    let world = World::new(6);
    let plan = Plan { size: 2, min_size: 1, ..Plan::default() };
    let cluster = Cluster::make(&world.control(), plan);
    world.run_until(async move {
        let world = cluster.world().clone();
        let admin = cluster.start().await;
        let pool =
            json!({"prefix": "osd pool create", "pool": "p", "pg_num": 1, "autoscale_mode": "off"});
        cluster.command(&admin, pool).await;
        let io = admin.io_ctx("p").await.unwrap();
        for n in 0..20 {
            io.write_full(format!("object{n}"), Bytes::from_static(b"here")).await.unwrap();
        }
        let pgid = types::PgId::new(u64::try_from(io.pool_id()).unwrap(), 0);
        let leader = admin.osdmap().pg_to_up_acting(pgid).acting_primary;
        let ids = [leader.to_string()];
        let disk = world.disk(&format!("osd.{leader}"), "/osd/block");
        // From before the copy is removed until after it.
        for round in 0..30 {
            cluster.wait_until_clean(&admin, Duration::from_secs(120)).await;
            cluster.command(&admin, json!({"prefix": "osd out", "ids": ids})).await;
            disk.set_model(DiskModel { slowness: 200.0, ..DiskModel::default() });
            world.sleep(Duration::from_millis(round * 50)).await;
            cluster.command(&admin, json!({"prefix": "osd in", "ids": ids})).await;
            admin.wait_for_latest_osdmap().await.unwrap();
            let read = io.read("object7", 0, 0);
            let answer = cluster.in_time(&admin, "a read", Duration::from_secs(60), read).await;
            assert_eq!(&answer.unwrap()[..], b"here");
            disk.set_model(DiskModel::default());
        }
    });
}

/// Found by one short life of 500 in which growth was one of the usual faults: an object that had been
/// written and read was gone.
///
/// 1. An OSD comes back and is to lead a placement group again. It asks another one for its log.
/// 2. That one has the next map already, by which the placement group splits: entries of objects that
///    leave were taken out of its log, and while this became durable it went on answering for the
///    interval before. What it gave away was a log as new as before, without these entries.
/// 3. To the first one its own entries of these objects were such as never happened: it removed the
///    objects, then split, and led the new placement group without them.
#[test]
fn a_log_is_not_given_away_while_it_is_shared_out() {
    log();
    // One of these meets the moment.
    for pause in [0, 40, 80] {
        for late in [0, 40, 80] {
            asks_while_others_split(pause, late);
        }
    }
}

/// A placement group splits so many milliseconds after its leader has come back; what it hears of
/// the others is late by so many.
fn asks_while_others_split(pause: u64, late: u64) {
    let millis = Duration::from_millis;
    let world = World::new(7);
    let cluster = Cluster::make(&world.control(), Plan::default());
    world.run_until(async move {
        let world = cluster.world().clone();
        let admin = cluster.start().await;
        let pool =
            json!({"prefix": "osd pool create", "pool": "p", "pg_num": 1, "autoscale_mode": "off"});
        cluster.command(&admin, pool).await;
        cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
        let io = admin.io_ctx("p").await.unwrap();
        let parent = types::PgId::new(u64::try_from(io.pool_id()).unwrap(), 0);
        let leader = admin.osdmap().pg_to_up_acting(parent).acting_primary.cast_unsigned();
        for n in 0..16 {
            io.append(format!("object{n}"), Bytes::from_static(b"before ")).await.unwrap();
        }
        cluster.kill_osd(leader, Kill::PROCESS);
        for n in 0..16 {
            io.append(format!("object{n}"), Bytes::from_static(b"meanwhile")).await.unwrap();
        }
        let slow = DiskModel { write: millis(40), sync: millis(40), ..DiskModel::default() };
        for osd in 0..3 {
            world.disk(&format!("osd.{osd}"), "/osd/block").set_model(slow);
        }
        cluster.start_osd(leader);
        let host = format!("osd.{leader}");
        let link = |delay_min| Some(LinkModel { delay_min, ..LinkModel::default() });
        for osd in (0..3).filter(|osd| *osd != leader) {
            world.set_link(&format!("osd.{osd}"), &host, link(millis(late)));
        }
        cluster.wait_until_up(&admin).await;
        world.sleep(millis(5)).await;
        world.set_link("mon.a", &host, link(Duration::from_secs(1)));
        world.sleep(millis(pause)).await;
        let grow =
            json!({"prefix": "osd pool set", "pool": "p", "var": "pg_num_actual", "val": "2"});
        cluster.command(&admin, grow).await;
        cluster.wait_until_clean(&admin, Duration::from_secs(120)).await;
        for n in 0..16 {
            let read = io.read(format!("object{n}"), 0, 0).await;
            assert_eq!(read.as_deref().ok(), Some(&b"before meanwhile"[..]), "object{n}");
        }
        cluster.compare_replicas(&admin).await;
    });
}

/// Seen once in lives with growth: `cannot split`, and the OSD ended.
///
/// 1. Two placement groups have moved away from an OSD. It gets several maps at once, by which both
///    split again and again: it splits the first, and waits for its disk each time.
/// 2. Their primary, clean by the map before, says that the copies are not needed. The first splits
///    and does not listen; the second is removed.
/// 3. The first is done, and it is the second's turn: there is no such collection.
#[test]
fn a_copy_that_goes_while_another_splits_is_not_split() {
    log();
    // From before the maps come until all have split: some of these meet the moment.
    for pause in (0..1400).step_by(200) {
        is_told_to_remove_while_it_splits(pause);
    }
}

/// An OSD is told so many milliseconds after it asks for the maps that split its placement groups.
fn is_told_to_remove_while_it_splits(pause: u64) {
    let millis = Duration::from_millis;
    let world = World::new(8);
    let plan = Plan { size: 2, min_size: 1, ..Plan::default() };
    let cluster = Cluster::make(&world.control(), plan);
    world.run_until(async move {
        let world = cluster.world().clone();
        let admin = cluster.start().await;
        let pool =
            json!({"prefix": "osd pool create", "pool": "p", "pg_num": 2, "autoscale_mode": "off"});
        cluster.command(&admin, pool).await;
        let io = admin.io_ctx("p").await.unwrap();
        for n in 0..20 {
            io.write_full(format!("object{n}"), Bytes::from_static(b"here")).await.unwrap();
        }
        cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
        let keeps = |osd: u32| -> usize {
            let pgs =
                (0..2).map(|seed| types::PgId::new(u64::try_from(io.pool_id()).unwrap(), seed));
            let acting = pgs.map(|pgid| admin.osdmap().pg_to_up_acting(pgid).acting);
            acting.filter(|acting| acting.contains(&osd.cast_signed())).count()
        };
        let leaves = (0..3).find(|osd| keeps(*osd) == 2).expect("two copies of each on three OSDs");
        let host = format!("osd.{leaves}");
        let others: Vec<String> =
            (0..3).filter(|osd| *osd != leaves).map(|osd| format!("osd.{osd}")).collect();
        // Time to hold back what it is told at the end.
        for other in &others {
            let slow = DiskModel { write: millis(100), ..DiskModel::default() };
            world.disk(other, "/osd/block").set_model(slow);
        }
        cluster.command(&admin, json!({"prefix": "osd out", "ids": [leaves.to_string()]})).await;
        while keeps(leaves) > 0 {
            world.sleep(millis(1)).await;
            admin.wait_for_latest_osdmap().await.unwrap();
        }
        for other in &others {
            world.block(other, &host);
        }
        // The manager is to hear of it, too.
        world.sleep(Duration::from_secs(8)).await;
        cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
        let slow = DiskModel { write: millis(150), sync: millis(150), ..DiskModel::default() };
        world.disk(&host, "/osd/block").set_model(slow);
        world.partition("mon.a", &host);
        for pg_num in ["4", "8", "16"] {
            for var in ["pg_num", "pg_num_actual"] {
                let grow =
                    json!({"prefix": "osd pool set", "pool": "p", "var": var, "val": pg_num});
                cluster.command(&admin, grow).await;
            }
        }
        // In a new session it asks for all it lacks.
        world.reset_connections("mon.a", &host);
        world.unblock("mon.a", &host);
        world.unblock(&host, "mon.a");
        world.sleep(millis(pause)).await;
        for other in &others {
            world.unblock(other, &host);
        }
        // An OSD that fails ends the test.
        world.sleep(Duration::from_secs(5)).await;
        cluster.wait_until_clean(&admin, Duration::from_secs(120)).await;
        cluster.compare_replicas(&admin).await;
    });
}

/// Found by `loligo sim --seed 2656`: a read that no order explains.
///
/// 1. An OSD that leads a PG hears nobody any more but a client that reads from it, and serves that
///    client until its lease is over.
/// 2. It is marked down. The next primary knows of the lease and waits; meanwhile the pool grows, and
///    the PG splits.
/// 3. What had split off knew of no lease: it was written to while the first one still served reads.
#[test]
fn what_splits_off_waits_for_leases_of_before() {
    log();
    let world = World::new(6);
    let cluster = Cluster::make(&world.control(), Plan::default());
    world.run_until(async move {
        let world = cluster.world().clone();
        let admin = cluster.start().await;
        cluster.create_pool(&admin, 1).await;
        let io = admin.io_ctx("p").await.unwrap();
        let names: Vec<String> = (0..16).map(|n| format!("object{n}")).collect();
        for name in &names {
            io.write_full(name.as_str(), Bytes::from_static(b"before")).await.unwrap();
        }
        cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
        let (reader, host) = (cluster.client("client.island").await, world.node("client.island"));
        let island = reader.io_ctx("p").await.unwrap();
        island.read("object0", 0, 0).await.unwrap();
        let pgid = PgId::new(u64::try_from(io.pool_id()).unwrap(), 0);
        let id = admin.osdmap().pg_to_up_acting(pgid).acting_primary;
        let osd = format!("osd.{id}");
        for name in world.names().iter().filter(|name| **name != osd && *name != "client.island") {
            world.partition(&osd, name);
            world.partition("client.island", name);
        }
        let down = json!({"prefix": "osd down", "ids": [id.to_string()]});
        cluster.command(&admin, down).await;
        let grow = json!({"prefix": "osd pool set", "pool": "p", "var": "pg_num", "val": "4"});
        cluster.command(&admin, grow).await;
        let check = |name: String| {
            let (io, island, host) = (io.clone(), island.clone(), host.clone());
            world.node("client.admin").spawn_with_handle(async move {
                io.write_full(name.as_str(), Bytes::from_static(b"after")).await.unwrap();
                // The OSD that is cut off answers, or nobody does.
                let read =
                    host.timeout(Duration::from_secs(1), island.read(name.as_str(), 0, 0)).await;
                if let Ok(read) = read {
                    assert_eq!(&read.unwrap()[..], b"after", "{name}");
                }
            })
        };
        let checks: Vec<_> = names.into_iter().map(check).collect();
        for checked in checks {
            cluster.in_time(&admin, "a write", Duration::from_secs(120), checked).await;
        }
    });
}
