//! Gateways and mirrors that report to the manager, and what the manager does for images.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use auth::Keyring;
use bstr::BString;
use bytes::Bytes;
use client::{Client, IoCtx};
use messages::{
    MMgrClose, MMgrCommand, MMgrCommandReply, MMgrConfigure, MMgrMap, MMgrOpen, MMgrReport, Message,
};
use monclient::MonClient;
use msgr::{Connection, Dispatcher, Incoming, Messenger};
use serde_json::{Value, json};
use sim::{Kill, World};
use simtest::{Cluster, Plan};
use types::{AddrVec, entity};

use crate::raw_client;

const LIMIT: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(50);

/// What a gateway has heard of the manager.
struct Heard {
    monc: MonClient,
    mgr: RefCell<AddrVec>,
    /// Seconds between reports.
    period: Cell<Option<u32>>,
    closed: RefCell<Option<MMgrClose>>,
    answers: Cell<u32>,
    resets: Cell<u32>,
}

impl Dispatcher for Heard {
    fn on_message(&self, con: &Connection, incoming: Incoming) {
        let Some(incoming) = self.monc.on_message(con, incoming) else { return };
        let raw = &incoming.message;
        match raw.header.kind {
            MMgrMap::TYPE => {
                let map = MMgrMap::decode(raw).expect("a map").map;
                self.monc.got("mgrmap", map.epoch.into());
                *self.mgr.borrow_mut() = map.active_addrs;
            }
            MMgrConfigure::TYPE => {
                let configure = MMgrConfigure::decode(raw).expect("how to report");
                self.period.set(Some(configure.stats_period));
            }
            MMgrCommandReply::TYPE => self.answers.set(self.answers.get() + 1),
            MMgrClose::TYPE => *self.closed.borrow_mut() = MMgrClose::decode(raw).ok(),
            _ => {}
        }
    }

    fn on_connect(&self, con: &Connection) {
        self.monc.on_connect(con);
    }

    fn on_reset(&self, con: &Connection) {
        self.monc.on_reset(con);
        if con.peer_kind() == entity::MGR {
            self.resets.set(self.resets.get() + 1);
        }
    }
}

/// A gateway's session with the manager, and no more of it.
struct Gateway {
    messenger: Messenger,
    heard: Rc<Heard>,
    con: RefCell<Option<Connection>>,
}

impl Gateway {
    async fn connect(cluster: &Cluster) -> Rc<Gateway> {
        let hears = |monc| Heard {
            monc,
            mgr: RefCell::default(),
            period: Cell::new(None),
            closed: RefCell::default(),
            answers: Cell::new(0),
            resets: Cell::new(0),
        };
        let (messenger, heard) = raw_client::connect(cluster, "client.gateway", hears).await;
        heard.monc.subscribe("mgrmap", 0, 0);
        Rc::new(Gateway { messenger, heard, con: RefCell::default() })
    }

    fn open(&self) {
        let con = self.messenger.connect_to(entity::MGR, &self.heard.mgr.borrow());
        let facts = || BTreeMap::from([("hostname".to_owned(), "h".to_owned())]);
        let open = MMgrOpen {
            daemon_name: "4242".to_owned(),
            service_name: "rgw".to_owned(),
            service: Some((facts(), BTreeMap::new())),
            ..MMgrOpen::default()
        };
        con.send(open.encode());
        *self.con.borrow_mut() = Some(con);
    }

    fn send(&self, message: &impl Message) {
        self.con.borrow().as_ref().expect("a session").send(message.encode());
    }

    fn report(&self) {
        self.send(&MMgrReport {
            daemon_name: "4242".to_owned(),
            service_name: "rgw".to_owned(),
            rest: MMgrReport::NO_METRICS,
            ..MMgrReport::default()
        });
    }
}

/// Whether the monitors know the gateway.
async fn is_known(cluster: &Cluster, admin: &Client) -> bool {
    let status = cluster.command(admin, json!({"prefix": "status", "format": "json"})).await;
    let status: Value = serde_json::from_slice(&status).expect("JSON");
    status["servicemap"]["services"]["rgw"]["daemons"].get("4242").is_some()
}

