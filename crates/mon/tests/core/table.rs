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
        let name = format!("{long}{n}");
        let command = json!({"prefix": "osd crush add-bucket", "name": name, "type": "host"});
        let fsid = FSID.parse().unwrap();
        b.send(
            admin,
            &MMonCommand { fsid, cmd: vec![command.to_string()], ..MMonCommand::default() },
        );
    }
    for _ in 0..10 {
        b.pass(Duration::from_millis(10));
    }
    let answers: Vec<i32> = b.take::<MMonCommandAck>(admin).iter().map(|ack| ack.rc).collect();
    assert_eq!(answers, [0; 6]);
    assert_eq!(b.map().epoch, before + 2);
}
