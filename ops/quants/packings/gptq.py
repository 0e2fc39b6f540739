"""GPTQ's format, rounded to nearest: AutoGPTQ, GPTQModel, transformers and vLLM read it.

Source: the checkpoint format of AutoGPTQ and GPTQModel (``gptq``, whose zero points are stored minus one).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....runtime.contract.quantization_scheme import Packing, computed
from ....runtime.tensor.dtype import F16, I32
from ....runtime.tensor.stored_tensor import StoredTensor
from ..layout import affine
from ..layout.fields import Values
from ..layout.packed_integers import words
from ..layout.transposed_columns import WIDE_BAND, Columns

GROUP = 128


def pack(weight: StoredTensor, group: int, bits: int) -> dict[str, StoredTensor]:
    """``qweight`` [in * bits / 32, out], ``qzeros`` [groups, out * bits / 32], ``scales`` [groups, out] in f16, and
    ``g_idx`` [in], the group of each input."""
    outputs, inputs = weight.shape
    columns = Columns(weight, WIDE_BAND)
    groups, most, per_word, middle = inputs // group, (1 << bits) - 1, 32 // bits, 1 << bits - 1

    def parameters(first: int, last: int) -> tuple[Values, Values]:
        """Values of groups [groups, group, out], and scales [groups, out]."""
        values = columns[first * group : last * group].astype(np.float32).reshape(last - first, group, outputs)
        return values, affine.symmetric(values, most / 2, F16, 1)

    def qweight(first: int, last: int) -> np.ndarray:
        begin = first * per_word // group
        found = affine.quantized(*parameters(begin, -(-last * per_word // group)), float(middle), most, 1)
        by_input = found.reshape(-1, outputs)[first * per_word - begin * group :]
        return words(by_input[: (last - first) * per_word], bits, 0)

    zeros = words(np.full((groups, outputs), middle - 1), bits)
    return {
        "qweight": computed((inputs // per_word, outputs), qweight, (weight,), I32),
        "qzeros": StoredTensor.of(zeros),
        "scales": computed((groups, outputs), lambda first, last: parameters(first, last)[1], (weight,), F16),
        "g_idx": StoredTensor.of(np.arange(inputs, dtype=np.int32) // np.int32(group)),
    }


def configure(skipped: Sequence[str], group: int, bits: int) -> dict[str, Any]:
    """The configuration; modules that stay as they are, but for the output layer, are named by patterns."""
    config = {
        "quant_method": "gptq",
        "bits": bits,
        "group_size": group,
        "desc_act": False,
        "sym": True,
        "lm_head": False,
        "true_sequential": True,
        "checkpoint_format": "gptq",
        "pack_dtype": "int32",
    }
    inner = [f"-:^{re.escape(name)}$" for name in skipped if name != "lm_head"]
    return config | ({"dynamic": {pattern: {} for pattern in inner}} if inner else {})


def _of_bits(bits: int) -> Packing:
    return Packing(
        f"GPTQ-INT{bits}",
        f"GPTQ's format, {bits}-bit integers",
        functools.partial(pack, bits=bits),
        functools.partial(configure, bits=bits),
        GROUP,
        (32 // bits, 32 // bits),
    )


PACKINGS = (_of_bits(4), _of_bits(8))
