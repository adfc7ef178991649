//! Tasks: long operations on images, done one after the other, kept in the pools' omaps until
//! they are done (`TaskHandler` in `src/pybind/mgr/rbd_support/task.py` at v16.2).
//!
//! ```text
//! POOL (and namespace): rbd_task    omap: sequence as 16 hex digits -> task
//! ```
//! What fails is tried again after 30 s, 60 s, ... up to 5 minutes. What cannot be done at all
//! (the image is gone) ends.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use bstr::BString;
use bytes::Bytes;
use client::rbd::{self, Image, MigrationState, OpenOptions};
use client::{Client, ClientError, IoCtx, Operation};
use command::{CommandMap, CommandReply};
use env::sync::{Notify, Semaphore};
use serde_json::Value;
use types::osd::ops::message_flags;
use types::{Errno, UTime, Uuid};

use super::level::found as there;
use super::task::{Action, Refs, Task};
use super::{Caller, EAGAIN, EINVAL, ENOENT, rados_error, rados_words, rbd_pools, rbd_words};
use crate::daemon::Mgr;
use crate::{json, progress};

/// Where tasks are kept.
const OBJECT: &str = "rbd_task";
/// Between two looks at what is due.
const TICK: Duration = Duration::from_secs(5);
const RETRY: Duration = Duration::from_secs(30);
const RETRY_MAX: Duration = Duration::from_secs(300);
/// Tasks remembered after they are done, for who asks for the same again.
const COMPLETED_MAX: usize = 50;
/// Tasks that wait at most.
const TASKS_MAX: usize = 65_536;

#[derive(Debug, Default)]
struct State {
    sequence: u64,
    tasks: BTreeMap<u64, Task>,
    completed: VecDeque<Task>,
    in_progress: Option<u64>,
}

/// See the module.
pub(super) struct Tasks {
    state: RefCell<State>,
    changed: Notify,
    /// Those who add take turns.
    turn: Semaphore,
    loaded: Cell<bool>,
}

impl Default for Tasks {
    fn default() -> Tasks {
        Tasks {
            state: RefCell::default(),
            changed: Notify::default(),
            turn: Semaphore::new(1),
            loaded: Cell::new(false),
        }
    }
}

impl State {
    fn find(&self, wanted: &Refs) -> Option<&Task> {
        let mut matching: Vec<&Task> =
            self.tasks.values().filter(|task| task.refs.answers(wanted)).collect();
        matching.sort_by(|a, b| a.id.cmp(&b.id));
        let completed = || self.completed.iter().rev().find(|task| task.refs.answers(wanted));
        matching.pop().or_else(completed)
    }

    /// Whether it may be done: who has canceled it meanwhile was told that it will not.
    fn begin(&mut self, sequence: u64) -> bool {
        let Some(task) = self.tasks.get_mut(&sequence) else { return false };
        task.in_progress = true;
        self.in_progress = Some(sequence);
        true
    }

    /// It is not under way any more; whether it was canceled.
    fn pause(&mut self, sequence: u64) -> bool {
        self.in_progress = None;
        let Some(task) = self.tasks.get_mut(&sequence) else { return true };
        task.in_progress = false;
        task.canceled
    }

    /// Tasks are shown under the names that their pools have now, and are for who may use those.
    fn rename_pools(&mut self, names: &BTreeMap<i64, String>) {
        for task in self.tasks.values_mut() {
            if let Some(name) = names.get(&task.pool_id) {
                task.refs.pool.clone_from(name);
            }
        }
    }

    fn by_id(&self, id: &str) -> Option<&Task> {
        self.tasks.values().find(|task| task.id == id)
    }
}

/// `[[pool/][namespace/]]image`, the pool given or not.
fn parse_spec(spec: &str) -> Option<(Option<&str>, &str, &str)> {
    let parts: Vec<&str> = spec.split('/').collect();
    let (pool, namespace, image) = match parts.as_slice() {
        [image] => (None, "", *image),
        [pool, image] => (Some(*pool), "", *image),
        [pool, namespace, image] if !namespace.is_empty() => (Some(*pool), *namespace, *image),
        _ => return None,
    };
    let fits = !image.is_empty() && !image.contains('@') && pool != Some("");
    fits.then_some((pool, namespace, image))
}

