//! Recovery of shards: a lacking chunk is computed from k others and pushed, part by part, to whoever
//! lacks it (`ECBackend::continue_recovery_op` in `src/osd/ECBackend.cc` at v16.2).
//!
//! ```text
//! MOSDECSubOpRead (attributes with the first part) -> k chunks' part -> rebuild
//!   -> MOSDPGPush to each that lacks its shard (to ourselves without a message) -> again
//! ```
//!
//! Under the object's read lock, so it does not change meanwhile. Sources are checked: a copy from
//! before (of a stray that missed a write, or was not undone) has another version in its info.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use bstr::BString;
use bytes::Bytes;
use denc::Denc;
use messages::{MOSDPGPush, Message};
use store::StoreError;
use types::osd::{ObjectInfo, ObjectRecoveryInfo, ObjectRecoveryProgress, PushOp, SnapSet};
use types::{EVersion, Errno, HObject, IntervalSet, PgShard};

use super::Pg;
use super::recovery::Moved;
use super::shards::ChunkPart;
use crate::ops::LockKind;
use crate::ops::object_context::{OI_ATTR, SS_ATTR};

/// What the first part's attributes tell of an object.
struct Known {
    oi: ObjectInfo,
    attrs: BTreeMap<BString, Bytes>,
    ss: SnapSet,
    chunk_len: u64,
}

impl Pg {
    /// Brings an object to all members that lack it.
    pub(super) async fn move_shards(self: &Rc<Pg>, oid: &HObject, generation: u64) -> Moved {
        let own = self.core.borrow().missing.get(oid).cloned();
        if let Some(item) = own.filter(|item| item.is_delete) {
            let moved = self.delete_here(oid, item.need).await;
            if moved != Moved::Done || generation != self.generation.get() {
                return moved;
            }
        }
        let guard = self.contexts.lock(&oid.head(), LockKind::Read).await;
        if generation != self.generation.get() {
            return Moved::Failed;
        }
        let mut lacking = Vec::new();
        let mut deletes = Vec::new();
        let mut need = EVersion::ZERO;
        {
            let core = self.core.borrow();
            let own = core.missing.get(oid).map(|item| (core.whoami, item));
            let peers = core.acting_backfill.iter().filter(|s| **s != core.whoami);
            let peers = peers.filter_map(|s| Some((*s, core.peer_missing.get(s)?.get(oid)?)));
            for (member, item) in own.into_iter().chain(peers) {
                match item.is_delete {
                    true => deletes.push((member, item.need)),
                    false => lacking.push(member),
                }
                need = need.max(item.need);
            }
        }
        for (peer, need) in deletes {
            if !self.delete_there(oid, need, peer).await || generation != self.generation.get() {
                return Moved::Failed;
            }
            self.on_peer_has(oid, peer);
        }
        if !lacking.is_empty() {
            let moved = self.rebuild_shards(oid, need, &lacking, generation).await;
            if moved != Moved::Done || generation != self.generation.get() {
                return moved;
            }
            for peer in lacking.into_iter().filter(|s| *s != self.whoami()) {
                self.on_peer_has(oid, peer);
            }
        }
        drop(guard);
        Moved::Done
    }

    /// Backfill: gives targets their shards of an object that this shard has, or takes it away.
    /// The object's lock is held.
    pub(super) async fn backfill_shards(
        self: &Rc<Pg>,
        oid: &HObject,
        targets: &[PgShard],
        generation: u64,
    ) -> bool {
        let attr = self.host.store().getattr(&self.cid, &self.goid(oid), OI_ATTR).await;
        if generation != self.generation.get() {
            return false;
        }
        if let Err(StoreError::NoObject) = attr {
            for target in targets {
                if !self.delete_there(oid, EVersion::ZERO, *target).await {
                    return false;
                }
            }
            return generation == self.generation.get();
        }
        let Some(info) = attr.ok().and_then(|bytes| ObjectInfo::from_bytes(&bytes).ok()) else {
            self.repair_own(oid).await;
            return false;
        };
        let moved = self.rebuild_shards(oid, info.version, targets, generation).await;
        moved == Moved::Done && generation == self.generation.get()
    }

