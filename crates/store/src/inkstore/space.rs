//! Who refers to which block, and how much there is of everything.

use std::collections::BTreeMap;

use types::hobject::GhObject;

use super::entries::ENTRY_NAMES;

/// References to blocks and sums over all objects. Rebuilt at mount by [`Space::add`] on every
/// pointer, kept up to date by the operations that change an object.
#[derive(Debug, Default)]
pub(super) struct Space {
    /// References beyond the first, of blocks that have more than one.
    shared: BTreeMap<u32, u32>,
    /// Blocks that lost their last reference, to be freed once that is durable.
    pub(super) freed: Vec<u32>,
    /// References to blocks, each counted.
    pub(super) pointers: u64,
    /// Blocks referred to.
    pub(super) blocks: u64,
    /// Bytes of omap keys, values and headers.
    pub(super) omap_bytes: u64,
    /// Bytes of xattrs and of data kept among the metadata.
    pub(super) attr_bytes: u64,
    /// The latter alone.
    pub(super) patch_bytes: u64,
    /// Objects.
    pub(super) objects: u64,
    /// Bytes of their names.
    pub(super) name_bytes: u64,
    /// True while the log is replayed: references are counted afterwards, over what remains.
    pub(super) replaying: bool,
}

impl Space {
    /// A first reference to a block just allocated.
    pub(super) fn add_new(&mut self, _block: u32) {
        if !self.replaying {
            self.pointers += 1;
            self.blocks += 1;
        }
    }

    /// One more reference to a block that has one.
    pub(super) fn add_shared(&mut self, block: u32) {
        if !self.replaying {
            self.pointers += 1;
            *self.shared.entry(block).or_insert(0) += 1;
        }
    }

    /// A reference is gone.
    pub(super) fn drop_ref(&mut self, block: u32) {
        if self.replaying {
            return;
        }
        self.pointers -= 1;
        match self.shared.get_mut(&block) {
            Some(1) => {
                self.shared.remove(&block);
            }
            Some(n) => *n -= 1,
            None => {
                self.blocks -= 1;
                self.freed.push(block);
            }
        }
    }

    /// Whether more than one pointer refers to the block.
    pub(super) fn is_shared(&self, block: u32) -> bool {
        self.shared.contains_key(&block)
    }

    /// References to a block with at least one.
    pub(super) fn references(&self, block: u32) -> u32 {
        1 + self.shared.get(&block).copied().unwrap_or(0)
    }

    pub(super) fn add_object(&mut self, oid: &GhObject) {
        self.objects += 1;
        self.name_bytes += name_len(oid);
    }

    pub(super) fn drop_object(&mut self, oid: &GhObject) {
        self.objects -= 1;
        self.name_bytes -= name_len(oid);
    }

    pub(super) fn grow_omap(&mut self, added: usize, removed: usize) {
        if !self.replaying {
            self.omap_bytes = (self.omap_bytes + added as u64).saturating_sub(removed as u64);
        }
    }

    pub(super) fn grow_attrs(&mut self, added: usize, removed: usize) {
        if !self.replaying {
            self.attr_bytes = (self.attr_bytes + added as u64).saturating_sub(removed as u64);
        }
    }

    pub(super) fn grow_patches(&mut self, added: usize, removed: usize) {
        self.grow_attrs(added, removed);
        if !self.replaying {
            self.patch_bytes = (self.patch_bytes + added as u64).saturating_sub(removed as u64);
        }
    }

    /// An upper estimate of the bytes that all metadata takes in a checkpoint. The name stands in front of an
    /// object's head, chunks and keys; again in front of more of these, of which it is a small part.
    pub(super) fn metadata_estimate(&self) -> u64 {
        let held = self.pointers * 10 + self.omap_bytes * 9 / 8;
        let named = held + held / ENTRY_NAMES as u64;
        named + self.attr_bytes * 5 / 4 + self.objects * 300 + self.name_bytes * 3
    }
}

fn name_len(oid: &GhObject) -> u64 {
    (oid.hobj.name.len() + oid.hobj.namespace.len() + oid.hobj.key.len()) as u64
}
