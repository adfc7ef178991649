//! `df`.

use super::cmd::{Cmd, CmdResult};
use crate::core::MonCore;

impl MonCore {
    pub(crate) fn df(&mut self, cmd: &Cmd) -> CmdResult {
        let detail = cmd.map.opt_string("detail")?.is_some_and(|d| d == "detail");
        let map = self.osdmap();
        let digest = &self.stat.digest;
        Ok(cmd.output(
            |f| f.object("stats", |f| digest.dump_df(&map, detail, f)),
            || digest.df(&map, detail),
        ))
    }
}

/// Bytes that may still be written to a pool.
pub(crate) fn pool_avail(core: &MonCore, id: i64) -> u64 {
    core.stat.digest.pool_free_space(&core.osdmap(), id)
}
