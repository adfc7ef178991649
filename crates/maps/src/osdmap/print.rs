//! The map as `ceph osd dump` prints it for people.

use std::fmt::{self, Write};

use types::OsdId;

use super::dump::fraction;
use super::{OsdMap, WEIGHT_IN, osd_state};
use crate::pool::{PgPool, PoolOpt, pool_opts};
use crate::release::release_name;
use command::format_stream_float;

/// `[1,2,3]`.
pub fn osd_list(osds: &[OsdId]) -> String {
    let osds: Vec<String> = osds.iter().map(OsdId::to_string).collect();
    format!("[{}]", osds.join(","))
}

impl OsdMap {
    /// The whole map.
    pub fn print(&self) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail.
        let _ = self.print_head(&mut out);
        out.push('\n');
        out.push_str(&self.print_pools());
        let _ = write!(out, "\nmax_osd {}\n", self.max_osd);
        for osd in self.osds() {
            out.push_str(&self.print_osd(osd));
        }
        out.push('\n');
        let _ = self.print_exceptions(&mut out);
        out
    }

    fn print_head(&self, out: &mut String) -> fmt::Result {
        writeln!(out, "epoch {}", self.epoch)?;
        writeln!(out, "fsid {}", self.fsid)?;
        writeln!(out, "created {}", self.created)?;
        writeln!(out, "modified {}", self.modified)?;
        writeln!(out, "flags {}", self.flags_text())?;
        writeln!(out, "crush_version {}", self.crush_version)?;
        let ratio = |ratio: f32| format_stream_float(ratio.into());
        writeln!(out, "full_ratio {}", ratio(self.full_ratio))?;
        writeln!(out, "backfillfull_ratio {}", ratio(self.backfillfull_ratio))?;
        writeln!(out, "nearfull_ratio {}", ratio(self.nearfull_ratio))?;
        if self.require_min_compat_client > 0 {
            let release = release_name(self.require_min_compat_client);
            writeln!(out, "require_min_compat_client {release}")?;
        }
        writeln!(out, "min_compat_client {}", release_name(self.min_compat_client()))?;
        if self.require_osd_release > 0 {
            writeln!(out, "require_osd_release {}", release_name(self.require_osd_release))?;
        }
        writeln!(out, "stretch_mode_enabled {}", self.stretch_mode_enabled)?;
        if self.stretch_mode_enabled {
            writeln!(out, "stretch_bucket_count {}", self.stretch_bucket_count)?;
            writeln!(out, "degraded_stretch_mode {}", self.degraded_stretch_mode)?;
            writeln!(out, "recovering_stretch_mode {}", self.recovering_stretch_mode)?;
            writeln!(out, "stretch_mode_bucket {}", self.stretch_mode_bucket)?;
        }
        if !self.cluster_snapshot.is_empty() {
            writeln!(out, "cluster_snapshot {}", self.cluster_snapshot)?;
        }
        Ok(())
    }

    /// The pools alone: `ceph osd pool ls detail`.
    pub fn print_pools(&self) -> String {
        let mut out = String::new();
        for (id, pool) in &self.pools {
            let name = self.pool_names.get(id).map_or("<unknown>", String::as_str);
            let _ = writeln!(out, "pool {id} '{name}' {pool}");
            for snap in pool.snaps.values() {
                let _ = writeln!(out, "\tsnap {} '{}' {}", snap.snapid, snap.name, snap.stamp);
            }
            if !pool.removed_snaps.is_empty() {
                let _ = writeln!(out, "\tremoved_snaps {:x}", pool.removed_snaps);
            }
            if let Some(queue) = self.removed_snaps_queue.get(id) {
                let _ = writeln!(out, "\tremoved_snaps_queue {queue:x}");
            }
        }
        out
    }

    /// One OSD that exists: a line of `ceph osd dump`.
    pub fn print_osd(&self, osd: OsdId) -> String {
        let mut out = String::new();
        let _ = self.print_osd_to(&mut out, osd);
        out
    }

    fn print_osd_to(&self, out: &mut String, osd: OsdId) -> fmt::Result {
        let i = osd as usize;
        let up = if self.is_up(osd) { "up  " } else { "down" };
        let within = if self.is_in(osd) { "in " } else { "out" };
        let weight = format_stream_float(fraction(self.osd_weight[i]));
        write!(out, "osd.{osd} {up} {within} weight {weight}")?;
        let affinity = self.primary_affinity(osd);
        if affinity != WEIGHT_IN {
            write!(out, " primary_affinity {}", format_stream_float(fraction(affinity)))?;
        }
        let info = &self.osd_info[i];
        write!(
            out,
            " up_from {} up_thru {} down_at {} last_clean_interval [{},{})",
            info.up_from, info.up_thru, info.down_at, info.last_clean_begin, info.last_clean_end
        )?;
        if info.lost_at != 0 {
            write!(out, " lost_at {}", info.lost_at)?;
        }
        let mut states = osd_state::names(self.osd_state[i]);
        states.sort_unstable();
        let states = states.join(",");
        for addrs in [&self.client_addrs[i], &self.cluster_addrs[i]] {
            match addrs.is_empty() {
                true => out.push(' '),
                false => write!(out, " {addrs}")?,
            }
        }
        write!(out, " {states}")?;
        if !self.osd_uuid[i].is_zero() {
            write!(out, " {}", self.osd_uuid[i])?;
        }
        out.push('\n');
        Ok(())
    }

    fn print_exceptions(&self, out: &mut String) -> fmt::Result {
        for (pg, osds) in &self.pg_upmap {
            writeln!(out, "pg_upmap {pg} {}", osd_list(osds))?;
        }
        for (pg, items) in &self.pg_upmap_items {
            let items: Vec<String> =
                items.iter().map(|(from, to)| format!("{from},{to}")).collect();
            writeln!(out, "pg_upmap_items {pg} [{}]", items.join(","))?;
        }
        for (pg, osds) in &self.pg_temp {
            writeln!(out, "pg_temp {pg} {}", osd_list(osds))?;
        }
        for (pg, osd) in &self.primary_temp {
            writeln!(out, "primary_temp {pg} {osd}")?;
        }
        for (addr, until) in &self.blocklist {
            writeln!(out, "blocklist {addr} expires {until}")?;
        }
        for (range, until) in &self.range_blocklist {
            writeln!(out, "range blocklist {range} expires {until}")?;
        }
        Ok(())
    }
}

