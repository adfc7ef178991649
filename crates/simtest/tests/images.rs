//! Images: what is made of several objects, and is cut off or overtaken in between.

use std::rc::Rc;
use std::time::Duration;

use bstr::BString;
use bytes::Bytes;
use client::rbd::{self, CreateOptions, Image, OpenOptions, features};
use client::{ClientError, IoCtx, Operation, Watch};
use denc::Writer;
use serde_json::json;
use sim::World;
use simtest::{Cluster, Plan};
use types::osd::ObjListWatchResponse;
use types::osd::ops::{self, OsdOp, WatchArgs, watch_op};
use types::{EntityName, Errno, SnapContext};

const LEN: u64 = 1 << 20;

/// A pool for images.
async fn pool(cluster: &Cluster) -> IoCtx {
    let admin = cluster.start().await;
    cluster.create_pool(&admin, 4).await;
    admin.io_ctx("p").await.unwrap()
}

fn layered() -> CreateOptions {
    CreateOptions { features: features::LAYERING, ..CreateOptions::default() }
}

async fn opened(io: &IoCtx, name: &str, snap: Option<&str>) -> Image {
    let options = OpenOptions { snap: snap.map(str::to_owned), read_only: snap.is_some() };
    Image::open(io, name, &options).await.unwrap()
}

async fn shown(io: &IoCtx, name: &str, snap: Option<&str>) -> Vec<u8> {
    let image = opened(io, name, snap).await;
    let data = image.read(0, 8192).await.unwrap().to_contiguous().to_vec();
    image.close().await.unwrap();
    data
}

fn block(byte: u8) -> Bytes {
    vec![byte; 8192].into()
}

fn header_of(image: &Image) -> String {
    format!("rbd_header.{}", image.info().id)
}

/// Takes away the watches that a client has on an image, as when its OSD has not heard of it for too long.
/// It learns of that with its next ping.
async fn lose_watches(io: &IoCtx, image: &Image) {
    let header = header_of(image);
    let ask = Operation::new().op(OsdOp::new(ops::LIST_WATCHERS));
    let all = io.operate(header.as_str(), ask).await.unwrap();
    let all: ObjListWatchResponse = all.decode(0).unwrap();
    let own = EntityName::client(io.client().global_id() as i64);
    for watcher in all.entries.iter().filter(|watcher| watcher.name == own) {
        let args = WatchArgs {
            cookie: watcher.cookie,
            version: 0,
            op: watch_op::UNWATCH,
            generation: 0,
            timeout: 0,
        };
        let end = OsdOp::with(ops::WATCH, args, Bytes::new());
        io.operate(header.as_str(), Operation::new().op(end)).await.unwrap();
    }
}

/// Takes an image's lock as one who watches, and hands it over to nobody.
async fn lock_by_hand(holder: &IoCtx, header: &str) -> Watch {
    let watch = holder.watch(header, Rc::new(|_| ())).await.unwrap();
    let mut w = Writer::new();
    w.envelope(1, 1, |w| {
        w.put(&"rbd_lock".to_owned());
        w.u8(1);
        w.put(&format!("auto {}", watch.cookie()));
        w.put(&"internal".to_owned());
        w.put(&String::new());
        w.u64(0);
        w.u8(0);
    });
    let lock = Operation::new().exec("lock", "lock", &w.into_bytes()).as_write();
    holder.operate(header, lock).await.unwrap();
    watch
}

/// Puts what `prepare` writes into the header of one of the two images.
async fn set_migration(io: &IoCtx, own: &Image, kind: u8, other: &Image, seqs: &[(u64, u64)]) {
    let (own, other) = (own.info().id, other.info());
    let mut w = Writer::new();
    w.envelope(3, 1, |w| {
        w.u8(kind);
        w.i64(io.pool_id());
        w.put(&BString::default());
        w.put(&BString::from(other.name));
        w.put(&BString::from(other.id));
        w.put(&seqs.iter().copied().collect::<std::collections::BTreeMap<u64, u64>>());
        w.u64(LEN);
        w.bool(false);
        w.bool(false);
        w.u8(2);
        w.put(&BString::default());
        w.u8(0);
        w.put(&BString::default());
    });
    let set = Operation::new().exec("rbd", "migration_set", &w.into_bytes()).as_write();
    io.operate(format!("rbd_header.{own}"), set).await.unwrap();
}

