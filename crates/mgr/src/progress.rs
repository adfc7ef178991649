//! What takes long and how far it has come: PGs that move since an OSD was marked out or in, all PGs
//! while any is not active+clean beside those, tasks of other modules (`src/pybind/mgr/progress` at
//! v16.2). Shown by `ceph progress`; `ceph -s` shows what the monitors are told of it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use command::CommandReply;
use maps::OsdMap;
use messages::ProgressEvent;
use serde_json::{Value, json};
use types::osd::{PgStat, pg_state};
use types::{Epoch, OsdId, PgId, Uuid};

use crate::daemon::Mgr;
use crate::json;

/// So many completed events may be remembered (`max_completed_events`).
const COMPLETED_MAX: usize = 1000;
/// Shortest and longest pause between two looks at maps and PGs (`sleep_interval`).
const SLEEP_RANGE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(3600));
/// The module's options and where what is completed is kept, as Ceph's.
const ENABLED: &str = "mgr/progress/enabled";
const MAX_COMPLETED: &str = "mgr/progress/max_completed_events";
const SLEEP_INTERVAL: &str = "mgr/progress/sleep_interval";
const STORE: &str = "mgr/progress/completed";
const STORE_VERSION: u64 = 2;
/// Characters of a bar between its brackets.
const BAR: usize = 28;

type PgStats = BTreeMap<PgId, PgStat>;

/// Something that goes on. Times are wall clock, in seconds.
#[derive(Debug)]
struct Event {
    id: String,
    message: String,
    refs: Value,
    /// Whether `ceph -s` shows it.
    in_status: bool,
    started: f64,
    /// 0 to 1.
    progress: f64,
    tracked: Tracked,
}

/// Who knows how far an event has come.
#[derive(Debug)]
enum Tracked {
    /// The module that told of it.
    Told,
    /// PGs that have a place or lost one since an OSD went out or in.
    Pgs {
        osd: OsdId,
        since: Epoch,
        left: BTreeSet<PgId>,
        count: usize,
        /// Bytes that had been recovered of each before.
        recovered: BTreeMap<PgId, i64>,
    },
    /// All PGs; how many were active+clean when it began.
    All { since: Epoch, clean: usize },
}

/// An event that is over.
#[derive(Debug, Clone, PartialEq)]
struct Completed {
    id: String,
    message: String,
    refs: Value,
    in_status: bool,
    started: f64,
    finished: f64,
    failure: Option<String>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// In the order in which they began. Bound: as many as OSDs, one for all PGs, tasks of modules.
    events: Vec<Event>,
    /// At most as many as `max_completed_events` says.
    completed: VecDeque<Completed>,
    /// What is completed differs from what is kept.
    unsaved: bool,
    /// The map looked at last.
    map: Option<Rc<OsdMap>>,
    /// What is kept has been read since this manager became the active one.
    loaded: bool,
}

fn is_clean(stat: &PgStat) -> bool {
    let both = pg_state::ACTIVE | pg_state::CLEAN;
    stat.state & both == both
}

/// `30s`, `3m`: whole units, rounded down (`to_pretty_timedelta` in `src/pybind/mgr/mgr_util.py`).
fn span(seconds: f64) -> String {
    const DAY: u64 = 86_400;
    let s = seconds.max(0.0) as u64;
    match s {
        0..120 => format!("{s}s"),
        120..7200 => format!("{}m", s / 60),
        7200..172_800 => format!("{}h", s / 3600),
        _ if s < 14 * DAY => format!("{}d", s / DAY),
        _ if s < 84 * DAY => format!("{}w", s / DAY / 7),
        _ if s < 730 * DAY => format!("{}M", s / DAY / 30),
        _ => format!("{}y", s / DAY / 365),
    }
}

/// Message, bar and what is left of the time, on two lines.
fn two_lines(message: &str, indent: usize, progress: f64, elapsed: f64) -> String {
    let done = ((progress * BAR as f64) as usize).min(BAR);
    let remaining = match remaining(progress, elapsed) {
        Some(seconds) if seconds > 0 => format!("(remaining: {})", span(seconds as f64)),
        _ => String::new(),
    };
    let (bar, rest) = ("=".repeat(done), ".".repeat(BAR - done));
    format!("{message} ({})\n{:indent$}[{bar}{rest}] {remaining}", span(elapsed), "")
}

