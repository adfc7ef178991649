"""python3-rbd: every method of RBD, Image and Group, with its effect checked. The last test fails
if a method of the package was left out. About 30 s."""
import datetime
import os
import unittest

import rados as librados
import rbd

from cluster import Cluster

MIB = 1 << 20
called = set()


def recorded(cls):
    """The class, noting which of its methods are called."""
    class Recorded(cls):
        def __getattribute__(self, name):
            if not name.startswith("_"):
                called.add(f"{cls.__name__}.{name}")
            return super().__getattribute__(name)
    Recorded.__name__ = cls.__name__
    return Recorded


RBD, Image, Group = recorded(rbd.RBD), recorded(rbd.Image), recorded(rbd.Group)
api = RBD()


def setUpModule():
    global cluster, client, io, other
    cluster = Cluster().__enter__()
    for pool in ("py", "py2"):
        cluster.pool(pool)
    client = librados.Rados(conffile=cluster.conf)
    client.connect()
    io, other = client.open_ioctx("py"), client.open_ioctx("py2")
    for pool in (io, other):
        api.pool_init(pool, True)


def tearDownModule():
    io.close()
    other.close()
    client.shutdown()
    cluster.__exit__(None, None, None)


def create(name, size=8 * MIB, pool=None, **kw):
    api.create(pool or io, name, size, **kw)
    return name


def wait(start):
    """Runs an asynchronous call: `start(callback)` returns its completion."""
    got = []
    completion = start(lambda *args: got.append(args))
    completion.wait_for_complete_and_cb()
    return completion.get_return_value(), got[0]


