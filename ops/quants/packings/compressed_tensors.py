"""compressed-tensors: the presets of llm-compressor, which vLLM and transformers read.

Source: the compressed-tensors library (pack-quantized, int-quantized, float-quantized and nvfp4-pack-quantized).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....runtime.contract.quantization_scheme import BAND, Packing, computed
from ....runtime.tensor.dtype import DTYPES, F32, I8, I32, U8
from ....runtime.tensor.stored_tensor import StoredTensor
from ..layout import affine
from ..layout.fields import Values
from ..layout.packed_integers import words

GROUP = 128
BLOCK = 128
F8 = DTYPES["f8_e4m3"]
LARGEST_F8, LARGEST_F4 = np.float32(448), np.float32(6)
HALVES_F4 = np.array((0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5), np.float32)
"""Magnitudes between neighbouring 4-bit floats; of an exact middle the even code is the nearest."""
PER_F4_GROUP = 16
TINY_F8 = np.float32(0.125)
"""The scale of a group of zeros, as the library has it."""
TOKENS = {"num_bits": 8, "symmetric": True, "strategy": "token", "dynamic": True}


def packed_integers(weight: StoredTensor, group: int, bits: int, symmetric: bool) -> dict[str, StoredTensor]:
    """``weight_packed`` [out, in * bits / 32], ``weight_scale`` [out, groups], ``weight_shape``, and without symmetry
    ``weight_zero_point`` [out * bits / 32, groups]."""
    outputs, inputs = weight.shape
    groups, most, per_word = inputs // group, (1 << bits) - 1, 32 // bits
    kind = affine.scale_dtype(weight)

    def parameters(first: int, last: int) -> tuple[Values, Values, Values | float]:
        values = affine.floats(weight, first, last).reshape(last - first, groups, group)
        if symmetric:
            return values, affine.symmetric(values, most / 2, kind), float(1 << bits - 1)
        return values, *affine.asymmetric(values, most, kind)

    def packed(first: int, last: int) -> np.ndarray:
        codes = affine.quantized(*parameters(first, last), most)
        return words(codes.reshape(last - first, inputs), bits)

    def scales(first: int, last: int) -> np.ndarray:
        return parameters(first, last)[1]

    def zeros(first: int, last: int) -> np.ndarray:
        points = parameters(first * per_word, min(outputs, last * per_word))[2]
        assert isinstance(points, np.ndarray)
        whole = np.zeros(((last - first) * per_word, groups), np.uint8)
        whole[: len(points)] = points
        return words(whole, bits, 0)

    found = {
        "weight_packed": computed((outputs, inputs // per_word), packed, (weight,), I32),
        "weight_scale": computed((outputs, groups), scales, (weight,), kind),
        "weight_shape": StoredTensor.of(np.array([outputs, inputs], np.int64)),
    }
    if not symmetric:
        found["weight_zero_point"] = computed((-(-outputs // per_word), groups), zeros, (weight,), I32)
    return found


def rows_of_integers(weight: StoredTensor, _: int) -> dict[str, StoredTensor]:
    """``weight`` [out, in] of 8-bit integers, ``weight_scale`` [out, 1]."""
    kind = affine.scale_dtype(weight)

    def parameters(first: int, last: int) -> tuple[Values, Values]:
        values = affine.floats(weight, first, last)
        return values, affine.symmetric(values, 127.5, kind)

    def codes(first: int, last: int) -> np.ndarray:
        return affine.quantized(*parameters(first, last), 128.0, 255).view(np.int8) ^ np.int8(-128)

    def scales(first: int, last: int) -> np.ndarray:
        return parameters(first, last)[1][:, None]

    return {
        "weight": computed(weight.shape, codes, (weight,), I8),
        "weight_scale": computed((weight.shape[0], 1), scales, (weight,), kind),
    }


def floats_8(weight: StoredTensor, _: int, blocks: bool) -> dict[str, StoredTensor]:
    """``weight`` [out, in] of 8-bit floats, ``weight_scale`` [out, 1], or of blocks of 128 x 128."""
    outputs, inputs = weight.shape
    kind = affine.scale_dtype(weight)
    high, wide = (BLOCK, BLOCK) if blocks else (1, inputs)
    grid = -(-outputs // high), -(-inputs // wide)

    def scales(first: int, last: int) -> Values:
        """Of rows of blocks."""
        values = affine.floats(weight, first * high, min(outputs, last * high))
        whole = np.zeros(((last - first) * high, grid[1] * wide), np.float32)
        whole[: len(values), :inputs] = values
        apart = whole.reshape(last - first, high, grid[1], wide).swapaxes(1, 2)
        return affine.symmetric(apart.reshape(last - first, grid[1], high * wide), float(LARGEST_F8), kind)

    def values(first: int, last: int) -> np.ndarray:
        of_rows = scales(first // high, -(-last // high)).repeat(high, 0)[first % high :][: last - first]
        scaled = affine.floats(weight, first, last) / of_rows.repeat(wide, 1)[:, :inputs]
        return np.clip(scaled, -LARGEST_F8, LARGEST_F8).astype(F8.as_numpy())

    return {
        "weight": computed(weight.shape, values, (weight,), F8),
        "weight_scale": computed(grid, scales, (weight,), kind),
    }


def floats_4(weight: StoredTensor, _: int) -> dict[str, StoredTensor]:
    """NVFP4: ``weight_packed`` [out, in / 2], the first in the low half, ``weight_scale`` [out, in / 16] of 8-bit
    floats, and ``weight_global_scale`` [1], by which those are divided."""
    outputs, inputs = weight.shape
    groups = inputs // PER_F4_GROUP

    @functools.cache
    def whole() -> np.float32:
        step = max(1, BAND // max(1, inputs))
        spans = ((row, min(outputs, row + step)) for row in range(0, outputs, step))
        largest = max((float(np.abs(affine.floats(weight, *span)).max()) for span in spans), default=0.0)
        return LARGEST_F8 * LARGEST_F4 / np.float32(largest) if largest > 0 else np.float32(1)

    def parameters(first: int, last: int) -> tuple[Values, Values]:
        values = affine.floats(weight, first, last).reshape(last - first, groups, PER_F4_GROUP)
        scales = whole() * (np.abs(values).max(-1) / LARGEST_F4)
        scales = np.clip(scales, 0, LARGEST_F8).astype(F8.as_numpy()).astype(np.float32)
        return values, np.where(scales > 0, scales, TINY_F8)

    def packed(first: int, last: int) -> np.ndarray:
        values, scales = parameters(first, last)
        scaled = np.clip(values / (scales / whole())[..., None], -LARGEST_F4, LARGEST_F4)
        codes = np.searchsorted(HALVES_F4, np.abs(scaled)).astype(np.uint8)
        codes += (np.abs(scaled) == HALVES_F4[np.minimum(codes, 6)]) & (codes & 1 == 1)
        codes |= np.signbit(scaled).astype(np.uint8) << 3
        pairs = codes.reshape(last - first, inputs // 2, 2)
        return pairs[..., 0] | pairs[..., 1] << 4

    return {
        "weight_packed": computed((outputs, inputs // 2), packed, (weight,), U8),
        "weight_scale": computed((outputs, groups), lambda first, last: parameters(first, last)[1], (weight,), F8),
        "weight_global_scale": computed((1,), lambda first, last: np.array([[whole()]]), (weight,), F32),
    }


def configure(
    skipped: Sequence[str], group: int, form: str, weights: dict[str, Any], activations: dict[str, Any] | None = None
) -> dict[str, Any]:
    """The configuration, whose only group are the linear layers."""
    if weights["strategy"] == "group":
        weights = {**weights, "group_size": group}
    scheme = {"targets": ["Linear"], "weights": {**weights, "dynamic": False}, "input_activations": activations}
    return {
        "quant_method": "compressed-tensors",
        "format": form,
        "quantization_status": "compressed",
        "config_groups": {"group_0": {**scheme, "output_activations": None, "format": form}},
        "ignore": [*skipped],
        "kv_cache_scheme": None,
        "global_compression_ratio": None,
    }


def _preset(
    name: str,
    title: str,
    pack: Callable[[StoredTensor, int], dict[str, StoredTensor]],
    group: int | None = None,
    multiples: tuple[int, int] = (1, 1),
    **settings: Any,
) -> Packing:
    configured = functools.partial(configure, **settings)
    return Packing(name, f"compressed-tensors, {title}", pack, configured, group, multiples)


def _integers(name: str, bits: int, symmetric: bool = True) -> Packing:
    return _preset(
        name,
        f"{bits}-bit integers" + ("" if symmetric else " with zero points"),
        functools.partial(packed_integers, bits=bits, symmetric=symmetric),
        GROUP,
        (1 if symmetric else 32 // bits, 8),
        form="pack-quantized",
        weights={"num_bits": bits, "type": "int", "symmetric": symmetric, "strategy": "group"},
    )


ROWS_F8 = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "channel"}
GROUPS_F4 = {"num_bits": 4, "type": "float", "symmetric": True, "strategy": "tensor_group", "group_size": PER_F4_GROUP}
PACKINGS = (
    _integers("W4A16", 4),
    _integers("W4A16_ASYM", 4, symmetric=False),
    _integers("W8A16", 8),
    _preset(
        "W8A8",
        "8-bit integers, activations too",
        rows_of_integers,
        form="int-quantized",
        weights={**ROWS_F8, "type": "int"},
        activations={**TOKENS, "type": "int"},
    ),
    _preset(
        "FP8_DYNAMIC",
        "8-bit floats, activations too",
        functools.partial(floats_8, blocks=False),
        form="float-quantized",
        weights=ROWS_F8,
        activations={**TOKENS, "type": "float"},
    ),
    _preset(
        "FP8_BLOCK",
        "8-bit floats in blocks of 128 x 128, activations too",
        functools.partial(floats_8, blocks=True),
        form="float-quantized",
        weights={**ROWS_F8, "strategy": "block", "block_structure": [BLOCK, BLOCK]},
        activations={**TOKENS, "type": "float", "strategy": "group", "group_size": BLOCK},
    ),
    _preset(
        "NVFP4A16",
        "4-bit floats in groups of 16",
        floats_4,
        multiples=(1, PER_F4_GROUP),
        form="nvfp4-pack-quantized",
        weights={**GROUPS_F4, "scale_dtype": "torch.float8_e4m3fn"},
    ),
)