/// Found by reading: an image that had been migrated showed what one of its snapshots had.
///
/// 1. `migration execute` copies an object's versions, oldest first, and is cut off between two.
/// 2. It is executed again: the object was there, and taken for done.
#[test]
fn a_migration_goes_on_where_it_was_cut_off() {
    let world = World::new(1);
    let cluster = Cluster::make(&world.control(), Plan::default());
    world.run_until(async move {
        let io = pool(&cluster).await;
        for name in ["source", "dest"] {
            rbd::create(&io, name, LEN, &layered()).await.unwrap();
        }
        let (source, dest) = (opened(&io, "source", None).await, opened(&io, "dest", None).await);
        for (byte, snap) in [(1, Some("one")), (2, Some("two")), (3, None)] {
            source.write(0, block(byte)).await.unwrap();
            if let Some(snap) = snap {
                source.snap_create(snap).await.unwrap();
                dest.snap_create(snap).await.unwrap();
            }
        }
        let ids = |image: &Image| image.snapshots().iter().map(|snap| snap.id).collect::<Vec<_>>();
        let (from, to) = (ids(&source), ids(&dest));
        let seqs: Vec<(u64, u64)> = from.into_iter().zip(to).collect();
        set_migration(&io, &source, 1, &dest, &seqs).await;
        set_migration(&io, &dest, 2, &source, &seqs).await;
        // What the first attempt left.
        let object = format!("{}.{:016x}", dest.info().prefix, 0);
        let old = io.clone().with_snap_context(SnapContext { seq: 0, snaps: Vec::new() });
        old.operate(object, Operation::new().write_full(block(1))).await.unwrap();
        let id = dest.info().id;
        dest.close().await.unwrap();

        rbd::migration_execute(&io, "dest", &|_, _| true).await.unwrap();
        rbd::migration_execute(&io, "dest", &|_, _| true).await.unwrap_err();
        let done = Operation::new().exec("rbd", "migration_remove", &[]).as_write();
        io.operate(format!("rbd_header.{id}"), done).await.unwrap();
        for (byte, snap) in [(1, Some("one")), (2, Some("two")), (3, None)] {
            assert!(shown(&io, "dest", snap).await == block(byte), "{snap:?}");
        }
    });
}

/// Found by reading: a snapshot could be removed under its clone, which was in a namespace: children of
/// the first kind are not looked for there.
#[test]
fn a_clone_in_a_namespace_is_a_child() {
    let world = World::new(2);
    let cluster = Cluster::make(&world.control(), Plan::default());
    world.run_until(async move {
        let io = pool(&cluster).await;
        let there = io.clone().with_namespace("space");
        rbd::create(&io, "parent", LEN, &layered()).await.unwrap();
        let parent = opened(&io, "parent", None).await;
        parent.write(0, block(1)).await.unwrap();
        parent.snap_create("s").await.unwrap();
        parent.snap_protect("s").await.unwrap();
        rbd::clone(&io, "parent", "s", &there, "child", &layered()).await.unwrap();
        parent.refresh().await.unwrap();
        parent.snap_unprotect("s").await.unwrap();
        parent.snap_remove("s").await.unwrap();
        assert!(shown(&there, "child", None).await == block(1));
    });
}

