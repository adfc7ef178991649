//! What openers of an image tell each other by notifies on its header
//! (`src/librbd/WatchNotifyTypes.cc`, `src/librbd/ImageWatcher.cc` at v16.2).
//!
//! ```text
//! message: envelope(7,1) | u32 op | fields          answer: envelope(1,1) | i32 result, or nothing
//! 0 acquired, 1 released, 2 request the lock: u64 gid, u64 handle [, bool force]
//! 3 the header has changed         6.. do something that takes long (asked of the lock's owner)
//! ```
//! What takes long is not done for others: EOPNOTSUPP makes librbd ask for the lock and do it
//! itself.

use std::rc::{Rc, Weak};
use std::time::Duration;

use bytes::Bytes;
use denc::{Reader, Writer};
use types::Errno;

use super::image::Inner;
use crate::{ClientError, Notified, WatchEvent};

/// The lock has been taken.
pub(crate) const ACQUIRED_LOCK: u32 = 0;
/// The lock is free.
pub(crate) const RELEASED_LOCK: u32 = 1;
const REQUEST_LOCK: u32 = 2;
const HEADER_UPDATE: u32 = 3;
const ASYNC_PROGRESS: u32 = 4;
const ASYNC_COMPLETE: u32 = 5;

/// How long others get to answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// Before a lost watch is registered again.
const AGAIN: Duration = Duration::from_millis(500);

fn message(op: u32, fields: impl FnOnce(&mut Writer)) -> Bytes {
    let mut w = Writer::new();
    w.envelope(7, 1, |w| {
        w.u32(op);
        fields(w);
    });
    w.into_bytes()
}

/// What says that a header has changed.
pub(crate) fn header_update() -> Bytes {
    message(HEADER_UPDATE, |_| ())
}

fn response(result: i32) -> Bytes {
    let mut w = Writer::new();
    w.envelope(1, 1, |w| w.i32(result));
    w.into_bytes()
}

impl Inner {
    fn put_client_id(&self, w: &mut Writer) {
        let handle = self.watch.borrow().as_ref().map_or(0, |watch| watch.cookie());
        w.u64(self.io.client().global_id());
        w.u64(handle);
    }

    async fn tell(&self, message: Bytes) -> Result<Notified, ClientError> {
        self.io.notify(self.header_oid.clone(), message, PATIENCE).await
    }

