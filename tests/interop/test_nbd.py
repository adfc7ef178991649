"""Our block front end beside librbd's: `loligo nbd serve` used by libnbd's and qemu's tools and by
raw bytes, a file system in an image, images written with one and read with the other, and the
exclusive lock going back and forth between them, journals of the dead. About 40 s."""
import hashlib
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
import unittest

import rados
import rbd

from cluster import Cluster, LOLIGO

SEED = int(os.environ.get("LOLIGO_NBD_SEED", str(random.randrange(1 << 32))))
MIB = 1 << 20


def setUpModule():
    global c, tmp
    print(f"seed {SEED}", flush=True)
    c = Cluster()
    c.__enter__()
    tmp = pathlib.Path(tempfile.mkdtemp(prefix="loligo-nbd-"))
    if "rbd" not in c.ceph("osd", "pool", "ls").split():
        c.pool("rbd", 8)
    c.run("rbd", "pool", "init", "rbd")


def tearDownModule():
    shutil.rmtree(tmp)
    c.__exit__(None, None, None)


def loligo(*args, check=True, timeout=60):
    """`loligo ARGS`: its standard output."""
    return c.run(LOLIGO, *args, check=check, timeout=timeout).stdout.decode()


class Serve:
    """`loligo nbd serve` for a while; `url(name)` for libnbd's and qemu's tools."""

    def __init__(self, *images, read_only=False, conf=None, code=0):
        self.images = images
        self.code = code
        self.conf = conf or c.conf
        self.flags = ["--read-only"] if read_only else []
        self.socket = str(tmp / f"{os.getpid()}-{time.monotonic_ns()}.sock")

    def __enter__(self):
        self.log = open(self.socket + ".log", "w+")
        self.process = subprocess.Popen(
            [LOLIGO, "nbd", "serve", *self.images, "--socket", self.socket, *self.flags],
            stdout=subprocess.PIPE, stderr=self.log, text=True, env=dict(os.environ, CEPH_CONF=self.conf))
        for _ in self.images:
            line = self.process.stdout.readline()
            assert line.startswith("nbd: "), line + self.said()
        return self

    def said(self):
        self.log.flush()
        return pathlib.Path(self.log.name).read_text()

    def __exit__(self, *exc):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=30)
        self.process.stdout.close()
        said = self.said()
        self.log.close()
        assert code == self.code and not os.path.exists(self.socket), said

    def url(self, name=None):
        return f"nbd+unix:///{name or self.images[0]}?socket={self.socket}"

    def connect(self):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(20)
        s.connect(self.socket)
        return s


def take(s, n):
    data = b""
    while len(data) < n:
        some = s.recv(n - len(data))
        if not some:
            raise EOFError(f"{len(data)} of {n} bytes")
        data += some
    return data


def option(s, code, data=b"", magic=0x49484156454F5054):
    s.sendall(struct.pack(">QII", magic, code, len(data)) + data)


def hello(s, flags=3):
    assert take(s, 16) == b"NBDMAGICIHAVEOPT"
    take(s, 2)
    s.sendall(struct.pack(">I", flags))


def old_way(serve, name):
    """A connection by EXPORT_NAME, without structured replies; and the size."""
    s = serve.connect()
    hello(s)
    option(s, 1, name.encode())
    size, flags = struct.unpack(">QH", take(s, 10))
    return s, size, flags


def request(s, kind, offset=0, length=0, flags=0, payload=b"", magic=0x25609513):
    s.sendall(struct.pack(">IHHQQI", magic, flags, kind, 77, offset, length) + payload)


def simple_reply(s, length=0):
    magic, error, cookie = struct.unpack(">IIQ", take(s, 16))
    assert (magic, cookie) == (0x67446698, 77)
    return error, take(s, length) if error == 0 else b""


def content(size, seed=SEED, holes=True):
    """Bytes with runs of zeros in them."""
    rng = random.Random(seed)
    parts = []
    while sum(map(len, parts)) < size:
        n = rng.randrange(1, 700000)
        parts.append(bytes(n) if holes and rng.random() < 0.4 else rng.randbytes(n))
    return b"".join(parts)[:size]


def file_of(data):
    path = tmp / hashlib.sha1(data).hexdigest()
    path.write_bytes(data)
    return str(path)


