"""Exact integer products by BLAS: float sums are exact while they fit the mantissa."""

from __future__ import annotations

import numpy as np

from ...runtime.base.errors import FormatError
from ...runtime.ir.shape_inference import CHECK, Inference

F32_EXACT = 1 << 24


def same_dtypes(node: Inference, *pairs: tuple[int, int]) -> None:
    """Refuse zero points of another dtype than the codes: pairs of the positions of both."""
    for codes, zero in pairs:
        one, other = node.dtype(codes), node.dtype(zero)
        if one is not None and other is not None and one is not other:
            node.fail(f"input {codes} is {one.name}, its zero point {other.name}")


def centred(values: np.ndarray, zero: np.ndarray | None) -> np.ndarray:
    """``values - zero`` as f32, exact for integers of 16 bits; `zero` is in a shape that broadcasts."""
    made = values.astype(np.float32)
    if zero is not None:
        made -= zero.astype(np.float32)
    return made


def reach(*factors: np.ndarray) -> int:
    """The largest magnitude of a product of one element of each array of integers."""
    product = 1
    for factor in factors:
        product *= int(max(factor.max(initial=0), -factor.min(initial=0)))
    return product


def exact_matmul(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Product of f32 arrays that hold integers, as i32 that wraps around: f32 sums over as many terms as stay
    exact, added as integers."""
    terms, depth = max(1, F32_EXACT // max(1, reach(a, b))), a.shape[-1] if a.ndim else 0
    if a.ndim == 0 or b.ndim == 0 or depth != b.shape[-2 if b.ndim > 1 else -1]:
        raise FormatError("E-OP-SHAPE", None, f"no matrix product of shapes {a.shape} and {b.shape}", hint=CHECK)
    if depth <= terms:
        return np.asarray(np.matmul(a, b)).astype(np.int32)
    if terms < 32:
        return np.asarray(np.matmul(a.astype(np.int64), b.astype(np.int64))).astype(np.int32)
    total: np.ndarray | None = None
    for start in range(0, depth, terms):
        part = np.asarray(
            np.matmul(
                a[..., start : start + terms],
                b[..., start : start + terms, :] if b.ndim > 1 else b[start : start + terms],
            )
        )
        total = part.astype(np.int32) if total is None else total + part.astype(np.int32)
    assert total is not None
    return total
