//! The OSD map in its plain form, and commands on single placement groups, blocklist and profiles.

use std::fmt::Write as _;

use command::format_stream_float;
use maps::osdmap::osd_list;
use types::{AddrType, EntityAddr, Errno, OsdId, PgId, UTime};

use super::cmd::{Cmd, CmdResult, Refusal, done, fail, refuse, say, unhandled};
use super::osd_query::parse_osd_id;
use crate::core::MonCore;

/// The address, or range of addresses, of a blocklist command, and its text.
fn blocklist_addr(cmd: &Cmd) -> Result<(EntityAddr, String), Refusal> {
    let mut text = cmd.string("addr")?.trim().to_string();
    let bad = |text: &str| refuse(Errno::EINVAL, format!("unable to parse address {text}"));
    if cmd.map.opt_string("range")?.is_some_and(|r| r == "range") {
        let (ip, bits) = text.split_once('/').ok_or_else(|| bad(&text))?;
        let ip: std::net::IpAddr = ip.parse().map_err(|_| bad(&text))?;
        let bits: u32 = bits.parse().map_err(|_| bad(&text))?;
        if bits > if ip.is_ipv4() { 32 } else { 128 } {
            return Err(bad(&text));
        }
        let addr = EntityAddr {
            kind: AddrType::Cidr,
            nonce: bits,
            sock: Some(std::net::SocketAddr::new(ip, 0)),
        };
        let shown = addr.to_string();
        return Ok((addr, shown));
    }
    // A bare host stands for everything on it.
    if !text.contains('/') {
        let has_port = text.parse::<std::net::SocketAddr>().is_ok();
        text = if has_port { format!("{text}/0") } else { format!("{text}:0/0") };
    }
    let addr = EntityAddr::parse(&text, AddrType::Any).map_err(|_| bad(&text))?.as_any();
    let shown = addr.legacy_text().to_string();
    Ok((addr, shown))
}

impl MonCore {
    pub(crate) fn cmd_osd_misc(&mut self, cmd: &Cmd) -> CmdResult {
        match cmd.prefix.as_str() {
            "osd blocklist" | "osd blacklist" => self.blocklist(cmd),
            "osd blocklist clear" | "osd blacklist clear" => {
                let map = self.next_map();
                let all: Vec<EntityAddr> = map.blocklist.keys().copied().collect();
                let ranges: Vec<EntityAddr> = map.range_blocklist.keys().copied().collect();
                if !all.is_empty() || !ranges.is_empty() {
                    let inc = self.inc();
                    inc.new_blocklist.clear();
                    inc.new_range_blocklist.clear();
                    inc.old_blocklist = all;
                    inc.old_range_blocklist = ranges;
                }
                say("removed all blocklist entries")
            }
            "osd erasure-code-profile set" => self.profile_set(cmd),
            "osd erasure-code-profile rm" => self.profile_rm(cmd),
            "osd pg-temp" => self.pg_temp_set(cmd),
            "osd primary-temp" => {
                let pgid = self.pgid_of(cmd)?;
                let osd = self.osd_id(cmd, "id")?;
                let map = self.next_map();
                if osd != -1 && !map.exists(osd) {
                    return fail(Errno::ENOENT, format!("osd.{osd} does not exist"));
                }
                self.inc().new_primary_temp.insert(pgid, osd);
                say(format!("set {pgid} primary_temp mapping to {osd}"))
            }
            "osd pg-upmap" | "osd pg-upmap-items" | "osd rm-pg-upmap" | "osd rm-pg-upmap-items" => {
                self.upmap(cmd)
            }
            "osd force-create-pg" => {
                let text = cmd.string("pgid")?;
                let pgid: PgId = text
                    .parse()
                    .map_err(|_| refuse(Errno::EINVAL, format!("invalid pgid '{text}'")))?;
                if !self.next_map().pg_exists(pgid) {
                    return fail(Errno::ENOENT, format!("pg {pgid} should not exist"));
                }
                if !cmd.map.flag("yes_i_really_mean_it") {
                    return fail(
                        Errno::EPERM,
                        "This command will recreate a lost (as in data lost) PG with data in it, such that the cluster will give up ever trying to recover the lost data.  Do this only if you are certain that all copies of the PG are in fact lost and you are willing to accept that the data is permanently destroyed.  Pass --yes-i-really-mean-it to proceed.",
                    );
                }
                self.force_create_pg(pgid);
                say(format!("pg {pgid} now creating, ok"))
            }
            "pg repeer" => {
                let pgid = self.pgid_of(cmd)?;
                let map = self.next_map();
                let mapping = map.pg_to_up_acting(pgid);
                let primary = mapping.acting_primary;
                if primary < 0 {
                    return fail(Errno::EAGAIN, "pg currently has no primary");
                }
                // A temporary mapping to others than it has begins a new interval; it is dropped
                // again as soon as the placement group has peered.
                let mut osds = vec![primary];
                if mapping.acting.len() < 2 {
                    let other = (0..map.max_osd).find(|osd| *osd != primary && map.is_up(*osd));
                    let Some(other) = other else {
                        return fail(
                            Errno::EAGAIN,
                            "not enough up OSDs in the cluster to force repeer",
                        );
                    };
                    osds.push(other);
                }
                self.inc().new_pg_temp.insert(pgid, osds);
                done()
            }
            _ => unhandled(),
        }
    }