/// `pool/namespace/image` without what is empty.
fn spec_text(pool: &str, namespace: &str, image: &str) -> String {
    let parts = [pool, namespace, image];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/")
}

fn rbd_error(errno: Errno, what: String) -> CommandReply {
    CommandReply::error(errno.0, rbd_words(&errno.into(), &what))
}

/// What makes a full pool emptier does not wait until it is; the rest is refused there, and tried again.
async fn open(client: &Client, pool: &str, namespace: &str) -> Result<IoCtx, ClientError> {
    let io = client.io_ctx(pool).await?.with_namespace(namespace);
    Ok(io.with_flags(message_flags::FULL_TRY))
}

/// Where a task's image is: its pool may have another name by now, and its name be another pool's.
async fn open_of(client: &Client, task: &Task) -> Result<IoCtx, ClientError> {
    let name = client.osdmap().pool_names.get(&task.pool_id).cloned();
    open(client, &name.ok_or(Errno::ENOENT)?, &task.refs.namespace).await
}

/// The list of tasks may grow in a full pool, too.
fn list_of(io: &IoCtx) -> IoCtx {
    io.clone().with_flags(message_flags::FULL_FORCE)
}

impl Tasks {
    pub(super) fn wake(&self) {
        self.changed.notify_all();
    }

    /// Forgets all: another manager does it now.
    pub(super) fn reset(&self) {
        *self.state.borrow_mut() = State::default();
        self.loaded.set(false);
    }

    /// Reads what there is to do.
    pub(super) async fn load(&self, client: &Client) -> Result<(), ClientError> {
        for (pool_id, pool) in rbd_pools(client) {
            let Ok(io) = client.io_ctx(&pool).await else { continue };
            let mut namespaces = vec![String::new()];
            match rbd::namespace_list(&io).await {
                Ok(names) => namespaces.extend(names),
                Err(error @ ClientError::Errno(Errno::ESHUTDOWN)) => return Err(error),
                Err(error) => tracing::warn!("namespaces of pool {pool}: {error}"),
            }
            for namespace in namespaces {
                let io = io.clone().with_namespace(namespace.as_str());
                let stored = match io.omap_get(OBJECT).await {
                    Ok(stored) => stored,
                    Err(ClientError::Errno(Errno::ENOENT)) => continue,
                    Err(error) => return Err(error),
                };
                for (key, value) in stored {
                    let mut state = self.state.borrow_mut();
                    match Task::parse(&String::from_utf8_lossy(&value)) {
                        Ok(mut task) if state.tasks.len() < TASKS_MAX => {
                            // Who may write here may have it done here, and nowhere else.
                            task.pool_id = pool_id;
                            task.refs.pool.clone_from(&pool);
                            task.refs.namespace.clone_from(&namespace);
                            state.sequence = state.sequence.max(task.sequence);
                            state.tasks.insert(task.sequence, task);
                        }
                        Ok(_) => tracing::warn!("too many tasks: {key} of {pool} is left out"),
                        Err(why) => tracing::warn!("task {key} of pool {pool}: {why}"),
                    }
                }
            }
        }
        self.loaded.set(true);
        Ok(())
    }

    /// Does what is due until `alive` says no.
    pub(super) async fn run(&self, mgr: Rc<Mgr>, client: Client, alive: impl Fn() -> bool) {
        while alive() {
            let changed = self.changed.notified();
            let now = wall(&mgr);
            let due: Vec<u64> = {
                let state = self.state.borrow();
                let due = |task: &&Task| task.retry_time.is_none_or(|at| at <= now);
                state.tasks.values().filter(due).map(|task| task.sequence).collect()
            };
            for sequence in due {
                if !alive() {
                    return;
                }
                self.execute(&mgr, &client, sequence, &alive).await;
            }
            let _ = mgr.env.timeout(TICK, changed).await;
        }
    }

