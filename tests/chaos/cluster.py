"""The cluster of the chaos test: 3 hosts with a monitor and two OSDs each, and a manager on two of
them, started by hand as a deployment would: one monitor first, the others added to it online, each
OSD registered with `osd new`."""
import json
import os
import pathlib
import signal
import subprocess
import time
import uuid

import hosts

ROOT = pathlib.Path(__file__).resolve().parents[2]
LOLIGO = os.environ.get("LOLIGO", str(ROOT / "target/release/loligo"))
DISK = 448 << 20
BLOCK = 400 << 20
OPTIONS = """
osd_pool_default_size = 3
osd_pool_default_min_size = 2
osd_pool_default_pg_autoscale_mode = off
mon_allow_pool_delete = true
osd_heartbeat_interval = 1
osd_heartbeat_grace = 6
mon_osd_down_out_interval = 20
osd_objectstore = inkstore
mgr_stats_period = 2
osd_max_markdown_count = 1000
"""
CAPS = {"mon.": ["mon", "allow *"], "client.admin": ["mon", "allow *", "osd", "allow *", "mgr", "allow *", "mds", "allow *"],
        "mgr.x": ["mon", "allow profile mgr", "osd", "allow *"], "mgr.y": ["mon", "allow profile mgr", "osd", "allow *"]}
MDS_CAPS = ["mon", "allow profile mds", "osd", "allow rw tag cephfs *=*", "mds", "allow *", "mgr", "allow profile mds"]
# An MDS that says nothing for this long is taken for dead.
MDS_OPTIONS = """
mds_beacon_grace = 6
mds_beacon_interval = 1
mds_tick_interval = 1
"""
# Ceph's MDS ends so where somebody logs in to it before it has logged in itself.
MDS_CRASH = " 2: (ProtocolV2::handle_auth_request("


