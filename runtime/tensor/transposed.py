"""Lazily transposed tensors; transposing again returns the original tensor, blocks included."""

from __future__ import annotations

from .storage import Derived
from .stored_tensor import StoredTensor


class Transposed(Derived):
    """The bytes of a transpose, computed one matrix at a time; `origin` is the tensor that was transposed."""

    def __init__(self, origin: StoredTensor) -> None:
        import numpy

        values = origin.dequantize()
        rows, columns = origin.shape[-2:]
        size = max(1, rows * columns * values.dtype.block_nbytes)

        def read(start: int, stop: int) -> memoryview:
            low, high = start // size, -(-stop // size)
            found = numpy.frombuffer(values.storage.read(low * size, high * size), values.dtype.as_numpy()).reshape(
                -1, rows, columns
            )
            swapped = numpy.ascontiguousarray(found.swapaxes(1, 2)).reshape(-1).view(numpy.uint8)
            return swapped.data[start - low * size : stop - low * size]

        super().__init__(values.nbytes, size, read, sequential=values.storage.sequential)
        self.origin = origin


def transposed(tensor: StoredTensor) -> StoredTensor:
    """``[..., a, b]`` as ``[..., b, a]``; the transpose of a transpose is the tensor itself. Blocks become f32."""
    if isinstance(tensor.storage, Transposed):
        return tensor.storage.origin
    dtype = tensor.dequantize().dtype
    return StoredTensor(dtype, (*tensor.shape[:-2], tensor.shape[-1], tensor.shape[-2]), Transposed(tensor))
