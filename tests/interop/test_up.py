#!/usr/bin/python3
"""What `loligo up` promises: when it returns everything serves, also after the sudden death of all
daemons; little memory; a silent OSD is found out; what cannot serve is told, and stops nothing else. About 60 s."""
import fcntl
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from cluster import LOLIGO, Cluster, free_port, state

# The code of a build for debugging is several times larger, and counts.
RSS_MAX_KIB = (64 if "/debug/" in LOLIGO else 40) << 10
# Seconds; each of the pauses below was one of librados's timeouts or of a manager's beacons, and no
# machine's slowness: what is usual is printed.
PAUSE_MAX = 8
DAEMONS = ["mon.a", "mgr.x", "osd.0", "osd.1", "osd.2"]
NO_AUTH = [f"auth_{what}_required=none" for what in ("cluster", "service", "client")]


def timed(what):
    start = time.monotonic()
    what()
    return time.monotonic() - start


def after_death_of_all(c):
    """The maps of a cluster killed at once show the dead as up: `up` once returned at once, and the
    first write waited until the maps were right."""
    c.pool("p", 32)
    c.run("rados", "-p", "p", "put", "before", "/etc/hostname")
    for round_ in range(3):
        for daemon in DAEMONS:
            os.kill(c.pid(daemon), signal.SIGKILL)
        for daemon in DAEMONS:
            c.kill(daemon)
        up = timed(c.up)
        took = timed(lambda: c.run("rados", "-p", "p", "put", f"after{round_}", "/etc/hostname"))
        assert took < PAUSE_MAX, f"first write after `up` took {took:.1f} s"
        c.run("rados", "-p", "p", "get", "before", "/dev/null")
        print(f"up after the death of all: {up:.2f} s, first write {took:.2f} s")


def only_osds_died(c):
    """The manager lives on and remembers the PGs of the OSDs' last lives as active."""
    for daemon in DAEMONS[2:]:
        c.kill(daemon)
    up = timed(c.up)
    took = timed(lambda: c.run("rados", "-p", "p", "put", "again", "/etc/hostname"))
    assert took < PAUSE_MAX, f"first write after `up` took {took:.1f} s"
    print(f"up after the death of all OSDs: {up:.2f} s, first write {took:.2f} s")


def a_socket_still_held(c):
    """The kernel may go on accepting at the admin socket of a daemon that was killed a moment ago: the new one did without, and
    `up`, which asks it there, waited in vain."""
    c.kill("osd.0")
    path = pathlib.Path(c.dir, "run", "osd.0.asok")
    path.unlink()
    held = socket.socket(socket.AF_UNIX)
    held.bind(str(path))
    held.listen()
    threading.Timer(1, held.close).start()
    c.up()
    assert c.json("daemon", str(path), "status")["whoami"] == 0


