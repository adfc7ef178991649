"""Debian's unmodified `ceph-mds` 16.2, three of them, on our cluster, used by libcephfs (python3-cephfs) and, where it may mount, by ceph-fuse: files and directories,
layouts, quotas, snapshots, clients beside each other, failures of MDSs, several ranks, several file systems, who may what. LOLIGO_REAL=1: on a real Ceph. About 70 s, 95 s there."""
import errno
import json
import os
import pathlib
import re
import sqlite3
import stat
import subprocess
import threading
import time
import unittest

import cephfs

from cluster import Cluster

# An MDS that says nothing for this long is taken for dead: by default 15 s, and it says so each 4 s. Ceph's monitor counts anew whenever it has itself
# been away for so long, so must look more often, and gives an MDS up only when it has led for the last of these (a minute).
GRACE = {"mds_beacon_grace": "6", "mds_beacon_interval": "1", "mon_tick_interval": "1", "mds_beacon_mon_down_grace": "6"}
BLOCK = bytes(range(256)) * 256


def new_cluster():
    """What the MDSs run on, whose `restart` kills its daemons and starts them again."""
    if not os.environ.get("LOLIGO_REAL"):
        return Ours(osds=3, sets=[f"{name}={value}" for name, value in GRACE.items()])
    from real_ceph import RealCeph, WithOurs

    class Real(RealCeph):
        monitors = "\n".join([RealCeph.monitors, *(f"{name} = {value}" for name, value in GRACE.items())])
        store = WithOurs.BLUESTORE

        def restart(self):
            for daemon in ("mon.a", "mgr.x", *(f"osd.{n}" for n in range(3))):
                self.kill(daemon)
            self.sh("ceph-mon", "-i", "a")
            self.sh("ceph-mgr", "-i", "x")
            for n in range(3):
                self.start_osd(n)
            self.wait_up(3)

    return Real()


class Ours(Cluster):
    def restart(self):
        for file in pathlib.Path(self.dir, "run").glob("*.pid"):
            self.kill(file.stem)
        self.up()


class Mds:
    """A `ceph-mds`."""

    def __init__(self, cluster, name):
        self.cluster, self.name = cluster, name
        self.keyring, self.log = f"{cluster.dir}/mds.{name}.keyring", pathlib.Path(cluster.dir, "log", f"mds.{name}.log")
        cluster.ceph("auth", "get-or-create", f"mds.{name}", "mon", "profile mds", "osd", "allow rw tag cephfs *=*", "mds", "allow", "-o", self.keyring)
        self.start()

    def start(self):
        command = ["ceph-mds", "-f", "-i", self.name, "-k", self.keyring, "--log-to-stderr", "true", "--log-file", "", "--pid-file", "",
                   # Who tells it something is answered by what answers that socket.
                   "--admin-socket", f"{self.cluster.dir}/mds.{self.name}.asok"]
        for name, value in {**GRACE, "mds_tick_interval": "1"}.items():
            command += [f"--{name}", value]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=dict(os.environ, CEPH_CONF=self.cluster.conf, CEPH_ARGS=""))

    def kill(self):
        self.process.kill()
        self.process.wait()


