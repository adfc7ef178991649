"""Failures as operators see them, with unmodified tools: who is marked down, by whom and when not; out and back in; an OSD that gives
up; a PG that is down, and why; unfound objects; a full cluster; options of recovery that act while it runs."""
import json
import os
import pathlib
import subprocess
import time
import unittest

import rados

import cluster
from cluster import Cluster


class Failures(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.started = []
        cls.addClassCleanup(lambda: [osd.wait() for osd in cls.started])
        cls.cluster = c = Cluster(osds=4).__enter__()
        cls.addClassCleanup(c.__exit__, None, None, None)
        c.pool("p", 8)
        cls.client = rados.Rados(conffile=c.conf)
        cls.client.connect(timeout=30)
        cls.addClassCleanup(cls.client.shutdown)

    def osd(self, n):
        return next(o for o in self.cluster.json("osd", "dump")["osds"] if o["osd"] == n)

    def is_up(self, n):
        return self.osd(n)["up"] == 1

    def is_in(self, n):
        return self.osd(n)["in"] == 1

    def wait_down(self, n):
        self.cluster.wait(lambda: not self.is_up(n), 30, f"osd.{n} down")

    def log_has(self, *texts):
        lines = self.cluster.ceph("log", "last", "1000", "debug", "cluster").splitlines()
        return any(all(t in line for t in texts) for line in lines)

    def start(self, n):
        """Starts an OSD as `loligo up` does, but waits for nothing."""
        c = self.cluster
        with open(f"{c.dir}/log/osd.{n}.log", "ab") as log:
            osd = subprocess.Popen([cluster.LOLIGO, "osd", "--id", str(n), "-c", c.conf], stdout=log, stderr=log, start_new_session=True)
        pathlib.Path(c.dir, "run", f"osd.{n}.pid").write_text(f"{osd.pid}\n")
        self.started.append(osd)

    def all_up(self):
        c = self.cluster
        for n in range(4):
            if cluster.state(c.pid(f"osd.{n}")) == "Z":
                self.start(n)
        c.wait(lambda: c.json("osd", "stat")["num_up_osds"] == 4, 60, "all up")
        c.wait_clean(60)

    def write(self, pool, name, data):
        with self.client.open_ioctx(pool) as io:
            io.write_full(name, data)

    def test_1_a_killed_osd_is_down(self):
        """Its peers' connections are refused: nobody waits for the grace."""
        c = self.cluster
        c.kill("osd.1")
        killed = time.monotonic()
        while self.is_up(1):
            self.assertLess(time.monotonic(), killed + 120)
        print(f"down {time.monotonic() - killed:.2f} s after kill -9", flush=True)
        c.wait(lambda: self.log_has("osd.1", "connection refused"), 30, "the log says why")
        self.all_up()

    def test_2_flags_keep_osds(self):
        """nodown: stays up. noout: stays in for ever, without it not. noup: stays down."""
        c = self.cluster
        c.ceph("config", "set", "mon", "mon_osd_down_out_interval", "1")
        for flag in ("nodown", "noout"):
            c.ceph("osd", "set", flag)
        c.kill("osd.2")
        time.sleep(2)
        self.assertTrue(self.is_up(2), "nodown")
        c.ceph("osd", "unset", "nodown")
        self.wait_down(2)
        time.sleep(2)
        self.assertTrue(self.is_in(2), "noout")
        c.ceph("osd", "unset", "noout")
        c.wait(lambda: not self.is_in(2), 30, "osd.2 out")
        c.ceph("osd", "set", "noup")
        self.start(2)
        time.sleep(2)
        self.assertFalse(self.is_up(2), "noup")
        c.ceph("osd", "unset", "noup")
        c.wait(lambda: self.is_up(2) and self.is_in(2), 60, "osd.2 up, and in by itself")
        c.ceph("config", "rm", "mon", "mon_osd_down_out_interval")
        c.wait_clean(60)

    def test_3_who_flaps_gives_up(self):
        """osd_max_markdown_count: an OSD that is marked down while it lives comes back, but not for ever."""
        c = self.cluster
        c.ceph("config", "set", "osd.3", "osd_max_markdown_count", "1")
        c.wait(lambda: c.json("tell", "osd.3", "config", "get", "osd_max_markdown_count")["osd_max_markdown_count"] == "1", 30, "the option")
        pid, before = c.pid("osd.3"), self.osd(3)["up_from"]
        c.ceph("osd", "down", "3")
        c.wait(lambda: self.is_up(3) and self.osd(3)["up_from"] > before, 60, "osd.3 comes back")
        self.assertEqual(c.pid("osd.3"), pid)
        c.wait(lambda: self.log_has("osd.3", "it is still running"), 30, "a line in the log")
        c.ceph("osd", "down", "3")
        c.wait(lambda: cluster.state(pid) == "Z", 60, "osd.3 ends")
        self.assertIn("osd_max_markdown_count", pathlib.Path(c.dir, "log", "osd.3.log").read_text())
        self.wait_down(3)
        c.ceph("config", "rm", "osd.3", "osd_max_markdown_count")
        self.all_up()

    def two_copies(self, pool):
        """A pool of one PG with two copies that works with one; (PG, acting)."""
        c = self.cluster
        c.pool(pool, 1)
        c.ceph("osd", "pool", "set", pool, "size", "2")
        c.ceph("osd", "pool", "set", pool, "min_size", "1")
        c.wait_clean(60)
        found = c.json("osd", "map", pool, "x")
        return found["pgid"], found["acting"]

    def query(self, pgid):
        """What the PG says of itself; nothing as long as nobody leads it."""
        r = self.cluster.run("timeout", "30", "ceph", "pg", pgid, "query", check=False)
        return json.loads(r.stdout) if r.returncode == 0 else {"state": "", "recovery_state": []}

    def test_4_a_pg_is_down(self):
        """The only OSD that served last is gone: the PG says whom it waits for."""
        c = self.cluster
        pgid, (first, second) = self.two_copies("two")
        self.write("two", "x", b"old")
        c.ceph("osd", "set", "noout")
        c.kill(f"osd.{second}")
        self.wait_down(second)
        self.write("two", "x", b"new")
        c.kill(f"osd.{first}")
        self.wait_down(first)
        self.start(second)
        c.wait(lambda: self.is_up(second), 60, f"osd.{second} up")
        c.wait(lambda: "down" in self.query(pgid)["state"].split("+"), 60, "the PG is down")
        blocked = next(state for state in self.query(pgid)["recovery_state"] if "blocked" in state)
        self.assertEqual(blocked["blocked"], "peering is blocked due to down osds")
        self.assertEqual(blocked["down_osds_we_would_probe"], [first])
        self.assertEqual([(b["osd"], b["comment"]) for b in blocked["peering_blocked_by"]],
                         [(first, "starting or marking this osd lost may let us proceed")])
        self.all_up()
        with self.client.open_ioctx("two") as io:
            self.assertEqual(io.read("x"), b"new")
        c.ceph("osd", "unset", "noout")

    def test_5_unfound(self):
        """The newest version was on one OSD alone: reported, reads wait, given up by command and only after `osd lost`."""
        c = self.cluster
        pgid, (first, second) = self.two_copies("lost")
        self.write("lost", "x", b"old")
        for flag in ("noout", "norecover"):
            c.ceph("osd", "set", flag)
        c.kill(f"osd.{second}")
        self.wait_down(second)
        self.write("lost", "x", b"new")
        self.start(second)
        c.wait(lambda: self.is_up(second), 60, f"osd.{second} up")
        # It knows what it lacks when a write is acknowledged by both.
        c.wait(lambda: len(c.json("osd", "map", "lost", "x")["acting"]) == 2, 60, "both act")
        self.write("lost", "y", b"both")
        c.kill(f"osd.{first}")
        self.wait_down(first)
        c.ceph("osd", "unset", "norecover")
        c.wait(lambda: "recovery_unfound" in self.query(pgid)["state"], 60, "recovery_unfound")
        c.wait(lambda: "unfound" in c.ceph("health", "detail"), 60, "health says so")
        listed = c.json("pg", pgid, "list_unfound")
        self.assertEqual([o["oid"]["oid"] for o in listed["objects"]], ["x"])
        self.assertEqual(c.run("ceph", "pg", pgid, "mark_unfound_lost", "revert", check=False).returncode, 22)
        c.ceph("osd", "lost", str(first), "--yes-i-really-mean-it")
        c.wait(lambda: c.run("ceph", "pg", pgid, "mark_unfound_lost", "revert", check=False).returncode == 0, 30, "given up")
        with self.client.open_ioctx("lost") as io:
            self.assertEqual((io.read("x"), io.read("y")), (b"old", b"both"))
        self.all_up()
        with self.client.open_ioctx("lost") as io:
            self.assertEqual(io.read("x"), b"old")
        c.ceph("osd", "unset", "noout")

    def test_6_options_act_while_it_recovers(self):
        """osd_recovery_sleep holds recovery up, injectargs lets it go; osd_max_backfills is how many PGs an OSD leads at a time."""
        c = self.cluster
        with self.client.open_ioctx("p") as io:
            for n in range(200):
                io.write_full(f"o{n}", b"a" * 100)
        c.ceph("osd", "set", "noout")
        c.kill("osd.0")
        self.wait_down(0)
        with self.client.open_ioctx("p") as io:
            for n in range(200):
                io.write_full(f"o{n}", b"b" * 100)
        c.ceph("config", "set", "osd", "osd_recovery_sleep", "4")
        c.ceph("config", "set", "osd", "osd_recovery_max_active", "1")

        def has(n, option, value):
            return float(c.json("tell", f"osd.{n}", "config", "get", option)[option]) == value
        for n in (1, 2, 3):
            c.wait(lambda n=n: has(n, "osd_recovery_sleep", 4), 30, "the option")
        self.start(0)
        c.wait(lambda: self.is_up(0), 60, "osd.0 up")

        def in_progress():
            held = [c.json("tell", f"osd.{n}", "dump_recovery_reservations")["local_reservations"]["in_progress"] for n in range(4)]
            return max(len(h) for h in held)
        # Dozens of objects an OSD, one in 4 s.
        c.wait(lambda: in_progress() == 1, 30, "one PG an OSD")
        c.ceph("config", "set", "osd", "osd_max_backfills", "8")
        c.wait(lambda: in_progress() > 1, 60, "more PGs at a time")
        c.ceph("tell", "osd.*", "injectargs", "--osd_recovery_sleep=0 --osd_recovery_max_active=10")
        c.wait_clean(60)
        for option in ("osd_recovery_sleep", "osd_recovery_max_active", "osd_max_backfills"):
            c.ceph("config", "rm", "osd", option)
        c.ceph("osd", "unset", "noout")
        self.all_up()

    def test_7_full(self):
        """Full: writes wait or fail, recovery waits, who forces it may delete, and then there is room again."""
        c = self.cluster
        with self.client.open_ioctx("p") as io:
            io.write_full("big", b"z" * 1000)
        c.ceph("osd", "set", "noout")
        c.kill("osd.0")
        self.wait_down(0)
        with self.client.open_ioctx("p") as io:
            for n in range(50):
                io.write_full(f"o{n}", b"c" * 100)
        for word, ratio in (("nearfull", "0.0000001"), ("backfillfull", "0.0000002"), ("full", "0.0000003")):
            c.ceph("osd", f"set-{word}-ratio", ratio)
        c.wait(lambda: "OSD_FULL" in c.json("health")["checks"], 60, "full")
        # "nearfull" and "backfillfull" have the word in them, too, and come first on a slow machine.
        flags = lambda: next(p["flags_names"] for p in c.json("osd", "dump")["pools"] if p["pool_name"] == "p").split(",")
        c.wait(lambda: "full" in flags(), 60, "pools")
        self.start(0)
        c.wait(lambda: "PG_RECOVERY_FULL" in c.json("health")["checks"], 60, "recovery waits")
        self.assertIn("recovery_toofull", c.ceph("pg", "ls", "recovery_toofull"))
        put = subprocess.Popen(["rados", "-p", "p", "put", "more", "/etc/hostname"], env=dict(os.environ, CEPH_CONF=c.conf))
        self.addCleanup(put.wait)
        time.sleep(2)
        self.assertIsNone(put.poll(), "a write waits while the pool is full")
        c.run("rados", "-p", "p", "rm", "big", "--force-full")
        self.assertNotEqual(c.run("rados", "-p", "p", "stat", "big", check=False).returncode, 0)
        for word, ratio in (("full", "0.95"), ("backfillfull", "0.9"), ("nearfull", "0.85")):
            c.ceph("osd", f"set-{word}-ratio", ratio)
        self.assertEqual(put.wait(120), 0)
        c.run("rados", "-p", "p", "stat", "more")
        c.wait_clean(60)
        c.ceph("osd", "unset", "noout")


if __name__ == "__main__":
    unittest.main(verbosity=2)
