"""Debian's `rbd` 16.2: images, snapshots, clones, copies, exports, trash, groups, namespaces,
mirroring, migration and the rest, each with its effect checked. About 50 s."""
import json
import os
import pathlib
import random
import subprocess
import tempfile
import unittest

from cluster import Cluster

MIB = 1 << 20


def setUpModule():
    global cluster, tmp
    cluster = Cluster().__enter__()
    tmp = tempfile.TemporaryDirectory()
    for pool in ("rbd", "other"):
        cluster.pool(pool)
        rbd("pool", "init", pool)


def tearDownModule():
    tmp.cleanup()
    cluster.__exit__(None, None, None)


def rbd(*args, check=True, input=None):
    """`rbd ARGS`: standard output, or the finished process if it may fail."""
    r = cluster.run("rbd", *args, check=check, input=input)
    return r.stdout.decode() if check else r


def parsed(*args):
    return json.loads(rbd(*args, "--format", "json"))


def path(name, data=None):
    p = pathlib.Path(tmp.name, name)
    if data is not None:
        p.write_bytes(data)
    return str(p)


def content(image):
    return cluster.run("rbd", "export", "--no-progress", image, "-").stdout


def create(name, data=None, size=8 * MIB, *more):
    """An image with `data` at its start."""
    if data is None:
        rbd("create", "--size", f"{size}B", name, *more)
        return b""
    data = data.ljust(size, b"\0")
    rbd("import", "--no-progress", *more, "-", name, input=data)
    return data


