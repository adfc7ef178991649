//! Power loss after every device write of short histories: what was acknowledged is there, and
//! every transaction is there whole or not at all, in order.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use device::memory::{Choices, MemoryFile};
use env::Env;
use store::inkstore::InkStore;
use store::{ObjectStore, Transaction};

use super::common::{Model, Sizes, block_on, bytes, numbered, object, pg, transaction};
use super::contract::{made, mounted};

/// A device as a crash left it, and how many transactions were acknowledged and submitted.
struct Image {
    file: Rc<MemoryFile>,
    acknowledged: usize,
    submitted: usize,
    at: String,
}

struct History {
    seed: u64,
    steps: u64,
    sizes: Sizes,
    block_len: u32,
    log_len: u64,
    /// How many transactions may wait at once.
    depth: usize,
}

/// Runs a history, crashing after every write and sync.
async fn crash(env: Env, h: History) {
    let file = MemoryFile::new(24 << 20, h.block_len);
    file.set_delay(1);
    let store = made(&env, &file, h.log_len).await;
    let counts = Rc::new((Cell::new(0_usize), Cell::new(0_usize)));
    let images: Rc<RefCell<Vec<Image>>> = Rc::default();
    let (seen, kept) = (counts.clone(), images.clone());
    let mut crashes = Choices::new(h.seed ^ 0xc4a5);
    let mut writes = 0;
    file.set_hook(move |file| {
        writes += 1;
        for n in 0..2 {
            let image = Image {
                file: file.crash_image(&mut crashes),
                acknowledged: seen.0.get(),
                submitted: seen.1.get(),
                at: format!("write {writes} image {n}"),
            };
            kept.borrow_mut().push(image);
        }
    });
    let mut choices = Choices::new(h.seed);
    // The state after each transaction.
    let mut states = vec![Model::default()];
    let mut waiting = std::collections::VecDeque::new();
    for _ in 0..h.steps {
        let mut model = states.last().unwrap().clone();
        let t = transaction(&mut choices, &model, h.sizes);
        if model.apply(&t).is_err() {
            continue;
        }
        states.push(model);
        counts.1.set(states.len() - 1);
        waiting.push_back(store.submit(t));
        while waiting.len() > choices.below(h.depth as u64) as usize {
            waiting.pop_front().unwrap().await.unwrap();
            counts.0.set(counts.0.get() + 1);
        }
        check_images(&env, &h, &images, &states).await;
    }
    for done in waiting {
        done.await.unwrap();
        counts.0.set(counts.0.get() + 1);
    }
    check_images(&env, &h, &images, &states).await;
    store.checkpoint().await.unwrap();
    check_images(&env, &h, &images, &states).await;
}

async fn check_images(env: &Env, h: &History, images: &RefCell<Vec<Image>>, states: &[Model]) {
    for image in images.take() {
        let at = format!("seed {} {}", h.seed, image.at);
        let found = check_image(env, &image, states, &at).await;
        // A second crash, right after the first recovery and one more transaction.
        let mut model = states[found].clone();
        let store = mounted(env, image.file.clone()).await.unwrap();
        let mut t = Transaction::new();
        t.mkcoll(&pg(100), 0).write(&pg(100), &object("after", 1), 0, vec![5; 5000]);
        model.apply(&t).unwrap();
        store.submit(t).await.unwrap();
        let again = image.file.crash_image(&mut Choices::new(h.seed));
        let store = mounted(env, again).await.unwrap_or_else(|e| panic!("{at}, again: {e}"));
        assert_eq!(model.compare(&*store).await, Ok(()), "{at}, after a second crash");
    }
}

/// Opens an image; which of the states it holds.
async fn check_image(env: &Env, image: &Image, states: &[Model], at: &str) -> usize {
    let (store, found) = opened(env, image, states, at).await;
    let report = store.fsck(true).await.unwrap();
    assert_eq!(report.errors, Vec::<String>::new(), "{at}");
    store.close().await.unwrap();
    found
}

