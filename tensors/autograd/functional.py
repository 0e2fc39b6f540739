"""Gradients of functions: grad and value_and_grad; and of tensors by chosen others."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

from ...runtime.base.errors import UsageError
from ..core.expression import Expression, alias
from ..core.grad_mode import GRAD_MODE, set_grad_enabled
from ..core.nested import mapped
from ..core.registry import function
from ..core.tensor import Tensor
from ..operations.creation import zeros_like
from .backward import complex_loss
from .derivative import history
from .hooks import grads


class _Depth(threading.local):
    grads = 0


_DEPTH = _Depth()
Argnums = int | Sequence[int]


@function()
def value_and_grad(
    made: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False
) -> Callable[..., tuple[Any, Any]]:
    """A function of the same arguments that returns the value and the gradient.

    Args:
        made: returns a float tensor of one element; with `has_aux` a pair of that and anything else.
        argnums: the positional arguments by which is differentiated, tensors, or lists, tuples and dictionaries of
            tensors; the gradient has their structure.
    """
    several = not isinstance(argnums, int)
    chosen = tuple(argnums) if not isinstance(argnums, int) else (argnums,)

    @functools.wraps(made)
    def differentiating(*arguments: Any, **options: Any) -> tuple[Any, Any]:
        sources: list[Tensor] = []
        tracked = _DEPTH.grads > 0

        def marked(item: Any) -> Tensor:
            nonlocal tracked
            sources.append(_source(item))
            tracked = tracked or (item.requires_grad and GRAD_MODE.enabled)
            return sources[-1]

        _DEPTH.grads += 1
        try:
            given = [mapped(item, marked) if n in chosen else item for n, item in enumerate(arguments)]
            with set_grad_enabled(True):
                result = made(*given, **options)
                value = result[0] if has_aux else result
                _check(value)
                found = grads(value.expression, [source.expression for source in sources])
        finally:
            _DEPTH.grads -= 1
        parts = iter([zeros_like(s) if e is None else Tensor(e) for s, e in zip(sources, found, strict=True)])
        given_grads = [mapped(arguments[n], lambda _: next(parts)) for n in chosen]
        grad = tuple(given_grads) if several else given_grads[0]
        return (result, grad) if tracked else mapped((result, grad), _detached)

    return differentiating


@function()
def grad(made: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False) -> Callable[..., Any]:
    """A function of the same arguments that returns the gradient, with `has_aux` and what else the function returns.

    It can be differentiated again: ``grad(grad(f))``.
    """
    both = value_and_grad(made, argnums, has_aux)

    @functools.wraps(made)
    def gradient(*arguments: Any, **options: Any) -> Any:
        value, found = both(*arguments, **options)
        return (found, value[1]) if has_aux else found

    return gradient


def _check(value: Any) -> None:
    if not isinstance(value, Tensor) or value.numel() != 1 or not value.expression.type.differentiable:
        what = value.expression.type if isinstance(value, Tensor) else type(value).__name__
        why = f"the function that is differentiated returned {what}"
        raise UsageError("E-TENSOR-GRAD", None, why, expected="a float tensor of one element")


def _source(item: Any) -> Tensor:
    """A new tensor of the values of a float tensor, through which gradients are taken."""
    if not isinstance(item, Tensor) or not item.expression.type.differentiable:
        why = f"{item.expression.type if isinstance(item, Tensor) else type(item).__name__} has no gradient"
        raise UsageError("E-TENSOR-GRAD", None, why, hint="Leave it out of argnums, or convert it with float()")
    marked = alias(item.expression)
    marked.needs_grad = True
    return Tensor(marked)


def _detached(item: Any) -> Any:
    return item.detach() if isinstance(item, Tensor) else item


@function()
def stop_gradient(input: Tensor) -> Tensor:
    """The same values without a gradient."""
    return input.detach()


@function()
def gradients(
    outputs: Tensor, inputs: Sequence[Tensor], grad_outputs: Tensor | None = None,
    create_graph: bool = False,
) -> list[Tensor | None]:  # fmt: skip
    """The gradients of a tensor by others, which are not added to their `grad`; None where it does not depend on one.

    Args:
        grad_outputs: by what the elements are weighted; a tensor of one element needs none.
        create_graph: the gradients can be differentiated again.
    """
    if grad_outputs is None and outputs.numel() != 1:
        why = f"gradients of a tensor of shape {list(outputs.shape)} need grad_outputs"
        raise UsageError("E-TENSOR-GRAD", None, why, hint="Reduce it with sum() or mean()")
    if grad_outputs is None and outputs.dtype.is_complex:
        raise complex_loss(outputs)
    with set_grad_enabled(True):
        target = outputs if grad_outputs is None else outputs * grad_outputs.detach().conj()
    with set_grad_enabled(create_graph):
        sources = [item.expression for item in inputs]
        former = _former(target.expression, inputs)
        found = [None if item is None else Tensor(item) for item in grads(target.expression, sources + former)]
        for source, part in zip(former, found[len(inputs) :], strict=True):
            for index, item in enumerate(inputs):
                if part is not None and item is source.tensor:
                    known = found[index]
                    found[index] = part if known is None else known + part
    return found[: len(inputs)]


def _former(target: Expression, inputs: Sequence[Tensor]) -> list[Expression]:
    """The expressions that leaves had when `target` was computed from them, where they were written to since."""
    leaves = {id(item) for item in inputs if item.is_leaf}
    if not leaves or not target.needs_grad:
        return []
    return [each for each in history(target) if each.holder is None and each.is_leaf and id(each.tensor) in leaves]
