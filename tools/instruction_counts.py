#!/usr/bin/env python3
"""Counts the instructions of every kernel with valgrind and compares them with the stored numbers.

usage: instruction_counts.py build/release/kernel_instructions [--refresh]

More than 2 % more or fewer is a failure: a slower kernel, or a faster one whose numbers should be stored (--refresh, in the same
commit). The numbers belong to one compiler version; another one is refused, since nothing could be learned from the difference.
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

STORED = pathlib.Path(__file__).parents[1] / "src/bench/instruction_counts.json"
TOLERANCE = 0.02


def measure(program):
    """-> {"compiler": version, "counts": {"<level> <op> <rows>": instructions}}"""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "out")
        run = subprocess.run(["valgrind", "-q", "--tool=callgrind", "--toggle-collect=MeasuredRun", "--dump-after=MeasuredRun",
                              f"--callgrind-out-file={out}", program], capture_output=True, text=True, check=False)
        if run.returncode != 0:
            sys.exit(f"{program}: {run.stderr[-2000:]}")
        compiler, *names = run.stdout.splitlines()
        counts = {}
        for i, name in enumerate(names, 1):
            counts[name] = int(re.search(r"^summary: (\d+)$", out.with_suffix(f".{i}").read_text(), re.M)[1])
    return {"compiler": compiler, "counts": counts}


def differences(stored, found):
    """Sentences about what is not as stored."""
    if stored["compiler"] != found["compiler"]:
        return [f"counts are stored for {stored['compiler']}, this build is by {found['compiler']}"]
    before, now = stored["counts"], found["counts"]
    lines = [f"{name}: only {'stored' if name in before else 'measured'}" for name in sorted(before.keys() ^ now.keys())]
    for name in sorted(before.keys() & now.keys()):
        change = now[name] / before[name] - 1
        if abs(now[name] - before[name]) > TOLERANCE * before[name]:
            lines.append(f"{name}: {now[name]} instructions, stored {before[name]} ({100 * change:+.1f} %)")
    return lines


def main():
    program, refresh = sys.argv[1], sys.argv[2:] == ["--refresh"]
    found = measure(program)
    if refresh:
        STORED.write_text(json.dumps(found, indent=1) + "\n")
        return
    lines = differences(json.loads(STORED.read_text()), found)
    if lines:
        sys.exit("\n".join(lines) + f"\nIf this is meant: tools/instruction_counts.py {program} --refresh")
    print(f"{len(found['counts'])} counts within {100 * TOLERANCE:.0f} %")


if __name__ == "__main__":
    main()
