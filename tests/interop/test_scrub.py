"""Scrub, deep scrub, repair: what `rados list-inconsistent-*`, health and the PG's state say of
damaged copies. The tests of what is printed pass on a real Ceph 16.2 too. About 30 s on a quiet machine."""
import json
import mmap
import pathlib
import sys
import time

from cluster import Cluster

DATA = b"hello scrub" * 300


class Scrubbed:
    """A pool of one PG, and its scrubs."""

    def __init__(self, c):
        self.c = c
        c.pool("p", 1)
        where = c.json("osd", "map", "p", "x")
        self.pg, self.acting = where["pgid"], where["acting"]

    def put(self, name):
        self.c.run("rados", "-p", "p", "put", name, "-", input=DATA)
        self.c.run("rados", "-p", "p", "setxattr", name, "a", "1")
        self.c.run("rados", "-p", "p", "setomapval", name, "k", "v")

    def history(self):
        return self.c.json("pg", self.pg, "query")["info"]["history"]

    def scrub(self, word):
        stamp = "last_scrub_stamp" if word == "scrub" else "last_deep_scrub_stamp"
        before = self.history()[stamp]
        self.c.ceph("pg", word, self.pg)
        self.c.wait(lambda: self.history()[stamp] != before, 20, f"{word} of {self.pg}")

    def damage(self, osd, *command):
        reply = self.c.ceph("tell", f"osd.{osd}", *command)
        assert reply.strip() == "ok", (command, reply)

    def bad(self, what="obj"):
        out = self.c.run("rados", f"list-inconsistent-{what}", self.pg).stdout
        return {o["object"]["name"] if what == "obj" else o["name"]: o for o in json.loads(out)["inconsistents"]}

    def state(self):
        return self.c.json("pg", self.pg, "query")["state"]

    def errors(self):
        s = self.c.json("pg", self.pg, "query")["info"]["stats"]["stat_sum"]
        return s["num_scrub_errors"], s["num_shallow_scrub_errors"], s["num_deep_scrub_errors"]


def nothing_wrong(s):
    r = s.c.run("rados", "list-inconsistent-obj", s.pg, check=False)
    assert r.returncode == 1, r
    assert b"No scrub information available for pg " + s.pg.encode() in r.stderr, r
    for word in ("scrub", "deep-scrub"):
        s.scrub(word)
        assert s.bad() == {} and s.errors() == (0, 0, 0), (s.bad(), s.errors())
    assert s.bad("snapset") == {}
    assert json.loads(s.c.run("rados", "list-inconsistent-pg", "p").stdout) == []
    h = s.history()
    assert h["last_scrub"] == h["last_deep_scrub"] != "0'0", h
    stats = s.c.json("pg", s.pg, "query")["info"]["stats"]["stat_sum"]
    assert stats["num_omap_keys"] == 8 and stats["num_omap_bytes"] == 8, stats


def damage_is_found(s):
    primary, first, second = s.acting
    s.damage(first, "truncobj", "p", "size", "5")
    s.damage(first, "setomapval", "p", "omap", "k", "w")
    s.damage(second, "injectdataerr", "p", "data")
    s.damage(second, "injectmdataerr", "p", "meta")
    s.damage(primary, "truncobj", "p", "lead", "7")
    s.damage(primary, "injectdataerr", "p", "eio")
    s.scrub("deep-scrub")
    # (errors, union_shard_errors, shards with errors) as a real Ceph 16.2 prints them.
    size = ["data_digest_mismatch_info", "size_mismatch_info", "obj_size_info_mismatch"]
    expected = {
        "size": (["data_digest_mismatch", "size_mismatch"], size, {first: size}),
        "omap": (["omap_digest_mismatch"], [], {}),
        "data": ([], ["read_error"], {second: ["read_error"]}),
        "meta": ([], ["stat_error"], {second: ["stat_error"]}),
        "lead": (["data_digest_mismatch", "size_mismatch"], size, {primary: size}),
        "eio": ([], ["read_error"], {primary: ["read_error"]}),
    }
    bad = s.bad()
    assert sorted(bad) == sorted(expected), sorted(bad)
    assert list(bad) == sorted(bad), "by name"
    for name, (errors, union, shards) in expected.items():
        o = bad[name]
        assert o["errors"] == errors and o["union_shard_errors"] == union, (name, o)
        assert {x["osd"]: x["errors"] for x in o["shards"] if x["errors"]} == shards, (name, o)
        assert [x["osd"] for x in o["shards"] if x["primary"]] == [primary], (name, o)
        info = o["selected_object_info"]
        assert info["size"] == len(DATA) and info["data_digest"] == "0x47e49732", (name, info)
        assert info["flags"] == ["dirty", "omap", "data_digest"], info
    shard = [x for x in bad["omap"]["shards"] if x["osd"] == primary][0]
    assert (shard["omap_digest"], shard["data_digest"], shard["size"]) == ("0x671636db", "0x47e49732", len(DATA)), shard
    # Deep errors: size and lead a copy and the object each, omap the object, data and eio a copy;
    # shallow: the copy that cannot be looked at.
    assert s.errors() == (8, 1, 7), s.errors()
    assert s.state() == "active+clean+inconsistent", s.state()
    s.c.wait(lambda: json.loads(s.c.run("rados", "list-inconsistent-pg", "p").stdout) == [s.pg], 10, "list-inconsistent-pg")
    s.c.wait(lambda: "PG_DAMAGED" in s.c.ceph("health", "detail"), 10, "health")
    lines = s.c.ceph("health", "detail").splitlines()
    acting = ",".join(map(str, s.acting))
    for line in ("[ERR] OSD_SCRUB_ERRORS: 8 scrub errors",
                 "[ERR] PG_DAMAGED: Possible data damage: 1 pg inconsistent",
                 f"    pg {s.pg} is active+clean+inconsistent, acting [{acting}]"):
        assert line in lines, (line, lines)
    log = s.c.ceph("log", "last", "100")
    for text in (f"{s.pg} deep-scrub 0 missing, 6 inconsistent objects", f"{s.pg} deep-scrub 8 errors",
                 f"{s.pg} shard {second} soid", "candidate had a read error", "candidate size 5 info size 3300 mismatch"):
        assert text in log, (text, log)


