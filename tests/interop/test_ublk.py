"""`loligo ublk`: images as block devices of a kernel, used by mkfs, mount, fio, blkdiscard. Where this
machine's kernel has no ublk they are used in a virtual machine (vm.py) whose 127.0.0.1 is ours, so that
the cluster is the one here. Where there can be no such machine that is said, and what is left is the
message of a kernel without ublk. The machine is emulated: about a minute, several on a busy one."""
import hashlib
import itertools
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import time
import unittest

import vm
from cluster import Cluster, LOLIGO

MIB = 1 << 20
CONTROL = "/dev/ublk-control"
numbers = itertools.count()


class Here:
    """This machine, as vm.Machine."""

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        pass

    def run(self, *args, input=None, check=True, timeout=120, env={}):
        r = subprocess.run(args, input=input, capture_output=True, text=True, errors="replace", timeout=timeout,
                           env=dict(os.environ, **env))
        if check and r.returncode != 0:
            raise AssertionError(f"{shlex.join(args)}: exit {r.returncode}\n{r.stdout}\n{r.stderr}")
        return r.returncode, r.stdout, r.stderr


def has_ublk():
    if not os.path.exists(CONTROL) and os.geteuid() == 0 and shutil.which("modprobe"):
        subprocess.run(["modprobe", "ublk_drv"], capture_output=True)
    return os.access(CONTROL, os.R_OK | os.W_OK)


def setUpModule():
    global c, m, whose, binary
    binary = LOLIGO
    c = Cluster()
    c.__enter__()
    c.pool("rbd", 8)
    c.run("rbd", "pool", "init", "rbd")
    whose = Here() if has_ublk() else vm.Machine()
    started = time.monotonic()
    try:
        m = whose.__enter__()
    except vm.Unavailable as why:
        m = None
        print(f"NOT RUN, but for the message of a kernel without ublk: no virtual machine can be had: {why}", flush=True)
        return
    print(f"on {m.run('uname', '-srn')[1].strip()}, after {time.monotonic() - started:.0f} s", flush=True)
    if isinstance(m, vm.Machine):
        binary = vm.GUEST_ROOT + os.path.abspath(LOLIGO)
        for path in (c.conf, f"{c.dir}/ceph.client.admin.keyring"):
            put(path, pathlib.Path(path).read_text())


def tearDownModule():
    if m is not None:
        whose.__exit__(None, None, None)
    c.__exit__(None, None, None)


def put(path, text):
    m.run("sh", "-c", f"mkdir -p {os.path.dirname(path)}; cat >{path}", input=text)


def load_module():
    if isinstance(m, vm.Machine) and m.run("test", "-e", CONTROL, check=False)[0] != 0:
        m.run(vm.BUSYBOX, "insmod", f"{vm.GUEST_MODULES}/ublk_drv.ko")


def loligo(*args, check=True):
    """`loligo ARGS` where the kernel is: exit code, output, errors."""
    return m.run(binary, *args, check=check, env={"CEPH_CONF": c.conf})


def sh(script, check=True, timeout=300):
    """A shell script where the kernel is: what it printed."""
    code, out, err = m.run("bash", "-ec", script, check=check, timeout=timeout)
    return out + ("" if check else f"{err}exit {code}\n")


def create(name, *args):
    c.run(LOLIGO, "rbd", "create", f"rbd/{name}", *args)


def export(spec):
    """An image's content, read with librbd."""
    return c.run("rbd", "export", "--no-progress", spec, "-").stdout


def sha(data):
    return hashlib.sha256(data).hexdigest()


class Served:
    """`loligo ublk` for a while: `.path` is the device."""

    def __init__(self, image, *args):
        self.image, self.args = image, args

    def __enter__(self):
        self.log = f"/tmp/ublk-{os.getpid()}-{next(numbers)}"
        command = shlex.join([binary, "ublk", self.image, *self.args])
        server = f"CEPH_CONF={c.conf} {command} >{self.log} 2>&1 & echo $! >{self.log}.pid; wait $!; echo $? >{self.log}.code"
        said = sh(f"setsid sh -c {shlex.quote(server)} >/dev/null 2>&1 </dev/null &\n"
                  f"until grep -qs ^ublk: {self.log} || [ -e {self.log}.code ]; do sleep 0.1; done; cat {self.log} {self.log}.pid")
        if "ublk: " not in said:
            raise AssertionError(said)
        line = next(line for line in said.splitlines() if line.startswith("ublk: "))
        self.path = line.split()[-1]
        self.size = int(line.split("(")[1].split()[0])
        self.pid = said.split()[-1]
        return self

    def end(self, how="TERM"):
        """Ends the server by a signal (or as `None`: waits); its exit code and what it said."""
        kill = f"kill -{how} {self.pid}; " if how else ""
        said = sh(f"{kill}until [ -s {self.log}.code ]; do sleep 0.1; done; cat {self.log}.code {self.log}")
        return int(said.split("\n", 1)[0]), said

    def __exit__(self, kind, *exc):
        code, said = self.end("TERM" if kind is None else "KILL")
        if kind is None:
            assert code == 0, said
            assert "exit 1" in sh(f"test -e {self.path}", check=False), f"{self.path} is still there"