class Nbd(unittest.TestCase):
    def test_who_asks_is_told(self):
        loligo("rbd", "create", "list-a", "--size", "40M")
        loligo("rbd", "create", "list-b", "--size", "3000000B")
        with Serve("rbd/list-a", "list-b") as s:
            ours = loligo("nbd", "list", f"unix:{s.socket}")
            self.assertIn("rbd/list-a", ours)
            self.assertIn("40 MiB", ours)
            listed = c.run("qemu-nbd", "--list", "-k", s.socket).stdout.decode()
            self.assertIn("exports available: 2", listed)
            self.assertIn("size:  3000000", listed)
            told = json.loads(c.run("nbdinfo", "--json", s.url("rbd/list-b")).stdout)
            export = told["exports"][0]
            self.assertEqual(export["export-size"], 3000000)
            for can in ("can_flush", "can_fua", "can_trim", "can_zero", "can_multi_conn", "can_df"):
                self.assertTrue(export[can], can)
            self.assertIn("base:allocation", export["contexts"])
            self.assertNotEqual(c.run("nbdinfo", s.url("rbd/none"), check=False).returncode, 0)

    def test_copies_come_back(self):
        data = content(30 * MIB + 12345)
        path, back = file_of(data), str(tmp / "back")
        for number, options in enumerate(([], ["--stripe-unit", "64K", "--stripe-count", "3"],
                                          ["--image-feature", "layering"])):
            name = f"copy-{number}"
            loligo("rbd", "create", name, "--size", f"{len(data)}B", "--object-size", "1M", *options)
            with Serve(f"rbd/{name}") as s:
                c.run("nbdcopy", "--connections=3", path, s.url())
                c.run("nbdcopy", s.url(), back)
                self.assertEqual(pathlib.Path(back).read_bytes(), data)
                os.unlink(back)
                c.run("qemu-img", "compare", "-f", "raw", "-F", "raw", s.url(), path)
            exported = c.run("rbd", "export", name, "-").stdout
            self.assertEqual(exported, data, f"{options}: librbd reads something else")

    def test_holes_are_told(self):
        loligo("rbd", "create", "holes", "--size", "32M")
        with Serve("rbd/holes") as s:
            c.run("qemu-io", "-f", "raw", s.url(), "-c", "write -P 5 9M 1M", "-c", "write 20M 4k")
            told = json.loads(c.run("nbdinfo", "--map", "--json", s.url()).stdout)
            stretches = [(e["offset"], e["length"], e["type"]) for e in told]
            self.assertEqual(stretches, [(0, 8 * MIB, 3), (8 * MIB, 4 * MIB, 0), (12 * MIB, 8 * MIB, 3),
                                         (20 * MIB, 4 * MIB, 0), (24 * MIB, 8 * MIB, 3)])
            c.run("qemu-io", "-f", "raw", s.url(), "-c", "discard 20M 4M")
            told = json.loads(c.run("nbdinfo", "--map", "--json", s.url()).stdout)
            self.assertEqual([e["type"] for e in told], [3, 0, 3])
        self.assertEqual(loligo_du("holes"), ["0000000000000002"])

    def test_what_may_be_there_is_no_hole(self):
        """An object whose removal had begun was told to be a hole, though reading it gave its data: copies had zeros there. And
        what is locked by hand could not be asked for holes at all, though it can be read."""
        loligo("rbd", "create", "pending", "--size", "16M")
        with Serve("rbd/pending") as s:
            c.run("qemu-io", "-f", "raw", s.url(), "-c", "write -P 5 5M 1M")
        with rados.Rados(conffile=c.conf) as cluster, cluster.open_ioctx("rbd") as io:
            with rbd.Image(io, "pending", read_only=True) as image:
                map_name = "rbd_object_map." + image.id()
            pending = 2
            io.execute(map_name, "rbd", "object_map_update", struct.pack("<QQBB", 1, 2, pending, 0))

        def told(s):
            return [(e["offset"], e["type"]) for e in json.loads(c.run("nbdinfo", "--map", "--json", s.url()).stdout)]
        with Serve("rbd/pending") as s:
            self.assertEqual(told(s), [(0, 3), (4 * MIB, 0), (8 * MIB, 3)])
            c.run("qemu-io", "-f", "raw", s.url(), "-c", "read -P 5 5M 1M")
        c.run("rbd", "lock", "add", "rbd/pending", "by hand")
        with Serve("rbd/pending") as s:
            self.assertEqual(told(s), [(0, 0)])
            c.run("qemu-io", "-f", "raw", s.url(), "-c", "read -P 5 5M 1M")
        [lock] = json.loads(c.run("rbd", "lock", "ls", "rbd/pending", "--format", "json").stdout)
        c.run("rbd", "lock", "rm", "rbd/pending", lock["id"], lock["locker"])

    def test_a_server_that_ends_leaves_the_place_to_the_next(self):
        """A server removed its socket after it had closed its images, which takes a while: by then its successor's was there."""
        loligo("rbd", "create", "next", "--size", "8M")
        with Serve("rbd/next") as s:
            c.run("qemu-io", "-f", "raw", s.url(), "-c", "write 0 4k")
            c.ceph("osd", "set", "pause")
            try:
                s.process.send_signal(signal.SIGTERM)
                c.wait(lambda: not os.path.exists(s.socket), 20, "its place is free")
                self.assertIsNone(s.process.poll(), "the image cannot be closed yet")
            finally:
                c.ceph("osd", "unset", "pause")

    def test_a_server_that_fails_leaves_no_watch(self):
        """An image that had been opened when the next could not be was not closed: it had a watcher for half a minute."""
        loligo("rbd", "create", "first", "--size", "8M")
        failed = subprocess.run([LOLIGO, "nbd", "serve", "rbd/first", "rbd/none", "--socket", str(tmp / "fails.sock")],
                                capture_output=True, text=True, timeout=60, env=dict(os.environ, CEPH_CONF=c.conf))
        self.assertEqual((failed.returncode, "none" in failed.stderr), (1, True), failed.stderr)
        self.assertFalse(json.loads(c.run("rbd", "status", "first", "--format", "json").stdout)["watchers"])

    def test_an_export_that_is_refused_does_not_hide_the_others(self):
        """`loligo nbd list` ended at the first export that its server refused to tell of."""
        refusing = socket.create_server(("127.0.0.1", 0))
        refusing.settimeout(20)

        def answer(sock, code, kind, data=b""):
            sock.sendall(struct.pack(">QIII", 0x3E889045565A9, code, kind, len(data)) + data)

        def work():
            sock, _ = refusing.accept()
            with sock:
                sock.sendall(b"NBDMAGIC" + struct.pack(">QH", 0x49484156454F5054, 3))
                take(sock, 4)
                while True:
                    _, code, length = struct.unpack(">QII", take(sock, 16))
                    data = take(sock, length)
                    if code == 3:
                        for name in (b"one", b"other"):
                            answer(sock, 3, 2, struct.pack(">I", len(name)) + name)
                        answer(sock, 3, 1)
                    elif code == 6 and b"one" in data:
                        answer(sock, 6, (1 << 31) + 7, b"it has to be opened again")
                    elif code == 6:
                        answer(sock, 6, 3, struct.pack(">HQH", 0, 8 * MIB, 1))
                        answer(sock, 6, 1)
                    else:
                        return
        server = threading.Thread(target=work, daemon=True)
        server.start()
        listed = loligo("nbd", "list", "127.0.0.1:%d" % refusing.getsockname()[1])
        server.join(20)
        refusing.close()
        self.assertRegex(listed, r"one +- +it has to be opened again\nother +8 MiB")

    def test_every_request(self):
        loligo("rbd", "create", "every", "--size", "24M")
        with Serve("rbd/every") as s:
            steps = ["write -P 7 1000000 300001", "read -P 7 1000000 300001", "write -z 4M 8M", "read -P 0 4M 8M",
                     "discard 12M 4M", "flush", "write -f -P 9 0 4k", "read -P 9 0 4k", "write -z -u 0 4k",
                     "read -P 0 0 4k", "write -P 3 4190000 10000", "read -P 3 4190000 10000"]
            c.run("qemu-io", "-f", "raw", s.url(), *[x for step in steps for x in ("-c", step)])
            sock, size, flags = old_way(s, "rbd/every")
            self.assertEqual((size, flags & 1), (24 * MIB, 1))
            request(sock, 1, 5, 3, payload=b"abc")
            self.assertEqual(simple_reply(sock), (0, b""))
            request(sock, 0, 4, 5)
            self.assertEqual(simple_reply(sock, 5), (0, b"\0abc\0"))
            for kind, offset, length, error in ((0, size, 1, 22), (6, size - 1, 2, 28), (4, size, 1, 22),
                                                (8, 0, 1, 95), (7, 0, 4096, 22), (99, 0, 0, 22),
                                                (0, 0, 33 * MIB, 22), (3, 0, 0, 0)):
                request(sock, kind, offset, length)
                self.assertEqual(simple_reply(sock)[0], error, (kind, offset, length))
            request(sock, 2)
            self.assertEqual(sock.recv(1), b"")
            sock.close()

    def test_nonsense_closes_that_connection_only(self):
        loligo("rbd", "create", "sense", "--size", "8M")
        with Serve("rbd/sense") as s:
            good, _, _ = old_way(s, "rbd/sense")

            def closed(sock):
                try:
                    while sock.recv(65536):
                        pass
                except ConnectionResetError:
                    pass
                sock.close()

            def flags(sock): hello(sock, 0xff00)
            def magic(sock): hello(sock); option(sock, 3, magic=1)
            def long_option(sock): hello(sock); sock.sendall(struct.pack(">QII", 0x49484156454F5054, 7, 1 << 31))
            def no_export(sock): hello(sock); option(sock, 1, b"nothing")
            def request_magic(sock): hello(sock); option(sock, 1, b""); request(sock, 0, magic=5)
            def long_write(sock): hello(sock); option(sock, 1, b""); request(sock, 1, 0, 1 << 31)
            for nonsense in (flags, magic, long_option, no_export, request_magic, long_write):
                sock = s.connect()
                nonsense(sock)
                closed(sock)
                self.assertIn("is sent away", s.said(), nonsense.__name__)
            for odd in (b"", b"\xff" * 40, struct.pack(">I", 9) + b"x"):
                sock = s.connect()
                hello(sock)
                option(sock, 7, odd)
                magic, code, kind, length = struct.unpack(">QIII", take(sock, 20))
                self.assertEqual((code, kind), (7, (1 << 31) + 3))
                take(sock, length)
                option(sock, 2)
                closed(sock)
            rng = random.Random(SEED)
            for _ in range(30):
                sock = s.connect()
                hello(sock)
                sock.sendall(rng.randbytes(rng.randrange(1, 400)))
                sock.shutdown(socket.SHUT_WR)
                closed(sock)
            request(good, 0, 0, 512)
            self.assertEqual(simple_reply(good, 512), (0, bytes(512)))
            good.close()

    def test_answers_nobody_takes_are_few(self):
        """Found by reading: what was read for a client that did not take its answers was counted as done when it
        was queued. 250 reads of 16 MiB, and the server held 3.7 GiB. A client that never chose an export
        kept one of the places of all for ever."""
        loligo("rbd", "create", "few", "--size", "16M")
        data = content(16 * MIB, holes=False)
        with Serve("rbd/few") as s:
            silent = s.connect()
            sock, _, _ = old_way(s, "rbd/few")
            request(sock, 1, 0, 16 * MIB, payload=data)
            self.assertEqual(simple_reply(sock), (0, b""))

            def memory(what):
                status = pathlib.Path(f"/proc/{s.process.pid}/status").read_text()
                return int(status.split(f"{what}:")[1].split()[0]) << 10
            for _ in range(64):
                request(sock, 0, 0, 16 * MIB)
            before, now = 0, memory("VmRSS")
            while now > before:
                time.sleep(1)
                before, now = now, memory("VmRSS")
            self.assertLess(memory("VmHWM"), 384 * MIB)
            with sock.makefile("rb") as answers:
                for _ in range(64):
                    self.assertEqual(answers.read(16), struct.pack(">IIQ", 0x67446698, 0, 77))
                    self.assertTrue(answers.read(16 * MIB) == data)
            sock.close()
            silent.settimeout(60)
            self.assertEqual(take(silent, 16), b"NBDMAGICIHAVEOPT")
            take(silent, 2)
            self.assertEqual(silent.recv(1), b"")
            self.assertIn("it has chosen no export in time", s.said())
            silent.close()

    def test_many_at_once(self):
        loligo("rbd", "create", "many", "--size", "16M", "--object-size", "256K")
        with Serve("rbd/many") as s:
            def work(number):
                sock, _, _ = old_way(s, "rbd/many")
                for n in range(60):
                    block = bytes([number + 1]) * 4096
                    request(sock, 1, (number * 60 + n) * 4096, 4096, payload=block)
                for _ in range(60):
                    assert simple_reply(sock)[0] == 0
                sock.close()
            threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
            [t.start() for t in threads]
            [t.join() for t in threads]
            data = c.run("nbdcopy", s.url(), "-").stdout
        wanted = b"".join(bytes([n + 1]) * (60 * 4096) for n in range(8))
        self.assertEqual(data[:len(wanted)], wanted)
        self.assertFalse(any(data[len(wanted):]))


