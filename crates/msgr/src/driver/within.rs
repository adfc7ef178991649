//! A ready session between two daemons of one process: what one sends is handed to the other as it is.
//!
//! Handshakes, sessions, acknowledgements and throttles are those of a socket; there are no frames, so nothing
//! is checksummed or sealed, and nothing copied but data in pieces, which readers take in one. Data keeps
//! what its sender knew of its checksums; what nobody knows the store takes itself.

use std::rc::Rc;

use env::{AlignedBuf, Passage};
use types::message::RawMessage;

use super::fault;
use super::link::{BATCH_LEN_MAX, Gathering, Receiver, gather};
use crate::connection::{Connection, Link};
use crate::control::Control;

/// Messages handed over at once.
const BATCH_MESSAGES_MAX: usize = 256;

/// What takes a frame of its own on a wire.
enum Item {
    Message(RawMessage),
    Control(Control),
}

/// What is handed over at once.
#[derive(Default)]
struct Batch {
    items: Vec<Item>,
    /// Of the messages' payloads.
    bytes: usize,
}

impl Gathering for Batch {
    fn is_full(&self) -> bool {
        self.bytes >= BATCH_LEN_MAX || self.items.len() >= BATCH_MESSAGES_MAX
    }

    fn control(&mut self, control: Control) {
        self.items.push(Item::Control(control));
    }

    fn message(&mut self, mut message: RawMessage) {
        self.bytes += message.payload_len();
        if message.data.pieces().len() > 1 {
            // As it would be received.
            let place = usize::from(message.header.data_off);
            message.data = message.data.copied_to(AlignedBuf::join(place, message.data.pieces()));
        }
        self.items.push(Item::Message(message));
    }
}

/// Receives until the passage is closed or taken away.
pub(super) async fn read(
    con: Connection,
    link: Rc<Link>,
    passage: Rc<dyn Passage>,
    generation: u64,
) {
    let mut receiver = Receiver::default();
    while let Some(batch) = passage.receive().await
        && let Ok(batch) = batch.downcast::<Batch>()
    {
        link.last_active.set(con.0.env.recent());
        for item in batch.items {
            if let Item::Message(message) = &item {
                receiver.take_permits(&con, message.payload_len()).await;
            }
            if con.0.generation.get() != generation {
                return;
            }
            match item {
                Item::Message(message) => receiver.take_message(&con, message),
                Item::Control(control) => {
                    if let Err(e) = receiver.on_control(&con, control) {
                        tracing::warn!(?con, "closing the connection: {e}");
                        return fault(&con, generation);
                    }
                }
            }
        }
    }
    fault(&con, generation);
}

/// Hands over what is queued until the passage is closed or taken away.
pub(super) async fn write(
    con: Connection,
    link: Rc<Link>,
    passage: Rc<dyn Passage>,
    generation: u64,
) {
    while con.0.generation.get() == generation {
        let mut batch = Batch::default();
        gather(&con, &mut batch);
        if batch.items.is_empty() {
            link.wake.wait().await;
        } else if passage.hand(Box::new(batch)).await.is_err() {
            return fault(&con, generation);
        }
    }
}
