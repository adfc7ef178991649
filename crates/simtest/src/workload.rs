//! Clients that write, read and remember: every value is written once, and whatever is answered is
//! judged by the object's history.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use bstr::BString;
use bytes::Bytes;
use client::{ClientError, IoCtx};
use env::Env;
use sim::{Control, History, Judged, OpId, Rng};
use types::osd::ops::message_flags;
use types::{Errno, SnapContext};

use crate::diary;
use crate::object::{Action, Answer, Object, State, content_of};

/// What a workload consists of.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Clients at a time.
    pub clients: u32,
    /// Objects, shared by all clients.
    pub objects: u64,
    /// Bytes of a slot of an object's content.
    pub slot_len: usize,
    /// Slots of an object, but for those that appends add.
    pub slots_max: usize,
    /// Longest pause between two operations of a client.
    pub pause_max: Duration,
    /// Share of operations that read.
    pub reads: f64,
    /// Probability that an operation begins with a new snapshot.
    pub snaps: f64,
    /// Snapshots are the pool's, made and removed meanwhile.
    pub pool_snaps: bool,
    /// The pool keeps omap.
    pub omap: bool,
    /// Objects are cut, get holes, lose keys and go back to snapshots.
    pub reshapes: bool,
    /// Share of reads that any copy may answer.
    pub of_any_copy: f64,
    /// Share of reads that are ordered among the object's writes.
    pub ordered: f64,
}

impl Load {
    /// What a seed brings: few large writes or many small ones, aligned or not.
    pub fn of(rng: &Rng) -> Load {
        Load {
            clients: 1 + rng.below(4) as u32,
            objects: 2 + rng.below(16),
            slot_len: *rng.pick(&[64, 500, 512, 1000, 4096, 5000, 16384]),
            slots_max: 1 + rng.below(6) as usize,
            pause_max: Duration::from_millis(*rng.pick(&[50, 100, 200])),
            reads: 0.2 + 0.6 * rng.unit(),
            snaps: *rng.pick(&[0.0, 0.0, 0.01, 0.05]),
            pool_snaps: false,
            omap: true,
            reshapes: false,
            of_any_copy: *rng.pick(&[0.0, 0.0, 0.3, 0.6]),
            ordered: *rng.pick(&[0.0, 0.1, 0.5]),
        }
    }

    /// Several clients on few objects, quickly: each sees what the others do.
    pub(crate) fn crowd(&mut self) {
        self.clients = self.clients.max(2);
        self.objects = self.objects.min(5);
        self.pause_max = Duration::from_millis(50);
    }
}

struct Shared {
    world: Control,
    load: Load,
    histories: RefCell<BTreeMap<String, History<Object>>>,
    next_value: Cell<u64>,
    /// What clients were last told that the last write of an object is.
    last_told: RefCell<BTreeMap<String, u64>>,
    /// The newest snapshot.
    snap: Cell<u64>,
    /// The pool's snapshots.
    pool_snaps: RefCell<BTreeSet<u64>>,
    /// Reads of snapshots that are under way.
    snap_reads: RefCell<BTreeMap<u64, usize>>,
    reads: Cell<u64>,
    writes: Cell<u64>,
    unclear: Cell<u64>,
    stopped: Cell<bool>,
    running: Cell<usize>,
}

/// See the module.
#[derive(Clone)]
pub struct Workload(Rc<Shared>);

/// Counts a client as long as it runs.
pub(crate) struct Running(Rc<Shared>);

impl Running {
    fn new(shared: &Rc<Shared>) -> Running {
        shared.running.set(shared.running.get() + 1);
        Running(shared.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.set(self.0.running.get() - 1);
    }
}

/// An operation whose client has not been told of its outcome, and may die before.
struct Untold<'a> {
    load: Workload,
    object: &'a str,
    begun: OpId,
    told: bool,
}

impl Drop for Untold<'_> {
    fn drop(&mut self) {
        if !self.told {
            self.load.with(self.object, |history| history.abandon(self.begun));
        }
    }
}

/// A read of a snapshot that is under way.
struct SnapRead {
    load: Workload,
    snap: u64,
}

impl SnapRead {
    fn new(load: &Workload, action: &Action) -> Option<SnapRead> {
        let Action::ReadSnap { snap } = *action else { return None };
        *load.0.snap_reads.borrow_mut().entry(snap).or_default() += 1;
        Some(SnapRead { load: load.clone(), snap })
    }
}

impl Drop for SnapRead {
    fn drop(&mut self) {
        let mut reads = self.load.0.snap_reads.borrow_mut();
        if let Some(left) = reads.get_mut(&self.snap) {
            *left -= 1;
            if *left == 0 {
                reads.remove(&self.snap);
            }
        }
    }
}

impl Workload {
    /// A workload that nobody runs yet.
    pub fn new(world: &Control, load: Load) -> Workload {
        Workload(Rc::new(Shared {
            world: world.clone(),
            load,
            histories: RefCell::default(),
            next_value: Cell::new(1),
            last_told: RefCell::default(),
            snap: Cell::new(0),
            pool_snaps: RefCell::default(),
            snap_reads: RefCell::default(),
            reads: Cell::new(0),
            writes: Cell::new(0),
            unclear: Cell::new(0),
            stopped: Cell::new(false),
            running: Cell::new(0),
        }))
    }

