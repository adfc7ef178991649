//! Shapes that several answers share.

use command::{CommandMap, CommandReply, Format, Formatter};
use types::OsdId;

use crate::daemon::Mgr;

/// A document about PGs: in JSON it says first whether the sums are complete.
pub(super) fn pg_info(
    mgr: &Mgr,
    map: &CommandMap,
    fill: impl FnOnce(&mut Formatter),
) -> CommandReply {
    pg_info_as(mgr, map.format(), fill)
}

/// The same in a given form.
pub(super) fn pg_info_as(
    mgr: &Mgr,
    format: Format,
    fill: impl FnOnce(&mut Formatter),
) -> CommandReply {
    let mut f = Formatter::new(format);
    f.object("pg_info", |f| {
        f.dump_bool("pg_ready", mgr.cluster.borrow().ready);
        fill(f);
    });
    CommandReply::formatted(f)
}

/// Some of Ceph's answers end a line before the last brace.
pub(super) fn with_line_break(reply: CommandReply) -> CommandReply {
    let mut text = String::from_utf8_lossy(&reply.outb).into_owned();
    if let Some(at) = text.rfind('}') {
        text.insert(at, '\n');
    }
    CommandReply { outb: text.into(), ..reply }
}

/// `0,1,2`: a set as Ceph prints it.
pub(super) fn osd_set<'a>(osds: impl IntoIterator<Item = &'a OsdId>) -> String {
    osds.into_iter().map(OsdId::to_string).collect::<Vec<_>>().join(",")
}

/// An array of OSDs.
pub(super) fn dump_osds<'a>(
    f: &mut Formatter,
    name: &str,
    osds: impl IntoIterator<Item = &'a OsdId>,
) {
    f.array(name, |f| osds.into_iter().for_each(|osd| f.dump_int("osd", *osd)));
}

/// An argument that the tools send as a number or as text.
pub(super) fn word(map: &CommandMap, key: &str) -> String {
    match map.opt_int(key) {
        Ok(Some(number)) => number.to_string(),
        _ => map.opt_string(key).ok().flatten().unwrap_or_default(),
    }
}

/// `osd.3` or `3`.
pub(super) fn parse_osd_id(text: &str) -> Option<OsdId> {
    let digits = text.strip_prefix("osd.").unwrap_or(text);
    digits.parse().ok().filter(|id| *id >= 0)
}
