"""RBD mirroring (mirroring.py) between a real Ceph 16.2, where the images begin, and a cluster of ours. About 100 s."""
import unittest

from cluster import Cluster
from mirroring import Mirroring
from real_ceph import RealCeph


class Mirror(Mirroring, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.a, cls.b = RealCeph(), Cluster()
        super().setUpClass()

    def test_6_a_pool_of_ours(self):
        """Ceph's side is told of it by ours."""
        ceph, ours = self.a, self.b
        for site in (ceph, ours):
            site.cluster.pool("begun")
            site.rbd("pool", "init", "begun")
            site.rbd("mirror", "pool", "enable", "begun", "pool")
        token = ours.rbd("mirror", "pool", "peer", "bootstrap", "create", "begun")
        ceph.rbd("mirror", "pool", "peer", "bootstrap", "import", "--direction", "rx-tx", "begun", "-", input=token)
        ours.rbd("create", "--size", "16M", "--image-feature", "exclusive-lock,journaling", "begun/image")
        ours.rbd("bench", "--io-type", "write", "--io-size", "64K", "--io-total", "1M", "begun/image")
        wanted = ours.contents("image", "begun")
        self.assertTrue(wanted)
        self.wait(lambda: ceph.contents("image", "begun") == wanted, "all of a pool from ours to Ceph")


if __name__ == "__main__":
    unittest.main()
