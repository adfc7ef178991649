//! What a manager counts, for `perf dump`. Ceph's own has no such group; the names are ours.

use std::cell::Cell;

use perf::{Counter, Value};

use crate::daemon::Mgr;

/// Counted since the start, or since `perf reset`.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Reports of daemons.
    pub(crate) reports: Cell<u64>,
    /// Messages with statistics of PGs.
    pub(crate) pg_stats: Cell<u64>,
    /// Commands of clients.
    pub(crate) commands: Cell<u64>,
}

/// One more.
pub(crate) fn bump(cell: &Cell<u64>) {
    cell.set(cell.get() + 1);
}

impl Counters {
    /// Whether there is such a group (or it is `all`): from zero on then.
    pub(crate) fn reset(&self, group: &str) -> bool {
        let ours = matches!(group, "all" | "mgr");
        if ours {
            [&self.reports, &self.pg_stats, &self.commands]
                .into_iter()
                .for_each(|cell| cell.set(0));
        }
        ours
    }
}

/// All counters of a manager.
pub(crate) fn list(mgr: &Mgr) -> Vec<Counter> {
    let of = |name, what, value| Counter::new("mgr", name, what, value);
    let count = |cell: &Cell<u64>| Value::Count(cell.get());
    let sessions = Value::Gauge(mgr.messenger.connections().len() as u64);
    let daemons = Value::Gauge(mgr.daemons.borrow().iter().count() as u64);
    vec![
        of("num_sessions", "open sessions", sessions),
        of("num_daemons", "daemons that report", daemons),
        of("reports", "reports of daemons", count(&mgr.counters.reports)),
        of("pg_stats", "messages with statistics of PGs", count(&mgr.counters.pg_stats)),
        of("commands", "commands of clients", count(&mgr.counters.commands)),
    ]
}
