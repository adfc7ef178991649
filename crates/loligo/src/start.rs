//! Starts what is there of a cluster and what is to be added, and waits until it serves.
//!
//! A daemon that cannot serve is told, and the others go on: once the monitors serve, nothing that runs is
//! stopped. Without monitors, and when it is told to stop, a start takes back what it has started
//! itself, and nothing else.
//!
//! ```text
//! osd/3.new/keyring, fsid     who osd.3 will be; then it is registered with 'osd new'
//! osd/3.new/...               its store is made
//! osd/3                       it is whole: the folder has got its name
//! ```
//! Cut off at any place, the next start makes the OSD again, as the same.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use auth::{CryptoKey, EntityAuth, Keyring};
use env::Env;
use futures_util::future::{Either, select};
use types::Uuid;

use crate::failure::Failure;
use crate::guests::{self, GUESTS, Guest};
use crate::layout::{Layout, sync_parent, write_private};
use crate::output::tell;
use crate::session::AdminSession;
use crate::up::{Plan, entity, new_key};
use crate::{admin_socket, daemon, process};

/// How long the daemons get to serve, from the last OSD on that was made, or that served.
const START_TIME: Duration = Duration::from_secs(30);
/// How long placement groups get to become active before `up` returns without them.
const PEERING_TIME: Duration = Duration::from_secs(10);
/// Between two looks at what serves.
const PAUSE: Duration = Duration::from_millis(10);
/// How long a monitor that cannot listen has to say so.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How far a start has come.
#[derive(Debug, Default)]
struct Progress {
    /// Names of the daemons that it has started.
    started: Vec<String>,
    /// Names of those that ran before.
    found: Vec<String>,
    /// When it came further last, by the runtime's clock.
    advanced: Duration,
    /// Those that do not serve, and why.
    failed: BTreeMap<String, String>,
    /// Whether the monitors serve.
    has_monitors: bool,
    /// Which daemon is waited for.
    awaited: Option<String>,
    /// All that have been waited for: each gets its time once.
    were_awaited: BTreeSet<String>,
}

impl Progress {
    /// Whether this start waits for the daemon. One whose store was made just now may not have begun.
    fn counts_on(&self, name: &String) -> bool {
        self.started.contains(name) || self.found.contains(name)
    }

    fn awaits(&mut self, awaited: Option<String>, now: Duration) {
        if awaited.as_ref().is_some_and(|name| self.were_awaited.insert(name.clone())) {
            self.advanced = now;
        }
        self.awaited = awaited;
    }
}

type Shared = Rc<RefCell<Progress>>;

/// Starts the daemons that do not run and makes new OSDs; those that do not serve then, and why.
pub(crate) fn start(
    layout: &Layout,
    plan: &Plan,
    attached: bool,
) -> Result<BTreeMap<String, String>, Failure> {
    let work = Work { layout: layout.clone(), plan: plan.clone(), attached };
    let (ended, mut progress) = env::real::Runtime::new()?.block_on(move |env| async move {
        let progress = Shared::default();
        progress.borrow_mut().advanced = env.now();
        let (run, late) = (work.run(&env, &progress), late(&env, &progress));
        futures_util::pin_mut!(run, late);
        let ended = match select(env.termination(), select(run, late)).await {
            Either::Left(_) => Ended::ToldToStop,
            Either::Right((Either::Left((result, _)), _)) => Ended::Done(result),
            Either::Right((Either::Right(_), _)) => Ended::Late,
        };
        let progress = progress.take();
        (ended, progress)
    });
    let failure = match ended {
        Ended::Done(Ok(())) => return Ok(progress.failed),
        Ended::Late if progress.has_monitors => {
            // One that ended may be why nobody answers.
            note_stopped(layout, &mut progress);
            note_unmade(layout, &mut progress);
            let seconds = START_TIME.as_secs();
            let name = progress.awaited.unwrap_or_else(|| "the cluster".to_owned());
            let log = layout.dir().join("log");
            let why = format!("nothing after {seconds} s, but it goes on; see {}", log.display());
            progress.failed.insert(name, why);
            return Ok(progress.failed);
        }
        Ended::Done(Err(failure)) if progress.has_monitors => return Err(failure),
        Ended::Done(Err(failure)) => failure,
        Ended::Late => Failure::new(describe_late(layout)),
        Ended::ToldToStop => Failure::new(
            "told to stop: what this call has started is stopped again; 'loligo up' goes on from here",
        ),
    };
    let complaints = process::stop_named(layout, &progress.started).complaints;
    complaints.iter().for_each(|complaint| eprintln!("loligo: {complaint}"));
    Err(failure)
}

