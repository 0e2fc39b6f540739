"""Tensors times a constant, computed when they are read."""

from __future__ import annotations

from .storage import Derived
from .tensor import Tensor, pack, unpack


def scaled(tensor: Tensor, factor: float) -> Tensor:
    """The values times `factor`, rounded to their own type; blocks become f32. A power of two changes no digit."""
    if factor == 1.0:
        return tensor
    from .cast import convert

    plain = tensor if tensor.qtype is None else tensor.dequantize()
    dtype, inner = plain.dtype, plain.storage
    size, step = dtype.block_nbytes, plain.unit

    def read(start: int, stop: int) -> memoryview:
        import numpy

        values = unpack(inner.read(start, stop), dtype, (stop - start) // size * dtype.block)
        return pack(convert(values.astype(numpy.float32) * numpy.float32(factor), dtype), dtype)

    return Tensor(dtype, plain.shape, Derived(plain.nbytes, step, read, sequential=inner.sequential))
