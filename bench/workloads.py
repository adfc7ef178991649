"""What comparisons have unmodified clients do, and how they look at the machine meanwhile."""
import re
import resource
import statistics
import subprocess
import threading

import clusters
import fio


def rados_bench(c, block, depth, seconds, run="", read=False):
    """`rados bench write` of objects of `block` bytes, new ones for each `run`; or `rados bench seq`, which reads those of a run again, each once."""
    what, how = ("reads", ["seq"]) if read else ("writes", ["write", "-b", str(block), "--no-cleanup"])
    command = ["rados", "-p", "bench", "bench", str(seconds), *how, "-t", str(depth), "--run-name", f"b{block}t{depth}{run}"]
    try:
        r = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60 + 5 * seconds).stdout
    except subprocess.TimeoutExpired:
        # Clients wait while a pool is full.
        health = subprocess.run(["ceph", "health"], capture_output=True, text=True, timeout=60).stdout.strip()
        raise SystemExit(f"{' '.join(command)} has not ended; {health}. If OSDs are full: fewer --seconds or a larger --size-gb")
    number = lambda what: float(re.search(rf"^{re.escape(what)}:\s+([\d.]+)", r, re.M)[1])  # noqa: E731
    ops = number(f"Total {what} made")
    return {"ops": ops, "bytes": ops * block, "iops": number("Average IOPS"), "avg_ms": number("Average Latency(s)") * 1e3,
            "max_ms": number("Max latency(s)") * 1e3}


def fio_rbd(c, rw, block, depth, seconds):
    """fio on the cluster's image (`c.image_mb`, `c.rbd_cache`), through librbd."""
    job = fio.on_image(rw, block, depth, f"{c.image_mb}M", "--randrepeat=1", f"--runtime={seconds}", "--time_based", rbd_cache=c.rbd_cache)
    w = job["write"] if "write" in rw else job["read"]
    at = w["clat_ns"].get("percentile", {})
    return {"ops": w["total_ios"], "bytes": w["io_bytes"], "iops": w["iops"], "avg_ms": w["lat_ns"]["mean"] / 1e6,
            "p99_ms": at.get("99.000000", 0) / 1e6, "p9999_ms": at.get("99.990000", 0) / 1e6, "max_ms": w["lat_ns"]["max"] / 1e6}


class Machine:
    """All cores, from entering to leaving: `busy_seconds` in all, `idle`, the median share of quarters of a second."""

    PERIOD = 0.25

    @staticmethod
    def times():
        """(busy, idle) seconds of all cores since the machine started; what others took of it (steal) is busy."""
        with open("/proc/stat") as f:
            user, nice, system, idle, iowait, irq, softirq, steal = (int(ticks) / clusters.TICKS for ticks in f.readline().split()[1:9])
        return user + nice + system + irq + softirq + steal, idle + iowait

    def __enter__(self):
        self.seen, self.over = [self.times()], threading.Event()
        self.watch = threading.Thread(target=self.look)
        self.watch.start()
        return self

    def look(self):
        while not self.over.wait(self.PERIOD):
            self.seen.append(self.times())

    def __exit__(self, *trace):
        self.over.set()
        self.watch.join()
        self.seen.append(self.times())
        self.busy_seconds = self.seen[-1][0] - self.seen[0][0]
        spans = [(after[0] - before[0], after[1] - before[1]) for before, after in zip(self.seen, self.seen[1:])]
        self.idle = statistics.median(idle / (busy + idle) for busy, idle in spans if busy + idle > 0)


def client_seconds():
    """CPU time of the clients that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measured(c, run):
    """The figures that `run()` gives, with `idle` and what an operation took of CPU time, us: `cpu_us` of the OSDs, `cpu_all_us` of all daemons,
    `client_us` of the client, `machine_us` of all cores."""
    osds, everyone = c.osd_pids(), sorted(set(c.pids().values()))

    def used():
        return c.cpu_seconds(osds), c.cpu_seconds(everyone), client_seconds()

    before = used()
    with Machine() as machine:
        f = run()
    spent = [now - then for now, then in zip(used(), before)]
    f["idle"] = machine.idle
    return f | {key: seconds * 1e6 / f["ops"] for key, seconds in zip(("cpu_us", "cpu_all_us", "client_us", "machine_us"), [*spent, machine.busy_seconds])}
