#!/usr/bin/python3
"""What `loligo up` promises: when it returns everything serves, also after the sudden death of all
daemons; little memory; a silent OSD is found out. About 30 s."""
import os
import pathlib
import signal
import sys
import time

from cluster import LOLIGO, Cluster

# The code of a build for debugging is several times larger, and counts.
RSS_MAX_KIB = (64 if "/debug/" in LOLIGO else 40) << 10
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
        assert took < 2, f"first write after `up` took {took:.1f} s"
        c.run("rados", "-p", "p", "get", "before", "/dev/null")
        print(f"up after the death of all: {up:.2f} s, first write {took:.2f} s")


def only_osds_died(c):
    """The manager lives on and remembers the PGs of the OSDs' last lives as active."""
    for daemon in DAEMONS[2:]:
        c.kill(daemon)
    up = timed(c.up)
    took = timed(lambda: c.run("rados", "-p", "p", "put", "again", "/etc/hostname"))
    assert took < 2, f"first write after `up` took {took:.1f} s"
    print(f"up after the death of all OSDs: {up:.2f} s, first write {took:.2f} s")


def memory_when_idle(c):
    """Resident memory of each daemon of a fresh cluster."""
    for daemon in DAEMONS:
        status = pathlib.Path(f"/proc/{c.pid(daemon)}/status").read_text()
        rss = int(status.split("VmRSS:")[1].split()[0])
        print(f"{daemon}: {rss / 1024:.1f} MiB resident")
        assert rss < RSS_MAX_KIB, f"{daemon} has {rss} KiB resident"


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


def without_authentication():
    """The first beacon of a manager once went out before it knew the cluster's id, was ignored, and
    the next one came after two seconds."""
    with Cluster(sets=NO_AUTH) as c:
        c.down()
        took = timed(c.up)
        assert took < 1.8, f"`up` without authentication took {took:.1f} s"
        print(f"up without authentication: {took:.2f} s")


def main():
    with Cluster() as c:
        for test in (memory_when_idle, after_death_of_all, only_osds_died, silent_osd):
            test(c)
            print("ok", test.__name__)
    without_authentication()
    print("5 passed, 0 failed")


if __name__ == "__main__":
    sys.exit(main())
