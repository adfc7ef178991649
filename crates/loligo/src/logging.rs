//! Where log lines go: standard error, which `loligo up` points at DIR/log/NAME.log.
//! `LOLIGO_LOG` chooses levels by module: `LOLIGO_LOG=info,osd=debug`.

use std::fmt;
use std::sync::OnceLock;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{FmtSpan, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

/// Names of the daemons that share this process, by tenant; none where there is one.
static TENANTS: OnceLock<Vec<String>> = OnceLock::new();

/// Sets the process up to log.
pub(crate) fn start() {
    let filter = EnvFilter::try_from_env("LOLIGO_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_span_events(FmtSpan::NONE)
        .with_ansi(false)
        .with_writer(std::io::stderr)
        .with_timer(Stamp)
        .try_init();
}

/// From now on each line says whose it is: tenants are numbered from 1.
pub(crate) fn name_tenants(names: Vec<String>) {
    let _ = TENANTS.set(names);
}

/// The time, and which of the process's daemons runs.
struct Stamp;

impl FormatTime for Stamp {
    fn format_time(&self, w: &mut Writer<'_>) -> fmt::Result {
        SystemTime.format_time(w)?;
        let tenant = env::running_owner().and_then(|n| usize::try_from(n).ok()?.checked_sub(1));
        match tenant.and_then(|n| TENANTS.get()?.get(n)) {
            Some(name) => write!(w, " {name}"),
            None => Ok(()),
        }
    }
}
