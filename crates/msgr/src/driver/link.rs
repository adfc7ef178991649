//! Reading from and writing to the socket of a ready session.

use core::fmt;
use std::rc::Rc;
use std::time::Duration;

use bytes::BytesMut;
use denc::Denc;
use types::BufferList;
use types::message::{MsgHeader, RawMessage};
use types::time::UTime;

use super::{RECV_LEN_MAX, RECV_LEN_MIN, fault};
use crate::connection::{Connection, Link};
use crate::control::Control;
use crate::dispatch::Incoming;
use crate::frame::{Frame, FrameError, FrameReader, FrameWriter, Preamble, SendBatch, tag};
use crate::throttle::Permit;

/// Bytes gathered for one send call; more wait for the next.
const BATCH_LEN_MAX: usize = 512 << 10;
/// Buffers of one send call.
const BATCH_BUFFERS_MAX: usize = 256;

/// How long a message that has come may be unacknowledged. What goes to the peer anyway tells it: of OSDs,
/// an answer within some milliseconds, so that nothing is sent, received and looked at for acknowledgements alone.
const ACK_DELAY: Duration = Duration::from_millis(50);

/// Why a ready session's socket is given up.
#[derive(Debug)]
enum Broken {
    Frame(FrameError),
    Decode(denc::Error),
    /// A frame that does not belong here.
    Tag(u8),
    /// A message without a whole header.
    Header,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Broken::Frame(e) => write!(f, "{e}"),
            Broken::Decode(e) => write!(f, "{e}"),
            Broken::Tag(tag) => write!(f, "unexpected frame, tag {tag}"),
            Broken::Header => f.write_str("a message without a header"),
        }
    }
}

impl From<FrameError> for Broken {
    fn from(e: FrameError) -> Broken {
        Broken::Frame(e)
    }
}

impl From<denc::Error> for Broken {
    fn from(e: denc::Error) -> Broken {
        Broken::Decode(e)
    }
}

/// Grows the buffer so that the next `recv` has room: for all that is missing, and for more if
/// bytes come in a stream.
pub(super) fn make_room(buf: &mut BytesMut, need: usize, chunk: usize) {
    let spare = buf.capacity() - buf.len();
    let missing = need.saturating_sub(buf.len());
    if spare < missing.max(chunk / 4) {
        buf.reserve(missing.max(chunk));
    }
}

/// Reads until the socket breaks or is taken away.
pub(super) async fn read(
    con: Connection,
    link: Rc<Link>,
    frames: FrameReader,
    mut buf: BytesMut,
    generation: u64,
) {
    let mut receiver = Receiver {
        frames,
        permits: [None, None],
    };
    let mut chunk = RECV_LEN_MIN;
    loop {
        if let Err(e) = receiver.drain(&con, &mut buf, generation).await {
            if con.0.generation.get() == generation {
                tracing::warn!(?con, "closing the connection: {e}");
                fault(&con, generation);
            }
            return;
        }
        if con.0.generation.get() != generation {
            return;
        }
        let result = match receiver.frames.lend() {
            Some((room, range)) => {
                let (result, room) = link.stream.recv_into(room, range).await;
                receiver.frames.give_back(room, *result.as_ref().unwrap_or(&0));
                // What follows is short, and the next message's data is to be received into its own
                // buffer, not together with what comes before it.
                chunk = RECV_LEN_MIN;
                result
            }
            None => {
                make_room(&mut buf, receiver.frames.need(), chunk);
                let room = buf.capacity() - buf.len();
                let result;
                (result, buf) = link.stream.recv(buf).await;
                if result.as_ref().is_ok_and(|n| *n == room) {
                    chunk = (chunk * 2).min(RECV_LEN_MAX);
                } else if result.as_ref().is_ok_and(|n| *n < chunk / 8) {
                    chunk = (chunk / 2).max(RECV_LEN_MIN);
                }
                result
            }
        };
        if con.0.generation.get() != generation {
            return;
        }
        match result {
            Ok(n) if n > 0 => link.last_active.set(con.0.env.recent()),
            result => {
                tracing::debug!(?con, ?result, "socket ended");
                return fault(&con, generation);
            }
        }
    }
}

/// Has the peer told of what has come: at once if that is much, else with the next message to it, or by
/// itself after [`ACK_DELAY`].
fn acknowledge(con: &Connection, at_once: bool) {
    let inner = &con.0;
    if at_once {
        inner.want_ack.set(true);
        inner.wake_link();
    } else if !inner.ack_timer.replace(true) {
        let con = con.clone();
        inner.env.go(async move {
            con.0.env.sleep(ACK_DELAY).await;
            con.0.ack_timer.set(false);
            if con.0.session.borrow().owes_ack() {
                con.0.want_ack.set(true);
                con.0.wake_link();
            }
        });
    }
}

/// Takes frames off the receive buffer.
struct Receiver {
    frames: FrameReader,
    /// Shares of the throttles for the message whose preamble has come.
    permits: [Option<Permit>; 2],
}

