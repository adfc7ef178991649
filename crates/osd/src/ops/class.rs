//! Class methods' access to the object: [`cls::ObjectContext`] over the running op vector
//! (`src/osd/objclass.cc` at v16.2).
//!
//! Reads are of the object as last submitted; existence and size are those of the running vector.

use std::collections::BTreeMap;

use bstr::{BStr, BString};
use bytes::Bytes;
use cls::{Call, ObjectContext, ObjectStat};
use denc::Denc;
use types::osd::OsdOp;
use types::osd::ops::ExtentArgs;
use types::{EntityAddr, EntityName, Errno, UTime};

use super::attrs::{Listed, or_empty};
use super::op_context::{OpContext, Step, Stop};

/// Nested calls: a class that calls itself for ever is stopped here.
const CALL_DEPTH_MAX: u32 = 16;

impl OpContext {
    pub(super) async fn op_call(&mut self, op: &mut OsdOp) -> Step {
        let args = op.args.cls();
        let class_end = usize::from(args.class_len);
        let method_end = class_end + usize::from(args.method_len);
        let end = method_end.saturating_add(args.indata_len as usize);
        if end > op.indata.len() {
            return Err(Errno::EINVAL.into());
        }
        let input = op.indata.slice(method_end..end);
        let (class, method) =
            (op.indata.slice(..class_end), op.indata.slice(class_end..method_end));
        let mut view = ClassView { ctx: self, depth: 0, stop: None };
        let output = view.run(&class, &method, &input).await;
        if let Some(stop) = view.stop.take() {
            return Err(stop);
        }
        let output = output?;
        let mut extent = op.args.extent();
        extent.length = output.data.len() as u64;
        op.args.set_extent(extent);
        op.outdata.push(output.data);
        match Errno::from_result(output.result) {
            Some(errno) => Err(errno.into()),
            None => Ok(output.result),
        }
    }
}

/// The object, as a method sees it.
struct ClassView<'c> {
    ctx: &'c mut OpContext,
    depth: u32,
    /// Why the whole vector must stop, whatever the method makes of it.
    stop: Option<Stop>,
}

impl ClassView<'_> {
    /// Runs a method and holds it to its flags.
    async fn run(
        &mut self,
        class: &[u8],
        method: &[u8],
        input: &Bytes,
    ) -> Result<cls::Output, Errno> {
        let flags = cls::method(class, method).ok_or(Errno::EOPNOTSUPP)?.flags;
        self.ctx.user_modify |= flags.writes();
        let (read, written) = (self.ctx.num_read, self.ctx.num_write);
        let output = cls::call(self, class, method, input).await;
        let reads_too_much = self.ctx.num_read > read && !flags.reads();
        let writes_too_much = self.ctx.num_write > written && !flags.writes();
        if reads_too_much || writes_too_much {
            let name = BStr::new(method);
            tracing::error!("class {} method {name} does more than it says", BStr::new(class));
            return Err(Errno::EIO);
        }
        output
    }

    /// A step of the vector that a method takes: counted like an op.
    fn done(&mut self, step: Step) -> Result<(), Errno> {
        self.ctx.steps += 1;
        match step {
            Ok(_) => Ok(()),
            Err(Stop::Errno(errno)) => Err(errno),
            Err(stop) => {
                self.stop = Some(stop);
                Err(Errno::EAGAIN)
            }
        }
    }

    /// A write: visible to clients.
    fn wrote(&mut self, step: Step) -> Call<'_, ()> {
        self.ctx.user_modify = true;
        let result = self.done(step);
        Box::pin(core::future::ready(result))
    }
}

