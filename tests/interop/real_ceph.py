"""A real Ceph 16.2 cluster from Debian's packages (memstore OSDs: no devices, no root needed), as
the oracle beside ours."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import uuid

from cluster import LOLIGO, Cluster, free_port

CONF = """[global]
fsid = {fsid}
mon_initial_members = a
mon_host = [v2:127.0.0.1:{port}]
public_addr = 127.0.0.1
run_dir = {dir}/run
admin_socket = {dir}/run/$name.asok
log_file = {dir}/log/$name.log
pid_file = {dir}/run/$name.pid
keyring = {dir}/keyring
auth_allow_insecure_global_id_reclaim = false
osd_crush_chooseleaf_type = 0
osd_pool_default_size = 3
osd_pool_default_min_size = 2
osd_pool_default_pg_num = 32
osd_pool_default_pg_autoscale_mode = off
mon_allow_pool_delete = true
mon_allow_pool_size_one = true
mon_warn_on_pool_no_redundancy = false
mon_data_avail_warn = 1
mon_data_avail_crit = 0
{monitors}
[mon]
mon_data = {dir}/mon/$id
[mgr]
mgr_data = {dir}/mgr/$id
mgr_initial_modules =
[osd]
osd_data = {dir}/osd/$id
keyring = {dir}/osd/$id/keyring
{store}
osd_class_dir = /usr/lib/x86_64-linux-gnu/rados-classes
[client]
admin_socket =
"""


class RealCeph(Cluster):
    """`with RealCeph() as c:` starts and stops one monitor, one manager and `osds` OSDs."""

    # Lines of ceph.conf for the monitors: less waiting than by default, for tests that change maps all the time.
    monitors = "paxos_propose_interval = 0.05\npaxos_min_wait = 0.01"
    # Lines of ceph.conf that say what the OSDs store in.
    store = "osd_objectstore = memstore\nmemstore_device_bytes = 10737418240"

    def prepare_osd(self, n, data):
        """Called with an OSD's number and its empty data folder before its mkfs."""

    def __init__(self, osds=3):
        super().__init__(osds=osds)
        self.given = None

    def sh(self, *args, **kw):
        return subprocess.run(args, check=True, capture_output=True, env=dict(os.environ, CEPH_CONF=self.conf), **kw)

    def up(self):
        d = pathlib.Path(self.dir)
        self.conf = str(d / "ceph.conf")
        for folder in ("run", "log", "mon", "mgr/x", "osd"):
            (d / folder).mkdir(parents=True)
        fsid = str(uuid.uuid4())
        (d / "ceph.conf").write_text(CONF.format(fsid=fsid, port=self.port, dir=d, store=self.store, monitors=self.monitors))
        ring = str(d / "keyring")
        self.sh("ceph-authtool", "--create-keyring", ring, "--gen-key", "-n", "mon.", "--cap", "mon", "allow *")
        self.sh("ceph-authtool", ring, "--gen-key", "-n", "client.admin", *[x for s in ("mon", "osd", "mds", "mgr") for x in ("--cap", s, "allow *")])
        self.sh("ceph-authtool", ring, "--gen-key", "-n", "mgr.x", "--cap", "mon", "allow profile mgr", "--cap", "osd", "allow *", "--cap", "mds", "allow *")
        self.sh("monmaptool", "--create", "--addv", "a", f"[v2:127.0.0.1:{self.port}]", "--fsid", fsid, str(d / "monmap"))
        self.sh("ceph-mon", "-i", "a", "--mkfs", "--monmap", str(d / "monmap"), "--keyring", ring)
        self.sh("ceph-mon", "-i", "a")
        self.sh("ceph-mgr", "-i", "x")
        for n in range(self.options["osds"]):
            data = d / "osd" / str(n)
            data.mkdir()
            self.prepare_osd(n, data)
            osd, secret = str(uuid.uuid4()), self.sh("ceph-authtool", "--gen-print-key").stdout.decode().strip()
            self.sh("ceph", "osd", "new", osd, "-i", "-", input=json.dumps({"cephx_secret": secret}).encode())
            self.sh("ceph-authtool", "--create-keyring", str(data / "keyring"), "--name", f"osd.{n}", "--add-key", secret)
            self.mkfs_osd(n, osd)
            self.start_osd(n)
        self.wait_up(self.options["osds"])

    def mkfs_osd(self, n, uuid):
        self.sh("ceph-osd", "-i", str(n), "--mkfs", "--osd-uuid", uuid)

    def start_osd(self, n):
        self.sh("ceph-osd", "-i", str(n))

    def kill_osd(self, n):
        os.kill(int(pathlib.Path(self.dir, "run", f"osd.{n}.pid").read_text()), signal.SIGKILL)

    def wait_up(self, count):
        self.wait(lambda: self.json("osd", "stat")["num_up_osds"] == count, 60, f"{count} OSDs up")

    def __enter__(self):
        self.dir = tempfile.mkdtemp(prefix="real-ceph-")
        self.port = free_port()
        self.up()
        os.environ["CEPH_CONF"] = self.conf
        return self

    def __exit__(self, kind, value, trace):
        for file in pathlib.Path(self.dir, "run").glob("*.pid"):
            subprocess.run(["kill", "-9", file.read_text().strip()], check=False, stderr=subprocess.DEVNULL)
        time.sleep(0.2)
        shutil.rmtree(self.dir, ignore_errors=True)


class WithOurs(RealCeph):
    """Real monitor and manager, and OSDs of which the last `ours` are ours, the others real, with what their `store` says: memstores come
    back empty when they were killed, BlueStores on files with what they had."""

    BLUESTORE = "osd_objectstore = bluestore\nbluestore_block_size = 4294967296\nosd_memory_target = 939524096"

    MEMSTORE = RealCeph.store.replace("10737418240", "4294967296")

    def __init__(self, osds=3, ours=3, store=MEMSTORE):
        super().__init__(osds)
        self.ours = range(osds - ours, osds)
        sections = [f"[osd.{n}]\nosd_objectstore = inkstore\nbluestore_block_size = 4294967296" for n in self.ours]
        self.store = "\n".join([store, *sections, "[osd]"])
        self.daemons = {}

    def mkfs_osd(self, n, uuid):
        if n in self.ours:
            self.sh(LOLIGO, "osd", "--id", str(n), "-c", self.conf, "--mkfs", "--osd-uuid", uuid)
        else:
            super().mkfs_osd(n, uuid)

    def start_osd(self, n):
        if n not in self.ours:
            return super().start_osd(n)
        with open(pathlib.Path(self.dir, "log", f"osd.{n}.log"), "a") as log:
            self.daemons[n] = subprocess.Popen([LOLIGO, "osd", "--id", str(n), "-c", self.conf], stdout=log, stderr=log)

    def kill_osd(self, n):
        if n not in self.ours:
            return super().kill_osd(n)
        self.daemons[n].kill()
        self.daemons[n].wait()

    def __exit__(self, kind, value, trace):
        if kind is not None:
            print(self.logs())
        for daemon in self.daemons.values():
            daemon.kill()
            daemon.wait()
        super().__exit__(kind, value, trace)
