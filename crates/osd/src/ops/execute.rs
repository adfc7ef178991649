//! Running an op vector: checks, the object it means, the ops one by one, and what comes of it
//! (`do_op`, `execute_ctx`, `prepare_transaction`, `do_osd_ops` in `src/osd/PrimaryLogPG.cc`).

use std::rc::Rc;

use bytes::Bytes;
use maps::pool::pool_flags;
use messages::MOSDOpReply;
use types::bufferlist::BufferList;
use types::osd::ops::{self, message_flags, op_flags};
use types::osd::{LogOpReturn, OsdOp};
use types::page_sums::PageSums;
use types::{
    EVersion, Epoch, Errno, HObject, NOSNAP, OsdReqId, PgId, SNAPDIR, SnapContext, UTime, entity,
};

use super::finish::{Pending, PendingWrite};
use super::object_context::{Found, ObjectGuard};
use super::op_context::{OpContext, Step, Stop};
use super::op_info::OpInfo;
use super::pg::{Limits, Pg};
use super::watch::{Client, Effects};
use super::{copy, tmap};

/// What reading a lost object gives (ENFILE).
const LOST: Errno = Errno(23);
/// OSD_WRITETOOBIG (EMSGSIZE): a write whose data no log entry can hold.
const WRITE_TOO_BIG: Errno = Errno::EMSGSIZE;

/// An op vector on one object, as it came from a client.
pub struct Request {
    /// The object; its snap is the message's: a snapshot, NOSNAP or SNAPDIR.
    pub oid: HObject,
    /// The ops; `outdata` and `rval` are not used.
    pub ops: Vec<OsdOp>,
    /// Checksums that are known of the ops' data.
    pub sums: Option<PageSums>,
    /// The client's snap context (not used where the pool has its own).
    pub snapc: SnapContext,
    /// The client's clock; zero leaves the object's mtime.
    pub mtime: UTime,
    /// `message_flags`.
    pub flags: u32,
    /// The request's identity, with the session's name.
    pub reqid: OsdReqId,
    /// The client's feature bits.
    pub features: u64,
    /// The PG the message named; the reply names it too.
    pub pgid: PgId,
    /// How often it was sent before; the reply says it too.
    pub retry_attempt: i32,
    /// Who sent it and gets the notifies.
    pub client: Rc<Client>,
    /// What the ops may do.
    pub info: OpInfo,
}

impl Request {
    /// Whether the message has one of these flags.
    pub fn has_flag(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Whether it is held back where there is no room: not what is forced, nor what an MDS writes
    /// (`PrimaryLogPG::prepare_transaction`, `src/osd/PrimaryLogPG.cc` at v16.2).
    pub fn heeds_full(&self) -> bool {
        self.reqid.name.kind != entity::MDS && !self.has_flag(message_flags::FULL_FORCE)
    }
}

/// The versions a reply tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Versions {
    /// None: the op was refused before it ran.
    #[default]
    None,
    /// Of an object read.
    Read {
        /// Its user version.
        user: u64,
    },
    /// Of a write.
    Write {
        /// The log entry's version.
        replay: EVersion,
        /// The object's user version.
        user: u64,
    },
    /// There is no object: what its next version will be above.
    Absent {
        /// The PG's last version.
        last_update: EVersion,
        /// The PG's last user version.
        last_user_version: u64,
    },
}

impl Versions {
    /// (bad replay version, replay version, user version), as `MOSDOpReply` carries them.
    pub fn on_wire(&self) -> (EVersion, EVersion, u64) {
        match *self {
            Versions::None => (EVersion::ZERO, EVersion::ZERO, 0),
            Versions::Read { user } => (EVersion { version: user, epoch: 0 }, EVersion::ZERO, user),
            Versions::Write { replay, user } => {
                let version = if user == 0 { replay.version } else { user };
                (EVersion { version, ..replay }, replay, user)
            }
            Versions::Absent { last_update, last_user_version } => {
                (last_update, EVersion::ZERO, last_user_version)
            }
        }
    }
}

/// The answer to a request.
#[derive(Debug, Clone, Default)]
pub struct Reply {
    /// Result of the vector.
    pub result: i32,
    /// The ops with their results and outputs (and no inputs), in order, all of the request's.
    pub ops: Vec<OsdOp>,
    /// The versions it tells.
    pub versions: Versions,
    /// Whether the ops ran: then the reply's flags say ack and ondisk; else they are the
    /// request's own.
    pub executed: bool,
}

