#!/usr/bin/env python3
"""Measures what draft tokens gain at planted acceptance, and writes the table and the picture of docs/speculative.md.

usage: draft_table.py [--program P] [--prefix CMD] [--only "PART;..."] [--render]

Parts of about 100 s, named OVERLAP_TAU,..._SEED: the model is loaded once for each (4 s). Results lie in build/drafts/PART.json; a part
that is cut short keeps what it has. --prefix: a command in front of every measurement, for example one that waits until the machine is
idle. --render: writes the page again without measuring. Takes 8 GB of memory.
"""
import argparse
import datetime
import json
import pathlib
import subprocess
import sys

from pages import cpu_name, write_between

ROOT = pathlib.Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build/drafts"
PAGE, PICTURE = ROOT / "docs/speculative.md", ROOT / "docs/speculative.svg"
BEGIN, END = "<!-- table: tools/draft_table.py -->", "<!-- end of table -->"
MODEL = "layers=8,experts=36,vocab=26000"
PARTS = [f"{overlap}_1.3,2,2.75,4.5,5.5_{seed}" for seed in (1, 2) for overlap in ("0", "0.3")]


def measure(options):
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in PARTS:
        overlap, taus, seed = name.split("_")
        if options.only and name not in options.only:
            continue
        path = FOLDER / f"{name}.json"
        path.unlink(missing_ok=True)
        command = [*options.prefix.split(), options.program, "bench", "drafts", "--synthetic", MODEL, "--routing", "uniform",
                   "--routing-overlap", overlap, "--tau", taus, "--seed", seed, "--seconds", "18", "--json", str(path)]
        print("==", *command, flush=True)
        if subprocess.run(command, check=False).returncode != 0:
            print(f"{name}: left out", file=sys.stderr)


def load():
    files = [FOLDER / f"{name}.json" for name in PARTS]
    return [json.loads(path.read_text()) for path in files if path.exists()]


def cells(runs):
    """A list for each tau and overlap: its runs, with different acceptance."""
    found = {}
    for run in runs:
        for cell in run["cells"]:
            found.setdefault((run["overlap"], cell["tau"]), []).append({"overlap": run["overlap"], **cell})
    return [found[key] for key in sorted(found)]


def mean(cell, key):
    return sum(run[key] for run in cell) / len(cell)


def shares(name, values):
    return (f"{name}: {values['step_bytes'] / 1e9:.2f} GB a plain step, of that the head {100 * values['head']:.1f} %, a draft "
            f"{100 * values['draft']:.1f} %, rows for the stages {100 * values['draft_rows']:.1f} %.")


def machine():
    newest = max(path.stat().st_mtime for path in FOLDER.glob("*.json"))
    return f"{cpu_name()}, {datetime.date.fromtimestamp(newest)}"


def markdown(runs):
    lines = [f"{machine()}, `{runs[0]['isa']}`, {runs[0]['threads']} threads, `--synthetic {MODEL}`. {shares('This model', runs[0]['shares'])} "
             f"{shares('Released', runs[0]['released_shares'])}", "",
             "| tau | overlap | plain step | spread | tokens a step | gain (of each run) | of a fixed depth | promised (depth) | gain / promised | released: promised |",
             "|---|---|---|---|---|---|---|---|---|---|"]
    for cell in cells(runs):
        c, gains = cell[0], ", ".join(f"{run['gain']:.2f}" for run in cell)
        lines.append(f"| {c['tau']:g} | {c['overlap']:g} | {mean(cell, 'plain_step_s') * 1e3:.0f} ms | {100 * mean(cell, 'plain_spread'):.1f} % | "
                     f"{mean(cell, 'tokens_per_step'):.2f} | {mean(cell, 'gain'):.2f} ({gains}) | {mean(cell, 'fixed_gain'):.2f} | {mean(cell, 'promised'):.2f} ({c['promised_depth']}) | "
                     f"{mean(cell, 'ratio'):.2f} | {c['released_promised']:.2f} ({c['released_depth']}) |")
    return "\n".join(lines)


def svg(found):
    """Gain over tau: promised as a line, measured as points, a colour for each overlap."""
    width, height, left, bottom = 520, 300, 50, 260

    def x(tau):
        return left + (tau - 1) * 90

    def y(gain):
        return bottom - (gain - 0.5) * 110

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="12">',
           '<rect width="100%" height="100%" fill="white"/>']
    for gain in (0.5, 1, 1.5, 2, 2.5):
        out.append(f'<line x1="{left}" y1="{y(gain):.0f}" x2="{x(6):.0f}" y2="{y(gain):.0f}" stroke="{"#888" if gain == 1 else "#ddd"}"/>'
                   f'<text x="{left - 6}" y="{y(gain) + 4:.0f}" text-anchor="end">{gain:g} x</text>')
    for tau in range(1, 7):
        out.append(f'<text x="{x(tau):.0f}" y="{bottom + 18}" text-anchor="middle">{tau}</text>')
    out.append(f'<text x="{x(3.5):.0f}" y="{bottom + 34}" text-anchor="middle">tokens a verification of five drafts</text>')
    for i, (overlap, color) in enumerate((("0", "#48c"), ("0.3", "#2a7"))):
        own = [cell for cell in found if f"{cell[0]['overlap']:g}" == overlap]
        line = " ".join(f"{x(c[0]['tau']):.0f},{y(mean(c, 'promised')):.0f}" for c in own)
        out.append(f'<polyline points="{line}" fill="none" stroke="{color}"/>'
                   f'<text x="{left + 20}" y="{24 + 16 * i}" fill="{color}">overlap {overlap}: line promised, points measured</text>')
        out += [f'<circle cx="{x(run["tau"]):.0f}" cy="{y(run["gain"]):.0f}" r="3" fill="{color}"/>' for c in own for run in c]
    return "\n".join([*out, "</svg>"]) + "\n"


def render():
    runs = load()
    write_between(PAGE, BEGIN, END, markdown(runs))
    PICTURE.write_text(svg(cells(runs)), encoding="utf-8")
    print(markdown(runs))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default=str(ROOT / "build/release/deepinfer"))
    parser.add_argument("--prefix", default="")
    parser.add_argument("--only", type=lambda text: text.split(";"))
    parser.add_argument("--render", action="store_true")
    options = parser.parse_args()
    if not options.render:
        measure(options)
    render()


if __name__ == "__main__":
    main()
