//! CRUSH: the map, its hash, and the mapper from an input number to a list of devices.
//!
//! Pure: no I/O, no clock, no randomness. [`CrushMap`] is the map with Ceph's binary encoding;
//! [`CrushMap::do_rule`] is bit-exact with `src/crush/mapper.c` at v16.2, since clients compute
//! the same placement for themselves.

mod bucket;
mod check;
mod choose;
mod class;
mod edit;
mod hash;
mod ln;
mod map;
mod mapper;
mod text;
mod tree;
mod upmap;
mod weight;
mod wire;

pub use check::Unfit;
pub use edit::{DEFAULT_TYPES, EditError, Location, fixed_weight, is_valid_name};
pub use hash::{hash2, hash3, hash4};
pub use map::*;
pub use text::{CompileError, Problem};
pub use tree::TreeItem;
pub use upmap::Demands;
