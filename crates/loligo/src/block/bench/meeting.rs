//! Where the jobs of a load wait for each other: a figure of all is of the time in which all are at work.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use env::Env;

/// How often who waits looks.
const PAUSE: Duration = Duration::from_millis(1);

/// A place where jobs in threads of their own meet once.
pub(super) struct Meeting {
    /// Members that have not come yet.
    away: AtomicU64,
}

/// A job's part in it. One that is dropped is not waited for.
pub(super) struct Member(Arc<Meeting>);

impl Meeting {
    /// For so many members, each of which is to be taken.
    pub(super) fn of(members: u64) -> Arc<Meeting> {
        Arc::new(Meeting { away: AtomicU64::new(members) })
    }

    pub(super) fn member(self: &Arc<Meeting>) -> Member {
        Member(self.clone())
    }
}

impl Member {
    /// Comes, and waits for all others, unless told to end.
    pub(super) async fn all(self, env: &Env, told: &Cell<bool>) {
        let meeting = self.0.clone();
        drop(self);
        while meeting.away.load(Ordering::Acquire) > 0 && !told.get() {
            env.sleep(PAUSE).await;
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.0.away.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Jobs that prepared faster measured while the others did not, and the sum of all was taken for what was done at once.
    #[test]
    fn nobody_begins_before_all_have_come() {
        let meeting = Meeting::of(3);
        let late = meeting.member();
        let waits = |member: Member| {
            std::thread::spawn(move || {
                env::real::Runtime::new()
                    .unwrap()
                    .block_on(|env: Env| async move { member.all(&env, &Cell::new(false)).await });
            })
        };
        let (first, gone) = (waits(meeting.member()), meeting.member());
        drop(gone);
        std::thread::sleep(20 * PAUSE);
        assert!(!first.is_finished());
        waits(late).join().unwrap();
        first.join().unwrap();
    }
}
