#!/usr/bin/python3
"""Does the same random operations on objects of a real Ceph 16.2 and of ours, and compares all that a client sees of them: results
of compound operations and of each op in them, data, sizes, mtimes, xattrs and omap with their `more`, checksums, versions,
snapshots, locks, watches.

    tests/interop/compare_ops.py [--seed N [--seeds N]] [--ops N] [--pool NAME]

From a seed come histories, each of one object (and another that it is copied from), in one of the pools of `POOLS`. A history that
differs is printed as short as it still differs: the steps up to the difference without those that it does not need. What makes
real OSDs abort is not drawn; `Maker` says what that is. One that a real OSD does not survive all the same ends the run.

Exit code 1 when something differs that is not named in DIFFERENT."""
import argparse
import concurrent.futures
import contextlib
import ctypes
import dataclasses
import errno
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile
import threading
import time

from class_calls import Calls, text, struct_of
from cluster import Cluster
from real_ceph import RealCeph, WithOurs

# Seeds and steps of a run without arguments.
SEEDS, STEPS = (1, 2), 2500

# Steps of one history.
HISTORY = 25

# Seconds until librados gives an operation up.
TIMEOUT = 30

# Small enough to be met by small objects.
MAX_SIZE, MAX_ATTR, MAX_ENTRIES, MAX_BYTES = 1 << 20, 3000, 20, 2000
LIMITS = {
    "osd_max_object_size": MAX_SIZE, "osd_max_attr_size": MAX_ATTR, "osd_max_omap_entries_per_request": MAX_ENTRIES,
    "osd_max_omap_bytes_per_request": MAX_BYTES,
    # Snapshots are trimmed while a history waits for it; nothing else touches objects.
    "osd_snap_trim_sleep_hdd": 0, "osd_snap_trim_sleep_ssd": 0, "osd_snap_trim_sleep_hybrid": 0,
}

# The pools: what they are made with, the alignment of appends (0: any write will do), and what is drawn from there.
POOLS = {
    "replicated": ((), 0),
    "erasure": (("erasure", "k2m1"), 8192),
    "overwrites": (("erasure", "k2m1"), 0),
    "poolsnaps": ((), 0),
    # Methods of classes alone, as `Calls` draws them.
    "classes": ((), 0),
}

# Known differences: the step's last op or the step (a pattern, matched whole), the difference (likewise), and why it is there. An
# entry that a run did not need is said at its end.
DIFFERENT = [
    (r".*sparse_read\(.*", r"\d+ sparse_read result: 0, real -5", "where no byte of a shard is asked for, Ceph answers half of the encoding, which librados cannot read"),
    (r"read\(.*checksum\(.*", r"\d+ checksum data: b'(\\x00){4}', real b'(\\x00){8,}'", "ops before one that reads shards run twice, and what they gave is there twice, in Ceph"),
]

# --- what a history is made of


@dataclasses.dataclass(frozen=True)
class Op:
    """One op of a compound operation, as librados_ops.cc takes it."""
    name: str
    numbers: tuple = ()
    texts: tuple = ()
    flags: int = 0

    def encode(self):
        out = struct.pack("<I", len(self.name)) + self.name.encode() + struct.pack("<II", self.flags, len(self.numbers))
        out += b"".join(struct.pack("<Q", n & U64) for n in self.numbers) + struct.pack("<I", len(self.texts))
        return out + b"".join(struct.pack("<I", len(t)) + t for t in self.texts)

    def removes(self):
        """Whether it may remove its object."""
        return self.name in ("remove", "rollback") or self.texts[:2] == (b"refcount", b"put")

    def __str__(self):
        texts = [repr(t) if len(t) <= 40 else f"{t[:8]!r}...({len(t)})" for t in self.texts]
        flags = f" flags={self.flags}" if self.flags else ""
        return f"{self.name}({', '.join([str(n) for n in self.numbers] + texts)}){flags}"


@dataclasses.dataclass(frozen=True)
class Step:
    """One step of a history: `kind` is a method of `Run`."""
    kind: str
    # Arguments of that method.
    args: tuple = ()
    # Ops of a compound operation.
    ops: tuple = ()

    def __str__(self):
        return f"{self.kind}({', '.join([repr(a) for a in self.args] + [str(o) for o in self.ops])})"


@dataclasses.dataclass(frozen=True)
class History:
    """The object's names and what is done with it."""
    pool: str
    names: tuple
    locator: bytes
    # How long the namespace is made, 0 as it is.
    namespace: int
    steps: tuple


U64 = (1 << 64) - 1
CUTS = ("write_full", "truncate", "zero", "remove", "rollback", "create", "create_category", "copy_from", "copy_from2")
READS = ("read", "sparse_read", "checksum", "cmpext")
EXCL, FAILOK = 1, 2
FADVISE = (4, 8, 16, 32, 64, 128)
RETURNVEC, ORDER_READS, BALANCE, LOCALIZE, ORDERSNAP = 1024, 4, 1, 2, 512
# To leave locks, cache tiers and redirects alone, and to try or insist where a pool is full.
SELDOM = (8, 16, 32, 64, 128, 256, 8 | 16, 8 | 32 | 256)
HEAD = U64 - 1

# A version or a snapshot that is only known when a history runs is drawn as a number from here on.
SYMBOL = 1 << 62


# What ends each run of a history. The next version is that of the log's next entry: it tells what has been logged, so that the next
# history does not find what this one did.
LAST = tuple(Step("write", (which, 0, 0), (Op("create", (0,)),)) for which in (0, 1))


