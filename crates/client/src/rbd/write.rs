//! Changing content: the object map first, then the object, and below it a copy of what the
//! parent holds when the object is not there yet (copy-up; `src/librbd/io/ObjectRequest.cc`,
//! `CopyupRequest.cc` at v16.2).
//!
//! A copy goes below all snapshots, since they see the parent's bytes too. Of the parent no snapshot
//! sees more of an object than the head does, unless the object was copied before the head was cut
//! (`maintain`): so a copy never shows the head more than it saw already.

use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use futures_util::future::{LocalBoxFuture, join_all};
use types::Errno;
use types::osd::ops::{self, OsdOp, WriteSameArgs};

use super::copyup::CopyUp;
use super::image::{Image, View};
use super::names::{self, features};
use super::object_map::{EXISTS, EXISTS_CLEAN, NONEXISTENT, ObjectMap, PENDING};
use super::progress::many;
use super::striping::ObjectExtent;
use crate::{ClientError, Operation};

/// Errno numbers above this tell where a comparison failed (`MAX_ERRNO`).
const MISMATCH_BASE: i32 = 4095;
/// Bytes of the image dealt with at a time by operations on large ranges.
const RANGE_AT_A_TIME: u64 = 1 << 32;
/// Objects dealt with at a time by operations on many.
pub(crate) const OBJECTS_AT_A_TIME: usize = 64;

/// What happens to an object.
#[derive(Debug, Clone)]
pub(crate) enum Change {
    Write(u64, Bytes),
    /// A pattern over a range.
    Same(u64, u64, Bytes),
    Zero(u64, u64),
    /// The object as a whole reads as zeros.
    Clear,
    /// It lies behind the image's end.
    Delete,
    /// Writes the second if the first is there.
    Compare(u64, Bytes, Bytes),
}

/// What a range is changed to.
#[derive(Debug)]
pub(crate) enum Over {
    /// Zeros; parts below `granularity` bytes are left alone (0: none are).
    Zeros {
        granularity: u64,
    },
    Pattern(Bytes),
}

impl Image {
    /// Writes. The range must lie in the image (EINVAL).
    pub async fn write(&self, offset: u64, data: Bytes) -> Result<(), ClientError> {
        let (_inside, view, map) = self.0.enter_write().await?;
        check_range(&view, offset, data.len() as u64)?;
        let Some(journal) = self.0.lock.journal() else {
            return self.write_in(&view, map.as_ref(), offset, &data).await;
        };
        let recorded = journal.write(offset, &data).await?;
        self.write_in(&view, map.as_ref(), offset, &data).await?;
        recorded.done();
        Ok(())
    }

    /// Inside as a writer, or with the turn for changes.
    pub(crate) async fn write_in(
        &self,
        view: &View,
        map: Option<&Rc<ObjectMap>>,
        offset: u64,
        data: &Bytes,
    ) -> Result<(), ClientError> {
        let extents = view.header.layout.extents(offset, data.len() as u64);
        let change = |extent: &ObjectExtent| Change::Write(extent.offset, gather(extent, data));
        if let [only] = extents.as_slice() {
            return self.change(view, map, only.object, change(only)).await;
        }
        let writes = extents.iter().map(|e| self.change(view, map, e.object, change(e)));
        join_all(writes).await.into_iter().collect()
    }

    /// Makes a range read as zeros and gives its space back where whole objects allow it.
    pub async fn discard(&self, offset: u64, len: u64) -> Result<(), ClientError> {
        self.zero(offset, len).await
    }

    /// Makes a range read as zeros.
    pub async fn write_zeroes(&self, offset: u64, len: u64) -> Result<(), ClientError> {
        self.zero(offset, len).await
    }

    async fn zero(&self, offset: u64, len: u64) -> Result<(), ClientError> {
        self.change_range(offset, len, 1, &Over::Zeros { granularity: 0 }).await
    }

    /// Fills a range with a pattern; its length must be a multiple of the pattern's (EINVAL).
    pub async fn write_same(
        &self,
        offset: u64,
        len: u64,
        pattern: Bytes,
    ) -> Result<(), ClientError> {
        let unit = pattern.len() as u64;
        if unit == 0 || !len.is_multiple_of(unit) {
            return Err(Errno::EINVAL.into());
        }
        self.change_range(offset, len, unit, &Over::Pattern(pattern)).await
    }