class Images(unittest.TestCase):
    def test_names_and_features(self):
        self.assertEqual(len(api.version()), 3)
        bits = api.features_from_string("layering,striping")
        self.assertEqual(bits, rbd.RBD_FEATURE_LAYERING | rbd.RBD_FEATURE_STRIPINGV2)
        self.assertEqual(api.features_to_string(bits), "layering,striping")
        create("a", features=bits, stripe_unit=65536, stripe_count=3, order=20)
        self.assertIn("a", api.list(io))
        ids = {image["name"]: image["id"] for image in api.list2(io)}
        with Image(io, "a") as image:
            self.assertEqual((image.features(), image.stripe_unit(), image.stripe_count()),
                             (bits, 65536, 3))
            self.assertEqual((image.id(), image.get_name()), (ids["a"], "a"))
            self.assertEqual(image.block_name_prefix(), f"rbd_data.{image.id()}")
            self.assertEqual((image.size(), image.flags(), image.op_features()), (8 * MIB, 0, 0))
            self.assertEqual(image.stat()["num_objs"], 9)  # three stripes of three
            self.assertFalse(image.old_format())
            self.assertEqual(image.data_pool_id(), io.get_pool_id())
            self.assertEqual(image.group(), {"name": "", "pool": -1})
            now = datetime.datetime.utcnow()
            for stamp in (image.create_timestamp, image.access_timestamp, image.modify_timestamp):
                self.assertLess(abs((now - stamp()).total_seconds()), 600)
            with self.assertRaises(rbd.InvalidArgument):
                image.encryption_load(rbd.RBD_ENCRYPTION_FORMAT_LUKS1, "nothing to load")
            with self.assertRaises(Exception):
                image.migration_source_spec()
            image.update_features(rbd.RBD_FEATURE_EXCLUSIVE_LOCK, True)
            self.assertTrue(image.features() & rbd.RBD_FEATURE_EXCLUSIVE_LOCK)
        image.close()
        with self.assertRaises(rbd.InvalidArgument):
            image.require_not_closed()
        with self.assertRaises(rbd.ImageExists):
            create("a")
        api.rename(io, "a", "b")
        with self.assertRaises(rbd.ImageNotFound):
            Image(io, "a")
        api.remove(io, "b")
        self.assertEqual(api.list(io), [n for n in api.list(io) if n != "b"])

    def test_io(self):
        with Image(io, create("io")) as image:
            data = os.urandom(100_000)
            self.assertEqual(image.write(data, MIB - 5), len(data))
            self.assertEqual(image.read(MIB - 5, len(data)), data)
            image.discard(2 * MIB, MIB)
            image.write_zeroes(MIB, 4096)
            self.assertEqual(image.read(MIB, 4096), bytes(4096))
            image.flush()
            image.invalidate_cache()
            self.assertEqual(image.read(MIB + 4096, 10), data[4101:4111])
            with self.assertRaises(rbd.InvalidArgument):
                image.read(9 * MIB, 1)
            self.assertEqual(wait(lambda cb: image.aio_write(b"later", 0, cb))[0], 0)
            result, (_, read) = wait(lambda cb: image.aio_read(0, 5, cb))
            self.assertEqual((result, read), (5, b"later"))
            self.assertEqual(wait(lambda cb: image.aio_write_zeroes(0, 5, cb))[0], 0)
            self.assertEqual(wait(lambda cb: image.aio_discard(0, MIB, cb))[0], 0)
            self.assertEqual(wait(lambda cb: image.aio_flush(cb))[0], 0)
            extents = []
            image.diff_iterate(0, image.size(), None, lambda *extent: extents.append(extent))
            self.assertTrue(extents and all(exists for _, _, exists in extents))
            image.sparsify(4096)
            image.resize(MIB)
            self.assertEqual(image.size(), MIB)
            image.rebuild_object_map()
            self.assertEqual(len(list(image.watchers_list())), 1)
        opened = []
        completion = api.aio_open_image(lambda _, image: opened.append(image), io, "io")
        completion.wait_for_complete_and_cb()
        self.assertEqual((completion.get_return_value(), opened[0].get_name()), (0, "io"))
        completion = opened[0].aio_close(lambda _: called.add("Image.aio_close"))
        completion.wait_for_complete_and_cb()
        self.assertEqual(completion.get_return_value(), 0)

    def test_copies(self):
        with Image(io, create("from")) as image:
            image.write(b"data", 4 * MIB)
            image.create_snap("s")
            image.copy(other, "copy")
            image.deep_copy(other, "deep")
        for name in ("copy", "deep"):
            with Image(other, name, read_only=True) as image:
                self.assertEqual(image.read(4 * MIB, 4), b"data")
                with self.assertRaises(rbd.ReadOnlyImage):
                    image.write(b"x", 0)

    def test_metadata_and_config(self):
        with Image(io, create("meta")) as image:
            image.metadata_set("k", "v")
            self.assertEqual(image.metadata_get("k"), "v")
            self.assertEqual(list(image.metadata_list()), [("k", "v")])
            image.metadata_remove("k")
            with self.assertRaises(KeyError):
                image.metadata_get("k")
            image.config_set("rbd_cache", "false")
            self.assertEqual(image.config_get("rbd_cache"), "false")
            self.assertTrue(any(o["name"] == "rbd_cache" for o in image.config_list()))
            image.config_remove("rbd_cache")
        api.pool_metadata_set(io, "pk", "pv")
        self.assertEqual(api.pool_metadata_get(io, "pk"), "pv")
        self.assertEqual(list(api.pool_metadata_list(io)), [("pk", "pv")])
        api.pool_metadata_remove(io, "pk")
        api.config_set(io, "rbd_cache", "false")
        self.assertEqual(api.config_get(io, "rbd_cache"), "false")
        self.assertTrue(any(o["name"] == "rbd_cache" for o in api.config_list(io)))
        api.config_remove(io, "rbd_cache")
        self.assertGreater(api.pool_stats_get(io)["image_count"], 0)

    def test_locks(self):
        with Image(io, create("locks")) as image:
            image.lock_acquire(rbd.RBD_LOCK_MODE_EXCLUSIVE)
            self.assertTrue(image.is_exclusive_lock_owner())
            owner = list(image.lock_get_owners())[0]["owner"]
            with Image(io, "locks") as second, self.assertRaises(rbd.ImageBusy):
                second.lock_break(rbd.RBD_LOCK_MODE_EXCLUSIVE, "not " + owner)
            image.lock_release()
            self.assertFalse(image.is_exclusive_lock_owner())
        with Image(io, create("advisory", features=rbd.RBD_FEATURE_LAYERING)) as image:
            image.lock_exclusive("one")
            with self.assertRaises(rbd.ImageBusy):
                image.lock_shared("two", "tag")
            locker, cookie, _ = image.list_lockers()["lockers"][0]
            self.assertEqual(cookie, "one")
            image.unlock("one")
            image.lock_shared("two", "tag")
            with self.assertRaises(rbd.InvalidArgument):
                image.break_lock("client.x", "two")
            image.unlock("two")
            self.assertEqual(image.list_lockers(), [])

    def test_encryption(self):
        with Image(io, create("luks", 32 * MIB)) as image:
            image.encryption_format(rbd.RBD_ENCRYPTION_FORMAT_LUKS1, "password")
            image.write(b"secret", 0)
        with Image(io, "luks") as image:
            self.assertEqual(image.read(0, 4), b"LUKS")
            image.encryption_load(rbd.RBD_ENCRYPTION_FORMAT_LUKS1, "password")
            self.assertEqual(image.read(0, 6), b"secret")


