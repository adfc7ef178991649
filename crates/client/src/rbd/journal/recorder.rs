//! Appending to a journal (`src/journal/JournalRecorder.cc`, `ObjectRecorder.cc` at v16.2).
//!
//! One round of appends is under way at a time, one append an object; what is asked for meanwhile
//! goes out together in the next round. An entry is safe when it and all before it are written: a
//! reader stops at the first that is missing.
//!
//! ```text
//! queued --round--> written --all before it too--> safe --its change is in the image--> done
//!    ^----object is full: next set----'
//! ```

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use cls::journal::{ObjectPosition, ObjectSetPosition};
use denc::Denc;
use env::Env;
use env::sync::Notify;
use futures_util::future::join_all;
use types::Errno;

use super::commit::Commits;
use super::entry::{self, Entry};
use super::header::Header;
use crate::ClientError;

/// Bytes of one append, more only for one entry that is larger.
const APPEND_MAX: usize = 4 << 20;

/// Writes the entries of one tag.
pub(crate) struct Recorder {
    env: Env,
    pub(crate) header: Rc<Header>,
    tag: u64,
    state: RefCell<State>,
    is_running: Cell<bool>,
    changed: Notify,
}

struct State {
    /// Entries that are not written yet, by place in the set. Those who wait for them bound them.
    queues: Vec<VecDeque<Queued>>,
    /// Bytes of the objects of the active set.
    lens: Vec<u64>,
    next_tid: u64,
    /// All entries below are safe.
    safe: u64,
    /// Written ones that are not safe: of one round at most.
    written: BTreeSet<u64>,
    failed: Option<ClientError>,
    /// Its numbers are the tids.
    commits: Commits,
}

struct Queued {
    tid: u64,
    bytes: Bytes,
}

/// One append.
struct Append {
    place: usize,
    object: u64,
    entries: Vec<Queued>,
    bytes: Bytes,
}

impl Recorder {
    /// Goes on behind what is there, in a tag of its own.
    pub(crate) async fn open(
        env: &Env,
        header: Rc<Header>,
        tag: u64,
        position: ObjectSetPosition,
    ) -> Result<Rc<Recorder>, ClientError> {
        let splay = header.splay;
        let first = header.active.get() * splay;
        let lens = join_all((0..splay).map(|place| header.object_len(first + place))).await;
        let state = State {
            queues: (0..splay).map(|_| VecDeque::new()).collect(),
            lens: lens.into_iter().collect::<Result<_, _>>()?,
            next_tid: 0,
            safe: 0,
            written: BTreeSet::new(),
            failed: None,
            commits: Commits::new(splay, position),
        };
        Ok(Rc::new(Recorder {
            env: env.clone(),
            header,
            tag,
            state: RefCell::new(state),
            is_running: Cell::new(false),
            changed: Notify::default(),
        }))
    }

    /// Bytes of the largest entry's data.
    pub(crate) fn data_max(&self) -> usize {
        self.header.object_size as usize - entry::OVERHEAD
    }

    /// Appends, and waits until all are safe: their tids.
    pub(crate) async fn append(
        self: &Rc<Self>,
        all: Vec<Bytes>,
    ) -> Result<std::ops::Range<u64>, ClientError> {
        if all.iter().any(|data| data.len() > self.data_max()) {
            return Err(Errno::EINVAL.into());
        }
        let tids = {
            let mut state = self.state.borrow_mut();
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            let first = state.next_tid;
            all.into_iter().for_each(|data| self.queue(&mut state, data));
            first..state.next_tid
        };
        if !self.is_running.replace(true) {
            let recorder = self.clone();
            self.env.go(async move { recorder.run().await });
        }
        self.changed
            .until(|| {
                let state = self.state.borrow();
                state.failed.is_some() || state.safe >= tids.end
            })
            .await;
        let state = self.state.borrow();
        match &state.failed {
            Some(error) if state.safe < tids.end => Err(error.clone()),
            _ => Ok(tids),
        }
    }

    fn queue(&self, state: &mut State, data: Bytes) {
        let splay = self.header.splay;
        let tid = state.next_tid;
        state.next_tid += 1;
        let place = tid % splay;
        let entry = Entry { tag: self.tag, tid, data };
        state.queues[place as usize].push_back(Queued { tid, bytes: entry.to_bytes() });
        state.commits.begin(ObjectPosition {
            object_number: self.header.active.get() * splay + place,
            tag_tid: self.tag,
            entry_tid: tid,
        });
    }

