//! When a PG is scrubbed, and how (`OSD::sched_scrub`, `PG::sched_scrub`, `verify_scrub_mode` at
//! v16.2). Pure. Hours are those of UTC; the load of the machine does not count.

use types::UTime;
use types::time::Calendar;

/// A scrub to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Kind {
    /// Content too.
    pub deep: bool,
    /// Repair, because somebody asked for it.
    pub repair: bool,
    /// Repair if it is not too much (osd_scrub_auto_repair).
    pub auto_repair: bool,
    /// If it finds something, a deep scrub that repairs follows.
    pub deep_on_error: bool,
    /// Somebody or something asked for it: no flag, hour or stamp matters.
    pub required: bool,
    /// It shows what a repair left.
    pub check_repair: bool,
}

impl Kind {
    /// One scrub that does what both would. A repair that was asked for has no bound, and has its own scrub follow.
    pub fn and(self, other: Kind) -> Kind {
        let (deep, repair) = (self.deep || other.deep, self.repair || other.repair);
        Kind {
            deep,
            repair,
            auto_repair: !repair && (self.auto_repair || other.auto_repair),
            deep_on_error: !deep && (self.deep_on_error || other.deep_on_error),
            required: self.required || other.required,
            check_repair: !repair && (self.check_repair || other.check_repair),
        }
    }

    /// As the cluster log calls it.
    pub fn word(&self) -> &'static str {
        match (self.repair, self.deep) {
            (true, _) => "repair",
            (false, true) => "deep-scrub",
            (false, false) => "scrub",
        }
    }
}

/// What is configured, the pool's own values already put in.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// Seconds between scrubs.
    pub min_interval_sec: f64,
    /// Seconds after which the hour does not matter any more.
    pub max_interval_sec: f64,
    /// Seconds between deep scrubs.
    pub deep_interval_sec: f64,
    /// Share of `min_interval_sec` that scrubs are put off by chance.
    pub randomize: f64,
    /// Share of scrubs that are deep by chance.
    pub deep_chance: f64,
    /// First and last hour of the day.
    pub hours: (i64, i64),
    /// First and last day of the week.
    pub week_days: (i64, i64),
    /// osd_scrub_auto_repair.
    pub auto_repair: bool,
    /// Neither the map nor the pool says noscrub.
    pub allow_shallow: bool,
    /// Neither says nodeep-scrub.
    pub allow_deep: bool,
}

/// What the PG knows of its last scrubs.
#[derive(Debug, Clone, Copy)]
pub struct Last {
    /// Any.
    pub scrub: UTime,
    /// A deep one.
    pub deep: UTime,
    /// It found errors that only a deep scrub sees.
    pub has_deep_errors: bool,
    /// The statistics are not right: a scrub counts anew.
    pub stats_invalid: bool,
}

fn since(then: UTime, now: UTime) -> f64 {
    now.to_duration().saturating_sub(then.to_duration()).as_secs_f64()
}

/// Whether `at` is in a range that may go round the end; equal ends mean always.
fn is_within(at: i64, (from, to): (i64, i64)) -> bool {
    match from.cmp(&to) {
        std::cmp::Ordering::Equal => true,
        std::cmp::Ordering::Less => at >= from && at < to,
        std::cmp::Ordering::Greater => at >= from || at < to,
    }
}

/// Whether the clock allows scrubs.
pub fn clock_allows(times: &Times, now: UTime) -> bool {
    let at = Calendar::of(u32::try_from(now.to_duration().as_secs()).unwrap_or(u32::MAX));
    is_within(at.weekday.into(), times.week_days) && is_within(at.hour.into(), times.hours)
}

