//! Schedules of one kind, where they are kept, and what is due when
//! (`src/pybind/mgr/rbd_support/{schedule,trash_purge_schedule,mirror_snapshot_schedule}.py` at
//! v16.2).
//!
//! ```text
//! option mgr/rbd_support/{trash_purge,mirror_snapshot}_schedule   the schedule of everything
//! POOL: rbd_{trash_purge,mirror_snapshot}_schedule                omap: level id -> schedule
//! ```
//! Schedules and what they apply to are read again every minute and after each change.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use bstr::BString;
use bytes::Bytes;
use client::rbd::{self, Image, OpenOptions};
use client::{Client, ClientError, IoCtx, Operation};
use command::{CommandMap, CommandReply};
use env::sync::{Notify, Semaphore};
use serde_json::{Value, json};
use types::Errno;
use types::osd::ops::message_flags;

use super::level::{Kind, LevelError, LevelSpec, found as there};
use super::schedule::{Schedule, time_text};
use super::{EINVAL, rados_error, rbd_pools};
use crate::daemon::Mgr;
use crate::json;

/// Between two looks at what there is.
const REFRESH: Duration = Duration::from_secs(60);
/// Images of which snapshots are taken at a time (`max_concurrent_snap_create`).
const SNAPSHOTS_AT_A_TIME: u64 = 10;
/// Levels with schedules, and things they apply to, at most; more are left out.
const LEVELS_MAX: usize = 65_536;
const ITEMS_MAX: usize = 1 << 20;

/// A namespace whose trash is purged, or an image whose snapshots are taken.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Item {
    pool: i64,
    namespace: String,
    image: Option<String>,
}

/// By level id.
type Schedules = BTreeMap<String, (LevelSpec, Schedule)>;

#[derive(Debug, Default)]
struct State {
    schedules: Schedules,
    /// What any of them applies to, and how it is shown.
    items: BTreeMap<Item, String>,
    /// By seconds since 1970.
    queue: BTreeMap<u64, Vec<Item>>,
}

/// See the module.
pub(super) struct Scheduler {
    kind: Kind,
    state: RefCell<State>,
    /// When all was read last (`env.now()`).
    refreshed: Cell<Option<Duration>>,
    changed: Notify,
    /// Images of which a snapshot is being taken.
    pending: RefCell<BTreeSet<Item>>,
    snapshots: Semaphore,
    /// Changes take turns.
    turn: Semaphore,
}

/// The nearest schedule above or at a thing.
fn nearest<'a>(schedules: &'a Schedules, item: &Item) -> Option<&'a Schedule> {
    let namespace = format!("{}/{}", item.pool, item.namespace);
    let image = item.image.as_ref().map(|image| format!("{namespace}/{image}"));
    let levels = [image, Some(namespace), Some(item.pool.to_string()), Some(String::new())];
    levels.into_iter().flatten().find_map(|id| Some(&schedules.get(&id)?.1))
}

impl State {
    fn enqueue(&mut self, item: Item, now: u64) {
        let schedule = nearest(&self.schedules, &item);
        let Some(at) = schedule.and_then(|schedule| schedule.next_run(now)) else { return };
        let due = self.queue.entry(at).or_default();
        if !due.contains(&item) {
            due.push(item);
        }
    }

    /// Other schedules apply from now on. What is due by one that does not any more is not: who took it away to keep something
    /// was told that it is gone. (In Ceph what is due stays so.)
    fn follow(&mut self, schedules: Schedules) {
        let before = std::mem::replace(&mut self.schedules, schedules);
        for due in self.queue.values_mut() {
            due.retain(|item| nearest(&before, item) == nearest(&self.schedules, item));
        }
    }

    /// Plans anew; what is due stays so.
    fn rebuild(&mut self, now: u64) {
        self.queue.retain(|at, _| *at <= now);
        let items: Vec<Item> = self.items.keys().cloned().collect();
        for due in self.queue.values_mut() {
            due.retain(|item| self.items.contains_key(item));
        }
        for item in items {
            self.enqueue(item, now);
        }
    }

    fn take_due(&mut self, now: u64) -> Option<Item> {
        let mut first = self.queue.first_entry().filter(|first| *first.key() <= now)?;
        let due = first.get_mut();
        let item = (!due.is_empty()).then(|| due.remove(0));
        if due.is_empty() {
            first.remove();
        }
        item.or_else(|| self.take_due(now))
    }

