"""Runs the built program. DI_PROGRAM names another binary than build/release/deepinfer."""
import json
import os
import pty
import re
import select
import shutil
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "models/demo"
PROGRAM = os.environ.get("DI_PROGRAM", str(ROOT / "build/release/deepinfer"))
TIMEOUT_S = 120


def environment(extra=None):
    """Of a run: no option comes from outside, and mpirun may be root's."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("DEEPINFER_")}
    return {**clean, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", **(extra or {})}


def mpirun(ranks, *args):
    """The command line of the program on so many ranks, also on fewer processors."""
    return ["mpirun", "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1",
            "-n", str(ranks), PROGRAM, *map(str, args)]


def children(*processes):
    found = [Path(f"/proc/{p}/task/{p}/children").read_text().split() for p in processes]
    return [int(child) for of_one in found for child in of_one]


def rank_processes(process):
    """Ids of the processes of an mpirun, by rank."""
    ranks = {}
    for child in children(process):
        found = re.search(rb"OMPI_COMM_WORLD_RANK=(\d+)", Path(f"/proc/{child}/environ").read_bytes())
        if found:
            ranks[int(found[1])] = child
    return [ranks[r] for r in range(len(ranks))]


def is_running(process):
    try:
        return ") Z " not in Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def run(*args, env=None, **kwargs):
    return subprocess.run([PROGRAM, *map(str, args)], capture_output=True, text=True, timeout=TIMEOUT_S,
                          env=environment(env), check=False, **kwargs)


def start(*args, ranks=1, **kwargs):
    command = mpirun(ranks, *args) if ranks > 1 else [PROGRAM, *map(str, args)]
    return subprocess.Popen(command, env=environment(), **kwargs)


def generate(*args, model=DEMO, **kwargs):
    """The JSON object of a run that must succeed, on one thread unless told otherwise."""
    threads = [] if "--threads" in args else ["--threads", 1]
    result = run("generate", "--model", model, "--json", *threads, *args, **kwargs)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert result.stdout.count("\n") == 1
    return json.loads(result.stdout)


def assert_fails(result, *parts):
    """Status 2, one sentence on standard error that holds every part, nothing on standard output."""
    assert result.returncode == 2, (result.returncode, result.stderr)
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("deepinfer: "), result.stderr
    for part in parts:
        assert part in lines[0], lines[0]


def copy_model(directory, **generation_config):
    """The demo model with another generation_config.json; without arguments, with none."""
    model = Path(directory, "model")
    shutil.copytree(DEMO, model)
    path = model / "generation_config.json"
    path.unlink()
    if generation_config:
        path.write_text(json.dumps(generation_config))
    return model


class Terminal:
    """The program on a terminal of its own; everything it shows is collected in `seen`."""

    def __init__(self, *args):
        self.seen = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(PROGRAM, [PROGRAM, *map(str, args)], environment())

    def send(self, text):
        os.write(self.fd, text.encode())

    def _read(self, deadline):
        """False at the end of the output."""
        ready, _, _ = select.select([self.fd], [], [], max(0, deadline - time.monotonic()))
        assert ready, f"timeout, seen: {self.seen!r}"
        try:
            chunk = os.read(self.fd, 4096)
        except OSError:  # the program has ended
            return False
        self.seen += chunk.decode(errors="replace")
        return bool(chunk)

    def wait_for(self, pattern, start=0):
        """Position behind the first match at or after `start`."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            match = re.compile(pattern).search(self.seen, start)
            if match:
                return match.end()
            assert self._read(deadline), f"ended, seen: {self.seen!r}"

    def exit_status(self):
        deadline = time.monotonic() + TIMEOUT_S
        while self._read(deadline):
            pass
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
