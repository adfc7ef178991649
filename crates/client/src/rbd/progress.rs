//! How far something long has come, told to who asked for it; the answer says whether to go on.

use std::cell::Cell;

use futures_util::{StreamExt, stream};
use types::Errno;

use crate::ClientError;

/// Told after each step with (done, all); false ends the work with ECANCELED, leaving what has
/// been done.
pub type OnProgress<'a> = &'a dyn Fn(u64, u64) -> bool;

/// Counts steps that may end in any order.
pub(crate) struct Progress<'a> {
    tell: OnProgress<'a>,
    done: Cell<u64>,
    all: u64,
}

/// For work that nobody watches.
pub(crate) fn unwatched(_: u64, _: u64) -> bool {
    true
}

impl<'a> Progress<'a> {
    pub(crate) fn new(tell: OnProgress<'a>, all: u64) -> Progress<'a> {
        Progress { tell, done: Cell::new(0), all }
    }

    /// One more is done.
    pub(crate) fn step(&self) -> Result<(), ClientError> {
        self.done.set(self.done.get() + 1);
        if (self.tell)(self.done.get(), self.all) { Ok(()) } else { Err(Errno::ECANCELED.into()) }
    }
}

/// Does many things, some at a time, with `step` after each. After an error nothing more begins, and it is told when
/// nothing is under way any more: an operation that was dropped might still be sent, when the lock is another's long
/// since.
pub(crate) async fn many<F>(
    all: impl Iterator<Item = F>,
    at_a_time: usize,
    mut step: impl FnMut() -> Result<(), ClientError>,
) -> Result<(), ClientError>
where
    F: Future<Output = Result<(), ClientError>>,
{
    let stopping = Cell::new(false);
    let wanted = all.take_while(|_| !stopping.get());
    let mut running = stream::iter(wanted).buffer_unordered(at_a_time);
    let mut outcome = Ok(());
    while let Some(result) = running.next().await {
        if let Err(error) = result.and_then(|()| step()) {
            stopping.set(true);
            outcome = outcome.and(Err(error));
        }
    }
    outcome
}

#[cfg(test)]
mod tests {
    use env::sync::Notify;
    use futures_util::FutureExt;

    use super::*;

    /// Objects that were being removed, zeroed or copied when one of them failed were dropped, and what had been sent for
    /// them could be sent again after the lock was another's.
    #[test]
    fn what_has_begun_ends() {
        let (begun, ended, may_end) = (Cell::new(0), Cell::new(0), Notify::default());
        let one = |n: u32| {
            let (begun, ended, may_end) = (&begun, &ended, &may_end);
            async move {
                begun.set(begun.get() + 1);
                if n == 1 {
                    return Err(Errno::EIO.into());
                }
                may_end.notified().await;
                ended.set(ended.get() + 1);
                Ok(())
            }
        };
        let mut all = Box::pin(many((0..9).map(one), 3, || Ok(())));
        assert!((&mut all).now_or_never().is_none());
        assert_eq!((begun.get(), ended.get()), (3, 0));
        may_end.notify_all();
        let outcome = (&mut all).now_or_never();
        drop(all);
        assert_eq!((begun.get(), ended.get()), (3, 2), "{outcome:?}");
        assert!(matches!(outcome, Some(Err(ClientError::Errno(Errno::EIO)))), "{outcome:?}");
    }
}
