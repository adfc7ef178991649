//! `fs volume ls`, `create` and `rm`: file systems together with their pools (`src/pybind/mgr/volumes/fs` at v16.2). There is
//! nobody here who would start MDSs for a new one: those that wait take it.

use bytes::Bytes;
use command::{CommandMap, CommandReply};
use serde_json::{Value, json};

use super::{EAGAIN, ENOENT, metadata};
use crate::daemon::Mgr;

const EPERM: i32 = 1;

/// See the module.
pub(super) async fn run(mgr: &Mgr, map: &CommandMap) -> CommandReply {
    let word = |key: &str| map.opt_string(key).ok().flatten().unwrap_or_default();
    let done = match map.prefix() {
        "fs volume ls" => Ok(list(mgr).await),
        "fs volume create" => create(mgr, &word("name")).await,
        _ => remove(mgr, &word("vol_name"), &word("yes-i-really-mean-it")).await,
    };
    done.unwrap_or_else(|refusal| refusal)
}

async fn list(mgr: &Mgr) -> CommandReply {
    let all = metadata::ask(mgr, "fs ls").await;
    let all = all.as_array().into_iter().flatten();
    let volumes: Vec<Value> = all.map(|fs| json!({"name": fs["name"]})).collect();
    CommandReply::data(crate::json::indented(&json!(volumes)))
}

async fn at_monitors(mgr: &Mgr, command: Value) -> Result<Bytes, CommandReply> {
    mgr.at_monitors(&command, Bytes::new()).await
}

async fn remove_pool(mgr: &Mgr, pool: &str) -> Result<Bytes, CommandReply> {
    let command = json!({
        "prefix": "osd pool rm", "pool": pool, "pool2": pool, "yes_i_really_really_mean_it": true,
    });
    at_monitors(mgr, command).await
}

/// Makes a pool; whether it was not there before.
async fn make_pool(mgr: &Mgr, pool: &str, bulk: bool) -> Result<bool, CommandReply> {
    let command = match bulk {
        true => json!({"prefix": "osd pool create", "pool": pool, "bulk": true}),
        false => json!({"prefix": "osd pool create", "pool": pool}),
    };
    match mgr.monc.command(vec![command.to_string()], Bytes::new()).await {
        Ok(answer) if answer.rc == 0 => Ok(answer.outs.ends_with(" created")),
        Ok(answer) => Err(CommandReply::error(answer.rc.abs(), answer.outs)),
        Err(error) => Err(CommandReply::error(EAGAIN, error.to_string())),
    }
}

async fn create(mgr: &Mgr, name: &str) -> Result<CommandReply, CommandReply> {
    let [metadata, data] = ["meta", "data"].map(|what| format!("cephfs.{name}.{what}"));
    let mut made = Vec::new();
    let done = async {
        for (pool, bulk) in [(&metadata, false), (&data, true)] {
            if make_pool(mgr, pool, bulk).await? {
                made.push(pool);
            }
        }
        let new = json!({"prefix": "fs new", "fs_name": name, "metadata": metadata, "data": data});
        at_monitors(mgr, new).await
    };
    if let Err(refusal) = done.await {
        // Pools that were there before stay (Ceph's manager takes them away, with what is in them). Those made
        // just now go, as far as pools may be deleted: they are empty.
        for pool in made {
            let _ = remove_pool(mgr, pool).await;
        }
        return Err(refusal);
    }
    let text = "Volume created successfully (no MDS daemons created)";
    Ok(CommandReply { outs: text.to_owned(), ..CommandReply::default() })
}

async fn remove(mgr: &Mgr, name: &str, sure: &str) -> Result<CommandReply, CommandReply> {
    if sure != "--yes-i-really-mean-it" {
        let text = format!(
            "WARNING: this will *PERMANENTLY DESTROY* all data stored in the filesystem '{name}'. If you \
             are *ABSOLUTELY CERTAIN* that is what you want, re-issue the command followed by \
             --yes-i-really-mean-it."
        );
        return Err(CommandReply::error(EPERM, text));
    }
    let asked = json!({
        "prefix": "config get", "who": "mon", "key": "mon_allow_pool_delete", "format": "json",
    });
    let allowed = at_monitors(mgr, asked).await?;
    if !matches!(String::from_utf8_lossy(&allowed).trim(), "true" | "\"true\"") {
        let text = "pool deletion is disabled; you must first set the mon_allow_pool_delete config \
                    option to true before volumes can be deleted";
        return Err(CommandReply::error(EPERM, text));
    }
    let all = metadata::ask(mgr, "fs ls").await;
    let found = all.as_array().into_iter().flatten().find(|fs| fs["name"] == name);
    let Some(fs) = found else {
        return Err(CommandReply::error(ENOENT, format!("volume {name} doesn't exist")));
    };
    let metadata = fs["metadata_pool"].as_str().unwrap_or_default();
    let data = fs["data_pools"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let data: Vec<&str> = data.collect();
    at_monitors(mgr, json!({"prefix": "fs fail", "fs_name": name})).await?;
    let rm = json!({"prefix": "fs rm", "fs_name": name, "yes_i_really_mean_it": true});
    at_monitors(mgr, rm).await?;
    for pool in [metadata].iter().chain(&data) {
        remove_pool(mgr, pool).await?;
    }
    let quoted: Vec<String> = data.iter().map(|pool| format!("'{pool}'")).collect();
    let text = format!("metadata pool: {metadata} data pool: [{}] removed", quoted.join(", "));
    Ok(CommandReply { outs: text, ..CommandReply::default() })
}
