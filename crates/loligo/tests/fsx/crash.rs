//! A client that dies in the middle of a copy-up or of a cut, at every point where it waits.

use std::collections::BTreeMap;
use std::future::Future;
use std::task::Poll;

use bytes::Bytes;
use client::IoCtx;
use client::rbd::{self, CreateOptions, Image, OpenOptions, features};

const OBJECT: usize = 1 << 16;
const SIZE: usize = 4 * OBJECT;
/// Where clones are cut: within their second object.
const CUT: usize = OBJECT + 3000;
/// A write waits fewer times than this.
const WAITS_MAX: usize = 200;

/// Drives a future until it has waited so many times, then lets go of it: what it came to, if
/// it did.
async fn up_to<F: Future>(waits: usize, future: F) -> Option<F::Output> {
    let mut future = std::pin::pin!(future);
    let mut left = waits;
    std::future::poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if left == 0 => Poll::Ready(None),
        Poll::Pending => {
            left -= 1;
            Poll::Pending
        }
    })
    .await
}

async fn open(io: &IoCtx, name: &str) -> Image {
    Image::open(io, name, &OpenOptions::default()).await.unwrap()
}

async fn content(io: &IoCtx, name: &str, snap: Option<&str>) -> Bytes {
    let options = OpenOptions { snap: snap.map(str::to_owned), read_only: true };
    let image = Image::open(io, name, &options).await.unwrap();
    let data = image.read(0, image.size()).await.unwrap().to_contiguous();
    image.close().await.unwrap();
    data
}

/// All of the parent, which the clones' snapshots go on seeing.
fn parent() -> Vec<u8> {
    vec![b'P'; SIZE]
}

/// A clone of `parent@s` with a snapshot `old`.
async fn clone(io: &IoCtx, name: &str) -> Image {
    let options = CreateOptions { order: 16, ..CreateOptions::default() };
    rbd::clone(io, "parent", "s", io, name, &options).await.unwrap();
    let image = open(io, name).await;
    image.snap_create("old").await.unwrap();
    image
}

pub(crate) async fn run(io: &IoCtx) {
    let options = CreateOptions { order: 16, ..CreateOptions::default() };
    rbd::create(io, "parent", SIZE as u64, &options).await.unwrap();
    let image = open(io, "parent").await;
    image.write(0, parent().into()).await.unwrap();
    image.snap_create("s").await.unwrap();
    image.close().await.unwrap();
    for at in [100, CUT + 500, 3 * OBJECT + 100] {
        let mut waits = 0;
        while !write_let_go(io, at, waits).await {
            waits += 1;
            assert!(waits < WAITS_MAX);
        }
        eprintln!("a write at {at} waited {waits} times");
    }
    let mut waits = 0;
    while !cut_let_go(io, waits).await {
        waits += 1;
        assert!(waits < WAITS_MAX);
    }
    eprintln!("a cut waited {waits} times");
    assert!(waits > 5);
}

/// A clone was cut and grown again. Whoever writes to it and dies leaves the write done or not;
/// the head never sees the parent behind the cut, the snapshot sees all of it. True if the
/// write came to its end.
async fn write_let_go(io: &IoCtx, at: usize, waits: usize) -> bool {
    let name = format!("write-{at}-{waits}");
    let image = clone(io, &name).await;
    image.resize(CUT as u64).await.unwrap();
    image.resize(SIZE as u64).await.unwrap();
    let mut before = parent();
    before[CUT..].fill(0);
    assert_eq!(content(io, &name, None).await, before);
    let mut after = before.clone();
    after[at..at + 9].fill(b'w');
    let outcome = up_to(waits, image.write(at as u64, Bytes::from_static(&[b'w'; 9]))).await;
    let found = content(io, &name, None).await;
    assert!(found == after || (outcome.is_none() && found == before), "{name}: {:?}", tell(&found));
    assert!(content(io, &name, Some("old")).await == parent(), "{name}@old");
    image.close().await.unwrap();
    outcome.is_some_and(|result| result.is_ok())
}

