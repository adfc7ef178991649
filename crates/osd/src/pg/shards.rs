//! What the members of an erasure coded PG tell each other about objects: writes of shards, reads of
//! shards. The other side of the seam of `backend.rs`; what the shards contain is
//! [`super::backend::ShardCodec`]'s.
//!
//! ```text
//! write:  prepare (reads partial stripes) -> [sync: version, encode, log, submit, MOSDECSubOpWrite]
//!           -> local commit -> all shards (MOSDECSubOpWriteReply) -> reply
//! read:   MOSDECSubOpRead to enough shards, own chunk from the store -> decode
//!           a shard that fails is left out, and the read planned anew; one that is damaged is then
//!           made anew from the others
//! ```
//!
//! Every entry can be undone on the shards (`rollback.rs`) until all of them have it durable: each
//! write says up to where that is so (`roll_forward_to`), and an empty one does when no other comes
//! for a moment.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Duration;

use bstr::BString;
use bytes::Bytes;
use denc::Denc;
use env::sync::{Receiver, Sender, oneshot};
use maps::pool::pool_flags;
use messages::{
    MOSDECSubOpRead, MOSDECSubOpReadReply, MOSDECSubOpWrite, MOSDECSubOpWriteReply, Message,
};
use store::Transaction;
use types::osd::PgLogEntry;
use types::osd::{EcSubRead, EcSubReadReply, EcSubWrite, EcSubWriteReply, Enveloped, ObjectInfo};
use types::{EVersion, Errno, HObject, OsdReqId, PgShard};

use super::Pg;
use super::backend::{ObjectBefore, ShardCodec};
use super::host::LogLevel;
use super::persist::Keys;
use super::replication::Change;
use crate::ec::hash_info::{self, HINFO_KEY};
use crate::ops::PendingWrite;
use crate::ops::object_context::OI_ATTR;

/// How long after the last write shards are told that it will not be undone, if no other write
/// tells them.
const ROLL_FORWARD_AFTER: Duration = Duration::from_millis(50);

/// A read of one shard that has not been answered. Bounded by the reads and recoveries under way.
struct Awaited {
    from: PgShard,
    done: Sender<EcSubReadReply>,
}

/// What is under way between the shards of a PG in one interval.
#[derive(Default)]
pub(crate) struct Shards {
    reads: RefCell<BTreeMap<u64, Awaited>>,
    /// Newest write that is durable on all shards.
    committed_to: Cell<EVersion>,
    /// Up to where all shards have been told so, in this interval.
    told: Cell<EVersion>,
    /// A task waits to tell shards so.
    rolling: Cell<bool>,
}

impl Shards {
    pub(super) fn reset(&self) {
        self.reads.borrow_mut().clear();
        self.committed_to.set(EVersion::ZERO);
        self.told.set(EVersion::ZERO);
    }

    /// Members that went down do not answer.
    pub(super) fn forget_down(&self, is_up: impl Fn(i32) -> bool) {
        self.reads.borrow_mut().retain(|_, read| is_up(read.from.osd));
    }
}

/// What a write needs to know of objects before it.
#[derive(Debug, Default)]
pub(super) struct Prepared {
    before: BTreeMap<HObject, ObjectBefore>,
    read: BTreeMap<HObject, Vec<(u64, Bytes)>>,
}

/// A part of a shard's chunk.
#[derive(Debug, Clone, Default)]
pub(super) struct ChunkPart {
    /// Its bytes; fewer than asked for at the end.
    pub(super) data: Bytes,
    /// The object's attributes, if asked for.
    pub(super) attrs: BTreeMap<BString, Bytes>,
}

impl Pg {
    /// Whether the PG keeps shards.
    pub(crate) fn is_erasure(&self) -> bool {
        self.pool().is_erasure()
    }

    /// Reads what a write has to know. The write's lock is held. Nothing for replicated PGs.
    pub(super) async fn prepare(&self, pending: &PendingWrite) -> Result<Prepared, Errno> {
        match self.is_erasure() {
            true => Box::pin(self.prepare_shards(pending)).await,
            false => Ok(Prepared::default()),
        }
    }

