//! The store of a monitor: opened, and made: of a new cluster, of a monitor that joins, of a cluster whose
//! monitors are all lost.

use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use auth::Keyring;
use config::Config;
use env::Env;
use env::real::Runtime;
use maps::monmap::MonFeatures;
use maps::{MonInfo, MonMap};
use store::Kv;
use store::kv::RedbKv;
use types::{AddrVec, EntityAddr, UTime};

use crate::daemon::{cluster_fsid, config_of, read_keyring};
use crate::failure::Failure;
use crate::layout::{Layout, make_private_folder, parse_conf};
use crate::output::tell;
use crate::session::AdminSession;

/// All monitor features of 16.2 (mon_feature_t: kraken to pacific).
const MON_FEATURES: u64 = 255;
/// Pacific.
const RELEASE: u8 = 16;
/// The election strategy of a cluster that says nothing else.
const ELECTION_CLASSIC: u8 = 1;

/// File of a monitor's store.
pub(crate) const MON_STORE: &str = "store.redb";

/// The store of a monitor that has been made.
pub(crate) fn open_mon_kv(env: &Env, config: &Config) -> Result<Rc<dyn Kv>, Failure> {
    let path = PathBuf::from(config.str("mon_data")).join(MON_STORE);
    if !path.exists() {
        return Err(Failure::new(format!(
            "there is no monitor's store at {} (wrong --id, or --mkfs was not run; where all are lost 'loligo store help \
             update-mon-db' says what to do)",
            path.display()
        )));
    }
    open_kv(env, &path)
}

fn open_kv(env: &Env, path: &Path) -> Result<Rc<dyn Kv>, Failure> {
    let kv = RedbKv::open(env, path)
        .map_err(|e| Failure::new(format!("cannot open {}: {e}", path.display())))?;
    Ok(Rc::new(kv))
}

/// A database that holds keys: its owner's alone. One that is there is opened.
pub(crate) fn open_private_kv(env: &Env, path: &Path) -> Result<Rc<dyn Kv>, Failure> {
    let made =
        fs::OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
    made.map_err(|e| Failure::new(format!("cannot create {}: {e}", path.display())))?;
    open_kv(env, path)
}

/// Where a monitor's store is to be. All keys of the cluster will be in it.
fn make_mon_kv(env: &Env, config: &Config) -> Result<Rc<dyn Kv>, Failure> {
    let dir = PathBuf::from(config.str("mon_data"));
    make_private_folder(&dir)?;
    open_private_kv(env, &dir.join(MON_STORE))
}

/// Makes the stores of a new cluster's monitors before there is a configuration file: the first
/// one's is filled, the others get theirs from it.
pub(crate) fn mkfs_mons(layout: &Layout, conf_text: &str, ids: &[&str]) -> Result<(), Failure> {
    let path = layout.conf();
    let file = parse_conf(&path, conf_text)?;
    for (at, id) in ids.iter().enumerate() {
        let config = config_of("mon", id, &path, &file)?;
        let env = Runtime::new()?.env();
        let monmap = new_monmap(&env, &config, ids)?;
        match at {
            0 => found_mon(&env, &config, &monmap)?,
            _ => join_mon(&env, &config, &monmap)?,
        }
    }
    Ok(())
}

fn mon_keyring(config: &Config) -> Result<Keyring, Failure> {
    read_keyring(config)?
        .ok_or_else(|| Failure::new(format!("no keyring at {}", config.str("keyring"))))
}

fn found_mon(env: &Env, config: &Config, monmap: &MonMap) -> Result<(), Failure> {
    let (keyring, kv) = (mon_keyring(config)?, make_mon_kv(env, config)?);
    let now = UTime::from_duration(env.wall_clock());
    mon::mkfs(&*kv, config, monmap, &keyring, now, &|buf: &mut [u8]| env.fill_random(buf))
        .map_err(|e| Failure::new(e.to_string()))
}

fn join_mon(env: &Env, config: &Config, monmap: &MonMap) -> Result<(), Failure> {
    let (keyring, kv) = (mon_keyring(config)?, make_mon_kv(env, config)?);
    mon::mkfs_joining(&*kv, monmap, &keyring, &|buf: &mut [u8]| env.fill_random(buf))
        .map_err(|e| Failure::new(e.to_string()))
}

/// `loligo mon --mkfs`. Whether this monitor founds a cluster or joins one is a matter of
/// `mon_host`: where it names this one alone there is nobody to join. One that joins need not be in the
/// monitor map before.
pub(crate) async fn mkfs_mon_with(env: &Env, config: &Config) -> Result<(), Failure> {
    let mon_host = config.str("mon_host");
    let hosts = monclient::parse_mon_host(&mon_host).unwrap_or_default();
    if hosts.len() < 2 && config.str("mon_initial_members").trim() == config.id() {
        return found_mon(env, config, &new_monmap(env, config, &[config.id()])?);
    }
    let session = AdminSession::of_monitor(env, config, &mon_keyring(config)?).await?;
    let mut monmap = session.monmap(None).await?;
    if !monmap.mon_info.contains_key(config.id()) {
        add_to_monmap(&session, config).await?;
        monmap = session.monmap(Some(config.id())).await?;
    }
    join_mon(env, config, &monmap)
}

