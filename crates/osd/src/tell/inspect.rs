//! What the OSD knows of its surroundings: watchers, the blocklist, heartbeats, pools, devices.

use std::collections::BTreeSet;

use command::{BadArgument, CommandMap, CommandReply, Format, Formatter};
use maps::ping_times;
use types::UTime;
use types::entity::kind_name;

use super::Target;
use crate::pg::reserver::Stand;
use crate::pg::state_history::Piece;

pub(super) fn cache_status(target: &dyn Target, format: Format) -> CommandReply {
    let contexts: usize = target.pgs().iter().map(|pg| pg.object_contexts).sum();
    let mut f = Formatter::new(format);
    f.object("cache_status", |f| f.dump_unsigned("object_ctx", contexts as u64));
    CommandReply::formatted(f)
}

pub(super) fn watchers(target: &dyn Target, format: Format) -> CommandReply {
    let mut f = Formatter::new(format);
    f.array("watchers", |f| {
        for (oid, watch) in target.watchers() {
            f.object("watch", |f| {
                f.dump_string("namespace", oid.namespace.to_string());
                f.dump_string("object", oid.name.to_string());
                f.object("entity_name", |f| {
                    f.dump_string("type", kind_name(watch.name.kind));
                    f.dump_int("num", watch.name.num);
                });
                f.dump_unsigned("cookie", watch.cookie);
                f.dump_unsigned("timeout", watch.timeout_seconds);
                f.object("entity_addr_t", |f| maps::osdmap::dump_addr(f, &watch.addr));
            });
        }
    });
    CommandReply::formatted(f)
}

/// Two documents, one behind the other: single addresses, and ranges of them.
pub(super) fn blocklist(target: &dyn Target, format: Format) -> CommandReply {
    let map = target.osdmap();
    let mut f = Formatter::new(format);
    for (name, entries) in
        [("blocklist", &map.blocklist), ("range_blocklist", &map.range_blocklist)]
    {
        f.array(name, |f| {
            for (addr, until) in entries {
                f.object("entry", |f| {
                    f.object("entity_addr_t", |f| maps::osdmap::dump_addr(f, addr));
                    f.dump_stream("expire_time", until);
                });
            }
        });
    }
    CommandReply::formatted(f)
}

pub(super) fn mapped_pools(target: &dyn Target, format: Format) -> CommandReply {
    let pools: BTreeSet<u64> = target.pgs().iter().map(|pg| pg.pgid.pgid.pool).collect();
    let mut f = Formatter::new(format);
    f.array("mapped_pools", |f| pools.iter().for_each(|pool| f.dump_unsigned("pool_id", *pool)));
    CommandReply::formatted(f)
}

/// Where PGs' peering stands and has stood.
pub(super) fn pg_states(target: &dyn Target, format: Format) -> CommandReply {
    let mut f = Formatter::new(format);
    f.object("pgstate_history", |f| {
        f.array("pgs", |f| {
            for (pgid, state, pieces) in target.pg_states() {
                f.object("pg", |f| {
                    f.dump_stream("pg", pgid);
                    f.dump_string("currently", state);
                    f.array("history", |f| {
                        pieces.iter().for_each(|piece| dump_piece(f, piece));
                    });
                });
            }
        });
    });
    CommandReply::formatted(f)
}

fn dump_piece(f: &mut Formatter, piece: &Piece) {
    f.object("epochs", |f| {
        f.dump_stream("epoch", piece.epoch);
        f.array("states", |f| {
            for stay in &piece.states {
                f.object("state", |f| {
                    f.dump_string("state", stay.state);
                    f.dump_stream("enter", stay.enter);
                    f.dump_stream("exit", stay.exit);
                });
            }
        });
    });
}

/// Peering states, how often PGs were in them and for how long.
pub(super) fn state_times(target: &dyn Target, format: Format) -> CommandReply {
    let mut f = Formatter::new(format);
    f.array("pg_recovery_stats", |f| {
        for (state, count) in target.state_times().counts() {
            f.object("recovery_state", |f| {
                f.dump_unsigned("enter", count.entered);
                f.dump_unsigned("exit", count.left);
                f.dump_unsigned("events", count.steps);
                // Steps take no time of their own: what they wait for goes on beside them.
                f.dump_stream("event_time", UTime::default());
                f.dump_stream("total_time", UTime::from_duration(count.total));
                f.dump_stream("min_time", UTime::from_duration(count.min));
                f.dump_stream("max_time", UTime::from_duration(count.max));
                f.array("nested_states", |f| {
                    state.split('/').for_each(|part| f.dump_string("state", part));
                });
            });
        }
    });
    CommandReply::formatted(f)
}

