//! The report's part on `lab compare`: ours and a real Ceph's side by side, the paper's figures
//! beside, and where the two are far apart, why.

use std::path::Path;

use serde_json::Value;

use super::{FAR, Page, counterpart, micro_figure, ordered, spots};
use crate::compare::Results;
use crate::micro::{Cells, WRITES};
use crate::plot::canvas::escaped;
use crate::{LabError, cell::Cell, cli::bytes_text, paper, plot};

/// Backend, its title, and for each size the four writes' WAF.
fn waf(cells: &Cells, name: &str, size: u64, write: usize) -> Option<f64> {
    cells.get(&(name.to_owned(), size, write)).map(|cell| cell.waf())
}

impl Page {
    pub(super) fn compare(&mut self, value: &Value, out: &Path) -> Result<(), LabError> {
        let found = Results::from_json(value);
        let version = value["conditions"]["ceph"].as_str();
        let title = version.map_or("Ours on loop devices".to_owned(), |version| {
            format!("Beside a real Ceph {version}")
        });
        self.heading(&title);
        self.text(
            "The same writes by the same client, into clusters of one monitor, one manager and three OSDs on this machine, on \
             loop devices of the same kind. Ours count their bytes by cause and the sum equals the devices' sectors. Of Ceph the \
             devices' sectors are the sum; BlueStore's data, RocksDB and log are on devices of their own, and FileStore's \
             journal and XFS's journal; RocksDB's own event log tells flushed tables from compacted ones, and what no counter \
             tells apart stands with what it lies beside: metadata in files.",
        );
        self.sheet("Conditions, single writes", &value["conditions"]["single_writes"]);
        self.sheet("Conditions, many writes", &value["conditions"]["many_writes"]);
        if !found.failed.is_empty() {
            self.0.push_str("<h3>What failed</h3>\n<ul>\n");
            for why in found.failed.values() {
                self.0.push_str(&format!("<li>{}</li>\n", escaped(why)));
            }
            self.0.push_str("</ul>\n");
        }
        self.single_writes(&found.cells, out)?;
        if !found.runs.is_empty() {
            self.0.push_str("<h3>Many writes</h3>\n");
            self.table_one(&found.runs);
            self.tables_two_three(&found.runs);
            self.far_from_ceph(&found);
            self.planes(&spots(&found.runs), &[], out, "compare-")?;
            let sums = ordered(found.runs.keys());
            self.sums(
                sums.iter().filter_map(|(name, title)| {
                    Some((title.clone(), &found.runs.get(*name)?.total))
                }),
            );
        }
        Ok(())
    }

    fn single_writes(&mut self, cells: &Cells, out: &Path) -> Result<(), LabError> {
        let sizes: std::collections::BTreeSet<u64> =
            cells.keys().map(|(_, size, _)| *size).collect();
        let mut head = vec!["WAF of single writes".to_owned()];
        head.extend(sizes.iter().map(|size| bytes_text(*size)));
        let mut rows = Vec::new();
        let order = ordered(cells.keys().map(|(name, ..)| name));
        for (write, words) in WRITES.iter().enumerate() {
            for (name, title) in &order {
                let class = if counterpart(name) == *name { "" } else { "paper" };
                let mut row = vec![format!("{words}: {title}")];
                row.extend(sizes.iter().map(|size| {
                    let waf = waf(cells, name, *size, write);
                    waf.map_or("-".to_owned(), |waf| format!("{waf:.3}"))
                }));
                rows.push((class, row));
            }
        }
        self.table(&head, &rows);
        for (name, title) in &order {
            let figure = micro_figure(cells, name, title);
            plot::write(&figure, out, &format!("compare-{name}"))?;
            self.0.push_str(&figure.svg());
            if counterpart(name) == *name {
                self.text(&escaped(paper::micro_text(name)));
            }
        }
        let sums = order.iter().filter_map(|(name, title)| {
            let mut all = cells.iter().filter(|((n, ..), _)| n == name).map(|(_, c)| c);
            let first = all.next()?.clone();
            Some((title.clone(), all.cloned().fold(first, Cell::plus)))
        });
        let sums: Vec<(String, Cell)> = sums.collect();
        self.sums(sums.iter().map(|(title, cell)| (title.clone(), cell)));
        Ok(())
    }

    /// Where ours differs from Ceph's of the same design.
    fn far_from_ceph(&mut self, found: &Results) {
        let mut rows = Vec::new();
        for (name, _) in ordered(found.runs.keys()) {
            let ours = counterpart(name);
            let pair = found.runs.get(ours).zip(found.runs.get(name));
            let Some((ours_run, run)) = pair.filter(|_| ours != name) else { continue };
            let share = ours_run.total.waf() / run.total.waf().max(1e-9) - 1.0;
            if share.abs() > FAR {
                rows.push((
                    "far",
                    vec![
                        super::design(name),
                        format!("{:.2}", ours_run.total.waf()),
                        format!("{:.2}", run.total.waf()),
                        format!("{:+.0} %", share * 100.0),
                        paper::ceph_reasons(ours).to_owned(),
                    ],
                ));
            }
        }
        if !rows.is_empty() {
            self.0.push_str("<h3>Where ours differs from Ceph's by more than 20 %</h3>\n");
            let head = ["", "WAF, ours", "WAF, Ceph's", "", "why"].map(str::to_owned);
            self.table(&head, &rows);
        }
    }
}