def loligo_du(image):
    """Numbers of the data objects of an image."""
    prefix = json.loads(loligo("rbd", "info", image, "--json"))["block_name_prefix"]
    with rados.Rados(conffile=c.conf) as cluster, cluster.open_ioctx("rbd") as io:
        return sorted(o.key[len(prefix) + 1:] for o in io.list_objects() if o.key.startswith(prefix + "."))


class FileSystem(unittest.TestCase):
    """A file system made, filled, checked and read again inside an image."""

    def fill(self, folder):
        rng = random.Random(SEED)
        for n in range(60):
            path = folder / f"d{n % 7}" / f"file-{n}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(rng.randbytes(rng.randrange(0, 300000)))

    def check(self, device, folder):
        c.run("/usr/sbin/e2fsck", "-fn", device)
        out = tmp / "restored"
        out.mkdir()
        c.run("/usr/sbin/debugfs", "-R", f"rdump / {out}", device)
        for path in folder.rglob("file-*"):
            self.assertEqual((out / path.relative_to(folder)).read_bytes(), path.read_bytes(), path)
        shutil.rmtree(out)

    def test_ext4_in_an_image(self):
        folder = tmp / "tree"
        folder.mkdir()
        self.fill(folder)
        loligo("rbd", "create", "ext4", "--size", "64M")
        fuse = os.access("/dev/fuse", os.R_OK | os.W_OK)
        print("file system", "on a FUSE export of qemu" if fuse else "made in a file: no FUSE here", flush=True)
        with Serve("rbd/ext4") as s:
            (self.on_fuse if fuse else self.by_copy)(s, folder)
            copy = str(tmp / "ext4-copy")
            c.run("nbdcopy", s.url(), copy)
            self.check(copy, folder)
        exported = tmp / "ext4-export"
        c.run("rbd", "export", "ext4", str(exported))
        self.check(str(exported), folder)

    def by_copy(self, s, folder):
        made = str(tmp / "ext4-made")
        c.run("truncate", "-s", "64M", made)
        c.run("/usr/sbin/mke2fs", "-q", "-t", "ext4", "-d", str(folder), made)
        c.run("nbdcopy", made, s.url())

    def on_fuse(self, s, folder):
        mount = tmp / "device"
        mount.touch()
        daemon = subprocess.Popen(
            ["qemu-storage-daemon", "--blockdev", f"driver=nbd,node-name=n,export=rbd/ext4,server.type=unix,server.path={s.socket}",
             "--export", f"type=fuse,id=e,node-name=n,mountpoint={mount},writable=on"])
        try:
            c.wait(lambda: mount.stat().st_size == 64 * MIB, 20, "the FUSE export")
            c.run("/usr/sbin/mke2fs", "-q", "-t", "ext4", "-d", str(folder), str(mount), timeout=240)
            # Written, removed and written again in place.
            commands = tmp / "debugfs-commands"
            more = file_of(content(2 * MIB, holes=False))
            commands.write_text("".join(f"rm d0/file-0\nwrite {more} again-{n}\nrm again-{n}\n" for n in range(5))
                                + f"write {folder / 'd0' / 'file-0'} d0/file-0\n")
            c.run("/usr/sbin/debugfs", "-w", "-f", str(commands), str(mount), timeout=240)
            self.check(str(mount), folder)
        finally:
            daemon.terminate()
            daemon.wait(timeout=20)