impl Receiver {
    /// Handles all whole frames of `buf`. Waits, with the rest of the bytes unread, while the
    /// policy's throttles are exhausted.
    async fn drain(
        &mut self,
        con: &Connection,
        buf: &mut BytesMut,
        generation: u64,
    ) -> Result<(), Broken> {
        while con.0.generation.get() == generation {
            let Some(preamble) = self.frames.preamble(buf)? else {
                break;
            };
            if preamble.tag == tag::MESSAGE && self.permits[1].is_none() {
                self.take_permits(con, &preamble).await;
            }
            match self.frames.body(buf)? {
                Some(frame) => self.on_frame(con, frame)?,
                None if self.frames.awaits_body() => break,
                None => self.permits = [None, None],
            }
        }
        Ok(())
    }

    async fn take_permits(&mut self, con: &Connection, preamble: &Preamble) {
        let policy = &con.0.policy;
        if let Some(throttle) = &policy.throttle_messages {
            self.permits[1] = Some(throttle.take(1).await);
        }
        if let Some(throttle) = &policy.throttle_bytes {
            self.permits[0] = Some(throttle.take(preamble.payload_len() as u64).await);
        }
    }

    fn on_frame(&mut self, con: &Connection, frame: Frame) -> Result<(), Broken> {
        if frame.tag == tag::MESSAGE {
            return self.on_message(con, frame);
        }
        let inner = &con.0;
        match Control::decode(frame.tag, frame.payload())? {
            Control::Keepalive2(time) => {
                inner.last_keepalive.set(Some(inner.env.now()));
                inner.keepalive_to_ack.set(Some(time));
                inner.wake_link();
            }
            Control::Keepalive2Ack(_) => inner.last_keepalive_ack.set(Some(inner.env.now())),
            Control::Ack(seq) => inner.session.borrow_mut().on_ack(seq),
            other => return Err(Broken::Tag(other.tag())),
        }
        Ok(())
    }

    fn on_message(&mut self, con: &Connection, frame: Frame) -> Result<(), Broken> {
        let inner = &con.0;
        let permits = core::mem::take(&mut self.permits);
        let [header, front, middle, data] = frame.segments;
        let data = BufferList::from(data).with_sums(frame.sums);
        if header.len() < MsgHeader::LEN {
            return Err(Broken::Header);
        }
        let header = MsgHeader::from_bytes(&header)?;
        let lossless = !inner.lossy.get();
        let (new, owes_much) = {
            let mut session = inner.session.borrow_mut();
            if lossless {
                session.on_ack(header.ack_seq);
            }
            let new = session.accept_seq(header.seq, front.len() + middle.len() + data.len());
            (new, session.owes_much())
        };
        if lossless {
            acknowledge(con, owes_much);
        }
        if !new {
            tracing::debug!(?con, seq = header.seq, "had this message before");
            return Ok(());
        }
        let Some(dispatcher) = inner.messenger.upgrade().and_then(|m| m.dispatcher()) else {
            return Ok(());
        };
        let message = RawMessage {
            header,
            front,
            middle,
            data,
        };
        let received = inner.env.recent();
        dispatcher.on_message(
            con,
            Incoming {
                message,
                received,
                permits,
            },
        );
        Ok(())
    }
}

/// Writes what is queued until the socket breaks or is taken away.
pub(super) async fn write(con: Connection, link: Rc<Link>, first: SendBatch, generation: u64) {
    let mut batch = first;
    loop {
        if con.0.generation.get() != generation {
            return;
        }
        gather(&con, &link, &mut batch);
        if batch.is_empty() {
            link.wake.wait().await;
            continue;
        }
        if let Err(e) = link.stream.send(batch.take()).await {
            tracing::debug!(?con, "cannot send: {e}");
            return fault(&con, generation);
        }
    }
}

/// Puts all that waits, up to a bound, into one batch.
fn gather(con: &Connection, link: &Link, batch: &mut SendBatch) {
    let inner = &con.0;
    let writer = &mut *link.writer.borrow_mut();
    let control = |frame: Control, writer: &mut FrameWriter, batch: &mut SendBatch| {
        writer.control(frame.tag(), &frame.payload(), batch);
    };
    if let Some(time) = inner.keepalive_to_ack.take() {
        control(Control::Keepalive2Ack(time), writer, batch);
    }
    if inner.want_keepalive.take() {
        let now = UTime::from_duration(inner.env.wall_clock());
        control(Control::Keepalive2(now), writer, batch);
    }
    let lossless = !inner.lossy.get();
    let mut session = inner.session.borrow_mut();
    while batch.len() < BATCH_LEN_MAX && batch.buffers() < BATCH_BUFFERS_MAX {
        let Some(message) = session.pop_next(lossless) else {
            break;
        };
        message_frame(&message, writer, batch);
    }
    if lossless && inner.want_ack.take() && session.owes_ack() {
        control(Control::Ack(session.tell()), writer, batch);
    }
}

fn message_frame(message: &RawMessage, writer: &mut FrameWriter, batch: &mut SendBatch) {
    let rest = [(&message.front).into(), (&message.middle).into(), (&message.data).into()];
    writer.frame(tag::MESSAGE, &message.header.to_wire(), rest, batch);
}
