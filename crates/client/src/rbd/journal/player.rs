//! The order in which a journal's entries are read (`src/journal/JournalPlayer.cc` at v16.2).
//!
//! Entry t of a tag is in object t mod splay width of its set, so entries come from the objects in
//! turn. A tag ends where its next entry is missing: what lies behind the gap was never promised to
//! anybody. The next tag begins at its entry 0.

use std::collections::{BTreeMap, VecDeque};

use bytes::{Bytes, BytesMut};
use cls::journal::{ObjectPosition, ObjectSetPosition};
use types::Errno;

use super::entry::{Entry, next_entry};
use super::header::Header;
use crate::ClientError;

/// Bytes of an object read at a time.
const FETCH: u64 = 1 << 20;

/// What comes next.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// An entry and the object it is in.
    Entry(u64, Entry),
    /// More of the object at this place is needed.
    Fetch(usize),
    End,
}

/// Reads the entries behind a position.
#[derive(Debug)]
pub(crate) struct Player {
    places: Vec<Place>,
    /// Set that is written, the last that is read.
    active_set: u64,
    place: usize,
    /// The newest entry that is done, until the one behind it is looked for.
    start: Option<ObjectPosition>,
    tag: Option<u64>,
    /// Tags up to this one have ended.
    ended: Option<u64>,
    /// The newest entry seen, by tag.
    newest: BTreeMap<u64, u64>,
}

/// One of the objects that are read side by side.
#[derive(Debug)]
struct Place {
    object: u64,
    /// Bytes read of it.
    read: u64,
    /// Those that are no whole entry yet: below one entry and one read.
    rest: Bytes,
    /// Whole ones, with their objects. Those of one object at most, and of one read behind it.
    entries: VecDeque<(u64, Entry)>,
    /// Up to here all is done.
    done_to: Option<ObjectPosition>,
    /// There are no more objects.
    at_end: bool,
}

impl Player {
    pub(crate) fn new(header: &Header, position: &ObjectSetPosition) -> Player {
        Player::behind(header.splay, header.minimum.get(), header.active.get(), position)
    }

    fn behind(splay: u64, minimum: u64, active: u64, position: &ObjectSetPosition) -> Player {
        let start = position.object_positions.first().copied();
        let place = |offset: u64| {
            let mut all = position.object_positions.iter();
            let done_to = all.find(|at| at.object_number % splay == offset).copied();
            Place {
                object: done_to.map_or(minimum * splay + offset, |at| at.object_number),
                read: 0,
                rest: Bytes::new(),
                entries: VecDeque::new(),
                done_to,
                at_end: false,
            }
        };
        Player {
            places: (0..splay).map(place).collect(),
            active_set: active,
            place: start.map_or(0, |at| (at.object_number % splay) as usize),
            start,
            tag: start.map(|at| at.tag_tid),
            ended: None,
            newest: BTreeMap::new(),
        }
    }

    /// The next entry and the object it is in; `None` at the end. EIO when one is missing.
    pub(crate) async fn next(
        &mut self,
        header: &Header,
    ) -> Result<Option<(u64, Entry)>, ClientError> {
        loop {
            match self.step()? {
                Step::Entry(object, entry) => return Ok(Some((object, entry))),
                Step::End => return Ok(None),
                Step::Fetch(place) => {
                    let (object, from) = (self.places[place].object, self.places[place].read);
                    let bytes = header.read_object(object, from, FETCH).await?;
                    self.fetched(place, &bytes)?;
                }
            }
        }
    }

    fn fetched(&mut self, place: usize, bytes: &Bytes) -> Result<(), ClientError> {
        let splay = self.places.len() as u64;
        let at = &mut self.places[place];
        at.read += bytes.len() as u64;
        let mut rest = BytesMut::with_capacity(at.rest.len() + bytes.len());
        rest.extend_from_slice(&at.rest);
        rest.extend_from_slice(bytes);
        at.rest = rest.freeze();
        while let Some((entry, len)) = next_entry(&at.rest)? {
            at.rest = at.rest.slice(len..);
            at.entries.push_back((at.object, entry));
        }
        self.skip_done(place);
        let at = &mut self.places[place];
        if (bytes.len() as u64) < FETCH {
            if at.object / splay >= self.active_set {
                at.at_end = true;
            } else {
                at.object += splay;
                at.read = 0;
                at.rest = Bytes::new();
                // Had it been in the next object, that would be its number.
                at.done_to = None;
            }
        }
        Ok(())
    }

