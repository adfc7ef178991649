//! What a write tells the replicas of the PG's statistics, in the place that `MOSDRepOp` has for them.
//!
//! Ceph sends the whole `pg_stat_t` with each write, some 900 bytes that are encoded, copied, summed and
//! decoded for what is nearly always "one write more, of 4 KiB". Here the first write of an interval brings
//! all of it, and every [`WHOLE_EVERY`]th; the others bring what they add to the counts:
//!
//! ```text
//! envelope 1/1 | u8 number of counts | (u8 place in ObjectStatSum, i64 to add) ...
//! ```
//!
//! Writes of an interval reach a replica in order, without gaps, so the counts stay the primary's. What is
//! not a write's (reads, times, scrubs' results) comes with the next whole. `pg_stat_t` is of version 26,
//! so the envelope's version tells which of the two it is.

use bytes::Bytes;
use denc::{Denc, Error, Reader, Writer};
use types::Epoch;
use types::osd::{ObjectStatSum, PgStat};

/// Bytes that encoded statistics take, and some more.
const WHOLE_ROOM: usize = 1024;
const ADDED_ROOM: usize = 64;
/// Writes of an interval of which one brings all statistics.
const WHOLE_EVERY: u32 = 100;
const ADDED_VERSION: u8 = 1;

/// What the replicas have been told in this interval.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Told {
    interval: Epoch,
    /// Writes since all was told, that one among them; 0: never yet.
    since: u32,
}

impl Told {
    /// What to tell with a write that adds `added`, which `all` has already. `interval`: its first epoch.
    pub(super) fn next(&mut self, interval: Epoch, all: &PgStat, added: &ObjectStatSum) -> Bytes {
        if self.interval == interval && (1..WHOLE_EVERY).contains(&self.since) {
            self.since += 1;
            return encode_added(added);
        }
        *self = Told { interval, since: 1 };
        all.to_bytes_in(WHOLE_ROOM)
    }
}

/// What a replica is told.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum News {
    /// All statistics as they are after the write.
    Whole(Box<PgStat>),
    /// What the write adds.
    Added(ObjectStatSum),
}

impl News {
    /// # Errors
    /// If it is neither, or not whole.
    pub(super) fn decode(bytes: &Bytes) -> Result<News, Error> {
        if bytes.first() != Some(&ADDED_VERSION) {
            return Ok(News::Whole(Box::new(PgStat::from_bytes(bytes)?)));
        }
        let mut r = Reader::new(bytes);
        r.envelope("added statistics", ADDED_VERSION, ADDED_VERSION, decode_added).map(News::Added)
    }
}

fn encode_added(added: &ObjectStatSum) -> Bytes {
    let mut w = Writer::with_capacity(ADDED_ROOM);
    w.envelope(ADDED_VERSION, ADDED_VERSION, |w| {
        let counts = added.fields();
        let to_add = || (0_u8..).zip(counts).filter(|(_, n)| *n != 0);
        w.u8(to_add().count() as u8);
        for (place, n) in to_add() {
            w.u8(place);
            w.i64(n);
        }
    });
    w.into_bytes()
}

fn decode_added(r: &mut Reader<'_>, _version: u8) -> Result<ObjectStatSum, Error> {
    let mut counts = ObjectStatSum::default().fields();
    for _ in 0..r.u8()? {
        let (place, n) = (r.u8()?, r.i64()?);
        let count = counts.get_mut(usize::from(place));
        *count.ok_or(Error::Invalid { what: "place of a count", value: place.into() })? = n;
    }
    Ok(ObjectStatSum::of_fields(counts))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(n: i64) -> ObjectStatSum {
        ObjectStatSum { num_wr: 1, num_wr_kb: n, num_bytes: -n, num_objects_repaired: n % 3, ..Default::default() }
    }

    #[test]
    fn a_replica_counts_as_its_primary_does() {
        let (mut primary, mut replica, mut told) = (PgStat::default(), PgStat::default(), Told::default());
        let mut wholes = 0;
        for n in 1..1000 {
            if n % 7 == 0 {
                primary.stats.sum.num_rd += 1;
            }
            let interval = if n < 250 { 5 } else { 9 };
            primary.stats.sum.add(&write(n));
            match News::decode(&told.next(interval, &primary, &write(n))).unwrap() {
                News::Whole(all) => {
                    wholes += 1;
                    replica = *all;
                    assert_eq!(replica, primary);
                }
                News::Added(added) => replica.stats.sum.add(&added),
            }
            // Reads are told with the next whole.
            let reads = replica.stats.sum.num_rd;
            assert_eq!(ObjectStatSum { num_rd: reads, ..primary.stats.sum }, replica.stats.sum);
        }
        assert_eq!(wholes, 3 + 8);
    }

    #[test]
    fn what_does_not_decode_is_an_error() {
        let good = encode_added(&write(2));
        assert_eq!(News::decode(&good), Ok(News::Added(write(2))));
        for len in 0..good.len() {
            assert!(News::decode(&good.slice(..len)).is_err(), "{len}");
        }
        let mut bad = good.to_vec();
        bad[7] = 40;
        assert!(News::decode(&bad.into()).is_err());
    }
}
