"""instruction_counts.py must report each kind of difference."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tools"))
from instruction_counts import differences  # noqa: E402


def counts(compiler="g++ 12.2.0", **values):
    return {"compiler": compiler, "counts": values}


class Differences(unittest.TestCase):
    def test_two_percent_either_way_are_the_limit(self):
        stored = counts(gate=1000)
        for n in (980, 1000, 1020):
            self.assertEqual(differences(stored, counts(gate=n)), [])
        self.assertEqual(differences(stored, counts(gate=1021)), ["gate: 1021 instructions, stored 1000 (+2.1 %)"])
        self.assertEqual(differences(stored, counts(gate=979)), ["gate: 979 instructions, stored 1000 (-2.1 %)"])

    def test_new_and_missing_kernels(self):
        self.assertEqual(differences(counts(a=1), counts(b=1)), ["a: only stored", "b: only measured"])

    def test_another_compiler(self):
        self.assertEqual(differences(counts(a=1), counts("g++ 13.1.0", a=9)),
                         ["counts are stored for g++ 12.2.0, this build is by g++ 13.1.0"])


unittest.main()