class WithLibrbd(unittest.TestCase):
    """What one writes the other reads, and the lock goes where it is asked for."""

    def test_written_with_librbd_read_with_ours(self):
        data = content(9 * MIB + 77, SEED + 1)
        c.run("rbd", "import", "--object-size", "1M", file_of(data), "imported")
        c.run("rbd", "snap", "create", "imported@s")
        c.run("rbd", "snap", "protect", "imported@s")
        c.run("rbd", "clone", "imported@s", "cloned-by-librbd")
        with Serve("rbd/imported", "rbd/cloned-by-librbd") as s:
            self.assertEqual(c.run("nbdcopy", s.url("rbd/imported"), "-").stdout, data)
            c.run("qemu-io", "-f", "raw", s.url("rbd/cloned-by-librbd"), "-c", "write -P 8 1000000 2000000")
        changed = data[:1000000] + b"\x08" * 2000000 + data[3000000:]
        self.assertEqual(c.run("rbd", "export", "cloned-by-librbd", "-").stdout, changed)
        self.assertEqual(c.run("rbd", "export", "imported", "-").stdout, data)
        loligo("rbd", "flatten", "cloned-by-librbd")
        self.assertEqual(c.run("rbd", "export", "cloned-by-librbd", "-").stdout, changed)
        self.assertEqual(c.run("rbd", "children", "imported@s").stdout, b"")
        loligo("rbd", "snap", "unprotect", "imported@s")
        with Serve("rbd/imported@s") as s:
            self.assertEqual(c.run("nbdcopy", s.url(), "-").stdout, data)
            refused = c.run("qemu-io", "-f", "raw", s.url(), "-c", "write 0 4k", check=False)
            self.assertNotEqual(refused.returncode, 0)

    def test_the_environment_says_who_we_are(self):
        """CEPH_ARGS and CEPH_KEYRING, which Ceph's clients take, were not read."""
        keyring = tmp / "reader.keyring"
        c.ceph("auth", "get-or-create", "client.reader", "mon", "profile rbd-read-only", "osd", "profile rbd-read-only", "-o", str(keyring))
        loligo("rbd", "create", "seen", "--size", "1M")
        for said in [{"CEPH_ARGS": f"--id reader --keyring={keyring}"}, {"CEPH_ARGS": "-n client.reader", "CEPH_KEYRING": str(keyring)}]:
            env = dict(os.environ, CEPH_CONF=c.conf, **said)
            run = lambda *args: subprocess.run(args, env=env, capture_output=True, text=True, timeout=60)
            for program in [[LOLIGO, "rbd"], ["rbd"]]:
                self.assertIn("seen", run(*program, "ls").stdout.split(), said)
                refused = run(*program, "create", "unseen", "--size", "1M")
                self.assertNotEqual(refused.returncode, 0, said)
            self.assertIn("Operation not permitted", run(LOLIGO, "rbd", "create", "unseen", "--size", "1M").stderr)
            # The command line is stronger, and this keyring has no key of theirs.
            self.assertIn("client.admin", run(LOLIGO, "rbd", "ls", "--id", "admin").stderr)
            # What 'up' has made has a keyring of its own.
            self.assertEqual(run(LOLIGO, "status", "--dir", str(pathlib.Path(c.conf).parent)).returncode, 0)

    def test_a_clone_says_whose_it_is(self):
        """It was told by ids alone, without its parent's namespace; other errors told of images that were not there."""
        loligo("rbd", "create", "whose", "--size", "1M")
        loligo("rbd", "snap", "create", "whose@s")
        loligo("rbd", "snap", "protect", "whose@s")
        loligo("rbd", "clone", "whose@s", "whose-clone")
        line = "\tparent: rbd/whose@s"
        self.assertIn(line, loligo("rbd", "info", "whose-clone").splitlines())
        self.assertIn(line, c.run("rbd", "info", "whose-clone").stdout.decode().splitlines())
        parent = json.loads(loligo("rbd", "info", "whose-clone", "--json"))["parent"]
        self.assertEqual((parent["image"], parent["snapshot"]), ("whose", "s"))
        refused = c.run(LOLIGO, "rbd", "create", "whose-not", "--size", "1M", "--data-pool", "nope", check=False).stderr.decode()
        self.assertIn("there is no pool nope", refused)
        loligo("rbd", "create", "whose-not", "--size", "1M", "--image-feature", "exclusive-lock")
        loligo("rbd", "snap", "create", "whose-not@s")
        refused = c.run(LOLIGO, "rbd", "snap", "protect", "whose-not@s", check=False).stderr.decode()
        self.assertIn("no feature layering", refused)

    def test_made_with_ours_used_with_librbd(self):
        loligo("rbd", "create", "ours", "--size", "10M", "--object-size", "1M")
        info = json.loads(c.run("rbd", "info", "ours", "--format", "json").stdout)
        mine = json.loads(loligo("rbd", "info", "ours", "--json"))
        for key in ("size", "objects", "order", "id", "block_name_prefix", "features"):
            self.assertEqual(info[key], mine[key], key)
        with Serve("rbd/ours") as s:
            c.run("qemu-io", "-f", "raw", s.url(), "-c", "write -P 1 0 10M")
            loligo("rbd", "snap", "create", "ours@one")
            c.run("qemu-io", "-f", "raw", s.url(), "-c", "write -P 2 500000 4000000", "-c", "discard 6M 2M")
        wanted = bytearray(b"\1" * (10 * MIB))
        wanted[500000:4500000] = b"\2" * 4000000
        wanted[6 * MIB:8 * MIB] = bytes(2 * MIB)
        self.assertEqual(c.run("rbd", "export", "ours", "-").stdout, bytes(wanted))
        self.assertEqual(c.run("rbd", "export", "ours@one", "-").stdout, b"\1" * (10 * MIB))
        changes = json.loads(c.run("rbd", "diff", "ours", "--from-snap", "one", "--whole-object", "--format", "json").stdout)
        touched = {(e["offset"] // MIB, e["exists"]) for e in changes}
        self.assertEqual(touched, {(n, "true") for n in range(5)} | {(6, "false"), (7, "false")})
        for name in ("ours", "ours@one"):
            said = c.run("rbd", "object-map", "check", name).stderr.decode()
            self.assertNotIn("object map error", said)
        self.assertEqual(json.loads(c.run("rbd", "info", "ours", "--format", "json").stdout)["flags"], [])
        loligo("rbd", "snap", "rollback", "ours@one")
        self.assertEqual(c.run("rbd", "export", "ours", "-").stdout, b"\1" * (10 * MIB))
        loligo("rbd", "resize", "ours", "--size", "3M", "--allow-shrink")
        self.assertEqual(c.run("rbd", "export", "ours", "-").stdout, b"\1" * (3 * MIB))
        self.assertEqual(json.loads(c.run("rbd", "info", "ours", "--format", "json").stdout)["flags"], [])
        loligo("rbd", "snap", "rm", "ours@one")
        c.run("rbd", "rm", "--no-progress", "ours")

    def test_clones_of_ours_are_known_to_librbd(self):
        """A clone of the second kind was written into its parent's header without its id: `rbd
        children` did not find it, and a second clone of the snapshot was refused."""
        if "elsewhere" not in c.ceph("osd", "pool", "ls").split():
            c.pool("elsewhere", 8)
        c.run("rbd", "pool", "init", "elsewhere")
        c.run("rbd", "namespace", "create", "rbd/ns")
        loligo("rbd", "create", "rbd/ns/parent", "--size", "3M", "--object-size", "1M", "--data-pool", "elsewhere")
        info = json.loads(c.run("rbd", "info", "rbd/ns/parent", "--format", "json").stdout)
        self.assertEqual(info["data_pool"], "elsewhere")
        data = content(3 * MIB)
        with Serve("rbd/ns/parent") as s:
            c.run("nbdcopy", file_of(data), s.url())
        stored = c.run("rados", "-p", "elsewhere", "--all", "ls").stdout.decode()
        self.assertIn(info["block_name_prefix"], stored)
        self.assertNotIn("rbd_data", c.run("rados", "-p", "rbd", "-N", "ns", "ls").stdout.decode())
        loligo("rbd", "snap", "create", "rbd/ns/parent@s")
        clones = ["rbd/ns/one", "rbd/ns/two", "elsewhere/three"]
        for clone in clones:
            loligo("rbd", "clone", "rbd/ns/parent@s", clone)
        children = json.loads(c.run("rbd", "children", "rbd/ns/parent@s", "--format", "json").stdout)
        found = sorted("/".join(filter(None, (child["pool"], child["pool_namespace"], child["image"]))) for child in children)
        self.assertEqual(found, sorted(clones))
        for clone in clones:
            self.assertEqual(c.run("rbd", "export", clone, "-").stdout, data)
        loligo("rbd", "flatten", "rbd/ns/one")
        loligo("rbd", "rm", "rbd/ns/two")
        c.run("rbd", "rm", "--no-progress", "elsewhere/three")
        self.assertEqual(json.loads(c.run("rbd", "children", "rbd/ns/parent@s", "--format", "json").stdout), [])
        self.assertEqual(c.run("rbd", "export", "rbd/ns/one", "-").stdout, data)
        loligo("rbd", "snap", "rm", "rbd/ns/parent@s")
        for image in ("rbd/ns/one", "rbd/ns/parent"):
            loligo("rbd", "rm", image)

    def test_the_lock_goes_back_and_forth(self):
        loligo("rbd", "create", "shared", "--size", "8M")
        with rados.Rados(conffile=c.conf) as cluster, cluster.open_ioctx("rbd") as io, Serve("rbd/shared") as s:
            sock, _, _ = old_way(s, "rbd/shared")
            with rbd.Image(io, "shared") as image:
                for turn in range(5):
                    block = bytes([2 * turn + 1]) * 4096
                    request(sock, 1, turn * 8192, 4096, payload=block)
                    self.assertEqual(simple_reply(sock)[0], 0)
                    self.assertFalse(image.is_exclusive_lock_owner())
                    image.write(bytes([2 * turn + 2]) * 4096, turn * 8192 + 4096)
                    image.flush()
                    self.assertTrue(image.is_exclusive_lock_owner())
                    if turn == 2:
                        image.create_snap("middle")
                request(sock, 0, 0, 5 * 8192)
                error, data = simple_reply(sock, 5 * 8192)
                wanted = b"".join(bytes([n + 1]) * 4096 for n in range(10))
                self.assertEqual((error, data), (0, wanted))
                request(sock, 1, 0, 4096, payload=b"z" * 4096)
                self.assertEqual(simple_reply(sock)[0], 0)
                self.assertEqual(image.read(0, 4096), b"z" * 4096)
                with rbd.Image(io, "shared", snapshot="middle") as snap:
                    self.assertEqual(snap.read(0, 3 * 8192), wanted[:3 * 8192])
                # The header changes under the server, which hears of it a moment later.
                image.resize(6 * MIB)

                def refused():
                    request(sock, 0, 7 * MIB, 512)
                    return simple_reply(sock, 512)[0] == 22
                c.wait(refused, 10, "the new size")
            sock.close()

    def test_a_snapshot_librbd_left_to_its_clones_goes_with_the_last(self):
        """It stayed in the trash of its image for ever, and the image with it."""
        for last in (["rm", "kid"], ["flatten", "kid"]):
            loligo("rbd", "create", "par", "--size", "8M")
            loligo("rbd", "snap", "create", "par@s")
            for kid in ("kid", "other"):
                loligo("rbd", "clone", "par@s", kid)
            c.run("rbd", "--rbd-default-clone-format", "2", "snap", "rm", "--no-progress", "par@s")

            def left():
                snaps = json.loads(c.run("rbd", "snap", "ls", "--all", "par", "--format", "json").stdout)
                return [snap["namespace"]["type"] for snap in snaps]
            loligo("rbd", "rm", "other")
            self.assertEqual(left(), ["trash"])
            loligo("rbd", *last)
            self.assertEqual(left(), [])
            loligo("rbd", "rm", "par")
        # The flattened one.
        loligo("rbd", "rm", "kid")

    def test_a_full_pool_is_emptied(self):
        """`loligo rbd rm` and `snap rm` waited for room, without a word."""
        for pool in ("tight", "tight-data"):
            c.pool(pool, 4)
            c.run("rbd", "pool", "init", pool)
        loligo("rbd", "create", "tight/image", "--size", "8M", "--data-pool", "tight-data")
        with Serve("tight/image") as s:
            c.run("nbdcopy", file_of(content(8 * MIB)), s.url())
        loligo("rbd", "snap", "create", "tight/image@s")
        for pool in ("tight", "tight-data"):
            c.ceph("osd", "pool", "set-quota", pool, "max_objects", "1")

        def full():
            pools = json.loads(c.ceph("osd", "dump", "-f", "json"))["pools"]
            return sum("full_quota" in pool["flags_names"] for pool in pools) == 2
        c.wait(full, 30, "two full pools")
        loligo("rbd", "snap", "rm", "tight/image@s")
        loligo("rbd", "rm", "tight/image")
        self.assertEqual(loligo("rbd", "ls", "tight"), "")
        for pool in ("tight", "tight-data"):
            c.ceph("osd", "pool", "rm", pool, pool, "--yes-i-really-really-mean-it")

    def test_what_lies_beneath_may_go(self):
        """A server went on by what it had once read of its image's parent: when that had been flattened and what lay beneath it
        removed, it read zeros, and copied them up for good. A snapshot that was removed read as zeros, too."""
        for command in ("create deep --size 8M", "bench deep --io-type write --io-size 4M --io-total 8M --io-pattern seq", "snap create deep@s",
                        "snap protect deep@s", "clone deep@s middle", "snap create middle@s", "snap protect middle@s", "clone middle@s top",
                        "create read --size 4M", "bench read --io-type write --io-size 4M --io-total 4M", "snap create read@s"):
            c.run("rbd", *command.split())
        data = c.run("rbd", "export", "deep", "-").stdout
        assert any(data)
        with Serve("rbd/top", "rbd/middle@s", "rbd/read@s") as s:
            for name in s.images:
                c.run("qemu-io", "-r", "-f", "raw", s.url(name), "-c", "read 0 4k")
            for command in ("flatten middle", "snap unprotect deep@s", "snap rm deep@s", "rm deep", "snap rm read@s"):
                c.run("rbd", *command.split())
            self.assertEqual(c.run("nbdcopy", s.url("rbd/middle@s"), "-").stdout, data)
            c.run("qemu-io", "-f", "raw", s.url(), "-c", "write -P 7 4k 4k")
            changed = data[:4096] + b"\7" * 4096 + data[8192:]
            self.assertEqual(c.run("nbdcopy", s.url(), "-").stdout, changed)
            gone = c.run("qemu-io", "-r", "-f", "raw", s.url("rbd/read@s"), "-c", "read 0 4k", check=False)
            self.assertNotEqual(gone.returncode, 0)
            # A parent that the child needs no more is not watched.
            c.run("rbd", "flatten", "top")
            c.run("qemu-io", "-f", "raw", s.url(), "-c", "read 0 4k")
            watchers = lambda: json.loads(c.run("rbd", "status", "middle", "--format", "json").stdout)["watchers"]  # noqa: E731
            c.wait(lambda: len(watchers()) == 1, what="only the export of middle@s watches it")
        self.assertEqual(c.run("rbd", "export", "top", "-").stdout, changed)

    def test_an_image_that_is_another_clusters_now(self):
        """A server wrote on into an image that had been demoted since it was opened: writes that the next synchronisation took back."""
        c.run("rbd", "mirror", "pool", "enable", "rbd", "image")
        c.run("rbd", "create", "demoted", "--size", "1M")
        c.run("rbd", "mirror", "image", "enable", "demoted", "snapshot")
        with Serve("rbd/demoted") as s:
            c.run("qemu-io", "-f", "raw", s.url(), "-c", "write -P 1 0 4k")
            c.run("rbd", "mirror", "image", "demote", "demoted")
            refused = c.run("qemu-io", "-f", "raw", s.url(), "-c", "write -P 2 0 4k", check=False)
            self.assertNotEqual(refused.returncode, 0)
            c.run("qemu-io", "-f", "raw", s.url(), "-c", "read -P 1 0 4k")
        c.run("rbd", "mirror", "image", "promote", "demoted", "--force")
        c.run("rbd", "mirror", "image", "disable", "demoted", "--force")
        c.run("rbd", "mirror", "pool", "disable", "rbd")

    def test_who_is_fenced_off_ends(self):
        """A server whose client was blocklisted stayed, and answered all that came with ESHUTDOWN."""
        c.run("rbd", "create", "fenced", "--size", "1M")
        with Serve("rbd/fenced", code=1) as s:
            c.run("qemu-io", "-f", "raw", s.url(), "-c", "write 0 4k")
            [watcher] = json.loads(c.run("rbd", "status", "fenced", "--format", "json").stdout)["watchers"]
            c.ceph("osd", "blocklist", "add", watcher["address"])
            c.wait(lambda: s.process.poll() is not None, 60, "it ends")
            self.assertIn("others have taken the image", s.said())
        c.ceph("osd", "blocklist", "rm", watcher["address"])

    def test_a_full_pool_keeps_nobody(self):
        """A server that was told to end stayed for as long as its pool was full: it could not give its lock back."""
        c.pool("small", 4)
        c.run("rbd", "create", "small/full", "--size", "8M")
        with Serve("small/full") as s:
            c.run("qemu-io", "-f", "raw", s.url(), "-c", "write 0 4M")
            c.ceph("osd", "pool", "set-quota", "small", "max_bytes", "1000")
            c.wait(lambda: "full" in c.ceph("osd", "pool", "ls", "detail").split("'small'")[1].splitlines()[0], 60, "the pool is full")
        self.assertEqual(c.run("rbd", "lock", "ls", "small/full").stdout, b"")

    def test_a_snapshot_is_not_its_image(self):
        """`loligo rbd rm rbd/image@snap` removed the image, with all that it held."""
        c.run("rbd", "create", "whole", "--size", "8M")
        for command in [("rm",), ("resize", "--size", "1M", "--allow-shrink"), ("flatten",)]:
            refused = c.run(LOLIGO, "rbd", command[0], "whole@s", *command[1:], check=False)
            self.assertNotEqual(refused.returncode, 0)
            self.assertIn(b"named without a snapshot", refused.stderr)
        self.assertNotEqual(
            c.run(LOLIGO, "rbd", "create", "made@s", "--size", "1M", check=False).returncode, 0)
        self.assertEqual(json.loads(c.run("rbd", "info", "whole", "--format", "json").stdout)["size"], 8 << 20)
        c.run("rbd", "rm", "whole")

    def test_a_file_is_not_taken_for_a_socket(self):
        """`loligo nbd serve --socket FILE` removed a file of that name."""
        c.run("rbd", "create", "served", "--size", "8M")
        path = os.path.join(c.dir, "a-file")
        pathlib.Path(path).write_bytes(b"content")
        refused = c.run(LOLIGO, "nbd", "serve", "served", "--socket", path, check=False)
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn(b"no socket", refused.stderr)
        self.assertEqual(pathlib.Path(path).read_bytes(), b"content")
        c.run("rbd", "rm", "served")

    def test_an_image_of_a_group_stays(self):
        """It was removed, and the group could do nothing any more."""
        c.run("rbd", "create", "member", "--size", "8M")
        c.run("rbd", "group", "create", "rbd/group")
        c.run("rbd", "group", "image", "add", "rbd/group", "rbd/member")
        refused = c.run(LOLIGO, "rbd", "rm", "member", check=False)
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn(b"it belongs to a group; 'rbd group image rm", refused.stderr)
        c.run("rbd", "group", "snap", "create", "rbd/group@s")
        c.run("rbd", "group", "snap", "rm", "rbd/group@s")
        c.run("rbd", "group", "image", "rm", "rbd/group", "rbd/member")
        loligo("rbd", "rm", "member")
        c.run("rbd", "group", "rm", "rbd/group")

    def test_the_lock_of_the_dead_is_broken(self):
        loligo("rbd", "create", "orphan", "--size", "8M")
        s = Serve("rbd/orphan")
        s.__enter__()
        c.run("qemu-io", "-f", "raw", s.url(), "-c", "write -P 4 0 1M")
        watchers = json.loads(c.run("rbd", "status", "orphan", "--format", "json").stdout)["watchers"]
        self.assertEqual(len(watchers), 1)
        s.process.kill()
        s.process.wait()
        s.process.stdout.close()
        s.log.close()
        # As if its watch had timed out: the cluster throws the dead client out.
        c.ceph("osd", "blocklist", "add", watchers[0]["address"])
        with Serve("rbd/orphan") as again:
            c.run("qemu-io", "-f", "raw", again.url(), "-c", "read -P 4 0 1M", "-c", "write -P 5 0 1M", timeout=60)
        self.assertEqual(c.run("rbd", "export", "orphan", "-").stdout[:MIB], b"\5" * MIB)


class Journals(unittest.TestCase):
    """Images whose changes go through a journal, written by ours and by librbd in turn."""

    FEATURES = "layering,exclusive-lock,object-map,fast-diff,journaling"
    # Content that is in the journal only: the writer's position is never kept, and its objects are
    # taken away behind its back.
    LAZY = "[client]\nrbd_journal_commit_age = 100000\n"

    def lazy_conf(self):
        path = tmp / "lazy.conf"
        path.write_text(pathlib.Path(c.conf).read_text() + "\n" + self.LAZY)
        return str(path)

    def journal(self, image, what="status"):
        """`rbd journal info` or `status`, as JSON."""
        return json.loads(c.run("rbd", "journal", what, "--image", image, "--format", "json").stdout)

    def id_of(self, image):
        return json.loads(c.run("rbd", "info", image, "--format", "json").stdout)["id"]

    def check_gone(self, id):
        self.assertNotIn(id, c.run("rados", "-p", "rbd", "ls").stdout.decode())

    def throw_out(self, image):
        """As if the dead client's watch had timed out."""
        for watcher in json.loads(c.run("rbd", "status", image, "--format", "json").stdout)["watchers"]:
            c.ceph("osd", "blocklist", "add", watcher["address"])

    def lose_objects(self, image):
        prefix = json.loads(c.run("rbd", "info", image, "--format", "json").stdout)["block_name_prefix"]
        names = [n for n in c.run("rados", "-p", "rbd", "ls").stdout.decode().split() if n.startswith(prefix)]
        self.assertTrue(names)
        for name in names:
            c.run("rados", "-p", "rbd", "rm", name)

    def test_ours_dies_librbd_replays(self):
        image = "journal-of-ours"
        loligo("rbd", "create", image, "--size", "10M", "--object-size", "1M", "--image-feature", self.FEATURES)
        info = self.journal(image, "info")
        self.assertEqual((info["order"], info["splay_width"]), (24, 4))
        s = Serve(f"rbd/{image}", conf=self.lazy_conf())
        s.__enter__()
        c.run("qemu-io", "-f", "raw", s.url(), "-c", "write -P 1 0 4M", "-c", "write -P 2 1000000 2000001",
              "-c", "discard 3M 512k", "-c", "write -P 3 9M 1M")
        s.process.kill()
        s.process.wait()
        s.process.stdout.close()
        s.log.close()
        (client,) = self.journal(image)["registered_clients"]
        self.assertEqual(client["commit_position"]["object_positions"], [])
        path = str(tmp / "exported-of-ours")
        said = c.run("rbd", "journal", "export", "--image", image, "--path", path)
        self.assertIn(b" entries processed, 0 errors", said.stdout + said.stderr)
        entries = [line for line in pathlib.Path(path).read_text().splitlines() if not line.startswith("#")]
        # 7 MiB in entries of 16 KiB at most, and a discard.
        self.assertGreater(len(entries), 400)
        self.throw_out(image)
        self.lose_objects(image)
        wanted = bytearray(b"\1" * (4 * MIB) + bytes(5 * MIB) + b"\3" * MIB)
        wanted[1000000:3000001] = b"\2" * 2000001
        wanted[3 * MIB:3 * MIB + 512 * 1024] = bytes(512 * 1024)
        with rados.Rados(conffile=c.conf) as cluster, cluster.open_ioctx("rbd") as io:
            with rbd.Image(io, image) as opened:
                opened.write(b"librbd", 5 * MIB)
                wanted[5 * MIB:5 * MIB + 6] = b"librbd"
                self.assertEqual(opened.read(0, 10 * MIB), bytes(wanted))
        self.assertEqual(c.run("rbd", "export", image, "-").stdout, bytes(wanted))
        id = self.id_of(image)
        c.run("rbd", "rm", "--no-progress", image)
        self.check_gone(id)

    def test_librbd_dies_ours_replays(self):
        image = "journal-of-librbd"
        c.run("rbd", "create", image, "--size", "10M", "--object-size", "1M", "--image-feature", self.FEATURES)
        script = f"""
import os, rados, rbd, signal
cluster = rados.Rados(conffile={self.lazy_conf()!r})
cluster.connect()
image = rbd.Image(cluster.open_ioctx("rbd"), {image!r})
image.write(b"a" * {4 * MIB}, 0)
image.write(b"b" * 2000001, 1000000)
image.discard({3 * MIB}, {512 * 1024})
image.discard(100, 200)
image.write(b"c" * {MIB}, {9 * MIB})
image.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""
        died = subprocess.run(["/usr/bin/python3", "-c", script], timeout=60)
        self.assertEqual(died.returncode, -signal.SIGKILL)
        self.throw_out(image)
        with Serve(f"rbd/{image}", read_only=True) as s:
            before = c.run("nbdcopy", s.url(), "-").stdout
        self.lose_objects(image)
        with Serve(f"rbd/{image}") as s:
            c.run("qemu-io", "-f", "raw", s.url(), "-c", "write -P 9 9M 4k")
            found = c.run("nbdcopy", s.url(), "-").stdout
        wanted = before[:9 * MIB] + b"\x09" * 4096 + before[9 * MIB + 4096:]
        self.assertEqual(found, wanted)
        self.assertEqual(wanted[1000000:3000001], b"b" * 2000001)
        positions = self.journal(image)["registered_clients"][0]["commit_position"]["object_positions"]
        self.assertEqual(len(positions), 4)
        id = self.id_of(image)
        loligo("rbd", "rm", image)
        self.check_gone(id)

    def test_changes_of_the_whole(self):
        """Snapshots, sizes, clones and rollbacks by both, with a journal that fills and is trimmed,
        and that `rbd journal inspect` and `export` read."""
        image = "journal-both"
        c.run("rbd", "create", image, "--size", "4M", "--object-size", "1M", "--image-feature", self.FEATURES,
              "--journal-object-size", "64K", "--journal-splay-width", "2")
        with Serve(f"rbd/{image}") as s:
            c.run("qemu-io", "-f", "raw", s.url(), "-c", "write -P 1 0 2M")
        loligo("rbd", "snap", "create", f"{image}@one")
        c.run("rbd", "snap", "create", "--no-progress", f"{image}@two")
        loligo("rbd", "resize", image, "--size", "6M")
        c.run("rbd", "resize", "--no-progress", image, "--size", "5M", "--allow-shrink")
        with Serve(f"rbd/{image}") as s:
            c.run("qemu-io", "-f", "raw", s.url(), "-c", "write -P 2 1M 4M")
        loligo("rbd", "snap", "protect", f"{image}@one")
        c.run("rbd", "clone", f"{image}@one", "journal-child", "--image-feature", self.FEATURES)
        loligo("rbd", "flatten", "journal-child")
        loligo("rbd", "snap", "unprotect", f"{image}@one")
        self.assertEqual(c.run("rbd", "export", "journal-child", "-").stdout, b"\1" * (2 * MIB) + bytes(2 * MIB))
        self.assertEqual(c.run("rbd", "export", image, "-").stdout, b"\1" * MIB + b"\2" * (4 * MIB))
        loligo("rbd", "snap", "rollback", f"{image}@two")
        self.assertEqual(c.run("rbd", "export", image, "-").stdout, b"\1" * (2 * MIB) + bytes(2 * MIB))
        status = self.journal(image)
        self.assertGreater(status["active_set"], 10)
        self.assertGreaterEqual(status["minimum_set"], status["active_set"] - 1)
        said = c.run("rbd", "journal", "inspect", "--verbose", "--image", image)
        self.assertIn(b" 0 errors", said.stdout + said.stderr)
        path = str(tmp / "exported")
        c.run("rbd", "journal", "export", "--image", image, "--path", path)
        self.assertTrue(os.path.exists(path))
        for snap in ("one", "two"):
            loligo("rbd", "snap", "rm", f"{image}@{snap}")
        for name in (image, "journal-child"):
            id = self.id_of(name)
            loligo("rbd", "rm", name)
            self.check_gone(id)


class Bench(unittest.TestCase):
    def test_a_load_that_is_told_to_stop_closes_its_image(self):
        """Its lock and its watch stayed: the next who wrote waited half a minute, and fenced the dead off."""
        loligo("rbd", "create", "stopped", "--size", "16M")
        job = subprocess.Popen([LOLIGO, "bench", "rbd", "stopped", "--rw=randwrite", "--runtime=600"], text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ, CEPH_CONF=c.conf))

        def locked():
            return json.loads(c.run("rbd", "lock", "ls", "stopped", "--format", "json").stdout)
        c.wait(locked, 30, "it writes")
        job.send_signal(signal.SIGINT)
        _, said = job.communicate(timeout=30)
        self.assertEqual((job.returncode, "told to stop" in said), (1, True), said)
        self.assertFalse(locked())
        self.assertFalse(json.loads(c.run("rbd", "status", "stopped", "--format", "json").stdout)["watchers"])

    def test_a_load_in_fio_s_words(self):
        loligo("rbd", "create", "load", "--size", "16M")
        told = json.loads(loligo("bench", "rbd", "load", "--rw=randrw", "--rwmixread=30", "--bs=4k", "--iodepth=16",
                                 "--size=4M", "--verify", "--json"))
        job = told["jobs"][0]
        self.assertEqual((job["error"], job["verify_errors"]), (0, 0))
        self.assertEqual(job["read"]["total_ios"] + job["write"]["total_ios"], 1024)
        p = job["write"]["clat_ns"]["percentile"]
        self.assertLessEqual(p["50.000000"], p["99.900000"])
        text = loligo("bench", "rados", "rbd", "--rw=randread", "--size=8M", "--runtime=1", "--iodepth=4", "--numjobs=2")
        self.assertRegex(text, r"read: \d+ IOPS")
        with rados.Rados(conffile=c.conf) as cluster, cluster.open_ioctx("rbd") as io:
            self.assertFalse([o.key for o in io.list_objects() if o.key.startswith("benchmark_data")])


if __name__ == "__main__":
    unittest.main(verbosity=2)
