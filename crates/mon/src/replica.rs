//! The replicated log on this monitor's database: the consensus core (`quorum`) with its storage.
//!
//! ```text
//! raft/id            u64 le: this database's number among the members
//! raft/hard          HardState
//! raft/base          Base: what stands for the entries removed
//! raft/entry_<index> Entry (16 hex digits)
//! raft/copying       the state is being copied and means nothing
//! raft/whole_at      u64 le: after a copy, the entry at which the state is whole
//! paxos/last_committed  u64 le: the entry up to which the state is applied
//! ```
//!
//! What the log promises (votes, entries) is durable before anybody hears of it. The state is
//! applied without waiting for the device: after a power loss the log makes it again. Both are in
//! one database, so that state and `last_committed` agree at any moment.
//!
//! A copy of the state is taken while it changes: each piece is right for some entry at or after
//! the first piece's, and the log from there on, applied again, makes all of it right at the entry
//! of the last piece. Batches set and delete keys without looking, so applying one twice is
//! harmless.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use denc::{Denc, Error, Reader, Writer};
use env::LocalFuture;
use env::sync::{Receiver, Sender, oneshot};
use quorum::{Base, Entry, Envelope, HardState, MemberId, Members, Payload, Raft, Start, Timing};
use store::kv::{KvOp, prefix_range};
use store::{Kv, KvBatch, KvError};

use crate::layout::{self, AUTH, MON_SYNC, MONMAP, PAXOS, RAFT};
use crate::log::{Log, LogError};

/// Bytes and entries of one piece of a copy, about.
const PIECE_BYTES_MAX: usize = 1 << 20;
const PIECE_ENTRIES_MAX: usize = 2000;

/// Whether a key is this monitor's alone: no copy takes it along.
fn is_own(key: &[u8]) -> bool {
    [RAFT, MON_SYNC].into_iter().any(|prefix| {
        let (start, end) = prefix_range(prefix);
        start <= key && key < &end[..]
    })
}

/// What a monitor must know to start and find the others, as it is now.
fn put_bootstrap(kv: &dyn Kv, batch: &mut KvBatch) -> Result<(), KvError> {
    let last = layout::get_u64(kv, MONMAP, "last")?.unwrap_or(0);
    let monmap = layout::numbered(MONMAP, "", last);
    for key in [monmap, layout::key(MONMAP, "last"), layout::key(AUTH, "mon_keyring")] {
        if let Some(value) = kv.get(&key)? {
            batch.put(key, value);
        }
    }
    Ok(())
}

/// A batch as an entry carries it.
pub(crate) fn encode_batch(batch: &KvBatch) -> Bytes {
    let mut w = Writer::new();
    w.u8(1);
    w.count(batch.ops.len());
    for op in &batch.ops {
        let (tag, first, second) = match op {
            KvOp::Put(key, value) => (1, key, Some(value)),
            KvOp::Delete(key) => (2, key, None),
            KvOp::DeleteRange(start, end) => (3, start, Some(end)),
        };
        w.u8(tag);
        w.blob(first);
        if let Some(second) = second {
            w.blob(second);
        }
    }
    w.into_bytes()
}

/// The other way.
pub(crate) fn decode_batch(bytes: &Bytes) -> Result<KvBatch, Error> {
    let mut r = Reader::new(bytes);
    let version = r.u8()?;
    if version != 1 {
        return Err(Error::Invalid { what: "version of a batch", value: version.into() });
    }
    let mut batch = KvBatch::new();
    for _ in 0..r.count(5)? {
        batch.ops.push(match r.u8()? {
            1 => KvOp::Put(r.blob()?, r.blob()?),
            2 => KvOp::Delete(r.blob()?),
            3 => KvOp::DeleteRange(r.blob()?, r.blob()?),
            tag => {
                return Err(Error::Invalid { what: "change in a batch", value: tag.into() });
            }
        });
    }
    Ok(batch)
}

/// One piece of a copy.
#[derive(Debug)]
pub(crate) struct Piece {
    /// The key asked for.
    pub(crate) after: Bytes,
    pub(crate) entries: Vec<(Bytes, Bytes)>,
    pub(crate) base: Base,
    pub(crate) last: bool,
}