impl ObjectContext for ClassView<'_> {
    fn stat(&mut self) -> Call<'_, ObjectStat> {
        self.ctx.steps += 1;
        self.ctx.stats.num_rd += 1;
        let oi = &self.ctx.obs.oi;
        let stat = ObjectStat { size: oi.size, mtime: oi.mtime };
        let result = self.ctx.need_visible().map(|()| stat);
        Box::pin(core::future::ready(result))
    }

    fn read(&mut self, offset: u64, len: u64) -> Call<'_, Bytes> {
        Box::pin(async move {
            self.ctx.steps += 1;
            if self.ctx.pool.is_erasure() {
                // Methods read synchronously in Ceph, which shards cannot.
                return Err(Errno::EOPNOTSUPP);
            }
            let extent = ExtentArgs { offset, length: len, ..ExtentArgs::default() };
            match self.ctx.read_extent(&extent).await {
                Ok(data) => Ok(data.to_contiguous()),
                Err(Stop::Errno(errno)) => Err(errno),
                Err(stop) => {
                    self.stop = Some(stop);
                    Err(Errno::EAGAIN)
                }
            }
        })
    }

    fn write(&mut self, offset: u64, data: Bytes) -> Call<'_, ()> {
        let length = data.len() as u64;
        let extent = ExtentArgs { offset, length, ..ExtentArgs::default() };
        let step = self.ctx.op_write(&extent, 0, data);
        self.wrote(step)
    }

    fn write_full(&mut self, data: Bytes) -> Call<'_, ()> {
        self.ctx.num_write += 1;
        let step = self.ctx.write_whole(0, data);
        self.wrote(step)
    }

    fn create(&mut self, exclusive: bool) -> Call<'_, ()> {
        let step = self.ctx.op_create(u32::from(exclusive), &Bytes::new());
        self.wrote(step)
    }

    fn remove(&mut self) -> Call<'_, ()> {
        let step = self.ctx.op_delete();
        self.wrote(step)
    }

    fn truncate(&mut self, size: u64) -> Call<'_, ()> {
        let step = self.ctx.op_truncate(&ExtentArgs::default(), size);
        self.wrote(step)
    }

    fn zero(&mut self, offset: u64, len: u64) -> Call<'_, ()> {
        let step = self.ctx.op_zero(&ExtentArgs { offset, length: len, ..ExtentArgs::default() });
        self.wrote(step)
    }

    fn getxattr(&mut self, name: &[u8]) -> Call<'_, Bytes> {
        let name = BString::from(name);
        Box::pin(async move {
            self.ctx.num_read += 1;
            self.ctx.steps += 1;
            let value = self.ctx.user_attr(&name).await?;
            self.ctx.count_read(value.len());
            Ok(value)
        })
    }

    fn getxattrs(&mut self) -> Call<'_, BTreeMap<BString, Bytes>> {
        Box::pin(async move {
            self.ctx.num_read += 1;
            self.ctx.steps += 1;
            let attrs = self.ctx.user_attrs().await?;
            self.ctx.count_read(attrs.values().map(Bytes::len).sum());
            Ok(attrs)
        })
    }

    fn setxattr(&mut self, name: &[u8], value: Bytes) -> Call<'_, ()> {
        self.ctx.num_write += 1;
        let limits = &self.ctx.limits;
        let step = if limits.attr_size > 0 && value.len() as u64 > limits.attr_size {
            Err(Errno::EFBIG.into())
        } else if name.len() > limits.attr_name_len {
            Err(Errno::ENAMETOOLONG.into())
        } else {
            self.ctx.set_user_attr(name.into(), value);
            Ok(0)
        };
        self.wrote(step)
    }

    fn omap_keys(&mut self, after: &[u8], max: u64) -> Call<'_, (Vec<BString>, bool)> {
        let after = BString::from(after);
        Box::pin(async move {
            self.ctx.num_read += 1;
            self.ctx.steps += 1;
            let (entries, more) = self.ctx.omap_page(&after, b"", max, Listed::Keys).await?;
            Ok((entries.into_iter().map(|(key, _)| key).collect(), more))
        })
    }

    fn omap_vals(
        &mut self,
        after: &[u8],
        prefix: &[u8],
        max: u64,
    ) -> Call<'_, (BTreeMap<BString, Bytes>, bool)> {
        let (after, prefix) = (BString::from(after), BString::from(prefix));
        Box::pin(async move {
            self.ctx.num_read += 1;
            self.ctx.steps += 1;
            let (entries, more) = self.ctx.omap_page(&after, &prefix, max, Listed::Entries).await?;
            self.ctx.count_read(entries.iter().map(|(key, val)| key.len() + val.len()).sum());
            Ok((entries.into_iter().collect(), more))
        })
    }

    fn omap_vals_by_keys(&mut self, mut keys: Vec<BString>) -> Call<'_, BTreeMap<BString, Bytes>> {
        Box::pin(async move {
            self.ctx.num_read += 1;
            self.ctx.steps += 1;
            keys.sort_unstable();
            keys.dedup();
            let vals = or_empty(self.ctx.omap_values(&keys).await)?;
            self.ctx.count_read(vals.values().map(Bytes::len).sum());
            Ok(vals)
        })
    }

    fn omap_val(&mut self, key: &[u8]) -> Call<'_, Bytes> {
        let key = BString::from(key);
        Box::pin(async move {
            let mut vals = self.omap_vals_by_keys(vec![key.clone()]).await?;
            vals.remove(&key).ok_or(Errno::ENOENT)
        })
    }

    fn omap_header(&mut self) -> Call<'_, Bytes> {
        Box::pin(async move {
            self.ctx.steps += 1;
            if self.ctx.obs.oi.is_omap() {
                self.ctx.num_read += 1;
            }
            self.ctx.omap_header().await
        })
    }

    fn omap_set(&mut self, vals: BTreeMap<BString, Bytes>) -> Call<'_, ()> {
        let step = self.ctx.op_omap_set_vals(&vals.to_bytes());
        self.wrote(step)
    }

    fn omap_set_header(&mut self, header: Bytes) -> Call<'_, ()> {
        let step = self.ctx.op_omap_set_header(header);
        self.wrote(step)
    }

    fn omap_rm(&mut self, key: &[u8]) -> Call<'_, ()> {
        let step = self.ctx.op_omap_rm_keys(&vec![BString::from(key)].to_bytes());
        self.wrote(step)
    }

    fn omap_rm_range(&mut self, first: &[u8], end: &[u8]) -> Call<'_, ()> {
        let range = (BString::from(first), BString::from(end));
        let step = self.ctx.op_omap_rm_key_range(&range.to_bytes());
        self.wrote(step)
    }

    fn omap_clear(&mut self) -> Call<'_, ()> {
        let step = self.ctx.op_omap_clear();
        self.wrote(step)
    }

    fn call<'a>(&'a mut self, class: &'a BStr, method: &'a BStr, input: Bytes) -> Call<'a, Bytes> {
        Box::pin(async move {
            if self.depth == CALL_DEPTH_MAX {
                return Err(Errno::ELOOP);
            }
            self.depth += 1;
            let output = self.run(class, method, &input).await;
            self.depth -= 1;
            let output = output?;
            match Errno::from_result(output.result) {
                Some(errno) => Err(errno),
                None => Ok(output.data),
            }
        })
    }

    fn caller(&self) -> (EntityName, EntityAddr) {
        (self.ctx.request.client.name(), self.ctx.request.client.addr())
    }

    fn now(&self) -> UTime {
        UTime::from_duration(self.ctx.pg.env().wall_clock())
    }

    fn fill_random(&self, buf: &mut [u8]) {
        self.ctx.pg.env().fill_random(buf);
    }

    fn object_version(&self) -> u64 {
        self.ctx.obc.obs.borrow().oi.user_version
    }

    fn pg_version(&self) -> u64 {
        self.ctx.pg.last_user_version()
    }

    fn subop_version(&self) -> String {
        format!("{}.{}", self.ctx.pg.last_user_version(), self.ctx.steps)
    }

    fn snap_seq(&self) -> Option<u64> {
        let has_clones = !self.ctx.snapset.clones.is_empty();
        let exists = self.ctx.obs.is_visible() || self.ctx.obs.exists && has_clones;
        exists.then_some(self.ctx.snapset.seq)
    }

    fn snap_context_seq(&self) -> u64 {
        self.ctx.snapc.seq
    }

    fn client_features(&self) -> u64 {
        self.ctx.request.features
    }

    fn pool_stripe_width(&self) -> u64 {
        u64::from(self.ctx.pool.stripe_width)
    }

    fn watchers(&self) -> Vec<(EntityName, EntityAddr)> {
        let watchers = self.ctx.obs.oi.watchers.iter();
        watchers.map(|(&(_, name), info)| (name, info.addr)).collect()
    }

    fn object_name(&self) -> (BString, BString, BString) {
        let oid = &self.ctx.obs.oi.soid;
        (oid.name.clone(), oid.key.clone(), oid.namespace.clone())
    }
}