/// The scrub due now, if any. `luck` (0 to 1) puts this PG's scrub off, `coin` (0 to 1) makes it
/// deep.
pub fn due(times: &Times, last: &Last, now: UTime, luck: f64, coin: f64) -> Option<Kind> {
    let age = since(last.scrub, now);
    let wait = times.min_interval_sec * (1.0 + times.randomize * luck);
    if !last.stats_invalid && age < wait {
        return None;
    }
    let overdue = last.stats_invalid || age >= times.max_interval_sec;
    if !overdue && !clock_allows(times, now) {
        return None;
    }
    let deep_due = since(last.deep, now) >= times.deep_interval_sec;
    let deep = if !times.allow_deep {
        // A shallow scrub would lose what the deep one found.
        if last.has_deep_errors {
            return None;
        }
        false
    } else if times.allow_shallow {
        deep_due || last.has_deep_errors || coin < times.deep_chance
    } else {
        deep_due || last.has_deep_errors
    };
    if !deep && !times.allow_shallow {
        return None;
    }
    Some(Kind {
        deep,
        auto_repair: times.auto_repair && deep,
        deep_on_error: times.auto_repair && !deep,
        ..Kind::default()
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(sec: u64) -> UTime {
        UTime::from_duration(Duration::from_secs(sec))
    }

    /// A deep scrub that was to repair what a shallow one had found took the place of a repair that had been asked for
    /// meanwhile, and a scrub that was asked for the place of such a one.
    #[test]
    fn what_is_asked_for_twice_does_both() {
        let asked = Kind { required: true, ..Kind::default() };
        let repair = Kind { deep: true, repair: true, ..asked };
        let auto_repair = Kind { deep: true, auto_repair: true, ..asked };
        assert_eq!(auto_repair.and(repair), repair);
        assert_eq!(repair.and(auto_repair), repair);
        assert_eq!(asked.and(auto_repair), auto_repair);
        assert_eq!(repair.and(Kind { deep: true, check_repair: true, ..asked }), repair);
    }

    const TIMES: Times = Times {
        min_interval_sec: 100.0,
        max_interval_sec: 1000.0,
        deep_interval_sec: 500.0,
        randomize: 0.5,
        deep_chance: 0.0,
        hours: (0, 0),
        week_days: (0, 0),
        auto_repair: false,
        allow_shallow: true,
        allow_deep: true,
    };

    fn last(scrub: u64, deep: u64) -> Last {
        Last { scrub: at(scrub), deep: at(deep), has_deep_errors: false, stats_invalid: false }
    }

    #[test]
    fn intervals() {
        let kind = |l: &Last, now, luck| due(&TIMES, l, at(now), luck, 1.0);
        assert_eq!(kind(&last(1000, 1000), 1099, 0.0), None);
        assert_eq!(kind(&last(1000, 1000), 1101, 0.0), Some(Kind::default()));
        assert_eq!(kind(&last(1000, 1000), 1101, 1.0), None);
        assert!(kind(&last(1000, 1000), 1600, 1.0).unwrap().deep);
        let errors = Last { has_deep_errors: true, ..last(1000, 1000) };
        assert!(kind(&errors, 1101, 0.0).unwrap().deep);
        let invalid = Last { stats_invalid: true, ..last(1000, 1000) };
        assert!(kind(&invalid, 1001, 1.0).is_some());
    }

    #[test]
    fn hours() {
        let night = Times { hours: (22, 6), ..TIMES };
        let day = 86_400;
        let at_hour = |hour: u64| due(&night, &last(day, day), at(day + hour * 3600), 0.0, 1.0);
        assert!(
            at_hour(23).is_some() && at_hour(12).is_some(),
            "12 h is past the longest interval"
        );
        let patient = Times { max_interval_sec: 1e9, ..night };
        let at_hour = |hour: u64| due(&patient, &last(day, day), at(day + hour * 3600), 0.0, 1.0);
        assert!(at_hour(23).is_some() && at_hour(5).is_some() && at_hour(12).is_none());
    }

    #[test]
    fn flags() {
        let l = last(1000, 1000);
        let noscrub = Times { allow_shallow: false, ..TIMES };
        assert_eq!(due(&noscrub, &l, at(1200), 0.0, 0.0), None);
        assert!(due(&noscrub, &l, at(1501), 0.0, 1.0).unwrap().deep);
        let nodeep = Times { allow_deep: false, deep_chance: 1.0, ..TIMES };
        assert!(!due(&nodeep, &l, at(1501), 0.0, 0.0).unwrap().deep);
        let errors = Last { has_deep_errors: true, ..l };
        assert_eq!(due(&nodeep, &errors, at(1501), 0.0, 0.0), None);
        let auto = Times { auto_repair: true, ..TIMES };
        assert!(due(&auto, &l, at(1501), 0.0, 1.0).unwrap().auto_repair);
        assert!(due(&auto, &l, at(1200), 0.0, 1.0).unwrap().deep_on_error);
    }
}