class Maker:
    """Draws histories from a seed."""

    def __init__(self, rng):
        self.rng = rng

    def history(self, pool, steps):
        rng = self.rng
        self.pool, self.align = pool, POOLS[pool][1]
        self.snaps = self.taken = 0
        name = rng.choices(
            [b"thing", b"n" * 2048, b"n" * 2049, b"", b"\xff\x01/%\n", b"a\0b", "Ωbject".encode(), rng.choice([b"..", b"a/b", b"_head_", b"\\d\\s", b"x" * 256, b" ", b"%2f__u"])],
            [30, 1, 1, 1, 1, 1, 1, 3])[0]
        locator = rng.choices([b"", b"key", b"k" * 2048, b"k" * 2049, rng.choice([name, b"/", b"\xff\n", "Ω".encode()])], [20, 4, 1, 1, 1])[0]
        namespace = rng.choices([0, 256, 257], [40, 1, 1])[0]
        # A write that finds no object tells the last version of its placement group.
        made = [Step("write", (which, 0, 0), (Op("rmxattr", (), (b"a",)),)) for which in (0, 1)]
        draw = self.class_steps(Calls(rng), made) if pool == "classes" else self.steps
        while len(made) < steps:
            made += draw()
        return History(pool, (name, name + b"'" if 0 < len(name) < 100 else b"other"), locator, namespace, tuple(made))

    def class_steps(self, calls, made):
        """A function that draws calls of one family, after those that make their object."""
        rng = self.rng
        first, data = calls.begin()
        # Real OSDs abort where methods list omap that the operation itself has made: one call each where there may be no object yet.
        exists = rng.random() < 0.8
        if exists:
            made.append(Step("write", (0, 0, 0), (Op("create", (0,)),)))
        if data:
            made.append(Step("write", (0, 0, 0), (Op("write_full", (), (data,)),)))
        if first:
            made.append(Step("write", (0, 0, 0), tuple(Op("exec", (), call) for call in first)))

        def draw():
            kind = rng.choices(["write", "read", "watch", "snap", "all"], [50, 40, 2, 2, 6])[0]
            if kind == "write":
                flags = rng.choice([0, 0, RETURNVEC])
                # None that answers too much there, as in `write`.
                ops = [Op("exec", (), calls.call(flags == 0 and rng.random() < 0.1)) for _ in range(rng.choice([1, 1, 1, 2, 3]) if exists and calls.several else 1)]
                return [Step("write", (0, 0 if any(op.texts[1] == b"reset_user_stats2" for op in ops) else flags, -1), tuple(ops))]
            if kind == "read":
                return [Step("read", (0, 0, None), tuple(Op("exec", (), calls.call(True)) for _ in range(rng.choice([1, 2, 3]) if exists else 1)))]
            if kind == "all":
                return self.all(0)
            return [Step(kind)]
        return draw

    def steps(self):
        rng, which = self.rng, int(self.rng.random() < 0.1)
        kind = rng.choices(
            ["write", "read", "snap", "read_snap", "unsnap", "rollback", "lock", "watch", "all", "list"], [40, 25, 5, 6, 1, 2, 3, 2, 6, 1])[0]
        if kind == "write":
            return [self.write(which)]
        if kind == "read":
            flags = self.read_flags()
            return [Step("read", (which, flags, None), self.reads(flags))]
        if kind == "all":
            return self.all(which)
        if kind == "lock":
            return [self.lock()]
        if kind == "watch":
            return [Step(*rng.choice([("watch",), ("unwatch",), ("watch_check",), ("notify", (rng.choice([b"", b"hello", b"x" * 5000]),))]))]
        if kind == "list":
            wanted = text(rng.choice([b"_a", b"_b", b"_c", b"_", b"a"])) + text(self.value())
            return [Step("list", (rng.choice([b"", b"", text(b"plain") + wanted, text(b"nonesuch") + wanted, b"\xff"]),))]
        if kind == "snap":
            if rng.random() < 0.15:
                return [Step("context", (rng.choice(["none", "older", "backwards", "twice", "high", "all"]),))]
            self.snaps += 1
            return [Step("snap")]
        if not self.snaps:
            return []
        snap = rng.randrange(self.snaps)
        if kind == "read_snap":
            return [Step("read", (which, 0, snap), self.reads(0))]
        if kind == "rollback":
            return [Step("rollback", (snap,))]
        return [Step("unsnap", (snap,))]

    def all(self, which):
        """All there is to see of an object."""
        ops = [Op("stat"), Op("read", (0, 0)), Op("getxattrs"), Op("sparse_read", (0, MAX_SIZE)), Op("list_watchers")]
        if self.pool not in ("erasure", "overwrites"):
            ops += [Op("omap_get_vals", (1000,), (b"", b"")), Op("omap_get_header")]
        return [Step("read", (which, 0, None), tuple(ops)), Step("listsnaps", (which,))]

    def ops(self, draw):
        rng = self.rng
        return tuple(self.flagged(draw()) for _ in range(rng.choice([1, 1, 1, 2, 2, 3, 4, 6])))

    def flagged(self, op):
        rng = self.rng
        if rng.random() < 0.12 and op.texts[1:2] != (b"bad_writer",):
            # That one real OSDs abort at, where it may fail: it has written in an operation that reads.
            op = dataclasses.replace(op, flags=op.flags | FAILOK)
        if rng.random() < 0.03:
            op = dataclasses.replace(op, flags=op.flags | rng.choice(FADVISE))
        if rng.random() < 0.01:
            op = dataclasses.replace(op, flags=op.flags | EXCL)
        return op

    def write(self, which):
        rng = self.rng
        flags = rng.choices([0, RETURNVEC, ORDERSNAP, ORDER_READS, rng.choice(SELDOM)], [6, 3, 1, 1, 0.5])[0]
        mtime = -1 if rng.random() < 0.05 else rng.randrange(1_000_000_000)
        ops = self.ops(self.write_op)
        if self.pool in ("erasure", "overwrites"):
            # Real OSDs abort when one operation cuts shards twice.
            cuts = [op for op in ops if op.name in CUTS or op.name == "exec"]
            ops = tuple(op for op in ops if op not in cuts[1:] and op.name != "cmpext")
            if cuts:
                # Overwritten shards lose what was beside it.
                ops = tuple(op for op in ops if op.name not in ("write", "append", "writesame"))
            # Nor can they read what was made longer by a write of nothing.
            ops = tuple(op for op in ops if op.name != "write" or op.texts[0])
        # An object that a write of nothing made longer keeps the checksum of what it was, and cannot be read any more.
        ops = tuple(op for op in ops if op.name != "write" or op.texts[0] or not op.numbers[0])
        # What one operation removes, makes again and removes again stays in a real OSD as it was.
        first = next((i for i, op in enumerate(ops) if op.removes()), len(ops))
        ops = tuple(op for i, op in enumerate(ops) if i <= first or not op.removes())
        # What `write_full` has written is not there yet where it is read whole: the digest is another one, the object is repaired from a
        # copy, and the operation tried again, for ever.
        full = next((i for i, op in enumerate(ops) if op.name == "write_full"), len(ops))
        ops = tuple(op for i, op in enumerate(ops) if i < full or op.name not in ("cmpext", "exec"))
        if any(op.name in ("omap_set", "exec") for op in ops):
            # Ranges are looked up in the database, where BlueStore has not put yet what the operation sets.
            ops = tuple(op for op in ops if op.name not in ("omap_rm_range", "omap_clear"))
        if flags == RETURNVEC:
            # What answers too much is refused, but has happened in a real OSD's memory.
            ops = tuple(op for op in ops if not (op.name == "exec" and op.texts[1] in (b"write_too_much_return_data", b"say_hello", b"replay", b"bad_reader")))
        return Step("write", (which, flags, mtime), ops or (Op("assert_exists"),))

    def reads(self, flags):
        ops = self.ops(self.read_op)
        if self.pool in ("erasure", "overwrites") and any(op.name in READS for op in ops):
            # As well when it reads shards and writes.
            ops = tuple(op for op in ops if op.name != "exec")
        numops = next((i for i, op in enumerate(ops) if op.texts[:1] == (b"numops",)), len(ops))
        # Nor can they list omap that the operation itself has made.
        ops = tuple(op for i, op in enumerate(ops) if i < numops or op.name not in ("omap_get_vals", "omap_get_keys"))
        if flags in (RETURNVEC, BALANCE, LOCALIZE):
            # A method that writes is not answered by a copy that does not lead.
            ops = tuple(op for op in ops if op.name != "exec")
        return ops or (Op("stat"),)

    def read_flags(self):
        return self.rng.choices([0, ORDER_READS, BALANCE, LOCALIZE, RETURNVEC, self.rng.choice(SELDOM)], [6, 1, 1, 1, 1, 0.5])[0]

    # --- values

    def offset(self):
        rng = self.rng
        near = rng.choice([0, 0, 0, 1, 10, 511, 4095, 4096, 8192, 12288, 16384, 65536, rng.randrange(20000)])
        far = [MAX_SIZE - 1, MAX_SIZE, MAX_SIZE + 1, 1 << 31, 1 << 32, (1 << 63) - 1, 1 << 63, U64 - 4095, U64 - 1, U64]
        return rng.choice(far) if rng.random() < 0.06 else near

    def length(self):
        rng = self.rng
        return self.offset() if rng.random() < 0.5 else rng.choice([0, 1, 5, 100, 4096, 8192, MAX_SIZE])

    def range(self, length):
        """What is read. librados aborts at lengths whose lower half is negative, real OSDs where an end is none."""
        offset = self.offset()
        if length in (1 << 31, (1 << 63) - 1) or offset + length > U64 or length > 1 << 32 and self.pool in ("erasure", "overwrites"):
            length = 1 << 32
        return offset, length if offset + length <= U64 else 0

    def data(self):
        rng = self.rng
        size = rng.choice([0, 1, 3, 10, 100, 4096, 8192, 16384, rng.randrange(12000)])
        if rng.random() < 0.02:
            size = rng.choice([MAX_SIZE, MAX_SIZE + 1])
        if self.align and rng.random() < 0.8:
            size = self.align * rng.choice([0, 1, 1, 2, 3])
        if rng.random() < 0.1:
            return bytes(size)
        return (bytes([rng.randrange(256), rng.randrange(256), rng.randrange(256)]) * (size // 3 + 1))[:size]

    def attr(self):
        rng = self.rng
        if rng.random() < 0.05:
            return rng.choice([b"", b"_", b"n" * 100, b"n" * 101, b"\xff\x01", b"snapset", b"hinfo_key", b"lock.l", b"refcount"])
        return rng.choice([b"a", b"b", b"c", b"number"])

    def value(self):
        rng = self.rng
        if rng.random() < 0.05:
            return bytes(rng.choice([MAX_ATTR - 1, MAX_ATTR, MAX_ATTR + 1]))
        return rng.choice([b"", b"0", b"1", b"7", b"-1", b" 12x", b"abc", b"abd", b"18446744073709551615", b"99999999999999999999999", b"0x10", b"\0", b"v" * 200])

    def key(self):
        rng = self.rng
        if rng.random() < 0.1:
            return rng.choice([b"", b"\0", b"a\0b", b"\xff\xff", b"k" * 1500, b"_", b"-", b"~", b"a/b", b"z.z"])
        return rng.choice([b"a", b"ab", b"abc", b"b", b"c", *(b"k%02d" % n for n in range(30))])

    def vals(self, most):
        texts = []
        for _ in range(self.rng.randrange(most)):
            texts += [self.key(), self.value()]
        return tuple(texts)

    # --- ops

    def common_op(self):
        rng = self.rng
        name = rng.choices(["assert_exists", "assert_version", "cmpext", "cmpxattr", "cmpxattr_u64", "omap_cmp", "exec"], [2, 2, 3, 3, 3, 3, 6])[0]
        if name == "assert_exists":
            return Op(name)
        if name == "assert_version":
            return Op(name, (rng.choices([SYMBOL, SYMBOL - 1, SYMBOL + 1, 0, 1, U64], [6, 1, 1, 1, 1, 1])[0],))
        if name == "cmpext":
            return Op(name, (self.offset(),), (self.data(),))
        if name == "cmpxattr":
            return Op(name, (rng.randrange(8),), (self.attr(), self.value()))
        if name == "cmpxattr_u64":
            return Op(name, (rng.randrange(8), rng.choice([0, 1, 7, 10, 16, U64, 1 << 63])), (self.attr(),))
        if name == "omap_cmp":
            vals = self.vals(3)
            return Op(name, tuple(rng.choice([1, 1, 3, 5, 5, 0, 2, 4, 6, 300, U64]) for _ in vals[::2]), vals)
        return self.exec_op()

    def exec_op(self):
        rng = self.rng
        cls, method, given = rng.choice([self.hello, self.version, self.refcount, self.numops, self.lock_method, self.unknown])()
        if rng.random() < 0.08:
            given = rng.choice([b"", given[: rng.randrange(len(given) + 1)], given + b"more", rng.randbytes(rng.randrange(40)), b"\xff" * 20])
        return Op("exec", (), (cls, method, given))

    def hello(self):
        rng = self.rng
        method = rng.choice([
            b"say_hello", b"replay", b"write_return_data", b"writes_dont_return_data", b"write_too_much_return_data", b"bad_reader", b"bad_writer",
            b"record_hello", b"turn_it_to_11"])
        return b"hello", method, rng.choice([b"", b"", b"you", b"y" * 100, b"y" * 101])

    def version(self):
        rng = self.rng
        def objv():
            return struct_of(struct.pack("<Q", rng.randrange(4)) + text(rng.choice([b"t1", b"t2", b""])))
        conds = [struct_of(objv() + struct.pack("<I", rng.randrange(9))) for _ in range(rng.randrange(3))]
        conds = struct.pack("<I", len(conds)) + b"".join(conds)
        return rng.choice([
            (b"version", b"set", struct_of(objv())), (b"version", b"inc", struct_of(objv() + conds)), (b"version", b"read", b""),
            (b"version", b"inc_conds", struct_of(objv() + conds)), (b"version", b"check_conds", struct_of(objv() + conds))])

    def refcount(self):
        rng = self.rng
        tag = text(rng.choice([b"r1", b"r2", b""])) + bytes([rng.randrange(2)])
        tags = [text(rng.choice([b"r1", b"r2", b""])) for _ in range(rng.randrange(3))]
        return rng.choice([
            (b"refcount", b"get", struct_of(tag)), (b"refcount", b"put", struct_of(tag)), (b"refcount", b"read", struct_of(bytes([rng.randrange(2)]))),
            (b"refcount", b"set", struct_of(struct.pack("<I", len(tags)) + b"".join(tags)))])

    def numops(self):
        rng = self.rng
        number = rng.choice([b"1", b"-2", b"0.5", b"3e2", b"1e300", b"x", b"", b"1x", b" 1", b"123456789012345", b"0.1", b"inf", b"nan", b"0x10"])
        return b"numops", rng.choice([b"add", b"mul"]), text(rng.choice([b"a", b"n", b""])) + text(number)

    def lock_method(self):
        rng = self.rng
        name = text(rng.choice([b"l", b"m", b""]))
        body = name + bytes([rng.choice([1, 1, 2, 2, 3, 0, 9])]) + text(rng.choice([b"c1", b"c2", b""])) + text(rng.choice([b"", b"t"]))
        body += text(b"d") + bytes(8) + bytes([rng.choice([0, 0, 1, 2, 3])])
        return rng.choice([
            (b"lock", b"lock", struct_of(body)), (b"lock", b"unlock", struct_of(name + text(rng.choice([b"c1", b"c2", b""])))),
            (b"lock", b"assert_locked", struct_of(body[:-len(text(b"d")) - 9])), (b"lock", b"list_locks", b""),
            (b"lock", b"set_cookie", struct_of(body[:-len(text(b"d")) - 9] + text(rng.choice([b"c1", b"c2"]))))])

    def unknown(self):
        return self.rng.choice([(b"nonesuch", b"method", b""), (b"hello", b"nonesuch", b""), (b"", b"", b""), (b"lock", b"", b""), (b"h" * 300, b"m", b"")])

    def write_op(self):
        rng = self.rng
        if rng.random() < 0.15:
            return self.common_op()
        erasure = self.pool in ("erasure", "overwrites")
        # More of what makes objects grow than of what removes them; no copies, at some of which real OSDs abort (`process_copy_chunk`).
        name = rng.choices(
            ["create", "create_category", "write", "write_full", "writesame", "append", "remove", "truncate", "zero", "setxattr", "rmxattr",
             "omap_set", "omap_rm_keys", "omap_rm_range", "omap_clear", "omap_set_header", "set_alloc_hint", "copy_from", "copy_from2",
             "rollback", "undirty", "cache_pin", "cache_unpin", "unset_manifest", "tier_promote"],
            [4, 1, 14, 7, 3, 12 if erasure else 6, 3, 5, 5, 8, 3, *(([1] * 5) if erasure else (10, 3, 2, 1, 2)), 1, 0, 0, 2, 0.4, 0.2, 0.2, 0.2, 0.2])[0]
        if name == "create":
            return Op(name, (int(rng.random() < 0.4),))
        if name == "create_category":
            return Op(name, (int(rng.random() < 0.4),), (rng.choice([b"", b"category"]),))
        if name == "write_full":
            # With nothing it is no change to a real OSD where an object is empty, or removed but for its clones: it stays so.
            return Op(name, (), (self.data() or b"x" * max(self.align, 1),))
        if name == "append":
            return Op(name, (), (self.data(),))
        if name == "write":
            if self.align and rng.random() < 0.7:
                return Op(name, (rng.choice([0, 0, 1, 2, 3, 4]) * self.align,), (self.data(),))
            return Op(name, (self.offset(),), (self.data(),))
        if name == "writesame":
            pattern = self.data()[:8192]
            length = rng.choice([len(pattern) * rng.randrange(4), self.length()])
            return Op(name, (self.offset(), length if length < 2 * MAX_SIZE or rng.random() < 0.5 else 0), (pattern,))
        if name in ("remove", "omap_clear", "undirty", "cache_pin", "cache_unpin", "unset_manifest", "tier_promote"):
            return Op(name)
        if name == "truncate":
            return Op(name, (self.offset(),))
        if name == "zero":
            # Real OSDs abort at a length of 0 within the object.
            return Op(name, (self.offset(), self.length() or 1))
        if name == "setxattr":
            return Op(name, (), (self.attr(), self.value()))
        if name == "rmxattr":
            return Op(name, (), (self.attr(),))
        if name == "omap_set":
            return Op(name, (), self.vals(8 if rng.random() < 0.9 else 60))
        if name == "omap_rm_keys":
            return Op(name, (), tuple(self.key() for _ in range(rng.randrange(5))))
        if name == "omap_rm_range":
            return Op(name, (), (self.key(), self.key()))
        if name == "omap_set_header":
            return Op(name, (), (self.value(),))
        if name == "set_alloc_hint":
            return Op(name, (self.length(), self.length(), rng.randrange(1024)))
        if name == "copy_from":
            return Op(name, (rng.choice([0, 0, 0, 1, U64]), rng.choice([0, 4, 32])), (b"?",))
        if name == "copy_from2":
            return Op(name, (0, rng.randrange(3), rng.choice([0, 4096]), 0), (b"?",))
        if name == "rollback":
            return Op(name, (SYMBOL + rng.randrange(self.snaps) if self.snaps and rng.random() < 0.9 else rng.choice([0, 1 << 40]),))
        raise AssertionError(name)

    def read_op(self):
        rng = self.rng
        if rng.random() < 0.2:
            return self.common_op()
        name = rng.choices(
            ["stat", "getxattr", "getxattrs", "read", "sparse_read", "checksum", "omap_get_vals", "omap_get_keys", "omap_get_header",
             "omap_get_vals_by_keys", "list_watchers", "list_snaps", "is_dirty"], [5, 3, 3, 10, 4, 7, 6, 5, 2, 4, 1, 0.3, 1])[0]
        if name in ("stat", "getxattrs", "omap_get_header", "list_watchers", "list_snaps", "is_dirty"):
            return Op(name)
        if name == "getxattr":
            return Op(name, (), (self.attr(),))
        if name in ("read", "sparse_read"):
            return Op(name, self.range(self.length()))
        if name == "checksum":
            kind = rng.choices([0, 1, 2, 3], [3, 3, 3, 0.2])[0]
            init = rng.choice([b"\xff", b"\0", b"\x12"]) * (8 if kind == 1 else 4)
            if rng.random() < 0.04:
                init = rng.choice([b"", b"abc", init * 2])
            chunk = rng.choice([0, 0, 1, 10, 4096, 8192, 1 << 31, (1 << 32) - 1])
            length = chunk * rng.randrange(3) if rng.random() < 0.6 else self.length()
            # Every chunk has a checksum: few enough of them.
            return Op(name, (kind, *self.range(length), chunk if length < 20000 or chunk != 1 else 4096), (init,))
        most = rng.choice([0, 1, 2, 5, MAX_ENTRIES, MAX_ENTRIES + 1, 1000, U64])
        after = rng.choice([b"", self.key()])
        if name == "omap_get_vals":
            return Op(name, (most,), (after, rng.choice([b"", b"", b"k", b"a", b"k1", self.key()])))
        if name == "omap_get_keys":
            return Op(name, (most,), (after,))
        return Op(name, (), tuple(self.key() for _ in range(rng.randrange(4))))

    def lock(self):
        rng = self.rng
        name, cookie = rng.choice([b"l", b"m", b""]), rng.choice([b"c1", b"c2", b""])
        kind = rng.choice(["lock_exclusive", "lock_shared", "unlock", "lockers", "break_lock"])
        args = {"lock_exclusive": (name, cookie, rng.choice([0, 0, 1, 2, 3])), "unlock": (name, cookie), "lockers": (name,),
                "lock_shared": (name, cookie, rng.choice([b"", b"t"]), rng.choice([0, 0, 1, 2, 3])), "break_lock": (name, cookie)}[kind]
        return Step(kind, args)


# --- running a history on one cluster

LIB = None
ACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t)
BROKEN = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int)


