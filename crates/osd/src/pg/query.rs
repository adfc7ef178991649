//! `ceph pg ID query`, `list_unfound`, `mark_unfound_lost` (`PrimaryLogPG::do_command`).

use std::rc::Rc;

use command::{CommandMap, CommandReply, Formatter};
use maps::pgmap::dump_pg_stat;
use store::Transaction;
use types::osd::{LogOp, PgHistory, PgInfo, PgLogEntry, PgMissingItem};
use types::{EVersion, Errno, HObject, UTime};

use super::Pg;
use super::peering::{LogMessage, PeerMessage, State};

/// Objects in one answer (osd_command_max_records).
const LIST_MAX: usize = 256;

fn dump_history(f: &mut Formatter, h: &PgHistory) {
    f.dump_int("epoch_created", h.epoch_created);
    f.dump_int("epoch_pool_created", h.epoch_pool_created);
    f.dump_int("last_epoch_started", h.last_epoch_started);
    f.dump_int("last_interval_started", h.last_interval_started);
    f.dump_int("last_epoch_clean", h.last_epoch_clean);
    f.dump_int("last_interval_clean", h.last_interval_clean);
    f.dump_int("last_epoch_split", h.last_epoch_split);
    f.dump_int("last_epoch_marked_full", h.last_epoch_marked_full);
    f.dump_int("same_up_since", h.same_up_since);
    f.dump_int("same_interval_since", h.same_interval_since);
    f.dump_int("same_primary_since", h.same_primary_since);
    f.dump_stream("last_scrub", h.last_scrub);
    f.dump_stream("last_scrub_stamp", h.last_scrub_stamp);
    f.dump_stream("last_deep_scrub", h.last_deep_scrub);
    f.dump_stream("last_deep_scrub_stamp", h.last_deep_scrub_stamp);
    f.dump_stream("last_clean_scrub_stamp", h.last_clean_scrub_stamp);
    f.dump_float("prior_readable_until_ub", h.prior_readable_until_ub.as_secs_f64());
}

fn dump_info(f: &mut Formatter, info: &PgInfo) {
    f.dump_stream("pgid", info.pgid);
    f.dump_stream("last_update", info.last_update);
    f.dump_stream("last_complete", info.last_complete);
    f.dump_stream("log_tail", info.log_tail);
    f.dump_int("last_user_version", info.last_user_version as i64);
    f.dump_stream("last_backfill", &info.last_backfill);
    f.array("purged_snaps", |f| {
        for (start, length) in info.purged_snaps.iter() {
            f.object("purged_snap_interval", |f| {
                f.dump_stream("start", start);
                f.dump_stream("length", length);
            });
        }
    });
    f.object("history", |f| dump_history(f, &info.history));
    f.object("stats", |f| dump_pg_stat(f, &info.stats));
    f.dump_int("empty", i64::from(info.is_empty()));
    f.dump_int("dne", i64::from(info.dne()));
    f.dump_int("incomplete", i64::from(info.is_incomplete()));
    f.dump_int("last_epoch_started", info.last_epoch_started);
    f.object("hit_set_history", |f| {
        f.dump_stream("current_last_update", EVersion::ZERO);
        f.array("history", |_| {});
    });
}

fn dump_oid(f: &mut Formatter, oid: &HObject) {
    f.object("oid", |f| {
        f.dump_string("oid", oid.name.to_string());
        f.dump_string("key", oid.key.to_string());
        f.dump_int("snapid", oid.snap as i64);
        f.dump_int("hash", oid.hash);
        f.dump_int("max", i64::from(oid.max));
        f.dump_int("pool", oid.pool);
        f.dump_string("namespace", oid.namespace.to_string());
    });
}

