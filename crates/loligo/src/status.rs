//! `loligo status`: which daemons run, and the cluster's own words.

use crate::cli::DirArgs;
use crate::failure::Failure;
use crate::layout::Layout;
use crate::output::show;
use crate::process;
use crate::session::AdminSession;

/// Runs the command.
pub(crate) fn status(args: &DirArgs) -> Result<(), Failure> {
    let layout = Layout::open(&args.dir)?;
    if layout.read_conf()?.is_none() {
        return Err(Failure::new(format!("{} holds no cluster", layout.dir().display())));
    }
    let running = process::all_running(&layout);
    for (kind, id) in ["mon", "mgr", "osd"]
        .into_iter()
        .flat_map(|kind| layout.ids(kind).into_iter().map(move |id| (kind, id)))
    {
        let name = format!("{kind}.{id}");
        match running.iter().find(|(n, _)| *n == name) {
            Some((_, pid)) => show!("{name:<8} process {pid}"),
            None => show!("{name:<8} not running"),
        }
    }
    if !running.iter().any(|(name, _)| name.starts_with("mon.")) {
        return Err(Failure::new(format!(
            "no monitor runs; 'loligo up --dir {}' starts the cluster",
            layout.dir().display()
        )));
    }
    let text = env::real::Runtime::new()?.block_on(move |env| async move {
        let session = AdminSession::connect(&env, &layout).await?;
        session.command(r#"{"prefix":"status"}"#, "").await
    })?;
    show!("\n{}", text.trim_end_matches('\n'));
    Ok(())
}
