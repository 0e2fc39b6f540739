"""Block encoders against libggml on one thread: million weights a second for every block type.

    python benchmarks/quantize.py --libggml build/bin [--types q4_k,q6_k] [--runs 7] [--seconds 0.3]

Gaussian rows of 4096 elements, types that need an importance matrix get one. Each run encodes as many rows as fit in the time asked for;
ours and libggml's runs take turns; medians, and the ratio ours / libggml, are printed. Also checked: that both wrote the same bytes.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from candle_convert.ops.quants import codecs
from candle_convert.runtime.quant import Codec

COLUMNS = 4096
Encode = Callable[[np.ndarray], np.ndarray]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--libggml", type=Path, required=True, help="folder of libggml-base.so")
    parser.add_argument("--types", help="comma-separated names; all by default")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.3)
    arguments = parser.parse_args()
    library = ctypes.CDLL(str(arguments.libggml / "libggml-base.so"))
    library.ggml_quantize_chunk.restype = ctypes.c_size_t
    library.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * 3, ctypes.c_void_p]
    print("| type | ours M/s | libggml M/s | ratio | same bytes |\n|---|---|---|---|---|")
    for codec in codecs().values():
        wanted = arguments.types is None or codec.dtype.name in arguments.types.split(",")
        if wanted and codec.encoder is not None and codec.dtype.name not in ("q8_1", "q8_k"):
            print(compare(codec, library, arguments.runs, arguments.seconds), flush=True)


def compare(codec: Codec, library: ctypes.CDLL, runs: int, seconds: float) -> str:
    """One row of the table."""
    assert codec.encoder is not None
    kernel = codec.encoder()
    importance = np.random.default_rng(1).random(COLUMNS, np.float32) + 0.5 if codec.needs_importance else np.empty(0, np.float32)

    def ours(rows: np.ndarray) -> np.ndarray:
        out = np.zeros((len(rows), COLUMNS // codec.dtype.block * codec.dtype.block_nbytes), np.uint8)
        kernel(rows, importance, out, 0, len(rows))
        return out

    def theirs(rows: np.ndarray) -> np.ndarray:
        out = np.zeros((len(rows), COLUMNS // codec.dtype.block * codec.dtype.block_nbytes), np.uint8)
        weights = importance.ctypes.data if importance.size else None
        library.ggml_quantize_chunk(codec.dtype.ggml, rows.ctypes.data, out.ctypes.data, 0, *rows.shape, weights)
        return out

    same = np.array_equal(ours(gaussian(16)), theirs(gaussian(16)))
    counts = {encode: rows_for(encode, seconds) for encode in (ours, theirs)}
    rates: dict[Encode, list[float]] = {ours: [], theirs: []}
    for _ in range(runs):
        for encode, count in counts.items():
            rows = gaussian(count)
            began = time.perf_counter()
            encode(rows)
            rates[encode].append(rows.size / (time.perf_counter() - began) / 1e6)
    mine, peer = (statistics.median(rates[encode]) for encode in (ours, theirs))
    return f"| {codec.dtype.name} | {mine:.2f} | {peer:.2f} | {mine / peer:.2f} | {'yes' if same else 'NO'} |"


def gaussian(rows: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((rows, COLUMNS), np.float32)


def rows_for(encode: Encode, seconds: float) -> int:
    """How many rows take about that long."""
    began = time.perf_counter()
    encode(gaussian(16))
    return int(max(16, min(8192, 16 * seconds / (time.perf_counter() - began))) // 16 * 16)


if __name__ == "__main__":
    main()
