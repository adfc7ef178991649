//! Block files for the epoll reactor: a few threads that make the blocking calls.
//!
//! A job owns its buffers and its file, so giving up its future is harmless: begun, it is done; queued, it goes.
//! The threads start with the first job and end, after what they have begun and what is queued, with the pool.

use std::cell::RefCell;
use std::future::ready;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use super::checked;
use super::file::Opened;
use crate::sync::Semaphore;
use crate::{AlignedBuf, BlockFile, LocalFuture, Until, Workers};

const THREADS: usize = 4;
/// Jobs queued or running for a task that waits for them; further ones wait their turn in their tasks.
const JOBS_MAX: u64 = 1024;

/// The threads, once there is a job, and how many jobs may wait for them.
pub(super) struct FilePool {
    workers: RefCell<Option<Rc<Workers>>>,
    budget: Semaphore,
}

impl FilePool {
    pub(super) fn new() -> Rc<FilePool> {
        Rc::new(FilePool { workers: RefCell::default(), budget: Semaphore::new(JOBS_MAX) })
    }

    /// Runs `job` on one of the threads.
    async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let _permit = self.budget.acquire(1).await;
        let workers = self.workers()?;
        let queued = Queued(Arc::new(Mutex::new(Some(job))));
        let theirs = Queued(queued.0.clone());
        let done = workers.run(move || theirs.take().map(|job| job()));
        drop(workers);
        // Taken by nobody else: this future, which would, is still there.
        done.await.unwrap_or_else(|| Err(io::ErrorKind::Interrupted.into()))
    }

    fn workers(&self) -> io::Result<Rc<Workers>> {
        let mut place = self.workers.borrow_mut();
        if let Some(workers) = &*place {
            return Ok(workers.clone());
        }
        let workers = Rc::new(Workers::start("file", THREADS)?);
        *place = Some(workers.clone());
        Ok(workers)
    }
}

/// A job until it begins. Whoever waits for it and whoever is to do it have one each: the first to let go takes the job along.
struct Queued<J>(Arc<Mutex<Option<J>>>);

impl<J> Queued<J> {
    fn take(&self) -> Option<J> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl<J> Drop for Queued<J> {
    fn drop(&mut self) {
        self.take();
    }
}

/// An open block file.
pub(super) struct PooledFile {
    pool: Rc<FilePool>,
    opened: Arc<Opened>,
}

impl PooledFile {
    pub(super) fn new(pool: Rc<FilePool>, opened: Opened) -> PooledFile {
        PooledFile { pool, opened: Arc::new(opened) }
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

    fn write_until(
        &self,
        until: Until,
        offset: u64,
        bufs: Vec<Bytes>,
    ) -> LocalFuture<io::Result<()>> {
        let len = bufs.iter().map(|buf| buf.len() as u64).sum();
        if let Err(error) = self.opened.check_write(offset, len) {
            return Box::pin(ready(Err(error)));
        }
        let bufs = self.opened.fit(bufs);
        self.run(move |opened| {
            opened.write_all_at(offset, bufs)?;
            match until {
                Until::Written => Ok(()),
                Until::Durable => opened.file.sync_data(),
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::real::{Reactors, Runtime};

    /// What had been given up left its place to others while it still waited in the queue with its buffers: behind a slow
    /// disk there was no bound on them.
    #[test]
    fn a_job_given_up_in_the_queue_goes_with_its_buffers() {
        let runtime = Runtime::on(Reactors::Epoll).unwrap();
        runtime.block_on(|env| async move {
            let pool = FilePool::new();
            let busy: Vec<_> = (0..THREADS)
                .map(|_| {
                    let (pool, (end, ended)) = (pool.clone(), mpsc::channel::<()>());
                    let job = async move { pool.run(move || Ok(ended.recv().is_err())).await };
                    (env.spawn_with_handle(job), end)
                })
                .collect();
            // They are in the queue, in front of what follows.
            crate::yield_now().await;
            let buffer = Arc::new([0; 4096]);
            for _ in 0..10 {
                let held = buffer.clone();
                let job = pool.run(move || Ok(held[0]));
                assert!(env.timeout(Duration::ZERO, job).await.is_err());
            }
            assert_eq!(Arc::strong_count(&buffer), 1);
            for (job, end) in busy {
                drop(end);
                assert!(job.await.unwrap());
            }
            assert_eq!(pool.run(|| Ok(7)).await.unwrap(), 7);
        });
    }
}
