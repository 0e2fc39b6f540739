"""Block quantization on the device, byte for byte against the CPU encoders. Prints each type compared.

    python block_encoders.py [TYPE ...]

Under the simulator long blocks are fewer, and a search in a lattice gets a quarter of each, the rest are zeros, unless
CANDLE_FULL=1.
"""

import sys

import numpy as np
from candle_convert.ops.quants.cuda.device_encoder import on_device
from candle_convert.ops.quants.cuda.encode import lane_encoder
from candle_convert.ops.quants.cuda.stream_lanes import Lanes
from candle_convert.runtime.cuda.device.device import SIMULATED
from candle_convert.runtime.tensor import block_codec
from candle_convert.runtime.tensor.block_codec import codecs
from candle_convert.tests.builders.sampling import full

THIN = SIMULATED and not full()


def rows_for(codec, lattice, rng):
    """Ordinary rows, one that is small with zeros, one of huge and tiny numbers."""
    columns = codec.dtype.block * (1 if codec.dtype.block >= 128 else 2)
    rows = rng.standard_normal((3, columns)).astype(np.float32)
    rows[1] *= np.float32(1e-3)
    rows[1, 3:9] = 0
    rows[2] *= 10.0 ** rng.integers(-38, 38, columns)
    if THIN and lattice:
        rows[:, 32:96], rows[:, 128:] = 0, 0
    return rows[1:] if THIN and columns >= 256 else rows


def main():
    rng = np.random.default_rng(0)
    there = on_device(Lanes("cuda"))
    for codec in codecs().values():
        if codec.encoder is None or (sys.argv[1:] and codec.dtype.name not in sys.argv[1:]):
            continue
        for weighted in (False, True):
            found = lane_encoder(codec, weighted)
            if codec.needs_importance > weighted or weighted > found.weighted:
                continue
            rows = rows_for(codec, found.lattice, rng)
            if weighted == codec.needs_importance:
                rows = np.concatenate((rows, np.zeros_like(rows[:1])))
            importance = rng.random(rows.shape[1]).astype(np.float32) if weighted else None
            made, expected = (block_codec.encoded(one, rows, importance) for one in (there(codec.dtype), codec))
            np.testing.assert_array_equal(made, expected, codec.dtype.name)
            print(codec.dtype.name, flush=True)


if __name__ == "__main__":
    main()