/// When PGs are scrubbed next, soonest first.
pub(super) fn scrubs(target: &dyn Target, format: Format) -> CommandReply {
    let mut scrubs = target.scheduled_scrubs();
    scrubs.sort_by_key(|(pgid, due, _)| (*due, *pgid));
    let mut f = Formatter::new(format);
    f.array("scrubs", |f| {
        for (pgid, due, deadline) in scrubs {
            f.object("scrub", |f| {
                f.dump_stream("pgid", pgid);
                f.dump_stream("sched_time", due);
                f.dump_stream("deadline", deadline);
                f.dump_bool("forced", due.is_zero());
            });
        }
    });
    CommandReply::formatted(f)
}

pub(super) fn reservations(target: &dyn Target, format: Format) -> CommandReply {
    let (max, min) = (
        target.config().uint("osd_max_backfills"),
        target.config().int("osd_min_recovery_priority"),
    );
    let mut f = Formatter::new(format);
    f.object("reservations", |f| {
        for (name, slots) in
            ["local_reservations", "remote_reservations"].iter().zip(target.reservations())
        {
            f.object(name, |f| {
                f.dump_unsigned("max_allowed", max);
                f.dump_int("min_priority", min);
                for (list, held) in [("queues", false), ("in_progress", true)] {
                    f.array(list, |f| {
                        let of_list = |stand: Stand| match stand {
                            Stand::Granted => held,
                            Stand::Waiting => !held,
                            Stand::Preempted => false,
                        };
                        for (pgid, priority, _) in slots.iter().filter(|slot| of_list(slot.2)) {
                            f.object("item", |f| {
                                f.dump_stream("item", pgid);
                                f.dump_unsigned("prio", u64::from(*priority));
                                f.dump_bool("can_preempt", true);
                            });
                        }
                    });
                }
            });
        }
    });
    CommandReply::formatted(f)
}

pub(super) fn scrub_slots(target: &dyn Target, format: Format) -> CommandReply {
    let (local, remote) = target.scrub_slots_taken();
    let mut f = Formatter::new(format);
    f.object("scrub_reservations", |f| {
        f.dump_int("scrubs_local", local as i64);
        f.dump_int("scrubs_remote", remote as i64);
        f.dump_int("osd_max_scrubs", target.config().int("osd_max_scrubs"));
    });
    CommandReply::formatted(f)
}

/// The store does not know what hardware it is on.
pub(super) fn devices(format: Format) -> CommandReply {
    let mut f = Formatter::new(format);
    f.array("list_devices", |_| {});
    CommandReply::formatted(f)
}

/// As Ceph where there is no device to ask; always JSON.
pub(super) fn smart() -> CommandReply {
    CommandReply::data("{\n}")
}

/// Heartbeats that took at least `value` milliseconds, slowest first. The default is where health
/// warnings begin.
pub(super) fn network(target: &dyn Target, map: &CommandMap) -> Result<CommandReply, BadArgument> {
    let config = target.config();
    let threshold_us = match map.opt_int("value")? {
        Some(ms) => u64::try_from(ms).unwrap_or(0).saturating_mul(1000),
        None => ping_times::slow_threshold_us(
            config.float("mon_warn_on_slow_ping_time"),
            config.float("mon_warn_on_slow_ping_ratio"),
            config.float("osd_heartbeat_grace"),
        ),
    };
    let times = target.ping_times();
    let pings = ping_times::pings_of(target.superblock().whoami, &times).collect();
    let now = target.env().wall_clock().as_secs();
    let mut f = Formatter::new(map.format());
    ping_times::dump(&mut f, pings, threshold_us, now, config.uint("osd_heartbeat_stale"));
    Ok(CommandReply::formatted(f))
}
