//! Block files for the epoll reactor: a few threads that make the blocking calls.
//!
//! A job owns its buffers and its file, so giving up its future is harmless. The threads start
//! with the first job and end, after what they have begun and what is queued, with the pool.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::{poll_fn, ready};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::thread::JoinHandle;

use bytes::Bytes;

use super::checked;
use super::file::Opened;
use super::vectored::{IOVECS_MAX, Vectored};
use crate::sync::Semaphore;
use crate::{AlignedBuf, BlockFile, LocalFuture};

const THREADS: usize = 4;
/// Jobs queued or running; further ones wait their turn in their tasks.
const JOBS_MAX: u64 = 1024;

type Job = Box<dyn FnOnce() + Send>;

/// The threads and their queue.
pub(super) struct FilePool {
    shared: Arc<Shared>,
    threads: RefCell<Vec<JoinHandle<()>>>,
    budget: Semaphore,
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

impl FilePool {
    pub(super) fn new() -> Rc<FilePool> {
        Rc::new(FilePool {
            shared: Arc::default(),
            threads: RefCell::default(),
            budget: Semaphore::new(JOBS_MAX),
        })
    }

    /// Runs `job` on one of the threads.
    async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let _permit = self.budget.acquire(1).await;
        self.start_threads()?;
        let outcome = Arc::new(Mutex::new((None, None::<Waker>)));
        let theirs = outcome.clone();
        let job = Box::new(move || {
            let result = job();
            let mut outcome = locked(&theirs);
            outcome.0 = Some(result);
            if let Some(waker) = outcome.1.take() {
                waker.wake();
            }
        });
        locked(&self.shared.queue).jobs.push_back(job);
        self.shared.filled.notify_one();
        poll_fn(|cx| {
            let mut outcome = locked(&outcome);
            match outcome.0.take() {
                Some(result) => Poll::Ready(result),
                None => {
                    outcome.1 = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    fn start_threads(&self) -> io::Result<()> {
        let mut threads = self.threads.borrow_mut();
        while threads.len() < THREADS {
            let shared = self.shared.clone();
            let builder = std::thread::Builder::new().name("file".into());
            threads.push(builder.spawn(move || work(&shared))?);
        }
        Ok(())
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
            queue = shared
                .filled
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        };
        drop(queue);
        job();
    }
}

impl Drop for FilePool {
    fn drop(&mut self) {
        locked(&self.shared.queue).closed = true;
        self.shared.filled.notify_all();
        for thread in self.threads.get_mut().drain(..) {
            // A job that panicked is a bug already reported by its thread.
            let _ = thread.join();
        }
    }
}

/// An open block file.
pub(super) struct PooledFile {
    pool: Rc<FilePool>,
    opened: Arc<Opened>,
}

impl PooledFile {
    pub(super) fn new(pool: Rc<FilePool>, opened: Opened) -> PooledFile {
        PooledFile {
            pool,
            opened: Arc::new(opened),
        }
    }

    fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Opened) -> io::Result<T> + Send + 'static,
    ) -> LocalFuture<io::Result<T>> {
        let (pool, opened) = (self.pool.clone(), self.opened.clone());
        Box::pin(async move { pool.run(move || job(&opened)).await })
    }
}

impl BlockFile for PooledFile {
    fn len(&self) -> u64 {
        self.opened.len
    }

    fn block_len(&self) -> u32 {
        self.opened.block_len
    }

    fn read_at(&self, offset: u64, len: usize) -> LocalFuture<io::Result<AlignedBuf>> {
        if let Err(error) = self.opened.check(offset, len as u64) {
            return Box::pin(ready(Err(error)));
        }
        self.run(move |opened| {
            let mut buf = AlignedBuf::scratch(len);
            opened.file.read_exact_at(&mut buf, offset)?;
            Ok(buf)
        })
    }

    fn write_at(&self, offset: u64, bufs: Vec<Bytes>) -> LocalFuture<io::Result<()>> {
        let len = bufs.iter().map(|buf| buf.len() as u64).sum();
        if let Err(error) = self.opened.check_write(offset, len) {
            return Box::pin(ready(Err(error)));
        }
        let bufs = self.opened.fit(bufs);
        self.run(move |opened| {
            let mut bufs = Vectored::new(bufs);
            let mut offset = offset;
            loop {
                let count = bufs.iovecs.len().min(IOVECS_MAX) as libc::c_int;
                let (raw, at) = (opened.file.as_raw_fd(), offset.cast_signed());
                // SAFETY: the vectors point into the buffers that `bufs` owns, which are only
                // read.
                let written = unsafe { libc::pwritev(raw, bufs.iovecs.as_ptr(), count, at) };
                let written = match usize::try_from(written) {
                    Ok(0) if count > 0 => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(written) => written,
                    Err(_) => match io::Error::last_os_error() {
                        error if error.kind() == io::ErrorKind::Interrupted => 0,
                        error => return Err(error),
                    },
                };
                if !bufs.advance(written) {
                    return Ok(());
                }
                offset += written as u64;
            }
        })
    }

    fn sync(&self) -> LocalFuture<io::Result<()>> {
        self.run(|opened| opened.file.sync_data())
    }

    fn discard(&self, offset: u64, len: u64) -> LocalFuture<io::Result<()>> {
        if let Err(error) = self.opened.check_write(offset, len) {
            return Box::pin(ready(Err(error)));
        }
        if len == 0 {
            return Box::pin(ready(Ok(())));
        }
        self.run(move |opened| {
            let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            let raw = opened.file.as_raw_fd();
            let (offset, len) = (offset.cast_signed(), len.cast_signed());
            // SAFETY: no memory is passed.
            match checked(unsafe { libc::fallocate(raw, mode, offset, len) }) {
                Err(error) if error.raw_os_error() != Some(libc::EOPNOTSUPP) => Err(error),
                _ => Ok(()),
            }
        })
    }
}
