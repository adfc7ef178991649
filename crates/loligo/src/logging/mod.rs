//! The log of this process: where lines go and how many there are.
//!
//! Tools and daemons that have not read their options yet say on standard error what the environment's `LOLIGO_LOG` asks for
//! (`LOLIGO_LOG=info,osd=debug`, `info` without). A daemon follows `log_file` and the options beside it ([`output`]), and
//! `debug_*` ([`levels`]) unless `LOLIGO_LOG` is set. Daemons that share a process follow their own each; a line
//! of no daemon's task (a thread's of a store) goes where the first daemon's go.
//!
//! A kind of line that nobody wants costs a load and a comparison: `tracing` remembers for each place that says something
//! whether anybody wants it, and asks again when an option changes.

mod levels;
mod output;

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::panic;
use std::rc::Rc;
use std::sync::{OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use config::Config;
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::Registry;

use levels::Levels;
use output::{CannotOpen, Output};

/// Names of the daemons that share this process, by tenant; none where there is one.
static TENANTS: OnceLock<Vec<String>> = OnceLock::new();

/// The tenant that a daemon alone in its process is.
pub(crate) const ALONE: u32 = 0;

/// The daemons of this process that have read their options, by tenant. Nothing is said while this is
/// held for writing: who says something reads it.
static DAEMONS: RwLock<BTreeMap<u32, Daemon>> = RwLock::new(BTreeMap::new());

/// What one daemon's options say.
struct Daemon {
    levels: Levels,
    output: Output,
}

/// Sets the process up to log.
pub(crate) fn start() {
    let filter: Box<dyn Layer<Registry> + Send + Sync> = match asked() {
        Some(targets) => Box::new(targets),
        None => Box::new(ByOptions),
    };
    let lines =
        tracing_subscriber::fmt::layer().with_ansi(false).with_writer(ToOutput).with_timer(Stamp);
    let all = tracing_subscriber::registry().with(filter).with(lines);
    let _ = tracing::subscriber::set_global_default(all);
}

/// What `LOLIGO_LOG` asks for; nothing where it is not set, is empty or says nothing that is understood, which the user is told.
fn asked() -> Option<Targets> {
    let text = std::env::var("LOLIGO_LOG").ok().filter(|text| !text.is_empty())?;
    match text.parse() {
        Ok(targets) => Some(targets),
        Err(error) => {
            eprintln!(
                "LOLIGO_LOG={text} is not followed ({error}): say, for example, info,osd=debug"
            );
            None
        }
    }
}

/// From now on each line says whose it is: tenants are numbered from 1.
pub(crate) fn name_tenants(names: Vec<String>) {
    let _ = TENANTS.set(names);
}

/// From now on the lines of a tenant are what its options want, and go where these say. SIGHUP and `log
/// reopen` have the files opened anew.
pub(crate) fn follow(config: &Config, tenant: u32) {
    if daemons().is_empty() {
        tell_panics();
    }
    take(config, tenant);
    let names: Vec<&'static str> = levels::options().chain(output::OPTIONS).collect();
    config.observe(&names, Rc::new(move |config, _| take(config, tenant)));
    config.on_log_reopen(reopen);
    env::real::on_hangup(reopen);
}

/// Appends lines of the cluster log to a file or, without one, writes them to standard error. The file is opened each time, as
/// Ceph's monitors do: it can be moved away.
pub(crate) fn append(file: Option<&str>, text: &str) {
    let Some(path) = file else {
        let _ = io::stderr().write_all(text.as_bytes());
        return;
    };
    let opened = File::options().create(true).append(true).mode(0o600).open(path);
    if let Err(error) = opened.and_then(|mut file| file.write_all(text.as_bytes())) {
        tracing::warn!("mon_cluster_log_file {path}: {error}");
    }
}

/// Whether lines go to a file that standard error is not: what is said there does not show.
fn is_apart() -> bool {
    // Not waited for: a thread that panics may be writing to it.
    DAEMONS.try_read().is_ok_and(|daemons| daemons.values().any(|d| d.output.is_apart()))
}

fn daemons() -> RwLockReadGuard<'static, BTreeMap<u32, Daemon>> {
    DAEMONS.read().unwrap_or_else(PoisonError::into_inner)
}

