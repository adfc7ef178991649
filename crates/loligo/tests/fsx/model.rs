//! The images and what they should hold.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use bytes::Bytes;
use client::rbd::{self, CreateOptions, Image, OpenOptions, features};
use client::{ClientError, IoCtx};
use env::Env;
use futures_util::future::join_all;
use types::Errno;

use crate::rng::Rng;

/// Bytes of the largest image.
const SIZE_MAX: u64 = 3 << 20;
/// Bytes of the largest request.
const REQUEST_MAX: u64 = 160 << 10;
/// Snapshots of an image.
const SNAPS_MAX: usize = 4;
/// Images below one another.
const DEPTH_MAX: usize = 4;
/// Operations told when something is wrong.
const REMEMBERED: usize = 60;

/// An image that should hold `data`.
struct Modelled {
    name: String,
    data: Rc<Vec<u8>>,
    snaps: BTreeMap<String, Rc<Vec<u8>>>,
    /// The snapshot that the next image is a clone of.
    cloned: Option<String>,
}

pub(crate) struct Fsx {
    env: Env,
    io: IoCtx,
    rng: Rng,
    /// The first image's name, which those of its clones begin with.
    name: String,
    /// The one worked on is the last; each is the parent of the next.
    chain: Vec<Modelled>,
    image: Image,
    count: u64,
    log: VecDeque<String>,
}

impl Fsx {
    pub(crate) async fn start(env: &Env, io: IoCtx, mut rng: Rng) -> Fsx {
        let name = format!("fsx-{:x}", env.random_u64());
        let size = 1 + rng.below(SIZE_MAX);
        let options = options(&mut rng);
        rbd::create(&io, &name, size, &options).await.unwrap();
        let image = Image::open(&io, &name, &OpenOptions::default()).await.unwrap();
        let data = Rc::new(vec![0; size as usize]);
        let first = Modelled { name: name.clone(), data, snaps: BTreeMap::new(), cloned: None };
        let log = VecDeque::from([format!("create {size} {options:?}")]);
        Fsx { env: env.clone(), io, rng, name, chain: vec![first], image, count: 0, log }
    }

    fn now(&self) -> &Modelled {
        self.chain.last().expect("never empty")
    }

    fn now_mut(&mut self) -> &mut Modelled {
        self.chain.last_mut().expect("never empty")
    }

    fn data_mut(&mut self) -> &mut Vec<u8> {
        Rc::make_mut(&mut self.now_mut().data)
    }

    fn note(&mut self, what: String) {
        if std::env::var_os("LOLIGO_FSX_LOUD").is_some() {
            eprintln!("{}: {what}", self.count);
        }
        if self.log.len() == REMEMBERED {
            self.log.pop_front();
        }
        self.log.push_back(format!("{}: {what}", self.count));
    }

    fn fail(&self, what: &str) -> ! {
        for line in &self.log {
            eprintln!("{line}");
        }
        panic!("operation {} on {}: {what}", self.count, self.now().name);
    }

    fn must<T>(&self, result: Result<T, ClientError>) -> T {
        result.unwrap_or_else(|error| self.fail(&error.to_string()))
    }

    fn compare(&self, what: &str, offset: u64, found: &types::BufferList, wanted: &[u8]) {
        let found = found.to_contiguous();
        if found[..] == *wanted {
            return;
        }
        let differs = found.iter().zip(wanted).position(|(a, b)| a != b).unwrap_or(found.len());
        let count = found.iter().zip(wanted).filter(|(a, b)| a != b).count();
        self.fail(&format!(
            "{what}: {count} of {} bytes differ, the first at {}: {:?} should be {:?}",
            wanted.len(),
            offset + differs as u64,
            found.get(differs),
            wanted.get(differs)
        ));
    }

    /// A range of the image, empty only if the image is.
    fn range(&mut self) -> (u64, u64) {
        let size = self.now().data.len() as u64;
        if size == 0 {
            return (0, 0);
        }
        let offset = self.rng.below(size);
        let len = 1 + self.rng.below(REQUEST_MAX.min(size - offset));
        match self.rng.below(4) {
            // Where boundaries are.
            0 => {
                let offset = offset & !0xffff;
                (offset, (len.next_multiple_of(1 << 16)).min(size - offset))
            }
            1 => {
                let offset = offset & !0xfff;
                (offset, len.next_multiple_of(1 << 12).min(size - offset))
            }
            _ => (offset, len),
        }
    }

