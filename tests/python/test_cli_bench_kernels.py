"""bench kernels: every option has an effect, and what it reports fits together."""
import json

import pytest
from program import assert_fails, run


def bench(path, *args, seconds=0):
    result = run("bench", "kernels", "--seconds", seconds, "--json", path, *args)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return json.loads(path.read_text())["results"], result.stdout


def test_ops_levels_rows_and_threads(tmp_path):
    lines, text = bench(tmp_path / "k.json", "--op", "mixer,rms_norm", "--rows", "1,3", "--threads", "1,2", "--isa", "avx2")
    assert [(r["op"], r["threads"], r["rows"]) for r in lines] == [
        (op, threads, rows) for op in ("mixer", "rms_norm") for threads in (1, 2) for rows in (1, 3)]
    assert all(r["isa"] == "avx2" and r["samples"] == 3 for r in lines)
    assert all(0 < r["seconds"] <= r["median_seconds"] for r in lines)
    assert [r["from_memory"] for r in lines] == [True] * 4 + [False] * 4
    assert text.count("limits avx2") == 4  # one for each op and number of threads
    for r in lines:
        assert r["read_share"] == pytest.approx(r["bytes"] / r["seconds"] / r["read_bytes_per_s"])
        assert "tile_flops" not in r and "int8_ops" not in r
    mixer = lines[1]
    assert mixer["flops"] == pytest.approx(2 * 3 * mixer["bytes"] / 4)
    assert mixer["peak_share"] == pytest.approx(mixer["flops"] / mixer["seconds"] / mixer["fma_flops"])


def test_seconds_is_the_time_of_a_line(tmp_path):
    lines, _ = bench(tmp_path / "k.json", "--op", "add", "--rows", "1", "--threads", "1", seconds=0.2)
    assert lines[0]["samples"] > 10


@pytest.mark.parametrize("arguments,part", [
    (["--op", "gate"], "--op: expected some of gate_up, down"),
    (["--isa", "sse"], "instruction set level 'sse'"),
    (["--rows", "0"], "--rows: expected numbers from 1 to 4096"),
    (["--threads", "1,0"], "--threads: expected numbers from 1 to 1024"),
    (["--seconds", "-1"], "--seconds: expected 0 to 3600"),
])
def test_refuses(arguments, part):
    assert_fails(run("bench", "kernels", *arguments), part)


def test_a_file_that_cannot_be_written(tmp_path):
    result = run("bench", "kernels", "--op", "add", "--rows", 1, "--seconds", 0, "--json", tmp_path / "no" / "k.json")
    assert result.returncode == 2
    assert "k.json: expected a file that can be written" in result.stderr
    assert_fails(run("bench"), "A subcommand is required")


def test_emit_machine_writes_the_file_of_the_cost_model(tmp_path):
    path = tmp_path / "machine.json"
    result = run("bench", "kernels", "--seconds", 0, "--threads", 1, "--isa", "avx2", "--emit-machine", path)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    machine = json.loads(path.read_text())
    assert machine["name"].endswith(", 1 threads, avx2")
    assert "collectives" in machine["source"] and "coll" not in machine
    assert machine["measured"] == {"memory": True, "rates": True, "coll": False, "executor": False}
    for rate in ("mem_bw", "flops_bf16", "decode_fp8", "decode_fp4", "mem_per_rank"):
        assert machine[rate] > 1e8
    assert machine["decode_fp4"] * 0.53 < 1.05 * machine["mem_bw"]  # weights come from memory
    assert_fails(run("bench", "kernels", "--emit-machine", path, "--rows", 1), "--rows excludes --emit-machine")