    fn blocklist(&mut self, cmd: &Cmd) -> CmdResult {
        let op = match cmd.map.opt_string("blocklistop")? {
            Some(op) => op,
            None => cmd.string("blacklistop")?,
        };
        let (addr, shown) = blocklist_addr(cmd)?;
        let map = self.next_map();
        let base = self.osd.map.clone();
        let range = addr.kind == AddrType::Cidr;
        let (now, before) = match range {
            true => (&map.range_blocklist, &base.range_blocklist),
            false => (&map.blocklist, &base.blocklist),
        };
        if op == "rm" {
            if !now.contains_key(&addr) {
                return say(format!("{shown} isn't blocklisted"));
            }
            let was_there = before.contains_key(&addr);
            let inc = self.inc();
            let (new, old) = match range {
                true => (&mut inc.new_range_blocklist, &mut inc.old_range_blocklist),
                false => (&mut inc.new_blocklist, &mut inc.old_blocklist),
            };
            new.remove(&addr);
            if was_there {
                old.push(addr);
            }
            return say(format!("un-blocklisting {shown}"));
        }
        let secs = match cmd.map.opt_float("expire")? {
            Some(secs) => secs,
            None => self.conf.float("mon_osd_blocklist_default_expire"),
        };
        let until = UTime::from_secs_f64(self.now.wall.as_secs_f64() + secs);
        let inc = self.inc();
        let (new, old) = match range {
            true => (&mut inc.new_range_blocklist, &mut inc.old_range_blocklist),
            false => (&mut inc.new_blocklist, &mut inc.old_blocklist),
        };
        old.retain(|a| *a != addr);
        new.insert(addr, until);
        say(format!("blocklisting {shown} until {until} ({} sec)", format_stream_float(secs)))
    }

    /// A placement group that exists.
    pub(crate) fn pgid_of(&mut self, cmd: &Cmd) -> Result<PgId, Refusal> {
        let text = cmd.string("pgid")?;
        let pgid: PgId =
            text.parse().map_err(|_| refuse(Errno::EINVAL, format!("invalid pgid '{text}'")))?;
        if !self.next_map().pg_exists(pgid) {
            return fail(Errno::ENOENT, format!("pg {pgid} does not exist"));
        }
        Ok(pgid)
    }

    fn osd_ids(&mut self, cmd: &Cmd) -> Result<Vec<OsdId>, Refusal> {
        let ids = match cmd.map.value("id") {
            Some(command::ArgValue::Ints(ids)) => {
                ids.iter().map(|id| OsdId::try_from(*id).unwrap_or(-1)).collect()
            }
            Some(command::ArgValue::Int(id)) => vec![OsdId::try_from(*id).unwrap_or(-1)],
            Some(command::ArgValue::Strings(texts)) => {
                texts.iter().map(|text| parse_osd_id(text)).collect::<Result<Vec<_>, _>>()?
            }
            Some(command::ArgValue::String(text)) => vec![parse_osd_id(text)?],
            _ => Vec::new(),
        };
        let map = self.next_map();
        for osd in &ids {
            if *osd != crush::ITEM_NONE && !map.exists(*osd) {
                return fail(Errno::ENOENT, format!("osd.{osd} does not exist"));
            }
        }
        Ok(ids)
    }

