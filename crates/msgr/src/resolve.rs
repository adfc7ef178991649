//! What a server does with an ident or a reconnect when it may know the peer already: decision
//! tables, pure (src/msg/async/ProtocolV2.cc at v16.2: handle_existing_connection,
//! handle_reconnect).

use types::addr::EntityAddr;

use crate::connection::Phase;
use crate::control::Reconnect;

/// The session there is with the peer's addresses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Existing {
    pub(crate) phase: Phase,
    pub(crate) lossy: bool,
    /// We never connect to it ourselves.
    pub(crate) server: bool,
    pub(crate) resetcheck: bool,
    pub(crate) client_cookie: u64,
    pub(crate) server_cookie: u64,
    pub(crate) connect_seq: u64,
    pub(crate) peer_global_seq: u64,
    /// The last of our messages that the peer has acknowledged.
    pub(crate) peer_in_seq: u64,
    /// The peer's v2 address and ours.
    pub(crate) peer: EntityAddr,
    pub(crate) own: EntityAddr,
}

/// What to do with a CLIENT_IDENT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnIdent {
    /// An attempt older than one already seen: close without a word.
    Stale,
    /// End the old session (its dispatcher is told), then begin a new one.
    Replace,
    /// The peer restarted: the old session's queues are dropped (and its dispatcher told, if
    /// `resetcheck`), then it goes on over the new socket.
    ResetAndTakeOver,
    /// The old session goes on over the new socket.
    TakeOver,
    /// Both connect at the same time and ours wins.
    Wait,
}

/// What to do with a SESSION_RECONNECT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnReconnect {
    /// From before messages that the peer has acknowledged: an attempt it has given up, late on its
    /// way. Close without a word.
    Stale,
    /// There is no such session.
    Reset { full: bool },
    /// The peer's connect_seq is behind.
    Retry(u64),
    /// The peer's global_seq is behind.
    RetryGlobal(u64),
    /// Both reconnect at the same time and ours wins.
    Wait,
    /// The session goes on over the new socket.
    TakeOver,
}

impl Existing {
    /// Whether the peer's attempt wins a race of two: the lower address connects.
    fn peer_wins(&self) -> bool {
        self.server || self.peer < self.own
    }

    /// Decides on a CLIENT_IDENT with this cookie and global_seq.
    pub(crate) fn on_ident(&self, client_cookie: u64, global_seq: u64) -> OnIdent {
        if self.peer_global_seq > global_seq {
            return OnIdent::Stale;
        }
        if self.lossy {
            return OnIdent::Replace;
        }
        let established = self.server_cookie != 0 && self.client_cookie != 0;
        if established && self.client_cookie != client_cookie {
            return OnIdent::ResetAndTakeOver;
        }
        if self.client_cookie == client_cookie {
            return OnIdent::TakeOver;
        }
        match self.phase {
            Phase::Ready | Phase::Standby => OnIdent::TakeOver,
            _ if self.peer_wins() => OnIdent::TakeOver,
            _ => OnIdent::Wait,
        }
    }

