# SPDX-License-Identifier: BSD-3-Clause
"""The demand generators of the examples."""
import os
import tempfile
import unittest

import torch_demand as demand

NAMES = ("balanced", "mild", "hot", "hot:0.5", "moving", "burst", "zipf:1.2", "lognormal", "lognormal:0.5")


class Demand(unittest.TestCase):
    def test_shares_sum_to_one_and_repeat(self):
        for name in NAMES:
            for step in (0, 1, 9):
                shares = demand.popularity(name, 16, 3, step)
                self.assertEqual(len(shares), 16)
                self.assertAlmostEqual(sum(shares), 1)
                self.assertGreaterEqual(min(shares), 0)
                self.assertEqual(shares, demand.popularity(name, 16, 3, step))

    def test_hot_expert(self):
        shares = demand.popularity("hot:0.7", 8, 2)
        self.assertAlmostEqual(shares[2], 0.7 + 0.3 / 8)
        self.assertAlmostEqual(shares[0], 0.3 / 8)

    def test_hot_spot_moves(self):
        places = [max(range(8), key=demand.popularity("moving", 8, 1, step).__getitem__) for step in range(9)]
        self.assertEqual(places, [1, 2, 3, 4, 5, 6, 7, 0, 1])

    def test_burst_comes_and_goes(self):
        hot = [max(demand.popularity("burst", 8, 0, step)) > 0.5 for step in range(17)]
        self.assertEqual([step for step, is_hot in enumerate(hot) if is_hot], [0, 8, 16])

    def test_mild_is_mild(self):
        shares = demand.popularity("mild", 8, 5)
        self.assertAlmostEqual(max(shares) / min(shares), 2)

    def test_seed_matters(self):
        for name in ("mild", "zipf", "lognormal"):
            self.assertNotEqual(demand.popularity(name, 16, 1), demand.popularity(name, 16, 2))

    def test_division_is_complete(self):
        for total in (0, 1, 7, 4096):
            for row in demand.matrix("lognormal", 8, total, seed=4):
                self.assertEqual(sum(row), total)
                self.assertGreaterEqual(min(row), 0)

    def test_matrix_of_nccl_tests(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "matrix")
            with open(path, "w", encoding="utf-8") as out:
                out.write("# bytes\n1, 2\n3 4 # row 1\n")
            self.assertEqual(demand.read_matrix(path, 2, 1000), [[1000, 2000], [3000, 4000]])
            with self.assertRaisesRegex(ValueError, "3 rows"):
                demand.read_matrix(path, 3)

    def test_table_of_loads(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "loads")
            with open(path, "w", encoding="utf-8") as out:
                out.write("[[ 90, 10],\n [ 20, 60]]\n")
            self.assertEqual(demand.popularity(f"file:{path}", 2), [0.9, 0.1])
            self.assertEqual(demand.popularity(f"file:{path}", 2, step=1), [0.25, 0.75])
            self.assertEqual(demand.popularity(f"file:{path}:1", 2), [0.25, 0.75])
            with self.assertRaisesRegex(ValueError, "loads of 2 experts"):
                demand.popularity(f"file:{path}", 3)
            with open(path, "w", encoding="utf-8") as out:
                out.write("1 2\n3 x\n")
            with self.assertRaisesRegex(ValueError, "loads:2:3: 'x' is not a number"):
                demand.popularity(f"file:{path}", 2)
            with open(path, "w", encoding="utf-8") as out:
                out.write("# loads\n[[1, 2],\n [3, nan]]\n")
            with self.assertRaisesRegex(ValueError, "loads:3:6: 'nan' is not a number"):
                demand.popularity(f"file:{path}", 2)

    def test_patterns_of_ucc(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "two.ptini")
            with open(path, "w", encoding="utf-8") as out:
                out.write("[format]\nversion = 1.0\n[collective]\ntype = ALLTOALLV\ndatatype = INT64\ncounts = {\n 1,2\n 3,4\n}\n"
                          "[collective]\ntype = ALLTOALLV\ncounts = { 5,6\n7,8 }\n")
            self.assertEqual(demand.read_matrix(path, 2), [[8, 16], [24, 32]])
            self.assertEqual(demand.read_matrix(path, 2, 10, step=1), [[200, 240], [280, 320]])
            with self.assertRaisesRegex(ValueError, "3 rows"):
                demand.read_matrix(path, 3)

    def test_what_is_no_demand(self):
        for name, text in (("cold", "no demand"), ("hot:2", "between 0 and 1"), ("balanced:1", "takes no value")):
            with self.assertRaisesRegex(ValueError, text):
                demand.popularity(name, 4)


if __name__ == "__main__":
    unittest.main()
