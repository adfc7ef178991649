//! The table of classes and methods, and the rights each method needs.

use bytes::Bytes;
use types::Errno;

use crate::{Call, ObjectContext};

/// What a method does to its object. The OSD asks the caller for `r`, `w` and `x` by these, and
/// fails a method with `EIO` that does more than it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flags(u8);

impl Flags {
    /// Reads the object.
    pub const RD: Flags = Flags(1);
    /// Changes the object.
    pub const WR: Flags = Flags(2);
    /// Both.
    pub const RD_WR: Flags = Flags(3);
    /// A cache tier must hold the object first.
    pub const PROMOTE: Flags = Flags(8);

    /// These flags and those.
    pub const fn and(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// Whether the method may read.
    pub const fn reads(self) -> bool {
        self.0 & 1 != 0
    }

    /// Whether the method may write.
    pub const fn writes(self) -> bool {
        self.0 & 2 != 0
    }
}

/// What a method returns: a result and data. A negative result undoes the op and still carries
/// the data; of a write, both reach the client only if it asked for them (RETURNVEC).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Output {
    /// 0, a positive number with a meaning of the method's own, or a negative errno.
    pub result: i32,
    /// The output.
    pub data: Bytes,
}

impl From<Bytes> for Output {
    fn from(data: Bytes) -> Output {
        Output { result: 0, data }
    }
}

impl From<()> for Output {
    fn from((): ()) -> Output {
        Output::default()
    }
}

/// A method's body.
pub type MethodFn = for<'a> fn(&'a mut (dyn ObjectContext + 'a), &'a Bytes) -> Call<'a, Output>;

/// One method.
#[derive(Debug, Clone, Copy)]
pub struct Method {
    /// The name clients call.
    pub name: &'static str,
    /// What it does.
    pub flags: Flags,
    /// Its body.
    pub run: MethodFn,
}

/// Decides whether an object belongs into a listing.
pub trait PglsFilter {
    /// The xattr the filter wants to see (with its `_`), if any. An object without it is left out
    /// when `reject_without_xattr`.
    fn xattr(&self) -> Option<&[u8]>;
    /// Whether an object without the xattr is left out unseen.
    fn reject_without_xattr(&self) -> bool {
        true
    }
    /// Whether an object with this value of the xattr is listed.
    fn matches(&self, object: &[u8], value: &[u8]) -> bool;
}

/// Makes a class's filter of its argument.
pub type FilterFn = fn(&mut denc::Reader<'_>) -> Result<Box<dyn PglsFilter>, Errno>;

/// One class.
#[derive(Debug, Clone, Copy)]
pub struct Class {
    /// The name clients call.
    pub name: &'static str,
    /// Its methods.
    pub methods: &'static [Method],
    /// Its listing filters by name.
    pub filters: &'static [(&'static str, FilterFn)],
}

/// All classes, by name.
pub const CLASSES: &[Class] = &[
    crate::queue_2pc::CLASS,
    crate::cmpomap::CLASS,
    crate::fifo::CLASS,
    crate::hello::CLASS,
    crate::journal::CLASS,
    crate::lock::CLASS,
    crate::log::CLASS,
    crate::numops::CLASS,
    crate::otp::CLASS,
    crate::queue::CLASS,
    crate::rbd::CLASS,
    crate::refcount::CLASS,
    crate::rgw::CLASS,
    crate::rgw_gc::CLASS,
    crate::timeindex::CLASS,
    crate::user::CLASS,
    crate::version::CLASS,
];

/// The class of that name.
pub fn class(name: &[u8]) -> Option<&'static Class> {
    CLASSES.iter().find(|class| class.name.as_bytes() == name)
}

/// The method of that name.
pub fn method(class_name: &[u8], name: &[u8]) -> Option<&'static Method> {
    class(class_name)?.methods.iter().find(|method| method.name.as_bytes() == name)
}

/// A method table's entry: `method!("name", RD_WR, function)`, where the function is
/// `async fn(&mut dyn ObjectContext, &Bytes) -> Result<T, Errno>` and `T` becomes an [`Output`].
macro_rules! class_method {
    ($name:literal, $flags:expr, $run:path) => {
        $crate::Method {
            name: $name,
            flags: $flags,
            run: |ctx, input| {
                Box::pin(async move { $run(ctx, input).await.map($crate::Output::from) })
            },
        }
    };
}
pub(crate) use class_method;
