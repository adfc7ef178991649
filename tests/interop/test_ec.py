"""Erasure coded pools with unmodified clients: what may be done to objects with and without
overwrites, contents against a plain model while OSDs are killed, replaced and all at once, images
in a data pool, scrub that finds and repairs a damaged shard. The seed is printed."""
import errno
import json
import os
import pathlib
import random
import signal
import tempfile
import threading
import time
import unittest

import rados
import rbd

from cluster import Cluster

SEED = int(os.environ.get("LOLIGO_EC_SEED", str(random.randrange(1 << 32))))
STRIPE = 8192


class Model:
    """Random changes of objects, on a pool and on what should be in it."""

    def __init__(self, ioctx, seed, names):
        self.ioctx, self.rng, self.names = ioctx, random.Random(seed), names
        self.objects = {}

    def place(self, limit):
        at = self.rng.randrange(limit + 1)
        return at // STRIPE * STRIPE if self.rng.random() < 0.3 else at

    def step(self):
        rng = self.rng
        name = rng.choice(self.names)
        data = self.objects.get(name, b"")
        kind = rng.randrange(10)
        new = rng.randbytes(1 + self.place(3 * STRIPE))
        if kind == 0 and name in self.objects:
            self.ioctx.remove_object(name)
            del self.objects[name]
            return
        if kind <= 2:
            self.ioctx.write_full(name, new)
            data = new
        elif kind <= 4:
            self.ioctx.append(name, new)
            data += new
        elif kind == 5 and name in self.objects:
            size = self.place(len(data) + STRIPE)
            self.ioctx.trunc(name, size)
            data = data[:size].ljust(size, b"\0")
        else:
            at = self.place(len(data) + STRIPE)
            self.ioctx.write(name, new, at)
            data = data[:at].ljust(at, b"\0") + new + data[at + len(new):]
        self.objects[name] = data

    def check(self, case, what):
        for name in self.names:
            expected = self.objects.get(name)
            try:
                found = self.ioctx.read(name, 1 << 20)
            except rados.ObjectNotFound:
                found = None
            case.assertEqual(found == expected, True, f"{what}: {name}, {found and len(found)} bytes instead of {expected and len(expected)}")
            if expected:
                at = self.rng.randrange(len(expected))
                size = self.rng.randrange(1, len(expected) + 1)
                case.assertEqual(self.ioctx.read(name, size, at), expected[at:at + size], f"{what}: part of {name}")


class Writer(threading.Thread):
    """Changes objects until told to stop."""

    def __init__(self, model):
        super().__init__(daemon=True)
        self.model, self.stopping, self.error, self.done = model, False, None, 0

    def run(self):
        try:
            while not self.stopping:
                self.model.step()
                self.done += 1
        except Exception as e:
            self.error = e


