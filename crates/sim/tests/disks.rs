//! Simulated disks: what survives which end, faults, times.

use std::time::Duration;

use bytes::Bytes;
use env::{AlignedBuf, BlockFile, Env, OpenBlock, Until};
use sim::{DiskFaults, Kill, Sockets, Unsynced, World};

const LEN: u64 = 1 << 20;

fn open(env: &Env) -> std::rc::Rc<dyn BlockFile> {
    env.open_block("/dev/data".as_ref(), OpenBlock { create_len: Some(LEN), read_only: false })
        .unwrap()
}

fn block(byte: u8) -> Vec<Bytes> {
    vec![AlignedBuf::copy_from_slice(&[byte; 4096]).freeze()]
}

fn power(unsynced: Unsynced) -> Kill {
    Kill { sockets: Sockets::Silence, unsynced }
}

/// Writes and syncs 1s, overwrites them with 2s and again with 3s, then ends the process.
fn contents_after(seed: u64, how: Kill) -> Vec<u8> {
    let world = World::new(seed);
    let env = world.node("osd.0");
    world.run_until(async move {
        let file = open(&env);
        file.write_at(0, block(1)).await.unwrap();
        file.sync().await.unwrap();
        file.write_at(0, block(2)).await.unwrap();
        file.write_at(0, block(3)).await.unwrap();
    });
    world.kill("osd.0", how);
    let env = world.node("osd.0");
    let found = world.run_until(async move { open(&env).read_at(0, 4096).await.unwrap() });
    assert_eq!(world.disk("osd.0", "/dev/data").peek(0, 4096), &*found);
    found.to_vec()
}

#[test]
fn ends_keep_lose_or_tear_what_was_not_synced() {
    assert_eq!(contents_after(1, Kill::PROCESS), [3; 4096]);
    assert_eq!(contents_after(1, power(Unsynced::Lost)), [1; 4096]);
    let mut seen = [false; 4];
    let mut torn = 0;
    for seed in 0..40 {
        let contents = contents_after(seed, power(Unsynced::Torn));
        for sector in contents.chunks(512) {
            assert!(sector.iter().all(|b| *b == sector[0]), "sectors are whole");
            seen[sector[0] as usize] = true;
        }
        torn += usize::from(contents.iter().any(|b| *b != contents[0]));
    }
    assert_eq!(seen, [false, true, true, true]);
    assert!(torn > 5);
}

#[test]
fn a_sync_covers_the_writes_completed_before_it() {
    let world = World::new(2);
    let env = world.node("osd.0");
    world.run_until(async move {
        let file = open(&env);
        file.write_at(0, block(1)).await.unwrap();
        let sync = file.sync();
        // Completed before the sync has, but not before it began.
        file.write_at(4096, block(2)).await.unwrap();
        sync.await.unwrap();
    });
    assert_eq!(world.disk("osd.0", "/dev/data").unsynced_sectors(), 8);
    world.kill("osd.0", power(Unsynced::Lost));
    let contents = world.disk("osd.0", "/dev/data").peek(0, 8192);
    assert_eq!((contents[0], contents[4096]), (1, 0));
}

#[test]
fn a_write_that_ends_durable_is_so_alone() {
    let world = World::new(2);
    let env = world.node("osd.0");
    world.run_until(async move {
        let file = open(&env);
        file.write_at(4096, block(1)).await.unwrap();
        file.write_at(0, block(2)).await.unwrap();
        file.write_until(Until::Durable, 0, block(3)).await.unwrap();
    });
    assert_eq!(world.disk("osd.0", "/dev/data").unsynced_sectors(), 8);
    world.kill("osd.0", power(Unsynced::Lost));
    let contents = world.disk("osd.0", "/dev/data").peek(0, 8192);
    assert_eq!(contents[..4096], [3; 4096]);
    assert_eq!(contents[4096..], [0; 4096]);
}

#[test]
fn a_write_that_would_be_durable_may_be_torn_on_its_way() {
    let torn = (0..40).filter(|seed| {
        let world = World::new(*seed);
        let env = world.node("osd.0");
        let file = open(&env);
        let write = file.write_until(Until::Durable, 0, block(1));
        env.go(async move {
            let _ = write.await;
        });
        world.kill("osd.0", power(Unsynced::Torn));
        let contents = world.disk("osd.0", "/dev/data").peek(0, 4096);
        contents.iter().any(|b| *b != contents[0])
    });
    assert!(torn.count() > 5);
}

