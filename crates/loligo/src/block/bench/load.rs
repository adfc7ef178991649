//! The load: which request comes next, what it holds, and a job that keeps so many under way.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use client::rbd::Image;
use client::{ClientError, IoCtx};
use env::Env;
use lab::Histogram;

use crate::block::cli::{LoadArgs, Pattern};

/// Where the requests go.
#[derive(Clone)]
pub(super) enum Target {
    Image(Image),
    /// Objects of so many bytes, with this beginning of their names.
    Objects {
        io: IoCtx,
        size: u64,
        prefix: String,
    },
}

impl Target {
    async fn read(&self, offset: u64, len: u64) -> Result<types::BufferList, ClientError> {
        match self {
            Target::Image(image) => image.read(offset, len).await,
            Target::Objects { io, size, prefix } => {
                let object = format!("{prefix}.{:x}", offset / size);
                Ok(io.read(object, offset % size, len).await?.into())
            }
        }
    }

    async fn write(&self, offset: u64, data: Bytes) -> Result<(), ClientError> {
        match self {
            Target::Image(image) => image.write(offset, data).await,
            Target::Objects { io, size, prefix } => {
                let object = format!("{prefix}.{:x}", offset / size);
                io.write(object, offset % size, data).await.map(drop)
            }
        }
    }
}

/// What a job has done in the measured time.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) reads: Histogram,
    pub(super) writes: Histogram,
    /// Nanoseconds from the end of the ramp to the last answer.
    pub(super) elapsed: u64,
    pub(super) mismatches: u64,
    pub(super) error: Option<String>,
}

/// What all jobs show of themselves while they run.
#[derive(Default)]
pub(super) struct Progress {
    pub(super) requests: AtomicU64,
}

/// A stream of numbers (splitmix64): the same seed gives the same load.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

struct Job {
    env: Env,
    target: Target,
    args: LoadArgs,
    /// Requests of the range, and the first of them.
    blocks: u64,
    first: u64,
    numbers: RefCell<Numbers>,
    next: Cell<u64>,
    issued: Cell<u64>,
    begin: Duration,
    tally: RefCell<Tally>,
    progress: Arc<Progress>,
    /// To stop.
    told: Rc<Cell<bool>>,
    /// Content of writes that need not be told apart.
    filler: Bytes,
    /// With --verify: how often each block has been written. Bound: the blocks of the range.
    versions: RefCell<Vec<u32>>,
    /// With --verify: blocks under way are not touched by another request.
    busy: RefCell<std::collections::BTreeSet<u64>>,
}

/// The content of a block: told by its place and version.
fn content(offset: u64, version: u32, len: u64) -> Bytes {
    let mut numbers = Numbers(offset ^ u64::from(version) << 40);
    let mut data = BytesMut::with_capacity(len as usize + 8);
    while (data.len() as u64) < len {
        data.extend_from_slice(&numbers.next().to_le_bytes());
    }
    data.truncate(len as usize);
    data.freeze()
}

impl Job {
    fn writes(&self) -> bool {
        match self.args.rw {
            Pattern::Read | Pattern::Randread => false,
            Pattern::Write | Pattern::Randwrite => true,
            Pattern::Rw | Pattern::Randrw => {
                self.numbers.borrow_mut().next() % 100 >= u64::from(self.args.rwmixread)
            }
        }
    }

    fn block(&self) -> u64 {
        match self.args.rw {
            Pattern::Randread | Pattern::Randwrite | Pattern::Randrw => {
                self.numbers.borrow_mut().next() % self.blocks
            }
            _ => {
                let next = self.next.get();
                self.next.set((next + 1) % self.blocks);
                next
            }
        }
    }

    fn is_over(&self) -> bool {
        if self.told.get() || self.tally.borrow().error.is_some() {
            return true;
        }
        match self.args.runtime {
            Some(seconds) => {
                let ends = self.begin + Duration::from_secs(self.args.ramp_time + seconds);
                self.env.now() >= ends
            }
            None => self.issued.get() >= self.blocks,
        }
    }

