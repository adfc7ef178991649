"""RBD mirroring between two of our clusters by Debian's `rbd-mirror`: a daemon at each side, images with a journal and by snapshots, a
planned failover and back, a side that is promoted by force and gives in. About 60 s."""
import json
import os
import subprocess
import time
import unittest

from cluster import Cluster

POOL = "images"
# What the daemons look at, more often than they would.
HASTE = ["--rbd-mirror-pool-replayers-refresh-interval=1", "--rbd-mirror-image-state-check-interval=1",
         "--rbd-mirror-sync-point-update-age=1", "--rbd-mirror-leader-heartbeat-interval=1"]


class Site:
    def __init__(self, name):
        self.name = name
        self.cluster = Cluster().__enter__()
        self.cluster.pool(POOL)
        self.rbd("pool", "init", POOL)
        self.rbd("mirror", "pool", "enable", POOL, "image", "--site-name", name)
        self.daemon = None

    def rbd(self, *args, **kw):
        return self.cluster.run("rbd", *args, **kw).stdout

    def json(self, *args):
        return json.loads(self.rbd(*args, "--format", "json"))

    def mirror(self):
        """Starts rbd-mirror."""
        log = f"--log-file={self.cluster.dir}/log/rbd-mirror.log"
        command = ["rbd-mirror", "-f", "--id", "admin", log, "--admin-socket=", *HASTE]
        self.daemon = subprocess.Popen(command, env=dict(os.environ, CEPH_CONF=self.cluster.conf),
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def state(self, image):
        """What this side says of an image."""
        r = self.cluster.run("rbd", "mirror", "image", "status", f"{POOL}/{image}", "--format", "json", check=False)
        return json.loads(r.stdout) if r.returncode == 0 else {"state": "", "description": ""}

    def replays(self, image):
        return self.state(image).get("state") == "up+replaying"

    def contents(self, image):
        return self.rbd("export", "--no-progress", f"{POOL}/{image}", "-")

    def fill(self, image, mib, pattern="rand"):
        self.rbd("bench", "--io-type", "write", "--io-size", "64K", "--io-total", f"{mib}M", "--io-pattern", pattern, f"{POOL}/{image}")

    def stop(self):
        """Stops rbd-mirror; it gives its locks back at both sides."""
        self.daemon.terminate()
        try:
            self.daemon.wait(30)
        except subprocess.TimeoutExpired:
            self.daemon.kill()
            self.daemon.wait()


def setUpModule():
    global a, b
    a, b = Site("site-a"), Site("site-b")
    token = f"{b.cluster.dir}/token"
    with open(token, "wb") as file:
        file.write(a.rbd("mirror", "pool", "peer", "bootstrap", "create", POOL))
    # The other side may say here how it is reached (it was told that permission is denied).
    b.rbd("mirror", "pool", "peer", "bootstrap", "import", "--direction", "rx-tx", POOL, token)
    for site in (a, b):
        site.mirror()


def tearDownModule():
    for site in (a, b):
        site.stop()
    for site in (a, b):
        site.cluster.__exit__(None, None, None)


def wait(condition, what, timeout=60):
    end = time.monotonic() + 4 * timeout
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"not within {4 * timeout} s: {what}; {[(s.name, s.state('journaled'), s.state('snapshots')) for s in (a, b)]}")
        time.sleep(0.3)


class Mirror(unittest.TestCase):
    def same(self, source, target, image):
        """What `source` has comes to `target`."""
        if image == "snapshots":
            source.rbd("mirror", "image", "snapshot", f"{POOL}/{image}")
        wanted = source.contents(image)
        wait(lambda: target.contents(image) == wanted, f"{image} from {source.name} to {target.name}")

    def test_1_sites_know_each_other(self):
        for here, there in ((a, b), (b, a)):
            info = here.json("mirror", "pool", "info", POOL, "--all")
            self.assertEqual(info["site_name"], here.name)
            [peer] = info["peers"]
            self.assertEqual((peer["site_name"], peer["direction"]), (there.name, "rx-tx"))
            self.assertTrue(peer["key"] and peer["mon_host"])

    def test_2_images_are_copied(self):
        # Those with snapshots wait for one that names their peers.
        wait(lambda: all(peer["mirror_uuid"] for site in (a, b) for peer in site.json("mirror", "pool", "info", POOL)["peers"]), "the daemons met")
        a.rbd("create", "--size", "32M", "--image-feature", "exclusive-lock,journaling", f"{POOL}/journaled")
        a.rbd("create", "--size", "32M", f"{POOL}/snapshots")
        a.fill("journaled", 4)
        a.fill("snapshots", 4)
        a.rbd("mirror", "image", "enable", f"{POOL}/journaled", "journal")
        a.rbd("mirror", "image", "enable", f"{POOL}/snapshots", "snapshot")
        for image in ("journaled", "snapshots"):
            wait(lambda: b.replays(image), f"{image} replays")
            self.same(a, b, image)
            a.fill(image, 2)
            self.same(a, b, image)

    def test_3_the_pool_says_who_mirrors(self):
        # rbd asks a monitor for the manager's list of services, and was told that this is not supported.
        wait(lambda: b.json("mirror", "pool", "status", POOL, "--verbose")["summary"]["health"] == "OK", "health")
        status = b.json("mirror", "pool", "status", POOL, "--verbose")
        self.assertEqual([daemon["health"] for daemon in status["daemons"]], ["OK"])
        self.assertEqual({image["name"] for image in status["images"]}, {"journaled", "snapshots"})
        self.assertIn("rbd-mirror", b.cluster.json("-s")["servicemap"]["services"])

    def test_4_over_and_back(self):
        """Image by image, and back with all of the pool at once."""
        images = ("journaled", "snapshots")
        for here, there, kind in ((a, b, "image"), (b, a, "pool")):
            names = [POOL] if kind == "pool" else [f"{POOL}/{image}" for image in images]
            for name in names:
                here.rbd("mirror", kind, "demote", name)

                def promoted():
                    # Refused until all that the other side wrote has come.
                    return there.cluster.run("rbd", "mirror", kind, "promote", name, check=False).returncode == 0
                wait(promoted, f"{name} is promoted at {there.name}")
            for image in images:
                name = f"{POOL}/{image}"
                refused = here.cluster.run("rbd", "bench", "--io-type", "write", "--io-total", "64K", name, check=False)
                self.assertNotEqual(refused.returncode, 0)
                there.fill(image, 1)
                wait(lambda: here.replays(image), f"{image} replays at {here.name}")
                self.same(there, here, image)

    def test_5_by_force_and_again(self):
        name = f"{POOL}/journaled"
        a.daemon.kill()
        a.daemon.wait()
        b.rbd("mirror", "image", "promote", "--force", name)
        b.fill("journaled", 1)
        a.fill("journaled", 1)
        # Both were written: one gives in.
        a.rbd("mirror", "image", "demote", name)
        a.mirror()
        wait(lambda: "split-brain" in a.state("journaled")["description"], "split-brain")
        a.rbd("mirror", "image", "resync", name)
        wait(lambda: a.replays("journaled"), "replays again")
        self.same(b, a, "journaled")


if __name__ == "__main__":
    unittest.main()
