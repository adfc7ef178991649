//! Small texts as Ceph writes them.

use std::time::Duration;

use types::OsdId;

/// `[1,0,2]`.
pub(crate) fn osd_vector(osds: &[OsdId]) -> String {
    let osds: Vec<String> = osds.iter().map(OsdId::to_string).collect();
    format!("[{}]", osds.join(","))
}

/// `102s`, `4m`, `3h`, `2d`, ...: the largest unit of which there are two at least (for minutes,
/// more than two).
pub(crate) fn timespan(time: Duration) -> String {
    const MINUTE: u64 = 60;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    const WEEK: u64 = 7 * DAY;
    const MONTH: u64 = 30 * DAY;
    const YEAR: u64 = 365 * DAY;
    let s = time.as_secs();
    if s < 2 * MINUTE {
        format!("{s}s")
    } else if s < 2 * HOUR {
        format!("{}m", s / MINUTE)
    } else if s < 2 * DAY {
        format!("{}h", s / HOUR)
    } else if s < 2 * WEEK {
        format!("{}d", s / DAY)
    } else if s < 3 * MONTH {
        format!("{}w", s / WEEK)
    } else if s < 2 * YEAR {
        format!("{}M", s / MONTH)
    } else {
        format!("{}y", s / YEAR)
    }
}