    async fn execute(&self, mgr: &Mgr, client: &Client, sequence: u64, alive: &impl Fn() -> bool) {
        self.state.borrow_mut().rename_pools(&client.osdmap().pool_names);
        let Some(task) = self.state.borrow().tasks.get(&sequence).cloned() else { return };
        let refs = task.refs.clone();
        let io = match open_of(client, &task).await {
            Ok(io) => io,
            Err(ClientError::Errno(Errno::ENOENT)) => {
                // With its pool the task is gone, too.
                if let Some(task) = self.state.borrow_mut().tasks.remove(&sequence) {
                    progress::end(mgr, &task.id, Some("its pool is gone".to_owned()));
                }
                return;
            }
            Err(error) => return self.retry_later(mgr, sequence, rados_reason(&error)),
        };
        if !self.state.borrow_mut().begin(sequence) {
            return;
        }
        let tell = |done: u64, all: u64| {
            let mut state = self.state.borrow_mut();
            let Some(task) = state.tasks.get_mut(&sequence) else { return false };
            task.progress = done as f64 / all.max(1) as f64;
            progress::update(mgr, &task.id, &task.message, task.shown_refs(), task.progress);
            !task.canceled && alive()
        };
        let outcome = act(&io, &refs, &tell).await;
        let canceled = self.state.borrow_mut().pause(sequence);
        let failure = match outcome {
            Ok(()) => None,
            Err(Ended::Never(why)) => Some(why),
            // Whatever it has ended with: it is not tried again.
            Err(Ended::Now(..)) if canceled && alive() => None,
            Err(Ended::Now(error, what)) => {
                mgr.rbd_support.failed(&error);
                return self.retry_later(mgr, sequence, rbd_words(&error, what));
            }
        };
        let ended = {
            let mut state = self.state.borrow_mut();
            let Some(task) = state.tasks.get_mut(&sequence) else { return };
            if let Some(why) = failure {
                tracing::info!("{}: {why}", task.message);
                task.failure = Some(why.to_owned());
            }
            task.clone()
        };
        if let Err(error) = forget(&io, &ended).await {
            return self.retry_later(mgr, sequence, rados_reason(&error));
        }
        told_end(mgr, &ended);
        let mut state = self.state.borrow_mut();
        state.tasks.remove(&sequence);
        if ended.failure.is_none() && !ended.canceled {
            state.completed.push_back(ended);
            while state.completed.len() > COMPLETED_MAX {
                state.completed.pop_front();
            }
        }
    }

    fn retry_later(&self, mgr: &Mgr, sequence: u64, why: String) {
        let mut state = self.state.borrow_mut();
        let Some(task) = state.tasks.get_mut(&sequence) else { return };
        tracing::warn!("{}: {why}", task.message);
        task.retry_message = Some(why);
        task.retry_attempts += 1;
        let wait = (RETRY * task.retry_attempts.min(10)).min(RETRY_MAX);
        task.retry_time = Some(wall(mgr).plus(wait));
    }

    // --- Commands

    /// `add ...`, `cancel`, `list`.
    pub(super) async fn command(
        &self,
        mgr: &Mgr,
        client: &Client,
        caller: &Caller,
        what: &str,
        map: &CommandMap,
    ) -> CommandReply {
        self.state.borrow_mut().rename_pools(&client.osdmap().pool_names);
        let text = |key: &str| map.opt_string(key).ok().flatten();
        let action = match what {
            "add flatten" => Action::Flatten,
            "add remove" => Action::Remove,
            "add trash remove" => Action::TrashRemove,
            "add migration execute" => Action::MigrationExecute,
            "add migration commit" => Action::MigrationCommit,
            "add migration abort" => Action::MigrationAbort,
            "cancel" => {
                let id = text("task_id").unwrap_or_default();
                return self.cancel(mgr, client, caller, &id).await;
            }
            _ => return self.list(caller, text("task_id").as_deref()),
        };
        let key = if action == Action::TrashRemove { "image_id_spec" } else { "image_spec" };
        let spec = text(key).unwrap_or_default();
        let Some((pool, namespace, image)) = parse_spec(&spec) else {
            return CommandReply::error(EINVAL, format!("Invalid image spec: {spec}"));
        };
        let default = mgr.config.str("rbd_default_pool");
        let pool = pool.map_or(default, str::to_owned);
        if let Err(refused) = caller.check(&pool, namespace) {
            return refused;
        }
        let of_trash = action == Action::TrashRemove;
        let refs = Refs {
            action,
            pool,
            namespace: namespace.to_owned(),
            image: (!of_trash).then(|| image.to_owned()),
            image_id: of_trash.then(|| image.to_owned()),
        };
        let _turn = self.turn.acquire(1).await;
        match self.add(mgr, client, refs, image).await {
            Ok(text) => CommandReply::data(text),
            Err(reply) => reply,
        }
    }

