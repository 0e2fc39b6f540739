"""Elements: how kernels read and write each dtype. f16 and bf16 are storage, widened to f32 where they are read and rounded where written."""

# mypy: disable-error-code="misc, untyped-decorator"
from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from . import native, scalar_math
from .compiler import intrinsic, types
from .kernel import inlined
from .record import dataclass
from .simd import bits, from_bits

F32, I16, I32 = ir.FloatType(), ir.IntType(16), ir.IntType(32)


@intrinsic
def half(typing: Any, word: Any) -> Any:
    """The number whose f16 is that word."""

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.fpext(builder.bitcast(args[0], ir.HalfType()), F32)

    return types.float32(types.uint16), lower


@intrinsic
def to_half(typing: Any, value: Any) -> Any:
    """The f16 next to a number, half to even, as a word."""

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.bitcast(builder.fptrunc(args[0], ir.HalfType()), I16)

    return types.uint16(types.float32), lower


@inlined
def brain(word: Any) -> Any:
    """The number whose bf16 is that word."""
    return from_bits(np.int32(np.uint32(word) << np.uint32(16)))


@inlined
def to_brain(value: Any) -> Any:
    """The bf16 next to a number, half to even, as a word."""
    word = np.uint32(bits(np.float32(value)))
    rounded = (word + np.uint32(0x7FFF) + ((word >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.uint16(rounded if value == value else np.uint32(0x7FC0))


@inlined
def same(value: Any) -> Any:
    """An element that is the number itself."""
    return value


@inlined
def truth(byte: Any) -> Any:
    """Whether a byte is not zero."""
    return byte != 0


@dataclass(frozen=True)
class Element:
    """How a dtype is stored.

    Attributes:
        pointer: makes a pointer of an address.
        read, written: from what is stored to a number, and back.
        number: type of the numbers.
        total: type that sums of many numbers are kept in.
    """

    pointer: Any
    read: Any
    written: Any
    number: Any
    total: Any

    @property
    def stored(self) -> bool:
        """Whether numbers are stored as they are."""
        return self.read is same

    @property
    def pointer_to_numbers(self) -> Any:
        """Makes a pointer to numbers of an address."""
        return ELEMENTS[np.dtype(self.number).name].pointer

    @property
    def math(self) -> Any:
        """Functions of numbers that become vector code where they can."""
        return scalar_math


ELEMENTS = {
    "float32": Element(native.f32, same, same, np.float32, np.float64),
    "float64": Element(native.f64, same, same, np.float64, np.float64),
    "float16": Element(native.u16, half, to_half, np.float32, np.float64),
    "bfloat16": Element(native.u16, brain, to_brain, np.float32, np.float64),
    "bool": Element(native.u8, truth, np.uint8, np.bool_, np.int64),
    **{
        f"{kind}{width}": Element(getattr(native, f"{kind[0]}{width}"), same, same, getattr(np, f"{kind}{width}"), getattr(np, f"{kind}64"))
        for kind in ("int", "uint") for width in (8, 16, 32, 64)
    },
}
"""By the dtype's name."""


def element(dtype: np.dtype[Any]) -> Element | None:
    """How a dtype is stored, None where kernels cannot."""
    return ELEMENTS.get(dtype.name)
