//! Which of the monitors' messages are the client's own, and which its owner's.

use messages::{
    MAuthReply, MCommandReply, MConfig, MMonCommandAck, MMonGetVersionReply, MMonMap,
    MMonSubscribeAck, MPoolOpReply, Message,
};
use msgr::{Connection, Incoming};
use types::entity;

use crate::client::MonClient;

impl MonClient {
    /// To be called first from `Dispatcher::on_message`: takes what is the client's own (maps of
    /// monitors, options, tickets, answers to its requests) and gives the rest back.
    pub fn on_message(&self, con: &Connection, incoming: Incoming) -> Option<Incoming> {
        if con.peer_kind() != entity::MON {
            return Some(incoming);
        }
        let kind = incoming.message.header.kind;
        if kind != MAuthReply::TYPE && self.session().as_ref() == Some(con) {
            self.0.state.borrow_mut().heard = true;
        }
        if kind == MCommandReply::TYPE {
            let ours = self.on_told_reply(con, &incoming.message);
            return (!ours).then_some(incoming);
        }
        let own = [
            MMonMap::TYPE,
            MConfig::TYPE,
            MAuthReply::TYPE,
            MMonCommandAck::TYPE,
            MMonGetVersionReply::TYPE,
            MMonSubscribeAck::TYPE,
            MPoolOpReply::TYPE,
        ];
        if !own.contains(&kind) {
            return Some(incoming);
        }
        // What a monitor says that is not (or no longer) the session's does not count.
        if self.session().as_ref() != Some(con) {
            return None;
        }
        let raw = &incoming.message;
        match kind {
            MMonMap::TYPE => match MMonMap::decode(raw) {
                Ok(message) => self.0.on_monmap(&message.monmap),
                Err(e) => tracing::warn!("a monmap's message does not decode: {e}"),
            },
            MConfig::TYPE => match MConfig::decode(raw) {
                Ok(message) => {
                    if let Some(events) = self.0.events() {
                        events.on_config(message.config);
                    }
                }
                Err(e) => tracing::warn!("options do not decode: {e}"),
            },
            MAuthReply::TYPE => match MAuthReply::decode(raw) {
                Ok(reply) if reply.result >= 0 => self.0.on_auth_reply(&reply.payload),
                Ok(reply) => tracing::warn!("tickets refused: {} {}", reply.result, reply.message),
                Err(e) => tracing::warn!("tickets do not decode: {e}"),
            },
            MMonCommandAck::TYPE => self.on_command_ack(raw),
            MMonGetVersionReply::TYPE => self.on_version_reply(raw),
            MPoolOpReply::TYPE => self.on_pool_op_reply(raw),
            _ => {}
        }
        None
    }
}
