//! A cluster for one measurement: made with `loligo up` in a folder of its own, asked for its
//! stores' counters, stopped and removed. Three OSDs, so that each keeps a replica of everything.

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use client::rbd::{self, CreateOptions, Image, OpenOptions, features};
use client::{Client, IoCtx, Options};
use env::Env;
use serde_json::{Value, json};

use crate::backend::{Backend, System};
use crate::causes::Counters;
use crate::cell::REPLICAS;
use crate::ceph::{self, counters::Probe};
use crate::cli::DiskKind;
use crate::disk::Disk;
use crate::ending::Claim;
use crate::{Host, LabError, ending};

/// The pool under test and its image.
const POOL: &str = "lab";
const IMAGE: &str = "image";
/// How long a cluster gets to answer, and to have all placement groups clean.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(50);
/// Between two looks at a real Ceph, whose counters come through a longer way.
const CEPH_PAUSE: Duration = Duration::from_millis(250);
/// How long nothing must have been written by a real Ceph: longer than BlueStore keeps deferred
/// writes (`bluestore_max_defer_interval`, 3 s).
const CEPH_STILL: Duration = Duration::from_secs(5);

/// A folder with a running cluster. Dropped, the cluster is stopped and the folder removed.
pub(crate) struct Cluster {
    host: Host,
    dir: PathBuf,
    system: System,
    disk: Option<Disk>,
    _claim: Claim,
}

/// What a cluster is made with.
pub(crate) struct Shape<'a> {
    pub(crate) backend: &'a Backend,
    /// Bytes of each OSD.
    pub(crate) osd_size: u64,
    pub(crate) disk: DiskKind,
    /// What XFS's journal is written in, if not in sectors.
    pub(crate) log_unit: Option<u64>,
    /// Placement groups of the pool.
    pub(crate) pgs: u32,
    /// Options beyond the backend's own.
    pub(crate) sets: &'a [String],
}

impl Cluster {
    /// Makes one under `data`.
    pub(crate) fn up(host: &Host, data: &Path, shape: &Shape<'_>) -> Result<Cluster, LabError> {
        let backend = shape.backend;
        let (dir, claim) = ending::folder(data, backend.name).map_err(|e| {
            LabError::new(format!("cannot make a folder in {}: {e}", data.display()))
        })?;
        let (host, system) = (host.clone(), backend.system);
        let mut cluster = Cluster { host, dir, system, disk: None, _claim: claim };
        if backend.system == System::Ceph {
            cluster.up_ceph(shape)?;
            return Ok(cluster);
        }
        let mut sets: Vec<String> = backend.sets.iter().map(|s| (*s).to_owned()).collect();
        if shape.disk == DiskKind::Xfs {
            let disk = Disk::make(&cluster.dir, backend.store, shape.osd_size, shape.log_unit)?;
            sets.extend(disk.sets());
            cluster.disk = Some(disk);
        }
        sets.extend_from_slice(shape.sets);
        let port = free_port()?;
        let mut command = Command::new(&cluster.host.program);
        command
            .args(["up", "--osds", "3", "--size", "3", "--store", backend.store])
            .args(["--osd-size", &shape.osd_size.to_string(), "--port", &port.to_string()])
            .arg("--dir")
            .arg(&cluster.dir);
        for set in &sets {
            command.args(["--set", set]);
        }
        let made = ending::make(&mut command)?;
        if made.status.success() {
            return Ok(cluster);
        }
        let said = String::from_utf8_lossy(&made.stderr);
        let said = said.lines().last().unwrap_or("it said nothing").to_owned();
        Err(LabError::new(format!("{}: 'loligo up' failed: {said}", backend.name)))
    }

    fn up_ceph(&mut self, shape: &Shape<'_>) -> Result<(), LabError> {
        ceph::version()?;
        if shape.disk != DiskKind::Xfs {
            return Err(LabError::new(
                "what a real Ceph writes is known from its devices only: --disk xfs (root)",
            ));
        }
        let disk = Disk::for_ceph(&self.dir, shape.backend.store, shape.osd_size, shape.log_unit)?;
        self.disk = Some(disk);
        ceph::up(&self.dir, shape.backend, shape.sets)
    }

