#!/usr/bin/env python3
"""What two ranks of a thread cost beside one rank of two threads: the table of docs/ranks.md.

usage: rank_cost.py PROGRAM TURNS OUT

Runs `bench step` of one row on a wide slice in turns, one rank, two ranks with --reduce exact and with fast, and appends a
JSON line for each run to OUT, so that it may be called several times; then prints the table over all lines of OUT.
A step of several ranks takes at least as long as its busier rank reads: in every layer the rank that has more of the six
experts of the row. Its bytes over those of half a step of one rank, times the time of one rank, is what is expected.
"""
import json
import math
import statistics
import subprocess
import sys

MODEL = "layers=4,experts=64,vocab=26000,stages=0"
LAYERS, EXPERTS, CHOSEN = 4, 64, 6
EXPERT_BYTES = 3 * 2304 * 5120 * 17 // 32
KINDS = {"one rank": ["--threads", "2"],
         "exact": ["--threads", "1", "--ranks", "2"],
         "fast": ["--threads", "1", "--ranks", "2", "--reduce", "fast"]}
NOT_READ = {"embedding", "Engram tables", "draft experts", "draft heads", "routed experts"}


def dense_bytes(program, ranks, reduce):
    """Of a rank in a step: all but experts, and but what is read by single rows or not at all."""
    plan = subprocess.run([program, "plan", "--synthetic", MODEL, "--ranks", str(ranks), "--reduce", reduce, "--json"],
                          capture_output=True, check=True).stdout
    return sum(size for part, size in json.loads(plan)["rank_bytes"].items() if part not in NOT_READ)


def busier_experts():
    """Of the experts of a row, those on the rank that has more of them, in the mean."""
    half = EXPERTS // 2
    ways = [math.comb(half, n) * math.comb(half, CHOSEN - n) for n in range(CHOSEN + 1)]
    return sum(w * max(n, CHOSEN - n) for n, w in enumerate(ways)) / sum(ways)


def measure(program, out, turns):
    with open(out, "a", encoding="utf-8") as lines:
        for _ in range(turns):
            for kind, options in KINDS.items():
                subprocess.run([program, "bench", "step", "--synthetic", MODEL, "--routing", "uniform", "--rows", "1", "--context",
                                "1000", "--seconds", "2", "--json", out + ".run", *options], check=True, capture_output=True)
                with open(out + ".run", encoding="utf-8") as f:
                    lines.write(json.dumps({"kind": kind, **json.load(f)["steps"][0]}) + "\n")


def table(program, out):
    with open(out, encoding="utf-8") as f:
        runs = [json.loads(line) for line in f]
    of = {kind: [r for r in runs if r["kind"] == kind] for kind in KINDS}
    median = {kind: statistics.median(r["step_s"] for r in of[kind]) for kind in KINDS}
    half = (dense_bytes(program, 1, "exact") + LAYERS * CHOSEN * EXPERT_BYTES) / 2
    print("| | step, ms (each run) | busier rank, GB | expected, ms | time / expected | exchanges without waits, ms | share of the step |")
    print("|---|---|---|---|---|---|---|")
    for kind in KINDS:
        times = ", ".join(f"{r['step_s'] * 1e3:.1f}" for r in of[kind])
        row = f"| {kind} | {median[kind] * 1e3:.1f} ({times}) |"
        if kind == "one rank":
            print(row, f"{half / 1e9:.3f} a thread | | | | |")
            continue
        busier = dense_bytes(program, 2, kind) + LAYERS * busier_experts() * EXPERT_BYTES
        expected = median["one rank"] * busier / half
        work = statistics.median(r["exchange_s"] - r["exchange_wait_s"] for r in of[kind])
        print(row, f"{busier / 1e9:.3f} | {expected * 1e3:.1f} | {median[kind] / expected:.3f} | {work * 1e3:.3f} |"
              f" {100 * work / median[kind]:.2f} % |")


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__.strip())
    program, turns, out = sys.argv[1:]
    measure(program, out, int(turns))
    table(program, out)


if __name__ == "__main__":
    main()
