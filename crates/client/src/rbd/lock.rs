//! The exclusive lock: one writer at a time, which hands the image over when another asks
//! (`src/librbd/ManagedLock.cc`, `src/librbd/exclusive_lock/` at v16.2).
//!
//! ```text
//! unlocked --first write--> lock? --free--> owned --asked by another--> writes end -> unlocked
//!                             | held
//!                             +-- its watcher lives: ask it (REQUEST_LOCK), wait, again
//!                             +-- its watcher is gone: blocklist it, break the lock, again
//! ```
//! Owned is who has the lock and has replayed the image's journal, if it has one.
//!
//! The lock's cookie names its holder's watch. When that is made anew the lock gets the new cookie (`follow_watch`),
//! whatever change is under way: until then others take the holder for dead. So taking the lock, giving it back and
//! its new cookie take turns of their own by the `lock_turn` permit, which is taken after `changes`.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use cls::lock::{LockInfo, LockerId, LockerInfo};
use env::sync::Notify;
use futures_util::future::LocalBoxFuture;
use types::osd::ops::message_flags;
use types::snap::NOSNAP;
use types::{EntityName, Errno};

use super::header::{FLAG_FAST_DIFF_INVALID, FLAG_OBJECT_MAP_INVALID};
use super::image::{Image, Inner};
use super::journal::Journal;
use super::names::{self, LOCK_COOKIE, LOCK_TAG, features};
use super::object_map::ObjectMap;
use super::watcher;
use crate::{Client, ClientError, IoCtx, Operation};

/// How long a request to hand over waits before it is made again.
const REQUEST_AGAIN: Duration = Duration::from_secs(2);
/// After handing over, the lock is not taken for this long: our own writes are nearer to it than
/// those of the one who asked.
const COURTESY: Duration = Duration::from_millis(100);
/// Nor for this long, unless it is free before, if it was asked for to do something that takes long: librbd begins
/// that anew whenever the lock is asked back.
const LONG_COURTESY: Duration = Duration::from_secs(10);
/// The lock is asked for so soon after what takes long was refused.
const AFTER_REFUSAL: Duration = Duration::from_secs(5);

/// The cookie of a lock that an image of this client has, or is about to have. A lock of ours that none of them
/// knows was left by one that went without a word, and may be broken; the client is not blocklisted for it.
struct Cookie {
    text: String,
    client: Client,
}

impl Cookie {
    fn new(text: String, client: &Client) -> Cookie {
        client.lock_cookies().borrow_mut().push(text.as_str().into());
        Cookie { text, client: client.clone() }
    }
}

impl Drop for Cookie {
    fn drop(&mut self) {
        let mut cookies = self.client.lock_cookies().borrow_mut();
        if let Some(at) = cookies.iter().position(|cookie| cookie == self.text.as_bytes()) {
            cookies.swap_remove(at);
        }
    }
}

#[derive(Default)]
pub(crate) struct Lock {
    /// Set while the lock is ours.
    cookie: RefCell<Option<Cookie>>,
    /// Writers may enter: what the last owner left is dealt with.
    is_ready: Cell<bool>,
    map: RefCell<Option<Rc<ObjectMap>>>,
    journal: RefCell<Option<Rc<Journal>>>,
    /// Somebody has released it.
    pub(crate) released: Notify,
    /// Until then it is left to who has asked for it.
    courtesy: Cell<Duration>,
    /// When something that takes long was last refused to another.
    pub(crate) refused: Cell<Option<Duration>>,
}

impl Lock {
    pub(crate) fn is_owned(&self) -> bool {
        self.is_ready.get()
    }

    pub(crate) fn cookie(&self) -> Option<String> {
        self.cookie.borrow().as_ref().map(|cookie| cookie.text.clone())
    }

    pub(crate) fn object_map(&self) -> Option<Rc<ObjectMap>> {
        self.map.borrow().clone()
    }

    pub(crate) fn journal(&self) -> Option<Rc<Journal>> {
        self.journal.borrow().clone()
    }

    /// It has been taken from us.
    fn lost(&self) {
        self.is_ready.set(false);
        self.journal.borrow_mut().take();
        self.cookie.borrow_mut().take();
        self.map.borrow_mut().take();
    }
}

impl Image {
    /// Takes the exclusive lock now instead of at the first write.
    pub async fn lock(&self) -> Result<(), ClientError> {
        self.0.begin_change().await.map(drop)
    }

    /// Gives it back.
    pub async fn unlock(&self) -> Result<(), ClientError> {
        self.0.release_lock().await
    }
}

impl Inner {
    pub(crate) async fn acquire_lock(self: &Rc<Self>) -> Result<(), ClientError> {
        let _turn = self.changes.acquire(1).await;
        if self.lock.is_owned() {
            return Ok(());
        }
        let left = self.lock.courtesy.get().saturating_sub(self.env.now());
        if !left.is_zero() {
            let _ = self.env.timeout(left, self.lock.released.notified()).await;
        }
        self.check_usable()?;
        self.take_lock().await
    }

