//! The managers. Wire: MgrMap v12, and v11 as 16.2.0 wrote it (`src/mon/MgrMap.h` at v16.2).

use std::collections::{BTreeMap, BTreeSet};

use command::Formatter;
use denc::{Denc, Error, Reader, Writer};
use types::{AddrVec, Epoch, UTime};

use crate::osdmap::{dump_addr, dump_addrvec};
use crate::release::release_name;

/// An option of a module.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct ModuleOption {
    /// Its name.
    pub name: String,
    /// Option::type_t: 0 uint, 1 int, 2 str, 3 float, 4 bool, ...
    pub kind: u8,
    /// Option::level_t: 0 basic, 1 advanced, 2 dev.
    pub level: u8,
    /// Option::flag_t bits.
    pub flags: u32,
    /// Default, as text.
    pub default_value: String,
    /// Minimum, as text.
    pub min: String,
    /// Maximum, as text.
    pub max: String,
    /// Values allowed, if any are named.
    pub enum_allowed: BTreeSet<String>,
    /// One line.
    pub desc: String,
    /// More.
    pub long_desc: String,
    /// Tags.
    pub tags: BTreeSet<String>,
    /// Related options.
    pub see_also: BTreeSet<String>,
}

/// A module a manager has.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 2, compat = 1)]
pub struct ModuleInfo {
    /// Its name.
    pub name: String,
    /// Whether it can run there.
    pub can_run: bool,
    /// Why not.
    pub error_string: String,
    /// Its options.
    #[denc(since = 2)]
    pub module_options: BTreeMap<String, ModuleOption>,
}

/// A manager that waits.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 4, compat = 1)]
pub struct StandbyInfo {
    /// Its global id.
    pub gid: u64,
    /// Its name, without `mgr.`.
    pub name: String,
    /// Modules it can run (for readers before v3).
    #[denc(since = 2)]
    pub modules: BTreeSet<String>,
    /// Modules it has.
    #[denc(since = 3)]
    pub available_modules: Vec<ModuleInfo>,
    /// Its feature bits.
    #[denc(since = 4)]
    pub mgr_features: u64,
}

/// The map of the managers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MgrMap {
    /// This map's number.
    pub epoch: Epoch,
    /// Where the active one listens.
    pub active_addrs: AddrVec,
    /// Its global id, 0 when there is none.
    pub active_gid: u64,
    /// Whether it serves.
    pub available: bool,
    /// Its name.
    pub active_name: String,
    /// The others by global id.
    pub standbys: BTreeMap<u64, StandbyInfo>,
    /// Modules switched on.
    pub modules: BTreeSet<String>,
    /// URLs of services by module.
    pub services: BTreeMap<String, String>,
    /// Modules the active one has.
    pub available_modules: Vec<ModuleInfo>,
    /// When the active one changed.
    pub active_change: UTime,
    /// Modules that cannot be switched off, by release number.
    pub always_on_modules: BTreeMap<u32, BTreeSet<String>>,
    /// Feature bits of the active one.
    pub active_mgr_features: u64,
    /// OSD map epoch by which the last active one is certainly blocklisted.
    pub last_failure_osd_epoch: Epoch,
    /// Addresses of the clients inside the active one.
    pub clients: Vec<AddrVec>,
    /// Names of those clients; `None` in a map from 16.2.0 (v11).
    pub client_names: Option<Vec<String>>,
}

impl MgrMap {
    /// Whether a manager of that name is active or waits.
    pub fn contains_name(&self, name: &str) -> bool {
        self.active_name == name || self.standbys.values().any(|s| s.name == name)
    }

    /// Names of all managers, the active one first.
    pub fn all_names(&self) -> Vec<String> {
        let active = (!self.active_name.is_empty()).then(|| self.active_name.clone());
        active.into_iter().chain(self.standbys.values().map(|s| s.name.clone())).collect()
    }

    /// Modules always on in a release.
    pub fn always_on(&self, release: u32) -> BTreeSet<String> {
        self.always_on_modules.get(&release).cloned().unwrap_or_default()
    }
}

