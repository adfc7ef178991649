//! `lab micro`: figure 4 of the paper. For each backend and request size a fresh cluster, and in
//! it four writes, each measured alone: 1ST WRITE into an empty object, 2ND WRITE next to it, 3RD
//! WRITE behind a hole, OVERWRITE where the first was.
//!
//! After each write the laboratory waits until no store has written anything for a while, so that
//! what follows a write belongs to it. Several clusters wait side by side (`--jobs`): each has
//! devices and counters of its own, and nothing here is about time.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use env::Env;
use serde_json::{Value, json};

use crate::backend::{self, Backend};
use crate::causes::Cause;
use crate::cell::Cell;
use crate::cli::{CommonArgs, DiskKind, MicroArgs, bytes_text, request_sizes};
use crate::cluster::{Cluster, PATIENCE, Shape};
use crate::look::Look;
use crate::{Host, LabError, machine, progress, results, table};

/// How long nothing must have been written.
const STILL: Duration = Duration::from_millis(500);
/// Bytes of the image: the furthest write is the third of 4 MiB.
const IMAGE_SIZE: u64 = 64 << 20;
pub(crate) const OSD_SIZE: u64 = 1 << 30;

/// The four writes, in order.
pub(crate) const WRITES: [&str; 4] = ["1ST WRITE", "2ND WRITE", "3RD WRITE", "OVERWRITE"];

/// Where each begins. The third leaves a hole: in the middle of the object, or as far behind the
/// second as a request is long.
fn offsets(request: u64) -> [u64; 4] {
    const MIDDLE: u64 = 2 << 20;
    [0, request, MIDDLE.max(3 * request), 0]
}

/// All cells by backend, request size and write.
pub(crate) type Cells = BTreeMap<(String, u64, usize), Cell>;

/// The file of results.
pub(crate) fn path(out: &Path) -> PathBuf {
    out.join("micro.json")
}

/// What a run stands on; results under other conditions are not gone on with.
pub(crate) fn conditions(disk: DiskKind, common: &CommonArgs) -> Value {
    let mut conditions = json!({
        "experiment": "micro",
        "replicas": crate::cell::REPLICAS,
        "queue_depth": 1,
        "object_size": 4u64 << 20,
        "disk": format!("{disk:?}").to_lowercase(),
        "osd_bytes": OSD_SIZE,
        "image_bytes": IMAGE_SIZE,
        "contents": "random, the same in each run",
        "state": "fresh",
        "quiet_ms": u64::try_from(STILL.as_millis()).unwrap_or(0),
    });
    results::note_choices(&mut conditions, common);
    conditions
}

fn to_json(cells: &Cells, conditions: &Value, machine: &Value) -> Value {
    json!({"conditions": conditions, "machine": machine, "cells": cells_json(cells)})
}

/// A list of cells with their places.
pub(crate) fn cells_json(cells: &Cells) -> Vec<Value> {
    let cells = cells.iter().map(|((backend, request, write), cell)| {
        let mut value = cell.to_json();
        value["backend"] = json!(backend);
        value["request_bytes"] = json!(request);
        value["write"] = json!(WRITES[*write]);
        value
    });
    cells.collect()
}

/// What [`cells_json`] made, in `cells`.
pub(crate) fn from_json(value: &Value) -> Cells {
    let cells = value["cells"].as_array().map(Vec::as_slice).unwrap_or_default();
    let one = |value: &Value| {
        let write = WRITES.iter().position(|w| value["write"] == *w)?;
        let key = (value["backend"].as_str()?.to_owned(), value["request_bytes"].as_u64()?, write);
        Some((key, Cell::from_json(value)?))
    };
    cells.iter().filter_map(one).collect()
}

/// Runs the experiment.
pub(crate) fn run(args: &MicroArgs, host: &Host) -> Result<(), LabError> {
    let (backends, sizes) =
        (backend::chosen(&args.common.backend, host)?, request_sizes(&args.sizes)?);
    let path = path(&args.common.out);
    let conditions = conditions(args.common.disk, &args.common);
    let cells = match results::read_kept(&path, args.common.anew)? {
        Some(old) if old["conditions"] == conditions => from_json(&old),
        Some(_) => return Err(results::other_conditions(&path)),
        None => Cells::new(),
    };
    let data = args.common.data();
    let machine = machine::sheet(&data);
    let bar = progress::bar((backends.len() * sizes.len()) as u64);
    let is_there = |cells: &Cells, backend: &Backend, request| {
        let mut writes = 0..WRITES.len();
        writes.all(|write| cells.contains_key(&(backend.name.to_owned(), request, write)))
    };
    let all = backends.iter().flat_map(|b| sizes.iter().map(move |request| (b, *request)));
    let todo: VecDeque<(&Backend, u64)> =
        all.filter(|(backend, request)| !is_there(&cells, backend, *request)).collect();
    bar.set_position((backends.len() * sizes.len() - todo.len()) as u64);
    let (todo, found) = (Mutex::new(todo), Mutex::new(cells));
    let next = || locked(&todo).pop_front();
    let lane = || -> Result<(), LabError> {
        while let Some((backend, request)) = next() {
            bar.set_message(format!("{} {}", backend.title, bytes_text(request)));
            let shape = Shape {
                backend,
                osd_size: OSD_SIZE,
                disk: args.common.disk,
                log_unit: args.common.log_unit,
                pgs: 1,
                sets: &args.common.sets,
            };
            let four = measure(host, &data, &shape, request).map_err(|e| {
                // The others end with what they are at.
                locked(&todo).clear();
                LabError::new(format!("{}, {}: {e}", backend.name, bytes_text(request)))
            })?;
            let mut cells = locked(&found);
            for (write, cell) in four.into_iter().enumerate() {
                cells.insert((backend.name.to_owned(), request, write), cell);
            }
            results::write_json(&path, &to_json(&cells, &conditions, &machine))?;
            bar.inc(1);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..args.jobs).map(|_| scope.spawn(lane)).collect();
        let ended = lanes.into_iter().map(|lane| {
            let panicked = |_| Err(LabError::new("a measurement panicked: see above"));
            lane.join().unwrap_or_else(panicked)
        });
        // All of them are waited for before one's error counts.
        ended.collect::<Vec<_>>().into_iter().collect::<Result<(), LabError>>()
    })?;
    let cells = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    bar.finish_and_clear();
    results::write(&path.with_extension("csv"), csv(&cells).as_bytes())?;
    for backend in &backends {
        (host.tell)(&format!(
            "\n{}: {}",
            backend.title, "bytes written for each byte of the client"
        ));
        (host.tell)(backend_table(&cells, backend).trim_end());
    }
    (host.tell)(&format!("\nresults: {}", path.display()));
    crate::report::write(&args.common.out, host)
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The four writes of one size in a fresh cluster.
pub(crate) fn measure(
    host: &Host,
    data: &Path,
    shape: &Shape<'_>,
    request: u64,
) -> Result<Vec<Cell>, LabError> {
    let cluster = Rc::new(Cluster::up(host, data, shape)?);
    let (pgs, under_test) = (shape.pgs, cluster.clone());
    env::real::Runtime::new()?
        .block_on(move |env| four_writes(env, under_test, pgs, request))
        .map_err(|e| cluster.explained(e))
}

