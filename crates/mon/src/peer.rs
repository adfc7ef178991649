//! What monitors tell each other (`docs/quorum.md`): the replicated log's own messages, copies of
//! the state, requests handed to the leader and their answers, who is in the quorum, clocks.
//!
//! Between monitors of this kind only; each travels as the front of a message of type [`TYPE`].

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use denc::{Denc, Error, Reader, Writer};
use quorum::{Base, Envelope, MemberId};
use types::bufferlist::BufferList;
use types::message::MsgHeader;
use types::{AddrVec, AuthEntityName, EntityAddr, EntityName, RawMessage};

use crate::event::Peer;
use crate::standing::Disk;

/// Message type: outside the range Ceph uses.
pub(crate) const TYPE: u16 = 0x4c4f;
/// Changes with the meaning of what follows; others are not understood.
const VERSION: u16 = 1;

/// See the module.
#[derive(Debug, Clone)]
pub(crate) enum PeerMessage {
    /// Who the sender is. First on each connection, then now and then.
    Hello { id: MemberId, name: String, metadata: BTreeMap<String, String> },
    /// Of the log itself.
    Log(Envelope),
    /// Give me the state from behind this key on.
    CopyGet { after: Bytes },
    /// A piece of it, as it is when everything up to `base` is applied.
    CopyPiece { after: Bytes, entries: Vec<(Bytes, Bytes)>, base: Base, last: bool },
    /// A request of one of the sender's clients, for the leader.
    Forward { seq: u64, session: u64, peer: Box<Peer>, message: RawMessage },
    /// That client is gone.
    Gone { session: u64 },
    /// An answer to the client of that session.
    Route { session: u64, message: RawMessage },
    /// That client's session is to be ended.
    Close { session: u64 },
    /// All that a request led to is committed.
    Done { seq: u64 },
    /// Numbers for clients are running out.
    WantIds,
    /// Numbers to give out.
    Ids { from: u64, to: u64 },
    /// The leader's view.
    View(View),
    /// What time is it there?
    TimePing { stamp: u64 },
    /// The answer: the wall clock in nanoseconds.
    TimePong { stamp: u64, wall: u64 },
    /// What the sender's store takes, and what is left of its file system.
    Disk(Disk),
    /// The monitor map has had an epoch in which the receiver is not a monitor any more.
    Removed { epoch: u32 },
    /// A client wants to read at the sender's: how far must the log be applied there?
    ReadAt { seq: u64 },
    /// So far, says a leader with a lease.
    At { seq: u64, index: u64 },
    /// The sender's operator has taken it out of the quorum: it says and hears nothing of the log
    /// until it is let in again.
    Left,
}

/// The quorum as the leader sees it.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct View {
    pub(crate) term: u64,
    pub(crate) quorum: BTreeSet<String>,
    /// Milliseconds since it is this one.
    pub(crate) age_ms: u64,
    /// Clocks: name, microseconds ahead, microseconds of latency.
    pub(crate) skews: BTreeMap<String, (i64, u64)>,
    pub(crate) rounds: u32,
}

fn put_message(w: &mut Writer, m: &RawMessage) {
    w.put(&m.header);
    w.blob(&m.front);
    w.blob(&m.middle);
    w.blob(&m.data.to_contiguous());
}

fn read_message(r: &mut Reader<'_>) -> Result<RawMessage, Error> {
    let header: MsgHeader = r.get()?;
    let (front, middle, data) = (r.blob()?, r.blob()?, r.blob()?);
    Ok(RawMessage { header, front, middle, data: BufferList::from(data) })
}

fn put_peer(w: &mut Writer, peer: &Peer) {
    w.put(&peer.name);
    w.put(&peer.auth_name);
    w.put(&peer.caps);
    w.u64(peer.global_id);
    w.put(&peer.addrs);
    w.put(&peer.socket_addr);
    w.u64(peer.features);
}

fn read_peer(r: &mut Reader<'_>) -> Result<Peer, Error> {
    Ok(Peer {
        name: r.get::<EntityName>()?,
        auth_name: r.get::<AuthEntityName>()?,
        caps: r.get()?,
        global_id: r.u64()?,
        addrs: r.get::<AddrVec>()?,
        socket_addr: r.get::<EntityAddr>()?,
        features: r.u64()?,
        // Tickets are renewed by the monitor that has the client.
        handshake: None,
    })
}

