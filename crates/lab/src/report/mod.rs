//! Plots and one HTML page from the results that are there: figures inside, nothing from
//! elsewhere, the paper's numbers beside ours and, where they are far apart, why.

mod compare;
mod reasons;

use std::path::Path;

use serde_json::Value;

use crate::causes::Cause;
use crate::cell::Cell;
use crate::cli::bytes_text;
use crate::longterm::{self, Run, Runs};
use crate::micro::{self, Cells, WRITES};
use crate::paper::{self, Paper};
use crate::plot::canvas::escaped;
use crate::plot::{self, bars, lines, points, series};
use crate::{Host, LabError, backend, results, sweep};

/// What a difference must be to be explained.
const FAR: f64 = 0.20;

const STYLE: &str = "body{font:15px/1.5 'DejaVu Sans',Verdana,sans-serif;color:#222;max-width:1000px;\
margin:2em auto;padding:0 1em}table{border-collapse:collapse;margin:1em 0;font-size:13px}\
th,td{border:1px solid #ccc;padding:3px 8px;text-align:right}th:first-child,td:first-child\
{text-align:left}th{background:#f2f4f7}tr.paper td{color:#666;background:#fafafa}\
tr.far td:last-child{text-align:left}svg{max-width:100%;height:auto}h2{margin-top:2em;\
border-bottom:1px solid #ccc}p.note{color:#555;font-size:13px}td.sum{font-weight:bold}";

/// Makes all plots and `report.html` in the folder of results.
pub(crate) fn write(out: &Path, host: &Host) -> Result<(), LabError> {
    let micro = results::read_json(&micro::path(out))?;
    let longterm = results::read_json(&longterm::path(out))?;
    let sweep = results::read_json(&sweep::path(out))?;
    let compared = results::read_json(&crate::compare::path(out))?;
    let all = [&micro, &longterm, &sweep, &compared];
    if all.iter().all(|value| value.is_none()) {
        return Err(LabError::new(format!(
            "{} holds no results; 'loligo lab micro' and 'loligo lab longterm' make them",
            out.display()
        )));
    }
    let mut page = Page::new(&all);
    if let Some(value) = &micro {
        page.micro(value, out)?;
    }
    if let Some(value) = &longterm {
        page.longterm(value, out)?;
    }
    if let Some(value) = &sweep {
        page.sweep(value, out)?;
    }
    if let Some(value) = &compared {
        page.compare(value, out)?;
    }
    let path = out.join("report.html");
    results::write(&path, page.finish().as_bytes())?;
    (host.tell)(&format!("report:  {}", path.display()));
    Ok(())
}

/// Ours of the same design, and the paper's, for a backend of Ceph; any other's own name.
fn counterpart(name: &str) -> &str {
    match name.strip_prefix("ceph-") {
        Some("kstore") => "kstore-rocksdb",
        Some(ours) => ours,
        None => name,
    }
}

/// Titles in the paper's order, Ceph's of today behind ours of the same design; backends this
/// binary does not know come last, under their names.
fn ordered<'a>(names: impl Iterator<Item = &'a String>) -> Vec<(&'a str, String)> {
    let place = |name: &str| backend::KNOWN.iter().position(|b| b.name == name);
    let mut found: Vec<(usize, usize, &str)> = names
        .map(|name| {
            let group = place(counterpart(name)).unwrap_or(usize::MAX);
            (group, place(name).unwrap_or(usize::MAX), name.as_str())
        })
        .collect();
    found.sort_unstable();
    found.dedup();
    let title = |at: usize, name: &str| {
        let known = backend::KNOWN.get(at);
        known.map_or(name, |b| b.title).to_owned()
    };
    found.into_iter().map(|(_, at, name)| (name, title(at, name))).collect()
}

/// Whether the next in such an order is of another design: the paper's rows stand before it.
fn ends_group(order: &[(&str, String)], at: usize) -> bool {
    let next = order.get(at + 1).map(|(name, _)| counterpart(name));
    next != Some(counterpart(order[at].0))
}

struct Page(String);

