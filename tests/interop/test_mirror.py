"""RBD mirroring (mirroring.py) between two of our clusters. About 60 s."""
import unittest

from cluster import LOLIGO, Cluster
from mirroring import IMAGES, POOL, Mirroring


class Mirror(Mirroring, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.a, cls.b = Cluster(), Cluster()
        super().setUpClass()

    def test_6_a_removed_image_goes_at_both_sides(self):
        """Our own librbd told nobody, and the copy stayed."""
        for image in IMAGES:
            self.b.cluster.run(LOLIGO, "rbd", "rm", f"{POOL}/{image}")
            self.wait(lambda: image not in self.a.rbd("ls", POOL).decode().split(), f"{image} goes, too")
            self.assertNotIn(image, self.b.rbd("ls", POOL).decode().split())


if __name__ == "__main__":
    unittest.main()
