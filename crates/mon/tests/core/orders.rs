//! All commands of the table, with arguments by chance of which some make sense: whatever an operator says, the monitor stays, its maps
//! stay whole, and what it has committed is what it finds when it begins anew.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use denc::Denc;
use maps::{Incremental, OsdMap};
use messages::{MMonSubscribe, MOSDMap, SubscribeItem};
use serde_json::{Map, Value, json};
use store::Kv;
use types::{EntityName, PgId};

use crate::bench::*;

const ORDERS: u32 = 400;
/// Who is sent each step of the map of OSDs.
const WATCHER: u64 = 50;
/// What is said before and after a monitor begins anew; time changes none of it.
const SAME_AFTERWARDS: [&str; 6] =
    ["osd crush dump", "fs dump", "auth ls", "config dump", "config-key dump", "mon dump"];

struct Life {
    b: Bench,
    kv: Rc<dyn Kv>,
    chance: Chance,
    table: Vec<Value>,
    map: OsdMap,
    story: Vec<String>,
}

fn subscribe(b: &mut Bench, start: u32) {
    b.open(WATCHER, EntityName::client(4050), "client.w", "allow r", 5050);
    let item = SubscribeItem { start: start.into(), flags: 0 };
    let what = BTreeMap::from([("osdmap".to_string(), item)]);
    b.send(WATCHER, &MMonSubscribe { what, hostname: String::new() });
}

