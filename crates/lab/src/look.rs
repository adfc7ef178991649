//! All counts of one moment: the stores', the OSDs' and the devices'.

use std::time::Duration;

use crate::causes::{self, Counters};
use crate::cell::{Cell, Kernel};
use crate::cluster::{Cluster, Session};
use crate::{LabError, ceph, disk};

/// See the module.
#[derive(Debug, Clone)]
pub(crate) struct Look {
    pub(crate) counters: Counters,
    sectors: Option<(u64, u64)>,
    pages: Option<u64>,
}

impl Look {
    /// Once nothing has been written for `still`, and the file system below is quiet.
    pub(crate) async fn at_rest(
        cluster: &Cluster,
        session: &Session,
        still: Duration,
    ) -> Result<Look, LabError> {
        let mut counters = session.settled(still).await?;
        if let Some(disk) = cluster.disk() {
            disk.quiet()?;
            if ceph::causes::are_of_ceph(&counters) {
                // Its sectors are among them.
                counters = session.counters().await?;
            }
        }
        Look::new(counters, cluster)
    }

    /// With these counters, and what the kernel says now.
    fn new(counters: Counters, cluster: &Cluster) -> Result<Look, LabError> {
        let sectors = cluster.disk().map(|disk| disk.sectors()).transpose()?;
        Ok(Look { counters, sectors, pages: cluster.page_bytes() })
    }

    /// What came between another moment and this one, in which clients wrote so many bytes.
    pub(crate) fn since(
        &self,
        before: &Look,
        cluster: &Cluster,
        client: u64,
    ) -> Result<Cell, LabError> {
        let mut grown = causes::grown(&before.counters, &self.counters).map_err(LabError::new)?;
        if ceph::causes::are_of_ceph(&grown) {
            let (data, journal) = cluster.disk().map_or((0, 0), |disk| disk.quiet_cost());
            for (name, cost) in [
                (ceph::counters::device(disk::DATA), data),
                (ceph::counters::device(disk::FS_JOURNAL), journal),
            ] {
                let bytes = grown.get(&name).copied().unwrap_or(0);
                let less = cost.min(bytes);
                grown.entry(name).and_modify(|n| *n -= less);
                grown.entry("written".into()).and_modify(|n| *n -= less);
            }
            return Cell::new(client, grown, None);
        }
        let sectors = cluster.disk().zip(before.sectors.zip(self.sectors));
        let kernel = sectors.map(|(disk, (before_sectors, sectors))| Kernel {
            device: disk.grown(before_sectors, sectors),
            pages: before.pages.zip(self.pages).and_then(|(b, a)| a.checked_sub(b)),
        });
        Cell::new(client, grown, kernel)
    }
}