    /// Gives the lock to one who asks.
    pub(crate) async fn hand_over(self: &Rc<Self>) -> Result<(), ClientError> {
        self.release_lock().await?;
        let now = self.env.now();
        let refused = self.lock.refused.take().is_some_and(|at| now - at < AFTER_REFUSAL);
        self.lock.courtesy.set(now + if refused { LONG_COURTESY } else { COURTESY });
        Ok(())
    }

    /// For what takes no room: it need not wait until a full pool has some.
    fn full_io(&self) -> IoCtx {
        self.io.clone().with_flags(message_flags::FULL_TRY)
    }

    fn own_cookie(&self) -> Result<String, ClientError> {
        let watch = self.watch.borrow();
        let watch = watch.as_ref().ok_or(Errno::ENOTCONN)?;
        Ok(format!("{LOCK_COOKIE}{}", watch.cookie()))
    }

    /// With the turn for changes held.
    pub(crate) fn take_lock(self: &Rc<Self>) -> LocalBoxFuture<'_, Result<(), ClientError>> {
        Box::pin(async move {
            loop {
                let released = self.lock.released.notified();
                match self.try_lock().await {
                    Ok(()) => break,
                    Err(ClientError::Errno(Errno::EBUSY)) => {
                        if self.ask_or_break().await? {
                            let _ = self.env.timeout(REQUEST_AGAIN, released).await;
                        }
                        // Who holds it may have taken the feature away: then nobody needs it.
                        self.refresh().await?;
                        if !self.view().header.has(features::EXCLUSIVE_LOCK) {
                            return Ok(());
                        }
                    }
                    Err(error) => return Err(error),
                }
            }
            // Another may have changed anything meanwhile.
            let opened = async {
                self.refresh().await?;
                self.open_object_map().await?;
                self.open_journal().await
            };
            if let Err(error) = opened.await {
                let _ = self.give_back().await;
                return Err(error);
            }
            self.lock.is_ready.set(true);
            watcher::announce(self, watcher::ACQUIRED_LOCK);
            Ok(())
        })
    }

    /// EBUSY when another has it.
    async fn try_lock(&self) -> Result<(), ClientError> {
        let _turn = self.lock_turn.acquire(1).await;
        let cookie = Cookie::new(self.own_cookie()?, self.io.client());
        match self.header_op(Operation::new().rbd_lock(&cookie.text, LOCK_TAG)).await {
            Ok(()) | Err(ClientError::Errno(Errno::EEXIST)) => {}
            Err(error) => return Err(error),
        }
        *self.lock.cookie.borrow_mut() = Some(cookie);
        Ok(())
    }

    /// With no writers inside.
    async fn give_back(&self) -> Result<(), ClientError> {
        let _turn = self.lock_turn.acquire(1).await;
        let (map, cookie) = (self.lock.object_map(), self.lock.cookie());
        self.lock.lost();
        if let Some(map) = map {
            let _ = map.close().await;
        }
        let Some(cookie) = cookie else { return Ok(()) };
        let unlock = Operation::new().rbd_unlock(&cookie);
        match self.full_io().operate(self.header_oid.clone(), unlock).await {
            Ok(_) | Err(ClientError::Errno(Errno::ENOENT)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn open_journal(self: &Rc<Self>) -> Result<(), ClientError> {
        if !self.view().header.has(features::JOURNALING) || self.is_going.get() {
            return Ok(());
        }
        let journal = Journal::open(self).await?;
        *self.lock.journal.borrow_mut() = Some(journal);
        Ok(())
    }

    async fn open_object_map(&self) -> Result<(), ClientError> {
        let view = self.view();
        if !view.header.object_map_valid(NOSNAP) {
            return Ok(());
        }
        let oid = names::object_map(&self.id, NOSNAP);
        let needed = view.header.layout.objects(view.size);
        match ObjectMap::open(self.full_io(), oid).await {
            Ok(map) if map.objects() >= needed => {
                *self.lock.map.borrow_mut() = Some(map);
                return Ok(());
            }
            Ok(map) => map.close().await?,
            Err(ClientError::Errno(Errno::ENOENT | Errno::EINVAL) | ClientError::Decode(_)) => {}
            Err(error) => return Err(error),
        }
        self.distrust_object_map().await
    }

    /// It cannot be trusted any more; `rbd object-map rebuild` makes another.
    async fn distrust_object_map(&self) -> Result<(), ClientError> {
        let flags = FLAG_OBJECT_MAP_INVALID | FLAG_FAST_DIFF_INVALID;
        self.locked_op(Operation::new().set_flags(NOSNAP, flags, flags)).await?;
        self.lock.map.borrow_mut().take();
        self.refresh().await
    }

    /// What came of an update of the object map. Without the map the image is slower, without writes it
    /// is none: if the lock is still ours, which is asked of the header itself, one that failed is
    /// said there to be invalid, durably, and the change it was for goes on without it.
    pub(crate) async fn map_updated(
        &self,
        map: &ObjectMap,
        result: Result<(), ClientError>,
    ) -> Result<(), ClientError> {
        let Err(error) = result else { return Ok(()) };
        if self.lock.cookie().is_none() {
            return Err(error);
        }
        if self.view().header.object_map_valid(NOSNAP) {
            tracing::warn!("the object map of {} is given up: {error}", self.name);
            self.distrust_object_map().await?;
            let _ = map.close().await;
        }
        Ok(())
    }

    /// Another holds it. True if it was asked to hand over, false if the lock may be free now.
    async fn ask_or_break(&self) -> Result<bool, ClientError> {
        let info = self.lock_info().await?;
        let Some((id, locker)) = info.lockers.first_key_value() else { return Ok(false) };
        let handle = std::str::from_utf8(&id.cookie)
            .ok()
            .and_then(|cookie| cookie.strip_prefix(LOCK_COOKIE))
            .and_then(|handle| handle.parse::<u64>().ok());
        let Some(handle) = handle.filter(|_| info.tag == LOCK_TAG) else {
            // Locked by hand (`rbd lock add`): only a hand unlocks it.
            return Err(Errno::EBUSY.into());
        };
        let watchers = self.watchers().await?;
        if watchers.entries.iter().any(|w| w.name == id.locker && w.cookie == handle) {
            watcher::request_lock(self).await?;
            return Ok(true);
        }
        // It may have given the lock back before it ended its watch: then it is none of the dead.
        if self.lock_info().await?.lockers.first_key_value() != Some((id, locker)) {
            return Ok(false);
        }
        let client = self.io.client();
        let own = id.locker == EntityName::client(client.global_id() as i64);
        if own && client.lock_cookies().borrow().contains(&id.cookie) {
            // Another image of this client, between two watches: it can be asked when it has the next.
            return Ok(true);
        }
        self.break_lock(id, locker, own).await?;
        Ok(false)
    }

    async fn lock_info(&self) -> Result<LockInfo, ClientError> {
        let ask = Operation::new().rbd_lock_info();
        self.io.operate(self.header_oid.clone(), ask).await?.decode(0)
    }

    /// The holder is dead: nothing it has sent may arrive after the lock is ours. An image of our `own` that is
    /// no more has nothing under way.
    async fn break_lock(
        &self,
        id: &LockerId,
        locker: &LockerInfo,
        own: bool,
    ) -> Result<(), ClientError> {
        tracing::warn!("the lock of {} is broken: {} is gone", self.name, id.locker);
        let client = self.io.client();
        if !own {
            let command = serde_json::json!({
                "prefix": "osd blocklist",
                "blocklistop": "add",
                "addr": locker.addr.legacy_text().to_string(),
            });
            let answer = client.mon_command(command.to_string(), Bytes::new()).await?;
            if let Some(errno) = Errno::from_result(answer.rc) {
                tracing::warn!("cannot blocklist {}: {}", locker.addr, answer.outs);
                return Err(errno.into());
            }
            client.wait_for_latest_osdmap().await?;
        }
        match self.header_op(Operation::new().rbd_break_lock(id.locker, &id.cookie)).await {
            Err(ClientError::Errno(Errno::ENOENT)) => Ok(()),
            other => other,
        }
    }

    pub(crate) fn release_lock(self: &Rc<Self>) -> LocalBoxFuture<'_, Result<(), ClientError>> {
        Box::pin(async move {
            let _turn = self.changes.acquire(1).await;
            if !self.lock.is_owned() {
                return Ok(());
            }
            let _blocked = self.block_writes().await;
            if let Some(journal) = self.lock.journal() {
                // The next owner replays what could not be told.
                if let Err(error) = journal.close().await {
                    tracing::warn!("the journal of {} is left as it is: {error}", self.name);
                }
            }
            self.give_back().await?;
            watcher::announce(self, watcher::RELEASED_LOCK);
            Ok(())
        })
    }

    /// The watch is lost for good, or the lock: others have changed the image unseen, or may do so.
    pub(crate) async fn fence_off(&self) {
        self.fenced.set(true);
        self.outdate();
        self.fenced_off.notify_all();
        self.watch.borrow_mut().take();
        let _turn = self.changes.acquire(1).await;
        self.lock.lost();
    }

    /// The watch has another cookie now: so has the lock.
    pub(crate) async fn follow_watch(&self) {
        let turn = self.lock_turn.acquire(1).await;
        let (Some(old), Ok(new)) = (self.lock.cookie(), self.own_cookie()) else { return };
        // It was taken under the new watch, or the watch was lost once more meanwhile.
        if old == new {
            return;
        }
        let new = Cookie::new(new, self.io.client());
        let follow = Operation::new().rbd_lock_cookie(&old, &new.text);
        match self.full_io().operate(self.header_oid.clone(), follow).await {
            Ok(_) => *self.lock.cookie.borrow_mut() = Some(new),
            Err(ClientError::Closed) => {}
            Err(error) => {
                tracing::warn!(
                    "the lock of {} was lost ({error}): it must be opened again",
                    self.name
                );
                drop(turn);
                self.fence_off().await;
            }
        }
    }
}
