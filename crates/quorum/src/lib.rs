//! A replicated log for a handful of members, without I/O, clock or randomness of its own:
//! Raft with pre-vote, leader leases, log trimming and one-at-a-time membership changes.
//!
//! [`Raft`] takes messages and the time and says what is to be made durable, sent and applied
//! ([`Ready`]); its owner does that. What the entries mean is the owner's business, and so is the
//! copying of state to a member whose log ends before the leader's begins. The protocol and why it
//! is safe: `docs/quorum.md`.
//!
//! | file | what |
//! |---|---|
//! | `entry.rs` | entries, members, what is stored |
//! | `message.rs` | what members tell each other |
//! | `log.rs` | the part of the log that is kept |
//! | `progress.rs` | what a leader knows of the others |
//! | `raft.rs` | a member: roles, time, storage |
//! | `election.rs` | pre-votes, votes |
//! | `replication.rs` | entries from the leader to the others |

mod election;
mod entry;
mod log;
mod message;
mod progress;
mod raft;
mod replication;

pub use entry::{Base, Entry, HardState, Member, MemberId, Members, Payload};
pub use message::{Body, Envelope};
pub use raft::{ChangeError, Raft, Ready, Start, Timing};
