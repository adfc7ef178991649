//! What the OSD knows of its surroundings: watchers, the blocklist, heartbeats, pools, devices.

use std::collections::BTreeSet;

use command::{BadArgument, CommandMap, CommandReply, Format, Formatter};
use types::OsdId;
use types::entity::kind_name;
use types::osd::osd_stat::Minutes;
use types::time::Calendar;

use super::Target;

pub(super) fn cache_status(target: &dyn Target, format: Format) -> CommandReply {
    let contexts: usize = target.pgs().iter().map(|pg| pg.object_contexts).sum();
    let mut f = Formatter::new(format);
    f.object("cache_status", |f| {
        f.dump_unsigned("object_ctx", contexts as u64)
    });
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
    for (name, entries) in [
        ("blocklist", &map.blocklist),
        ("range_blocklist", &map.range_blocklist),
    ] {
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
    f.array("mapped_pools", |f| {
        pools
            .iter()
            .for_each(|pool| f.dump_unsigned("pool_id", *pool))
    });
    CommandReply::formatted(f)
}

/// Past states are not kept: each PG's list of them is empty.
pub(super) fn pg_states(target: &dyn Target, format: Format) -> CommandReply {
    let mut f = Formatter::new(format);
    f.object("pgstate_history", |f| {
        f.array("pgs", |f| {
            for pg in target.pgs() {
                f.object("pg", |f| {
                    f.dump_stream("pg", pg.pgid);
                    f.dump_string("currently", pg.state);
                    f.array("history", |_| {});
                });
            }
        });
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

/// One interface of one peer.
struct Ping<'a> {
    worst: u32,
    osd: OsdId,
    back: bool,
    last_update: u32,
    average: &'a Minutes,
    min: &'a Minutes,
    max: &'a Minutes,
    last: u32,
}

/// Heartbeats that took at least `value` milliseconds, slowest first. The default is where health
/// warnings begin: `mon_warn_on_slow_ping_time`, or a share of the grace.
pub(super) fn network(target: &dyn Target, map: &CommandMap) -> Result<CommandReply, BadArgument> {
    let config = target.config();
    let threshold_us = match map.opt_int("value")? {
        Some(ms) => u64::try_from(ms).unwrap_or(0).saturating_mul(1000),
        None => {
            let ms = match config.float("mon_warn_on_slow_ping_time") {
                0.0 => {
                    config.int("osd_heartbeat_grace") as f64
                        * config.float("mon_warn_on_slow_ping_ratio")
                        * 1000.0
                }
                ms => ms,
            };
            (ms * 1000.0).round() as u64
        }
    };
    let times = target.ping_times();
    let mut pings = Vec::new();
    for (&osd, t) in times.iter().filter(|(_, t)| t.last_update != 0) {
        pings.push(Ping {
            worst: worst(&t.back_pingtime),
            osd,
            back: true,
            last_update: t.last_update,
            average: &t.back_pingtime,
            min: &t.back_min,
            max: &t.back_max,
            last: t.back_last,
        });
        if t.front_last != 0 {
            pings.push(Ping {
                worst: worst(&t.front_pingtime),
                osd,
                back: false,
                last_update: t.last_update,
                average: &t.front_pingtime,
                min: &t.front_min,
                max: &t.front_max,
                last: t.front_last,
            });
        }
    }
    pings.retain(|p| u64::from(p.worst) >= threshold_us);
    pings.sort_by_key(|p| std::cmp::Reverse((p.worst, p.osd, p.back)));
    let now = target.env().wall_clock().as_secs();
    let stale = config.uint("osd_heartbeat_stale");
    let whoami = target.superblock().whoami;
    let mut f = Formatter::new(map.format());
    f.object("network_ping_times", |f| {
        f.dump_unsigned("threshold", threshold_us / 1000);
        f.array("entries", |f| {
            for p in &pings {
                f.object("entry", |f| {
                    f.dump_string("last update", date_text(p.last_update));
                    f.dump_bool("stale", now.saturating_sub(p.last_update.into()) > stale);
                    f.dump_int("from osd", whoami);
                    f.dump_int("to osd", p.osd);
                    f.dump_string("interface", if p.back { "back" } else { "front" });
                    dump_minutes(f, "average", p.average);
                    dump_minutes(f, "min", p.min);
                    dump_minutes(f, "max", p.max);
                    f.dump_unquoted("last", millis(p.last));
                });
            }
        });
    });
    Ok(CommandReply::formatted(f))
}

fn worst(minutes: &Minutes) -> u32 {
    minutes.0.into_iter().max().unwrap_or(0)
}

fn dump_minutes(f: &mut Formatter, name: &str, minutes: &Minutes) {
    f.object(name, |f| {
        for (name, value) in ["1min", "5min", "15min"].into_iter().zip(minutes.0) {
            f.dump_unquoted(name, millis(value));
        }
    });
}

/// Microseconds as milliseconds with three decimals.
fn millis(us: u32) -> String {
    format!("{}.{:03}", us / 1000, us % 1000)
}

/// As C's `ctime` writes a date, in UTC.
fn date_text(sec: u32) -> String {
    const DAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let c = Calendar::of(sec);
    let day = DAYS.get(c.weekday as usize).copied().unwrap_or_default();
    let month = MONTHS
        .get((c.month as usize).wrapping_sub(1))
        .copied()
        .unwrap_or_default();
    format!(
        "{day} {month} {:>2} {:02}:{:02}:{:02} {}",
        c.day, c.hour, c.minute, c.second, c.year
    )
}