    /// The schedules at a level and below, and the one that applies to it.
    fn list(&self, level: &LevelSpec) -> Value {
        let mut parent: Option<&LevelSpec> = None;
        for (spec, _) in self.schedules.values() {
            let is_it = spec.id == level.id;
            if is_it || (level.is_child_of(spec) && parent.is_none_or(|p| spec.is_child_of(p))) {
                parent = Some(spec);
                if is_it {
                    break;
                }
            }
        }
        let shown = |spec: &LevelSpec| {
            parent.is_some_and(|p| p.id == spec.id)
                || spec.id == level.id
                || spec.is_child_of(level)
        };
        let of = |(id, (spec, schedule)): (&String, &(LevelSpec, Schedule))| {
            (id.clone(), json!({"name": spec.name, "schedule": schedule.to_value()}))
        };
        let shown = self.schedules.iter().filter(|(_, (spec, _))| shown(spec));
        Value::Object(shown.map(of).collect())
    }
}

impl Scheduler {
    pub(super) fn new(kind: Kind) -> Scheduler {
        Scheduler {
            kind,
            state: RefCell::default(),
            refreshed: Cell::new(None),
            changed: Notify::default(),
            pending: RefCell::default(),
            snapshots: Semaphore::new(SNAPSHOTS_AT_A_TIME),
            turn: Semaphore::new(1),
        }
    }

