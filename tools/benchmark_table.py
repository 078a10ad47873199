#!/usr/bin/env python3
"""Measures what docs/benchmarks.md compares with its goals, and writes the table and the picture there.

usage: benchmark_table.py [--program P] [--prefix CMD] [--ggml DIR] [--only PART,...] [--render]

About five minutes on a quiet machine, in parts of less than 45 s. Results lie in build/benchmarks/PART.json, so that parts can be
measured again one by one (--only) or the pages written again without measuring (--render). --prefix: a command in front of every
measurement, for example one that waits until the machine is idle. --ggml: see compare_ggml.py.
"""
import argparse
import datetime
import json
import pathlib
import subprocess
import sys

from pages import cpu_name, write_between

ROOT = pathlib.Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build/benchmarks"
PAGE, PICTURE = ROOT / "docs/benchmarks.md", ROOT / "docs/benchmarks.svg"
BEGIN, END = "<!-- table: tools/benchmark_table.py -->", "<!-- end of table -->"
FP4, FP8 = ["gate_up", "down"], ["wq_a", "wq_b", "wo_b", "shared_gate_up"]
SLICE = "layers=4,experts=64"


def kernels(isa, ops, rows):
    return ["bench", "kernels", "--isa", isa, "--op", ",".join(ops), "--rows", rows, "--threads", "1,2", "--seconds", "0.2"]


def parts():
    """name -> arguments of the program"""
    step = ["bench", "step", "--synthetic", SLICE, "--seconds", "1"]
    return {
        "amx": kernels("amx", FP4 + FP8 + ["head"], "1,2,6,16,128"),
        "avx512": kernels("avx512", FP4 + FP8 + ["head"], "1,2,6,128"),
        "avx2": kernels("avx2", FP4 + FP8, "1,6"),
        "step-1": [*step, "--rows", "1,6,512", "--context", "1000", "--threads", "1"],
        "step-2": [*step, "--rows", "1,6,512", "--context", "1000", "--threads", "2"],
        "context-2": [*step, "--rows", "1", "--context", "1000,100000", "--threads", "2"],
    }


def measure(options):
    FOLDER.mkdir(parents=True, exist_ok=True)
    commands = {name: [options.program, *arguments] for name, arguments in parts().items()}
    if options.ggml:
        commands["ggml"] = [str(ROOT / "tools/compare_ggml.py"), options.ggml, "--program", options.program, "--rounds", "1"]
    for name, command in commands.items():
        if options.only and name not in options.only:
            continue
        path = FOLDER / f"{name}.json"
        path.unlink(missing_ok=True)
        print(f"== {name}", flush=True)
        done = subprocess.run([*options.prefix.split(), *command, "--json", str(path)], check=False)
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        (FOLDER / "measured").write_text(json.dumps({"when": f"{datetime.date.today()}, commit {commit.strip()}"}))
        if done.returncode != 0:
            print(f"{name}: status {done.returncode}, left out", file=sys.stderr)


def load(name):
    path = FOLDER / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else {}


def kernel_values(part, ops, rows, key):
    """threads -> values of the lines, in percent; lines in a slow phase of the tiles only where there is no other."""
    values = {}
    for t in (1, 2):
        lines = [r for r in load(part).get("results", []) if r["op"] in ops and r["rows"] == rows and r["threads"] == t]
        steady = [r for r in lines if not (r["slow_tiles"] and r["isa"] == "amx")] or lines
        values[t] = [100 * r[key] for r in steady]
    return values


def ggml_values(rows):
    return {t: [r["ratio"] for r in load("ggml").get("results", []) if (r["rows"], r["threads"]) == (rows, t)] for t in (1, 2)}


def step_values(value, part="step"):
    """value: from {(rows, context): step} to a number or None."""
    values = {}
    for t in (1, 2):
        steps = {(s["rows"], s["context"]): s for s in load(f"{part}-{t}").get("steps", [])}
        values[t] = [value(steps)] if steps else []
    return values


