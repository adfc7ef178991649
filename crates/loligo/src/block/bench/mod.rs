//! `loligo bench`: loads in fio's words for machines without fio. A job is a client in a thread
//! of its own; requests are timed from the call to its answer.

mod load;
mod meeting;
mod report;

use std::cell::Cell;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::IsTerminal;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use client::{Client, ClientError, IoCtx};
use env::Env;
use futures_util::future::{Either, join_all, select};
use indicatif::{ProgressBar, ProgressStyle};
use msgr::frame::DATA_MAX;
use types::Errno;

use self::load::{Progress, Tally, Target, run_job};
use self::meeting::{Meeting, Member};
use super::cli::{BenchArgs, BenchCommand, ClusterArgs, LoadArgs, Pattern};
use super::connect::{connect, open, pool, said};
use super::spec::{ImageSpec, bytes_text};
use crate::failure::Failure;
use crate::output::show;

/// Bytes of the objects that `bench rados` touches by default.
const RADOS_SIZE: u64 = 1 << 30;
/// Objects written or removed at a time before and after measuring.
const OBJECTS_AT_A_TIME: usize = 16;

/// What a job's thread is told.
#[derive(Clone)]
enum Place {
    Image(ImageSpec),
    Pool { pool: String, object_size: u64, prefix: String },
}

/// What one job alone is told.
struct Job {
    number: u64,
    progress: Arc<Progress>,
    /// Before the first request, and after the last.
    begin: Member,
    end: Member,
}

/// Runs the command.
pub(crate) fn run(args: BenchArgs) -> Result<(), Failure> {
    let (place, load, engine) = match args.command {
        BenchCommand::Rbd { image, load } => (Place::Image(image), load, "rbd"),
        BenchCommand::Rados { pool, object_size, load } => {
            // In containers all have one process id.
            let random = RandomState::new().build_hasher().finish();
            let prefix = format!("benchmark_data_loligo_{}_{random:016x}", std::process::id());
            (Place::Pool { pool, object_size, prefix }, load, "rados")
        }
    };
    if load.bs == 0 || load.iodepth == 0 || load.numjobs == 0 {
        return Err(Failure::new("--bs, --iodepth and --numjobs must be above 0"));
    }
    let name = match &place {
        Place::Image(image) => image.to_string(),
        Place::Pool { pool, object_size, .. } => {
            check_objects(*object_size, &load)?;
            pool.clone()
        }
    };
    let progress = Arc::new(Progress::default());
    let over = Arc::new(AtomicBool::new(false));
    let bar = show(&load, &progress, &over);
    let [begin, end] = [(); 2].map(|()| Meeting::of(load.numjobs.into()));
    let tallies: Vec<Result<Tally, Failure>> = std::thread::scope(|scope| {
        let jobs: Vec<_> = (0..u64::from(load.numjobs))
            .map(|number| {
                let (cluster, place, load) = (args.cluster.clone(), place.clone(), load.clone());
                let job = Job {
                    number,
                    progress: progress.clone(),
                    begin: begin.member(),
                    end: end.member(),
                };
                scope.spawn(move || job_thread(cluster, place, load, job))
            })
            .collect();
        jobs.into_iter()
            .map(|job| job.join().unwrap_or_else(|_| Err(Failure::new("a job died"))))
            .collect()
    });
    over.store(true, Ordering::Relaxed);
    if let Some(bar) = bar {
        let _ = bar.join();
    }
    let mut all = Tally::default();
    for tally in tallies {
        let tally = tally?;
        all.reads.merge(&tally.reads);
        all.writes.merge(&tally.writes);
        all.elapsed = all.elapsed.max(tally.elapsed);
        all.mismatches += tally.mismatches;
        all.error = all.error.or(tally.error);
    }
    if load.json {
        show!("{:#}", report::to_json(&all, &load, &name, engine));
    } else {
        report::print(&all, &load);
    }
    match all.error {
        Some(error) => Err(Failure::new(error)),
        None if all.mismatches > 0 => {
            Err(Failure::new(format!("{} blocks hold something else", all.mismatches)))
        }
        None => Ok(()),
    }
}

/// What cannot be done with objects of so many bytes.
fn check_objects(object_size: u64, load: &LoadArgs) -> Result<(), Failure> {
    if object_size == 0 || !object_size.is_multiple_of(load.bs) {
        return Err(Failure::new("--object-size must be a multiple of --bs, and above 0"));
    }
    if load.size == Some(0) {
        return Err(Failure::new("--size 0: there is nothing to read or write"));
    }
    if load.bs > DATA_MAX.into() {
        let most = bytes_text(DATA_MAX.into());
        return Err(Failure::new(format!("--bs: one operation carries {most} at most")));
    }
    Ok(())
}

