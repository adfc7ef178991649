//! Watches and notifies: what stays registered at an object's OSD through every change of the map
//! (`src/osdc/Objecter.cc` LingerOp, `src/osd/Watch.cc` at v16.2).
//!
//! ```text
//! watch:   WATCH -> [ping every 5 s] --map or session changed, ping refused--> RECONNECT
//!             refused (the OSD has forgotten us, the object is gone) --> Lost, once
//! notify:  NOTIFY -> reply with an id -> COMPLETE with everybody's answers
//! ```
//!
//! Between two OSDs nothing is lost: the new one holds notifies back until the watchers it knows
//! of have come back or their time is over.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use bstr::BString;
use bytes::Bytes;
use env::sync::Notify;
use messages::{MWatchNotify, NotifyOpcode};
use types::osd::ops::{self, NotifyArgs, OsdOp, WatchArgs, message_flags, watch_op};
use types::snap::NOSNAP;
use types::{Errno, OsdId, SnapContext};

use crate::objecter::{Objecter, Request};
use crate::operation::Operation;
use crate::target::{Base, Target, calc_target};
use crate::{ClientError, IoCtx};

/// Between two pings (`objecter_tick_interval`).
const PING_EVERY: Duration = Duration::from_secs(5);
/// Watches and notifies of one client at a time; more are refused with EAGAIN.
const LINGERS_MAX: usize = 65536;
/// How long a notify's answers may be late before it is given up.
const NOTIFY_GRACE: Duration = Duration::from_secs(10);

/// What a watcher is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchEvent {
    /// Somebody notifies; [`Watch::ack`] lets the notifier go on.
    Notify {
        /// To be given to [`Watch::ack`].
        notify_id: u64,
        /// Global id of the notifying client.
        notifier: u64,
        /// What it says.
        payload: Bytes,
    },
    /// The watch has ended: notifies may have been missed, and none come any more.
    Lost(ClientError),
}

/// Called once for each event, in order; must not block.
pub type WatchHandler = Rc<dyn Fn(WatchEvent)>;

/// What came of a notify.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Notified {
    /// Answers by watcher: global id and cookie.
    pub acks: BTreeMap<(u64, u64), Bytes>,
    /// Watchers that did not answer in time.
    pub missed: Vec<(u64, u64)>,
}

/// Something registered at an OSD.
struct Linger {
    base: Base,
    /// Where it is registered.
    target: RefCell<Option<Target>>,
    /// The OSD may have forgotten it.
    disturbed: Notify,
    kind: Kind,
}

enum Kind {
    Watch(WatchHandler),
    Notify { complete: RefCell<Option<(i32, Bytes)>>, id: Cell<u64> },
}

/// All of a client's, by cookie. Bound: [`LINGERS_MAX`].
#[derive(Default)]
pub(crate) struct Lingers {
    by_cookie: RefCell<BTreeMap<u64, Rc<Linger>>>,
}

impl Lingers {
    /// A map came: what it moves is registered again; everything, if maps before it were `skipped`.
    pub(crate) fn on_map(&self, map: &maps::OsdMap, skipped: bool) {
        for linger in self.by_cookie.borrow().values() {
            let now = calc_target(map, &linger.base);
            let moved = match (&*linger.target.borrow(), &now) {
                (Some(old), Some(new)) => old.interval != new.interval || old.osd != new.osd,
                (old, new) => old.is_some() != new.is_some(),
            };
            if moved || skipped {
                *linger.target.borrow_mut() = now;
                linger.disturbed.notify_all();
            }
        }
    }

    /// The session with an OSD broke.
    pub(crate) fn on_reset(&self, osd: OsdId) {
        for linger in self.by_cookie.borrow().values() {
            if linger.target.borrow().as_ref().is_some_and(|t| t.osd == osd) {
                linger.disturbed.notify_all();
            }
        }
    }

    /// The client goes.
    pub(crate) fn clear(&self) {
        let all = std::mem::take(&mut *self.by_cookie.borrow_mut());
        for linger in all.values() {
            linger.disturbed.notify_all();
        }
    }

    /// An OSD tells a watcher or notifier something.
    pub(crate) fn on_message(&self, message: MWatchNotify) {
        let linger = self.by_cookie.borrow().get(&message.cookie).cloned();
        let Some(linger) = linger else { return };
        match (&linger.kind, message.opcode) {
            (Kind::Watch(handler), NotifyOpcode::Notify) => handler(WatchEvent::Notify {
                notify_id: message.notify_id,
                notifier: message.notifier_gid,
                payload: message.payload,
            }),
            (Kind::Watch(handler), NotifyOpcode::Disconnect) => {
                if self.by_cookie.borrow_mut().remove(&message.cookie).is_some() {
                    linger.disturbed.notify_all();
                    handler(WatchEvent::Lost(Errno::ENOTCONN.into()));
                }
            }
            (Kind::Notify { complete, id }, NotifyOpcode::Complete)
                if (id.get() == 0 || id.get() == message.notify_id) =>
            {
                *complete.borrow_mut() = Some((message.return_code, message.replies));
                linger.disturbed.notify_all();
            }
            _ => {}
        }
    }
}

