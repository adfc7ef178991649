"""Who may do what: keys, caps, pools, namespaces; and the other modes: every connection
encrypted, and no authentication at all."""
import errno
import os
import pathlib
import subprocess
import sys
import time
import unittest

import rados

from cluster import Cluster


def keyring_of(cluster, name, *caps):
    key = cluster.json("auth", "get-or-create", name, *caps)[0]["key"]
    return {"key": key}


class Caps(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster().__enter__()
        for pool in ("mine", "theirs"):
            cls.cluster.pool(pool)
        with rados.Rados(conffile=cls.cluster.conf) as admin:
            for pool in ("mine", "theirs"):
                admin.open_ioctx(pool).write_full("o", b"content")

    @classmethod
    def tearDownClass(cls):
        cls.cluster.__exit__(None, None, None)

    def client(self, name, *caps):
        conf = keyring_of(self.cluster, f"client.{name}", *caps)
        return rados.Rados(conffile=self.cluster.conf, name=f"client.{name}", conf=conf)

    def denied(self, call):
        with self.assertRaises(rados.Error) as caught:
            call()
        self.assertIn(caught.exception.errno, (errno.EPERM, errno.EACCES))

    def test_read_only(self):
        with self.client("reader", "mon", "allow r", "osd", "allow r") as c:
            io = c.open_ioctx("mine")
            self.assertEqual(io.read("o"), b"content")
            self.denied(lambda: io.write_full("o", b"changed"))
            self.denied(lambda: io.remove_object("o"))
            self.denied(lambda: io.set_xattr("o", "a", b"b"))

    def test_one_pool(self):
        with self.client("pooled", "mon", "allow r", "osd", "allow rwx pool=mine") as c:
            io = c.open_ioctx("mine")
            io.write_full("p", b"1")
            self.denied(lambda: c.open_ioctx("theirs").read("o"))

    def test_one_namespace(self):
        with self.client("spaced", "mon", "allow r", "osd", "allow rw pool=mine namespace=ns") as c:
            io = c.open_ioctx("mine")
            self.denied(lambda: io.write_full("p", b"1"))
            io.set_namespace("ns")
            io.write_full("p", b"1")
            self.assertEqual(io.read("p"), b"1")

    def test_class_methods_need_x(self):
        with self.client("classless", "mon", "allow r", "osd", "allow rw") as c:
            io = c.open_ioctx("mine")
            io.write_full("c", b"")
            self.denied(lambda: io.lock_exclusive("c", "l", "c"))
        with self.client("classy", "mon", "allow r", "osd", "allow rwx") as c:
            io = c.open_ioctx("mine")
            io.lock_exclusive("c", "l", "c")
            io.unlock("c", "l", "c")

    def test_no_osd_caps(self):
        with self.client("nothing", "mon", "allow r") as c:
            self.denied(lambda: c.open_ioctx("mine").read("o"))

    def test_monitor_commands_need_caps(self):
        with self.client("monreader", "mon", "allow r") as c:
            self.assertEqual(c.mon_command('{"prefix":"osd dump","format":"json"}', b"")[0], 0)
            self.assertEqual(c.mon_command('{"prefix":"osd out","ids":["0"]}', b"")[0], -errno.EACCES)
            self.assertEqual(c.mon_command('{"prefix":"auth ls"}', b"")[0], -errno.EACCES)

    def test_without_monitor_caps_nobody_gets_in(self):
        # Such a client used to be let in and then waited for maps it was never sent, for ever.
        with self.assertRaises(rados.PermissionDeniedError):
            self.client("outsider").connect(timeout=10)
        with self.assertRaises(rados.PermissionDeniedError):
            self.client("osdonly", "osd", "allow *").connect(timeout=10)

    def test_wrong_key_and_unknown_name(self):
        for name in ("client.admin", "client.stranger"):
            key = "AQDxxVtnAAAAABAA" + "a" * 22 + "=="
            with self.assertRaises(rados.Error):
                rados.Rados(conffile=self.cluster.conf, name=name, conf={"key": key}).connect(timeout=5)

    def test_caps_can_be_taken_away(self):
        self.cluster.ceph("auth", "get-or-create", "client.gone", "mon", "allow r")
        self.cluster.ceph("auth", "rm", "client.gone")
        r = self.cluster.run("ceph", "auth", "get", "client.gone", check=False)
        self.assertEqual(r.returncode, errno.ENOENT)


class Renewal(unittest.TestCase):
    """A client renews its tickets inside the session with the monitor, its own auth ticket too: the
    monitor once refused that, and clients stopped when their first ticket had expired (12 h)."""

    def test_tickets_are_renewed_in_the_session(self):
        # Renewal is due in a ticket's last quarter and looked for at every ping of the monitor.
        sets = ["auth_mon_ticket_ttl=8", "auth_service_ticket_ttl=8", "mon_client_ping_interval=1"]
        # Ports that no other cluster of this machine takes. Once the manager refused strangers, as it should:
        # by its log those of a cluster in another lane, whose manager had had the port before.
        first = 10000 + os.getpid() % 20000
        sets += [f"ms_bind_port_min={first}", f"ms_bind_port_max={first + 100}"]
        with Cluster(sets=sets) as cluster:
            cluster.pool("p")
            with rados.Rados(conffile=cluster.conf) as client:
                io = client.open_ioctx("p")
                session = client.get_instance_id()
                end = time.monotonic() + 18
                while time.monotonic() < end:
                    io.write_full("o", b"content")
                    rc, _, text = client.mon_command('{"prefix":"fsid"}', b"")
                    self.assertEqual(rc, 0, text)
                    time.sleep(0.5)
                # A new connection needs a ticket that is still good.
                cluster.kill("osd.0")
                cluster.up()
                io.write_full("o", b"content")
                self.assertEqual(client.get_instance_id(), session)
            for daemon in ("osd.0", "osd.1", "osd.2", "mgr.x"):
                log = pathlib.Path(cluster.dir, "log", f"{daemon}.log").read_text()
                self.assertNotIn("auth: refused", log)


class Modes(unittest.TestCase):
    """The python3-rados suite again, in other modes."""

    def suite(self, sets):
        folder = os.path.dirname(os.path.abspath(__file__))
        env = dict(os.environ, LOLIGO_TEST_SETS=" ".join(sets))
        suites = ["Objects", "Omap", "Operations", "Aio", "Locks"]
        r = subprocess.run([sys.executable, "test_rados_py.py", *suites], cwd=folder, env=env,
                           capture_output=True, text=True, timeout=200)
        self.assertEqual(r.returncode, 0, r.stdout[-3000:] + r.stderr[-6000:])

    def test_everything_encrypted(self):
        self.suite([f"ms_{who}_mode=secure" for who in ("cluster", "service", "client", "mon_cluster", "mon_service", "mon_client")])

    def test_everything_in_crc_mode(self):
        self.suite([f"ms_{who}_mode=crc" for who in ("cluster", "service", "client", "mon_cluster", "mon_service", "mon_client")])

    def test_no_authentication(self):
        self.suite([f"auth_{who}_required=none" for who in ("cluster", "service", "client")])


if __name__ == "__main__":
    unittest.main(verbosity=2)
