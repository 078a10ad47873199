"""deepinfer serve: the API with the openai client and over plain sockets."""
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import jsonschema
import openai
import pytest

from program import generate
from serving import Server

BEGINNING = "In the beginning"
SKY = [{"role": "user", "content": "What colour is the sky?"}]
QUIET = {"chat_template_kwargs": {"thinking": False}}
WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Get the current weather for a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}
CALCULATOR = {"type": "function", "function": {
    "name": "calculator", "description": "Evaluate an arithmetic expression",
    "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]}}}


@pytest.fixture(scope="module", name="server")
def _server():
    with Server("--served-model-name", "demo") as server:
        yield server
        assert server.stop() == 0


@pytest.fixture(name="client")
def _client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


def complete(client, prompt=BEGINNING, **options):
    return client.completions.create(model="demo", prompt=prompt, **{"max_tokens": 16, "temperature": 0, **options})


def chat(client, messages, extra=None, **options):
    return client.chat.completions.create(model="demo", messages=messages, extra_body=extra or QUIET,
                                          **{"temperature": 0, "max_tokens": 200, **options})


# ---- /v1/completions ----

def test_an_answer_is_that_of_generate(client):
    expected = generate("--prompt", BEGINNING, "--max-tokens", 16, "--temperature", 0, "--logprobs", 2)["sequences"][0]
    reply = complete(client, logprobs=2)
    choice = reply.choices[0]
    assert choice.text == expected["text"]
    assert choice.finish_reason == expected["finish_reason"] == "length"
    assert choice.logprobs.token_logprobs == [t["logprob"] for t in expected["logprobs"]]
    assert [len(top) for top in choice.logprobs.top_logprobs] == [2] * 16
    assert "".join(choice.logprobs.tokens) == choice.text
    assert choice.logprobs.text_offset == [len("".join(choice.logprobs.tokens[:i])) for i in range(16)]
    assert reply.usage.prompt_tokens == 4 and reply.usage.completion_tokens == 16
    assert reply.usage.total_tokens == 20 and reply.model == "demo"


def test_a_stream_is_the_whole_reply_in_pieces(client):
    whole = complete(client, logprobs=1)
    chunks = list(complete(client, logprobs=1, stream=True))
    assert "".join(c.choices[0].text for c in chunks) == whole.choices[0].text
    assert [p for c in chunks for p in c.choices[0].logprobs.token_logprobs] == \
        whole.choices[0].logprobs.token_logprobs
    assert [o for c in chunks for o in c.choices[0].logprobs.text_offset] == whole.choices[0].logprobs.text_offset
    assert [c.choices[0].finish_reason for c in chunks] == [None] * (len(chunks) - 1) + ["length"]
    assert len({c.id for c in chunks}) == 1


def test_prompts_may_be_ids_and_many(client, server):
    ids = server.post("/tokenize", {"prompt": BEGINNING})["tokens"]
    assert ids[0] == 0
    text = complete(client).choices[0].text
    assert complete(client, ids).choices[0].text == text
    other = complete(client, "And God").choices[0].text
    reply = complete(client, [BEGINNING, "And God"], n=2)
    assert [c.text for c in reply.choices] == [text, text, other, other]
    assert [c.index for c in reply.choices] == [0, 1, 2, 3]
    assert [c.text for c in complete(client, [ids, ids]).choices] == [text, text]
    assert reply.usage.completion_tokens == 64


def test_samples_differ_and_a_seed_repeats_them(client):
    def texts(**options):
        return [c.text for c in complete(client, n=3, temperature=1, **options).choices]
    first = texts(seed=7)
    assert len(set(first)) == 3
    assert texts(seed=7) == first
    assert texts(seed=8) != first
    assert texts(seed=-7) == texts(seed=-7) != first


def test_echo(client, server):
    text = complete(client).choices[0].text
    assert complete(client, echo=True).choices[0].text == BEGINNING + text
    assert "".join(c.choices[0].text for c in complete(client, echo=True, stream=True)) == BEGINNING + text
    assert "max_tokens" in server.refusal("/v1/completions", {"prompt": "a", "max_tokens": 0})
    assert complete(client, echo=True, max_tokens=0).choices[0].text == BEGINNING


def test_logprobs_of_the_prompt(client, server):
    """echo with logprobs: those of the answer as they are, those of the prompt as if it were an answer."""
    answer = complete(client, logprobs=2, max_tokens=100).choices[0]
    ids = server.post("/tokenize", {"prompt": BEGINNING + answer.text})["tokens"]
    for _ in range(2):  # what is remembered of a prompt changes nothing
        reply = complete(client, BEGINNING + answer.text, echo=True, logprobs=2, max_tokens=0)
        choice = reply.choices[0]
        logprobs = choice.logprobs
        assert choice.text == BEGINNING + answer.text and choice.finish_reason == "length"
        assert logprobs.token_logprobs[0] is None and logprobs.top_logprobs[0] is None
        assert len(logprobs.tokens) == len(ids) == reply.usage.prompt_tokens
        assert reply.usage.completion_tokens == reply.usage.prompt_tokens_details.cached_tokens == 0
        assert logprobs.token_logprobs[-100:] == answer.logprobs.token_logprobs
        assert logprobs.top_logprobs[-100:] == answer.logprobs.top_logprobs
        assert all(logprob in (top.get(token), None) for token, logprob, top in
                   zip(logprobs.tokens[1:], logprobs.token_logprobs[1:], logprobs.top_logprobs[1:]))
        for offset, token in zip(logprobs.text_offset[1:], logprobs.tokens[1:]):
            assert choice.text[offset:offset + len(token)] == token
        assert logprobs.text_offset[:2] == [0, 0], "the begin-of-sentence token is not in the text"


def test_echo_of_several_prompts(client, server):
    prompts = ["And God said", "The sea"]
    alone = [complete(client, p, echo=True, logprobs=1, max_tokens=4).choices[0] for p in prompts]
    together = complete(client, prompts, echo=True, logprobs=1, max_tokens=4, n=2).choices
    assert [(c.text, c.logprobs) for c in together] == [(c.text, c.logprobs) for c in alone for _ in range(2)]
    assert all(len(c.logprobs.tokens) == len(c.logprobs.text_offset) for c in together)
    ids = server.post("/tokenize", {"prompt": prompts[0]})["tokens"]
    by_ids = complete(client, ids, echo=True, logprobs=1, max_tokens=4).choices[0]
    assert by_ids.text == "<｜begin▁of▁sentence｜>" + alone[0].text
    assert by_ids.logprobs.token_logprobs == alone[0].logprobs.token_logprobs
    assert by_ids.logprobs.text_offset[1] == len("<｜begin▁of▁sentence｜>")
    chunks = [c.choices[0] for c in complete(client, prompts[0], echo=True, logprobs=1, max_tokens=4, stream=True)]
    assert "".join(c.text for c in chunks) == alone[0].text
    for field in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
        assert [x for c in chunks for x in getattr(c.logprobs, field)] == getattr(alone[0].logprobs, field)


def test_stops(client, server):
    text = complete(client).choices[0].text
    words = text.split()
    reply = complete(client, stop=[words[3]])
    assert reply.choices[0].text == text[:text.index(words[3])]
    assert reply.choices[0].finish_reason == "stop"
    assert complete(client, stop=words[3]).choices[0].text == reply.choices[0].text
    ids = server.post("/tokenize", {"prompt": text, "add_special_tokens": False})["tokens"]
    assert complete(client, extra_body={"stop_token_ids": [ids[2]]}).usage.completion_tokens == 3


def test_each_option_has_its_effect(client):
    plain = complete(client, seed=1, temperature=1).choices[0].text

    def differs(**options):
        extra = {k: options.pop(k) for k in ("top_k", "min_p", "repetition_penalty") if k in options}
        return complete(client, **{"seed": 1, "temperature": 1, **options},
                        extra_body=extra).choices[0].text != plain
    assert not differs()
    assert differs(temperature=0)
    assert differs(top_p=0.1)
    assert differs(top_k=1)
    assert differs(min_p=0.9)
    assert differs(presence_penalty=2)
    assert differs(frequency_penalty=2)
    assert differs(repetition_penalty=3)
    assert differs(logit_bias={"70": 100})
    assert differs(max_tokens=3)
    short = complete(client, "The end.<｜end▁of▁sentence｜>", temperature=0, max_tokens=40, logit_bias={"1": 100})
    assert short.usage.completion_tokens == 1
    longer = complete(client, "The end.", temperature=0, max_tokens=40, logit_bias={"1": 100},
                      extra_body={"min_tokens": 5})
    assert longer.usage.completion_tokens == 6
    assert complete(client, "The end.", temperature=0, max_tokens=9, logit_bias={"1": 100},
                    extra_body={"ignore_eos": True}).usage.completion_tokens == 9


@pytest.mark.parametrize("include_usage", [None, False, True])
def test_usage_of_a_stream(client, include_usage):
    options = {} if include_usage is None else {"stream_options": {"include_usage": include_usage}}
    for chunks in (list(complete(client, stream=True, max_tokens=4, **options)),
                   list(chat(client, SKY, stream=True, max_tokens=4, **options))):
        assert [c.usage for c in chunks[:-1]] == [None] * (len(chunks) - 1)
        assert all(c.choices for c in chunks[:-1])
        if include_usage:
            assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == 4
        else:
            assert chunks[-1].usage is None and chunks[-1].choices


# ---- /v1/chat/completions ----

def test_chat(client):
    reply = chat(client, SKY)
    message = reply.choices[0].message
    assert message.content == "The sky is blue." and message.role == "assistant"
    assert not hasattr(message, "reasoning_content") and not message.tool_calls
    assert reply.choices[0].finish_reason == "stop"
    assert reply.usage.completion_tokens_details.reasoning_tokens == 0
    assert reply.object == "chat.completion"


@pytest.mark.parametrize("extra", [
    {}, {"thinking": True}, {"thinking": {"type": "enabled"}}, {"reasoning_effort": "low"}, {"reasoning_effort": 37},
    {"chat_template_kwargs": {"thinking": True}}, {"chat_template_kwargs": {"enable_thinking": True}}])
def test_thinking(client, extra):
    chunks = list(chat(client, SKY, extra or {"seed": 1}, stream=True))
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == "The sky is blue."
    reply = chat(client, SKY, extra or {"seed": 1})
    message = reply.choices[0].message
    assert message.content == "The sky is blue."
    assert message.reasoning_content and message.reasoning == message.reasoning_content
    details = reply.usage.completion_tokens_details
    assert 0 < details.reasoning_tokens < reply.usage.completion_tokens


@pytest.mark.parametrize("extra", [
    {"thinking": False}, {"thinking": {"type": "disabled"}}, {"reasoning_effort": "none"},
    {"chat_template_kwargs": {"enable_thinking": False}}, {"chat_template_kwargs": {"reasoning_effort": "none"}}])
def test_no_thinking(client, extra):
    for stream in (False, True):
        if stream:
            deltas = [c.choices[0].delta for c in chat(client, SKY, extra, stream=True)]
            assert not any(getattr(d, "reasoning_content", None) for d in deltas)
            assert "".join(d.content or "" for d in deltas) == "The sky is blue."
        else:
            assert chat(client, SKY, extra).choices[0].message.content == "The sky is blue."


def test_effort_changes_the_prompt(server):
    def count(**fields):
        return server.post("/tokenize", {"messages": SKY, **fields})["tokens"]
    assert count() == count(reasoning_effort="high") == count(reasoning_effort=75) != count(reasoning_effort="max")
    assert count(reasoning_effort="low") == count(reasoning_effort=50)
    for bad in ("medium", "minimal", "ultra", 0, 101, 0.5, True):
        assert "reasoning_effort" in server.refusal("/v1/chat/completions",
                                                    {"messages": SKY, "reasoning_effort": bad})


def test_a_chat_stream_is_the_whole_reply_in_pieces(client):
    whole = chat(client, SKY, {"thinking": True}, logprobs=True, top_logprobs=1)
    chunks = list(chat(client, SKY, {"thinking": True}, stream=True, logprobs=True, top_logprobs=1))
    deltas = [c.choices[0].delta for c in chunks]
    assert deltas[0].role == "assistant" and all(d.role is None for d in deltas[1:])
    assert "".join(d.content or "" for d in deltas) == whole.choices[0].message.content
    assert "".join(getattr(d, "reasoning_content", None) or "" for d in deltas) == \
        whole.choices[0].message.reasoning_content
    tokens = [t for c in chunks if c.choices[0].logprobs for t in c.choices[0].logprobs.content]
    assert tokens == whole.choices[0].logprobs.content
    assert bytes(b for t in tokens for b in t.bytes).decode().endswith("The sky is blue.<｜end▁of▁sentence｜>")
    assert chunks[-1].choices[0].finish_reason == "stop"


def collect(chunks):
    """The tool calls of a stream: [(name, arguments)]."""
    calls = {}
    for chunk in chunks:
        for call in chunk.choices[0].delta.tool_calls or []:
            if call.index not in calls:
                assert call.id.startswith("call_") and call.type == "function"
                calls[call.index] = [call.function.name, ""]
            calls[call.index][1] += call.function.arguments
    return [tuple(call) for call in calls.values()]


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_is_called_and_its_result_read(client, stream):
    messages = [{"role": "user", "content": "What is the weather in Paris?"}]
    reply = chat(client, messages, tools=[WEATHER, CALCULATOR], stream=stream)
    if stream:
        chunks = list(reply)
        assert chunks[-1].choices[0].finish_reason == "tool_calls"
        calls = collect(chunks)
        assert not any(c.choices[0].delta.content for c in chunks)
        call = {"id": "call_1", "type": "function", "function": {"name": calls[0][0], "arguments": calls[0][1]}}
        message = {"role": "assistant", "tool_calls": [call]}
    else:
        assert reply.choices[0].finish_reason == "tool_calls"
        message = reply.choices[0].message.model_dump(exclude_none=True)
        calls = [(c["function"]["name"], c["function"]["arguments"]) for c in message["tool_calls"]]
        assert "content" not in message
    assert len(calls) == 1 and calls[0][0] == "get_weather" and json.loads(calls[0][1]) == {"city": "Paris"}
    messages += [message, {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"],
                           "content": "{\"temperature\": 21, \"sky\": \"sunny\"}"}]
    answer = chat(client, messages, tools=[WEATHER, CALCULATOR]).choices[0].message
    assert "21" in answer.content and not answer.tool_calls


def test_the_calculator_is_called(client):
    reply = chat(client, [{"role": "user", "content": "Use the calculator: 12 + 30"}], tools=[WEATHER, CALCULATOR])
    call = reply.choices[0].message.tool_calls[0].function
    assert call.name == "calculator" and "expression" in json.loads(call.arguments)


def test_tool_choice(client, server):
    messages = [{"role": "user", "content": "What is the weather in Paris?"}]
    reply = chat(client, messages, tools=[WEATHER], tool_choice="none").choices[0]
    assert not reply.message.tool_calls and "DSML" not in (reply.message.content or "")
    assert reply.finish_reason == "stop"
    assert "tools" in server.refusal("/v1/chat/completions", {"messages": messages, "tool_choice": "auto"})


# ---- answers that keep to a form ----

PERSON = {"type": "object", "additionalProperties": False, "required": ["name", "age", "tags"], "properties": {
    "name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "minimum": 0, "maximum": 150},
    "tags": {"type": "array", "items": {"enum": ["red", "green"]}, "minItems": 1, "maxItems": 3}}}


def form(schema):
    return {"type": "json_schema", "json_schema": {"name": "form", "schema": schema, "strict": True}}


@pytest.mark.parametrize("thinking", [False, True])
@pytest.mark.parametrize("stream", [False, True])
def test_a_schema_holds(client, stream, thinking):
    for seed in range(8):
        reply = chat(client, [{"role": "user", "content": "Describe Emma."}], {"thinking": thinking}, stream=stream,
                     temperature=1, seed=seed, max_tokens=400, response_format=form(PERSON))
        if stream:
            chunks = list(reply)
            content = "".join(c.choices[0].delta.content or "" for c in chunks)
            finish = chunks[-1].choices[0].finish_reason
        else:
            content, finish = reply.choices[0].message.content, reply.choices[0].finish_reason
            assert not thinking or reply.choices[0].message.reasoning_content
        if finish == "length" and not content:  # it never stopped thinking
            continue
        assert finish == "stop", content
        jsonschema.validate(json.loads(content), PERSON)


def test_any_object(client):
    for seed in range(5):
        reply = chat(client, SKY, temperature=1, seed=seed, response_format={"type": "json_object"}, max_tokens=600)
        if reply.choices[0].finish_reason == "stop":
            assert isinstance(json.loads(reply.choices[0].message.content), dict)


def test_a_form_holds_beside_others_and_with_drafts(client):
    """The same answers at once as one after the other."""
    def ask(seed):
        return chat(client, SKY, temperature=1, seed=seed, max_tokens=300,
                    response_format=form(PERSON)).choices[0].message.content
    alone = [ask(seed) for seed in range(10)]
    with ThreadPoolExecutor(10) as pool:
        assert list(pool.map(ask, range(10))) == alone


@pytest.mark.parametrize("stream", [False, True])
def test_drafts_change_nothing_under_a_form(server, stream):
    """B20, B49: also where a draft crosses </think>, behind which the form begins, and beside tools that may be called."""
    def content(text):
        if not stream:
            return json.loads(text)["choices"][0]["message"]["content"]
        chunks = [json.loads(line[6:]) for line in text.split("\n\n") if line.startswith("data: {")]
        return "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks)
    bodies = [{"messages": SKY, "temperature": 1, "seed": seed, "max_tokens": 200, "thinking": seed % 2 == 0,
               "response_format": form(PERSON), "stream": stream, **({"tools": [WEATHER]} if seed % 3 == 0 else {})}
              for seed in range(12)]
    n_whole = 0
    with Server("--speculative", "off") as plain, Server("--draft-depth", "fixed") as drafting:
        for body in bodies:
            texts = [s.request("POST", "/v1/chat/completions", body)[2] for s in (plain, drafting, server)]
            assert len({content(text) for text in texts}) == 1
            if "\"finish_reason\":\"stop\"" in texts[1]:
                jsonschema.validate(json.loads(content(texts[1])), PERSON)
                n_whole += 1
        assert drafting.metric("vllm:spec_decode_num_accepted_tokens_total") > 0
    assert n_whole >= 6


def token(server, text):
    ids = server.post("/tokenize", {"prompt": text, "add_special_tokens": False})["tokens"]
    assert len(ids) == 1
    return str(ids[0])


def test_reasoning_does_not_get_around_a_form(client, server):
    """A model that would end, or call, in its reasoning: the answer behind it keeps to the form."""
    asked = [{"role": "user", "content": "What is the weather in Paris?"}]
    call = chat(client, asked, {"thinking": True}, tools=[WEATHER], tool_choice="required", max_tokens=300,
                logit_bias={token(server, "｜DSML｜"): 9})
    message = call.choices[0].message
    assert "DSML" not in message.reasoning_content and not message.content
    assert call.choices[0].finish_reason == "tool_calls"
    assert [list(json.loads(c.function.arguments)) for c in message.tool_calls] == [["city"]]
    ended = chat(client, SKY, {"thinking": True}, response_format=form(PERSON), max_tokens=400,
                 logit_bias={token(server, "<｜end▁of▁sentence｜>"): 100}).choices[0]
    assert ended.finish_reason == "stop"
    jsonschema.validate(json.loads(ended.message.content), PERSON)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("thinking", [False, True])
def test_a_form_beside_tools(client, server, thinking, stream):
    """B49: a call, or JSON of the schema; never anything else."""
    kinds = set()
    asked = [{"role": "user", "content": "What is the weather in Paris?"}]
    begin = server.post("/tokenize", {"prompt": "\n\n\n<", "add_special_tokens": False})["tokens"]
    for seed in range(6):
        reply = chat(client, asked, {"thinking": thinking}, seed=seed, max_tokens=400, stream=stream,
                     temperature=0.7, tools=[WEATHER], response_format=form(PERSON),
                     logit_bias={str(token): -100 for token in begin} if seed % 2 else None)
        if stream:
            chunks = list(reply)
            content = "".join(c.choices[0].delta.content or "" for c in chunks)
            calls, finish = collect(chunks), chunks[-1].choices[0].finish_reason
        else:
            message, finish = reply.choices[0].message, reply.choices[0].finish_reason
            content = message.content
            calls = [(c.function.name, c.function.arguments) for c in message.tool_calls or []]
        if finish == "length":
            continue
        kinds.add(finish)
        assert bool(calls) != bool(content) and finish == ("tool_calls" if calls else "stop")
        if content:
            jsonschema.validate(json.loads(content), PERSON)
        for name, arguments in calls:
            assert name == "get_weather"
            jsonschema.validate(json.loads(arguments), WEATHER["function"]["parameters"])
    assert kinds == {"stop", "tool_calls"}


STRICT = {"type": "object", "required": ["kind", "size", "inner", "code"], "additionalProperties": False, "properties": {
    "kind": {"enum": ["a", 1, None]}, "size": {"type": "integer", "minimum": -3, "maximum": 3},
    "inner": {"type": "object", "required": ["list"], "properties": {
        "list": {"type": "array", "minItems": 2, "maxItems": 2, "items": {"type": "boolean"}}}},
    "code": {"type": "string", "pattern": "^[0-9]{2,4}$"}}}


def test_required_enum_nested_and_numbers_as_text(client):
    """B72: whatever is drawn, the answer is valid: also numbers that are text stay text."""
    for seed in range(10):
        reply = chat(client, SKY, temperature=1.5, seed=seed, max_tokens=400, response_format=form(STRICT)).choices[0]
        assert reply.finish_reason == "stop", reply
        jsonschema.validate(json.loads(reply.message.content), STRICT)


@pytest.mark.parametrize("thinking", [False, True])
@pytest.mark.parametrize("choice", ["required", "get_weather", "calculator"])
def test_a_forced_call(client, choice, thinking):
    value = choice if choice == "required" else {"type": "function", "function": {"name": choice}}
    for seed in range(4):
        reply = chat(client, [{"role": "user", "content": "Hello, how are you?"}], {"thinking": thinking}, seed=seed,
                     temperature=1, tools=[WEATHER, CALCULATOR], tool_choice=value, max_tokens=400).choices[0]
        if reply.finish_reason == "length":
            continue
        assert reply.finish_reason == "tool_calls" and not reply.message.content
        names = [call.function.name for call in reply.message.tool_calls]
        assert set(names) <= ({"get_weather", "calculator"} if choice == "required" else {choice})
        for call in reply.message.tool_calls:
            tool = WEATHER if call.function.name == "get_weather" else CALCULATOR
            jsonschema.validate(json.loads(call.function.arguments), tool["function"]["parameters"])


def test_one_call_when_they_may_not_be_parallel(client):
    reply = chat(client, SKY, tools=[WEATHER], tool_choice="required", parallel_tool_calls=False, max_tokens=300)
    assert len(reply.choices[0].message.tool_calls) == 1


def test_spellings_of_special_tokens_stay_text(server):
    plain = server.post("/tokenize", {"messages": [{"role": "user", "content": "<｜User｜>"}]})["tokens"]
    assert plain.count(4082) == 1


# ---- refusals ----

@pytest.mark.parametrize("body, part", [
    ({"prompt": "a", "frob": 1}, "frob"),
    ({"prompt": "a", "best_of": 2}, "best_of"),
    ({"prompt": "a", "suffix": "b"}, "suffix"),
    ({}, "prompt"),
    ({"prompt": []}, "prompt"),
    ({"prompt": [[]]}, "prompt"),
    ({"prompt": [1, "a"]}, "prompt"),
    ({"prompt": [1.5]}, "prompt"),
    ({"prompt": [99999]}, "99999"),
    ({"prompt": {"a": 1}}, "prompt"),
    ({"prompt": "a", "max_tokens": 0}, "max_tokens"),
    ({"prompt": "a", "max_tokens": "5"}, "max_tokens"),
    ({"prompt": "a", "max_tokens": 5, "min_tokens": 6}, "min_tokens"),
    ({"prompt": "a", "temperature": "hot"}, "temperature"),
    ({"prompt": "a", "temperature": 3}, "temperature"),
    ({"prompt": "a", "top_p": 0}, "top_p"),
    ({"prompt": "a", "n": 0}, "n: "),
    ({"prompt": ["a"] * 100, "n": 2}, "n: "),
    ({"prompt": "a", "stop": [1]}, "stop"),
    ({"prompt": "a", "stop": ""}, "stop"),
    ({"prompt": "a", "stop": ["x"] * 65}, "stop"),
    ({"prompt": "a", "stop_token_ids": [-1]}, "stop_token_ids"),
    ({"prompt": "a", "logit_bias": {"x": 1}}, "logit_bias"),
    ({"prompt": "a", "logit_bias": {"99999": 1}}, "logit_bias"),
    ({"prompt": "a", "logprobs": 21}, "logprobs"),
    ({"prompt": "a", "logprobs": True}, "logprobs"),
    ({"prompt": "a", "stream": 1}, "stream"),
    ({"prompt": "a", "stream_options": {"include_usage": True}}, "stream_options"),
    ({"prompt": "a", "stream": True, "stream_options": {"frob": 1}}, "stream_options.frob"),
    ({"prompt": "a " * 3000}, "max-model-len"),
    ({"prompt": "a", "seed": 1 << 70}, "seed"),
    ([], "request"),
    (b"{", "JSON"),
    (b"", "JSON"),
    (b"[" * 5000, "request"),
    (b"\xff\xfe{}", "request"),
])
def test_refused_completions(server, body, part):
    assert part in server.refusal("/v1/completions", body)


@pytest.mark.parametrize("fields, part", [
    ({"frob": 1}, "frob"),
    ({"messages": []}, "messages"),
    ({"messages": "hi"}, "messages"),
    ({"messages": [{"role": "critic", "content": "x"}]}, "role"),
    ({"messages": [{"role": "user", "content": "x", "name": "Ann"}]}, "messages[0].name"),
    ({"messages": [{"role": "assistant", "content": "x", "refusal": "no"}]}, "messages[0].refusal"),
    ({"messages": [{"role": "assistant", "function_call": {"name": "f"}}]}, "messages[0].function_call"),
    ({"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "get_weather"}, "x": 1}},
     "tool_choice.x"),
    ({"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "get_weather", "x": 1}}},
     "tool_choice.function.x"),
    ({"tools": [{**WEATHER, "x": 1}]}, "tools[0].x"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, "image"),
    ({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "type"),
    ({"messages": [{"role": "user", "content": "<｜deepseek_image｜>"}]}, "reserved"),
    ({"top_logprobs": 2}, "top_logprobs"),
    ({"max_tokens": 1, "max_completion_tokens": 2}, "max_completion_tokens"),
    ({"response_format": {"type": "xml"}}, "response_format.type"),
    ({"response_format": {"type": "json_object", "frob": 1}}, "response_format.frob"),
    ({"response_format": {"type": "json_schema"}}, "json_schema"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}, "schema"),
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "number", "multipleOf": 3}}}},
     "multipleOf"),
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "frob"}}}}, "frob"),
    ({"response_format": {"type": "json_object"}, "tools": [WEATHER], "tool_choice": "required"}, "response_format"),
    ({"response_format": {"type": "json_object"}, "ignore_eos": True}, "ignore_eos"),
    ({"response_format": {"type": "json_object"}, "min_tokens": 3}, "min_tokens"),
    ({"tools": [WEATHER], "tool_choice": "frob"}, "tool_choice"),
    ({"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "frob"}}}, "tool_choice"),
    ({"tools": [WEATHER], "tool_choice": {"type": "custom", "function": {"name": "get_weather"}}}, "tool_choice"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tools": {}}, "tools"),
    ({"tools": [{"type": "function"}]}, "tools[0].function"),
    ({"thinking": "yes"}, "thinking"),
    ({"thinking": True, "chat_template_kwargs": {"thinking": False}}, "thinking"),
    ({"chat_template_kwargs": {"frob": 1}}, "chat_template_kwargs.frob"),
    ({"functions": []}, "functions"),
    ({"guided_json": {}}, "guided_json"),
])
def test_refused_chats(server, fields, part):
    assert part in server.refusal("/v1/chat/completions", {"messages": SKY, **fields})


def test_other_refusals(server):
    assert "no such endpoint" in server.refusal("/v1/embeddings", {}, 404)
    assert "model" in server.refusal("/v1/completions", {"prompt": "a", "model": "gpt"}, 404)
    assert "model" in server.refusal("/tokenize", {"prompt": "a", "model": "gpt"}, 404)
    assert "tokens" in server.refusal("/detokenize", {})
    assert "99999" in server.refusal("/detokenize", {"tokens": [99999]})
    status, headers, _ = server.request("GET", "/v1/completions")
    assert status == 405 and headers["Allow"] == "POST, OPTIONS"
    status, _, _ = server.request("POST", "/v1/completions", b"x" * (33 << 20))
    assert status == 413
    status, _, _ = server.request("GET", "/health", headers={"X-Long": "x" * 20000})
    assert status == 431


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}


