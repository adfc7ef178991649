//! Erasure codes as Ceph's plugins compute them: k data chunks become m parity chunks, and any k of
//! the k + m give the others back. Chunks are byte for byte those of Ceph's `jerasure`
//! (`reed_sol_van`, w = 8) and `isa` (`reed_sol_van`, `cauchy`) plugins.
//!
//! * `field`: GF(2^8). * `matrix`: the codes' matrices. * `kernel`: sums of products over slices,
//!   with what the processor has. * `code`: encode, decode. * `profile`: what operators write.
//! * `stripe`: how an object's bytes lie in chunks.
//!
//! Pure: knows nothing of objects, placement groups or OSDs.

mod code;
mod field;
mod kernel;
mod matrix;
mod profile;
mod stripe;

pub use code::{Code, DecodeError};
pub use profile::{BadProfile, Plugin, Profile, Technique};
pub use stripe::Stripes;
