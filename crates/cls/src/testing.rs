//! An object in memory for the classes' tests. Unlike an OSD's it shows a method its own writes.

use std::collections::BTreeMap;

use bstr::{BStr, BString};
use bytes::Bytes;
use types::{AddrType, EntityAddr, EntityName, Errno, UTime};

use crate::{Call, ObjectContext, ObjectStat, Output};

/// The object.
#[derive(Debug, Clone)]
pub(crate) struct TestObject {
    pub(crate) exists: bool,
    pub(crate) data: Vec<u8>,
    pub(crate) attrs: BTreeMap<BString, Bytes>,
    pub(crate) omap: BTreeMap<BString, Bytes>,
    pub(crate) header: Bytes,
    pub(crate) caller: EntityName,
    pub(crate) now: UTime,
    pub(crate) steps: u32,
    pub(crate) watchers: Vec<(EntityName, EntityAddr)>,
    /// What reads show during [`TestObject::call_as_osd`].
    pub(crate) before: Option<Box<TestObject>>,
}

impl Default for TestObject {
    fn default() -> TestObject {
        TestObject {
            exists: false,
            data: Vec::new(),
            attrs: BTreeMap::new(),
            omap: BTreeMap::new(),
            header: Bytes::new(),
            caller: EntityName::client(4123),
            now: UTime::new(1_600_000_000, 0),
            steps: 0,
            watchers: Vec::new(),
            before: None,
        }
    }
}

impl TestObject {
    /// Calls a method; these futures never wait.
    pub(crate) fn call(
        &mut self,
        class: &str,
        method: &str,
        input: &impl denc::Denc,
    ) -> Result<Bytes, Errno> {
        self.call_raw(class, method, &input.to_bytes()).map(|output| output.data)
    }

    pub(crate) fn call_raw(
        &mut self,
        class: &str,
        method: &str,
        input: &Bytes,
    ) -> Result<Output, Errno> {
        run(crate::call(self, class.as_bytes(), method.as_bytes(), input))
    }

    /// Calls a method as an OSD does: it does not see its own writes, and leaves none if it fails.
    pub(crate) fn call_as_osd(
        &mut self,
        class: &str,
        method: &str,
        input: &Bytes,
    ) -> Result<Output, Errno> {
        let before = self.clone();
        self.before = Some(Box::new(before.clone()));
        let result = self.call_raw(class, method, input);
        self.before = None;
        if !matches!(&result, Ok(output) if output.result >= 0) {
            *self = before;
        }
        result
    }

    /// The object, as reads show it.
    fn seen(&self) -> &TestObject {
        self.before.as_deref().unwrap_or(self)
    }

    fn need(&self) -> Result<(), Errno> {
        if self.exists { Ok(()) } else { Err(Errno::ENOENT) }
    }
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let waker = std::task::Waker::noop();
    match future.as_mut().poll(&mut std::task::Context::from_waker(waker)) {
        std::task::Poll::Ready(value) => value,
        std::task::Poll::Pending => panic!("an object in memory does not wait"),
    }
}

fn ready<'a, T: 'a>(value: Result<T, Errno>) -> Call<'a, T> {
    Box::pin(std::future::ready(value))
}