    /// What it consists of.
    pub fn load(&self) -> Load {
        self.0.load
    }

    /// Reads and writes that were answered.
    pub fn answered(&self) -> (u64, u64) {
        (self.0.reads.get(), self.0.writes.get())
    }

    /// Answers that were not judged, as too many outcomes were unknown.
    pub fn unclear(&self) -> u64 {
        self.0.unclear.get()
    }

    /// Clients end after what they are doing.
    pub fn stop(&self) {
        self.0.stopped.set(true);
    }

    /// Whether clients end.
    pub(crate) fn stopped(&self) -> bool {
        self.0.stopped.get()
    }

    /// Counts as a client as long as it is kept.
    pub(crate) fn running_guard(&self) -> Running {
        Running::new(&self.0)
    }

    /// Something happens to all objects, to each at its own time.
    pub(crate) fn begin_everywhere(&self, action: &Action) -> Vec<(String, OpId)> {
        let now = self.0.world.now();
        let names = (0..self.0.load.objects).map(|n| format!("object{n}"));
        names
            .map(|name| {
                let begun = self.with(&name, |h| h.begin("the pool", action.clone(), now));
                (name, begun)
            })
            .collect()
    }

    /// It has happened everywhere.
    pub(crate) fn end_everywhere(&self, begun: Vec<(String, OpId)>) {
        for (name, op) in begun {
            let now = self.0.world.now();
            if let Err(broken) = self.with(&name, |h| h.end(op, &Answer::Done, now)) {
                panic!("{name}: {broken:?}");
            }
        }
    }

    /// A snapshot of the pool may be read.
    pub(crate) fn remember_snap(&self, snap: u64) {
        self.0.pool_snaps.borrow_mut().insert(snap);
    }

    /// It is read no more; returns when nobody is reading it.
    pub(crate) async fn forget_snap(&self, snap: u64) {
        self.0.pool_snaps.borrow_mut().remove(&snap);
        while self.0.snap_reads.borrow().contains_key(&snap) {
            self.0.world.sleep(Duration::from_millis(20)).await;
        }
    }

    /// Clients that have not ended.
    pub fn running(&self) -> usize {
        self.0.running.get()
    }

    /// Runs a client until [`Workload::stop`] or the end of its process.
    pub fn spawn(&self, env: &Env, name: &str, io: IoCtx, rng: Rng) {
        let (load, running, name) = (self.clone(), Running::new(&self.0), name.to_owned());
        env.go(async move {
            while !load.0.stopped.get() {
                let object = format!("object{}", rng.below(load.0.load.objects));
                let action = load.choose(&object, &rng);
                let io = load.way_to_read(&io, &rng);
                load.act(&name, &io, &object, action).await;
                let pause = rng.between(Duration::ZERO, load.0.load.pause_max);
                load.0.world.sleep(pause).await;
            }
            drop(running);
        });
    }

    /// For the next operation: if it is a read, any copy may answer it, or it is ordered among the
    /// writes, or neither.
    fn way_to_read(&self, io: &IoCtx, rng: &Rng) -> IoCtx {
        let load = self.0.load;
        match () {
            () if rng.chance(load.of_any_copy) => {
                io.clone().with_flags(message_flags::BALANCE_READS)
            }
            () if rng.chance(load.ordered) => io.clone().with_flags(message_flags::RWORDERED),
            () => io.clone(),
        }
    }

    /// The objects that clients have used.
    pub(crate) fn objects(&self) -> Vec<String> {
        self.0.histories.borrow().keys().cloned().collect()
    }

    /// Reads one object again and again until the process ends.
    pub(crate) fn spawn_reader(&self, env: &Env, name: &str, io: &IoCtx, object: &str, rng: Rng) {
        let (load, io) = (self.clone(), io.clone());
        let (name, object) = (name.to_owned(), object.to_owned());
        env.go(async move {
            loop {
                let io = load.way_to_read(&io, &rng);
                load.act(&name, &io, &object, Action::Read).await;
                let pause = rng.between(Duration::ZERO, Duration::from_millis(50));
                load.0.world.sleep(pause).await;
            }
        });
    }

