//! The manager map: who manages, who stands by (`src/mon/MgrMonitor.cc` at v16.2).
//!
//! The first manager that sends a beacon becomes active; it is available once it says so. One
//! that falls silent is replaced, and its addresses are blocked so that it cannot go on.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use command::Signature;
use denc::Denc;
use maps::mgrmap::{MgrMap, ModuleInfo, StandbyInfo};
use maps::release::PACIFIC;
use messages::{MMgrBeacon, MMgrDigest, MMgrMap, MonCommand};
use store::Kv;
use types::{AddrVec, Errno, UTime};

use crate::clog::{INFO, WARN};
use crate::core::{LoadError, MonCore};
use crate::event::SessionId;
use crate::event::wire;
use crate::layout::{self, MGR, MGR_METADATA};

/// Commands of the manager at most.
const COMMANDS_MAX: usize = 4096;
/// How long after the end of its session the active manager may be silent: longer than the pause
/// between its beacons and the search for another monitor.
const LOST_GRACE: Duration = Duration::from_secs(3);
/// Modules that run whatever operators say (`always_on_modules` of `src/mon/MgrMonitor.cc`).
const ALWAYS_ON: [&str; 10] = [
    "balancer",
    "crash",
    "devicehealth",
    "orchestrator",
    "pg_autoscaler",
    "progress",
    "rbd_support",
    "status",
    "telemetry",
    "volumes",
];

/// State of the service.
pub(crate) struct MgrService {
    pub(crate) map: MgrMap,
    /// The committed map.
    pub(crate) published: MgrMap,
    /// The map of the proposal under way.
    proposed: Option<MgrMap>,
    dirty: bool,
    pub(crate) commands: Vec<Signature>,
    pub(crate) metadata: BTreeMap<String, BTreeMap<String, String>>,
    /// When each manager was last heard of, by global id.
    last_beacon: BTreeMap<u64, Duration>,
    last_digest: Duration,
    /// Since when the active manager's session is gone, unless a beacon has come since.
    lost_at: Option<Duration>,
}

impl MgrService {
    pub(crate) fn load(kv: &dyn Kv) -> Result<MgrService, LoadError> {
        let last = layout::get_u64(kv, MGR, "last")?.ok_or(LoadError::Empty)?;
        let decode = |what: &str, error| LoadError::Decode { what: what.to_string(), error };
        let bytes = kv
            .get(&layout::numbered(MGR, "", last))?
            .ok_or_else(|| LoadError::Inconsistent { what: format!("mgr/{last}") })?;
        let map = MgrMap::from_bytes(&bytes).map_err(|e| decode("mgr map", e))?;
        let mut commands = Vec::new();
        if let Some(bytes) = layout::get(kv, MGR, "commands")? {
            let list: Vec<MonCommand> =
                Denc::from_bytes(&bytes).map_err(|e| decode("mgr/commands", e))?;
            commands = list.iter().map(signature).collect();
        }
        let mut metadata = BTreeMap::new();
        for (name, value) in layout::all(kv, MGR_METADATA)? {
            let facts = Denc::from_bytes(&value).map_err(|e| decode("mgr_metadata", e))?;
            metadata.insert(name, facts);
        }
        Ok(MgrService {
            published: map.clone(),
            proposed: None,
            map,
            dirty: false,
            commands,
            metadata,
            last_beacon: BTreeMap::new(),
            last_digest: Duration::ZERO,
            lost_at: None,
        })
    }
}

/// The modules that no operator can disable, as far as the manager has them.
fn always_on(modules: &[ModuleInfo]) -> BTreeSet<String> {
    let names = modules.iter().map(|module| module.name.clone());
    names.filter(|name| ALWAYS_ON.contains(&name.as_str())).collect()
}

fn signature(c: &MonCommand) -> Signature {
    Signature::new(
        &c.cmdstring,
        &c.helpstring,
        &c.module,
        &c.req_perms,
        c.flags | command::FLAG_MGR,
    )
}

impl MonCore {
    /// Where the active manager answers commands, if there is one that does.
    pub(crate) fn active_mgr(&self) -> Option<AddrVec> {
        let map = &self.mgr.published;
        let answers = map.available && !map.active_addrs.is_empty();
        answers.then(|| map.active_addrs.clone())
    }

