//! Processes of a cluster on one machine: started detached, found by their pid files, stopped.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::household::OTHERS_GO_ON;
use crate::layout::Layout;

/// How long a daemon gets to stop by itself before it is killed.
const STOP_TIME: Duration = Duration::from_secs(10);

/// Bytes of a pid file at most: ten digits and a line's end.
const PID_LEN_MAX: usize = 11;

/// Starts `loligo KIND --id ID -c CONF MORE` with its output in its log and its pid in its pid file.
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
    let program = std::env::current_exe()?;
    let log =
        File::options().create(true).append(true).open(layout.log(name)).map_err(|e| {
            Failure::new(format!("cannot write {}: {e}", layout.log(name).display()))
        })?;
    let mut command = Command::new(program);
    command
        .arg(kind)
        .args(ids.iter().flat_map(|id| ["--id", id]))
        .arg("-c")
        .arg(layout.conf())
        .args(more)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
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
    let found =
        words.iter().enumerate().filter(|(_, word)| **word == kind.as_bytes()).any(|(at, _)| {
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

/// Stops all daemons.
pub(crate) fn stop_all(layout: &Layout) -> Vec<String> {
    let all: Vec<String> = all_running(layout).into_iter().map(|(name, _)| name).collect();
    stop(layout, &all)
}

/// Stops the daemons: OSDs and managers first, then monitors, so that each can say goodbye.
pub(crate) fn stop(layout: &Layout, names: &[String]) -> Vec<String> {
    let mut daemons = all_running(layout);
    daemons.retain(|(name, _)| names.contains(name));
    let (mons, others): (Vec<_>, Vec<_>) =
        daemons.into_iter().partition(|(name, _)| name.starts_with("mon."));
    let mut stopped = Vec::new();
    for group in [others, mons] {
        for (_, pid) in &group {
            signal(*pid, libc::SIGTERM);
        }
        let end = Instant::now() + STOP_TIME;
        for (name, pid) in group {
            let file = layout.pid_file(&name);
            while running(&file).is_some() {
                if Instant::now() > end {
                    signal(pid, libc::SIGKILL);
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            let _ = fs::remove_file(file);
            stopped.push(name);
        }
    }
    stopped
}

/// The last words of a daemon that has stopped, for the error that says so: of those that it shares its log with only what names
/// it, and where it says why it ends, that alone.
pub(crate) fn log_tail(layout: &Layout, name: &str) -> String {
    let text = fs::read_to_string(layout.log(name)).unwrap_or_default();
    last_words(&text, name)
}

fn last_words(log: &str, name: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    let mut tail = lines[lines.len().saturating_sub(3)..].to_vec();
    if let Some(end) = tail.last().and_then(|line| line.strip_prefix("loligo: ")) {
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
