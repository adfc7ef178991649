//! Who of clients, recovery and the rest has the disk next (`osd_op_queue = mclock_scheduler`): each
//! class has a reservation, a weight and a limit, as in mClock (Gulati, Merchant, Varman, OSDI
//! 2010) and in `src/osd/scheduler/mClockScheduler.cc` at v16.2.
//!
//! ```text
//! client op      -> served at once; counts for its class
//! recovery, best effort -> queue -> [reservation due]                       -> turn
//!                                -> [limit allows, no more than its weight
//!                                    beside clients, or clients are idle]   -> turn
//! ```
//!
//! Clients never wait here, unlike in Ceph: an op of theirs begins when it comes, and others have
//! what is left. Recovery asks once an object, by its size. [`Scheduler`] decides, without time of
//! its own or I/O; [`Turns`] keeps those who wait. Costs are in operations without data, from
//! osd_mclock_cost_per_io_usec and osd_mclock_cost_per_byte_usec; rates in shares of
//! osd_mclock_max_capacity_iops.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use config::Config;
use env::Env;
use env::sync::{Sender, oneshot};

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Clients' operations.
    Client,
    /// Recovery and backfill.
    Recovery,
    /// Scrubs.
    BestEffort,
}

const CLASSES: usize = 3;
/// Clients are idle when none has come for so long, in seconds.
const IDLE: f64 = 0.1;

/// What a class is entitled to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Share {
    /// Cost a second that it has whatever others want.
    pub reservation: f64,
    /// Its part of what is left, relative to others'.
    pub weight: f64,
    /// Cost a second that it never goes beyond.
    pub limit: f64,
}

/// Shares of the three classes, in the order of [`Class`].
pub type Shares = [Share; CLASSES];

#[derive(Debug, Clone, Copy, Default)]
struct Account {
    /// When its reservation is due next, in seconds.
    reserved_at: f64,
    /// When its limit allows more.
    allowed_at: f64,
    /// What it has had, by its weight.
    served: f64,
}

/// What to do now.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Next {
    /// This one has its turn.
    Serve(u64),
    /// Nobody has, until then (seconds).
    At(f64),
    /// Nobody waits.
    Nobody,
}

/// The decisions. Bound: who waits is bounded by recovery slots and scrubs.
#[derive(Debug)]
pub struct Scheduler {
    shares: Shares,
    accounts: [Account; CLASSES],
    queues: [VecDeque<(u64, f64)>; CLASSES],
    last_client: f64,
    tickets: u64,
}

impl Scheduler {
    /// Nothing is under way.
    pub fn new(shares: Shares) -> Scheduler {
        Scheduler {
            shares,
            accounts: Default::default(),
            queues: Default::default(),
            last_client: f64::NEG_INFINITY,
            tickets: 0,
        }
    }

    /// Changes what classes are entitled to.
    pub fn set_shares(&mut self, shares: Shares) {
        self.shares = shares;
    }

    fn clients_are_idle(&self, now: f64) -> bool {
        now >= self.last_client + IDLE
    }

    /// A client's operation begins.
    pub fn serve_client(&mut self, cost: f64, now: f64) {
        let client = Class::Client as usize;
        if self.clients_are_idle(now) {
            // Nothing is owed for the time when they wanted nothing, nor by others.
            let others = self.accounts[1..].iter().map(|a| a.served).fold(0.0, f64::max);
            self.accounts[client].served = self.accounts[client].served.max(others);
        }
        self.accounts[client].served += cost / self.shares[client].weight;
        self.last_client = now;
    }

    /// Waits for a turn; the ticket.
    pub fn enqueue(&mut self, class: Class, cost: f64, now: f64) -> u64 {
        let class = class as usize;
        if self.queues[class].is_empty() && !self.clients_are_idle(now) {
            // Who wanted nothing has saved nothing up.
            let client = self.accounts[Class::Client as usize].served;
            let account = &mut self.accounts[class];
            account.served = account.served.max(client - cost / self.shares[class].weight);
        }
        self.tickets += 1;
        self.queues[class].push_back((self.tickets, cost));
        self.tickets
    }

    /// Whose turn it is.
    pub fn next(&mut self, now: f64) -> Next {
        let waiting = || (1..CLASSES).filter(|class| !self.queues[*class].is_empty());
        let due = waiting()
            .filter(|class| self.accounts[*class].reserved_at <= now)
            .filter(|class| self.shares[*class].reservation > 0.0)
            .min_by(|a, b| self.accounts[*a].reserved_at.total_cmp(&self.accounts[*b].reserved_at));
        if let Some(class) = due {
            return self.serve(class, true, now);
        }
        let idle = self.clients_are_idle(now);
        let client = self.accounts[Class::Client as usize].served;
        let fair = waiting()
            .filter(|class| self.accounts[*class].allowed_at <= now)
            .filter(|class| idle || self.accounts[*class].served <= client)
            .min_by(|a, b| self.accounts[*a].served.total_cmp(&self.accounts[*b].served));
        if let Some(class) = fair {
            return self.serve(class, false, now);
        }
        let idle_at = if idle { now } else { self.last_client + IDLE };
        waiting()
            .map(|class| {
                let account = &self.accounts[class];
                let fair_at = account.allowed_at.max(idle_at);
                match self.shares[class].reservation > 0.0 {
                    true => account.reserved_at.min(fair_at),
                    false => fair_at,
                }
            })
            .min_by(f64::total_cmp)
            .map_or(Next::Nobody, Next::At)
    }

