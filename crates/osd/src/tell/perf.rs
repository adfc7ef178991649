//! Counters, under Ceph's names where Ceph counts the same (`src/osd/osd_perf_counters.cc` and
//! `src/common/perf_counters.cc` at v16.2): for `perf dump`, and for reports to the manager.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use command::{BadArgument, CommandMap, CommandReply, Format, Formatter};
use denc::Writer;
use messages::PerfCounterType;
use store::Statfs;

use super::{Role, Target};

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
}

/// A counter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counter {
    /// Group: `osd`.
    pub group: &'static str,
    /// Name in its group.
    pub name: Cow<'static, str>,
    /// One line for people.
    pub description: &'static str,
    /// A few letters for tables, or none.
    pub nick: &'static str,
    /// 0 to 10; the manager asks for those from 5 on.
    pub priority: u8,
    /// Whether it counts bytes.
    pub is_bytes: bool,
    /// Its value.
    pub value: Value,
}

/// Nothing special; interesting; critical. As Ceph's PRIO_* .
const PLAIN: u8 = 0;
const USEFUL: u8 = 5;
const INTERESTING: u8 = 8;
const CRITICAL: u8 = 10;

impl Value {
    /// Ceph's type bits: 1 time, 2 number, 4 average, 8 counter.
    fn kind(self) -> u8 {
        match self {
            Value::Gauge(_) => 2,
            Value::Count(_) => 10,
            Value::Times { .. } => 5,
        }
    }

    fn type_names(self) -> (&'static str, &'static str) {
        match self {
            Value::Gauge(_) => ("gauge", "integer"),
            Value::Count(_) => ("counter", "integer"),
            Value::Times { .. } => ("gauge", "real-integer-pair"),
        }
    }

    fn dump(self, f: &mut Formatter, name: &str) {
        match self {
            Value::Gauge(n) | Value::Count(n) => f.dump_unsigned(name, n),
            Value::Times { count, sum } => f.object(name, |f| {
                let average = sum.as_nanos().checked_div(count.into()).unwrap_or(0);
                f.dump_unsigned("avgcount", count);
                f.dump_unquoted("sum", nanos(sum.as_nanos()));
                f.dump_unquoted("avgtime", nanos(average));
            }),
        }
    }
}

/// Seconds with all nine decimals.
fn nanos(n: u128) -> String {
    format!("{}.{:09}", n / 1_000_000_000, n % 1_000_000_000)
}

impl Counter {
    fn new(name: &'static str, description: &'static str, priority: u8, value: Value) -> Counter {
        Counter {
            group: "osd",
            name: Cow::Borrowed(name),
            description,
            nick: "",
            priority,
            is_bytes: false,
            value,
        }
    }

    fn nick(self, nick: &'static str) -> Counter {
        Counter { nick, ..self }
    }

    fn bytes(self) -> Counter {
        Counter { is_bytes: true, ..self }
    }

    fn path(&self) -> String {
        format!("{}.{}", self.group, self.name)
    }
}

