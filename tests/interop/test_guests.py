#!/usr/bin/python3
"""`loligo up --mds N --rgw-port P`: Ceph's own `ceph-mds` and `radosgw` beside our daemons, in one folder: made, used, killed, brought back, stopped; what
cannot be is told. About 25 s."""
import json
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import time
import unittest
import urllib.request

import boto3
import cephfs

from cluster import LOLIGO, free_port, state

OURS = ["mon.a", "mgr.x", "osd.0", "osd.1", "osd.2"]


class Guests(unittest.TestCase):
    def setUp(self):
        self.dir = self.enterContext(tempfile.TemporaryDirectory(prefix="loligo-test-", ignore_cleanup_errors=True))
        self.conf, self.port, self.rgw_port = f"{self.dir}/ceph.conf", free_port(), free_port()
        self.addCleanup(self.loligo, "down")

    def loligo(self, command, *args, code=None, env=()):
        done = subprocess.run([LOLIGO, command, "--dir", self.dir, *args], capture_output=True, text=True, timeout=180, env=dict(os.environ, **dict(env)))
        if code is not None:
            self.assertEqual(done.returncode, code, done)
        return done

    def up(self, *args, code=0, env=()):
        return self.loligo("up", *args, code=code, env=env)

    def tool(self, *args):
        done = subprocess.run(args, capture_output=True, text=True, timeout=60, env=dict(os.environ, CEPH_CONF=self.conf, CEPH_ARGS=""))
        self.assertEqual(done.returncode, 0, done)
        return done.stdout

    def pids(self):
        return {daemon["name"]: daemon["pid"] for daemon in json.loads(self.loligo("status", "--json", code=0).stdout)["daemons"]}

    def metrics(self):
        port = free_port()
        self.tool("ceph", "config", "set", "mgr", "mgr/prometheus/server_port", str(port))
        self.tool("ceph", "mgr", "module", "enable", "prometheus")
        deadline = time.monotonic() + 10
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as page:
                    return page.read().decode()
            except OSError:
                self.assertLess(time.monotonic(), deadline, "the page is there")
                time.sleep(0.1)

    def files(self):
        fs = cephfs.LibCephFS(auth_id="admin", conffile=self.conf)
        fs.conf_set("client_mount_timeout", "60")
        fs.mount()
        self.addCleanup(fs.shutdown)
        return fs

    def s3(self):
        return boto3.client("s3", endpoint_url=f"http://localhost:{self.rgw_port}", aws_access_key_id="KEY", aws_secret_access_key="SECRET",
                            region_name="default")

    def test_files_and_buckets_from_one_command(self):
        said = self.up("--port", str(self.port), "--mds", "2", "--rgw-port", str(self.rgw_port)).stdout
        self.assertIn("3 OSDs, 2 MDSs, 1 S3 gateway serve after", said)
        self.assertIn(f"S3: http://localhost:{self.rgw_port};", said)
        # All serve at once: nothing here waits.
        socket.create_connection(("127.0.0.1", self.rgw_port), 5).close()
        self.assertIn("mds: 1/1 daemons up, 1 standby", self.loligo("status", code=0).stdout)
        fs = self.files()
        fd = fs.open("/first", "w", 0o644)
        fs.write(fd, b"file", 0)
        fs.close(fd)
        fs.unmount()
        self.tool("radosgw-admin", "user", "create", "--uid=me", "--display-name=Me", "--access-key=KEY", "--secret-key=SECRET")
        self.s3().create_bucket(Bucket="bucket")
        self.s3().put_object(Bucket="bucket", Key="first", Body=b"object")
        before = self.pids()
        self.assertEqual(list(before), [*OURS, "mds.a", "mds.b", "rgw.a"])
        page = self.metrics()
        for label in ('fs_metadata{data_pools="2",fs_id="1",metadata_pool="1",name="cephfs"}', 'mds_metadata{ceph_daemon="mds.a",fs_id=',
                      'mds_metadata{ceph_daemon="mds.b",fs_id=', 'rgw_metadata{ceph_daemon="rgw.a",'):
            self.assertIn(f"\nceph_{label}", page)
        # Those that run are left alone; they are found by what they are, not by a number that another process has now.
        self.up()
        self.assertEqual(self.pids(), before)
        # After the death of all.
        for pid in before.values():
            os.kill(pid, signal.SIGKILL)
        for pid in before.values():
            while os.path.exists(f"/proc/{pid}") and state(pid) != "Z":
                pass
        self.assertIn("2 MDSs, 1 S3 gateway serve", self.up().stdout)
        fs = self.files()
        fd = fs.open("/first", "r")
        self.assertEqual(fs.read(fd, 0, 100), b"file")
        fs.close(fd)
        fs.unmount()
        self.assertEqual(self.s3().get_object(Bucket="bucket", Key="first")["Body"].read(), b"object")
        # Ceph's go before what they need, and leave nothing behind.
        stopped = self.loligo("down", code=0).stdout.split("stopped ")[1].split(", ")
        self.assertEqual({name.split(".")[0] for name in stopped[:3]}, {"mds", "rgw"})
        self.assertEqual(stopped[-1].strip(), "mon.a")
        self.assertEqual(os.listdir(f"{self.dir}/run"), [])
        # Its port is kept.
        told = self.up("--rgw-port", str(free_port()), code=1).stderr
        self.assertIn(f"has its S3 gateway on port {self.rgw_port}", told)
        with socket.create_server(("127.0.0.1", self.rgw_port)):
            self.assertIn(f"port {self.rgw_port} on 127.0.0.1, which is the S3 gateway's, is in use", self.up(code=1).stderr)
        self.assertIn("1 S3 gateway serve", self.up().stdout)

    def test_added_later(self):
        self.assertNotIn("MDS", self.up("--port", str(self.port)).stdout)
        ours = self.pids()
        self.assertEqual(list(ours), OURS)
        self.assertIn("3 OSDs, 1 MDS serve", self.up("--mds", "1").stdout)
        self.assertIn("3 OSDs, 3 MDSs serve", self.up("--mds", "3").stdout)
        now = self.pids()
        self.assertEqual({name: now[name] for name in ours}, ours)
        self.assertEqual(list(now), [*OURS, "mds.a", "mds.b", "mds.c"])
        # A rank for each.
        self.tool("ceph", "fs", "set", "cephfs", "max_mds", "3")
        os.kill(now["mds.c"], signal.SIGKILL)
        self.up()
        ranks = json.loads(self.tool("ceph", "fs", "dump", "-f", "json"))["filesystems"][0]["mdsmap"]["info"].values()
        self.assertEqual([rank["state"] for rank in ranks], ["up:active"] * 3)
        # Who removed the file system does not get another.
        self.tool("ceph", "fs", "fail", "cephfs")
        self.tool("ceph", "fs", "rm", "cephfs", "--yes-i-really-mean-it")
        self.assertIn("3 MDSs serve", self.up().stdout)
        self.assertEqual(self.tool("ceph", "fs", "ls", "-f", "json").strip(), "[]")

    def test_what_cannot_be_is_told(self):
        nowhere = {"PATH": self.dir}
        for asked, package in ((["--mds", "1"], "ceph-mds"), (["--rgw-port", str(self.rgw_port)], "radosgw")):
            told = self.up("--port", str(self.port), *asked, code=1, env=nowhere).stderr
            self.assertIn(f"{asked[0]}: there is no {package} in the PATH", told)
            self.assertIn(f"sudo apt-get install {package}", told)
        # Nothing was made.
        self.assertEqual(os.listdir(self.dir), [])
        self.assertIn("cannot be used with", self.up("--mds", "1", "--single-process", code=2).stderr)
        told = self.up("--port", str(self.port), "--rgw-port", str(self.port), code=1).stderr
        self.assertIn("is in use", told)
        self.up("--port", str(self.port), "--mds", "2", "--rgw-port", str(self.rgw_port))
        self.loligo("down", code=0)
        # Programs that have gone, a key that the monitors do not know: the others serve.
        done = self.up(code=1, env=nowhere)
        self.assertIn("3 OSDs, 0 MDSs, 0 S3 gateways serve", done.stdout)
        self.assertNotIn("S3: http", done.stdout)
        for name, program in (("mds.a", "ceph-mds"), ("mds.b", "ceph-mds"), ("rgw.a", "radosgw")):
            self.assertIn(f"{name} does not serve: there is no {program} in the PATH", done.stderr)
        self.tool("ceph", "auth", "del", "mds.b")
        done = self.up(code=1)
        self.assertIn("3 OSDs, 1 MDS, 1 S3 gateway serve", done.stdout)
        self.assertIn("mds.b does not serve: it stopped: ", done.stderr)
        self.assertEqual(len(done.stderr.split("does not serve")), 2, done.stderr)
        # What it needs is made again where its key is removed.
        pathlib.Path(self.dir, "mds/b/keyring").unlink()
        self.assertIn("2 MDSs", self.up().stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
