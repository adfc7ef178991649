//! What a monitor counts, under Ceph's names where Ceph counts the same (`src/mon/Monitor.cc` and
//! `src/mon/Paxos.cc` at v16.2). The replicated log's stand under `paxos`, with those of Ceph's counters that
//! have a meaning here: an entry is stored ("begin"), and applied once a majority has stored it ("commit").

use std::cell::Cell;

use perf::{Average, Counter, INTERESTING, Times, USEFUL, Value};
use types::osd::pg_state;

use crate::core::MonCore;

/// Counted since the start, or since `perf reset`.
#[derive(Debug, Default)]
pub struct Counters {
    pub(crate) session_add: Cell<u64>,
    pub(crate) session_rm: Cell<u64>,
    pub(crate) session_trim: Cell<u64>,
    pub(crate) election_call: Cell<u64>,
    pub(crate) paxos: PaxosCounters,
}

/// Of the replicated log.
#[derive(Debug, Default)]
pub(crate) struct PaxosCounters {
    pub(crate) start_leader: Cell<u64>,
    pub(crate) start_peon: Cell<u64>,
    pub(crate) restart: Cell<u64>,
    pub(crate) begin: Cell<u64>,
    pub(crate) begin_bytes: Average,
    pub(crate) begin_latency: Times,
    pub(crate) commit: Cell<u64>,
    pub(crate) commit_keys: Average,
    pub(crate) commit_bytes: Average,
    pub(crate) commit_latency: Times,
    pub(crate) lease_ack_timeout: Cell<u64>,
    pub(crate) lease_timeout: Cell<u64>,
}

/// One more.
pub(crate) fn bump(cell: &Cell<u64>) {
    cell.set(cell.get() + 1);
}

impl PaxosCounters {
    fn cells(&self) -> [&Cell<u64>; 7] {
        [
            &self.start_leader,
            &self.start_peon,
            &self.restart,
            &self.begin,
            &self.commit,
            &self.lease_ack_timeout,
            &self.lease_timeout,
        ]
    }

    fn reset(&self) {
        self.cells().into_iter().for_each(|cell| cell.set(0));
        let sizes = [&self.begin_bytes, &self.commit_keys, &self.commit_bytes];
        sizes.into_iter().for_each(Average::reset);
        [&self.begin_latency, &self.commit_latency].into_iter().for_each(Times::reset);
    }

    fn list(&self) -> Vec<Counter> {
        let of = |name, what, value| Counter::new("paxos", name, what, value).priority(USEFUL);
        let count = |cell: &Cell<u64>| Value::Count(cell.get());
        vec![
            of("start_leader", "times this monitor began to lead", count(&self.start_leader)),
            of("start_peon", "times it began to follow", count(&self.start_peon)),
            of("restart", "times it lost its quorum", count(&self.restart)),
            of("begin", "entries stored", count(&self.begin)),
            of("begin_bytes", "bytes of these", self.begin_bytes.value()).bytes(),
            of("begin_latency", "time to store entries", self.begin_latency.value()),
            of("commit", "entries applied", count(&self.commit)).nick("cmt"),
            of("commit_keys", "changes of keys in these", self.commit_keys.value()),
            of("commit_bytes", "bytes of these", self.commit_bytes.value()).bytes(),
            of("commit_latency", "time to apply entries", self.commit_latency.value()).nick("clat"),
            of(
                "lease_ack_timeout",
                "times it stopped to lead, for no majority was heard of",
                count(&self.lease_ack_timeout),
            ),
            of(
                "lease_timeout",
                "times it stopped to follow, for the leader was not heard of",
                count(&self.lease_timeout),
            ),
        ]
    }
}

impl Counters {
    /// Whether there is such a group (or it is `all`): from zero on then.
    pub(crate) fn reset(&self, group: &str) -> bool {
        if matches!(group, "all" | "mon") {
            let cells = [&self.session_add, &self.session_rm, &self.session_trim];
            cells.into_iter().chain([&self.election_call]).for_each(|cell| cell.set(0));
        }
        if matches!(group, "all" | "paxos") {
            self.paxos.reset();
        }
        matches!(group, "all" | "mon" | "paxos")
    }
}