    fn change_mgr(&mut self) -> &mut MgrMap {
        self.mgr.dirty = true;
        self.mark_dirty();
        &mut self.mgr.map
    }

    pub(crate) fn on_mgr_beacon(&mut self, from: SessionId, m: MMgrBeacon) {
        let Some(session) = self.sessions.get(&from) else { return };
        if !session.caps.allows(&session.peer, "mgr", "x") || m.fsid != self.monmap.fsid {
            return;
        }
        self.mgr.last_beacon.insert(m.gid, self.now.mono);
        let active = self.mgr.map.active_gid;
        if active == m.gid {
            self.mgr.lost_at = None;
            self.beacon_of_active(from, m);
        } else if active != 0 && self.mgr.map.active_name == m.name {
            // The same daemon, started anew.
            self.log_own("cluster", INFO, format!("Active manager daemon {} restarted", m.name));
            self.drop_active();
            self.activate(&m);
        } else if active == 0 {
            self.activate(&m);
        } else {
            self.beacon_of_standby(m);
        }
    }

    fn beacon_of_active(&mut self, _: SessionId, m: MMgrBeacon) {
        let now = self.now.wall;
        if m.available && !self.mgr.map.available {
            let map = self.change_mgr();
            map.available = true;
            self.log_own("cluster", INFO, format!("Manager daemon {} is now available", m.name));
        }
        if !m.command_descs.is_empty() {
            let list: Vec<MonCommand> = m.command_descs.into_iter().take(COMMANDS_MAX).collect();
            let bytes = list.to_bytes();
            let known = self.kv.get(&layout::key(MGR, "commands")).ok().flatten();
            self.mgr.commands = list.iter().map(signature).collect();
            if known.as_ref() != Some(&bytes) {
                self.batch().put(layout::key(MGR, "commands"), bytes);
            }
        }
        self.take_mgr_metadata(&m.name, m.metadata);
        let map = &self.mgr.map;
        let (client_names, clients): (Vec<String>, Vec<types::AddrVec>) =
            m.clients.into_iter().unzip();
        let changed = map.active_addrs != m.server_addrs
            || map.services != m.services
            || map.available_modules != m.modules
            || map.clients != clients;
        if changed {
            let names = always_on(&m.modules);
            let map = self.change_mgr();
            map.active_addrs = m.server_addrs;
            map.services = m.services;
            map.available_modules = m.modules;
            map.clients = clients;
            map.client_names = Some(client_names);
            map.always_on_modules.insert(u32::from(PACIFIC), names);
            if map.active_change.is_zero() {
                map.active_change = now;
            }
        }
    }

    fn activate(&mut self, m: &MMgrBeacon) {
        let now = self.now.wall;
        let map = self.change_mgr();
        map.standbys.remove(&m.gid);
        map.active_gid = m.gid;
        map.active_name = m.name.clone();
        map.active_addrs = m.server_addrs.clone();
        map.available = false;
        map.active_change = now;
        map.active_mgr_features = m.mgr_features;
        map.services = BTreeMap::new();
        map.available_modules = m.modules.clone();
        let names = always_on(&m.modules);
        map.always_on_modules.insert(u32::from(PACIFIC), names);
        self.take_mgr_metadata(&m.name, m.metadata.clone());
        self.log_own("cluster", INFO, format!("Activating manager daemon {}", m.name));
    }

    fn beacon_of_standby(&mut self, m: MMgrBeacon) {
        self.take_mgr_metadata(&m.name, m.metadata);
        if self.mgr.map.standbys.contains_key(&m.gid) {
            return;
        }
        let restarted: Option<u64> = self
            .mgr
            .map
            .standbys
            .values()
            .find(|standby| standby.name == m.name)
            .map(|standby| standby.gid);
        let verb = if restarted.is_some() { "restarted" } else { "started" };
        let info = StandbyInfo {
            gid: m.gid,
            name: m.name.clone(),
            available_modules: m.modules,
            mgr_features: m.mgr_features,
            ..StandbyInfo::default()
        };
        let map = self.change_mgr();
        if let Some(old) = restarted {
            map.standbys.remove(&old);
        }
        map.standbys.insert(m.gid, info);
        self.log_own("cluster", INFO, format!("Standby manager daemon {} {verb}", m.name));
    }

