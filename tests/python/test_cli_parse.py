"""deepinfer parse: the fixtures through the program, and what it refuses."""
import json

from program import ROOT, assert_fails, run

FIXTURES = ROOT / "tests/data/fixtures/chat/parse.jsonl"
CALL = '<｜DSML｜ invoke name="f"><｜DSML｜ parameter name="n">{}</｜DSML｜ parameter></｜DSML｜ invoke>'


def parse(*lines, **kwargs):
    result = run("parse", "--jsonl", "-", *kwargs.get("args", ()), input="".join(json.dumps(x) + "\n" for x in lines))
    assert result.returncode == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def expected(case):
    result = json.loads(json.dumps(case["expected"]).replace("Infinity", '\\"1e400\\"'))
    return {**result, "tool_calls": [{**c, "arguments": json.loads(c["arguments"])} for c in result["tool_calls"]]}


def test_fixtures():
    cases = [json.loads(line) for line in FIXTURES.read_text().splitlines()]
    for args in ((), ("--cuts", "all")):
        result = run("parse", "--jsonl", FIXTURES, *args)
        assert result.returncode == 0, result.stderr
        for case, line in zip(cases, result.stdout.splitlines(), strict=True):
            answer = json.loads(line)
            assert answer.pop("difference", None) is None
            for call in answer["tool_calls"]:
                call["arguments"] = json.loads(call["arguments"])
            assert answer == expected(case), case["name"]


def test_fields():
    text = "a" + CALL.format(7)
    tools = [{"type": "function", "function": {"name": "f"}}]
    called = {"reasoning": None, "content": "a", "tool_calls": [{"name": "f", "arguments": '{"n": 7}'}]}
    assert parse({"output": "r</think>c"}) == [{"reasoning": "r", "content": "c", "tool_calls": []}]
    assert parse({"output": text, "thinking": False, "tools": tools}) == [called]
    assert parse({"output": text, "thinking": False}) == [{**called, "content": text, "tool_calls": []}]
    assert parse({"output": text, "thinking": False, "tools": tools, "tool_choice": "none"}) == \
        [{**called, "tool_calls": []}]
    assert parse({"output": text, "thinking": False, "tools": tools, "tool_choice": "auto"}) == [called]


def test_named_tools(tmp_path):
    tools = {"T": [{"function": {"name": "f", "parameters": {"properties": {"n": {"type": "string"}}}}}]}
    (tmp_path / "t.json").write_text(json.dumps(tools))
    line = {"output": CALL.format(7), "thinking": False, "tools": "T"}
    assert parse(line, args=("--tools", tmp_path / "t.json"))[0]["tool_calls"][0]["arguments"] == '{"n": "7"}'
    assert "tools" in parse(line)[0]["error"]


def test_bad_lines_are_answered_and_the_rest_goes_on():
    answers = parse({"text": "x"}, {"output": 1}, {"output": "x", "thinking": 1}, {"output": "x", "tools": {}},
                    {"output": "x"})
    for answer, field in zip(answers, ("output", "output", "thinking", "tools")):
        assert list(answer) == ["error"] and answer["error"].startswith(field)
    assert answers[4]["reasoning"] == "x"


def test_bad_options_are_named():
    assert_fails(run("parse"), "--jsonl")
    assert_fails(run("parse", "--jsonl", "/no_such"), "--jsonl", "/no_such")
    assert_fails(run("parse", "--jsonl", "-", "--cuts", "some", input=""), "--cuts")
    assert_fails(run("parse", "--jsonl", "-", "--tools", "/no_such", input=""), "--tools")
