//! The cluster log: lines from all daemons, kept for `log last`, passed on to who watches
//! (`src/mon/LogMonitor.cc` at v16.2).

use std::collections::{BTreeMap, VecDeque};

use config::Source;
use denc::Denc;
use messages::{LogEntry, MLog, MLogAck};
use store::Kv;
use types::{AuthEntityName, EntityName, RawMessage, entity};

use crate::core::{LoadError, MonCore};
use crate::event::{Effect, SessionId, wire};
use crate::layout::{self, LOGM};
use crate::standing::Role;

/// Lines kept, of all channels together.
const LINES_MAX: usize = 10_000;
/// Bytes of a line kept; so 80 MB of lines at most.
const LINE_BYTES_MAX: usize = 8 << 10;
/// Bytes of a channel's name and of a sender's; lines with longer ones are dropped.
const NAME_BYTES_MAX: usize = 256;
/// Addresses a sender says to have; with more those of its session stand there.
const ADDRS_MAX: usize = 8;
/// Lines of one message taken; the rest of it is dropped.
const LINES_PER_MESSAGE_MAX: usize = 4096;

/// Priorities, by number.
pub(crate) const DEBUG: u16 = 0;
pub(crate) const INFO: u16 = 1;
pub(crate) const SECURITY: u16 = 2;
pub(crate) const WARN: u16 = 3;
pub(crate) const ERROR: u16 = 4;

/// The log as kept in memory, the newest [`LINES_MAX`] lines.
#[derive(Debug, Default)]
pub(crate) struct ClusterLog {
    /// Lines with their numbers, ascending.
    lines: VecDeque<(u64, LogEntry)>,
    /// Number of the newest line; 0 if there is none.
    last: u64,
    /// Lines up to this number are in the log.
    encoded: u64,
    /// Lines up to this number are committed: the others may never be, and their numbers be those of other lines.
    committed: u64,
    /// Lines up to this number have been written to this monitor's files.
    written: u64,
    /// Newest line taken of each sender, so that a line sent again is not taken twice.
    seen: BTreeMap<String, u64>,
    own_seq: u64,
}

impl ClusterLog {
    pub(crate) fn load(kv: &dyn Kv) -> Result<ClusterLog, LoadError> {
        let mut log = ClusterLog::default();
        for (key, value) in layout::all(kv, LOGM)? {
            let number = u64::from_str_radix(&key, 16)
                .map_err(|_| LoadError::Inconsistent { what: format!("logm/{key}") })?;
            let entry = LogEntry::from_bytes(&value)
                .map_err(|error| LoadError::Decode { what: format!("logm/{key}"), error })?;
            log.last = number;
            log.lines.push_back((number, entry));
        }
        log.encoded = log.last;
        log.committed = log.last;
        log.written = log.last;
        Ok(log)
    }

    /// The newest `max` lines of at least this priority, of one channel or of all, oldest first.
    pub(crate) fn newest(&self, max: usize, prio: u16, channel: &str) -> Vec<&LogEntry> {
        let mut lines: Vec<&LogEntry> = self
            .lines
            .iter()
            .rev()
            .map(|(_, entry)| entry)
            .filter(|e| e.prio >= prio && (channel == "*" || e.channel == channel))
            .take(max)
            .collect();
        lines.reverse();
        lines
    }

    /// Lines numbered from `from` on.
    pub(crate) fn since(&self, from: u64) -> impl Iterator<Item = &(u64, LogEntry)> {
        let start = self.lines.partition_point(|(number, _)| *number < from);
        self.lines.range(start..)
    }

    /// A committed line from the leader.
    pub(crate) fn take(&mut self, number: u64, entry: LogEntry) {
        if number > self.last {
            self.last = number;
            self.lines.push_back((number, entry));
        }
        self.encoded = self.last;
        self.committed = self.last;
        if self.lines.len() > LINES_MAX {
            self.lines.pop_front();
        }
    }

    /// The proposal is committed: so is what was encoded for it.
    pub(crate) fn on_committed(&mut self) {
        self.committed = self.encoded;
    }