/// The store of an image, and which of the states it holds.
async fn opened(env: &Env, image: &Image, states: &[Model], at: &str) -> (Rc<InkStore>, usize) {
    let store = mounted(env, image.file.clone()).await.unwrap_or_else(|e| panic!("{at}: {e}"));
    let mut why = Vec::new();
    for (n, state) in states.iter().enumerate().take(image.submitted + 1).skip(image.acknowledged) {
        match state.compare(&*store).await {
            Ok(()) => return (store, n),
            Err(e) => why.push(format!("not state {n}: {e}")),
        }
    }
    panic!("{at}: holds none of the states {}..={}: {why:#?}", image.acknowledged, image.submitted);
}

#[test]
fn every_image_holds_what_was_acknowledged() {
    for seed in 0..6 {
        let block_len = if seed % 2 == 0 { 4096 } else { 512 };
        let h = History {
            seed,
            steps: 60,
            sizes: Sizes { objects: 6, object_len: 30_000, write_len: 9_000 },
            block_len,
            log_len: 64 << 10,
            depth: 1 + seed as usize * 2,
        };
        block_on(move |env| crash(env, h));
    }
}

#[test]
fn long_writes_too() {
    let h = History {
        seed: 500,
        steps: 25,
        sizes: Sizes { objects: 4, object_len: 500_000, write_len: 300_000 },
        block_len: 4096,
        log_len: 256 << 10,
        depth: 6,
    };
    block_on(move |env| crash(env, h));
}

/// `STORE_SEEDS=1000..2000 cargo test -p loligo-store more_crashes -- --ignored`
#[test]
#[ignore = "long: as many seeds as STORE_SEEDS says"]
fn more_crashes() {
    let text = std::env::var("STORE_SEEDS").unwrap_or("100..120".into());
    let (from, to) = text.split_once("..").unwrap();
    let seeds: std::ops::Range<u64> = from.parse().unwrap()..to.parse().unwrap();
    for seed in seeds {
        let h = History {
            seed,
            steps: 120,
            sizes: Sizes { objects: 8, object_len: 60_000, write_len: 20_000 },
            block_len: if seed % 2 == 0 { 4096 } else { 512 },
            log_len: 64 << 10 << (seed % 3),
            depth: 1 + seed as usize % 9,
        };
        block_on(move |env| crash(env, h));
    }
}

#[test]
fn a_killed_process_loses_nothing_acknowledged() {
    block_on(|env| async move {
        let file = MemoryFile::new(32 << 20, 4096);
        let mut store = made(&env, &file, 128 << 10).await;
        let mut model = Model::default();
        let mut t = Transaction::new();
        t.mkcoll(&pg(0), 0);
        model.apply(&t).unwrap();
        store.submit(t).await.unwrap();
        let (mut choices, mut file) = (Choices::new(8), file);
        for round in 0..30 {
            let mut waiting = Vec::new();
            for _ in 0..20 {
                let oid = numbered(choices.below(30));
                let mut t = Transaction::new();
                let at = choices.below(50_000);
                t.write(&pg(0), &oid, at, bytes(&mut choices, 5_000));
                model.apply(&t).unwrap();
                waiting.push(store.submit(t));
            }
            for done in waiting {
                done.await.unwrap();
            }
            file = file.kill_image();
            store = mounted(&env, file.clone()).await.unwrap();
            assert_eq!(model.compare(&*store).await, Ok(()), "round {round}");
        }
    });
}

/// The histories' objects are short: with each chunk (64 KiB) from the 33rd on noted as if it were
/// another one, they found nothing.
#[test]
fn a_checkpoint_holds_each_chunk_that_changed() {
    block_on(|env| async move {
        let mut file = MemoryFile::new(64 << 20, 4096);
        let mut store = made(&env, &file, 128 << 10).await;
        let (mut model, mut choices) = (Model::default(), Choices::new(9));
        let oid = numbered(4);
        let mut t = Transaction::new();
        t.mkcoll(&pg(0), 0).truncate(&pg(0), &oid, 10 << 20);
        for round in 0..20 {
            for _ in 0..12 {
                let at = choices.below(2500) * 4096;
                match choices.below(4) {
                    0 => t.zero(&pg(0), &oid, at, 200_000),
                    _ => t.write(&pg(0), &oid, at, bytes(&mut choices, 4096)),
                };
            }
            model.apply(&t).unwrap();
            store.submit(std::mem::take(&mut t)).await.unwrap();
            store.checkpoint().await.unwrap();
            file = file.kill_image();
            store = mounted(&env, file.clone()).await.unwrap();
            assert_eq!(model.compare(&*store).await, Ok(()), "round {round}");
            assert_eq!(store.fsck(true).await.unwrap().errors, Vec::<String>::new());
        }
    });
}

