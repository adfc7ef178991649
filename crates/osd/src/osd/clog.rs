//! The OSD's lines in the cluster log, and the beginnings of scrubs.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use config::parse_bool;
use messages::{LogEntry, MLog, MLogAck, Message, PaxosHeader};
use types::entity::{EntityName, OSD};
use types::{AuthEntityName, UTime};

use super::Osd;
use crate::pg::host::{Host, LogLevel};

/// Lines that wait for the monitor's answer; the oldest go when there are more.
const WAITING_MAX: usize = 1000;
/// Lines of one message (mon_client_max_log_entries_per_message).
const SEND_MAX: usize = 1000;

/// The cluster log's part for what happens, beside `audit`.
const CHANNEL: &str = "cluster";

/// Lines on their way.
#[derive(Default)]
pub(super) struct ClusterLog {
    seq: Cell<u64>,
    waiting: RefCell<VecDeque<LogEntry>>,
}

impl ClusterLog {
    /// The monitor has lines.
    pub(super) fn on_ack(&self, ack: &MLogAck) {
        self.waiting.borrow_mut().retain(|entry| entry.seq > ack.last);
    }
}

impl Osd {
    /// Writes a line to our own log and, if `clog_to_monitors` lets us, to the cluster's.
    pub(crate) fn log_to_cluster(&self, level: LogLevel, text: String) {
        match level {
            LogLevel::Debug | LogLevel::Info => tracing::info!("cluster log: {text}"),
            LogLevel::Warn => tracing::warn!("cluster log: {text}"),
            LogLevel::Error => tracing::error!("cluster log: {text}"),
        }
        if !parse_bool(&self.config.of_channel("clog_to_monitors", CHANNEL)).unwrap_or(true) {
            return;
        }
        let log = &self.clog;
        log.seq.set(log.seq.get() + 1);
        let entry = LogEntry {
            name: AuthEntityName { kind: OSD.into(), id: self.whoami.to_string() },
            rank: EntityName::osd(self.whoami),
            addrs: self.client.addrs(),
            stamp: UTime::from_duration(self.env.wall_clock()),
            seq: log.seq.get(),
            prio: level as u16,
            msg: text,
            channel: CHANNEL.to_owned(),
        };
        {
            let mut waiting = log.waiting.borrow_mut();
            waiting.push_back(entry.clone());
            if waiting.len() > WAITING_MAX {
                waiting.pop_front();
            }
        }
        self.send_entries(vec![entry]);
    }

    /// Sends again what the monitor has not confirmed.
    pub(super) fn send_log(&self) {
        let entries: Vec<LogEntry> =
            self.clog.waiting.borrow().iter().take(SEND_MAX).cloned().collect();
        if !entries.is_empty() {
            self.send_entries(entries);
        }
    }

    fn send_entries(&self, entries: Vec<LogEntry>) {
        let fsid = self.current_map().fsid;
        let message = MLog { paxos: PaxosHeader::default(), fsid, entries };
        self.monc.send(message.encode());
    }

    /// Once a second: scrubs that are due or were asked for, one of them at a time.
    pub(super) fn schedule_scrubs(&self) {
        if !self.is_active() {
            return;
        }
        let settings = self.scrub_settings();
        let taken = || {
            let (local, remote) = self.scrub_slots.taken();
            local + remote >= settings.slots
        };
        let mut pgs = self.all_pgs();
        pgs.sort_by_cached_key(|pg| pg.scrub_turn());
        for pg in pgs {
            if taken() {
                return;
            }
            pg.maybe_scrub(&settings);
        }
    }
}
