"""deepinfer generate from outside: every option has an effect, bad input ends in one sentence."""
import json
import re
import signal
import subprocess
from pathlib import Path

import pytest

from program import (DEMO, PROGRAM, Terminal, assert_fails, copy_model, environment, generate, run,
                     start)

GENESIS = ("--prompt", "In the beginning")
FRANCE = ("--prompt", "<｜User｜>What is the capital of France?<｜Assistant｜></think>")
GREEDY = ("--temperature", 0)
LONG = "In the beginning God created the heaven and the earth. " * 4


def only(result):
    (sequence,) = result["sequences"]
    return sequence


def ids(*args, **kwargs):
    return only(generate(*args, **kwargs))["token_ids"]


# ---- output ----

def test_json_schema():
    result = generate(*GENESIS, *GREEDY, "--max-tokens", 4, "--logprobs", 2)
    assert set(result) == {"sequences", "timing", "speculative"}
    sequence = only(result)
    assert set(sequence) == {"prompt_ids", "token_ids", "text", "finish_reason", "logprobs"}
    assert sequence["prompt_ids"] == [0, 1166, 261, 2996]
    assert sequence["token_ids"] == [14, 279, 304, 261]
    assert sequence["text"] == ", and in the"
    assert sequence["finish_reason"] == "length"
    assert len(sequence["logprobs"]) == 4
    for token, entry in zip(sequence["token_ids"], sequence["logprobs"]):
        assert set(entry) == {"id", "token", "logprob", "rank", "top"}
        assert entry["id"] == token and entry["rank"] == 1 and entry["logprob"] < 0
        assert [set(t) for t in entry["top"]] == [{"id", "token", "logprob"}] * 2
        assert entry["top"][0]["id"] == token and entry["top"][0]["logprob"] == entry["logprob"]
    assert "".join(e["token"] for e in sequence["logprobs"]) == sequence["text"]
    timing = result["timing"]
    assert set(timing) == {"prompt_tokens", "output_tokens", "prompt_tokens_per_s", "ttft_s", "tpot_s",
                           "bytes_per_token"}
    assert timing["prompt_tokens"] == 4 and timing["output_tokens"] == 4
    assert timing["ttft_s"] > 0 and timing["tpot_s"] > 0
    assert 1e6 < timing["bytes_per_token"] < 13.5e6  # fewer than the model has: 3 of 16 experts


def test_text_then_one_line_of_timing():
    result = run("generate", "--model", DEMO, *GENESIS, *GREEDY, "--max-tokens", 6)
    assert result.returncode == 0
    assert result.stdout == ", and in the day of\n"
    assert re.fullmatch(r"4 prompt tokens, [\d.]+ tokens/s; TTFT [\d.]+ ms; TPOT [\d.]+ ms \(6 tokens\); "
                        r"[\d.]+ MB read per token, [\d.]+ of the read bandwidth of [\d.]+ GB/s\n", result.stderr)


def test_text_appears_token_by_token():
    process = start("generate", "--model", DEMO, *GENESIS, *GREEDY, "--max-tokens", 40, stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE)
    with process:
        first = process.stdout.read1()
        rest = process.stdout.read()
    assert 0 < len(first) < len(rest)


def test_a_batch_prints_each_when_finished():
    args = ("generate", "--model", DEMO, *GREEDY, "--max-tokens", 20, *GENESIS, *FRANCE)
    genesis = only(generate(*GENESIS, *GREEDY, "--max-tokens", 20))["text"]
    expected = ["=== prompt 2 (stop)\nThe capital of France is Paris.\n", f"=== prompt 1 (length)\n{genesis}\n"]
    assert run(*args).stdout == "".join(expected)
    # One at a time, the first prompt is finished first.
    assert run(*args, "--max-num-seqs", 1).stdout == "".join(reversed(expected))


def test_sequences_keep_the_order_of_the_command_line(tmp_path):
    path = tmp_path / "prompt.txt"
    path.write_text("And the king said\n")
    result = generate("--prompt-ids", "[0, 5]", "--prompt", "a", "--prompt-file", path, "--prompt", "b",
                      "--prompt-ids", "[7]", *GREEDY, "--max-tokens", 1)
    prompts = [s["prompt_ids"] for s in result["sequences"]]
    assert prompts[0] == [0, 5] and prompts[4] == [7]
    by_text = [only(generate("--prompt", text, "--max-tokens", 1))["prompt_ids"]
               for text in ("a", "And the king said\n", "b")]
    assert prompts[1:4] == by_text


