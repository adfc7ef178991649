//! A transaction as the operations see it: what [`write`](super::write) does to extents.

use bytes::Bytes;

use super::format::Onode;
use super::pools::pool_of;
use super::read::read;
use super::txn::Txn;
use super::write;
use crate::keyed::apply::Objects;
use crate::keyed::changes::Changes;
use crate::{CollId, StoreError};

impl<'a> Objects<'a> for Txn<'a> {
    type Onode = Onode;

    fn changes(&mut self) -> &mut Changes<'a, Onode> {
        &mut self.changes
    }

    fn enter(&mut self, cid: &CollId) {
        self.pool = pool_of(cid);
    }

    fn new_id(&mut self) -> u64 {
        self.next_id()
    }

    fn new_onode(&mut self) -> Onode {
        Onode { nid: self.next_id(), ..Onode::default() }
    }

    fn read(&self, onode: &Onode, offset: u64, len: u64) -> Result<Bytes, StoreError> {
        read(self, onode, offset, len)
    }

    fn write(
        &mut self,
        cid: &CollId,
        onode: &mut Onode,
        offset: u64,
        data: &Bytes,
    ) -> Result<(), StoreError> {
        let compression = self.core.compression_in(cid);
        self.keeping_count(onode, |txn, onode| write::write(txn, compression, onode, offset, data))
    }

    fn zero(&mut self, onode: &mut Onode, offset: u64, len: u64) -> Result<(), StoreError> {
        self.keeping_count(onode, |txn, onode| write::zero(txn, onode, offset, len))
    }

    fn truncate(&mut self, onode: &mut Onode, size: u64) -> Result<(), StoreError> {
        self.keeping_count(onode, |txn, onode| write::truncate(txn, onode, size))
    }

    /// Shares all data.
    fn copy(&mut self, from: &Onode) -> Result<Onode, StoreError> {
        let copy = Onode { nid: self.next_id(), omap_head: 0, ..from.clone() };
        write::share(self, from, &copy)?;
        let behind = self.behind_end(&copy)?;
        self.change_behind_ends(0, behind);
        Ok(copy)
    }
}
