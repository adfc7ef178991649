//! Several OSDs in one process and thread (`loligo osd --id 0 --id 1`).
//!
//! Each is a tenant of the thread: one that fails (its device, say) is ended as the end of its process would, and the
//! others go on. What ends the process ends all of them.

use std::cell::RefCell;
use std::fs;
use std::num::NonZeroU32;
use std::path::Path;
use std::rc::Rc;

use config::Config;
use env::Env;
use env::real::Tenants;

use crate::failure::Failure;
use crate::{daemon, logging};

/// Runs the OSDs until all have stopped. An error if one of them failed.
pub(crate) async fn serve(env: &Env, tenants: &Tenants, configs: Vec<Rc<Config>>) -> Result<(), Failure> {
    logging::name_tenants(configs.iter().map(|config| config.name()).collect());
    let failures = Rc::new(RefCell::new(Vec::new()));
    let mut living = Vec::new();
    for (tenant, config) in (1..).filter_map(NonZeroU32::new).zip(configs) {
        let of_tenant = tenants.env(tenant);
        let serving = {
            let (env, config) = (of_tenant.clone(), config.clone());
            of_tenant.spawn_with_handle(async move { daemon::serve(&env, config).await })
        };
        let (tenants, failures) = (tenants.clone(), failures.clone());
        living.push(env.spawn_with_handle(async move {
            if let Err(failure) = serving.await {
                tracing::error!("{failure} (others of this process go on)");
                tenants.end(tenant);
                forget(&config);
                failures.borrow_mut().push(failure);
            }
        }));
    }
    for one in living {
        one.await;
    }
    let first = failures.borrow_mut().drain(..).next();
    first.map_or(Ok(()), Err)
}

/// Takes the file away that says where `loligo up` finds this OSD: the process lives on without it.
fn forget(config: &Config) {
    let file = Path::new(&config.str("run_dir")).join(format!("{}.pid", config.name()));
    let ours = std::process::id().to_string();
    if fs::read_to_string(&file).is_ok_and(|pid| pid.trim() == ours) {
        let _ = fs::remove_file(&file);
    }
}
