//! What an OSD knows of itself when it starts, and the feature sets of on-disk formats.

use std::collections::BTreeMap;

use denc::{Denc, Error, Reader, Writer};

use crate::ids::{Epoch, OsdId};
use crate::time::UTime;
use crate::uuid::Uuid;

/// Numbered features with names. Wire: u64 mask with bit 0 cleared, map u64 → text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FeatureSet {
    /// Names by number, 1 to 63.
    pub names: BTreeMap<u64, String>,
}

impl FeatureSet {
    /// A set of (number, name).
    pub fn of(features: &[(u64, &str)]) -> FeatureSet {
        FeatureSet { names: features.iter().map(|&(id, name)| (id, name.to_owned())).collect() }
    }
}

impl Denc for FeatureSet {
    fn encode(&self, w: &mut Writer) {
        let bits = self.names.keys().filter(|&&id| id < 64).map(|&id| 1 << id);
        let mask: u64 = bits.fold(0, |mask, bit: u64| mask | bit);
        w.u64(mask & !1);
        w.put(&self.names);
    }
    fn decode(r: &mut Reader<'_>) -> Result<FeatureSet, Error> {
        r.u64()?;
        Ok(FeatureSet { names: r.get()? })
    }
}

/// What a reader of a store must, may and must for writing know. Wire: CompatSet, bare.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
pub struct CompatSet {
    /// May be unknown.
    pub compat: FeatureSet,
    /// Must be known to write.
    pub ro_compat: FeatureSet,
    /// Must be known.
    pub incompat: FeatureSet,
}

impl CompatSet {
    /// The names of what one with these features must know, and does not, to write what has `other`'s.
    pub fn lacks<'a>(&self, other: &'a CompatSet) -> Vec<&'a str> {
        let unknown = |own: &FeatureSet, other: &'a FeatureSet| {
            let known: Vec<u64> = own.names.keys().copied().collect();
            other.names.iter().filter(move |(id, _)| !known.contains(id)).map(|(_, name)| &name[..])
        };
        unknown(&self.incompat, &other.incompat)
            .chain(unknown(&self.ro_compat, &other.ro_compat))
            .collect()
    }
}

/// Wire: OSDSuperblock v10/c5; v9, of 16.2's first releases, is read.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OsdSuperblock {
    /// The cluster.
    pub cluster_fsid: Uuid,
    /// This OSD's store.
    pub osd_fsid: Uuid,
    /// This OSD.
    pub whoami: OsdId,
    /// Newest map applied.
    pub current_epoch: Epoch,
    /// Oldest map stored.
    pub oldest_map: Epoch,
    /// Newest map stored.
    pub newest_map: Epoch,
    /// Its weight when last used.
    pub weight: f64,
    /// Features of the store.
    pub compat_features: CompatSet,
    /// First epoch of the last run.
    pub mounted: Epoch,
    /// Last epoch of the last run that ended well.
    pub clean_thru: Epoch,
    /// Up to which epoch purged snapshots are recorded.
    pub purged_snaps_last: Epoch,
    /// When purged snapshots were last scrubbed.
    pub last_purged_snaps_scrub: UTime,
    /// Oldest map the monitors still have.
    pub cluster_osdmap_trim_lower_bound: Epoch,
}

impl Denc for OsdSuperblock {
    fn encode(&self, w: &mut Writer) {
        w.envelope(10, 5, |w| {
            w.put(&self.cluster_fsid);
            w.i32(self.whoami);
            w.u32(self.current_epoch);
            w.u32(self.oldest_map);
            w.u32(self.newest_map);
            w.f64(self.weight);
            w.put(&self.compat_features);
            w.u32(self.clean_thru);
            w.u32(self.mounted);
            w.put(&self.osd_fsid);
            w.u32(0); // last_map_marked_full
            w.u32(0); // pool_last_map_marked_full
            w.u32(self.purged_snaps_last);
            w.put(&self.last_purged_snaps_scrub);
            w.u32(self.cluster_osdmap_trim_lower_bound);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<OsdSuperblock, Error> {
        r.envelope("OsdSuperblock", 10, 9, |r, v| {
            let mut sb = OsdSuperblock {
                cluster_fsid: r.get()?,
                whoami: r.i32()?,
                current_epoch: r.u32()?,
                oldest_map: r.u32()?,
                newest_map: r.u32()?,
                weight: r.f64()?,
                compat_features: r.get()?,
                clean_thru: r.u32()?,
                mounted: r.u32()?,
                osd_fsid: r.get()?,
                ..OsdSuperblock::default()
            };
            r.u32()?;
            let _full: BTreeMap<i64, u32> = r.get()?;
            sb.purged_snaps_last = r.u32()?;
            sb.last_purged_snaps_scrub = r.get()?;
            if v >= 10 {
                sb.cluster_osdmap_trim_lower_bound = r.u32()?;
            }
            Ok(sb)
        })
    }
}
