//! `lab explain`: one write in each backend, every byte of it by the store's own counters. The
//! second write of an object is taken: what the first costs once is not in it.

use crate::backend;
use crate::causes::{Cause, LOG_PADDING};
use crate::cell::{Cell, REPLICAS};
use crate::cli::{ExplainArgs, bytes_text};
use crate::cluster::Shape;
use crate::micro::{OSD_SIZE, measure};
use crate::{Host, LabError, table};

/// A database's log, whose bytes other counters divide.
const LOG: &str = "written_rocksdb_wal";

/// What a counter's bytes are.
fn meaning(counter: &str) -> &'static str {
    match counter {
        "written_data" => "the client's bytes in their place",
        "written_journal" => "the journal's entries; in InkStore the log's frames",
        "written_journal_header" => "headers of the journal",
        "written_rocksdb_wal" => "the database's log; what is in it is below",
        "wal_client_data" => "- of the log: the client's bytes",
        "wal_stripe_rest" => "- of the log: the rest of the stripes they are in",
        "wal_onode" => "- of the log: the object's size, xattrs, stripes",
        "wal_omap" => "- of the log: pg log, pg info, omap",
        "wal_superblock" => "- of the log: the store's own state",
        "wal_deferred" => "- of the log: data that waits there for its place",
        "wal_extents" => "- of the log: which units hold the data, its checksums",
        "wal_freelist" => "- of the log: which units are free",
        "wal_shared_blob" => "- of the log: units that several objects share",
        "wal_collection" => "- of the log: collections",
        "written_rocksdb" => "tables made of what was in memory",
        "written_compaction" => "tables made of tables",
        "written_manifest" => "which tables there are",
        "written_onode" => "the object: size, extents, checksums, xattrs",
        "written_omap" => "omap keys",
        "written_pg_log" => "the placement group's log and info",
        "written_allocator" => "which blocks are free",
        "written_rewrite" => "a small overwrite that the log had first, in its place",
        "written_bluefs_log" => "BlueFS: which files there are, and where",
        "bluefs_wal_padding" => "- of the log: filling up its blocks",
        "written_padding" => "filling up to the device's blocks",
        "written_zero_fill" => "zeros around the data",
        "written_clean" => "live data moved to make room",
        "written_checkpoint" => "state, so that the log can be cut",
        "written_superblock" => "the store's root; in FileStore how far the files are durable",
        "written_other" => "other files",
        _ => "",
    }
}

/// Runs the command.
pub(crate) fn run(args: &ExplainArgs, host: &Host) -> Result<(), LabError> {
    if args.bs > 4 << 20 {
        return Err(LabError::new("--bs: a write stays in an object of 4M"));
    }
    let data = args.common.data();
    for backend in &backend::chosen(&args.common.backend, host)? {
        let shape = Shape {
            backend,
            osd_size: OSD_SIZE,
            disk: args.common.disk,
            log_unit: args.common.log_unit,
            pgs: 1,
            sets: &args.common.sets,
        };
        let four = measure(host, &data, &shape, args.bs)
            .map_err(|e| LabError::new(format!("{}: {e}", backend.name)))?;
        if let Some(cell) = four.get(1) {
            let title = backend.title;
            (host.tell)(&format!("\n{title}: a write of {} next to another", bytes_text(args.bs)));
            (host.tell)(text(cell).trim_end());
        }
    }
    Ok(())
}

/// Bytes on one OSD, on average.
fn each(bytes: u64) -> String {
    let share = bytes as f64 / REPLICAS as f64;
    if share.fract() == 0.0 { format!("{share:.0}") } else { format!("{share:.1}") }
}

fn text(cell: &Cell) -> String {
    let head = ["", "each OSD", "all", ""].map(str::to_owned);
    let mut rows = Vec::new();
    let mut row = |name: &str, bytes: u64, what: &str| {
        rows.push(vec![name.to_owned(), each(bytes), bytes.to_string(), format!("  {what}")]);
    };
    let grown = || cell.counters.iter().filter(|(_, bytes)| **bytes > 0);
    for (name, bytes) in grown().filter(|(name, _)| name.starts_with("written_")) {
        row(name, *bytes, meaning(name));
        if name != LOG {
            continue;
        }
        let is_part = |name: &str| name.starts_with("wal_") || name == LOG_PADDING;
        let parts: Vec<_> = grown().filter(|(name, _)| is_part(name)).collect();
        for (name, bytes) in &parts {
            row(name, **bytes, meaning(name));
        }
        let told: u64 = parts.iter().map(|(_, bytes)| **bytes).sum();
        if !parts.is_empty() && *bytes > told {
            row("", bytes - told, "- of the log: frames around all that");
        }
    }
    let written = cell.counters.get("written").copied().unwrap_or(0);
    row("the store's sum", written, "");
    match cell.device {
        Some((data, journal)) => {
            let of = |cause| cell.causes.bytes(cause);
            let counter = |name: &str| cell.counters.get(name).copied().unwrap_or(0);
            let store_padding = counter("written_padding") + counter(LOG_PADDING);
            let pages = of(Cause::Padding).saturating_sub(store_padding);
            for (name, bytes, what) in [
                ("pages", pages, "the rest of the pages that the bytes are in"),
                ("XFS metadata", of(Cause::FsMetadata), "inodes, bitmaps, directories"),
                ("XFS journal", of(Cause::FsJournal), "its log"),
            ] {
                // There is no file system under a raw device.
                if bytes > 0 {
                    row(name, bytes, what);
                }
            }
            row("the devices' sectors", data + journal, "as the kernel counts them");
        }
        None => row("below the store", 0, "not known: '--disk xfs' (root) shows it"),
    }
    // Words begin at one place: the table sets its columns to the right.
    let widest = rows.iter().map(|row| row[3].len()).max().unwrap_or(0);
    for row in &mut rows {
        row[3] = format!("{:<widest$}", row[3]);
    }
    let mut lines = table::text(&head, &rows);
    lines.push_str(&format!("WAF {:.3}: {} bytes of the client\n", cell.waf(), cell.client));
    lines
}
