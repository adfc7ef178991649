//! `fs status`: ranks, what they do, and the space of their pools (`src/pybind/mgr/status/module.py` at v16.2).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use command::{CommandMap, CommandReply};
use serde_json::{Value, json};

use super::osd::short_number;
use super::{EINVAL, metadata};
use crate::daemon::Mgr;
use crate::daemons::Daemons;

const GREEN: &str = "\u{1b}[1;32m";
const YELLOW: &str = "\u{1b}[1;33m";
const BOLD: &str = "\u{1b}[1m";
const RESET: &str = "\u{1b}[0m";

/// Characters that are seen: codes for colours are not.
fn seen(text: &str) -> usize {
    let mut count = 0;
    let mut hidden = false;
    for c in text.chars() {
        match c {
            '\u{1b}' => hidden = true,
            'm' if hidden => hidden = false,
            _ if !hidden => count += 1,
            _ => {}
        }
    }
    count
}

/// Columns whose cells stand in the middle, as Python's PrettyTable sets them: of an odd number of blanks one
/// more is behind a text of odd length, and before others.
fn centered(heads: &[&str], rows: &[Vec<String>]) -> String {
    let width = |i: usize| rows.iter().map(|row| seen(&row[i])).chain([heads[i].len()]).max();
    let widths: Vec<usize> = (0..heads.len()).map(|i| width(i).unwrap_or(0)).collect();
    let mut out = String::new();
    let heads: Vec<String> = heads.iter().map(|head| (*head).to_owned()).collect();
    for (n, row) in [&heads].into_iter().chain(rows).enumerate() {
        if n > 0 {
            out.push('\n');
        }
        for (cell, width) in row.iter().zip(&widths) {
            let (len, excess) = (seen(cell), width - seen(cell));
            let before = excess / 2 + if len % 2 == 0 { excess % 2 } else { 0 };
            let _ = write!(out, "{:before$}{cell}{:after$}", "", "", after = excess - before + 2);
        }
    }
    out
}

/// An MDS's counters, as it told them last.
struct Load<'a> {
    daemons: &'a Daemons,
    name: &'a str,
}

impl Load<'_> {
    fn counter(&self, path: &str) -> Option<&crate::daemons::Counter> {
        self.daemons.find("mds", self.name)?.counters.get(path)
    }

    fn latest(&self, path: &str) -> u64 {
        self.counter(path).map_or(0, |counter| counter.last.value)
    }

    fn rate(&self, path: &str) -> u64 {
        self.counter(path).map_or(0, |counter| counter.rate())
    }

    /// Dentries, inodes, directories and capabilities in memory.
    fn memory(&self) -> [u64; 4] {
        ["dn", "ino", "dir", "cap"].map(|what| self.latest(&format!("mds_mem.{what}")))
    }
}

fn members<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value.get(key).and_then(Value::as_array).into_iter().flatten()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// What is gathered for all file systems.
#[derive(Default)]
struct Status {
    plain: String,
    clients: Vec<Value>,
    ranks: Vec<Value>,
    pools: Vec<Value>,
    /// Names of MDSs by the version they are of.
    versions: BTreeMap<String, Vec<String>>,
}

/// What the monitors know, besides the map of file systems.
struct Known {
    versions: BTreeMap<String, String>,
    pools: BTreeMap<i64, (String, u64, u64)>,
}

impl Status {
    fn note_version(&mut self, known: &Known, name: &str) {
        let version = known.versions.get(name).cloned().unwrap_or_else(|| "unknown".to_owned());
        self.versions.entry(version).or_default().push(name.to_owned());
    }