    async fn add(
        &self,
        mgr: &Mgr,
        client: &Client,
        mut refs: Refs,
        image: &str,
    ) -> Result<String, CommandReply> {
        let io = match open(client, &refs.pool, &refs.namespace).await {
            Ok(io) => io,
            Err(error) => {
                mgr.rbd_support.failed(&error);
                let what = format!("error opening pool '{}'", refs.pool);
                return Err(rados_error(&error, &what));
            }
        };
        let shown = spec_text(&refs.pool, &refs.namespace, image);
        let message = match facts(&io, &mut refs, image).await {
            Ok(facts) => {
                if let Some(task) = self.state.borrow().find(&refs) {
                    return Ok(task.text());
                }
                check(client, &refs, facts, &shown)?
            }
            Err(error) => {
                mgr.rbd_support.failed(&error);
                let errno = if let ClientError::Errno(e) = error { e.0 } else { EAGAIN };
                return Err(CommandReply::error(errno, rbd_words(&error, "error opening image")));
            }
        };
        let task = {
            let mut state = self.state.borrow_mut();
            if state.tasks.len() >= TASKS_MAX {
                return Err(CommandReply::error(
                    EAGAIN,
                    "too many tasks; wait until some are done",
                ));
            }
            state.sequence += 1;
            let mut random = [0; 16];
            mgr.env.fill_random(&mut random);
            let id = Uuid::from_random(random).to_string();
            let task = Task::new(state.sequence, id, message, refs);
            Task { pool_id: io.pool_id(), ..task }
        };
        let text = task.text();
        let values = [(BString::from(task.key()), Bytes::from(text.clone()))];
        let set = Operation::new().omap_set(&values.into());
        list_of(&io).operate(OBJECT, set).await.map_err(|e| {
            rados_error(&e, &format!("Failed to operate write op for oid {OBJECT}"))
        })?;
        self.state.borrow_mut().tasks.insert(task.sequence, task);
        self.changed.notify_all();
        Ok(text)
    }

    async fn cancel(&self, mgr: &Mgr, client: &Client, caller: &Caller, id: &str) -> CommandReply {
        let task = {
            let mut state = self.state.borrow_mut();
            let known = state.tasks.values_mut().find(|task| task.id == id);
            let Some(task) = known.filter(|t| caller.may(&t.refs.pool, &t.refs.namespace)) else {
                return CommandReply::error(ENOENT, format!("No such task {id}"));
            };
            task.canceled = true;
            task.failure = Some("Operation canceled".to_owned());
            let task = task.clone();
            // The end of one that is under way is told where it ends.
            if state.in_progress != Some(task.sequence) {
                state.tasks.remove(&task.sequence);
                told_end(mgr, &task);
            }
            task
        };
        let forgotten = match open_of(client, &task).await {
            Ok(io) => forget(&io, &task).await,
            Err(error) => Err(error),
        };
        match forgotten {
            Ok(()) => CommandReply::default(),
            Err(error) => {
                mgr.rbd_support.failed(&error);
                rados_error(&error, "")
            }
        }
    }

    fn list(&self, caller: &Caller, id: Option<&str>) -> CommandReply {
        let state = self.state.borrow();
        let may = |task: &&Task| caller.may(&task.refs.pool, &task.refs.namespace);
        let value = match id.filter(|id| !id.is_empty()) {
            None => Value::Array(state.tasks.values().filter(may).map(Task::value).collect()),
            Some(id) => match state.by_id(id).filter(may) {
                Some(task) => task.value(),
                None => return CommandReply::error(ENOENT, format!("No such task {id}")),
            },
        };
        CommandReply::data(json::indented(&value))
    }
}

/// Tells of the task's end, and before, if nothing was told, that there was one.
fn told_end(mgr: &Mgr, task: &Task) {
    progress::update(mgr, &task.id, &task.message, task.shown_refs(), task.progress);
    progress::end(mgr, &task.id, task.failure.clone());
}

fn wall(mgr: &Mgr) -> UTime {
    UTime::from_duration(mgr.env.wall_clock())
}

fn rados_reason(error: &ClientError) -> String {
    match error {
        ClientError::Errno(errno) => rados_words(*errno, &format!("oid {OBJECT}")),
        other => other.to_string(),
    }
}