    fn push(&mut self, mut entry: LogEntry) {
        if entry.msg.len() > LINE_BYTES_MAX {
            entry.msg.truncate(entry.msg.floor_char_boundary(LINE_BYTES_MAX));
            entry.msg.push_str("...");
        }
        self.last += 1;
        self.lines.push_back((self.last, entry));
    }
}

/// The priority of a level's name.
pub(crate) fn level_prio(name: &str) -> Option<u16> {
    Some(match name {
        "debug" => DEBUG,
        "info" => INFO,
        "sec" => SECURITY,
        "warn" => WARN,
        "error" => ERROR,
        _ => return None,
    })
}

/// Whether a line of this priority is to be written where `least` is the least severe that is: names of syslog's levels,
/// above which lines on security are.
fn is_severe(prio: u16, least: &str) -> bool {
    let least = match least {
        "debug" => DEBUG,
        "info" => INFO,
        "notice" | "warn" | "warning" => WARN,
        "err" | "error" => ERROR,
        _ => return prio == SECURITY,
    };
    prio >= least || prio == SECURITY
}

/// The letters of a priority in a printed line.
fn prio_tag(prio: u16) -> &'static str {
    match prio {
        DEBUG => "[DBG]",
        INFO => "[INF]",
        SECURITY => "[SEC]",
        WARN => "[WRN]",
        ERROR => "[ERR]",
        _ => "[???]",
    }
}

/// A line as `log last` prints it.
pub(crate) fn line_text(e: &LogEntry) -> String {
    format!(
        "{} {} ({}) {} : {} {} {}",
        e.stamp,
        e.name,
        e.rank,
        e.seq,
        e.channel,
        prio_tag(e.prio),
        e.msg
    )
}

/// Writes a line's fields.
pub(crate) fn dump_line(f: &mut command::Formatter, e: &LogEntry) {
    f.object("entry", |f| {
        f.dump_stream("name", &e.name);
        f.dump_stream("rank", e.rank);
        maps::osdmap::dump_addrvec(f, "addrs", &e.addrs);
        f.dump_stream("stamp", e.stamp);
        f.dump_unsigned("seq", e.seq);
        f.dump_string("channel", &e.channel);
        f.dump_string("priority", prio_tag(e.prio));
        f.dump_string("message", &e.msg);
    });
}

impl MonCore {
    /// Lines from a daemon or client.
    pub(crate) fn on_log(&mut self, from: SessionId, raw: &RawMessage, m: MLog) {
        let Some(session) = self.sessions.get(&from) else { return };
        if !session.caps.allows(&session.peer, "log", "w") {
            return;
        }
        let addrs = session.peer.addrs.clone();
        let Some(last) = m.entries.last().map(|e| (e.seq, e.channel.clone())) else { return };
        for mut entry in m.entries.into_iter().take(LINES_PER_MESSAGE_MAX) {
            let sender = format!("{}/{}", entry.rank, addrs);
            let seen = self.clog.seen.entry(sender).or_default();
            if entry.seq <= *seen {
                continue;
            }
            *seen = entry.seq;
            if entry.channel.len().max(entry.name.id.len()) > NAME_BYTES_MAX {
                continue;
            }
            if entry.addrs.is_empty() || entry.addrs.0.len() > ADDRS_MAX {
                entry.addrs = addrs.clone();
            }
            self.clog.push(entry);
            self.mark_dirty();
        }
        // Senders come and go; what they had sent before is not worth remembering for ever.
        while self.clog.seen.len() > 10_000 {
            self.clog.seen.pop_first();
        }
        let ack = MLogAck { fsid: self.monmap.fsid, last: last.0, channel: last.1 };
        self.send(from, wire(&ack).with_tid(raw.header.tid));
    }

    /// A line of the monitor's own.
    pub(crate) fn log_own(&mut self, channel: &str, prio: u16, text: impl Into<String>) {
        if self.standing.role != Role::Leader {
            // Only the leader adds lines: a peon that did waited for ever for their commit, and so
            // did whoever was told anything by it.
            return;
        }
        self.clog.own_seq += 1;
        let entry = LogEntry {
            rank: EntityName::mon(self.rank()),
            addrs: self.own_addrs(),
            stamp: self.now.wall,
            seq: self.clog.own_seq,
            prio,
            msg: text.into(),
            channel: channel.to_string(),
            name: AuthEntityName::new(entity::MON, self.identity.name.clone()),
        };
        self.clog.push(entry);
        self.mark_dirty();
    }

