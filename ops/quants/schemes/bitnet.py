"""BitNet: ternary weights, four in a byte, with one scale per matrix; or floats that are rounded to ternary on reading.

Sources: BitNet b1.58 (arXiv 2402.17764); transformers' names of packed checkpoints. The layers also round their inputs
to 8 bits; that is left out.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from ....runtime.contract.quantization_scheme import BAND, Checkpoint, Scheme, Unpacked, computed
from ....runtime.tensor.stored_tensor import StoredTensor

LAYERS, MODES = ("bitlinear", "autobitlinear"), ("offline", "online")
FLOATS = ("f32", "f16", "bf16")
WEIGHT, SCALE = ".weight", ".weight_scale"
CODES = 4
"""Weights in a byte: rows i, n + i, 2 n + i and 3 n + i of the matrix, n being the rows of the packed one."""
SMALLEST_SCALE = 1e-5
NOT_LINEAR = ("embed_tokens", "lm_head")


def unpack(checkpoint: Checkpoint) -> Unpacked:
    """``NAME.weight`` of packed ternary weights or of floats, with ``NAME.weight_scale``, to ``NAME.weight``. Layers of
    the kind autobitlinear multiply by the scale, others divide."""
    layer = checkpoint.setting("linear_class", LAYERS[0], str, LAYERS)
    online = checkpoint.setting("quantization_mode", MODES[0], str, MODES) == MODES[1] and layer == LAYERS[1]
    checkpoint.setting("use_rms_norm", False, bool, (False,))
    found = Unpacked(f"bitnet ternary, {MODES[online]}, inputs of layers not rounded")
    if online:
        kept = (*NOT_LINEAR, *map(str, checkpoint.setting("modules_to_not_convert", (), list)))
        for name, tensor in checkpoint.tensors.items():
            if name.endswith(WEIGHT) and len(tensor.shape) == 2 and not any(part in name for part in kept):
                found.add(name, _rounded(checkpoint.matrix(name, FLOATS)), (name,))
        return found
    for stem in checkpoint.stems(SCALE):
        number = checkpoint.number(stem + SCALE, FLOATS)
        if not np.isfinite(number) or number == 0:
            raise checkpoint.error("E-PACKED-CONFIG", f"tensor {stem + SCALE!r} is not a scale", found=number)
        factor = np.float32(number if layer == LAYERS[1] else 1 / number)
        weight = checkpoint.matrix(stem + WEIGHT, ("u8", *FLOATS))
        found.add(stem + WEIGHT, _times(weight, factor), (stem + WEIGHT, stem + SCALE))
    return found


def _times(weight: StoredTensor, factor: np.float32) -> StoredTensor:
    """Packed or float weights times a factor."""
    count, columns = weight.shape
    packed = weight.dtype.name == "u8"

    def rows(first: int, last: int) -> np.ndarray:
        return (_ternary(weight, first, last) if packed else weight[first:last].cast("f32").numpy()) * factor

    return computed((CODES * count if packed else count, columns), rows, (weight,))


def _ternary(packed: StoredTensor, first: int, last: int) -> np.ndarray:
    """Rows of a packed matrix, as -1, 0 and 1."""
    count = packed.shape[0]
    pieces = []
    for part in range(first // count, -(-last // count)):
        low, high = max(first - part * count, 0), min(last - part * count, count)
        pieces.append((packed[low:high].numpy() >> 2 * part & 3).astype(np.float32) - 1)
    return np.concatenate(pieces)


def _rounded(weight: StoredTensor) -> StoredTensor:
    """Float weights rounded to -1, 0 and 1 times their mean magnitude."""
    scale = _mean_magnitude(weight)

    def rows(first: int, last: int) -> np.ndarray:
        values = weight[first:last].cast("f32").numpy() * scale()
        return np.clip(np.rint(values), -1, 1) / scale()

    return computed(weight.shape, rows, (weight,))


def _mean_magnitude(weight: StoredTensor) -> Callable[[], np.float32]:
    """One by the mean magnitude of a matrix, which is read once, when it is needed."""

    @functools.cache
    def scale() -> np.float32:
        count, columns = weight.shape
        band = max(1, BAND // max(1, columns))
        bands = (weight[start : min(start + band, count)].cast("f32").numpy() for start in range(0, count, band))
        total = sum(float(np.abs(values).sum(dtype=np.float64)) for values in bands)
        return np.float32(1) / np.float32(max(total / weight.count, SMALLEST_SCALE))

    return scale


SCHEME = Scheme(("bitnet",), unpack)