    fn serve(&mut self, class: usize, reserved: bool, now: f64) -> Next {
        let Some((ticket, cost)) = self.queues[class].pop_front() else { return Next::Nobody };
        let (share, account) = (self.shares[class], &mut self.accounts[class]);
        if reserved {
            account.reserved_at = account.reserved_at.max(now) + cost / share.reservation;
        } else {
            account.served += cost / share.weight;
        }
        account.allowed_at = account.allowed_at.max(now) + cost / share.limit;
        Next::Serve(ticket)
    }
}

/// (reservation, weight, limit) of clients, recovery and best effort; rates in parts of the
/// capacity, 0 for no limit.
type Profile = [(f64, f64, f64); CLASSES];

const HIGH_CLIENT_OPS: Profile = [(0.5, 2.0, 0.0), (0.25, 1.0, 1.0), (0.25, 1.0, 0.0)];
const BALANCED: Profile = [(0.4, 1.0, 1.0), (0.4, 1.0, 1.5), (0.2, 2.0, 0.0)];
const HIGH_RECOVERY_OPS: Profile = [(0.3, 1.0, 0.8), (0.6, 2.0, 2.0), (0.0, 2.0, 0.0)];

/// What the options say. All our devices call themselves ssd.
fn shares_of(c: &Config) -> Shares {
    let capacity = c.float("osd_mclock_max_capacity_iops_ssd").max(1.0);
    let of = |profile: Profile| {
        profile.map(|(reservation, weight, limit)| Share {
            reservation: reservation * capacity,
            weight,
            limit: if limit > 0.0 { limit * capacity } else { f64::INFINITY },
        })
    };
    match &*c.str("osd_mclock_profile") {
        "balanced" => of(BALANCED),
        "high_recovery_ops" => of(HIGH_RECOVERY_OPS),
        "custom" => ["client", "background_recovery", "background_best_effort"].map(|class| {
            let option =
                |what: &str| c.uint(&format!("osd_mclock_scheduler_{class}_{what}")) as f64;
            Share {
                reservation: option("res"),
                weight: option("wgt").max(1.0),
                limit: option("lim").max(1.0),
            }
        }),
        _ => of(HIGH_CLIENT_OPS),
    }
}

/// See the module.
pub struct Turns {
    env: Env,
    enabled: Cell<bool>,
    /// Microseconds of an operation, and of a byte.
    costs: Cell<(f64, f64)>,
    scheduler: RefCell<Scheduler>,
    waiting: RefCell<BTreeMap<u64, Sender<()>>>,
    /// When it is looked at next.
    alarm: Cell<Option<Duration>>,
}

impl Turns {
    /// Nobody waits.
    pub fn new(env: Env, config: &Config) -> Rc<Turns> {
        let turns = Turns {
            env,
            enabled: Cell::new(false),
            costs: Cell::new((1.0, 0.0)),
            scheduler: RefCell::new(Scheduler::new(shares_of(config))),
            waiting: RefCell::default(),
            alarm: Cell::new(None),
        };
        let turns = Rc::new(turns);
        turns.configure(config);
        turns
    }

    /// Takes over the options.
    pub fn configure(self: &Rc<Turns>, c: &Config) {
        self.enabled.set(&*c.str("osd_op_queue") == "mclock_scheduler");
        let either = |name: &str| match c.float(name) {
            0.0 => c.float(&format!("{name}_ssd")),
            value => value,
        };
        let per_io = either("osd_mclock_cost_per_io_usec").max(0.001);
        self.costs.set((per_io, either("osd_mclock_cost_per_byte_usec")));
        self.scheduler.borrow_mut().set_shares(shares_of(c));
        if !self.enabled.get() {
            *self.scheduler.borrow_mut() = Scheduler::new(shares_of(c));
            for waiting in std::mem::take(&mut *self.waiting.borrow_mut()).into_values() {
                waiting.send(());
            }
        }
    }

    fn cost(&self, bytes: u64) -> f64 {
        let (per_io, per_byte) = self.costs.get();
        1.0 + bytes as f64 * per_byte / per_io
    }

    fn now(&self) -> f64 {
        self.env.now().as_secs_f64()
    }

