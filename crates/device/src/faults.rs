//! A device that fails on demand: for tests of what stands above it.

use std::cell::{Cell, RefCell};
use std::io;
use std::ops::Range;
use std::rc::Rc;

use bytes::Bytes;
use env::{AlignedBuf, BlockFile, LocalFuture, Until};

/// What should go wrong. Share it with the [`FaultyFile`] and change it at any time.
#[derive(Debug, Default)]
pub struct Faults {
    /// Reads that touch one of these byte ranges fail.
    pub unreadable: RefCell<Vec<Range<u64>>>,
    /// Bytes at these offsets read with these bits flipped.
    pub flipped: RefCell<Vec<(u64, u8)>>,
    /// The same, once: the next read of them.
    pub flipped_once: RefCell<Vec<(u64, u8)>>,
    /// Writes until one fails (and all after it); `None` for never.
    pub writes_left: Cell<Option<u64>>,
    /// Syncs until one fails (and all after it); `None` for never.
    pub syncs_left: Cell<Option<u64>>,
}

/// A file seen through [`Faults`].
pub struct FaultyFile {
    file: Rc<dyn BlockFile>,
    faults: Rc<Faults>,
}

impl FaultyFile {
    /// `file`, as `faults` says.
    pub fn new(file: Rc<dyn BlockFile>, faults: Rc<Faults>) -> FaultyFile {
        FaultyFile { file, faults }
    }
}

fn failure() -> io::Error {
    const EIO: i32 = 5;
    io::Error::from_raw_os_error(EIO)
}

/// Whether one more call may succeed.
fn take(left: &Cell<Option<u64>>) -> bool {
    match left.get() {
        None => true,
        Some(0) => false,
        Some(n) => {
            left.set(Some(n - 1));
            true
        }
    }
}

impl BlockFile for FaultyFile {
    fn len(&self) -> u64 {
        self.file.len()
    }

    fn block_len(&self) -> u32 {
        self.file.block_len()
    }

    fn read_at(&self, offset: u64, len: usize) -> LocalFuture<io::Result<AlignedBuf>> {
        let range = offset..offset + len as u64;
        let (faults, read) = (self.faults.clone(), self.file.read_at(offset, len));
        Box::pin(async move {
            let mut buf = read.await?;
            let bad = |r: &Range<u64>| r.start < range.end && range.start < r.end;
            if faults.unreadable.borrow().iter().any(bad) {
                return Err(failure());
            }
            for &(at, bits) in faults.flipped.borrow().iter() {
                if range.contains(&at) {
                    buf[(at - offset) as usize] ^= bits;
                }
            }
            faults.flipped_once.borrow_mut().retain(|&(at, bits)| {
                if range.contains(&at) {
                    buf[(at - offset) as usize] ^= bits;
                }
                !range.contains(&at)
            });
            Ok(buf)
        })
    }

    fn write_until(
        &self,
        until: Until,
        offset: u64,
        bufs: Vec<Bytes>,
    ) -> LocalFuture<io::Result<()>> {
        // What is written until it is durable is a write and a sync.
        let succeeds = take(&self.faults.writes_left)
            && (until == Until::Written || take(&self.faults.syncs_left));
        match succeeds {
            true => self.file.write_until(until, offset, bufs),
            false => Box::pin(std::future::ready(Err(failure()))),
        }
    }

    fn sync(&self) -> LocalFuture<io::Result<()>> {
        match take(&self.faults.syncs_left) {
            true => self.file.sync(),
            false => Box::pin(std::future::ready(Err(failure()))),
        }
    }

    fn discard(&self, offset: u64, len: u64) -> LocalFuture<io::Result<()>> {
        self.file.discard(offset, len)
    }
}
