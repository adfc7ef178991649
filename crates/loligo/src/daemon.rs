//! One daemon in this process: configuration, keyring, store, start, admin socket, clean stop.

use std::ffi::CString;
use std::fs;
use std::mem::MaybeUninit;
use std::net::ToSocketAddrs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use auth::Keyring;
use bytes::Bytes;
use command::{CommandMap, CommandReply};
use config::{ConfFile, Config, Source};
use denc::Denc;
use env::Env;
use env::real::Runtime;
use futures_util::future::{Either, select};
use store::{CollId, ObjectStore};
use types::hobject::{GhObject, HObject};
use types::osd::OsdSuperblock;
use types::{Errno, UTime, Uuid};

use crate::admin_socket::{self, Handler};
use crate::cli::{OsdArgs, StartArgs};
use crate::failure::Failure;
use crate::host;
use crate::layout::{Layout, parse_conf, sync_parent, write_durably};
use crate::mon_store::{MON_STORE, mkfs_mon_with, open_mon_kv};
use crate::output::tell;
use crate::session::AdminSession;
use crate::up::Plan;
use crate::{
    addresses, allocator, crush_location, environment, household, logging, memory, start, stores,
    up,
};

/// This machine's short name.
fn hostname() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().split('.').next().unwrap_or_default().to_owned()
}

/// What a configuration file says for `kind.id`.
pub(crate) fn config_of(
    kind: &str,
    id: &str,
    path: &Path,
    file: &ConfFile,
) -> Result<Config, Failure> {
    let config = Config::new(kind, id).with_identity("ceph", &hostname(), std::process::id());
    match config.load_file(file).first() {
        None => Ok(config),
        Some((name, error)) => Err(Failure::new(format!("{}: {name}: {error}", path.display()))),
    }
}

/// `mon_host` with this machine's addresses for host names.
pub(crate) fn resolve_mon_host(text: &str) -> Result<String, Failure> {
    let lookup = |name: &str| {
        let found = (name, 0).to_socket_addrs().map_err(|e| e.to_string())?;
        Ok(found.map(|addr| addr.ip()).collect())
    };
    monclient::resolve_mon_host(text, lookup).map_err(|e| Failure::new(e.to_string()))
}

/// Reads the configuration file for `kind.id`, the environment, and the settings of the command line.
pub(crate) fn load_config(
    kind: &str,
    id: &str,
    path: &Path,
    sets: &[String],
) -> Result<Config, Failure> {
    load(kind, id, path, sets, environment::apply)
}

/// The same without the environment: of a cluster that `up` or the laboratory has made.
pub(crate) fn load_made(
    kind: &str,
    id: &str,
    path: &Path,
    sets: &[String],
) -> Result<Config, Failure> {
    load(kind, id, path, sets, |_| Ok(()))
}

fn load(
    kind: &str,
    id: &str,
    path: &Path,
    sets: &[String],
    environment: impl Fn(&Config) -> Result<(), Failure>,
) -> Result<Config, Failure> {
    let text = fs::read_to_string(path).map_err(|e| {
        Failure::new(format!("cannot read the configuration {}: {e}", path.display()))
    })?;
    let config = config_of(kind, id, path, &parse_conf(path, &text)?)?;
    environment(&config)?;
    for set in sets {
        let (key, value) = up::parse_set(set)?;
        config
            .set(&key, &value, Source::Cmdline)
            .map_err(|e| Failure::new(format!("--set {set}: {e}")))?;
    }
    let written = config.str("mon_host");
    let resolved = resolve_mon_host(&written)?;
    if resolved != written {
        let taken = config.set("mon_host", &resolved, Source::Final);
        taken.map_err(|e| Failure::new(format!("mon_host: {e}")))?;
    }
    Ok(config)
}

