#!/usr/bin/env python3
"""Checks that objects hold no instruction above their instruction set level.

usage: check_isa.py BUILD_DIR      an ordinary (not sanitized) build; reads the objects under BUILD_DIR/src

Objects in .../avx2/, .../avx512/ and .../amx/ belong to that level, all others to the baseline of x86-64, which knows SSE2
only. VEX and EVEX encoded instructions are told by their first byte, the rest by name.
"""
import pathlib
import re
import subprocess
import sys

LEVELS = ["baseline", "avx2", "avx512", "amx"]  # lowest first

# What a name means, for instructions that encoding does not tell apart: the first level that may use it, None: no level.
NAMES = [
    ("amx", re.compile(r"(ldtilecfg|sttilecfg|tileload\w*|tilestore\w*|tilezero|tilerelease|tdpbf16ps|tdpb[us][us]d)$")),
    (None, re.compile(r"(tdpfp16ps|tcmm\w+)$")),
    (None, re.compile(r"v(dpbf16|cvtne2?ps2?bf16|cvtneps2bf16|\w*(?<!cvt)ph$|fmadd\w+[ps]h$)")),  # AVX512-BF16, FP16
    (None, re.compile(r"v(pcompress[bw]|pexpand[bw]|psh[lr]dv?[wdq]|popcnt[bwdq]|pshufbitqmb|pmadd52\w+|gf2p8\w+|p4dp\w+)$")),
]
EVEX_OF_F16C = {"vcvtph2ps", "vcvtps2ph"}  # half floats of AVX512F
PREFIXES = {"67", "66", "2e", "36", "3e", "26", "64", "65", "f2", "f3"}
LINE = re.compile(r"^\s*[0-9a-f]+:\t([0-9a-f ]+)\t(?:\{\w+\} )?(\S+)")


def least_level(encoded, name):
    """The lowest level that may hold the instruction, or None if no level may."""
    for level, pattern in NAMES:
        if name not in EVEX_OF_F16C and pattern.match(name):
            return level
    first = next((b for b in encoded.split() if b not in PREFIXES), "")
    return {"62": "avx512", "c4": "avx2", "c5": "avx2"}.get(first, "baseline")


def level_of(path):
    return next((level for level in LEVELS[1:] if level in path.parts), "baseline")


def problems(disassembly, level):
    """-> (number of instructions, list of lines that `level` may not hold)."""
    n, found = 0, []
    for line in disassembly.splitlines():
        match = LINE.match(line)
        if not match:
            continue
        n += 1
        least = least_level(match[1], match[2])
        if least is None or LEVELS.index(least) > LEVELS.index(level):
            found.append(line.strip())
    return n, found


def check(build):
    counts, bad = dict.fromkeys(LEVELS, 0), []
    for path in sorted(pathlib.Path(build, "src").rglob("*.o")):
        if path.name.endswith("_test.cc.o"):
            continue
        level = level_of(path.relative_to(build))
        text = subprocess.run(["objdump", "-dw", str(path)], capture_output=True, text=True, check=True).stdout
        n, found = problems(text, level)
        counts[level] += n
        bad += [f"{path}: level {level}: {line}" for line in found]
    return counts, bad


def main():
    counts, bad = check(sys.argv[1])
    print("\n".join(bad[:50]) or "instructions, all of them allowed: " +
          ", ".join(f"{level} {counts[level]}" for level in LEVELS))
    sys.exit(1 if bad or not all(counts.values()) else 0)


if __name__ == "__main__":
    main()