fn remaining(progress: f64, elapsed: f64) -> Option<i64> {
    (progress > 0.0).then(|| (elapsed * (1.0 - progress) / progress) as i64)
}

impl Event {
    fn value(&self, now: f64) -> Value {
        json!({
            "id": self.id, "message": self.message, "refs": self.refs, "progress": self.progress,
            "duration": format!("({})", span(now - self.started)), "started_at": self.started,
            "time_remaining": remaining(self.progress, now - self.started),
        })
    }

    /// Takes in how PGs are. `ready`: what is not known of does not exist.
    fn look(&mut self, pgs: &PgStats, ready: bool) {
        match &mut self.tracked {
            Tracked::Told => {}
            Tracked::All { since, clean } => {
                let all: Vec<&PgStat> = pgs.values().filter(|pg| is_clean(pg)).collect();
                // Those may not have had any part in it.
                let old = all.iter().filter(|pg| pg.reported_epoch < *since).count();
                if all.len() != *clean {
                    self.progress = match pgs.len() - old {
                        0 => 0.0,
                        rest => all.len() as f64 / rest as f64,
                    };
                }
            }
            Tracked::Pgs { since, left, count, recovered, .. } => {
                let mut part = 0.0;
                left.retain(|pgid| {
                    let Some(pg) = pgs.get(pgid) else { return !ready };
                    if pg.reported_epoch < *since {
                        return true;
                    }
                    let sum = &pg.stats.sum;
                    let before = recovered.get(pgid).copied().unwrap_or(0);
                    if !is_clean(pg) && sum.num_bytes > 0 {
                        let now = (sum.num_bytes_recovered - before) as f64 / sum.num_bytes as f64;
                        part += now.clamp(0.0, 1.0);
                    }
                    !is_clean(pg)
                });
                let done = (*count - left.len()) as f64 + part;
                self.progress = (done / (*count).max(1) as f64).clamp(0.0, 1.0);
            }
        }
    }
}

impl Completed {
    fn value(&self) -> Value {
        let mut value = json!({
            "id": self.id, "message": self.message, "refs": self.refs, "started_at": self.started,
            "finished_at": self.finished, "add_to_ceph_s:": self.in_status,
        });
        if let Some(why) = &self.failure {
            value["failed"] = json!(true);
            value["failure_message"] = json!(why);
        }
        value
    }

    fn parse(value: &Value) -> Option<Completed> {
        let text = |key: &str| value[key].as_str().map(str::to_owned);
        Some(Completed {
            id: text("id")?,
            message: text("message")?,
            refs: value["refs"].clone(),
            in_status: value["add_to_ceph_s:"] == true,
            started: value["started_at"].as_f64().unwrap_or(0.0),
            finished: value["finished_at"].as_f64().unwrap_or(0.0),
            failure: (value["failed"] == true).then(|| text("failure_message").unwrap_or_default()),
        })
    }
}

impl Progress {
    /// A module tells how far its task has come.
    pub(crate) fn update(&mut self, id: &str, message: &str, refs: Value, progress: f64, now: f64) {
        match self.events.iter_mut().find(|event| event.id == id) {
            Some(event) => (event.progress, event.message) = (progress, message.to_owned()),
            None => self.events.push(Event {
                id: id.to_owned(),
                message: message.to_owned(),
                refs,
                in_status: false,
                started: now,
                progress,
                tracked: Tracked::Told,
            }),
        }
    }

    /// A module's task has ended; `failure` says why it failed.
    pub(crate) fn end(&mut self, id: &str, failure: Option<String>, now: f64) {
        self.complete(now, failure, |event| event.id == id);
    }

    fn complete(&mut self, now: f64, failure: Option<String>, which: impl Fn(&Event) -> bool) {
        for event in self.events.extract_if(.., |event| which(event)) {
            let Event { id, message, refs, in_status, started, .. } = event;
            let failure = failure.clone();
            let completed =
                Completed { id, message, refs, in_status, started, finished: now, failure };
            self.completed.push_back(completed);
            self.unsaved = true;
        }
    }