#[test]
fn a_write_in_flight_may_or_may_not_survive_its_process() {
    let survived = (0..40).filter(|seed| {
        let world = World::new(*seed);
        let env = world.node("osd.0");
        let file = open(&env);
        let write = file.write_at(0, block(1));
        env.go(async move {
            let _ = write.await;
        });
        world.kill("osd.0", Kill::PROCESS);
        assert!(world.run_until(file.sync()).is_err(), "the dead do nothing");
        world.disk("osd.0", "/dev/data").peek(0, 1) == [1]
    });
    assert!((5..35).contains(&survived.count()));
}

#[test]
fn faults_are_as_asked_for() {
    let world = World::new(3);
    let env = world.node("osd.0");
    let file = open(&env);
    let disk = world.disk("osd.0", "/dev/data");
    world.run_until({
        let file = file.clone();
        async move { file.write_at(0, block(0)).await.unwrap() }
    });
    disk.set_faults(DiskFaults { read: 1.0, write: 1.0, sync: 1.0, ..DiskFaults::default() });
    world.run_until({
        let file = file.clone();
        async move {
            for error in [
                file.read_at(0, 4096).await.err(),
                file.write_at(0, block(0)).await.err(),
                file.sync().await.err(),
            ] {
                assert_eq!(error.unwrap().raw_os_error(), Some(5));
            }
        }
    });
    disk.set_faults(DiskFaults::default());
    assert_eq!(disk.rot(1).len(), 1);
    let found = world.run_until({
        let file = file.clone();
        async move { file.read_at(0, 4096).await.unwrap() }
    });
    assert_eq!(found.iter().map(|b| b.count_ones()).sum::<u32>(), 1);

    let before = world.now();
    world.run_until({
        let file = file.clone();
        async move { file.sync().await.unwrap() }
    });
    let usual = world.now() - before;
    let mut model = disk.model();
    model.slowness = 1000.0;
    disk.set_model(model);
    let before = world.now();
    world.run_until({
        let file = file.clone();
        async move { file.sync().await.unwrap() }
    });
    assert!(world.now() - before > usual * 50);
    assert!(env.open_block("/none".as_ref(), OpenBlock::default()).is_err());
    assert!(env.open_block("/dev/data".as_ref(), OpenBlock::default()).is_err(), "locked");
    assert!(world.run_until(file.read_at(100, 4096)).is_err());
    assert!(world.run_until(file.write_at(LEN, block(1))).is_err());
}

#[test]
fn discarded_ranges_are_given_back_and_others_kept() {
    let world = World::new(4);
    let env = world.node("osd.0");
    let file = open(&env);
    world.run_until(async move {
        for at in 0..8 {
            file.write_at(at * 4096, block(7)).await.unwrap();
        }
        file.sync().await.unwrap();
        for _ in 0..20 {
            file.discard(2 * 4096, 3 * 4096).await.unwrap();
        }
        assert_eq!(file.read_at(4096, 4096).await.unwrap()[0], 7);
        assert_eq!(file.read_at(2 * 4096, 4096).await.unwrap()[0], 0);
        assert_eq!(file.read_at(5 * 4096, 4096).await.unwrap()[0], 7);
    });
}

#[test]
fn sync_files_survive_as_block_files_do() {
    for (how, expected) in
        [(Kill::PROCESS, (6, *b"abcdef")), (power(Unsynced::Lost), (3, *b"abc\0\0\0"))]
    {
        let world = World::new(5);
        let file = world.node("mon.a").open_sync("/mon/store".as_ref()).unwrap();
        file.write_at(0, b"abc").unwrap();
        file.sync().unwrap();
        file.write_at(3, b"def").unwrap();
        assert!(world.node("mon.a").open_sync("/mon/store".as_ref()).is_err(), "locked");
        world.kill("mon.a", how);
        assert!(file.write_at(0, b"ghost").is_err(), "the dead do nothing");
        let file = world.node("mon.a").open_sync("/mon/store".as_ref()).unwrap();
        assert_eq!(file.len().unwrap(), expected.0);
        assert_eq!(world.disk("mon.a", "/mon/store").peek(0, 6), expected.1);
        file.set_len(2).unwrap();
        file.set_len(4).unwrap();
        let mut buf = [9; 4];
        file.read_at(0, &mut buf).unwrap();
        assert_eq!(&buf, b"ab\0\0");
        assert!(file.read_at(1, &mut buf).is_err());
    }
}

#[test]
fn many_unsynced_overwrites_stay_bounded() {
    let world = World::new(6);
    let file = open(&world.node("osd.0"));
    world.run_until(async move {
        for round in 0..2000u32 {
            file.write_at(0, block(round as u8)).await.unwrap();
        }
    });
    assert_eq!(world.disk("osd.0", "/dev/data").unsynced_sectors(), 8);
    assert!(world.now() > Duration::from_millis(40));
}

