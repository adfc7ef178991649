//! Erasure coded pools in the simulated cluster: single stories, and lives from seeds
//! (`loligo sim --erasure --short` lives the same). `LOLIGO_SIM_SEEDS`, `LOLIGO_SIM_FIRST` and
//! `LOLIGO_SIM_SEED` as in `cluster.rs`.

use std::time::Duration;

use bytes::Bytes;
use denc::Denc;
use serde_json::json;
use sim::{Kill, World};
use simtest::{Cluster, Plan, Settings, live, run};
use store::{CollId, Transaction};
use types::osd::{EcHashInfo, ObjectInfo};
use types::{EVersion, GhObject, HObject, NOSNAP, ObjectLocator, SpgId};

use crate::{log, number};

#[test]
fn lives_with_an_erasure_coded_pool() {
    log();
    let settings = Settings { short: true, erasure: true, ..Settings::default() };
    if let Some(seed) = number("LOLIGO_SIM_SEED") {
        eprintln!("seed {seed}: {:?}", live(seed, &settings));
        return;
    }
    // Debug builds are some twenty times slower.
    let seeds = number("LOLIGO_SIM_SEEDS").unwrap_or(if cfg!(debug_assertions) { 2 } else { 20 });
    let first = number("LOLIGO_SIM_FIRST").unwrap_or(1);
    let sum = run(first..first + seeds, &settings, None, |seed, result| {
        if let Err(failure) = result {
            eprintln!("seed {seed}: {}", failure.what);
        }
        true
    });
    let failed: Vec<u64> = sum.failures.iter().map(|failure| failure.seed).collect();
    assert!(failed.is_empty(), "failed: {failed:?} (LOLIGO_SIM_SEED=N for one of them)");
}

/// Found by merges of PGs under overwrites: an object's bytes had become zeros.
///
/// 1. A shard moves from one OSD to another: while the new one is backfilled, the old one acts, and
///    both are sent what is written to that shard.
/// 2. The write's transaction of the shard was given to the first of them; the other got an empty
///    one, and said that it had the write.
/// 3. The next write of a part of the stripe read what the shard lacked as zeros.
#[test]
fn a_shard_that_moves_gets_what_is_written_on_both_sides() {
    const OBJECTS: usize = 20;
    let world = World::new(21);
    // Slow backfill, so that every object is written while its shard moves.
    let options = "osd_recovery_max_active = 1\nosd_recovery_sleep = 0.1\n\
                   osd_backfill_scan_max = 8\nosd_min_pg_log_entries = 5\n\
                   osd_max_pg_log_entries = 10\nosd_pg_log_trim_min = 1\n\
                   mgr_stats_period = 1\n"
        .to_owned();
    let plan = Plan { osds: 5, options, code: Some((2, 1)), ..Plan::default() };
    let cluster = Cluster::make(&world.control(), plan);
    world.run_until(async move {
        let admin = cluster.start().await;
        cluster.create_pool(&admin, 1).await;
        let io = admin.io_ctx("p").await.unwrap();
        let name = |n: usize| format!("o{n}");
        let mut expected = vec![vec![0_u8; 10_000]; OBJECTS];
        for (n, content) in expected.iter_mut().enumerate() {
            content.fill(1);
            io.write_full(name(n), Bytes::from(content.clone())).await.unwrap();
        }
        cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
        let pool = u64::try_from(io.pool_id()).unwrap();
        let acting = admin.osdmap().pg_to_up_acting(types::PgId::new(pool, 0)).acting;
        let out: Vec<String> = acting.iter().take(2).map(i32::to_string).collect();
        cluster.command(&admin, json!({"prefix": "osd out", "ids": out})).await;
        // Replaced, then a few bytes of each stripe: what else the stripe has must be read.
        for round in 0_u8..2 {
            for (n, content) in expected.iter_mut().enumerate() {
                content.fill(2 + round);
                io.write_full(name(n), Bytes::from(content.clone())).await.unwrap();
                for at in [10, 5_000, 9_000] {
                    content[at..at + 4].fill(100 + round);
                    io.write(name(n), at as u64, Bytes::from(vec![100 + round; 4])).await.unwrap();
                }
            }
        }
        cluster.wait_until_clean(&admin, Duration::from_secs(120)).await;
        for (n, content) in expected.iter().enumerate() {
            let found = io.read(name(n), 0, 0).await.unwrap();
            assert!(found[..] == content[..], "{} is not what was written", name(n));
        }
        cluster.compare_replicas(&admin).await;
    });
}

