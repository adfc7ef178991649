#!/usr/bin/python3
"""Moving from a real Ceph 16.2 to ours and back with unmodified tools: pools by `rados export`, images by `rbd export` and by
what changed since a snapshot, keys, options, CRUSH maps."""
import os
import random
import unittest

from cluster import Cluster
from real_ceph import RealCeph


class Move(unittest.TestCase):
    rng = random.Random(1)

    def ways(self):
        """From each to the other."""
        return (("to ours", real, ours), ("to Ceph", ours, real))

    def file(self, name):
        """A path for what is exported, which is not there."""
        path = os.path.join(real.dir, name)
        if os.path.exists(path):
            os.unlink(path)
        return path

    def listed(self, site, pool):
        return sorted(site.run("rados", "-p", pool, "ls", "--all").stdout.split(b"\n"))

    def test_pool(self):
        """What `rados export` writes of a pool with xattrs, omap, namespaces and snapshots."""
        for n, (way, here, there) in enumerate(self.ways()):
            with self.subTest(way):
                old, new = f"old{n}", f"new{n}"
                for site, pool in ((here, old), (here, f"{old}-copy"), (there, new)):
                    site.pool(pool)
                objects = {f"o{i}": self.rng.randbytes(size) for i, size in enumerate((0, 1, 4096, 70000, 5 << 20))}
                for name, data in objects.items():
                    for space in ("", "space"):
                        here.run("rados", "-p", old, "-N", space, "put", name, "-", input=data)
                        here.run("rados", "-p", old, "-N", space, "setxattr", name, "colour", f"red {space}")
                        for key in range(3):
                            here.run("rados", "-p", old, "-N", space, "setomapval", name, f"key {key}", f"value {space}")
                        here.run("rados", "-p", old, "-N", space, "setomapheader", name, "header")
                here.run("rados", "-p", old, "mksnap", "before")
                here.run("rados", "-p", old, "put", "o1", "-", input=b"after")
                before, objects = objects, dict(objects, o1=b"after")
                path = self.file("pool")
                here.run("rados", "-p", old, "export", path)
                there.run("rados", "-p", new, "import", path)
                self.assertEqual(self.listed(there, new), self.listed(here, old))
                for name, data in objects.items():
                    for space in ("", "space"):
                        def ask(*args):
                            return there.run("rados", "-p", new, "-N", space, *args).stdout
                        self.assertEqual(ask("get", name, "-"), before[name] if space else data)
                        self.assertEqual(ask("getxattr", name, "colour"), f"red {space}".encode())
                        self.assertEqual(ask("listomapkeys", name), b"key 0\nkey 1\nkey 2\n")
                        self.assertIn(b"header", ask("getomapheader", name))
                here.run("rados", "cppool", old, f"{old}-copy", "--yes-i-really-mean-it")
                self.assertEqual(here.run("rados", "-p", f"{old}-copy", "get", "o1", "-").stdout, b"after")

    def test_images(self):
        """All at once, snapshot by snapshot, and as a stream that is read while the image is used."""
        for n, (way, here, there) in enumerate(self.ways()):
            with self.subTest(way):
                for site in (here, there):
                    site.pool(f"images{n}")
                    site.run("rbd", "pool", "init", f"images{n}")
                image = f"images{n}/image"

                def fill():
                    here.run("rbd", "bench", "--io-type", "write", "--io-size", "16K", "--io-total", "2M", "--io-pattern", "rand", image)
                here.run("rbd", "create", "--size", "40M", "--stripe-unit", "65536", "--stripe-count", "4", image)
                here.run("rbd", "image-meta", "set", image, "colour", "red")
                fill()
                here.run("rbd", "snap", "create", f"{image}@one")
                here.run("rbd", "snap", "protect", f"{image}@one")
                fill()
                here.run("rbd", "snap", "create", f"{image}@two")
                here.run("rbd", "resize", "--allow-shrink", "--no-progress", "--size", "32M", image)
                fill()

                def same(other, names=("", "@one", "@two")):
                    for name in names:
                        ours = here.run("rbd", "export", "--no-progress", image + name, "-").stdout
                        self.assertTrue(ours == there.run("rbd", "export", "--no-progress", other + name, "-").stdout, name)
                # All of it at once.
                path = self.file("v2")
                here.run("rbd", "export", "--no-progress", "--export-format", "2", image, path)
                there.run("rbd", "import", "--no-progress", "--export-format", "2", path, f"images{n}/v2")
                same(f"images{n}/v2")
                self.assertEqual(there.run("rbd", "image-meta", "get", f"images{n}/v2", "colour").stdout, b"red\n")
                # Snapshot by snapshot.
                there.run("rbd", "create", "--size", "1M", "--stripe-unit", "65536", "--stripe-count", "4", f"images{n}/diffs")
                for since, to in ((None, "@one"), ("one", "@two"), ("two", "")):
                    how = ["--from-snap", since] if since else []
                    path = self.file("diff")
                    here.run("rbd", "export-diff", "--no-progress", *how, image + to, path)
                    there.run("rbd", "import-diff", "--no-progress", path, f"images{n}/diffs")
                same(f"images{n}/diffs")
                changes = [site.run("rbd", "export-diff", "--no-progress", "--from-snap", "one", name, "-").stdout
                           for site, name in ((here, image), (there, f"images{n}/diffs"))]
                self.assertTrue(changes[0] == changes[1])
                raw = self.file("raw")
                here.run("rbd", "export", "--no-progress", image, raw)
                there.run("rbd", "migration", "prepare", "--import-only", "--source-spec",
                          '{"type": "raw", "stream": {"type": "file", "file_path": "%s"}}' % raw, f"images{n}/stream")
                same(f"images{n}/stream", ("",))
                there.run("rbd", "migration", "execute", "--no-progress", f"images{n}/stream")
                there.run("rbd", "migration", "commit", "--no-progress", f"images{n}/stream")
                same(f"images{n}/stream", ("",))

    def test_keys(self):
        for n, (way, here, there) in enumerate(self.ways()):
            with self.subTest(way):
                name = f"client.moved{n}"
                here.ceph("auth", "add", name, "mon", "profile rbd", "osd", "profile rbd pool=images, allow rwx namespace=x", "mgr", "allow r")
                exported = here.ceph("auth", "export", name)
                there.run("ceph", "auth", "import", "-i", "-", input=exported.encode())
                self.assertEqual(there.ceph("auth", "export", name), exported)
                # A key without capabilities was taken, and one with some that say nothing was not.
                bare = f"[client.bare{n}]\n\tkey = AQBKb6ZnAAAAABAAK0Jmg7QHvIg9dVrrb1rSzA==\n"
                odd = bare.replace("bare", "odd") + '\tcaps mon = "allow bogus"\n\tcaps xyz = "allow *"\n'
                refused = there.run("ceph", "auth", "import", "-i", "-", input=bare.encode(), check=False)
                self.assertEqual((refused.returncode, refused.stderr), (22, b"Error EINVAL: auth import: no caps supplied\n"))
                there.run("ceph", "auth", "import", "-i", "-", input=odd.encode())
                self.assertEqual(there.ceph("auth", "export", f"client.odd{n}"), odd)

    def test_options(self):
        """What a file says is taken or left by both alike, and shown alike. Features of images were kept as written, nonsense, too."""
        path = self.file("options")
        with open(path, "w") as file:
            file.write("""
[global]
    osd pool default size = 2
    mon_allow_pool_delete = true ; not the last word
    fsid = 11111111-2222-3333-4444-555555555555
    mon host = 1.2.3.4
    keyring = /etc/ceph/keyring
    osd_crush_chooseleaf_type = 1
[osd]
    osd max backfills = 3
    osd_memory_target = 4G
    osd_data = /x
[osd.0]
    debug osd = 1/5
[mon]
    no such option = 5
    debug_mon = junk
[mgr]
    mgr/dashboard/server_port = 8080
    mgr_stats_period = 7
[client]
    rbd_default_features = layering,exclusive-lock
[client.x]
    rbd cache = false
    rbd_default_features = layering,bogus
""")
        said = []
        for site in (real, ours):
            left = site.ceph("config", "assimilate-conf", "-i", path)
            said.append((left, site.ceph("config", "dump")))
            for line in site.json("config", "dump"):
                site.ceph("config", "rm", line["section"], line["name"])
        self.assertEqual(*said)

    def test_crush(self):
        """Maps with devices' classes, rules and weight sets go through either byte for byte, and place alike."""
        for site in (real, ours):
            for command in ("osd crush add-bucket rack1 rack root=default", "osd crush add-bucket rack2 rack",
                            "osd crush rule create-replicated spread default osd", "osd crush weight-set create-compat",
                            "osd crush weight-set reweight-compat osd.1 0.5", "osd pool create placed 32 32 spread"):
                site.ceph(*command.split())
        for way, here, there in self.ways():
            with self.subTest(way):
                crush, back = self.file("crush"), self.file("back")
                here.ceph("osd", "crush", "reweight-subtree", "default", "0.25" if here is real else "0.75")
                here.ceph("osd", "getcrushmap", "-o", crush)
                there.ceph("osd", "setcrushmap", "-i", crush)
                there.ceph("osd", "getcrushmap", "-o", back)
                with open(crush, "rb") as sent, open(back, "rb") as got:
                    self.assertEqual(sent.read(), got.read())
                self.assertEqual(here.json("osd", "crush", "dump"), there.json("osd", "crush", "dump"))
                for site in (here, there):
                    osdmap = self.file("osdmap")
                    site.ceph("osd", "getmap", "-o", osdmap)
                    pools = {pool["pool_name"]: pool["pool_id"] for pool in site.json("osd", "pool", "ls", "detail")}
                    site.run("osdmaptool", osdmap, "--upmap", self.file("upmap"), "--upmap-pool", "placed", "--upmap-deviation", "1")
                    mapped = site.run("osdmaptool", osdmap, "--test-map-pgs-dump", "--pool", str(pools["placed"])).stdout.decode()
                    acting = {f'{pools["placed"]}.{n:x}': site.json("pg", "map", f'{pools["placed"]}.{n:x}')["acting"] for n in range(4)}
                    for pgid, osds in acting.items():
                        self.assertIn(f"{pgid}\t{osds}".replace(" ", ""), mapped)
                refused = there.run("ceph", "osd", "setcrushmap", "-i", "-", input=b"hello", check=False)
                self.assertEqual(refused.returncode, 22)


if __name__ == "__main__":
    with RealCeph() as real, Cluster() as ours:
        unittest.main(verbosity=2, exit=False).result.wasSuccessful() or exit(1)
