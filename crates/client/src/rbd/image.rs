//! An open image: what its header said last, who may write now, and how changes of the whole
//! (a snapshot, the loss of the lock) keep clear of writes under way.
//!
//! A write passes the gate; a change closes it and waits until those inside have left. Changes
//! take turns by the `changes` permit, which is always taken before the gate is closed.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use env::Env;
use env::sync::{Notify, Permit, Semaphore};
use futures_util::future::LocalBoxFuture;
use types::osd::ObjListWatchResponse;
use types::osd::ops::{self, OsdOp};
use types::snap::NOSNAP;
use types::{Errno, SnapContext, SnapId, UTime};

use super::header::{Header, Parent, ParentImageSpec, SnapInfo};
use super::lock::Lock;
use super::names::{self, features};
use super::object_map::{self, ObjectMap, States};
use super::object_use::ObjectUse;
use super::pool::image_name;
use super::watcher;
use crate::{ClientError, IoCtx, Operation, Watch};

/// Parents of parents that are followed.
const ANCESTORS_MAX: u32 = 64;

/// How to open.
#[derive(Debug, Clone, Default)]
pub struct OpenOptions {
    /// A snapshot to read instead of the head.
    pub snap: Option<String>,
    /// Refuse to write; such an image takes no lock.
    pub read_only: bool,
}

/// An image's particulars, as `rbd info` shows them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageInfo {
    /// Name.
    pub name: String,
    /// Id.
    pub id: String,
    /// Bytes, of the snapshot if one is open.
    pub size: u64,
    /// Objects have 2^order bytes.
    pub order: u8,
    /// Objects at most.
    pub objects: u64,
    /// [`features`].
    pub features: u64,
    /// Flags of the header.
    pub flags: u64,
    /// What names of data objects begin with.
    pub prefix: String,
    /// Pool of the data objects, if another.
    pub data_pool: Option<i64>,
    /// Bytes of a stripe in one object.
    pub stripe_unit: u64,
    /// Objects of a stripe.
    pub stripe_count: u64,
    /// When it was made.
    pub created: UTime,
    /// What lies beneath.
    pub parent: Option<Parent>,
}

/// What I/O needs to know of the header; replaced as a whole when it changes.
pub(crate) struct View {
    pub(crate) header: Header,
    /// Of the head or the snapshot.
    pub(crate) size: u64,
    pub(crate) overlap: u64,
    pub(crate) read: IoCtx,
    pub(crate) write: IoCtx,
    /// Writes below all snapshots: copies from the parent are as old as the image.
    pub(crate) write_below: IoCtx,
    pub(crate) parent: Option<Image>,
    /// The map of the snapshot that is open.
    pub(crate) snap_map: Option<States>,
}

impl View {
    /// Bytes from an object's start that a parent of this overlap may hold.
    pub(crate) fn prefix(&self, object: u64, overlap: u64) -> u64 {
        let layout = &self.header.layout;
        if overlap == 0 || self.parent.is_none() {
            return 0;
        }
        let ranges = layout.image_ranges(object, 0..layout.object_size());
        ranges.iter().map(|r| r.end.min(overlap).saturating_sub(r.start)).sum()
    }
}

pub(crate) struct Inner {
    pub(crate) env: Env,
    /// Where the header is.
    pub(crate) io: IoCtx,
    pub(crate) name: String,
    pub(crate) id: String,
    pub(crate) header_oid: String,
    pub(crate) snap: SnapId,
    pub(crate) read_only: bool,
    depth: u32,
    view: RefCell<Rc<View>>,
    /// How often the header has changed, or may have.
    changed: Cell<u64>,
    /// How many of these changes the view shows. Counted, for while one is read about another may come; and until the
    /// new view is there nobody goes by the old one.
    shown: Cell<u64>,
    refreshing: Semaphore,
    pub(crate) changes: Semaphore,
    /// Who takes the lock, gives it back or lets it follow the watch.
    pub(crate) lock_turn: Semaphore,
    gate: Gate,
    pub(crate) lock: Lock,
    pub(crate) watch: RefCell<Option<Rc<Watch>>>,
    pub(crate) objects: ObjectUse,
    pub(crate) resized: Notify,
    pub(crate) closed: Cell<bool>,
    /// It could not be watched any more: others have changed it unseen, and may hold the lock.
    pub(crate) fenced: Cell<bool>,
    pub(crate) fenced_off: Notify,
    /// The image is being removed: its journal counts no more.
    pub(crate) is_going: Cell<bool>,
}

