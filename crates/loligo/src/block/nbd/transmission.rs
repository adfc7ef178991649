//! Requests and replies of one connection: requests run beside one another, replies go in the
//! order in which they are ready, all that are ready with one send.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bytes::{BufMut, Bytes, BytesMut};
use client::ClientError;
use client::rbd::is_hole;
use env::sync::{Notify, Permit, Semaphore};
use env::{Env, Stream};
use types::{BufferList, Errno};

use super::handshake::{Agreed, End};
use super::incoming::Incoming;
use super::server::Export;
use super::wire::{
    ALLOCATION_ID, CHUNK_MAGIC, HOLE_AND_ZERO, PAYLOAD_MAX, REQUEST_MAGIC, SIMPLE_MAGIC, chunk,
    command, command_flags,
};
use crate::block::requests::{self, BYTES_MAX, errno, perform};

/// Requests under way of one connection; the next is not read before one is done.
const REQUESTS_MAX: u64 = 256;
/// Stretches told by one answer about allocation.
const STRETCHES_MAX: usize = 4096;
/// Bytes looked at by one answer about allocation.
const STATUS_MAX: u64 = 1 << 30;

struct Link {
    export: Rc<Export>,
    structured: bool,
    allocation: bool,
    stream: Rc<dyn Stream>,
    ready: RefCell<Ready>,
    sending: Cell<bool>,
    broken: Cell<bool>,
    idle: Notify,
}

/// Replies that are ready.
#[derive(Default)]
struct Ready {
    bufs: Vec<Bytes>,
    /// The requests they answer: under way until the client has taken the replies, which bounds them.
    answered: Vec<(Permit, Permit)>,
}

struct Request {
    flags: u16,
    kind: u16,
    cookie: u64,
    offset: u64,
    len: u32,
}

/// Serves until the client leaves or breaks the protocol.
pub(super) async fn transmit(
    env: &Env,
    stream: &Rc<dyn Stream>,
    mut incoming: Incoming,
    agreed: Agreed,
) -> End {
    let link = Rc::new(Link {
        export: agreed.export,
        structured: agreed.structured,
        allocation: agreed.allocation,
        stream: stream.clone(),
        ready: RefCell::default(),
        sending: Cell::new(false),
        broken: Cell::new(false),
        idle: Notify::default(),
    });
    let (requests, bytes) = (Semaphore::new(REQUESTS_MAX), Semaphore::new(BYTES_MAX));
    let end = loop {
        let request = match read_request(&mut incoming).await {
            Ok(request) => request,
            Err(end) => break end,
        };
        if request.kind == command::DISC {
            break End::Done;
        }
        let moves = matches!(request.kind, command::READ | command::WRITE);
        if request.kind == command::WRITE && request.len > PAYLOAD_MAX {
            break End::Malformed(format!("a write of {} bytes", request.len));
        }
        let place = requests.acquire(1).await;
        let cost = if moves { u64::from(request.len).max(1) } else { 1 };
        let room = bytes.acquire(cost).await;
        let payload = match request.kind {
            command::WRITE => match incoming.take(request.len as usize).await {
                Ok(payload) => payload,
                Err(e) => break End::Io(e),
            },
            _ => Bytes::new(),
        };
        let of = link.clone();
        let env_of = env.clone();
        env.go(async move {
            let reply = of.handle(&request, payload).await;
            of.queue(&env_of, reply, (place, room));
        });
    };
    // What was accepted is done and answered.
    drop(requests.acquire(REQUESTS_MAX).await);
    link.idle.until(|| !link.sending.get()).await;
    end
}

async fn read_request(incoming: &mut Incoming) -> Result<Request, End> {
    let magic = incoming.u32().await?;
    if magic != REQUEST_MAGIC {
        return Err(End::Malformed(format!("a request begins with {magic:#x}")));
    }
    Ok(Request {
        flags: incoming.u16().await?,
        kind: incoming.u16().await?,
        cookie: incoming.u64().await?,
        offset: incoming.u64().await?,
        len: incoming.u32().await?,
    })
}