    /// Changes a large range, some of it at a time in multiples of `unit`.
    async fn change_range(
        &self,
        offset: u64,
        len: u64,
        unit: u64,
        over: &Over,
    ) -> Result<(), ClientError> {
        let mut done = 0;
        while done < len {
            let (_inside, view, map) = self.0.enter_write().await?;
            check_range(&view, offset, len)?;
            let (at, some) =
                (offset + done, (len - done).min((RANGE_AT_A_TIME / unit).max(1) * unit));
            let journal = self.0.lock.journal();
            let recorded = match (&journal, over) {
                (None, _) => None,
                (Some(journal), Over::Zeros { .. }) => Some(journal.discard(at, some).await?),
                (Some(journal), Over::Pattern(pattern)) => {
                    Some(journal.write_same(at, some, pattern.clone()).await?)
                }
            };
            self.change_range_in(&view, map.as_ref(), at, some, over).await?;
            if let Some(recorded) = recorded {
                recorded.done();
            }
            done += some;
        }
        Ok(())
    }

    /// Inside as a writer, or with the turn for changes. A pattern begins with the range.
    pub(crate) async fn change_range_in(
        &self,
        view: &View,
        map: Option<&Rc<ObjectMap>>,
        offset: u64,
        len: u64,
        over: &Over,
    ) -> Result<(), ClientError> {
        let extents = view.header.layout.extents(offset, len);
        let changes = extents.iter().filter_map(|extent| {
            let change = match over {
                Over::Pattern(pattern) => Some(same(extent, pattern)),
                Over::Zeros { granularity } => zeros(view, extent, *granularity),
            };
            change.map(|change| (extent.object, change))
        });
        let changes: Vec<_> = changes.collect();
        let changes =
            changes.into_iter().map(|(object, change)| self.change(view, map, object, change));
        many(changes, OBJECTS_AT_A_TIME, || Ok(())).await
    }

    /// Writes `data` if the image holds `expected` there, in one step: `None`, or where the first
    /// difference is. Both have one length and lie in one stripe of one object (EINVAL).
    pub async fn compare_and_write(
        &self,
        offset: u64,
        expected: Bytes,
        data: Bytes,
    ) -> Result<Option<u64>, ClientError> {
        let (_inside, view, map) = self.0.enter_write().await?;
        check_range(&view, offset, data.len() as u64)?;
        let extent = one_piece(&view, offset, &expected, &data)?;
        let Some(journal) = self.0.lock.journal() else {
            return self.compare_in(&view, map.as_ref(), offset, &extent, expected, data).await;
        };
        let recorded = journal.compare_and_write(offset, expected.clone(), data.clone()).await?;
        let outcome = self.compare_in(&view, map.as_ref(), offset, &extent, expected, data).await?;
        recorded.done();
        Ok(outcome)
    }

    /// The same inside as a writer, or with the turn for changes.
    pub(crate) async fn compare_in(
        &self,
        view: &View,
        map: Option<&Rc<ObjectMap>>,
        offset: u64,
        extent: &ObjectExtent,
        expected: Bytes,
        data: Bytes,
    ) -> Result<Option<u64>, ClientError> {
        let change = Change::Compare(extent.offset, expected, data);
        match self.change(view, map, extent.object, change).await {
            Ok(()) => Ok(None),
            Err(ClientError::Errno(Errno(code))) if code >= MISMATCH_BASE => {
                Ok(Some(offset + (code - MISMATCH_BASE) as u64))
            }
            Err(error) => Err(error),
        }
    }