/// Found by reading: a clone of a snapshot whose protection ends meanwhile was a child that nobody knew
/// of. Here the one begins at ever other times of the other.
#[test]
fn a_clone_and_the_end_of_protection_do_not_both_succeed() {
    let world = World::new(3);
    let cluster = Cluster::make(&world.control(), Plan::default());
    world.run_until(async move {
        let world = cluster.world().clone();
        let io = pool(&cluster).await;
        rbd::create(&io, "parent", LEN, &layered()).await.unwrap();
        let parent = opened(&io, "parent", None).await;
        parent.snap_create("s").await.unwrap();
        let (mut clones, mut ends) = (0, 0);
        for n in 0..60_u32 {
            parent.snap_protect("s").await.unwrap();
            let (name, of_clone) = (format!("child {n}"), io.clone());
            let cloned = io.client().env().spawn_with_handle(async move {
                rbd::clone(&of_clone, "parent", "s", &of_clone, &name, &layered()).await
            });
            world.sleep(Duration::from_micros(500) * n).await;
            let ended = parent.snap_unprotect("s").await;
            let cloned = cloned.await;
            assert!(cloned.is_err() || ended.is_err(), "attempt {n}");
            clones += u32::from(cloned.is_ok());
            ends += u32::from(ended.is_ok());
            if cloned.is_ok() {
                rbd::remove(&io, &format!("child {n}")).await.unwrap();
            }
            if ended.is_err() {
                parent.snap_unprotect("s").await.unwrap();
            }
        }
        assert!(clones > 0 && ends > 0, "{clones} {ends}");
    });
}

/// Found by reading: a snapshot was made and its map could not be. The call failed, and writers went on
/// as if there were no snapshot: it showed what they wrote.
#[test]
fn a_snapshot_whose_map_fails_is_known_to_writers() {
    let world = World::new(4);
    let cluster = Cluster::make(&world.control(), Plan::default());
    world.run_until(async move {
        let io = pool(&cluster).await;
        rbd::create(&io, "image", LEN, &CreateOptions::default()).await.unwrap();
        let image = opened(&io, "image", None).await;
        image.write(0, block(1)).await.unwrap();
        let map = format!("rbd_object_map.{}", image.info().id);
        io.operate(map, Operation::new().remove()).await.unwrap();
        image.snap_create("s").await.unwrap_err();
        image.write(0, block(2)).await.unwrap();
        assert!(shown(&io, "image", Some("s")).await == block(1));
    });
}

/// Found by reading: an update of the object map failed once, and from then on each write to an object
/// that was not there failed, until the image was closed. librbd says that the map is invalid and goes on.
#[test]
fn writes_go_on_without_an_object_map_that_fails_while_the_lock_is_ours() {
    let world = World::new(5);
    let cluster = Cluster::make(&world.control(), Plan::default());
    world.run_until(async move {
        let io = pool(&cluster).await;
        let options = CreateOptions { order: 16, ..CreateOptions::default() };
        rbd::create(&io, "image", LEN, &options).await.unwrap();
        let image = opened(&io, "image", None).await;
        image.write(0, block(1)).await.unwrap();
        let id = image.info().id;
        io.operate(format!("rbd_object_map.{id}"), Operation::new().remove()).await.unwrap();
        // Several at once: of one object, of others, of one that goes.
        let at = |object: u64| object << 16;
        let (one, other, same, gone) = futures_util::join!(
            image.write(at(1), block(2)),
            image.write(at(2), block(3)),
            image.write(at(2) + 8192, block(4)),
            image.discard(0, 1 << 16),
        );
        for done in [one, other, same, gone] {
            done.unwrap();
        }
        image.write(at(3), block(5)).await.unwrap();
        image.close().await.unwrap();
        let again = opened(&io, "image", None).await;
        again.lock().await.unwrap();
        assert_eq!(again.allocation(0, LEN), None, "its map is not trusted");
        for (place, byte) in [(0, 0), (at(1), 2), (at(2), 3), (at(2) + 8192, 4), (at(3), 5)] {
            let read = again.read(place, 8192).await.unwrap();
            assert!(read.to_contiguous() == block(byte), "{place} {byte}");
        }
        again.close().await.unwrap();
        // Without the lock nothing is said of the map and nothing written.
        rbd::create(&io, "lost", LEN, &options).await.unwrap();
        let lost = opened(&io, "lost", None).await;
        lost.write(0, block(1)).await.unwrap();
        let id = lost.info().id;
        io.operate(format!("rbd_object_map.{id}"), Operation::new().remove()).await.unwrap();
        let unlock = Operation::new().rmxattr("lock.rbd_lock");
        io.operate(format!("rbd_header.{id}"), unlock).await.unwrap();
        lost.write(at(1), block(2)).await.unwrap_err();
        assert!(lost.allocation(0, LEN).is_some());
        assert!(shown(&io, "lost", None).await == block(1));
    });
}