/// A block that the last batch before a crash wrote and gave up itself was free after the mount. What
/// came there next made the mount after a second crash refuse the store: not what that batch said.
#[test]
fn what_the_last_batch_gave_up_is_used_again() {
    block_on(|env| async move {
        let file = MemoryFile::new(24 << 20, 4096);
        let store = made(&env, &file, 64 << 10).await;
        let mut model = Model::default();
        let mut t = Transaction::new();
        t.mkcoll(&pg(0), 0).write(&pg(0), &numbered(1), 0, vec![1; 4096]);
        t.write(&pg(0), &numbered(1), 0, vec![2; 4096]);
        model.apply(&t).unwrap();
        store.submit(t).await.unwrap();
        let mut again = model.clone();
        let mut t = Transaction::new();
        t.write(&pg(0), &numbered(2), 0, vec![3; 4096]);
        again.apply(&t).unwrap();
        crash_on(&env, file.kill_image(), vec![model, again], vec![t], &mut Choices::new(1)).await;
    });
}

/// Mounts a device, submits transactions, and mounts what a crash at each moment of that leaves.
/// `states` are those before and after each. One of the images, and the state that it holds.
async fn crash_on(
    env: &Env,
    file: Rc<MemoryFile>,
    states: Vec<Model>,
    transactions: Vec<Transaction>,
    choices: &mut Choices,
) -> (Rc<MemoryFile>, Model) {
    let store = mounted(env, file.clone()).await.unwrap();
    file.set_delay(1);
    let images: Rc<RefCell<Vec<Image>>> = Rc::default();
    let (kept, mut crashes) = (images.clone(), choices.clone());
    let (submitted, acknowledged) = (transactions.len(), Rc::new(Cell::new(0)));
    let seen = acknowledged.clone();
    file.set_hook(move |file| {
        for _ in 0..2 {
            let at = format!("image {}", kept.borrow().len());
            let file = file.crash_image(&mut crashes);
            kept.borrow_mut().push(Image { file, acknowledged: seen.get(), submitted, at });
        }
    });
    for done in transactions.into_iter().map(|t| store.submit(t)).collect::<Vec<_>>() {
        done.await.unwrap();
        acknowledged.set(acknowledged.get() + 1);
    }
    let images = images.take();
    let chosen = choices.below(images.len() as u64) as usize;
    let mut held = Vec::new();
    for image in &images {
        // What a mount writes must not be there twice.
        let seen = Image { file: image.file.kill_image(), at: image.at.clone(), ..*image };
        held.push(opened(env, &seen, &states, &image.at).await.1);
    }
    (images[chosen].file.clone(), states[held[chosen]].clone())
}

/// Nothing is written between a mount and the crash before the next but what was on its way then: no
/// checkpoint, by which histories that look through what they found forget the log. Now and then the device is longer
/// at the next mount.
#[test]
fn crashes_in_a_row_lose_nothing() {
    block_on(|env| async move {
        for seed in 0..8 {
            let mut file = MemoryFile::new(24 << 20, if seed % 2 == 0 { 512 } else { 4096 });
            drop(made(&env, &file, 64 << 10).await);
            let (mut model, mut choices) = (Model::default(), Choices::new(seed));
            for round in 1..=40 {
                if round % 8 == 0 {
                    file = file.image_of_len((24 << 20) + (round << 16));
                }
                let (mut states, mut transactions) = (vec![model.clone()], Vec::new());
                while transactions.len() <= choices.below(4) as usize {
                    let t = transaction(&mut choices, &model, Sizes::SMALL);
                    if model.apply(&t).is_ok() {
                        states.push(model.clone());
                        transactions.push(t);
                    } else {
                        model = states.last().unwrap().clone();
                    }
                }
                (file, model) = crash_on(&env, file, states, transactions, &mut choices).await;
            }
        }
    });
}
