"""The process of `deepinfer serve`: its options, keys, logs, signals and end."""
import json
import socket
import threading

import openai
import pytest

from program import DEMO, TIMEOUT_S, assert_fails, run
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
