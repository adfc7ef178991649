//! Subscriptions: what sessions want to be told, and telling them (`Monitor::handle_subscribe` at
//! v16.2).
//!
//! | name | sent |
//! |---|---|
//! | `monmap` `mgrmap` `osdmap` `servicemap` | the map, when its epoch is at or above `next` |
//! | `fsmap` `fsmap.user` `mdsmap` `mdsmap.N` | file systems and MDSs: `mds/subs.rs` |
//! | `osd_pg_creates` | placement groups the OSD is to make |
//! | `config` | options, when they differ from those sent last |
//! | `log-LEVEL` | lines of the cluster log |
//! | `mgrdigest` | state of the monitors, by the clock |
//! | `kv:PREFIX` | entries of the config-key store |

use std::collections::BTreeMap;

use denc::Denc;
use messages::{
    MConfig, MGetConfig, MKVData, MMonSubscribe, MMonSubscribeAck, MServiceMap, SUBSCRIBE_ONETIME,
};
use types::{Epoch, RawMessage, entity};

use crate::config_db::Entity;
use crate::core::MonCore;
use crate::event::wire;
use crate::event::{Effect, SessionId};
use crate::session::{SUBSCRIPTIONS_MAX, Subscription};

impl MonCore {
    pub(crate) fn on_subscribe(&mut self, from: SessionId, raw: &RawMessage, m: MMonSubscribe) {
        let Some(session) = self.sessions.get_mut(&from) else { return };
        if !m.hostname.is_empty() {
            session.remote_host = m.hostname;
        }
        let mut names = Vec::new();
        let mut first_config = false;
        for (what, item) in m.what {
            if session.subs.len() >= SUBSCRIPTIONS_MAX && !session.subs.contains_key(&what) {
                continue;
            }
            let once = item.flags & SUBSCRIBE_ONETIME != 0;
            // Without `mon r` one may follow the monitors themselves and one's own options.
            if !matches!(what.as_str(), "monmap" | "config")
                && !session.caps.allows(&session.peer, "mon", "r")
            {
                continue;
            }
            if what == "config" {
                session.last_config = None;
                first_config = true;
            }
            if let Some(level) = what.strip_prefix("log-") {
                // One level at a time.
                let stem = format!("log-{level}");
                session.subs.retain(|name, _| !name.starts_with("log-") || *name == stem);
            }
            if what == "osdmap" && item.start <= u64::from(session.osd_epoch) {
                // What it was sent it asks for again: it could not use it.
                session.osd_epoch = 0;
            }
            session.subs.insert(what.clone(), Subscription { next: item.start, once });
            names.push(what);
        }
        let _ = first_config;
        // Ceph's order: by name, but the maps that others refer to are in place anyway.
        for name in names {
            self.serve_subscription(from, &name);
        }
        let stateful = self.sessions.get(&from).is_some_and(|s| {
            types::features::has(s.peer.features, types::features::MON_STATEFUL_SUB)
        });
        if !stateful {
            let interval = self.conf.uint("mon_subscribe_interval") as u32;
            let ack = MMonSubscribeAck { interval, fsid: self.monmap.fsid };
            self.send_now(from, wire(&ack).with_tid(raw.header.tid));
        }
    }

    /// Sends a subscription what is due.
    pub(crate) fn serve_subscription(&mut self, id: SessionId, name: &str) {
        let Some(session) = self.sessions.get(&id) else { return };
        let Some(sub) = session.subs.get(name).copied() else { return };
        let peer = session.peer.clone();
        let may = |service: &str| session.caps.allows(&peer, service, "r");
        let next = match name {
            "monmap" => {
                let epoch = u64::from(self.published_monmap.epoch);
                if sub.next > epoch || !may("mon") {
                    return;
                }
                self.send_monmap(id);
                epoch + 1
            }
            "osdmap" => {
                if !may("osd") || sub.next > u64::from(self.osd.published.epoch) {
                    return;
                }
                if sub.next >= 1 {
                    self.send_incrementals(id, sub.next as Epoch, sub.once);
                } else {
                    self.send_full_map(id);
                }
                u64::from(self.osd.published.epoch) + 1
            }
            "mgrmap" => {
                // Everybody may know where the manager is.
                if sub.next > u64::from(self.mgr.published.epoch) {
                    return;
                }
                self.send_mgrmap(id);
                u64::from(self.mgr.published.epoch) + 1
            }
            _ if matches!(name, "fsmap" | "fsmap.user" | "mdsmap")
                || name.starts_with("mdsmap.") =>
            {
                if !may("mds") {
                    return;
                }
                let Some(next) = self.serve_fsmap(id, name, sub.next) else { return };
                next
            }
            "servicemap" => {
                let map = self.stat.published.clone();
                if sub.next > u64::from(map.epoch) || !may("mgr") {
                    return;
                }
                let epoch = u64::from(map.epoch);
                self.send_now(id, wire(&MServiceMap { service_map: map }));
                epoch + 1
            }
            "mgrdigest" => {
                let m = self.digest();
                self.send_now(id, wire(&m));
                sub.next
            }
            "osd_pg_creates" => self.send_pg_creates(id, sub.next as Epoch).into(),
            "config" => {
                self.send_config(id);
                sub.next.max(1)
            }
            _ => {
                if let Some(level) = name.strip_prefix("log-") {
                    if !may("log") {
                        return;
                    }
                    self.publish_log(id, level, sub.next)
                } else if let Some(prefix) = name.strip_prefix("kv:") {
                    if !may("config-key") && !peer.name.is_mgr() {
                        return;
                    }
                    self.publish_kv(id, prefix, sub.next)
                } else {
                    return;
                }
            }
        };
        if let Some(session) = self.sessions.get_mut(&id) {
            if sub.once {
                session.subs.remove(name);
            } else if let Some(sub) = session.subs.get_mut(name) {
                sub.next = next;
            }
        }
    }