def test_prompt_from_standard_input():
    assert ids("--prompt-file", "-", *GREEDY, "--max-tokens", 5, input="In the beginning") == \
        ids(*GENESIS, *GREEDY, "--max-tokens", 5)
    assert only(generate("--prompt-file", "-", "--max-tokens", 1, input=""))["prompt_ids"] == [0]


def test_begin_of_sentence_comes_once():
    assert only(generate(*GENESIS, "--max-tokens", 1))["prompt_ids"] == [0, 1166, 261, 2996]
    spelled = ("--prompt", "<｜begin▁of▁sentence｜>In the beginning", "--max-tokens", 1)
    assert only(generate(*spelled))["prompt_ids"] == [0, 1166, 261, 2996]
    assert only(generate("--prompt-ids", "[1166,261]", "--max-tokens", 1))["prompt_ids"] == [1166, 261]


# ---- every option ----

def test_max_tokens():
    assert len(ids(*GENESIS, "--max-tokens", 7, "--ignore-eos")) == 7
    assert len(ids(*GENESIS, "--ignore-eos")) == 128
    assert len(ids(*GENESIS, "--ignore-eos", "--max-tokens", 0, "--max-model-len", 150)) == 146


SAMPLED = (*GENESIS, "--max-tokens", 20, "--ignore-eos")


@pytest.mark.parametrize("flags", [("--temperature", 0), ("--temperature", 2, "--top-p", 0.0001),
                                   ("--temperature", 2, "--top-k", 1), ("--temperature", 2, "--min-p", 1)])
def test_sampling_flags_that_leave_the_best_token(flags):
    assert ids(*SAMPLED, *flags, "--seed", 3) == ids(*SAMPLED, *GREEDY)
    assert ids(*SAMPLED, "--temperature", 2, "--top-p", 1, "--seed", 3) != ids(*SAMPLED, *GREEDY)


def test_seed():
    one = ids(*SAMPLED, "--seed", 1)
    assert ids(*SAMPLED, "--seed", 1) == one
    assert ids(*SAMPLED, "--seed", 2) != one
    assert ids(*SAMPLED, "--temperature", 1) != ids(*SAMPLED, "--temperature", 1)
    assert ids(*SAMPLED, "--seed", 2**64 - 1) != one


def test_defaults_of_the_model(tmp_path):
    # The demo model asks for temperature 0.6 and top_p 0.95.
    written_out = ids(*SAMPLED, "--seed", 4, "--temperature", 0.6, "--top-p", 0.95)
    assert ids(*SAMPLED, "--seed", 4) == written_out
    assert ids(*SAMPLED, "--seed", 4, "--temperature", 1.5) != written_out
    greedy = copy_model(tmp_path / "greedy", do_sample=False, temperature=0.6)
    assert ids(*SAMPLED, model=greedy) == ids(*SAMPLED, *GREEDY)
    assert ids(*SAMPLED, "--seed", 4, "--temperature", 0.6, "--top-p", 0.95, model=greedy) == written_out
    top_k = copy_model(tmp_path / "top_k", top_k=1, min_p=0.01)
    assert ids(*SAMPLED, model=top_k) == ids(*SAMPLED, *GREEDY)
    penalty = copy_model(tmp_path / "penalty", repetition_penalty=1.5, temperature=0)
    assert ids(*SAMPLED, model=penalty) != ids(*SAMPLED, *GREEDY)
    none = copy_model(tmp_path / "none")
    assert ids(*SAMPLED, "--seed", 4, model=none) == ids(*SAMPLED, "--seed", 4, "--temperature", 1, "--top-p", 1)
    bad = copy_model(tmp_path / "bad", temperature="hot")
    assert_fails(run("generate", "--model", bad, *GENESIS), "generation_config.json", "temperature", "hot")


def test_stop():
    whole = only(generate(*GENESIS, *GREEDY, "--max-tokens", 24))["text"]
    assert whole.startswith(", and in the day of the LORD")
    sequence = only(generate(*GENESIS, *GREEDY, "--max-tokens", 24, "--stop", "never", "--stop", "y of t"))
    assert sequence["text"] == ", and in the da"
    assert sequence["finish_reason"] == "stop"


