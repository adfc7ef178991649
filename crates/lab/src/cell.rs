//! What was measured in one interval: counters, causes, and what the kernel saw.

use serde_json::{Value, json};

use crate::LabError;
use crate::causes::{Breakdown, Cause, Counters};

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

impl Cell {
    /// Sorts the counters; with sectors of the devices also what the file system added.
    pub(crate) fn new(
        client: u64,
        counters: Counters,
        device: Option<(u64, u64)>,
    ) -> Result<Cell, LabError> {
        let mut causes =
            Breakdown::of(&counters, client * REPLICAS).map_err(LabError::new)?;
        if let Some((data, journal)) = device {
            // What the file system wrote beyond the store's bytes: inodes, bitmaps, directories,
            // and what a page has that the store did not write. Less than the store wrote: files
            // that were removed or written again before the kernel got to them.
            causes.add(Cause::FsMetadata, data.saturating_sub(causes.sum()));
            causes.add(Cause::FsJournal, journal);
        }
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

    /// What the devices' sectors say beyond the causes' sum: 0 when all is accounted for.
    pub(crate) fn difference(&self) -> Option<i64> {
        let (data, journal) = self.device?;
        i64::try_from(data + journal).ok()?.checked_sub_unsigned(self.causes.sum())
    }

    pub(crate) fn to_json(&self) -> Value {
        let causes: serde_json::Map<String, Value> =
            Cause::ALL.iter().map(|c| (c.name().to_owned(), json!(self.causes.bytes(*c)))).collect();
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
        let counters = Counters::from([("written".into(), 40), ("written_data".into(), 40)]);
        let cell = Cell::new(10, counters, Some((64, 8))).unwrap();
        assert_eq!(cell.causes.bytes(Cause::FsMetadata), 24);
        assert_eq!(cell.difference(), Some(0));
        assert_eq!(Cell::from_json(&cell.to_json()), Some(cell));
    }
}
