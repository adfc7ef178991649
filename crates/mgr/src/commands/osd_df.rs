//! `osd df`: whose space is shown.

use std::collections::BTreeSet;

use command::{CommandMap, CommandReply, Formatter};
use maps::OsdMap;
use types::OsdId;

use super::EINVAL;
use crate::daemon::Mgr;

/// Which OSDs are shown.
fn filter(map: &OsdMap, by: &str, text: &str) -> Result<Option<BTreeSet<OsdId>>, CommandReply> {
    if text.is_empty() {
        return Ok(None);
    }
    let missing = || {
        let text = format!("'{text}' not a pool, crush node or device class name");
        CommandReply::error(EINVAL, text)
    };
    if by == "class" || map.crush.class_id(text).is_some() {
        map.crush.class_id(text).ok_or_else(missing)?;
        return Ok(Some(map.crush.devices_of_class(text).into_iter().collect()));
    }
    if let Some(item) = map.crush.id_of(text) {
        let osds = if item >= 0 { vec![item] } else { map.crush.devices_under(item) };
        return Ok(Some(osds.into_iter().collect()));
    }
    let pool = map.lookup_pool(text).and_then(|id| map.pool(id));
    let pool = pool.ok_or_else(missing)?;
    let osds = map.crush.rule_weights(i32::from(pool.crush_rule)).into_keys();
    Ok(Some(osds.collect()))
}

/// Answers `osd df`.
pub(super) fn run(mgr: &Mgr, map: &CommandMap) -> CommandReply {
    let text = |key: &str| map.opt_string(key).ok().flatten().unwrap_or_default();
    let osdmap = mgr.osdmaps.current();
    let wanted = match filter(&osdmap, &text("filter_by"), &text("filter")) {
        Ok(wanted) => wanted,
        Err(reply) => return reply,
    };
    let is_tree = text("output_method") == "tree";
    let cluster = mgr.cluster.borrow();
    let (pgs, wanted) = (&cluster.pg_map, wanted.as_ref());
    if map.format().is_plain() {
        return CommandReply::data(pgs.osd_df(&osdmap, wanted, is_tree));
    }
    let mut f = Formatter::new(map.format());
    f.object("df", |f| pgs.dump_osd_df(f, &osdmap, wanted, is_tree));
    CommandReply::data(format!("{}\n", f.finish()))
}