/// Ends when a start has not come further for [`START_TIME`].
async fn late(env: &Env, progress: &Shared) {
    loop {
        let left = (progress.borrow().advanced + START_TIME).saturating_sub(env.now());
        if left.is_zero() {
            return;
        }
        env.sleep(left).await;
    }
}

enum Ended {
    Done(Result<(), Failure>),
    Late,
    ToldToStop,
}

struct Work {
    layout: Layout,
    plan: Plan,
    attached: bool,
}

impl Work {
    async fn run(&self, env: &Env, progress: &Shared) -> Result<(), Failure> {
        let layout = &self.layout;
        let new = new_osds(layout, self.plan.osds)?;
        for (kind, per_process) in [("mon", 1), ("mgr", 1), ("osd", self.plan.osds_per_process)] {
            for ids in self.not_running(kind, progress).chunks(per_process) {
                self.begin(kind, ids, progress)?;
            }
        }
        let serving = self.bring_to_serve(env, progress, &new);
        let gone = monitors_gone(env, layout);
        futures_util::pin_mut!(serving, gone);
        match select(serving, gone).await {
            Either::Left((Ok(()), _)) => Ok(()),
            // Another cluster's monitor may have answered where ours cannot listen: then that is why.
            Either::Left((Err(why), gone)) => match env.timeout(LAST_WORDS, gone).await {
                Ok(of_monitor) => Err(Failure::new(of_monitor)),
                Err(_) => Err(why),
            },
            Either::Right((why, _)) => Err(Failure::new(why)),
        }
    }

    /// Ids of daemons of one kind that are to be started.
    fn not_running(&self, kind: &str, progress: &Shared) -> Vec<String> {
        let mut ids = self.layout.ids(kind);
        ids.retain(|id| {
            let name = format!("{kind}.{id}");
            let runs = process::running(&self.layout.pid_file(&name)).is_some();
            if runs {
                progress.borrow_mut().found.push(name);
            }
            !runs
        });
        ids
    }

    /// With the monitors: makes the new OSDs and waits for all.
    async fn bring_to_serve(
        &self,
        env: &Env,
        progress: &Shared,
        new: &[u32],
    ) -> Result<(), Failure> {
        let layout = &self.layout;
        let session = AdminSession::connect(env, layout).await?;
        let config = daemon::load_made("client", "admin", &layout.conf(), &[])?;
        let (theirs, ours) = (session.monmap(None).await?.fsid, daemon::cluster_fsid(&config)?);
        if theirs != ours {
            return Err(Failure::new(format!(
                "the monitor that answers is of cluster {theirs}, not of {ours}: another cluster has this one's port (give --port to one of them)"
            )));
        }
        progress.borrow_mut().has_monitors = true;
        for group in new.chunks(self.plan.osds_per_process) {
            let mut made = Vec::new();
            for n in group {
                let Plan { osd_size, store, .. } = &self.plan;
                let done = register_osd(&session, layout, *n, *osd_size, store).await;
                let mut progress = progress.borrow_mut();
                progress.advanced = env.now();
                match done {
                    Ok(()) => made.push(n.to_string()),
                    Err(why) => {
                        progress.failed.insert(format!("osd.{n}"), why.to_string());
                    }
                }
            }
            if !made.is_empty() {
                self.begin("osd", &made, progress)?;
            }
        }
        self.begin_guests(&session, progress).await;
        let began = env.now();
        loop {
            let waited = env.now() - began;
            let awaited = Living::of(layout, progress).awaits(env, &session, waited).await?;
            if awaited.is_none() {
                return Ok(());
            }
            progress.borrow_mut().awaits(awaited, env.now());
            note_stopped(layout, &mut progress.borrow_mut());
            env.sleep(PAUSE).await;
        }
    }

    /// Ceph's own daemons. One that cannot be started is told.
    async fn begin_guests(&self, session: &AdminSession, progress: &Shared) {
        for guest in GUESTS {
            for id in self.not_running(guest.kind, progress) {
                let registered = guests::register(session, &self.layout, guest, &id).await;
                let begun = registered
                    .and_then(|()| self.begin(guest.kind, std::slice::from_ref(&id), progress));
                if let Err(why) = begun {
                    progress
                        .borrow_mut()
                        .failed
                        .insert(format!("{}.{id}", guest.kind), why.to_string());
                }
            }
        }
    }

