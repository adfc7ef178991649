//! `log` and `log last`.

use command::CommandReply;
use types::Errno;

use super::cmd::{Cmd, CmdResult, done, refuse};
use crate::clog::{DEBUG, INFO, dump_line, level_prio, line_text};
use crate::core::MonCore;

/// Lines of `log last` unless another number is given.
const LINES: i64 = 20;

impl MonCore {
    pub(crate) fn cmd_log(&mut self, cmd: &Cmd) -> CmdResult {
        if cmd.prefix == "log" {
            let text = cmd.map.strings("logtext")?.join(" ");
            self.log_for(cmd.session, "cluster", INFO, text);
            return done();
        }
        let max = cmd.map.opt_int("num")?.unwrap_or(LINES);
        let level = cmd.map.opt_string("level")?.unwrap_or_else(|| "info".to_string());
        let channel = cmd.map.opt_string("channel")?.unwrap_or_else(|| "cluster".to_string());
        let prio = level_prio(&level).unwrap_or(DEBUG);
        let max = usize::try_from(max)
            .map_err(|_| refuse(Errno::EINVAL, "the number of lines is negative"))?;
        let lines = self.clog.newest(max, prio, &channel);
        if cmd.format.is_plain() {
            let texts: Vec<String> = lines.into_iter().map(line_text).collect();
            return Ok(CommandReply::data(texts.join("\n")));
        }
        Ok(cmd.structured(|f| {
            f.array("tail", |f| lines.into_iter().for_each(|line| dump_line(f, line)));
        }))
    }
}
