//! `osd pool get` and `osd pool set`.

use command::{CommandReply, Formatter, format_stream_float};
use maps::PgPool;
use maps::pool::{PoolOpt, PoolOptKind, pool_flags, pool_opts};
use types::Errno;

use super::cmd::{Cmd, CmdResult, Refusal, fail, refuse, say};
use crate::core::MonCore;
use crate::osd::pools::autoscale_number;

/// Settings only a cache tier has.
const TIER_ONLY: [&str; 15] = [
    "hit_set_type",
    "hit_set_period",
    "hit_set_count",
    "hit_set_fpp",
    "target_max_objects",
    "target_max_bytes",
    "cache_target_full_ratio",
    "cache_target_dirty_ratio",
    "cache_target_dirty_high_ratio",
    "cache_min_flush_age",
    "cache_min_evict_age",
    "min_read_recency_for_promote",
    "min_write_recency_for_promote",
    "hit_set_grade_decay_rate",
    "hit_set_search_last_n",
];
/// Of a pool's recovery beside others' (`OSD_POOL_PRIORITY_MIN` and `_MAX`, `src/osd/osd_types.h` at
/// v16.2).
const PRIORITIES: std::ops::RangeInclusive<i64> = -10..=10;
/// Kinds of checksums, numbered from 1.
const CSUM_TYPES: [&str; 6] = ["none", "xxhash32", "xxhash64", "crc32c", "crc32c_16", "crc32c_8"];
/// Flags by the name of their setting.
const FLAGS: [(&str, u64); 7] = [
    ("hashpspool", pool_flags::HASHPSPOOL),
    ("nodelete", pool_flags::NODELETE),
    ("nopgchange", pool_flags::NOPGCHANGE),
    ("nosizechange", pool_flags::NOSIZECHANGE),
    ("write_fadvise_dontneed", pool_flags::WRITE_FADVISE_DONTNEED),
    ("noscrub", pool_flags::NOSCRUB),
    ("nodeep-scrub", pool_flags::NODEEP_SCRUB),
];

/// A setting's value.
enum Value {
    Text(String),
    Int(i64),
    Bool(bool),
    /// Shown 0 or 1 in text, as a switch in JSON.
    Switch(bool),
    Float(f64),
}

impl MonCore {
    pub(crate) fn pool_get(&mut self, cmd: &Cmd) -> CmdResult {
        let name = cmd.string("pool")?;
        let map = self.osdmap();
        let found = map.lookup_pool(&name).and_then(|id| Some((id, map.pool(id)?)));
        let Some((id, pool)) = found else {
            return fail(Errno::ENOENT, format!("unrecognized pool '{name}'"));
        };
        let var = cmd.string("var")?;
        if var == "all" {
            let values: Vec<(&str, Value)> =
                ALL.iter().filter_map(|var| Some((*var, self.pool_value(pool, var)?))).collect();
            return Ok(show(cmd, &name, id, &values));
        }
        if TIER_ONLY.contains(&var.as_str()) && !pool.is_tier() {
            return fail(
                Errno::EACCES,
                format!("pool '{name}' is not a tier pool: variable not applicable"),
            );
        }
        let erasure_only = matches!(var.as_str(), "erasure_code_profile" | "allow_ec_overwrites");
        if erasure_only && !pool.is_erasure() {
            return fail(
                Errno::EACCES,
                format!("pool '{name}' is not a erasure pool: variable not applicable"),
            );
        }
        match self.pool_value(pool, &var) {
            Some(value) => Ok(show(cmd, &name, id, &[(var.as_str(), value)])),
            None => fail(Errno::ENOENT, format!("option '{var}' is not set on pool '{name}'")),
        }
    }

