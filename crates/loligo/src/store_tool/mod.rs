//! `loligo store`: what can be done to the store of an OSD that is stopped, whatever backend it is.
//!
//! Everything goes through the contract of `store::ObjectStore`; what a placement group's objects
//! mean is known to `osd::offline`.

mod change;
mod check;
pub(crate) mod cli;
mod migrate;
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
use crate::layout::Layout;
use crate::output::show;
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
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = "{msg} {wide_bar} {pos}/{len} objects, {eta} left";
    let style =
        ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(objects).with_style(style).with_message(what)
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

/// Runs the command.
pub(crate) fn run(args: StoreArgs) -> Result<(), Failure> {
    logging::start();
    let (conf, osd) = place(&args.place)?;
    let config = Rc::new(daemon::load_config("osd", &osd, &conf, &args.place.set)?);
    let kind = stores::kind(&config);
    if stores::forgets(&config) {
        return Err(Failure::new(format!(
            "osd.{osd} is a {kind}: it is empty whenever it is stopped"
        )));
    }
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
        let store = stores::open(&context.env, &context.config).await?;
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
        StoreCommand::Migrate { .. } => Ok(()),
    }
}
