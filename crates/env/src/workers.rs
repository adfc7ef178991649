//! Threads for what blocks: libraries that make their own system calls, calls without an
//! asynchronous form.
//!
//! Jobs begin in the order in which they were handed over; with one thread they also end in that
//! order. A job owns all it needs, so giving up its future is harmless: the job runs all the same.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::thread::JoinHandle;

type Job = Box<dyn FnOnce() + Send>;

/// A few threads and their queue. Whoever hands jobs over bounds how many there are. Dropping it
/// waits for all jobs.
pub struct Workers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    filled: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    closed: bool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where a job leaves its result.
struct Outcome<T> {
    state: Mutex<State<T>>,
}

struct State<T> {
    value: Option<T>,
    over: bool,
    waker: Option<Waker>,
}

/// Tells the waiting task when the job is over, even by a panic.
struct Teller<T>(Arc<Outcome<T>>);

impl<T> Drop for Teller<T> {
    fn drop(&mut self) {
        let waker = {
            let mut state = locked(&self.0.state);
            state.over = true;
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Workers {
    /// No threads: jobs run at once, in the caller's. For simulations and tests.
    pub fn inline() -> Workers {
        Workers { shared: Arc::default(), threads: Vec::new() }
    }

    /// Threads of their own, named for `top` and debuggers.
    pub fn start(name: &str, count: usize) -> io::Result<Workers> {
        let mut workers = Workers::inline();
        for _ in 0..count {
            let shared = workers.shared.clone();
            let builder = std::thread::Builder::new().name(name.to_owned());
            workers.threads.push(builder.spawn(move || work(&shared))?);
        }
        Ok(workers)
    }

    /// How many jobs can be under way at once; 0 if they run in the caller's thread.
    pub fn thread_count(&self) -> usize {
        self.threads.len()
    }

    /// Hands a job over, now; the future gives its value.
    ///
    /// # Panics
    /// The future does, if the job did.
    pub fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = T> + 'static {
        let outcome = Arc::new(Outcome {
            state: Mutex::new(State { value: None, over: false, waker: None }),
        });
        let teller = Teller(outcome.clone());
        self.hand_over(Box::new(move || {
            let value = job();
            locked(&teller.0.state).value = Some(value);
        }));
        poll_fn(move |cx| {
            let mut state = locked(&outcome.state);
            if let Some(value) = state.value.take() {
                return Poll::Ready(value);
            }
            assert!(!state.over, "a worker's job panicked: see above");
            state.waker = Some(cx.waker().clone());
            Poll::Pending
        })
    }

    fn hand_over(&self, job: Job) {
        if self.threads.is_empty() {
            return job();
        }
        locked(&self.shared.queue).jobs.push_back(job);
        self.shared.filled.notify_one();
    }
}

impl core::fmt::Debug for Workers {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Workers({})", self.threads.len())
    }
}

fn work(shared: &Shared) {
    loop {
        let mut queue = locked(&shared.queue);
        let job = loop {
            if let Some(job) = queue.jobs.pop_front() {
                break job;
            }
            if queue.closed {
                return;
            }
            queue = shared.filled.wait(queue).unwrap_or_else(PoisonError::into_inner);
        };
        drop(queue);
        job();
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        locked(&self.shared.queue).closed = true;
        self.shared.filled.notify_all();
        for thread in self.threads.drain(..) {
            // A job that panicked is a bug already reported by its thread.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::real::{Reactors, Runtime};

    #[test]
    fn jobs_of_one_thread_end_in_order_and_wake_their_tasks() {
        let runtime = Runtime::on(Reactors::Epoll).unwrap();
        let order = runtime.block_on(|env| async move {
            let workers = env.workers("one", 1).unwrap();
            let seen = Arc::new(Mutex::new(Vec::new()));
            let jobs: Vec<_> = (0..100)
                .map(|n| {
                    let seen = seen.clone();
                    workers.run(move || seen.lock().unwrap().push(n))
                })
                .collect();
            for job in jobs {
                job.await;
            }
            seen.lock().unwrap().clone()
        });
        assert!(order.is_sorted() && order.len() == 100);
    }

    #[test]
    fn without_threads_a_job_is_done_when_handed_over() {
        let done = Arc::new(Mutex::new(0));
        let theirs = done.clone();
        drop(Workers::inline().run(move || *theirs.lock().unwrap() = 7));
        assert_eq!(*done.lock().unwrap(), 7);
    }
}
