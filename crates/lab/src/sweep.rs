//! `lab sweep`: each backend over queue depths, request sizes or patterns (beyond the paper, which
//! has one of each in its long runs). What shares a commit with others pays less for it, so a WAF
//! without its queue depth says little. Each point is a `lab longterm` of its own on a fresh
//! cluster.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::cli::{LongtermArgs, Pattern, SweepArgs, bytes_text};
use crate::longterm::{self, Run};
use crate::{Host, LabError, backend, machine, progress, results, table};

/// Queue depths, if nothing is named.
const DEPTHS: [u32; 5] = [1, 4, 16, 64, 256];

/// What is changed from point to point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Axis {
    Depth,
    Size,
    Pattern,
}

impl Axis {
    pub(crate) const ALL: [Axis; 3] = [Axis::Depth, Axis::Size, Axis::Pattern];

    /// In results.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Axis::Depth => "queue depth",
            Axis::Size => "request size",
            Axis::Pattern => "pattern",
        }
    }
}

/// One load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) axis: Axis,
    /// Queue depth, bytes of a request, or 2 to the power of the pattern's place in [`PATTERNS`].
    pub(crate) at: u32,
}

/// Patterns in the order of figures.
pub(crate) const PATTERNS: [Pattern; 5] =
    [Pattern::Sequential, Pattern::Random, Pattern::Zipf, Pattern::Omap, Pattern::Delete];

impl Place {
    fn pattern(self) -> Option<Pattern> {
        PATTERNS.get(self.at.trailing_zeros() as usize).copied()
    }

    /// For figures and tables.
    pub(crate) fn label(self) -> String {
        match self.axis {
            Axis::Depth => self.at.to_string(),
            Axis::Size => bytes_text(u64::from(self.at)),
            Axis::Pattern => self.pattern().map_or("?", Pattern::name).to_owned(),
        }
    }

    /// What [`Place::label`] is of.
    fn of_label(axis: &str, label: &str) -> Option<Place> {
        let axis = Axis::ALL.into_iter().find(|a| a.name() == axis)?;
        let at = match axis {
            Axis::Depth => label.parse().ok()?,
            Axis::Size => u32::try_from(crate::cli::parse_bytes(label).ok()?).ok()?,
            Axis::Pattern => 1 << PATTERNS.iter().position(|p| p.name() == label)?,
        };
        Some(Place { axis, at })
    }

    /// The load here.
    fn longterm(self, load: &LongtermArgs) -> LongtermArgs {
        let mut load = load.clone();
        match self.axis {
            Axis::Depth => load.iodepth = self.at,
            Axis::Size => load.bs = u64::from(self.at),
            Axis::Pattern => load.rw = self.pattern().unwrap_or(load.rw),
        }
        load
    }
}

/// Runs by backend and place.
pub(crate) type Points = BTreeMap<(String, Place), Run>;

/// The file of results.
pub(crate) fn path(out: &Path) -> PathBuf {
    out.join("sweep.json")
}

/// What [`run`] wrote.
pub(crate) fn from_json(value: &Value) -> Points {
    let runs = value["runs"].as_array().map(Vec::as_slice).unwrap_or_default();
    let one = |value: &Value| {
        let place = Place::of_label(value["axis"].as_str()?, value["at"].as_str()?)?;
        Some(((value["backend"].as_str()?.to_owned(), place), Run::from_json(value)?))
    };
    runs.iter().filter_map(one).collect()
}

/// The points that are asked for.
fn places(args: &SweepArgs) -> Result<Vec<Place>, LabError> {
    let at = |axis, at| Place { axis, at };
    let depths: &[u32] = match args.sizes.is_empty() && args.patterns.is_empty() {
        true if args.depths.is_empty() => &DEPTHS,
        _ => &args.depths,
    };
    let mut all: Vec<Place> = depths.iter().map(|d| at(Axis::Depth, *d)).collect();
    for size in &args.sizes {
        let size = u32::try_from(*size).map_err(|_| LabError::new("--sizes: 512 to 4M"))?;
        all.push(at(Axis::Size, size));
    }
    for pattern in &args.patterns {
        let place = PATTERNS.iter().position(|p| p == pattern).unwrap_or(0);
        all.push(at(Axis::Pattern, 1 << place));
    }
    for place in &all {
        place
            .longterm(&args.load)
            .check()
            .map_err(|e| LabError::new(format!("{} {}: {e}", place.axis.name(), place.label())))?;
    }
    Ok(all)
}

