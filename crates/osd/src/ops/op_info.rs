//! What an op vector may do, told by its codes and by the classes it calls: its order among the
//! object's ops and the rights its sender needs (`src/osd/osd_op_util.cc` at v16.2).

use types::Errno;
use types::osd::OsdOp;
use types::osd::ops::{self, message_flags, watch_op};

use super::class_lists::ClassLists;

/// A class method in a vector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassUse {
    /// The class.
    pub class: &'static str,
    /// The method.
    pub method: &'static str,
    /// Whether the method reads.
    pub read: bool,
    /// Whether the method writes.
    pub write: bool,
    /// Whether the class is one that the plain right `x` allows (osd_class_default_list).
    pub allowed: bool,
}

/// The rights an op's sender must have on the object (`OSDCap::is_capable`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rights<'a> {
    /// Needs `r`.
    pub read: bool,
    /// Needs `w`.
    pub write: bool,
    /// Needs `x`, `class-read` or `class-write`, or a grant for each of these.
    pub classes: &'a [ClassUse],
}

/// What a vector may do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OpInfo {
    read: bool,
    write: bool,
    cache: bool,
    class_read: bool,
    class_write: bool,
    force_rwordered: bool,
    /// Acts on the PG: goes to [`super::execute_pg_op`].
    pub pg_op: bool,
    /// Writes return their results and outputs.
    pub returnvec: bool,
    /// The methods it calls.
    pub classes: Vec<ClassUse>,
}

impl OpInfo {
    /// What the vector may do; an errno to answer at once if it does nothing (`EINVAL`) or calls
    /// what does not exist (`EOPNOTSUPP`) or may not be loaded (`EPERM`).
    pub fn of(ops: &[OsdOp], flags: u32, classes: &ClassLists) -> Result<OpInfo, Errno> {
        let mut info = OpInfo {
            force_rwordered: flags & message_flags::RWORDERED != 0,
            returnvec: flags & message_flags::RETURNVEC != 0,
            ..OpInfo::default()
        };
        for op in ops {
            if op.code == ops::WATCH && op.args.watch().op == watch_op::PING {
                // Changes nothing and is not logged, but keeps its place behind writes.
                info.force_rwordered = true;
            } else {
                info.write |= op.is_write_mode();
            }
            // A call's own mode bit says "reads"; its method's flags say what it does, and with
            // `class-read` alone a client may call what only reads.
            info.read |= op.is_read_mode() && op.code != ops::CALL;
            // It hears what others say of the object.
            info.read |= op.code == ops::WATCH;
            info.pg_op |= op.is_pg_type();
            info.cache |= op.is_cache_mode();
            if op.code == ops::CALL {
                info.add_call(op, classes)?;
            }
        }
        let does_something = info.read
            || info.write
            || info.cache
            || info.class_read
            || info.class_write
            || info.pg_op
            || info.force_rwordered
            || info.returnvec;
        if does_something { Ok(info) } else { Err(Errno::EINVAL) }
    }

    fn add_call(&mut self, op: &OsdOp, classes: &ClassLists) -> Result<(), Errno> {
        let args = op.args.cls();
        let class_end = usize::from(args.class_len);
        let method_end = class_end + usize::from(args.method_len);
        let names = op.indata.get(..method_end).ok_or(Errno::EINVAL)?;
        let (class_name, method_name) = names.split_at(class_end);
        if !classes.may_load(class_name) {
            return Err(Errno::EPERM);
        }
        let class = cls::class(class_name).ok_or(Errno::EOPNOTSUPP)?;
        let method = cls::method(class_name, method_name).ok_or(Errno::EOPNOTSUPP)?;
        self.class_read |= method.flags.reads();
        self.class_write |= method.flags.writes();
        self.classes.push(ClassUse {
            class: class.name,
            method: method.name,
            read: method.flags.reads(),
            write: method.flags.writes(),
            allowed: classes.allows(class_name),
        });
        Ok(())
    }

    /// Whether it may read the object.
    pub fn may_read(&self) -> bool {
        self.read || self.class_read
    }

    /// Whether it may write the object: its result goes into the log.
    pub fn may_write(&self) -> bool {
        self.write || self.class_write
    }

    /// Whether it moves data between tiers.
    pub fn may_cache(&self) -> bool {
        self.cache
    }

    /// Whether it is ordered among the object's writes.
    pub fn rwordered(&self) -> bool {
        self.may_write() || self.cache || self.force_rwordered
    }

    /// The rights its sender needs.
    pub fn rights(&self) -> Rights<'_> {
        Rights { read: self.read, write: self.write, classes: &self.classes }
    }
}
