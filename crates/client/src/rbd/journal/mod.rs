//! The journal of an image: what changes it is written there first, so that a mirror can follow
//! and that what a dead writer had begun is brought to its end by the next one
//! (`src/librbd/Journal.cc`, `src/librbd/exclusive_lock/PostAcquireRequest.cc` at v16.2).
//!
//! ```text
//! lock taken -> whose are the newest entries? -> replay -> a tag of our own -> writers may enter
//! write:  entry safe -> object written -> entry done -> answer
//! change: writers out -> entry safe, position kept -> change -> its end safe, position kept
//! lock given back: writers out -> position kept
//! ```
//!
//! The position says up to which entry all is done; it is kept some seconds after it has moved, and around
//! each change of the whole, so that no write is ever replayed over a snapshot that came after it.
//! Writes that overlap are written one after the other, in the order of the journal.

mod commit;
mod entry;
mod event;
mod header;
mod player;
mod recorder;
mod replay;

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use denc::Denc;
use env::Env;
use env::sync::{Notify, Semaphore};
use futures_util::future::LocalBoxFuture;
use types::{Errno, UTime};

pub(crate) use event::{Event, OpChange};
pub(crate) use header::{create, is_owned_here, remove};
pub(crate) use replay::replay;

use super::image::{Image, Inner};
use crate::ClientError;
use header::Header;
use recorder::Recorder;

/// Bytes of an entry's data whatever the option says.
const PAYLOAD_LEAST: usize = 512;

/// An image's journal while we own the lock.
pub(crate) struct Journal {
    env: Env,
    recorder: Rc<Recorder>,
    /// Ranges being changed.
    ranges: Ranges,
    next_op: Cell<u64>,
    /// After this a position that has moved is kept (`rbd_journal_commit_age`).
    keep_after: Duration,
    /// Bytes of an entry's data, unless it cannot be cut (`rbd_journal_max_payload_bytes`).
    payload_max: usize,
    is_keeping_soon: Cell<bool>,
    keeping: Semaphore,
}

/// An entry whose change is not in the image yet. If it is dropped so, the next owner of the lock
/// replays it.
pub(crate) struct Recorded<'a> {
    journal: &'a Rc<Journal>,
    tids: Range<u64>,
    _range: Locked<'a>,
}

impl Recorded<'_> {
    /// The change is in the image.
    pub(crate) fn done(self) {
        self.journal.done(self.tids.clone());
    }
}

