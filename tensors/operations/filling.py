"""Methods that write into a tensor: numbers, zeros, and the elements of another tensor."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.conversion import array_of
from ..core.expression import leaf
from ..core.lazy_tensor import LazyTensor
from ..core.registry import attribute, method


@method()
def fill_(self: LazyTensor, value: Any) -> LazyTensor:
    """Write one number to all elements."""
    return self.become(LazyTensor(leaf(np.full(self.shape, value, self.dtype.as_numpy()))))


@method()
def zero_(self: LazyTensor) -> LazyTensor:
    """Write 0 to all elements."""
    return fill_(self, 0)


@method()
def copy_(self: LazyTensor, src: Any) -> LazyTensor:
    """Write the elements of another tensor, which broadcasts."""
    source = src if isinstance(src, LazyTensor) else LazyTensor(leaf(array_of(src)))
    return self.become(source.broadcast_to(self.shape))


def _data(self: LazyTensor) -> LazyTensor:
    return self.detach()


def _set_data(self: LazyTensor, value: LazyTensor) -> None:
    needs_grad = self.requires_grad
    self.expression.holder = None
    self.set_expression(value.detach().expression)
    if needs_grad:
        self.requires_grad_()


attribute("data", _data, _set_data)
