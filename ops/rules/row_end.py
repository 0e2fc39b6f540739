"""Vectors of f32 that may reach behind the end of a row."""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

from typing import Any

from ...runtime.jit.range_kernel import inner
from ...runtime.simd.memory import load_f32, load_masked, store_f32, store_masked
from ...runtime.simd.vector import LANES


@inner
def load_within(address: int, count: int) -> Any:
    """A vector of which `count` elements are read, and the others are zero."""
    return load_f32(address) if count >= LANES else load_masked(address, (1 << count) - 1)


@inner
def store_within(address: int, vector: Any, count: int) -> None:
    """The first `count` elements of a vector."""
    if count >= LANES:
        store_f32(address, vector)
    else:
        store_masked(address, vector, (1 << count) - 1)
