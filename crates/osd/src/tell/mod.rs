//! What an OSD answers to operators: `ceph tell osd.N ...`, `ceph daemon osd.N ...` on its admin
//! socket, and `ceph pg ID ...` (`OSD::asok_command` in `src/osd/OSD.cc`,
//! `src/common/admin_socket.cc` at v16.2).
//!
//! * `table`: signatures. * `process`: version, status, help. * `counters`: counters.
//! * `ops`: ops under way. * `bench`: the store's speed. * `inspect`: watchers, maps, heartbeats.
//!
//! Whoever calls [`run`] has checked that the sender may (its caps allow all, or it came by the
//! admin socket). What the commands need of the OSD is [`Target`]; `daemon` gives it.

mod bench;
pub mod counters;
mod daemon;
mod damage;
mod inspect;
mod ops;
mod process;
mod table;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::rc::Rc;

use bstr::{BString, ByteSlice};
use bytes::Bytes;
use command::{ArgValue, BadArgument, CommandMap, CommandReply};
use config::Config;
use env::{Env, LocalFuture};
use maps::OsdMap;
use store::ObjectStore;
use types::osd::{OsdSuperblock, PingTimes, WatchItem};
use types::{Errno, HObject, OsdId, PgId, SpgId, UTime};

use crate::osd::fullness::Fullness;
use crate::osd::state_times::StateTimes;
use crate::osd::stats::Counters;
use crate::osd::tracker::Tracker;
use crate::pg::host::LogLevel;
use crate::pg::reserver::Stand;
use crate::pg::state_history::Piece;

pub use table::{admin_table, table};

/// The version Ceph's tools know us by.
pub const VERSION: &str = command::version::SHORT;

/// What `ceph versions` shows of us.
pub fn version_text() -> String {
    command::version::long()
}

/// What this OSD is for a PG.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It leads.
    Primary,
    /// It follows.
    Replica,
    /// Neither: a copy that may go.
    Stray,
    /// The copy is being removed.
    Removing,
}

/// A PG as the commands list it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PgSummary {
    /// Which.
    pub pgid: SpgId,
    /// What we are in it.
    pub role: Role,
    /// Where its peering stands: `peering::State::name`.
    pub state: &'static str,
    /// Object contexts in memory.
    pub object_contexts: usize,
}