def load(folder):
    """librados and librados_ops.cc, built for it."""
    global LIB
    source = pathlib.Path(__file__).with_name("librados_ops.cc")
    built = pathlib.Path(folder, "librados_ops.so")
    subprocess.run(["g++", "-std=c++17", "-shared", "-fPIC", "-o", built, source, "-lrados"], check=True)
    LIB = ctypes.CDLL(str(built))
    LIB.rados = ctypes.CDLL("librados.so.2")
    LIB.ops_run.restype = LIB.ops_list.restype = ctypes.c_void_p
    LIB.rados.rados_get_last_version.restype = ctypes.c_uint64
    LIB.rados.rados_list_lockers.restype = ctypes.c_ssize_t


class Unpack:
    """What librados_ops.cc writes."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self, code):
        value, = struct.unpack_from("<" + code, self.data, self.at)
        self.at += struct.calcsize(code)
        return value

    def text(self):
        size = self.number("I")
        self.at += size
        return self.data[self.at - size:self.at]

    def many(self, item):
        return [item() for _ in range(self.number("I"))]


class Client:
    """A connection to one cluster."""

    def __init__(self, cluster):
        self.cluster, self.rados = cluster, ctypes.c_void_p()
        check(LIB.rados.rados_create(ctypes.byref(self.rados), b"admin"))
        check(LIB.rados.rados_conf_read_file(self.rados, cluster.conf.encode()))
        for option in (b"rados_osd_op_timeout", b"rados_mon_op_timeout"):
            check(LIB.rados.rados_conf_set(self.rados, option, b"%d" % TIMEOUT))
        check(LIB.rados.rados_connect(self.rados))
        # What ended an OSD.
        self.dead = None

    def ioctx(self, pool):
        io = ctypes.c_void_p()
        check(LIB.rados.rados_ioctx_create(self.rados, pool.encode(), ctypes.byref(io)))
        return io

    def check_osds(self, history):
        """An operation got no answer: the OSD that it ended, if it did (there are such, of real ones)."""
        for log in pathlib.Path(self.cluster.dir, "log").glob("osd.*.log"):
            said = log.read_text(errors="replace")
            if (at := said.find("*** Caught signal")) >= 0 and not self.dead:
                cause = re.search(r"FAILED ceph_assert.*|terminate called.*", said)
                frames = re.findall(r"^ \d+: \(?([A-Z]\w+(?:::\w+)+)", said[at:at + 6000], re.M)
                steps = "\n    ".join(str(step) for step in history.steps[-4:])
                self.dead = f"{log} ended: {cause and cause[0]} {frames[:4]}, pool {history.pool}\n    {steps}"


def check(code):
    if code < 0:
        raise RuntimeError(f"librados: {code}")


class Run:
    """One run of a history on one cluster, in a namespace of its own. Each step gives a dict of what was seen."""

    def __init__(self, client, history, namespace):
        self.client, self.history = client, history
        self.io = client.ioctx(history.pool)
        # Snapshots taken, those of them that are left, and those that writes name.
        self.snaps, self.kept, self.context_snaps = [], [], []
        # The last version told of each object; versions are compared by what they are above it.
        self.last = [None, None]
        self.watches, self.calls, self.notified = [], [], []
        self.namespace = namespace
        LIB.rados.rados_ioctx_set_namespace(self.io, namespace.ljust(history.namespace, b"n"))
        if history.locator:
            LIB.rados.rados_ioctx_locator_set_key(self.io, history.locator)

    def run(self):
        seen = []
        try:
            for step in self.history.steps + LAST:
                seen.append(getattr(self, step.kind)(*step.args, *([step.ops] if step.ops else [])))
                if seen[-1].get("result") == -errno.ETIMEDOUT:
                    self.client.check_osds(dataclasses.replace(self.history, steps=self.history.steps[:len(seen)]))
                    break
        finally:
            for cookie in self.watches:
                LIB.rados.rados_unwatch2(self.io, cookie)
            LIB.rados.rados_watch_flush(self.client.rados)
            LIB.rados.rados_ioctx_destroy(self.io)
        return seen

    # --- compound operations

    def write(self, which, flags, mtime, ops):
        return self.operate(which, True, flags, mtime, ops)

    def read(self, which, flags, snap, ops):
        if snap is not None:
            if snap >= len(self.snaps):
                return {}
            LIB.rados.rados_ioctx_snap_set_read(self.io, ctypes.c_uint64(self.snaps[snap]))
        seen = self.operate(which, False, flags, -1, ops)
        if snap is not None:
            LIB.rados.rados_ioctx_snap_set_read(self.io, ctypes.c_uint64(HEAD))
            if self.snaps[snap] not in self.kept:
                # What is left of it is not told.
                return {}
        return seen

    def listsnaps(self, which):
        LIB.rados.rados_ioctx_snap_set_read(self.io, ctypes.c_uint64(U64))
        seen = self.operate(which, False, 0, -1, (Op("list_snaps"),))
        LIB.rados.rados_ioctx_snap_set_read(self.io, ctypes.c_uint64(HEAD))
        return seen

    def operate(self, which, is_write, flags, mtime, ops):
        names = self.history.names
        encoded = [self.resolve(op, which).encode() for op in ops]
        request = struct.pack("<I", len(ops)) + b"".join(encoded)
        size = ctypes.c_size_t()
        out = LIB.ops_run(self.io, names[which], ctypes.c_size_t(len(names[which])), int(is_write), flags, ctypes.c_int64(mtime), request, ctypes.byref(size))
        got = Unpack(ctypes.string_at(out, size.value))
        LIB.ops_free(ctypes.c_void_p(out))
        seen = {"result": got.number("i")}
        version = got.number("Q")
        seen |= self.above(which, version)
        for i, op in enumerate(ops):
            self.outcome(seen, f"{i} {op.name}", op, got)
        return seen

    def above(self, which, version):
        """A version as what it is above the one before; 0 is told where there is none."""
        if version == 0:
            return {"version": "none"}
        last, self.last[which] = self.last[which], version
        return {} if last is None else {"version": version - last}

    def resolve(self, op, which):
        if op.name == "assert_version" and abs(op.numbers[0] - SYMBOL) < 2:
            return dataclasses.replace(op, numbers=(max((self.last[which] or 0) + op.numbers[0] - SYMBOL, 0),))
        if op.name == "rollback" and 0 <= op.numbers[0] - SYMBOL < 1 << 20:
            snap = op.numbers[0] - SYMBOL
            return dataclasses.replace(op, numbers=(self.snaps[snap] if snap < len(self.snaps) else 1 << 40,))
        if op.name.startswith("copy_from"):
            return dataclasses.replace(op, texts=(self.history.names[1 - which],))
        return op

    def outcome(self, seen, name, op, got):
        """What an op gave, without what differs between any two clusters."""
        seen[f"{name} result"] = got.number("i")
        data = got.text()
        out = {"size": got.number("Q"), "mtime": (got.number("q"), got.number("q")), "flag": got.number("B")}
        if out["mtime"][0] > 1_000_000_000:
            out["mtime"] = "now"
        out["vals"] = {key: value for key, value in got.many(lambda: (got.text(), got.text()))}
        out["keys"] = got.many(got.text)
        extents = got.many(lambda: (got.number("Q"), got.number("Q")))
        out["watchers"] = got.number("I")
        seq = got.number("Q")
        number = self.snap_number
        out["seq"] = number(seq)
        out["clones"] = got.many(lambda: dict(
            id=number(got.number("Q")), size=got.number("Q"), snaps=[number(s) for s in got.many(lambda: got.number("Q"))],
            overlap=got.many(lambda: (got.number("Q"), got.number("Q")))))
        if extents:
            # Stores differ in which holes they keep.
            whole = bytearray()
            for offset, size in extents:
                start = offset - op.numbers[0]
                whole.extend(bytes(max(0, start + size - len(whole))))
                whole[start:start + size], data = data[:size], data[size:]
            data = bytes(whole)
        if op.name == "sparse_read":
            data = data.rstrip(b"\0")
        if op.name == "exec" and op.texts[:2] == (b"version", b"read"):
            data = without_tag(data)
        if op.name == "getxattr" and op.texts[0] == b"":
            # The object's info.
            data = b""
        for key in out["vals"]:
            if key in OWN_ATTRS:
                out["vals"][key] = without_tag(out["vals"][key]) if key == b"ceph.objclass.version" else b""
        if self.history.pool == "classes":
            data = self.own(data)
            out["vals"] = {self.own(key): self.own(value) for key, value in out["vals"].items()}
        out["data"] = data
        for key, value in out.items():
            if value or isinstance(value, bytes):
                seen[f"{name} {key}"] = value

    def own(self, data):
        """Bytes of a class without what one cluster alone has: times of today, ids that were drawn, its client, the version in a log's keys."""
        now = int(time.time())
        for at in range(len(data) - 7):
            if abs(struct.unpack_from("<I", data, at)[0] - now) < 3600:
                data = data[:at] + b"a moment" + data[at + 8:]
        data = re.sub(rb"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", b"UUID", data)
        data = re.sub(rb"(1_\d{10}\.\d{6}_)\d+(?=\.\d)", rb"\1VERSION", data)
        if b"VERSION" in data:
            # As long as its digits are many: without what tells lengths.
            data = b" ".join(re.findall(rb"[ -~]{3,}", data))
        return data.replace(struct.pack("<Q", self.instance()), b"myself..").replace(self.nonce(), b"once")

    def nonce(self):
        """What tells this client's address from others, as it is encoded."""
        addrs = ctypes.c_char_p()
        check(LIB.rados.rados_getaddrs(self.client.rados, ctypes.byref(addrs)))
        return struct.pack("<I", int(re.search(rb"/(\d+)", addrs.value)[1]))

    def list(self, wanted):
        """The objects of the namespace, all or those that a filter lets through."""
        size = ctypes.c_size_t()
        out = LIB.ops_list(self.io, wanted, ctypes.c_size_t(len(wanted)), ctypes.byref(size))
        got = Unpack(ctypes.string_at(out, size.value))
        LIB.ops_free(ctypes.c_void_p(out))
        return {"result": got.number("i"), "objects": got.many(lambda: (got.text(), got.text()))}

    def snap_number(self, snap):
        return f"snap {self.snaps.index(snap)}" if snap in self.snaps else "head" if snap == HEAD else snap

    # --- snapshots

    @property
    def of_pool(self):
        return self.history.pool == "poolsnaps"

    def snap(self):
        if self.of_pool:
            name = b"%s-%d" % (self.namespace, len(self.snaps))
            code = LIB.rados.rados_ioctx_snap_create(self.io, name)
            snap = ctypes.c_uint64()
            check(LIB.rados.rados_ioctx_snap_lookup(self.io, name, ctypes.byref(snap)))
        else:
            snap = ctypes.c_uint64()
            code = LIB.rados.rados_ioctx_selfmanaged_snap_create(self.io, ctypes.byref(snap))
        self.snaps.append(snap.value)
        self.kept.append(snap.value)
        self.context("all")
        return {"result": code}

    def context(self, how):
        if self.of_pool:
            return {}
        snaps = sorted(self.kept, reverse=True)
        seq = max([*self.snaps, 0])
        if how == "none":
            seq, snaps = 0, []
        elif how == "older":
            snaps = snaps[1:]
            seq = max([*snaps, 0])
        elif how == "backwards":
            snaps = snaps[::-1]
        elif how == "twice":
            snaps = snaps[:1] + snaps
        elif how == "high":
            seq += 1 << 40
        array = (ctypes.c_uint64 * max(1, len(snaps)))(*snaps)
        return {"result": LIB.rados.rados_ioctx_selfmanaged_snap_set_write_ctx(self.io, ctypes.c_uint64(seq), array, len(snaps))}

    def unsnap(self, which):
        if which >= len(self.snaps) or self.snaps[which] not in self.kept:
            return {}
        snap = self.snaps[which]
        if self.of_pool:
            code = LIB.rados.rados_ioctx_snap_remove(self.io, b"%s-%d" % (self.namespace, which))
        else:
            code = LIB.rados.rados_ioctx_selfmanaged_snap_remove(self.io, ctypes.c_uint64(snap))
        self.kept.remove(snap)
        self.context("all")
        end = time.monotonic() + TIMEOUT
        while any(snap in self.snaps_of(name) for name in self.history.names):
            if time.monotonic() > end:
                return {"result": code, "trimmed": False}
            time.sleep(0.01)
        return {"result": code}

    def snaps_of(self, name):
        """Snapshots of which an object has clones."""
        last = list(self.last)
        seen = self.listsnaps(self.history.names.index(name))
        self.last = last
        found = [s for clone in seen.get("0 list_snaps clones", ()) for s in (*clone["snaps"], clone["id"])]
        return [self.snaps[int(s.split()[1])] for s in found if str(s).startswith("snap ")]

    def rollback(self, which):
        if which >= len(self.snaps):
            return {}
        name = self.history.names[0]
        if b"\0" in name:
            return {}
        if self.of_pool:
            code = LIB.rados.rados_ioctx_snap_rollback(self.io, name, b"%s-%d" % (self.namespace, which))
        else:
            code = LIB.rados.rados_ioctx_selfmanaged_snap_rollback(self.io, name, ctypes.c_uint64(self.snaps[which]))
        return {"result": code, **self.above(0, LIB.rados.rados_get_last_version(self.io))}

    # --- locks

    def lock_exclusive(self, name, cookie, flags):
        return {"result": LIB.rados.rados_lock_exclusive(self.io, self.history.names[0], name, cookie, b"desc", None, ctypes.c_uint8(flags))}

    def lock_shared(self, name, cookie, tag, flags):
        return {"result": LIB.rados.rados_lock_shared(self.io, self.history.names[0], name, cookie, tag, b"desc", None, ctypes.c_uint8(flags))}

    def unlock(self, name, cookie):
        return {"result": LIB.rados.rados_unlock(self.io, self.history.names[0], name, cookie)}

    def break_lock(self, name, cookie):
        client = b"client.%d" % self.instance()
        return {"result": LIB.rados.rados_break_lock(self.io, self.history.names[0], name, client, cookie)}

    def instance(self):
        LIB.rados.rados_get_instance_id.restype = ctypes.c_uint64
        return LIB.rados.rados_get_instance_id(self.client.rados)

    def lockers(self, name):
        exclusive = ctypes.c_int(-1)
        sizes = [ctypes.c_size_t(1000) for _ in range(4)]
        tag, clients, cookies, addrs = (ctypes.create_string_buffer(1000) for _ in range(4))
        pairs = [x for buffer, size in zip((tag, clients, cookies, addrs), sizes) for x in (buffer, ctypes.byref(size))]
        code = LIB.rados.rados_list_lockers(self.io, self.history.names[0], name, ctypes.byref(exclusive), *pairs)
        seen = {"result": code}
        if code >= 0:
            mine = b"client.%d" % self.instance()
            seen |= {"exclusive": exclusive.value, "tag": tag.raw[:sizes[0].value], "cookies": cookies.raw[:sizes[2].value],
                     "clients": clients.raw[:sizes[1].value].replace(mine, b"me")}
        return seen

    # --- watches

    def watch(self):
        cookie = ctypes.c_uint64()

        def on_notify(_, notify_id, cookie, notifier, data, size):
            got = ctypes.string_at(data, size)
            self.notified.append(got)
            LIB.rados.rados_notify_ack(self.io, self.history.names[0], ctypes.c_uint64(notify_id), ctypes.c_uint64(cookie), got[:3], len(got[:3]))

        def on_broken(_, cookie, error):
            pass

        # Kept as long as librados may call them.
        self.calls += [ACK(on_notify), BROKEN(on_broken)]
        code = LIB.rados.rados_watch3(self.io, self.history.names[0], ctypes.byref(cookie), *self.calls[-2:], 30, None)
        if code == 0:
            self.watches.append(cookie)
        return {"result": code}

    def unwatch(self):
        if not self.watches:
            return {}
        return {"result": LIB.rados.rados_unwatch2(self.io, self.watches.pop())}

    def watch_check(self):
        """Whether a watch still is one: how long ago it was heard of is not compared."""
        return {"result": min(0, LIB.rados.rados_watch_check(self.io, self.watches[-1]))} if self.watches else {}

    def notify(self, payload):
        reply, size = ctypes.c_void_p(), ctypes.c_size_t()
        self.notified.clear()
        code = LIB.rados.rados_notify2(self.io, self.history.names[0], payload, len(payload), ctypes.c_uint64(1000 * TIMEOUT), ctypes.byref(reply), ctypes.byref(size))
        LIB.rados.rados_watch_flush(self.client.rados)
        acks = []
        if reply.value:
            got = Unpack(ctypes.string_at(reply.value, size.value))
            if size.value:
                acks = sorted(got.many(lambda: (got.number("Q"), got.number("Q"), got.text())[2]))
            missed = got.number("I") if size.value else 0
            LIB.rados.rados_buffer_free(reply)
            return {"result": code, "acks": acks, "missed": missed, "notified": list(self.notified)}
        return {"result": code, "notified": list(self.notified)}