/// A watch on an object; it ends with [`Watch::unwatch`] or when this is dropped.
pub struct Watch {
    io: IoCtx,
    object: BString,
    cookie: u64,
}

impl core::fmt::Debug for Watch {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Watch {} of {}", self.cookie, self.object)
    }
}

impl Watch {
    /// What the OSD knows it by, together with the client's global id.
    pub fn cookie(&self) -> u64 {
        self.cookie
    }

    /// Answers a notify.
    pub async fn ack(&self, notify_id: u64, reply: Bytes) -> Result<(), ClientError> {
        let mut w = denc::Writer::new();
        w.u64(notify_id);
        w.u64(self.cookie);
        w.blob(&reply);
        let args = NotifyArgs { cookie: self.cookie };
        let op = OsdOp::with(ops::NOTIFY_ACK, args, w.into_bytes());
        let base = self.io.base_of(self.object.clone(), message_flags::READ);
        let request = Request {
            base: Base { keeps_watch: true, ..base },
            ops: vec![op],
            snapid: NOSNAP,
            snapc: SnapContext::default(),
        };
        self.io.client().objecter().submit(request).await.map(drop)
    }

    /// Ends it at the OSD; from now on no event comes.
    pub async fn unwatch(&self) -> Result<(), ClientError> {
        if !self.forget() {
            return Ok(());
        }
        end(self.io.clone(), self.object.clone(), self.cookie).await
    }

    /// Ends a lost watch: the OSD may know it still, and notifies would wait for it.
    pub async fn abandon(&self) {
        self.forget();
        let _ = end(self.io.clone(), self.object.clone(), self.cookie).await;
    }

    fn forget(&self) -> bool {
        let gone = self.io.client().objecter().lingers.by_cookie.borrow_mut().remove(&self.cookie);
        if let Some(linger) = &gone {
            linger.disturbed.notify_all();
        }
        gone.is_some()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if self.forget() {
            let ended = end(self.io.clone(), self.object.clone(), self.cookie);
            self.io.client().env().clone().go(async move {
                let _ = ended.await;
            });
        }
    }
}

/// Tells the OSD that a watch ends. That takes no room.
async fn end(io: IoCtx, object: BString, cookie: u64) -> Result<(), ClientError> {
    let op = watch_op(cookie, watch_op::UNWATCH, 0);
    let io = io.with_flags(message_flags::FULL_TRY);
    io.operate(object, Operation::new().op(op)).await.map(drop)
}

fn watch_op(cookie: u64, op: u8, generation: u32) -> OsdOp {
    let args = WatchArgs { cookie, version: 0, op, generation, timeout: 0 };
    OsdOp::with(ops::WATCH, args, Bytes::new())
}

impl IoCtx {
    fn linger(
        &self,
        object: &BString,
        flags: u32,
        kind: Kind,
    ) -> Result<(u64, Rc<Linger>), ClientError> {
        let objecter = self.client().objecter();
        let base = self.base_of(object.clone(), flags);
        let target = RefCell::new(calc_target(&objecter.osdmaps.current(), &base));
        let linger = Rc::new(Linger { base, target, disturbed: Notify::default(), kind });
        let cookie = objecter.new_tid();
        let mut all = objecter.lingers.by_cookie.borrow_mut();
        if all.len() >= LINGERS_MAX {
            return Err(Errno::EAGAIN.into());
        }
        all.insert(cookie, linger.clone());
        Ok((cookie, linger))
    }

    /// Watches an object, which must exist.
    pub async fn watch(
        &self,
        object: impl Into<BString>,
        handler: WatchHandler,
    ) -> Result<Watch, ClientError> {
        let object = object.into();
        let kind = Kind::Watch(handler);
        let (cookie, linger) = self.linger(&object, message_flags::WRITE, kind)?;
        let objecter = self.client().objecter().clone();
        let watch = Watch { io: self.clone(), object, cookie };
        if let Err(error) = register(&objecter, &linger, cookie, watch_op::WATCH, 0).await {
            watch.forget();
            return Err(error);
        }
        let env = self.client().env().clone();
        env.go(keep(objecter, linger, cookie));
        Ok(watch)
    }

    /// Tells all watchers of an object, and waits until each has answered or `timeout` is over.
    pub async fn notify(
        &self,
        object: impl Into<BString>,
        payload: Bytes,
        timeout: Duration,
    ) -> Result<Notified, ClientError> {
        let object = object.into();
        let kind = Kind::Notify { complete: RefCell::default(), id: Cell::new(0) };
        let (cookie, linger) = self.linger(&object, message_flags::READ, kind)?;
        let objecter = self.client().objecter().clone();
        let patience = timeout + NOTIFY_GRACE;
        let told = notify_until_complete(&objecter, &linger, cookie, &payload, timeout);
        let outcome = self.client().env().timeout(patience, told).await;
        objecter.lingers.by_cookie.borrow_mut().remove(&cookie);
        if let Ok(Ok(notified)) = &outcome {
            for (gid, cookie) in &notified.missed {
                tracing::debug!("client.{gid} with watch {cookie} of {object} did not answer");
            }
        }
        outcome.unwrap_or(Err(Errno::ETIMEDOUT.into()))
    }
}

