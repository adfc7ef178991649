//! Queries of the manager that OSDs answer with counts of clients' operations by key, and the
//! answers (`src/mgr/OSDPerfMetricTypes.h`, `src/mgr/MetricTypes.h` at v16.2).
//!
//! ```text
//! query:   envelope(1,1) varint n | n x envelope(1,1) { u8 what, regex } | counters
//! counters: varint n | n x envelope(1,1) { u8 }
//! limit:   envelope(1,1) envelope(1,1) { u8 counter } | u64 keys at most
//! report:  envelope(1,1) counters | map: key (list of lists of texts) -> packed values
//! packed:  u64 for each counter, and another (how many) behind each latency
//! MMgrConfigure: map query -> set of limits | optional message
//! MMgrReport:    map query -> report (before 16) | optional task status | optional message
//! message: u32 kind (0: OSD) | envelope(1,1) map
//! ```

use std::collections::{BTreeMap, BTreeSet};

use bstr::BString;
use bytes::Bytes;
use denc::{Denc, Error, Reader, Writer};

use crate::{MMgrConfigure, MMgrReport};

/// What a part of a key is taken from. Wire: OSDPerfMetricSubKeyType.
pub mod sub_key {
    /// The client's name.
    pub const CLIENT_ID: u8 = 0;
    /// Its address.
    pub const CLIENT_ADDRESS: u8 = 1;
    /// The pool's number.
    pub const POOL_ID: u8 = 2;
    /// The object's namespace.
    pub const NAMESPACE: u8 = 3;
    /// The OSD's number.
    pub const OSD_ID: u8 = 4;
    /// The PG.
    pub const PG_ID: u8 = 5;
    /// The object's name.
    pub const OBJECT_NAME: u8 = 6;
    /// The snapshot.
    pub const SNAP_ID: u8 = 7;
}

/// What is counted. Wire: PerformanceCounterType.
pub mod counter {
    /// Operations.
    pub const OPS: u8 = 0;
    /// Those that write.
    pub const WRITE_OPS: u8 = 1;
    /// Those that read.
    pub const READ_OPS: u8 = 2;
    /// Bytes.
    pub const BYTES: u8 = 3;
    /// Bytes written.
    pub const WRITE_BYTES: u8 = 4;
    /// Bytes read.
    pub const READ_BYTES: u8 = 5;
    /// Nanoseconds; how many, too.
    pub const LATENCY: u8 = 6;
    /// Of writes.
    pub const WRITE_LATENCY: u8 = 7;
    /// Of reads.
    pub const READ_LATENCY: u8 = 8;
}

/// The largest counter known.
const COUNTER_LAST: u8 = counter::READ_LATENCY;
/// Descriptors of a query, and parts of a key, at most.
const DESCRIPTORS_MAX: u64 = 64;

/// A part of a key: what matches the groups of an expression. Wire: OSDPerfMetricSubKeyDescriptor.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Denc)]
#[denc(v = 1, compat = 1)]
pub struct SubKeyDescriptor {
    /// One of [`sub_key`].
    pub what: u8,
    /// An expression with at least one group.
    pub regex: String,
}

/// Wire: PerformanceCounterDescriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Denc)]
#[denc(v = 1, compat = 1)]
struct CounterDescriptor {
    what: u8,
}

/// What is counted by which key. Wire: OSDPerfMetricQuery.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct PerfQuery {
    /// The key's parts.
    pub key: Vec<SubKeyDescriptor>,
    /// Of [`counter`].
    pub counters: Vec<u8>,
}

/// Only the keys largest by one counter are reported. Wire: OSDPerfMetricLimit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PerfLimit {
    /// One of [`counter`].
    pub order_by: u8,
    /// How many keys.
    pub max_count: u64,
}

/// What the groups of each part of a key matched.
pub type PerfKey = Vec<Vec<BString>>;
/// Queries with their limits; none: everything is reported.
pub type PerfQueries = BTreeMap<PerfQuery, BTreeSet<PerfLimit>>;
/// Answers.
pub type PerfReports = BTreeMap<PerfQuery, PerfReport>;

