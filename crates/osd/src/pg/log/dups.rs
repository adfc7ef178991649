//! The dups of a PG's log: requests remembered after their entries were trimmed, oldest first.
//!
//! There are thousands in each PG, and nearly all say as little as this: a client's request made a
//! version, which the client was told by (nearly) the same number. Such a dup is a row of 32 bytes;
//! one that says anything else stands beside it, whole.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use hashbrown::HashTable;
use types::osd::PgLogDup;
use types::{EVersion, EntityName, OsdReqId};

use super::requests::hash;
use super::rows::Rows;

/// `ahead` of a dup that a row does not say.
const RARE: i32 = i32::MIN;

#[derive(Debug, Clone, Copy)]
struct Row {
    tid: u64,
    version: u64,
    epoch: u32,
    client: u32,
    /// How far the version for clients is in front of the PG's, or [`RARE`].
    ahead: i32,
    return_code: i32,
}

const _: () = assert!(size_of::<Row>() == 32);

impl Row {
    /// As far as a row can say it.
    fn of(dup: &PgLogDup) -> Row {
        let ahead = dup.user_version.wrapping_sub(dup.version.version).cast_signed();
        Row {
            tid: dup.reqid.tid,
            version: dup.version.version,
            epoch: dup.version.epoch,
            client: u32::try_from(dup.reqid.name.num).unwrap_or(0),
            ahead: i32::try_from(ahead).unwrap_or(RARE),
            return_code: dup.return_code,
        }
    }

    fn version(&self) -> EVersion {
        EVersion::new(self.epoch, self.version)
    }

    fn reqid(&self) -> OsdReqId {
        OsdReqId { name: EntityName::client(self.client.into()), tid: self.tid, inc: 0 }
    }

    /// All that a row can say.
    fn dup(&self) -> PgLogDup {
        PgLogDup {
            reqid: self.reqid(),
            version: self.version(),
            user_version: self.version.wrapping_add_signed(self.ahead.into()),
            return_code: self.return_code,
            op_returns: Vec::new(),
        }
    }
}

/// Rows of one piece: 4 KiB.
const PIECE: usize = 128;

/// Dups in order, found by their requests.
#[derive(Debug, Clone, Default)]
pub(super) struct Dups {
    rows: Rows<Row, PIECE>,
    /// Number of the oldest row. The next ones follow; behind the last number comes 0.
    first: u32,
    /// The dups that rows do not say, by number.
    rare: BTreeMap<u32, PgLogDup>,
    /// Numbers of dups, of those with the same request the newest; made when somebody asks. Of who
    /// makes up requests that collide the same holds as in [`super::requests::Index`].
    by_request: OnceCell<HashTable<u32>>,
}

impl Dups {
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Version of the oldest.
    pub(super) fn oldest(&self) -> Option<EVersion> {
        self.rows.at(0).map(Row::version)
    }

    /// Version of the newest.
    pub(super) fn newest(&self) -> Option<EVersion> {
        self.rows.at(self.rows.len().checked_sub(1)?).map(Row::version)
    }