impl Denc for View {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.term);
        w.put(&self.quorum);
        w.u64(self.age_ms);
        w.count(self.skews.len());
        for (name, (skew, latency)) in &self.skews {
            w.put(name);
            w.i64(*skew);
            w.u64(*latency);
        }
        w.u32(self.rounds);
    }
    fn decode(r: &mut Reader<'_>) -> Result<View, Error> {
        let (term, quorum, age_ms) = (r.u64()?, r.get()?, r.u64()?);
        let mut skews = BTreeMap::new();
        for _ in 0..r.count(20)? {
            skews.insert(r.get()?, (r.i64()?, r.u64()?));
        }
        Ok(View { term, quorum, age_ms, skews, rounds: r.u32()? })
    }
}

impl Denc for PeerMessage {
    fn encode(&self, w: &mut Writer) {
        match self {
            PeerMessage::Hello { id, name, metadata } => {
                w.u8(1);
                w.put(id);
                w.put(name);
                w.put(metadata);
            }
            PeerMessage::Log(envelope) => {
                w.u8(2);
                w.put(envelope);
            }
            PeerMessage::CopyGet { after } => {
                w.u8(3);
                w.blob(after);
            }
            PeerMessage::CopyPiece { after, entries, base, last } => {
                w.u8(4);
                w.blob(after);
                w.count(entries.len());
                for (key, value) in entries {
                    w.blob(key);
                    w.blob(value);
                }
                w.put(base);
                w.bool(*last);
            }
            PeerMessage::Forward { seq, session, peer, message } => {
                w.u8(5);
                w.u64(*seq);
                w.u64(*session);
                put_peer(w, peer);
                put_message(w, message);
            }
            PeerMessage::Gone { session } => {
                w.u8(6);
                w.u64(*session);
            }
            PeerMessage::Route { session, message } => {
                w.u8(7);
                w.u64(*session);
                put_message(w, message);
            }
            PeerMessage::Close { session } => {
                w.u8(8);
                w.u64(*session);
            }
            PeerMessage::Done { seq } => {
                w.u8(9);
                w.u64(*seq);
            }
            PeerMessage::WantIds => w.u8(10),
            PeerMessage::Ids { from, to } => {
                w.u8(11);
                w.u64(*from);
                w.u64(*to);
            }
            PeerMessage::View(view) => {
                w.u8(12);
                w.put(view);
            }
            PeerMessage::TimePing { stamp } => {
                w.u8(13);
                w.u64(*stamp);
            }
            PeerMessage::TimePong { stamp, wall } => {
                w.u8(14);
                w.u64(*stamp);
                w.u64(*wall);
            }
            PeerMessage::ReadAt { seq } => {
                w.u8(15);
                w.u64(*seq);
            }
            PeerMessage::At { seq, index } => {
                w.u8(16);
                w.u64(*seq);
                w.u64(*index);
            }
            PeerMessage::Left => w.u8(17),
            PeerMessage::Removed { epoch } => {
                w.u8(19);
                w.u32(*epoch);
            }
            PeerMessage::Disk(disk) => {
                w.u8(18);
                w.u64(disk.avail_percent);
                w.u64(disk.stored_bytes);
            }
        }
    }
    fn decode(r: &mut Reader<'_>) -> Result<PeerMessage, Error> {
        Ok(match r.u8()? {
            1 => PeerMessage::Hello { id: r.get()?, name: r.get()?, metadata: r.get()? },
            2 => PeerMessage::Log(r.get()?),
            3 => PeerMessage::CopyGet { after: r.blob()? },
            4 => {
                let after = r.blob()?;
                let mut entries = Vec::new();
                for _ in 0..r.count(8)? {
                    entries.push((r.blob()?, r.blob()?));
                }
                PeerMessage::CopyPiece { after, entries, base: r.get()?, last: r.bool()? }
            }
            5 => PeerMessage::Forward {
                seq: r.u64()?,
                session: r.u64()?,
                peer: Box::new(read_peer(r)?),
                message: read_message(r)?,
            },
            6 => PeerMessage::Gone { session: r.u64()? },
            7 => PeerMessage::Route { session: r.u64()?, message: read_message(r)? },
            8 => PeerMessage::Close { session: r.u64()? },
            9 => PeerMessage::Done { seq: r.u64()? },
            10 => PeerMessage::WantIds,
            11 => PeerMessage::Ids { from: r.u64()?, to: r.u64()? },
            12 => PeerMessage::View(r.get()?),
            13 => PeerMessage::TimePing { stamp: r.u64()? },
            14 => PeerMessage::TimePong { stamp: r.u64()?, wall: r.u64()? },
            15 => PeerMessage::ReadAt { seq: r.u64()? },
            16 => PeerMessage::At { seq: r.u64()?, index: r.u64()? },
            17 => PeerMessage::Left,
            19 => PeerMessage::Removed { epoch: r.u32()? },
            18 => PeerMessage::Disk(Disk { avail_percent: r.u64()?, stored_bytes: r.u64()? }),
            tag => {
                return Err(Error::Invalid { what: "monitors' message", value: tag.into() });
            }
        })
    }
}

