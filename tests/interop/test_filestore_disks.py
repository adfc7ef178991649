"""FileStore on XFS, ext4 and btrfs, each on a loop device: everything is there after OSDs were killed under writes;
on btrfs commits are snapshots, and what is in `current` at a crash does not matter at all. Root only (told and
failed, not skipped, where that is not so or a mkfs is missing). About 15 s a file system."""
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

import rados

from cluster import LOLIGO, Cluster
from test_stores import fill, look

MKFS = {"xfs": ["mkfs.xfs", "-q"], "ext4": ["mkfs.ext4", "-q"], "btrfs": ["mkfs.btrfs", "-q"]}
OSDS = 2


class Disk:
    """A file system of its own in a temporary folder."""

    def __init__(self, kind):
        self.kind = kind

    def __enter__(self):
        if os.geteuid() != 0:
            raise AssertionError("mounting a loop device needs root: run this test as root")
        if not shutil.which(MKFS[self.kind][0]):
            raise AssertionError(f"{MKFS[self.kind][0]} is not installed (xfsprogs, e2fsprogs, btrfs-progs)")
        self.dir = tempfile.mkdtemp(prefix=f"loligo-disk-{self.kind}-")
        image, self.mount = f"{self.dir}/image", f"{self.dir}/mount"
        os.mkdir(self.mount)
        with open(image, "wb") as file:
            file.truncate(2 << 30)
        subprocess.run(MKFS[self.kind] + [image], check=True)
        subprocess.run(["mount", "-t", self.kind, "-o", "loop", image, self.mount], check=True)
        return self.mount

    def __exit__(self, *_):
        subprocess.run(["umount", self.mount], check=True)
        shutil.rmtree(self.dir)


class Disks(unittest.TestCase):
    def one(self, kind, sets=(), snapshots=False):
        sets = ["osd_journal_size=64", "filestore_max_sync_interval=0.2", *sets]
        with Disk(kind) as mount, unittest.mock.patch.object(tempfile, "tempdir", mount):
            # Everything of the cluster lies on the disk.
            with Cluster(osds=OSDS, size=OSDS, store="filestore", osd_size="512M", sets=sets) as c:
                self.live(c, snapshots)

    def live(self, c, snapshots):
        folders = sorted(pathlib.Path(c.dir, "osd").iterdir())
        self.assertEqual(len(folders), OSDS)

        def stores():
            return [c.json("tell", f"osd.{n}", "perf", "dump")["store"] for n in range(OSDS)]
        c.pool("p", 8)
        with rados.Rados(conffile=c.conf) as cluster, cluster.open_ioctx("p") as ioctx:
            snap = fill(ioctx)
            look(self, ioctx, snap)
        c.wait(lambda: all(s["commits"] > 0 for s in stores()), what="commits")
        for store in stores():
            self.assertEqual(store["snapshots"] > 0, snapshots, store)
        for osd in folders:
            self.assertEqual(bool(list(osd.glob("snap_*"))), snapshots, osd)
        # What was answered before a kill is there, whatever has been committed of it.
        acked = {}
        for turn in range(3):
            with rados.Rados(conffile=c.conf) as cluster, cluster.open_ioctx("p") as ioctx:
                for n in range(60):
                    name, data = f"turn {n % 20}", bytes([turn + 1, n]) * 700
                    ioctx.write_full(name, data)
                    acked[name] = data
            for n in range(OSDS):
                c.kill(f"osd.{n}")
            if snapshots:
                for osd in folders:
                    self.spoil(osd / "current")
            c.up()
            c.wait_clean()
            with rados.Rados(conffile=c.conf) as cluster, cluster.open_ioctx("p") as ioctx:
                for name, data in acked.items():
                    self.assertEqual(ioctx.read(name, 4096), data, (turn, name))
        with rados.Rados(conffile=c.conf) as cluster, cluster.open_ioctx("p") as ioctx:
            for name in acked:
                ioctx.remove_object(name)
            look(self, ioctx, snap)
        c.down()
        for n in range(OSDS):
            fsck = subprocess.run([LOLIGO, "store", "--dir", c.dir, "--osd", str(n), "fsck", "--deep"],
                                  capture_output=True, text=True, timeout=120)
            self.assertEqual(fsck.returncode, 0, fsck.stdout + fsck.stderr)

    def spoil(self, current):
        """What a crash may leave of what came after the last snapshot, at its worst: everything else."""
        for path in current.iterdir():
            if path.name.endswith("_head"):
                shutil.rmtree(path)
        (current / "commit_op_seq").write_bytes(b"torn")
        for path in (current / "omap").iterdir():
            if path.is_file():
                path.write_bytes(b"torn")

    def test_xfs(self):
        self.one("xfs")

    def test_ext4(self):
        self.one("ext4")

    def test_btrfs(self):
        self.one("btrfs", snapshots=True)

    def test_btrfs_with_the_journal_written_ahead(self):
        self.one("btrfs", sets=["filestore_journal_writeahead=true"], snapshots=True)

    def test_btrfs_without_snapshots(self):
        self.one("btrfs", sets=["filestore_btrfs_snap=false"])


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
