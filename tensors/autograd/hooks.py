"""Hooks of tensors: functions that `backward` calls with the gradient of a tensor, and that may replace it."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...runtime.base.errors import UsageError
from ..core.expression import Expression, alias, apply, op_named
from ..core.grad_mode import set_grad_enabled
from ..core.lazy_tensor import LazyTensor
from ..core.registry import method
from .derivative import differentiated, partial_derivatives

Hook = Callable[[LazyTensor], LazyTensor | None]
_inner: weakref.WeakKeyDictionary[Expression, list[Hook]] = weakref.WeakKeyDictionary()
"""Hooks of expressions that are computed; those of leaves belong to their tensors, whose values change."""


class RemovableHandle:
    """Takes a hook away again."""

    def __init__(self, hooks: list[Any], hook: Any) -> None:
        self._hooks = hooks
        self._hook = hook

    def remove(self) -> None:
        """Call the hook no more."""
        if self._hook in self._hooks:
            self._hooks.remove(self._hook)


def added(hooks: list[Any], hook: Any, first: bool = False) -> RemovableHandle:
    """Add a hook as the last one, or as the first one."""
    hooks.insert(0 if first else len(hooks), hook)
    return RemovableHandle(hooks, hook)


@method()
def register_hook(self: LazyTensor, hook: Hook) -> RemovableHandle:
    """Call ``hook(gradient)`` when `backward` knows the gradient of this tensor; a tensor that it returns takes the
    gradient's place, also in the gradients of what this tensor is computed from.

    Raises UsageError for a tensor that does not require gradients.
    """
    if not self.requires_grad:
        why = "a hook of a tensor that does not require gradients is never called"
        raise UsageError("E-TENSOR-GRAD", None, why, hint="Call requires_grad_()")
    if not self.is_leaf:
        return added(_inner.setdefault(self.expression, []), hook)
    if not hasattr(self, "hooks"):
        self.hooks = []
    return added(self.hooks, hook)


def hooks_of(passed: Sequence[Expression]) -> dict[Expression, list[Hook]]:
    """The hooks of expressions that have some."""
    found = {}
    for each in passed:
        holder = None if each.holder is None else each.holder()
        hooks = getattr(holder, "hooks", None) if each.is_leaf else _inner.get(each)
        if hooks:
            found[each] = hooks
    return found


def slopes(
    target: Expression, sources: Sequence[Expression], hooks: Mapping[Expression, Sequence[Hook]]
) -> list[Expression | None]:
    """The derivatives of the sum of `target` by each of `sources`, with hooks called from the target on."""
    if not hooks:
        return differentiated(target, sources)
    points = list(dict.fromkeys([*sources, *hooks]))
    totals: dict[Expression, Expression] = {}
    _add(totals, points, partial_derivatives(target, points))
    for point in sorted(points, key=lambda item: item.order, reverse=True):
        slope = totals.get(point)
        if slope is None:
            continue
        for hook in tuple(hooks.get(point, ())):
            changed = hook(LazyTensor(slope))
            slope = slope if changed is None else changed.expression
        totals[point] = slope
        below = [each for each in points if each.order < point.order]
        if below and point is not target and not point.is_leaf:
            with set_grad_enabled(True):
                weighted = apply(op_named("Mul"), [point, alias(slope)])
            _add(totals, below, partial_derivatives(weighted, below))
    return [totals.get(each) for each in sources]


def _add(
    totals: dict[Expression, Expression], points: Sequence[Expression], found: Sequence[Expression | None]
) -> None:
    for point, slope in zip(points, found, strict=True):
        if slope is not None:
            known = totals.get(point)
            totals[point] = slope if known is None else apply(op_named("Add"), [known, slope])
