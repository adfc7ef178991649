//! `osd ...`: pools' activity, what may be stopped or destroyed, what OSDs do
//! (`src/mgr/DaemonServer.cc` and the status module at v16.2).

use std::collections::BTreeSet;

use bytes::Bytes;
use command::{CommandMap, CommandReply, Formatter};
use maps::OsdMap;
use maps::pgmap::PgMap;
use types::osd::pg_state;
use types::{OsdId, PgId};

use super::form::{dump_osds, osd_set, parse_osd_id, word};
use super::{EAGAIN, EBUSY, EINVAL, ENOENT};
use crate::daemon::Mgr;

/// `osd pool stats`.
pub(super) fn pool_stats(mgr: &Mgr, map: &CommandMap) -> CommandReply {
    let osdmap = mgr.osdmaps.current();
    let cluster = mgr.cluster.borrow();
    let digest = &cluster.pg_map.digest;
    let pools: Vec<i64> = match map.opt_string("pool_name") {
        Ok(Some(name)) => match osdmap.lookup_pool(&name) {
            Some(id) => vec![id],
            None => return CommandReply::error(ENOENT, format!("unrecognized pool '{name}'")),
        },
        _ => osdmap.pools.keys().copied().collect(),
    };
    if map.format().is_plain() {
        if pools.is_empty() {
            return CommandReply::data("there are no pools!");
        }
        let each = pools.iter().map(|id| digest.pool_io(&osdmap, *id));
        return CommandReply::data(each.collect::<String>());
    }
    let mut f = Formatter::new(map.format());
    f.array("pool_stats", |f| {
        pools.iter().for_each(|id| digest.dump_pool_io(&osdmap, *id, f));
    });
    CommandReply::formatted(f)
}

/// OSDs by the words of a command: ids, names, or all of them.
pub(super) fn parse_osds(words: &[String], map: &OsdMap) -> Result<BTreeSet<OsdId>, CommandReply> {
    let mut osds = BTreeSet::new();
    for word in words {
        if matches!(word.as_str(), "all" | "any" | "*") {
            return Ok(map.osds().collect());
        }
        let osd = parse_osd_id(word).ok_or_else(|| {
            let text = format!("invalid osd id '{word}'");
            CommandReply::error(EINVAL, text)
        })?;
        osds.insert(osd);
    }
    Ok(osds)
}

/// What becomes of PGs when OSDs stop.
#[derive(Default)]
struct Offline {
    osds: BTreeSet<OsdId>,
    ok: BTreeSet<PgId>,
    not_ok: BTreeSet<PgId>,
    unknown: BTreeSet<PgId>,
    no_pool: BTreeSet<PgId>,
    already_inactive: BTreeSet<PgId>,
    become_inactive: BTreeSet<PgId>,
    become_degraded: BTreeSet<PgId>,
    become_more_degraded: BTreeSet<PgId>,
}

impl Offline {
    fn check(osds: BTreeSet<OsdId>, map: &OsdMap, pgs: &PgMap) -> Offline {
        let mut report = Offline { osds, ..Offline::default() };
        for (pgid, stat) in &pgs.pg_stat {
            if stat.state == 0 {
                report.unknown.insert(*pgid);
                continue;
            }
            let degraded = stat.state & pg_state::DEGRADED != 0;
            let serving: BTreeSet<OsdId> = if degraded {
                stat.avail_no_missing.iter().map(|shard| shard.osd).collect()
            } else {
                stat.acting.iter().copied().collect()
            };
            let serving: BTreeSet<OsdId> =
                serving.into_iter().filter(|osd| *osd != OsdId::MAX).collect();
            let left = serving.difference(&report.osds).count();
            if left == serving.len() {
                continue;
            }
            let mut dangerous = false;
            let min_size = map.pool(pgid.pool_id()).map(|pool| usize::from(pool.min_size));
            if min_size.is_none() {
                dangerous |= report.no_pool.insert(*pgid);
            }
            if stat.state & pg_state::ACTIVE == 0 {
                dangerous |= report.already_inactive.insert(*pgid);
            }
            if min_size.is_some_and(|min| left < min) {
                dangerous |= report.become_inactive.insert(*pgid);
            }
            if dangerous {
                report.not_ok.insert(*pgid);
                continue;
            }
            report.ok.insert(*pgid);
            if degraded {
                report.become_more_degraded.insert(*pgid);
            } else {
                report.become_degraded.insert(*pgid);
            }
        }
        report
    }

