//! Commands to this very monitor: by `ceph tell mon.X` and by its admin socket.

use bytes::Bytes;
use command::{
    ArgValue, BadArgument, CommandMap, CommandReply, CommandTable, Formatter, Signature, version,
};
use messages::{MCommand, MCommandReply};
use types::{Errno, RawMessage, entity};

use super::cmd::{Cmd, CmdResult, unhandled};
use crate::clog;
use crate::core::MonCore;
use crate::event::SessionId;
use crate::event::wire;

/// Signatures of the commands this monitor answers about itself.
pub(crate) fn admin_table() -> CommandTable {
    let mut table = CommandTable::new();
    let mut all: Vec<Signature> = [
        ("compact", "compact the monitor's database"),
        (
            "heap name=heapcmd,type=CephChoices,strings=dump|start_profiler|stop_profiler|release|\
             stats name=value,type=CephString,req=false",
            "examine the heap (only where the allocator can)",
        ),
        ("mon_status", "print this monitor's state"),
        ("ops", "print requests in progress"),
        ("dump_historic_ops", "print recent requests"),
        ("dump_historic_slow_ops", "print recent requests that were slow"),
        ("quorum enter", "take part in the quorum again"),
        ("quorum exit", "leave the quorum until told to enter it again"),
        ("sessions", "print who is connected"),
        (
            "sync_force name=validate,type=CephChoices,strings=--yes-i-really-mean-it,req=false",
            "throw the database away at the next start and copy another monitor's",
        ),
    ]
    .into_iter()
    .map(|(sig, help)| Signature::new(sig, help, "", "", 0))
    .collect();
    all.extend(command::admin_signatures());
    all.extend(config::admin_signatures());
    all.extend(perf::signatures());
    all.sort_by_key(Signature::prefix);
    all.into_iter().for_each(|signature| table.push(signature));
    table
}

fn refused(error: BadArgument) -> CommandReply {
    CommandReply::error(Errno::EINVAL.0, error.to_string())
}

impl MonCore {
    /// `ceph tell mon.X`.
    pub(crate) fn on_tell(&mut self, from: SessionId, raw: &RawMessage, m: MCommand) {
        let Some(session) = self.sessions.get(&from) else { return };
        let reply = if m.fsid != self.monmap.fsid {
            CommandReply::error(Errno::EPERM.0, "wrong fsid")
        } else if !session.caps.mon.is_allow_all() {
            CommandReply::error(Errno::EACCES.0, "access denied")
        } else {
            match CommandMap::parse(&m.cmd) {
                Ok(map) => self.admin_command(&map, m.input.clone()),
                Err(what) => CommandReply::error(Errno::EINVAL.0, what.to_string()),
            }
        };
        let answer = MCommandReply { rc: reply.rc, outs: reply.outs, outb: reply.outb };
        self.send(from, wire(&answer).with_tid(raw.header.tid));
    }

    /// Answers a command about this monitor itself.
    pub fn admin_command(&mut self, map: &CommandMap, input: Bytes) -> CommandReply {
        if let Some(reply) = config::admin_command(&self.conf, map) {
            return reply;
        }
        let cmd = Cmd {
            session: 0,
            prefix: map.prefix().to_string(),
            format: map.format(),
            map: map.clone(),
            input,
        };
        let audit = self.audits(&cmd);
        if let Some((prio, text)) = &audit {
            self.log_own("audit", *prio, format!("{text}: dispatch"));
        }
        let reply = match self.own_command(&cmd) {
            Some(reply) => reply,
            None => CommandReply::error(Errno::EINVAL.0, "command not known"),
        };
        if let Some((prio, text)) = audit {
            self.log_own("audit", prio, format!("{text}: finished"));
        }
        reply
    }

    /// Priority and text of a command's lines in the audit log; those that any daemon has are not
    /// logged (`Monitor::do_admin_command`).
    fn audits(&self, cmd: &Cmd) -> Option<(u16, String)> {
        let prio = match cmd.prefix.as_str() {
            "mon_status" | "ops" | "sessions" => clog::DEBUG,
            "compact" | "quorum enter" | "quorum exit" | "sync_force" => clog::INFO,
            "dump_historic_ops" | "dump_historic_slow_ops" => clog::INFO,
            _ => return None,
        };
        let arguments = super::arguments(&cmd.map);
        let values: Vec<String> = arguments.into_values().collect();
        let text = format!(
            "from='admin socket' entity='admin socket' cmd='{}' args=[{}]",
            cmd.prefix,
            values.join(", ")
        );
        Some((prio, text))
    }

