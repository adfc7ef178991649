//! t
use super::cmd::*;
use crate::core::MonCore;
use command::*;
impl MonCore {
    pub(crate) fn cmd_crush(&mut self, _: &Cmd) -> CmdResult {
        done()
    }
    pub(crate) fn df(&mut self, _: &Cmd) -> CmdResult {
        done()
    }
    pub(crate) fn cmd_osd_change(&mut self, _: &Cmd) -> CmdResult {
        done()
    }
    pub(crate) fn osd_tree(&mut self, _: &Cmd) -> CmdResult {
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
pub(crate) mod df {
    pub(crate) fn dump_pg_summary(
        _: &mut command::Formatter,
        _: &maps::PgMapDigest,
        _: &maps::OsdMap,
    ) {
    }
    pub(crate) fn pg_summary_text(_: &maps::PgMapDigest, _: &maps::OsdMap) -> String {
        String::new()
    }
}
pub(crate) fn pool_avail(_: &MonCore, _: i64) -> u64 {
    0
}