impl Denc for MgrMap {
    fn encode(&self, w: &mut Writer) {
        let version = if self.client_names.is_some() { 12 } else { 11 };
        w.envelope(version, 6, |w| {
            w.u32(self.epoch);
            w.put(&self.active_addrs);
            w.u64(self.active_gid);
            w.bool(self.available);
            w.put(&self.active_name);
            w.put(&self.standbys);
            w.put(&self.modules);
            w.put(&self.services);
            w.put(&self.available_modules);
            w.put(&self.active_change);
            w.put(&self.always_on_modules);
            w.u64(self.active_mgr_features);
            w.u32(self.last_failure_osd_epoch);
            w.put(&self.clients);
            if let Some(names) = &self.client_names {
                w.put(names);
            }
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, Error> {
        r.envelope("MgrMap", 12, 11, |r, v| {
            Ok(MgrMap {
                epoch: r.u32()?,
                active_addrs: r.get()?,
                active_gid: r.u64()?,
                available: r.bool()?,
                active_name: r.get()?,
                standbys: r.get()?,
                modules: r.get()?,
                services: r.get()?,
                available_modules: r.get()?,
                active_change: r.get()?,
                always_on_modules: r.get()?,
                active_mgr_features: r.u64()?,
                last_failure_osd_epoch: r.u32()?,
                clients: r.get()?,
                client_names: if v >= 12 { Some(r.get()?) } else { None },
            })
        })
    }
}

impl ModuleOption {
    /// The members of the option's document.
    pub fn dump(&self, f: &mut Formatter) {
        const TYPES: [&str; 11] = [
            "uint",
            "int",
            "str",
            "float",
            "bool",
            "addr",
            "addrvec",
            "uuid",
            "size",
            "secs",
            "millisecs",
        ];
        const LEVELS: [&str; 3] = ["basic", "advanced", "dev"];
        let name =
            |names: &[&'static str], n: u8| names.get(usize::from(n)).copied().unwrap_or("unknown");
        let set = |f: &mut Formatter, key: &str, item: &str, values: &BTreeSet<String>| {
            f.array(key, |f| values.iter().for_each(|value| f.dump_string(item, value)));
        };
        f.dump_string("name", &self.name);
        f.dump_string("type", name(&TYPES, self.kind));
        f.dump_string("level", name(&LEVELS, self.level));
        f.dump_unsigned("flags", self.flags);
        f.dump_string("default_value", &self.default_value);
        f.dump_string("min", &self.min);
        f.dump_string("max", &self.max);
        set(f, "enum_allowed", "value", &self.enum_allowed);
        f.dump_string("desc", &self.desc);
        f.dump_string("long_desc", &self.long_desc);
        set(f, "tags", "tag", &self.tags);
        set(f, "see_also", "option", &self.see_also);
    }
}

impl ModuleInfo {
    /// The module's document.
    pub fn dump(&self, f: &mut Formatter) {
        f.object("module", |f| {
            f.dump_string("name", &self.name);
            f.dump_bool("can_run", self.can_run);
            f.dump_string("error_string", &self.error_string);
            f.object("module_options", |f| {
                for (name, option) in &self.module_options {
                    f.object(name, |f| option.dump(f));
                }
            });
        });
    }
}

impl MgrMap {
    /// The members of `mgr dump -f json`.
    pub fn dump(&self, f: &mut Formatter) {
        f.dump_int("epoch", self.epoch);
        f.dump_int("active_gid", self.active_gid as i64);
        f.dump_string("active_name", &self.active_name);
        dump_addrvec(f, "active_addrs", &self.active_addrs);
        f.dump_stream("active_addr", self.active_addrs.legacy_text());
        f.dump_stream("active_change", self.active_change);
        f.dump_unsigned("active_mgr_features", self.active_mgr_features);
        f.dump_bool("available", self.available);
        f.array("standbys", |f| {
            for standby in self.standbys.values() {
                f.object("standby", |f| {
                    f.dump_int("gid", standby.gid as i64);
                    f.dump_string("name", &standby.name);
                    f.dump_unsigned("mgr_features", standby.mgr_features);
                    f.array("available_modules", |f| {
                        standby.available_modules.iter().for_each(|module| module.dump(f));
                    });
                });
            }
        });
        f.array("modules", |f| self.modules.iter().for_each(|m| f.dump_string("module", m)));
        f.array("available_modules", |f| {
            self.available_modules.iter().for_each(|module| module.dump(f));
        });
        f.object("services", |f| {
            self.services.iter().for_each(|(name, url)| f.dump_string(name, url));
        });
        f.object("always_on_modules", |f| {
            for (release, modules) in &self.always_on_modules {
                let release = u8::try_from(*release).unwrap_or(0);
                f.array(release_name(release), |f| {
                    modules.iter().for_each(|module| f.dump_string("module", module));
                });
            }
        });
        f.dump_int("last_failure_osd_epoch", self.last_failure_osd_epoch);
        f.array("active_clients", |f| {
            for (i, addrs) in self.clients.iter().enumerate() {
                f.object("client", |f| {
                    if let Some(name) = self.client_names.as_ref().and_then(|names| names.get(i)) {
                        f.dump_string("name", name);
                    }
                    f.array("addrvec", |f| {
                        for addr in addrs.iter() {
                            f.object("addr", |f| dump_addr(f, addr));
                        }
                    });
                });
            }
        });
    }
}
