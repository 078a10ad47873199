"""Random texts of random schemas, regular expressions and tools, judged by Python's own implementations."""
import json
import os
import random
import re
import subprocess
from pathlib import Path

import jsonschema
import pytest

from program import DEMO, PROGRAM

SAMPLES = Path(PROGRAM).with_name("grammar_samples")
WORDS = ["a", "b", "name", "é", "漢字", "a b", "q\"uote", "x_1", ""]
PATTERNS = ["^[a-z]+$", "b", "^\\d{2,4}-\\w?$", "^(ab|c)*$", "[^\"a]$", "^\\S.\\s", "x|^y$", "\\u00e9+"]


@pytest.fixture(name="rng")
def fixture_rng():
    seed = int(os.environ.get("DI_SEED", random.randrange(1 << 32)))
    print("seed", seed)
    return random.Random(seed)


def scalar(rng):
    kind = rng.randrange(8)
    if kind == 0:
        return {"type": "string"}
    if kind == 1:
        low = rng.randrange(6)
        return {"type": "string", "minLength": low, **({"maxLength": low + rng.randrange(5)} if rng.random() < .6 else {})}
    if kind == 2:
        return {"type": "string", "pattern": rng.choice(PATTERNS)}
    if kind == 3:
        low = rng.randrange(-3000, 3000)
        return {"type": "integer", rng.choice(["minimum", "exclusiveMinimum"]): low,
                rng.choice(["maximum", "exclusiveMaximum"]): low + rng.randrange(2, 5000)}
    if kind == 4:
        return {"type": rng.choice(["integer", "number", "boolean", "null"])}
    if kind == 5:
        return {"enum": rng.sample(["a", "b\n", 1, 2.5, None, True, [1, "é"], {"k": "漢"}], rng.randrange(1, 5))}
    if kind == 6:
        return {"const": rng.choice(["x", 7, False, {"a": [None]}])}
    return {"type": rng.sample(["string", "integer", "null", "boolean"], 2)}


def schema_of(rng, depth):
    if depth == 0 or rng.random() < .3:
        return scalar(rng)
    kind = rng.randrange(5)
    if kind < 2:
        names = rng.sample(WORDS, rng.randrange(5))
        schema = {"type": "object", "properties": {name: schema_of(rng, depth - 1) for name in names}}
        schema["required"] = [name for name in names if rng.random() < .5]
        extra = rng.randrange(4)
        if extra < 3:
            schema["additionalProperties"] = [False, True, schema_of(rng, depth - 1)][extra]
        return schema
    if kind == 2:
        low = rng.randrange(3)
        schema = {"type": "array", "items": schema_of(rng, depth - 1), "minItems": low}
        return {**schema, "maxItems": low + rng.randrange(4)} if rng.random() < .5 else schema
    if kind == 3:
        return {"anyOf": [schema_of(rng, depth - 1) for _ in range(rng.randrange(1, 4))]}
    return {"$ref": "#/$defs/node"}


def document(rng):
    node = {"type": "object", "properties": {"v": scalar(rng), "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
                                             "all": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
            "required": ["v", "next"]}
    return {**schema_of(rng, 3), "$defs": {"node": node}}


def samples(lines):
    done = subprocess.run([SAMPLES, DEMO / "tokenizer.json"], input="".join(json.dumps(line) + "\n" for line in lines),
                          capture_output=True, text=True, timeout=280, check=True)
    return [json.loads(line) for line in done.stdout.split("\n")[:-1]]  # texts may hold other line breaks


def test_texts_of_schemas_are_valid(rng):
    schemas = [document(rng) for _ in range(150)]
    n_texts = n_long = 0
    for schema, answer in zip(schemas, samples([{"schema": s, "n": 6, "seed": i} for i, s in enumerate(schemas)]),
                              strict=True):
        assert "texts" in answer, (answer, schema)
        for text in answer["texts"]:
            jsonschema.validate(json.loads(text), schema)
            n_texts += 1
            n_long += len(text) > 60
    assert n_texts == 900 and n_long > 30


def test_texts_of_regular_expressions_match(rng):
    for pattern, answer in zip(PATTERNS, samples([{"regex": p, "n": 30, "seed": rng.randrange(1 << 30)}
                                                  for p in PATTERNS]), strict=True):
        for text in answer["texts"]:
            assert re.fullmatch(pattern, text), (pattern, text)


def test_what_is_refused(rng):
    answers = samples([{"schema": {"type": "object", "minProperties": 1}}, {"regex": "(?<=a)"}, {"tools": []}])
    for answer, part in zip(answers, ("minProperties", "special kind", "tools"), strict=True):
        assert part in answer["error"]


def parse(texts, tools):
    """What `deepinfer parse` makes of each text, the same for all ways to cut it."""
    lines = "".join(json.dumps({"output": text, "thinking": False, "tools": tools}) + "\n" for text in texts)
    done = subprocess.run([PROGRAM, "parse", "--jsonl", "-", "--cuts", "all"], input=lines, capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.split("\n")[:-1]]


def test_tool_calls_parse_to_what_the_schema_accepts(rng):
    """The markup through `deepinfer parse`: the parser finds each call, with arguments that the schema accepts."""
    properties = {name: schema_of(rng, 2) for name in ("a", "b", "c")}
    properties["s"] = {"type": "string"}
    properties["e"] = {"type": "string", "enum": ["x", "y z"]}
    node = {"type": "object", "properties": {"v": {"type": "integer"}}}
    parameters = {"type": "object", "properties": properties, "required": ["a", "s"], "$defs": {"node": node}}
    tools = [{"type": "function", "function": {"name": "f", "parameters": parameters}},
             {"type": "function", "function": {"name": "ping"}}]
    texts = samples([{"tools": tools, "n": 60, "seed": rng.randrange(1 << 30)}])[0]["texts"]
    n_calls = 0
    for text, answer in zip(texts, parse(texts, tools), strict=True):
        assert answer["content"] is None and answer["tool_calls"], text
        for call in answer["tool_calls"]:
            arguments = json.loads(call["arguments"])
            assert call["name"] in ("f", "ping")
            assert (set(arguments) >= {"a", "s"}) if call["name"] == "f" else arguments == {}
            n_calls += 1
    assert n_calls >= len(texts)


def test_an_answer_is_calls_or_json(rng):
    """With a schema beside tools: never both, and no text of the JSON is taken for markup."""
    schema = {"type": "object", "properties": {"tag": {"type": "string", "enum": ["<｜DSML｜ calls>", "plain"]},
                                               "any": {"type": "string"}}, "required": ["tag", "any"]}
    tools = [{"type": "function", "function": {"name": "f", "parameters": {
        "type": "object", "properties": {"s": {"type": "string"}}, "required": ["s"]}}}]
    texts = samples([{"tools": tools, "schema": schema, "n": 80, "seed": rng.randrange(1 << 30)}])[0]["texts"]
    kinds = set()
    for text, answer in zip(texts, parse(texts, tools), strict=True):
        kinds.add(bool(answer["tool_calls"]))
        if answer["tool_calls"]:
            assert answer["content"] is None, text
        else:
            jsonschema.validate(json.loads(answer["content"]), schema)
    assert kinds == {False, True}