    /// The value of a setting; `None` if it does not apply or is not set.
    fn pool_value(&self, p: &PgPool, var: &str) -> Option<Value> {
        let int = |n: u64| Some(Value::Int(n as i64));
        if let Some((_, flag)) = FLAGS.iter().find(|(name, _)| *name == var) {
            return Some(Value::Bool(p.has_flag(*flag)));
        }
        let tier = p.is_tier();
        match var {
            "size" => int(p.size.into()),
            "min_size" => int(p.min_size.into()),
            "pg_num" => int(p.pg_num.into()),
            "pgp_num" => int(p.pgp_num.into()),
            "crush_rule" => {
                let map = self.osdmap();
                let id = i32::from(p.crush_rule);
                let name = map.crush.rule_names.get(&id).cloned();
                Some(Value::Text(name.unwrap_or_else(|| id.to_string())))
            }
            "allow_ec_overwrites" if p.is_erasure() => {
                Some(Value::Bool(p.has_flag(pool_flags::EC_OVERWRITES)))
            }
            "erasure_code_profile" if p.is_erasure() => {
                Some(Value::Text(p.erasure_code_profile.clone()))
            }
            "use_gmt_hitset" => Some(Value::Switch(p.use_gmt_hitset)),
            "fast_read" => int(p.fast_read.into()),
            "pg_autoscale_mode" => Some(Value::Text(
                ["off", "warn", "on"][usize::from(p.pg_autoscale_mode.min(2))].to_string(),
            )),
            "bulk" => Some(Value::Bool(p.has_flag(pool_flags::BULK))),
            "hit_set_period" if tier => int(p.hit_set_period.into()),
            "hit_set_count" if tier => int(p.hit_set_count.into()),
            "target_max_objects" if tier => int(p.target_max_objects),
            "target_max_bytes" if tier => int(p.target_max_bytes),
            "cache_min_flush_age" if tier => int(p.cache_min_flush_age.into()),
            "cache_min_evict_age" if tier => int(p.cache_min_evict_age.into()),
            _ => {
                let (key, _) = pool_opts::by_name(var)?;
                Some(match p.opts.0.get(&key)? {
                    PoolOpt::Str(text) => Value::Text(text.clone()),
                    PoolOpt::Int(n) if var == "csum_type" => {
                        let index = usize::try_from(*n - 1).ok();
                        let name = index.and_then(|i| CSUM_TYPES.get(i));
                        Value::Text(name.unwrap_or(&"unknown").to_string())
                    }
                    PoolOpt::Int(n) => Value::Int(*n),
                    PoolOpt::Double(n) => Value::Float(*n),
                })
            }
        }
    }

