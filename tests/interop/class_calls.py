"""Draws calls of methods of object classes for compare_ops.py: what `rbd`, `librbd`'s mirroring, journals and the gateway ask of an
object, with arguments that meet each other: few ids, names and numbers.

`FAMILIES` has the methods that know the same object, with a letter for each argument; `Letters` says what these are."""
import struct


def text(value):
    """Wire: string."""
    return struct.pack("<I", len(value)) + value


def struct_of(body, v=1, compat=1):
    """Wire: a struct in its envelope."""
    return struct.pack("<BBI", v, compat, len(body)) + body


def many(items):
    """Wire: vector, set or map."""
    return struct.pack("<I", len(items)) + b"".join(items)


U64 = (1 << 64) - 1
NOSNAP = U64 - 1
# An image of format 1: its text, who made it, and no snapshots.
OLD_HEADER = b"<<< Rados Block Device Image >>>\n\0".ljust(40, b"\0") + b"rb.0.1\0".ljust(24, b"\0") + struct.pack("<BBBB", 22, 0, 0, 0) + bytes(4)
OLD_HEADER = OLD_HEADER.ljust(80, b"\0") + struct.pack("<QQIIQ", 10 << 20, 0, 0, 0, 0)


class Letters:
    """Arguments by letter, encoded."""

    def __init__(self, rng):
        self.rng = rng

    def of(self, letters):
        """Those of a method; behind `/` are some that old clients do not send."""
        need, _, more = letters.partition("/")
        letters = need + more if self.rng.random() < 0.6 else need
        return b"".join(getattr(self, "arg_" + letter)() for letter in letters)

    def number(self, *values):
        return struct.pack("<Q", self.rng.choice(values) & U64)

    def string(self, *values):
        return text(self.rng.choice(values))

    def byte(self, *values):
        return bytes([self.rng.choice(values)])

    # Numbers.
    def arg_q(self): return self.number(0, 1, 2, 3, 10, U64)
    def arg_z(self): return self.number(0, 1, 4096, 5 << 20, 10 << 20, 1 << 40, U64)
    def arg_S(self): return self.number(1, 2, 3, 4, 5, 6, 7, 8, 9, 300, 0, NOSNAP, NOSNAP - 1)
    def arg_H(self): return self.number(NOSNAP, NOSNAP, 1, 2, 3, 4, 5)
    def arg_F(self): return self.number(1, 1, 3, 5, 0x3d, 0x3d, 0x7d, 0x80, 0x81, 0x100, 0x200, 0x400, 0x1000, 0, U64)
    def arg_p(self): return self.number(1, 2, 3, 0, -1)
    def arg_m(self): return self.number(0, 1, 2, 3, 100, U64)
    # With 0 real OSDs go round for ever.
    def arg_s(self): return self.number(512, 4096, 8192, 1 << 22)
    def arg_B(self): return self.byte(0, 1, 1, 2, 2, 3, 4, 255)
    def arg_o(self): return self.byte(22, 22, 20, 0, 12, 25, 63, 64)
    def arg_t(self): return self.byte(0, 1)
    def arg_I(self): return struct.pack("<I", self.rng.choice([0, 1, 1, 1, 2, 3]))
    def arg_O(self): return self.byte(0) if self.rng.random() < 0.5 else b"\1" + self.arg_B()

    # Strings: names, ids, and those of images.
    def arg_n(self): return self.string(b"a", b"b", b"c", b"a", b"b", b"", "Ω".encode(), b"x_y", b"a\0b")
    def arg_1(self): return self.string(b"a", b"b", b"c", b"d", b"e")
    def arg_i(self): return self.string(b"1a", b"2b", b"3c", b"4D", b"", b"no-id", b"1_2")
    def arg_b(self): return text(self.rng.choice([b"", b"data", b"\0\1", b"d" * 300]))
    # Keys of a map come once: which value counts otherwise is nobody's business.
    def arg_M(self):
        if self.rng.random() < 0.1:
            return many([text(b"%03d" % n) + text(b"v") for n in range(200)])
        return many([key + self.arg_b() for key in sorted({self.arg_n() for _ in range(self.rng.choice([0, 1, 1, 2, 30]))})])
    def arg_r(self): return self.rng.choice([b"", b"data", bytes(5000), b"x" * 5000 + bytes(8192) + b"y"])
    def arg_e(self): return many([struct.pack("<QQ", *extent) for extent in sorted(self.rng.sample([(0, 4), (5, 1), (8, 3), (4096, 4), (100, 7)], self.rng.choice([0, 1, 1, 2])))])

    # Structs.
    def arg_N(self):
        kind = self.rng.choice([0, 0, 1, 2, 3, 3, 4])
        body = {1: lambda: self.arg_p() + self.arg_i() + self.arg_i(), 2: lambda: self.arg_n() + struct.pack("<I", self.rng.randrange(3)),
                3: lambda: self.byte(0, 1, 2, 3) + self.arg_t() + many(sorted({self.arg_i() for _ in range(self.rng.randrange(3))})) + self.arg_n() + self.arg_S() + self.arg_q() +
                many([self.arg_q() + self.arg_q()])}.get(kind, bytes)()
        return struct_of(struct.pack("<I", kind) + body)

    def arg_P(self): return struct_of(self.arg_p() + self.string(b"", b"", b"ns") + self.arg_i() + self.arg_S())
    def arg_C(self): return struct_of(self.arg_p() + self.arg_i() + self.string(b"", b"ns"), 2)
    def arg_G(self): return struct_of(self.arg_i() + self.arg_p())
    def arg_g(self): return struct_of(self.arg_G() + self.byte(0, 1, 2))
    def arg_R(self): return struct_of(self.arg_p() + self.arg_i())
    def arg_X(self): return struct_of(self.arg_i() + self.arg_n() + self.byte(0, 1, 1, 2) + many([struct_of(self.arg_p() + self.arg_i() + self.arg_S()) for _ in range(self.rng.randrange(3))]))
    def arg_T(self): return struct_of(self.byte(0, 1, 2, 9) + self.arg_n() + self.time() + self.time() + self.byte(0, 1, 2), 2)
    def arg_V(self):
        return struct_of(self.byte(1, 2) + self.arg_p() + self.string(b"", b"ns") + self.arg_n() + self.arg_i() + many([self.arg_q() + self.arg_q()]) +
                         self.arg_z() + self.arg_t() + self.arg_t() + self.byte(0, 1, 2, 3, 4, 5) + self.arg_n() + self.byte(0, 1) + self.arg_n(), 3)
    def arg_E(self): return struct_of(self.arg_i() + self.string(b"site", b"other", b"") + self.string(b"client", b"") + self.number(-1) + self.byte(0, 1, 2, 2, 3) + self.string(b"", b"u1", b"u2") + self.time(), 2)
    def arg_Y(self): return struct_of(self.string(b"g1", b"g2", b"g3", b"") + self.byte(0, 1, 1, 2, 3) + self.byte(0, 1), 2)
    def arg_U(self):
        uuid = self.rng.choice([b"", b"u1", b"u2"])
        return struct_of((text(uuid) if uuid else b"") + self.byte(0, 1, 2, 3, 4, 5, 6) + self.arg_n() + self.time() + self.arg_t(), 2 if uuid else 1, 2 if uuid else 1)
    def arg_K(self): return struct_of(self.arg_i() + self.time() + self.arg_b())
    def arg_y(self): return self.string(b"g1", b"g2", b"g3", b"")
    def arg_A(self): return many([self.arg_E() for _ in range(self.rng.randrange(3))])
    def arg_W(self):
        """An object map."""
        count = self.rng.choice([0, 1, 3, 4, 5, 100, 20000])
        header, data = struct_of(struct.pack("<Q", count)), self.rng.randbytes((count + 3) // 4)
        if count % 4:
            data = data[:-1] + bytes([data[-1] & (0xff << (8 - count % 4 * 2)) & 0xff])
        return text(header) + data + text(b"")

    # Journals, logs.
    def position(self): return struct_of(many([struct_of(self.arg_q() + self.arg_q() + self.arg_q()) for _ in range(self.rng.randrange(4))]))
    arg_J = position
    def arg_D(self): return b"\0" if self.rng.random() < 0.5 else b"\1" + self.arg_q()
    def time(self): return struct.pack("<II", self.rng.choice([0, 1, 2, 5, 1000, 2_000_000_000, 0xffffffff]), self.rng.choice([0, 0, 1000, 999_999_000, 1500]))
    arg_h = time
    def marker(self): return self.string(b"", b"", b"", b"1_0000000001.000000_", b"1_0000000002.000001_k", b"1_0000001000.000000_", b"0", b"2", b"1_")
    arg_k = marker
    def arg_c(self): return struct.pack("<i", self.rng.choice([0, 1, 2, 3, 1000, 1001, -1]))
    def arg_L(self): return struct_of(many([self.log_entry() for _ in range(self.rng.choice([0, 1, 1, 2, 30]))]) + self.arg_t(), 2)
    def log_entry(self): return struct_of(self.arg_n() + self.arg_n() + self.time() + self.arg_b() + self.marker(), 2)
    def arg_l(self): return struct_of(self.time() + self.marker() + self.time() + self.arg_c())
    # Real OSDs add a microsecond to the end without carrying it.
    def arg_x(self): return struct_of(self.time() + self.time().replace(struct.pack("<I", 999_999_000), bytes(4)) + self.marker() + self.marker(), 2)
    def arg_v(self): return struct_of(b"")
    def arg_j(self): return struct_of(many([struct_of(self.time() + self.string(b"k", b"kk", b"a b", b"k" * 300, b"k_") + self.arg_b()) for _ in range(self.rng.choice([0, 1, 1, 2, 30]))]))
    def bucket(self):
        name = self.string(b"a", b"b", b"c", b"d", b"")
        if self.rng.random() < 0.7:
            return struct_of(name + self.arg_n() + self.arg_n() + self.string(b"p", b"p", b""), 9, 8)
        return struct_of(name + self.arg_n() + self.arg_n() + self.arg_n() + self.arg_n() + self.arg_n(), 7, 3)
    def arg_u(self):
        entries = [struct_of(text(b"") + self.arg_z() + self.time()[:4] + self.arg_q() + self.bucket() + self.arg_z() + self.arg_t() + self.time(), 9, 5) for _ in range(self.rng.choice([0, 1, 1, 2, 5]))]
        return struct_of(many(entries) + self.arg_t() + self.time())
    def arg_w(self): return struct_of(self.bucket())
    def arg_d(self): return struct_of(self.string(b"", b"", b"a", b"b") + self.arg_c() + self.string(b"", b"", b"c"), 2)
    def arg_f(self): return struct_of(self.time())
    # Without sums of earlier steps: 16.2 forgets them.
    def arg_a(self): return struct_of(self.time() + self.string(b"", b"", b"a", b"b") + struct_of(bytes(24)))


# Methods that write and those that read, with their arguments, by what object they know.
FAMILIES = {
    "header": ("rbd", """set_features:FF op_features_set:QQ set_size:z set_size:z set_flags:qq/H set_stripe_unit_count:zq set_access_timestamp: set_modify_timestamp:
        snapshot_add:nS/N snapshot_add:nS/N snapshot_add:nS/N snapshot_add:nS/N snapshot_remove:S snapshot_remove:S snapshot_rename:Sn snapshot_trash_add:S snapshot_set_limit:q
        set_protection_status:SB set_parent:piSz remove_parent: parent_attach:Pz/t parent_attach:Pz/t parent_detach: child_attach:SC child_attach:SC child_attach:SC child_detach:SC child_detach:SC
        metadata_set:M metadata_remove:n migration_set:V migration_set_state:Bn migration_remove: image_group_add:R image_group_remove:R
        mirror_image_snapshot_unlink_peer:Si mirror_image_snapshot_set_copy_progress:Stq""",
               """get_features:H/t get_all_features: op_features_get: get_size:H get_flags:H get_stripe_unit_count: get_create_timestamp: get_access_timestamp: get_modify_timestamp:
        get_object_prefix: get_data_pool: get_snapcontext: get_snapshot_name:S get_snapshot_timestamp:S snapshot_get:S snapshot_get:S snapshot_get_limit: get_protection_status:S
        get_parent:H parent_get: parent_overlap_get:H children_list:S metadata_list:nm metadata_get:n migration_get: image_group_get:"""),
    "children": ("rbd", "add_child:piSi add_child:piSi remove_child:piSi", "get_children:piS"),
    "directory": ("rbd", """dir_add_image:ni dir_add_image:ni dir_remove_image:ni dir_rename_image:nni dir_state_set:B namespace_add:n namespace_remove:n group_dir_add:ni group_dir_remove:ni
        group_dir_rename:nni""", "dir_get_id:n dir_get_name:i dir_list:nm dir_state_assert:B namespace_list:nm group_dir_list:nm"),
    "id": ("rbd", "set_id:i set_id:n", "get_id:"),
    "map": ("rbd", "object_map_save:W object_map_resize:qB object_map_resize:zB object_map_update:qqBO object_map_update:qqBO object_map_snap_add: object_map_snap_remove:W", "object_map_load:"),
    "old": ("rbd", "snap_add:1S snap_add:1S snap_add:1S snap_remove:1 snap_rename:S1 snapshot_set_limit:q migration_set:V migration_set_state:Bn migration_remove:", "snap_list: snapshot_get_limit: migration_get:"),
    "mirror": ("rbd", """mirror_uuid_set:i mirror_mode_set:I mirror_mode_set:I mirror_peer_ping:nnB mirror_peer_add:E mirror_peer_add:E mirror_peer_remove:i mirror_peer_set_client:in
        mirror_peer_set_cluster:in mirror_peer_set_direction:iB""", "mirror_uuid_get: mirror_mode_get: mirror_peer_list:"),
    "mirror_images": ("rbd", """mirror_image_set:iY mirror_image_set:iY mirror_image_set:iY mirror_image_remove:i mirror_image_status_set:yU mirror_image_status_set:yU mirror_image_status_remove:y
        mirror_image_status_remove_down: mirror_instances_add:i mirror_instances_remove:i mirror_image_map_update:iK mirror_image_map_remove:i""",
                      """mirror_image_list:im mirror_image_get_image_id:y mirror_image_get:i mirror_image_status_get:y mirror_image_status_list:im mirror_image_status_get_summary:/A
        mirror_image_instance_get:y mirror_image_instance_list:im mirror_instances_list: mirror_image_map_list:im"""),
    "group": ("rbd", "group_image_set:g group_image_set:g group_image_remove:G group_snap_set:X group_snap_set:X group_snap_remove:i", "group_image_list:Gm group_snap_get_by_id:i group_snap_list:Xm"),
    "trash": ("rbd", "trash_add:iT trash_add:iT trash_remove:i trash_state_set:iBB", "trash_list:im trash_get:i"),
    "data": ("rbd", "copyup:r sparse_copyup:eb assert_snapc_seq:SB sparsify:st", "get_features:H"),
    "journal": ("journal", """set_minimum_set:q set_active_set:q client_register:nb client_register:nb client_update_data:nb client_update_state:nB client_unregister:n client_commit:nJ client_commit:nJ
        tag_create:qqb tag_create:qqb tag_create:qqb guard_append:z append:zb create:BBp""",
                "get_order: get_splay_width: get_pool_id: get_minimum_set: get_active_set: get_client:n client_list:nm get_next_tag_tid: get_tag:q tag_list:qmnD"),
    "log": ("log", "add:L add:L trim:x", "list:l list:l info:v"),
    "timeindex": ("timeindex", "add:j add:j trim:x", "list:l"),
    "user": ("user", "set_buckets_info:u set_buckets_info:u complete_stats_sync:f remove_bucket:w reset_user_stats:f reset_user_stats2:a", "list_buckets:d get_header:v"),
}
Letters.arg_Q = lambda self: self.number(0, 1, 2, 4, 8, 15, 16, U64)


class Calls:
    """Calls of one family, drawn from a seed."""

    def __init__(self, rng):
        self.rng, self.letters = rng, Letters(rng)
        self.family = rng.choice(list(FAMILIES))
        self.cls, writes, reads = FAMILIES[self.family]
        self.writes, self.reads = writes.split(), reads.split()
        # Whether one operation may have several: a real OSD that reads an object whole behind what the same operation has written goes round
        # for ever (see `Maker.write`).
        self.several = self.family not in ("map", "old", "id", "data")

    def begin(self):
        """(class, method, input) of what makes the object, and what is written into it first."""
        if self.rng.random() < 0.15:
            return [], b""
        if self.family == "header":
            features = self.rng.choice([1, 1, 0x3d, 0x3d, 0x3f, 0xbd])
            body = struct.pack("<QBQ", 10 << 20, 22, features) + text(b"rbd_data.1") + (struct.pack("<q", 2) if features & 0x80 else b"")
            return [(b"rbd", b"create", body)], b""
        if self.family == "journal":
            return [(b"journal", b"create", struct.pack("<BBq", 24, 4, -1))], b""
        if self.family == "old":
            return [], OLD_HEADER
        return [], b""

    def call(self, reads):
        """(class, method, input)."""
        method, letters = self.rng.choice(self.reads if reads else self.writes).split(":")
        given = self.letters.of(letters)
        # Real OSDs end where that one gets what are no peers.
        if self.rng.random() < 0.04 and method != "mirror_image_status_get_summary":
            given = self.rng.choice([b"", given[:self.rng.randrange(len(given) + 1)], given + b"more"])
        return self.cls.encode(), method.encode(), given