async fn forget(io: &IoCtx, task: &Task) -> Result<(), ClientError> {
    let remove = Operation::new().omap_rm_keys(&[BString::from(task.key())]);
    match list_of(io).operate(OBJECT, remove).await {
        Err(ClientError::Errno(Errno::ENOENT)) => Ok(()),
        other => other.map(drop),
    }
}

/// What is known of an image before a task is added.
enum Facts {
    Gone,
    Image { has_parent: bool, has_snaps: bool },
    InTrash,
    Migration(rbd::Migration),
}

/// Looks, and puts the image's id into `refs`.
async fn facts(io: &IoCtx, refs: &mut Refs, image: &str) -> Result<Facts, ClientError> {
    match refs.action {
        Action::TrashRemove => match rbd::trash_get(io, image).await {
            Ok(_) => Ok(Facts::InTrash),
            Err(ClientError::Errno(Errno::ENOENT)) => Ok(Facts::Gone),
            Err(error) => Err(error),
        },
        Action::Flatten | Action::Remove => {
            let options = OpenOptions { read_only: true, snap: None };
            let image = match Image::open(io, image, &options).await {
                Err(ClientError::Errno(Errno::ENOENT)) => return Ok(Facts::Gone),
                image => image?,
            };
            refs.image_id = Some(image.id().to_owned());
            let (has_parent, has_snaps) =
                (image.info().parent.is_some(), !image.snapshots().is_empty());
            let _ = image.close().await;
            Ok(Facts::Image { has_parent, has_snaps })
        }
        _ => match rbd::migration(io, image).await {
            Err(ClientError::Errno(Errno::ENOENT | Errno::EINVAL)) => Ok(Facts::Gone),
            migration => {
                let migration = migration?;
                refs.image_id = Some(migration.dest.id.clone());
                Ok(Facts::Migration(migration))
            }
        },
    }
}

/// What the new task says of itself, or why there is none.
fn check(client: &Client, refs: &Refs, facts: Facts, shown: &str) -> Result<String, CommandReply> {
    let migration = match facts {
        Facts::Gone => {
            return Err(match refs.action {
                Action::TrashRemove => {
                    rbd_error(Errno::ENOENT, "error retrieving image from trash".to_owned())
                }
                Action::Flatten | Action::Remove => {
                    rbd_error(Errno::ENOENT, format!("Image {shown} does not exist"))
                }
                _ => rbd_error(Errno::EINVAL, format!("Image {shown} is not migrating")),
            });
        }
        Facts::InTrash => return Ok(format!("Removing image {shown} from trash")),
        Facts::Image { has_parent: false, .. } if refs.action == Action::Flatten => {
            return Err(rbd_error(Errno::ENOENT, format!("Image {shown} does not have a parent")));
        }
        Facts::Image { .. } if refs.action == Action::Flatten => {
            return Ok(format!("Flattening image {shown}"));
        }
        Facts::Image { has_snaps: true, .. } => {
            return Err(rbd_error(Errno::EBUSY, format!("Image {shown} has snapshots")));
        }
        Facts::Image { .. } => return Ok(format!("Removing image {shown}")),
        Facts::Migration(migration) => migration,
    };
    let state = migration.state;
    match refs.action {
        Action::MigrationExecute
            if !matches!(state, MigrationState::Prepared | MigrationState::Executing) =>
        {
            Err(rbd_error(Errno::EINVAL, format!("Image {shown} is not in ready state")))
        }
        Action::MigrationExecute => {
            let names = &client.osdmap().pool_names;
            let text = |end: &rbd::MigrationEnd| {
                let pool = names.get(&end.pool).map_or("<unknown>", String::as_str);
                spec_text(pool, &end.namespace, &end.name)
            };
            let (source, dest) = (text(&migration.source), text(&migration.dest));
            Ok(format!("Migrating image {source} to {dest}"))
        }
        Action::MigrationCommit if state != MigrationState::Executed => {
            Err(rbd_error(Errno::EINVAL, format!("Image {shown} has not completed migration")))
        }
        Action::MigrationCommit => Ok(format!("Committing image migration for {shown}")),
        _ => Ok(format!("Aborting image migration for {shown}")),
    }
}

