//! The CRUSH map as `osd crush dump -f json` and its parts show it.

use command::Formatter;
use crush::{CrushMap, DEFAULT_CHOOSE_ARGS, Rule, Tunables, Weights, op};
use types::features;

use crate::osdmap::{crush_features, has_steps};

/// The members of `osd crush dump`.
pub fn dump_crush(f: &mut Formatter, map: &CrushMap) {
    f.array("devices", |f| {
        for device in 0..map.max_devices {
            f.object("device", |f| {
                f.dump_int("id", device);
                match map.name_of(device) {
                    Some(name) => f.dump_string("name", name),
                    None => f.dump_stream("name", format_args!("device{device}")),
                }
                if let Some(class) = map.class_of(device) {
                    f.dump_string("class", class);
                }
            });
        }
    });
    f.array("types", |f| {
        for (id, name) in &map.types {
            f.object("type", |f| {
                f.dump_int("type_id", *id);
                f.dump_string("name", name);
            });
        }
    });
    f.array("buckets", |f| {
        for bucket in map.each_bucket() {
            f.object("bucket", |f| {
                f.dump_int("id", bucket.id);
                if let Some(name) = map.name_of(bucket.id) {
                    f.dump_string("name", name);
                }
                f.dump_unsigned("type_id", bucket.kind);
                if let Some(name) = map.types.get(&i32::from(bucket.kind)) {
                    f.dump_string("type_name", name);
                }
                f.dump_int("weight", bucket.weight);
                f.dump_string("alg", bucket.algorithm().name());
                f.dump_string("hash", if bucket.hash == 0 { "rjenkins1" } else { "unknown" });
                f.array("items", |f| {
                    for (pos, (id, weight)) in bucket.weighted_items().into_iter().enumerate() {
                        f.object("item", |f| {
                            f.dump_int("id", id);
                            f.dump_int("weight", weight);
                            f.dump_int("pos", pos as i64);
                        });
                    }
                });
            });
        }
    });
    f.array("rules", |f| dump_rules(f, map));
    f.object("tunables", |f| dump_tunables(f, map));
    dump_choose_args(f, map);
}

/// Every rule, inside an open array.
pub fn dump_rules(f: &mut Formatter, map: &CrushMap) {
    for (id, rule) in map.rules.iter().enumerate() {
        if let Some(rule) = rule {
            dump_rule(f, map, id as i32, rule);
        }
    }
}

/// One rule.
pub fn dump_rule(f: &mut Formatter, map: &CrushMap, id: i32, rule: &Rule) {
    f.object("rule", |f| {
        f.dump_int("rule_id", id);
        if let Some(name) = map.rule_names.get(&id) {
            f.dump_string("rule_name", name);
        }
        f.dump_int("ruleset", rule.ruleset);
        f.dump_int("type", rule.kind);
        f.dump_int("min_size", rule.min_size);
        f.dump_int("max_size", rule.max_size);
        f.array("steps", |f| {
            for step in &rule.steps {
                f.object("step", |f| {
                    let choose = |f: &mut Formatter, name: &str| {
                        f.dump_string("op", name);
                        f.dump_int("num", step.arg1);
                        f.dump_string("type", map.types.get(&step.arg2).map_or("", String::as_str));
                    };
                    let set = |f: &mut Formatter, name: &str| {
                        f.dump_string("op", name);
                        f.dump_int("num", step.arg1);
                    };
                    match step.op {
                        op::NOOP => f.dump_string("op", "noop"),
                        op::TAKE => {
                            f.dump_string("op", "take");
                            f.dump_int("item", step.arg1);
                            f.dump_string("item_name", map.name_of(step.arg1).unwrap_or_default());
                        }
                        op::EMIT => f.dump_string("op", "emit"),
                        op::CHOOSE_FIRSTN => choose(f, "choose_firstn"),
                        op::CHOOSE_INDEP => choose(f, "choose_indep"),
                        op::CHOOSELEAF_FIRSTN => choose(f, "chooseleaf_firstn"),
                        op::CHOOSELEAF_INDEP => choose(f, "chooseleaf_indep"),
                        op::SET_CHOOSE_TRIES => set(f, "set_choose_tries"),
                        op::SET_CHOOSELEAF_TRIES => set(f, "set_chooseleaf_tries"),
                        other => {
                            f.dump_int("opcode", other);
                            f.dump_int("arg1", step.arg1);
                            f.dump_int("arg2", step.arg2);
                        }
                    }
                });
            }
        });
    });
}

