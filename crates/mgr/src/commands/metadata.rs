//! What daemons told the monitors of themselves.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::Value;
use types::OsdId;

use crate::daemon::Mgr;

/// What the monitors answer a command without arguments; null if they do not.
pub(crate) async fn ask(mgr: &Mgr, prefix: &str) -> Value {
    let command = format!(r#"{{"prefix":"{prefix}","format":"json"}}"#);
    match mgr.monc.command(vec![command], Bytes::new()).await {
        Ok(answer) => serde_json::from_slice(&answer.outb).unwrap_or_default(),
        Err(_) => Value::Null,
    }
}

/// The host of each OSD.
pub(super) async fn hosts_of_osds(mgr: &Mgr) -> BTreeMap<OsdId, String> {
    let all = ask(mgr, "osd metadata").await;
    let of = |entry: &Value| {
        let id = OsdId::try_from(entry.get("id")?.as_i64()?).ok()?;
        Some((id, entry.get("hostname")?.as_str()?.to_owned()))
    };
    all.as_array().into_iter().flatten().filter_map(of).collect()
}
