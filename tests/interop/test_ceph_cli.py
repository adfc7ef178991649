"""Debian's `ceph` 16.2 against our monitor and manager: what changes the cluster changes it, and
what is wrong is said as Ceph says it. (Outputs beside a real Ceph's: compare.py.)"""
import json
import subprocess
import tempfile
import os
import time
import unittest

from cluster import Cluster


def setUpModule():
    global c
    c = Cluster().__enter__()
    c.pool("p")


def tearDownModule():
    c.__exit__(None, None, None)


class Ceph(unittest.TestCase):
    def fails(self, rc, *args):
        r = c.run("ceph", *args, check=False)
        self.assertEqual(r.returncode, rc, r.stderr)
        return r.stderr.decode()

    def test_status_is_true(self):
        s = c.json("status")
        self.assertEqual((s["osdmap"]["num_osds"], s["osdmap"]["num_up_osds"], s["osdmap"]["num_in_osds"]), (3, 3, 3))
        self.assertEqual(s["quorum_names"], ["a"])
        self.assertTrue(s["mgrmap"]["available"])
        text = c.ceph("-s")
        for word in ("health:", "mon: 1 daemons, quorum a", "mgr: x(active", "osd: 3 osds: 3 up", "pools:", "pgs:"):
            self.assertIn(word, text)

    def test_statistics_are_true(self):
        data = os.urandom(1 << 20)
        for i in range(5):
            c.run("rados", "-p", "p", "put", f"stat{i}", "-", input=data)

        def pool():
            return next(x for x in c.json("df")["pools"] if x["name"] == "p")["stats"]
        c.wait(lambda: pool()["objects"] == 5 and pool()["stored"] == 5 << 20, what="ceph df counts 5 MiB")
        for i in range(5):
            c.run("rados", "-p", "p", "rm", f"stat{i}")
        c.wait(lambda: pool()["objects"] == 0, what="ceph df counts nothing")

    def test_pools(self):
        c.ceph("osd", "pool", "create", "made", "16")
        self.assertIn("made", c.ceph("osd", "pool", "ls").split())
        self.assertEqual(c.json("osd", "pool", "get", "made", "pg_num")["pg_num"], 16)
        c.ceph("osd", "pool", "set", "made", "size", "2")
        self.assertEqual(c.json("osd", "pool", "get", "made", "size")["size"], 2)
        c.ceph("osd", "pool", "rename", "made", "named")
        self.assertIn("named", c.json("osd", "pool", "ls"))
        self.fails(1, "osd", "pool", "delete", "named")
        c.ceph("osd", "pool", "delete", "named", "named", "--yes-i-really-really-mean-it")
        self.assertNotIn("named", c.json("osd", "pool", "ls"))
        self.fails(2, "osd", "pool", "get", "named", "size")
        self.fails(22, "osd", "pool", "set", "p", "no_such_key", "1")

    def test_quota(self):
        c.pool("small")
        c.ceph("osd", "pool", "set-quota", "small", "max_objects", "3")
        self.assertEqual(c.json("osd", "pool", "get-quota", "small")["quota_max_objects"], 3)
        for i in range(4):
            c.run("rados", "-p", "small", "put", f"q{i}", "/etc/hostname", timeout=20)

        def full():
            return "POOL_FULL" in c.json("health")["checks"]
        c.wait(full, 30, "the pool is full")
        c.ceph("osd", "pool", "set-quota", "small", "max_objects", "0")
        c.wait(lambda: not full(), 30, "the pool is not full")

    def test_fullness_is_told(self):
        """Ratios that contradict each other were taken without a word, and an OSD could not be told
        to pretend that it is full."""
        def checks():
            return c.json("health")["checks"]
        c.ceph("osd", "set-nearfull-ratio", ".913")
        self.assertIn("OSD_OUT_OF_ORDER_FULL", checks())
        self.assertIn("backfillfull_ratio (0.9) < nearfull_ratio (0.913), increased", c.ceph("health", "detail"))
        c.ceph("osd", "set-nearfull-ratio", ".85")
        self.assertNotIn("OSD_OUT_OF_ORDER_FULL", checks())
        for step, check, words in (("nearfull", "OSD_NEARFULL", "near full"),
                                   ("backfillfull", "OSD_BACKFILLFULL", "backfill full"),
                                   ("failsafe", "OSD_FULL", "full")):
            c.ceph("tell", "osd.0", "injectfull", step)
            c.wait(lambda: check in checks(), 30, check)
            self.assertIn(f"osd.0 is {words}", c.ceph("health", "detail"))
            c.ceph("tell", "osd.0", "injectfull", "none")
            c.wait(lambda: check not in checks(), 30, f"no {check}")

    def test_osd_out_in_reweight(self):
        c.ceph("osd", "out", "2")
        self.assertEqual(c.json("osd", "dump")["osds"][2]["in"], 0)
        c.ceph("osd", "in", "2")
        c.ceph("osd", "reweight", "2", "0.5")
        self.assertAlmostEqual(c.json("osd", "dump")["osds"][2]["weight"], 0.5, places=3)
        c.ceph("osd", "reweight", "2", "1")
        c.wait_clean()

    def test_flags(self):
        for flag in ("noup", "nodown", "noout", "noin", "nobackfill", "norebalance", "norecover", "noscrub", "nodeep-scrub", "pause"):
            c.ceph("osd", "set", flag)
        self.assertIn("noout", c.json("osd", "dump")["flags"])
        self.assertIn("OSDMAP_FLAGS", c.json("health")["checks"])
        for flag in ("noup", "nodown", "noout", "noin", "nobackfill", "norebalance", "norecover", "noscrub", "nodeep-scrub", "pause"):
            c.ceph("osd", "unset", flag)
        self.fails(22, "osd", "set", "nonsense")

    def test_auth(self):
        text = c.ceph("auth", "get-or-create", "client.t", "mon", "allow r")
        key = text.split("key = ")[1].split()[0]
        self.assertEqual(c.ceph("auth", "print-key", "client.t"), key)
        c.ceph("auth", "caps", "client.t", "mon", "allow rw")
        self.assertEqual(c.json("auth", "get", "client.t")[0]["caps"]["mon"], "allow rw")
        c.ceph("auth", "rm", "client.t")
        self.fails(2, "auth", "get", "client.t")
        self.fails(22, "auth", "get-or-create", "client.t2", "mon", "allow nonsense")

    def test_config(self):
        c.ceph("config", "set", "osd", "osd_max_backfills", "7")
        c.wait(lambda: c.json("tell", "osd.0", "config", "get", "osd_max_backfills")["osd_max_backfills"] == "7", 10, "the OSD has the option")
        self.assertEqual(c.ceph("config", "get", "osd.1", "osd_max_backfills").strip(), "7")
        self.assertIn("osd_max_backfills", c.ceph("config", "dump"))
        c.ceph("config", "rm", "osd", "osd_max_backfills")
        self.fails(22, "config", "set", "osd", "no_such_option", "1")
        self.fails(22, "config", "set", "osd", "osd_max_backfills", "many")

    def test_config_key(self):
        c.ceph("config-key", "set", "a/b", "value")
        self.assertEqual(c.ceph("config-key", "get", "a/b").strip(), "value")
        self.assertIn("a/b", c.json("config-key", "ls"))
        c.ceph("config-key", "rm", "a/b")
        self.fails(2, "config-key", "get", "a/b")

    def test_crush(self):
        c.ceph("osd", "crush", "rule", "create-replicated", "r1", "default", "osd")
        self.assertIn("r1", c.json("osd", "crush", "rule", "ls"))
        c.ceph("osd", "crush", "rule", "rm", "r1")
        c.ceph("osd", "crush", "add-bucket", "rack1", "rack")
        c.ceph("osd", "crush", "move", "rack1", "root=default")
        self.assertIn("rack1", c.ceph("osd", "tree"))
        c.ceph("osd", "crush", "rm", "rack1")
        c.run("ceph", "osd", "getcrushmap", "-o", f"{c.dir}/crush")
        c.run("crushtool", "-d", f"{c.dir}/crush", "-o", f"{c.dir}/crush.txt")
        c.run("ceph", "osd", "setcrushmap", "-i", f"{c.dir}/crush")

    def test_maps_are_ceph_maps(self):
        c.run("ceph", "osd", "getmap", "-o", f"{c.dir}/osdmap")
        r = c.run("osdmaptool", f"{c.dir}/osdmap", "--print")
        self.assertRegex(r.stdout, rb"osd\.2 up +in")
        c.run("ceph", "mon", "getmap", "-o", f"{c.dir}/monmap")
        self.assertIn(b"mon.a", c.run("monmaptool", "--print", f"{c.dir}/monmap").stdout)

    def test_placement_is_ceph_placement(self):
        c.run("ceph", "osd", "getmap", "-o", f"{c.dir}/osdmap")
        pool = next(p["pool"] for p in c.json("osd", "dump")["pools"] if p["pool_name"] == "p")
        for name in ("a", "b", "some longer name"):
            ours = c.json("osd", "map", "p", name)
            theirs = c.run("osdmaptool", f"{c.dir}/osdmap", "--test-map-object", name, "--pool", str(pool)).stdout.decode()
            self.assertIn(str(ours["acting"]).replace(" ", ""), theirs.replace(" ", ""))

    def test_blocklist(self):
        c.ceph("osd", "blocklist", "add", "1.2.3.4:0/5", "100")
        self.assertIn("1.2.3.4:0/5", c.ceph("osd", "blocklist", "ls"))
        c.ceph("osd", "blocklist", "rm", "1.2.3.4:0/5")

    def test_tell_and_daemon(self):
        self.assertIn("version", c.json("tell", "osd.0", "version"))
        self.assertIn("bytes_per_sec", c.json("tell", "osd.0", "bench", "1048576", "4096"))
        self.assertIn("ops", c.json("tell", "osd.0", "dump_ops_in_flight"))
        self.assertIn("version", c.json("tell", "mon.a", "version"))
        self.assertIn("osd", c.json("tell", "osd.1", "perf", "dump"))
        self.assertIn("elapsed_time", c.json("tell", "osd.1", "compact"))
        # Each state's parts; PGs went through some to be active.
        states = c.json("tell", "osd.0", "dump_pg_recovery_stats")
        self.assertTrue(any("Primary" in s["nested_states"] and s["exit"] > 0 for s in states), states)
        c.ceph("tell", "osd.0", "cluster_log", "warning", "a", "word", "from", "an", "operator")
        c.wait(lambda: "a word from an operator" in c.ceph("log", "last", "50"), 20, "the line in the log")
        if c.dir:
            self.assertIn("version", c.json("daemon", "osd.2", "version"))
            self.assertIn("version", c.json("daemon", "mon.a", "version"))

    def test_log_and_watch(self):
        w = subprocess.Popen(["ceph", "-w"], stdout=subprocess.PIPE, env=dict(os.environ, CEPH_CONF=c.conf))
        time.sleep(1.5)
        c.ceph("log", "a line for the log")
        time.sleep(1.5)
        w.kill()
        self.assertIn(b"a line for the log", w.communicate()[0])
        self.assertIn("a line for the log", c.ceph("log", "last", "20"))

    def test_a_crush_map_sent_again_is_taken_once(self):
        # Who lost the answer sends the map again with the version it was made from; that was an error.
        with tempfile.NamedTemporaryFile() as f:
            version = int(c.run("ceph", "osd", "getcrushmap", "-o", f.name).stderr.split()[-1])
            for _ in range(2):
                r = c.run("ceph", "osd", "setcrushmap", str(version), "-i", f.name)
                self.assertEqual(int(r.stderr.split()[-1]), version + 1)
            self.fails(1, "osd", "setcrushmap", str(version + 7), "-i", f.name)

    def test_switches_are_turned_off_by_injectargs(self):
        # `--no-` before a switch's name was taken for a part of the name.
        get = ("tell", "osd.0", "config", "get", "osd_enable_op_tracker")
        for args, value in (("--no-osd_enable_op_tracker", "false"), ("--osd_enable_op_tracker", "true")):
            c.ceph("tell", "osd.0", "injectargs", "--", args)
            self.assertEqual(c.json(*get), {"osd_enable_op_tracker": value})
        self.fails(22, "tell", "osd.0", "injectargs", "--", "--no-osd_max_backfills")

    def test_commands_to_one_monitor_are_audited(self):
        # They left no trace in the audit log.
        c.ceph("tell", "mon.a", "sessions")
        def logged():
            text = c.ceph("log", "last", "50", "debug", "audit")
            return "cmd='sessions' args=[]: dispatch" in text and "cmd='sessions' args=[]: finished" in text
        c.wait(logged, 10, "audit lines")

    def test_unscrubbed_pools_are_told(self):
        # They were told nowhere; and they are no reason to warn.
        c.pool("unscrubbed")
        before = c.json("health")["status"]
        c.ceph("osd", "pool", "set", "unscrubbed", "noscrub", "1")
        check = c.json("health", "detail")["checks"]["POOL_SCRUB_FLAGS"]
        self.assertEqual(check["severity"], "HEALTH_OK")
        self.assertEqual(check["summary"]["message"], "Some pool(s) have the noscrub flag(s) set")
        self.assertEqual([d["message"] for d in check["detail"]], ["Pool unscrubbed has noscrub flag"])
        self.assertEqual(c.json("health")["status"], before)
        c.ceph("osd", "pool", "set", "unscrubbed", "noscrub", "0")
        self.assertNotIn("POOL_SCRUB_FLAGS", c.json("health")["checks"])

    def test_unknown_and_incomplete_commands(self):
        self.assertIn("no valid command found", self.fails(22, "nonsense"))
        self.fails(22, "osd", "pool", "create")
        self.fails(2, "osd", "find", "99")

    def test_help(self):
        text = c.ceph("--help")
        for line in ("osd pool create", "auth get-or-create", "config set", "pg dump"):
            self.assertIn(line, text)

    def test_a_new_osd_is_created_and_purged(self):
        new = c.ceph("osd", "new", "11111111-2222-3333-4444-555555555555").strip()
        self.assertEqual(new, "3")
        # "Created" again with the secrets it has; with others it would have been given a second key
        # behind the back of who runs it, and refused secrets used to leave an OSD behind.
        uuid = "11111111-2222-3333-4444-555555555555"
        secrets = [json.dumps({"cephx_secret": c.run("ceph-authtool", "--gen-print-key").stdout.decode().strip()}).encode() for _ in range(2)]
        self.assertIn("EEXIST", c.run("ceph", "osd", "new", uuid, "-i", "-", input=secrets[0], check=False).stderr.decode())
        c.ceph("osd", "purge", new, "--yes-i-really-mean-it")
        for input in (b'{"cephx_lockbox_secret": "x"}', b"no json"):
            self.assertEqual(c.run("ceph", "osd", "new", uuid, "-i", "-", input=input, check=False).returncode, 22)
        self.assertEqual(c.json("osd", "ls"), [0, 1, 2])
        for _ in range(2):
            self.assertEqual(c.ceph("osd", "new", uuid, "-i", "-", input=secrets[0]).strip(), new)
        self.assertIn("EEXIST", c.run("ceph", "osd", "new", uuid, "-i", "-", input=secrets[1], check=False).stderr.decode())
        c.ceph("osd", "destroy", new, "--yes-i-really-mean-it")
        c.ceph("osd", "purge", new, "--yes-i-really-mean-it")
        self.assertEqual(c.json("osd", "ls"), [0, 1, 2])


if __name__ == "__main__":
    unittest.main(verbosity=2)
