//! Connections: two pipes, each a queue of chunks with their times of arrival.
//!
//! Nothing is scheduled for a chunk: the reader sleeps until the first one has arrived. A chunk
//! sent into a blocked direction has no time of arrival until the direction is open again.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn, ready};
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use env::sync::Notify;
use env::{AlignedBuf, LocalFuture, Stream};

use crate::network::HostId;
use crate::process::Process;
use crate::trace::fold;

/// Bytes a direction holds that are not yet read; a sender waits for room.
const WINDOW_BYTES: usize = 2 << 20;
/// Times of the answer to a message sent to a host that has forgotten the connection.
const RESET_AFTER_MIN: Duration = Duration::from_millis(1);
const RESET_AFTER_MAX: Duration = Duration::from_secs(2);

/// A connection. Side 0 connected, side 1 accepted; pipe `n` carries what side `n` sends.
pub(crate) struct Connection {
    number: u64,
    sides: [Side; 2],
    pipes: [Pipe; 2],
}

struct Side {
    process: Rc<Process>,
    addr: Option<SocketAddr>,
    state: Cell<SideState>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SideState {
    Open,
    /// Closed, and the other side is told.
    Closed,
    /// Its host lost power: the other side is told nothing.
    Silent,
}

#[derive(Default)]
struct Pipe {
    queue: RefCell<PipeQueue>,
    readable: Notify,
    writable: Notify,
}

/// Bound: [`WINDOW_BYTES`] of chunks.
#[derive(Default)]
struct PipeQueue {
    chunks: VecDeque<Chunk>,
    bytes: usize,
    last_arrival: Duration,
    /// The sender has closed, behind all chunks.
    end: Option<Arrival>,
    /// What the reader sees is a reset, before any chunk.
    reset: Option<Arrival>,
}

struct Chunk {
    arrival: Arrival,
    data: Bytes,
}

/// When something reaches the reader: held up by a blocked link if `None`.
type Arrival = Option<Duration>;

impl Connection {
    pub(crate) fn new(
        number: u64,
        connecting: (Rc<Process>, Option<SocketAddr>),
        accepting: (Rc<Process>, Option<SocketAddr>),
    ) -> Rc<Connection> {
        let sides = [connecting, accepting].map(|(process, addr)| Side {
            process,
            addr,
            state: Cell::new(SideState::Open),
        });
        Rc::new(Connection { number, sides, pipes: Default::default() })
    }

    fn host(&self, side: usize) -> HostId {
        self.sides[side].process.host
    }

    /// Whether it runs between these hosts, in either direction.
    pub(crate) fn joins(&self, one: HostId, other: HostId) -> bool {
        let hosts = [self.host(0), self.host(1)];
        hosts == [one, other] || hosts == [other, one]
    }

    /// When something that `side` sends now arrives.
    fn arrival(&self, side: usize) -> Arrival {
        let (from, to) = (self.host(side), self.host(1 - side));
        let world = &self.sides[side].process.world;
        if world.network.is_blocked(from, to) {
            return None;
        }
        Some(world.now() + world.network.link(from, to).delay(&world.rng))
    }

    /// Both sides find the connection reset.
    pub(crate) fn reset(&self) {
        for side in [0, 1] {
            self.reset_reader_of(side, self.arrival(side));
        }
    }

    /// Both sides find the connection reset; the reader of what `side` sends, now and then, behind
    /// what was sent.
    fn reset_behind(&self, side: usize) {
        let world = &self.sides[side].process.world;
        let last = self.pipes[side].queue.borrow().last_arrival;
        let behind = self.arrival(side).map(|at| match world.rng.chance(0.5) {
            true => at.max(last),
            false => at,
        });
        self.reset_reader_of(side, behind);
        self.reset_reader_of(1 - side, self.arrival(1 - side));
    }

