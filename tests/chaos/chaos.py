#!/usr/bin/python3
"""Three hosts, three monitors, two managers, six OSDs; `rados bench`, fio and a client that checks
every answer (model.py) while things go wrong. See docs/testing.md.

    tests/chaos/chaos.py [--minutes M] [--seed N] [--report FILE] [--keep] [--files]

--files: with three MDSs of Ceph as well, two of which are active; files are written and read, and judged alike (files.py), and MDSs are
broken, too. The cluster is not filled then: libcephfs answers ENOSPC where librados waits.

The schedule follows from the seed and is printed as it happens. Exit code 0: nothing acknowledged
was lost, no read was stale, no client failed, and the cluster is clean at the end. 1: not so. 2: this
machine does not permit network namespaces. LOLIGO names the binary.
"""
import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import hosts
from cluster import Cluster

HERE = os.path.dirname(os.path.abspath(__file__))
FIRST = 5.0
"""Seconds before the first fault."""
FILES, RANKS = "files", 2
"""The file system of `--files`, and how many MDSs are active."""


def schedule(seed, seconds, cluster):
    """What happens when: (second, seconds it lasts, name, arguments), one at a time or two. Every
    kind has its turn, in an order of the seed, before one comes again."""
    rng = random.Random(seed)
    kinds = ["kill_osd", "kill_osd", "stop_osd", "kill_mon", "stop_mon", "kill_mgr", "kill_host", "cut_both",
             "cut_one_way", "isolate", "fail_writes", "read_errors", "out", "kill_two"]
    filled = bool(cluster.daemons("mds"))
    if filled:
        kinds += ["kill_mds", "kill_mds", "stop_mds", "kill_all_mds"]
    plan, turn, at = [], [], FIRST
    while at < seconds - 8:
        if not filled and at > seconds * 0.45:
            plan.append((at, 30, "fill", ()))
            filled, at = True, at + 30
            continue
        if not turn:
            turn = rng.sample(kinds, len(kinds))
        kind, last = turn.pop(), rng.uniform(1, 9)
        plan.append((round(at, 1), round(last, 1), kind, arguments(rng, kind, cluster)))
        # Sometimes the next misfortune comes before this one is over.
        at += rng.uniform(0.5, 3) if rng.random() < 0.25 else last + rng.uniform(0.5, 4)
    return plan


def arguments(rng, kind, cluster):
    host = rng.randrange(3)
    if kind in ("cut_both", "cut_one_way"):
        return tuple(rng.sample(range(3), 2))
    if kind in ("isolate", "kill_host"):
        return (host,)
    if kind == "kill_two":
        return tuple(rng.sample(cluster.daemons("osd"), 2))
    if kind == "kill_all_mds":
        return ()
    if kind[-3:] in ("mon", "mgr", "mds"):
        return (rng.choice(cluster.daemons(kind[-3:])),)
    return (rng.choice(cluster.daemons("osd")),)