/// All shards of a PG move at once while a write is on two of three. If `restarts`, recovery begins
/// after those two OSDs have come up anew.
fn all_shards_move(restarts: bool) {
    let world = World::new(22);
    let options = "mgr_stats_period = 1\n".to_owned();
    let plan = Plan { osds: 6, options, code: Some((2, 1)), ..Plan::default() };
    let cluster = Cluster::make(&world.control(), plan);
    world.run_until(async move {
        let world = cluster.world().clone();
        let admin = cluster.start().await;
        cluster.create_pool(&admin, 1).await;
        let io = admin.io_ctx("p").await.unwrap();
        let content = |byte: u8| Bytes::from(vec![byte; 10_000]);
        for object in ["changed", "kept"] {
            io.write_full(object, content(1)).await.unwrap();
        }
        cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
        let pgid = types::PgId::new(u64::try_from(io.pool_id()).unwrap(), 0);
        let acting = admin.osdmap().pg_to_up_acting(pgid).acting;
        world.partition(&format!("osd.{}", acting[0]), &format!("osd.{}", acting[2]));
        let write = {
            let (io, content) = (io.clone(), content(2));
            world.spawn(async move { io.write_full("changed", content).await })
        };
        world.sleep(Duration::from_millis(500)).await;
        let norecover = |verb: &str| json!({"prefix": format!("osd {verb}"), "key": "norecover"});
        cluster.command(&admin, norecover("set")).await;
        let out: Vec<String> = acting.iter().map(i32::to_string).collect();
        cluster.command(&admin, json!({"prefix": "osd out", "ids": out})).await;
        for osd in acting.iter().take(2).filter(|_| restarts) {
            let osd = u32::try_from(*osd).unwrap();
            let last_life = admin.osdmap().up_from(osd as i32);
            cluster.kill_osd(osd, Kill::PROCESS);
            cluster.start_osd(osd);
            cluster.wait_until_reborn(&admin, osd, last_life).await;
        }
        cluster.command(&admin, norecover("unset")).await;
        let limit = Duration::from_secs(60);
        let written = cluster.in_time(&admin, "the write", limit, write).await;
        written.expect("the write is done where the shards went");
        cluster.wait_until_clean(&admin, limit).await;
        let now = admin.osdmap().pg_to_up_acting(pgid).acting;
        assert!(now.iter().all(|osd| !acting.contains(osd)), "{acting:?} moved to {now:?}");
        for (object, byte) in [("changed", 2), ("kept", 1)] {
            assert_eq!(io.read(object, 0, 0).await.unwrap(), content(byte), "{object}");
        }
        // What was kept to undo the last write goes 50 ms after it.
        world.sleep(Duration::from_secs(1)).await;
        cluster.compare_replicas(&admin).await;
    });
}

/// `tests/interop/test_ec.py` found it: the write had not happened, as the third shard showed, but
/// nobody told the two, which did not act any more, to undo it. The object could not be made of one
/// shard, and its next write waited for ever.
#[test]
fn shards_that_all_move_undo_a_write_that_one_of_them_lacks() {
    all_shards_move(false);
}

/// Who does not act told the primary of itself while its OSD was not up in the map yet, which nobody
/// hears, and not again for up to sixteen maps: two of three shards were nowhere to be found.
#[test]
fn shards_on_osds_that_restart_are_found_where_they_were() {
    all_shards_move(true);
}