impl Reply {
    /// An error found before the ops ran. Per-op results stay 0.
    pub fn refusal(request: &Request, errno: Errno) -> Reply {
        Reply {
            result: errno.result(),
            ops: request.ops.iter().map(without_input).collect(),
            versions: Versions::None,
            executed: false,
        }
    }

    /// The answer to a write that the log knows: its first result again.
    pub fn duplicate(
        request: &Request,
        version: EVersion,
        user_version: u64,
        return_code: i32,
        op_returns: &[LogOpReturn],
    ) -> Reply {
        let mut ops: Vec<OsdOp> = request.ops.iter().map(without_input).collect();
        for (op, kept) in ops.iter_mut().zip(op_returns) {
            op.rval = kept.rval;
            op.outdata.push(kept.outdata.clone());
        }
        let versions = Versions::Write { replay: version, user: user_version };
        Reply { result: return_code, ops, versions, executed: false }
    }

    /// The reply as a message; its tid is the request's.
    pub fn into_message(self, request: &Request, epoch: Epoch) -> MOSDOpReply {
        let (bad_replay_version, replay_version, user_version) = self.versions.on_wire();
        let reached = message_flags::ACK | message_flags::ONDISK;
        let flags = match self.executed {
            true => request.flags & !message_flags::ONNVRAM | reached,
            false => request.flags & !message_flags::ONNVRAM,
        };
        MOSDOpReply {
            object: request.oid.name.clone(),
            pgid: request.pgid,
            flags: flags.into(),
            result: self.result,
            bad_replay_version,
            epoch,
            ops: self.ops,
            retry_attempt: request.retry_attempt,
            replay_version,
            user_version,
        }
    }

    /// The write that failed or did nothing has been logged as `at`.
    pub fn set_logged(&mut self, at: EVersion, last_update: EVersion, last_user_version: u64) {
        self.versions = match self.versions {
            _ if self.result == Errno::ENOENT.result() => {
                Versions::Absent { last_update, last_user_version }
            }
            Versions::Read { user } => Versions::Write { replay: at, user },
            other => other,
        };
    }
}

fn without_input(op: &OsdOp) -> OsdOp {
    OsdOp { code: op.code, flags: op.flags, args: op.args, ..OsdOp::default() }
}

/// What comes of a request.
pub struct Executed {
    /// The answer, unless `kind` carries it or is `Blocked` or `Dropped`.
    pub reply: Reply,
    /// What to tell watchers: at once for `Read` and `LogError`.
    pub effects: Effects,
    /// What to do.
    pub kind: Kind,
}

/// What to do after a request has run; see the module's contract.
pub enum Kind {
    /// Send the reply.
    Read(ObjectGuard),
    /// Log the result, then send the reply.
    LogError(ObjectGuard),
    /// Log and replicate a change.
    Write(PendingWrite),
    /// Recover this object first.
    Blocked(HObject),
    /// Forget the request: the client sends it again.
    Dropped,
}

/// The checks that need no object (`do_op`): the errno to answer, unlogged.
pub fn check_request(request: &Request, limits: &Limits) -> Result<(), Errno> {
    let oid = &request.oid;
    if request.has_flag(message_flags::PARALLELEXEC) {
        return Err(Errno::EINVAL);
    }
    if oid.name.len() > limits.object_name_len
        || oid.key.len() > limits.object_name_len
        || oid.namespace.len() > limits.namespace_len
    {
        return Err(Errno::ENAMETOOLONG);
    }
    if oid.name.is_empty() {
        return Err(Errno::EINVAL);
    }
    if request.info.may_write() {
        if oid.snap != NOSNAP {
            return Err(Errno::EINVAL);
        }
        let data_len: usize = request.ops.iter().map(|op| op.indata.len()).sum();
        if limits.write_size > 0 && data_len as u64 > limits.write_size {
            return Err(WRITE_TOO_BIG);
        }
    }
    let lists_snaps = |op: &OsdOp| op.code == ops::LIST_SNAPS;
    if request.ops.iter().any(|op| lists_snaps(op) != (oid.snap == SNAPDIR)) {
        return Err(Errno::EINVAL);
    }
    Ok(())
}

