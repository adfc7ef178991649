#!/usr/bin/python3
"""Logs as Ceph's operators know them: `log_file` and its variables, `debug_*` while a daemon runs, logrotate's SIGHUP, `log reopen`,
the cluster log's files. About 20 s."""
import os
import pathlib
import signal
import sys
import tempfile

from cluster import LOLIGO, Cluster


def say(c, osd, text, level="info"):
    """Has an OSD say something in the cluster log, and so in its own."""
    c.ceph("tell", f"osd.{osd}", "cluster_log", "--level", level, "--message", text)


def text(path):
    path = pathlib.Path(path)
    return path.read_text() if path.exists() else ""


def debugging(path):
    return "DEBUG osd::" in text(path)


def options_count(c, logs):
    """`log_file` and `debug_*` were taken and had no effect: lines went to standard error, as many as the environment said."""
    own = [logs / f"ceph-osd.{n}-{c.pid(f'osd.{n}')}.log" for n in range(2)]
    for n in range(2):
        assert f"osd.{n} is active" in text(own[n]) and f"osd.{1 - n} is active" not in text(own[n]), text(own[n])
        assert not debugging(own[n])
    assert "mon.a starts" in text(logs / f"ceph-mon.a-{c.pid('mon.a')}.log")
    assert "mgr.x is active" in text(logs / f"ceph-mgr.x-{c.pid('mgr.x')}.log")
    # What `up` points standard error at has errors alone.
    stderr = pathlib.Path(c.dir, "log", "osd.0.log")
    assert text(stderr) == "", text(stderr)
    say(c, 0, "oh dear", "error")
    assert text(stderr).count("oh dear") == 1 and text(own[0]).count("oh dear") == 1
    # One daemon of two in a process says more, the other does not.
    c.ceph("tell", "osd.0", "config", "set", "debug_osd", "20/20")
    c.pool("p", 8)
    assert debugging(own[0]) and not debugging(own[1])
    c.ceph("tell", "osd.0", "config", "unset", "debug_osd")
    c.ceph("tell", "osd.1", "injectargs", "--debug-osd=5")
    c.pool("q", 8)
    assert debugging(own[1])
    before = text(own[0]).count("DEBUG osd::")
    c.ceph("tell", "osd.1", "config", "unset", "debug_osd")
    # From the monitors' database, and to a level that says less than usual.
    c.ceph("config", "set", "osd", "debug_osd", "0/0")
    c.wait(lambda: c.json("tell", "osd.1", "config", "get", "debug_osd")["debug_osd"] == "0/0", 10, "the option arrives")
    say(c, 1, "nobody hears")
    c.pool("r", 8)
    assert text(own[0]).count("DEBUG osd::") == before and "nobody hears" not in text(own[1])
    c.ceph("config", "rm", "osd", "debug_osd")
    c.wait(lambda: c.json("tell", "osd.1", "config", "get", "debug_osd")["debug_osd"] == "1/5", 10, "the option goes")
    # Without the file, standard error has what there is.
    c.ceph("tell", "osd.0", "config", "set", "log_to_file", "false")
    say(c, 0, "to the terminal")
    assert "to the terminal" in text(stderr) and "to the terminal" not in text(own[0])
    c.ceph("tell", "osd.0", "config", "set", "log_to_file", "true")
    c.ceph("tell", "osd.0", "config", "set", "log_to_stderr", "true")
    say(c, 0, "to both")
    assert "to both" in text(own[0])
    assert [line.startswith("debug:2") for line in text(stderr).splitlines() if "to both" in line] == [True], text(stderr)
    c.ceph("tell", "osd.0", "config", "unset", "log_to_stderr")


def files_are_opened_anew(c, logs):
    """SIGHUP, which logrotate sends, ended a daemon; `log reopen` said that it had, and did nothing."""
    pid = c.pid("osd.0")
    own = [logs / f"ceph-osd.{n}-{pid}.log" for n in range(2)]
    for n, reopen in enumerate([
        lambda: os.kill(pid, signal.SIGHUP),
        lambda: c.ceph("daemon", f"{c.dir}/run/osd.1.asok", "log", "reopen"),
        lambda: c.ceph("tell", "osd.0", "log", "reopen"),
    ]):
        for path in own:
            path.rename(f"{path}.{n}")
        say(c, 0, f"still here {n}")
        assert f"still here {n}" in text(f"{own[0]}.{n}") and not own[0].exists()
        reopen()
        c.wait(lambda: all(path.exists() for path in own), 10, "new files")
        say(c, 0, f"and now here {n}")
        assert f"and now here {n}" in text(own[0]) and f"and now here {n}" not in text(f"{own[0]}.{n}")
    # A folder that is gone: lines go on to where they went.
    logs.rename(f"{logs}.moved")
    c.ceph("tell", "osd.0", "log", "reopen")
    say(c, 0, "in the old file")
    pathlib.Path(f"{logs}.moved").rename(logs)
    assert "in the old file" in text(own[0]) and "No such file or directory" in text(own[0]), text(own[0])


