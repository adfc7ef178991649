//! `loligo up`: makes a cluster in a folder, or brings back the one that is there: daemons that
//! run already are left alone.
//!
//! A new cluster: keys and `ceph.conf`, the monitor's store, then the daemons; each OSD is
//! registered with `osd new` as a deployment tool would with a Ceph monitor. `up` returns when
//! every OSD is up, the manager serves and every placement group is active: what is written next
//! is served at once.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use auth::{CryptoKey, EntityAuth, Keyring};
use config::{ConfFile, Config, parse_bytes};
use env::Env;
use futures_util::future::{Either, select};
use types::{AuthEntityName, UTime, Uuid};

use crate::cli::UpArgs;
use crate::failure::Failure;
use crate::guests::{self, Guest};
use crate::layout::{
    DEFAULT_PORT, Layout, Lock, NewConf, parse_conf, port_is_free, same_place, sync_parent,
    write_private,
};
use crate::output::tell;
use crate::stores::{self, STORES};
use crate::{daemon, mon_store, process, start};

/// Smallest device `up` accepts for an OSD.
const OSD_SIZE_MIN: u64 = 64 << 20;
/// Most OSDs `up` starts on one machine.
const OSDS_MAX: u32 = 256;
/// OSDs, and their stores and devices, of a new cluster where nothing is told.
const NEW_OSDS: u32 = 3;
const NEW_STORE: &str = "inkstore";
const NEW_OSD_SIZE: u64 = 10 << 30;
/// Most managers.
const MGRS_MAX: u32 = 3;
/// Names of monitors and managers, in order.
const MON_NAMES: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];
const MGR_NAMES: [&str; MGRS_MAX as usize] = ["x", "y", "z"];

/// What is to be there.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    mons: u32,
    mgrs: u32,
    /// So many at least; of an existing cluster 0 where nothing is told.
    pub(crate) osds: u32,
    pub(crate) osds_per_process: usize,
    /// Arguments for OSDs beside their ids.
    pub(crate) osd_args: Vec<String>,
    /// The store of each new OSD, and its device's bytes.
    pub(crate) store: String,
    pub(crate) osd_size: u64,
    size: u32,
    sets: Vec<(String, String)>,
    /// Ceph's own daemons that are to be there beside those that are.
    mdss: usize,
    rgw_port: Option<u16>,
}

/// Checks the arguments alone, and completes them by what the cluster has, if there is one.
fn plan(args: &UpArgs, existing: Option<&ConfFile>) -> Result<Plan, Failure> {
    let mons = args.mons.unwrap_or(1);
    if !matches!(mons, 1 | 3 | 5 | 7) {
        return Err(Failure::new(format!("--mons {mons}: give 1, 3, 5 or 7")));
    }
    let mgrs = args.mgrs.unwrap_or(1);
    if mgrs == 0 || mgrs > MGRS_MAX {
        return Err(Failure::new(format!("--mgrs {mgrs}: give 1 to {MGRS_MAX}")));
    }
    let osds = args.osds.unwrap_or(if existing.is_some() { 0 } else { NEW_OSDS });
    if args.osds == Some(0) || osds > OSDS_MAX {
        return Err(Failure::new(format!("--osds {osds}: give 1 to {OSDS_MAX}")));
    }
    let told = |name| existing.and_then(|conf| conf.get("osd", name));
    let store = args.store.as_deref().or(told("osd_objectstore")).unwrap_or(NEW_STORE).to_owned();
    if !STORES.contains(&store.as_str()) {
        return Err(Failure::new(format!("--store {store}: there is {}", STORES.join(", "))));
    }
    let osd_size = match args.osd_size.as_deref().or(told("bluestore_block_size")) {
        None => NEW_OSD_SIZE,
        Some(text) => parse_bytes(text).filter(|n| *n >= OSD_SIZE_MIN).ok_or_else(|| {
            Failure::new(format!("--osd-size {text}: give a size from 64M up, like 10G"))
        })?,
    };
    let size = args.size.unwrap_or(osds.min(3));
    if args.size.is_some() && (size == 0 || size > 10) {
        return Err(Failure::new(format!("--size {size}: give 1 to 10 replicas")));
    }
    let sets = args.set.iter().map(|s| parse_cluster_set(s)).collect::<Result<_, _>>()?;
    let osds_per_process = args.osds_per_process as usize;
    let osd_args = args.threads_per_process.map(|n| format!("--threads={n}")).into_iter().collect();
    if args.mds.is_some() {
        guests::MDS.find().map_err(|e| Failure::new(format!("--mds: {e}")))?;
    }
    if args.rgw_port.is_some() {
        guests::RGW.find().map_err(|e| Failure::new(format!("--rgw-port: {e}")))?;
    }
    let (mdss, rgw_port) = (args.mds.unwrap_or(0) as usize, args.rgw_port);
    Ok(Plan {
        mons,
        mgrs,
        osds,
        osds_per_process,
        osd_args,
        store,
        osd_size,
        size,
        sets,
        mdss,
        rgw_port,
    })
}

