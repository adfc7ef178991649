//! Pools created, deleted, renamed; the `MPoolOp` requests of librados.

use std::collections::BTreeMap;

use bstr::ByteSlice;
use bytes::Bytes;
use denc::Writer;
use maps::PgPool;
use maps::pool::{self, pool_flags};
use messages::{MPoolOp, MPoolOpReply, PaxosHeader, PoolOpCode};
use types::{Errno, RawMessage};

use crate::commands::erasure_profile::{code_of, stripe_unit};
use crate::commands::{NAME_LEN_MAX, Refusal, fail, refuse};
use crate::core::MonCore;
use crate::event::SessionId;
use crate::event::wire;

/// What a new pool is to be like; `None` and 0 take the configured defaults.
#[derive(Debug, Clone, Default)]
pub(crate) struct NewPool {
    pub(crate) name: String,
    pub(crate) pg_num: Option<i64>,
    pub(crate) pgp_num: Option<i64>,
    pub(crate) erasure: bool,
    pub(crate) profile: String,
    pub(crate) rule: String,
    pub(crate) expected_num_objects: u64,
    pub(crate) size: Option<i64>,
    pub(crate) autoscale_mode: String,
    pub(crate) pg_num_min: Option<i64>,
    pub(crate) pg_num_max: Option<i64>,
    pub(crate) target_size_bytes: Option<i64>,
    pub(crate) target_size_ratio: Option<f64>,
    pub(crate) bulk: bool,
}

