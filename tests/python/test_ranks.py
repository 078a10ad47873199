"""The program on several ranks, as processes of mpirun."""
import json
import re
import subprocess

import pytest

from program import DEMO, environment, generate, mpirun

PROMPT = ["--prompt", "In the beginning God created the heaven and the earth.", "--max-tokens", 24]


def on_ranks(ranks, *args):
    return subprocess.run(mpirun(ranks, *args), capture_output=True, text=True, timeout=120,
                          env=environment(), check=False)


def answer(result):
    sequences = json.loads(result)["sequences"] if isinstance(result, str) else result["sequences"]
    return [{k: s[k] for k in ("token_ids", "logprobs", "text")} for s in sequences]


@pytest.mark.parametrize("sampling", [["--temperature", 0], ["--temperature", 0.8, "--seed", 5]])
def test_an_answer_is_that_of_one_rank(sampling):
    args = [*PROMPT, "--prompt-ids", "[0,17,40]", *sampling, "--logprobs", 3, "--ignore-eos"]
    want = answer(generate(*args))
    for ranks, layout in ((1, "tp"), (2, "ep"), (2, "dp"), (2, "tp"), (4, "tp"), (8, "tp8r")):
        result = on_ranks(ranks, "generate", "--model", DEMO, "--json", "--threads", 1, "--layout", layout, *args)
        assert result.returncode == 0, result.stderr
        assert answer(result.stdout) == want, (ranks, layout)


@pytest.mark.parametrize("args, ranks, sentence", [
    (["generate", "--model", DEMO, *PROMPT], 3, "divides the 16 experts"),
    (["generate", "--model", DEMO, *PROMPT, "--max-tokens", 0], 2, "max-tokens"),
])
def test_what_ranks_cannot_do_is_refused_by_name(args, ranks, sentence):
    result = on_ranks(ranks, *args)
    assert result.returncode == 2, result.stderr
    assert sentence in result.stderr
    assert result.stdout == ""


def test_a_profile_tells_what_ranks_exchange():
    result = on_ranks(2, "generate", "--model", DEMO, "--threads", 1, "--profile", *PROMPT)
    assert result.returncode == 0, result.stderr
    line = re.search(r"^exchanges: ([\d.]+) calls, ([\d.]+) MB, ([\d.]+) ms of which ([\d.]+) waiting in each of (\d+) steps$",
                     result.stderr, re.M)
    assert line, result.stderr
    assert all(float(figure) > 0 for figure in line.groups())
    assert float(line[4]) < float(line[3])


def test_partial_sums_of_processes():
    """One rank has its bits, a layout has the same every time, and without roundings the tokens are those of one rank."""
    args = [*PROMPT, "--prompt-ids", "[0,17,40]", "--temperature", 0, "--logprobs", 3, "--ignore-eos", "--numerics", "fp32"]

    def fast(ranks, layout):
        result = on_ranks(ranks, "generate", "--model", DEMO, "--json", "--threads", 1, "--layout", layout, "--reduce", "fast", *args)
        assert result.returncode == 0, result.stderr
        return answer(result.stdout)
    want = answer(generate(*args))
    assert fast(1, "tp") == want
    for ranks, layout in ((2, "tp"), (4, "tp"), (4, "ep")):
        got = fast(ranks, layout)
        assert fast(ranks, layout) == got, (ranks, layout)
        assert [s["token_ids"] for s in got] == [s["token_ids"] for s in want], (ranks, layout)
