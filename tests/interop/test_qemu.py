"""qemu-img and qemu-io on `rbd:` (package qemu-block-extra), and fio with its rbd engine: writes
that are read back. About 25 s."""
import json
import os
import pathlib
import tempfile
import unittest

from cluster import Cluster

MIB = 1 << 20


def setUpModule():
    global cluster, tmp
    cluster = Cluster().__enter__()
    tmp = tempfile.TemporaryDirectory()
    cluster.pool("q")
    cluster.run("rbd", "pool", "init", "q")


def tearDownModule():
    tmp.cleanup()
    cluster.__exit__(None, None, None)


def img(*args, check=True):
    return cluster.run("qemu-img", *args, check=check)


def io(image, *commands):
    args = [part for command in commands for part in ("-c", command)]
    return cluster.run("qemu-io", "-f", "raw", *args, uri(image)).stdout.decode()


def uri(image):
    return f"rbd:q/{image}:conf={cluster.conf}"


class Qemu(unittest.TestCase):
    def test_create_write_read(self):
        img("create", "-f", "raw", uri("disk"), "16M")
        info = json.loads(img("info", "--output", "json", uri("disk")).stdout)
        self.assertEqual((info["virtual-size"], info["format"]), (16 * MIB, "raw"))
        out = io("disk", "write -P 0x5a 4k 60k", "write -z 8k 4k", "discard 12M 4M", "flush",
                 "read -P 0x5a 4k 4k", "read -P 0 8k 4k", "read -P 0x5a 12k 52k", "read -P 0 1M 1M")
        self.assertNotIn("failed", out)
        img("resize", "-f", "raw", uri("disk"), "32M")
        io("disk", "write -P 7 31M 1M", "read -P 7 31M 1M", "read -P 0x5a 4k 4k")

    def test_convert_and_compare(self):
        raw = pathlib.Path(tmp.name, "raw")
        raw.write_bytes(os.urandom(5 * MIB) + bytes(3 * MIB))
        img("convert", "-f", "raw", "-O", "raw", str(raw), uri("converted"))
        img("compare", "-f", "raw", "-F", "raw", str(raw), uri("converted"))
        qcow = str(pathlib.Path(tmp.name, "qcow"))
        img("convert", "-f", "raw", "-O", "qcow2", uri("converted"), qcow)
        img("compare", "-f", "qcow2", "-F", "raw", qcow, uri("converted"))
        io("converted", "write -P 1 100 1")
        self.assertEqual(img("compare", "-f", "raw", "-F", "raw", str(raw), uri("converted"),
                             check=False).returncode, 1)

    def test_snapshots(self):
        img("create", "-f", "raw", uri("snapped"), "8M")
        io("snapped", "write -P 1 0 1M")
        img("snapshot", "-c", "s", uri("snapped"))
        io("snapped", "write -P 2 0 1M")
        self.assertIn(" s ", img("snapshot", "-l", uri("snapped")).stdout.decode())
        img("snapshot", "-a", "s", uri("snapped"))
        self.assertNotIn("failed", io("snapped", "read -P 1 0 1M"))
        img("snapshot", "-d", "s", uri("snapped"))


class Fio(unittest.TestCase):
    def test_random_writes_verify(self):
        cluster.run("rbd", "create", "--size", "32M", "q/fio")
        r = cluster.run(
            "fio", "--ioengine=rbd", "--clientname=admin", "--pool=q", "--rbdname=fio",
            "--name=verify", "--rw=randwrite", "--bs=4k", "--size=8M", "--iodepth=32",
            "--verify=crc32c", "--do_verify=1", "--verify_fatal=1", "--output-format=json",
            f"--aux-path={tmp.name}", "--verify_state_save=0", timeout=120)
        job = json.loads(r.stdout[r.stdout.index(b"{"):])["jobs"][0]
        self.assertEqual((job["error"], job["write"]["total_ios"]), (0, 2048))
        self.assertEqual(job["read"]["total_ios"], 2048)


if __name__ == "__main__":
    unittest.main(verbosity=2)