fn refused(request: &Request, guard: ObjectGuard, errno: Errno) -> Executed {
    Executed {
        reply: Reply::refusal(request, errno),
        effects: Effects::default(),
        kind: Kind::Read(guard),
    }
}

fn blocked(oid: HObject) -> Executed {
    Executed { reply: Reply::default(), effects: Effects::default(), kind: Kind::Blocked(oid) }
}

/// Runs a request's ops.
pub async fn execute(pg: &Rc<dyn Pg>, guard: ObjectGuard, request: Rc<Request>) -> Executed {
    let info = &request.info;
    let snap = if request.oid.snap == SNAPDIR { NOSNAP } else { request.oid.snap };
    let raw_clone = request.has_flag(message_flags::MAP_SNAP_CLONE);
    // The head holds the snap set: a read of a snapshot needs it too.
    let head = guard.head();
    if pg.is_unreadable(head) || (snap == NOSNAP && info.rwordered() && pg.is_degraded(head)) {
        let head = head.clone();
        return blocked(head);
    }
    let obc = match guard.find(pg, snap, raw_clone).await {
        Ok(Found::Object(obc)) => obc,
        Ok(Found::Absent) => return absent(pg, guard, &request),
        Ok(Found::Missing(oid)) => return blocked(oid),
        Err(errno) => return refused(&request, guard, errno),
    };
    {
        let obs = obc.obs.borrow();
        if info.may_read() && obs.oi.is_lost() {
            drop(obs);
            return refused(&request, guard, LOST);
        }
        let is_hidden = request.oid.snap != SNAPDIR && obs.oi.is_whiteout();
        if !info.may_write() && !info.may_cache() && (!obs.exists || is_hidden) {
            drop(obs);
            return absent(pg, guard, &request);
        }
    }
    let snapc = match write_snapc(pg, &request) {
        Some(snapc) => {
            let is_old = snapc.seq < obc.ssc.borrow().snapset.seq;
            if request.has_flag(message_flags::ORDERSNAP) && is_old {
                return refused(&request, guard, Errno::EOLDSNAPC);
            }
            snapc
        }
        None => SnapContext::default(),
    };
    let mut ctx = Box::new(OpContext::new(pg.clone(), guard, request.clone(), obc, snapc));
    if !ctx.snapc.is_valid() {
        // Refused like an error of the ops, but unlogged.
        return finished(ctx, Errno::EINVAL.result(), true);
    }
    match ctx.run().await {
        Ok(result) => finished(ctx, result, false),
        Err(Stop::Errno(errno)) => finished(ctx, errno.result(), false),
        Err(Stop::NoSource(errno)) => refused(&request, ctx.guard, errno),
        Err(Stop::Blocked(oid)) => blocked(oid),
    }
}

/// The snap context of a write: the pool's own, or the client's without removed snapshots.
pub(super) fn write_snapc(pg: &Rc<dyn Pg>, request: &Request) -> Option<SnapContext> {
    if !request.info.may_write() && !request.info.may_cache() {
        return None;
    }
    let pool = pg.pool();
    if !request.has_flag(message_flags::ENFORCE_SNAPC) && pool.is_pool_snaps_mode() {
        return Some(pool.snap_context());
    }
    let mut snapc = request.snapc.clone();
    snapc.snaps.retain(|&snap| !pg.is_snap_removed(snap));
    Some(snapc)
}

/// There is no such object for a request that makes none.
fn absent(pg: &Rc<dyn Pg>, guard: ObjectGuard, request: &Request) -> Executed {
    let mut executed = refused(request, guard, Errno::ENOENT);
    if let Some(first) = request.ops.first().filter(|op| op.code == ops::COPY_GET) {
        // A copy also takes the identity of the request that removed its source.
        let mut op = without_input(first);
        op.outdata = copy::absent_reply(pg, &request.oid).into();
        op.rval = Errno::ENOENT.result();
        executed.reply.ops[0] = op;
        executed.reply.executed = true;
    }
    executed
}

