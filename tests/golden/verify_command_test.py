"""The verify command from outside. usage: verify_command_test.py PROGRAM (the path of the deepinfer executable)."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

DATA = Path(__file__).resolve().parents[2] / "build/testdata"
PROGRAM = sys.argv[1] if len(sys.argv) > 1 else ""


class VerifyCommand(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.golden = Path(folder.name, "golden")
        self.golden.mkdir()
        for file in (DATA / "golden").glob("tiny-odd.fp32.t*"):
            shutil.copy(file, self.golden)

    def run_verify(self, *args, numerics="fp32", golden=None, model="tiny-odd"):
        env = {k: v for k, v in os.environ.items() if not k.startswith("DEEPINFER_")}
        return subprocess.run(
            [PROGRAM, "verify", "--model", str(DATA / "checkpoints" / model), "--golden", str(golden or self.golden),
             "--threads", "1", "--numerics", numerics, *args], capture_output=True, text=True, env=env, timeout=300,
            check=False)

    def assert_refused(self, result, *parts):
        self.assertEqual(result.returncode, 2, result.stdout + result.stderr)
        self.assertEqual(result.stdout, "")
        self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
        for part in parts:
            self.assertIn(part, result.stderr)

    def change_record(self, change):
        file = self.golden / "tiny-odd.fp32.two.json"
        record = json.loads(file.read_text())
        change(record)
        file.write_text(json.dumps(record))

    def test_equal_results(self):
        for args in ((), ("--chunk", "7"), ("--isa", "generic")):
            result = self.run_verify(*args)
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
            lines = result.stdout.splitlines()
            self.assertEqual(lines[-1], "verify: 3 sets, 0 mismatches")     # topk, topk-plus, two
            for quantity in ("logits", "attn_in", "output", "router_ids", "selected", "engram_rows", "argmax", "greedy",
                             "drafts", "verified", "draft_logits", "draft_confidence"):
                self.assertTrue(any(line.split()[:1] == [quantity] for line in lines), quantity)

    def test_name_and_trailing_slash(self):
        self.assertEqual(self.run_verify("--name", "tiny-odd").returncode, 0)
        self.assertEqual(self.run_verify(model="tiny-odd/").returncode, 0)

    def test_mismatch_is_status_1(self):
        self.change_record(lambda r: r["greedy"].__setitem__(0, (r["greedy"][0] + 1) % 500))
        result = self.run_verify()
        self.assertEqual(result.returncode, 1)
        self.assertEqual(result.stderr, "")
        self.assertIn("mismatch: tiny-odd.fp32.two greedy: step 0", result.stdout)
        self.assertEqual(result.stdout.splitlines()[-1], "verify: 3 sets, 1 mismatches")

    def test_bad_input_is_status_2(self):
        self.assert_refused(self.run_verify(numerics="release"), "tiny-odd.release.*.json", "none")
        self.assert_refused(self.run_verify("--name", "other"), "other.fp32")
        self.assert_refused(self.run_verify(golden=self.golden / "no"), str(self.golden / "no"))
        self.assert_refused(self.run_verify("--chunk", "-1"), "--chunk")
        self.assert_refused(self.run_verify(numerics="int4"), "--numerics")
        self.assert_refused(self.run_verify(model="missing"), "missing")
        self.change_record(lambda r: r["prompt"].__setitem__(1, 517))
        self.assert_refused(self.run_verify(), "tiny-odd.fp32.two.json", "prompt", "517")

    def test_sets_of_another_checkpoint_are_refused(self):
        result = self.run_verify("--name", "tiny-odd", model="tiny")
        self.assert_refused(result, "tiny-odd.fp32", "expected", "found")

    def test_damaged_arrays_are_refused(self):
        file = self.golden / "tiny-odd.fp32.topk.safetensors"
        file.write_bytes(file.read_bytes()[:-4])
        self.assert_refused(self.run_verify(), "tiny-odd.fp32.topk.safetensors")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
