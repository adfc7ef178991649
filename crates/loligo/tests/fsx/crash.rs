//! A client that dies in the middle of a copy-up or of a cut, at every point where it waits.

use std::future::Future;
use std::task::Poll;

use bytes::Bytes;
use client::IoCtx;
use client::rbd::{self, CreateOptions, Image, OpenOptions};

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

/// Runs of equal bytes: (byte, how many).
fn tell(data: &[u8]) -> Vec<(char, usize)> {
    data.chunk_by(|a, b| a == b).map(|run| (char::from(run[0]), run.len())).collect()
}
