"""Every storage backend under a whole cluster: data, xattrs, omap and snapshots of unmodified clients,
bytes by cause in `perf dump`, and all of it again after a kill of every OSD. Takes about 6 s a
backend."""
import os
import pathlib
import signal
import struct
import sys
import unittest

import rados

from cluster import LOLIGO, Cluster, state

# Backend, options, causes that must have grown. (memstore writes nothing until it is stopped.)
STORES = {
    "inkstore": ("inkstore", [], ["written_data", "writes"]),
    "memstore": ("memstore", [], []),
    "bluestore": ("bluestore", ["bluestore_min_alloc_size=65536"],
                  ["written_data", "written_zero_fill", "written_rocksdb_wal", "wal_omap", "wal_shared_blob"]),
    "bluestore-4k": ("bluestore", ["bluestore_min_alloc_size=4096"],
                     ["written_data", "written_rocksdb_wal", "wal_freelist", "written_bluefs_log",
                      "bluefs_slow_used_bytes"]),
    "bluestore-compressed": ("bluestore", ["bluestore_compression_mode=force", "bluestore_compression_algorithm=zstd"],
                             ["written_data", "written_padding", "compress_success_count", "bluestore_compressed"]),
    # The database on devices of its own, which are too small for all of it.
    "bluestore-db-wal": ("bluestore", ["bluestore_block_db_path=$run_dir/db.$id", "bluestore_block_db_size=4194304",
                                       "bluestore_block_db_create=true",
                                       "bluestore_block_wal_path=$run_dir/wal.$id", "bluestore_block_wal_size=2097152",
                                       "bluestore_block_wal_create=true"],
                         ["written_data", "written_rocksdb_wal", "bluefs_wal_used_bytes", "bluefs_db_used_bytes"]),
    "filestore": ("filestore", [], ["written_journal", "written_data", "written_rocksdb_wal"]),
    "filestore-leveldb": ("filestore", ["filestore_omap_backend=leveldb", "filestore_merge_threshold=-1",
                                        "filestore_split_multiple=1", "filestore_max_sync_interval=0.5",
                                        # Another place for the journals, and a queue that is often full.
                                        "osd_journal=$run_dir/journal.$id", "osd_journal_size=64",
                                        "journal_max_write_entries=3", "filestore_queue_max_ops=2"],
                          ["written_journal", "written_data", "written_rocksdb_wal"]),
    "kstore-rocksdb": ("kstore", [], ["written_rocksdb_wal", "wal_client_data", "wal_omap"]),
    "kstore-leveldb": ("kstore", ["kstore_backend=leveldb", "kstore_default_stripe_size=4096"],
                       ["written_rocksdb_wal", "wal_client_data", "wal_omap"]),
}


def contents(n):
    return bytes((n * 7 + i) % 251 for i in range(3000)) * (1 + n % 40)


def string(data):
    return struct.pack("<I", len(data)) + data


def count(ioctx):
    """200 calls of a class that are under way at once, each of which adds 1 to what the one before
    left: it reads what is queued in the store and not yet durable."""
    one = string(b"calls") + string(b"1")
    calls = [ioctx.aio_execute("counted", "numops", "add", one) for _ in range(200)]
    for call in calls:
        call.wait_for_complete_and_cb()
    answers = {call.get_return_value() for call in calls}
    if answers != {0}:
        raise AssertionError(f"calls of numops.add were answered with {answers}")


def fill(ioctx):
    """Objects, what is in them, and what a snapshot of them keeps; returns the snapshot's id."""
    for n in range(40):
        ioctx.write_full(f"object {n}", contents(n))
    ioctx.write("sparse", b"tail", 1_000_000)
    for n in range(5):
        ioctx.set_xattr("object 1", f"x{n}", b"v" * (1 + n * 1000))
    with rados.WriteOpCtx() as op:
        ioctx.set_omap(op, tuple(f"key {i:05}" for i in range(2000)), tuple(b"value %d" % i for i in range(2000)))
        ioctx.operate_write_op(op, "index")
    count(ioctx)
    ioctx.create_snap("before")
    snap = ioctx.lookup_snap("before").snap_id
    for n in range(10):
        ioctx.write(f"object {n}", b"changed", 100)
    ioctx.remove_object("object 39")
    return snap


def look(test, ioctx, snap):
    """Everything `fill` left is there."""
    # An object that only a snapshot keeps is listed, too.
    names = {o.key for o in ioctx.list_objects()} - {"object 39"}
    test.assertEqual(names, {f"object {n}" for n in range(39)} | {"sparse", "index", "counted"})
    for n in range(39):
        expected = bytearray(contents(n))
        if n < 10:
            expected[100:107] = b"changed"
        test.assertEqual(ioctx.read(f"object {n}", 1 << 20), bytes(expected), n)
    test.assertEqual(ioctx.read("sparse", 8, 999_996), b"\0\0\0\0tail")
    test.assertEqual({k: len(v) for k, v in ioctx.get_xattrs("object 1")}, {f"x{n}": 1 + n * 1000 for n in range(5)})
    with rados.ReadOpCtx() as op:
        found, _ = ioctx.get_omap_vals(op, "key 00500", "", 3)
        ioctx.operate_read_op(op, "index")
        test.assertEqual(list(found), [(f"key 00{i}", b"value %d" % i) for i in (501, 502, 503)])
    with rados.ReadOpCtx() as op:
        counted, _ = ioctx.get_omap_vals_by_keys(op, ("calls",))
        ioctx.operate_read_op(op, "counted")
        test.assertEqual(list(counted), [("calls", b"200")])
    ioctx.set_read(snap)
    for n in (0, 9, 39):
        test.assertEqual(ioctx.read(f"object {n}", 1 << 20), contents(n), n)
    ioctx.set_read(rados.LIBRADOS_SNAP_HEAD)