    /// The reader of what `side` sends finds the connection reset at that time.
    fn reset_reader_of(&self, side: usize, arrival: Arrival) {
        let pipe = &self.pipes[side];
        pipe.queue.borrow_mut().reset.get_or_insert(arrival);
        pipe.readable.notify_all();
        self.pipes[1 - side].writable.notify_all();
    }

    /// Gives what was held up between these hosts its time.
    pub(crate) fn release(&self, from: HostId, to: HostId, now: Duration) {
        for (side, pipe) in self.pipes.iter().enumerate() {
            if (self.host(side), self.host(1 - side)) != (from, to) {
                continue;
            }
            let world = &self.sides[side].process.world;
            let at = now + world.network.link(from, to).delay(&world.rng);
            let mut queue = pipe.queue.borrow_mut();
            let at = at.max(queue.last_arrival);
            queue.last_arrival = at;
            let queue = &mut *queue;
            let chunks = queue.chunks.iter_mut().map(|chunk| &mut chunk.arrival);
            for arrival in chunks.chain(&mut queue.end).chain(&mut queue.reset) {
                arrival.get_or_insert(at);
            }
            pipe.readable.notify_all();
        }
    }

    /// Ends the sides that belong to this process.
    pub(crate) fn end_sides_of(&self, process: &Rc<Process>, silently: bool) {
        for side in [0, 1] {
            if Rc::ptr_eq(&self.sides[side].process, process) {
                self.end_side(side, silently);
            }
        }
    }

    /// A side is closed, or its host falls silent.
    pub(crate) fn end_side(&self, side: usize, silently: bool) {
        if self.sides[side].state.get() != SideState::Open {
            return;
        }
        let (outgoing, incoming) = (&self.pipes[side], &self.pipes[1 - side]);
        let mut unread = incoming.queue.borrow_mut();
        let had_unread = !unread.chunks.is_empty();
        unread.chunks.clear();
        unread.bytes = 0;
        drop(unread);
        if silently {
            self.sides[side].state.set(SideState::Silent);
        } else {
            self.sides[side].state.set(SideState::Closed);
            let arrival = self.arrival(side);
            let mut queue = outgoing.queue.borrow_mut();
            queue.end = Some(arrival.map(|at| at.max(queue.last_arrival)));
            if had_unread {
                queue.reset.get_or_insert(arrival);
            }
        }
        for pipe in [outgoing, incoming] {
            pipe.readable.notify_all();
            pipe.writable.notify_all();
        }
    }

    /// The host of a silent side is up again: what it was sent meanwhile is answered by a reset.
    pub(crate) fn host_is_up_again(&self, host: HostId) {
        for side in [0, 1] {
            let waits = self.pipes[1 - side].queue.borrow().bytes > 0;
            if self.host(side) == host && self.sides[side].state.get() == SideState::Silent && waits
            {
                self.answer_with_reset(side);
            }
        }
    }