    fn begin(&self, kind: &str, ids: &[String], progress: &Shared) -> Result<(), Failure> {
        let foreground = ["-f".to_owned()];
        let more = match kind {
            "osd" => &self.plan.osd_args[..],
            _ if Guest::of(kind).is_some() => &foreground[..],
            _ => &[],
        };
        progress.borrow_mut().started.extend(ids.iter().map(|id| format!("{kind}.{id}")));
        process::start(&self.layout, kind, ids, more, !self.attached).map(drop)
    }
}

/// Ends when no monitor runs, with the last words of one.
async fn monitors_gone(env: &Env, layout: &Layout) -> String {
    loop {
        let names: Vec<String> = layout.ids("mon").iter().map(|id| format!("mon.{id}")).collect();
        let runs = |name: &String| process::running(&layout.pid_file(name)).is_some();
        if let Some(name) = names.first()
            && !names.iter().any(runs)
        {
            return format!("{name} stopped: {}", process::log_tail(layout, name));
        }
        env.sleep(PAUSE).await;
    }
}

/// Which daemons have stopped, why, and what is to be done about it.
fn note_stopped(layout: &Layout, progress: &mut Progress) {
    for name in layout.daemons() {
        if process::running(&layout.pid_file(&name)).is_some()
            || progress.failed.contains_key(&name)
            || !progress.counts_on(&name)
        {
            continue;
        }
        let words = process::log_tail(layout, &name);
        let mut why = format!("it stopped: {words}");
        if words.contains("cannot listen") {
            // Its data is well.
            why.push_str(
                "; four ports an OSD between ms_bind_port_min and ms_bind_port_max are needed, of \
                 all clusters of this machine: 'loligo up --set ms_bind_port_max=N' gives more",
            );
        } else if words.contains("no storage space") || words.contains("No space left on device") {
            let dir = layout.dir().display();
            why.push_str(&format!("; the disk under {dir} is full: make room, then 'loligo up'"));
        } else if let Some(n) = name.strip_prefix("osd.") {
            why.push_str(&format!(
                "; if its data is lost: 'ceph osd purge {n} --yes-i-really-mean-it', remove {}, \
                 and 'loligo up --osds N' makes a new one",
                layout.data("osd", n).display()
            ));
        }
        progress.failed.insert(name, why);
    }
}

/// Which OSDs have not been made, or not begun, when there was no more time.
fn note_unmade(layout: &Layout, progress: &mut Progress) {
    let unmade = layout.unmade_osds().into_iter().map(|n| format!("osd.{n}"));
    let made = layout.daemons().into_iter().filter(|name| !progress.counts_on(name));
    for name in unmade.chain(made).collect::<Vec<String>>() {
        let why = "there was no time for it: run 'loligo up' again, which goes on from here";
        progress.failed.entry(name).or_insert_with(|| why.to_owned());
    }
}

/// The daemons that have not failed.
struct Living<'a> {
    layout: &'a Layout,
    mons: Vec<String>,
    mgrs: Vec<String>,
    osds: Vec<String>,
    /// Ceph's own.
    guests: Vec<String>,
}

impl Living<'_> {
    fn of<'a>(layout: &'a Layout, progress: &Shared) -> Living<'a> {
        let progress = progress.borrow();
        let names = |kind: &str| {
            let names = layout.ids(kind).into_iter().map(|id| format!("{kind}.{id}"));
            names.filter(|name| !progress.failed.contains_key(name)).collect::<Vec<String>>()
        };
        let guests = GUESTS.into_iter().flat_map(|guest| names(guest.kind)).collect();
        Living { layout, mons: names("mon"), mgrs: names("mgr"), osds: names("osd"), guests }
    }

    /// What does not serve yet. The maps alone do not tell: after all daemons were killed at once
    /// they still show the last lives of all as up, so each process is asked itself.
    async fn awaits(
        &self,
        env: &Env,
        session: &AdminSession,
        waited: Duration,
    ) -> Result<Option<String>, Failure> {
        let number = |of: &serde_json::Value, key: &str| of[key].as_u64().unwrap_or(0);
        let mut epoch = 0;
        for osd in &self.osds {
            match admin_socket::ask(env, &self.layout.admin_socket(osd), "status").await {
                Some(status) if status["state"] == "active" => {
                    epoch = epoch.max(number(&status, "newest_map"));
                }
                _ => return Ok(Some(osd.clone())),
            }
        }
        let mut active = None;
        for mgr in &self.mgrs {
            let socket = self.layout.admin_socket(mgr);
            let status = admin_socket::ask(env, &socket, "mgr_status").await;
            active = active.or(status.filter(|mgr| mgr["available"] == true));
        }
        if let (None, Some(mgr)) = (&active, self.mgrs.first()) {
            return Ok(Some(mgr.clone()));
        }
        let status = session.json(r#"{"prefix":"status","format":"json"}"#, "").await?;
        let quorum = status["quorum_names"].as_array().map_or(&[][..], Vec::as_slice);
        let outside =
            |mon: &&String| !quorum.iter().any(|name| mon.strip_prefix("mon.") == name.as_str());
        if let Some(mon) = self.mons.iter().find(outside) {
            return Ok(Some(mon.clone()));
        }
        if number(&status["osdmap"], "num_up_osds") < self.osds.len() as u64 {
            return Ok(Some("an OSD that the monitors do not know as up".to_owned()));
        }
        if let Some(guest) = guests::awaits(env, session, self.layout, &self.guests).await? {
            return Ok(Some(guest));
        }
        // Without a manager nobody knows of placement groups.
        let Some(mgr) = active else { return Ok(None) };
        if number(&mgr, "osdmap_epoch") < epoch || status["mgrmap"]["available"] != true {
            return Ok(self.mgrs.first().cloned());
        }
        let (pgs, serving) = (number(&mgr, "num_pgs"), number(&mgr, "num_pgs_serving"));
        if serving >= pgs {
            return Ok(None);
        }
        if waited < PEERING_TIME {
            return Ok(Some("a placement group".to_owned()));
        }
        // They may lack OSDs that are gone for good: no reason to wait longer.
        tell!("{} of {pgs} placement groups do not serve yet; 'ceph -s' says why", pgs - serving);
        Ok(None)
    }
}