async fn until(cluster: &Cluster, what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let limit = cluster.world().now() + LIMIT;
    while !holds().await {
        assert!(cluster.world().now() < limit, "{what}");
        cluster.world().sleep(LOOK).await;
    }
}

/// A gateway that had been silent for a minute (its host was overloaded, or stopped) was dropped, and never came back
/// while its connection was open: its reports were of nobody. Ceph's manager ends such a connection. Nor did
/// the manager tell daemons of another `mgr_stats_period`, and a gateway that left waited a second for an answer
/// to its goodbye that never came.
#[test]
fn a_gateway_that_was_silent_comes_back() {
    let world = World::new(7);
    let cluster = Cluster::make(&world.control(), Plan::default());
    world.run_until(async move {
        let admin = cluster.start().await;
        let gateway = Gateway::connect(&cluster).await;
        let heard = &gateway.heard;
        until(&cluster, "a manager", async || !heard.mgr.borrow().is_empty()).await;
        gateway.open();
        until(&cluster, "it is configured", async || heard.period.get() == Some(5)).await;
        until(&cluster, "it is known", async || is_known(&cluster, &admin).await).await;

        let period =
            json!({"prefix": "config set", "who": "mgr", "name": "mgr_stats_period", "value": "9"});
        cluster.command(&admin, period).await;
        until(&cluster, "another period", async || heard.period.get() == Some(9)).await;

        cluster.world().sleep(Duration::from_secs(70)).await;
        until(&cluster, "it is gone", async || !is_known(&cluster, &admin).await).await;
        gateway.report();
        until(&cluster, "the session ends", async || heard.resets.get() == 1).await;
        gateway.open();
        until(&cluster, "it is back", async || is_known(&cluster, &admin).await).await;

        let close = MMgrClose { daemon_name: "4242".to_owned(), service_name: "rgw".to_owned() };
        gateway.send(&close);
        until(&cluster, "an answer", async || heard.closed.borrow().as_ref() == Some(&close)).await;
        until(&cluster, "it has left", async || !is_known(&cluster, &admin).await).await;
    });
}

/// Found by reading: a manager that is not the active one answered commands, of a cluster without any
/// placement group: `osd safe-to-destroy` and `osd destroy` found every OSD empty. Who has an older map asks it:
/// it ends the connection, and they ask again by a newer one.
#[test]
fn a_standby_answers_no_commands() {
    let world = World::new(11);
    let cluster = Cluster::make(&world.control(), Plan::default());
    world.run_until(async move {
        let admin = cluster.start().await;
        let gateway = Gateway::connect(&cluster).await;
        let heard = &gateway.heard;
        let caps = ["mon", "allow profile mgr", "osd", "allow *"];
        let key = json!({"prefix": "auth get-or-create", "entity": "mgr.y", "caps": caps});
        let key = cluster.command(&admin, key).await;
        let key = Keyring::parse(&String::from_utf8_lossy(&key)).expect("a keyring");
        cluster.start_mgr_as("y", key);
        let of_y = json!({"prefix": "mgr metadata", "who": "y", "format": "json"}).to_string();
        let mut standby = None;
        until(&cluster, "a standby", async || {
            let answer = admin.mon_command(of_y.clone(), Bytes::new()).await.expect("an answer");
            let facts: Value = serde_json::from_slice(&answer.outb).unwrap_or_default();
            standby = facts["addrs"].as_str().and_then(|addrs| addrs.parse::<AddrVec>().ok());
            standby.is_some()
        })
        .await;
        let standby = standby.expect("its addresses");
        assert_ne!(standby, *heard.mgr.borrow());

        let destroy = json!({"prefix": "osd safe-to-destroy", "ids": ["0"]}).to_string();
        let cmd = vec![BString::from(destroy.clone())];
        let command = MMgrCommand { fsid: heard.monc.fsid(), cmd, input: Bytes::new() };
        gateway.messenger.connect_to(entity::MGR, &standby).send(command.encode().with_tid(1));
        until(&cluster, "an end", async || heard.resets.get() + heard.answers.get() > 0).await;
        assert_eq!((heard.resets.get(), heard.answers.get()), (1, 0));

        // The next active one answers, and not before it knows what there is.
        cluster.command(&admin, json!({"prefix": "osd pool create", "pool": "p"})).await;
        cluster.world().kill("mgr.x", Kill::PROCESS);
        cluster.command(&admin, json!({"prefix": "mgr fail"})).await;
        let answer = admin.mgr_command(destroy, Bytes::new()).await.expect("an answer");
        assert!(answer.rc < 0, "{}", answer.outs);
    });
}

