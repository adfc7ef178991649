//! Resizing: the object map is never shorter than the image (`src/librbd/operation/
//! ResizeRequest.cc`, `TrimRequest.cc` at v16.2).

use futures_util::future::LocalBoxFuture;
use types::Errno;

use super::image::{Image, View};
use super::journal::OpChange;
use super::names::features;
use super::object_map;
use super::progress::{OnProgress, Progress, many, unwatched};
use super::write::{Change, OBJECTS_AT_A_TIME};
use crate::{ClientError, Operation};

impl Image {
    /// Grows (with zeros) or cuts.
    pub async fn resize(&self, size: u64) -> Result<(), ClientError> {
        let _turn = self.0.begin_change().await?;
        self.check_size(size)?;
        {
            // With a journal no write may come between the entry and the change.
            let _blocked = match self.0.lock.journal() {
                Some(_) => Some(self.0.block_writes().await),
                None => None,
            };
            let resize = OpChange::Resize { size };
            self.0.journaled(resize, self.resize_in_turn(size)).await?;
        }
        self.0.header_changed().await
    }

    fn check_size(&self, size: u64) -> Result<(), Errno> {
        let header = &self.0.view().header;
        let objects = header.layout.objects(size);
        match header.has(features::OBJECT_MAP) && objects > object_map::OBJECTS_MAX {
            true => Err(Errno::EFBIG),
            false => Ok(()),
        }
    }

    pub(crate) fn resize_in_turn(&self, size: u64) -> LocalBoxFuture<'_, Result<(), ClientError>> {
        Box::pin(async move {
            let view = self.0.view();
            let objects = view.header.layout.objects(size);
            self.check_size(size)?;
            let map = self.0.lock.object_map();
            let set_size = Operation::new().rbd_write("set_size", |w| w.u64(size));
            if size >= view.size {
                if let Some(map) = &map {
                    map.resize(objects).await?;
                }
                self.0.locked_op(set_size).await?;
                return self.0.refresh().await;
            }
            let _blocked = self.0.block_writes().await;
            let view = self.0.view();
            self.trim(&view, size).await?;
            self.0.locked_op(set_size).await?;
            if let Some(map) = &map {
                map.resize(objects).await?;
            }
            self.0.refresh().await
        })
    }

    /// Removes what lies behind `size`, with no writes under way.
    pub(crate) async fn trim(&self, view: &View, size: u64) -> Result<(), ClientError> {
        self.trim_with(view, size, &unwatched).await
    }

    /// The same, told how far it has come.
    pub(crate) async fn trim_with(
        &self,
        view: &View,
        size: u64,
        tell: OnProgress<'_>,
    ) -> Result<(), ClientError> {
        let layout = view.header.layout;
        let map = self.0.lock.object_map();
        let set = layout.object_size() * layout.count;
        // Whole sets behind the new end go, objects before them are cut.
        let kept_sets = size.div_ceil(set);
        let first_gone = kept_sets * layout.count;
        let objects = layout.objects(view.size);
        let gone = (first_gone..objects)
            .map(|object| self.change(view, map.as_ref(), object, Change::Delete));
        let progress = Progress::new(tell, objects.saturating_sub(first_gone));
        many(gone, OBJECTS_AT_A_TIME, || progress.step()).await?;
        let cut_end = (kept_sets * set).min(view.size);
        if size >= cut_end {
            return Ok(());
        }
        for extent in layout.extents(size, cut_end - size) {
            if extent.offset == 0 {
                self.change(view, map.as_ref(), extent.object, Change::Delete).await?;
            } else {
                self.cut(view, extent.object, extent.offset).await?;
            }
        }
        Ok(())
    }

    /// Cuts an object that lies partly behind the image's new end. One that is not there needs no
    /// cut, for of the parent no more than the new size is seen; but if snapshots go on seeing
    /// more of the parent, they get their copy now, while the head still sees as much: a later one
    /// would show the head what had been cut.
    async fn cut(&self, view: &View, object: u64, len: u64) -> Result<(), ClientError> {
        let snaps = !view.header.snapc.snaps.is_empty();
        if snaps && view.prefix(object, view.overlap) > len {
            let end = view.header.layout.object_size();
            let map = self.0.lock.object_map();
            return self.change(view, map.as_ref(), object, Change::Zero(len, end - len)).await;
        }
        let oid = view.header.data_object(object);
        if let Some(map) = self.0.lock.object_map() {
            if map.state(object) == object_map::NONEXISTENT {
                return Ok(());
            }
            self.0.map_updated(&map, map.ensure_exists(object).await).await?;
        }
        let cut = Operation::new().stat().truncate(len);
        match view.write.operate(oid, cut).await {
            Ok(_) | Err(ClientError::Errno(Errno::ENOENT)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
