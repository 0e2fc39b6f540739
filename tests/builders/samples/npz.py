"""npz samples, by NumPy."""

from pathlib import Path

import numpy as np
from candle_convert.tests.builders.sample_arrays import arrays


def npz_stored(folder: Path) -> Path:
    np.savez(folder / "x.npz", **arrays())
    return folder / "x.npz"


def npz_deflated(folder: Path) -> Path:
    np.savez_compressed(folder / "x.npz", **arrays())
    return folder / "x.npz"


SAMPLES = {"stored": npz_stored, "deflated": npz_deflated}
