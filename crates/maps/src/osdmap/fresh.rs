//! The first map of a cluster, as a monitor of 16.2 makes it.

use std::sync::Arc;

use crush::{CrushMap, RULE_REPLICATED};
use types::{UTime, Uuid};

use super::{OsdMap, osdmap_flags};
use crate::release::PACIFIC;

impl OsdMap {
    /// Epoch 1: no OSD, no pool, a root `default`, the rule `replicated_rule` over buckets of
    /// type `failure_domain` (osd_crush_chooseleaf_type: `host`, or `osd` on one host), and the
    /// erasure code profile `default`.
    pub fn fresh(fsid: Uuid, now: UTime, failure_domain: &str) -> OsdMap {
        let mut crush = CrushMap::fresh();
        // The names are valid and the map is empty, so only an unknown type can fail it; then the
        // rule spreads over OSDs.
        for domain in [failure_domain, ""] {
            let rule = "replicated_rule";
            if crush.add_simple_rule(rule, "default", domain, "", true, RULE_REPLICATED).is_ok() {
                break;
            }
        }
        let mut map = OsdMap {
            fsid,
            epoch: 1,
            created: now,
            modified: now,
            flags: osdmap_flags::SORTBITWISE
                | osdmap_flags::RECOVERY_DELETES
                | osdmap_flags::PURGED_SNAPDIRS
                | osdmap_flags::PGLOG_HARDLIMIT,
            crush: Arc::new(crush),
            nearfull_ratio: 0.85,
            full_ratio: 0.95,
            backfillfull_ratio: 0.90,
            require_min_compat_client: 12,
            require_osd_release: PACIFIC,
            ..OsdMap::default()
        };
        let profile =
            [("k", "2"), ("m", "2"), ("plugin", "jerasure"), ("technique", "reed_sol_van")];
        let profile = profile.map(|(key, value)| (key.to_owned(), value.to_owned()));
        map.erasure_code_profiles.insert("default".to_owned(), profile.into());
        map
    }
}
