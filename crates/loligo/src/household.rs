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
    osds: Vec<Tenant>,
    conf: PathBuf,
    sets: Vec<String>,
    within: Within,
}

/// One OSD.
struct Tenant {
    /// In the process.
    number: NonZeroU32,
    id: String,
    /// Where `loligo up` finds it.
    pid_file: PathBuf,
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
    for (n, (number, id)) in (1..).filter_map(NonZeroU32::new).zip(ids).enumerate() {
        // What is wrong with a configuration is told here; each thread reads its own.
        let config = daemon::load_config("osd", id, conf, sets)?;
        let pid_file = Path::new(&config.str("run_dir")).join(format!("{}.pid", config.name()));
        if n < count {
            let (conf, sets, within) = (conf.to_owned(), sets.to_owned(), within.clone());
            households.push(Household { osds: Vec::new(), conf, sets, within });
        }
        households[n % count].osds.push(Tenant { number, id: id.clone(), pid_file });
    }
    let threads: Vec<_> =
        households.into_iter().map(|household| thread::spawn(move || household.run())).collect();
    let ended = threads.into_iter().map(|thread| thread.join().unwrap_or(Ok(())));
    ended.fold(Ok(()), Result::and)
}

impl Household {
    fn run(self) -> Result<(), Failure> {
        let live = AssertUnwindSafe(|| -> Result<(), Failure> {
            let runtime = match Runtime::new() {
                Ok(runtime) => runtime,
                Err(e) => {
                    let failed = |osd: &Tenant| osd.ends(&Failure::new(e.to_string()));
                    self.osds.iter().for_each(failed);
                    return Err(e.into());
                }
            };
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
        for tenant in self.osds {
            let config = match daemon::load_config("osd", &tenant.id, &self.conf, &self.sets) {
                Ok(config) => Rc::new(config),
                Err(failure) => {
                    tenant.ends(&failure);
                    failures.borrow_mut().push(failure);
                    continue;
                }
            };
            logging::follow(&config, tenant.number.get());
            let of_tenant = tenants.env(tenant.number);
            let serving = {
                let env = of_tenant.clone();
                of_tenant.spawn_with_handle(async move { daemon::serve(&env, config).await })
            };
            let (tenants, failures) = (tenants.clone(), failures.clone());
            living.push(env.spawn_with_handle(async move {
                if let Err(failure) = serving.await {
                    tenants.end(tenant.number);
                    tenant.ends(&failure);
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

impl Tenant {
    /// Tells why it ends, and takes the file away that says where `loligo up` finds it: the process lives on without it.
    fn ends(&self, failure: &Failure) {
        tracing::error!("osd.{} stops: {failure} {OTHERS_GO_ON}", self.id);
        let ours = std::process::id().to_string();
        if fs::read_to_string(&self.pid_file).is_ok_and(|pid| pid.trim() == ours) {
            let _ = fs::remove_file(&self.pid_file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An OSD of a process with others that could not begin was gone without a word, and its pid file said that it ran.
    #[test]
    fn one_that_cannot_begin_is_no_more_in_its_pid_file() {
        let dir = std::env::temp_dir().join(format!("loligo-household-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let tenant = |n: u32, pid: u32| {
            let pid_file = dir.join(format!("osd.{n}.pid"));
            fs::write(&pid_file, format!("{pid}\n")).unwrap();
            Tenant { number: NonZeroU32::new(n + 1).unwrap(), id: n.to_string(), pid_file }
        };
        let ours = std::process::id();
        let osds = vec![tenant(0, ours), tenant(1, ours), tenant(2, 1)];
        let files: Vec<PathBuf> = osds.iter().map(|osd| osd.pid_file.clone()).collect();
        let (conf, sets, within) = (dir.join("gone.conf"), Vec::new(), Within::default());
        let failed = Household { osds, conf, sets, within }.run().unwrap_err().to_string();
        assert!(failed.contains("gone.conf"), "{failed}");
        let there: Vec<bool> = files.iter().map(|file| file.exists()).collect();
        assert_eq!(there, [false, false, true], "the last is another process's");
        fs::remove_dir_all(&dir).unwrap();
    }
}