/// Found by reading: an acknowledged write was overwritten by one who had lost the image.
///
/// 1. Whoever holds the lock is blocklisted: its watch is lost, and cannot be made anew.
/// 2. Another breaks the lock and writes.
/// 3. The blocklisting ends, and the first wrote again: it thought that the lock was still its own.
///
/// Nor does it know of snapshots taken meanwhile, lock or no lock.
#[test]
fn who_could_not_watch_any_more_writes_and_reads_no_more() {
    let world = World::new(6);
    let cluster = Cluster::make(&world.control(), Plan::default());
    world.run_until(async move {
        let world = cluster.world().clone();
        let io = pool(&cluster).await;
        let client = cluster.client("client.1").await;
        let fenced = client.io_ctx("p").await.unwrap();
        let addr = client.addrs().iter().next().unwrap().legacy_text().to_string();
        let blocklist = |what: &str| {
            let command = json!({"prefix": "osd blocklist", "blocklistop": what, "addr": addr});
            cluster.command(io.client(), command)
        };
        let refused = Err(ClientError::Errno(Errno::ESHUTDOWN));
        for options in [CreateOptions::default(), layered()] {
            let name = format!("image of {}", options.features);
            rbd::create(&io, &name, LEN, &options).await.unwrap();
            let image = opened(&fenced, &name, None).await;
            let reader = OpenOptions { read_only: true, ..OpenOptions::default() };
            let reader = Image::open(&fenced, &name, &reader).await.unwrap();
            image.write(0, block(1)).await.unwrap();
            blocklist("add").await;
            world.sleep(Duration::from_secs(1)).await;
            assert_eq!(image.write(0, block(2)).await, refused);
            world.sleep(Duration::from_secs(20)).await;
            let other = opened(&io, &name, None).await;
            other.write(0, block(3)).await.unwrap();
            blocklist("rm").await;
            world.sleep(Duration::from_secs(1)).await;
            assert_eq!(image.write(0, block(4)).await, refused);
            assert_eq!(image.discard(0, 4096).await, refused);
            assert_eq!(image.resize(LEN / 2).await, refused);
            assert_eq!(image.lock().await, refused);
            for blind in [image, reader] {
                assert_eq!(blind.read(0, 8192).await.map(|_| ()), refused);
                blind.close().await.unwrap();
            }
            assert!(other.read(0, 8192).await.unwrap().to_contiguous() == block(3));
            other.close().await.unwrap();
            let again = opened(&fenced, &name, None).await;
            again.write(0, block(5)).await.unwrap();
            again.close().await.unwrap();
            assert!(shown(&io, &name, None).await == block(5));
        }
    });
}

/// Found by reading: a client that lived was blocklisted for an hour. It gave the lock back and ended its
/// watch after another had read who holds the lock, and before that one read who watches. Here it does so
/// at ever other times.
#[test]
fn who_gives_the_lock_back_meanwhile_is_not_taken_for_dead() {
    let world = World::new(7);
    let cluster = Cluster::make(&world.control(), Plan::default());
    world.run_until(async move {
        let world = cluster.world().clone();
        let io = pool(&cluster).await;
        rbd::create(&io, "image", LEN, &CreateOptions::default()).await.unwrap();
        let image = opened(&io, "image", None).await;
        let header = format!("rbd_header.{}", image.info().id);
        let client = cluster.client("client.1").await;
        let holder = client.io_ctx("p").await.unwrap();
        for n in 0..200_u32 {
            let watch = lock_by_hand(&holder, &header).await;
            let takes = image.clone();
            let taken = world.spawn(async move { takes.lock().await });
            world.sleep(Duration::from_micros(100) * n).await;
            // One after the other on their way to the OSD.
            let unlock = holder.operate(header.as_str(), Operation::new().rmxattr("lock.rbd_lock"));
            let (unlocked, ended) = futures_util::join!(unlock, watch.unwatch());
            unlocked.unwrap();
            ended.unwrap();
            taken.await.unwrap();
            image.unlock().await.unwrap();
            let map = io.client().osdmap();
            assert!(map.blocklist.is_empty(), "attempt {n}: {:?}", map.blocklist);
        }
        image.close().await.unwrap();
    });
}

