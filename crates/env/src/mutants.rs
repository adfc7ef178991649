//! Bugs planted on purpose, to learn whether the simulation finds them (`docs/simulation.md`).
//!
//! Where one could be, the code asks [`mutant`]. Without the feature `mutants`, which no
//! production build has, the answer is a constant `false` and nothing is left of the question.

/// The bugs: the name that the code asks for, and what is wrong with it.
pub const MUTANTS: [(&str, &str); 23] = [
    ("reply-early", "the primary replies when its own disk has the write"),
    ("ack-early", "a replica says that it has a write before its disk has"),
    ("promise-early", "what a copy has is told to peers before it is durable"),
    ("skip-flush", "the store does not flush the device after a batch"),
    ("no-checksum", "the store does not verify checksums of what it reads"),
    ("stale-interval", "a replica takes writes of a primary of an earlier interval"),
    ("stale-peering", "peering listens to messages of an earlier interval"),
    ("forget-requests", "who begins to lead a PG does not know requests answered before"),
    ("lose-waiting", "operations that wait for an object are lost when it is recovered"),
    ("serve-after-lease", "the primary serves reads after its lease has ended"),
    ("tell-unsettled", "an op that changed nothing tells what it saw before that is durable"),
    (
        "read-unstable",
        "a copy that does not lead answers reads of objects whose last write others may lack",
    ),
    ("keep-divergent", "entries that did not happen leave the log, their data stays"),
    ("skip-min-size", "writes are taken with fewer replicas than min_size"),
    ("lose-last-entry", "the last entry is missing from the log sent at activation"),
    ("omit-missing", "an entry in four is not noted as missing"),
    ("no-up-thru", "a primary activates before the monitor has recorded it as up"),
    ("ignore-down", "peering does not wait for OSDs that may hold newer writes"),
    ("backfill-blind", "writes during a backfill do not reach its target"),
    ("no-clone", "the write after a snapshot makes no clone"),
    ("no-replay", "a connection made anew does not repeat what was not acknowledged"),
    (
        "replay-twice",
        "a new connection repeats what the peer has had, and a write so repeated is made twice",
    ),
    ("mon-early", "the monitor answers before its database is durable"),
];

#[cfg(feature = "mutants")]
thread_local! {
    static CHOSEN: std::cell::Cell<&'static str> = const { std::cell::Cell::new("") };
}

/// Chooses the bug that this thread's daemons have; the empty name for none.
#[cfg(feature = "mutants")]
pub fn choose_mutant(name: &'static str) {
    CHOSEN.set(name);
}

/// Whether the code that asks is to be wrong in this way.
#[inline(always)]
pub fn mutant(name: &str) -> bool {
    #[cfg(feature = "mutants")]
    return CHOSEN.get() == name;
    #[cfg(not(feature = "mutants"))]
    {
        let _ = name;
        false
    }
}