    fn pg_temp_set(&mut self, cmd: &Cmd) -> CmdResult {
        let pgid = self.pgid_of(cmd)?;
        let ids = self.osd_ids(cmd)?;
        let map = self.next_map();
        if let Some(pool) = map.pool(pgid.pool_id()).filter(|_| !ids.is_empty()) {
            check_number(ids.len(), pool)?;
        }
        self.inc().new_pg_temp.insert(pgid, ids.clone());
        if ids.is_empty() {
            return say(format!("done cleaning up pg_temp of {pgid}"));
        }
        say(format!("set {pgid} pg_temp mapping to {}", osd_list(&ids)))
    }

    fn upmap(&mut self, cmd: &Cmd) -> CmdResult {
        let map = self.next_map();
        if map.require_min_compat_client < 12 {
            return fail(
                Errno::EPERM,
                "min_compat_client is below luminous, which is required for pg-upmap. Try 'ceph osd set-require-min-compat-client luminous' before using the new interface",
            );
        }
        let pgid = self.pgid_of(cmd)?;
        let base = self.osd.map.clone();
        match cmd.prefix.as_str() {
            "osd rm-pg-upmap" => {
                let inc = self.inc();
                inc.new_pg_upmap.remove(&pgid);
                if base.pg_upmap.contains_key(&pgid) {
                    inc.old_pg_upmap.insert(pgid);
                }
                return say(format!("clear {pgid} pg_upmap mapping"));
            }
            "osd rm-pg-upmap-items" => {
                let inc = self.inc();
                inc.new_pg_upmap_items.remove(&pgid);
                if base.pg_upmap_items.contains_key(&pgid) {
                    inc.old_pg_upmap_items.insert(pgid);
                }
                return say(format!("clear {pgid} pg_upmap_items mapping"));
            }
            _ => {}
        }
        let ids = self.osd_ids(cmd)?;
        let pool = map.pool(pgid.pool_id()).ok_or_else(|| refuse(Errno::ENOENT, ""))?;
        // What says nothing, or again what was said, is passed over and told.
        let mut passed_over = String::new();
        if cmd.prefix == "osd pg-upmap" {
            check_number(ids.len(), pool)?;
            let mut chosen: Vec<OsdId> = Vec::new();
            for osd in ids {
                if chosen.contains(&osd) {
                    let _ = write!(passed_over, "osd.{osd} already exists, ");
                } else {
                    chosen.push(osd);
                }
            }
            let inc = self.inc();
            inc.old_pg_upmap.remove(&pgid);
            inc.new_pg_upmap.insert(pgid, chosen.clone());
            let chosen = osd_list(&chosen);
            return say(format!("{passed_over}set {pgid} pg_upmap mapping to {chosen}"));
        }
        if !ids.len().is_multiple_of(2) {
            return fail(Errno::EINVAL, "you must specify pairs of osd ids to be remapped");
        }
        if ids.len() / 2 > usize::from(pool.size) {
            let (number, size) = (ids.len() / 2, pool.size);
            let text = format!("num of osd pairs ({number}) > pool size ({size})");
            return fail(Errno::EINVAL, text);
        }
        let mut pairs: Vec<(OsdId, OsdId)> = Vec::new();
        for pair in ids.chunks_exact(2).map(|p| (p[0], p[1])) {
            let (from, to) = pair;
            if from == to {
                let _ = write!(passed_over, "from osd.{from} == to osd.{to}, ");
            } else if pairs.contains(&pair) {
                let _ = write!(passed_over, "osd.{from} -> osd.{to} already exists, ");
            } else {
                pairs.push(pair);
            }
        }
        if pairs.is_empty() {
            let text = format!("{passed_over}no valid upmap items(pairs) is specified");
            return fail(Errno::EINVAL, text);
        }
        let texts: Vec<String> = pairs.iter().map(|(a, b)| format!("{a}->{b}")).collect();
        let inc = self.inc();
        inc.old_pg_upmap_items.remove(&pgid);
        inc.new_pg_upmap_items.insert(pgid, pairs);
        let texts = texts.join(",");
        say(format!("{passed_over}set {pgid} pg_upmap_items mapping to [{texts}]"))
    }
}

/// Whether a PG may be put on so many.
fn check_number(number: usize, pool: &maps::PgPool) -> Result<(), Refusal> {
    let (least, most) = (pool.min_size, pool.size);
    if number < usize::from(least) {
        let text = format!("num of osds ({number}) < pool min size ({least})");
        return Err(refuse(Errno::EINVAL, text));
    }
    if number > usize::from(most) {
        let text = format!("num of osds ({number}) > pool size ({most})");
        return Err(refuse(Errno::EINVAL, text));
    }
    Ok(())
}