impl Journal {
    /// With the lock just taken: replays what there is and opens a tag of our own.
    pub(crate) fn open(inner: &Rc<Inner>) -> LocalBoxFuture<'_, Result<Rc<Journal>, ClientError>> {
        Box::pin(async move {
            let header = Rc::new(Header::open(&inner.io, &inner.id).await?);
            header.check_owner().await?;
            replay(&Image(inner.clone()), &header).await?;
            let position = header.position().await?;
            let tag = header.new_tag(&position).await?;
            let recorder = Recorder::open(&inner.env, header, tag, position).await?;
            let config = inner.io.client().config();
            let payload =
                usize::try_from(config.uint("rbd_journal_max_payload_bytes")).unwrap_or(0);
            let payload = if payload == 0 { usize::MAX } else { payload.max(PAYLOAD_LEAST) };
            let age = Duration::try_from_secs_f64(config.float("rbd_journal_commit_age"));
            Ok(Rc::new(Journal {
                env: inner.env.clone(),
                ranges: Ranges::default(),
                next_op: Cell::new(1),
                keep_after: age.unwrap_or_default(),
                payload_max: payload.min(recorder.data_max()),
                recorder,
                is_keeping_soon: Cell::new(false),
                keeping: Semaphore::new(1),
            }))
        })
    }

    fn encode(&self, event: Event) -> Bytes {
        let when = UTime::from_duration(self.env.wall_clock());
        event::EventEntry { event, when }.to_bytes()
    }

    async fn record<'a>(
        self: &'a Rc<Self>,
        range: Range<u64>,
        events: Vec<Event>,
    ) -> Result<Recorded<'a>, ClientError> {
        let locked = self.ranges.lock(range).await;
        let all = events.into_iter().map(|event| self.encode(event)).collect();
        let tids = self.recorder.append(all).await?;
        Ok(Recorded { journal: self, tids, _range: locked })
    }

    /// Before data is written.
    pub(crate) async fn write<'a>(
        self: &'a Rc<Self>,
        offset: u64,
        data: &Bytes,
    ) -> Result<Recorded<'a>, ClientError> {
        let some = self.payload_max - event::WRITE_OVERHEAD;
        let events = (0..data.len()).step_by(some).map(|at| Event::Write {
            offset: offset + at as u64,
            data: data.slice(at..data.len().min(at + some)),
        });
        self.record(offset..offset + data.len() as u64, events.collect()).await
    }

    /// Before a range is made zeros.
    pub(crate) async fn discard<'a>(
        self: &'a Rc<Self>,
        offset: u64,
        len: u64,
    ) -> Result<Recorded<'a>, ClientError> {
        let event = Event::Discard { offset, len, granularity: 0 };
        self.record(offset..offset + len, vec![event]).await
    }

    /// Before a pattern is written.
    pub(crate) async fn write_same<'a>(
        self: &'a Rc<Self>,
        offset: u64,
        len: u64,
        pattern: Bytes,
    ) -> Result<Recorded<'a>, ClientError> {
        self.record(offset..offset + len, vec![Event::WriteSame { offset, len, pattern }]).await
    }

    /// Before a comparison. One entry whatever its size, since it is done in one step; EINVAL if
    /// no object of the journal holds it.
    pub(crate) async fn compare_and_write<'a>(
        self: &'a Rc<Self>,
        offset: u64,
        expected: Bytes,
        data: Bytes,
    ) -> Result<Recorded<'a>, ClientError> {
        let range = offset..offset + data.len() as u64;
        self.record(range, vec![Event::CompareAndWrite { offset, expected, data }]).await
    }

    fn done(self: &Rc<Self>, tids: Range<u64>) {
        if self.recorder.done(tids) && !self.is_keeping_soon.replace(true) {
            let journal = Rc::downgrade(self);
            let sleep = self.env.sleep(self.keep_after);
            self.env.go(async move {
                sleep.await;
                let Some(journal) = journal.upgrade() else { return };
                journal.is_keeping_soon.set(false);
                if let Err(error) = journal.keep_position().await {
                    tracing::warn!("a journal's position cannot be kept: {error}");
                }
            });
        }
    }

    async fn keep_position(&self) -> Result<(), ClientError> {
        let _one = self.keeping.acquire(1).await;
        self.recorder.keep_position().await
    }

    /// Records that a change of the whole begins: its tid and its entry's.
    async fn begin_op(&self, change: OpChange) -> Result<(u64, Range<u64>), ClientError> {
        let tid = self.next_op.replace(self.next_op.get() + 1);
        let begun = self.recorder.append(vec![self.encode(Event::Op { tid, change })]).await?;
        self.keep_position().await?;
        Ok((tid, begun))
    }

    async fn end_op(&self, tid: u64, begun: Range<u64>, result: i32) -> Result<(), ClientError> {
        let end = self.encode(Event::OpFinish { tid, result });
        let ended = self.recorder.append(vec![end]).await?;
        self.recorder.done(begun);
        self.recorder.done(ended);
        self.keep_position().await
    }

    /// With no writers inside: waits for what is being written and keeps the position.
    pub(crate) async fn close(&self) -> Result<(), ClientError> {
        self.recorder.idle().await;
        self.keep_position().await
    }
}

impl Inner {
    /// Makes a change of the whole with its beginning and end in the journal, if there is one.
    pub(crate) async fn journaled<T>(
        &self,
        change: OpChange,
        work: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, ClientError> {
        let Some(journal) = self.lock.journal() else { return work.await };
        let (tid, begun) = journal.begin_op(change).await?;
        let outcome = work.await;
        let result = match &outcome {
            Ok(_) => 0,
            Err(ClientError::Errno(errno)) => errno.result(),
            Err(_) => Errno::EIO.result(),
        };
        let ended = journal.end_op(tid, begun, result).await;
        let value = outcome?;
        ended.map(|()| value)
    }
}

/// Ranges of the image that are being changed; those that overlap take turns.
#[derive(Default)]
struct Ranges {
    /// As many as there are changes under way.
    locked: RefCell<Vec<Range<u64>>>,
    changed: Notify,
}

struct Locked<'a> {
    of: &'a Ranges,
    range: Range<u64>,
}

impl Ranges {
    async fn lock(&self, range: Range<u64>) -> Locked<'_> {
        let overlaps = |other: &Range<u64>| other.start < range.end && range.start < other.end;
        self.changed.until(|| !self.locked.borrow().iter().any(overlaps)).await;
        self.locked.borrow_mut().push(range.clone());
        Locked { of: self, range }
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let mut locked = self.of.locked.borrow_mut();
        if let Some(at) = locked.iter().position(|range| *range == self.range) {
            locked.swap_remove(at);
        }
        drop(locked);
        self.of.changed.notify_all();
    }
}
