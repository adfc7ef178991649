"""All monitors' stores are lost: one is made again of what the OSDs have (`loligo store update-mon-db`, `loligo mon --mkfs
--from-osds`), the others join it. Unmodified clients find all data, snapshots and images where they were."""
import json
import os
import shutil
import subprocess
import unittest

import rados
import rbd

from cluster import LOLIGO, Cluster
from test_quorum import free_ports


class ThreeMons(Cluster):
    def up(self):
        command = [LOLIGO, "up", "--dir", self.dir, "--osds", "3", "--osd-size", "4G"]
        if not os.path.exists(f"{self.dir}/ceph.conf"):
            self.port = free_ports(3)
            command += ["--port", str(self.port), "--mons", "3"]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
        self.conf = f"{self.dir}/ceph.conf"

    def loligo(self, *args):
        return subprocess.run([LOLIGO, *args], capture_output=True, text=True, timeout=60)

    def collect(self, osd, file):
        return self.loligo("store", "--dir", self.dir, "--osd", str(osd), "update-mon-db", file)

    def mkfs(self, name, *args):
        return self.loligo("mon", "--id", name, "-c", self.conf, "--mkfs", *args)


class LostMonitors(unittest.TestCase):
    def setUp(self):
        self.c = self.enterContext(ThreeMons())

    def ioctx(self, pool):
        client = rados.Rados(conffile=self.c.conf)
        client.connect()
        self.addCleanup(client.shutdown)
        return client, client.open_ioctx(pool)

    def keyring(self, path):
        """As the handbook has it: a new key for the monitors, the others from where their owners have them."""
        def tool(*args):
            subprocess.run(["ceph-authtool", path, *args], check=True, capture_output=True)

        tool("--create-keyring", "--gen-key", "-n", "mon.", "--cap", "mon", "allow *")
        tool("--import-keyring", f"{self.c.dir}/ceph.client.admin.keyring")
        tool("-n", "client.admin", "--cap", "mon", "allow *", "--cap", "osd", "allow *", "--cap", "mgr", "allow *", "--cap", "mds",
             "allow *")
        tool("--import-keyring", f"{self.c.dir}/mgr/x/keyring")
        tool("-n", "mgr.x", "--cap", "mon", "allow profile mgr", "--cap", "osd", "allow *", "--cap", "mds", "allow *")

    def test_all_are_lost(self):
        c = self.c
        c.pool("data")
        c.pool("images")
        c.run("rbd", "pool", "init", "images")
        client, io = self.ioctx("data")
        for n in range(40):
            io.write_full(f"o{n}", b"before %d" % n)
        io.create_snap("early")
        for n in range(40):
            io.write_full(f"o{n}", b"after %d" % n)
        io.set_xattr("o1", "colour", b"red")
        _, images = self.ioctx("images")
        rbd.RBD().create(images, "disk", 32 << 20)
        with rbd.Image(images, "disk") as image:
            image.write(b"old" * 1000, 0)
            image.create_snap("s")
            image.write(b"new" * 1000, 0)
        c.ceph("config", "set", "osd", "osd_max_backfills", "3")
        # One of the OSDs knows less than the others.
        c.ceph("osd", "set", "noout")
        c.kill("osd.2")
        c.wait(lambda: c.json("osd", "stat")["num_up_osds"] == 2, 60, "osd.2 to be down")
        io.write_full("late", b"without osd.2")
        c.pool("later", wait=False)
        highest = max(self.ioctx("data")[0].get_instance_id() for _ in range(3))

        part, whole = f"{c.dir}/part", f"{c.dir}/whole"
        running = c.collect(0, part)
        self.assertEqual(running.returncode, 1)
        self.assertFalse(os.path.exists(part), running.stderr)
        c.down()
        for name in "abc":
            shutil.rmtree(f"{c.dir}/mon/{name}")
        os.mkdir(f"{c.dir}/mon/a")
        self.keyring(f"{c.dir}/mon/a/keyring")

        # Of the one that knows less alone, somewhere else: who was not asked is told.
        told = c.collect(2, part)
        self.assertRegex(told.stdout, r"^osd.2: maps 1 to \d+, \d+ of them new, and its key\n$")
        self.assertEqual(os.stat(part).st_mode & 0o077, 0)
        r = c.mkfs("a", "--from-osds", part, "--set", f"mon_data={c.dir}/elsewhere")
        self.assertRegex(r.stdout, r"of 1 OSDs")
        self.assertIn("osd.0 was not asked", r.stdout)
        self.assertIn("osd.1 was not asked", r.stdout)

        epochs = []
        for osd in (2, 0, 1):
            r = c.collect(osd, whole)
            self.assertEqual(r.returncode, 0, r.stderr)
            epochs.append(int(r.stdout.split(" to ")[1].split(",")[0]))
        self.assertLess(epochs[0], epochs[1])
        for wrong, why in ((f"{c.dir}/none", "no such file"), (f"{c.dir}/ceph.conf", "cannot open")):
            r = c.mkfs("a", "--from-osds", wrong)
            self.assertIn(why, r.stderr)
            self.assertEqual(r.returncode, 1)
        r = c.mkfs("b", "--from-osds", whole)
        self.assertIn("--set public_addr=IP:PORT", r.stderr)
        r = c.mkfs("a", "--from-osds", whole)
        self.assertEqual(r.stdout, f"mon.a: OSD maps 1 to {max(epochs)}, of 3 OSDs; started, it leads alone\n")
        r = c.mkfs("a", "--from-osds", whole)
        self.assertIn("already has a monitor in it", r.stderr)

        c.up()
        self.assertGreater(c.json("osd", "dump")["epoch"], max(epochs))
        c.wait_clean()
        client, io = self.ioctx("data")
        self.assertGreater(client.get_instance_id(), highest)
        for n in range(40):
            self.assertEqual(io.read(f"o{n}"), b"after %d" % n)
        self.assertEqual(io.read("late"), b"without osd.2")
        self.assertEqual(io.get_xattr("o1", "colour"), b"red")
        io.set_read(io.lookup_snap("early").snap_id)
        self.assertEqual(io.read("o7"), b"before 7")
        io.set_read(rados.LIBRADOS_SNAP_HEAD)
        io.write_full("o7", b"again")
        self.assertEqual(io.read("o7"), b"again")
        io.remove_snap("early")
        _, images = self.ioctx("images")
        with rbd.Image(images, "disk") as image:
            self.assertEqual(image.read(0, 3000), b"new" * 1000)
            image.set_snap("s")
            self.assertEqual(image.read(0, 3000), b"old" * 1000)
            image.set_snap(None)
            image.remove_snap("s")
        _, later = self.ioctx("later")
        later.write_full("a pool made last", b"serves")
        # No clone of what has no snapshot any more stays.
        def clones():
            return json.loads(c.run("rados", "-p", "data", "listsnaps", "o7", "--format", "json").stdout)["clones"]

        c.wait(lambda: [clone["id"] for clone in clones()] == ["head"], 60, "the snapshot's clone to go")
        # What only monitors knew is gone, and can be told again; the keys of OSDs and of who was in the keyring are there.
        self.assertEqual(c.ceph("config", "get", "osd", "osd_max_backfills").strip(), "1")
        c.ceph("config", "set", "osd", "osd_max_backfills", "2")
        for osd in range(3):
            self.assertIn("allow profile osd", c.ceph("auth", "get", f"osd.{osd}"))
        self.assertIn("noout", c.ceph("osd", "dump"))
        c.ceph("osd", "unset", "noout")

        # The others join it.
        for n, name in enumerate("bc", 1):
            os.mkdir(f"{c.dir}/mon/{name}")
            shutil.copy(f"{c.dir}/mon/a/keyring", f"{c.dir}/mon/{name}/keyring")
            r = c.mkfs(name, "--set", f"public_addr=127.0.0.1:{c.port + n}")
            self.assertEqual(r.returncode, 0, r.stderr)
        c.down()
        c.up()
        c.wait(lambda: c.json("quorum_status")["quorum_names"] == ["a", "b", "c"], 30, "all monitors")
        self.assertEqual(c.ceph("config", "get", "osd", "osd_max_backfills").strip(), "2")
        c.wait_clean()


if __name__ == "__main__":
    unittest.main(verbosity=2)
