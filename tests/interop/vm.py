"""A virtual machine for what this machine's kernel lacks: Debian's newest 6.12 kernel in qemu,
emulated (KVM is not to be had everywhere, nor does it run such a kernel wherever there is /dev/kvm), this
machine's files read-only below it, memory for what is written, this machine's 127.0.0.1 as its own.

    with vm.Machine() as m: m.run("uname", "-r")
    vm.py COMMAND [ARG ...]       runs a command as root in such a machine; the exit code is its

What is needed is fetched once (one Debian package, by apt-get with lists and sources of its own) into
~/.cache/loligo/vm or $LOLIGO_VM_CACHE; `Unavailable` says why there can be no machine."""
import fcntl
import glob
import gzip
import json
import lzma
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading

CACHE = pathlib.Path(os.environ.get("LOLIGO_VM_CACHE") or pathlib.Path.home() / ".cache/loligo/vm")
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
SOURCE = f"deb [signed-by={KEYRING}] http://deb.debian.org/debian bookworm-backports main\n"
PACKAGE = r"linux-image-6\.12\.[0-9.]+\+[^-]*-amd64"
BUSYBOX = shutil.which("busybox")
QEMU = shutil.which("qemu-system-x86_64")
# Modules in the order of their loading: this machine's files, then what the tests use.
ROOT_MODULES = ["netfs", "9pnet", "9pnet_virtio", "9p", "failover", "net_failover", "virtio_net"]
MODULES = ["crc32c_generic", "libcrc32c", "crc16", "mbcache", "jbd2", "ext4"]
TEST_MODULES = ["ublk_drv"]
# Where modules are in a machine, and this machine's files with what its memory covers (/tmp, /run).
GUEST_MODULES = "/run/vm/modules"
GUEST_ROOT = "/run/vm/host"
MEMORY = "2G"
CPUS = 2

# Before this machine's files are there. What goes to 127.0.0.1 leaves by the network card: qemu's user
# network connects it to this machine's own.
INIT = """#!/bin/busybox sh
bb=/bin/busybox
$bb mount -t proc none /proc
$bb mount -t devtmpfs none /dev
for m in %(modules)s; do $bb insmod /modules/$m.ko || echo "cannot load $m"; done
$bb mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=524288,cache=loose root /root || $bb poweroff -f
for d in tmp run var/tmp mnt; do $bb mount -t tmpfs -o mode=1777 none /root/$d; done
$bb mount -t proc none /root/proc
$bb mount -t sysfs none /root/sys
$bb mount -t devtmpfs none /root/dev
$bb mkdir -p /root/run/vm/host
$bb mount -o bind /root /root/run/vm/host
$bb cp -r /modules /agent.py /root/run/vm/
$bb ip link set lo up
$bb ip link set eth0 up
$bb ip addr add 10.0.2.15/24 dev eth0
for all in /proc/sys/net/ipv4/conf/*; do echo 0 >$all/rp_filter; echo 1 >$all/route_localnet; done
$bb ip addr del 127.0.0.1/8 dev lo
$bb ip route add 127.0.0.1 via 10.0.2.2 dev eth0 src 10.0.2.15
$bb chroot /root /usr/bin/python3 /run/vm/agent.py
$bb poweroff -f
"""

# Runs what comes on a serial line: one request of JSON a line, one answer.
AGENT = """
import json, os, subprocess, sys, tty
os.environ.update(PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", HOME="/tmp", TMPDIR="/tmp")
os.chdir("/tmp")
line = os.open("/dev/ttyS1", os.O_RDWR)
tty.setraw(line)
channel = os.fdopen(line, "r+b", buffering=0)
requests = os.fdopen(os.dup(line), "rb")
channel.write(b'{"ready": true}\\n')
for request in requests:
    asked = json.loads(request)
    try:
        r = subprocess.run(asked["args"], input=asked["input"], capture_output=True, text=True, errors="replace",
                           timeout=asked["timeout"], env=dict(os.environ, **asked["env"]))
        answer = dict(code=r.returncode, out=r.stdout, err=r.stderr)
    except (OSError, subprocess.TimeoutExpired) as error:
        answer = dict(code=-1, out="", err=str(error))
    channel.write(json.dumps(answer).encode() + b"\\n")
"""


