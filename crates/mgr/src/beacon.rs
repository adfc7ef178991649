//! Signs of life to the monitors, every `mgr_tick_period` and whenever something changed.

use std::collections::BTreeMap;
use std::rc::Rc;

use command::version;
use maps::mgrmap::{ModuleInfo, ModuleOption};
use messages::{MMgrBeacon, Message, MonCommand};
use types::features;

use crate::commands;
use crate::daemon::Mgr;

/// Names of Ceph's modules whose commands are answered here, in native code.
const MODULES: [&str; 10] = [
    "balancer",
    "crash",
    "devicehealth",
    "iostat",
    "pg_autoscaler",
    "progress",
    "prometheus",
    "rbd_support",
    "status",
    "telemetry",
];

/// Runs until the manager stops. A beacon names the cluster, so the first one waits for the
/// monitors' map (without authentication the session opens before it has come).
pub(crate) async fn run(mgr: Rc<Mgr>) {
    let _ = mgr.monc.monmap_ready().await;
    while !mgr.stopped.get() {
        send(&mgr);
        let period = mgr.config.duration("mgr_tick_period");
        let _ = mgr.env.timeout(period, mgr.beacon_now.notified()).await;
    }
}

fn modules() -> Vec<ModuleInfo> {
    let module = |name: &&str| ModuleInfo {
        name: (*name).to_owned(),
        can_run: true,
        module_options: options_of(name),
        ..ModuleInfo::default()
    };
    MODULES.iter().map(module).collect()
}

/// A module's options, as the monitors' map has them.
fn options_of(module: &str) -> BTreeMap<String, ModuleOption> {
    const RUNTIME: u32 = 1;
    let of_module = config::module_options().iter().filter_map(|option| {
        let name = option.name.strip_prefix("mgr/")?.strip_prefix(module)?.strip_prefix('/')?;
        Some((name.to_owned(), option))
    });
    let described = of_module.map(|(name, option)| {
        let choices = option.choices.split('|').filter(|_| !option.choices.is_empty());
        let described = ModuleOption {
            name: name.clone(),
            kind: option.kind as u8,
            level: option.level as u8,
            flags: if option.can_update_at_runtime() { RUNTIME } else { 0 },
            default_value: option.default.to_owned(),
            min: option.min.to_owned(),
            max: option.max.to_owned(),
            enum_allowed: choices.map(str::to_owned).collect(),
            desc: option.desc.to_owned(),
            ..ModuleOption::default()
        };
        (name, described)
    });
    described.collect()
}

/// What is served beside Ceph's protocol, and where.
fn services(mgr: &Mgr) -> BTreeMap<String, String> {
    let url = mgr.prometheus_url.borrow().clone();
    url.into_iter().map(|url| ("prometheus".to_owned(), url)).collect()
}

fn metadata(mgr: &Mgr) -> BTreeMap<String, String> {
    let addrs = mgr.messenger.addrs();
    let ip = addrs.front().ip().map(|ip| ip.to_string()).unwrap_or_default();
    let mut facts = mgr.config.facts();
    let own = [
        ("addr", ip),
        ("addrs", addrs.to_string()),
        ("arch", std::env::consts::ARCH.to_owned()),
        ("ceph_release", version::RELEASE.to_owned()),
        ("ceph_version", version::long()),
        ("ceph_version_short", version::SHORT.to_owned()),
        ("hostname", mgr.config.host().to_owned()),
        ("os", "Linux".to_owned()),
    ];
    facts.extend(own.into_iter().map(|(k, v)| (k.to_owned(), v)));
    facts
}

/// The commands answered here, for the monitors to announce.
fn descriptions() -> Vec<MonCommand> {
    let describe = |[sig, help, module, perm]: &[&str; 4]| MonCommand {
        cmdstring: (*sig).to_owned(),
        helpstring: (*help).to_owned(),
        module: (*module).to_owned(),
        req_perms: (*perm).to_owned(),
        flags: commands::flags_of(sig) | command::FLAG_MGR,
    };
    commands::TABLE.iter().map(describe).collect()
}

fn send(mgr: &Mgr) {
    let map = mgr.mgrmap.borrow();
    let available = mgr.serves();
    // Once, with the beacon that says we serve.
    let announce = available && !map.available;
    let beacon = MMgrBeacon {
        server_addrs: mgr.messenger.addrs(),
        gid: mgr.monc.global_id(),
        available,
        name: mgr.id().to_owned(),
        fsid: mgr.monc.fsid(),
        command_descs: if announce { descriptions() } else { Vec::new() },
        metadata: metadata(mgr),
        modules: modules(),
        services: services(mgr),
        mgr_features: features::ALL,
        clients: mgr.rbd_support.clients(),
        ..MMgrBeacon::default()
    };
    mgr.monc.send(beacon.encode());
}
