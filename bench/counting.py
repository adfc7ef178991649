"""Counting what an operation costs an OSD: under valgrind (callgrind) in user instructions, at full speed in system calls, waits
and CPU time. The OSD is osd.0 of a cluster of 3 (size 3) on files; the data is an RBD image."""
import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/interop"))

import cluster  # noqa: E402

TICKS = os.sysconf("SC_CLK_TCK")
# The allocator's entrances as Rust calls them, whether a kept block serves or mimalloc; `realloc` in place counts, too.
ALLOCATES = re.compile(r"^__rustc(\[[0-9a-f]+\])?::__rust_(alloc|alloc_zeroed|realloc)$")


@contextlib.contextmanager
def image(pgs, log_entries, image_mb, size_gb, object_kb=1024, options=()):
    """A cluster with a filled image, its PG logs (of as many PGs as the image has objects) and what is remembered of trimmed entries
    full."""
    sets = ["rbd_cache=false", f"osd_min_pg_log_entries={log_entries}", f"osd_max_pg_log_entries={log_entries}",
            f"osd_pg_log_dups_tracked={log_entries}", "mon_max_pg_per_osd=5000"]
    with cluster.Cluster(osds=3, osd_size=f"{size_gb}G", sets=sets) as c:
        c.pool("bench", pgs)
        c.wait_clean(300)
        c.run("rbd", "pool", "init", "bench")
        c.run("rbd", "create", "--size", f"{image_mb}M", "--object-size", f"{object_kb}K", *options, "bench/image")
        c.run("rbd", "bench", "--io-type", "write", "--io-size", "1M", "--io-total", f"{image_mb}M", "bench/image", timeout=600)
        rbd_bench("write", 2 * log_entries * min(pgs, image_mb * 1024 // object_kb) * 5 // 4, 64)
        yield c


def lead(c, osd):
    """Makes one OSD the primary of all PGs."""
    for number in range(3):
        c.ceph("osd", "primary-affinity", f"osd.{number}", "1" if number == osd else "0")

    def primaries():
        return {row["acting_primary"] for row in c.json("pg", "dump", "pgs_brief")["pg_stats"]}

    c.wait(lambda: primaries() == {osd}, 300, f"osd.{osd} is the primary of all PGs")
    c.wait_clean(300)


def rbd_bench(kind, ops, depth):
    """4 KiB at random places of the image, `ops` times."""
    subprocess.run(["rbd", "bench", "--io-type", kind, "--io-pattern", "rand", "--io-size", "4096", "--io-threads", str(depth),
                    "--io-total", str(ops * 4096), "bench/image"], check=True, capture_output=True)


def counts(c):
    """{lead: writes that osd.0 led, follow: those it had a part in as a replica, read: what it answered}."""
    dump = c.json("tell", "osd.0", "perf", "dump")["osd"]
    return {"lead": dump["op_w"], "follow": dump["subop_w"], "read": dump["op_r"]}


def native(c, kind, run):
    """Cost of osd.0 at full speed, for each operation of a kind (of `counts`) that `run` makes it do."""
    pid = c.pid("osd.0")

    def usage():
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        # Of the one thread that does the work.
        waits = int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)[1])
        return int(fields[11]) / TICKS, int(fields[12]) / TICKS, waits

    perf, calls = None, None
    if shutil.which("perf"):
        perf = subprocess.Popen(["perf", "stat", "-x", ",", "-e", "raw_syscalls:sys_enter", "-p", str(pid)],
                                stderr=subprocess.PIPE, text=True)
        time.sleep(0.5)
    before, first = usage(), counts(c)
    run()
    after, last = usage(), counts(c)
    if perf:
        perf.send_signal(signal.SIGINT)
        line = perf.communicate(timeout=30)[1].strip().splitlines()
        with contextlib.suppress(ValueError, IndexError):
            calls = int(line[-1].split(",")[0])
    n = last[kind] - first[kind]
    user, system, waits = (b - a for a, b in zip(before, after))
    return {f"{kind}_user_us": user * 1e6 / n, f"{kind}_system_us": system * 1e6 / n, f"{kind}_waits": waits / n,
            f"{kind}_syscalls": calls and calls / n}


# The first level of a processor's caches and, as the last, its second: what is not there comes from a level that is shared with
# other machines, or from memory.
CACHES = ["--cache-sim=yes", "--I1=32768,8,64", "--D1=32768,8,64", "--LL=1048576,8,64"]


