//! Options: which there are, `ceph.conf`, and which value holds.
//!
//! An option's value comes from the strongest source that sets it: compiled default, monitor,
//! file, environment, command line, override at run time. Names, kinds, defaults and precedence
//! are those of Ceph 16.2 (`src/common/options.cc`, `src/common/config.cc`).

mod admin;
mod conf_file;
mod numbers;
mod options;
mod store;
mod value;

pub use admin::{admin_command, admin_signatures, dump_option};
pub use conf_file::{ConfError, ConfFile, quoted, with_setting};
pub use numbers::{
    NumberError, Units, parse_bytes, parse_float, parse_iec, parse_integer, parse_secs, parse_si,
    parse_si_unsigned,
};
pub use options::{Kind, Level, OptionDef, module_options, option, options};
pub use store::{Config, Observer, SetError, Shown, Source};
pub use value::{ValueError, normalize, parse_bool};