class Snapshots(unittest.TestCase):
    def test_snapshots(self):
        with Image(io, create("snaps")) as image:
            image.write(b"one", 0)
            image.create_snap("a")
            image.write(b"two", 0)
            snap = list(image.list_snaps())[0]
            self.assertEqual((snap["name"], snap["size"]), ("a", 8 * MIB))
            self.assertTrue(image.snap_exists("a"))
            self.assertEqual(image.snap_get_id("a"), snap["id"])
            self.assertEqual(image.snap_get_name(snap["id"]), "a")
            self.assertEqual(image.snap_get_namespace_type(snap["id"]),
                             rbd.RBD_SNAP_NAMESPACE_TYPE_USER)
            self.assertIsInstance(image.get_snap_timestamp(snap["id"]), datetime.datetime)
            for read in (image.snap_get_group_namespace, image.snap_get_mirror_namespace,
                         image.snap_get_trash_namespace):
                with self.assertRaises(rbd.InvalidArgument):
                    read(snap["id"])
            for choose, what in ((image.set_snap, "a"), (image.set_snap_by_id, snap["id"])):
                choose(what)
                self.assertEqual(image.read(0, 3), b"one")
                choose(None)
            image.rollback_to_snap("a")
            self.assertEqual(image.read(0, 3), b"one")
            image.rename_snap("a", "b")
            image.protect_snap("b")
            self.assertTrue(image.is_protected_snap("b"))
            with self.assertRaises(rbd.ImageBusy):
                image.remove_snap("b")
            image.unprotect_snap("b")
            image.set_snap_limit(1)
            self.assertEqual(image.get_snap_limit(), 1)
            with self.assertRaises(rbd.DiskQuotaExceeded):
                image.create_snap("c")
            image.remove_snap_limit()
            image.create_snap("c")
            image.create_snap("d")
            image.remove_snap("b")
            image.remove_snap2("c", rbd.RBD_SNAP_REMOVE_UNPROTECT)
            image.remove_snap_by_id(image.snap_get_id("d"))
            self.assertEqual(list(image.list_snaps()), [])

    def test_clones(self):
        with Image(io, create("parent")) as parent:
            parent.write(b"inherited", 0)
            parent.create_snap("s")
            parent.protect_snap("s")
            api.clone(io, "parent", "s", other, "child")
            parent.set_snap("s")
            self.assertEqual(list(parent.list_children()), [("py2", "child")])
            self.assertEqual([c["image"] for c in parent.list_children2()], ["child"])
            self.assertEqual([c["image"] for c in parent.list_descendants()], ["child"])
            parent.set_snap(None)
            with Image(other, "child") as child:
                self.assertEqual(child.parent_info(), ("py", "parent", "s"))
                self.assertEqual(child.parent_id(), parent.id())
                self.assertEqual(child.get_parent_image_spec()["image_name"], "parent")
                self.assertEqual(child.overlap(), 8 * MIB)
                self.assertEqual(child.read(0, 9), b"inherited")
                child.write(b"OWN", 3)
                self.assertEqual(child.read(0, 9), b"inhOWNted")
                child.flatten()
                self.assertEqual(child.read(0, 9), b"inhOWNted")
                with self.assertRaises(rbd.ImageNotFound):
                    child.parent_info()
            parent.unprotect_snap("s")
            parent.remove_snap("s")


