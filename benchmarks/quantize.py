"""Speed of the block codecs on one thread: encoders against libggml, decoders against a copy.

    python benchmarks/quantize.py --libggml build/bin [--types q4_k,q6_k] [--runs 7] [--seconds 0.05] [--mib 16]

Encoders: million weights per second of the thread's processor time on Gaussian rows of 4096 elements, without an
importance matrix where the type allows it, and with one. Runs are interleaved on the same rows; medians, and the
speedup ours / libggml. "same bytes" compares the output of both. Decoders and the copy write float32 pages that are in
use already.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from candle_convert.runtime.tensor.block_codec import Codec, codecs

COLUMNS = 4096
NONE = np.empty(0, np.float32)
Work = Callable[[int], object]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--libggml", type=Path, required=True, help="folder of libggml-base.so")
    parser.add_argument("--types", help="comma-separated block types; default: all")
    parser.add_argument("--runs", type=int, default=7, help="runs of each codec")
    parser.add_argument("--seconds", type=float, default=0.05, help="processor time of one run")
    parser.add_argument("--mib", type=int, default=16, help="size of the float32 rows")
    arguments = parser.parse_args()
    library = ctypes.CDLL(str(arguments.libggml / "libggml-base.so"))
    library.ggml_quantize_chunk.restype = ctypes.c_size_t
    pointer = ctypes.c_void_p
    library.ggml_quantize_chunk.argtypes = [ctypes.c_int, pointer, pointer, *[ctypes.c_int64] * 3, pointer]
    rows = np.random.default_rng(0).standard_normal((arguments.mib << 18 >> 12, COLUMNS), np.float32)
    types = None if arguments.types is None else arguments.types.split(",")
    wanted = [each for each in codecs().values() if types is None or each.dtype.name in types]
    print("| type | imatrix | ours M/s | libggml M/s | speedup | same bytes |\n|---|---|---|---|---|---|")
    for codec in wanted:
        if codec.encoder is not None and codec.dtype.name not in ("q8_1", "q8_k"):
            for weighted in (False, True) if not codec.needs_importance else (True,):
                print(compare_encoders(codec, weighted, library, rows, arguments.runs, arguments.seconds), flush=True)
    print("\n| type | decoded GB/s | copy GB/s | share |\n|---|---|---|---|")
    for codec in wanted:
        if codec.decoder is not None:
            print(compare_decoder(codec, rows, arguments.runs, arguments.seconds), flush=True)


def compare_encoders(
    codec: Codec, weighted: bool, library: ctypes.CDLL, rows: np.ndarray, runs: int, seconds: float
) -> str:
    """Row of the table of encoders."""
    assert codec.encoder is not None
    kernel = codec.encoder
    importance = np.random.default_rng(1).random(COLUMNS, np.float32) + 0.5 if weighted else NONE
    shape = (len(rows), COLUMNS // codec.dtype.block * codec.dtype.block_nbytes)
    first, second = (np.zeros(shape, np.uint8) for _ in range(2))

    def ours(count: int) -> None:
        kernel(rows, importance, first, 0, count)

    def theirs(count: int) -> None:
        weights = importance.ctypes.data if weighted else None
        library.ggml_quantize_chunk(codec.dtype.ggml, rows.ctypes.data, second.ctypes.data, 0, count, COLUMNS, weights)

    mine, peer = rates((ours, theirs), len(rows), runs, seconds)
    done = len(rows) if (second[-1] != 0).any() and (first[-1] != 0).any() else 4
    same = np.array_equal(first[:done], second[:done])
    scale = COLUMNS / 1e6
    figures = f"{mine * scale:.1f} | {peer * scale:.1f} | {mine / peer:.1f}"
    return f"| {codec.dtype.name} | {'yes' if weighted else 'no'} | {figures} | {'yes' if same else 'NO'} |"


def compare_decoder(codec: Codec, rows: np.ndarray, runs: int, seconds: float) -> str:
    """Row of the table of decoders."""
    assert codec.decoder is not None
    kernel = codec.decoder
    size = COLUMNS // codec.dtype.block * codec.dtype.block_nbytes
    blocks = np.random.default_rng(2).integers(0, 256, (len(rows), size), dtype=np.uint8)
    values = np.zeros_like(rows)

    def ours(count: int) -> None:
        kernel(blocks[:count].reshape(-1), values[:count].reshape(-1))

    def copy(count: int) -> None:
        np.copyto(values[:count], rows[:count])

    mine, peer = rates((ours, copy), len(rows), runs, seconds)
    scale = COLUMNS * 4 / 1e9
    return f"| {codec.dtype.name} | {mine * scale:.1f} | {peer * scale:.1f} | {mine / peer:.0%} |"


def rates(sides: tuple[Work, Work], most: int, runs: int, seconds: float) -> tuple[float, float]:
    """Median rows per second of processor time of both sides, in interleaved runs."""
    plans = [plan(side, most, seconds) for side in sides]
    found: tuple[list[float], list[float]] = ([], [])
    for _ in range(runs):
        for side, (count, times), rate in zip(sides, plans, found, strict=True):
            start = time.thread_time()
            for _ in range(times):
                side(count)
            rate.append(count * times / (time.thread_time() - start))
    return statistics.median(found[0]), statistics.median(found[1])


def plan(side: Work, most: int, seconds: float) -> tuple[int, int]:
    """Rows per call and calls per run, so that a run takes about `seconds` of processor time."""
    side(4)
    count, elapsed = 4, 0.0
    while elapsed < seconds and count < most:
        count = min(most, 2 * count)
        start = time.thread_time()
        side(count)
        elapsed = time.thread_time() - start
    return count, max(1, round(seconds / max(elapsed, 1e-6)))


if __name__ == "__main__":
    main()
