"""No value is read that was never written: memcheck over prompt and decode, window and compressed layers, selection and reuse."""
import json
import subprocess

from program import DEMO, PROGRAM, environment, run


def test_memcheck_finds_nothing_and_changes_nothing():
    # 40 prompt tokens: more than the demo model's window and its top-k. valgrind knows no AVX-512.
    ids = [0] + [300 + 7 * i for i in range(39)]
    arguments = ["generate", "--model", str(DEMO), "--prompt-ids", json.dumps(ids), "--max-tokens", "3", "--temperature", "0",
                 "--threads", "1", "--isa", "avx2", "--max-num-batched-tokens", "32", "--max-model-len", "64", "--json"]
    plain = run(*arguments)
    assert plain.returncode == 0, plain.stderr
    checked = subprocess.run(["valgrind", "-q", "--error-exitcode=9", PROGRAM, *arguments], capture_output=True, text=True,
                             timeout=600, env=environment(), check=False)
    assert checked.returncode == 0, checked.stderr[-4000:]
    tokens = [json.loads(out)["sequences"][0]["token_ids"] for out in (plain.stdout, checked.stdout)]
    assert tokens[0] == tokens[1] and len(tokens[0]) == 3