# xattrs whose values name a client or are drawn.
OWN_ATTRS = {b"ceph.objclass.version", b"said_by", b"amplified_by", b"lock.l", b"lock.m", b"lock."}


def without_tag(data):
    """An encoded version (or what `read` gives) without a tag that was drawn."""
    return re.sub(rb"[A-Za-z0-9+/]{20,24}=*", b"TAG", data)


# --- comparing


class Comparison:
    """Both clusters, and what was found."""

    def __init__(self, ours, real):
        self.clients = [Client(ours), Client(real)]
        self.count = 0
        self.lock = threading.Lock()
        self.used, self.found, self.steps = set(), 0, 0
        self.threads = concurrent.futures.ThreadPoolExecutor(2 * len(POOLS))

    def both(self, history):
        """What both see, each in the same fresh namespace."""
        with self.lock:
            self.count += 1
            namespace = b"run%d" % self.count
        jobs = [self.threads.submit(lambda c=c: Run(c, history, namespace).run()) for c in self.clients]
        return [job.result() for job in jobs]

    def difference(self, history):
        """(index of the step, what differs, what both saw) of the first step with a difference that is not known, or None."""
        ours, real = self.both(history)
        for client in self.clients:
            if client.dead:
                raise RuntimeError(client.dead)
        for i, (mine, theirs) in enumerate(zip(ours, real)):
            out = [f"{key}: {show(mine.get(key))}, real {show(theirs.get(key))}" for key in {**theirs, **mine} if mine.get(key) != theirs.get(key)]
            step = (history.steps + LAST)[i]
            for line in list(out):
                for entry in DIFFERENT:
                    if re.fullmatch(entry[0], str(step), re.S) and re.fullmatch(entry[1], line, re.S):
                        self.used.add(entry)
                        out.remove(line)
                        break
            if out:
                return i, out + [f"(result {mine.get('result')}, real {theirs.get('result')})"], (ours, real)
        return None

    def compare(self, history, seed):
        self.steps += len(history.steps)
        first = self.difference(history)
        if first is None:
            return
        small = dataclasses.replace(history, steps=history.steps[:first[0] + 1])
        last = self.difference(small)
        if last is None:
            with self.lock:
                self.found += 1
                print(f"DIFFERS, but not again: seed {seed}, pool {history.pool}, step {first[0]}: {(history.steps + LAST)[first[0]]}", *first[1], sep="\n    ", flush=True)
                # All there is to know of it, as it will not come back.
                for step, mine, theirs in zip(history.steps + LAST, *first[2]):
                    print(f"  {step}", f"ours {mine}", f"real {theirs}", sep="\n    ", flush=True)
            return
        # One that got no answer would take as long again with every step that is tried without.
        if not any(str(-errno.ETIMEDOUT) in line for line in last[1]):
            small, last = self.smaller(small, last)
        with self.lock:
            self.found += 1
            names = "" if history.names[0] == b"thing" and not history.locator else f", object {history.names[0][:20]!r}, locator {history.locator[:20]!r}"
            print(f"DIFFERS seed {seed}, pool {history.pool}{names}", *(small.steps + LAST)[:last[0] + 1], sep="\n    ", flush=True)
            print(*last[1], sep="\n      ", flush=True)

    def smaller(self, history, last):
        """The history without steps, and its operations without ops, that the difference does not need."""
        kinds = lambda difference: {line.split(":")[0].split(" ", 1)[-1] for line in difference[1]}
        wanted = kinds(last)

        def try_steps(steps):
            nonlocal history, last
            candidate = dataclasses.replace(history, steps=tuple(steps))
            found = self.difference(candidate)
            if found is None or found[0] - len(steps) != last[0] - len(history.steps) or not kinds(found) & wanted:
                return False
            history, last = candidate, found
            return True

        for at in reversed(range(2, min(len(history.steps), last[0]))):
            if history.steps[at].kind == "snap":
                # Others are told by their number.
                continue
            try_steps(history.steps[:at] + history.steps[at + 1:])
        for at in reversed(range(len(history.steps))):
            for op in reversed(range(len(history.steps[at].ops))):
                step = history.steps[at]
                if len(step.ops) > 1:
                    ops = step.ops[:op] + step.ops[op + 1:]
                    try_steps(history.steps[:at] + (dataclasses.replace(step, ops=ops),) + history.steps[at + 1:])
        return history, last