impl Page {
    fn new(results: &[&Option<Value>]) -> Page {
        let mut page = Page(format!(
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>loligo lab</title>\n\
             <style>{STYLE}</style></head><body>\n<h1>Write behaviours of storage backends</h1>\n"
        ));
        page.text(
            "Experiments of <i>Understanding Write Behaviors of Storage Backends in Ceph Object Store</i> (Lee et al., MSST 2017; \
             below: the paper) on this machine: bytes that reach the stores' devices, by cause, for each byte that a client \
             writes (WAF), with three replicas.",
        );
        if let Some(machine) = results.iter().find_map(|v| Some(&v.as_ref()?["machine"])) {
            page.sheet("Machine", machine);
        }
        page
    }

    fn text(&mut self, html: &str) {
        self.0.push_str(&format!("<p>{html}</p>\n"));
    }

    fn note(&mut self, html: &str) {
        self.0.push_str(&format!("<p class=\"note\">{html}</p>\n"));
    }

    fn heading(&mut self, text: &str) {
        self.0.push_str(&format!("<h2>{}</h2>\n", escaped(text)));
    }

    /// Names and values.
    fn sheet(&mut self, title: &str, values: &Value) {
        self.0.push_str(&format!("<table><tr><th colspan=\"2\">{title}</th></tr>\n"));
        for (name, value) in values.as_object().into_iter().flatten() {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let name = escaped(&name.replace('_', " "));
            self.0.push_str(&format!("<tr><td>{name}</td><td>{}</td></tr>\n", escaped(&value)));
        }
        self.0.push_str("</table>\n");
    }

    /// Rows with the class of each.
    fn table(&mut self, head: &[String], rows: &[(&str, Vec<String>)]) {
        let cells = |tag: &str, cells: &[String]| -> String {
            cells.iter().map(|c| format!("<{tag}>{}</{tag}>", escaped(c))).collect()
        };
        self.0.push_str(&format!("<table><tr>{}</tr>\n", cells("th", head)));
        for (class, row) in rows {
            self.0.push_str(&format!("<tr class=\"{class}\">{}</tr>\n", cells("td", row)));
        }
        self.0.push_str("</table>\n");
    }

    fn finish(mut self) -> String {
        self.0.push_str("</body></html>\n");
        self.0
    }