    fn add_fs(&mut self, fs: &Value, known: &Known, daemons: &Daemons) {
        let map = &fs["mdsmap"];
        let name = text(map, "fs_name");
        let (mut rows, mut clients) = (Vec::new(), 0);
        for rank in members(map, "in").filter_map(Value::as_i64) {
            let gid = map["up"].get(format!("mds_{rank}")).and_then(Value::as_u64);
            let Some(gid) = gid else {
                self.ranks.push(json!({"rank": rank, "state": "failed"}));
                let mut row = vec![rank.to_string(), "failed".to_owned()];
                row.resize(8, String::new());
                rows.push(row);
                continue;
            };
            let info = &map["info"][format!("gid_{gid}")];
            let mds = text(info, "name");
            let load = Load { daemons, name: mds };
            if rank == 0 || clients == 0 {
                clients = load.latest("mds_sessions.session_count");
            }
            self.note_version(known, mds);
            rows.push(self.add_rank(rank, info, &load));
        }
        let infos = map["info"].as_object().into_iter().flat_map(|infos| infos.values());
        for info in infos.filter(|info| text(info, "state") == "up:standby-replay") {
            let mds = text(info, "name");
            self.note_version(known, mds);
            rows.push(self.add_follower(info, &Load { daemons, name: mds }));
        }
        let pools = self.add_pools(map, known);
        self.clients.push(json!({"fs": name, "clients": clients}));
        let heads = ["RANK", "STATE", "MDS", "ACTIVITY", "DNS", "INOS", "DIRS", "CAPS"];
        let ranks = if rows.is_empty() { String::new() } else { centered(&heads, &rows) };
        let line = "=".repeat(name.chars().count());
        let _ = writeln!(self.plain, "{name} - {clients} clients\n{line}\n{ranks}\n{pools}");
    }

    fn add_rank(&mut self, rank: i64, info: &Value, load: &Load<'_>) -> Vec<String> {
        let laggy = info.get("laggy_since").is_some();
        let state = text(info, "state").trim_start_matches("up:").to_owned();
        let state = if laggy { state + "(laggy)" } else { state };
        let active = state == "active";
        let colour = if active { GREEN } else { YELLOW };
        let (rate, memory) = (load.rate("mds_server.handle_client_request"), load.memory());
        let shown = if active { json!(rate) } else { json!("0") };
        self.ranks.push(json!({
            "rank": rank, "name": load.name, "state": state, "rate": shown,
            "dns": memory[0], "inos": memory[1], "dirs": memory[2], "caps": memory[3],
        }));
        let activity =
            if active { format!("Reqs: {}/s", short_number(rate, 5, 1000)) } else { String::new() };
        let mut row = vec![
            format!("{BOLD}{rank}{RESET}"),
            format!("{colour}{state}{RESET}"),
            load.name.to_owned(),
            activity,
        ];
        row.extend(memory.map(|n| short_number(n, 5, 1000)));
        row
    }

    fn add_follower(&mut self, info: &Value, load: &Load<'_>) -> Vec<String> {
        let rank = info["rank"].as_i64().unwrap_or(-1);
        let (events, memory) = (load.rate("mds_log.replayed"), load.memory());
        self.ranks.push(json!({
            "rank": rank, "name": load.name, "state": "standby-replay", "events": events,
            "dns": memory[0], "inos": memory[1], "dirs": memory[2], "caps": memory[3],
        }));
        let mut row = vec![
            format!("{rank}-s"),
            "standby-replay".to_owned(),
            load.name.to_owned(),
            format!("Evts: {}/s", short_number(events, 5, 1000)),
        ];
        row.extend(memory.map(|n| short_number(n, 5, 1000)));
        row
    }

    fn add_pools(&mut self, map: &Value, known: &Known) -> String {
        let metadata = map["metadata_pool"].as_i64();
        let all = metadata.into_iter().chain(members(map, "data_pools").filter_map(Value::as_i64));
        let mut rows = Vec::new();
        for id in all {
            let Some((name, used, avail)) = known.pools.get(&id) else { continue };
            let kind = if Some(id) == metadata { "metadata" } else { "data" };
            self.pools
                .push(json!({"id": id, "name": name, "type": kind, "used": used, "avail": avail}));
            let space = |bytes: u64| short_number(bytes, 5, 1024);
            rows.push(vec![name.clone(), kind.to_owned(), space(*used), space(*avail)]);
        }
        centered(&["POOL", "TYPE", "USED", "AVAIL"], &rows)
    }
}