/// A copy under way.
struct Copying {
    from: MemberId,
    /// Of the first piece.
    base: Option<Base>,
    /// The last key there is.
    after: Bytes,
    asked: Duration,
}

/// See the module.
pub(crate) struct Replica {
    kv: Rc<dyn Kv>,
    raft: RefCell<Raft>,
    /// Who waits for an entry of ours: its term, and whom to tell.
    waiters: RefCell<BTreeMap<u64, (u64, Sender<u64>)>>,
    copying: RefCell<Option<Copying>>,
    /// The state means nothing: a copy has begun and not ended.
    torn: Cell<bool>,
    /// After a copy: the state is whole at this entry.
    whole_at: Cell<u64>,
    now: Cell<Duration>,
    /// Entries stored since that was last asked, and their bytes.
    stored: Cell<(u64, u64)>,
}

fn raft_key(name: &str) -> Bytes {
    layout::key(RAFT, name)
}

fn entry_key(index: u64) -> Bytes {
    layout::numbered(RAFT, "entry_", index)
}

fn corrupt(what: &str, error: Error) -> KvError {
    KvError::Corrupt(format!("{RAFT}/{what}: {error}"))
}

fn stored<T: Denc>(kv: &dyn Kv, name: &str) -> Result<Option<T>, KvError> {
    let Some(bytes) = kv.get(&raft_key(name))? else { return Ok(None) };
    T::from_bytes(&bytes).map(Some).map_err(|e| corrupt(name, e))
}

/// What a database begins with that will be filled from other monitors.
pub(crate) fn put_joining(batch: &mut KvBatch, id: u64) {
    layout::put_u64(batch, RAFT, "id", id);
    layout::put_u64(batch, RAFT, "copying", 1);
}

/// What a database has of the log.
struct Written {
    hard: HardState,
    base: Base,
    /// What follows it.
    entries: Vec<Entry>,
}

impl Written {
    fn read(kv: &dyn Kv) -> Result<Written, KvError> {
        let base: Base = stored(kv, "base")?.unwrap_or_default();
        let hard: HardState = stored(kv, "hard")?.unwrap_or_default();
        let mut entries = Vec::new();
        let (start, end) = (entry_key(base.index + 1), layout::numbered(RAFT, "entry_", u64::MAX));
        for (key, value) in kv.range(&start, &end, 1_000_000)? {
            let entry = Entry::from_bytes(&value).map_err(|e| corrupt("entry", e))?;
            if entry.index != base.index + 1 + entries.len() as u64 {
                let key = String::from_utf8_lossy(&key).into_owned();
                return Err(KvError::Corrupt(format!("{key} does not follow the entry before")));
            }
            entries.push(entry);
        }
        Ok(Written { hard, base, entries })
    }

    /// Term and index of the newest entry.
    fn last(&self) -> (u64, u64) {
        self.entries.last().map_or((self.base.term, self.base.index), |e| (e.term, e.index))
    }
}

/// Term and index of the newest entry of a database that nobody has open; nothing if its state is a
/// copy that has not come whole.
pub(crate) fn last_entry(kv: &dyn Kv) -> Result<Option<(u64, u64)>, KvError> {
    let last = Written::read(kv)?.last();
    let whole_at = layout::get_u64(kv, RAFT, "whole_at")?.unwrap_or(0);
    let torn = layout::get_u64(kv, RAFT, "copying")?.is_some();
    Ok((!torn && whole_at <= last.1).then_some(last))
}

/// Makes the log of a database that nobody has open one of this member alone, whoever the others were, and
/// `changes` its next entry. All that it has counts as committed then, whether a majority had it or not.
pub(crate) fn put_sole(
    kv: &dyn Kv,
    batch: &mut KvBatch,
    name: &str,
    changes: &KvBatch,
) -> Result<(), KvError> {
    // One that has never been started founds its log by itself.
    let Some(id) = layout::get_u64(kv, RAFT, "id")?.map(MemberId) else { return Ok(()) };
    let written = Written::read(kv)?;
    let (last_term, last) = written.last();
    let term = written.hard.term.max(last_term) + 1;
    let payloads =
        [Payload::Members(Members::sole(id, name)), Payload::Data(encode_batch(changes))];
    for (index, payload) in (last + 1..).zip(payloads) {
        batch.put(entry_key(index), Entry { index, term, payload }.to_bytes());
    }
    batch.put(raft_key("hard"), HardState { term, vote: id }.to_bytes());
    Ok(())
}

