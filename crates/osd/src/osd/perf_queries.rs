//! Counts of clients' operations by keys that the manager asks for: who reads and writes which
//! image most (`src/osd/DynamicPerfStats.h` at v16.2). Without a query an operation costs one
//! look at an empty list.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bstr::BString;
use messages::osd_perf_query::{
    PerfKey, PerfLimit, PerfQueries, PerfQuery, PerfReport, PerfReports, counter, pack_counters,
    sub_key,
};
use regex_lite::Regex;
use types::snap::snap_text;
use types::{HObject, OsdId, OsdReqId, SpgId};

/// Queries taken at most, and keys of each between two reports; more are not counted.
const QUERIES_MAX: usize = 256;
const KEYS_MAX: usize = 65_536;
/// Longest expression taken.
const REGEX_LEN_MAX: usize = 4096;

/// An operation that has been answered.
#[allow(missing_debug_implementations, reason = "lives for one call")]
pub struct Observed<'a> {
    /// Who asked.
    pub reqid: OsdReqId,
    /// From where, as Ceph writes addresses.
    pub address: &'a dyn core::fmt::Display,
    /// This OSD.
    pub osd: OsdId,
    /// Where.
    pub pgid: SpgId,
    /// What.
    pub object: &'a HObject,
    /// It may have read; bytes it got.
    pub read: Option<u64>,
    /// It may have written; bytes it gave.
    pub written: Option<u64>,
    /// From arrival to answer.
    pub took: Duration,
}

#[derive(Debug)]
struct Counted {
    query: PerfQuery,
    limits: BTreeSet<PerfLimit>,
    /// By part of the key.
    expressions: Vec<(u8, Regex)>,
    /// Sums and counts.
    groups: BTreeMap<PerfKey, Vec<(u64, u64)>>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct DynamicPerfStats {
    any: Cell<bool>,
    counted: RefCell<Vec<Counted>>,
}

impl Counted {
    /// `None` for what this release cannot count.
    fn new(query: PerfQuery, limits: BTreeSet<PerfLimit>) -> Option<Counted> {
        let mut expressions = Vec::new();
        for part in &query.key {
            let expression = Some(part.regex.as_str())
                .filter(|text| text.len() <= REGEX_LEN_MAX && part.what <= sub_key::SNAP_ID)
                .and_then(|text| Regex::new(text).ok())
                // The first "group" is the whole.
                .filter(|regex| regex.captures_len() > 1)?;
            expressions.push((part.what, expression));
        }
        let fits = !expressions.is_empty() && !query.counters.is_empty();
        fits.then(|| Counted { query, limits, expressions, groups: BTreeMap::new() })
    }

    fn key(&self, op: &Observed<'_>) -> Option<PerfKey> {
        let part = |(what, regex): &(u8, Regex)| {
            let text = match *what {
                sub_key::CLIENT_ID => op.reqid.name.to_string(),
                sub_key::CLIENT_ADDRESS => op.address.to_string(),
                sub_key::POOL_ID => op.pgid.pgid.pool_id().to_string(),
                sub_key::NAMESPACE => op.object.namespace.to_string(),
                sub_key::OSD_ID => op.osd.to_string(),
                sub_key::PG_ID => op.pgid.to_string(),
                sub_key::OBJECT_NAME => op.object.name.to_string(),
                _ => snap_text(op.object.snap).to_string(),
            };
            let captures = regex.captures(&text)?;
            let group = |i| BString::from(captures.get(i).map_or("", |m| m.as_str()));
            Some((1..captures.len()).map(group).collect())
        };
        self.expressions.iter().map(part).collect()
    }

    fn add(&mut self, op: &Observed<'_>) {
        let Some(key) = self.key(op) else { return };
        if self.groups.len() >= KEYS_MAX && !self.groups.contains_key(&key) {
            return;
        }
        let nanos = u64::try_from(op.took.as_nanos()).unwrap_or(u64::MAX);
        let (read, written) = (op.read.is_some(), op.written.is_some());
        let both = op.read.unwrap_or(0) + op.written.unwrap_or(0);
        let values = self.groups.entry(key).or_default();
        values.resize(self.query.counters.len(), (0, 0));
        for (what, (sum, count)) in self.query.counters.iter().zip(values) {
            let by = match *what {
                counter::OPS => Some(1),
                counter::WRITE_OPS => written.then_some(1),
                counter::READ_OPS => read.then_some(1),
                counter::BYTES => Some(both),
                counter::WRITE_BYTES => op.written,
                counter::READ_BYTES => op.read,
                counter::LATENCY => Some(nanos),
                counter::WRITE_LATENCY => written.then_some(nanos),
                _ => read.then_some(nanos),
            };
            if let Some(by) = by {
                *sum = sum.saturating_add(by);
                *count += 1;
            }
        }
    }