    /// What is known of the devices under these results.
    fn sums<'a>(&mut self, cells: impl Iterator<Item = (String, &'a Cell)>) {
        let mut rows = Vec::new();
        for (name, cell) in cells {
            let device = cell.device.map(|(data, journal)| data + journal);
            let not_known = || "not known".to_owned();
            rows.push((
                "",
                vec![
                    name,
                    cell.causes.sum().to_string(),
                    device.map_or_else(not_known, |n| n.to_string()),
                    cell.difference().map_or_else(not_known, |n| n.to_string()),
                ],
            ));
        }
        let head = ["", "sum by cause", "the devices' sectors", "difference"].map(str::to_owned);
        self.table(&head, &rows);
        if rows.iter().any(|(_, row)| row[2] == "not known") {
            self.note(
                "Where the sectors are not known, OSDs kept their data in files: the sum is the stores' own, and <b>what the \
                 machine's file system adds (its metadata and journal) is not in it</b>. <code>--disk xfs</code> counts it; it \
                 needs root.",
            );
        }
        if rows.iter().any(|(_, row)| row[3].starts_with('-')) {
            self.note(
                "A negative difference: the store wrote to files and then removed them (tables of a database), or wrote the same \
                 blocks again (FileStore between two syncs), before the machine's page cache wrote them to the device.",
            );
        }
    }

    fn micro(&mut self, value: &Value, out: &Path) -> Result<(), LabError> {
        let cells = micro::from_json(value);
        self.heading("Single writes (figure 4)");
        self.text(
            "Four writes into a fresh 4 MiB object, each alone: 1ST WRITE at its beginning, 2ND WRITE next to it, 3RD WRITE \
             behind a hole, OVERWRITE of the first; a fresh cluster for each request size.",
        );
        self.sheet("Conditions", &value["conditions"]);
        for (name, title) in ordered(cells.keys().map(|(name, ..)| name)) {
            self.0.push_str(&format!("<h3>{}</h3>\n", escaped(&title)));
            let figure = micro_figure(&cells, name, &title);
            plot::write(&figure, out, &format!("micro-{name}"))?;
            self.0.push_str(&figure.svg());
            self.text(&escaped(paper::micro_text(name)));
            self.micro_table(&cells, name);
        }
        self.convergence(&cells);
        self.0.push_str("<h3>Sums</h3>\n");
        let sums =
            ordered(cells.keys().map(|(name, ..)| name)).into_iter().filter_map(|(name, title)| {
                let mut all =
                    cells.iter().filter(|((n, ..), _)| n == name).map(|(_, cell)| cell.clone());
                let first = all.next()?;
                Some((title, all.fold(first, Cell::plus)))
            });
        let sums: Vec<(String, Cell)> = sums.collect();
        self.sums(sums.iter().map(|(title, cell)| (title.clone(), cell)));
        Ok(())
    }

    fn sweep(&mut self, value: &Value, out: &Path) -> Result<(), LabError> {
        let all = sweep::from_json(value);
        self.heading("Over queue depths, request sizes, patterns (beyond the paper)");
        self.text(
            "What shares a commit with others pays less for it; the paper's long runs have one queue depth, 128, one request size, \
             4 KiB, and one pattern, random. <i>omap</i>: values of omap keys, each a request; <i>delete</i>: small objects that \
             are written and removed in turn, half of the requests in the long run; the client's bytes are those of values and of \
             what is written.",
        );
        self.sheet("Conditions (where not swept)", &value["conditions"]);
        for axis in sweep::Axis::ALL {
            let points = all.iter().filter(|((_, place), _)| place.axis == axis);
            let points: sweep::Points = points.map(|(k, run)| (k.clone(), run.clone())).collect();
            if points.is_empty() {
                continue;
            }
            let name = axis.name();
            self.0.push_str(&format!("<h3>Over the {}</h3>\n", escaped(name)));
            self.sweep_figures(&points, axis, out)?;
            let (head, rows) = sweep::rows(&all, Some(axis));
            let rows: Vec<(&str, Vec<String>)> = rows.into_iter().map(|row| ("", row)).collect();
            self.table(&head, &rows);
            let order = ordered(points.keys().map(|(name, _)| name));
            let spots = points.iter().map(|((name, place), run)| {
                let series = order.iter().position(|(n, _)| n == name).unwrap_or(0);
                (place.label(), series, run)
            });
            let files = format!("sweep-{}-", name.replace(' ', "-"));
            let titles: Vec<String> = order.iter().map(|(_, title)| title.clone()).collect();
            self.planes(&spots.collect::<Vec<_>>(), &titles, out, &files)?;
        }
        Ok(())
    }

    fn sweep_figures(
        &mut self,
        points: &sweep::Points,
        axis: sweep::Axis,
        out: &Path,
    ) -> Result<(), LabError> {
        type Line = (&'static str, &'static str, fn(&Run) -> f64);
        const LINES: [Line; 2] = [("waf", "WAF", |r| r.total.waf()), ("iops", "IOPS", |r| r.iops)];
        let across = axis.name();
        for (file, up, of) in LINES {
            let curves = ordered(points.keys().map(|(name, _)| name)).into_iter();
            let curves = curves.map(|(name, title)| {
                let mine = points.iter().filter(|((n, _), _)| n == name);
                let values = mine.map(|((_, place), run)| (place.at, of(run))).collect();
                lines::Curve { name: title, values }
            });
            let label = |at: u32| sweep::Place { axis, at }.label();
            let title = format!("{up} over the {across}");
            let curves: Vec<lines::Curve> = curves.collect();
            let figure = lines::figure(&title, across, up, &curves, &label);
            let file = match axis {
                sweep::Axis::Depth => format!("sweep-{file}"),
                _ => format!("sweep-{}-{file}", across.replace(' ', "-")),
            };
            plot::write(&figure, out, &file)?;
            self.0.push_str(&figure.svg());
        }
        Ok(())
    }

    fn micro_table(&mut self, cells: &Cells, name: &str) {
        let sizes: std::collections::BTreeSet<u64> =
            cells.keys().filter(|(n, ..)| n == name).map(|(_, size, _)| *size).collect();
        let mut head = vec!["WAF".to_owned()];
        head.extend(sizes.iter().map(|size| bytes_text(*size)));
        let rows = WRITES.iter().enumerate().map(|(n, write)| {
            let mut row = vec![(*write).to_owned()];
            row.extend(sizes.iter().map(|size| {
                let cell = cells.get(&(name.to_owned(), *size, n));
                cell.map_or("-".to_owned(), |cell| format!("{:.3}", cell.waf()))
            }));
            ("", row)
        });
        self.table(&head, &rows.collect::<Vec<_>>());
    }

    fn longterm(&mut self, value: &Value, out: &Path) -> Result<(), LabError> {
        let runs = longterm::from_json(value);
        self.heading("Many writes (figures 5 to 8, tables I to III)");
        self.sheet("Conditions", &value["conditions"]);
        let written = value["conditions"]["written_bytes"].as_f64().unwrap_or(0.0) / 1e9;
        self.text(&format!(
            "Scale: {written:.2} GB to each OSD here; the paper wrote 11.6 GB to each of 16 (57.6 GiB, three replicas), on HDDs \
             and on SSDs with journals and logs on NVMe."
        ));
        let subtitle = longterm::subtitle(&value["conditions"]);
        for (name, title) in ordered(runs.keys()) {
            let Some(run) = runs.get(name) else { continue };
            let figure = series::figure(&format!("{title}: {subtitle}"), &run_points(run));
            plot::write(&figure, out, &format!("longterm-{name}"))?;
            self.0.push_str(&format!("<h3>{}</h3>\n{}", escaped(&title), figure.svg()));
        }
        self.table_one(&runs);
        self.tables_two_three(&runs);
        self.far(&runs);
        self.planes(&spots(&runs), &[], out, "")?;
        self.0.push_str("<h3>Sums</h3>\n");
        let sums = ordered(runs.keys());
        self.sums(
            sums.iter().filter_map(|(name, title)| Some((title.clone(), &runs.get(*name)?.total))),
        );
        Ok(())
    }

    fn table_one(&mut self, runs: &Runs) {
        self.0.push_str("<h3>Table I: WAF by cause</h3>\n");
        let mut head = vec!["".to_owned()];
        head.extend(Cause::ALL.map(|c| c.title().to_owned()));
        head.push("Sum".to_owned());
        let mut rows = Vec::new();
        let number = |value: f64| {
            if value == 0.0 { "-".to_owned() } else { format!("{value:.3}") }
        };
        let order = ordered(runs.keys());
        for (at, (name, title)) in order.iter().enumerate() {
            let Some(run) = runs.get(*name) else { continue };
            let mut row = vec![title.clone()];
            row.extend(Cause::ALL.map(|c| number(run.total.cause_waf(c))));
            row.push(format!("{:.3}", run.total.waf()));
            rows.push(("", row));
            let papers = of_paper(counterpart(name)).filter(|_| ends_group(&order, at));
            for paper in papers {
                let of =
                    |cause| paper.causes.iter().find(|(c, _)| *c == cause).map_or(0.0, |(_, v)| *v);
                let mut row = vec![format!("{}, the paper, {}", design(name), paper.device)];
                row.extend(Cause::ALL.map(|c| number(of(c))));
                row.push(format!("{:.3}", paper.waf));
                rows.push(("paper", row));
            }
        }
        self.table(&head, &rows);
        self.note(
            "In the paper's rows for KStore \"metadata in files\" holds the database's log and first tables, too; ours tells them apart. \
             Padding fills up blocks and, with <code>--disk xfs</code>, pages; cleaning is InkStore's.",
        );
    }

    fn tables_two_three(&mut self, runs: &Runs) {
        self.0.push_str("<h3>Tables II and III: all in all</h3>\n");
        let head = [
            "",
            "IOPS",
            "WAF",
            "average ms",
            "99.99 % ms",
            "CPU us/op (all OSDs)",
            "MiB (largest OSD)",
            "live",
        ];
        let mut rows = Vec::new();
        let order = ordered(runs.keys());
        for (at, (name, title)) in order.iter().enumerate() {
            let Some(run) = runs.get(*name) else { continue };
            rows.push((
                "",
                vec![
                    title.clone(),
                    format!("{:.0}", run.iops),
                    format!("{:.2}", run.total.waf()),
                    format!("{:.2}", run.average_ms),
                    format!("{:.2}", run.tail_ms),
                    format!("{:.0}", run.cpu_us),
                    format!("{:.0}", run.memory_mib),
                    format!("{:.1} %", run.live * 100.0),
                ],
            ));
            let papers = of_paper(counterpart(name)).filter(|_| ends_group(&order, at));
            for paper in papers {
                rows.push((
                    "paper",
                    vec![
                        format!("{}, the paper, {}", design(name), paper.device),
                        format!("{:.0}", paper.iops),
                        format!("{:.2}", paper.waf),
                        format!("{:.2}", paper.average_ms),
                        format!("{:.2}", paper.tail_ms),
                        "-".to_owned(),
                        "-".to_owned(),
                        "-".to_owned(),
                    ],
                ));
            }
        }
        self.table(&head.map(str::to_owned), &rows);
        self.note(
            "IOPS and latencies are those of one machine with three OSDs, a monitor, a manager and the client on the same \
             processors; they compare backends with each other, not with the paper's five servers.",
        );
    }

    /// What a low WAF costs otherwise. Spots are runs with their names and the number of their
    /// colour.
    fn planes(
        &mut self,
        spots: &[(String, usize, &Run)],
        series: &[String],
        out: &Path,
        files: &str,
    ) -> Result<(), LabError> {
        type Cost = (&'static str, &'static str, &'static str, fn(&Run) -> f64);
        const COSTS: [Cost; 3] = [
            ("cpu", "WAF against CPU", "CPU microseconds an operation, all OSDs", |r| r.cpu_us),
            ("tail", "WAF against tail latency", "99.99th percentile, ms", |r| r.tail_ms),
            ("memory", "WAF against memory", "MiB of the largest OSD", |r| r.memory_mib),
        ];
        self.0.push_str("<h3>The trade-off plane</h3>\n");
        for (name, title, across, cost) in COSTS {
            let spots = spots.iter().map(|(name, series, run)| points::Spot {
                name: name.clone(),
                series: *series,
                x: cost(run),
                y: run.total.waf(),
            });
            let figure = points::figure(title, across, &spots.collect::<Vec<_>>(), series);
            plot::write(&figure, out, &format!("{files}tradeoff-{name}"))?;
            self.0.push_str(&figure.svg());
        }
        Ok(())
    }
}

