"""Options of pools for compression, set with unmodified `ceph`, reach BlueStore: for the objects of that pool, from
the next write on, with the pool's algorithm and sizes, over a restart of the OSDs, until they are unset. About 15 s."""
import json
import os
import signal
import sys
import unittest

import rados

from cluster import Cluster

SIZE = 1 << 20
TEXT = (b"the same again, " * 64 + bytes(range(256))) * (SIZE // 1280 + 1)


class PoolCompression(unittest.TestCase):
    def counters(self, c):
        """Sums over the OSDs, asked in this process: a `ceph` each takes most of a second on a busy machine."""
        sums = {}
        with rados.Rados(conffile=c.conf) as cluster:
            for osd in range(2):
                code, out, said = cluster.osd_command(osd, json.dumps({"prefix": "perf dump", "format": "json"}), b"")
                self.assertEqual(code, 0, said)
                for name, n in json.loads(out)["store"].items():
                    sums[name] = sums.get(name, 0) + n
        return sums

    def write(self, c, pool, name):
        """Writes a megabyte twice (two replicas); how the counters grew."""
        before = self.counters(c)
        with rados.Rados(conffile=c.conf) as cluster, cluster.open_ioctx(pool) as ioctx:
            ioctx.write_full(name, TEXT[:SIZE])
            self.assertEqual(ioctx.read(name, SIZE), TEXT[:SIZE])
        after = self.counters(c)
        return {k: after[k] - before.get(k, 0) for k in after}

    def told(self, c):
        """What `ceph df detail` says of the pools, by name."""
        return {p["name"]: p["stats"] for p in c.json("df", "detail")["pools"]}

    def until(self, c, pool, wanted):
        """OSDs hear of a change with the next map: writes until they act on it."""
        n = 0

        def acts():
            nonlocal n
            n += 1
            original = self.write(c, pool, f"until {n}")["bluestore_compressed_original"]
            return original == (2 * SIZE if wanted else 0)
        c.wait(acts, what=f"{pool}: compression is {wanted}")

    def shown(self, c):
        """`ceph df detail` shows what is compressed, in which pool and to how much, over all replicas, as Ceph's does
        (the OSDs tell the manager what each pool takes)."""
        counts = self.counters(c)
        wanted = [counts["bluestore_compressed_allocated"], counts["bluestore_compressed_original"]]

        def says():
            stats = self.told(c)["squeezed"]
            return [stats["compress_bytes_used"], stats["compress_under_bytes"]] == wanted
        c.wait(says, what="df detail shows what is compressed")
        stats = self.told(c)
        plain, squeezed = stats["plain"], stats["squeezed"]
        self.assertEqual((plain["compress_bytes_used"], plain["compress_under_bytes"]), (0, 0))
        # Bytes stored are the clients', whatever they take.
        self.assertEqual((plain["stored_data"], plain["data_bytes_used"]), (SIZE, 2 * SIZE))
        self.assertEqual(squeezed["stored_data"] % SIZE, 0)
        self.assertLess(squeezed["data_bytes_used"], 2 * squeezed["stored_data"])

    def test_a_pool_is_compressed_as_it_says(self):
        with Cluster(osds=2, size=2, store="bluestore") as c:
            c.pool("plain", 4)
            c.pool("squeezed", 4)
            self.assertEqual(self.write(c, "squeezed", "before")["bluestore_compressed_original"], 0)
            c.ceph("osd", "pool", "set", "squeezed", "compression_mode", "force")
            self.assertEqual(c.json("osd", "pool", "get", "squeezed", "compression_mode")["compression_mode"], "force")
            self.until(c, "squeezed", True)
            for algorithm in ("snappy", "zlib", "zstd", "lz4"):
                c.ceph("osd", "pool", "set", "squeezed", "compression_algorithm", algorithm)
                grown = self.write(c, "squeezed", algorithm)
                self.assertEqual(grown["bluestore_compressed_original"], 2 * SIZE)
                self.assertLess(grown["bluestore_compressed_allocated"], 2 * SIZE * 0.7)
                self.assertLess(grown["written_data"], 2 * SIZE * 0.7)
            # The other pool is as it was.
            grown = self.write(c, "plain", "plain")
            self.assertEqual(grown["bluestore_compressed_original"], 0)
            self.assertGreaterEqual(grown["written_data"], 2 * SIZE)

            # Pieces of 256 KiB are cut to the largest blob, 64 KiB: a quarter of the 16 KiB pieces' number.
            def pieces(size):
                c.ceph("osd", "pool", "set", "squeezed", "compression_min_blob_size", str(size))

                def heard():
                    return self.write(c, "squeezed", f"of {size}")["compress_success_count"] == 2 * SIZE // size
                c.wait(heard, what=f"pieces of {size}")
            pieces(16 << 10)
            pieces(64 << 10)
            # What must become a hundredth stays as it is.
            c.ceph("osd", "pool", "set", "squeezed", "compression_required_ratio", "0.01")
            self.until(c, "squeezed", False)
            c.ceph("osd", "pool", "set", "squeezed", "compression_required_ratio", "0.875")
            self.until(c, "squeezed", True)
            self.shown(c)
            # OSDs that start know it from their own map.
            for n in range(2):
                os.kill(c.pid(f"osd.{n}"), signal.SIGKILL)
            c.up()
            c.wait_clean()
            self.assertEqual(self.write(c, "squeezed", "after")["bluestore_compressed_original"], 2 * SIZE)
            with rados.Rados(conffile=c.conf) as cluster, cluster.open_ioctx("squeezed") as ioctx:
                for name in ("before", "snappy", "zlib", "zstd", "lz4", "of 16384"):
                    self.assertEqual(ioctx.read(name, SIZE), TEXT[:SIZE], name)
            self.shown(c)
            c.ceph("osd", "pool", "set", "squeezed", "compression_mode", "unset")
            self.until(c, "squeezed", False)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
