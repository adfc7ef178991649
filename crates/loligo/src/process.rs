//! Processes of a cluster on one machine: started detached, found by their pid files, stopped.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::environment;
use crate::failure::Failure;
use crate::guests::{self, Guest};
use crate::household::OTHERS_GO_ON;
use crate::layout::Layout;
use crate::output::tell;
use crate::stores;

/// A daemon that was told to stop and does nothing for so long is killed.
const STOP_TIME: Duration = Duration::from_secs(10);
/// One that is at work is given so long, unless it would lose its store.
const CLOSING_MAX: Duration = Duration::from_secs(300);

/// How the line begins with which a process says why it fails.
const LAST_LINE: &str = "loligo: ";

/// Bytes of a pid file at most: ten digits and a line's end.
const PID_LEN_MAX: usize = 11;

/// Starts `loligo KIND --id ID -c CONF MORE`, or the program of one of Ceph's daemons with such arguments, with its output in its log and its pid in its pid file.
/// Detached daemons get a session of their own and outlive the terminal. OSDs that share a process have
/// an `--id` and a pid file each, and one log: that of the first, to which the others' names lead.
pub(crate) fn start(
    layout: &Layout,
    kind: &str,
    ids: &[String],
    more: &[String],
    detach: bool,
) -> Result<Child, Failure> {
    let names: Vec<String> = ids.iter().map(|id| format!("{kind}.{id}")).collect();
    share_log(layout, &names)?;
    let name = names.first().ok_or_else(|| Failure::new("no daemon to start"))?;
    let guest = Guest::of(kind);
    let program = guest.map_or_else(|| Ok(std::env::current_exe()?), Guest::find)?;
    let log =
        File::options().create(true).append(true).open(layout.log(name)).map_err(|e| {
            Failure::new(format!("cannot write {}: {e}", layout.log(name).display()))
        })?;
    let mut command = Command::new(program);
    command.args(guest.is_none().then_some(kind));
    for id in ids {
        command.args(["--id", &guest.map_or_else(|| id.clone(), |guest| guest.id(id))]);
    }
    command
        .arg("-c")
        .arg(layout.conf())
        .args(more)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    for name in environment::VARIABLES {
        command.env_remove(name);
    }
    let pid_files: Vec<File> =
        names.iter().map(|name| File::create(layout.pid_file(name))).collect::<Result<_, _>>()?;
    // SAFETY: setsid, getpid and write are async-signal-safe; nothing is allocated, and the files are
    // open already.
    unsafe {
        command.pre_exec(move || {
            if detach {
                libc::setsid();
            }
            // By the daemon-to-be itself: whenever this process is killed, the daemon is known.
            let mut text = [0; PID_LEN_MAX];
            let mut rest = &mut text[..];
            writeln!(rest, "{}", libc::getpid())?;
            let len = PID_LEN_MAX - rest.len();
            pid_files.iter().try_for_each(|mut file| file.write_all(&text[..len]))
        });
    }
    command.spawn().map_err(|e| Failure::new(format!("cannot start {name}: {e}")))
}

/// Has the logs of all but the first lead to the first's. A log of its own that one has stays beside, as NAME.log.old;
/// one that led to another's before does no more.
fn share_log(layout: &Layout, names: &[String]) -> Result<(), Failure> {
    for (n, name) in names.iter().enumerate() {
        let log = layout.log(name);
        let failed =
            |e: std::io::Error| Failure::new(format!("cannot write {}: {e}", log.display()));
        match fs::symlink_metadata(&log) {
            Ok(found) if found.is_symlink() => fs::remove_file(&log).map_err(failed)?,
            Ok(_) if n > 0 => fs::rename(&log, log.with_extension("log.old")).map_err(failed)?,
            _ => {}
        }
        if n > 0 {
            symlink(format!("{}.log", names[0]), &log).map_err(failed)?;
        }
    }
    Ok(())
}