    fn option(&self) -> &'static str {
        match self.kind {
            Kind::TrashPurge => "mgr/rbd_support/trash_purge_schedule",
            Kind::MirrorSnapshot => "mgr/rbd_support/mirror_snapshot_schedule",
        }
    }

    fn object(&self) -> &'static str {
        match self.kind {
            Kind::TrashPurge => "rbd_trash_purge_schedule",
            Kind::MirrorSnapshot => "rbd_mirror_snapshot_schedule",
        }
    }

    /// Forgets all: another manager does it now.
    pub(super) fn reset(&self) {
        *self.state.borrow_mut() = State::default();
        self.refreshed.set(None);
        self.changed.notify_all();
    }

    /// Reads all, for a new client. What the client before it had under way ends first: what that one
    /// has not read any more must not look like what there is.
    pub(super) async fn start(&self, mgr: &Mgr, client: &Client) -> Result<(), ClientError> {
        let _turn = self.turn.acquire(1).await;
        self.reset();
        self.refresh(mgr, client).await
    }

    // --- What there is

    async fn refresh(&self, mgr: &Mgr, client: &Client) -> Result<(), ClientError> {
        let schedules = self.load(mgr, client).await?;
        let mut items = BTreeMap::new();
        if !schedules.is_empty() {
            for (pool, name) in rbd_pools(client) {
                let wanted = LevelSpec::of_pool(pool);
                if schedules.values().any(|(spec, _)| spec.intersects(&wanted)) {
                    match self.items_of(client, &schedules, pool, &name).await {
                        Ok(found) => items.extend(found),
                        Err(error) if is_the_end(&error) => return Err(error),
                        Err(error) => {
                            tracing::warn!("of pool {name} what was there before counts: {error}");
                            items.extend(self.known(|item| item.pool == pool));
                        }
                    }
                }
                if items.len() > ITEMS_MAX {
                    tracing::warn!("too many images with a schedule: some are left out");
                    break;
                }
            }
        }
        let mut state = self.state.borrow_mut();
        state.follow(schedules);
        let gone = state.items.keys().any(|item| !items.contains_key(item));
        let new = items.keys().any(|item| !state.items.contains_key(item));
        state.items = items;
        if gone || new {
            state.rebuild(now_of(mgr));
        }
        self.refreshed.set(Some(mgr.env.now()));
        Ok(())
    }

    /// What was there at the last look.
    fn known(&self, wanted: impl Fn(&Item) -> bool) -> BTreeMap<Item, String> {
        let state = self.state.borrow();
        let known = state.items.iter().filter(|(item, _)| wanted(item));
        known.map(|(item, shown)| (item.clone(), shown.clone())).collect()
    }

    fn known_schedules(&self, wanted: impl Fn(&String, &LevelSpec) -> bool) -> Schedules {
        let state = self.state.borrow();
        let known = state.schedules.iter().filter(|(id, (spec, _))| wanted(id, spec));
        known.map(|(id, known)| (id.clone(), known.clone())).collect()
    }

    async fn load(&self, mgr: &Mgr, client: &Client) -> Result<Schedules, ClientError> {
        let mut all = BTreeMap::new();
        let global = mgr.config.str(self.option());
        if !global.is_empty() {
            match Schedule::parse(&global) {
                Ok(schedule) => {
                    all.insert(String::new(), (LevelSpec::default(), schedule));
                }
                Err(why) => tracing::warn!("option {}: {why}", self.option()),
            }
        }
        for (pool, name) in rbd_pools(client) {
            let stored = async {
                let io = client.io_ctx(&name).await?;
                let stored = io.omap_get(self.object()).await?;
                Ok::<_, ClientError>((io, stored))
            };
            let (io, stored) = match stored.await {
                Err(error) if is_the_end(&error) => return Err(error),
                Err(ClientError::Errno(Errno::ENOENT)) => continue,
                Err(error) => {
                    tracing::warn!("schedules of pool {name} stay as they were: {error}");
                    all.extend(self.known_schedules(|_, spec| spec.pool() == Some(pool)));
                    continue;
                }
                Ok(stored) => stored,
            };
            let mut stale = Vec::new();
            for (key, value) in stored {
                let (id, text) = (key.to_string(), String::from_utf8_lossy(&value).into_owned());
                let spec = match LevelSpec::from_id(client, self.kind, &id).await {
                    Ok(spec) => spec,
                    Err(LevelError::Invalid(why)) => {
                        tracing::info!("the schedule of {id} in pool {pool} goes: {why}");
                        stale.push(key);
                        continue;
                    }
                    Err(LevelError::Client(error)) if is_the_end(&error) => return Err(error),
                    Err(LevelError::Client(error)) => {
                        tracing::warn!("the schedule of {id} stays as it was: {error}");
                        all.extend(self.known_schedules(|known, _| *known == id));
                        continue;
                    }
                };
                if spec.pool() != Some(pool) {
                    tracing::warn!(
                        "pool {name} has a schedule of {id}, which is elsewhere: left out"
                    );
                    continue;
                }
                match Schedule::parse(&text) {
                    Ok(schedule) if all.len() < LEVELS_MAX => {
                        all.insert(id, (spec, schedule));
                    }
                    Ok(_) => tracing::warn!("too many schedules: that of {id} is left out"),
                    Err(why) => tracing::warn!("the schedule of {id} in pool {pool}: {why}"),
                }
            }
            if !stale.is_empty() {
                let _ = io.operate(self.object(), Operation::new().omap_rm_keys(&stale)).await;
            }
        }
        Ok(all)
    }

    async fn items_of(
        &self,
        client: &Client,
        schedules: &Schedules,
        pool: i64,
        name: &str,
    ) -> Result<BTreeMap<Item, String>, ClientError> {
        let io = client.io_ctx(name).await?;
        let mut namespaces = vec![String::new()];
        namespaces.extend(rbd::namespace_list(&io).await?);
        let mut items = BTreeMap::new();
        for namespace in namespaces {
            let item = |image| Item { pool, namespace: namespace.clone(), image };
            if self.kind == Kind::TrashPurge {
                items.insert(item(None), name.to_owned());
                continue;
            }
            let wanted = LevelSpec::of_namespace(pool, &namespace);
            if !schedules.values().any(|(spec, _)| spec.intersects(&wanted)) {
                continue;
            }
            let io = io.clone().with_namespace(namespace.as_str());
            for id in rbd::mirror_images(&io).await? {
                let image = match primary_by_snapshots(&io, &id).await {
                    Ok(Some(image)) => image,
                    Ok(None) => continue,
                    Err(error) if is_the_end(&error) => return Err(error),
                    Err(error) => {
                        tracing::warn!("image {id} of pool {name} counts as before: {error}");
                        let this = item(Some(id));
                        items.extend(self.known(|known| *known == this));
                        continue;
                    }
                };
                let shown = match namespace.as_str() {
                    "" => format!("{name}/{image}"),
                    namespace => format!("{name}/{namespace}/{image}"),
                };
                items.insert(item(Some(id)), shown);
            }
        }
        Ok(items)
    }

    /// A level's schedule as it is kept. A change goes on from here and not from what is known: a pool
    /// that could not be read, or somebody else's change, would be lost with what is saved.
    async fn stored(
        &self,
        mgr: &Mgr,
        client: &Client,
        spec: &LevelSpec,
    ) -> Result<Schedule, CommandReply> {
        let text = match spec.pool() {
            None => mgr.config.str(self.option()),
            Some(pool) => {
                let what = format!("Failed to operate read op for oid {}", self.object());
                let name = client.osdmap().pool_names.get(&pool).cloned().unwrap_or_default();
                let io = client.io_ctx(&name).await.map_err(|e| rados_error(&e, ""))?;
                let all = there(io.omap_get(self.object()).await);
                let mut all = all.map_err(|e| rados_error(&e, &what))?.unwrap_or_default();
                let text = all.remove(&BString::from(spec.id.as_str())).unwrap_or_default();
                String::from_utf8_lossy(&text).into_owned()
            }
        };
        if text.is_empty() {
            return Ok(Schedule::default());
        }
        // What nobody understands is not done either: it may be replaced.
        Ok(Schedule::parse(&text).unwrap_or_default())
    }

    async fn save(
        &self,
        mgr: &Mgr,
        client: &Client,
        spec: &LevelSpec,
        schedule: &Schedule,
    ) -> Result<(), CommandReply> {
        let text = json::indented(&schedule.to_value());
        let Some(pool) = spec.pool() else {
            return mgr.set_option(self.option(), (!schedule.is_empty()).then_some(text)).await;
        };
        let name = client.osdmap().pool_names.get(&pool).cloned().unwrap_or_default();
        let io = client.io_ctx(&name).await.map_err(|e| rados_error(&e, ""))?;
        let key = BString::from(spec.id.as_str());
        let op = if schedule.is_empty() {
            Operation::new().omap_rm_keys(&[key])
        } else {
            Operation::new().omap_set(&[(key, Bytes::from(text))].into())
        };
        let what = format!("Failed to operate write op for oid {}", self.object());
        io.operate(self.object(), op).await.map_err(|e| rados_error(&e, &what))?;
        Ok(())
    }

    // --- What is due

    /// Does what is due until `alive` says no.
    pub(super) async fn run(&self, mgr: Rc<Mgr>, client: Client, alive: impl Fn() -> bool) {
        while alive() {
            let due = self.refreshed.get().is_none_or(|at| mgr.env.now() >= at + REFRESH);
            if due {
                let _turn = self.turn.acquire(1).await;
                if let Err(error) = self.refresh(&mgr, &client).await {
                    tracing::warn!("{}: {error}", self.object());
                    mgr.rbd_support.failed(&error);
                    self.refreshed.set(Some(mgr.env.now()));
                }
            }
            if !alive() {
                return;
            }
            let now = now_of(&mgr);
            let item = self.state.borrow_mut().take_due(now);
            if let Some(item) = item {
                self.act(&mgr, &client, &item).await;
                self.state.borrow_mut().enqueue(item, now_of(&mgr));
                continue;
            }
            let next = self.state.borrow().queue.keys().next().copied();
            let until_next = next
                .map_or(REFRESH, |at| Duration::from_secs(at).saturating_sub(mgr.env.wall_clock()));
            let refresh_at = self.refreshed.get().unwrap_or_default() + REFRESH;
            let wait = until_next.min(refresh_at.saturating_sub(mgr.env.now()));
            let _ = mgr.env.timeout(wait, self.changed.notified()).await;
        }
    }

    async fn act(&self, mgr: &Rc<Mgr>, client: &Client, item: &Item) {
        let name = client.osdmap().pool_names.get(&item.pool).cloned().unwrap_or_default();
        let Ok(io) = client.io_ctx(&name).await else { return };
        let io = io.with_namespace(item.namespace.as_str()).with_flags(message_flags::FULL_TRY);
        let Some(id) = item.image.clone() else {
            let now = u32::try_from(now_of(mgr)).unwrap_or(u32::MAX);
            if let Err(error) = rbd::trash_purge(&io, now).await {
                tracing::warn!("purging the trash of {name}/{}: {error}", item.namespace);
                mgr.rbd_support.failed(&error);
            }
            return;
        };
        if !self.pending.borrow_mut().insert(item.clone()) {
            tracing::info!("{name}/{id}: the snapshot before is not done yet");
            return;
        }
        let (mgr, item) = (mgr.clone(), item.clone());
        let env = mgr.env.clone();
        env.go(async move {
            let this = &mgr.rbd_support.mirror;
            let _one = this.snapshots.acquire(1).await;
            if let Err(error) = snapshot(&io, &id).await {
                tracing::warn!("a mirror snapshot of {name}/{id}: {error}");
                mgr.rbd_support.failed(&error);
            }
            this.pending.borrow_mut().remove(&item);
        });
    }

    // --- Commands

    /// `add`, `remove`, `list`, `status`.
    pub(super) async fn command(
        &self,
        mgr: &Mgr,
        client: &Client,
        what: &str,
        map: &CommandMap,
    ) -> CommandReply {
        let text = |key: &str| map.opt_string(key).ok().flatten();
        let name = text("level_spec").unwrap_or_default();
        let level = match LevelSpec::from_name(client, self.kind, &name).await {
            Ok(level) => level,
            Err(LevelError::Invalid(why)) => {
                return CommandReply::error(EINVAL, format!("Invalid level spec {name}: {why}"));
            }
            Err(LevelError::Client(error)) => {
                mgr.rbd_support.failed(&error);
                return rados_error(&error, "");
            }
        };
        let (interval, start) = (text("interval"), text("start_time"));
        match what {
            "add" | "remove" => {
                let add = what == "add";
                let interval = interval.as_deref();
                match self.change(mgr, client, level, add, interval, start.as_deref()).await {
                    Ok(()) => CommandReply::default(),
                    Err(reply) => reply,
                }
            }
            "list" => CommandReply::data(json::indented(&self.state.borrow().list(&level))),
            _ => CommandReply::data(json::indented(&self.status(&level))),
        }
    }

    async fn change(
        &self,
        mgr: &Mgr,
        client: &Client,
        level: LevelSpec,
        add: bool,
        interval: Option<&str>,
        start: Option<&str>,
    ) -> Result<(), CommandReply> {
        let _turn = self.turn.acquire(1).await;
        let mut schedule = self.stored(mgr, client, &level).await?;
        let changed = match (add, interval) {
            (true, interval) => schedule.add(interval.unwrap_or_default(), start),
            (false, None) => {
                schedule = Schedule::default();
                Ok(())
            }
            (false, Some(interval)) => schedule.remove(interval, start),
        };
        changed.map_err(|why| CommandReply::error(EINVAL, why))?;
        self.save(mgr, client, &level, &schedule).await?;
        {
            let mut state = self.state.borrow_mut();
            let mut schedules = state.schedules.clone();
            if schedule.is_empty() {
                schedules.remove(&level.id);
            } else {
                schedules.insert(level.id.clone(), (level, schedule));
            }
            state.follow(schedules);
        }
        if let Err(error) = self.refresh(mgr, client).await {
            mgr.rbd_support.failed(&error);
        }
        self.state.borrow_mut().rebuild(now_of(mgr));
        self.changed.notify_all();
        Ok(())
    }

    fn status(&self, level: &LevelSpec) -> Value {
        let state = self.state.borrow();
        let mut scheduled = Vec::new();
        for (at, items) in &state.queue {
            for item in items {
                let Some(name) = state.items.get(item) else { continue };
                if !level.matches(item.pool, &item.namespace, item.image.as_deref()) {
                    continue;
                }
                let at = time_text(*at);
                scheduled.push(match self.kind {
                    Kind::TrashPurge => json!({
                        "schedule_time": at,
                        "pool_id": item.pool.to_string(),
                        "pool_name": name,
                        "namespace": item.namespace,
                    }),
                    Kind::MirrorSnapshot => json!({"schedule_time": at, "image": name}),
                });
            }
        }
        match self.kind {
            Kind::TrashPurge => json!({"scheduled": scheduled}),
            Kind::MirrorSnapshot => json!({"scheduled_images": scheduled}),
        }
    }
}

