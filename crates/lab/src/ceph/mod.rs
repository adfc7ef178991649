//! A real Ceph beside ours: a cluster of the packages' own daemons for one measurement, on the
//! same kind of devices, written by the same client.
//!
//! Its stores count by cause only in part. What the kernel counts of each device stands for the
//! rest, so each part of a store has a device of its own, as in the paper ([`counters`] reads,
//! [`causes`] sorts). Owns: making and ending such a cluster. Relies on: Ceph's programs, root.

pub(crate) mod causes;
pub(crate) mod counters;

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::LabError;
use crate::backend::Backend;
use crate::cell::REPLICAS;

/// What is run.
const PROGRAMS: [&str; 6] =
    ["ceph", "ceph-authtool", "monmaptool", "ceph-mon", "ceph-mgr", "ceph-osd"];
/// Those of them that stay.
const DAEMONS: [&str; 3] = ["ceph-mon", "ceph-mgr", "ceph-osd"];
/// How long one of them, and the OSDs together, may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(200);

/// The version, if a cluster can be made here; else what is missing.
pub(crate) fn version() -> Result<String, LabError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_missing =
        |program: &&&str| !std::env::split_paths(&path).any(|d| d.join(program).is_file());
    let missing: Vec<&str> = PROGRAMS.iter().filter(is_missing).copied().collect();
    if !missing.is_empty() {
        return Err(LabError::new(format!(
            "no real Ceph to compare with: {} not installed ('apt-get install ceph-mon ceph-mgr ceph-osd ceph-common' brings 16.2)",
            missing.join(", ")
        )));
    }
    // SAFETY: the call has no arguments and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return Err(LabError::new(
            "a real Ceph is measured by its devices' sectors: loop devices need root",
        ));
    }
    let said = run(Command::new("ceph-osd").arg("--version"))?;
    // "ceph version 16.2.15 (hash) pacific (stable)"
    let number = said.split_whitespace().nth(2).unwrap_or("?");
    Ok(number.to_owned())
}

/// Runs a program to its end and takes what it printed.
fn run(command: &mut Command) -> Result<String, LabError> {
    run_with(command, b"")
}

fn run_with(command: &mut Command, input: &[u8]) -> Result<String, LabError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let fail = |e: std::io::Error| LabError::new(format!("cannot run {program}: {e}"));
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(fail)?;
    if let Some(mut stdin) = child.stdin.take() {
        // One that does not read its input says so by its exit code.
        let _ = stdin.write_all(input);
    }
    let out = child.wait_with_output().map_err(fail)?;
    if out.status.success() {
        return Ok(String::from_utf8_lossy(&out.stdout).trim().to_owned());
    }
    let said = String::from_utf8_lossy(&out.stderr);
    let said = said.lines().rfind(|line| !line.trim().is_empty());
    Err(LabError::new(format!("{program}: {}", said.unwrap_or("it said nothing"))))
}

fn conf(dir: &Path, fsid: &str, port: u16, backend: &Backend, sets: &[String]) -> String {
    let own = backend.sets.iter().copied();
    let sets: String = own
        .chain(sets.iter().map(String::as_str))
        .filter_map(|set| set.split_once('='))
        .map(|(name, value)| format!("{name} = {}\n", config::quoted(value)))
        .collect();
    let dir = dir.display();
    let store = backend.store;
    // FileStore takes all of a journal that is a block device.
    format!(
        "[global]\n\
         fsid = {fsid}\n\
         mon_initial_members = a\n\
         mon_host = [v2:127.0.0.1:{port}]\n\
         public_addr = 127.0.0.1\n\
         run_dir = {dir}/run\n\
         admin_socket = {dir}/run/$name.asok\n\
         log_file = {dir}/log/$name.log\n\
         pid_file = {dir}/run/$name.pid\n\
         keyring = {dir}/keyring\n\
         auth_allow_insecure_global_id_reclaim = false\n\
         osd_crush_chooseleaf_type = 0\n\
         osd_pool_default_size = {REPLICAS}\n\
         osd_pool_default_min_size = 2\n\
         osd_pool_default_pg_autoscale_mode = off\n\
         mon_data_avail_warn = 1\n\
         mon_data_avail_crit = 0\n\
         paxos_propose_interval = 0.05\n\
         osd_objectstore = {store}\n\
         {sets}\
         [mon]\n\
         mon_data = {dir}/mon/$id\n\
         [mgr]\n\
         mgr_data = {dir}/mgr/$id\n\
         mgr_initial_modules =\n\
         [osd]\n\
         osd_data = {dir}/osd/$id\n\
         keyring = {dir}/ring.$id\n\
         osd_journal = {dir}/devices/journal.$id\n\
         osd_journal_size = 0\n\
         osd_memory_target = 1073741824\n\
         osd_class_dir = /usr/lib/x86_64-linux-gnu/rados-classes\n\
         [client]\n\
         admin_socket =\n"
    )
}

