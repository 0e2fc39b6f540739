"""Views: parts of a tensor, and its elements in another arrangement, through which the tensor is written to.

``x[0].add_(1)``, ``x.view(-1)[3] = 1`` and ``x.data.zero_()`` change `x`, as in torch. A view knows from which tensor
it was taken and how; the place of each element follows when the view is written to.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...runtime.base.errors import UsageError
from ..core.expression import leaf
from ..core.grad_mode import no_grad
from ..core.lazy_tensor import LazyTensor
from ..core.registry import FUNCTIONS, attribute, method
from ..operations import indexing, joining, shape

NEEDED = indexing, joining, shape
ARRANGING = ("squeeze", "unflatten", "unsqueeze", "view", "view_as")
"""Methods whose results have the same elements in the same order."""
MOVING = (
    "chunk", "diagonal", "movedim", "moveaxis", "narrow", "permute", "select", "split", "swapaxes", "swapdims", "t",
    "transpose", "unbind",
)  # fmt: skip
"""Methods whose results have some of the elements, or all in another order."""
COPYING = ("flatten", "ravel", "reshape", "reshape_as")
"""Methods whose results are copies where the elements do not lie side by side."""


class Step(NamedTuple):
    """How a view was taken.

    Attributes:
        source: of which tensor.
        take: gives the view of any tensor of this shape; None for the whole tensor without gradients.
        whole: whether the view has all elements in the same order.
        dense: whether its elements lie side by side.
    """

    source: weakref.ref[LazyTensor]
    take: Callable[[LazyTensor], LazyTensor] | None
    whole: bool
    dense: bool


def _origin(view: LazyTensor) -> tuple[Step, ...]:
    steps: tuple[Step, ...] = getattr(view, "origin", ())
    return steps


def _remember(view: LazyTensor, step: Step) -> LazyTensor:
    """Let writes to a view reach the tensor that it was taken of, and those of which that one is a view."""
    source = step.source()
    assert source is not None
    steps = _origin(source)
    first = next((place for place, each in enumerate(steps) if each.source() is not None), len(steps))
    view.origin = (*steps[first:], step)
    return view


def _viewing(made: Callable[..., Any], whole: bool, copies: bool = False) -> Callable[..., Any]:
    @functools.wraps(made)
    def viewed(self: LazyTensor, *given: Any, **options: Any) -> Any:
        found = made(self, *given, **options)
        if copies and not all(step.dense for step in _origin(self)):
            return found
        source = weakref.ref(self)
        if isinstance(found, LazyTensor):
            return _remember(found, Step(source, lambda x: made(x, *given, **options), whole, whole))
        for place, part in enumerate(found):
            take = functools.partial(lambda place, x: made(x, *given, **options)[place], place)
            _remember(part, Step(source, take, False, False))
        return found

    return viewed


for _names, _whole, _copies in ((ARRANGING, True, False), (MOVING, False, False), (COPYING, True, True)):
    for _name in _names:
        _viewed = _viewing(getattr(LazyTensor, _name), _whole, _copies)
        method(_name)(_viewed)
        if _name in FUNCTIONS:
            FUNCTIONS[_name] = _viewed
for _name in ("T", "mT"):
    attribute(_name, _viewing(getattr(LazyTensor, _name).fget, False))


@method("__getitem__")
def get(self: LazyTensor, index: Any) -> LazyTensor:
    """The elements at an index: a view for integers, slices, None and ``...``, a copy for tensors, lists and masks."""
    found = indexing.get(self, index)
    items = index if isinstance(index, tuple) else (index,)
    if not all(map(_is_basic, items)):
        return found
    first = items[0] if len(items) == 1 else None
    dense = isinstance(first, int) or (type(first) is slice and first.step in (None, 1))
    return _remember(found, Step(weakref.ref(self), lambda x: indexing.get(x, index), False, dense))


def _is_basic(item: Any) -> bool:
    if item is None or item is Ellipsis or type(item) is int or type(item) is slice:
        return True
    return isinstance(item, np.integer)


_detach = LazyTensor.detach


@method()
def detach(self: LazyTensor) -> LazyTensor:
    """The same values without a gradient; writing into them changes this tensor."""
    return _remember(_detach(self), Step(weakref.ref(self), None, True, True))


def _set_data(self: LazyTensor, value: LazyTensor) -> None:
    if not isinstance(value, LazyTensor):
        why = f"data of a tensor cannot become {type(value).__name__}"
        raise UsageError("E-TENSOR-DATA", None, why, hint="Assign a tensor")
    needs_grad = self.requires_grad
    self.expression.holder = None
    self.set_expression(_detach(value).expression)
    if needs_grad:
        self.requires_grad_()


attribute("data", detach, _set_data)


@method()
def refresh(self: LazyTensor) -> None:
    """Give a view the elements that the tensor of which it was taken has now."""
    steps = _origin(self)
    first = next((place for place, step in enumerate(steps) if step.source() is not None), None)
    if first is None or _is_tracked(self):
        return
    values = _values(steps[first:])
    last = steps[-1]
    now = _detach(values[-1]) if last.take is None else last.take(values[-1])
    if now.shape == self.shape and now.dtype is self.dtype:
        self.expression.holder = None
        self.set_expression(now.expression)


def _is_tracked(view: LazyTensor) -> bool:
    """Whether gradients by the view itself are wanted."""
    return view.requires_grad and view.is_leaf


def _values(steps: tuple[Step, ...]) -> list[LazyTensor]:
    """The tensors of which views were taken one after the other, as they are now; the first one exists."""
    first = steps[0].source()
    assert first is not None
    values = [first]
    for step in steps[:-1]:
        values.append(_detach(values[-1]) if step.take is None else step.take(values[-1]))
    return values


@method()
def write_back(self: LazyTensor) -> None:
    """Write the elements of a view to the tensors of which it was taken."""
    steps = _origin(self)
    first = next((place for place, step in enumerate(steps) if step.source() is not None), len(steps))
    steps = steps[first:]
    if not steps:
        return
    detached = any(step.take is None for step in steps)
    with no_grad() if detached else contextlib.nullcontext():
        written = self
        for step, value in zip(reversed(steps), reversed(_values(steps)), strict=True):
            written = _written(value, step, written)
            source = step.source()
            if source is not None:
                source.take_values(written)


def _written(base: LazyTensor, step: Step, part: LazyTensor) -> LazyTensor:
    """A tensor with the elements of a view of it replaced."""
    if step.whole:
        return LazyTensor(part.expression) if part.shape == base.shape else shape.reshape(part, base.shape)
    assert step.take is not None
    places = step.take(LazyTensor(leaf(np.arange(base.numel()).reshape(base.shape))))
    return indexing.replaced(base, places, part)
