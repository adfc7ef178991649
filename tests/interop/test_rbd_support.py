"""The manager's module `rbd_support` through Debian's `rbd` and `ceph` 16.2: schedules of trash
purges and mirror snapshots (that really fire), tasks, counts by image; and that all of it outlives
the manager. About 80 s: the shortest schedule is a minute, the rest runs meanwhile."""
import json
import os
import subprocess
import time
import unittest

from cluster import LOLIGO, Cluster

MIB = 1 << 20


def setUpModule():
    global cluster
    cluster = Cluster().__enter__()
    for pool in ("rbd", "other", "quiet"):
        cluster.ceph("osd", "pool", "create", pool, "8", "8")
    cluster.wait_clean()
    for pool in ("rbd", "other", "quiet"):
        rbd("pool", "init", pool)
    # A real manager refuses until the module has started.
    cluster.wait(lambda: run("ceph", "rbd", "task", "list").returncode == 0, 60, "the module")
    set_what_fires()


def tearDownModule():
    cluster.__exit__(None, None, None)


def run(*args):
    return cluster.run(*args, check=False)


def rbd(*args, **kw):
    return cluster.run("rbd", *args, **kw).stdout.decode()


def ceph(*args):
    return cluster.ceph("rbd", *args)


def refusal(*args):
    """(exit code, what it says) of a `ceph rbd` command that must fail."""
    r = run("ceph", "rbd", *args)
    return r.returncode, r.stderr.decode().strip()


def held(image):
    """A process that has an image open, until it reads a line."""
    holder = subprocess.Popen(["rbd", "watch", image], stdout=subprocess.PIPE, stdin=subprocess.PIPE,
                              stderr=subprocess.STDOUT, env=dict(os.environ, CEPH_CONF=cluster.conf))
    holder.stdout.readline()
    return holder


def set_what_fires():
    """Schedules that fire a minute from now at most; `Firing` looks at what came of them."""
    rbd("create", "--size", "4M", "other/doomed")
    rbd("create", "--size", "4M", "other/kept")
    rbd("bench", "--io-type", "write", "--io-size", "64K", "--io-total", "256K", "other/doomed")
    rbd("trash", "mv", "other/doomed")
    rbd("trash", "mv", "other/kept", "--expires-at", "2038-01-01")
    rbd("trash", "purge", "schedule", "add", "-p", "other", "1m")
    rbd("mirror", "pool", "enable", "other", "image")
    rbd("mirror", "pool", "peer", "add", "other", "client.x@elsewhere")
    rbd("create", "--size", "4M", "other/mirrored")
    rbd("mirror", "image", "enable", "other/mirrored", "snapshot")
    rbd("mirror", "snapshot", "schedule", "add", "-p", "other", "--image", "mirrored", "1m")


def mirror_snaps():
    snaps = json.loads(rbd("snap", "ls", "-a", "other/mirrored", "--format", "json"))
    return [s for s in snaps if s["namespace"]["type"] == "mirror"]


def tasks():
    return json.loads(ceph("task", "list"))


def no_tasks():
    cluster.wait(lambda: not tasks(), 120, "all tasks done")


def content(image):
    return cluster.run("rbd", "export", "--no-progress", image, "-").stdout


def filled(image, size, *options):
    data = os.urandom(size)
    cluster.run("rbd", "import", "--no-progress", *options, "-", image, input=data)
    return data


def listing(*args):
    return json.loads(ceph(*args))


