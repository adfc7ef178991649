//! The devices that hold daemons' data: `device ls` and its kin. Daemons tell the monitors the ids
//! (`device_ids`) and places (`device_paths`) of their devices (`src/mgr/DaemonState.cc`,
//! `DaemonServer.cc` at v16.2). Nothing here asks the devices themselves: wear and life expectancy
//! are unknown.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use command::{Align, CommandMap, CommandReply, Formatter, TextTable};
use serde_json::Value;

use super::{EINVAL, ENOENT};
use crate::daemon::Mgr;

/// A device, by its id.
#[derive(Debug, Default, PartialEq, Eq)]
struct Device {
    /// Host, name there, path there.
    locations: BTreeSet<(String, String, String)>,
    /// Kind and id.
    daemons: BTreeSet<(String, String)>,
}

/// All devices, and those of each daemon (none of many).
#[derive(Debug, Default)]
struct Devices {
    by_id: BTreeMap<String, Device>,
    of_daemon: BTreeMap<(String, String), BTreeSet<String>>,
}

/// `sda=ID,sdb=ID` in parts.
fn pairs(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split([',', ';', ' ']).filter_map(|pair| pair.split_once('='))
}

impl Devices {
    /// What the daemons of a kind told, as `KIND metadata` of the monitors lists it.
    fn add(&mut self, kind: &str, told: &Value) {
        for entry in told.as_array().into_iter().flatten() {
            let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
            let id = match entry.get("id").and_then(Value::as_i64) {
                Some(id) => id.to_string(),
                None => text("name").to_owned(),
            };
            let daemon = (kind.to_owned(), id);
            let paths: BTreeMap<&str, &str> = pairs(text("device_paths")).collect();
            let own = self.of_daemon.entry(daemon.clone()).or_default();
            for (name, id) in pairs(text("device_ids")).filter(|(_, id)| !id.is_empty()) {
                let path = paths.get(name).copied().unwrap_or_default();
                let device = self.by_id.entry(id.to_owned()).or_default();
                device.locations.insert((
                    text("hostname").to_owned(),
                    name.to_owned(),
                    path.to_owned(),
                ));
                device.daemons.insert(daemon.clone());
                own.insert(id.to_owned());
            }
        }
    }
}

impl Device {
    fn dump(&self, id: &str, f: &mut Formatter) {
        f.dump_string("devid", id);
        f.array("location", |f| {
            for (host, dev, path) in &self.locations {
                f.object("attachment", |f| {
                    f.dump_string("host", host);
                    f.dump_string("dev", dev);
                    f.dump_string("path", path);
                });
            }
        });
        f.array("daemons", |f| {
            self.names().iter().for_each(|name| f.dump_string("daemon", name));
        });
    }

    fn names(&self) -> Vec<String> {
        self.daemons.iter().map(|(kind, id)| format!("{kind}.{id}")).collect()
    }

    /// `HOST:DEV HOST:DEV`.
    fn places(&self) -> String {
        let all: Vec<String> =
            self.locations.iter().map(|(host, dev, _)| format!("{host}:{dev}")).collect();
        all.join(" ")
    }

    /// Its names on a host.
    fn names_on(&self, host: &str) -> String {
        let here = self.locations.iter().filter(|(on, _, _)| on == host);
        here.map(|(_, dev, _)| dev.as_str()).collect::<Vec<_>>().join(" ")
    }

    fn text(&self, id: &str) -> String {
        let mut text = format!("device {id}\n");
        for (host, dev, path) in &self.locations {
            text += &format!("attachment {host} {dev} {path}\n\n");
        }
        text + &self.names().join(",") + "\n"
    }
}

async fn devices(mgr: &Mgr) -> Devices {
    let mut all = Devices::default();
    for kind in ["mgr", "mon", "osd"] {
        let command = serde_json::json!({"prefix": format!("{kind} metadata"), "format": "json"});
        if let Ok(answer) = mgr.monc.command(vec![command.to_string()], Bytes::new()).await {
            all.add(kind, &serde_json::from_slice(&answer.outb).unwrap_or_default());
        }
    }
    all
}

/// Answers `device ls`, `ls-by-daemon`, `ls-by-host` and `info`.
pub(super) async fn run(mgr: &Mgr, map: &CommandMap) -> CommandReply {
    answer(&devices(mgr).await, map)
}