/// An OSD's counts since its last report. Wire: OSDPerfMetricReport.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PerfReport {
    /// Of [`counter`].
    pub counters: Vec<u8>,
    /// Packed values by key.
    pub groups: BTreeMap<PerfKey, Bytes>,
}

fn put_varint(w: &mut Writer, mut n: u64) {
    while n >= 0x80 {
        w.u8(n as u8 | 0x80);
        n >>= 7;
    }
    w.u8(n as u8);
}

fn take_count(r: &mut Reader<'_>) -> Result<u64, Error> {
    let (mut n, mut shift) = (0_u64, 0);
    loop {
        let byte = r.u8()?;
        n |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 && n <= DESCRIPTORS_MAX {
            return Ok(n);
        }
        if shift > 28 || n > DESCRIPTORS_MAX {
            return Err(Error::Invalid { what: "descriptors of a metric query", value: n });
        }
    }
}

fn put_counters(w: &mut Writer, counters: &[u8]) {
    put_varint(w, counters.len() as u64);
    counters.iter().for_each(|what| w.put(&CounterDescriptor { what: *what }));
}

/// Kinds that are not known are left out, as Ceph does.
fn take_counters(r: &mut Reader<'_>) -> Result<Vec<u8>, Error> {
    let mut counters = Vec::new();
    for _ in 0..take_count(r)? {
        let CounterDescriptor { what } = r.get()?;
        counters.extend((what <= COUNTER_LAST).then_some(what));
    }
    Ok(counters)
}

impl Denc for PerfQuery {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            put_varint(w, self.key.len() as u64);
            self.key.iter().for_each(|part| w.put(part));
            put_counters(w, &self.counters);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<PerfQuery, Error> {
        r.envelope("OSDPerfMetricQuery", 1, 1, |r, _| {
            let mut key = Vec::new();
            for _ in 0..take_count(r)? {
                key.push(r.get()?);
            }
            Ok(PerfQuery { key, counters: take_counters(r)? })
        })
    }
}

impl Denc for PerfLimit {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.put(&CounterDescriptor { what: self.order_by });
            w.u64(self.max_count);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<PerfLimit, Error> {
        r.envelope("OSDPerfMetricLimit", 1, 1, |r, _| {
            let CounterDescriptor { what } = r.get()?;
            Ok(PerfLimit { order_by: what, max_count: r.u64()? })
        })
    }
}

impl Denc for PerfReport {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            put_counters(w, &self.counters);
            w.put(&self.groups);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<PerfReport, Error> {
        r.envelope("OSDPerfMetricReport", 1, 1, |r, _| {
            Ok(PerfReport { counters: take_counters(r)?, groups: r.get()? })
        })
    }
}

fn is_latency(what: u8) -> bool {
    what >= counter::LATENCY
}

/// Packs values (sum, how many) of these counters.
pub fn pack_counters(counters: &[u8], values: &[(u64, u64)]) -> Bytes {
    let mut w = Writer::new();
    for (what, (sum, count)) in counters.iter().zip(values) {
        w.u64(*sum);
        if is_latency(*what) {
            w.u64(*count);
        }
    }
    w.into_bytes()
}

/// The values of these counters.
pub fn unpack_counters(counters: &[u8], packed: &Bytes) -> Result<Vec<(u64, u64)>, Error> {
    let mut r = Reader::new(packed);
    let one = |what: &u8| Ok((r.u64()?, if is_latency(*what) { r.u64()? } else { 0 }));
    counters.iter().map(one).collect()
}

/// Kind of a message about OSDs.
const OF_OSD: u32 = 0;

/// An optional message: its map if it is about OSDs.
fn take_message<T: Denc>(r: &mut Reader<'_>) -> Result<Option<T>, Error> {
    if r.remaining() == 0 || !r.bool()? || r.u32()? != OF_OSD {
        return Ok(None);
    }
    r.envelope("OSD metrics", 1, 1, |r, _| r.get()).map(Some)
}