    fn fill(&mut self, len: u64) -> Bytes {
        let mut word = self.rng.next() | 1;
        let bytes = (0..len).map(|_| {
            word = word.rotate_left(5).wrapping_mul(0x2545_f491_4f6c_dd1d);
            (word >> 32) as u8
        });
        bytes.collect::<Vec<u8>>().into()
    }

    pub(crate) async fn step(&mut self) {
        self.count += 1;
        let start = self.env.now();
        let loud = std::env::var_os("LOLIGO_FSX_LOUD").is_some();
        self.step_by(self.rng.clone().below(1000)).await;
        self.rng.next();
        if loud {
            eprintln!("{}: took {:?}", self.count, self.env.now() - start);
        }
    }

    async fn step_by(&mut self, which: u64) {
        match which {
            0..300 => self.read().await,
            300..570 => self.write().await,
            570..600 => self.write_many().await,
            600..700 => self.zero().await,
            700..750 => self.write_same().await,
            750..800 => self.compare_and_write().await,
            800..850 => self.resize().await,
            850..880 => self.snap_create().await,
            880..905 => self.snap_remove().await,
            905..920 => self.rollback().await,
            920..960 => self.read_snap().await,
            960..970 => self.clone().await,
            970..980 => self.flatten().await,
            980..995 => self.reopen().await,
            _ => {
                let flushed = self.image.flush().await;
                self.must(flushed);
            }
        }
    }

    async fn read(&mut self) {
        let (offset, len) = self.range();
        self.note(format!("read {offset}+{len}"));
        let found = self.must(self.image.read(offset, len).await);
        let wanted = &self.now().data[offset as usize..(offset + len) as usize];
        self.compare("read", offset, &found, wanted);
    }

    async fn write(&mut self) {
        let (offset, len) = self.range();
        let data = self.fill(len);
        self.note(format!("write {offset}+{len}"));
        self.must(self.image.write(offset, data.clone()).await);
        self.data_mut()[offset as usize..(offset + len) as usize].copy_from_slice(&data);
    }

    /// Several at once that do not overlap but share objects.
    async fn write_many(&mut self) {
        let (offset, len) = self.range();
        let parts = len.clamp(1, 8);
        let cuts: Vec<u64> = (0..=parts).map(|i| offset + len * i / parts).collect();
        self.note(format!("write {offset}+{len} in {parts} parts at once"));
        let mut writes = Vec::new();
        for pair in cuts.windows(2) {
            let (start, end) = (pair[0], pair[1]);
            let zeros = self.rng.one_in(3);
            let data =
                if zeros { vec![0; (end - start) as usize].into() } else { self.fill(end - start) };
            self.data_mut()[start as usize..end as usize].copy_from_slice(&data);
            let image = self.image.clone();
            writes.push(self.env.spawn_with_handle(async move {
                match zeros {
                    true => image.discard(start, end - start).await,
                    false => image.write(start, data).await,
                }
            }));
        }
        for result in join_all(writes).await {
            self.must(result);
        }
    }

    async fn zero(&mut self) {
        let (offset, len) = self.range();
        let discard = self.rng.one_in(2);
        self.note(format!("{} {offset}+{len}", if discard { "discard" } else { "zero" }));
        let done = match discard {
            true => self.image.discard(offset, len).await,
            false => self.image.write_zeroes(offset, len).await,
        };
        self.must(done);
        self.data_mut()[offset as usize..(offset + len) as usize].fill(0);
    }

    async fn write_same(&mut self) {
        let (offset, len) = self.range();
        let unit = [1, 3, 512, 4096][self.rng.below(4) as usize];
        let len = len / unit * unit;
        let pattern = self.fill(unit);
        self.note(format!("writesame {offset}+{len} of {unit}"));
        self.must(self.image.write_same(offset, len, pattern.clone()).await);
        let end = (offset + len) as usize;
        for piece in self.data_mut()[offset as usize..end].chunks_mut(unit as usize) {
            piece.copy_from_slice(&pattern);
        }
    }

    async fn compare_and_write(&mut self) {
        let (offset, len) = self.range();
        // Within one stripe of one object.
        let unit = self.image.info().stripe_unit;
        let len = len.min(unit - offset % unit).min(4096);
        let mut expected = self.now().data[offset as usize..(offset + len) as usize].to_vec();
        let wrong = (len > 0 && self.rng.one_in(3)).then(|| self.rng.below(len));
        if let Some(at) = wrong {
            expected[at as usize] ^= 0x55;
        }
        let data = self.fill(len);
        self.note(format!("compare-and-write {offset}+{len}, wrong at {wrong:?}"));
        if len == 0 {
            return;
        }
        let outcome = self.image.compare_and_write(offset, expected.into(), data.clone()).await;
        let mismatch = self.must(outcome);
        if mismatch != wrong.map(|at| offset + at) {
            self.fail(&format!("mismatch at {mismatch:?} instead of {wrong:?} + {offset}"));
        }
        if wrong.is_none() {
            self.data_mut()[offset as usize..(offset + len) as usize].copy_from_slice(&data);
        }
    }