/// The client has ended, or is shut out: what does not answer says nothing of what is there.
fn is_the_end(error: &ClientError) -> bool {
    matches!(error, ClientError::Errno(Errno::ESHUTDOWN) | ClientError::Closed)
}

/// Seconds since 1970.
fn now_of(mgr: &Mgr) -> u64 {
    mgr.env.wall_clock().as_secs()
}

/// The name of an image of which mirror snapshots are taken here.
async fn primary_by_snapshots(io: &IoCtx, id: &str) -> Result<Option<String>, ClientError> {
    let mirrored = rbd::mirror_image(io, id).await?;
    if mirrored.is_none_or(|image| image.mode != rbd::BY_SNAPSHOT) {
        return Ok(None);
    }
    let options = OpenOptions { read_only: true, snap: None };
    let Some(name) = there(rbd::image_name(io, id).await)? else { return Ok(None) };
    let image = Image::open_id(io, String::new(), id.to_owned(), &options).await;
    let Some(image) = there(image)? else { return Ok(None) };
    let primary = image.is_mirror_primary().await;
    let _ = image.close().await;
    Ok(primary?.then_some(name))
}

async fn snapshot(io: &IoCtx, id: &str) -> Result<(), ClientError> {
    let gone = |error: &ClientError| *error == ClientError::Errno(Errno::ENOENT);
    let name = match rbd::image_name(io, id).await {
        Err(error) if gone(&error) => return Ok(()),
        name => name?,
    };
    let image = Image::open_id(io, name, id.to_owned(), &OpenOptions::default()).await?;
    let taken = image.mirror_snapshot().await;
    let _ = image.close().await;
    taken.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(namespace: &str) -> Item {
        Item { pool: 2, namespace: namespace.to_owned(), image: None }
    }

    fn state(schedules: &[(&str, &str)]) -> State {
        let mut state = State::default();
        for (id, interval) in schedules {
            let mut schedule = Schedule::default();
            schedule.add(interval, None).unwrap();
            let mut spec = LevelSpec::default();
            spec.id.push_str(id);
            state.schedules.insert((*id).to_owned(), (spec, schedule));
        }
        for namespace in ["", "a"] {
            state.items.insert(item(namespace), "rbd".to_owned());
        }
        state
    }

    #[test]
    fn the_nearest_level_decides_and_what_is_due_comes_in_order() {
        let mut state = state(&[("2", "1h"), ("2/a", "1m")]);
        state.rebuild(0);
        assert_eq!(state.take_due(59), None);
        assert_eq!(state.take_due(60), Some(item("a")));
        assert_eq!(state.take_due(60), None);
        assert_eq!(state.take_due(3600), Some(item("")));
        state.enqueue(item("a"), 3600);
        assert_eq!(state.queue.keys().copied().collect::<Vec<_>>(), [3660]);
    }

    /// A look that was cut off by the client's end, which says `Closed`, counted as one that had found nothing: the
    /// next client began with no schedules, and what was added to one replaced it.
    #[test]
    fn a_client_that_has_ended_has_not_looked() {
        assert!(is_the_end(&ClientError::Closed));
        assert!(is_the_end(&Errno::EBLOCKLISTED.into()));
        assert!(!is_the_end(&Errno::EIO.into()) && !is_the_end(&Errno::ENOENT.into()));
    }

    /// While one namespace was purged, the schedule of another that had become due was taken away; it was purged all the same, with
    /// what its owner wanted back.
    #[test]
    fn what_is_due_by_a_schedule_that_has_gone_or_changed_is_not_done() {
        for (after, left) in [
            (vec![("2/a", "1m")], vec!["a"]),
            (vec![("2/", "1m"), ("2/a", "1d")], vec![""]),
            (vec![("2", "1m"), ("2/", "1m"), ("2/a", "1m")], vec!["", "a"]),
            (vec![], vec![]),
        ] {
            let after = state(&after).schedules;
            let mut state = state(&[("2/", "1m"), ("2/a", "1m")]);
            state.rebuild(0);
            state.follow(after);
            state.rebuild(61);
            let due: Vec<Item> = std::iter::from_fn(|| state.take_due(61)).collect();
            assert_eq!(due, left.iter().map(|namespace| item(namespace)).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_schedule_that_goes_takes_its_plans_along() {
        let mut state = state(&[("", "1m")]);
        state.rebuild(0);
        assert_eq!(state.queue[&60].len(), 2);
        state.schedules.clear();
        state.rebuild(30);
        assert!(state.queue.is_empty());
        state.items.remove(&item("a"));
        state.queue.insert(60, vec![item("a"), item("")]);
        state.rebuild(60);
        assert_eq!(state.take_due(60), Some(item("")));
    }
}
