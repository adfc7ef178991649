#!/usr/bin/python3
"""Runs the same commands on a real Ceph 16.2 and on ours and compares: exit codes, the keys of
JSON outputs at every depth, and the words of plain outputs (numbers, ids and times left out).

    tests/interop/compare.py [--verbose] [WORD ...]     only commands that contain all WORDs

Exit code 1 when something differs that is not named in DIFFERENT."""
import json
import re
import socket
import sys

from cluster import Cluster
from real_ceph import RealCeph

# Each line runs on both, in order, once as it stands and once more with -f json if it begins
# with "J ". Lines that begin with "- " are only for their effect.
COMMANDS = """
J ceph status
J ceph health
J ceph health detail
- ceph osd pool create p1 8 8
- ceph osd pool application enable p1 rados
- sleep 6
J ceph status
J ceph df
J ceph df detail
J ceph osd tree
J ceph osd dump
J ceph osd stat
J ceph osd df
J ceph osd df tree
J ceph osd ls
J ceph osd find 0
J ceph osd metadata 0
J ceph osd getmaxosd
J ceph osd lspools
J ceph osd pool ls
J ceph osd pool ls detail
J ceph osd pool get p1 all
J ceph osd pool get p1 size
J ceph osd pool stats
J ceph osd pool get-quota p1
J ceph osd pool application get
J ceph osd map p1 thing
J ceph osd crush rule ls
J ceph osd crush rule dump
J ceph osd crush tree
J ceph osd crush dump
J ceph osd crush class ls
J ceph osd blocklist ls
J ceph osd erasure-code-profile ls
J ceph osd perf
J ceph osd versions
J ceph osd utilization
J ceph osd blocked-by
ceph osd out 2
ceph osd in 2
ceph osd reweight 1 0.9
ceph osd reweight 1 1
ceph osd set noout
J ceph health detail
ceph osd unset noout
ceph osd set bogus
ceph osd pool create p1
ceph osd pool create p2 16
ceph osd pool rename p2 p3
ceph osd pool set p3 size 2
ceph osd pool set p3 min_size 1
ceph osd pool set p3 bogus 1
ceph osd pool set-quota p3 max_objects 10
J ceph osd pool get-quota p3
ceph osd pool mksnap p3 s1
ceph osd pool mksnap p3 s1
ceph osd pool rmsnap p3 s1
ceph osd pool delete p3
ceph osd pool delete p3 p3 --yes-i-really-really-mean-it
ceph osd pool delete p3 p3 --yes-i-really-really-mean-it
ceph osd blocklist add 10.9.8.7:0/123 100
J ceph osd blocklist ls
ceph osd blocklist rm 10.9.8.7:0/123
J ceph auth ls
J ceph auth get client.admin
ceph auth get client.nobody
J ceph auth get-or-create client.t mon 'allow r' osd 'allow rw pool=p1'
ceph auth caps client.t mon 'allow r'
J ceph auth get client.t
ceph auth print-key client.nobody
ceph auth rm client.t
J ceph config set osd.0 osd_max_backfills 3
J ceph config dump
J ceph config get osd.0
J ceph config get osd.0 osd_max_backfills
J ceph config log
J ceph config show osd.0
ceph config rm osd.0 osd_max_backfills
ceph config set osd.0 no_such_option 1
ceph config set osd.0 osd_max_backfills abc
ceph config-key set k v
ceph config-key get k
J ceph config-key ls
J ceph config-key dump
ceph config-key exists nope
ceph config-key get nope
ceph config-key rm k
J ceph mon dump
J ceph mon stat
J ceph mon metadata
J ceph mgr dump
J ceph mgr stat
J ceph mgr metadata
J ceph mgr services
J ceph versions
J ceph features
J ceph fsid
J ceph quorum_status
J ceph node ls
J ceph time-sync-status
J ceph log last 3
J ceph pg stat
J ceph pg dump
J ceph pg dump pgs_brief
J ceph pg dump pools
J ceph pg dump osds
J ceph pg dump sum
J ceph pg ls
J ceph pg ls-by-pool p1
J ceph pg ls-by-osd 0
J ceph pg map 1.0
J ceph pg dump_stuck
J ceph tell osd.0 version
J ceph tell osd.0 config get osd_max_backfills
J ceph tell osd.0 perf dump osd
J ceph tell osd.0 dump_ops_in_flight
J ceph tell osd.0 dump_historic_ops
J ceph tell osd.0 status
J ceph tell mon.a version
J ceph fs ls
J ceph fs dump
J ceph mds stat
J ceph service dump
ceph bogus
ceph osd bogus
ceph osd pool create
ceph osd find 99
ceph osd crush rule dump nope
ceph osd map nopool x
rados -p p1 put obj /etc/hostname
rados -p p1 ls
J rados df
rados lspools
rados -p p1 stat nope
rados -p p1 rm nope
rados -p nopool ls
rados -p p1 setxattr obj a b
rados -p p1 listxattr obj
rados -p p1 getxattr obj a
rados -p p1 setomapval obj k v
rados -p p1 listomapvals obj
rados -p p1 mksnap snap
rados -p p1 lssnap
rados -p p1 listsnaps obj
rados -p p1 rollback obj snap
rados -p p1 rmsnap snap
rados -p p1 lock get obj lk
rados -p p1 lock list obj
rados -p p1 listwatchers obj
"""

# What differs because the two clusters are not the same thing: the device class of their disks,
# the pool and keys that Ceph's manager makes for a module of its own, units of space used, names
# of hosts, containers, compilers and stores.
NOT_COMPARED = {
    "ssd", "hdd", "KiB", "MiB", "GiB", "TiB", "device_health_metrics", "mgr_devicehealth", "pg_num_max",
    "pg_num_min", "devicehealth", "last_scrape", "telemetry", "report_id", "salt", "loligo", "container_name",
    "ddc", "inkstore", "memstore",
}
PATHS_NOT_COMPARED = re.compile(
    r"stats_by_class\.(ssd|hdd)|mgr_devicehealth|options\.pg_num_m|\.mgr/|container_name|device_(ids|paths)$|\.devices$")