fn to_json(points: &Points, args: &SweepArgs) -> Vec<Value> {
    let runs = points.iter().map(|((backend, place), run)| {
        let load = place.longterm(&args.load);
        let mut value = run.to_json();
        value["backend"] = json!(backend);
        value["axis"] = json!(place.axis.name());
        value["at"] = json!(place.label());
        value["queue_depth"] = json!(load.iodepth);
        value["request_bytes"] = json!(load.bs);
        value["pattern"] = json!(load.rw.name());
        value
    });
    runs.collect()
}

/// Runs the experiment.
pub(crate) fn run(args: &SweepArgs, host: &Host) -> Result<(), LabError> {
    let common = &args.load.common;
    let (backends, places) = (backend::chosen(&common.backend, host)?, places(args)?);
    let path = path(&common.out);
    let mut conditions = longterm::conditions(&args.load);
    conditions["experiment"] = json!("sweep");
    let mut points = match results::read_kept(&path, common.anew)? {
        Some(old) if old["conditions"] == conditions => from_json(&old),
        Some(_) => return Err(results::other_conditions(&path)),
        None => Points::new(),
    };
    let data = common.data();
    let machine = machine::sheet(&data);
    let steps = |place: &Place| {
        let load = place.longterm(&args.load);
        load.requests() + load.ageing()
    };
    let each: u64 = places.iter().map(steps).sum();
    let bar = progress::bar(backends.len() as u64 * each);
    for backend in &backends {
        for place in &places {
            let key = (backend.name.to_owned(), *place);
            let begun = bar.position();
            let here = format!("{} {}", place.axis.name(), place.label());
            bar.set_message(format!("{}, {here}", backend.title));
            if let Entry::Vacant(vacant) = points.entry(key) {
                let one = place.longterm(&args.load);
                let done = longterm::measure(&one, host, &data, backend, &bar)
                    .map_err(|e| LabError::new(format!("{}, {here}: {e}", backend.name)))?;
                vacant.insert(done);
                let runs = to_json(&points, args);
                let all = json!({"conditions": conditions, "machine": machine, "runs": runs});
                results::write_json(&path, &all)?;
            }
            bar.set_position(begun + steps(place));
        }
    }
    bar.finish_and_clear();
    let (head, rows) = rows(&points, None);
    results::write(&path.with_extension("csv"), table::csv(&head, &rows).as_bytes())?;
    (host.tell)(table::text(&head, &rows).trim_end());
    (host.tell)(&format!("\nresults: {}", path.display()));
    crate::report::write(&common.out, host)
}

/// A line for each point, of one axis or of all.
pub(crate) fn rows(points: &Points, axis: Option<Axis>) -> (Vec<String>, Vec<Vec<String>>) {
    let head = [
        "backend",
        "axis",
        "at",
        "iops",
        "average_ms",
        "tail_ms",
        "cpu_us",
        "memory_mib",
        "live",
        "waf",
    ];
    let mine = points.iter().filter(|((_, place), _)| axis.is_none_or(|axis| place.axis == axis));
    let rows = mine.map(|((backend, place), run)| {
        vec![
            backend.clone(),
            place.axis.name().to_owned(),
            place.label(),
            format!("{:.0}", run.iops),
            format!("{:.3}", run.average_ms),
            format!("{:.3}", run.tail_ms),
            format!("{:.0}", run.cpu_us),
            format!("{:.0}", run.memory_mib),
            format!("{:.3}", run.live),
            format!("{:.3}", run.total.waf()),
        ]
    });
    (head.map(str::to_owned).into(), rows.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_come_back_from_their_labels() {
        let places = [(Axis::Depth, 16), (Axis::Size, 65536), (Axis::Size, 512)];
        let patterns = (0..PATTERNS.len()).map(|n| (Axis::Pattern, 1 << n));
        for (axis, at) in places.into_iter().chain(patterns) {
            let place = Place { axis, at };
            assert_eq!(Place::of_label(axis.name(), &place.label()), Some(place));
        }
        assert_eq!(Place::of_label("pattern", "nosuch"), None);
    }
}
