//! What an object is to its clients, as a model: content in slots, a mark
//! that every write sets, keys, and what snapshots keep.
//!
//! ```text
//! content   slot 0 | slot 1 | ...      each of one length, holding one write's value; 0 is a hole
//! "value"   the attribute: value of the last write
//! keys      one letter -> value
//! ```
//!
//! Snapshots are self-managed with ids from 1 on, none ever removed, or the pool's: a write under snapshot `n`
//! makes a clone of what was there if the object has none for `n` yet, as `make_writeable` in
//! `src/osd/PrimaryLogPG.cc` (v16.2) does.

use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use bstr::BString;
use bytes::{BufMut, Bytes, BytesMut};
use client::Operation;
use sim::Model;
use types::Errno;
use types::osd::OsdOp;
use types::osd::ops::{self, XattrArgs, compare_mode, compare_op};

/// The attribute that repeats the value of the last write.
pub(crate) const MARK: &str = "value";

/// What an object holds.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Content {
    pub(crate) slots: Vec<u64>,
    pub(crate) mark: u64,
    pub(crate) keys: BTreeMap<u8, u64>,
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} mark {}", self.slots, self.mark)?;
        for (key, value) in &self.keys {
            write!(f, " {}={value}", char::from(*key))?;
        }
        Ok(())
    }
}

/// An object with its snapshots.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(crate) struct State {
    head: Option<Rc<Content>>,
    /// Newest snapshot that a write has known.
    seq: u64,
    /// Contents of snapshots above the first number up to the second.
    clones: Vec<(u64, u64, Rc<Content>)>,
    /// Newest snapshot of the pool that the primary knows.
    pool: u64,
}

/// What a client does to an object. Writes carry the newest snapshot they know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    /// Content of so many slots in place of what was there.
    Replace { value: u64, slots: usize, snap: u64 },
    /// One slot more at the end.
    Append { value: u64, snap: u64 },
    /// One slot more at the end, if the last write was of that value.
    AppendIf { value: u64, last: u64, snap: u64 },
    /// One slot at its place, with holes before it.
    Put { value: u64, slot: usize, snap: u64 },
    /// A key.
    SetKey { value: u64, key: u8, snap: u64 },
    /// No key any more. Fails if the object is not there.
    RmKey { value: u64, key: u8, snap: u64 },
    /// So many slots of an object that is there, holes for those it did not have.
    Truncate { value: u64, slots: usize, snap: u64 },
    /// A hole in place of a slot that is there, or nothing if it is the last.
    Zero { value: u64, slot: usize, snap: u64 },
    /// What a snapshot has in place of what is there.
    Rollback { value: u64, to: u64, snap: u64 },
    /// Fails if the object is there.
    CreateNew { value: u64, snap: u64 },
    /// Fails if it is not.
    Remove { snap: u64 },
    /// The primary learns of a snapshot of the pool.
    PoolSnap { snap: u64 },
    /// Everything.
    Read,
    /// Everything as it was at a snapshot.
    ReadSnap { snap: u64 },
}

/// What a client is told.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Answer {
    Done,
    Refused(Errno),
    Found(Rc<Content>),
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Answer::Done => f.write_str("done"),
            Answer::Refused(errno) => write!(f, "{errno}"),
            Answer::Found(content) => content.fmt(f),
        }
    }
}

impl State {
    /// The content as it was at a snapshot.
    fn at(&self, snap: u64) -> Option<&Rc<Content>> {
        if snap > self.seq {
            return self.head.as_ref();
        }
        let (_, _, content) =
            self.clones.iter().find(|(low, high, _)| *low < snap && snap <= *high)?;
        Some(content)
    }

    /// The state in which a write under `snap` changes the head.
    fn writable(&self, snap: u64) -> State {
        let mut state = self.clone();
        let snap = snap.max(state.pool);
        if snap > state.seq {
            if let Some(head) = &state.head {
                state.clones.push((state.seq, snap, head.clone()));
            }
            state.seq = snap;
        }
        state
    }

    fn write(
        &self,
        snap: u64,
        value: u64,
        change: impl FnOnce(&mut Content),
    ) -> (Answer, Option<State>) {
        let mut state = self.writable(snap);
        let mut content = state.head.as_deref().cloned().unwrap_or_default();
        content.mark = value;
        change(&mut content);
        state.head = Some(Rc::new(content));
        (Answer::Done, Some(state))
    }
}

fn found(content: Option<&Rc<Content>>) -> Answer {
    content.map_or(Answer::Refused(Errno::ENOENT), |content| Answer::Found(content.clone()))
}

/// See the module.
pub(crate) struct Object;

impl Model for Object {
    type State = State;
    type Op = Action;
    type Answer = Answer;

