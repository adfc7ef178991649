//! From authenticated to up: CRUSH location, catching up with maps, MOSDBoot; what is repeated
//! while up (beacons, leases, requests the monitor may have lost); a clean stop.

use std::collections::{BTreeMap, VecDeque};
use std::rc::{Rc, Weak};
use std::time::Duration;

use bytes::Bytes;
use maps::osdmap::osd_state;
use messages::{
    MOSDAlive, MOSDBeacon, MOSDBoot, MOSDMarkMeDown, MOSDPGCreated, MOSDPGTemp, Message,
    PaxosHeader,
};
use monclient::MonEvents;
use msgr::Connection;
use types::{EntityAddr, Epoch, OsdId, PgId, SpgId, UTime};

use super::{BootState, Osd};
use crate::pg::host::LogLevel;

/// When the map had us down while we lived. Bound: what is older than the period goes, and each is a
/// new map.
#[derive(Debug, Default)]
pub(super) struct Markdowns(VecDeque<Duration>);

impl Markdowns {
    /// Once more, now: how often within the period.
    fn note(&mut self, now: Duration, period: Duration) -> usize {
        self.0.push_back(now);
        while self.0.front().is_some_and(|at| *at + period < now) {
            self.0.pop_front();
        }
        self.0.len()
    }
}

/// Bytes of CRUSH weight 1.
const WEIGHT_ONE_BYTES: f64 = (1_u64 << 40) as f64;
/// How long a clean stop waits for the monitor.
const GOODBYE_MAX: Duration = Duration::from_secs(2);
/// Longest wait for a command; it is tried again.
const COMMAND_MAX: Duration = Duration::from_secs(30);

/// What the monitors tell.
pub(super) struct Events(pub(super) Weak<Osd>);

impl MonEvents for Events {
    fn on_session(&self, _: &Connection) {
        if let Some(osd) = self.0.upgrade() {
            osd.resend_to_mon();
        }
    }

    fn on_config(&self, config: BTreeMap<String, String>) {
        if let Some(osd) = self.0.upgrade() {
            osd.config.set_mon_values(&config);
            osd.apply_config();
        }
    }
}

fn json_command(fields: serde_json::Value) -> Vec<String> {
    vec![fields.to_string()]
}

impl Osd {
    /// Puts the OSD where it belongs in the CRUSH map (osd_crush_update_on_start).
    async fn update_crush(self: &Rc<Osd>) {
        let id = self.whoami;
        if self.config.bool("osd_class_update_on_start") {
            let command = serde_json::json!({
                "prefix": "osd crush set-device-class",
                "class": "ssd",
                "ids": [id.to_string()],
            });
            self.boot_command(command).await;
        }
        if !self.config.bool("osd_crush_update_on_start") {
            return;
        }
        let weight = match self.config.float("osd_crush_initial_weight") {
            w if w >= 0.0 => w,
            _ => (self.statfs.get().total as f64 / WEIGHT_ONE_BYTES).max(0.00001),
        };
        let mut location: Vec<String> = self
            .config
            .str("crush_location")
            .split([' ', ',', ';', '\t'])
            .filter(|part| part.contains('='))
            .map(str::to_owned)
            .collect();
        if location.is_empty() {
            let host = self.config.host().split('.').next().unwrap_or("localhost").to_owned();
            location = vec![format!("host={host}"), "root=default".to_owned()];
        }
        let weight = (weight * 10000.0).round() / 10000.0;
        let command = serde_json::json!({
            "prefix": "osd crush create-or-move",
            "id": id,
            "weight": weight.max(0.0001),
            "args": location,
        });
        self.boot_command(command).await;
    }

    /// A map as the monitors have it.
    pub(super) async fn whole_map(&self, epoch: Epoch) -> Option<Bytes> {
        let command = serde_json::json!({"prefix": "osd getmap", "epoch": epoch});
        let run = self.monc.command(json_command(command), Bytes::new());
        match self.env.timeout(COMMAND_MAX, run).await {
            Ok(Ok(answer)) if answer.rc == 0 => Some(answer.outb),
            _ => None,
        }
    }

    async fn boot_command(&self, command: serde_json::Value) {
        let run = self.monc.command(json_command(command), Bytes::new());
        match self.env.timeout(COMMAND_MAX, run).await {
            Ok(Ok(answer)) if answer.rc == 0 => {}
            Ok(Ok(answer)) => tracing::warn!("crush update: {} ({})", answer.outs, answer.rc),
            Ok(Err(e)) => tracing::warn!("crush update: {e}"),
            Err(_) => tracing::warn!("crush update: no answer from the monitors"),
        }
    }

