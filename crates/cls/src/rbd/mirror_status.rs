//! Peers, mirrored images and their states, as methods exchange them
//! (`src/cls/rbd/cls_rbd_types.h` at v16.2).

use bstr::BString;
use bytes::Bytes;
use denc::{Denc, Error, Reader, Writer};
use types::{EntityAddr, EntityName, UTime};

/// Directions of mirroring between this pool and a peer. Wire: u8.
pub mod direction {
    /// From the peer.
    pub const RX: u8 = 0;
    /// To the peer.
    pub const TX: u8 = 1;
    /// Both.
    pub const RX_TX: u8 = 2;
}

/// Mirror modes of a pool. Wire: u32.
pub mod mode {
    /// No mirroring.
    pub const DISABLED: u32 = 0;
    /// Images that are told to.
    pub const IMAGE: u32 = 1;
    /// All images with a journal.
    pub const POOL: u32 = 2;
}

/// States of a mirrored image. Wire: u8.
pub mod image_state {
    /// Being taken out.
    pub const DISABLING: u8 = 0;
    /// Mirrored.
    pub const ENABLED: u8 = 1;
    /// Not mirrored.
    pub const DISABLED: u8 = 2;
    /// Being taken in.
    pub const CREATING: u8 = 3;
}

/// States of a mirrored image's replay. Wire: u8.
pub mod status_state {
    /// Nobody says.
    pub const UNKNOWN: u8 = 0;
    /// It failed.
    pub const ERROR: u8 = 1;
}

/// A peer. Wire: cls::rbd::MirrorPeer v2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirrorPeer {
    /// Its id here.
    pub uuid: BString,
    /// One of [`direction`].
    pub direction: u8,
    /// Its site name.
    pub site_name: BString,
    /// The RX client's name.
    pub client_name: BString,
    /// Its own mirror uuid.
    pub mirror_uuid: BString,
    /// When it last spoke.
    pub last_seen: UTime,
}

impl Default for MirrorPeer {
    fn default() -> MirrorPeer {
        MirrorPeer {
            uuid: BString::default(),
            direction: direction::RX_TX,
            site_name: BString::default(),
            client_name: BString::default(),
            mirror_uuid: BString::default(),
            last_seen: UTime::default(),
        }
    }
}

impl MirrorPeer {
    /// Whether all is there that its direction needs.
    pub fn is_valid(&self) -> bool {
        let has_client = match self.direction {
            direction::TX => true,
            direction::RX | direction::RX_TX => !self.client_name.is_empty(),
            _ => false,
        };
        has_client && !self.uuid.is_empty() && !self.site_name.is_empty()
    }
}

impl Denc for MirrorPeer {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 1, |w| {
            w.put(&self.uuid);
            w.put(&self.site_name);
            w.put(&self.client_name);
            w.i64(-1); // the pool, in old releases
            w.u8(self.direction);
            w.put(&self.mirror_uuid);
            w.put(&self.last_seen);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<MirrorPeer, Error> {
        r.envelope("MirrorPeer", 2, 1, |r, v| {
            let mut peer = MirrorPeer {
                uuid: r.get()?,
                site_name: r.get()?,
                client_name: r.get()?,
                ..MirrorPeer::default()
            };
            r.i64()?;
            if v >= 2 {
                peer.direction = r.get()?;
                peer.mirror_uuid = r.get()?;
                peer.last_seen = r.get()?;
            }
            Ok(peer)
        })
    }
}

/// A mirrored image. Wire: cls::rbd::MirrorImage v2.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 2, compat = 1)]
pub struct MirrorImage {
    /// Its id on all sites.
    pub global_image_id: BString,
    /// One of [`image_state`].
    pub state: u8,
    /// journal 0, snapshot 1.
    #[denc(since = 2)]
    pub mode: u8,
}

/// An image's state at one site. Wire: cls::rbd::MirrorImageSiteStatus v1 for this site, v2 for
/// others.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MirrorImageSiteStatus {
    /// The site, empty for this one.
    pub mirror_uuid: BString,
    /// One of [`status_state`] and more.
    pub state: u8,
    /// In words.
    pub description: BString,
    /// When it was told.
    pub last_update: UTime,
    /// Whether the one who told it is still there.
    pub up: bool,
}

