"""Machines without AVX-512, or without AVX, run by qemu: no level executes an instruction that it must not, every level gives the
same tokens in fp32 numerics."""
import json
import subprocess

import pytest
from program import DEMO, PROGRAM, environment, generate

IDS = json.dumps([0, 1166, 261, 2996, 14])
OPTIONS = ["--prompt-ids", IDS, "--max-tokens", "4", "--temperature", "0"]
# qemu 7.2 does not know AVX-512: Haswell is the highest it offers. Nehalem has no AVX.
HASWELL, NEHALEM = "Haswell,-rtm,-hle,-invpcid", "Nehalem"


def emulated(cpu, *args):
    return subprocess.run(["qemu-x86_64", "-cpu", cpu, PROGRAM, "generate", "--model", str(DEMO), "--threads", "1", "--json",
                           *OPTIONS, *args], capture_output=True, text=True, timeout=300, env=environment(), check=False)


def token_ids(result):
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)["sequences"][0]["token_ids"]


@pytest.fixture(scope="module")
def expected():
    return generate(*OPTIONS, "--numerics", "fp32")["sequences"][0]["token_ids"]


@pytest.mark.parametrize("cpu,isa", [(HASWELL, "auto"), (HASWELL, "avx2"), (HASWELL, "generic"), (NEHALEM, "auto"),
                                     (NEHALEM, "generic")])
def test_same_tokens(cpu, isa, expected):
    assert token_ids(emulated(cpu, "--isa", isa, "--numerics", "fp32")) == expected


@pytest.mark.parametrize("cpu,isa,missing", [(HASWELL, "avx512", "AVX512F"), (HASWELL, "amx", "AVX512F"), (NEHALEM, "avx2", "AVX2")])
def test_a_level_that_the_cpu_lacks_is_refused(cpu, isa, missing):
    result = emulated(cpu, "--isa", isa)
    assert result.returncode == 2
    assert f"level {isa}: this CPU or operating system does not offer {missing}" in result.stderr


def test_release_numerics_follow_the_native_run_of_the_level():
    for isa, cpu in (("avx2", HASWELL), ("generic", NEHALEM)):
        native = generate(*OPTIONS, "--numerics", "release", "--isa", isa)["sequences"][0]["token_ids"]
        assert token_ids(emulated(cpu, "--isa", isa, "--numerics", "release")) == native
