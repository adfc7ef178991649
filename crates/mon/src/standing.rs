//! Own place among the monitors: who leads, who is in the quorum; and what changes with it.
//!
//! ```text
//!   Out ──quorum──► Peon: serves maps, logins and subscriptions; hands requests to the leader
//!    │ ▲             │ elected
//!    └─┴──────────► Leader: handles requests, proposes
//! ```
//!
//! A monitor that begins or ceases to lead loads its state from the database: what was not
//! committed is gone, and whoever asked for it asks the next leader (`shell/router.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use denc::Denc;
use messages::LogEntry;
use store::KvBatch;
use store::kv::KvOp;

use crate::core::{LoadError, MonCore};
use crate::event::{Effect, Now};
use crate::layout;

/// What a monitor is for the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Role {
    /// In no quorum.
    #[default]
    Out,
    /// Follows the leader.
    Peon,
    /// Leads.
    Leader,
}

/// How a monitor's clock differs from the leader's.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Skew {
    /// Seconds it is ahead.
    pub skew: f64,
    /// Seconds a message to it and back takes.
    pub latency: f64,
}

/// What a monitor's store takes, and what is left of its file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Disk {
    /// Per cent of the file system that are free.
    pub avail_percent: u64,
    /// Bytes that the store takes.
    pub stored_bytes: u64,
}

/// The quorum as this monitor knows it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Standing {
    /// Own role.
    pub role: Role,
    /// Ceph's election epoch: odd while there is no quorum, else even.
    pub epoch: u32,
    /// Who leads.
    pub leader: Option<String>,
    /// Who is in the quorum.
    pub quorum: BTreeSet<String>,
    /// Since when this quorum is (of [`Now::mono`]).
    pub since: Duration,
    /// Clocks, as the leader compared them; and how often it did.
    pub skews: BTreeMap<String, Skew>,
    /// Disks of the monitors' stores: only the leader is told.
    pub disks: BTreeMap<String, Disk>,
    /// Number of comparisons of clocks since the election; each asks for disks as well.
    pub rounds: u32,
}

impl MonCore {
    /// Own role.
    pub fn role(&self) -> Role {
        self.standing.role
    }

    /// Own place among the monitors.
    pub fn standing(&self) -> &Standing {
        &self.standing
    }

    /// Epoch of the newest monitor map that is committed.
    pub fn committed_monmap_epoch(&self) -> u32 {
        let last = layout::get_u64(&*self.kv, layout::MONMAP, "last").ok().flatten();
        last.and_then(|epoch| u32::try_from(epoch).ok()).unwrap_or(self.monmap.epoch)
    }

    /// Whether a session may tell this monitor anything.
    pub fn may_tell(&self, session: crate::SessionId) -> bool {
        self.sessions.get(&session).is_some_and(|s| s.caps.mon.is_allow_all())
    }

    /// Takes a new place among the monitors.
    pub fn stand(&mut self, now: Now, standing: Standing) -> Result<Vec<Effect>, LoadError> {
        self.now = now;
        let led = self.standing.role == Role::Leader;
        let leads = standing.role == Role::Leader;
        let new_term = self.standing.epoch != standing.epoch;
        let new_leader = self.standing.leader != standing.leader;
        self.standing = standing;
        if leads && (!led || new_term) {
            self.reload()?;
            self.begin_leading();
        } else if led && !leads {
            self.reload()?;
        }
        if self.standing.role == Role::Peon && (new_leader || new_term) {
            self.ask_ids_again();
        }
        Ok(self.finish_step())
    }

    /// The place of a monitor that is alone.
    pub fn stand_alone(&mut self, now: Now) -> Result<Vec<Effect>, LoadError> {
        let name = self.identity.name.clone();
        let standing = Standing {
            role: Role::Leader,
            epoch: 2,
            leader: Some(name.clone()),
            quorum: BTreeSet::from([name]),
            since: now.mono,
            ..Standing::default()
        };
        self.stand(now, standing)
    }

    /// What a monitor that begins to lead does first.
    fn begin_leading(&mut self) {
        self.auth_begin();
        self.put_own_metadata();
        let names: Vec<&str> = self.quorum_names();
        let ranks: Vec<String> = self.quorum_ranks().iter().map(i64::to_string).collect();
        let text = format!(
            "mon.{} is new leader, mons {} in quorum (ranks {})",
            self.identity.name,
            names.join(","),
            ranks.join(",")
        );
        self.log_own("cluster", crate::clog::INFO, text);
        self.count_down_osds_from_now();
        self.refresh_health();
    }

    fn put_own_metadata(&mut self) {
        let facts = self.own_metadata();
        self.put_mon_metadata(self.identity.name.clone(), facts);
    }

    /// Facts about this monitor, as the others keep them.
    pub fn own_metadata(&self) -> BTreeMap<String, String> {
        let mut facts = self.identity.metadata.clone();
        facts.insert("addrs".to_string(), self.own_addrs().to_string());
        facts
    }

    /// Keeps facts about a monitor.
    pub(crate) fn put_mon_metadata(&mut self, name: String, facts: BTreeMap<String, String>) {
        if self.mon_metadata.get(&name) == Some(&facts) {
            return;
        }
        let bytes = facts.to_bytes();
        self.batch().put(layout::key(layout::MON_METADATA, &name), bytes);
        self.mon_metadata.insert(name, facts);
    }

    /// A peon told who it is.
    pub fn on_mon_metadata(
        &mut self,
        now: Now,
        name: String,
        facts: BTreeMap<String, String>,
    ) -> Vec<Effect> {
        self.now = now;
        self.put_mon_metadata(name, facts);
        self.finish_step()
    }

