//! Entries of the log, the members, and what each member stores beside the log.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use denc::{Denc, Error, Reader, Writer};

/// One life of one member's database: a member whose disk was wiped comes back with another
/// number, because it does not know any more what it promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Denc)]
pub struct MemberId(pub u64);

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A member as the others know it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
pub struct Member {
    /// Its name among people.
    pub name: String,
    /// Whether it counts; who does not is sent the log all the same.
    pub voter: bool,
}

/// The members. In force from the moment they are appended, committed or not.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Members(pub BTreeMap<MemberId, Member>);

impl Denc for Members {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.0);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Members, Error> {
        Ok(Members(r.get()?))
    }
}

impl Members {
    /// One voter.
    pub fn sole(id: MemberId, name: &str) -> Members {
        let mut members = Members::default();
        members.set(id, name, true);
        members
    }

    /// Adds or changes one.
    pub fn set(&mut self, id: MemberId, name: &str, voter: bool) {
        let name = name.to_owned();
        self.0.insert(id, Member { name, voter });
    }

    /// Who counts.
    pub fn voters(&self) -> impl Iterator<Item = MemberId> + '_ {
        self.0.iter().filter(|(_, m)| m.voter).map(|(id, _)| *id)
    }

    /// Whether that one counts.
    pub fn is_voter(&self, id: MemberId) -> bool {
        self.0.get(&id).is_some_and(|m| m.voter)
    }

    /// How many are more than half.
    pub fn majority(&self) -> usize {
        self.voters().count() / 2 + 1
    }

    /// Whether going from these to `next` changes the votes of at most one member: then any
    /// majority before and any majority after have a member in common.
    pub fn one_step_to(&self, next: &Members) -> bool {
        let gone = self.voters().filter(|id| !next.is_voter(*id)).count();
        let new = next.voters().filter(|id| !self.is_voter(*id)).count();
        gone + new <= 1 && next.voters().count() > 0
    }

    /// The one of that name.
    pub fn named(&self, name: &str) -> Option<MemberId> {
        self.0.iter().find(|(_, m)| m.name == name).map(|(id, _)| *id)
    }
}

/// What an entry is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Payload {
    /// A new leader's first entry: commits what earlier terms left.
    Noop,
    /// The owner's.
    Data(Bytes),
    /// Other members.
    Members(Members),
}

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Place in the log, from 1.
    pub index: u64,
    /// The term of the leader that appended it.
    pub term: u64,
    /// What for.
    pub payload: Payload,
}

impl Entry {
    /// About how much memory it takes.
    pub(crate) fn len(&self) -> usize {
        64 + match &self.payload {
            Payload::Data(bytes) => bytes.len(),
            Payload::Noop => 0,
            Payload::Members(members) => members.0.len() * 64,
        }
    }
}

impl Denc for Entry {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.index);
        w.u64(self.term);
        match &self.payload {
            Payload::Noop => w.u8(0),
            Payload::Data(bytes) => {
                w.u8(1);
                w.blob(bytes);
            }
            Payload::Members(members) => {
                w.u8(2);
                w.put(members);
            }
        }
    }
    fn decode(r: &mut Reader<'_>) -> Result<Entry, Error> {
        let (index, term) = (r.u64()?, r.u64()?);
        let payload = match r.u8()? {
            0 => Payload::Noop,
            1 => Payload::Data(r.blob()?),
            2 => Payload::Members(r.get()?),
            tag => {
                return Err(Error::Invalid { what: "log entry", value: tag.into() });
            }
        };
        Ok(Entry { index, term, payload })
    }
}

/// What a member must not forget: with it nobody gets two votes of it in one term.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Denc)]
pub struct HardState {
    /// The newest term it has taken part in.
    pub term: u64,
    /// Whom it voted for in that term; 0 is nobody.
    pub vote: MemberId,
}

/// What stands for the entries that are not kept any more.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
pub struct Base {
    /// The last of them.
    pub index: u64,
    /// Its term.
    pub term: u64,
    /// The members at that place.
    pub members: Members,
}
