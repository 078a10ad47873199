#!/usr/bin/env python3
"""Times ggml's MXFP4 product beside `bench kernels --op gate_up`: the same shape, weights from memory, in turns.

usage: compare_ggml.py DIRECTORY_OF_LIBGGML [--program P] [--isa L] [--threads 1,2] [--rows 1,6,128] [--rounds 3] [--json FILE]

By hand, not in CI. The libraries come from the source package that PyPI has of llama-cpp-python:

  pip download --no-deps --no-binary :all: llama-cpp-python && tar xf llama_cpp_python-*.tar.gz
  cmake -S llama_cpp_python-*/vendor/llama.cpp -B ggml -G Ninja -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON \\
    -DGGML_OPENMP=OFF -DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF
  ninja -C ggml ggml && tools/compare_ggml.py ggml/bin

ggml: w1 and w3 as one matrix [4608, 5120], every way it offers to hold the weights (plain, and its repacked layouts), the best
of them; activations in int8. Ours: gate_up as the model runs it, with SwiGLU, e4m3 activations, exact products. Times: ours, CPU time of
the slowest thread; ggml, wall time, the best of all calls (it owns its threads).
"""
import argparse
import ctypes
import json
import pathlib
import random
import subprocess
import tempfile
import time

OUTPUTS, INPUTS, BLOCK_BYTES = 4608, 5120, 17
MATRICES, PER_CALL = 128, 8  # 1.6 GB; matrices of one call
F32, MXFP4 = 0, 39
P = ctypes.c_void_p


class InitParams(ctypes.Structure):
    _fields_ = [("mem_size", ctypes.c_size_t), ("mem_buffer", P), ("no_alloc", ctypes.c_bool)]


class Ggml:
    """The few functions that are needed."""

    def __init__(self, folder):
        for name in ("base", "cpu"):
            ctypes.CDLL(str(pathlib.Path(folder, f"libggml-{name}.so")), mode=ctypes.RTLD_GLOBAL)
        self.lib = ctypes.CDLL(str(pathlib.Path(folder, "libggml.so")))
        signatures = {
            "ggml_init": (P, InitParams), "ggml_free": (None, P), "ggml_new_graph": (P, P),
            "ggml_new_tensor_2d": (P, P, ctypes.c_int, ctypes.c_int64, ctypes.c_int64), "ggml_mul_mat": (P, P, P, P),
            "ggml_build_forward_expand": (None, P, P), "ggml_backend_cpu_init": (P,),
            "ggml_backend_cpu_set_n_threads": (None, P, ctypes.c_int), "ggml_backend_graph_compute": (ctypes.c_int, P, P),
            "ggml_backend_get_device": (P, P), "ggml_backend_dev_backend_reg": (P, P),
            "ggml_backend_reg_get_proc_address": (P, P, ctypes.c_char_p), "ggml_backend_cpu_buffer_type": (P,),
            "ggml_backend_buft_name": (ctypes.c_char_p, P), "ggml_backend_alloc_ctx_tensors_from_buft": (P, P, P),
            "ggml_backend_tensor_set": (None, P, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_size_t),
            "ggml_backend_buffer_free": (None, P), "ggml_backend_dev_supports_op": (ctypes.c_bool, P, P),
        }
        for name, (result, *arguments) in signatures.items():
            function = getattr(self.lib, name)
            function.restype, function.argtypes = result, arguments
            setattr(self, name.removeprefix("ggml_"), function)
        self.quiet = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, P)(lambda *_: None)
        self.lib.ggml_log_set(self.quiet, None)
        self.cpu = self.backend_cpu_init()
        self.device = self.backend_get_device(self.cpu)

    def weight_layouts(self):
        """name -> buffer type: the plain one and those that repack."""
        registry = self.backend_dev_backend_reg(self.device)
        address = self.backend_reg_get_proc_address(registry, b"ggml_backend_dev_get_extra_bufts")
        types = [self.backend_cpu_buffer_type()]
        if address:
            extra = ctypes.CFUNCTYPE(ctypes.POINTER(P), P)(address)(self.device)
            while extra[len(types) - 1]:
                types.append(extra[len(types) - 1])
        return {self.backend_buft_name(t).decode(): t for t in types}

    def context(self):
        return self.init(InitParams(64 << 20, None, True))


