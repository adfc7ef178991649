//! What ops are under way and what slow ones did: for `dump_ops_in_flight`, `dump_historic_ops`
//! and warnings of slow requests. An op costs one allocation and a few stamps.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::time::Duration;

use command::Formatter;
use env::Env;
use smallvec::SmallVec;
use types::{EVersion, SpgId, UTime};

use crate::ops::Request;

/// Events of one op at most; more are dropped (they repeat).
const EVENTS_MAX: usize = 32;

/// What happened to an op and when; a usual one's fit without an allocation.
type Events = SmallVec<[(Duration, &'static str); 6]>;

/// What an op is: made a text when somebody asks, which most are gone before.
pub enum Description {
    /// A client's.
    Op(Rc<Request>, SpgId),
    /// A replica's part of a write.
    RepOp(SpgId, EVersion),
    /// Something else.
    Other(Box<dyn Fn() -> String>),
}

impl std::fmt::Display for Description {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (request, pgid) = match self {
            Description::Op(request, pgid) => (request, pgid),
            Description::RepOp(pgid, version) => return write!(f, "osd_repop({pgid} v {version})"),
            Description::Other(describe) => return f.write_str(&describe()),
        };
        write!(f, "osd_op({} {pgid} {} [", request.reqid, request.oid)?;
        for (i, op) in request.ops.iter().enumerate() {
            write!(f, "{}{}", if i > 0 { "," } else { "" }, types::osd::ops::op_name(op.code))?;
        }
        write!(f, "] snapc {} flags {:#x})", request.snapc, request.flags)
    }
}

/// An op on its way.
pub struct TrackedOp {
    description: Description,
    seq: u64,
    /// Its place among the live ones.
    place: usize,
    begun: Duration,
    env: Env,
    events: RefCell<Events>,
    tracker: Weak<Tracker>,
    warned: Cell<bool>,
}

/// A finished op that is remembered.
struct Past {
    description: String,
    begun_wall: Duration,
    took: Duration,
    events: Events,
    finished: Duration,
}

/// Ops under way, in no order. Bound: as many places as there were ops at a time.
#[derive(Default)]
struct Live {
    ops: Vec<Weak<TrackedOp>>,
    vacant: Vec<usize>,
}

impl Live {
    /// A place for an op that is being made.
    fn take_place(&mut self) -> usize {
        self.vacant.pop().unwrap_or_else(|| {
            self.ops.push(Weak::new());
            self.ops.len() - 1
        })
    }

    fn leave(&mut self, place: usize) {
        self.ops[place] = Weak::new();
        self.vacant.push(place);
    }
}

/// All ops of an OSD.
pub struct Tracker {
    env: Env,
    next: Cell<u64>,
    live: RefCell<Live>,
    /// Bounded by osd_op_history_size, each.
    recent: RefCell<VecDeque<Past>>,
    slow: RefCell<VecDeque<Past>>,
    /// An op that took no longer than this is not remembered among the recent ones, before the
    /// second. It is the shortest of them, if there is no room: most ops need not look.
    floor: Cell<(Duration, Duration)>,
    /// osd_op_history_size.
    history_size: Cell<usize>,
    /// osd_op_history_slow_op_threshold.
    pub slow_threshold: Cell<Duration>,
}

impl TrackedOp {
    /// Something happened to the op.
    pub fn mark(&self, event: &'static str) {
        let mut events = self.events.borrow_mut();
        if events.len() < EVENTS_MAX {
            events.push((self.env.recent(), event));
        }
    }

    /// Time since it arrived.
    pub fn age(&self) -> Duration {
        self.env.recent().saturating_sub(self.begun)
    }

    /// When it arrived, by the wall clock.
    fn begun_wall(&self) -> Duration {
        self.env.wall_clock().saturating_sub(self.age())
    }

    /// The last event.
    pub fn last_event(&self) -> &'static str {
        self.events.borrow().last().map_or("initiated", |e| e.1)
    }

    /// What it is.
    pub fn describe(&self) -> String {
        self.description.to_string()
    }
}

