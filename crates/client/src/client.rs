//! A client of the cluster: its sessions, its pools, its commands.

use std::cell::RefCell;
use std::rc::Rc;

use auth::Keyring;
use bstr::BString;
use bytes::Bytes;
use config::Config;
use env::Env;
use messages::{
    MCommandReply, MMgrCommandReply, MMgrMap, MOSDBackoff, MOSDMap, MOSDOpReply, MPoolOp,
    MWatchNotify, Message, PoolOpCode, SUBSCRIBE_ONETIME,
};
use monclient::{Answer, MonClient, MonEvents, Settings};
use msgr::{Connection, Dispatcher, Incoming, Messenger, Policies, Policy};
use types::entity::{CLIENT, EntityName};
use types::{Errno, OsdId, SnapId};

use crate::commands::Whom;
use crate::objecter::{Objecter, Waiting};
use crate::{ClientError, IoCtx};

/// How to connect.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Stay subscribed to the OSD map instead of asking when it matters.
    pub follow_osdmap: bool,
}

struct Inner {
    config: Rc<Config>,
    objecter: Rc<Objecter>,
    lock_cookies: RefCell<Vec<BString>>,
    /// The session with the monitors holds it weakly.
    _events: Rc<dyn MonEvents>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        stop(&self.objecter);
    }
}

fn stop(objecter: &Objecter) {
    objecter.stop();
    objecter.monc.shutdown();
    objecter.messenger.shutdown();
}

/// See the crate's documentation. Clones are the same client; the last one to go closes it.
#[derive(Clone)]
pub struct Client(Rc<Inner>);

impl core::fmt::Debug for Client {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Client {}", self.0.objecter.messenger.name())
    }
}

struct Dispatch(Rc<Objecter>);

fn decoded<M: Message>(incoming: &Incoming) -> Option<M> {
    M::decode(&incoming.message)
        .inspect_err(|error| tracing::warn!("message of type {}: {error}", M::TYPE))
        .ok()
}

impl Dispatcher for Dispatch {
    fn on_message(&self, con: &Connection, incoming: Incoming) {
        let Some(incoming) = self.0.monc.on_message(con, incoming) else { return };
        match incoming.message.header.kind {
            MOSDOpReply::TYPE => self.0.on_reply(con, &incoming.message),
            MOSDMap::TYPE => {
                if let Some(m) = decoded(&incoming) {
                    self.0.on_osd_map(&m);
                }
            }
            MOSDBackoff::TYPE => {
                if let Some(m) = decoded(&incoming) {
                    self.0.on_backoff(con, &m);
                }
            }
            MWatchNotify::TYPE => {
                if let Some(m) = decoded(&incoming) {
                    self.0.lingers.on_message(m);
                }
            }
            MMgrMap::TYPE => {
                if let Some(MMgrMap { map }) = decoded(&incoming) {
                    self.0.monc.got("mgrmap", map.epoch.into());
                    self.0.on_mgrmap(map);
                }
            }
            MCommandReply::TYPE | MMgrCommandReply::TYPE => {
                self.0.on_command_reply(&incoming.message);
            }
            kind => tracing::debug!("{} sent a message of type {kind:#x}", con.peer_name()),
        }
    }

    fn on_connect(&self, con: &Connection) {
        self.0.monc.on_connect(con);
    }

    fn on_reset(&self, con: &Connection) {
        self.0.monc.on_reset(con);
        if !self.0.on_mgr_reset(con) {
            self.0.on_reset(con);
        }
    }

    fn on_refused(&self, con: &Connection) {
        self.0.on_refused(con);
    }
}

struct Events {
    config: Rc<Config>,
}

impl MonEvents for Events {
    fn on_config(&self, config: std::collections::BTreeMap<String, String>) {
        self.config.set_mon_values(&config);
    }
}

impl Client {
    /// Connects to the cluster of the configuration; returns when it knows the OSD map.
    pub async fn connect(
        env: Env,
        config: Rc<Config>,
        keyring: &Keyring,
        options: Options,
    ) -> Result<Client, ClientError> {
        let settings =
            Settings::from_config(&config, Some(keyring)).map_err(ClientError::Settings)?;
        let nonce = u32::try_from(env.random_u64() >> 33).unwrap_or(1).max(1);
        let name = EntityName { kind: CLIENT, num: -1 };
        let policies = Policies::new(Policy::lossy_client());
        let messenger = Messenger::new(env.clone(), msgr::Config::new(name, nonce, policies));
        let monc = MonClient::new(env.clone(), messenger.clone(), settings);
        let objecter = Objecter::new(env, messenger.clone(), monc.clone(), options.follow_osdmap);
        messenger.set_dispatcher(Rc::new(Dispatch(objecter.clone())));
        let events: Rc<dyn MonEvents> = Rc::new(Events { config: config.clone() });
        monc.set_events(&events);
        let client = Client(Rc::new(Inner {
            objecter: objecter.clone(),
            config,
            lock_cookies: RefCell::default(),
            _events: events,
        }));
        monc.subscribe("mgrmap", 0, 0);
        let once = if options.follow_osdmap { 0 } else { SUBSCRIBE_ONETIME };
        monc.subscribe("osdmap", 0, once);
        monc.start();
        monc.authenticated().await?;
        objecter.start();
        objecter.wait_for_epoch(1).await;
        Ok(client)
    }

