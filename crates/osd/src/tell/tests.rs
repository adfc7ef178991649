//! Commands against a small OSD of no network. Expected texts are of real Ceph where ours has the
//! same to say.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use command::{Arg, ArgType, CommandMap, CommandReply, Signature};
use config::Config;
use env::{Env, LocalFuture};
use maps::OsdMap;
use store::memstore::MemStore;
use store::{CollId, ObjectStore, Transaction};
use types::osd::osd_stat::Minutes;
use types::osd::{OsdSuperblock, PingTimes, WatchItem};
use types::{AddrType, EntityAddr, EntityName, GhObject, HObject, OsdId, PgId, UTime};

use super::*;
use crate::osd::stats::{OpTimes, Served};
use crate::osd::tracker::Description;
use crate::pg::state_history::{Piece, Stay};

struct Fake {
    env: Env,
    config: Rc<Config>,
    store: Rc<dyn ObjectStore>,
    injected: store::injected::InjectedErrors,
    counters: Counters,
    tracker: Rc<Tracker>,
    osdmap: Rc<OsdMap>,
    pgs: Vec<PgSummary>,
    watchers: Vec<(HObject, WatchItem)>,
    pings: BTreeMap<OsdId, PingTimes>,
    beacons: Cell<u32>,
    dropped: Cell<bool>,
    state_times: StateTimes,
    injected_full: Cell<Option<(Fullness, i64)>>,
    lines: RefCell<Vec<(LogLevel, String)>>,
}

impl Target for Fake {
    fn env(&self) -> &Env {
        &self.env
    }
    fn config(&self) -> &Rc<Config> {
        &self.config
    }
    fn store(&self) -> &Rc<dyn ObjectStore> {
        &self.store
    }
    fn scheduled_scrubs(&self) -> Vec<(SpgId, UTime, UTime)> {
        Vec::new()
    }
    fn reservations(&self) -> [Vec<(SpgId, u32, crate::pg::reserver::Stand)>; 2] {
        Default::default()
    }
    fn scrub_slots_taken(&self) -> (u64, u64) {
        (1, 0)
    }
    fn injected(&self) -> &store::injected::InjectedErrors {
        &self.injected
    }
    fn counters(&self) -> &Counters {
        &self.counters
    }
    fn state_times(&self) -> &StateTimes {
        &self.state_times
    }
    fn inject_full(&self, step: Fullness, count: i64) {
        self.injected_full.set(Some((step, count)));
    }
    fn cluster_log(&self, level: LogLevel, text: String) {
        self.lines.borrow_mut().push((level, text));
    }
    fn tracker(&self) -> &Rc<Tracker> {
        &self.tracker
    }
    fn superblock(&self) -> OsdSuperblock {
        OsdSuperblock { whoami: 3, oldest_map: 1, newest_map: 31, ..OsdSuperblock::default() }
    }
    fn state(&self) -> &'static str {
        "active"
    }
    fn osdmap(&self) -> Rc<OsdMap> {
        self.osdmap.clone()
    }
    fn pgs(&self) -> Vec<PgSummary> {
        self.pgs.clone()
    }
    fn pg_states(&self) -> Vec<(SpgId, &'static str, Vec<Piece>)> {
        let stay = Stay { state: "Reset", enter: UTime::ZERO, exit: UTime::ZERO };
        let piece = Piece { epoch: 7, states: vec![stay] };
        self.pgs.iter().map(|pg| (pg.pgid, pg.state, vec![piece.clone()])).collect()
    }
    fn watchers(&self) -> Vec<(HObject, WatchItem)> {
        self.watchers.clone()
    }
    fn heartbeat_peers(&self) -> Vec<OsdId> {
        vec![1, 2]
    }
    fn ping_times(&self) -> BTreeMap<OsdId, PingTimes> {
        self.pings.clone()
    }
    fn drop_caches(&self) {
        self.dropped.set(true);
    }
    fn flush_pg_stats(&self) -> u64 {
        21_474_836_556
    }
    fn send_beacon(&self) {
        self.beacons.set(self.beacons.get() + 1);
    }
    fn latest_osdmap(&self) -> LocalFuture<()> {
        Box::pin(std::future::ready(()))
    }
    fn pg_command(&self, pgid: PgId, map: &CommandMap) -> Option<LocalFuture<CommandReply>> {
        let text = format!("{pgid} {} {}", map.prefix(), map.contains("mulcmd"));
        Some(Box::pin(std::future::ready(CommandReply::data(text))))
    }
}

