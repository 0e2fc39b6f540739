"""Views: parts of a tensor, and its elements in another arrangement, through which the tensor is written to.

``x[0].add_(1)``, ``x.view(-1)[3] = 1`` and ``x.data.zero_()`` change `x`, as in torch. A view knows from which tensor
it was taken and how; the position of each element follows when the view is written to.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from ...runtime.base.errors import UsageError
from ..complex import numbers
from ..core.expression import alias, leaf
from ..core.grad_mode import GRAD_MODE, no_grad, set_grad_enabled
from ..core.registry import FUNCTIONS, attribute, method
from ..core.tensor import Tensor, changed_leaf
from ..operations import composed, indexing, joining, shape
from ..operations.numeric import products, splits

NEEDED = composed, indexing, joining, products, shape, splits
ARRANGING = ("squeeze", "unflatten", "unsqueeze", "view", "view_as")
"""Methods whose results have the same elements in the same order."""
MOVING = (
    "broadcast_to", "chunk", "diagonal", "dsplit", "expand", "expand_as", "hsplit", "movedim", "moveaxis",
    "narrow", "permute", "select", "split", "swapaxes", "swapdims", "t", "tensor_split", "transpose", "unbind",
    "unfold", "vsplit",
)  # fmt: skip
"""Methods whose results have some of the elements, all in another order, or some more than once."""
COPYING = ("flatten", "ravel", "reshape", "reshape_as")
"""Methods whose results are copies where the elements do not lie side by side."""


class Step(NamedTuple):
    """A step from a tensor to its view.

    Attributes:
        source: gives the tensor of which, while it exists; it is kept where its memory is others' too.
        take: gives the view of any tensor of this shape; None for the whole tensor without gradients.
        whole: whether the view has all elements in the same order.
        dense: whether its elements lie side by side.
        repeats: whether the view has more elements than the tensor.
        inside: whether the tensor is itself a part of one that no longer exists.
        put: gives the tensor with other elements in place of the view's; None where the view's positions say which.
    """

    source: Callable[[], Tensor | None]
    take: Callable[[Tensor], Tensor] | None
    whole: bool
    dense: bool
    repeats: bool = False
    inside: bool = False
    put: Callable[[Tensor, Tensor], Tensor] | None = None


def reference(source: Tensor) -> Callable[[], Tensor | None]:
    return (lambda: source) if hasattr(source, "shared") else weakref.ref(source)


def origin_of(view: Tensor) -> tuple[Step, ...]:
    steps: tuple[Step, ...] = getattr(view, "origin", ())
    return steps


class AliasSet:
    """A tensor and the views of it, which change together."""

    def __init__(self, first: Tensor) -> None:
        self._members = [weakref.ref(first)]
        self._room = 16

    def add(self, view: Tensor) -> None:
        """A new view."""
        if len(self._members) >= self._room:
            self._members = [member for member in self._members if member() is not None]
            self._room = max(16, 2 * len(self._members))
        self._members.append(weakref.ref(view))

    def replace(self, first: Tensor, other: Tensor) -> None:
        """Let `other` take the role of `first`."""
        self._members = [weakref.ref(other) if member() is first else member for member in self._members]

    def __iter__(self) -> Iterator[Tensor]:
        return iter([each for member in self._members if (each := member()) is not None])


def remember(view: Tensor, step: Step) -> Tensor:
    """Let writes to a view reach the tensor that it was taken of, and those of which that one is a view, and let writes
    to them reach the view."""
    source = step.source()
    assert source is not None
    steps = origin_of(source)
    first = next((index for index, each in enumerate(steps) if each.source() is not None), len(steps))
    if any(each.inside or not each.whole for each in steps[:first]):
        steps, step = _all_inside(steps), step._replace(inside=True)
    view.origin = (*steps[first:], step)
    if not hasattr(source, "alias_set"):
        source.alias_set = AliasSet(source)
    view.alias_set = source.alias_set
    view.alias_set.add(view)
    return view


def _all_inside(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    return tuple([step._replace(inside=True) for step in steps])


def _viewing(made: Callable[..., Any], whole: bool, copies: bool = False) -> Callable[..., Any]:
    @functools.wraps(made)
    def viewed(self: Tensor, *given: Any, **options: Any) -> Any:
        found = made(self, *given, **options)
        if copies and not all(step.dense for step in origin_of(self)):
            return found
        source = reference(self)
        if isinstance(found, Tensor):
            repeats = found.numel() > self.numel()
            return remember(found, Step(source, lambda x: made(x, *given, **options), whole, whole, repeats))
        for place, part in enumerate(found):
            take = functools.partial(lambda place, x: made(x, *given, **options)[place], place)
            remember(part, Step(source, take, False, False))
        return found

    return viewed


for _names, _whole, _copies in ((ARRANGING, True, False), (MOVING, False, False), (COPYING, True, True)):
    for _name in _names:
        _viewed = _viewing(getattr(Tensor, _name), _whole, _copies)
        method(_name)(_viewed)
        if _name in FUNCTIONS:
            FUNCTIONS[_name] = _viewed
for _name in ("T", "mT"):
    attribute(_name, _viewing(getattr(Tensor, _name).fget, False))


def _part_of_complex(made: Callable[[Tensor], Tensor], put: Callable[[Tensor, Tensor], Tensor]) -> Any:
    """A function whose result is a view of the parts of complex numbers, of the numbers that parts make, or of
    conjugates."""

    @functools.wraps(made)
    def viewed(input: Tensor) -> Tensor:
        found = made(input)
        whole = found.numel() != input.numel()
        return input if found is input else remember(found, Step(reference(input), made, whole, whole, put=put))

    return viewed


def _assign_part(name: str, self: Tensor, value: Any) -> None:
    """Write the elements of a part: ``x.real = value``."""
    getattr(self, name).copy_(value)


for _name, _put in (
    ("real", lambda base, part: numbers.complex_of(part, numbers.imag(base))),
    ("imag", lambda base, part: numbers.complex_of(numbers.real(base), part)),
    ("view_as_real", lambda base, part: numbers.view_as_complex(part)),
    ("view_as_complex", lambda base, part: numbers.view_as_real(part)),
    ("conj", lambda base, part: numbers.conj(part)),
):
    FUNCTIONS[_name] = _part_of_complex(FUNCTIONS[_name], _put)
method("conj")(FUNCTIONS["conj"])
for _name in ("real", "imag"):
    attribute(_name, FUNCTIONS[_name], functools.partial(_assign_part, _name))


@method("__getitem__")
def get(self: Tensor, index: Any) -> Tensor:
    """The elements at an index: a view for integers, slices, None and ``...``, a copy for tensors, lists and masks."""
    found = indexing.get(self, index)
    items = index if isinstance(index, tuple) else (index,)
    if not all(map(_is_basic, items)):
        return found
    first = items[0] if len(items) == 1 else None
    dense = isinstance(first, int) or (type(first) is slice and first.step in (None, 1))
    return remember(found, Step(reference(self), lambda x: indexing.get(x, index), False, dense))


def _is_basic(item: Any) -> bool:
    if item is None or item is Ellipsis or type(item) is int or type(item) is slice:
        return True
    return isinstance(item, np.integer)


_detach = Tensor.detach


@method()
def detach(self: Tensor) -> Tensor:
    """The same values without a gradient; writing into them changes this tensor."""
    return remember(_detach(self), Step(reference(self), None, True, True))


def _set_data(self: Tensor, value: Tensor) -> None:
    if not isinstance(value, Tensor):
        why = f"data of a tensor cannot become {type(value).__name__}"
        raise UsageError("E-TENSOR-DATA", None, why, hint="Assign a tensor")
    needs_grad, after = self.requires_grad, _detach(value).expression
    _leave_storage(self)
    self.expression.holder = None
    self.set_expression(after)
    if needs_grad:
        self.requires_grad_()


def _leave_storage(tensor: Tensor) -> None:
    """Let views of a tensor, and arrays that have its values, be of another tensor with these values from now on."""
    views = [each for each in getattr(tensor, "alias_set", ()) if each is not tensor]
    if views:
        former = Tensor(tensor.expression)
        for name in ("origin", "shared"):
            if hasattr(tensor, name):
                setattr(former, name, getattr(tensor, name))
        for view in views:
            view.origin = tuple(
                step._replace(source=lambda: former) if step.source() is tensor else step for step in origin_of(view)
            )
        former.alias_set = tensor.alias_set
        former.alias_set.replace(tensor, former)
    for name in ("origin", "alias_set", "shared"):
        if hasattr(tensor, name):
            delattr(tensor, name)


attribute("data", detach, _set_data)


@method()
def update_views(self: Tensor) -> None:
    """Give the views of the same tensor the elements that a write to this one has changed."""
    written = {id(source) for step in origin_of(self) if (source := step.source()) is not None} | {id(self)}
    views = [view for view in self.alias_set if view is not self]
    if not views and not hasattr(self, "origin"):
        del self.alias_set
    for view in views:
        if id(view) not in written:
            _refresh(view)


def _refresh(view: Tensor) -> None:
    """Give a view the elements that the tensor of which it was taken has now."""
    steps = origin_of(view)
    first = next((index for index, step in enumerate(steps) if step.source() is not None), None)
    if first is None:
        return
    take = steps[-1].take
    tracked = view.requires_grad and view.is_leaf
    with set_grad_enabled(view.requires_grad or GRAD_MODE.enabled):
        source = _values(steps[first:])[-1]
        now = _detach(source) if take is None or tracked else source
        if take is not None:
            now = take(now)
    after = now.expression
    if view.requires_grad and not now.requires_grad:
        with no_grad():
            after = alias(after) if tracked else view.overwritten(after).expression
        after.needs_grad = True
    view.move_to(after)


def _values(steps: tuple[Step, ...]) -> list[Tensor]:
    """The tensors of which views were taken one after the other, as they are now; the first one exists."""
    first = steps[0].source()
    assert first is not None
    values = [first]
    for step in steps[:-1]:
        values.append(_detach(values[-1]) if step.take is None else step.take(values[-1]))
    return values


@method()
def require_writable(self: Tensor) -> None:
    """Raise UsageError for views of leaves whose gradients are recorded, and for views that repeat elements."""
    recorded = GRAD_MODE.enabled
    for step in reversed(origin_of(self)):
        recorded = recorded and step.take is not None
        source = step.source()
        if step.repeats:
            why = f"a view {self.expression.type} that has elements of its tensor more than once is written to"
            raise UsageError("E-TENSOR-VIEW", None, why, hint="Write to clone() of it")
        if recorded and source is not None and source.requires_grad and source.is_leaf:
            raise changed_leaf(f"a view of a leaf tensor {source.expression.type} that requires gradients is changed")


@method()
def is_contiguous(self: Tensor, **options: Any) -> bool:
    """Whether the elements lie in order, side by side, in the memory of the tensor of which this is a view."""
    return all(step.dense for step in origin_of(self))


@method()
def contiguous(self: Tensor, **options: Any) -> Tensor:
    """The tensor itself if its elements lie side by side in memory, or a copy."""
    return self if self.is_contiguous() else self.clone()


@method()
def write_back(self: Tensor) -> None:
    """Write the elements of a view to the tensors of which it was taken."""
    steps = origin_of(self)
    first = next((index for index, step in enumerate(steps) if step.source() is not None), len(steps))
    steps = steps[first:]
    if not steps:
        return
    detached = any(step.take is None for step in steps)
    with no_grad() if detached else contextlib.nullcontext():
        written = self
        for step, value in zip(reversed(steps), reversed(_values(steps)), strict=True):
            written = _detach(written) if step.take is None else _written(value, step, written)
            source = step.source()
            if source is not None:
                source.take_values(written)


def _written(base: Tensor, step: Step, part: Tensor) -> Tensor:
    """A tensor with the elements of a view of it replaced."""
    if step.put is not None:
        return step.put(base, part)
    if step.whole:
        part = part if part.dtype is base.dtype else shape.view(part, base.dtype)
        return Tensor(part.expression) if part.shape == base.shape else shape.reshape(part, base.shape)
    assert step.take is not None
    positions = step.take(Tensor(leaf(np.arange(base.numel()).reshape(base.shape))))
    return indexing.replaced(base, positions, part)
