//! Connections between OSDs break many times a second: nothing is lost, done twice or stuck.
//! `loligo sim --aim resets --short` lives the same lives.

use simtest::{Aim, Settings};

use crate::keep_their_word;

/// Found here (2 lives of 8): a session in which one side stood by and the other one was told to
/// wait for it, for ever (`crates/msgr/src/resolve.rs`); placement groups stayed laggy.
#[test]
fn lives_in_which_connections_break() {
    let settings = Settings { aim: Some(Aim::Resets), short: true, ..Settings::default() };
    // Debug builds are some twenty times slower.
    let seeds = if cfg!(debug_assertions) { 1 } else { 16 };
    keep_their_word(1..1 + seeds, &settings);
}
