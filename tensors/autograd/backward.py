"""Tensor.backward: gradients of a tensor by the leaves that it is computed from."""

from __future__ import annotations

import weakref

from ...runtime.base.errors import UsageError
from ..core.expression import Expression
from ..core.grad_mode import set_grad_enabled
from ..core.realize import MAX_DEPTH, realize
from ..core.registry import method
from ..core.tensor import Tensor
from ..core.trace import TRACE
from ..operations.creation import zeros_like
from .derivative import FORGOTTEN, history
from .hooks import grads


@method()
def backward(
    self: Tensor, gradient: Tensor | None = None, retain_graph: bool | None = None, create_graph: bool = False
) -> None:
    """Add the gradients of this tensor to the `grad` of the leaves that it is computed from.

    Args:
        gradient: by what the elements are weighted; a tensor of one element needs none.
        retain_graph: keep what another `backward` needs; by default only with `create_graph`.
        create_graph: the gradients can be differentiated again.
    """
    target = self.expression
    if not target.needs_grad:
        raise without_history()
    if gradient is None and self.numel() != 1:
        why = f"backward of a tensor of shape {list(self.shape)} needs the gradient to start from"
        raise UsageError("E-TENSOR-GRAD", None, why, hint="Reduce it with sum() or mean(), or pass gradient")
    if gradient is None and self.dtype.is_complex:
        raise complex_loss(self)
    passed = history(target)
    held = [(item, holder) for item in passed if (holder := _keeper(item)) is not None]
    with set_grad_enabled(True):
        target = target if gradient is None else (self * gradient.detach().conj()).expression
    with set_grad_enabled(create_graph):
        found = grads(target, [item for item, _ in held])
        parts = [part for part in found if part is not None]
        if TRACE.changes is None and any(part.depth > MAX_DEPTH for part in parts):
            realize([target, *parts])
        together = [target]
        for (_, tensor), part in zip(held, found, strict=True):
            grad = zeros_like(tensor) if part is None else Tensor(part)
            tensor.grad = grad = grad if tensor.grad is None else tensor.grad + grad
            together.append(grad.expression)
            for hook in tuple(getattr(tensor, "post_hooks", ())):
                hook(tensor)
        companions = list(map(weakref.ref, together))
        for item in together:
            item.companions = companions
    if not (create_graph if retain_graph is None else retain_graph) and TRACE.changes is None:
        _forget(passed)


def without_history() -> UsageError:
    """The error for gradients of a result that was computed without recording them."""
    why = "the tensor does not depend on tensors that require gradients"
    return UsageError("E-TENSOR-GRAD", None, why, hint="Call requires_grad_(), and do not compute it in no_grad()")


def complex_loss(x: Tensor) -> UsageError:
    """The error of gradients of a complex number, which have no direction to start in."""
    why = f"gradients of a number of {x.dtype} need the gradient to start from"
    return UsageError("E-TENSOR-GRAD", None, why, hint="Make it real with abs() or .real, or pass a gradient")


def _keeper(expression: Expression) -> Tensor | None:
    """The tensor whose gradient an expression's is."""
    tensor = expression.tensor
    return tensor if isinstance(tensor, Tensor) and tensor.keeps_grad else None


def _forget(passed: list[Expression]) -> None:
    """Drop the inputs of realized expressions; unrealized ones need them for their values."""
    for expression in passed:
        if expression.data is not None:
            expression.inputs = () if expression.is_leaf else (FORGOTTEN,)
