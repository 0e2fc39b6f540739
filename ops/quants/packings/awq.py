"""AWQ's GEMM format, rounded to nearest: AutoAWQ, transformers and vLLM read it.

Source: the GEMM format of AutoAWQ.
"""

from __future__ import annotations

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
from ..schemes.awq import PER_WORD, PLACES

BITS, MOST, GROUP = 4, 15, 128
ORDER = np.argsort(PLACES)
"""Of eight neighbouring outputs, which is in each place of a word."""


def pack(weight: StoredTensor, group: int) -> dict[str, StoredTensor]:
    """``qweight`` [in, out / 8], ``qzeros`` [groups, out / 8], ``scales`` [groups, out] in f16."""
    outputs, inputs = weight.shape
    columns, groups = Columns(weight, WIDE_BAND), inputs // group

    def parameters(first: int, last: int) -> tuple[Values, Values, Values]:
        """Values of groups [groups, group, out], scales and zero points [groups, out]."""
        values = columns[first * group : last * group].astype(np.float32).reshape(last - first, group, outputs)
        return values, *affine.asymmetric(values, MOST, F16, 1)

    def qweight(first: int, last: int) -> np.ndarray:
        begin = first // group
        found = affine.quantized(*parameters(begin, -(-last // group)), MOST, 1)
        return _interleaved(found.reshape(-1, outputs)[first - begin * group :][: last - first])

    return {
        "qweight": computed((inputs, outputs // PER_WORD), qweight, (weight,), I32),
        "qzeros": computed(
            (groups, outputs // PER_WORD), lambda first, last: _interleaved(parameters(first, last)[2]), (weight,), I32
        ),
        "scales": computed((groups, outputs), lambda first, last: parameters(first, last)[1], (weight,), F16),
    }


def _interleaved(codes: np.ndarray) -> np.ndarray:
    """Words of codes [n, out]."""
    return words(codes.reshape(len(codes), -1, PER_WORD)[..., ORDER].reshape(codes.shape), BITS)


def configure(skipped: Sequence[str], group: int) -> dict[str, Any]:
    """The configuration."""
    return {
        "quant_method": "awq",
        "bits": BITS,
        "group_size": group,
        "version": "gemm",
        "zero_point": True,
        "modules_to_not_convert": [*skipped],
    }


PACKINGS = (Packing("AWQ", "AWQ's format, 4-bit integers with zero points", pack, configure, GROUP, (PER_WORD, 1)),)