/// What `up` itself writes of a cluster, and where it finds its daemons by.
const OWN_SETTINGS: [&str; 12] = [
    "admin_socket",
    "bluestore_block_size",
    "fsid",
    "keyring",
    "mgr_data",
    "mon_data",
    "mon_host",
    "mon_initial_members",
    "osd_data",
    "osd_objectstore",
    "public_addr",
    "run_dir",
];

/// A setting for all daemons of a cluster that `up` looks after.
fn parse_cluster_set(text: &str) -> Result<(String, String), Failure> {
    let (key, value) = parse_set(text)?;
    let instead = match key.as_str() {
        "osd_objectstore" => "; --store says it",
        "bluestore_block_size" => "; --osd-size says it",
        "mon_host" | "mon_initial_members" => "; --port and --mons say it",
        _ => "",
    };
    match OWN_SETTINGS.contains(&key.as_str()) {
        true => Err(Failure::new(format!("--set {text}: 'up' itself sets {key}{instead}"))),
        false => Ok((key, value)),
    }
}

/// Splits `KEY=VALUE` and checks both against the option table.
pub(crate) fn parse_set(text: &str) -> Result<(String, String), Failure> {
    let (key, value) = text
        .split_once('=')
        .ok_or_else(|| Failure::new(format!("--set {text}: write KEY=VALUE")))?;
    let key = key.trim().replace([' ', '-'], "_");
    let option = config::option(&key)
        .ok_or_else(|| Failure::new(format!("--set {text}: there is no option {key}")))?;
    if value.contains(char::is_control) {
        return Err(Failure::new(format!("--set {text:?}: a value is one line of text")));
    }
    config::normalize(option, value.trim()).map_err(|e| match e.to_string().as_str() {
        "" => Failure::new(format!("--set {text}: this is no value of {key}")),
        why => Failure::new(format!("--set {text}: {why}")),
    })?;
    Ok((key, value.trim().to_owned()))
}

/// Runs the command.
pub(crate) fn up(args: &UpArgs) -> Result<(), Failure> {
    plan(args, None)?;
    let was_there = args.dir.dir.exists();
    let layout = Layout::create(&args.dir.dir)?;
    let result = up_in(args, &layout);
    if result.is_err() && !was_there {
        // It goes if nothing has been made in it.
        let _ = fs::remove_dir(layout.dir());
    }
    result
}

fn up_in(args: &UpArgs, layout: &Layout) -> Result<(), Failure> {
    let started = Instant::now();
    let lock = layout.lock()?;
    layout.check_path()?;
    let existing = layout.read_conf()?;
    check_owner(layout, existing.as_ref())?;
    let plan = plan(args, existing.as_ref())?;
    let running = process::all_running(layout);
    if args.single_process && !running.is_empty() {
        return Err(Failure::new(format!(
            "a cluster is running in {}; 'loligo down --dir {0}' stops it",
            layout.dir().display()
        )));
    }
    let mon_runs = running.iter().any(|(name, _)| name.starts_with("mon."));
    let ports = match &existing {
        Some(conf) => conf_ports(layout, conf, args.port)?,
        None => {
            let first = args.port.unwrap_or(DEFAULT_PORT);
            let ports: Vec<u16> = (first..=u16::MAX).take(plan.mons as usize).collect();
            if ports.len() < plan.mons as usize {
                return Err(Failure::new(format!(
                    "{} monitors from port {first} on do not fit below 65536; give a lower --port",
                    plan.mons
                )));
            }
            ports
        }
    };
    if let Some(conf) = &existing {
        check_counts(layout, args)?;
        check_ignored(layout, args, conf, &plan)?;
    }
    if let Some(port) = ports.iter().find(|port| !mon_runs && !port_is_free(**port)) {
        return Err(Failure::new(format!(
            "port {port} on 127.0.0.1 is in use; give another with --port, or stop what listens there"
        )));
    }
    let rgw_port = check_rgw_port(layout, existing.as_ref(), args.rgw_port)?;
    if let Some(port) = rgw_port
        && !running.iter().any(|(name, _)| name.starts_with("rgw."))
        && (ports.contains(&port) || !port_is_free(port))
    {
        return Err(Failure::new(format!(
            "port {port} on 127.0.0.1, which is the S3 gateway's, is in use: stop what listens there{}",
            if args.rgw_port.is_some() { ", or give another with --rgw-port" } else { "" }
        )));
    }
    layout.make_folders()?;
    match existing {
        Some(_) => add_settings(layout, &plan)?,
        None => make_cluster(layout, &plan, ports[0])?,
    }
    guests::invite(layout, plan.mdss, plan.rgw_port)?;
    if args.single_process {
        let guests: Vec<String> =
            layout.daemons().into_iter().filter(|name| guests::is_guest(name)).collect();
        if !guests.is_empty() {
            tell!("note: {} are programs of their own, and not started here", guests.join(", "));
        }
        return daemon::run_all_in_threads(layout.clone(), &plan);
    }
    if !plan.sets.is_empty() && !running.is_empty() {
        tell!(
            "--set is for daemons that start from now on; 'ceph config set' tells those that run"
        );
    }
    start_and_wait(layout, &plan, args.foreground, lock, started)
}

