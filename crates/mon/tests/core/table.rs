//! The table of commands and what is behind it.

use serde_json::{Map, Value, json};

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
