//! Whose turn it is to be scrubbed, and what clients write meanwhile.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use client::{Client, ClientError, IoCtx, Operation};
use serde_json::json;
use sim::{Kill, World};
use simtest::{Cluster, Plan};
use store::{CollId, Transaction};
use types::{Errno, GhObject, HObject, NOSNAP, ObjectLocator};

/// Found by `loligo sim --seed 1197 --faults grow,shrink,snaps,remove,rot,osd,power,mon --short`:
/// 1.c to 1.f of 24 placement groups were not deep scrubbed within 300 s of being asked to.
///
/// 1. An OSD takes part in one scrub at a time, and each of its placement groups is due every few seconds.
/// 2. Once a second the OSD looked at its placement groups in the order of their numbers: the first
///    that was due took the slot.
/// 3. There were enough of low numbers to take it every time. The others were never scrubbed, whoever
///    asked for it.
/// 4. With turns taken in order two were left: OSDs that had started together looked at the same moment
///    of every second, each took its own slot, and each refused the other one.
#[test]
fn placement_groups_that_are_due_all_the_time_do_not_keep_the_slot_from_others() {
    let world = World::new(3);
    let options = "osd_scrub_min_interval = 2\nosd_deep_scrub_interval = 4\n".to_owned();
    let cluster = Cluster::make(&world.control(), Plan { options, ..Plan::default() });
    world.run_until(async move {
        let admin = cluster.start().await;
        let pool = json!({"prefix": "osd pool create", "pool": "p", "pg_num": 32, "autoscale_mode": "off"});
        cluster.command(&admin, pool).await;
        cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
        cluster.deep_scrub_all(&admin, Duration::from_secs(120)).await;
    });
}

/// A deep scrub takes checksums of objects that have none and records them, each with a write of its own, after it has
/// let clients write again: what a client wrote meanwhile got the checksum of what was there before, and no copy of it
/// could be read.
#[test]
fn checksums_of_what_was_before_are_not_recorded() {
    let world = World::new(24);
    let options = "osd_deep_scrub_update_digest_min_age = 0\nosd_scrub_chunk_max = 25\n".to_owned();
    let cluster = Cluster::make(&world.control(), Plan { options, ..Plan::default() });
    world.run_until(async move {
        let world = cluster.world().clone();
        let admin = cluster.start().await;
        cluster.create_pool(&admin, 1).await;
        let io = admin.io_ctx("p").await.unwrap();
        let busy = Rc::new(Cell::new(true));
        // Written in part: without a checksum of the whole.
        let write = async |io: &IoCtx, n: usize, byte: u8| {
            io.write(format!("o{n}"), 100, Bytes::from(vec![byte; 2000])).await.unwrap();
        };
        for n in 0..25 {
            io.write_full(format!("o{n}"), Bytes::from(vec![0; 3000])).await.unwrap();
            write(&io, n, 0).await;
        }
        world.sleep(Duration::from_secs(3)).await;
        let writers: Vec<_> = (0..25)
            .map(|n| {
                let (io, busy, world) = (io.clone(), busy.clone(), world.clone());
                world.clone().spawn(async move {
                    let mut byte = 1_u8;
                    while busy.get() {
                        write(&io, n, byte).await;
                        byte = byte.wrapping_add(1);
                        // Old enough for a checksum, now and then.
                        world.sleep(Duration::from_millis(1500 + 100 * n as u64)).await;
                    }
                    byte.wrapping_sub(1)
                })
            })
            .collect();
        for _ in 0..20 {
            cluster.deep_scrub_all(&admin, Duration::from_secs(60)).await;
        }
        busy.set(false);
        for (n, writer) in writers.into_iter().enumerate() {
            let byte = writer.await;
            let read = cluster.in_time(
                &admin,
                "a read",
                Duration::from_secs(20),
                io.read(format!("o{n}"), 0, 0),
            );
            let mut expected = vec![0; 3000];
            expected[100..2100].fill(byte);
            assert_eq!(read.await.unwrap(), expected, "o{n}");
        }
        cluster.deep_scrub_all(&admin, Duration::from_secs(60)).await;
        cluster.compare_replicas(&admin).await;
    });
}