impl Life {
    fn new(seed: u64) -> Life {
        let kv = fresh_kv();
        let mut b = Bench::new(kv.clone());
        b.three_osds();
        let erasure = |pool| if pool == "e" { "erasure" } else { "replicated" };
        for pool in ["p", "q", "e", "m", "d"] {
            let kind = erasure(pool);
            let create =
                json!({"prefix": "osd pool create", "pool": pool, "pg_num": 4, "pool_type": kind});
            b.out(1, &create.to_string());
        }
        let fs = json!({"prefix": "fs new", "fs_name": "one", "metadata": "m", "data": "d"});
        b.out(1, &fs.to_string());
        b.out(1, r#"{"prefix":"osd crush weight-set create-compat"}"#);
        let table = b.out(1, r#"{"prefix":"get_command_descriptions"}"#);
        let table: BTreeMap<String, Value> = serde_json::from_str(&table).unwrap();
        let map = b.map();
        subscribe(&mut b, map.epoch + 1);
        let table = table.into_values().collect();
        Life { b, kv, chance: Chance(seed), table, map, story: Vec::new() }
    }

    /// Something that an argument of this name may be.
    fn text(&mut self, name: &str) -> &'static str {
        let words: &[&str] = match name {
            "pool" | "data" | "metadata" | "srcpool" | "destpool" | "tierpool" | "overlaypool"
            | "sourcepool" => &["p", "q", "e", "m", "d", "r", "new", "1"],
            "ids" | "id" => &["0", "1", "2", "3", "osd.1", "*", "any", "-1", "4294967296"],
            "fs_name" | "filesystem" | "remote_fs_name" => &["one", "one", "two"],
            "rule" | "class" | "type" | "ancestor" | "root" | "item" | "source" | "dest"
            | "node" | "bucket" | "srcname" | "dstname" => &[
                "default",
                "h0",
                "h1",
                "osd.0",
                "osd.2",
                "rack1",
                "rack2",
                "host",
                "rack",
                "root",
                "osd",
                "ssd",
                "hdd",
                "replicated_rule",
                "e",
                "rule1",
                "default~ssd",
            ],
            "profile" | "erasure_code_profile" => &["default", "ec", "k=2", "legacy", "optimal"],
            "args" => &[
                "root=default",
                "host=h1",
                "host=h9",
                "rack=rack1",
                "x=y",
                "root=rack1",
                "root=default~ssd",
            ],
            "entity" => {
                &["client.admin", "client.x", "osd.1", "mon.", "mds.a", "nobody", "client.y"]
            }
            "app" => &["rbd", "cephfs", "rgw", "x"],
            "caps" => &["mon", "allow *", "osd", "allow rw pool=p", "allow", "mds"],
            "who" => {
                &["global", "osd", "osd.1", "mon", "client.x", "mon.a", "osd/class:ssd", "mds"]
            }
            "name" => &[
                "snap1",
                "snap2",
                "rule1",
                "rack1",
                "rack2",
                "h1",
                "osd.0",
                "a",
                "b",
                "ec",
                "osd_max_backfills",
                "debug_ms",
                "default",
                "default~ssd",
                "h0~ssd",
            ],
            "key" => &["noout", "k", "a/b", "pg_num", "osd_max_backfills", "noup"],
            "role" | "role_or_gid" => &["0", "one:0", "a", "4005", "two:1"],
            "snap" => &["snap1", "snap2"],
            "uuid" => &["11111111-1111-1111-1111-111111111111", "x"],
            "addr" | "addrs" | "location" => &["10.0.0.9:3300", "v2:10.0.0.9:3300", "x", "host=h1"],
            "flags" => &["noout", "noup,nodown", "noin", "x"],
            "version" => &["pacific", "octopus", "luminous", "x"],
            _ => &[
                "1",
                "2",
                "8",
                "0",
                "-1",
                "true",
                "false",
                "on",
                "x",
                "1.5",
                "host",
                "0.5",
                "lz4",
                "4096",
                "10M",
                "default",
                "9223372036854775807",
                "client.x=1",
                "",
            ],
        };
        let words =
            if self.chance.below(12) == 0 { &["", "x", "1", "p", "ü", "a b"] } else { words };
        self.chance.of(words)
    }

    fn value(&mut self, name: &str, part: &Value) -> Value {
        match part["type"].as_str().unwrap() {
            "CephInt" => {
                let any =
                    [0, 1, 2, 3, 4, 5, 8, 16, 32, 100, -1, 65536, 1 << 31, i64::MAX, i64::MIN];
                json!(self.chance.of(&any))
            }
            "CephFloat" => {
                let any = [0.0, 0.5, 1.0, 2.0, 0.85, 0.95, 1.0, -1.0, 1e-9, 1e18, 1e300, 100_000.0];
                json!(self.chance.of(&any))
            }
            "CephBool" => json!(self.chance.below(4) > 0),
            "CephPoolname" => json!(self.text("pool")),
            "CephOsdName" => json!(self.chance.of(&["osd.0", "1", "2", "osd.3", "9", "-1"])),
            "CephPgid" => json!(self.chance.of(&["1.0", "2.3", "3.1", "1.1f", "9.0", "1.4"])),
            "CephUUID" => json!("11111111-1111-1111-1111-111111111111"),
            "CephIPAddr" | "CephEntityAddr" => {
                json!(self.chance.of(&["10.0.0.9:3300", "10.0.0.0/24", "127.0.0.1:6800/6800"]))
            }
            "CephChoices" => {
                let all: Vec<&str> = part["strings"].as_str().unwrap().split('|').collect();
                json!(self.chance.of(&all))
            }
            _ => json!(self.text(name)),
        }
    }

    fn order(&mut self) {
        let one = self.chance.below(self.table.len() as u64) as usize;
        let command = self.table[one].clone();
        let (mut words, mut given) = (Vec::new(), Map::new());
        for part in command["sig"].as_array().unwrap() {
            let Some(name) = part["name"].as_str() else {
                words.push(part.as_str().unwrap());
                continue;
            };
            let wanted = part["req"] != "false" && part["req"] != json!(false);
            // What has to be meant is mostly meant.
            let sure = name.starts_with("yes_i") || name == "sure" || name == "force";
            if !(wanted || sure || self.chance.below(3) == 0) {
                continue;
            }
            let value = match part["n"] == "N" {
                true => {
                    let many = 1 + self.chance.below(4);
                    json!((0..many).map(|_| self.value(name, part)).collect::<Vec<_>>())
                }
                false => self.value(name, part),
            };
            given.insert(name.into(), value);
        }
        given.insert("prefix".into(), json!(words.join(" ")));
        let text = Value::Object(given).to_string();
        self.story.push(text.clone());
        let rc = self.b.command_with(1, &text, b"").rc;
        self.story.push(format!("   {rc}"));
    }

    fn step(&mut self) {
        match self.chance.below(20) {
            0 => {
                let seconds = 1 + self.chance.below(400);
                self.story.push(format!("{seconds} s"));
                self.b.pass(Duration::from_secs(seconds));
            }
            1 => {
                let osd = self.chance.below(5) as i32;
                self.story.push(format!("osd.{osd} boots"));
                self.b.boot(osd);
            }
            _ => self.order(),
        }
    }

    /// Each step leads to the map that the monitor says it leads to, and that map can be used.
    fn look(&mut self) {
        for message in self.b.take::<MOSDMap>(WATCHER) {
            for bytes in message.incremental_maps.values() {
                let inc = Incremental::from_bytes(bytes).unwrap();
                if inc.epoch <= self.map.epoch {
                    continue;
                }
                self.map.apply(&inc).unwrap();
                let (_, crc) = self.map.encode_with_crc();
                assert_eq!(crc, inc.full_crc, "epoch {}", inc.epoch);
                self.check();
            }
        }
    }

    fn check(&self) {
        let map = &self.map;
        for (id, pool) in &map.pools {
            let rule = i32::from(pool.crush_rule);
            assert!(map.crush.rule(rule).is_some(), "pool {id} has rule {rule}");
            let profile = &pool.erasure_code_profile;
            assert!(
                profile.is_empty() || map.erasure_code_profiles.contains_key(profile),
                "pool {id} has profile {profile}"
            );
            assert!(pool.pg_num > 0 && pool.pgp_num > 0 && pool.pgp_num <= pool.pg_num);
            assert!(pool.size > 0 && pool.min_size > 0 && pool.min_size <= pool.size);
            assert!(map.pool_names.contains_key(id));
            for seed in 0..pool.pg_num.min(64) {
                map.pg_to_up_acting(PgId::new(id.cast_unsigned(), seed));
            }
        }
        let told = map.pg_upmap.keys().chain(map.pg_upmap_items.keys());
        for pg in told.chain(map.pg_temp.keys()).chain(map.primary_temp.keys()) {
            assert!(map.pg_exists(*pg), "{pg} is not there");
        }
        for bucket in map.crush.each_bucket() {
            assert!(map.crush.names.contains_key(&bucket.id), "{} has no name", bucket.id);
            for item in &bucket.items {
                assert!(
                    *item >= 0 || map.crush.bucket(*item).is_some(),
                    "{item} in {} is not there",
                    bucket.id
                );
            }
        }
    }

    /// The monitor begins anew, and says what it said before.
    fn restart(&mut self) {
        self.b.pass(Duration::from_secs(1));
        self.look();
        let before = self.said();
        let (now, tid) = (self.b.now, self.b.tid);
        self.story.push("the monitor begins anew".into());
        self.b = Bench::new(self.kv.clone());
        (self.b.now, self.b.tid) = (now, tid);
        self.b.admin();
        let after = self.said();
        for (what, (before, after)) in SAME_AFTERWARDS.iter().zip(before.iter().zip(&after)) {
            assert_eq!(before, after, "{what}");
        }
        let get = json!({"prefix": "osd getmap", "epoch": self.map.epoch});
        let kept = OsdMap::from_bytes(&self.b.command(1, &get.to_string()).outb).unwrap();
        assert_eq!(kept.encode_with_crc(), self.map.encode_with_crc());
        subscribe(&mut self.b, self.map.epoch + 1);
    }

    fn said(&mut self) -> Vec<String> {
        let say =
            |prefix: &&str| self.b.out(1, &json!({"prefix": prefix, "format": "json"}).to_string());
        SAME_AFTERWARDS.iter().map(say).collect()
    }
}

/// Says what has happened when a check fails.
impl Drop for Life {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{}", self.story.join("\n"));
        }
    }
}

fn live(seed: u64) {
    let mut life = Life::new(seed);
    for n in 1..=ORDERS {
        life.step();
        life.look();
        if n % 100 == 0 {
            life.restart();
        }
    }
}

#[test]
fn whatever_is_ordered_the_maps_stay_whole() {
    (1..=10).for_each(live);
}

/// The seeds from `ORDERS` on, a thousand.
#[test]
#[ignore = "minutes"]
fn many_orders() {
    many("ORDERS", live);
}
