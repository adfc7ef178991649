//! About the process: state, heap, store, cluster log.

use command::{BadArgument, CommandMap, CommandReply, Format, Formatter};
use types::Errno;

use super::{Target, refused};
use crate::osd::fullness::Fullness;
use crate::pg::host::LogLevel;

fn object(format: Format, name: &str, fill: impl FnOnce(&mut Formatter)) -> CommandReply {
    let mut f = Formatter::new(format);
    f.object(name, fill);
    CommandReply::formatted(f)
}

pub(super) fn status(target: &dyn Target, format: Format) -> CommandReply {
    let sb = target.superblock();
    object(format, "status", |f| {
        f.dump_stream("cluster_fsid", sb.cluster_fsid);
        f.dump_stream("osd_fsid", sb.osd_fsid);
        f.dump_int("whoami", sb.whoami);
        f.dump_string("state", target.state());
        f.dump_unsigned("oldest_map", sb.oldest_map);
        f.dump_unsigned("cluster_osdmap_trim_lower_bound", sb.cluster_osdmap_trim_lower_bound);
        f.dump_unsigned("newest_map", sb.newest_map);
        f.dump_unsigned("num_pgs", target.pgs().len() as u64);
    })
}

pub(super) async fn compact(target: &dyn Target, format: Format) -> CommandReply {
    let start = target.env().now();
    if let Err(e) = target.store().compact().await {
        return refused(Errno(e.errno()), format!("the store could not be compacted: {e}"));
    }
    let elapsed = target.env().now().saturating_sub(start);
    object(format, "compact_result", |f| f.dump_float("elapsed_time", elapsed.as_secs_f64()))
}

pub(super) fn cluster_log(
    target: &dyn Target,
    map: &CommandMap,
) -> Result<CommandReply, BadArgument> {
    let level = match map.string("level")?.as_str() {
        "error" => LogLevel::Error,
        "warning" => LogLevel::Warn,
        "info" => LogLevel::Info,
        "debug" => LogLevel::Debug,
        other => return Ok(refused(Errno::EINVAL, format!("unknown level '{other}'"))),
    };
    let text = map.strings("message")?.join(" ");
    if text.is_empty() {
        return Ok(refused(Errno::EINVAL, "ignoring empty log message"));
    }
    target.cluster_log(level, text);
    Ok(CommandReply::default())
}

/// As in Ceph, a step that is none is told of but is no error.
pub(super) fn injectfull(
    target: &dyn Target,
    map: &CommandMap,
) -> Result<CommandReply, BadArgument> {
    let name = map.opt_string("type")?.unwrap_or_else(|| "full".to_owned());
    let count = map.opt_int("count")?.unwrap_or(-1);
    let Some(step) = Fullness::parse(&name) else {
        let text = "Invalid type use (none, nearfull, backfillfull, full, failsafe)";
        return Ok(CommandReply::data(text));
    };
    target.inject_full(step, count);
    Ok(CommandReply::default())
}