    fn take_mgr_metadata(&mut self, name: &str, metadata: BTreeMap<String, String>) {
        if metadata.is_empty() || self.mgr.metadata.get(name) == Some(&metadata) {
            return;
        }
        let bytes = metadata.to_bytes();
        self.batch().put(layout::key(MGR_METADATA, name), bytes);
        self.mgr.metadata.insert(name.to_string(), metadata);
    }

    /// A session has ended: perhaps the active manager's, and with it the manager.
    pub(crate) fn mgr_session_ended(&mut self, session: &crate::session::Session) {
        let peer = &session.peer;
        let active = self.mgr.map.active_gid;
        if active != 0 && peer.name.is_mgr() && peer.global_id == active {
            self.mgr.lost_at = Some(self.now.mono);
        }
    }

    /// Nobody is active any more; who was may not talk to OSDs for a while.
    fn drop_active(&mut self) {
        let until = self.conf.float("mon_mgr_blocklist_interval");
        let until = UTime::from_secs_f64(self.now.wall.as_secs_f64() + until);
        let addrs: Vec<_> = std::iter::once(&self.mgr.map.active_addrs)
            .chain(&self.mgr.map.clients)
            .flat_map(|addrs| addrs.iter().map(types::EntityAddr::as_any).collect::<Vec<_>>())
            .filter(|addr| !addr.is_blank_ip())
            .collect();
        let gid = self.mgr.map.active_gid;
        self.mgr.last_beacon.remove(&gid);
        if !addrs.is_empty() {
            let inc = self.inc();
            for addr in addrs {
                inc.new_blocklist.insert(addr, until);
            }
        }
        let epoch = self.osd.map.epoch + 1;
        let now = self.now.wall;
        let map = self.change_mgr();
        map.active_name = String::new();
        map.active_gid = 0;
        map.active_change = now;
        map.available = false;
        map.active_addrs = types::AddrVec::default();
        map.services = BTreeMap::new();
        map.clients = Vec::new();
        map.client_names = Some(Vec::new());
        map.last_failure_osd_epoch = epoch;
    }

    fn promote_standby(&mut self) -> bool {
        let Some((gid, standby)) = self.mgr.map.standbys.first_key_value() else { return false };
        let (gid, standby) = (*gid, standby.clone());
        let now = self.now.wall;
        let map = self.change_mgr();
        map.standbys.remove(&gid);
        map.active_gid = gid;
        map.active_name = standby.name.clone();
        map.available_modules = standby.available_modules;
        map.available = false;
        map.active_change = now;
        map.active_mgr_features = standby.mgr_features;
        self.log_own("cluster", INFO, format!("Activating manager daemon {}", standby.name));
        true
    }

    /// `mgr fail`: whether such a manager was there.
    pub(crate) fn fail_mgr(&mut self, who: &str) -> bool {
        let gid: Option<u64> = who.parse().ok();
        let map = &self.mgr.map;
        if map.active_gid != 0 && (map.active_name == who || gid == Some(map.active_gid)) {
            self.drop_active();
            self.promote_standby();
            return true;
        }
        let standby = map
            .standbys
            .values()
            .find(|standby| standby.name == who || gid == Some(standby.gid))
            .map(|standby| standby.gid);
        match standby {
            Some(gid) => {
                self.change_mgr().standbys.remove(&gid);
                true
            }
            None => false,
        }
    }

