//! What daemons told the monitors of themselves.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::Value;
use types::OsdId;

use crate::daemon::Mgr;

/// The host of each OSD.
pub(super) async fn hosts_of_osds(mgr: &Mgr) -> BTreeMap<OsdId, String> {
    let command = r#"{"prefix":"osd metadata","format":"json"}"#.to_owned();
    let Ok(answer) = mgr.monc.command(vec![command], Bytes::new()).await else {
        return BTreeMap::new();
    };
    let all: Value = serde_json::from_slice(&answer.outb).unwrap_or_default();
    let of = |entry: &Value| {
        let id = OsdId::try_from(entry.get("id")?.as_i64()?).ok()?;
        Some((id, entry.get("hostname")?.as_str()?.to_owned()))
    };
    all.as_array().into_iter().flatten().filter_map(of).collect()
}