/// A scrub notes a damaged copy when it has gone through all of the PG. An object that a client had changed since was to
/// be fetched in the version of before, which nobody has: it was unfound, though all others had it.
#[test]
fn what_is_written_before_its_repair_is_found() {
    let world = World::new(25);
    let options =
        "osd_scrub_chunk_min = 1\nosd_scrub_chunk_max = 1\nosd_scrub_sleep = 0.5\n".to_owned();
    let cluster = Cluster::make(&world.control(), Plan { options, ..Plan::default() });
    world.run_until(async move {
        let world = cluster.world().clone();
        let admin = cluster.start().await;
        cluster.create_pool(&admin, 1).await;
        let io = admin.io_ctx("p").await.unwrap();
        let names: Vec<String> = (0..8).map(|n| format!("o{n}")).collect();
        for name in &names {
            io.write_full(name.clone(), Bytes::from_static(b"as it was written")).await.unwrap();
        }
        cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
        let pgid = types::PgId::new(u64::try_from(io.pool_id()).unwrap(), 0);
        let primary = admin.osdmap().pg_to_up_acting(pgid).acting_primary;
        let mut damage = Transaction::new();
        for name in &names {
            let locator = ObjectLocator { pool: io.pool_id(), ..ObjectLocator::default() };
            let oid = GhObject::from(HObject::new(name.as_str(), &locator, NOSNAP));
            damage.write(&CollId::Pg(pgid.spg()), &oid, 0, Bytes::from_static(b"rubbish"));
        }
        let before = admin.osdmap().up_from(primary);
        cluster.change_store(u32::try_from(primary).unwrap(), damage).await;
        cluster.start_osd(u32::try_from(primary).unwrap());
        while admin.osdmap().up_from(primary) == before {
            world.sleep(Duration::from_millis(100)).await;
            admin.wait_for_latest_osdmap().await.unwrap();
        }
        cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
        let repair = json!({"prefix": "pg repair", "pgid": pgid.to_string()}).to_string();
        let begun = admin.mgr_command(repair, Bytes::new()).await.unwrap();
        assert_eq!(begun.rc, 0, "{}", begun.outs);
        // One object after the other is looked at meanwhile.
        for round in 0..40_u8 {
            world.sleep(Duration::from_millis(200)).await;
            for name in names.iter().step_by(2) {
                // Changes no data: of what has no checksum the primary's copy counts.
                io.setxattr(name.clone(), "round", &[round; 4]).await.unwrap();
            }
            if round % 10 == 9 {
                io.remove(names[usize::from(round / 10 * 2 + 1)].clone()).await.unwrap();
            }
        }
        world.sleep(Duration::from_secs(20)).await;
        cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
        for name in names.iter().step_by(2) {
            let read = cluster.in_time(
                &admin,
                "a read",
                Duration::from_secs(20),
                io.read(name.clone(), 0, 0),
            );
            assert_eq!(&read.await.unwrap()[..], b"as it was written", "{name}");
        }
        cluster.compare_replicas(&admin).await;
    });
}

/// An OSD told nobody of copies that were repaired on it: `num_shards_repaired` stayed 0, and OSD_TOO_MANY_REPAIRS never came of it
/// (`qa/standalone/scrub/osd-scrub-repair.sh`, `TEST_repair_stats`).
#[test]
fn repaired_copies_are_counted_where_they_were_repaired() {
    let world = World::new(26);
    let cluster = Cluster::make(&world.control(), Plan::default());
    world.run_until(async move {
        let world = cluster.world().clone();
        let admin = cluster.start().await;
        cluster.create_pool(&admin, 1).await;
        let io = admin.io_ctx("p").await.unwrap();
        for n in 0..9 {
            io.write_full(format!("o{n}"), Bytes::from_static(b"as it was written")).await.unwrap();
        }
        cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
        let pgid = types::PgId::new(u64::try_from(io.pool_id()).unwrap(), 0);
        let acting = admin.osdmap().pg_to_up_acting(pgid).acting;
        // Two copies of the primary's are gone, three of the next one's.
        for (osd, lost) in [(acting[0], 0..2), (acting[1], 4..7)] {
            let mut damage = Transaction::new();
            for n in lost {
                let locator = ObjectLocator { pool: io.pool_id(), ..ObjectLocator::default() };
                let name = format!("o{n}");
                let oid = GhObject::from(HObject::new(name.as_str(), &locator, NOSNAP));
                damage.remove(&CollId::Pg(pgid.spg()), &oid);
            }
            let before = admin.osdmap().up_from(osd);
            cluster.change_store(u32::try_from(osd).unwrap(), damage).await;
            cluster.start_osd(u32::try_from(osd).unwrap());
            while admin.osdmap().up_from(osd) == before {
                world.sleep(Duration::from_millis(100)).await;
                admin.wait_for_latest_osdmap().await.unwrap();
            }
        }
        cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
        let repair = json!({"prefix": "pg repair", "pgid": pgid.to_string()}).to_string();
        let begun = admin.mgr_command(repair, Bytes::new()).await.unwrap();
        assert_eq!(begun.rc, 0, "{}", begun.outs);
        let repaired = async || {
            let dump = json!({"prefix": "pg dump", "format": "json"}).to_string();
            let dump = admin.mgr_command(dump, Bytes::new()).await.unwrap();
            let dump: serde_json::Value = serde_json::from_slice(&dump.outb).unwrap();
            let mut counts = vec![0; acting.len()];
            for stat in dump["pg_map"]["osd_stats"].as_array().unwrap() {
                let at = acting.iter().position(|osd| stat["osd"] == *osd);
                if let Some(at) = at {
                    counts[at] = stat["num_shards_repaired"].as_u64().unwrap();
                }
            }
            counts
        };
        let mut seconds = 0;
        while repaired().await != [2, 3, 0] {
            assert!(seconds < 60, "{:?}", repaired().await);
            seconds += 1;
            world.sleep(Duration::from_secs(1)).await;
        }
    });
}

