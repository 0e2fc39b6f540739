"""llama2.c samples, by hand."""

import struct
from pathlib import Path

import numpy as np
from candle_convert.tests.builders.sample_arrays import written


def llama2c_first(folder: Path) -> Path:
    dim, vocab, seq = 4, 5, 3
    count = vocab * dim + 2 * dim + 7 * dim * dim + dim + 2 * seq * (dim // 2 // 2)
    return written(
        folder / "stories.bin",
        struct.pack("<7i", dim, dim, 1, 2, 2, vocab, seq) + np.arange(count, dtype="<f4").tobytes(),
    )


def llama2c_second(folder: Path) -> Path:
    dim, vocab = 4, 5
    head = b"24ka" + struct.pack("<8i", 1, dim, dim, 1, 2, 2, vocab, 3) + b"\1"
    count = 2 * dim + dim + vocab * dim + 7 * dim * dim
    return written(folder / "stories.bin", head.ljust(256, b"\0") + np.arange(count, dtype="<f4").tobytes())


SAMPLES = {"version-0": llama2c_first, "version-1": llama2c_second}