class Unavailable(Exception):
    """There can be no virtual machine here; the text says why."""


def run(*command, **kw):
    try:
        r = subprocess.run(command, capture_output=True, text=True, timeout=300, **kw)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{shlex.join(command)}: {error}")
    if r.returncode != 0:
        raise Unavailable(f"{command[0]} {command[-1]}: exit {r.returncode}: {(r.stdout + r.stderr).strip()[-1000:]}")
    return r.stdout


def requirements():
    """What must be on this machine."""
    for name, found in (("qemu-system-x86_64 (package qemu-system-x86)", QEMU), ("busybox (package busybox-static)", BUSYBOX)):
        if not found:
            raise Unavailable(f"no {name}")
    if os.uname().machine != "x86_64":
        raise Unavailable("its programs would be this machine's, and they are not x86_64's")


def kernel():
    """The folder with `vmlinuz` and modules; fetched unless it is there."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = sorted(CACHE.glob("kernel-*/vmlinuz"), key=lambda path: path.stat().st_mtime)
        return found[-1].parent if found else fetch()


def version_key(version):
    return [int(part) for part in re.findall(r"\d+", version)]


def fetch():
    """Downloads and unpacks the newest package; this machine's own apt stays as it is."""
    print("vm: fetching a kernel of Debian's backports", flush=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as at:
        for name in ("lists/partial", "archives/partial"):
            os.makedirs(f"{at}/{name}")
        pathlib.Path(at, "sources.list").write_text(SOURCE)
        apt = ["-o", f"Dir::Etc::SourceList={at}/sources.list", "-o", "Dir::Etc::SourceParts=-",
               "-o", f"Dir::State::Lists={at}/lists", "-o", f"Dir::Cache={at}", "-o", "APT::Sandbox::User=root",
               "-o", "Acquire::http::Timeout=20", "-o", "Acquire::Retries=1"]
        run("apt-get", *apt, "-o", "APT::Update::Error-Mode=any", "-qq", "update", cwd=at)
        names = re.findall(rf"^({PACKAGE}) ", run("apt-cache", *apt, "search", "--names-only", "^linux-image-6"), re.M)
        if not names:
            raise Unavailable("bookworm-backports has no package linux-image-6.12*-amd64")
        name = max(names, key=version_key)
        run("apt-get", *apt, "-qq", "download", name, cwd=at)
        (package,) = glob.glob(f"{at}/{name}_*.deb")
        unpack(package, pathlib.Path(at, "kernel"))
        kernel = CACHE / f"kernel-{name}"
        shutil.rmtree(kernel, ignore_errors=True)
        os.rename(f"{at}/kernel", kernel)
    print(f"vm: {name} in {CACHE}", flush=True)
    return kernel


def unpack(package, to):
    to.mkdir()
    with tempfile.TemporaryDirectory(dir=CACHE) as whole:
        wanted = [f"*/{module}.ko*" for module in ROOT_MODULES + MODULES + TEST_MODULES]
        tar = f"dpkg-deb --fsys-tarfile {shlex.quote(package)} | tar -x -C {whole} --wildcards './boot/vmlinuz*' {shlex.join(wanted)}"
        # A module that is built in is not in the package.
        subprocess.run(["bash", "-c", tar], stderr=subprocess.DEVNULL)
        for path in pathlib.Path(whole).rglob("*.ko*"):
            data = path.read_bytes()
            (to / path.name.removesuffix(".xz")).write_bytes(lzma.decompress(data) if path.suffix == ".xz" else data)
        found = glob.glob(f"{whole}/boot/vmlinuz*")
        if not found or not (to / "ublk_drv.ko").exists():
            raise Unavailable(f"{package} has no kernel with ublk")
        os.rename(found[0], to / "vmlinuz")


def entry(name, data=b"", mode=0o100755, rdev=(0, 0)):
    """One file of a cpio archive (newc)."""
    name = name.encode() + b"\0"
    fields = [0, mode, 0, 0, 1, 0, len(data), 0, 0, *rdev, len(name), 0]
    head = b"070701" + b"".join(b"%08x" % field for field in fields) + name
    return head + bytes(-len(head) % 4) + data + bytes(-len(data) % 4)


def initramfs(kernel):
    modules = " ".join(m for m in ROOT_MODULES + MODULES if (kernel / f"{m}.ko").exists())
    parts = [entry(d, mode=0o040755) for d in ("bin", "proc", "dev", "root", "modules")]
    parts.append(entry("dev/console", mode=0o020600, rdev=(5, 1)))
    parts.append(entry("bin/busybox", pathlib.Path(BUSYBOX).read_bytes()))
    parts.append(entry("init", (INIT % dict(modules=modules)).encode()))
    parts.append(entry("agent.py", AGENT.encode()))
    parts += [entry(f"modules/{path.name}", path.read_bytes()) for path in sorted(kernel.glob("*.ko"))]
    return gzip.compress(b"".join(parts) + entry("TRAILER!!!"), 1)


class Machine:
    """A running machine; `with` starts and stops it. Commands run one at a time."""

    def __enter__(self):
        requirements()
        kernel_dir = kernel()
        self.dir = tempfile.TemporaryDirectory(prefix="loligo-vm-")
        at = self.dir.name
        pathlib.Path(at, "initramfs").write_bytes(initramfs(kernel_dir))
        self.console = pathlib.Path(at, "console")
        self.process = subprocess.Popen(
            [QEMU, "-accel", "tcg,thread=multi", "-cpu", "max", "-m", MEMORY, "-smp", str(CPUS), "-nodefaults",
             "-display", "none", "-no-reboot", "-kernel", str(kernel_dir / "vmlinuz"), "-initrd", f"{at}/initramfs",
             "-append", "console=ttyS0 loglevel=6 panic=-1 mitigations=off tsc=reliable",
             "-serial", f"file:{self.console}", "-serial", "stdio",
             "-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net,romfile=",
             "-virtfs", "local,path=/,mount_tag=root,security_model=none,readonly=on,multidevs=remap"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            self.answer(300)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, *exc):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()
        self.dir.cleanup()

    def answer(self, timeout):
        patience = threading.Timer(timeout, self.process.kill)
        patience.start()
        try:
            said = []
            for line in self.process.stdout:
                if line.startswith(b"{"):
                    return json.loads(line)
                said.append(line.decode(errors="replace"))
        finally:
            patience.cancel()
        raise AssertionError(f"the virtual machine has ended, or is stuck: {''.join(said)}\n{self.kernel_log()}")

    def kernel_log(self):
        return self.console.read_text(errors="replace")[-6000:]

    def run(self, *args, input=None, check=True, timeout=120, env={}):
        """Runs a command as root: its exit code, output and errors."""
        request = dict(args=args, input=input, timeout=timeout, env=dict(env))
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()
        answer = self.answer(timeout + 60)
        if check and answer["code"] != 0:
            raise AssertionError(f"{shlex.join(args)}: exit {answer['code']}\n{answer['out'][-2000:]}\n{answer['err'][-2000:]}")
        return answer["code"], answer["out"], answer["err"]


if __name__ == "__main__":
    try:
        with Machine() as machine:
            code, out, err = machine.run(*sys.argv[1:], check=False, timeout=600)
            sys.stdout.write(out)
            sys.stderr.write(err)
            if os.environ.get("LOLIGO_VM_LOG"):
                print(machine.kernel_log())
            sys.exit(code)
    except Unavailable as why:
        sys.exit(f"vm: {why}")