/// A bar on the terminal: share of the time or of the bytes, and the rate now.
fn show(
    load: &LoadArgs,
    progress: &Arc<Progress>,
    over: &Arc<AtomicBool>,
) -> Option<std::thread::JoinHandle<()>> {
    if load.json || !std::io::stderr().is_terminal() {
        return None;
    }
    let style = ProgressStyle::with_template("{elapsed_precise} {bar:30} {msg}").ok()?;
    let bar = ProgressBar::new(load.runtime.unwrap_or(0) + load.ramp_time).with_style(style);
    let (progress, over, load) = (progress.clone(), over.clone(), load.clone());
    Some(std::thread::spawn(move || {
        let (mut before, mut ticks) = (0, 0);
        while !over.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(500));
            ticks += 1;
            let now = progress.requests.load(Ordering::Relaxed);
            let rate = (now - before) * 2;
            bar.set_position(ticks / 2);
            bar.set_message(format!("{rate} IOPS, {}/s", bytes_text(rate * load.bs)));
            before = now;
        }
        bar.finish_and_clear();
    }))
}

fn job_thread(
    cluster: ClusterArgs,
    place: Place,
    load: LoadArgs,
    job: Job,
) -> Result<Tally, Failure> {
    env::real::Runtime::new()?.block_on(|env: Env| async move {
        let work = async {
            let client = connect(&env, &cluster).await?;
            let result = match &place {
                Place::Image(image) => on_image(&env, &client, image, &load, job).await,
                Place::Pool { pool: name, object_size, prefix } => {
                    let io = pool(&client, name, "").await?;
                    let prefix = format!("{prefix}.{}", job.number);
                    let objects = Objects { io, size: *object_size, prefix };
                    objects.under_load(&env, &load, job).await
                }
            };
            client.shutdown();
            result
        };
        let cut_off = cut_off(&env);
        futures_util::pin_mut!(work, cut_off);
        let left = match &place {
            Place::Image(image) => format!("{image} is not closed"),
            Place::Pool { prefix, .. } => format!("objects {prefix}.* may be left"),
        };
        match select(work, cut_off).await {
            Either::Left((result, _)) => result,
            Either::Right(_) => {
                Err(Failure::new(format!("told to stop, and the cluster does not answer: {left}")))
            }
        }
    })
}

/// Whether the process has been told to end.
fn told_to_end(env: &Env) -> Rc<Cell<bool>> {
    let told = Rc::new(Cell::new(false));
    env.go({
        let (env, told) = (env.clone(), told.clone());
        async move {
            env.termination().await;
            told.set(true);
        }
    });
    told
}

/// Ends some time after the process was told to: so long objects are removed, and images closed.
async fn cut_off(env: &Env) {
    const REMOVING_MAX: Duration = Duration::from_secs(30);
    env.termination().await;
    env.sleep(REMOVING_MAX).await;
}

fn reads_only(load: &LoadArgs) -> bool {
    matches!(load.rw, Pattern::Read | Pattern::Randread)
}

/// The requests of one job on an image of so many bytes.
fn range(load: &LoadArgs, image_size: u64) -> Result<u64, String> {
    let size = load.size.unwrap_or(image_size);
    if size > image_size {
        let (size, has) = (bytes_text(size), bytes_text(image_size));
        return Err(format!("has {has}: --size {size} is more"));
    }
    match size / load.bs / u64::from(load.numjobs) {
        0 => Err("has no room for one request of each job".to_owned()),
        blocks => Ok(blocks),
    }
}

async fn on_image(
    env: &Env,
    client: &Client,
    spec: &ImageSpec,
    load: &LoadArgs,
    job: Job,
) -> Result<Tally, Failure> {
    let told = told_to_end(env);
    let image = open(client, spec, reads_only(load)).await?;
    if load.numjobs > 1 && !reads_only(load) && image.wants_lock() {
        let _ = image.close().await;
        return Err(Failure::new(format!(
            "{spec} has exclusive-lock: only one job can write to it; use --numjobs 1"
        )));
    }
    let blocks = match range(load, image.size()) {
        Ok(blocks) => blocks,
        Err(why) => {
            let _ = image.close().await;
            return Err(Failure::new(format!("{spec} {why}")));
        }
    };
    let range = (job.number * blocks, blocks);
    let target = Target::Image(image.clone());
    job.begin.all(env, &told).await;
    let tally = run_job(env, target, load, range, job.number, job.progress, told.clone()).await;
    image.close().await.map_err(|e| said(spec, e))?;
    if told.get() {
        return Err(Failure::new(format!("told to stop: {spec} is closed")));
    }
    Ok(tally)
}