/// An open image. Clones are the same; close it to give its lock back.
#[derive(Clone)]
pub struct Image(pub(crate) Rc<Inner>);

impl core::fmt::Debug for Image {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Image {} ({})", self.0.name, self.0.id)
    }
}

impl Image {
    /// Opens by name; ENOENT for the image or the snapshot, EOPNOTSUPP for images this crate
    /// must not touch (EROFS if it may only read them).
    pub async fn open(io: &IoCtx, name: &str, options: &OpenOptions) -> Result<Image, ClientError> {
        let ask = Operation::new().rbd("get_id", |_| ());
        let id: String = io.operate(names::id_object(name), ask).await?.decode(0)?;
        Image::open_id(io, name.to_owned(), id, options).await
    }

    /// The same by id, as images in the trash are opened.
    pub fn open_id<'a>(
        io: &'a IoCtx,
        name: String,
        id: String,
        options: &'a OpenOptions,
    ) -> LocalBoxFuture<'a, Result<Image, ClientError>> {
        Box::pin(async move {
            let header = Header::read(io, &names::header(&id)).await?;
            let snap = match &options.snap {
                None => NOSNAP,
                Some(name) => header.snap_named(name).ok_or(Errno::ENOENT)?.id,
            };
            let read_only = options.read_only || snap != NOSNAP;
            Image::check_features(&header, read_only)?;
            let image = Image::with_header(io, name, id, header, snap, read_only, 0).await?;
            match read_only {
                true => watcher::register_reader(&image.0).await,
                false => watcher::register(&image.0).await?,
            }
            Ok(image)
        })
    }

    /// One of the two images of a migration, which others must not touch.
    pub(crate) async fn open_migrating(
        io: &IoCtx,
        name: String,
        id: String,
        read_only: bool,
    ) -> Result<Image, ClientError> {
        let header = Header::read(io, &names::header(&id)).await?;
        let image = Image::with_header(io, name, id, header, NOSNAP, read_only, 0).await?;
        if !read_only {
            watcher::register(&image.0).await?;
        }
        Ok(image)
    }

    fn check_features(header: &Header, read_only: bool) -> Result<(), Errno> {
        if header.features & !(features::SUPPORTED | features::READ_ONLY) != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        if read_only { Ok(()) } else { check_primary(header) }
    }

    pub(crate) async fn with_header(
        io: &IoCtx,
        name: String,
        id: String,
        header: Header,
        snap: SnapId,
        read_only: bool,
        depth: u32,
    ) -> Result<Image, ClientError> {
        let header_oid = names::header(&id);
        let view = make_view(io, &id, header, snap, None, depth).await?;
        Ok(Image(Rc::new(Inner {
            env: io.client().env().clone(),
            io: io.clone(),
            name,
            id,
            header_oid,
            snap,
            read_only,
            depth,
            view: RefCell::new(Rc::new(view)),
            changed: Cell::new(0),
            shown: Cell::new(0),
            refreshing: Semaphore::new(1),
            changes: Semaphore::new(1),
            lock_turn: Semaphore::new(1),
            gate: Gate::default(),
            lock: Lock::default(),
            watch: RefCell::default(),
            objects: ObjectUse::default(),
            resized: Notify::default(),
            closed: Cell::new(false),
            fenced: Cell::new(false),
            fenced_off: Notify::default(),
            is_going: Cell::new(false),
        })))
    }

    /// Bytes.
    pub fn size(&self) -> u64 {
        self.0.view().size
    }

    /// Particulars.
    pub fn info(&self) -> ImageInfo {
        let view = self.0.view();
        let header = &view.header;
        ImageInfo {
            name: self.0.name.clone(),
            id: self.0.id.clone(),
            size: view.size,
            order: header.layout.order,
            objects: header.layout.objects(view.size),
            features: header.features,
            flags: header.flags,
            prefix: header.prefix.clone(),
            data_pool: (header.data_pool >= 0).then_some(header.data_pool),
            stripe_unit: header.layout.unit,
            stripe_count: header.layout.count,
            created: header.created,
            parent: header.parent.clone(),
        }
    }

    /// Names of the image that lies beneath and of its snapshot. ENOENT where the image is in the trash, or beneath
    /// is nothing.
    pub async fn parent_names(&self) -> Result<(String, String), ClientError> {
        let view = self.0.view();
        let parent = view.parent.as_ref().ok_or(Errno::ENOENT)?;
        let spec = view.header.parent_spec.as_ref().ok_or(Errno::ENOENT)?;
        let snap = parent.0.view().header.snaps.get(&spec.snap_id).map(|snap| snap.name.clone());
        let image = image_name(&parent.0.io, &parent.0.id).await?;
        Ok((image, snap.ok_or(Errno::ENOENT)?))
    }

    /// Its id.
    pub fn id(&self) -> &str {
        &self.0.id
    }

    /// Snapshots, oldest first.
    pub fn snapshots(&self) -> Vec<SnapInfo> {
        self.0.view().header.snaps.values().cloned().collect()
    }

    /// Whether writes are refused.
    pub fn is_read_only(&self) -> bool {
        self.0.read_only
    }

    /// Whether it has been fenced off: it answers ESHUTDOWN alone until it is opened again.
    pub fn is_fenced(&self) -> bool {
        self.0.fenced.get()
    }

    /// Completes when it has been fenced off.
    pub async fn fenced(&self) {
        self.0.fenced_off.until(|| self.0.fenced.get()).await;
    }

    /// Completes when the size has changed.
    pub async fn resized(&self) {
        self.0.resized.notified().await;
    }

    /// All writes that have returned are durable already; those under way are waited for.
    pub async fn flush(&self) -> Result<(), ClientError> {
        self.0.gate.drain().await;
        Ok(())
    }

    /// Reads the header again.
    pub async fn refresh(&self) -> Result<(), ClientError> {
        self.0.refresh().await
    }

    /// Whether writers of this image take its exclusive lock.
    pub fn wants_lock(&self) -> bool {
        self.0.view().header.has(features::EXCLUSIVE_LOCK)
    }

    /// Whether this holds the image's exclusive lock.
    pub fn is_lock_owner(&self) -> bool {
        self.0.lock.is_owned()
    }

    /// Waits for writes, gives the lock back and ends the watch.
    pub fn close(&self) -> LocalBoxFuture<'_, Result<(), ClientError>> {
        Box::pin(async move {
            if self.0.closed.replace(true) {
                return Ok(());
            }
            let released = self.0.release_lock().await;
            let watch = self.0.watch.borrow_mut().take();
            let ended = match watch {
                Some(watch) => watch.unwatch().await,
                None => Ok(()),
            };
            let parent = self.0.view().parent.clone();
            if let Some(parent) = parent {
                // It may be gone, with its header: it was only read.
                let _ = Box::pin(parent.close()).await;
            }
            ended.and(released)
        })
    }
}