    async fn prepare_shards(&self, pending: &PendingWrite) -> Result<Prepared, Errno> {
        let mut prepared = Prepared::default();
        let codec = self.codec().ok_or(Errno::EOPNOTSUPP)?;
        let generation = self.generation.get();
        for oid in pending.objects(self.pgid.pgid.pool_id()) {
            let attrs = match self.host.store().getattrs(&self.cid, &self.goid(&oid)).await {
                Ok(attrs) => attrs.into_iter().collect(),
                Err(store::StoreError::NoObject) => BTreeMap::new(),
                Err(e) => return Err(Errno(e.errno())),
            };
            let info = attrs.get(&BString::from(OI_ATTR));
            let info = info.and_then(|bytes: &Bytes| ObjectInfo::from_bytes(bytes).ok());
            let mut before = ObjectBefore {
                exists: info.is_some(),
                size: info.map_or(0, |info| info.size),
                attrs,
            };
            if before.size > 0 && !self.pool().has_flag(pool_flags::EC_OVERWRITES) {
                self.borrow_hash_info(&oid, &mut before, &*codec).await;
            }
            prepared.before.insert(oid, before);
        }
        let Some(transaction) = pending.transaction() else { return Ok(prepared) };
        let size = |oid: &HObject| prepared.before.get(oid).map_or(0, |before| before.size);
        let reads = codec.reads_of_write(transaction, &size)?;
        for (oid, ranges) in reads {
            for (offset, len) in ranges {
                let data = self.read_stripes(&oid, offset, len).await?;
                if generation != self.generation.get() {
                    return Err(Errno::EAGAIN);
                }
                prepared.read.entry(oid.clone()).or_default().push((offset, data));
            }
        }
        Ok(prepared)
    }

    /// Takes an object's hash info from another shard, if the own one is lost or damaged. A write gives all shards the hash info that
    /// it knows: without checksums nobody would tell a damaged chunk of theirs from a sound one any more.
    async fn borrow_hash_info(
        &self,
        oid: &HObject,
        before: &mut ObjectBefore,
        codec: &dyn ShardCodec,
    ) {
        let (chunk_len, shards) = (codec.chunk_len(before.size), codec.k() + codec.m());
        if hash_info::is_sound(&before.attrs, chunk_len, shards) {
            return;
        }
        let mut others = self.members_with(oid, EVersion::ZERO, false);
        others.remove(&self.pgid.shard);
        // Attributes come with data: a little of it.
        let others = others.into_values().collect();
        let parts = self.read_chunks(oid, others, 0, codec.chunk_len(1), true).await;
        let found = parts.into_iter().find_map(|(member, part)| {
            let mut attrs = part.ok()?.attrs;
            let fits = attrs.get(OI_ATTR) == before.attrs.get(OI_ATTR)
                && hash_info::is_sound(&attrs, chunk_len, shards);
            Some((member, attrs.remove(HINFO_KEY)?)).filter(|_| fits)
        });
        let mut text = format!(
            "{} shard {} of {oid} has no hash info that fits",
            self.pgid.pgid, self.pgid.shard
        );
        match found {
            Some((member, hash_info)) => {
                text += &format!(", that of {member} is taken");
                before.attrs.insert(HINFO_KEY.into(), hash_info);
            }
            None => text += ", nor has another: its chunks have no checksums any more",
        }
        self.host.cluster_log(LogLevel::Error, text);
    }

