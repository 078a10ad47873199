"""Commands on several ranks, as processes of mpirun: they do what they do on one."""
import json
import os
import signal
import subprocess
import time

import openai
import pytest

import test_serve
from program import DEMO, PROGRAM, ROOT, assert_fails, children, environment, is_running, mpirun, run, start
from serving import Server

GOLDEN, CHECKPOINTS = ROOT / "build/testdata/golden", ROOT / "build/testdata/checkpoints"


def on_ranks(ranks, *args, **kwargs):
    return subprocess.run(mpirun(ranks, *args), capture_output=True, text=True, timeout=120, env=environment(),
                          check=False, **kwargs)


# ---- serve ----

@pytest.fixture(scope="module", name="server", params=[2, 4])
def _server(request):
    with Server("--served-model-name", "demo", ranks=request.param) as server:
        yield server
        assert server.stop() == 0


@pytest.fixture(scope="module", name="client")
def _client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


@pytest.mark.parametrize("test", [
    test_serve.test_an_answer_is_that_of_generate, test_serve.test_a_stream_is_the_whole_reply_in_pieces,
    test_serve.test_prompts_may_be_ids_and_many, test_serve.test_logprobs_of_the_prompt,
    test_serve.test_a_client_that_leaves_frees_its_place, test_serve.test_mixed_lengths_alone_and_together,
], ids=lambda test: test.__name__)
def test_the_server_answers_as_on_one_rank(test, server, client):
    arguments = {"client": client, "server": server}
    test(**{name: arguments[name] for name in test.__code__.co_varnames[:test.__code__.co_argcount]})


def test_what_ranks_have_computed_is_not_computed_again(client):
    prompt = "A stone " * 60
    first, second = (client.completions.create(model="demo", prompt=prompt, max_tokens=8, temperature=0, logprobs=1)
                     for _ in range(2))
    assert first.usage.prompt_tokens_details.cached_tokens == 0
    assert second.usage.prompt_tokens_details.cached_tokens >= 64
    assert first.choices[0].text == second.choices[0].text
    assert first.choices[0].logprobs == second.choices[0].logprobs


def test_a_server_that_cannot_load_ends_all():
    result = on_ranks(2, "serve", DEMO, "--port", 0, "--ep", 3)
    assert result.returncode == 2
    assert "--ep: expected 2" in result.stderr


# ---- the others ----

@pytest.mark.parametrize("ranks", [2, 4])
def test_golden_files(ranks):
    args = ["verify", "--model", CHECKPOINTS / "tiny", "--golden", GOLDEN, "--threads", 1]
    alone, result = run(*args), on_ranks(ranks, *args)
    assert alone.returncode == result.returncode == 0, result.stderr
    assert result.stdout == alone.stdout


def test_chat():
    args = ["chat", "--model", DEMO, "--threads", 1, "--temperature", 0, "--max-tokens", 20, "--no-thinking"]
    lines = "What colour is the sky?\nAnd the sea?\n"
    alone, result = run(*args, input=lines), on_ranks(2, *args, input=lines)
    assert result.returncode == 0, result.stderr
    assert result.stdout == alone.stdout


@pytest.mark.parametrize("args", [
    ("step", "--rows", "1,3", "--context", "64", "--seconds", "0"),
    ("latency", "--input-lens", "64", "--output-len", "8", "--num-prompts", "1"),
    ("throughput", "--batch-sizes", "1,2", "--output-len", "8", "--input-len", "16"),
], ids=lambda args: args[0])
def test_measurements(args, tmp_path):
    result = on_ranks(2, "bench", *args, "--model", DEMO, "--threads", 1, "--json", tmp_path / "out.json")
    assert result.returncode == 0, result.stderr
    assert json.loads((tmp_path / "out.json").read_text())["threads"] == 1


def test_help_is_printed_once():
    result = on_ranks(2, "generate", "--help")
    assert result.returncode == 0 and result.stdout == run("generate", "--help").stdout


@pytest.mark.parametrize("args, sentence", [
    (["inspect", "--model", DEMO], 'found "inspect"'),
    (["bench", "kernels"], 'found "bench kernels"'),
    (["generate", "--model", DEMO, "--prompt", "a", "--layout", "tp", "--tensor-parallel-size", 4],
     "--tensor-parallel-size: expected 2 (--layout tp on 2 ranks"),
    (["generate", "--model", DEMO, "--prompt", "a", "--ep", 4, "--enable-expert-parallel"], "--ep: expected 2"),
])
def test_what_ranks_cannot_do_is_refused_by_name(args, sentence):
    result = on_ranks(2, *args)
    assert result.returncode == 2, result.stderr
    assert sentence in result.stderr
    assert result.stdout == ""