impl MonCore {
    /// Adds a pool to the pending epoch; its id.
    pub(crate) fn create_pool(&mut self, new: &NewPool) -> Result<i64, Refusal> {
        let map = self.next_map();
        if new.name.is_empty() || new.name.len() > NAME_LEN_MAX {
            return fail(Errno::EINVAL, "invalid pool name");
        }
        let pg_default = self.conf.int("osd_pool_default_pg_num");
        let autoscale = match new.autoscale_mode.as_str() {
            "" => self.conf.str("osd_pool_default_pg_autoscale_mode"),
            mode => mode.to_string(),
        };
        // With the autoscaler on and nothing said, a pool begins with one PG.
        let pg_num = match new.pg_num {
            Some(n) if n > 0 => n,
            _ if new.pg_num == Some(0) && autoscale == "on" => 1,
            _ => pg_default,
        };
        let pgp_num = match new.pgp_num {
            Some(n) if n > 0 => n,
            _ => match self.conf.int("osd_pool_default_pgp_num") {
                n if n > 0 && new.pg_num.is_none() => n.min(pg_num),
                _ => pg_num,
            },
        };
        let max = self.conf.int("mon_max_pool_pg_num");
        if pg_num > max {
            return fail(
                Errno::ERANGE,
                format!(
                    "'pg_num' must be greater than 0 and less than or equal to {max} (you may adjust 'mon max pool pg num' for higher values)"
                ),
            );
        }
        if pgp_num > pg_num {
            return fail(
                Errno::ERANGE,
                format!(
                    "'pgp_num' must be greater than 0 and lower or equal than 'pg_num', which in this case is {pg_num}"
                ),
            );
        }
        let profile = self.profile_of(new)?;
        let (size, min_size) = self.pool_size(new, &profile)?;
        let rule = self.pool_rule(new, &profile)?;
        let crush_rule = map.crush.rule(rule).cloned();
        // The rule may have been made a moment ago, in the pending map.
        let crush_rule = crush_rule.or_else(|| self.next_map().crush.rule(rule).cloned());
        let Some(crush_rule) = crush_rule else {
            return fail(Errno::ENOENT, format!("crush rule {rule} does not exist"));
        };
        let kind = if new.erasure { pool::TYPE_ERASURE } else { pool::TYPE_REPLICATED };
        if crush_rule.kind != kind {
            return fail(Errno::EINVAL, format!("crush rule {rule} type does not match pool"));
        }
        if size < i64::from(crush_rule.min_size) {
            return fail(Errno::EINVAL, "pool size is smaller than the crush rule min size");
        }
        if size > i64::from(crush_rule.max_size) {
            return fail(Errno::EINVAL, "pool size is bigger than the crush rule max size");
        }
        self.check_pgs_per_osd(-1, pg_num, size)?;

        let stripe_width = self.stripe_width(new, &profile)?;
        let mut flags = pool_flags::CREATING;
        if new.bulk || self.conf.bool("osd_pool_default_flag_bulk") {
            flags |= pool_flags::BULK;
        }
        for (option, flag) in [
            ("osd_pool_default_flag_hashpspool", pool_flags::HASHPSPOOL),
            ("osd_pool_default_flag_nodelete", pool_flags::NODELETE),
            ("osd_pool_default_flag_nopgchange", pool_flags::NOPGCHANGE),
            ("osd_pool_default_flag_nosizechange", pool_flags::NOSIZECHANGE),
        ] {
            if self.conf.bool(option) {
                flags |= flag;
            }
        }
        let now = self.now.wall;
        // The manager walks from what a new pool may have to what is asked for.
        let first = match self.conf.int("mon_osd_max_initial_pgs") {
            most if most > 0 => pg_num.min(most) as u32,
            _ => pg_num as u32,
        };
        let map = self.next_map();
        let id =
            map.pools.keys().next_back().copied().unwrap_or(0).max(i64::from(map.pool_max)) + 1;
        let mut p = PgPool {
            kind,
            size: size as u8,
            min_size: min_size as u8,
            crush_rule: rule as u8,
            // rjenkins
            object_hash: 2,
            flags,
            pg_num: first,
            pgp_num: first,
            pg_num_target: pg_num as u32,
            pgp_num_target: pgp_num as u32,
            pg_num_pending: first,
            create_time: now,
            expected_num_objects: new.expected_num_objects,
            pg_autoscale_mode: autoscale_number(&autoscale),
            erasure_code_profile: match (new.erasure, new.profile.as_str()) {
                (false, _) => String::new(),
                (true, "") => "default".to_string(),
                (true, name) => name.to_string(),
            },
            stripe_width,
            fast_read: new.erasure && self.conf.bool("osd_pool_default_ec_fast_read"),
            last_force_op_resend_preluminous: 0,
            cache_target_dirty_ratio_micro: micro(
                self.conf.float("osd_pool_default_cache_target_dirty_ratio"),
            ),
            cache_target_dirty_high_ratio_micro: micro(
                self.conf.float("osd_pool_default_cache_target_dirty_high_ratio"),
            ),
            cache_target_full_ratio_micro: micro(
                self.conf.float("osd_pool_default_cache_target_full_ratio"),
            ),
            cache_min_flush_age: self.conf.uint("osd_pool_default_cache_min_flush_age") as u32,
            cache_min_evict_age: self.conf.uint("osd_pool_default_cache_min_evict_age") as u32,
            use_gmt_hitset: self.conf.bool("osd_pool_use_gmt_hitset"),
            ..PgPool::default()
        };
        for (key, value) in [
            (pool::pool_opts::PG_NUM_MIN, new.pg_num_min),
            (pool::pool_opts::PG_NUM_MAX, new.pg_num_max),
            (pool::pool_opts::TARGET_SIZE_BYTES, new.target_size_bytes),
        ] {
            if let Some(value) = value.filter(|v| *v > 0) {
                p.opts.0.insert(key, pool::PoolOpt::Int(value));
            }
        }
        if let Some(ratio) = new.target_size_ratio.filter(|r| *r > 0.0) {
            p.opts.0.insert(pool::pool_opts::TARGET_SIZE_RATIO, pool::PoolOpt::Double(ratio));
        }
        let inc = self.inc();
        p.last_change = inc.epoch;
        inc.new_pool_max = id;
        inc.new_pools.insert(id, p);
        inc.new_pool_names.insert(id, new.name.clone());
        Ok(id)
    }

    /// The erasure code profile of a new pool; empty for a replicated one.
    fn profile_of(&mut self, new: &NewPool) -> Result<BTreeMap<String, String>, Refusal> {
        if !new.erasure {
            return Ok(BTreeMap::new());
        }
        let name = if new.profile.is_empty() { "default" } else { &new.profile };
        match self.erasure_profile(name)? {
            Some(profile) if profile.contains_key("plugin") => Ok(profile),
            _ => fail(
                Errno::EINVAL,
                format!(
                    "cannot determine the erasure code plugin because there is no 'plugin' entry in the erasure_code_profile {{{}}}",
                    ""
                ),
            ),
        }
    }