    fn prune(&mut self, max: usize) {
        while self.completed.len() > max {
            self.completed.pop_front();
            self.unsaved = true;
        }
    }

    /// OSDs that have gone out or come in since the last map.
    fn on_map(
        &mut self,
        new: &Rc<OsdMap>,
        pgs: &PgStats,
        ready: bool,
        now: f64,
        id: impl Fn() -> String,
    ) {
        let Some(old) = self.map.replace(new.clone()).filter(|old| old.epoch != new.epoch) else {
            return;
        };
        let differs = |osd: &OsdId| old.exists(*osd) && old.is_in(*osd) != new.is_in(*osd);
        let marked: Vec<OsdId> = new.osds().filter(differs).collect();
        if marked.is_empty() {
            return;
        }
        // Placing is what takes long, and many OSDs may have gone together: each PG is placed once.
        let all = old.pools.iter().flat_map(|(id, pool)| (0..pool.pg_num).map(move |n| (*id, n)));
        let moves = all.filter_map(|(pool, seed)| {
            let pgid = PgId::new(pool.cast_unsigned(), seed);
            let acting = |map: &OsdMap| BTreeSet::from_iter(map.pg_to_up_acting(pgid).acting);
            let (before, after) = (acting(&old), acting(new));
            (before != after).then(|| (pgid, &before | &after))
        });
        let moves: Vec<(PgId, BTreeSet<OsdId>)> = moves.collect();
        for osd in marked {
            let marked = if new.is_in(osd) { "in" } else { "out" };
            let of_osd = moves.iter().filter(|(_, osds)| osds.contains(&osd));
            let moved: BTreeSet<PgId> = of_osd.map(|(pgid, _)| *pgid).collect();
            if new.is_in(osd) {
                let of_it =
                    |e: &Event| matches!(e.tracked, Tracked::Pgs { osd: of, .. } if of == osd);
                self.complete(now, None, of_it);
            }
            if moved.is_empty() {
                continue;
            }
            let recovered = moved
                .iter()
                .filter_map(|pgid| Some((*pgid, pgs.get(pgid)?.stats.sum.num_bytes_recovered)));
            let tracked = Tracked::Pgs {
                osd,
                since: new.epoch,
                count: moved.len(),
                recovered: recovered.collect(),
                left: moved.clone(),
            };
            let mut event = Event {
                id: id(),
                message: format!("Rebalancing after osd.{osd} marked {marked}"),
                refs: json!([["osd", osd]]),
                in_status: false,
                started: now,
                progress: 0.0,
                tracked,
            };
            event.look(pgs, ready);
            self.events.push(event);
        }
    }

    /// How PGs are now. Nothing is looked at while nothing goes on.
    fn on_pgs(
        &mut self,
        epoch: Epoch,
        pgs: &PgStats,
        ready: bool,
        now: f64,
        id: impl Fn() -> String,
    ) {
        if self.events.is_empty() {
            return;
        }
        self.events.iter_mut().for_each(|event| event.look(pgs, ready));
        let of_all = |event: &Event| matches!(event.tracked, Tracked::All { .. });
        let known = self.events.iter().any(of_all);
        self.complete(now, None, |e| e.progress >= 1.0 && !matches!(e.tracked, Tracked::Told));
        let clean = pgs.values().filter(|pg| is_clean(pg)).count();
        if !known && clean < pgs.len() {
            self.events.push(Event {
                id: id(),
                message: "Global Recovery Event".to_owned(),
                refs: json!([["global", ""]]),
                in_status: true,
                started: now,
                progress: 0.0,
                tracked: Tracked::All { since: epoch, clean },
            });
        }
    }

    fn clear(&mut self) {
        self.events.clear();
        self.completed.clear();
        self.unsaved = true;
    }

    /// What the monitors are told.
    pub(crate) fn for_monitors(&self, now: f64) -> BTreeMap<String, ProgressEvent> {
        let told = self.events.iter().map(|event| {
            let told = ProgressEvent {
                message: two_lines(&event.message, 6, event.progress, now - event.started),
                progress: event.progress as f32,
                add_to_ceph_s: event.in_status,
            };
            (event.id.clone(), told)
        });
        told.collect()
    }