    fn skip_done(&mut self, place: usize) {
        let at = &mut self.places[place];
        let Some(done) = at.done_to else { return };
        while let Some((_, entry)) = at.entries.pop_front() {
            let newest = self.newest.entry(entry.tag).or_default();
            *newest = (*newest).max(entry.tid);
            if (entry.tag, entry.tid) == (done.tag_tid, done.entry_tid) {
                at.done_to = None;
                return;
            }
        }
    }

    fn step(&mut self) -> Result<Step, ClientError> {
        loop {
            let at = &self.places[self.place];
            if at.entries.is_empty() && !at.at_end {
                return Ok(Step::Fetch(self.place));
            }
            let front = at.entries.front().map(|(_, entry)| (entry.tag, entry.tid));
            if let Some(start) = self.start.take() {
                // The one behind the newest done is in the next object, unless a new tag is here.
                if front.is_none_or(|(tag, _)| tag == start.tag_tid) {
                    self.turn();
                    continue;
                }
            }
            let Some((tag, tid)) = front else {
                match self.tag {
                    Some(current) if !self.has_ended(current) => self.end_tag(current),
                    _ => return Ok(Step::End),
                }
                continue;
            };
            match self.tag {
                Some(current) if tag < current || self.has_ended(tag) => {
                    self.drop_tag(tag);
                }
                Some(current) if tag > current && tid == 0 => {
                    self.end_tag(current);
                    self.tag = Some(tag);
                }
                Some(current) if tag > current && self.has_ended(current) => {
                    // Its beginning is missing.
                    self.drop_tag(tag);
                }
                Some(current) if tag > current => self.end_tag(current),
                _ => {
                    self.tag = Some(tag);
                    if let Some(taken) = self.take(tag, tid)? {
                        return Ok(taken);
                    }
                }
            }
        }
    }

    fn take(&mut self, tag: u64, tid: u64) -> Result<Option<Step>, ClientError> {
        let newest = self.newest.get(&tag).copied();
        let at = &mut self.places[self.place];
        let Some((object, entry)) = at.entries.pop_front() else { return Ok(None) };
        match newest {
            // Written twice: an append was sent again.
            Some(newest) if tid <= newest => return Ok(None),
            Some(newest) if tid != newest + 1 => {
                tracing::error!("the journal has no entry {} of tag {tag}", newest + 1);
                return Err(Errno::EIO.into());
            }
            _ => {}
        }
        self.newest.insert(tag, tid);
        self.turn();
        Ok(Some(Step::Entry(object, entry)))
    }

    fn has_ended(&self, tag: u64) -> bool {
        self.ended.is_some_and(|ended| tag <= ended)
    }

    fn turn(&mut self) {
        self.place = (self.place + 1) % self.places.len();
    }

    /// The tag ends here; what follows is looked for from the first place on.
    fn end_tag(&mut self, tag: u64) {
        self.place = 0;
        self.drop_tag(tag);
    }