def a_read_repairs_its_object(s):
    """The primary cannot read its copy: it fetches another and answers."""
    assert s.c.run("rados", "-p", "p", "get", "eio", "-").stdout == DATA
    s.c.wait(lambda: "recover" not in s.state(), 10, "recovery")


def repair(s):
    s.scrub("repair")
    s.c.wait(lambda: s.state() == "active+clean", 20, "repaired")
    s.scrub("deep-scrub")
    assert s.bad() == {} and s.errors() == (0, 0, 0), (s.bad(), s.errors())
    s.c.wait(lambda: "PG_DAMAGED" not in s.c.ceph("health", "detail"), 10, "health")
    for name in ("size", "omap", "data", "meta", "lead", "eio"):
        assert s.c.run("rados", "-p", "p", "get", name, "-").stdout == DATA, name
    assert s.c.run("rados", "-p", "p", "getomapval", "omap", "k", "-").stdout == b"v"
    assert s.c.ceph("tell", f"osd.{s.acting[1]}", "getomap", "p", "omap").strip() == "header= key=k val=v"


def bit_rot(s):
    """A byte of an object changes on the device of a stopped OSD: only deep scrub sees it, and
    auto repair sets it right."""
    name, data = "rot", bytes(range(7, 247)) * 5000
    s.c.run("rados", "-p", "p", "put", name, "-", input=data)
    # Damage to the last write of all would be taken for a write that was cut short.
    s.put("also")
    osd = s.acting[2]
    s.c.kill(f"osd.{osd}")
    device = pathlib.Path(s.c.dir, "osd", str(osd), "block")
    with open(device, "r+b") as f:
        image = mmap.mmap(f.fileno(), 0)
        at = image.find(data[:4096])
        assert at >= 0, "the object's bytes are not on the device"
        image[at + 100] ^= 1
        image.close()
    s.c.up()
    s.c.wait_clean()
    s.scrub("scrub")
    assert s.bad() == {}, s.bad()
    s.scrub("deep-scrub")
    errors = {x["osd"]: x["errors"] for x in s.bad()[name]["shards"] if x["errors"]}
    assert errors == {osd: ["read_error"]}, s.bad()[name]
    assert s.state() == "active+clean+inconsistent", s.state()
    # Errors of a deep scrub make the next one deep; it may repair.
    s.c.ceph("config", "set", "osd", "osd_scrub_auto_repair", "true")
    s.c.ceph("osd", "pool", "set", "p", "scrub_min_interval", "1")
    s.c.wait(lambda: s.errors() == (0, 0, 0) and "inconsistent" not in s.state(), 20, "auto repair")
    s.c.ceph("osd", "pool", "set", "p", "scrub_min_interval", "0")
    s.c.ceph("config", "rm", "osd", "osd_scrub_auto_repair")
    s.c.wait(lambda: s.state() == "active+clean", 10, "clean")
    s.scrub("deep-scrub")
    assert s.bad() == {} and s.errors() == (0, 0, 0), s.bad()


