//! The `perf ...` commands every daemon answers by `ceph tell` and on its admin socket.

use std::time::Duration;

use command::{BadArgument, CommandMap, CommandReply, Format, Formatter, Signature};

use crate::{Counter, Named, Value, histogram};

/// Signatures of the commands answered here; those without a help are old names.
pub fn signatures() -> Vec<Signature> {
    [
        ("1", ""),
        ("2", ""),
        (
            "perf dump name=logger,type=CephString,req=false name=counter,type=CephString,req=false",
            "show counters",
        ),
        (
            "perf histogram dump name=logger,type=CephString,req=false \
             name=counter,type=CephString,req=false",
            "show how often ops took so long and were so large",
        ),
        ("perf histogram schema", "describe the histograms"),
        ("perf reset name=var,type=CephString", "start a group's counters, or all, from zero"),
        ("perf schema", "describe the counters"),
        ("perfcounters_dump", ""),
        ("perfcounters_schema", ""),
    ]
    .into_iter()
    .map(|(sig, help)| Signature::new(sig, help, "", "", 0))
    .collect()
}

/// Whether [`command`] answers this one.
pub fn answers(prefix: &str) -> bool {
    is_dump(prefix) || is_schema(prefix) || is_histogram(prefix) || prefix == "perf reset"
}

fn is_dump(prefix: &str) -> bool {
    matches!(prefix, "1" | "perfcounters_dump" | "perf dump")
}

fn is_histogram(prefix: &str) -> bool {
    matches!(prefix, "perf histogram dump" | "perf histogram schema")
}

fn is_schema(prefix: &str) -> bool {
    matches!(prefix, "2" | "perfcounters_schema" | "perf schema")
}

/// Answers a `perf ...` command. `start_anew` says whether there is a group of a name, whose counters are from
/// zero on then; `all` is every group that may be.
pub fn command(
    map: &CommandMap,
    counters: Vec<Counter>,
    histograms: &[Named<'_>],
    start_anew: impl FnOnce(&str) -> bool,
) -> Result<CommandReply, BadArgument> {
    match map.prefix() {
        prefix if is_histogram(prefix) => {
            let groups: Vec<_> =
                counters.chunk_by(|a, b| a.group == b.group).map(|group| group[0].group).collect();
            let is_schema = prefix == "perf histogram schema";
            histogram::command(map, &groups, histograms, is_schema)
        }
        prefix if is_dump(prefix) => dump(map, counters),
        prefix if is_schema(prefix) => Ok(schema(map, &counters)),
        _ => reset(map, start_anew),
    }
}

impl Value {
    fn type_names(self) -> (&'static str, &'static str) {
        match self {
            Value::Gauge(_) => ("gauge", "integer"),
            Value::Count(_) => ("counter", "integer"),
            Value::Times { .. } => ("gauge", "real-integer-pair"),
            Value::Amounts { .. } => ("gauge", "integer-integer-pair"),
        }
    }

    fn dump(self, f: &mut Formatter, name: &str) {
        match self {
            Value::Gauge(n) | Value::Count(n) => f.dump_unsigned(name, n),
            Value::Times { count, sum } => f.object(name, |f| {
                let average = sum.as_nanos().checked_div(count.into()).unwrap_or(0);
                f.dump_unsigned("avgcount", count);
                f.dump_unquoted("sum", nanos(sum));
                f.dump_unquoted("avgtime", nanos(Duration::from_nanos(average as u64)));
            }),
            Value::Amounts { count, sum } => f.object(name, |f| {
                f.dump_unsigned("avgcount", count);
                f.dump_unsigned("sum", sum);
            }),
        }
    }
}

/// Seconds with all nine decimals.
fn nanos(d: Duration) -> String {
    format!("{}.{:09}", d.as_secs(), d.subsec_nanos())
}

fn dump_groups(
    format: Format,
    counters: &[Counter],
    each: impl Fn(&mut Formatter, &Counter),
) -> CommandReply {
    let mut f = Formatter::new(format);
    f.object("perfcounter_collection", |f| {
        for group in counters.chunk_by(|a, b| a.group == b.group) {
            f.object(group[0].group, |f| group.iter().for_each(|counter| each(f, counter)));
        }
    });
    CommandReply::formatted(f)
}

/// Answers `perf dump`, which may ask for a group (`logger`) or one of its counters.
fn dump(map: &CommandMap, mut counters: Vec<Counter>) -> Result<CommandReply, BadArgument> {
    let (group, name) = (map.opt_string("logger")?, map.opt_string("counter")?);
    let fits = |wanted: &Option<String>, is: &str| match wanted {
        Some(wanted) => wanted.is_empty() || wanted == is,
        None => true,
    };
    counters.retain(|c| fits(&group, c.group) && fits(&name, &c.name));
    Ok(dump_groups(map.format(), &counters, |f, c| c.value.dump(f, &c.name)))
}

/// Answers `perf schema`.
fn schema(map: &CommandMap, counters: &[Counter]) -> CommandReply {
    dump_groups(map.format(), counters, |f, c| {
        let (metric, value) = c.value.type_names();
        f.object(&c.name, |f| {
            f.dump_unsigned("type", c.value.kind());
            f.dump_string("metric_type", metric);
            f.dump_string("value_type", value);
            f.dump_string("description", c.description);
            f.dump_string("nick", c.nick);
            f.dump_unsigned("priority", c.priority);
            f.dump_string("units", if c.is_bytes { "bytes" } else { "none" });
        });
    })
}

/// Answers `perf reset`.
fn reset(
    map: &CommandMap,
    start_anew: impl FnOnce(&str) -> bool,
) -> Result<CommandReply, BadArgument> {
    let what = map.string("var")?;
    let mut f = Formatter::new(map.format());
    f.object("perf_reset", |f| {
        if start_anew(&what) {
            f.dump_string("success", format!("perf reset {what}"));
        } else {
            f.dump_string("error", format!("Not find: {what}"));
        }
    });
    Ok(CommandReply::formatted(f))
}
