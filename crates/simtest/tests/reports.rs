//! What OSDs tell the manager, and when.

use std::time::Duration;

use bytes::Bytes;
use client::Client;
use sim::{Kill, World};
use simtest::{Cluster, Plan};

/// How many PGs the manager knows to be active and clean.
async fn clean_pgs(env: &env::Env, admin: &Client) -> u64 {
    let ask = r#"{"prefix":"pg stat","format":"json"}"#;
    // What was asked of the manager that died is answered by the next, but not in time.
    let answer =
        env.timeout(Duration::from_millis(100), admin.mgr_command(ask, Bytes::new())).await;
    let Ok(Ok(answer)) = answer else { return 0 };
    let json: serde_json::Value = serde_json::from_slice(&answer.outb).unwrap_or_default();
    let states = json["pg_summary"]["num_pg_by_state"].as_array().cloned().unwrap_or_default();
    let clean = states.iter().filter(|state| state["name"] == "active+clean");
    clean.filter_map(|state| state["num"].as_u64()).sum()
}

/// After the death of all daemons `loligo up` waited 5 s every second time, until the OSDs' next
/// regular reports:
///
/// 1. OSDs are active again, have the map with the manager that died, and report to it.
/// 2. Then they pause for 300 ms, so that they do not report all the time while PGs peer.
/// 3. Meanwhile the new manager is there and asks for a report. The task that pauses was not
///    listening.
///
/// Here managers die at all times after an OSD has come back.
#[test]
fn a_new_manager_is_told_of_pgs_without_waiting_for_the_regular_report() {
    const PGS: u64 = 8;
    /// Until the next report that comes without any news. Of the simulated clock.
    const REGULAR: Duration = Duration::from_secs(5);
    let world = World::new(5);
    let cluster = Cluster::make(&world.control(), Plan::default());
    world.run_until(async move {
        let world = cluster.world().clone();
        let env = world.node("client.admin");
        let admin = cluster.start().await;
        cluster.create_pool(&admin, PGS as u32).await;
        cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
        for round in 0..10 {
            cluster.kill_mon("a", Kill::PROCESS);
            world.kill("mgr.x", Kill::PROCESS);
            for osd in 0..3 {
                cluster.kill_osd(osd, Kill::PROCESS);
            }
            cluster.start_mon();
            for osd in 0..3 {
                cluster.start_osd(osd);
            }
            // Managers take this long to start: some are there while OSDs pause.
            world.sleep(Duration::from_millis(40 * round)).await;
            cluster.start_mgr();
            let started = world.now();
            while clean_pgs(&env, &admin).await < PGS {
                world.sleep(Duration::from_millis(20)).await;
                assert!(world.now() < started + 2 * REGULAR, "round {round}");
            }
            let took = world.now() - started;
            assert!(took < REGULAR, "round {round}: {took:?}");
        }
    });
}

/// A command that was on its way to the manager when it ended was never answered (simulated life
/// 12879): the map that named the next manager said that it could not be asked yet, the command
/// counted as sent all the same, and with the map that said it could nobody was new any more. A monitor
/// that was asked and passes it on has the same to see to.
#[test]
fn a_command_to_a_manager_that_ends_is_answered_by_the_next() {
    let world = World::new(6);
    let cluster = Cluster::make(&world.control(), Plan::default());
    world.run_until(async move {
        let world = cluster.world().clone();
        let env = world.node("client.admin");
        let admin = cluster.start().await;
        cluster.create_pool(&admin, 8).await;
        cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
        for (silent, by_mon) in [(false, false), (true, false), (false, true), (true, true)] {
            if silent {
                // The host does not even say that nobody listens.
                world.partition(if by_mon { "mon.a" } else { "client.admin" }, "mgr.x");
            }
            world.kill("mgr.x", Kill::PROCESS);
            let ask = r#"{"prefix":"pg stat","format":"json"}"#;
            let (env, asker) = (env.clone(), admin.clone());
            let asked = world.spawn(async move {
                let asking = async {
                    match by_mon {
                        true => asker.mon_command(ask, Bytes::new()).await,
                        false => asker.mgr_command(ask, Bytes::new()).await,
                    }
                };
                env.timeout(Duration::from_secs(100), asking).await
            });
            world.sleep(Duration::from_secs(1)).await;
            cluster.start_mgr();
            world.sleep(Duration::from_secs(1)).await;
            world.heal();
            let answer = asked.await.expect("in time").expect("an answer");
            assert_eq!(answer.rc, 0, "silent {silent}, by the monitor {by_mon}: {}", answer.outs);
        }
    });
}