    /// Catches up with maps, then tells the monitors that we are here.
    pub(super) fn start_boot(self: &Rc<Osd>) {
        if self.is_stopping() || self.state.get() == BootState::Preboot {
            return;
        }
        self.set_state(BootState::Preboot);
        let osd = self.clone();
        self.env.go(async move {
            loop {
                let Ok(versions) = osd.monc.versions("osdmap").await else { return };
                if osd.state.get() != BootState::Preboot {
                    return;
                }
                let have = u64::from(osd.current_map().epoch);
                let catch_up = osd.config.uint("osd_map_message_max").max(1);
                if have > 0 && have + catch_up > versions.newest && have + 1 >= versions.oldest {
                    if osd.may_boot() {
                        osd.send_boot();
                        return;
                    }
                } else {
                    osd.want_maps(have as Epoch + 1);
                }
                osd.env.sleep(Duration::from_millis(100)).await;
            }
        });
    }

    /// Not while the map forbids it, and not before it says that our last life is over.
    fn may_boot(&self) -> bool {
        let map = self.current_map();
        if map.has_flag(maps::osdmap::osdmap_flags::NOUP) {
            tracing::debug!("osdmap NOUP flag is set, waiting for it to clear");
            return false;
        }
        map.exists(self.whoami) && !map.is_destroyed(self.whoami)
    }

    fn send_boot(&self) {
        self.set_state(BootState::Booting);
        let (own, id) = (self.superblock.borrow().osd_fsid, self.whoami);
        let known = self.current_map().uuid(id);
        if !known.is_zero() && known != own {
            // Monitors refuse it without a word to us.
            tracing::error!(
                "the map has osd.{id} with store {known}, and this one is {own}: it is not let in. If the other is lost: \
                 'ceph osd destroy {id} --yes-i-really-mean-it', 'ceph osd new {own} {id}', and a new key"
            );
        }
        let epoch = u64::from(self.current_map().epoch);
        let message = MOSDBoot {
            paxos: PaxosHeader { version: epoch, ..PaxosHeader::default() },
            sb: self.superblock.borrow().clone(),
            hb_back_addrs: self.hb_back.addrs(),
            cluster_addrs: self.cluster.addrs(),
            boot_epoch: self.boot_epoch.get(),
            hb_front_addrs: self.hb_front.addrs(),
            metadata: self.metadata(),
            osd_features: msgr::FEATURES_ALL,
        };
        self.monc.send(message.encode());
    }

    /// `osd metadata`.
    pub(crate) fn metadata(&self) -> BTreeMap<String, String> {
        let mut m = self.config.facts();
        let mut put = |k: &str, v: String| {
            m.insert(k.to_owned(), v);
        };
        let sb = self.superblock.borrow();
        put("front_addr", self.client.addrs().to_string());
        put("back_addr", self.cluster.addrs().to_string());
        put("hb_front_addr", self.hb_front.addrs().to_string());
        put("hb_back_addr", self.hb_back.addrs().to_string());
        put("osd_data", self.config.str("osd_data"));
        put("osd_objectstore", self.config.str("osd_objectstore"));
        put("hostname", self.config.host().to_owned());
        put("ceph_release", command::version::RELEASE.to_owned());
        put("ceph_version", crate::tell::version_text());
        put("ceph_version_short", crate::tell::VERSION.to_owned());
        put("arch", std::env::consts::ARCH.to_owned());
        put("osd_uuid", sb.osd_fsid.to_string());
        put("osdspec_affinity", String::new());
        put("rotational", "0".to_owned());
        put("journal_rotational", "0".to_owned());
        put("default_device_class", "ssd".to_owned());
        put("bluestore_bdev_size", self.statfs.get().total.to_string());
        m
    }

    /// The map has been looked at: are we what it says?
    pub(super) fn check_own_state(self: &Rc<Osd>) {
        let map = self.current_map();
        let me = self.whoami;
        let ours = map.is_up(me) && map.addrs(me) == Some(&self.client.addrs());
        match self.state.get() {
            BootState::Booting if ours => {
                self.up_epoch.set(map.up_from(me));
                if self.boot_epoch.get() == 0 {
                    self.boot_epoch.set(map.up_from(me));
                }
                self.set_state(BootState::Active);
                self.on_up();
            }
            BootState::Active if !map.exists(me) => {
                self.fail("the map does not have this osd any more".to_owned());
            }
            BootState::Active if map.state(me) & osd_state::STOP != 0 => {
                self.fail("the map says that this osd is stopped ('ceph osd stop')".to_owned());
            }
            BootState::Active if !ours => {
                let still = format!("Monitor daemon marked osd.{me} down, but it is still running");
                self.log_to_cluster(LogLevel::Warn, still);
                let down_at = map.info(me).map_or(0, |info| info.down_at);
                let wrongly = format!("map e{} wrongly marked me down at e{down_at}", map.epoch);
                self.log_to_cluster(LogLevel::Debug, wrongly);
                if let Some(reason) = self.note_markdown() {
                    return self.fail(reason);
                }
                self.up_epoch.set(0);
                self.up_thru_wanted.set(0);
                self.cluster.mark_down_all();
                self.renew_cluster_addrs();
                self.heartbeats.reset();
                self.set_state(BootState::Initializing);
                self.start_boot();
            }
            _ => {}
        }
    }

