//! Health checks. Wire: health_check_map_t v1, health_check_t v2, health_mute_t v1
//! (`src/mon/health_check.h` at v16.2).

use std::collections::BTreeMap;

use denc::{Denc, Error, Reader, Writer};
use types::UTime;

/// How bad it is; the worst is the least, as on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Severity {
    /// HEALTH_ERR.
    Err = 0,
    /// HEALTH_WARN.
    Warn = 1,
    /// HEALTH_OK.
    #[default]
    Ok = 2,
}

impl Severity {
    /// `HEALTH_OK`, `HEALTH_WARN`, `HEALTH_ERR`.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Err => "HEALTH_ERR",
            Severity::Warn => "HEALTH_WARN",
            Severity::Ok => "HEALTH_OK",
        }
    }

    /// `OK`, `WRN`, `ERR`: how lists of checks mark it.
    pub fn short_name(self) -> &'static str {
        match self {
            Severity::Err => "ERR",
            Severity::Warn => "WRN",
            Severity::Ok => "OK",
        }
    }
}

impl Denc for Severity {
    fn encode(&self, w: &mut Writer) {
        w.u8(*self as u8);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, Error> {
        match r.u8()? {
            0 => Ok(Severity::Err),
            1 => Ok(Severity::Warn),
            2 => Ok(Severity::Ok),
            value => Err(Error::Invalid { what: "health_status_t", value: value.into() }),
        }
    }
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 2, compat = 1)]
pub struct HealthCheck {
    /// How bad.
    pub severity: Severity,
    /// One line; `%num%`, `%plurals%`, ... are filled in where findings are merged.
    pub summary: String,
    /// One line each.
    pub detail: Vec<String>,
    /// How many things it is about.
    #[denc(since = 2)]
    pub count: i64,
}

/// Findings by their code.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct HealthCheckMap {
    /// By code: OSD_DOWN, ...
    pub checks: BTreeMap<String, HealthCheck>,
}

impl HealthCheckMap {
    /// Adds a finding; a code that is there stays, with the worse severity, and the details and
    /// counts of both.
    pub fn add(
        &mut self,
        code: &str,
        severity: Severity,
        summary: impl Into<String>,
        count: i64,
    ) -> &mut HealthCheck {
        let check = self.checks.entry(code.to_owned()).or_default();
        if check.summary.is_empty() {
            check.summary = summary.into();
        }
        check.severity = check.severity.min(severity);
        check.count += count;
        check
    }

    /// Takes in other findings; of a code that both have, summaries stay, details add up.
    pub fn merge(&mut self, other: HealthCheckMap) {
        for (code, check) in other.checks {
            match self.checks.get_mut(&code) {
                Some(ours) => {
                    ours.severity = ours.severity.min(check.severity);
                    ours.detail.extend(check.detail);
                    ours.count += check.count;
                }
                None => {
                    self.checks.insert(code, check);
                }
            }
        }
    }

    /// The worst severity.
    pub fn worst(&self) -> Severity {
        self.checks.values().map(|c| c.severity).min().unwrap_or(Severity::Ok)
    }
}

/// A code that is not to be shown.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct HealthMute {
    /// The code.
    pub code: String,
    /// Until when; zero: for ever.
    pub ttl: UTime,
    /// Whether it stays when the finding goes.
    pub sticky: bool,
    /// The finding's summary at the time.
    pub summary: String,
    /// The finding's count at the time.
    pub count: i64,
}