def test_ignore_eos():
    stopped = only(generate(*FRANCE, *GREEDY, "--max-tokens", 20))
    assert stopped["finish_reason"] == "stop" and stopped["token_ids"][-1] == 1
    assert stopped["text"] == "The capital of France is Paris."
    assert len(ids(*FRANCE, *GREEDY, "--max-tokens", 20, "--ignore-eos")) == 20


def test_logprobs():
    assert "logprobs" not in only(generate(*GENESIS, "--max-tokens", 2))
    for n in (0, 1, 20):
        sequence = only(generate(*GENESIS, *GREEDY, "--max-tokens", 2, "--logprobs", n))
        assert [len(e["top"]) for e in sequence["logprobs"]] == [n, n]


def test_max_model_len():
    assert len(ids(*GENESIS, "--max-model-len", 6, "--ignore-eos")) == 2
    assert_fails(run("generate", "--model", DEMO, *GENESIS, "--max-model-len", 4), "--max-model-len 4", "found 4")


def test_num_kv_blocks():
    args = ("generate", "--model", DEMO, *GENESIS, *GREEDY, "--num-kv-blocks", 1)
    assert_fails(run(*args, "--max-tokens", 100), "--num-kv-blocks", "64")
    assert run(*args, "--max-tokens", 5).stdout == ", and in the day\n"


# ---- drafts ----

DRAFTING = ("--draft-depth", "fixed")


def test_answers_are_the_same_with_drafts():
    for sampling in (GREEDY, ("--temperature", 0.9, "--seed", 3), ("--temperature", 1.5, "--seed", 8, "--top-p", 0.8)):
        arguments = (*GENESIS, *sampling, "--max-tokens", 60)
        plain = generate(*arguments, "--speculative", "off")
        assert plain["speculative"]["verifications"] == plain["speculative"]["drafted"] == 0
        for depth in (("--draft-depth", "auto"), DRAFTING, (*DRAFTING, "--num-speculative-tokens", 2)):
            assert generate(*arguments, *depth)["sequences"] == plain["sequences"], (sampling, depth)


def test_drafts_are_reported():
    result = generate(*GENESIS, *GREEDY, "--max-tokens", 100, "--ignore-eos", *DRAFTING)["speculative"]
    assert set(result) == {"steps", "verifications", "drafted", "accepted", "accepted_at", "tokens_per_verification", "faults",
                           "depths", "plain_steps", "plain_step_s", "drafted_steps", "drafted_step_s", "draft_s", "gain"}
    assert result["depths"][:5] == [0, 0, 0, 0, 0] and result["depths"][5] >= result["verifications"]
    assert result["drafted_steps"] + result["plain_steps"] < result["steps"]  # the rest: the prompt
    assert result["drafted_step_s"] > 0 and result["draft_s"] > 0
    assert result["verifications"] <= result["steps"] < 80
    assert len(result["accepted_at"]) == 5 and result["accepted_at"] == sorted(result["accepted_at"], reverse=True)
    assert result["accepted"] == sum(result["accepted_at"]) > 20
    assert 4 * result["verifications"] < result["drafted"] <= 5 * result["verifications"]
    assert result["tokens_per_verification"] == pytest.approx(1 + result["accepted"] / result["verifications"])
    two = generate(*GENESIS, *GREEDY, "--max-tokens", 100, "--ignore-eos", *DRAFTING,
                   "--num-speculative-tokens", 2)["speculative"]
    assert two["accepted_at"][2:] == [0, 0, 0] and two["drafted"] <= 2 * two["verifications"]
    none = generate(*GENESIS, "--max-tokens", 5, "--num-speculative-tokens", 0)["speculative"]
    assert none["verifications"] == 0 and none["accepted_at"] == []
    assert none["plain_step_s"] > 0 and none["drafted_step_s"] is None and none["gain"] is None


def test_rejection():
    arguments = (*GENESIS, "--max-tokens", 60, "--ignore-eos", *DRAFTING, "--speculative", "rejection")
    greedy = generate(*arguments, *GREEDY)
    assert greedy["sequences"] == generate(*GENESIS, "--max-tokens", 60, "--ignore-eos", *GREEDY)["sequences"]
    sampled = [generate(*arguments, "--temperature", 0.8, "--seed", 4)["sequences"] for _ in range(2)]
    assert sampled[0] == sampled[1]


def test_drafts_out_of_range_are_named():
    for arguments, parts in (
            (("--speculative", "maybe"), ("speculative", "exact", "maybe")),
            (("--draft-depth", "deep"), ("draft-depth", "auto", "deep")),
            (("--num-speculative-tokens", 6), ("num-speculative-tokens", "at most 5", "6")),
            (("--num-speculative-tokens", -2), ("num-speculative-tokens", "-2"))):
        assert_fails(run("generate", "--model", DEMO, *GENESIS, *arguments), *parts)