    /// Logs, submits and sends a write of shards, all before the first wait; then waits until all
    /// shards have it durable. `false` if the interval ended first.
    pub(super) async fn commit_shards(&self, change: Change, prepared: Prepared) -> bool {
        let Change { soid, reqid, transaction, mut entries, user_version, stats } = change;
        let encoded = self.codec().ok_or(Errno::EOPNOTSUPP).and_then(|codec| {
            codec.encode_write(
                self.pgid.pgid,
                &transaction,
                &prepared.before,
                &prepared.read,
                &mut entries,
            )
        });
        let mut encoded = match encoded {
            Ok(encoded) => encoded,
            Err(errno) => {
                // What was planned can be encoded: the plan was checked with the reads. The new
                // state is in memory already, so this OSD must not go on with it.
                tracing::error!(pg = %self.pgid, oid = %soid, "cannot encode a write: {errno}");
                self.host.store_failed(&store::StoreError::Format("a write has no encoding"));
                return false;
            }
        };
        let tid = self.host.next_tid();
        let version = entries.last().map_or(EVersion::ZERO, |e| e.version);
        let (followers, trim_to, _) = self.note_write(&entries, user_version, &stats);
        self.scrub.on_write(&soid, &entries, &stats);
        let roll_forward_to = self.shards.committed_to.get();
        self.shards.told.set(roll_forward_to);
        let (map_epoch, min_epoch) = self.epochs();
        let mut message = MOSDECSubOpWrite {
            pgid: self.pgid,
            map_epoch,
            min_epoch,
            op: EcSubWrite {
                from: self.whoami(),
                tid,
                reqid,
                soid: soid.clone(),
                stats: self.core.borrow().info.stats.clone(),
                at_version: version,
                trim_to,
                roll_forward_to,
                log_entries: entries.clone(),
                ..EcSubWrite::default()
            },
        };
        for to in &followers {
            let whole = self.recovery.should_send(&self.core.borrow(), *to, &soid);
            if whole {
                self.count_at_target(*to, stats.num_objects);
            }
            // Not taken out: another member has the same shard while it moves from one to the other.
            let bytes = match encoded.get(&to.shard).filter(|_| whole) {
                Some(t) => t.to_bytes(),
                None => Transaction::new().to_bytes(),
            };
            if !whole {
                self.recovery.add_written(&entries);
            }
            message.pgid = self.pgid_at(*to);
            message.op.transaction = Enveloped(bytes);
            message.op.backfill_or_async_recovery = !whole;
            self.host.send_osd(to.osd, message.encode().with_tid(tid));
        }
        let all = self.expect_commits(tid, version, reqid, followers);
        let mut t = encoded.remove(&self.pgid.shard).unwrap_or_default();
        let complete = self.log_shard_write(entries, true, roll_forward_to, trim_to, &mut t);
        self.wait_for_commits(tid, complete, self.submit_timed(t), all).await
    }

    /// Puts a write's entries into the log and what follows from them into its transaction. Says
    /// how far this shard is complete.
    pub(super) fn log_shard_write(
        &self,
        entries: Vec<PgLogEntry>,
        applied: bool,
        roll_forward_to: EVersion,
        trim_to: EVersion,
        t: &mut Transaction,
    ) -> EVersion {
        let mut core = self.core.borrow_mut();
        let core = &mut *core;
        let mut undo = Vec::new();
        for e in &entries {
            core.info.last_user_version = core.info.last_user_version.max(e.user_version);
            if applied {
                core.log.add_undoable(e);
            } else {
                // Nothing was done that could be undone: backfill brings the object.
                undo.extend(core.log.roll_forward(core.log.head()));
                core.log.add(e);
            }
        }
        undo.extend(core.log.roll_forward(roll_forward_to));
        for undo in undo {
            if let super::log::Undo::Trim(e) = undo {
                self.trim_entry(&e, t);
            }
        }
        core.info.last_update = core.log.head();
        if core.missing.is_empty() {
            core.info.last_complete = core.info.last_update;
        }
        let dups = core.settings.dups_tracked;
        core.log.trim(trim_to, dups);
        core.info.log_tail = core.log.tail();
        let mut keys = Keys::default();
        let changes = core.log.take_changes();
        if keys.of_write(changes, &core.info, core.epoch, &self.written_counts) {
            self.written_epoch.set(core.epoch);
        }
        keys.add_to(&self.cid, &self.pgmeta, t);
        core.info.last_complete
    }