    fn text(&self, now: f64) -> CommandReply {
        if self.events.is_empty() && self.completed.is_empty() {
            return CommandReply::text("Nothing in progress");
        }
        let mut out = String::new();
        for event in self.events.iter().rev() {
            out += &two_lines(&event.message, 4, event.progress, now - event.started);
            out.push('\n');
        }
        if !self.completed.is_empty() {
            out.push('\n');
        }
        for over in &self.completed {
            let word = if over.failure.is_some() { "Failed" } else { "Complete" };
            out += &format!("[{word}]: {}\n", two_lines(&over.message, 4, 1.0, now - over.started));
        }
        CommandReply::data(out)
    }

    fn value(&self, now: f64) -> Value {
        let events: Vec<Value> = self.events.iter().map(|event| event.value(now)).collect();
        let completed: Vec<Value> = self.completed.iter().map(Completed::value).collect();
        json!({"events": events, "completed": completed})
    }

    /// What is kept of what is completed: the newest, as many as the monitors take.
    fn stored(&self, bytes_max: usize) -> String {
        let mut left_out = 0;
        loop {
            let kept = self.completed.iter().skip(left_out);
            let events: Vec<Value> = kept.map(Completed::value).collect();
            let count = events.len();
            let text =
                json!({"events": events, "version": STORE_VERSION, "compat_version": STORE_VERSION})
                    .to_string();
            if text.len() <= bytes_max || count == 0 {
                return text;
            }
            left_out += count.div_ceil(16);
        }
    }
}

fn wall(mgr: &Mgr) -> f64 {
    mgr.env.wall_clock().as_secs_f64()
}

fn is_enabled(mgr: &Mgr) -> bool {
    mgr.config.bool(ENABLED)
}

/// An id for an event.
pub(crate) fn new_id(mgr: &Mgr) -> String {
    let mut random = [0; 16];
    mgr.env.fill_random(&mut random);
    Uuid::from_random(random).to_string()
}

/// A module tells how far its task has come.
pub(crate) fn update(mgr: &Mgr, id: &str, message: &str, refs: Value, progress: f64) {
    if is_enabled(mgr) {
        mgr.progress.borrow_mut().update(id, message, refs, progress, wall(mgr));
    }
}

/// A module's task has ended; `failure` says why it failed.
pub(crate) fn end(mgr: &Mgr, id: &str, failure: Option<String>) {
    if is_enabled(mgr) {
        mgr.progress.borrow_mut().end(id, failure, wall(mgr));
    }
}

/// Reads what was completed under the manager before.
async fn load(mgr: &Mgr) -> Result<(), CommandReply> {
    // A key that is not there is an error to `config-key get`.
    let dump = json!({"prefix": "config-key dump", "key": STORE, "format": "json"});
    let dump = mgr.at_monitors(&dump, Bytes::new()).await?;
    let dump: BTreeMap<String, String> = serde_json::from_slice(&dump).unwrap_or_default();
    let stored: Value =
        serde_json::from_str(dump.get(STORE).map_or("{}", |text| text)).unwrap_or_default();
    let mut progress = mgr.progress.borrow_mut();
    progress.loaded = true;
    let newer = stored["compat_version"].as_u64().is_some_and(|version| version > STORE_VERSION);
    let events = stored["events"].as_array().filter(|_| !newer);
    progress.completed = events.into_iter().flatten().filter_map(Completed::parse).collect();
    progress.map = Some(mgr.osdmaps.current());
    Ok(())
}

async fn save(mgr: &Mgr) -> Result<(), CommandReply> {
    let stored = {
        let mut progress = mgr.progress.borrow_mut();
        progress.unsaved = false;
        progress.stored(mgr.config.uint("mon_config_key_max_entry_size") as usize)
    };
    let command = json!({"prefix": "config-key set", "key": STORE});
    let saved = mgr.at_monitors(&command, Bytes::from(stored)).await;
    if saved.is_err() {
        mgr.progress.borrow_mut().unsaved = true;
    }
    saved.map(drop)
}