/// Sorts the outcome of a vector.
fn finished(mut ctx: Box<OpContext>, mut result: i32, unlogged: bool) -> Executed {
    let info = &ctx.request.info;
    let may_write = info.may_write();
    let changes = ctx.is_mutation() && result >= 0;
    if changes && let Some(errno) = full(&ctx) {
        if errno == Errno::EAGAIN {
            let (reply, effects) = (Reply::default(), Effects::default());
            return Executed { reply, effects, kind: Kind::Dropped };
        }
        result = errno.result();
        return answer(ctx, result, true);
    }
    if changes && may_write {
        if info.returnvec {
            for op in &mut ctx.results {
                if op.outdata.len() > ctx.limits.write_op_reply_len {
                    op.rval = Errno::EOVERFLOW.result();
                    op.outdata = BufferList::new();
                    result = Errno::EOVERFLOW.result();
                }
            }
            if result < 0 {
                return answer(ctx, result, true);
            }
        } else {
            result = 0;
            ctx.results.iter_mut().for_each(|op| op.outdata = BufferList::new());
        }
    }
    if !changes {
        return answer(ctx, result, unlogged || !may_write);
    }
    let mut reply = take_reply(&mut ctx, result);
    reply.executed = true;
    Executed {
        reply: Reply::default(),
        effects: Effects::default(),
        kind: Kind::Write(PendingWrite { inner: Pending::Op(ctx, reply) }),
    }
}

/// The reply with the ops that ran and those that did not.
fn take_reply(ctx: &mut OpContext, result: i32) -> Reply {
    let mut ops = core::mem::take(&mut ctx.results);
    let rest = ctx.request.ops.iter().skip(ops.len());
    ops.extend(rest.map(without_input));
    Reply { result, ops, versions: Versions::None, executed: true }
}

/// A vector that changes nothing.
fn answer(mut ctx: Box<OpContext>, mut result: i32, unlogged: bool) -> Executed {
    let mut reply = take_reply(&mut ctx, result);
    let user = ctx.obc.obs.borrow().oi.user_version;
    if unlogged && result >= 0 {
        let failed = |op: &&OsdOp| op.rval < 0 && op.flags & op_flags::FAILOK == 0;
        if let Some(op) = reply.ops.iter().find(failed) {
            result = op.rval;
            reply.result = result;
        }
    }
    reply.versions = match result {
        0.. => Versions::Read { user },
        _ if unlogged && result == Errno::ENOENT.result() => Versions::Absent {
            last_update: ctx.pg.last_update(),
            last_user_version: ctx.pg.last_user_version(),
        },
        _ if unlogged => Versions::None,
        _ => Versions::Read { user: ctx.user_at_version },
    };
    let effects = if result >= 0 { core::mem::take(&mut ctx.effects) } else { Effects::default() };
    let kind = if unlogged { Kind::Read(ctx.guard) } else { Kind::LogError(ctx.guard) };
    Executed { reply, effects, kind }
}

/// Whether the pool is too full for the change: the errno, `EAGAIN` to drop the request.
fn full(ctx: &OpContext) -> Option<Errno> {
    let grows = ctx.stats.num_bytes > 0 || ctx.stats.num_objects > 0;
    if !grows || !ctx.pool.has_flag(pool_flags::FULL) {
        return None;
    }
    let request = &ctx.request;
    if !request.heeds_full() {
        return None;
    }
    Some(if !request.has_flag(message_flags::FULL_TRY) {
        Errno::EAGAIN
    } else if ctx.pool.has_flag(pool_flags::FULL_QUOTA) {
        Errno::EDQUOT
    } else {
        Errno::ENOSPC
    })
}

/// Ops that leave the result of the op before them when they succeed, as in Ceph: a call's positive
/// result outlives a stat behind it.
fn keeps_result(code: u16) -> bool {
    matches!(
        code,
        ops::STAT
            | ops::ASSERT_VER
            | ops::NOTIFY
            | ops::NOTIFY_ACK
            | ops::MAPEXT
            | ops::OMAPGETKEYS
            | ops::OMAPGETVALS
            | ops::OMAPGETHEADER
            | ops::OMAPGETVALSBYKEYS
            | ops::OMAP_CMP
    )
}

