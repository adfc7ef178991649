//! How long OSDs' heartbeats take, as `dump_osd_network` lists them: of one OSD by itself, of all by
//! the manager, whose findings `OSD_SLOW_PING_TIME_*` rest on the same list (`src/osd/OSD.cc`,
//! `src/mgr/ClusterState.cc`, `src/mon/PGMap.cc` at v16.2).

use std::collections::BTreeMap;

use command::Formatter;
use types::OsdId;
use types::osd::PingTimes;
use types::osd::osd_stat::Minutes;
use types::time::Calendar;

/// One interface of one pair of OSDs.
#[derive(Debug, Clone, Copy)]
pub struct Ping<'a> {
    /// The slowest of the three averages, microseconds.
    pub worst_us: u32,
    /// Who pinged.
    pub from: OsdId,
    /// Whom.
    pub to: OsdId,
    /// Over the back interface; else the front one.
    pub back: bool,
    /// Unix time.
    pub last_update: u32,
    average: &'a Minutes,
    min: &'a Minutes,
    max: &'a Minutes,
    last: u32,
}

fn worst(minutes: &Minutes) -> u32 {
    minutes.0.into_iter().max().unwrap_or(0)
}

impl Ping<'_> {
    /// The averages fall: the last minute was faster than the last five, those than the last 15.
    pub fn improving(&self) -> bool {
        let [one, five, fifteen] = self.average.0;
        one < five && five < fifteen
    }

    fn dump(&self, f: &mut Formatter, now_secs: u64, stale_secs: u64) {
        f.object("entry", |f| {
            f.dump_string("last update", date_text(self.last_update));
            let age = now_secs.saturating_sub(self.last_update.into());
            f.dump_bool("stale", age > stale_secs);
            f.dump_int("from osd", self.from);
            f.dump_int("to osd", self.to);
            f.dump_string("interface", if self.back { "back" } else { "front" });
            dump_minutes(f, "average", self.average);
            dump_minutes(f, "min", self.min);
            dump_minutes(f, "max", self.max);
            f.dump_unquoted("last", millis(self.last));
        });
    }
}

/// The pings of one OSD to its peers, in no special order.
pub fn pings_of(from: OsdId, times: &BTreeMap<OsdId, PingTimes>) -> impl Iterator<Item = Ping<'_>> {
    let known = times.iter().filter(|(_, t)| t.last_update != 0);
    known.flat_map(move |(&to, t)| {
        let last_update = t.last_update;
        let back = Ping {
            worst_us: worst(&t.back_pingtime),
            from,
            to,
            back: true,
            last_update,
            average: &t.back_pingtime,
            min: &t.back_min,
            max: &t.back_max,
            last: t.back_last,
        };
        let front = (t.front_last != 0).then_some(Ping {
            worst_us: worst(&t.front_pingtime),
            back: false,
            average: &t.front_pingtime,
            min: &t.front_min,
            max: &t.front_max,
            last: t.front_last,
            ..back
        });
        [Some(back), front].into_iter().flatten()
    })
}

/// Microseconds from which a ping is slow: `mon_warn_on_slow_ping_time` (milliseconds), or if that
/// is 0 a share (`mon_warn_on_slow_ping_ratio`) of the heartbeats' grace in seconds.
pub fn slow_threshold_us(time_ms: f64, ratio: f64, grace_secs: f64) -> u64 {
    let ms = if time_ms == 0.0 { grace_secs * ratio * 1000.0 } else { time_ms };
    (ms * 1000.0).round() as u64
}

/// What `dump_osd_network` prints: the pings of at least the threshold, the slowest first.
pub fn dump(
    f: &mut Formatter,
    mut pings: Vec<Ping<'_>>,
    threshold_us: u64,
    now_secs: u64,
    stale_secs: u64,
) {
    pings.retain(|p| u64::from(p.worst_us) >= threshold_us);
    pings.sort_by_key(|p| std::cmp::Reverse((p.worst_us, p.from, p.to, p.back)));
    f.object("network_ping_times", |f| {
        f.dump_unsigned("threshold", threshold_us / 1000);
        f.array("entries", |f| pings.iter().for_each(|p| p.dump(f, now_secs, stale_secs)));
    });
}

fn dump_minutes(f: &mut Formatter, name: &str, minutes: &Minutes) {
    f.object(name, |f| {
        for (name, value) in ["1min", "5min", "15min"].into_iter().zip(minutes.0) {
            f.dump_unquoted(name, millis(value));
        }
    });
}

/// Microseconds as milliseconds with three decimals.
pub fn millis(us: u32) -> String {
    format!("{}.{:03}", us / 1000, us % 1000)
}

/// As C's `ctime` writes a date, in UTC.
pub fn date_text(sec: u32) -> String {
    const DAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let c = Calendar::of(sec);
    let day = DAYS.get(c.weekday as usize).copied().unwrap_or_default();
    let month = (c.month as usize).checked_sub(1).and_then(|m| MONTHS.get(m)).unwrap_or(&"");
    format!("{day} {month} {:>2} {:02}:{:02}:{:02} {}", c.day, c.hour, c.minute, c.second, c.year)
}