    fn is_ok(&self) -> bool {
        self.not_ok.is_empty() && self.unknown.is_empty()
    }

    fn dump(&self, f: &mut Formatter) {
        f.object("ok_to_stop", |f| {
            f.dump_bool("ok_to_stop", self.is_ok());
            dump_osds(f, "osds", &self.osds);
            f.dump_unsigned("num_ok_pgs", self.ok.len() as u64);
            f.dump_unsigned("num_not_ok_pgs", self.not_ok.len() as u64);
            for (name, pgs) in [
                ("unknown_pgs", &self.unknown),
                ("bad_no_pool_pgs", &self.no_pool),
                ("bad_already_inactive", &self.already_inactive),
                ("bad_become_inactive", &self.become_inactive),
                ("ok_become_degraded", &self.become_degraded),
                ("ok_become_more_degraded", &self.become_more_degraded),
            ] {
                if !pgs.is_empty() {
                    f.array(name, |f| pgs.iter().for_each(|pgid| f.dump_stream("pg", pgid)));
                }
            }
        });
    }
}

/// What stopping these does, and more of them as long as it stays harmless: neighbours first, as it is hosts and racks that somebody
/// works at, and nothing farther away once one was not (`_maximize_ok_to_stop_set` in `src/mgr/DaemonServer.cc` at v16.2).
fn grown(mut osds: BTreeSet<OsdId>, max: usize, osdmap: &OsdMap, pgs: &PgMap) -> Offline {
    let mut report = Offline::check(osds.clone(), osdmap, pgs);
    let mut below = osds.first().copied();
    while let Some(parent) = below.and_then(|item| osdmap.crush.parent_of(item))
        && report.is_ok()
        && osds.len() < max
    {
        let mut has_failed = false;
        for osd in osdmap.crush.subtree(parent).into_iter().filter(|osd| osdmap.is_up(*osd)) {
            if !osds.insert(osd) {
                continue;
            }
            let larger = Offline::check(osds.clone(), osdmap, pgs);
            if !larger.is_ok() {
                osds.remove(&osd);
                has_failed = true;
                continue;
            }
            report = larger;
            if osds.len() == max {
                return report;
            }
        }
        below = (!has_failed).then_some(parent);
    }
    report
}

/// `osd ok-to-stop`.
pub(super) fn ok_to_stop(mgr: &Mgr, map: &CommandMap) -> CommandReply {
    let osdmap = mgr.osdmaps.current();
    let words = map.strings("ids").unwrap_or_default();
    let osds = match parse_osds(&words, &osdmap) {
        Ok(osds) => osds,
        Err(reply) => return reply,
    };
    let max = map.opt_int("max").ok().flatten().unwrap_or(1);
    let max = usize::try_from(max).unwrap_or(1);
    let cluster = mgr.cluster.borrow();
    let report = grown(osds, max, &osdmap, &cluster.pg_map);
    let format = match map.format() {
        command::Format::Plain => command::Format::Json,
        format => format,
    };
    let mut f = Formatter::new(format);
    report.dump(&mut f);
    let outb: Bytes = format!("{}\n", f.finish()).into();
    let (rc, outs) = if !report.unknown.is_empty() {
        let text = "pgs have unknown state; cannot draw any conclusions";
        (-EAGAIN, format!("{} {text}", report.unknown.len()))
    } else if !report.is_ok() {
        let count = report.not_ok.len();
        let text =
            format!("unsafe to stop osd(s) at this time ({count} PGs are or would become offline)");
        (-EBUSY, text)
    } else {
        (0, String::new())
    };
    CommandReply { rc, outs, outb }
}

