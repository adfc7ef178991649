//! Ops that write data, attributes and omap of the head.

use std::collections::{BTreeMap, BTreeSet};
use std::slice;

use bstr::BString;
use bytes::Bytes;
use denc::{Denc, Reader};
use types::Errno;
use types::bufferlist::crc32c_of;
use types::osd::OsdOp;
use types::osd::object_info;
use types::osd::ops::{AllocHintArgs, ExtentArgs, WriteSameArgs, op_flags};

use super::execute::Request;
use super::object_context::USER_ATTR_PREFIX;
use super::op_context::{AttrChange, OpContext, Step, kb};

/// Checks a range against the largest object (`check_offset_and_length`).
fn check_range(offset: u64, len: u64, max: u64) -> Result<(), Errno> {
    let fits = offset < max && len <= max && offset + len <= max;
    if fits { Ok(()) } else { Err(Errno::EFBIG) }
}

/// The stored name of a client's xattr.
pub(super) fn stored_attr(name: &[u8]) -> BString {
    let mut stored = BString::new(Vec::with_capacity(name.len() + 1));
    stored.push(USER_ATTR_PREFIX);
    stored.extend_from_slice(name);
    stored
}

/// The checksum from `seed` of what a request writes: its pages' are known since it came.
fn crc_of(request: &Request, seed: u32, data: &Bytes) -> u32 {
    crc32c_of(seed, slice::from_ref(data), request.sums.as_ref())
}

impl OpContext {
    /// A write's share in size and statistics (`write_update_size_and_usage`).
    fn account_write(&mut self, offset: u64, len: u64, whole: bool) {
        if whole {
            self.mark_modified(0, self.obs.oi.size);
        } else {
            self.mark_modified(offset, len);
        }
        if whole || (len > 0 && offset + len > self.obs.oi.size) {
            self.set_size(offset + len);
        }
        self.stats.num_wr += 1;
        self.stats.num_wr_kb += kb(len);
    }

    /// Keeps the checksum of the whole content as far as it can be known.
    fn update_data_digest(&mut self, offset: u64, data: &Bytes) {
        let oi = &mut self.obs.oi;
        let seed = if offset == 0 && data.len() as u64 >= oi.size {
            Some(u32::MAX)
        } else {
            (offset == oi.size && oi.is_data_digest()).then_some(oi.data_digest)
        };
        match seed.filter(|_| !self.limits.skip_data_digest) {
            Some(seed) => oi.set_data_digest(crc_of(&self.request, seed, data)),
            None => oi.clear_data_digest(),
        }
    }

    /// Refuses what does not begin at the end, where shards are only appended to, and in stripes.
    fn check_append(&self, offset: u64) -> Result<(), Errno> {
        let end = if self.obs.exists { self.obs.oi.size } else { 0 };
        match self.pool.append_alignment() {
            Some(alignment) if !offset.is_multiple_of(alignment) || offset != end => {
                Err(Errno::EOPNOTSUPP)
            }
            _ => Ok(()),
        }
    }