def resident_kib(c, daemon):
    status = pathlib.Path(f"/proc/{c.pid(daemon)}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


def memory_when_idle(c):
    """Resident memory of each daemon of a fresh cluster."""
    for daemon in DAEMONS:
        rss = resident_kib(c, daemon)
        print(f"{daemon}: {rss / 1024:.1f} MiB resident")
        assert rss < RSS_MAX_KIB, f"{daemon} has {rss} KiB resident"


def memory_after_long_writes(c):
    """OSDs that had served writes of 4 MiB kept 90 MiB for as long as nothing else was written: the buffers
    went to the allocator when the daemon had already given back what that held."""
    c.run("rados", "-p", "p", "bench", "3", "write", "-t", "16")

    def all_resident():
        return {osd: resident_kib(c, osd) for osd in DAEMONS[2:]}

    print(f"after writes of 4 MiB: {all_resident()} KiB resident")
    c.wait(lambda: max(all_resident().values()) < RSS_MAX_KIB, 10, "memory of long writes is given back")
    print(f"idle again: {all_resident()} KiB resident")


def silent_osd(c):
    """All OSDs are on one host; reports count by host unless told otherwise, and a third OSD that
    was silent was never marked down."""
    c.ceph("config", "set", "global", "osd_heartbeat_grace", "3")
    pid = c.pid("osd.2")
    os.kill(pid, signal.SIGSTOP)
    try:
        c.wait(lambda: c.json("osd", "stat")["num_up_osds"] == 2, 25, "osd.2 is marked down")
    finally:
        os.kill(pid, signal.SIGCONT)
    c.wait(lambda: c.json("osd", "stat")["num_up_osds"] == 3, 25, "osd.2 is up again")


def a_reader_that_leaves(c):
    """`loligo ... | head` ended with a panic when the reader had closed the pipe."""
    for args in (["status", "--dir", c.dir], ["completion", "bash"]):
        reader, writer = os.pipe()
        os.close(reader)
        r = subprocess.run([LOLIGO, *args], stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60)
        os.close(writer)
        assert (r.returncode, r.stderr) == (128 + signal.SIGPIPE, ""), (args, r)


def names_for_addresses(c):
    """Host names in `mon_host` were refused, also where daemons and `up` read it."""
    text = pathlib.Path(c.conf).read_text()
    named = text.replace("127.0.0.1:", "localhost:")
    assert named != text
    try:
        pathlib.Path(c.conf).write_text(named)
        c.kill("osd.1")
        c.up()
        status = subprocess.run([LOLIGO, "status", "--dir", c.dir], capture_output=True, text=True, timeout=60)
        assert status.returncode == 0 and "3 up" in status.stdout, status
        pathlib.Path(c.conf).write_text(text.replace("127.0.0.1:", "no-such-host.invalid:"))
        r = subprocess.run([LOLIGO, "status", "--dir", c.dir], capture_output=True, text=True, timeout=60)
        assert r.returncode == 1 and "no-such-host.invalid" in r.stderr, r
    finally:
        pathlib.Path(c.conf).write_text(text)


def another_name(c):
    """Daemons were told by their binary's name: those of a copy called otherwise were neither seen
    nor stopped, and a second `up` started them twice."""
    copy = f"{c.dir}/another"
    shutil.copy(LOLIGO, copy)

    def run(command):
        r = subprocess.run([copy, command, "--dir", c.dir], capture_output=True, text=True, timeout=120)
        assert r.returncode == 0, r
        return r.stdout

    run("down")
    run("up")
    before = {d: c.pid(d) for d in DAEMONS}
    run("up")
    assert before == {d: c.pid(d) for d in DAEMONS}
    assert "not running" not in run("status")
    stopped = run("down")
    assert all(daemon in stopped for daemon in DAEMONS), stopped
    assert all(state(pid) == "Z" for pid in before.values())
    os.remove(copy)


def without_authentication():
    """The first beacon of a manager once went out before it knew the cluster's id, was ignored, and
    the next one came after two seconds (what `up` takes is printed)."""
    with Cluster(sets=NO_AUTH) as c:
        c.down()
        took = timed(c.up)
        print(f"up without authentication: {took:.2f} s")


def loligo(*args):
    return subprocess.run([LOLIGO, *args], capture_output=True, text=True, timeout=120)


def one_bad_osd(per_process):
    """One OSD that was purged, or whose disk was dead, and `up` stopped all others, also those that had run before."""
    with Cluster(osds=4, osds_per_process=per_process) as c:
        more = ["--osds-per-process", str(per_process)]
        others = ["mon.a", "mgr.x", "osd.0", "osd.1", "osd.2"]
        before = {d: c.pid(d) for d in others if per_process == 1 or not d.startswith("osd")}
        c.kill("osd.3")
        # Where all OSDs are dead nobody says so.
        c.ceph("osd", "down", "3")
        c.ceph("osd", "purge", "3", "--yes-i-really-mean-it", "--force")
        r = loligo("up", "--dir", c.dir, *more)
        assert r.returncode == 1 and "osd.3 does not serve: it stopped: " in r.stderr and "EACCES" in r.stderr, r
        assert "ceph osd purge 3" in r.stderr and "osd.0" not in r.stderr and "3 OSDs serve" in r.stdout, r
        assert all(c.pid(d) == pid and state(pid) != "Z" for d, pid in before.items()), before
        c.down()
        with open(f"{c.dir}/osd/2/block", "r+b") as block:
            block.write(bytes(4 << 20))
        r = loligo("up", "--dir", c.dir, *more)
        assert r.returncode == 1 and "2 OSDs serve" in r.stdout, r
        assert "osd.2 does not serve" in r.stderr and "osd.3 does not serve" in r.stderr, r
        running = json.loads(loligo("status", "--dir", c.dir, "--json").stdout)
        assert [d["name"] for d in running["daemons"] if d["pid"] is None] == ["osd.2", "osd.3"], running
        assert running["cluster"]["osdmap"]["num_osds"] == 3, running
        # What it says is to be done helps.
        c.ceph("osd", "down", "2")
        c.ceph("osd", "purge", "2", "--yes-i-really-mean-it", "--force")
        for n in (2, 3):
            shutil.rmtree(f"{c.dir}/osd/{n}")
        c.up()
        c.wait(lambda: c.json("osd", "stat")["num_up_osds"] == 4, what="all are up")
        c.down()
        # Without --osds those that are there.
        shutil.move(f"{c.dir}/osd/3", f"{c.dir}/osd3")
        r = loligo("up", "--dir", c.dir)
        assert r.returncode == 0 and "3 OSDs serve" in r.stdout, r


def daemons_of(path):
    """Process ids of all that runs with a configuration in a folder."""
    found = []
    for line in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if f"-c\0{path}/ceph.conf" in line.read_text():
                found.append(int(line.parent.name))
        except (FileNotFoundError, ProcessLookupError):
            pass
    return found


# What is there at some time of a first `up`, and later than what is before it.
STAGES = ["ceph.conf.new", "mon/a/store.redb", "ceph.conf", "run/mon.a.pid", "osd/0.new/fsid", "osd/0.new/type", "osd/0",
          "run/osd.0.pid", "osd/2.new/fsid", "run/osd.2.pid"]


def cut_off(how):
    """A first `up` that was killed left daemons that nothing knew of, and a folder that could not be used again: a
    monitor's database, an OSD's id or half of its store were there already. One that was told to stop did not stop them.
    Killed just as it started a daemon, what was to become that still had the folder's lock, and `down` was refused."""
    for stage in STAGES:
        with tempfile.TemporaryDirectory(prefix="loligo-test-", ignore_cleanup_errors=True) as folder:
            up = subprocess.Popen([LOLIGO, "up", "--dir", folder, "--port", str(free_port())], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, start_new_session=True)
            try:
                while not os.path.lexists(f"{folder}/{stage}") and up.poll() is None:
                    pass
                up.send_signal(how)
                said = up.communicate(timeout=120)[0]
                if how == signal.SIGTERM and up.returncode == 1:
                    assert "told to stop" in said, said
                    assert not daemons_of(folder), (stage, said)
                # What runs is known.
                down = loligo("down", "--dir", folder)
                assert not daemons_of(folder), (stage, down)
                again = loligo("up", "--dir", folder, "--port", str(free_port())) if not os.path.exists(f"{folder}/ceph.conf") \
                    else loligo("up", "--dir", folder)
                assert again.returncode == 0 and "3 OSDs serve" in again.stdout, (stage, again)
                # Daemons do not hold the lock of the `up` that started them.
                lock = os.open(folder, os.O_RDONLY)
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                r = loligo("up", "--dir", folder)
                assert r.returncode == 1 and "another 'loligo up'" in r.stderr, r
                threading.Timer(0.2, os.close, [lock]).start()
                r = loligo("up", "--dir", folder)
                assert r.returncode == 0, r
            finally:
                if up.poll() is None:
                    up.kill()
                    up.wait()
                loligo("down", "--dir", folder)


def what_fails_is_told(c):
    """`loligo bench` counted a request that failed, and commands said nothing for 30 s where no monitor listened."""
    r = loligo("bench", "rados", "p", "-c", c.conf, "--bs", "128M", "--object-size", "128M", "--size", "128M", "--rw", "write")
    assert r.returncode == 1 and "write at 0" in r.stderr and "IOPS" not in r.stdout, r
    text = pathlib.Path(c.conf).read_text().replace(f":{c.port}]", f":{free_port()}]")
    conf = pathlib.Path(c.dir, "wrong.conf")
    conf.write_text(text)
    rbd = subprocess.Popen([LOLIGO, "rbd", "-c", str(conf), "ls"], stderr=subprocess.PIPE, text=True)
    try:
        assert "waiting for a monitor at" in rbd.stderr.readline()
    finally:
        rbd.kill()
        rbd.communicate()


def the_last_monitor_ends():
    """A monitor that served and ended while `up` waited for others was told after 30 s, as one that does not serve."""
    with Cluster(osds=1) as c:
        stopped = c.pid("mgr.x")
        os.kill(stopped, signal.SIGSTOP)
        up = subprocess.Popen([LOLIGO, "up", "--dir", c.dir], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        # Until it has asked the monitor, and waits for the manager.
        time.sleep(1)
        c.kill("mon.a")
        begin = time.monotonic()
        said = up.communicate(timeout=120)[1]
        os.kill(stopped, signal.SIGCONT)
        assert up.returncode == 1 and "mon.a stopped" in said, said
        print(f"told after {time.monotonic() - begin:.2f} s")


def in_the_foreground():
    """`up --foreground` said nothing of daemons that ended, and stayed when none was left. The sockets of daemons that had
    ended stayed, too: those of root were in everybody's way."""
    with Cluster(osds=2) as c:
        c.down()
        assert not os.listdir(f"{c.dir}/run"), os.listdir(f"{c.dir}/run")
        up = subprocess.Popen([LOLIGO, "up", "--dir", c.dir, "--foreground"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while "Ctrl-C" not in up.stdout.readline():
            assert up.poll() is None, up.stderr.read()
        os.kill(c.pid("osd.1"), signal.SIGKILL)
        assert "osd.1 has ended" in up.stderr.readline()
        for daemon in ("osd.0", "mgr.x", "mon.a"):
            os.kill(c.pid(daemon), signal.SIGTERM)
        said = up.communicate(timeout=120)[1]
        assert up.returncode == 1 and "all daemons have ended" in said, said


def main():
    with Cluster() as c:
        for test in (memory_when_idle, after_death_of_all, only_osds_died, memory_after_long_writes, a_socket_still_held,
                     silent_osd, a_reader_that_leaves, names_for_addresses, what_fails_is_told, another_name):
            test(c)
            print("ok", test.__name__)
    for test in (without_authentication, the_last_monitor_ends, in_the_foreground):
        test()
        print("ok", test.__name__, flush=True)
    for test, arg in ((one_bad_osd, 1), (one_bad_osd, 4), (cut_off, signal.SIGKILL), (cut_off, signal.SIGTERM)):
        test(arg)
        print("ok", test.__name__, arg, flush=True)
    print("18 passed, 0 failed")


if __name__ == "__main__":
    sys.exit(main())