impl OpContext {
    /// Runs all ops: the result of the last, or of the first that fails and may not.
    async fn run(&mut self) -> Step {
        let request = self.request.clone();
        let mut result = 0;
        for op in &request.ops {
            let mut op = op.clone();
            let step = self.run_op(&mut op).await;
            match step {
                Ok(0) if keeps_result(op.code) => {}
                Ok(value) => result = value,
                Err(Stop::Errno(errno)) => result = errno.result(),
                Err(stop) => return Err(stop),
            }
            self.held += op.outdata.len() as u64;
            if self.held + self.data_len() > self.limits.held {
                return Err(Errno::EFBIG.into());
            }
            op.rval = result;
            op.indata = Bytes::new();
            let may_fail = op.flags & op_flags::FAILOK != 0;
            if result < 0 && may_fail && result != Errno::EAGAIN.result() {
                result = 0;
            }
            self.results.push(op);
            self.steps += 1;
            if let Some(errno) = Errno::from_result(result) {
                return Err(errno.into());
            }
        }
        Ok(result)
    }

    async fn run_op(&mut self, op: &mut OsdOp) -> Step {
        self.note_user_change(op);
        if op.uses_extent() {
            self.fix_truncate_seq(op);
        }
        let extent = op.args.extent();
        let input = op.indata.clone();
        match op.code {
            ops::SYNC_READ if self.pool.is_erasure() => Err(Errno::EOPNOTSUPP.into()),
            ops::READ | ops::SYNC_READ => {
                let step = self.op_read(&extent, &mut op.outdata).await;
                set_extent_len(op);
                step
            }
            ops::SPARSE_READ => self.op_sparse_read(&extent, &mut op.outdata).await,
            ops::MAPEXT => self.op_mapext(&extent, &mut op.outdata).await,
            ops::STAT => self.op_stat(&mut op.outdata),
            ops::CMPEXT => self.op_cmpext(&extent, &input).await,
            ops::CHECKSUM => self.op_checksum(&op.args.checksum(), &input, &mut op.outdata).await,
            ops::ASSERT_VER => self.op_assert_version(op.args.assert_ver().version),
            ops::LIST_SNAPS => self.op_list_snaps(&mut op.outdata),
            ops::LIST_WATCHERS => self.op_list_watchers(&mut op.outdata),
            ops::NOTIFY => self.op_notify(op),
            ops::NOTIFY_ACK => self.op_notify_ack(op),
            ops::WATCH => self.op_watch(&op.args.watch()),
            ops::CALL => self.op_call(op).await,

            ops::GETXATTR => self.op_getxattr(op).await,
            ops::GETXATTRS => self.op_getxattrs(&mut op.outdata).await,
            ops::CMPXATTR => self.op_cmpxattr(op).await,
            ops::SETXATTR => self.op_setxattr(op),
            ops::RMXATTR => self.op_rmxattr(op),

            ops::OMAPGETKEYS => self.op_omap_get_keys(&input, &mut op.outdata).await,
            ops::OMAPGETVALS => self.op_omap_get_vals(&input, &mut op.outdata).await,
            ops::OMAPGETHEADER => self.op_omap_get_header(&mut op.outdata).await,
            ops::OMAPGETVALSBYKEYS => self.op_omap_get_vals_by_keys(&input, &mut op.outdata).await,
            ops::OMAP_CMP => self.op_omap_cmp(&input).await,
            ops::OMAPSETVALS => self.op_omap_set_vals(&input),
            ops::OMAPSETHEADER => self.op_omap_set_header(input),
            ops::OMAPCLEAR => self.op_omap_clear(),
            ops::OMAPRMKEYS => self.op_omap_rm_keys(&input),
            ops::OMAPRMKEYRANGE => self.op_omap_rm_key_range(&input),

            ops::WRITE => self.op_write(&extent, self.write_flags(op), input),
            ops::WRITEFULL => self.op_writefull(&extent, self.write_flags(op), input),
            ops::APPEND => self.op_append(&extent, self.write_flags(op), input),
            ops::WRITESAME => self.op_writesame(&op.args.writesame(), &input),
            ops::ZERO => self.op_zero(&extent),
            ops::TRUNCATE => self.op_truncate(&extent, extent.offset),
            ops::TRIMTRUNC => self.op_truncate(&extent, extent.truncate_size),
            ops::CREATE => self.op_create(op.flags, &input),
            ops::DELETE => self.op_delete(),
            // Rare ones have a place of their own: every op's task is as long as the longest.
            ops::ROLLBACK => Box::pin(self.op_rollback(op.args.snap().snapid)).await,
            ops::SETALLOCHINT => self.op_set_alloc_hint(&op.args.alloc_hint()),
            ops::COPY_GET => Box::pin(self.op_copy_get(op)).await,
            ops::COPY_FROM | ops::COPY_FROM2 => Box::pin(self.op_copy_from(op)).await,

            ops::TMAPGET | ops::TMAPPUT | ops::TMAPUP | ops::TMAP2OMAP
                if self.pool.is_erasure() =>
            {
                Err(Errno::EOPNOTSUPP.into())
            }
            ops::TMAPGET => self.op_tmapget(&mut op.outdata).await,
            ops::TMAPPUT => self.op_tmapput(&input),
            ops::TMAPUP => self.op_tmapup(&input).await,
            ops::TMAP2OMAP => self.op_tmap2omap(tmap::null_is_fine(op)).await,

            _ => self.op_tier(op),
        }
    }

