//! Reads of data.

use std::ops::Range;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::format::{Onode, Prefix};
use super::txn::stripe;
use super::{Core, apply};
use crate::keyed::Keys;
use crate::keyed::keys::behind;
use crate::keyed::read::{Reads, push_extent};
use crate::kv::{Direction, Kv, storage};
use crate::room::{TIGHT_SHARE, Taken};
use crate::{Fsck, FsckOptions, Statfs, StoreError};

impl Keys for Core {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.kv.get(key).map_err(storage)
    }

    fn scan(
        &self,
        start: &[u8],
        end: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        let scanned = self.kv.scan(start, end, Direction::Forwards, visit);
        scanned.map_err(storage)
    }
}

impl Reads for Core {
    type Onode = Onode;

    fn data(&self, onode: &Onode, offset: u64, len: u64) -> Result<Bytes, StoreError> {
        let stripe_at = |at| stripe(onode, at, |key| self.get(key));
        apply::read(onode, offset, len, stripe_at)
    }

    fn extents_of(
        &self,
        onode: &Onode,
        offset: u64,
        len: u64,
    ) -> Result<Vec<Range<u64>>, StoreError> {
        let stripe_len = u64::from(onode.stripe_size);
        let end = offset.saturating_add(len).min(onode.size);
        let mut found = Vec::new();
        for stripe in onode.present() {
            let (from, to) = (stripe.max(offset), (stripe + stripe_len).min(end));
            push_extent(&mut found, from, to);
        }
        Ok(found)
    }

    fn check_all(&self, options: FsckOptions) -> Result<Fsck, StoreError> {
        self.check_keys(options)
    }

    fn database(&self) -> &dyn Kv {
        &*self.kv
    }

    fn space(&self) -> Result<Statfs, StoreError> {
        if self.failed.load(Ordering::Relaxed) {
            return Err(StoreError::Latched);
        }
        let data = self.totals().data;
        let found = self.found()?;
        let omap = Prefix::Omap.key();
        let omap = self.kv.range_bytes(&omap, &behind(&omap)).map_err(storage)?;
        let available = self.room.measure(found, Taken::default(), data);
        if available < self.limit / TIGHT_SHARE {
            self.kv.reclaim();
        }
        Ok(Statfs {
            total: self.limit,
            available,
            allocated: data,
            data_stored: data,
            omap_allocated: omap,
            internal_metadata: found.database.saturating_sub(omap),
            ..Statfs::default()
        })
    }
}