/// Found by reading: an image was removed although it belonged to a group, which listed and could do
/// nothing any more.
#[test]
fn an_image_of_a_group_is_not_removed() {
    let world = World::new(8);
    let cluster = Cluster::make(&world.control(), Plan::default());
    world.run_until(async move {
        let io = pool(&cluster).await;
        rbd::create(&io, "image", LEN, &layered()).await.unwrap();
        let image = opened(&io, "image", None).await;
        image.write(0, block(1)).await.unwrap();
        let header = format!("rbd_header.{}", image.info().id);
        image.close().await.unwrap();
        let mut w = Writer::new();
        w.envelope(1, 1, |w| {
            w.i64(io.pool_id());
            w.put(&"1234".to_owned());
        });
        let group = w.into_bytes();
        let link = |method| Operation::new().exec("rbd", method, &group).as_write();
        io.operate(header.as_str(), link("image_group_add")).await.unwrap();
        let removed = rbd::remove(&io, "image").await;
        assert_eq!(removed, Err(ClientError::Errno(Errno::EMLINK)));
        assert!(shown(&io, "image", None).await == block(1));
        io.operate(header.as_str(), link("image_group_remove")).await.unwrap();
        rbd::remove(&io, "image").await.unwrap();
        assert!(rbd::list(&io).await.unwrap().is_empty());
    });
}

/// Found by reading: a snapshot that was removed while it had clones is in its image's trash until the
/// last of them goes; it stayed there for ever.
#[test]
fn a_snapshot_in_the_trash_goes_with_its_last_clone() {
    let world = World::new(9);
    let cluster = Cluster::make(&world.control(), Plan::default());
    world.run_until(async move {
        let io = pool(&cluster).await;
        rbd::create(&io, "parent", LEN, &CreateOptions::default()).await.unwrap();
        let parent = opened(&io, "parent", None).await;
        parent.write(0, block(1)).await.unwrap();
        let left = async || {
            parent.refresh().await.unwrap();
            parent.snapshots().into_iter().map(|snap| snap.size).collect::<Vec<_>>()
        };
        for (size, kid) in [(LEN, "kept"), (2 * LEN, "removed"), (3 * LEN, "flattened")] {
            parent.resize(size).await.unwrap();
            parent.snap_create("s").await.unwrap();
            rbd::clone(&io, "parent", "s", &io, kid, &layered()).await.unwrap();
            rbd::clone(&io, "parent", "s", &io, "one more", &layered()).await.unwrap();
            // Once refused, where librbd puts it into the trash.
            parent.refresh().await.unwrap();
            parent.snap_remove("s").await.unwrap();
            assert_eq!(parent.snap_remove("s").await, Err(ClientError::Errno(Errno::ENOENT)));
            rbd::remove(&io, "one more").await.unwrap();
            parent.refresh().await.unwrap();
        }
        assert_eq!(left().await, [LEN, 2 * LEN, 3 * LEN]);
        rbd::remove(&io, "removed").await.unwrap();
        assert_eq!(left().await, [LEN, 3 * LEN]);
        let kid = opened(&io, "flattened", None).await;
        kid.flatten().await.unwrap();
        kid.close().await.unwrap();
        assert_eq!(left().await, [LEN]);
        // A user's snapshot stays when its clone goes.
        parent.snap_create("user's").await.unwrap();
        rbd::clone(&io, "parent", "user's", &io, "of the user's", &layered()).await.unwrap();
        rbd::remove(&io, "of the user's").await.unwrap();
        assert_eq!(left().await, [LEN, 3 * LEN]);
        parent.close().await.unwrap();
        for kid in ["kept", "flattened"] {
            assert!(shown(&io, kid, None).await == block(1), "{kid}");
        }
    });
}