    /// `side` knows nothing of the connection and says so.
    fn answer_with_reset(&self, side: usize) {
        let world = &self.sides[side].process.world;
        let later = world.rng.between(RESET_AFTER_MIN, RESET_AFTER_MAX);
        self.reset_reader_of(side, self.arrival(side).map(|at| at + later));
    }
}

fn has_come(arrival: Option<Arrival>, now: Duration) -> bool {
    matches!(arrival, Some(Some(at)) if at <= now)
}

/// One side of a connection, as its process holds it.
pub(crate) struct SimStream {
    connection: Rc<Connection>,
    side: usize,
}

impl SimStream {
    pub(crate) fn new(connection: Rc<Connection>, side: usize) -> SimStream {
        SimStream { connection, side }
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        let silently = self.connection.sides[self.side].process.silent.get();
        self.connection.end_side(self.side, silently);
    }
}

/// What a reader finds.
enum Found {
    Bytes(usize),
    Broken(io::Error),
    Nothing { until: Option<Duration> },
}

/// Waits until something has come, and gives at most `room` bytes of it to `put`.
async fn read(
    connection: &Connection,
    side: usize,
    room: usize,
    mut put: impl FnMut(&[u8]),
) -> io::Result<usize> {
    let timers = connection.sides[side].process.world.timers.clone();
    loop {
        let event = connection.pipes[1 - side].readable.notified();
        match read_some(connection, side, room, &mut put) {
            Found::Bytes(read) => return Ok(read),
            Found::Broken(error) => return Err(error),
            Found::Nothing { until } => {
                wait(event, until.map(|at| timers.sleep_until(at))).await;
            }
        }
    }
}

fn read_some(
    connection: &Connection,
    side: usize,
    mut room: usize,
    put: &mut impl FnMut(&[u8]),
) -> Found {
    let world = &connection.sides[side].process.world;
    let now = world.now();
    if connection.sides[side].state.get() != SideState::Open {
        return Found::Bytes(0);
    }
    let pipe = &connection.pipes[1 - side];
    let mut queue = pipe.queue.borrow_mut();
    if has_come(queue.reset, now) {
        return Found::Broken(io::ErrorKind::ConnectionReset.into());
    }
    // Now and then a short read, which TCP allows anywhere.
    if room > 1 && world.rng.chance(1.0 / 32.0) {
        room = 1 + world.rng.below(room.min(256) as u64 - 1) as usize;
    }
    let mut read = 0;
    while let Some(chunk) = queue.chunks.front_mut()
        && room > 0
        && chunk.arrival.is_some_and(|at| at <= now)
    {
        let step = room.min(chunk.data.len());
        put(&chunk.data[..step]);
        chunk.data.advance(step);
        if chunk.data.is_empty() {
            queue.chunks.pop_front();
        }
        queue.bytes -= step;
        room -= step;
        read += step;
    }
    if read > 0 {
        drop(queue);
        pipe.writable.notify_all();
        world.record("recv", connection.number << 1 | side as u64, read as u64);
        return Found::Bytes(read);
    }
    if queue.chunks.is_empty() && has_come(queue.end, now) {
        return Found::Bytes(0);
    }
    let next = match queue.chunks.front() {
        Some(chunk) => chunk.arrival,
        None => queue.end.flatten(),
    };
    let reset = queue.reset.flatten();
    Found::Nothing { until: next.into_iter().chain(reset).min() }
}

/// Sends what there is room for, taking it from `bufs`; the room's end is `Ok(false)`.
fn send_some(connection: &Connection, side: usize, bufs: &mut VecDeque<Bytes>) -> io::Result<bool> {
    let world = &connection.sides[side].process.world;
    let now = world.now();
    let other = &connection.sides[1 - side];
    if connection.sides[side].state.get() != SideState::Open {
        return Err(io::ErrorKind::BrokenPipe.into());
    }
    let (reset, end) = {
        let incoming = connection.pipes[1 - side].queue.borrow();
        (incoming.reset, incoming.end)
    };
    if has_come(reset, now) {
        return Err(io::ErrorKind::ConnectionReset.into());
    }
    if other.state.get() == SideState::Closed && has_come(end, now) {
        return Err(io::ErrorKind::BrokenPipe.into());
    }
    while bufs.front().is_some_and(Bytes::is_empty) {
        bufs.pop_front();
    }
    if bufs.is_empty() {
        return Ok(true);
    }
    let mut queue = connection.pipes[side].queue.borrow_mut();
    let mut room = WINDOW_BYTES.saturating_sub(queue.bytes);
    if room == 0 {
        return Ok(false);
    }
    let link = world.network.link(connection.host(side), connection.host(1 - side));
    let mut arrival = connection.arrival(side);
    // A connection that is reset may be so at any byte: the reader has a part of this, or none.
    let reset = world.rng.chance(link.reset);
    if reset {
        let len = bufs.iter().map(Bytes::len).sum::<usize>().min(room);
        room = world.rng.below(len as u64 + 1) as usize;
    }
    let (mut sent, mut content) = (0, 0u64);
    while room > 0 {
        let Some(front) = bufs.front_mut() else { break };
        let data = front.split_to(room.min(front.len()));
        if front.is_empty() {
            bufs.pop_front();
        }
        if data.is_empty() {
            continue;
        }
        room -= data.len();
        sent += data.len();
        content = content.rotate_left(9) ^ fold(&data);
        if let Some(at) = &mut arrival {
            *at = (*at).max(queue.last_arrival) + link.transfer(data.len());
            queue.last_arrival = *at;
        }
        // A closed reader's bytes go nowhere.
        if other.state.get() != SideState::Closed {
            queue.bytes += data.len();
            queue.chunks.push_back(Chunk { arrival, data });
        }
    }
    drop(queue);
    world.record("send", connection.number << 1 | side as u64, content ^ sent as u64);
    connection.pipes[side].readable.notify_all();
    if reset {
        connection.reset_behind(side);
    }
    if other.state.get() == SideState::Silent && world.is_up(other.process.host) {
        connection.answer_with_reset(1 - side);
    }
    Ok(bufs.is_empty())
}

/// Waits for an event, or a time if there is one.
async fn wait(event: impl Future<Output = ()>, time: Option<LocalFuture<()>>) {
    let mut event = pin!(event);
    let mut time = time;
    poll_fn(|cx| {
        if event.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        match &mut time {
            Some(time) => time.as_mut().poll(cx),
            None => Poll::Pending,
        }
    })
    .await
}

impl Stream for SimStream {
    fn recv(&self, mut buf: BytesMut) -> LocalFuture<(io::Result<usize>, BytesMut)> {
        if buf.capacity() == buf.len() {
            return Box::pin(ready((Err(io::ErrorKind::InvalidInput.into()), buf)));
        }
        let (connection, side) = (self.connection.clone(), self.side);
        Box::pin(async move {
            let room = buf.capacity() - buf.len();
            let result = read(&connection, side, room, |bytes| buf.put_slice(bytes)).await;
            (result, buf)
        })
    }