    /// Bytes of data of a stripe; 0 for a replicated pool.
    fn stripe_width(
        &self,
        new: &NewPool,
        profile: &BTreeMap<String, String>,
    ) -> Result<u32, Refusal> {
        if !new.erasure {
            return Ok(0);
        }
        let code = code_of(profile)?;
        let default = self.conf.uint("osd_pool_erasure_code_stripe_unit");
        let unit = stripe_unit(profile, &code)?.unwrap_or(default);
        let data = usize::try_from(unit).unwrap_or(usize::MAX).saturating_mul(code.k);
        u32::try_from(code.chunk_len(data).saturating_mul(code.k))
            .map_err(|_| refuse(Errno::EINVAL, format!("stripe_unit {unit} is too large")))
    }

    fn pool_size(
        &self,
        new: &NewPool,
        profile: &BTreeMap<String, String>,
    ) -> Result<(i64, i64), Refusal> {
        if new.erasure {
            let code = code_of(profile)?;
            let (k, m) = (code.k as i64, code.m as i64);
            return Ok((k + m, k + (m - 1).min(1)));
        }
        let size = match new.size {
            Some(n) if n > 0 => n,
            _ => self.conf.int("osd_pool_default_size"),
        };
        let min_size = match self.conf.int("osd_pool_default_min_size") {
            0 => size - size / 2,
            n => n.min(size),
        };
        if size == 1 && !self.conf.bool("mon_allow_pool_size_one") {
            return fail(
                Errno::EPERM,
                "configuring pool size as 1 is disabled by default. Use --yes-i-really-mean-it to force it.",
            );
        }
        Ok((size, min_size))
    }

    fn pool_rule(
        &mut self,
        new: &NewPool,
        profile: &BTreeMap<String, String>,
    ) -> Result<i32, Refusal> {
        let map = self.next_map();
        if !new.erasure {
            if !new.rule.is_empty() {
                return map.crush.rule_id(&new.rule).ok_or_else(|| {
                    refuse(Errno::ENOENT, format!("specified rule {} doesn't exist", new.rule))
                });
            }
            let configured = self.conf.int("osd_pool_default_crush_rule");
            if configured >= 0 {
                return Ok(configured as i32);
            }
            let first = map.crush.rules.iter().position(|rule| {
                rule.as_ref().is_some_and(|rule| rule.kind == crush::RULE_REPLICATED)
            });
            return first
                .map(|id| id as i32)
                .ok_or_else(|| refuse(Errno::ENOENT, "No suitable CRUSH rule exists, check 'osd pool default crush *' config options"));
        }
        let name = match new.rule.as_str() {
            "" if new.profile.is_empty() || new.profile == "default" => "erasure-code",
            "" => &new.name,
            rule => rule,
        };
        if let Some(id) = map.crush.rule_id(name) {
            return Ok(id);
        }
        if !new.rule.is_empty() {
            return fail(Errno::ENOENT, format!("specified rule {name} doesn't exist"));
        }
        self.create_erasure_rule(name, profile)
    }

    /// A CRUSH rule as an erasure code profile asks for.
    pub(crate) fn create_erasure_rule(
        &mut self,
        name: &str,
        profile: &BTreeMap<String, String>,
    ) -> Result<i32, Refusal> {
        let get = |key: &str, default: &str| -> String {
            profile.get(key).filter(|v| !v.is_empty()).map_or(default.to_string(), Clone::clone)
        };
        let domain = get("crush-failure-domain", "host");
        let mut crush = (*self.next_map().crush).clone();
        let id = crush
            .add_simple_rule(
                name,
                &get("crush-root", "default"),
                if domain == "osd" { "" } else { &domain },
                &get("crush-device-class", ""),
                false,
                crush::RULE_ERASURE,
            )
            .map_err(crate::commands::crush_refusal)?;
        let number = |key: &str| profile.get(key).and_then(|v| v.parse::<u8>().ok()).unwrap_or(1);
        if let Some(Some(rule)) = crush.rules.get_mut(id as usize) {
            rule.min_size = 3;
            rule.max_size = number("k").saturating_add(number("m"));
        }
        self.set_crush(&crush);
        Ok(id)
    }

    /// Replaces the CRUSH map in the pending epoch.
    pub(crate) fn set_crush(&mut self, crush: &crush::CrushMap) {
        let bytes = denc::Denc::to_bytes(crush);
        self.inc().crush = bytes;
    }

