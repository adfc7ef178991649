#!/usr/bin/python3
"""Placement groups whose copies are on OSDs of real Ceph 16.2 (two) and on one of ours, under a real monitor: each kind leads
some and follows in others. Written, scrubbed by both, recovered by log and by backfill after each OSD in turn was killed;
and shards of an erasure coded pool likewise."""
import os
import random
import time
import unittest

import rados

from cluster import LOLIGO
from real_ceph import WithOurs

cluster = None
PGS = 16
NAMES = 40
# So short that an OSD that was down is behind them.
SHORT_LOGS = ("osd_min_pg_log_entries", "osd_max_pg_log_entries")


class SharedPgs(unittest.TestCase):
    objects = {}
    pool = "data"
    rng = random.Random(1)
    ios = {}

    def io(self):
        """The pool, for what is done so often that a process for each would take most of the time."""
        if self.pool not in self.ios:
            client = rados.Rados(conffile=cluster.conf)
            client.connect()
            self.ios[self.pool] = client.open_ioctx(self.pool)
        return self.ios[self.pool]

    def rados(self, *args, **kw):
        return cluster.run("rados", "-p", self.pool, *args, **kw)

    def put(self, name, size):
        self.objects[name] = self.rng.randbytes(size)
        self.io().write_full(name, self.objects[name])

    def set_omap(self, name, key):
        with rados.WriteOpCtx() as op:
            self.io().set_omap(op, (key,), (b"value",))
            self.io().operate_write_op(op, name)

    def read_all(self):
        for name, data in self.objects.items():
            self.assertEqual(self.io().read(name, len(data) + 1), data, name)
        self.assertEqual(sorted(self.rados("ls").stdout.decode().split()), sorted(self.objects))

    def pgs(self):
        return cluster.json("pg", "ls-by-pool", self.pool)["pg_stats"]

    def scrub(self):
        """Each primary, of either kind, compares its copy with those of the other kind."""
        before = {pg["pgid"]: pg["last_deep_scrub_stamp"] for pg in self.pgs()}
        cluster.ceph("osd", "pool", "deep-scrub", self.pool)
        cluster.wait(lambda: all(pg["last_deep_scrub_stamp"] != before[pg["pgid"]] for pg in self.pgs()), 60, "all deep scrubbed")
        self.assertEqual([pg["pgid"] for pg in self.pgs() if pg["stat_sum"]["num_scrub_errors"] or "inconsistent" in pg["state"]], [])

    def test_0_each_kind_leads(self):
        """A primary of ours waited for ever for the answer of a real OSD that had no copy yet: it comes as `MOSDPGNotify`."""
        led = [pg["acting_primary"] for pg in self.pgs()]
        self.assertGreater(led.count(2), 0)
        self.assertGreater(len(led) - led.count(2), 0)

    def test_1_objects(self):
        for n in range(NAMES):
            self.put(f"o{n}", self.rng.choice([0, 10, 4096, 5000, 70000]))
            self.io().set_xattr(f"o{n}", "colour", b"red")
            self.set_omap(f"o{n}", "key")
        # Real primaries stood still after a write that failed: its log entry alone comes as `MOSDPGUpdateLogMissing`.
        for n in range(NAMES):
            with self.assertRaises(rados.ObjectNotFound):
                self.io().remove_object(f"nobody{n}")
        self.read_all()

    def killed(self, osd, change):
        cluster.kill_osd(osd)
        cluster.wait_up(2)
        change()
        self.read_all()
        cluster.start_osd(osd)
        cluster.wait_up(3)

    def killed_for_long(self, osd, change):
        """While more is written than a log holds."""
        number = lambda version: int(version.split("'")[1])  # noqa: E731
        known = {pg["pgid"]: number(pg["version"]) for pg in self.pgs()}

        def change_more_than_logs_hold():
            change()
            self.rados("bench", "2", "write", "-b", "8192", "-t", "16", "--no-cleanup", "--run-name", "many")
            self.rados("cleanup", "--run-name", "many")
            cluster.wait(lambda: all(number(pg["log_start"]) > known[pg["pgid"]] for pg in self.pgs()), 60, "logs begin later")
        self.killed(osd, change_more_than_logs_hold)
        cluster.wait_clean(120)

    def test_2_recovery_by_log(self):
        def change():
            for n in range(0, NAMES, 3):
                self.put(f"o{n}", self.rng.choice([5, 4096, 9000]))
                self.set_omap(f"o{n}", str(n))
            self.rados("rm", "o2")
            del self.objects["o2"]
            self.rados("rm", "nobody", check=False)
        for osd in range(3):
            self.killed(osd, change)
            cluster.wait_clean(120)
            self.put("o2", 100)
        self.read_all()

    def test_3_snapshots(self):
        old = dict(self.objects)
        self.rados("mksnap", "before")
        # Who has not heard of it yet may write as if it were not there.
        self.ios.clear()
        for n in range(0, NAMES, 2):
            self.put(f"o{n}", 5000)
        for name in ("o0", "o1", "o8"):
            self.rados("-s", "before", "get", name, os.path.join(cluster.dir, "old"))
            with open(os.path.join(cluster.dir, "old"), "rb") as f:
                self.assertEqual(f.read(), old[name])
        # Behind real primaries, which leave them to each OSD, ours had no rows of clones in its snap mapper; and real OSDs on
        # BlueStore ended when ours sent them rows.
        cluster.kill_osd(2)
        checked = cluster.run(LOLIGO, "store", "-c", cluster.conf, "--osd", "2", "fsck")
        self.assertIn(b" 0 errors", checked.stdout)
        cluster.start_osd(2)
        cluster.wait_up(3)
        cluster.wait_clean(120)
        self.scrub()
        self.rados("rmsnap", "before")
        cluster.wait(lambda: sum(pg["stat_sum"]["num_object_clones"] for pg in self.pgs()) == 0, 60, "clones trimmed")
        self.read_all()

    def test_4_backfill(self):
        """Real targets keep what they have for the primary to compare; and took questions of ours for old ones. An OSD of ours that
        had started kept its logs as long as by default, as what monitors say of that came after its PGs."""
        for name in SHORT_LOGS:
            cluster.ceph("config", "set", "osd", name, "10")
        cluster.ceph("config", "set", "osd", "osd_pg_log_trim_min", "1")
        cluster.ceph("config", "set", "osd", "osd_max_backfills", "8")
        cluster.pool("short", PGS)
        SharedPgs.pool, SharedPgs.objects = "short", {}
        for n in range(NAMES):
            self.put(f"o{n}", 3000)

        def change():
            # Objects that targets have and should not.
            for n in range(8):
                self.io().remove_object(f"o{n}")
                del self.objects[f"o{n}"]
        # The last comes back without a copy, the others with an old one.
        for osd in (2, 0, 1):
            for n in range(8):
                self.put(f"o{n}", 3000)
            self.killed_for_long(osd, change)
            # While what was removed is not there again.
            self.scrub()
        self.read_all()

    def test_5_shards(self):
        """An erasure coded pool, of packets. An OSD of ours went down when a real primary recovered a shard to it, and real primaries waited
        for its shards' writes to be readable."""
        cluster.ceph("osd", "erasure-code-profile", "set", "two", "k=2", "m=1", "technique=cauchy_good", "packetsize=64", "crush-failure-domain=osd")
        cluster.ceph("osd", "pool", "create", "shards", str(PGS // 2), str(PGS // 2), "erasure", "two")
        cluster.ceph("osd", "pool", "set", "shards", "min_size", "2")
        cluster.wait_clean()
        SharedPgs.pool, SharedPgs.objects = "shards", {}
        self.assertEqual({pg["acting_primary"] for pg in self.pgs()}, {0, 1, 2})

        def change():
            for n in range(24):
                self.put(f"o{n}", self.rng.choice([10, 5000, 20000, 70000]))
            self.rados("rm", "nobody", check=False)
        change()
        self.read_all()
        for osd in (2, 0):
            self.killed(osd, change)
            cluster.wait_clean(120)
        self.read_all()
        self.scrub()

    def test_6_backfill_of_shards(self):
        """A real target took the shard of its primary, which ours told it, for its own: it never became active."""
        for n in range(24, 40):
            self.put(f"o{n}", 9000)
        for n, osd in enumerate((2, 0, 1)):
            def change(first=8 * n):
                # What targets have and should not; it is not there again when all is scrubbed.
                for n in range(first, first + 8):
                    self.io().remove_object(f"o{n}")
                    del self.objects[f"o{n}"]
            self.killed_for_long(osd, change)
        self.read_all()
        self.scrub()

    def test_7_overwrites_of_shards(self):
        """Shards of ours told the hash of objects that had not been overwritten. Real ones tell none in such a pool, and deep scrubs counted an error
        for each."""
        cluster.ceph("config", "set", "mon", "mon_debug_no_require_bluestore_for_ec_overwrites", "true")
        cluster.ceph("osd", "pool", "set", "shards", "allow_ec_overwrites", "true")
        cluster.wait_clean()

        def change():
            for n in range(24, 36):
                old = self.objects[f"o{n}"]
                at, new = self.rng.randrange(len(old)), self.rng.randbytes(self.rng.choice([10, 5000]))
                self.rados("put", f"o{n}", "-", "--offset", str(at), input=new)
                self.objects[f"o{n}"] = old[:at] + new + old[at + len(new):]
            self.put("o1", 5000)
        change()
        for osd in (2, 0, 1):
            self.killed(osd, change)
            cluster.wait_clean(120)
        self.read_all()
        self.scrub()

    def test_8_ends_healthy(self):
        time.sleep(1)
        self.read_all()
        logs = cluster.logs(10000)
        self.assertNotIn("Caught signal", logs)
        self.assertNotIn("does not decode", logs)


if __name__ == "__main__":
    # osd.0 comes back with what it had when it is killed, osd.1 with nothing.
    with WithOurs(ours=1, store=f"{WithOurs.BLUESTORE}\n[osd.1]\n{WithOurs.MEMSTORE}") as cluster:
        cluster.pool("data", PGS)
        cluster.ceph("osd", "set", "noout")
        cluster.ceph("config", "set", "mgr", "mgr_stats_period", "1")
        # Memstores count as disks that turn; scrubs are begun in one of three seconds.
        for name, value in {"osd_recovery_sleep_hdd": 0, "osd_snap_trim_sleep_hdd": 0, "osd_max_scrubs": PGS, "osd_scrub_backoff_ratio": 0}.items():
            cluster.ceph("config", "set", "osd", name, str(value))
        unittest.main(verbosity=2, exit=False).result.wasSuccessful() or exit(1)