    /// A write of this shard, from the primary.
    pub fn on_shard_write(&self, m: MOSDECSubOpWrite) {
        let (reset, follows) = {
            let core = self.core.borrow();
            (core.last_peering_reset, core.follows())
        };
        if m.map_epoch < reset || !follows {
            tracing::debug!(pg = %self.pgid, version = %m.op.at_version, "old write");
            return;
        }
        let mut t = match Transaction::from_bytes(&m.op.transaction.0) {
            Ok(t) => t,
            Err(e) => {
                tracing::error!(pg = %self.pgid, "write of the primary does not decode: {e}");
                return;
            }
        };
        let op = m.op;
        if !self.is_next(&op.log_entries) {
            return;
        }
        for e in &op.log_entries {
            self.contexts.forget(&e.soid);
        }
        if !op.log_entries.is_empty() {
            self.core.borrow_mut().change_stats(|stats| *stats = op.stats);
        }
        self.map_snaps(&op.log_entries, &mut t);
        let last_complete = self.log_shard_write(
            op.log_entries,
            !op.backfill_or_async_recovery,
            op.roll_forward_to,
            op.trim_to,
            &mut t,
        );
        let begun = self.host.env().recent();
        let committed = self.submit_timed(t);
        let (pg, generation) = (self.rc(), self.generation.get());
        self.host.env().go(async move {
            if let Err(e) = committed.await {
                pg.host.store_failed(&e);
                return;
            }
            let took = pg.host.env().recent().saturating_sub(begun);
            pg.host.counters().subop_w_latency.add(took);
            if generation != pg.generation.get() {
                return;
            }
            let (map_epoch, min_epoch) = pg.epochs();
            let reply = MOSDECSubOpWriteReply {
                pgid: pg.pgid_at(op.from),
                map_epoch,
                min_epoch,
                op: EcSubWriteReply {
                    from: pg.whoami(),
                    tid: op.tid,
                    last_complete,
                    committed: true,
                    // Ceph's primary waits for that, too; what is durable here can be read.
                    applied: true,
                },
            };
            pg.host.send_osd(op.from.osd, reply.encode().with_tid(op.tid));
        });
    }

    /// A shard has a write durable.
    pub fn on_shard_write_reply(&self, m: &MOSDECSubOpWriteReply) {
        if m.map_epoch >= self.core.borrow().last_peering_reset && m.op.committed {
            self.on_commit(m.op.tid, m.op.from, m.op.last_complete);
        }
    }

    /// Writes up to `version` are durable on all shards.
    pub(super) fn committed_to(&self, version: EVersion) {
        if !self.is_erasure() {
            return;
        }
        let known = self.shards.committed_to.get();
        self.shards.committed_to.set(known.max(version));
        if self.shards.rolling.replace(true) {
            return;
        }
        let pg = self.rc();
        self.host.env().go(async move {
            loop {
                let before = pg.shards.committed_to.get();
                pg.host.env().sleep(ROLL_FORWARD_AFTER).await;
                if pg.writes_in_flight() == 0 && before == pg.shards.committed_to.get() {
                    break;
                }
            }
            pg.shards.rolling.set(false);
            pg.roll_forward();
        });
    }

    /// Tells all shards up to where nothing will be undone.
    fn roll_forward(&self) {
        let roll_forward_to = self.shards.committed_to.get();
        let (map_epoch, min_epoch) = self.epochs();
        let (followers, stats) = {
            let core = self.core.borrow();
            // Not what this shard knows decides: the interval may have ended under the message
            // that told another.
            let told = self.shards.told.get() >= roll_forward_to;
            if !core.is_activated() || self.deleting.get() || told {
                return;
            }
            (core.acting_backfill.clone(), core.info.stats.clone())
        };
        self.shards.told.set(roll_forward_to);
        let tid = self.host.next_tid();
        let mut message = MOSDECSubOpWrite {
            pgid: self.pgid,
            map_epoch,
            min_epoch,
            op: EcSubWrite {
                from: self.whoami(),
                tid,
                reqid: OsdReqId::default(),
                stats,
                transaction: Enveloped(Transaction::new().to_bytes()),
                roll_forward_to,
                ..EcSubWrite::default()
            },
        };
        for to in followers.into_iter().filter(|s| *s != self.whoami()) {
            message.pgid = self.pgid_at(to);
            self.host.send_osd(to.osd, message.encode().with_tid(tid));
        }
        let mut t = Transaction::new();
        self.log_shard_write(Vec::new(), true, roll_forward_to, EVersion::ZERO, &mut t);
        let committed = self.submit_timed(t);
        let pg = self.rc();
        self.host.env().go(async move {
            if let Err(e) = committed.await {
                pg.host.store_failed(&e);
            }
        });
    }

