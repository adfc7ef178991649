//! The option table. Rows live in `options.tsv`, one option a line, sorted by name:
//!
//! ```text
//! name  type  level  flags  default  daemon default  min  max  choices|...  services,...  text
//! flags: r set at run time, s at start only, c when created, C when the cluster is created,
//!        n not from the monitor, u can be updated while running, l is followed from the next start on
//! ```
//!
//! Options of the manager's modules, `mgr/MODULE/NAME`, are a table of their own of the same form,
//! `module_options.tsv` (names, kinds and defaults are those of the modules in `src/pybind/mgr` at v16.2).

use std::sync::OnceLock;

/// The kind of an option's value, in the order of Ceph's numbers (`Option::type_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A natural number.
    Uint,
    /// A whole number.
    Int,
    /// Text.
    Str,
    /// A number.
    Float,
    /// `true` or `false`.
    Bool,
    /// One address.
    Addr,
    /// Several addresses of one daemon.
    AddrVec,
    /// A UUID.
    Uuid,
    /// Bytes.
    Size,
    /// Seconds.
    Secs,
    /// Milliseconds.
    Millisecs,
}

/// Whom an option is for, in the order of Ceph's numbers (`Option::level_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Everybody.
    Basic,
    /// People who know the system.
    Advanced,
    /// Developers.
    Dev,
}

/// One option.
#[derive(Debug, Clone, Copy)]
pub struct OptionDef {
    /// Its name, with underscores.
    pub name: &'static str,
    /// The kind of its value.
    pub kind: Kind,
    /// Whom it is for.
    pub level: Level,
    /// Letters as in the table.
    pub flags: &'static str,
    /// Default of clients and tools.
    pub default: &'static str,
    /// Default of daemons; empty if the same.
    pub daemon_default: &'static str,
    /// Smallest value or empty.
    pub min: &'static str,
    /// Largest value or empty.
    pub max: &'static str,
    /// Allowed words, `|` between them; empty if any.
    pub choices: &'static str,
    /// Daemons that read it, `,` between them.
    pub services: &'static str,
    /// One sentence about it; may be empty.
    pub desc: &'static str,
}

impl OptionDef {
    /// Whether a running daemon follows a change.
    pub fn can_update_at_runtime(&self) -> bool {
        self.flags.contains('u')
    }

    /// Whether a value may have variables (`$name`). What is no number was taken for one, 0, wherever a `$` stood in it.
    pub fn takes_variables(&self) -> bool {
        matches!(self.kind, Kind::Str | Kind::Addr | Kind::AddrVec)
    }

    /// Whether a change that a running daemon takes holds from its next start on only.
    pub fn is_followed_late(&self) -> bool {
        self.flags.contains('l')
    }

    /// Whether the monitor's configuration database may not set it.
    pub fn no_mon_update(&self) -> bool {
        self.flags.contains('n')
    }

    /// Whether it says something only while a cluster is made.
    pub fn at_cluster_create(&self) -> bool {
        self.flags.contains('C')
    }

    /// Names of the flags, as Ceph shows them.
    pub fn flag_names(&self) -> Vec<&'static str> {
        // Ceph tests the bits in this order.
        [
            ('r', "runtime"),
            ('n', "no_mon_update"),
            ('s', "startup"),
            ('C', "cluster_create"),
            ('c', "create"),
        ]
        .into_iter()
        .filter(|(letter, _)| self.flags.contains(*letter))
        .map(|(_, name)| name)
        .collect()
    }
}

impl Kind {
    /// Ceph's name of the kind.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Uint => "uint",
            Kind::Int => "int",
            Kind::Str => "str",
            Kind::Float => "float",
            Kind::Bool => "bool",
            Kind::Addr => "addr",
            Kind::AddrVec => "addrvec",
            Kind::Uuid => "uuid",
            Kind::Size => "size",
            Kind::Secs => "secs",
            Kind::Millisecs => "millisecs",
        }
    }

    fn parse(name: &str) -> Kind {
        match name {
            "uint" => Kind::Uint,
            "int" => Kind::Int,
            "float" => Kind::Float,
            "bool" => Kind::Bool,
            "addr" => Kind::Addr,
            "addrvec" => Kind::AddrVec,
            "uuid" => Kind::Uuid,
            "size" => Kind::Size,
            "secs" => Kind::Secs,
            "millisecs" => Kind::Millisecs,
            _ => Kind::Str,
        }
    }
}

impl Level {
    /// Ceph's name of the level.
    pub fn name(self) -> &'static str {
        match self {
            Level::Basic => "basic",
            Level::Advanced => "advanced",
            Level::Dev => "dev",
        }
    }
}

/// All options of daemons and clients, sorted by name.
pub fn options() -> &'static [OptionDef] {
    static TABLE: OnceLock<Vec<OptionDef>> = OnceLock::new();
    TABLE.get_or_init(|| parse_table(include_str!("options.tsv")))
}

/// All options of the manager's modules, sorted by name.
pub fn module_options() -> &'static [OptionDef] {
    static TABLE: OnceLock<Vec<OptionDef>> = OnceLock::new();
    TABLE.get_or_init(|| parse_table(include_str!("module_options.tsv")))
}

/// The option of that name, of a module, too; spaces and dashes count as underscores.
pub fn option(name: &str) -> Option<&'static OptionDef> {
    let table = if name.starts_with("mgr/") { module_options() } else { options() };
    let found = table.binary_search_by(|o| o.name.cmp(name));
    found
        .or_else(|_| {
            let name = name.replace(['-', ' '], "_");
            table.binary_search_by(|o| o.name.cmp(name.as_str()))
        })
        .ok()
        .map(|i| &table[i])
}

fn parse_table(text: &'static str) -> Vec<OptionDef> {
    let mut table: Vec<OptionDef> = text.lines().filter_map(parse_row).collect();
    table.sort_by_key(|o| o.name);
    table
}

fn parse_row(line: &'static str) -> Option<OptionDef> {
    let mut fields = line.split('\t');
    let mut field = || fields.next().unwrap_or("");
    let name = field();
    if name.is_empty() {
        return None;
    }
    Some(OptionDef {
        name,
        kind: Kind::parse(field()),
        level: match field() {
            "basic" => Level::Basic,
            "dev" => Level::Dev,
            _ => Level::Advanced,
        },
        flags: field(),
        default: field(),
        daemon_default: field(),
        min: field(),
        max: field(),
        choices: field(),
        services: field(),
        desc: field(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_defaults_parse() {
        assert!(options().len() > 700);
        for table in [options(), module_options()] {
            for pair in table.windows(2) {
                assert!(pair[0].name < pair[1].name, "{}", pair[1].name);
            }
        }
        for o in options().iter().chain(module_options()) {
            for default in [o.default, o.daemon_default] {
                if !default.is_empty() && o.kind != Kind::Addr {
                    assert!(crate::normalize(o, default).is_ok(), "{} = {default}", o.name);
                }
            }
        }
    }

    #[test]
    fn dashes_and_spaces_are_underscores() {
        assert_eq!(option("osd pool default size").map(|o| o.default), Some("3"));
        assert_eq!(option("mon-host").map(|o| o.kind), Some(Kind::Str));
        assert!(option("bogus").is_none());
        assert_eq!(option("mgr/balancer/max-misplaced").map(|o| o.kind), None);
        assert_eq!(option("mgr/balancer/sleep_interval").map(|o| o.kind), Some(Kind::Secs));
    }
}