    /// A client's operation with so many bytes begins.
    pub fn serve_client(self: &Rc<Turns>, bytes: u64) {
        if !self.enabled.get() {
            return;
        }
        let (cost, now) = (self.cost(bytes), self.now());
        self.scheduler.borrow_mut().serve_client(cost, now);
        if !self.waiting.borrow().is_empty() {
            self.pump();
        }
    }

    /// Completes when it is this class's turn for so many bytes.
    pub async fn turn(self: &Rc<Turns>, class: Class, bytes: u64) {
        if !self.enabled.get() {
            return;
        }
        let (done, served) = oneshot();
        let (cost, now) = (self.cost(bytes), self.now());
        let ticket = self.scheduler.borrow_mut().enqueue(class, cost, now);
        self.waiting.borrow_mut().insert(ticket, done);
        self.pump();
        let _ = served.await;
    }

    fn pump(self: &Rc<Turns>) {
        loop {
            let next = self.scheduler.borrow_mut().next(self.now());
            match next {
                Next::Nobody => return,
                Next::Serve(ticket) => {
                    let waiting = self.waiting.borrow_mut().remove(&ticket);
                    if let Some(waiting) = waiting {
                        waiting.send(());
                    }
                }
                Next::At(at) => return self.wake_at(at),
            }
        }
    }

    fn wake_at(self: &Rc<Turns>, at: f64) {
        // A moment later than due, lest rounding makes it a moment before.
        let at = Duration::from_secs_f64(at.clamp(0.0, 1e12)) + Duration::from_micros(1);
        if self.alarm.get().is_some_and(|alarm| alarm <= at) {
            return;
        }
        self.alarm.set(Some(at));
        let turns = self.clone();
        self.env.go(async move {
            turns.env.sleep_until(at).await;
            if turns.alarm.get() == Some(at) {
                turns.alarm.set(None);
                turns.pump();
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARES: Shares = [
        Share { reservation: 50.0, weight: 2.0, limit: f64::INFINITY },
        Share { reservation: 25.0, weight: 1.0, limit: 100.0 },
        Share { reservation: 0.0, weight: 1.0, limit: f64::INFINITY },
    ];

    /// Runs for ten seconds, with a client's op of cost 1 every `every` seconds (0: none) and
    /// always something of `classes` to do; how much each of these had a second.
    fn rates(every: f64, classes: &[Class]) -> Vec<f64> {
        let mut scheduler = Scheduler::new(SHARES);
        let mut had = vec![0.0; classes.len()];
        let mut tickets = BTreeMap::new();
        for (n, class) in classes.iter().enumerate() {
            tickets.insert(scheduler.enqueue(*class, 1.0, 0.0), n);
        }
        let (mut now, mut client) = (0.0, if every > 0.0 { 0.0 } else { f64::INFINITY });
        while now < 10.0 {
            if client <= now {
                scheduler.serve_client(1.0, now);
                client += every;
            }
            // At most 1,000 a second.
            match scheduler.next(now) {
                Next::Serve(ticket) => {
                    let n = tickets.remove(&ticket).expect("somebody who waits");
                    had[n] += 0.1;
                    tickets.insert(scheduler.enqueue(classes[n], 1.0, now), n);
                    now += 0.001;
                }
                Next::At(at) => now = at.min(client).max(now + 0.001),
                Next::Nobody => panic!("somebody waits"),
            }
        }
        had
    }

    fn is_about(rate: f64, expected: f64) {
        assert!((rate - expected).abs() <= expected * 0.1, "{rate} a second, not {expected}");
    }

    #[test]
    fn recovery_alone_goes_to_its_limit() {
        is_about(rates(0.0, &[Class::Recovery])[0], 100.0);
    }

    #[test]
    fn beside_clients_recovery_has_its_reservation_and_its_weight() {
        // 25 reserved, and half of what clients have.
        is_about(rates(0.05, &[Class::Recovery])[0], 25.0 + 10.0);
        is_about(rates(0.02, &[Class::Recovery])[0], 25.0 + 25.0);
        // Never beyond the limit but for the reservation.
        let fast = rates(0.002, &[Class::Recovery])[0];
        assert!((90.0..=130.0).contains(&fast), "{fast} a second");
    }

    #[test]
    fn without_a_reservation_the_weight_is_all() {
        is_about(rates(0.02, &[Class::BestEffort])[0], 25.0);
        let both = rates(0.02, &[Class::Recovery, Class::BestEffort]);
        is_about(both[0], 50.0);
        is_about(both[1], 25.0);
    }

    #[test]
    fn nothing_is_saved_up_while_idle() {
        let mut scheduler = Scheduler::new(SHARES);
        for n in 0..1000 {
            scheduler.serve_client(1.0, f64::from(n) * 0.01);
        }
        let mut served = 0;
        for _ in 0..100 {
            scheduler.enqueue(Class::Recovery, 1.0, 10.0);
        }
        while let Next::Serve(_) = scheduler.next(10.0) {
            served += 1;
        }
        assert!(served <= 3, "{served} at once after ten seconds of nothing");
    }
}