/// Whether every bucket's algorithm and rule is as old as a profile allows.
fn minimum_required_version(map: &CrushMap) -> &'static str {
    let t = &map.tunables;
    let v5_rules = has_steps(map, &[op::SET_CHOOSELEAF_STABLE]);
    let v4_buckets = map.each_bucket().any(|b| matches!(b.weights, Weights::Straw2(_)));
    let v3_rules = has_steps(map, &[op::SET_CHOOSELEAF_VARY_R]);
    if v5_rules || t.chooseleaf_stable != 0 {
        "jewel"
    } else if v4_buckets {
        "hammer"
    } else if t.chooseleaf_vary_r != 0 {
        "firefly"
    } else if t.chooseleaf_descend_once != 0 || v3_rules {
        "bobtail"
    } else {
        "argonaut"
    }
}

/// The members of `osd crush show-tunables`.
pub fn dump_tunables(f: &mut Formatter, map: &CrushMap) {
    let t = &map.tunables;
    f.dump_int("choose_local_tries", t.choose_local_tries);
    f.dump_int("choose_local_fallback_tries", t.choose_local_fallback_tries);
    f.dump_int("choose_total_tries", t.choose_total_tries);
    f.dump_int("chooseleaf_descend_once", t.chooseleaf_descend_once);
    f.dump_int("chooseleaf_vary_r", t.chooseleaf_vary_r);
    f.dump_int("chooseleaf_stable", t.chooseleaf_stable);
    f.dump_int("straw_calc_version", t.straw_calc_version);
    f.dump_int("allowed_bucket_algs", t.allowed_bucket_algs);
    let profiles = [
        ("jewel", Tunables::jewel()),
        ("hammer", Tunables::hammer()),
        ("firefly", Tunables::firefly()),
        ("bobtail", Tunables::bobtail()),
        ("argonaut", Tunables::argonaut()),
    ];
    let profile = profiles.iter().find(|(_, p)| t.same_behaviour(p)).map_or("unknown", |p| p.0);
    f.dump_string("profile", profile);
    let bits = crush_features(map);
    let has = |bit: u64| i32::from(bits & bit == bit);
    let rules = |ops: &[u32]| i32::from(has_steps(map, ops));
    f.dump_int("optimal_tunables", i32::from(profile == "jewel"));
    f.dump_int("legacy_tunables", i32::from(profile == "argonaut"));
    f.dump_string("minimum_required_version", minimum_required_version(map));
    f.dump_int("require_feature_tunables", has(features::CRUSH_TUNABLES));
    f.dump_int("require_feature_tunables2", i32::from(t.chooseleaf_descend_once != 0));
    let v2 =
        [op::CHOOSE_INDEP, op::CHOOSELEAF_INDEP, op::SET_CHOOSE_TRIES, op::SET_CHOOSELEAF_TRIES];
    f.dump_int("has_v2_rules", rules(&v2));
    f.dump_int("require_feature_tunables3", i32::from(t.chooseleaf_vary_r != 0));
    f.dump_int("has_v3_rules", rules(&[op::SET_CHOOSELEAF_VARY_R]));
    f.dump_int("has_v4_buckets", has(features::CRUSH_V4));
    f.dump_int("require_feature_tunables5", i32::from(t.chooseleaf_stable != 0));
    f.dump_int("has_v5_rules", rules(&[op::SET_CHOOSELEAF_STABLE]));
}

/// `choose_args`: sets by pool, the default one as -1.
pub fn dump_choose_args(f: &mut Formatter, map: &CrushMap) {
    debug_assert_eq!(DEFAULT_CHOOSE_ARGS, -1);
    f.object("choose_args", |f| {
        for (id, args) in &map.choose_args {
            f.array(&id.to_string(), |f| {
                for (slot, arg) in args {
                    if arg.weight_set.is_empty() && arg.ids.is_empty() {
                        continue;
                    }
                    f.object("choose_args", |f| {
                        f.dump_int("bucket_id", -1 - i64::from(*slot));
                        if !arg.weight_set.is_empty() {
                            f.array("weight_set", |f| {
                                for set in &arg.weight_set {
                                    f.array("weights", |f| {
                                        for weight in set {
                                            let weight = f64::from(*weight as f32 / 65536.0);
                                            f.dump_float("weight", weight);
                                        }
                                    });
                                }
                            });
                        }
                        if !arg.ids.is_empty() {
                            f.array("ids", |f| arg.ids.iter().for_each(|id| f.dump_int("id", *id)));
                        }
                    });
                }
            });
        }
    });
}