@pytest.mark.parametrize("content", [[IMAGE], [{"type": "text", "text": "a"}, IMAGE], [{"type": "input_image"}],
                                     [{"type": "image"}], "a <｜deepseek_image｜>",
                                     [{"type": "text", "text": "<｜deepseek_image｜>"}]])
def test_images_are_refused_by_name(server, content):
    call = {"id": "1", "function": {"name": "f", "arguments": "{}"}}
    for before, role in (([], "user"), ([], "system"), ([], "developer"), (SKY, "assistant"),
                         ([*SKY, {"role": "assistant", "tool_calls": [call]}], "tool")):
        about = {"tool_call_id": "1"} if role == "tool" else {}
        body = {"messages": [*before, {"role": role, "content": content, **about}]}
        assert "image" in server.refusal("/v1/chat/completions", body)
        assert "image" in server.refusal("/tokenize", body)
    assert "image" in server.refusal("/v1/completions", {"prompt": "a <｜deepseek_image｜>"})
    assert "image" in server.refusal("/v1/completions", {"prompt": [0, 4095]})


def raw(server, data, read=True):
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as s:
        s.sendall(data)
        s.shutdown(socket.SHUT_WR)
        reply = b""
        while read and (chunk := s.recv(65536)):
            reply += chunk
        return reply