/// Found by reading: a removal that was cut off between the header and the name left a name that nothing
/// could remove: there was no such image. (librbd removes it.)
#[test]
fn a_name_whose_image_is_gone_can_be_removed() {
    let world = World::new(10);
    let cluster = Cluster::make(&world.control(), Plan::default());
    world.run_until(async move {
        let io = pool(&cluster).await;
        let remains = async |objects: &[&str]| {
            rbd::create(&io, "image", LEN, &layered()).await.unwrap();
            let image = opened(&io, "image", None).await;
            let id = image.info().id;
            image.close().await.unwrap();
            for object in objects {
                io.remove(object.replace("ID", &id)).await.unwrap();
            }
        };
        for objects in [&["rbd_header.ID"][..], &["rbd_header.ID", "rbd_id.image"]] {
            remains(objects).await;
            rbd::remove(&io, "image").await.unwrap();
            assert!(rbd::list(&io).await.unwrap().is_empty());
            let gone = Err(ClientError::Errno(Errno::ENOENT));
            assert_eq!(rbd::remove(&io, "image").await, gone);
        }
        // Its parent is what is not there: that is another matter.
        rbd::create(&io, "parent", LEN, &CreateOptions::default()).await.unwrap();
        let parent = opened(&io, "parent", None).await;
        parent.snap_create("s").await.unwrap();
        rbd::clone(&io, "parent", "s", &io, "child", &layered()).await.unwrap();
        let id = parent.info().id;
        parent.close().await.unwrap();
        io.remove(format!("rbd_header.{id}")).await.unwrap();
        assert_eq!(rbd::remove(&io, "child").await, Err(ClientError::Errno(Errno::ENOENT)));
        assert!(rbd::list(&io).await.unwrap().contains_key("child"));
    });
}

/// Found by reading: the removal of a migration's source, once cut off, could not be gone on with: the
/// destination knew no source any more, and the source was none of the trash's images that can be removed.
#[test]
fn a_source_whose_removal_was_cut_off_can_be_removed() {
    let world = World::new(11);
    let cluster = Cluster::make(&world.control(), Plan::default());
    world.run_until(async move {
        let io = pool(&cluster).await;
        for name in ["source", "dest"] {
            rbd::create(&io, name, 8 << 20, &layered()).await.unwrap();
        }
        let (source, dest) = (opened(&io, "source", None).await, opened(&io, "dest", None).await);
        source.write(0, block(1)).await.unwrap();
        set_migration(&io, &source, 1, &dest, &[]).await;
        set_migration(&io, &dest, 2, &source, &[]).await;
        let id = source.info().id;
        for image in [source, dest] {
            image.close().await.unwrap();
        }
        let mut w = Writer::new();
        w.put(&id);
        w.envelope(2, 1, |w| {
            w.u8(2);
            w.put(&"source".to_owned());
            w.put(&types::UTime::default());
            w.put(&types::UTime::default());
            w.u8(0);
        });
        let trash = Operation::new().exec("rbd", "trash_add", &w.into_bytes()).as_write();
        io.operate("rbd_trash", trash).await.unwrap();

        rbd::migration_execute(&io, "dest", &|_, _| true).await.unwrap();
        let cut_off = rbd::migration_commit(&io, "dest", &|_, _| false).await;
        assert_eq!(cut_off, Err(ClientError::Errno(Errno::ECANCELED)));
        assert!(shown(&io, "dest", None).await == block(1));
        rbd::trash_remove(&io, &id, false, &|_, _| true).await.unwrap();
        assert!(rbd::trash_list(&io).await.unwrap().is_empty());
        assert!(shown(&io, "dest", None).await == block(1));
    });
}

