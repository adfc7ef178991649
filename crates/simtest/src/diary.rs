//! What happened in a life, kept for whoever has to understand it: misfortunes, maps, operations
//! and the finding. Nothing is kept unless somebody asks for it with [`keep`]; a life has a thread
//! of its own, and so has its diary.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Duration;

use sim::Control;

use crate::Fault;

/// Lines kept of a life; what comes later is only counted.
const LINES_MAX: usize = 200_000;

/// What a line of a diary is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// A misfortune of this name (`osd-0-3`) begins.
    Begins(String),
    /// It is over.
    Ends(String),
    /// What was done, in words.
    Note(String),
    /// An OSD map, when the administrator's client has it.
    Map {
        /// Its number.
        epoch: u32,
        /// OSDs that are up in it.
        up: Vec<i32>,
        /// OSDs that belong to the cluster.
        members: usize,
    },
    /// An operation begins.
    Asked {
        /// Its number.
        op: u64,
        /// The client.
        who: String,
        /// The object.
        object: String,
        /// What is asked.
        action: String,
    },
    /// It is answered.
    Answered {
        /// Its number.
        op: u64,
        /// What the client is told.
        answer: String,
    },
    /// What must not be.
    Finding(String),
}

/// What happened when, in the life's own time.
#[derive(Debug, Clone, Default)]
pub struct Diary {
    /// In order.
    pub lines: Vec<(Duration, What)>,
    /// Lines that were too many.
    pub omitted: u64,
    /// The kinds of misfortunes that the life has.
    pub(crate) kinds: BTreeSet<Fault>,
    /// The last operation's number.
    pub(crate) ops: u64,
}

thread_local! {
    static DIARY: RefCell<Option<Diary>> = const { RefCell::new(None) };
}

/// From now on this thread's life is written down.
pub fn keep() {
    DIARY.set(Some(Diary::default()));
}

/// Whether this thread's life is written down.
pub(crate) fn is_kept() -> bool {
    DIARY.with_borrow(Option::is_some)
}

/// What has been written down since [`keep`].
pub fn take() -> Diary {
    DIARY.take().unwrap_or_default()
}

fn write(now: Duration, what: impl FnOnce() -> What) {
    DIARY.with_borrow_mut(|diary| {
        let Some(diary) = diary else { return };
        if diary.lines.len() < LINES_MAX {
            diary.lines.push((now, what()));
        } else {
            diary.omitted += 1;
        }
    });
}

/// These kinds of misfortunes happen, or some of them.
pub(crate) fn kinds(kinds: &BTreeSet<Fault>) {
    DIARY.with_borrow_mut(|diary| {
        if let Some(diary) = diary {
            diary.kinds.clone_from(kinds);
        }
    });
}

/// A misfortune begins.
pub(crate) fn fault(world: &Control, name: &str) {
    tracing::info!("{:?}: {name}", world.now());
    write(world.now(), || What::Begins(name.to_owned()));
}

/// A misfortune is over.
pub(crate) fn fault_ends(world: &Control, name: &str) {
    write(world.now(), || What::Ends(name.to_owned()));
}

/// Something is done to the cluster.
pub(crate) fn note(world: &Control, text: String) {
    tracing::info!("{:?}: {text}", world.now());
    write(world.now(), || What::Note(text));
}

/// Somebody has a new map.
pub(crate) fn map(world: &Control, epoch: u32, up: Vec<i32>, members: usize) {
    write(world.now(), || What::Map { epoch, up, members });
}

/// A client asks; the operation's number.
pub(crate) fn asked(
    now: Duration,
    who: &str,
    object: &str,
    action: impl FnOnce() -> String,
) -> u64 {
    let op = DIARY.with_borrow_mut(|diary| {
        diary.as_mut().map(|diary| {
            diary.ops += 1;
            diary.ops
        })
    });
    let Some(op) = op else { return 0 };
    let (who, object) = (who.to_owned(), object.to_owned());
    write(now, || What::Asked { op, who, object, action: action() });
    op
}

/// A client is told.
pub(crate) fn answered(now: Duration, op: u64, answer: impl FnOnce() -> String) {
    write(now, || What::Answered { op, answer: answer() });
}

/// The life is over, and this is why.
pub(crate) fn finding(text: &str) {
    let last = DIARY.with_borrow(|diary| Some(diary.as_ref()?.lines.last()?.0));
    write(last.unwrap_or_default(), || What::Finding(text.to_owned()));
}
