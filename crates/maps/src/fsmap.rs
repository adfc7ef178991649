//! The file systems. Wire: FSMap v7 (`src/mds/FSMap.cc` at v16.2).
//!
//! This system runs no MDS: what describes one is kept as its bytes, so that a map from elsewhere
//! re-encodes exactly.

use std::collections::BTreeMap;

use bytes::Bytes;
use command::Formatter;
use denc::{Denc, Error, Reader, Writer};
use types::Epoch;
use types::osd::{CompatSet, FeatureSet};

/// A versioned struct kept as it came: the bytes behind its envelope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opaque {
    /// Version it was written with.
    pub version: u8,
    /// Oldest reader.
    pub compat: u8,
    /// Its fields.
    pub body: Bytes,
}

impl Denc for Opaque {
    fn encode(&self, w: &mut Writer) {
        w.u8(self.version);
        w.u8(self.compat);
        w.blob(&self.body);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(Opaque { version: r.u8()?, compat: r.u8()?, body: r.blob()? })
    }
}

/// What an MDS map of 16.2 requires when no MDS has said otherwise.
fn mds_default() -> CompatSet {
    CompatSet {
        incompat: FeatureSet::of(&[
            (1, "base v0.20"),
            (2, "client writeable ranges"),
            (3, "default file layouts on dirs"),
            (4, "dir inode in separate object"),
            (5, "mds uses versioned encoding"),
            (6, "dirfrag is stored in omap"),
            (8, "no anchor table"),
            (9, "file layout v2"),
            (10, "snaprealm v2"),
        ]),
        ..CompatSet::default()
    }
}

/// The map of the file systems.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FsMap {
    /// This map's number.
    pub epoch: Epoch,
    /// Id of the next file system.
    pub next_filesystem_id: u64,
    /// File system of clients that name none, -1: none.
    pub legacy_client_fscid: i32,
    /// What new file systems require.
    pub default_compat: CompatSet,
    /// Whether there may be several.
    pub enable_multiple: bool,
    /// File systems.
    pub filesystems: Vec<Opaque>,
    /// MDS global id to its file system, -1: waits.
    pub mds_roles: BTreeMap<u64, i32>,
    /// MDSs that wait.
    pub standby_daemons: BTreeMap<u64, Opaque>,
    /// Epoch each was last changed in.
    pub standby_epochs: BTreeMap<u64, Epoch>,
    /// Whether there ever could be several.
    pub ever_enabled_multiple: bool,
}

impl Default for FsMap {
    /// No file system: the first map of a fresh cluster.
    fn default() -> FsMap {
        FsMap {
            epoch: 1,
            next_filesystem_id: 1,
            legacy_client_fscid: -1,
            default_compat: mds_default(),
            enable_multiple: true,
            filesystems: Vec::new(),
            mds_roles: BTreeMap::new(),
            standby_daemons: BTreeMap::new(),
            standby_epochs: BTreeMap::new(),
            ever_enabled_multiple: true,
        }
    }
}

impl Denc for FsMap {
    fn encode(&self, w: &mut Writer) {
        w.envelope(7, 6, |w| {
            w.u32(self.epoch);
            w.u64(self.next_filesystem_id);
            w.i32(self.legacy_client_fscid);
            w.put(&self.default_compat);
            w.bool(self.enable_multiple);
            w.put(&self.filesystems);
            w.put(&self.mds_roles);
            w.put(&self.standby_daemons);
            w.put(&self.standby_epochs);
            w.bool(self.ever_enabled_multiple);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, Error> {
        r.envelope("FSMap", 7, 7, |r, _| {
            Ok(FsMap {
                epoch: r.u32()?,
                next_filesystem_id: r.u64()?,
                legacy_client_fscid: r.i32()?,
                default_compat: r.get()?,
                enable_multiple: r.bool()?,
                filesystems: r.get()?,
                mds_roles: r.get()?,
                standby_daemons: r.get()?,
                standby_epochs: r.get()?,
                ever_enabled_multiple: r.bool()?,
            })
        })
    }
}

fn dump_compat(compat: &CompatSet, f: &mut Formatter) {
    f.object("compat", |f| {
        for (name, set) in sets(compat) {
            f.object(name, |f| {
                for (n, name) in &set.names {
                    f.dump_string(&format!("feature_{n}"), name);
                }
            });
        }
    });
}

fn compat_text(compat: &CompatSet) -> String {
    let texts = sets(compat).map(|(name, set)| {
        let names: Vec<String> = set.names.iter().map(|(n, name)| format!("{n}={name}")).collect();
        format!("{}={{{}}}", name.replace('_', ""), names.join(","))
    });
    texts.join(",")
}

fn sets(compat: &CompatSet) -> [(&'static str, &FeatureSet); 3] {
    [("compat", &compat.compat), ("ro_compat", &compat.ro_compat), ("incompat", &compat.incompat)]
}

impl FsMap {
    /// The members of `fs dump -f json` of a map without file systems.
    pub fn dump(&self, f: &mut Formatter) {
        f.dump_int("epoch", self.epoch);
        f.dump_int("default_fscid", self.legacy_client_fscid);
        dump_compat(&self.default_compat, f);
        f.object("feature_flags", |f| {
            f.dump_bool("enable_multiple", self.enable_multiple);
            f.dump_bool("ever_enabled_multiple", self.ever_enabled_multiple);
        });
        f.array("standbys", |_| {});
        f.array("filesystems", |_| {});
    }

    /// The text of `fs dump` of a map without file systems.
    pub fn print(&self) -> String {
        format!(
            "e{}\nenable_multiple, ever_enabled_multiple: {},{}\ndefault compat: {}\nlegacy client \
             fscid: {}\n \nNo filesystems configured\n",
            self.epoch,
            u8::from(self.enable_multiple),
            u8::from(self.ever_enabled_multiple),
            compat_text(&self.default_compat),
            self.legacy_client_fscid
        )
    }
}