/// Has the monitors take this one into their map, at its `public_addr`. It counts once it has caught up.
async fn add_to_monmap(session: &AdminSession, config: &Config) -> Result<(), Failure> {
    let id = config.id();
    let addr: Option<EntityAddr> = config.str("public_addr").parse().ok();
    let Some(sock) = addr.and_then(|addr| addr.sock) else {
        return Err(Failure::new(format!(
            "mon.{id} is not in the monitor map: give its address (--set public_addr=IP:PORT, or public_addr in [mon.{id}]), \
             or run 'ceph mon add {id} ADDRESS' first"
        )));
    };
    // Without a port those that monitors have.
    let addr = match sock.port() {
        0 => sock.ip().to_string(),
        _ => format!("v2:{sock}"),
    };
    let command = serde_json::json!({ "prefix": "mon add", "name": id, "addr": addr });
    session.command(&command.to_string(), "").await.map(drop)
}

/// `loligo mon --mkfs --from-osds`: the first monitor of a cluster that has lost all of them.
pub(crate) fn mkfs_from_osds(env: &Env, config: &Config, file: &Path) -> Result<(), Failure> {
    let of_file = |e: &dyn std::fmt::Display| Failure::new(format!("{}: {e}", file.display()));
    if !file.exists() {
        return Err(of_file(&"there is no such file (loligo store --osd N update-mon-db FILE)"));
    }
    let monmap = monmap_of(env, config, vec![(config.id(), own_addrs(config)?)])?;
    let keyring = mon_keyring(config)?;
    let collected = mon::Collected::new(open_kv(env, file)?);
    let kv = make_mon_kv(env, config)?;
    let now = UTime::from_duration(env.wall_clock());
    let fill = |buf: &mut [u8]| env.fill_random(buf);
    let made = mon::mkfs_from_osds(&*kv, &collected, &monmap, &keyring, now, &fill);
    let rebuilt = made.map_err(|e| match e {
        mon::MkfsError::Collected(e) => of_file(&e),
        e => Failure::new(e.to_string()),
    })?;
    let mon::Rebuilt { first, last, asked, not_asked } = rebuilt;
    let name = config.name();
    tell!("{name}: OSD maps {first} to {last}, of {} OSDs; started, it leads alone", asked.len());
    for osd in not_asked {
        tell!(
            "osd.{osd} was not asked: if it knows of a later map than {last}, do not start it, make it anew"
        );
    }
    Ok(())
}

/// Where a monitor is: at its `public_addr` if that has a port, else where `mon_host` has it, in the order of
/// `mon_initial_members`.
fn own_addrs(config: &Config) -> Result<AddrVec, Failure> {
    let public: Option<EntityAddr> = config.str("public_addr").parse().ok();
    if let Some(addr) = public.filter(|addr| addr.sock.is_some_and(|sock| sock.port() != 0)) {
        return Ok(AddrVec::of(addr));
    }
    let mut hosts = monclient::parse_mon_host(&config.str("mon_host")).unwrap_or_default();
    let members = config.str("mon_initial_members");
    let mut members = members.split([',', ' ', ';']).filter(|name| !name.is_empty());
    let at = match hosts.len() {
        1 => Some(0),
        n => members.position(|name| name == config.id()).filter(|at| *at < n),
    };
    at.map(|at| hosts.swap_remove(at)).ok_or_else(|| {
        let (name, host) = (config.name(), config.str("mon_host"));
        Failure::new(format!(
            "which address of mon_host ({host}) is that of {name}? Say --set public_addr=IP:PORT"
        ))
    })
}

/// The map of a new cluster: these monitors, at the addresses of `mon_host`.
fn new_monmap(env: &Env, config: &Config, ids: &[&str]) -> Result<MonMap, Failure> {
    let mon_host = config.str("mon_host");
    let hosts = monclient::parse_mon_host(&mon_host).unwrap_or_default();
    if hosts.len() < ids.len() || ids.is_empty() {
        return Err(Failure::new(format!("mon_host {mon_host:?} names too few monitors")));
    }
    monmap_of(env, config, ids.iter().copied().zip(hosts).collect())
}

/// A cluster's first map.
fn monmap_of(env: &Env, config: &Config, mons: Vec<(&str, AddrVec)>) -> Result<MonMap, Failure> {
    let now = UTime::from_duration(env.wall_clock());
    let mut monmap = MonMap {
        fsid: cluster_fsid(config)?,
        epoch: 1,
        last_changed: now,
        created: now,
        persistent_features: MonFeatures { bits: MON_FEATURES },
        min_mon_release: RELEASE,
        strategy: ELECTION_CLASSIC,
        ..MonMap::default()
    };
    for (id, public_addrs) in mons {
        monmap.add(MonInfo { name: id.to_owned(), public_addrs, ..MonInfo::default() });
    }
    Ok(monmap)
}
