//! `loligo store`: what can be done to the store of an OSD that is stopped, whatever backend it is.
//!
//! Everything goes through the contract of `store::ObjectStore`; what a placement group's objects
//! mean is known to `osd::offline`.

mod change;
mod check;
pub(crate) mod cli;
mod migrate;
mod mon_db;
mod objects;
mod pg_file;
mod select;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use config::Config;
use env::Env;
use env::real::Runtime;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;
use store::{ObjectStore, StoreError};

use self::cli::{PlaceArgs, StoreArgs, StoreCommand};
use crate::failure::Failure;
use crate::layout::{Layout, same_place};
use crate::output::{show, tell};
use crate::{daemon, logging, stores};

/// Where a cluster is if nobody says.
const DEFAULT_DIR: &str = "./loligo-data";

/// What a command needs to know.
struct Context {
    env: Env,
    config: Rc<Config>,
    conf: PathBuf,
    sets: Vec<String>,
    json: bool,
}

impl Context {
    fn dir(&self) -> PathBuf {
        PathBuf::from(self.config.str("osd_data"))
    }

    fn name(&self) -> String {
        self.config.name()
    }

    /// Prints the result: JSON where that is asked for, else the text.
    fn tell(&self, value: &Value, text: &str) {
        match self.json {
            true => show!("{value:#}"),
            false => show!("{text}"),
        }
    }

    /// The same of a change, which is not given up because nobody reads what came of it.
    fn tell_change(&self, value: &Value, text: &str) {
        match self.json {
            true => tell!("{value:#}"),
            false => tell!("{text}"),
        }
    }
}

fn failed(e: &StoreError) -> Failure {
    let advice = match e {
        StoreError::Checksum { .. } | StoreError::Format(_) => {
            "; 'fsck --deep' lists all that is damaged"
        }
        StoreError::NoSpace => "; raise bluestore_block_size by --set, or use another device",
        _ => "",
    };
    Failure::new(format!("{e}{advice}"))
}

/// A bar on the terminal, if there is one.
fn progress(what: &'static str, objects: u64) -> ProgressBar {
    progress_of(what, objects, "objects")
}

fn progress_of(what: &'static str, count: u64, of: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = format!("{{msg}} {{wide_bar}} {{pos}}/{{len}} {of}, {{eta}} left");
    let style =
        ProgressStyle::with_template(&style).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(count).with_style(style).with_message(what)
}

/// Which configuration file, and which OSD.
fn place(args: &PlaceArgs) -> Result<(PathBuf, String), Failure> {
    if let Some(conf) = &args.conf {
        let osd = args.osd.ok_or_else(|| Failure::new("which OSD? Say --osd N"))?;
        return Ok((conf.clone(), osd.to_string()));
    }
    let dir = args.dir.clone().unwrap_or_else(|| PathBuf::from(DEFAULT_DIR));
    let layout = Layout::open(&dir)?;
    let known = layout.ids("osd");
    let osd = match (args.osd, &known[..]) {
        (Some(osd), _) => osd.to_string(),
        (None, [only]) => only.clone(),
        (None, _) => {
            let known = known.join(", ");
            return Err(Failure::new(format!("which OSD? Say --osd N; there is {known}")));
        }
    };
    if !known.contains(&osd) {
        let (dir, known) = (layout.dir().display(), known.join(", "));
        return Err(Failure::new(format!("{dir} has no OSD {osd}; there is {known}")));
    }
    Ok((layout.conf(), osd))
}

/// An OSD of a folder is in that folder: without a word about it in the configuration it would be where
/// Ceph has its own.
fn check_place(args: &PlaceArgs, config: &Config, conf: &Path) -> Result<(), Failure> {
    let Some(dir) = conf.parent().filter(|_| args.conf.is_none()) else { return Ok(()) };
    let data = PathBuf::from(config.str("osd_data"));
    let own = dir.join("osd").join(config.id());
    let told = args.set.iter().any(|set| set.starts_with("osd_data="));
    match told || same_place(&data, &own) {
        true => Ok(()),
        false => Err(Failure::new(format!(
            "{} has {} in {}, not in {}: if that is the one, say --conf {0} instead of --dir",
            conf.display(),
            config.name(),
            data.display(),
            own.display()
        ))),
    }
}