impl Replica {
    /// The log of this database. One that has none yet founds a cluster of this monitor alone;
    /// others join.
    pub(crate) fn open(
        kv: Rc<dyn Kv>,
        name: &str,
        timing: Timing,
        now: Duration,
        random: &dyn Fn() -> u64,
    ) -> Result<Replica, KvError> {
        let applied = layout::get_u64(&*kv, PAXOS, "last_committed")?.unwrap_or(0);
        let id = match layout::get_u64(&*kv, RAFT, "id")? {
            Some(id) => MemberId(id),
            None => {
                let id = MemberId(random() | 1);
                let mut batch = KvBatch::new();
                // Not 0: what was there before the log can only be copied.
                let index = applied.max(1);
                let base = Base { index, term: 0, members: Members::sole(id, name) };
                layout::put_u64(&mut batch, RAFT, "id", id.0);
                batch.put(raft_key("base"), base.to_bytes());
                layout::put_u64(&mut batch, PAXOS, "last_committed", index);
                kv.commit(batch)?;
                id
            }
        };
        let Written { hard, base, entries } = Written::read(&*kv)?;
        let torn = layout::get_u64(&*kv, RAFT, "copying")?.is_some();
        let whole_at = layout::get_u64(&*kv, RAFT, "whole_at")?.unwrap_or(0);
        let applied = layout::get_u64(&*kv, PAXOS, "last_committed")?.unwrap_or(0);
        let applied = if torn { base.index } else { applied };
        let seed = random();
        let start = Start { id, hard, base, entries, applied, entries_max: None, seed };
        let mut raft = Raft::new(start, timing, now);
        raft.set_whole(!torn && applied >= whole_at);
        Ok(Replica {
            kv,
            raft: RefCell::new(raft),
            waiters: RefCell::default(),
            copying: RefCell::new(None),
            torn: Cell::new(torn),
            whole_at: Cell::new(whole_at),
            now: Cell::new(now),
            stored: Cell::default(),
        })
    }