class Pools(unittest.TestCase):
    def test_trash(self):
        create("rubbish")
        api.trash_move(io, "rubbish", 0)
        entry = [e for e in api.trash_list(io) if e["name"] == "rubbish"][0]
        self.assertEqual(api.trash_get(io, entry["id"])["source"], "USER")
        api.trash_restore(io, entry["id"], "again")
        api.trash_move(io, "again", 1000)
        with self.assertRaises(rbd.PermissionError):
            api.trash_remove(io, entry["id"])
        api.trash_remove(io, entry["id"], force=True)
        create("purged")
        api.trash_move(io, "purged", 0)
        api.trash_purge(io)
        self.assertEqual(list(api.trash_list(io)), [])

    def test_namespaces(self):
        api.namespace_create(io, "ns")
        self.assertTrue(api.namespace_exists(io, "ns"))
        self.assertEqual(api.namespace_list(io), ["ns"])
        api.namespace_remove(io, "ns")
        self.assertFalse(api.namespace_exists(io, "ns"))

    def test_groups(self):
        create("member")
        api.group_create(io, "g")
        group = Group(io, "g")
        group.add_image(io, "member")
        self.assertEqual([i["name"] for i in group.list_images()], ["member"])
        with Image(io, "member") as image:
            self.assertEqual(image.group()["name"], "g")
            self.assertEqual(image.op_features(), rbd.RBD_OPERATION_FEATURE_GROUP)
            image.write(b"1", 0)
        group.create_snap("s")
        with Image(io, "member") as image:
            snap = list(image.list_snaps())[0]
            self.assertEqual(image.snap_get_group_namespace(snap["id"])["group_name"]
                             if "group_name" in image.snap_get_group_namespace(snap["id"])
                             else image.snap_get_group_namespace(snap["id"])["name"], "g")
            image.write(b"2", 0)
        group.rollback_to_snap("s")
        with Image(io, "member") as image:
            self.assertEqual(image.read(0, 1), b"1")
        group.rename_snap("s", "t")
        self.assertEqual([s["name"] for s in group.list_snaps()], ["t"])
        group.remove_snap("t")
        group.remove_image(io, "member")
        api.group_rename(io, "g", "h")
        self.assertEqual(api.group_list(io), ["h"])
        api.group_remove(io, "h")

    def test_migration(self):
        with Image(io, create("mover")) as image:
            image.write(b"moves", 0)
        api.migration_prepare(io, "mover", other, "moved")
        self.assertEqual(api.migration_status(other, "moved")["state"],
                         rbd.RBD_IMAGE_MIGRATION_STATE_PREPARED)
        api.migration_execute(other, "moved")
        api.migration_commit(other, "moved")
        with Image(other, "moved") as image:
            self.assertEqual(image.read(0, 5), b"moves")
        api.migration_prepare(other, "moved", io, "back")
        api.migration_abort(other, "moved")
        with self.assertRaises(rbd.InvalidArgument):
            api.migration_prepare_import("{}", io, "imported")