    /// After a commit: everybody hears what is new to him.
    pub(crate) fn publish_maps(&mut self) {
        self.refresh_health();
        self.write_clog();
        let all: Vec<(SessionId, Vec<String>)> = self
            .sessions
            .iter()
            .map(|(id, s)| {
                let names = s
                    .subs
                    .keys()
                    .filter(|name| !matches!(name.as_str(), "mgrdigest" | "config"))
                    .cloned()
                    .collect();
                (*id, names)
            })
            .collect();
        if !self.kv_dirty.is_empty() {
            self.kv_version += 1;
        }
        for (id, names) in all {
            for name in names {
                self.serve_subscription(id, &name);
            }
        }
        self.kv_dirty.clear();
        for (id, start) in std::mem::take(&mut self.maps_later) {
            let has = self.sessions.get(&id).map_or(0, |s| s.osd_epoch);
            if has < self.osd.published.epoch {
                self.send_latest(id, start);
            }
        }
    }

    /// Sends maps from `start` on after the commit of what is pending.
    pub(crate) fn send_map_later(&mut self, to: SessionId, start: Epoch) {
        self.maps_later.insert(to, start);
    }

    /// The options of one entity.
    fn config_of(&self, name: &types::AuthEntityName, host: &str) -> BTreeMap<String, String> {
        let (location, class) = self.crush_place_of(name);
        let text = name.to_string();
        let who = Entity { name: &text, host, location: &location, device_class: &class };
        self.config_db
            .for_entity(&who)
            .into_iter()
            .map(|(name, setting)| (name, setting.value.clone()))
            .collect()
    }

    fn send_config(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get(&id) else { return };
        let config = self.config_of(&session.peer.auth_name, &session.remote_host);
        if session.last_config.as_ref() == Some(&config) {
            return;
        }
        self.send_now(id, wire(&MConfig { config: config.clone() }));
        if let Some(session) = self.sessions.get_mut(&id) {
            session.last_config = Some(config);
        }
    }

    /// Options changed: sessions and the monitor itself get theirs.
    pub(crate) fn publish_config(&mut self) {
        self.config_changed = false;
        let own = types::AuthEntityName::new(entity::MON, self.identity.name.clone());
        let host = self.identity.metadata.get("hostname").cloned().unwrap_or_default();
        let config = self.config_of(&own, &host);
        self.effect(Effect::OwnConfig(config));
        let ids: Vec<SessionId> = self
            .sessions
            .values()
            .filter(|s| s.subs.contains_key("config"))
            .map(|s| s.id)
            .collect();
        for id in ids {
            self.send_config(id);
        }
    }

    pub(crate) fn on_get_config(&mut self, from: SessionId, raw: &RawMessage, m: MGetConfig) {
        let config = self.config_of(&m.name, &m.host);
        self.send(from, wire(&MConfig { config }).with_tid(raw.header.tid));
    }

    fn publish_kv(&mut self, id: SessionId, prefix: &str, next: u64) -> u64 {
        let version = self.kv_version;
        if next > version {
            return next;
        }
        let whole = next < version || next == 0 || self.kv_dirty.is_empty();
        let mut m = MKVData {
            version,
            prefix: prefix.to_string(),
            incremental: false,
            data: BTreeMap::new(),
        };
        if whole {
            m.incremental = false;
            let entries = self.config_keys(prefix).unwrap_or_default();
            m.data = entries.into_iter().map(|(key, value)| (key, Some(value))).collect();
        } else {
            m.incremental = true;
            m.data = self
                .kv_dirty
                .iter()
                .filter(|(key, _)| key.starts_with(prefix))
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect();
            if m.data.is_empty() {
                return version + 1;
            }
        }
        self.send_now(id, wire(&m));
        version + 1
    }

    /// CRUSH location and device class of an OSD; nothing for others.
    pub(crate) fn crush_place_of(
        &self,
        name: &types::AuthEntityName,
    ) -> (Vec<(String, String)>, String) {
        let Ok(osd) = name.id.parse::<i32>() else { return Default::default() };
        if name.kind_u8() != entity::OSD {
            return Default::default();
        }
        let crush = &self.osd.published.crush;
        let class = crush.class_of(osd).unwrap_or_default().to_string();
        (crush.full_location(osd), class)
    }

    /// Host of a daemon as its metadata says.
    pub(crate) fn host_of(&self, name: &types::AuthEntityName) -> String {
        let facts = match name.kind_u8() {
            entity::OSD => name.id.parse().ok().and_then(|id: i32| self.osd.metadata.get(&id)),
            entity::MGR => self.mgr.metadata.get(&name.id),
            entity::MON => self.mon_metadata.get(&name.id),
            entity::MDS => {
                let info = self.mds.published.mds_by_name(&name.id);
                info.and_then(|info| self.mds.metadata.get(&info.gid))
            }
            _ => None,
        };
        facts.and_then(|facts| facts.get("hostname")).cloned().unwrap_or_default()
    }

    /// CRUSH location of an OSD in the newest map, nearest first.
    pub(crate) fn crush_location(&self, osd: i32) -> Vec<(String, String)> {
        self.osd.map.crush.full_location(osd)
    }

    /// A map as it is stored, for `osd getmap` and the like.
    pub(crate) fn crush_bytes(&self, map: &maps::OsdMap) -> bytes::Bytes {
        map.crush.to_bytes()
    }
}
