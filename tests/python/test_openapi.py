"""/openapi.json says what the server does: field by field against the parser, then with schemathesis."""
import json
import re
import subprocess
import sys

import pytest

from program import ROOT, TIMEOUT_S
from serving import Server

# A body that is served, for each endpoint that takes one.
BODIES = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1, "stream": True,
                             "chat_template_kwargs": {}, "stream_options": {}, "logprobs": True,
                             "response_format": {"type": "json_schema", "json_schema": {"schema": True}}},
    "/v1/completions": {"prompt": "a", "max_tokens": 1, "stream": True, "stream_options": {}},
    "/tokenize": {"messages": [{"role": "user", "content": "a"}], "chat_template_kwargs": {}},
    "/detokenize": {"tokens": []},
}


@pytest.fixture(scope="module", name="server")
def _server():
    with Server("--max-model-len", 256, "--served-model-name", "demo") as server:
        yield server
        assert server.stop() == 0


@pytest.fixture(scope="module", name="document")
def _document(server):
    return json.loads(server.request("GET", "/openapi.json")[2])


def objects(schema, place=()):
    """(path, names of its fields) of a request's object and of those in it that refuse other names."""
    if schema.get("additionalProperties") is False:
        yield place, set(schema["properties"])
    for name, inner in schema.get("properties", {}).items():
        yield from objects(inner, (*place, name))


def names_in_source():
    """Every name of a field that the server's sources take."""
    text = "".join(path.read_text() for path in sorted((ROOT / "src/server").glob("*.cc")))
    return set(re.findall(r'\b(?:Take\w*|real)\(\s*"(\w+)"', text))


@pytest.mark.parametrize("path", BODIES)
def test_fields_are_those_of_the_parser(server, document, path):
    """In each object a name is refused as unknown exactly when the description lacks it."""
    schema = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    described = list(objects(schema))
    universe = names_in_source().union(*(names for _, names in described)) | {"frob"}
    assert {"prompt", "temperature", "include_usage", "json_schema"} <= universe
    for place, names in described:
        for name in universe:
            body = json.loads(json.dumps(BODIES[path]))
            target = body
            for key in place:
                target = target[key]
            # /tokenize takes a prompt or messages; add_special_tokens belongs to a prompt.
            if path == "/tokenize" and name == "add_special_tokens" and not place:
                body = target = {"prompt": "a"}
            target[name] = [[1.5]]
            _, _, text = server.request("POST", path, body)
            unknown = f"{name}: this field is not supported" in text or f"{name} is not supported by api" in text
            assert unknown == (name not in names), (place, name, text)


def test_every_endpoint_is_described(document):
    source = (ROOT / "src/server/http_service.cc").read_text()
    endpoints = set(re.findall(r'\{"(GET|POST)", "(/[^"]*)", &Service', source))
    assert len(endpoints) >= 10
    assert {(method.upper(), path) for path, item in document["paths"].items() for method in item} == endpoints


def test_schemathesis_finds_nothing(server, tmp_path):
    """No 500, no answer that is not described: status, content type and schema of every reply."""
    checks = ("not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,"
              "response_schema_conformance,unsupported_method,allow_header_conformance")
    run = subprocess.run(
        [sys.executable, "-m", "schemathesis.cli", "run", server.url + "/openapi.json", "--checks", checks, "--seed", "1",
         "--max-examples", "30", "--phases", "examples,coverage,fuzzing", "--no-shrink", "--generation-deterministic",
         "--continue-on-failure"],
        capture_output=True, text=True, timeout=TIMEOUT_S, cwd=tmp_path, check=False)
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
    assert server.request("GET", "/health")[0] == 200
