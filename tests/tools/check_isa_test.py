"""check_isa.py must place every kind of instruction at the level that introduced it.

usage: check_isa_test.py COMPILER
"""
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tools"))
import check_isa  # noqa: E402

COMPILER = sys.argv.pop()
LEAST = {
    "addps %xmm1, %xmm2": "baseline",
    "cvtps2pd %xmm1, %xmm2": "baseline",
    "vaddps %xmm1, %xmm2, %xmm3": "avx2",
    "vpaddd %ymm1, %ymm2, %ymm3": "avx2",
    "vcvtph2ps %xmm1, %ymm3": "avx2",
    "vfmadd231ps %ymm1, %ymm2, %ymm3": "avx2",
    "vpaddd (%eax), %ymm2, %ymm3": "avx2",
    "andn %eax, %ebx, %ecx": "avx2",
    "vaddps %zmm1, %zmm2, %zmm3": "avx512",
    "vaddps %ymm17, %ymm2, %ymm3": "avx512",
    "vpternlogd $1, %xmm1, %xmm2, %xmm3": "avx512",
    "kmovw %eax, %k1": "avx2",  # VEX encoded; useless without what follows
    "vmovups %zmm1, (%rax){%k1}": "avx512",
    "vpermt2b %zmm1, %zmm2, %zmm3": "avx512",
    "vpdpbusd %zmm1, %zmm2, %zmm3": "avx512",
    "vcvtph2ps %ymm1, %zmm3": "avx512",
    "vdpbf16ps %zmm1, %zmm2, %zmm3": None,
    "vcvtneps2bf16 %zmm1, %ymm2": None,
    "vfmadd231ph %zmm1, %zmm2, %zmm3": None,
    "vaddph %zmm1, %zmm2, %zmm3": None,
    "vpexpandb %zmm1, %zmm2": None,
    "vpopcntd %zmm1, %zmm2": None,
    "vgf2p8affineqb $0, %zmm1, %zmm2, %zmm3": None,
    "tilezero %tmm0": "amx",
    "tdpbf16ps %tmm0, %tmm1, %tmm2": "amx",
    "tdpbusd %tmm0, %tmm1, %tmm2": "amx",
}


def disassembly(instruction):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "a.o")
        subprocess.run([COMPILER, "-x", "assembler", "-c", "-", "-o", path], input=instruction + "\n", text=True, check=True)
        return subprocess.run(["objdump", "-dw", path], capture_output=True, text=True, check=True).stdout


class CheckIsa(unittest.TestCase):
    def test_each_instruction_is_refused_below_its_level(self):
        for instruction, least in LEAST.items():
            text = disassembly(instruction)
            for i, level in enumerate(check_isa.LEVELS):
                with self.subTest(instruction=instruction, level=level):
                    n, found = check_isa.problems(text, level)
                    self.assertEqual(n, 1)
                    allowed = least is not None and i >= check_isa.LEVELS.index(least)
                    self.assertEqual(found == [], allowed)


unittest.main()
