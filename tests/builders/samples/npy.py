"""npy samples, by NumPy."""

from pathlib import Path

import numpy as np
from candle_convert.tests.builders.sample_arrays import arrays


def npy_plain(folder: Path) -> Path:
    np.save(folder / "x.npy", arrays()["model.embed.weight"])
    return folder / "x.npy"


def npy_fortran(folder: Path) -> Path:
    np.save(folder / "x.npy", np.asfortranarray(arrays()["model.embed.weight"].astype(">f8")))
    return folder / "x.npy"


def npy_unicode(folder: Path) -> Path:
    with open(folder / "x.npy", "wb") as file:
        np.lib.format.write_array(file, arrays()["model.ids"], version=(3, 0))
    return folder / "x.npy"


SAMPLES = {"c-order": npy_plain, "fortran-big-endian": npy_fortran, "version-3": npy_unicode}
