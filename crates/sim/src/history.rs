//! What clients did and saw, and whether a store that keeps its word could have answered so.
//!
//! Every write of an object carries a value of its own. A write that was acknowledged took effect
//! between its beginning and its acknowledgement; one that never was (its client died, or was
//! told of an error that leaves the outcome open) may take effect at any time from its beginning
//! on, or never. A read must return a value that some order of the writes allows:
//!
//! 1. one that was written, by a write begun before the read ended;
//! 2. not one that is surely overwritten: by a write that began after it was acknowledged and was
//!    itself acknowledged before the read began;
//! 3. not one older than what an earlier, finished read has already returned, in the same sense.

use std::collections::BTreeMap;
use std::time::Duration;

/// Number of a write in its object's history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct WriteId(usize);

/// All that happened to a set of objects.
#[derive(Debug, Default)]
pub struct History {
    objects: BTreeMap<String, Vec<Write>>,
}

#[derive(Debug)]
struct Write {
    value: u64,
    begun: Duration,
    /// When it had surely taken effect: acknowledged, or first seen by a finished read.
    effective: Option<Duration>,
}

/// What no store that keeps its word answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Broken {
    /// A value nobody wrote (yet).
    NeverWritten {
        /// The object.
        object: String,
        /// What was read; `None` if there was no object.
        value: Option<u64>,
    },
    /// An acknowledged (or already seen) write is missing: a read returned what it replaced.
    Lost {
        /// The object.
        object: String,
        /// What was read; `None` if there was no object.
        value: Option<u64>,
        /// The value that should have replaced it.
        missing: u64,
    },
}

impl History {
    /// A write of `value`, unlike any other of this object, begins.
    pub fn begin_write(&mut self, object: &str, value: u64, now: Duration) -> WriteId {
        let writes = self.objects.entry(object.to_owned()).or_default();
        assert!(
            writes.iter().all(|write| write.value != value),
            "values are used once"
        );
        writes.push(Write {
            value,
            begun: now,
            effective: None,
        });
        WriteId(writes.len() - 1)
    }

    /// The write was acknowledged.
    pub fn acknowledge(&mut self, object: &str, write: WriteId, now: Duration) {
        let writes = self
            .objects
            .get_mut(object)
            .expect("acknowledged after its beginning");
        writes[write.0].effective.get_or_insert(now);
    }

    /// Judges a read that began at `begun`, ends `now` and returned `value` (`None`: no such
    /// object).
    pub fn read(
        &mut self,
        object: &str,
        value: Option<u64>,
        begun: Duration,
        now: Duration,
    ) -> Result<(), Broken> {
        let writes = self.objects.entry(object.to_owned()).or_default();
        let read = match value {
            Some(value) => match writes.iter().position(|write| write.value == value) {
                Some(index) => Some(index),
                None => {
                    return Err(Broken::NeverWritten {
                        object: object.to_owned(),
                        value: Some(value),
                    });
                }
            },
            None => None,
        };
        // When the value read had surely taken effect; no object was there from the start.
        let effective = match read {
            Some(index) => writes[index].effective,
            None => Some(Duration::ZERO),
        };
        let replaced = writes.iter().enumerate().find(|(index, write)| {
            Some(*index) != read
                && effective.is_some_and(|effective| write.begun >= effective)
                && write.effective.is_some_and(|done| done <= begun)
        });
        if let Some((_, missing)) = replaced {
            let missing = missing.value;
            return Err(Broken::Lost {
                object: object.to_owned(),
                value,
                missing,
            });
        }
        if let Some(index) = read {
            writes[index].effective.get_or_insert(now);
        }
        Ok(())
    }

    /// Objects with a write begun, in order.
    pub fn objects(&self) -> impl Iterator<Item = &str> {
        self.objects.keys().map(String::as_str)
    }

    /// Writes acknowledged or seen so far.
    pub fn effective_writes(&self) -> usize {
        self.objects
            .values()
            .flatten()
            .filter(|write| write.effective.is_some())
            .count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Duration {
        Duration::from_secs(second)
    }

    #[test]
    fn acknowledged_writes_must_be_seen() {
        let mut history = History::default();
        assert_eq!(history.read("o", None, at(0), at(1)), Ok(()));
        let one = history.begin_write("o", 1, at(1));
        assert_eq!(history.read("o", None, at(1), at(2)), Ok(()));
        history.acknowledge("o", one, at(2));
        assert_eq!(history.read("o", Some(1), at(3), at(4)), Ok(()));
        assert!(matches!(
            history.read("o", None, at(3), at(4)),
            Err(Broken::Lost { .. })
        ));
        assert!(matches!(
            history.read("o", Some(9), at(3), at(4)),
            Err(Broken::NeverWritten { .. })
        ));
        let two = history.begin_write("o", 2, at(5));
        assert_eq!(history.read("o", Some(1), at(5), at(6)), Ok(()));
        history.acknowledge("o", two, at(6));
        assert_eq!(
            history.read("o", Some(1), at(5), at(7)),
            Ok(()),
            "began before"
        );
        let lost = Broken::Lost {
            object: "o".into(),
            value: Some(1),
            missing: 2,
        };
        assert_eq!(history.read("o", Some(1), at(6), at(7)), Err(lost));
        assert_eq!(history.effective_writes(), 2);
    }

    #[test]
    fn unacknowledged_writes_may_show_but_not_vanish_again() {
        let mut history = History::default();
        let one = history.begin_write("o", 1, at(0));
        history.acknowledge("o", one, at(1));
        history.begin_write("o", 2, at(2));
        assert_eq!(history.read("o", Some(1), at(3), at(4)), Ok(()));
        assert_eq!(history.read("o", Some(2), at(5), at(6)), Ok(()));
        assert!(history.read("o", Some(1), at(7), at(8)).is_err());
        // Two writes at the same time: either order, and a read may tell which.
        let three = history.begin_write("o", 3, at(10));
        let four = history.begin_write("o", 4, at(10));
        history.acknowledge("o", three, at(12));
        history.acknowledge("o", four, at(12));
        assert_eq!(history.read("o", Some(3), at(13), at(14)), Ok(()));
    }
}