class Stores(unittest.TestCase):
    def one(self, name):
        store, sets, causes = STORES[name]
        with Cluster(osds=3, store=store, sets=sets) as c:
            c.pool("p", 8)
            with rados.Rados(conffile=c.conf) as cluster, cluster.open_ioctx("p") as ioctx:
                snap = fill(ioctx)
                look(self, ioctx, snap)
            if store == "memstore":
                return self.forgotten(c, snap)
            self.causes(c, causes)
            for n in range(3):
                os.kill(c.pid(f"osd.{n}"), signal.SIGKILL)
            c.up()
            c.wait_clean()
            with rados.Rados(conffile=c.conf) as cluster, cluster.open_ioctx("p") as ioctx:
                look(self, ioctx, snap)
                ioctx.write_full("after", b"the kill")
            c.down()
            c.up()
            c.wait_clean()
            with rados.Rados(conffile=c.conf) as cluster, cluster.open_ioctx("p") as ioctx:
                self.assertEqual(ioctx.read("after"), b"the kill")
                ioctx.remove_object("after")
                look(self, ioctx, snap)

    def test_space_is_given_back(self):
        """With `bdev_enable_discard` the file under an InkStore shrinks when objects are removed."""
        with Cluster(osds=1, sets=["bdev_enable_discard=true"]) as c:
            block = next(pathlib.Path(c.dir).rglob("block"))
            c.ceph("osd", "pool", "create", "p", "8")
            c.wait_clean()
            with rados.Rados(conffile=c.conf) as cluster, cluster.open_ioctx("p") as ioctx:
                for n in range(16):
                    ioctx.write_full(f"o{n}", contents(n) * 64)
                before = block.stat().st_blocks * 512
                for n in range(16):
                    ioctx.remove_object(f"o{n}")
                # The last ones are told of when a later batch is durable.
                c.wait(lambda: ioctx.write_full("more", b"more") or block.stat().st_blocks * 512 < before / 2, 60, "the file has shrunk")

    def test_a_pool_goes_while_its_snapshots_do(self):
        """Ceph's `LibRadosSnapshots` on BlueStore took OSDs down with `NoCollection`: its pool was removed while
        objects of a removed snapshot were looked for. There were none, and that was noted in a PG that was gone. Later
        what looked began again when its PG had gone."""
        with Cluster(osds=3, store="bluestore") as c:
            with rados.Rados(conffile=c.conf) as cluster:
                for n in range(40):
                    cluster.create_pool(f"p{n}")
                    with cluster.open_ioctx(f"p{n}") as ioctx:
                        for o in range(8):
                            ioctx.write_full(f"o{o}", b"before")
                        ioctx.create_snap("s")
                        for o in range(8):
                            ioctx.write_full(f"o{o}", b"after")
                        ioctx.remove_snap("s")
                    cluster.delete_pool(f"p{n}")
            for n in range(3):
                c.ceph("tell", f"osd.{n}", "version")

    def test_what_cannot_be_applied_ends_the_osd(self):
        """Found by reading: a FileStore answered a write when its journal had it, could then not apply it (here
        the object's file is none), and the OSD stayed up and read what was there before."""
        with Cluster(osds=1, store="filestore") as c:
            c.ceph("osd", "pool", "create", "p", "8")
            c.wait_clean()
            with rados.Rados(conffile=c.conf) as cluster, cluster.open_ioctx("p") as ioctx:
                ioctx.write_full("object", b"before")
                self.assertEqual(ioctx.read("object"), b"before")
                file = next(pathlib.Path(c.dir).rglob("current/*_head/**/object_*"))
                aside = file.with_name("aside")
                file.rename(aside)
                file.mkdir()
                pid = c.pid("osd.0")
                ioctx.write("object", b"behind")
                c.wait(lambda: not os.path.exists(f"/proc/{pid}") or state(pid) == "Z", 10, "osd.0 has ended")
                self.assertIn("the store fails: the store stopped after a failed write", c.logs())
                file.rmdir()
                aside.rename(file)
                c.up()
                self.assertEqual(ioctx.read("object"), b"behind")

    def causes(self, c, causes):
        """Bytes by cause, by both ways to ask; each byte has one."""
        for way in ("tell", "daemon"):
            counters = c.json(way, "osd.0", "perf", "dump")["store"]
            for cause in causes:
                self.assertGreater(counters[cause], 0, f"{cause} of {counters}")
            parts = sum(v for k, v in counters.items() if k.startswith("written_"))
            self.assertEqual(parts, counters["written"], counters)

    def forgotten(self, c, snap):
        """An OSD whose store was in memory has it again when it was stopped. One that was killed says that it has nothing any more, and when
        it is made anew gets everything from the others."""
        def served():
            c.up()
            c.wait_clean()
            with rados.Rados(conffile=c.conf) as cluster, cluster.open_ioctx("p") as ioctx:
                look(self, ioctx, snap)

        c.down()
        served()
        for n in (0, 1):
            c.kill(f"osd.{n}")
            with self.assertRaisesRegex(RuntimeError, "what it had is gone"):
                c.up()
            os.remove(f"{c.dir}/osd/{n}/type")
            fsid = pathlib.Path(c.dir, "osd", str(n), "fsid").read_text().strip()
            c.run(LOLIGO, "osd", "--mkfs", "--id", str(n), "--osd-uuid", fsid, "-c", c.conf)
            served()


for one in STORES:
    setattr(Stores, f"test_{one.replace('-', '_')}", lambda self, one=one: self.one(one))

if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