    /// Refuses more placement groups than OSDs should carry.
    pub(crate) fn check_pgs_per_osd(
        &mut self,
        pool: i64,
        pg_num: i64,
        size: i64,
    ) -> Result<(), Refusal> {
        let map = self.next_map();
        let limit = self.conf.int("mon_max_pg_per_osd");
        let osds = map.num_in_osds().max(3) as i64;
        let mut total = pg_num * size;
        for (id, p) in &map.pools {
            if *id != pool {
                total += i64::from(p.pg_num_target) * i64::from(p.size);
            }
        }
        let max = limit * osds;
        if total > max {
            let mut text = String::new();
            if pool >= 0 {
                text.push_str(&format!("pool id {pool}"));
            }
            text.push_str(&format!(
                " pg_num {pg_num} size {size} would mean {total} total pgs, which exceeds max {max} (mon_max_pg_per_osd {limit} * num_in_osds {osds})",
            ));
            return fail(Errno::ERANGE, text);
        }
        Ok(())
    }

    /// Takes a pool and all it holds out of the pending epoch.
    pub(crate) fn delete_pool(&mut self, id: i64) -> Result<(), Refusal> {
        let map = self.next_map();
        let Some(pool) = map.pool(id) else { return fail(Errno::ENOENT, "") };
        let name = map.pool_names.get(&id).cloned().unwrap_or_default();
        if self.mds.map.pool_user(id).is_some() {
            return fail(Errno::EBUSY, format!("pool '{name}' is in use by CephFS"));
        }
        if !self.conf.bool("mon_allow_pool_delete") {
            return fail(
                Errno::EPERM,
                "pool deletion is disabled; you must first set the mon_allow_pool_delete config option to true before you can destroy a pool",
            );
        }
        if pool.has_flag(pool_flags::NODELETE) {
            return fail(
                Errno::EPERM,
                "pool deletion is disabled; you must unset nodelete flag for the pool first",
            );
        }
        if pool.tier_of >= 0 {
            return fail(Errno::EBUSY, format!("pool '{name}' is a tier of '{}'", pool.tier_of));
        }
        if !pool.tiers.is_empty() {
            return fail(Errno::EBUSY, format!("pool '{name}' has tiers"));
        }
        let base = self.osd.map.clone();
        let in_pool = |pgid: &types::PgId| pgid.pool_id() == id;
        let temps: Vec<_> = map.pg_temp.keys().filter(|p| in_pool(p)).copied().collect();
        let primaries: Vec<_> = map.primary_temp.keys().filter(|p| in_pool(p)).copied().collect();
        let upmaps: Vec<_> = map.pg_upmap.keys().filter(|p| in_pool(p)).copied().collect();
        let items: Vec<_> = map.pg_upmap_items.keys().filter(|p| in_pool(p)).copied().collect();
        let mut crush = None;
        if map.crush.choose_args.contains_key(&id) {
            let mut edited = (*map.crush).clone();
            edited.choose_args.remove(&id);
            crush = Some(edited);
        }
        self.forget_purged_snaps(id);
        let inc = self.inc();
        inc.new_pools.remove(&id);
        inc.new_pool_names.remove(&id);
        if base.pool(id).is_some() {
            inc.old_pools.insert(id);
        }
        for pgid in temps {
            inc.new_pg_temp.insert(pgid, Vec::new());
        }
        for pgid in primaries {
            inc.new_primary_temp.insert(pgid, -1);
        }
        for pgid in upmaps {
            inc.new_pg_upmap.remove(&pgid);
            if base.pg_upmap.contains_key(&pgid) {
                inc.old_pg_upmap.insert(pgid);
            }
        }
        for pgid in items {
            inc.new_pg_upmap_items.remove(&pgid);
            if base.pg_upmap_items.contains_key(&pgid) {
                inc.old_pg_upmap_items.insert(pgid);
            }
        }
        if let Some(crush) = crush {
            self.set_crush(&crush);
        }
        Ok(())
    }