class Profile:
    """A file of callgrind: own instructions by function, calls by callee, misses of the simulated caches in all."""

    def __init__(self, path):
        self.own, self.calls, names = {}, {}, {}
        events, sums = [], []

        def name_of(text):
            number, _, name = text.partition(" ")
            if name:
                names[number] = name
            return names[number]

        function, skip, callee = None, False, None
        for line in open(path, errors="replace"):
            if line.startswith("fn="):
                function = name_of(line[3:].rstrip())
            elif line.startswith("cfn="):
                callee = name_of(line[4:].rstrip())
            elif line.startswith("calls="):
                self.calls[callee] = self.calls.get(callee, 0) + int(line[6:].split()[0])
                skip = True
            elif line.startswith("events:"):
                events = line.split()[1:]
                sums = [0] * len(events)
            elif line[0] in "0123456789+-*":
                # The line behind `calls=` is the callee's cost, counted with the callee.
                if not skip:
                    cost = [int(count) for count in line.split()[1:]]
                    self.own[function] = self.own.get(function, 0) + (cost[0] if cost else 0)
                    for at, count in enumerate(cost):
                        sums[at] += count
                skip = False
        self.total = sum(self.own.values())
        self.events = dict(zip(events, sums))

    def misses(self):
        """Of code in the first level, of data in the second."""
        return {"code_misses": self.events["I1mr"], "data_misses": self.events["DLmr"] + self.events["DLmw"]}

    def allocations(self):
        return sum(n for name, n in self.calls.items() if ALLOCATES.match(name.split("'")[0]))

    def top(self, count):
        return sorted(self.own.items(), key=lambda item: -item[1])[:count]


def short(name):
    """A function's name without hash and generic parameters' paths."""
    name = re.sub(r"::h[0-9a-f]{16}", "", name)
    return re.sub(r"\b(?:[a-z_0-9]+::)+(?=[A-Z])", "", name)[:110]


def under_valgrind(c, loads, keep=None):
    """Restarts osd.0 under callgrind and counts what each of `loads` makes it do: [(kind of `counts`, before, run)]. Yields for each
    its kind, the operations, the profile and the instructions of one operation, what it executes when idle taken off."""
    with tempfile.TemporaryDirectory(prefix="loligo-callgrind-") as work:
        yield from _under_valgrind(c, pathlib.Path(work), loads, keep)


def _under_valgrind(c, work, loads, keep):
    c.ceph("osd", "set", "noout")
    c.kill("osd.0", signal.SIGTERM)
    out = work / "callgrind.out"
    tool = subprocess.Popen(["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", "--instr-atstart=no", *CACHES,
                             cluster.LOLIGO, "osd", "--id", "0", "-c", c.conf], stdout=open(work / "valgrind.log", "w"), stderr=subprocess.STDOUT)
    control = lambda *how: subprocess.run(["callgrind_control", *how, str(tool.pid)], check=True, capture_output=True)  # noqa: E731
    try:
        c.wait(lambda: c.json("osd", "stat")["num_up_osds"] == 3, 120, "osd.0 up under valgrind")
        c.wait_clean(300)
        parts = []

        def counted(name, run):
            """What `run` makes osd.0 do: its profile, and how long it took."""
            control("-i", "on")
            begun = time.monotonic()
            run()
            took = time.monotonic() - begun
            control("-i", "off")
            control("-d", name)
            parts.append(name)
            file = f"{out}.{len(parts)}"
            if keep:
                shutil.copy(file, f"{keep}.{name}")
            return Profile(file), took

        idle, took = counted("idle", lambda: time.sleep(5))
        idle_rate = idle.total / took
        for kind, prepare, run in loads:
            prepare()
            before = counts(c)
            profile, took = counted(kind, run)
            after = counts(c)
            done = {k: after[k] - before[k] for k in after}
            ops = done[kind]
            print(f"{kind}: osd.0 led {done['lead']} writes, followed in {done['follow']}, answered {done['read']} reads; idle it executes "
                  f"{idle_rate / 1e6:.2f} million instructions a second", flush=True)
            yield kind, ops, profile, (profile.total - idle_rate * took) / ops
    finally:
        tool.terminate()
        tool.wait(timeout=120)