/// A chunk that had lost its end, outside of the OSD, was filled up with zeros: the read failed with EIO
/// where there was a checksum of the whole object, and gave those zeros where there was none. Now it is
/// made up for by the others, as one that cannot be read is, and made anew.
fn chunk_is_cut(shard: i8, fast_read: bool) {
    let world = World::new(23);
    let plan = Plan { osds: 3, code: Some((2, 1)), ..Plan::default() };
    let cluster = Cluster::make(&world.control(), plan);
    world.run_until(async move {
        let world = cluster.world().clone();
        let admin = cluster.start().await;
        cluster.create_pool(&admin, 1).await;
        let fast = json!({
            "prefix": "osd pool set", "pool": "p", "var": "fast_read",
            "val": u32::from(fast_read).to_string(),
        });
        cluster.command(&admin, fast).await;
        let io = admin.io_ctx("p").await.unwrap();
        let content = Bytes::from(vec![7; 16_384]);
        let names = ["whole", "overwritten", "read-twice"];
        for name in names {
            io.write_full(name, content.clone()).await.unwrap();
        }
        io.write("overwritten", 10, Bytes::from_static(&[7])).await.unwrap();
        cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
        let pgid = types::PgId::new(u64::try_from(io.pool_id()).unwrap(), 0);
        let osd = admin.osdmap().pg_to_up_acting(pgid).acting[usize::try_from(shard).unwrap()];
        let mut damage = Transaction::new();
        for name in names {
            let locator = ObjectLocator { pool: io.pool_id(), ..ObjectLocator::default() };
            let oid = GhObject::from(HObject::new(name, &locator, NOSNAP));
            damage.truncate(&CollId::Pg(SpgId { pgid, shard }), &GhObject { shard, ..oid }, 5000);
        }
        let last_life = admin.osdmap().up_from(osd);
        let osd = u32::try_from(osd).unwrap();
        cluster.change_store(osd, damage).await;
        cluster.start_osd(osd);
        cluster.wait_until_reborn(&admin, osd, last_life).await;
        let limit = Duration::from_secs(60);
        cluster.wait_until_clean(&admin, limit).await;
        for name in names {
            let read = cluster.in_time(&admin, name, limit, io.read(name, 0, 0)).await;
            assert_eq!(read.unwrap(), content, "{name}");
        }
        // The end alone, and written to while the shard may be on its way.
        let read =
            cluster.in_time(&admin, "the end", limit, io.read("read-twice", 16_000, 0)).await;
        assert_eq!(read.unwrap(), content.slice(16_000..));
        let write = io.append("read-twice", content.clone());
        cluster.in_time(&admin, "a write", limit, write).await.unwrap();
        world.sleep(Duration::from_secs(10)).await;
        cluster.wait_until_clean(&admin, limit).await;
        if !fast_read {
            cluster.deep_scrub_all(&admin, limit).await;
            cluster.compare_replicas(&admin).await;
        }
    });
}

#[test]
fn chunks_that_are_cut_are_made_up_for_and_made_anew() {
    chunk_is_cut(0, false);
    chunk_is_cut(1, false);
}

#[test]
fn chunks_that_are_cut_are_no_answer_to_fast_reads() {
    chunk_is_cut(0, true);
    chunk_is_cut(1, true);
}