    fn apply(&self, state: &State, action: &Action) -> (Answer, Option<State>) {
        match *action {
            Action::Replace { value, slots, snap } => {
                state.write(snap, value, |content| content.slots = vec![value; slots])
            }
            Action::Append { value, snap } => {
                state.write(snap, value, |content| content.slots.push(value))
            }
            Action::AppendIf { value, last, snap } => match &state.head {
                Some(head) if head.mark == last => {
                    state.write(snap, value, |content| content.slots.push(value))
                }
                Some(_) => (Answer::Refused(Errno::ECANCELED), None),
                None => (Answer::Refused(Errno::ENOENT), None),
            },
            Action::Put { value, slot, snap } => state.write(snap, value, |content| {
                let len = content.slots.len().max(slot + 1);
                content.slots.resize(len, 0);
                content.slots[slot] = value;
            }),
            Action::SetKey { value, key, snap } => state.write(snap, value, |content| {
                content.keys.insert(key, value);
            }),
            Action::RmKey { value, key, snap } => match &state.head {
                Some(_) => state.write(snap, value, |content| {
                    content.keys.remove(&key);
                }),
                None => (Answer::Refused(Errno::ENOENT), None),
            },
            // What is not there is not cut; the mark makes it, and it is empty.
            Action::Truncate { value, slots, snap } => {
                let len = if state.head.is_some() { slots } else { 0 };
                state.write(snap, value, |content| content.slots.resize(len, 0))
            }
            // A hole that reaches the end is a cut.
            Action::Zero { value, slot, snap } => state.write(snap, value, |content| {
                if slot + 1 == content.slots.len() {
                    content.slots.pop();
                } else if let Some(slot) = content.slots.get_mut(slot) {
                    *slot = 0;
                }
            }),
            // Where the snapshot has nothing the object goes, and the mark makes it anew.
            Action::Rollback { value, to, snap } => {
                let kept = state.at(to).map(|content| (**content).clone()).unwrap_or_default();
                state.write(snap, value, |content| *content = Content { mark: value, ..kept })
            }
            Action::CreateNew { value, snap } => match state.head {
                Some(_) => (Answer::Refused(Errno::EEXIST), None),
                None => state.write(snap, value, |_| ()),
            },
            Action::Remove { snap } => {
                if state.head.is_none() {
                    return (Answer::Refused(Errno::ENOENT), None);
                }
                let mut state = state.writable(snap);
                state.head = None;
                if state.clones.is_empty() {
                    // Nothing keeps the object's snapshots in mind.
                    state.seq = 0;
                }
                (Answer::Done, Some(state))
            }
            Action::PoolSnap { snap } => {
                (Answer::Done, Some(State { pool: snap, ..state.clone() }))
            }
            Action::Read => (found(state.head.as_ref()), None),
            Action::ReadSnap { snap } => (found(state.at(snap)), None),
        }
    }

    fn is_read(&self, action: &Action) -> bool {
        matches!(action, Action::Read | Action::ReadSnap { .. })
    }
}

impl Action {
    /// The value it writes.
    pub(crate) fn value(&self) -> Option<u64> {
        match *self {
            Action::Replace { value, .. }
            | Action::Append { value, .. }
            | Action::AppendIf { value, .. }
            | Action::Put { value, .. }
            | Action::SetKey { value, .. }
            | Action::RmKey { value, .. }
            | Action::Truncate { value, .. }
            | Action::Zero { value, .. }
            | Action::Rollback { value, .. }
            | Action::CreateNew { value, .. } => Some(value),
            Action::Remove { .. } | Action::PoolSnap { .. } => None,
            Action::Read | Action::ReadSnap { .. } => None,
        }
    }