/// OSDs that are to be made: those below `osds` that are not there, and those that were to be made when a start
/// was cut off. Each has its folder from here on.
pub(crate) fn new_osds(layout: &Layout, osds: u32) -> Result<Vec<u32>, Failure> {
    let known = layout.ids("osd");
    let mut new = layout.unmade_osds();
    new.extend(0..osds);
    new.sort_unstable();
    new.dedup();
    new.retain(|n| !known.contains(&n.to_string()));
    for n in &new {
        fs::create_dir_all(layout.unmade_osd(*n))?;
    }
    Ok(new)
}

/// `osd new`, then the OSD's store: the folder gets its name when all of it is there.
pub(crate) async fn register_osd(
    session: &AdminSession,
    layout: &Layout,
    n: u32,
    osd_size: u64,
    store: &str,
) -> Result<(), Failure> {
    let making = layout.unmade_osd(n);
    let (key, uuid) = identity(&making, n)?;
    let request = serde_json::json!({"prefix": "osd new", "uuid": uuid.to_string(), "id": n});
    let secret = serde_json::json!({"cephx_secret": key.to_base64()});
    session.command(&request.to_string(), &secret.to_string()).await.map_err(|e| {
        Failure::new(format!(
            "{e}; if the cluster has an osd.{n} whose folder is lost: \
             'ceph osd purge {n} --yes-i-really-mean-it', and 'loligo up' makes a new one"
        ))
    })?;
    daemon::mkfs_osd(session.env(), layout, n, uuid, osd_size, store).await?;
    let data = layout.data("osd", &n.to_string());
    fs::rename(&making, &data)?;
    // Before it has data: a folder that lost its name again would be made anew.
    sync_parent(&data)?;
    Ok(())
}

/// Key and UUID of an OSD that is to be made. Those that a start has left which was cut off may be known to the
/// monitors; of all else that it left nothing stays.
fn identity(making: &Path, n: u32) -> Result<(CryptoKey, Uuid), Failure> {
    let (ring_file, fsid_file) = (making.join("keyring"), making.join("fsid"));
    fs::create_dir_all(making)?;
    let known = || {
        let ring = Keyring::from_file(&fs::read(&ring_file).ok()?).ok()?;
        let uuid: Uuid = fs::read_to_string(&fsid_file).ok()?.trim().parse().ok()?;
        Some((ring.key(&entity(&format!("osd.{n}")))?.clone(), uuid))
    };
    let known = known();
    for entry in fs::read_dir(making)? {
        let path = entry?.path();
        if known.is_some() && (path == ring_file || path == fsid_file) {
            continue;
        }
        match path.is_dir() && !path.is_symlink() {
            true => fs::remove_dir_all(path)?,
            false => fs::remove_file(path)?,
        }
    }
    if let Some(known) = known {
        return Ok(known);
    }
    let (key, uuid) = new_key()?;
    let mut ring = Keyring::new();
    ring.keys.insert(entity(&format!("osd.{n}")), EntityAuth::new(key.clone(), []));
    write_private(&ring_file, &ring.to_text())?;
    write_private(&fsid_file, &format!("{uuid}\n"))?;
    Ok((key, uuid))
}