    async fn resize(&mut self) {
        let size = match self.rng.below(4) {
            0 => self.rng.below(SIZE_MAX) & !0xffff,
            _ => self.rng.below(SIZE_MAX),
        };
        self.note(format!("resize {} to {size}", self.now().data.len()));
        self.must(self.image.resize(size).await);
        self.data_mut().resize(size as usize, 0);
        if self.image.size() != size {
            self.fail("the size is another");
        }
    }

    async fn snap_create(&mut self) {
        if self.now().snaps.len() >= SNAPS_MAX {
            return;
        }
        let name = format!("s{}", self.count);
        self.note(format!("snap create {name}"));
        self.must(self.image.snap_create(&name).await);
        let now = self.now_mut();
        now.snaps.insert(name, now.data.clone());
    }

    fn some_snap(&mut self) -> Option<(String, Rc<Vec<u8>>)> {
        let all: Vec<_> =
            self.now().snaps.iter().map(|(name, data)| (name.clone(), data.clone())).collect();
        self.rng.pick(&all).cloned()
    }

    async fn snap_remove(&mut self) {
        let Some((name, _)) = self.some_snap() else { return };
        self.note(format!("snap rm {name}"));
        self.must(self.image.snap_remove(&name).await);
        self.now_mut().snaps.remove(&name);
    }

    async fn rollback(&mut self) {
        let Some((name, data)) = self.some_snap() else { return };
        self.note(format!("snap rollback {name} ({} to {})", self.now().data.len(), data.len()));
        self.must(self.image.snap_rollback(&name).await);
        self.now_mut().data = data;
        self.check_image().await;
    }

    async fn check_image(&mut self) {
        let size = self.now().data.len() as u64;
        if self.image.size() != size {
            self.fail(&format!("{} bytes instead of {size}", self.image.size()));
        }
        let found = self.must(self.image.read(0, size).await);
        self.compare("whole image", 0, &found, &self.now().data);
    }

    async fn read_snap(&mut self) {
        let Some((name, data)) = self.some_snap() else { return };
        self.note(format!("read snap {name}"));
        let image = self.now().name.clone();
        self.check_snap(&image, &name, &data).await;
    }

    async fn check_snap(&self, image: &str, snap: &str, data: &[u8]) {
        let options = OpenOptions { snap: Some(snap.to_owned()), read_only: true };
        let open = self.must(Image::open(&self.io, image, &options).await);
        if open.size() != data.len() as u64 {
            self.fail(&format!("snapshot {snap} has {} bytes, not {}", open.size(), data.len()));
        }
        let found = self.must(open.read(0, open.size()).await);
        self.compare(&format!("snapshot {snap} of {image}"), 0, &found, data);
        self.must(open.close().await);
    }

    async fn reopen(&mut self) {
        self.note("reopen".to_owned());
        if self.rng.one_in(2) {
            // As if it had been killed, but for the watch: the next one takes the lock over.
            let old = self.image.clone();
            self.open_last().await;
            self.must(old.close().await);
        } else {
            self.must(self.image.close().await);
            self.open_last().await;
        }
        self.check_image().await;
    }

    async fn open_last(&mut self) {
        let name = self.now().name.clone();
        let open = Image::open(&self.io, &name, &OpenOptions::default()).await;
        self.image = self.must(open);
    }

    async fn clone(&mut self) {
        // A parent of no bytes is refused, by Ceph too.
        if self.chain.len() >= DEPTH_MAX || self.now().data.is_empty() {
            return;
        }
        let (snap, first_kind) = (format!("c{}", self.count), self.rng.one_in(2));
        // Not the parent's name and more: a run of a million operations ended when that was too long.
        let child = format!("{}-{}", self.name, self.count);
        let options = options(&mut self.rng);
        self.note(format!("clone @{snap} to {child}, {first_kind} {options:?}"));
        self.must(self.image.snap_create(&snap).await);
        if first_kind {
            self.must(self.image.snap_protect(&snap).await);
        }
        self.must(self.image.close().await);
        let parent = self.now().name.clone();
        let cloned = rbd::clone(&self.io, &parent, &snap, &self.io, &child, &options).await;
        self.must(cloned);
        let data = self.now().data.clone();
        self.now_mut().cloned = Some(snap.clone());
        self.now_mut().snaps.insert(snap, data.clone());
        self.chain.push(Modelled { name: child, data, snaps: BTreeMap::new(), cloned: None });
        self.open_last().await;
    }

