//! `loligo up`: makes a cluster in a folder, or brings back the one that is there: daemons that
//! run already are left alone.
//!
//! A new cluster: keys and `ceph.conf`, the monitor's store, then the daemons; each OSD is
//! registered with `osd new` as a deployment tool would with a Ceph monitor. `up` returns when
//! every OSD is up, the manager serves and every placement group is active: what is written next
//! is served at once.

use std::fs;
use std::time::{Duration, Instant};

use auth::{CryptoKey, EntityAuth, Keyring};
use config::{ConfFile, parse_iec};
use env::Env;
use types::{AuthEntityName, UTime, Uuid};

use crate::cli::UpArgs;
use crate::failure::Failure;
use crate::layout::{DEFAULT_PORT, Layout, NewConf, port_is_free, write_private};
use crate::output::tell;
use crate::session::AdminSession;
use crate::stores::STORES;
use crate::{admin_socket, daemon, process};

/// How long the daemons get to serve.
const START_TIME: Duration = Duration::from_secs(30);
/// How long placement groups get to become active before `up` returns without them.
const PEERING_TIME: Duration = Duration::from_secs(10);
/// Smallest device `up` accepts for an OSD.
const OSD_SIZE_MIN: u64 = 64 << 20;
/// Most OSDs `up` starts on one machine.
const OSDS_MAX: u32 = 256;
/// Most managers.
const MGRS_MAX: u32 = 3;
/// Names of monitors and managers, in order.
const MON_NAMES: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];
const MGR_NAMES: [&str; MGRS_MAX as usize] = ["x", "y", "z"];

/// Checked arguments.
struct Plan {
    mons: u32,
    mgrs: u32,
    osds: u32,
    osds_per_process: usize,
    /// Arguments for OSDs beside their ids.
    osd_args: Vec<String>,
    store: String,
    size: u32,
    osd_size: u64,
    port: Option<u16>,
    sets: Vec<(String, String)>,
}

fn check(args: &UpArgs) -> Result<Plan, Failure> {
    let mons = args.mons.unwrap_or(1);
    if !matches!(mons, 1 | 3 | 5 | 7) {
        return Err(Failure::new(format!("--mons {mons}: give 1, 3, 5 or 7")));
    }
    let mgrs = args.mgrs.unwrap_or(1);
    if mgrs == 0 || mgrs > MGRS_MAX {
        return Err(Failure::new(format!("--mgrs {mgrs}: give 1 to {MGRS_MAX}")));
    }
    if args.osds == 0 || args.osds > OSDS_MAX {
        return Err(Failure::new(format!("--osds {}: give 1 to {OSDS_MAX}", args.osds)));
    }
    if !STORES.contains(&args.store.as_str()) {
        return Err(Failure::new(format!(
            "--store {}: there is {}",
            args.store,
            STORES.join(", ")
        )));
    }
    let osd_size = parse_iec(&args.osd_size)
        .and_then(|n| u64::try_from(n).ok())
        .filter(|n| *n >= OSD_SIZE_MIN)
        .ok_or_else(|| {
            Failure::new(format!("--osd-size {}: give a size from 64M up, like 10G", args.osd_size))
        })?;
    let size = args.size.unwrap_or(args.osds.min(3));
    if size == 0 || size > 10 {
        return Err(Failure::new(format!("--size {size}: give 1 to 10 replicas")));
    }
    let sets = args.set.iter().map(|s| parse_set(s)).collect::<Result<_, _>>()?;
    let (osds, store, port) = (args.osds, args.store.clone(), args.port);
    let osds_per_process = args.osds_per_process as usize;
    let osd_args = args.threads_per_process.map(|n| format!("--threads={n}")).into_iter().collect();
    Ok(Plan { mons, mgrs, osds, osds_per_process, osd_args, store, size, osd_size, port, sets })
}

/// Splits `KEY=VALUE` and checks both against the option table.
pub(crate) fn parse_set(text: &str) -> Result<(String, String), Failure> {
    let (key, value) = text
        .split_once('=')
        .ok_or_else(|| Failure::new(format!("--set {text}: write KEY=VALUE")))?;
    let key = key.trim().replace([' ', '-'], "_");
    let option = config::option(&key)
        .ok_or_else(|| Failure::new(format!("--set {text}: there is no option {key}")))?;
    config::normalize(option, value.trim())
        .map_err(|e| Failure::new(format!("--set {text}: {e}")))?;
    Ok((key, value.trim().to_owned()))
}

