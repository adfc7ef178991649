//! A client of the cluster that the configuration names, for commands of this binary.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use client::rbd::{Image, OpenOptions};
use client::{Client, ClientError, IoCtx, Options};
use env::Env;
use futures_util::future::{Either, select};
use types::Errno;

use super::cli::ClusterArgs;
use super::spec::ImageSpec;
use crate::daemon;
use crate::environment::CephArgs;
use crate::failure::Failure;

/// How long the cluster gets to let us in.
const CONNECT_TIME: Duration = Duration::from_secs(30);
/// After which time it is said what is waited for.
const TELL_TIME: Duration = Duration::from_secs(2);
/// After which time it is said that an operation is not answered, and why.
const SILENCE_TIME: Duration = Duration::from_secs(5);
/// How long an image gets to close.
const CLOSE_TIME: Duration = Duration::from_secs(30);
/// Where a configuration is looked for when nothing names one.
const PLACES: [&str; 2] = ["./loligo-data/ceph.conf", "/etc/ceph/ceph.conf"];

fn conf_path(args: &ClusterArgs, said: &CephArgs) -> Result<PathBuf, Failure> {
    if let Some(path) = args.conf.as_ref().or(said.conf.as_ref()) {
        return Ok(path.clone());
    }
    let found = PLACES.iter().map(Path::new).find(|path| path.exists());
    found.map(Path::to_owned).ok_or_else(|| {
        Failure::new(format!("no configuration: give --conf or CEPH_CONF (looked for {PLACES:?})"))
    })
}

/// Connects.
pub(crate) async fn connect(env: &Env, args: &ClusterArgs) -> Result<Client, Failure> {
    let said = CephArgs::of_process()?;
    let path = conf_path(args, &said)?;
    let id = args.id.as_deref().or(said.id.as_deref()).unwrap_or("admin");
    let config = Rc::new(daemon::load_config("client", id, &path, &[])?);
    let keyring = daemon::read_keyring(&config)?.unwrap_or_default();
    let options = Options { follow_osdmap: true };
    let connecting = Client::connect(env.clone(), config.clone(), &keyring, options);
    let slow = async {
        env.sleep(TELL_TIME).await;
        eprintln!("loligo: waiting for a monitor at {}", config.str("mon_host"));
    };
    let connected = env.timeout(CONNECT_TIME, connecting);
    futures_util::pin_mut!(slow, connected);
    let connected = match select(connected, slow).await {
        Either::Left((connected, _)) => connected,
        Either::Right(((), connected)) => connected.await,
    };
    match connected {
        Ok(Ok(client)) => {
            env.go(tell_of_silence(env.clone(), client.clone()));
            Ok(client)
        }
        Ok(Err(e)) => Err(Failure::new(format!("cannot connect as client.{id}: {e}"))),
        Err(_) => Err(Failure::new(format!(
            "no monitor answered at {} within {} s",
            config.str("mon_host"),
            CONNECT_TIME.as_secs()
        ))),
    }
}

/// Says once of each silence what is waited for: whoever sees nothing happen does not know what to look at.
async fn tell_of_silence(env: Env, client: Client) {
    let mut told = false;
    loop {
        env.sleep(TELL_TIME).await;
        let silence = client.longest_wait().filter(|waiting| waiting.time >= SILENCE_TIME);
        if let Some(waiting) = silence.as_ref().filter(|_| !told) {
            let (seconds, reason) = (waiting.time.as_secs(), waiting.reason);
            eprintln!("loligo: no answer for {seconds} s: {reason} ('ceph -s' says more)");
        }
        told = silence.is_some();
    }
}

/// The objects of a pool and namespace.
pub(crate) async fn pool(client: &Client, name: &str, namespace: &str) -> Result<IoCtx, Failure> {
    match client.io_ctx(name).await {
        Ok(io) => Ok(io.with_namespace(namespace)),
        Err(ClientError::Errno(Errno::ENOENT)) => Err(Failure::new(format!(
            "there is no pool {name}; 'ceph osd pool create {name}' makes one"
        ))),
        Err(e) => Err(Failure::new(format!("pool {name}: {e}"))),
    }
}

/// Opens an image.
pub(crate) async fn open(
    client: &Client,
    spec: &ImageSpec,
    read_only: bool,
) -> Result<Image, Failure> {
    let io = pool(client, &spec.pool, &spec.namespace).await?;
    let options = OpenOptions { snap: spec.snap.clone(), read_only };
    Image::open(&io, &spec.image, &options).await.map_err(|e| said(spec, e))
}

/// Waits for what is under way and gives the lock back, but not for ever: in a full pool, or where placement groups are
/// inactive, that cannot be done. Who opens the image next breaks the lock.
pub(crate) async fn close(env: &Env, image: &Image, name: &str) {
    match env.timeout(CLOSE_TIME, image.close()).await {
        Ok(Ok(())) => {}
        Ok(Err(e)) => tracing::warn!("{name}: closing: {e}"),
        Err(_) => tracing::warn!(
            "{name}: not closed after {} s: the cluster does not answer (a full pool? inactive placement groups?); its \
             lock is left to be broken by who opens it next",
            CLOSE_TIME.as_secs()
        ),
    }
}

/// What is wrong with an image, and what may be done about it.
pub(crate) fn said(spec: &ImageSpec, error: ClientError) -> Failure {
    let advice = match &error {
        ClientError::Errno(Errno::ENOENT) => ": there is no such image or snapshot",
        ClientError::Errno(Errno::EOPNOTSUPP) => {
            ": it has features that only librbd knows (a migration under way, an unknown format)"
        }
        ClientError::Errno(Errno::ENOSYS) => {
            ": the image has no feature layering, which clones need"
        }
        ClientError::Errno(Errno::EROFS) => {
            ": it cannot be written here (journaling, a mirror's copy, or its lock's owner keeps \
             the lock); --read-only may do"
        }
        ClientError::Errno(Errno::ENOTEMPTY) => ": it has snapshots; remove them first",
        ClientError::Errno(Errno::EMLINK) => {
            ": it belongs to a group; 'rbd group image rm GROUP IMAGE' takes it out, then try again"
        }
        ClientError::Errno(Errno::EBUSY) => ": somebody uses it, or it is protected, or has clones",
        ClientError::Errno(Errno::EEXIST) => ": it exists already",
        _ => "",
    };
    Failure::new(format!("{spec}: {error}{advice}"))
}
