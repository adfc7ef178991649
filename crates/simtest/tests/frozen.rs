//! Processes that stand still and go on: what they did not do in time they must know to be late with.
//! `loligo sim --short --aim frozen` and `--faults freeze` live the same lives.

use simtest::{Aim, Fault, Settings};

use crate::keep_their_word;

// Debug builds are some twenty times slower.
const LIVES: u64 = if cfg!(debug_assertions) { 1 } else { 8 };

/// No process was ever late: a primary found its lease ended only while it was cut off, never between two of its steps.
#[test]
fn lives_in_which_a_primary_stands_still() {
    let settings = Settings { aim: Some(Aim::Frozen), short: true, ..Settings::default() };
    keep_their_word(1..1 + LIVES, &settings);
}

/// The same of all processes, beside OSDs that fall.
#[test]
fn lives_in_which_processes_stand_still() {
    let faults = Some([Fault::Freeze, Fault::Osd].into());
    let settings = Settings { faults, short: true, ..Settings::default() };
    keep_their_word(1..1 + LIVES, &settings);
}
