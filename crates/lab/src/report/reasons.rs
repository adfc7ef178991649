//! The report's part on differences from the paper's tables: sums and shares that are more than a
//! fifth apart, why, and the counts of syncs that several of the reasons rest on.

use super::{FAR, Page, of_paper, ordered};
use crate::causes::Cause;
use crate::cell::{Cell, REPLICAS};
use crate::longterm::{Run, Runs};
use crate::micro::{Cells, WRITES};
use crate::paper;

/// A share of the WAF that is too small to be looked into, on either side.
const SMALL: f64 = 0.1;

/// Shares as the paper has them: what it cannot tell apart counts together, under the name it has
/// there. Its sums are sectors, so that what fills up pages and blocks is in each of them.
fn groups(backend: &str) -> &'static [(Cause, &'static [Cause])] {
    use Cause::*;
    match backend {
        "bluestore" | "bluestore-4k" => &[
            (RocksDb, &[RocksDb, Files]),
            (RocksDbWal, &[RocksDbWal, Padding]),
            (Compaction, &[Compaction]),
            (ZeroFilled, &[ZeroFilled]),
        ],
        _ => &[
            (Files, &[Files, RocksDb, RocksDbWal, Padding]),
            (Journal, &[Journal]),
            (Compaction, &[Compaction]),
            (FsMetadata, &[FsMetadata]),
            (FsJournal, &[FsJournal]),
        ],
    }
}

/// Syncs of the log for each copy of a write: 1 where none is shared.
fn syncs_per_copy(run: &Run) -> Option<f64> {
    let syncs = *run.total.counters.get("syncs")?;
    let copies = run.ops * REPLICAS;
    (copies > 0).then(|| syncs as f64 / copies as f64)
}

impl Page {
    /// What requests of a whole object come to, beside what the paper says.
    pub(super) fn convergence(&mut self, cells: &Cells) {
        const WHOLE: u64 = 4 << 20;
        let mut rows = Vec::new();
        for (name, title) in ordered(cells.keys().map(|(name, ..)| name)) {
            let of = |write| cells.get(&(name.to_owned(), WHOLE, write));
            let four: Vec<_> = (0..WRITES.len()).filter_map(of).collect();
            let Some((limit, text)) = paper::limit(name) else { continue };
            if four.len() < WRITES.len() {
                continue;
            }
            let is_near = |waf: f64| (waf / limit - 1.0).abs() <= FAR;
            let tables =
                |cell: &Cell| cell.cause_waf(Cause::RocksDb) + cell.cause_waf(Cause::Compaction);
            let is_flushed = |cell: &&Cell| is_near(cell.waf() - tables(cell));
            let far = || four.iter().copied().filter(|cell| !is_near(cell.waf()));
            let why = match far().count() {
                0 => "all four do",
                _ if far().all(|cell| is_flushed(&cell)) => {
                    "all four do without the tables that a full memtable became, first ones and compacted ones"
                }
                _ => "not all of them",
            };
            let mut row = vec![title];
            row.extend(four.iter().map(|cell| format!("{:.2}", cell.waf())));
            row.extend([format!("{limit:.0}"), text.to_owned(), why.to_owned()]);
            rows.push(("far", row));
        }
        if rows.is_empty() {
            return;
        }
        self.0.push_str("<h3>At 4 MiB</h3>\n");
        let mut head = vec![String::new()];
        head.extend(WRITES.map(str::to_owned));
        head.extend(["converges to", "by", "within 20 %"].map(str::to_owned));
        self.table(&head, &rows);
    }

    /// Sums and shares that differ from the paper's, and why.
    pub(super) fn far(&mut self, runs: &Runs) {
        let mut rows = Vec::new();
        let mut row = |what: String, here: f64, there: f64, why: &str| {
            let share = here / there - 1.0;
            if share.abs() <= FAR || (here - there).abs() < SMALL {
                return;
            }
            rows.push((
                "far",
                vec![
                    what,
                    format!("{here:.2}"),
                    format!("{there:.2}"),
                    format!("{:+.0} %", share * 100.0),
                    why.to_owned(),
                ],
            ));
        };
        for (name, title) in ordered(runs.keys()) {
            let Some(run) = runs.get(name) else { continue };
            // Against the paper's SSDs: no device here turns.
            let Some(paper) = of_paper(name).find(|p| p.device == "SSD") else { continue };
            let sum = format!("{title}, the sum");
            row(sum, run.total.waf(), paper.waf, paper::longterm_reasons(name));
            for (cause, parts) in groups(name) {
                let there = paper.causes.iter().find(|(c, _)| c == cause);
                let Some((_, there)) = there else { continue };
                // What lies below the store is known on devices of the laboratory's making only.
                if matches!(cause, Cause::FsMetadata | Cause::FsJournal)
                    && run.total.device.is_none()
                {
                    continue;
                }
                let here = parts.iter().map(|part| run.total.cause_waf(*part)).sum();
                let what = format!("{title}, {}", cause.title().to_lowercase());
                row(what, here, *there, paper::cause_reasons(name, *cause));
            }
        }
        if !rows.is_empty() {
            self.0.push_str("<h3>Where ours differs from the paper by more than 20 %</h3>\n");
            let head = ["", "WAF here", "the paper (SSD)", "", "why"].map(str::to_owned);
            self.table(&head, &rows);
            self.note(
                "Shares are taken as the paper has them: in FileStore and KStore \"metadata in files\" holds the database's log \
                 and first tables and what fills up pages, in BlueStore the log what fills up its blocks.",
            );
        }
        self.syncs(runs);
    }

    /// How many copies of writes shared a sync, and what one cost XFS's journal.
    fn syncs(&mut self, runs: &Runs) {
        let rows = ordered(runs.keys()).into_iter().filter_map(|(name, title)| {
            let run = runs.get(name)?;
            let each = syncs_per_copy(run)?;
            let journal = run.total.causes.bytes(Cause::FsJournal);
            let syncs = run.total.counters.get("syncs").copied().unwrap_or(0).max(1);
            let of_journal = match run.total.device {
                Some(_) if journal > 0 => format!("{:.0}", journal as f64 / syncs as f64),
                _ => "-".to_owned(),
            };
            Some(("", vec![title, format!("{syncs}"), format!("{each:.3}"), of_journal]))
        });
        let rows: Vec<_> = rows.collect();
        if rows.is_empty() {
            return;
        }
        let head = ["", "syncs", "for each copy of a write", "bytes of XFS's journal for each"];
        self.0.push_str("<h3>Syncs</h3>\n");
        self.table(&head.map(str::to_owned), &rows);
        self.note(
            "Each sync of a file that grew makes XFS write a record of its journal, and fills up a page or block of the log. How many \
             writes share one depends on the queue depth and on how long a sync takes; records are of 1 KiB or more, with \
             <code>--log-unit 4K</code> (what mkfs.xfs chooses on drives with sectors of 4 KiB) of 4 KiB.",
        );
    }
}
