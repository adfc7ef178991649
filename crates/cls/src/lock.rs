//! Class `lock`: advisory locks in xattrs `lock.NAME` (`src/cls/lock/` at v16.2).
//!
//! Lockers are (entity, cookie). An ephemeral exclusive lock takes its object with it when it is
//! released. Expired lockers vanish when the lock is next read.

use std::collections::BTreeMap;

use bstr::BString;
use bytes::Bytes;
use denc::Denc;
use types::{AddrType, EntityAddr, EntityName, Errno, UTime};

use crate::registry::class_method as method;
use crate::{Class, Flags, ObjectContext, argument, stored};

/// No lock.
pub const NONE: u8 = 0;
/// One locker.
pub const EXCLUSIVE: u8 = 1;
/// Many lockers.
pub const SHARED: u8 = 2;
/// One locker, and the object lives as long as the lock.
pub const EXCLUSIVE_EPHEMERAL: u8 = 3;

/// The locker may hold the lock already.
pub const FLAG_MAY_RENEW: u8 = 1;
/// The locker must hold the lock already.
pub const FLAG_MUST_RENEW: u8 = 2;

const PREFIX: &[u8] = b"lock.";

/// Who holds a lock. Wire: rados::cls::lock::locker_id_t v1.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct LockerId {
    /// The client.
    pub locker: EntityName,
    /// What the client tells its locks apart by.
    pub cookie: BString,
}

/// A holder's particulars. Wire: rados::cls::lock::locker_info_t v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct LockerInfo {
    /// When the lock lapses; zero for never.
    pub expiration: UTime,
    /// Where the client connected from, always of the legacy kind.
    pub addr: EntityAddr,
    /// The client's words.
    pub description: BString,
}

/// A lock as stored. Wire: rados::cls::lock::lock_info_t v1; also the reply of `get_info`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct LockInfo {
    /// The holders.
    pub lockers: BTreeMap<LockerId, LockerInfo>,
    /// One of this module's kinds.
    pub kind: u8,
    /// A lock is shared only by those who give the same tag.
    pub tag: BString,
}

/// Argument of `lock`. Wire: cls_lock_lock_op v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct LockOp {
    /// The lock.
    pub name: BString,
    /// One of this module's kinds.
    pub kind: u8,
    /// The locker's cookie.
    pub cookie: BString,
    /// The lock's tag.
    pub tag: BString,
    /// The client's words.
    pub description: BString,
    /// Time to live, zero for ever.
    pub duration: UTime,
    /// `FLAG_*`.
    pub flags: u8,
}

/// Argument of `unlock`. Wire: cls_lock_unlock_op v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct UnlockOp {
    /// The lock.
    pub name: BString,
    /// The locker's cookie.
    pub cookie: BString,
}

/// Argument of `break_lock`. Wire: cls_lock_break_op v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct BreakOp {
    /// The lock.
    pub name: BString,
    /// Whose hold is broken.
    pub locker: EntityName,
    /// The locker's cookie.
    pub cookie: BString,
}

/// Argument of `get_info`. Wire: cls_lock_get_info_op v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct GetInfoOp {
    /// The lock.
    pub name: BString,
}

/// Reply of `list_locks`. Wire: cls_lock_list_locks_reply v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct ListLocksReply {
    /// Names of the object's locks.
    pub locks: Vec<BString>,
}

/// Argument of `assert_locked`. Wire: cls_lock_assert_op v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct AssertOp {
    /// The lock.
    pub name: BString,
    /// The kind it must have.
    pub kind: u8,
    /// The caller's cookie.
    pub cookie: BString,
    /// The tag it must have.
    pub tag: BString,
}

/// Argument of `set_cookie`. Wire: cls_lock_set_cookie_op v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct SetCookieOp {
    /// The lock.
    pub name: BString,
    /// The kind it must have.
    pub kind: u8,
    /// The caller's cookie.
    pub cookie: BString,
    /// The tag it must have.
    pub tag: BString,
    /// The cookie from now on.
    pub new_cookie: BString,
}

/// The class.
pub const CLASS: Class = Class {
    name: "lock",
    methods: &[
        method!("lock", Flags::RD_WR.and(Flags::PROMOTE), lock),
        method!("unlock", Flags::RD_WR.and(Flags::PROMOTE), unlock),
        method!("break_lock", Flags::RD_WR, break_lock),
        method!("get_info", Flags::RD, get_info),
        method!("list_locks", Flags::RD, list_locks),
        method!("assert_locked", Flags::RD.and(Flags::PROMOTE), assert_locked),
        method!("set_cookie", Flags::RD_WR.and(Flags::PROMOTE), set_cookie),
    ],
    filters: &[],
};

fn is_valid(kind: u8) -> bool {
    matches!(kind, EXCLUSIVE | SHARED | EXCLUSIVE_EPHEMERAL)
}

fn attr_name(lock: &[u8]) -> Vec<u8> {
    [PREFIX, lock].concat()
}

