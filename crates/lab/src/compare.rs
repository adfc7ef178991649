//! `lab compare`: single writes and many writes on the backends of this binary and, with
//! `--with-ceph`, on those of the Ceph that is installed here: the same client, the same kind of
//! devices, the kernel's sectors on both sides.
//!
//! A backend of Ceph that fails under the load (KStore is experimental and does) is no failure of
//! the experiment: what happened is kept as its result.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::backend::{self, Backend, System};
use crate::cli::{CompareArgs, DiskKind, LongtermArgs, bytes_text, request_sizes};
use crate::cluster::Shape;
use crate::longterm::{self, Runs};
use crate::micro::{self, Cells, WRITES};
use crate::{Host, LabError, ceph, machine, progress, results};

/// Everything measured so far.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Results {
    pub(crate) cells: Cells,
    pub(crate) runs: Runs,
    /// What a backend could not do, and why: by backend and experiment.
    pub(crate) failed: BTreeMap<(String, String), String>,
}

/// Experiments, as in [`Results::failed`].
const SINGLE: &str = "single writes";
const MANY: &str = "many writes";

/// The file of results.
pub(crate) fn path(out: &Path) -> PathBuf {
    out.join("compare.json")
}

impl Results {
    fn to_json(&self) -> Value {
        let runs: serde_json::Map<String, Value> =
            self.runs.iter().map(|(name, run)| (name.clone(), run.to_json())).collect();
        let failed = self.failed.iter().map(|((backend, experiment), why)| {
            json!({"backend": backend, "experiment": experiment, "why": why})
        });
        json!({
            "cells": micro::cells_json(&self.cells),
            "runs": runs,
            "failed": failed.collect::<Vec<_>>(),
        })
    }

    pub(crate) fn from_json(value: &Value) -> Results {
        let failed = value["failed"].as_array().into_iter().flatten();
        let failed = failed.filter_map(|f| {
            let text = |name: &str| f[name].as_str().map(str::to_owned);
            Some(((text("backend")?, text("experiment")?), text("why")?))
        });
        Results {
            cells: micro::from_json(value),
            runs: longterm::from_json(value),
            failed: failed.collect(),
        }
    }

    fn has_failed(&self, backend: &Backend, experiment: &str) -> bool {
        self.failed.contains_key(&(backend.name.to_owned(), experiment.to_owned()))
    }

    /// Keeps why a backend of Ceph failed. Ours must not, nor must what is around it.
    fn fail(
        &mut self,
        backend: &Backend,
        experiment: &str,
        error: LabError,
        host: &Host,
    ) -> Result<(), LabError> {
        let is_result = backend.system == System::Ceph && error.is_by_backend();
        let error = format!("{}, {experiment}: {error}", backend.name);
        if !is_result {
            return Err(LabError::new(error));
        }
        (host.tell)(&format!("{error} (kept as its result)"));
        let key = (backend.name.to_owned(), experiment.to_owned());
        self.failed.insert(key, error);
        Ok(())
    }
}

/// The size of the OSDs for single writes: what the load's have, which may be told, if that is more.
fn single_osd_size(load: &LongtermArgs) -> u64 {
    micro::OSD_SIZE.max(load.osd_bytes())
}

/// What the experiment stands on.
struct Plan<'a> {
    host: &'a Host,
    load: LongtermArgs,
    sizes: Vec<u64>,
    backends: Vec<Backend>,
    data: PathBuf,
    conditions: Value,
    machine: Value,
}

