//! Commands: from the message to the handler and back.
//!
//! A command is looked up in the table (`commands.tsv`, with the manager's added), the sender's
//! capabilities are checked against its module and permissions, it is handled, written to the
//! audit log if it changes something, and answered once everything it rests on is committed.

mod auth;
mod cmd;
mod config;
mod config_key;
mod crush;
mod crush_class;
mod crush_rule;
mod df;
pub(crate) mod erasure_profile;
mod fs;
mod fs_authorize;
mod fs_change;
mod fs_set;
mod log;
mod mds_change;
mod mgr;
mod mon;
mod osd_change;
mod osd_create;
mod osd_flags;
mod osd_misc;
mod osd_query;
mod osd_tree;
mod pool;
mod pool_set;
mod report;
mod status;
mod tell;

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use bstr::{BString, ByteSlice};
use command::{ArgValue, CommandMap, CommandReply, CommandTable, Signature};
use messages::{MMonCommand, MMonCommandAck, Message, PaxosHeader};
use types::{Errno, RawMessage};

pub(crate) use cmd::{Cmd, CmdResult, NAME_LEN_MAX, Refusal, check_name, fail, refuse};

use crate::clog::{DEBUG, INFO};
use crate::core::MonCore;
use crate::event::{Effect, SessionId, wire};

thread_local! {
    static TABLE: OnceCell<Rc<CommandTable>> = const { OnceCell::new() };
}

/// The monitor's own commands.
pub(crate) fn table() -> Rc<CommandTable> {
    TABLE.with(|cell| {
        cell.get_or_init(|| {
            let mut table = CommandTable::new();
            for line in include_str!("../commands.tsv").lines() {
                let mut fields = line.split('\t');
                let mut field = || fields.next().unwrap_or("");
                let (sig, module, perm, flags, help) =
                    (field(), field(), field(), field(), field());
                let flags = flags.parse().unwrap_or(0);
                table.push(Signature::new(sig, help, module, perm, flags));
            }
            Rc::new(table)
        })
        .clone()
    })
}

impl MonCore {
    /// A command from a client or daemon.
    pub(crate) fn on_mon_command(&mut self, from: SessionId, raw: &RawMessage, m: MMonCommand) {
        let Some(asker) = self.sessions.get(&from).map(|s| s.peer.global_id) else { return };
        let (tid, crc) = (raw.header.tid, crate::answered::command_crc(&m.cmd));
        self.command_changed = false;
        let reply = if m.fsid != self.monmap.fsid {
            Some(CommandReply::error(Errno::EPERM.0, "wrong fsid"))
        } else if let Some(reply) = self.answer_before(asker, tid, crc) {
            Some(reply)
        } else {
            self.run_command(from, raw, &m)
        };
        let Some(reply) = reply else { return };
        if std::mem::take(&mut self.command_changed) {
            self.remember_answer(asker, tid, crc, &reply);
        }
        let ack = MMonCommandAck {
            paxos: PaxosHeader::at(self.version_for(&m.cmd)),
            rc: reply.rc,
            outs: reply.outs,
            cmd: m.cmd,
            outb: reply.outb,
        };
        self.send(from, wire(&ack).with_tid(raw.header.tid));
    }

    /// Version of the map a command read or changed: what the asker may wait for.
    fn version_for(&self, cmd: &[BString]) -> u64 {
        let map = CommandMap::parse(cmd).unwrap_or_default();
        match map.prefix().split(' ').next() {
            Some("osd" | "pg") => {
                u64::from(self.osd.map.epoch) + u64::from(self.is_osdmap_pending())
            }
            Some("mgr") => self.mgr.map.epoch.into(),
            Some("fs" | "mds") => self.mds.map.epoch.into(),
            _ => u64::from(self.monmap.epoch),
        }
    }

