#!/usr/bin/env python3
"""Checks that #include lines under src/ follow the layers of docs/architecture.md.

usage: check_layers.py SRC

A file may include its own folder, folders below it, leaves and base/. Files of an instruction set
(backend/cpu/<isa>/) are held to a short list, since an inline function they pull in could reach
machines that lack the instructions.
"""
import pathlib
import re
import sys

BACKENDS = ["backend/cpu", "backend/cuda"]
LEAVES = ["config", "checkpoint", "tokenizer", "chat", "grammar", "sampler", "kv", "store",
          "parallel", "planner", "obs"]

# Folder -> folders it may include, besides itself.
ALLOWED = {
    "base": [],
    **{leaf: ["base", "config", "obs"] for leaf in LEAVES},
    "store": ["base", "config", "obs", "checkpoint", "parallel"],
    "grammar": ["base", "config", "obs", "tokenizer"],
    **{backend: ["base", "ops"] for backend in BACKENDS},
    "ops": ["base", *LEAVES],
    "bench": ["base", "config", "obs", "ops", *BACKENDS],
    "model": ["base", *LEAVES, "ops", *BACKENDS],
    "engine": ["base", *LEAVES, "ops", *BACKENDS, "model"],
    "server": ["base", *LEAVES, "ops", *BACKENDS, "model", "engine"],
    "verify": ["base", *LEAVES, "ops", *BACKENDS, "model", "engine"],
    "cli": ["base", *LEAVES, "ops", *BACKENDS, "model", "engine", "server", "verify",
            "bench"],
}

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')
C_HEADERS = {"assert.h", "float.h", "inttypes.h", "limits.h", "math.h", "stdbool.h", "stddef.h",
             "stdint.h", "stdio.h", "stdlib.h", "string.h"}


def folder_of(path):
    """The layer a path relative to src/ belongs to, or None."""
    parts = path.split("/")
    for depth in (2, 1):
        if "/".join(parts[:depth]) in ALLOWED and len(parts) > depth:
            return "/".join(parts[:depth])
    return None


def isa_of(path):
    """The instruction set of a kernel file, "any" for text that several include, else None.

    generic/ runs everywhere and is an ordinary folder.
    """
    if re.fullmatch(r"backend/cpu/\w+\.inc\.h", path):
        return "any"
    match = re.match(r"backend/cpu/(\w+)/", path)
    return match[1] if match and match[1] != "generic" and not path.endswith("_test.cc") else None


def problem(path, own, system):
    """What is wrong with one include of `path`; either own ("...") or system (<...>) is set."""
    isa = isa_of(path)
    if isa and system and system != "immintrin.h" and system not in C_HEADERS:
        return f"<{system}>: files of an instruction set use <immintrin.h> and C headers only"
    if system:
        return None
    target, folder = folder_of(own), folder_of(path)
    if target is None:
        return f'"{own}": expected folder/file.h with a folder of src/'
    if isa:
        inside = own.startswith(f"backend/cpu/{isa}/") or re.fullmatch(r"backend/cpu/[^/]+", own)
        if not (inside or target == "ops" or own == "base/types.h"):
            return f'"{own}": files of an instruction set use ops/, base/types.h, their own folder'
    allowed = [folder, *ALLOWED[folder]]
    if path.endswith("_test.cc") and folder != "base":
        allowed += LEAVES
    return None if target in allowed else f'"{own}": {folder}/ may include {", ".join(allowed)}'


def check(src):
    """-> (number of files, list of problems as file:line: text)."""
    found, n_files = [], 0
    for file in sorted(src.rglob("*")):
        if file.suffix not in (".h", ".cc", ".cu", ".cuh"):
            continue
        n_files += 1
        path = file.relative_to(src).as_posix()
        if folder_of(path) is None:
            found.append(f"{path}: not in a folder of docs/architecture.md")
            continue
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            match = INCLUDE.match(line)
            text = match and problem(path, match[1], match[2])
            if text:
                found.append(f"{path}:{number}: {text}")
    return n_files, found


def main():
    n_files, found = check(pathlib.Path(sys.argv[1]))
    print("\n".join(found) or f"{n_files} files follow the layers")
    sys.exit(1 if found or n_files == 0 else 0)


if __name__ == "__main__":
    main()