    async fn run(&self) {
        loop {
            let (round, is_full) = self.next_round();
            if round.is_empty() && !is_full {
                break;
            }
            let appends = round.iter().map(|a| self.header.append(a.object, a.bytes.clone()));
            let results = join_all(appends).await;
            let mut advance = is_full;
            for (append, result) in round.into_iter().zip(results) {
                match result {
                    Ok(()) => self.on_written(&append),
                    Err(ClientError::Errno(Errno::EOVERFLOW)) => {
                        advance = true;
                        let mut state = self.state.borrow_mut();
                        for entry in append.entries.into_iter().rev() {
                            state.queues[append.place].push_front(entry);
                        }
                    }
                    Err(error) => self.fail(error),
                }
            }
            if advance
                && self.state.borrow().failed.is_none()
                && let Err(error) = self.advance().await
            {
                self.fail(error);
            }
            let has_failed = {
                let mut state = self.state.borrow_mut();
                while let Some(safe) = Some(state.safe).filter(|tid| state.written.contains(tid)) {
                    state.written.remove(&safe);
                    state.safe += 1;
                }
                state.failed.is_some()
            };
            self.changed.notify_all();
            if has_failed {
                break;
            }
        }
        self.is_running.set(false);
        self.changed.notify_all();
    }

    /// What fits into the objects, and whether one of them holds no more.
    fn next_round(&self) -> (Vec<Append>, bool) {
        let state = &mut *self.state.borrow_mut();
        let first = self.header.active.get() * self.header.splay;
        let (mut round, mut is_full) = (Vec::new(), false);
        for (place, queue) in state.queues.iter_mut().enumerate() {
            let (mut entries, mut bytes) = (Vec::new(), BytesMut::new());
            while let Some(next) = queue.front() {
                let len = next.bytes.len();
                // An object may be full before its first entry only if that is too large for it.
                let room = self.header.object_size.saturating_sub(state.lens[place]);
                if (bytes.len() + len) as u64 > room {
                    is_full = true;
                    break;
                }
                if !entries.is_empty() && bytes.len() + len > APPEND_MAX {
                    break;
                }
                bytes.extend_from_slice(&next.bytes);
                entries.extend(queue.pop_front());
            }
            if !entries.is_empty() {
                let object = first + place as u64;
                round.push(Append { place, object, entries, bytes: bytes.freeze() });
            }
        }
        (round, is_full)
    }

    fn on_written(&self, append: &Append) {
        let state = &mut *self.state.borrow_mut();
        state.lens[append.place] += append.bytes.len() as u64;
        for entry in &append.entries {
            state.written.insert(entry.tid);
            state.commits.moved(entry.tid, append.object);
        }
    }

    async fn advance(&self) -> Result<(), ClientError> {
        self.header.advance().await?;
        let first = self.header.active.get() * self.header.splay;
        for place in 0..self.header.splay {
            let len = self.header.object_len(first + place).await?;
            self.state.borrow_mut().lens[place as usize] = len;
        }
        Ok(())
    }

    fn fail(&self, error: ClientError) {
        tracing::warn!("the journal cannot be written: {error}");
        self.state.borrow_mut().failed.get_or_insert(error);
    }

    /// Changes that are in the image now; true if the position has moved.
    pub(crate) fn done(&self, tids: std::ops::Range<u64>) -> bool {
        let commits = &mut self.state.borrow_mut().commits;
        tids.for_each(|tid| commits.done(tid));
        commits.is_changed()
    }

    /// Keeps the position in the header, and removes what nobody needs any more.
    pub(crate) async fn keep_position(&self) -> Result<(), ClientError> {
        let Some(position) = self.state.borrow_mut().commits.take_changed() else { return Ok(()) };
        if let Err(error) = self.header.keep_position(&position).await {
            self.state.borrow_mut().commits.not_kept();
            return Err(error);
        }
        let sets = position.object_positions.iter().map(|at| at.object_number / self.header.splay);
        match sets.min() {
            Some(set) if set > self.header.minimum.get() => self.header.trim().await,
            _ => Ok(()),
        }
    }

    /// Waits until nothing is being written.
    pub(crate) async fn idle(&self) {
        self.changed.until(|| !self.is_running.get()).await;
    }
}