/// One spot for each run.
fn spots(runs: &Runs) -> Vec<(String, usize, &Run)> {
    let order = ordered(runs.keys()).into_iter().enumerate();
    order.filter_map(|(n, (name, title))| Some((title, n, runs.get(name)?))).collect()
}

/// A design's name.
fn design(name: &str) -> String {
    let name = counterpart(name);
    let known = backend::KNOWN.iter().find(|b| b.name == name);
    known.map_or(name, |b| b.title).to_owned()
}

fn of_paper(backend: &str) -> impl Iterator<Item = &'static Paper> {
    let backend = backend.to_owned();
    paper::TABLES.iter().filter(move |p| p.backend == backend)
}

/// A backend's panel of figure 4.
fn micro_figure(cells: &Cells, name: &str, title: &str) -> plot::Drawing {
    let sizes: std::collections::BTreeSet<u64> =
        cells.keys().filter(|(n, ..)| n == name).map(|(_, size, _)| *size).collect();
    let bar = |size: u64, write: usize| -> Vec<(Cause, f64)> {
        let cell = cells.get(&(name.to_owned(), size, write));
        let parts = Cause::ALL.into_iter().map(|c| (c, cell.map_or(0.0, |cell| cell.cause_waf(c))));
        parts.filter(|(_, v)| *v > 0.0).collect()
    };
    let groups = sizes.iter().map(|size| bars::Group {
        label: bytes_text(*size),
        bars: (0..WRITES.len()).map(|write| bar(*size, write)).collect(),
    });
    bars::figure(title, &groups.collect::<Vec<_>>(), &["1", "2", "3", "O"], paper::limit(name))
}

fn run_points(run: &Run) -> Vec<series::Point> {
    let mut last = 0.0;
    let points = run.samples.iter().map(|s| {
        let length = (s.seconds - last).max(1e-9);
        last = s.seconds;
        let rates = s.causes.0.iter().map(|(c, n)| (*c, *n as f64 / length / 1e6));
        series::Point { seconds: s.seconds, iops: s.iops, rates: rates.collect() }
    });
    points.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Table I's rows must add up to the sums the paper prints, or a number was copied wrong.
    #[test]
    fn the_papers_causes_add_up() {
        for paper in &paper::TABLES {
            let sum: f64 = paper.causes.iter().map(|(_, v)| v).sum();
            assert!((sum - paper.waf).abs() < 0.002, "{} {}: {sum}", paper.backend, paper.device);
        }
    }
}
