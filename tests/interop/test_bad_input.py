"""Bytes from outside that make no sense: on every port of every daemon, before and after the
banner. The daemon closes that connection, serves everybody else, and does not restart."""
import errno
import os
import random
import socket
import struct
import unittest

import rados

from cluster import Cluster

SEED = int(os.environ.get("LOLIGO_SEED", str(random.randrange(1 << 32))))
BANNER = b"ceph v2\n" + struct.pack("<HQQ", 16, 1, 0)


def setUpModule():
    global cluster, client, ioctx, ports, pids
    cluster = Cluster().__enter__()
    cluster.pool("bad")
    client = rados.Rados(conffile=cluster.conf)
    client.connect(timeout=10)
    ioctx = client.open_ioctx("bad")
    dump = cluster.json("osd", "dump")
    ports = {("127.0.0.1", cluster_port(a["addr"])) for osd in dump["osds"]
             for kind in ("public_addrs", "cluster_addrs", "heartbeat_back_addrs", "heartbeat_front_addrs")
             for a in osd[kind]["addrvec"] if a["type"] == "v2"}
    ports |= {("127.0.0.1", cluster_port(a["addr"])) for m in cluster.json("mon", "dump")["mons"] for a in m["public_addrs"]["addrvec"] if a["type"] == "v2"}
    ports |= {("127.0.0.1", cluster_port(a["addr"])) for a in cluster.json("mgr", "dump")["active_addrs"]["addrvec"] if a["type"] == "v2"}
    pids = {d: cluster.pid(d) for d in ("mon.a", "mgr.x", "osd.0", "osd.1", "osd.2")} if cluster.dir else {}


def tearDownModule():
    client.shutdown()
    cluster.__exit__(None, None, None)


def cluster_port(addr):
    return int(addr.rsplit(":", 1)[1])


def crc32c(data, crc=0):
    for b in data:
        crc ^= b
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc


def preamble(tag, lengths, good_crc=True):
    segments = b"".join(struct.pack("<IH", n, 8) for n in lengths) + bytes(6 * (4 - len(lengths)))
    head = struct.pack("<BB", tag, len(lengths)) + segments + b"\0\0"
    return head + struct.pack("<I", crc32c(head) if good_crc else 12345)


def frame(tag, payload):
    return preamble(tag, [len(payload)]) + payload + struct.pack("<I", crc32c(payload, 0xFFFFFFFF))


class BadInput(unittest.TestCase):
    def poke(self, where, *chunks):
        """Sends bytes and reads until the daemon closes or says nothing for a moment."""
        with socket.create_connection(where, timeout=5) as s:
            s.settimeout(0.2)
            try:
                for chunk in chunks:
                    s.sendall(chunk)
                while s.recv(4096):
                    pass
            except (TimeoutError, ConnectionError):
                pass

    def well(self):
        """Everybody else is served, and no daemon has been replaced."""
        ioctx.write_full("o", b"fine")
        self.assertEqual(ioctx.read("o"), b"fine")
        for daemon, pid in pids.items():
            self.assertTrue(os.path.exists(f"/proc/{pid}"), f"{daemon} died\n{cluster.logs()}")

    def test_random_bytes(self):
        rng = random.Random(SEED)
        print("seed", SEED)
        for where in ports:
            for size in (1, 7, 26, 100, 5000):
                self.poke(where, rng.randbytes(size))
                self.poke(where, BANNER + rng.randbytes(size))
        self.well()

    def test_wrong_banners(self):
        for where in ports:
            self.poke(where, b"ceph v027" + bytes(200))
            self.poke(where, b"GET / HTTP/1.1\r\n\r\n")
            self.poke(where, b"ceph v2\n" + struct.pack("<H", 65535) + bytes(65535))
            self.poke(where, b"ceph v2\n" + struct.pack("<HQQ", 16, 0, 1 << 63))
        self.well()

    def test_frames_that_lie(self):
        for where in ports:
            for bad in (
                preamble(1, [0xFFFFFFFF]),
                preamble(1, [16], good_crc=False) + bytes(20),
                preamble(200, [16]) + bytes(20),
                preamble(17, [41, 10, 0, 1 << 31]),
                preamble(1, [0]),
                struct.pack("<BB", 1, 255) + bytes(30),
                struct.pack("<BB", 1, 0) + bytes(30),
                frame(1, b""), frame(1, b"\x08"), frame(1, bytes(300)),
                frame(2, struct.pack("<II", 2, 0xFFFFFFFF)),
                frame(17, bytes(41)),
                frame(8, bytes(100)),
                frame(11, bytes(100)),
            ):
                self.poke(where, BANNER + bad)
        self.well()

    def test_auth_that_makes_no_sense(self):
        hello = frame(1, b"\x08" + bytes.fromhex("01010100000003000000000000001000000002000000000000000000000000000000")[:35])
        rng = random.Random(SEED)
        for where in ports:
            for method, payload in ((2, b""), (2, rng.randbytes(40)), (1, b"\x0a"), (99, b"x"), (2, b"\x0a" + struct.pack("<II", 8, 0xFFFFFF))):
                body = struct.pack("<III", method, 1, 1) + struct.pack("<I", len(payload)) + payload
                self.poke(where, BANNER + hello + frame(2, body))
        self.well()

    def test_many_half_open_connections(self):
        held = []
        for where in ports:
            for _ in range(50):
                held.append(socket.create_connection(where, timeout=5))
                held[-1].sendall(BANNER[:9])
        self.well()
        for s in held:
            s.close()


class BadOps(unittest.TestCase):
    """Operations a client may send that no OSD should carry out: Ceph's errors, no harm."""

    def refused(self, code, call):
        with self.assertRaises(rados.Error) as caught:
            call()
        self.assertEqual(caught.exception.errno, code)

    def test_names_and_sizes(self):
        self.refused(36, lambda: ioctx.write_full("n" * 4096, b"x"))
        self.refused(27, lambda: ioctx.write("o", b"x", (128 << 20) + 1))
        self.refused(27, lambda: (ioctx.write_full("o2", b"x"), ioctx.trunc("o2", 1 << 50)))
        ioctx.set_namespace("s" * 1000)
        self.refused(36, lambda: ioctx.write_full("o", b"x"))
        ioctx.set_namespace("")
        self.refused(36, lambda: (ioctx.write_full("o", b""), ioctx.set_xattr("o", "a" * 300, b"x")))

    def test_more_than_is_taken_at_a_time(self):
        """A write of 300 MB closed the connection: the client sent it again, 500 times a second, and was never answered."""
        self.refused(errno.EMSGSIZE, lambda: ioctx.write_full("long", bytes(300_000_000)))
        with rados.WriteOpCtx() as op:
            # What an OSD tells the others of this was longer than what they took: it sent that again for ever.
            for _ in range(2):
                op.writesame(bytes(1 << 20), 128 << 20)
            ioctx.operate_write_op(op, "long")
        self.assertEqual(ioctx.stat("long")[0], 128 << 20)
        ioctx.remove_object("long")

    def test_odd_names_work(self):
        for name in ("\u0001\u0002", "\U0001f991", " ", "a\nb", "..", "/", "%"):
            ioctx.write_full(name, name.encode())
            self.assertEqual(ioctx.read(name), name.encode())
            ioctx.remove_object(name)

    def test_empty_name(self):
        with self.assertRaises(rados.Error):
            ioctx.read("")


if __name__ == "__main__":
    unittest.main(verbosity=2)