    async fn lane(self: Rc<Self>) {
        while !self.is_over() {
            self.issued.set(self.issued.get() + 1);
            let (mut block, writes) = (self.block(), self.writes());
            if self.args.verify {
                while !self.busy.borrow_mut().insert(block) {
                    block = (block + 1) % self.blocks;
                }
            }
            let start = self.env.now();
            let result = self.request(block, writes).await;
            let end = self.env.now();
            self.busy.borrow_mut().remove(&block);
            let mut tally = self.tally.borrow_mut();
            match result {
                Ok(matches) => tally.mismatches += u64::from(!matches),
                Err(error) => {
                    let offset = (self.first + block) * self.args.bs;
                    let kind = if writes { "write" } else { "read" };
                    tally.error.get_or_insert(format!("{kind} at {offset}: {error}"));
                    // It is told, and is no request that was served.
                    break;
                }
            }
            let ramped = self.begin + Duration::from_secs(self.args.ramp_time);
            if end < ramped {
                continue;
            }
            let took = (end - start).as_nanos() as u64;
            if writes {
                tally.writes.add(took)
            } else {
                tally.reads.add(took)
            }
            tally.elapsed = (end - ramped).as_nanos() as u64;
            self.progress.requests.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether what was read is what was written.
    async fn request(&self, block: u64, writes: bool) -> Result<bool, ClientError> {
        let (offset, len) = ((self.first + block) * self.args.bs, self.args.bs);
        if !self.args.verify {
            return match writes {
                true => self.target.write(offset, self.filler.clone()).await.map(|()| true),
                false => self.target.read(offset, len).await.map(|_| true),
            };
        }
        let version = self.versions.borrow()[block as usize];
        if writes {
            let data = content(offset, version + 1, len);
            self.target.write(offset, data).await?;
            self.versions.borrow_mut()[block as usize] = version + 1;
            return Ok(true);
        }
        let found = self.target.read(offset, len).await?;
        Ok(version == 0 || found.to_contiguous() == content(offset, version, len))
    }
}

/// Runs one job over `blocks` requests' worth of the target from block `first` on, or until it is told to stop.
pub(super) async fn run_job(
    env: &Env,
    target: Target,
    args: &LoadArgs,
    (first, blocks): (u64, u64),
    number: u64,
    progress: Arc<Progress>,
    told: Rc<Cell<bool>>,
) -> Tally {
    let versions = if args.verify { vec![0; blocks as usize] } else { Vec::new() };
    let job = Rc::new(Job {
        env: env.clone(),
        target,
        args: args.clone(),
        blocks,
        first,
        numbers: RefCell::new(Numbers(args.randseed.wrapping_mul(1 << 20) + number)),
        next: Cell::new(0),
        issued: Cell::new(0),
        begin: env.now(),
        tally: RefCell::default(),
        progress,
        told,
        filler: content(args.randseed, 1, args.bs),
        versions: RefCell::new(versions),
        busy: RefCell::default(),
    });
    // A lane more than there are blocks would find none that is free.
    let lanes = u64::from(args.iodepth.max(1)).min(blocks);
    let lanes: Vec<_> = (0..lanes).map(|_| env.spawn_with_handle(job.clone().lane())).collect();
    for lane in lanes {
        lane.await;
    }
    if args.verify && !job.told.get() {
        let written: Vec<u64> =
            (0..blocks).filter(|block| job.versions.borrow()[*block as usize] > 0).collect();
        for block in written {
            match job.request(block, false).await {
                Ok(matches) => job.tally.borrow_mut().mismatches += u64::from(!matches),
                Err(error) => {
                    job.tally.borrow_mut().error.get_or_insert(format!("verify: {error}"));
                }
            }
        }
    }
    job.tally.take()
}