impl Drop for TrackedOp {
    fn drop(&mut self) {
        let Some(tracker) = self.tracker.upgrade() else { return };
        tracker.live.borrow_mut().leave(self.place);
        let now = self.env.recent();
        let took = now.saturating_sub(self.begun);
        let slow = took >= tracker.slow_threshold.get();
        let (shortest, until) = tracker.floor.get();
        // The text is made only for ops that are kept: the slowest recent ones.
        let keep = took > shortest || now >= until;
        if !keep && !slow {
            return;
        }
        let past = || Past {
            description: self.describe(),
            begun_wall: self.begun_wall(),
            took,
            events: self.events.borrow().clone(),
            finished: now,
        };
        if slow {
            let mut list = tracker.slow.borrow_mut();
            list.push_back(past());
            while list.len() > tracker.history_size.get() {
                list.pop_front();
            }
        }
        if keep {
            tracker.keep_recent(past());
        }
    }
}

/// Time after which a finished op is not shown any more (osd_op_history_duration).
const HISTORY_DURATION: Duration = Duration::from_secs(600);

impl Tracker {
    /// Nothing under way.
    pub fn new(env: Env) -> Rc<Tracker> {
        Rc::new(Tracker {
            env,
            next: Cell::new(1),
            live: RefCell::default(),
            recent: RefCell::default(),
            slow: RefCell::default(),
            floor: Cell::default(),
            history_size: Cell::new(20),
            slow_threshold: Cell::new(Duration::from_secs(10)),
        })
    }

    /// An op has arrived, when its first byte was seen at `received`.
    pub fn track(
        self: &Rc<Tracker>,
        received: Duration,
        description: Description,
    ) -> Rc<TrackedOp> {
        let seq = self.next.get();
        self.next.set(seq + 1);
        let mut live = self.live.borrow_mut();
        let place = live.take_place();
        let op = Rc::new(TrackedOp {
            description,
            seq,
            place,
            begun: received.min(self.env.recent()),
            env: self.env.clone(),
            events: RefCell::default(),
            tracker: Rc::downgrade(self),
            warned: Cell::new(false),
        });
        live.ops[place] = Rc::downgrade(&op);
        drop(live);
        op
    }

    /// How many finished ops are remembered (osd_op_history_size).
    pub fn history_size(&self) -> usize {
        self.history_size.get()
    }

    /// Sets how many finished ops are remembered.
    pub fn set_history_size(&self, size: usize) {
        self.history_size.set(size);
        self.floor.take();
    }

    /// Remembers a finished op among the recent ones, of which the slowest stay.
    fn keep_recent(&self, past: Past) {
        let now = past.finished;
        let mut list = self.recent.borrow_mut();
        list.push_back(past);
        list.retain(|p| now.saturating_sub(p.finished) < HISTORY_DURATION);
        while list.len() > self.history_size.get() {
            let fastest = (0..list.len()).min_by_key(|i| list[*i].took).unwrap_or(0);
            list.remove(fastest);
        }
        let full = list.len() == self.history_size.get();
        self.floor.set(match list.iter().map(|p| p.took).min() {
            Some(shortest) if full => (shortest, list[0].finished + HISTORY_DURATION),
            Some(_) => Default::default(),
            None => (Duration::MAX, Duration::MAX),
        });
    }

    /// Those under way, in the order of their arrival.
    fn live(&self) -> Vec<Rc<TrackedOp>> {
        let mut ops: Vec<_> = self.live.borrow().ops.iter().filter_map(Weak::upgrade).collect();
        ops.sort_by_key(|op| op.seq);
        ops
    }

    /// What is under way: descriptions with the last events.
    pub fn describe_live(&self) -> Vec<String> {
        let describe = |op: Rc<TrackedOp>| format!("{} ({})", op.describe(), op.last_event());
        self.live().into_iter().map(describe).collect()
    }

    /// Number of ops under way.
    pub fn in_flight(&self) -> usize {
        let live = self.live.borrow();
        live.ops.len() - live.vacant.len()
    }

    /// Ops older than `age`: how many, the oldest one's age, and those not warned of yet.
    pub fn slow_ops(&self, age: Duration) -> (usize, Duration, Vec<Rc<TrackedOp>>) {
        let slow: Vec<Rc<TrackedOp>> =
            self.live().into_iter().filter(|op| op.age() >= age).collect();
        let oldest = slow.iter().map(|op| op.age()).max().unwrap_or_default();
        let count = slow.len();
        let fresh = slow.into_iter().filter(|op| !op.warned.replace(true)).collect();
        (count, oldest, fresh)
    }