/// A hash info that was lost or damaged on the primary's shard took the checksums from all shards with the next write of its object:
/// a chunk that was damaged afterwards was found by nobody.
#[test]
fn a_hash_info_that_one_shard_has_lost_is_taken_from_another() {
    const LIMIT: Duration = Duration::from_secs(60);
    let world = World::new(31);
    let plan = Plan { code: Some((2, 1)), ..Plan::default() };
    let cluster = Cluster::make(&world.control(), plan);
    world.run_until(async move {
        let world = cluster.world().clone();
        let admin = cluster.start().await;
        // Without overwrites: there are checksums.
        let profile = json!({
            "prefix": "osd erasure-code-profile set", "name": "e",
            "profile": ["k=2", "m=1", "crush-failure-domain=osd"],
        });
        cluster.command(&admin, profile).await;
        let pool = json!({
            "prefix": "osd pool create", "pool": "p", "pg_num": 1, "pool_type": "erasure",
            "erasure_code_profile": "e", "autoscale_mode": "off",
        });
        cluster.command(&admin, pool).await;
        let io = admin.io_ctx("p").await.unwrap();
        let names = ["lost", "rubbish", "of another length"];
        for name in names {
            io.write_full(name, Bytes::from(vec![7; 16_384])).await.unwrap();
        }
        cluster.wait_until_clean(&admin, LIMIT).await;
        let pgid = types::PgId::new(u64::try_from(io.pool_id()).unwrap(), 0);
        let acting = admin.osdmap().pg_to_up_acting(pgid).acting;
        let at = |name: &str, shard: i8| {
            let locator = ObjectLocator { pool: io.pool_id(), ..ObjectLocator::default() };
            let oid = GhObject::from(HObject::new(name, &locator, NOSNAP));
            (CollId::Pg(SpgId { pgid, shard }), GhObject { shard, ..oid })
        };
        let change = async |shard: usize, change: Transaction| {
            let osd = u32::try_from(acting[shard]).unwrap();
            let last_life = admin.osdmap().up_from(acting[shard]);
            cluster.change_store(osd, change).await;
            cluster.start_osd(osd);
            cluster.wait_until_reborn(&admin, osd, last_life).await;
            cluster.wait_until_clean(&admin, LIMIT).await;
        };
        let mut damage = Transaction::new();
        let (cid, lost) = at("lost", 0);
        damage.rmattr(&cid, &lost, "hinfo_key");
        damage.setattr(&cid, &at("rubbish", 0).1, "hinfo_key", Bytes::from_static(b"rubbish"));
        let shorter = EcHashInfo { total_chunk_size: 4096, cumulative_shard_hashes: vec![1, 2, 3] };
        damage.setattr(&cid, &at("of another length", 0).1, "hinfo_key", shorter.to_bytes());
        change(0, damage).await;
        for name in names {
            io.setxattr(name, "a", b"b").await.unwrap();
        }
        // The checksums tell what becomes of chunks.
        let mut damage = Transaction::new();
        for name in names {
            let (cid, oid) = at(name, 2);
            damage.write(&cid, &oid, 100, Bytes::from_static(b"rot"));
        }
        change(2, damage).await;
        let scrub = json!({"prefix": "pg deep-scrub", "pgid": pgid.to_string()}).to_string();
        admin.mgr_command(scrub, Bytes::new()).await.unwrap();
        let found = async {
            let ask = json!({"prefix": "log last", "num": 100, "level": "debug"});
            loop {
                let log = cluster.command(&admin, ask.clone()).await;
                let log = String::from_utf8_lossy(&log);
                let ended = format!("{pgid} deep-scrub ");
                let end = log
                    .lines()
                    .find(|l| l.contains(&ended) && (l.ends_with(" errors") || l.ends_with(" ok")));
                if let Some(end) = end {
                    return end.to_owned();
                }
                world.sleep(Duration::from_secs(1)).await;
            }
        };
        let end = cluster.in_time(&admin, "a deep scrub", LIMIT, found).await;
        assert!(end.ends_with(&format!("{pgid} deep-scrub 3 errors")), "{end}");
    });
}

/// What another shard was to be made of turned out to be damaged: it was passed over, and stayed damaged until a scrub
/// or a read met it. Ceph makes it anew, too (`PrimaryLogPG::on_failed_pull`).
#[test]
fn damaged_shards_that_others_are_made_of_are_made_anew() {
    const LIMIT: Duration = Duration::from_secs(60);
    for by_log in [true, false] {
        let world = World::new(24);
        let options = "osd_min_pg_log_entries = 3\nosd_max_pg_log_entries = 10\n\
                       osd_pg_log_trim_min = 1\n"
            .to_owned();
        let plan = Plan { osds: 4, code: Some((2, 2)), options, ..Plan::default() };
        let cluster = Cluster::make(&world.control(), plan);
        world.run_until(async move {
            let admin = cluster.start().await;
            cluster.create_pool(&admin, 1).await;
            let io = admin.io_ctx("p").await.unwrap();
            let content = |byte: u8| Bytes::from(vec![byte; 16_384]);
            let names = ["cut", "without info", "sound"];
            for name in names {
                io.write_full(name, content(1)).await.unwrap();
            }
            cluster.wait_until_clean(&admin, LIMIT).await;
            let pgid = types::PgId::new(u64::try_from(io.pool_id()).unwrap(), 0);
            let acting = admin.osdmap().pg_to_up_acting(pgid).acting;
            let [damaged, last] = [acting[1], acting[3]].map(|osd| u32::try_from(osd).unwrap());
            cluster.kill_osd(last, Kill::PROCESS);
            for name in names {
                io.write_full(name, content(2)).await.unwrap();
            }
            // More than the log holds.
            for n in 0..if by_log { 0 } else { 20 } {
                io.write_full(format!("o{n}"), content(3)).await.unwrap();
            }
            cluster.command(&admin, json!({"prefix": "osd set", "key": "norecover"})).await;
            cluster.command(&admin, json!({"prefix": "osd set", "key": "nobackfill"})).await;
            let object = |name: &str| {
                let locator = ObjectLocator { pool: io.pool_id(), ..ObjectLocator::default() };
                let oid = GhObject::from(HObject::new(name, &locator, NOSNAP));
                GhObject { shard: 1, ..oid }
            };
            let cid = CollId::Pg(SpgId { pgid, shard: 1 });
            let mut damage = Transaction::new();
            damage.truncate(&cid, &object("cut"), 5000);
            damage.setattr(&cid, &object("without info"), "_", Bytes::from_static(b"rubbish"));
            let last_life = admin.osdmap().up_from(acting[1]);
            cluster.change_store(damaged, damage).await;
            cluster.start_osd(damaged);
            cluster.start_osd(last);
            cluster.wait_until_reborn(&admin, damaged, last_life).await;
            cluster.command(&admin, json!({"prefix": "osd unset", "key": "norecover"})).await;
            cluster.command(&admin, json!({"prefix": "osd unset", "key": "nobackfill"})).await;
            cluster.wait_until_clean(&admin, LIMIT).await;
            cluster.compare_replicas(&admin).await;
        });
    }
}

