"""The process of `deepinfer serve`: its options, keys, logs, signals and end."""
import http.client
import json
import os
import re
import socket
import subprocess
import threading
import time

import openai
import pytest

from program import DEMO, TIMEOUT_S, assert_fails, run, start
from serving import Server


def test_stopping_lets_running_answers_end():
    with Server("--shutdown-timeout", TIMEOUT_S) as server:
        client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
        stream = client.completions.create(model=str(DEMO), prompt="In the beginning", max_tokens=1000, stream=True,
                                           extra_body={"ignore_eos": True})
        iterator = iter(stream)
        next(iterator)
        idle = socket.create_connection(("127.0.0.1", server.port))
        status = []
        stopper = threading.Thread(target=lambda: status.append(server.stop()))
        stopper.start()
        chunks = list(iterator)
        stopper.join()
        assert chunks[-1].choices[0].finish_reason == "length" and status == [0]
        assert idle.recv(10) == b""
        idle.close()


def test_a_second_signal_stops_at_once():
    with Server() as server:
        client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
        stream = client.completions.create(model=str(DEMO), prompt="In the beginning", max_tokens=2000, stream=True,
                                           extra_body={"ignore_eos": True})
        next(iter(stream))
        assert server.stop(signals=2) == 0


def test_keys():
    with Server("--api-key", "secret", "--api-key", "other", "--log-format", "json") as server:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "secret"}):
            status, reply, text = server.request("POST", "/v1/completions", {"prompt": "a"}, headers)
            assert status == 401 and reply["WWW-Authenticate"] == "Bearer" and "Authorization" in text
        for key in ("secret", "other"):
            assert server.post("/v1/completions", {"prompt": "a"}, headers={"Authorization": "Bearer " + key})
        assert server.request("GET", "/health")[0] == 200
        server.wait_for('"status":200')
        line = json.loads([x for x in server.log if '"/v1/completions"' in x and '"status":200' in x][0])
        assert line["completion_tokens"] == 16 and line["finish_reason"] == "length" and line["request_id"]


PREFLIGHT = {"Origin": "https://page.example", "Access-Control-Request-Method": "POST",
             "Access-Control-Request-Headers": "authorization, content-type, x-stainless-os"}


def test_pages_of_other_origins():
    """What a browser asks before a page's request, and what it needs to show the page the reply; keys come after."""
    with Server("--api-key", "secret") as server:
        status, headers, text = server.request("OPTIONS", "/v1/chat/completions", headers=PREFLIGHT)
        assert status == 204 and text == "" and headers["Access-Control-Allow-Origin"] == "*"
        assert "POST" in headers["Access-Control-Allow-Methods"] and "Content-Length" not in headers
        assert headers["Access-Control-Allow-Headers"] == PREFLIGHT["Access-Control-Request-Headers"]
        for path, expected in (("/v1/completions", 401), ("/nothing", 404)):
            status, headers, _ = server.request("POST", path, {"prompt": "a"}, {"Origin": "https://page.example"})
            assert status == expected and headers["Access-Control-Allow-Origin"] == "*"
            assert "X-Request-Id" in headers["Access-Control-Expose-Headers"]
        assert "Access-Control-Allow-Origin" not in server.request("GET", "/health")[1]
        assert server.request("OPTIONS", "/health")[1]["Allow"] == "GET, HEAD, OPTIONS"


TWO = ["https://page.example", "http://localhost:3000"]


@pytest.mark.parametrize("origins, allowed", [(["[]"], []), ([json.dumps(TWO)], TWO),
                                              ([TWO[0], "--allowed-origins", TWO[1]], TWO)])
def test_allowed_origins(origins, allowed):
    with Server("--allowed-origins", *origins) as server:
        for origin in ("https://page.example", "http://localhost:3000", "https://other.example"):
            for method, path in (("OPTIONS", "/v1/models"), ("GET", "/v1/models"), ("GET", "/nothing")):
                _, headers, _ = server.request(method, path, headers={**PREFLIGHT, "Origin": origin})
                assert headers.get("Access-Control-Allow-Origin") == (origin if origin in allowed else None)
                assert headers.get("Vary") == ("Origin" if allowed else None)