class Absent(unittest.TestCase):
    def test_a_kernel_without_ublk_is_told_of(self):
        """The first of all tests, by its name: the module is loaded after it."""
        if m is None:
            code, out, err = Here().run(binary, "ublk", "rbd/none", check=False, env={"CEPH_CONF": c.conf})
        elif m.run("test", "-e", CONTROL, check=False)[0] == 0:
            return print("this kernel has ublk from the start")
        else:
            code, out, err = loligo("ublk", "rbd/none", check=False)
        self.assertEqual((code, out), (1, ""))
        for words in (CONTROL, "modprobe ublk_drv", "Linux 6.5", "loligo nbd serve rbd/none "):
            self.assertIn(words, err)
        self.assertEqual(err.count("\n"), 1, err)


class Devices(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if m is None:
            raise unittest.SkipTest("no kernel with ublk, see above")
        load_module()

    def test_a_file_system_lives_on_a_device(self):
        create("disk", "--size", "48M", "--object-size", "1M")
        with Served("rbd/disk") as s:
            self.assertEqual(s.size, 48 * MIB)
            said = sh(f"""mkfs.ext4 -q {s.path}
                mkdir -p /tmp/fs; mount {s.path} /tmp/fs
                dd if=/dev/urandom of=/tmp/fs/random bs=1M count=8 status=none
                cp -r /usr/share/perl5/Debconf /tmp/fs/tree; sync
                rm -r /tmp/fs/tree/*a*; sha256sum </tmp/fs/random
                cp /tmp/fs/random /tmp/fs/again; fstrim /tmp/fs""")
            # Its owner is told that it is in use, and a second device of that number is refused.
            code, _, err = loligo("ublk", "--stop", s.path, check=False)
            self.assertEqual(code, 1)
            self.assertIn("unmount it first", err)
            number = s.path.removeprefix("/dev/ublkb")
            code, _, err = loligo("ublk", "disk", "--device", number, check=False)
            self.assertEqual(code, 1)
            self.assertIn(f"{s.path} is in use", err)
            listed = loligo("ublk", "--list")[1]
            self.assertRegex(listed, rf"{s.path} +48 MiB +live +1 +128 +{s.pid} .*loligo ublk rbd/disk")
            check = sh(f"umount /tmp/fs; fsck.ext4 -fn {s.path} 2>&1; sha256sum <{s.path}")
            loligo("ublk", "--stop", s.path)
            code, log = s.end(None)
            self.assertEqual(code, 0, log)
            s.end = lambda how: (0, "")
        content = export("disk")
        self.assertEqual(check.split()[-2], sha(content))
        # What librbd wrote is what a device shows, and a file system's own check agrees.
        create("copy", "--size", "48M")
        c.run("rbd", "import", "--no-progress", "--dest-pool", "rbd", "-", "imported", input=content)
        with Served("rbd/imported", "--queues", "2", "--depth", "4") as s:
            again = sh(f"mount {s.path} /tmp/fs; sha256sum </tmp/fs/again; echo more >/tmp/fs/more; umount /tmp/fs; fsck.ext4 -fn {s.path} >&2")
        self.assertEqual(again.split()[0], said.split()[0])

    def test_verified_writes_while_an_osd_dies(self):
        """Two devices at once, of several queues, with 4 KiB at random places."""
        for name in ("one", "two"):
            create(name, "--size", "16M", "--object-size", "1M")
        with Served("one", "--queues", "2", "--depth", "8") as one, Served("two", "--depth", "64") as two:
            log = f"/tmp/fio-{next(numbers)}"
            jobs = "".join(f"[{d.path}]\nfilename={d.path}\nsize=4M\n" for d in (one, two))
            put(f"{log}.job", "[global]\nrw=randwrite\nbs=4k\ndirect=1\nioengine=libaio\niodepth=32\nnumber_ios=150\n"
                f"verify=crc32c\nverify_fatal=1\n{jobs}")
            fio = f"fio {log}.job --output={log}.out --aux-path=/tmp; echo $? >{log}.code"
            sh(f"setsid sh -c {shlex.quote(fio)} >/dev/null 2>{log}.err </dev/null &\n"
               f"until [ $(awk '{{print $5}}' /sys/block/{two.path[5:]}/stat) -gt 40 ] || [ -e {log}.code ]; do sleep 0.1; done")
            c.kill("osd.0")
            said = sh(f"until [ -s {log}.code ]; do sleep 0.2; done; cat {log}.code {log}.out {log}.err")
            self.assertTrue(said.startswith("0\n"), said)
            self.assertEqual(said.count("err= 0"), 2, said)
            sums = sh(f"sha256sum {one.path} {two.path}").split()
        for image, found in (("one", sums[0]), ("two", sums[2])):
            self.assertEqual(sha(export(image)), found)
        c.up()

    def test_ranges_are_given_back_and_zeroed(self):
        create("ranges", "--size", "8M", "--object-size", "1M")
        prefix = json.loads(c.run("rbd", "info", "ranges", "--format", "json").stdout)["block_name_prefix"]

        def objects():
            names = c.run("rados", "-p", "rbd", "ls").stdout.decode().split()
            return sorted(int(n.rsplit(".", 1)[1], 16) for n in names if n.startswith(prefix))
        with Served("ranges") as s:
            sh(f"tr '\\0' x </dev/zero | dd of={s.path} bs=1M count=8 iflag=fullblock oflag=direct status=none")
            self.assertEqual(objects(), list(range(8)))
            sh(f"blkdiscard -o 1M -l 2M {s.path}; blkdiscard -z -o 4M -l 1M {s.path}; fallocate -p -o 6M -l 65536 {s.path}\n"
               f"fallocate -z -o 7340032 -l 4096 {s.path}; printf y | dd of={s.path} bs=1 seek=5242881 conv=notrunc,fsync status=none")
            self.assertEqual(objects(), [0, 3, 5, 6, 7])
            found = sh(f"sha256sum <{s.path}").split()[0]
        wanted = bytearray(b"x" * 8 * MIB)
        for at, size in ((1 * MIB, 2 * MIB), (4 * MIB, MIB), (6 * MIB, 65536), (7 * MIB, 4096)):
            wanted[at:at + size] = bytes(size)
        wanted[5 * MIB + 1] = ord("y")
        self.assertEqual(sha(wanted), found)
        self.assertEqual(export("ranges"), bytes(wanted))

    def test_what_may_not_be_written_is_not(self):
        create("kept", "--size", f"{MIB + 100}B")
        c.run("rbd", "bench", "kept", "--io-type", "write", "--io-size", "64K", "--io-total", "512K")
        c.run("rbd", "snap", "create", "--no-progress", "kept@s")
        before = export("kept@s")[:MIB]
        with Served("kept") as s:
            # The last 100 bytes are no sector.
            self.assertEqual(s.size, MIB)
            sh(f"echo changed | dd of={s.path} conv=notrunc,fsync status=none")
        for spec, args in (("kept@s", ()), ("kept", ("--read-only",))):
            with Served(spec, *args) as s:
                said = sh(f"blockdev --getro {s.path}; sha256sum <{s.path}; echo x | dd of={s.path} conv=fsync", check=False)
                self.assertEqual(said.split()[0], "1")
                self.assertNotIn("exit 0", said)
                wanted = before if "@" in spec else b"changed\n" + before[8:]
                self.assertEqual(said.split()[1], sha(wanted))
        self.assertEqual(export("kept")[:8], b"changed\n")

    def test_the_device_of_a_killed_server_is_gone(self):
        """Its users get errors; what was acknowledged is there for the next."""
        create("killed", "--size", "8M")
        s = Served("killed").__enter__()
        sh(f"echo acknowledged | dd of={s.path} conv=fsync status=none")
        code, _ = s.end("KILL")
        self.assertEqual(code, 137)
        sh(f"while [ -e {s.path} ]; do sleep 0.1; done")
        self.assertRegex(loligo("ublk", "--list")[1], rf"{s.path} .*dead .*nobody")
        loligo("ublk", "--stop", s.path)
        self.assertNotIn(s.path, loligo("ublk", "--list")[1])
        # As if its watch had timed out: the cluster throws the dead client out.
        for watcher in json.loads(c.run("rbd", "status", "killed", "--format", "json").stdout)["watchers"]:
            c.ceph("osd", "blocklist", "add", watcher["address"])
        with Served("killed") as s:
            self.assertEqual(sh(f"head -c 12 {s.path}"), "acknowledged")

    def test_a_server_told_to_end_lets_the_kernel_write(self):
        create("ended", "--size", "16M")
        with Served("ended") as s:
            sh(f"mkfs.ext4 -q {s.path}; mkdir -p /tmp/fs; mount {s.path} /tmp/fs; echo held >/tmp/fs/by-the-kernel")
        sh("umount /tmp/fs")
        with Served("ended") as s:
            self.assertEqual(sh(f"mount {s.path} /tmp/fs; cat /tmp/fs/by-the-kernel; umount /tmp/fs; fsck.ext4 -fn {s.path} >&2"), "held\n")

    def test_errors_say_what_to_do(self):
        for args, words in ((("none",), "there is no such image"), (("--stop", "77"), "there is no /dev/ublkb77"),
                            (("nopool/x",), "there is no pool nopool"), (("x", "--depth", "0"), "1..=1024")):
            code, _, err = loligo("ublk", *args, check=False)
            self.assertNotEqual(code, 0)
            self.assertIn(words, err)
        code, _, err = m.run("setpriv", "--reuid=65534", "--clear-groups", binary, "ublk", "--list", check=False)
        self.assertEqual(code, 1)
        self.assertIn("run this as root", err)
        self.assertNotIn("/dev/ublkb", loligo("ublk", "--list")[1])


if __name__ == "__main__":
    unittest.main(verbosity=2)
