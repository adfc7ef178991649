//! Class `2pc_queue`: a queue into which room is reserved before something is queued
//! (`src/cls/2pc_queue/` at v16.2).
//!
//! Reservations are in the head of the queue (class `queue`), or in an xattr where the head has no
//! room. What each adds for the lengths of its entries stays counted when it ends, until none is left; in 16.2 for
//! ever, so that a queue is full after some millions of entries.

use bytes::Bytes;
use denc::Denc;
use types::{Errno, UTime};

use crate::queue::ring::{self, Head, OVERHEAD_LEN};
use crate::queue::{self, InitOp};
use crate::registry::class_method as method;
use crate::{Class, Flags, ObjectContext, argument};

const ATTR: &[u8] = b"cls_queue_urgent_data";
/// Bytes of reservations in the head: about a thousand.
const RESERVATIONS_LEN_MAX: u64 = 23552;

/// A reservation. Wire: cls_2pc_reservation v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct Reservation {
    /// Bytes of data.
    pub size: u64,
    /// When it was made.
    pub timestamp: UTime,
}

/// Reservations by id, in any order, and in the one they came in when encoded again.
pub type Reservations = Vec<(u32, Reservation)>;

/// What the queue's head has of ours. Wire: cls_2pc_urgent_data v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct UrgentData {
    /// Bytes of all reservations.
    pub reserved_size: u64,
    /// The last id.
    pub last_id: u32,
    /// Reservations here.
    pub reservations: Reservations,
    /// Whether there ever were some in the xattr.
    pub has_xattrs: bool,
}

/// Argument of `2pc_queue_reserve`. Wire: cls_2pc_queue_reserve_op v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct ReserveOp {
    /// Bytes of data.
    pub size: u64,
    /// Entries they are in.
    pub entries: u32,
}

/// Reply of `2pc_queue_reserve`, and argument of `2pc_queue_abort`. Wire:
/// cls_2pc_queue_reserve_ret and cls_2pc_queue_abort_op v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct ReservationId {
    /// The reservation.
    pub id: u32,
}

/// Argument of `2pc_queue_commit`. Wire: cls_2pc_queue_commit_op v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct CommitOp {
    /// The reservation.
    pub id: u32,
    /// The entries.
    pub data: Vec<Bytes>,
}

/// Argument of `2pc_queue_expire_reservations`. Wire: cls_2pc_queue_expire_op v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct ExpireOp {
    /// Older ones go.
    pub stale_time: UTime,
}

/// Reply of `2pc_queue_list_reservations`. Wire: cls_2pc_queue_reservations_ret v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct ReservationsRet {
    /// All reservations.
    pub reservations: Reservations,
}

/// The class.
pub const CLASS: Class = Class {
    name: "2pc_queue",
    methods: &[
        method!("2pc_queue_init", Flags::RD_WR, init),
        method!("2pc_queue_get_capacity", Flags::RD, queue::get_capacity),
        method!("2pc_queue_reserve", Flags::RD_WR, reserve),
        method!("2pc_queue_commit", Flags::RD_WR, commit),
        method!("2pc_queue_abort", Flags::RD_WR, abort),
        method!("2pc_queue_list_reservations", Flags::RD, list_reservations),
        method!("2pc_queue_list_entries", Flags::RD, queue::list_entries),
        method!("2pc_queue_remove_entries", Flags::RD_WR, queue::remove_entries),
        method!("2pc_queue_expire_reservations", Flags::RD_WR, expire_reservations),
    ],
    filters: &[],
};

/// A queue and its reservations.
struct Reserved {
    head: Head,
    data: UrgentData,
    xattr: Reservations,
    xattr_changed: bool,
}

