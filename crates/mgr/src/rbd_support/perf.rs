//! Who reads and writes most: counts by image that OSDs report while somebody asks
//! (`src/pybind/mgr/rbd_support/perf.py` at v16.2).
//!
//! A question (about all pools, one pool, one namespace) makes all OSDs count by image. Every
//! report period the counts that have come are summed, and compared with those before. A question
//! that nobody repeats for a minute ends.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use client::rbd;
use client::{Client, ClientError};
use command::{CommandMap, CommandReply};
use env::sync::Notify;
use messages::osd_perf_query::{
    PerfKey, PerfLimit, PerfQueries, PerfQuery, PerfReports, SubKeyDescriptor, counter, sub_key,
    unpack_counters,
};
use serde_json::{Value, json};
use types::Errno;

use super::{Caller, EINVAL, rados_error, rbd_pools};
use crate::daemon::Mgr;
use crate::json;

/// What is counted, in the order of the answers.
const COUNTERS: [(&str, u8); 6] = [
    ("write_ops", counter::WRITE_OPS),
    ("read_ops", counter::READ_OPS),
    ("write_bytes", counter::WRITE_BYTES),
    ("read_bytes", counter::READ_BYTES),
    ("write_latency", counter::WRITE_LATENCY),
    ("read_latency", counter::READ_LATENCY),
];
const WRITE_OPS: usize = 0;
const READ_OPS: usize = 1;
const WRITE_LATENCY: usize = 4;
const READ_LATENCY: usize = 5;
/// Keys that each OSD reports by each counter.
const OSD_RESULTS_MAX: u64 = 256;
/// Images of one answer.
const RESULTS_MAX: usize = 64;
/// Images counted for one question at most, and questions.
const IMAGES_MAX: usize = 65_536;
const QUESTIONS_MAX: usize = 256;
/// A question that is not repeated ends.
const EXPIRE: Duration = Duration::from_secs(60);
/// Two rounds further apart make no rate.
const RATE_SECS_MAX: u64 = 60;
/// Names of images are read again after this.
const NAMES_AGE: Duration = Duration::from_secs(300);

/// An image: pool, namespace, id.
type ImageKey = (i64, String, String);
type Values = [u64; COUNTERS.len()];

/// All, a pool, or a namespace of it.
type PoolKey = Option<(String, String)>;

#[derive(Debug)]
struct Question {
    query: PerfQuery,
    /// The pool asked for; the global question takes all there are.
    pools: BTreeMap<i64, String>,
    last_asked: Duration,
    /// What OSDs have reported since the last round.
    pending: BTreeMap<ImageKey, Values>,
    /// The last two rounds of each image: seconds and values.
    rounds: BTreeMap<ImageKey, [Option<(u64, Values)>; 2]>,
    /// All rounds together.
    sums: BTreeMap<ImageKey, Values>,
}

#[derive(Debug, Default)]
struct State {
    questions: BTreeMap<PoolKey, Question>,
    /// Names by id of a pool's namespace, and when they were read.
    names: BTreeMap<(i64, String), (Duration, BTreeMap<String, String>)>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Perf {
    state: RefCell<State>,
    asked: Notify,
}

fn query_of(pool: Option<i64>, namespace: &str) -> PerfQuery {
    let part = |what, regex: String| SubKeyDescriptor { what, regex };
    let all = || "^(.*)$".to_owned();
    let pool_regex = pool.map_or_else(all, |id| format!("^({id})$"));
    let namespace = match namespace {
        "" => all(),
        name => format!("^({name})$"),
    };
    PerfQuery {
        key: vec![
            part(sub_key::POOL_ID, pool_regex),
            part(sub_key::NAMESPACE, namespace),
            part(
                sub_key::OBJECT_NAME,
                r"^(?:rbd|journal)_data\.(?:([0-9]+)\.)?([^.]+)\.".to_owned(),
            ),
        ],
        counters: COUNTERS.iter().map(|(_, what)| *what).collect(),
    }
}

/// The image that a key is about: its data may lie in another pool than its header.
fn image_of(key: &PerfKey) -> Option<ImageKey> {
    let text = |part: usize, group: usize| Some(key.get(part)?.get(group)?.to_string());
    let header_pool = text(2, 0).filter(|id| !id.is_empty());
    let pool = header_pool.or_else(|| text(0, 0))?.parse().ok()?;
    Some((pool, text(1, 0)?, text(2, 1)?))
}

impl Question {
    /// One round: what has come since the last one.
    fn round(&mut self, now: u64, wanted: &PoolKey) {
        for (image, values) in std::mem::take(&mut self.pending) {
            let of_namespace = wanted.as_ref().is_none_or(|(_, ns)| *ns == image.1);
            if !self.pools.contains_key(&image.0) || !of_namespace {
                continue;
            }
            if !self.rounds.contains_key(&image) && self.rounds.len() >= IMAGES_MAX {
                continue;
            }
            let sum = self.sums.entry(image.clone()).or_default();
            for (sum, value) in sum.iter_mut().zip(values) {
                *sum = sum.saturating_add(value);
            }
            let round = self.rounds.entry(image).or_default();
            match &mut round[0] {
                Some((at, same)) if *at == now => {
                    same.iter_mut().zip(values).for_each(|(a, b)| *a = a.saturating_add(b));
                }
                _ => {
                    round[1] = round[0].take();
                    round[0] = Some((now, values));
                }
            }
        }
        for round in self.rounds.values_mut() {
            if round[0].is_some_and(|(at, _)| at < now) {
                round[1] = round[0].replace((now, Values::default()));
            }
        }
    }

