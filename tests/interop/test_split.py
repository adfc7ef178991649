"""A pool gets more PGs while it is written: PGs split where they lie, then the new ones move; and fewer:
PGs are put where those are that they merge into, then merge. One OSD is killed meanwhile and finishes
at its next start. Takes about 60 s."""
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

    def test_pg_num_grows_and_shrinks_under_load(self):
        """PGs did not merge: a smaller pg_num was taken for a wish and never came true."""
        with Cluster() as c:
            c.pool("p", 4)
            client = rados.Rados(conffile=c.conf)
            client.connect(timeout=30)
            io = client.open_ioctx("p")
            content = {f"o{n}": f"content {n}".encode() * 20 for n in range(100)}
            for name, data in content.items():
                io.write_full(name, data)
                io.set_xattr(name, "n", name.encode())
            io.create_snap("before")
            for n in range(0, 100, 4):
                content[f"o{n}"] = f"newer {n}".encode()
                io.write_full(f"o{n}", content[f"o{n}"])
            stop, failed = threading.Event(), []
            appended = 0

            def write():
                """Appends, too: one that is run twice, or not at all, is seen."""
                nonlocal appended
                n = 0
                try:
                    while not stop.is_set():
                        io.write_full(f"w{n % 200}", f"during {n}".encode())
                        content[f"w{n % 200}"] = f"during {n}".encode()
                        io.append("all", b"%08d" % appended)
                        appended, n = appended + 1, n + 1
                except Exception as e:  # noqa: BLE001
                    failed.append(e)

            writer = threading.Thread(target=write)
            writer.start()
            pg_num = lambda: c.json("osd", "pool", "get", "p", "pg_num")["pg_num"]  # noqa: E731
            c.ceph("osd", "pool", "set", "p", "pg_num", "16")
            c.wait(lambda: pg_num() == 16, 90, "pg_num is 16")
            c.wait_clean(120)
            c.ceph("osd", "pool", "set", "p", "pg_num", "4")
            c.wait(lambda: pg_num() < 14, 120, "PGs merge")
            c.kill("osd.1")
            before = appended
            c.wait(lambda: failed or appended > before + 20, 90, "writes go on with an OSD gone")
            c.up()
            c.wait(lambda: pg_num() == 4, 180, "pg_num is 4")
            before = appended
            c.wait(lambda: failed or appended > before + 20, 90, "writes go on")
            stop.set()
            writer.join(60)
            self.assertFalse(writer.is_alive())
            self.assertEqual(failed, [])
            c.wait_clean(120)
            self.assertEqual(len(c.json("pg", "ls-by-pool", "p")["pg_stats"]), 4)
            for name, data in content.items():
                self.assertEqual(io.read(name), data, name)
            self.assertEqual(io.read("all", 8 * appended + 8), b"".join(b"%08d" % n for n in range(appended)))
            for n in range(100):
                self.assertEqual(io.get_xattr(f"o{n}", "n"), f"o{n}".encode())
            self.assertEqual({o.key for o in io.list_objects()}, set(content) | {"all"})
            io.set_read(io.lookup_snap("before").snap_id)
            self.assertEqual(io.read("o4"), b"content 4" * 20)
            io.set_read(rados.LIBRADOS_SNAP_HEAD)
            # Copies are alike, and their counts are right.
            stats = lambda: c.json("pg", "ls-by-pool", "p")["pg_stats"]  # noqa: E731
            stamps = {p["pgid"]: p["last_deep_scrub_stamp"] for p in stats()}
            for pgid in stamps:
                c.ceph("pg", "deep-scrub", pgid)
            c.wait(lambda: all(p["last_deep_scrub_stamp"] > stamps[p["pgid"]] for p in stats()), 90, "deep scrubs")
            objects = len(content) + 1 + 25
            total = lambda: sum(p["stat_sum"]["num_objects"] for p in stats())  # noqa: E731
            c.wait(lambda: total() == objects, 60, f"{objects} objects are counted")
            io.remove_snap("before")
            c.wait(lambda: total() == objects - 25, 60, "the clones are trimmed")
            # What merged is still merged after a start from the stores.
            c.down()
            c.up()
            c.wait_clean(60)
            for name, data in content.items():
                self.assertEqual(io.read(name), data, name)
            c.wait(lambda: c.json("health")["status"] == "HEALTH_OK", 60, "health is ok")
            client.shutdown()


if __name__ == "__main__":
    unittest.main()