class Weights:
    """The same random blocks MATRICES times, in one layout."""

    def __init__(self, ggml, layout):
        self.ggml, self.context = ggml, ggml.context()
        self.tensors = [ggml.new_tensor_2d(self.context, MXFP4, INPUTS, OUTPUTS) for _ in range(MATRICES)]
        self.buffer = ggml.backend_alloc_ctx_tensors_from_buft(self.context, layout)
        random.seed(1)
        blocks = bytearray(random.randbytes(OUTPUTS * INPUTS // 32 * BLOCK_BYTES))
        blocks[::BLOCK_BYTES] = bytes(random.randrange(119, 135) for _ in range(OUTPUTS * INPUTS // 32))
        for tensor in self.tensors:
            ggml.backend_tensor_set(tensor, bytes(blocks), 0, len(blocks))

    def best_seconds(self, rows, threads, seconds):
        """Per matrix; None if ggml does not multiply with this layout."""
        g = self.ggml
        context = g.context()
        x = g.new_tensor_2d(context, F32, INPUTS, rows)
        graphs = []
        for first in range(0, MATRICES, PER_CALL):
            graph = g.new_graph(context)
            for w in self.tensors[first:first + PER_CALL]:
                y = g.mul_mat(context, w, x)
                if not g.backend_dev_supports_op(g.device, y):
                    return None
                g.build_forward_expand(graph, y)
            graphs.append(graph)
        buffer = g.backend_alloc_ctx_tensors_from_buft(context, g.backend_cpu_buffer_type())
        values = (ctypes.c_float * (INPUTS * rows))(*(random.uniform(-1, 1) for _ in range(INPUTS * rows)))
        g.backend_tensor_set(x, bytes(values), 0, len(bytes(values)))
        g.backend_cpu_set_n_threads(g.cpu, threads)
        best, end, i = float("inf"), time.monotonic() + seconds, 0
        while time.monotonic() < end or i < 3:
            begin = time.perf_counter()
            assert g.backend_graph_compute(g.cpu, graphs[i % len(graphs)]) == 0
            best, i = min(best, time.perf_counter() - begin), i + 1
        g.backend_buffer_free(buffer)
        g.free(context)
        return best / PER_CALL

    def free(self):
        self.ggml.backend_buffer_free(self.buffer)
        self.ggml.free(self.context)


def ours(program, isa, rows, threads, seconds):
    """(rows, threads) -> seconds for one expert's gate and up."""
    with tempfile.NamedTemporaryFile() as file:
        subprocess.run([program, "bench", "kernels", "--op", "gate_up", "--isa", isa, "--rows", ",".join(map(str, rows)), "--threads",
                        ",".join(map(str, threads)), "--seconds", str(seconds), "--json", file.name], check=True,
                       stdout=subprocess.DEVNULL)
        lines = json.load(open(file.name, encoding="utf-8"))["results"]
    return {(r["rows"], r["threads"]): r["seconds"] / (r["flops"] / (2 * r["rows"] * OUTPUTS * INPUTS)) for r in lines}


def numbers(text):
    return [int(n) for n in text.split(",")]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("libraries")
    parser.add_argument("--program", default="build/release/deepinfer")
    parser.add_argument("--isa", default="auto")
    parser.add_argument("--threads", type=numbers, default=[1, 2])
    parser.add_argument("--rows", type=numbers, default=[1, 6, 128])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--json")
    options = parser.parse_args()
    cells = [(rows, threads) for threads in options.threads for rows in options.rows]
    best = {}  # (who, cell) -> seconds
    ggml = Ggml(options.libraries)
    layouts = {name: Weights(ggml, layout) for name, layout in ggml.weight_layouts().items()}
    for _ in range(options.rounds):
        for name, weights in layouts.items():
            for cell in cells:
                seconds = weights.best_seconds(*cell, options.seconds)
                if seconds is not None:
                    best[name, cell] = min(seconds, best.get((name, cell), seconds))
        for cell, seconds in ours(options.program, options.isa, options.rows, options.threads, options.seconds).items():
            best["ours", cell] = min(seconds, best.get(("ours", cell), seconds))
    results = []
    print(f"gate and up [{OUTPUTS}, {INPUTS}], microseconds")
    for cell in cells:
        times = {who: s for (who, c), s in best.items() if c == cell}
        fastest = min(s for who, s in times.items() if who != "ours")
        print(f"rows {cell[0]:4} threads {cell[1]}: " + ", ".join(f"{who} {1e6 * s:.0f}" for who, s in times.items()) +
              f"; ggml / ours {fastest / times['ours']:.2f}")
        results.append({"rows": cell[0], "threads": cell[1], "ratio": fastest / times["ours"], "seconds": times})
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps({"results": results}))


if __name__ == "__main__":
    main()
