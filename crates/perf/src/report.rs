//! What a report to the manager holds of counters.

use bytes::Bytes;
use denc::Writer;
use messages::PerfCounterType;

use crate::{Counter, Value};

/// The counters of at least `priority`, declared and as values. Wire of the values: envelope v1; each a u64
/// (times in nanoseconds), for averages the count twice behind it; in the order of the paths.
pub fn report(counters: &[Counter], priority: u8) -> (Vec<PerfCounterType>, Bytes) {
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
    use crate::{PLAIN, USEFUL};

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
        let (types, packed) = report(&counters, USEFUL);
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
}