/// Runs the command.
pub(crate) fn up(args: &UpArgs) -> Result<(), Failure> {
    let started = Instant::now();
    let plan = check(args)?;
    let layout = Layout::create(&args.dir.dir)?;
    let existing = layout.read_conf()?;
    let running = process::all_running(&layout);
    if args.single_process && !running.is_empty() {
        return Err(Failure::new(format!(
            "a cluster is running in {}; 'loligo down --dir {0}' stops it",
            layout.dir().display()
        )));
    }
    let mon_runs = running.iter().any(|(name, _)| name.starts_with("mon."));
    let ports = match &existing {
        Some(conf) => conf_ports(&layout, conf, plan.port)?,
        None => {
            let first = plan.port.unwrap_or(DEFAULT_PORT);
            (first..=u16::MAX).take(plan.mons as usize).collect()
        }
    };
    check_counts(&layout, args, existing.is_some())?;
    if let Some(port) = ports.iter().find(|port| !mon_runs && !port_is_free(**port)) {
        return Err(Failure::new(format!(
            "port {port} on 127.0.0.1 is in use; give another with --port, or stop what listens there"
        )));
    }
    let port = ports[0];
    let (plan, layout, attached) = (plan, layout, args.foreground);
    if existing.is_some() {
        add_settings(&layout, &plan.sets)?;
    } else {
        make_cluster(&layout, &plan, port)?;
    }
    let keep = args.single_process;
    if keep {
        return daemon::run_all_in_threads(layout, plan.osds, plan.osd_size, &plan.store);
    }
    start_and_wait(&layout, &plan, attached, started)
}

/// The ports of an existing cluster's monitors; asking for another is refused: they are in the
/// monitors' own map.
fn conf_ports(layout: &Layout, conf: &ConfFile, asked: Option<u16>) -> Result<Vec<u16>, Failure> {
    let host = conf.get("global", "mon_host").unwrap_or_default();
    let host = daemon::resolve_mon_host(host)?;
    let mons = monclient::parse_mon_host(&host).unwrap_or_default();
    let ports: Vec<u16> =
        mons.iter().filter_map(|mon| mon.msgr2().map(|addr| addr.port())).collect();
    let Some(first) = ports.first().copied() else {
        let conf = layout.conf();
        return Err(Failure::new(format!("{}: mon_host names no port", conf.display())));
    };
    match asked {
        Some(other) if other != first => Err(Failure::new(format!(
            "the cluster in {} has its first monitor on port {first}; leave --port out",
            layout.dir().display()
        ))),
        _ => Ok(ports),
    }
}

/// An existing cluster keeps its monitors and managers.
fn check_counts(layout: &Layout, args: &UpArgs, exists: bool) -> Result<(), Failure> {
    let asked = [("mon", "mons", args.mons), ("mgr", "mgrs", args.mgrs)];
    for (kind, option, count) in asked {
        let there = layout.ids(kind).len();
        if exists && count.is_some_and(|count| count as usize != there) {
            return Err(Failure::new(format!(
                "the cluster in {} has {there} of kind {kind}: leave --{option} out \
                 ('ceph mon add' and 'loligo mon --mkfs' add a monitor)",
                layout.dir().display()
            )));
        }
    }
    Ok(())
}

fn add_settings(layout: &Layout, sets: &[(String, String)]) -> Result<(), Failure> {
    if sets.is_empty() {
        return Ok(());
    }
    let text = fs::read_to_string(layout.conf())?;
    let lines: String = sets.iter().map(|(k, v)| format!("{k} = {v}\n")).collect();
    write_private(&layout.conf(), &text.replacen("[global]\n", &format!("[global]\n{lines}"), 1))
}

fn new_key() -> Result<(CryptoKey, Uuid), Failure> {
    let env = env::real::Runtime::new()?.env();
    let mut uuid = [0; 16];
    env.fill_random(&mut uuid);
    let now = UTime::from_duration(env.wall_clock());
    Ok((CryptoKey::generate(&|buf| env.fill_random(buf), now), Uuid::from_random(uuid)))
}

fn entity(name: &str) -> AuthEntityName {
    name.parse().expect("names written in this file parse")
}

