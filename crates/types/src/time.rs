//! Wall-clock times and durations with nanoseconds, and the forms Ceph prints them in.

use core::fmt;
use core::time::Duration;

use denc::{Denc, Error, Reader, Writer};

/// Seconds and nanoseconds since 1970 UTC, or a span. Wire: utime_t (u32, u32).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Denc)]
pub struct UTime {
    /// Whole seconds.
    pub sec: u32,
    /// Nanoseconds, below 10^9 unless the sender was careless.
    pub nsec: u32,
}

/// Below this many seconds Ceph prints a span, above it a date (`src/include/utime.h`).
const SPAN_LIMIT_SEC: u32 = 60 * 60 * 24 * 365 * 10;

impl UTime {
    /// The zero time, which Ceph reads as "never".
    pub const ZERO: UTime = UTime { sec: 0, nsec: 0 };

    /// Seconds and nanoseconds.
    pub const fn new(sec: u32, nsec: u32) -> UTime {
        UTime { sec, nsec }
    }

    /// Whether this is the zero time.
    pub fn is_zero(&self) -> bool {
        *self == UTime::ZERO
    }

    /// From a span since 1970, saturating in 2106.
    pub fn from_duration(d: Duration) -> UTime {
        UTime { sec: u32::try_from(d.as_secs()).unwrap_or(u32::MAX), nsec: d.subsec_nanos() }
    }

    /// The span since 1970.
    pub fn to_duration(self) -> Duration {
        Duration::from_secs(self.sec.into()) + Duration::from_nanos(self.nsec.into())
    }

    /// Seconds as a float.
    pub fn as_secs_f64(&self) -> f64 {
        f64::from(self.sec) + f64::from(self.nsec) / 1e9
    }

    /// From seconds as a float; negative and absurd values saturate.
    pub fn from_secs_f64(secs: f64) -> UTime {
        UTime::from_duration(Duration::try_from_secs_f64(secs).unwrap_or(Duration::ZERO))
    }

    /// Nanoseconds since 1970.
    pub fn as_nanos(&self) -> u64 {
        u64::from(self.sec) * 1_000_000_000 + u64::from(self.nsec)
    }

    /// This time plus a span, saturating.
    pub fn plus(self, d: Duration) -> UTime {
        UTime::from_duration(self.to_duration().saturating_add(d))
    }

    /// This time minus a span, saturating at zero.
    pub fn minus(self, d: Duration) -> UTime {
        UTime::from_duration(self.to_duration().saturating_sub(d))
    }

    /// The span since `earlier`, zero when that is later.
    pub fn since(self, earlier: UTime) -> Duration {
        self.to_duration().saturating_sub(earlier.to_duration())
    }

    /// `2021-03-04T05:06:07.123456Z` (utime_t::gmtime).
    pub fn gmtime(self) -> impl fmt::Display {
        Stamp { time: self, zone: "Z" }
    }

    /// `2021-03-04 05:06:07`: the date in UTC to the second.
    pub fn gmtime_nat(self) -> impl fmt::Display {
        fmt::from_fn(move |f| {
            if self.sec < SPAN_LIMIT_SEC {
                return write!(f, "{}.{:06}", self.sec, self.nsec / 1000);
            }
            let c = Calendar::of(self.sec);
            write!(f, "{:04}-{:02}-{:02} ", c.year, c.month, c.day)?;
            write!(f, "{:02}:{:02}:{:02}", c.hour, c.minute, c.second)
        })
    }
}

struct Stamp {
    time: UTime,
    zone: &'static str,
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let UTime { sec, nsec } = self.time;
        if sec < SPAN_LIMIT_SEC {
            return write!(f, "{sec}.{:06}", nsec / 1000);
        }
        let c = Calendar::of(sec);
        write!(f, "{:04}-{:02}-{:02}T", c.year, c.month, c.day)?;
        write!(f, "{:02}:{:02}:{:02}.{:06}{}", c.hour, c.minute, c.second, nsec / 1000, self.zone)
    }
}

/// Ceph's `operator<<`: spans below ten years as `sec.usec`, dates as
/// `2021-03-04T05:06:07.123456+0000`. The zone is always UTC.
impl fmt::Display for UTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Stamp { time: *self, zone: "+0000" }.fmt(f)
    }
}

/// A date and time of day in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Calendar {
    /// Year, 1970 to 2106.
    pub year: u32,
    /// Month, 1 to 12.
    pub month: u32,
    /// Day of the month, from 1.
    pub day: u32,
    /// Hour, 0 to 23.
    pub hour: u32,
    /// Minute.
    pub minute: u32,
    /// Second.
    pub second: u32,
    /// Day of the week, 0 is Sunday.
    pub weekday: u32,
}

impl Calendar {
    /// The date of a second since 1970.
    pub fn of(sec: u32) -> Calendar {
        let (days, second_of_day) = (sec / 86_400, sec % 86_400);
        // Years start in March here, so that a leap day is the last of its year; eras are 400
        // years of 146097 days, counted from 0000-03-01, which lies 719468 days before 1970.
        let z = days + 719_468;
        let era = z / 146_097;
        let day_of_era = z % 146_097;
        let year_of_era =
            (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted_month = (5 * day_of_year + 2) / 153;
        let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
        Calendar {
            year: year_of_era + era * 400 + u32::from(month <= 2),
            month,
            day: day_of_year - (153 * shifted_month + 2) / 5 + 1,
            hour: second_of_day / 3600,
            minute: second_of_day / 60 % 60,
            second: second_of_day % 60,
            weekday: (days + 4) % 7,
        }
    }
}

/// A signed length of time, or a point of a clock that starts anywhere. Wire: s32 seconds, s32
/// nanoseconds (ceph::signedspan, ceph::timespan).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(
    /// Nanoseconds.
    pub i64,
);

const NANOS: i64 = 1_000_000_000;

impl Span {
    /// No time.
    pub const ZERO: Span = Span(0);

    /// A span of this length, cut at 292 years.
    pub fn from_duration(d: Duration) -> Span {
        Span(i64::try_from(d.as_nanos()).unwrap_or(i64::MAX))
    }

    /// The length; 0 for a negative one.
    pub fn to_duration(self) -> Duration {
        Duration::from_nanos(u64::try_from(self.0).unwrap_or(0))
    }

    /// Seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / NANOS as f64
    }

    /// Whether this is no time.
    pub fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Sum, cut at the ends of the range.
    pub fn plus(self, other: Span) -> Span {
        Span(self.0.saturating_add(other.0))
    }

    /// Difference, cut at the ends of the range.
    pub fn minus(self, other: Span) -> Span {
        Span(self.0.saturating_sub(other.0))
    }
}

impl Denc for Span {
    fn encode(&self, w: &mut Writer) {
        w.i32((self.0 / NANOS) as i32);
        w.i32((self.0 % NANOS) as i32);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Span, Error> {
        let (secs, nanos) = (r.i32()?, r.i32()?);
        Ok(Span(i64::from(secs) * NANOS + i64::from(nanos)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_dates_and_spans_as_ceph() {
        let leap_day = UTime::new(1_709_164_799 + 86_400, 123_456_789);
        assert_eq!(leap_day.to_string(), "2024-02-29T23:59:59.123456+0000");
        assert_eq!(leap_day.gmtime().to_string(), "2024-02-29T23:59:59.123456Z");
        assert_eq!(UTime::new(30, 5_000).to_string(), "30.000005");
        assert_eq!(UTime::new(u32::MAX, 0).gmtime_nat().to_string(), "2106-02-07 06:28:15");
        assert_eq!(Calendar::of(0).weekday, 4);
    }
}