/// A scrub asked the log whether a write had come while a chunk was scanned. A busy placement group's log had forgotten that
/// write by then: copies in different versions were compared, and healthy ones were called damaged (HEALTH_ERR).
#[test]
fn writes_that_the_log_has_forgotten_are_seen_by_a_scrub() {
    let world = World::new(26);
    let options = "osd_min_pg_log_entries = 1\nosd_pg_log_trim_min = 1\nosd_scrub_chunk_max = 25\n"
        .to_owned();
    let plan = Plan { options, reads_take: Duration::from_millis(20), ..Plan::default() };
    let cluster = Cluster::make(&world.control(), plan);
    world.run_until(async move {
        let world = cluster.world().clone();
        let admin = cluster.start().await;
        cluster.create_pool(&admin, 1).await;
        let io = admin.io_ctx("p").await.unwrap();
        let busy = Rc::new(Cell::new(true));
        let writers: Vec<_> = (0..12_u64)
            .map(|n| {
                let (io, busy, world) = (io.clone(), busy.clone(), world.clone());
                world.clone().spawn(async move {
                    for byte in (0..=255).cycle() {
                        io.write_full(format!("o{n}"), Bytes::from(vec![byte; 3000]))
                            .await
                            .unwrap();
                        world.sleep(Duration::from_millis(50 + 10 * n)).await;
                        if !busy.get() {
                            break;
                        }
                    }
                })
            })
            .collect();
        for _ in 0..5 {
            cluster.deep_scrub_all(&admin, Duration::from_secs(120)).await;
        }
        busy.set(false);
        for writer in writers {
            writer.await;
        }
        cluster.compare_replicas(&admin).await;
    });
}

/// A scrub that could not be put off any more let the writes of its chunk wait. When one came that had begun before, it scanned
/// a smaller chunk: writes of the rest went on, and passed older ones of the same objects that still waited.
#[test]
fn writes_do_not_pass_those_that_wait_for_a_scrub() {
    let world = World::new(27);
    let options = "osd_scrub_max_preemptions = 0\nosd_scrub_chunk_max = 25\n".to_owned();
    // Shards are read before they are overwritten.
    let (code, reads_take) = (Some((2, 1)), Duration::from_millis(20));
    let plan = Plan { options, code, reads_take, ..Plan::default() };
    let cluster = Cluster::make(&world.control(), plan);
    world.run_until(async move {
        let world = cluster.world().clone();
        let admin = cluster.start().await;
        cluster.create_pool(&admin, 1).await;
        let io = admin.io_ctx("p").await.unwrap();
        let busy = Rc::new(Cell::new(true));
        let clients: Vec<_> = (0..16)
            .map(|n| {
                let (io, busy, world) = (io.clone(), busy.clone(), world.clone());
                world.clone().spawn(async move {
                    let done = Rc::new(RefCell::new(Vec::new()));
                    let mut under_way = Vec::new();
                    while busy.get() {
                        let (io, done, number) = (io.clone(), done.clone(), under_way.len() as u64);
                        under_way.push(world.spawn(async move {
                            // Reads what it changes first.
                            io.write(format!("o{n}"), number % 3000, Bytes::from(vec![1; 100]))
                                .await
                                .unwrap();
                            done.borrow_mut().push(number);
                        }));
                        world.sleep(Duration::from_millis(7)).await;
                    }
                    for write in under_way {
                        write.await;
                    }
                    assert!(done.borrow().is_sorted(), "o{n}");
                })
            })
            .collect();
        for _ in 0..4 {
            cluster.deep_scrub_all(&admin, Duration::from_secs(120)).await;
        }
        busy.set(false);
        for client in clients {
            client.await;
        }
    });
}

