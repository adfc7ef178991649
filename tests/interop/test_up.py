#!/usr/bin/python3
"""What `loligo up` promises: when it returns everything serves, also after the sudden death of all
daemons; little memory; a silent OSD is found out. About 30 s."""
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

from cluster import LOLIGO, Cluster, state

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


def main():
    with Cluster() as c:
        for test in (memory_when_idle, after_death_of_all, only_osds_died, memory_after_long_writes, a_socket_still_held,
                     silent_osd, a_reader_that_leaves, names_for_addresses, another_name):
            test(c)
            print("ok", test.__name__)
    without_authentication()
    print("10 passed, 0 failed")


if __name__ == "__main__":
    sys.exit(main())