    /// Counts that the map had us down while we lived; why to give up if that was too often: each time
    /// costs everybody a peering, and whatever keeps our heartbeats away stays until somebody looks at
    /// it (osd_max_markdown_count; `OSD::_committed_osd_maps` in `src/osd/OSD.cc` at v16.2).
    fn note_markdown(&self) -> Option<String> {
        let most = usize::try_from(self.config.int("osd_max_markdown_count")).unwrap_or(0);
        let period = self.config.uint("osd_max_markdown_period");
        let count = self.markdowns.borrow_mut().note(self.env.now(), Duration::from_secs(period));
        (count > most).then(|| {
            format!(
                "marked down {count} times in the last {period} seconds, more than \
                 osd_max_markdown_count {most}: look at the network, then start it again"
            )
        })
    }

    /// A session that a peer made with us while the map had us down would be taken for one with our
    /// next life, which knows nothing of it: what is sent in it is lost (`tests/rejoin.rs` of
    /// simtest). So the next life has other addresses, as `Messenger::rebind` gives (v16.2): here
    /// the nonce alone differs.
    fn renew_cluster_addrs(&self) {
        const STEP: u32 = 1_000_000;
        let renewed =
            |addr: &EntityAddr| EntityAddr { nonce: addr.nonce.wrapping_add(STEP), ..*addr };
        self.cluster.set_addrs(self.cluster.addrs().iter().map(renewed).collect());
    }

    fn on_up(self: &Rc<Osd>) {
        self.monc.subscribe("osd_pg_creates", 0, 0);
        self.monc.subscribe("mgrmap", 0, 0);
        self.beacon_now();
        self.resend_to_mon();
        self.report_soon();
    }

    pub(crate) fn beacon_now(&self) {
        if !self.is_active() {
            return;
        }
        let epoch = self.current_map().epoch;
        let (mut pgs, mut min_clean) = (Vec::new(), epoch);
        for pg in self.all_pgs() {
            let core = pg.core.borrow();
            if core.is_primary() {
                pgs.push(pg.pgid().pgid);
                min_clean = min_clean.min(core.effective_last_epoch_clean());
            }
        }
        let message = MOSDBeacon {
            paxos: PaxosHeader::at(epoch.into()),
            pgs,
            min_last_epoch_clean: min_clean,
            last_purged_snaps_scrub: UTime::ZERO,
            osd_beacon_report_interval: self.config.int("osd_beacon_report_interval") as i32,
        };
        self.monc.send(message.encode());
    }

    pub(super) fn request_up_thru(&self, epoch: Epoch) {
        self.up_thru_wanted.set(self.up_thru_wanted.get().max(epoch));
        self.send_alive();
    }

    fn send_alive(&self) {
        let want = self.up_thru_wanted.get();
        let map = self.current_map();
        if !self.is_active() || want == 0 {
            return;
        }
        if map.info(self.whoami).is_some_and(|i| i.up_thru >= want) {
            self.up_thru_wanted.set(0);
            return;
        }
        let paxos = PaxosHeader { version: u64::from(map.epoch), ..PaxosHeader::default() };
        self.monc.send(MOSDAlive { paxos, want }.encode());
    }

    pub(super) fn request_pg_temp(&self, pgid: SpgId, acting: Vec<OsdId>) {
        self.pg_temp_wanted.borrow_mut().insert(pgid, acting.clone());
        if self.is_active() {
            self.send_pg_temp(BTreeMap::from([(pgid.pgid, acting)]));
        }
    }

    fn send_pg_temp(&self, pg_temp: BTreeMap<PgId, Vec<OsdId>>) {
        if pg_temp.is_empty() {
            return;
        }
        let message = MOSDPGTemp {
            paxos: PaxosHeader::default(),
            map_epoch: self.current_map().epoch,
            pg_temp,
            forced: false,
        };
        self.monc.send(message.encode());
    }

    pub(super) fn withdraw_pg_temp(&self, pgid: SpgId) {
        self.pg_temp_wanted.borrow_mut().remove(&pgid);
    }

