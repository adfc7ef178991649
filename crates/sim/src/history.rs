//! Whether what clients did and saw can have come from a store that does one operation at a time:
//! linearizability, judged while the history is being made.
//!
//! An operation takes effect at one moment between its beginning and its end; one that never ends
//! (its client died) at any moment from its beginning on, or never. The history keeps every
//! state the store can be in, each with the operations that are under way and have taken effect
//! in it already. At an operation's end those states stay in which it has taken effect with the
//! answer it was given, after any order of others that are under way. None left: the store broke
//! its word.
//!
//! Cost: states double with each operation whose outcome stays unknown, and most of them merge
//! again when contents are replaced. [`STATES_MAX`] bounds them, and [`LOOKED_AT_MAX`] what all answers
//! together may take: thousands of states that never merge cost each answer a second.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::time::Duration;

/// States kept of one history. Beyond them it says nothing any more (see [`Judged`]).
const STATES_MAX: usize = 20_000;
/// States looked at for all answers of one history. Beyond them it says nothing any more.
const LOOKED_AT_MAX: usize = 500_000;
/// Operations remembered for the report of a violation.
const REPORTED_MAX: usize = 60;

/// What one operation at a time does.
pub trait Model {
    /// What the store holds.
    type State: Clone + Ord + fmt::Debug;
    /// What a client asks.
    type Op: fmt::Debug;
    /// What it is told.
    type Answer: Clone + Ord + fmt::Debug;

    /// What `op` answers in `state`, and the state after it; `None` if that stays as it is.
    fn apply(&self, state: &Self::State, op: &Self::Op) -> (Self::Answer, Option<Self::State>);

    /// Whether the operation never changes anything.
    fn is_read(&self, op: &Self::Op) -> bool;
}

/// Number of an operation in its history.
pub type OpId = u64;

/// What became of the judgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judged {
    /// Some order of the operations explains all answers.
    Sound,
    /// Too many operations have unknown outcomes: nothing can be said of this history any more.
    Unclear,
}

/// A state, and what operations under way answer: a write that has taken effect in it, its one
/// answer; a read, what it may have seen on the way to this state.
type Possible<M> = (<M as Model>::State, BTreeMap<OpId, BTreeSet<<M as Model>::Answer>>);

/// The history of one object (or of whatever the model describes).
pub struct History<M: Model> {
    model: M,
    possible: BTreeSet<Possible<M>>,
    under_way: BTreeMap<OpId, M::Op>,
    next: OpId,
    looked_at: usize,
    unclear: bool,
    report: VecDeque<Line<M::Answer>>,
}

struct Line<A> {
    id: OpId,
    who: String,
    op: String,
    begun: Duration,
    ended: Option<(Duration, A)>,
}

/// No order of the operations explains an answer.
pub struct Broken {
    /// The last operations and what was possible before the wrong answer.
    pub report: String,
}

impl<M: Model> History<M> {
    /// A history that begins in `state`.
    pub fn new(model: M, state: M::State) -> History<M> {
        History {
            model,
            possible: BTreeSet::from([(state, BTreeMap::new())]),
            under_way: BTreeMap::new(),
            next: 1,
            looked_at: 0,
            unclear: false,
            report: VecDeque::new(),
        }
    }

    /// A client asks.
    pub fn begin(&mut self, who: &str, op: M::Op, now: Duration) -> OpId {
        let id = self.next;
        self.next += 1;
        if self.report.len() == REPORTED_MAX {
            self.report.pop_front();
        }
        let (who, text) = (who.to_owned(), format!("{op:?}"));
        self.report.push_back(Line { id, who, op: text, begun: now, ended: None });
        if self.model.is_read(&op) {
            // What it may see at once; states that come later add to it.
            let possible = std::mem::take(&mut self.possible);
            self.possible = possible
                .into_iter()
                .map(|(state, mut answers)| {
                    answers.insert(id, BTreeSet::from([self.model.apply(&state, &op).0]));
                    (state, answers)
                })
                .collect();
        }
        self.under_way.insert(id, op);
        id
    }