def test_no_allowed_origins_from_a_file(tmp_path):
    (tmp_path / "serve.toml").write_text("allowed-origins = []\n")
    with Server("--config", tmp_path / "serve.toml") as server:
        _, headers, _ = server.request("GET", "/v1/models", headers={"Origin": TWO[0]})
        assert "Access-Control-Allow-Origin" not in headers


def test_nobody_reads_the_log():
    with start("serve", DEMO, "--port", 0, "--threads", 1, stderr=subprocess.PIPE) as process:
        log = b""
        while b"ready\n" not in log:
            log += os.read(process.stderr.fileno(), 4096)
        port = int(re.search(rb"http://\S+:(\d+),", log)[1])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
        for _ in range(600):  # more than a pipe holds
            connection.request("GET", "/" + "x" * 250)
            assert connection.getresponse().read()
        connection.close()
        process.terminate()
        assert process.wait(timeout=30) == 0


def test_a_log_that_takes_nothing():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with open("/dev/full", "wb") as full, start("serve", DEMO, "--port", port, "--threads", 1, stderr=full) as process:
        for _ in range(2):
            assert wait_for_answer(port, process) == 200
        process.terminate()
        assert process.wait(timeout=30) == 0


def wait_for_answer(port, process):
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        assert time.monotonic() < deadline and process.poll() is None
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
            connection.request("POST", "/v1/completions", b'{"prompt": "a"}')
            status = connection.getresponse().status
        except ConnectionError:
            status = 503
        if status != 503:
            return status
        time.sleep(0.1)


def test_a_place_that_is_taken():
    with Server() as server:
        assert_fails(run("serve", DEMO, "--port", server.port), f"127.0.0.1:{server.port}")


@pytest.mark.parametrize("args, parts", [
    (("--port", 70000), ("--port", "70000")),
    (("--host", "nowhere"), ("--host", "nowhere")),
    (("--log-format", "xml"), ("--log-format", "xml")),
    (("--api-key", ""), ("--api-key",)),
    (("--shutdown-timeout", -1), ("--shutdown-timeout",)),
    (("--served-model-name", ""), ("--served-model-name",)),
    (("--allowed-origins", "https://page.example/"), ("--allowed-origins", "https://page.example/")),
    (("--allowed-origins", '["*"'), ("--allowed-origins", '["*"')),
    (("--allowed-origins", "[1]"), ("--allowed-origins", "[1]")),
    (("--allowed-origins", "https://a.example", "--allowed-origins", '["https://b.example", 5]'), ("--allowed-origins", "5]")),
    (("--allowed-origins", "https://Page.example"), ("--allowed-origins", "https://Page.example")),
    (("--allowed-origins", "page.example"), ("--allowed-origins", "page.example")),
    (("--frob",), ("--frob",)),
    (("--max-num-seqs", 0), ("--max-num-seqs",)),
    (("--prefill-slowdown", 1), ("--prefill-slowdown", "found 1")),
])
def test_bad_options(args, parts):
    assert_fails(run("serve", DEMO, *args), *parts)


def test_a_model_that_cannot_be_loaded(tmp_path):
    result = run("serve", tmp_path / "nothing", "--port", 0)
    assert result.returncode == 2 and "nothing" in result.stderr.splitlines()[-1]


def test_options_from_a_file(tmp_path):
    config = tmp_path / "serve.toml"
    config.write_text('served-model-name = "filed"\nthreads = 1\nmax-num-seqs = 2\n')
    with Server("--config", config) as server:
        assert json.loads(server.request("GET", "/v1/models")[2])["data"][0]["id"] == "filed"
    config.write_text("frob = 1\n")
    assert_fails(run("serve", DEMO, "--config", config), "frob")