/// A command of the module `rbd_support`; its output.
async fn schedule(admin: &Client, what: &str, interval: Option<&str>) -> String {
    let prefix = format!("rbd trash purge schedule {what}");
    let mut command = json!({"prefix": prefix, "level_spec": "p/"});
    if let Some(interval) = interval {
        command["interval"] = interval.into();
    }
    let answer = admin.mgr_command(command.to_string(), Bytes::new()).await.expect("an answer");
    assert_eq!(answer.rc, 0, "{command}: {}", answer.outs);
    String::from_utf8_lossy(&answer.outb).into_owned()
}

/// The pool's schedule as it is kept.
async fn stored(io: &IoCtx) -> String {
    let all = io.omap_get("rbd_trash_purge_schedule").await.expect("schedules");
    let text = all.get(&BString::from(io.pool_id().to_string())).cloned().unwrap_or_default();
    String::from_utf8_lossy(&text).into_owned()
}

/// An interval that was added to a schedule replaced it if the manager had not read it: it saved what it knew and the
/// new interval. And a manager that had just started answered that there were no schedules.
#[test]
fn schedules_are_read_before_they_are_changed_or_told() {
    let world = World::new(8);
    let cluster = Cluster::make(&world.control(), Plan::default());
    world.run_until(async move {
        let admin = cluster.start().await;
        cluster.create_pool(&admin, 8).await;
        let app = json!({"prefix": "osd pool application enable", "pool": "p", "app": "rbd"});
        cluster.command(&admin, app).await;
        cluster.wait_until_clean(&admin, LIMIT).await;
        let io = admin.io_ctx("p").await.expect("the pool");
        schedule(&admin, "add", Some("2h")).await;
        let before = stored(&io).await;
        assert!(before.contains("2h"), "{before}");
        // What the manager has not read.
        let other = Bytes::from(before.replace("2h", "3h"));
        let key = BString::from(io.pool_id().to_string());
        io.omap_set("rbd_trash_purge_schedule", &[(key, other)].into()).await.expect("written");
        schedule(&admin, "add", Some("1h")).await;
        let after = stored(&io).await;
        assert!(after.contains("1h") && after.contains("3h"), "{after}");

        // Who asks is there before what is read.
        (0..3).for_each(|osd| cluster.slow_reads(osd, Duration::from_secs(2)));
        cluster.world().kill("mgr.x", Kill::PROCESS);
        cluster.start_mgr();
        let told = schedule(&admin, "list", None).await;
        assert!(told.contains("1h") && told.contains("3h"), "{told}");
    });
}

/// Another `mgr/prometheus/server_port` was taken by a manager that was started after it, and by none that served.
#[test]
fn metrics_move_to_the_port_that_is_set() {
    let world = World::new(9);
    let cluster = Cluster::make(&world.control(), Plan::default());
    world.run_until(async move {
        let admin = cluster.start().await;
        let enable = json!({"prefix": "mgr module enable", "module": "prometheus"});
        cluster.command(&admin, enable).await;
        for port in ["9283", "9284"] {
            let set = json!({
                "prefix": "config set", "who": "mgr", "name": "mgr/prometheus/server_port", "value": port,
            });
            cluster.command(&admin, set).await;
            let end = format!(":{port}/");
            until(&cluster, &format!("metrics at port {port}"), async || {
                let services = json!({"prefix": "mgr services", "format": "json"});
                let services = cluster.command(&admin, services).await;
                let services: Value = serde_json::from_slice(&services).expect("JSON");
                services["prometheus"].as_str().is_some_and(|url| url.ends_with(&end))
            })
            .await;
        }
    });
}