fn step(mgr: &Mgr) {
    let id = || new_id(mgr);
    let (map, now, cluster) = (mgr.osdmaps.current(), wall(mgr), mgr.cluster.borrow());
    let (pgs, ready) = (&cluster.pg_map.pg_stat, cluster.ready);
    let mut progress = mgr.progress.borrow_mut();
    progress.on_map(&map, pgs, ready, now, id);
    progress.on_pgs(map.epoch, pgs, ready, now, id);
    let most = usize::try_from(mgr.config.int(MAX_COMPLETED)).unwrap_or(0);
    progress.prune(most.min(COMPLETED_MAX));
}

/// Looks at maps and PGs while the manager is active.
pub(crate) async fn run(mgr: Rc<Mgr>) {
    while !mgr.stopped.get() {
        let pause = mgr.config.duration(SLEEP_INTERVAL);
        mgr.env.sleep(pause.clamp(SLEEP_RANGE.0, SLEEP_RANGE.1)).await;
        if !mgr.active.get() || mgr.stopped.get() {
            continue;
        }
        let loaded = mgr.progress.borrow().loaded || load(&mgr).await.is_ok();
        if loaded && is_enabled(&mgr) {
            step(&mgr);
        }
        if loaded && mgr.progress.borrow().unsaved {
            let _ = save(&mgr).await;
        }
    }
}

