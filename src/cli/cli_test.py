"""Tests of the program from outside. usage: cli_test.py PROGRAM (the path of the deepinfer executable)."""
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "models/demo"
RELEASED = ROOT / "tests/data/fixtures/config/config.json"
PROGRAM = sys.argv[1] if len(sys.argv) > 1 else ""


def run(*args, env=None, **kwargs):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("DEEPINFER_")}
    kwargs.setdefault("stdout", subprocess.PIPE)
    return subprocess.run([PROGRAM, *map(str, args)], stderr=subprocess.PIPE, text=True, timeout=120,
                          env={**clean, **(env or {})}, check=False, **kwargs)


class ProgramTest(unittest.TestCase):
    def assert_fails(self, result, *parts):
        """Status 2 and one sentence on standard error that holds every part."""
        self.assertEqual(result.returncode, 2, result.stderr)
        lines = result.stderr.splitlines()
        self.assertEqual(len(lines), 1, result.stderr)
        self.assertTrue(lines[0].startswith("deepinfer: "), lines[0])
        for part in parts:
            self.assertIn(part, lines[0])


class Program(ProgramTest):
    def test_help_and_version(self):
        self.assertRegex(run("--version").stdout, r"^deepinfer \d+\.\d+\.\d+\n$")
        for args in (("--help",), ("inspect", "--help")):
            result = run(*args)
            self.assertEqual(result.returncode, 0)
            self.assertIn("Usage: deepinfer", result.stdout)

    def test_wrong_arguments_are_named(self):
        self.assert_fails(run(), "sub-command")
        self.assert_fails(run("frobnicate"), "frobnicate")
        self.assert_fails(run("--frob"), "--frob")
        self.assert_fails(run("inspect", DEMO, "--frob"), "--frob")
        self.assert_fails(run("inspect", "--model"), "--model")
        self.assert_fails(run("inspect", "--expect", RELEASED, "--scan"), "--scan")

    def test_underscore_is_a_dash_in_names_only(self):
        request = ("generate", "--model", DEMO, "--prompt", "x")
        self.assert_fails(run(*request, "--max_num_seqs", "0"), "--max-num-seqs: expected an integer")
        self.assert_fails(run(*request, "--max_num_seqs=0"), "--max-num-seqs: expected an integer")
        self.assert_fails(run("inspect", "--model=/no_such_place"), "/no_such_place")
        self.assert_fails(run("inspect", "--model", "--no_such"), "--no_such: expected a model directory")

    def test_options_out_of_range_are_named(self):
        for option, value in (("max-model-len", -1), ("max-num-batched-tokens", 0), ("max-num-seqs", 0),
                              ("num-kv-blocks", -1), ("threads", -1), ("isa", "sse"), ("numerics", "int4"),
                              ("reduce", "sum"), ("engram", "disk"), ("layout", "pp")):
            self.assert_fails(run("generate", "--model", DEMO, "--prompt", "x", f"--{option}", value), f"--{option}: expected")
            self.assert_fails(run("generate", "--model", DEMO, "--prompt", "x", f"--{option}"), f"--{option}")

    def test_environment(self):
        self.assertIn("1,545", run("inspect", env={"DEEPINFER_MODEL": str(DEMO)}).stdout)
        self.assert_fails(run("inspect", DEMO, env={"DEEPINFER_MODLE": "x"}), "DEEPINFER_MODLE", "DEEPINFER_MODEL")
        self.assert_fails(run("inspect", DEMO, env={"DEEPINFER_THREADS": "x"}), "DEEPINFER_THREADS")

    def test_hub_name(self):
        with tempfile.TemporaryDirectory() as home:
            repo = Path(home, "hub/models--own--demo")
            (repo / "refs").mkdir(parents=True)
            (repo / "refs/main").write_text("abc123")
            (repo / "snapshots").mkdir()
            (repo / "snapshots/abc123").symlink_to(DEMO)
            env = {"HF_HOME": home, "HF_HUB_CACHE": ""}
            self.assertEqual(run("inspect", "own/demo", env=env).returncode, 0)
            self.assert_fails(run("inspect", "own/other", env=env), "own/other", home)

    def test_output_that_cannot_be_written(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            for args in (("inspect", DEMO), ("--help",), ("--version",)):
                self.assert_fails(run(*args, stdout=full), "No space left on device")
        read_end, write_end = os.pipe()
        os.close(read_end)
        self.assert_fails(run("inspect", DEMO, stdout=write_end), "Broken pipe")
        os.close(write_end)
        closed = subprocess.run(["sh", "-c", '"$0" inspect "$1" >&-', PROGRAM, str(DEMO)], stderr=subprocess.PIPE,
                                text=True, check=False)
        self.assert_fails(closed, "standard output")


class Inspect(ProgramTest):
    def test_table_and_json_agree(self):
        text = run("inspect", DEMO).stdout
        self.assertIn("equal to the 1,545 tensors and 13,346,528 bytes", text)
        report = json.loads(run("inspect", "--json", DEMO).stdout)
        self.assertEqual((report["tensors"], report["bytes"]), (1545, 13346528))
        self.assertEqual(sum(p["tensors"] for p in report["parts"].values()), 1545)
        self.assertEqual(sum(d["bytes"] for d in report["dtypes"].values()), 13346528)
        self.assertEqual(report["unused"], [])
        self.assertTrue(report["equals_config"])

    def test_expect(self):
        report = json.loads(run("inspect", "--expect", RELEASED, "--json").stdout)
        self.assertEqual((report["tensors"], report["bytes"]), (96085, 510286023000))
        self.assertEqual(len(report["inventory"]), 96085)
        self.assertIn("510,286,023,000", run("inspect", "--expect", RELEASED).stdout)
        self.assert_fails(run("inspect", "--expect", "/nowhere.json"), "/nowhere.json")

    def test_missing_directory(self):
        self.assert_fails(run("inspect", "/nowhere"), "/nowhere")
        self.assert_fails(run("inspect", ROOT / "tests"), "config.json")

    def test_scan(self):
        result = run("inspect", "--scan", DEMO)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("every value is finite", result.stdout)
        with tempfile.TemporaryDirectory() as tmp:
            copy = Path(tmp, "demo")
            shutil.copytree(DEMO, copy)
            shard = copy / "model-00001-of-00003.safetensors"
            with open(shard, "r+b") as f:
                size = struct.unpack("<Q", f.read(8))[0]
                begin = json.loads(f.read(size))["layers.0.attn.wkv.scale"]["data_offsets"][0]
                f.seek(8 + size + begin + 3)
                f.write(b"\xff")
            result = run("inspect", "--scan", copy)
            self.assertIn("layers.0.attn.wkv.scale: 1 of 12 values are not finite, the first at [0, 3]", result.stdout)
            self.assert_fails(result, "layers.0.attn.wkv.scale")
            report = json.loads(run("inspect", "--scan", "--json", copy).stdout)
            self.assertEqual(report["not_finite"], [{"name": "layers.0.attn.wkv.scale", "count": 1, "first": 3}])

    def test_unused_tensor_is_a_warning(self):
        with tempfile.TemporaryDirectory() as tmp:
            copy = Path(tmp, "demo")
            shutil.copytree(DEMO, copy)
            header = b'{"layers.0.old":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
            (copy / "extra.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))
            index = json.loads((copy / "model.safetensors.index.json").read_text())
            index["weight_map"]["layers.0.old"] = "extra.safetensors"
            (copy / "model.safetensors.index.json").write_text(json.dumps(index))
            result = run("inspect", copy)
            self.assertEqual(result.returncode, 0)
            self.assertIn("unused layers.0.old", result.stdout)
            self.assertIn("1 tensors", result.stderr)
            self.assertIn("layers.0.old", result.stderr)


class SparseCheckpoint(ProgramTest):
    """The released layout at full size."""

    def test_released_size(self):
        with tempfile.TemporaryDirectory() as tmp:
            out = Path(tmp, "released")
            made = subprocess.run([sys.executable, ROOT / "tools/make_sparse_checkpoint.py", RELEASED, out],
                                  capture_output=True, text=True, check=False)
            self.assertEqual(made.returncode, 0, made.stderr)
            self.assertIn("equal to the 96,085 tensors and 510,286,023,000 bytes", run("inspect", out).stdout)
            # Published file sizes of the Engram shards and of the index.
            self.assertEqual((out / "model-00047-of-00048.safetensors").stat().st_size, 101_535_150_936)
            self.assertEqual((out / "model-00048-of-00048.safetensors").stat().st_size, 101_537_926_640)
            self.assertEqual((out / "model.safetensors.index.json").stat().st_size, 7_470_294)
            os.truncate(out / "model-00048-of-00048.safetensors", 101_537_926_639)
            self.assert_fails(run("inspect", out), "model-00048-of-00048.safetensors", "101537926640", "101537926639")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