impl MonCore {
    /// All counters, group by group.
    pub(crate) fn list_counters(&self) -> Vec<Counter> {
        let counters = &self.counters;
        let mon = |name, what, value| Counter::new("mon", name, what, value);
        let count = |cell: &Cell<u64>| Value::Count(cell.get());
        let sessions = Value::Gauge(self.sessions.len() as u64);
        let elections = Value::Count(u64::from(self.election_epoch() / 2));
        let mut all = self.cluster_counters();
        all.extend([
            mon("num_sessions", "open sessions", sessions).priority(USEFUL).nick("sess"),
            mon("session_add", "sessions begun", count(&counters.session_add))
                .priority(INTERESTING)
                .nick("sadd"),
            mon("session_rm", "sessions ended", count(&counters.session_rm))
                .priority(INTERESTING)
                .nick("srm"),
            mon("session_trim", "sessions that this monitor ended", count(&counters.session_trim))
                .priority(USEFUL)
                .nick("strm"),
            mon("num_elections", "elections that there were", elections)
                .priority(USEFUL)
                .nick("ecnt"),
            mon("election_call", "elections called by it", count(&counters.election_call))
                .priority(INTERESTING)
                .nick("estt"),
            mon("election_win", "elections won", count(&counters.paxos.start_leader))
                .priority(INTERESTING)
                .nick("ewon"),
            mon("election_lose", "elections lost", count(&counters.paxos.start_peon))
                .priority(INTERESTING)
                .nick("elst"),
        ]);
        all.extend(counters.paxos.list());
        all
    }

    fn cluster_counters(&self) -> Vec<Counter> {
        let (map, usage, digest) = (self.osdmap(), self.statfs(None), &self.stat.digest);
        let cluster = |name, what, value| Counter::new("cluster", name, what, Value::Gauge(value));
        let count_of = |n: i64| u64::try_from(n).unwrap_or(0);
        let sum = &digest.pg_sum.stats.sum;
        let in_states = |states: u64| {
            let with =
                digest.num_pg_by_state.iter().filter(|(state, _)| **state & states == states);
            with.map(|(_, n)| i64::from(*n)).sum::<i64>()
        };
        let clean = in_states(pg_state::ACTIVE | pg_state::CLEAN);
        let peering = in_states(pg_state::PEERING);
        vec![
            cluster("num_mon", "monitors", self.monmap.size() as u64),
            cluster("num_mon_quorum", "monitors in the quorum", self.standing.quorum.len() as u64),
            cluster("num_osd", "OSDs", map.num_osds() as u64),
            cluster("num_osd_up", "OSDs that are up", map.num_up_osds() as u64),
            cluster("num_osd_in", "OSDs that are in", map.num_in_osds() as u64),
            cluster("osd_epoch", "epoch of the OSD map", map.epoch.into()),
            cluster("osd_bytes", "size of all stores", usage.kb << 10).bytes(),
            cluster("osd_bytes_used", "used space", usage.kb_used << 10).bytes(),
            cluster("osd_bytes_avail", "free space", usage.kb_avail << 10).bytes(),
            cluster("num_pool", "pools", map.pools.len() as u64),
            cluster("num_pg", "placement groups", count_of(digest.num_pg)),
            cluster("num_pg_active_clean", "of them active and clean", count_of(clean)),
            cluster("num_pg_active", "of them active", count_of(digest.num_pg_active)),
            cluster("num_pg_peering", "of them peering", count_of(peering)),
            cluster("num_object", "objects", usage.num_objects),
            cluster("num_object_degraded", "copies missing", count_of(sum.num_objects_degraded)),
            cluster(
                "num_object_misplaced",
                "copies in other places than they belong",
                count_of(sum.num_objects_misplaced),
            ),
            cluster(
                "num_object_unfound",
                "objects of which no copy is found",
                count_of(sum.num_objects_unfound),
            ),
            cluster("num_bytes", "size of all objects", count_of(sum.num_bytes)).bytes(),
        ]
    }
}