    pub(super) fn op_write(&mut self, args: &ExtentArgs, flags: u32, mut data: Bytes) -> Step {
        self.num_write += 1;
        let (offset, mut len) = (args.offset, args.length);
        if len != data.len() as u64 {
            return Err(Errno::EINVAL.into());
        }
        self.check_append(offset)?;
        let seq = self.obs.oi.truncate_seq;
        if seq != 0
            && seq > u64::from(args.truncate_seq)
            && offset.saturating_add(len) > self.obs.oi.size
        {
            // An old write that comes after the truncation that undid it.
            len = self.obs.oi.size.saturating_sub(offset);
            data.truncate(usize::try_from(len).unwrap_or(usize::MAX));
        }
        if u64::from(args.truncate_seq) > seq {
            // A write that comes before the truncation it knows of.
            if self.is_visible() {
                let size = args.truncate_size;
                if size > self.limits.object_size {
                    return Err(Errno::EFBIG.into());
                }
                self.t.truncate(&self.coll, &self.goid, size);
                if self.obs.oi.size > size {
                    let cut = self.obs.oi.size - size;
                    self.mark_modified(size, cut);
                    self.mark_data_dirty(size, cut);
                }
                if self.obs.oi.size != size {
                    // Cut, or filled up with zeros (where Ceph keeps the digest).
                    self.obs.oi.clear_data_digest();
                }
                self.set_size(size);
            }
            self.obs.oi.truncate_seq = args.truncate_seq.into();
            self.obs.oi.truncate_size = args.truncate_size;
        }
        check_range(offset, len, self.limits.object_size)?;
        self.create_if_absent();
        if len == 0 {
            if offset > self.obs.oi.size {
                self.t.truncate(&self.coll, &self.goid, offset);
                self.set_size(offset);
                self.obs.oi.clear_data_digest();
            } else {
                self.note_change();
            }
        } else {
            self.t.add_fadvise_flags(flags);
            self.t.write(&self.coll, &self.goid, offset, data.clone());
        }
        self.update_data_digest(offset, &data);
        self.account_write(offset, len, false);
        self.mark_data_dirty(offset, len);
        Ok(0)
    }

    pub(super) fn op_writefull(&mut self, args: &ExtentArgs, flags: u32, data: Bytes) -> Step {
        self.num_write += 1;
        if args.length != data.len() as u64 {
            return Err(Errno::EINVAL.into());
        }
        self.write_whole(flags, data)
    }

    /// Replaces the content.
    pub(super) fn write_whole(&mut self, flags: u32, data: Bytes) -> Step {
        let len = data.len() as u64;
        check_range(0, len, self.limits.object_size)?;
        self.create_if_absent();
        let old_size = self.obs.oi.size;
        if self.pool.is_erasure() {
            // The old content is kept whole, to be put back: no stripe has to be read.
            self.t.truncate(&self.coll, &self.goid, 0);
        } else if len < old_size {
            self.t.truncate(&self.coll, &self.goid, len);
        }
        if len > 0 {
            self.t.add_fadvise_flags(flags);
            self.t.write(&self.coll, &self.goid, 0, data.clone());
        } else {
            self.note_change();
        }
        if self.limits.skip_data_digest {
            self.obs.oi.clear_data_digest();
        } else {
            self.obs.oi.set_data_digest(crc_of(&self.request, u32::MAX, &data));
        }
        self.mark_data_dirty(0, len.max(old_size));
        self.account_write(0, len, true);
        Ok(0)
    }

    pub(super) fn op_append(&mut self, args: &ExtentArgs, flags: u32, data: Bytes) -> Step {
        let at_end = ExtentArgs {
            offset: self.obs.oi.size,
            length: args.length,
            truncate_seq: u32::try_from(self.obs.oi.truncate_seq).unwrap_or(u32::MAX),
            truncate_size: 0,
        };
        self.op_write(&at_end, flags, data)
    }

    pub(super) fn op_writesame(&mut self, args: &WriteSameArgs, pattern: &Bytes) -> Step {
        self.num_write += 1;
        if args.length == 0 {
            return Ok(0);
        }
        if args.data_length == 0
            || !args.length.is_multiple_of(args.data_length)
            || args.data_length != pattern.len() as u64
        {
            return Err(Errno::EINVAL.into());
        }
        // Checked before the pattern is repeated, so that a request cannot ask for more memory
        // than an object may have.
        self.check_append(args.offset)?;
        check_range(args.offset, args.length, self.limits.object_size)?;
        let times = usize::try_from(args.length / args.data_length).map_err(|_| Errno::EFBIG)?;
        let data = Bytes::from(pattern.repeat(times));
        let extent = ExtentArgs { offset: args.offset, length: args.length, ..Default::default() };
        self.op_write(&extent, 0, data)
    }