fn answer(all: &Devices, map: &CommandMap) -> CommandReply {
    let argument = |name: &str| map.string(name).unwrap_or_default();
    match map.prefix() {
        "device info" => {
            let id = argument("devid");
            let Some(device) = all.by_id.get(&id) else {
                return CommandReply::error(ENOENT, format!("device {id} not found"));
            };
            if map.format().is_plain() {
                return CommandReply::data(device.text(&id));
            }
            let mut f = Formatter::new(map.format());
            f.object("device", |f| device.dump(&id, f));
            CommandReply::formatted(f)
        }
        "device ls-by-daemon" => {
            let who = argument("who");
            let Some((kind, id)) = who.split_once('.').filter(|(kind, _)| !kind.is_empty()) else {
                return CommandReply::error(EINVAL, format!("{who} is not a valid daemon name"));
            };
            match all.of_daemon.get(&(kind.to_owned(), id.to_owned())) {
                Some(own) => {
                    list(all, map, &["DEVICE", "HOST:DEV", "EXPECTED FAILURE"], |id, device| {
                        own.contains(id)
                            .then(|| vec![id.to_owned(), device.places(), String::new()])
                    })
                }
                None => CommandReply::error(ENOENT, format!("daemon {who} not found")),
            }
        }
        "device ls-by-host" => {
            let host = argument("host");
            let heads = ["DEVICE", "DEV", "DAEMONS", "EXPECTED FAILURE"];
            list(all, map, &heads, |id, device| {
                let here = device.locations.iter().any(|(on, _, _)| *on == host);
                let names = || device.names_on(&host);
                here.then(|| vec![id.to_owned(), names(), device.names().join(" "), String::new()])
            })
        }
        _ => {
            let heads = ["DEVICE", "HOST:DEV", "DAEMONS", "WEAR", "LIFE EXPECTANCY"];
            list(all, map, &heads, |id, device| {
                let daemons = device.names().join(" ");
                let unknown = String::new;
                Some(vec![id.to_owned(), device.places(), daemons, unknown(), unknown()])
            })
        }
    }
}

/// The devices that `row` has a row for.
fn list(
    all: &Devices,
    map: &CommandMap,
    heads: &[&str],
    row: impl Fn(&str, &Device) -> Option<Vec<String>>,
) -> CommandReply {
    let rows = all.by_id.iter().filter_map(|(id, device)| Some((id, device, row(id, device)?)));
    if map.format().is_plain() {
        let mut table = TextTable::new();
        for head in heads {
            let align = if *head == "WEAR" { Align::Right } else { Align::Left };
            table.define_column(head, align, align);
        }
        rows.for_each(|(_, _, row)| table.row(row));
        return CommandReply::data(table.to_string());
    }
    let mut f = Formatter::new(map.format());
    f.array("devices", |f| {
        rows.for_each(|(id, device, _)| f.object("device", |f| device.dump(id, f)));
    });
    CommandReply::formatted(f)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn known() -> Devices {
        let mut all = Devices::default();
        all.add(
            "osd",
            &json!([
                {"id": 0, "hostname": "one", "device_ids": "sdb=DISK_B,sda=DISK_A",
                 "device_paths": "sda=/dev/disk/by-path/pci-1"},
                {"id": 1, "hostname": "one", "device_ids": "sdb=DISK_B", "device_paths": ""},
                {"id": 2, "hostname": "two", "device_ids": "sdc=", "device_paths": ""},
            ]),
        );
        all.add("mon", &json!([{"name": "a", "hostname": "two", "device_ids": "nvme0n1=DISK_C"}]));
        all
    }

    fn ask(command: &Value) -> CommandReply {
        answer(&known(), &CommandMap::parse(&[command.to_string()]).unwrap())
    }

    fn listed(command: &Value) -> Vec<String> {
        let reply = ask(command);
        let all: Vec<Value> = serde_json::from_slice(&reply.outb).unwrap();
        all.iter().map(|device| device["devid"].as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn devices_are_found_by_daemon_and_by_host() {
        assert_eq!(
            listed(&json!({"prefix": "device ls", "format": "json"})),
            ["DISK_A", "DISK_B", "DISK_C"]
        );
        let by = |what: &str, key: &str, value: &str| {
            listed(&json!({"prefix": format!("device ls-by-{what}"), key: value, "format": "json"}))
        };
        assert_eq!(by("daemon", "who", "osd.0"), ["DISK_A", "DISK_B"]);
        assert_eq!(by("daemon", "who", "osd.2"), [""; 0]);
        assert_eq!(by("host", "host", "two"), ["DISK_C"]);
        let missing = ask(&json!({"prefix": "device ls-by-daemon", "who": "osd.9"}));
        assert_eq!((missing.rc, missing.outs.as_str()), (-ENOENT, "daemon osd.9 not found"));
        let wrong = ask(&json!({"prefix": "device ls-by-daemon", "who": "osd"}));
        assert_eq!((wrong.rc, wrong.outs.as_str()), (-EINVAL, "osd is not a valid daemon name"));
    }

    #[test]
    fn a_device_is_told_with_its_places_and_daemons() {
        let info = ask(&json!({"prefix": "device info", "devid": "DISK_B"}));
        assert_eq!(info.outb, "device DISK_B\nattachment one sdb \n\nosd.0,osd.1\n");
        let info = ask(&json!({"prefix": "device info", "devid": "DISK_A", "format": "json"}));
        let info: Value = serde_json::from_slice(&info.outb).unwrap();
        assert_eq!(info["location"][0]["path"], "/dev/disk/by-path/pci-1");
        let table = ask(&json!({"prefix": "device ls"}));
        let text = String::from_utf8(table.outb.to_vec()).unwrap();
        assert!(text.contains("one:sdb"), "{text}");
        assert!(text.contains("osd.0 osd.1"), "{text}");
    }
}