# ---- machine ----

def test_threads():
    for threads in (1, 3):
        process = start("chat", "--model", DEMO, "--threads", threads, "--no-thinking", *GREEDY,
                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        with process:
            process.stdin.write("What colour is the sky?\n")
            process.stdin.flush()
            assert process.stdout.readline() == "The sky is blue.\n"
            assert len(list(Path(f"/proc/{process.pid}/task").iterdir())) == threads
            process.stdin.close()
    assert ids(*GENESIS, *GREEDY, "--max-tokens", 5, "--threads", 3) == ids(*GENESIS, *GREEDY, "--max-tokens", 5)


def logprobs(*args):
    sequence = only(generate(*FRANCE, *GREEDY, "--max-tokens", 10, "--logprobs", 1, *args))
    assert sequence["text"] == "The capital of France is Paris."
    return [e["logprob"] for e in sequence["logprobs"]]


def test_isa():
    # Each level sums in an order of its own.
    if "avx2" in Path("/proc/cpuinfo").read_text():
        assert logprobs("--isa", "generic") != logprobs("--isa", "avx2")
    else:
        assert_fails(run("generate", "--model", DEMO, *GENESIS, "--isa", "avx2"), "avx2")
    assert_fails(run("generate", "--model", DEMO, *GENESIS, "--isa", "sse9"), "sse9", "avx2")


def test_numerics():
    assert len({tuple(logprobs("--numerics", n)) for n in ("release", "fp32", "trn2")}) == 3
    assert_fails(run("generate", "--model", DEMO, *GENESIS, "--numerics", "fp8"), "numerics", "fp8")


def test_reduce():
    assert logprobs("--reduce", "exact") == logprobs()
    assert logprobs("--reduce", "fast") == logprobs()  # one rank adds to nobody
    assert_fails(run("generate", "--model", DEMO, *GENESIS, "--reduce", "sum"), "reduce", "sum")


def test_engram_rows_are_cut_over_several_ranks_only():
    assert_fails(run("generate", "--model", DEMO, *GENESIS, "--engram", "rows-fp8"), "--engram", "one rank")


def test_max_num_batched_tokens_cuts_the_prompt():
    args = ("generate", "--model", DEMO, "--prompt", LONG, *GREEDY, "--max-tokens", 3)
    n_prompt = len(only(generate("--prompt", LONG, "--max-tokens", 1))["prompt_ids"])
    cut = Terminal(*args, "--max-num-batched-tokens", 16)
    assert cut.exit_status() == 0
    assert "loading: " in cut.seen
    assert f"prompt 16/{n_prompt} tokens" in cut.seen and f"prompt 32/{n_prompt} tokens" in cut.seen
    whole = Terminal(*args)
    assert whole.exit_status() == 0
    assert "prompt 16/" not in whole.seen
    assert ids("--prompt", LONG, *GREEDY, "--max-num-batched-tokens", 16) == ids("--prompt", LONG, *GREEDY)


def test_underscores_are_dashes():
    assert len(ids(*GENESIS, "--max_tokens=3", "--ignore_eos", "--max_num_seqs", 2)) == 3
    assert only(generate("--prompt", "--max_tokens", "--max-tokens", 1))["prompt_ids"] == \
        only(generate("--prompt=--max_tokens", "--max-tokens", 1))["prompt_ids"]


# ---- bad input ----

@pytest.mark.parametrize("args, parts", [
    ((), ("--prompt",)),
    (("--prompt-ids", "[0,4096]"), ("4096", "4095")),
    (("--prompt-ids", "[0,4095]"), ("images", "4095")),
    (("--prompt-ids", "[-1]"), ("-1", "0 to 4095")),
    (("--prompt-ids", "[99999999999]"), ("--prompt-ids", "99999999999")),
    (("--prompt-ids", "[1.5]"), ("--prompt-ids", "1.5")),
    (("--prompt-ids", "[]"), ("--prompt-ids", "empty")),
    (("--prompt-ids", "7"), ("--prompt-ids", "7")),
    (("--prompt-ids", "[1"), ("--prompt-ids", "[1")),
    (("--prompt-file", "/nowhere"), ("--prompt-file", "/nowhere")),
    (("--prompt-file", "/"), ("--prompt-file", "/")),
    (("--prompt-file", "/proc/self/mem"), ("--prompt-file", "/proc/self/mem", "Input/output error")),
    (("--prompt-file", "/dev/zero"), ("--prompt-file", "/dev/zero", "1073741824")),
    ((*GENESIS, "--max-tokens", -1), ("max_tokens", "-1")),
    ((*GENESIS, "--max-tokens", "many"), ("--max-tokens", "many")),
    ((*GENESIS, "--temperature", 2.5), ("temperature", "2.5")),
    ((*GENESIS, "--temperature", "nan"), ("temperature", "nan")),
    ((*GENESIS, "--top-p", 0), ("top_p", "0")),
    ((*GENESIS, "--top-k", -2), ("top_k", "-2")),
    ((*GENESIS, "--min-p", 1.5), ("min_p", "1.5")),
    ((*GENESIS, "--seed", -1), ("--seed", "-1")),
    ((*GENESIS, "--seed", 1.5), ("--seed", "1.5")),
    ((*GENESIS, "--seed", 2**64), ("--seed", str(2**64))),
    ((*GENESIS, "--stop", ""), ("stop", "empty")),
    ((*GENESIS, "--logprobs", 21, "--json"), ("logprobs", "21")),
    ((*GENESIS, "--logprobs", 1), ("--logprobs", "--json")),
    ((*GENESIS, "--max-model-len", 4096), ("--max-model-len", "2048", "4096")),
    ((*GENESIS, "--max-num-seqs", 0), ("max-num-seqs", "0")),
    ((*GENESIS, "--max-num-batched-tokens", 0), ("max-num-batched-tokens", "0")),
    ((*GENESIS, "--num-kv-blocks", -1), ("num-kv-blocks", "-1")),
    ((*GENESIS, "--threads", -1), ("threads", "-1")),
    ((*GENESIS, "--max-tokens", ""), ("--max-tokens", "integer", '""')),
    ((*GENESIS, "--max-tokens", 2**63), ("--max-tokens", "integer", str(2**63))),
    ((*GENESIS, "--max-tokens", "0x10"), ("--max-tokens", "integer", "0x10")),
    ((*GENESIS, "--temperature", ""), ("--temperature", "number", '""')),
    ((*GENESIS, "--max-num-seqs", ""), ("--max-num-seqs", "integer", '""')),
    (("--prompt-ids", "[" * 5000), ("--prompt-ids", "[[...")),
    (("--prompt-ids", "\x1b[2J"), ("--prompt-ids", "found ?[2J")),
    ((*GENESIS, "--frob"), ("--frob",)),
    ((*GENESIS, "stray"), ("stray",)),
])
def test_bad_input(args, parts):
    assert_fails(run("generate", "--model", DEMO, *args), *parts)


def test_bad_models(tmp_path):
    assert_fails(run("generate", *GENESIS), "--model")
    assert_fails(run("generate", "--model", "/nowhere", *GENESIS), "/nowhere")
    assert_fails(run("generate", "--model", tmp_path, *GENESIS), str(tmp_path), "config.json")
    model = copy_model(tmp_path / "cut")
    shard = model / "model-00002-of-00003.safetensors"
    shard.write_bytes(shard.read_bytes()[:-100])
    assert_fails(run("generate", "--model", model, *GENESIS), shard.name)


def fill(model, tensor, byte):
    """Overwrites a tensor of a copied model."""
    shard = model / json.loads((model / "model.safetensors.index.json").read_text())["weight_map"][tensor]
    with open(shard, "r+b") as file:
        size = int.from_bytes(file.read(8), "little")
        begin, end = json.loads(file.read(size))[tensor]["data_offsets"]
        file.seek(8 + size + begin)
        file.write(bytes([byte]) * (end - begin))


def test_bad_bytes_met_in_a_step_leave_no_output(tmp_path):
    model = copy_model(tmp_path)
    fill(model, "layers.4.engram.embed.scale", 255)
    for flags in ((), ("--json",)):
        assert_fails(run("generate", "--model", model, *GENESIS, *flags), "prompt 1", "layers.4.engram.embed.scale")
    assert_fails(run("generate", "--model", model, *GENESIS, *FRANCE, "--prompt", "a"), "prompt 1",
                 "layers.4.engram.embed.scale", "(and 2 more prompts failed)")


def test_unused_tensor_is_a_warning(tmp_path):
    model = copy_model(tmp_path)
    header = b'{"old\\u001b[2J":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    (model / "extra.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    index = json.loads((model / "model.safetensors.index.json").read_text())
    index["weight_map"]["old\x1b[2J"] = "extra.safetensors"
    (model / "model.safetensors.index.json").write_text(json.dumps(index))
    result = run("generate", "--model", model, *GENESIS, *GREEDY, "--max-tokens", 1)
    assert (result.returncode, result.stdout) == (0, ",\n")
    assert result.stderr.startswith(f"deepinfer: warning: 1 tensors of {model} are not used, the first is old?[2J\n")


def test_unknown_variables_of_the_environment():
    assert_fails(run("generate", "--model", DEMO, *GENESIS, env={"DEEPINFER_MODLE": "x"}), "DEEPINFER_MODLE")
    assert ids(*GENESIS, *GREEDY, "--max-tokens", 2, env={"DEEPINFER_ISA": "generic"}) == [14, 279]


# ---- standard output that takes nothing, Ctrl-C ----

@pytest.mark.parametrize("redirect", [">&-", ">/dev/full"])
@pytest.mark.parametrize("flags", ["", "--json"])
def test_output_that_cannot_be_written(redirect, flags):
    command = f"'{PROGRAM}' generate --model '{DEMO}' --prompt Hello --max-tokens 3 {flags} {redirect}"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=environment(), check=False)
    assert_fails(result, "standard output")


