//! `lab longterm`: figures 5 to 8 and tables I to III of the paper. For each backend a fresh
//! cluster and an image of `--size`; random writes of 4 KiB, 128 under way, until nine tenths of
//! the image's size have been written; bytes by cause and IOPS are sampled while they run.

use std::cell::{Cell as Slot, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use env::{Env, JoinHandle};
use indicatif::ProgressBar;
use serde_json::{Value, json};

use crate::backend::{self, Backend};
use crate::causes::{Breakdown, Cause};
use crate::cell::{Cell, REPLICAS};
use crate::cli::{LongtermArgs, Pattern, bytes_text};
use crate::cluster::{Cluster, PATIENCE, Shape};
use crate::load::{Load, Offsets, Target};
use crate::look::Look;
use crate::usage::{self, Usage};
use crate::{Histogram, Host, LabError, machine, progress, results, table};

/// How long nothing must have been written before and after.
const STILL: Duration = Duration::from_secs(1);
/// Between two looks at a load that runs. At its end up to one goes by; the clock stops before.
const LOOK: Duration = Duration::from_millis(100);
/// Placement groups: enough that no OSD waits for one.
const PGS: u32 = 16;

/// One interval of the run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sample {
    /// When it ended.
    pub(crate) seconds: f64,
    pub(crate) ops: u64,
    pub(crate) iops: f64,
    pub(crate) causes: Breakdown,
}

/// What a backend did.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Run {
    /// From the first write until the stores were at rest.
    pub(crate) total: Cell,
    pub(crate) seconds: f64,
    pub(crate) ops: u64,
    pub(crate) iops: f64,
    pub(crate) average_ms: f64,
    pub(crate) median_ms: f64,
    pub(crate) p99_ms: f64,
    /// 99.99th percentile.
    pub(crate) tail_ms: f64,
    /// CPU time of all OSDs for each write of the client, in microseconds.
    pub(crate) cpu_us: f64,
    /// The largest OSD's peak of resident memory in MiB.
    pub(crate) memory_mib: f64,
    /// Share of the OSDs that holds data of clients at the end.
    pub(crate) live: f64,
    pub(crate) samples: Vec<Sample>,
}

impl Run {
    pub(crate) fn to_json(&self) -> Value {
        let samples = self.samples.iter().map(|s| {
            let causes: serde_json::Map<String, Value> =
                s.causes.0.iter().map(|(c, n)| (c.name().to_owned(), json!(n))).collect();
            json!({"seconds": s.seconds, "ops": s.ops, "iops": s.iops, "causes": causes})
        });
        json!({
            "total": self.total.to_json(),
            "seconds": self.seconds,
            "ops": self.ops,
            "iops": self.iops,
            "latency_average_ms": self.average_ms,
            "latency_median_ms": self.median_ms,
            "latency_99_ms": self.p99_ms,
            "latency_99_99_ms": self.tail_ms,
            "cpu_us_per_op": self.cpu_us,
            "memory_mib": self.memory_mib,
            "live_fraction": self.live,
            "samples": samples.collect::<Vec<_>>(),
        })
    }

    pub(crate) fn from_json(value: &Value) -> Option<Run> {
        let sample = |s: &Value| {
            let causes =
                Cause::ALL.into_iter().filter_map(|c| Some((c, s["causes"][c.name()].as_u64()?)));
            Some(Sample {
                seconds: s["seconds"].as_f64()?,
                ops: s["ops"].as_u64()?,
                iops: s["iops"].as_f64()?,
                causes: Breakdown(causes.collect()),
            })
        };
        Some(Run {
            total: Cell::from_json(&value["total"])?,
            seconds: value["seconds"].as_f64()?,
            ops: value["ops"].as_u64()?,
            iops: value["iops"].as_f64()?,
            average_ms: value["latency_average_ms"].as_f64()?,
            median_ms: value["latency_median_ms"].as_f64()?,
            p99_ms: value["latency_99_ms"].as_f64()?,
            tail_ms: value["latency_99_99_ms"].as_f64()?,
            cpu_us: value["cpu_us_per_op"].as_f64()?,
            memory_mib: value["memory_mib"].as_f64()?,
            live: value["live_fraction"].as_f64()?,
            samples: value["samples"].as_array()?.iter().filter_map(sample).collect(),
        })
    }
}

/// Runs by backend.
pub(crate) type Runs = BTreeMap<String, Run>;

/// The file of results.
pub(crate) fn path(out: &Path) -> PathBuf {
    out.join("longterm.json")
}

/// What [`run`] wrote.
pub(crate) fn from_json(value: &Value) -> Runs {
    let runs = value["runs"].as_object();
    let runs = runs.into_iter().flatten();
    runs.filter_map(|(name, run)| Some((name.clone(), Run::from_json(run)?))).collect()
}