    /// A rate a second; of latencies, the average.
    fn rate(&self, image: &ImageKey, index: usize) -> f64 {
        let Some([Some((at, values)), Some((before, _))]) = self.rounds.get(image) else {
            return 0.0;
        };
        if at <= before || at - before > RATE_SECS_MAX {
            return 0.0;
        }
        let rate = values[index] as f64 / (at - before) as f64;
        match index {
            WRITE_LATENCY => rate / self.rate(image, WRITE_OPS).max(1.0),
            READ_LATENCY => rate / self.rate(image, READ_OPS).max(1.0),
            _ => rate,
        }
    }
}

impl Perf {
    pub(super) fn wake(&self) {
        self.asked.notify_all();
    }

    /// Forgets all: another manager does it now.
    pub(super) fn reset(&self) {
        *self.state.borrow_mut() = State::default();
    }

    /// What OSDs shall count.
    pub(crate) fn queries(&self) -> PerfQueries {
        let limit =
            |(_, what): &(&str, u8)| PerfLimit { order_by: *what, max_count: OSD_RESULTS_MAX };
        let limits: BTreeSet<PerfLimit> = COUNTERS.iter().map(limit).collect();
        let state = self.state.borrow();
        state.questions.values().map(|q| (q.query.clone(), limits.clone())).collect()
    }

    /// An OSD has counted.
    pub(crate) fn on_report(&self, reports: PerfReports) {
        let mut state = self.state.borrow_mut();
        for (query, report) in reports {
            let asked = state.questions.values_mut().find(|q| q.query == query);
            let Some(question) = asked.filter(|_| report.counters == query.counters) else {
                continue;
            };
            for (key, packed) in &report.groups {
                let (Some(image), Ok(values)) =
                    (image_of(key), unpack_counters(&report.counters, packed))
                else {
                    continue;
                };
                let full = question.pending.len() >= IMAGES_MAX;
                if full && !question.pending.contains_key(&image) {
                    continue;
                }
                let sums = question.pending.entry(image).or_default();
                for (sum, (value, _)) in sums.iter_mut().zip(values) {
                    *sum = sum.saturating_add(value);
                }
            }
        }
    }

    /// Ends what nobody repeats; whether there was any.
    fn expire(&self, now: Duration) -> bool {
        let mut state = self.state.borrow_mut();
        let before = state.questions.len();
        state.questions.retain(|_, question| question.last_asked + EXPIRE >= now);
        state.questions.len() != before
    }

    async fn round(&self, mgr: &Mgr, client: &Client) -> Result<(), ClientError> {
        let (now, clock) = (mgr.env.now(), mgr.env.wall_clock().as_secs());
        let unknown: BTreeSet<(i64, String)> = {
            let mut state = self.state.borrow_mut();
            state.names.retain(|_, (at, _)| *at + NAMES_AGE >= now);
            for (key, question) in &mut state.questions {
                question.round(clock, key);
            }
            let named = |(pool, namespace, id): &ImageKey| {
                let names = state.names.get(&(*pool, namespace.clone()));
                names.is_some_and(|(_, names)| names.contains_key(id))
            };
            let images = state.questions.values().flat_map(|question| question.sums.keys());
            images.filter(|i| !named(i)).map(|(pool, ns, _)| (*pool, ns.clone())).collect()
        };
        for (pool, namespace) in unknown {
            let name = client.osdmap().pool_names.get(&pool).cloned();
            let images = match name {
                None => BTreeMap::new(),
                Some(name) => {
                    let io = client.io_ctx(&name).await?.with_namespace(namespace.as_str());
                    rbd::list(&io).await?
                }
            };
            let names: BTreeMap<String, String> =
                images.into_iter().map(|(name, id)| (id, name)).collect();
            let mut state = self.state.borrow_mut();
            // Images without a name are gone.
            for question in state.questions.values_mut() {
                let gone = |image: &ImageKey| {
                    (image.0, &image.1) == (pool, &namespace) && !names.contains_key(&image.2)
                };
                question.sums.retain(|image, _| !gone(image));
                question.rounds.retain(|image, _| !gone(image));
            }
            state.names.insert((pool, namespace), (now, names));
        }
        Ok(())
    }

