//! `pg ...`: statistics of PGs, whole and in parts (`process_pg_map_command` in
//! `src/mon/PGMap.cc` at v16.2).

use std::collections::BTreeSet;

use bytes::Bytes;
use command::{Align, CommandMap, CommandReply, Format, TextTable};
use denc::Writer;
use maps::pgmap::{OMAP_NOTE, PgMap, Stuck};
use types::osd::{PgStat, pg_state};
use types::{OsdId, PgId, UTime};

use super::form::{parse_osd_id, pg_info, pg_info_as, with_line_break, word};
use super::{EAGAIN, EINVAL, ENOENT};
use crate::daemon::Mgr;
use crate::text::timespan;

/// Every state there is, for the list of choices.
const ALL_STATES: u64 = 0xffff_ffff;

/// Answers what is about the PGs; `None`: not such a command.
pub(super) fn run(mgr: &Mgr, map: &CommandMap) -> Option<CommandReply> {
    let cluster = mgr.cluster.borrow();
    let pgs = &cluster.pg_map;
    let is_json = !map.format().is_plain();
    Some(match map.prefix() {
        "pg stat" if is_json => with_line_break(pg_info(mgr, map, |f| {
            f.object("pg_summary", |f| pgs.digest.dump_oneline(f));
        })),
        "pg stat" => CommandReply::data(format!("{}\n", pgs.digest.oneline().trim_end())),
        "pg getmap" => {
            let mut w = Writer::new();
            w.put(pgs);
            let text = format!("got pgmap version {}", pgs.version);
            CommandReply { outs: text, ..CommandReply::data(w.into_bytes()) }
        }
        "pg dump" => dump(mgr, pgs, map, map.format()),
        "pg dump_json" | "pg dump_pools_json" => {
            let format = if is_json { map.format() } else { Format::Json };
            dump(mgr, pgs, map, format)
        }
        "pg ls" | "pg ls-by-pool" | "pg ls-by-osd" | "pg ls-by-primary" => {
            match ls(mgr, pgs, map) {
                Ok(reply) => reply,
                // The document has begun when the arguments are looked at.
                Err(reply) if is_json => {
                    CommandReply { outb: pg_info(mgr, map, |_| {}).outb, ..reply }
                }
                Err(reply) => reply,
            }
        }
        "pg dump_stuck" => dump_stuck(mgr, pgs, map),
        "pg debug" if is_json => {
            let answer = debug(pgs, map);
            let document = pg_info(mgr, map, |_| {});
            CommandReply::data([answer.outb, Bytes::from_static(b"\n"), document.outb].concat())
        }
        "pg debug" => debug(pgs, map),
        "osd perf" if is_json => with_line_break(pg_info(mgr, map, |f| {
            f.object("osdstats", |f| pgs.dump_osd_perf(f));
        })),
        "osd perf" => CommandReply::data(pgs.osd_perf()),
        "osd blocked-by" if is_json => with_line_break(pg_info(mgr, map, |f| {
            f.object("osd_blocked_by", |f| pgs.dump_blocked_by(f));
        })),
        "osd blocked-by" => CommandReply::data(pgs.blocked_by()),
        _ => return None,
    })
}

fn dump(mgr: &Mgr, pgs: &PgMap, map: &CommandMap, format: Format) -> CommandReply {
    let mut what: BTreeSet<String> =
        map.strings("dumpcontents").unwrap_or_default().into_iter().collect();
    match map.prefix() {
        "pg dump_pools_json" => what = ["pools".to_owned()].into(),
        "pg dump_json" => what = ["all".to_owned()].into(),
        _ => {}
    }
    if what.is_empty() {
        what.insert("all".to_owned());
    }
    let wants = |part: &str| what.contains(part);
    let reply = if format.is_plain() {
        let mut out = String::new();
        let mut note = true;
        if wants("all") {
            out += &pgs.print();
        } else if wants("summary") || wants("sum") {
            out += &pgs.print_basic();
            out += &pgs.print_pg_sum(true);
            out += &pgs.print_osd_sum();
        } else {
            note = wants("pgs") || wants("pools");
            if wants("pgs_brief") {
                out += &pgs.print_pg_stats(pgs.pg_stat.keys(), true);
            }
            if wants("pgs") {
                out += &pgs.print_pg_stats(pgs.pg_stat.keys(), false);
            }
            if wants("pools") {
                out += &pgs.print_pool_stats(!wants("pgs"));
            }
            if wants("osds") {
                out += &pgs.print_osd_stats();
            }
        }
        if note {
            out += OMAP_NOTE;
        }
        CommandReply::data(out)
    } else {
        pg_info_as(mgr, format, |f| {
            if wants("all") {
                f.object("pg_map", |f| pgs.dump(f, true));
            } else if wants("summary") || wants("sum") {
                f.object("pg_map", |f| pgs.dump_basic(f));
            } else {
                if wants("pools") {
                    pgs.dump_pool_stats(f);
                }
                if wants("osds") {
                    pgs.dump_osd_stats(f, true);
                }
                if wants("pgs") {
                    pgs.dump_pg_stats(f, false);
                }
                if wants("pgs_brief") {
                    pgs.dump_pg_stats(f, true);
                }
                if wants("delta") {
                    f.object("delta", |f| pgs.dump_delta(f));
                }
            }
        })
    };
    let what: Vec<String> = what.into_iter().collect();
    CommandReply { outs: format!("dumped {}", what.join(",")), ..reply }
}