class ASchedules(unittest.TestCase):
    """Commands and their words; a real Ceph 16.2 answers the same."""

    def test_trash(self):
        rbd("trash", "purge", "schedule", "add", "7d")
        rbd("trash", "purge", "schedule", "add", "-p", "rbd", "2h", "14:05:00")
        rbd("trash", "purge", "schedule", "add", "-p", "rbd", "90m")
        shown = json.loads(rbd("trash", "purge", "schedule", "ls", "-R", "--format", "json"))
        of = {(s["pool"], i["interval"], i["start_time"]) for s in shown for i in s["items"]}
        self.assertEqual(of, {("-", "7d", ""), ("other", "1m", ""), ("rbd", "2h", "14:05:00"), ("rbd", "90m", "")})
        # What has no schedule of its own shows the one above it.
        self.assertEqual([v["name"] for v in listing("trash", "purge", "schedule", "list", "quiet/").values()], [""])
        ids = {p["poolname"]: p["poolnum"] for p in cluster.json("osd", "lspools")}
        level = listing("trash", "purge", "schedule", "list", "rbd/")
        self.assertEqual(level[str(ids["rbd"])]["name"], "rbd/")
        stored = run("rados", "-p", "rbd", "getomapval", "rbd_trash_purge_schedule", str(ids["rbd"]), "/dev/stdout")
        self.assertIn(b'"interval": "2h"', stored.stdout)
        planned = lambda: {s["pool_name"] for s in listing("trash", "purge", "schedule", "status")["scheduled"]}
        cluster.wait(lambda: {"rbd", "other", "quiet"} <= planned(), 90, "all pools planned")
        rbd("trash", "purge", "schedule", "rm", "-p", "rbd", "90m")
        self.assertEqual(len(listing("trash", "purge", "schedule", "list", "rbd/")[str(ids["rbd"])]["schedule"]), 1)
        rbd("trash", "purge", "schedule", "rm", "-p", "rbd")
        rbd("trash", "purge", "schedule", "rm")
        self.assertEqual(listing("trash", "purge", "schedule", "list", "rbd/"), {})

    def test_refusals(self):
        add = ("trash", "purge", "schedule", "add")
        spec = "Error EINVAL: Invalid level spec"
        for args, why in [
            ((*add, "nope/", "5m"), f"{spec} nope/: pool nope does not exist"),
            ((*add, "rbd", "5m"), f"{spec} rbd: failed to parse rbd"),
            ((*add, "rbd/x", "5m"), f"{spec} rbd/x: invalid name rbd/x: image level is not allowed"),
            ((*add, "rbd/ns/", "5m"), f"{spec} rbd/ns/: namespace ns does not exist"),
            ((*add, "rbd/", "5x"), "Error EINVAL: Invalid interval (5x)"),
            ((*add, "rbd/", "5m", "99:00"), "Error EINVAL: Invalid start time 99:00: hour must be in 0..23: 99:00"),
            (("mirror", "snapshot", "schedule", "add", "rbd/x", "1m"), f"{spec} rbd/x: image x does not exist"),
        ]:
            self.assertEqual(refusal(*args), (22, why))

    def test_mirror(self):
        rbd("create", "--size", "4M", "other/plain")
        why = "Invalid level spec other/plain: image plain is not in snapshot mirror mode"
        self.assertEqual(refusal("mirror", "snapshot", "schedule", "add", "other/plain", "1m"), (22, f"Error EINVAL: {why}"))
        rbd("mirror", "snapshot", "schedule", "add", "-p", "other", "1d")
        shown = listing("mirror", "snapshot", "schedule", "list", "other/")
        self.assertEqual({v["name"] for v in shown.values()}, {"other/", "other/mirrored"})
        rbd("mirror", "snapshot", "schedule", "rm", "-p", "other", "1d")
        planned = lambda: [s["image"] for s in listing("mirror", "snapshot", "schedule", "status")["scheduled_images"]]
        cluster.wait(lambda: planned() == ["other/mirrored"], 90, "the image planned")
        # Once one image that could not be read took all of its pool out of the plan.
        rbd("mirror", "pool", "enable", "quiet", "image")
        run("rados", "-p", "other", "setomapval", "rbd_mirroring", "image_damaged", "x")
        rbd("mirror", "snapshot", "schedule", "add", "-p", "quiet", "1d")
        self.assertEqual(planned(), ["other/mirrored"])
        run("rados", "-p", "other", "rmomapkey", "rbd_mirroring", "image_damaged")
        rbd("mirror", "snapshot", "schedule", "rm", "-p", "quiet", "1d")
        rbd("mirror", "pool", "disable", "quiet")