def rot_under_a_cache(s):
    """A byte changes on the device of a running OSD under blocks that its store keeps in memory: readers do not see it, a deep scrub does."""
    name, data = "kept", bytes(range(11, 239)) * 36
    s.c.run("rados", "-p", "p", "put", name, "-", input=data)
    osd = s.acting[0]
    assert s.c.run("rados", "-p", "p", "get", name, "-").stdout == data
    with open(pathlib.Path(s.c.dir, "osd", str(osd), "block"), "r+b") as f:
        image = mmap.mmap(f.fileno(), 0)
        at = image.find(data[:4096])
        assert at >= 0, "the object's bytes are not on the device"
        image[at + 100] ^= 1
        image.flush()
        image.close()
    assert s.c.run("rados", "-p", "p", "get", name, "-").stdout == data
    s.scrub("deep-scrub")
    errors = {x["osd"]: x["errors"] for x in s.bad()[name]["shards"] if x["errors"]}
    assert errors == {osd: ["read_error"]}, s.bad()[name]
    s.scrub("repair")
    s.scrub("deep-scrub")
    assert s.bad() == {} and s.errors() == (0, 0, 0), s.bad()


def beyond_repair(s):
    """No good copy is left: repair says so, and a new write mends it."""
    for osd in s.acting:
        s.damage(osd, "injectdataerr", "p", "fine")
    s.scrub("repair")
    state = s.state()
    assert "failed_repair" in state and "inconsistent" in state, state
    s.c.run("rados", "-p", "p", "rm", "fine")
    s.scrub("deep-scrub")
    assert s.errors() == (0, 0, 0) and s.state() == "active+clean", s.state()


def snapshots(s):
    s.c.run("rados", "-p", "p", "mksnap", "s1")
    s.c.run("rados", "-p", "p", "put", "size", "-", input=b"newer")
    s.c.run("rados", "-p", "p", "mksnap", "s2")
    s.c.run("rados", "-p", "p", "rm", "data")
    s.scrub("deep-scrub")
    assert s.bad() == {} and s.bad("snapset") == {} and s.errors() == (0, 0, 0), s.errors()


def while_writing(s):
    """Writes go on, and what they change is no error."""
    import threading
    stop = threading.Event()

    def write():
        while not stop.is_set():
            s.c.run("rados", "-p", "p", "bench", "1", "write", "-b", "4096", "-t", "8", "--no-cleanup")
    t = threading.Thread(target=write)
    t.start()
    try:
        for word in ("scrub", "deep-scrub", "deep-scrub"):
            s.scrub(word)
            assert s.errors() == (0, 0, 0), s.errors()
    finally:
        stop.set()
        t.join()


def by_schedule(s):
    """A scrub that is due begins by itself, but not with noscrub."""
    before = s.history()["last_scrub_stamp"]
    s.c.ceph("osd", "set", "noscrub")
    s.c.ceph("osd", "set", "nodeep-scrub")
    s.c.ceph("osd", "pool", "set", "p", "scrub_min_interval", "1")
    time.sleep(3)
    assert s.history()["last_scrub_stamp"] == before
    s.c.ceph("osd", "unset", "noscrub")
    s.c.wait(lambda: s.history()["last_scrub_stamp"] != before, 10, "scrub by schedule")
    s.c.ceph("osd", "pool", "set", "p", "scrub_min_interval", "0")
    s.c.ceph("osd", "unset", "nodeep-scrub")
    before = s.history()["last_deep_scrub_stamp"]
    primary = f"osd.{s.acting[0]}"
    waiting = json.loads(s.c.ceph("tell", primary, "dump_scrubs"))
    assert [(x["pgid"], x["forced"]) for x in waiting if x["pgid"] == s.pg] == [(s.pg, False)], waiting
    # The date of the last scrub was put back, too: health told of scrubs that had not been missed (osd-scrub-repair.sh, TEST_scrub_warning).
    s.c.ceph("osd", "set", "noscrub")
    shallow = s.history()["last_scrub_stamp"]
    assert json.loads(s.c.ceph("tell", s.pg, "deep_scrub"))["deep"] is True
    assert s.history()["last_scrub_stamp"] == shallow
    s.c.ceph("osd", "unset", "noscrub")
    # It is deep when it is due.
    assert json.loads(s.c.ceph("tell", s.pg, "scrub"))["deep"] is False
    s.c.wait(lambda: s.history()["last_deep_scrub_stamp"] > before, 10, "the deep scrub made due")
    slots = json.loads(s.c.ceph("tell", primary, "dump_scrub_reservations"))
    assert slots == {"scrubs_local": 0, "scrubs_remote": 0, "osd_max_scrubs": 1}, slots


def main():
    with Cluster(osds=3, size=3) as c:
        s = Scrubbed(c)
        for name in ("size", "omap", "data", "meta", "lead", "eio", "fine", "also"):
            s.put(name)
        for test in (nothing_wrong, damage_is_found, a_read_repairs_its_object, repair, bit_rot, rot_under_a_cache, beyond_repair, snapshots, while_writing, by_schedule):
            start = time.monotonic()
            test(s)
            print(f"ok {test.__name__} ({time.monotonic() - start:.1f} s)", flush=True)


if __name__ == "__main__":
    sys.exit(main())
