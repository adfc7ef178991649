//! Counters of an OSD, under Ceph's names where Ceph counts the same (`src/osd/osd_perf_counters.cc` at
//! v16.2).

use std::time::Duration;

use command::{BadArgument, CommandMap, CommandReply};
use perf::{CRITICAL, Counter, INTERESTING, Named, PLAIN, USEFUL, Value};
use store::Statfs;

use super::{Role, Target};
use crate::osd::stats::{BySize, Counters, OpCounters};

fn osd(name: &'static str, description: &'static str, priority: u8, value: Value) -> Counter {
    Counter::new("osd", name, description, value).priority(priority)
}

/// Names of what is told of one kind of ops, and what they are in a description.
struct Names {
    latency: &'static str,
    process: &'static str,
    prepare: &'static str,
    /// Of the first: times of all ops are the first that an operator looks at.
    priority: u8,
    what: [&'static str; 3],
}

const ALL: Names = Names {
    latency: "op_latency",
    process: "op_process_latency",
    prepare: "op_prepare_latency",
    priority: 9,
    what: [
        "client ops, arrival to answer",
        "client ops, without waiting for their turn",
        "client ops, until their result is known",
    ],
};
const READS: Names = Names {
    latency: "op_r_latency",
    process: "op_r_process_latency",
    prepare: "op_r_prepare_latency",
    priority: USEFUL,
    what: [
        "client reads, arrival to answer",
        "client reads, without waiting for their turn",
        "client reads, until their result is known",
    ],
};
const WRITES: Names = Names {
    latency: "op_w_latency",
    process: "op_w_process_latency",
    prepare: "op_w_prepare_latency",
    priority: USEFUL,
    what: [
        "client writes, arrival to durable",
        "client writes, without waiting for their turn",
        "client writes, until they are submitted",
    ],
};
const BOTH: Names = Names {
    latency: "op_rw_latency",
    process: "op_rw_process_latency",
    prepare: "op_rw_prepare_latency",
    priority: USEFUL,
    what: [
        "client ops that read and write, arrival to durable",
        "client ops that read and write, without waiting for their turn",
        "client ops that read and write, until they are submitted",
    ],
};

/// Times of ops of some kinds together.
fn times(names: &Names, kinds: &[&OpCounters]) -> [Counter; 3] {
    let sum = |of: fn(&OpCounters) -> (u64, Duration)| {
        let all = kinds.iter().map(|kind| of(kind));
        let (count, sum) =
            all.fold((0, Duration::ZERO), |(n, sum), (count, time)| (n + count, sum + time));
        Value::Times { count, sum }
    };
    [
        osd(names.latency, names.what[0], names.priority, sum(OpCounters::latency)),
        osd(names.process, names.what[1], USEFUL, sum(OpCounters::process)),
        osd(names.prepare, names.what[2], USEFUL, sum(OpCounters::prepare)),
    ]
}

/// All counters, group by group.
pub fn counters(target: &dyn Target, statfs: &Statfs) -> Vec<Counter> {
    let c = target.counters();
    let (r, w, rw) = (&c.op_r, &c.op_w, &c.op_rw);
    let count = |cell: &std::cell::Cell<u64>| Value::Count(cell.get());
    let sum = |of: fn(&OpCounters) -> &std::cell::Cell<u64>| {
        Value::Count([r, w, rw].into_iter().map(|kind| of(kind).get()).sum())
    };
    let pgs = target.pgs();
    let pgs_as = |role: Role| Value::Gauge(pgs.iter().filter(|pg| pg.role == role).count() as u64);
    let in_flight = Value::Gauge(target.tracker().in_flight() as u64);
    let peers = Value::Gauge(target.heartbeat_peers().len() as u64);
    let used = statfs.total.saturating_sub(statfs.available);
    let mut all = vec![
        osd("op_wip", "ops under way", USEFUL, in_flight),
        osd("op", "client ops", CRITICAL, sum(|kind| &kind.count)).nick("ops"),
        osd("op_in_bytes", "bytes written by clients", INTERESTING, sum(|kind| &kind.in_bytes))
            .nick("wr")
            .bytes(),
        osd("op_out_bytes", "bytes read by clients", INTERESTING, sum(|kind| &kind.out_bytes))
            .nick("rd")
            .bytes(),
    ];
    all.extend(times(&ALL, &[r, w, rw]));
    all.push(osd("op_r", "client reads", USEFUL, count(&r.count)));
    all.push(osd("op_r_out_bytes", "bytes of client reads", USEFUL, count(&r.out_bytes)).bytes());
    all.extend(times(&READS, &[r]));
    all.push(osd("op_w", "client writes", USEFUL, count(&w.count)));
    all.push(osd("op_w_in_bytes", "bytes of client writes", USEFUL, count(&w.in_bytes)).bytes());
    all.extend(times(&WRITES, &[w]));
    all.extend([
        osd("op_rw", "client ops that read and write", USEFUL, count(&rw.count)),
        osd("op_rw_in_bytes", "bytes that these write", USEFUL, count(&rw.in_bytes)).bytes(),
        osd("op_rw_out_bytes", "bytes that these read", USEFUL, count(&rw.out_bytes)).bytes(),
    ]);
    all.extend(times(&BOTH, &[rw]));
    let subops = [
        osd("subop", "writes for other primaries", PLAIN, count(&c.subop_w)),
        osd("subop_in_bytes", "their bytes", PLAIN, count(&c.subop_w_in_bytes)).bytes(),
        osd("subop_latency", "until they are durable", PLAIN, c.subop_w_latency.value()),
        osd("subop_w", "writes for other primaries", PLAIN, count(&c.subop_w)),
        osd("subop_w_in_bytes", "their bytes", PLAIN, count(&c.subop_w_in_bytes)).bytes(),
        osd("subop_w_latency", "until they are durable", PLAIN, c.subop_w_latency.value()),
        osd("subop_pull", "pieces of objects asked for", PLAIN, count(&c.subop_pull)),
        osd("subop_push", "pieces of objects received", PLAIN, count(&c.subop_push)),
        osd("subop_push_in_bytes", "their bytes", PLAIN, count(&c.subop_push_in_bytes)).bytes(),
    ];
    all.extend(subops);
    all.extend([
        osd("recovery_ops", "objects recovered", INTERESTING, count(&c.recovery_ops)).nick("rop"),
        osd("recovery_bytes", "bytes recovered", INTERESTING, count(&c.recovery_bytes))
            .nick("rbt")
            .bytes(),
        osd("numpg", "placement groups", USEFUL, Value::Gauge(pgs.len() as u64)).nick("pgs"),
        osd("numpg_primary", "of them led here", PLAIN, pgs_as(Role::Primary)),
        osd("numpg_replica", "of them followed here", PLAIN, pgs_as(Role::Replica)),
        osd("numpg_stray", "of them not wanted here any more", PLAIN, pgs_as(Role::Stray)),
        osd("numpg_removing", "of them being removed", USEFUL, pgs_as(Role::Removing)).nick("pgsr"),
        osd("heartbeat_to_peers", "OSDs pinged", PLAIN, peers),
        osd("map_messages", "messages with OSD maps", PLAIN, count(&c.map_messages)),
        osd("map_message_epochs", "OSD maps in them", PLAIN, count(&c.map_message_epochs)),
        osd("stat_bytes", "size of the store", USEFUL, Value::Gauge(statfs.total))
            .nick("size")
            .bytes(),
        osd("stat_bytes_used", "used space", USEFUL, Value::Gauge(used)).nick("used").bytes(),
        osd("stat_bytes_avail", "free space", PLAIN, Value::Gauge(statfs.available)).bytes(),
    ]);
    let of_store = "what the store asked of its device";
    all.extend(target.store().counters().into_iter().map(|counter| {
        let is = Counter::new("store", counter.name, of_store, Value::Count(counter.value));
        Counter { is_bytes: counter.is_bytes, ..is }
    }));
    all
}

/// Histograms of client ops.
fn histograms(c: &Counters) -> [Named<'_>; 4] {
    fn osd<'a>(name: &'static str, description: &'static str, of: &'a BySize) -> Named<'a> {
        Named { group: "osd", name, description, histogram: of.histogram() }
    }
    [
        osd("op_r_latency_out_bytes_histogram", "client reads by time and bytes", &c.r_out),
        osd("op_w_latency_in_bytes_histogram", "client writes by time and bytes", &c.w_in),
        osd(
            "op_rw_latency_in_bytes_histogram",
            "client ops that read and write, by time and bytes written",
            &c.rw_in,
        ),
        osd(
            "op_rw_latency_out_bytes_histogram",
            "client ops that read and write, by time and bytes read",
            &c.rw_out,
        ),
    ]
}

/// Answers a `perf ...` command. The ledger of the store is never reset: it must add up with what the
/// device was written.
pub(super) async fn command(
    target: &dyn Target,
    map: &CommandMap,
) -> Result<CommandReply, BadArgument> {
    // A store that fails has no numbers; the others are still worth showing.
    let statfs = target.store().statfs().await.unwrap_or_default();
    let histograms = histograms(target.counters());
    perf::command(map, counters(target, &statfs), &histograms, |group| {
        let ours = matches!(group, "all" | "osd");
        if ours {
            target.counters().reset();
        }
        ours
    })
}