impl fmt::Display for PgPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.type_name())?;
        if self.is_erasure() {
            write!(f, " profile {}", self.erasure_code_profile)?;
        }
        let hash = if self.object_hash == 2 { "rjenkins" } else { "unknown" };
        write!(
            f,
            " size {} min_size {} crush_rule {} object_hash {hash} pg_num {} pgp_num {}",
            self.size, self.min_size, self.crush_rule, self.pg_num, self.pgp_num
        )?;
        if self.pg_num_target != self.pg_num {
            write!(f, " pg_num_target {}", self.pg_num_target)?;
        }
        if self.pgp_num_target != self.pgp_num {
            write!(f, " pgp_num_target {}", self.pgp_num_target)?;
        }
        if self.pg_num_pending != self.pg_num {
            write!(f, " pg_num_pending {}", self.pg_num_pending)?;
        }
        write!(f, " autoscale_mode {}", self.autoscale_mode_name())?;
        write!(f, " last_change {}", self.last_change)?;
        let resend = [
            self.last_force_op_resend,
            self.last_force_op_resend_prenautilus,
            self.last_force_op_resend_preluminous,
        ];
        if resend != [0; 3] {
            write!(f, " lfor {}/{}/{}", resend[0], resend[1], resend[2])?;
        }
        if self.auid != 0 {
            write!(f, " owner {}", self.auid)?;
        }
        if self.flags != 0 {
            write!(f, " flags {}", self.flags_text())?;
        }
        let optional = |f: &mut fmt::Formatter<'_>, name: &str, value: u64| match value {
            0 => Ok(()),
            value => write!(f, " {name} {value}"),
        };
        optional(f, "max_bytes", self.quota_max_bytes)?;
        optional(f, "max_objects", self.quota_max_objects)?;
        if !self.tiers.is_empty() {
            let tiers: Vec<String> = self.tiers.iter().map(u64::to_string).collect();
            write!(f, " tiers {}", tiers.join(","))?;
        }
        for (name, pool) in [
            ("tier_of", self.tier_of),
            ("read_tier", self.read_tier),
            ("write_tier", self.write_tier),
        ] {
            if pool >= 0 {
                write!(f, " {name} {pool}")?;
            }
        }
        if self.cache_mode != 0 {
            write!(f, " cache_mode {}", self.cache_mode_name())?;
        }
        optional(f, "target_bytes", self.target_max_bytes)?;
        optional(f, "target_objects", self.target_max_objects)?;
        optional(f, "min_read_recency_for_promote", self.min_read_recency_for_promote.into())?;
        optional(f, "min_write_recency_for_promote", self.min_write_recency_for_promote.into())?;
        write!(f, " stripe_width {}", self.stripe_width)?;
        optional(f, "expected_num_objects", self.expected_num_objects)?;
        optional(f, "fast_read", self.fast_read.into())?;
        for (name, key, _) in pool_opts::NAMES {
            match self.opts.0.get(&key) {
                Some(PoolOpt::Str(value)) => write!(f, " {name} {value}")?,
                Some(PoolOpt::Int(value)) => write!(f, " {name} {value}")?,
                Some(PoolOpt::Double(value)) => {
                    write!(f, " {name} {}", format_stream_float(*value))?;
                }
                None => {}
            }
        }
        if !self.application_metadata.is_empty() {
            let names: Vec<&str> = self.application_metadata.keys().map(String::as_str).collect();
            write!(f, " application {}", names.join(","))?;
        }
        Ok(())
    }
}