    /// A request of librados.
    pub(crate) fn on_pool_op(&mut self, from: SessionId, raw: &RawMessage, m: MPoolOp) {
        let map = self.next_map();
        let Some(session) = self.sessions.get(&from) else { return };
        let peer = session.peer.clone();
        let id = i64::from(m.pool);
        let allowed = session.caps.allows(&peer, "osd", "w")
            || matches!(
                m.op,
                PoolOpCode::CREATE_UNMANAGED_SNAP | PoolOpCode::DELETE_UNMANAGED_SNAP
            ) && self.unmanaged_snap_allowed(from, &map, id);
        if !allowed {
            self.reply_pool_op(from, raw, Err(Errno::EPERM), None);
            return;
        }
        if m.fsid != self.monmap.fsid {
            return;
        }
        if m.op != PoolOpCode::CREATE && map.pool(id).is_none() {
            // One that is gone is what was asked for.
            let gone = if m.op == PoolOpCode::DELETE { Ok(()) } else { Err(Errno::ENOENT) };
            self.reply_pool_op(from, raw, gone, None);
            return;
        }
        match self.pool_op(&m, id) {
            Ok(data) => self.reply_pool_op(from, raw, Ok(()), data),
            Err(Refusal { errno, .. }) => {
                self.reply_pool_op(from, raw, Err(errno), None);
            }
        }
    }

    /// A monitor that lost its leader sends its clients' requests again: what is there already is no
    /// error. librados looks into its own map first and tells its user then.
    fn pool_op(&mut self, m: &MPoolOp, id: i64) -> Result<Option<Bytes>, Refusal> {
        match m.op {
            PoolOpCode::CREATE => {
                // Ceph takes any bytes; here a pool can be named in JSON, too.
                let name = m.name.to_str().map_err(|_| refuse(Errno::EINVAL, ""))?;
                if self.next_map().lookup_pool(name).is_some() {
                    return Ok(None);
                }
                let mut new = NewPool { name: name.to_owned(), ..NewPool::default() };
                if m.crush_rule >= 0 {
                    let map = self.next_map();
                    let rule = map.crush.rule_names.get(&i32::from(m.crush_rule));
                    new.rule = rule.cloned().ok_or_else(|| refuse(Errno::ENOENT, ""))?;
                }
                self.create_pool(&new)?;
                Ok(None)
            }
            PoolOpCode::DELETE => self.delete_pool(id).map(|()| None),
            PoolOpCode::CREATE_SNAP => unless(Errno::EEXIST, self.create_pool_snap(id, &m.name)),
            PoolOpCode::DELETE_SNAP => unless(Errno::ENOENT, self.delete_pool_snap(id, &m.name)),
            PoolOpCode::CREATE_UNMANAGED_SNAP => {
                let snap = self.create_unmanaged_snap(id)?;
                let mut w = Writer::new();
                w.u64(snap);
                Ok(Some(w.into_bytes()))
            }
            PoolOpCode::DELETE_UNMANAGED_SNAP => {
                self.delete_unmanaged_snap(id, m.snapid).map(|()| None)
            }
            _ => fail(Errno::EINVAL, ""),
        }
    }

    fn reply_pool_op(
        &mut self,
        to: SessionId,
        raw: &RawMessage,
        result: Result<(), Errno>,
        data: Option<Bytes>,
    ) {
        let epoch = match self.is_osdmap_pending() {
            true => self.osd.map.epoch + 1,
            false => self.osd.map.epoch,
        };
        let reply = MPoolOpReply {
            paxos: PaxosHeader::at(epoch.into()),
            fsid: self.monmap.fsid,
            reply_code: result.map_or_else(|errno| -errno.0, |()| 0),
            epoch,
            response_data: data,
        };
        self.send(to, wire(&reply).with_tid(raw.header.tid));
    }

    /// Whether changes wait for the next epoch.
    pub(crate) fn is_osdmap_pending(&self) -> bool {
        self.osd.pending_dirty
    }

    /// Sets or clears cluster flags in the pending epoch.
    pub(crate) fn set_osdmap_flags(&mut self, set: u32, clear: u32) {
        let flags = (self.next_map().flags | set) & !clear;
        self.inc().new_flags = flags as i32;
    }
}

/// A result of which `errno` says that the work was done before.
fn unless(errno: Errno, result: Result<(), Refusal>) -> Result<Option<Bytes>, Refusal> {
    match result {
        Err(refusal) if refusal.errno != errno => Err(refusal),
        _ => Ok(None),
    }
}

fn micro(ratio: f64) -> u32 {
    (ratio * 1_000_000.0).round() as u32
}

/// The number of an autoscale mode.
pub(crate) fn autoscale_number(mode: &str) -> u8 {
    match mode {
        "on" => 2,
        "warn" => 1,
        _ => 0,
    }
}
