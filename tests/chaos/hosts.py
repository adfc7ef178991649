"""Hosts as network namespaces, each with an address, a host name and disks of its own, joined by
a bridge. All of it lives in one private set of namespaces (network, mounts, processes) that
`enter` makes: nothing is left behind on the machine, whatever way the run ends.

    10.77.0.1        the bridge: clients run here
    10.77.0.11 ...   h1, h2, h3

A host is cut off from another by a wrong neighbour entry: what it sends goes to a MAC address that
nobody has, so packets vanish without a word, in one direction, and the kernel needs no filter.
"""
import os
import subprocess
import sys

BRIDGE = "10.77.0.1"
NOWHERE = "02:00:00:00:00:99"
INSIDE = "LOLIGO_CHAOS_INSIDE"
NEEDED = ["ip", "unshare", "nsenter", "mount"]


def enter():
    """Goes on in namespaces of its own: runs this program again in them, and exits with its code.
    Exits with 2 and says why when the machine does not permit them."""
    if os.environ.get(INSIDE):
        return
    missing = [tool for tool in NEEDED if not any(
        os.access(f"{folder}/{tool}", os.X_OK) for folder in os.get_exec_path() + ["/usr/sbin", "/sbin"])]
    if missing:
        sys.exit(f"missing: {', '.join(missing)}; install iproute2 and util-linux")
    command = ["unshare", "--net", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if os.geteuid() != 0:
        command.append("--map-root-user")
    tried = subprocess.run(command + ["sh", "-c", "ip link add t0 type veth peer name t1 && mount -t tmpfs t /run"],
                           capture_output=True, text=True, timeout=60, env=environment())
    if tried.returncode != 0:
        refuse(f"'{' '.join(command)}': {tried.stderr.strip()}")
    env = environment()
    env[INSIDE] = "1"
    os.execvpe("unshare", command + [sys.executable, "-u"] + sys.argv, env)


def refuse(why):
    print(f"this machine does not permit network namespaces, which the hosts of this test are: {why}\n"
          "Run it as root, or where user namespaces are allowed (in a container: with the capabilities "
          "SYS_ADMIN and NET_ADMIN).", file=sys.stderr)
    sys.exit(2)


def environment():
    env = dict(os.environ)
    env["PATH"] = env.get("PATH", "") + ":/usr/sbin:/sbin"
    return env


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment())
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")


class Host:
    """One host: h1, h2, ..."""

    def __init__(self, number):
        self.name, self.ip = f"h{number}", f"10.77.0.{10 + number}"
        run("ip", "netns", "add", self.name)
        run("ip", "link", "add", f"v{number}", "type", "veth", "peer", "name", "eth0", "netns", self.name)
        run("ip", "link", "set", f"v{number}", "master", "br0", "up")
        self.ip_command("addr", "add", f"{self.ip}/24", "dev", "eth0")
        self.ip_command("link", "set", "eth0", "up")
        self.ip_command("link", "set", "lo", "up")

    def ip_command(self, *args):
        run("ip", "-n", self.name, *args)

    def start(self, command, log):
        """A process on this host; its id is the program's own."""
        inside = ["nsenter", f"--net=/run/netns/{self.name}", "unshare", "--uts", "sh", "-c",
                  f'hostname {self.name}; exec "$@"', "sh"] + command
        with open(log, "a") as out:
            return subprocess.Popen(inside, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                    env=environment(), start_new_session=True)

    def deafen(self, other):
        """Nothing that this host sends reaches the other any more."""
        self.ip_command("neigh", "replace", other.ip, "lladdr", NOWHERE, "nud", "permanent", "dev", "eth0")

    def hear(self, other):
        """Undoes `deafen`."""
        self.ip_command("neigh", "del", other.ip, "dev", "eth0")


class Disk:
    """A file system in memory of a bounded size. When its bound is lowered to what it holds, writes
    that need a new block fail."""

    def __init__(self, path, size):
        self.path, self.size = path, size
        os.makedirs(path)
        run("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", path)

    def remove(self):
        """Its folder can be removed then; a process that is about to end may have a file open."""
        run("umount", "--lazy", self.path)

    def fail_writes(self):
        # The bound must not be below what is used, which grows meanwhile: a little room, then.
        for room in range(20):
            stat = os.statvfs(self.path)
            used = (stat.f_blocks - stat.f_bfree) * stat.f_frsize
            try:
                return run("mount", "-o", f"remount,size={used + (room << 18)}", self.path)
            except RuntimeError as error:
                failed = error
        raise failed

    def heal(self):
        run("mount", "-o", f"remount,size={self.size}", self.path)


def make(count):
    """The bridge and the hosts."""
    run("mount", "-t", "tmpfs", "tmpfs", "/run")
    os.makedirs("/run/netns")
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", "br0", "type", "bridge")
    run("ip", "addr", "add", f"{BRIDGE}/24", "dev", "br0")
    run("ip", "link", "set", "br0", "up")
    return [Host(number) for number in range(1, count + 1)]
