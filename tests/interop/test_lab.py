"""The laboratory: two backends at tiny sizes; causes add up to what the stores wrote, results are
complete, an interrupted run goes on where it was and leaves nothing, and the report holds its figures. About 25 s."""
import csv
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import xml.dom.minidom

from cluster import LOLIGO

BACKENDS = ["inkstore", "kstore-rocksdb"]
WRITES = ["1ST WRITE", "2ND WRITE", "3RD WRITE", "OVERWRITE"]


class Lab(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="loligo-test-lab-")
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        self.out = pathlib.Path(self.dir, "results")
        self.data = pathlib.Path(self.dir, "data")
        self.data.mkdir()

    def lab(self, *args, check=True, env=None):
        r = subprocess.run([LOLIGO, "lab", *args], capture_output=True, text=True, timeout=240, env=env)
        if check:
            self.assertEqual(r.returncode, 0, r.stdout + r.stderr)
            # Each cluster is removed behind its measurement.
            self.assertEqual(os.listdir(self.data), [])
        return r

    def places(self):
        return ["--out", str(self.out), "--data", str(self.data)]

    def check_sums(self, cell, client):
        self.assertEqual(cell["client_bytes"], client)
        causes = sum(cell["causes"].values())
        self.assertEqual(causes, cell["counters"]["written"])
        self.assertEqual(causes, cell["sum_of_causes"])
        self.assertEqual(cell["causes"]["ceph_data"], 3 * client)
        self.assertAlmostEqual(cell["waf"], causes / client)
        # Files: nobody counts sectors, and nobody guesses them.
        self.assertIsNone(cell["device_bytes"])
        self.assertEqual(cell["causes"]["fs_metadata"] + cell["causes"]["fs_journal"], 0)

    def check_figure(self, name):
        svg = self.out / f"{name}.svg"
        self.assertEqual(xml.dom.minidom.parse(str(svg)).documentElement.tagName, "svg")
        self.assertEqual((self.out / f"{name}.png").read_bytes()[:8], b"\x89PNG\r\n\x1a\n")

    def test_micro_and_longterm(self):
        self.lab("micro", "--backend", "inkstore", "--sizes", "4K", *self.places())
        first = json.loads((self.out / "micro.json").read_text())["cells"]
        self.lab("micro", "--backend", ",".join(BACKENDS), "--sizes", "4K", *self.places())
        cells = json.loads((self.out / "micro.json").read_text())["cells"]
        self.assertEqual({(c["backend"], c["write"]) for c in cells},
                         {(b, w) for b in BACKENDS for w in WRITES})
        self.assertEqual([c for c in cells if c["backend"] == "inkstore"], first, "measured again")
        for cell in cells:
            self.check_sums(cell, 4096)
        with open(self.out / "micro.csv") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual([int(r["sum_of_causes"]) for r in rows], [c["sum_of_causes"] for c in cells])

        load = ["longterm", "--backend", "inkstore", "--size", "2M", "--iodepth", "16", *self.places()]
        said = self.lab(*load).stdout
        self.assertIn("scale: ", said)
        run = json.loads((self.out / "longterm.json").read_text())["runs"]["inkstore"]
        writes = (2 << 20) // 10 * 9 // 4096
        self.assertEqual(run["ops"], writes)
        self.check_sums(run["total"], writes * 4096)
        self.assertLessEqual(sum(s["ops"] for s in run["samples"]), writes)
        self.assertLessEqual(run["latency_median_ms"], run["latency_99_99_ms"])
        other = self.lab(*load, "--seed", "2", check=False)
        self.assertEqual(other.returncode, 1)
        self.assertIn("other conditions", other.stderr)

        for name in ["micro-inkstore", "micro-kstore-rocksdb", "longterm-inkstore", "tradeoff-cpu"]:
            self.check_figure(name)
        page = (self.out / "report.html").read_text()
        # One file: figures are in it, nothing is fetched.
        self.assertGreaterEqual(page.count("<svg"), 3 + 3)
        for outside in ["<script", "<img", "<link", "url("]:
            self.assertNotIn(outside, page)
        for text in ["figure 4", "Table I:", "Machine", "the devices&#39; sectors", "not known", "needs root"]:
            self.assertIn(text.replace("&#39;", "'"), page)

    def test_the_papers_numbers_stand_beside_ours(self):
        self.lab("longterm", "--backend", "kstore-rocksdb", "--size", "1M", "--iodepth", "4", *self.places())
        page = (self.out / "report.html").read_text()
        for number in ["52.572", "65.725", "8861", "2868.00", "more than 20 %", "<h3>Syncs</h3>"]:
            self.assertIn(number, page)

    def test_sweep(self):
        self.lab("sweep", "--backend", "inkstore", "--size", "256K", "--depths", "1,8", *self.places())
        runs = json.loads((self.out / "sweep.json").read_text())["runs"]
        self.assertEqual([r["queue_depth"] for r in runs], [1, 8])
        for run in runs:
            self.check_sums(run["total"], run["ops"] * 4096)
        self.check_figure("sweep-waf")
        # What an image is not: values of omap keys, and objects that come and go.
        self.lab("sweep", "--backend", "inkstore", "--size", "256K", "--patterns", "omap,delete",
                 "--iodepth", "8", "--out", str(self.out / "loads"), "--data", str(self.data))
        runs = json.loads((self.out / "loads" / "sweep.json").read_text())["runs"]
        self.assertEqual([(r["axis"], r["at"]) for r in runs], [("pattern", "omap"), ("pattern", "delete")])
        for run in runs:
            total = run["total"]
            self.assertEqual(sum(total["causes"].values()), total["counters"]["written"])
            self.assertLessEqual(total["causes"]["ceph_data"], 3 * total["client_bytes"])
            whole = run["ops"] * run["request_bytes"]
            if run["pattern"] == "delete":
                # Removals write nothing of the client's; no object goes that was not written.
                self.assertLess(total["client_bytes"], whole)
                self.assertGreaterEqual(total["client_bytes"], whole / 2)
            else:
                self.assertEqual(total["client_bytes"], whole)

    def is_coming_up(self):
        """Whether 'loligo up' is still at work on a cluster of this test."""
        for proc in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = proc.read_bytes().split(b"\0")
            except OSError:
                continue
            if b"up" in words[:2] and any(str(self.data).encode() in word for word in words):
                return True
        return False

    def test_a_run_that_is_cut_leaves_nothing(self):
        for cut in [signal.SIGINT, signal.SIGKILL]:
            args = [LOLIGO, "lab", "longterm", "--backend", "inkstore", "--size", "1G", *self.places()]
            with subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as running:
                deadline = time.monotonic() + 120
                while not list(self.data.glob("lab-*/run/osd.2.pid")) or self.is_coming_up():
                    self.assertIsNone(running.poll())
                    self.assertLess(time.monotonic(), deadline, "no cluster")
                    time.sleep(0.05)
                # What is ended by SIGTERM must not have it blocked: 'loligo down' waited ten seconds for
                # each daemon and killed it, because the laboratory's own signal mask was inherited.
                for pid in self.data.glob("lab-*/run/*.pid"):
                    status = pathlib.Path("/proc", pid.read_text().strip(), "status").read_text()
                    blocked = int(status.split("SigBlk:")[1].split()[0], 16)
                    self.assertEqual(blocked & (1 << (signal.SIGTERM - 1)), 0, pid)
                running.send_signal(cut)
                running.wait(timeout=120)
            if cut == signal.SIGINT:
                self.assertEqual(running.returncode, 130)
                self.assertEqual(os.listdir(self.data), [])
        # Of one that could do nothing any more the next takes care.
        self.assertEqual(len(os.listdir(self.data)), 1)
        said = self.lab("micro", "--backend", "inkstore", "--sizes", "4K", *self.places())
        self.assertIn("ending what is left", said.stdout)

    def test_explain_and_wrong_words(self):
        said = self.lab("explain", "--backend", "inkstore", "--data", str(self.data)).stdout
        self.assertIn("written_pg_log", said)
        self.assertIn("the store's sum", said)
        self.assertIn("not known", said)
        for words in [("micro", "--backend", "nosuch"), ("micro", "--sizes", "8M"), ("report",)]:
            r = self.lab(*words, "--out", str(self.out), check=False)
            self.assertEqual(r.returncode, 1, words)
            self.assertIn("loligo: ", r.stderr)
        # Without Ceph's programs there is nothing to compare with, and that is said.
        r = self.lab("compare", "--with-ceph", *self.places(), check=False, env=dict(os.environ, PATH="/nowhere"))
        self.assertEqual(r.returncode, 1)
        self.assertIn("ceph-osd", r.stderr)
        self.assertIn("not installed", r.stderr)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