    /// Ops under way for at least `age` whose description is `wanted`, as the array `ops`; how
    /// many there are.
    pub fn dump_live(
        &self,
        f: &mut Formatter,
        age: Duration,
        wanted: &dyn Fn(&str) -> bool,
    ) -> usize {
        let mut count = 0;
        f.open_array_section("ops");
        for op in self.live().into_iter().filter(|op| op.age() >= age) {
            let description = op.describe();
            if !wanted(&description) {
                continue;
            }
            count += 1;
            f.open_object_section("op");
            let events = op.events.borrow();
            dump_op(f, &description, op.begun_wall(), op.begun, op.age(), None, &events);
            f.close_section();
        }
        f.close_section();
        count
    }

    /// How long finished ops are shown.
    pub fn history_duration(&self) -> Duration {
        HISTORY_DURATION
    }

    /// Remembered ops into the open array: by arrival, or the slowest first.
    pub fn dump_past(&self, f: &mut Formatter, by_duration: bool, wanted: &dyn Fn(&str) -> bool) {
        let now = self.env.now();
        let list = self.recent.borrow();
        let mut shown: Vec<&Past> =
            list.iter().filter(|p| now.saturating_sub(p.finished) < HISTORY_DURATION).collect();
        if by_duration {
            shown.sort_by_key(|p| core::cmp::Reverse(p.took));
        } else {
            shown.sort_by_key(|p| p.begun());
        }
        shown.into_iter().filter(|p| wanted(&p.description)).for_each(|p| p.dump(f, now));
    }

    /// Remembered ops that took longer than the threshold, into the open array.
    pub fn dump_slow(&self, f: &mut Formatter, wanted: &dyn Fn(&str) -> bool) {
        let now = self.env.now();
        let list = self.slow.borrow();
        list.iter().filter(|p| wanted(&p.description)).for_each(|p| p.dump(f, now));
    }
}

impl Past {
    fn begun(&self) -> Duration {
        self.finished.saturating_sub(self.took)
    }

    fn dump(&self, f: &mut Formatter, now: Duration) {
        let age = now.saturating_sub(self.begun());
        let took = Some(self.took);
        f.open_object_section("op");
        dump_op(f, &self.description, self.begun_wall, self.begun(), age, took, &self.events);
        f.close_section();
    }
}

fn dump_op(
    f: &mut Formatter,
    description: &str,
    wall: Duration,
    begun: Duration,
    age: Duration,
    took: Option<Duration>,
    events: &[(Duration, &'static str)],
) {
    f.dump_string("description", description);
    f.dump_string("initiated_at", UTime::from_duration(wall).to_string());
    f.dump_float("age", age.as_secs_f64());
    f.dump_float("duration", took.unwrap_or(age).as_secs_f64());
    f.open_object_section("type_data");
    f.dump_string("flag_point", events.last().map_or("initiated", |e| e.1));
    f.open_array_section("events");
    let first = [(begun, "initiated")];
    let mut last = begun;
    for (at, event) in first.iter().chain(events) {
        f.open_object_section("event");
        f.dump_string("event", event);
        let stamp = UTime::from_duration(wall + at.saturating_sub(begun));
        f.dump_string("time", stamp.to_string());
        f.dump_float("duration", at.saturating_sub(last).as_secs_f64());
        last = *at;
        f.close_section();
    }
    f.close_section();
    f.close_section();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Slow ops of the past were kept for ever, though not shown any more after ten minutes: after a bad hour
    /// `dump_historic_ops` stayed empty.
    #[test]
    fn the_slowest_ops_of_the_last_ten_minutes_are_remembered() {
        let world = sim::World::new(1);
        let env = world.node("osd");
        world.run_until(async move {
            let tracker = Tracker::new(env.clone());
            let kept =
                || tracker.recent.borrow().iter().map(|p| p.took.as_millis()).collect::<Vec<_>>();
            let ops = async |millis: &[u64]| {
                for &millis in millis {
                    let op = tracker.track(env.now(), Description::Other(Box::new(String::new)));
                    env.sleep(Duration::from_millis(millis)).await;
                    drop(op);
                }
                kept()
            };
            tracker.set_history_size(3);
            assert_eq!(ops(&[500, 900, 700, 600, 100]).await, [900, 700, 600]);
            env.sleep(HISTORY_DURATION).await;
            assert_eq!(ops(&[2, 4, 3, 1, 5]).await, [4, 3, 5]);
            tracker.set_history_size(0);
            assert!(ops(&[80, 90]).await.is_empty());
            tracker.set_history_size(1);
            assert_eq!(ops(&[20, 10]).await, [20]);
        });
    }
}
