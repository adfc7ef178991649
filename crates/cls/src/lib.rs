//! Object classes: methods that run inside an OSD on one object (`src/cls/` and
//! `src/objclass/` at v16.2).
//!
//! A method sees its object through [`ObjectContext`] and nothing else; it knows no OSD. Inputs,
//! outputs and errnos are Ceph's. A class is one file with a table of methods; [`CLASSES`] lists
//! the files. What a method reads is the object as it was before the op vector it runs in (except
//! existence and size), as in Ceph: its own writes become visible when the vector has been applied.

pub mod cmpomap;
mod context;
pub mod fifo;
pub mod hello;
pub mod journal;
pub mod lock;
pub mod log;
pub mod numops;
pub mod otp;
pub mod queue;
pub mod queue_2pc;
pub mod rbd;
pub mod refcount;
mod registry;
pub mod rgw;
pub mod rgw_gc;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
pub mod timeindex;
pub mod user;
pub mod version;

pub use context::{Call, ObjectContext, ObjectStat};
pub use registry::{
    CLASSES, Class, FilterFn, Flags, Method, MethodFn, Output, PglsFilter, class, method,
};

use bytes::Bytes;
use denc::Denc;
use types::Errno;

/// Runs one method. An unknown class or method is `EOPNOTSUPP`.
pub async fn call(
    ctx: &mut dyn ObjectContext,
    class: &[u8],
    method: &[u8],
    input: &Bytes,
) -> Result<Output, Errno> {
    let method = registry::method(class, method).ok_or(Errno::EOPNOTSUPP)?;
    (method.run)(ctx, input).await
}

/// A method's argument; bytes that are none are the caller's fault.
fn argument<T: Denc>(input: &Bytes) -> Result<T, Errno> {
    T::from_bytes(input).map_err(|_| Errno::EINVAL)
}

/// A value this class has stored in the object; bytes that are none are the object's fault.
fn stored<T: Denc>(bytes: &Bytes) -> Result<T, Errno> {
    T::from_bytes(bytes).map_err(|_| Errno::EIO)
}