class Mirroring(unittest.TestCase):
    def test_mirroring(self):
        self.assertEqual(api.mirror_mode_get(io), rbd.RBD_MIRROR_MODE_DISABLED)
        api.mirror_site_name_set(client, "here")
        self.assertEqual(api.mirror_site_name_get(client), "here")
        api.mirror_mode_set(io, rbd.RBD_MIRROR_MODE_IMAGE)
        self.assertEqual(len(api.mirror_uuid_get(io)), 36)
        peer = api.mirror_peer_add(io, "there", "client.a")
        api.mirror_peer_set_client(io, peer, "client.b")
        api.mirror_peer_set_cluster(io, peer, "elsewhere")
        api.mirror_peer_set_name(io, peer, "far")
        known = list(api.mirror_peer_list(io))[0]
        self.assertEqual((known["uuid"], known["client_name"], known["site_name"]),
                         (peer, "client.b", "far"))
        api.mirror_peer_set_attributes(io, peer, {rbd.RBD_MIRROR_PEER_ATTRIBUTE_NAME_KEY: "k"})
        self.assertEqual(api.mirror_peer_get_attributes(io, peer),
                         {rbd.RBD_MIRROR_PEER_ATTRIBUTE_NAME_KEY: "k"})
        token = api.mirror_peer_bootstrap_create(io)
        with self.assertRaises(rbd.InvalidArgument):
            api.mirror_peer_bootstrap_import(io, rbd.RBD_MIRROR_PEER_DIRECTION_RX, token)
        for name, mode in (("j", rbd.RBD_MIRROR_IMAGE_MODE_JOURNAL),
                           ("s", rbd.RBD_MIRROR_IMAGE_MODE_SNAPSHOT)):
            create(name)
            with Image(io, name) as image:
                if name == "j":
                    image.update_features(rbd.RBD_FEATURE_JOURNALING, True)
                image.mirror_image_enable(mode)
                info = image.mirror_image_get_info()
                self.assertEqual((info["state"], info["primary"]),
                                 (rbd.RBD_MIRROR_IMAGE_ENABLED, True))
                self.assertEqual(image.mirror_image_get_mode(), mode)
                self.assertEqual(wait(image.aio_mirror_image_get_info)[0], 0)
                self.assertEqual(wait(image.aio_mirror_image_get_mode)[0], 0)
                self.assertEqual(image.mirror_image_get_status()["name"], name)
                with self.assertRaises(rbd.ImageNotFound):
                    image.mirror_image_get_instance_id()
                if name == "s":
                    snap = image.mirror_image_create_snapshot()
                    self.assertEqual(image.snap_get_mirror_namespace(snap)["state"],
                                     rbd.RBD_SNAP_MIRROR_STATE_PRIMARY)
                    done = wait(lambda cb: image.aio_mirror_image_create_snapshot(0, cb))
                    self.assertEqual(done[0], 0)
                image.mirror_image_demote()
                self.assertFalse(image.mirror_image_get_info()["primary"])
                image.mirror_image_resync()
                image.mirror_image_promote(True)
        self.assertEqual({i["name"] for i in api.mirror_image_status_list(io)}, {"j", "s"})
        unknown = [(rbd.MIRROR_IMAGE_STATUS_STATE_UNKNOWN, 2)]
        self.assertEqual(api.mirror_image_status_summary(io), unknown)
        self.assertEqual(list(api.mirror_image_instance_id_list(io)), [])
        self.assertEqual(len(list(api.mirror_image_info_list(io))), 2)
        for name in ("j", "s"):
            with Image(io, name) as image:
                image.mirror_image_disable(True)
        api.mirror_peer_remove(io, peer)
        api.mirror_mode_set(io, rbd.RBD_MIRROR_MODE_DISABLED)


class ZLast(unittest.TestCase):
    def test_no_method_is_left_out(self):
        every = {f"{cls.__name__}.{name}" for cls in (rbd.RBD, rbd.Image, rbd.Group)
                 for name in vars(cls) if not name.startswith("_")}
        self.assertEqual(every - called, set())


if __name__ == "__main__":
    unittest.main(verbosity=2)