/// EROFS for what is not written to here: a mirror's copy.
fn check_primary(header: &Header) -> Result<(), Errno> {
    match header.features & features::READ_ONLY {
        0 => Ok(()),
        _ => Err(Errno::EROFS),
    }
}

async fn make_view(
    io: &IoCtx,
    id: &str,
    header: Header,
    snap: SnapId,
    before: Option<&View>,
    depth: u32,
) -> Result<View, ClientError> {
    let data = match header.data_pool {
        -1 => io.clone(),
        pool => io.in_pool(pool, io.namespace()),
    };
    let overlap = header.overlap_at(snap);
    let wants_parent = match snap {
        NOSNAP => overlap > 0 || header.snaps.values().any(|s| s.overlap.is_some_and(|o| o > 0)),
        _ => overlap > 0,
    };
    let parent = match header.parent_spec.as_ref().filter(|_| wants_parent) {
        None => None,
        Some(spec) => {
            let same = before.filter(|b| b.header.parent_spec.as_ref() == Some(spec));
            match same.and_then(|b| b.parent.clone()) {
                Some(parent) => Some(parent),
                None => Some(Box::pin(open_parent(io, spec, depth + 1)).await?),
            }
        }
    };
    // Who flattens the image copies objects into its snapshots, too.
    let snap_map = match snap != NOSNAP && header.object_map_valid(snap) {
        true => object_map::load(io, &names::object_map(id, snap)).await.ok(),
        false => None,
    };
    Ok(View {
        size: header.size_at(snap),
        overlap,
        read: data.clone().with_snap_read(snap),
        write: data.clone().with_snap_context(header.snapc.clone()),
        write_below: data.with_snap_context(SnapContext::default()),
        parent,
        snap_map,
        header,
    })
}

