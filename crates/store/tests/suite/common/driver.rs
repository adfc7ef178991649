//! A driver for tests: tasks and a clock that jumps to the next sleep. No network, no files.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use env::{
    BlockFile, Driver, Env, Executor, Listener, LocalFuture, OpenBlock, Stream, SyncFile, Timers,
};

struct TestDriver {
    executor: Executor,
    timers: Rc<Timers>,
    now: Cell<Duration>,
    random: RefCell<device::memory::Choices>,
}

fn unsupported<T>() -> io::Result<T> {
    Err(io::ErrorKind::Unsupported.into())
}

impl Driver for TestDriver {
    fn now(&self) -> Duration {
        self.now.get()
    }
    fn wall_clock(&self) -> Duration {
        self.now.get()
    }
    fn fill_random(&self, buf: &mut [u8]) {
        buf.fill_with(|| self.random.borrow_mut().below(256) as u8);
    }
    fn spawn(&self, task: LocalFuture<()>) {
        self.executor.spawn(0, task);
    }
    fn sleep_until(&self, deadline: Duration) -> LocalFuture<()> {
        self.timers.sleep_until(deadline)
    }
    fn termination(&self) -> LocalFuture<()> {
        Box::pin(std::future::pending())
    }
    fn listen(&self, _: SocketAddr) -> io::Result<Rc<dyn Listener>> {
        unsupported()
    }
    fn connect(&self, _: SocketAddr) -> LocalFuture<io::Result<Rc<dyn Stream>>> {
        Box::pin(std::future::ready(unsupported()))
    }
    fn listen_unix(&self, _: &Path) -> io::Result<Rc<dyn Listener>> {
        unsupported()
    }
    fn connect_unix(&self, _: &Path) -> LocalFuture<io::Result<Rc<dyn Stream>>> {
        Box::pin(std::future::ready(unsupported()))
    }
    fn open_block(&self, _: &Path, _: OpenBlock) -> io::Result<Rc<dyn BlockFile>> {
        unsupported()
    }
    fn open_sync(&self, _: &Path) -> io::Result<Box<dyn SyncFile>> {
        unsupported()
    }
}

/// Runs `main` and what it spawns until `main` ends; the rest is dropped, as by a kill.
///
/// # Panics
/// If everything waits for nothing.
pub(crate) fn block_on<T: 'static, F: Future<Output = T> + 'static>(
    main: impl FnOnce(Env) -> F,
) -> T {
    let driver = Rc::new(TestDriver {
        executor: Executor::new(None),
        timers: Rc::default(),
        now: Cell::default(),
        random: RefCell::new(device::memory::Choices::new(1)),
    });
    let env = Env::new(driver.clone());
    let handle = env.spawn_with_handle(main(env.clone()));
    while !handle.is_finished() {
        if driver.executor.run_ready(64) == 0 {
            let next = driver.timers.next().expect("all tasks wait for nothing");
            driver.now.set(driver.now.get().max(next));
            driver.timers.fire(driver.now.get());
        }
    }
    let out = Rc::new(RefCell::new(None));
    let place = out.clone();
    env.go(async move { *place.borrow_mut() = Some(handle.await) });
    while out.borrow().is_none() {
        driver.executor.run_ready(1);
    }
    driver.executor.close();
    let value = out.borrow_mut().take();
    value.expect("the loop above ends when it is there")
}