    pub(crate) fn pool_set(&mut self, cmd: &Cmd) -> CmdResult {
        let (id, name, mut p) = self.pool_arg(cmd)?;
        let (var, val) = (cmd.string("var")?, cmd.string("val")?);
        let sure = cmd.map.flag("yes_i_really_mean_it");
        if TIER_ONLY.contains(&var.as_str()) || var == "use_gmt_hitset" {
            // Cache tiers cannot be made here, so no pool is one.
            return fail(Errno::EACCES, "(13) Permission denied");
        }
        if let Some((_, flag)) = FLAGS.iter().find(|(flag, _)| *flag == var) {
            if *flag == pool_flags::HASHPSPOOL && !sure {
                return fail(
                    Errno::EPERM,
                    "are you SURE?  this will remap all placement groups in this pool, this triggers large data movement, pass --yes-i-really-mean-it if you really do.",
                );
            }
            set_bit(&mut p, *flag, parse_switch(&val)?);
        } else {
            match var.as_str() {
                "size" => self.set_size(id, &mut p, &val, sure)?,
                "min_size" => {
                    if p.has_flag(pool_flags::NOSIZECHANGE) {
                        return fail(
                            Errno::EPERM,
                            "pool min size change is disabled; you must unset nosizechange flag for the pool first",
                        );
                    }
                    let n = parse_int(&val)?;
                    let k = self.data_chunks(&p);
                    let low = if p.is_erasure() { k } else { 1 };
                    if n < low || n > i64::from(p.size) {
                        return fail(
                            Errno::EINVAL,
                            format!(
                                "pool min_size must be between {low} and size, which is set to {}",
                                p.size
                            ),
                        );
                    }
                    p.min_size = n as u8;
                }
                "pg_num" => self.set_pg_num(id, &mut p, &val)?,
                "pgp_num" | "pgp_num_actual" => {
                    if p.has_flag(pool_flags::NOPGCHANGE) {
                        return fail(
                            Errno::EPERM,
                            "pool pgp_num change is disabled; you must unset nopgchange flag for the pool first",
                        );
                    }
                    let n = parse_int(&val)?;
                    if n <= 0 {
                        return fail(
                            Errno::EINVAL,
                            format!("specified pgp_num must > 0, but you set to {n}"),
                        );
                    }
                    let actual = var == "pgp_num_actual";
                    let most = if actual { p.pg_num_pending } else { p.pg_num_target };
                    if n > i64::from(most) {
                        return fail(
                            Errno::EINVAL,
                            format!("specified pgp_num {n} > pg_num {most}"),
                        );
                    }
                    // The manager walks to the target, as data movement allows.
                    let to = if actual { &mut p.pgp_num } else { &mut p.pgp_num_target };
                    *to = n as u32;
                }
                "crush_rule" => {
                    let map = self.next_map();
                    let Some(rule) = map.crush.rule_id(&val) else {
                        return fail(Errno::ENOENT, format!("crush rule {val} does not exist"));
                    };
                    let fits = map.crush.rule(rule).is_some_and(|r| {
                        r.kind == p.kind && (r.min_size..=r.max_size).contains(&p.size)
                    });
                    if !fits {
                        return fail(
                            Errno::EINVAL,
                            format!("crush rule {val} type does not match pool type or size"),
                        );
                    }
                    p.crush_rule = rule as u8;
                }
                "allow_ec_overwrites" => {
                    if !p.is_erasure() {
                        return fail(
                            Errno::EINVAL,
                            "ec overwrites can only be enabled for an erasure coded pool",
                        );
                    }
                    if !parse_switch(&val)? {
                        if p.has_flag(pool_flags::EC_OVERWRITES) {
                            return fail(
                                Errno::EINVAL,
                                "ec overwrites cannot be disabled once enabled",
                            );
                        }
                    } else {
                        set_bit(&mut p, pool_flags::EC_OVERWRITES, true);
                    }
                }
                "fast_read" => {
                    if !p.is_erasure() {
                        return fail(
                            Errno::EINVAL,
                            "fast read is not supported in replication pool",
                        );
                    }
                    p.fast_read = parse_switch(&val)?;
                }
                "pg_autoscale_mode" => {
                    if !matches!(val.as_str(), "on" | "off" | "warn") {
                        return fail(Errno::EINVAL, format!("specified invalid mode {val}"));
                    }
                    p.pg_autoscale_mode = autoscale_number(&val);
                }
                "bulk" => set_bit(&mut p, pool_flags::BULK, parse_switch(&val)?),
                _ => self.set_opt(&mut p, &var, &val)?,
            }
        }
        let _ = name;
        self.put_pool(id, p);
        if pool_opts::by_name(&var).is_some() && val == "unset" {
            return say(format!("unset pool {id} {var}"));
        }
        say(format!("set pool {id} {var} to {val}"))
    }

    /// `k` of an erasure coded pool, 1 of any other.
    fn data_chunks(&mut self, p: &PgPool) -> i64 {
        let map = self.next_map();
        let profile = map.erasure_code_profiles.get(&p.erasure_code_profile);
        profile.and_then(|profile| profile.get("k")?.parse().ok()).unwrap_or(1)
    }

