//! What is known of a real Ceph's writes at one moment, as counters that only grow: the sectors of
//! each kind of device, the pages its OSDs wrote, some of their performance counters, and the
//! tables RocksDB made, by the event log that it keeps in the OSDs' own logs.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::causes::Counters;
use crate::cell::REPLICAS;
use crate::{LabError, disk};

/// Performance counters that are kept: group, name, name here.
const PERF: [(&str, &str, &str); 10] = [
    ("bluefs", "bytes_written_wal", "bluefs_bytes_written_wal"),
    ("bluefs", "bytes_written_sst", "bluefs_bytes_written_sst"),
    ("bluefs", "bytes_written_slow", "bluefs_bytes_written_slow"),
    ("bluefs", "logged_bytes", "bluefs_logged_bytes"),
    ("bluestore", "write_pad_bytes", "bluestore_write_pad_bytes"),
    ("bluestore", "deferred_write_bytes", "bluestore_deferred_write_bytes"),
    ("bluestore", "bluestore_write_big_bytes", "bluestore_write_big_bytes"),
    ("bluestore", "bluestore_write_small_bytes", "bluestore_write_small_bytes"),
    ("filestore", "bytes", "filestore_bytes"),
    ("filestore", "journal_wr_bytes", "filestore_journal_wr_bytes"),
];

/// Names of what is made here.
pub(crate) const TABLES_FLUSHED: &str = "rocksdb_tables_flushed";
pub(crate) const TABLES_COMPACTED: &str = "rocksdb_tables_compacted";
pub(crate) const PAGES: &str = "osd_write_bytes";

/// The counter of a kind of device.
pub(crate) fn device(part: &str) -> String {
    format!("device_{part}")
}

/// Reads them.
#[derive(Debug)]
pub(crate) struct Probe {
    /// Devices with what is on them.
    devices: Vec<(&'static str, String)>,
    /// The OSDs' event logs. Borrowed for the time of a read only.
    events: RefCell<Vec<EventLog>>,
}

impl Probe {
    /// Of the cluster in `dir` on these devices.
    pub(crate) fn new(dir: &Path, devices: Vec<(&'static str, String)>) -> Probe {
        let log = |n| EventLog::new(dir.join("log").join(format!("osd.{n}.log")));
        Probe { devices, events: RefCell::new((0..REPLICAS).map(log).collect()) }
    }

    /// Adds what `perf dump` of an OSD said.
    pub(crate) fn add_perf(&self, dump: &Value, counters: &mut Counters) {
        for (group, name, here) in PERF {
            let value = &dump[group][name];
            // Some count how often and how much.
            let number = value.as_u64().or_else(|| value["sum"].as_u64());
            if let Some(number) = number {
                *counters.entry(here.to_owned()).or_default() += number;
            }
        }
    }

    /// Adds what the kernel and the logs say.
    pub(crate) fn add_rest(
        &self,
        pages: Option<u64>,
        counters: &mut Counters,
    ) -> Result<(), LabError> {
        let mut all = 0;
        for (part, name) in &self.devices {
            let bytes = disk::device_bytes(name)?;
            *counters.entry(device(part)).or_default() += bytes;
            all += bytes;
        }
        counters.insert("written".to_owned(), all);
        if let Some(pages) = pages {
            counters.insert(PAGES.to_owned(), pages);
        }
        for log in self.events.borrow_mut().iter_mut() {
            log.read();
            *counters.entry(TABLES_FLUSHED.to_owned()).or_default() += log.flushed;
            *counters.entry(TABLES_COMPACTED.to_owned()).or_default() += log.compacted;
        }
        Ok(())
    }
}

/// RocksDB's events in an OSD's log (`EVENT_LOG_v1`, written at Ceph's default debug levels): how
/// large the tables are that were made of memory and of tables.
#[derive(Debug)]
struct EventLog {
    path: PathBuf,
    /// Up to here the log has been read.
    position: u64,
    /// The beginning of a line that had no end yet.
    rest: Vec<u8>,
    /// Jobs that compact; bound: those that have begun and not ended.
    compacting: BTreeSet<u64>,
    flushed: u64,
    compacted: u64,
}

impl EventLog {
    fn new(path: PathBuf) -> EventLog {
        EventLog {
            path,
            position: 0,
            rest: Vec::new(),
            compacting: BTreeSet::new(),
            flushed: 0,
            compacted: 0,
        }
    }

    /// Goes on to the log's end. A log that cannot be read tells nothing more.
    fn read(&mut self) {
        let mut new = Vec::new();
        let read = File::open(&self.path).and_then(|mut file| {
            file.seek(SeekFrom::Start(self.position))?;
            file.read_to_end(&mut new)
        });
        self.position += read.unwrap_or(0) as u64;
        let mut text = std::mem::take(&mut self.rest);
        text.append(&mut new);
        let whole = text.iter().rposition(|b| *b == b'\n').map_or(0, |n| n + 1);
        self.rest = text.split_off(whole);
        for line in String::from_utf8_lossy(&text).lines() {
            if let Some((_, event)) = line.split_once("EVENT_LOG_v1 ") {
                self.take(&serde_json::from_str(event).unwrap_or_default());
            }
        }
    }

    fn take(&mut self, event: &Value) {
        let job = event["job"].as_u64().unwrap_or(0);
        match event["event"].as_str() {
            Some("compaction_started") => drop(self.compacting.insert(job)),
            Some("compaction_finished") => drop(self.compacting.remove(&job)),
            Some("table_file_creation") => {
                let size = event["file_size"].as_u64().unwrap_or(0);
                match self.compacting.contains(&job) {
                    true => self.compacted += size,
                    false => self.flushed += size,
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_told_apart_by_their_jobs() {
        let dir = std::env::temp_dir().join(format!("lab-events-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("osd.0.log");
        let event = |event: &str, job: u32, size: u32| {
            format!(
                "time 4 rocksdb: EVENT_LOG_v1 {{\"job\": {job}, \"event\": \"{event}\", \"file_size\": {size}}}\n"
            )
        };
        let first = event("flush_started", 1, 0)
            + &event("table_file_creation", 1, 10)
            + "another line\n"
            + &event("compaction_started", 2, 0);
        let second = event("table_file_creation", 2, 7);
        let third = event("compaction_finished", 2, 0) + &event("table_file_creation", 3, 5);
        // A line that was half written when it was read counts once it is whole.
        let (half, other) = second.split_at(40);
        let mut log = EventLog::new(path.clone());
        let mut text = first + half;
        std::fs::write(&path, &text).unwrap();
        log.read();
        assert_eq!((log.flushed, log.compacted), (10, 0));
        text += other;
        text += &third;
        std::fs::write(&path, &text).unwrap();
        log.read();
        assert_eq!((log.flushed, log.compacted), (15, 7));
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
