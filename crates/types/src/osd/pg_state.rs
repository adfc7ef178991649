//! The states of a PG as bits, and their text form (`pg_state_string`).

macro_rules! states {
    ($($name:ident $bit:literal $text:literal $doc:literal)*) => {
        $(#[doc = $doc] pub const $name: u64 = 1 << $bit;)*

        /// In the order in which Ceph prints them.
        const NAMES: &[(u64, &str)] = &[$(($name, $text)),*];
    };
}

states! {
    STALE 17 "stale" "Its primary has not reported since it went down."
    CREATING 0 "creating" "Being created."
    ACTIVE 1 "active" "Serves clients."
    ACTIVATING 24 "activating" "Peered, waiting for replicas to persist that."
    CLEAN 2 "clean" "All copies are where they should be."
    RECOVERY_WAIT 22 "recovery_wait" "Waits for a slot to recover."
    RECOVERY_TOOFULL 28 "recovery_toofull" "Recovery stopped: an OSD is too full."
    RECOVERING 14 "recovering" "Recovers."
    FORCED_RECOVERY 30 "forced_recovery" "Recovery has the highest priority."
    DOWN 4 "down" "An OSD that may have newer data is down."
    RECOVERY_UNFOUND 5 "recovery_unfound" "Recovery stopped: objects are unfound."
    BACKFILL_UNFOUND 6 "backfill_unfound" "Backfill stopped: objects are unfound."
    UNDERSIZED 23 "undersized" "Fewer OSDs than the pool's size."
    DEGRADED 10 "degraded" "Objects with too few copies."
    REMAPPED 18 "remapped" "Acting set is not the up set."
    PREMERGE 7 "premerge" "Quiet, about to merge."
    SCRUBBING 8 "scrubbing" "Scrubs."
    DEEP_SCRUB 19 "deep" "The scrub is deep."
    INCONSISTENT 11 "inconsistent" "Scrub found errors."
    PEERING 12 "peering" "Agrees on its history."
    REPAIR 13 "repair" "The scrub repairs."
    BACKFILL_WAIT 15 "backfill_wait" "Waits for a slot to backfill."
    BACKFILLING 20 "backfilling" "Backfills."
    FORCED_BACKFILL 31 "forced_backfill" "Backfill has the highest priority."
    BACKFILL_TOOFULL 21 "backfill_toofull" "Backfill stopped: an OSD is too full."
    INCOMPLETE 16 "incomplete" "No complete enough copy of its history."
    PEERED 25 "peered" "Peered, but with too few OSDs to serve."
    SNAPTRIM 26 "snaptrim" "Trims snapshots."
    SNAPTRIM_WAIT 27 "snaptrim_wait" "Waits to trim snapshots."
    SNAPTRIM_ERROR 29 "snaptrim_error" "Trimming stopped on an error."
    FAILED_REPAIR 32 "failed_repair" "A repair left errors."
    LAGGY 33 "laggy" "The read lease ran out."
    WAIT 34 "wait" "Waits for a former interval's read leases."
}

/// `active+clean`; `unknown` for no state.
pub fn state_string(state: u64) -> String {
    let names: Vec<&str> =
        NAMES.iter().filter(|&&(bit, _)| state & bit != 0).map(|&(_, name)| name).collect();
    if names.is_empty() { "unknown".to_owned() } else { names.join("+") }
}

/// The bit of one state's name; 0 for `unknown`.
pub fn parse_state(name: &str) -> Option<u64> {
    if name == "unknown" {
        return Some(0);
    }
    NAMES.iter().find(|&&(_, text)| text == name).map(|&(bit, _)| bit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text() {
        assert_eq!(
            state_string(ACTIVE | CLEAN | SCRUBBING | DEEP_SCRUB),
            "active+clean+scrubbing+deep"
        );
        assert_eq!(state_string(0), "unknown");
        assert_eq!(parse_state("laggy"), Some(LAGGY));
        assert_eq!(parse_state("x"), None);
    }
}