/// Found by life 80110: the only OSD that had what was acknowledged was removed, since a manager had said that it was
/// safe to destroy.
///
/// 1. A manager becomes the active one. It has the map of the OSDs; what that says of placement groups
///    counted from its next report on.
/// 2. Somebody who waited for a manager asks before. There are no placement groups, so there are none on any OSD.
#[test]
fn a_manager_that_has_just_begun_calls_nothing_safe() {
    let world = World::new(7);
    let cluster = Cluster::make(&world.control(), Plan::default());
    world.run_until(async move {
        let world = cluster.world().clone();
        let admin = cluster.start().await;
        cluster.create_pool(&admin, 8).await;
        cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
        let questions = [
            r#"{"prefix":"osd safe-to-destroy","ids":["1"]}"#,
            r#"{"prefix":"osd destroy","id":"1"}"#,
            r#"{"prefix":"osd ok-to-stop","ids":["0","1","2"]}"#,
        ];
        for round in 0..12 {
            world.kill("mgr.x", Kill::PROCESS);
            world.sleep(Duration::from_millis(10 * round)).await;
            cluster.start_mgr();
            for at in 0..questions.len() {
                let question = questions[(at + round as usize) % questions.len()];
                let answer = admin.mgr_command(question, Bytes::new()).await.unwrap();
                assert!(answer.rc != 0, "round {round}: {question}: {}", answer.outs);
            }
        }
    });
}

/// The times at which a PG was last seen in a state were those that the OSD that leads had seen itself since
/// its start: after it another one began anew, and health told of what is stuck "since forever".
#[test]
fn who_leads_next_knows_when_a_placement_group_was_last_whole() {
    let world = World::new(6);
    let options = "mon_osd_min_down_reporters = 1\nosd_heartbeat_grace = 6\n".to_owned();
    // Whoever is left leads alone, and peers with nobody: no report tells of that.
    let plan = Plan { osds: 2, size: 2, min_size: 1, options, ..Plan::default() };
    let cluster = Cluster::make(&world.control(), plan);
    world.run_until(async move {
        let world = cluster.world().clone();
        let admin = cluster.start().await;
        cluster.create_pool(&admin, 4).await;
        cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
        let stuck = async || {
            let ask = r#"{"prefix":"pg dump","dumpcontents":["pgs"],"format":"json"}"#;
            let dump = admin.mgr_command(ask, Bytes::new()).await.unwrap();
            let dump: serde_json::Value = serde_json::from_slice(&dump.outb).unwrap();
            let pgs = dump["pg_stats"].as_array().unwrap().clone();
            let of = |key: &str| -> Vec<String> {
                pgs.iter().map(|pg| pg[key].as_str().unwrap().to_owned()).collect()
            };
            (of("state"), of("last_fullsized"), of("last_active"))
        };
        cluster.kill_osd(0, Kill::PROCESS);
        while !stuck().await.0.iter().all(|state| state.contains("undersized")) {
            world.sleep(Duration::from_millis(100)).await;
        }
        let (_, fullsized, active) = stuck().await;
        for stamp in fullsized.iter().chain(&active) {
            assert!(!stamp.starts_with("0."), "{fullsized:?} {active:?}");
        }
    });
}

/// A placement group that never had copies enough was "stuck inactive since forever" in `ceph health detail`, and was
/// never clean or peered: a real Ceph counts from its creation.
#[test]
fn who_never_acted_is_stuck_since_its_creation() {
    let world = World::new(8);
    let cluster =
        Cluster::make(&world.control(), Plan { osds: 1, size: 2, min_size: 2, ..Plan::default() });
    world.run_until(async move {
        let world = cluster.world().clone();
        let admin = cluster.start().await;
        cluster.create_pool(&admin, 2).await;
        let command = async |ask: &str| admin.mon_command(ask, Bytes::new()).await.unwrap().outb;
        loop {
            world.sleep(Duration::from_secs(1)).await;
            let health = command(r#"{"prefix":"health","detail":"detail"}"#).await;
            let health = String::from_utf8(health.to_vec()).unwrap();
            if let Some(line) = health.lines().find(|line| line.contains("is stuck inactive")) {
                assert!(line.contains("is stuck inactive for 6"), "{health}");
                break;
            }
        }
        let ask = r#"{"prefix":"pg dump","dumpcontents":["pgs"],"format":"json"}"#;
        let dump = admin.mgr_command(ask, Bytes::new()).await.unwrap();
        let dump: serde_json::Value = serde_json::from_slice(&dump.outb).unwrap();
        for pg in dump["pg_stats"].as_array().unwrap() {
            assert_eq!(pg["state"], "undersized+peered");
            assert_eq!(pg["last_clean"], pg["last_active"]);
            assert_eq!(pg["last_clean"], pg["last_clean_scrub_stamp"]);
        }
    });
}
