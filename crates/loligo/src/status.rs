//! `loligo status`: which daemons run, and the cluster's own words.

use serde_json::{Value, json};

use crate::cli::StatusArgs;
use crate::failure::Failure;
use crate::layout::Layout;
use crate::output::show;
use crate::process;
use crate::session::AdminSession;

/// Runs the command.
pub(crate) fn status(args: &StatusArgs) -> Result<(), Failure> {
    let layout = Layout::open(&args.dir.dir)?;
    if layout.read_conf()?.is_none() {
        return Err(Failure::new(format!("{} holds no cluster", layout.dir().display())));
    }
    let running = process::all_running(&layout);
    let pids = layout.daemons().into_iter().map(|name| {
        let pid = running.iter().find(|(running, _)| *running == name).map(|(_, pid)| *pid);
        (name, pid)
    });
    let pids: Vec<(String, Option<i32>)> = pids.collect();
    let show_all = |cluster: &str| -> Result<(), Failure> {
        if !args.json {
            show!("\n{}", cluster.trim_end_matches('\n'));
            return Ok(());
        }
        let pids = pids.iter().map(|(name, pid)| json!({ "name": name, "pid": pid }));
        let pids: Vec<Value> = pids.collect();
        let cluster: Value = serde_json::from_str(cluster)
            .map_err(|e| Failure::new(format!("the monitor's answer is not JSON: {e}")))?;
        show!("{:#}", json!({ "dir": layout.dir(), "daemons": pids, "cluster": cluster }));
        Ok(())
    };
    if !args.json {
        for (name, pid) in &pids {
            match pid {
                Some(pid) => show!("{name:<8} process {pid}"),
                None => show!("{name:<8} not running"),
            }
        }
    }
    if !running.iter().any(|(name, _)| name.starts_with("mon.")) {
        if args.json {
            show_all("null")?;
        }
        return Err(Failure::new(format!(
            "no monitor runs; 'loligo up --dir {}' starts the cluster",
            layout.dir().display()
        )));
    }
    let command = match args.json {
        true => r#"{"prefix":"status","format":"json"}"#,
        false => r#"{"prefix":"status"}"#,
    };
    let of_session = layout.clone();
    let text = env::real::Runtime::new()?.block_on(move |env| async move {
        let session = AdminSession::connect(&env, &of_session).await?;
        session.command(command, "").await
    })?;
    show_all(&text)
}
