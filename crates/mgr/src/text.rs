//! Small texts as Ceph writes them.

use std::time::Duration;

use types::OsdId;

/// `[1,0,2]`.
pub(crate) fn osd_vector(osds: &[OsdId]) -> String {
    let osds: Vec<String> = osds.iter().map(OsdId::to_string).collect();
    format!("[{}]", osds.join(","))
}

/// `102s`, `4m`, `3h`, `2d`, ...: the smallest unit that keeps the number short.
pub(crate) fn timespan(time: Duration) -> String {
    const SHORT: Duration = Duration::from_secs(2);
    if time < SHORT {
        return format!("{}s", command::format_stream_float(time.as_secs_f64()));
    }
    let seconds = time.as_secs();
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let days = hours / 24;
    match () {
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 120 => format!("{minutes}m"),
        () if hours < 48 => format!("{hours}h"),
        () if days < 14 => format!("{days}d"),
        () if days / 7 < 12 => format!("{}w", days / 7),
        () if days / 30 < 24 => format!("{}M", days / 30),
        () => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_short() {
        let text = |secs| timespan(Duration::from_secs(secs));
        assert_eq!(text(102), "102s");
        assert_eq!(text(251), "4m");
        assert_eq!(text(7200), "2h");
        assert_eq!(text(3 * 86400), "3d");
        assert_eq!(text(40 * 86400), "5w");
        assert_eq!(timespan(Duration::from_millis(500)), "0.5s");
    }
}