impl Pg {
    /// `query`.
    pub fn query(&self, f: &mut Formatter) {
        let stat = self.stat().unwrap_or_default();
        let core = self.core.borrow();
        f.open_object_section("pg");
        f.dump_stream("snap_trimq", self.snaps_to_trim());
        f.dump_int("snap_trimq_len", self.snaps_to_trim().size() as i64);
        f.dump_string("state", types::osd::pg_state::state_string(stat.state));
        f.dump_int("epoch", core.epoch);
        f.array("up", |f| core.mapping.up.iter().for_each(|o| f.dump_int("osd", *o)));
        f.array("acting", |f| core.mapping.acting.iter().for_each(|o| f.dump_int("osd", *o)));
        if !core.backfill_targets.is_empty() {
            f.array("backfill_targets", |f| {
                core.backfill_targets.iter().for_each(|s| f.dump_stream("shard", s));
            });
        }
        if !core.acting_backfill.is_empty() {
            f.array("acting_recovery_backfill", |f| {
                core.acting_backfill.iter().for_each(|s| f.dump_stream("shard", s));
            });
        }
        f.object("info", |f| {
            let info = PgInfo { stats: stat.clone(), ..core.info.clone() };
            dump_info(f, &info);
        });
        f.array("peer_info", |f| {
            for (shard, info) in &core.peer_info {
                f.object("info", |f| {
                    f.dump_stream("peer", shard);
                    dump_info(f, info);
                });
            }
        });
        let entered = core.info.stats.last_change;
        f.array("recovery_state", |f| self.dump_states(f, &core, entered));
        f.object("scrubber", |f| {
            f.dump_stream("epoch_start", core.info.history.same_interval_since);
            f.dump_bool("active", self.scrub.is_active());
        });
        f.object("agent_state", |_| {});
        f.close_section();
    }

    fn dump_states(&self, f: &mut Formatter, core: &super::peering::Peering, entered: UTime) {
        f.object("state", |f| {
            let name = match core.state() {
                State::Active { .. } => "Started/Primary/Active",
                other => other.name(),
            };
            f.dump_string("name", name);
            f.dump_stream("enter_time", entered);
            match core.state() {
                State::Active { .. } => {
                    f.array("might_have_unfound", |f| self.dump_might_have_unfound(f, core));
                    f.object("recovery_progress", |f| {
                        f.array("backfill_targets", |f| {
                            core.backfill_targets.iter().for_each(|s| f.dump_stream("shard", s));
                        });
                        self.recovery.dump_progress(f);
                    });
                }
                State::GetInfo { waiting } | State::GetMissing { waiting } => {
                    f.array("requested_info_from", |f| {
                        for shard in waiting {
                            f.object("osd", |f| f.dump_stream("osd", shard));
                        }
                    });
                }
                State::WaitUpThru => f.dump_string(
                    "comment",
                    "waiting for osdmap to reflect a new up_thru for this osd",
                ),
                State::Incomplete => {
                    f.dump_string("comment", "not enough complete instances of this PG")
                }
                State::Down => {
                    f.dump_string("comment", "not enough up instances of this PG to go active")
                }
                _ => {}
            }
        });
        if core.is_peering() {
            f.object("state", |f| {
                f.dump_string("name", "Started/Primary/Peering");
                f.dump_stream("enter_time", entered);
                f.array("past_intervals", |f| {
                    f.object("past_interval", |f| {
                        f.dump_stream("first", core.past_intervals.first);
                        f.dump_stream("last", core.past_intervals.last);
                        f.array("all_participants", |f| {
                            for s in &core.past_intervals.all_participants {
                                f.object("participant", |f| f.dump_int("osd", s.osd));
                            }
                        });
                        f.array("intervals", |f| {
                            for i in &core.past_intervals.intervals {
                                f.object("interval", |f| {
                                    f.dump_stream("first", i.first);
                                    f.dump_stream("last", i.last);
                                    let acting: Vec<String> =
                                        i.acting.iter().map(|s| s.osd.to_string()).collect();
                                    f.dump_string("acting", acting.join(","));
                                });
                            }
                        });
                    });
                });
                f.array("probing_osds", |f| {
                    core.prior().probe.iter().for_each(|s| f.dump_stream("osd", s));
                });
                if core.prior().pg_down {
                    f.dump_string("blocked", "peering is blocked due to down osds");
                }
                f.array("down_osds_we_would_probe", |f| {
                    core.prior().down.iter().for_each(|o| f.dump_int("osd", *o));
                });
                f.array("peering_blocked_by", |f| {
                    for (osd, lost_at) in &core.prior().blocked_by {
                        f.object("osd", |f| {
                            f.dump_int("osd", *osd);
                            f.dump_int("current_lost_at", *lost_at);
                            f.dump_string(
                                "comment",
                                "starting or marking this osd lost may let us proceed",
                            );
                        });
                    }
                });
            });
        }
        f.object("state", |f| {
            f.dump_string("name", "Started");
            f.dump_stream("enter_time", entered);
        });
    }

