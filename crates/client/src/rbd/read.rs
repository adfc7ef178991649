//! Reading: objects side by side, zeros where there is none, the parent beneath.

use bytes::Bytes;
use futures_util::future::join_all;
use types::{BufferList, Errno};

use super::image::{Image, View};
use super::object_map::NONEXISTENT;
use super::striping::ObjectExtent;
use crate::ClientError;

static ZEROS: [u8; 65536] = [0; 65536];

/// Whether a piece of a read stands for zeros that nobody has written: a hole.
pub fn is_hole(piece: &Bytes) -> bool {
    piece.as_ptr() == ZEROS.as_ptr()
}

/// Appends zeros without memory of their own.
pub(crate) fn push_zeros(list: &mut BufferList, mut len: u64) {
    while len > 0 {
        let some = len.min(ZEROS.len() as u64);
        list.push(Bytes::from_static(&ZEROS[..some as usize]));
        len -= some;
    }
}

/// A stretch of an image with content of its own or of a parent (`true`), or known to be zeros.
pub type Allocated = (u64, bool);

impl Image {
    /// Reads a range, which must lie in the image (EINVAL). The pieces are the network's own
    /// buffers.
    pub async fn read(&self, offset: u64, len: u64) -> Result<BufferList, ClientError> {
        let view = self.0.view_to_read().await?;
        if offset.checked_add(len).is_none_or(|end| end > view.size) {
            return Err(Errno::EINVAL.into());
        }
        match self.read_view(&view, offset, len).await {
            // What lay beneath is gone; then this image needs it no more.
            Err(ClientError::Errno(Errno::ENOENT)) if view.parent.is_some() => {
                self.0.refresh().await?;
                self.read_view(&self.0.view(), offset, len).await
            }
            outcome => outcome,
        }
    }

    async fn read_view(
        &self,
        view: &View,
        offset: u64,
        len: u64,
    ) -> Result<BufferList, ClientError> {
        let extents = view.header.layout.extents(offset, len);
        if let [only] = extents.as_slice()
            && only.pieces.len() == 1
        {
            return self.read_object(view, only).await;
        }
        let reads = extents.iter().map(|extent| self.read_object(view, extent));
        let mut pieces = Vec::new();
        for (extent, data) in extents.iter().zip(join_all(reads).await) {
            let (data, mut at) = (data?, 0);
            for (place, len) in &extent.pieces {
                pieces.push((*place, data.slice(at, *len as usize)));
                at += *len as usize;
            }
        }
        pieces.sort_by_key(|(place, _)| *place);
        let mut list = BufferList::new();
        pieces.iter().for_each(|(_, data)| list.append(data));
        Ok(list)
    }

    /// Whether the object map says that there is no such object.
    fn known_absent(&self, view: &View, object: u64) -> bool {
        if let Some(map) = &view.snap_map {
            return object < map.len() && map.state(object) == NONEXISTENT;
        }
        match self.0.lock.object_map() {
            Some(map) if object < map.objects() => map.state(object) == NONEXISTENT,
            _ => false,
        }
    }

    async fn read_object(
        &self,
        view: &View,
        extent: &ObjectExtent,
    ) -> Result<BufferList, ClientError> {
        let read = if self.known_absent(view, extent.object) {
            Err(ClientError::Errno(Errno::ENOENT))
        } else {
            let oid = view.header.data_object(extent.object);
            view.read.read(oid, extent.offset, extent.len).await
        };
        let mut list = BufferList::new();
        match read {
            Ok(data) => {
                list.push(data.slice(..data.len().min(extent.len as usize)));
            }
            Err(ClientError::Errno(Errno::ENOENT)) => {
                let prefix = view.prefix(extent.object, view.overlap);
                if prefix > extent.offset {
                    let end = (extent.offset + extent.len).min(prefix);
                    list = self.read_parent(view, extent.object, extent.offset, end).await?;
                }
            }
            Err(error) => return Err(error),
        }
        let missing = extent.len - list.len() as u64;
        push_zeros(&mut list, missing);
        Ok(list)
    }

    /// What the parent holds for bytes `from..to` of an object, all of them within the overlap.
    pub(crate) async fn read_parent(
        &self,
        view: &View,
        object: u64,
        from: u64,
        to: u64,
    ) -> Result<BufferList, ClientError> {
        let Some(parent) = &view.parent else { return Ok(BufferList::new()) };
        let mut list = BufferList::new();
        let below = parent.0.fresh_view().await?;
        for range in view.header.layout.image_ranges(object, from..to) {
            let inside = range.start.min(below.size)..range.end.min(below.size);
            let len = inside.end - inside.start;
            let read = Box::pin(parent.read_view(&below, inside.start, len));
            list.append(&read.await?);
            push_zeros(&mut list, range.end - range.start - len);
        }
        Ok(list)
    }

    /// What the object map knows of a range: stretches with or without content. `None` when no
    /// map can be trusted here (the feature is off, or another may write).
    pub fn allocation(&self, offset: u64, len: u64) -> Option<Vec<Allocated>> {
        let view = self.0.view();
        if self.0.is_outdated() || offset.checked_add(len)? > view.size {
            return None;
        }
        let head = self.0.lock.object_map();
        let state = |object: u64| match (&view.snap_map, &head) {
            (Some(map), _) if object < map.len() => Some(map.state(object)),
            (None, Some(map)) if object < map.objects() => Some(map.state(object)),
            _ => None,
        };
        // Extents come by object; stretches are wanted in the order of the image.
        let mut pieces = Vec::new();
        for extent in view.header.layout.extents(offset, len) {
            // One whose removal was begun may be there still.
            let here = state(extent.object)? != NONEXISTENT;
            let beneath = view.prefix(extent.object, view.overlap) > extent.offset;
            pieces.extend(extent.pieces.iter().map(|(at, len)| (*at, *len, here || beneath)));
        }
        pieces.sort_unstable();
        let mut stretches: Vec<Allocated> = Vec::new();
        for (_, len, allocated) in pieces {
            match stretches.last_mut() {
                Some(last) if last.1 == allocated => last.0 += len,
                _ => stretches.push((len, allocated)),
            }
        }
        Some(stretches)
    }
}