    fn drop_tag(&mut self, tag: u64) {
        self.ended = Some(self.ended.map_or(tag, |ended| ended.max(tag)));
        for at in &mut self.places {
            while at.entries.front().is_some_and(|(_, entry)| entry.tag == tag) {
                at.entries.pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use denc::{Denc, Writer};

    use super::*;

    const SPLAY: u64 = 3;

    /// Objects by number.
    type Objects = BTreeMap<u64, Vec<(u64, u64)>>;

    fn read(objects: &Objects, active: u64, position: &[(u64, u64, u64)]) -> Vec<(u64, u64, u64)> {
        let at = |&(object_number, tag_tid, entry_tid): &(u64, u64, u64)| ObjectPosition {
            object_number,
            tag_tid,
            entry_tid,
        };
        let position = ObjectSetPosition { object_positions: position.iter().map(at).collect() };
        let mut player = Player::behind(SPLAY, 0, active, &position);
        let mut found = Vec::new();
        loop {
            match player.step().unwrap() {
                Step::Entry(object, entry) => found.push((object, entry.tag, entry.tid)),
                Step::End => return found,
                Step::Fetch(place) => {
                    let mut w = Writer::new();
                    for (tag, tid) in
                        objects.get(&player.places[place].object).into_iter().flatten()
                    {
                        Entry { tag: *tag, tid: *tid, data: Bytes::new() }.encode(&mut w);
                    }
                    player.fetched(place, &w.into_bytes()).unwrap();
                }
            }
        }
    }

    fn objects(lists: &[(u64, &[(u64, u64)])]) -> Objects {
        lists.iter().map(|(object, entries)| (*object, entries.to_vec())).collect()
    }

    #[test]
    fn entries_come_from_the_objects_in_turn_and_on_into_the_next_set() {
        let all = objects(&[
            (0, &[(1, 0), (1, 3)]),
            (1, &[(1, 1)]),
            (2, &[(1, 2), (1, 5)]),
            (3, &[(1, 6)]),
            (4, &[(1, 4), (1, 7)]),
        ]);
        let found = read(&all, 1, &[]);
        assert_eq!(
            found,
            [
                (0, 1, 0),
                (1, 1, 1),
                (2, 1, 2),
                (0, 1, 3),
                (4, 1, 4),
                (2, 1, 5),
                (3, 1, 6),
                (4, 1, 7)
            ]
        );
        // The same from a position on: the newest first, one of each place.
        let found = read(&all, 1, &[(4, 1, 4), (0, 1, 3), (2, 1, 2)]);
        assert_eq!(found, [(2, 1, 5), (3, 1, 6), (4, 1, 7)]);
        assert_eq!(read(&all, 1, &[(4, 1, 7), (3, 1, 6), (2, 1, 5)]), []);
    }

    #[test]
    fn a_tag_ends_where_an_entry_is_missing_and_the_next_begins_at_its_first() {
        // Entry 1 of tag 1 was never written; its writer died, the next one wrote tag 2.
        let all = objects(&[
            (0, &[(1, 0), (1, 3), (2, 0), (2, 3)]),
            (1, &[(2, 1)]),
            (2, &[(1, 2), (2, 2)]),
        ]);
        let found = read(&all, 0, &[]);
        assert_eq!(found, [(0, 1, 0), (0, 2, 0), (1, 2, 1), (2, 2, 2), (0, 2, 3)]);
        // Tag 1 is replayed, nothing of tag 2 is done yet.
        let found = read(&all, 0, &[(0, 1, 0)]);
        assert_eq!(found, [(0, 2, 0), (1, 2, 1), (2, 2, 2), (0, 2, 3)]);
    }

    #[test]
    fn a_new_tag_may_stand_at_the_position_itself() {
        let all = objects(&[(0, &[(1, 0), (2, 0)]), (1, &[(2, 1)])]);
        assert_eq!(read(&all, 0, &[(0, 1, 0)]), [(0, 2, 0), (1, 2, 1)]);
    }

    #[test]
    fn a_tag_without_a_beginning_is_left_out() {
        let all = objects(&[(0, &[(1, 0), (2, 3)]), (1, &[(2, 1)]), (2, &[(1, 2)])]);
        assert_eq!(read(&all, 0, &[]), [(0, 1, 0)]);
    }

    #[test]
    fn an_entry_written_twice_is_read_once() {
        let all = objects(&[(0, &[(1, 0), (1, 0), (1, 3)]), (1, &[(1, 1)]), (2, &[(1, 2)])]);
        assert_eq!(read(&all, 0, &[]), [(0, 1, 0), (1, 1, 1), (2, 1, 2), (0, 1, 3)]);
    }
}