class Erasure(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        print(f"seed {SEED}", flush=True)
        cls.cluster = c = Cluster(osds=5).__enter__()
        cls.addClassCleanup(c.__exit__, None, None, None)
        c.ceph("osd", "erasure-code-profile", "set", "two", "k=2", "m=1", "crush-failure-domain=osd")
        c.ceph("osd", "erasure-code-profile", "set", "three", "k=3", "m=2", "plugin=isa", "crush-failure-domain=osd")
        for pool, profile in (("appends", "two"), ("small", "two"), ("wide", "three")):
            c.ceph("osd", "pool", "create", pool, "8", "8", "erasure", profile)
            c.ceph("osd", "pool", "application", "enable", pool, "test")
        c.ceph("osd", "pool", "set", "small", "allow_ec_overwrites", "true")
        c.ceph("osd", "pool", "set", "wide", "allow_ec_overwrites", "true")
        c.pool("meta")
        c.wait_clean()
        cls.client = rados.Rados(conffile=c.conf)
        cls.client.connect(timeout=30)
        cls.addClassCleanup(cls.client.shutdown)

    def refused(self, code, call, *args):
        with self.assertRaises(rados.Error) as caught:
            call(*args)
        self.assertEqual(caught.exception.errno, code)

    def test_1_pools(self):
        pools = {p["pool_name"]: p for p in self.cluster.json("osd", "pool", "ls", "detail")}
        for name, size, min_size, width in (("small", 3, 2, 8192), ("wide", 5, 4, 12288)):
            p = pools[name]
            self.assertEqual((p["size"], p["min_size"], p["stripe_width"]), (size, min_size, width))
            self.assertIn("ec_overwrites", p["flags_names"])
        self.assertEqual(pools["appends"]["erasure_code_profile"], "two")
        # As a real Ceph answers.
        for args, said in (
            ("pool create x 8 8 erasure two norule", "Error ENOENT: specified rule norule doesn't exist"),
            ("pool create small 8 8 replicated", "Error EINVAL: pool 'small' cannot change to type replicated"),
            ("pool set small size 4", "Error ENOTSUP: can not change the size of an erasure-coded pool"),
            ("pool set small min_size 1", "Error EINVAL: pool min_size must be between 2 and size, which is set to 3"),
            ("pool set small allow_ec_overwrites false", "Error EINVAL: ec overwrites cannot be disabled once enabled"),
            ("erasure-code-profile rm three", "Error EBUSY: wide pool(s) are using the erasure code profile 'three'"),
        ):
            r = self.cluster.run("ceph", "osd", *args.split(), check=False)
            self.assertEqual((r.returncode != 0, r.stderr.decode().strip()), (True, said))

    def test_1_too_few_hosts(self):
        """PGs that had never come to act were `undersized+incomplete`, and health complained of degraded
        data; a real Ceph calls them `creating+incomplete`."""
        c = self.cluster
        c.ceph("osd", "erasure-code-profile", "set", "hosts", "k=2", "m=1", "crush-failure-domain=host")
        c.ceph("osd", "pool", "create", "nowhere", "1", "1", "erasure", "hosts")
        self.addCleanup(c.ceph, "osd", "pool", "rm", "nowhere", "nowhere", "--yes-i-really-really-mean-it")
        deadline, states = time.monotonic() + 30, []
        while states != ["creating+incomplete"] and time.monotonic() < deadline:
            time.sleep(0.2)
            stats = c.json("pg", "ls-by-pool", "nowhere")["pg_stats"]
            states = [pg["state"] for pg in stats]
        self.assertEqual(states, ["creating+incomplete"])
        checks = c.json("health", "detail")["checks"]
        self.assertIn("PG_AVAILABILITY", checks)
        self.assertNotIn("PG_DEGRADED", checks)

    def test_2_what_may_be_done(self):
        with self.client.open_ioctx("appends") as ioctx:
            self.assertEqual(ioctx.alignment(), STRIPE)
            ioctx.write_full("a", b"x" * STRIPE)
            ioctx.append("a", b"y" * 100)
            self.assertEqual(ioctx.read("a", 1 << 20), b"x" * STRIPE + b"y" * 100)
            for call, args in (
                (ioctx.append, ("a", b"z")),
                (ioctx.write, ("a", b"z", 0)),
                (ioctx.write, ("new", b"z", STRIPE)),
                (ioctx.trunc, ("a", 1)),
            ):
                self.refused(errno.EOPNOTSUPP, call, *args)
            ioctx.set_xattr("a", "k", b"v")
            ioctx.write_full("a", b"new")
            self.assertEqual((ioctx.read("a"), ioctx.get_xattr("a", "k")), (b"new", b"v"))
            with rados.WriteOpCtx() as op:
                ioctx.set_omap(op, ("k",), (b"v",))
                self.refused(errno.EOPNOTSUPP, ioctx.operate_write_op, op, "a")
            self.assertEqual(ioctx.stat("a")[0], 3)
            ioctx.create_snap("s")
            ioctx.write_full("a", b"newer")
            ioctx.set_read(ioctx.lookup_snap("s").snap_id)
            self.assertEqual(ioctx.read("a"), b"new")
            ioctx.set_read(rados.LIBRADOS_SNAP_HEAD)
            ioctx.snap_rollback("a", "s")
            self.assertEqual(ioctx.read("a"), b"new")
            ioctx.remove_snap("s")
            ioctx.remove_object("a")
            self.assertEqual(list(ioctx.list_objects()), [])

    def test_3_contents(self):
        for pool in ("small", "wide"):
            with self.client.open_ioctx(pool) as ioctx:
                model = Model(ioctx, SEED, [f"c{n}" for n in range(6)])
                for _ in range(60):
                    model.step()
                model.check(self, pool)

    def test_4_osds_killed(self):
        """One at a time is down while objects change; at last all are killed at once."""
        c = self.cluster
        writers = []
        for n, pool in enumerate(("small", "small", "wide")):
            ioctx = self.client.open_ioctx(pool)
            self.addCleanup(ioctx.close)
            writers.append(Writer(Model(ioctx, SEED + n, [f"k{n}-{i}" for i in range(8)])))
        for w in writers:
            w.start()
        rng = random.Random(SEED)
        for victim in rng.sample(range(5), 2):
            c.kill(f"osd.{victim}")
            self.progress(writers, f"osd.{victim} down")
            c.up()
            self.progress(writers, f"osd.{victim} back")
            c.wait_clean(120)
        for n in range(5):
            c.kill(f"osd.{n}")
        c.up()
        self.progress(writers, "all killed")
        for w in writers:
            w.stopping = True
        for w in writers:
            w.join(120)
            self.assertFalse(w.is_alive(), "a write hangs")
            self.assertIsNone(w.error)
        c.wait_clean(120)
        for w in writers:
            w.model.check(self, "after all")
        # Without each of two OSDs, so that what was written while one was down is decoded.
        for n in rng.sample(range(5), 2):
            c.kill(f"osd.{n}")
            for w in writers:
                w.model.check(self, f"without osd.{n}")
            c.up()
            c.wait_clean(120)

    def progress(self, writers, what):
        """Each writer has more done than before."""
        before = [w.done for w in writers]
        end = time.monotonic() + 120
        while any(w.done < b + 3 and w.error is None for w, b in zip(writers, before)):
            self.assertLess(time.monotonic(), end, f"{what}: {before}, {[w.done for w in writers]}\n{self.cluster.ceph('-s')}")
            time.sleep(0.05)
        self.assertEqual([w.error for w in writers], [None] * len(writers), what)

    def test_5_tools(self):
        c = self.cluster
        with tempfile.TemporaryDirectory() as folder:
            source, copy = pathlib.Path(folder, "a"), pathlib.Path(folder, "b")
            source.write_bytes(random.Random(SEED).randbytes(5_000_000))
            c.run("rados", "-p", "appends", "put", "big", str(source))
            c.run("rados", "-p", "appends", "get", "big", str(copy))
            self.assertEqual(copy.read_bytes(), source.read_bytes())
            c.run("rados", "-p", "appends", "rm", "big")
            c.run("rados", "bench", "-p", "appends", "1", "write", "-b", "65536", "--no-cleanup")
            c.run("rados", "bench", "-p", "appends", "1", "rand")
            c.run("rados", "-p", "appends", "cleanup")
            # An image: its header in a replicated pool, its data here.
            c.run("rbd", "pool", "init", "meta")
            c.run("rbd", "import", str(source), "meta/image", "--data-pool", "small")
            c.run("rbd", "snap", "create", "meta/image@s")
            c.run("rbd", "bench", "meta/image", "--io-type", "write", "--io-size", "5000",
                  "--io-total", "1M", "--io-pattern", "rand")
            copy.unlink()
            c.run("rbd", "export", "meta/image@s", str(copy))
            self.assertEqual(copy.read_bytes(), source.read_bytes())
            self.assertTrue(any(o.key.startswith("rbd_data.") for o in self.client.open_ioctx("small").list_objects()))
            c.run("rbd", "snap", "purge", "meta/image")
            c.run("rbd", "rm", "meta/image")

    def test_5_images_with_data_here(self):
        """`rbd --data-pool` on pools with overwrites: what an image goes through, content checked
        after each step; at its end nothing is left in the pool."""
        c = self.cluster
        c.run("rbd", "pool", "init", "meta")
        rng = random.Random(SEED)
        with self.client.open_ioctx("meta") as meta, tempfile.TemporaryDirectory() as folder:

            def objects(pool):
                with self.client.open_ioctx(pool) as ioctx:
                    return [o.key for o in ioctx.list_objects() if o.key.startswith("rbd_data.")]

            def exported(spec):
                file = pathlib.Path(folder, "exported")
                file.unlink(missing_ok=True)
                c.run("rbd", "export", "--no-progress", spec, str(file))
                return file.read_bytes()

            def scribble(image, data, times):
                for _ in range(times):
                    at = rng.randrange(len(data))
                    some = rng.randbytes(1 + rng.randrange(min(300_000, len(data) - at)))
                    if rng.randrange(4):
                        image.write(some, at)
                    else:
                        image.write_zeroes(at, len(some))
                        some = b"\0" * len(some)
                    data[at:at + len(some)] = some

            for pool in ("small", "wide"):
                before = objects(pool)
                size = 5 << 20
                c.run("rbd", "create", "meta/i", "--size", "5M", "--object-size", "1M", "--data-pool", pool)
                self.assertEqual(json.loads(c.run("rbd", "info", "meta/i", "--format", "json").stdout)["data_pool"], pool)
                data = bytearray(size)
                with rbd.Image(meta, "i") as image:
                    scribble(image, data, 12)
                    self.assertEqual(image.read(0, size), bytes(data))
                    image.create_snap("s")
                    then = bytes(data)
                    scribble(image, data, 8)
                    image.resize(3_300_000)
                    image.resize(size)
                    data[3_300_000:] = b"\0" * (size - 3_300_000)
                self.assertEqual(exported("meta/i"), bytes(data))
                self.assertEqual(exported("meta/i@s"), then)
                c.run("rbd", "snap", "protect", "meta/i@s")
                c.run("rbd", "clone", "meta/i@s", "meta/c", "--data-pool", pool)
                child = bytearray(then)
                with rbd.Image(meta, "c") as image:
                    scribble(image, child, 6)
                    self.assertEqual(image.read(0, size), bytes(child))
                c.run("rbd", "flatten", "--no-progress", "meta/c")
                self.assertEqual(exported("meta/c"), bytes(child))
                c.run("rbd", "deep", "cp", "--no-progress", "meta/i", "meta/d", "--data-pool", pool)
                self.assertEqual(exported("meta/d@s"), then)
                c.run("rbd", "snap", "rollback", "--no-progress", "meta/i@s")
                self.assertEqual(exported("meta/i"), then)
                self.assertNotEqual(objects(pool), before)
                # A deep copy's snapshots are protected as those of its source are.
                for name in ("i", "d"):
                    c.run("rbd", "snap", "unprotect", f"meta/{name}@s")
                c.run("rbd", "object-map", "check", "--no-progress", "meta/i")
                for name in ("c", "d", "i"):
                    if name != "c":
                        c.run("rbd", "snap", "purge", "--no-progress", f"meta/{name}")
                    c.run("rbd", "rm", "--no-progress", f"meta/{name}")
                # Snapshots are trimmed in the background.
                c.wait(lambda: objects(pool) == before, 120, "no object of the images left")

    def test_6_scrub(self):
        """A shard that lost its object is found, and made anew out of the others."""
        c = self.cluster
        with self.client.open_ioctx("small") as ioctx:
            ioctx.write_full("scrubbed", b"s" * 20000)
            found = c.json("osd", "map", "small", "scrubbed")
            pgid, primary = found["pgid"], found["acting_primary"]
            self.scrub(pgid)
            self.assertEqual(self.inconsistent(pgid), [])
            c.ceph("tell", f"osd.{primary}", "injectdataerr", "small", "scrubbed", str(found["acting"].index(primary)))
            self.scrub(pgid)
            self.assertEqual([o["object"]["name"] for o in self.inconsistent(pgid)], ["scrubbed"])
            self.assertEqual(ioctx.read("scrubbed", 1 << 20), b"s" * 20000)
            c.ceph("pg", "repair", pgid)
            c.wait(lambda: self.inconsistent_after_scrub(pgid) == [], 60, "repaired")
            self.assertEqual(ioctx.read("scrubbed", 1 << 20), b"s" * 20000)

    def test_7_fast_read(self):
        """With `fast_read` a shard that does not answer holds no read up."""
        c = self.cluster
        c.ceph("osd", "set", "nodown")
        c.ceph("osd", "pool", "set", "wide", "fast_read", "1")
        with self.client.open_ioctx("wide") as ioctx:
            ioctx.write_full("fast", b"f" * 30000)
            found = c.json("osd", "map", "wide", "fast")
            shard = next(osd for osd in found["acting"][:3] if osd != found["acting_primary"])
            # The primary serves as long as its lease, which the stopped OSD does not renew: on a
            # slow machine it may take more than one attempt.
            for _ in range(5):
                answered = threading.Event()
                contents = []

                def done(_, data):
                    contents.append(data)
                    answered.set()

                os.kill(c.pid(f"osd.{shard}"), signal.SIGSTOP)
                try:
                    ioctx.aio_read("fast", 30000, 0, done)
                    in_time = answered.wait(8)
                finally:
                    os.kill(c.pid(f"osd.{shard}"), signal.SIGCONT)
                self.assertTrue(answered.wait(60), "no answer at all")
                self.assertEqual(contents, [b"f" * 30000])
                if in_time:
                    break
            self.assertTrue(in_time, "reads wait for the stopped shard")
        c.ceph("osd", "unset", "nodown")

    def test_8_fewer_pgs(self):
        """PGs are moved to where those are that they merge into, and merge, while objects change. The
        OSD that a shard moved to was sent empty transactions: objects' bytes became zeros."""
        c = self.cluster
        c.ceph("osd", "pool", "create", "merging", "8", "8", "erasure", "two")
        c.ceph("osd", "pool", "set", "merging", "allow_ec_overwrites", "true")
        ioctx = self.client.open_ioctx("merging")
        self.addCleanup(ioctx.close)
        writer = Writer(Model(ioctx, SEED, [f"m{n}" for n in range(40)]))
        writer.start()
        self.progress([writer], "before")
        c.ceph("osd", "pool", "set", "merging", "pg_num", "4")
        c.wait(lambda: c.json("osd", "pool", "get", "merging", "pg_num")["pg_num"] == 4, 240, "4 PGs")
        writer.stopping = True
        writer.join(120)
        self.assertFalse(writer.is_alive(), "a write hangs")
        self.assertIsNone(writer.error)
        c.wait_clean(120)
        writer.model.check(self, "merged")
        for pg in c.json("pg", "ls-by-pool", "merging")["pg_stats"]:
            self.scrub(pg["pgid"])
            self.assertEqual(self.inconsistent(pg["pgid"]), [], pg["pgid"])

    def scrub(self, pgid):
        stamp = lambda: self.cluster.json("pg", pgid, "query")["info"]["history"]["last_deep_scrub_stamp"]
        before = stamp()
        self.cluster.ceph("pg", "deep-scrub", pgid)
        self.cluster.wait(lambda: stamp() != before, 60, "scrub")

    def inconsistent(self, pgid):
        return json.loads(self.cluster.run("rados", "list-inconsistent-obj", pgid).stdout)["inconsistents"]

    def inconsistent_after_scrub(self, pgid):
        self.scrub(pgid)
        return self.inconsistent(pgid)


if __name__ == "__main__":
    unittest.main(verbosity=2)