fn pg(id: &str, role: Role) -> PgSummary {
    PgSummary { pgid: id.parse().unwrap(), role, state: "Started/Stray", object_contexts: 2 }
}

/// Runs a test on an OSD that the test has changed to its liking, under a virtual clock.
fn on_osd<F: Future<Output = ()> + 'static>(
    change: impl FnOnce(&mut Fake) + 'static,
    test: impl FnOnce(Rc<Fake>) -> F + 'static,
) {
    let world = sim::World::new(11);
    let env = world.node("osd.3");
    world.run_until(async move {
        let store: Rc<dyn ObjectStore> = Rc::new(MemStore::new(64 << 20));
        let mut t = Transaction::new();
        t.mkcoll(&CollId::Meta, 0);
        store.submit(t).await.unwrap();
        let mut fake = Fake {
            config: Rc::new(Config::new("osd", "3")),
            injected: store::injected::InjectedErrors::new(store.clone()),
            store,
            counters: Counters::default(),
            tracker: Tracker::new(env.clone()),
            osdmap: Rc::default(),
            pgs: vec![pg("1.0", Role::Primary), pg("1.7", Role::Replica), pg("4.3", Role::Primary)],
            watchers: Vec::new(),
            pings: BTreeMap::new(),
            beacons: Cell::default(),
            dropped: Cell::default(),
            state_times: StateTimes::default(),
            injected_full: Cell::default(),
            lines: RefCell::default(),
            env,
        };
        change(&mut fake);
        test(Rc::new(fake)).await;
    });
}

async fn ask(fake: &Rc<Fake>, json: &str) -> CommandReply {
    run(fake.clone(), vec![json.into()], Bytes::new(), false).await
}

async fn text(fake: &Rc<Fake>, json: &str) -> String {
    let reply = ask(fake, json).await;
    assert_eq!((reply.rc, reply.outs.as_str()), (0, ""), "{json}");
    String::from_utf8(reply.outb.to_vec()).unwrap()
}

/// A number of a JSON answer.
fn number(text: &str, key: &str) -> f64 {
    let value: serde_json::Value = serde_json::from_str(text).unwrap();
    value[key].as_f64().unwrap()
}

#[test]
fn the_table_is_sorted_and_every_command_of_it_is_answered() {
    let names: Vec<String> = table().iter().map(Signature::prefix).collect();
    assert!(names.is_sorted());
    assert!(names.contains(&"config show".to_owned()) && names.contains(&"bench".to_owned()));
    on_osd(
        |_| (),
        |fake| async move {
            for command in table().iter() {
                let value = |arg: &Arg| match arg.kind {
                    ArgType::Choices => serde_json::json!(arg.choices[0]),
                    ArgType::Int => serde_json::json!(4096),
                    ArgType::Pgid => serde_json::json!("1.0"),
                    _ if arg.many => serde_json::json!(["x"]),
                    _ => serde_json::json!("x"),
                };
                let mut json = serde_json::json!({"prefix": command.prefix(), "format": "json"});
                for arg in command.args().filter(|arg| arg.required || arg.name == "pgid") {
                    json[&arg.name] = value(arg);
                }
                let name = command.prefix();
                // A gigabyte is more than the store has.
                if name == "bench" {
                    json["count"] = serde_json::json!(8192);
                }
                if name == "query" {
                    json["pgid"] = serde_json::json!("4.3");
                }
                let reply = ask(&fake, &json.to_string()).await;
                let (may_fail, known) = (
                    [
                        "heap",
                        "injectargs",
                        "config get",
                        "config set",
                        "config unset",
                        "config help",
                    ],
                    !reply.outs.starts_with("unknown")
                        && !reply.outs.starts_with("invalid command"),
                );
                assert!(known, "{json}: {}", reply.outs);
                assert!(
                    reply.rc == 0 || may_fail.contains(&name.as_str()),
                    "{json}: {}",
                    reply.outs
                );
            }
            assert_eq!(fake.beacons.get(), 1);
            assert!(fake.dropped.get());
        },
    );
}