impl ObjectContext for TestObject {
    fn stat(&mut self) -> Call<'_, ObjectStat> {
        let stat = ObjectStat { size: self.data.len() as u64, mtime: self.now };
        ready(self.need().map(|()| stat))
    }
    fn read(&mut self, offset: u64, len: u64) -> Call<'_, Bytes> {
        let from = (offset as usize).min(self.data.len());
        let to =
            if len == 0 { self.data.len() } else { (from + len as usize).min(self.data.len()) };
        ready(self.need().map(|()| Bytes::copy_from_slice(&self.data[from..to])))
    }
    fn write(&mut self, offset: u64, data: Bytes) -> Call<'_, ()> {
        let end = offset as usize + data.len();
        self.data.resize(self.data.len().max(end), 0);
        self.data[offset as usize..end].copy_from_slice(&data);
        self.exists = true;
        ready(Ok(()))
    }
    fn write_full(&mut self, data: Bytes) -> Call<'_, ()> {
        self.data = data.to_vec();
        self.exists = true;
        ready(Ok(()))
    }
    fn create(&mut self, exclusive: bool) -> Call<'_, ()> {
        if exclusive && self.exists {
            return ready(Err(Errno::EEXIST));
        }
        self.exists = true;
        ready(Ok(()))
    }
    fn remove(&mut self) -> Call<'_, ()> {
        let result = self.need();
        let (caller, now, before) = (self.caller, self.now, self.before.take());
        *self = TestObject { caller, now, before, ..TestObject::default() };
        ready(result)
    }
    fn truncate(&mut self, size: u64) -> Call<'_, ()> {
        self.data.resize(size as usize, 0);
        ready(Ok(()))
    }
    fn zero(&mut self, offset: u64, len: u64) -> Call<'_, ()> {
        self.write(offset, vec![0; len as usize].into())
    }
    fn getxattr(&mut self, name: &[u8]) -> Call<'_, Bytes> {
        let value = self.seen().attrs.get(BStr::new(name)).cloned().ok_or(Errno::ENODATA);
        ready(self.need().and(value))
    }
    fn getxattrs(&mut self) -> Call<'_, BTreeMap<BString, Bytes>> {
        ready(self.need().map(|()| self.seen().attrs.clone()))
    }
    fn setxattr(&mut self, name: &[u8], value: Bytes) -> Call<'_, ()> {
        self.exists = true;
        self.attrs.insert(name.into(), value);
        ready(Ok(()))
    }
    fn omap_keys(&mut self, after: &[u8], max: u64) -> Call<'_, (Vec<BString>, bool)> {
        let mut keys = self.seen().omap.keys().filter(|key| key[..] > *after);
        let page: Vec<_> = keys.by_ref().take(max as usize).cloned().collect();
        let more = keys.next().is_some();
        ready(Ok((page, more)))
    }
    fn omap_vals(
        &mut self,
        after: &[u8],
        prefix: &[u8],
        max: u64,
    ) -> Call<'_, (BTreeMap<BString, Bytes>, bool)> {
        let mut vals =
            self.seen().omap.iter().filter(|(key, _)| key[..] > *after && key.starts_with(prefix));
        let page = vals.by_ref().take(max as usize).map(|(k, v)| (k.clone(), v.clone())).collect();
        let more = vals.next().is_some();
        ready(Ok((page, more)))
    }
    fn omap_vals_by_keys(&mut self, keys: Vec<BString>) -> Call<'_, BTreeMap<BString, Bytes>> {
        let found =
            keys.into_iter().filter_map(|k| self.seen().omap.get(&k).cloned().map(|v| (k, v)));
        ready(Ok(found.collect()))
    }
    fn omap_val(&mut self, key: &[u8]) -> Call<'_, Bytes> {
        ready(self.seen().omap.get(BStr::new(key)).cloned().ok_or(Errno::ENOENT))
    }
    fn omap_header(&mut self) -> Call<'_, Bytes> {
        ready(Ok(self.seen().header.clone()))
    }
    fn omap_set(&mut self, vals: BTreeMap<BString, Bytes>) -> Call<'_, ()> {
        self.exists = true;
        self.steps += 1;
        self.omap.extend(vals);
        ready(Ok(()))
    }
    fn omap_set_header(&mut self, header: Bytes) -> Call<'_, ()> {
        self.exists = true;
        self.header = header;
        ready(Ok(()))
    }
    fn omap_rm(&mut self, key: &[u8]) -> Call<'_, ()> {
        self.omap.remove(BStr::new(key));
        ready(self.need())
    }
    fn omap_rm_range(&mut self, first: &[u8], end: &[u8]) -> Call<'_, ()> {
        self.omap.retain(|key, _| key[..] < *first || key[..] >= *end);
        ready(self.need())
    }
    fn omap_clear(&mut self) -> Call<'_, ()> {
        self.omap.clear();
        self.header.clear();
        ready(self.need())
    }
    fn call<'a>(&'a mut self, class: &'a BStr, method: &'a BStr, input: Bytes) -> Call<'a, Bytes> {
        Box::pin(async move { Ok(crate::call(self, class, method, &input).await?.data) })
    }
    fn caller(&self) -> (EntityName, EntityAddr) {
        let addr = "127.0.0.1:0/77";
        (self.caller, EntityAddr::parse(addr, AddrType::Any).expect("a fixed address"))
    }
    fn now(&self) -> UTime {
        self.now
    }
    fn fill_random(&self, buf: &mut [u8]) {
        buf.fill(7);
    }
    fn object_version(&self) -> u64 {
        1
    }
    fn pg_version(&self) -> u64 {
        1
    }
    fn subop_version(&self) -> String {
        format!("1.{}", self.steps)
    }
    fn snap_seq(&self) -> Option<u64> {
        self.exists.then_some(0)
    }
    fn snap_context_seq(&self) -> u64 {
        0
    }
    fn client_features(&self) -> u64 {
        u64::MAX
    }
    fn pool_stripe_width(&self) -> u64 {
        0
    }
    fn watchers(&self) -> Vec<(EntityName, EntityAddr)> {
        self.watchers.clone()
    }
    fn object_name(&self) -> (BString, BString, BString) {
        ("object".into(), BString::default(), BString::default())
    }
}
