"""What PyTorch-YOLOv3 computes from a .cfg and weights: `python tests/builders/darknet_results.py` records it where
pytorchyolo is (GPL; only its results are here)."""

import struct
import tempfile
from pathlib import Path

import numpy as np
from candle_convert.tests.builders.image_checkpoints import images

RECORDED = Path(__file__).parent / "vectors" / "darknet_results.npz"
CLASSES = 3
NET = (
    "[net]\nbatch=1\nsubdivisions=1\nwidth=64\nheight=64\nchannels=3\nmomentum=0.9\ndecay=0.0005\nlearning_rate=0.001\n"
    "burn_in=1000\nmax_batches=500\npolicy=steps\nsteps=400,450\nscales=.1,.1\n"
)
SIZES = ((2, 64, 64), (1, 64, 96))


def _conv(filters, size=3, stride=1, act="leaky", norm=1):
    normalized = "batch_normalize=1\n" if norm else ""
    return f"[convolutional]\n{normalized}filters={filters}\nsize={size}\nstride={stride}\npad=1\nactivation={act}\n"


def _yolo(mask):
    head = _conv(2 * (5 + CLASSES), 1, act="linear", norm=0)
    return head + f"[yolo]\nmask={mask}\nanchors=10,13, 16,30, 33,23, 30,61\nclasses={CLASSES}\nnum=4\n"


CFG = "\n".join(
    (
        NET, _conv(8, stride=2), _conv(12, stride=2), _conv(6, 1), _conv(12),
        "[shortcut]\nfrom=-3\nactivation=linear\n",
        "[maxpool]\nsize=3\nstride=1\n", _conv(16, stride=2, act="mish"), _conv(16, stride=2, act="swish"),
        "[route]\nlayers=-1\ngroups=2\ngroup_id=1\n", _conv(16), _yolo("2,3"),
        "[route]\nlayers=-3\n", _conv(8, 1), "[upsample]\nstride=2\n", "[route]\nlayers=-1, 6\n",
        _conv(12, act="logistic"), _yolo("0,1"),
    )
)  # fmt: skip
SHAPES = ((8, 3, 3), (12, 8, 3), (6, 12, 1), (12, 6, 3), (16, 12, 3), (16, 16, 3), (16, 8, 3), (16, 16, 1, 0),
          (8, 16, 1), (12, 24, 3), (16, 12, 1, 0))  # fmt: skip
"""Outputs, inputs and size of each convolution; 0 where no norm follows."""


def weights():
    """The bytes of a .weights file, with random values."""
    generator, pieces = np.random.default_rng(0), [struct.pack("<3iq", 0, 2, 0, 64)]
    for out, inner, size, *norm in SHAPES:
        bias, factor, mean = generator.normal(0, 0.3, out), generator.normal(1, 0.2, out), generator.normal(0, 0.1, out)
        arrays = [bias] if norm else [bias, factor, mean, generator.uniform(0.6, 1.4, out)]
        kernel = generator.normal(0, 1.2 / (inner * size * size) ** 0.5, (out, inner, size, size))
        pieces += [array.astype("<f4").tobytes() for array in (*arrays, kernel)]
    return b"".join(pieces)


def recorded():
    """Predictions [batch, boxes, 5 + classes] for each of `SIZES`."""
    held = np.load(RECORDED)
    return [held[str(number)] for number in range(len(SIZES))]


def record():
    """Write the file."""
    import sys
    import unittest.mock

    for name in ("imgaug", "imgaug.augmentables", "imgaug.augmentables.bbs", "imgaug.augmenters", "terminaltables"):
        sys.modules.setdefault(name, unittest.mock.MagicMock())  # imported for training only
    import torch
    from pytorchyolo.models import Darknet

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "y.cfg").write_text(CFG)
        (Path(folder) / "y.weights").write_bytes(weights())
        model = Darknet(f"{folder}/y.cfg").eval()
        model.load_darknet_weights(f"{folder}/y.weights")
    with torch.no_grad():
        found = {str(number): model(torch.from_numpy(images(*size))).numpy() for number, size in enumerate(SIZES)}
    np.savez_compressed(RECORDED, **found)


__all__ = ["CFG", "SIZES", "recorded", "weights"]

if __name__ == "__main__":
    record()
