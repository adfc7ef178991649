//! The core without a daemon around it: events in, effects out, over a database in memory.

mod bench;
mod committed;
mod failures;
mod filesystems;
mod mds_lives;
mod orders;
mod osd_map;
mod table;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use auth::{AuthCapsInfo, METHOD_CEPHX};
use bytes::Bytes;
use denc::Denc;
use maps::osdmap::osd_state;
use messages::{
    LogEntry, MAuth, MAuthReply, MConfig, MLog, MMgrBeacon, MMgrMap, MMonCommand, MMonCommandAck,
    MMonSubscribe, MOSDMap, Message, PaxosHeader, SubscribeItem,
};
use mon::{Event, Peer};
use types::{AddrVec, AuthEntityName, EntityName, Errno, UTime, entity};

use crate::bench::*;

#[test]
fn nothing_is_answered_before_it_is_committed() {
    let mut b = Bench::new(fresh_kv());
    let admin = b.admin();
    let create = MMonCommand {
        fsid: FSID.parse().unwrap(),
        cmd: vec![r#"{"prefix":"osd pool create","pool":"p"}"#.into()],
        ..MMonCommand::default()
    };
    b.send(admin, &create);
    // Once more: it is there already, in memory, and that waits as well.
    b.send(admin, &create);
    assert!(b.take::<MMonCommandAck>(admin).is_empty());
    b.pass(Duration::ZERO);
    let acks = b.take::<MMonCommandAck>(admin);
    assert_eq!(acks.len(), 2);
    assert_eq!(acks[0].outs, "pool 'p' created");
    assert_eq!(acks[1].outs, "pool 'p' already exists");
    assert_eq!(b.out(admin, r#"{"prefix":"osd pool ls"}"#), "p\n");
}

/// The manager map was shown as it was in memory when a proposal was committed, with what had changed
/// while that was under way: under an epoch of which the database, and the next leader, had another map.
#[test]
fn a_manager_map_is_shown_as_it_was_committed() {
    let mut b = Bench::new(fresh_kv());
    let admin = b.admin();
    let what = BTreeMap::from([("mgrmap".to_string(), SubscribeItem { start: 0, flags: 0 })]);
    b.send(admin, &MMonSubscribe { what, hostname: "h".into() });
    let before = b.take::<MMgrMap>(admin).pop().unwrap().map;
    assert_eq!(before.active_gid, 0);
    b.open(2, EntityName::new(entity::MGR, 4002), "mgr.x", "allow profile mgr", 5002);
    let beacon = |available| MMgrBeacon {
        gid: 4002,
        name: "x".into(),
        fsid: FSID.parse().unwrap(),
        available,
        ..MMgrBeacon::default()
    };
    b.holds_commits = true;
    b.send(2, &beacon(false));
    b.pass(Duration::ZERO);
    b.send(2, &beacon(true));
    assert!(b.take::<MMgrMap>(admin).is_empty(), "nothing is committed");
    b.holds_commits = false;
    b.step(Event::Committed);
    let shown: Vec<_> = b.take::<MMgrMap>(admin).into_iter().map(|m| m.map).collect();
    let said: Vec<_> = shown.iter().map(|m| (m.epoch, m.active_gid, m.available)).collect();
    assert_eq!(said, [(before.epoch + 1, 4002, false)]);
    b.pass(Duration::ZERO);
    let shown = b.take::<MMgrMap>(admin).pop().unwrap().map;
    assert_eq!((shown.epoch, shown.available), (before.epoch + 2, true));
}

#[test]
fn requests_that_arrive_together_share_an_epoch() {
    let mut b = Bench::new(fresh_kv());
    let admin = b.admin();
    let before = b.map().epoch;
    for name in ["a", "b", "c"] {
        b.send(
            admin,
            &MMonCommand {
                fsid: FSID.parse().unwrap(),
                cmd: vec![format!(r#"{{"prefix":"osd pool create","pool":"{name}"}}"#).into()],
                ..MMonCommand::default()
            },
        );
    }
    b.pass(Duration::ZERO);
    b.take::<MMonCommandAck>(admin);
    let map = b.map();
    assert_eq!(map.epoch, before + 1);
    assert_eq!(map.pool_names.values().collect::<Vec<_>>(), ["a", "b", "c"]);
}

/// A leader died after it had committed a command and before its answer left: the client's monitor
/// sent the command to the next leader, which made a second OSD.
#[test]
fn a_command_sent_again_is_not_done_again() {
    let kv = fresh_kv();
    let mut b = Bench::new(kv.clone());
    let admin = b.admin();
    let create = r#"{"prefix":"osd create"}"#;
    let first = b.command(admin, create);
    let mut next = Bench::new(kv);
    let admin = next.admin();
    next.tid = b.tid - 1;
    let again = next.command(admin, create);
    assert_eq!(again.outb, first.outb);
    assert_eq!(next.map().num_osds(), 1);
    assert_ne!(next.command(admin, create).outb, first.outb);
}

#[test]
fn state_survives_a_restart() {
    let kv = fresh_kv();
    let mut b = Bench::new(kv.clone());
    b.three_osds();
    b.out(1, r#"{"prefix":"osd pool create","pool":"p","pg_num":8}"#);
    b.out(1, r#"{"prefix":"config set","who":"osd","name":"osd_max_backfills","value":"4"}"#);
    b.out(1, r#"{"prefix":"config-key set","key":"k","val":"v"}"#);
    let key = b.out(1, r#"{"prefix":"auth get-or-create-key","entity":"client.x"}"#);
    let map = b.map();
    drop(b);
    let mut b = Bench::new(kv);
    let admin = b.admin();
    assert_eq!(b.map(), map);
    assert_eq!(
        b.out(admin, r#"{"prefix":"config get","who":"osd.1","key":"osd_max_backfills"}"#),
        "4\n"
    );
    assert_eq!(b.out(admin, r#"{"prefix":"config-key get","key":"k"}"#), "v");
    assert_eq!(b.out(admin, r#"{"prefix":"auth print-key","entity":"client.x"}"#), key);
}

/// A time so far away that no clock can tell it made whichever monitor led panic, one after the other.
#[test]
fn an_alert_may_be_muted_for_longer_than_time_lasts() {
    let mut b = Bench::new(fresh_kv());
    b.admin();
    let mute =
        format!(r#"{{"prefix":"health mute","code":"X","ttl":"{}","sticky":true}}"#, i64::MAX);
    assert_eq!(b.command(1, &mute).rc, 0);
}

/// Two OSDs were down and muted; one came back, went down again, and nobody was told of it: the mute kept the count of
/// two, where Ceph's shrinks with its finding (`qa/standalone/mon/health-mute.sh`).
#[test]
fn a_mute_shrinks_with_its_finding() {
    let mut b = Bench::new(fresh_kv());
    b.three_osds();
    let admin = 1;
    b.command(admin, r#"{"prefix":"osd down","ids":["0","1"]}"#);
    assert_eq!(b.command(admin, r#"{"prefix":"health mute","code":"OSD_DOWN"}"#).rc, 0);
    let shown = |b: &mut Bench| b.out(admin, r#"{"prefix":"health"}"#).contains("osds down");
    assert!(!shown(&mut b));
    b.boot(0);
    b.pass(Duration::from_secs(5));
    assert!(!shown(&mut b), "one is less than the two that were muted");
    b.command(admin, r#"{"prefix":"osd down","ids":["0"]}"#);
    b.pass(Duration::from_secs(5));
    assert!(shown(&mut b));
}

/// A mute that stays kept the finding's text and count, as if they mattered, and `health detail` did not
/// say that it stays.
#[test]
fn a_sticky_mute_says_so_and_remembers_no_finding() {
    let mut b = Bench::new(fresh_kv());
    let admin = b.admin();
    b.command(admin, r#"{"prefix":"osd set","key":"noup"}"#);
    let mute = r#"{"prefix":"health mute","code":"OSDMAP_FLAGS","ttl":"1h","sticky":true}"#;
    assert_eq!(b.command(admin, mute).rc, 0);
    let detail = b.out(admin, r#"{"prefix":"health","detail":"detail"}"#);
    assert!(detail.contains("(MUTED ttl 59m, STICKY) [WRN] OSDMAP_FLAGS: noup"), "{detail}");
    let json = b.out(admin, r#"{"prefix":"health","format":"json"}"#);
    assert!(json.contains(r#""sticky":true,"summary":"","count":0}"#), "{json}");
}

/// A new leader did not know yet of the others' clocks and disks, took what was muted of them for gone, and the mutes with
/// it: each change of the leader showed the alerts again.
#[test]
fn mutes_of_what_monitors_tell_outlive_a_leader() {
    let mut b = Bench::new(kv_of(&["a", "b", "c"]));
    let admin = b.admin();
    let stand = |b: &mut Bench, epoch: u32, rounds: u32, low: &[&str]| {
        let disk = mon::Disk { avail_percent: 10, stored_bytes: 0 };
        let disks = low.iter().map(|name| ((*name).to_owned(), disk)).collect();
        let standing = mon::Standing { epoch, rounds, disks, ..b.core.standing().clone() };
        let effects = b.core.stand(clock(b.now), standing).unwrap();
        b.perform(effects);
        b.pass(Duration::from_secs(3));
        let health = b.out(admin, r#"{"prefix":"health","format":"json"}"#);
        let (_, mutes) = health.split_once(r#""mutes":"#).unwrap();
        mutes.to_owned()
    };
    stand(&mut b, 2, 9, &["a", "b"]);
    assert_eq!(b.command(admin, r#"{"prefix":"health mute","code":"MON_DISK_LOW"}"#).rc, 0);
    // It leads anew and has asked nobody, has asked, has heard.
    for (rounds, low) in [(0, &[][..]), (1, &["a"]), (2, &["a", "b"])] {
        let mutes = stand(&mut b, 4, rounds, low);
        assert!(mutes.contains(r#""code":"MON_DISK_LOW""#), "{rounds}: {mutes}");
        assert!(mutes.contains(r#""count":2"#), "{rounds}: {mutes}");
    }
    let mutes = stand(&mut b, 4, 3, &[]);
    assert!(!mutes.contains("MON_DISK_LOW"), "{mutes}");
}

/// `mon_data_avail_warn`, `mon_data_avail_crit` and `mon_data_size_warn` were taken and had no effect: nobody
/// was told that the disk of a monitor fills up, until the monitor stopped.
#[test]
fn health_tells_of_monitors_disks() {
    let mut b = Bench::new(kv_of(&["a", "b", "c"]));
    let admin = b.admin();
    let mut health = |disks: [(&str, u64, u64); 3]| {
        let disk = |(name, avail_percent, stored_bytes): (&str, _, _)| {
            (name.to_owned(), mon::Disk { avail_percent, stored_bytes })
        };
        let disks = disks.into_iter().map(disk).collect();
        let standing = mon::Standing { disks, ..b.core.standing().clone() };
        let effects = b.core.stand(clock(b.now), standing).unwrap();
        b.perform(effects);
        b.pass(Duration::from_secs(5));
        let text = b.out(admin, r#"{"prefix":"health","detail":"detail"}"#);
        let ours = text.lines().skip_while(|line| !line.contains("MON_DISK"));
        let ours = ours.take_while(|line| line.contains("MON_DISK") || line.contains("mon."));
        ours.map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(health([("a", 31, 1 << 20), ("b", 100, 0), ("c", 31, 0)]).is_empty());
    assert_eq!(
        health([("a", 30, 1 << 20), ("b", 5, 0), ("c", 6, 15 << 30)]),
        [
            "[WRN] MON_DISK_BIG: mon c is using a lot of disk space",
            "    mon.c is 15 GiB >= mon_data_size_warn (15 GiB)",
            "[ERR] MON_DISK_CRIT: mon b is very low on available space",
            "    mon.b has 5% avail",
            "[WRN] MON_DISK_LOW: mons a,c are low on available space",
            "    mon.a has 30% avail",
            "    mon.c has 6% avail",
        ]
    );
}

/// `ceph -s` showed the map's flags twice, one line under the other.
#[test]
fn the_status_shows_flags_once() {
    let mut b = Bench::new(fresh_kv());
    let admin = b.admin();
    b.command(admin, r#"{"prefix":"osd set","key":"noup"}"#);
    let status = b.out(admin, r#"{"prefix":"status"}"#);
    assert_eq!(status.matches("\n         flags noup\n").count(), 1, "{status}");
}

/// A pool with `min_size` 1 that got its size once more kept it, where Ceph sets it anew with any size; and with
/// `nosizechange` its `min_size` could be set (`cephtool/test.sh`, `test_mon_osd_pool_set`).
#[test]
fn min_size_follows_size_and_is_kept_by_nosizechange() {
    let mut b = Bench::new(fresh_kv());
    b.three_osds();
    b.out(1, r#"{"prefix":"osd pool create","pool":"p","pg_num":8}"#);
    let set = |b: &mut Bench, var: &str, val: &str| {
        let line = format!(r#"{{"prefix":"osd pool set","pool":"p","var":"{var}","val":"{val}"}}"#);
        b.command(1, &line).rc
    };
    let sizes = |b: &mut Bench| {
        let map = b.map();
        let pool = map.pools.values().next().unwrap();
        (pool.size, pool.min_size)
    };
    assert_eq!(set(&mut b, "min_size", "1"), 0);
    assert_eq!(set(&mut b, "size", "3"), 0);
    assert_eq!(sizes(&mut b), (3, 2));
    assert_eq!(set(&mut b, "min_size", "3"), 0);
    assert_eq!(set(&mut b, "size", "2"), 0);
    assert_eq!(sizes(&mut b), (2, 1));
    assert_eq!(set(&mut b, "nosizechange", "1"), 0);
    assert_eq!(set(&mut b, "min_size", "2"), -Errno::EPERM.0);
    assert_eq!(sizes(&mut b), (2, 1));
}

/// `pg_num` went below a pool's `pg_num_min` and above its `pg_num_max`, which held for the autoscaler alone.
#[test]
fn pg_num_keeps_within_a_pools_bounds() {
    let mut b = Bench::new(fresh_kv());
    b.three_osds();
    b.out(
        1,
        r#"{"prefix":"osd pool create","pool":"p","pg_num":32,"pg_num_min":16,"pg_num_max":64}"#,
    );
    let set = |b: &mut Bench, n: u32| {
        let json = format!(r#"{{"prefix":"osd pool set","pool":"p","var":"pg_num","val":"{n}"}}"#);
        let ack = b.command(1, &json);
        (ack.rc, ack.outs)
    };
    let refused = |text: &str| (-Errno::EINVAL.0, text.to_string());
    assert_eq!(set(&mut b, 4), refused("specified pg_num 4 < pg_num_min 16"));
    // So says Ceph.
    assert_eq!(set(&mut b, 128), refused("specified pg_num 128 < pg_num_max 64"));
    for n in [16, 64] {
        assert_eq!(set(&mut b, n), (0, format!("set pool 1 pg_num to {n}")));
    }
}

/// A pool could be given a name as long as a message: a few such renames made an epoch that monitors did not send each other, and
/// nothing was committed any more.
#[test]
fn names_in_maps_have_an_end() {
    let mut b = Bench::new(fresh_kv());
    b.three_osds();
    b.out(1, r#"{"prefix":"osd pool create","pool":"p","pg_num":8}"#);
    let long = "x".repeat(5000);
    for json in [
        format!(r#"{{"prefix":"osd pool rename","srcpool":"p","destpool":"{long}"}}"#),
        format!(r#"{{"prefix":"osd pool create","pool":"{long}"}}"#),
        format!(r#"{{"prefix":"osd pool mksnap","pool":"p","snap":"{long}"}}"#),
        format!(r#"{{"prefix":"osd erasure-code-profile set","name":"{long}"}}"#),
        format!(r#"{{"prefix":"osd erasure-code-profile set","name":"e","profile":["k={long}"]}}"#),
        format!(r#"{{"prefix":"osd crush add-bucket","name":"{long}","type":"host"}}"#),
        format!(r#"{{"prefix":"osd crush class create","class":"{long}"}}"#),
        format!(r#"{{"prefix":"mon add","name":"{long}","addr":"10.0.0.9:3300"}}"#),
    ] {
        let ack = b.command(1, &json);
        assert_eq!(ack.rc, -Errno::EINVAL.0, "{}: {}", &json[..60], ack.outs);
    }
    let fits = &long[..4096];
    b.out(1, &format!(r#"{{"prefix":"osd pool rename","srcpool":"p","destpool":"{fits}"}}"#));
}

/// Any release was taken while clients were connected that lack what it promises; the next map with an upmap cut them off.
#[test]
fn clients_that_are_connected_are_not_passed_over() {
    let mut b = Bench::new(fresh_kv());
    let admin = b.admin();
    let peer = Peer {
        name: EntityName::client(4070),
        auth_name: "client.old".parse().unwrap(),
        caps: AuthCapsInfo::from_text("allow r"),
        global_id: 4070,
        addrs: AddrVec::of(addr(5070)),
        socket_addr: addr(5070),
        // All but the bit of SERVER_LUMINOUS.
        features: types::features::ALL & !(1 << 21),
        handshake: None,
    };
    b.step(Event::Opened(70, Rc::new(peer)));
    let set = |name: &str, sure: &str| {
        format!(r#"{{"prefix":"osd set-require-min-compat-client","version":"{name}"{sure}}}"#)
    };
    assert_eq!(b.command(admin, &set("jewel", "")).rc, 0);
    let ack = b.command(admin, &set("luminous", ""));
    let text = "cannot set require_min_compat_client to luminous: 1 connected client(s) look like kraken (missing 0x200000); add --yes-i-really-mean-it to do it anyway";
    assert_eq!((ack.rc, ack.outs.as_str()), (-Errno::EPERM.0, text));
    let sure = r#","yes_i_really_mean_it":true"#;
    assert_eq!(b.command(admin, &set("luminous", sure)).rc, 0);
    assert_eq!(b.map().require_min_compat_client, 12);
}

/// More copies for a pool were let through up to the first that was one too many: only what pools had before was counted.
#[test]
fn a_size_that_means_too_many_placement_groups_is_refused() {
    let mut b = Bench::with(fresh_kv(), "mon_max_pg_per_osd = 8\nosd_pool_default_size = 2");
    b.three_osds();
    b.out(1, r#"{"prefix":"osd pool create","pool":"p","pg_num":10}"#);
    let grow = r#"{"prefix":"osd pool set","pool":"p","var":"size","val":"3"}"#;
    let reply = b.command(1, grow);
    assert!(reply.outs.contains("size 3 would mean 30 total pgs"), "{}", reply.outs);
}

/// After `osd erasure-code-profile rm default`, pools and rules of the default profile were refused; Ceph makes it anew
/// (`qa/standalone/mon/osd-crush.sh`).
#[test]
fn the_default_profile_comes_back_when_it_is_asked_for() {
    let mut b = Bench::new(fresh_kv());
    b.three_osds();
    let rm = r#"{"prefix":"osd erasure-code-profile rm","name":"default"}"#;
    let rule = r#"{"prefix":"osd crush rule create-erasure","name":"r"}"#;
    let pool = r#"{"prefix":"osd pool create","pool":"p","pg_num":8,"pool_type":"erasure"}"#;
    for make in [rule, pool] {
        assert_eq!(b.command(1, rm).rc, 0);
        assert!(b.map().erasure_code_profiles.is_empty());
        let reply = b.command(1, make);
        assert_eq!(reply.rc, 0, "{}", reply.outs);
        assert_eq!(b.map().erasure_code_profiles["default"]["plugin"], "jerasure");
    }
}

/// A pool took any `compression_required_ratio` (`cephtool/test.sh`, `test_mon_osd_pool_set`).
#[test]
fn a_compression_ratio_is_between_0_and_1() {
    let mut b = Bench::new(fresh_kv());
    b.three_osds();
    b.out(1, r#"{"prefix":"osd pool create","pool":"p","pg_num":8}"#);
    for (val, rc) in [("0.5", 0), ("1", 0), ("1.1", -Errno::EINVAL.0), ("-.2", -Errno::EINVAL.0)] {
        let set = format!(
            r#"{{"prefix":"osd pool set","pool":"p","var":"compression_required_ratio","val":"{val}"}}"#
        );
        assert_eq!(b.command(1, &set).rc, rc, "{val}");
    }
}

/// `ceph osd pool create p 8 8 replicated replicated_rule 100000` was refused for want of a rule "100000": on the command
/// line the rule and the number of objects stand one place before their own (`qa/standalone/mon/osd-pool-create.sh`).
#[test]
fn a_replicated_pool_is_told_how_many_objects_to_expect() {
    let mut b = Bench::new(fresh_kv());
    b.three_osds();
    let create = |name: &str, objects: &str| {
        format!(
            r#"{{"prefix":"osd pool create","pool":"{name}","pg_num":8,"pgp_num":8,"pool_type":"replicated","erasure_code_profile":"replicated_rule","rule":"{objects}"}}"#
        )
    };
    assert_eq!(b.command(1, &create("p", "100000")).outs, "pool 'p' created");
    assert_eq!(b.map().pools.values().next().unwrap().expected_num_objects, 100_000);
    assert_eq!(b.command(1, &create("q", "many")).rc, -Errno::EINVAL.0);
}

/// A device class that an erasure code profile names could be removed, and pools of the profile no longer be made
/// (`qa/standalone/crush/crush-classes.sh`).
#[test]
fn a_class_that_a_profile_names_stays() {
    let mut b = Bench::new(fresh_kv());
    b.three_osds();
    b.out(1, r#"{"prefix":"osd crush class create","class":"slow"}"#);
    let set = r#"{"prefix":"osd erasure-code-profile set","name":"mine","profile":["k=2","m=1","crush-device-class=slow"]}"#;
    assert_eq!(b.command(1, set).rc, 0);
    let rm = r#"{"prefix":"osd crush class rm","class":"slow"}"#;
    let reply = b.command(1, rm);
    assert_eq!(reply.rc, -Errno::EBUSY.0);
    assert!(
        reply.outs.ends_with("still referenced by erasure-code-profile(s): mine"),
        "{}",
        reply.outs
    );
    b.out(1, r#"{"prefix":"osd erasure-code-profile rm","name":"mine"}"#);
    assert_eq!(b.command(1, rm).rc, 0);
}

/// The monitor's admin socket did not know `log flush`, and its help named commands with their arguments, where Ceph's
/// has the names alone.
#[test]
fn the_admin_socket_has_what_any_daemon_s_has() {
    let mut b = Bench::new(fresh_kv());
    let mut ask = |prefix: &str| {
        let line = format!(r#"{{"prefix":"{prefix}","format":"json"}}"#);
        b.core.admin_command(&command::CommandMap::parse(&[line]).unwrap(), Bytes::new())
    };
    for log in ["log flush", "log dump", "log reopen"] {
        assert_eq!(ask(log).outb, "{}", "{log}");
    }
    let help = ask("help").outb;
    let help = std::str::from_utf8(&help).unwrap();
    assert!(help.contains(r#""config get":"#) && help.contains(r#""log flush":"#), "{help}");
}

/// `mon_cluster_log_file` was taken and had no effect.
#[test]
fn the_cluster_log_is_written_when_it_is_committed() {
    const WARN: u16 = 3;
    let mut seq = 0;
    let mut say = |b: &mut Bench, prio: u16, channel: &str, text: &str| {
        seq += 1;
        let entry = LogEntry {
            name: AuthEntityName::new(entity::OSD, "0".to_owned()),
            rank: EntityName::osd(0),
            addrs: AddrVec::default(),
            stamp: UTime::default(),
            seq,
            prio,
            msg: text.into(),
            channel: channel.into(),
        };
        let fsid = FSID.parse().unwrap();
        b.send(1, &MLog { paxos: PaxosHeader::default(), fsid, entries: vec![entry] });
        b.pass(Duration::from_secs(1));
    };
    let files = "mon_cluster_log_file = default=/x/$cluster.$channel audit=";
    let mut b = Bench::with(fresh_kv(), &format!("{files}\nmon_cluster_log_file_level = warn"));
    b.admin();
    b.written.clear();
    b.holds_commits = true;
    say(&mut b, WARN + 1, "cluster", "early");
    assert!(b.written.is_empty(), "{:?}", b.written);
    b.holds_commits = false;
    b.step(Event::Committed);
    say(&mut b, WARN, "cluster", "large");
    say(&mut b, WARN - 2, "cluster", "small");
    say(&mut b, WARN - 1, "mine", "of security");
    say(&mut b, WARN, "audit", "elsewhere");
    let ends = |file: &str| -> Vec<String> {
        let text = b.written.get(&Some(file.to_owned())).map_or("", |text| text);
        assert!(text.is_empty() || text.ends_with('\n'));
        let lines = text.lines().filter(|line| !line.contains("Health check"));
        lines.map(|line| line.split_once(" : ").unwrap().1.to_owned()).collect()
    };
    assert_eq!(ends("/x/ceph.cluster"), ["cluster [ERR] early", "cluster [WRN] large"]);
    assert_eq!(ends("/x/ceph.mine"), ["mine [SEC] of security"]);
    assert_eq!(b.written.len(), 2, "{:?}", b.written);
    // Where nobody names a file, none is written: Ceph's default is below /var/log/ceph.
    let mut b = Bench::new(fresh_kv());
    b.admin();
    say(&mut b, WARN, "cluster", "unheard");
    assert!(b.written.is_empty());
    // On standard error lines say which channel they are of.
    let mut b = Bench::with(fresh_kv(), "mon_cluster_log_to_stderr = true");
    b.admin();
    say(&mut b, WARN, "cluster", "shown");
    let shown = |line: &str| line.starts_with("cluster ") && line.ends_with("cluster [WRN] shown");
    assert!(b.written[&None].lines().any(shown), "{:?}", b.written);
}

/// An OSD that is down may be told to stop, too, and one that has been told is told no more; up again, it is not to stop.
#[test]
fn an_osd_is_told_to_stop_once() {
    let mut b = Bench::new(fresh_kv());
    b.three_osds();
    let stop = r#"{"prefix":"osd stop","ids":["0"]}"#;
    let state = |b: &mut Bench| b.map().state(0) & (osd_state::UP | osd_state::STOP);
    assert_eq!(b.command(1, stop).outs, "stop osd.0. ");
    assert_eq!(state(&mut b), osd_state::STOP);
    assert_eq!(b.command(1, stop).outs, "osd.0 is already stopped. ");
    b.boot(0);
    assert_eq!(state(&mut b), osd_state::UP);
    b.command(1, r#"{"prefix":"osd down","ids":["0"]}"#);
    assert_eq!(b.command(1, stop).outs, "stop down osd.0. ");
    assert_eq!(state(&mut b), osd_state::STOP);
}

/// A leader that had been replaced applied the next one's entries onto what it had proposed itself,
/// and showed its subscribers an OSD map that was never committed.
#[test]
fn a_deposed_leader_shows_no_map_that_was_not_committed() {
    let mut b = Bench::new(fresh_kv());
    b.three_osds();
    let what = BTreeMap::from([("osdmap".to_string(), SubscribeItem { start: 0, flags: 0 })]);
    b.send(1, &MMonSubscribe { what, hostname: "h".into() });
    let before = b.map().epoch;
    b.take::<MOSDMap>(1);
    b.loses_proposals = true;
    let cmd = vec![r#"{"prefix":"osd set","key":"noout"}"#.into()];
    b.send(1, &MMonCommand { fsid: FSID.parse().unwrap(), cmd, ..MMonCommand::default() });
    b.pass(Duration::from_secs(1));
    let effects = b.core.applied(clock(b.now), &store::KvBatch::new()).unwrap();
    b.perform(effects);
    assert!(b.take::<MOSDMap>(1).is_empty(), "only epoch {before} is committed");
}

/// `sync_force` looked for one other monitor in the quorum. One of three is not enough for the new
/// member that comes back: the cluster had no quorum any more.
#[test]
fn sync_force_needs_a_majority_of_others() {
    let answer = |others: &[&str]| {
        let mut b = Bench::new(kv_of(&["a", "b", "c"]));
        let quorum = others.iter().map(|name| (*name).to_owned()).chain(["a".to_owned()]);
        let standing = mon::Standing { quorum: quorum.collect(), ..b.core.standing().clone() };
        let effects = b.core.stand(clock(b.now), standing).unwrap();
        b.perform(effects);
        let json = r#"{"prefix":"sync_force","validate":"--yes-i-really-mean-it"}"#;
        let map = command::CommandMap::parse(&[json.to_owned()]).unwrap();
        b.core.admin_command(&map, Bytes::new()).rc
    };
    assert_eq!(answer(&["b"]), -16);
    assert_eq!(answer(&["b", "c"]), 0);
}

#[test]
fn capabilities_bound_what_commands_do() {
    let mut b = Bench::new(fresh_kv());
    b.open(60, EntityName::client(4060), "client.ro", "allow r", 5060);
    let denied = b.command(60, r#"{"prefix":"osd pool create","pool":"p"}"#);
    assert_eq!((denied.rc, denied.outs.as_str()), (-13, "access denied"));
    assert_eq!(b.command(60, r#"{"prefix":"osd dump"}"#).rc, 0);
    assert_eq!(b.command(60, r#"{"prefix":"auth ls"}"#).rc, -13);
    assert_eq!(b.command(60, r#"{"prefix":"config-key get","key":"k"}"#).rc, -13);
}

/// Keys of another cluster: those without capabilities were taken, where a real monitor refuses the file, and those with some that say
/// nothing here were not, where it takes them.
#[test]
fn keyrings_are_imported_as_ceph_does() {
    let mut b = Bench::new(fresh_kv());
    let admin = b.admin();
    let key = "\tkey = AQBKb6ZnAAAAABAAK0Jmg7QHvIg9dVrrb1rSzA==\n";
    let import = |b: &mut Bench, file: String| {
        let ack = b.command_with(admin, r#"{"prefix":"auth import"}"#, file.as_bytes());
        (ack.rc, ack.outs)
    };
    let old =
        format!("[client.old]\n{key}\tcaps mon = \"allow bogus\"\n\tcaps xyz = \"allow *\"\n");
    let refused = import(&mut b, format!("{old}[client.bare]\n{key}"));
    assert_eq!(refused, (-22, "auth import: no caps supplied".into()));
    // Not as Ceph, which takes an entity that nobody can be.
    let refused = import(&mut b, format!("{old}[client.bare]\n\tcaps mon = \"allow r\"\n"));
    let text = "auth import: client.bare has no key in the keyring";
    assert_eq!(refused, (-22, text.into()));
    assert_eq!(b.command(admin, r#"{"prefix":"auth get","entity":"client.old"}"#).rc, -2);
    assert_eq!(import(&mut b, old.clone()), (0, "imported keyring".into()));
    assert_eq!(b.out(admin, r#"{"prefix":"auth get","entity":"client.old"}"#), old);
    // `auth add` with a keyring of such a key was refused; another key is EEXIST.
    let add = |b: &mut Bench, file: &str| {
        let json = r#"{"prefix":"auth add","entity":"client.old"}"#;
        let ack = b.command_with(admin, json, file.as_bytes());
        (ack.rc, ack.outs)
    };
    assert_eq!(add(&mut b, &old), (0, String::new()));
    let text = "entity client.old exists but key does not match";
    assert_eq!(add(&mut b, &old.replace("AQBKb6Zn", "AQBKb6Zm")), (-17, text.into()));
    let text = "error decoding keyring: syntax error in line 2";
    assert_eq!(add(&mut b, &old.replace("AQBKb6Zn", "")), (-22, text.into()));
    b.out(admin, r#"{"prefix":"auth rm","entity":"client.old"}"#);
    assert_eq!(add(&mut b, &old), (0, "added key for client.old".into()));
}

/// What is left of a file is a file as Ceph writes it, and has what says nothing once there is a cluster.
#[test]
fn a_file_s_options_are_taken_or_left() {
    let mut b = Bench::new(fresh_kv());
    let admin = b.admin();
    let file = b"[global]\nosd crush chooseleaf type = 0\nfsid = x\n[osd]\nosd max backfills = 3\nnone = 1\n";
    let ack = b.command_with(admin, r#"{"prefix":"config assimilate-conf"}"#, file);
    let left = std::str::from_utf8(&ack.outb).unwrap();
    assert_eq!(
        left,
        "\n[global]\n\tfsid = x\n\tosd_crush_chooseleaf_type = 0\n\n[osd]\n\tnone = 1\n"
    );
    let taken = b.out(admin, r#"{"prefix":"config get","who":"osd.1","key":"osd_max_backfills"}"#);
    assert_eq!(taken, "3\n");
}

/// A map whose rule is for other pools, by their type or size, was taken: the pool's placement groups were on no OSD at all.
#[test]
fn a_crush_map_whose_rules_fit_no_pool_is_refused() {
    let mut b = Bench::new(fresh_kv());
    b.three_osds();
    b.out(1, r#"{"prefix":"osd pool create","pool":"p","pg_num":8}"#);
    let map = b.map();
    let mut set = |change: fn(&mut crush::CrushMap)| {
        let mut crush = crush::CrushMap::clone(&map.crush);
        change(&mut crush);
        let ack = b.command_with(1, r#"{"prefix":"osd setcrushmap"}"#, &crush.to_bytes());
        (ack.rc, ack.outs)
    };
    fn rule(crush: &mut crush::CrushMap) -> &mut crush::Rule {
        crush.rules[0].as_mut().unwrap()
    }
    let refused = |text: &str| (-22, text.to_string());
    assert_eq!(
        set(|crush| crush.rules[0] = None),
        refused("pool 1 references crush_rule 0 but it is not present")
    );
    assert_eq!(
        set(|crush| rule(crush).kind = crush::RULE_ERASURE),
        refused("pool 1 type does not match rule 0")
    );
    // By its ruleset a rule is found, and no other has that number.
    assert_eq!(
        set(|crush| rule(crush).ruleset = 1),
        refused("crush maps with ruleset != ruleid are no longer allowed")
    );
    assert_eq!(
        set(|crush| rule(crush).max_size = 2),
        refused("pool 1 size 3 does not fall within rule 0 min_size 1 and max_size 2")
    );
    assert_eq!(set(|_| ()).0, 0);
}

#[test]
fn nonsense_gets_einval() {
    let mut b = Bench::new(fresh_kv());
    let admin = b.admin();
    for (json, text) in [
        (r#"{"prefix":"no such thing"}"#, "command not known"),
        (r#"{"x":1}"#, "command prefix not found"),
        (r#"{"prefix":""}"#, "command prefix must not be empty"),
        (r#"{"prefix":"osd find"}"#, "bad or missing field 'id'"),
    ] {
        let ack = b.command(admin, json);
        assert_eq!((ack.rc, ack.outs.as_str()), (-22, text), "{json}");
    }
    assert_eq!(b.command(admin, "{").rc, -22);
}

/// What Ceph's own suite of the command line asks for and did not get.
#[test]
fn flags_features_and_deprecated_commands() {
    let mut b = Bench::new(fresh_kv());
    let admin = b.admin();
    // Targets that are nothing at all were taken with a word and no error.
    let ack = b.command(admin, r#"{"prefix":"osd add-noup","ids":["797er"]}"#);
    let words = "unable to parse osd id or crush node or device class: \"797er\". ";
    assert_eq!((ack.rc, ack.outs.as_str()), (-22, words));
    let ack = b.command(admin, r#"{"prefix":"osd add-noup","ids":["77","797er"]}"#);
    assert_eq!(ack.rc, 0, "{}", ack.outs);
    let ack = b.command(admin, r#"{"prefix":"osd rm-noup","ids":["1234567"]}"#);
    assert_eq!(ack.rc, -22);

    // Flags of a bucket outlived it, and health warned of nothing.
    let out = |b: &mut Bench, json: &str| b.out(admin, json);
    out(&mut b, r#"{"prefix":"osd crush add-bucket","name":"foo","type":"host"}"#);
    out(&mut b, r#"{"prefix":"osd add-noup","ids":["foo"]}"#);
    assert_eq!(b.map().crush_node_flags.len(), 1);
    out(&mut b, r#"{"prefix":"osd crush rm","name":"foo"}"#);
    assert!(b.map().crush_node_flags.is_empty());

    // An OSD cannot be up and destroyed: the tree was printed all the same.
    for (states, rc) in [(r#""up","in""#, 0), (r#""up","destroyed""#, -22), (r#""in","out""#, -22)]
    {
        let ack = b.command(admin, &format!(r#"{{"prefix":"osd tree","states":[{states}]}}"#));
        assert_eq!(ack.rc, rc, "{states}");
    }
    let profile = |key: &str| {
        format!(r#"{{"prefix":"osd erasure-code-profile set","name":"e","profile":["{key}=osd"]}}"#)
    };
    let ack = b.command(admin, &profile("ruleset-failure-domain"));
    assert_eq!(ack.rc, -22);
    assert!(ack.outs.ends_with("try 'crush-failure-domain' instead"), "{}", ack.outs);
    assert_eq!(b.command(admin, &profile("crush-failure-domain")).rc, 0);

    let set = |name: &str, sure: &str| {
        format!(r#"{{"prefix":"mon feature set","feature_name":"{name}"{sure}}}"#)
    };
    let sure = r#","yes_i_really_mean_it":true"#;
    assert_eq!(b.command(admin, &set("abcd", sure)).rc, -2);
    assert_eq!(b.command(admin, &set("kraken", "")).rc, -1);
    let ack = b.command(admin, &set("kraken", sure));
    assert_eq!((ack.rc, ack.outs.as_str()), (0, "setting feature 'mon_feature_t([kraken])'"));

    let list = r#"{"prefix":"config-key list"}"#;
    assert_eq!(b.command(admin, list).rc, 0);
    let inject = |word: &str| format!(r#"{{"prefix":"injectargs","injected_args":["--{word}"]}}"#);
    b.out(admin, &inject("mon-debug-deprecated-as-obsolete"));
    let ack = b.command(admin, list);
    assert_eq!(ack.rc, -95);
    assert!(ack.outs.starts_with("command is obsolete"), "{}", ack.outs);
    b.out(admin, &inject("no-mon-debug-deprecated-as-obsolete"));
    assert_eq!(b.command(admin, list).rc, 0);
}

#[test]
fn options_reach_who_subscribed_and_only_when_they_change() {
    let mut b = Bench::new(fresh_kv());
    b.admin();
    let osd = b.osd(0);
    let what = BTreeMap::from([("config".to_string(), SubscribeItem { start: 0, flags: 0 })]);
    b.send(osd, &MMonSubscribe { what, hostname: "h".into() });
    assert_eq!(b.take::<MConfig>(osd).len(), 1);
    b.out(1, r#"{"prefix":"config set","who":"osd","name":"osd_max_backfills","value":"4"}"#);
    let sent = b.take::<MConfig>(osd);
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].config["osd_max_backfills"], "4");
    b.out(1, r#"{"prefix":"config set","who":"mgr","name":"mgr_tick_period","value":"4"}"#);
    assert!(b.take::<MConfig>(osd).is_empty());
}

#[test]
fn bytes_that_are_no_message_end_the_session() {
    let mut b = Bench::new(fresh_kv());
    let admin = b.admin();
    let good = Message::encode(&MMonCommand {
        fsid: FSID.parse().unwrap(),
        cmd: vec![r#"{"prefix":"fsid"}"#.into()],
        ..MMonCommand::default()
    });
    for len in 0..good.front.len() {
        let mut cut = good.clone();
        cut.front = good.front.slice(..len);
        b.step(Event::Message(admin, cut));
        b.admin();
    }
    let mut wild = good.clone();
    wild.front = Bytes::from(vec![0xff; 200]);
    for kind in 0..0x800u16 {
        wild.header.kind = kind;
        b.step(Event::Message(admin, wild.clone()));
        b.admin();
    }
    assert_eq!(b.out(1, r#"{"prefix":"fsid"}"#), FSID);
}

/// A command that is not UTF-8 ended the session of who gave it. Clients come back with what has no answer: at once, and
/// for ever.
#[test]
fn a_command_that_is_no_text_is_answered() {
    let mut b = Bench::new(fresh_kv());
    let admin = b.admin();
    let (fsid, cmd) =
        (FSID.parse().unwrap(), vec![bstr::BString::from(&b"{\"prefix\":\"\xff\"}"[..])]);
    b.send(admin, &MMonCommand { fsid, cmd: cmd.clone(), ..MMonCommand::default() });
    let ack = b.take::<MMonCommandAck>(admin).remove(0);
    assert_eq!((ack.rc, &ack.cmd), (-22, &cmd));
    b.send(admin, &messages::MCommand { fsid, cmd, ..messages::MCommand::default() });
    assert_eq!(b.take::<messages::MCommandReply>(admin).remove(0).rc, -22);
}

/// A librados client renews its auth ticket inside the session, proving its key again with the
/// handshake's challenge. The monitor had forgotten the handshake, refused, and the client lost its
/// session every 12 hours.
#[test]
fn an_auth_ticket_is_renewed_in_the_session() {
    let mut bench = Bench::new(fresh_kv());
    let (mut client, challenge) = bench.admin_by_key(9);
    let before = client.ticket(entity::AUTH).unwrap().session_key.clone();
    bench.pass(Duration::from_secs(60));
    let counter = Cell::new(99);
    let keys = u32::from(entity::OSD);
    let payload = client.on_challenge(&challenge, keys, &fill(&counter)).unwrap();
    bench.send(9, &MAuth { protocol: METHOD_CEPHX, payload, ..MAuth::default() });
    let replies: Vec<MAuthReply> = bench.take(9);
    assert_eq!(replies.len(), 1);
    assert_eq!(replies[0].result, 0, "{}", replies[0].message);
    client.on_done(4200, &replies[0].payload, clock(bench.now).wall).unwrap();
    assert_ne!(client.ticket(entity::AUTH).unwrap().session_key, before);
}
