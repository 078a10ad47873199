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
    (("--model", DEMO, "--context", "9999", "--rows", "1"), ("--context", "at most 2047")),
    (("--synthetic", "layers=40,experts=384,engram=16000000"), ("synthetic weights", "MiB are available")),
])
def test_step_refuses(args, parts):
    assert_fails(run("bench", "step", *args), *parts)


def test_json_file_must_be_writable(tmp_path):
    result = run("bench", "step", *SMALL, "--rows", 1, "--context", 1, "--seconds", 0, "--json", tmp_path)
    assert result.returncode == 2
    assert "--json" in result.stderr


def test_step_prints_a_profile_and_writes_a_trace(tmp_path):
    trace = tmp_path / "trace.json"
    text, _ = bench("step", tmp_path, "--rows", 1, "--context", 9, "--seconds", 0, "--profile", "--trace", trace)
    assert "1 rows at context 9: 3 steps of 1.0 rows" in text
    for row in ("attn.wq_b", "moe.experts_down", "ratio 1 source", "outside layers"):
        assert f"\n{row} " in text
    assert "predicted for all 40 layers and 384 experts" in text
    events = json.loads(trace.read_text())["traceEvents"]
    assert {e["tid"] for e in events} == {0, 1}
    assert {"embed", "head.logits", "wait"} <= {e["name"] for e in events}


def test_uniform_routing_spreads_experts(tmp_path):
    """Six rows of the same token at different positions choose different experts, whatever the weights."""
    sizes = {}
    for routing, seed in (("model", 1), ("model", 2), ("uniform", 1), ("uniform", 2)):
        path = tmp_path / "result.json"
        result = run("bench", "step", "--synthetic", f"layers=1,experts=48,vocab=512,seed={seed}", "--rows", 6,
                     "--context", 20, "--seconds", 0, "--routing", routing, "--json", path)
        assert result.returncode == 0, result.stderr
        sizes[routing, seed] = json.loads(path.read_text())["steps"][0]["bytes"] / 18800640
    assert sizes["model", 1] != sizes["model", 2]
    assert sizes["uniform", 1] == sizes["uniform", 2]
    # 48 (1 - (1 - 6 / 48)^6) = 26.5 experts, and what is dense.
    assert 20 < sizes["uniform", 1] - 8 < 33


def test_latency_reports_cold_new_and_repeated_apart(tmp_path):
    text, result = bench("latency", tmp_path, "--input-lens", "24,48", "--output-len", 3, "--num-prompts", 2)
    assert result["cold"]["input_len"] == 24 and result["cold"]["ttft_s"] > 0
    assert result["load_s"] > 0
    assert [(r["input_len"], r["output_len"], r["num_prompts"]) for r in result["rows"]] == [(24, 3, 2), (48, 3, 2)]
    for row in result["rows"]:
        assert row["ttft_max_s"] >= row["ttft_s"] > 0 and row["tpot_s"] > 0
        assert row["repeated"]["ttft_s"] > 0 and row["repeated"]["tpot_s"] > 0
    assert "cold, the first prompt after that, 24 tokens" in text


def test_latency_of_one_token_has_no_tpot(tmp_path):
    _, result = bench("latency", tmp_path, "--input-lens", "4", "--output-len", 1, "--num-prompts", 1)
    assert result["rows"][0]["tpot_s"] is None


def test_latency_cuts_prompts_from_a_text(tmp_path):
    text = tmp_path / "text"
    text.write_text("In the beginning God created the heaven and the earth. " * 20)
    path = tmp_path / "result.json"
    args = ("--model", DEMO, "--dataset", text, "--output-len", 2, "--num-prompts", 2, "--json", path)
    result = run("bench", "latency", *args, "--input-lens", "16")
    assert result.returncode == 0, result.stderr
    assert json.loads(path.read_text())["rows"][0]["input_len"] == 16
    assert_fails(run("bench", "latency", *args, "--input-lens", "1900"), "--dataset", "at least 1900 tokens")
    assert_fails(run("bench", "latency", *args, "--input-lens", "9999"), "--input-lens", "at most 2046", "2048")
    assert_fails(run("bench", "latency", *SMALL, "--dataset", text, "--input-lens", "4"), "--dataset", "--model")


