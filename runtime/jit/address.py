"""Addresses inside kernels: typed pointers, floats stored in argument words, and the row range of a part."""

# mypy: disable-error-code="misc, untyped-decorator"
from __future__ import annotations

from typing import Any

from llvmlite import ir

from .numba_lazy import emitted, intrinsic, types
from .range_kernel import inner


def _pointer_to(name: str) -> Any:
    @intrinsic
    def pointer(typing: Any, address: Any) -> Any:
        def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return builder.inttoptr(args[0], context.get_value_type(sig.return_type))

        return types.CPointer(getattr(types, name))(types.int64), lower

    return pointer


f32, f64 = _pointer_to("float32"), _pointer_to("float64")
i64, i32, i16, i8 = map(_pointer_to, ("int64", "int32", "int16", "int8"))
u64, u32, u16, u8 = map(_pointer_to, ("uint64", "uint32", "uint16", "uint8"))


@emitted(lambda: types.float64(types.int64))
def number(build: Any, word: Any) -> Any:
    """A floating-point argument, stored in a word as the bits of a double."""
    return build.bitcast(word, ir.DoubleType())


@inner
def share(count: int, part: int, parts: int) -> tuple[int, int]:
    """The range of `count` rows that a part computes: (start, stop)."""
    return count * part // parts, count * (part + 1) // parts