    fn dump_might_have_unfound(&self, f: &mut Formatter, core: &super::peering::Peering) {
        if core.missing.is_empty() && core.peer_missing.values().all(|m| m.is_empty()) {
            return;
        }
        let map = self.map.borrow();
        for shard in core.might_have_unfound() {
            f.object("osd", |f| {
                f.dump_stream("osd", shard);
                let status = if core.peer_missing.contains_key(&shard) {
                    "already probed"
                } else if core.queried_for_unfound.contains(&shard) {
                    "querying"
                } else if !map.is_up(shard.osd) {
                    "osd is down"
                } else {
                    "not queried"
                };
                f.dump_string("status", status);
            });
        }
    }

    /// `list_unfound`.
    pub fn list_unfound(&self, f: &mut Formatter) {
        let unfound = self.recovery.unfound.borrow();
        let core = self.core.borrow();
        f.open_object_section("missing");
        f.dump_int("num_missing", core.missing.len() as i64);
        f.dump_int("num_unfound", unfound.len() as i64);
        f.array("objects", |f| {
            for oid in unfound.iter().take(LIST_MAX) {
                f.object("object", |f| {
                    dump_oid(f, oid);
                    let item = core.missing.get(oid).cloned().unwrap_or_default();
                    let PgMissingItem { need, have, .. } = item;
                    f.dump_stream("need", need);
                    f.dump_stream("have", have);
                    f.dump_string("flags", if item.is_delete { "delete" } else { "none" });
                    f.dump_string("clean_regions", "");
                    f.array("locations", |_| {});
                });
            }
        });
        f.dump_string("state", core.state().name().rsplit('/').next().unwrap_or(""));
        f.dump_bool("available_might_have_unfound", true);
        f.array("might_have_unfound", |f| self.dump_might_have_unfound(f, &core));
        f.dump_bool("more", unfound.len() > LIST_MAX);
        f.close_section();
    }

    /// `mark_unfound_lost`: gives up what nobody has, for the newest older version that somebody has
    /// or for good.
    pub async fn mark_unfound_lost(self: &Rc<Pg>, map: &CommandMap) -> CommandReply {
        let mode = map.opt_string("mulcmd").ok().flatten().unwrap_or_default();
        let revert = match mode.as_str() {
            "revert" if self.is_erasure() => {
                return CommandReply::error(Errno::EINVAL.0, "mode must be 'delete' for ec pool");
            }
            "revert" => true,
            "delete" => false,
            _ => {
                let text = "mode must be 'revert' or 'delete'; mark not yet implemented";
                return CommandReply::error(Errno::EINVAL.0, text);
            }
        };
        if !self.core.borrow().is_primary() {
            return CommandReply::error(Errno::EROFS.0, "not primary");
        }
        let unfound: Vec<HObject> = self.recovery.unfound.borrow().iter().cloned().collect();
        if unfound.is_empty() {
            return CommandReply::text("pg has no unfound objects");
        }
        let count = unfound.len();
        if self.core.borrow().may_find_more(&**self.map.borrow()) {
            let text = format!(
                "pg has {count} unfound objects but we haven't probed all sources, not marking lost"
            );
            return CommandReply::error(Errno::EINVAL.0, text);
        }
        let generation = self.generation.get();
        for oid in unfound {
            if !self.give_up(&oid, revert, generation).await {
                return CommandReply::error(Errno::EAGAIN.0, "the PG changed, try again");
            }
            self.requeue_for(&oid);
        }
        self.kick_recovery();
        CommandReply::text(format!("pg has {count} objects unfound and apparently lost marking"))
    }