impl Plan<'_> {
    fn save(&self, found: &Results) -> Result<(), LabError> {
        let mut all = found.to_json();
        all["conditions"] = self.conditions.clone();
        all["machine"] = self.machine.clone();
        results::write_json(&path(&self.load.common.out), &all)
    }

    fn single_writes(&self, found: &mut Results) -> Result<(), LabError> {
        let bar = progress::bar((self.backends.len() * self.sizes.len()) as u64);
        for backend in &self.backends {
            for request in &self.sizes {
                bar.set_message(format!("{} {}", backend.title, bytes_text(*request)));
                let key = |write| (backend.name.to_owned(), *request, write);
                let is_done = (0..WRITES.len()).all(|n| found.cells.contains_key(&key(n)));
                if !is_done && !found.has_failed(backend, SINGLE) {
                    let shape = Shape {
                        backend,
                        osd_size: single_osd_size(&self.load),
                        disk: DiskKind::Xfs,
                        log_unit: self.load.common.log_unit,
                        pgs: 1,
                        sets: &self.load.common.sets,
                    };
                    match micro::measure(self.host, &self.data, &shape, *request) {
                        Ok(four) => {
                            let four = four.into_iter().enumerate();
                            found.cells.extend(four.map(|(n, cell)| (key(n), cell)));
                        }
                        Err(e) => found.fail(backend, SINGLE, e, self.host)?,
                    }
                    self.save(found)?;
                }
                bar.inc(1);
            }
        }
        bar.finish_and_clear();
        Ok(())
    }

    fn many_writes(&self, found: &mut Results) -> Result<(), LabError> {
        let each = self.load.requests() + self.load.ageing();
        let bar = progress::bar(each * self.backends.len() as u64);
        for (n, backend) in self.backends.iter().enumerate() {
            bar.set_message(backend.title);
            let is_done = found.runs.contains_key(backend.name);
            if !is_done && !found.has_failed(backend, MANY) {
                match longterm::measure(&self.load, self.host, &self.data, backend, &bar) {
                    Ok(run) => {
                        let (title, waf) = (backend.title, run.total.waf());
                        (self.host.tell)(&format!("{title}: {:.0} IOPS, WAF {waf:.3}", run.iops));
                        found.runs.insert(backend.name.to_owned(), run);
                    }
                    Err(e) => found.fail(backend, MANY, e, self.host)?,
                }
                self.save(found)?;
            }
            bar.set_position(each * (n as u64 + 1));
        }
        bar.finish_and_clear();
        Ok(())
    }
}

/// Runs the experiment.
pub(crate) fn run(args: &CompareArgs, host: &Host) -> Result<(), LabError> {
    let mut load = args.load.clone();
    load.common.disk = DiskKind::Xfs;
    let mut backends = backend::chosen(&load.common.backend, host)?;
    if args.with_ceph {
        let theirs = backend::of(System::Ceph, host).into_iter();
        let new: Vec<Backend> = theirs.filter(|b| !backends.contains(b)).collect();
        backends.extend(new);
    }
    let version = match backends.iter().any(|b| b.system == System::Ceph) {
        true => Some(ceph::version()?),
        false => None,
    };
    let (data, out) = (load.common.data(), load.common.out.clone());
    let path = path(&out);
    let old = results::read_kept(&path, load.common.anew)?;
    // Without Ceph first and with it then is one experiment that goes on.
    let before = old.as_ref().map(|old| old["conditions"]["ceph"].clone());
    let mut single_writes = micro::conditions(DiskKind::Xfs, &load.common);
    single_writes["osd_bytes"] = json!(single_osd_size(&load));
    let plan = Plan {
        host,
        sizes: request_sizes(&args.sizes)?,
        conditions: json!({
            "experiment": "compare",
            "ceph": version.map_or(before.unwrap_or_default(), Value::String),
            "single_writes": single_writes,
            "many_writes": longterm::conditions(&load),
        }),
        machine: machine::sheet(&data),
        load,
        backends,
        data,
    };
    let same = |old: &Value| {
        let named = &plan.conditions;
        ["single_writes", "many_writes"].iter().all(|part| old["conditions"][part] == named[part])
    };
    let mut found = match old {
        Some(old) if same(&old) => Results::from_json(&old),
        Some(_) => return Err(results::other_conditions(&path)),
        None => Results::default(),
    };
    plan.single_writes(&mut found)?;
    plan.many_writes(&mut found)?;
    let csv = |name: &str, text: String| results::write(&out.join(name), text.as_bytes());
    csv("compare-single.csv", micro::csv(&found.cells))?;
    csv("compare-many.csv", longterm::csv(&found.runs))?;
    for backend in &plan.backends {
        (host.tell)(&format!("\n{}: bytes written for each byte of the client", backend.title));
        (host.tell)(micro::backend_table(&found.cells, backend).trim_end());
    }
    (host.tell)(&format!("\n{}", longterm::scale_text(&plan.load)));
    (host.tell)(longterm::summary(&found.runs).trim_end());
    for why in found.failed.values() {
        (host.tell)(why);
    }
    (host.tell)(&format!("\nresults: {}", path.display()));
    crate::report::write(&out, host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_a_result_that_comes_back() {
        let mut found = Results::default();
        let key = ("ceph-kstore".to_owned(), MANY.to_owned());
        found.failed.insert(key, "osd.1 ended".to_owned());
        assert_eq!(Results::from_json(&found.to_json()), found);
        let kstore = backend::KNOWN.iter().find(|b| b.name == "ceph-kstore");
        assert!(found.has_failed(kstore.unwrap(), MANY));
        assert!(!found.has_failed(kstore.unwrap(), SINGLE));
    }
}