/// What a request gives.
enum Done {
    Nothing,
    Data(BufferList),
    Status(Vec<(u32, u32)>),
}

impl Link {
    async fn handle(&self, request: &Request, payload: Bytes) -> Vec<Bytes> {
        match self.perform(request, payload).await {
            Ok(Done::Nothing) if self.structured => {
                vec![self.chunk(request, chunk::DONE, chunk::NONE, 0, |_| ())]
            }
            Ok(Done::Nothing) => vec![simple(request, 0)],
            Ok(Done::Data(data)) if self.structured => self.data_chunks(request, &data),
            Ok(Done::Data(data)) => {
                let mut reply = vec![simple(request, 0)];
                reply.extend(data.pieces().iter().cloned());
                reply
            }
            Ok(Done::Status(stretches)) => {
                let len = 4 + 8 * stretches.len();
                vec![self.chunk(request, chunk::DONE, chunk::BLOCK_STATUS, len, |b| {
                    b.put_u32(ALLOCATION_ID);
                    for (len, state) in &stretches {
                        b.put_u32(*len);
                        b.put_u32(*state);
                    }
                })]
            }
            Err(error) => {
                let (code, text) = (errno(&error).cast_unsigned(), error.to_string());
                tracing::debug!("request {} of {}: {text}", request.kind, self.export.name);
                if !self.structured {
                    return vec![simple(request, code)];
                }
                let text = &text.as_bytes()[..text.len().min(1024)];
                vec![self.chunk(request, chunk::DONE, chunk::ERROR, 6 + text.len(), |b| {
                    b.put_u32(code);
                    b.put_u16(text.len() as u16);
                    b.put_slice(text);
                })]
            }
        }
    }

    async fn perform(&self, request: &Request, payload: Bytes) -> Result<Done, ClientError> {
        use command_flags as f;
        let allowed = match request.kind {
            command::READ => f::FUA | f::DF,
            command::WRITE_ZEROES => f::FUA | f::NO_HOLE | f::FAST_ZERO,
            command::BLOCK_STATUS => f::REQ_ONE | f::FUA,
            _ => f::FUA,
        };
        if request.flags & !allowed != 0 {
            return Err(Errno::EINVAL.into());
        }
        let (offset, len) = (request.offset, u64::from(request.len));
        let asked = match request.kind {
            command::READ if request.len > PAYLOAD_MAX => return Err(Errno::EINVAL.into()),
            command::READ => requests::Request::Read(offset, len),
            command::WRITE => requests::Request::Write(offset, payload),
            command::TRIM => requests::Request::Discard(offset, len),
            command::WRITE_ZEROES if request.flags & f::FAST_ZERO != 0 => {
                return Err(Errno::EOPNOTSUPP.into());
            }
            command::WRITE_ZEROES => requests::Request::WriteZeroes(offset, len),
            command::FLUSH => requests::Request::Flush,
            command::CACHE | command::BLOCK_STATUS => {
                let end = offset.checked_add(len).ok_or(Errno::EINVAL)?;
                let answers = request.kind == command::CACHE || (self.allocation && len > 0);
                if end > self.export.image.size() || !answers {
                    return Err(Errno::EINVAL.into());
                }
                return match request.kind {
                    command::CACHE => Ok(Done::Nothing),
                    _ => self.status(request).await,
                };
            }
            command::RESIZE => return Err(Errno::EOPNOTSUPP.into()),
            _ => return Err(Errno::EINVAL.into()),
        };
        let data = perform(&self.export.image, asked).await?;
        Ok(if request.kind == command::READ { Done::Data(data) } else { Done::Nothing })
    }

