//! The tasks of a session: finding a monitor and staying with it; keeping credentials fresh.

use std::time::Duration;

use auth::METHOD_CEPHX;
use auth::cephx::CephxClient;
use messages::{MAuth, MAuthReply, Message};
use msgr::Connection;
use types::AddrVec;
use types::entity::MON;

use crate::MonClient;

/// First pause after a refused attempt; doubled up to [`RETRY_MAX`].
const RETRY_MIN: Duration = Duration::from_millis(10);
const RETRY_MAX: Duration = Duration::from_secs(1);
/// Sign of life to the monitor (`mon_client_ping_interval`).
const PING_INTERVAL: Duration = Duration::from_secs(10);
/// A monitor silent for this long is given up (`mon_client_ping_timeout`).
const PING_TIMEOUT: Duration = Duration::from_secs(30);
/// How often credentials are looked at.
const CREDENTIALS_INTERVAL: Duration = Duration::from_secs(10);
/// Until rotating secrets are there, they are asked for again after this.
const ROTATING_RETRY: Duration = Duration::from_secs(1);

/// Connects to one monitor after the other until one answers, stays with it until it is lost, and
/// begins again.
pub(crate) async fn hunt(monc: MonClient) {
    let mut retry = RETRY_MIN;
    while !monc.0.stopped.get() {
        let addrs = pick(&monc);
        let con = monc.0.messenger.connect_anonymous(MON, &addrs);
        *monc.0.trying.borrow_mut() = Some(con.clone());
        let connected = monc
            .0
            .env
            .timeout(MonClient::HUNT_INTERVAL, settle(&monc, &con))
            .await;
        if connected == Ok(true) && !monc.0.stopped.get() {
            retry = RETRY_MIN;
            monc.on_open();
            monc.stay(&con).await;
            monc.0.open.set(false);
            if !monc.0.stopped.get() {
                tracing::info!("lost the monitor at {addrs}");
            }
        }
        con.mark_down();
        monc.0.env.sleep(retry).await;
        retry = (retry * 2).min(RETRY_MAX);
    }
}

fn pick(monc: &MonClient) -> AddrVec {
    let mons = monc.0.mons.borrow();
    let at = monc.0.env.random_u64() % mons.len().max(1) as u64;
    mons.get(usize::try_from(at).unwrap_or(0))
        .cloned()
        .unwrap_or_default()
}

/// Waits until the connection is ready (true), or its first attempt has failed (false).
async fn settle(monc: &MonClient, con: &Connection) -> bool {
    monc.0.changed.notified().await;
    con.is_connected()
}

impl MonClient {
    fn on_open(&self) {
        self.0.open.set(true);
        self.0.last_error.borrow_mut().take();
        if self.needs_rotating() && !self.has_rotating() {
            self.ask_rotating();
        }
        self.send_subscriptions(self.0.wanted.borrow().clone());
        let commands: Vec<u64> = self.0.commands.borrow().keys().copied().collect();
        commands.into_iter().for_each(|tid| self.send_command(tid));
        let versions: Vec<u64> = self.0.versions.borrow().keys().copied().collect();
        versions.into_iter().for_each(|tid| self.send_version(tid));
        if let Some(events) = self.events() {
            events.on_session();
        }
        self.0.changed.notify_all();
    }

    async fn stay(&self, con: &Connection) {
        let opened = self.0.env.now();
        while con.is_connected() && !self.0.stopped.get() {
            let _ = self
                .0
                .env
                .timeout(PING_INTERVAL, self.0.changed.notified())
                .await;
            let heard = con.last_keepalive_ack().unwrap_or(opened).max(opened);
            if self.0.env.now().saturating_sub(heard) > PING_TIMEOUT {
                return;
            }
            if self.0.env.now().saturating_sub(heard) >= PING_INTERVAL {
                con.send_keepalive();
            }
        }
    }

    pub(crate) fn needs_rotating(&self) -> bool {
        self.0.settings.is_service && self.0.method.get() == METHOD_CEPHX
    }

    pub(crate) fn has_rotating(&self) -> bool {
        self.0.rotating.borrow().newest().is_some()
    }

    fn send_auth(&self, payload: bytes::Bytes) {
        let message = MAuth {
            protocol: METHOD_CEPHX,
            payload,
            monmap_epoch: self.0.monmap_epoch.get(),
            ..MAuth::default()
        };
        self.send(message.encode());
    }

    fn ask_rotating(&self) {
        self.send_auth(CephxClient::rotating_request());
    }

    pub(crate) fn on_auth_reply(&self, reply: &MAuthReply) {
        if reply.result != 0 {
            tracing::warn!(
                "the monitor refused a renewal: {} {}",
                reply.result,
                reply.message
            );
            return;
        }
        let now = self.now();
        match self.0.cephx.borrow_mut().on_reply(&reply.payload, now) {
            Ok(Some(secrets)) => *self.0.rotating.borrow_mut() = secrets,
            Ok(None) => {}
            Err(error) => tracing::warn!("a renewal does not open: {error}"),
        }
        self.0.changed.notify_all();
    }

    /// Renews tickets without waiting for their time.
    pub(crate) fn renew_now(&self) {
        self.renew();
    }

    /// Fetches the rotating secrets without waiting for their time.
    pub(crate) fn renew_rotating(&self) {
        if self.needs_rotating() {
            self.ask_rotating();
        }
    }

    /// Renews what is due; true when something was asked for that is needed now.
    fn renew(&self) -> bool {
        if !self.is_open() || self.0.method.get() != METHOD_CEPHX {
            return false;
        }
        let now = self.now();
        if self.0.cephx.borrow().must_authenticate(now) {
            // The auth ticket itself ends: only a new handshake renews it.
            if let Some(con) = self.0.trying.borrow().as_ref() {
                con.mark_down();
            }
            self.0.changed.notify_all();
            return false;
        }
        let needs = self.0.cephx.borrow().needs(self.0.settings.want, now);
        if needs != 0 {
            let env = &self.0.env;
            let request = self
                .0
                .cephx
                .borrow()
                .renew_request(needs, &mut |buf: &mut [u8]| env.fill_random(buf));
            match request {
                Ok(payload) => self.send_auth(payload),
                Err(error) => tracing::warn!("cannot renew tickets: {error}"),
            }
        }
        if !self.needs_rotating() {
            return false;
        }
        let missing = !self.has_rotating();
        if missing || self.0.rotating.borrow().need_new(now) {
            self.ask_rotating();
        }
        missing
    }
}

/// Renews tickets and secrets before they end.
pub(crate) async fn keep_fresh(monc: MonClient) {
    while !monc.0.stopped.get() {
        let pause = if monc.renew() {
            ROTATING_RETRY
        } else {
            CREDENTIALS_INTERVAL
        };
        let _ = monc
            .0
            .env
            .timeout(pause, monc.0.changed.until(|| monc.0.stopped.get()))
            .await;
    }
}
