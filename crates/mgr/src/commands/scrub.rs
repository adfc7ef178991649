//! What the manager passes on to OSDs: scrubs, repairs, forced recovery.

use std::collections::{BTreeMap, BTreeSet};

use command::{CommandMap, CommandReply};
use messages::{MOSDForceRecovery, MOSDScrub2, Message};
use msgr::Connection;
use types::entity::OSD;
use types::osd::{PgStat, pg_state};
use types::{OsdId, PgId, SpgId};

use super::form::osd_set;
use super::osd::parse_osds;
use super::{EAGAIN, EINVAL, ENOENT};
use crate::daemon::Mgr;

fn session_of(mgr: &Mgr, osd: OsdId) -> Option<Connection> {
    let is_its = |con: &Connection| {
        con.peer_kind() == OSD && con.peer_name().num == i64::from(osd) && con.is_connected()
    };
    mgr.messenger.connections().into_iter().rev().find(is_its)
}

/// The kind of scrub a command asks for: (repair, deep, word).
fn kind_of(prefix: &str) -> (bool, bool, &'static str) {
    if prefix.ends_with("repair") {
        (true, true, "repair")
    } else if prefix.ends_with("deep-scrub") {
        (false, true, "deep-scrub")
    } else {
        (false, false, "scrub")
    }
}

fn send_scrub(mgr: &Mgr, con: &Connection, pgs: Vec<SpgId>, repair: bool, deep: bool) {
    let epoch = mgr.osdmaps.epoch();
    let scrub = MOSDScrub2 { fsid: mgr.monc.fsid(), epoch, scrub_pgs: pgs, repair, deep };
    con.send(scrub.encode());
}

fn shard_of(mgr: &Mgr, pgid: PgId) -> Option<(OsdId, SpgId)> {
    let map = mgr.osdmaps.current();
    let places = map.pg_to_up_acting(pgid);
    let primary = places.acting_primary;
    let pool = map.pool(pgid.pool_id())?;
    let shard = map.shard_of(pool, &places.acting, primary).unwrap_or(types::pg::NO_SHARD);
    (primary >= 0).then_some((primary, SpgId { pgid, shard }))
}

/// `pg scrub`, `pg deep-scrub`, `pg repair`.
pub(super) fn of_pg(mgr: &Mgr, map: &CommandMap) -> CommandReply {
    let text = map.string("pgid").unwrap_or_default();
    let Ok(pgid) = text.parse::<PgId>() else {
        return CommandReply::error(EINVAL, format!("invalid pgid '{text}'"));
    };
    if !mgr.osdmaps.current().pg_exists(pgid) {
        return CommandReply::error(ENOENT, format!("pg {pgid} does not exist"));
    }
    let Some((primary, spg)) = shard_of(mgr, pgid) else {
        return CommandReply::error(EAGAIN, format!("pg {pgid} has no primary osd"));
    };
    let Some(con) = session_of(mgr, primary) else {
        let text = format!("pg {pgid} primary osd.{primary} is not currently connected");
        return CommandReply::error(EAGAIN, text);
    };
    let (repair, deep, word) = kind_of(map.prefix());
    send_scrub(mgr, &con, vec![spg], repair, deep);
    CommandReply::text(format!("instructing pg {pgid} on osd.{primary} to {word}"))
}

/// PGs by the OSD that leads them.
fn by_primary(mgr: &Mgr, pgs: impl IntoIterator<Item = PgId>) -> BTreeMap<OsdId, Vec<SpgId>> {
    let mut groups: BTreeMap<OsdId, Vec<SpgId>> = BTreeMap::new();
    for (osd, spg) in pgs.into_iter().filter_map(|pgid| shard_of(mgr, pgid)) {
        groups.entry(osd).or_default().push(spg);
    }
    groups
}

fn all_pgs(mgr: &Mgr) -> Vec<PgId> {
    mgr.cluster.borrow().pg_map.pg_stat.keys().copied().collect()
}

/// `osd scrub`, `osd deep-scrub`, `osd repair`.
pub(super) fn of_osds(mgr: &Mgr, map: &CommandMap) -> CommandReply {
    let osdmap = mgr.osdmaps.current();
    let word = map.string("who").unwrap_or_default();
    let mut osds = match parse_osds(&[word], &osdmap) {
        Ok(osds) => osds,
        Err(reply) => return reply,
    };
    if osds.len() > 1 {
        osds.retain(|osd| osdmap.is_up(*osd));
    }
    if let Some(osd) = osds.iter().find(|osd| !osdmap.is_up(**osd)) {
        return CommandReply::error(EAGAIN, format!("osd.{osd} is not up"));
    }
    let groups = by_primary(mgr, all_pgs(mgr));
    let (repair, deep, word) = kind_of(map.prefix());
    let (mut sent, mut failed) = (BTreeSet::new(), BTreeSet::new());
    for osd in osds {
        match session_of(mgr, osd) {
            Some(con) => {
                let pgs = groups.get(&osd).cloned().unwrap_or_default();
                send_scrub(mgr, &con, pgs, repair, deep);
                sent.insert(osd);
            }
            None => {
                failed.insert(osd);
            }
        }
    }
    if !failed.is_empty() {
        let text = format!("osd(s) {} not connected", osd_set(&failed));
        return CommandReply::error(EAGAIN, text);
    }
    CommandReply::text(format!("instructed osd(s) {} to {word}", osd_set(&sent)))
}