    /// The operation to send. Slots are of `slot_len` bytes; reads ask for keys if there is `omap`.
    pub(crate) fn operation(&self, slot_len: usize, omap: bool) -> Operation {
        let op = Operation::new();
        let mark = |op: Operation, value: u64| op.setxattr(MARK, &value.to_le_bytes());
        match *self {
            Action::Replace { value, slots, .. } => {
                let mut content = BytesMut::with_capacity(slots * slot_len);
                for _ in 0..slots {
                    put_slot(&mut content, value, slot_len);
                }
                mark(op.write_full(content.freeze()), value)
            }
            Action::Append { value, .. } => mark(op.append(slot(value, slot_len)), value),
            Action::AppendIf { value, last, .. } => {
                mark(op.stat().op(mark_is(last)).append(slot(value, slot_len)), value)
            }
            Action::Put { value, slot: at, .. } => {
                mark(op.write((at * slot_len) as u64, slot(value, slot_len)), value)
            }
            Action::SetKey { value, key, .. } => {
                // Values of several lengths, some beyond what a store keeps in a row.
                let len = 8 + value as usize * 7 % 300;
                let keys = BTreeMap::from([(BString::from(vec![key]), slot(value, len))]);
                mark(op.omap_set(&keys), value)
            }
            Action::RmKey { value, key, .. } => {
                mark(op.omap_rm_keys(&[BString::from(vec![key])]), value)
            }
            Action::Truncate { value, slots, .. } => {
                mark(op.truncate((slots * slot_len) as u64), value)
            }
            Action::Zero { value, slot: at, .. } => {
                mark(op.zero((at * slot_len) as u64, slot_len as u64), value)
            }
            Action::Rollback { value, to, .. } => mark(op.rollback(to), value),
            Action::CreateNew { value, .. } => mark(op.create(true), value),
            Action::Remove { .. } => op.remove(),
            // Nobody sends it.
            Action::PoolSnap { .. } => op,
            Action::Read | Action::ReadSnap { .. } if !omap => op.read(0, 0).getxattr(MARK),
            Action::Read | Action::ReadSnap { .. } => op.read(0, 0).getxattr(MARK).omap_get_vals(
                &BString::default(),
                1000,
                &BString::default(),
            ),
        }
    }
}

/// Fails if the mark is another.
fn mark_is(value: u64) -> OsdOp {
    let op = OsdOp::attr(ops::CMPXATTR, MARK.as_bytes(), &value.to_le_bytes());
    let mut op = op.expect("a short name");
    let args = op.args.xattr();
    op.args.set_xattr(XattrArgs {
        compare_op: compare_op::EQ,
        compare_mode: compare_mode::STRING,
        ..args
    });
    op
}

fn slot(value: u64, len: usize) -> Bytes {
    let mut content = BytesMut::with_capacity(len);
    put_slot(&mut content, value, len);
    content.freeze()
}

/// The bytes that stand for a value: itself, then bytes that follow from it.
fn put_slot(content: &mut BytesMut, value: u64, len: usize) {
    let end = content.len() + len;
    content.put_u64_le(value);
    let mut state = value | 1;
    while content.len() < end {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        let bytes = state.to_be_bytes();
        content.put_slice(&bytes[..(end - content.len()).min(8)]);
    }
}

/// The value that bytes stand for; an error if they are of no value, or of several.
fn value_of(bytes: &[u8]) -> Result<u64, String> {
    let head = bytes.first_chunk().ok_or_else(|| format!("{} bytes are no value", bytes.len()))?;
    let value = u64::from_le_bytes(*head);
    let sound = match value {
        0 => bytes.iter().all(|byte| *byte == 0),
        _ => slot(value, bytes.len()) == bytes,
    };
    sound.then_some(value).ok_or_else(|| format!("bytes of {value} are mixed with others"))
}

