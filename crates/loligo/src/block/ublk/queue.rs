//! The requests of a device: each tag of each queue is a task that waits for a request, does it
//! and gives the result back with the question for the next one. So as many requests are under
//! way as there are tags, and nothing is queued here.
//!
//! The bytes of requests are copied by reads and writes of the device's file (`USER_COPY`), not
//! through buffers that the kernel fills: a write's bytes go straight to memory that the messenger
//! may keep for as long as it likes, a read's go straight from the network's buffers to the
//! request. That is one copy each way, as little as there can be without changes to the client.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::rc::Rc;

use bytes::Bytes;
use client::rbd::Image;
use env::Env;
use env::sync::{Notify, Semaphore};
use types::BufferList;

use super::ring::Ring;
use super::wire::{self, DESCRIPTOR_LEN, Descriptor, DeviceInfo, SECTOR, kind, op};
use crate::block::requests::{BYTES_MAX, Request, errno, perform};

/// The requests of a device, and what is shared by its tasks.
pub(super) struct Queues {
    name: String,
    image: Image,
    ring: Rc<Ring>,
    file: Rc<File>,
    queues: Vec<Descriptors>,
    bytes: Semaphore,
    max_request_bytes: u32,
    /// Tags whose task lives.
    serving: Cell<u32>,
    ended: Notify,
    /// Why a tag is served no more, other than that the device is stopped.
    failed: RefCell<Option<io::Error>>,
}

impl Queues {
    /// Lets all tags of a device wait for requests. `file` is `/dev/ublkcN`.
    pub(super) fn serve(
        env: &Env,
        ring: &Rc<Ring>,
        file: File,
        info: &DeviceInfo,
        image: &Image,
        name: String,
    ) -> io::Result<Rc<Queues>> {
        let queues: io::Result<Vec<Descriptors>> =
            (0..info.queues).map(|queue| Descriptors::map(&file, queue, info.depth)).collect();
        let all = Rc::new(Queues {
            name,
            image: image.clone(),
            ring: ring.clone(),
            file: Rc::new(file),
            queues: queues?,
            bytes: Semaphore::new(BYTES_MAX),
            max_request_bytes: info.max_request_bytes,
            serving: Cell::new(u32::from(info.queues) * u32::from(info.depth)),
            ended: Notify::default(),
            failed: RefCell::default(),
        });
        for queue in 0..info.queues {
            for tag in 0..info.depth {
                let all = all.clone();
                env.go(async move {
                    all.serve_tag(queue, tag).await;
                    all.serving.set(all.serving.get() - 1);
                    all.ended.notify_all();
                });
            }
        }
        Ok(all)
    }

    /// Completes when a tag is served no more: the device is being stopped (`None`) or broken.
    pub(super) async fn ends(&self) -> Option<io::Error> {
        let tags = self.serving.get();
        self.ended.until(|| self.serving.get() < tags || self.failed.borrow().is_some()).await;
        self.failed.borrow_mut().take()
    }

    /// Completes when no tag is served any more.
    pub(super) async fn end(&self) {
        self.ended.until(|| self.serving.get() == 0).await;
    }

    async fn serve_tag(&self, queue: u16, tag: u16) {
        let (mut code, mut result) = (op::FETCH, -1);
        loop {
            let fill = |_: &mut [u8]| wire::io(queue, tag, result);
            let (asked, _) = self.ring.command(self.file.clone(), code, Box::default(), fill).await;
            match asked {
                0 => {}
                // The device is stopped.
                e if e == -libc::ENODEV => return,
                e => {
                    let error = io::Error::from_raw_os_error(-e);
                    tracing::error!("{}: the kernel refuses queue {queue}: {error}", self.name);
                    self.failed.borrow_mut().get_or_insert(error);
                    return;
                }
            }
            let request = self.queues[usize::from(queue)].read(tag);
            result = match self.handle(queue, tag, request).await {
                Ok(bytes) => bytes as i32,
                Err(number) => -number,
            };
            code = op::COMMIT_AND_FETCH;
        }
    }