fn make_cluster(layout: &Layout, plan: &Plan, port: u16) -> Result<(), Failure> {
    let (mon_key, fsid) = new_key()?;
    let (admin_key, _) = new_key()?;
    let all = [("mon", "allow *"), ("osd", "allow *"), ("mds", "allow *"), ("mgr", "allow *")];
    let mon = EntityAuth::new(mon_key, [("mon", "allow *")]);
    let admin = EntityAuth::new(admin_key, all);
    let fsid = fsid.to_string();
    let Plan { mons, size, store, osd_size, sets, .. } = plan;
    let (mons, size, osd_size) = (*mons, *size, *osd_size);
    let conf = NewConf { fsid: &fsid, port, mons, size, store, osd_size, sets };
    let conf_text = conf.text(layout);

    let ring = |entries: &[(&str, &EntityAuth)]| {
        let mut ring = Keyring::new();
        for (name, auth) in entries {
            ring.keys.insert(entity(name), (*auth).clone());
        }
        ring.to_text()
    };
    let mgrs = &MGR_NAMES[..plan.mgrs as usize];
    let mut first =
        vec![("mon.".to_owned(), mon.clone()), ("client.admin".to_owned(), admin.clone())];
    for name in mgrs {
        let (key, _) = new_key()?;
        let caps = [("mon", "allow profile mgr"), ("osd", "allow *"), ("mds", "allow *")];
        let (entity, auth) = (format!("mgr.{name}"), EntityAuth::new(key, caps));
        let data = layout.data("mgr", name);
        fs::create_dir_all(&data)?;
        write_private(&data.join("keyring"), &ring(&[(&entity, &auth)]))?;
        first.push((entity, auth));
    }
    write_private(&layout.admin_keyring(), &ring(&[("client.admin", &admin)]))?;
    let names = &MON_NAMES[..mons as usize];
    for name in names {
        let data = layout.data("mon", name);
        fs::create_dir_all(&data)?;
        let entries: Vec<(&str, &EntityAuth)> =
            first.iter().map(|(n, a)| (n.as_str(), a)).collect();
        // The first monitor knows everybody's key; the others get them from it.
        let entries = if *name == names[0] { &entries[..] } else { &entries[..1] };
        write_private(&data.join("keyring"), &ring(entries))?;
    }
    // The configuration is written last but one: a folder that has it has all keys, too.
    daemon::mkfs_mons(layout, &conf_text, names)?;
    write_private(&layout.conf(), &conf_text)
}

fn start_and_wait(
    layout: &Layout,
    plan: &Plan,
    attached: bool,
    started: Instant,
) -> Result<(), Failure> {
    let result = start_daemons(layout, plan, attached);
    if let Err(failure) = result {
        process::stop_all(layout);
        return Err(failure);
    }
    let seconds = started.elapsed().as_secs_f32();
    let count = |kind, one: &str, more: &str| match layout.ids(kind).len() {
        1 => format!("1 {one}"),
        n => format!("{n} {more}"),
    };
    tell!(
        "{}, {}, {} serve after {seconds:.2} s",
        count("mon", "monitor", "monitors"),
        count("mgr", "manager", "managers"),
        count("osd", "OSD", "OSDs")
    );
    tell!("export CEPH_CONF={}", layout.conf().display());
    if attached {
        tell!("Ctrl-C stops the cluster");
        env::real::Runtime::new()?.block_on(|env| async move { env.termination().await });
        process::stop_all(layout);
    }
    Ok(())
}

fn start_daemons(layout: &Layout, plan: &Plan, attached: bool) -> Result<(), Failure> {
    let known = layout.ids("osd");
    let kinds =
        [("mon", 1, &[][..]), ("mgr", 1, &[]), ("osd", plan.osds_per_process, &plan.osd_args)];
    for (kind, per_process, args) in kinds {
        let mut ids = layout.ids(kind);
        ids.retain(|id| process::running(&layout.pid_file(&format!("{kind}.{id}"))).is_none());
        for ids in ids.chunks(per_process) {
            process::start(layout, kind, ids, args, !attached)?;
        }
    }
    let new: Vec<u32> = (0..plan.osds).filter(|n| !known.contains(&n.to_string())).collect();
    let (layout, new) = (
        layout.clone(),
        NewOsds {
            groups: new.chunks(plan.osds_per_process).map(<[u32]>::to_vec).collect(),
            args: plan.osd_args.clone(),
            size: plan.osd_size,
            store: plan.store.clone(),
        },
    );
    env::real::Runtime::new()?.block_on(move |env| async move {
        let work = register_and_wait(&env, &layout, &new, attached);
        match env.timeout(START_TIME, work).await {
            Ok(result) => result,
            Err(_) => Err(Failure::new(describe_late(&layout))),
        }
    })
}

/// OSDs that are to be made.
struct NewOsds {
    /// Those that share a process.
    groups: Vec<Vec<u32>>,
    args: Vec<String>,
    /// Of each one's device, bytes.
    size: u64,
    store: String,
}

