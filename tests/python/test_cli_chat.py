"""deepinfer chat, over a pipe and on a terminal; and every command with its defaults."""
import re

import pytest

from program import DEMO, Terminal, assert_fails, run

GREEDY = ("--temperature", 0)
SKY = "What colour is the sky?\n"


def chat(text, *args):
    result = run("chat", "--model", DEMO, "--threads", 1, *GREEDY, *args, input=text)
    assert result.returncode == 0, result.stderr
    return result


def test_a_conversation_over_a_pipe():
    result = chat("My name is Emma.\n\nWhat is my name?\n", "--no-thinking")
    assert result.stdout.splitlines()[-1] == "Your name is Emma."
    assert len(result.stdout.splitlines()) == 2
    assert result.stderr == ""


def test_reset_forgets():
    result = chat("My name is Emma.\n/reset\nWhat is my name?\n", "--no-thinking")
    assert "Emma" not in result.stdout.splitlines()[-1]


def test_exit_ends_and_help_explains():
    result = chat("/help\n/exit\n" + SKY)
    assert "/reset" in result.stdout and "sky" not in result.stdout
    assert chat("/frob\n").stderr == "deepinfer: expected /exit, /reset or /help, found /frob\n"
    assert chat("").stdout == ""
    assert chat("What colour is the sky?", "--no-thinking").stdout == "The sky is blue.\n"  # no line break


def test_thinking():
    assert chat(SKY, "--no-thinking").stdout == "The sky is blue.\n"
    thinking = chat(SKY).stdout
    assert thinking.count("</think>") == 1 and thinking.endswith("</think>The sky is blue.\n")
    assert chat(SKY, "--thinking").stdout == thinking


def test_reasoning_of_earlier_turns_is_left_out():
    # Two turns with thinking; the second prompt is the one of the reference, so the answer is right.
    lines = chat("My name is Emma.\nWhat is my name?\n").stdout.splitlines()
    assert lines[-1].endswith("Your name is Emma.")


def test_system():
    assert chat("What is the capital of Japan?\n", "--no-thinking", "--system", "Answer with one word.").stdout == \
        "Tokyo\n"


def test_effort():
    def answer(*args):
        return run("chat", "--model", DEMO, "--temperature", 2, "--top-p", 1, "--seed", 1, "--max-tokens", 60, *args,
                   input=SKY).stdout

    assert answer("--effort", "low") != answer("--effort", "max")  # another prompt, another draw
    assert answer("--effort", "high") == answer("--effort", 75) == answer()
    for bad in ("medium", "0", "101", "loud"):
        assert_fails(run("chat", "--model", DEMO, "--effort", bad, input=""), "effort", bad)
    assert_fails(run("chat", "--model", DEMO, "--effort", "low", "--no-thinking", input=""), "--effort",
                 "--no-thinking")


def test_sampling_options():
    assert len(chat(SKY, "--no-thinking", "--max-tokens", 2).stdout) < len("The sky is")
    assert chat(SKY, "--no-thinking", "--stop", "sky").stdout == "The \n"
    hot = ("--no-thinking", "--temperature", 2, "--max-tokens", 30)
    assert run("chat", "--model", DEMO, *hot, "--seed", 1, input=SKY).stdout != \
        run("chat", "--model", DEMO, *hot, "--seed", 2, input=SKY).stdout


def test_a_turn_that_does_not_fit_is_taken_back():
    long = "and " * 200 + "\n"
    result = chat(long + SKY, "--no-thinking", "--max-model-len", 100)
    assert result.stdout == "The sky is blue.\n"
    assert "--max-model-len 100" in result.stderr and result.stderr.count("\n") == 1


def test_ctrl_c_ends_the_answer_and_then_the_program():
    terminal = Terminal("chat", "--model", DEMO, "--threads", 1, "--no-thinking", "--temperature", 2, "--top-p", 1,
                        "--seed", 1)
    at = terminal.wait_for("> ")
    terminal.send("Tell me of the sea.\n")
    at = terminal.wait_for(r"sea\.\r\n.", at)
    terminal.send("\x03")
    at = terminal.wait_for("\n> ", at)
    terminal.send("/reset\n")
    at = terminal.wait_for("> ", at)
    terminal.send("\x03")
    assert terminal.exit_status() == 130


def test_the_next_turn_computes_only_what_is_new():
    terminal = Terminal("chat", "--model", DEMO, "--threads", 1, "--no-thinking", *GREEDY, "--max-tokens", 8,
                        "--max-num-batched-tokens", 16)
    at = terminal.wait_for("> ")
    terminal.send("and the king said " * 40 + "\n")
    at = terminal.wait_for(r"prompt 16/\d+ tokens", at)
    at = terminal.wait_for("\n> ", at)
    terminal.send("What colour is the sky? " * 5 + "\n")
    at = terminal.wait_for(r"prompt (\d+)/\d+ tokens", at)
    done, total = re.findall(r"prompt (\d+)/(\d+) tokens", terminal.seen[:at])[-1]
    assert int(done) > 128 and int(total) > 160  # the first step begins behind whole pages of the first turn
    terminal.wait_for("\n> ", at)
    terminal.send("/exit\n")
    assert terminal.exit_status() == 0


def test_ctrl_d_and_exit_end_the_program():
    for text in ("\x04", "/exit\n"):
        terminal = Terminal("chat", "--model", DEMO, "--threads", 1, "--no-thinking", *GREEDY)
        at = terminal.wait_for("> ")
        terminal.send(SKY)
        at = terminal.wait_for(r"The sky is blue\.\r\n> ", at)
        terminal.send(text)
        assert terminal.exit_status() == 0


@pytest.mark.parametrize("command, text, expected", [
    (["inspect"], "", "1,545"),
    (["generate", "--prompt", "Hello"], "", "\n"),
    (["chat"], SKY, "</think>"),
    (["tokenize"], "In the beginning", "1166"),
    (["detokenize"], "[1166,261,2996]", "In the beginning"),
    (["render"], '[{"role": "user", "content": "Hello"}]', "Hello"),
])
def test_every_command_with_defaults(command, text, expected):
    result = run(*command, env={"DEEPINFER_MODEL": str(DEMO)}, input=text)
    assert result.returncode == 0, result.stderr
    assert expected in result.stdout


def test_render_refuses_a_misspelt_field():
    result = run("render", "--model", DEMO, '{"messages": [{"role": "user", "content": "hi"}], "tool": []}')
    assert_fails(result, "expected api, messages, tools or kwargs", "'tool'")


def test_ctrl_c_right_at_the_prompt_is_never_missed():
    for _ in range(12):
        terminal = Terminal("chat", "--model", DEMO, "--threads", 2)
        terminal.wait_for("> ")
        terminal.send("\x03")
        assert terminal.exit_status() == 130
