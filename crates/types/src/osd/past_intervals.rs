//! Which sets of OSDs may have written to a PG since it last was clean.

use std::collections::BTreeSet;

use denc::{Denc, Error, Reader, Writer};

use crate::ids::{Epoch, OSD_NONE, OsdId};
use crate::pg::{NO_SHARD, PgShard};

/// An interval that may have taken writes. Wire: compact_interval_t v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct CompactInterval {
    /// First epoch.
    pub first: Epoch,
    /// Last epoch.
    pub last: Epoch,
    /// Its acting set.
    pub acting: BTreeSet<PgShard>,
}

impl CompactInterval {
    /// Whether having heard all of this one's OSDs includes having heard one of the other's.
    fn supersedes(&self, other: &CompactInterval) -> bool {
        self.acting.is_subset(&other.acting)
    }
}

/// A run of epochs with the same up and acting sets. Wire: pg_interval_t v4/c2.
#[derive(Debug, Clone, PartialEq, Eq, Denc)]
#[denc(v = 4, compat = 2, oldest = 4)]
pub struct PgInterval {
    /// First epoch.
    pub first: Epoch,
    /// Last epoch.
    pub last: Epoch,
    /// Up set.
    pub up: Vec<OsdId>,
    /// Acting set.
    pub acting: Vec<OsdId>,
    /// Whether it may have taken writes.
    pub maybe_went_rw: bool,
    /// Primary of the acting set.
    pub primary: OsdId,
    /// Primary of the up set.
    pub up_primary: OsdId,
}

/// Wire: PastIntervals v1: u8 2, pi_compact_rep v1.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PastIntervals {
    /// First epoch covered.
    pub first: Epoch,
    /// Last epoch covered.
    pub last: Epoch,
    /// All OSDs of all intervals, also of those that took no writes.
    pub all_participants: BTreeSet<PgShard>,
    /// The intervals that may have taken writes, oldest first, less those that a newer one
    /// stands for.
    pub intervals: Vec<CompactInterval>,
}

impl PastIntervals {
    /// Whether nothing is covered.
    pub fn is_empty(&self) -> bool {
        self.first > self.last || (self.first == 0 && self.last == 0)
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        *self = PastIntervals::default();
    }

    /// First epoch and the one behind the last.
    pub fn bounds(&self) -> (Epoch, Epoch) {
        (self.first, self.last.saturating_add(1))
    }

    /// Adds the interval that just ended; it must be newer than all before.
    pub fn add_interval(&mut self, ec_pool: bool, interval: &PgInterval) {
        if self.first == 0 {
            self.first = interval.first;
        }
        self.last = interval.last;
        let acting: BTreeSet<PgShard> = interval
            .acting
            .iter()
            .enumerate()
            .filter(|&(_, &osd)| osd != OSD_NONE)
            .map(|(i, &osd)| PgShard::new(osd, if ec_pool { i as i8 } else { NO_SHARD }))
            .collect();
        self.all_participants.extend(&acting);
        if !interval.maybe_went_rw {
            return;
        }
        let added = CompactInterval { first: interval.first, last: interval.last, acting };
        self.intervals.retain(|older| !added.supersedes(older));
        self.intervals.push(added);
    }

    /// The intervals that may have taken writes, newest first, back to the one with `les`.
    pub fn maybe_rw_back_to(&self, les: Epoch) -> impl Iterator<Item = &CompactInterval> {
        self.intervals.iter().rev().take_while(move |interval| interval.last >= les)
    }
}

impl Denc for PastIntervals {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.u8(2);
            w.envelope(1, 1, |w| {
                w.u32(self.first);
                w.u32(self.last);
                w.put(&self.all_participants);
                w.put(&self.intervals);
            });
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<PastIntervals, Error> {
        r.envelope("PastIntervals", 1, 1, |r, _| match r.u8()? {
            0 => Ok(PastIntervals::default()),
            2 => r.envelope("PastIntervals", 1, 1, |r, _| {
                Ok(PastIntervals {
                    first: r.u32()?,
                    last: r.u32()?,
                    all_participants: r.get()?,
                    intervals: r.get()?,
                })
            }),
            other => Err(Error::Invalid { what: "past intervals type", value: other.into() }),
        })
    }
}