fn pgs_of_pools(mgr: &Mgr, map: &CommandMap) -> Result<Vec<PgId>, CommandReply> {
    let osdmap = mgr.osdmaps.current();
    let mut pgs = Vec::new();
    for name in map.strings("who").unwrap_or_default() {
        let id = osdmap
            .lookup_pool(&name)
            .ok_or_else(|| CommandReply::error(ENOENT, format!("unrecognized pool '{name}'")))?;
        let count = osdmap.pool(id).map_or(0, |pool| pool.pg_num);
        pgs.extend((0..count).map(|seed| PgId::new(id as u64, seed)));
    }
    Ok(pgs)
}

/// `osd pool scrub`, `osd pool deep-scrub`, `osd pool repair`.
pub(super) fn of_pools(mgr: &Mgr, map: &CommandMap) -> CommandReply {
    let pgs = match pgs_of_pools(mgr, map) {
        Ok(pgs) => pgs,
        Err(reply) => return reply,
    };
    let (repair, deep, _) = kind_of(map.prefix());
    for (osd, pgs) in by_primary(mgr, pgs) {
        match session_of(mgr, osd) {
            Some(con) => send_scrub(mgr, &con, pgs, repair, deep),
            None => return CommandReply::error(EAGAIN, format!("osd.{osd} is not connected")),
        }
    }
    CommandReply::text("")
}

/// Whether forcing would change something; else why not.
fn force_is_moot(stat: &PgStat, backfill: bool, cancel: bool) -> Option<&'static str> {
    let any = |bits: u64| stat.state & bits != 0;
    use pg_state::{
        BACKFILL_WAIT, BACKFILLING, DEGRADED, FORCED_BACKFILL, FORCED_RECOVERY, RECOVERING,
        RECOVERY_WAIT,
    };
    match (backfill, cancel) {
        (false, false) if !any(DEGRADED | RECOVERY_WAIT | RECOVERING) => {
            Some("doesn't require recovery")
        }
        (false, false) if any(FORCED_RECOVERY) => Some("recovery already forced"),
        (false, true) if !any(FORCED_RECOVERY) => Some("recovery not forced"),
        (true, false) if !any(DEGRADED | BACKFILL_WAIT | BACKFILLING) => {
            Some("doesn't require backfilling")
        }
        (true, false) if any(FORCED_BACKFILL) => Some("backfill already forced"),
        (true, true) if !any(FORCED_BACKFILL) => Some("backfill not forced"),
        _ => None,
    }
}

/// `[osd pool|pg] [cancel-]force-recovery|backfill`.
pub(super) fn force(mgr: &Mgr, map: &CommandMap) -> CommandReply {
    let prefix = map.prefix();
    let (backfill, cancel) = (prefix.ends_with("backfill"), prefix.contains("cancel"));
    let wanted: Result<Vec<PgId>, CommandReply> = if prefix.starts_with("osd pool") {
        pgs_of_pools(mgr, map)
    } else {
        let parse = |text: String| {
            text.parse::<PgId>()
                .map_err(|_| CommandReply::error(EINVAL, format!("invalid pgid '{text}'; ")))
        };
        map.strings("pgid").unwrap_or_default().into_iter().map(parse).collect()
    };
    let wanted = match wanted {
        Ok(wanted) => wanted,
        Err(reply) => return reply,
    };
    let mut outs = String::new();
    let mut chosen = Vec::new();
    let mut missing = false;
    {
        let cluster = mgr.cluster.borrow();
        for pgid in wanted {
            match cluster.pg_map.pg_stat.get(&pgid) {
                None => {
                    missing = true;
                    outs += &format!("pg {pgid} does not exist; ");
                }
                Some(stat) => match force_is_moot(stat, backfill, cancel) {
                    Some(why) => outs += &format!("pg {pgid} {why}; "),
                    None => chosen.push(pgid),
                },
            }
        }
    }
    let mut options =
        if backfill { MOSDForceRecovery::OFR_BACKFILL } else { MOSDForceRecovery::OFR_RECOVERY };
    if cancel {
        options |= MOSDForceRecovery::OFR_CANCEL;
    }
    let word = if backfill { "force-backfill" } else { "force-recovery" };
    let word = if cancel { format!("cancel-{word}") } else { word.to_owned() };
    for (osd, pgs) in by_primary(mgr, chosen) {
        for spg in &pgs {
            outs += &format!("instructing pg(s) {} on osd.{osd} to {word}; ", spg.pgid);
        }
        if let Some(con) = session_of(mgr, osd) {
            let message = MOSDForceRecovery { fsid: mgr.monc.fsid(), forced_pgs: pgs, options };
            con.send(message.encode());
        }
    }
    if missing {
        return CommandReply::error(ENOENT, outs);
    }
    CommandReply::text(outs)
}
