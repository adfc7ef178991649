"""The two sides of a comparison: a real Ceph 16.2 and ours, each on loop devices of its own, so that what reaches
the devices is counted by the kernel and not by either system (needs root), or on plain files, which nobody counts but
which cost less: a loop device is a disk made of a file by threads of the kernel's own."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/interop"))

import cluster  # noqa: E402
import real_ceph  # noqa: E402

SECTOR = 512
TICKS = os.sysconf("SC_CLK_TCK")


class FileDevice:
    """A file that an OSD is on: a sparse one, which grows as it is written, or one that has been written from end to end, as a disk
    has all its sectors: then a flush need not wait for the file system to note new ones. `dev` is what to open."""

    def __init__(self, path, size, filled=False):
        self.path = pathlib.Path(path)
        self.dev = str(path)
        with open(self.path, "wb") as f:
            f.truncate(size)
        if filled:
            subprocess.run(["dd", "if=/dev/zero", f"of={path}", "bs=4M", f"count={size >> 22}", "oflag=direct", "conv=notrunc,fsync"],
                           check=True, capture_output=True)

    def written(self):
        """None: the kernel keeps no account for one file."""
        return None

    def close(self):
        self.path.unlink(missing_ok=True)


class LoopDevice(FileDevice):
    """A loop device with direct I/O over such a file."""

    def __init__(self, path, size, filled=False):
        super().__init__(path, size, filled)
        r = subprocess.run(["losetup", "--find", "--show", "--direct-io=on", str(self.path)], capture_output=True, text=True)
        if r.returncode != 0:
            raise SystemExit(f"losetup {self.path}: {r.stderr.strip()} (loop devices need root)")
        self.dev = r.stdout.strip()

    def written(self):
        """Bytes written to the device since it was made."""
        return self.stat(6) * SECTOR

    def flushes(self):
        """Flushes that the device was asked for since it was made."""
        return self.stat(15)

    def stat(self, field):
        """A number of the kernel's account of it (Documentation/block/stat.rst)."""
        return int(pathlib.Path(f"/sys/block/{pathlib.Path(self.dev).name}/stat").read_text().split()[field])

    def close(self):
        subprocess.run(["losetup", "-d", self.dev], check=False)
        super().close()


class Side:
    """What both sides can be asked: their devices, their daemons' CPU time and memory."""

    name = ""
    # What the OSDs are on.
    Device = LoopDevice

    def __enter__(self):
        try:
            return super().__enter__()
        except BaseException:
            self.close_devices()
            raise

    def close_devices(self):
        for d in self.devices:
            d.close()

    def pids(self):
        """{daemon: pid}, by the pid files of its run folder."""
        found = {}
        for file in pathlib.Path(self.dir, "run").glob("*.pid"):
            try:
                found[file.stem] = int(file.read_text())
            except ValueError:
                continue
        return found

    def osd_pids(self):
        """Of the processes: OSDs may share one."""
        return sorted({pid for name, pid in self.pids().items() if name.startswith("osd.")})

    def written(self):
        """Bytes written to all devices since they were made; None where nobody counts them."""
        each = [d.written() for d in self.devices]
        return None if None in each else sum(each)

    def cpu_seconds(self, pids):
        """CPU time of processes, all threads, user and system."""
        total = 0
        for pid in pids:
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            total += int(fields[11]) + int(fields[12])
        return total / TICKS

    def rss_mb(self):
        total = 0
        for pid in self.osd_pids():
            total += int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())[1])
        return total / 1024

    def settle(self, seconds):
        """Lets what is deferred reach the devices."""
        subprocess.run(["sync"], check=True)
        time.sleep(seconds)


class Loligo(Side, cluster.Cluster):
    """Ours, each OSD on a device of its own (`bluestore_block_path`)."""

    name = "loligo"

    def __init__(self, osds=3, size_gb=10, sets=(), filled=False, store="inkstore", **processes):
        super().__init__(osds=osds, osd_size=f"{size_gb}G", sets=sets, store=store, **processes)
        self.given, self.size, self.filled = None, size_gb << 30, filled
        self.devices = []

    def up(self):
        links = pathlib.Path(self.dir, "devices")
        links.mkdir()
        for n in range(self.options["osds"]):
            device = self.Device(f"{self.dir}/device.{n}", self.size, self.filled)
            self.devices.append(device)
            (links / str(n)).symlink_to(device.dev)
        self.options["sets"].append(f"bluestore_block_path={links}/$id")
        super().up()

    def up_again(self):
        """Starts what is not running; returns when it serves."""
        subprocess.run([cluster.LOLIGO, "up", "--dir", self.dir, *self.processes()], check=True, capture_output=True)

    def __exit__(self, *trace):
        self.down()
        self.close_devices()
        super().__exit__(*trace)


class OneProcess(Loligo):
    """Ours, all OSDs in one process."""

    name = "one-process"
    # As many as there are processors.
    threads = None

    def __init__(self, osds=3, **options):
        super().__init__(osds=osds, osds_per_process=osds, threads_per_process=self.threads, **options)


class Ceph(Side, real_ceph.RealCeph):
    """Real Ceph 16.2, BlueStore with its defaults on a device an OSD."""

    name = "ceph"
    # As they are shipped.
    monitors = ""

    def __init__(self, osds=3, size_gb=10, memory_target=1 << 30, filled=False):
        super().__init__(osds=osds)
        self.size, self.filled, self.devices = size_gb << 30, filled, []
        # The kernel calls loop devices disks that turn: without this Ceph would pause for 0.1 s after each object it recovers, which it does
        # not on an SSD.
        self.store = f"osd_objectstore = bluestore\nosd_memory_target = {memory_target}\nosd_recovery_sleep_hdd = 0"

    def prepare_osd(self, n, data):
        device = self.Device(f"{self.dir}/device.{n}", self.size, self.filled)
        self.devices.append(device)
        (pathlib.Path(data) / "block").symlink_to(device.dev)

    def __exit__(self, *trace):
        super().__exit__(*trace)
        self.close_devices()


def make_pool(name, pgs=64):
    """A pool of size 3, ready for writes, on the cluster that CEPH_CONF names."""
    subprocess.run(["ceph", "osd", "pool", "create", name, str(pgs), str(pgs)], check=True, capture_output=True)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        stat = json.loads(subprocess.run(["ceph", "pg", "stat", "-f", "json"], check=True, capture_output=True).stdout)
        states = stat["pg_summary"]["num_pg_by_state"]
        if states and all(s["name"] == "active+clean" for s in states) and stat["pg_summary"]["num_pgs"] >= pgs:
            return
        time.sleep(0.5)
    raise SystemExit("placement groups did not become active+clean within 60 s")