    /// Oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = PgLogDup> {
        (0..self.rows.len()).map(|at| self.dup(self.first.wrapping_add(at as u32)))
    }

    pub(super) fn find(&self, reqid: &OsdReqId) -> Option<PgLogDup> {
        let by_request = self.by_request.get_or_init(|| self.index());
        let found = by_request.find(hash(reqid), |&number| self.reqid(number) == *reqid);
        found.map(|&number| self.dup(number))
    }

    pub(super) fn forget_index(&mut self) {
        self.by_request.take();
    }

    fn index(&self) -> HashTable<u32> {
        let mut table = HashTable::with_capacity(self.rows.len());
        (0..self.rows.len())
            .for_each(|at| self.note(&mut table, self.first.wrapping_add(at as u32)));
        table
    }

    /// Has a table know a dup, the newest of those that it knows.
    fn note(&self, table: &mut HashTable<u32>, number: u32) {
        let reqid = self.reqid(number);
        if reqid.is_blank() {
            return;
        }
        match table.find_mut(hash(&reqid), |&known| self.reqid(known) == reqid) {
            Some(known) => *known = number,
            None => {
                table.insert_unique(hash(&reqid), number, |&known| hash(&self.reqid(known)));
            }
        }
    }

    /// Adds the newest.
    pub(super) fn push(&mut self, dup: PgLogDup) {
        let number = self.first.wrapping_add(self.rows.len() as u32);
        let mut row = Row::of(&dup);
        if row.ahead == RARE || row.dup() != dup {
            row.ahead = RARE;
            self.rare.insert(number, dup);
        }
        self.rows.push(row);
        if let Some(mut table) = self.by_request.take() {
            self.note(&mut table, number);
            self.by_request = table.into();
        }
    }

    /// Takes the oldest out; its version.
    pub(super) fn pop(&mut self) -> Option<EVersion> {
        let version = self.oldest()?;
        let number = self.first;
        let reqid = self.reqid(number);
        if let Some(table) = self.by_request.get_mut()
            && let Ok(found) = table.find_entry(hash(&reqid), |&known| known == number)
        {
            found.remove();
        }
        let row = self.rows.pop()?;
        if row.ahead == RARE {
            self.rare.remove(&number);
        }
        self.first = number.wrapping_add(1);
        Some(version)
    }

    fn row(&self, number: u32) -> &Row {
        let at = number.wrapping_sub(self.first) as usize;
        self.rows.at(at).expect("the number of a dup that is here")
    }

    fn reqid(&self, number: u32) -> OsdReqId {
        let row = self.row(number);
        match row.ahead {
            RARE => self.rare[&number].reqid,
            _ => row.reqid(),
        }
    }

    fn dup(&self, number: u32) -> PgLogDup {
        let row = self.row(number);
        match row.ahead {
            RARE => self.rare[&number].clone(),
            _ => row.dup(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use bytes::Bytes;
    use device::memory::Choices;
    use types::osd::LogOpReturn;

    use super::*;

    /// Mostly what a client's write leaves, and whatever else a dup can say.
    fn dup(version: u64, below: &mut impl FnMut(u64) -> u64) -> PgLogDup {
        let mut dup = PgLogDup {
            reqid: OsdReqId {
                name: EntityName::client(4100 + below(3) as i64),
                tid: below(60),
                inc: 0,
            },
            version: EVersion::new(7, version),
            user_version: version,
            ..PgLogDup::default()
        };
        match below(16) {
            0 => dup.reqid.name.num = 1 << 40,
            1 => dup.reqid.name = EntityName::osd(4100),
            2 => dup.reqid.inc = 3,
            3 => dup.user_version = 0,
            4 => dup.user_version = u64::MAX - below(3),
            5 => dup.user_version = version.wrapping_add_signed(i32::MIN.into()),
            6 => dup.return_code = -17,
            7 => dup.op_returns.push(LogOpReturn { rval: 1, outdata: Bytes::from_static(b"said") }),
            8 => dup.reqid = OsdReqId::default(),
            _ => {}
        }
        dup
    }

    #[test]
    fn dups_are_what_was_put_in_and_the_newest_of_a_request_is_found() {
        let mut choices = Choices::new(11);
        let mut below = |n| choices.below(n);
        // Numbers begin again while it lasts.
        let mut dups = Dups { first: u32::MAX - 900, ..Dups::default() };
        let (mut model, mut most) = (VecDeque::new(), 40);
        for version in 1..3000 {
            let next = dup(version, &mut below);
            dups.push(next.clone());
            model.push_back(next.clone());
            if version % 100 == 0 {
                // From none to some pieces.
                most = below(3 * PIECE as u64) as usize;
            }
            while model.len() > most {
                assert_eq!(dups.pop(), model.pop_front().map(|dup: PgLogDup| dup.version));
            }
            assert!(dups.iter().eq(model.iter().cloned()));
            if below(20) == 0 {
                dups.forget_index();
            }
            for reqid in [next.reqid, dup(0, &mut below).reqid] {
                let newest = model.iter().rev().find(|dup| dup.reqid == reqid);
                assert_eq!(dups.find(&reqid).as_ref(), newest.filter(|_| !reqid.is_blank()));
            }
        }
        assert_eq!((dups.len(), dups.newest()), (model.len(), model.back().map(|dup| dup.version)));
        while dups.pop().is_some() {}
        assert!(dups.rare.is_empty() && dups.index().is_empty() && dups.oldest().is_none());
        assert!(dups.rows.pieces() == 0);
    }

    /// One row of memory for all dups grew by an eighth each time, in 32 PGs at once. Each time it left
    /// room of another size behind, which the allocator keeps for its size as long as one PG is
    /// still using some: 2 MiB of an OSD's 52.
    #[test]
    fn rows_take_whole_pieces_only() {
        let mut dups = Dups::default();
        let mut below = |_| 15;
        for version in 1..=3000 {
            dups.push(dup(version, &mut below));
            if version > 1000 {
                dups.pop();
            }
            let pieces = dups.rows.pieces();
            assert!(pieces * PIECE < dups.len() + 2 * PIECE, "{pieces} for {}", dups.len());
        }
        assert!(dups.rare.is_empty());
    }
}