impl MirrorImageSiteStatus {
    fn encode_fields(&self, version: u8, w: &mut Writer) {
        if version >= 2 {
            w.put(&self.mirror_uuid);
        }
        w.u8(self.state);
        w.put(&self.description);
        w.put(&self.last_update);
        w.bool(self.up);
    }

    fn decode_fields(version: u8, r: &mut Reader<'_>) -> Result<MirrorImageSiteStatus, Error> {
        Ok(MirrorImageSiteStatus {
            mirror_uuid: if version >= 2 { r.get()? } else { BString::default() },
            state: r.get()?,
            description: r.get()?,
            last_update: r.get()?,
            up: r.get()?,
        })
    }
}

impl Denc for MirrorImageSiteStatus {
    fn encode(&self, w: &mut Writer) {
        let version = if self.mirror_uuid.is_empty() { 1 } else { 2 };
        w.envelope(version, version, |w| self.encode_fields(version, w));
    }

    fn decode(r: &mut Reader<'_>) -> Result<MirrorImageSiteStatus, Error> {
        r.envelope("MirrorImageSiteStatus", 2, 1, |r, v| MirrorImageSiteStatus::decode_fields(v, r))
    }
}

/// A client and its address, always of type any. Wire: entity_inst_t.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instance {
    /// Who.
    pub name: EntityName,
    /// Where.
    pub addr: EntityAddr,
}

impl Instance {
    /// Whether one speaks messenger v1 or v2 does not tell clients apart.
    pub fn new(name: EntityName, addr: EntityAddr) -> Instance {
        Instance { name, addr: addr.as_any() }
    }
}

impl Denc for Instance {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.name);
        w.put(&self.addr);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Instance, Error> {
        Ok(Instance::new(r.get()?, r.get()?))
    }
}

/// An image's state at one site, as stored. Wire: cls::rbd::MirrorImageSiteStatusOnDisk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSiteStatus {
    /// Who told it.
    pub origin: Instance,
    /// What.
    pub status: MirrorImageSiteStatus,
}

impl Denc for StoredSiteStatus {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| w.put(&self.origin));
        w.put(&self.status);
    }
    fn decode(r: &mut Reader<'_>) -> Result<StoredSiteStatus, Error> {
        Ok(StoredSiteStatus {
            origin: r.envelope("StoredSiteStatus", 1, 1, |r, _| r.get())?,
            status: r.get()?,
        })
    }
}

/// An image's state at all sites. Wire: cls::rbd::MirrorImageStatus v2.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MirrorImageStatus {
    /// This site first, if it is known.
    pub sites: Vec<MirrorImageSiteStatus>,
}

impl MirrorImageStatus {
    /// This site's.
    pub fn local(&self) -> Option<&MirrorImageSiteStatus> {
        self.sites.iter().find(|site| site.mirror_uuid.is_empty())
    }

    /// The other sites'.
    pub fn remote(&self) -> impl Iterator<Item = &MirrorImageSiteStatus> {
        self.sites.iter().filter(|site| !site.mirror_uuid.is_empty())
    }
}

impl Denc for MirrorImageStatus {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 1, |w| {
            let local = self.local();
            local.cloned().unwrap_or_default().encode_fields(1, w);
            w.bool(local.is_some());
            w.count(self.remote().count());
            self.remote().for_each(|site| site.encode_fields(2, w));
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<MirrorImageStatus, Error> {
        r.envelope("MirrorImageStatus", 2, 1, |r, v| {
            let local = MirrorImageSiteStatus::decode_fields(1, r)?;
            let mut sites = Vec::new();
            if v < 2 || r.bool()? {
                sites.push(local);
            }
            if v >= 2 {
                for _ in 0..r.count(1)? {
                    sites.push(MirrorImageSiteStatus::decode_fields(v, r)?);
                }
            }
            Ok(MirrorImageStatus { sites })
        })
    }
}

/// Which mirror daemon replays an image. Wire: cls::rbd::MirrorImageMap v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct MirrorImageMap {
    /// The daemon.
    pub instance_id: BString,
    /// Since when.
    pub mapped_time: UTime,
    /// The policy's own.
    pub data: Bytes,
}