impl MMgrConfigure {
    /// A configuration with metric queries, for an OSD.
    pub fn with_queries(
        stats_period: u32,
        stats_threshold: u32,
        queries: &PerfQueries,
    ) -> MMgrConfigure {
        let mut w = Writer::new();
        w.put(queries);
        w.bool(false);
        MMgrConfigure { stats_period, stats_threshold, queries: w.into_bytes() }
    }

    /// The metric queries for an OSD.
    pub fn osd_queries(&self) -> Result<PerfQueries, Error> {
        let mut r = Reader::new(&self.queries);
        if r.remaining() == 0 {
            return Ok(PerfQueries::new());
        }
        let queries: PerfQueries = r.get()?;
        if !queries.is_empty() {
            return Ok(queries);
        }
        Ok(take_message(&mut r)?.unwrap_or_default())
    }
}

impl MMgrReport {
    /// [`MMgrReport::rest`] with these answers.
    pub fn with_osd_metrics(reports: &PerfReports) -> Bytes {
        if reports.is_empty() {
            return MMgrReport::NO_METRICS;
        }
        let mut w = Writer::new();
        w.u32(0);
        w.bool(false);
        w.bool(true);
        w.u32(OF_OSD);
        w.envelope(1, 1, |w| w.put(reports));
        w.into_bytes()
    }

    /// The answers to metric queries.
    pub fn osd_metrics(&self) -> Result<PerfReports, Error> {
        let mut r = Reader::new(&self.rest);
        if r.remaining() == 0 {
            return Ok(PerfReports::new());
        }
        let mut reports: PerfReports = r.get()?;
        if r.remaining() > 0 {
            let _: Option<BTreeMap<String, String>> = r.get()?;
            reports.extend(take_message::<PerfReports>(&mut r)?.unwrap_or_default());
        }
        Ok(reports)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query() -> PerfQuery {
        PerfQuery {
            key: vec![SubKeyDescriptor { what: sub_key::POOL_ID, regex: "^(.*)$".into() }],
            counters: vec![counter::WRITE_OPS, counter::WRITE_LATENCY],
        }
    }

    #[test]
    fn a_query_is_written_as_ceph_writes_it() {
        let golden = b"\x01\x01\x21\0\0\0\x01\x01\x01\x0b\0\0\0\x02\x06\0\0\0^(.*)$\
            \x02\x01\x01\x01\0\0\0\x01\x01\x01\x01\0\0\0\x07";
        assert_eq!(&query().to_bytes()[..], &golden[..]);
    }

    #[test]
    fn queries_and_answers_survive_the_wire_and_no_cut_of_them_panics() {
        let limits = [PerfLimit { order_by: counter::WRITE_OPS, max_count: 256 }].into();
        let queries: PerfQueries = [(query(), limits)].into();
        let configure = MMgrConfigure::with_queries(5, 5, &queries);
        assert_eq!(configure.osd_queries().unwrap(), queries);
        assert!(MMgrConfigure::plain(5, 5).osd_queries().unwrap().is_empty());
        let values = [(3, 0), (1000, 3)];
        let packed = pack_counters(&query().counters, &values);
        assert_eq!(unpack_counters(&query().counters, &packed).unwrap(), values);
        let groups = [(vec![vec![BString::from("2")]], packed)].into();
        let report = PerfReport { counters: query().counters, groups };
        let reports: PerfReports = [(query(), report)].into();
        let rest = MMgrReport::with_osd_metrics(&reports);
        let message = |rest: Bytes| MMgrReport { rest, ..MMgrReport::default() };
        assert_eq!(message(rest.clone()).osd_metrics().unwrap(), reports);
        assert!(message(MMgrReport::NO_METRICS).osd_metrics().unwrap().is_empty());
        for cut in 1..rest.len() {
            let _ = message(rest.slice(..cut)).osd_metrics();
        }
        for cut in 1..configure.queries.len() {
            let queries = configure.queries.slice(..cut);
            let _ = MMgrConfigure { queries, ..configure.clone() }.osd_queries();
        }
    }
}
