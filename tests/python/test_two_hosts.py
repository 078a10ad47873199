"""The program on the ranks of two hosts, between which only TCP passes (two_hosts.sh)."""
import os
import re
import subprocess
import time
import warnings
from pathlib import Path

import pytest

from program import DEMO, PROGRAM, environment, generate, mpirun
from test_rank_liveness import PROBE
from test_ranks import answer

SCRIPT = Path(__file__).parent / "two_hosts.sh"
NAME = f"di{os.getpid() % 1000000}"
TIMEOUT_S = 2


def two_hosts(*args):
    return [SCRIPT, NAME, *map(str, args)]


@pytest.fixture(name="cable")
def fixture_cable():
    """False: this machine has no network namespaces."""
    result = subprocess.run(two_hosts("up"), capture_output=True, text=True, check=False)
    if result.returncode == 3:
        warnings.warn(result.stderr)
        yield False
        return
    assert result.returncode == 0, result.stderr
    yield True
    subprocess.run(two_hosts("down"), check=True)


def test_answers_are_those_of_one_rank_until_the_cable_is_cut(cable):
    if not cable:  # pretended hosts, TCP within this machine
        command = mpirun(4)
        probe = [*command[:-1], "--mca", "btl", "tcp,self", PROBE, "none", "0", "0", "60", "1", "9000", "2"]
        subprocess.run(list(map(str, probe)), check=True, timeout=60, env=environment())
        return
    args = ["--prompt", "In the beginning", "--prompt-ids", "[0,17,40]", "--max-tokens", 24, "--temperature", 0,
            "--logprobs", 3, "--ignore-eos"]
    result = subprocess.run(two_hosts("run", PROGRAM, "generate", "--model", DEMO, "--json", "--threads", 1, "--profile", *args),
                            capture_output=True, text=True, timeout=60, env=environment(), check=False)
    assert result.returncode == 0, result.stderr
    assert answer(result.stdout) == answer(generate(*args))
    assert float(re.search(r"ms of which ([\d.]+) waiting", result.stderr)[1]) > 0  # within the hosts

    args = ["--prompt", "In", "--max-tokens", 1900, "--ignore-eos", "--threads", 1, "--rank-timeout", TIMEOUT_S]
    process = subprocess.Popen(two_hosts("run", PROGRAM, "generate", "--model", DEMO, *args), text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
    try:
        assert process.stdout.read(8)  # the answer has begun
        subprocess.run(two_hosts("cut"), check=True)
        begin = time.monotonic()
        _, stderr = process.communicate(timeout=30)
        assert process.returncode != 0
        assert time.monotonic() - begin < 15  # mpirun itself has to notice too
        said = re.findall(rf"^deepinfer: .*call \d+ of .* between hosts .* within 2000 ms, missing 2 \({NAME}-b\)", stderr,
                          re.M)
        assert len(said) == 2, stderr  # those of the other host cannot be heard any more
    finally:
        process.kill()
        process.stdout.close()
        process.stderr.close()