/// Parts of shards were multiples of 4096 bytes, which some codes' pieces do not divide: what took more than one part did
/// not decode, and stayed missing for ever.
#[test]
fn codes_of_packets_rebuild_objects_of_several_parts() {
    const LIMIT: Duration = Duration::from_secs(60);
    let codes: [&[&str]; 2] =
        [&["technique=cauchy_good", "k=3", "m=2"], &["technique=liberation", "k=3", "m=2", "w=7"]];
    for keys in codes {
        let world = World::new(25);
        let options = "osd_recovery_max_chunk = 65536\n".to_owned();
        let plan = Plan { osds: 5, code: Some((3, 2)), options, ..Plan::default() };
        let cluster = Cluster::make(&world.control(), plan);
        world.run_until(async move {
            let admin = cluster.start().await;
            cluster.create_coded_pool(&admin, 1, keys).await;
            let io = admin.io_ctx("p").await.unwrap();
            io.write_full("o", Bytes::from_static(&[1; 100])).await.unwrap();
            cluster.wait_until_clean(&admin, LIMIT).await;
            let pgid = types::PgId::new(u64::try_from(io.pool_id()).unwrap(), 0);
            let acting = admin.osdmap().pg_to_up_acting(pgid).acting;
            let last = u32::try_from(acting[4]).unwrap();
            let last_life = admin.osdmap().up_from(acting[4]);
            cluster.kill_osd(last, Kill::PROCESS);
            let content: Vec<u8> = (0..1_000_000_u32).map(|n| (n / 7) as u8).collect();
            io.write_full("o", Bytes::from(content)).await.unwrap();
            cluster.start_osd(last);
            cluster.wait_until_reborn(&admin, last, last_life).await;
            cluster.wait_until_clean(&admin, LIMIT).await;
            cluster.compare_replicas(&admin).await;
        });
    }
}