    fn choose(&self, object: &str, rng: &Rng) -> Action {
        let Shared { load, .. } = &*self.0;
        if rng.chance(load.snaps) {
            self.0.snap.set(self.0.snap.get() + 1);
        }
        let snap = self.0.snap.get();
        if rng.chance(load.reads) {
            let of_pool: Vec<u64> = self.0.pool_snaps.borrow().iter().copied().collect();
            return match snap {
                0 if of_pool.is_empty() => Action::Read,
                _ if rng.chance(0.7) => Action::Read,
                0 => Action::ReadSnap { snap: *rng.pick(&of_pool) },
                newest => Action::ReadSnap { snap: newest - rng.below(newest.min(5)) },
            };
        }
        let value = self.0.next_value.replace(self.0.next_value.get() + 1);
        let slots = load.slots_max as u64;
        if load.reshapes && rng.chance(0.3) {
            return match rng.below(4) {
                0 => Action::Truncate { value, slots: rng.below(slots + 2) as usize, snap },
                1 => Action::Zero { value, slot: rng.below(slots + 1) as usize, snap },
                2 if load.omap => Action::RmKey { value, key: b'a' + rng.below(8) as u8, snap },
                3 if snap > 0 => Action::Rollback { value, to: 1 + rng.below(snap), snap },
                _ => Action::Truncate { value, slots: rng.below(slots + 2) as usize, snap },
            };
        }
        match rng.below(16) {
            0..4 => Action::Replace { value, slots: rng.below(slots + 1) as usize, snap },
            4..6 => Action::Append { value, snap },
            6..8 => {
                let last = self.0.last_told.borrow().get(object).copied().unwrap_or_default();
                Action::AppendIf { value, last, snap }
            }
            8..11 => Action::Put { value, slot: rng.below(slots) as usize, snap },
            11..13 if load.omap => Action::SetKey { value, key: b'a' + rng.below(8) as u8, snap },
            11..15 => Action::CreateNew { value, snap },
            _ => Action::Remove { snap },
        }
    }

    async fn act(&self, who: &str, io: &IoCtx, object: &str, action: Action) {
        let Shared { world, load, .. } = &*self.0;
        let begun = self.with(object, |h| h.begin(who, action.clone(), world.now()));
        let line = diary::asked(world.now(), who, object, || format!("{action:?}"));
        let _snap_read = SnapRead::new(self, &action);
        let mut untold = Untold { load: self.clone(), object, begun, told: false };
        let (io, is_read) = match action {
            Action::Read => (io.clone(), true),
            Action::PoolSnap { .. } => unreachable!("no client does that"),
            Action::ReadSnap { snap } => (io.clone().with_snap_read(snap), true),
            Action::Replace { snap, .. }
            | Action::Append { snap, .. }
            | Action::AppendIf { snap, .. }
            | Action::Put { snap, .. }
            | Action::SetKey { snap, .. }
            | Action::RmKey { snap, .. }
            | Action::Truncate { snap, .. }
            | Action::Zero { snap, .. }
            | Action::Rollback { snap, .. }
            | Action::CreateNew { snap, .. }
            | Action::Remove { snap } => {
                let snapc = SnapContext { seq: snap, snaps: (1..=snap).rev().collect() };
                (io.clone().with_snap_context(snapc), false)
            }
        };
        let answer = match io.operate(object, action.operation(load.slot_len, load.omap)).await {
            Ok(_) if !is_read => Answer::Done,
            Ok(outcome) => {
                let data = outcome.output(0).expect("content");
                let mark = outcome.output(1).expect("an attribute");
                let keys: BTreeMap<BString, Bytes> = if !load.omap {
                    BTreeMap::new()
                } else {
                    let output = outcome.output(2).expect("keys");
                    denc::Reader::new(&output).get().expect("keys")
                };
                let content = content_of(&data, &mark, &keys, load.slot_len);
                Answer::Found(Rc::new(content.unwrap_or_else(|wrong| {
                    panic!("{object}: {who} {action:?} at {:?}: {wrong}", world.now())
                })))
            }
            Err(ClientError::Errno(errno @ (Errno::ENOENT | Errno::EEXIST | Errno::ECANCELED))) => {
                Answer::Refused(errno)
            }
            Err(error) => panic!("{object}: {who} {action:?}: {error}"),
        };
        untold.told = true;
        let last = match &answer {
            Answer::Found(content) => Some(content.mark),
            _ => action.value(),
        };
        if let Some(last) = last {
            self.0.last_told.borrow_mut().insert(object.to_owned(), last);
        }
        diary::answered(world.now(), line, || format!("{answer:?}"));
        let counter = if is_read { &self.0.reads } else { &self.0.writes };
        counter.set(counter.get() + 1);
        match self.with(object, |h| h.end(begun, &answer, world.now())) {
            Ok(Judged::Sound) => {}
            Ok(Judged::Unclear) => self.0.unclear.set(self.0.unclear.get() + 1),
            Err(broken) => panic!("{object}: {broken:?}"),
        }
    }

    fn with<T>(&self, object: &str, act: impl FnOnce(&mut History<Object>) -> T) -> T {
        let mut histories = self.0.histories.borrow_mut();
        match histories.get_mut(object) {
            Some(history) => act(history),
            None => {
                let mut history = History::new(Object, State::default());
                let result = act(&mut history);
                histories.insert(object.to_owned(), history);
                result
            }
        }
    }

    /// Reads every object once, and every snapshot of it.
    pub async fn read_all(&self, io: &IoCtx) {
        for object in self.objects() {
            self.act("at the end", io, &object, Action::Read).await;
            let of_pool = self.0.pool_snaps.borrow().clone();
            for snap in (1..=self.0.snap.get()).chain(of_pool) {
                self.act("at the end", io, &object, Action::ReadSnap { snap }).await;
            }
        }
    }
}