/// The daemon of a pid file (`DIR/run/osd.0.pid`), if it lives. The pid may have been given to
/// another process since, so the process must have the arguments that [`start`] gives, whatever its
/// binary is called; a zombie has none left.
pub(crate) fn running(pid_file: &Path) -> Option<i32> {
    let (kind, id) = pid_file.file_stem()?.to_str()?.split_once('.')?;
    let conf = pid_file.parent()?.parent()?.join("ceph.conf");
    let pid: i32 = fs::read_to_string(pid_file).ok()?.trim().parse().ok()?;
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
    let guest = Guest::of(kind);
    let id = guest.map_or_else(|| id.to_owned(), |guest| guest.id(id));
    let is_of_kind = |word: &[u8]| match guest {
        Some(guest) => {
            Path::new(OsStr::from_bytes(word)).file_name() == Some(OsStr::new(guest.program))
        }
        None => word == kind.as_bytes(),
    };
    let found = words.iter().enumerate().filter(|(_, word)| is_of_kind(word)).any(|(at, _)| {
        let named = daemons_conf(&words[at + 1..], id.as_bytes());
        // A folder that was moved under a daemon is still that daemon's.
        named.is_some_and(|named| named == conf || !named.exists())
    });
    found.then_some(pid)
}

/// Of arguments `--id A --id B -c CONF` the configuration, if `id` is among them.
fn daemons_conf<'a>(words: &[&'a [u8]], id: &[u8]) -> Option<&'a Path> {
    let ids = words.chunks_exact(2).take_while(|pair| pair[0] == b"--id");
    let count = ids.clone().count();
    match words.get(2 * count..)? {
        [b"-c", conf, ..] if ids.into_iter().any(|pair| pair[1] == id) => {
            Some(Path::new(OsStr::from_bytes(conf)))
        }
        _ => None,
    }
}

/// Whether a process has lost its memory, and with it its arguments, and not yet its files: the kernel takes
/// some milliseconds to close them.
fn is_ending(pid: i32) -> bool {
    /// `PF_EXITING` of the kernel's `include/linux/sched.h`.
    const EXITING: u64 = 4;
    let fields = stat_fields(format!("/proc/{pid}/stat"));
    let flags = fields.get(6).and_then(|flags| flags.parse::<u64>().ok()).unwrap_or(0);
    flags & EXITING != 0 && !matches!(fields[0].as_str(), "Z" | "X")
}

/// Names (`osd.0`) and pids of the daemons that live.
pub(crate) fn all_running(layout: &Layout) -> Vec<(String, i32)> {
    let mut found: Vec<(String, i32)> = fs::read_dir(layout.dir().join("run"))
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let name = path.file_name()?.to_str()?.strip_suffix(".pid")?.to_owned();
            Some((name, running(&path)?))
        })
        .collect();
    found.sort();
    found
}

/// Sends a signal.
pub(crate) fn signal(pid: i32, signal: i32) {
    // SAFETY: kill has no memory effects; a pid that is gone gives an error that means the same.
    unsafe {
        libc::kill(pid, signal);
    }
}

/// How the stopping of daemons went.
#[derive(Debug, Default)]
pub(crate) struct Stopped {
    /// Those that have ended.
    pub(crate) names: Vec<String>,
    /// What is to be told of some of them: that they did not end well.
    pub(crate) complaints: Vec<String>,
}

impl Stopped {
    /// An error if there is something to complain of.
    pub(crate) fn well(self) -> Result<(), Failure> {
        match self.complaints.is_empty() {
            true => Ok(()),
            false => Err(Failure::new(self.complaints.join("\n"))),
        }
    }
}

/// Stops all daemons.
pub(crate) fn stop_all(layout: &Layout) -> Stopped {
    stop(layout, &all_running(layout), STOP_TIME)
}

/// Stops the daemons that have these names.
pub(crate) fn stop_named(layout: &Layout, names: &[String]) -> Stopped {
    let mut daemons = all_running(layout);
    daemons.retain(|(name, _)| names.contains(name));
    stop(layout, &daemons, STOP_TIME)
}

/// Stops these daemons, if they are the processes that run under these names still.
pub(crate) fn stop_these(layout: &Layout, these: &[(String, i32)]) -> Stopped {
    stop(layout, these, STOP_TIME)
}