    /// Changes an object: see the module.
    pub(crate) fn change<'a>(
        &'a self,
        view: &'a View,
        map: Option<&'a Rc<ObjectMap>>,
        object: u64,
        change: Change,
    ) -> LocalBoxFuture<'a, Result<(), ClientError>> {
        Box::pin(async move {
            let removes = matches!(change, Change::Clear | Change::Delete);
            let head = view.prefix(object, view.overlap);
            let beneath = match change {
                // Nobody but snapshots sees the parent through an object that goes as a whole.
                Change::Clear | Change::Delete if view.header.snapc.snaps.is_empty() => 0,
                _ => head,
            };
            let deletes = matches!(change, Change::Delete) || (removes && head == 0);
            let _using = self.0.objects.enter(object, removes).await;
            let absent = map.is_some_and(|map| map.state(object) == NONEXISTENT);
            let makes =
                matches!(change, Change::Write(..) | Change::Same(..) | Change::Compare(..));
            if absent && !makes && beneath == 0 && (head == 0 || deletes) {
                return Ok(());
            }
            if let Some(map) = map {
                let updated = match deletes && beneath == 0 {
                    true => map.set(object..object + 1, PENDING, None).await,
                    false => map.ensure_exists(object).await,
                };
                self.0.map_updated(map, updated).await?;
            }
            if let (Change::Compare(_, expected, _), 0) = (&change, beneath) {
                self.make_for_compare(view, object, expected).await?;
            }
            self.apply(view, object, &change, beneath, deletes).await?;
            if let (Some(map), true) = (map, deletes) {
                let from = if beneath == 0 { PENDING } else { EXISTS };
                let updated = map.set(object..object + 1, NONEXISTENT, Some(from)).await;
                self.0.map_updated(map, updated).await?;
            }
            Ok(())
        })
    }

    async fn apply(
        &self,
        view: &View,
        object: u64,
        change: &Change,
        beneath: u64,
        deletes: bool,
    ) -> Result<(), ClientError> {
        let oid = view.header.data_object(object);
        let object_size = view.header.layout.object_size();
        let ops = |op: Operation| ops_of(change, op, object_size, deletes);
        let guard = if beneath > 0 { Operation::new().stat() } else { Operation::new() };
        match view.write.operate(oid.clone(), ops(guard)).await {
            Err(ClientError::Errno(Errno::ENOENT)) if beneath > 0 => {}
            Err(ClientError::Errno(Errno::ENOENT)) if deletes => return Ok(()),
            other => return other.map(drop),
        }
        let data = self.parent_data(view, object, beneath).await?;
        let together = view.header.snapc.snaps.is_empty();
        let mut last = Operation::new();
        if together {
            last = last.copy_up(&data);
        } else {
            self.copy_below(view, object, &data).await?;
        }
        if matches!(change, Change::Compare(..)) && together {
            // A comparison does not see what its own operation has written, and undoes it when it
            // fails.
            view.write.operate(oid.clone(), last).await?;
            last = Operation::new();
        }
        match view.write.operate(oid, ops(last)).await {
            Err(ClientError::Errno(Errno::ENOENT)) if deletes => Ok(()),
            other => other.map(drop),
        }
    }

    /// Copies the parent's bytes into an object that is not there, below all snapshots.
    pub(crate) async fn copy_below(
        &self,
        view: &View,
        object: u64,
        data: &CopyUp,
    ) -> Result<(), ClientError> {
        // Snapshots' maps first: an object they do not know is not read.
        for (i, (id, snap)) in view.header.snaps.iter().enumerate() {
            let sees = snap.overlap.is_some_and(|overlap| view.prefix(object, overlap) > 0);
            if sees && view.header.object_map_valid(*id) {
                let clean = i > 0 && view.header.has(features::FAST_DIFF);
                let state = if clean { EXISTS_CLEAN } else { EXISTS };
                let update = Operation::new().object_map_update(
                    object..object + 1,
                    state,
                    Some(NONEXISTENT),
                );
                let oid = names::object_map(&self.0.id, *id);
                match self.0.io.operate(oid, update).await {
                    Ok(_) | Err(ClientError::Errno(Errno::ENOENT)) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        let copy = Operation::new().copy_up(data);
        view.write_below.operate(view.header.data_object(object), copy).await.map(drop)
    }

    /// An object that is not there compares as zeros.
    async fn make_for_compare(
        &self,
        view: &View,
        object: u64,
        expected: &Bytes,
    ) -> Result<(), ClientError> {
        let oid = view.header.data_object(object);
        if !matches!(view.write.stat(oid.clone()).await, Err(ClientError::Errno(Errno::ENOENT))) {
            return Ok(());
        }
        if let Some(first) = expected.iter().position(|b| *b != 0) {
            let offset = i32::try_from(first).map_err(|_| Errno::EINVAL)?;
            return Err(Errno(MISMATCH_BASE + offset).into());
        }
        match view.write.operate(oid, Operation::new().create(true)).await {
            Err(ClientError::Errno(Errno::EEXIST)) => Ok(()),
            other => other.map(drop),
        }
    }
}

/// The extent of a comparison: one stripe of one object, else EINVAL.
pub(crate) fn one_piece(
    view: &View,
    offset: u64,
    expected: &Bytes,
    data: &Bytes,
) -> Result<ObjectExtent, Errno> {
    let mut extents = view.header.layout.extents(offset, data.len() as u64);
    match (extents.pop(), extents.is_empty()) {
        (Some(extent), true) if expected.len() == data.len() && extent.pieces.len() == 1 => {
            Ok(extent)
        }
        _ => Err(Errno::EINVAL),
    }
}

fn check_range(view: &View, offset: u64, len: u64) -> Result<(), ClientError> {
    match offset.checked_add(len) {
        Some(end) if end <= view.size => Ok(()),
        _ => Err(Errno::EINVAL.into()),
    }
}

/// An extent's part of the data; free unless stripes are finer than objects.
fn gather(extent: &ObjectExtent, data: &Bytes) -> Bytes {
    let slice = |(at, len): (u64, u64)| data.slice(at as usize..(at + len) as usize);
    if let [only] = extent.pieces.as_slice() {
        return slice(*only);
    }
    let mut joined = BytesMut::with_capacity(extent.len as usize);
    extent.pieces.iter().for_each(|piece| joined.extend_from_slice(&slice(*piece)));
    joined.freeze()
}

/// How an extent comes to read as zeros; `None` where only less than `granularity` bytes are meant
/// (`ImageDiscardRequest::prune_object_extents` in `src/librbd/io/ImageRequest.cc`).
fn zeros(view: &View, extent: &ObjectExtent, granularity: u64) -> Option<Change> {
    let layout = &view.header.layout;
    let (mut offset, mut end) = (extent.offset, extent.offset + extent.len);
    let granularity = granularity.min(layout.object_size());
    if granularity > 0 && (granularity < layout.object_size() || end < layout.object_size()) {
        offset = offset.next_multiple_of(granularity);
        end -= end % granularity;
    }
    if offset >= end {
        return None;
    }
    // What is behind the image's end is nobody's.
    let to_end = layout.count == 1 && extent.object == layout.objects(view.size) - 1;
    let needed =
        if to_end { (view.size - 1) % layout.object_size() + 1 } else { layout.object_size() };
    Some(match offset == 0 && end >= needed {
        true => Change::Clear,
        false => Change::Zero(offset, end - offset),
    })
}

/// An extent's part of a repeated pattern.
fn same(extent: &ObjectExtent, pattern: &Bytes) -> Change {
    let unit = pattern.len() as u64;
    let turned = |at: u64| {
        let phase = (at % unit) as usize;
        pattern[phase..].iter().chain(&pattern[..phase])
    };
    if let ([(at, len)], 0) = (extent.pieces.as_slice(), extent.len % unit) {
        let pattern: Bytes = turned(*at).copied().collect();
        return Change::Same(extent.offset, *len, pattern);
    }
    let mut data = BytesMut::with_capacity(extent.len as usize);
    for (at, len) in &extent.pieces {
        data.extend(turned(*at).cycle().take(*len as usize).copied());
    }
    Change::Write(extent.offset, data.freeze())
}

fn ops_of(change: &Change, op: Operation, object_size: u64, deletes: bool) -> Operation {
    match change {
        Change::Write(at, data) => op.write(*at, data.clone()),
        Change::Same(offset, length, pattern) => {
            let args = WriteSameArgs {
                offset: *offset,
                length: *length,
                data_length: pattern.len() as u64,
            };
            op.op(OsdOp::with(ops::WRITESAME, args, pattern.clone()))
        }
        Change::Zero(at, len) if at + len == object_size => op.truncate(*at),
        Change::Zero(at, len) => op.zero(*at, *len),
        Change::Clear | Change::Delete if deletes => op.remove(),
        Change::Clear | Change::Delete => op.create(false).truncate(0),
        Change::Compare(at, expected, data) => {
            let len = expected.len() as u64;
            op.op(OsdOp::extent(ops::CMPEXT, *at, len, expected.clone())).write(*at, data.clone())
        }
    }
}
