//! What an MDS does (`src/include/ceph_fs.h` and `MDSMap::state_transition_valid` at v16.2).

/// A state by Ceph's number: below zero without a rank, from [`MdsState::REPLAY`] to
/// [`MdsState::ACTIVE`] the way of an MDS that takes over a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct MdsState(pub i32);

impl MdsState {
    /// It ends.
    pub const DNE: MdsState = MdsState(0);
    /// It has given its rank up.
    pub const STOPPED: MdsState = MdsState(-1);
    /// It has begun.
    pub const BOOT: MdsState = MdsState(-4);
    /// It waits.
    pub const STANDBY: MdsState = MdsState(-5);
    /// It makes what a new rank needs.
    pub const CREATING: MdsState = MdsState(-6);
    /// It takes a rank that was stopped.
    pub const STARTING: MdsState = MdsState(-7);
    /// It follows the journal of one that is active.
    pub const STANDBY_REPLAY: MdsState = MdsState(-8);
    /// It reads the journal of the rank it takes over.
    pub const REPLAY: MdsState = MdsState(8);
    /// It settles with other ranks what they did together.
    pub const RESOLVE: MdsState = MdsState(9);
    /// It waits for clients.
    pub const RECONNECT: MdsState = MdsState(10);
    /// It takes part again.
    pub const REJOIN: MdsState = MdsState(11);
    /// It does what clients ask for again.
    pub const CLIENTREPLAY: MdsState = MdsState(12);
    /// It serves.
    pub const ACTIVE: MdsState = MdsState(13);
    /// It hands its rank's directories to others.
    pub const STOPPING: MdsState = MdsState(14);
    /// It cannot go on: the rank's metadata are damaged.
    pub const DAMAGED: MdsState = MdsState(15);

    /// Ceph's name.
    pub fn name(self) -> &'static str {
        match self {
            MdsState::DNE => "down:dne",
            MdsState::STOPPED => "down:stopped",
            MdsState::DAMAGED => "down:damaged",
            MdsState::BOOT => "up:boot",
            MdsState::STANDBY => "up:standby",
            MdsState::STANDBY_REPLAY => "up:standby-replay",
            MdsState::CREATING => "up:creating",
            MdsState::STARTING => "up:starting",
            MdsState::REPLAY => "up:replay",
            MdsState::RESOLVE => "up:resolve",
            MdsState::RECONNECT => "up:reconnect",
            MdsState::REJOIN => "up:rejoin",
            MdsState::CLIENTREPLAY => "up:clientreplay",
            MdsState::ACTIVE => "up:active",
            MdsState::STOPPING => "up:stopping",
            _ => "???",
        }
    }

    /// Whether it takes over a rank and does not serve yet.
    pub fn is_degraded(self) -> bool {
        (MdsState::REPLAY..=MdsState::CLIENTREPLAY).contains(&self)
    }

    /// Whether an MDS with a rank may say that it is in another state now.
    pub fn may_become(self, next: MdsState) -> bool {
        if next == self || next == MdsState::DAMAGED {
            return true;
        }
        match self {
            MdsState::CREATING | MdsState::STARTING => next == MdsState::ACTIVE,
            MdsState::STANDBY_REPLAY => next == MdsState::REPLAY,
            MdsState::REPLAY => matches!(next, MdsState::RESOLVE | MdsState::RECONNECT),
            MdsState::REJOIN if matches!(next, MdsState::ACTIVE | MdsState::STOPPED) => true,
            MdsState::RESOLVE | MdsState::RECONNECT | MdsState::REJOIN | MdsState::CLIENTREPLAY => {
                next.0 == self.0 + 1
            }
            MdsState::ACTIVE => next == MdsState::STOPPING,
            MdsState::STOPPING => next == MdsState::STOPPED,
            _ => false,
        }
    }
}
