//! What was measured in one interval: counters, causes, and what the kernel saw.

use serde_json::{Value, json};

use crate::causes::{Breakdown, Cause, Counters};
use crate::{LabError, ceph, disk};

/// Replicas in every experiment.
pub(crate) const REPLICAS: u64 = 3;

/// One interval.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Cell {
    /// Bytes the client wrote.
    pub(crate) client: u64,
    /// What the stores of all OSDs counted.
    pub(crate) counters: Counters,
    /// Those bytes by cause, and the file system's where they are known.
    pub(crate) causes: Breakdown,
    /// Bytes the kernel wrote to the devices: data device and journal device. `None`: not known.
    pub(crate) device: Option<(u64, u64)>,
}

/// What the kernel says of an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kernel {
    /// Bytes written to the data device and to the device of the file system's journal.
    pub(crate) device: (u64, u64),
    /// Bytes the OSDs wrote, in whole pages.
    pub(crate) pages: Option<u64>,
}

impl Cell {
    /// Sorts the counters; with the kernel's word also what the file system added.
    pub(crate) fn new(
        client: u64,
        counters: Counters,
        kernel: Option<Kernel>,
    ) -> Result<Cell, LabError> {
        let mut causes = Breakdown::of(&counters, client * REPLICAS).map_err(LabError::new)?;
        if let Some(Kernel { device: (data, journal), pages }) = kernel {
            // Beyond the store's bytes: the rest of the pages they are in (a log's last page is
            // written again with each sync), then inodes, bitmaps, directories. Less than the
            // store's: files removed or written again before the kernel got to them.
            let beyond = data.saturating_sub(causes.sum());
            let pages = pages.unwrap_or(0).saturating_sub(causes.sum()).min(beyond);
            causes.add(Cause::Padding, pages);
            causes.add(Cause::FsMetadata, beyond - pages);
            causes.add(Cause::FsJournal, journal);
            causes.0.retain(|_, n| *n > 0);
        }
        // Of a real Ceph the devices are all that is known, and the causes are their shares.
        let of_ceph = || {
            let journal = counters.get(&ceph::counters::device(disk::FS_JOURNAL));
            let journal = journal.copied().unwrap_or(0);
            Some((causes.sum() - journal.min(causes.sum()), journal))
        };
        let device = match ceph::causes::are_of_ceph(&counters) {
            true => of_ceph(),
            false => kernel.map(|k| k.device),
        };
        Ok(Cell { client, counters, causes, device })
    }

    /// Bytes written for each byte of the client.
    pub(crate) fn waf(&self) -> f64 {
        self.waf_of(self.causes.sum())
    }

    /// One cause's share.
    pub(crate) fn cause_waf(&self, cause: Cause) -> f64 {
        self.waf_of(self.causes.bytes(cause))
    }

    fn waf_of(&self, bytes: u64) -> f64 {
        if self.client == 0 { 0.0 } else { bytes as f64 / self.client as f64 }
    }

    /// Both intervals together.
    pub(crate) fn plus(mut self, other: Cell) -> Cell {
        self.client += other.client;
        for (name, n) in other.counters {
            *self.counters.entry(name).or_default() += n;
        }
        for (cause, n) in other.causes.0 {
            self.causes.add(cause, n);
        }
        self.device = self
            .device
            .zip(other.device)
            .map(|((d, j), (other_d, other_j))| (d + other_d, j + other_j));
        self
    }

    /// What the devices' sectors say beyond the causes' sum: 0 when all is accounted for.
    pub(crate) fn difference(&self) -> Option<i64> {
        let (data, journal) = self.device?;
        i64::try_from(data + journal).ok()?.checked_sub_unsigned(self.causes.sum())
    }

    pub(crate) fn to_json(&self) -> Value {
        let causes: serde_json::Map<String, Value> = Cause::ALL
            .iter()
            .map(|c| (c.name().to_owned(), json!(self.causes.bytes(*c))))
            .collect();
        json!({
            "client_bytes": self.client,
            "waf": self.waf(),
            "sum_of_causes": self.causes.sum(),
            "device_bytes": self.device.map(|(data, journal)| data + journal),
            "device_data_bytes": self.device.map(|d| d.0),
            "device_journal_bytes": self.device.map(|d| d.1),
            "difference": self.difference(),
            "causes": causes,
            "counters": self.counters,
        })
    }

    /// What [`Cell::to_json`] made.
    pub(crate) fn from_json(value: &Value) -> Option<Cell> {
        let number = |name: &str| value[name].as_u64();
        let counters = value["counters"].as_object()?;
        let counters = counters.iter().filter_map(|(k, v)| Some((k.clone(), v.as_u64()?)));
        let device = number("device_data_bytes").zip(number("device_journal_bytes"));
        let causes = Cause::ALL.into_iter().filter_map(|c| {
            let bytes = value["causes"][c.name()].as_u64()?;
            (bytes > 0).then_some((c, bytes))
        });
        Some(Cell {
            client: number("client_bytes")?,
            counters: counters.collect(),
            causes: Breakdown(causes.collect()),
            device,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_the_same_after_json() {
        let counters = Counters::from([("written".into(), 40), ("written_journal".into(), 40)]);
        let kernel = Kernel { device: (64, 8), pages: Some(50) };
        let cell = Cell::new(10, counters, Some(kernel)).unwrap();
        assert_eq!(cell.causes.bytes(Cause::Padding), 10);
        assert_eq!(cell.causes.bytes(Cause::FsMetadata), 14);
        assert_eq!(cell.causes.bytes(Cause::FsJournal), 8);
        assert_eq!(cell.difference(), Some(0));
        assert_eq!(Cell::from_json(&cell.to_json()), Some(cell));
    }
}