fn bad(error: impl ToString) -> CommandReply {
    CommandReply::error(EINVAL, error.to_string())
}

/// `None`: all states.
fn states_of(map: &CommandMap) -> Result<Option<Vec<u64>>, CommandReply> {
    let names = map.strings("states").map_err(bad)?;
    if names.is_empty() || names.iter().any(|name| name == "all") {
        return Ok(None);
    }
    let parse = |name: &String| {
        pg_state::parse_state(name).ok_or_else(|| {
            bad(format!(
                "'{name}' is not a valid pg state, available choices: {}",
                pg_state::state_string(ALL_STATES)
            ))
        })
    };
    names.iter().rev().map(parse).collect::<Result<_, _>>().map(Some)
}

fn ls(mgr: &Mgr, pgs: &PgMap, map: &CommandMap) -> Result<CommandReply, CommandReply> {
    let osdmap = mgr.osdmaps.current();
    let mut pool = map.opt_int("pool").map_err(bad)?;
    if map.prefix() == "pg ls-by-pool" {
        let name = map.string("poolstr").map_err(bad)?;
        pool =
            Some(osdmap.lookup_pool(&name).ok_or_else(|| {
                CommandReply::error(ENOENT, format!("pool {name} does not exist"))
            })?);
    }
    let mut osd = None;
    if map.prefix() == "pg ls-by-osd" || map.prefix() == "pg ls-by-primary" {
        let text = word(map, "osd");
        let id =
            parse_osd_id(&text).ok_or_else(|| bad(format!("osd id '{text}' is not a valid id")))?;
        osd = Some(id);
    }
    if let Some(pool) = pool.filter(|id| osdmap.pool(*id).is_none()) {
        return Err(CommandReply::error(ENOENT, format!("pool {pool} does not exist")));
    }
    if let Some(osd) = osd.filter(|osd| !osdmap.is_up(*osd)) {
        return Err(CommandReply::error(EAGAIN, format!("osd {osd} is not up")));
    }
    let states = states_of(map)?;
    let by_primary = map.prefix() == "pg ls-by-primary";
    let serves = |stat: &PgStat, osd: OsdId| {
        if by_primary {
            stat.acting_primary == osd
        } else {
            stat.acting.contains(&osd) || stat.up.contains(&osd)
        }
    };
    let found: BTreeSet<PgId> = pgs
        .pg_stat
        .iter()
        .filter(|(pgid, _)| pool.is_none_or(|pool| pgid.pool_id() == pool))
        .filter(|(_, stat)| osd.is_none_or(|osd| serves(stat, osd)))
        .filter(|(_, stat)| match &states {
            None => true,
            Some(bits) => bits.iter().any(|bit| match bit {
                0 => stat.state == 0,
                bit => stat.state & bit != 0,
            }),
        })
        .map(|(pgid, _)| *pgid)
        .collect();
    if !map.format().is_plain() {
        return Ok(pg_info(mgr, map, |f| {
            if !found.is_empty() {
                pgs.dump_some_pg_stats(f, "pg_stats", &found, false);
            }
        }));
    }
    if found.is_empty() {
        return Ok(CommandReply::data(Bytes::new()));
    }
    let now = UTime::from_duration(mgr.env.wall_clock());
    Ok(CommandReply::data(ls_table(pgs, &found, now)))
}