/// Objects of one job.
struct Objects {
    io: IoCtx,
    /// Bytes of each.
    size: u64,
    /// How their names begin.
    prefix: String,
}

impl Objects {
    /// The requests of one job. However it ends, told to stop too, the objects are removed.
    async fn under_load(self, env: &Env, load: &LoadArgs, job: Job) -> Result<Tally, Failure> {
        let size = load.size.unwrap_or(RADOS_SIZE).next_multiple_of(self.size);
        let names: Vec<String> =
            (0..size / self.size).map(|n| format!("{}.{n:x}", self.prefix)).collect();
        let told = told_to_end(env);
        let prepared = match load.rw {
            Pattern::Write | Pattern::Randwrite => Ok(()),
            // Something to read.
            _ => self.fill(&names, &told).await,
        };
        let done = match prepared {
            Ok(()) => {
                let Objects { io, size: object_size, prefix } = &self;
                let (io, prefix) = (io.clone(), prefix.clone());
                let target = Target::Objects { io, size: *object_size, prefix };
                let range = (0, size / load.bs);
                job.begin.all(env, &told).await;
                let Job { number, progress, end, .. } = job;
                let tally = run_job(env, target, load, range, number, progress, told.clone()).await;
                end.all(env, &told).await;
                Ok(tally)
            }
            Err(e) => {
                drop(job);
                Err(e)
            }
        };
        let removed = self.remove(&names).await;
        if told.get() {
            removed?;
            return Err(Failure::new("told to stop: the objects are removed"));
        }
        let tally = done?;
        removed.map(|()| tally)
    }

    async fn fill(&self, names: &[String], told: &Cell<bool>) -> Result<(), Failure> {
        let zeros = bytes::Bytes::from(vec![0; self.size as usize]);
        for some in names.chunks(OBJECTS_AT_A_TIME) {
            if told.get() {
                return Ok(());
            }
            let writes = some.iter().map(|name| self.io.write_full(name.as_str(), zeros.clone()));
            // Of those that are under way all have ended when they are removed.
            let written: Result<Vec<u64>, _> = join_all(writes).await.into_iter().collect();
            written.map_err(cannot)?;
        }
        Ok(())
    }

    async fn remove(&self, names: &[String]) -> Result<(), Failure> {
        let mut removed = Ok(());
        for some in names.chunks(OBJECTS_AT_A_TIME) {
            let removes = some.iter().map(|name| self.io.remove(name.as_str()));
            for result in join_all(removes).await {
                match result {
                    Ok(()) | Err(ClientError::Errno(Errno::ENOENT)) => {}
                    Err(e) => removed = Err(cannot(e)),
                }
            }
        }
        removed
    }
}

fn cannot(e: ClientError) -> Failure {
    Failure::new(e.to_string())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    /// A --size above the image's was cut to that without a word.
    #[test]
    fn no_more_than_the_image_has() {
        let blocks = |more: &str, image_size| {
            let line = format!("loligo bench rbd i {more}");
            let Command::Bench(args) =
                Cli::try_parse_from(line.split_whitespace()).unwrap().command
            else {
                panic!("{line}")
            };
            let BenchCommand::Rbd { load, .. } = args.command else { panic!("{line}") };
            range(&load, image_size)
        };
        assert_eq!(blocks("--size 10G", 50 << 20), Err("has 50 MiB: --size 10 GiB is more".into()));
        assert_eq!(blocks("--bs 1M", 50 << 20), Ok(50));
        assert_eq!(blocks("--bs 1M --size 50M --numjobs 2", 50 << 20), Ok(25));
        assert!(blocks("--bs 1M", 1 << 10).is_err());
    }

    /// Objects of no bytes panicked.
    #[test]
    fn an_object_has_room_for_a_request() {
        let check = |more: &str| {
            let line = format!("loligo bench rados p {more}");
            let Command::Bench(args) =
                Cli::try_parse_from(line.split_whitespace()).unwrap().command
            else {
                panic!("{line}")
            };
            let BenchCommand::Rados { object_size, load, .. } = args.command else {
                panic!("{line}")
            };
            check_objects(object_size, &load).map_err(|e| e.to_string())
        };
        assert_eq!(check("--bs 4K --object-size 4M"), Ok(()));
        for (more, why) in [
            ("--bs 4K --object-size 0", "above 0"),
            ("--bs 4K --object-size 6K", "multiple"),
            ("--size 0", "--size 0"),
            ("--bs 4G --object-size 4G", "--bs"),
        ] {
            assert!(check(more).unwrap_err().contains(why), "{more}");
        }
    }
}