/// The content that a read's outputs stand for.
pub(crate) fn content_of(
    data: &[u8],
    mark: &[u8],
    keys: &BTreeMap<BString, Bytes>,
    slot_len: usize,
) -> Result<Content, String> {
    if !data.len().is_multiple_of(slot_len) {
        return Err(format!("{} bytes, which is no multiple of {slot_len}", data.len()));
    }
    let slots = data.chunks(slot_len).map(value_of).collect::<Result<Vec<u64>, String>>()?;
    let mark = mark.try_into().map_err(|_| format!("a mark of {} bytes", mark.len()))?;
    let mut values = BTreeMap::new();
    for (key, bytes) in keys {
        let [key] = key[..] else {
            return Err(format!("a key {key:?}"));
        };
        values.insert(key, value_of(bytes)?);
    }
    Ok(Content { slots, mark: u64::from_le_bytes(mark), keys: values })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_and_keys_are_read_back() {
        let mut data = BytesMut::new();
        put_slot(&mut data, 7, 100);
        data.put_bytes(0, 100);
        let keys = BTreeMap::from([(BString::from("a"), slot(9, 50))]);
        let content = content_of(&data, &7u64.to_le_bytes(), &keys, 100).unwrap();
        assert_eq!((content.slots, content.mark), (vec![7, 0], 7));
        assert_eq!(content.keys, BTreeMap::from([(b'a', 9)]));
        data[50] ^= 1;
        assert!(content_of(&data, &7u64.to_le_bytes(), &keys, 100).is_err());
        assert!(content_of(&data[..150], &7u64.to_le_bytes(), &keys, 100).is_err());
    }

    #[test]
    fn a_snapshot_of_the_pool_counts_for_writes_that_do_not_name_it() {
        let write = Action::Append { value: 1, snap: 0 };
        let (_, first) = Object.apply(&State::default(), &write);
        let (_, taken) = Object.apply(&first.unwrap(), &Action::PoolSnap { snap: 4 });
        let (_, second) = Object.apply(&taken.unwrap(), &Action::Append { value: 2, snap: 0 });
        let second = second.unwrap();
        let marks = |action: Action| match Object.apply(&second, &action).0 {
            Answer::Found(content) => content.mark,
            other => panic!("{other:?}"),
        };
        assert_eq!(marks(Action::ReadSnap { snap: 4 }), 1);
        assert_eq!(marks(Action::Read), 2);
    }

    #[test]
    fn a_snapshot_keeps_what_was_there() {
        let mut state = State::default();
        let mut act = |action: Action| {
            let (answer, next) = Object.apply(&state, &action);
            state = next.unwrap_or(state.clone());
            answer
        };
        let marks = |answer: Answer| match answer {
            Answer::Found(content) => content.mark,
            other => panic!("{other:?}"),
        };
        act(Action::Replace { value: 1, slots: 1, snap: 0 });
        act(Action::Append { value: 2, snap: 1 });
        act(Action::Append { value: 3, snap: 3 });
        assert_eq!(marks(act(Action::ReadSnap { snap: 1 })), 1);
        assert_eq!(marks(act(Action::ReadSnap { snap: 2 })), 2);
        assert_eq!(marks(act(Action::ReadSnap { snap: 3 })), 2);
        assert_eq!(marks(act(Action::Read)), 3);
        act(Action::Remove { snap: 4 });
        assert_eq!(act(Action::Read), Answer::Refused(Errno::ENOENT));
        assert_eq!(marks(act(Action::ReadSnap { snap: 4 })), 3);
    }

    /// `do_osd_ops` and `_rollback_to` in `src/osd/PrimaryLogPG.cc` (v16.2): what is not there is neither cut nor loses
    /// keys, a hole to the end is a cut, and going back to where nothing was removes.
    #[test]
    fn what_changes_an_objects_shape_leaves_what_ceph_leaves() {
        let mut state = State::default();
        let mut act = |action: Action| {
            let (answer, next) = Object.apply(&state, &action);
            state = next.unwrap_or(state.clone());
            match (answer, Object.apply(&state, &Action::Read).0) {
                (Answer::Done, Answer::Found(content)) => (*content).clone(),
                (answer, _) => panic!("{answer:?}"),
            }
        };
        let slots = |content: Content| (content.slots, content.mark, content.keys.len());
        let cut = act(Action::Truncate { value: 1, slots: 3, snap: 0 });
        assert_eq!(slots(cut), (vec![], 1, 0));
        act(Action::Replace { value: 2, slots: 2, snap: 0 });
        act(Action::SetKey { value: 3, key: b'a', snap: 0 });
        let grown = act(Action::Truncate { value: 4, slots: 3, snap: 1 });
        assert_eq!(slots(grown), (vec![2, 2, 0], 4, 1));
        let hole = act(Action::Zero { value: 5, slot: 0, snap: 1 });
        assert_eq!(slots(hole), (vec![0, 2, 0], 5, 1));
        let beyond = act(Action::Zero { value: 6, slot: 3, snap: 2 });
        assert_eq!(slots(beyond), (vec![0, 2, 0], 6, 1));
        let lost = act(Action::RmKey { value: 7, key: b'a', snap: 2 });
        assert_eq!(slots(lost), (vec![0, 2, 0], 7, 0));
        let cut = act(Action::Zero { value: 7, slot: 2, snap: 2 });
        assert_eq!(slots(cut), (vec![0, 2], 7, 0));
        let back = act(Action::Rollback { value: 8, to: 1, snap: 2 });
        assert_eq!(slots(back), (vec![2, 2], 8, 1));
        // No write has known of it: it is what is there.
        let now = act(Action::Rollback { value: 9, to: 3, snap: 3 });
        assert_eq!(slots(now), (vec![2, 2], 9, 1));
        let removed = Object.apply(&state, &Action::Remove { snap: 3 }).1.unwrap();
        let answer = Object.apply(&removed, &Action::RmKey { value: 10, key: b'a', snap: 3 }).0;
        assert_eq!(answer, Answer::Refused(Errno::ENOENT));
        let mut state = State::default();
        for action in [
            Action::CreateNew { value: 1, snap: 2 },
            Action::SetKey { value: 2, key: b'a', snap: 2 },
            Action::Rollback { value: 3, to: 1, snap: 2 },
        ] {
            state = Object.apply(&state, &action).1.unwrap();
        }
        let Answer::Found(content) = Object.apply(&state, &Action::Read).0 else { panic!() };
        assert_eq!(slots((*content).clone()), (vec![], 3, 0));
    }
}
