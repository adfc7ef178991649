//! `lab sweep`: WAF, IOPS and latency of each backend over queue depths (beyond the paper, which
//! has 128 only). What shares a commit with others pays less for it, so a WAF without its queue
//! depth says little. Each point is a `lab longterm` of its own on a fresh cluster.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::cli::{LongtermArgs, SweepArgs};
use crate::longterm::{self, Run};
use crate::{Host, LabError, backend, machine, progress, results, table};

/// Runs by backend and queue depth.
pub(crate) type Points = BTreeMap<(String, u32), Run>;

/// The file of results.
pub(crate) fn path(out: &Path) -> PathBuf {
    out.join("sweep.json")
}

/// What [`run`] wrote.
pub(crate) fn from_json(value: &Value) -> Points {
    let runs = value["runs"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let one = |value: &Value| {
        let depth = u32::try_from(value["queue_depth"].as_u64()?).ok()?;
        Some((
            (value["backend"].as_str()?.to_owned(), depth),
            Run::from_json(value)?,
        ))
    };
    runs.iter().filter_map(one).collect()
}

/// One point's run.
fn longterm_of(args: &SweepArgs, depth: u32) -> LongtermArgs {
    LongtermArgs {
        iodepth: depth,
        ..args.load.clone()
    }
}

/// Runs the experiment.
pub(crate) fn run(args: &SweepArgs, host: &Host) -> Result<(), LabError> {
    if let Some(depth) = args
        .depths
        .iter()
        .find(|depth| !(1..=1024).contains(*depth))
    {
        return Err(LabError::new(format!("--depths {depth}: give 1 to 1024")));
    }
    let common = &args.load.common;
    let backends = backend::chosen(&common.backend, host)?;
    let path = path(&common.out);
    let mut conditions = longterm::conditions(&args.load);
    conditions["experiment"] = json!("sweep");
    conditions["queue_depth"] = json!("as in the table");
    let mut points = match results::read_json(&path)? {
        Some(old) if !common.anew && old["conditions"] == conditions => from_json(&old),
        Some(_) if !common.anew => return Err(results::other_conditions(&path)),
        _ => Points::new(),
    };
    let data = common.data.clone().unwrap_or_else(std::env::temp_dir);
    let machine = machine::sheet(&data);
    let left = backends.len() * args.depths.len();
    let bar = progress::bar(left as u64 * args.load.requests());
    for backend in &backends {
        for depth in &args.depths {
            let key = (backend.name.to_owned(), *depth);
            let begun = bar.position();
            bar.set_message(format!("{}, QD {depth}", backend.title));
            if !points.contains_key(&key) {
                let one = longterm_of(args, *depth);
                let done = longterm::measure(&one, host, &data, backend, &bar)
                    .map_err(|e| LabError::new(format!("{}, QD {depth}: {e}", backend.name)))?;
                points.insert(key, done);
                let runs = points.iter().map(|((backend, depth), run)| {
                    let mut value = run.to_json();
                    value["backend"] = json!(backend);
                    value["queue_depth"] = json!(depth);
                    value
                });
                let runs: Vec<Value> = runs.collect();
                let all = json!({"conditions": conditions, "machine": machine, "runs": runs});
                results::write_json(&path, &all)?;
            }
            bar.set_position(begun + args.load.requests());
        }
    }
    bar.finish_and_clear();
    let (head, rows) = rows(&points);
    results::write(
        &path.with_extension("csv"),
        table::csv(&head, &rows).as_bytes(),
    )?;
    (host.tell)(table::text(&head, &rows).trim_end());
    (host.tell)(&format!("\nresults: {}", path.display()));
    crate::report::write(&common.out, host)
}

/// A line for each point.
pub(crate) fn rows(points: &Points) -> (Vec<String>, Vec<Vec<String>>) {
    let head = [
        "backend",
        "queue_depth",
        "iops",
        "average_ms",
        "tail_ms",
        "cpu_us",
        "waf",
    ];
    let rows = points.iter().map(|((backend, depth), run)| {
        vec![
            backend.clone(),
            depth.to_string(),
            format!("{:.0}", run.iops),
            format!("{:.3}", run.average_ms),
            format!("{:.3}", run.tail_ms),
            format!("{:.0}", run.cpu_us),
            format!("{:.3}", run.total.waf()),
        ]
    });
    (head.map(str::to_owned).into(), rows.collect())
}
