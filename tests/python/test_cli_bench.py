"""The bench commands that run the engine, on the smallest synthetic model."""
import json

import pytest
from program import DEMO, assert_fails, run

SMALL = ("--synthetic", "layers=1,experts=6,vocab=512")


def bench(command, tmp_path, *args):
    """-> (text, JSON object) of a run that must succeed."""
    path = tmp_path / "result.json"
    result = run("bench", command, *SMALL, "--threads", 2, "--json", path, *args)
    assert result.returncode == 0, result.stderr
    return result.stdout, json.loads(path.read_text())


def test_step_reports_every_cell(tmp_path):
    text, result = bench("step", tmp_path, "--rows", "1,6", "--context", "200,3000", "--seconds", 0)
    assert [(c["context"], c["rows"]) for c in result["steps"]] == [(200, 1), (200, 6), (3000, 1), (3000, 6)]
    for cell in result["steps"]:
        assert cell["steps"] == 3
        assert 0 < cell["best_s"] <= cell["step_s"]
        assert cell["bytes"] > 0 and cell["flops"] > 0
        assert 0 < cell["share"] < 2
        assert 0 < cell["attention_share"] < 1
    one, six = result["steps"][:2]
    assert six["bytes"] > one["bytes"]
    assert "6 rows / 1 row at context 200" in text
    assert "context 3000 / 200 at 6 rows" in text
    assert result["layers"] == 1 and result["experts"] == 6 and result["read_bytes_per_s"] > 1e8


def test_step_bytes_are_the_weights(tmp_path):
    """At one row: all dense weights, six experts, the head; one row of the embedding."""
    _, result = bench("step", tmp_path, "--rows", "1", "--context", "1", "--seconds", 0)
    tile = 1 + 1 / 1024
    attention = tile * (1280 * 5120 + 32768 * 1280 + 512 * 5120 + 8192 * 4096 + 5120 * 8192)
    sources = 2 * (512 * 5120 + 128 * 512 + 32 * 5120) + tile * 4096 * 1280
    experts = 6 * 18800640 + tile * 3 * 2304 * 5120 + 2 * 6 * 5120
    streams = 2 * 4 * 24 * 20480
    weights = attention + sources + experts + streams + 2 * 512 * 5120 + 2 * 5120
    caches = 2 * 528 + 2 * (288 + 68)
    assert result["steps"][0]["bytes"] == pytest.approx(weights + caches, abs=1)


def test_step_runs_a_model_of_a_directory():
    result = run("bench", "step", "--model", DEMO, "--rows", "2", "--context", "40", "--seconds", 0)
    assert result.returncode == 0, result.stderr
    assert "vocabulary" in result.stdout


@pytest.mark.parametrize("args, parts", [
    ((), ("expected --model or --synthetic",)),
    (("--synthetic", "--model", DEMO), ("--synthetic", "no --model")),
    (("--synthetic", "layers=41"), ("--synthetic layers", "1 to 40", "41")),
    (("--synthetic", "layer=4"), ("--synthetic", "layer=4")),
    ((*SMALL, "--rows", "1,,2"), ("--rows", "1,,2")),
    ((*SMALL, "--rows", "0"), ("--rows",)),
    ((*SMALL, "--context", "x"), ("--context",)),
    (("--synthetic", "layers=40,experts=384,engram=16000000"), ("synthetic weights", "MiB are available")),
])
def test_step_refuses(args, parts):
    assert_fails(run("bench", "step", *args), *parts)


def test_json_file_must_be_writable(tmp_path):
    result = run("bench", "step", *SMALL, "--rows", 1, "--context", 1, "--seconds", 0, "--json", tmp_path)
    assert result.returncode == 2
    assert "--json" in result.stderr
