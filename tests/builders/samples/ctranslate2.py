"""CTranslate2 samples, by hand."""

from pathlib import Path

import numpy as np
from candle_convert.tests.builders.ctranslate2_files import ctranslate2_file


def plain(folder: Path) -> Path:
    """Matrices, a scalar and an alias."""
    rng = np.random.default_rng(0)
    variables = {
        "encoder/weight": rng.standard_normal((4, 6)).astype(np.float16),
        "encoder/num_heads": np.int16(2),
        "decoder/weight": rng.integers(-127, 128, (5, 4)).astype(np.int8),
        "decoder/weight_scale": rng.random(5).astype(np.float32),
    }
    path = folder / "model.bin"
    path.write_bytes(ctranslate2_file(variables, {"decoder/projection": "decoder/weight"}, "TransformerSpec"))
    return path


SAMPLES = {"plain": plain}
