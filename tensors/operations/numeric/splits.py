"""Parts of tensors: split along a dim, and replaced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....runtime.base.errors import UsageError
from ...core.expression import Size, leaf
from ...core.promotion import category
from ...core.registry import FUNCTIONS, attribute, function, in_place, method, operation
from ...core.tensor import Tensor
from .. import indexing
from ..creation import made
from .parts import index_put


@operation()
def split_with_sizes(input: Tensor, split_sizes: Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Parts of these lengths along a dim."""
    found: tuple[Tensor, ...] = FUNCTIONS["split"](input, list(split_sizes), dim)
    return found


def _numbers(input: Tensor) -> Tensor:
    """The number of each element in the tensor's order."""
    return Tensor(leaf(np.arange(input.numel()).reshape(input.shape)))


@operation()
def diagonal_scatter(input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The tensor with a diagonal replaced."""
    return indexing.replaced(input, _numbers(input).diagonal(offset, dim1, dim2), src)


@operation()
def as_strided_scatter(
    input: Tensor, src: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Tensor:
    """The tensor with elements at strides of its memory replaced."""
    places: Tensor = FUNCTIONS["as_strided"](_numbers(input), size, stride, storage_offset)
    return indexing.replaced(input, places, src)


@operation()
def nonzero_static(input: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """The indices of the first `size` elements that are not 0; rows of `fill_value` where there are fewer."""
    found: Tensor = FUNCTIONS["nonzero"](input)[:size]
    missing = max(size - found.shape[0], 0)
    rest = FUNCTIONS["full"]((missing, found.shape[1]), fill_value, dtype=found.dtype)
    return FUNCTIONS["cat"]([found, rest]) if missing else found


@operation()
def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """The tensor with elements by their numbers in its order replaced, or with `source` added to them."""
    found = index_put(input.reshape(-1), (index.reshape(-1),), source.reshape(-1), accumulate)
    return found.reshape(input.shape)


in_place(put, "put_")


@method()
def apply_(self: Tensor, callable: Callable[[Any], Any]) -> Tensor:
    """Write what a Python function makes of each element."""
    array = self.detach().array()
    found = np.array([callable(each) for each in array.reshape(-1).tolist()], array.dtype)
    return self.become(made(found.reshape(array.shape)))


@method()
def sum_to_size(self: Tensor, *size: Any) -> Tensor:
    """Summed over the dims that a smaller shape, which broadcasts to this one, does not have."""
    shape = tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else size
    if shape and tuple(shape) == self.shape:
        return self
    ahead = self.ndim - len(shape)
    dims = [n for n in range(ahead, self.ndim) if shape[n - ahead] == 1 and self.shape[n] != 1]
    found = self.sum((*range(ahead), *dims), True) if ahead or dims else self
    return (found if category(found.dtype) >= 2 else found.long()).reshape(shape)


@method()
def detach_(self: Tensor) -> Tensor:
    """Drop the history of this tensor."""
    found = self.detach().expression
    self.expression.holder = None
    self.set_expression(found)
    return self


@method("pin_memory", "share_memory_")
def as_it_is(self: Tensor, *given: Any, **options: Any) -> Tensor:
    """The tensor itself: it is in the memory that all devices and processes of this program use."""
    return self


@method()
def cuda(self: Tensor, device: Any = None, **options: Any) -> Tensor:
    """Tensors are on the CPU: raises UsageError."""
    raise UsageError("E-TENSOR-DEVICE", None, "tensors cannot be on a CUDA device", hint="Ask cuda.is_available()")


@method()
def data_ptr(self: Tensor) -> int:
    """The address of the first element."""
    return int(self.detach().array().ctypes.data)


@method()
def get_device(self: Tensor) -> int:
    """-1, which stands for the CPU."""
    return -1


for _name in ("is_sparse", "is_quantized", "is_meta", "is_mps", "is_xpu", "is_nested"):
    attribute(_name, lambda self: False)
attribute("layout", lambda self: "torch.strided")
function("spmm", "dsmm")(FUNCTIONS["mm"])
function("Size")(Size)
