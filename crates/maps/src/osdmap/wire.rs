//! The full map's bytes.
//!
//! ```text
//! v8/c7 { client part v9/c1 | osd part v9/c1 (v10 in stretch mode, v11 with barred ranges) | u32 crc }
//! ```
//!
//! The crc covers every byte but its own four, the outer header included.

use std::sync::Arc;

use bytes::Bytes;
use denc::{Denc, Error, Reader, Writer};
use types::crc::crc32c;

use super::OsdMap;

impl OsdMap {
    /// The encoding and its checksum.
    pub fn encode_with_crc(&self) -> (Bytes, u32) {
        let mut w = Writer::new();
        let crc = self.encode_into(&mut w);
        (w.into_bytes(), crc)
    }

    fn encode_into(&self, w: &mut Writer) -> u32 {
        let start = w.len();
        w.envelope(8, 7, |w| {
            w.envelope(9, 1, |w| self.encode_client(w));
            w.envelope(self.osd_part_version(), 1, |w| self.encode_osd(w));
            w.u32(0);
        });
        let at = w.len() - 4;
        let crc = crc32c(u32::MAX, &w.as_slice()[start..at]);
        w.as_mut_slice()[at..].copy_from_slice(&crc.to_le_bytes());
        crc
    }

    /// The oldest version that says all there is to say.
    fn osd_part_version(&self) -> u8 {
        match (self.range_blocklist.is_empty(), self.stretch_mode_enabled) {
            (false, _) => 11,
            (true, true) => 10,
            (true, false) => 9,
        }
    }

    fn encode_client(&self, w: &mut Writer) {
        w.put(&self.fsid);
        w.u32(self.epoch);
        w.put(&self.created);
        w.put(&self.modified);
        w.put(&self.pools);
        w.put(&self.pool_names);
        w.i32(self.pool_max);
        w.u32(self.flags);
        w.i32(self.max_osd);
        w.put(&self.osd_state);
        w.put(&self.osd_weight);
        w.put(&self.client_addrs);
        w.put(&self.pg_temp);
        w.put(&self.primary_temp);
        w.put(&self.osd_primary_affinity);
        w.counted(|w| self.crush.encode(w));
        w.put(&self.erasure_code_profiles);
        w.put(&self.pg_upmap);
        w.put(&self.pg_upmap_items);
        w.i32(self.crush_version);
        w.put(&self.new_removed_snaps);
        w.put(&self.new_purged_snaps);
        w.put(&self.last_up_change);
        w.put(&self.last_in_change);
    }

    fn encode_osd(&self, w: &mut Writer) {
        w.put(&self.hb_back_addrs);
        w.put(&self.osd_info);
        w.put(&self.blocklist);
        w.put(&self.cluster_addrs);
        w.u32(self.cluster_snapshot_epoch);
        w.put(&self.cluster_snapshot);
        w.put(&self.osd_uuid);
        w.put(&self.osd_xinfo);
        w.put(&self.hb_front_addrs);
        w.f32(self.nearfull_ratio);
        w.f32(self.full_ratio);
        w.f32(self.backfillfull_ratio);
        w.u8(self.require_min_compat_client);
        w.u8(self.require_osd_release);
        w.put(&self.removed_snaps_queue);
        w.put(&self.crush_node_flags);
        w.put(&self.device_class_flags);
        if self.osd_part_version() >= 10 {
            w.bool(self.stretch_mode_enabled);
            w.u32(self.stretch_bucket_count);
            w.u32(self.degraded_stretch_mode);
            w.u32(self.recovering_stretch_mode);
            w.i32(self.stretch_mode_bucket);
        }
        if self.osd_part_version() >= 11 {
            w.put(&self.range_blocklist);
        }
    }

    fn decode_client(&mut self, r: &mut Reader<'_>, _: u8) -> Result<(), Error> {
        self.fsid = r.get()?;
        self.epoch = r.u32()?;
        self.created = r.get()?;
        self.modified = r.get()?;
        self.pools = r.get()?;
        self.pool_names = r.get()?;
        self.pool_max = r.i32()?;
        self.flags = r.u32()?;
        self.max_osd = r.i32()?;
        self.osd_state = r.get()?;
        self.osd_weight = r.get()?;
        self.client_addrs = r.get()?;
        self.pg_temp = r.get()?;
        self.primary_temp = r.get()?;
        self.osd_primary_affinity = r.get()?;
        self.crush = Arc::new(r.counted(|r| r.get())?);
        self.erasure_code_profiles = r.get()?;
        self.pg_upmap = r.get()?;
        self.pg_upmap_items = r.get()?;
        self.crush_version = r.i32()?;
        self.new_removed_snaps = r.get()?;
        self.new_purged_snaps = r.get()?;
        self.last_up_change = r.get()?;
        self.last_in_change = r.get()?;
        Ok(())
    }

    fn decode_osd(&mut self, r: &mut Reader<'_>, v: u8) -> Result<(), Error> {
        self.hb_back_addrs = r.get()?;
        self.osd_info = r.get()?;
        self.blocklist = r.get()?;
        self.cluster_addrs = r.get()?;
        self.cluster_snapshot_epoch = r.u32()?;
        self.cluster_snapshot = r.get()?;
        self.osd_uuid = r.get()?;
        self.osd_xinfo = r.get()?;
        self.hb_front_addrs = r.get()?;
        self.nearfull_ratio = r.f32()?;
        self.full_ratio = r.f32()?;
        self.backfillfull_ratio = r.f32()?;
        self.require_min_compat_client = r.u8()?;
        self.require_osd_release = r.u8()?;
        self.removed_snaps_queue = r.get()?;
        self.crush_node_flags = r.get()?;
        self.device_class_flags = r.get()?;
        if v >= 10 {
            self.stretch_mode_enabled = r.bool()?;
            self.stretch_bucket_count = r.u32()?;
            self.degraded_stretch_mode = r.u32()?;
            self.recovering_stretch_mode = r.u32()?;
            self.stretch_mode_bucket = r.i32()?;
        }
        if v >= 11 {
            self.range_blocklist = r.get()?;
        }
        Ok(())
    }

    /// Refuses vectors that are not as long as max_osd says: everything else indexes them by it.
    fn check_lengths(&self) -> Result<(), Error> {
        let n = usize::try_from(self.max_osd)
            .map_err(|_| Error::Invalid { what: "max_osd", value: self.max_osd as u32 as u64 })?;
        let lengths = [
            self.osd_state.len(),
            self.osd_weight.len(),
            self.client_addrs.len(),
            self.cluster_addrs.len(),
            self.hb_back_addrs.len(),
            self.hb_front_addrs.len(),
            self.osd_info.len(),
            self.osd_xinfo.len(),
            self.osd_uuid.len(),
        ];
        match lengths.into_iter().find(|len| *len != n) {
            Some(len) => Err(Error::Invalid { what: "length by max_osd", value: len as u64 }),
            None => Ok(()),
        }
    }
}

impl Denc for OsdMap {
    fn encode(&self, w: &mut Writer) {
        self.encode_into(w);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, Error> {
        r.envelope("OSDMap", 8, 8, |r, _| {
            let mut map = OsdMap::default();
            r.envelope("OSDMap client part", 9, 9, |r, v| map.decode_client(r, v))?;
            r.envelope("OSDMap osd part", 11, 9, |r, v| map.decode_osd(r, v))?;
            map.crc = r.u32()?;
            map.check_lengths()?;
            Ok(map)
        })
    }
}