class Chaos:
    def __init__(self, cluster, begun):
        self.cluster, self.begun = cluster, begun
        self.done, self.failed = [], []
        self.down = {}
        self.lock = threading.RLock()
        self.cuts = {}

    def now(self):
        return time.time() - self.begun

    def carry_out(self, plan):
        threads = []
        for at, last, kind, args in plan:
            time.sleep(max(0, at - self.now()))
            thread = threading.Thread(target=self.one, args=(last, kind, args))
            thread.start()
            threads.append(thread)
        for thread in threads:
            thread.join()

    def one(self, last, kind, args):
        entry = {"at": round(self.now(), 1), "what": kind, "where": [str(arg) for arg in args]}
        self.done.append(entry)
        print(f"{self.now():7.1f} s  {kind} {' '.join(map(str, args))} for {last:.1f} s", flush=True)
        try:
            getattr(self, kind)(last, *args)
        except Exception as error:
            self.failed.append(f"{kind} {args} at {entry['at']}: {type(error).__name__}: {error}")
            print(f"{self.now():7.1f} s  {self.failed[-1]}", flush=True)
        entry["until"] = round(self.now(), 1)

    # Daemons that are down on purpose are counted, so that two misfortunes of one daemon end with
    # the later.

    def fall(self, name):
        with self.lock:
            self.down[name] = self.down.get(name, 0) + 1
            self.cluster.kill(name)

    def rise(self, name):
        with self.lock:
            self.down[name] -= 1
            if self.down[name] == 0:
                self.cluster.run(name)

    def kill_osd(self, last, *names):
        for name in names:
            self.fall(name)
        time.sleep(last)
        for name in names:
            self.rise(name)

    kill_mon = kill_mgr = kill_mds = kill_two = kill_osd

    def kill_host(self, last, host):
        home = self.cluster.hosts[host]
        self.kill_osd(last, *[name for name, on in self.cluster.homes.items() if on is home])

    def stop_osd(self, last, name):
        self.cluster.signal(name, signal.SIGSTOP)
        time.sleep(last)
        self.cluster.signal(name, signal.SIGCONT)

    stop_mon = stop_mds = stop_osd

    def kill_all_mds(self, last):
        self.kill_osd(last, *self.cluster.daemons("mds"))

    def cut(self, pairs, last):
        def change(delta, at, act):
            for pair in pairs:
                with self.lock:
                    self.cuts[pair] = self.cuts.get(pair, 0) + delta
                    if self.cuts[pair] == at:
                        one, other = (self.cluster.hosts[n] for n in pair)
                        act(one, other)
        change(1, 1, hosts.Host.deafen)
        time.sleep(last)
        change(-1, 0, hosts.Host.hear)

    def cut_both(self, last, one, other):
        self.cut([(one, other), (other, one)], last)

    def cut_one_way(self, last, one, other):
        self.cut([(one, other)], last)

    def isolate(self, last, host):
        """From the other hosts; clients still reach it."""
        others = [n for n in range(3) if n != host]
        self.cut([(host, n) for n in others] + [(n, host) for n in others], last)

    def fail_writes(self, last, name):
        """Its device fails writes of new blocks; then it is healed and the OSD started again."""
        self.cluster.excused.add(name)
        self.cluster.disks[name].fail_writes()
        time.sleep(last)
        self.cluster.disks[name].heal()
        self.fall(name)
        self.rise(name)
        self.cluster.excused.discard(name)

    def read_errors(self, last, name):
        """Reads of objects fail on one OSD; no client may notice. Copies that nobody read meanwhile are unreadable until the OSD
        is started again."""
        for object in ["model-replace-0-0", "model-append-0-1", "model-replace-1-2", "model-append-2-2"]:
            self.cluster.ceph("tell", name, "injectdataerr", "model", object, check=False, timeout=20)
        time.sleep(last)
        self.fall(name)
        self.rise(name)

    def out(self, last, name):
        self.cluster.ceph("osd", "out", name)
        time.sleep(last)
        self.cluster.ceph("osd", "in", name)

    def fill(self, last):
        """Writes until the cluster is full; then what filled it is deleted, which must still work."""
        bench = self.cluster.client(["rados", "bench", "-p", "fill", "600", "write", "-b", "1M", "-t", "8", "--no-cleanup"],
                                    "fill")
        try:
            self.cluster.wait(lambda: "OSD_FULL" in self.cluster.checks(), 300, "the cluster is full")
            print(f"{self.now():7.1f} s  the cluster is full", flush=True)
            time.sleep(2)
        finally:
            bench.kill()
            bench.wait()
        names = self.cluster.tool("rados", "-p", "fill", "ls").split()[:3]
        for name in names:
            self.cluster.tool("rados", "-p", "fill", "rm", name, "--force-full")
        self.cluster.ceph("osd", "pool", "rm", "fill", "fill", "--yes-i-really-really-mean-it")
        self.cluster.ceph("osd", "pool", "create", "fill", "8", "8")
        self.cluster.wait(lambda: "OSD_FULL" not in self.cluster.checks(), 300, "space is free again")
        print(f"{self.now():7.1f} s  space is free again", flush=True)

    def repair(self):
        for name in self.cluster.homes:
            self.cluster.signal(name, signal.SIGCONT)
            self.cluster.run(name)