/// Found by reading: who had the lock believed that it was lost.
///
/// 1. A first write asks for the lock, which another holds, and our watch is lost.
/// 2. There is a new watch. That the lock follows it waits for its turn, behind that write.
/// 3. The lock comes free and is taken under the new watch's cookie; then it is to follow the watch from
///    that cookie to the same one, which is refused.
///
/// Nobody who asked for the lock was answered any more.
#[test]
fn a_lock_taken_under_the_new_watch_stays_ours() {
    let world = World::new(12);
    let cluster = Cluster::make(&world.control(), Plan::default());
    world.run_until(async move {
        let world = cluster.world().clone();
        let io = pool(&cluster).await;
        rbd::create(&io, "image", LEN, &CreateOptions::default()).await.unwrap();
        let image = opened(&io, "image", None).await;
        let header = header_of(&image);
        let holder = cluster.client("client.1").await.io_ctx("p").await.unwrap();
        let watch = lock_by_hand(&holder, &header).await;
        let writer = image.clone();
        let written = world.spawn(async move { writer.write(0, block(1)).await });
        world.sleep(Duration::from_secs(1)).await;
        lose_watches(&io, &image).await;
        world.sleep(Duration::from_secs(12)).await;
        holder.operate(header.as_str(), Operation::new().rmxattr("lock.rbd_lock")).await.unwrap();
        watch.unwatch().await.unwrap();
        written.await.unwrap();
        world.sleep(Duration::from_secs(1)).await;
        assert!(image.is_lock_owner());
        let other = opened(&holder, "image", None).await;
        other.write(8192, block(2)).await.unwrap();
        other.close().await.unwrap();
        image.close().await.unwrap();
    });
}

/// Found by reading: a client that lived was blocklisted, for its lock kept the cookie of a lost watch as long
/// as a change took: whoever wanted the lock found nobody who watched under it. And when the watch was lost
/// twice meanwhile, the lock followed it twice to the same cookie, which was taken for its loss.
#[test]
fn the_lock_follows_the_watch_while_a_change_takes_long() {
    let world = World::new(13);
    let cluster = Cluster::make(&world.control(), Plan::default());
    world.run_until(async move {
        let world = cluster.world().clone();
        let io = pool(&cluster).await;
        rbd::create(&io, "image", LEN, &CreateOptions::default()).await.unwrap();
        let there = cluster.client("client.1").await.io_ctx("p").await.unwrap();
        let image = opened(&there, "image", None).await;
        image.write(0, block(1)).await.unwrap();
        // The id of the snapshot is the monitor's to give.
        world.partition("client.1", "mon.a");
        let taker = image.clone();
        let taken = world.spawn(async move { taker.snap_create("s").await });
        for _ in 0..2 {
            world.sleep(Duration::from_secs(1)).await;
            lose_watches(&there, &image).await;
            world.sleep(Duration::from_secs(12)).await;
        }
        let other = opened(&io, "image", None).await;
        let asks = other.clone();
        let locked = world.spawn(async move { asks.lock().await });
        world.sleep(Duration::from_secs(20)).await;
        assert!(image.is_lock_owner());
        world.heal();
        taken.await.unwrap();
        locked.await.unwrap();
        let map = io.client().osdmap();
        assert!(map.blocklist.is_empty(), "{:?}", map.blocklist);
        other.write(0, block(2)).await.unwrap();
        image.write(0, block(3)).await.unwrap();
        assert!(shown(&io, "image", Some("s")).await == block(1));
    });
}

