"""Ranks that are killed, stopped, late or do something else: every other one says who and where, and all end."""
import os
import random
import re
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from program import DEMO, PROGRAM, ROOT, environment, is_running, mpirun

PROBE = ROOT / "build/release/src/parallel/mpi_probe"
DEADLINE_S = 1.5
SLACK_S = 5
START_S = 6  # until the first call, beside other tests
SEED = 41

# What happens to a rank, and what the others must say: its number is in place of {}.
HAPPENINGS = {
    "kill": r"call \d+ of .* \(\w+, \d+ bytes\): expected \d \w+ within \d+ ms, missing .*\b{}\b",
    "stop": r"call \d+ of .* \(\w+, \d+ bytes\): expected \d \w+ within \d+ ms, missing .*\b{}\b",
    "delay": r"call \d+ of .* \(\w+, \d+ bytes\): expected \d \w+ within \d+ ms, missing .*\b{}\b",
    "leave": r"rank {}: the victim has other plans",
    # Who is missing depends on who waits for whom then.
    "other": r"call \d+ of .* (expected \d \w+ within \d+ ms, missing|rank \d calls \w+ with)",
    "skip": r"call \d+ of .* (expected \d \w+ within \d+ ms, missing|rank \d calls \w+ with)",
}


def run_probe(ranks, what, victim, at, calls, seed, ranks_per_host):
    command = mpirun(ranks)[:-1] + [PROBE, what, victim, at, calls, seed, int(DEADLINE_S * 1000), ranks_per_host]
    begin = time.monotonic()
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=60, env=environment(),
                            check=False)
    sentences = {int(rank): text for rank, text in re.findall(r"^rank (\d): (.*)$", result.stderr, re.M)}
    return result, sentences, time.monotonic() - begin


def at_once(probes):
    with ThreadPoolExecutor(3) as pool:
        return list(pool.map(lambda probe: (probe, *run_probe(*probe)), probes))


def test_words_arrive_whatever_ranks_share_a_host():
    probes = [(ranks, "none", 0, 0, 60, SEED + ranks, per_host)
              for ranks, per_host in ((1, 0), (2, 0), (7, 0), (2, 1), (5, 2))]
    for probe, result, sentences, _ in at_once(probes):
        assert result.returncode == 0, (probe, result.stderr)
        assert not sentences


def test_every_living_rank_says_who_is_missing():
    draw = random.Random(SEED)
    probes = [(4, what, draw.randrange(4), draw.randrange(5, 60), 200, draw.randrange(1000), per_host)
              for what in HAPPENINGS for per_host in ((0, 2) if what in ("kill", "stop", "other") else (0,))]
    for probe, result, sentences, seconds in at_once(probes):
        _, what, victim, *_, per_host = probe
        assert result.returncode != 0, probe
        assert seconds < START_S + DEADLINE_S + SLACK_S, (probe, seconds)
        assert set(sentences) >= set(range(4)) - ({victim} if what in ("kill", "stop") else set()), (probe, result.stderr)
        # Of another host only its leader is known, the first of its two ranks.
        missing = victim if per_host == 0 else f"({victim}|{victim // 2 * 2})"
        for rank, sentence in sentences.items():
            if what != "leave" or rank != victim:
                assert re.search(HAPPENINGS[what].replace("{}", str(missing)), sentence), (probe, sentence)


def test_a_process_that_ends_before_it_has_begun():
    command = mpirun(1)[:-1] + [PROBE, "begin", 0, 0, 1, SEED, 2000, 0, ":", "-n", 1, "true"]
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=30, env=environment(),
                            check=False)
    assert result.returncode == 2
    assert "deepinfer: MPI: expected all ranks to begin, found some missing" in result.stderr


@pytest.mark.parametrize("ranks, victim, sign", [(4, 2, signal.SIGKILL), (3, 1, signal.SIGSTOP), (3, 0, signal.SIGSTOP)])
def test_a_rank_that_is_lost_ends_an_answer(ranks, victim, sign):
    layout = ["--layout", "ep" if ranks == 3 else "tp"]
    model = ROOT / "build/testdata/checkpoints/tiny-odd" if ranks == 3 else DEMO
    args = ["generate", "--model", model, "--prompt-ids", "[0,17,40]", "--max-tokens", 1900, "--ignore-eos",
            "--threads", 1, "--rank-timeout", 1, "--max-model-len", 2048, "--speculative", "off", *layout]
    process = subprocess.Popen(mpirun(ranks, *args), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env=environment())
    try:
        assert process.stdout.read(8)  # the answer has begun
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert len(children) == ranks
        time.sleep(random.Random(SEED + victim).random() / 4)
        os.kill(int(children[victim]), sign)
        begin = time.monotonic()
        _, stderr = process.communicate(timeout=30)
        assert process.returncode != 0
        assert time.monotonic() - begin < 1 + SLACK_S
        state = "its process is gone" if sign == signal.SIGKILL else "stopped"
        said = re.findall(rf"^deepinfer: (?:prompt 1: )?call \d+ of .* missing (?:.*, )?{victim} \({state}\)", stderr, re.M)
        assert len(said) >= ranks - 1, stderr
        while any(is_running(child) for child in children):
            assert time.monotonic() - begin < 1 + SLACK_S
            time.sleep(0.1)
    finally:
        process.kill()
        process.stdout.close()
        process.stderr.close()