def six_against_one(steps):
    six, one = steps[6, 1000], steps[1, 1000]
    return (six["step_s"] / one["step_s"]) / (six["bytes"] / one["bytes"])


def table():
    """[(what, unit, must, aim, {threads: values})]; a negative must is an upper limit."""
    rows = []
    for n, must, aim in ((1, 60, 75), (2, 55, 72), (6, 52, 68), (16, 45, 58)):
        rows.append((f"fp4 experts, `amx`, {n} rows, of reading", "%", must, aim, kernel_values("amx", FP4, n, "read_share")))
    for n, must, aim in ((1, 65, 85), (2, 50, 70)):
        rows.append((f"fp4 experts, `avx512`, {n} rows, of reading", "%", must, aim, kernel_values("avx512", FP4, n, "read_share")))
    for n, must, aim in ((1, 70, 88), (6, 65, 82)):
        rows.append((f"fp8, `amx`, {n} rows, of reading", "%", must, aim, kernel_values("amx", FP8, n, "read_share")))
    for n, must, aim in ((1, 58, 80), (6, 28, 50)):
        rows.append((f"fp8, `avx512`, {n} rows, of reading", "%", must, aim, kernel_values("avx512", FP8, n, "read_share")))
    rows.append(("fp8, `avx512`, 128 rows, of FMA", "%", 45, 70, kernel_values("avx512", FP8, 128, "peak_share")))
    for part, n, must, aim in (("amx", 1, 80, 92), ("amx", 6, 78, 90), ("avx512", 1, 85, 97), ("avx512", 6, 55, 70)):
        rows.append((f"bf16 head, `{part}`, {n} rows, of reading", "%", must, aim,
                     kernel_values(part, ["head"], n, "read_share")))
    rows.append(("fp4 experts, `amx`, 128 rows, of tiles", "%", 40, 65, kernel_values("amx", FP4, 128, "peak_share")))
    rows.append(("fp8, `amx`, 128 rows, of tiles", "%", 28, 50, kernel_values("amx", FP8, 128, "peak_share")))
    for what, ops in (("fp4 experts", FP4), ("fp8", FP8)):
        rows.append((f"{what}, `avx2`, 1 row, of reading", "%", 55, 70, kernel_values("avx2", ops, 1, "read_share")))
    for n, must, aim in ((1, 1.5, 2), (6, 3, 5), (128, 5, 10)):
        rows.append((f"ggml MXFP4 repacked ÷ fp4 gate and up, {n} rows", "x", must, aim, ggml_values(n)))
    rows.append(("decode step, of its bytes ÷ reading", "%", 60, 75, step_values(lambda s: 100 * s[1, 1000]["share"])))
    rows.append(("6-row step ÷ 1-row step, by their bytes", "x", -1.25, -1.1, step_values(six_against_one)))
    rows.append(("512-token chunk, of max(bytes ÷ reading, operations ÷ tiles)", "%", 40, 60,
                 step_values(lambda s: 100 * s[512, 1000]["share"])))
    rows.append(("attention, of the layers' time, 6 rows", "%", -10, -5, step_values(lambda s: 100 * s[6, 1000]["attention_share"])))
    rows.append(("decode step at 100,000 tokens ÷ at 1,000", "x", -1.20, -1.08,
                 step_values(lambda s: s[1, 100000]["step_s"] / s[1, 1000]["step_s"], "context")))
    return rows


def number(value, unit):
    return f"{value:.0f}" if unit == "%" else f"{value:.2f}"


def cell(values, unit):
    if not values:
        return "not measured"
    low, high = number(min(values), unit), number(max(values), unit)
    return low if low == high else f"{low} to {high}"


def verdict(values, must, aim):
    found = [v for list_ in values.values() for v in list_]
    if not found:
        return ""
    reached = (lambda goal: max(found) <= -goal) if must < 0 else (lambda goal: min(found) >= goal)
    return "aim" if reached(aim) else "must" if reached(must) else "missed"