def test_defaults_fit_a_small_model():
    """Default lengths that the model has no room for are left out."""
    result = run("bench", "step", "--model", DEMO, "--seconds", 0)
    assert result.returncode == 0, result.stderr
    assert "\n    1000   512" in result.stdout and "100000" not in result.stdout
    result = run("bench", "latency", "--model", DEMO, "--num-prompts", 1, "--output-len", 2)
    assert result.returncode == 0, result.stderr
    assert "\n   1024       2" in result.stdout and "8192" not in result.stdout


def test_throughput_runs_every_batch(tmp_path):
    _, result = bench("throughput", tmp_path, "--batch-sizes", "1,3", "--input-len", 8, "--output-len", 4)
    assert [r["batch_size"] for r in result["rows"]] == [1, 3]
    for row in result["rows"]:
        assert row["output_tokens_per_s"] == pytest.approx(4 * row["batch_size"] / row["seconds"])
        assert row["tokens_per_s"] == pytest.approx(12 * row["batch_size"] / row["seconds"])


@pytest.mark.parametrize("args, parts", [
    (("latency", *SMALL, "--input-lens", "0"), ("--input-lens",)),
    (("latency", *SMALL, "--output-len", "0"), ("--output-len",)),
    (("latency", *SMALL, "--num-prompts", "x"), ("--num-prompts", "integer")),
    (("latency", *SMALL, "--input-lens", "90", "--max-model-len", "100"), ("--input-lens", "128", "100")),
    (("latency", *SMALL, "--routing", "even"), ("--routing", "model, uniform")),
    (("throughput", *SMALL, "--batch-sizes", "1,a"), ("--batch-sizes",)),
    (("throughput", *SMALL, "--input-len", "-1"), ("--input-len",)),
    ((), ("subcommand",)),
])
def test_requests_refuse(args, parts):
    assert_fails(run("bench", *args), *parts)


def test_generate_profile_leaves_the_answer_alone(tmp_path):
    args = ("generate", "--model", DEMO, "--prompt-ids", "[0,5,9,7]", "--max-tokens", 4, "--temperature", 0,
            "--threads", 2)
    plain = run(*args)
    trace = tmp_path / "trace.json"
    profiled = run(*args, "--profile", "--trace", trace)
    assert plain.returncode == profiled.returncode == 0, profiled.stderr
    assert plain.stdout == profiled.stdout
    assert "\nattn.wq_a " not in plain.stderr
    assert "prompt: 1 steps of 4.0 rows" in profiled.stderr
    assert "decode: 3 steps of 1.0 rows" in profiled.stderr
    assert "\nattn.wq_a " in profiled.stderr
    assert json.loads(trace.read_text())["traceEvents"]
    result = run(*args, "--trace", tmp_path)
    assert result.returncode == 2 and "--trace: " in result.stderr


def test_drafts_reports_gains_beside_what_bytes_promise(tmp_path):
    text, result = bench("drafts", tmp_path, "--tau", "1.3,5.5", "--seconds", 0, "--routing", "uniform",
                         "--routing-overlap", "0.3")
    assert [c["tau"] for c in result["cells"]] == [1.3, 5.5]
    for cell in result["cells"]:
        assert cell["ratio"] == pytest.approx(cell["gain"] / cell["promised"])
        assert cell["plain_step_s"] > 0 and cell["plain_spread"] >= 0 and cell["tokens_per_step"] >= 1
    # Shapes of the release: 13.04 GB a step; about 2 x at 5.5 tokens a verification.
    assert result["released_shares"]["step_bytes"] == pytest.approx(13.04e9, rel=0.01)
    assert 1.9 < result["cells"][1]["released_promised"] < 2.4 and result["cells"][1]["released_depth"] == 5
    assert "released: plain step" in text


def test_drafts_refuses():
    assert_fails(run("bench", "drafts", *SMALL, "--tau", "6.5"), "--tau", "between 1 and 6")
    assert_fails(run("bench", "drafts", "--synthetic", "layers=1,experts=6,vocab=512,stages=0"), "draft stages")
    assert_fails(run("bench", "drafts", *SMALL, "--routing-overlap", "0.3"), "--routing-overlap", "uniform")


def test_profile_of_drafts():
    result = run("generate", "--model", DEMO, "--prompt-ids", "[0,5,9,7]", "--max-tokens", 6, "--temperature", 0,
                 "--threads", 2, "--draft-depth", "fixed", "--profile")
    assert result.returncode == 0, result.stderr
    assert "\ndraft: " in result.stderr and "\ndraft stage " in result.stderr and "\ndraft.markov_head " in result.stderr
