//! Clients that write, read and remember: every value is its object's only one, and whatever is
//! read is judged by the history.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use bstr::BString;
use bytes::{BufMut, Bytes, BytesMut};
use client::{ClientError, IoCtx, Operation};
use env::Env;
use sim::{Control, History, Rng};
use types::Errno;

/// What a workload consists of.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Objects, shared by all clients.
    pub objects: u64,
    /// Longest content in bytes.
    pub len_max: u64,
    /// Longest pause between two operations of a client.
    pub pause_max: Duration,
}

impl Default for Load {
    fn default() -> Load {
        Load { objects: 12, len_max: 20_000, pause_max: Duration::from_millis(50) }
    }
}

/// See the module.
#[derive(Clone)]
pub struct Workload {
    world: Control,
    load: Load,
    history: Rc<RefCell<History>>,
    next_value: Rc<Cell<u64>>,
    done: Rc<Cell<u64>>,
    stopped: Rc<Cell<bool>>,
    running: Rc<Cell<usize>>,
}

/// The attribute and the key that repeat the value.
const MARK: &str = "value";

/// Counts a client as long as it runs.
struct Running(Rc<Cell<usize>>);

impl Running {
    fn new(count: &Rc<Cell<usize>>) -> Running {
        count.set(count.get() + 1);
        Running(count.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// The content that stands for a value: the value, then bytes that follow from it.
fn content_of(value: u64, len: usize) -> Bytes {
    let mut content = BytesMut::with_capacity(len + 8);
    content.put_u64_le(value);
    let mut state = value | 1;
    while content.len() < len + 8 {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        content.put_u8((state >> 56) as u8);
    }
    content.freeze()
}

/// The value a content stands for; panics when it is no whole content of any value.
fn value_of(object: &str, content: &Bytes) -> u64 {
    let head = content.first_chunk().unwrap_or_else(|| panic!("{object}: {} bytes", content.len()));
    let value = u64::from_le_bytes(*head);
    let expected = content_of(value, content.len() - 8);
    assert!(expected == *content, "{object}: content of {value} is mixed with something else");
    value
}

impl Workload {
    /// A workload that nobody runs yet.
    pub fn new(world: &Control, load: Load) -> Workload {
        Workload {
            world: world.clone(),
            load,
            history: Rc::default(),
            next_value: Rc::new(Cell::new(1)),
            done: Rc::default(),
            stopped: Rc::default(),
            running: Rc::default(),
        }
    }

    /// Operations finished.
    pub fn done(&self) -> u64 {
        self.done.get()
    }

    /// Writes that took effect.
    pub fn effective_writes(&self) -> usize {
        self.history.borrow().effective_writes()
    }

    /// Clients end after what they are doing.
    pub fn stop(&self) {
        self.stopped.set(true);
    }

    /// Completes when all clients have ended.
    pub async fn ended(&self) {
        while self.running.get() > 0 {
            self.world.sleep(Duration::from_millis(10)).await;
        }
    }

    /// Clients that have not ended.
    pub fn running(&self) -> usize {
        self.running.get()
    }

    /// Runs a client until [`Workload::stop`] or the end of its process.
    pub fn spawn(&self, env: &Env, io: IoCtx, rng: Rng) {
        let (load, running) = (self.clone(), Running::new(&self.running));
        env.go(async move {
            while !load.stopped.get() {
                let object = format!("object{}", rng.below(load.load.objects));
                if rng.chance(0.5) {
                    load.write(&io, &object, &rng).await;
                } else {
                    load.read(&io, &object).await;
                }
                load.done.set(load.done.get() + 1);
                let pause = rng.between(Duration::ZERO, load.load.pause_max);
                load.world.sleep(pause).await;
            }
            drop(running);
        });
    }

    async fn write(&self, io: &IoCtx, object: &str, rng: &Rng) {
        let value = self.next_value.get();
        self.next_value.set(value + 1);
        let len = usize::try_from(rng.below(self.load.len_max)).expect("lengths are small");
        let begun = self.history.borrow_mut().begin_write(object, value, self.world.now());
        // Content, attribute and key change together or not at all.
        let mark = value.to_le_bytes();
        let keys = BTreeMap::from([(BString::from(MARK), Bytes::copy_from_slice(&mark))]);
        let all = Operation::new()
            .write_full(content_of(value, len))
            .setxattr(MARK, &mark)
            .omap_set(&keys);
        match io.operate(object, all).await {
            Ok(_) => self.history.borrow_mut().acknowledge(object, begun, self.world.now()),
            Err(error) => panic!("{object}: writing {value}: {error}"),
        }
    }

    async fn read(&self, io: &IoCtx, object: &str) {
        let begun = self.world.now();
        let all = Operation::new()
            .read(0, 0)
            .getxattr(MARK)
            .omap_get_vals_by_keys(&[BString::from(MARK)]);
        let value = match io.operate(object, all).await {
            Ok(outcome) => {
                let content = outcome.output(0).expect("content");
                let value = value_of(object, &content);
                let mark = Bytes::copy_from_slice(&value.to_le_bytes());
                let attr = outcome.output(1).expect("an attribute");
                assert!(attr == mark, "{object}: content of {value}, attribute {attr:?}");
                let keys: BTreeMap<BString, Bytes> = outcome.decode(2).expect("keys");
                let key = keys.get(&BString::from(MARK));
                assert!(key == Some(&mark), "{object}: content of {value}, key {key:?}");
                Some(value)
            }
            Err(ClientError::Errno(Errno::ENOENT)) => None,
            Err(error) => panic!("{object}: reading: {error}"),
        };
        let judged = self.history.borrow_mut().read(object, value, begun, self.world.now());
        if let Err(broken) = judged {
            panic!("{broken:?} (read from {begun:?} to {:?})", self.world.now());
        }
    }

    /// Reads every object once.
    pub async fn read_all(&self, io: &IoCtx) {
        let objects: Vec<String> =
            self.history.borrow().objects().map(ToOwned::to_owned).collect();
        for object in objects {
            self.read(io, &object).await;
        }
    }
}