    /// A monitor wants numbers for clients.
    pub fn on_want_ids(&mut self, now: Now, whom: u64) -> Vec<Effect> {
        self.now = now;
        self.reserve_ids(whom);
        self.finish_step()
    }

    /// Names in the quorum, by rank.
    pub(crate) fn quorum_names(&self) -> Vec<&str> {
        let ranks = self.monmap.ranks.iter().map(String::as_str);
        ranks.filter(|name| self.standing.quorum.contains(*name)).collect()
    }

    /// Ranks in the quorum.
    pub(crate) fn quorum_ranks(&self) -> Vec<i64> {
        let ranks = self.monmap.ranks.iter().enumerate();
        let inside = ranks.filter(|(_, name)| self.standing.quorum.contains(*name));
        inside.map(|(rank, _)| rank as i64).collect()
    }

    /// Names not in the quorum, by rank.
    pub(crate) fn out_of_quorum(&self) -> Vec<&str> {
        let ranks = self.monmap.ranks.iter().map(String::as_str);
        ranks.filter(|name| !self.standing.quorum.contains(*name)).collect()
    }

    /// Loads everything anew from the database; sessions stay.
    pub fn reload(&mut self) -> Result<(), LoadError> {
        self.forget_pending();
        let kv = self.kv.clone();
        self.take_monmap(crate::monmap::load(&*kv)?);
        self.osd = crate::osd::OsdService::load(&*kv, &self.conf)?;
        *self.keys.borrow_mut() = crate::auth::load_keys(&*kv, &self.conf)?;
        self.auth_ids.reload(&*kv)?;
        self.config_version = layout::get_u64(&*kv, layout::CONFIG, "version")?.unwrap_or(1);
        self.load_options()?;
        self.clog = crate::clog::ClusterLog::load(&*kv)?;
        self.mgr = crate::mgr::MgrService::load(&*kv)?;
        self.mds = crate::mds::MdsService::load(&*kv)?;
        self.stat = crate::stat::StatService::load(&*kv)?;
        self.health = crate::health::Health::load(&*kv)?;
        self.answered = crate::answered::Answered::load(&*kv)?;
        self.mon_metadata = crate::monmap::load_metadata(&*kv)?;
        Ok(())
    }

    pub(crate) fn load_options(&mut self) -> Result<(), LoadError> {
        self.config_db = crate::config_db::ConfigDb::default();
        self.config_changed = true;
        for (key, value) in self.config_keys("config/")? {
            let key = key["config/".len()..].to_string();
            self.config_db.insert(&key, &String::from_utf8_lossy(&value));
        }
        Ok(())
    }

    /// A batch of the leader's has been applied to the database: takes over what it changed, and
    /// tells who wants to know.
    pub fn applied(&mut self, now: Now, batch: &KvBatch) -> Result<Vec<Effect>, LoadError> {
        self.now = now;
        if self.standing.role == Role::Leader {
            // It leads no more and has not been told yet. What it proposed last may never be
            // committed: nobody may be shown that.
            self.reload()?;
        }
        let mut touched = BTreeSet::new();
        for op in &batch.ops {
            let (key, value) = match op {
                KvOp::Put(key, value) => (key, Some(value)),
                KvOp::Delete(key) | KvOp::DeleteRange(key, _) => (key, None),
            };
            let Some(end) = key.iter().position(|byte| *byte == 0) else { continue };
            let (prefix, name) = (&key[..end], String::from_utf8_lossy(&key[end + 1..]));
            let Ok(prefix) = std::str::from_utf8(prefix) else { continue };
            match (prefix, value) {
                (layout::LOGM, Some(value)) => {
                    let number = u64::from_str_radix(&name, 16).unwrap_or(0);
                    let entry = LogEntry::from_bytes(value).map_err(|error| LoadError::Decode {
                        what: format!("logm/{name}"),
                        error,
                    })?;
                    self.clog.take(number, entry);
                }
                (layout::CONFIG_KEY, value) => {
                    self.kv_dirty.insert(name.to_string(), value.cloned());
                    if name.starts_with("config/") {
                        touched.insert(layout::CONFIG);
                    }
                }
                _ => drop(touched.insert(prefix)),
            }
        }
        let kv = self.kv.clone();
        for prefix in touched {
            match prefix {
                layout::MONMAP => self.take_monmap(crate::monmap::load(&*kv)?),
                layout::OSDMAP => self.osd.take_map(&*kv)?,
                layout::OSD_METADATA => self.osd.take_metadata(&*kv)?,
                layout::OSD_CREATING => self.osd.take_creating(&*kv)?,
                layout::AUTH => {
                    *self.keys.borrow_mut() = crate::auth::load_keys(&*kv, &self.conf)?;
                }
                layout::CONFIG => {
                    self.config_version =
                        layout::get_u64(&*kv, layout::CONFIG, "version")?.unwrap_or(1);
                    self.load_options()?;
                }
                layout::MGR | layout::MGR_METADATA => {
                    self.mgr = crate::mgr::MgrService::load(&*kv)?;
                }
                layout::MDSMAP | layout::MDS_METADATA | layout::MDS_HEALTH => {
                    self.mds = crate::mds::MdsService::load(&*kv)?;
                }
                layout::MGRSTAT => self.stat = crate::stat::StatService::load(&*kv)?,
                layout::HEALTH => self.health = crate::health::Health::load(&*kv)?,
                layout::MON_METADATA => self.mon_metadata = crate::monmap::load_metadata(&*kv)?,
                _ => {}
            }
        }
        self.osd_committed();
        self.publish_maps();
        Ok(self.finish_step())
    }

    /// What a peon does by the clock.
    pub(crate) fn tick_peon(&mut self) {
        self.ask_ids_again();
        self.refresh_health();
        self.tick_digests();
    }
}