impl Reserved {
    async fn load(ctx: &mut dyn ObjectContext) -> Result<Reserved, Errno> {
        let head = Head::load(ctx).await?;
        let data = UrgentData::from_bytes(&head.urgent_data).map_err(|_| Errno::EINVAL)?;
        let mut xattr = Reservations::new();
        if data.has_xattrs {
            match ctx.getxattr(ATTR).await {
                Ok(bytes) => xattr = Reservations::from_bytes(&bytes).map_err(|_| Errno::EINVAL)?,
                Err(Errno::ENOENT | Errno::ENODATA) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(Reserved { head, data, xattr, xattr_changed: false })
    }

    fn is_known(&self, id: u32) -> bool {
        self.data.reservations.iter().chain(&self.xattr).any(|(known, _)| *known == id)
    }

    /// Adds a reservation, to the xattr where the head has no room.
    fn add(&mut self, id: u32, reservation: Reservation) {
        self.data.reservations.push((id, reservation));
        if self.data.to_bytes().len() as u64 > self.head.max_urgent_data_size {
            self.xattr.extend(self.data.reservations.pop());
            self.xattr_changed = true;
            self.data.has_xattrs = true;
        }
    }

    /// Ends reservations; their bytes, and how many they were.
    fn end(&mut self, is_over: impl Fn(u32, &Reservation) -> bool) -> (u64, usize) {
        let (mut size, mut count) = (0u64, 0);
        let mut keep = |id: u32, reservation: &Reservation| {
            let is_over = is_over(id, reservation);
            if is_over {
                size = size.wrapping_add(reservation.size);
                count += 1;
            }
            !is_over
        };
        self.data.reservations.retain(|(id, reservation)| keep(*id, reservation));
        let before = self.xattr.len();
        self.xattr.retain(|(id, reservation)| keep(*id, reservation));
        self.xattr_changed |= self.xattr.len() != before;
        self.data.reserved_size = self.data.reserved_size.wrapping_sub(size);
        if self.data.reservations.is_empty() && self.xattr.is_empty() {
            self.data.reserved_size = 0;
        }
        (size, count)
    }

    async fn store(mut self, ctx: &mut dyn ObjectContext) -> Result<(), Errno> {
        if self.xattr_changed {
            ctx.setxattr(ATTR, self.xattr.to_bytes()).await?;
        }
        self.head.urgent_data = self.data.to_bytes();
        self.head.store(ctx).await
    }
}

async fn init(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let op: InitOp = argument(input)?;
    let op = InitOp {
        max_urgent_data_size: RESERVATIONS_LEN_MAX,
        urgent_data: UrgentData::default().to_bytes(),
        ..op
    };
    ring::init(ctx, op).await
}

async fn reserve(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<Bytes, Errno> {
    let op: ReserveOp = argument(input)?;
    if op.size == 0 || op.entries == 0 {
        return Err(Errno::EINVAL);
    }
    let mut queue = Reserved::load(ctx).await?;
    let more = op.size.saturating_add(u64::from(op.entries) * OVERHEAD_LEN);
    if queue.data.reserved_size.saturating_add(more) > queue.head.free() {
        return Err(Errno::ENOSPC);
    }
    let id = queue.data.last_id.wrapping_add(1);
    if queue.is_known(id) {
        return Err(Errno::EAGAIN);
    }
    queue.data.last_id = id;
    queue.data.reserved_size += more;
    queue.add(id, Reservation { size: op.size, timestamp: ctx.now() });
    queue.store(ctx).await?;
    Ok(ReservationId { id }.to_bytes())
}

async fn commit(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let op: CommitOp = argument(input)?;
    let mut queue = Reserved::load(ctx).await?;
    let (size, count) = queue.end(|id, _| id == op.id);
    if count == 0 {
        return Err(Errno::ENOENT);
    }
    if op.data.iter().map(|data| data.len() as u64).sum::<u64>() > size {
        return Err(Errno::EINVAL);
    }
    ring::enqueue(ctx, &mut queue.head, &op.data).await?;
    queue.store(ctx).await
}

async fn abort(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let op: ReservationId = argument(input)?;
    let mut queue = Reserved::load(ctx).await?;
    match queue.end(|id, _| id == op.id) {
        (_, 0) => Ok(()),
        _ => queue.store(ctx).await,
    }
}

async fn list_reservations(ctx: &mut dyn ObjectContext, _: &Bytes) -> Result<Bytes, Errno> {
    let queue = Reserved::load(ctx).await?;
    let mut reservations = queue.data.reservations;
    reservations.extend(queue.xattr);
    Ok(ReservationsRet { reservations }.to_bytes())
}

async fn expire_reservations(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let op: ExpireOp = argument(input)?;
    let mut queue = Reserved::load(ctx).await?;
    match queue.end(|_, reservation| reservation.timestamp < op.stale_time) {
        (_, 0) => Ok(()),
        _ => queue.store(ctx).await,
    }
}