    fn recv_into(
        &self,
        mut buf: AlignedBuf,
        range: Range<usize>,
    ) -> LocalFuture<(io::Result<usize>, AlignedBuf)> {
        if range.is_empty() || range.end > buf.len() {
            return Box::pin(ready((Err(io::ErrorKind::InvalidInput.into()), buf)));
        }
        let (connection, side) = (self.connection.clone(), self.side);
        Box::pin(async move {
            let mut at = range.start;
            let put = |bytes: &[u8]| {
                buf.copy_from_slice_at(at, bytes);
                at += bytes.len();
            };
            let result = read(&connection, side, range.len(), put).await;
            (result, buf)
        })
    }

    fn send(&self, bufs: Vec<Bytes>) -> LocalFuture<io::Result<()>> {
        let (connection, side) = (self.connection.clone(), self.side);
        let mut bufs = VecDeque::from(bufs);
        Box::pin(async move {
            let timers = connection.sides[side].process.world.timers.clone();
            loop {
                let event = connection.pipes[side].writable.notified();
                if send_some(&connection, side, &mut bufs)? {
                    return Ok(());
                }
                // Reset and end come to the other pipe, at their times.
                let until = {
                    let incoming = connection.pipes[1 - side].queue.borrow();
                    let now = connection.sides[side].process.world.now();
                    let times = [incoming.reset.flatten(), incoming.end.flatten()];
                    times.into_iter().flatten().filter(|at| *at > now).min()
                };
                wait(event, until.map(|at| timers.sleep_until(at))).await;
            }
        })
    }

    fn close(&self) {
        self.connection.end_side(self.side, false);
    }

    fn peer_addr(&self) -> Option<SocketAddr> {
        self.connection.sides[1 - self.side].addr
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        self.connection.sides[self.side].addr
    }
}