    fn set_size(&mut self, id: i64, p: &mut PgPool, val: &str, sure: bool) -> Result<(), Refusal> {
        if p.has_flag(pool_flags::NOSIZECHANGE) {
            return fail(
                Errno::EPERM,
                "pool size change is disabled; you must unset nosizechange flag for the pool first",
            );
        }
        if p.is_erasure() {
            return fail(Errno::EOPNOTSUPP, "can not change the size of an erasure-coded pool");
        }
        let n = parse_int(val)?;
        if !(1..=10).contains(&n) {
            return fail(Errno::EINVAL, "pool size must be between 1 and 10");
        }
        if n == 1 {
            if !self.conf.bool("mon_allow_pool_size_one") {
                return fail(Errno::EPERM, "configuring pool size as 1 is disabled by default.");
            }
            if !sure {
                return fail(
                    Errno::EPERM,
                    "WARNING: setting pool size 1 could lead to data loss without recovery. If you are *ABSOLUTELY CERTAIN* that is what you want, pass the flag --yes-i-really-mean-it.",
                );
            }
        }
        let map = self.next_map();
        if let Some(rule) = map.crush.rule(p.crush_rule.into()) {
            if n < i64::from(rule.min_size) {
                return fail(Errno::EINVAL, "pool size is smaller than the crush rule min size");
            }
            if n > i64::from(rule.max_size) {
                return fail(Errno::EINVAL, "pool size is bigger than the crush rule max size");
            }
        }
        self.check_pgs_per_osd(id, p.pg_num.into(), n)?;
        p.size = n as u8;
        p.min_size = match self.conf.int("osd_pool_default_min_size") {
            0 => (n - n / 2) as u8,
            configured => configured.min(n) as u8,
        };
        Ok(())
    }

    fn set_pg_num(&mut self, id: i64, p: &mut PgPool, val: &str) -> Result<(), Refusal> {
        if p.has_flag(pool_flags::NOPGCHANGE) {
            return fail(
                Errno::EPERM,
                "pool pg_num change is disabled; you must unset nopgchange flag for the pool first",
            );
        }
        let n = parse_int(val)?;
        let max = self.conf.int("mon_max_pool_pg_num");
        if n <= 0 || n > max {
            return fail(
                Errno::ERANGE,
                format!(
                    "'pg_num' must be greater than 0 and less than or equal to {max} (you may adjust 'mon max pool pg num' for higher values)"
                ),
            );
        }
        if n == i64::from(p.pg_num_target) {
            return Ok(());
        }
        if n > i64::from(p.pg_num_target) {
            self.check_pgs_per_osd(id, n, p.size.into())?;
        }
        let bound = |key| match p.opts.0.get(&key) {
            Some(PoolOpt::Int(bound)) if *bound > 0 => Some(*bound),
            _ => None,
        };
        if let Some(min) = bound(pool_opts::PG_NUM_MIN).filter(|min| n < *min) {
            return fail(Errno::EINVAL, format!("specified pg_num {n} < pg_num_min {min}"));
        }
        if let Some(max) = bound(pool_opts::PG_NUM_MAX).filter(|max| n > *max) {
            // So says Ceph.
            return fail(Errno::EINVAL, format!("specified pg_num {n} < pg_num_max {max}"));
        }
        // The manager walks pg_num and pgp_num there step by step, as data movement allows.
        if p.pgp_num_target == p.pg_num_target || p.pgp_num_target > n as u32 {
            // Whoever has set it apart keeps it.
            p.pgp_num_target = n as u32;
        }
        p.pg_num_target = n as u32;
        Ok(())
    }

    /// More PGs are there at once; one that is to go is announced, and goes when the OSDs say that
    /// it can ([`Self::on_ready_to_merge`]).
    fn set_pg_num_actual(&mut self, p: &mut PgPool, n: i64) -> Result<(), Refusal> {
        let (now, most) = (i64::from(p.pg_num), self.conf.int("mon_max_pool_pg_num"));
        if n == now {
            return Ok(());
        }
        if n <= 0 || n > most {
            let text = format!(
                "'pg_num' must be greater than 0 and less than or equal to {most} (you may adjust 'mon max pool pg num' for higher values)"
            );
            return fail(Errno::ERANGE, text);
        }
        if p.has_flag(pool_flags::CREATING) {
            let text = "cannot adjust pg_num while initial PGs are being created";
            return fail(Errno::EBUSY, text);
        }
        if n > now {
            if p.pg_num != p.pg_num_pending {
                p.last_force_op_resend_prenautilus = self.pending_inc().epoch;
            }
            p.pg_num = n as u32;
            p.pg_num_pending = n as u32;
            return Ok(());
        }
        if n < i64::from(p.pgp_num) {
            return fail(Errno::EINVAL, format!("specified pg_num {n} < pgp_num {}", p.pgp_num));
        }
        if n < now - 1 {
            let text = format!(
                "specified pg_num {n} < pg_num ({now}) - 1; only single pg decrease is currently supported"
            );
            return fail(Errno::EINVAL, text);
        }
        p.pg_num_pending = n as u32;
        p.last_force_op_resend_prenautilus = self.pending_inc().epoch;
        Ok(())
    }