    pub(crate) fn tick_mgr(&mut self) {
        let grace = self.conf.duration("mon_mgr_beacon_grace");
        let now = self.now.mono;
        let silent = |core: &mut MonCore, gid: u64| {
            // A monitor that has just begun gives everybody the whole time.
            let heard = *core.mgr.last_beacon.entry(gid).or_insert(now);
            now.saturating_sub(heard) > grace
        };
        let standbys: Vec<(u64, String)> =
            self.mgr.map.standbys.iter().map(|(gid, s)| (*gid, s.name.clone())).collect();
        for (gid, name) in standbys {
            if silent(self, gid) {
                self.mgr.last_beacon.remove(&gid);
                self.change_mgr().standbys.remove(&gid);
                self.log_own(
                    "cluster",
                    INFO,
                    format!("Standby manager daemon {name} is unresponsive"),
                );
            }
        }
        let active = self.mgr.map.active_gid;
        // One that lives has another session by now, and says so on it.
        let lost = self.mgr.lost_at.is_some_and(|at| now.saturating_sub(at) > LOST_GRACE);
        if active != 0 && (lost || silent(self, active)) {
            self.mgr.lost_at = None;
            let name = self.mgr.map.active_name.clone();
            self.drop_active();
            let text = match self.promote_standby() {
                true => format!(
                    "Manager daemon {name} is unresponsive, replacing it with standby daemon {}",
                    self.mgr.map.active_name
                ),
                false => {
                    format!("Manager daemon {name} is unresponsive.  No standby daemons available.")
                }
            };
            self.log_own("cluster", WARN, text);
        }
        self.tick_digests();
    }

    /// Managers connected here hear how the monitors are.
    pub(crate) fn tick_digests(&mut self) {
        let now = self.now.mono;
        let period = self.conf.duration("mon_mgr_digest_period");
        if now.saturating_sub(self.mgr.last_digest) >= period {
            self.mgr.last_digest = now;
            self.send_digests();
        }
    }

    pub(crate) fn encode_mgr(&mut self) {
        if !std::mem::take(&mut self.mgr.dirty) {
            return;
        }
        self.mgr.map.epoch += 1;
        self.mgr.proposed = Some(self.mgr.map.clone());
        let (epoch, bytes) = (self.mgr.map.epoch, self.mgr.map.to_bytes());
        let keep = self.conf.uint("mon_max_mgrmap_epochs").max(1);
        let batch = self.batch();
        batch.put(layout::numbered(MGR, "", epoch.into()), bytes);
        layout::put_u64(batch, MGR, "last", epoch.into());
        if u64::from(epoch) > keep {
            batch.delete(layout::numbered(MGR, "", u64::from(epoch) - keep));
        }
    }

    /// The proposal is committed: what is encoded is published, not what has changed since.
    pub(crate) fn mgr_committed(&mut self) {
        if let Some(map) = self.mgr.proposed.take() {
            self.mgr.published = map;
        }
    }

    pub(crate) fn send_mgrmap(&mut self, to: SessionId) {
        let m = MMgrMap { map: self.mgr.published.clone() };
        self.send_now(to, wire(&m));
    }

    /// Tells managers that subscribed how the monitors are.
    pub(crate) fn send_digests(&mut self) {
        let wanted: Vec<SessionId> = self
            .sessions
            .values()
            .filter(|s| s.subs.contains_key("mgrdigest"))
            .map(|s| s.id)
            .collect();
        if wanted.is_empty() {
            return;
        }
        let m = self.digest();
        for id in wanted {
            self.send_now(id, wire(&m));
        }
    }

    pub(crate) fn digest(&self) -> MMgrDigest {
        let mut status = command::Formatter::new(command::Format::Json);
        self.dump_mon_status(&mut status);
        let mut health = command::Formatter::new(command::Format::Json);
        self.dump_health(&mut health, true);
        MMgrDigest {
            mon_status_json: Bytes::from(status.finish()),
            health_json: Bytes::from(health.finish()),
        }
    }

    /// The map of an epoch kept.
    pub(crate) fn mgrmap_of_epoch(&self, epoch: u32) -> Result<MgrMap, Errno> {
        if epoch == self.mgr.published.epoch {
            return Ok(self.mgr.published.clone());
        }
        let found = self.kv.get(&layout::numbered(MGR, "", epoch.into()));
        let bytes = found.ok().flatten().ok_or(Errno::ENOENT)?;
        MgrMap::from_bytes(&bytes).map_err(|_| Errno::EIO)
    }
}

impl MonCore {
    /// Changes the map on an operator's behalf.
    pub(crate) fn mgr_change(&mut self, change: impl FnOnce(&mut MgrMap)) {
        change(self.change_mgr());
    }
}