/// A repair scrub ended while objects it had found damaged were overwritten.
///
/// 1. A write finds that no copy of its object is missing, and reads what it needs before it has a version.
/// 2. The scrub ends: a damaged copy is noted as missing, in the version of before the write.
/// 3. The write gets its version, and all copies get the write.
/// 4. The version of before is fetched, which nobody has any more: the object was unfound and took no writes, and the
///    one command that is offered then takes it away.
///
/// If the log has forgotten what came `meanwhile`, that comes before the scrub ends, and only others are written then.
fn what_is_written_before_its_repair_begins_is_found(
    code: Option<(u32, u32)>,
    meanwhile: Meanwhile,
) {
    let forgets = meanwhile != Meanwhile::Written;
    const OBJECTS: usize = 16;
    const LIMIT: Duration = Duration::from_secs(60);
    let world = World::new(28);
    let options = "osd_scrub_chunk_min = 1\nosd_scrub_chunk_max = 1\nosd_scrub_sleep = 0.5\n";
    let short = "osd_min_pg_log_entries = 1\nosd_max_pg_log_entries = 2\nosd_pg_log_trim_min = 1\n\
                 osd_scrub_max_preemptions = 1\n";
    let options = options.to_owned() + if forgets { short } else { "" };
    let cluster = Cluster::make(&world.control(), Plan { options, code, ..Plan::default() });
    world.run_until(async move {
        let world = cluster.world().clone();
        let admin = cluster.start().await;
        cluster.create_pool(&admin, 1).await;
        let io = admin.io_ctx("p").await.unwrap();
        let locator = ObjectLocator { pool: io.pool_id(), ..ObjectLocator::default() };
        let mut names: Vec<String> = (0..OBJECTS).map(|n| format!("o{n}")).collect();
        // As a scrub goes through them.
        names.sort_by_key(|name| HObject::new(name.as_str(), &locator, NOSNAP));
        for name in &names {
            io.write_full(name.clone(), Bytes::from(vec![1; 10_000])).await.unwrap();
        }
        cluster.wait_until_clean(&admin, LIMIT).await;
        let pgid = types::PgId::new(u64::try_from(io.pool_id()).unwrap(), 0);
        let acting = admin.osdmap().pg_to_up_acting(pgid).acting;
        // The first half: the primary's copies, or the shards that hold no data, which no write reads.
        let damaged = names[..OBJECTS / 2].to_vec();
        let (osd, shard) = code.map_or((acting[0], 0), |(k, _)| (acting[k as usize], k));
        for name in &damaged {
            let inject =
                json!({"prefix": "injectdataerr", "pool": "p", "objname": name, "shardid": shard});
            let done = admin.osd_command(osd, inject.to_string(), Bytes::new()).await.unwrap();
            assert_eq!(&done.outb[..], b"ok");
        }
        let logged = async |what: String| {
            let ask = json!({"prefix": "log last", "num": 500, "level": "debug"});
            let told = async {
                loop {
                    let log = cluster.command(&admin, ask.clone()).await;
                    if String::from_utf8_lossy(&log).contains(&what) {
                        return;
                    }
                    world.sleep(Duration::from_millis(100)).await;
                }
            };
            cluster.in_time(&admin, &what, LIMIT, told).await;
        };
        let repair = json!({"prefix": "pg repair", "pgid": pgid.to_string()}).to_string();
        let begun = admin.mgr_command(repair, Bytes::new()).await.unwrap();
        assert_eq!(begun.rc, 0, "{}", begun.outs);
        logged(format!(":::{}:head : candidate had a read error", damaged.last().unwrap())).await;
        // What a write reads takes its time from now on.
        cluster.slow_reads(u32::try_from(acting[0]).unwrap(), Duration::from_millis(400));
        let busy = Rc::new(Cell::new(true));
        let writers: Vec<_> = names
            .iter()
            .enumerate()
            .take(if forgets { OBJECTS } else { damaged.len() })
            .map(|(n, name)| {
                let (io, busy, name) = (io.clone(), busy.clone(), name.clone());
                let once = forgets && n < OBJECTS / 2;
                world.spawn(async move {
                    let mut byte = 1_u8;
                    if once && meanwhile == Meanwhile::RemovedAndForgotten {
                        io.remove(name).await.unwrap();
                        return None;
                    }
                    while busy.get() && !(once && byte > 1) {
                        byte = byte.wrapping_add(1);
                        let mut op = Operation::new();
                        if code.is_none() {
                            op = op.omap_get_vals(&"".into(), 1, &"".into());
                            op = op
                                .omap_set(&BTreeMap::from([("k".into(), Bytes::from(vec![byte]))]));
                        }
                        io.operate(name.clone(), op.write(100, Bytes::from(vec![byte; 50])))
                            .await
                            .unwrap();
                    }
                    Some(byte)
                })
            })
            .collect();
        logged(format!("{} errors, {} fixed", damaged.len(), damaged.len())).await;
        busy.set(false);
        for (name, writer) in names.iter().zip(writers) {
            let byte = cluster.in_time(&admin, "the last write", LIMIT, writer).await;
            let read = io.read(name.clone(), 0, 0);
            let read = cluster.in_time(&admin, "a read", LIMIT, read).await;
            let Some(byte) = byte else {
                assert_eq!(read, Err(ClientError::Errno(Errno::ENOENT)), "{name}");
                continue;
            };
            let mut expected = vec![1; 10_000];
            expected[100..150].fill(byte);
            assert!(read.unwrap()[..] == expected[..], "{name} is not what was written");
        }
        cluster.wait_until_clean(&admin, LIMIT).await;
        cluster.slow_reads(u32::try_from(acting[0]).unwrap(), Duration::ZERO);
        world.sleep(Duration::from_secs(1)).await;
        cluster.compare_replicas(&admin).await;
    });
}

