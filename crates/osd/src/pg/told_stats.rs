//! What a write tells the replicas of the PG's statistics, in the place that `MOSDRepOp` has for them.
//!
//! Ceph sends the whole `pg_stat_t` with each write, some 900 bytes that are encoded, copied, summed and
//! decoded for what is nearly always "one write more, of 4 KiB". Here the first writes of an interval bring
//! all of it, and every [`WHOLE_EVERY`]th; the others bring what they add to the counts:
//!
//! ```text
//! envelope 1/1 | u8 number of counts | (u8 place in ObjectStatSum, i64 to add) ...
//! ```
//!
//! A replica says with its replies that it takes that ([`TAKES_ADDED`]; who answers writes together does, too:
//! [`crate::osd::commits`]); Ceph's do not, and are sent
//! all each time. Writes of an interval reach a replica in order, without gaps, so the counts stay the primary's. What is
//! not a write's (reads, times, scrubs' results) comes with the next whole. `pg_stat_t` is of version 26,
//! so the envelope's version tells which of the two it is.

use bytes::Bytes;
use denc::{Denc, Error, Reader, Writer};
use types::osd::{ObjectStatSum, PgStat};
use types::{Epoch, PgShard};

use super::replication::Followers;

/// In the `ack_type` of `MOSDRepOpReply`, of which Ceph looks at other bits: who sends it takes
/// [`News::Added`].
pub(super) const TAKES_ADDED: u8 = 0x80;

/// Bytes that encoded statistics take, and some more.
const WHOLE_ROOM: usize = 1024;
const ADDED_ROOM: usize = 64;
/// Writes of an interval of which one brings all statistics.
const WHOLE_EVERY: u32 = 100;
const ADDED_VERSION: u8 = 1;

/// What the replicas have been told in this interval.
#[derive(Debug, Clone, Default)]
pub(super) struct Told {
    interval: Epoch,
    /// Writes since all was told, that one among them; 0: never yet.
    since: u32,
    /// Who takes what is added alone.
    takers: Followers,
}

impl Told {
    /// What to tell `followers` with a write that adds `added`, which `all` has already. `interval`: its
    /// first epoch.
    pub(super) fn next(
        &mut self,
        interval: Epoch,
        followers: &[PgShard],
        all: &PgStat,
        added: &ObjectStatSum,
    ) -> Bytes {
        if self.interval != interval {
            *self = Told { interval, ..Told::default() };
        }
        if (1..WHOLE_EVERY).contains(&self.since)
            && followers.iter().all(|f| self.takers.contains(f))
        {
            self.since += 1;
            return encode_added(added);
        }
        self.since = 1;
        all.to_bytes_in(WHOLE_ROOM)
    }

    /// A replica says in this interval that it takes what is added alone.
    pub(super) fn takes_added(&mut self, interval: Epoch, from: PgShard) {
        if self.interval == interval && !self.takers.contains(&from) {
            self.takers.push(from);
        }
    }
}

/// What a replica is told.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "the usual one is looked at and dropped at once")]
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
    use types::pg::NO_SHARD;

    use super::*;

    fn write(n: i64) -> ObjectStatSum {
        ObjectStatSum {
            num_wr: 1,
            num_wr_kb: n,
            num_bytes: -n,
            num_objects_repaired: n % 3,
            ..Default::default()
        }
    }

    #[test]
    fn a_replica_counts_as_its_primary_does() {
        let (mut primary, mut replica, mut told) =
            (PgStat::default(), PgStat::default(), Told::default());
        let followers = [1, 2].map(|osd| PgShard { osd, shard: NO_SHARD });
        let mut wholes = 0;
        for n in 1..1000 {
            if n % 7 == 0 {
                primary.stats.sum.num_rd += 1;
            }
            let interval = if n < 250 { 5 } else { 9 };
            primary.stats.sum.add(&write(n));
            let news = told.next(interval, &followers, &primary, &write(n));
            // Of the writes under way when an interval begins the first ten are not answered yet.
            if n % 250 > 10 {
                followers.iter().for_each(|f| told.takes_added(interval, *f));
            }
            match News::decode(&news).unwrap() {
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
        assert_eq!(wholes, 11 + 2 + 12 + 7);
    }

    #[test]
    fn one_who_does_not_take_it_is_told_all() {
        let followers = [1, 2].map(|osd| PgShard { osd, shard: NO_SHARD });
        let mut told = Told::default();
        for n in 1..10 {
            let news = told.next(5, &followers, &PgStat::default(), &write(n));
            assert!(matches!(News::decode(&news), Ok(News::Whole(_))));
            told.takes_added(5, followers[0]);
            // Of an interval that is over.
            told.takes_added(4, followers[1]);
        }
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