    /// Looks at the log.
    pub(crate) fn raft(&self) -> std::cell::Ref<'_, Raft> {
        self.raft.borrow()
    }

    /// Changes something about the log; call [`Replica::store`] afterwards.
    pub(crate) fn raft_mut(&self) -> std::cell::RefMut<'_, Raft> {
        self.raft.borrow_mut()
    }

    /// Whether the state can be served.
    pub(crate) fn is_whole(&self) -> bool {
        !self.torn.get() && self.raft.borrow().applied() >= self.whole_at.get()
    }

    /// Takes a message of the log.
    pub(crate) fn receive(&self, now: Duration, message: Envelope) {
        self.now.set(now);
        self.raft.borrow_mut().receive(now, message);
    }

    /// What may be sent before anything is stored.
    pub(crate) fn take_early(&self, now: Duration) -> Vec<Envelope> {
        self.now.set(now);
        let mut raft = self.raft.borrow_mut();
        raft.note_time(now);
        raft.replicate(now);
        raft.take_early()
    }

    /// Makes durable what the log promises; gives what may be sent then, and whether there was
    /// anything to do.
    pub(crate) fn store(&self) -> Result<(Vec<Envelope>, bool), KvError> {
        let mut ready = self.raft.borrow_mut().take_ready();
        let any = !ready.is_empty();
        if let Some(from) = ready.sync_from {
            self.begin_copy(from);
        }
        if ready.stores() {
            let mut batch = KvBatch::new();
            if let Some(hard) = ready.hard {
                batch.put(raft_key("hard"), hard.to_bytes());
            }
            if let Some(index) = ready.truncate {
                let end = layout::numbered(RAFT, "entry_", u64::MAX);
                batch.delete_range(entry_key(index + 1), end);
            }
            for entry in &ready.append {
                let bytes = entry.to_bytes();
                let (entries, sum) = self.stored.get();
                self.stored.set((entries + 1, sum + bytes.len() as u64));
                batch.put(entry_key(entry.index), bytes);
            }
            if let Some(base) = &ready.base {
                batch.delete_range(entry_key(0), entry_key(base.index + 1));
                batch.put(raft_key("base"), base.to_bytes());
            }
            self.kv.commit(batch)?;
        }
        self.raft.borrow_mut().persisted();
        ready.after.append(&mut ready.early);
        Ok((ready.after, any))
    }

    /// How many entries have been stored since this was last called, and their bytes.
    pub(crate) fn take_stored(&self) -> (u64, u64) {
        self.stored.take()
    }

    /// Applies what is committed; gives the batches, in order.
    pub(crate) fn apply(&self) -> Result<Vec<KvBatch>, KvError> {
        let mut batches = Vec::new();
        if self.torn.get() {
            return Ok(batches);
        }
        let entries = self.raft.borrow().take_committed();
        for entry in entries {
            let mut batch = match &entry.payload {
                Payload::Data(bytes) => decode_batch(bytes).map_err(|e| corrupt("entry", e))?,
                Payload::Noop | Payload::Members(_) => KvBatch::new(),
            };
            let applied = batch.clone();
            layout::put_u64(&mut batch, PAXOS, "last_committed", entry.index);
            self.kv.commit_later(batch)?;
            let mut raft = self.raft.borrow_mut();
            raft.applied_to(self.now.get(), entry.index);
            if entry.index >= self.whole_at.get() {
                raft.set_whole(true);
            }
            batches.push(applied);
            let waiter = self.waiters.borrow_mut().remove(&entry.index);
            if let Some((term, sender)) = waiter {
                // Another leader's entry may have taken the place of ours.
                if term == entry.term && raft.is_leader() {
                    sender.send(entry.index);
                }
            }
        }
        Ok(batches)
    }

    /// This monitor does not lead any more: nobody will be told of his entry.
    pub(crate) fn drop_waiters(&self) {
        self.waiters.borrow_mut().clear();
    }

    fn begin_copy(&self, from: MemberId) {
        let mut copying = self.copying.borrow_mut();
        if copying.is_none() {
            let asked = Duration::ZERO;
            *copying = Some(Copying { from, base: None, after: Bytes::new(), asked });
        }
    }

    /// Whom to ask for which piece, if that is due.
    pub(crate) fn copy_request(&self, now: Duration) -> Option<(MemberId, Bytes)> {
        const PATIENCE: Duration = Duration::from_secs(2);
        if self.torn.get() && self.copying.borrow().is_none() {
            // An earlier copy broke off.
            let leader = self.raft.borrow().leader()?;
            self.begin_copy(leader);
        }
        let mut copying = self.copying.borrow_mut();
        let copy = copying.as_mut()?;
        if !copy.asked.is_zero() && now < copy.asked + PATIENCE {
            return None;
        }
        if !copy.asked.is_zero() {
            // No answer: perhaps another monitor leads now.
            let leader = self.raft.borrow().leader();
            let Some(leader) = leader else {
                *copying = None;
                return None;
            };
            *copy = Copying { from: leader, base: None, after: Bytes::new(), asked: now };
        }
        copy.asked = now;
        Some((copy.from, copy.after.clone()))
    }

    /// Whether a piece is to be asked for (again).
    pub(crate) fn copy_due(&self) -> bool {
        self.torn.get() || self.copying.borrow().is_some()
    }

    /// A piece for another monitor; nothing if there is no whole state here.
    pub(crate) fn piece(&self, after: Bytes) -> Result<Option<Piece>, KvError> {
        if !self.is_whole() {
            return Ok(None);
        }
        let Some(base) = self.raft.borrow().applied_base() else { return Ok(None) };
        let (own, own_end) = prefix_range(RAFT);
        let start = match after.is_empty() {
            true => Bytes::new(),
            false => [&after[..], &[0]].concat().into(),
        };
        // Around what is this monitor's alone.
        let mut entries = match start < own {
            true => self.kv.range(&start, &own, PIECE_ENTRIES_MAX)?,
            false => Vec::new(),
        };
        let room = PIECE_ENTRIES_MAX - entries.len();
        if room > 0 {
            entries.extend(self.kv.range(start.max(own_end).as_ref(), &[], room)?);
        }
        let mut last = entries.len() < PIECE_ENTRIES_MAX;
        let mut bytes = 0;
        let fits = entries.iter().take_while(|(key, value)| {
            let fits = bytes < PIECE_BYTES_MAX;
            bytes += key.len() + value.len();
            fits
        });
        let fits = fits.count();
        if fits < entries.len() {
            entries.truncate(fits);
            last = false;
        }
        entries.retain(|(key, _)| !is_own(key));
        Ok(Some(Piece { after, entries, base, last }))
    }

    /// A piece has come. Says whether it was taken: then the state of before is gone, and who has
    /// read it knows nothing, even if the piece was the only one and the state is whole again.
    pub(crate) fn take_piece(&self, from: MemberId, piece: Piece) -> Result<bool, KvError> {
        let mut copying = self.copying.borrow_mut();
        let Some(copy) = copying.as_mut() else { return Ok(false) };
        if copy.from != from || copy.after != piece.after {
            return Ok(false);
        }
        let mut batch = KvBatch::new();
        let (own, own_end) = prefix_range(RAFT);
        let first = match &copy.base {
            Some(base) => base.clone(),
            None => {
                let applied = self.raft.borrow().applied();
                if piece.base.index <= applied && !self.torn.get() {
                    // The log has caught up by itself.
                    *copying = None;
                    return Ok(false);
                }
                layout::put_u64(&mut batch, RAFT, "copying", 1);
                batch.delete_range(Bytes::new(), own);
                batch.delete_range(own_end, Bytes::new());
                // The next start may come before the piece that has them.
                put_bootstrap(&*self.kv, &mut batch)?;
                self.torn.set(true);
                self.raft.borrow_mut().set_whole(false);
                piece.base.clone()
            }
        };
        copy.base = Some(first.clone());
        if let Some((key, _)) = piece.entries.last() {
            copy.after = key.clone();
        }
        for (key, value) in piece.entries {
            if !is_own(&key) {
                batch.put(key, value);
            }
        }
        copy.asked = Duration::ZERO;
        if !piece.last {
            drop(copying);
            self.kv.commit(batch)?;
            return Ok(true);
        }
        *copying = None;
        let mut raft = self.raft.borrow_mut();
        let Some(tail_stays) = raft.install(first.clone()) else {
            self.kv.commit(batch)?;
            return Ok(true);
        };
        let last_removed = if tail_stays { first.index + 1 } else { u64::MAX };
        batch.delete_range(entry_key(0), entry_key(last_removed));
        batch.put(raft_key("base"), first.to_bytes());
        batch.delete(raft_key("copying"));
        layout::put_u64(&mut batch, RAFT, "whole_at", piece.base.index);
        layout::put_u64(&mut batch, PAXOS, "last_committed", first.index);
        self.kv.commit(batch)?;
        self.torn.set(false);
        self.whole_at.set(piece.base.index);
        raft.set_whole(first.index >= piece.base.index);
        Ok(true)
    }

    /// Proposes; the answer comes when it is applied here, or never if another monitor leads.
    fn propose_batch(&self, batch: &KvBatch) -> Result<Receiver<u64>, LogError> {
        let mut raft = self.raft.borrow_mut();
        let index = raft.propose(encode_batch(batch)).ok_or(LogError::NotLeader)?;
        let (sender, receiver) = oneshot();
        self.waiters.borrow_mut().insert(index, (raft.term(), sender));
        Ok(receiver)
    }
}

impl Log for Replica {
    fn propose(&self, batch: KvBatch) -> LocalFuture<Result<u64, LogError>> {
        let proposed = self.propose_batch(&batch);
        Box::pin(async move { proposed?.await.map_err(|_| LogError::NotLeader) })
    }

    fn last_committed(&self) -> u64 {
        self.raft.borrow().applied()
    }
}

#[cfg(test)]
mod tests;
