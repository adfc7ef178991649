//! Misfortunes aimed at a window: several things go wrong in the order and at the moments that
//! matter. Single misfortunes at random times hardly ever meet like this.
//!
//! ```text
//! unflushed  some disks are slow, what they were given is in flight; the power goes; who kept most comes back last,
//!            or a primary serves what the others have in flight, and falls with them
//! island     an OSD and clients who read from it hear nobody else; its place is taken and written to
//! frozen     the same, but that the OSD stands still instead, and goes on when it is heard by others, too
//! intervals  many map changes without a death, while messages of each pair of hosts are late by its own measure;
//!            or two lead in turn, and what one of them and a third say to each other is late
//! thin       as many OSDs as may fall at once, and one more
//! resets     connections between OSDs break again and again, in the middle of messages
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use client::Client;
use osd::pg::PgAudit;
use serde_json::json;
use sim::{Control, DiskModel, Kill, LinkModel, Rng};
use types::{ObjectLocator, SpgId};

use crate::{Cluster, Mischief, Workload, diary};

/// What is aimed at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aim {
    /// Between what is said and what is durable.
    Unflushed,
    /// Leases.
    Island,
    /// Leases that end while nobody looks.
    Frozen,
    /// Messages of an earlier interval.
    Intervals,
    /// min_size.
    Thin,
    /// Messages that are repeated.
    Resets,
}

/// All of them with their names.
const AIMS: [(Aim, &str); 6] = [
    (Aim::Unflushed, "unflushed"),
    (Aim::Island, "island"),
    (Aim::Frozen, "frozen"),
    (Aim::Intervals, "intervals"),
    (Aim::Thin, "thin"),
    (Aim::Resets, "resets"),
];

/// How long an island is waited for to be marked down; it may lead nothing.
const MARKED_DOWN: Duration = Duration::from_secs(40);

impl Aim {
    /// One of them.
    pub(crate) fn of(rng: &Rng) -> Aim {
        rng.pick(&AIMS).0
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Aim> {
        AIMS.iter().find(|(_, known)| *known == name).map(|(aim, _)| *aim)
    }

    /// Their names.
    pub fn names() -> Vec<&'static str> {
        AIMS.iter().map(|(_, name)| *name).collect()
    }
}

/// Where it happens.
pub(crate) struct Scene<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) admin: &'a Client,
    pub(crate) load: &'a Workload,
    pub(crate) rng: &'a Rng,
    pub(crate) mischief: &'a Mischief,
}

fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