/// Makes and starts a cluster in `dir`: one monitor, one manager, [`REPLICAS`] OSDs whose devices
/// are in `dir/devices`. What was begun and failed is ended by [`down`].
pub(crate) fn up(dir: &Path, backend: &Backend, sets: &[String]) -> Result<(), LabError> {
    for folder in ["run", "log", "mon", "mgr/x", "osd"] {
        fs::create_dir_all(dir.join(folder))?;
    }
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let fsid = fs::read_to_string("/proc/sys/kernel/random/uuid")?;
    let fsid = fsid.trim();
    let conf_file = dir.join("ceph.conf");
    fs::write(&conf_file, conf(dir, fsid, port, backend, sets))?;
    let ceph = |program: &str, args: &[&str]| {
        let mut command = Command::new(program);
        command.env("CEPH_CONF", &conf_file).args(args);
        command
    };
    let path = |name: &str| dir.join(name).to_string_lossy().into_owned();
    let (ring, monmap) = (path("keyring"), path("monmap"));
    let address = format!("[v2:127.0.0.1:{port}]");
    let tool = |args: &[&str]| run(&mut ceph("ceph-authtool", args));
    tool(&["--create-keyring", &ring, "--gen-key", "-n", "mon.", "--cap", "mon", "allow *"])?;
    for (name, mon) in [("client.admin", "allow *"), ("mgr.x", "allow profile mgr")] {
        tool(&[
            &ring,
            "--gen-key",
            "-n",
            name,
            "--cap",
            "mon",
            mon,
            "--cap",
            "osd",
            "allow *",
            "--cap",
            "mds",
            "allow *",
            "--cap",
            "mgr",
            "allow *",
        ])?;
    }
    run(&mut ceph("monmaptool", &["--create", "--addv", "a", &address, "--fsid", fsid, &monmap]))?;
    let mkfs = ["-i", "a", "--mkfs", "--monmap", &monmap, "--keyring", &ring];
    run(&mut ceph("ceph-mon", &mkfs))?;
    run(&mut ceph("ceph-mon", &["-i", "a"]))?;
    let patience = PATIENCE.as_secs().to_string();
    let tell = |args: &[&str], input: &[u8]| {
        run_with(ceph("ceph", &["--connect-timeout", &patience]).args(args), input)
    };
    // A manager's own pool would be written to beside the load.
    let quiet = "mgr/devicehealth/enable_monitoring";
    tell(&["config", "set", "mgr", quiet, "false", "--force"], b"")?;
    run(&mut ceph("ceph-mgr", &["-i", "x"]))?;
    for n in 0..REPLICAS {
        let id = n.to_string();
        let data = dir.join("osd").join(&id);
        fs::create_dir_all(&data)?;
        if backend.store == "bluestore" {
            for (link, part) in [("block", "data"), ("block.db", "db"), ("block.wal", "wal")] {
                let device = dir.join("devices").join(format!("{part}.{n}"));
                std::os::unix::fs::symlink(device, data.join(link))?;
            }
        }
        let uuid = fs::read_to_string("/proc/sys/kernel/random/uuid")?;
        let uuid = uuid.trim();
        let secret = tool(&["--gen-print-key"])?;
        let json = serde_json::json!({"cephx_secret": secret}).to_string();
        tell(&["osd", "new", uuid, "-i", "-"], json.as_bytes())?;
        let (ring, name) = (path(&format!("ring.{n}")), format!("osd.{n}"));
        tool(&["--create-keyring", &ring, "--name", &name, "--add-key", &secret])?;
        let mkfs = ["-i", &id, "--mkfs", "--osd-uuid", uuid];
        let begun = run(&mut ceph("ceph-osd", &mkfs))
            .and_then(|_| run(&mut ceph("ceph-osd", &["-i", &id])));
        begun.map_err(|e| LabError::by_backend(format!("osd.{n} cannot be made: {e}")))?;
    }
    let begin = Instant::now();
    loop {
        let stat = tell(&["osd", "stat", "-f", "json"], b"")?;
        let stat: serde_json::Value = serde_json::from_str(&stat).unwrap_or_default();
        if stat["num_up_osds"].as_u64() == Some(REPLICAS) {
            return Ok(());
        }
        if begin.elapsed() > PATIENCE {
            let last = last_words(dir);
            return Err(LabError::by_backend(format!("its OSDs do not come up{last}")));
        }
        std::thread::sleep(PAUSE);
    }
}

/// Processes that [`up`] started for this folder: daemons that were given its configuration, and what
/// this process runs for it. An OSD that hangs while it ends has taken its pid file away, so that these
/// files are not enough; and a shell in which the user looks at the cluster has been given it, too.
fn processes(dir: &Path) -> Vec<i32> {
    let conf = format!("CEPH_CONF={}", dir.join("ceph.conf").display());
    let is_of = |pid: &i32| {
        let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let mut variables = environ.split(|b| *b == 0);
        variables.any(|variable| variable == conf.as_bytes()) && is_labs(*pid)
    };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(is_of).collect()
}

