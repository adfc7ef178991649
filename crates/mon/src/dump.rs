//! Parts of maps in the form commands show them.

use command::Formatter;
use maps::MonMap;
use maps::monmap::{MON_FEATURE_NAMES, MonFeatures};
use maps::release::release_name;
use types::AddrVec;

/// An address vector as an object of that name.
pub(crate) fn addrvec(f: &mut Formatter, name: &str, addrs: &AddrVec) {
    f.object(name, |f| addrvec_fields(f, addrs));
}

/// The member `addrvec` of an open object.
pub(crate) fn addrvec_fields(f: &mut Formatter, addrs: &AddrVec) {
    f.array("addrvec", |f| {
        for addr in addrs.iter() {
            f.object("addr", |f| {
                f.dump_string("type", addr.kind.name());
                f.dump_stream("addr", addr.sockaddr_text());
                f.dump_unsigned("nonce", addr.nonce);
            });
        }
    });
}

/// The names of monitor features, as elements of an open array.
pub(crate) fn mon_feature_names(f: &mut Formatter, features: &MonFeatures) {
    for (bit, name) in MON_FEATURE_NAMES {
        if features.bits & bit != 0 {
            f.dump_string("feature", name);
        }
    }
}

/// The feature of that name; every monitor of ours supports those that have one.
pub(crate) fn mon_feature(name: &str) -> Option<MonFeatures> {
    let (bits, _) = MON_FEATURE_NAMES.iter().find(|(_, known)| *known == name)?;
    Some(MonFeatures { bits: *bits })
}

/// `[kraken,luminous,...]`.
pub(crate) fn mon_feature_text(features: &MonFeatures) -> String {
    let names: Vec<&str> = MON_FEATURE_NAMES
        .iter()
        .filter(|(bit, _)| features.bits & bit != 0)
        .map(|(_, name)| *name)
        .collect();
    format!("[{}]", names.join(","))
}

/// A monitor map as an object of that name.
pub(crate) fn monmap(f: &mut Formatter, name: &str, map: &MonMap) {
    f.object(name, |f| monmap_fields(f, map));
}

/// The members of a monitor map.
pub(crate) fn monmap_fields(f: &mut Formatter, map: &MonMap) {
    f.dump_unsigned("epoch", map.epoch);
    f.dump_stream("fsid", map.fsid);
    f.dump_stream("modified", map.last_changed.gmtime());
    f.dump_stream("created", map.created.gmtime());
    f.dump_unsigned("min_mon_release", map.min_mon_release);
    f.dump_string("min_mon_release_name", release_name(map.min_mon_release));
    f.dump_unsigned("election_strategy", map.strategy);
    let disallowed: Vec<&str> = map.disallowed_leaders.iter().map(String::as_str).collect();
    f.dump_string("disallowed_leaders: ", disallowed.join(","));
    f.dump_bool("stretch_mode", map.stretch_mode_enabled);
    f.dump_string("tiebreaker_mon", &map.tiebreaker_mon);
    let removed: Vec<String> = map.removed_ranks.iter().map(u32::to_string).collect();
    f.dump_string("removed_ranks: ", removed.join(","));
    f.object("features", |f| {
        f.array("persistent", |f| mon_feature_names(f, &map.persistent_features));
        f.array("optional", |f| mon_feature_names(f, &map.optional_features));
    });
    f.array("mons", |f| {
        for (rank, name) in map.ranks.iter().enumerate() {
            let Some(mon) = map.mon_info.get(name) else { continue };
            f.object("mon", |f| {
                f.dump_unsigned("rank", rank as u64);
                f.dump_string("name", name);
                addrvec(f, "public_addrs", &mon.public_addrs);
                f.dump_stream("addr", mon.public_addrs.legacy_text());
                f.dump_stream("public_addr", mon.public_addrs.legacy_text());
                f.dump_unsigned("priority", mon.priority);
                f.dump_unsigned("weight", mon.weight);
                let places: Vec<String> =
                    mon.crush_loc.iter().map(|(k, v)| format!("{k}={v}")).collect();
                f.dump_string("crush_location", format!("{{{}}}", places.join(",")));
            });
        }
    });
}
