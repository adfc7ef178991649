//! A cluster of ours in a temporary folder, and the one who kills its OSDs.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::rng::Rng;

const OSDS: u64 = 3;

pub(crate) struct Cluster {
    dir: PathBuf,
    port: u16,
    given: Option<PathBuf>,
}

impl Cluster {
    pub(crate) fn start() -> Cluster {
        let given = std::env::var_os("LOLIGO_TEST_CONF").map(PathBuf::from);
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let dir = std::env::temp_dir().join(format!("loligo-fsx-{}-{port}", std::process::id()));
        let cluster = Cluster { dir, port, given };
        if cluster.given.is_none() {
            std::fs::create_dir_all(&cluster.dir).unwrap();
            cluster.up();
        }
        cluster
    }

    pub(crate) fn conf(&self) -> PathBuf {
        self.given.clone().unwrap_or_else(|| self.dir.join("ceph.conf"))
    }

    fn up(&self) {
        up(&self.dir, self.port);
    }

    /// Kills a random OSD every few moments, and starts it again.
    pub(crate) fn keep_killing(&self, rng: Rng) -> Killer {
        let stopping = Arc::new(AtomicBool::new(self.given.is_some()));
        let (stop, dir, port) = (stopping.clone(), self.dir.clone(), self.port);
        let thread = std::thread::spawn(move || kill_until(&stop, &dir, port, rng));
        Killer { stopping, thread }
    }
}

fn up(dir: &Path, port: u16) {
    let output = Command::new(env!("CARGO_BIN_EXE_loligo"))
        .args(["up", "--osds", &OSDS.to_string(), "--port", &port.to_string(), "--dir"])
        .arg(dir)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

pub(crate) struct Killer {
    stopping: Arc<AtomicBool>,
    thread: JoinHandle<u32>,
}

impl Killer {
    /// Ends it when all OSDs run again; how many it has killed.
    pub(crate) fn stop(self) -> u32 {
        self.stopping.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

fn kill_until(stopping: &AtomicBool, dir: &Path, port: u16, mut rng: Rng) -> u32 {
    let mut deaths = 0;
    let pause = |milliseconds: u64| {
        for _ in 0..milliseconds / 10 {
            if !stopping.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    };
    while !stopping.load(Ordering::Relaxed) {
        pause(4000 + rng.below(8000));
        let victim = rng.below(OSDS);
        let pid = std::fs::read_to_string(dir.join(format!("run/osd.{victim}.pid"))).unwrap();
        let killed = Command::new("kill").args(["-9", pid.trim()]).status().unwrap();
        assert!(killed.success());
        deaths += 1;
        pause(rng.below(1500));
        up(dir, port);
    }
    deaths
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.given.is_some() {
            return;
        }
        let mut down = Command::new(env!("CARGO_BIN_EXE_loligo"));
        let _ = down.args(["down", "--dir"]).arg(&self.dir).output();
        if std::thread::panicking() || std::env::var_os("LOLIGO_KEEP").is_some() {
            eprintln!("kept {}", self.dir.display());
        } else {
            let _ = std::fs::remove_dir_all(&self.dir);
        }
    }
}
