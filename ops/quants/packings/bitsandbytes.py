"""bitsandbytes: 4-bit codes of a table with a scale for 64 elements, or rows of 8-bit integers.

Sources: Dettmers et al. 2023 (QLoRA, arXiv 2305.14314) and 2022 (LLM.int8(), arXiv 2208.07339); the library's saved
states.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....runtime.contract.quantization_scheme import Packing, computed
from ....runtime.tensor.dtype import F32, I8, U8
from ....runtime.tensor.stored_tensor import StoredTensor
from ..layout import affine
from ..layout.fields import Values
from ..layout.value_tables import NF4

RUN = 64
"""Elements that share a scale."""


def pack_4(weight: StoredTensor, _: int) -> dict[str, StoredTensor]:
    """``weight`` [out * in / 2, 1], the first of two codes in the high half, ``weight.absmax`` [runs], the table
    ``weight.quant_map``, and a state in JSON. Rows are whole runs."""
    outputs, inputs = weight.shape
    count = outputs * inputs
    state = {"quant_type": "nf4", "blocksize": RUN, "dtype": _torch_name(weight), "shape": [outputs, inputs]}
    middles = (NF4[1:] + NF4[:-1]) / 2

    def runs(first: int, last: int) -> tuple[Values, Values]:
        values = affine.floats(weight, first, last).reshape(-1, RUN)
        return values, np.abs(values).max(-1, keepdims=True)

    def rows(first: int, last: int) -> np.ndarray:
        values, largest = runs(first, last)
        scaled = values * np.divide(np.float32(1), largest, out=np.zeros_like(largest), where=largest > 0)
        codes = np.searchsorted(middles, scaled).astype(np.uint8).reshape(last - first, inputs // 2, 2)
        return codes[..., 0] << 4 | codes[..., 1]

    packed = computed((outputs, inputs // 2), rows, (weight,), U8)
    scales = computed(
        (outputs, inputs // RUN), lambda first, last: runs(first, last)[1].reshape(last - first, -1), (weight,), F32
    )
    text = np.frombuffer(json.dumps(state).encode(), np.uint8)
    return {
        "weight": StoredTensor(U8, (count // 2, 1), packed.storage),
        "weight.absmax": StoredTensor(F32, (count // RUN,), scales.storage),
        "weight.quant_map": StoredTensor.of(NF4),
        "weight.quant_state.bitsandbytes__nf4": StoredTensor.of(text),
    }


def pack_8(weight: StoredTensor, _: int) -> dict[str, StoredTensor]:
    """``weight`` [out, in] of integers, ``SCB`` [out], the largest magnitude of each row."""

    def largest(first: int, last: int) -> np.ndarray:
        return np.abs(affine.floats(weight, first, last)).max(1, initial=0, keepdims=True)

    def codes(first: int, last: int) -> np.ndarray:
        values, most = affine.floats(weight, first, last), largest(first, last)
        values *= np.divide(np.float32(127), most, out=np.zeros_like(most), where=most > 0)
        return np.rint(values)

    scales = computed((weight.shape[0], 1), largest, (weight,))
    return {
        "weight": computed(weight.shape, codes, (weight,), I8),
        "SCB": StoredTensor(scales.dtype, weight.shape[:1], scales.storage),
    }


def _torch_name(weight: StoredTensor) -> str:
    return {"f16": "float16", "bf16": "bfloat16"}.get(weight.dtype.name, "float32")


def configure_4(skipped: Sequence[str], _: int) -> dict[str, Any]:
    """The configuration of 4 bits."""
    return {
        "quant_method": "bitsandbytes",
        "load_in_4bit": True,
        "load_in_8bit": False,
        "bnb_4bit_quant_type": "nf4",
        "bnb_4bit_use_double_quant": False,
        "bnb_4bit_compute_dtype": "bfloat16",
        "bnb_4bit_quant_storage": "uint8",
        "llm_int8_skip_modules": [*skipped],
    }


def configure_8(skipped: Sequence[str], _: int) -> dict[str, Any]:
    """The configuration of 8 bits."""
    return {"quant_method": "bitsandbytes", "load_in_8bit": True, "llm_int8_skip_modules": [*skipped]}


PACKINGS = (
    Packing("BNB-4BIT", "bitsandbytes, NF4", pack_4, configure_4, multiples=(1, math.lcm(RUN, 2))),
    Packing("BNB-8BIT", "bitsandbytes, 8-bit integers", pack_8, configure_8),
)
