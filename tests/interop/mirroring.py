"""RBD mirroring between two clusters by Debian's `rbd-mirror`: a daemon at each side, images with a journal and by snapshots, a
planned failover and back, a side that is promoted by force and gives in. Which clusters: test_mirror.py, test_mirror_ceph.py."""
import json
import os
import subprocess
import time

POOL = "images"
IMAGES = ("journaled", "snapshots")
# What the daemons look at, more often than they would.
HASTE = ["--rbd-mirror-pool-replayers-refresh-interval=1", "--rbd-mirror-image-state-check-interval=1",
         "--rbd-mirror-sync-point-update-age=1", "--rbd-mirror-leader-heartbeat-interval=1"]


class Site:
    def __init__(self, name, cluster):
        self.name = name
        self.cluster = cluster.__enter__()
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

    def contents(self, image, pool=POOL):
        """Nothing of an image that is not there."""
        return self.rbd("export", "--no-progress", f"{pool}/{image}", "-", check=False)

    def fill(self, image, mib, pattern="rand"):
        self.rbd("bench", "--io-type", "write", "--io-size", "64K", "--io-total", f"{mib}M", "--io-pattern", pattern, f"{POOL}/{image}")

    def log(self):
        """The end of what rbd-mirror says."""
        with open(f"{self.cluster.dir}/log/rbd-mirror.log", errors="replace") as file:
            return f"rbd-mirror at {self.name}:\n" + "".join(file.readlines()[-20:])

    def stop(self):
        """Stops rbd-mirror; it gives its locks back at both sides."""
        self.daemon.terminate()
        try:
            self.daemon.wait(30)
        except subprocess.TimeoutExpired:
            self.daemon.kill()
            self.daemon.wait()


def paths(value, at=""):
    """The keys of JSON, at every depth."""
    if isinstance(value, dict):
        return {key for name in value for key in {f"{at}.{name}"} | paths(value[name], f"{at}.{name}")}
    if isinstance(value, list):
        return {key for one in value for key in paths(one, at + "[]")}
    return set()