    /// `zero`; one that reaches the end of the object cuts it there instead.
    pub(super) fn op_zero(&mut self, args: &ExtentArgs) -> Step {
        let max = self.limits.object_size;
        let (offset, len) = (args.offset, args.length);
        if self.obs.exists
            && offset < max
            && (1..=max).contains(&len)
            && offset + len >= self.obs.oi.size
        {
            if offset >= self.obs.oi.size {
                // It leaves the result of the op before it.
                return Ok(self.results.last().map_or(0, |op| op.rval.max(0)));
            }
            return self.op_truncate(args, offset);
        }
        if self.pool.append_alignment().is_some() {
            return Err(Errno::EOPNOTSUPP.into());
        }
        self.num_write += 1;
        check_range(offset, len, max)?;
        if self.is_visible() && len > 0 {
            self.t.zero(&self.coll, &self.goid, offset, len);
            self.mark_modified(offset, len);
            self.mark_data_dirty(offset, len);
            self.stats.num_wr += 1;
            self.obs.oi.clear_data_digest();
        }
        Ok(0)
    }

    /// `truncate` and `trimtrunc`, to `size`.
    pub(super) fn op_truncate(&mut self, args: &ExtentArgs, size: u64) -> Step {
        self.num_write += 1;
        if self.pool.append_alignment().is_some() {
            return Err(Errno::EOPNOTSUPP.into());
        }
        if !self.is_visible() {
            return Ok(0);
        }
        check_range(size, args.length, self.limits.object_size)?;
        if args.truncate_seq != 0 {
            if size != args.truncate_size {
                return Err(Errno::EINVAL.into());
            }
            if u64::from(args.truncate_seq) <= self.obs.oi.truncate_seq {
                return Ok(0);
            }
            self.obs.oi.truncate_seq = args.truncate_seq.into();
            self.obs.oi.truncate_size = args.truncate_size;
        }
        self.create_if_absent();
        self.t.truncate(&self.coll, &self.goid, size);
        let old = self.obs.oi.size;
        if old > size {
            self.mark_modified(size, old - size);
            self.mark_data_dirty(size, old - size);
        } else if old < size {
            self.mark_data_dirty(old, size - old);
        }
        self.set_size(size);
        self.stats.num_wr += 1;
        self.obs.oi.clear_data_digest();
        Ok(0)
    }

    pub(super) fn op_create(&mut self, flags: u32, input: &Bytes) -> Step {
        self.num_write += 1;
        if self.is_visible() && flags & op_flags::EXCL != 0 {
            return Err(Errno::EEXIST.into());
        }
        // A category, which nothing uses any more; it must still be one.
        if !input.is_empty() {
            BString::from_bytes(input).map_err(|_| Errno::EINVAL)?;
        }
        self.create_if_absent();
        self.note_change();
        Ok(0)
    }

    pub(super) fn op_set_alloc_hint(&mut self, args: &AllocHintArgs) -> Step {
        self.num_write += 1;
        self.create_if_absent();
        let oi = &mut self.obs.oi;
        oi.expected_object_size = args.object_size;
        oi.expected_write_size = args.write_size;
        oi.alloc_hint_flags = args.flags;
        self.t.set_alloc_hint(
            &self.coll,
            &self.goid,
            args.object_size,
            args.write_size,
            args.flags,
        );
        Ok(0)
    }

    // Attributes.

    pub(super) fn op_setxattr(&mut self, op: &OsdOp) -> Step {
        self.num_write += 1;
        let args = op.args.xattr();
        let max = self.limits.attr_size;
        if max > 0 && u64::from(args.value_len) > max {
            return Err(Errno::EFBIG.into());
        }
        if args.name_len as usize > self.limits.attr_name_len {
            return Err(Errno::ENAMETOOLONG.into());
        }
        let (name, value) = op.attr_parts().ok_or(Errno::EINVAL)?;
        self.set_user_attr(name, value);
        Ok(0)
    }