def show(value):
    out = repr(value)
    return out if len(out) <= 300 else f"{out[:150]}...{out[-100:]} ({len(out)})"


def start(stack, cluster):
    """Starts a cluster with its pools."""
    stack.enter_context(cluster)
    cluster.ceph("osd", "erasure-code-profile", "set", "k2m1", "k=2", "m=1", "crush-failure-domain=osd")
    for name, (args, _) in POOLS.items():
        cluster.ceph("osd", "pool", "create", name, "4", "4", *args)
        cluster.ceph("osd", "pool", "application", "enable", name, "rados")
    cluster.ceph("osd", "pool", "set", "overwrites", "allow_ec_overwrites", "true")
    # Digests that a scrub finds are logged, too.
    for flag in ("noscrub", "nodeep-scrub"):
        cluster.ceph("osd", "set", flag)
    cluster.wait_clean()
    return cluster


class Real(RealCeph):
    """Overwrites of shards want BlueStore."""
    store = WithOurs.BLUESTORE + "".join(f"\n{name} = {value}" for name, value in LIMITS.items())


def main():
    parser = argparse.ArgumentParser(description="Random operations on objects, on a real Ceph 16.2 and on ours.")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seeds", type=int, default=1, help="how many, from --seed on")
    parser.add_argument("--ops", type=int, default=STEPS, help="steps for each seed")
    parser.add_argument("--pool", choices=POOLS, action="append", help="one or more of them")
    options = parser.parse_args()
    seeds = SEEDS if options.seed is None else range(options.seed, options.seed + options.seeds)
    pools = options.pool or list(POOLS)
    with tempfile.TemporaryDirectory() as folder:
        load(folder)
        began = time.monotonic()
        with contextlib.ExitStack() as stack, concurrent.futures.ThreadPoolExecutor(2) as starting:
            ours = Cluster(osds=3, sets=[f"{name}={value}" for name, value in LIMITS.items()])
            real, ours = starting.map(lambda c: start(stack, c), (Real(), ours))
            print(f"clusters after {time.monotonic() - began:.1f} s", flush=True)
            began = time.monotonic()
            comparison = Comparison(ours, real)

            def work(pool):
                """One pool's histories, one after the other: what each version is told depends on all of its placement group's writes."""
                for seed in seeds:
                    for n in range(max(1, options.ops // HISTORY // len(pools))):
                        maker = Maker(random.Random(f"{seed} {pool} {n}"))
                        comparison.compare(maker.history(pool, HISTORY), f"{seed} ({n})")

            with concurrent.futures.ThreadPoolExecutor(len(pools)) as working:
                list(working.map(work, pools))
            took = time.monotonic() - began
    for entry in DIFFERENT:
        print(f"{'known' if entry in comparison.used else 'not seen this time'}: {entry[0]}: {entry[1]}: {entry[2]}")
    print(f"{comparison.steps} steps in {took:.1f} s, {comparison.found} histories differ")
    return 1 if comparison.found else 0


if __name__ == "__main__":
    sys.exit(main())
