"""GEMV and GEMM with weights of each storage type on one thread, against memory bandwidth, libggml and BLAS.

    python benchmarks/products.py [--libggml build/bin] [--types q4_k,q8_0] [--mib 64] [--columns 2048] [--runs 7]
        [--tokens 512]

GEMV: GB/s of the weight with f32 and with q8 activations, the rate at which the same bytes are read, and libggml's
vec_dot over the rows with 8-bit activations (16-bit for f16). GEMM: GFLOP/s, and NumPy's product with the dequantized
weight. Processor time of the thread; runs are interleaved, medians.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numba
import numpy as np
from candle_convert.ops.quants.llvm import rows
from candle_convert.runtime.ir.builder import Builder
from candle_convert.runtime.ir.graph import Graph, Value
from candle_convert.runtime.session import Session
from candle_convert.runtime.tensor.block_codec import codec_of, encoded
from candle_convert.runtime.tensor.dtype import DTYPES, F32, BlockType
from candle_convert.runtime.tensor.storage import Held
from candle_convert.runtime.tensor.stored_tensor import StoredTensor

ROWS = 64
Work = Callable[[], object]


class Traits(ctypes.Structure):
    """ggml_type_traits_cpu."""

    _fields_ = [
        ("from_float", ctypes.c_void_p),
        ("vec_dot", ctypes.c_void_p),
        ("dot_type", ctypes.c_int),
        ("nrows", ctypes.c_int64),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--libggml", type=Path, help="folder of libggml-base.so and libggml-cpu.so")
    parser.add_argument("--types", help="comma-separated storage types; default: all")
    parser.add_argument("--mib", type=int, default=64, help="size of the weight")
    parser.add_argument("--columns", type=int, default=2048, help="columns of the weight")
    parser.add_argument("--tokens", type=int, default=512, help="rows of activations of the GEMM")
    parser.add_argument("--runs", type=int, default=7, help="runs of each case")
    arguments = parser.parse_args()
    names = arguments.types.split(",") if arguments.types else [name for name in rows() if "_v" not in name]
    library = None if arguments.libggml is None else load(arguments.libggml)
    heads = ("type", "f32 GB/s", "q8 GB/s", "libggml GB/s", "read GB/s", "GEMM GFLOP/s", "BLAS GFLOP/s")
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for name in names:
        tensor = weight(name, arguments.columns, arguments.mib)
        print(row(name, tensor, arguments.columns, arguments.tokens, arguments.runs, library), flush=True)


def load(folder: Path) -> ctypes.CDLL:
    """Load libggml's CPU backend."""
    ctypes.CDLL(str(folder / "libggml-base.so"), mode=ctypes.RTLD_GLOBAL)
    library = ctypes.CDLL(str(folder / "libggml-cpu.so"))
    library.ggml_cpu_init()
    library.ggml_get_type_traits_cpu.restype = ctypes.POINTER(Traits)
    return library


def weight(name: str, columns: int, mib: int) -> StoredTensor:
    """A weight of about `mib` MiB: a block of Gaussian rows, repeated."""
    dtype = DTYPES[name]
    elements = np.random.default_rng(0).standard_normal((ROWS, columns), np.float32)
    if isinstance(dtype, BlockType):
        codec = codec_of(dtype)
        importance = np.ones(columns, np.float32) if codec.needs_importance else None
        data = encoded(codec, elements, importance).tobytes()
    else:
        data = elements.astype(dtype.as_numpy()).tobytes()
    times = max(1, (mib << 20) // len(data))
    return StoredTensor(dtype, (ROWS * times, columns), Held(data * times))


def session(tensor: StoredTensor, activations: str) -> Session:
    """Session of one linear layer."""
    graph = Graph()
    x = graph.values["x"] = Value("x", F32, ("n", tensor.shape[1]))
    held = graph.values["w"] = Value("w", tensor.dtype, tensor.shape)
    graph.inputs, graph.weights["w"] = [x], tensor
    build = Builder(graph)
    graph.outputs = [build.add("MatMul", [x, build.add("Transpose", [held], {"perm": [1, 0]})])]
    return Session(graph, threads=1, native=True, activations=activations)


def row(name: str, tensor: StoredTensor, columns: int, tokens: int, runs: int, library: ctypes.CDLL | None) -> str:
    """Row of the table for one storage type."""
    rng = np.random.default_rng(1)
    one, many = rng.standard_normal((1, columns), np.float32), rng.standard_normal((tokens, columns), np.float32)
    block = bytes(tensor.storage.read(0, tensor.nbytes // tensor.shape[0] * ROWS))
    small = StoredTensor(tensor.dtype, (ROWS * 32, columns), Held(block * 32))
    f32, q8, prompt = session(tensor, "f32"), session(tensor, "q8"), session(small, "f32")
    data = np.frombuffer(tensor.raw(), np.uint64)
    decoded = rng.standard_normal((small.shape[0], columns), np.float32).T
    works: list[Work | None] = [
        lambda: f32.run(None, {"x": one}),
        (lambda: q8.run(None, {"x": one})) if isinstance(tensor.dtype, BlockType) else None,
        None if library is None else dots(library, tensor, one),
        lambda: np.bitwise_or.reduce(data),
        lambda: prompt.run(None, {"x": many}),
        lambda: many @ decoded,
    ]
    amounts = [tensor.nbytes] * 4 + [2 * tokens * small.count] * 2
    cells = [
        "" if seconds is None else f"{amount / seconds / 1e9:.1f}"
        for amount, seconds in zip(amounts, times(works, runs), strict=True)
    ]
    return f"| {name} | {' | '.join(cells)} |"


def dots(library: ctypes.CDLL, tensor: StoredTensor, x: np.ndarray) -> Work | None:
    """libggml's vec_dot with every row, None if it has no such function for the type."""
    if tensor.dtype.ggml is None:
        return None
    traits = library.ggml_get_type_traits_cpu(tensor.dtype.ggml).contents
    if not traits.vec_dot:
        return None
    activations = np.zeros(8 * x.size, np.uint8)
    activations[: x.nbytes] = x.reshape(-1).view(np.uint8)
    convert = library.ggml_get_type_traits_cpu(traits.dot_type).contents.from_float
    if traits.dot_type and convert:
        from_float = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(convert)
        from_float(x.ctypes.data, activations.ctypes.data, x.size)
    signature = (ctypes.c_int, ctypes.c_void_p, *[ctypes.c_size_t, ctypes.c_void_p] * 2, ctypes.c_size_t, ctypes.c_int)
    dot = ctypes.CFUNCTYPE(None, *signature)(traits.vec_dot)
    count, columns = tensor.shape
    data, y = np.frombuffer(tensor.raw(), np.uint8), np.zeros(count, np.float32)

    @numba.njit
    def every(y: int, data: int, x: int, count: int, row: int, columns: int) -> None:
        for index in range(count):
            dot(columns, y + 4 * index, 0, data + index * row, 0, x, 0, 1)

    every(y.ctypes.data, data.ctypes.data, activations.ctypes.data, 1, data.size // count, columns)
    return lambda: every(y.ctypes.data, data.ctypes.data, activations.ctypes.data, count, data.size // count, columns)


def times(works: list[Work | None], runs: int) -> list[float | None]:
    """Median processor seconds of each function."""
    found: list[list[float]] = [[] for _ in works]
    for turn in range(runs + 1):
        for work, seconds in zip(works, found, strict=True):
            if work is not None:
                start = time.thread_time()
                work()
                if turn:
                    seconds.append(time.thread_time() - start)
    return [statistics.median(seconds) if seconds else None for seconds in found]


if __name__ == "__main__":
    main()