class CephFS(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = c = cls.enterClassContext(new_cluster())
        cls.mounted, cls.mdss = [], {}
        for pool in ("meta", "data", "data2", "meta of second", "data of second"):
            c.ceph("osd", "pool", "create", pool, "8", "8")
        c.wait_clean()
        c.ceph("fs", "new", "cephfs", "meta", "data")
        assert c.ceph("mds", "stat").strip() == "cephfs:0"
        c.wait(lambda: "MDS_ALL_DOWN" in c.json("health")["checks"], 10, "health says that there is no MDS")
        cls.addClassCleanup(lambda: [mds.kill() for mds in cls.mdss.values()])
        cls.mdss["a"] = Mds(c, "a")
        assert cls.wait_active() == {0: "a"}
        assert c.ceph("mds", "stat").strip() == "cephfs:1 {0=a=up:active}"
        cls.mdss |= {name: Mds(c, name) for name in ("b", "c")}
        cls.wait_active(standbys=2)

    def setUp(self):
        # A call that waits for an MDS has no end of its own.
        timer = threading.Timer(180, lambda: [client.abort_conn() for client in self.mounted])
        timer.start()
        self.addCleanup(timer.cancel)

    # --- clients

    def mount(self, name="admin", root="/", fs="cephfs", keyring=None):
        """A client of its own, which is there until the end of the test."""
        client = cephfs.LibCephFS(auth_id=name, conffile=self.cluster.conf)
        for option, value in {"client_mount_timeout": "60", "admin_socket": "", "log_file": "", "keyring": keyring}.items():
            if value is not None:
                client.conf_set(option, value)
        self.addCleanup(client.shutdown)
        client.mount(mount_root=os.fsencode(root), filesystem_name=os.fsencode(fs))
        self.mounted.append(client)
        self.addCleanup(self.mounted.remove, client)
        return client

    def write(self, client, path, data, offset=0, flags="w"):
        fd = client.open(path, flags, 0o644)
        try:
            self.assertEqual(client.write(fd, data, offset), len(data))
        finally:
            client.close(fd)

    def read(self, client, path, size=1 << 26, offset=0):
        fd = client.open(path, "r")
        try:
            return client.read(fd, offset, size)
        finally:
            client.close(fd)

    def names(self, client, path):
        with client.opendir(path) as d:
            return sorted(entry.d_name.decode() for entry in iter(d.readdir, None) if entry.d_name not in (b".", b".."))

    def refused(self, code, call, *args):
        with self.assertRaises(cephfs.Error) as caught:
            call(*args)
        self.assertEqual(errno.errorcode.get(caught.exception.get_error_code(), caught.exception), errno.errorcode[code])

    # --- the file systems' state

    @classmethod
    def fs(cls, name="cephfs"):
        return next(f["mdsmap"] for f in cls.cluster.json("fs", "dump")["filesystems"] if f["mdsmap"]["fs_name"] == name)

    @classmethod
    def ranks(cls, fs="cephfs"):
        """Who has which rank, if all of them are active."""
        info = cls.fs(fs)["info"].values()
        return {i["rank"]: i["name"] for i in info} if all(i["state"] == "up:active" for i in info) else {}

    @classmethod
    def wait_active(cls, count=1, fs="cephfs", standbys=None, other_than=None):
        """Waits until so many ranks and no more are active (and none by one's name); who they are."""
        def there():
            ranks, standby = cls.ranks(fs), cls.cluster.json("fs", "dump")["standbys"]
            return len(ranks) == count and other_than not in ranks.values() and (standbys is None or len(standby) == standbys)
        cls.cluster.wait(there, 40, f"{count} active in {fs}")
        return cls.ranks(fs)

    def tell(self, who, *args):
        return json.loads(self.cluster.ceph("tell", f"mds.{who}", *args, "--format=json"))

    def fails(self, code, *args):
        """What `ceph ARGS`, which fails so, says."""
        r = self.cluster.run("ceph", *args, check=False)
        self.assertEqual(r.returncode, code, r)
        return r.stderr.decode()

    def scrubbed(self, fs="cephfs"):
        """All of a file system is scrubbed and sound."""
        self.assertEqual(self.tell(f"{fs}:0", "scrub", "start", "/", "recursive,force")["return_code"], 0)
        self.cluster.wait(lambda: self.tell(f"{fs}:0", "scrub", "status")["status"] == "no active scrubs running", 60, "scrubbed")
        self.assertEqual(self.tell(f"{fs}:0", "damage", "ls"), [])
        self.assertNotIn("MDS_DAMAGE", self.cluster.json("health")["checks"])

    # --- tests

    def test_01_new(self):
        c = self.cluster
        self.assertEqual(c.json("fs", "ls"), [{"name": "cephfs", "metadata_pool": "meta", "metadata_pool_id": c.json("fs", "get", "cephfs")["mdsmap"]["metadata_pool"],
                                              "data_pool_ids": self.fs()["data_pools"], "data_pools": ["data"]}])
        applications = {p["pool_name"]: p["application_metadata"] for p in c.json("osd", "pool", "ls", "detail")}
        self.assertEqual((applications["meta"], applications["data"]), ({"cephfs": {"metadata": "cephfs"}}, {"cephfs": {"data": "cephfs"}}))
        self.assertEqual(c.run("ceph", "fs", "new", "cephfs", "meta", "data").stderr, b"filesystem 'cephfs' already exists\n")
        self.assertEqual(self.fails(22, "fs", "new", "cephfs", "meta", "data2"), "Error EINVAL: filesystem already exists with name 'cephfs'\n")
        self.assertEqual(c.ceph("mds", "stat").strip(), "cephfs:1 {0=a=up:active} 2 up:standby")
        self.assertFalse([check for check in c.json("health")["checks"] if check.startswith(("MDS", "FS"))])
        status = c.json("-s")["fsmap"]
        gid = status["by_rank"][0].pop("gid")
        self.assertEqual({k: status[k] for k in ("up", "in", "max", "by_rank", "up:standby")},
                         {"up": 1, "in": 1, "max": 1, "by_rank": [{"filesystem_id": status["id"], "rank": 0, "name": "a", "status": "up:active"}], "up:standby": 2})
        self.assertEqual(gid, self.fs()["up"]["mds_0"])
        self.assertRegex(c.ceph("-s"), r"mds: +1/1 daemons up, 2 standby\n(.|\n)*volumes: 1/1 healthy\n")
        self.assertEqual(sorted(m["name"] for m in c.json("mds", "metadata")), ["a", "b", "c"])
        self.assertEqual(sum(c.json("mds", "versions").values()), 3)
        self.assertEqual(sum(c.json("versions")["mds"].values()), 3)

        def told():
            status = c.json("fs", "status")
            return [(m["name"], m["rank"], m["state"]) for m in status["mdsmap"] if m["state"] == "active" and m["inos"] > 10] == [("a", 0, "active")] and status
        c.wait(told, 20, "what the MDS tells of itself is in fs status")
        status = told()
        self.assertEqual(sorted(m["name"] for m in status["mdsmap"] if m["state"] == "standby"), ["b", "c"])
        self.assertEqual([(p["name"], p["type"]) for p in status["pools"]], [("meta", "metadata"), ("data", "data")])
        self.assertRegex(re.sub("\x1b\\[[0-9;]*m", "", c.ceph("fs", "status")), r"cephfs - 0 clients\n=+\nRANK +STATE +MDS(.|\n)* 0 +active +a (.|\n)*STANDBY MDS")

    def test_02_files(self):
        fs = self.mount()
        fs.mkdirs("/files/a/b", 0o755)
        self.write(fs, "/files/a/x", b"hello")
        self.assertEqual(self.read(fs, "/files/a/x"), b"hello")
        self.refused(errno.EEXIST, fs.mkdir, "/files/a", 0o755)
        self.refused(errno.ENOTEMPTY, fs.rmdir, "/files/a")
        self.refused(errno.ENOENT, fs.stat, "/files/none")
        fs.rename("/files/a/x", "/files/a/b/y")
        self.write(fs, "/files/z", b"replaced")
        fs.rename("/files/a/b/y", "/files/z")
        self.assertEqual((self.names(fs, "/files"), self.names(fs, "/files/a/b"), self.read(fs, "/files/z")), (["a", "z"], [], b"hello"))
        fs.link("/files/z", "/files/hard")
        self.assertEqual((fs.stat("/files/z").st_nlink, fs.stat("/files/z").st_ino), (2, fs.stat("/files/hard").st_ino))
        fs.unlink("/files/z")
        self.assertEqual((fs.stat("/files/hard").st_nlink, self.read(fs, "/files/hard")), (1, b"hello"))
        fs.symlink("hard", "/files/soft")
        self.assertEqual((fs.readlink("/files/soft", 100), self.read(fs, "/files/soft")), (b"hard", b"hello"))
        self.assertTrue(stat.S_ISLNK(fs.lstat("/files/soft").st_mode))
        fs.chmod("/files/hard", 0o640)
        fs.chown("/files/hard", 7, 8)
        fs.utime("/files/hard", (1000, 2000))
        s = fs.stat("/files/hard")
        self.assertEqual((stat.S_IMODE(s.st_mode), s.st_uid, s.st_gid, s.st_size, s.st_mtime.timestamp() - s.st_atime.timestamp()), (0o640, 7, 8, 5, 1000))
        for name, value in (("user.k", b"v"), ("user.big", BLOCK[:30000]), ("user.none", b"")):
            fs.setxattr("/files/hard", name, value, 0)
            self.assertEqual(fs.getxattr("/files/hard", name, 65536), value)
        fs.removexattr("/files/hard", "user.k")
        self.assertEqual(fs.listxattr("/files/hard")[1], b"user.big\0user.none\0")
        self.refused(errno.ENODATA, fs.getxattr, "/files/hard", "user.k")
        # Many, of which directories are made of several objects, and listed in several pieces.
        fs.mkdir("/files/many", 0o755)
        for n in range(1500):
            fs.close(fs.open(f"/files/many/{n:04}", "w", 0o644))
        self.assertEqual(self.names(fs, "/files/many"), [f"{n:04}" for n in range(1500)])
        self.assertEqual(fs.getxattr("/files/many", "ceph.dir.entries"), b"1500")
        for n in range(0, 1500, 2):
            fs.unlink(f"/files/many/{n:04}")
        self.assertEqual(self.names(self.mount(), "/files/many"), [f"{n:04}" for n in range(1, 1500, 2)])

    def test_03_contents(self):
        c, fs = self.cluster, self.mount()
        fs.mkdir("/contents", 0o755)
        # Of three objects.
        big = BLOCK * 150
        self.write(fs, "/contents/big", big)
        self.assertEqual(fs.stat("/contents/big").st_size, len(big))
        self.assertEqual(self.read(fs, "/contents/big", 100, (4 << 20) - 50), big[(4 << 20) - 50:(4 << 20) + 50])
        self.write(fs, "/contents/big", b"middle", (8 << 20) - 3, "r+")
        big = big[:(8 << 20) - 3] + b"middle" + big[(8 << 20) + 3:]
        fs.sync_fs()
        self.assertEqual(self.read(self.mount(), "/contents/big"), big)
        objects = [name for name in c.run("rados", "-p", "data", "ls").stdout.decode().split() if name.startswith(f"{fs.stat('/contents/big').st_ino:x}.")]
        self.assertEqual(len(objects), 3)
        # Truncated, grown again: nothing of what was.
        fs.truncate("/contents/big", 5 << 20)
        fs.truncate("/contents/big", 9 << 20)
        big = big[:5 << 20] + bytes(4 << 20)
        self.assertEqual(self.read(self.mount(), "/contents/big"), big)
        # Holes.
        self.write(fs, "/contents/sparse", b"end", 30 << 20)
        self.write(fs, "/contents/sparse", BLOCK, 10 << 20, "r+")
        fd = fs.open("/contents/sparse", "r+")
        fs.fallocate(fd, (10 << 20) + 100, 1000, cephfs.FALLOC_FL_PUNCH_HOLE | cephfs.FALLOC_FL_KEEP_SIZE)
        fs.close(fd)
        sparse = bytes(10 << 20) + BLOCK[:100] + bytes(1000) + BLOCK[1100:]
        sparse += bytes((30 << 20) - len(sparse)) + b"end"
        self.assertEqual(self.read(self.mount(), "/contents/sparse"), sparse)
        # Appended to.
        fd = fs.open("/contents/log", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)
        for n in range(100):
            fs.write(fd, b"%9d\n" % n, -1)
        fs.close(fd)
        self.assertEqual(self.read(self.mount(), "/contents/log"), b"".join(b"%9d\n" % n for n in range(100)))
        # An unlinked file is there as long as it is open, and then its objects go.
        fd = fs.open("/contents/big", "r")
        fs.unlink("/contents/big")
        self.assertEqual(fs.read(fd, 0, len(big)), big)
        fs.close(fd)
        c.wait(lambda: not set(objects) & set(c.run("rados", "-p", "data", "ls").stdout.decode().split()), 60, "objects of an unlinked file are gone")
        before = fs.statfs("/")
        self.assertGreater(before["f_blocks"] * before["f_frsize"], 1 << 30)
        self.assertGreater(before["f_bavail"], before["f_blocks"] // 2)

    def test_04_layouts(self):
        c, fs = self.cluster, self.mount()
        self.fails(2, "fs", "add_data_pool", "cephfs", "none")
        c.ceph("fs", "add_data_pool", "cephfs", "data2")
        self.assertEqual(c.json("fs", "ls")[0]["data_pools"], ["data", "data2"])
        fs.mkdir("/layouts", 0o755)
        fs.close(fs.open("/layouts/one", "w", 0o644))
        # The client has the map with the pool before it lets it be named.
        for name, value in (("pool", b"data2"), ("stripe_unit", b"65536"), ("object_size", b"131072"), ("stripe_count", b"2")):
            fs.setxattr("/layouts/one", f"ceph.file.layout.{name}", value, 0)
        self.assertEqual(fs.getxattr("/layouts/one", "ceph.file.layout", 200), b"stripe_unit=65536 stripe_count=2 object_size=131072 pool=data2")
        self.refused(errno.EINVAL, fs.setxattr, "/layouts/one", "ceph.file.layout.pool", b"meta", 0)
        self.write(fs, "/layouts/one", BLOCK * 8, flags="r+")
        fs.setxattr("/layouts", "ceph.dir.layout.pool", b"data2", 0)
        self.write(fs, "/layouts/two", b"inherited")
        fs.sync_fs()
        inos = [fs.stat(f"/layouts/{name}").st_ino for name in ("one", "two")]
        objects = c.run("rados", "-p", "data2", "ls").stdout.decode().split()
        self.assertEqual([sum(name.startswith(f"{ino:x}.") for name in objects) for ino in inos], [4, 1])
        self.assertEqual(self.read(self.mount(), "/layouts/one"), BLOCK * 8)
        fs.unlink("/layouts/one")
        fs.unlink("/layouts/two")

    def test_05_quotas(self):
        fs = self.mount()
        fs.mkdir("/quota", 0o755)
        fs.setxattr("/quota", "ceph.quota.max_files", b"5", 0)
        fs.setxattr("/quota", "ceph.quota.max_bytes", str(8 << 20).encode(), 0)
        self.assertEqual((fs.getxattr("/quota", "ceph.quota.max_files"), fs.getxattr("/quota", "ceph.quota.max_bytes")), (b"5", b"8388608"))
        self.write(fs, "/quota/f", BLOCK * 64)
        # The MDS has summed it up, and this client has been told.
        self.cluster.wait(lambda: fs.getxattr("/quota", "ceph.dir.rbytes") == b"%d" % len(BLOCK * 64), 20, "the directory's sum")
        self.refused(errno.EDQUOT, self.write, fs, "/quota/f", BLOCK * 80, 4 << 20, "r+")
        self.assertEqual(self.mount(root="/quota").statfs("/")["f_blocks"], 2)

        def fill():
            for n in range(100):
                fs.mkdir(f"/quota/{n}", 0o755)
                # What counts are the MDS's sums.
                time.sleep(0.2)
        self.refused(errno.EDQUOT, fill)
        fs.setxattr("/quota", "ceph.quota.max_files", b"0", 0)
        fs.setxattr("/quota", "ceph.quota.max_bytes", b"0", 0)
        self.write(fs, "/quota/f", BLOCK * 160)

    def test_06_snapshots(self):
        c, fs = self.cluster, self.mount()
        fs.mkdirs("/snaps/d", 0o755)
        self.write(fs, "/snaps/d/f", BLOCK * 100)
        self.write(fs, "/snaps/d/gone", b"gone")
        fs.mkdir("/snaps/.snap/one", 0o755)
        self.write(fs, "/snaps/d/f", b"new", 4 << 20, "r+")
        fs.unlink("/snaps/d/gone")
        fs.mksnap("/snaps", "two", 0o755, {"k": "v"})
        fs.truncate("/snaps/d/f", 7)
        fs.rename("/snaps/d/f", "/snaps/moved")
        new = BLOCK * 64 + b"new" + BLOCK[3:] + BLOCK * 35
        for client in (fs, self.mount()):
            self.assertEqual(self.names(client, "/snaps/.snap"), ["one", "two"])
            self.assertEqual(self.names(client, "/snaps/d/.snap"), [f"_{name}_{fs.stat('/snaps').st_ino}" for name in ("one", "two")])
            self.assertEqual((self.names(client, "/snaps/.snap/one/d"), self.names(client, "/snaps/.snap/two/d"), self.names(client, "/snaps/d")), (["f", "gone"], ["f"], []))
            self.assertEqual((self.read(client, "/snaps/.snap/one/d/f"), self.read(client, "/snaps/.snap/one/d/gone")), (BLOCK * 100, b"gone"))
            self.assertEqual((self.read(client, "/snaps/.snap/two/d/f"), self.read(client, "/snaps/moved")), (new, BLOCK[:7]))
        self.assertEqual(fs.snap_info("/snaps/.snap/two")["metadata"], {"k": "v"})
        self.refused(errno.EROFS, self.write, fs, "/snaps/.snap/one/d/f", b"x")
        fs.rmdir("/snaps/.snap/one")
        self.assertEqual((self.names(fs, "/snaps/.snap"), self.read(fs, "/snaps/.snap/two/d/f")), (["two"], new))
        c.ceph("fs", "set", "cephfs", "allow_new_snaps", "false")
        c.wait(lambda: not self.fs()["flags"] & 2, 10)
        # The MDS may have the map a moment later.
        c.wait(lambda: self.may_not_snap(fs), 10, "no new snapshots")
        c.ceph("fs", "set", "cephfs", "allow_new_snaps", "true")
        for name in self.names(fs, "/snaps/.snap"):
            fs.rmdir(f"/snaps/.snap/{name}")

    def may_not_snap(self, fs):
        try:
            fs.mkdir(f"/snaps/.snap/{time.monotonic()}", 0o755)
        except cephfs.PermissionError:
            return True
        return False

    def test_07_two_clients(self):
        a, b = self.mount(), self.mount()
        a.mkdir("/two", 0o755)
        self.assertEqual(self.names(b, "/two"), [])
        # What one has not yet written down the other sees.
        fa = a.open("/two/f", "w+", 0o644)
        a.write(fa, b"from a", 0)
        fb = b.open("/two/f", "r+")
        self.assertEqual((b.read(fb, 0, 100), b.stat("/two/f").st_size), (b"from a", 6))
        for n in range(20):
            b.write(fb, b"b%04d" % n, n * 10)
            self.assertEqual(a.read(fa, n * 10, 5), b"b%04d" % n)
            a.write(fa, b"a%04d" % n, n * 10 + 5)
            self.assertEqual(b.read(fb, n * 10, 10), b"b%04da%04d" % (n, n))
        a.ftruncate(fa, 3)
        self.assertEqual((b.fstat(fb).st_size, b.read(fb, 0, 100)), (3, b"b00"))
        a.chmod("/two/f", 0o600)
        self.assertEqual(stat.S_IMODE(b.stat("/two/f").st_mode), 0o600)
        b.rename("/two/f", "/two/g")
        self.refused(errno.ENOENT, a.stat, "/two/f")
        self.assertEqual(self.names(a, "/two"), ["g"])
        # Locks.
        a.flock(fa, 2, 1)
        self.refused(errno.EAGAIN, b.flock, fb, 2 | 4, 2)
        a.flock(fa, 8, 1)
        b.flock(fb, 2 | 4, 2)
        a.close(fa)
        b.close(fb)

    def test_08_killed(self):
        """Nothing of what a client was told to be there is lost."""
        fs, other = self.mount(), self.mount()
        fs.mkdir("/killed", 0o755)
        log, written, end = fs.open("/killed/log", "w", 0o644), [], threading.Event()
        behind = other.open("/killed/behind", "w", 0o644)
        other.write(behind, BLOCK, 0)

        def writes():
            while not end.is_set():
                n = len(written)
                fs.write(log, b"%9d\n" % n, n * 10)
                fs.fsync(log, 0)
                fs.close(fs.open(f"/killed/{n}", "w", 0o644))
                written.append(n)
        before = self.wait_active(standbys=2)[0]
        writer = threading.Thread(target=writes)
        writer.start()
        try:
            self.cluster.wait(lambda: len(written) > 50, 30)
            self.mdss[before].kill()
            self.assertNotEqual(self.wait_active(other_than=before)[0], before)
            count = len(written)
            self.cluster.wait(lambda: len(written) > count + 20, 30, "who writes goes on")
        finally:
            end.set()
            writer.join()
        self.assertGreater(self.fs()["last_failure_osd_epoch"], 0)
        new = self.mount()
        self.assertEqual(self.read(new, "/killed/log"), b"".join(b"%9d\n" % n for n in written))
        self.assertEqual(self.names(new, "/killed"), sorted(["log", "behind", *map(str, written)]))
        self.assertEqual(self.read(new, "/killed/behind"), BLOCK)
        other.close(behind)
        fs.close(log)
        self.mdss[before].start()
        self.wait_active(standbys=2)

    def test_09_ranks(self):
        c, fs = self.cluster, self.mount()
        c.ceph("fs", "set", "cephfs", "max_mds", "2")
        self.wait_active(2, standbys=1)
        self.assertRegex(c.ceph("mds", "stat"), r"^cephfs:2 \{0=.=up:active,1=.=up:active\} 1 up:standby$")
        for rank in range(2):
            fs.mkdir(f"/rank{rank}", 0o755)
            # What is empty stays where it is.
            self.write(fs, f"/rank{rank}/0", b"0")
            fs.setxattr(f"/rank{rank}", "ceph.dir.pin", str(rank).encode(), 0)

        def pinned():
            return "/rank1" in [tree["dir"]["path"] for tree in self.tell("cephfs:1", "get", "subtrees") if tree["auth_first"] == 1]
        c.wait(pinned, 30, "rank 1 has what is pinned to it")
        for rank in range(2):
            for n in range(100):
                self.write(fs, f"/rank{rank}/{n}", b"%d" % n)
        # Across the ranks.
        for n in range(10):
            fs.rename(f"/rank0/{n}", f"/rank1/from 0, {n}")
            fs.link(f"/rank1/{n}", f"/rank0/linked {n}")
        wanted = [sorted([*(str(n) for n in range(10, 100)), *(f"linked {n}" for n in range(10))]), sorted([*map(str, range(100)), *(f"from 0, {n}" for n in range(10))])]
        failed = self.ranks()[1]
        self.assertIn(f"failed mds gid {self.fs()['up']['mds_1']}", c.run("ceph", "mds", "fail", "cephfs:1").stderr.decode())
        self.assertNotEqual(self.wait_active(2, standbys=1)[1], failed)
        client = self.mount()
        self.assertEqual([self.names(client, f"/rank{rank}") for rank in range(2)], wanted)
        c.ceph("fs", "set", "cephfs", "max_mds", "1")
        self.wait_active(1, standbys=2)
        client = self.mount()
        self.assertEqual([self.names(client, f"/rank{rank}") for rank in range(2)], wanted)
        self.assertEqual([self.read(client, f"/rank0/linked {n}") for n in range(10)], [b"%d" % n for n in range(10)])

    def test_10_standby_replay(self):
        c, fs = self.cluster, self.mount()
        c.ceph("fs", "set", "cephfs", "allow_standby_replay", "true")

        def follower():
            return next((i["name"] for i in self.fs()["info"].values() if i["state"] == "up:standby-replay"), None)
        c.wait(follower, 30, "one follows")
        self.assertRegex(c.ceph("mds", "stat"), r"^cephfs:1 \{0=.=up:active\} 1 up:standby-replay 1 up:standby$")
        follows = follower()
        self.write(fs, "/followed", b"x")
        c.ceph("mds", "fail", "0")
        c.ceph("fs", "set", "cephfs", "allow_standby_replay", "false")
        self.assertEqual(self.wait_active(standbys=2), {0: follows})
        self.assertEqual(self.read(fs, "/followed"), b"x")

    def test_11_failed(self):
        c, fs = self.cluster, self.mount()
        self.write(fs, "/before", b"before")
        c.ceph("fs", "fail", "cephfs")
        self.assertEqual((self.fs()["failed"], self.fs()["info"]), ([0], {}))
        c.wait(lambda: {"FS_DEGRADED", "MDS_ALL_DOWN"} <= set(c.json("health")["checks"]), 10, "health says so")
        inspected = c.run("cephfs-journal-tool", "--rank=cephfs:0", "journal", "inspect").stdout.decode()
        self.assertIn("Overall journal integrity: OK", inspected)
        c.ceph("fs", "set", "cephfs", "joinable", "true")
        self.wait_active(standbys=2)
        self.assertEqual(self.read(fs, "/before"), b"before")
        self.write(fs, "/after", b"after")

    def test_12_evicted(self):
        c, fs, other = self.cluster, self.mount(), self.mount()
        self.write(fs, "/evicted", b"x")
        active, gid, addresses = self.wait_active()[0], fs.get_instance_id(), fs.get_addrs()
        self.assertIn(gid, [session["id"] for session in self.tell(active, "client", "ls")])
        c.ceph("tell", f"mds.{active}", "client", "evict", f"id={gid}")
        self.assertNotIn(gid, [session["id"] for session in self.tell(active, "client", "ls")])
        self.assertIn(addresses.split("/")[-1], c.ceph("osd", "blocklist", "ls"))
        self.refused(errno.ESHUTDOWN, fs.mkdir, "/evicted2", 0o755)
        self.refused(errno.ESHUTDOWN, self.write, fs, "/evicted", b"y")
        self.assertEqual(self.read(other, "/evicted"), b"x")

    def test_13_authorized(self):
        c, fs = self.cluster, self.mount()
        fs.mkdirs("/mine/deep", 0o777)
        fs.chmod("/mine", 0o777)
        self.write(fs, "/theirs", b"theirs")
        self.write(fs, "/mine/f", b"mine")
        fs.sync_fs()
        rings = {}
        for name, caps in {"reads": ["/", "r"], "mine": ["/mine", "rw"], "both": ["/", "r", "/mine", "rws"]}.items():
            rings[name] = f"{c.dir}/{name}.keyring"
            pathlib.Path(rings[name]).write_text(c.ceph("fs", "authorize", "cephfs", f"client.{name}", *caps))
        reads = self.mount("reads", keyring=rings["reads"])
        self.assertEqual((self.read(reads, "/theirs"), self.names(reads, "/mine")), (b"theirs", ["deep", "f"]))
        self.refused(errno.EACCES, self.write, reads, "/theirs", b"x")
        self.refused(errno.EACCES, reads.mkdir, "/d", 0o755)
        self.refused(errno.EPERM, self.mount, "mine", "/", "cephfs", rings["mine"])
        mine = self.mount("mine", "/mine", keyring=rings["mine"])
        self.assertEqual(self.read(mine, "/f"), b"mine")
        self.write(mine, "/f", b"more")
        self.refused(errno.EACCES, mine.mkdir, "/.snap/s", 0o755)
        self.refused(errno.EACCES, mine.setxattr, "/", "ceph.quota.max_files", b"7", 0)
        both = self.mount("both", keyring=rings["both"])
        self.write(both, "/mine/f", b"most")
        both.mkdir("/mine/.snap/s", 0o755)
        both.rmdir("/mine/.snap/s")
        self.refused(errno.EACCES, self.write, both, "/theirs", b"x")
        # Of the pools they may only what is the file system's data.
        for name, code in (("reads", 1), ("mine", 0)):
            r = c.run("rados", "--id", name, "-k", rings[name], "-p", "data", "put", "object", "/etc/hostname", check=False)
            self.assertEqual(r.returncode, code, r)
        self.assertNotEqual(c.run("rados", "--id", "mine", "-k", rings["mine"], "-p", "meta", "ls", check=False).returncode, 0)
        c.run("rados", "-p", "data", "rm", "object")
        self.assertEqual(self.read(fs, "/mine/f"), b"most")

    def test_14_second(self):
        c, fs = self.cluster, self.mount()
        c.ceph("fs", "new", "second", "meta of second", "data of second")
        self.wait_active(fs="second")
        self.wait_active(standbys=1)
        self.assertRegex(c.ceph("mds", "stat"), r"^cephfs:1 second:1 \{cephfs:0=.=up:active,second:0=.=up:active\} 1 up:standby$")
        self.write(fs, "/which", b"first")
        second = self.mount(fs="second")
        self.assertEqual(self.names(second, "/"), [])
        self.write(second, "/which", b"second")
        self.assertEqual((self.read(fs, "/which"), self.read(second, "/which")), (b"first", b"second"))
        self.scrubbed("second")
        second.shutdown()
        self.assertIn("all MDS daemons must be inactive/failed before removing filesystem", self.fails(22, "fs", "rm", "second", "--yes-i-really-mean-it"))
        c.ceph("fs", "fail", "second")
        self.assertIn("--yes-i-really-mean-it", self.fails(1, "fs", "rm", "second"))
        c.ceph("fs", "rm", "second", "--yes-i-really-mean-it")
        self.assertEqual([f["name"] for f in c.json("fs", "ls")], ["cephfs"])
        self.wait_active(standbys=2)

    def test_14_volumes(self):
        """(A real Ceph may take more than half a minute to remove one: no matter for compare.py.)"""
        c = self.cluster
        c.ceph("fs", "volume", "create", "vol")
        self.assertIn({"name": "vol"}, c.json("fs", "volume", "ls"))
        self.assertLessEqual({"cephfs.vol.meta", "cephfs.vol.data"}, set(c.json("osd", "pool", "ls")))
        self.assertIn(b"PERMANENTLY DESTROY", c.run("ceph", "fs", "volume", "rm", "vol", check=False).stderr)
        c.ceph("config", "set", "mon", "mon_allow_pool_delete", "true")
        self.assertIn(b"doesn't exist", c.run("ceph", "fs", "volume", "rm", "novol", "--yes-i-really-mean-it", check=False).stderr)
        c.ceph("fs", "volume", "rm", "vol", "--yes-i-really-mean-it")
        self.assertNotIn({"name": "vol"}, c.json("fs", "volume", "ls"))
        self.assertFalse({"cephfs.vol.meta", "cephfs.vol.data"} & set(c.json("osd", "pool", "ls")))
        self.wait_active(standbys=2)

    def test_15_restarted(self):
        c, fs = self.cluster, self.mount()
        self.write(fs, "/kept", BLOCK)
        fs.sync_fs()
        tree = self.names(fs, "/")
        for mds in self.mdss.values():
            mds.kill()
        c.restart()
        for mds in self.mdss.values():
            mds.start()
        self.wait_active(standbys=2)
        # Who was there goes on, and who comes finds all.
        self.write(fs, "/kept", b"more", len(BLOCK), "r+")
        new = self.mount()
        self.assertEqual((self.names(new, "/"), self.read(new, "/kept")), (tree, BLOCK + b"more"))
        self.assertEqual(len(self.names(new, "/files/many")), 750)

    def test_16_fuse(self):
        c, point = self.cluster, pathlib.Path(self.cluster.dir, "mounted")
        point.mkdir()
        r = c.run("ceph-fuse", "-n", "client.admin", "--client-fs", "cephfs", "--admin-socket", "", "--log-file", "", str(point), check=False)
        if not os.access("/dev/fuse", os.R_OK | os.W_OK) or b"not permitted" in r.stderr:
            self.skipTest(f"this machine does not permit FUSE: {r.stderr[-200:]}")
        self.assertEqual(r.returncode, 0, r.stderr[-2000:])
        self.addCleanup(subprocess.run, ["fusermount", "-u", "-z", str(point)])
        source = "/usr/lib/python3.11/asyncio"
        subprocess.run(["cp", "-r", source, f"{point}/tree"], check=True)
        self.assertFalse(subprocess.run(["diff", "-r", source, f"{point}/tree"], check=False, capture_output=True).stdout)
        self.assertEqual(self.names(self.mount(), "/tree"), sorted(os.listdir(source)))
        base = sqlite3.connect(f"{point}/base.db")
        base.execute("create table t (n integer primary key, v blob)")
        for n in range(10):
            with base:
                base.executemany("insert into t (v) values (?)", [(BLOCK[:n * 100],)] * 50)
        base.close()
        base = sqlite3.connect(f"{point}/base.db")
        self.assertEqual(base.execute("pragma integrity_check").fetchall() + base.execute("select count(*), sum(length(v)) from t").fetchall(), [("ok",), (500, 225000)])
        base.close()

    def test_17_scrubbed(self):
        self.scrubbed()
        self.assertFalse([check for check in self.cluster.json("health")["checks"] if check.startswith(("MDS", "FS"))])


if __name__ == "__main__":
    unittest.main()
