//! What processes took of the machine: CPU time and memory, from /proc.

use std::fs;
use std::time::Duration;

/// Of some processes together.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Usage {
    /// User and system time.
    pub(crate) cpu: Duration,
    /// The largest peak of resident memory among them.
    pub(crate) peak_bytes: u64,
}

/// Now. Processes that are gone count nothing.
pub(crate) fn of(pids: &[u32]) -> Usage {
    let mut all = Usage::default();
    for pid in pids {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // Behind the name in parentheses: state is the third field, utime and stime 14 and 15.
        let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let ticks: u64 =
            fields.split_whitespace().skip(11).take(2).filter_map(|n| n.parse::<u64>().ok()).sum();
        // SAFETY: sysconf reads a constant.
        let hertz =
            u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).unwrap_or(100).max(1);
        all.cpu += Duration::from_nanos(ticks * 1_000_000_000 / hertz);
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let peak = peak.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
        all.peak_bytes = all.peak_bytes.max(peak.unwrap_or(0) << 10);
    }
    all
}

impl Usage {
    /// What came since; the peak is the whole life's.
    pub(crate) fn since(&self, before: &Usage) -> Usage {
        Usage { cpu: self.cpu.saturating_sub(before.cpu), peak_bytes: self.peak_bytes }
    }
}
