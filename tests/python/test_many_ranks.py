"""64 ranks on however few cores: an answer of a small checkpoint with 64 experts is that of one rank."""
import subprocess

import pytest

import many_experts
from program import ROOT, environment, generate, mpirun
from test_ranks import answer

RANKS = 64
ARGS = ["--prompt-ids", "[0,17,40,300,301,302,303,304]", "--max-tokens", 16, "--ignore-eos", "--temperature", 0, "--logprobs", 20,
        "--max-num-seqs", 1, "--max-num-batched-tokens", 16, "--max-model-len", 64]


@pytest.fixture(scope="module", name="model")
def fixture_model(tmp_path_factory):
    model = tmp_path_factory.mktemp("many") / "model"
    many_experts.main(ROOT / "build/testdata/checkpoints/tiny", model, 64)
    return model


def run(model, *layout):
    command = mpirun(RANKS, "generate", "--model", model, "--json", "--threads", 1, "--layout", *layout, *ARGS)
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment(), check=False)


def test_every_layout_that_fits_gives_the_tokens_and_log_probabilities_of_one_rank(model):
    want = answer(generate(*ARGS, model=model))
    for layout in (["tp8r"], ["ep"], ["dp"], ["tp", "--cp", 8]):
        result = run(model, *layout)
        assert result.returncode == 0, result.stderr
        assert answer(result.stdout) == want, layout


def test_a_layout_that_does_not_fit_is_refused_by_name(model):
    result = run(model, "tp")
    assert result.returncode == 2
    assert "--layout tp on 64 ranks: expected a number of ranks that divides the 8 heads" in result.stderr