class Images(unittest.TestCase):
    def test_life(self):
        create("life")
        info = parsed("info", "life")
        self.assertEqual((info["size"], info["order"], info["format"]), (8 * MIB, 22, 2))
        self.assertEqual(info["features"], ["layering", "exclusive-lock", "object-map", "fast-diff",
                                            "deep-flatten"])
        self.assertIn("life", parsed("ls"))
        self.assertEqual(rbd("create", "--size", "1M", "life", check=False).returncode, 17)
        rbd("resize", "--no-progress", "--size", "20M", "life")
        refused = rbd("resize", "--size", "4M", "life", check=False)
        self.assertEqual(refused.returncode, 22)
        rbd("resize", "--no-progress", "--allow-shrink", "--size", "4M", "life")
        self.assertEqual(parsed("info", "life")["size"], 4 * MIB)
        rbd("rename", "life", "death")
        self.assertEqual(rbd("info", "life", check=False).returncode, 2)
        rbd("rm", "--no-progress", "death")
        self.assertEqual(rbd("rm", "death", check=False).returncode, 2)

    def test_features(self):
        create("feat", None, 8 * MIB, "--image-feature", "layering")
        rbd("feature", "enable", "feat", "exclusive-lock", "object-map", "fast-diff")
        self.assertEqual(parsed("info", "feat")["flags"], ["object map invalid",
                                                           "fast diff invalid"])
        rbd("object-map", "rebuild", "--no-progress", "feat")
        self.assertEqual(parsed("info", "feat")["flags"], [])
        rbd("object-map", "check", "--no-progress", "feat")
        rbd("feature", "enable", "feat", "journaling")
        rbd("bench", "--io-type", "write", "--io-size", "64K", "--io-total", "2M", "feat")
        self.assertIn("journal", rbd("journal", "info", "--image", "feat"))
        rbd("journal", "status", "--image", "feat")
        rbd("journal", "inspect", "--image", "feat")
        rbd("journal", "export", "--image", "feat", "--path", path("journal"))
        rbd("journal", "reset", "--image", "feat")
        rbd("feature", "disable", "feat", "journaling")
        rbd("feature", "disable", "feat", "fast-diff", "object-map")
        self.assertNotEqual(rbd("feature", "disable", "feat", "layering", check=False).returncode, 0)

    def test_striping_and_data_pool(self):
        create("wide", os.urandom(3 * MIB), 8 * MIB, "--object-size", "1M", "--stripe-unit", "64K",
               "--stripe-count", "4", "--data-pool", "other")
        info = parsed("info", "wide")
        self.assertEqual((info["stripe_unit"], info["stripe_count"]), (65536, 4))
        self.assertEqual(info["data_pool"], "other")
        self.assertTrue(info["block_name_prefix"].startswith("rbd_data."))

    def test_format_1(self):
        os.environ["RBD_FORCE_ALLOW_V1"] = "1"
        self.addCleanup(os.environ.pop, "RBD_FORCE_ALLOW_V1")
        data = create("old", os.urandom(MIB), 8 * MIB, "--image-format", "1")
        rbd("snap", "create", "--no-progress", "old@a")
        rbd("snap", "create", "--no-progress", "old@b")
        rbd("snap", "rename", "old@b", "old@c")
        self.assertEqual([s["name"] for s in parsed("snap", "ls", "old")], ["a", "c"])
        rbd("snap", "rm", "--no-progress", "old@a")
        self.assertEqual(content("old@c"), data)
        rbd("snap", "purge", "--no-progress", "old")
        rbd("rm", "--no-progress", "old")

    def test_status_locks_watchers(self):
        create("locked", None, 8 * MIB, "--image-feature", "layering")
        self.assertEqual(parsed("status", "locked"), {"watchers": []})
        rbd("lock", "add", "locked", "me")
        locks = parsed("lock", "ls", "locked")
        self.assertEqual([lock["id"] for lock in locks], ["me"])
        self.assertEqual(rbd("lock", "add", "locked", "you", check=False).returncode, 16)
        rbd("lock", "rm", "locked", "me", locks[0]["locker"])
        self.assertEqual(parsed("lock", "ls", "locked"), [])

    def test_watch(self):
        create("watched")
        watch = subprocess.Popen(["rbd", "watch", "watched"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                 env=dict(os.environ, CEPH_CONF=cluster.conf))
        self.addCleanup(watch.kill)
        cluster.wait(lambda: parsed("status", "watched")["watchers"], 60, "the watch")
        rbd("snap", "create", "--no-progress", "watched@s")
        # Each notify is acknowledged by the watcher before the command above goes on.
        said, _ = watch.communicate(b"\n", timeout=60)
        self.assertEqual(watch.returncode, 0)
        self.assertIn(b"notify_op=HeaderUpdate", said)

    def test_journal_import_and_disconnect(self):
        """What a writer left in its journal when it died can be put into another image's journal
        and exported from there; whoever opens the image next replays it."""
        features = ("--image-feature", "layering,exclusive-lock,journaling")
        create("journaled", None, 8 * MIB, *features)
        data = os.urandom(MIB)
        writer = f"""
import os, rados, rbd
c = rados.Rados(conffile={cluster.conf!r}); c.connect()
image = rbd.Image(c.open_ioctx("rbd"), "journaled")
image.write(open({path("left-behind", data)!r}, "rb").read(), 0)
image.flush()
os._exit(0)
"""
        subprocess.run(["/usr/bin/python3", "-c", writer], check=True, timeout=120)
        rbd("journal", "export", "--image", "journaled", "--path", path("journal-left"))
        # On a real Ceph, too, one import of five never ends: `rbd` waits for itself.
        for attempt in range(10):
            name = f"replayed-{attempt}"
            create(name, None, 8 * MIB, *features)
            done = cluster.run("timeout", "20", "rbd", "journal", "import", "--dest", name, "--path",
                               path("journal-left"), check=False)
            if done.returncode != 124:
                break
        self.assertEqual(done.returncode, 0, done.stderr)
        rbd("journal", "export", "--image", name, "--path", path("journal-again"))
        # The first line names the journal; the second entry on has what was written.
        first, again = (pathlib.Path(path(file)).read_bytes().split(b"\n")[1:] for file in ("journal-left", "journal-again"))
        self.assertGreater(sum(map(len, first)), MIB)
        self.assertEqual(len(first), len(again))
        # The image's own client is none that can be disconnected.
        self.assertEqual(rbd("journal", "client", "disconnect", "--image", name, check=False).returncode, 2)
        clients = parsed("journal", "status", "--image", name)["registered_clients"]
        self.assertEqual([client["id"] for client in clients], [""])
        rbd("snap", "create", "--no-progress", "journaled@s")
        self.assertEqual(content("journaled"), data.ljust(8 * MIB, b"\0"))

    def test_metadata_and_config(self):
        create("meta")
        rbd("image-meta", "set", "meta", "k", "v")
        self.assertEqual(rbd("image-meta", "get", "meta", "k").strip(), "v")
        self.assertEqual(parsed("image-meta", "ls", "meta"), {"k": "v"})
        rbd("image-meta", "rm", "meta", "k")
        self.assertEqual(rbd("image-meta", "rm", "meta", "k", check=False).returncode, 2)
        for level, name in (("global", "global"), ("pool", "rbd"), ("image", "meta")):
            rbd("config", level, "set", name, "rbd_cache", "false")
            self.assertEqual(rbd("config", level, "get", name, "rbd_cache").strip(), "false")
            rbd("config", level, "ls", name)
            rbd("config", level, "rm", name, "rbd_cache")

    def test_bench(self):
        create("bench")
        for kind in ("write", "read", "readwrite"):
            out = rbd("bench", "--io-type", kind, "--io-size", "16K", "--io-total", "1M",
                      "--io-pattern", "rand", "bench")
            self.assertIn("ops/sec", out)

    def test_du_diff_sparsify(self):
        create("du", b"x" * MIB)
        self.assertEqual(parsed("du", "du")["images"][0]["provisioned_size"], 8 * MIB)
        diff = parsed("diff", "du")
        self.assertEqual(diff[0]["offset"], 0)
        with open(path("zeros"), "wb") as f:
            f.truncate(8 * MIB)
        rbd("snap", "create", "--no-progress", "du@s")
        rbd("snap", "rm", "--no-progress", "du@s")
        rbd("sparsify", "--no-progress", "--sparse-size", "64K", "du")
        self.assertEqual(content("du")[:MIB], b"x" * MIB)

    def test_encryption(self):
        for kind in ("luks1", "luks2"):
            create(kind, None, 32 * MIB)
            rbd("encryption", "format", kind, kind, path("pass", b"secret"))
            self.assertTrue(content(kind).startswith(b"LUKS\xba\xbe\0" + bytes([int(kind[-1])])))

    def test_pool_stats(self):
        stats = parsed("pool", "stats", "other")
        self.assertEqual(stats["trash"]["count"], 0)


class Snapshots(unittest.TestCase):
    def test_snapshots(self):
        one = create("snap", b"one")
        rbd("snap", "create", "--no-progress", "snap@a")
        rbd("bench", "--io-type", "write", "--io-size", "4K", "--io-total", "4K",
            "--io-threads", "1", "snap")
        self.assertNotEqual(content("snap"), one)
        self.assertEqual(content("snap@a"), one)
        rbd("snap", "rollback", "--no-progress", "snap@a")
        self.assertEqual(content("snap"), one)
        rbd("snap", "limit", "set", "--limit", "1", "snap")
        self.assertEqual(rbd("snap", "create", "snap@b", check=False).returncode, 122)
        rbd("snap", "limit", "clear", "snap")
        rbd("snap", "create", "--no-progress", "snap@b")
        rbd("snap", "rename", "snap@b", "snap@c")
        rbd("snap", "protect", "snap@c")
        self.assertEqual([(s["name"], s["protected"]) for s in parsed("snap", "ls", "snap")],
                         [("a", "false"), ("c", "true")])
        self.assertEqual(rbd("snap", "rm", "snap@c", check=False).returncode, 16)
        self.assertEqual(rbd("rm", "snap", check=False).returncode, 39)
        rbd("snap", "unprotect", "snap@c")
        rbd("snap", "purge", "--no-progress", "snap")
        self.assertEqual(parsed("snap", "ls", "snap"), [])

    def test_snapshots_read_from_any_copy(self):
        """It did not end (`rbd/read-flags.sh` of Ceph's own suite)."""
        data = create("copies", b"from any copy" * 600_000, 8 * MIB, "--image-feature", "layering")
        rbd("snap", "create", "--no-progress", "copies@s")
        for how in ("--rbd-balance-snap-reads", "--rbd-localize-snap-reads"):
            read = cluster.run("rbd", "export", "--no-progress", how, "copies@s", "-").stdout
            self.assertEqual(read, data)

    def test_clones(self):
        data = create("parent", os.urandom(5 * MIB))
        rbd("snap", "create", "--no-progress", "parent@s")
        refused = rbd("clone", "parent@s", "first", "--rbd-default-clone-format", "1", check=False)
        self.assertEqual(refused.returncode, 22)
        rbd("snap", "protect", "parent@s")
        rbd("clone", "parent@s", "first", "--rbd-default-clone-format", "1")
        rbd("clone", "parent@s", "other/second", "--rbd-default-clone-format", "2")
        children = {(c["pool"], c["image"]) for c in parsed("children", "parent@s")}
        self.assertEqual(children, {("rbd", "first"), ("other", "second")})
        self.assertEqual(rbd("snap", "unprotect", "parent@s", check=False).returncode, 16)
        self.assertEqual(parsed("info", "first")["parent"]["image"], "parent")
        for clone in ("first", "other/second"):
            self.assertEqual(content(clone), data)
            rbd("bench", "--io-type", "write", "--io-size", "4K", "--io-total", "8K",
                "--io-threads", "1", clone)
            self.assertEqual(content(clone)[8192:], data[8192:])
            rbd("flatten", "--no-progress", clone)
            self.assertNotIn("parent", parsed("info", clone))
            self.assertEqual(content(clone)[8192:], data[8192:])
        rbd("snap", "unprotect", "parent@s")
        # A clone of the second kind keeps its snapshot in the trash.
        rbd("clone", "parent@s", "third", "--rbd-default-clone-format", "2")
        rbd("snap", "rm", "--no-progress", "parent@s")
        trashed = parsed("snap", "ls", "--all", "parent")
        self.assertEqual([s["namespace"]["type"] for s in trashed], ["trash"])
        self.assertEqual(content("third"), data)
        rbd("rm", "--no-progress", "third")
        self.assertEqual(parsed("snap", "ls", "--all", "parent"), [])


class Copies(unittest.TestCase):
    def test_copy_and_deep_copy(self):
        data = create("source", os.urandom(2 * MIB))
        rbd("snap", "create", "--no-progress", "source@s")
        rbd("cp", "--no-progress", "source", "other/copy")
        self.assertEqual(content("other/copy"), data)
        rbd("deep", "cp", "--no-progress", "source", "other/deep")
        self.assertEqual(content("other/deep@s"), data)
        self.assertEqual(parsed("snap", "ls", "other/copy"), [])

    def test_export_import(self):
        data = create("ex", os.urandom(3 * MIB))
        rbd("snap", "create", "--no-progress", "ex@s")
        rbd("export", "--no-progress", "ex", path("v1"))
        self.assertEqual(pathlib.Path(path("v1")).read_bytes(), data)
        rbd("export", "--no-progress", "--export-format", "2", "ex", path("v2"))
        rbd("import", "--no-progress", "--export-format", "2", path("v2"), "im")
        self.assertEqual(content("im@s"), data)
        rbd("bench", "--io-type", "write", "--io-size", "4K", "--io-total", "4K", "ex")
        rbd("snap", "create", "--no-progress", "ex@t")
        rbd("export-diff", "--no-progress", "--from-snap", "s", "ex@t", path("diff"))
        rbd("import-diff", "--no-progress", path("diff"), "im")
        self.assertEqual(content("im@t"), content("ex@t"))
        rbd("resize", "--no-progress", "--size", "12M", "ex")
        rbd("snap", "create", "--no-progress", "ex@u")
        rbd("export-diff", "--no-progress", "--from-snap", "t", "ex@u", path("diff2"))
        rbd("merge-diff", "--no-progress", path("diff"), path("diff2"), path("merged"))
        create("target", data)
        rbd("snap", "create", "--no-progress", "target@s")
        rbd("import-diff", "--no-progress", path("merged"), "target")
        self.assertEqual(content("target@u"), content("ex@u"))


class Pools(unittest.TestCase):
    def test_trash(self):
        data = create("rubbish", b"keep")
        rbd("trash", "mv", "rubbish")
        ids = {i["name"]: i["id"] for i in parsed("trash", "ls")}
        self.assertNotIn("rubbish", parsed("ls"))
        rbd("trash", "restore", "--image", "found", ids["rubbish"])
        self.assertEqual(content("found"), data)
        rbd("trash", "mv", "--expires-at", "2099-01-01", "found")
        ids = {i["name"]: i["id"] for i in parsed("trash", "ls")}
        self.assertNotEqual(rbd("trash", "rm", ids["found"], check=False).returncode, 0)
        rbd("trash", "rm", "--no-progress", "--force", ids["found"])
        create("purged")
        rbd("trash", "mv", "purged")
        rbd("trash", "purge", "--no-progress", "rbd")
        self.assertNotIn("purged", [i["name"] for i in parsed("trash", "ls")])

    def test_namespaces(self):
        rbd("namespace", "create", "rbd/ns")
        self.assertEqual(parsed("namespace", "ls"), [{"name": "ns"}])
        data = create("rbd/ns/image", b"inside")
        self.assertEqual(parsed("ls", "rbd/ns"), ["image"])
        self.assertEqual(content("rbd/ns/image"), data)
        self.assertEqual(rbd("namespace", "rm", "rbd/ns", check=False).returncode, 16)
        # Who is confined to it takes snapshots there: they were refused, as such ids are of the whole pool.
        for user, mon in (("one", "allow r"), ("two", "profile rbd")):
            caps = ("mon", mon, "osd", "profile rbd pool=rbd namespace=ns")
            key = path(f"{user}.keyring", cluster.run("ceph", "auth", "get-or-create", f"client.{user}", *caps).stdout)
            rbd("--id", user, "--keyring", key, "snap", "create", "--no-progress", f"rbd/ns/image@{user}")
        self.assertEqual([snap["name"] for snap in parsed("snap", "ls", "rbd/ns/image")], ["one", "two"])
        rbd("snap", "purge", "--no-progress", "rbd/ns/image")
        rbd("rm", "--no-progress", "rbd/ns/image")
        rbd("namespace", "rm", "rbd/ns")
        self.assertEqual(parsed("namespace", "ls"), [])

    def test_groups(self):
        for image in ("g1", "g2"):
            create(image, image.encode())
        rbd("group", "create", "rbd/crowd")
        for image in ("g1", "g2"):
            rbd("group", "image", "add", "rbd/crowd", f"rbd/{image}")
        self.assertEqual({i["image"] for i in parsed("group", "image", "ls", "rbd/crowd")},
                         {"g1", "g2"})
        before = content("g1")
        rbd("group", "snap", "create", "rbd/crowd@s")
        rbd("bench", "--io-type", "write", "--io-size", "4K", "--io-total", "4K", "g1")
        rbd("group", "snap", "rollback", "--no-progress", "rbd/crowd@s")
        self.assertEqual(content("g1"), before)
        rbd("group", "snap", "rename", "rbd/crowd@s", "t")
        self.assertEqual([s["snapshot"] for s in parsed("group", "snap", "ls", "rbd/crowd")], ["t"])
        rbd("group", "snap", "rm", "rbd/crowd@t")
        rbd("group", "image", "rm", "rbd/crowd", "rbd/g1")
        rbd("group", "rename", "rbd/crowd", "rbd/mob")
        self.assertEqual(parsed("group", "ls"), ["mob"])
        rbd("group", "rm", "rbd/mob")
        self.assertNotIn("operations", parsed("info", "g2")["features"])

    def test_migration(self):
        data = create("mover", os.urandom(2 * MIB))
        rbd("snap", "create", "--no-progress", "mover@s")
        rbd("migration", "prepare", "mover", "other/moved")
        self.assertEqual(parsed("status", "other/moved")["migration"]["state"], "prepared")
        self.assertEqual(content("other/moved"), data)
        rbd("migration", "execute", "--no-progress", "other/moved")
        rbd("migration", "commit", "--no-progress", "other/moved")
        self.assertEqual(content("other/moved@s"), data)
        self.assertNotIn("mover", parsed("ls"))
        rbd("migration", "prepare", "other/moved", "back")
        rbd("migration", "abort", "--no-progress", "back")
        self.assertEqual(content("other/moved"), data)

    def test_migration_under_a_client(self):
        """A client that opened the target after `prepare` goes on writing while it is filled."""
        data = bytearray(create("busy", os.urandom(6 * MIB)))
        rbd("snap", "create", "--no-progress", "busy@s")
        before = bytes(data)
        rbd("migration", "prepare", "busy", "other/busy")
        writer = f"""
import rados, random, rbd, sys
c = rados.Rados(conffile={cluster.conf!r}); c.connect()
with rbd.Image(c.open_ioctx("other"), "busy") as image:
    rng, wrote = random.Random(1), 0
    print("open", flush=True)
    while wrote < 20 or not open({path("stop", b"")!r}).read():
        at = rng.randrange(7 << 20)
        image.write(rng.randbytes(5000), at)
        wrote += 1
    print(wrote, flush=True)
"""
        with subprocess.Popen(["/usr/bin/python3", "-c", writer], stdout=subprocess.PIPE) as client:
            self.addCleanup(client.kill)
            self.assertEqual(client.stdout.readline(), b"open\n")
            rbd("migration", "execute", "--no-progress", "other/busy")
            path("stop", b"now")
            wrote = int(client.communicate(timeout=120)[0])
        self.assertEqual(client.returncode, 0)
        rbd("migration", "commit", "--no-progress", "other/busy")
        rng = random.Random(1)
        for _ in range(wrote):
            at = rng.randrange(7 << 20)
            data[at:at + 5000] = rng.randbytes(5000)
        self.assertEqual(content("other/busy"), data)
        self.assertEqual(content("other/busy@s"), before)
        self.assertNotIn("busy", parsed("ls"))


class Mirroring(unittest.TestCase):
    def test_one_site(self):
        rbd("mirror", "pool", "enable", "other", "image")
        self.assertEqual(parsed("mirror", "pool", "info", "other")["mode"], "image")
        peer = rbd("mirror", "pool", "peer", "add", "other", "client.x@elsewhere").strip()
        peers = parsed("mirror", "pool", "info", "other")["peers"]
        self.assertEqual([(p["uuid"], p["site_name"]) for p in peers], [(peer, "elsewhere")])
        rbd("mirror", "pool", "peer", "set", "other", peer, "client", "client.y")
        create("other/journaled")
        create("other/snapped")
        rbd("feature", "enable", "other/journaled", "journaling")
        rbd("mirror", "image", "enable", "other/journaled", "journal")
        rbd("mirror", "image", "enable", "other/snapped", "snapshot")
        status = parsed("mirror", "pool", "status", "other", "--verbose")
        self.assertEqual({i["name"] for i in status["images"]}, {"journaled", "snapped"})
        rbd("mirror", "image", "snapshot", "other/snapped")
        kinds = [s["namespace"]["type"] for s in parsed("snap", "ls", "--all", "other/snapped")]
        self.assertIn("mirror", kinds)
        for image in ("other/journaled", "other/snapped"):
            rbd("mirror", "image", "status", image)
            rbd("mirror", "image", "demote", image)
            self.assertFalse(parsed("info", image)["mirroring"]["primary"])
            rbd("mirror", "image", "promote", "--force", image)
            self.assertTrue(parsed("info", image)["mirroring"]["primary"])
            rbd("mirror", "image", "disable", image)
        rbd("mirror", "pool", "peer", "remove", "other", peer)
        rbd("mirror", "pool", "disable", "other")
        self.assertEqual(parsed("mirror", "pool", "info", "other")["mode"], "disabled")


if __name__ == "__main__":
    unittest.main(verbosity=2)
