//! Where an OSD belongs in the CRUSH map, by a program of the operator's (`crush_location_hook`).

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use config::{Config, Source};
use env::Env;

/// How often who waits for the program looks.
const PAUSE: Duration = Duration::from_millis(10);
/// So much of what it says is read; more than a pipe holds makes it wait until its time is over.
const SAID_MAX: u64 = 100_000;

/// Sets `crush_location` to what the program says, where there is one and nothing is set: it is called as Ceph calls
/// it (`CrushLocation::update_from_hook`, `src/crush/CrushLocation.cc` at v16.2). If it fails, the OSD stays where it
/// is.
pub(crate) async fn by_hook(env: &Env, config: &Config) {
    let hook = config.str("crush_location_hook");
    if hook.is_empty() || !config.str("crush_location").is_empty() {
        return;
    }
    let taken = match run(env, config, &hook).await {
        Ok(said) if said.contains('=') => config.set("crush_location", &said, Source::Final),
        other => {
            let why = other.map_or_else(|why| why, |said| format!("it says '{said}'"));
            tracing::error!(
                "crush_location_hook {hook}: {why}; {} stays where it is in the CRUSH map",
                config.name()
            );
            config.set("osd_crush_update_on_start", "false", Source::Final)
        }
    };
    if let Err(e) = taken {
        tracing::error!("crush_location_hook {hook}: {e}");
    }
}

async fn run(env: &Env, config: &Config, hook: &str) -> Result<String, String> {
    let mut child = Command::new(hook)
        .args(["--cluster", config.cluster(), "--id", config.id(), "--type", config.kind()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| e.to_string())?;
    let ended = wait(env, &mut child, config.duration("crush_location_hook_timeout")).await;
    if ended.is_err() {
        let _ = child.kill();
        let _ = child.wait();
    }
    ended?;
    let mut said = String::new();
    let out = child.stdout.take().ok_or("its output is gone")?;
    out.take(SAID_MAX).read_to_string(&mut said).map_err(|e| e.to_string())?;
    Ok(said.trim().to_owned())
}

async fn wait(env: &Env, child: &mut Child, limit: Duration) -> Result<(), String> {
    let end = env.now() + limit;
    loop {
        match child.try_wait().map_err(|e| e.to_string())? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(format!("it ended with {status}")),
            None if env.now() >= end => return Err(format!("it did not end in {limit:?}")),
            None => env.sleep(PAUSE).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// The hook was not run, and an OSD that it puts under another root was moved to its host's place when it started.
    #[test]
    fn an_osd_goes_where_its_hook_says_or_stays() {
        let dir = std::env::temp_dir().join(format!("loligo-hook-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let set_by = |name: &str, script: &str| {
            let hook = dir.join(name);
            fs::write(&hook, format!("#!/bin/sh\n{script}\n")).unwrap();
            fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
            let config = Config::new("osd", "3").with_identity("c", "vm", 1);
            config.set("crush_location_hook", hook.to_str().unwrap(), Source::File).unwrap();
            config.set("crush_location_hook_timeout", "1", Source::File).unwrap();
            env::real::Runtime::new().unwrap().block_on(|env: Env| async move {
                by_hook(&env, &config).await;
                (config.str("crush_location"), config.bool("osd_crush_update_on_start"))
            })
        };
        let said = set_by(
            "says",
            "echo host=a rack=r1 root=ssd; [ \"$*\" = '--cluster c --id 3 --type osd' ]",
        );
        assert_eq!(said, ("host=a rack=r1 root=ssd".to_owned(), true));
        for (name, script) in
            [("fails", "echo root=x; exit 1"), ("hangs", "exec sleep 60"), ("mute", "")]
        {
            assert_eq!(set_by(name, script), (String::new(), false), "{name}");
        }
        fs::remove_dir_all(dir).unwrap();
    }
}
