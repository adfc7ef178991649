//! What members tell each other.
//!
//! A message may come late, twice, or not at all; each is only believed as far as its term allows.

use denc::{Denc, Error, Reader, Writer};

use crate::entry::{Entry, MemberId};

/// A message on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// Who says it.
    pub from: MemberId,
    /// To whom.
    pub to: MemberId,
    /// The sender's term; in a pre-vote and its answer too, which promise nothing.
    pub term: u64,
    /// What.
    pub body: Body,
}

/// What is said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// Would you vote for me in the next term?
    PreVote {
        /// End of the sender's log.
        last_index: u64,
        /// Its term.
        last_term: u64,
    },
    /// The answer.
    PreVoteReply {
        /// The asker's log is as good as ours.
        fresh: bool,
        /// We have heard from a leader lately, or may have and do not remember.
        promised: bool,
        /// We do not lead, and shall not in this term.
        quiet: bool,
    },
    /// Vote for me in this term.
    Vote {
        /// End of the sender's log.
        last_index: u64,
        /// Its term.
        last_term: u64,
        /// No leader has a lease any more, whatever the voter has heard: the last one gave it up,
        /// or every member says that it does not lead.
        clear: bool,
    },
    /// The answer.
    VoteReply {
        /// Whether it has our vote.
        granted: bool,
    },
    /// Entries after `prev_index`; without any a sign of life.
    Append {
        /// The place before the first entry.
        prev_index: u64,
        /// The term there.
        prev_term: u64,
        /// How far the leader knows the log to be committed.
        commit: u64,
        /// The leader's clock when it sent this, in nanoseconds: comes back in the answer.
        stamp: u64,
        /// Ascending, without gaps.
        entries: Vec<Entry>,
    },
    /// The answer.
    AppendReply {
        /// Whether the log agrees up to `index`, durably; else from where to try.
        ok: bool,
        /// See `ok`.
        index: u64,
        /// From the message answered.
        stamp: u64,
    },
    /// The entries after your log are not kept any more: copy the state. A sign of life, too.
    NeedSync {
        /// As in `Append`.
        stamp: u64,
    },
    /// Lead in my place: I have given up my lease.
    Transfer,
}

impl Denc for Envelope {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.put(&self.from);
            w.put(&self.to);
            w.u64(self.term);
            self.body.encode(w);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Envelope, Error> {
        r.envelope("quorum message", 1, 1, |r, _| {
            Ok(Envelope { from: r.get()?, to: r.get()?, term: r.u64()?, body: Body::decode(r)? })
        })
    }
}

impl Denc for Body {
    fn encode(&self, w: &mut Writer) {
        match self {
            Body::PreVote { last_index, last_term } => {
                w.u8(1);
                w.u64(*last_index);
                w.u64(*last_term);
            }
            Body::PreVoteReply { fresh, promised, quiet } => {
                w.u8(2);
                w.bool(*fresh);
                w.bool(*promised);
                w.bool(*quiet);
            }
            Body::Vote { last_index, last_term, clear } => {
                w.u8(3);
                w.u64(*last_index);
                w.u64(*last_term);
                w.bool(*clear);
            }
            Body::VoteReply { granted } => {
                w.u8(4);
                w.bool(*granted);
            }
            Body::Append { prev_index, prev_term, commit, stamp, entries } => {
                w.u8(5);
                for n in [prev_index, prev_term, commit, stamp] {
                    w.u64(*n);
                }
                w.put(entries);
            }
            Body::AppendReply { ok, index, stamp } => {
                w.u8(6);
                w.bool(*ok);
                w.u64(*index);
                w.u64(*stamp);
            }
            Body::NeedSync { stamp } => {
                w.u8(7);
                w.u64(*stamp);
            }
            Body::Transfer => w.u8(8),
        }
    }
    fn decode(r: &mut Reader<'_>) -> Result<Body, Error> {
        Ok(match r.u8()? {
            1 => Body::PreVote { last_index: r.u64()?, last_term: r.u64()? },
            2 => Body::PreVoteReply { fresh: r.bool()?, promised: r.bool()?, quiet: r.bool()? },
            3 => Body::Vote { last_index: r.u64()?, last_term: r.u64()?, clear: r.bool()? },
            4 => Body::VoteReply { granted: r.bool()? },
            5 => Body::Append {
                prev_index: r.u64()?,
                prev_term: r.u64()?,
                commit: r.u64()?,
                stamp: r.u64()?,
                entries: r.get()?,
            },
            6 => Body::AppendReply { ok: r.bool()?, index: r.u64()?, stamp: r.u64()? },
            7 => Body::NeedSync { stamp: r.u64()? },
            8 => Body::Transfer,
            tag => {
                return Err(Error::Invalid { what: "quorum message", value: tag.into() });
            }
        })
    }
}
