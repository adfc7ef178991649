//! The daemon as its commands see it.

use std::collections::BTreeMap;
use std::rc::Rc;

use command::{CommandMap, CommandReply, Formatter};
use config::Config;
use env::{Env, LocalFuture};
use maps::OsdMap;
use store::ObjectStore;
use types::osd::{OsdSuperblock, PingTimes, WatchItem};
use types::{Errno, HObject, OsdId, PgId, SpgId, UTime};

use super::{PgSummary, Role, Target, refused};
use crate::osd::Osd;
use crate::osd::fullness::Fullness;
use crate::osd::state_times::StateTimes;
use crate::osd::stats::Counters;
use crate::osd::tracker::Tracker;
use crate::pg::Pg;
use crate::pg::host::{Host, LogLevel};
use crate::pg::state_history::Piece;

fn summary(pg: &Pg) -> PgSummary {
    let core = pg.core.borrow();
    let role = if pg.deleting.get() {
        Role::Removing
    } else if core.is_primary() {
        Role::Primary
    } else if core.is_acting() {
        Role::Replica
    } else {
        Role::Stray
    };
    PgSummary {
        pgid: pg.pgid(),
        role,
        state: core.state().name(),
        object_contexts: pg.contexts.len(),
    }
}

impl Target for Osd {
    fn env(&self) -> &Env {
        &self.env
    }

    fn config(&self) -> &Rc<Config> {
        &self.config
    }

    fn store(&self) -> &Rc<dyn ObjectStore> {
        &self.store
    }

    fn injected(&self) -> &store::injected::InjectedErrors {
        &self.injected
    }

    fn scheduled_scrubs(&self) -> Vec<(SpgId, UTime, UTime)> {
        let settings = self.scrub_settings();
        let of_pg = |pg: &Rc<Pg>| {
            pg.scheduled_scrub(&settings).map(|(due, deadline)| (pg.pgid(), due, deadline))
        };
        self.all_pgs().iter().filter_map(of_pg).collect()
    }

    fn reservations(&self) -> [Vec<(SpgId, u32, crate::pg::reserver::Stand)>; 2] {
        Osd::reservations(self)
    }

    fn scrub_slots_taken(&self) -> (u64, u64) {
        self.scrub_slots.taken()
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn state_times(&self) -> &StateTimes {
        &self.state_times
    }

    fn inject_full(&self, step: Fullness, count: i64) {
        self.pretend_fullness(step, count);
    }

    fn cluster_log(&self, level: LogLevel, text: String) {
        self.log_to_cluster(level, text);
    }

    fn tracker(&self) -> &Rc<Tracker> {
        &self.tracker
    }

    fn superblock(&self) -> OsdSuperblock {
        self.superblock.borrow().clone()
    }

    fn state(&self) -> &'static str {
        self.state.get().name()
    }

    fn osdmap(&self) -> Rc<OsdMap> {
        self.current_map()
    }

    fn pgs(&self) -> Vec<PgSummary> {
        self.all_copies().iter().map(|pg| summary(pg)).collect()
    }

    fn pg_states(&self) -> Vec<(SpgId, &'static str, Vec<Piece>)> {
        let of_pg = |pg: &Rc<Pg>| {
            let state = pg.core.borrow().state().name();
            (pg.pgid(), state, pg.states.borrow().pieces())
        };
        self.all_pgs().iter().map(of_pg).collect()
    }

    fn watchers(&self) -> Vec<(HObject, WatchItem)> {
        self.all_pgs().iter().flat_map(|pg| pg.contexts.watch_items()).collect()
    }

    fn heartbeat_peers(&self) -> Vec<OsdId> {
        self.heartbeats.peer_ids()
    }

    fn ping_times(&self) -> BTreeMap<OsdId, PingTimes> {
        self.heartbeats.report()
    }

    fn drop_caches(&self) {
        self.all_pgs().iter().for_each(|pg| pg.contexts.drop_idle());
    }

    fn flush_pg_stats(&self) -> u64 {
        self.send_pg_stats()
    }

    fn send_beacon(&self) {
        self.beacon_now();
    }

    fn latest_osdmap(&self) -> LocalFuture<()> {
        let osd = self.rc();
        Box::pin(async move {
            // Without a monitor there is nothing newer to have.
            let Ok(versions) = osd.monc.versions("osdmap").await else { return };
            let is_behind = || u64::from(osd.current_map().epoch) < versions.newest;
            if is_behind() {
                osd.want_maps(osd.current_map().epoch + 1);
            }
            while is_behind() && !osd.is_stopping() {
                osd.env.sleep(LOOK_AGAIN).await;
            }
        })
    }

    fn pg_command(&self, pgid: PgId, map: &CommandMap) -> Option<LocalFuture<CommandReply>> {
        let pg = self.all_pgs().into_iter().find(|pg| pg.pgid().pgid == pgid)?;
        let map = map.clone();
        Some(Box::pin(async move {
            let mut f = Formatter::new(map.format());
            match map.prefix() {
                "query" => pg.query(&mut f),
                prefix @ ("scrub" | "deep_scrub") => {
                    let sec = map.opt_int("time").ok().flatten().unwrap_or(0);
                    let deep = prefix == "deep_scrub";
                    let stamp = pg.trigger_scrub(deep, u64::try_from(sec).unwrap_or(0));
                    f.object("result", |f| {
                        f.dump_bool("deep", deep);
                        f.dump_stream("stamp", stamp);
                    });
                }
                "list_unfound" => pg.list_unfound(&mut f),
                "mark_unfound_lost" => return pg.mark_unfound_lost(&map).await,
                _ => return refused(Errno::ENOSYS, "not implemented"),
            }
            CommandReply::formatted(f)
        }))
    }
}

/// Between two looks at the map while waiting for one.
const LOOK_AGAIN: std::time::Duration = std::time::Duration::from_millis(20);