    /// Tells all openers that the header has changed, and waits until they know.
    pub(crate) async fn header_changed(&self) -> Result<(), ClientError> {
        match self.tell(header_update()).await {
            // Nobody watches any more.
            Ok(_) | Err(ClientError::Errno(Errno::ENOENT | Errno::ETIMEDOUT)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Tells others of a step with the lock, without waiting for them.
pub(crate) fn announce(inner: &Rc<Inner>, op: u32) {
    let said = message(op, |w| inner.put_client_id(w));
    let of = inner.clone();
    inner.env.go(async move {
        let _ = of.tell(said).await;
    });
}

/// Asks the lock's owner to hand over; EROFS if it will not.
pub(crate) async fn request_lock(inner: &Inner) -> Result<(), ClientError> {
    let request = message(REQUEST_LOCK, |w| {
        inner.put_client_id(w);
        w.bool(false);
    });
    let notified = match inner.tell(request).await {
        Err(ClientError::Errno(Errno::ETIMEDOUT)) => return Ok(()),
        notified => notified?,
    };
    for ack in notified.acks.values().filter(|ack| !ack.is_empty()) {
        let result = Reader::new(ack).envelope("ResponseMessage", 1, 1, |r, _| r.i32())?;
        if let Some(errno @ Errno::EROFS) = Errno::from_result(result) {
            return Err(errno.into());
        }
    }
    Ok(())
}

/// Begins to watch the header. What was known of it may be old by then.
pub(crate) async fn register(inner: &Rc<Inner>) -> Result<(), ClientError> {
    let weak = Rc::downgrade(inner);
    let handler = Rc::new(move |event| on_event(&weak, event));
    let watch = inner.io.watch(inner.header_oid.clone(), handler).await?;
    *inner.watch.borrow_mut() = Some(Rc::new(watch));
    inner.outdate();
    Ok(())
}

/// The same for who only reads: it wants to hear of changes, but may lack the right to watch, and does not wait
/// while nothing may be written (`pausewr`).
pub(crate) async fn register_reader(inner: &Rc<Inner>) {
    let _ = inner.env.timeout(PATIENCE, register(inner)).await;
}

fn on_event(inner: &Weak<Inner>, event: WatchEvent) {
    let Some(inner) = inner.upgrade() else { return };
    let env = inner.env.clone();
    match event {
        WatchEvent::Notify { notify_id, payload, .. } => {
            let answer = answer_to(&inner, &payload);
            let watch = inner.watch.borrow().clone();
            env.go(async move {
                if let Some(watch) = watch {
                    let _ = watch.ack(notify_id, answer).await;
                }
            });
        }
        WatchEvent::Lost(error) => {
            tracing::info!("the watch of {} was lost: {error}", inner.name);
            env.go(async move { register_again(&inner).await });
        }
    }
}

async fn register_again(inner: &Rc<Inner>) {
    let old = inner.watch.borrow().clone();
    if let Some(old) = old {
        old.abandon().await;
    }
    while !inner.closed.get() {
        match register(inner).await {
            Ok(()) => return inner.follow_watch().await,
            // Removed, or we are blocklisted. That may end, but by then the image is another's.
            Err(ClientError::Errno(error @ (Errno::ENOENT | Errno::ESHUTDOWN))) => {
                tracing::warn!(
                    "{} cannot be watched any more ({error}): it must be opened again",
                    inner.name
                );
                return inner.fence_off().await;
            }
            Err(ClientError::Closed) => return,
            Err(_) => inner.env.sleep(AGAIN).await,
        }
    }
}

/// Acts on what was said; the answer.
fn answer_to(inner: &Rc<Inner>, payload: &Bytes) -> Bytes {
    let mut gid = 0;
    let op = Reader::new(payload).envelope("NotifyMessage", 7, 1, |r, _| {
        let op = r.u32()?;
        if op <= REQUEST_LOCK {
            gid = r.u64()?;
            let handle = r.u64()?;
            let own = inner.watch.borrow().as_ref().map(|w| w.cookie());
            if gid == inner.io.client().global_id() && own == Some(handle) {
                return Ok(u32::MAX);
            }
        }
        Ok(op)
    });
    match op {
        Ok(HEADER_UPDATE) => {
            // Answered at once, as librbd does: from here on all who come wait for the new view. Were it waited for
            // here, so would who notifies, which may be ourselves, with what reading needs in hand.
            inner.outdate();
            let inner = inner.clone();
            inner.env.clone().go(async move {
                let _ = inner.fresh_view().await;
            });
            Bytes::new()
        }
        Ok(RELEASED_LOCK) => {
            inner.lock.released.notify_all();
            Bytes::new()
        }
        Ok(REQUEST_LOCK) if inner.lock.is_owned() => {
            let owner = inner.clone();
            inner.env.go(async move {
                if let Err(error) = owner.hand_over().await {
                    tracing::warn!("the lock of {} cannot be released: {error}", owner.name);
                }
            });
            response(0)
        }
        Ok(ASYNC_COMPLETE | ASYNC_PROGRESS | ACQUIRED_LOCK | REQUEST_LOCK | u32::MAX) => {
            Bytes::new()
        }
        Ok(_) if inner.lock.is_owned() => {
            inner.lock.refused.set(Some(inner.env.now()));
            response(Errno::EOPNOTSUPP.result())
        }
        Ok(_) => Bytes::new(),
        Err(error) => {
            tracing::debug!("a notify on {} does not decode: {error}", inner.header_oid);
            Bytes::new()
        }
    }
}