    /// Does a request: the bytes it moved, or an error's number.
    async fn handle(&self, queue: u16, tag: u16, request: Descriptor) -> Result<u32, i32> {
        let (offset, len) = (request.first_sector.checked_mul(SECTOR), request.bytes());
        let offset = offset.ok_or(libc::EINVAL)?;
        let moves = matches!(request.kind, kind::READ | kind::WRITE);
        if moves && len > u64::from(self.max_request_bytes) {
            return Err(libc::EINVAL);
        }
        // No more memory than this, however many tags and however large their requests.
        let _room = self.bytes.acquire(if moves { len.max(1) } else { 1 }).await;
        let at = wire::data_offset(queue, tag);
        let asked = match request.kind {
            kind::READ => Request::Read(offset, len),
            kind::WRITE => {
                Request::Write(offset, self.take(at, len).map_err(|e| self.no_copy(&e))?)
            }
            kind::DISCARD => Request::Discard(offset, len),
            kind::WRITE_ZEROES => Request::WriteZeroes(offset, len),
            kind::FLUSH => Request::Flush,
            _ => return Err(libc::EOPNOTSUPP),
        };
        let data = perform(&self.image, asked).await.map_err(|error| {
            tracing::warn!(
                "{}: request {} of {len} bytes at {offset}: {error}",
                self.name,
                request.kind
            );
            errno(&error)
        })?;
        match request.kind {
            kind::READ => {
                self.give(at, &data).map_err(|e| self.no_copy(&e))?;
                Ok(data.len() as u32)
            }
            kind::WRITE => Ok(len as u32),
            _ => Ok(0),
        }
    }

    /// The bytes of a write.
    fn take(&self, at: u64, len: u64) -> io::Result<Bytes> {
        let mut data = vec![0; len as usize];
        self.file.read_exact_at(&mut data, at)?;
        Ok(data.into())
    }

    /// Gives a read its bytes.
    fn give(&self, mut at: u64, data: &BufferList) -> io::Result<()> {
        for piece in data.pieces() {
            self.file.write_all_at(piece, at)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    fn no_copy(&self, error: &io::Error) -> i32 {
        tracing::warn!("{}: the bytes of a request cannot be copied: {error}", self.name);
        libc::EIO
    }
}

/// The mapped descriptors of a queue: the kernel writes one before it completes the command of
/// that tag, and not again before the tag asks for the next request.
struct Descriptors {
    first: NonNull<u8>,
    len: usize,
    depth: u16,
}

impl Descriptors {
    fn map(file: &File, queue: u16, depth: u16) -> io::Result<Descriptors> {
        // SAFETY: no memory is passed.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let page = usize::try_from(page).map_err(|_| io::Error::last_os_error())?;
        let (len, offset) = wire::descriptors(queue, depth, page);
        let (fd, offset) = (file.as_raw_fd(), offset as libc::off_t);
        let null = std::ptr::null_mut();
        // SAFETY: a new mapping at a place of the kernel's choice overlaps nothing of ours.
        let at = unsafe { libc::mmap(null, len, libc::PROT_READ, libc::MAP_SHARED, fd, offset) };
        match NonNull::new(at.cast()) {
            Some(first) if at != libc::MAP_FAILED => Ok(Descriptors { first, len, depth }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn read(&self, tag: u16) -> Descriptor {
        assert!(tag < self.depth, "tag {tag} of {}", self.depth);
        // SAFETY: the mapping holds `depth` descriptors and lives as long as this. The kernel does
        // not write this one now (see above); the completion's acquire ordered its writes before.
        // Volatile, as the compiler does not know of the other writer.
        let bytes = unsafe {
            let at = self.first.add(usize::from(tag) * DESCRIPTOR_LEN);
            at.cast::<[u8; DESCRIPTOR_LEN]>().read_volatile()
        };
        Descriptor::decode(&bytes)
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing points into it any more.
        unsafe { libc::munmap(self.first.as_ptr().cast(), self.len) };
    }
}
