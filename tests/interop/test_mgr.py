#!/usr/bin/python3
"""What the manager does of itself and for operators: configurations, the balancer, the autoscaler, crash
reports, metrics. About 25 s."""
import ast
import datetime
import hashlib
import json
import re
import socket
import unittest
import urllib.error
import urllib.request

from cluster import Cluster, free_port


class Manager(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(osds=5, size=2, osd_size="1G").__enter__()
        cls.cluster.pool("p", 64)

    @classmethod
    def tearDownClass(cls):
        cls.cluster.__exit__(None, None, None)

    def pgs_by_osd(self):
        counts = {}
        for pg in self.cluster.json("pg", "dump", "pgs_brief")["pg_stats"]:
            for osd in pg["up"]:
                counts[osd] = counts.get(osd, 0) + 1
        return counts

    def test_daemons_report_their_configuration(self):
        c = self.cluster
        shown = {o["name"]: o for o in c.json("config", "show", "osd.0")}
        self.assertEqual(shown["osd_objectstore"]["source"], "file")
        c.ceph("config", "set", "osd", "osd_max_backfills", "7")

        def told():
            return c.ceph("config", "show", "osd.3", "osd_max_backfills").strip() == "7"
        c.wait(told, 20, "osd.3 tells its new setting")
        shown = {o["name"]: o for o in c.json("config", "show", "osd.3")}
        self.assertEqual(shown["osd_max_backfills"]["source"], "mon")
        self.assertIn("fsid", {o["name"] for o in c.json("config", "show", "mgr.x")})

    def test_metadata_names_the_machine(self):
        for facts in (self.cluster.json("osd", "metadata", "0"), self.cluster.json("mgr", "metadata")[0]):
            for fact in ("kernel_version", "distro", "cpu", "mem_total_kb", "arch", "hostname"):
                self.assertTrue(facts.get(fact), fact)

    def test_the_autoscaler_gives_pools_what_they_should_have(self):
        """It recommended and did nothing."""
        c = self.cluster
        c.ceph("config", "set", "mgr", "mgr/pg_autoscaler/sleep_interval", "1")
        for name, pgs in (("few", "1"), ("many", "16"), ("told", "16"), ("left", "16")):
            c.ceph("osd", "pool", "create", name, pgs, pgs, "--autoscale-mode=off")
            c.ceph("osd", "pool", "set", name, "pg_num_min", "1")
        c.wait_clean()
        row = lambda name: next(p for p in c.json("osd", "pool", "autoscale-status") if p["pool_name"] == name)
        self.assertEqual((row("many")["pg_num_final"], row("many")["would_adjust"]), (1, False))
        c.ceph("osd", "pool", "set", "few", "target_size_ratio", "0.5")
        self.assertEqual(row("few")["effective_target_ratio"], 1)
        c.ceph("osd", "pool", "set", "few", "pg_num_max", "8")
        c.ceph("osd", "pool", "set", "many", "pg_num_min", "4")
        c.ceph("osd", "pool", "set", "told", "pg_autoscale_mode", "warn")

        def warned():
            check = c.json("health", "detail")["checks"].get("POOL_TOO_MANY_PGS")
            return check and [d["message"] for d in check["detail"]] == [
                "Pool told has 16 placement groups, should have 1"]
        c.wait(warned, 30, "a warning of the pool that wants one")
        for name in ("few", "many"):
            c.ceph("osd", "pool", "set", name, "pg_autoscale_mode", "on")
        pg_num = lambda name: c.json("osd", "pool", "get", name, "pg_num")["pg_num"]
        c.wait(lambda: pg_num("few") == 8, 90, "the pool that is expected to be large grows")
        c.wait(lambda: pg_num("many") == 4, 120, "the pool with too many shrinks")
        self.assertEqual((pg_num("told"), pg_num("left")), (16, 16))
        # What it did is to be seen, and over in the end.
        ids = {p["pool_name"]: p["pool_id"] for p in c.json("osd", "pool", "ls", "detail")}

        def told(name, how):
            return [e["refs"] for e in json.loads(c.ceph("progress", "json"))["completed"]
                    if re.fullmatch(f"PG autoscaler {how[0]} pool {ids[name]} PGs from \\d+ to {how[1]}", e["message"])]
        for name, how in (("few", ("increasing", 8)), ("many", ("decreasing", 4))):
            c.wait(lambda: [["pool", ids[name]]] in told(name, how), 20, f"the event of {name} is over")
        c.ceph("osd", "pool", "set", "noautoscale")
        c.wait(lambda: row("few")["pg_autoscale_mode"] == "off", 20, "all pools are left alone")
        for name in ("few", "many", "told", "left"):
            c.ceph("osd", "pool", "delete", name, name, "--yes-i-really-really-mean-it")

    def test_the_balancer_evens_out_pgs(self):
        c = self.cluster
        c.ceph("config", "set", "mgr", "mgr/balancer/upmap_max_deviation", "1")
        # While it acts by itself it was overridden by hand all the same.
        for words in (["optimize", "beside"], ["execute", "beside"]):
            refused = c.run("ceph", "balancer", *words, check=False)
            self.assertEqual((refused.returncode, b"Balancer enabled, disable to" in refused.stderr), (22, True), words)
        c.ceph("balancer", "off")
        self.assertFalse(c.json("balancer", "status")["active"])
        spread = lambda: max(self.pgs_by_osd().values()) - min(self.pgs_by_osd().values())
        before = spread()
        self.assertGreater(before, 4, "the placement of this pool is uneven")
        score = lambda *plan: float(re.search(r"score ([\d.]+)", c.ceph("balancer", "eval", *plan)).group(1))
        first = score()
        c.ceph("config", "set", "mgr", "mgr/balancer/upmap_max_optimizations", "100")
        c.wait(lambda: c.run("ceph", "balancer", "optimize", "even", check=False).returncode == 0, 10, "a plan")
        self.assertIn("ceph osd pg-upmap-items 1.", c.ceph("balancer", "show", "even"))
        # Neither was there: what the plan is to the map, and what the score comes from.
        moves = c.json("balancer", "dump", "even")["new_pg_upmap_items"]
        self.assertTrue(moves and all(move["pgid"].startswith("1.") and move["mappings"] for move in moves), moves)
        verbose = c.ceph("balancer", "eval-verbose", "even").splitlines()
        self.assertIn(f"score {score('even'):.6f}", verbose[-1])
        counted = dict(line.split(" ", 1) for line in verbose[1:-1])
        self.assertEqual(set(ast.literal_eval(counted["count_by_root"])["default"]["pgs"]), set(range(5)))
        self.assertLess(score("even"), first)
        c.ceph("balancer", "execute", "even")
        c.wait(lambda: spread() <= 2, 20, "PGs lie evenly")
        self.assertLess(score(), first)
        c.wait_clean()
        again = c.run("ceph", "balancer", "optimize", "more", check=False)
        self.assertIn(b"already perfect", again.stderr)
        status = c.json("balancer", "status")
        self.assertTrue(status["no_optimization_needed"] and "already perfect" in status["optimize_result"], status)
        self.assertEqual(c.json("balancer", "ls"), [])

    def test_progress(self):
        """It said that nothing was in progress, whatever was."""
        c = self.cluster
        c.ceph("config", "set", "mgr", "mgr/progress/sleep_interval", "0")
        c.pool("moved", 16)
        c.wait_clean()
        c.run("rados", "bench", "-p", "moved", "2", "write", "-b", "4096", "--no-cleanup")
        over = lambda: {e["message"]: e for e in c.json("progress", "json")["completed"]}
        c.ceph("osd", "out", "4")
        c.wait(lambda: "Rebalancing after osd.4 marked out" in over(), 60, "the PGs of osd.4 are elsewhere")
        c.ceph("osd", "in", "4")
        c.wait(lambda: "Rebalancing after osd.4 marked in" in over(), 60, "they are back")
        self.assertEqual(over()["Rebalancing after osd.4 marked in"]["refs"], [["osd", 4]])
        c.wait(lambda: not c.json("progress", "json")["events"], 60, "nothing goes on")
        self.assertIn("[Complete]: Rebalancing after osd.4 marked out (", c.ceph("progress"))
        c.pool("images", 8)
        c.run("rbd", "pool", "init", "images")
        c.run("rbd", "create", "--size", "10M", "images/a")
        task = c.json("rbd", "task", "add", "remove", "images/a")
        c.wait(lambda: task["message"] in over(), 60, "the image is removed")
        done = over()[task["message"]]
        self.assertEqual((done["id"], done["refs"]), (task["id"], task["refs"] | {"origin": "rbd_support"}))
        kept = json.loads(c.ceph("config-key", "get", "mgr/progress/completed"))
        self.assertEqual(kept["version"], 2)
        c.ceph("progress", "clear")
        self.assertEqual(c.json("progress", "json"), {"completed": [], "events": []})
        c.ceph("osd", "pool", "rm", "moved", "moved", "--yes-i-really-really-mean-it")
        c.ceph("osd", "pool", "rm", "images", "images", "--yes-i-really-really-mean-it")

    def test_crash_reports(self):
        c = self.cluster
        at = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        report = {"crash_id": f"{at}_test", "timestamp": at, "entity_name": "osd.9", "utsname_hostname": "there",
                  "backtrace": ["one", "two"]}
        c.run("ceph", "crash", "post", "-i", "-", input=json.dumps(report).encode())
        # Of "n" and "w", what Ceph's module takes for the functions.
        report["stack_sig"] = hashlib.sha256(b"nw").hexdigest()
        self.assertEqual(json.loads(c.ceph("crash", "info", report["crash_id"])), report)
        self.assertIn("osd.9", c.ceph("crash", "ls-new"))
        self.assertEqual(len(c.json("crash", "ls")), 1)
        c.wait(lambda: "RECENT_CRASH" in c.json("health")["checks"], 10, "health tells of the crash")
        c.ceph("crash", "archive-all")
        self.assertEqual(c.ceph("crash", "ls-new").strip(), "")
        c.wait(lambda: "RECENT_CRASH" not in c.json("health")["checks"], 10, "health forgets the crash")
        c.ceph("crash", "rm", report["crash_id"])
        self.assertEqual(c.ceph("crash", "stat").strip(), "0 crashes recorded")
        bad = c.run("ceph", "crash", "post", "-i", "-", input=b"{}", check=False)
        # Refused with a positive number, which the tool does not call an error.
        self.assertEqual((bad.returncode, b"malformed crash metadata" in bad.stderr), (0, True))

    def test_every_daemon_tells_its_counters(self):
        """collectd asks each admin socket for its version first, and gave monitors up: they did not know the command."""
        c = self.cluster
        for daemon, group in (("osd.0", "osd"), ("mon.a", "mon"), ("mgr.x", "mgr")):
            with socket.socket(socket.AF_UNIX) as asok:
                asok.connect(f"{c.dir}/run/{daemon}.asok")
                asok.sendall(b'{"prefix":"0"}\0')
                self.assertEqual(asok.makefile("rb").read(), b"\0\0\0\x012")
            ask = lambda *words: json.loads(c.run("ceph", "daemon", f"{c.dir}/run/{daemon}.asok", "perf", *words).stdout)
            dump, schema = ask("dump"), ask("schema")
            self.assertEqual({g: set(of) for g, of in dump.items()}, {g: set(of) for g, of in schema.items()})
            self.assertEqual(set(ask("dump", group)), {group})
            self.assertEqual(ask("reset", group), {"success": f"perf reset {group}"})

    def test_metrics(self):
        c = self.cluster
        port = free_port()
        url = f"http://127.0.0.1:{port}/"
        c.ceph("config", "set", "mgr", "mgr/prometheus/server_port", str(port))
        c.ceph("mgr", "module", "enable", "prometheus")
        c.wait(lambda: c.json("mgr", "services").get("prometheus") == url, 10, "the service is announced")
        page = urllib.request.urlopen(url + "metrics", timeout=5).read().decode()
        line = re.compile(r'^[a-z_:0-9A-Z]+(\{[a-z_]+="[^"]*"(,[a-z_]+="[^"]*")*\})? -?[\d.e+-]+$')
        for text in filter(lambda t: t and not t.startswith("#"), page.splitlines()):
            self.assertRegex(text, line)
        for sample in ('ceph_osd_up{ceph_daemon="osd.4"} 1.0', 'ceph_pg_total{pool_id="1"} 64.0',
                       'ceph_pool_metadata{pool_id="1",name="p",type="replicated",description="replica:2",compression_mode="none"} 1.0',
                       '# TYPE ceph_pool_wr_bytes counter', '# TYPE ceph_pool_stored gauge',
                       'ceph_mon_quorum_status{ceph_daemon="mon.a"} 1.0'):
            self.assertIn(sample, page)
        # What dashboards of Ceph draw: times of OSDs' operations, monitors' counters, where daemons run.
        for name in ("osd_op_w_latency_count", "osd_op_r_process_latency_sum", "osd_op_rw", "osd_commit_latency_ms", "pg_unknown",
                     "mon_num_sessions", "paxos_commit_latency_count", "pool_recovering_objects_per_sec", "mgr_module_status",
                     "daemon_health_metrics", "healthcheck_slow_ops"):
            self.assertRegex(page, f"(?m)^ceph_{name}[ {{]")
        self.assertRegex(page, f'ceph_osd_metadata{{[^}}]*ceph_daemon="osd.4"[^}}]*hostname="{socket.gethostname()}",objectstore="inkstore"')
        with self.assertRaises(urllib.error.HTTPError):
            urllib.request.urlopen(url + "nothing", timeout=5)
        c.ceph("mgr", "module", "disable", "prometheus")

        def gone():
            try:
                urllib.request.urlopen(url + "metrics", timeout=1)
            except urllib.error.URLError:
                return True
            return False
        c.wait(gone, 10, "nobody listens any more")


if __name__ == "__main__":
    unittest.main(verbosity=2)
