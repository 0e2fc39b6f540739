"""darknet samples, by hand."""

import struct
from pathlib import Path

import numpy as np
from candle_convert.tests.builders.sample_arrays import written

CFG = (
    "[net]\nchannels=1\nheight=4\nwidth=4\n\n[convolutional]\nbatch_normalize=1\nfilters=2\nsize=3\nstride=1\n"
    "pad=1\nactivation=leaky\n"
)


def darknet_flat(folder: Path) -> Path:
    return written(folder / "x.weights", struct.pack("<3iq", 0, 2, 5, 32) + np.arange(26, dtype="<f4").tobytes())


def darknet_cfg(folder: Path) -> Path:
    (folder / "x.cfg").write_text(CFG)
    return darknet_flat(folder)


SAMPLES = {"flat": darknet_flat, "with-cfg": darknet_cfg}
