"""PGs that cannot serve: clients keep their operations (MOSDBackoff) and send them again when the PG
is active. The client is an unmodified `rados`; takes about 15 s."""
import os
import pathlib
import subprocess
import tempfile
import unittest

from cluster import Cluster


class Backoff(unittest.TestCase):
    def test_put_while_the_pg_is_below_min_size(self):
        """A write to a PG below min_size used to wait in the OSD, where it took from the bound of
        what all clients may have under way. The client is told to keep it."""
        with Cluster(osds=2, size=2) as c, tempfile.TemporaryDirectory() as tmp:
            c.pool("p", 1)
            c.ceph("osd", "pool", "set", "p", "min_size", "2")
            c.run("rados", "-p", "p", "put", "before", "-", input=b"there")
            c.kill("osd.1")
            c.wait(lambda: not c.json("osd", "dump")["osds"][1]["up"], what="osd.1 is down")
            c.wait(lambda: "peered" in c.ceph("pg", "stat"), what="the PG is peered")
            log = pathlib.Path(tmp, "client.log")
            put = subprocess.Popen(
                ["rados", "-p", "p", "put", "o", "-", "--debug-objecter=20", "--debug-ms=1",
                 f"--log-file={log}", "--log-to-stderr=false"],
                stdin=subprocess.PIPE, env=dict(os.environ, CEPH_CONF=c.conf))
            put.stdin.write(b"kept by the client")
            put.stdin.close()
            text = lambda: log.read_text(errors="replace") if log.exists() else ""
            c.wait(lambda: "osd_backoff(" in text() and "block id" in text(), what="BLOCK arrives")
            c.wait(lambda: "ack-block id" in text(), what="the client acknowledges it")
            # The OSD has nothing of it.
            self.assertEqual(c.json("tell", "osd.0", "dump_ops_in_flight")["num_ops"], 0)
            self.assertIsNone(put.poll())
            c.up()
            self.assertEqual(put.wait(60), 0, text()[-3000:])
            self.assertIn("unblock id", text())
            self.assertEqual(c.run("rados", "-p", "p", "get", "o", "-").stdout, b"kept by the client")
            c.wait_clean()


if __name__ == "__main__":
    unittest.main()