pub(crate) fn conditions(args: &LongtermArgs) -> Value {
    let mut conditions = json!({
        "experiment": "longterm",
        "replicas": REPLICAS,
        "pattern": args.rw.name(),
        "request_bytes": args.bs,
        "queue_depth": args.iodepth,
        "image_bytes": args.size,
        "written_bytes": args.written(),
        "osd_bytes": args.osd_bytes(),
        "object_size": 4u64 << 20,
        "placement_groups": PGS,
        "disk": format!("{:?}", args.common.disk).to_lowercase(),
        "state": if args.aged { "aged" } else { "fresh" },
        "aged_with_bytes": args.ageing() * args.ageing_bs(),
        "seed": args.seed,
        "sample_seconds": args.sample,
    });
    results::note_choices(&mut conditions, &args.common);
    conditions
}

/// Runs the experiment.
pub(crate) fn run(args: &LongtermArgs, host: &Host) -> Result<(), LabError> {
    let backends = backend::chosen(&args.common.backend, host)?;
    let path = path(&args.common.out);
    let conditions = conditions(args);
    let mut runs = match results::read_kept(&path, args.common.anew)? {
        Some(old) if old["conditions"] == conditions => from_json(&old),
        Some(_) => return Err(results::other_conditions(&path)),
        None => Runs::new(),
    };
    let data = args.common.data();
    let machine = machine::sheet(&data);
    for (n, backend) in backends.iter().enumerate() {
        if runs.contains_key(backend.name) {
            continue;
        }
        let bar = progress::bar(args.requests() + args.ageing());
        let place = format!("{} ({} of {})", backend.title, n + 1, backends.len());
        bar.set_message(place.clone());
        let done = measure(args, host, &data, backend, &bar)
            .map_err(|e| LabError::new(format!("{}: {e}", backend.name)))?;
        bar.finish_and_clear();
        (host.tell)(&format!(
            "{}: {:.0} IOPS, WAF {:.3}, {:.2} ms on average, {:.2} ms at 99.99 %",
            backend.title,
            done.iops,
            done.total.waf(),
            done.average_ms,
            done.tail_ms
        ));
        runs.insert(backend.name.to_owned(), done);
        let all: serde_json::Map<String, Value> =
            runs.iter().map(|(name, run)| (name.clone(), run.to_json())).collect();
        let all = json!({"conditions": conditions, "machine": machine, "runs": all});
        results::write_json(&path, &all)?;
    }
    results::write(&path.with_extension("csv"), csv(&runs).as_bytes())?;
    results::write(&args.common.out.join("longterm-samples.csv"), samples_csv(&runs).as_bytes())?;
    (host.tell)(&format!("\n{}", scale_text(args)));
    (host.tell)(summary(&runs).trim_end());
    (host.tell)(&format!("\nresults: {}", path.display()));
    crate::report::write(&args.common.out, host)
}

/// How far the run is from the paper's.
pub(crate) fn scale_text(args: &LongtermArgs) -> String {
    // 57.6 GiB, three replicas, 16 OSDs.
    const PAPER: f64 = 57.6 * 3.0 / 16.0;
    let here = args.written() as f64 / f64::from(1u32 << 30);
    format!(
        "scale: {here:.2} GiB written to each OSD; the paper wrote {PAPER:.1} GiB to each, this is 1/{:.0} of it",
        PAPER / here.max(1e-6)
    )
}

pub(crate) fn measure(
    args: &LongtermArgs,
    host: &Host,
    data: &Path,
    backend: &Backend,
    bar: &ProgressBar,
) -> Result<Run, LabError> {
    let shape = Shape {
        backend,
        osd_size: args.osd_bytes(),
        disk: args.common.disk,
        log_unit: args.common.log_unit,
        pgs: PGS,
        sets: &args.common.sets,
    };
    let cluster = Rc::new(Cluster::up(host, data, &shape)?);
    let (args, bar, under_test) = (args.clone(), bar.clone(), cluster.clone());
    env::real::Runtime::new()?
        .block_on(move |env| under_load(env, under_test, args, bar))
        .map_err(|e| cluster.explained(e))
}