def markdown(rows):
    lines = ["| what | must | aim | 1 thread | 2 threads | lowest reaches |", "|---|---|---|---|---|---|"]
    for what, unit, must, aim, values in rows:
        sign = "≤ " if must < 0 else ""
        lines.append(f"| {what} | {sign}{abs(must):g} {unit} | {sign}{abs(aim):g} {unit} | {cell(values[1], unit)} | "
                     f"{cell(values[2], unit)} | {verdict(values, must, aim)} |")
    return "\n".join(lines)


def svg(rows):
    """A bar from the lowest to the highest share, a tick at must, a longer one at aim."""
    bars = [r for r in rows if r[1] == "%" and any(r[4].values())]
    left, scale, height = 400, 5, 20
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + 100 * scale + 30}" height="{height * (len(bars) + 2)}" '
           'font-family="sans-serif" font-size="12">', '<rect width="100%" height="100%" fill="white"/>']
    for share in range(0, 101, 20):
        x = left + share * scale
        out.append(f'<line x1="{x}" y1="{height}" x2="{x}" y2="{height * (len(bars) + 1)}" stroke="#ddd"/>'
                   f'<text x="{x}" y="14" text-anchor="middle" fill="#555">{share} %</text>')
    for i, (what, _, must, aim, values) in enumerate(bars):
        y, found = height * (i + 1), [min(v, 100) for list_ in values.values() for v in list_]
        color = {"aim": "#2a7", "must": "#48c", "missed": "#c53"}[verdict(values, must, aim)]
        width = max((max(found) - min(found)) * scale, 3)
        out.append(f'<text x="{left - 8}" y="{y + 14}" text-anchor="end">{what.replace("`", "")}</text>'
                   f'<rect x="{left + min(found) * scale:.0f}" y="{y + 5}" width="{width:.0f}" height="10" fill="{color}"/>')
        for goal, extra in ((must, 0), (aim, 3)):
            x = left + abs(goal) * scale
            out.append(f'<line x1="{x}" y1="{y + 4 - extra}" x2="{x}" y2="{y + 16 + extra}" stroke="black"/>')
    return "\n".join([*out, "</svg>"]) + "\n"


def limits_text():
    """What the machine reached, from all kernel parts."""
    lines = [r for name in parts() for r in load(name).get("results", []) if r.get("from_memory")]
    texts = []
    for t in (1, 2):
        own = [r for r in lines if r["threads"] == t]
        if own:
            best = {key: max(r.get(key, 0) for r in own) for key in ("read_bytes_per_s", "tile_flops")}
            best["fma"] = max(r["fma_flops"] for r in own)
            texts.append(f"{t} threads: reading {best['read_bytes_per_s'] / 1e9:.1f} GB/s, FMA {best['fma'] / 1e12:.2f} TFLOP/s, tiles "
                         f"{best['tile_flops'] / 1e12:.2f} TFLOP/s.")
    return " ".join(texts)


def machine_text():
    features = [f for f in ("avx512_vnni", "amx_bf16") if f in open("/proc/cpuinfo", encoding="utf-8").read()]
    measured = json.loads((FOLDER / "measured").read_text()) if (FOLDER / "measured").exists() else {}
    return f"{cpu_name()} ({', '.join(features)}). Last part measured: {measured.get('when', 'none')}."


def render():
    rows = table()
    write_between(PAGE, BEGIN, END, f"{machine_text()} {limits_text()}\n\n{markdown(rows)}")
    PICTURE.write_text(svg(rows), encoding="utf-8")
    print(markdown(rows))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default=str(ROOT / "build/release/deepinfer"))
    parser.add_argument("--prefix", default="")
    parser.add_argument("--ggml")
    parser.add_argument("--only", type=lambda text: text.split(","))
    parser.add_argument("--render", action="store_true")
    options = parser.parse_args()
    if not options.render:
        measure(options)
    render()


if __name__ == "__main__":
    main()
