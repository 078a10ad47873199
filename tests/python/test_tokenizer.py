"""Random text through `deepinfer tokenize` and `detokenize`, compared with the `tokenizers` package."""
import json
import os
import pathlib
import random
import subprocess
import unicodedata

import pytest
import tokenizers

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("DI_PROGRAM", ROOT / "build/release/deepinfer")
CASES = 3000

# Characters that the splits treat differently stand beside each other more often than chance would put them.
FRAGMENTS = ["'s", "'LL", " don't", "\r\n", "\n\n", "  ", "\t", "\u00a0", "\u3000", "\u200b", "\u0301", "漢字", "かな",
             "カ・ー", "한국", "123", "٣٤", "½", "Ⅷ", "e\u0301", "ß", "İ", "😀", "👨\u200d👩", "<think>", "</think>",
             "<｜User｜>", "｜DSML｜", "<｜", "｜>", "<｜end▁of▁sentence｜>", "_x", "--", "$5", "\x00", "\x7f", "\ue000", " the"]


def random_text(rng):
    out = []
    for _ in range(rng.randrange(1, 30)):
        kind = rng.random()
        if kind < 0.4:
            out.append(rng.choice(FRAGMENTS))
        elif kind < 0.7:
            out.append(chr(rng.randrange(0x20, 0x7F)))
        else:
            code = rng.randrange(0x110000) if kind > 0.85 else rng.randrange(0x3100)
            # Characters that are unassigned here may be letters in a later Unicode version.
            if unicodedata.category(chr(code)) not in ("Cs", "Cn"):
                out.append(chr(code))
    return "".join(out)


def run(command, model, lines, *flags):
    text = "".join(json.dumps(line) + "\n" for line in lines)
    done = subprocess.run([BINARY, command, "--model", model, "--jsonl", "-", *flags], input=text.encode(),
                          stdout=subprocess.PIPE, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module", params=["demo", "released"])
def model(request, tmp_path_factory):
    if request.param == "demo":
        return ROOT / "models/demo"
    path = tmp_path_factory.mktemp("released")
    (path / "tokenizer.json").symlink_to(ROOT / "build/testdata/tokenizer_v41.json")
    return path


@pytest.fixture(scope="module")
def texts():
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    return [random_text(rng) for _ in range(CASES)]


def test_encode(model, texts):
    oracle = tokenizers.Tokenizer.from_file(str(model / "tokenizer.json"))
    answers = run("tokenize", model, [{"text": text} for text in texts])
    for text, answer in zip(texts, answers, strict=True):
        assert answer == {"ids": oracle.encode(text, add_special_tokens=False).ids}, repr(text)


def test_encode_plain(model, texts):
    file = json.loads((model / "tokenizer.json").read_text())
    file["added_tokens"] = []
    oracle = tokenizers.Tokenizer.from_str(json.dumps(file))
    answers = run("tokenize", model, [{"text": text} for text in texts], "--plain")
    for text, answer in zip(texts, answers, strict=True):
        assert answer == {"ids": oracle.encode(text, add_special_tokens=False).ids}, repr(text)


@pytest.mark.parametrize("skip_special", [False, True])
def test_decode(model, skip_special):
    oracle = tokenizers.Tokenizer.from_file(str(model / "tokenizer.json"))
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    lists = [[rng.randrange(oracle.get_vocab_size()) for _ in range(rng.randrange(20))] for _ in range(CASES)]
    flags = ["--skip-special"] if skip_special else []
    answers = run("detokenize", model, [{"ids": ids} for ids in lists], *flags)
    for ids, answer in zip(lists, answers, strict=True):
        assert answer == {"text": oracle.decode(ids, skip_special_tokens=skip_special)}, ids