def test_standard_error_that_takes_nothing():
    for flags in ("--frob", f"--model '{DEMO}' --prompt Hello --max-tokens 2"):
        result = subprocess.run(["bash", "-c", f"'{PROGRAM}' generate {flags} 2>/dev/full"], capture_output=True,
                                env=environment(), check=False)
        assert result.returncode == 2


def test_no_memory_to_measure_the_read_bandwidth():
    command = (f"ulimit -v 60000; '{PROGRAM}' generate --model '{DEMO}' --prompt 'In the beginning' --temperature 0 "
               "--max-tokens 2 --threads 1")
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=environment(), check=False)
    assert (result.returncode, result.stdout) == (0, ", and\n")
    assert re.fullmatch(r"deepinfer: warning: buffer to measure read bandwidth: .*\n4 prompt tokens, .* \(2 tokens\)\n",
                        result.stderr)


def test_threads_that_cannot_be_started():
    command = f"ulimit -v 1000000; '{PROGRAM}' generate --model '{DEMO}' --prompt Hello --threads 1024"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=environment(), check=False)
    assert_fails(result, "threads: expected to start 1024, found room for")


def test_a_reader_that_goes_away():
    process = start("generate", "--model", DEMO, *GENESIS, "--max-tokens", 0, "--ignore-eos", stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE, text=True)
    process.stdout.read(1)
    process.stdout.close()
    assert process.wait(60) == 2
    assert process.stderr.read().startswith("deepinfer: standard output")


