"""Compiled decoders of consecutive blocks to f32, for large tensors."""

from __future__ import annotations

from typing import Any

from ....runtime.jit.llvm_kernel import EmittedKernel
from ....runtime.simd.llvm_vector import Code
from ....runtime.tensor.block_codec import block_type
from ..regular import COMPILED, LAYOUTS
from . import Block
from .layout_vectors import rows_of


def _decoder(name: str) -> EmittedKernel:
    """Decodes `count` elements from the address `blocks` to the address `values`."""
    dtype = block_type(name)
    rows = rows_of(LAYOUTS[name], dtype.size)

    def write(builder: Any, part: Any, parts: Any, *, blocks: Any, values: Any, count: Any) -> None:
        code = Code(builder)
        with code.loop(code.word(0), builder.sdiv(count, code.word(dtype.length))) as index:
            source = builder.add(blocks, builder.mul(index, code.word(dtype.size)))
            target = builder.add(values, builder.mul(index, code.word(4 * dtype.length)))
            vectors = (vector for group in rows(Block(code, source)) for vector in group.values())
            for position, vector in enumerate(vectors):
                code.store(vector.value, target, 64 * position)

    return EmittedKernel(f"decode_{name}", write)


DECODERS = {name: _decoder(name) for name in COMPILED}


def __getattr__(name: str) -> EmittedKernel:
    """The decoder ``decode_NAME`` of a type."""
    try:
        return DECODERS[name.removeprefix("decode_")]
    except KeyError:
        raise AttributeError(name) from None
