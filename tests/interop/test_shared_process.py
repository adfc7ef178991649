#!/usr/bin/python3
"""OSDs that share a process (`loligo up --osds-per-process`): every kind of store, one that fails while the others go on,
restarts in other arrangements. About 40 s. (Kills under load: test_kill.)"""
import contextlib
import os
import pathlib
import re
import socket
import subprocess
import sys
import unittest

import rados

from cluster import LOLIGO, Cluster
from test_stores import STORES, fill, look


def rss_mib(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())[1]) >> 10


def open_files(process):
    """What a process holds open: one that it closes meanwhile may be missing."""
    files = set()
    for fd in pathlib.Path(f"/proc/{process}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            files.add(os.readlink(fd))
    return files


def listening(process):
    """The TCP ports at which a process listens."""
    ours = open_files(process)
    rows = [line.split() for line in pathlib.Path(f"/proc/{process}/net/tcp").read_text().splitlines()[1:]]
    return {int(row[1].rsplit(":", 1)[1], 16) for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in ours}


class SharedProcess(unittest.TestCase):
    def one(self, name, threads):
        """The same as a store has to keep in processes of its own, and after a kill of all OSDs at once."""
        store, sets, _ = STORES[name]
        with Cluster(osds=3, store=store, sets=sets, osds_per_process=3, threads_per_process=threads) as c:
            pids = {c.pid(f"osd.{n}") for n in range(3)}
            self.assertEqual(len(pids), 1)
            c.pool("p", 8)
            with rados.Rados(conffile=c.conf) as cluster, cluster.open_ioctx("p") as ioctx:
                snap = fill(ioctx)
                # A payload that goes by reference, and one that does not begin a page.
                long = bytearray(bytes(range(256)) * 8192)
                ioctx.write_full("long", bytes(long))
                ioctx.write("long", b"x" * 9000, 5000)
                long[5000:14000] = b"x" * 9000
            print(f"{name}: {rss_mib(min(pids))} MiB for three OSDs")
            c.kill("osd.1")
            c.up()
            c.wait_clean()
            with rados.Rados(conffile=c.conf) as cluster, cluster.open_ioctx("p") as ioctx:
                self.assertEqual(ioctx.read("long", 4 << 20), bytes(long))
                ioctx.remove_object("long")
                look(self, ioctx, snap)

    def test_one_fails_and_the_others_go_on(self):
        # Of one thread: one that has a thread for itself ends with that.
        with Cluster(osds=3, osds_per_process=3, threads_per_process=1) as c:
            c.pool("p", 16)
            with rados.Rados(conffile=c.conf) as cluster, cluster.open_ioctx("p") as ioctx:
                ioctx.write_full("before", b"all")
                process = c.pid("osd.0")
                port = int(c.json("osd", "dump")["osds"][1]["public_addrs"]["addrvec"][0]["addr"].rsplit(":", 1)[1])
                self.assertIn(port, listening(process))
                # It stops as one does that the others do not reach.
                c.ceph("config", "set", "osd.1", "osd_max_markdown_count", "0")
                c.wait(lambda: c.json("tell", "osd.1", "config", "get", "osd_max_markdown_count")["osd_max_markdown_count"] == "0",
                       what="osd.1 has the setting")
                c.ceph("osd", "down", "1")
                file = pathlib.Path(c.dir, "run", "osd.1.pid")
                c.wait(lambda: not file.exists(), what="osd.1 has stopped")
                for n in range(50):
                    ioctx.write_full(f"during {n}", b"two" * 2000)
                self.assertEqual((c.pid("osd.0"), c.pid("osd.2")), (process, process))
                self.nothing_is_left(c, process, port)
                self.assertEqual(c.json("osd", "stat")["num_up_osds"], 2)
                log = pathlib.Path(c.dir, "log", "osd.2.log").read_text()
                self.assertRegex(log, r"(?m)^\S+ osd.1 .*osd.1 stops: .*osd_max_markdown_count")
                self.assertRegex(log, r"(?m)^\S+ osd.2 .*osd.2 is active")
                status = subprocess.run([LOLIGO, "status", "--dir", c.dir], capture_output=True, text=True, timeout=60).stdout
                self.assertRegex(status, r"(?m)^osd.1 +not running$")
                # It comes back by itself, while the others still run.
                c.ceph("config", "rm", "osd.1", "osd_max_markdown_count")
                c.up()
                c.wait_clean()
                self.assertNotEqual(c.pid("osd.1"), process)
                self.assertEqual(c.pid("osd.2"), process)
                for n in range(50):
                    self.assertEqual(ioctx.read(f"during {n}", 10000), b"two" * 2000)
                ioctx.write_full("after", b"all")
            # Another arrangement finds the same data.
            c.down()
            for per_process, processes in ((2, 2), (1, 3)):
                c.options["osds_per_process"] = per_process
                c.up()
                c.wait_clean()
                self.assertEqual(len({c.pid(f"osd.{n}") for n in range(3)}), processes)
                self.assertEqual(c.run("rados", "-p", "p", "get", "before", "-").stdout, b"all")
                self.assertEqual(c.run("rados", "-p", "p", "get", "after", "-").stdout, b"all")
                c.down()
            c.up()

    def nothing_is_left(self, c, process, port):
        """Of osd.1, which the process lives on without: nobody answers for it, and its files are closed."""
        c.wait(lambda: not os.path.exists(f"{c.dir}/run/osd.1.asok"), what="its admin socket goes")
        # Not by a connection: once it was another test's cluster that had taken the port meanwhile.
        c.wait(lambda: port not in listening(process), what="nobody of the process listens for osd.1")
        held = open_files(process)
        self.assertEqual([file for file in held if file.startswith(f"{c.dir}/osd/1/")], [])
        self.assertTrue(any(file.startswith(f"{c.dir}/osd/0/") for file in held))

    def test_what_cannot_share_a_process_is_told(self):
        with Cluster(osds=1) as c:
            for args, said in ((["mon", "--id", "a", "--id", "b"], "only OSDs can share a process"),
                               (["osd", "--id", "0", "--id", "1", "--mkfs"], "--mkfs makes one"),
                               (["osd", "--id", "0", "--id", "0"], "--id 0 is there twice")):
                r = subprocess.run([LOLIGO, *args, "-c", c.conf], capture_output=True, text=True, timeout=60)
                self.assertEqual((r.returncode, said in r.stderr), (1, True), r)


for one, threads in (("inkstore", 1), ("inkstore", 3), ("bluestore", 2), ("filestore", 1), ("kstore-leveldb", 2)):
    setattr(SharedProcess, f"test_{one.replace('-', '_')}_on_{threads}", lambda self, one=one, threads=threads: self.one(one, threads))

if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
