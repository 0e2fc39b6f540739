"""Safetensors samples, by the safetensors library."""

from pathlib import Path

from candle_convert.tests.builders.sample_arrays import arrays


def safetensors_single(folder: Path) -> Path:
    import safetensors.numpy

    safetensors.numpy.save_file(arrays(), folder / "x.safetensors", {"format": "np"})
    return folder / "x.safetensors"


def safetensors_empty(folder: Path) -> Path:
    import safetensors.numpy

    safetensors.numpy.save_file({}, folder / "x.safetensors")
    return folder / "x.safetensors"


SAMPLES = {"single": safetensors_single, "no-tensors": safetensors_empty}