    /// Requests that a monitor may have lost with its session.
    pub(super) fn resend_to_mon(&self) {
        if self.state.get() == BootState::Booting {
            self.send_boot();
        }
        if !self.is_active() {
            return;
        }
        self.send_alive();
        self.send_log();
        let wanted = self.pg_temp_wanted.borrow().clone();
        self.send_pg_temp(wanted.into_iter().map(|(spg, acting)| (spg.pgid, acting)).collect());
        for pg in self.all_pgs() {
            if pg.creation_unconfirmed() {
                self.tell_created(pg.pgid().pgid);
            }
        }
        self.merges.forget_sent();
        self.send_ready_to_merge();
    }

    pub(super) fn tell_created(&self, pgid: PgId) {
        let message = MOSDPGCreated { paxos: PaxosHeader::default(), pgid };
        self.monc.send(message.encode());
    }

    /// Tells the monitor that we stop, and waits a little until the map says so: others need not
    /// find out.
    pub(super) async fn say_goodbye(&self) {
        if !self.config.bool("osd_fast_shutdown_notify_mon") {
            return;
        }
        let map = self.current_map();
        let message = MOSDMarkMeDown {
            paxos: PaxosHeader::default(),
            fsid: map.fsid,
            target_osd: self.whoami,
            target_addrs: self.client.addrs(),
            epoch: map.epoch,
            request_ack: true,
            down_and_dead: true,
        };
        // From here on nothing is served: the monitor may call us dead.
        self.set_state(BootState::Stopping);
        for pg in self.all_pgs() {
            pg.stop();
        }
        self.monc.send(message.encode());
        let down = async {
            while self.current_map().is_up(self.whoami) {
                self.env.sleep(Duration::from_millis(20)).await;
            }
        };
        let _ = self.env.timeout(GOODBYE_MAX, down).await;
    }
}

impl Osd {
    /// How full the store is, in a task of its own: leases and beacons do not wait for it. And whether it
    /// answers at all: a device that neither does what it is told nor fails is given up in the end
    /// (osd_op_thread_suicide_timeout), as everybody who needs this OSD waits for it until then.
    fn look_at_store(self: &Rc<Osd>) {
        let unanswered = &self.counters.unanswered;
        let silent = unanswered.look(self.env.now());
        let suicide = self.config.uint("osd_op_thread_suicide_timeout");
        if suicide > 0 && silent >= Duration::from_secs(suicide) {
            let silent = silent.as_secs();
            return self.fail(format!("the store has not answered for {silent} seconds"));
        }
        if self.measures_room.replace(true) {
            return;
        }
        let osd = self.clone();
        self.env.go(async move {
            osd.measure_room().await;
            if let Ok(pools) = osd.store.pool_statfs().await {
                osd.pool_statfs.replace(pools);
            }
            osd.measures_room.set(false);
        });
    }
}

/// Boots.
pub(super) async fn run(osd: Rc<Osd>) {
    osd.want_maps(osd.current_map().epoch + 1);
    osd.update_crush().await;
    osd.start_boot();
}

/// Once a second: what time brings about.
pub(super) async fn tick(osd: Rc<Osd>) {
    let mut last_beacon = osd.env.now();
    let mut last_lease = osd.env.now();
    let mut last_resend = osd.env.now();
    while !osd.is_stopping() {
        // OSDs that tick together ask each other for scrub slots they have just taken themselves, and
        // would do so for ever (`OSD::get_tick_interval` in `src/osd/OSD.cc` at v16.2).
        osd.env.sleep(Duration::from_micros(950_000 + osd.env.random_u64() % 100_000)).await;
        if osd.is_stopping() {
            return;
        }
        let now = osd.env.now();
        osd.look_at_store();
        let beacon = osd.config.uint("osd_beacon_report_interval").max(1);
        if now - last_beacon >= Duration::from_secs(beacon) {
            last_beacon = now;
            osd.beacon_now();
        }
        let lease = crate::pg::Pg::settings(&osd.config, 0).read_lease;
        let due = now - last_lease >= lease / 2;
        if due {
            last_lease = now;
        }
        for pg in osd.all_pgs() {
            // One whose lease ran out (this process slept, or a replica did) has ops waiting.
            if due || pg.is_laggy() {
                pg.renew_lease();
            }
        }
        if now - last_resend >= Duration::from_secs(5) {
            last_resend = now;
            osd.resend_to_mon();
        }
        if osd.pgs.borrow().len() != osd.pgs_configured.get() {
            osd.configure_pgs();
        }
        osd.turns.configure(&osd.config);
        osd.schedule_scrubs();
        osd.warn_of_slow_ops();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_period_s_markdowns_count() {
        let mut markdowns = Markdowns::default();
        let counts = [0, 100, 550, 600, 601, 5000]
            .map(|sec| markdowns.note(Duration::from_secs(sec), Duration::from_secs(600)));
        assert_eq!(counts, [1, 2, 3, 4, 4, 1]);
    }
}