# Known differences: the command (without -f json) and what differs. Kept in docs/status.md, too.
DIFFERENT = {
    "ceph status": "fields of modules that our manager does not have",
    "ceph osd find 0": "no container to name",
    "ceph osd metadata 0": "facts about the host and device that we do not collect for OSDs yet",
    "ceph mon metadata": "no compressed messenger frames, so no list of algorithms",
    "ceph mgr metadata": "facts about the host that we do not collect for managers yet",
    "ceph mgr dump": "Python modules, their options and clients: our manager has none",
    "ceph osd pool application get": "keys of pools without an application",
    "ceph osd blocklist ls": "range blocklists are listed in one array, not in a second one",
    "ceph osd set bogus": "other words, same error",
    "ceph osd pool set p3 bogus 1": "other words, same error",
    "ceph config set osd.0 osd_max_backfills 3": "nothing is printed by either",
    "ceph config show osd.0": "daemons do not report their configuration to our manager yet",
    "ceph config-key ls": "keys of modules that our manager does not have",
    "ceph config-key dump": "keys of modules that our manager does not have",
    "ceph log last 3": "our monitor keeps audit lines in the log that it shows by default",
    "ceph pg dump": "ping times of OSDs are not measured",
    "ceph pg dump osds": "ping times of OSDs are not measured",
    "ceph tell osd.0 perf dump osd": "counters of things that we do not do (cache tiers) or do not count yet",
    "ceph bogus": "the list of similar commands is made of our commands",
    "ceph osd bogus": "the list of similar commands is made of our commands",
}

# Parts of JSON whose keys are data: compared by the shape of their first value.
KEYS_ARE_DATA = re.compile(r"^(\d.*|osd\.\d+|client\..*|[0-9a-f-]{36}|.*ceph version.*|p\d|v[12]:.*|.*:.*/\d+)$")


def shape(value, path=""):
    """The set of key paths of a JSON value; list elements and data keys fold into one."""
    out = set()
    if isinstance(value, dict):
        for k, v in value.items():
            key = "*" if KEYS_ARE_DATA.match(k) else k
            out.add(f"{path}.{key}")
            out |= shape(v, f"{path}.{key}")
    elif isinstance(value, list):
        for v in value:
            out |= shape(v, f"{path}[]")
    return out


def words(text):
    """Words of a plain output without what belongs to one cluster."""
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}|[A-Za-z0-9+/]{38}==", " ", text)
    return set(re.findall(r"[A-Za-z_][A-Za-z_-]{2,}", text))


def run(cluster, line, as_json):
    import shlex
    args = shlex.split(line) + (["--format=json"] if as_json else [])
    r = cluster.run(*args, check=False, timeout=40)
    return r.returncode, r.stdout.decode(errors="replace"), r.stderr.decode(errors="replace")


def compare(ours, real, as_json):
    """Differences between two results, one line each."""
    out = []
    if ours[0] != real[0]:
        out.append(f"exit code {ours[0]}, real {real[0]}: {ours[2].strip()[:200]!r}, real {real[2].strip()[:200]!r}")
        return out
    if as_json:
        try:
            mine, theirs = (shape(json.loads(x[1] or "null")) for x in (ours, real))
        except ValueError:
            return [f"not JSON: {ours[1][:100]!r}, real {real[1][:100]!r}"] if real[1].strip()[:1] in "[{" else []
        out += [f"missing {p}" for p in sorted(theirs - mine) if not PATHS_NOT_COMPARED.search(p)]
        out += [f"extra {p}" for p in sorted(mine - theirs) if not PATHS_NOT_COMPARED.search(p)]
    else:
        mine, theirs = words(ours[1] + ours[2]), words(real[1] + real[2])
        hosts = {socket.gethostname(), socket.gethostname().split(".")[0]}
        mine, theirs = mine - NOT_COMPARED - hosts, theirs - NOT_COMPARED - hosts
        if theirs - mine:
            out.append("words missing: " + " ".join(sorted(theirs - mine))[:300])
        if mine - theirs:
            out.append("words extra: " + " ".join(sorted(mine - theirs))[:300])
    return out


def main():
    verbose = "--verbose" in sys.argv
    wanted = [a for a in sys.argv[1:] if not a.startswith("--")]
    bad = known = total = 0
    with RealCeph() as real, Cluster() as ours:
        for line in filter(None, COMMANDS.splitlines()):
            quiet, both = line.startswith("- "), line.startswith("J ")
            line = line[2:] if quiet or both else line
            for as_json in ([False, True] if both else [False]):
                results = []
                for cluster in (ours, real):
                    try:
                        results.append(run(cluster, line, as_json))
                    except Exception as e:  # a hang is a difference, not the end of the run
                        results.append((124, "", f"{type(e).__name__}"))
                if quiet or not all(w in line for w in wanted):
                    continue
                total += 1
                differences = compare(results[0], results[1], as_json)
                if differences and line in DIFFERENT:
                    known += 1
                    print(f"known: {line}: {DIFFERENT[line]}")
                elif differences:
                    bad += 1
                    print(f"DIFFERS {line}{' (json)' if as_json else ''}")
                    for d in differences[:12]:
                        print("   ", d)
                    if verbose:
                        print("    ours:", results[0], "\n    real:", results[1])
                sys.stdout.flush()
    print(f"{known} known differences")
    print(f"{total - bad} passed, {bad} failed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