async fn under_load(
    env: Env,
    cluster: Rc<Cluster>,
    args: LongtermArgs,
    bar: ProgressBar,
) -> Result<Run, LabError> {
    let session = cluster.connect(&env, PGS).await?;
    let image = session.image(args.size).await?;
    if args.aged {
        let bs = args.ageing_bs();
        let offsets = Offsets::new(Pattern::Random, args.seed ^ 1, args.size / bs);
        let load = Load::new(&env, bs, offsets, args.ageing());
        let target = Target::Image(image.clone());
        work(&env, &cluster, &load, &target, args.iodepth, &bar).await?;
    }
    let before = Look::at_rest(&cluster, &session, STILL).await?;
    let busy = usage::of(&cluster.osd_pids());
    let offsets = Offsets::new(args.rw, args.seed, args.blocks());
    let target = match args.rw {
        Pattern::Omap => Target::Omap(session.pool().await?),
        Pattern::Delete => Target::Objects(session.pool().await?),
        _ => Target::Image(image.clone()),
    };
    let load = Load::new(&env, args.bs, offsets, args.requests());
    let samples = Rc::new(RefCell::new(Vec::new()));
    let sampling = Rc::new(Slot::new(true));
    let sampler = env.spawn_with_handle({
        let (env, load, samples) = (env.clone(), load.clone(), samples.clone());
        let (sampling, session) = (sampling.clone(), session.again());
        let (every, mut last) = (Duration::from_secs_f64(args.sample), before.counters.clone());
        async move {
            let (begin, mut ops, mut then) = (env.now(), 0, env.now());
            while sampling.get() {
                env.sleep(every).await;
                let counters = session.counters().await?;
                let done = load.done();
                // What the stores do after the last answer takes no requests' time.
                let now = if done == load.requests() { load.ended().max(then) } else { env.now() };
                let grown = crate::causes::grown(&last, &counters).map_err(LabError::new)?;
                let causes = Breakdown::in_flight(&grown, u64::MAX);
                let length = (now - then).as_secs_f64();
                // A piece of an interval would look like a peak.
                if length * 2.0 < every.as_secs_f64() && !samples.borrow().is_empty() {
                    break;
                }
                let length = length.max(1e-9);
                samples.borrow_mut().push(Sample {
                    seconds: (now - begin).as_secs_f64(),
                    ops: done - ops,
                    iops: (done - ops) as f64 / length,
                    causes,
                });
                (ops, then, last) = (done, now, counters);
            }
            Ok::<(), LabError>(())
        }
    });
    let begin = env.now();
    work(&env, &cluster, &load, &target, args.iodepth, &bar).await?;
    let seconds = (load.ended() - begin).as_secs_f64();
    sampling.set(false);
    sampler.await?;
    let after = Look::at_rest(&cluster, &session, STILL).await?;
    let spent = usage::of(&cluster.osd_pids());
    let total = after.since(&before, &cluster, load.bytes())?;
    image.close().await?;
    let latencies = load.latencies();
    let samples = samples.take();
    Ok(summed(&args, total, seconds, &latencies, samples, spent.since(&busy), load.touched()))
}

fn summed(
    args: &LongtermArgs,
    total: Cell,
    seconds: f64,
    latencies: &Histogram,
    samples: Vec<Sample>,
    spent: Usage,
    touched: u64,
) -> Run {
    let ops = latencies.count();
    let ms = |nanoseconds: f64| nanoseconds / 1e6;
    let percentile = |percent| ms(latencies.percentile(percent) as f64);
    // An aged image is full; omaps and objects lie beside it.
    let in_image = !matches!(args.rw, Pattern::Omap | Pattern::Delete);
    let live = match (args.aged, in_image) {
        (true, true) => args.size,
        (true, false) => args.size + touched * args.bs,
        (false, _) => touched * args.bs,
    };
    Run {
        total,
        seconds,
        ops,
        iops: ops as f64 / seconds.max(1e-9),
        average_ms: ms(latencies.mean()),
        median_ms: percentile(50.0),
        p99_ms: percentile(99.0),
        tail_ms: percentile(99.99),
        cpu_us: spent.cpu.as_secs_f64() * 1e6 / (ops.max(1)) as f64,
        memory_mib: spent.peak_bytes as f64 / f64::from(1 << 20),
        live: live as f64 / args.osd_bytes() as f64,
        samples,
    }
}

/// Runs a load to its end, `depth` requests under way.
async fn work(
    env: &Env,
    cluster: &Cluster,
    load: &Load,
    target: &Target,
    depth: u32,
    bar: &ProgressBar,
) -> Result<(), LabError> {
    let base = bar.position();
    let lanes: Vec<_> = (0..depth.max(1))
        .map(|_| env.spawn_with_handle(load.clone().lane(target.clone())))
        .collect();
    let (mut done, mut since) = (load.done(), env.now());
    while !lanes.iter().all(JoinHandle::is_finished) {
        env.sleep(LOOK).await;
        if load.done() != done {
            (done, since) = (load.done(), env.now());
        }
        bar.set_position(base + done);
        let gone = cluster.gone();
        if !gone.is_empty() {
            let gone = gone.join(", ");
            return Err(LabError::by_backend(format!("{gone} ended after {done} writes")));
        }
        if env.now() - since > PATIENCE {
            let seconds = PATIENCE.as_secs();
            return Err(LabError::by_backend(format!(
                "after {done} writes none was answered for {seconds} s"
            )));
        }
    }
    let mut result = Ok(());
    for lane in lanes {
        let done = lane.await;
        result = result.and(done);
    }
    bar.set_position(base + load.done());
    result
}

