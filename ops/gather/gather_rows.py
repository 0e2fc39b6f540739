"""Gathers of rows of any storage type, decoded to f32."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...runtime.base.process_cache import process_cache
from ...runtime.jit.llvm_kernel import EmittedKernel
from ...runtime.simd.llvm_vector import I32, I64, Code
from ..kernels.gemm.gemv import WeightRows, part_range


class GatherArguments(NamedTuple):
    """Arguments of `gather_rows`.

    Attributes:
        count: indices.
        height, row_bytes: rows of the source, and bytes of one.
        length: elements of a row.
        bailout: the word that an index out of range sets.
    """

    source: Any
    indices: Any
    target: Any
    count: Any
    height: Any
    row_bytes: Any
    length: Any
    bailout: Any


@process_cache
def gather_rows(name: str, index_bytes: int) -> EmittedKernel:
    """Gathers and decodes rows; for an index out of range the first one."""
    stored = WeightRows(name)

    def write(builder: Any, part: Any, parts: Any, given: GatherArguments) -> None:
        code = Code(builder)
        with code.loop(*part_range(code, given.count, part, parts)) as at:
            place = builder.add(given.indices, builder.mul(at, code.word(index_bytes)))
            index = code.load(place, I64) if index_bytes == 8 else builder.sext(code.load(place, I32), I64)
            negative = builder.icmp_signed("<", index, code.word(0))
            index = builder.select(negative, builder.add(index, given.height), index)
            outside = builder.icmp_unsigned(">=", index, given.height)
            with builder.if_then(outside):
                code.store(code.word(1), given.bailout)
            index = builder.select(outside, code.word(0), index)
            row = builder.add(given.source, builder.mul(index, given.row_bytes))
            to = builder.add(given.target, builder.mul(at, builder.shl(given.length, code.word(2))))
            stored.decode(code, row, given.length, to)

    return EmittedKernel(f"{name}_gathered_{index_bytes}", write, GatherArguments)
