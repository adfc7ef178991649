//! Calls of the classes `rbd` and `lock`: how their arguments are encoded (`src/cls/rbd/` and
//! `src/cls/lock/` at v16.2). Each adds one op to an operation.

use cls::lock::{AssertOp, BreakOp, EXCLUSIVE, GetInfoOp, LockOp, SetCookieOp, UnlockOp};
use denc::{Denc, Writer};
use types::{EntityName, SnapId, UTime};

use super::header::ParentImageSpec;
use super::names::{LOCK, LOCK_TAG};
use crate::Operation;

/// Parts of an operation that are class calls.
impl Operation {
    /// A method of class `rbd` that reads.
    pub(crate) fn rbd(self, method: &str, arguments: impl FnOnce(&mut Writer)) -> Operation {
        let mut w = Writer::new();
        arguments(&mut w);
        self.exec("rbd", method, w.as_slice())
    }

    /// A method of class `rbd` that writes.
    pub(crate) fn rbd_write(self, method: &str, arguments: impl FnOnce(&mut Writer)) -> Operation {
        self.rbd(method, arguments).as_write()
    }

    fn lock_call(self, method: &str, argument: &impl Denc) -> Operation {
        self.exec("lock", method, &argument.to_bytes()).as_write()
    }

    /// Takes `rbd_lock`; EBUSY when another holds it.
    pub(crate) fn rbd_lock(self, cookie: &str, tag: &str) -> Operation {
        self.lock_call(
            "lock",
            &LockOp {
                name: LOCK.into(),
                kind: EXCLUSIVE,
                cookie: cookie.into(),
                tag: tag.into(),
                description: "".into(),
                duration: UTime::ZERO,
                flags: 0,
            },
        )
    }

    /// Gives it back.
    pub(crate) fn rbd_unlock(self, cookie: &str) -> Operation {
        self.lock_call("unlock", &UnlockOp { name: LOCK.into(), cookie: cookie.into() })
    }

    /// Takes it from another.
    pub(crate) fn rbd_break_lock(self, locker: EntityName, cookie: &[u8]) -> Operation {
        self.lock_call("break_lock", &BreakOp { name: LOCK.into(), locker, cookie: cookie.into() })
    }

    /// Fails (EBUSY) unless we hold it.
    pub(crate) fn assert_rbd_locked(self, cookie: &str, tag: &str) -> Operation {
        self.lock_call(
            "assert_locked",
            &AssertOp {
                name: LOCK.into(),
                kind: EXCLUSIVE,
                cookie: cookie.into(),
                tag: tag.into(),
            },
        )
    }

    /// Holds it under another cookie.
    pub(crate) fn rbd_lock_cookie(self, old: &str, new: &str) -> Operation {
        self.lock_call(
            "set_cookie",
            &SetCookieOp {
                name: LOCK.into(),
                kind: EXCLUSIVE,
                cookie: old.into(),
                tag: LOCK_TAG.into(),
                new_cookie: new.into(),
            },
        )
    }

    /// Who holds it.
    pub(crate) fn rbd_lock_info(self) -> Operation {
        self.exec("lock", "get_info", &GetInfoOp { name: LOCK.into() }.to_bytes())
    }

    /// States of a range of objects in an object map; only of those in state `current`, if given.
    pub(crate) fn object_map_update(
        self,
        objects: std::ops::Range<u64>,
        state: u8,
        current: Option<u8>,
    ) -> Operation {
        self.rbd_write("object_map_update", |w| {
            w.u64(objects.start);
            w.u64(objects.end);
            w.u8(state);
            w.put(&current);
        })
    }

    /// Sets flags of the image or of a snapshot.
    pub(crate) fn set_flags(self, snap: SnapId, flags: u64, mask: u64) -> Operation {
        self.rbd_write("set_flags", |w| {
            w.u64(flags);
            w.u64(mask);
            w.u64(snap);
        })
    }

    /// A method that takes a parent of the old form and a child's id.
    pub(crate) fn child(self, method: &str, parent: &ParentImageSpec, child: &str) -> Operation {
        self.rbd_write(method, |w| {
            w.i64(parent.pool_id);
            w.put(&parent.image_id);
            w.u64(parent.snap_id);
            w.put(&child.to_owned());
        })
    }
}
