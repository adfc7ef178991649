//! Objects of which nobody has the newest version: reported, waited for, and given up by command.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use client::{Client, IoCtx};
use serde_json::{Value, json};
use sim::{Kill, World};
use simtest::{Cluster, Plan};
use store::{CollId, Transaction};
use types::{GhObject, HObject, NOSNAP, ObjectLocator, SnapContext};

const OPTIONS: &str = "osd_heartbeat_grace = 6\n\
                       mgr_stats_period = 1\n\
                       mon_osd_min_down_reporters = 1\n";

/// A cluster whose PG has three unfound objects, because the only OSD that has their newest
/// versions is down. Of `changed` both others have an older version; of `kept` only the one has
/// that does not lead; `created` had none.
struct Unfound {
    cluster: Cluster,
    admin: Client,
    io: IoCtx,
    pgid: types::PgId,
    away: u32,
}

async fn wait_until_down(cluster: &Cluster, admin: &Client, osd: u32) {
    while admin.osdmap().is_up(osd as i32) {
        cluster.world().sleep(Duration::from_millis(100)).await;
        admin.wait_for_latest_osdmap().await.unwrap();
    }
}

impl Unfound {
    async fn new(cluster: Cluster) -> Unfound {
        let admin = cluster.start().await;
        cluster
            .command(&admin, json!({"prefix": "osd pool create", "pool": "p", "pg_num": 1}))
            .await;
        let io = admin.io_ctx("p").await.unwrap();
        let (old, new) = (Bytes::from_static(b"old"), Bytes::from_static(b"newer"));
        io.write_full("changed", old.clone()).await.unwrap();
        cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
        let pgid = types::PgId::new(u64::try_from(io.pool_id()).unwrap(), 0);
        let acting = admin.osdmap().pg_to_up_acting(pgid).acting;
        let [away, leads, follows] = [0, 1, 2].map(|n| u32::try_from(acting[n]).unwrap());
        cluster.command(&admin, json!({"prefix": "osd set", "key": "norecover"})).await;
        cluster.kill_osd(leads, Kill::PROCESS);
        wait_until_down(&cluster, &admin, leads).await;
        io.write_full("kept", old).await.unwrap();
        cluster.kill_osd(follows, Kill::PROCESS);
        wait_until_down(&cluster, &admin, follows).await;
        for object in ["changed", "kept", "created"] {
            io.write_full(object, new.clone()).await.unwrap();
        }
        cluster.start_osd(leads);
        cluster.start_osd(follows);
        cluster.wait_until_up(&admin).await;
        // All three act and know what they lack when this is acknowledged.
        while admin.osdmap().pg_to_up_acting(pgid).acting.len() < 3 {
            cluster.world().sleep(Duration::from_millis(100)).await;
            admin.wait_for_latest_osdmap().await.unwrap();
        }
        io.write_full("other", new).await.unwrap();
        cluster.kill_osd(away, Kill::PROCESS);
        wait_until_down(&cluster, &admin, away).await;
        cluster.command(&admin, json!({"prefix": "osd unset", "key": "norecover"})).await;
        Unfound { cluster, admin, io, pgid, away }
    }

    async fn ask(&self, json: Value) -> client::Answer {
        let primary = self.admin.osdmap().pg_to_up_acting(self.pgid).acting_primary;
        self.admin.osd_command(primary, json.to_string(), Bytes::new()).await.unwrap()
    }

    async fn list(&self) -> Value {
        let ask = json!({
            "prefix": "pg", "cmd": "list_unfound", "pgid": self.pgid.to_string(), "format": "json",
        });
        serde_json::from_slice(&self.ask(ask).await.outb).unwrap_or_default()
    }

    async fn mark(&self, mode: &str) -> client::Answer {
        let pgid = self.pgid.to_string();
        self.ask(json!({"prefix": "pg", "cmd": "mark_unfound_lost", "pgid": pgid, "mulcmd": mode}))
            .await
    }

