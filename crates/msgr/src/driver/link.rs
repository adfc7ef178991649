//! Reading from and writing to the socket of a ready session, as frames; between daemons of one process
//! as values ([`super::within`]).

use core::fmt;
use std::rc::Rc;
use std::time::Duration;

use bytes::BytesMut;
use denc::Denc;
use types::BufferList;
use types::message::{MsgHeader, RawMessage};
use types::time::UTime;

use super::{RECV_LEN_MAX, RECV_LEN_MIN, fault, within};
use crate::connection::{Connection, Link};
use crate::control::Control;
use crate::dispatch::Incoming;
use crate::frame::{Frame, FrameError, FrameReader, FrameWriter, SendBatch, tag};
use crate::throttle::Permit;

/// Bytes gathered for one send call; more wait for the next.
pub(super) const BATCH_LEN_MAX: usize = 512 << 10;
/// Buffers of one send call.
const BATCH_BUFFERS_MAX: usize = 256;

/// How long a message that has come may be unacknowledged. What goes to the peer anyway tells it: of OSDs,
/// an answer within some milliseconds, so that nothing is sent, received and looked at for acknowledgements alone.
const ACK_DELAY: Duration = Duration::from_millis(50);

/// Why a ready session's socket is given up.
#[derive(Debug)]
pub(super) enum Broken {
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
/// bytes come in a stream. Buffers have few sizes, so that one that is free serves the next.
pub(super) fn make_room(buf: &mut BytesMut, need: usize, chunk: usize) {
    let room = need.saturating_sub(buf.len()).max(chunk / 4);
    if buf.capacity() - buf.len() < room {
        let capacity = (buf.len() + room).max(chunk);
        let capacity = match capacity <= RECV_LEN_MAX {
            true => capacity.next_power_of_two(),
            false => capacity,
        };
        buf.reserve(capacity - buf.len());
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
    if let Some(passage) = link.stream.passage() {
        return within::read(con, link, passage, generation).await;
    }
    let (mut frames, mut receiver) = (frames, Receiver::default());
    let mut chunk = RECV_LEN_MIN;
    loop {
        if let Err(e) = drain(&mut receiver, &mut frames, &con, &mut buf, generation).await {
            if con.0.generation.get() == generation {
                tracing::warn!(?con, "closing the connection: {e}");
                fault(&con, generation);
            }
            return;
        }
        if con.0.generation.get() != generation {
            return;
        }
        let result = match frames.lend() {
            Some((room, range)) => {
                let (result, room) = link.stream.recv_into(room, range).await;
                frames.give_back(room, *result.as_ref().unwrap_or(&0));
                // What follows is short, and the next message's data is to be received into its own
                // buffer, not together with what comes before it.
                chunk = RECV_LEN_MIN;
                result
            }
            None => {
                make_room(&mut buf, frames.need(), chunk);
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

/// Handles all whole frames of `buf`. Waits, with the rest of the bytes unread, while the policy's
/// throttles are exhausted.
async fn drain(
    receiver: &mut Receiver,
    frames: &mut FrameReader,
    con: &Connection,
    buf: &mut BytesMut,
    generation: u64,
) -> Result<(), Broken> {
    while con.0.generation.get() == generation {
        let Some(preamble) = frames.preamble(buf)? else { break };
        if preamble.tag == tag::MESSAGE && receiver.permits[1].is_none() {
            receiver.take_permits(con, preamble.payload_len()).await;
            if con.0.generation.get() != generation {
                break;
            }
        }
        match frames.body(buf)? {
            Some(frame) => receiver.on_frame(con, frame)?,
            None if frames.awaits_body() => break,
            None => receiver.permits = [None, None],
        }
    }
    Ok(())
}

/// Hands on what comes.
#[derive(Default)]
pub(super) struct Receiver {
    /// Shares of the throttles for the message that is coming.
    permits: [Option<Permit>; 2],
}

impl Receiver {
    /// Waits until the policy's throttles let a message of so many bytes in.
    pub(super) async fn take_permits(&mut self, con: &Connection, len: usize) {
        let policy = &con.0.policy;
        if let Some(throttle) = &policy.throttle_messages {
            self.permits[1] = Some(throttle.take(1).await);
        }
        if let Some(throttle) = &policy.throttle_bytes {
            self.permits[0] = Some(throttle.take(len as u64).await);
        }
    }

    fn on_frame(&mut self, con: &Connection, frame: Frame) -> Result<(), Broken> {
        if frame.tag == tag::MESSAGE {
            return self.on_message(con, frame);
        }
        self.on_control(con, Control::decode(frame.tag, frame.payload())?)
    }

    pub(super) fn on_control(&self, con: &Connection, control: Control) -> Result<(), Broken> {
        let inner = &con.0;
        match control {
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
        let [header, front, middle, data] = frame.segments;
        let data = BufferList::from(data).with_sums(frame.sums);
        if header.len() < MsgHeader::LEN {
            return Err(Broken::Header);
        }
        let header = MsgHeader::from_bytes(&header)?;
        self.take_message(con, RawMessage { header, front, middle, data });
        Ok(())
    }

    /// Hands a message on, unless it was had before.
    pub(super) fn take_message(&mut self, con: &Connection, message: RawMessage) {
        let inner = &con.0;
        let permits = core::mem::take(&mut self.permits);
        let header = &message.header;
        let lossless = !inner.lossy.get();
        let (new, owes_much) = {
            let mut session = inner.session.borrow_mut();
            if lossless {
                session.on_ack(header.ack_seq);
            }
            let new = session.accept_seq(header.seq, message.payload_len());
            (new, session.owes_much())
        };
        if lossless {
            acknowledge(con, owes_much);
        }
        if !new {
            tracing::debug!(?con, seq = header.seq, "had this message before");
            return;
        }
        let Some(dispatcher) = inner.messenger.upgrade().and_then(|m| m.dispatcher()) else {
            return;
        };
        let received = inner.env.recent();
        dispatcher.on_message(con, Incoming { message, received, permits });
    }
}

/// Writes what is queued until the socket breaks or is taken away.
pub(super) async fn write(con: Connection, link: Rc<Link>, first: SendBatch, generation: u64) {
    let mut batch = first;
    let passage = link.stream.passage();
    loop {
        if con.0.generation.get() != generation {
            return;
        }
        if passage.is_none() {
            let writer = &mut *link.writer.borrow_mut();
            gather(&con, &mut Frames { writer, batch: &mut batch });
        }
        if !batch.is_empty() {
            if let Err(e) = link.stream.send(batch.take()).await {
                tracing::debug!(?con, "cannot send: {e}");
                return fault(&con, generation);
            }
        } else if let Some(passage) = passage {
            return within::write(con, link.clone(), passage, generation).await;
        } else {
            link.wake.wait().await;
        }
    }
}

/// Where what is sent at once gathers.
pub(super) trait Gathering {
    fn is_full(&self) -> bool;
    fn control(&mut self, control: Control);
    fn message(&mut self, message: RawMessage);
}

/// Puts all that waits, up to a bound, into what is sent at once.
pub(super) fn gather(con: &Connection, to: &mut impl Gathering) {
    let inner = &con.0;
    if let Some(time) = inner.keepalive_to_ack.take() {
        to.control(Control::Keepalive2Ack(time));
    }
    if inner.want_keepalive.take() {
        let now = UTime::from_duration(inner.env.wall_clock());
        to.control(Control::Keepalive2(now));
    }
    let lossless = !inner.lossy.get();
    let mut session = inner.session.borrow_mut();
    while !to.is_full() {
        let Some(message) = session.pop_next(lossless) else { break };
        to.message(message);
    }
    if lossless && inner.want_ack.take() && session.owes_ack() {
        to.control(Control::Ack(session.tell()));
    }
}

/// Frames of one send call.
struct Frames<'a> {
    writer: &'a mut FrameWriter,
    batch: &'a mut SendBatch,
}

impl Gathering for Frames<'_> {
    fn is_full(&self) -> bool {
        self.batch.len() >= BATCH_LEN_MAX || self.batch.buffers() >= BATCH_BUFFERS_MAX
    }

    fn control(&mut self, control: Control) {
        self.writer.control(control.tag(), &control.payload(), self.batch);
    }

    fn message(&mut self, message: RawMessage) {
        let rest = [(&message.front).into(), (&message.middle).into(), (&message.data).into()];
        self.writer.frame(tag::MESSAGE, &message.header.to_wire(), rest, self.batch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was left of a frame made each buffer a little longer than the last: 331 sizes from 64 to 260 KiB under
    /// writes of 4 KiB, of which the allocator held free ones of each, 4 MiB an OSD.
    #[test]
    fn buffers_have_few_sizes() {
        let mut sizes = std::collections::BTreeSet::new();
        for chunk in [RECV_LEN_MIN, 64 << 10, RECV_LEN_MAX] {
            for left in (0..20_000).step_by(37) {
                let mut buf = BytesMut::with_capacity(left);
                buf.resize(left, 0);
                // Messages that were received with it hold what it was.
                let _message = buf.split_to(0);
                make_room(&mut buf, 4_400, chunk);
                let room = buf.capacity() - buf.len();
                assert!(
                    room >= (chunk / 4).max(4_400usize.saturating_sub(left)),
                    "{left} {chunk}: {room}"
                );
                sizes.insert(buf.capacity());
            }
        }
        assert!(sizes.len() <= 6 && sizes.iter().all(|&size| size <= RECV_LEN_MAX), "{sizes:?}");
        let mut long = BytesMut::new();
        make_room(&mut long, 3_000_000, RECV_LEN_MAX);
        assert!((3_000_000..4_000_000).contains(&long.capacity()));
    }
}