impl Scene<'_> {
    /// One of them happens, and ends.
    pub(crate) async fn strike(&self) {
        match self.mischief.aim.unwrap_or_else(|| Aim::of(self.rng)) {
            Aim::Unflushed if self.rng.chance(0.4) => self.promised().await,
            Aim::Unflushed => self.unflushed().await,
            Aim::Island => self.island(false).await,
            Aim::Frozen => self.island(true).await,
            Aim::Intervals if self.rng.chance(0.6) => self.take_turns().await,
            Aim::Intervals => self.intervals().await,
            Aim::Thin => self.thin().await,
            Aim::Resets => self.resets().await,
        }
    }

    fn world(&self) -> &Control {
        self.cluster.world()
    }

    async fn pause(&self, low: Duration, high: Duration) {
        self.world().sleep(self.rng.between(low, high)).await;
    }

    fn note(&self, text: String) {
        diary::note(self.world(), text);
    }

    fn shuffled(&self, mut osds: Vec<u32>) -> Vec<u32> {
        for last in (1..osds.len()).rev() {
            osds.swap(last, self.rng.below(last as u64 + 1) as usize);
        }
        osds
    }

    async fn unflushed(&self) {
        let (rng, cluster) = (self.rng, self.cluster);
        let sound = self.mischief.disks;
        let share = *rng.pick(&[0.4, 0.7]);
        let (slow, quick): (Vec<u32>, Vec<u32>) =
            self.shuffled(cluster.members()).into_iter().partition(|_| rng.chance(share));
        let each = millis(*rng.pick(&[10, 100, 700]));
        self.note(format!("disks of {slow:?} take {each:?}"));
        for osd in &slow {
            let model =
                DiskModel { write: each, sync: each, jitter_mean: each, slowness: 1.0, ..sound };
            cluster.disk(*osd).set_model(model);
        }
        if rng.chance(0.5) {
            // Not all get what is sent at once, and recovery takes its time.
            self.delay(&self.hosts("osd."), 0.5, *rng.pick(&[20, 200]));
        }
        self.pause(each / 2, each * 4).await;
        let mut quick = quick;
        if rng.chance(0.6)
            && let Some(first) = quick.first()
        {
            // Another interval begins; what is in flight is told to whoever leads it.
            self.note(format!("osd.{first} falls"));
            cluster.kill_osd(*first, Kill::PROCESS);
            self.pause(Duration::ZERO, seconds(2)).await;
        }
        let all = rng.chance(0.7);
        let power = if all { slow.clone() } else { slow.iter().copied().take(1).collect() };
        self.note(format!("{power:?} lose power, {quick:?} end: {all}"));
        for osd in &power {
            cluster.kill_osd(*osd, Kill::POWER);
        }
        for osd in quick.iter().filter(|_| all) {
            cluster.kill_osd(*osd, Kill::PROCESS);
        }
        for osd in &slow {
            cluster.disk(*osd).set_model(sound);
        }
        self.pause(Duration::ZERO, millis(300)).await;
        for osd in power {
            cluster.start_osd(osd);
        }
        self.undelay(&self.hosts("osd."));
        // They find each other, and serve.
        self.pause(seconds(1), seconds(9)).await;
        quick.reverse();
        for osd in quick {
            cluster.start_osd(osd);
            self.pause(Duration::ZERO, millis(500)).await;
        }
    }

    /// A primary alone has writes in its log when the next interval begins with the same members, and
    /// peering gives these writes to the others, whose disks are slow. As soon as the primary serves,
    /// and answers who has waited for them, the others lose power, and it ends. They go on without it.
    async fn promised(&self) {
        let (rng, cluster, world) = (self.rng, self.cluster, self.world());
        let Some((first, others)) = self.members_of_one() else { return };
        let sound = self.mischief.disks;
        let each = millis(*rng.pick(&[50, 150, 400]));
        let model = DiskModel { write: each, sync: Duration::ZERO, slowness: 1.0, ..sound };
        self.note(format!("disks of {others:?} take {each:?}, and they hear osd.{first} late"));
        let late = LinkModel { delay_min: each * 4, ..self.mischief.network };
        let led = format!("osd.{first}");
        for osd in &others {
            cluster.disk(*osd).set_model(model);
            world.set_link(&led, &format!("osd.{osd}"), Some(late));
        }
        // Clients get to what is late now.
        self.pause(each, each * 4).await;
        let of_others = || -> Vec<_> { others.iter().map(|osd| self.audits(*osd)).collect() };
        let before = of_others();
        let (size, min_size) = {
            let map = self.admin.osdmap();
            let pool = map.lookup_pool("p").and_then(|id| map.pool(id)).expect("the pool");
            (pool.size, pool.min_size)
        };
        // Another one makes an interval in which nobody is away, with leases to be waited for.
        self.min_size(if min_size < size { size } else { size - 1 }).await;
        // Whether it is so of some placement group with each of the others: as the primary has it
        // now, as the other one had it before, and has it now.
        let of_one = |so: &dyn Fn(&PgAudit, &PgAudit, &PgAudit) -> bool| {
            let now = of_others();
            self.audits(first).iter().any(|(pgid, led)| {
                before.iter().zip(&now).all(|(before, now)| {
                    let pair = before.get(pgid).zip(now.get(pgid));
                    pair.is_some_and(|(before, now)| so(led, before, now))
                })
            })
        };
        let has_begun = |_: &PgAudit, b: &PgAudit, now: &PgAudit| now.interval > b.interval;
        self.wait(each * 8, || of_one(&has_begun)).await;
        // What comes from now on of the last interval is refused.
        for osd in &others {
            world.set_link(&led, &format!("osd.{osd}"), None);
        }
        let serves = |led: &PgAudit, b: &PgAudit, now: &PgAudit| {
            let begun = now.interval > b.interval && now.interval == led.interval;
            begun && now.last_update > b.last_update && led.active
        };
        self.wait(each * 16, || of_one(&serves)).await;
        self.pause(each / 16, each / 2).await;
        self.note(format!("{others:?} lose power, osd.{first} ends"));
        for osd in &others {
            cluster.kill_osd(*osd, Kill::POWER);
            cluster.disk(*osd).set_model(sound);
        }
        cluster.kill_osd(first, Kill::PROCESS);
        self.order(json!({"prefix": "osd down", "ids": [first.to_string()]})).await;
        self.min_size(min_size).await;
        for osd in &others {
            cluster.start_osd(*osd);
        }
        // They find each other, and go on.
        self.pause(seconds(2), seconds(9)).await;
        cluster.start_osd(first);
        self.pause(Duration::ZERO, seconds(2)).await;
    }

    async fn min_size(&self, to: u8) {
        let (prefix, val) = ("osd pool set", to.to_string());
        self.order(json!({"prefix": prefix, "pool": "p", "var": "min_size", "val": val})).await;
    }

    /// Until something is so, or for so long.
    async fn wait(&self, most: Duration, is_so: impl Fn() -> bool) {
        let patience = self.world().now() + most;
        while self.world().now() < patience && !is_so() {
            self.world().sleep(millis(2)).await;
        }
    }

    /// The primary of some object, and the others that keep it.
    fn members_of_one(&self) -> Option<(u32, Vec<u32>)> {
        let objects = self.load.objects();
        if objects.is_empty() {
            return None;
        }
        let object: &String = self.rng.pick(&objects);
        let (first, acting) = self.kept_by(object)?;
        let others = acting.into_iter().filter(|osd| *osd != first);
        let others: Vec<u32> = others.filter_map(|osd| u32::try_from(osd).ok()).collect();
        Some((u32::try_from(first).ok()?, others)).filter(|(_, others)| !others.is_empty())
    }

    /// The placement groups that an OSD keeps, as they are now.
    fn audits(&self, id: u32) -> BTreeMap<SpgId, PgAudit> {
        let running = self.cluster.running_osds();
        let osd = running.iter().find(|(running, _)| *running == id);
        let pgs = osd.map(|(_, osd)| osd.audit().0).unwrap_or_default();
        pgs.into_iter().map(|pg| (pg.pgid, pg)).collect()
    }

    /// The primary of an object's placement group, and who keeps it.
    fn kept_by(&self, object: &str) -> Option<(i32, Vec<i32>)> {
        let map = self.admin.osdmap();
        let place = ObjectLocator { pool: map.lookup_pool("p")?, ..ObjectLocator::default() };
        let raw = map.object_to_raw_pg(object.as_bytes(), &place)?;
        let pg = map.pool(place.pool)?.raw_pg_to_pg(raw);
        let kept = map.pg_to_up_acting(pg);
        Some((kept.acting_primary, kept.acting))
    }

    /// The objects whose primary an OSD is.
    fn led_by(&self, osd: i32) -> Vec<String> {
        let leads = |object: &String| self.kept_by(object).is_some_and(|(first, _)| first == osd);
        self.load.objects().into_iter().filter(leads).collect()
    }

    /// Clients that only read, of objects that an OSD leads, and hear nobody but that OSD. Another
    /// one takes its place and is written to; those on the island must not be told what was before. Or the OSD
    /// is heard, but stands `still`, and what the clients asked it for waits before all else.
    async fn island(&self, still: bool) {
        let (world, rng, cluster) = (self.world(), self.rng, self.cluster);
        let led = |osd: &u32| i32::try_from(*osd).map(|osd| self.led_by(osd)).unwrap_or_default();
        let leads = cluster.members().into_iter().map(|osd| (osd, led(&osd)));
        let leading: Vec<(u32, Vec<String>)> = leads.filter(|(_, led)| !led.is_empty()).collect();
        if leading.is_empty() {
            return;
        }
        let (id, objects) = rng.pick(&leading).clone();
        let (osd, reader) = (format!("osd.{id}"), "client.island");
        self.note(format!("{osd} and {reader} are to be an island"));
        let client = cluster.client(reader).await;
        let io = client.io_ctx("p").await.expect("the pool");
        for object in &objects {
            self.load.spawn_reader(&world.node(reader), reader, &io, object, world.rng().fork());
        }
        self.pause(millis(100), millis(500)).await;
        let names = world.names();
        for name in names.iter().filter(|name| **name != osd && **name != reader) {
            if !still {
                world.partition(&osd, name);
            }
            world.partition(reader, name);
        }
        if still {
            cluster.freeze_osd(id);
        }
        self.note(format!("{osd} and {reader} are an island"));
        let patience = world.now() + MARKED_DOWN;
        let number = i32::try_from(id).expect("few OSDs");
        while self.admin.osdmap().is_up(number) && world.now() < patience {
            world.sleep(millis(200)).await;
        }
        self.pause(seconds(1), seconds(12)).await;
        if still {
            cluster.thaw_osd(id);
            self.pause(Duration::ZERO, millis(500)).await;
        }
        if rng.chance(0.5) {
            world.kill(reader, Kill::PROCESS);
        }
        world.heal();
        self.note(format!("{osd} is no island any more"));
        self.pause(Duration::ZERO, millis(500)).await;
        world.kill(reader, Kill::PROCESS);
    }

    fn hosts(&self, prefix: &str) -> Vec<String> {
        self.world().names().into_iter().filter(|name| name.starts_with(prefix)).collect()
    }

    /// Makes messages late between a share of the pairs of hosts, by up to so many milliseconds,
    /// each direction by a measure of its own. Not between monitors: with messages later than their
    /// patience they would elect for ever, and no order would be answered (short life 1069).
    fn delay(&self, hosts: &[String], share: f64, most: u64) {
        self.note(format!("messages between hosts are late by up to {most} ms"));
        let is_mon = |host: &String| host.starts_with("mon.");
        for from in hosts {
            for to in hosts
                .iter()
                .filter(|to| *to != from && !(is_mon(to) && is_mon(from)) && self.rng.chance(share))
            {
                let delay_min = self.rng.between(Duration::ZERO, millis(most));
                let model = LinkModel { delay_min, ..self.mischief.network };
                self.world().set_link(from, to, Some(model));
            }
        }
    }

    fn undelay(&self, hosts: &[String]) {
        for from in hosts {
            for to in hosts {
                self.world().set_link(from, to, None);
            }
        }
    }

    async fn intervals(&self) {
        let (rng, cluster) = (self.rng, self.cluster);
        let hosts = [self.hosts("osd."), self.hosts("mon.")].concat();
        let late = *rng.pick(&[0.2, 0.5]);
        let most = *rng.pick(&[100, 400, 1500]);
        self.delay(&hosts, late, most);
        for _ in 0..4 + rng.below(12) {
            let osd = *rng.pick(&cluster.members());
            let json = match rng.below(8) {
                0..4 => {
                    let weight = *rng.pick(&[0.0, 1.0]);
                    json!({"prefix": "osd primary-affinity", "id": osd, "weight": weight})
                }
                4 => json!({"prefix": "osd out", "ids": [osd.to_string()]}),
                5 => json!({"prefix": "osd in", "ids": [osd.to_string()]}),
                6 => json!({"prefix": "osd reweight", "id": osd, "weight": rng.unit()}),
                _ => json!({"prefix": "osd reweight", "id": osd, "weight": 1.0}),
            };
            self.order(json).await;
            self.pause(millis(20), millis(most)).await;
        }
        self.undelay(&hosts);
        self.set_right().await;
    }

    /// Two OSDs lead in turn. What one of them and a third say to each other belongs to an earlier
    /// turn when it is heard; what the other one writes reaches the first late, too.
    async fn take_turns(&self) {
        let (rng, world) = (self.rng, self.world());
        let members = self.shuffled(self.cluster.members());
        let [one, other, third, ..] = members[..] else { return };
        let between = rng.between(millis(100), millis(800));
        let writes = rng.between(millis(10), millis(300));
        let mut late = vec![(other, one, writes)];
        let ways = rng.below(3);
        if ways != 0 {
            late.push((third, one, between));
        }
        if ways != 1 {
            late.push((one, third, between));
        }
        for (from, to, delay_min) in &late {
            self.note(format!("osd.{to} hears osd.{from} late by {delay_min:?}"));
            let model = LinkModel { delay_min: *delay_min, ..self.mischief.network };
            world.set_link(&format!("osd.{from}"), &format!("osd.{to}"), Some(model));
        }
        for osd in members.iter().filter(|osd| **osd != one) {
            self.affinity(*osd, 0.0).await;
        }
        for _ in 0..2 + rng.below(5) {
            // Long enough to peer and to write; or not.
            let least = if rng.chance(0.7) { between * 3 } else { millis(20) };
            self.pause(least, between * 5).await;
            self.affinity(other, 1.0).await;
            self.affinity(one, 0.0).await;
            self.pause(writes, writes * 4 + millis(300)).await;
            self.affinity(one, 1.0).await;
            self.affinity(other, 0.0).await;
        }
        self.pause(Duration::ZERO, between * 2).await;
        for (from, to, _) in &late {
            world.set_link(&format!("osd.{from}"), &format!("osd.{to}"), None);
        }
        self.set_right().await;
    }

    async fn affinity(&self, osd: u32, weight: f64) {
        self.order(json!({"prefix": "osd primary-affinity", "id": osd, "weight": weight})).await;
    }

    async fn order(&self, json: serde_json::Value) {
        self.note(json.to_string());
        let answer = self.admin.mon_command(json.to_string(), Bytes::new()).await;
        let answer = answer.expect("the monitor answers");
        // It may have been removed meanwhile.
        assert!(matches!(answer.rc, 0 | -2), "{json}: {}", answer.outs);
    }

    /// All OSDs in, with the weights they had.
    async fn set_right(&self) {
        for osd in self.cluster.members() {
            let prefix = "osd primary-affinity";
            self.order(json!({"prefix": prefix, "id": osd, "weight": 1.0})).await;
            self.order(json!({"prefix": "osd in", "ids": [osd.to_string()]})).await;
            self.order(json!({"prefix": "osd reweight", "id": osd, "weight": 1.0})).await;
        }
    }

    async fn thin(&self) {
        let (rng, cluster) = (self.rng, self.cluster);
        let members = self.shuffled(cluster.members());
        let count = (cluster.spare_copies() + 1).min(members.len().saturating_sub(1)).max(1);
        let fallen = &members[..count];
        self.note(format!("{fallen:?} fall"));
        for osd in fallen {
            cluster.kill_osd(*osd, Kill::PROCESS);
            self.pause(Duration::ZERO, millis(*rng.pick(&[1, 300, 2000]))).await;
        }
        self.pause(seconds(1), seconds(5)).await;
        for osd in self.shuffled(fallen.to_vec()) {
            cluster.start_osd(osd);
            self.pause(Duration::ZERO, seconds(2)).await;
        }
    }

    async fn resets(&self) {
        let (world, rng) = (self.world(), self.rng);
        let members = self.cluster.members();
        let delay = millis(*rng.pick(&[0, 2, 20, 100]));
        let sound = self.mischief.network;
        let reset = *rng.pick(&[0.0, 0.01, 0.1]);
        self.note(format!("connections of OSDs break, {reset} of messages, {delay:?} on the way"));
        let model = LinkModel { delay_min: delay, reset, ..sound };
        let pairs = || members.iter().flat_map(|from| members.iter().map(move |to| (from, to)));
        for (from, to) in pairs().filter(|(from, to)| from != to) {
            world.set_link(&format!("osd.{from}"), &format!("osd.{to}"), Some(model));
        }
        for _ in 0..5 + rng.below(40) {
            let (one, other) = (rng.pick(&members), rng.pick(&members));
            world.reset_connections(&format!("osd.{one}"), &format!("osd.{other}"));
            self.pause(Duration::ZERO, millis(300)).await;
        }
        for (from, to) in pairs() {
            world.set_link(&format!("osd.{from}"), &format!("osd.{to}"), None);
        }
    }
}