    /// Our number in the cluster: `client.4123` is 4123.
    pub fn global_id(&self) -> u64 {
        self.0.objecter.monc.global_id()
    }

    /// The newest OSD map we have.
    pub fn osdmap(&self) -> Rc<maps::OsdMap> {
        self.0.objecter.osdmaps.current()
    }

    /// Waits until the OSD map is as new as the monitors' is now.
    pub async fn wait_for_latest_osdmap(&self) -> Result<(), ClientError> {
        self.0.objecter.wait_for_latest_map().await
    }

    /// The id of a pool; ENOENT.
    pub async fn pool_lookup(&self, name: &str) -> Result<i64, ClientError> {
        if let Some(id) = self.osdmap().lookup_pool(name) {
            return Ok(id);
        }
        self.wait_for_latest_osdmap().await?;
        self.osdmap().lookup_pool(name).ok_or(ClientError::Errno(Errno::ENOENT))
    }

    /// The objects of a pool.
    pub async fn io_ctx(&self, pool: &str) -> Result<IoCtx, ClientError> {
        let id = self.pool_lookup(pool).await?;
        Ok(IoCtx::new(self.clone(), id))
    }

    /// Cookies of the exclusive locks of images that are open here, each as often as it is held. Bound: one or two
    /// for each image.
    pub(crate) fn lock_cookies(&self) -> &RefCell<Vec<BString>> {
        &self.0.lock_cookies
    }

    pub(crate) fn objecter(&self) -> &Rc<Objecter> {
        &self.0.objecter
    }

    /// The options it was started with, and those the monitors have set since.
    pub fn config(&self) -> &Config {
        &self.0.config
    }

    /// What this client runs in.
    pub fn env(&self) -> &Env {
        &self.0.objecter.env
    }

    /// Our address as OSDs record it, once there is a session.
    pub fn addrs(&self) -> types::AddrVec {
        self.0.objecter.messenger.addrs()
    }

    /// Makes a self-managed snapshot id of a pool.
    pub async fn selfmanaged_snap_create(&self, pool: i64) -> Result<SnapId, ClientError> {
        let data = self.pool_op(pool, PoolOpCode::CREATE_UNMANAGED_SNAP, 0).await?;
        Ok(denc::Reader::new(&data.unwrap_or_default()).u64()?)
    }

    /// Gives a self-managed snapshot id back: what only it holds is trimmed.
    pub async fn selfmanaged_snap_remove(
        &self,
        pool: i64,
        snap: SnapId,
    ) -> Result<(), ClientError> {
        self.pool_op(pool, PoolOpCode::DELETE_UNMANAGED_SNAP, snap).await.map(drop)
    }

    async fn pool_op(
        &self,
        pool: i64,
        op: u32,
        snapid: SnapId,
    ) -> Result<Option<Bytes>, ClientError> {
        let pool = u32::try_from(pool).map_err(|_| Errno::ENOENT)?;
        let request = MPoolOp { pool, op, snapid, ..MPoolOp::default() };
        let reply = self.0.objecter.monc.pool_op(request).await?;
        match Errno::from_result(reply.reply_code) {
            Some(errno) => Err(errno.into()),
            None => {
                self.0.objecter.wait_for_epoch(reply.epoch).await;
                Ok(reply.response_data)
            }
        }
    }

    /// Runs a command at the monitors, given as JSON.
    pub async fn mon_command(
        &self,
        json: impl Into<String>,
        input: Bytes,
    ) -> Result<Answer, ClientError> {
        let monc = &self.0.objecter.monc;
        Ok(monc.command(vec![json.into()], input).await?)
    }

    /// Runs a command at an OSD, given as JSON; ENOENT, ENXIO when it is not there or down.
    pub async fn osd_command(
        &self,
        osd: OsdId,
        json: impl Into<String>,
        input: Bytes,
    ) -> Result<Answer, ClientError> {
        self.0.objecter.command(Whom::Osd(osd), vec![json.into()], input).await
    }

    /// Runs a command at the active manager, given as JSON; waits until there is one.
    pub async fn mgr_command(
        &self,
        json: impl Into<String>,
        input: Bytes,
    ) -> Result<Answer, ClientError> {
        self.0.objecter.command(Whom::Mgr, vec![json.into()], input).await
    }

    /// The operation that has been waiting longest for its answer, and for what. Those that keep watches do not count.
    pub fn longest_wait(&self) -> Option<Waiting> {
        self.0.objecter.longest_wait()
    }

    /// Closes all sessions; what is under way fails.
    pub fn shutdown(&self) {
        stop(&self.0.objecter);
    }
}
