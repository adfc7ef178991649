"""kill -9 of any daemon, and of all at once, at random moments under load: what was acknowledged
is there afterwards, whole. LOLIGO_KILL_ROUNDS (default 50) rounds; the seed is printed."""
import hashlib
import os
import random
import threading
import time
import unittest

import rados

from cluster import Cluster

ROUNDS = int(os.environ.get("LOLIGO_KILL_ROUNDS", "50"))
SEED = int(os.environ.get("LOLIGO_KILL_SEED", str(random.randrange(1 << 32))))
DAEMONS = ["osd.0", "osd.1", "osd.2", "mon.a", "mgr.x"]


def content(name, version):
    """What version `version` of object `name` holds: 1 byte to 70 kB, from its name alone."""
    seed = f"{name}/{version}".encode()
    size = int.from_bytes(hashlib.sha256(seed).digest()[:4], "little") % 70000 + 1
    block = hashlib.sha512(seed).digest()
    return (block * (size // len(block) + 1))[:size]


class Writer(threading.Thread):
    """Writes objects over and over, one at a time, and remembers what was acknowledged."""

    def __init__(self, conf, number):
        super().__init__(daemon=True)
        self.client = rados.Rados(conffile=conf)
        self.client.connect(timeout=30)
        self.ioctx = self.client.open_ioctx("kill")
        self.number, self.stopping, self.error = number, False, None
        self.acked, self.tried = {}, {}

    def run(self):
        version = 0
        try:
            while not self.stopping:
                version += 1
                name = f"w{self.number}-{version % 40}"
                self.tried[name] = version
                self.ioctx.write_full(name, content(name, version))
                self.acked[name] = version
        except Exception as e:
            self.error = e


class Kill(unittest.TestCase):
    def test_acknowledged_writes_survive(self):
        self.rounds(ROUNDS)

    def test_also_of_osds_that_share_a_process(self):
        """osd.0 and osd.1 hand each other what they say, and die together; osd.2 is alone."""
        self.rounds(ROUNDS // 10, osds_per_process=2)

    def rounds(self, rounds, **options):
        print(f"seed {SEED}, {rounds} rounds {options}", flush=True)
        rng = random.Random(SEED)
        with Cluster(**options) as cluster:
            cluster.pool("kill", 16)
            writers = [Writer(cluster.conf, n) for n in range(4)]
            for w in writers:
                w.start()
            for round_number in range(rounds):
                time.sleep(rng.uniform(0.05, 0.8))
                victims = DAEMONS if rng.random() < 0.2 else [rng.choice(DAEMONS)]
                # Of those that share a process the first one's kill is the others', too.
                pids = {cluster.pid(v): v for v in reversed(victims)}
                for v in reversed(pids.values()):
                    cluster.kill(v)
                time.sleep(rng.uniform(0, 0.3))
                cluster.up()
                self.progress(writers, cluster, f"round {round_number}: killed {victims}")
            for w in writers:
                w.stopping = True
            for w in writers:
                w.join(60)
                self.assertFalse(w.is_alive(), "a write hangs")
                self.assertIsNone(w.error)
            cluster.wait_clean()
            self.check(writers)

    def progress(self, writers, cluster, what):
        """Writes go on after each round."""
        before = [len(w.acked) and max(w.acked.values()) for w in writers]
        end = time.monotonic() + 60
        for w, b in zip(writers, before):
            while max(w.acked.values(), default=0) <= b:
                self.assertIsNone(w.error, what)
                self.assertLess(time.monotonic(), end, f"no write for 60 s after {what}\n{cluster.ceph('-s')}\n{cluster.logs()}")
                time.sleep(0.01)

    def check(self, writers):
        count = 0
        for w in writers:
            for name, acked in w.acked.items():
                got = w.ioctx.read(name, 80000)
                possible = range(acked, w.tried[name] + 1)
                self.assertTrue(any(got == content(name, v) for v in possible),
                                f"{name}: acknowledged version {acked} is lost (tried {w.tried[name]}), {len(got)} bytes read")
                count += 1
        print(f"{count} objects intact, {sum(max(w.acked.values()) for w in writers)} writes acknowledged")


if __name__ == "__main__":
    unittest.main(verbosity=2)
