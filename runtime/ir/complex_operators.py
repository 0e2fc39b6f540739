"""Complex operators: which operator computes what another one does, where elements are complex."""

from __future__ import annotations

from collections.abc import Iterable

from ..tensor.dtype import DType
from .domain import COMPLEX
from .op import Op
from .registry import operator


def of_elements(op: Op, dtypes: Iterable[DType | None]) -> Op:
    """The operator for inputs of these dtypes: of complex elements the one that is named so, if there is one."""
    if op.domain == COMPLEX or not any(dtype is not None and dtype.kind == "complex" for dtype in dtypes):
        return op
    return operator(f"Complex{op.name}", COMPLEX) or op
