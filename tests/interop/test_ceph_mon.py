#!/usr/bin/python3
"""Our OSDs in a cluster whose monitor and manager are real Ceph 16.2: made with `ceph osd new`, booted, used by
unmodified clients, one killed under load and brought back, scrubbed, and clean at the end."""
import json
import os
import pathlib
import re
import subprocess
import time
import unittest

from cluster import state
from real_ceph import WithOurs

cluster = None


class OursUnderCeph(unittest.TestCase):
    def rados(self, *args, **kw):
        return cluster.run("rados", "-p", "data", *args, **kw).stdout

    def test_0_counts_by_image(self):
        """The real manager's queries of performance are answered as it understands them."""
        cluster.ceph("osd", "pool", "create", "images", "8", "8")
        cluster.wait_clean()
        cluster.run("rbd", "pool", "init", "images")
        cluster.run("rbd", "create", "--size", "64M", "images/hot")
        ask = ("rbd", "perf", "image", "counters", "images")
        cluster.wait(lambda: cluster.run("ceph", *ask, check=False).returncode == 0, 60, "the module")
        def counted():
            cluster.run("rbd", "bench", "--io-type", "write", "--io-size", "4K", "--io-total", "64K", "images/hot")
            return json.loads(cluster.ceph(*ask))["counters"]
        cluster.wait(counted, 60, "counts")
        [counts] = [c["0/hot"] for c in counted()]
        self.assertGreater(counts[0], 0)
        self.assertEqual(counts[2] % 4096, 0)
        self.assertGreater(counts[4], 0)
        cluster.ceph("osd", "pool", "delete", "images", "images", "--yes-i-really-really-mean-it")

    def test_1_objects(self):
        blob = os.urandom(5 << 20)
        self.rados("put", "big", "-", input=blob)
        self.assertEqual(self.rados("get", "big", "-"), blob)
        self.rados("setxattr", "big", "colour", "red")
        self.assertEqual(self.rados("getxattr", "big", "colour"), b"red")
        self.rados("setomapval", "big", "key", "value")
        self.assertIn(b"value", self.rados("getomapval", "big", "key"))
        self.rados("mksnap", "before")
        self.rados("put", "big", "-", input=b"after")
        old = pathlib.Path(cluster.dir, "old")
        self.rados("-s", "before", "get", "big", str(old))
        self.assertEqual(old.read_bytes(), blob)
        self.rados("rmsnap", "before")

    def test_2_statistics(self):
        def counted():
            pools = {p["name"]: p["stats"] for p in cluster.json("df")["pools"]}
            return pools["data"]["objects"] >= 1 and pools["data"]["stored"] > 0
        cluster.wait(counted, 30, "the manager counts the objects")
        for osd in cluster.json("osd", "df")["nodes"]:
            self.assertEqual(osd["status"], "up")
            self.assertEqual(osd["kb"], 4 << 20)
        self.assertEqual(cluster.json("osd", "metadata", "0")["osd_objectstore"], "inkstore")

        def timed():
            """`osd perf` showed zeros."""
            self.rados("put", "timed", "-", input=b"t" * 4096)
            infos = cluster.json("osd", "perf")["osdstats"]["osd_perf_infos"]
            return any(i["perf_stats"]["commit_latency_ns"] > 0 for i in infos)
        cluster.wait(timed, 60, "a latency of the stores")

    def test_3_commands(self):
        self.assertEqual(json.loads(cluster.ceph("tell", "osd.1", "version"))["release"], "pacific")
        query = json.loads(cluster.ceph("pg", self.pgid(), "query"))
        self.assertEqual(query["state"], "active+clean")
        cluster.ceph("config", "set", "osd", "osd_max_backfills", "3")
        got = lambda: cluster.ceph("tell", "osd.0", "config", "get", "osd_max_backfills")  # noqa: E731
        cluster.wait(lambda: json.loads(got())["osd_max_backfills"] == "3", 10, "the option at the OSD")
        # The manager died of a report without the list of ignored options.
        self.assertIn("bluestore_block_size", cluster.ceph("config", "show", "osd.0"))

    def pgid(self):
        return json.loads(cluster.ceph("osd", "map", "data", "big", "-f", "json"))["pgid"]

    def test_4_scrub(self):
        pgid = self.pgid()
        stamp = lambda: json.loads(cluster.ceph("pg", pgid, "query"))["info"]["stats"]["last_deep_scrub_stamp"]  # noqa: E731
        before = stamp()
        cluster.ceph("pg", "deep-scrub", pgid)
        cluster.wait(lambda: stamp() != before, 30, f"deep scrub of {pgid}")
        self.assertEqual(json.loads(cluster.ceph("pg", pgid, "query"))["info"]["stats"]["stat_sum"]["num_scrub_errors"], 0)

    def test_5_one_dies_under_load(self):
        bench = subprocess.Popen(["rados", "-p", "data", "bench", "6", "write", "-b", "4096", "-t", "8", "--no-cleanup", "--run-name", "load"],
                                 stdout=subprocess.PIPE, text=True)
        time.sleep(2)
        cluster.kill_osd(2)
        cluster.wait(lambda: cluster.json("osd", "stat")["num_up_osds"] == 2, 60, "osd.2 marked down")
        out, _ = bench.communicate(timeout=90)
        self.assertEqual(bench.returncode, 0)
        written = int(re.search(r"Total writes made:\s+(\d+)", out)[1])
        self.assertGreater(written, 0)
        cluster.start_osd(2)
        cluster.wait(lambda: cluster.json("osd", "stat")["num_up_osds"] == 3, 60, "osd.2 up again")
        cluster.wait_clean(120)
        names = self.rados("ls").decode().split()
        self.assertEqual(len([n for n in names if n.startswith("benchmark_data")]), written)
        check = cluster.run("rados", "-p", "data", "bench", "60", "seq", "-t", "8", "--run-name", "load", timeout=120)
        self.assertEqual(int(re.search(r"Total reads made:\s+(\d+)", check.stdout.decode())[1]), written)

    def test_6_ends_healthy(self):
        cluster.wait(lambda: cluster.json("health")["status"] == "HEALTH_OK", 60, "HEALTH_OK")
        self.assertTrue(all(state(d.pid) in "SRD" for d in cluster.daemons.values()))
        self.assertNotIn("Caught signal", cluster.logs(10000))


if __name__ == "__main__":
    with WithOurs() as cluster:
        cluster.pool("data", 16)
        unittest.main(verbosity=2, exit=False).result.wasSuccessful() or exit(1)
