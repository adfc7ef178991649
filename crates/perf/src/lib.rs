//! Counters of a daemon, under Ceph's names where Ceph counts the same (`src/common/perf_counters.cc` at
//! v16.2): for `perf dump` and `perf schema`, and for reports to the manager.
//!
//! A daemon keeps its numbers where it counts; when somebody asks it makes a list of [`Counter`]s of them.

mod average;
mod commands;
mod histogram;
mod report;

pub use average::{Average, Times};
pub use commands::{answers, command, signatures};
pub use histogram::{Axis, Histogram, Named};
pub use report::Reporter;

use std::borrow::Cow;
use std::time::Duration;

/// A counter's value now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value {
    /// Goes up and down.
    Gauge(u64),
    /// Only grows.
    Count(u64),
    /// Times: how many, and their sum.
    Times {
        /// How many.
        count: u64,
        /// Their sum.
        sum: Duration,
    },
    /// Amounts: how many, and their sum.
    Amounts {
        /// How many.
        count: u64,
        /// Their sum.
        sum: u64,
    },
}

/// A counter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counter {
    /// Group: `osd`. All counters of a group stand together.
    pub group: &'static str,
    /// Name in its group.
    pub name: Cow<'static, str>,
    /// One line for people.
    pub description: &'static str,
    /// A few letters for tables, or none.
    pub nick: &'static str,
    /// 0 to 10; the manager asks for those from [`USEFUL`] on.
    pub priority: u8,
    /// Whether it counts bytes.
    pub is_bytes: bool,
    /// Its value.
    pub value: Value,
}

/// Ceph's PRIO_*: nothing special.
pub const PLAIN: u8 = 0;
/// Managers ask for it (mgr_stats_threshold).
pub const USEFUL: u8 = 5;
/// Worth a look.
pub const INTERESTING: u8 = 8;
/// Worth the first look.
pub const CRITICAL: u8 = 10;

impl Value {
    /// Ceph's type bits: 1 time, 2 number, 4 average, 8 counter.
    fn kind(self) -> u8 {
        match self {
            Value::Gauge(_) => 2,
            Value::Count(_) => 10,
            Value::Times { .. } => 5,
            Value::Amounts { .. } => 6,
        }
    }
}

impl Counter {
    /// A [`PLAIN`] counter.
    pub fn new(
        group: &'static str,
        name: impl Into<Cow<'static, str>>,
        description: &'static str,
        value: Value,
    ) -> Counter {
        let name = name.into();
        Counter { group, name, description, nick: "", priority: PLAIN, is_bytes: false, value }
    }

    /// Of another priority.
    #[must_use]
    pub fn priority(self, priority: u8) -> Counter {
        Counter { priority, ..self }
    }

    /// With a short name.
    #[must_use]
    pub fn nick(self, nick: &'static str) -> Counter {
        Counter { nick, ..self }
    }

    /// It counts bytes.
    #[must_use]
    pub fn bytes(self) -> Counter {
        Counter { is_bytes: true, ..self }
    }

    fn path(&self) -> String {
        format!("{}.{}", self.group, self.name)
    }
}
