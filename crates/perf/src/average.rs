//! Sums with their number, as daemons keep them.

use std::cell::Cell;
use std::time::Duration;

use crate::Value;

/// A sum of times with their number.
#[derive(Debug, Default)]
pub struct Times {
    count: Cell<u64>,
    sum: Cell<Duration>,
}

impl Times {
    /// One more.
    pub fn add(&self, d: Duration) {
        self.count.set(self.count.get() + 1);
        self.sum.set(self.sum.get() + d);
    }

    /// From zero on.
    pub fn reset(&self) {
        self.count.set(0);
        self.sum.set(Duration::ZERO);
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.count.get()
    }

    /// Their sum.
    pub fn sum(&self) -> Duration {
        self.sum.get()
    }

    /// For a counter.
    pub fn value(&self) -> Value {
        Value::Times { count: self.count(), sum: self.sum() }
    }
}

/// A sum of amounts with their number.
#[derive(Debug, Default)]
pub struct Average {
    count: Cell<u64>,
    sum: Cell<u64>,
}

impl Average {
    /// One more.
    pub fn add(&self, amount: u64) {
        self.count.set(self.count.get() + 1);
        self.sum.set(self.sum.get() + amount);
    }

    /// From zero on.
    pub fn reset(&self) {
        self.count.set(0);
        self.sum.set(0);
    }

    /// For a counter.
    pub fn value(&self) -> Value {
        Value::Amounts { count: self.count.get(), sum: self.sum.get() }
    }
}