/// Whoever cuts a clone and dies leaves it as long as it was, with what is before the cut; it
/// can be cut again.
async fn cut_let_go(io: &IoCtx, waits: usize) -> bool {
    let name = format!("cut-{waits}");
    let image = clone(io, &name).await;
    let outcome = up_to(waits, image.resize(CUT as u64)).await;
    let found = content(io, &name, None).await;
    assert!(found.len() == CUT || (outcome.is_none() && found.len() == SIZE), "{name}");
    assert!(found[..CUT] == parent()[..CUT], "{name}: {:?}", tell(&found));
    assert!(content(io, &name, Some("old")).await == parent(), "{name}@old");
    // Another opener takes over.
    let next = open(io, &name).await;
    next.resize(CUT as u64).await.unwrap();
    next.resize(SIZE as u64).await.unwrap();
    let mut cut = parent();
    cut[CUT..].fill(0);
    assert!(content(io, &name, None).await == cut, "{name} cut again");
    assert!(content(io, &name, Some("old")).await == parent(), "{name}@old, cut again");
    next.close().await.unwrap();
    image.close().await.unwrap();
    outcome.is_some_and(|result| result.is_ok())
}

/// Writes, a snapshot, a resize and a rollback on an image with a journal, each let go of at every
/// point where it waits.
pub(crate) async fn journaled(io: &IoCtx) {
    type Step =
        fn(&Image) -> std::pin::Pin<Box<dyn Future<Output = Result<(), client::ClientError>> + '_>>;
    // Across three objects; in small parts, for they are in entries of their own.
    let write: Step = |image| Box::pin(image.write(100, vec![b'w'; 2 * OBJECT].into()));
    let snap: Step = |image| Box::pin(image.snap_create("new"));
    let cut: Step = |image| Box::pin(image.resize(CUT as u64));
    let back: Step = |image| Box::pin(image.snap_rollback("old"));
    for (what, step) in [("write", write), ("snap", snap), ("cut", cut), ("back", back)] {
        let (mut waits, mut replayed) = (0, 0);
        loop {
            let name = format!("journaled-{what}-{waits}");
            let options = CreateOptions {
                order: 16,
                features: features::DEFAULT | features::JOURNALING,
                journal_order: 16,
                ..CreateOptions::default()
            };
            rbd::create(io, &name, SIZE as u64, &options).await.unwrap();
            let image = open(io, &name).await;
            image.write(0, vec![b'a'; SIZE].into()).await.unwrap();
            image.snap_create("old").await.unwrap();
            image.write(0, vec![b'b'; SIZE].into()).await.unwrap();
            let before = state(io, &name).await;
            let done = up_to(waits, step(&image)).await.is_some_and(|result| result.is_ok());
            image.close().await.unwrap();
            let left = state(io, &name).await;
            // Whoever takes the lock next finds all of it or nothing.
            let next = open(io, &name).await;
            next.lock().await.unwrap();
            let found = state(io, &name).await;
            let mut wanted = before.clone();
            match what {
                "write" => wanted.0[100..100 + 2 * OBJECT].fill(b'w'),
                "snap" => drop(wanted.1.insert("new".to_owned(), before.0.clone())),
                "cut" => wanted.0.truncate(CUT),
                _ => wanted.0.fill(b'a'),
            }
            assert!(found == wanted || (!done && found == before), "{name}: {:?}", tell(&found.0));
            replayed += u32::from(found == wanted && left != wanted);
            next.write(0, Bytes::from_static(b"next")).await.unwrap();
            next.close().await.unwrap();
            if done {
                break;
            }
            waits += 1;
            assert!(waits < WAITS_MAX);
        }
        eprintln!("{what} waited {waits} times, {replayed} were replayed");
        assert!(replayed > 0);
    }
}

/// Content of the head and of the snapshots.
async fn state(io: &IoCtx, name: &str) -> (Vec<u8>, BTreeMap<String, Vec<u8>>) {
    let options = OpenOptions { snap: None, read_only: true };
    let image = Image::open(io, name, &options).await.unwrap();
    let mut snaps = BTreeMap::new();
    for snap in image.snapshots() {
        let data = content(io, name, Some(&snap.name)).await;
        snaps.insert(snap.name, data.to_vec());
    }
    image.close().await.unwrap();
    (content(io, name, None).await.to_vec(), snaps)
}

/// Runs of equal bytes: (byte, how many).
fn tell(data: &[u8]) -> Vec<(char, usize)> {
    data.chunk_by(|a, b| a == b).map(|run| (char::from(run[0]), run.len())).collect()
}
