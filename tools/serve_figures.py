#!/usr/bin/env python3
"""Figures of `deepinfer serve` under load (docs/serving.md).

usage: serve_figures.py DEEPINFER MODEL slowdown RATIO [OPTION...] | streams | overhead

slowdown: time of a step of one stream over 20 tokens, beside long new prompts without end, by that without; and how long its steps
are. Options are of the server: with --draft-depth fixed --speculative exact a step brings several tokens.
streams: tokens per second of 8 streams by those of one.
overhead: processor time of the server for a token of one stream, less the time of the step that computes it. Both in turns.
"""
import http.client
import json
import os
import random
import re
import statistics
import subprocess
import sys
import threading
import time

SECONDS = 8


class Server:
    def __init__(self, program, model, *args):
        options = args if "--speculative" in args else ("--speculative", "off", *args)
        self.process = subprocess.Popen([program, "serve", model, "--port", "0", "--disable-log-requests", *options],
                                        stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            if found := re.search(r"listening on http://\S+:(\d+)", line):
                self.port = int(found[1])
            if line.rstrip() == "deepinfer: ready":
                break

    def send(self, body):
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request("POST", "/v1/completions", json.dumps({"temperature": 0, "ignore_eos": True, **body}))
        return connection.getresponse()

    def events(self, body, stop):
        """Of a stream, each with when it came."""
        events = []
        for line in self.send(body):
            if line.startswith(b"data: {"):
                events.append((time.monotonic(), json.loads(line[6:])))
            if time.monotonic() > stop:
                break
        return events

    def times(self, max_tokens, stop):
        """When the tokens of one stream came."""
        return [t for t, _ in self.events({"prompt": [0, random.randrange(3, 4000)], "max_tokens": max_tokens, "stream": True}, stop)]


def prompts(server, stop, length):
    while time.monotonic() < stop:
        server.send({"prompt": [random.randrange(3, 4000) for _ in range(length)], "max_tokens": 1}).read()


def steps(server, seconds):
    """Of streams one after the other: seconds of single steps, and of the steps of windows of 20 tokens, in the mean of each."""
    stop, single, windows = time.monotonic() + seconds, [], []
    while time.monotonic() < stop:
        events = server.events({"prompt": [0, random.randrange(3, 4000)], "max_tokens": 500, "stream": True, "logprobs": 0}, stop)
        times = [t for t, _ in events[4:]]
        tokens = [len(event["choices"][0]["logprobs"]["tokens"]) for _, event in events[4:]]
        single += [b - a for a, b in zip(times, times[1:])]
        begin = 0
        for end in range(len(times)):
            while sum(tokens[begin + 2:end + 1]) >= 20:
                begin += 1
            if sum(tokens[begin + 1:end + 1]) >= 20:
                windows.append((times[end] - times[begin]) / (end - begin))
    return single, windows


def spread(values):
    values = sorted(values)
    return f"mean {statistics.mean(values):.2f}, 5 to 95 of 100 {values[len(values) // 20]:.2f} to {values[-len(values) // 20]:.2f}"


def slowdown(server):
    steps(server, 1)
    plain = statistics.mean(steps(server, 3)[0])
    stop = time.monotonic() + SECONDS
    loaders = [threading.Thread(target=prompts, args=(server, stop, 500)) for _ in range(2)]
    for loader in loaders:
        loader.start()
    time.sleep(0.5)
    single, windows = steps(server, SECONDS - 1)
    for loader in loaders:
        loader.join()
    plain_after = statistics.mean(steps(server, 3)[0])
    single = sorted(s / plain for s in single)
    print(f"without prompts {plain * 1e3:.2f} ms a step, after {plain_after * 1e3:.2f}; beside prompts by that: windows of 20 tokens "
          f"{spread(w / plain for w in windows)}; single steps median {statistics.median(single):.2f}, 99 of 100 "
          f"{single[len(single) * 99 // 100]:.2f}, longest {single[-1]:.2f}")


def streams(server):
    rates = []
    for n in (1, 8, 1, 8):
        stop = time.monotonic() + SECONDS / 2
        counts = [0] * n

        def run(i):
            while time.monotonic() < stop:
                counts[i] += len(server.times(400, stop))

        threads = [threading.Thread(target=run, args=(i,)) for i in range(n)]
        start = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        rates.append(sum(counts) / (time.monotonic() - start))
    print(f"tokens/s of 1, 8, 1, 8 streams: {', '.join(f'{r:.0f}' for r in rates)}; 8 by 1: "
          f"{(rates[1] + rates[3]) / (rates[0] + rates[2]):.2f}")


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        fields = stat.read().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def overhead(server, program, model):
    """One after the other, so that the engine's thread has a core for itself each time."""
    generate = [program, "generate", "--model", model, "--prompt-ids", "[0,5]", "--max-tokens", "1500", "--ignore-eos", "--temperature", "0",
                "--threads", "1", "--speculative", "off", "--json"]
    server.times(400, time.monotonic() + 1)
    found = []
    for _ in range(5):
        before, n = cpu_seconds(server.process.pid), 0
        for _ in range(2):
            n += len(server.times(1500, time.monotonic() + 60))
        served = (cpu_seconds(server.process.pid) - before) / n
        told = json.loads(subprocess.run(generate, check=True, capture_output=True, text=True).stdout)
        found.append((served - told["speculative"]["plain_step_s"], served))
    print(f"microseconds a token beside the step, of five rounds: {', '.join(f'{o * 1e6:.0f}' for o, _ in sorted(found))}; all of the token "
          f"{statistics.median(s for _, s in found) * 1e6:.0f}")


def main():
    program, model, what = sys.argv[1:4]
    args = ("--prefill-slowdown", *sys.argv[4:]) if what == "slowdown" else ()
    server = Server(program, model, "--threads", "1", *args)
    try:
        if what == "slowdown":
            slowdown(server)
        elif what == "streams":
            streams(server)
        else:
            overhead(server, program, model)
    finally:
        server.process.terminate()
        server.process.wait()


if __name__ == "__main__":
    main()
