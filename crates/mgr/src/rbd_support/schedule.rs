//! When something is done again and again: intervals in minutes, each counted from midnight of
//! 1970-01-01 or from a time of that day (`src/pybind/mgr/rbd_support/schedule.py` at v16.2).

use std::collections::BTreeSet;

use serde_json::{Value, json};
use types::time::Calendar;

const HOUR: u64 = 60;
const DAY: u64 = 24 * HOUR;

/// `5m`, `2h`, `1d`. Stored in minutes, at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Interval(u64);

impl Interval {
    pub(super) fn parse(text: &str) -> Result<Interval, String> {
        let digits = text.trim_end_matches(['d', 'h', 'm']);
        let unit = match &text[digits.len()..] {
            "" | "m" => Some(1),
            "h" => Some(HOUR),
            "d" => Some(DAY),
            _ => None,
        };
        let whole = digits.bytes().all(|b| b.is_ascii_digit());
        let minutes = digits.parse::<u64>().ok().filter(|_| whole);
        let minutes = minutes.zip(unit).and_then(|(n, unit)| n.checked_mul(unit));
        // More than a thousand years is no schedule.
        match minutes.filter(|n| (1..=366_000 * DAY).contains(n)) {
            Some(minutes) => Ok(Interval(minutes)),
            None => Err(format!("Invalid interval ({text})")),
        }
    }

    fn text(self) -> String {
        match self.0 {
            n if n % DAY == 0 => format!("{}d", n / DAY),
            n if n % HOUR == 0 => format!("{}h", n / HOUR),
            n => format!("{n}m"),
        }
    }
}

/// A time of day, with the offset of its zone if one was given.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct StartTime {
    hour: u64,
    minute: u64,
    /// Minutes east of UTC.
    offset: Option<i64>,
}

impl StartTime {
    /// Reads `14:05`, `2:05pm`, with seconds, with a date before it and a zone (`Z`, `+01:00`)
    /// behind it; of all that the date and the seconds are not kept.
    pub(super) fn parse(text: &str) -> Result<StartTime, String> {
        let bad = |why: &str| format!("Invalid start time {text}: {why}: {text}");
        let unknown = || bad("Unknown string format");
        let mut rest = text.trim();
        if let Some((date, time)) = rest.split_once(['T', ' '])
            && date.len() == 10
            && date.split('-').count() == 3
        {
            rest = time.trim();
        }
        let (rest, offset) = zone(rest).ok_or_else(unknown)?;
        let lower = rest.to_ascii_lowercase();
        let (clock, noon) = match (lower.strip_suffix("am"), lower.strip_suffix("pm")) {
            (Some(clock), _) => (clock.trim_end(), Some(0)),
            (_, Some(clock)) => (clock.trim_end(), Some(12)),
            _ => (lower.as_str(), None),
        };
        let number = |text: &str| {
            let digits = (1..=2).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
            if digits { text.parse::<u64>().ok() } else { None }
        };
        let parts: Vec<&str> = clock.split(':').collect();
        let (hour, minute) = match parts.as_slice() {
            [hour] if noon.is_some() => (number(hour), Some(0)),
            // A number alone is a day, at midnight.
            [day] => (number(day).filter(|day| (1..=31).contains(day)).map(|_| 0), Some(0)),
            [hour, minute] => (number(hour), number(minute)),
            [hour, minute, second] => {
                let second = second.split('.').next().and_then(number).filter(|s| *s < 60);
                (number(hour).filter(|_| second.is_some()), number(minute))
            }
            _ => (None, None),
        };
        let (Some(mut hour), Some(minute)) = (hour, minute) else { return Err(unknown()) };
        if let Some(noon) = noon {
            if !(1..=12).contains(&hour) {
                return Err(unknown());
            }
            hour = hour % 12 + noon;
        }
        if hour > 23 {
            return Err(bad("hour must be in 0..23"));
        }
        if minute > 59 {
            return Err(bad("minute must be in 0..59"));
        }
        Ok(StartTime { hour, minute, offset })
    }

    /// Minutes after midnight; the zone is added, as Ceph does.
    fn minutes(&self) -> u64 {
        let offset = self.offset.unwrap_or(0).rem_euclid(DAY as i64);
        self.hour * HOUR + self.minute + offset as u64
    }

    fn text(&self) -> String {
        let zone = match self.offset {
            None => String::new(),
            Some(offset) => {
                let sign = if offset < 0 { '-' } else { '+' };
                format!("{sign}{:02}:{:02}", offset.abs() / 60, offset.abs() % 60)
            }
        };
        format!("{:02}:{:02}:00{zone}", self.hour, self.minute)
    }
}

/// Takes a zone off the end of a time.
fn zone(text: &str) -> Option<(&str, Option<i64>)> {
    for utc in ["Z", "z", "UTC", "GMT"] {
        if let Some(rest) = text.strip_suffix(utc) {
            return Some((rest.trim_end(), Some(0)));
        }
    }
    let Some(at) = text.rfind(['+', '-']) else { return Some((text, None)) };
    let (rest, zone) = text.split_at(at);
    let digits: String = zone[1..].chars().filter(|c| *c != ':').collect();
    let number: i64 = digits.parse().ok()?;
    let minutes = match digits.len() {
        1 | 2 => number * 60,
        4 => number / 100 * 60 + number % 100,
        _ => return None,
    };
    let sign = if zone.starts_with('-') { -1 } else { 1 };
    (minutes < DAY as i64).then_some((rest.trim_end(), Some(sign * minutes)))
}

