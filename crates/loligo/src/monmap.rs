//! `loligo mon`: the daemon, the map of one that is stopped (`--extract-monmap`, `--inject-monmap`), or a store made of
//! what OSDs have (`--from-osds`).

use std::fs;
use std::path::Path;

use denc::Denc;
use env::real::Runtime;
use store::Kv;
use types::UTime;

use crate::cli::{DaemonArgs, MonArgs};
use crate::daemon::{load_config, run_one};
use crate::failure::Failure;
use crate::mon_store::{mkfs_from_osds, open_mon_kv};
use crate::output::tell;

/// `loligo mon`.
pub(crate) fn run(args: &MonArgs) -> Result<(), Failure> {
    let MonArgs { extract_monmap, inject_monmap, from_osds, daemon } = args;
    let DaemonArgs { id, start } = daemon;
    if extract_monmap.is_none() && inject_monmap.is_none() && from_osds.is_none() {
        return run_one("mon", id, start, &start.set);
    }
    let [id] = &id[..] else {
        return Err(Failure::new("several --id: one monitor's store at a time"));
    };
    let config = load_config("mon", id, &start.conf, &start.set)?;
    let env = Runtime::new()?.env();
    if let Some(file) = from_osds {
        return mkfs_from_osds(&env, &config, file);
    }
    let kv = open_mon_kv(&env, &config)?;
    if let Some(file) = extract_monmap {
        extract(&*kv, id, file)?;
    }
    if let Some(file) = inject_monmap {
        inject(&*kv, id, file, UTime::from_duration(env.wall_clock()))?;
    }
    Ok(())
}

fn extract(kv: &dyn Kv, id: &str, file: &Path) -> Result<(), Failure> {
    let stored = mon::extract_monmap(kv).map_err(|e| Failure::new(format!("mon.{id}: {e}")))?;
    fs::write(file, stored.monmap.to_bytes())
        .map_err(|e| Failure::new(format!("cannot write {}: {e}", file.display())))?;
    let epoch = stored.monmap.epoch;
    match stored.last_entry {
        Some((term, index)) => tell!("mon.{id}: map e{epoch}, log up to {term}.{index}"),
        None => tell!("mon.{id}: map e{epoch}, and a copy of another's state that is not whole"),
    }
    Ok(())
}

fn inject(kv: &dyn Kv, id: &str, file: &Path, now: UTime) -> Result<(), Failure> {
    let map =
        fs::read(file).map_err(|e| Failure::new(format!("cannot read {}: {e}", file.display())))?;
    let epoch = mon::inject_monmap(kv, id, &map.into(), now)
        .map_err(|e| Failure::new(format!("{}: {e}", file.display())))?;
    tell!("mon.{id}: map e{epoch}; started, it leads alone");
    Ok(())
}