class Mirroring:
    """Tests, in order, of `a` and `b`, which begin as clusters and become sites."""

    @classmethod
    def setUpClass(cls):
        cls.a, cls.b = Site("site-a", cls.a), Site("site-b", cls.b)
        token = f"{cls.b.cluster.dir}/token"
        with open(token, "wb") as file:
            file.write(cls.a.rbd("mirror", "pool", "peer", "bootstrap", "create", POOL))
        # The other side may say here how it is reached (it was told that permission is denied).
        cls.b.rbd("mirror", "pool", "peer", "bootstrap", "import", "--direction", "rx-tx", POOL, token)
        for site in (cls.a, cls.b):
            site.mirror()

    @classmethod
    def tearDownClass(cls):
        for site in (cls.a, cls.b):
            site.stop()
        for site in (cls.a, cls.b):
            site.cluster.__exit__(None, None, None)

    def wait(self, condition, what, timeout=60):
        end = time.monotonic() + 4 * timeout
        while not condition():
            if time.monotonic() > end:
                states = [(site.name, *(site.state(image) for image in IMAGES)) for site in (self.a, self.b)]
                logs = "\n".join(site.log() for site in (self.a, self.b))
                raise AssertionError(f"not within {4 * timeout} s: {what}; {states}\n{logs}")
            time.sleep(0.3)

    def same(self, source, target, image):
        """What `source` has comes to `target`."""
        if image == "snapshots":
            source.rbd("mirror", "image", "snapshot", f"{POOL}/{image}")
        wanted = source.contents(image)
        self.assertTrue(wanted)
        self.wait(lambda: target.contents(image) == wanted, f"{image} from {source.name} to {target.name}")

    def test_1_sites_know_each_other(self):
        for here, there in ((self.a, self.b), (self.b, self.a)):
            info = here.json("mirror", "pool", "info", POOL, "--all")
            self.assertEqual(info["site_name"], here.name)
            [peer] = info["peers"]
            self.assertEqual((peer["site_name"], peer["direction"]), (there.name, "rx-tx"))
            self.assertTrue(peer["key"] and peer["mon_host"])

    def test_2_images_are_copied(self):
        a, b = self.a, self.b
        # Those with snapshots wait for one that names their peers.
        self.wait(lambda: all(peer["mirror_uuid"] for site in (a, b) for peer in site.json("mirror", "pool", "info", POOL)["peers"]), "the daemons met")
        a.rbd("create", "--size", "32M", "--image-feature", "exclusive-lock,journaling", f"{POOL}/journaled")
        a.rbd("create", "--size", "32M", f"{POOL}/snapshots")
        a.fill("journaled", 4)
        a.fill("snapshots", 4)
        a.rbd("mirror", "image", "enable", f"{POOL}/journaled", "journal")
        a.rbd("mirror", "image", "enable", f"{POOL}/snapshots", "snapshot")
        for image in IMAGES:
            self.same(a, b, image)
            a.fill(image, 2)
            self.same(a, b, image)

    def test_3_the_pool_says_who_mirrors(self):
        a, b = self.a, self.b

        def status(site):
            return site.json("mirror", "pool", "status", POOL, "--verbose")
        # rbd asks a monitor for the manager's list of services, and was told that this is not supported.
        for site in (a, b):
            self.wait(lambda: status(site)["summary"]["health"] == "OK", f"health at {site.name}")
            self.assertEqual([daemon["health"] for daemon in status(site)["daemons"]], ["OK"])
            self.assertEqual({image["name"] for image in status(site)["images"]}, set(IMAGES))
            self.assertIn("rbd-mirror", site.cluster.json("-s")["servicemap"]["services"])
        # An image counts as stopped where its daemon's first word was dropped, as the image was still being made: half a minute, as in Ceph.
        for site in (a, b):
            self.assertNotIn("error", status(site)["summary"]["states"])

        def shape(site):
            return {path for path in paths(status(site)) if not path.startswith(".summary.states")}
        self.assertEqual(shape(a), shape(b))

    def test_4_over_and_back(self):
        """Image by image, and back with all of the pool at once."""
        a, b = self.a, self.b
        for here, there, kind in ((a, b, "image"), (b, a, "pool")):
            names = [POOL] if kind == "pool" else [f"{POOL}/{image}" for image in IMAGES]
            for name in names:
                here.rbd("mirror", kind, "demote", name)

                def promoted():
                    # Refused until all that the other side wrote has come.
                    return there.cluster.run("rbd", "mirror", kind, "promote", name, check=False).returncode == 0
                self.wait(promoted, f"{name} is promoted at {there.name}")
            for image in IMAGES:
                name = f"{POOL}/{image}"
                # A `bench` that is refused leaves its watch, which snapshots then wait for.
                refused = here.cluster.run("rbd", "resize", "--no-progress", "--size", "64M", name, check=False)
                self.assertIn(b"Read-only file system", refused.stderr)
                there.fill(image, 1)
                self.same(there, here, image)

    def test_5_by_force_and_again(self):
        """What both sides wrote."""
        a, b = self.a, self.b
        a.daemon.kill()
        a.daemon.wait()
        for name in (f"{POOL}/{image}" for image in IMAGES):
            b.rbd("mirror", "image", "promote", "--force", name)
            image = name.split("/")[1]
            b.fill(image, 1)
            # More: two `bench` that begin in one second write the same. Then nothing showed whether one had given in,
            # and the image was removed before it had, upon which rbd-mirror keeps the copy for good, of real Cephs, too.
            a.fill(image, 2)
            self.assertNotEqual(a.contents(image), b.contents(image))
            # Both were written: one gives in.
            a.rbd("mirror", "image", "demote", name)
        a.mirror()
        for image in IMAGES:
            self.wait(lambda: "split-brain" in a.state(image)["description"], f"split-brain of {image}")
            a.rbd("mirror", "image", "resync", f"{POOL}/{image}")
        for image in IMAGES:
            self.same(b, a, image)
