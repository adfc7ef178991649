#!/usr/bin/python3
"""What the named profiles of monitors' capabilities allow: a key of each asks a real Ceph 16.2 and ours the same commands, through
librados, and the errno of each is compared. Profiles differed that no test named: the other side of an RBD mirror could not be told
of this one (`rbd mirror pool peer bootstrap import --direction rx-tx`).

Exit code 1 when any differs."""
import json
import sys

import rados

from cluster import Cluster
from real_ceph import RealCeph

PROFILES = ("rbd rbd-read-only rbd-mirror rbd-mirror-peer rbd-anything crash simple-rados-client simple-rados-client-with-blocklist fs-client "
            "cephfs-mirror role-definer mon mgr osd mds read-only read-write bootstrap-osd bootstrap-mgr bootstrap-mds bootstrap-rgw "
            "bootstrap-rbd bootstrap-rbd-mirror nonsense").split()
KEYS = {"get": "rbd/mirror/site_name rbd/mirror/peer/1/x cephfs/mirror/peer/x daemon-private/client.of-mgr/x other",
        "set": "rbd/mirror/site_name rbd/mirror/peer/1/y cephfs/mirror/peer/y daemon-private/client.of-mgr/y other",
        "exists": "rbd/mirror/site_name daemon-private/client.of-mgr/x other"}
BLOCKLIST = [("add", "192.0.2.1:0/1"), ("add", "192.0.2.1"), ("rm", "192.0.2.1:0/1")]
NEW_KEYS = [("client.rgw.a", "allow rw", "allow rwx"), ("client.a", "profile rbd", "profile rbd pool=x"),
            ("client.b", "profile rbd-mirror", "profile rbd"), ("client.c", "allow *", "allow *"), ("mgr.q", "allow profile mgr", "allow *")]


def commands():
    """Each as librados sends it. Those that change something do it for each profile anew, and alike on both sides."""
    for verb, keys in KEYS.items():
        yield from ({"prefix": f"config-key {verb}", "key": key, "val": "v"} for key in keys.split())
    yield from ({"prefix": "osd blocklist", "blocklistop": op, "addr": addr} for op, addr in BLOCKLIST)
    for entity, mon, osd in NEW_KEYS:
        yield {"prefix": "auth get-or-create", "entity": entity, "caps": ["mon", mon, "osd", osd]}
        yield {"prefix": "auth rm", "entity": entity}
    yield {"prefix": "auth get", "entity": "client.admin"}
    yield {"prefix": "config get", "who": "osd.0"}
    yield {"prefix": "config set", "who": "client.x", "name": "debug_ms", "value": "0"}
    yield {"prefix": "osd pool create", "pool": "made", "pg_num": 1}
    yield {"prefix": "osd down", "ids": ["77"]}
    yield {"prefix": "osd new", "uuid": "11111111-2222-3333-4444-555555555555"}
    yield {"prefix": "log", "logtext": ["said"]}
    # Changes that are the manager's to make: who may look only is refused by the monitor, which may do all there itself.
    yield {"prefix": "pg repair", "pgid": "77.1"}
    yield {"prefix": "crash archive-all"}
    for prefix in ("config-key ls", "osd blocklist ls", "osd dump", "status", "auth ls", "mds stat", "fs dump", "mgr dump", "mon dump",
                   "quorum_status", "log last", "config dump", "osd tree",
                   # The manager's, asked of a monitor.
                   "pg stat", "service dump", "osd df", "crash ls"):
        yield {"prefix": prefix}


def answers(cluster):
    """{(profile, command): errno}"""
    def admin(*args):
        cluster.ceph(*args)

    # A real manager tells the monitors of its modules' commands some time after it is there: until then nobody knows them.
    cluster.wait(lambda: cluster.run("ceph", "crash", "ls", check=False).returncode == 0, 60, "the module")
    for key in sorted({key for keys in KEYS.values() for key in keys.split()}):
        admin("config-key", "set", key, "v")
    found = {}
    for profile in PROFILES:
        made = cluster.run("ceph", "auth", "get-or-create", f"client.of-{profile}", "mon", f"profile {profile}", "-f", "json", check=False)
        found[profile, "made"] = made.returncode
        if made.returncode != 0:
            continue
        conf = {"key": json.loads(made.stdout)[0]["key"], "rados_mon_op_timeout": "60", "client_mount_timeout": "5"}
        client = rados.Rados(conffile=cluster.conf, rados_id=f"of-{profile}", conf=conf)
        try:
            client.connect()
        except rados.Error as e:
            found[profile, "connect"] = e.errno
            continue
        for command in commands():
            errno = client.mon_command(json.dumps(command), b"", timeout=60)[0]
            found[profile, json.dumps(command)] = errno
        client.shutdown()
    return found


def main():
    with RealCeph() as real:
        wanted = answers(real)
    with Cluster() as ours:
        got = answers(ours)
    different = sorted(what for what in wanted.keys() | got.keys() if wanted.get(what) != got.get(what))
    for what in different:
        print(f"{what[0]}: {what[1]}: {wanted.get(what)} of Ceph, {got.get(what)} of ours")
    print(f"{len(wanted)} answers compared, {len(different)} differ")
    return 1 if different else 0


sys.exit(main())
