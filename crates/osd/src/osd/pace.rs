//! How much of recovery is on its way at a time: all that osd_recovery_max_active allows while clients
//! want nothing of this OSD, little beside them.
//!
//! ```text
//! client's write -> primary -> MOSDRepOp, behind the push that is being sent -> replica
//!                                                                -> flush, with the pushes before it
//! ```
//!
//! What is on its way is what a client's write waits for: at the socket, in the thread of who gets it,
//! and in the flush that both share. Ten objects of 4 MiB make that hundreds of milliseconds; one or two
//! pieces keep the devices of both ends almost as busy.

use std::cell::Cell;
use std::time::Duration;

use env::Env;
use env::sync::{Permit, Semaphore};

/// Clients are beside us until they have wanted nothing for so long.
const IDLE: Duration = Duration::from_secs(1);
/// Bytes of a piece beside clients.
const PIECE_BESIDE: u64 = 512 << 10;
/// Bytes on their way beside clients.
const BYTES_BESIDE: u64 = 1 << 20;
/// Bytes on their way while nobody wants anything.
const BYTES_ALONE: u64 = 256 << 20;
/// What an object counts at least: for its transaction and its messages.
const COST_MIN: u64 = 64 << 10;

/// See the module.
pub struct Pace {
    env: Env,
    /// When a client's operation came last, here or to a primary that we follow.
    last_client: Cell<Option<Duration>>,
    /// Bound: who waits has one of osd_recovery_max_active places.
    bytes: Semaphore,
}

impl Pace {
    /// Nothing is on its way.
    pub fn new(env: Env) -> Pace {
        Pace { env, last_client: Cell::new(None), bytes: Semaphore::new(BYTES_ALONE) }
    }

    /// A client wants something.
    pub fn note_client(&self) {
        self.last_client.set(Some(self.env.recent()));
    }

    /// Whether clients want something these days.
    pub fn beside_clients(&self) -> bool {
        self.last_client.get().is_some_and(|last| self.env.now() < last + IDLE)
    }

    /// Bytes of a push, of those that osd_recovery_max_chunk allows.
    pub fn piece(&self, most: u64) -> u64 {
        if self.beside_clients() { most.min(PIECE_BESIDE) } else { most }
    }

    /// A place for an object of which so many bytes are to be moved. It goes piece by piece, so it
    /// counts for one.
    pub async fn place(&self, bytes: u64) -> Permit {
        let beside = self.beside_clients();
        self.bytes.set_total(if beside { BYTES_BESIDE } else { BYTES_ALONE });
        let piece = if beside { PIECE_BESIDE } else { BYTES_ALONE };
        self.bytes.acquire(bytes.clamp(COST_MIN, piece)).await
    }
}

impl std::fmt::Debug for Pace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pace({} bytes free)", self.bytes.free())
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// How many objects of so many bytes get a place at once.
    fn at_once(pace: &Pace, bytes: u64) -> usize {
        let mut context = Context::from_waker(Waker::noop());
        let mut held = Vec::new();
        while held.len() < 100 {
            let mut place = Box::pin(pace.place(bytes));
            match place.as_mut().poll(&mut context) {
                Poll::Ready(permit) => held.push(permit),
                Poll::Pending => break,
            }
        }
        held.len()
    }

    /// Ten pushes of 4 MiB were on their way before a client's write of 4 KiB, of which the slowest
    /// 1 % took 0.3 s.
    #[test]
    fn beside_clients_little_is_on_its_way() {
        let world = sim::World::new(1);
        let env = world.node("osd.0");
        world.run_until(async move {
            let pace = Pace::new(env.clone());
            assert!(at_once(&pace, 4 << 20) > 50);
            assert_eq!(pace.piece(8 << 20), 8 << 20);
            pace.note_client();
            assert_eq!(at_once(&pace, 4 << 20), 2);
            assert_eq!(at_once(&pace, 100), 16);
            assert_eq!(pace.piece(8 << 20), PIECE_BESIDE);
            assert_eq!(pace.piece(64 << 10), 64 << 10);
            env.sleep(IDLE).await;
            assert!(at_once(&pace, 4 << 20) > 50);
        });
    }
}