/// Found while looking for a bug planted in the monitor's database (its commits were not durable),
/// which no life showed: when a monitor was killed, its database was closed by the destructors of
/// the process and so made durable. A process that is killed writes nothing any more.
#[test]
fn what_a_killed_process_lets_go_of_writes_nothing() {
    struct Closing(Box<dyn env::SyncFile>);
    impl Drop for Closing {
        fn drop(&mut self) {
            assert!(self.0.write_at(0, &[2; 512]).is_err());
            assert!(self.0.sync().is_err());
        }
    }
    let world = World::new(1);
    let env = world.node("mon.a");
    let inside = env.clone();
    env.go(async move {
        let file = inside.open_sync("/mon/db".as_ref()).unwrap();
        file.write_at(0, &[1; 512]).unwrap();
        let _closing = Closing(file);
        std::future::pending::<()>().await;
    });
    world.run_for(Duration::from_millis(1));
    world.kill("mon.a", Kill::PROCESS);
    let file = world.node("mon.a").open_sync("/mon/db".as_ref()).unwrap();
    let mut found = [0; 512];
    file.read_at(0, &mut found).unwrap();
    assert_eq!(found, [1; 512]);
}

/// A later sync made durable what a failed one had not, whoever asked for it: on a real host what could not be written
/// is gone from the cache, and nobody else is told.
#[test]
fn what_a_failed_sync_was_for_may_be_gone_at_the_next_start() {
    let found: Vec<Vec<u8>> = (0..40)
        .map(|seed| {
            let world = World::new(seed);
            let env = world.node("osd.0");
            let file = open(&env);
            let disk = world.disk("osd.0", "/dev/data");
            world.run_until(async move {
                file.write_at(0, block(1)).await.unwrap();
                file.sync().await.unwrap();
                file.write_at(0, block(2)).await.unwrap();
                disk.set_faults(DiskFaults { sync: 1.0, ..DiskFaults::default() });
                assert!(file.sync().await.is_err());
                disk.set_faults(DiskFaults::default());
                assert_eq!(*file.read_at(0, 4096).await.unwrap(), [2; 4096]);
            });
            world.kill("osd.0", Kill::PROCESS);
            let file = open(&world.node("osd.0"));
            world.run_until(async move {
                let found = file.read_at(0, 4096).await.unwrap().to_vec();
                file.sync().await.unwrap();
                found
            })
        })
        .collect();
    let is_kept = |contents: &&Vec<u8>| contents.iter().all(|b| *b == 2);
    let is_torn = |contents: &&Vec<u8>| contents.contains(&1) && contents.contains(&2);
    assert!(found.iter().filter(is_kept).count() > 5);
    assert!(found.iter().filter(is_torn).count() > 5);
}

/// A write that failed had taken effect as a whole or not at all.
#[test]
fn some_sectors_of_a_failed_write_may_be_written() {
    let torn = (0..40).filter(|seed| {
        let world = World::new(*seed);
        let file = open(&world.node("osd.0"));
        let disk = world.disk("osd.0", "/dev/data");
        disk.set_faults(DiskFaults { write: 1.0, ..DiskFaults::default() });
        world.run_until(async move { assert!(file.write_at(0, block(1)).await.is_err()) });
        assert_eq!(disk.errors(), 1);
        let contents = disk.peek(0, 4096);
        assert!(contents.chunks(512).all(|sector| sector.iter().all(|b| *b == sector[0])));
        contents.iter().any(|b| *b != contents[0])
    });
    assert!(torn.count() > 5);
}

/// A sector changed often while a sync was under way was newer after a power loss than what was synced.
#[test]
fn what_a_sync_under_way_covers_is_not_forgotten() {
    let world = World::new(7);
    let env = world.node("osd.0");
    let disk = {
        let file = open(&env);
        let disk = world.disk("osd.0", "/dev/data");
        let slow = sim::DiskModel { sync: Duration::from_secs(1), ..disk.model() };
        disk.set_model(slow);
        world.run_until(async move {
            file.write_at(0, block(1)).await.unwrap();
            let sync = file.sync();
            for byte in 2..20 {
                file.write_at(0, block(byte)).await.unwrap();
            }
            sync.await.unwrap();
        });
        disk
    };
    world.kill("osd.0", power(Unsynced::Lost));
    assert_eq!(disk.peek(0, 4096), [1; 4096]);
}