    /// The state after a write has taken effect, as reads under way may see it.
    fn after(&self, (state, mut answers): Possible<M>) -> Possible<M> {
        for (read, op) in self.under_way.iter().filter(|(_, op)| self.model.is_read(op)) {
            answers.entry(*read).or_default().insert(self.model.apply(&state, op).0);
        }
        (state, answers)
    }

    /// A client is told.
    pub fn end(&mut self, id: OpId, answer: &M::Answer, now: Duration) -> Result<Judged, Broken> {
        if let Some(line) = self.report.iter_mut().find(|line| line.id == id) {
            line.ended = Some((now, answer.clone()));
        }
        if self.unclear {
            self.under_way.remove(&id);
            return Ok(Judged::Unclear);
        }
        let Some(op) = self.under_way.get(&id) else { return Ok(Judged::Sound) };
        let is_read = self.model.is_read(op);
        let mut left = BTreeSet::new();
        let mut todo: Vec<Possible<M>> = self.possible.iter().cloned().collect();
        let mut seen = self.possible.clone();
        while let Some((state, mut answers)) = todo.pop() {
            self.looked_at += 1;
            if seen.len() > STATES_MAX || self.looked_at > LOOKED_AT_MAX {
                self.unclear = true;
                self.possible.clear();
                self.under_way.remove(&id);
                return Ok(Judged::Unclear);
            }
            if let Some(predicted) = answers.get(&id) {
                if predicted.contains(answer) {
                    // Whatever could have come before it can come after it as well.
                    answers.remove(&id);
                    left.insert((state, answers));
                    continue;
                }
                if !is_read {
                    continue;
                }
            } else {
                let (now, changed) = self.model.apply(&state, op);
                let unchanged = changed.is_none();
                if now == *answer {
                    let next = (changed.unwrap_or_else(|| state.clone()), answers.clone());
                    left.insert(self.after(next));
                    if unchanged {
                        continue;
                    }
                }
            }
            for (other, op) in &self.under_way {
                if *other == id || answers.contains_key(other) || self.model.is_read(op) {
                    continue;
                }
                let (answer, changed) = self.model.apply(&state, op);
                let mut answers = answers.clone();
                answers.insert(*other, BTreeSet::from([answer]));
                let next = self.after((changed.unwrap_or_else(|| state.clone()), answers));
                if seen.insert(next.clone()) {
                    todo.push(next);
                }
            }
        }
        if left.is_empty() {
            return Err(Broken { report: self.describe(id) });
        }
        self.under_way.remove(&id);
        self.possible = left;
        Ok(Judged::Sound)
    }

    /// Nobody will ever be told. What was to be read does not matter then; a write may still take
    /// effect.
    pub fn abandon(&mut self, id: OpId) {
        if self.under_way.get(&id).is_some_and(|op| self.model.is_read(op)) {
            self.under_way.remove(&id);
            let possible = std::mem::take(&mut self.possible);
            self.possible = possible
                .into_iter()
                .map(|(state, mut answers)| {
                    answers.remove(&id);
                    (state, answers)
                })
                .collect();
        }
    }

    /// Operations begun and not ended.
    pub fn under_way(&self) -> usize {
        self.under_way.len()
    }

    fn describe(&self, wrong: OpId) -> String {
        let mut text = String::new();
        for line in &self.report {
            let mark = if line.id == wrong { "=>" } else { "  " };
            let end = match &line.ended {
                Some((at, answer)) => format!("{at:?} answered {answer:?}"),
                None => "never answered".to_owned(),
            };
            let Line { who, op, begun, .. } = line;
            text += &format!("{mark} {begun:?} {who} {op}; {end}\n");
        }
        for (state, done) in self.possible.iter().take(8) {
            let done: Vec<OpId> = done.keys().copied().collect();
            text += &format!("   possible before: {state:?}, of those under way done: {done:?}\n");
        }
        text
    }
}