class BTasks(unittest.TestCase):
    def test_flatten_and_remove(self):
        """Once our own librbd told parents of clones of the second kind in a form that only it
        understood: a clone that librbd had made stayed its parent's child when we flattened it, and
        the parent's snapshot stayed in its trash."""
        data = filled("rbd/parent", 6 * MIB)
        rbd("snap", "create", "rbd/parent@s", "--no-progress")
        rbd("clone", "--rbd-default-clone-format", "2", "rbd/parent@s", "rbd/child")
        task = json.loads(ceph("task", "add", "flatten", "child"))
        self.assertEqual(task["message"], "Flattening image rbd/child")
        self.assertEqual(list(task), ["sequence", "id", "message", "refs"])
        self.assertEqual(task["refs"]["action"], "flatten")
        again = json.loads(ceph("task", "add", "flatten", "rbd/child"))
        self.assertEqual(again["id"], task["id"], "the same work is one task")
        no_tasks()
        self.assertNotIn("parent", json.loads(rbd("info", "rbd/child", "--format", "json")))
        self.assertEqual(content("rbd/child"), data)
        self.assertEqual(refusal("task", "add", "remove", "rbd/parent"),
                         (16, "Error EBUSY: [errno 16] RBD image is busy (Image rbd/parent has snapshots)"))
        rbd("snap", "rm", "rbd/parent@s", "--no-progress")
        rbd("trash", "mv", "rbd/child")
        [trashed] = json.loads(rbd("trash", "ls", "rbd", "--format", "json"))
        for args in [("remove", "rbd/parent"), ("trash", "remove", f"rbd/{trashed['id']}")]:
            ceph("task", "add", *args)
        no_tasks()
        self.assertEqual(rbd("ls", "rbd"), "")
        self.assertEqual(rbd("trash", "ls", "rbd"), "")
        left = run("rados", "-p", "rbd", "ls").stdout.decode()
        self.assertNotIn("rbd_data.", left)
        self.assertNotIn("rbd_header.", left)

    def test_migration(self):
        data = filled("rbd/moving", 5 * MIB)
        rbd("snap", "create", "rbd/moving@before", "--no-progress")
        rbd("bench", "--io-type", "write", "--io-size", "64K", "--io-total", "1M", "--io-pattern", "rand", "rbd/moving")
        head = content("rbd/moving")
        rbd("migration", "prepare", "rbd/moving", "other/moved")
        self.assertEqual(refusal("task", "add", "migration", "commit", "other/moved"),
                         (22, "Error EINVAL: [errno 22] RBD invalid argument (Image other/moved has not completed migration)"))
        ceph("task", "add", "migration", "execute", "other/moved")
        no_tasks()
        self.assertIn("state: executed", rbd("status", "other/moved"))
        ceph("task", "add", "migration", "commit", "other/moved")
        no_tasks()
        self.assertEqual(content("other/moved"), head)
        self.assertEqual(content("other/moved@before"), data)
        self.assertEqual(rbd("object-map", "check", "other/moved", "--no-progress"), "")
        self.assertEqual(rbd("trash", "ls", "-a", "rbd"), "")
        rbd("migration", "prepare", "other/moved", "rbd/back")
        ceph("task", "add", "migration", "abort", "rbd/back")
        no_tasks()
        self.assertEqual(content("other/moved"), head)
        self.assertEqual(refusal("task", "add", "migration", "abort", "other/moved"),
                         (22, "Error EINVAL: [errno 22] RBD invalid argument (Image other/moved is not migrating)"))

    def test_migration_of_protected_snapshots(self):
        """Once the source's snapshot kept it from being removed, when nothing said any more that it belonged to a migration: it
        stayed in the trash, and nobody could take it out of there. An abort was refused for ever."""
        for name in ("stays", "moves"):
            data = filled(f"rbd/{name}", 5 * MIB)
            rbd("snap", "create", f"rbd/{name}@s", "--no-progress")
            rbd("snap", "protect", f"rbd/{name}@s")
            rbd("migration", "prepare", f"rbd/{name}", f"other/{name}")
            rbd("clone", f"other/{name}@s", f"rbd/child-of-{name}")
            ceph("task", "add", "migration", "execute", f"other/{name}")
            no_tasks()
            self.assertEqual(content(f"rbd/child-of-{name}"), data)
        ceph("task", "add", "migration", "commit", "other/moves")
        no_tasks()
        self.assertNotIn("moves", rbd("trash", "ls", "-a", "rbd"))
        self.assertEqual(content("rbd/child-of-moves"), data)
        # With the destination its clone would go.
        id = json.loads(ceph("task", "add", "migration", "abort", "other/stays"))["id"]
        cluster.wait(lambda: any("retry_message" in t for t in tasks()), 60, "an attempt")
        self.assertIn("[errno 16]", listing("task", "list", id)["retry_message"])
        ceph("task", "cancel", id)
        self.assertIn("state: executed", rbd("status", "other/stays"))
        for name in ("stays", "moves"):
            rbd("rm", "--no-progress", f"rbd/child-of-{name}")
        ceph("task", "add", "migration", "abort", "other/stays")
        no_tasks()
        self.assertEqual(rbd("trash", "ls", "-a", "rbd"), "")
        for image in ("rbd/stays", "other/moves"):
            self.assertIn("yes", rbd("snap", "ls", image))
            rbd("snap", "unprotect", f"{image}@s")
            rbd("snap", "purge", "--no-progress", image)
            rbd("rm", "--no-progress", image)

    def test_mirrored_images_are_removed_where_they_are_primary(self):
        """Once a copy of another cluster's image was removed, and of those that were not copies the pool went on to say that they
        are mirrored: the other cluster kept its copies for ever."""
        journaled = ("--size", "4M", "--image-feature", "exclusive-lock,journaling")
        before = run("rados", "-p", "other", "listomapkeys", "rbd_mirroring").stdout
        for name in ("ours", "theirs"):
            rbd("create", *journaled, f"other/{name}")
            rbd("mirror", "image", "enable", f"other/{name}", "journal")
        rbd("create", "--size", "4M", "other/by-snapshots")
        rbd("mirror", "image", "enable", "other/by-snapshots", "snapshot")
        rbd("mirror", "image", "demote", "other/theirs")
        id = json.loads(ceph("task", "add", "remove", "other/theirs"))["id"]
        cluster.wait(lambda: any("retry_message" in t for t in tasks()), 60, "an attempt")
        self.assertEqual(listing("task", "list", id)["retry_message"], "[errno 22] RBD invalid argument (error removing image)")
        ceph("task", "cancel", id)
        ceph("task", "add", "remove", "other/ours")
        no_tasks()
        run(LOLIGO, "rbd", "rm", "other/by-snapshots")
        self.assertEqual({"ours", "theirs", "by-snapshots"} & set(rbd("ls", "other").split()), {"theirs"})
        rbd("mirror", "image", "promote", "--force", "other/theirs")
        ceph("task", "add", "remove", "other/theirs")
        no_tasks()
        self.assertEqual(run("rados", "-p", "other", "listomapkeys", "rbd_mirroring").stdout, before)

    def test_a_full_pool_is_emptied(self):
        """Once a task waited until the pool was not full any more, and so did who asked for it."""
        filled("quiet/large", 8 * MIB)
        cluster.ceph("osd", "pool", "set-quota", "quiet", "max_objects", "1")
        cluster.wait(lambda: "full_quota" in cluster.ceph("osd", "pool", "ls", "detail"), 60, "a full pool")
        ceph("task", "add", "remove", "quiet/large")
        no_tasks()
        self.assertNotIn("large", rbd("ls", "quiet"))
        cluster.ceph("osd", "pool", "set-quota", "quiet", "max_objects", "0")
        cluster.wait(lambda: "full_quota" not in cluster.ceph("osd", "pool", "ls", "detail"), 60, "room")

    def test_refusals(self):
        for args, why in [
            (("flatten", "rbd/nope"), (2, "Error ENOENT: [errno 2] RBD image not found (Image rbd/nope does not exist)")),
            (("flatten", "nopool/x"), (2, "Error ENOENT: [errno 2] RADOS object not found (error opening pool 'nopool')")),
            (("remove", "a//b"), (22, "Error EINVAL: Invalid image spec: a//b")),
            (("trash", "remove", "rbd/1234"), (2, "Error ENOENT: [errno 2] RBD image not found (error retrieving image from trash)")),
            (("migration", "execute", "rbd/nope"), (22, "Error EINVAL: [errno 22] RBD invalid argument (Image rbd/nope is not migrating)")),
        ]:
            self.assertEqual(refusal("task", "add", *args), why)
        self.assertEqual(refusal("task", "cancel", "xyz"), (2, "Error ENOENT: No such task xyz"))

    def test_a_task_is_for_the_image_it_was_told_of(self):
        """A removal that waited took the image that had come in its place under the same name. One whose pool was renamed ended, was
        not listed any more, and was done all the same when the next manager read it."""
        cluster.ceph("osd", "pool", "create", "before", "8")
        rbd("pool", "init", "before")
        images = ("rbd/again", "before/one")
        for image in images:
            rbd("create", "--size", "64M", image)
        holders = [held(image) for image in images]
        try:
            for image in images:
                ceph("task", "add", "remove", image)
            cluster.wait(lambda: sum("retry_message" in t for t in tasks()) == 2, 60, "first attempts")
            cluster.ceph("osd", "pool", "rename", "before", "after")
            self.assertEqual({task["refs"]["pool_name"] for task in tasks()}, {"rbd", "after"})
        finally:
            for holder in holders:
                holder.communicate(b"\n")
        run("rbd", "rm", "--no-progress", "rbd/again")
        rbd("create", "--size", "32M", "rbd/again")
        no_tasks()
        self.assertEqual(json.loads(rbd("info", "--format", "json", "rbd/again"))["size"], 32 * MIB)
        self.assertEqual(rbd("ls", "after"), "")
        rbd("rm", "--no-progress", "rbd/again")

    def test_what_fails_is_tried_again_until_it_is_cancelled(self):
        """An image that somebody has open cannot be removed now."""
        rbd("create", "--size", "64M", "rbd/busy")
        holder = held("rbd/busy")
        try:
            id = json.loads(ceph("task", "add", "remove", "rbd/busy"))["id"]
            cluster.wait(lambda: any("retry_message" in t for t in tasks()), 60, "a first attempt")
            task = listing("task", "list", id)
            self.assertEqual(task["retry_message"], "[errno 16] RBD image is busy (error removing image)")
            self.assertEqual(task["retry_attempts"], 1)
            ceph("task", "cancel", id)
            self.assertEqual(tasks(), [])
            self.assertIn("busy", rbd("ls", "rbd"))
        finally:
            holder.kill()
            holder.wait()
            holder.stdout.close()
            holder.stdin.close()


