"""deepinfer serve under mixed load for minutes: streams, tools, schemas, clients that leave or read slowly, prompts that
begin alike, preemptions. Every answer is what it was the first time, memory is flat, every block comes back.

By hand: soak_serve.py --minutes 30
"""
import argparse
import asyncio
import collections
import json
import random
import re
import time

import jsonschema

from serving import Server

KINDS = {"text": 5, "tools": 2, "schema": 2, "score": 1, "slow": 2, "leaving": 3}  # clients
N_BODIES = 30  # of each kind, asked for again and again
N_IDLE = 50
# Few blocks, so that answers are put back; little room for what is remembered, so that it is soon full.
OPTIONS = ("--max-model-len", 1024, "--num-kv-blocks", 18, "--prefix-cache-mib", 8, "--prefill-slowdown", 2)
PERSON = {"type": "object", "additionalProperties": False, "required": ["name", "age"], "properties": {
    "name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "minimum": 0, "maximum": 150}}}
WEATHER = {"type": "function", "function": {"name": "get_weather", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}
BEGINNING = "And the evening and the morning were the first day. " * 8


def body_of(kind, i):
    """The path and the request, number `i` of its kind."""
    rng = random.Random(f"{kind} {i}")
    shared = {"seed": i, "temperature": rng.choice((0, 1)), "stream": rng.random() < 0.5}
    if kind in ("tools", "schema"):
        asked = rng.choice(("What is the weather in Paris?", "Describe Emma.", "What colour is the sky?"))
        body = {"messages": [{"role": "user", "content": asked}], "max_tokens": 250, "thinking": i % 2 == 0, **shared}
        if kind == "tools":
            return "/v1/chat/completions", {**body, "tools": [WEATHER], "tool_choice": rng.choice(("auto", "required"))}
        return "/v1/chat/completions", {**body, "response_format": {
            "type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}}
    prompt = (BEGINNING if rng.random() < 0.4 else "") + f"{i} and the sea, " * rng.randrange(1, 40)
    body = {"prompt": prompt, "max_tokens": rng.randrange(1, 200), "ignore_eos": True, **shared}
    if kind == "score":
        body |= {"echo": True, "logprobs": 2, "max_tokens": rng.choice((0, 20))}
    if kind == "slow":
        body |= {"stream": True, "max_tokens": 400}
    return "/v1/completions", body


async def send(port, path, body):
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
    data = json.dumps(body).encode()
    writer.write(b"POST %s HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(data)) + data)
    return reader, writer


def said(reply, stream):
    """What an answer says, whole or put together: text, reasoning, calls, finish reason, log-probabilities."""
    head, text = reply.split(b"\r\n\r\n", 1)
    assert b" 200 OK\r\n" in head + b"\r\n", reply[:300]
    if stream:
        assert text.endswith(b"data: [DONE]\n\n"), text[-300:]
        chunks = [json.loads(event[6:]) for event in text.split(b"\n\n")[:-2]]
    else:
        chunks = [json.loads(text)]
    parts, logprobs, calls, finish = collections.defaultdict(str), collections.defaultdict(list), [], None
    for choice in (chunk["choices"][0] for chunk in chunks):
        delta = choice.get("delta") or choice.get("message") or choice
        for key in ("text", "content", "reasoning"):
            parts[key] += delta.get(key) or ""
        for call in delta.get("tool_calls", ()):
            if "name" in call["function"]:
                calls.append([call["function"]["name"], ""])
            calls[-1][1] += call["function"]["arguments"]
        for key, values in (choice["logprobs"] or {}).items():
            logprobs[key] += values
        finish = choice["finish_reason"] or finish
    return parts["text"] + parts["content"], parts["reasoning"], calls, finish, dict(logprobs)


def check(kind, body, answer):
    content, _, calls, finish, _ = answer
    if finish == "tool_calls":
        assert calls and all(isinstance(json.loads(arguments), dict) for _, arguments in calls)
        if body["tool_choice"] == "required":
            assert all(name == "get_weather" and list(json.loads(arguments)) == ["city"] for name, arguments in calls)
    if kind == "schema" and finish == "stop":
        jsonschema.validate(json.loads(content), PERSON)


class Soak:
    def __init__(self, server, seconds):
        self.server, self.stop = server, time.monotonic() + seconds
        self.rng = random.Random(int(seconds))
        self.first = {}  # the first answer to each request
        self.counts = collections.Counter()
        self.memory = []

    async def client(self, kind):
        while time.monotonic() < self.stop:
            i = self.rng.randrange(N_BODIES)
            path, body = body_of(kind, i)
            reader, writer = await send(self.server.port, path, body)
            if kind == "leaving":
                await asyncio.sleep(self.rng.random() * 0.5)
                writer.transport.abort()
            else:
                reply = b""
                while piece := await reader.read(2048 if kind == "slow" else 1 << 20):
                    reply += piece
                    await asyncio.sleep(0.2 if kind == "slow" else 0)
                writer.close()
                answer = said(reply, body["stream"])
                assert self.first.setdefault((kind, i), answer) == answer, (kind, i)
                check(kind, body, answer)
            self.counts[kind] += 1

    async def watch(self):
        """Memory over time; a line a minute."""
        while time.monotonic() < self.stop:
            await asyncio.sleep(2)
            with open(f"/proc/{self.server.pid}/status", encoding="ascii") as status:
                self.memory.append(int(re.search(r"VmRSS:\s+(\d+)", status.read())[1]) >> 10)
            if len(self.memory) % 30 == 0:
                print(f"{len(self.memory) // 30} min: {self.memory[-1]} MiB, {dict(self.counts)}", flush=True)

    async def run(self):
        idle = [await asyncio.open_connection("127.0.0.1", self.server.port) for _ in range(N_IDLE)]
        await asyncio.gather(self.watch(), *(self.client(kind) for kind, n in KINDS.items() for _ in range(n)))
        for _, writer in idle:
            writer.close()


def soak(minutes):
    with Server("--disable-log-requests", *OPTIONS) as server:
        run = Soak(server, minutes * 60)
        asyncio.run(run.run())
        for gauge in ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"):
            server.wait_for_metric(gauge, 0)
        preempted, hits = (server.metric(f"vllm:{name}_total") for name in ("num_preemptions", "prefix_cache_hits"))
        quarter = len(run.memory) // 4
        early, late = max(run.memory[quarter:2 * quarter]), max(run.memory[-quarter:])
        again = sum(run.counts[kind] for kind in KINDS) - run.counts["leaving"] - len(run.first)
        print(f"{dict(run.counts)}; {again} answers equal to an earlier one; {preempted:.0f} preemptions, {hits:.0f} "
              f"prompt tokens found; memory {early} MiB in the second quarter, {late} in the last")
        assert late < early + 16
        assert preempted > 0 and hits > 0 and again > len(run.first) and set(run.counts) == set(KINDS)
        assert server.stop() == 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=2)
    soak(parser.parse_args().minutes)