    /// What is there once all is clean again, with the OSD that was away, too.
    async fn end(self, expected: [Option<&str>; 3]) {
        let second = Duration::from_secs(60);
        for whole in [false, true] {
            if whole {
                self.cluster.start_osd(self.away);
                self.cluster.wait_until_up(&self.admin).await;
                self.cluster.wait_until_clean(&self.admin, second).await;
            }
            for (object, expected) in ["changed", "kept", "created"].into_iter().zip(expected) {
                let found = self.io.read(object, 0, 0).await.ok();
                let found = found.map(|b| String::from_utf8_lossy(&b).into_owned());
                assert_eq!(found.as_deref(), expected, "{object}");
            }
        }
        self.cluster.compare_replicas(&self.admin).await;
    }
}

/// Others write meanwhile: the followers got a write before the entry that gave an object up, which its
/// primary had logged first and sent when it was durable, took that for a fault of the primary's, and went down.
fn live(mode: &'static str, expected: [Option<&'static str>; 3]) {
    let world = World::new(13);
    let plan = Plan { min_size: 1, options: OPTIONS.to_owned(), ..Plan::default() };
    let cluster = Cluster::make(&world.control(), plan);
    world.run_until(async move {
        let world = cluster.world().clone();
        let unfound = Unfound::new(cluster).await;
        let mut list = Value::Null;
        for _ in 0..600 {
            list = unfound.list().await;
            if list["num_unfound"] == 3 {
                break;
            }
            world.sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(list["num_unfound"], 3, "{list}");
        let away = json!({"osd": unfound.away.to_string(), "status": "osd is down"});
        let might = list["might_have_unfound"].as_array().unwrap();
        assert!(might.contains(&away), "{list}");
        // A reader waits; what is not affected is served.
        let answered = Rc::new(Cell::new(false));
        let reader = {
            let (io, answered) = (unfound.io.clone(), answered.clone());
            world.spawn(async move {
                let read = io.read("changed", 0, 0).await;
                answered.set(true);
                read
            })
        };
        assert_eq!(&unfound.io.read("other", 0, 0).await.unwrap()[..], b"newer");
        assert!(!answered.get());
        let answer = unfound.mark("so what").await;
        assert_eq!(answer.rc, -22, "{}", answer.outs);
        // The one that is away may come back with them.
        let answer = unfound.mark(mode).await;
        let refused =
            "pg has 3 unfound objects but we haven't probed all sources, not marking lost";
        assert_eq!((answer.rc, &*answer.outs), (-22, refused));
        let busy = Rc::new(Cell::new(true));
        let writers: Vec<_> = (0..4)
            .map(|n| {
                let (io, busy) = (unfound.io.clone(), busy.clone());
                world.spawn(async move {
                    while busy.get() {
                        io.write(format!("busy {n}"), 0, Bytes::from_static(b"x")).await.unwrap();
                    }
                })
            })
            .collect();
        let lost = json!({"prefix": "osd lost", "id": unfound.away, "yes_i_really_mean_it": true});
        unfound.cluster.command(&unfound.admin, lost).await;
        let mut answer = unfound.mark(mode).await;
        for _ in 0..600 {
            if answer.rc == 0 {
                break;
            }
            // The OSD has not got the map that says so.
            world.sleep(Duration::from_millis(100)).await;
            answer = unfound.mark(mode).await;
        }
        let done = "pg has 3 objects unfound and apparently lost marking";
        assert_eq!((answer.rc, &*answer.outs), (0, done));
        busy.set(false);
        for writer in writers {
            writer.await;
        }
        let read = reader.await.ok().map(|b| String::from_utf8_lossy(&b).into_owned());
        assert_eq!(read.as_deref(), expected[0]);
        let answer = unfound.mark(mode).await;
        assert_eq!((answer.rc, &*answer.outs), (0, "pg has no unfound objects"));
        unfound.end(expected).await;
    });
}

/// As Ceph: the newest version that any replica has, not only the leader; what had none is deleted.
#[test]
fn lost_objects_go_back_to_the_newest_version_there_is() {
    live("revert", [Some("old"), Some("old"), None]);
}

#[test]
fn lost_objects_are_deleted() {
    live("delete", [None, None, None]);
}

/// What turns out to be damaged everywhere while the PG backfills is unfound in backfill, as in Ceph: it was
/// told as unfound in recovery.
#[test]
fn what_backfill_cannot_find_is_told_so() {
    backfill_does_not_find(false);
}

/// Where nobody else had the damaged object, either, it was no missing one: backfill came to it five times a second for ever,
/// and `mark_unfound_lost` had nothing to give up.
#[test]
fn what_is_damaged_where_it_is_alone_is_unfound() {
    backfill_does_not_find(true);
}

/// An object whose copies are damaged, when one of them is to be made anew elsewhere; and the other one `dies`.
fn backfill_does_not_find(dies: bool) {
    let world = World::new(14);
    // A log that does not reach back to the first write, so that a new copy is backfilled.
    let options = format!(
        "{OPTIONS}osd_min_pg_log_entries = 3\nosd_max_pg_log_entries = 3\nosd_pg_log_trim_min = 1\n"
    );
    let plan = Plan { osds: 3, size: 2, options, ..Plan::default() };
    let cluster = Cluster::make(&world.control(), plan);
    world.run_until(async move {
        let world = cluster.world().clone();
        let admin = cluster.start().await;
        cluster
            .command(&admin, json!({"prefix": "osd pool create", "pool": "p", "pg_num": 1}))
            .await;
        let io = admin.io_ctx("p").await.unwrap();
        for object in ["damaged", "a", "b", "c", "d", "e", "f", "g"] {
            io.write_full(object, Bytes::from_static(b"content")).await.unwrap();
        }
        let limit = Duration::from_secs(60);
        cluster.wait_until_clean(&admin, limit).await;
        let pgid = types::PgId::new(u64::try_from(io.pool_id()).unwrap(), 0);
        let acting = admin.osdmap().pg_to_up_acting(pgid).acting;
        for osd in &acting {
            let locator = ObjectLocator { pool: io.pool_id(), ..ObjectLocator::default() };
            let oid = GhObject::from(HObject::new("damaged", &locator, NOSNAP));
            let mut damage = Transaction::new();
            damage.setattr(&CollId::Pg(pgid.spg()), &oid, "_", Bytes::from_static(b"no info"));
            let last_life = admin.osdmap().up_from(*osd);
            let osd = u32::try_from(*osd).unwrap();
            cluster.change_store(osd, damage).await;
            cluster.start_osd(osd);
            cluster.wait_until_reborn(&admin, osd, last_life).await;
            cluster.wait_until_clean(&admin, limit).await;
        }
        let primary = admin.osdmap().pg_to_up_acting(pgid).acting_primary;
        let out = acting.iter().find(|osd| **osd != primary).unwrap();
        if dies {
            cluster.kill_osd(u32::try_from(*out).unwrap(), Kill::PROCESS);
            wait_until_down(&cluster, &admin, u32::try_from(*out).unwrap()).await;
        }
        cluster.command(&admin, json!({"prefix": "osd out", "ids": [out.to_string()]})).await;
        let mut state = String::new();
        for _ in 0..600 {
            let stat = admin.mgr_command(r#"{"prefix":"pg stat","format":"json"}"#, Bytes::new());
            let stat: Value = serde_json::from_slice(&stat.await.unwrap().outb).unwrap();
            state = stat["pg_summary"]["num_pg_by_state"][0]["name"].to_string();
            if state.contains("_unfound") {
                break;
            }
            world.sleep(Duration::from_millis(100)).await;
        }
        assert!(state.contains("backfill_unfound"), "{state}");
        if dies {
            let lost = json!({
                "prefix": "osd lost", "id": out, "yes_i_really_mean_it": true,
            });
            cluster.command(&admin, lost).await;
            let give_up = json!({
                "prefix": "pg", "cmd": "mark_unfound_lost", "pgid": pgid.to_string(), "mulcmd": "delete",
            });
            let answer = admin.osd_command(primary, give_up.to_string(), Bytes::new()).await.unwrap();
            assert_eq!(answer.rc, 0, "{}", answer.outs);
            cluster.wait_until_clean(&admin, limit).await;
            assert_eq!(io.read("a", 0, 0).await.unwrap(), Bytes::from_static(b"content"));
        }
    });
}

/// With `norecover` a PG without anything to recover was not clean, either: new pools stayed "active".
#[test]
fn norecover_lets_pgs_be_clean() {
    let world = World::new(59);
    let cluster = Cluster::make(&world.control(), Plan::default());
    world.run_until(async move {
        let admin = cluster.start().await;
        cluster.command(&admin, json!({"prefix": "osd set", "key": "norecover"})).await;
        cluster.create_pool(&admin, 4).await;
        cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
    });
}

/// `ceph osd set norecover` before an OSD is restarted: each write of an object that it had missed waited until somebody took the
/// flag away. The flag stops what nobody waits for.
#[test]
fn norecover_stops_nothing_that_a_client_waits_for() {
    let world = World::new(58);
    let cluster =
        Cluster::make(&world.control(), Plan { options: OPTIONS.to_owned(), ..Plan::default() });
    world.run_until(async move {
        let admin = cluster.start().await;
        cluster.create_pool(&admin, 1).await;
        let io = admin.io_ctx("p").await.unwrap();
        let pgid = types::PgId::new(u64::try_from(io.pool_id()).unwrap(), 0);
        let acting = admin.osdmap().pg_to_up_acting(pgid).acting;
        for flag in ["noout", "norecover"] {
            cluster.command(&admin, json!({"prefix": "osd set", "key": flag})).await;
        }
        // One that leads and lacks what is read, and one that follows and lacks what is written.
        for (osd, object) in [(acting[0], "of the first"), (acting[1], "of the second")] {
            let osd = u32::try_from(osd).unwrap();
            cluster.kill_osd(osd, Kill::PROCESS);
            wait_until_down(&cluster, &admin, osd).await;
            for name in [object.to_owned(), format!("also {object}")] {
                io.write_full(name, Bytes::from_static(b"old")).await.unwrap();
            }
            cluster.start_osd(osd);
            cluster.wait_until_up(&admin).await;
            let limit = Duration::from_secs(20);
            let read = io.read(object, 0, 0);
            assert_eq!(&cluster.in_time(&admin, "a read", limit, read).await.unwrap()[..], b"old");
            let write = io.write_full(object, Bytes::from_static(b"new"));
            cluster.in_time(&admin, "a write", limit, write).await.unwrap();
        }
        let ask = json!({"prefix": "pg stat", "format": "json"}).to_string();
        let answer = admin.mgr_command(ask, Bytes::new()).await.unwrap();
        let stat = String::from_utf8(answer.outb.to_vec()).unwrap();
        assert!(!stat.contains("\"active+clean\""), "the rest waits: {stat}");
        cluster.command(&admin, json!({"prefix": "osd unset", "key": "norecover"})).await;
        cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
    });
}

/// Two OSDs; one of them alone had an object, was away for longer than the log is, and waits with its backfill until the
/// other has got that object. A client reads it while `norecover` is set, and the flag is taken away while what was pulled is
/// being written. Were it taken for recovered then, the only OSD that has it would begin anew and remove it, and a loss of
/// the other's power leave nothing of it.
#[test]
fn who_alone_has_an_object_keeps_it_until_it_is_durable_elsewhere() {
    for after_ms in (1_000..7_000).step_by(500) {
        let world = World::new(15);
        let options = format!(
            "{OPTIONS}osd_min_pg_log_entries = 3\nosd_max_pg_log_entries = 3\nosd_pg_log_trim_min = 1\n"
        );
        let plan = Plan { osds: 2, size: 2, min_size: 1, options, ..Plan::default() };
        let cluster = Cluster::make(&world.control(), plan);
        world.run_until(async move {
            let world = cluster.world().clone();
            let admin = cluster.start().await;
            let pool = json!({"prefix": "osd pool create", "pool": "p", "pg_num": 1});
            cluster.command(&admin, pool).await;
            let io = admin.io_ctx("p").await.unwrap();
            let content = Bytes::from_static(b"content");
            io.write_full("other", content.clone()).await.unwrap();
            let limit = Duration::from_secs(60);
            cluster.wait_until_clean(&admin, limit).await;
            let pgid = types::PgId::new(u64::try_from(io.pool_id()).unwrap(), 0);
            let acting = admin.osdmap().pg_to_up_acting(pgid).acting;
            let [has, lacks] = [0, 1].map(|n| u32::try_from(acting[n]).unwrap());
            let until_act = async |osds: usize| {
                while admin.osdmap().pg_to_up_acting(pgid).acting.len() != osds {
                    world.sleep(Duration::from_millis(100)).await;
                    admin.wait_for_latest_osdmap().await.unwrap();
                }
            };
            cluster.command(&admin, json!({"prefix": "osd set", "key": "norecover"})).await;
            cluster.kill_osd(lacks, Kill::PROCESS);
            wait_until_down(&cluster, &admin, lacks).await;
            io.write_full("kept", content.clone()).await.unwrap();
            cluster.start_osd(lacks);
            cluster.wait_until_up(&admin).await;
            until_act(2).await;
            io.write_full("other", content.clone()).await.unwrap();
            cluster.kill_osd(has, Kill::PROCESS);
            wait_until_down(&cluster, &admin, has).await;
            for _ in 0..20 {
                io.write_full("other", content.clone()).await.unwrap();
            }
            cluster.start_osd(has);
            cluster.wait_until_up(&admin).await;
            until_act(1).await;
            io.write_full("other", content.clone()).await.unwrap();
            // A client that does not hear of maps reads. What it reads comes from an OSD that does not either: whoever
            // hears from it need not wait for a map.
            let reader = cluster.client("client.reader").await;
            let reads = reader.io_ctx("p").await.unwrap();
            reads.read("other", 0, 0).await.unwrap();
            for name in world.names().iter().filter(|name| name.starts_with("mon")) {
                world.partition("client.reader", name);
                world.partition(&format!("osd.{has}"), name);
            }
            let disk = cluster.broken_disk(lacks);
            let sound = disk.model();
            disk.set_model(sim::DiskModel { sync: Duration::from_secs(2), ..sound });
            cluster.command(&admin, json!({"prefix": "osd unset", "key": "norecover"})).await;
            world.sleep(Duration::from_millis(100)).await;
            world.spawn(async move { reads.read("kept", 0, 0).await });
            world.sleep(Duration::from_millis(after_ms)).await;
            cluster.kill_osd(lacks, Kill::POWER);
            disk.set_model(sound);
            world.heal();
            cluster.start_osd(lacks);
            cluster.wait_until_up(&admin).await;
            let read = cluster.in_time(&admin, "a read", limit, io.read("kept", 0, 0)).await;
            assert_eq!(read.unwrap(), content);
            cluster.wait_until_clean(&admin, limit).await;
        });
    }
}

/// Which snapshots a clone serves is in its head. A clone that others had came though nobody had its head: what was there of that was from
/// before the snapshot, so the clone was noted as of none, and nobody ever trimmed it.
#[test]
fn clones_wait_for_a_head_that_is_found_again() {
    clone_with_unfound_head(false);
}

/// The same, and they go on when their head is given up.
#[test]
fn clones_wait_for_a_head_until_it_is_given_up() {
    clone_with_unfound_head(true);
}

fn clone_with_unfound_head(is_given_up: bool) {
    let world = World::new(16);
    let plan = Plan { min_size: 1, options: OPTIONS.to_owned(), ..Plan::default() };
    let cluster = Cluster::make(&world.control(), plan);
    world.run_until(async move {
        let world = cluster.world().clone();
        let admin = cluster.start().await;
        let pool = json!({"prefix": "osd pool create", "pool": "p", "pg_num": 1});
        cluster.command(&admin, pool).await;
        let io = admin.io_ctx("p").await.unwrap();
        io.write_full("o", Bytes::from_static(b"first")).await.unwrap();
        let limit = Duration::from_secs(60);
        cluster.wait_until_clean(&admin, limit).await;
        let pgid = types::PgId::new(u64::try_from(io.pool_id()).unwrap(), 0);
        let acting = admin.osdmap().pg_to_up_acting(pgid).acting;
        let [leads, away, follows] = [0, 1, 2].map(|n| u32::try_from(acting[n]).unwrap());
        for flag in ["noout", "norecover"] {
            cluster.command(&admin, json!({"prefix": "osd set", "key": flag})).await;
        }
        let kill = async |osd| {
            cluster.kill_osd(osd, Kill::PROCESS);
            wait_until_down(&cluster, &admin, osd).await;
        };
        let acts = async |wanted: u32| {
            while !admin.osdmap().pg_to_up_acting(pgid).acting.contains(&(wanted as i32)) {
                world.sleep(Duration::from_millis(100)).await;
                admin.wait_for_latest_osdmap().await.unwrap();
            }
        };
        // The clone is at two of them, and what comes then of its head at one.
        kill(leads).await;
        let snap = admin.selfmanaged_snap_create(io.pool_id()).await.unwrap();
        let later = io.clone().with_snap_context(SnapContext { seq: snap, snaps: vec![snap] });
        later.write_full("o", Bytes::from_static(b"second")).await.unwrap();
        kill(follows).await;
        later.write_full("o", Bytes::from_static(b"third")).await.unwrap();
        cluster.start_osd(leads);
        acts(leads).await;
        // They have agreed on what there is when this is acknowledged.
        io.write_full("other", Bytes::from_static(b"x")).await.unwrap();
        kill(away).await;
        io.write_full("other", Bytes::from_static(b"y")).await.unwrap();
        cluster.start_osd(follows);
        acts(follows).await;
        cluster.command(&admin, json!({"prefix": "osd unset", "key": "norecover"})).await;
        world.sleep(Duration::from_secs(20)).await;
        let ask = async |ask: Value| {
            let primary = admin.osdmap().pg_to_up_acting(pgid).acting_primary;
            admin.osd_command(primary, ask.to_string(), Bytes::new()).await.unwrap()
        };
        let list = json!({"prefix": "pg", "cmd": "list_unfound", "pgid": pgid.to_string(), "format": "json"});
        let list: Value = serde_json::from_slice(&ask(list).await.outb).unwrap();
        assert_eq!((&list["num_unfound"], &list["num_missing"]), (&json!(1), &json!(2)), "{list}");
        if is_given_up {
            let lost = json!({"prefix": "osd lost", "id": away, "yes_i_really_mean_it": true});
            cluster.command(&admin, lost).await;
            let mark = json!({"prefix": "pg", "cmd": "mark_unfound_lost", "pgid": pgid.to_string(), "mulcmd": "revert"});
            while ask(mark.clone()).await.rc != 0 {
                world.sleep(Duration::from_millis(100)).await;
            }
            let past = io.clone().with_snap_read(snap);
            let read = cluster.in_time(&admin, "a read of the clone", limit, past.read("o", 0, 0));
            assert_eq!(&read.await.unwrap()[..], b"first");
            assert_eq!(&io.read("o", 0, 0).await.unwrap()[..], b"second");
        }
        cluster.start_osd(away);
        cluster.wait_until_up(&admin).await;
        cluster.wait_until_clean(&admin, limit).await;
        let past = io.clone().with_snap_read(snap);
        assert_eq!(&past.read("o", 0, 0).await.unwrap()[..], b"first");
        // What each store holds belongs together: clones and their rows, too.
        cluster.compare_replicas(&admin).await;
    });
}