    fn take_report(&mut self) -> PerfReport {
        let groups = std::mem::take(&mut self.groups);
        let mut chosen: BTreeSet<&PerfKey> = BTreeSet::new();
        for limit in &self.limits {
            let at = self.query.counters.iter().position(|what| *what == limit.order_by);
            let Some(at) = at else { continue };
            let mut keys: Vec<(&PerfKey, u64)> =
                groups.iter().map(|(key, values)| (key, values[at].0)).collect();
            keys.sort_by_key(|(_, sum)| std::cmp::Reverse(*sum));
            let most = usize::try_from(limit.max_count).unwrap_or(usize::MAX);
            chosen.extend(keys.into_iter().take(most).map(|(key, _)| key));
        }
        let all = self.limits.is_empty();
        let shown = groups.iter().filter(|(key, _)| all || chosen.contains(key));
        PerfReport {
            counters: self.query.counters.clone(),
            groups: shown
                .map(|(key, values)| (key.clone(), pack_counters(&self.query.counters, values)))
                .collect(),
        }
    }
}

impl DynamicPerfStats {
    /// Counts for these queries from now on; those that stay keep what they have.
    pub fn set_queries(&self, queries: PerfQueries) {
        let mut counted = self.counted.borrow_mut();
        let mut old: BTreeMap<PerfQuery, Counted> =
            counted.drain(..).map(|counted| (counted.query.clone(), counted)).collect();
        for (query, limits) in queries.into_iter().take(QUERIES_MAX) {
            match old.remove(&query) {
                Some(same) => counted.push(Counted { limits, ..same }),
                None => counted.extend(Counted::new(query, limits)),
            }
        }
        self.any.set(!counted.is_empty());
    }

    /// Whether anything is asked for.
    pub fn is_enabled(&self) -> bool {
        self.any.get()
    }

    /// Counts an operation.
    pub fn add(&self, op: &Observed<'_>) {
        self.counted.borrow_mut().iter_mut().for_each(|counted| counted.add(op));
    }

    /// What has been counted since the last report.
    pub fn take_reports(&self) -> PerfReports {
        let mut counted = self.counted.borrow_mut();
        counted.iter_mut().map(|c| (c.query.clone(), c.take_report())).collect()
    }
}

#[cfg(test)]
mod tests {
    use messages::osd_perf_query::{SubKeyDescriptor, unpack_counters};
    use types::PgId;
    use types::snap::NOSNAP;

    use super::*;

    const COUNTERS: [u8; 4] =
        [counter::WRITE_OPS, counter::READ_OPS, counter::WRITE_BYTES, counter::WRITE_LATENCY];

    fn query() -> PerfQuery {
        let part = |what, regex: &str| SubKeyDescriptor { what, regex: regex.to_owned() };
        PerfQuery {
            key: vec![
                part(sub_key::POOL_ID, "^(2)$"),
                part(sub_key::NAMESPACE, "^(.*)$"),
                part(sub_key::OBJECT_NAME, r"^(?:rbd|journal)_data\.(?:([0-9]+)\.)?([^.]+)\."),
            ],
            counters: COUNTERS.to_vec(),
        }
    }

    fn observe(stats: &DynamicPerfStats, pool: u64, name: &str, bytes: u64) {
        let object = HObject { name: name.into(), snap: NOSNAP, ..HObject::default() };
        stats.add(&Observed {
            reqid: OsdReqId::default(),
            address: &"-",
            osd: 0,
            pgid: PgId::new(pool, 1).spg(),
            object: &object,
            read: None,
            written: Some(bytes),
            took: Duration::from_nanos(7),
        });
    }

    #[test]
    fn images_are_told_apart_and_counts_start_anew_after_a_report() {
        let stats = DynamicPerfStats::default();
        assert!(!stats.is_enabled());
        let limits = [PerfLimit { order_by: counter::WRITE_BYTES, max_count: 2 }];
        stats.set_queries([(query(), limits.into())].into());
        assert!(stats.is_enabled());
        observe(&stats, 2, "rbd_data.10.0000", 100);
        observe(&stats, 2, "rbd_data.10.0001", 50);
        observe(&stats, 2, "rbd_data.3.11.0000", 1000);
        observe(&stats, 2, "rbd_data.12.0000", 1);
        observe(&stats, 2, "rbd_header.10", 5);
        observe(&stats, 3, "rbd_data.10.0000", 5);
        let reports = stats.take_reports();
        let groups = &reports[&query()].groups;
        let key = |pool: &str, id: &str| -> PerfKey {
            vec![vec!["2".into()], vec!["".into()], vec![pool.into(), id.into()]]
        };
        assert_eq!(groups.len(), 2, "only the two largest");
        let of = |key: PerfKey| unpack_counters(&COUNTERS, &groups[&key]).unwrap();
        assert_eq!(of(key("", "10")), [(2, 0), (0, 0), (150, 0), (14, 2)]);
        assert_eq!(of(key("3", "11")), [(1, 0), (0, 0), (1000, 0), (7, 1)]);
        assert!(stats.take_reports()[&query()].groups.is_empty());
    }

    #[test]
    fn what_cannot_be_counted_is_left_out() {
        let stats = DynamicPerfStats::default();
        for regex in ["(", "no group", &"(".repeat(REGEX_LEN_MAX + 1)] {
            let key = vec![SubKeyDescriptor { what: 2, regex: regex.to_owned() }];
            let bad = PerfQuery { key, counters: vec![0] };
            stats.set_queries([(bad, BTreeSet::new())].into());
            assert!(!stats.is_enabled());
        }
        stats.set_queries([(query(), BTreeSet::new())].into());
        observe(&stats, 2, "rbd_data.10.0000", 1);
        stats.set_queries([(query(), BTreeSet::new())].into());
        assert_eq!(stats.take_reports()[&query()].groups.len(), 1, "kept over a repeated order");
    }
}
