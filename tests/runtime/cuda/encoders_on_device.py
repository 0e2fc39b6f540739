"""Run by test_encoders: blocks that the device makes, byte by byte against the CPU's, whose oracle is libggml. Prints each type that was compared.

    python encoders_on_device.py [TYPE ...]
"""

import sys

import numpy as np
from candle_convert.ops.quants import codecs
from candle_convert.ops.quants.device.encoding import LaneEncoder, encoded, lane_encoder
from candle_convert.runtime import quant


def rows_for(codec, rng):
    """Ordinary rows, one that is small with zeros, one of huge and tiny numbers."""
    columns = codec.dtype.block * (1 if codec.dtype.block >= 128 else 2)
    rows = rng.standard_normal((3, columns)).astype(np.float32)
    rows[1] *= np.float32(1e-3)
    rows[1, 3:9] = 0
    rows[2] *= 10.0 ** rng.integers(-38, 38, columns)
    return rows


def main():
    rng = np.random.default_rng(0)
    for codec in codecs().values():
        if sys.argv[1:] and codec.dtype.name not in sys.argv[1:]:
            continue
        for weighted in (False, True):
            found = lane_encoder(codec, weighted)
            if not isinstance(found, LaneEncoder) or (weighted and not found.weighted):
                continue
            rows = rows_for(codec, rng)
            importance = rng.random(rows.shape[1]).astype(np.float32) if weighted else None
            if not weighted:
                rows = np.concatenate((rows, np.zeros_like(rows[:1])))
            np.testing.assert_array_equal(encoded(codec, rows, importance), quant.encoded(codec, rows, importance), codec.dtype.name)
            print(codec.dtype.name, flush=True)


if __name__ == "__main__":
    main()
