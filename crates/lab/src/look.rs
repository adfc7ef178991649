//! All counts of one moment: the stores', the OSDs' and the devices'.

use crate::LabError;
use crate::causes::{self, Counters};
use crate::cell::{Cell, Kernel};
use crate::cluster::Cluster;

/// See the module.
#[derive(Debug, Clone)]
pub(crate) struct Look {
    pub(crate) counters: Counters,
    sectors: Option<(u64, u64)>,
    pages: Option<u64>,
}

impl Look {
    /// With these counters, and what the kernel says now.
    pub(crate) fn new(counters: Counters, cluster: &Cluster) -> Result<Look, LabError> {
        let sectors = cluster.disk().map(|disk| disk.sectors()).transpose()?;
        Ok(Look {
            counters,
            sectors,
            pages: cluster.page_bytes(),
        })
    }

    /// What came between another moment and this one, in which clients wrote so many bytes.
    pub(crate) fn since(
        &self,
        before: &Look,
        cluster: &Cluster,
        client: u64,
    ) -> Result<Cell, LabError> {
        let grown = causes::grown(&before.counters, &self.counters).map_err(LabError::new)?;
        let sectors = cluster.disk().zip(before.sectors.zip(self.sectors));
        let kernel = sectors.map(|(disk, (before_sectors, sectors))| Kernel {
            device: disk.grown(before_sectors, sectors),
            pages: before
                .pages
                .zip(self.pages)
                .and_then(|(b, a)| a.checked_sub(b)),
        });
        Cell::new(client, grown, kernel)
    }
}