    /// The answer; `None` if the session is gone, or the command waits for a commit.
    fn run_command(
        &mut self,
        from: SessionId,
        raw: &RawMessage,
        m: &MMonCommand,
    ) -> Option<CommandReply> {
        let error = |errno: Errno, text: &str| Some(CommandReply::error(errno.0, text));
        let map = match CommandMap::parse(&m.cmd) {
            Ok(map) => map,
            Err(what) => return error(Errno::EINVAL, &what.to_string()),
        };
        if !map.has_prefix() {
            return error(Errno::EINVAL, "command prefix not found");
        }
        let prefix = map.prefix().to_string();
        if prefix.is_empty() {
            return error(Errno::EINVAL, "command prefix must not be empty");
        }
        if prefix == "get_command_descriptions" {
            return Some(self.descriptions());
        }
        let session = self.sessions.get(&from)?;
        let peer = session.peer.clone();
        let table = table();
        let Some(signature) = find(&table, &map).or_else(|| self.find_mgr(&prefix)) else {
            return error(Errno::EINVAL, "command not known");
        };
        let deprecated = signature.has_flag(command::FLAG_DEPRECATED)
            && self.conf.bool("mon_debug_deprecated_as_obsolete");
        if signature.has_flag(command::FLAG_OBSOLETE) || deprecated {
            return error(
                Errno::EOPNOTSUPP,
                "command is obsolete; please check usage and/or man page",
            );
        }
        let arguments = arguments(&map);
        let audit = format!(
            "from='{} {}' entity='{}' cmd={}",
            peer.name,
            peer.socket_addr,
            peer.auth_name,
            audit_text(&m.cmd)
        );
        let allowed = session.caps.allows_command(
            &peer,
            &signature.module,
            &prefix,
            &arguments,
            &signature.perm,
        );
        if !allowed {
            self.log_own("audit", INFO, format!("{audit}:  access denied"));
            return error(Errno::EACCES, "access denied");
        }
        if signature.has_flag(command::FLAG_MGR) {
            self.effect(Effect::AskMgr(from, raw.header.tid, m.clone()));
            return None;
        }
        let changes = signature.perm.contains('w');
        let prio = if changes { INFO } else { DEBUG };
        if changes {
            self.log_own("audit", prio, format!("{audit}: dispatch"));
        }
        let cmd = Cmd { session: from, format: map.format(), input: m.input.clone(), prefix, map };
        // The manager sets variables that the signature does not show to people.
        let checked = if cmd.prefix == "osd pool set" { Ok(()) } else { cmd.map.check(&signature) };
        let result = match checked {
            Ok(()) => self.dispatch_command(&cmd),
            Err(bad) => Err(bad.into()),
        };
        let reply = match result {
            Ok(reply) => reply,
            Err(refusal) if refusal.not_yet => {
                self.retry(from, raw.clone());
                return None;
            }
            Err(Refusal { errno, text, .. }) => CommandReply::error(errno.0, text),
        };
        if changes && reply.rc == 0 && self.is_pending() {
            self.command_changed = true;
            self.log_own("audit", prio, format!("{audit}: finished"));
        }
        Some(reply)
    }

    fn dispatch_command(&mut self, cmd: &Cmd) -> CmdResult {
        let mut words = cmd.prefix.split(' ');
        let (first, second) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        match (first, second) {
            ("auth", _) => self.cmd_auth(cmd),
            ("config", _) => self.cmd_config(cmd),
            ("config-key", _) => self.cmd_config_key(cmd),
            ("osd", "pool") => self.cmd_pool(cmd),
            ("osd", "crush") => self.cmd_crush(cmd),
            ("osd", "setcrushmap" | "getcrushmap") => self.cmd_crush(cmd),
            ("osd" | "pg", _) => self.cmd_osd(cmd),
            ("mgr", _) => self.cmd_mgr(cmd),
            ("mon", _) => self.cmd_mon(cmd),
            ("fs", "authorize") => self.fs_authorize(cmd),
            ("fs" | "mds", _) => self.cmd_fs(cmd),
            ("log", _) => self.cmd_log(cmd),
            (
                "health" | "status" | "df" | "features" | "fsid" | "versions" | "node" | "report",
                _,
            )
            | ("quorum_status" | "time-sync-status" | "tell", _) => self.cmd_status(cmd),
            _ => self.cmd_own(cmd),
        }
    }