class CPerf(unittest.TestCase):
    def test_counts_are_true(self):
        rbd("create", "--size", "64M", "quiet/hot")
        rbd("create", "--size", "64M", "quiet/cold")
        self.assertEqual(listing("perf", "image", "counters", "quiet")["counters"], [])
        self.assertEqual(refusal("perf", "image", "stats", "nope"),
                         (2, "Error ENOENT: [errno 2] RADOS object not found (Pool 'nope' not found)"))
        # OSDs count from when they have been told: the first image that shows says that they have.
        def told():
            rbd("bench", "--io-type", "write", "--io-size", "4K", "--io-total", "64K", "quiet/cold")
            return listing("perf", "image", "counters", "quiet")["counters"]
        cluster.wait(told, 60, "OSDs count")
        rbd("bench", "--io-type", "write", "--io-size", "4K", "--io-total", "1M", "--rbd-cache", "false", "quiet/hot")
        def counted():
            answer = listing("perf", "image", "counters", "quiet")
            return {k.partition("/")[2]: v for c in answer["counters"] for k, v in c.items()}.get("hot", [0])
        cluster.wait(lambda: len(counted()) > 1 and counted()[2] >= MIB, 60, "all writes reported")
        # librbd may join writes that lie side by side.
        write_ops, read_ops, write_bytes, read_bytes, write_latency, read_latency = counted()
        self.assertTrue(1 <= write_ops <= 256, write_ops)
        self.assertEqual((read_ops, write_bytes, read_bytes, read_latency), (0, MIB, 0, 0))
        self.assertGreater(write_latency, 0)

    def test_iostat(self):
        rbd("create", "--size", "64M", "quiet/live")
        env = dict(os.environ, CEPH_CONF=cluster.conf)
        load = subprocess.Popen(["rbd", "bench", "--io-type", "write", "--io-size", "4K", "--io-total", "100G",
                                 "quiet/live"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)
        # What OSDs told before the load began is shown first, if the pool is watched already.
        def live():
            out = rbd("perf", "image", "iostat", "quiet", "--iterations", "1", "--format", "json", timeout=120)
            return [s for s in json.loads(out) if s["image"] == "live" and s["write_ops"] > 0]
        try:
            cluster.wait(live, 60, "the image's writes")
        finally:
            load.kill()
            load.wait()


class DFailover(unittest.TestCase):
    def test_all_of_it_outlives_the_manager(self):
        rbd("trash", "purge", "schedule", "add", "-p", "rbd", "3d")
        before = {kind: listing(*kind, "schedule", "list") for kind in [("trash", "purge"), ("mirror", "snapshot")]}
        old = cluster.json("mgr", "dump")
        self.assertIn("rbd_support", old["always_on_modules"]["pacific"])
        # Once who could write to one pool could have images of all others removed: its list of tasks was believed where they are.
        rbd("create", "--size", "4M", "rbd/victim")
        forged = {"sequence": 4000, "id": "0", "message": "Removing image", "refs":
                  {"action": "remove", "pool_name": "rbd", "pool_namespace": "", "image_name": "victim"}}
        run("rados", "-p", "quiet", "setomapval", "rbd_task", "0000000000000FA0", json.dumps(forged))
        endless = dict(forged, sequence=(1 << 64) - 1)
        run("rados", "-p", "quiet", "setomapval", "rbd_task", "FFFFFFFFFFFFFFFF", json.dumps(endless))
        clients = [a["addrvec"][0]["nonce"] for a in old["active_clients"] if a["name"] == "rbd_support"]
        cluster.ceph("mgr", "fail", old["active_name"])
        def again():
            now = cluster.json("mgr", "dump")
            return now["available"] and now["active_change"] != old["active_change"]
        cluster.wait(again, 60, "a new active manager")
        cluster.wait(lambda: run("ceph", "rbd", "task", "list").returncode == 0, 60, "the module")
        no_tasks()
        self.assertIn("victim", rbd("ls", "rbd"))
        rbd("create", "--size", "4M", "rbd/next")
        self.assertEqual(json.loads(ceph("task", "add", "remove", "rbd/next"))["sequence"], 4001)
        no_tasks()
        after = {kind: listing(*kind, "schedule", "list") for kind in before}
        self.assertEqual(after, before)
        # Nothing that the old one has sent may still arrive.
        blocked = cluster.ceph("osd", "blocklist", "ls")
        for nonce in clients:
            self.assertIn(f"/{nonce} ", blocked)
        rbd("trash", "purge", "schedule", "rm", "-p", "rbd")


class EFiring(unittest.TestCase):
    def test_what_is_due_is_done(self):
        names = lambda: [t["name"] for t in json.loads(rbd("trash", "ls", "other", "--format", "json"))]
        cluster.wait(lambda: names() == ["kept"], 150, "the trash purged")
        cluster.wait(lambda: len(mirror_snaps()) > 1, 150, "a mirror snapshot")
        first, *_, last = mirror_snaps()
        self.assertEqual(last["namespace"]["state"], "primary")
        self.assertTrue(last["namespace"]["complete"])
        self.assertEqual(last["namespace"]["mirror_peer_uuids"], first["namespace"]["mirror_peer_uuids"])
        # What a mirror daemon needs to know is written as librbd writes it.
        id = json.loads(rbd("info", "other/mirrored", "--format", "json"))["id"]
        state = lambda snap: run("rados", "-p", "other", "get", f"rbd_mirror_snapshot.{id}.{snap['id']}.0", "-").stdout
        self.assertTrue(state(first))
        self.assertEqual(state(last), state(first))


if __name__ == "__main__":
    unittest.main(verbosity=2)