/// See the module.
pub(super) async fn run(mgr: &Mgr, map: &CommandMap) -> CommandReply {
    let fsmap = metadata::ask(mgr, "fs dump").await;
    let wanted = map.opt_string("fs").ok().flatten();
    let known = known(mgr).await;
    let mut status = Status::default();
    {
        let daemons = mgr.daemons.borrow();
        for fs in members(&fsmap, "filesystems") {
            if wanted.as_deref().is_none_or(|name| text(&fs["mdsmap"], "fs_name") == name) {
                status.add_fs(fs, &known, &daemons);
            }
        }
    }
    if let (true, Some(name)) = (status.clients.is_empty(), wanted) {
        return CommandReply::error(EINVAL, format!("Invalid filesystem: {name}"));
    }
    let standbys: Vec<&str> = members(&fsmap, "standbys").map(|info| text(info, "name")).collect();
    for name in &standbys {
        status.note_version(&known, name);
        status.ranks.push(json!({"name": name, "state": "standby"}));
    }
    if !map.format().is_plain() {
        return CommandReply::data(document(&status, map));
    }
    let mut out = status.plain;
    if !standbys.is_empty() {
        let rows: Vec<Vec<String>> = standbys.iter().map(|name| vec![(*name).to_owned()]).collect();
        let _ = writeln!(out, "{}", centered(&["STANDBY MDS"], &rows));
    }
    match status.versions.len() {
        0 => {}
        1 => {
            let version = status.versions.keys().next().cloned().unwrap_or_default();
            let _ = write!(out, "MDS version: {version}");
        }
        _ => {
            let all = status.versions.into_iter();
            let rows: Vec<Vec<String>> =
                all.map(|(version, names)| vec![version, names.join(", ")]).collect();
            let _ = writeln!(out, "{}", centered(&["VERSION", "DAEMONS"], &rows));
        }
    }
    CommandReply::data(out)
}

fn document(status: &Status, map: &CommandMap) -> String {
    let mut all = json!({});
    let lists = [("clients", &status.clients), ("mdsmap", &status.ranks), ("pools", &status.pools)];
    for (key, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
        all[key] = json!(list);
    }
    if let [version] = status.versions.keys().collect::<Vec<_>>()[..] {
        all["mds_version"] = json!(version);
    } else if !status.versions.is_empty() {
        let each = status.versions.iter();
        let each = each.map(|(version, names)| json!({"version": version, "daemons": names}));
        all["mds_version"] = each.collect();
    }
    match map.format() {
        command::Format::JsonPretty => crate::json::indented(&all),
        _ => crate::json::compact(&all),
    }
}

async fn known(mgr: &Mgr) -> Known {
    let facts = metadata::ask(mgr, "mds metadata").await;
    let version =
        |facts: &Value| (text(facts, "name").to_owned(), text(facts, "ceph_version").to_owned());
    let df = metadata::ask(mgr, "df").await;
    let number = |value: &Value, key: &str| value.get(key).and_then(Value::as_u64).unwrap_or(0);
    let pool = |pool: &Value| {
        let stats = &pool["stats"];
        let space = (number(stats, "bytes_used"), number(stats, "max_avail"));
        Some((pool["id"].as_i64()?, (text(pool, "name").to_owned(), space.0, space.1)))
    };
    Known {
        versions: facts.as_array().into_iter().flatten().map(version).collect(),
        pools: members(&df, "pools").filter_map(pool).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a real `fs status` had it; the odd blanks stood on the other side.
    #[test]
    fn cells_stand_where_a_real_manager_puts_them() {
        let row = |cells: [&str; 4]| cells.map(str::to_owned).to_vec();
        let bold = format!("{BOLD}0{RESET}");
        let active = format!("{GREEN}active{RESET}");
        let ranks = [row([&bold, &active, "a", "Reqs:    0 /s"])];
        let want = format!(
            "RANK  STATE   MDS     ACTIVITY    \n {bold}    {active}   a   Reqs:    0 /s  "
        );
        assert_eq!(centered(&["RANK", "STATE", "MDS", "ACTIVITY"], &ranks), want);
        let pools =
            [row(["meta", "metadata", "4966 ", "9727M"]), row(["data2", "data", "   0 ", "9727M"])];
        let want = " POOL    TYPE     USED  AVAIL  \n meta  metadata  4966   9727M  \n\
                    data2    data       0   9727M  ";
        assert_eq!(centered(&["POOL", "TYPE", "USED", "AVAIL"], &pools), want);
    }
}