#[test]
fn objects_that_are_being_written_when_their_repair_begins_are_found() {
    what_is_written_before_its_repair_begins_is_found(None, Meanwhile::Written);
}

#[test]
fn shards_that_are_being_written_when_their_repair_begins_are_found() {
    what_is_written_before_its_repair_begins_is_found(Some((2, 1)), Meanwhile::Written);
}

/// A busy placement group's log has forgotten by the end of a scrub which version an object got meanwhile: the one that the
/// scrub had seen was to be fetched.
#[test]
fn what_was_written_before_its_repair_and_is_forgotten_by_the_log_is_found() {
    for code in [None, Some((2, 1))] {
        what_is_written_before_its_repair_begins_is_found(code, Meanwhile::WrittenAndForgotten);
    }
}

/// A busy placement group's log has forgotten by the end of a scrub that an object was removed meanwhile: what nobody has any
/// more was to be fetched, and the object that was gone was unfound for ever.
#[test]
fn what_was_removed_before_its_repair_and_is_forgotten_by_the_log_is_not_looked_for() {
    for code in [None, Some((2, 1))] {
        what_is_written_before_its_repair_begins_is_found(code, Meanwhile::RemovedAndForgotten);
    }
}

/// What becomes of a damaged object between the scrub of it and its repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meanwhile {
    Written,
    WrittenAndForgotten,
    RemovedAndForgotten,
}

