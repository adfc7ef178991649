//! What is told to subscribers: what is committed, and nothing of what has changed since.

use std::collections::BTreeMap;
use std::time::Duration;

use denc::Denc;
use maps::{MonMap, ServiceMap};
use messages::{
    LogEntry, MLog, MMonCommand, MMonGetMap, MMonMap, MMonMgrReport, MMonSubscribe, MServiceMap,
    SubscribeItem,
};
use mon::Event;
use types::{AddrVec, EntityName, Epoch, UTime};

use crate::bench::*;

/// Subscribes to everything that this is about.
fn follow(b: &mut Bench, session: u64) {
    let item = SubscribeItem { start: 0, flags: 0 };
    let what = ["monmap", "servicemap", "log-info"].map(|name| (name.to_string(), item));
    b.send(session, &MMonSubscribe { what: BTreeMap::from(what), hostname: "h".into() });
}

/// Epochs of monitor maps, epochs of service maps and lines that a session was sent.
fn told(b: &mut Bench, session: u64) -> (Vec<u32>, Vec<Epoch>, Vec<String>) {
    let monmaps = b.take::<MMonMap>(session).into_iter();
    let monmaps = monmaps.map(|m| MonMap::from_bytes(&m.monmap).unwrap().epoch);
    let services = b.take::<MServiceMap>(session).into_iter().map(|m| m.service_map.epoch);
    let (monmaps, services) = (monmaps.collect(), services.collect());
    let lines = b.take::<MLog>(session).into_iter().flat_map(|m| m.entries);
    // Those of the commands themselves are of the audit channel.
    let lines = lines.filter(|entry| entry.channel == "mine").map(|entry| entry.msg);
    (monmaps, services, lines.collect())
}

/// Monitor maps, service maps and lines of the cluster log that had come up while a proposal was under way were told
/// to subscribers at once, or with its commit. A leader that then lost its majority had told of a map that never
/// was, and whom it had told passed over the next one of that number.
#[test]
fn monitors_services_and_lines_are_told_as_they_were_committed() {
    let mut b = Bench::new(fresh_kv());
    let admin = b.admin();
    follow(&mut b, admin);
    let (monmaps, services, _) = told(&mut b, admin);
    let (monmap, service) = (monmaps[0], services[0]);
    let command = |json: &str| MMonCommand {
        fsid: FSID.parse().unwrap(),
        cmd: vec![json.into()],
        ..MMonCommand::default()
    };
    b.holds_commits = true;
    b.send(admin, &command(r#"{"prefix":"config-key set","key":"k","val":"v"}"#));
    b.pass(Duration::ZERO);

    b.send(admin, &command(r#"{"prefix":"mon add","name":"d","addr":"10.0.0.9:3300"}"#));
    let map = ServiceMap { epoch: service + 1, ..ServiceMap::default() };
    b.send(admin, &MMonMgrReport { service_map: map.to_bytes(), ..MMonMgrReport::default() });
    let entry = LogEntry {
        name: "client.admin".parse().unwrap(),
        rank: EntityName::client(4001),
        addrs: AddrVec::default(),
        stamp: UTime::default(),
        seq: 1,
        prio: 1,
        msg: "hello".into(),
        channel: "mine".into(),
    };
    let entries = vec![entry];
    b.send(admin, &MLog { fsid: FSID.parse().unwrap(), entries, ..MLog::default() });
    assert_eq!(told(&mut b, admin), (vec![], vec![], vec![]));
    // Whoever comes now, or asks, hears of what is committed as well.
    b.open(7, EntityName::client(4007), "client.x", "allow *", 5007);
    follow(&mut b, 7);
    b.send(7, &MMonGetMap {});
    assert_eq!(told(&mut b, 7), (vec![monmap; 2], vec![service], vec![]));

    b.holds_commits = false;
    b.step(Event::Committed);
    for session in [admin, 7] {
        assert_eq!(told(&mut b, session), (vec![], vec![], vec![]), "of the first proposal alone");
    }
    b.pass(Duration::ZERO);
    let next = (vec![monmap + 1], vec![service + 1], vec!["hello".to_string()]);
    for session in [admin, 7] {
        assert_eq!(told(&mut b, session), next);
    }
}