/// Tables I to III.
pub(crate) fn summary(runs: &Runs) -> String {
    let used = |cause: &Cause| runs.values().any(|run| run.total.causes.bytes(*cause) > 0);
    let used: Vec<Cause> = Cause::ALL.into_iter().filter(used).collect();
    let mut head: Vec<String> =
        ["backend", "IOPS", "avg ms", "99.99 % ms", "CPU us/op", "MiB", "WAF"]
            .map(str::to_owned)
            .into();
    head.extend(used.iter().map(|c| c.title().to_owned()));
    let rows = runs.iter().map(|(name, run)| {
        let mut row = vec![
            name.clone(),
            format!("{:.0}", run.iops),
            format!("{:.2}", run.average_ms),
            format!("{:.2}", run.tail_ms),
            format!("{:.0}", run.cpu_us),
            format!("{:.0}", run.memory_mib),
            format!("{:.3}", run.total.waf()),
        ];
        row.extend(used.iter().map(|c| format!("{:.3}", run.total.cause_waf(*c))));
        row
    });
    table::text(&head, &rows.collect::<Vec<_>>())
}

pub(crate) fn csv(runs: &Runs) -> String {
    let mut head: Vec<String> = [
        "backend",
        "ops",
        "seconds",
        "iops",
        "latency_average_ms",
        "latency_median_ms",
        "latency_99_ms",
        "latency_99_99_ms",
        "cpu_us_per_op",
        "memory_mib",
        "live_fraction",
        "client_bytes",
        "sum_of_causes",
        "waf",
    ]
    .map(str::to_owned)
    .into();
    head.extend(Cause::ALL.map(|c| c.name().to_owned()));
    head.push("device_bytes".to_owned());
    let rows = runs.iter().map(|(name, run)| {
        let mut row = vec![
            name.clone(),
            run.ops.to_string(),
            format!("{:.3}", run.seconds),
            format!("{:.1}", run.iops),
            format!("{:.3}", run.average_ms),
            format!("{:.3}", run.median_ms),
            format!("{:.3}", run.p99_ms),
            format!("{:.3}", run.tail_ms),
            format!("{:.1}", run.cpu_us),
            format!("{:.1}", run.memory_mib),
            format!("{:.4}", run.live),
            run.total.client.to_string(),
            run.total.causes.sum().to_string(),
            format!("{:.3}", run.total.waf()),
        ];
        row.extend(Cause::ALL.map(|c| run.total.causes.bytes(c).to_string()));
        row.push(run.total.device.map_or(String::new(), |(d, j)| (d + j).to_string()));
        row
    });
    table::csv(&head, &rows.collect::<Vec<_>>())
}

fn samples_csv(runs: &Runs) -> String {
    let mut head: Vec<String> = ["backend", "seconds", "ops", "iops"].map(str::to_owned).into();
    head.extend(Cause::ALL.map(|c| c.name().to_owned()));
    let rows = runs.iter().flat_map(|(name, run)| {
        run.samples.iter().map(move |s| {
            let mut row = vec![
                name.clone(),
                format!("{:.3}", s.seconds),
                s.ops.to_string(),
                format!("{:.1}", s.iops),
            ];
            row.extend(Cause::ALL.map(|c| s.causes.bytes(c).to_string()));
            row
        })
    });
    table::csv(&head, &rows.collect::<Vec<_>>())
}

/// The conditions in words, for plots.
pub(crate) fn subtitle(conditions: &Value) -> String {
    let bytes = |name: &str| bytes_text(conditions[name].as_u64().unwrap_or(0));
    format!(
        "{} writes of {}, QD {}, image of {}, {}",
        conditions["pattern"].as_str().unwrap_or("?"),
        bytes("request_bytes"),
        conditions["queue_depth"],
        bytes("image_bytes"),
        conditions["state"].as_str().unwrap_or("?"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_comes_back() {
        let counters =
            crate::causes::Counters::from([("written".into(), 9), ("written_data".into(), 9)]);
        let run = Run {
            total: Cell::new(3, counters, None).unwrap(),
            seconds: 1.5,
            ops: 4,
            iops: 2.5,
            average_ms: 1.0,
            median_ms: 1.0,
            p99_ms: 2.0,
            tail_ms: 3.0,
            cpu_us: 10.0,
            memory_mib: 20.0,
            live: 0.5,
            samples: vec![Sample {
                seconds: 1.0,
                ops: 4,
                iops: 4.0,
                causes: Breakdown([(Cause::Data, 9)].into()),
            }],
        };
        assert_eq!(Run::from_json(&run.to_json()), Some(run));
    }
}
