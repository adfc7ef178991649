//! Histograms over two axes (`src/common/perf_histogram.h` at v16.2), for `perf histogram dump`.
//!
//! ```text
//! bucket of a value on an axis: 0 below min; then quant_size wide, twice, and each after that twice as
//! wide as the one before (log2); the last has no end
//! ```

use std::cell::Cell;

use command::{BadArgument, CommandMap, CommandReply, Formatter};

use crate::USEFUL;

/// Buckets of an axis: 8 KiB a histogram.
const BUCKETS: usize = 32;

/// One axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Axis {
    /// What is measured, for people.
    pub name: &'static str,
    /// Width of the first bucket.
    pub quant_size: u64,
}

impl Axis {
    fn bucket(&self, value: u64) -> usize {
        let quants = value / self.quant_size;
        ((u64::BITS - quants.leading_zeros()) as usize + 1).min(BUCKETS - 1)
    }

    /// Where a bucket begins, from the second on.
    fn start(&self, bucket: usize) -> u64 {
        match bucket {
            0 | 1 => 0,
            _ => self.quant_size << (bucket - 2),
        }
    }

    fn dump(&self, f: &mut Formatter) {
        f.object("axis", |f| {
            f.dump_string("name", self.name);
            f.dump_int("min", 0);
            f.dump_unsigned("quant_size", self.quant_size);
            f.dump_unsigned("buckets", BUCKETS as u64);
            f.dump_string("scale_type", "log2");
            f.array("ranges", |f| {
                for bucket in 0..BUCKETS {
                    f.object("bucket", |f| {
                        if bucket == 0 {
                            f.dump_int("max", -1);
                            return;
                        }
                        f.dump_unsigned("min", self.start(bucket));
                        if bucket < BUCKETS - 1 {
                            f.dump_unsigned("max", self.start(bucket + 1) - 1);
                        }
                    });
                }
            });
        });
    }
}

/// How often there were which two values together.
#[derive(Debug)]
pub struct Histogram {
    axes: [Axis; 2],
    /// Rows are buckets of the first axis.
    counts: Box<[Cell<u64>]>,
}

impl Histogram {
    /// An empty one.
    pub fn new(axes: [Axis; 2]) -> Histogram {
        Histogram { axes, counts: vec![Cell::new(0); BUCKETS * BUCKETS].into() }
    }

    /// Counts two values.
    pub fn add(&self, first: u64, second: u64) {
        let [a, b] = self.axes;
        let count = &self.counts[a.bucket(first) * BUCKETS + b.bucket(second)];
        count.set(count.get() + 1);
    }

    /// Counts from zero.
    pub fn reset(&self) {
        self.counts.iter().for_each(|count| count.set(0));
    }

    fn dump(&self, f: &mut Formatter, name: &str) {
        f.object(name, |f| {
            f.array("axes", |f| self.axes.iter().for_each(|axis| axis.dump(f)));
            f.array("values", |f| {
                for row in self.counts.chunks(BUCKETS) {
                    f.array("row", |f| row.iter().for_each(|n| f.dump_unsigned("value", n.get())));
                }
            });
        });
    }
}

/// A histogram as it is told of.
#[derive(Debug, Clone, Copy)]
pub struct Named<'a> {
    /// Group: `osd`.
    pub group: &'static str,
    /// Name in its group.
    pub name: &'static str,
    /// One line for people.
    pub description: &'static str,
    /// What is counted.
    pub histogram: &'a Histogram,
}

/// Answers `perf histogram dump` and `perf histogram schema`: all groups of counters, most of which have
/// none.
pub(crate) fn command(
    map: &CommandMap,
    groups: &[&'static str],
    histograms: &[Named<'_>],
    is_schema: bool,
) -> Result<CommandReply, BadArgument> {
    let (group, name) = match is_schema {
        true => (None, None),
        false => (map.opt_string("logger")?, map.opt_string("counter")?),
    };
    let fits = |wanted: &Option<String>, is: &str| {
        wanted.as_ref().is_none_or(|wanted| wanted.is_empty() || wanted == is)
    };
    let mut f = Formatter::new(map.format());
    f.object("perfcounter_collection", |f| {
        for shown in groups.iter().filter(|is| fits(&group, is)) {
            f.object(shown, |f| {
                for h in histograms.iter().filter(|h| h.group == *shown && fits(&name, h.name)) {
                    if is_schema {
                        schema(f, h);
                    } else {
                        h.histogram.dump(f, h.name);
                    }
                }
            });
        }
    });
    Ok(CommandReply::formatted(f))
}

fn schema(f: &mut Formatter, h: &Named<'_>) {
    f.object(h.name, |f| {
        // Ceph's type bits: a number, counter, histogram.
        f.dump_unsigned("type", 2u8 | 8 | 16);
        f.dump_string("metric_type", "counter");
        f.dump_string("value_type", "integer-2d-histogram");
        f.dump_string("description", h.description);
        f.dump_string("nick", "");
        f.dump_unsigned("priority", USEFUL);
        f.dump_string("units", "none");
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Axis = Axis { name: "Request size (bytes)", quant_size: 512 };

    /// Where a real OSD counts ops of such sizes: tools that add rows of both must not mix them up.
    #[test]
    fn buckets_are_cephs() {
        for (value, bucket) in [(0, 1), (511, 1), (512, 2), (1023, 2), (1024, 3), (65_536, 9)] {
            assert_eq!(SIZE.bucket(value), bucket, "{value}");
        }
        assert_eq!(SIZE.bucket(274_877_906_943), 30);
        assert_eq!(SIZE.bucket(274_877_906_944), 31);
        assert_eq!(SIZE.bucket(u64::MAX), 31);
        for bucket in 1..BUCKETS {
            assert_eq!(SIZE.bucket(SIZE.start(bucket)), bucket);
        }
    }

    /// `perf histogram dump` was not known.
    #[test]
    fn what_is_counted_is_shown_in_its_place() {
        let histogram = Histogram::new([Axis { name: "Latency", quant_size: 10 }, SIZE]);
        histogram.add(25, 4096);
        histogram.add(25, 4096);
        let named = Named { group: "osd", name: "op", description: "", histogram: &histogram };
        let ask = |json: &str| {
            let map = CommandMap::parse(&[json.to_owned()]).unwrap();
            let reply = command(&map, &["osd", "other"], &[named], false).unwrap();
            serde_json::from_slice::<serde_json::Value>(&reply.outb).unwrap()
        };
        let all = ask(r#"{"prefix":"perf histogram dump","format":"json"}"#);
        let op = &all["osd"]["op"];
        assert_eq!(op["values"][3][5], 2);
        let rows = op["values"].as_array().unwrap().iter();
        let sum: u64 =
            rows.flat_map(|row| row.as_array().unwrap()).filter_map(|n| n.as_u64()).sum();
        assert_eq!(sum, 2);
        assert_eq!(op["axes"][1]["ranges"][5], serde_json::json!({"min": 4096, "max": 8191}));
        assert_eq!(op["axes"][1]["ranges"][0], serde_json::json!({"max": -1}));
        assert_eq!(all["other"], serde_json::json!({}));
        let of = r#"{"prefix":"perf histogram dump","logger":"osd","counter":"x","format":"json"}"#;
        assert_eq!(ask(of), serde_json::json!({"osd": {}}));
        histogram.reset();
        assert_eq!(ask(r#"{"prefix":"","format":"json"}"#)["osd"]["op"]["values"][3][5], 0);
    }
}