class Rounds(threading.Thread):
    """Runs a client again and again; each round must succeed."""

    def __init__(self, cluster, name, args):
        super().__init__()
        self.cluster, self.name, self.args = cluster, name, args
        self.over, self.count, self.failed = False, 0, []

    def run(self):
        while not self.over and not self.failed:
            process = self.cluster.client(self.args, self.name)
            try:
                code = process.wait(600)
            except subprocess.TimeoutExpired:
                waits = self.cluster.requests(process)
                process.kill()
                process.wait()
                code = f"none after 600 s; it waits for {waits}"
            if code != 0:
                self.failed.append(f"{self.name}: exit {code} in round {self.count + 1}")
                print(self.failed, flush=True)
            self.count += 1


def scrub_all(cluster):
    """Deep scrubs of all PGs find nothing."""
    stamps = lambda: {pg["pgid"]: pg["last_deep_scrub_stamp"] for pg in cluster.json("pg", "dump", "pgs")["pg_stats"]}
    before = stamps()
    def scrubbed():
        now = stamps()
        late = [pg for pg, stamp in before.items() if pg in now and now[pg] == stamp]
        for pg in late:
            cluster.ceph("pg", "deep-scrub", pg, check=False)
        return not late
    cluster.wait(scrubbed, 300, "all PGs are deep-scrubbed")
    health = cluster.ceph("health", "detail")
    if "inconsistent" in health:
        # Which objects and how, as the cluster log has it: the stores are gone afterwards.
        found = cluster.ceph("log", "last", "200", "error", "cluster", check=False)
        raise RuntimeError(f"a scrub found differences:\n{health}\n{found}")


def end_files(cluster, model):
    """What was written is there for who mounts after all MDSs have died; none of them has seen damage."""
    for name in cluster.daemons("mds"):
        cluster.kill(name)
        cluster.run(name)
    cluster.wait_ranks(RANKS)
    end(cluster, model)
    for rank in range(RANKS):
        damage = cluster.json("tell", f"mds.{FILES}:{rank}", "damage", "ls")
        if damage:
            raise RuntimeError(f"rank {rank} found damage: {damage}")


def end(cluster, model):
    """Ends a judge, which reads everything once more."""
    model.send_signal(signal.SIGTERM)
    try:
        model.wait(300)
    except subprocess.TimeoutExpired:
        model.kill()
        model.wait()
        raise RuntimeError("a judge's clients were not answered within 300 s of the end")


def plot(report, path):
    """Answers a second over time, with what went wrong below: an SVG file."""
    seconds = {int(k): v for k, v in report["model"]["seconds"].items()}
    end, top = max(seconds, default=1) + 1, max(seconds.values(), default=1)
    x = lambda t: 50 + 900 * t / end
    points = " ".join(f"{x(t):.1f},{220 - 200 * seconds.get(t, 0) / top:.1f}" for t in range(end))
    marks = "".join(f'<rect x="{x(e["at"]):.1f}" y="{235 + 9 * (n % 8)}" height="6" width="{max(2, x(e.get("until", e["at"])) - x(e["at"])):.1f}" '
                    f'fill="#b33"><title>{e["what"]} {" ".join(e["where"])}</title></rect>' for n, e in enumerate(report["done"]))
    with open(path, "w") as out:
        out.write(f'<svg xmlns="http://www.w3.org/2000/svg" width="1000" height="330" font-family="sans-serif" font-size="12">'
                  f'<rect width="1000" height="330" fill="#fff"/><text x="50" y="14">answers a second (top: {top}), {end} s, seed {report["seed"]}; below: faults</text>'
                  f'<polyline points="{points}" fill="none" stroke="#236"/>{marks}</svg>')


