"""All 40 layers at released sizes on a checkpoint of holes: 510 GB that hold zeros and take a few MB of disk."""
import json
import shutil
import subprocess
import sys
import time

from program import ROOT, start

CONFIG = ROOT / "tests/data/fixtures/config/config.json"
TOKENIZER = ROOT / "build/testdata/tokenizer_v41.json"
PRIVATE_LIMIT_BYTES = 2 << 30


def private_bytes(pid):
    """Anonymous memory that is in use; pages of the mapped checkpoint belong to the page cache."""
    for line in open(f"/proc/{pid}/status", encoding="ascii"):
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


def test_two_tokens_within_two_gib(tmp_path):
    model = tmp_path / "sparse"
    made = subprocess.run([sys.executable, ROOT / "tools/make_sparse_checkpoint.py", CONFIG, model],
                          capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr    # status 3: this file system cannot hold files of that size
    shutil.copy(TOKENIZER, model / "tokenizer.json")
    assert sum(f.stat().st_size for f in model.iterdir()) > 510 * 10**9
    assert sum(f.stat().st_blocks * 512 for f in model.iterdir()) < 64 << 20

    peak = 0
    process = start("generate", "--model", model, "--prompt-ids", "[0,17,4]", "--max-tokens", 2, "--ignore-eos",
                    "--temperature", 0, "--json", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while process.poll() is None:
        try:
            peak = max(peak, private_bytes(process.pid))
        except (FileNotFoundError, ProcessLookupError):
            break
        time.sleep(0.02)
    out, err = process.communicate()
    shutil.rmtree(model)
    assert process.returncode == 0, err
    (sequence,) = json.loads(out)["sequences"]
    assert sequence["prompt_ids"] == [0, 17, 4]
    assert sequence["token_ids"] == [0, 0]    # all logits are zero: the lowest id wins
    assert 0 < peak < PRIVATE_LIMIT_BYTES, f"{peak / 2**20:.0f} MiB of private memory"
    print(f"peak of private memory: {peak / 2**20:.0f} MiB")
