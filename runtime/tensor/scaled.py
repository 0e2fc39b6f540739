"""Lazy scaling: tensors multiplied by a constant when they are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .element_packing import pack, unpack
from .storage import Derived
from .stored_tensor import StoredTensor

if TYPE_CHECKING:
    import numpy as np


def scaled(tensor: StoredTensor, factor: float) -> StoredTensor:
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

    return StoredTensor(dtype, plain.shape, Derived(plain.nbytes, step, read, sequential=inner.sequential))


def scaled_rows(tensor: StoredTensor, factors: np.ndarray) -> StoredTensor:
    """The rows of a plain tensor, each times its factor, computed in the tensor's own type when they are read."""
    row, wide = tensor.nbytes // len(tensor), (-1, *(1,) * (len(tensor.shape) - 1))

    def read(start: int, stop: int) -> memoryview:
        first, last = start // row, -(-stop // row)
        values = tensor[first:last].numpy() * factors[first:last].reshape(wide)
        return pack(values, tensor.dtype)[start - first * row : stop - first * row]

    return StoredTensor(
        tensor.dtype, tensor.shape, Derived(tensor.nbytes, 1, read, sequential=tensor.storage.sequential)
    )
