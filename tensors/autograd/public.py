"""`cc.autograd`: gradients by PyTorch's names."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from ...runtime.base.errors import UsageError
from ..core.grad_mode import enable_grad as enable_grad
from ..core.grad_mode import no_grad as no_grad
from ..core.grad_mode import set_grad_enabled as set_grad_enabled
from ..core.tensor import Tensor
from ..operations.creation import as_tensor
from . import function_class as function
from . import jacobians as functional
from .backward import complex_loss, without_history
from .checks import gradcheck as gradcheck
from .checks import gradgradcheck as gradgradcheck
from .function_class import Function as Function
from .functional import gradients

__all__ = [
    "Function", "Variable", "backward", "detect_anomaly", "enable_grad", "function", "functional", "grad",
    "gradcheck", "gradgradcheck", "no_grad", "set_detect_anomaly", "set_grad_enabled",
]  # fmt: skip


def grad(
    outputs: Tensor, inputs: Any, grad_outputs: Any = None, retain_graph: bool | None = None,
    create_graph: bool = False, allow_unused: bool = False,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """The gradients of a tensor by others, which are not added to their `grad`.

    Args:
        grad_outputs: by what the elements are weighted; a tensor of one element needs none.
        retain_graph: what another call needs is kept either way.
        create_graph: the gradients can be differentiated again.
        allow_unused: give None for inputs that the output does not depend on.

    Raises UsageError for such inputs otherwise.
    """
    given = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    targets = [outputs] if isinstance(outputs, Tensor) else list(outputs)
    weights = list(grad_outputs) if isinstance(grad_outputs, Sequence) else [grad_outputs] * len(targets)
    if not any(target.requires_grad for target in targets):
        raise without_history()
    if len(targets) == 1:
        found = gradients(targets[0], given, weights[0], create_graph)
    else:
        found = gradients(_weighted(targets, weights), given, None, create_graph)
    if not allow_unused and any(each is None for each in found):
        why = "the output does not depend on one of the inputs"
        raise UsageError("E-TENSOR-GRAD", None, why, hint="Pass allow_unused=True to get None for it")
    return tuple(found)


def backward(
    tensors: Any, grad_tensors: Any = None, retain_graph: bool | None = None, create_graph: bool = False
) -> None:
    """Add the gradients of several tensors to the `grad` of the leaves that they are computed from.

    Args:
        grad_tensors: by what the elements of each are weighted; tensors of one element need none.
    """
    targets = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    weights = list(grad_tensors) if isinstance(grad_tensors, Sequence) else [grad_tensors] * len(targets)
    _weighted(targets, weights).backward(retain_graph=retain_graph, create_graph=create_graph)


def _weighted(targets: Sequence[Tensor], weights: Sequence[Tensor | None]) -> Tensor:
    """The sum of all elements, each with its weight."""
    parts = []
    with enable_grad():
        for target, weight in zip(targets, weights, strict=True):
            if weight is None and target.numel() != 1:
                why = f"gradients of a tensor of shape {list(target.shape)} need weights"
                raise UsageError("E-TENSOR-GRAD", None, why, hint="Reduce it with sum() or mean()")
            if weight is None and target.dtype.is_complex:
                raise complex_loss(target)
            parts.append(target.sum() if weight is None else (target * weight.detach().conj()).sum())
        total = parts[0]
        for part in parts[1:]:
            total = total + part
    return total


def Variable(data: Any, requires_grad: bool = False, volatile: bool = False) -> Tensor:  # noqa: N802 (torch's name)
    """A tensor of the same values without history, as in scripts older than PyTorch 0.4."""
    found = as_tensor(data).detach()
    return found.requires_grad_() if requires_grad else found


class set_detect_anomaly(contextlib.AbstractContextManager[None]):  # noqa: N801 (torch's name)
    """PyTorch's switch of a check for gradients that are NaN, which is not made: errors name the line that built an
    expression without it. Call it, or use it with ``with``."""

    def __init__(self, mode: bool = True, check_nan: bool = True) -> None:
        """Nothing is switched."""

    def __exit__(self, *error: object) -> None:
        """Nothing is switched back."""


class detect_anomaly(set_detect_anomaly):  # noqa: N801 (torch's name)
    """As `set_detect_anomaly`."""

    def __init__(self, check_nan: bool = True) -> None:
        super().__init__()


def __dir__() -> list[str]:
    return list(__all__)
