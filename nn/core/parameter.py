"""Parameter: a tensor that a module registers as one of its parameters when it is assigned to an attribute."""

from __future__ import annotations

from typing import Any

from ...tensors.core.tensor import Tensor
from ...tensors.operations.creation import as_tensor


class Parameter(Tensor):
    """A leaf tensor of the same values as another one, which requires gradients.

    Args:
        data: a tensor, or what `as_tensor` takes.
        requires_grad: False for parameters that are not trained.
    """

    def __init__(self, data: Any, requires_grad: bool = True) -> None:
        super().__init__(as_tensor(data).detach().expression)
        self.requires_grad_(requires_grad)

    def __repr__(self) -> str:
        return f"Parameter containing:\n{super().__repr__()}"


class Buffer(Tensor):
    """A tensor that a module registers as a buffer when it is assigned to an attribute.

    Args:
        data: a tensor, or what `as_tensor` takes.
        persistent: whether it is part of the module's `state_dict`.
    """

    def __init__(self, data: Any, *, persistent: bool = True) -> None:
        super().__init__(as_tensor(data).detach().expression)
        self.persistent = persistent