/// A repair that had been asked for ended without a word when a client read one of the damaged objects meanwhile, which is fetched
/// anew at once, or when the interval changed: the others stayed damaged. So did every scrub that had been asked for.
fn repair_that_is_stopped_begins_anew(by_interval: bool) {
    const LIMIT: Duration = Duration::from_secs(120);
    let world = World::new(29);
    let sleep = if by_interval { 3.0 } else { 0.05 };
    let options =
        format!("osd_scrub_chunk_max = 3\nosd_scrub_sleep = {sleep}\nosd_heartbeat_grace = 6\n");
    let plan = Plan { options, ..Plan::default() };
    let cluster = Cluster::make(&world.control(), plan);
    world.run_until(async move {
        let world = cluster.world().clone();
        let admin = cluster.start().await;
        cluster.create_pool(&admin, 1).await;
        let io = admin.io_ctx("p").await.unwrap();
        let locator = ObjectLocator { pool: io.pool_id(), ..ObjectLocator::default() };
        let mut names: Vec<String> = (0..10).map(|n| format!("o{n}")).collect();
        // As a scrub goes through them.
        names.sort_by_key(|name| HObject::new(name.as_str(), &locator, NOSNAP));
        for name in &names {
            io.write_full(name.clone(), Bytes::from_static(b"as it was written")).await.unwrap();
        }
        cluster.wait_until_clean(&admin, LIMIT).await;
        let pgid = types::PgId::new(u64::try_from(io.pool_id()).unwrap(), 0);
        let acting = admin.osdmap().pg_to_up_acting(pgid).acting;
        let [primary, follower] = [acting[0], acting[1]].map(|osd| u32::try_from(osd).unwrap());
        let mut damage = Transaction::new();
        for name in &names {
            let oid = GhObject::from(HObject::new(name.as_str(), &locator, NOSNAP));
            damage.write(&CollId::Pg(pgid.spg()), &oid, 0, Bytes::from_static(b"rubbish"));
        }
        let last_life = admin.osdmap().up_from(acting[0]);
        cluster.change_store(primary, damage).await;
        cluster.start_osd(primary);
        cluster.wait_until_reborn(&admin, primary, last_life).await;
        cluster.wait_until_clean(&admin, LIMIT).await;
        let repair = json!({"prefix": "pg repair", "pgid": pgid.to_string()}).to_string();
        let begun = admin.mgr_command(repair, Bytes::new()).await.unwrap();
        assert_eq!(begun.rc, 0, "{}", begun.outs);
        logged(&cluster, &admin, &format!("{pgid} repair starts")).await;
        if by_interval {
            let last_life = admin.osdmap().up_from(acting[1]);
            cluster.kill_osd(follower, Kill::PROCESS);
            world.sleep(Duration::from_secs(1)).await;
            cluster.start_osd(follower);
            cluster.wait_until_reborn(&admin, follower, last_life).await;
        } else {
            // The scrub looks whether the PG is clean while one of them is on its way.
            for osd in &acting[1..] {
                cluster.slow_reads(u32::try_from(*osd).unwrap(), Duration::from_millis(400));
            }
            for name in names[4..].iter().rev() {
                let read = io.read(name.clone(), 0, 0);
                let read = cluster.in_time(&admin, "a read", LIMIT, read).await.unwrap();
                assert_eq!(&read[..], b"as it was written");
            }
        }
        logged(&cluster, &admin, " fixed").await;
        let log = log_of(&cluster, &admin).await;
        assert!(log.matches(&format!("{pgid} repair starts")).count() > 1, "{log}");
        cluster.wait_until_clean(&admin, LIMIT).await;
        cluster.compare_replicas(&admin).await;
    });
}

/// Waits until the cluster log has a line with `what`.
async fn logged(cluster: &Cluster, admin: &Client, what: &str) {
    let told = async {
        while !log_of(cluster, admin).await.contains(what) {
            cluster.world().sleep(Duration::from_millis(100)).await;
        }
    };
    cluster.in_time(admin, what, Duration::from_secs(120), told).await;
}

/// The cluster log's last lines.
async fn log_of(cluster: &Cluster, admin: &Client) -> String {
    let ask = json!({"prefix": "log last", "num": 500, "level": "debug"});
    String::from_utf8_lossy(&cluster.command(admin, ask).await).into_owned()
}

#[test]
fn a_repair_goes_on_after_a_read_of_a_damaged_object() {
    repair_that_is_stopped_begins_anew(false);
}

#[test]
fn a_repair_goes_on_after_a_change_of_the_interval() {
    repair_that_is_stopped_begins_anew(true);
}