    /// An error of this cluster with what its OSDs said when they failed.
    pub(crate) fn explained(&self, error: LabError) -> LabError {
        match self.system {
            System::Loligo => error,
            System::Ceph => match ceph::last_words(&self.dir) {
                words if words.is_empty() => error,
                words => LabError::by_backend(format!("{error}{words}")),
            },
        }
    }

    /// OSDs that are no more, by name.
    pub(crate) fn gone(&self) -> Vec<String> {
        match self.system {
            System::Loligo => {
                let running = ending::running(&self.dir);
                let osds = (0..REPLICAS).map(|n| format!("osd.{n}"));
                osds.filter(|name| !running.contains(name)).collect()
            }
            System::Ceph => ceph::gone(&self.dir),
        }
    }

    /// The device under the OSDs, if it is of the laboratory's making.
    pub(crate) fn disk(&self) -> Option<&Disk> {
        self.disk.as_ref()
    }

    /// Process ids of the OSDs.
    pub(crate) fn osd_pids(&self) -> Vec<u32> {
        let pid = |n: u64| {
            let file = self.dir.join("run").join(format!("osd.{n}.pid"));
            fs::read_to_string(file).ok()?.trim().parse().ok()
        };
        (0..REPLICAS).filter_map(pid).collect()
    }

    /// Bytes the OSDs handed to the kernel in whole pages and blocks: what they wrote, filled up
    /// to pages (`write_bytes` of /proc/PID/io). `None` where the kernel does not tell.
    pub(crate) fn page_bytes(&self) -> Option<u64> {
        page_bytes(&self.osd_pids())
    }

    /// A client of it, with a pool of `pgs` placement groups that are all clean.
    pub(crate) async fn connect(&self, env: &Env, pgs: u32) -> Result<Session, LabError> {
        let (config, keyring) =
            (self.host.load)(&self.dir.join("ceph.conf")).map_err(LabError::new)?;
        let options = Options { follow_osdmap: true };
        let connecting = Client::connect(env.clone(), Rc::new(config), &keyring, options);
        let client = match env.timeout(PATIENCE, connecting).await {
            Ok(client) => client?,
            Err(_) => return Err(LabError::by_backend("the new cluster does not answer")),
        };
        let probe = match (self.system, &self.disk) {
            (System::Ceph, Some(disk)) => Some(Rc::new(CephProbe {
                probe: Probe::new(&self.dir, disk.devices()),
                pids: self.osd_pids(),
            })),
            _ => None,
        };
        let session = Session(Counting { client, probe });
        let create =
            json!({"prefix": "osd pool create", "pool": POOL, "pg_num": pgs, "pgp_num": pgs});
        session.mon(&create).await?;
        let enable = json!({"prefix": "osd pool application enable", "pool": POOL, "app": "rbd"});
        session.mon(&enable).await?;
        session.wait_clean().await?;
        Ok(session)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.system == System::Ceph {
            ceph::down(&self.dir);
            self.disk = None;
            let _ = fs::remove_dir_all(&self.dir);
            return;
        }
        if !ending::stop(&self.dir, &self.host) {
            return;
        }
        // Unmounted before the folder goes.
        self.disk = None;
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// A port nobody listens on, and that no other cluster of this process was given. Bound of what is
/// kept: the clusters of an experiment.
fn free_port() -> Result<u16, LabError> {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        if given.insert(port) {
            return Ok(port);
        }
    }
}

/// See [`Cluster::page_bytes`].
fn page_bytes(pids: &[u32]) -> Option<u64> {
    let of = |pid: &u32| -> Option<u64> {
        let io = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
        let line = io.lines().find_map(|line| line.strip_prefix("write_bytes:"))?;
        line.trim().parse().ok()
    };
    pids.iter().map(of).sum()
}

/// A client of a cluster.
pub(crate) struct Session(Counting);

impl Drop for Session {
    fn drop(&mut self) {
        self.0.client.shutdown();
    }
}

impl Session {
    /// The same client for another task.
    pub(crate) fn again(&self) -> Counting {
        self.0.clone()
    }

    fn env(&self) -> &Env {
        self.0.client.env()
    }

    /// The pool under test.
    pub(crate) async fn pool(&self) -> Result<IoCtx, LabError> {
        Ok(self.0.client.io_ctx(POOL).await?)
    }

