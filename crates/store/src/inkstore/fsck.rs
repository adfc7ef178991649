//! Consistency of everything with everything.

use std::rc::Rc;

use super::format::{BLOCK_LEN, PageHeader, SUPERBLOCK_SLOTS};
use super::onode::BlockPtr;
use super::read::{ReadGuard, read_blocks};
use super::space::Space;
use super::{Core, Inner};
use crate::StoreError;

/// What a check found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FsckReport {
    /// Objects looked at.
    pub objects: u64,
    /// Data blocks referred to.
    pub blocks: u64,
    /// Data blocks read and compared with their checksums.
    pub blocks_read: u64,
    /// What is wrong, a line each; at most 100.
    pub errors: Vec<String>,
}

const ERRORS_MAX: usize = 100;

impl FsckReport {
    fn error(&mut self, text: String) {
        if self.errors.len() < ERRORS_MAX {
            self.errors.push(text);
        }
    }
}

pub(super) async fn fsck(inner: &Rc<Inner>, read_data: bool) -> Result<FsckReport, StoreError> {
    // Blocks freed by what is not yet durable are neither free nor in use.
    inner.checkpoint(false).await?;
    let mut report = FsckReport::default();
    inner.core.borrow().check_references(&mut report);
    let guard = ReadGuard::begin(inner);
    check_runs(inner, &mut report).await?;
    if read_data {
        let ptrs: Vec<BlockPtr> = {
            let core = inner.core.borrow();
            let ptrs = core.state.onodes().flat_map(|o| o.pointers());
            ptrs.filter(|p| core.inflight.range(..=p.block).next_back().is_none()).collect()
        };
        for ptr in ptrs {
            report.blocks_read += 1;
            match read_blocks(&inner.device, &[ptr]).await {
                Ok(_) => {}
                Err(e) => report.error(format!("data block {}: {e}", ptr.block)),
            }
        }
    }
    drop(guard);
    Ok(report)
}

impl Core {
    /// Counts references again and compares with the allocator and the running sums.
    fn check_references(&self, report: &mut FsckReport) {
        let mut references = vec![0_u32; self.device_blocks as usize];
        let (mut pointers, mut counted) = (0, Space::default());
        for onode in self.state.onodes() {
            report.objects += 1;
            counted.add_object(&onode.oid);
            counted.grow_patches(onode.patch_bytes(), 0);
            for ptr in onode.pointers() {
                pointers += 1;
                references[ptr.block as usize] += 1;
            }
            if self.state.lookup(&onode.cid, &onode.oid).is_none() {
                report.error(format!("{} {} is not in its collection", onode.cid, onode.oid));
            }
        }
        let space = &self.state.space;
        let listed: usize = self.state.colls.values().map(|c| c.objects.len()).sum();
        if (report.objects, pointers) != (space.objects, space.pointers)
            || listed as u64 != report.objects
        {
            report.error(format!(
                "{} objects with {pointers} pointers, but {} with {} counted",
                report.objects, space.objects, space.pointers
            ));
        }
        if counted.name_bytes != space.name_bytes {
            let names = counted.name_bytes;
            report.error(format!("names of {names} bytes, {} counted", space.name_bytes));
        }
        if counted.patch_bytes != space.patch_bytes {
            let patches = counted.patch_bytes;
            report.error(format!("patches of {patches} bytes, {} counted", space.patch_bytes));
        }
        let mut owned = vec![false; self.device_blocks as usize];
        let log_blocks = (self.log.len / BLOCK_LEN) as u32;
        let log_block = self.superblock.log_block as u32;
        let fixed = (0..SUPERBLOCK_SLOTS as u32).chain(log_block..log_block + log_blocks);
        let runs = self.manifest.runs.iter().flat_map(|r| &r.extents);
        let spilled = self.spilled.iter().flat_map(|(_, e)| e);
        let extents = runs.chain(&self.manifest.own).chain(spilled);
        let metadata = fixed.chain(extents.flat_map(|e| e.start..e.end()));
        for block in metadata {
            if std::mem::replace(&mut owned[block as usize], true) {
                report.error(format!("block {block} holds metadata twice"));
            }
        }
        let waiting: std::collections::BTreeSet<u32> = self
            .quarantine
            .iter()
            .flat_map(|(_, blocks)| blocks)
            .chain(&self.pending.freed)
            .chain(&self.pending.freed_again)
            .copied()
            .chain(self.discards.blocks())
            .collect();
        let mut leaked = 0;
        for block in 0..self.device_blocks {
            let count = references[block as usize];
            report.blocks += u64::from(count > 0);
            let used = count > 0 || owned[block as usize];
            if count > 0 && owned[block as usize] {
                report.error(format!("block {block} holds data and metadata"));
            }
            let wrong = used == self.alloc.is_free(block);
            if wrong && (used || !waiting.contains(&block)) {
                leaked += u64::from(!used);
                if used {
                    report.error(format!("block {block} is in use and free"));
                }
            }
            if count > 0 && space.references(block) != count {
                let counted = space.references(block);
                report.error(format!("block {block} has {count} references, {counted} counted"));
            }
        }
        // While something is being committed, blocks it frees are neither.
        if leaked > 0 && self.pending.is_empty() && self.inflight.is_empty() && !self.checkpointing
        {
            report.error(format!("{leaked} blocks neither in use nor free"));
        }
    }
}

/// Reads every block of the checkpoint.
async fn check_runs(inner: &Inner, report: &mut FsckReport) -> Result<(), StoreError> {
    let (uuid, manifest) = {
        let core = inner.core.borrow();
        (core.superblock.uuid, core.manifest.clone())
    };
    for run in &manifest.runs {
        let blocks = run.extents.iter().flat_map(|e| e.start..e.end());
        for (index, block) in blocks.enumerate() {
            let offset = u64::from(block) * BLOCK_LEN;
            let page = inner.device.read(offset, BLOCK_LEN as usize).await?;
            if PageHeader::open(&uuid, &page, run.id, index as u32).is_none() {
                report.error(format!("checkpoint block {block} is damaged"));
            }
        }
    }
    Ok(())
}
