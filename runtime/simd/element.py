"""Element access of kernels by dtype: f16 and bf16 are widened to f32 on load and rounded on store."""

# mypy: disable-error-code="misc, untyped-decorator"
from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from ..base.dataclass import dataclass
from ..jit import address
from ..jit.numba_lazy import emitted, types
from ..jit.range_kernel import inlined
from . import branchless_math
from .vector import bits, from_bits

F32, I16, I32 = ir.FloatType(), ir.IntType(16), ir.IntType(32)


@emitted(lambda: types.float32(types.uint16))
def f16_to_f32(build: Any, word: Any) -> Any:
    """An f16 bit pattern (u16) as f32."""
    return build.fpext(build.bitcast(word, ir.HalfType()), F32)


@emitted(lambda: types.uint16(types.float32))
def f32_to_f16(build: Any, value: Any) -> Any:
    """An f32 rounded to f16 (ties to even), as u16."""
    return build.bitcast(build.fptrunc(value, ir.HalfType()), I16)


@inlined
def bf16_to_f32(word: Any) -> Any:
    """A bf16 bit pattern (u16) as f32."""
    return from_bits(np.int32(np.uint32(word) << np.uint32(16)))


@inlined
def f32_to_bf16(value: Any) -> Any:
    """An f32 rounded to bf16 (ties to even), as u16."""
    word = np.uint32(bits(np.float32(value)))
    rounded = (word + np.uint32(0x7FFF) + ((word >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.uint16(rounded if value == value else np.uint32(0x7FC0))


@inlined
def identity(value: Any) -> Any:
    """The element unchanged."""
    return value


@inlined
def is_nonzero(byte: Any) -> Any:
    """Whether a byte is not zero."""
    return byte != 0


@dataclass(frozen=True)
class Element:
    """Storage of a dtype.

    Attributes:
        pointer: makes a typed pointer of an address.
        widen, narrow: convert a stored element to the compute type, and back.
        compute_type: NumPy type that kernels compute in.
        sum_type: NumPy type of long sums.
    """

    pointer: Any
    widen: Any
    narrow: Any
    compute_type: Any
    sum_type: Any

    @property
    def stored(self) -> bool:
        """Whether elements are stored in their compute type."""
        return self.widen is identity

    @property
    def compute_pointer(self) -> Any:
        """Makes a pointer to elements of the compute type."""
        return ELEMENTS[np.dtype(self.compute_type).name].pointer

    @property
    def math(self) -> Any:
        """Math functions that LLVM can vectorize."""
        return branchless_math


ELEMENTS = {
    "float32": Element(address.f32, identity, identity, np.float32, np.float64),
    "float64": Element(address.f64, identity, identity, np.float64, np.float64),
    "float16": Element(address.u16, f16_to_f32, f32_to_f16, np.float32, np.float64),
    "bfloat16": Element(address.u16, bf16_to_f32, f32_to_bf16, np.float32, np.float64),
    "bool": Element(address.u8, is_nonzero, np.uint8, np.bool_, np.int64),
    **{
        f"{kind}{width}": Element(
            getattr(address, f"{kind[0]}{width}"),
            identity,
            identity,
            getattr(np, f"{kind}{width}"),
            getattr(np, f"{kind}64"),
        )
        for kind in ("int", "uint")
        for width in (8, 16, 32, 64)
    },
}
"""Name of a dtype -> its storage."""


def element(dtype: np.dtype[Any]) -> Element | None:
    """Access of kernels to a dtype, None if they have none."""
    return ELEMENTS.get(dtype.name)
