//! A member that copies the state, beside its leader.

use std::time::Duration;

use bytes::Bytes;
use quorum::{Base, Envelope, HardState, MemberId, Members, Raft, Start, Timing};

const LEADER: MemberId = MemberId(1);
const JOINER: MemberId = MemberId(2);

fn member(id: MemberId, base: Base) -> Raft {
    let start = Start {
        id,
        hard: HardState::default(),
        applied: base.index,
        base,
        entries: Vec::new(),
        entries_max: Some(4),
        seed: 1,
    };
    Raft::new(start, Timing::default(), Duration::ZERO)
}

/// Stores and applies all there is; gives what is to be sent, and whether the state is to be copied.
fn settle(raft: &mut Raft, now: Duration) -> (Vec<Envelope>, bool) {
    let (mut messages, mut copies) = (Vec::new(), false);
    loop {
        let ready = raft.take_ready();
        let nothing = ready.is_empty();
        copies |= ready.sync_from.is_some();
        messages.extend(ready.early);
        messages.extend(ready.after);
        raft.persisted();
        let committed = raft.take_committed();
        if nothing && committed.is_empty() {
            return (messages, copies);
        }
        for entry in committed {
            raft.applied_to(now, entry.index);
        }
    }
}

/// Lets the leader give a sign of life and both talk until all is said. Whether the joiner wants to
/// copy the state.
fn beat(leader: &mut Raft, joiner: &mut Raft, now: &mut Duration) -> bool {
    *now += Timing::default().beat;
    leader.note_time(*now);
    leader.replicate(*now);
    let (mut on_way, _) = settle(leader, *now);
    let (mut copies, mut turns) = (false, 0);
    while !on_way.is_empty() {
        turns += 1;
        assert!(turns < 100, "they do not come to an end");
        for message in on_way {
            match message.to {
                LEADER => leader.receive(*now, message),
                _ => joiner.receive(*now, message),
            }
        }
        on_way = settle(leader, *now).0;
        let (said, wants) = settle(joiner, *now);
        on_way.extend(said);
        copies |= wants;
    }
    copies
}

/// A leader alone, and one that has nothing yet.
fn leader_and_joiner(now: Duration) -> (Raft, Raft) {
    let base = Base { index: 1, term: 0, members: Members::sole(LEADER, "a") };
    let (mut leader, mut joiner) = (member(LEADER, base), member(JOINER, Base::default()));
    joiner.set_whole(false);
    leader.note_time(now);
    settle(&mut leader, now);
    (leader, joiner)
}

fn let_in(leader: &mut Raft) {
    let mut members = leader.members().clone();
    members.set(JOINER, "b", false);
    leader.change_members(members).unwrap();
}

/// Every copy of the state was followed by another (short life 6271): the leader learns of the
/// first one's end from the answer to what it says next, and that was, once more, that the member
/// lacks what the log does not hold any more.
#[test]
fn a_copy_is_not_followed_by_another() {
    let mut now = Duration::from_secs(10);
    let (mut leader, mut joiner) = leader_and_joiner(now);
    assert!(leader.is_leader());
    for _ in 0..10 {
        leader.propose(Bytes::new());
        settle(&mut leader, now);
    }
    let_in(&mut leader);

    assert!((0..3).any(|_| beat(&mut leader, &mut joiner, &mut now)));
    let copied = leader.applied_base().unwrap();
    leader.propose(Bytes::new());
    assert!(beat(&mut leader, &mut joiner, &mut now), "as long as nothing came");
    joiner.install(copied).unwrap();
    joiner.set_whole(true);
    for _ in 0..3 {
        assert!(!beat(&mut leader, &mut joiner, &mut now), "a second copy");
    }
    assert_eq!(joiner.applied(), leader.applied());

    // One that lacks something even so is told again, and asks.
    let goes_on = |leader: &mut Raft, now: Duration| {
        for _ in 0..10 {
            leader.propose(Bytes::new());
            settle(leader, now);
        }
    };
    goes_on(&mut leader, now);
    assert!((0..3).any(|_| beat(&mut leader, &mut joiner, &mut now)));
    joiner.install(leader.applied_base().unwrap()).unwrap();
    goes_on(&mut leader, now);
    assert!((0..3).any(|_| beat(&mut leader, &mut joiner, &mut now)));
}

/// A member whose store was an older copy had less than it had acknowledged: it was sent what follows on that,
/// refused it, and was sent it again at once, for ever.
#[test]
fn an_older_copy_of_a_store_is_brought_forward() {
    let mut now = Duration::from_secs(10);
    let (mut leader, mut joiner) = leader_and_joiner(now);
    let_in(&mut leader);
    assert!((0..3).any(|_| beat(&mut leader, &mut joiner, &mut now)));
    let older = leader.applied_base().unwrap();
    joiner.install(older.clone()).unwrap();
    joiner.set_whole(true);
    for _ in 0..3 {
        leader.propose(Bytes::new());
        beat(&mut leader, &mut joiner, &mut now);
    }
    beat(&mut leader, &mut joiner, &mut now);
    assert_eq!(joiner.applied(), leader.applied());

    let mut joiner = member(JOINER, older);
    leader.propose(Bytes::new());
    for _ in 0..3 {
        beat(&mut leader, &mut joiner, &mut now);
    }
    assert_eq!(joiner.applied(), leader.applied());
}
