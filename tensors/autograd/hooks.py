"""Hooks of tensors: functions that `backward` calls with the gradient of a tensor, and that may replace it."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import UsageError
from ...runtime.base.process_cache import PROCESS, owned
from ...runtime.ir.domain import COMPLEX
from ..core.expression import Expression, alias, apply, op_named
from ..core.grad_mode import set_grad_enabled
from ..core.registry import method
from ..core.tensor import Tensor
from ..operations.creation import ones_like
from .derivative import differentiated, history, partial_derivatives

Hook = Callable[[Tensor], Tensor | None]
OwnGradient = Callable[[list[Tensor | None]], Sequence[Tensor | None]]


@dataclass(frozen=True, eq=False)
class Own:
    """A gradient that is not that of the operators.

    Attributes:
        results: weak references to the expressions from which it flows; inputs: those to which it flows.
        gradient: the gradients of the inputs by those of the results.
    """

    results: tuple[weakref.ref[Expression], ...]
    inputs: tuple[Expression | None, ...]
    gradient: OwnGradient


_own: weakref.WeakKeyDictionary[Expression, Own] = owned(weakref.WeakKeyDictionary(), PROCESS)
_inner: weakref.WeakKeyDictionary[Expression, list[Hook]] = owned(weakref.WeakKeyDictionary(), PROCESS)
"""Hooks of expressions that are computed; those of leaves belong to their tensors, whose values change."""


class RemovableHandle:
    """Takes a hook away again."""

    def __init__(self, hooks: list[Any], hook: Any) -> None:
        self._hooks = hooks
        self._hook = hook

    def remove(self) -> None:
        """Remove the hook."""
        if self._hook in self._hooks:
            self._hooks.remove(self._hook)


def added(hooks: list[Any], hook: Any, first: bool = False) -> RemovableHandle:
    """Add a hook as the last one, or as the first one."""
    hooks.insert(0 if first else len(hooks), hook)
    return RemovableHandle(hooks, hook)


@method()
def register_hook(self: Tensor, hook: Hook) -> RemovableHandle:
    """Call ``hook(gradient)`` when `backward` knows the gradient of this tensor; a tensor that it returns replaces
    the gradient, also in the gradients of what this tensor is computed from.

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


@method()
def register_post_accumulate_grad_hook(self: Tensor, hook: Callable[[Tensor], None]) -> RemovableHandle:
    """Call ``hook(tensor)`` when `backward` has added to the `grad` of this leaf.

    Raises UsageError for a tensor that does not require gradients, or is not a leaf.
    """
    if not self.requires_grad or not self.is_leaf:
        why = "post_accumulate hooks are of leaves that require gradients"
        raise UsageError("E-TENSOR-GRAD", None, why, hint="Call requires_grad_(), or register_hook()")
    if not hasattr(self, "post_hooks"):
        self.post_hooks = []
    return added(self.post_hooks, hook)


def own_gradient(results: Sequence[Expression], inputs: Sequence[Expression | None], gradient: OwnGradient) -> None:
    """Let gradients flow from expressions to inputs, which come before them, by a function of all their gradients."""
    own = Own(tuple(map(weakref.ref, results)), tuple(inputs), gradient)
    for result in results:
        _own[result] = own


def _hooks_of(each: Expression) -> Sequence[Hook]:
    if not each.is_leaf:
        return tuple(_inner.get(each, ()))
    return tuple(getattr(each.tensor, "hooks", ()))


def grads(target: Expression, sources: Sequence[Expression]) -> list[Expression | None]:
    """The derivatives of the sum of `target` by each of `sources`, with hooks called from the target on."""
    passed = history(target)
    hooks = {each: found for each in passed if (found := _hooks_of(each))}
    owns = {each: _own[each] for each in passed if each in _own} if _own else {}
    if not hooks and not owns:
        return differentiated(target, sources)
    inputs = [item for own in owns.values() for item in own.inputs if item is not None and item.needs_grad]
    points = list(dict.fromkeys([*sources, *hooks, *owns, *inputs]))
    totals: dict[Expression, Expression] = {}
    _flow(totals, target, points)
    done: set[Own] = set()
    for point in sorted(points, key=lambda item: item.order, reverse=True):
        grad = totals.get(point)
        if grad is None:
            continue
        for hook in hooks.get(point, ()):
            changed = hook(Tensor(grad))
            grad = totals[point] = grad if changed is None else changed.expression
        own = owns.get(point)
        if own is None:
            before = [each for each in points if each.order < point.order]
            if point is not target and not point.is_leaf and before:
                fixed = alias(grad)
                fixed.needs_grad = grad.needs_grad
                with set_grad_enabled(True):
                    by = apply(op_named("Conj", COMPLEX), [fixed]) if fixed.type.dtype.is_complex else fixed
                    weighted = apply(op_named("Mul"), [point, by])
                _flow(totals, weighted, [*before, fixed])
        elif own not in done:
            done.add(own)
            known = [None if (item := result()) is None else totals.get(item) for result in own.results]
            parts = own.gradient([None if item is None else Tensor(item) for item in known])
            for item, part in zip(own.inputs, parts, strict=True):
                if item is not None and item.needs_grad and part is not None:
                    _add(totals, item, part.expression)
    return [totals.get(source) for source in sources]


def _flow(totals: dict[Expression, Expression], target: Expression, points: Sequence[Expression]) -> None:
    """Add the derivatives of a target by points, the others of which are held fixed, to what is known of them."""
    if target in points:
        _add(totals, target, ones_like(Tensor(target)).expression)
    elif points:
        for point, grad in zip(points, partial_derivatives(target, points), strict=True):
            if grad is not None:
                _add(totals, point, grad)


def _add(totals: dict[Expression, Expression], point: Expression, grad: Expression) -> None:
    known = totals.get(point)
    totals[point] = grad if known is None else apply(op_named("Add"), [known, grad])