async fn open_parent(io: &IoCtx, spec: &ParentImageSpec, depth: u32) -> Result<Image, ClientError> {
    if depth > ANCESTORS_MAX {
        return Err(Errno::EINVAL.into());
    }
    let io = io.in_pool(spec.pool_id, &spec.pool_namespace);
    let header = Header::read(&io, &names::header_of(spec)).await?;
    if !header.snaps.contains_key(&spec.snap_id) {
        return Err(Errno::ENOENT.into());
    }
    let id = spec.image_id.to_string();
    Image::check_features(&header, true)?;
    let image = Image::with_header(&io, id.clone(), id, header, spec.snap_id, true, depth).await?;
    // It may be flattened, and what lies beneath it removed: who went on by what it was would read zeros for that.
    watcher::register_reader(&image.0).await;
    Ok(image)
}

impl Inner {
    pub(crate) fn view(&self) -> Rc<View> {
        self.view.borrow().clone()
    }

    /// The header has changed, or may have: the view may be old.
    pub(crate) fn outdate(&self) {
        self.changed.set(self.changed.get() + 1);
    }

    pub(crate) fn is_outdated(&self) -> bool {
        self.shown.get() < self.changed.get()
    }

    pub(crate) async fn refresh(&self) -> Result<(), ClientError> {
        self.outdate();
        self.fresh_view().await.map(drop)
    }