impl fmt::Debug for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no order of the operations explains this:\n{}", self.report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A list of numbers.
    struct List;

    #[derive(Debug)]
    enum Do {
        Set(u8),
        Append(u8),
        Read,
    }

    impl Model for List {
        type State = Vec<u8>;
        type Op = Do;
        type Answer = Vec<u8>;

        fn apply(&self, state: &Vec<u8>, op: &Do) -> (Vec<u8>, Option<Vec<u8>>) {
            match op {
                Do::Set(n) => (vec![], Some(vec![*n])),
                Do::Append(n) => (vec![], Some([&state[..], &[*n]].concat())),
                Do::Read => (state.clone(), None),
            }
        }

        fn is_read(&self, op: &Do) -> bool {
            matches!(op, Do::Read)
        }
    }

    fn at(second: u64) -> Duration {
        Duration::from_secs(second)
    }

    fn done(history: &mut History<List>, op: Do, answer: &[u8]) -> Result<Judged, Broken> {
        let id = history.begin("a", op, at(0));
        history.end(id, &answer.to_vec(), at(1))
    }

    #[test]
    fn acknowledged_writes_must_be_seen() {
        let mut history = History::new(List, vec![]);
        done(&mut history, Do::Set(1), &[]).unwrap();
        done(&mut history, Do::Append(2), &[]).unwrap();
        done(&mut history, Do::Read, &[1, 2]).unwrap();
        let broken = done(&mut history, Do::Read, &[1]).unwrap_err();
        assert!(broken.report.contains("=> "), "{broken:?}");
    }

    #[test]
    fn an_append_happens_once() {
        let mut history = History::new(List, vec![]);
        done(&mut history, Do::Append(1), &[]).unwrap();
        assert!(done(&mut history, Do::Read, &[1, 1]).is_err());
    }

    #[test]
    fn what_was_seen_stays_seen() {
        let mut history = History::new(List, vec![]);
        done(&mut history, Do::Set(1), &[]).unwrap();
        history.begin("dead", Do::Set(2), at(0));
        done(&mut history, Do::Read, &[1]).unwrap();
        done(&mut history, Do::Read, &[2]).unwrap();
        assert_eq!(history.under_way(), 1);
        assert!(done(&mut history, Do::Read, &[1]).is_err());
    }

    #[test]
    fn operations_at_the_same_time_may_take_any_order() {
        for (seen, possible) in [(vec![1, 2], true), (vec![2, 1], true), (vec![1], false)] {
            let mut history = History::new(List, vec![]);
            let one = history.begin("a", Do::Append(1), at(0));
            let two = history.begin("b", Do::Append(2), at(0));
            history.end(one, &vec![], at(1)).unwrap();
            history.end(two, &vec![], at(1)).unwrap();
            assert_eq!(done(&mut history, Do::Read, &seen).is_ok(), possible, "{seen:?}");
        }
    }

    #[test]
    fn a_read_that_began_before_a_write_may_see_it_or_not() {
        for (seen, possible) in [(vec![], true), (vec![1], true), (vec![2], false)] {
            let mut history = History::new(List, vec![]);
            let read = history.begin("a", Do::Read, at(0));
            done(&mut history, Do::Set(1), &[]).unwrap();
            assert_eq!(history.end(read, &seen, at(2)).is_ok(), possible, "{seen:?}");
        }
    }

    #[test]
    fn too_many_unknown_outcomes_make_it_unclear() {
        let mut history = History::new(List, vec![]);
        for n in 0..20 {
            history.begin("dead", Do::Append(n), at(0));
        }
        assert_eq!(done(&mut history, Do::Read, &[200]).unwrap(), Judged::Unclear);
    }

    /// A simulated life in which clients rolled back to snapshots took minutes: what dead clients may have done
    /// left thousands of states, each looked at for each answer.
    #[test]
    fn states_that_never_merge_have_an_end() {
        let mut history = History::new(List, vec![]);
        for n in 0..8 {
            history.begin("dead", Do::Set(n), at(0));
        }
        // Most of it is used up.
        history.looked_at = LOOKED_AT_MAX - 2000;
        let mut answers = 0;
        while done(&mut history, Do::Read, &[0]).unwrap() == Judged::Sound {
            answers += 1;
            assert!(answers < 2000, "{} states looked at", history.looked_at);
        }
        assert!(answers > 1, "{answers}");
    }
}
