//! Block files: operations take the disk model's time.

use std::future::{pending, ready};
use std::io;
use std::rc::Rc;

use bytes::Bytes;
use env::{AlignedBuf, BlockFile, LocalFuture, OpenBlock, Until};

use crate::disk::Disk;
use crate::image::Write;
use crate::process::Process;
use crate::trace::fold;

const EBADF: i32 = 9;
const EIO: i32 = 5;

/// An open block file of one process.
pub(crate) struct SimBlockFile {
    disk: Disk,
    process: Rc<Process>,
    read_only: bool,
    len: u64,
    block_len: u32,
}

impl SimBlockFile {
    pub(crate) fn open(
        disk: Disk,
        process: Rc<Process>,
        options: OpenBlock,
    ) -> io::Result<SimBlockFile> {
        let mut image = disk.image();
        if !options.read_only {
            if image.locked_by.is_some() {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            image.settle(process.world.now());
            image.open(process.number);
        }
        let len = image.len().max(options.create_len.unwrap_or(0));
        if len > image.len() {
            image.set_len(len);
        }
        let block_len = image.model.block_len;
        drop(image);
        Ok(SimBlockFile { disk, process, read_only: options.read_only, len, block_len })
    }

    fn check(&self, offset: u64, len: u64) -> io::Result<()> {
        if !self.process.alive.get() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let block_len = u64::from(self.block_len);
        let end = offset.checked_add(len);
        if offset.is_multiple_of(block_len)
            && len.is_multiple_of(block_len)
            && end.is_some_and(|end| end <= self.len)
        {
            return Ok(());
        }
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("range {offset}~{len} of a file of {} in blocks of {block_len}", self.len),
        ))
    }

    fn check_write(&self, offset: u64, len: u64) -> io::Result<()> {
        if self.read_only {
            return Err(io::Error::from_raw_os_error(EBADF));
        }
        self.check(offset, len)
    }
}

impl BlockFile for SimBlockFile {
    fn len(&self) -> u64 {
        self.len
    }

    fn block_len(&self) -> u32 {
        self.block_len
    }

    fn read_at(&self, offset: u64, len: usize) -> LocalFuture<io::Result<AlignedBuf>> {
        if let Err(error) = self.check(offset, len as u64) {
            return Box::pin(ready(Err(error)));
        }
        let (disk, world) = (self.disk.clone(), self.process.world.clone());
        let (done, fails) = {
            let mut image = disk.image();
            let latency = image.model.read;
            let done = image.completion(world.now(), latency, len as u64);
            let odds = image.faults.read;
            (done, image.fails(odds))
        };
        world.record("read", self.process.number.into(), offset ^ len as u64);
        Box::pin(async move {
            world.timers.sleep_until(done).await;
            if fails {
                return Err(io::Error::from_raw_os_error(EIO));
            }
            let mut buf = AlignedBuf::scratch(len);
            let mut image = disk.image();
            image.settle(world.now());
            image.read(offset, &mut buf);
            let garble = image.faults.garble;
            if len > 0 && image.rng.chance(garble) {
                let at = image.rng.below(len as u64) as usize;
                buf[at] ^= 1 << image.rng.below(8);
            }
            Ok(buf)
        })
    }

    fn write_until(
        &self,
        until: Until,
        offset: u64,
        bufs: Vec<Bytes>,
    ) -> LocalFuture<io::Result<()>> {
        let len = bufs.iter().map(|buf| buf.len() as u64).sum();
        if let Err(error) = self.check_write(offset, len) {
            return Box::pin(ready(Err(error)));
        }
        if self.disk.image().faults.hangs {
            return Box::pin(pending());
        }
        let (disk, world) = (self.disk.clone(), self.process.world.clone());
        let content = bufs.iter().fold(offset, |hash, buf| hash.rotate_left(5) ^ fold(buf));
        world.record("write", self.process.number.into(), content);
        let (done, fails) = {
            let mut image = disk.image();
            let (latency, fault) = match until {
                Until::Written => (image.model.write, image.faults.write),
                Until::Durable => (
                    image.model.write + image.model.sync,
                    image.faults.write.max(image.faults.sync),
                ),
            };
            let done = image.completion(world.now(), latency, len);
            let fails = image.fails(fault);
            let share = if fails { image.share_of_failed() } else { 1.0 };
            let misdirect = image.faults.misdirect;
            let offset = match image.rng.chance(misdirect) {
                true => image.some_place(offset, len),
                false => offset,
            };
            let durable = until == Until::Durable && !fails;
            image.begin_write(done, Write { offset, bufs, durable, share });
            (done, fails)
        };
        Box::pin(async move {
            world.timers.sleep_until(done).await;
            disk.image().settle(world.now());
            if fails { Err(io::Error::from_raw_os_error(EIO)) } else { Ok(()) }
        })
    }

    fn sync(&self) -> LocalFuture<io::Result<()>> {
        if let Err(error) = self.check(0, 0) {
            return Box::pin(ready(Err(error)));
        }
        if self.disk.image().faults.hangs {
            return Box::pin(pending());
        }
        let (disk, world) = (self.disk.clone(), self.process.world.clone());
        let (done, fails, last) = {
            let mut image = disk.image();
            image.settle(world.now());
            let latency = image.model.sync;
            let done = image.completion(world.now(), latency, 0);
            let odds = image.faults.sync;
            let fails = image.fails(odds);
            if fails {
                image.sync_has_failed();
            } else {
                image.begin_sync(done);
            }
            (done, fails, image.last_write())
        };
        world.record("sync", self.process.number.into(), last);
        Box::pin(async move {
            world.timers.sleep_until(done).await;
            if fails {
                return Err(io::Error::from_raw_os_error(EIO));
            }
            disk.image().settle(world.now());
            Ok(())
        })
    }

    fn discard(&self, offset: u64, len: u64) -> LocalFuture<io::Result<()>> {
        if let Err(error) = self.check_write(offset, len) {
            return Box::pin(ready(Err(error)));
        }
        let world = self.process.world.clone();
        let mut image = self.disk.image();
        image.settle(world.now());
        let latency = image.model.write;
        let done = image.completion(world.now(), latency, 0);
        image.discard(offset, len);
        world.record("discard", self.process.number.into(), offset ^ len);
        Box::pin(async move {
            world.timers.sleep_until(done).await;
            Ok(())
        })
    }
}

impl Drop for SimBlockFile {
    fn drop(&mut self) {
        let mut image = self.disk.image();
        if !self.read_only && image.locked_by == Some(self.process.number) {
            image.locked_by = None;
        }
    }
}