/// `progress ...`.
pub(crate) async fn command(mgr: &Mgr, what: &str) -> CommandReply {
    let now = wall(mgr);
    match what {
        "progress" => return mgr.progress.borrow().text(now),
        "progress json" => {
            return CommandReply::data(json::indented(&mgr.progress.borrow().value(now)));
        }
        _ => {}
    }
    let enabled = is_enabled(mgr);
    match what {
        "progress on" if enabled => return CommandReply::text("progress already enabled!"),
        "progress off" if !enabled => return CommandReply::text("progress already disabled!"),
        _ => {}
    }
    let (change, says) = match what {
        "progress on" => (Some("true"), "progress enabled"),
        "progress off" => (Some("false"), "progress disabled"),
        _ => (None, ""),
    };
    if let Some(value) = change
        && let Err(refused) = mgr.set_option(ENABLED, Some(value.to_owned())).await
    {
        return refused;
    }
    if what != "progress on" {
        mgr.progress.borrow_mut().clear();
        if let Err(refused) = save(mgr).await {
            return refused;
        }
    }
    CommandReply::text(says)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(state: u64, epoch: Epoch, bytes: i64, recovered: i64) -> PgStat {
        let mut stat = PgStat { state, reported_epoch: epoch, ..PgStat::default() };
        (stat.stats.sum.num_bytes, stat.stats.sum.num_bytes_recovered) = (bytes, recovered);
        stat
    }

    const CLEAN: u64 = pg_state::ACTIVE | pg_state::CLEAN;

    fn pg(n: u32) -> PgId {
        PgId::new(1, n)
    }

    /// An event of four PGs of 100 bytes, of which 40 had been recovered of each before epoch 10.
    fn rebalancing() -> Progress {
        let pgs = BTreeSet::from([pg(0), pg(1), pg(2), pg(3)]);
        let recovered = pgs.iter().map(|pgid| (*pgid, 40)).collect();
        let tracked = Tracked::Pgs { osd: 3, since: 10, count: 4, recovered, left: pgs };
        let event = Event {
            id: "id".to_owned(),
            message: "Rebalancing after osd.3 marked out".to_owned(),
            refs: json!([["osd", 3]]),
            in_status: false,
            started: 100.0,
            progress: 0.0,
            tracked,
        };
        Progress { events: vec![event], ..Progress::default() }
    }

    #[test]
    fn pgs_count_when_they_are_clean_and_in_part_before() {
        let mut progress = rebalancing();
        let mut pgs = PgStats::from([
            // Not heard of since: as it was before.
            (pg(0), stat(CLEAN, 9, 100, 40)),
            (pg(1), stat(pg_state::ACTIVE, 10, 100, 90)),
            (pg(2), stat(CLEAN, 11, 100, 140)),
        ]);
        progress.on_pgs(12, &pgs, false, 110.0, || "all".to_owned());
        assert_eq!(progress.events[0].progress, 1.5 / 4.0);
        // Beside it, all PGs are followed while one is not clean: that is what `ceph -s` shows.
        assert_eq!(progress.events[1].message, "Global Recovery Event");
        let shown = progress.for_monitors(130.0);
        assert_eq!((shown["id"].add_to_ceph_s, shown["all"].add_to_ceph_s), (false, true));
        let text = "Rebalancing after osd.3 marked out (30s)\n      [==========..................] (remaining: 50s)";
        assert_eq!(shown["id"].message, text);
        // The fourth is of a pool that has gone.
        pgs.values_mut().for_each(|pg| *pg = stat(CLEAN, 13, 100, 140));
        progress.on_pgs(13, &pgs, true, 160.0, || "again".to_owned());
        assert!(progress.events.is_empty());
        let over: Vec<(&str, f64)> =
            progress.completed.iter().map(|e| (&*e.id, e.finished)).collect();
        assert_eq!(over, [("id", 160.0), ("all", 160.0)]);
        progress.on_pgs(14, &PgStats::from([(pg(0), stat(0, 14, 0, 0))]), true, 170.0, || {
            "no".to_owned()
        });
        assert!(progress.events.is_empty());
    }

    #[test]
    fn what_modules_tell_is_kept_when_it_is_over() {
        let mut progress = Progress::default();
        assert_eq!(progress.text(0.0).outs, "Nothing in progress");
        for n in 0..5 {
            let id = format!("t{n}");
            progress.update(
                &id,
                "Flattening image p/i",
                json!({"origin": "rbd_support"}),
                0.25,
                10.0,
            );
            progress.update(&id, "Flattening image p/i", json!({}), 0.5, 20.0);
            if n > 0 {
                progress.end(&id, (n == 4).then(|| "Operation canceled".to_owned()), 30.0);
            }
        }
        progress.end("nobody", None, 30.0);
        progress.prune(2);
        let value = progress.value(30.0);
        assert_eq!(value["events"][0]["time_remaining"], 20);
        assert_eq!(value["events"][0]["refs"], json!({"origin": "rbd_support"}));
        assert_eq!(value["completed"][1]["failure_message"], "Operation canceled");
        let stored: Value = serde_json::from_str(&progress.stored(65_536)).unwrap();
        let read: Vec<_> =
            stored["events"].as_array().unwrap().iter().filter_map(Completed::parse).collect();
        assert_eq!(VecDeque::from(read), progress.completed);
        let text = String::from_utf8(progress.text(150.0).outb.to_vec()).unwrap();
        assert_eq!(
            text,
            "Flattening image p/i (2m)\n    [==============..............] (remaining: 2m)\n\n\
             [Complete]: Flattening image p/i (2m)\n    [============================] \n\
             [Failed]: Flattening image p/i (2m)\n    [============================] \n"
        );
    }

    /// From some 280 events on the monitors refused what was to be kept, each second again, and the next manager began with a list
    /// of long ago.
    #[test]
    fn what_is_kept_is_no_more_than_monitors_take() {
        let mut progress = Progress::default();
        for n in 0..1000 {
            progress.completed.push_back(Completed {
                id: n.to_string(),
                message: "Rebalancing after osd.0 marked out".to_owned(),
                refs: json!([]),
                in_status: true,
                started: 1.0,
                finished: 2.0,
                failure: None,
            });
        }
        let kept = |most| -> Vec<String> {
            let text = progress.stored(most);
            assert!(text.len() <= most, "{}", text.len());
            let stored: Value = serde_json::from_str(&text).unwrap();
            let events = stored["events"].as_array().unwrap();
            events.iter().map(|event| event["id"].as_str().unwrap().to_owned()).collect()
        };
        assert!(kept(65_536).len() > 200 && kept(65_536).last().unwrap() == "999");
        assert_eq!(kept(1 << 20).len(), 1000);
        assert!(kept(100).is_empty());
    }

    #[test]
    fn spans_are_whole_units() {
        let days = |n: f64| n * 86_400.0;
        let spans =
            [0.9, 119.0, 120.0, 7199.0, 7200.0, days(2.0), days(14.0), days(84.0), days(730.0)];
        assert_eq!(spans.map(span), ["0s", "119s", "2m", "119m", "2h", "2d", "2w", "2M", "2y"]);
    }
}