/// What is known of OSDs that somebody wants to destroy.
#[derive(Default)]
struct Destroy {
    safe: BTreeSet<OsdId>,
    active: BTreeSet<OsdId>,
    missing_stats: BTreeSet<OsdId>,
    stored_pgs: BTreeSet<OsdId>,
    affected_pgs: i64,
}

impl Destroy {
    fn check(osds: &BTreeSet<OsdId>, map: &OsdMap, pgs: &PgMap) -> Destroy {
        const ACTIVE_CLEAN: u64 = pg_state::ACTIVE | pg_state::CLEAN;
        let clean: i64 = pgs
            .digest
            .num_pg_by_state
            .iter()
            .filter(|(state, _)| *state & ACTIVE_CLEAN == ACTIVE_CLEAN)
            .map(|(_, count)| i64::from(*count))
            .sum();
        let mut report = Destroy::default();
        for osd in osds {
            if !map.exists(*osd) {
                report.safe.insert(*osd);
                continue;
            }
            let count = pgs.num_pg_of(*osd);
            if count.acting > 0 || count.up_not_acting > 0 {
                report.active.insert(*osd);
                report.affected_pgs += i64::from(count.acting + count.up_not_acting);
                continue;
            }
            if clean < pgs.digest.num_pg {
                match pgs.osd_stat.get(osd) {
                    Some(stat) if map.is_up(*osd) => {
                        if stat.num_pgs > 0 {
                            report.stored_pgs.insert(*osd);
                            continue;
                        }
                    }
                    _ => {
                        report.missing_stats.insert(*osd);
                        continue;
                    }
                }
            }
            report.safe.insert(*osd);
        }
        report
    }

    fn text(&self) -> String {
        let mut text = String::new();
        if !self.safe.is_empty() {
            text += &format!(
                "OSD(s) {} are safe to destroy without reducing data durability.\n",
                osd_set(&self.safe)
            );
        }
        if !self.active.is_empty() {
            text += &format!(
                "OSD(s) {} have {} pgs currently mapped to them. ",
                osd_set(&self.active),
                self.affected_pgs
            );
        }
        if !self.missing_stats.is_empty() {
            text += &format!(
                "OSD(s) {} have no reported stats, and not all PGs are active+clean; we cannot \
                 draw any conclusions. ",
                osd_set(&self.missing_stats)
            );
        }
        if !self.stored_pgs.is_empty() {
            text += &format!(
                "OSD(s) {} last reported they still store some PG data, and not all PGs are \
                 active+clean; we cannot be sure they aren't still needed.",
                osd_set(&self.stored_pgs)
            );
        }
        text
    }

    fn rc(&self) -> i32 {
        if !self.active.is_empty() || !self.stored_pgs.is_empty() {
            -EBUSY
        } else if !self.missing_stats.is_empty() {
            -EAGAIN
        } else {
            0
        }
    }
}

/// The answer while of some placement groups nothing is known, and so of no OSD what it holds.
fn cannot_tell(pgs: &PgMap) -> Option<String> {
    let unknown = pgs.digest.num_pg_unknown;
    (unknown > 0).then(|| format!("{unknown} pgs have unknown state; cannot draw any conclusions"))
}

/// `osd safe-to-destroy`.
pub(super) fn safe_to_destroy(mgr: &Mgr, map: &CommandMap) -> CommandReply {
    let osdmap = mgr.osdmaps.current();
    let words = map.strings("ids").unwrap_or_default();
    let osds = match parse_osds(&words, &osdmap) {
        Ok(osds) => osds,
        Err(reply) => return reply,
    };
    let cluster = mgr.cluster.borrow();
    if let Some(why) = cannot_tell(&cluster.pg_map) {
        return CommandReply::error(EAGAIN, why);
    }
    let report = Destroy::check(&osds, &osdmap, &cluster.pg_map);
    if map.format().is_plain() {
        return CommandReply { rc: report.rc(), outs: report.text(), outb: Bytes::new() };
    }
    let mut f = Formatter::new(map.format());
    f.object("osd_status", |f| {
        dump_osds(f, "safe_to_destroy", &report.safe);
        dump_osds(f, "active", &report.active);
        dump_osds(f, "missing_stats", &report.missing_stats);
        dump_osds(f, "stored_pgs", &report.stored_pgs);
    });
    CommandReply::formatted(f)
}