/// Stops these daemons, of those that run: Ceph's own first, then OSDs and managers, then monitors, so that each can say goodbye. One
/// that does nothing to stop for `idle` is killed.
fn stop(layout: &Layout, these: &[(String, i32)], idle: Duration) -> Stopped {
    let mut daemons = all_running(layout);
    daemons.retain(|daemon| these.contains(daemon));
    let (guests, ours): (Vec<_>, Vec<_>) =
        daemons.into_iter().partition(|(name, _)| guests::is_guest(name));
    let (mons, others): (Vec<_>, Vec<_>) =
        ours.into_iter().partition(|(name, _)| name.starts_with("mon."));
    let mut stopped = Stopped::default();
    for group in [guests, others, mons] {
        let mut waiting: Vec<Stopping> = group
            .into_iter()
            .map(|(name, pid)| {
                let log_len = fs::metadata(layout.log(&name)).map_or(0, |log| log.len());
                let in_memory = has_store_in_memory(layout, &name);
                let most = if in_memory { Duration::MAX } else { CLOSING_MAX };
                Stopping { name, pid, log_len, in_memory, patience: Patience::new(pid, idle, most) }
            })
            .collect();
        // Processes; several OSDs may share one.
        let mut killed = BTreeSet::new();
        for one in &waiting {
            signal(one.pid, libc::SIGTERM);
        }
        while !waiting.is_empty() {
            waiting.retain_mut(|one| one.is_on(layout, &mut killed, &mut stopped));
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    stopped
}

/// A daemon that was told to stop.
struct Stopping {
    name: String,
    pid: i32,
    /// Bytes of its log when it was told.
    log_len: u64,
    /// All others keep what they have acknowledged when they are killed.
    in_memory: bool,
    patience: Patience,
}

impl Stopping {
    /// Whether it still runs. One that has waited long enough is killed, one that has ended is noted.
    fn is_on(
        &mut self,
        layout: &Layout,
        killed: &mut BTreeSet<i32>,
        stopped: &mut Stopped,
    ) -> bool {
        let Stopping { name, pid, .. } = self;
        let file = layout.pid_file(name);
        if is_ending(*pid) && !matches!(self.patience.look(*pid), Look::Idle) {
            return true;
        }
        if running(&file).is_some() {
            match self.patience.look(*pid) {
                Look::Wait => {}
                Look::Busy => tell!("waiting for {name}, which is at work still"),
                Look::Idle if running(&file).is_none() => {}
                Look::Idle => {
                    if killed.insert(*pid) {
                        signal(*pid, libc::SIGKILL);
                        tell!("{name} did not stop, and was killed");
                    }
                }
            }
            return true;
        }
        let _ = fs::remove_file(file);
        if !killed.contains(pid) {
            let said = log_since(&layout.log(name), self.log_len);
            stopped.complaints.extend(complaint(&said, name));
        } else if self.in_memory && !is_saved(layout, name) {
            let told = "did not stop, and was killed: its store was in memory";
            stopped.complaints.push(format!("{name} {told}"));
        }
        stopped.names.push(name.clone());
        false
    }
}

/// Where an OSD has its data.
fn data_of(layout: &Layout, name: &str) -> Option<PathBuf> {
    name.strip_prefix("osd.").map(|id| layout.data("osd", id))
}

fn has_store_in_memory(layout: &Layout, name: &str) -> bool {
    data_of(layout, name).is_some_and(|data| stores::written_kind(&data) == "memstore")
}

fn is_saved(layout: &Layout, name: &str) -> bool {
    data_of(layout, name).is_some_and(|data| data.join("memstore").exists())
}

/// How long a daemon that was told to stop is waited for: as long as it does something. One that has its store in memory
/// writes all of it to a file, and loses it if it is killed meanwhile.
struct Patience {
    idle: Duration,
    /// So long at most, whatever it does.
    most: Duration,
    begun: Instant,
    since: Instant,
    seen: Activity,
    told: bool,
}

/// What is to be done about a daemon that still runs.
#[derive(Debug, PartialEq, Eq)]
enum Look {
    Wait,
    /// It goes on, and the user is to be told whom we wait for.
    Busy,
    Idle,
}

impl Patience {
    fn new(pid: i32, idle: Duration, most: Duration) -> Patience {
        let (begun, since) = (Instant::now(), Instant::now());
        Patience { idle, most, begun, since, seen: Activity::of(pid), told: false }
    }

    fn look(&mut self, pid: i32) -> Look {
        let elapsed = self.since.elapsed();
        if elapsed < self.idle {
            return Look::Wait;
        }
        let now = Activity::of(pid);
        if !now.is_work_since(&self.seen, elapsed) || self.begun.elapsed() > self.most {
            return Look::Idle;
        }
        (self.since, self.seen) = (Instant::now(), now);
        match std::mem::replace(&mut self.told, true) {
            true => Look::Wait,
            false => Look::Busy,
        }
    }
}

/// What a process has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Activity {
    written_bytes: u64,
    cpu: Duration,
    /// A thread of it waits for a disk, as in fsync.
    at_disk: bool,
}

impl Activity {
    fn of(pid: i32) -> Activity {
        let io = fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
        let written = io.lines().find_map(|line| line.strip_prefix("wchar:")?.trim().parse().ok());
        // Of all threads: 14 and 15 are user's and system's time in hundredths of a second (proc(5)).
        let fields = stat_fields(format!("/proc/{pid}/stat"));
        let ticks = |n: usize| fields.get(n - FIRST_FIELD).and_then(|t| t.parse::<u64>().ok());
        let ticks: u64 = ticks(14).unwrap_or(0) + ticks(15).unwrap_or(0);
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let mut states = tasks.map(|task| stat_fields(task.path().join("stat")));
        Activity {
            written_bytes: written.unwrap_or(0),
            cpu: Duration::from_millis(ticks * 10),
            at_disk: states.any(|fields| fields.first().is_some_and(|state| state == "D")),
        }
    }

    /// Whether it worked: a daemon that merely is there looks at its timers, and writes a line to its log now and then.
    fn is_work_since(&self, before: &Activity, elapsed: Duration) -> bool {
        const WRITTEN: u64 = 64 << 10;
        const SHARE_OF_TIME: u32 = 10;
        self.at_disk
            || self.written_bytes.saturating_sub(before.written_bytes) >= WRITTEN
            || self.cpu.saturating_sub(before.cpu) >= elapsed / SHARE_OF_TIME
    }
}

/// The number of the field that comes behind a process's name, its state (`proc(5)`).
const FIRST_FIELD: usize = 3;

/// Fields of a `stat` file from the state on; the name before it may have anything in it.
fn stat_fields(path: impl AsRef<Path>) -> Vec<String> {
    let stat = fs::read_to_string(path).unwrap_or_default();
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    rest.split_whitespace().map(str::to_owned).collect()
}

/// Why a daemon did not end well, by what it wrote when it was told to stop.
fn complaint(said: &str, name: &str) -> Option<String> {
    let names = |line: &&str| line.split([' ', ':']).any(|word| word == name);
    let why = |line: &str| {
        let alone = line.strip_prefix(LAST_LINE);
        let shared = line.ends_with(OTHERS_GO_ON).then(|| line.trim_end_matches(OTHERS_GO_ON));
        alone.or(shared).map(|why| why.trim_end().to_owned())
    };
    said.lines().filter(names).filter_map(why).next_back()
}

/// Bytes of a log that are looked at, its last ones.
const TAIL_LEN: u64 = 64 << 10;

/// What was written to a log behind so many bytes, as far as it is in its tail.
fn log_since(log: &Path, len: u64) -> String {
    let mut text = Vec::new();
    let read = File::open(log).and_then(|mut file| {
        let end = file.metadata()?.len();
        file.seek(SeekFrom::Start(len.max(end.saturating_sub(TAIL_LEN))))?;
        // It may grow meanwhile.
        file.take(TAIL_LEN).read_to_end(&mut text)
    });
    match read {
        Ok(_) => String::from_utf8_lossy(&text).into_owned(),
        Err(_) => String::new(),
    }
}

/// The last words of a daemon that has stopped, for the error that says so: of those that it shares its log with only what names
/// it, and where it says why it ends, that alone.
pub(crate) fn log_tail(layout: &Layout, name: &str) -> String {
    last_words(&log_since(&layout.log(name), 0), name)
}

fn last_words(log: &str, name: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    let mut tail = lines[lines.len().saturating_sub(3)..].to_vec();
    if let Some(end) = tail.last().and_then(|line| line.strip_prefix(LAST_LINE)) {
        tail = vec![end];
    }
    let word = |line: &&&str| line.split([' ', ':']).any(|word| word == name);
    let naming: Vec<&str> = lines.iter().filter(word).copied().collect();
    if let [.., last] = &naming[..]
        && last.ends_with(OTHERS_GO_ON)
    {
        tail = vec![last.trim_end_matches(OTHERS_GO_ON).trim_end()];
    }
    tail.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of an OSD that failed in a process with others the error showed the others' last lines.
    #[test]
    fn last_words_are_the_daemons_own() {
        let shared = "t osd.1 ERROR household: osd.1 stops: rot (others of this process go on)\n\
                      t osd.0 INFO one\nt osd.2 INFO two\nt osd.0 INFO three\n";
        assert_eq!(last_words(shared, "osd.1"), "t osd.1 ERROR household: osd.1 stops: rot");
        assert_eq!(last_words("a\nb\nc\nd\n", "osd.1"), "b\nc\nd");
        assert_eq!(last_words("a\nloligo: osd.1 stops: rot\n", "osd.1"), "osd.1 stops: rot");
    }

    /// A daemon whose log had a byte in it that is not UTF-8 ended without last words, and for those of a large log all of
    /// it was read.
    #[test]
    fn of_a_log_the_end_is_read_whatever_is_in_it() {
        let dir = std::env::temp_dir().join(format!("loligo-tail-{}", std::process::id()));
        let layout = Layout::create(&dir).unwrap();
        layout.make_folders().unwrap();
        let mut log = vec![0xff; 2 * TAIL_LEN as usize];
        log.extend_from_slice(b"\nosd.0 has \xff\nloligo: osd.0 stops: rot\n");
        fs::write(layout.log("osd.0"), &log).unwrap();
        assert_eq!(log_tail(&layout, "osd.0"), "osd.0 stops: rot");
        let len = log_since(&layout.log("osd.0"), 0).chars().count();
        assert!(len <= TAIL_LEN as usize, "{len}");
        assert_eq!(log_since(&layout.log("osd.0"), log.len() as u64 - 4), "rot\n");
        fs::remove_dir_all(&dir).unwrap();
    }

    /// `down` said "stopped osd.0" of one whose store in memory had found no room on the disk, and was gone.
    #[test]
    fn one_that_did_not_end_well_is_told() {
        let said = "t osd.0 INFO x\nloligo: osd.0 stops: its store does not close: no room\n";
        let why = "osd.0 stops: its store does not close: no room";
        assert_eq!(complaint(said, "osd.0").as_deref(), Some(why));
        assert_eq!(complaint(said, "osd.1"), None, "another one of the process");
        let shared = "t osd.1 ERROR household: osd.1 stops: rot (others of this process go on)\n\
                      t osd.0 INFO osd.0 has stopped\n";
        assert!(complaint(shared, "osd.1").unwrap().ends_with("osd.1 stops: rot"));
        assert_eq!(complaint(shared, "osd.0"), None);
        assert_eq!(complaint("t osd.0 INFO osd.0 has stopped\n", "osd.0"), None);
    }

    /// A process that `running` takes for osd.0 of the folder.
    fn disguised(layout: &Layout, script: &str) -> Child {
        fs::write(layout.conf(), "").unwrap();
        let ready = layout.dir().join("ready");
        let child = Command::new("/bin/sh")
            .arg("-c")
            .arg(format!("trap '' TERM; : > {}; {script}", ready.display()))
            .args(["osd", "--id", "0", "-c"])
            .arg(layout.conf())
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        while !ready.exists() {
            std::thread::sleep(Duration::from_millis(1));
        }
        fs::write(layout.pid_file("osd.0"), format!("{}\n", child.id())).unwrap();
        child
    }

    /// An OSD with its store in memory that took more than ten seconds to save it was killed meanwhile, and had lost it.
    #[test]
    fn who_is_at_work_is_not_killed() {
        let dir = std::env::temp_dir().join(format!("loligo-stop-{}", std::process::id()));
        let layout = Layout::create(&dir).unwrap();
        layout.make_folders().unwrap();
        let (saved, idle) = (layout.dir().join("saved"), Duration::from_millis(500));
        let work = "i=0; while [ $i -lt 4000000 ]; do i=$((i + 1)); done";
        let mut child = disguised(&layout, &format!("{work}; : > {}", saved.display()));
        let stopped = stop(&layout, &all_running(&layout), idle);
        assert!(saved.exists() && stopped.complaints.is_empty(), "{stopped:?}");
        assert_eq!(stopped.names, ["osd.0"]);
        child.wait().unwrap();
        // One that does nothing is, which is told where it costs something.
        fs::create_dir(layout.data("osd", "0")).unwrap();
        fs::write(layout.data("osd", "0").join("type"), "memstore\n").unwrap();
        fs::remove_file(layout.dir().join("ready")).unwrap();
        let mut child = disguised(&layout, "read line");
        let stopped = stop(&layout, &all_running(&layout), idle);
        assert!(
            stopped.complaints[0].contains("was killed: its store was in memory"),
            "{stopped:?}"
        );
        child.wait().unwrap();
        fs::remove_dir_all(&dir).unwrap();
    }

    /// What a daemon does by being there is no work; what closing takes is.
    #[test]
    fn work_is_told_from_being_there() {
        let second = Duration::from_secs(1);
        let of = |written_bytes, cpu, at_disk| {
            let now = Activity { written_bytes, cpu: Duration::from_millis(cpu), at_disk };
            now.is_work_since(&Activity::default(), second)
        };
        assert!(!of(0, 0, false) && !of(1000, 20, false));
        assert!(of(1 << 20, 0, false) && of(0, 500, false) && of(0, 0, true));
    }

    /// Ctrl-C at `up --foreground` stopped daemons that another call had started since.
    #[test]
    fn only_the_process_that_is_meant_is_stopped() {
        let dir = std::env::temp_dir().join(format!("loligo-others-{}", std::process::id()));
        let layout = Layout::create(&dir).unwrap();
        layout.make_folders().unwrap();
        let mut child = disguised(&layout, "read line");
        let pid = i32::try_from(child.id()).unwrap();
        let before = [("osd.0".to_owned(), pid + 1)];
        assert!(stop(&layout, &before, Duration::ZERO).names.is_empty());
        assert_eq!(running(&layout.pid_file("osd.0")), Some(pid));
        child.kill().unwrap();
        child.wait().unwrap();
        fs::remove_dir_all(&dir).unwrap();
    }

    /// A daemon was in its pid file only after it had been started: one whose `up` was killed between ran
    /// unseen.
    #[test]
    fn a_daemon_writes_its_pid_itself() {
        let dir = std::env::temp_dir().join(format!("loligo-start-pid-{}", std::process::id()));
        let layout = Layout::create(&dir).unwrap();
        layout.make_folders().unwrap();
        // The program is this test's, which ends as it knows no such arguments.
        let ids = ["0".to_owned(), "1".to_owned()];
        let mut child = start(&layout, "osd", &ids, &[], true).unwrap();
        for name in ["osd.0", "osd.1"] {
            let written = fs::read_to_string(layout.pid_file(name)).unwrap();
            assert_eq!(written, format!("{}\n", child.id()));
        }
        child.wait().unwrap();
        fs::remove_dir_all(&dir).unwrap();
    }

    /// Daemons were told by the name of their binary: one that was copied to another name was
    /// started a second time, and not stopped.
    #[test]
    fn a_daemon_is_told_by_its_arguments() {
        let dir = std::env::temp_dir().join(format!("loligo-running-{}", std::process::id()));
        fs::create_dir_all(dir.join("run")).unwrap();
        let conf = dir.join("ceph.conf");
        fs::write(&conf, "").unwrap();
        // Waits for its input to end; what follows is for show.
        let mut child = Command::new("/bin/sh")
            .args(["-c", "read line", "osd", "--id", "0", "--id", "7", "-c"])
            .arg(&conf)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        // A machine under load shows the child as a copy of this process until its exec: the test
        // failed there.
        let cmdline = format!("/proc/{pid}/cmdline");
        while !fs::read(&cmdline).unwrap().windows(4).any(|part| part == b"--id") {
            std::thread::sleep(Duration::from_millis(1));
        }
        let file = |name: &str, pid: i32| {
            let path = dir.join("run").join(format!("{name}.pid"));
            fs::write(&path, format!("{pid}\n")).unwrap();
            path
        };
        assert_eq!(running(&file("osd.0", pid)), Some(pid));
        assert_eq!(running(&file("osd.7", pid)), Some(pid), "one of several");
        assert_eq!(running(&file("osd.1", pid)), None);
        assert_eq!(running(&file("mon.0", pid)), None);
        let own = i32::try_from(std::process::id()).unwrap();
        assert_eq!(running(&file("osd.0", own)), None, "a pid given to another");
        drop(child.stdin.take());
        // It is gone before it is waited for: a zombie.
        let stat = format!("/proc/{pid}/stat");
        while !fs::read_to_string(&stat).unwrap().contains(") Z") {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(running(&file("osd.0", pid)), None);
        child.wait().unwrap();
        fs::remove_dir_all(&dir).unwrap();
    }
}
