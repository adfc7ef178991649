"""The byte ledger beside the kernel's own count: OSDs on loop devices, written to by unmodified clients in every way that
reaches a device differently (new objects, short and long, overwrites, parts of blocks, xattrs, omap, removals, and what a
checkpoint or a database's compaction writes). What an OSD says it has written, by cause and in all, is what the sectors of its
device say, to the byte, and the devices have been flushed. Needs loop devices (root): where there are none it says so and ends with 77. About 20 s a store."""
import os
import pathlib
import sys
import time
import unittest

import rados

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import clusters  # noqa: E402

OSDS = 2
QUIET_S = 60
WRITES = 300


class Ledger(unittest.TestCase):
    def counters(self, c, osd):
        """{counter: value} of one OSD's store."""
        return c.json("tell", f"osd.{osd}", "perf", "dump")["store"]

    def quiet(self, c, osd):
        """The ledger of an OSD and the bytes of its device's sectors, with nothing written while both were read."""
        end = time.monotonic() + QUIET_S
        while time.monotonic() < end:
            before = self.counters(c, osd)
            sectors = c.devices[osd].written()
            # What had been counted when the sectors were read has come to the device by then.
            time.sleep(0.3)
            if self.counters(c, osd)["written"] == before["written"] and c.devices[osd].written() == sectors:
                return before, sectors
        self.fail(f"osd.{osd} was written to for {QUIET_S} s by nobody")

    def load(self, c):
        c.run("rados", "-p", "data", "bench", "2", "write", "-b", "4096", "-t", "64", "--no-cleanup", "--run-name", "short")
        c.run("rados", "-p", "data", "bench", "2", "write", "-b", "1048576", "-t", "8", "--no-cleanup", "--run-name", "long")
        c.run("rados", "-p", "data", "cleanup", "--run-name", "long")
        with rados.Rados(conffile=c.conf) as cluster, cluster.open_ioctx("data") as io:
            flushed = [device.flushes() for device in c.devices]
            for n in range(WRITES):
                name = f"object{n % 40}"
                io.write(name, bytes([n % 256]) * (1 + 77 * n % 9000), 13 * n % 70000)
                io.set_xattr(name, f"x{n % 5}", b"v" * (n % 200))
                if n % 7 == 0:
                    io.trunc(name, n * 100)
            # One behind the other, each answered when it is durable: none without a flush of its own.
            flushes = [device.flushes() - before for device, before in zip(c.devices, flushed)]
            print(f"{WRITES} writes, each with an xattr behind it: flushes {flushes}")
            self.assertGreaterEqual(min(flushes), 2 * WRITES)
            with rados.WriteOpCtx() as op:
                io.set_omap(op, tuple(f"key{n}" for n in range(500)), tuple(b"value" * (n % 9) for n in range(500)))
                io.operate_write_op(op, "omap")
            for n in range(0, 40, 3):
                io.remove_object(f"object{n}")

    def one(self, store):
        with clusters.Loligo(osds=OSDS, size_gb=3, store=store) as c:
            c.pool("data", 16)
            c.ceph("osd", "pool", "set", "data", "size", str(OSDS))
            c.wait_clean()
            first = [self.quiet(c, osd) for osd in range(OSDS)]
            self.load(c)
            for osd in range(OSDS):
                c.ceph("tell", f"osd.{osd}", "compact")
            for osd, (before, sectors) in enumerate(first):
                after, last = self.quiet(c, osd)
                written = {key: after[key] - before[key] for key in after if key == "written" or key.startswith("written_")}
                total = written.pop("written")
                print(f"{store}, osd.{osd}: {total} bytes in all, by cause {({k: v for k, v in written.items() if v})}, sectors {last - sectors}")
                self.assertGreater(total, 10 << 20)
                if store != "inkstore":
                    self.assertGreater(written["written_compaction"], 0)
                self.assertEqual(sum(written.values()), total)
                self.assertEqual(last - sectors, total)

    def test_inkstore(self):
        self.one("inkstore")

    def test_bluestore(self):
        self.one("bluestore")


if __name__ == "__main__":
    if os.geteuid() != 0 or not os.path.exists("/dev/loop-control"):
        print("loop devices need root and /dev/loop-control: run this test as root")
        sys.exit(77)
    unittest.main()