/// `osd destroy`, `osd purge`: checks, then has the monitors do it.
pub(super) async fn destroy(mgr: &Mgr, map: &CommandMap) -> CommandReply {
    let word = word(map, "id");
    let Some(osd) = parse_osd_id(&word) else {
        return CommandReply::error(EINVAL, format!("osd id '{word}' is not a valid id"));
    };
    let osdmap = mgr.osdmaps.current();
    if !osdmap.exists(osd) {
        return CommandReply::text(format!("osd.{osd} does not exist"));
    }
    // As before there was `--force`: to be sure is enough, too.
    if !map.flag("force") && !map.flag("yes_i_really_mean_it") {
        let cluster = mgr.cluster.borrow();
        let report = Destroy::check(&[osd].into(), &osdmap, &cluster.pg_map);
        let refusal = match cannot_tell(&cluster.pg_map) {
            Some(why) => Some((-EAGAIN, why)),
            None => (report.rc() != 0).then(|| (report.rc(), report.text())),
        };
        if let Some((rc, why)) = refusal {
            let text = format!(
                "{why}\nYou can proceed by passing --force, but be warned that this will likely mean \
                 real, permanent data loss."
            );
            return CommandReply { rc, outs: text, outb: Bytes::new() };
        }
    }
    let command = serde_json::json!({
        "prefix": format!("{}-actual", map.prefix()),
        "id": osd,
        "yes_i_really_mean_it": true,
    });
    match mgr.monc.command(vec![command.to_string()], Bytes::new()).await {
        Ok(answer) => CommandReply { rc: answer.rc, outs: answer.outs, outb: answer.outb },
        Err(error) => CommandReply::error(EAGAIN, error.to_string()),
    }
}

/// A number in at most `width` characters, with a unit of 1024s (`mgr_util.format_dimless` with
/// 1000s, `format_bytes` with 1024s).
pub(crate) fn short_number(n: u64, width: usize, factor: u64) -> String {
    const UNITS: [char; 9] = [' ', 'k', 'M', 'G', 'T', 'P', 'E', 'Z', 'Y'];
    let (mut unit, mut whole) = (0, n);
    while whole.to_string().len() > width - 1 {
        unit += 1;
        whole /= factor;
    }
    let text = if unit == 0 {
        format!("{n:>pad$}", pad = width - 1)
    } else {
        let exact = n as f64 / (factor as f64).powi(unit as i32);
        let cut: String = format!("{exact:.6}").chars().take(width - 1).collect();
        match cut.strip_suffix('.') {
            Some(cut) => format!(" {cut}"),
            None => cut,
        }
    };
    format!("{text}{}", UNITS[unit.min(UNITS.len() - 1)])
}