    async fn rebuild_shards(
        self: &Rc<Pg>,
        oid: &HObject,
        mut need: EVersion,
        targets: &[PgShard],
        generation: u64,
    ) -> Moved {
        let Some(codec) = self.codec() else { return Moved::Failed };
        let wanted: BTreeSet<i8> = targets.iter().map(|s| s.shard).collect();
        // Whole stripes, as less than the piece of a code does not decode
        // (`ECBackend::get_recovery_chunk_size`).
        let part_len = codec.chunk_len(self.host.recovery_limits().chunk);
        let mut sources = self.members_with(oid, need, true);
        sources.retain(|_, member| !targets.contains(member));
        let mut known: Option<Known> = None;
        // Whose version has been looked at. Others join in the middle, when a source fails.
        let mut seen: BTreeSet<PgShard> = BTreeSet::new();
        let mut offset = 0;
        loop {
            // Whoever has just that shard, else any k.
            let direct = wanted.iter().all(|shard| sources.contains_key(shard));
            let from: Vec<PgShard> = match direct {
                true => wanted.iter().filter_map(|shard| sources.get(shard)).copied().collect(),
                false => sources.values().take(codec.k()).copied().collect(),
            };
            if !direct && from.len() < codec.k() {
                return Moved::Unfound;
            }
            let count = from.len();
            let with_attrs = known.is_none() || from.iter().any(|member| !seen.contains(member));
            let parts = self.read_chunks(oid, from, offset, part_len, with_attrs).await;
            if generation != self.generation.get() {
                return Moved::Failed;
            }
            if need.is_zero() {
                // Which one is needed is not known of an object that was found damaged.
                let versions = parts.iter().filter_map(|(_, part)| version_of(part.as_ref().ok()?));
                need = versions.max().unwrap_or_default();
            }
            let mut good = BTreeMap::new();
            for (member, part) in parts {
                match part {
                    Ok(part) if seen.contains(&member) || version_of(&part) == Some(need) => {
                        seen.insert(member);
                        good.insert(member.shard, part);
                    }
                    other => {
                        // EAGAIN: it went away.
                        let went_away = matches!(other, Err(Errno::EAGAIN));
                        let is_damaged = match &other {
                            Err(_) => !went_away,
                            Ok(part) => version_of(part).is_none_or(|version| version < need),
                        };
                        if is_damaged {
                            self.source_is_damaged(oid, need, member);
                        }
                        if !went_away {
                            self.stray_lacks(oid, need, member);
                        }
                        let why = other.err();
                        tracing::warn!(pg = %self.pgid, %oid, %member, ?why, "not a source");
                        sources.remove(&member.shard);
                    }
                }
            }
            if good.len() < count {
                continue;
            }
            if known.is_none() {
                let Some(first) = good.values().next().cloned() else { return Moved::Unfound };
                known = self.known_of(oid, first.attrs, |size| codec.chunk_len(size)).await;
                if generation != self.generation.get() {
                    return Moved::Failed;
                }
            }
            let Some(known) = &known else { return Moved::Failed };
            let chunks: BTreeMap<i8, Bytes> =
                good.into_iter().map(|(shard, part)| (shard, part.data)).collect();
            let Ok(rebuilt) = rebuild(&*codec, &wanted, &chunks) else {
                tracing::error!(pg = %self.pgid, %oid, "chunks do not decode");
                return Moved::Failed;
            };
            let to = known.chunk_len.min(offset + part_len);
            for target in targets {
                let len = usize::try_from(to - offset).unwrap_or(usize::MAX);
                let data = rebuilt.get(&target.shard).cloned().unwrap_or_default();
                let data = data.slice(..len.min(data.len()));
                let op = push_of(oid, known, offset, to, data);
                if !self.push_shard(*target, op, need, generation).await {
                    return Moved::Failed;
                }
            }
            if to == known.chunk_len {
                let mut core = self.core.borrow_mut();
                let others = targets.iter().filter(|target| **target != core.whoami).count();
                core.info.stats.stats.sum.num_objects_recovered += others as i64;
                return Moved::Done;
            }
            offset = to;
        }
    }

    /// A stray is no source of the object: what it has is damaged, or of another version, which its log need not tell
    /// as that of a member does.
    fn stray_lacks(&self, oid: &HObject, need: EVersion, member: PgShard) {
        let core = &mut *self.core.borrow_mut();
        if !core.acting_backfill.contains(&member) {
            let missing = core.peer_missing.entry(member).or_default();
            missing.add(oid, need, EVersion::ZERO, false);
        }
    }

