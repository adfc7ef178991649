//! Many lives, on several threads, each in a world of its own.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

use crate::{Life, Settings, diary, live};

/// A life that went wrong.
#[derive(Debug, Clone)]
pub struct Failure {
    /// Its seed.
    pub seed: u64,
    /// What the cluster did that it must not, with the history that shows it.
    pub what: String,
}

/// Sums over lives.
#[derive(Debug, Clone, Default)]
pub struct Sum {
    /// Lives without a fault found.
    pub lives: u64,
    /// Their length, in their own time.
    pub time: Duration,
    /// Reads and writes answered and judged.
    pub answers: u64,
    /// Answers that could not be judged.
    pub unclear: u64,
    /// Events.
    pub events: u64,
    /// What went wrong, by seed.
    pub failures: Vec<Failure>,
}

impl Sum {
    fn add(&mut self, life: &Life) {
        self.lives += 1;
        self.time += life.time;
        self.answers += life.reads + life.writes;
        self.unclear += life.unclear;
        self.events += life.events;
    }

    /// Whether so many answers were judged that lives in which nothing is wrong say something.
    pub fn is_clear(&self) -> bool {
        self.unclear * 100 <= self.answers
    }
}

thread_local! {
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Keeps what a panic of this thread says, instead of printing it.
fn keep_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let kept = PANIC.with_borrow_mut(|kept| match kept {
                Some(text) => {
                    // The first panic is the cause; later ones come of unwinding.
                    if text.is_empty() {
                        *text = info.to_string();
                    }
                    true
                }
                None => false,
            });
            if !kept {
                before(info);
            }
        }));
    });
}

/// Lives a life; a violation is the error.
pub fn try_live(seed: u64, settings: &Settings) -> Result<Life, Failure> {
    keep_panics();
    PANIC.set(Some(String::new()));
    let result = catch_unwind(AssertUnwindSafe(|| live(seed, settings)));
    let what = PANIC.take().unwrap_or_default();
    if result.is_err() {
        diary::finding(&what);
    }
    result.map_err(|_| Failure { seed, what })
}

/// Lives the lives of `seeds`, until `deadline`, on as many threads as the machine has cores.
/// `told` hears of each, in the order they end; it says whether to go on.
pub fn run(
    seeds: std::ops::Range<u64>,
    settings: &Settings,
    deadline: Option<Instant>,
    told: impl FnMut(u64, &Result<Life, Failure>) -> bool + Send,
) -> Sum {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicU64::new(seeds.start);
    let stop = AtomicBool::new(false);
    let shared = Mutex::new((Sum::default(), told));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) && deadline.is_none_or(|at| Instant::now() < at)
                {
                    let after = |seed| (seed < seeds.end).then(|| seed + 1);
                    let taken = next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, after);
                    let Ok(seed) = taken else { return };
                    let result = try_live(seed, settings);
                    let (sum, told) = &mut *shared.lock().unwrap_or_else(PoisonError::into_inner);
                    match &result {
                        Ok(life) => sum.add(life),
                        Err(failure) => sum.failures.push(failure.clone()),
                    }
                    if !told(seed, &result) {
                        stop.store(true, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let (mut sum, _) = shared.into_inner().unwrap_or_else(PoisonError::into_inner);
    sum.failures.sort_by_key(|failure| failure.seed);
    sum
}