    /// Members that have an object's chunk, one for each shard: those that act, then, for
    /// recovery, others.
    pub(super) fn members_with(
        &self,
        oid: &HObject,
        need: EVersion,
        others: bool,
    ) -> BTreeMap<i8, PgShard> {
        let core = self.core.borrow();
        let mut found = BTreeMap::new();
        if !core.missing.contains(oid) {
            found.insert(core.whoami.shard, core.whoami);
        }
        for member in core.sources(oid, need) {
            if others || core.mapping.is_acting(member) {
                found.entry(member.shard).or_insert(member);
            }
        }
        found
    }

    /// Whether enough of the shards that act have the object for it to be read.
    pub(crate) fn enough_have(&self, oid: &HObject) -> bool {
        if !self.is_erasure() {
            return true;
        }
        let nobody_lacks = self.core.borrow().peer_missing.values().all(|m| !m.contains(oid));
        let redundancy = self.core.borrow().mapping.redundancy;
        nobody_lacks
            || redundancy.is_recoverable(self.members_with(oid, EVersion::ZERO, false).values())
    }

    /// Reads a range of an object from the shards that act. Needs the object's lock.
    pub(super) async fn read_stripes(
        &self,
        oid: &HObject,
        offset: u64,
        len: u64,
    ) -> Result<Bytes, Errno> {
        let codec = self.codec().ok_or(Errno::EOPNOTSUPP)?;
        let generation = self.generation.get();
        let mut members = self.members_with(oid, EVersion::ZERO, false);
        let mut damaged = Vec::new();
        loop {
            let available = members.keys().copied().collect();
            let plan = codec.plan_read(offset, len, &available).ok_or(Errno::EIO)?;
            if self.pool().fast_read {
                let all = members.into_values().collect();
                let part = (plan.offset, plan.len);
                let (chunks, damaged) = self.read_first(oid, all, part, codec.k()).await;
                if generation != self.generation.get() {
                    return Err(Errno::EAGAIN);
                }
                let data = codec.decode_read(offset, len, &chunks)?;
                self.repair_shards(oid, damaged);
                return Ok(data);
            }
            let from: Vec<PgShard> =
                plan.shards.iter().filter_map(|shard| members.get(shard)).copied().collect();
            let parts = self.read_chunks(oid, from, plan.offset, plan.len, false).await;
            if generation != self.generation.get() {
                return Err(Errno::EAGAIN);
            }
            let mut chunks = BTreeMap::new();
            for (member, part) in parts {
                match part {
                    Ok(part) => {
                        chunks.insert(member.shard, part.data);
                    }
                    Err(errno) => {
                        tracing::warn!(pg = %self.pgid, %oid, %member, "shard cannot be read: {errno}");
                        members.remove(&member.shard);
                        if errno == Errno::EIO {
                            damaged.push(member);
                        }
                    }
                }
            }
            if chunks.len() == plan.shards.len() {
                let data = codec.decode_read(offset, len, &chunks)?;
                self.repair_shards(oid, damaged);
                return Ok(data);
            }
        }
    }

    /// Reads the same part of the chunks of several members.
    pub(super) async fn read_chunks(
        &self,
        oid: &HObject,
        members: Vec<PgShard>,
        offset: u64,
        len: u64,
        attrs: bool,
    ) -> Vec<(PgShard, Result<ChunkPart, Errno>)> {
        let mut awaited = Vec::new();
        let mut parts = Vec::new();
        let own = members.contains(&self.whoami());
        for member in members.into_iter().filter(|m| *m != self.whoami()) {
            awaited.push((member, self.send_read(oid, member, offset, len, attrs)));
        }
        if own {
            let part = self.read_own_chunk(oid, offset, len, attrs).await;
            parts.push((self.whoami(), part));
        }
        for (member, answer) in awaited {
            let part = match answer.await {
                Ok(mut reply) => match reply.errors.get(oid) {
                    Some(result) => Err(Errno::from_result(*result).unwrap_or(Errno::EIO)),
                    None => {
                        let buffers = reply.buffers_read.remove(oid).unwrap_or_default();
                        let data = buffers.into_iter().map(|(_, data)| data).next();
                        let attrs = reply.attrs_read.remove(oid).unwrap_or_default();
                        Ok(ChunkPart { data: data.unwrap_or_default(), attrs })
                    }
                },
                Err(_) => Err(Errno::EAGAIN),
            };
            parts.push((member, part));
        }
        parts
    }

