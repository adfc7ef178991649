"""A client that remembers and judges: threads write objects that are theirs alone, others read them
all the time. Run by chaos.py; ends on SIGTERM with a last read of everything and a report.

    model.py CONF POOL SEED REPORT

Each object has one writer, which writes versions 1, 2, 3, ... one after the other: by replacing
the content, by appending to it, or by setting a key. A version's bytes follow from its number, so
mixtures are seen. For each read:

* it shows no version that had not been begun when it ended (nothing invented);
* it shows none older than the last one acknowledged, or read by anybody, before the read began
  (nothing acknowledged lost, nothing stale, time does not go back).
"""
import hashlib
import json
import random
import signal
import sys
import threading
import time

import rados

WRITERS, READERS, OBJECTS = 4, 2, 6
SIZES = [100, 4096, 5000, 65536]
RECORD = 64
KINDS = ["replace", "append", "key"]
APPENDS_MAX = 400


class Wrong(Exception):
    """The cluster broke its word."""


def replacement(name, version, size):
    head = f"{name} {version} ".encode()
    seed = hashlib.sha256(head).digest()
    return (head + seed * (size // len(seed) + 1))[:size]


def record(name, version):
    return f"{name} {version} ".encode().ljust(RECORD, b".")


class Object:
    """One object and what is known of it."""

    def __init__(self, kind, name):
        self.kind, self.name = kind, name
        self.lock = threading.Lock()
        self.begun = self.known = 0
        # An append object starts anew (as an empty one) after APPENDS_MAX records.
        self.base = 0

    def write(self, io, rng):
        with self.lock:
            self.begun += 1
            version = self.begun
        if self.kind == "replace":
            io.write_full(self.name, replacement(self.name, version, rng.choice(SIZES)))
        elif self.kind == "append":
            if version % APPENDS_MAX == 1:
                io.write_full(self.name, record(self.name, version))
            else:
                io.append(self.name, record(self.name, version))
        else:
            io.set_key(self.name, version)
        self.learn(version)

    def learn(self, version):
        with self.lock:
            self.known = max(self.known, version)

    def read(self, io):
        with self.lock:
            least = self.known
        shown = self.version_of(io)
        with self.lock:
            most = self.begun
        if shown < least:
            raise Wrong(f"{self.name}: a read shows version {shown}; {least} was acknowledged or read before it began")
        if shown > most:
            raise Wrong(f"{self.name}: a read shows version {shown}; {most} is the last one written")
        self.learn(shown)

    def version_of(self, io):
        if self.kind == "key":
            return io.key(self.name)
        data = io.read(self.name)
        if data is None:
            return 0
        if not data:
            raise Wrong(f"{self.name}: it exists and is empty, which nobody wrote")
        if self.kind == "replace":
            version = number(self.name, data)
            if data != replacement(self.name, version, len(data)) or len(data) not in SIZES:
                raise Wrong(f"{self.name}: {len(data)} bytes are not those of version {version}")
            return version
        versions = [number(self.name, data[at:at + RECORD]) for at in range(0, len(data), RECORD)]
        first, last = versions[0], versions[-1]
        whole = b"".join(record(self.name, v) for v in range(first, last + 1))
        if data != whole or first % APPENDS_MAX != 1:
            raise Wrong(f"{self.name}: appended in the order {versions[-20:]}, {len(data)} bytes")
        return last


def number(name, data):
    words = data[:RECORD].split(b" ")
    if len(words) < 2 or words[0] != name.encode() or not words[1].isdigit():
        raise Wrong(f"{name}: begins with {data[:40]!r}")
    return int(words[1])


class Pool:
    """Objects of a pool: a client of its own."""

    def __init__(self, conf, pool):
        self.client = rados.Rados(conffile=conf)
        self.client.connect(timeout=60)
        self.io = self.client.open_ioctx(pool)

    def write_full(self, name, data):
        self.io.write_full(name, data)

    def append(self, name, data):
        self.io.append(name, data)

    def read(self, name):
        """All of it; None where it is not there."""
        try:
            return self.io.read(name, 1 << 20)
        except rados.ObjectNotFound:
            return None

    def set_key(self, name, version):
        with rados.WriteOpCtx() as op:
            self.io.set_omap(op, ("version", f"k{version % 5}"), (str(version).encode(), str(version).encode()))
            self.io.operate_write_op(op, name)

    def key(self, name):
        """The version that the keys are of."""
        with rados.ReadOpCtx() as op:
            keys, _ = self.io.get_omap_vals(op, "", "", 100)
            try:
                self.io.operate_read_op(op, name)
            except rados.ObjectNotFound:
                return 0
            got = {key: int(value) for key, value in keys}
        version = got.pop("version", 0)
        expected = {f"k{v % 5}": v for v in range(max(1, version - 4), version + 1)}
        if got != expected:
            raise Wrong(f"{name}: version {version} has the keys {got}")
        return version

    def close(self):
        self.io.close()
        self.client.shutdown()


class Model:
    def __init__(self, storage, conf, target, seed):
        self.storage, self.conf, self.target, self.seed = storage, conf, target, seed
        self.over = threading.Event()
        self.began = time.time()
        self.lock = threading.Lock()
        self.wrong, self.seconds, self.last = [], {}, time.time()
        self.stalls, self.slowest = [], (0, 0, "")
        self.writes = self.reads = 0
        self.objects = [[Object(KINDS[(w + n) % 3], f"model-{KINDS[(w + n) % 3]}-{w}-{n}") for n in range(OBJECTS)]
                        for w in range(WRITERS)]

    def done(self, begun, what, is_write):
        """Counts an answer. A stall is a time without any."""
        now = time.time()
        with self.lock:
            self.seconds[int(now - self.began)] = self.seconds.get(int(now - self.began), 0) + 1
            if now - self.last > 0.5:
                self.stalls.append((round(now - self.last, 2), round(self.last, 2)))
            self.last = now
            self.slowest = max(self.slowest, (round(now - begun, 2), round(begun, 2), what))
            if is_write:
                self.writes += 1
            else:
                self.reads += 1

    def guarded(self, work, *args):
        try:
            work(*args)
        except Exception as error:
            with self.lock:
                self.wrong.append(f"{type(error).__name__}: {error} ({time.time():.2f})")
            print(f"model: {error}", flush=True)

    def client(self):
        return self.storage(self.conf, self.target)

    def write(self, number):
        rng, io = random.Random(f"{self.seed} w{number}"), self.client()
        while not self.over.is_set():
            begun, object = time.time(), rng.choice(self.objects[number])
            object.write(io, rng)
            self.done(begun, f"write {object.name}", True)
            time.sleep(rng.random() * 0.02)
        io.close()

    def read(self, number):
        rng, io = random.Random(f"{self.seed} r{number}"), self.client()
        while not self.over.is_set():
            begun, object = time.time(), rng.choice(rng.choice(self.objects))
            object.read(io)
            self.done(begun, f"read {object.name}", False)
            time.sleep(rng.random() * 0.02)
        io.close()

    def read_all(self):
        io = self.client()
        for object in sum(self.objects, []):
            self.guarded(object.read, io)
        io.close()

    def run(self, report):
        signal.signal(signal.SIGTERM, lambda *_: self.over.set())
        threads = [threading.Thread(target=self.guarded, args=(self.write, n)) for n in range(WRITERS)]
        threads += [threading.Thread(target=self.guarded, args=(self.read, n)) for n in range(READERS)]
        for thread in threads:
            thread.start()
        while not self.over.wait(1):
            pass
        for thread in threads:
            thread.join()
        self.read_all()
        versions = sum(object.known for object in sum(self.objects, []))
        with open(report, "w") as out:
            json.dump({"wrong": self.wrong, "writes": self.writes, "reads": self.reads, "versions": versions,
                       "began": self.began, "seconds": self.seconds,
                       "stalls": sorted(self.stalls, reverse=True)[:20], "slowest": self.slowest}, out)
        return 1 if self.wrong else 0


if __name__ == "__main__":
    sys.exit(Model(Pool, *sys.argv[1:4]).run(sys.argv[4]))
