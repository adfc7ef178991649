//! What was measured, for people and (in fio's shape) for programs.

use lab::Histogram;
use serde_json::{Value, json};

use super::load::Tally;
use crate::block::cli::LoadArgs;
use crate::block::spec::bytes_text;
use crate::output::show;

/// Percentiles that are told, as fio's.
const PERCENTILES: [f64; 9] = [1.0, 5.0, 50.0, 90.0, 95.0, 99.0, 99.9, 99.99, 99.999];
/// Width of the histogram's bars.
const BAR: u64 = 50;

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

/// 1.23 ms.
fn time_text(nanoseconds: f64) -> String {
    match nanoseconds {
        n if n < 1e3 => format!("{n:.0} ns"),
        n if n < 1e6 => format!("{:.1} us", n / 1e3),
        n if n < 1e9 => format!("{:.2} ms", n / 1e6),
        n => format!("{:.2} s", n / 1e9),
    }
}

fn side(name: &str, histogram: &Histogram, args: &LoadArgs, elapsed: u64) {
    if histogram.count() == 0 {
        return;
    }
    let iops = histogram.count() as f64 / seconds(elapsed).max(1e-9);
    let bandwidth = bytes_text((iops * args.bs as f64) as u64);
    show!("{name}: {iops:.0} IOPS, {bandwidth}/s, {} requests", histogram.count());
    show!(
        "  latency: mean {}, deviation {}, min {}, max {}",
        time_text(histogram.mean()),
        time_text(histogram.deviation()),
        time_text(histogram.min() as f64),
        time_text(histogram.max() as f64)
    );
    let percentiles: Vec<String> = PERCENTILES
        .iter()
        .map(|p| format!("{p}% {}", time_text(histogram.percentile(*p) as f64)))
        .collect();
    show!("  percentiles: {}", percentiles.join(", "));
    let doublings = histogram.doublings();
    let most = doublings.iter().map(|(_, count)| *count).max().unwrap_or(1).max(1);
    for (below, count) in doublings {
        let bar = "#".repeat((count * BAR).div_ceil(most) as usize);
        let share = 100.0 * count as f64 / histogram.count() as f64;
        show!("  < {:>9} {share:6.2}% {bar}", time_text(below as f64));
    }
}

/// For people.
pub(super) fn print(tally: &Tally, args: &LoadArgs) {
    side("read", &tally.reads, args, tally.elapsed);
    side("write", &tally.writes, args, tally.elapsed);
    if args.verify {
        show!("verify: {} blocks differ", tally.mismatches);
    }
}

fn side_json(histogram: &Histogram, args: &LoadArgs, elapsed: u64) -> Value {
    let time = seconds(elapsed).max(1e-9);
    let bytes = histogram.count() * args.bs;
    let percentile = |p: &f64| (format!("{p:.6}"), json!(histogram.percentile(*p)));
    let percentiles: serde_json::Map<String, Value> = match histogram.count() {
        0 => serde_json::Map::new(),
        _ => PERCENTILES.iter().map(percentile).collect(),
    };
    let bins: serde_json::Map<String, Value> = histogram
        .doublings()
        .into_iter()
        .map(|(below, count)| (below.to_string(), json!(count)))
        .collect();
    json!({
        "io_bytes": bytes,
        "bw_bytes": (bytes as f64 / time) as u64,
        "bw": (bytes as f64 / time / 1024.0) as u64,
        "iops": histogram.count() as f64 / time,
        "runtime": elapsed / 1_000_000,
        "total_ios": histogram.count(),
        "clat_ns": {
            "min": histogram.min(),
            "max": histogram.max(),
            "mean": histogram.mean(),
            "stddev": histogram.deviation(),
            "N": histogram.count(),
            "percentile": percentiles,
            "bins": bins,
        },
    })
}

/// For programs.
pub(super) fn to_json(tally: &Tally, args: &LoadArgs, name: &str, engine: &str) -> Value {
    json!({
        "loligo version": env!("CARGO_PKG_VERSION"),
        "jobs": [{
            "jobname": name,
            "error": i32::from(tally.error.is_some() || tally.mismatches > 0),
            "job options": {
                "ioengine": engine,
                "rw": format!("{:?}", args.rw).to_lowercase(),
                "bs": args.bs.to_string(),
                "iodepth": args.iodepth.to_string(),
                "numjobs": args.numjobs.to_string(),
            },
            "read": side_json(&tally.reads, args, tally.elapsed),
            "write": side_json(&tally.writes, args, tally.elapsed),
            "verify_errors": tally.mismatches,
        }],
    })
}