/// All counters, group by group.
pub fn counters(target: &dyn Target, statfs: &Statfs) -> Vec<Counter> {
    let c = target.counters();
    let count = |cell: &std::cell::Cell<u64>| Value::Count(cell.get());
    let pgs = target.pgs();
    let pgs_as = |role: Role| Value::Gauge(pgs.iter().filter(|pg| pg.role == role).count() as u64);
    let writes = Value::Times { count: c.op_w_latency.count(), sum: c.op_w_latency.sum() };
    let in_flight = Value::Gauge(target.tracker().in_flight() as u64);
    let peers = Value::Gauge(target.heartbeat_peers().len() as u64);
    let used = statfs.total.saturating_sub(statfs.available);
    let mut all = vec![
        Counter::new("op_wip", "ops under way", USEFUL, in_flight),
        Counter::new("op", "client ops", CRITICAL, count(&c.op)).nick("ops"),
        Counter::new("op_in_bytes", "bytes written by clients", INTERESTING, count(&c.op_in_bytes))
            .nick("wr")
            .bytes(),
        Counter::new("op_out_bytes", "bytes read by clients", INTERESTING, count(&c.op_out_bytes))
            .nick("rd")
            .bytes(),
        Counter::new("op_r", "client reads", USEFUL, count(&c.op_r)),
        Counter::new("op_r_out_bytes", "bytes of client reads", USEFUL, count(&c.op_out_bytes))
            .bytes(),
        Counter::new("op_w", "client writes", USEFUL, count(&c.op_w)),
        Counter::new("op_w_in_bytes", "bytes of client writes", USEFUL, count(&c.op_in_bytes))
            .bytes(),
        Counter::new("op_w_latency", "client writes, arrival to durable", USEFUL, writes),
        Counter::new("subop", "writes for other primaries", PLAIN, count(&c.subop_w)),
        Counter::new("subop_w", "writes for other primaries", PLAIN, count(&c.subop_w)),
        Counter::new("recovery_ops", "objects recovered", INTERESTING, count(&c.recovery_ops))
            .nick("rop"),
        Counter::new("recovery_bytes", "bytes recovered", INTERESTING, count(&c.recovery_bytes))
            .nick("rbt"),
        Counter::new("numpg", "placement groups", USEFUL, Value::Gauge(pgs.len() as u64))
            .nick("pgs"),
        Counter::new("numpg_primary", "of them led here", PLAIN, pgs_as(Role::Primary)),
        Counter::new("numpg_replica", "of them followed here", PLAIN, pgs_as(Role::Replica)),
        Counter::new("numpg_stray", "of them not wanted here any more", PLAIN, pgs_as(Role::Stray)),
        Counter::new("numpg_removing", "of them being removed", USEFUL, pgs_as(Role::Removing))
            .nick("pgsr"),
        Counter::new("heartbeat_to_peers", "OSDs pinged", PLAIN, peers),
        Counter::new("map_messages", "messages with OSD maps", PLAIN, count(&c.map_messages)),
        Counter::new("map_message_epochs", "OSD maps in them", PLAIN, count(&c.map_message_epochs)),
        Counter::new("stat_bytes", "size of the store", USEFUL, Value::Gauge(statfs.total))
            .nick("size")
            .bytes(),
        Counter::new("stat_bytes_used", "used space", USEFUL, Value::Gauge(used))
            .nick("used")
            .bytes(),
        Counter::new("stat_bytes_avail", "free space", PLAIN, Value::Gauge(statfs.available))
            .bytes(),
    ];
    all.extend(target.store().counters().into_iter().map(|counter| Counter {
        group: "store",
        name: Cow::Owned(counter.name),
        description: "what the store asked of its device",
        nick: "",
        priority: PLAIN,
        is_bytes: counter.is_bytes,
        value: Value::Count(counter.value),
    }));
    all
}

/// What a report to the manager holds: the counters of at least `priority`, declared and as
/// values. Wire of the values: envelope v1; each a u64 (times in nanoseconds), for times the
/// count twice behind it; in the order of the paths.
pub fn report(counters: &[Counter], priority: u8) -> (Vec<PerfCounterType>, Bytes) {
    let mut chosen: Vec<(String, &Counter)> =
        counters.iter().filter(|c| c.priority >= priority).map(|c| (c.path(), c)).collect();
    chosen.sort_by(|a, b| a.0.cmp(&b.0));
    let mut w = Writer::new();
    w.envelope(1, 1, |w| {
        for (_, counter) in &chosen {
            match counter.value {
                Value::Gauge(n) | Value::Count(n) => w.u64(n),
                Value::Times { count, sum } => {
                    w.u64(u64::try_from(sum.as_nanos()).unwrap_or(u64::MAX));
                    w.u64(count);
                    w.u64(count);
                }
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

async fn current(target: &dyn Target) -> Vec<Counter> {
    // A store that fails has no numbers; the others are still worth showing.
    let statfs = target.store().statfs().await.unwrap_or_default();
    counters(target, &statfs)
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

pub(super) async fn dump(
    target: &dyn Target,
    map: &CommandMap,
) -> Result<CommandReply, BadArgument> {
    let (group, name) = (map.opt_string("logger")?, map.opt_string("counter")?);
    let fits = |wanted: &Option<String>, is: &str| match wanted {
        Some(wanted) => wanted.is_empty() || wanted == is,
        None => true,
    };
    let mut counters = current(target).await;
    counters.retain(|c| fits(&group, c.group) && fits(&name, &c.name));
    Ok(dump_groups(map.format(), &counters, |f, c| c.value.dump(f, &c.name)))
}

pub(super) async fn schema(target: &dyn Target, format: Format) -> CommandReply {
    dump_groups(format, &current(target).await, |f, c| {
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

/// The ledger of the store is never reset: it must add up with what the device was written.
pub(super) fn reset(target: &dyn Target, map: &CommandMap) -> Result<CommandReply, BadArgument> {
    let what = map.string("var")?;
    let mut f = Formatter::new(map.format());
    f.object("perf_reset", |f| {
        if what == "all" || what == "osd" {
            target.counters().reset();
            f.dump_string("success", format!("perf reset {what}"));
        } else {
            f.dump_string("error", format!("Not find: {what}"));
        }
    });
    Ok(CommandReply::formatted(f))
}