async fn read(ctx: &mut dyn ObjectContext, name: &[u8]) -> Result<LockInfo, Errno> {
    let bytes = match ctx.getxattr(&attr_name(name)).await {
        Err(Errno::ENODATA) => return Ok(LockInfo::default()),
        other => other?,
    };
    let mut info: LockInfo = stored(&bytes)?;
    let now = ctx.now();
    info.lockers.retain(|_, locker| locker.expiration.is_zero() || locker.expiration >= now);
    if info.lockers.is_empty() && info.kind == EXCLUSIVE_EPHEMERAL {
        // Ceph goes on when the removal fails, so that a reader still learns of no lockers.
        let _ = ctx.remove().await;
    }
    Ok(info)
}

async fn write(ctx: &mut dyn ObjectContext, name: &[u8], info: &LockInfo) -> Result<(), Errno> {
    ctx.setxattr(&attr_name(name), info.to_bytes()).await
}

async fn lock(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let op: LockOp = argument(input)?;
    let may_renew = op.flags & FLAG_MAY_RENEW != 0;
    let must_renew = op.flags & FLAG_MUST_RENEW != 0;
    if !is_valid(op.kind) || op.name.is_empty() || (may_renew && must_renew) {
        return Err(Errno::EINVAL);
    }
    let mut info = match read(ctx, &op.name).await {
        Err(Errno::ENOENT) => LockInfo::default(),
        other => other?,
    };
    let (locker, mut addr) = ctx.caller();
    // The tag is checked before the locker's own entry goes, else a renewal could change it.
    if !info.lockers.is_empty() && info.tag != op.tag {
        return Err(Errno::EBUSY);
    }
    let id = LockerId { locker, cookie: op.cookie };
    if info.lockers.contains_key(&id) {
        if !may_renew && !must_renew {
            return Err(Errno::EEXIST);
        }
        info.lockers.remove(&id);
    } else if must_renew {
        return Err(Errno::ENOENT);
    }
    if !info.lockers.is_empty() && (op.kind != SHARED || info.kind != op.kind) {
        return Err(Errno::EBUSY);
    }
    info.kind = op.kind;
    info.tag = op.tag;
    let expiration = match op.duration {
        UTime::ZERO => UTime::ZERO,
        span => ctx.now().plus(span.to_duration()),
    };
    // A client may speak v1 to one OSD and v2 to another: its address is kept in one form.
    addr.kind = AddrType::Legacy;
    info.lockers.insert(id, LockerInfo { expiration, addr, description: op.description });
    write(ctx, &op.name, &info).await
}

async fn remove(ctx: &mut dyn ObjectContext, name: &[u8], id: LockerId) -> Result<(), Errno> {
    let mut info = read(ctx, name).await?;
    info.lockers.remove(&id).ok_or(Errno::ENOENT)?;
    if info.kind == EXCLUSIVE_EPHEMERAL {
        ctx.remove().await
    } else {
        write(ctx, name, &info).await
    }
}

async fn unlock(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let op: UnlockOp = argument(input)?;
    let (locker, _) = ctx.caller();
    remove(ctx, &op.name, LockerId { locker, cookie: op.cookie }).await
}

async fn break_lock(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let op: BreakOp = argument(input)?;
    remove(ctx, &op.name, LockerId { locker: op.locker, cookie: op.cookie }).await
}

async fn get_info(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<Bytes, Errno> {
    let op: GetInfoOp = argument(input)?;
    Ok(read(ctx, &op.name).await?.to_bytes())
}

async fn list_locks(ctx: &mut dyn ObjectContext, _input: &Bytes) -> Result<Bytes, Errno> {
    let attrs = ctx.getxattrs().await?;
    let names = attrs.keys().filter_map(|name| name.strip_prefix(PREFIX).map(BString::from));
    Ok(ListLocksReply { locks: names.collect() }.to_bytes())
}

/// The lock, if the caller holds it with that kind, tag and cookie.
async fn held(
    ctx: &mut dyn ObjectContext,
    name: &BString,
    kind: u8,
    tag: &BString,
    cookie: BString,
) -> Result<(LockInfo, LockerId), Errno> {
    if !is_valid(kind) || name.is_empty() {
        return Err(Errno::EINVAL);
    }
    let info = read(ctx, name).await?;
    let id = LockerId { locker: ctx.caller().0, cookie };
    if info.lockers.is_empty()
        || info.kind != kind
        || info.tag != *tag
        || !info.lockers.contains_key(&id)
    {
        return Err(Errno::EBUSY);
    }
    Ok((info, id))
}

async fn assert_locked(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let op: AssertOp = argument(input)?;
    held(ctx, &op.name, op.kind, &op.tag, op.cookie).await.map(|_| ())
}

async fn set_cookie(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let op: SetCookieOp = argument(input)?;
    let (mut info, id) = held(ctx, &op.name, op.kind, &op.tag, op.cookie).await?;
    let new = LockerId { locker: id.locker, cookie: op.new_cookie };
    if info.lockers.contains_key(&new) {
        return Err(Errno::EBUSY);
    }
    if let Some(locker) = info.lockers.remove(&id) {
        info.lockers.insert(new, locker);
    }
    write(ctx, &op.name, &info).await
}