    fn set_opt(&mut self, p: &mut PgPool, var: &str, val: &str) -> Result<(), Refusal> {
        // What the manager says of pg_num as it goes.
        if var == "pg_num_actual" {
            return self.set_pg_num_actual(p, parse_int(val)?);
        }
        let Some((key, kind)) = pool_opts::by_name(var) else {
            return fail(Errno::EINVAL, format!("unrecognized variable '{var}'"));
        };
        let choices: &[&str] = match var {
            "compression_mode" => &["none", "passive", "aggressive", "force", "unset"],
            "compression_algorithm" => {
                &["none", "snappy", "zlib", "zstd", "lz4", "brotli", "unset"]
            }
            "fingerprint_algorithm" => &["sha1", "sha256", "sha512", "unset"],
            "dedup_chunk_algorithm" => &["fastcdc", "fixed", "unset"],
            _ => &[],
        };
        if !choices.is_empty() && !choices.contains(&val) {
            let what = var.replace("compression_", "compression ");
            return fail(Errno::EINVAL, format!("unrecognized {what} '{val}'"));
        }
        let value = match kind {
            PoolOptKind::Str if val == "unset" => None,
            PoolOptKind::Str => Some(PoolOpt::Str(val.to_string())),
            PoolOptKind::Int => {
                let n = match var {
                    "dedup_tier" => {
                        let map = self.next_map();
                        let tier = map.lookup_pool(val);
                        tier.ok_or_else(|| {
                            refuse(Errno::ENOENT, format!("unrecognized pool '{val}'"))
                        })?
                    }
                    "csum_type" if val == "unset" => 0,
                    "csum_type" => {
                        let known = CSUM_TYPES.iter().position(|name| *name == val);
                        let number = known.ok_or_else(|| {
                            refuse(Errno::EINVAL, format!("unrecognized csum_type '{val}'"))
                        })?;
                        number as i64 + 1
                    }
                    "target_size_bytes"
                    | "compression_max_blob_size"
                    | "compression_min_blob_size"
                    | "csum_max_block"
                    | "csum_min_block" => parse_size(val)?,
                    _ => parse_int(val)?,
                };
                let pg_num = i64::from(p.pg_num_target);
                let bound = match var {
                    "recovery_priority" if !PRIORITIES.contains(&n) => Some(format!(
                        "pool recovery_priority must be between {} and {}",
                        PRIORITIES.start(),
                        PRIORITIES.end()
                    )),
                    "pg_num_min" if n > pg_num => {
                        Some(format!("specified pg_num_min {n} > pg_num {pg_num}"))
                    }
                    "pg_num_max" if n != 0 && n < pg_num => {
                        Some(format!("specified pg_num_max {n} < pg_num {pg_num}"))
                    }
                    _ => None,
                };
                if let Some(text) = bound {
                    return fail(Errno::EINVAL, text);
                }
                (n != 0).then_some(PoolOpt::Int(n))
            }
            PoolOptKind::Double => {
                let n: f64 = val.parse().map_err(|_| {
                    refuse(Errno::EINVAL, format!("error parsing floating point value '{val}'"))
                })?;
                let bound = match var {
                    "target_size_ratio" if n < 0.0 => {
                        Some("target_size_ratio cannot be negative".to_owned())
                    }
                    "pg_autoscale_bias" if !(0.0..=1000.0).contains(&n) => {
                        Some("pg_autoscale_bias must be between 0 and 1000".to_owned())
                    }
                    "compression_required_ratio" if !(0.0..=1.0).contains(&n) => {
                        Some(format!("compression_required_ratio is out of range (0-1): '{val}'"))
                    }
                    _ => None,
                };
                if let Some(text) = bound {
                    return fail(Errno::EINVAL, text);
                }
                (n != 0.0).then_some(PoolOpt::Double(n))
            }
        };
        match value {
            Some(value) => drop(p.opts.0.insert(key, value)),
            None => drop(p.opts.0.remove(&key)),
        }
        Ok(())
    }
}

