"""`loligo store` on stopped OSDs: reading and setting single values, fsck, export and import of a
placement group (Ceph's own tool reads the file), and a chain of migrations through all backends with
the cluster's data the same behind each; what one OSD lost is repaired from another. What an import leaves alone. Takes about 100 s."""
import json
import os
import pathlib
import subprocess
import sys
import unittest

import rados

from cluster import Cluster, LOLIGO
from test_stores import fill, look


def tool(c, osd, *args, input=None, check=True):
    """`loligo store --osd N ARGS`."""
    command = [LOLIGO, "store", "--dir", c.dir, "--osd", str(osd), *map(str, args)]
    r = subprocess.run(command, capture_output=True, input=input, timeout=120)
    if check and r.returncode != 0:
        raise AssertionError(f"{' '.join(command)}: exit {r.returncode}\n{r.stdout!r}\n{r.stderr.decode()}")
    return r


def answer(c, osd, *args):
    """Its JSON."""
    return json.loads(tool(c, osd, "--json", *args).stdout)


NAMES = {f"o{n}" for n in range(40)}


class StoreTool(unittest.TestCase):
    def same(self, c, snap):
        with rados.Rados(conffile=c.conf) as cluster, cluster.open_ioctx("p") as ioctx:
            look(self, ioctx, snap)

    def test_values_export_and_migrations(self):
        with Cluster(osds=2, size=2, osd_size="2G") as c:
            c.pool("p", 4)
            with rados.Rados(conffile=c.conf) as cluster, cluster.open_ioctx("p") as ioctx:
                snap = fill(ioctx)

            r = tool(c, 0, "stat", check=False)
            self.assertNotEqual(r.returncode, 0, "a running OSD's store")
            self.assertIn(b"locked", r.stderr)
            self.third(c)
            c.down()
            self.values(c)
            self.fsck(c)
            self.export_and_import(c)
            c.up()
            c.wait_clean()
            self.same(c, snap)
            c.down()
            # A database in a folder, as BlueStores once had it, goes on being opened; the next has BlueFS.
            for to, *sets in [("bluestore", "--set", "bluestore_bluefs=false"), ("bluestore",),
                              ("filestore",), ("kstore",), ("kstore", "--set", "kstore_backend=leveldb"),
                              ("filestore", "--set", "filestore_omap_backend=leveldb")]:
                moved = answer(c, 1, "migrate", "--to", to, *sets)
                self.assertTrue(moved["verified"] and moved["objects"] > 40 and moved["omap_keys"] > 2000, moved)
                self.assertEqual(answer(c, 1, "stat")["backend"], to)
                self.assertEqual(answer(c, 1, "fsck", "--deep")["errors"], [])
                if to == "bluestore":
                    self.assertEqual(pathlib.Path(c.dir, "osd/1/db").is_dir(), bool(sets))
                    self.assertEqual(answer(c, 1, "fsck", "--repair")["repaired"], 0)
            c.up()
            c.wait_clean()
            self.same(c, snap)
            # It serves alone, too: the other one is down.
            c.ceph("osd", "pool", "set", "p", "min_size", "1")
            c.kill("osd.0")
            c.ceph("osd", "down", "0")
            self.same(c, snap)
            c.down()
            moved = answer(c, 1, "migrate", "--to", "inkstore", "--keep-old")
            self.assertTrue(pathlib.Path(moved["old"], "current").is_dir(), moved)
            c.up()
            c.wait_clean()
            self.same(c, snap)

    def test_what_one_osd_lost_comes_back(self):
        """What `fsck --repair` removed because it could not be read, or left because it cannot know better, is brought
        back by `ceph pg repair` from the other copies: data, xattrs, omap. One OSD lost objects that it is the primary of,
        the other ones that it holds a copy of."""
        with Cluster(osds=2, size=2, store="bluestore", osd_size="2G") as c:
            self.lose_and_repair(c)

    def lose_and_repair(self, c):
        names = [f"object {n}" for n in range(4)]
        c.pool("p", 1)
        with rados.Rados(conffile=c.conf) as cluster, cluster.open_ioctx("p") as ioctx:
            for name in names:
                ioctx.write_full(name, name.encode() * 5000)
                ioctx.set_xattr(name, "x", b"attribute")
                with rados.WriteOpCtx() as op:
                    ioctx.set_omap(op, ("key",), (b"value",))
                    ioctx.operate_write_op(op, name)

        def pg():
            return c.json("pg", "ls-by-pool", "p")["pg_stats"][0]

        def scrub(word):
            before = pg()["last_deep_scrub_stamp"]
            c.ceph("pg", word, pg()["pgid"])
            c.wait(lambda: pg()["last_deep_scrub_stamp"] != before, what=word)
        c.down()
        for osd in (0, 1):
            gone, rotten = names[2 * osd:2 * osd + 2]
            tool(c, osd, "remove", gone)
            info = tool(c, osd, "get-attr", rotten, "_").stdout
            tool(c, osd, "set-attr", rotten, "_", input=info[:-9])
            r = tool(c, osd, "fsck", "--repair", check=False)
            self.assertNotEqual(r.returncode, 0)
            self.assertIn(b"ceph pg repair", r.stderr)
        c.up()
        c.wait_clean()
        scrub("deep-scrub")
        c.wait(lambda: pg()["stat_sum"]["num_scrub_errors"] > 0, what="errors are shown")
        scrub("repair")
        c.wait(lambda: pg()["state"] == "active+clean" and pg()["stat_sum"]["num_scrub_errors"] == 0, what="repaired")
        with rados.Rados(conffile=c.conf) as cluster, cluster.open_ioctx("p") as ioctx:
            for name in names:
                self.assertEqual(ioctx.read(name, 100_000), name.encode() * 5000)
        c.down()
        for osd in (0, 1):
            self.assertEqual(answer(c, osd, "fsck", "--deep")["errors"], [])
            for name in names:
                self.assertEqual(tool(c, osd, "get-bytes", name).stdout, name.encode() * 5000)
                self.assertEqual(tool(c, osd, "get-attr", name, "_x").stdout, b"attribute")
                self.assertEqual(tool(c, osd, "get-omap", name, "key").stdout, b"value")

    def values(self, c):
        stat = answer(c, 0, "stat")
        self.assertEqual((stat["backend"], stat["pgs"] >= 4), ("inkstore", True), stat)
        lines = tool(c, 0, "list").stdout.decode().splitlines()
        self.assertEqual(len(lines), stat["objects"])
        names = {json.loads(line)[1]["oid"] for line in lines}
        self.assertTrue({"sparse", "index", "object 1"} <= names, names)
        self.assertIn(b"osd_superblock", tool(c, 0, "list", "--meta").stdout)
        [line] = tool(c, 0, "list", "sparse").stdout.decode().splitlines()
        content = tool(c, 0, "get-bytes", line).stdout
        self.assertEqual((len(content), content[-5:]), (1_000_004, b"\0tail"))
        self.assertEqual(tool(c, 0, "get-attr", "object 1", "_x3").stdout, b"v" * 3001)
        dump = answer(c, 0, "dump", "index")
        self.assertEqual((dump["omap_keys"], dump["info"]["size"]), (2000, 0), dump["info"])
        self.assertEqual(tool(c, 0, "get-omap", "index", "key 01999").stdout, b"value 1999")
        self.assertEqual(len(tool(c, 0, "get-omap", "index").stdout.splitlines()), 2000)
        tool(c, 0, "set-omap", "index", "new", input=b"and its value")
        self.assertEqual(tool(c, 0, "get-omap", "index", "new").stdout, b"and its value")
        tool(c, 0, "set-attr", "object 2", "_new", input=b"\0\1")
        self.assertEqual(tool(c, 0, "get-attr", "object 2", "_new").stdout, b"\0\1")
        # Clients look at what both OSDs have.
        tool(c, 1, "set-omap", "index", "new", input=b"and its value")
        tool(c, 1, "set-attr", "object 2", "_new", input=b"\0\1")
        self.removals(c)
        for args, word in [(["get-bytes", "nothing"], b"no object"), (["list", "--pg", "77.0"], b"there is"),
                           (["migrate", "--to", "paper"], b"there is"), (["get-attr", "index", "x"], b"listed")]:
            r = tool(c, 0, *args, check=False)
            self.assertNotEqual(r.returncode, 0, args)
            self.assertIn(word, r.stderr, args)

    def removals(self, c):
        tool(c, 0, "set-omap", "index", "gone", input=b"soon")
        tool(c, 0, "rm-omap", "index", "gone")
        tool(c, 0, "set-attr", "object 3", "_gone", input=b"soon")
        tool(c, 0, "rm-attr", "object 3", "_gone")
        for command, name in [("rm-omap", "index"), ("rm-attr", "object 3")]:
            r = tool(c, 0, command, name, "gone", check=False)
            self.assertNotEqual(r.returncode, 0)
            self.assertIn(b"lists all", r.stderr)
        header = tool(c, 0, "get-omap", "index", "--header").stdout
        tool(c, 0, "set-omap-header", "index", input=b"another")
        self.assertEqual(tool(c, 0, "get-omap", "index", "--header").stdout, b"another")
        tool(c, 0, "set-omap-header", "index", input=header)
        # Other data, longer and shorter; the info follows, so that nothing is wrong with the object.
        old = tool(c, 0, "get-bytes", "object 4").stdout
        for new in [b"x" * 70_001, b"", old]:
            tool(c, 0, "set-bytes", "object 4", input=new)
            self.assertEqual(tool(c, 0, "get-bytes", "object 4").stdout, new)
            self.assertEqual(answer(c, 0, "dump", "object 4")["info"]["size"], len(new))
            self.assertEqual(answer(c, 0, "fsck", "--deep")["errors"], [])

    def fsck(self, c):
        clean = answer(c, 0, "fsck", "--deep")
        self.assertEqual(clean["errors"], [])
        self.assertGreater(clean["bytes_read"], 1_000_000)
        info = tool(c, 0, "get-attr", "object 20", "_").stdout
        tool(c, 0, "set-attr", "object 20", "_", input=info[:-9])
        r = tool(c, 0, "--json", "fsck", check=False)
        self.assertNotEqual(r.returncode, 0)
        self.assertEqual(len(json.loads(r.stdout)["errors"]), 1, r.stdout)
        tool(c, 0, "set-attr", "object 20", "_", input=info)
        self.assertEqual(answer(c, 0, "fsck")["errors"], [])

    def export_and_import(self, c):
        by_pg = answer(c, 0, "stat")["objects_by_pg"]
        pg = max(by_pg, key=by_pg.get)
        path = os.path.join(c.dir, "pg.export")
        exported = answer(c, 0, "export", pg, path)
        self.assertEqual(exported["objects"], by_pg[pg])
        r = subprocess.run(["ceph-objectstore-tool", "--no-mon-config", "--op", "dump-export", "--file", path],
                           capture_output=True, timeout=60)
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertIn(pg.encode(), r.stdout)
        r = tool(c, 0, "import", path, check=False)
        self.assertIn(b"already", r.stderr)
        # An OSD that has none gets it; a file that was cut off is told and leaves nothing that stays.
        whole = pathlib.Path(path).read_bytes()
        pathlib.Path(path + ".cut").write_bytes(whole[:-200])
        r = tool(c, 2, "import", path + ".cut", check=False)
        self.assertIn(b"cut off", r.stderr)
        imported = answer(c, 2, "import", path)
        self.assertEqual(imported["objects"], exported["objects"])
        self.assertEqual(answer(c, 2, "fsck", "--deep")["errors"], [])
        again = path + ".again"
        tool(c, 2, "export", pg, again)
        self.assertEqual(pathlib.Path(again).stat().st_size, len(whole))
        # A pipe and a link were replaced by a file (a device, too, by who may).
        link, pipe = path + ".link", path + ".pipe"
        os.symlink(again, link)
        tool(c, 2, "export", pg, link)
        self.assertTrue(os.path.islink(link))
        os.mkfifo(pipe)
        reader = subprocess.Popen(["wc", "-c", pipe], stdout=subprocess.PIPE)
        tool(c, 2, "export", pg, pipe)
        self.assertTrue(pathlib.Path(pipe).is_fifo())
        self.assertEqual(int(reader.communicate(timeout=60)[0].split()[0]), len(whole))

    def test_an_import_leaves_alone_what_split_off_since(self):
        """A placement group was exported, then split, and objects of the new one were removed. The import beside the new one had the
        new one's objects as well, and when the two merged, what had been removed was back."""
        with Cluster(osds=3, size=1) as c:
            first, path = self.exported(c)
            other = first[:-1] + "1"
            lost, kept = self.split(c, first, 2)
            gone = {name for name in NAMES if c.json("osd", "map", "p", name)["pgid"] == other}
            imported = answer(c, kept, "import", path)
            self.assertEqual((imported["objects"], imported["skipped"]), (len(NAMES - gone), len(gone)))
            self.assertEqual(answer(c, kept, "fsck", "--deep")["errors"], [])
            self.start(c, kept)
            c.ceph("osd", "lost", str(lost), "--yes-i-really-mean-it")
            c.ceph("osd", "out", str(lost))
            c.wait_clean()
            with rados.Rados(conffile=c.conf) as cluster, cluster.open_ioctx("p") as ioctx:
                self.assertEqual(sorted(o.key for o in ioctx.list_objects()), sorted(NAMES))
                for name in gone:
                    ioctx.remove_object(name)
                c.ceph("osd", "pool", "set", "p", "pg_num", "1")
                c.wait(lambda: len(c.json("pg", "ls-by-pool", "p")["pg_stats"]) == 1, 60, what="the merge")
                c.wait_clean()
                self.assertEqual(sorted(o.key for o in ioctx.list_objects()), sorted(NAMES - gone))
                for name in NAMES - gone:
                    self.assertEqual(ioctx.read(name), name.encode())

    def test_an_import_makes_nothing_of_what_it_leaves_out(self):
        """Two split off at once, and one of them is here. Objects of the other cannot be where those of the one are not, and are left
        out, too. It must not be made when the OSD starts: its log would say that it has them."""
        with Cluster(osds=3, size=1) as c:
            first, path = self.exported(c)
            lost, kept = self.split(c, first, 4)
            pgs = {name: c.json("osd", "map", "p", name)["pgid"][-1] for name in NAMES}
            come = [name for name in NAMES if pgs[name] in "02"]
            imported = answer(c, kept, "import", path)
            self.assertEqual((imported["objects"], imported["skipped"]), (len(come), len(NAMES) - len(come)))
            self.start(c, kept)
            c.kill(f"osd.{kept}")
            found = answer(c, kept, "stat")["objects_by_pg"]
            self.assertNotIn(first[:-1] + "3", found)
            self.assertEqual(answer(c, kept, "fsck", "--deep")["errors"], [])

    def exported(self, c):
        """The only placement group of a pool, and the file that it is in."""
        c.ceph("osd", "pool", "create", "p", "1", "1", "--autoscale-mode=off")
        c.wait_clean()
        first = f"{c.json('osd', 'pool', 'ls', 'detail')[-1]['pool_id']}.0"
        with rados.Rados(conffile=c.conf) as cluster, cluster.open_ioctx("p") as ioctx:
            for name in NAMES:
                ioctx.write_full(name, name.encode())
        path = os.path.join(c.dir, "pg.export")
        osd = self.place(c, first)
        c.down()
        self.assertEqual(answer(c, osd, "export", first, path)["objects"], len(NAMES))
        c.up()
        c.wait_clean()
        return first, path

    def place(self, c, pg):
        return c.json("pg", "map", pg)["acting"][0]

    def split(self, c, first, pg_num):
        """Splits it, leaves the second of them alone on one OSD, and kills that and the one where all others are: both."""
        c.ceph("osd", "pool", "set", "p", "pg_num", str(pg_num))
        c.ceph("osd", "pool", "set", "p", "pgp_num", str(pg_num))
        c.wait(lambda: len(c.json("pg", "ls-by-pool", "p")["pg_stats"]) == pg_num, what="the split")
        c.wait_clean()
        lost = self.place(c, first)
        kept = (lost + 1) % 3
        for n in range(pg_num):
            pg, osd = f"{first[:-1]}{n}", kept if n == 1 else lost
            if self.place(c, pg) != osd:
                c.ceph("osd", "pg-upmap-items", pg, str(self.place(c, pg)), str(osd))
            c.wait(lambda: self.place(c, pg) == osd, what=f"{pg} on osd.{osd}")
        c.wait_clean()
        # Who had one before removes it.
        c.wait(lambda: c.json("tell", f"osd.{kept}", "status")["num_pgs"] == 1, what="one placement group left")
        for osd in lost, kept:
            c.kill(f"osd.{osd}")
            c.ceph("osd", "down", str(osd))
        return lost, kept

    def start(self, c, osd):
        with open(f"{c.dir}/log/osd.{osd}.log", "ab") as log:
            started = subprocess.Popen([LOLIGO, "osd", "--id", str(osd), "-c", c.conf], stdout=log, stderr=log)
        self.addCleanup(started.wait)
        pathlib.Path(c.dir, "run", f"osd.{osd}.pid").write_text(f"{started.pid}\n")
        c.wait(lambda: c.json("osd", "stat")["num_up_osds"] == 2, what="two OSDs up")

    def third(self, c):
        """A third OSD that has all maps and no placement groups."""
        c.ceph("osd", "set", "noin")
        c.options["osds"] = 3
        c.up()
        c.wait(lambda: c.json("osd", "stat")["num_up_osds"] == 3, what="three OSDs up")
        c.wait_clean()


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