/// Why a task did not do what it should.
enum Ended {
    /// It never will.
    Never(&'static str),
    /// Not now; what Ceph was doing.
    Now(ClientError, &'static str),
}

/// Whether the image's name is another's by now: what a task was told to remove is not what has come in its place. (In Ceph it is.) A
/// name that is nobody's is left to who acts: a removal that was cut off goes on.
async fn is_anothers(io: &IoCtx, refs: &Refs) -> Result<bool, ClientError> {
    let (Action::Flatten | Action::Remove, Some(name), Some(id)) =
        (refs.action, &refs.image, &refs.image_id)
    else {
        return Ok(false);
    };
    Ok(there(rbd::image_id(io, name).await)?.is_some_and(|now| now != *id))
}

async fn act(io: &IoCtx, refs: &Refs, tell: rbd::OnProgress<'_>) -> Result<(), Ended> {
    match is_anothers(io, refs).await {
        Ok(false) => {}
        Ok(true) => return Err(Ended::Never("Image does not exist")),
        Err(error) => return Err(Ended::Now(error, "error opening image")),
    }
    let name = refs.image.clone().unwrap_or_default();
    let (done, unfit, what) = match refs.action {
        Action::Flatten => (
            flatten(io, &name, tell).await,
            Some("Image does not have parent"),
            "error flattening image",
        ),
        Action::Remove => (rbd::remove_with(io, &name, tell).await, None, "error removing image"),
        Action::TrashRemove => {
            let id = refs.image_id.clone().unwrap_or_default();
            (rbd::trash_remove(io, &id, false, tell).await, None, "error deleting image from trash")
        }
        Action::MigrationExecute => (
            rbd::migration_execute(io, &name, tell).await,
            Some("Image is not migrating"),
            "error executing migration",
        ),
        Action::MigrationCommit => (
            rbd::migration_commit(io, &name, tell).await,
            Some("Image is not migrating or migration not executed"),
            "error committing migration",
        ),
        Action::MigrationAbort => (
            rbd::migration_abort(io, &name, tell).await,
            Some("Image is not migrating"),
            "error aborting migration",
        ),
    };
    match (done, unfit) {
        (Ok(()), _) => Ok(()),
        (Err(ClientError::Errno(Errno::ENOENT)), _) => Err(Ended::Never("Image does not exist")),
        (Err(ClientError::Errno(Errno::EINVAL)), Some(why)) => Err(Ended::Never(why)),
        (Err(error), _) => Err(Ended::Now(error, what)),
    }
}

async fn flatten(io: &IoCtx, name: &str, tell: rbd::OnProgress<'_>) -> Result<(), ClientError> {
    let image = Image::open(io, name, &OpenOptions::default()).await?;
    let done = image.flatten_with(tell).await;
    let closed = image.close().await;
    done.and(closed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Found by reading: a task that was canceled when it was about to begin began all the same, and one
    /// that was canceled under way and failed otherwise was tried again: who was told that an image stays
    /// lost its first objects.
    #[test]
    fn what_is_canceled_is_not_begun_again() {
        let mut state = State::default();
        let refs = Refs {
            action: Action::Remove,
            pool: "p".to_owned(),
            namespace: String::new(),
            image: Some("i".to_owned()),
            image_id: None,
        };
        let new = |n| Task::new(n, n.to_string(), String::new(), refs.clone());
        state.tasks.insert(1, new(1));
        assert!(state.begin(1));
        assert!(!state.pause(1), "it may be tried again");
        assert!(state.begin(1));
        state.tasks.get_mut(&1).unwrap().canceled = true;
        assert!(state.pause(1), "it may not");
        state.tasks.remove(&1);
        assert!(!state.begin(1));
        assert_eq!(state.in_progress, None);
    }

    #[test]
    fn specs_read_as_in_ceph() {
        assert_eq!(parse_spec("i"), Some((None, "", "i")));
        assert_eq!(parse_spec("p/i"), Some((Some("p"), "", "i")));
        assert_eq!(parse_spec("p/n/i"), Some((Some("p"), "n", "i")));
        for bad in ["", "/", "p/", "/i", "p//i", "p/n/", "a/b/c/d", "p/i@s"] {
            assert_eq!(parse_spec(bad), None, "{bad}");
        }
        assert_eq!(spec_text("p", "", "i"), "p/i");
    }
}
