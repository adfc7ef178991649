//! Several OSDs in one process (`loligo osd --id 0 --id 1`), spread over its threads.
//!
//! Each is a tenant of its thread: one that fails (its device, say) is ended as the end of its process would, and the
//! others go on. What ends the process, a panic too, ends all of them.

use std::cell::RefCell;
use std::fs;
use std::num::{NonZeroU32, NonZeroUsize};
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::thread;

use config::Config;
use env::Env;
use env::real::{Runtime, Tenants};
use env::within::Within;

use crate::failure::Failure;
use crate::{daemon, logging};

/// What a process ends with whose thread panicked, as Rust's own main thread has it.
const PANICKED: i32 = 101;

/// How the line ends with which one OSD of a process says why it ends.
pub(crate) const OTHERS_GO_ON: &str = "(others of this process go on)";

/// The OSDs of one thread.
struct Household {
    /// Each with its number in the process.
    osds: Vec<(NonZeroU32, String)>,
    conf: PathBuf,
    sets: Vec<String>,
    within: Within,
}

/// Runs the OSDs until all have stopped, on so many threads or as many as there are processors. An error if one
/// of them failed.
pub(crate) fn run(
    ids: &[String],
    threads: Option<u32>,
    conf: &Path,
    sets: &[String],
) -> Result<(), Failure> {
    logging::name_tenants(ids.iter().map(|id| format!("osd.{id}")).collect());
    let processors = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let count = threads.map_or(processors, |n| n as usize);
    let within = Within::default();
    let mut households: Vec<Household> = Vec::new();
    for (n, osd) in (1..).filter_map(NonZeroU32::new).zip(ids.iter().cloned()).enumerate() {
        if n < count {
            let (conf, sets, within) = (conf.to_owned(), sets.to_owned(), within.clone());
            households.push(Household { osds: Vec::new(), conf, sets, within });
        }
        households[n % count].osds.push(osd);
    }
    let threads: Vec<_> =
        households.into_iter().map(|household| thread::spawn(move || household.run())).collect();
    let ended = threads.into_iter().map(|thread| thread.join().unwrap_or(Ok(())));
    ended.fold(Ok(()), Result::and)
}

impl Household {
    fn run(self) -> Result<(), Failure> {
        let live = AssertUnwindSafe(|| -> Result<(), Failure> {
            let runtime = Runtime::new()?;
            let tenants = runtime.tenants(&self.within);
            runtime.block_on(move |env| async move {
                daemon::keep_tidy(&env);
                self.serve(&env, &tenants).await
            })
        });
        // The others of the process would wait for those of this thread for ever.
        panic::catch_unwind(live).unwrap_or_else(|_| std::process::exit(PANICKED))
    }

    async fn serve(self, env: &Env, tenants: &Tenants) -> Result<(), Failure> {
        let failures = Rc::new(RefCell::new(Vec::new()));
        let mut living = Vec::new();
        for (tenant, id) in &self.osds {
            let config = Rc::new(daemon::load_config("osd", id, &self.conf, &self.sets)?);
            logging::follow(&config, tenant.get());
            let of_tenant = tenants.env(*tenant);
            let serving = {
                let (env, config) = (of_tenant.clone(), config.clone());
                of_tenant.spawn_with_handle(async move { daemon::serve(&env, config).await })
            };
            let (tenant, tenants, failures) = (*tenant, tenants.clone(), failures.clone());
            living.push(env.spawn_with_handle(async move {
                if let Err(failure) = serving.await {
                    tracing::error!("{} stops: {failure} {OTHERS_GO_ON}", config.name());
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
}

/// Takes the file away that says where `loligo up` finds this OSD: the process lives on without it.
fn forget(config: &Config) {
    let file = Path::new(&config.str("run_dir")).join(format!("{}.pid", config.name()));
    let ours = std::process::id().to_string();
    if fs::read_to_string(&file).is_ok_and(|pid| pid.trim() == ours) {
        let _ = fs::remove_file(&file);
    }
}
