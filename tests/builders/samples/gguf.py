"""GGUF samples, by llama.cpp's gguf package."""

from pathlib import Path

import numpy as np
from candle_convert.tests.builders.sample_arrays import arrays


def _gguf(folder: Path, *, big: bool) -> Path:
    import gguf

    writer = gguf.GGUFWriter(
        folder / "x.gguf", "sample", endianess=gguf.GGUFEndian.BIG if big else gguf.GGUFEndian.LITTLE
    )
    writer.add_string("general.name", "ünï")
    writer.add_array("numbers", [1, 2, 3])
    writer.add_array("words", ["a", "", "ß"])
    writer.add_bool("yes", True)
    writer.add_float64("pi", 3.14159)
    for name, array in arrays().items():
        writer.add_tensor(name, array)
    quantized = gguf.quants.quantize(
        np.linspace(-1, 1, 64, dtype=np.float32).reshape(2, 32), gguf.GGMLQuantizationType.Q8_0
    )
    if not big:
        writer.add_tensor("quantized", quantized, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return folder / "x.gguf"


def gguf_little(folder: Path) -> Path:
    return _gguf(folder, big=False)


def gguf_big(folder: Path) -> Path:
    return _gguf(folder, big=True)


SAMPLES = {"version-3": gguf_little, "big-endian": gguf_big}
