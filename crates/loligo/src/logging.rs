//! Where log lines go: standard error, which `loligo up` points at DIR/log/NAME.log.
//! `LOLIGO_LOG` chooses levels by module: `LOLIGO_LOG=info,osd=debug`.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;

/// Sets the process up to log.
pub(crate) fn start() {
    let filter =
        EnvFilter::try_from_env("LOLIGO_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_span_events(FmtSpan::NONE)
        .with_ansi(false)
        .with_writer(std::io::stderr)
        .try_init();
}