    async fn mon(&self, command: &Value) -> Result<Value, LabError> {
        let answer = self.0.client.mon_command(command.to_string(), Bytes::new()).await?;
        if answer.rc < 0 {
            return Err(LabError::new(format!("{command}: {}", answer.outs)));
        }
        Ok(serde_json::from_slice(&answer.outb).unwrap_or(Value::Null))
    }

    async fn wait_clean(&self) -> Result<(), LabError> {
        let clean = async {
            loop {
                let command = json!({"prefix": "pg stat", "format": "json"}).to_string();
                let answer = self.0.client.mgr_command(command, Bytes::new()).await?;
                let stat: Value = serde_json::from_slice(&answer.outb).unwrap_or(Value::Null);
                let states = stat["pg_summary"]["num_pg_by_state"].as_array();
                let states = states.map(Vec::as_slice).unwrap_or_default();
                let is_clean = |s: &Value| s["name"] == "active+clean";
                if !states.is_empty() && states.iter().all(is_clean) {
                    return Ok(());
                }
                self.env().sleep(PAUSE).await;
            }
        };
        let waited = self.env().timeout(PATIENCE, clean).await;
        waited.unwrap_or_else(|_| Err(LabError::by_backend("placement groups do not become clean")))
    }

    /// An image of 4 MiB objects without features that write beside the data, as krbd's in the
    /// paper.
    pub(crate) async fn image(&self, size: u64) -> Result<Image, LabError> {
        let io = self.pool().await?;
        let options = CreateOptions { features: features::LAYERING, ..CreateOptions::default() };
        rbd::create(&io, IMAGE, size, &options).await?;
        Ok(Image::open(&io, IMAGE, &OpenOptions::default()).await?)
    }

    /// The stores' counters, summed over the OSDs.
    pub(crate) async fn counters(&self) -> Result<Counters, LabError> {
        self.0.counters().await
    }

    /// The counters once nothing has been written for `still`. A store that never rests is taken
    /// as it is after a minute.
    pub(crate) async fn settled(&self, still: Duration) -> Result<Counters, LabError> {
        const RESTLESS: Duration = Duration::from_secs(60);
        let (still, pause) = match self.0.probe {
            None => (still, PAUSE),
            Some(_) => (still.max(CEPH_STILL), CEPH_PAUSE),
        };
        let begin = self.env().now();
        let mut last = self.counters().await?;
        let mut since = self.env().now();
        loop {
            self.env().sleep(pause).await;
            let now = self.counters().await?;
            if written(&now) != written(&last) {
                since = self.env().now();
            }
            last = now;
            if self.env().now() - since >= still || self.env().now() - begin > RESTLESS {
                return Ok(last);
            }
        }
    }
}

/// Asks for counters beside the session.
#[derive(Clone)]
pub(crate) struct Counting {
    client: Client,
    /// For a real Ceph.
    probe: Option<Rc<CephProbe>>,
}

struct CephProbe {
    probe: Probe,
    pids: Vec<u32>,
}

impl Counting {
    /// What the stores count, summed over the OSDs; of a real Ceph what is known.
    pub(crate) async fn counters(&self) -> Result<Counters, LabError> {
        let mut sums = Counters::new();
        for osd in (0..).take(REPLICAS as usize) {
            let command = json!({"prefix": "perf dump", "format": "json"}).to_string();
            let asked = self.client.osd_command(osd, command, Bytes::new());
            let answer = match self.client.env().timeout(PATIENCE, asked).await {
                Ok(answer) => answer?,
                Err(_) => {
                    return Err(LabError::by_backend(format!(
                        "osd.{osd} does not say what it counts"
                    )));
                }
            };
            let dump: Value = serde_json::from_slice(&answer.outb).unwrap_or(Value::Null);
            if let Some(ceph) = &self.probe {
                ceph.probe.add_perf(&dump, &mut sums);
                continue;
            }
            let counters = dump["store"].as_object().ok_or_else(|| {
                LabError::new("this backend does not count what it writes: nothing to measure")
            })?;
            for (name, value) in counters {
                *sums.entry(name.clone()).or_default() += value.as_u64().unwrap_or(0);
            }
        }
        if let Some(ceph) = &self.probe {
            ceph.probe.add_rest(page_bytes(&ceph.pids), &mut sums)?;
        }
        Ok(sums)
    }
}

fn written(counters: &Counters) -> u64 {
    counters.get("written").copied().unwrap_or(0)
}