/// `perf histogram dump` was not known, and each PG's history was an empty list.
#[test]
fn histograms_count_ops_and_pgs_tell_their_states() {
    on_osd(
        |_| (),
        |fake| async move {
            let times = OpTimes { latency: Duration::from_millis(10), ..OpTimes::default() };
            let write = Served { writes: true, in_bytes: 65_536, times, ..Served::default() };
            fake.counters.count_op(&write);
            fake.counters.count_op(&Served { reads: true, writes: false, in_bytes: 0, ..write });
            let json = r#"{"prefix":"perf histogram dump","logger":"osd","format":"json"}"#;
            let ask = async || -> serde_json::Value {
                serde_json::from_str(&text(&fake, json).await).unwrap()
            };
            let all = ask().await;
            // 10 ms are 100 quants of 100,000 ns: a real OSD counts them in row 8.
            assert_eq!(all["osd"]["op_w_latency_in_bytes_histogram"]["values"][8][9], 1);
            assert_eq!(all["osd"]["op_r_latency_out_bytes_histogram"]["values"][8][1], 1);
            assert_eq!(all["osd"]["op_rw_latency_in_bytes_histogram"]["values"][8][9], 0);
            text(&fake, r#"{"prefix":"perf reset","var":"osd"}"#).await;
            let all = ask().await;
            assert_eq!(all["osd"]["op_w_latency_in_bytes_histogram"]["values"][8][9], 0);
            let states = text(&fake, r#"{"prefix":"dump_pgstate_history","format":"json"}"#).await;
            let zero = "0.000000";
            let told = format!(
                r#""history":[{{"epoch":"7","states":[{{"state":"Reset","enter":"{zero}","exit":"{zero}"}}]}}]"#
            );
            assert!(states.contains(&told), "{states}");
        },
    );
}

#[test]
fn descriptions_are_those_the_tool_reads() {
    let json = table().descriptions(command::Format::Json, false);
    let all: serde_json::Value = serde_json::from_str(&json).unwrap();
    let bench =
        all.as_object().and_then(|all| all.values().find(|c| c["sig"][0] == "bench")).unwrap();
    assert_eq!(
        bench["sig"].to_string(),
        r#"["bench",{"name":"count","req":"false","type":"CephInt"},{"name":"size","req":"false","type":"CephInt"},{"name":"object_size","req":"false","type":"CephInt"},{"name":"object_num","req":"false","type":"CephInt"}]"#
    );
    assert!(bench.get("module").is_none());
    let kinds: BTreeSet<&str> =
        ["deep_scrub", "scrub", "list_unfound", "mark_unfound_lost", "query"].into();
    let of_pg: BTreeSet<&str> = all
        .as_object()
        .into_iter()
        .flat_map(|all| all.values())
        .filter(|c| c["sig"][0] == "pg")
        .filter_map(|c| c["sig"][2]["strings"].as_str())
        .collect();
    assert_eq!(of_pg, kinds);
}

#[test]
fn plain_answers_are_indented_json_and_json_has_no_spaces() {
    on_osd(
        |_| (),
        |fake| async move {
            assert_eq!(
                text(&fake, r#"{"prefix":"version"}"#).await,
                "{\n    \"version\": \"16.2.15\",\n    \"release\": \"pacific\",\n    \
             \"release_type\": \"stable\"\n}\n"
            );
            assert_eq!(
                text(&fake, r#"{"prefix":"status","format":"json"}"#).await,
                r#"{"cluster_fsid":"00000000-0000-0000-0000-000000000000","osd_fsid":"00000000-0000-0000-0000-000000000000","whoami":3,"state":"active","oldest_map":1,"cluster_osdmap_trim_lower_bound":0,"newest_map":31,"num_pgs":3}"#
            );
            assert_eq!(text(&fake, r#"{"prefix":"flush_pg_stats"}"#).await, "21474836556");
            assert_eq!(text(&fake, r#"{"prefix":"log flush"}"#).await, "{}\n");
            assert_eq!(text(&fake, r#"{"prefix":"smart"}"#).await, "{\n}");
            assert_eq!(
                text(&fake, r#"{"prefix":"get_mapped_pools","format":"json"}"#).await,
                "[1,4]"
            );
            assert_eq!(
                text(&fake, r#"{"prefix":"cache status","format":"json"}"#).await,
                r#"{"object_ctx":6}"#
            );
        },
    );
}

#[test]
fn nonsense_is_refused() {
    on_osd(
        |_| (),
        |fake| async move {
            for (json, errno) in [
                ("", 22),
                ("{", 22),
                ("{}", 22),
                (r#"{"prefix":"nonsense"}"#, 22),
                (r#"{"prefix":"bench","count":"abc"}"#, 22),
                (r#"{"prefix":"heap","heapcmd":"burn"}"#, 22),
                (r#"{"prefix":"heap","heapcmd":"stats"}"#, 95),
                (r#"{"prefix":"perf reset"}"#, 22),
                (r#"{"prefix":"perf dump","logger":3}"#, 22),
            ] {
                let reply = ask(&fake, json).await;
                assert_eq!(reply.rc, -errno, "{json}: {}", reply.outs);
                assert!(!reply.outs.is_empty(), "{json}");
            }
        },
    );
}

#[test]
fn a_bare_word_is_a_command_on_the_admin_socket_only() {
    on_osd(
        |_| (),
        |fake| async move {
            let word = |socket| run(fake.clone(), vec!["0\n".into()], Bytes::new(), socket);
            assert_eq!(word(true).await.outb, "2");
            assert_eq!(word(false).await.rc, -22);
        },
    );
}

#[test]
fn commands_for_a_pg_go_to_its_primary() {
    on_osd(
        |_| (),
        |fake| async move {
            assert_eq!(text(&fake, r#"{"prefix":"query","pgid":"4.3"}"#).await, "4.3 query false");
            assert_eq!(
                text(&fake, r#"{"prefix":"pg","pgid":"1.0","cmd":"query"}"#).await,
                "1.0 query false"
            );
            assert_eq!(
                text(
                    &fake,
                    r#"{"prefix":"pg","pgid":"1.0","cmd":"mark_unfound_lost","mulcmd":"delete"}"#
                )
                .await,
                "1.0 mark_unfound_lost true"
            );
            for (pgid, errno, outs) in [
                (r#","pgid":"1.7""#, 11, "not primary for pgid 1.7"),
                (r#","pgid":"9.0""#, 2, "i don't have pgid 9.0"),
                (r#","pgid":"x""#, 22, "couldn't parse pgid 'x'"),
                ("", 22, "no pgid specified"),
            ] {
                let reply = ask(&fake, &format!(r#"{{"prefix":"query"{pgid}}}"#)).await;
                assert_eq!((reply.rc, reply.outs.as_str()), (-errno, outs));
            }
            let no_mode = r#"{"prefix":"pg","pgid":"1.0","cmd":"mark_unfound_lost"}"#;
            assert_eq!(ask(&fake, no_mode).await.outs, "invalid command json");
        },
    );
}

#[test]
fn counters_have_cephs_names_and_can_start_from_zero() {
    on_osd(
        |_| (),
        |fake| async move {
            let times = |latency, process, prepare| OpTimes {
                latency: Duration::from_nanos(latency),
                process: Duration::from_nanos(process),
                prepare: Duration::from_nanos(prepare),
            };
            let served = Served::default();
            let write = Served { writes: true, in_bytes: 10_000, ..served };
            fake.counters.count_op(&Served { times: times(1_758_955, 900_000, 70_000), ..write });
            let read = Served { reads: true, out_bytes: 7, ..served };
            fake.counters.count_op(&Served { times: times(1_000, 500, 400), ..read });
            let both = Served { reads: true, writes: true, in_bytes: 20, out_bytes: 3, ..served };
            fake.counters.count_op(&Served { times: times(3_000, 2_000, 1_000), ..both });
            let osd = text(&fake, r#"{"prefix":"perf dump","logger":"osd","format":"json"}"#).await;
            assert!(osd.starts_with(
                r#"{"osd":{"op_wip":0,"op":3,"op_in_bytes":10020,"op_out_bytes":10,"op_latency":{"avgcount":3,"sum":0.001762955,"#
            ));
            assert!(osd.contains(r#""op_r":1,"op_r_out_bytes":7,"#));
            assert!(osd.contains(r#""op_rw":1,"op_rw_in_bytes":20,"op_rw_out_bytes":3,"#));
            assert!(osd.contains(r#""op_process_latency":{"avgcount":3,"sum":0.000902500,"#));
            assert!(osd.contains(r#""op_r_prepare_latency":{"avgcount":1,"sum":0.000000400,"#));
            assert!(osd.contains(
                r#""op_w_latency":{"avgcount":1,"sum":0.001758955,"avgtime":0.001758955}"#
            ));
            assert!(
                osd.contains(r#""numpg":3,"numpg_primary":2,"numpg_replica":1,"numpg_stray":0"#)
            );
            assert!(osd.contains(r#""heartbeat_to_peers":2"#));
            assert_eq!(
                text(
                    &fake,
                    r#"{"prefix":"perf dump","logger":"osd","counter":"op_w","format":"json"}"#
                )
                .await,
                r#"{"osd":{"op_w":1}}"#
            );
            assert_eq!(
                text(&fake, r#"{"prefix":"perf dump","logger":"none","format":"json"}"#).await,
                "{}"
            );
            let schema = text(&fake, r#"{"prefix":"perf schema","format":"json"}"#).await;
            assert!(schema.contains(
            r#""op_in_bytes":{"type":10,"metric_type":"counter","value_type":"integer","description":"bytes written by clients","nick":"wr","priority":8,"units":"bytes"}"#
        ));
            assert_eq!(
                text(&fake, r#"{"prefix":"perf reset","var":"all","format":"json"}"#).await,
                r#"{"success":"perf reset all"}"#
            );
            assert_eq!(
                text(&fake, r#"{"prefix":"perf reset","var":"x","format":"json"}"#).await,
                r#"{"error":"Not find: x"}"#
            );
            assert_eq!(fake.counters.op_w.count.get(), 0);
            assert_eq!(fake.counters.op_w.latency(), (0, Duration::ZERO));
        },
    );
}

#[test]
fn ops_are_shown_while_they_run_and_remembered_afterwards() {
    on_osd(
        |_| (),
        |fake| async move {
            let env = fake.env.clone();
            assert_eq!(
                text(&fake, r#"{"prefix":"ops","format":"json"}"#).await,
                r#"{"ops":[],"num_ops":0}"#
            );
            let track = |name: &'static str| {
                fake.tracker.track(
                    env.now(),
                    Description::Other(Box::new(move || format!("osd_op({name})"))),
                )
            };
            let (quick, slow) = (track("client.1"), track("client.2"));
            slow.mark("reached_pg");
            drop(quick);
            env.sleep(Duration::from_secs(31)).await;
            let live = text(&fake, r#"{"prefix":"dump_ops_in_flight","format":"json"}"#).await;
            assert!(
                live.contains(r#""description":"osd_op(client.2)""#)
                    && live.contains(r#""event":"reached_pg""#)
            );
            assert_eq!(number(&live, "num_ops"), 1.0);
            let other =
                r#"{"prefix":"dump_ops_in_flight","filterstr":["client.1"],"format":"json"}"#;
            assert_eq!(text(&fake, other).await, r#"{"ops":[],"num_ops":0}"#);
            let blocked = text(&fake, r#"{"prefix":"dump_blocked_ops","format":"json"}"#).await;
            assert!(blocked.ends_with(r#","complaint_time":30,"num_blocked_ops":1}"#), "{blocked}");
            drop(slow);
            let order = |text: &str| {
                let value: serde_json::Value = serde_json::from_str(text).unwrap();
                let list = value.get("ops").or(value.get("Ops")).unwrap().as_array().unwrap();
                list.iter().map(|op| op["description"].to_string()).collect::<Vec<_>>()
            };
            let (one, two) = ("\"osd_op(client.1)\"".to_owned(), "\"osd_op(client.2)\"".to_owned());
            let past = text(&fake, r#"{"prefix":"dump_historic_ops","format":"json"}"#).await;
            assert!(past.starts_with(r#"{"size":20,"duration":600,"ops":[{"#));
            assert_eq!(order(&past), [one.clone(), two.clone()]);
            let past = text(&fake, r#"{"prefix":"dump_historic_ops_by_duration"}"#).await;
            assert_eq!(order(&past), [two.clone(), one]);
            let past = text(&fake, r#"{"prefix":"dump_historic_slow_ops","format":"json"}"#).await;
            assert!(past.starts_with(r#"{"num to keep":20,"threshold to keep":10,"Ops":["#));
            assert_eq!(order(&past), [two]);
        },
    );
}

#[test]
fn bench_writes_what_it_says_and_leaves_nothing() {
    on_osd(
        |_| (),
        |fake| async move {
            let json =
                text(&fake, r#"{"prefix":"bench","count":4194304,"size":65536,"format":"json"}"#)
                    .await;
            assert_eq!(number(&json, "bytes_written"), 4_194_304.0);
            assert_eq!(number(&json, "blocksize"), 65_536.0);
            assert!(number(&json, "iops") > 0.0 && number(&json, "bytes_per_sec") > 0.0);
            let json = text(
            &fake,
            r#"{"prefix":"bench","count":65536,"size":8192,"object_size":10000,"object_num":3,"format":"json"}"#,
        )
        .await;
            assert_eq!(number(&json, "blocksize"), 8192.0);
            let listed = fake
                .store
                .list(&CollId::Meta, &GhObject::min(), &GhObject::max(), 10)
                .await
                .unwrap();
            assert!(listed.objects.is_empty());
        },
    );
}

#[test]
fn bench_is_bounded() {
    on_osd(
        |_| (),
        |fake| async move {
            for (args, errno) in [
                (r#""size":67108865"#, 22),
                (r#""size":0"#, 22),
                (r#""count":-1"#, 22),
                // 4096 bytes, 100 a second, for 30 seconds.
                (r#""count":12288001,"size":4096"#, 22),
                // 100 MiB a second for 30 seconds.
                (r#""count":3145728001"#, 22),
                // The store has 64 MiB.
                (r#""count":1073741824"#, 28),
                (r#""count":4096,"size":4096,"object_size":4194304,"object_num":1000"#, 28),
            ] {
                let reply = ask(&fake, &format!(r#"{{"prefix":"bench",{args}}}"#)).await;
                assert_eq!(reply.rc, -errno, "{args}: {}", reply.outs);
            }
        },
    );
}

#[test]
fn watchers_and_the_blocklist_look_as_in_ceph() {
    on_osd(
        |fake| {
            let addr = |text| EntityAddr::parse(text, AddrType::Any).unwrap();
            let oid = HObject { name: "obj2".into(), pool: 1, ..HObject::default() };
            let watch = WatchItem {
                name: EntityName::client(4263),
                cookie: 94_921_180_420_144,
                timeout_seconds: 30,
                addr: addr("127.0.0.1:0/399876425").as_any(),
            };
            fake.watchers.push((oid, watch));
            let mut map = OsdMap::default();
            map.blocklist.insert(
                addr("192.168.0.1:0/1234").as_any(),
                UTime::new(1_795_232_811, 721_932_000),
            );
            fake.osdmap = Rc::new(map);
        },
        |fake| async move {
            assert_eq!(
                text(&fake, r#"{"prefix":"dump_watchers","format":"json"}"#).await,
                r#"[{"namespace":"","object":"obj2","entity_name":{"type":"client","num":4263},"cookie":94921180420144,"timeout":30,"entity_addr_t":{"type":"any","addr":"127.0.0.1:0","nonce":399876425}}]"#
            );
            assert_eq!(
                text(&fake, r#"{"prefix":"dump_blocklist","format":"json"}"#).await,
                r#"[{"entity_addr_t":{"type":"any","addr":"192.168.0.1:0","nonce":1234},"expire_time":"2026-11-21T03:46:51.721932+0000"}][]"#
            );
        },
    );
}

#[test]
fn slow_heartbeats_come_worst_first() {
    on_osd(
        |fake| {
            let ping = |back: u32, front: u32| PingTimes {
                last_update: 1_795_232_811,
                back_pingtime: Minutes([back, 10, 20]),
                front_pingtime: Minutes([front, 10, 20]),
                back_last: back,
                front_last: front,
                ..PingTimes::default()
            };
            fake.pings = [(1, ping(1_500_000, 5)), (2, ping(999_999, 2_000_001))].into();
        },
        |fake| async move {
            let all = text(&fake, r#"{"prefix":"dump_osd_network","format":"json"}"#).await;
            let value: serde_json::Value = serde_json::from_str(&all).unwrap();
            assert_eq!(value["threshold"], 1000);
            let entries: Vec<(i64, &str)> = value["entries"]
                .as_array()
                .unwrap()
                .iter()
                .map(|e| (e["to osd"].as_i64().unwrap(), e["interface"].as_str().unwrap()))
                .collect();
            assert_eq!(entries, [(2, "front"), (1, "back")]);
            assert!(all.contains(r#""last update":"Sat Nov 21 03:46:51 2026","stale":"#), "{all}");
            assert!(all.contains(r#""average":{"1min":2000.001,"5min":0.010,"15min":0.020}"#));
            let every =
                text(&fake, r#"{"prefix":"dump_osd_network","value":0,"format":"json"}"#).await;
            let value: serde_json::Value = serde_json::from_str(&every).unwrap();
            assert_eq!(value["entries"].as_array().unwrap().len(), 4);
        },
    );
}

/// Ceph's own suite asks for these; they were not there.
#[test]
fn fullness_log_lines_and_states_for_operators() {
    on_osd(
        |_| (),
        |fake| async move {
            let injected = |json: &'static str| {
                let fake = fake.clone();
                async move { (text(&fake, json).await, fake.injected_full.take()) }
            };
            let (out, took) = injected(r#"{"prefix":"injectfull","type":"nearfull"}"#).await;
            assert_eq!((out.as_str(), took), ("", Some((Fullness::Nearfull, -1))));
            let (_, took) = injected(r#"{"prefix":"injectfull","count":3}"#).await;
            assert_eq!(took, Some((Fullness::Full, 3)));
            let (out, took) = injected(r#"{"prefix":"injectfull","type":"fat"}"#).await;
            assert!(out.starts_with("Invalid type use (none,") && took.is_none());

            let log = r#"{"prefix":"cluster_log","level":"warning","message":["two","words"]}"#;
            text(&fake, log).await;
            assert_eq!(*fake.lines.borrow(), [(LogLevel::Warn, "two words".to_owned())]);

            let result = text(&fake, r#"{"prefix":"compact","format":"json"}"#).await;
            assert!(number(&result, "elapsed_time") >= 0.0);

            let times = &fake.state_times;
            times.enter("Started/Stray");
            times.leave("Started/Stray", Duration::from_secs(3), 2);
            times.enter("Started/Stray");
            times.leave("Started/Stray", Duration::from_secs(1), 1);
            let stats = r#"{"prefix":"dump_pg_recovery_stats","format":"json"}"#;
            assert_eq!(
                text(&fake, stats).await,
                r#"[{"enter":2,"exit":2,"events":3,"event_time":"0.000000","#.to_owned()
                    + r#""total_time":"4.000000","min_time":"1.000000","max_time":"3.000000","#
                    + r#""nested_states":["Started","Stray"]}]"#
            );
            text(&fake, r#"{"prefix":"reset_pg_recovery_stats"}"#).await;
            assert_eq!(text(&fake, stats).await, "[]");
        },
    );
}