/// All that one level is told to do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Schedule {
    items: BTreeSet<(Interval, Option<StartTime>)>,
}

/// Intervals of one schedule at most.
const ITEMS_MAX: usize = 1024;

impl Schedule {
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(super) fn add(&mut self, interval: &str, start_time: Option<&str>) -> Result<(), String> {
        let item = (Interval::parse(interval)?, start(start_time)?);
        if self.items.len() >= ITEMS_MAX {
            return Err("too many intervals; remove some".to_owned());
        }
        self.items.insert(item);
        Ok(())
    }

    pub(super) fn remove(
        &mut self,
        interval: &str,
        start_time: Option<&str>,
    ) -> Result<(), String> {
        let item = (Interval::parse(interval)?, start(start_time)?);
        self.items.remove(&item);
        Ok(())
    }

    /// The next time after `now`, both in seconds since 1970; a whole minute. `None` for a
    /// schedule that is empty.
    pub(super) fn next_run(&self, now: u64) -> Option<u64> {
        let next = |(interval, start): &(Interval, Option<StartTime>)| {
            let start = 60 * start.as_ref().map_or(0, StartTime::minutes);
            let period = 60 * interval.0;
            start + (now.saturating_sub(start) / period + 1) * period
        };
        self.items.iter().map(next).min()
    }

    pub(super) fn to_value(&self) -> Value {
        let item = |(interval, start): &(Interval, Option<StartTime>)| json!({"interval": interval.text(), "start_time": start.as_ref().map(StartTime::text)});
        Value::Array(self.items.iter().map(item).collect())
    }

    /// What `to_value` (or Ceph) has written.
    pub(super) fn parse(text: &str) -> Result<Schedule, String> {
        let value: Value = serde_json::from_str(text).map_err(|e| format!("Invalid JSON ({e})"))?;
        let items = value.as_array().ok_or("Invalid schedule format")?;
        let mut schedule = Schedule::default();
        for item in items {
            let interval = item["interval"].as_str().ok_or("Invalid schedule format")?;
            schedule.add(interval, item["start_time"].as_str())?;
        }
        Ok(schedule)
    }
}

fn start(text: Option<&str>) -> Result<Option<StartTime>, String> {
    text.filter(|text| !text.is_empty()).map(StartTime::parse).transpose()
}

/// `2021-03-04 05:06:00`.
pub(super) fn time_text(seconds: u64) -> String {
    let c = Calendar::of(u32::try_from(seconds).unwrap_or(u32::MAX));
    format!("{}-{:02}-{:02} {:02}:{:02}:00", c.year, c.month, c.day, c.hour, c.minute)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_and_times_read_and_print_as_in_ceph() {
        for (from, to) in [("5", "5m"), ("60m", "1h"), ("24h", "1d"), ("90m", "90m"), ("2d", "2d")]
        {
            assert_eq!(Interval::parse(from).unwrap().text(), to);
        }
        for bad in ["", "m", "5x", "5mm", "-5", "0m", "5 m", "99999999999999999999d"] {
            assert!(Interval::parse(bad).is_err(), "{bad}");
        }
        let time = |text: &str| StartTime::parse(text).map(|t| t.text());
        assert_eq!(time("14:05").unwrap(), "14:05:00");
        assert_eq!(time("14:05:59").unwrap(), "14:05:00");
        assert_eq!(time("2020-01-01T10:00:00").unwrap(), "10:00:00");
        assert_eq!(time("10:30Z").unwrap(), "10:30:00+00:00");
        assert_eq!(time("10:30-05:00").unwrap(), "10:30:00-05:00");
        assert_eq!(time("10pm").unwrap(), "22:00:00");
        assert_eq!(time("10").unwrap(), "00:00:00");
        assert_eq!(time("abc").unwrap_err(), "Invalid start time abc: Unknown string format: abc");
        assert_eq!(
            time("25:00").unwrap_err(),
            "Invalid start time 25:00: hour must be in 0..23: 25:00"
        );
    }

    #[test]
    fn the_next_run_is_the_nearest_of_all() {
        let mut schedule = Schedule::default();
        assert_eq!(schedule.next_run(0), None);
        schedule.add("1h", Some("00:10")).unwrap();
        assert_eq!(schedule.next_run(0), Some(70 * 60));
        assert_eq!(schedule.next_run(70 * 60), Some(130 * 60));
        schedule.add("1d", None).unwrap();
        assert_eq!(schedule.next_run(86400 - 60), Some(86400));
        assert_eq!(time_text(1_614_834_360), "2021-03-04 05:06:00");
        assert_eq!(Schedule::parse(&schedule.to_value().to_string()), Ok(schedule));
    }
}