def test_the_names_of_sizes_that_agree():
    args = ["generate", "--model", DEMO, "--prompt", "In the beginning", "--max-tokens", 4, "--temperature", 0]
    sizes = ["--tensor-parallel-size", 1, "--ep", 2, "--enable-expert-parallel", "--layout", "ep"]
    assert on_ranks(2, *args, *sizes).stdout == run(*args).stdout


# ---- --ranks: no command line for mpirun ----

GENERATE = ("generate", "--model", DEMO, "--temperature", 0, "--prompt", "In the beginning")


@pytest.mark.parametrize("ranks", [1, 2, 4, "auto"])
def test_ranks_are_started(ranks):
    result = run(*GENERATE, "--max-tokens", 6, "--ranks", ranks)
    assert result.returncode == 0 and len(result.stderr.splitlines()) == 1, result.stderr
    assert result.stdout == run(*GENERATE, "--max-tokens", 6).stdout


def test_input_and_the_other_commands_on_started_ranks(tmp_path):
    args = ["generate", "--model", DEMO, "--temperature", 0, "--max-tokens", 6, "--prompt-file", "-"]
    assert run(*args, "--ranks", 2, input="A stone").stdout == run(*args, input="A stone").stdout
    result = run("bench", "latency", "--model", DEMO, "--threads", 1, "--ranks", 2, "--input-lens", 16, "--num-prompts", 1,
                 "--output-len", 4, "--json", tmp_path / "out.json")
    assert result.returncode == 0, result.stderr
    assert json.loads((tmp_path / "out.json").read_text())["threads"] == 1


@pytest.mark.parametrize("ranks", ["0", "two", "-2", "1025"])
def test_numbers_of_ranks_that_are_none(ranks):
    assert_fails(run(*GENERATE, f"--ranks={ranks}"), "--ranks: expected auto or an integer from 1 to 1024", f'"{ranks}"')


def test_no_mpirun():
    assert_fails(run(*GENERATE, "--ranks", 2, env={"PATH": "/nowhere"}), "--ranks: expected mpirun (Open MPI)")


def test_ranks_inside_an_mpirun_must_be_its_own():
    assert on_ranks(2, *GENERATE, "--max-tokens", 6, "--ranks", 2).returncode == 0
    result = on_ranks(2, *GENERATE, "--ranks", 3)
    assert result.returncode == 2 and "--ranks: expected 2" in result.stderr


@pytest.mark.parametrize("args", [("inspect", "--model", DEMO), ("bench", "kernels")],
                         ids=lambda args: args[0])
def test_commands_that_load_no_model_know_no_ranks(args):
    assert_fails(run(*args, "--ranks", 2), "--ranks")


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT], ids=lambda s: s.name)
def test_a_signal_ends_a_server_on_started_ranks_as_one_on_one(stop):
    with Server("--served-model-name", "demo", "--ranks", 2, ranks=1) as server:
        reply = server.post("/v1/completions", {"model": "demo", "prompt": "In the beginning", "max_tokens": 4})
        assert reply["choices"][0]["text"]
        ranks = children(*children(server.process.pid))
        assert len(ranks) == 2
        server.process.send_signal(stop)
        assert server.process.wait(timeout=60) == 0
        assert not any(is_running(r) for r in ranks)


def test_ctrl_c_prints_what_there_is():
    process = start(*GENERATE, "--max-tokens", 2000, "--ignore-eos", "--ranks", 2, stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout.read(1)
    os.killpg(process.pid, signal.SIGINT)    # as a terminal does: also to mpirun
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert out.endswith("\n")


def test_ranks_end_with_the_process_that_started_them():
    with Server("--ranks", 2, ranks=1) as server:
        mpi = children(server.process.pid)
        ranks = children(*mpi)
        server.process.kill()
        end = time.monotonic() + 20
        while any(is_running(p) for p in mpi + ranks):
            assert time.monotonic() < end
            time.sleep(0.05)


def test_ranks_end_where_ended_children_are_ignored():
    command = [PROGRAM, *map(str, GENERATE), "--max-tokens", "4", "--ranks", "2"]
    done = subprocess.run(["bash", "-c", "trap '' CHLD; exec \"$0\" \"$@\"", *command], capture_output=True, timeout=60,
                          env=environment(), check=False)
    assert done.returncode == 0, done.stderr