/// While an OSD recovered, it began scrubs that had been asked for, and took part in those of others; `osd_repair_during_recovery`
/// did nothing. Ceph lets all scrubs wait, but for repairs that are asked for where that option is set (`OSD::sched_scrub`,
/// `PgScrubber::handle_scrub_reserve_request`).
#[test]
fn scrubs_wait_until_their_osds_have_recovered() {
    const LIMIT: Duration = Duration::from_secs(300);
    let world = World::new(30);
    let options = "osd_heartbeat_grace = 6\nosd_recovery_max_active = 1\n\
                   osd_recovery_max_active_ssd = 1\nosd_recovery_sleep = 5\nosd_max_scrubs = 20\n";
    let plan =
        Plan { osds: 4, size: 2, min_size: 1, options: options.to_owned(), ..Plan::default() };
    let cluster = Cluster::make(&world.control(), plan);
    world.run_until(async move {
        let world = cluster.world().clone();
        let admin = cluster.start().await;
        cluster.create_pool(&admin, 1).await;
        let pool = json!({
            "prefix": "osd pool create", "pool": "others", "pg_num": 32, "autoscale_mode": "off",
        });
        cluster.command(&admin, pool).await;
        cluster.wait_until_clean(&admin, LIMIT).await;
        let io = admin.io_ctx("p").await.unwrap();
        let acting_of = |pool: i64, seed| {
            let pgid = types::PgId::new(u64::try_from(pool).unwrap(), seed);
            (pgid, admin.osdmap().pg_to_up_acting(pgid).acting)
        };
        let (recovers, acting) = acting_of(io.pool_id(), 0);
        let lost = u32::try_from(acting[1]).unwrap();
        let last_life = admin.osdmap().up_from(acting[1]);
        cluster.kill_osd(lost, Kill::PROCESS);
        for n in 0..16 {
            let write = io.write_full(format!("o{n}"), Bytes::from_static(b"while it is down"));
            cluster.in_time(&admin, "a write", LIMIT, write).await.unwrap();
        }
        cluster.start_osd(lost);
        cluster.wait_until_reborn(&admin, lost, last_life).await;
        // Those that do not recover scrub what they lead together.
        let others = admin.io_ctx("others").await.unwrap().pool_id();
        let ask = async |what: &str, pgid: types::PgId| {
            let ask = json!({"prefix": format!("pg {what}"), "pgid": pgid.to_string()});
            let asked = admin.mgr_command(ask.to_string(), Bytes::new()).await.unwrap();
            assert_eq!(asked.rc, 0, "{}", asked.outs);
        };
        let is_recovering = async || {
            let ask = json!({"prefix": "pg dump", "format": "json"}).to_string();
            let dump = admin.mgr_command(ask, Bytes::new()).await.unwrap();
            let dump: serde_json::Value = serde_json::from_slice(&dump.outb).unwrap();
            let stats = dump["pg_map"]["pg_stats"].as_array().unwrap();
            let found = stats.iter().find(|stat| stat["pgid"] == recovers.to_string()).unwrap();
            found["state"].as_str().unwrap().contains("recovering")
        };
        while !is_recovering().await {
            world.sleep(Duration::from_secs(1)).await;
        }
        let (mut free, mut led, mut followed) = (Vec::new(), Vec::new(), Vec::new());
        for seed in 0..32 {
            let (pgid, of) = acting_of(others, seed);
            match (acting.contains(&of[0]), acting.contains(&of[1])) {
                (false, false) => free.push(pgid),
                (true, false) => led.push(pgid),
                (false, true) => followed.push(pgid),
                (true, true) => continue,
            }
            ask("deep-scrub", pgid).await;
        }
        assert!(!free.is_empty() && led.len() > 1 && !followed.is_empty(), "another seed");
        for pgid in &free {
            logged(&cluster, &admin, &format!("{pgid} deep-scrub ok")).await;
        }
        world.sleep(Duration::from_secs(10)).await;
        let log = log_of(&cluster, &admin).await;
        for pgid in led.iter().chain(&followed) {
            assert!(!log.contains(&format!("{pgid} deep-scrub starts")), "{pgid}");
        }
        // Its follower does not recover.
        cluster
            .command(
                &admin,
                json!({
                    "prefix": "config set", "who": "osd", "name": "osd_repair_during_recovery",
                    "value": "true",
                }),
            )
            .await;
        ask("repair", led[0]).await;
        logged(&cluster, &admin, &format!("{} repair ok, 0 fixed", led[0])).await;
        assert!(is_recovering().await, "more objects to recover");
        for pgid in led[1..].iter().chain(&followed) {
            logged(&cluster, &admin, &format!("{pgid} deep-scrub ok")).await;
        }
        cluster.wait_until_clean(&admin, LIMIT).await;
    });
}
