#!/usr/bin/python3
"""Calls the classes `queue`, `rgw_gc`, `2pc_queue`, `fifo`, `cmpomap` and `otp` on a real Ceph 16.2 and on ours, at random from a seed, and compares what they answer.

    tests/interop/compare_queues.py [--seed N] [--calls N]

Unlike compare_ops.py it takes what was answered into the next call: places in a ring are known to nobody else, and a real OSD that is told a wrong one goes round
for ever or loses what is queued. Times, random words and what is computed from them are left out. Exit code 1 when something differs."""
import argparse
import contextlib
import random
import struct
import sys

import rados

from class_calls import many, struct_of, text
from cluster import Cluster
from real_ceph import RealCeph


def u64(*values):
    return struct.pack(f"<{len(values)}Q", *values)


class Got:
    """Reads an answer."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        values = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return values if len(values) > 1 else values[0]

    def text(self):
        size = self.take("I")
        self.at += size
        return self.data[self.at - size:self.at]

    def struct(self):
        version, _, size = self.take("BBI")
        self.at += size
        inner = Got(self.data[self.at - size:self.at])
        inner.version = version
        return inner

    def many(self, one):
        return [one() for _ in range(self.take("I"))]


def entries(data):
    got = Got(data).struct()
    more, marker = got.take("?"), got.text()
    return more, marker, got.many(lambda: (lambda e: (e.text(), e.text()))(got.struct()))


def garbage(data):
    got = Got(data).struct()
    return got.many(lambda: got.struct().text()), got.text(), got.take("?")


def reservations(data):
    got = Got(data).struct()
    return sorted(got.many(lambda: (got.take("I"), got.struct().take("Q"))))


def part_info(data):
    got = Got(data).struct().struct()
    tag, params, _magic = got.text(), got.struct().data, got.take("Q")
    return tag, params, got.take("QQQQQ")


def part_entries(data):
    got = Got(data).struct()
    tag = got.text()
    found = got.many(lambda: (lambda e: (e.text(), e.take("Q")))(got.struct()))
    return tag, found, got.take("??")


def result(data):
    got = Got(data).struct().struct()
    token, _time = got.text(), got.take("II")
    return token, got.take("B")


class Both:
    """The two clusters."""

    def __init__(self, stack, *clusters):
        self.ioctxs = []
        for cluster in clusters:
            cluster.pool("queues")
            client = stack.enter_context(rados.Rados(conffile=cluster.conf))
            self.ioctxs.append(stack.enter_context(client.open_ioctx("queues")))
        self.calls = self.differ = 0

    def make(self, name):
        for ioctx in self.ioctxs:
            with rados.WriteOpCtx() as op:
                op.new(rados.LIBRADOS_CREATE_IDEMPOTENT)
                ioctx.operate_write_op(op, name)

    def call(self, name, cls, method, given=b"", read=None):
        """What the first answered: what `read` makes of it, or an errno."""
        answers = []
        for ioctx in self.ioctxs:
            try:
                code, data = ioctx.execute(name, cls, method, given, 1 << 20)
                answers.append((code, read(data) if read else data))
            except rados.Error as e:
                answers.append(e.errno)
        self.calls += 1
        if answers[0] != answers[1]:
            self.differ += 1
            print(f"{name}: {cls}.{method} {given[:200]!r}\n  real: {answers[0]!r}\n  ours: {answers[1]!r}")
        return answers[0]


def draw_entries(rng, most=4):
    return [text(bytes([rng.randrange(97, 123)]) * rng.choice([0, 1, 5, 11, 40, 200, 1500])) for _ in range(rng.randrange(most))]


def ring(both, rng, name, calls, cls):
    """A ring alone, or one with reservations."""
    start = "queue" if cls == "queue" else "2pc_queue"
    if rng.random() < 0.9:
        both.make(name)
    # A small one is full on the real one once some reservations have been made and are over.
    size = rng.choice([64, 100, 1000, 5000, 20000] if cls == "queue" else [5000, 20000])
    ids, markers = [0, 1], [b""]
    for n in range(calls):
        kind = rng.choice(["init", "capacity", "push", "push", "push", "push", "list", "list", "remove", "remove"] if n else ["init"] * 9 + ["list"])
        if kind == "init":
            urgent = rng.choice([b"", b"x", b"x" * 60]) if cls == "queue" else b""
            both.call(name, cls, f"{start}_init", struct_of(u64(size, rng.choice([0, 100])) + text(urgent)))
        elif kind == "capacity":
            both.call(name, cls, f"{start}_get_capacity")
        elif kind == "push" and cls == "queue":
            both.call(name, cls, "queue_enqueue", struct_of(many(draw_entries(rng, 2 if size < 1000 else 4))))
        elif kind == "push":
            what = rng.choice(["reserve", "reserve", "commit", "commit", "abort", "list_reservations", "expire_reservations"])
            if what == "reserve":
                got = both.call(name, cls, "2pc_queue_reserve", struct_of(u64(rng.choice([0, 1, 40, 400, 4000])) + struct.pack("<I", rng.choice([0, 1, 1, 2, 3]))))
            elif what == "commit":
                data = draw_entries(rng, 3)
                both.call(name, cls, "2pc_queue_commit", struct_of(struct.pack("<I", rng.choice(ids)) + many(data)))
            elif what == "abort":
                both.call(name, cls, "2pc_queue_abort", struct_of(struct.pack("<I", rng.choice(ids))))
            elif what == "expire_reservations":
                both.call(name, cls, "2pc_queue_expire_reservations", struct_of(struct.pack("<II", rng.choice([0, 5, 0xffffffff]), 0)))
            got = both.call(name, cls, "2pc_queue_list_reservations", b"", reservations)
            if isinstance(got, tuple):
                ids = [0] + [number for number, _ in got[1]] + ([got[1][-1][0] + 1] if got[1] else [])
        elif kind == "list":
            # A marker that is older than what was removed finds zeros.
            got = both.call(name, cls, f"{start}_list_entries", struct_of(u64(rng.choice([1, 2, 3, 100])) + text(rng.choice(markers))), entries)
            if isinstance(got, tuple):
                markers = [b"", *[marker for _, marker in got[1][2]], got[1][1]]
        elif kind == "remove":
            got = both.call(name, cls, f"{start}_list_entries", struct_of(u64(rng.choice([1, 2, 100])) + text(b"")), entries)
            if isinstance(got, tuple):
                both.call(name, cls, f"{start}_remove_entries", struct_of(text(rng.choice([got[1][1], got[1][1], b"7/1024", b""]))))
                markers = [b""]


def gc(both, rng, name, calls):
    both.make(name)
    both.call(name, "rgw_gc", "rgw_gc_queue_init", struct_of(u64(rng.choice([400, 4000, 1 << 20]), rng.choice([1, 50, 300]))))
    for _ in range(calls):
        tag = b"t%d" % rng.randrange(8) if rng.random() < 0.8 else b"%0300d" % rng.randrange(20)
        kind = rng.choice(["enqueue", "enqueue", "enqueue", "update", "list", "list", "remove"])
        if kind in ("enqueue", "update"):
            method = {"enqueue": "rgw_gc_queue_enqueue", "update": "rgw_gc_queue_update_entry"}[kind]
            info = struct_of(text(tag) + struct_of(many([])) + bytes(8))
            both.call(name, "rgw_gc", method, struct_of(struct.pack("<I", rng.choice([0, 100, 10000])) + info))
        elif kind == "list":
            both.call(name, "rgw_gc", "rgw_gc_queue_list_entries", struct_of(text(b"") + struct.pack("<I?", rng.choice([0, 1, 2, 5]), rng.random() < 0.3), 2), garbage)
        else:
            both.call(name, "rgw_gc", "rgw_gc_queue_remove_entries", struct_of(u64(rng.choice([0, 1, 2, 3]))))


def fifo(both, rng, name, calls):
    def version(ver, instance=b"word"):
        return struct_of(text(instance) + u64(ver))

    def optional(value):
        return b"\0" if value is None else b"\1" + value

    def entry():
        return struct_of(struct.pack("<iq", rng.choice([1, 2, 3]), rng.randrange(4)) + text(b""))
    if rng.random() < 0.2:
        both.make(name)
    ver = 1
    for n in range(calls):
        kind = rng.choice(["update", "update", "get", "create"]) if n else "create"
        if kind == "create":
            body = text(rng.choice([b"f", b"f", b"f", b"g", b""])) + optional(version(rng.choice([1, 1, ver]))) + text(b"") + text(b"") + optional(text(b"prefix"))
            both.call(name, "fifo", "create_meta", struct_of(body + u64(*rng.choice([(1000, 100), (1000, 100), (0, 0), (1, 2)])) + struct.pack("?", rng.random() < 0.3)))
        elif kind == "update":
            numbers = b"".join(optional(None if rng.random() < 0.5 else u64(rng.randrange(4))) for _ in range(4))
            instance = rng.choice([b"word"] * 8 + [b"other", b""])
            got = both.call(name, "fifo", "update_meta", struct_of(version(ver, instance) + numbers + many([entry() for _ in range(rng.randrange(3))]) + many([entry() for _ in range(rng.randrange(3))])))
        got = both.call(name, "fifo", "get_meta", struct_of(optional(None if rng.random() < 0.8 else version(ver))))
        if isinstance(got, tuple):
            info = Got(got[1]).struct().struct()
            info.text()
            ver = (lambda v: (v.text(), v.take("Q"))[1])(info.struct())


def part(both, rng, name, calls):
    params = struct_of(u64(rng.choice([1000, 5000]), 100, rng.choice([700, 3000])))
    ofs = [0, 512]
    for n in range(calls):
        kind = rng.choice(["push", "push", "push", "trim", "list", "list", "init"]) if n else "init"
        if kind == "init":
            both.call(name, "fifo", "init_part", struct_of(text(b"") + (params if rng.random() < 0.8 else struct_of(u64(1, 1, 1)))))
        elif kind == "push":
            data = draw_entries(rng)
            total = sum(len(d) - 4 for d in data) + rng.choice([0] * 9 + [1])
            if data:
                both.call(name, "fifo", "push_part", struct_of(text(b"") + many(data) + u64(total)))
        elif kind == "trim":
            both.call(name, "fifo", "trim_part", struct_of(b"\0" + u64(rng.choice([*ofs, 1 << 40] if rng.random() < 0.2 else ofs)) + struct.pack("?", rng.random() < 0.5)))
        elif kind == "list":
            got = both.call(name, "fifo", "part_list", struct_of(b"\0" + u64(rng.choice(ofs)) + struct.pack("<i", rng.choice([1, 2, 3, 1000, 0, -1]))), part_entries)
            if isinstance(got, tuple):
                ofs = [0, 512, *[o for _, o in got[1][1]]]
        both.call(name, "fifo", "get_part_info", struct_of(b""), part_info)


def cmpomap(both, rng, name, calls):
    def value():
        return rng.choice([u64(rng.randrange(4)), u64(rng.randrange(4)), b"", b"x", b"\xff" * 8, b"abc"])
    for _ in range(calls):
        keys = sorted(rng.sample([b"a", b"b", b"c", b"d"], rng.randrange(4)))
        body = struct.pack("<BB", rng.choice([1, 2, 2, 2, 2, 3]), rng.choice([1, 1, 2, 3, 4, 5, 6, 7])) + many([text(key) + text(value()) for key in keys])
        default = rng.choice([b"\0", b"\1" + text(value())])
        method = rng.choice(["cmp_vals", "cmp_set_vals", "cmp_set_vals", "cmp_rm_keys"])
        both.call(name, "cmpomap", method, struct_of(body + (b"" if method == "cmp_rm_keys" else default)))


def otp(both, rng, name, calls):
    for n in range(calls):
        kind = rng.choice(["set", "get", "check", "remove"]) if n else "set"
        ids = [text(rng.choice([b"a", b"b", b"c"])) for _ in range(rng.randrange(3))]
        if kind == "set":
            seed, seed_type = rng.choice([(b"3132333435", 1), (b"JBSW y3dp", 2), (b"MY======", 2), (b"A", 2), (b"AAAAAA", 2), (b"MY==", 2), (b"313", 0), (b"zz", 1), (b"", 1), (b"A-", 2)])
            info = struct_of(b"\2" + text(rng.choice([b"a", b"b"])) + text(seed) + bytes([seed_type]) + text(b"") + struct.pack("<iII", 0, 30, 2))
            both.call(name, "otp", "otp_set", struct_of(many([info])))
        elif kind == "get":
            both.call(name, "otp", "otp_get", struct_of(struct.pack("?", rng.random() < 0.5) + many(ids)))
        elif kind == "remove":
            both.call(name, "otp", "otp_remove", struct_of(many(ids)))
        else:
            body = struct_of(text(rng.choice([b"a", b"b"])) + text(rng.choice([b"123", b"abcdefg"])) + text(rng.choice([b"t1", b"t2"])))
            both.call(name, "otp", "otp_check", body)
            both.call(name, "otp", "otp_get_result", body, result)


KINDS = {
    "queue": lambda *args: ring(*args, "queue"), "2pc_queue": lambda *args: ring(*args, "2pc_queue"), "rgw_gc": gc, "fifo": fifo, "part": part, "cmpomap": cmpomap, "otp": otp,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--calls", type=int, default=4000)
    parser.add_argument("--kind", choices=list(KINDS))
    args = parser.parse_args()
    rng = random.Random(args.seed)
    with contextlib.ExitStack() as stack:
        both = Both(stack, *[stack.enter_context(cluster) for cluster in (RealCeph(), Cluster())])
        n = 0
        while both.calls < args.calls and both.differ < 20:
            n += 1
            kind = args.kind or rng.choice(list(KINDS))
            KINDS[kind](both, rng, f"{kind}.{n}", rng.choice([10, 30, 60]))
        print(f"{both.calls} calls on {n} objects (seed {args.seed}), {both.differ} differ")
    sys.exit(both.differ > 0)


if __name__ == "__main__":
    main()