/// Runs the command.
pub(crate) fn run(args: StoreArgs) -> Result<(), Failure> {
    logging::start();
    let (conf, osd) = place(&args.place)?;
    let config = Rc::new(daemon::load_config("osd", &osd, &conf, &args.place.set)?);
    check_place(&args.place, &config, &conf)?;
    if !Path::new(&config.str("osd_data")).join("type").exists() {
        return Err(Failure::new(format!(
            "{} holds no store: 'loligo osd --id {osd} --mkfs' makes one",
            config.str("osd_data")
        )));
    }
    let _lock = stores::lock(&config, stores::Patience::None)?;
    let command = args.command;
    let (sets, json) = (args.place.set, args.place.json);
    Runtime::new()?.block_on(move |env| async move {
        let context = Context { env, config, conf, sets, json };
        if let StoreCommand::Migrate { to, keep_old } = &command {
            return migrate::migrate(&context, to, *keep_old).await;
        }
        let store = stores::open_offline(&context.env, &context.config).await?;
        let result = perform(&context, &store, command).await;
        let closed = store.close().await.map_err(|e| failed(&e));
        result.and(closed)
    })
}

async fn perform(
    context: &Context,
    store: &Rc<dyn ObjectStore>,
    command: StoreCommand,
) -> Result<(), Failure> {
    match command {
        StoreCommand::Stat => objects::stat(context, store).await,
        StoreCommand::List { name, pg, meta } => {
            objects::list(store, name.as_deref(), pg.as_deref(), meta).await
        }
        StoreCommand::Dump { object } => objects::dump(store, &object).await,
        StoreCommand::GetBytes { object, file } => {
            objects::get_bytes(store, &object, file.as_deref()).await
        }
        StoreCommand::SetBytes { object, file } => {
            change::set_bytes(store, &object, file.as_deref()).await
        }
        StoreCommand::GetAttr { object, name } => {
            objects::get_attr(context, store, &object, name.as_deref()).await
        }
        StoreCommand::SetAttr { object, name, file } => {
            change::set_attr(store, &object, &name, file.as_deref()).await
        }
        StoreCommand::RmAttr { object, name } => change::rm_attr(store, &object, &name).await,
        StoreCommand::GetOmap { object, key, header } => {
            objects::get_omap(context, store, &object, key.as_deref(), header).await
        }
        StoreCommand::SetOmap { object, key, file } => {
            change::set_omap(store, &object, Some(&key), file.as_deref()).await
        }
        StoreCommand::SetOmapHeader { object, file } => {
            change::set_omap(store, &object, None, file.as_deref()).await
        }
        StoreCommand::RmOmap { object, key } => change::rm_omap(store, &object, &key).await,
        StoreCommand::Remove { object } => change::remove(store, &object).await,
        StoreCommand::Fsck { deep, repair } => check::fsck(context, store, deep, repair).await,
        StoreCommand::Export { pg, file } => pg_file::export(context, store, &pg, &file).await,
        StoreCommand::Import { file } => pg_file::import(context, store, &file).await,
        StoreCommand::UpdateMonDb { file } => mon_db::update(context, store, &file).await,
        StoreCommand::Migrate { .. } => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    /// With a `ceph.conf` in DIR that was empty `--dir DIR` opened Ceph's own OSD of that number.
    #[test]
    fn a_folders_osd_is_in_the_folder() {
        let dir = std::env::temp_dir().join(format!("loligo-store-dir-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("osd/0")).unwrap();
        let (dir, conf) = (dir.display(), dir.join("ceph.conf"));
        let checked = |text: &str, more: &str| {
            std::fs::write(&conf, text).unwrap();
            let line = format!("loligo store {more} --osd 0 stat");
            let Command::Store(args) =
                Cli::try_parse_from(line.split_whitespace()).unwrap().command
            else {
                panic!("{line}")
            };
            let (conf, osd) = place(&args.place)?;
            let config = daemon::load_config("osd", &osd, &conf, &args.place.set)?;
            check_place(&args.place, &config, &conf)
        };
        let failure = checked("", &format!("--dir {dir}")).unwrap_err().to_string();
        assert!(failure.contains("osd.0 in /var/lib/ceph/osd/ceph-0, not in"), "{failure}");
        checked("", &format!("--dir {dir} --set osd_data={dir}/osd/0")).unwrap();
        checked("", &format!("--conf {dir}/ceph.conf")).unwrap();
        checked(&format!("[osd]\nosd_data = {dir}/osd/$id\n"), &format!("--dir {dir}")).unwrap();
        std::fs::remove_dir_all(dir.to_string()).unwrap();
    }
}
