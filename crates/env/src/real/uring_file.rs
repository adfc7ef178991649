//! Block files on io_uring.

use std::future::ready;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::rc::Rc;

use bytes::Bytes;
use io_uring::opcode;
use io_uring::types::{Fd, FsyncFlags};

use super::file::Opened;
use super::uring::{Held, Memory, Op, Uring, outcome};
use super::vectored::{IOVECS_MAX, Vectored};
use crate::{AlignedBuf, BlockFile, LocalFuture, Until};

/// An open block file.
pub(super) struct UringFile {
    uring: Rc<Uring>,
    opened: Rc<Opened>,
}

impl AsRawFd for Opened {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

impl UringFile {
    pub(super) fn new(uring: Rc<Uring>, opened: Opened) -> UringFile {
        UringFile { uring, opened: Rc::new(opened) }
    }

    fn raw(&self) -> Fd {
        Fd(self.opened.as_raw_fd())
    }

    fn held(&self, memory: Memory) -> Held {
        Held { _fd: self.opened.clone(), memory }
    }
}

fn start_write(
    uring: &Rc<Uring>,
    opened: &Rc<Opened>,
    bufs: Box<Vectored>,
    offset: u64,
    until: Until,
) -> Op {
    let raw = Fd(opened.as_raw_fd());
    let held = Held { _fd: opened.clone(), memory: Memory::Vectored(bufs) };
    // SAFETY: vectors and buffers are on the heap in the memory held.
    unsafe {
        uring.start(held, |memory| {
            let Memory::Vectored(bufs) = memory else { unreachable!("made above") };
            let count = bufs.iovecs.len().min(IOVECS_MAX) as u32;
            opcode::Writev::new(raw, bufs.iovecs.as_ptr(), count)
                .offset(offset)
                .rw_flags(match until {
                    Until::Written => 0,
                    Until::Durable => libc::RWF_DSYNC,
                })
                .build()
        })
    }
}

fn start_read(
    uring: &Rc<Uring>,
    opened: &Rc<Opened>,
    buf: AlignedBuf,
    filled: usize,
    offset: u64,
) -> Op {
    let raw = Fd(opened.as_raw_fd());
    let held = Held { _fd: opened.clone(), memory: Memory::Read(buf) };
    // SAFETY: the buffer is on the heap in the memory held.
    unsafe {
        uring.start(held, |memory| {
            let Memory::Read(buf) = memory else { unreachable!("made above") };
            let rest = &mut buf[filled..];
            let len = u32::try_from(rest.len()).unwrap_or(1 << 30);
            opcode::Read::new(raw, rest.as_mut_ptr(), len).offset(offset + filled as u64).build()
        })
    }
}

impl BlockFile for UringFile {
    fn len(&self) -> u64 {
        self.opened.len
    }

    fn block_len(&self) -> u32 {
        self.opened.block_len
    }

    fn read_at(&self, offset: u64, len: usize) -> LocalFuture<io::Result<AlignedBuf>> {
        if let Err(error) = self.opened.check(offset, len as u64) {
            return Box::pin(ready(Err(error)));
        }
        if len == 0 {
            return Box::pin(ready(Ok(AlignedBuf::scratch(0))));
        }
        let (uring, opened) = (self.uring.clone(), self.opened.clone());
        let mut op = start_read(&uring, &opened, AlignedBuf::scratch(len), 0, offset);
        Box::pin(async move {
            let mut filled = 0;
            loop {
                let (result, memory) = op.await;
                let Memory::Read(buf) = memory else { unreachable!("given above") };
                match outcome(result) {
                    Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                    Ok(read) => filled += read,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
                if filled == len {
                    return Ok(buf);
                }
                op = start_read(&uring, &opened, buf, filled, offset);
            }
        })
    }

    fn write_until(
        &self,
        until: Until,
        offset: u64,
        bufs: Vec<Bytes>,
    ) -> LocalFuture<io::Result<()>> {
        let len = bufs.iter().map(|buf| buf.len() as u64).sum();
        if let Err(error) = self.opened.check_write(offset, len) {
            return Box::pin(ready(Err(error)));
        }
        if len == 0 {
            return Box::pin(ready(Ok(())));
        }
        let (uring, opened) = (self.uring.clone(), self.opened.clone());
        let bufs = Vectored::new(self.opened.fit(bufs));
        let mut op = start_write(&uring, &opened, bufs, offset, until);
        Box::pin(async move {
            let mut offset = offset;
            loop {
                let (result, memory) = op.await;
                let Memory::Vectored(mut bufs) = memory else { unreachable!("given above") };
                let written = match outcome(result) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(written) => written,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
                    Err(error) => return Err(error),
                };
                if !bufs.advance(written) {
                    return Ok(());
                }
                offset += written as u64;
                op = start_write(&uring, &opened, bufs, offset, until);
            }
        })
    }

    fn sync(&self) -> LocalFuture<io::Result<()>> {
        let entry = opcode::Fsync::new(self.raw()).flags(FsyncFlags::DATASYNC).build();
        // SAFETY: no memory is given to the kernel; the descriptor is held.
        let op = unsafe { self.uring.start(self.held(Memory::Nothing), |_| entry) };
        Box::pin(async move { outcome(op.await.0).map(drop) })
    }

    fn discard(&self, offset: u64, len: u64) -> LocalFuture<io::Result<()>> {
        if let Err(error) = self.opened.check_write(offset, len) {
            return Box::pin(ready(Err(error)));
        }
        if len == 0 {
            return Box::pin(ready(Ok(())));
        }
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let entry = opcode::Fallocate::new(self.raw(), len).offset(offset).mode(mode).build();
        // SAFETY: no memory is given to the kernel; the descriptor is held.
        let op = unsafe { self.uring.start(self.held(Memory::Nothing), |_| entry) };
        Box::pin(async move {
            match outcome(op.await.0) {
                Err(error) if error.raw_os_error() != Some(libc::EOPNOTSUPP) => Err(error),
                _ => Ok(()),
            }
        })
    }
}
