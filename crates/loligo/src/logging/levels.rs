//! How much is said: `debug_SUBSYSTEM` of Ceph, by the modules that are this subsystem here.
//!
//! ```text
//! debug_X = N or N/M      lines of X's modules
//! N <= 0                  warnings and errors
//! 1 to 4                  what happens now and then, too
//! 5 to 9                  what happens all the time, too
//! 10 and more             everything
//! ```
//! M, what Ceph keeps in memory for a dump, counts for nothing: no line is kept that is not written. Lines of other modules are
//! those of level 1.

use config::Config;
use tracing::Metadata;
use tracing::level_filters::LevelFilter;

/// Modules, sorted, and the options that say how much of them is told. The longest name that fits counts; InkStore stands where an OSD of
/// Ceph has BlueStore.
const SUBSYSTEMS: [(&str, &str); 18] = [
    ("auth", "debug_auth"),
    ("client", "debug_rados"),
    ("client::objecter", "debug_objecter"),
    ("client::rbd", "debug_rbd"),
    ("cls", "debug_objclass"),
    ("device", "debug_bdev"),
    ("mgr", "debug_mgr"),
    ("mon", "debug_mon"),
    ("monclient", "debug_monc"),
    ("msgr", "debug_ms"),
    ("osd", "debug_osd"),
    ("store", "debug_bluestore"),
    ("store::bluestore", "debug_bluestore"),
    ("store::bluestore::bluefs", "debug_bluefs"),
    ("store::filestore", "debug_filestore"),
    ("store::inkstore", "debug_bluestore"),
    ("store::kstore", "debug_kstore"),
    ("store::kv", "debug_rocksdb"),
];

/// The options that count.
pub(super) fn options() -> impl Iterator<Item = &'static str> {
    SUBSYSTEMS.iter().map(|(_, option)| *option)
}

/// How much of which module is said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Levels([LevelFilter; SUBSYSTEMS.len()]);

impl Levels {
    /// What a daemon's options ask for.
    pub(super) fn of(config: &Config) -> Levels {
        Levels(SUBSYSTEMS.map(|(_, option)| level_of(&config.str(option))))
    }

    /// How much of a module (`osd::pg::peering`) is said.
    pub(super) fn level(&self, module: &str) -> LevelFilter {
        let fits = |name: &str| {
            module.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
        };
        match SUBSYSTEMS.iter().rposition(|(name, _)| fits(name)) {
            Some(at) => self.0[at],
            None => LevelFilter::INFO,
        }
    }

    /// Whether a line of this kind is said.
    pub(super) fn admit(&self, of: &Metadata<'_>) -> bool {
        *of.level() <= self.level(of.target())
    }

    /// Nothing is said beyond this.
    pub(super) fn max(&self) -> LevelFilter {
        self.0.iter().copied().fold(LevelFilter::INFO, LevelFilter::max)
    }
}

/// The level that the value of an option, `N` or `N/M`, asks for.
fn level_of(value: &str) -> LevelFilter {
    let logged = value.split('/').next().and_then(|n| n.trim().parse::<i32>().ok());
    match logged {
        Some(..=0) => LevelFilter::WARN,
        Some(1..=4) | None => LevelFilter::INFO,
        Some(5..=9) => LevelFilter::DEBUG,
        Some(10..) => LevelFilter::TRACE,
    }
}

#[cfg(test)]
mod tests {
    use config::Source;

    use super::*;

    /// `debug_osd` and its like were taken and had no effect.
    #[test]
    fn options_say_how_much_their_modules_tell() {
        let config = Config::new("osd", "0");
        let level = |module: &str| Levels::of(&config).level(module);
        // Ceph's defaults: 1/5 of most, 0/0 of the messenger.
        assert_eq!(level("osd::pg::peering"), LevelFilter::INFO);
        assert_eq!(level("msgr::driver::link"), LevelFilter::WARN);
        assert_eq!(level("loligo::daemon"), LevelFilter::INFO);
        let set = |name: &str, value: &str| config.set(name, value, Source::Override).unwrap();
        set("debug_osd", "20");
        set("debug_mon", "0/5");
        set("debug_filestore", "5/0");
        set("debug_objecter", "10");
        assert_eq!(level("osd"), LevelFilter::TRACE);
        assert_eq!(level("osd::osd::boot"), LevelFilter::TRACE);
        assert_eq!(level("mon::shell"), LevelFilter::WARN);
        // Of another name that begins like it, not.
        assert_eq!(level("monclient::client"), LevelFilter::WARN);
        assert_eq!(level("store::filestore::apply"), LevelFilter::DEBUG);
        assert_eq!(level("store::inkstore::commit"), LevelFilter::INFO);
        assert_eq!(level("client::objecter"), LevelFilter::TRACE);
        assert_eq!(Levels::of(&config).max(), LevelFilter::TRACE);
    }

    #[test]
    fn subsystems_are_sorted_and_their_options_exist() {
        assert!(SUBSYSTEMS.is_sorted());
        for option in options() {
            assert!(config::option(option).is_some(), "{option}");
        }
    }
}