    /// Takes note of a question; whether it is new.
    fn register(&self, now: Duration, client: &Client, key: &PoolKey, pool: Option<i64>) -> bool {
        let mut state = self.state.borrow_mut();
        let pools = match (key, pool) {
            (Some((name, _)), Some(id)) => [(id, name.clone())].into(),
            _ => rbd_pools(client),
        };
        if let Some(question) = state.questions.get_mut(key) {
            question.last_asked = now;
            question.pools = pools;
            return false;
        }
        let namespace = key.as_ref().map_or("", |(_, namespace)| namespace);
        let question = Question {
            query: query_of(pool, namespace),
            pools,
            last_asked: now,
            pending: BTreeMap::new(),
            rounds: BTreeMap::new(),
            sums: BTreeMap::new(),
        };
        state.questions.insert(key.clone(), question);
        true
    }

    /// The images that do most, by their counts or their rates.
    fn report(&self, key: &PoolKey, sort_by: usize, rates: bool, now: u64) -> String {
        let word = if rates { "stat" } else { "counter" };
        let state = self.state.borrow();
        let mut pools: Vec<String> = Vec::new();
        let mut shown = Vec::new();
        if let Some(question) = state.questions.get(key) {
            let mut images: Vec<(&ImageKey, f64)> =
                question.sums.keys().map(|image| (image, question.rate(image, sort_by))).collect();
            images.sort_by(|a, b| b.1.total_cmp(&a.1));
            for (image, _) in images.into_iter().take(RESULTS_MAX) {
                let (pool, namespace, id) = image;
                let names = state.names.get(&(*pool, namespace.clone()));
                let name = names.and_then(|(_, names)| names.get(id));
                let (Some(pool), Some(name)) = (question.pools.get(pool), name) else { continue };
                let place = match namespace.as_str() {
                    "" => pool.clone(),
                    namespace => format!("{pool}/{namespace}"),
                };
                let at = pools.iter().position(|known| *known == place).unwrap_or_else(|| {
                    pools.push(place);
                    pools.len() - 1
                });
                let sums = question.sums[image];
                let values: Vec<Value> = (0..COUNTERS.len())
                    .map(|i| if rates { json!(question.rate(image, i)) } else { json!(sums[i]) })
                    .collect();
                if values.iter().any(|value| value.as_f64() != Some(0.0)) {
                    shown.push(json!({format!("{at}/{name}"): values}));
                }
            }
        }
        let names: Vec<&str> = COUNTERS.iter().map(|(name, _)| *name).collect();
        let pools: BTreeMap<String, String> =
            pools.into_iter().enumerate().map(|(at, name)| (at.to_string(), name)).collect();
        json::object(&[
            ("timestamp", format!("{now}.0")),
            (&format!("{word}_descriptors"), json::compact(&json!(names))),
            ("pool_descriptors", json::compact(&json!(pools))),
            (&format!("{word}s"), json::compact(&Value::Array(shown))),
        ])
    }
}

/// Runs until `alive` says no.
pub(super) async fn run(mgr: Rc<Mgr>, client: Client, alive: impl Fn() -> bool) {
    let this = &mgr.rbd_support.perf;
    while alive() {
        let asked = this.asked.notified();
        if this.expire(mgr.env.now()) {
            mgr.configure_all();
        }
        if let Err(error) = this.round(&mgr, &client).await {
            tracing::warn!("counts by image: {error}");
            mgr.rbd_support.failed(&error);
        }
        let period = mgr.config.duration("mgr_stats_period").max(Duration::from_secs(1));
        let _ = mgr.env.timeout(period, asked).await;
    }
}

/// Answers `stats` and `counters`.
pub(super) async fn command(
    mgr: &Mgr,
    client: &Client,
    caller: &Caller,
    what: &str,
    map: &CommandMap,
) -> CommandReply {
    let text = |key: &str| map.opt_string(key).ok().flatten().filter(|text| !text.is_empty());
    let sort_by = text("sort_by").unwrap_or_else(|| COUNTERS[0].0.to_owned());
    let Some(sort_by) = COUNTERS.iter().position(|(name, _)| *name == sort_by) else {
        return CommandReply::error(EINVAL, format!("{sort_by} is no counter"));
    };
    let spec = text("pool_spec");
    let key = match spec.as_deref().map(|spec| spec.split('/').collect::<Vec<_>>()).as_deref() {
        None => None,
        Some([pool]) if !pool.is_empty() => Some(((*pool).to_owned(), String::new())),
        Some([pool, namespace]) if !pool.is_empty() && !namespace.is_empty() => {
            Some(((*pool).to_owned(), (*namespace).to_owned()))
        }
        _ => {
            let spec = spec.unwrap_or_default();
            return CommandReply::error(EINVAL, format!("Invalid pool spec: {spec}"));
        }
    };
    let (name, namespace) = key.as_ref().map_or(("", ""), |(pool, ns)| (pool, ns));
    if let Err(refused) = caller.check(name, namespace) {
        return refused;
    }
    let mut pool = None;
    if key.is_some() {
        pool = client.osdmap().lookup_pool(name);
        if pool.is_none() {
            let what = format!("Pool '{name}' not found");
            return rados_error(&Errno::ENOENT.into(), &what);
        }
    }
    let this = &mgr.rbd_support.perf;
    let full = this.state.borrow().questions.len() >= QUESTIONS_MAX;
    if full && !this.state.borrow().questions.contains_key(&key) {
        return CommandReply::error(super::EAGAIN, "too many questions at a time; try again later");
    }
    if this.register(mgr.env.now(), client, &key, pool) {
        mgr.configure_all();
        this.wake();
    }
    let now = mgr.env.wall_clock().as_secs();
    CommandReply::data(this.report(&key, sort_by, what == "stats", now))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question() -> Question {
        Question {
            query: query_of(Some(2), ""),
            pools: [(2, "rbd".to_owned())].into(),
            last_asked: Duration::ZERO,
            pending: BTreeMap::new(),
            rounds: BTreeMap::new(),
            sums: BTreeMap::new(),
        }
    }

    #[test]
    fn keys_name_images() {
        let key = |a: &str, b: &str, c: &str, d: &str| -> PerfKey {
            vec![vec![a.into()], vec![b.into()], vec![c.into(), d.into()]]
        };
        assert_eq!(image_of(&key("2", "", "", "10")), Some((2, "".into(), "10".into())));
        assert_eq!(image_of(&key("2", "n", "3", "10")), Some((3, "n".into(), "10".into())));
        assert_eq!(image_of(&vec![]), None);
        assert_eq!(image_of(&vec![vec!["x".into()]]), None);
    }

    #[test]
    fn rates_come_from_two_rounds_and_sums_from_all() {
        let mut q = question();
        let image = (2, String::new(), "10".to_owned());
        let wanted = Some(("rbd".to_owned(), String::new()));
        q.pending.insert(image.clone(), [5, 0, 500, 0, 1000, 0]);
        q.round(100, &wanted);
        assert_eq!(q.rate(&image, WRITE_OPS), 0.0);
        q.pending.insert(image.clone(), [20, 0, 2000, 0, 6000, 0]);
        q.round(105, &wanted);
        assert_eq!(q.rate(&image, WRITE_OPS), 4.0);
        assert_eq!(q.rate(&image, WRITE_LATENCY), 300.0);
        assert_eq!(q.sums[&image], [25, 0, 2500, 0, 7000, 0]);
        q.round(110, &wanted);
        assert_eq!(q.rate(&image, WRITE_OPS), 0.0);
        assert_eq!(q.sums[&image][WRITE_OPS], 25);
    }

    #[test]
    fn what_was_not_asked_for_is_not_counted() {
        let mut q = question();
        q.pending.insert((3, String::new(), "10".to_owned()), [1; 6]);
        q.pending.insert((2, "other".to_owned(), "10".to_owned()), [1; 6]);
        q.round(100, &Some(("rbd".to_owned(), String::new())));
        assert!(q.sums.is_empty());
    }
}