    /// Sets a client's xattr.
    pub(super) fn set_user_attr(&mut self, name: BString, value: Bytes) {
        self.create_if_absent();
        self.t.setattr(&self.coll, &self.goid, stored_attr(&name), value.clone());
        self.note_attr(name, Some(value));
        self.stats.num_wr += 1;
    }

    /// A client's xattr changes. One with no name is the object's own info by its stored name: the
    /// info written at the end of the vector replaces whatever the client has put there.
    fn note_attr(&mut self, name: BString, value: Option<Bytes>) {
        if !name.is_empty() {
            self.attr_changes.push(AttrChange::One(name, value));
        }
    }

    pub(super) fn op_rmxattr(&mut self, op: &OsdOp) -> Step {
        self.num_write += 1;
        self.need_visible()?;
        let (name, _) = op.attr_parts().ok_or(Errno::EINVAL)?;
        self.t.rmattr(&self.coll, &self.goid, stored_attr(&name));
        self.note_attr(name, None);
        self.stats.num_wr += 1;
        Ok(0)
    }

    // Omap.

    fn need_omap(&self) -> Result<(), Errno> {
        if self.pool.is_erasure() { Err(Errno::EOPNOTSUPP) } else { Ok(()) }
    }

    /// The object has an omap now, and its content has changed.
    fn note_omap(&mut self) {
        self.obs.oi.set_flag(object_info::FLAG_OMAP);
        self.obs.oi.clear_omap_digest();
        self.clean.mark_omap_dirty();
        self.stats.num_wr += 1;
    }

    pub(super) fn op_omap_set_vals(&mut self, input: &Bytes) -> Step {
        self.need_omap()?;
        self.num_write += 1;
        let vals = BTreeMap::from_bytes(input).map_err(|_| Errno::EINVAL)?;
        self.stats.num_wr_kb += kb(input.len() as u64);
        self.omap_set_vals(vals);
        Ok(0)
    }

    /// Sets omap keys.
    pub(super) fn omap_set_vals(&mut self, vals: BTreeMap<BString, Bytes>) {
        self.create_if_absent();
        self.t.omap_setkeys(&self.coll, &self.goid, vals);
        self.note_omap();
    }

    pub(super) fn op_omap_set_header(&mut self, header: Bytes) -> Step {
        self.need_omap()?;
        self.num_write += 1;
        self.create_if_absent();
        self.t.omap_setheader(&self.coll, &self.goid, header);
        self.note_omap();
        Ok(0)
    }

    pub(super) fn op_omap_clear(&mut self) -> Step {
        self.need_omap()?;
        self.num_write += 1;
        self.need_visible()?;
        if self.obs.oi.is_omap() {
            self.t.omap_clear(&self.coll, &self.goid);
            self.clean.mark_omap_dirty();
            self.stats.num_wr += 1;
            self.obs.oi.clear_omap_digest();
            self.obs.oi.clear_flag(object_info::FLAG_OMAP);
        }
        Ok(0)
    }

    pub(super) fn op_omap_rm_keys(&mut self, input: &Bytes) -> Step {
        self.need_omap()?;
        self.num_write += 1;
        self.need_visible()?;
        let keys = BTreeSet::from_bytes(input).map_err(|_| Errno::EINVAL)?;
        self.t.omap_rmkeys(&self.coll, &self.goid, keys);
        self.clean.mark_omap_dirty();
        self.stats.num_wr += 1;
        self.obs.oi.clear_omap_digest();
        Ok(0)
    }

    pub(super) fn op_omap_rm_key_range(&mut self, input: &Bytes) -> Step {
        self.need_omap()?;
        self.num_write += 1;
        self.need_visible()?;
        let mut r = Reader::new(input);
        let mut key = || r.get::<BString>().map_err(|_| Errno::EINVAL);
        let (first, end) = (key()?, key()?);
        self.t.omap_rmkeyrange(&self.coll, &self.goid, first, end);
        self.clean.mark_omap_dirty();
        self.stats.num_wr += 1;
        self.obs.oi.clear_omap_digest();
        Ok(0)
    }
}