/// `[1,0,NONE]p1`.
fn placement(osds: &[OsdId], primary: OsdId) -> String {
    let names: Vec<String> = osds
        .iter()
        .map(|osd| if *osd == OsdId::MAX { "NONE".to_owned() } else { osd.to_string() })
        .collect();
    format!("[{}]p{primary}", names.join(","))
}

fn ls_table(pgs: &PgMap, found: &BTreeSet<PgId>, now: UTime) -> String {
    let mut table = TextTable::new();
    table.define_column("PG", Align::Left, Align::Left);
    for heading in [
        "OBJECTS",
        "DEGRADED",
        "MISPLACED",
        "UNFOUND",
        "BYTES",
        "OMAP_BYTES*",
        "OMAP_KEYS*",
        "LOG",
        "STATE",
        "SINCE",
        "VERSION",
        "REPORTED",
        "UP",
        "ACTING",
        "SCRUB_STAMP",
        "DEEP_SCRUB_STAMP",
    ] {
        table.define_column(heading, Align::Left, Align::Right);
    }
    for (pgid, stat) in found.iter().filter_map(|pgid| Some((pgid, pgs.pg_stat.get(pgid)?))) {
        let sum = &stat.stats.sum;
        table.row([
            pgid.to_string(),
            sum.num_objects.to_string(),
            sum.num_objects_degraded.to_string(),
            sum.num_objects_misplaced.to_string(),
            sum.num_objects_unfound.to_string(),
            sum.num_bytes.to_string(),
            sum.num_omap_bytes.to_string(),
            sum.num_omap_keys.to_string(),
            stat.log_size.to_string(),
            pg_state::state_string(stat.state),
            timespan(now.since(stat.last_change)),
            stat.version.to_string(),
            format!("{}:{}", stat.reported_epoch, stat.reported_seq),
            placement(&stat.up, stat.up_primary),
            placement(&stat.acting, stat.acting_primary),
            stat.last_scrub_stamp.to_string(),
            stat.last_deep_scrub_stamp.to_string(),
        ]);
    }
    format!("{table}{OMAP_NOTE}")
}

fn dump_stuck(mgr: &Mgr, pgs: &PgMap, map: &CommandMap) -> CommandReply {
    let names = match map.strings("stuckops") {
        Ok(names) => names,
        Err(error) => return bad(error),
    };
    let threshold = match map.opt_int("threshold") {
        Ok(Some(seconds)) => u64::try_from(seconds).unwrap_or(0),
        Ok(None) => mgr.config.uint("mon_pg_stuck_threshold"),
        Err(error) => return bad(error),
    };
    let mut kinds = Vec::new();
    for name in &names {
        kinds.push(match name.as_str() {
            "inactive" => Stuck::Inactive,
            "unclean" => Stuck::Unclean,
            "undersized" => Stuck::Undersized,
            "degraded" => Stuck::Degraded,
            "stale" => Stuck::Stale,
            "peering" => Stuck::Peering,
            other => return bad(format!("Unknown type: {other}")),
        });
    }
    if kinds.is_empty() {
        kinds.push(Stuck::Unclean);
    }
    let now = UTime::from_duration(mgr.env.wall_clock());
    let cutoff = now.minus(std::time::Duration::from_secs(threshold));
    let stuck = pgs.stuck(&kinds, cutoff);
    let reply = if !map.format().is_plain() {
        with_line_break(pg_info(mgr, map, |f| {
            pgs.dump_some_pg_stats(f, "stuck_pg_stats", &stuck, false);
        }))
    } else if stuck.is_empty() {
        CommandReply::data("")
    } else {
        CommandReply::data(pgs.print_pg_stats(&stuck, true))
    };
    CommandReply { outs: "ok".to_owned(), ..reply }
}

fn debug(pgs: &PgMap, map: &CommandMap) -> CommandReply {
    let any = |count: fn(&PgStat) -> i64| pgs.pg_stat.values().any(|stat| count(stat) > 0);
    let yes = match map.string("debugop").as_deref() {
        Ok("unfound_objects_exist") => any(|stat| stat.stats.sum.num_objects_unfound),
        _ => any(|stat| stat.stats.sum.num_objects_degraded),
    };
    CommandReply::data(if yes { "TRUE" } else { "FALSE" })
}
