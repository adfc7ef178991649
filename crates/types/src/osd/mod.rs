//! What OSDs persist and send each other (`src/osd/osd_types.h`, `src/include/rados.h` at v16.2).

pub mod ops;

pub use ops::{OpArgs, OsdOp, WireOp};