fn describe_late(layout: &Layout) -> String {
    let running: Vec<String> =
        process::all_running(layout).into_iter().map(|(name, _)| name).collect();
    format!(
        "the monitors did not serve within {} s (running: {}); see {}/log",
        START_TIME.as_secs(),
        running.join(", "),
        layout.dir().display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An OSD whose making was cut off was known to the monitors by a UUID that was lost: "id 0 already in use and
    /// does not match uuid".
    #[test]
    fn an_unmade_osd_stays_who_it_is() {
        let dir = std::env::temp_dir().join(format!("loligo-start-{}", std::process::id()));
        let layout = Layout::create(&dir).unwrap();
        layout.make_folders().unwrap();
        assert_eq!(new_osds(&layout, 1).unwrap(), [0]);
        let making = layout.unmade_osd(0);
        let (key, uuid) = identity(&making, 0).unwrap();
        fs::create_dir(making.join("db")).unwrap();
        fs::write(making.join("block"), "half").unwrap();
        let (again, same) = identity(&making, 0).unwrap();
        assert_eq!((again.to_base64(), same), (key.to_base64(), uuid));
        let left = fs::read_dir(&making).unwrap().count();
        assert_eq!(left, 2, "keyring and fsid");
        // One that has no UUID was told to nobody.
        fs::remove_file(making.join("fsid")).unwrap();
        assert_ne!(identity(&making, 0).unwrap().1, uuid);
        // The next start makes it, whether it is told so or not.
        assert_eq!(new_osds(&layout, 0).unwrap(), [0]);
        fs::rename(&making, layout.data("osd", "0")).unwrap();
        assert_eq!(new_osds(&layout, 2).unwrap(), [1]);
        fs::remove_dir_all(&dir).unwrap();
    }

    /// One OSD that stopped ended the whole start, with lines of others as its reason.
    #[test]
    fn one_that_stopped_is_told_with_what_to_do() {
        let dir = std::env::temp_dir().join(format!("loligo-stopped-{}", std::process::id()));
        let layout = Layout::create(&dir).unwrap();
        layout.make_folders().unwrap();
        fs::create_dir(layout.data("osd", "3")).unwrap();
        let log = "t INFO osd.3 starts\nloligo: osd.3 stops: refused by a monitor\n";
        fs::write(layout.log("osd.3"), log).unwrap();
        let progress = Shared::default();
        progress.borrow_mut().started.push("osd.3".to_owned());
        assert_eq!(Living::of(&layout, &progress).osds, ["osd.3"]);
        note_stopped(&layout, &mut progress.borrow_mut());
        let why = progress.borrow().failed["osd.3"].clone();
        assert!(why.starts_with("it stopped: osd.3 stops: refused by a monitor;"), "{why}");
        assert!(why.contains("ceph osd purge 3") && why.contains("/osd/3,"), "{why}");
        assert!(Living::of(&layout, &progress).osds.is_empty());
        fs::remove_dir_all(&dir).unwrap();
    }

    /// Of many OSDs those that had been made last had not begun when the time was over: they were said to have stopped, and
    /// to be purged; those that were not made had no word.
    #[test]
    fn what_had_no_time_is_not_taken_for_lost() {
        let dir = std::env::temp_dir().join(format!("loligo-late-{}", std::process::id()));
        let layout = Layout::create(&dir).unwrap();
        layout.make_folders().unwrap();
        for osd in ["0", "1", "2.new"] {
            fs::create_dir(layout.data("osd", osd)).unwrap();
        }
        let mut progress = Progress::default();
        progress.started.push("osd.0".to_owned());
        note_stopped(&layout, &mut progress);
        note_unmade(&layout, &mut progress);
        let why = |name: &str| progress.failed[name].clone();
        assert!(why("osd.0").contains("it stopped"));
        for name in ["osd.1", "osd.2"] {
            assert!(why(name).contains("'loligo up' again") && !why(name).contains("purge"));
        }
        fs::remove_dir_all(&dir).unwrap();
    }

    /// All OSDs together had thirty seconds to be made and to serve.
    #[test]
    fn time_is_over_when_nothing_comes_further() {
        let second = Duration::from_secs(1);
        let mut progress = Progress::default();
        for (at, awaited, advanced) in
            [(1, "osd.0", 1), (2, "osd.0", 1), (3, "osd.1", 3), (4, "osd.0", 3), (5, "osd.1", 3)]
        {
            progress.awaits(Some(awaited.to_owned()), second * at);
            assert_eq!(progress.advanced, second * advanced, "at {at}");
        }
    }
}