async fn four_writes(
    env: Env,
    cluster: Rc<Cluster>,
    pgs: u32,
    request: u64,
) -> Result<Vec<Cell>, LabError> {
    let session = cluster.connect(&env, pgs).await?;
    let image = session.image(IMAGE_SIZE).await?;
    let mut cells = Vec::new();
    let mut before = Look::at_rest(&cluster, &session, STILL).await?;
    for (n, offset) in offsets(request).into_iter().enumerate() {
        // Nothing a compression or a check for zeros could make small.
        let content = noise(n as u64 + 1, request);
        match env.timeout(PATIENCE, image.write(offset, content)).await {
            Ok(written) => drop(written?),
            Err(_) => {
                return Err(LabError::by_backend(format!(
                    "the {} was not answered within {} s",
                    WRITES[n],
                    PATIENCE.as_secs()
                )));
            }
        }
        let after = Look::at_rest(&cluster, &session, STILL).await?;
        cells.push(after.since(&before, &cluster, request)?);
        before = after;
    }
    image.close().await?;
    Ok(cells)
}

/// Bytes that look random, from a seed (splitmix64).
pub(crate) fn noise(seed: u64, len: u64) -> Bytes {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)).to_le_bytes()
    };
    let mut data: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| next()).collect();
    data.truncate(len as usize);
    data.into()
}

pub(crate) fn csv(cells: &Cells) -> String {
    let mut head: Vec<String> =
        ["backend", "request_bytes", "write", "client_bytes", "sum_of_causes", "waf"]
            .map(str::to_owned)
            .into();
    head.extend(Cause::ALL.map(|c| c.name().to_owned()));
    head.push("device_bytes".to_owned());
    let rows = cells.iter().map(|((backend, request, write), cell)| {
        let mut row = vec![
            backend.clone(),
            request.to_string(),
            WRITES[*write].to_owned(),
            cell.client.to_string(),
            cell.causes.sum().to_string(),
            format!("{:.3}", cell.waf()),
        ];
        row.extend(Cause::ALL.map(|c| cell.causes.bytes(c).to_string()));
        row.push(cell.device.map_or(String::new(), |(data, journal)| (data + journal).to_string()));
        row
    });
    table::csv(&head, &rows.collect::<Vec<_>>())
}

/// One backend's cells: a line for each size and write.
pub(crate) fn backend_table(cells: &Cells, backend: &Backend) -> String {
    let mine: Vec<_> = cells.iter().filter(|((name, ..), _)| name == backend.name).collect();
    let used = |cause: &Cause| mine.iter().any(|(_, cell)| cell.causes.bytes(*cause) > 0);
    let used: Vec<Cause> = Cause::ALL.into_iter().filter(used).collect();
    let mut head = vec!["request".to_owned(), "WAF".to_owned()];
    head.extend(used.iter().map(|c| c.title().to_owned()));
    let rows = mine.iter().map(|((_, request, write), cell)| {
        let mut row = vec![
            format!("{:<4} {}", bytes_text(*request), WRITES[*write]),
            format!("{:.3}", cell.waf()),
        ];
        row.extend(used.iter().map(|c| format!("{:.3}", cell.cause_waf(*c))));
        row
    });
    table::text(&head, &rows.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_third_write_leaves_a_hole() {
        for shift in 12..=22 {
            let request = 1u64 << shift;
            let [first, second, third, over] = offsets(request);
            assert_eq!((first, second, over), (0, request, 0));
            assert!(third >= second + 2 * request);
            // A request stays in one object.
            assert_eq!(third >> 22, (third + request - 1) >> 22);
            assert!(third + request <= IMAGE_SIZE);
        }
    }

    #[test]
    fn results_come_back() {
        let counters =
            crate::causes::Counters::from([("written".into(), 9), ("written_data".into(), 9)]);
        let cell = Cell::new(3, counters, None).unwrap();
        let cells = Cells::from([(("inkstore".to_owned(), 4096, 2), cell)]);
        assert_eq!(from_json(&to_json(&cells, &Value::Null, &Value::Null)), cells);
    }
}