    /// Decides on a SESSION_RECONNECT.
    pub(crate) fn on_reconnect(&self, offer: &Reconnect) -> OnReconnect {
        if self.client_cookie != offer.client_cookie {
            return OnReconnect::Reset { full: self.resetcheck };
        }
        if self.server_cookie == 0 {
            return OnReconnect::Reset { full: false };
        }
        if self.peer_global_seq > offer.global_seq {
            return OnReconnect::RetryGlobal(self.peer_global_seq);
        }
        if self.connect_seq > offer.connect_seq {
            return OnReconnect::Retry(self.connect_seq);
        }
        if self.peer_in_seq > offer.msg_seq {
            return OnReconnect::Stale;
        }
        // Without an attempt of our own under way nobody would end the peer's waiting.
        let racing = self.phase == Phase::Connecting;
        if self.connect_seq == offer.connect_seq && racing && !self.peer_wins() {
            return OnReconnect::Wait;
        }
        OnReconnect::TakeOver
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn existing() -> Existing {
        Existing {
            phase: Phase::Ready,
            lossy: false,
            server: false,
            resetcheck: true,
            client_cookie: 11,
            server_cookie: 22,
            connect_seq: 5,
            peer_global_seq: 7,
            peer_in_seq: 0,
            peer: "v2:127.0.0.1:6800/1".parse().unwrap(),
            own: "v2:127.0.0.1:6900/1".parse().unwrap(),
        }
    }

    fn swapped(mut e: Existing) -> Existing {
        (e.peer, e.own) = (e.own, e.peer);
        e
    }

    #[test]
    fn idents() {
        let e = existing();
        assert_eq!(e.on_ident(11, 6), OnIdent::Stale);
        assert_eq!(e.on_ident(11, 7), OnIdent::TakeOver);
        assert_eq!(e.on_ident(12, 7), OnIdent::ResetAndTakeOver);
        assert_eq!(Existing { lossy: true, ..e }.on_ident(0, 9), OnIdent::Replace);
        let young = Existing { client_cookie: 9, server_cookie: 0, ..e };
        assert_eq!(young.on_ident(12, 8), OnIdent::TakeOver);
        let racing = Existing { phase: Phase::Connecting, ..young };
        assert_eq!(racing.on_ident(12, 8), OnIdent::TakeOver);
        assert_eq!(swapped(racing).on_ident(12, 8), OnIdent::Wait);
        assert_eq!(Existing { server: true, ..swapped(racing) }.on_ident(12, 8), OnIdent::TakeOver);
    }

    #[test]
    fn reconnects() {
        let e = existing();
        let offer = Reconnect {
            addrs: types::addr::AddrVec::of(e.peer),
            client_cookie: 11,
            server_cookie: 22,
            global_seq: 7,
            connect_seq: 6,
            msg_seq: 0,
        };
        let o = || offer.clone();
        assert_eq!(e.on_reconnect(&offer), OnReconnect::TakeOver);
        let other = Reconnect { client_cookie: 1, ..o() };
        assert_eq!(e.on_reconnect(&other), OnReconnect::Reset { full: true });
        let young = Existing { server_cookie: 0, ..e };
        assert_eq!(young.on_reconnect(&offer), OnReconnect::Reset { full: false });
        let late = Reconnect { global_seq: 6, ..o() };
        assert_eq!(e.on_reconnect(&late), OnReconnect::RetryGlobal(7));
        let behind = Reconnect { connect_seq: 4, ..o() };
        assert_eq!(e.on_reconnect(&behind), OnReconnect::Retry(5));
        let same = Reconnect { connect_seq: 5, ..o() };
        assert_eq!(e.on_reconnect(&same), OnReconnect::TakeOver);
        let racing = Existing { phase: Phase::Connecting, ..swapped(e) };
        assert_eq!(racing.on_reconnect(&same), OnReconnect::Wait);
    }

    /// Found by simulated lives whose connections broke many times a second (`resets`): placement
    /// groups stayed laggy for ever.
    ///
    /// 1. The peer reconnects; we go on over its socket, and take its connect_seq for ours.
    /// 2. The socket breaks before the peer has our answer. We have nothing to send: standby.
    /// 3. The peer asks again with the same connect_seq. That looked like a race of two attempts
    ///    which ours wins, as our address is the lower one: it was told to wait. There was no
    ///    attempt of ours, so it waited, asked, and was told to wait, and what it had to send
    ///    never left.
    #[test]
    fn a_peer_that_asks_again_does_not_wait_for_who_stands_by() {
        let e = swapped(existing());
        let offer = Reconnect {
            addrs: types::addr::AddrVec::of(e.peer),
            client_cookie: 11,
            server_cookie: 22,
            global_seq: 8,
            connect_seq: 5,
            msg_seq: 0,
        };
        for phase in [Phase::Standby, Phase::Ready, Phase::Waiting] {
            let e = Existing { phase, ..e };
            assert_eq!(e.on_reconnect(&offer), OnReconnect::TakeOver);
        }
    }

    /// Found by a simulated life (seed 4094): a replica never had a write of its primary, and had
    /// those behind it.
    ///
    /// 1. The peer asks to go on: it has had 40 of our messages. Its socket breaks with that under way.
    /// 2. We connect to it, and the session goes on: it has had, and acknowledged, 41 and 42.
    /// 3. What it asked at first arrives. Nothing told that it was old: our attempt had left its
    ///    global_seq as it was, and the connect_seq of both attempts is the same. The session went
    ///    over to the dead socket, and our next message was numbered 41 again: the peer took it for
    ///    the one it had had.
    #[test]
    fn what_the_peer_asked_before_it_acknowledged_more_is_old() {
        let offer = Reconnect {
            addrs: types::addr::AddrVec::of(existing().peer),
            client_cookie: 11,
            server_cookie: 22,
            global_seq: 8,
            connect_seq: 5,
            msg_seq: 40,
        };
        for e in [existing(), swapped(existing())] {
            let acked = |peer_in_seq| Existing { peer_in_seq, ..e }.on_reconnect(&offer);
            assert_eq!(acked(42), OnReconnect::Stale);
            assert_eq!(acked(40), OnReconnect::TakeOver);
        }
    }
}