    async fn give_up(&self, oid: &HObject, revert: bool, generation: u64) -> bool {
        // Of shards it may be others that lack theirs.
        let item = {
            let core = self.core.borrow();
            let mut all = std::iter::once(&core.missing).chain(core.peer_missing.values());
            all.find_map(|missing| missing.get(oid).cloned())
        };
        let Some(item) = item else { return true };
        let goid = self.goid(oid);
        let newest = if revert { self.core.borrow().newest_available(oid) } else { None };
        let mut oi = None;
        if let Some((back_to, who)) = newest {
            if who != self.whoami() && !self.fetch_older(oid, back_to, who).await {
                return false;
            }
            let attr = crate::ops::object_context::OI_ATTR;
            let bytes = self.host.store().getattr(&self.cid, &goid, attr).await;
            oi = bytes
                .ok()
                .and_then(|b| <types::osd::ObjectInfo as denc::Denc>::from_bytes(&b).ok());
        }
        let back_to = newest.map_or(EVersion::ZERO, |(version, _)| version);
        if generation != self.generation.get() {
            return false;
        }
        let mut t = Transaction::new();
        let mut messages = Vec::new();
        {
            let mut core = self.core.borrow_mut();
            let core = &mut *core;
            let since = core.log.head();
            let version = EVersion::new(core.epoch, since.version + 1);
            let mut entry = PgLogEntry {
                op: LogOp::LOST_DELETE,
                soid: oid.clone(),
                version,
                prior_version: item.need,
                mtime: UTime::from_duration(self.host.env().wall_clock()),
                ..PgLogEntry::default()
            };
            match oi {
                Some(mut oi) => {
                    entry.op = LogOp::LOST_REVERT;
                    entry.extras_mut().reverting_to = back_to;
                    oi.prior_version = oi.version;
                    oi.version = version;
                    let attr = crate::ops::object_context::OI_ATTR;
                    t.setattr(&self.cid, &goid, attr, denc::Denc::to_bytes(&oi));
                }
                None => {
                    t.remove(&self.cid, &goid);
                }
            }
            core.missing.remove(oid);
            // What was counted with the lost version is not known: a scrub, due at once, counts.
            core.info.stats.stats_invalid = true;
            for undo in core.log.roll_forward(since) {
                if let super::log::Undo::Trim(e) = undo {
                    self.trim_entry(&e, &mut t);
                }
            }
            core.log.add(&entry);
            core.info.last_update = version;
            core.update_last_complete();
            core.mark_dirty_info();
            let me = core.whoami;
            let followers: Vec<_> =
                core.acting_backfill.iter().filter(|s| **s != me).copied().collect();
            for to in followers {
                if let Some(info) = core.peer_info.get_mut(&to) {
                    info.last_update = version;
                    if *oid <= info.last_backfill {
                        core.peer_missing.entry(to).or_default().add_next_event(&entry);
                    }
                }
                let message = LogMessage {
                    info: core.info.clone(),
                    log: core.log.wire_after(since),
                    missing: Default::default(),
                    past_intervals: Default::default(),
                    lease: None,
                };
                messages.push((to, core.epoch, PeerMessage::Log(Box::new(message))));
            }
        }
        // Like a write, not when it is durable here: a write of another object that comes next must not
        // come there before it.
        for (to, epoch, message) in messages {
            self.host.send_osd(to.osd, self.peer_message(to, epoch, message));
        }
        self.contexts.forget(oid);
        self.recovery.unfound.borrow_mut().remove(oid);
        self.perform(Vec::new(), t);
        true
    }
}
