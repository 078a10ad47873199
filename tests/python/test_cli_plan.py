"""plan: what a layout costs, from the config alone."""
import json
from pathlib import Path

from program import run

CONFIG = Path(__file__).parents[1] / "data/fixtures/config/config.json"


def plan(*args):
    return run("plan", "--config", CONFIG, *args)


def test_plan_lists_memory_and_exchanges_of_a_layout():
    step = plan("--layout", "tp8r", "--ep", 64).stdout.split("exchanges of a draft")[0]
    lines = {line[:24].strip(): line[24:].split() for line in step.splitlines()}
    assert lines["routed experts"] == ["4.202"]
    assert lines["shared on a host"] == ["188.895"]
    assert lines["moe.merge"] == ["merge", "64", "40", "143360"]
    result = json.loads(plan("--layout", "tp8r", "--ep", 64, "--rows", 6, "--json").stdout)
    assert result["rank_total"] == sum(result["rank_bytes"].values())
    assert {"name": "moe.merge", "op": "merge", "ranks": 64, "calls": 40,
            "bytes": 6 * 143360} in result["step"]


def test_plan_of_a_synthetic_model():
    result = json.loads(run("plan", "--synthetic", "layers=1,experts=8,vocab=512", "--ranks", 2, "--json").stdout)
    assert result["rank_bytes"]["routed experts"] == 4 * 3 * 2304 * 5120 * 17 // 32
    assert result["rank_bytes"]["head"] == 512 * 5120 * 2 // 2
    for other in ("--config", "--model"):
        both = run("plan", "--synthetic", "layers=1", other, CONFIG)
        assert both.returncode == 2 and f"--synthetic: expected no {other}" in both.stderr


def test_plan_refuses_by_name_what_does_not_fit():
    result = plan("--layout", "tp", "--ep", 48)
    assert result.returncode == 2
    assert "48 ranks" in result.stderr