    /// Whether the op is a change that clients see in the user version.
    fn note_user_change(&mut self, op: &OsdOp) {
        let is_silent = matches!(
            op.code,
            ops::WATCH
                | ops::CACHE_EVICT
                | ops::CACHE_FLUSH
                | ops::CACHE_TRY_FLUSH
                | ops::UNDIRTY
                | ops::COPY_FROM
                | ops::COPY_FROM2
                | ops::CACHE_PIN
                | ops::CACHE_UNPIN
                | ops::SET_REDIRECT
                | ops::TIER_PROMOTE
                | ops::TIER_FLUSH
        );
        self.user_modify |= op.is_write_mode() && !is_silent;
    }

    /// Old clients' "no truncation" of (1, -1) is none.
    fn fix_truncate_seq(&self, op: &mut OsdOp) {
        let mut extent = op.args.extent();
        if extent.truncate_seq == 1 && extent.truncate_size == u64::MAX {
            extent.truncate_seq = 0;
            extent.truncate_size = 0;
            op.args.set_extent(extent);
        }
    }

    fn write_flags(&self, op: &OsdOp) -> u32 {
        let is_once = self.pool.has_flag(pool_flags::WRITE_FADVISE_DONTNEED);
        let hint = if is_once { op_flags::FADVISE_DONTNEED } else { 0 };
        op.flags | hint
    }

    fn op_assert_version(&mut self, version: u64) -> Step {
        self.num_read += 1;
        let found = self.obs.oi.user_version;
        match version {
            0 => Err(Errno::EINVAL.into()),
            _ if version < found => Err(Errno::ERANGE.into()),
            _ if version > found => Err(Errno::EOVERFLOW.into()),
            _ => Ok(0),
        }
    }

    /// Ops of cache tiers and manifests, as a pool without either answers them.
    fn op_tier(&mut self, op: &mut OsdOp) -> Step {
        let need_exists = |ctx: &OpContext| {
            if ctx.obs.exists { Ok(()) } else { Err(Stop::Errno(Errno::ENOENT)) }
        };
        match op.code {
            ops::ISDIRTY => {
                self.num_read += 1;
                self.stats.num_rd += 1;
                op.outdata.push(vec![u8::from(self.obs.oi.is_dirty())].into());
                Ok(0)
            }
            ops::UNDIRTY => {
                self.num_write += 1;
                if self.obs.oi.is_dirty() {
                    self.undirty = true;
                    self.modify = true;
                    self.stats.num_wr += 1;
                }
                Ok(0)
            }
            ops::CACHE_FLUSH
            | ops::CACHE_TRY_FLUSH
            | ops::CACHE_EVICT
            | ops::CACHE_PIN
            | ops::CACHE_UNPIN => Err(Errno::EINVAL.into()),
            ops::TIER_PROMOTE | ops::TIER_FLUSH => need_exists(self).map(|()| 0),
            ops::TIER_EVICT => need_exists(self).and(Err(Errno::EINVAL.into())),
            ops::SET_REDIRECT | ops::SET_CHUNK | ops::UNSET_MANIFEST => {
                need_exists(self).and(Err(Errno::EOPNOTSUPP.into()))
            }
            _ => Err(Errno::EOPNOTSUPP.into()),
        }
    }
}

/// The reply's op says how much was read.
fn set_extent_len(op: &mut OsdOp) {
    let mut extent = op.args.extent();
    extent.length = op.outdata.len() as u64;
    op.args.set_extent(extent);
}