def interrupted(*args):
    """Standard output and error after Ctrl-C in the middle of an answer."""
    process = start("generate", "--model", DEMO, *GENESIS, "--max-tokens", 0, "--ignore-eos", *args,
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with process:
        first = process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    return first + rest, errors


def test_interrupt_prints_what_there_is():
    text, _ = interrupted(*GREEDY)
    assert text.startswith(",") and text.endswith("\n")
    assert len(text) < 4000  # not all 2044 tokens


def test_interrupt_on_a_terminal_with_json():
    terminal = Terminal("generate", "--model", DEMO, "--prompt", LONG * 4, "--json", "--max-tokens", 0, "--ignore-eos",
                        "--max-num-batched-tokens", 32)
    terminal.wait_for(r"prompt \d+/")
    terminal.send("\x03")
    assert terminal.exit_status() == 130
    line = [part for part in re.split(r"[\r\n]", terminal.seen) if part.startswith("{")]
    assert json.loads(line[-1])["sequences"][0]["finish_reason"] == "interrupted"


# ---- what else runs ----

def test_the_batch_does_not_change_an_answer():
    prompts = ["In the beginning", "KING RICHARD:\n", LONG, "a"]
    flags = ("--seed", 9, "--max-tokens", 12, "--logprobs", 1)
    batch = generate(*[a for p in prompts for a in ("--prompt", p)], *flags, "--threads", 2,
                     "--max-num-batched-tokens", 16)
    for prompt, together in zip(prompts, batch["sequences"]):
        assert only(generate("--prompt", prompt, *flags)) == together
