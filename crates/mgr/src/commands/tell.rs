//! `ceph tell mgr.x ...` and the admin socket: about the process itself.

use bstr::BString;
use command::{BadArgument, CommandMap, CommandReply, CommandTable, Formatter, Signature};
use maps::ping_times::{self, Ping};

use crate::counters;
use crate::daemon::Mgr;
use crate::health;

const EINVAL: i32 = 22;

fn signatures() -> CommandTable {
    let own = [
        ("mgr_status", "show the state of this manager"),
        ("status", "show the state of this manager"),
    ];
    let own = own.map(|(sig, help)| Signature::new(sig, help, "mgr", "r", 0));
    let network = Signature::new(
        "dump_osd_network name=value,type=CephInt,req=false",
        "list slow heartbeats between OSDs",
        "mgr",
        "r",
        0,
    );
    let own = own.into_iter().chain([network]);
    let common = command::admin_signatures().into_iter();
    let common = common.chain(config::admin_signatures()).chain(perf::signatures());
    let mut all: Vec<Signature> = common.chain(own).collect();
    all.sort_by_key(Signature::prefix);
    let mut table = CommandTable::new();
    all.into_iter().for_each(|command| table.push(command));
    table
}

fn refused(error: BadArgument) -> CommandReply {
    CommandReply::error(EINVAL, error.to_string())
}

/// Runs a command about the process.
pub(crate) fn tell(mgr: &Mgr, cmd: &[BString]) -> CommandReply {
    let map = match CommandMap::parse(cmd) {
        Ok(map) => map,
        Err(error) => return CommandReply::error(EINVAL, error.to_string()),
    };
    let table = signatures();
    if let Some(Err(error)) = table.find(map.prefix()).map(|command| map.check(command)) {
        return CommandReply::error(EINVAL, error.to_string());
    }
    let answered = command::admin_command(&map, &table);
    if let Some(reply) = answered.or_else(|| config::admin_command(&mgr.config, &map)) {
        return reply;
    }
    let mut f = Formatter::new(map.format());
    match map.prefix() {
        prefix if perf::answers(prefix) => {
            let reset = |group: &str| mgr.counters.reset(group);
            return perf::command(&map, counters::list(mgr), &[], reset).unwrap_or_else(refused);
        }
        "dump_osd_network" => {
            if let Err(error) = network(mgr, &map, &mut f) {
                return CommandReply::error(EINVAL, error.to_string());
            }
        }
        "mgr_status" | "status" => status(mgr, &mut f),
        _ => return CommandReply::error(EINVAL, "unrecognized command"),
    }
    CommandReply::formatted(f)
}

/// Heartbeats between OSDs that took at least `value` milliseconds.
fn network(mgr: &Mgr, map: &CommandMap, f: &mut Formatter) -> Result<(), BadArgument> {
    let threshold = match map.opt_int("value")? {
        Some(ms) => u64::try_from(ms).unwrap_or(0).saturating_mul(1000),
        None => health::slow_ping_us(&mgr.config),
    };
    let stale = mgr.config.uint("osd_mon_heartbeat_stat_stale");
    let now = mgr.env.wall_clock().as_secs();
    let cluster = mgr.cluster.borrow();
    let fresh = |p: &Ping<'_>| now.saturating_sub(p.last_update.into()) <= stale;
    let all = cluster.pg_map.osd_stat.iter();
    let pings = all.flat_map(|(osd, stat)| ping_times::pings_of(*osd, &stat.hb_pingtime));
    ping_times::dump(f, pings.filter(fresh).collect(), threshold, now, stale);
    Ok(())
}

fn status(mgr: &Mgr, f: &mut Formatter) {
    let map = mgr.mgrmap.borrow();
    f.object("mgr_status", |f| {
        f.dump_stream("name", mgr.id());
        f.dump_unsigned("gid", mgr.monc.global_id());
        f.dump_bool("active", mgr.active.get());
        f.dump_bool("available", mgr.active.get() && map.available);
        f.dump_unsigned("mgrmap_epoch", map.epoch);
        f.dump_bool("initialized", mgr.active.get());
        let osdmap = mgr.osdmaps.current();
        f.dump_unsigned("osdmap_epoch", osdmap.epoch);
        let (total, serving) = mgr.cluster.borrow().serving_pgs(&osdmap);
        f.dump_unsigned("num_pgs", total);
        f.dump_unsigned("num_pgs_serving", serving);
        f.dump_unsigned("num_connections", mgr.messenger.connections().len() as u64);
    });
}
