"""Debian's `rados` 16.2: every subcommand for objects, and a C program and fio on librados."""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

from cluster import Cluster, ROOT


def setUpModule():
    global cluster, tmp
    cluster = Cluster().__enter__()
    tmp = tempfile.TemporaryDirectory()
    for pool in ("cli", "cli2"):
        if pool not in cluster.ceph("osd", "pool", "ls").split():
            cluster.pool(pool)


def tearDownModule():
    tmp.cleanup()
    cluster.__exit__(None, None, None)


def rados(*args, pool="cli", check=True, input=None):
    r = cluster.run("rados", "-p", pool, *args, check=check, input=input)
    return r.stdout.decode(errors="replace") if check else r


def file(name, data):
    path = pathlib.Path(tmp.name, name)
    path.write_bytes(data)
    return str(path)


class Objects(unittest.TestCase):
    def test_put_get_stat_rm(self):
        for size in (0, 1, 4095, 4096, 4097, 100_000, 9 << 20):
            data = os.urandom(size)
            rados("put", "o", file("in", data))
            out = str(pathlib.Path(tmp.name, "out"))
            rados("get", "o", out)
            self.assertEqual(pathlib.Path(out).read_bytes(), data)
            self.assertIn(f"size {size}", rados("stat", "o"))
        self.assertIn("size", rados("stat2", "o"))
        self.assertIn("o", rados("ls").split())
        rados("rm", "o")
        r = rados("stat", "o", check=False)
        self.assertEqual((r.returncode, b"No such file" in r.stderr), (1, True))
        self.assertEqual(rados("rm", "o", check=False).returncode, 1)

    def test_striped(self):
        """libradosstriper: one object's bytes over many, cut and removed as one."""
        data = os.urandom(9_000_001)
        rados("--striper", "put", "striped", file("in", data))
        out = str(pathlib.Path(tmp.name, "out"))
        rados("--striper", "get", "striped", out)
        self.assertEqual(pathlib.Path(out).read_bytes(), data)
        self.assertGreater(len([o for o in rados("ls").split() if o.startswith("striped.")]), 1)
        self.assertEqual(rados("--striper", "ls").split(), ["striped"])
        rados("--striper", "truncate", "striped", "1000000")
        self.assertIn("size 1000000", rados("--striper", "stat", "striped"))
        rados("--striper", "setxattr", "striped", "k", "v")
        self.assertEqual(rados("--striper", "getxattr", "striped", "k").strip(), "v")
        rados("--striper", "rm", "striped")
        self.assertEqual([o for o in rados("ls").split() if o.startswith("striped")], [])

    def test_create_touch_append_truncate(self):
        rados("create", "t")
        rados("touch", "t")
        rados("append", "t", file("a", b"0123456789"))
        rados("append", "t", file("a", b"abc"))
        rados("truncate", "t", "12")
        self.assertEqual(rados("get", "t", "-"), "0123456789ab")
        rados("cp", "t", "t2")
        self.assertEqual(rados("get", "t2", "-"), "0123456789ab")
        rados("put", "--offset", "5", "t2", file("b", b"XY"))
        self.assertEqual(rados("get", "t2", "-")[:7], "01234XY")

    def test_xattrs(self):
        rados("put", "x", file("x", b"x"))
        rados("setxattr", "x", "k1", "v1")
        rados("setxattr", "x", "k2", "v2")
        self.assertEqual(rados("listxattr", "x").split(), ["k1", "k2"])
        self.assertEqual(rados("getxattr", "x", "k1"), "v1")
        rados("rmxattr", "x", "k1")
        self.assertEqual(rados("listxattr", "x").split(), ["k2"])
        self.assertEqual(rados("getxattr", "x", "k1", check=False).returncode, 1)

    def test_omap(self):
        rados("create", "m")
        for i in range(5):
            rados("setomapval", "m", f"k{i}", f"v{i}")
        rados("setomapheader", "m", "head")
        self.assertEqual(rados("listomapkeys", "m").split(), [f"k{i}" for i in range(5)])
        self.assertIn("v3", rados("getomapval", "m", "k3"))
        self.assertIn("head", rados("getomapheader", "m"))
        self.assertIn("value (2 bytes)", rados("listomapvals", "m"))
        rados("rmomapkey", "m", "k0")
        rados("clearomap", "m")
        self.assertEqual(rados("listomapkeys", "m"), "")

    def test_snapshots(self):
        rados("put", "s", file("s", b"before"), pool="cli2")
        rados("mksnap", "snap1", pool="cli2")
        rados("put", "s", file("s", b"after"), pool="cli2")
        self.assertIn("snap1", rados("lssnap", pool="cli2"))
        self.assertIn("cloneid", rados("listsnaps", "s", pool="cli2"))
        self.assertTrue(rados("-s", "snap1", "get", "s", "-", pool="cli2").endswith("\nbefore"))
        rados("rollback", "s", "snap1", pool="cli2")
        self.assertEqual(rados("get", "s", "-", pool="cli2"), "before")
        rados("rmsnap", "snap1", pool="cli2")
        self.assertEqual(rados("rmsnap", "snap1", pool="cli2", check=False).returncode, 1)

    def test_locks(self):
        rados("create", "l")
        rados("lock", "get", "l", "lk", "--lock-cookie", "c")
        self.assertEqual(json.loads(rados("lock", "list", "l"))["locks"][0]["name"], "lk")
        locker = json.loads(rados("lock", "info", "l", "lk"))["lockers"][0]["name"]
        self.assertEqual(rados("lock", "get", "l", "lk", check=False).returncode, 1)
        rados("lock", "break", "l", "lk", locker, "--lock-cookie", "c")

    def test_namespaces_and_listing(self):
        rados("-N", "ns", "put", "inside", file("n", b"n"))
        self.assertEqual(rados("-N", "ns", "ls").split(), ["inside"])
        self.assertNotIn("inside", rados("ls").split())
        self.assertIn("inside", rados("--all", "ls"))
        self.assertEqual(rados("-N", "ns", "get", "inside", "-"), "n")

    def test_watch_and_notify(self):
        rados("create", "w")
        watcher = subprocess.Popen(["rados", "-p", "cli", "watch", "w"], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, env=dict(os.environ, CEPH_CONF=cluster.conf))
        try:
            cluster.wait(lambda: "watcher=" in rados("listwatchers", "w"), what="the watch is listed")
            self.assertIn("reply client", rados("notify", "w", "hello"))
        finally:
            watcher.kill()
            watcher.wait()
            watcher.stdin.close()
            watcher.stdout.close()

    def test_export_import_cppool(self):
        rados("put", "e", file("e", b"exported"))
        rados("setxattr", "e", "a", "b")
        rados("setomapval", "e", "k", "v")
        path = str(pathlib.Path(tmp.name, "dump"))
        rados("export", path)
        cluster.pool("imported")
        rados("import", path, pool="imported")
        self.assertEqual(rados("get", "e", "-", pool="imported"), "exported")
        self.assertEqual(rados("getxattr", "e", "a", pool="imported"), "b")
        self.assertEqual(rados("listomapkeys", "e", pool="imported").split(), ["k"])
        cluster.run("rados", "purge", "imported", "--yes-i-really-really-mean-it")
        self.assertEqual(rados("ls", pool="imported"), "")

    def test_cppool(self):
        for pool in ("from", "to"):
            cluster.pool(pool)
        for n in range(8):
            rados("put", f"o{n}", file("c", b"copied"), pool="from")
        cluster.run("rados", "cppool", "from", "to", "--yes-i-really-mean-it", timeout=20)
        self.assertEqual(len(rados("ls", pool="to").split()), 8)

    def test_df_and_lspools(self):
        pools = json.loads(cluster.run("rados", "df", "-f", "json").stdout)["pools"]
        self.assertIn("cli", [p["name"] for p in pools])
        self.assertIn("cli", cluster.run("rados", "lspools").stdout.decode().split())

    def test_bench(self):
        out = rados("bench", "2", "write", "-b", "4096", "-t", "16", "--no-cleanup")
        self.assertIn("Total writes made", out)
        self.assertIn("Total reads made", rados("bench", "1", "seq", "-t", "16"))
        self.assertIn("Total reads made", rados("bench", "1", "rand", "-t", "16"))
        rados("cleanup")
        self.assertNotIn("benchmark", rados("ls"))

    def test_big_objects_bench(self):
        self.assertIn("Total writes made", rados("bench", "2", "write", "-t", "4"))


class Programs(unittest.TestCase):
    def test_c_program(self):
        program = pathlib.Path(tmp.name, "librados_c")
        source = ROOT / "tests/interop/librados_c.c"
        subprocess.run(["gcc", "-Wall", "-o", program, source, "-lrados"], check=True)
        r = subprocess.run([program, cluster.conf, "cli"], capture_output=True, text=True, timeout=60)
        self.assertEqual((r.returncode, r.stdout.splitlines()[-1:]), (0, ["ok"]), r.stdout + r.stderr)

    def test_fio(self):
        r = cluster.run("fio", "--name=t", "--ioengine=rados", "--clientname=admin", f"--conf={cluster.conf}", "--pool=cli",
                        "--busy_poll=0", "--rw=randwrite", "--bs=4k", "--size=1m", "--nrfiles=4", "--iodepth=8",
                        "--verify=crc32c", "--do_verify=1", "--verify_state_save=0", "--output-format=json")
        self.assertEqual(json.loads(r.stdout[r.stdout.index(b"{"):])["jobs"][0]["error"], 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
