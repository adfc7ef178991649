"""Clusters for the interop tests: ours (a fresh one in a temporary folder on free ports), or a
running one that LOLIGO_TEST_CONF names (a real Ceph, to check the tests themselves)."""
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from ceph_tool import Ceph

ROOT = pathlib.Path(__file__).resolve().parents[2]
CEPH = Ceph()
LOLIGO = os.environ.get("LOLIGO", str(ROOT / "target/release/loligo"))


def free_port():
    """A TCP port nobody listens on."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Cluster:
    """One cluster; `with Cluster(...) as c:` starts and stops it."""

    def __init__(self, osds=3, size=None, sets=(), store="inkstore", osd_size="10G", osds_per_process=1,
                 threads_per_process=None):
        self.given = os.environ.get("LOLIGO_TEST_CONF")
        # Pools keep the number of PGs that tests give them.
        sets = ["osd_pool_default_pg_autoscale_mode=off"] + list(sets) + os.environ.get("LOLIGO_TEST_SETS", "").split()
        self.options = dict(osds=osds, size=size, sets=sets, store=store, osd_size=osd_size,
                            osds_per_process=osds_per_process, threads_per_process=threads_per_process)
        self.dir = None
        self.conf = self.given

    def up(self):
        o = self.options
        command = [LOLIGO, "up", "--dir", self.dir, "--osds", str(o["osds"]), "--store", o["store"],
                   "--osd-size", o["osd_size"], "--port", str(self.port), *self.processes()]
        if o["size"]:
            command += ["--size", str(o["size"])]
        for s in o["sets"]:
            command += ["--set", s]
        r = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if r.returncode != 0:
            raise RuntimeError(f"loligo up failed ({r.returncode}):\n{r.stdout}{r.stderr}\n{self.logs()}")
        self.conf = f"{self.dir}/ceph.conf"

    def processes(self):
        """Arguments of `up` that say which OSDs share a process."""
        o = self.options
        threads = ["--threads-per-process", str(o["threads_per_process"])] if o["threads_per_process"] else []
        return ["--osds-per-process", str(o["osds_per_process"]), *threads]

    def down(self):
        subprocess.run([LOLIGO, "down", "--dir", self.dir], check=True, capture_output=True, timeout=60)

    def __enter__(self):
        if not self.given:
            self.dir = tempfile.mkdtemp(prefix="loligo-test-")
            self.port = free_port()
            try:
                self.up()
            except RuntimeError:
                # What could be started runs.
                subprocess.run([LOLIGO, "down", "--dir", self.dir], capture_output=True, timeout=60)
                raise
        os.environ["CEPH_CONF"] = self.conf
        os.environ["CEPH_ARGS"] = ""
        return self

    def __exit__(self, kind, value, trace):
        if self.given:
            return
        if kind is not None:
            print(self.logs())
        try:
            self.down()
        finally:
            if os.environ.get("LOLIGO_KEEP"):
                print("kept", self.dir)
            else:
                shutil.rmtree(self.dir, ignore_errors=True)

    def logs(self, lines=15):
        """The last lines of each daemon's log."""
        out = []
        for path in sorted(pathlib.Path(self.dir or "/nonexistent").glob("log/*.log")):
            tail = path.read_text(errors="replace").splitlines()[-lines:]
            out.append(f"--- {path.name}\n" + "\n".join(tail))
        return "\n".join(out)

    def pid(self, daemon):
        """Process id of `osd.0`, `mon.a`, `mgr.x`."""
        return int(pathlib.Path(self.dir, "run", f"{daemon}.pid").read_text())

    def kill(self, daemon, how=signal.SIGKILL):
        """Kills one daemon and waits until it is gone."""
        pid = self.pid(daemon)
        os.kill(pid, how)
        while os.path.exists(f"/proc/{pid}") and state(pid) != "Z":
            time.sleep(0.005)

    # --- clients

    def run(self, *args, input=None, check=True, timeout=60):
        """Runs a client (`ceph`, `rados`, ...); returns the finished process, text in and out."""
        env = dict(os.environ, CEPH_CONF=self.conf)
        if args[0] == "ceph":
            r = CEPH.run(args[1:], input, timeout, env)
        else:
            r = subprocess.run(args, input=input, capture_output=True, timeout=timeout, env=env)
        if check and r.returncode != 0:
            raise AssertionError(f"{' '.join(args)}: exit {r.returncode}\n{r.stdout[-2000:]!r}\n{r.stderr[-2000:]!r}")
        return r

    def ceph(self, *args, **kw):
        """`ceph ARGS`: its standard output as text."""
        return self.run("ceph", *args, **kw).stdout.decode()

    def json(self, *args, **kw):
        """`ceph ARGS -f json`, parsed."""
        return json.loads(self.run("ceph", *args, "-f", "json", **kw).stdout)

    def pool(self, name, pg_num=8, wait=True):
        """Creates a pool whose PGs are active before this returns."""
        self.ceph("osd", "pool", "create", name, str(pg_num), str(pg_num))
        self.ceph("osd", "pool", "application", "enable", name, "rados")
        if wait:
            self.wait_clean()

    def wait_clean(self, timeout=60):
        """Waits until every PG is active+clean."""
        def clean():
            states = self.json("pg", "stat")["pg_summary"]
            return all(s["name"] == "active+clean" for s in states["num_pg_by_state"])
        self.wait(clean, timeout, "all PGs active+clean")

    def wait(self, condition, timeout=30, what="condition"):
        """Polls until `condition()` holds. `timeout` is for a quiet machine: others get four times as long."""
        timeout *= 4
        end = time.monotonic() + timeout
        while True:
            asked = time.monotonic()
            if condition():
                return
            now = time.monotonic()
            if now > end:
                raise AssertionError(f"not within {timeout} s: {what}\n{self.ceph('-s', check=False)}")
            # At least as long as asking took: two of these run at a time, and clusters want to get on.
            time.sleep(max(0.1, now - asked))


def state(pid):
    """The process state letter of /proc/PID/stat, or Z when it is gone."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "Z"
