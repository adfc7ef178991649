//! t
use super::cmd::*;
use crate::core::MonCore;
use command::*;
impl MonCore {
    pub(crate) fn cmd_osd_change(&mut self, _: &Cmd) -> CmdResult {
        done()
    }
    pub(crate) fn pool_get(&mut self, _: &Cmd) -> CmdResult {
        done()
    }
    pub(crate) fn pool_set(&mut self, _: &Cmd) -> CmdResult {
        done()
    }
    pub(crate) fn report(&mut self, _: &Cmd) -> CommandReply {
        CommandReply::default()
    }
}
