"""Text of tensors: values, shape, dtype and device."""

from __future__ import annotations

import numpy as np

from ...runtime.tensor.dtype import DType

MAX_PRINTED = 1000
"""Elements up to which all are printed; of larger tensors the first and last three of each dim."""


def text_of(array: np.ndarray, shape: tuple[int, ...], dtype: DType, device: str, requires_grad: bool) -> str:
    """The values, followed by what is not seen from them."""
    if array.dtype.kind not in "biufc":
        array = array.astype(np.float32)
    values = np.array2string(array, threshold=MAX_PRINTED, precision=4, separator=", ", prefix="tensor(")
    facts = [values, f"shape={shape}", f"dtype={dtype}", f"device='{device}'"]
    if requires_grad:
        facts.append("requires_grad=True")
    return f"tensor({', '.join(facts)})"