    fn descriptions(&self) -> CommandReply {
        let mut all = CommandTable::new();
        // The manager's come first, as they do in Ceph.
        self.mgr.commands.iter().for_each(|c| all.push(c.clone()));
        table().iter().for_each(|c| all.push(c.clone()));
        CommandReply::data(all.descriptions(command::Format::Json, true))
    }

    /// Whether a message is a command that the manager answers.
    pub(crate) fn is_for_mgr(&self, raw: &RawMessage) -> bool {
        if raw.header.kind != MMonCommand::TYPE {
            return false;
        }
        let map =
            <MMonCommand as Message>::decode(raw).ok().and_then(|m| CommandMap::parse(&m.cmd).ok());
        map.is_some_and(|map| {
            let own = table().iter().any(|c| c.prefix() == map.prefix());
            !own && self.find_mgr(map.prefix()).is_some()
        })
    }

    fn find_mgr(&self, prefix: &str) -> Option<Signature> {
        self.mgr.commands.iter().find(|c| c.prefix() == prefix).cloned()
    }
}

/// The command of that prefix; of several, the one whose required arguments are given.
fn find(table: &CommandTable, map: &CommandMap) -> Option<Signature> {
    let mut first = None;
    for command in table.iter().filter(|c| c.prefix() == map.prefix()) {
        let fits = command.args().all(|arg| !arg.required || map.contains(&arg.name));
        if fits && command.args().count() > 0 {
            let mut named = map.iter().filter(|(key, _)| !matches!(*key, "prefix" | "format"));
            let known = |key: &str| command.args().any(|arg| arg.name == key);
            if named.all(|(key, _)| known(key) || key == "target") {
                return Some(command.clone());
            }
        }
        first.get_or_insert(command);
    }
    first.cloned()
}

/// Arguments as capabilities see them: text, by name; capabilities that are to be given, by whose they are
/// (`caps_mon`), for keys that may give some and no others (Ceph: `_generate_command_map`). What a client calls
/// so by itself is none: it would hide what is given.
fn arguments(map: &CommandMap) -> BTreeMap<String, String> {
    map.iter()
        .filter(|(key, _)| !matches!(*key, "prefix" | "format") && !key.starts_with("caps_"))
        .flat_map(|(key, value)| {
            if let ("caps", ArgValue::Strings(texts)) = (key, value)
                && let (pairs, []) = texts.as_chunks::<2>()
            {
                return pairs
                    .iter()
                    .map(|[who, what]| (format!("caps_{who}"), what.clone()))
                    .collect();
            }
            let text = match value {
                ArgValue::String(text) => text.clone(),
                ArgValue::Bool(b) => b.to_string(),
                ArgValue::Int(n) => n.to_string(),
                ArgValue::Float(n) => command::format_stream_float(*n),
                ArgValue::Strings(texts) => texts.join(","),
                ArgValue::Ints(ns) => ns.iter().map(i64::to_string).collect::<Vec<_>>().join(","),
                ArgValue::Floats(ns) => {
                    let texts: Vec<String> =
                        ns.iter().map(|n| command::format_stream_float(*n)).collect();
                    texts.join(",")
                }
            };
            vec![(key.to_string(), text)]
        })
        .collect()
}

/// The command for the audit log; values of options and keys are left out.
fn audit_text(cmd: &[BString]) -> String {
    let map = CommandMap::parse(cmd).unwrap_or_default();
    match map.prefix() {
        "config set" | "config-key set" | "config-key put" | "auth add" => {
            let mut shown: Vec<String> = Vec::new();
            for (key, value) in arguments(&map) {
                let hidden = matches!(key.as_str(), "value" | "val");
                shown.push(format!("\"{key}\":\"{}\"", if hidden { "..." } else { &value }));
            }
            format!("[{{\"prefix\":\"{}\",{}}}]", map.prefix(), shown.join(","))
        }
        _ => format!("[{}]", cmd.concat().as_bstr()),
    }
}

pub(crate) use crush::crush_refusal;
pub(crate) use df::pool_avail;
pub(crate) use tell::admin_table;