impl PeerMessage {
    /// As the messenger carries it.
    pub(crate) fn wire(&self) -> RawMessage {
        RawMessage {
            header: MsgHeader {
                kind: TYPE,
                priority: types::message::PRIORITY_HIGH,
                version: VERSION,
                compat_version: VERSION,
                ..MsgHeader::default()
            },
            front: self.to_bytes(),
            ..RawMessage::default()
        }
    }

    /// From the messenger.
    pub(crate) fn read(raw: &RawMessage) -> Result<PeerMessage, Error> {
        if raw.header.version != VERSION {
            return Err(Error::Invalid {
                what: "version of the monitors' message",
                value: raw.header.version.into(),
            });
        }
        PeerMessage::from_bytes_exact(&raw.front)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_survives_and_no_cut_one_panics() {
        let peer = Peer {
            name: EntityName::mon(0),
            auth_name: AuthEntityName::new(types::entity::CLIENT, "admin"),
            caps: auth::AuthCapsInfo::from_text("allow *"),
            global_id: 4100,
            addrs: AddrVec::default(),
            socket_addr: EntityAddr::default(),
            features: u64::MAX,
            handshake: None,
        };
        let message = RawMessage { front: Bytes::from_static(b"front"), ..RawMessage::default() };
        let view = View { term: 3, quorum: ["a".to_owned()].into(), ..View::default() };
        let all = [
            PeerMessage::Hello { id: MemberId(7), name: "a".into(), metadata: BTreeMap::new() },
            PeerMessage::CopyGet { after: Bytes::from_static(b"k") },
            PeerMessage::CopyPiece {
                after: Bytes::new(),
                entries: vec![(Bytes::from_static(b"k"), Bytes::from_static(b"v"))],
                base: Base::default(),
                last: true,
            },
            PeerMessage::Forward {
                seq: 1,
                session: 2,
                peer: Box::new(peer),
                message: message.clone(),
            },
            PeerMessage::Gone { session: 2 },
            PeerMessage::Route { session: 2, message },
            PeerMessage::Close { session: 2 },
            PeerMessage::Done { seq: 1 },
            PeerMessage::WantIds,
            PeerMessage::Ids { from: 1, to: 2 },
            PeerMessage::View(view),
            PeerMessage::TimePing { stamp: 1 },
            PeerMessage::TimePong { stamp: 1, wall: 2 },
            PeerMessage::ReadAt { seq: 1 },
            PeerMessage::At { seq: 1, index: 2 },
            PeerMessage::Left,
            PeerMessage::Disk(Disk { avail_percent: 30, stored_bytes: 1 << 20 }),
            PeerMessage::Removed { epoch: 7 },
        ];
        for one in all {
            let raw = one.wire();
            let again = PeerMessage::read(&raw).unwrap();
            assert_eq!(again.to_bytes(), raw.front, "{one:?}");
            for end in 0..raw.front.len() {
                let cut = RawMessage { front: raw.front.slice(..end), ..raw.clone() };
                assert!(PeerMessage::read(&cut).is_err(), "{one:?} cut at {end}");
            }
        }
    }
}
