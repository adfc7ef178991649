//! The table of commands and what is behind it.

use std::time::Duration;

use messages::{MMonCommand, MMonCommandAck};
use serde_json::{Map, Value, json};
use types::{EntityName, entity};

use crate::bench::*;

/// A row of the table without code behind it answered 0 and did nothing.
#[test]
fn each_command_of_the_table_is_handled() {
    let mut b = Bench::new(fresh_kv());
    b.three_osds();
    let admin = b.admin();
    b.out(admin, r#"{"prefix":"osd pool create","pool":"p","pg_num":1}"#);
    let table = b.command(admin, r#"{"prefix":"get_command_descriptions"}"#).outb;
    let table: Value = serde_json::from_slice(&table).unwrap();
    let table = table.as_object().unwrap();
    assert!(table.len() > 200, "{}", table.len());
    for command in table.values() {
        let mut words = Vec::new();
        let mut given = Map::new();
        for part in command["sig"].as_array().unwrap() {
            let Some(name) = part["name"].as_str() else {
                words.push(part.as_str().unwrap());
                continue;
            };
            let value = match part["type"].as_str().unwrap() {
                "CephInt" => json!(1),
                "CephFloat" => json!(0.5),
                "CephBool" => json!(true),
                "CephPoolname" => json!("p"),
                "CephOsdName" => json!("osd.0"),
                "CephPgid" => json!("1.0"),
                "CephUUID" => json!("11111111-1111-1111-1111-111111111111"),
                "CephIPAddr" | "CephEntityAddr" => json!("10.0.0.9:3300"),
                "CephChoices" => json!(part["strings"].as_str().unwrap().split('|').next()),
                _ => json!("x"),
            };
            let many = part["n"] == "N";
            if part["req"] != "false" && part["req"] != json!(false) {
                given.insert(name.into(), if many { json!([value]) } else { value });
            }
        }
        given.insert("prefix".into(), json!(words.join(" ")));
        let reply = b.command(admin, &Value::Object(given.clone()).to_string());
        assert_ne!(reply.outs, "command not known", "{given:?}");
    }
}

/// A key that may only read had commands refused that were 60 MB long: each made a line of the audit log, and three
/// together an entry of the monitors' log that none could send another. No quorum lasted.
#[test]
fn lines_of_the_log_have_an_end_and_so_has_a_proposal() {
    let mut b = Bench::new(fresh_kv());
    let reader = 40;
    b.open(reader, EntityName { kind: entity::CLIENT, num: 4040 }, "client.reader", "allow r", 999);
    let long = "x".repeat(12 << 20);
    let refused =
        b.command(reader, &json!({"prefix": "osd pool create", "pool": long}).to_string());
    assert_eq!(refused.rc, -13);
    let admin = b.admin();
    let lines = b.out(admin, r#"{"prefix":"log last","num":10,"channel":"audit","level":"debug"}"#);
    assert!(lines.contains("osd pool create") && lines.contains("xxx..."), "{}", lines.len());
    assert!(lines.len() < 64 << 10, "{}", lines.len());
    // What would be more than monitors send each other is proposed one behind the other.
    let before = b.map().epoch;
    for n in 0..6 {
        let name = format!("h{n}");
        let command =
            json!({"prefix": "osd crush add-bucket", "name": name, "type": "host", "word": long});
        let fsid = FSID.parse().unwrap();
        b.send(
            admin,
            &MMonCommand { fsid, cmd: vec![command.to_string().into()], ..MMonCommand::default() },
        );
    }
    for _ in 0..10 {
        b.pass(Duration::from_millis(10));
    }
    let answers: Vec<i32> = b.take::<MMonCommandAck>(admin).iter().map(|ack| ack.rc).collect();
    assert_eq!(answers, [0; 6]);
    assert_eq!(b.map().epoch, before + 2);
}

/// Keys that may make other keys with certain capabilities and no others made them with any: beside what is given (`caps`) a client told what
/// it seems to give (`caps_mon`), as the monitor calls it to itself, and that was looked at.
#[test]
fn keys_that_give_certain_capabilities_give_no_others() {
    let mut b = Bench::new(fresh_kv());
    let (kind, caps) = (entity::CLIENT, "allow profile bootstrap-rbd");
    b.open(40, EntityName { kind, num: 4040 }, "client.bootstrap-rbd", caps, 999);
    let make = |b: &mut Bench, mon: &str, osd: &str, seems: bool| {
        let mut command = json!({"prefix": "auth get-or-create", "entity": "client.x", "caps": ["mon", mon, "osd", osd]});
        if seems {
            command["caps_mon"] = "profile rbd".into();
            command["caps_osd"] = "profile rbd".into();
        }
        b.command(40, &command.to_string()).rc
    };
    assert_eq!(make(&mut b, "allow *", "allow *", false), -13);
    assert_eq!(make(&mut b, "allow *", "allow *", true), -13);
    assert_eq!(make(&mut b, "profile rbd", "profile rbd", false), 0);
}

/// Lines of the cluster log had a bound in their text alone: with names of channels as long as a message 10,000 of them filled the memory of
/// all monitors.
#[test]
fn names_in_the_log_have_an_end() {
    let mut b = Bench::new(fresh_kv());
    let admin = b.admin();
    let mut seq = 0;
    let mut say = |b: &mut Bench, name: &str, channel: &str, addrs: usize| {
        seq += 1;
        let entry = messages::LogEntry {
            name: types::AuthEntityName::new(entity::OSD, name.to_owned()),
            rank: EntityName::osd(0),
            addrs: types::AddrVec((0..addrs).map(|_| addr(1)).collect()),
            stamp: types::UTime::default(),
            seq,
            prio: 4,
            msg: "told".into(),
            channel: channel.into(),
        };
        let fsid = FSID.parse().unwrap();
        let paxos = messages::PaxosHeader::default();
        b.send(admin, &messages::MLog { paxos, fsid, entries: vec![entry] });
        b.pass(Duration::from_secs(1));
        let last = r#"{"prefix":"log last","num":10,"channel":"*","level":"debug"}"#;
        b.out(admin, last).matches("told").count()
    };
    let long = "x".repeat(1 << 20);
    assert_eq!(say(&mut b, "0", "cluster", 1), 1);
    assert_eq!(say(&mut b, "0", &long, 1), 1);
    assert_eq!(say(&mut b, &long, "cluster", 1), 1);
    assert_eq!(say(&mut b, "0", "cluster", 10_000), 2);
    let last = r#"{"prefix":"log last","num":10,"channel":"*","level":"debug"}"#;
    assert!(b.out(admin, last).len() < 4096);
}
