#!/usr/bin/env python3
"""Memory of the ranks of a synthetic model beside what `plan` says of their weights.

usage: rank_memory.py PROGRAM SYNTHETIC RANKS [OPTION...]

Runs `bench step` on RANKS ranks of one thread with further OPTIONs for both commands (--layout, --reduce, --engram), and reads
from /proc, while steps run that touch every expert, the anonymous memory that each rank really has: weights, caches, memory of
a step and the heap. A synthetic model has its Engram tables on every rank, so they are added to the plan.
"""
import json
import subprocess
import sys
import time
from pathlib import Path


def children(process):
    try:
        return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except OSError:
        return []


def resident(process):
    """Bytes of the largest anonymous mapping that are there, and of all of them."""
    largest, mapping = 0, False
    total = 0
    for line in Path(f"/proc/{process}/smaps").read_text().splitlines():
        word = line.split()
        if not word[0].endswith(":"):
            mapping = len(word) == 5  # no file
        elif mapping and word[0] == "Rss:":
            largest = max(largest, int(word[1]) << 10)
            total += int(word[1]) << 10
    return largest, total


def rank_of(process):
    variables = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    return next((int(v.split(b"=")[1]) for v in variables if v.startswith(b"OMPI_COMM_WORLD_RANK=")), -1)


def measure(command):
    """The last sample of every rank."""
    last = {}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            for rank in [r for mpirun in children(process.pid) for r in children(mpirun)]:
                try:
                    largest, total = resident(rank)
                    if largest > 1 << 26:
                        last[rank_of(rank)] = largest, total
                except OSError:
                    pass
            time.sleep(0.3)
    if process.returncode != 0:
        sys.exit(process.returncode)
    return last


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__.strip())
    program, model, ranks, *options = sys.argv[1:]
    shared = ["--synthetic", model, "--ranks", ranks, *options]
    plan = json.loads(subprocess.run([program, "plan", *shared, "--json"], capture_output=True, check=True).stdout)
    planned = plan["rank_total"] + plan["host_bytes"]
    last = measure([program, "bench", "step", *shared, "--threads", "1", "--routing", "uniform", "--rows", "256", "--context", "1000",
                    "--seconds", "6"])
    print(f"plan: {plan['rank_total'] / 2**30:.3f} GiB of rank 0, tables {plan['host_bytes'] / 2**30:.3f} GiB")
    for rank, (largest, total) in sorted(last.items()):
        print(f"rank {rank}: weights {largest / 2**30:.3f} GiB ({largest / planned:.4f} of the plan), all {total / 2**30:.3f} GiB")


if __name__ == "__main__":
    main()