fn daemons_mut() -> RwLockWriteGuard<'static, BTreeMap<u32, Daemon>> {
    DAEMONS.write().unwrap_or_else(PoisonError::into_inner)
}

fn take(config: &Config, tenant: u32) {
    let levels = Levels::of(config);
    let opened = {
        let mut daemons = daemons_mut();
        let daemon = daemons
            .entry(tenant)
            .or_insert_with(|| Daemon { levels: levels.clone(), output: Output::default() });
        daemon.levels = levels;
        daemon.output.take(config)
    };
    tracing::callsite::rebuild_interest_cache();
    opened.unwrap_or_else(warn);
}

fn reopen() {
    let opened: Vec<_> = daemons_mut().values_mut().map(|d| d.output.reopen()).collect();
    opened.into_iter().for_each(|opened| opened.unwrap_or_else(warn));
}

fn warn(CannotOpen { path, error }: CannotOpen) {
    tracing::warn!("log_file {}: {error}; lines go on to where they went", path.display());
}

/// Has a panic stand in the log, too, where that is a file.
fn tell_panics() {
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |why| {
        if is_apart() {
            tracing::error!("{why}");
        }
        before(why);
    }));
}

/// Lets through what the daemons' options want.
struct ByOptions;

impl<S: Subscriber> Layer<S> for ByOptions {
    fn register_callsite(&self, of: &'static Metadata<'static>) -> Interest {
        let daemons = daemons();
        if daemons.is_empty() && *of.level() <= LevelFilter::INFO {
            return Interest::always();
        }
        match daemons.values().filter(|d| d.levels.admit(of)).count() {
            0 => Interest::never(),
            wanted if wanted == daemons.len() => Interest::always(),
            _ => Interest::sometimes(),
        }
    }

    /// Asked where daemons of a process differ.
    fn enabled(&self, of: &Metadata<'_>, _: Context<'_, S>) -> bool {
        let daemons = daemons();
        match env::running_owner().and_then(|tenant| daemons.get(&tenant)) {
            Some(daemon) => daemon.levels.admit(of),
            None if daemons.is_empty() => *of.level() <= LevelFilter::INFO,
            None => daemons.values().any(|d| d.levels.admit(of)),
        }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        let max = daemons().values().map(|d| d.levels.max()).max();
        Some(max.unwrap_or(LevelFilter::INFO))
    }
}

/// Gives lines to the output of the daemon that says them.
struct ToOutput;

impl<'a> MakeWriter<'a> for ToOutput {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line(Level::INFO)
    }

    fn make_writer_for(&'a self, of: &Metadata<'_>) -> Line {
        Line(*of.level())
    }
}

/// A line of this level.
struct Line(Level);

impl io::Write for Line {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let daemons = daemons();
        let own = env::running_owner().and_then(|tenant| daemons.get(&tenant));
        match own.or_else(|| daemons.values().next()) {
            Some(daemon) => daemon.output.write(self.0, line),
            None => Output::default().write(self.0, line),
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
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

#[cfg(test)]
mod tests {
    use std::fs;

    use config::Source;

    use super::*;

    /// A daemon's last words and a panic's were on standard error alone, which nobody sees where the log is a file.
    #[test]
    fn a_panic_stands_in_the_log() {
        let path = std::env::temp_dir().join(format!("loligo-panic-{}.log", std::process::id()));
        let config = Config::new("osd", "0");
        config.set("log_file", path.to_str().unwrap(), Source::File).unwrap();
        start();
        // Of no task here: its lines are those of the first daemon there is.
        follow(&config, 77);
        assert!(is_apart());
        tracing::info!("usual");
        tracing::debug!("too much");
        std::thread::spawn(|| panic!("rot")).join().unwrap_err();
        let log = fs::read_to_string(&path).unwrap();
        assert!(log.contains("usual") && !log.contains("too much"), "{log}");
        assert!(log.contains("ERROR") && log.contains("panicked") && log.contains("rot"), "{log}");
        fs::remove_file(&path).unwrap();
    }
}