    /// Flattens, and takes the parent out of the chain: if no snapshot needs it, it is removed.
    async fn flatten(&mut self) {
        if self.chain.len() < 2 {
            return;
        }
        self.note("flatten".to_owned());
        self.must(self.image.flatten().await);
        self.check_image().await;
        let snaps = self.now().snaps.clone();
        let name = self.now().name.clone();
        for (snap, data) in &snaps {
            self.check_snap(&name, snap, data).await;
        }
        if self.image.snapshots().iter().any(|snap| snap.overlap.is_some()) {
            // Without deep-flatten they still see the parent.
            for snap in snaps.keys() {
                self.must(self.image.snap_remove(snap).await);
            }
            self.now_mut().snaps.clear();
        }
        let parents = self.chain.len() - 1;
        let mut below: Vec<Modelled> = self.chain.drain(..parents).collect();
        while let Some(parent) = below.pop() {
            self.verify_and_remove(parent).await;
        }
    }

    async fn verify_and_remove(&mut self, modelled: Modelled) {
        let open = Image::open(&self.io, &modelled.name, &OpenOptions::default()).await;
        let open = self.must(open);
        let found = self.must(open.read(0, open.size()).await);
        self.compare(&format!("image {}", modelled.name), 0, &found, &modelled.data);
        for (snap, data) in &modelled.snaps {
            self.check_snap(&modelled.name, snap, data).await;
            if modelled.cloned.as_ref() == Some(snap) {
                match open.snap_unprotect(snap).await {
                    Ok(()) | Err(ClientError::Errno(Errno::EINVAL)) => {}
                    Err(error) => self.fail(&format!("unprotect {snap}: {error}")),
                }
            }
            self.must(open.snap_remove(snap).await);
        }
        self.must(open.close().await);
        self.must(rbd::remove(&self.io, &modelled.name).await);
    }

    /// Everything once more, from the top of the chain down; nothing is left.
    pub(crate) async fn finish(&mut self) {
        self.check_image().await;
        self.must(self.image.close().await);
        while self.chain.len() > 1 {
            let last = self.chain.pop().expect("more than one");
            self.verify_and_remove(last).await;
        }
        let first = self.chain.pop().expect("the first");
        let name = first.name.clone();
        self.chain.push(Modelled {
            name,
            data: Rc::default(),
            snaps: BTreeMap::new(),
            cloned: None,
        });
        self.verify_and_remove(first).await;
        let left: Vec<String> = self.must(rbd::list(&self.io).await).into_keys().collect();
        if left.iter().any(|image| image.starts_with(&self.chain[0].name)) {
            self.fail(&format!("left behind: {left:?}"));
        }
    }
}

/// Objects of 64 or 128 KiB, now and then in stripes, with all features or few; a journal's objects
/// are so small that it fills and is trimmed all the time.
fn options(rng: &mut Rng) -> CreateOptions {
    use features as f;
    let some = [
        f::LAYERING,
        f::LAYERING | f::EXCLUSIVE_LOCK,
        f::LAYERING | f::EXCLUSIVE_LOCK | f::OBJECT_MAP,
        f::LAYERING | f::EXCLUSIVE_LOCK | f::OBJECT_MAP | f::FAST_DIFF,
        f::LAYERING | f::DEEP_FLATTEN,
        f::LAYERING | f::EXCLUSIVE_LOCK | f::JOURNALING,
        f::DEFAULT | f::JOURNALING,
        f::DEFAULT,
        f::DEFAULT,
        f::DEFAULT,
    ];
    let order = 16 + rng.below(2) as u8;
    let (stripe_unit, stripe_count) =
        if rng.one_in(3) { (1 << 14, 1 + rng.below(3)) } else { (0, 0) };
    let drawn = some[rng.below(some.len() as u64) as usize];
    CreateOptions {
        order,
        features: crate::number("LOLIGO_FSX_FEATURES", drawn),
        stripe_unit,
        stripe_count,
        journal_order: 16 + rng.below(4) as u8,
        journal_splay_width: 1 + rng.below(4) as u8,
        ..CreateOptions::default()
    }
}