/// The OSD as its commands see it.
pub trait Target {
    /// Time and randomness.
    fn env(&self) -> &Env;
    /// Its options.
    fn config(&self) -> &Rc<Config>;
    /// Its store.
    fn store(&self) -> &Rc<dyn ObjectStore>;
    /// Its store, as far as objects of it can be made unreadable.
    fn injected(&self) -> &store::injected::InjectedErrors;
    /// Its primaries' PGs, when their next scrubs are due, and their deadlines.
    fn scheduled_scrubs(&self) -> Vec<(SpgId, UTime, UTime)>;
    /// Slots for recovery and backfill, as primary and for others: PG, priority, stand.
    fn reservations(&self) -> [Vec<(SpgId, u32, Stand)>; 2];
    /// Scrub slots taken: as primary, for others.
    fn scrub_slots_taken(&self) -> (u64, u64);
    /// What it counts.
    fn counters(&self) -> &Counters;
    /// How long its PGs were in which peering states.
    fn state_times(&self) -> &StateTimes;
    /// Pretends to be so full, for `count` writes or, if that is negative, until told otherwise.
    fn inject_full(&self, step: Fullness, count: i64);
    /// Writes a line into the cluster log.
    fn cluster_log(&self, level: LogLevel, text: String);
    /// Its ops.
    fn tracker(&self) -> &Rc<Tracker>;
    /// Who it is and which maps it has.
    fn superblock(&self) -> OsdSuperblock;
    /// Ceph's word for where it stands: `preboot`, `booting`, `active`, `stopping`...
    fn state(&self) -> &'static str;
    /// The newest map.
    fn osdmap(&self) -> Rc<OsdMap>;
    /// Its PGs, in order.
    fn pgs(&self) -> Vec<PgSummary>;
    /// The peering states its PGs are in, and those they have left.
    fn pg_states(&self) -> Vec<(SpgId, &'static str, Vec<Piece>)>;
    /// The watches on objects of its PGs.
    fn watchers(&self) -> Vec<(HObject, WatchItem)>;
    /// Whom it pings.
    fn heartbeat_peers(&self) -> Vec<OsdId>;
    /// How long pings take.
    fn ping_times(&self) -> BTreeMap<OsdId, PingTimes>;
    /// Frees what can be read again.
    fn drop_caches(&self);
    /// Reports statistics to the manager now; the sequence number of that report
    /// (`up_from` in the high half, as in `osd_stat_t`).
    fn flush_pg_stats(&self) -> u64;
    /// Tells the monitor now that it lives.
    fn send_beacon(&self);
    /// Completes when it has the newest map the monitor has.
    fn latest_osdmap(&self) -> LocalFuture<()>;
    /// A PG's answer to `query`, `list_unfound` or `mark_unfound_lost` (`map.prefix()` is one of
    /// these); `None` if it has no such PG.
    fn pg_command(&self, pgid: PgId, map: &CommandMap) -> Option<LocalFuture<CommandReply>>;
}

fn refused(errno: Errno, text: impl Into<String>) -> CommandReply {
    CommandReply::error(errno.0, text)
}

fn bad(error: BadArgument) -> CommandReply {
    refused(Errno::EINVAL, error.to_string())
}

/// Answers a command as it came: the pieces of a JSON text, and input that no command here reads.
/// On the admin socket (`from_socket`) a bare word such as `version` will do.
pub fn run(
    target: Rc<dyn Target>,
    mut cmd: Vec<BString>,
    _input: Bytes,
    from_socket: bool,
) -> LocalFuture<CommandReply> {
    if from_socket && cmd.first().is_some_and(|text| !text.trim_ascii_start().starts_with(b"{")) {
        let words = cmd.concat();
        let prefix = words.to_str_lossy();
        cmd = vec![serde_json::json!({ "prefix": prefix.trim() }).to_string().into()];
    }
    match CommandMap::parse(&cmd) {
        Ok(map) => Box::pin(run_map(target, map)),
        Err(error) => Box::pin(std::future::ready(refused(Errno::EINVAL, error.to_string()))),
    }
}

/// Answers a command.
pub async fn run_map(target: Rc<dyn Target>, map: CommandMap) -> CommandReply {
    if !map.has_prefix() {
        return refused(Errno::EINVAL, "invalid json, no prefix");
    }
    let table = table();
    let fits: Vec<bool> = table
        .iter()
        .filter(|command| command.prefix() == map.prefix())
        .map(|command| map.check(command).is_ok())
        .collect();
    if fits.is_empty() {
        let text = format!("unknown command prefix {}", map.prefix());
        return refused(Errno::EINVAL, text);
    }
    // Commands of one name differ in their arguments: one of them must fit.
    if !fits.contains(&true) {
        return refused(Errno::EINVAL, "invalid command json");
    }
    let answered = command::admin_command(&map, &table);
    if let Some(reply) = answered.or_else(|| config::admin_command(target.config(), &map)) {
        return reply;
    }
    answer(&*target, &map).await.unwrap_or_else(bad)
}

async fn answer(target: &dyn Target, map: &CommandMap) -> Result<CommandReply, BadArgument> {
    let format = map.format();
    Ok(match map.prefix() {
        "status" => process::status(target, format),
        "heap" => command::heap(),
        prefix if perf::answers(prefix) => counters::command(target, map).await?,
        "ops" | "dump_ops_in_flight" => ops::in_flight(target, map)?,
        "dump_blocked_ops" => ops::blocked(target, map)?,
        "dump_historic_ops" => ops::historic(target, map, false)?,
        "dump_historic_ops_by_duration" => ops::historic(target, map, true)?,
        "dump_historic_slow_ops" => ops::historic_slow(target, map)?,
        "bench" => bench::run(target, map).await?,
        "flush_pg_stats" => CommandReply::data(target.flush_pg_stats().to_string()),
        "send_beacon" => {
            target.send_beacon();
            CommandReply::default()
        }
        "get_latest_osdmap" => {
            target.latest_osdmap().await;
            CommandReply::default()
        }
        "cache drop" => {
            target.drop_caches();
            CommandReply::default()
        }
        "cache status" => inspect::cache_status(target, format),
        "dump_pg_recovery_stats" => inspect::state_times(target, format),
        "reset_pg_recovery_stats" => {
            target.state_times().reset();
            CommandReply::default()
        }
        "compact" => process::compact(target, format).await,
        "cluster_log" => process::cluster_log(target, map)?,
        "injectfull" => process::injectfull(target, map)?,
        "dump_watchers" => inspect::watchers(target, format),
        "dump_blocklist" => inspect::blocklist(target, format),
        "dump_osd_network" => inspect::network(target, map)?,
        "dump_scrubs" => inspect::scrubs(target, format),
        "dump_recovery_reservations" => inspect::reservations(target, format),
        "dump_scrub_reservations" => inspect::scrub_slots(target, format),
        "dump_pgstate_history" => inspect::pg_states(target, format),
        "get_mapped_pools" => inspect::mapped_pools(target, format),
        "list_devices" => inspect::devices(format),
        prefix if damage::PREFIXES.contains(&prefix) => damage::run(target, map).await?,
        "smart" => inspect::smart(),
        "pg" => {
            let mut map = map.clone();
            map.set("prefix", ArgValue::String(map.string("cmd")?));
            to_pg(target, &map).await?
        }
        _ => to_pg(target, map).await?,
    })
}

/// A command for one PG, which must have its primary here.
async fn to_pg(target: &dyn Target, map: &CommandMap) -> Result<CommandReply, BadArgument> {
    let Some(text) = map.opt_string("pgid")? else {
        return Ok(refused(Errno::EINVAL, "no pgid specified"));
    };
    let Ok(pgid) = text.parse::<PgId>() else {
        return Ok(refused(Errno::EINVAL, format!("couldn't parse pgid '{text}'")));
    };
    let role = target.pgs().into_iter().find(|pg| pg.pgid.pgid == pgid).map(|pg| pg.role);
    let absent = || refused(Errno::ENOENT, format!("i don't have pgid {pgid}"));
    match role {
        None => return Ok(absent()),
        Some(Role::Primary) => {}
        Some(_) => {
            return Ok(refused(Errno::EAGAIN, format!("not primary for pgid {pgid}")));
        }
    }
    match target.pg_command(pgid, map) {
        Some(reply) => Ok(reply.await),
        None => Ok(absent()),
    }
}