def live(args, folder):
    cluster = Cluster(folder, args.files)
    problems = []
    try:
        cluster.start()
        for pool, pgs in [("model", 16), ("bench", 16), ("rbd", 8), ("fill", 8)]:
            cluster.ceph("osd", "pool", "create", pool, str(pgs), str(pgs))
        cluster.wait_clean()
        cluster.tool("rbd", "create", "rbd/image", "--size", "32M", "--image-feature", "layering")
        if args.files:
            cluster.make_file_system(FILES, RANKS)
        begun = time.time()
        judges = {"model": "model", "files": FILES} if args.files else {"model": "model"}
        judges = {name: cluster.client([sys.executable, f"{HERE}/{name}.py", cluster.conf, target, str(args.seed), f"{folder}/{name}.json"], name)
                  for name, target in judges.items()}
        rounds = [
            Rounds(cluster, "bench", ["rados", "bench", "-p", "bench", "5", "write", "-b", "16K", "-t", "4", "--max-objects", "1500"]),
            Rounds(cluster, "fio", ["fio", "--name=verify", "--ioengine=rbd", "--clientname=admin", "--pool=rbd", "--rbdname=image",
                                    "--rw=randwrite", "--bs=4k", "--iodepth=8", "--size=4M", "--randrepeat=0", "--verify=crc32c",
                                    "--verify_fatal=1"]),
        ]
        for one in rounds:
            one.start()
        chaos = Chaos(cluster, begun)
        plan = schedule(args.seed, args.minutes * 60, cluster)
        chaos.carry_out(plan)
        chaos.repair()
        print(f"{chaos.now():7.1f} s  all is repaired", flush=True)
        ended = time.time()
        try:
            cluster.wait_up()
            cluster.wait_clean()
        except RuntimeError as error:
            problems.append(str(error))
        clean = time.time() - ended
        print(f"{chaos.now():7.1f} s  clean, {clean:.1f} s after the last fault", flush=True)
        for one in rounds:
            one.over = True
        for one in rounds:
            one.join()
            problems += one.failed
        report = {"seed": args.seed, "done": chaos.done, "clean_after": round(clean, 1), "rounds": {r.name: r.count for r in rounds}}
        for name, judge in judges.items():
            try:
                (end_files if name == "files" else end)(cluster, judge)
            except RuntimeError as error:
                problems.append(str(error))
            if os.path.exists(f"{folder}/{name}.json"):
                report[name] = json.load(open(f"{folder}/{name}.json"))
                problems += report[name]["wrong"]
            else:
                problems.append(f"{name} ended without a report:\n{cluster.log_tail(name)}")
        problems += chaos.failed
        for name in cluster.homes:
            cluster.note_exit(name)
        problems += cluster.exits + cluster.panics()
        if not problems:
            try:
                scrub_all(cluster)
                cluster.wait_clean()
            except RuntimeError as error:
                problems.append(str(error))
        report["problems"] = problems
        return report
    except RuntimeError:
        for name in list(cluster.homes) + ["model", "files"]:
            print(f"--- {name}\n{cluster.log_tail(name, 8)}", flush=True)
        raise
    finally:
        cluster.end()
        if args.keep and problems:
            cluster.keep_stores()
        cluster.remove_disks()


def show(report):
    counts = {}
    for entry in report["done"]:
        counts[entry["what"]] = counts.get(entry["what"], 0) + 1
    print("\ndone: " + ", ".join(f"{what} {count}" for what, count in sorted(counts.items())))
    print("rounds: " + ", ".join(f"{name} {count}" for name, count in report["rounds"].items()))
    for judge in ("model", "files"):
        if judge not in report:
            continue
        model = report[judge]
        print(f"{judge}: checked {model['writes']} writes, {model['reads']} reads")
        for length, at in model["stalls"][:5]:
            at -= model["began"]
            during = [e["what"] + " " + " ".join(e["where"]) for e in report["done"]
                      if e["at"] <= at + length and e.get("until", 1e9) + 3 >= at]
            print(f"no answer to anybody for {length:.1f} s from {at:.1f} s on: {'; '.join(during) or 'no fault'}")
        length, at, what = model["slowest"]
        print(f"slowest: {what}, {length:.1f} s from {at - model['began']:.1f} s on")
    print(f"clean {report['clean_after']} s after the last fault")
    for problem in report["problems"]:
        print(f"WRONG: {problem}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--minutes", type=float, default=30, help="how long things go wrong (30)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", help="write the report there (JSON), and a plot beside it (.svg)")
    parser.add_argument("--files", action="store_true", help="with CephFS: MDSs, and files that are judged")
    parser.add_argument("--keep", action="store_true", help="keep the folder with logs, and the stores if something was wrong")
    args = parser.parse_args()
    hosts.enter()
    folder = tempfile.mkdtemp(prefix="loligo-chaos-")
    try:
        report = live(args, folder)
    finally:
        if args.keep:
            print("kept", folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    show(report)
    if args.report:
        with open(args.report, "w") as out:
            json.dump(report, out, indent=1)
        if "model" in report:
            plot(report, os.path.splitext(args.report)[0] + ".svg")
    sys.exit(1 if report["problems"] else 0)


if __name__ == "__main__":
    main()
