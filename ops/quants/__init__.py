"""Quantized block types, one file each: how a block of a row is decoded and encoded."""

from __future__ import annotations

import functools

from ...runtime import quant, registry
from ...runtime.dtype import F32, BlockType, DType
from ...runtime.errors import UnsupportedError
from ...runtime.quant import Codec
from ...runtime.tensor import Tensor


@functools.cache
def codecs() -> dict[BlockType, Codec]:
    """The codec of every block type that has one."""
    return {codec.dtype: codec for module in registry.all_of("ops.quants", "CODECS") for codec in module}


def codec_of(dtype: BlockType) -> Codec:
    """The codec of a block type; raises UnsupportedError where there is none."""
    codec = codecs().get(dtype)
    if codec is None:
        known = ", ".join(sorted(each.name for each in codecs()))
        raise UnsupportedError("E-QUANT-TYPE", None, f"blocks of type {dtype.name} cannot be decoded", hint=f"Types that can: {known}")
    return codec


def dequantized(tensor: Tensor, dtype: DType = F32) -> Tensor:
    """A quantized tensor as plain numbers, decoded when they are read; a tensor of plain elements is cast."""
    if tensor.qtype is None:
        return tensor.cast(dtype)
    return quant.dequantized(tensor, codec_of(tensor.qtype), dtype)