/// Only sources of an object's first part had their versions looked at. One that joined later, since another turned out to be
/// damaged, gave what it had of another version, and the shard was made of both.
#[test]
fn a_source_that_joins_later_has_the_version_too() {
    const LIMIT: Duration = Duration::from_secs(60);
    const CHUNK: usize = 262_144;
    let world = World::new(26);
    let options = "osd_recovery_max_chunk = 65536\n".to_owned();
    let plan = Plan { osds: 5, code: Some((2, 2)), options, ..Plan::default() };
    let cluster = Cluster::make(&world.control(), plan);
    world.run_until(async move {
        let admin = cluster.start().await;
        cluster.create_pool(&admin, 1).await;
        let io = admin.io_ctx("p").await.unwrap();
        io.write_full("o", Bytes::from(vec![1; 2 * CHUNK])).await.unwrap();
        cluster.wait_until_clean(&admin, LIMIT).await;
        let pgid = types::PgId::new(u64::try_from(io.pool_id()).unwrap(), 0);
        let acting = admin.osdmap().pg_to_up_acting(pgid).acting;
        let osd = |shard: usize| u32::try_from(acting[shard]).unwrap();
        cluster.kill_osd(osd(2), Kill::PROCESS);
        io.write_full("o", Bytes::from(vec![2; 2 * CHUNK])).await.unwrap();
        cluster.command(&admin, json!({"prefix": "osd set", "key": "norecover"})).await;
        let change = async |shard: i8, change: &dyn Fn(&mut Transaction, &CollId, &GhObject)| {
            let locator = ObjectLocator { pool: io.pool_id(), ..ObjectLocator::default() };
            let oid = GhObject::from(HObject::new("o", &locator, NOSNAP));
            let mut transaction = Transaction::new();
            change(
                &mut transaction,
                &CollId::Pg(SpgId { pgid, shard }),
                &GhObject { shard, ..oid },
            );
            let osd = osd(usize::try_from(shard).unwrap());
            let last_life = admin.osdmap().up_from(osd as i32);
            cluster.change_store(osd, transaction).await;
            cluster.start_osd(osd);
            cluster.wait_until_reborn(&admin, osd, last_life).await;
        };
        // Shard 1 lacks its second part, and shard 3 is of before.
        change(1, &|t, cid, oid| {
            t.truncate(cid, oid, 100_000);
        })
        .await;
        change(3, &|t, cid, oid| {
            let info =
                ObjectInfo { version: EVersion::new(1, 1), ..ObjectInfo::new(oid.hobj.clone()) };
            t.setattr(cid, oid, "_", info.to_bytes());
            t.write(cid, oid, 0, Bytes::from(vec![1; CHUNK]));
        })
        .await;
        cluster.start_osd(osd(2));
        cluster.wait_until_up(&admin).await;
        cluster.command(&admin, json!({"prefix": "osd unset", "key": "norecover"})).await;
        cluster.world().sleep(Duration::from_secs(10)).await;
        let stat = admin.mgr_command(r#"{"prefix": "pg stat"}"#.to_owned(), Bytes::new()).await;
        let stat = String::from_utf8_lossy(&stat.unwrap().outb).into_owned();
        assert!(stat.contains("unfound"), "{stat}");
        // Shard 1 is found again.
        change(1, &|t, cid, oid| {
            t.write(cid, oid, 0, Bytes::from(vec![2; CHUNK]));
        })
        .await;
        cluster.wait_until_clean(&admin, LIMIT).await;
        let repair = json!({"prefix": "pg repair", "pgid": pgid.to_string()});
        admin.mgr_command(repair.to_string(), Bytes::new()).await.unwrap();
        cluster.world().sleep(Duration::from_secs(10)).await;
        cluster.wait_until_clean(&admin, LIMIT).await;
        cluster.compare_replicas(&admin).await;
    });
}

/// A shard that a fast read no longer waits for read its data, was written to, and read what the hash info is then: the cluster's log told
/// of damage that there was not.
#[test]
fn fast_reads_that_overlap_with_writes_tell_of_no_damage() {
    let world = World::new(35);
    let cluster = Cluster::make(&world.control(), Plan { code: Some((2, 1)), ..Plan::default() });
    world.run_until(async move {
        let world = cluster.world().clone();
        let admin = cluster.start().await;
        cluster.create_pool(&admin, 1).await;
        // Without overwrites, where what was written once has a hash.
        let pool = json!({
            "prefix": "osd pool create", "pool": "q", "pg_num": 1, "pool_type": "erasure",
            "erasure_code_profile": "e", "autoscale_mode": "off",
        });
        cluster.command(&admin, pool).await;
        let fast = json!({"prefix": "osd pool set", "pool": "q", "var": "fast_read", "val": "1"});
        cluster.command(&admin, fast).await;
        cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
        let io = admin.io_ctx("q").await.unwrap();
        let pgid = types::PgId::new(u64::try_from(io.pool_id()).unwrap(), 0);
        let last = *admin.osdmap().pg_to_up_acting(pgid).acting.last().unwrap();
        cluster.slow_reads(u32::try_from(last).unwrap(), Duration::from_millis(40));
        for round in 0_u8..100 {
            // Chunks that differ: the coded one, which is the slow one, does as well.
            let content = [[round; 4096], [!round / 2; 4096]].concat().repeat(2);
            io.write_full("o", Bytes::from(content.clone())).await.unwrap();
            assert_eq!(io.read("o", 0, 0).await.unwrap(), content);
            io.remove("o").await.unwrap();
        }
        world.sleep(Duration::from_secs(5)).await;
        let log = json!({"prefix": "log last", "num": 500, "level": "debug"});
        let log = String::from_utf8(cluster.command(&admin, log).await.to_vec()).unwrap();
        assert!(!log.contains("hash info"), "{log}");
    });
}
