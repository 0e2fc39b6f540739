"""Text of tensors: values, shape, dtype and device."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from ...runtime.tensor.dtype import DType

PRINTED: dict[str, Any] = {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 75, "sci_mode": None}
"""Settings of printing by the names of `set_printoptions`; up to `threshold` elements are all printed, and of larger
tensors the first and last `edgeitems` of each dim."""


def text_of(array: np.ndarray, shape: tuple[int, ...], dtype: DType, device: str, requires_grad: bool) -> str:
    """The values, followed by what is not seen from them."""
    if array.dtype.kind not in "biufc":
        array = array.astype(np.float32)
    formats: dict[str, Any] = {}
    if PRINTED["sci_mode"] and array.dtype.kind == "f":
        formats = {"formatter": {"float_kind": lambda value: f"{value:.{PRINTED['precision']}e}"}}
    values = np.array2string(
        array, max_line_width=PRINTED["linewidth"], threshold=min(PRINTED["threshold"], sys.maxsize),
        edgeitems=PRINTED["edgeitems"], precision=PRINTED["precision"], suppress_small=PRINTED["sci_mode"] is False,
        separator=", ", prefix="tensor(", **formats,
    )  # fmt: skip
    facts = [values, f"shape={shape}", f"dtype={dtype}", f"device='{device}'"]
    if requires_grad:
        facts.append("requires_grad=True")
    return f"tensor({', '.join(facts)})"