    /// Which parts of a range hold something.
    async fn status(&self, request: &Request) -> Result<Done, ClientError> {
        let image = &self.export.image;
        if !image.is_read_only() && !image.is_lock_owner() && image.wants_lock() {
            // The object map is true only for the lock's owner. Who does not give the lock away
            // can be read from all the same: then no map is known.
            match image.lock().await {
                Ok(()) | Err(ClientError::Errno(Errno::EBUSY | Errno::EROFS)) => {}
                Err(e) => return Err(e),
            }
        }
        let len = u64::from(request.len).min(STATUS_MAX);
        let known = image.allocation(request.offset, len).unwrap_or_else(|| vec![(len, true)]);
        let most = match request.flags & command_flags::REQ_ONE {
            0 => STRETCHES_MAX,
            _ => 1,
        };
        let state = |allocated: bool| if allocated { 0 } else { HOLE_AND_ZERO };
        let told = known.into_iter().take(most);
        Ok(Done::Status(told.map(|(len, there)| (len as u32, state(there))).collect()))
    }

    fn chunk(
        &self,
        request: &Request,
        flags: u16,
        kind: u16,
        len: usize,
        body: impl FnOnce(&mut BytesMut),
    ) -> Bytes {
        let mut b = BytesMut::with_capacity(20 + len.min(1 << 16));
        b.put_u32(CHUNK_MAGIC);
        b.put_u16(flags);
        b.put_u16(kind);
        b.put_u64(request.cookie);
        b.put_u32(len as u32);
        body(&mut b);
        b.freeze()
    }

    /// Data, and holes where it is known that there is none.
    fn data_chunks(&self, request: &Request, data: &BufferList) -> Vec<Bytes> {
        // Neighbours of one kind go together.
        let mut runs: Vec<(bool, u64, Vec<Bytes>)> = Vec::new();
        let whole = request.flags & command_flags::DF != 0;
        for piece in data.pieces() {
            let hole = !whole && is_hole(piece);
            match runs.last_mut() {
                Some(last) if last.0 == hole => {
                    last.1 += piece.len() as u64;
                    last.2.push(piece.clone());
                }
                _ => runs.push((hole, piece.len() as u64, vec![piece.clone()])),
            }
        }
        if runs.is_empty() {
            return vec![self.chunk(request, chunk::DONE, chunk::NONE, 0, |_| ())];
        }
        let (mut reply, mut at, count) = (Vec::new(), request.offset, runs.len());
        for (i, (hole, len, pieces)) in runs.into_iter().enumerate() {
            let flags = if i + 1 == count { chunk::DONE } else { 0 };
            if hole {
                reply.push(self.chunk(request, flags, chunk::OFFSET_HOLE, 12, |b| {
                    b.put_u64(at);
                    b.put_u32(len as u32);
                }));
            } else {
                let size = 8 + len as usize;
                reply.push(self.chunk(request, flags, chunk::OFFSET_DATA, size, |b| b.put_u64(at)));
                reply.extend(pieces);
            }
            at += len;
        }
        reply
    }

    fn queue(self: &Rc<Self>, env: &Env, reply: Vec<Bytes>, request: (Permit, Permit)) {
        {
            let mut ready = self.ready.borrow_mut();
            ready.bufs.extend(reply);
            ready.answered.push(request);
        }
        if self.sending.replace(true) {
            return;
        }
        let link = self.clone();
        env.go(async move {
            loop {
                let Ready { bufs, answered } = std::mem::take(&mut *link.ready.borrow_mut());
                if bufs.is_empty() || link.broken.get() {
                    break;
                }
                if link.stream.send(bufs).await.is_err() {
                    link.broken.set(true);
                    link.stream.close();
                }
                drop(answered);
            }
            link.sending.set(false);
            link.idle.notify_all();
        });
    }
}

fn simple(request: &Request, error: u32) -> Bytes {
    let mut b = BytesMut::with_capacity(16);
    b.put_u32(SIMPLE_MAGIC);
    b.put_u32(error);
    b.put_u64(request.cookie);
    b.freeze()
}