async fn notify_until_complete(
    objecter: &Rc<Objecter>,
    linger: &Rc<Linger>,
    cookie: u64,
    payload: &Bytes,
    timeout: Duration,
) -> Result<Notified, ClientError> {
    let Kind::Notify { complete, id } = &linger.kind else { unreachable!("made by notify") };
    let mut w = denc::Writer::new();
    w.u32(1); // version of the protocol
    w.u32(u32::try_from(timeout.as_secs()).unwrap_or(u32::MAX));
    w.blob(payload);
    let op = OsdOp::with(ops::NOTIFY, NotifyArgs { cookie }, w.into_bytes());
    loop {
        id.set(0);
        let disturbed = linger.disturbed.notified();
        let request = Request {
            base: linger.base.clone(),
            ops: vec![op.clone()],
            snapid: NOSNAP,
            snapc: SnapContext::default(),
        };
        let reply = objecter.submit(request).await?.output(0)?;
        if reply.len() >= 8 {
            id.set(denc::Reader::new(&reply).u64()?);
        }
        if complete.borrow().is_none() {
            disturbed.await;
        }
        if objecter.stopped.get() {
            return Err(ClientError::Closed);
        }
        let complete = complete.borrow_mut().take();
        if let Some((result, replies)) = complete {
            return decode_replies(result, &replies);
        }
    }
}

fn decode_replies(result: i32, replies: &Bytes) -> Result<Notified, ClientError> {
    match Errno::from_result(result) {
        // Some did not answer: told in `missed`.
        Some(Errno::ETIMEDOUT) | None => {}
        Some(errno) => return Err(errno.into()),
    }
    if replies.is_empty() {
        return Ok(Notified::default());
    }
    let mut r = denc::Reader::new(replies);
    Ok(Notified { acks: r.get()?, missed: r.get()? })
}

async fn register(
    objecter: &Rc<Objecter>,
    linger: &Linger,
    cookie: u64,
    op: u8,
    generation: u32,
) -> Result<(), ClientError> {
    let keeps_watch = matches!(op, watch_op::PING | watch_op::RECONNECT);
    // It takes no room.
    let flags = linger.base.flags | message_flags::FULL_TRY;
    let request = Request {
        base: Base { keeps_watch, flags, ..linger.base.clone() },
        ops: vec![watch_op(cookie, op, generation)],
        snapid: NOSNAP,
        snapc: SnapContext::default(),
    };
    objecter.submit(request).await.map(drop)
}

/// Pings and reconnects until the watch ends.
async fn keep(objecter: Rc<Objecter>, linger: Rc<Linger>, cookie: u64) {
    let lives =
        || !objecter.stopped.get() && objecter.lingers.by_cookie.borrow().contains_key(&cookie);
    let mut generation = 0;
    let mut reconnect = false;
    while lives() {
        let disturbed = linger.disturbed.notified();
        let result = if reconnect {
            generation += 1;
            register(&objecter, &linger, cookie, watch_op::RECONNECT, generation).await
        } else {
            register(&objecter, &linger, cookie, watch_op::PING, generation).await
        };
        match result {
            Ok(()) => {
                reconnect = objecter.env.timeout(PING_EVERY, disturbed).await.is_ok();
            }
            Err(ClientError::Errno(Errno::ENOTCONN)) if !reconnect => reconnect = true,
            Err(error) => {
                let ours = objecter.lingers.by_cookie.borrow_mut().remove(&cookie).is_some();
                if let (true, Kind::Watch(handler)) = (ours, &linger.kind) {
                    handler(WatchEvent::Lost(error));
                }
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    /// Between two maps that looked alike the PG had been elsewhere, and the client had not got the maps that say so: the OSD
    /// had forgotten the watch, and the client did not tell it again.
    #[test]
    fn skipped_maps_disturb_every_watch() {
        let lingers = Lingers::default();
        let base = Base {
            object: "o".into(),
            locator: types::ObjectLocator::pool(1),
            flags: message_flags::WRITE,
            copy: 0,
            keeps_watch: false,
        };
        let kind = Kind::Watch(Rc::new(|_| {}));
        let linger = Rc::new(Linger {
            base,
            target: RefCell::default(),
            disturbed: Notify::default(),
            kind,
        });
        lingers.by_cookie.borrow_mut().insert(1, linger.clone());
        for skipped in [false, true] {
            let disturbed = linger.disturbed.notified();
            lingers.on_map(&maps::OsdMap::default(), skipped);
            assert_eq!(disturbed.now_or_never().is_some(), skipped);
        }
    }
}