/// Settings in the order `osd pool get ... all` shows them.
const ALL: [&str; 42] = [
    "size",
    "min_size",
    "pg_num",
    "pgp_num",
    "crush_rule",
    "hashpspool",
    "allow_ec_overwrites",
    "nodelete",
    "nopgchange",
    "nosizechange",
    "write_fadvise_dontneed",
    "noscrub",
    "nodeep-scrub",
    "use_gmt_hitset",
    "erasure_code_profile",
    "fast_read",
    "scrub_min_interval",
    "scrub_max_interval",
    "deep_scrub_interval",
    "recovery_priority",
    "recovery_op_priority",
    "scrub_priority",
    "compression_mode",
    "compression_algorithm",
    "compression_required_ratio",
    "compression_max_blob_size",
    "compression_min_blob_size",
    "csum_type",
    "csum_max_block",
    "csum_min_block",
    "fingerprint_algorithm",
    "pg_autoscale_mode",
    "pg_num_min",
    "target_size_bytes",
    "target_size_ratio",
    "pg_autoscale_bias",
    "dedup_tier",
    "dedup_chunk_algorithm",
    "dedup_cdc_chunk_size",
    "pg_num_max",
    "bulk",
    "read_lease_interval",
];

fn show(cmd: &Cmd, name: &str, id: i64, values: &[(&str, Value)]) -> CommandReply {
    cmd.output(
        |f| {
            f.object("pool", |f| {
                f.dump_string("pool", name);
                f.dump_int("pool_id", id);
                values.iter().for_each(|(var, value)| dump_value(f, var, value));
            });
        },
        || {
            values
                .iter()
                .map(|(var, value)| {
                    let text = match value {
                        Value::Text(text) => text.clone(),
                        Value::Int(n) => n.to_string(),
                        Value::Bool(b) => b.to_string(),
                        Value::Switch(b) => i32::from(*b).to_string(),
                        Value::Float(n) => format_stream_float(*n),
                    };
                    format!("{var}: {text}\n")
                })
                .collect()
        },
    )
}

fn dump_value(f: &mut Formatter, var: &str, value: &Value) {
    match value {
        Value::Text(text) => f.dump_string(var, text),
        Value::Int(n) => f.dump_int(var, *n),
        Value::Bool(b) | Value::Switch(b) => f.dump_bool(var, *b),
        Value::Float(n) => f.dump_float(var, *n),
    }
}

fn set_bit(p: &mut PgPool, bit: u64, on: bool) {
    if on {
        p.flags |= bit;
    } else {
        p.flags &= !bit;
    }
}

fn bad_int(val: &str) -> Refusal {
    refuse(
        Errno::EINVAL,
        format!(
            "error parsing integer value '{val}': Expected option value to be integer, got '{val}'"
        ),
    )
}

/// Pools keep sizes as numbers with a sign.
fn parse_size(val: &str) -> Result<i64, Refusal> {
    let n = config::parse_iec(val).and_then(|n| {
        i64::try_from(n).map_err(|_| config::NumberError::OutOfRange(config::Units::Iec))
    });
    n.map_err(|why| refuse(Errno::EINVAL, format!("error parsing unit value '{val}': {why}")))
}

pub(super) fn parse_int(val: &str) -> Result<i64, Refusal> {
    val.trim().parse().map_err(|_| bad_int(val))
}

fn parse_switch(val: &str) -> Result<bool, Refusal> {
    match val {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => fail(Errno::EINVAL, "expecting value 'true', 'false', '0', or '1'"),
    }
}
