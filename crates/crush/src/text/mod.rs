//! The map as text, in crushtool's dialect (`src/crush/CrushCompiler.cc` at v16.2).
//!
//! ```text
//! tunable NAME N
//! device N NAME [class CLASS]
//! type N NAME
//! TYPE NAME { id N [class CLASS] ... alg ALG hash N item NAME [weight W] [pos N] ... }
//! rule NAME { id N type KIND min_size N max_size N step ... }
//! choose_args N { { bucket_id N weight_set [ [ W ... ] ... ] ids [ N ... ] } ... }
//! ```
//!
//! `#` begins a comment. Weights have three decimals in the text made here, as in crushtool's, so
//! a map survives the way through text only roughly.

mod compile;
mod decompile;

pub use compile::{CompileError, Problem};

use crate::map::{CrushMap, Tunables, op};

/// Tunables by name: reads and writes them as numbers.
const TUNABLES: [&str; 8] = [
    "choose_local_tries",
    "choose_local_fallback_tries",
    "choose_total_tries",
    "chooseleaf_descend_once",
    "chooseleaf_vary_r",
    "chooseleaf_stable",
    "straw_calc_version",
    "allowed_bucket_algs",
];

/// Steps that set a number, by name.
const SET_STEPS: [(&str, u32); 6] = [
    ("set_choose_tries", op::SET_CHOOSE_TRIES),
    ("set_chooseleaf_tries", op::SET_CHOOSELEAF_TRIES),
    ("set_choose_local_tries", op::SET_CHOOSE_LOCAL_TRIES),
    ("set_choose_local_fallback_tries", op::SET_CHOOSE_LOCAL_FALLBACK_TRIES),
    ("set_chooseleaf_vary_r", op::SET_CHOOSELEAF_VARY_R),
    ("set_chooseleaf_stable", op::SET_CHOOSELEAF_STABLE),
];

/// Steps that choose: name, mode, number.
const CHOOSE_STEPS: [(&str, &str, u32); 4] = [
    ("choose", "firstn", op::CHOOSE_FIRSTN),
    ("choose", "indep", op::CHOOSE_INDEP),
    ("chooseleaf", "firstn", op::CHOOSELEAF_FIRSTN),
    ("chooseleaf", "indep", op::CHOOSELEAF_INDEP),
];

fn tunable(t: &Tunables, name: &str) -> Option<u32> {
    Some(match name {
        "choose_local_tries" => t.choose_local_tries,
        "choose_local_fallback_tries" => t.choose_local_fallback_tries,
        "choose_total_tries" => t.choose_total_tries,
        "chooseleaf_descend_once" => t.chooseleaf_descend_once,
        "chooseleaf_vary_r" => t.chooseleaf_vary_r.into(),
        "chooseleaf_stable" => t.chooseleaf_stable.into(),
        "straw_calc_version" => t.straw_calc_version.into(),
        "allowed_bucket_algs" => t.allowed_bucket_algs,
        _ => return None,
    })
}

impl CrushMap {
    /// The value of a tunable by its name.
    pub fn tunable(&self, name: &str) -> Option<u32> {
        tunable(&self.tunables, name)
    }

    /// Sets a tunable by its name; whether there is one.
    pub fn set_tunable(&mut self, name: &str, value: u32) -> bool {
        let t = &mut self.tunables;
        match name {
            "choose_local_tries" => t.choose_local_tries = value,
            "choose_local_fallback_tries" => t.choose_local_fallback_tries = value,
            "choose_total_tries" => t.choose_total_tries = value,
            "chooseleaf_descend_once" => t.chooseleaf_descend_once = value,
            "chooseleaf_vary_r" => t.chooseleaf_vary_r = value as u8,
            "chooseleaf_stable" => t.chooseleaf_stable = value as u8,
            "straw_calc_version" => t.straw_calc_version = value as u8,
            "allowed_bucket_algs" => t.allowed_bucket_algs = value,
            _ => return false,
        }
        true
    }
}