async fn register_and_wait(
    env: &Env,
    layout: &Layout,
    new: &NewOsds,
    attached: bool,
) -> Result<(), Failure> {
    let session = AdminSession::connect(env, layout).await?;
    for group in &new.groups {
        for n in group {
            register_osd(&session, layout, *n, new.size, &new.store).await?;
        }
        let ids: Vec<String> = group.iter().map(u32::to_string).collect();
        process::start(layout, "osd", &ids, &new.args, !attached)?;
    }
    let ids = layout.ids("osd");
    let began = env.now();
    loop {
        if serves(env, &session, layout, &ids, env.now() - began).await? {
            return Ok(());
        }
        let all = ["mon", "mgr", "osd"].into_iter();
        let names =
            all.flat_map(|kind| layout.ids(kind).into_iter().map(move |id| format!("{kind}.{id}")));
        for name in names {
            if process::running(&layout.pid_file(&name)).is_none() {
                return Err(Failure::new(format!(
                    "{name} stopped: {}",
                    process::log_tail(layout, &name)
                )));
            }
        }
        env.sleep(Duration::from_millis(10)).await;
    }
}

/// Whether every daemon serves. The maps alone do not tell: after all daemons were killed at once
/// they still show the last lives of all as up, so each process is asked itself.
async fn serves(
    env: &Env,
    session: &AdminSession,
    layout: &Layout,
    ids: &[String],
    waited: Duration,
) -> Result<bool, Failure> {
    let number = |of: &serde_json::Value, key: &str| of[key].as_u64().unwrap_or(0);
    let mut epoch = 0;
    for id in ids {
        let socket = layout.admin_socket(&format!("osd.{id}"));
        match admin_socket::ask(env, &socket, "status").await {
            Some(status) if status["state"] == "active" => {
                epoch = epoch.max(number(&status, "newest_map"));
            }
            _ => return Ok(false),
        }
    }
    let mut active = None;
    for id in layout.ids("mgr") {
        let socket = layout.admin_socket(&format!("mgr.{id}"));
        let status = admin_socket::ask(env, &socket, "mgr_status").await;
        active = active.or(status.filter(|mgr| mgr["available"] == true));
    }
    let Some(mgr) = active else { return Ok(false) };
    if number(&mgr, "osdmap_epoch") < epoch {
        return Ok(false);
    }
    let status = session.json(r#"{"prefix":"status","format":"json"}"#, "").await?;
    let mons = status["quorum"].as_array().map_or(0, Vec::len);
    if mons < layout.ids("mon").len() {
        return Ok(false);
    }
    let up = number(&status["osdmap"], "num_up_osds");
    if up < ids.len() as u64 || status["mgrmap"]["available"] != true {
        return Ok(false);
    }
    let (pgs, serving) = (number(&mgr, "num_pgs"), number(&mgr, "num_pgs_serving"));
    if serving < pgs && waited >= PEERING_TIME {
        // They may lack OSDs that are gone for good: no reason to stop the others.
        tell!("{} of {pgs} placement groups do not serve yet; 'ceph -s' says why", pgs - serving);
        return Ok(true);
    }
    Ok(serving >= pgs)
}

/// `osd new`, then the OSD's keyring and store.
pub(crate) async fn register_osd(
    session: &AdminSession,
    layout: &Layout,
    n: u32,
    osd_size: u64,
    store: &str,
) -> Result<(), Failure> {
    let (key, uuid) = new_key()?;
    let request = serde_json::json!({"prefix": "osd new", "uuid": uuid.to_string(), "id": n});
    let secret = serde_json::json!({"cephx_secret": key.to_base64()});
    session.command(&request.to_string(), &secret.to_string()).await?;
    let data = layout.data("osd", &n.to_string());
    fs::create_dir_all(&data)?;
    let mut ring = Keyring::new();
    ring.keys.insert(entity(&format!("osd.{n}")), EntityAuth::new(key, []));
    write_private(&data.join("keyring"), &ring.to_text())?;
    daemon::mkfs_osd(session.env(), layout, n, uuid, osd_size, store).await
}

fn describe_late(layout: &Layout) -> String {
    let running: Vec<String> =
        process::all_running(layout).into_iter().map(|(name, _)| name).collect();
    format!(
        "not all daemons served within {} s (running: {}); see {}/log",
        START_TIME.as_secs(),
        running.join(", "),
        layout.dir().display()
    )
}