/// A folder that is another cluster's, or holds another's keys, is left alone: what its `ceph.conf` names would
/// be started, and its keys overwritten.
fn check_owner(layout: &Layout, existing: Option<&ConfFile>) -> Result<(), Failure> {
    let (dir, conf) = (layout.dir().display(), layout.conf());
    let Some(file) = existing else {
        let foreign = (!layout.is_unfinished()).then(|| layout.foreign_file()).flatten();
        return match foreign {
            None => Ok(()),
            Some(path) => Err(Failure::new(format!(
                "{} is there, but no ceph.conf that 'loligo up' wrote: give another --dir for a new cluster",
                path.display()
            ))),
        };
    };
    if !layout.wrote_conf() {
        return Err(Failure::new(format!(
            "{} was not written by 'loligo up' (a line of it would say so): it is another cluster's, or damaged; \
             give another --dir",
            conf.display()
        )));
    }
    for kind in ["mon", "mgr", "osd"] {
        let option = format!("{kind}_data");
        let place = daemon::config_of(kind, "0", &conf, file)?.str(&option);
        if !Path::new(&place)
            .parent()
            .is_some_and(|place| same_place(place, &layout.dir().join(kind)))
        {
            return Err(Failure::new(format!(
                "{} has {option} = {place}, which is not in {dir}: was the folder moved or copied?",
                conf.display()
            )));
        }
    }
    Ok(())
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

/// The port of the S3 gateway that is there or is to be; it keeps the one that it has.
fn check_rgw_port(
    layout: &Layout,
    conf: Option<&ConfFile>,
    asked: Option<u16>,
) -> Result<Option<u16>, Failure> {
    let has = conf.and_then(guests::rgw_port);
    match (has, asked) {
        (Some(port), Some(asked)) if port != asked => Err(Failure::new(format!(
            "--rgw-port {asked}: the cluster in {} has its S3 gateway on port {port}; leave --rgw-port out, or change \
             rgw_frontends in its ceph.conf while it is down",
            layout.dir().display()
        ))),
        _ => Ok(has.or(asked)),
    }
}

/// An existing cluster keeps its monitors and managers.
fn check_counts(layout: &Layout, args: &UpArgs) -> Result<(), Failure> {
    let more = " ('ceph mon add' and 'loligo mon --mkfs' add a monitor)";
    let asked = [
        ("mon", "monitor(s)", "mons", args.mons, more),
        ("mgr", "manager(s)", "mgrs", args.mgrs, ""),
    ];
    for (kind, what, option, count, more) in asked {
        let there = layout.ids(kind).len();
        if count.is_some_and(|count| count as usize != there) {
            return Err(Failure::new(format!(
                "the cluster in {} has {there} {what}: leave --{option} out{more}",
                layout.dir().display()
            )));
        }
    }
    Ok(())
}

/// Arguments that would change nothing of an existing cluster are refused, unless it is as they say.
fn check_ignored(
    layout: &Layout,
    args: &UpArgs,
    conf: &ConfFile,
    plan: &Plan,
) -> Result<(), Failure> {
    let refuse = |what: String, advice: &str| {
        let dir = layout.dir().display();
        Err(Failure::new(format!("{what}: the cluster in {dir} is there already; {advice}")))
    };
    let of_conf = |section, name| conf.get(section, name).and_then(parse_bytes);
    let size = of_conf("global", "osd_pool_default_size");
    if let Some(given) = args.size.filter(|given| size != Some((*given).into())) {
        let advice = "'ceph osd pool set POOL size N' changes a pool, \
                      --set osd_pool_default_size=N what new pools get";
        return refuse(format!("--size {given}"), advice);
    }
    let known = layout.ids("osd");
    if let Some(given) = args.osds.filter(|given| (*given as usize) < known.len()) {
        let there = known.len();
        tell!(
            "note: {there} OSDs are there; --osds {given} adds none and removes none ('ceph osd purge' does)"
        );
    }
    let adds = (0..plan.osds).any(|n| !known.contains(&n.to_string()));
    if adds || !layout.unmade_osds().is_empty() {
        return Ok(());
    }
    if let Some(given) = &args.osd_size
        && of_conf("osd", "bluestore_block_size") != parse_bytes(given)
    {
        return refuse(format!("--osd-size {given}"), "the option is for OSDs that --osds adds");
    }
    if let Some(given) = &args.store
        && conf.get("osd", "osd_objectstore") != Some(given)
        && known.iter().any(|id| stores::written_kind(&layout.data("osd", id)) != *given)
    {
        let advice =
            "the option is for OSDs that --osds adds, and 'loligo store migrate' moves one";
        return refuse(format!("--store {given}"), advice);
    }
    Ok(())
}

fn add_settings(layout: &Layout, plan: &Plan) -> Result<(), Failure> {
    let text = fs::read_to_string(layout.conf())?;
    let new = with_settings(layout, plan, &text)?;
    if new != text {
        write_private(&layout.conf(), &new)?;
    }
    Ok(())
}

/// A `ceph.conf` with what is told, and with what so many OSDs need.
fn with_settings(layout: &Layout, plan: &Plan, text: &str) -> Result<String, Failure> {
    let path = layout.conf();
    let config = daemon::config_of("osd", "0", &path, &parse_conf(&path, text)?)?;
    let failed = |e: config::ConfError| Failure::new(format!("{}: {e}", path.display()));
    plan.sets
        .iter()
        .chain(&more_ports(plan, &config))
        .try_fold(text.to_owned(), |text, (k, v)| config::with_setting(&text, k, v).map_err(failed))
}

/// A wider range of ports, where that which is set has too few for the OSDs and half as many again: other clusters of
/// this machine have some.
fn more_ports(plan: &Plan, config: &Config) -> Option<(String, String)> {
    const OF_AN_OSD: u64 = 4;
    let (min, max) = (config.uint("ms_bind_port_min"), config.uint("ms_bind_port_max"));
    let last = min + u64::from(plan.osds) * OF_AN_OSD * 3 / 2;
    let told = plan.sets.iter().any(|(key, _)| key.starts_with("ms_bind_port_"));
    let wider = last > max && last <= u64::from(u16::MAX) && !told;
    wider.then(|| ("ms_bind_port_max".to_owned(), last.to_string()))
}

pub(crate) fn new_key() -> Result<(CryptoKey, Uuid), Failure> {
    let env = env::real::Runtime::new()?.env();
    let mut uuid = [0; 16];
    env.fill_random(&mut uuid);
    let now = UTime::from_duration(env.wall_clock());
    Ok((CryptoKey::generate(&|buf| env.fill_random(buf), now), Uuid::from_random(uuid)))
}

pub(crate) fn entity(name: &str) -> AuthEntityName {
    name.parse().expect("names written in this file parse")
}

/// Keys and monitors' stores of a new cluster, then its configuration: a folder that has it has all of them. Of one that was
/// cut off before nothing has run yet, and nothing stays.
fn make_cluster(layout: &Layout, plan: &Plan, port: u16) -> Result<(), Failure> {
    layout.clear_unfinished()?;
    let (mon_key, fsid) = new_key()?;
    let (admin_key, _) = new_key()?;
    let all = [("mon", "allow *"), ("osd", "allow *"), ("mds", "allow *"), ("mgr", "allow *")];
    let mon = EntityAuth::new(mon_key, [("mon", "allow *")]);
    let admin = EntityAuth::new(admin_key, all);
    let fsid = fsid.to_string();
    let Plan { mons, size, store, osd_size, .. } = plan;
    let (mons, size, osd_size) = (*mons, *size, *osd_size);
    let conf = NewConf { fsid: &fsid, port, mons, size, store, osd_size };
    let conf_text = with_settings(layout, plan, &conf.text(layout))?;
    write_private(&layout.unfinished_conf(), &conf_text)?;

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
    mon_store::mkfs_mons(layout, &conf_text, names)?;
    start::new_osds(layout, plan.osds)?;
    fs::rename(layout.unfinished_conf(), layout.conf())?;
    sync_parent(&layout.conf())?;
    Ok(())
}

fn start_and_wait(
    layout: &Layout,
    plan: &Plan,
    attached: bool,
    lock: Lock,
    started: Instant,
) -> Result<(), Failure> {
    let failed = start::start(layout, plan, attached)?;
    // What another call starts from now on is that one's.
    let ours = process::all_running(layout);
    drop(lock);
    let seconds = started.elapsed().as_secs_f32();
    let count = |kind, one: &str| {
        let mut ids = layout.ids(kind);
        let there = ids.len();
        ids.retain(|id| !failed.contains_key(&format!("{kind}.{id}")));
        let text = match ids.len() {
            1 => format!("1 {one}"),
            n => format!("{n} {one}s"),
        };
        // Of Ceph's own only what somebody wanted.
        (there > 0 || Guest::of(kind).is_none()).then_some(text)
    };
    let kinds = [
        ("mon", "monitor"),
        ("mgr", "manager"),
        ("osd", "OSD"),
        ("mds", "MDS"),
        ("rgw", "S3 gateway"),
    ];
    let counts: Vec<String> = kinds.iter().filter_map(|(kind, one)| count(kind, one)).collect();
    tell!("{} serve after {seconds:.2} s", counts.join(", "));
    tell!("export CEPH_CONF={}", for_shell(&layout.conf().display().to_string()));
    let gateways =
        layout.ids("rgw").into_iter().filter(|id| !failed.contains_key(&format!("rgw.{id}")));
    if gateways.count() > 0
        && let Some(port) = layout.read_conf()?.as_ref().and_then(guests::rgw_port)
    {
        tell!(
            "S3: http://localhost:{port}; 'radosgw-admin user create --uid=NAME --display-name=NAME' makes an account"
        );
    }
    if attached {
        if !failed.is_empty() {
            eprintln!("loligo: {}", describe(&failed));
        }
        tell!("Ctrl-C stops the cluster");
        let (of_watch, told, watched) = (layout.clone(), failed.clone(), ours.clone());
        let all_ended = env::real::Runtime::new()?.block_on(|env| async move {
            let watch = watch(&env, of_watch, told, &watched);
            futures_util::pin_mut!(watch);
            matches!(select(env.termination(), watch).await, Either::Right(_))
        });
        if all_ended {
            return Err(Failure::new("all daemons have ended"));
        }
        let _lock = layout.lock_in_turn()?;
        process::stop_these(layout, &ours).well()?;
        let left = process::all_running(layout);
        if !left.is_empty() {
            let left: Vec<String> = left.into_iter().map(|(name, _)| name).collect();
            tell!("{} run on: another 'loligo up' started them", left.join(", "));
        }
    }
    match failed.is_empty() {
        true => Ok(()),
        false => Err(Failure::new(describe(&failed))),
    }
}

/// A path as a shell takes it for one word. It has no quotes in it ([`Layout::check_path`]).
fn for_shell(path: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/._-+:@%".contains(c);
    match path.chars().all(plain) {
        true => path.to_owned(),
        false => format!("'{path}'"),
    }
}

/// Tells of daemons that end, until none of `ours` is left. `told` are those that are known not to serve.
async fn watch(
    env: &Env,
    layout: Layout,
    mut told: BTreeMap<String, String>,
    ours: &[(String, i32)],
) {
    const PAUSE: Duration = Duration::from_millis(200);
    loop {
        let running = process::all_running(&layout);
        for name in layout.daemons() {
            if running.iter().any(|(running, _)| *running == name) {
                told.remove(&name);
            } else if let Entry::Vacant(new) = told.entry(name) {
                let words = process::log_tail(&layout, new.key());
                eprintln!("loligo: {} has ended: {words}", new.key());
                new.insert(words);
            }
        }
        if !running.iter().any(|daemon| ours.contains(daemon)) {
            return;
        }
        env.sleep(PAUSE).await;
    }
}

fn describe(failed: &BTreeMap<String, String>) -> String {
    let lines: Vec<String> =
        failed.iter().map(|(name, why)| format!("{name} does not serve: {why}")).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests;
