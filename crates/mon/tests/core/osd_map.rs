//! What monitors make of OSDs: maps, failures, pools, placement.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use denc::Denc;
use maps::{OsdMap, PgMapDigest};
use messages::{
    MMonCommand, MMonCommandAck, MMonMgrReport, MMonSubscribe, MOSDAlive, MOSDBeacon, MOSDFull,
    MOSDMap, MOSDMarkMeDead, MOSDPGCreate2, MOSDPGCreated, MPoolOp, MPoolOpReply, Message,
    PaxosHeader, PoolOpCode, SubscribeItem,
};
use mon::Event;
use store::kv::{Direction, Visit};
use store::{Kv, KvBatch, KvError};
use types::{EntityName, IntervalSet, UTime, Uuid};

use crate::bench::*;
use crate::failures::failure;

#[test]
fn osds_boot_and_the_map_says_so() {
    let mut b = Bench::new(fresh_kv());
    b.three_osds();
    let map = b.map();
    assert_eq!((map.num_osds(), map.num_up_osds(), map.num_in_osds()), (3, 3, 3));
    assert_eq!(map.crush.class_of(2), Some("ssd"));
    assert_eq!(map.uuid(1), Uuid([2; 16]));
}

/// After `mon --inject-monmap`, or a monitor made of some OSDs' maps, an OSD may know what the monitors do not.
#[test]
fn an_osd_that_knows_more_than_the_monitors_is_told_of() {
    let mut b = Bench::new(fresh_kv());
    b.three_osds();
    let errors = r#"{"prefix":"log last","num":100,"level":"error"}"#;
    b.command(1, r#"{"prefix":"osd down","ids":["0","1"]}"#);
    let newest = b.map().epoch;
    b.boot_with(0, newest);
    assert_eq!(b.out(1, errors), "");
    let epoch = b.map().epoch;
    b.boot_with(1, epoch + 40);
    let told = b.out(1, errors);
    assert!(told.contains(&format!("osd.1 knows OSD map {}", epoch + 40)), "{told}");
    assert!(told.contains(&format!("the newest here is {epoch}")), "{told}");
    assert!(b.map().is_up(1));
}

/// A simulated life in which an OSD never came back: `osd new` and `osd in` shared an epoch, whose
/// weight made the OSD exist and whose flips, counted without the weight, made it cease to.
#[test]
fn an_osd_may_change_more_than_once_in_an_epoch() {
    const MAYBE: [&str; 9] = [
        r#"{"prefix":"osd new","uuid":"11111111-1111-1111-1111-000000000005","id":5}"#,
        r#"{"prefix":"osd new","uuid":"11111111-1111-1111-1111-000000000000","id":0}"#,
        r#"{"prefix":"osd in","ids":["0","5"]}"#,
        r#"{"prefix":"osd out","ids":["0","5"]}"#,
        r#"{"prefix":"osd reweight","id":5,"weight":0.5}"#,
        r#"{"prefix":"osd rm","ids":["5"]}"#,
        r#"{"prefix":"osd purge-actual","id":0,"yes_i_really_mean_it":true}"#,
        r#"{"prefix":"osd destroy-actual","id":0,"yes_i_really_mean_it":true}"#,
        r#"{"prefix":"osd set-group","flags":"noup","who":["0","5"]}"#,
    ];
    let (new, purge) = (MAYBE[1], MAYBE[6]);
    assert!(new.contains("osd new") && purge.contains("osd purge"));
    let outcome = |commands: &[&str], together: bool| {
        let mut b = Bench::new(fresh_kv());
        b.three_osds();
        b.command(1, r#"{"prefix":"osd down","ids":["0"]}"#);
        let before = b.map().epoch;
        for json in commands {
            let cmd = vec![(*json).into()];
            b.send(1, &MMonCommand { fsid: FSID.parse().unwrap(), cmd, ..MMonCommand::default() });
            if !together {
                b.pass(Duration::ZERO);
            }
        }
        for _ in commands {
            b.pass(Duration::ZERO);
        }
        let mut answers = b.take::<MMonCommandAck>(1);
        answers.sort_by_key(|ack| commands.iter().position(|c| *c == ack.cmd[0]));
        let answers: Vec<_> = answers.into_iter().map(|ack| (ack.cmd, ack.rc)).collect();
        let map = b.map();
        let osds: Vec<_> = map.osds().map(|osd| (osd, map.state(osd), map.weight(osd))).collect();
        (map.epoch - before, answers, osds)
    };
    let (mut shared, all) = (0, MAYBE.len());
    for number in 0..all * all * all {
        let three = [number / all / all, number / all % all, number % all];
        let commands = three.map(|which| MAYBE[which]);
        if commands.starts_with(&[purge, new]) {
            // A number is free again with the next epoch: `osd new` waits, and what follows does not.
            continue;
        }
        let (epochs, answers, osds) = outcome(&commands, true);
        shared += u32::from(epochs == 1);
        let (_, answers_apart, osds_apart) = outcome(&commands, false);
        assert_eq!((answers, osds), (answers_apart, osds_apart), "{commands:#?}");
    }
    assert!(shared > 400, "{shared}");
}

#[test]
fn steps_of_the_map_lead_to_its_checksum() {
    let mut b = Bench::new(fresh_kv());
    b.three_osds();
    let watcher = 50;
    b.open(watcher, EntityName::client(4050), "client.w", "allow r", 5050);
    let item = SubscribeItem { start: 1, flags: 0 };
    let what = BTreeMap::from([("osdmap".to_string(), item)]);
    b.send(watcher, &MMonSubscribe { what, hostname: String::new() });
    b.out(1, r#"{"prefix":"osd pool create","pool":"p"}"#);
    b.out(1, r#"{"prefix":"osd out","ids":["1"]}"#);
    let mut map: Option<OsdMap> = None;
    for message in b.take::<MOSDMap>(watcher) {
        for bytes in message.maps.values() {
            map = Some(OsdMap::from_bytes(bytes).unwrap());
        }
        for bytes in message.incremental_maps.values() {
            let inc = maps::Incremental::from_bytes(bytes).unwrap();
            let next = map.get_or_insert_with(OsdMap::default);
            next.apply(&inc).unwrap();
            let (_, crc) = next.encode_with_crc();
            assert_eq!(crc, inc.full_crc, "epoch {}", inc.epoch);
        }
    }
    let map = map.unwrap();
    assert!(map.is_out(1) && map.lookup_pool("p").is_some());
}

/// An OSD could not use a map that it had been sent, and asked for it again. The monitor took what it had sent for what the
/// OSD had, and sent only what was newer: the OSD stayed where it was for ever.
#[test]
fn maps_that_are_asked_for_again_come_again() {
    let mut b = Bench::new(fresh_kv());
    b.three_osds();
    for _ in 0..6 {
        b.out(1, r#"{"prefix":"osd set","key":"noscrub"}"#);
        b.out(1, r#"{"prefix":"osd unset","key":"noscrub"}"#);
    }
    let newest = b.map().epoch;
    let watcher = 50;
    b.open(watcher, EntityName::client(4050), "client.w", "allow r", 5050);
    let mut ask = |start: u32| {
        let item = SubscribeItem { start: start.into(), flags: 0 };
        let what = BTreeMap::from([("osdmap".to_string(), item)]);
        b.send(watcher, &MMonSubscribe { what, hostname: String::new() });
        let messages = b.take::<MOSDMap>(watcher);
        messages.iter().flat_map(|m| m.incremental_maps.keys().copied()).collect::<Vec<_>>()
    };
    assert_eq!(ask(10), (10..=newest).collect::<Vec<_>>());
    assert_eq!(ask(3), (3..=newest).collect::<Vec<_>>());
    assert_eq!(ask(newest), [newest]);
    assert!(ask(newest + 1).is_empty());
}

#[test]
fn primaries_are_told_to_make_placement_groups_until_they_have() {
    let mut b = Bench::new(fresh_kv());
    let osds = b.three_osds();
    for session in &osds {
        let item = SubscribeItem { start: 0, flags: 0 };
        let what = BTreeMap::from([("osd_pg_creates".to_string(), item)]);
        b.send(*session, &MMonSubscribe { what, hostname: "h".into() });
    }
    b.out(1, r#"{"prefix":"osd pool create","pool":"p","pg_num":16}"#);
    let pool = b.map().lookup_pool("p").unwrap();
    let mut made = 0;
    for session in &osds {
        for create in b.take::<MOSDPGCreate2>(*session) {
            for pgid in create.pgs.keys() {
                made += 1;
                b.send(*session, &MOSDPGCreated { paxos: PaxosHeader::at(0), pgid: pgid.pgid });
            }
        }
    }
    assert_eq!(made, 16);
    assert!(b.map().pool(pool).unwrap().has_flag(maps::pool::pool_flags::CREATING));
    b.pass(Duration::from_secs(2));
    assert!(!b.map().pool(pool).unwrap().has_flag(maps::pool::pool_flags::CREATING));
}

/// Whether one more may go out was asked of what would be left: of three OSDs none ever went, with
/// Ceph's 0.75 (`mon_osd_min_in_ratio`). Ceph asks how many are in before.
#[test]
fn an_osd_that_stays_down_goes_out_and_comes_back_in() {
    let mut b = Bench::new(fresh_kv());
    let osds = b.three_osds();
    b.send(osds[0], &failure(2, messages::FAILURE_FAILED | messages::FAILURE_IMMEDIATE, 0));
    b.pass(Duration::from_secs(300));
    // The others are alive, as their beacons would say.
    assert!(b.map().is_in(2));
    b.pass(Duration::from_secs(310));
    assert!(b.map().is_out(2));
    b.send(osds[0], &failure(1, messages::FAILURE_FAILED | messages::FAILURE_IMMEDIATE, 0));
    b.pass(Duration::from_secs(620));
    assert!(b.map().is_down(1) && b.map().is_in(1), "two of three are fewer than 0.75");
    b.step(Event::Closed(102));
    b.boot(2);
    let map = b.map();
    assert!(map.is_up(2) && map.is_in(2));
}

/// The share of OSDs that are up (`mon_osd_min_up_ratio`, 0.3) likewise counts before one goes down:
/// the last one of three never did.
#[test]
fn the_last_silent_osd_goes_down_too() {
    let mut b = Bench::new(fresh_kv());
    b.three_osds();
    b.pass(Duration::from_secs(1000));
    assert_eq!(b.map().num_up_osds(), 0);
}

/// While a placement group was being made, only its epoch kept maps from being forgotten: the maps
/// that all other placement groups still needed went.
#[test]
fn making_a_pool_forgets_no_maps_of_others() {
    let settings =
        "mon_min_osdmap_epochs = 5\npaxos_service_trim_min = 1\nmon_osd_report_timeout = 9000";
    let mut b = Bench::with(fresh_kv(), settings);
    let osds = b.three_osds();
    for session in &osds {
        let item = SubscribeItem { start: 0, flags: 0 };
        let what = BTreeMap::from([("osd_pg_creates".to_string(), item)]);
        b.send(*session, &MMonSubscribe { what, hostname: "h".into() });
    }
    let created = |b: &mut Bench| {
        for session in &osds {
            for create in b.take::<MOSDPGCreate2>(*session) {
                for pgid in create.pgs.keys() {
                    let pgid = pgid.pgid;
                    b.send(*session, &MOSDPGCreated { paxos: PaxosHeader::at(0), pgid });
                }
            }
        }
        b.pass(Duration::from_secs(10));
    };
    let first = |b: &mut Bench| {
        let report: serde_json::Value =
            serde_json::from_str(&b.out(1, r#"{"prefix":"report"}"#)).unwrap();
        report["osdmap_first_committed"].as_u64().unwrap()
    };
    b.out(1, r#"{"prefix":"osd pool create","pool":"p","pg_num":8}"#);
    created(&mut b);
    let pool = b.map().lookup_pool("p").unwrap() as u64;
    let tell = |b: &mut Bench, osd: usize, seeds: std::ops::Range<u32>, needed: u32| {
        let beacon = MOSDBeacon {
            paxos: PaxosHeader::at(b.map().epoch.into()),
            pgs: seeds.map(|seed| types::PgId::new(pool, seed)).collect(),
            min_last_epoch_clean: needed,
            last_purged_snaps_scrub: UTime::ZERO,
            osd_beacon_report_interval: 9000,
        };
        b.send(osds[osd], &beacon);
    };
    let go_on = |b: &mut Bench| {
        for _ in 0..10 {
            b.out(1, r#"{"prefix":"osd set","key":"noout"}"#);
            b.out(1, r#"{"prefix":"osd unset","key":"noout"}"#);
        }
        b.pass(Duration::from_secs(10));
    };
    // One PG that nobody has told of is enough to keep all.
    let needed = b.map().epoch;
    tell(&mut b, 0, 0..4, needed);
    tell(&mut b, 1, 4..7, needed);
    tell(&mut b, 2, 0..0, needed);
    go_on(&mut b);
    assert_eq!(first(&mut b), 1);
    tell(&mut b, 1, 7..8, needed);
    go_on(&mut b);
    assert!((2..=u64::from(needed)).contains(&first(&mut b)));
    // A PG whose OSDs are gone, and which nobody tells of any more, keeps those since then.
    b.out(1, r#"{"prefix":"osd down","ids":["1"]}"#);
    b.out(1, r#"{"prefix":"osd out","ids":["1"]}"#);
    let later = b.map().epoch;
    tell(&mut b, 0, 0..4, later);
    tell(&mut b, 2, 4..7, later);
    go_on(&mut b);
    assert!(first(&mut b) <= u64::from(needed), "{} {needed}", first(&mut b));
    tell(&mut b, 2, 7..8, later);
    go_on(&mut b);
    assert!(first(&mut b) > u64::from(needed), "{} {needed}", first(&mut b));
    let needed = later;
    b.out(1, r#"{"prefix":"osd pool create","pool":"q","pg_num":8}"#);
    for _ in 0..10 {
        b.out(1, r#"{"prefix":"osd set","key":"noout"}"#);
        b.out(1, r#"{"prefix":"osd unset","key":"noout"}"#);
    }
    b.pass(Duration::from_secs(10));
    assert!(first(&mut b) <= u64::from(needed), "{} {needed}", first(&mut b));
}

/// An exception from CRUSH stayed when the OSD it names was moved next to another copy, or out of the
/// rule's tree: Ceph drops such, ours went on putting two copies into one host.
#[test]
fn upmaps_go_when_the_tree_no_longer_allows_them() {
    for there in ["host=h%,root=default", "host=far,root=other"] {
        let mut b = Bench::new(fresh_kv());
        b.three_osds();
        b.out(1, r#"{"prefix":"osd pool create","pool":"p","pg_num":8,"size":2}"#);
        let map = b.map();
        let pgid = types::PgId::new(map.lookup_pool("p").unwrap() as u64, 0);
        let up = map.pg_to_up_acting(pgid).up;
        let third = (0..3).find(|osd| !up.contains(osd)).unwrap();
        let upmap = format!(
            r#"{{"prefix":"osd pg-upmap-items","pgid":"{pgid}","id":[{},{third}]}}"#,
            up[0]
        );
        assert_eq!(b.command(1, &upmap).rc, 0);
        assert_eq!(b.map().pg_to_up_acting(pgid).up, [third, up[1]]);
        b.out(1, r#"{"prefix":"osd reweight","id":0,"weight":0.9}"#);
        assert!(b.map().pg_upmap_items.contains_key(&pgid), "it is as good as before");
        let there: Vec<_> =
            there.replace('%', &up[1].to_string()).split(',').map(|w| format!("\"{w}\"")).collect();
        let there = there.join(",");
        b.out(
            1,
            &format!(r#"{{"prefix":"osd crush set","id":{third},"weight":1.0,"args":[{there}]}}"#),
        );
        assert!(!b.map().pg_upmap_items.contains_key(&pgid), "{there}");
        let now = b.map().pg_to_up_acting(pgid).up;
        assert!(!(now.contains(&third) && now.contains(&up[1])), "{there}: {now:?}");
    }
}

/// Two ways in which an OSD that is gone was still named in an epoch with fewer OSDs, which then did
/// not apply: removed and cut off at once, and "I am dead" from one long removed. Each monitor in turn
/// panicked.
#[test]
fn epochs_with_fewer_osds_name_none_that_are_gone() {
    let mut b = Bench::new(fresh_kv());
    let osds = b.three_osds();
    b.out(1, r#"{"prefix":"osd down","ids":["2"]}"#);
    for json in [
        r#"{"prefix":"osd purge-actual","id":2,"yes_i_really_mean_it":true}"#,
        r#"{"prefix":"osd setmaxosd","newmax":2}"#,
    ] {
        let cmd = vec![json.into()];
        b.send(1, &MMonCommand { fsid: FSID.parse().unwrap(), cmd, ..MMonCommand::default() });
    }
    b.pass(Duration::from_secs(2));
    let answers = b.take::<MMonCommandAck>(1);
    assert!(answers.len() == 2 && answers.iter().all(|ack| ack.rc == 0), "{answers:?}");
    assert_eq!(b.map().max_osd, 2);
    let (fsid, epoch) = (FSID.parse().unwrap(), b.map().epoch);
    let paxos = PaxosHeader::at(0);
    b.send(osds[2], &MOSDMarkMeDead { paxos, fsid, target_osd: 2, epoch });
    b.pass(Duration::from_secs(2));
    assert_eq!(b.map().epoch, epoch);
}

/// A map with a loop, or with so many tries that no PG is ever placed, was taken, and whoever got it
/// hung: the monitors too.
#[test]
fn a_crush_map_that_nobody_can_follow_is_refused() {
    let mut b = Bench::new(fresh_kv());
    b.three_osds();
    let mut crush = (*b.map().crush).clone();
    let set = |b: &mut Bench, crush: &crush::CrushMap| {
        let (fsid, cmd) = (FSID.parse().unwrap(), r#"{"prefix":"osd setcrushmap"}"#.to_owned());
        let command = MMonCommand { fsid, cmd: vec![cmd.into()], ..MMonCommand::default() };
        b.tid += 1;
        let mut raw = Message::encode(&command).with_tid(b.tid);
        raw.data.push(crush.to_bytes());
        b.step(Event::Message(1, raw));
        b.pass(Duration::ZERO);
        b.take::<MMonCommandAck>(1).remove(0)
    };
    assert_eq!(set(&mut b, &crush).rc, 0);
    crush.tunables.choose_total_tries = 20_000;
    let refused = set(&mut b, &crush);
    let text = "crushmap is refused: 20000 tries are more than 10000";
    assert_eq!((refused.rc, refused.outs.as_str()), (-22, text));
    assert_ne!(b.map().crush.tunables.choose_total_tries, 20_000);
}

/// Clients that were promised a map they can follow got one of a later release, and named profiles set how straws are
/// computed back to what nobody wants.
#[test]
fn tunables_are_those_that_clients_follow() {
    let mut b = Bench::new(fresh_kv());
    b.three_osds();
    b.out(1, r#"{"prefix":"osd pool create","pool":"p","pg_num":8}"#);
    let tunables = |b: &mut Bench, profile: &str| {
        let json = format!(r#"{{"prefix":"osd crush tunables","profile":"{profile}"}}"#);
        let ack = b.command(1, &json);
        (ack.rc, ack.outs)
    };
    let taken = |profile: &str| (0, format!("adjusted tunables profile to {profile}"));
    for profile in ["jewel", "hammer", "firefly"] {
        assert_eq!(tunables(&mut b, profile), taken(profile));
        assert_eq!(b.map().crush.tunables.straw_calc_version, 1);
    }
    // Buckets of straw2 came with hammer.
    let json = r#"{"prefix":"osd set-require-min-compat-client","version":"hammer","yes_i_really_mean_it":true}"#;
    b.out(1, json);
    let text =
        "new crush map requires client version jewel but require_min_compat_client is hammer";
    assert_eq!(tunables(&mut b, "jewel"), (-22, text.to_owned()));
    assert_eq!(b.map().crush.tunables.chooseleaf_stable, 0);
    let flat = r#"{"prefix":"osd crush weight-set create","pool":"p","mode":"flat"}"#;
    let refused = b.command(1, flat);
    assert_eq!(refused.rc, -1, "{}", refused.outs);
    assert_eq!(tunables(&mut b, "legacy"), taken("legacy"));
    assert_eq!(b.map().crush.tunables.straw_calc_version, 0);
}

/// A monitor whose leader was gone sent its clients' pool operations to the next one, and clients were
/// told of errors: that what they had just made was there already.
#[test]
fn pool_operations_may_be_repeated() {
    let mut b = Bench::new(fresh_kv());
    b.three_osds();
    let op = |b: &mut Bench, pool: u32, op: u32, name: &str| {
        let (fsid, name) = (FSID.parse().unwrap(), name.into());
        b.send(1, &MPoolOp { fsid, pool, op, name, crush_rule: -1, ..MPoolOp::default() });
        b.pass(Duration::ZERO);
        b.take::<MPoolOpReply>(1).remove(0).reply_code
    };
    for _ in 0..2 {
        assert_eq!(op(&mut b, 0, PoolOpCode::CREATE, "p"), 0);
    }
    let pool = b.map().lookup_pool("p").unwrap() as u32;
    for (code, snaps) in [(PoolOpCode::CREATE_SNAP, 1), (PoolOpCode::DELETE_SNAP, 0)] {
        for _ in 0..2 {
            assert_eq!(op(&mut b, pool, code, "s"), 0);
            assert_eq!(b.map().pool(pool.into()).unwrap().snaps.len(), snaps);
        }
    }
    for _ in 0..2 {
        assert_eq!(op(&mut b, pool, PoolOpCode::DELETE, ""), 0);
        assert!(b.map().pool(pool.into()).is_none());
    }
    assert_eq!(op(&mut b, pool, PoolOpCode::CREATE_SNAP, "s"), -2);
    // Snapshots of the pool and snapshots of clients still exclude each other.
    assert_eq!(op(&mut b, 0, PoolOpCode::CREATE, "q"), 0);
    let pool = b.map().lookup_pool("q").unwrap() as u32;
    assert_eq!(op(&mut b, pool, PoolOpCode::CREATE_UNMANAGED_SNAP, ""), 0);
    assert_eq!(op(&mut b, pool, PoolOpCode::DELETE_SNAP, "s"), -22);
}

/// A snapshot's name may be any bytes. The monitor closed the session over one that was not UTF-8, and its client sent
/// it again at once, for ever.
#[test]
fn snapshots_have_any_name() {
    let mut b = Bench::new(fresh_kv());
    b.three_osds();
    b.out(1, r#"{"prefix":"osd pool create","pool":"p"}"#);
    let pool = b.map().lookup_pool("p").unwrap() as u32;
    let op = |b: &mut Bench, op: u32, name: &[u8]| {
        let (fsid, name) = (FSID.parse().unwrap(), name.into());
        b.send(1, &MPoolOp { fsid, pool, op, name, crush_rule: -1, ..MPoolOp::default() });
        b.pass(Duration::ZERO);
        b.take::<MPoolOpReply>(1).remove(0).reply_code
    };
    assert_eq!(op(&mut b, PoolOpCode::CREATE_SNAP, b"s\xff"), 0);
    let snaps = b.map().pool(pool.into()).unwrap().snaps.clone();
    assert_eq!(snaps.values().map(|snap| &snap.name[..]).collect::<Vec<_>>(), [b"s\xff"]);
    let dump = b.out(1, r#"{"prefix":"osd dump","format":"json"}"#);
    assert!(dump.contains("s\u{fffd}"), "{dump}");
    assert_eq!(op(&mut b, PoolOpCode::DELETE_SNAP, b"s\xff"), 0);
    assert!(b.map().pool(pool.into()).unwrap().snaps.is_empty());
    // A pool is spoken of in JSON, too.
    assert_eq!(op(&mut b, PoolOpCode::CREATE, b"p\xff"), -22);
}

/// A pool took any rule: an erasure coded one over a rule for replicas had holes for good where the
/// rule moves copies up.
#[test]
fn a_pools_rule_is_of_its_type() {
    let mut b = Bench::new(fresh_kv());
    b.three_osds();
    let create = |b: &mut Bench, name: &str, kind: &str, rule: &str| {
        let json = format!(
            r#"{{"prefix":"osd pool create","pool":"{name}","pg_num":8,"pgp_num":8,"pool_type":"{kind}"{rule}}}"#
        );
        let ack = b.command(1, &json);
        (ack.rc, ack.outs)
    };
    let replicated = r#","erasure_code_profile":"default","rule":"replicated_rule""#;
    let mismatch = |rule: u8| (-22, format!("crush rule {rule} type does not match pool"));
    assert_eq!(create(&mut b, "e", "erasure", replicated), mismatch(0));
    assert_eq!(create(&mut b, "e", "erasure", "").0, 0);
    let rule = b.map().pool(1).unwrap().crush_rule;
    assert_eq!(create(&mut b, "r", "replicated", r#","rule":"erasure-code""#), mismatch(rule));
}

#[test]
fn up_thru_grows_as_asked() {
    let mut b = Bench::new(fresh_kv());
    let osds = b.three_osds();
    let epoch = b.map().epoch;
    b.send(osds[0], &MOSDAlive { paxos: PaxosHeader::at(epoch.into()), want: epoch });
    b.pass(Duration::ZERO);
    assert!(b.map().info(0).unwrap().up_thru >= epoch);
}

#[test]
fn snapshot_ids_of_clients_grow_and_exclude_pool_snapshots() {
    let mut b = Bench::new(fresh_kv());
    b.three_osds();
    b.out(1, r#"{"prefix":"osd pool create","pool":"p"}"#);
    let pool = b.map().lookup_pool("p").unwrap() as u32;
    let op = |b: &mut Bench, op: u32, snapid: u64| {
        b.send(
            1,
            &MPoolOp {
                fsid: FSID.parse().unwrap(),
                pool,
                op,
                snapid,
                name: "s".into(),
                ..MPoolOp::default()
            },
        );
        b.pass(Duration::ZERO);
        b.take::<MPoolOpReply>(1).remove(0)
    };
    // A pool that `rados cppool` filled knows no snapshots of clients: `rbd snap rm` there was told
    // EINVAL, which is for pools with snapshots of their own.
    assert_eq!(op(&mut b, PoolOpCode::DELETE_UNMANAGED_SNAP, 1).reply_code, -95);
    let first = op(&mut b, PoolOpCode::CREATE_UNMANAGED_SNAP, 0);
    assert_eq!(first.reply_code, 0);
    assert_eq!(first.response_data.as_deref(), Some(&2u64.to_le_bytes()[..]));
    let second = op(&mut b, PoolOpCode::CREATE_UNMANAGED_SNAP, 0);
    assert_eq!(second.response_data.as_deref(), Some(&3u64.to_le_bytes()[..]));
    assert_eq!(op(&mut b, PoolOpCode::CREATE_SNAP, 0).reply_code, -22);
    assert_eq!(op(&mut b, PoolOpCode::DELETE_UNMANAGED_SNAP, 2).reply_code, 0);
    let map = b.map();
    assert!(map.removed_snaps_queue[&i64::from(pool)].contains(2));
}

/// What was removed and purged stood as a list of single numbers, with a gap for each that a removal
/// takes of the pool's sequence: written anew with each removal, 391 KB of log after 15,000.
#[test]
fn purged_snapshots_are_few_intervals_however_many_there_were() {
    let kv = fresh_kv();
    let mut b = Bench::new(kv.clone());
    b.three_osds();
    for pool in ["client", "own"] {
        b.out(1, &format!(r#"{{"prefix":"osd pool create","pool":"{pool}"}}"#));
    }
    let client = b.map().lookup_pool("client").unwrap();
    let own = b.map().lookup_pool("own").unwrap();
    let op = |b: &mut Bench, op: u32, snapid: u64| {
        let fsid = FSID.parse().unwrap();
        let pool = client as u32;
        b.send(1, &MPoolOp { fsid, pool, op, snapid, name: "s".into(), ..MPoolOp::default() });
        b.pass(Duration::ZERO);
        b.take::<MPoolOpReply>(1).remove(0).reply_code
    };
    for n in 0..4 {
        assert_eq!(op(&mut b, PoolOpCode::CREATE_UNMANAGED_SNAP, 0), 0);
        b.out(1, &format!(r#"{{"prefix":"osd pool mksnap","pool":"own","snap":"s{n}"}}"#));
    }
    // Two removals in one proposal, and two of their own.
    for snapid in [2, 4] {
        let fsid = FSID.parse().unwrap();
        let (pool, op) = (client as u32, PoolOpCode::DELETE_UNMANAGED_SNAP);
        b.send(1, &MPoolOp { fsid, pool, op, snapid, ..MPoolOp::default() });
    }
    b.pass(Duration::from_secs(1));
    b.take::<MPoolOpReply>(1);
    for snapid in [5, 3] {
        assert_eq!(op(&mut b, PoolOpCode::DELETE_UNMANAGED_SNAP, snapid), 0);
    }
    for n in [3, 1, 0, 2] {
        b.out(1, &format!(r#"{{"prefix":"osd pool rmsnap","pool":"own","snap":"s{n}"}}"#));
    }
    let queue = b.map().removed_snaps_queue.clone();
    assert_eq!(queue[&client].iter().collect::<Vec<_>>(), [(2, 4)]);
    let digest = PgMapDigest { purged_snaps: queue, ..PgMapDigest::default() };
    let pg_map_digest = digest.to_bytes();
    b.send(1, &MMonMgrReport { pg_map_digest, ..MMonMgrReport::default() });
    for _ in 0..10 {
        b.pass(Duration::from_secs(5));
    }
    assert_eq!(b.map().removed_snaps_queue.get(&client), None);
    let stored = |pool: i64| {
        let bytes = kv.get(&store::kv::joined_key("osd_snap", format!("purged_{pool}").as_bytes()));
        bytes.unwrap().map(|bytes| IntervalSet::from_bytes(&bytes).unwrap())
    };
    // Four snapshots and the numbers of four removals, in one piece.
    assert_eq!(stored(client).unwrap().iter().collect::<Vec<_>>(), [(2, 8)]);
    assert_eq!(stored(own).unwrap().iter().collect::<Vec<_>>(), [(1, 8)]);
    // Removed long ago: no error, and nothing to do.
    assert_eq!(op(&mut b, PoolOpCode::DELETE_UNMANAGED_SNAP, 4), 0);
    assert_eq!(b.map().removed_snaps_queue.get(&client), None);
    assert_eq!(b.map().pool(client).unwrap().snap_seq, 9);
    // A pool's go with it.
    let name = r#""pool":"client","pool2":"client","yes_i_really_really_mean_it":true"#;
    b.out(1, &format!(r#"{{"prefix":"osd pool delete",{name}}}"#));
    assert_eq!(stored(client), None);
}

/// `osd create` answered EEXIST for an id in use, and took ids without a uuid.
#[test]
fn osd_create_looks_at_ids_only_with_a_uuid() {
    let mut b = Bench::new(fresh_kv());
    b.three_osds();
    let create = |b: &mut Bench, rest: &str| {
        let ack = b.command(1, &format!(r#"{{"prefix":"osd create"{rest}}}"#));
        (ack.rc, String::from_utf8_lossy(&ack.outb).trim().to_string())
    };
    let uuid = |n: u32| format!(r#","uuid":"11111111-1111-1111-1111-{n:012}""#);
    let with = |n: u32, id: u32| format!(r#"{},"id":{id}"#, uuid(n));
    assert_eq!(create(&mut b, &with(7, 0)).0, -22);
    assert_eq!(create(&mut b, r#","id":9"#), (0, "3".to_string()));
    assert_eq!(create(&mut b, &with(7, 5)), (0, "5".to_string()));
    assert_eq!(create(&mut b, &with(7, 5)), (0, "5".to_string()));
    assert_eq!(create(&mut b, &uuid(7)), (0, "5".to_string()));
    assert_eq!(create(&mut b, &with(7, 6)).0, -17);
    assert_eq!(create(&mut b, &uuid(8)), (0, "4".to_string()));
}

/// Placement groups beyond mon_osd_max_creating_pgs (1,024) were never told to their primaries: the next ones were put into an
/// epoch that all had asked beyond by then. Their pool was `creating` for ever, and writes to it hung.
#[test]
fn placement_groups_are_made_however_many_wait() {
    let mut b = Bench::with(fresh_kv(), "mon_osd_max_creating_pgs = 4");
    let osds = b.three_osds();
    for session in &osds {
        let item = SubscribeItem { start: 0, flags: 0 };
        let what = BTreeMap::from([("osd_pg_creates".to_string(), item)]);
        b.send(*session, &MMonSubscribe { what, hostname: "h".into() });
    }
    b.out(1, r#"{"prefix":"osd pool create","pool":"p","pg_num":32}"#);
    let pool = b.map().lookup_pool("p").unwrap();
    let mut made = std::collections::BTreeSet::new();
    for _ in 0..32 {
        for session in &osds {
            for create in b.take::<MOSDPGCreate2>(*session) {
                for pgid in create.pgs.keys().map(|pgid| pgid.pgid) {
                    made.insert(pgid);
                    b.send(*session, &MOSDPGCreated { paxos: PaxosHeader::at(0), pgid });
                }
            }
        }
        b.pass(Duration::from_secs(2));
    }
    assert_eq!(made.len(), 32);
    assert!(!b.map().pool(pool).unwrap().has_flag(maps::pool::pool_flags::CREATING));
    // Of two that are forced in one epoch the second was lost, though both were answered "now creating, ok".
    let mut forced: Vec<_> = made
        .into_iter()
        .filter(|pgid| b.map().pg_to_up_acting(*pgid).acting_primary == 0)
        .collect();
    forced.truncate(2);
    for pgid in &forced {
        let json = format!(
            r#"{{"prefix":"osd force-create-pg","pgid":"{pgid}","yes_i_really_mean_it":true}}"#
        );
        let cmd = vec![json.into()];
        b.send(1, &MMonCommand { fsid: FSID.parse().unwrap(), cmd, ..MMonCommand::default() });
    }
    b.pass(Duration::from_secs(2));
    let told: Vec<_> = b
        .take::<MOSDPGCreate2>(osds[0])
        .into_iter()
        .flat_map(|m| m.pgs.into_keys())
        .map(|pgid| pgid.pgid)
        .collect();
    assert!(
        forced.len() == 2 && forced.iter().all(|pgid| told.contains(pgid)),
        "{forced:?} {told:?}"
    );
}

/// A new pool began with as many placement groups as were asked for, whatever mon_osd_max_initial_pgs said.
#[test]
fn a_new_pool_begins_with_few_placement_groups() {
    let mut b = Bench::with(fresh_kv(), "mon_osd_max_initial_pgs = 8");
    b.three_osds();
    b.out(1, r#"{"prefix":"osd pool create","pool":"few","pg_num":4}"#);
    b.out(1, r#"{"prefix":"osd pool create","pool":"many","pg_num":32,"pgp_num":16}"#);
    let map = b.map();
    let sizes = |name: &str| {
        let p = map.pool(map.lookup_pool(name).unwrap()).unwrap();
        [p.pg_num, p.pg_num_pending, p.pgp_num, p.pg_num_target, p.pgp_num_target]
    };
    assert_eq!(sizes("few"), [4; 5]);
    assert_eq!(sizes("many"), [8, 8, 8, 32, 16]);
}

/// One full OSD stopped writes to all pools, those that can have nothing on it, too, and after it was taken out.
#[test]
fn a_full_osd_concerns_pools_that_reach_it() {
    let mut b = Bench::new(fresh_kv());
    let osds = b.three_osds();
    b.out(1, r#"{"prefix":"osd pool create","pool":"p","pg_num":1}"#);
    b.out(1, r#"{"prefix":"osd crush add-bucket","name":"other","type":"root"}"#);
    let full = |b: &mut Bench| {
        let epoch = b.map().epoch;
        b.send(
            osds[0],
            &MOSDFull {
                paxos: PaxosHeader::at(epoch.into()),
                map_epoch: epoch,
                state: maps::osdmap::osd_state::FULL,
            },
        );
        b.pass(Duration::from_secs(10));
        let map = b.map();
        map.pool(map.lookup_pool("p").unwrap()).unwrap().has_flag(maps::pool::pool_flags::FULL)
    };
    assert!(full(&mut b));
    b.out(1, r#"{"prefix":"osd out","ids":["0"]}"#);
    assert!(!full(&mut b));
    b.out(1, r#"{"prefix":"osd in","ids":["0"]}"#);
    assert!(full(&mut b));
    b.out(1, r#"{"prefix":"osd crush set","id":0,"weight":1.0,"args":["root=other"]}"#);
    assert!(!full(&mut b));
}

/// `osd new` with a secret that is none was refused, and the OSD was there all the same; so it was where a key was left of another.
#[test]
fn a_refused_osd_new_makes_no_osd() {
    let mut b = Bench::new(fresh_kv());
    b.three_osds();
    let new = r#"{"prefix":"osd new","uuid":"11111111-1111-1111-1111-000000000005"}"#;
    assert_eq!(b.command_with(1, new, br#"{"cephx_secret":"bad"}"#).rc, -22);
    assert_eq!(b.command_with(1, new, br#"{"crush_device_class":"a b"}"#).rc, -22);
    b.out(1, r#"{"prefix":"auth get-or-create","entity":"osd.3"}"#);
    let other = br#"{"cephx_secret":"AQAAAAAAAAAAABAAAAAAAAAAAAAAAAAAAAAAAA=="}"#;
    assert_eq!(b.command_with(1, new, other).rc, -17);
    assert_eq!(b.map().num_osds(), 3);
}

/// `pgp_num` went at once to what it was set to, however much that moved; and `pg_num` took one along that had been set apart.
#[test]
fn pgp_num_is_walked_and_kept_apart() {
    let mut b = Bench::new(fresh_kv());
    b.three_osds();
    b.out(1, r#"{"prefix":"osd pool create","pool":"p","pg_num":16}"#);
    let numbers = |b: &mut Bench| {
        let map = b.map();
        let pool = map.pool(map.lookup_pool("p").unwrap()).unwrap();
        (pool.pg_num_target, pool.pgp_num, pool.pgp_num_target)
    };
    let set = |b: &mut Bench, var: &str, val: u32| {
        b.out(1, &format!(r#"{{"prefix":"osd pool set","pool":"p","var":"{var}","val":"{val}"}}"#));
    };
    // While its placement groups are made.
    set(&mut b, "pg_num", 32);
    assert_eq!(numbers(&mut b), (32, 16, 32));
    set(&mut b, "pgp_num", 4);
    assert_eq!(numbers(&mut b), (32, 16, 4));
    set(&mut b, "pg_num", 8);
    assert_eq!(numbers(&mut b), (8, 16, 4));
    set(&mut b, "pg_num", 2);
    assert_eq!(numbers(&mut b), (2, 16, 2));
    b.out(1, r#"{"prefix":"osd pool rename","srcpool":"p","destpool":"q"}"#);
    let again = b.command(1, r#"{"prefix":"osd pool rename","srcpool":"p","destpool":"q"}"#);
    assert_eq!(
        (again.rc, &again.outs[..]),
        (0, "pool 'p' does not exist; pool 'q' does -- assuming successful rename")
    );
}

/// With a larger `mon_max_osd` one command made a step that no map takes, and each monitor in turn panicked.
#[test]
fn more_osds_than_a_map_takes_are_refused() {
    let mut b = Bench::with(fresh_kv(), "mon_max_osd = 2000000");
    b.three_osds();
    for (json, errno) in [
        (r#"{"prefix":"osd setmaxosd","newmax":1500000}"#, types::Errno::ERANGE),
        (
            r#"{"prefix":"osd create","id":1500000,"uuid":"97ba6fd7-1f68-4a44-a7c3-a5d09bfe3b4d"}"#,
            types::Errno::ERANGE,
        ),
    ] {
        assert_eq!(b.command(1, json).rc, -errno.0, "{json}");
    }
}

/// Who led a placement group for a while (`osd primary-temp`) led it for ever: when it had died nobody did, and a removed OSD's successor
/// of the same number led again.
#[test]
fn a_temporary_primary_goes_when_it_is_down_or_leads_anyway() {
    let mut b = Bench::new(fresh_kv());
    let osds = b.three_osds();
    b.out(1, r#"{"prefix":"osd pool create","pool":"p","pg_num":8}"#);
    let pgid = types::PgId::new(b.map().lookup_pool("p").unwrap() as u64, 0);
    let up = b.map().pg_to_up_acting(pgid).up;
    let lead = |b: &mut Bench, osd: i32| {
        b.out(1, &format!(r#"{{"prefix":"osd primary-temp","pgid":"{pgid}","id":"{osd}"}}"#));
        b.map().primary_temp.contains_key(&pgid)
    };
    assert!(lead(&mut b, up[1]));
    assert_eq!(b.map().pg_to_up_acting(pgid).acting_primary, up[1]);
    assert!(!lead(&mut b, up[0]), "it leads anyway");
    assert!(lead(&mut b, up[1]));
    let gone = failure(up[1], messages::FAILURE_FAILED | messages::FAILURE_IMMEDIATE, 0);
    b.send(osds[up[0] as usize], &gone);
    b.pass(Duration::ZERO);
    let map = b.map();
    assert!(map.is_down(up[1]) && map.primary_temp.is_empty());
    assert_eq!(map.pg_to_up_acting(pgid).acting_primary, up[0]);
}

/// An OSD that was made anew under its number while that was in stayed new: marked out by hand it was marked in again when it came back.
#[test]
fn an_osd_that_is_in_is_not_new_once_it_is_up() {
    let mut b = Bench::new(fresh_kv());
    b.three_osds();
    b.out(1, r#"{"prefix":"osd down","ids":["0"]}"#);
    b.out(1, r#"{"prefix":"osd destroy-actual","id":0,"yes_i_really_mean_it":true}"#);
    b.out(1, r#"{"prefix":"osd new","uuid":"01010101-0101-0101-0101-010101010101","id":0}"#);
    let is_new = |b: &mut Bench| b.map().state(0) & maps::osdmap::osd_state::NEW != 0;
    assert!(is_new(&mut b) && b.map().is_in(0));
    b.step(Event::Closed(100));
    b.boot(0);
    assert!(b.map().is_up(0) && b.map().is_in(0) && !is_new(&mut b));
    b.out(1, r#"{"prefix":"osd out","ids":["0"]}"#);
    b.out(1, r#"{"prefix":"osd down","ids":["0"]}"#);
    b.step(Event::Closed(100));
    b.boot(0);
    assert!(b.map().is_up(0) && b.map().is_out(0));
}

/// To peer anew a placement group was mapped to its only OSD, which is what it had: nothing happened, and the command said that all was well.
#[test]
fn a_placement_group_of_one_peers_anew_with_another() {
    let mut b = Bench::with(fresh_kv(), "mon_allow_pool_size_one = true");
    b.three_osds();
    let pool = r#"{"prefix":"osd pool create","pool":"p","pg_num":8,"size":1,"yes_i_really_mean_it":true}"#;
    b.out(1, pool);
    let pgid = types::PgId::new(b.map().lookup_pool("p").unwrap() as u64, 0);
    let before = b.map().pg_to_up_acting(pgid);
    let repeer = format!(r#"{{"prefix":"pg repeer","pgid":"{pgid}"}}"#);
    b.out(1, &repeer);
    let now = b.map().pg_to_up_acting(pgid);
    assert_eq!((&now.up, now.acting_primary), (&before.up, before.acting_primary));
    assert_ne!(now.acting, before.acting);
    for osd in (0..3).filter(|osd| *osd != before.acting_primary) {
        b.out(1, &format!(r#"{{"prefix":"osd down","ids":["{osd}"]}}"#));
    }
    let ack = b.command(1, &repeer);
    assert_eq!(
        (ack.rc, ack.outs.as_str()),
        (-11, "not enough up OSDs in the cluster to force repeer")
    );
}

/// A database that counts the maps read from it.
struct Counting {
    kv: Rc<dyn Kv>,
    maps_read: Rc<Cell<u32>>,
}

impl Kv for Counting {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, KvError> {
        let is_map = key.starts_with(b"osdmap\0full_") || key.starts_with(b"osdmap\0inc_");
        self.maps_read.set(self.maps_read.get() + u32::from(is_map));
        self.kv.get(key)
    }

    fn scan(
        &self,
        start: &[u8],
        end: &[u8],
        direction: Direction,
        visit: Visit<'_>,
    ) -> Result<(), KvError> {
        self.kv.scan(start, end, direction, visit)
    }

    fn commit(&self, batch: KvBatch) -> Result<(), KvError> {
        self.kv.commit(batch)
    }

    fn stored_bytes(&self) -> Result<u64, KvError> {
        self.kv.stored_bytes()
    }
}

/// Once there had been a thousand maps since the last was forgotten, full maps had pushed out every incremental, the newest first:
/// each subscriber cost a read of the database for each new epoch.
#[test]
fn the_newest_maps_are_not_read_for_each_subscriber() {
    let maps_read = Rc::new(Cell::new(0));
    let kv = Rc::new(Counting { kv: fresh_kv(), maps_read: maps_read.clone() });
    let mut b = Bench::with(kv, "mon_min_osdmap_epochs = 5000");
    let admin = b.admin();
    for n in 0..1100 {
        let command = if n % 2 == 0 { "osd set" } else { "osd unset" };
        b.out(admin, &format!(r#"{{"prefix":"{command}","key":"noup"}}"#));
    }
    maps_read.set(0);
    let newest = b.map().epoch;
    for start in [0, newest - 100] {
        let item = SubscribeItem { start: start.into(), flags: 0 };
        let what = BTreeMap::from([("osdmap".to_string(), item)]);
        let id = 50 + u64::from(start);
        b.open(id, EntityName::client(id as _), "client.w", "allow r", 5050);
        b.send(id, &MMonSubscribe { what, hostname: String::new() });
        let maps = b.take::<MOSDMap>(id).into_iter();
        let maps = maps.flat_map(|m| m.maps.into_keys().chain(m.incremental_maps.into_keys()));
        assert_eq!(maps.last(), Some(newest));
    }
    assert_eq!(maps_read.get(), 0);
}

/// `osd out` left no word of who had ordered it, and an OSD of the whole weight showed no weight that it would come back to.
#[test]
fn an_osd_that_is_marked_out_is_to_come_back_as_it_was() {
    let mut b = Bench::new(fresh_kv());
    b.three_osds();
    let old_weight = |b: &mut Bench, osd: i32| b.map().xinfo(osd).unwrap().old_weight;
    b.out(1, r#"{"prefix":"osd out","ids":["1"]}"#);
    assert_eq!(old_weight(&mut b, 1), maps::osdmap::WEIGHT_IN);
    b.out(1, r#"{"prefix":"osd in","ids":["1"]}"#);
    assert_eq!(old_weight(&mut b, 1), 0);
    b.out(1, r#"{"prefix":"osd down","ids":["2"]}"#);
    b.pass(Duration::from_secs(10));
    b.out(1, r#"{"prefix":"osd out","ids":["2"]}"#);
    let log = b.out(1, r#"{"prefix":"log last","num":100}"#);
    for how in ["1 out, while it was still marked up", "2 out, after it was down for 10 seconds"] {
        let text = format!("[INF] Client client.admin marked osd.{how}");
        assert!(log.lines().any(|line| line.ends_with(&text)), "{log}");
    }
}