    /// A line on behalf of a client (`ceph log`).
    pub(crate) fn log_for(&mut self, session: SessionId, channel: &str, prio: u16, text: String) {
        let Some(peer) = self.sessions.get(&session).map(|s| s.peer.clone()) else { return };
        self.clog.own_seq += 1;
        let entry = LogEntry {
            rank: peer.name,
            addrs: peer.addrs.clone(),
            stamp: self.now.wall,
            seq: 0,
            prio,
            msg: text,
            channel: channel.to_string(),
            name: peer.auth_name.clone(),
        };
        self.clog.push(entry);
        self.mark_dirty();
    }

    /// Puts new lines into the batch and drops old ones.
    pub(crate) fn encode_clog(&mut self) {
        let from = self.clog.encoded + 1;
        let new: Vec<(u64, bytes::Bytes)> =
            self.clog.since(from).map(|(n, e)| (*n, e.to_bytes())).collect();
        self.clog.encoded = self.clog.last;
        let mut dropped = Vec::new();
        while self.clog.lines.len() > LINES_MAX {
            if let Some((number, _)) = self.clog.lines.pop_front() {
                dropped.push(number);
            }
        }
        let batch = self.batch();
        for (number, bytes) in new {
            batch.put(layout::numbered(LOGM, "", number), bytes);
        }
        for number in dropped {
            batch.delete(layout::numbered(LOGM, "", number));
        }
    }

    /// Has lines that are committed now written where `mon_cluster_log_file` and the options beside it say. That they are
    /// is every monitor's own affair: each has its files.
    pub(crate) fn write_clog(&mut self) {
        let (from, end) = (self.clog.written + 1, self.clog.committed);
        if from > end {
            return;
        }
        self.clog.written = end;
        let conf = &self.conf;
        // Ceph's default is below /var/log/ceph, as that of log_file.
        let is_told = conf.source("mon_cluster_log_file").is_some_and(|s| s != Source::Default);
        let (to_file, to_stderr) = (
            is_told && conf.bool("mon_cluster_log_to_file"),
            conf.bool("mon_cluster_log_to_stderr"),
        );
        if !to_file && !to_stderr {
            return;
        }
        let mut texts: BTreeMap<Option<String>, String> = BTreeMap::new();
        for (_, entry) in self.clog.since(from).take_while(|(number, _)| *number <= end) {
            // Senders choose it, and it becomes part of a file's name.
            let is_name = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
            let channel = match entry.channel.chars().all(is_name) {
                true => entry.channel.as_str(),
                false => "cluster",
            };
            let line = line_text(entry);
            let least = conf.of_channel("mon_cluster_log_file_level", channel);
            if to_stderr {
                *texts.entry(None).or_default() += &format!("{channel} {line}\n");
            }
            let file = conf.of_channel("mon_cluster_log_file", channel);
            if to_file && !file.is_empty() && is_severe(entry.prio, &least) {
                *texts.entry(Some(file)).or_default() += &format!("{line}\n");
            }
        }
        let writes = texts.into_iter().map(|(file, text)| Effect::WriteLog(file, text));
        self.effects.extend(writes);
    }

    /// Sends new lines to a session that watches the log; `next` is the first it wants.
    pub(crate) fn publish_log(&mut self, id: SessionId, level: &str, next: u64) -> u64 {
        let Some(prio) = level_prio(level) else { return next };
        let end = self.clog.committed;
        // A subscriber that does not say from where on gets what comes from now.
        let from = if next == 0 { end + 1 } else { next };
        let entries: Vec<LogEntry> = self
            .clog
            .since(from)
            .take_while(|(number, _)| *number <= end)
            .map(|(_, entry)| entry)
            .filter(|entry| entry.prio >= prio)
            .cloned()
            .collect();
        if !entries.is_empty() {
            let m = MLog { paxos: messages::PaxosHeader::at(end), fsid: self.monmap.fsid, entries };
            self.send_now(id, wire(&m));
        }
        end + 1
    }
}