/// `osd status`.
pub(super) async fn status(mgr: &Mgr, map: &CommandMap) -> CommandReply {
    let hosts = super::metadata::hosts_of_osds(mgr).await;
    let osdmap = mgr.osdmaps.current();
    let wanted: BTreeSet<OsdId> = match map.opt_string("bucket") {
        Ok(Some(bucket)) => match osdmap.crush.id_of(&bucket) {
            Some(item) if item < 0 => osdmap.crush.devices_under(item).into_iter().collect(),
            _ => {
                let text = format!("Bucket \"{bucket}\" not found");
                return CommandReply::error(ENOENT, text);
            }
        },
        _ => osdmap.osds().collect(),
    };
    let cluster = mgr.cluster.borrow();
    let daemons = mgr.daemons.borrow();
    let heads = ["ID", "HOST", "USED", "AVAIL", "WR OPS", "WR DATA", "RD OPS", "RD DATA", "STATE"];
    let mut rows: Vec<Vec<String>> = Vec::new();
    for osd in wanted {
        let daemon = daemons.find("osd", &osd.to_string());
        let rate = |counter: &str| {
            daemon.and_then(|d| d.counters.get(counter)).map_or(0, |counter| counter.rate())
        };
        let statfs = cluster.pg_map.osd_stat.get(&osd).map(|stat| stat.statfs);
        let space = |bytes: Option<u64>| {
            bytes.map_or_else(|| short_number(0, 5, 1024), |b| short_number(b, 5, 1024))
        };
        let states = maps::osdmap::osd_state::names(osdmap.state(osd));
        rows.push(vec![
            osd.to_string(),
            hosts.get(&osd).cloned().unwrap_or_default(),
            space(statfs.map(|s| s.kb_used_raw() << 10)),
            space(statfs.map(|s| s.kb_avail() << 10)),
            short_number(rate("osd.op_w"), 5, 1000),
            short_number(rate("osd.op_in_bytes"), 5, 1024),
            short_number(rate("osd.op_r"), 5, 1000),
            short_number(rate("osd.op_out_bytes"), 5, 1024),
            states.join(","),
        ]);
    }
    let width =
        |i: usize| rows.iter().map(|row| row[i].len()).chain([heads[i].len()]).max().unwrap_or(0);
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    let mut out = String::new();
    let heads: Vec<String> = heads.iter().map(|head| (*head).to_owned()).collect();
    for row in [&heads].into_iter().chain(&rows) {
        for (i, cell) in row.iter().enumerate() {
            let width = widths[i];
            // The host and the state stand at the left.
            if i == 1 || i == 8 {
                out += &format!("{cell:<width$}  ");
            } else {
                out += &format!("{cell:>width$}  ");
            }
        }
        out.push('\n');
    }
    CommandReply::data(out)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use maps::PgPool;
    use maps::osdmap::osd_state;
    use types::osd::PgStat;

    use super::*;

    /// Any OSDs of the cluster were taken, in the order of their numbers: who stopped what was answered stopped a part of many hosts.
    #[test]
    fn neighbours_are_stopped_together_and_nothing_behind_a_refusal() {
        let mut crush = crush::CrushMap::fresh();
        for osd in 0..6 {
            let host = format!("h{}", osd / 2);
            let location = [("root", "default"), ("host", host.as_str())];
            let location = location.map(|(k, v)| (k.to_owned(), v.to_owned()));
            crush.insert_item(osd, 0x1_0000, &format!("osd.{osd}"), &location.into()).unwrap();
        }
        let mut map = OsdMap { epoch: 1, crush: Arc::new(crush), ..OsdMap::default() };
        map.set_max_osd(6);
        map.osd_state.fill(osd_state::EXISTS | osd_state::UP);
        map.pools.insert(1, PgPool { size: 2, min_size: 1, ..PgPool::default() });
        let mut pgs = PgMap::default();
        let answer = |first: OsdId, max: usize, map: &OsdMap, pgs: &PgMap| -> Vec<OsdId> {
            grown(BTreeSet::from([first]), max, map, pgs).osds.into_iter().collect()
        };
        assert_eq!(answer(2, 1, &map, &pgs), [2]);
        assert_eq!(answer(2, 2, &map, &pgs), [2, 3]);
        assert_eq!(answer(5, 5, &map, &pgs), [0, 1, 2, 4, 5]);
        map.osd_state[3] = osd_state::EXISTS;
        assert_eq!(answer(2, 2, &map, &pgs), [0, 2]);
        map.osd_state[3] |= osd_state::UP;
        // Both of a PG on one host: nothing else is asked about.
        let state = pg_state::ACTIVE | pg_state::CLEAN;
        let stat = PgStat { state, acting: vec![2, 3], ..PgStat::default() };
        pgs.pg_stat.insert(PgId::new(1, 0), stat);
        assert_eq!(answer(2, 6, &map, &pgs), [2]);
    }
}
