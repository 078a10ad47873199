#!/usr/bin/env python3
"""Measures the demo model with and without draft tokens on several kinds of prompts, and writes the table of docs/speculative.md.

usage: draft_classes.py [--program P] [--model M] [--repeats N] [--threads N] [--tokens N] [--only CLASS,...] [--render]

Both ways in turns, N times each; results lie in build/drafts/classes.json. --render: writes the page again without measuring.
"""
import argparse
import datetime
import json
import pathlib
import statistics
import subprocess

from pages import write_between

ROOT = pathlib.Path(__file__).resolve().parents[1]
FILE = ROOT / "build/drafts/classes.json"
PAGE = ROOT / "docs/speculative.md"
BEGIN, END = "<!-- table: tools/draft_classes.py -->", "<!-- end of classes -->"
IDS = json.dumps([0] + [(i * 7919 + 13) % 900 + 3 for i in range(40)])
CLASSES = {
    "prose": ["--prompt", "In the beginning God created the heaven and the earth. And the earth was without form, and void;"],
    "code": ["--prompt", "def add(a, b):\n    return a + b\n\n\ndef subtract(a, b):\n    return a - b\n\n\ndef multiply(a, b):\n"],
    "tools": ["--prompt", '{"name": "get_weather", "arguments": {"city": "Paris", "unit": "celsius"}}\n{"name": "get_weather", "arguments": {'],
    "repetition": ["--prompt", "And he said unto them, Go. " * 12],
    "random ids": ["--prompt-ids", IDS],
    "sampled prose": ["--prompt", "And it came to pass in those days, that", "--temperature", "1", "--seed", "5"],
}


def run(options, name, speculative):
    arguments = CLASSES[name]
    sampling = [] if "--temperature" in arguments else ["--temperature", "0"]
    command = [options.program, "generate", "--model", options.model, *arguments, *sampling, "--max-tokens", str(options.tokens), "--ignore-eos",
               "--threads", str(options.threads), "--speculative", speculative, "--json"]
    result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    told = result["speculative"]
    return {"tpot_s": result["timing"]["tpot_s"], "steps": told["plain_steps"] + told["drafted_steps"], "drafted": told["drafted_steps"],
            "depths": told["depths"], "gain": told["gain"]}


def measure(options):
    results = json.loads(FILE.read_text()) if FILE.exists() else {}
    for name in options.only or CLASSES:
        runs = {"off": [], "exact": []}
        for _ in range(options.repeats):
            for speculative, list_ in runs.items():
                list_.append(run(options, name, speculative))
        results[name] = {**runs, "date": str(datetime.date.today()), "threads": options.threads,
                         "tokens": options.tokens}
        FILE.parent.mkdir(parents=True, exist_ok=True)
        FILE.write_text(json.dumps(results))


def markdown(results):
    newest = max(r["date"] for r in results.values())
    one = next(iter(results.values()))
    lines = [f"{newest}, {one['threads']} threads, {one['tokens']} tokens, median of each way.", "",
             "| prompt | plain | spread of plain | with drafts | with / plain speed (of each pair) | steps that drafted |", "|---|---|---|---|---|---|"]
    for name, r in results.items():
        plain, drafted = ([run["tpot_s"] * 1e3 for run in r[way]] for way in ("off", "exact"))
        middle = statistics.median(plain)
        pairs = ", ".join(f"{a / b:.2f}" for a, b in zip(plain, drafted))
        share = sum(run["drafted"] for run in r["exact"]) / sum(run["steps"] for run in r["exact"])
        lines.append(f"| {name} | {middle:.2f} ms | {100 * (max(plain) - min(plain)) / middle:.0f} % | {statistics.median(drafted):.2f} ms | "
                     f"{middle / statistics.median(drafted):.2f} ({pairs}) | {100 * share:.0f} % |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default=str(ROOT / "build/release/deepinfer"))
    parser.add_argument("--model", default=str(ROOT / "models/demo"))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=1000)
    parser.add_argument("--only", type=lambda text: text.split(","))
    parser.add_argument("--render", action="store_true")
    options = parser.parse_args()
    if not options.render:
        measure(options)
    table = markdown(json.loads(FILE.read_text()))
    print(table)
    write_between(PAGE, BEGIN, END, table)


if __name__ == "__main__":
    main()