def test_what_is_not_http_is_refused(server):
    assert raw(server, b"hello\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    assert raw(server, b"GET /health HTTP/9.9\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    assert raw(server, b"POST /tokenize HTTP/1.1\r\nContent-Length: -1\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    raw(server, b"POST /tokenize HTTP/1.1\r\nContent-Length: 100\r\n\r\nabc", read=False)
    raw(server, b"")
    assert server.request("GET", "/health")[0] == 200


def test_http_1_0_and_pipelining(server):
    body = b'{"prompt":"a","stream":true,"max_tokens":2}'
    head = b"POST /v1/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(body)
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as s:
        s.sendall(head + body)
        reply = b"".join(iter(lambda: s.recv(65536), b""))
    assert b"chunked" not in reply.lower() and reply.endswith(b"data: [DONE]\n\n")
    get = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as s:
        s.sendall(get * 3 + b"GET /version HTTP/1.1\r\nConnection: close\r\n\r\n")
        reply = b"".join(iter(lambda: s.recv(65536), b""))
    assert reply.count(b"HTTP/1.1 200 OK") == 4 and b"version" in reply


# ---- the rest of the API ----

def test_models_and_other_endpoints(client, server):
    model = client.models.list().data[0]
    assert model.id == "demo" and model.max_model_len == 2048
    assert json.loads(server.request("GET", "/health")[2]) == {"status": "ok"}
    assert "version" in json.loads(server.request("GET", "/version")[2])
    text = "Grüße, 世界 🙂"
    ids = server.post("/tokenize", {"prompt": text, "add_special_tokens": False, "return_token_strs": True})
    assert ids["count"] == len(ids["tokens"]) == len(ids["token_strs"])
    assert server.post("/detokenize", {"tokens": ids["tokens"]}) == {"prompt": text}


def test_metrics_count(server, client):
    before = server.metric("vllm:generation_tokens_total")
    ended = server.metric("vllm:request_success_total", finished_reason="length")
    complete(client, max_tokens=5)
    assert server.metric("vllm:generation_tokens_total") == before + 5
    assert server.metric("vllm:request_success_total", finished_reason="length") == ended + 1
    assert server.metric("vllm:num_requests_running") == server.metric("vllm:num_requests_waiting") == 0


def test_request_ids(server):
    _, headers, _ = server.request("POST", "/v1/completions", {"prompt": "a"}, {"X-Request-Id": "mine-1"})
    assert headers["X-Request-Id"] == "mine-1"
    server.wait_for(r"mine-1 POST /v1/completions 200 2 \+ 16 tokens length")
    _, headers, _ = server.request("GET", "/health", headers={"X-Request-Id": "a b"})
    assert headers["X-Request-Id"] != "a b"
    for method, path, status in (("GET", "/", 200), ("GET", "/metrics", 200), ("GET", "/v1/completions", 405),
                                 ("GET", "/nothing", 404), ("POST", "/v1/completions", 400)):
        got, headers, _ = server.request(method, path, {}, {"X-Request-Id": "mine-2"})
        assert got == status and headers["X-Request-Id"] == "mine-2", path
    got, headers, _ = server.request("POST", "/tokenize", b"x" * (33 << 20), {"X-Request-Id": "mine-3"})
    assert got == 413 and headers["X-Request-Id"] == "mine-3"
    assert b"X-Request-Id: " in raw(server, b"hello\r\n\r\n")


def test_what_clients_choose_stands_in_the_log(server):
    server.post("/v1/completions", {"prompt": "a", "user": "ann é\n" + "x" * 1000}, headers={"X-Request-Id": "mine-4"})
    assert len(server.wait_for(r"mine-4 .* user ann\?\?\?\?x+$")[0]) < 500
    assert raw(server, b"GET /\xff HTTP/1.1\r\nX-Request-Id: mine-5\r\n\r\n").startswith(b"HTTP/1.1 404 ")
    server.wait_for(r"mine-5 GET /\? 404 ")


# ---- many at once, and those that leave ----

def test_an_answer_does_not_depend_on_others(client):
    """Greedy and seeded, alone and beside others that come and go."""
    def ask(temperature):
        reply = complete(client, "And it came to pass", max_tokens=40, temperature=temperature, seed=3, logprobs=3)
        return reply.choices[0].text, reply.choices[0].logprobs
    alone = [ask(0), ask(1)]
    stop = threading.Event()

    def noise(k):
        i = 0
        while not stop.is_set():
            i += 1
            stream = complete(client, f"{k} {i} and " * (1 + 7 * k), max_tokens=5 + i % 40, temperature=1, stream=True)
            for n, _ in enumerate(stream):
                if n == i % 13:
                    stream.close()
                    break
    others = [threading.Thread(target=noise, args=(k,)) for k in range(12)]
    for thread in others:
        thread.start()
    beside = [(ask(0), ask(1)) for _ in range(8)]
    stop.set()
    for thread in others:
        thread.join()
    assert all(list(pair) == alone for pair in beside)


def test_a_client_that_leaves_frees_its_place(server, client):
    for max_tokens in (1, 300, 1500):
        stream = complete(client, max_tokens=1500, stream=True, extra_body={"ignore_eos": True})
        for n, _ in enumerate(stream):
            if n * 4 >= max_tokens:
                break
        stream.close()
        server.wait_for_metric("vllm:num_requests_running", 0)
    expected = complete(client).choices[0].text
    for wait_s in (0.01, 0.05, 0.13, 0.3):  # leaves while its prompt is computed
        body = json.dumps({"prompt": f"{wait_s} a " * 500, "max_tokens": 500, "ignore_eos": True}).encode()
        with socket.create_connection(("127.0.0.1", server.port)) as s:
            s.sendall(b"POST /v1/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            time.sleep(wait_s)
        assert complete(client).choices[0].text == expected
        server.wait_for_metric("vllm:num_requests_running", 0)
        server.wait_for_metric("vllm:kv_cache_usage_perc", 0)


def test_mixed_lengths_alone_and_together(client):
    prompts = [f"{i} " + "the sea and the land " * (i % 10) for i in range(50)]
    alone = [complete(client, p, max_tokens=1 + i % 7).choices[0].text for i, p in enumerate(prompts)]
    together = [None] * len(prompts)

    def ask(i):
        together[i] = complete(client, prompts[i], max_tokens=1 + i % 7).choices[0].text
    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(prompts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert together == alone


# ---- the prefix cache ----

def test_a_repeated_prompt_is_not_computed_again(client):
    prompt = "And the evening and the morning were the first day. " * 12
    replies = [complete(client, prompt, max_tokens=30, temperature=1, seed=9, logprobs=2) for _ in range(3)]
    assert len({r.choices[0].text for r in replies}) == 1
    assert all(r.choices[0].logprobs == replies[0].choices[0].logprobs for r in replies)
    cached = [r.usage.prompt_tokens_details.cached_tokens for r in replies]
    whole_pages = (replies[0].usage.prompt_tokens - 1) // 64 * 64
    assert cached == [0, whole_pages, whole_pages] and whole_pages > 0


def test_a_turn_with_tools_repeats_all_but_what_is_new(client):
    messages = [{"role": "user", "content": "What is the weather in Paris? " + "I am curious. " * 20}]
    cached, before = [], 0
    for turn in range(3):
        reply = chat(client, messages, tools=[WEATHER], extra={"thinking": True}, max_tokens=80)
        cached.append((reply.usage.prompt_tokens_details.cached_tokens, before))
        before = reply.usage.prompt_tokens + reply.usage.completion_tokens
        message = reply.choices[0].message
        messages.append({"role": "assistant", "content": message.content, "tool_calls": message.tool_calls,
                         "reasoning_content": getattr(message, "reasoning_content", None)})
        results = [{"role": "tool", "tool_call_id": c.id, "content": "sunny"} for c in message.tool_calls or []]
        messages += results or [{"role": "user", "content": f"And now, number {turn}?"}]
    for n_cached, n_before in cached[1:]:
        assert n_before - n_cached < 64 + 3, cached  # whole pages; the end of a turn may be tokenised differently


def test_spelling_a_call_otherwise_repeats_all_but_what_is_new(client, server):
    """White space, escapes and the order of fields in what the client sends back do not reach the prompt."""
    tool = {"type": "function", "function": {"name": "find", "parameters": {"type": "object", "properties": {
        "place": {"type": "string"}, "days": {"type": "integer"}}}}}
    spellings = ['{"place": "Zürich", "days": 3}', '{"place":"Z\\u00fcrich","days":3}',
                 '{\n  "place" : "Zürich",\n  "days" : 3\n}\n', {"place": "Zürich", "days": 3}]
    replies = []
    for n, arguments in enumerate(spellings):
        call = {"id": f"call_{n}", "type": "function", "function": {"name": "find", "arguments": arguments}}
        messages = [{"role": "user", "content": "How is the weather? " + "I am curious. " * 30},
                    {"role": "assistant", "content": None, "tool_calls": [call], "reasoning_content": "I look it up."},
                    {"role": "tool", "tool_call_id": f"call_{n}", "content": "sunny"},
                    {"role": "user", "content": f"And what comes on day {n}?"}]
        if n % 2:
            messages = [dict(reversed(m.items())) for m in messages]
            call["function"] = dict(reversed(call["function"].items()))
        replies.append(server.post("/v1/chat/completions", {"messages": messages, "tools": [tool], "max_tokens": 3}))
    for reply in replies[2:]:  # the second turn shows where others may go on
        usage = reply["usage"]
        assert usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"] < 64 + 20, usage


def test_without_prefix_cache():
    with Server("--prefix-cache-mib", 0) as server:
        body = {"prompt": "day and night " * 40, "max_tokens": 3, "temperature": 0}
        replies = [server.post("/v1/completions", body) for _ in range(2)]
        assert [r["usage"]["prompt_tokens_details"]["cached_tokens"] for r in replies] == [0, 0]
        assert replies[0]["choices"] == replies[1]["choices"]
