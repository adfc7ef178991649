//! Erasure codes as Ceph's plugins compute them: k data chunks become m parity chunks, and any k of
//! the k + m give the others back. Chunks are byte for byte those of Ceph's `jerasure` and `isa` plugins.
//!
//! * `field`: GF(2^w). * `matrix`: the codes' matrices. * `kernel`: sums of products over slices,
//!   with what the processor has. * `packets`: codes that only add. * `code`: encode, decode.
//! * `profile`: what operators write. * `stripe`: how an object's bytes lie in chunks.
//!
//! Pure: knows nothing of objects, placement groups or OSDs.

mod code;
mod field;
mod kernel;
mod matrix;
mod packets;
mod profile;
mod stripe;

pub use code::{Code, DecodeError};
pub use profile::{BadProfile, Plugin, Profile, Technique};
pub use stripe::Stripes;
