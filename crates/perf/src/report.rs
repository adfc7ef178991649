//! What a report to the manager holds of counters.

use std::cell::Cell;
use std::time::Duration;

use bytes::Bytes;
use denc::Writer;
use messages::{MMgrConfigure, MMgrReport, PerfCounterType};

use crate::{Counter, USEFUL, Value};

/// How a daemon reports to the active manager, as that wants it.
#[derive(Debug)]
pub struct Reporter {
    period: Cell<Duration>,
    /// Counters of at least this priority are reported.
    threshold: Cell<u8>,
    /// The least priority of those that this session has declared.
    declared: Cell<Option<u8>>,
}

impl Default for Reporter {
    /// Until the manager says otherwise (mgr_stats_period, mgr_stats_threshold).
    fn default() -> Reporter {
        Reporter {
            period: Cell::new(Duration::from_secs(5)),
            threshold: Cell::new(USEFUL),
            declared: Cell::new(None),
        }
    }
}

impl Reporter {
    /// A new session: the manager knows nothing.
    pub fn opened(&self) {
        self.declared.set(None);
    }

    /// Time between two reports.
    pub fn period(&self) -> Duration {
        self.period.get()
    }

    /// What the manager wants.
    pub fn configure(&self, wanted: &MMgrConfigure) {
        self.period.set(Duration::from_secs(wanted.stats_period.clamp(1, 3600).into()));
        self.threshold.set(u8::try_from(wanted.stats_threshold).unwrap_or(u8::MAX));
    }

    /// Puts counters into a report, and what is new or gone of them since the last one.
    pub fn fill(&self, report: &mut MMgrReport, counters: &[Counter]) {
        let threshold = self.threshold.get();
        let (types, packed) = packed(counters, threshold);
        let before = self.declared.replace(Some(threshold));
        report.packed = packed;
        if before == Some(threshold) {
            return;
        }
        let gone = counters.iter().filter(|c| {
            c.priority < threshold && before.is_some_and(|before| c.priority >= before)
        });
        report.undeclare_types = gone.map(Counter::path).collect();
        report.declare_types = types;
    }
}

/// The counters of at least `priority`, declared and as values. Wire of the values: envelope v1; each a u64
/// (times in nanoseconds), for averages the count twice behind it; in the order of the paths.
fn packed(counters: &[Counter], priority: u8) -> (Vec<PerfCounterType>, Bytes) {
    let mut chosen: Vec<(String, &Counter)> =
        counters.iter().filter(|c| c.priority >= priority).map(|c| (c.path(), c)).collect();
    chosen.sort_by(|a, b| a.0.cmp(&b.0));
    let mut w = Writer::new();
    w.envelope(1, 1, |w| {
        for (_, counter) in &chosen {
            let (sum, count) = match counter.value {
                Value::Gauge(n) | Value::Count(n) => (n, None),
                Value::Times { count, sum } => {
                    (u64::try_from(sum.as_nanos()).unwrap_or(u64::MAX), Some(count))
                }
                Value::Amounts { count, sum } => (sum, Some(count)),
            };
            w.u64(sum);
            if let Some(count) = count {
                w.u64(count);
                w.u64(count);
            }
        }
    });
    let types = chosen
        .into_iter()
        .map(|(path, c)| PerfCounterType {
            path,
            description: c.description.to_owned(),
            nick: c.nick.to_owned(),
            kind: c.value.kind(),
            priority: c.priority,
            unit: u8::from(!c.is_bytes),
        })
        .collect();
    (types, w.into_bytes())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use denc::Reader;

    use super::*;
    use crate::PLAIN;

    #[test]
    fn a_report_packs_its_counters_in_the_order_of_their_paths() {
        let of = |group, name: &'static str, value| Counter::new(group, name, "", value);
        let time = Value::Times { count: 3, sum: Duration::from_micros(5) };
        let counters = [
            of("osd", "op_w_latency", time).priority(USEFUL),
            of("osd", "op_w_in_bytes", Value::Count(100)).priority(USEFUL).bytes(),
            of("osd", "subop", Value::Count(9)).priority(PLAIN),
            of("mon", "size", Value::Amounts { count: 2, sum: 70 }).priority(USEFUL),
            of("osd", "numpg", Value::Gauge(4)).priority(USEFUL),
        ];
        let (types, packed) = packed(&counters, USEFUL);
        let told: Vec<(&str, u8, u8)> =
            types.iter().map(|t| (t.path.as_str(), t.kind, t.unit)).collect();
        let wanted = [
            ("mon.size", 6, 1),
            ("osd.numpg", 2, 1),
            ("osd.op_w_in_bytes", 10, 0),
            ("osd.op_w_latency", 5, 1),
        ];
        assert_eq!(told, wanted);
        let values = Reader::new(&packed).envelope("counters", 1, 1, |r, _| {
            (0..8).map(|_| r.u64()).collect::<Result<Vec<u64>, denc::Error>>()
        });
        assert_eq!(values, Ok(vec![70, 2, 2, 4, 100, 5000, 3, 3]), "times in nanoseconds");
    }

    #[test]
    fn counters_are_declared_once_and_anew_when_other_ones_are_wanted() {
        let of = |name: &'static str, priority| {
            Counter::new("osd", name, "", Value::Count(1)).priority(priority)
        };
        let counters = [of("a", 10), of("b", USEFUL), of("c", PLAIN)];
        let reporter = Reporter::default();
        let next = || {
            let mut report = MMgrReport::default();
            reporter.fill(&mut report, &counters);
            let declared: Vec<String> = report.declare_types.into_iter().map(|t| t.path).collect();
            (declared, report.undeclare_types, report.packed.len())
        };
        let none = Vec::<String>::new;
        assert_eq!(next(), (vec!["osd.a".to_owned(), "osd.b".to_owned()], none(), 22));
        assert_eq!(next(), (none(), none(), 22));
        reporter.configure(&MMgrConfigure::plain(7, 8));
        assert_eq!(reporter.period(), Duration::from_secs(7));
        assert_eq!(next(), (vec!["osd.a".to_owned()], vec!["osd.b".to_owned()], 14));
        reporter.configure(&MMgrConfigure::plain(5, 0));
        assert_eq!(next().2, 30);
        assert_eq!(next(), (none(), none(), 30));
        reporter.opened();
        assert_eq!(next().0.len(), 3);
    }
}