/// The first keyring file of the `keyring` option that exists.
pub(crate) fn read_keyring(config: &Config) -> Result<Option<Keyring>, Failure> {
    for path in config.str("keyring").split(',').map(str::trim).filter(|p| !p.is_empty()) {
        match fs::read(path) {
            Ok(bytes) => {
                let ring = Keyring::from_file(&bytes);
                return ring.map(Some).map_err(|e| Failure::new(format!("keyring {path}: {e}")));
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(Failure::new(format!("cannot read the keyring {path}: {e}"))),
        }
    }
    Ok(None)
}

/// `loligo osd`.
pub(crate) fn run_osds(args: &OsdArgs) -> Result<(), Failure> {
    let OsdArgs { id, threads, osd_uuid, start } = args;
    let uuid = osd_uuid.iter().map(|uuid| format!("osd_uuid={uuid}"));
    let sets: Vec<String> = start.set.iter().cloned().chain(uuid).collect();
    if id.len() == 1 || start.mkfs {
        return run_one("osd", id, start, &sets);
    }
    logging::start();
    for (n, one) in id.iter().enumerate() {
        if id[..n].contains(one) {
            return Err(Failure::new(format!("--id {one} is there twice")));
        }
    }
    household::run(id, *threads, &start.conf, &sets)
}

/// `loligo mon|mgr`, and an OSD that has its process for itself.
pub(crate) fn run_one(
    kind: &'static str,
    ids: &[String],
    args: &StartArgs,
    sets: &[String],
) -> Result<(), Failure> {
    logging::start();
    let [id] = ids else {
        return Err(Failure::new(
            "several --id: only OSDs can share a process, and --mkfs makes one",
        ));
    };
    let (config, mkfs) = (Rc::new(load_config(kind, id, &args.conf, sets)?), args.mkfs);
    logging::follow(&config, logging::ALONE);
    Runtime::new()?.block_on(move |env| async move {
        match (kind, mkfs) {
            ("mon", true) => mkfs_mon_with(&env, &config).await,
            ("mgr", true) => Ok(()),
            (_, true) => {
                let fsid = given_osd_fsid(&config)?;
                mkfs_osd_with(&env, &config, fsid).await
            }
            _ => {
                keep_tidy(&env);
                serve(&env, config).await
            }
        }
    })
}

/// What a thread of daemons does for its memory.
pub(crate) fn keep_tidy(env: &Env) {
    allocator::keep_freed();
    env.go(memory::tidy(env.clone()));
}

/// What `osd_uuid` (`--osd-uuid`) says, which `ceph osd new` was told too; nothing if it is zero.
fn given_osd_fsid(config: &Config) -> Result<Option<Uuid>, Failure> {
    let text = config.str("osd_uuid");
    let given: Uuid =
        text.parse().map_err(|_| Failure::new(format!("--osd-uuid {text}: not a UUID")))?;
    Ok(Some(given).filter(|given| *given != Uuid::default()))
}

fn random_uuid(env: &Env) -> Uuid {
    let mut bytes = [0; 16];
    env.fill_random(&mut bytes);
    Uuid::from_random(bytes)
}

pub(crate) fn cluster_fsid(config: &Config) -> Result<Uuid, Failure> {
    let text = config.str("fsid");
    text.parse()
        .map_err(|_| Failure::new(format!("fsid {text:?} in the configuration is not a UUID")))
}

/// Runs a daemon until it is told to stop or has to.
pub(crate) async fn serve(env: &Env, config: Rc<Config>) -> Result<(), Failure> {
    // On standard error alone nobody would see it where the log is a file.
    run_daemon(env, config).await.inspect_err(|failure| tracing::error!("{failure}"))
}

async fn run_daemon(env: &Env, config: Rc<Config>) -> Result<(), Failure> {
    let name = config.name();
    let socket = config.str("admin_socket");
    let serve_socket = |handler: Handler| {
        let is_told = !socket.is_empty();
        is_told.then(|| admin_socket::serve(env, PathBuf::from(&socket), handler))
    };
    if config.kind() != "mon" {
        addresses::choose(&config)?;
    }
    config.set_facts(host::facts(&config));
    tracing::info!("{name} starts, loligo {}", env!("CARGO_PKG_VERSION"));
    match config.kind() {
        "mon" => {
            let daemon = start_mon(env, config.clone()).await?;
            let of_socket = daemon.clone();
            let _socket = serve_socket(Rc::new(move |json| {
                let reply = mon_command(&of_socket, json);
                Box::pin(async move { reply })
            }));
            let stop = async {
                env.termination().await;
                None
            };
            let failed = async { Some(daemon.failed().await) };
            futures_util::pin_mut!(stop, failed);
            let ended = select(stop, failed).await.factor_first().0;
            if let Some(reason) = ended {
                return Err(Failure::new(format!("{name} stops: {reason}")));
            }
            daemon.shutdown().await;
        }
        "mgr" => {
            let keyring = read_keyring(&config)?.unwrap_or_default();
            let starting = mgr::Mgr::start(env.clone(), config.clone(), keyring);
            let Some(started) = unless_told(env, starting).await else {
                return Ok(());
            };
            let daemon = started.map_err(|e| Failure::new(e.to_string()))?;
            let of_socket = daemon.clone();
            let _socket = serve_socket(Rc::new(move |json| of_socket.admin_command(json)));
            env.termination().await;
            daemon.shutdown().await;
        }
        _ => {
            let keyring = read_keyring(&config)?.unwrap_or_default();
            let _lock = stores::lock(&config, stores::Patience::Some)?;
            let store = stores::open(env, &config).await?;
            crush_location::by_hook(env, &config).await;
            let starting = osd::Osd::start(env.clone(), config.clone(), keyring, store.clone());
            let Some(started) = unless_told(env, starting).await else {
                return store.close().await.map_err(|e| not_closed(&config, &e));
            };
            drop(store);
            let daemon = started.map_err(|e| Failure::new(e.to_string()))?;
            let of_socket = daemon.clone();
            let _socket = serve_socket(Rc::new(move |json| of_socket.admin_command(json)));
            let stop = async {
                env.termination().await;
                None
            };
            let failed = async { Some(daemon.failed().await) };
            futures_util::pin_mut!(stop, failed);
            let ended = select(stop, failed).await.factor_first().0;
            if let Some(reason) = ended {
                return Err(Failure::new(format!("{name} stops: {reason}")));
            }
            daemon.shutdown().await.map_err(|e| not_closed(&config, &e))?;
        }
    }
    tracing::info!("{name} has stopped");
    Ok(())
}

/// What comes of a start, unless the process is told to stop before: monitors that are gone would be waited for without
/// end.
async fn unless_told<T>(env: &Env, starting: impl Future<Output = T>) -> Option<T> {
    futures_util::pin_mut!(starting);
    match select(env.termination(), starting).await {
        Either::Left(_) => None,
        Either::Right((started, _)) => Some(started),
    }
}

/// An OSD's store that could not be closed.
fn not_closed(config: &Config, e: &dyn std::fmt::Display) -> Failure {
    let name = config.name();
    Failure::new(match stores::is_in_memory(config) {
        true => {
            format!("{name} could not save its store, which was in memory, and has lost it: {e}")
        }
        false => format!("{name} did not close its store: {e}"),
    })
}

async fn start_mon(env: &Env, config: Rc<Config>) -> Result<mon::Mon, Failure> {
    let kv = open_mon_kv(env, &config)?;
    let name = config.id().to_owned();
    let identity = mon::Identity { name, metadata: config.facts() };
    let dir = PathBuf::from(config.str("mon_data"));
    let daemon = mon::Mon::start(env.clone(), config, kv, identity)
        .await
        .map_err(|e| Failure::new(e.to_string()))?;
    daemon.watch_disk(move || disk_of(&dir));
    daemon.write_log(logging::append);
    Ok(daemon)
}

/// What the store in a folder takes, and what its file system has left for whoever is not root.
fn disk_of(dir: &Path) -> Option<mon::Disk> {
    let path = CString::new(dir.as_os_str().as_bytes()).ok()?;
    let mut stat = MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: the path ends in a zero, the answer has room.
    if unsafe { libc::statvfs(path.as_ptr(), stat.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: the call has filled it.
    let stat = unsafe { stat.assume_init() };
    let stored_bytes = fs::metadata(dir.join(MON_STORE)).ok()?.blocks() * 512;
    let avail_percent = (stat.f_bavail * 100).checked_div(stat.f_blocks)?;
    Some(mon::Disk { avail_percent, stored_bytes })
}

/// Commands of a monitor's admin socket, with `get_command_descriptions` for `ceph daemon`.
fn mon_command(daemon: &mon::Mon, json: String) -> CommandReply {
    match CommandMap::parse(&[json]) {
        Ok(map) if map.prefix() == "get_command_descriptions" => {
            CommandReply::data(daemon.admin_signatures().descriptions(map.format(), false))
        }
        Ok(map) => daemon.admin_command(&map, Bytes::new()),
        Err(e) => CommandReply::error(Errno::EINVAL.0, e.to_string()),
    }
}

/// The identity told to `osd new`, kept beside the store.
fn read_osd_fsid(config: &Config) -> Result<Uuid, Failure> {
    let path = Path::new(&config.str("osd_data")).join("fsid");
    fs::read_to_string(&path)
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .ok_or_else(|| Failure::new(format!("{} holds no UUID; run --mkfs", path.display())))
}

async fn make_osd(
    store: &Rc<dyn ObjectStore>,
    whoami: i32,
    cluster_fsid: Uuid,
    osd_fsid: Uuid,
) -> Result<(), Failure> {
    let options = osd::MkfsOptions { whoami, cluster_fsid, osd_fsid };
    osd::Osd::mkfs(store, options).await.map_err(|e| Failure::new(e.to_string()))
}

/// Makes the store of a new OSD of the cluster in the folder, where such a one is made.
pub(crate) async fn mkfs_osd(
    env: &Env,
    layout: &Layout,
    n: u32,
    osd_fsid: Uuid,
    osd_size: u64,
    store: &str,
) -> Result<(), Failure> {
    let sets = [
        format!("osd_data={}", layout.unmade_osd(n).display()),
        format!("bluestore_block_size={osd_size}"),
        format!("osd_objectstore={store}"),
    ];
    let config = Rc::new(load_made("osd", &n.to_string(), &layout.conf(), &sets)?);
    mkfs_osd_with(env, &config, Some(osd_fsid)).await
}

/// `given`: the OSD's fsid, if it is to be a certain one.
async fn mkfs_osd_with(env: &Env, config: &Rc<Config>, given: Option<Uuid>) -> Result<(), Failure> {
    let dir = PathBuf::from(config.str("osd_data"));
    fs::create_dir_all(&dir)
        .map_err(|e| Failure::new(format!("cannot create {}: {e}", dir.display())))?;
    // Not emptied: by this file whoever has the store keeps others away.
    let fsid_path = dir.join("fsid");
    fs::File::options().create(true).append(true).open(&fsid_path)?;
    let _lock = stores::lock(config, stores::Patience::Some)?;
    if stores::is_made(config) {
        return leave_made(env, config, given).await;
    }
    keep_unknown_osd(env, config).await?;
    let osd_fsid = given.unwrap_or_else(|| random_uuid(env));
    // Where `up` makes the OSD it is there, and is not to be lost if this is cut off.
    if read_osd_fsid(config).ok() != Some(osd_fsid) {
        write_durably(&fsid_path, &format!("{osd_fsid}\n"))?;
    }
    for (fact, value) in host::birth_facts(UTime::from_duration(env.wall_clock())) {
        write_durably(&dir.join(fact), &format!("{value}\n"))?;
    }
    sync_parent(&dir)?;
    stores::make(env, config, osd_fsid).await?;
    fill_store(env, config, osd_fsid).await
}

/// Refuses to make a store where an OSD is whose folder has lost the file that says so, as one of a version that did not
/// sync it may have in a power failure.
async fn keep_unknown_osd(env: &Env, config: &Rc<Config>) -> Result<(), Failure> {
    let dir = config.str("osd_data");
    let Some((kind, store)) = stores::find(env, config).await? else {
        return Ok(());
    };
    let found = superblock(&*store).await;
    store.close().await.map_err(|e| not_closed(config, &e))?;
    let Some(OsdSuperblock { whoami, cluster_fsid, osd_fsid, .. }) = found else {
        return Ok(());
    };
    Err(Failure::new(format!(
        "{dir} has no file 'type', but the store of osd.{whoami} of cluster {cluster_fsid} ({kind}): if that OSD is to live \
         on, write {kind} to {dir}/type and {osd_fsid} to {dir}/fsid; if nothing of it is needed, remove its files \
         ({}), or overwrite the beginning of a device, and run this again",
        stores::FILES.join(", ")
    )))
}

/// What a store says of the OSD that it is of.
async fn superblock(store: &dyn ObjectStore) -> Option<OsdSuperblock> {
    let name = HObject { name: "osd_superblock".into(), pool: -1, ..HObject::default() };
    let bytes = store.read(&CollId::Meta, &GhObject::from(name), 0, 0).await.ok()?;
    OsdSuperblock::from_bytes(&bytes.to_contiguous()).ok()
}

/// Makes the OSD in its store, unless it is there.
async fn fill_store(env: &Env, config: &Rc<Config>, osd_fsid: Uuid) -> Result<(), Failure> {
    let store = stores::open(env, config).await?;
    let whoami = config
        .id()
        .parse()
        .map_err(|_| Failure::new(format!("--id {}: an OSD's id is a number", config.id())))?;
    let made = make_osd(&store, whoami, cluster_fsid(config)?, osd_fsid).await;
    let closed = store.close().await;
    made?;
    closed.map_err(|e| Failure::new(format!("{}: {e}", config.str("osd_data"))))
}

/// `--mkfs` where a store is made: as in Ceph it stays, and it is an error if it is another OSD's.
async fn leave_made(env: &Env, config: &Rc<Config>, given: Option<Uuid>) -> Result<(), Failure> {
    let dir = config.str("osd_data");
    let other = |why: String| {
        Failure::new(format!(
            "{dir} holds a store already, but {why}; name another osd_data, or remove what is in this \
             one if nothing of it is needed"
        ))
    };
    let osd_fsid = read_osd_fsid(config).map_err(|e| other(e.to_string()))?;
    if let Some(given) = given
        && given != osd_fsid
    {
        return Err(other(format!("its OSD has the fsid {osd_fsid}, not {given}")));
    }
    fill_store(env, config, osd_fsid).await.map_err(|e| other(e.to_string()))?;
    tell!("{} has its store in {dir} already: it stays as it is", config.name());
    Ok(())
}

/// `loligo up --single-process`: every daemon in a thread of its own, until Ctrl-C.
pub(crate) fn run_all_in_threads(layout: Layout, plan: &Plan) -> Result<(), Failure> {
    logging::start();
    let spawn = |kind: &'static str, id: String| {
        let conf = layout.conf();
        std::thread::spawn(move || -> Result<(), String> {
            let config = load_made(kind, &id, &conf, &[]).map_err(|e| e.to_string())?;
            let runtime = Runtime::new().map_err(|e| e.to_string())?;
            runtime
                .block_on(move |env| async move {
                    keep_tidy(&env);
                    serve(&env, Rc::new(config)).await
                })
                .map_err(|e| e.to_string())
        })
    };
    let mut threads = Vec::new();
    for kind in ["mon", "mgr"] {
        threads.extend(layout.ids(kind).into_iter().map(|id| spawn(kind, id)));
    }
    let new = start::new_osds(&layout, plan.osds)?;
    let (of_session, plan) = (layout.clone(), plan.clone());
    let made = Runtime::new()?.block_on(move |env| async move {
        let making = async {
            let session = AdminSession::connect(&env, &of_session).await?;
            for n in new {
                let Plan { osd_size, store, .. } = &plan;
                start::register_osd(&session, &of_session, n, *osd_size, store).await?;
            }
            Ok::<(), Failure>(())
        };
        unless_told(&env, making).await.transpose()
    })?;
    // Where it is told to stop meanwhile, the daemons that have begun are, too.
    if made.is_some() {
        threads.extend(layout.ids("osd").into_iter().map(|id| spawn("osd", id)));
        tell!("export CEPH_CONF={}", layout.conf().display());
        tell!("Ctrl-C stops the cluster");
    }
    for thread in threads {
        match thread.join() {
            Ok(result) => result.map_err(Failure::new)?,
            Err(_) => return Err(Failure::new("a daemon panicked; see above")),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use store::Transaction;
    use types::pg::{PgId, SpgId};

    use super::*;

    fn folder(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("loligo-mkfs-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        dir
    }

    /// Of an OSD with this number in `dir`/osd.
    fn config(dir: &Path, id: &str, cluster: u8) -> Rc<Config> {
        let fsid = Uuid::from_random([cluster; 16]);
        let text = format!(
            "[global]\nfsid = {fsid}\nosd_data = {}/osd\nosd_objectstore = inkstore\n\
             bluestore_block_size = 16777216\n",
            dir.display()
        );
        let file = parse_conf(dir, &text).unwrap();
        Rc::new(config_of("osd", id, dir, &file).unwrap())
    }

    /// `loligo osd --mkfs` said once more made a new store where the OSD's was.
    #[test]
    fn mkfs_leaves_a_store_that_is_made() {
        let dir = folder("again");
        let (own, place) = (config(&dir, "0", 1), dir.clone());
        Runtime::new().unwrap().block_on(|env| async move {
            let fsid = Uuid::from_random([5; 16]);
            mkfs_osd_with(&env, &own, Some(fsid)).await.unwrap();
            let cid = CollId::Pg(SpgId { pgid: PgId { pool: 1, seed: 0 }, shard: -1 });
            let store = stores::open(&env, &own).await.unwrap();
            let mut t = Transaction::new();
            t.mkcoll(&cid, 0);
            store.submit(t).await.unwrap();
            store.close().await.unwrap();
            drop(store);
            for given in [Some(fsid), None] {
                mkfs_osd_with(&env, &own, given).await.unwrap();
            }
            let others = [
                (own.clone(), Uuid::from_random([6; 16]), "fsid"),
                (config(&place, "1", 1), fsid, "osd.0"),
                (config(&place, "0", 2), fsid, "cluster"),
            ];
            for (config, given, why) in others {
                let refused = mkfs_osd_with(&env, &config, Some(given)).await.unwrap_err();
                let refused = refused.to_string();
                assert!(refused.contains(why) && refused.contains("holds a store"), "{refused}");
            }
            assert_eq!(read_osd_fsid(&own).unwrap(), fsid);
            let store = stores::open(&env, &own).await.unwrap();
            assert!(store.collections().await.unwrap().contains(&cid));
            store.close().await.unwrap();
        });
        fs::remove_dir_all(&dir).unwrap();
    }

    /// The file `type` was not synced: an OSD that had lost it in a power failure was taken for none, and `--mkfs`, which
    /// leaves one that is there, made an empty store in its place.
    #[test]
    fn mkfs_does_not_take_an_osd_without_its_type_for_none() {
        for kind in stores::STORES {
            let dir = folder(&format!("lost-{kind}"));
            let own = config(&dir, "0", 1);
            own.set("osd_objectstore", kind, Source::Cmdline).unwrap();
            own.set("bluestore_block_size", "268435456", Source::Cmdline).unwrap();
            let other = config(&dir, "0", 1);
            other.set("osd_objectstore", "inkstore", Source::Cmdline).unwrap();
            let data = dir.join("osd");
            Runtime::new().unwrap().block_on(|env| async move {
                let fsid = Uuid::from_random([5; 16]);
                mkfs_osd_with(&env, &own, Some(fsid)).await.unwrap();
                fs::write(data.join("type"), "").unwrap();
                for config in [&own, &other] {
                    fs::write(data.join("fsid"), "").unwrap();
                    let refused = mkfs_osd_with(&env, config, None).await.unwrap_err().to_string();
                    let told =
                        [format!("write {kind} to"), format!("{fsid} to"), "osd.0 of".to_owned()];
                    assert!(told.iter().all(|part| refused.contains(part)), "{kind}: {refused}");
                }
                // As it is told.
                fs::write(data.join("type"), format!("{kind}\n")).unwrap();
                fs::write(data.join("fsid"), format!("{fsid}\n")).unwrap();
                mkfs_osd_with(&env, &own, Some(fsid)).await.unwrap();
                let store = stores::open(&env, &own).await.unwrap();
                store.close().await.unwrap();
            });
            fs::remove_dir_all(&dir).unwrap();
        }
    }

    /// Where such an OSD's store did not open either, as without its journal, it was taken for none, and all that it had was
    /// removed.
    #[test]
    fn mkfs_leaves_what_does_not_open() {
        let dir = folder("shut");
        let own = config(&dir, "0", 1);
        own.set("osd_objectstore", "filestore", Source::Cmdline).unwrap();
        let data = dir.join("osd");
        Runtime::new().unwrap().block_on(|env| async move {
            mkfs_osd_with(&env, &own, None).await.unwrap();
            fs::remove_file(data.join("type")).unwrap();
            fs::remove_file(data.join("journal")).unwrap();
            let before = fs::read_dir(data.join("current")).unwrap().count();
            let refused = mkfs_osd_with(&env, &own, None).await.unwrap_err().to_string();
            assert!(refused.contains("current may be what an OSD has"), "{refused}");
            assert_eq!(fs::read_dir(data.join("current")).unwrap().count(), before);
        });
        fs::remove_dir_all(&dir).unwrap();
    }

    /// A device that is a file elsewhere, and not there yet: what looked for an OSD in it left a link by which the file was
    /// not made any more.
    #[test]
    fn mkfs_makes_the_file_that_block_leads_to() {
        let dir = folder("elsewhere");
        let own = config(&dir, "0", 1);
        own.set("osd_objectstore", "inkstore", Source::Cmdline).unwrap();
        own.set("bluestore_block_size", "268435456", Source::Cmdline).unwrap();
        let image = dir.join("image");
        own.set("bluestore_block_path", &image.display().to_string(), Source::Cmdline).unwrap();
        Runtime::new().unwrap().block_on(|env| async move {
            mkfs_osd_with(&env, &own, None).await.unwrap();
            assert_eq!(fs::metadata(&image).unwrap().len(), 268_435_456);
        });
        fs::remove_dir_all(&dir).unwrap();
    }

    /// A store that was made when `--mkfs` was cut off is no OSD's: the next one makes it anew.
    #[test]
    fn mkfs_that_was_cut_off_begins_again() {
        let dir = folder("cut");
        let (own, data) = (config(&dir, "0", 1), dir.join("osd"));
        fs::create_dir_all(&data).unwrap();
        Runtime::new().unwrap().block_on(|env| async move {
            stores::make(&env, &own, Uuid::from_random([5; 16])).await.unwrap();
            fs::remove_file(data.join("type")).unwrap();
            mkfs_osd_with(&env, &own, Some(Uuid::from_random([6; 16]))).await.unwrap();
            assert_eq!(read_osd_fsid(&own).unwrap(), Uuid::from_random([6; 16]));
        });
        fs::remove_dir_all(&dir).unwrap();
    }

    /// It wrote a new fsid before it asked whether somebody had the store.
    #[test]
    fn mkfs_keeps_off_a_store_that_is_locked() {
        let dir = folder("locked");
        let own = config(&dir, "0", 1);
        let (old, fsid) = (Uuid::from_random([5; 16]), dir.join("osd").join("fsid"));
        fs::create_dir_all(dir.join("osd")).unwrap();
        fs::write(&fsid, format!("{old}\n")).unwrap();
        let lock = stores::lock(&own, stores::Patience::None).unwrap();
        Runtime::new().unwrap().block_on(|env| async move {
            let refused = mkfs_osd_with(&env, &own, None).await.unwrap_err();
            assert!(refused.to_string().contains("stop it first"), "{refused}");
            assert_eq!(read_osd_fsid(&own).unwrap(), old);
        });
        drop(lock);
        fs::remove_dir_all(&dir).unwrap();
    }
}