class Cluster:
    def __init__(self, folder, mdss=False):
        self.dir, self.options, self.caps = folder, OPTIONS, dict(CAPS)
        self.conf = f"{folder}/ceph.conf"
        self.hosts = hosts.make(3)
        self.disks, self.processes, self.homes = {}, {}, {}
        # Those that ended though nobody ended them, and those that may.
        self.exits, self.ended, self.excused = [], set(), set()
        for kind in ["run", "log"]:
            os.makedirs(f"{folder}/{kind}")
        for number, host in enumerate(self.hosts):
            self.homes[f"mon.{'abc'[number]}"] = host
            if number < 2:
                self.homes[f"mgr.{'xy'[number]}"] = host
            for osd in (2 * number, 2 * number + 1):
                self.homes[f"osd.{osd}"] = host
            if mdss:
                self.homes[f"mds.{'abc'[number]}"] = host
        if mdss:
            self.options += MDS_OPTIONS
            self.caps |= {name: MDS_CAPS for name in self.daemons("mds")}

    def daemons(self, kind):
        return [name for name in self.homes if name.startswith(kind)]

    def write_conf(self, mons):
        mon_host = ",".join(f"[v2:{self.homes[mon].ip}:3300]" for mon in mons)
        text = f"[global]\nfsid = {self.fsid}\nmon_host = {mon_host}\nmon_initial_members = a\n"
        text += self.options + f"bluestore_block_size = {BLOCK}\n"
        text += f"run_dir = {self.dir}/run\nadmin_socket = {self.dir}/run/$name.asok\n"
        for kind in ["mon", "mgr", "osd", "mds"]:
            text += f"[{kind}]\n{kind}_data = {self.dir}/{kind}/$id\nkeyring = {self.dir}/{kind}/$id/keyring\n"
        text += f"[client]\nkeyring = {self.dir}/keyring\nadmin_socket = {self.dir}/run/client.$pid.asok\nlog_file =\n"
        pathlib.Path(self.conf).write_text(text)

    def start(self):
        """Makes everything; returns when all OSDs are up."""
        self.fsid = str(uuid.uuid4())
        keyring = f"{self.dir}/keyring"
        for name, caps in self.caps.items():
            args = sum((["--cap", kind, cap] for kind, cap in zip(caps[::2], caps[1::2])), [])
            create = [] if os.path.exists(keyring) else ["--create-keyring"]
            self.tool("ceph-authtool", keyring, *create, "--gen-key", "-n", name, *args)
        for name in self.daemons("mon") + self.daemons("mgr") + self.daemons("mds"):
            os.makedirs(self.data(name))
            pathlib.Path(self.data(name), "keyring").write_text(pathlib.Path(keyring).read_text())
        self.write_conf(["mon.a"])
        self.mkfs("mon.a")
        self.run("mon.a")
        for name in ["mon.b", "mon.c"]:
            self.ceph("mon", "add", name[4:], f"{self.homes[name].ip}:3300")
            self.mkfs(name)
            self.run(name)
            self.wait(lambda: name[4:] in self.json("quorum_status")["quorum_names"], 180, f"{name} in the quorum")
        self.write_conf(self.daemons("mon"))
        for name in self.daemons("mgr"):
            self.run(name)
        for name in self.daemons("osd"):
            self.make_osd(name)
        self.wait_up()
        for word, ratio in [("nearfull", 0.6), ("backfillfull", 0.65), ("full", 0.7)]:
            self.ceph("osd", f"set-{word}-ratio", str(ratio))

    def make_file_system(self, name, ranks):
        """A file system, and all MDSs, of which so many hold ranks."""
        for pool in (f"{name}.meta", f"{name}.data"):
            self.ceph("osd", "pool", "create", pool, "16", "16")
        self.ceph("fs", "new", name, f"{name}.meta", f"{name}.data")
        self.ceph("fs", "set", name, "max_mds", str(ranks))
        for mds in self.daemons("mds"):
            self.run(mds)
        self.wait_ranks(ranks)

    def wait_ranks(self, ranks, timeout=300):
        def active():
            for mds in self.daemons("mds"):
                self.run(mds)
            held = [mds["state"] for fs in self.json("fs", "dump")["filesystems"] for mds in fs["mdsmap"]["info"].values() if mds["rank"] >= 0]
            return held == ["up:active"] * ranks
        self.wait(active, timeout, f"{ranks} active MDSs")

    def make_osd(self, name):
        data, identity = self.data(name), str(uuid.uuid4())
        self.disks[name] = hosts.Disk(data, DISK)
        key = self.tool("ceph-authtool", "--gen-print-key").strip()
        self.ceph("osd", "new", identity, name[4:], "-i", "-", input=json.dumps({"cephx_secret": key}))
        pathlib.Path(data, "keyring").write_text(f"[{name}]\n\tkey = {key}\n")
        self.mkfs(name, "--osd-uuid", identity)
        self.run(name)

    def data(self, name):
        kind, number = name.split(".")
        return f"{self.dir}/{kind}/{number}"

    def command(self, name, *args):
        kind, number = name.split(".")
        ip = self.homes[name].ip
        if kind == "mds":
            return ["ceph-mds", "-f", "-i", number, "-c", self.conf, "--public-addr", ip, "--log-to-stderr", "true", "--log-file", "", "--pid-file", ""]
        return [LOLIGO, kind, "--id", number, "-c", self.conf, "--set", f"public_addr={ip}", *args]

    def mkfs(self, name, *args):
        made = self.homes[name].start(self.command(name, "--mkfs", *args), self.log(name))
        if made.wait(300) != 0:
            raise RuntimeError(f"mkfs of {name} failed:\n{self.log_tail(name)}")

    def run(self, name):
        """Starts a daemon, unless it runs."""
        running = self.processes.get(name)
        if running and running.poll() is None:
            return
        self.note_exit(name)
        self.processes[name] = self.homes[name].start(self.command(name), self.log(name))

    def kill(self, name, how=signal.SIGKILL):
        process = self.processes[name]
        self.note_exit(name)
        self.ended.add(process)
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.send_signal(how)
            process.wait(60)

    def note_exit(self, name):
        """Remembers a daemon that has ended by itself, unless its disk was broken on purpose."""
        process = self.processes.get(name)
        if process and process.poll() is not None and process not in self.ended and name not in self.excused:
            if name.startswith("mds") and process.returncode == -signal.SIGSEGV and MDS_CRASH in self.log_tail(name, 1000):
                self.ended.add(process)
                return
            self.exits.append(f"{name} ended by itself, exit code {process.returncode}:\n{self.log_tail(name)}")
            self.ended.add(process)

    def panics(self):
        """What daemons said when they broke off."""
        found = []
        for name in self.homes:
            path = pathlib.Path(self.log(name))
            text = path.read_text(errors="replace") if path.exists() else ""
            found += [f"{name}: {line}" for line in text.splitlines() if "panicked at" in line]
        return found

    def signal(self, name, how):
        if self.processes[name].poll() is None:
            self.processes[name].send_signal(how)

    def log(self, name):
        return f"{self.dir}/log/{name}.log"

    def log_tail(self, name, lines=25):
        path = pathlib.Path(self.log(name))
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:]) if path.exists() else ""

    # --- clients

    def tool(self, *args, input=None, check=True, timeout=120):
        done = subprocess.run(args, input=input, capture_output=True, text=True, timeout=timeout, env=self.env())
        if check and done.returncode != 0:
            raise RuntimeError(f"{' '.join(args)}: exit {done.returncode}: {done.stderr.strip()[-2000:]}")
        return done.stdout

    def env(self):
        return dict(hosts.environment(), CEPH_CONF=self.conf, CEPH_ARGS="")

    def ceph(self, *args, **kw):
        return self.tool("ceph", *args, **kw)

    def json(self, *args, **kw):
        return json.loads(self.ceph(*args, "-f", "json", **kw))

    def checks(self):
        """Names of the health checks that are not well."""
        return self.json("health")["checks"]

    def client(self, args, log):
        with open(f"{self.dir}/log/{log}.log", "a") as out:
            return subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=self.env())

    def wait(self, condition, timeout, what):
        end = time.monotonic() + timeout
        while True:
            try:
                if condition():
                    return
            except (RuntimeError, subprocess.TimeoutExpired, ValueError, KeyError) as error:
                if time.monotonic() > end:
                    raise RuntimeError(f"not within {timeout} s: {what}: {error}") from error
            if time.monotonic() > end:
                status = self.ceph("-s", check=False) + self.ceph("health", "detail", check=False)
                raise RuntimeError(f"not within {timeout} s: {what}\n{status}")
            time.sleep(0.3)

    def wait_up(self, timeout=300):
        def up():
            osd = self.json("osd", "stat")
            return osd["num_up_osds"] == osd["num_in_osds"] == len(self.daemons("osd"))
        self.wait(up, timeout, "all OSDs up and in")

    def wait_clean(self, timeout=300):
        def clean():
            summary = self.json("pg", "stat")["pg_summary"]
            states = summary["num_pg_by_state"]
            return states and all(state["name"] == "active+clean" for state in states)
        self.wait(clean, timeout, "all PGs active+clean")

    def requests(self, process):
        """What a client waits for, as it says itself."""
        socket = f"{self.dir}/run/client.{process.pid}.asok"
        return self.tool("ceph", "--admin-daemon", socket, "objecter_requests", check=False, timeout=20)

    def keep_stores(self):
        """Copies the OSDs' folders, which end with the namespace, to where they can be looked into."""
        for name in self.daemons("osd"):
            subprocess.run(["cp", "-r", "--sparse=always", self.data(name), f"{self.dir}/kept-{name}"], check=False)

    def end(self):
        for name, process in self.processes.items():
            if process.poll() is None:
                self.kill(name)

    def remove_disks(self):
        for disk in self.disks.values():
            disk.remove()
