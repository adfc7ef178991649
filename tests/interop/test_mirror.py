"""RBD mirroring (mirroring.py) between two of our clusters. About 60 s."""
import unittest

from cluster import Cluster
from mirroring import Mirroring


class Mirror(Mirroring, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.a, cls.b = Cluster(), Cluster()
        super().setUpClass()


if __name__ == "__main__":
    unittest.main()