def the_cluster_log_is_written(c, logs):
    """`mon_cluster_log_file` was taken and had no effect, nor had `clog_to_monitors`."""
    cluster, audit = logs / "ceph.cluster.log", logs / "ceph.audit.log"
    say(c, 0, "for all to see", "warning")
    c.wait(lambda: "for all to see" in text(cluster), 10, "the line is written")
    [line] = [line for line in text(cluster).splitlines() if "for all to see" in line]
    # As `ceph log last` has it, and once.
    assert "osd.0 (osd.0)" in line and "cluster [WRN] for all to see" in line, line
    assert line in c.ceph("log", "last", "100"), line
    c.wait(lambda: "osd pool create" in text(audit), 10, "commands in the audit log")
    assert "osd pool create" not in text(cluster)
    c.ceph("tell", "osd.0", "config", "set", "clog_to_monitors", "false")
    say(c, 0, "for myself")
    c.ceph("tell", "osd.0", "config", "set", "clog_to_monitors", "default=true")
    say(c, 0, "for all again")
    c.wait(lambda: "for all again" in text(cluster), 10, "the line is written")
    assert "for myself" not in text(cluster)
    c.ceph("config", "set", "mon", "mon_cluster_log_file_level", "error")
    say(c, 0, "too small")
    say(c, 0, "large", "error")
    c.wait(lambda: "cluster [ERR] large" in text(cluster), 10, "the line is written")
    assert "too small" not in text(cluster)


def last_words(c, logs):
    """Why a daemon could not start was on standard error alone."""
    r = c.run(LOLIGO, "osd", "--id", "7", "-c", c.conf, check=False)
    [log] = logs.glob("ceph-osd.7-*.log")
    assert r.returncode == 1 and b"loligo: " in r.stderr, r
    why = r.stderr.decode().split("loligo: ")[-1].strip()
    assert f"ERROR loligo::daemon: {why}" in text(log), text(log)


def as_up_has_it(c):
    """Standard error is the log's file: nothing stands there twice, and it goes with the file."""
    log = pathlib.Path(c.dir, "log", "osd.0.log")
    say(c, 0, "once", "error")
    assert text(log).count("once") == 1, text(log)
    log.rename(f"{log}.1")
    os.kill(c.pid("osd.0"), signal.SIGHUP)
    c.wait(log.exists, 10, "a new file")
    say(c, 0, "anew", "error")
    assert text(log).count("anew") == 1 and "anew" not in text(f"{log}.1")
    for fd in (1, 2):
        assert os.readlink(f"/proc/{c.pid('osd.0')}/fd/{fd}") == str(log)


def the_environment_wins(c):
    """LOLIGO_LOG says how much, whatever the options do."""
    log = pathlib.Path(c.dir, "log", "osd.0.log")
    c.ceph("tell", "osd.0", "config", "set", "debug_osd", "20")
    c.pool("p", 8)
    say(c, 0, "hardly")
    say(c, 0, "loud", "error")
    assert "loud" in text(log) and "hardly" not in text(log) and not debugging(log), text(log)


def main():
    with tempfile.TemporaryDirectory(prefix="loligo-logs-") as folder:
        logs = pathlib.Path(folder, "logs")
        logs.mkdir()
        sets = [f"log_file={logs}/$cluster-$type.$id-$pid.log", f"mon_cluster_log_file={logs}/$cluster.$channel.log",
                "log_stderr_prefix=debug:"]
        with Cluster(osds=2, size=2, osds_per_process=2, sets=sets) as c:
            options_count(c, logs)
            files_are_opened_anew(c, logs)
            the_cluster_log_is_written(c, logs)
            last_words(c, logs)
    with Cluster(osds=1, size=1) as c:
        as_up_has_it(c)
    os.environ["LOLIGO_LOG"] = "warn"
    with Cluster(osds=1, size=1) as c:
        the_environment_wins(c)


if __name__ == "__main__":
    if os.environ.get("LOLIGO_TEST_CONF"):
        sys.exit("this test is of daemons of Loligo")
    main()
