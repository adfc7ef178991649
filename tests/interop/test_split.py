"""A pool gets more PGs while it is written: PGs split where they lie, then the new ones move. One OSD is
killed when the split begins and finishes it at its next start. Takes about 25 s."""
import threading
import unittest

import rados

from cluster import Cluster


class Split(unittest.TestCase):
    def test_pg_num_grows_under_load(self):
        """`ceph osd pool set p pg_num 16` only set a target: nobody walked there. And a split was
        several transactions, none of which had the children's records: an OSD that died in the
        middle would have taken their collections for rubbish."""
        with Cluster() as c:
            c.pool("p", 4)
            client = rados.Rados(conffile=c.conf)
            client.connect(timeout=30)
            io = client.open_ioctx("p")
            for n in range(100):
                io.write_full(f"o{n}", f"content {n}".encode() * 20)
                io.set_xattr(f"o{n}", "n", str(n).encode())
            io.create_snap("before")
            for n in range(0, 100, 4):
                io.write_full(f"o{n}", f"newer {n}".encode())
            written, stop = [], threading.Event()

            def write():
                while not stop.is_set():
                    io.write_full(f"w{len(written)}", f"during {len(written)}".encode())
                    written.append(len(written))

            writer = threading.Thread(target=write)
            writer.start()
            c.ceph("osd", "pool", "set", "p", "pg_num", "16")
            c.wait(lambda: c.json("osd", "pool", "get", "p", "pg_num")["pg_num"] == 16, 60, "pg_num is 16")
            c.kill("osd.1")
            c.up()
            before = len(written)
            c.wait(lambda: len(written) > before + 20, 60, "writes go on")
            stop.set()
            writer.join(60)
            self.assertFalse(writer.is_alive())
            c.wait_clean()
            self.assertEqual(len(c.json("pg", "ls-by-pool", "p")["pg_stats"]), 16)
            for n in range(100):
                now = f"newer {n}".encode() if n % 4 == 0 else f"content {n}".encode() * 20
                self.assertEqual(io.read(f"o{n}"), now)
                self.assertEqual(io.get_xattr(f"o{n}", "n"), str(n).encode())
            for n in written:
                self.assertEqual(io.read(f"w{n}"), f"during {n}".encode())
            self.assertEqual(len(list(io.list_objects())), 100 + len(written))
            io.set_read(io.lookup_snap("before").snap_id)
            self.assertEqual(io.read("o4"), b"content 4" * 20)
            io.set_read(rados.LIBRADOS_SNAP_HEAD)
            # Scrubs count what the split could only estimate: all objects, and a clone of each of 25.
            objects = 100 + len(written) + 25
            total = lambda: sum(p["stat_sum"]["num_objects"] for p in c.json("pg", "ls-by-pool", "p")["pg_stats"])
            c.wait(lambda: total() == objects, 60, f"{objects} objects are counted")
            io.remove_snap("before")
            c.wait(lambda: total() == objects - 25, 60, "the clones are trimmed")
            client.shutdown()


if __name__ == "__main__":
    unittest.main()