    /// Hidden commands that old tools send as commands to the cluster.
    pub(crate) fn cmd_own(&mut self, cmd: &Cmd) -> CmdResult {
        if cmd.prefix == "injectargs" {
            let mut map = CommandMap::default();
            map.set("prefix", ArgValue::String("injectargs".to_string()));
            map.set("injected_args", ArgValue::Strings(cmd.map.strings("injected_args")?));
            let reply = config::admin_command(&self.conf, &map).unwrap_or_default();
            return Ok(CommandReply { outb: Bytes::new(), ..reply });
        }
        if cmd.prefix == "version" {
            let version = version::long();
            return Ok(cmd.output(
                |f| f.object("version", |f| f.dump_string("version", &version)),
                || version.clone(),
            ));
        }
        match self.own_command(cmd) {
            Some(reply) => Ok(reply),
            None => unhandled(),
        }
    }

    fn own_command(&mut self, cmd: &Cmd) -> Option<CommandReply> {
        Some(match cmd.prefix.as_str() {
            "mon_status" => cmd.structured(|f| self.dump_mon_status(f)),
            "sessions" => cmd.structured(|f| self.dump_sessions(f)),
            // Requests are handled to their end in one step: none is ever in progress, or remembered.
            "ops" => cmd.structured(|f| {
                f.object("ops", |f| {
                    f.array("ops", |_| {});
                    f.dump_unsigned("num_ops", 0u32);
                });
            }),
            "dump_historic_ops" => cmd.structured(|f| {
                f.object("op_history", |f| {
                    f.dump_unsigned("size", self.conf.uint("mon_op_history_size"));
                    f.dump_unsigned("duration", self.conf.uint("mon_op_history_duration"));
                    f.array("ops", |_| {});
                });
            }),
            "dump_historic_slow_ops" => cmd.structured(|f| {
                let threshold = self.conf.uint("mon_op_history_slow_op_threshold");
                f.object("OpHistory slow ops", |f| {
                    f.dump_unsigned("num to keep", self.conf.uint("mon_op_history_slow_op_size"));
                    f.dump_unsigned("threshold to keep", threshold);
                    f.array("Ops", |_| {});
                });
            }),
            "heap" => command::heap(),
            prefix if perf::answers(prefix) => {
                let reset = |group: &str| self.counters.reset(group);
                perf::command(&cmd.map, self.list_counters(), &[], reset).unwrap_or_else(refused)
            }
            "compact" => CommandReply::default(),
            "sync_force" => self.sync_force(cmd),
            _ => return command::admin_command(&cmd.map, &admin_table()),
        })
    }

    fn sync_force(&self, cmd: &Cmd) -> CommandReply {
        if !cmd.map.contains("validate") {
            return CommandReply::error(
                Errno::EPERM.0,
                "the monitor's database will be erased at its next start: pass \
                 --yes-i-really-mean-it if that is meant",
            );
        }
        // It comes back as a new member, which a majority of the others must take in.
        let others = self.quorum_names().iter().filter(|name| **name != self.identity.name).count();
        if 2 * others <= self.monmap.size() {
            return CommandReply::error(
                Errno::EBUSY.0,
                "the other monitors in the quorum are no majority: they could not take it in again",
            );
        }
        if let Err(e) = crate::sync::force(&*self.kv) {
            return CommandReply::error(Errno::EIO.0, e.to_string());
        }
        cmd.structured(|f| {
            f.object("sync_force", |f| {
                f.dump_int("ret", 0);
                f.dump_string("msg", "forcing store sync the next time the monitor starts");
            });
        })
    }

    fn dump_sessions(&self, f: &mut Formatter) {
        f.array("sessions", |f| {
            for s in self.sessions.values() {
                let p = &s.peer;
                f.object("session", |f| {
                    f.dump_stream("name", p.name);
                    f.dump_stream("entity_name", &p.auth_name);
                    maps::osdmap::dump_addrvec(f, "addrs", &p.addrs);
                    f.object("socket_addr", |f| {
                        f.dump_string("type", p.socket_addr.kind.name());
                        f.dump_stream("addr", p.socket_addr.sockaddr_text());
                        f.dump_unsigned("nonce", p.socket_addr.nonce);
                    });
                    f.dump_string("con_type", entity::kind_name(p.name.kind));
                    f.dump_unsigned("con_features", p.features);
                    f.dump_string("con_features_hex", format!("{:x}", p.features));
                    f.dump_string("con_features_release", super::mon::features_release(p.features));
                    f.dump_bool("open", true);
                    f.object("caps", |f| f.dump_string("text", &s.caps.mon.text));
                    f.dump_bool("authenticated", true);
                    f.dump_unsigned("global_id", p.global_id);
                    f.dump_string("global_id_status", "new_ok");
                    f.dump_unsigned("osd_epoch", s.osd_epoch);
                    f.dump_string("remote_host", &s.remote_host);
                });
            }
        });
    }
}