/// Whether a process is a daemon of Ceph's, or a child of this one.
fn is_labs(pid: i32) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let program = line.split(|b| *b == 0).next().unwrap_or_default();
    let name = Path::new(OsStr::from_bytes(program)).file_name().unwrap_or_default();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok());
    DAEMONS.iter().any(|daemon| name == *daemon) || parent == Some(std::process::id())
}

/// Ends the cluster in `dir`; returns when its daemons are gone.
pub(crate) fn down(dir: &Path) {
    let begin = Instant::now();
    loop {
        let left = processes(dir);
        if left.is_empty() || begin.elapsed() > PATIENCE {
            return;
        }
        for pid in left {
            // SAFETY: the call takes two numbers; the process is this cluster's.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        std::thread::sleep(PAUSE);
    }
}

/// Whether a process that is not gone and not a zombie.
fn is_alive(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    state.is_some_and(|state| state != 'Z' && state != 'X')
}

/// Names of OSDs whose processes ended, or are ending: the first thing that goes is the pid file.
pub(crate) fn gone(dir: &Path) -> Vec<String> {
    let names = (0..REPLICAS).map(|n| format!("osd.{n}"));
    let is_gone = |name: &String| {
        let pid = fs::read_to_string(dir.join("run").join(format!("{name}.pid")));
        pid.map_or(true, |pid| !is_alive(pid.trim()))
    };
    names.filter(is_gone).collect()
}

/// What the OSDs that are gone said last, behind a colon: why they failed, by their logs. Empty if
/// all live.
pub(crate) fn last_words(dir: &Path) -> String {
    let gone = gone(dir);
    let words = gone.iter().map(|name| {
        let log = fs::read(dir.join("log").join(format!("{name}.log"))).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        format!("{name} is gone: {}", reason(&log))
    });
    let words: Vec<String> = words.collect();
    match words.is_empty() {
        true => String::new(),
        false => format!(": {}", words.join("; ")),
    }
}

/// The line of an OSD's log that says why it ended: a failed assertion or a signal if there is
/// one, else the last one.
fn reason(log: &str) -> String {
    // A crash is followed by a dump of recent events that begins so.
    let before = log.split("--- begin dump of recent events ---").next();
    let lines = || before.unwrap_or(log).lines().filter(|l| !l.is_empty());
    let why = lines().find(|line| {
        ["ceph_assert", "FAILED", "Caught signal", "ceph_abort"]
            .iter()
            .any(|word| line.contains(word))
    });
    why.or_else(|| lines().next_back())
        .unwrap_or("its log is empty")
        .trim()
        .chars()
        .take(300)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};

    use super::*;

    #[test]
    fn a_log_says_why_its_daemon_ended() {
        let log = "1 starting\n2 /x/KStore.cc: 12: FAILED ceph_assert(r == 0)\n3 more\n\
                   --- begin dump of recent events ---\n9 old\n";
        assert_eq!(reason(log), "2 /x/KStore.cc: 12: FAILED ceph_assert(r == 0)");
        assert_eq!(reason("a\nb\n\n"), "b");
        assert_eq!(reason(""), "its log is empty");
    }

    /// A shell with CEPH_CONF set to the cluster under test was killed with it.
    #[test]
    fn only_daemons_and_own_children_are_ended() {
        let dir = std::env::temp_dir().join(format!("lab-processes-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        // A shell's children, which are not this process's: each waits for the end of its input, and tells its number.
        let script = "exec 3<&0; sh -c 'echo $$; read line <&3' & \
                      ln -sf $(command -v sh) $0/ceph-osd; $0/ceph-osd -c 'echo $$; read line <&3' & wait";
        let mut shell = Command::new("sh")
            .args(["-c", script])
            .arg(&dir)
            .env("CEPH_CONF", dir.join("ceph.conf"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(shell.stdout.take().unwrap()).lines();
        let mut pids: Vec<i32> =
            (0..2).map(|_| lines.next().unwrap().unwrap().parse().unwrap()).collect();
        let found = processes(&dir);
        let own = i32::try_from(shell.id()).unwrap();
        assert!(found.contains(&own), "what this process runs");
        pids.retain(|pid| found.contains(pid));
        assert_eq!(pids.len(), 1, "the daemon, not the shell");
        let line = fs::read(format!("/proc/{}/cmdline", pids[0])).unwrap();
        assert!(String::from_utf8_lossy(&line).contains("ceph-osd"));
        drop(shell.stdin.take());
        shell.wait().unwrap();
        fs::remove_dir_all(&dir).unwrap();
    }

    /// A value of --set with `;` or `#` in it made a configuration that Ceph refused.
    #[test]
    fn values_are_written_as_ceph_reads_them() {
        let text = conf(Path::new("/x"), "f", 1, &crate::backend::KNOWN[0], &["a=b;c".to_owned()]);
        assert!(text.contains("\na = \"b\\;c\"\n"), "{text}");
    }
}