    /// A view that shows all changes up to now.
    pub(crate) fn fresh_view(&self) -> LocalBoxFuture<'_, Result<Rc<View>, ClientError>> {
        Box::pin(async move {
            let wanted = self.changed.get();
            if self.shown.get() < wanted {
                let _one = self.refreshing.acquire(1).await;
                if self.shown.get() < wanted {
                    self.replace_view().await?;
                }
            }
            Ok(self.view())
        })
    }

    async fn replace_view(&self) -> Result<(), ClientError> {
        let changed = self.changed.get();
        let header = Header::read(&self.io, &self.header_oid).await?;
        let before = self.view();
        if self.snap != NOSNAP && !header.snaps.contains_key(&self.snap) {
            return Err(Errno::ENOENT.into());
        }
        let view =
            make_view(&self.io, &self.id, header, self.snap, Some(&before), self.depth).await?;
        let resized = view.size != before.size;
        let parent_of = |view: &View| view.parent.as_ref().map(|parent| Rc::as_ptr(&parent.0));
        if let Some(left) = before.parent.clone().filter(|_| parent_of(&view) != parent_of(&before))
        {
            // It is watched no more.
            self.env.go(async move {
                let _ = left.close().await;
            });
        }
        *self.view.borrow_mut() = Rc::new(view);
        self.shown.set(changed);
        if resized {
            self.resized.notify_all();
        }
        Ok(())
    }

    /// ESHUTDOWN for one that has been closed, or fenced off: that ends when it is opened again.
    pub(crate) fn check_usable(&self) -> Result<(), Errno> {
        match self.closed.get() || self.fenced.get() {
            true => Err(Errno::ESHUTDOWN),
            false => Ok(()),
        }
    }

    /// Enters as a writer, with the lock if the image wants one.
    pub(crate) async fn enter_write(
        self: &Rc<Self>,
    ) -> Result<(Inside<'_>, Rc<View>, Option<Rc<ObjectMap>>), ClientError> {
        if self.read_only {
            return Err(Errno::EROFS.into());
        }
        loop {
            self.check_usable()?;
            self.fresh_view().await?;
            let inside = self.gate.enter().await;
            // Much may have happened while the gate was closed.
            self.check_usable()?;
            if self.is_outdated() {
                continue;
            }
            let view = self.view();
            // It may have become another cluster's copy since it was opened.
            check_primary(&view.header)?;
            if !view.header.has(features::EXCLUSIVE_LOCK) || self.lock.is_owned() {
                return Ok((inside, view, self.lock.object_map()));
            }
            drop(inside);
            self.acquire_lock().await?;
        }
    }

    /// What readers see. With a journal they take the lock, for it may hold what the content does
    /// not yet.
    pub(crate) async fn view_to_read(self: &Rc<Self>) -> Result<Rc<View>, ClientError> {
        if self.fenced.get() {
            return Err(Errno::ESHUTDOWN.into());
        }
        let view = self.fresh_view().await?;
        let waits = view.header.has(features::JOURNALING) && !self.read_only;
        if !waits || self.lock.is_owned() {
            return Ok(view);
        }
        self.acquire_lock().await?;
        self.fresh_view().await
    }

    /// Takes the turn for a change of the whole, with the lock if the image wants one.
    pub(crate) async fn begin_change(self: &Rc<Self>) -> Result<Permit, ClientError> {
        if self.read_only {
            return Err(Errno::EROFS.into());
        }
        let turn = self.changes.acquire(1).await;
        self.check_usable()?;
        if self.view().header.has(features::EXCLUSIVE_LOCK) && !self.lock.is_owned() {
            self.take_lock().await?;
        }
        self.refresh().await?;
        check_primary(&self.view().header)?;
        Ok(turn)
    }

    /// Keeps writers out until the answer is dropped; waits until all have left.
    pub(crate) async fn block_writes(&self) -> Blocked<'_> {
        self.gate.close().await
    }

    pub(crate) async fn header_op(&self, op: Operation) -> Result<(), ClientError> {
        self.io.operate(self.header_oid.clone(), op).await.map(drop)
    }

    /// The same, failing (EBUSY) when the lock has been taken from us.
    pub(crate) async fn locked_op(&self, op: Operation) -> Result<(), ClientError> {
        loop {
            let cookie = self.lock.cookie();
            let guarded = match &cookie {
                Some(cookie) => {
                    Operation::new().assert_rbd_locked(cookie, names::LOCK_TAG).then(op.clone())
                }
                None => op.clone(),
            };
            let outcome = self.header_op(guarded).await;
            if outcome != Err(ClientError::Errno(Errno::EBUSY)) {
                return outcome;
            }
            // The lock may have got a new cookie while this was on its way.
            let _turn = self.lock_turn.acquire(1).await;
            let now = self.lock.cookie();
            if now.is_none() || now == cookie {
                return outcome;
            }
        }
    }

    pub(crate) async fn watchers(&self) -> Result<ObjListWatchResponse, ClientError> {
        let ask = Operation::new().op(OsdOp::new(ops::LIST_WATCHERS));
        self.io.operate(self.header_oid.clone(), ask).await?.decode(0)
    }
}

/// Writers inside, and whether more may enter.
#[derive(Default)]
struct Gate {
    closed: Cell<u32>,
    inside: Cell<u64>,
    changed: Notify,
}

/// A writer inside.
pub(crate) struct Inside<'a>(&'a Gate);

/// The gate is closed.
pub(crate) struct Blocked<'a>(&'a Gate);

impl Gate {
    async fn enter(&self) -> Inside<'_> {
        self.changed.until(|| self.closed.get() == 0).await;
        self.inside.set(self.inside.get() + 1);
        Inside(self)
    }

    async fn close(&self) -> Blocked<'_> {
        self.closed.set(self.closed.get() + 1);
        let blocked = Blocked(self);
        self.drain().await;
        blocked
    }

    async fn drain(&self) {
        self.changed.until(|| self.inside.get() == 0).await;
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.inside.set(self.0.inside.get() - 1);
        if self.0.inside.get() == 0 {
            self.0.changed.notify_all();
        }
    }
}

impl Drop for Blocked<'_> {
    fn drop(&mut self) {
        self.0.closed.set(self.0.closed.get() - 1);
        self.0.changed.notify_all();
    }
}