/// Whoever loses the lock together with the watch does nothing more: it is another's.
#[test]
fn a_lock_that_cannot_follow_the_watch_fences_its_holder_off() {
    let world = World::new(17);
    let cluster = Cluster::make(&world.control(), Plan::default());
    world.run_until(async move {
        let world = cluster.world().clone();
        let io = pool(&cluster).await;
        rbd::create(&io, "image", LEN, &CreateOptions::default()).await.unwrap();
        let image = opened(&io, "image", None).await;
        image.write(0, block(1)).await.unwrap();
        lose_watches(&io, &image).await;
        let header = header_of(&image);
        io.operate(header.as_str(), Operation::new().rmxattr("lock.rbd_lock")).await.unwrap();
        let there = cluster.client("client.1").await.io_ctx("p").await.unwrap();
        let other = opened(&there, "image", None).await;
        other.write(0, block(2)).await.unwrap();
        world.sleep(Duration::from_secs(12)).await;
        assert!(image.is_fenced() && !image.is_lock_owner());
        let refused = Err(ClientError::Errno(Errno::ESHUTDOWN));
        assert_eq!(image.write(0, block(3)).await, refused);
        assert_eq!(image.snap_create("s").await, refused);
        image.close().await.unwrap();
        assert!(other.is_lock_owner());
        other.close().await.unwrap();
        assert!(shown(&io, "image", None).await == block(2));
    });
}

/// What is done to the header under the lock may be on its way when the lock gets another cookie.
#[test]
fn changes_go_on_while_watches_are_lost() {
    let world = World::new(14);
    let cluster = Cluster::make(&world.control(), Plan::default());
    world.run_until(async move {
        let world = cluster.world().clone();
        let io = pool(&cluster).await;
        rbd::create(&io, "image", LEN, &CreateOptions::default()).await.unwrap();
        let image = opened(&io, "image", None).await;
        image.snap_create("s").await.unwrap();
        for _ in 0..4 {
            lose_watches(&io, &image).await;
            let until = world.now() + Duration::from_secs(6);
            while world.now() < until {
                image.snap_protect("s").await.unwrap();
                image.snap_unprotect("s").await.unwrap();
            }
            assert!(image.is_lock_owner());
        }
    });
}

/// Found by reading: a snapshot showed what was written after it had been taken, in an image without a lock.
/// The writer had heard that the header had changed, and while it read that, others of its writes went by what
/// it had known before.
#[test]
fn no_snapshot_shows_what_was_written_after_it() {
    let world = World::new(15);
    let cluster = Cluster::make(&world.control(), Plan::default());
    world.run_until(async move {
        let io = pool(&cluster).await;
        rbd::create(&io, "image", LEN, &layered()).await.unwrap();
        let taker = opened(&io, "image", None).await;
        let there = cluster.client("client.1").await.io_ctx("p").await.unwrap();
        let writer = opened(&there, "image", None).await;
        (0..3).for_each(|osd| cluster.slow_reads(osd, Duration::from_millis(100)));
        for n in 1..=10 {
            writer.write(0, block(n)).await.unwrap();
            taker.snap_create(&n.to_string()).await.unwrap();
            writer.write(0, block(n + 100)).await.unwrap();
        }
        for n in 1..=10 {
            assert!(shown(&io, "image", Some(&n.to_string())).await == block(n), "{n}");
        }
    });
}

/// Found by reading: two images of one client both had the lock. The watch of the first was lost, and before
/// there was another the second took it for dead; who is the same client is not blocklisted.
#[test]
fn two_openings_by_one_client_have_the_lock_in_turn() {
    let world = World::new(16);
    let cluster = Cluster::make(&world.control(), Plan::default());
    world.run_until(async move {
        let io = pool(&cluster).await;
        rbd::create(&io, "image", LEN, &CreateOptions::default()).await.unwrap();
        let one = opened(&io, "image", None).await;
        one.write(0, block(1)).await.unwrap();
        lose_watches(&io, &one).await;
        let two = opened(&io, "image", None).await;
        two.lock().await.unwrap();
        assert!(two.is_lock_owner() && !one.is_lock_owner());
        // Of one that was dropped nobody is left: its lock is broken.
        drop(two);
        one.write(0, block(2)).await.unwrap();
        assert!(one.is_lock_owner());
        assert!(io.client().osdmap().blocklist.is_empty());
        one.close().await.unwrap();
    });
}
