//! A manager alone, for any cluster (also one of real Ceph): `mgr ID CONF`. Ends on SIGTERM.

use std::rc::Rc;

use auth::Keyring;
use config::{ConfFile, Config};
use env::real::Runtime;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    let args: Vec<String> = std::env::args().collect();
    let [_, id, conf] = args.as_slice() else { return Err("usage: mgr ID CONF".into()) };
    let config = Config::new("mgr", id);
    config.load_file(&ConfFile::parse(&std::fs::read_to_string(conf)?).map_err(|e| e.to_string())?);
    let keyring = Keyring::from_file(&std::fs::read(config.str("keyring"))?)?;
    Runtime::new()?.block_on(|env| async move {
        match mgr::Mgr::start(env.clone(), Rc::new(config), keyring).await {
            Ok(mgr) => {
                env.termination().await;
                mgr.shutdown().await;
            }
            Err(error) => eprintln!("{error}"),
        }
    });
    Ok(())
}