    fn send_read(
        &self,
        oid: &HObject,
        to: PgShard,
        offset: u64,
        len: u64,
        attrs: bool,
    ) -> Receiver<EcSubReadReply> {
        let tid = self.host.next_tid();
        let (done, answer) = oneshot();
        self.shards.reads.borrow_mut().insert(tid, Awaited { from: to, done });
        let (map_epoch, min_epoch) = self.epochs();
        let message = MOSDECSubOpRead {
            pgid: self.pgid_at(to),
            map_epoch,
            min_epoch,
            op: EcSubRead {
                from: self.whoami(),
                tid,
                to_read: BTreeMap::from([(oid.clone(), vec![(offset, len, 0)])]),
                attrs_to_read: attrs.then(|| oid.clone()).into_iter().collect(),
                subchunks: BTreeMap::from([(oid.clone(), vec![(0, 1)])]),
            },
        };
        self.host.send_osd(to.osd, message.encode().with_tid(tid));
        answer
    }

    /// A part of this shard's chunk. One that is not what the object's attributes tell is no better than
    /// one that cannot be read: the primary has others.
    async fn read_own_chunk(
        &self,
        oid: &HObject,
        offset: u64,
        len: u64,
        attrs: bool,
    ) -> Result<ChunkPart, Errno> {
        let store = self.host.store();
        let goid = self.goid(oid);
        let (shard, appends_only) =
            (self.pgid.shard, !self.pool().has_flag(pool_flags::EC_OVERWRITES));
        let mut before = None;
        loop {
            let read = store.read(&self.cid, &goid, offset, len).await;
            let data = read.map_err(|e| Errno(e.errno()))?.to_contiguous();
            let stored = store.getattrs(&self.cid, &goid).await;
            let stored: BTreeMap<_, _> =
                stored.map_err(|e| Errno(e.errno()))?.into_iter().collect();
            if hash_info::is_as_told(&stored, shard, (offset, len), &data, appends_only) {
                return Ok(ChunkPart { data, attrs: if attrs { stored } else { BTreeMap::new() } });
            }
            if before.as_ref() == Some(&stored) {
                let text =
                    format!("{} shard {shard} of {oid} is not what its hash info tells", self.pgid);
                self.host.cluster_log(LogLevel::Error, text);
                return Err(Errno::EIO);
            }
            // A write may have come between the two, where the primary no longer waits for this shard (`fast_read`).
            before = Some(stored);
        }
    }

    /// The primary reads this shard.
    pub fn on_shard_read(&self, m: MOSDECSubOpRead) {
        if m.map_epoch < self.core.borrow().last_peering_reset {
            return;
        }
        let (pg, generation) = (self.rc(), self.generation.get());
        self.host.env().go(async move {
            let mut op =
                EcSubReadReply { from: pg.whoami(), tid: m.op.tid, ..EcSubReadReply::default() };
            for (oid, ranges) in m.op.to_read {
                let attrs = m.op.attrs_to_read.contains(&oid);
                for (offset, len, _) in ranges {
                    match pg.read_own_chunk(&oid, offset, len, attrs).await {
                        Ok(part) => {
                            op.buffers_read
                                .entry(oid.clone())
                                .or_default()
                                .push((offset, part.data));
                            if attrs {
                                op.attrs_read.insert(oid.clone(), part.attrs);
                            }
                        }
                        Err(errno) => {
                            op.buffers_read.remove(&oid);
                            op.attrs_read.remove(&oid);
                            op.errors.insert(oid.clone(), errno.result());
                            break;
                        }
                    }
                }
            }
            if generation != pg.generation.get() {
                return;
            }
            let (map_epoch, min_epoch) = pg.epochs();
            let (to, tid) = (m.op.from, op.tid);
            let reply = MOSDECSubOpReadReply { pgid: pg.pgid_at(to), map_epoch, min_epoch, op };
            pg.host.send_osd(to.osd, reply.encode().with_tid(tid));
        });
    }

    /// A shard gives what was asked.
    pub fn on_shard_read_reply(&self, m: MOSDECSubOpReadReply) {
        let mut reads = self.shards.reads.borrow_mut();
        if reads.get(&m.op.tid).is_some_and(|read| read.from == m.op.from)
            && let Some(read) = reads.remove(&m.op.tid)
        {
            drop(reads);
            read.done.send(m.op);
        }
    }
}