    async fn known_of(
        &self,
        oid: &HObject,
        attrs: BTreeMap<BString, Bytes>,
        chunk_len: impl Fn(u64) -> u64,
    ) -> Option<Known> {
        let oi = ObjectInfo::from_bytes(attrs.get(&BString::from(OI_ATTR))?).ok()?;
        let ss = self.snapset_of(oid, attrs.get(&BString::from(SS_ATTR))).await;
        Some(Known { chunk_len: chunk_len(oi.size), oi, attrs, ss })
    }

    /// Gives a member a part of its chunk, and waits until it has it durable.
    async fn push_shard(
        self: &Rc<Pg>,
        target: PgShard,
        op: PushOp,
        need: EVersion,
        generation: u64,
    ) -> bool {
        let bytes = op.data.len() as u64;
        let complete = op.after_progress.data_complete && op.after_progress.omap_complete;
        if target == self.whoami() {
            let first = op.before_progress.first;
            self.recovery.expect_own(&op.soid, target, need, first);
            // Which counts it.
            return self.take_push(target, op, self.scrub.is_repairing(), generation).await;
        }
        let answered = self.recovery.expect_answer(target, op.soid.clone());
        let (map_epoch, min_epoch) = self.epochs();
        let message = MOSDPGPush {
            from: self.whoami(),
            pgid: self.pgid_at(target),
            map_epoch,
            min_epoch,
            pushes: vec![op],
            is_repair: self.scrub.is_repairing(),
            cost: bytes,
        };
        self.host.send_osd(target.osd, Message::encode(&message));
        if answered.await.is_err() {
            return false;
        }
        self.host.counters().count_recovered(bytes, complete);
        self.core.borrow_mut().info.stats.stats.sum.num_bytes_recovered += bytes as i64;
        true
    }
}

fn version_of(part: &ChunkPart) -> Option<EVersion> {
    let bytes = part.attrs.get(&BString::from(OI_ATTR))?;
    ObjectInfo::from_bytes(bytes).ok().map(|oi| oi.version)
}

/// The wanted chunks: those read as they are, the rest computed.
fn rebuild(
    codec: &dyn super::backend::ShardCodec,
    wanted: &BTreeSet<i8>,
    chunks: &BTreeMap<i8, Bytes>,
) -> Result<BTreeMap<i8, Bytes>, types::Errno> {
    let mut found: BTreeMap<i8, Bytes> = BTreeMap::new();
    for shard in wanted {
        if let Some(chunk) = chunks.get(shard) {
            found.insert(*shard, chunk.clone());
        }
    }
    let lacking: BTreeSet<i8> =
        wanted.iter().filter(|shard| !found.contains_key(*shard)).copied().collect();
    // An object without data has empty chunks.
    if !lacking.is_empty() && chunks.values().any(|chunk| !chunk.is_empty()) {
        found.extend(codec.rebuild(&lacking, chunks)?);
    }
    Ok(found)
}

fn push_of(oid: &HObject, known: &Known, from: u64, to: u64, data: Bytes) -> PushOp {
    let span = |from: u64, to: u64| match to > from {
        true => IntervalSet::of(from, to - from),
        false => IntervalSet::new(),
    };
    let first = from == 0;
    PushOp {
        soid: oid.clone(),
        version: known.oi.version,
        data,
        data_included: span(from, to),
        attrset: if first { known.attrs.clone() } else { BTreeMap::new() },
        recovery_info: ObjectRecoveryInfo {
            soid: oid.clone(),
            version: known.oi.version,
            size: known.oi.size,
            oi: known.oi.clone(),
            ss: known.ss.clone(),
            copy_subset: span(0, known.chunk_len),
            clone_subset: BTreeMap::new(),
            object_exist: false,
        },
        before_progress: ObjectRecoveryProgress {
            first,
            data_recovered_to: from,
            omap_complete: !first,
            ..ObjectRecoveryProgress::default()
        },
        after_progress: ObjectRecoveryProgress {
            first: false,
            data_recovered_to: to,
            data_complete: to == known.chunk_len,
            omap_complete: true,
            ..ObjectRecoveryProgress::default()
        },
        ..PushOp::default()
    }
}
