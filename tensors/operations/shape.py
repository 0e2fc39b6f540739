"""Shapes and dims: the same elements in another arrangement."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...runtime.base.errors import UsageError
from ...runtime.base.units import counted
from ..core.expression import apply, cast, op_named, shape_error
from ..core.promotion import named
from ..core.registry import FUNCTIONS, attribute, method, operation
from ..core.tensor import Tensor
from .creation import check_device
from .operands import broadcast, copied, dim_of, dims_of, integers, lengths_of


@operation()
def reshape(input: Tensor, *given: Any, shape: Any = None) -> Tensor:
    """The elements in another shape; one length may be -1."""
    given = given if shape is None else (shape,)
    wanted = list(lengths_of(given))
    count = input.numel()
    if wanted.count(-1) == 1:
        rest = math.prod(length for length in wanted if length != -1)
        if rest:
            wanted[wanted.index(-1)] = count // rest
    if math.prod(wanted) != count or min(wanted, default=0) < 0:
        raise shape_error(
            f"reshape: shape {list(lengths_of(given))} does not fit {counted(count, 'element')} of {input.shape}"
        )
    if tuple(wanted) == input.shape:
        return Tensor(input.expression)
    return Tensor(apply(op_named("Reshape"), [input.expression, integers(wanted)], {"allowzero": 1}))


@method()
def view(self: Tensor, *shape: Any) -> Tensor:
    """The elements in another shape, or in another dtype."""
    if len(shape) == 1 and not isinstance(shape[0], int | np.integer | list | tuple):
        wanted = named(shape[0])
        if wanted.is_complex and wanted.to_real() is self.dtype:
            return FUNCTIONS["view_as_complex"](unflatten(self, -1, (-1, 2)))
        if self.dtype.is_complex and self.dtype.to_real() is wanted:
            return FUNCTIONS["view_as_real"](self).flatten(-2 if self.ndim else 0)
        if wanted.bits != self.dtype.bits or wanted.is_complex != self.dtype.is_complex:
            why = f"{self.dtype} and {wanted} have elements of different sizes"
            raise UsageError("E-TENSOR-DTYPE", None, why, hint="Use to(dtype) to convert elements")
        return Tensor(apply(op_named("BitCast"), [self.expression], {"to": wanted.onnx}))
    return reshape(self, *shape)


@method()
def reshape_as(self: Tensor, other: Tensor) -> Tensor:
    """The elements in the shape of another tensor."""
    return reshape(self, other.shape)


method("view_as")(reshape_as)


@operation("clone")
def identity(input: Tensor, **options: Any) -> Tensor:
    """The same values as an own tensor."""
    return Tensor(apply(op_named("Identity"), [input.expression]))


@operation()
def permute(input: Tensor, *given: Any, dims: Any = None) -> Tensor:
    """The dims in another order."""
    given = given if dims is None else (dims,)
    order = [dim_of(dim, input.ndim) for dim in lengths_of(given)]
    if sorted(order) != list(range(input.ndim)):
        why = f"permute: dims {list(lengths_of(given))} are not an order of {counted(input.ndim, 'dim')}"
        raise UsageError("E-TENSOR-DIM", None, why)
    if order == sorted(order):
        return Tensor(input.expression)
    return Tensor(apply(op_named("Transpose"), [input.expression], {"perm": order}))


@operation("swapaxes", "swapdims")
def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Two dims exchanged."""
    if not input.ndim:
        return Tensor(input.expression)
    order = list(range(input.ndim))
    one, two = dim_of(dim0, input.ndim), dim_of(dim1, input.ndim)
    order[one], order[two] = two, one
    return permute(input, order)


@operation()
def t(input: Tensor) -> Tensor:
    """A matrix transposed; vectors and numbers as they are."""
    if input.ndim > 2:
        raise shape_error(f"t: a tensor of shape {list(input.shape)} is not a matrix")
    return permute(input, list(range(input.ndim))[::-1])


@operation("moveaxis")
def movedim(input: Tensor, source: Any, destination: Any) -> Tensor:
    """Dims moved to other positions; the others keep their order."""
    sources = [source] if isinstance(source, int) else list(source)
    places = [destination] if isinstance(destination, int) else list(destination)
    order: list[int | None] = [None] * input.ndim
    for one, index in zip(sources, places, strict=True):
        order[dim_of(index, input.ndim)] = dim_of(one, input.ndim)
    rest = iter([dim for dim in range(input.ndim) if dim not in order])
    return permute(input, [next(rest) if dim is None else dim for dim in order])


attribute("T", lambda self: permute(self, list(range(self.ndim))[::-1]))
attribute("mT", lambda self: transpose(self, -1, -2))


@operation()
def squeeze(input: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
    """Without the dims of length 1, or without those of `dim` that have length 1."""
    chosen = dims_of(dim, input.ndim) if input.ndim else []
    return reshape(input, [length for axis, length in enumerate(input.shape) if axis not in chosen or length != 1])


@operation()
def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """With a new dim of length 1."""
    place = dim_of(dim, input.ndim + 1)
    return reshape(input, [*input.shape[:place], 1, *input.shape[place:]])


@operation()
def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """With a range of dims as one."""
    if not input.ndim:
        return reshape(input, 1)
    first, last = dim_of(start_dim, input.ndim), dim_of(end_dim, input.ndim)
    if first > last:
        raise UsageError("E-TENSOR-DIM", None, f"flatten: dim {first} comes after dim {last}")
    return reshape(input, [*input.shape[:first], math.prod(input.shape[first : last + 1]), *input.shape[last + 1 :]])


@operation()
def unflatten(input: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    """With one dim as several."""
    axis = dim_of(dim, input.ndim)
    lengths = list(sizes)
    if -1 in lengths:
        rest = math.prod(length for length in lengths if length != -1)
        lengths[lengths.index(-1)] = input.shape[axis] // max(rest, 1)
    return reshape(input, [*input.shape[:axis], *lengths, *input.shape[axis + 1 :]])


@operation()
def ravel(input: Tensor) -> Tensor:
    """All elements in a row."""
    return reshape(input, -1)


@method()
def expand(self: Tensor, *shape: Any, size: Any = None, implicit: bool = False) -> Tensor:
    """Dims of length 1 repeated; -1 keeps a length."""
    wanted = list(lengths_of(shape if size is None else [size]))
    missing = len(wanted) - self.ndim
    if missing < 0:
        raise shape_error(f"expand: {wanted} has fewer dims than {list(self.shape)}")
    wanted = [
        self.shape[axis - missing] if length == -1 and axis >= missing else length for axis, length in enumerate(wanted)
    ]
    return broadcast_to(self, wanted)


@method()
def expand_as(self: Tensor, other: Tensor) -> Tensor:
    """Dims of length 1 repeated, to the shape of another tensor."""
    return broadcast_to(self, other.shape)


@operation()
def broadcast_to(input: Tensor, shape: Any) -> Tensor:
    """Dims of length 1 repeated, to a shape."""
    wanted = lengths_of([shape])
    if broadcast((input.shape, wanted), "broadcast_to") != wanted:
        raise shape_error(f"broadcast_to: {list(input.shape)} does not become {list(wanted)}")
    if wanted == input.shape:
        return Tensor(input.expression)
    return Tensor(apply(op_named("Expand"), [input.expression, integers(list(wanted))]))


@method()
def repeat(self: Tensor, *sizes: Any, repeats: Any = None) -> Tensor:
    """The tensor several times along each dim."""
    times = list(lengths_of(sizes if repeats is None else [repeats]))
    if len(times) < self.ndim:
        raise shape_error(f"repeat: {times} has fewer dims than {list(self.shape)}")
    x = reshape(self, [*[1] * (len(times) - self.ndim), *self.shape])
    return Tensor(apply(op_named("Tile"), [x.expression, integers(times)]))


@operation()
def tile(input: Tensor, *given: Any, dims: Any = None) -> Tensor:
    """The tensor several times along each of the last dims."""
    times = lengths_of(given if dims is None else [dims])
    return repeat(input, *[1] * (input.ndim - len(times)), *times)


@operation()
def flip(input: Tensor, *given: Any, dims: Any = None) -> Tensor:
    """Elements in reverse order along dims."""
    chosen = dims_of(lengths_of(given if dims is None else [dims]), input.ndim)
    return copied(input[tuple(slice(None, None, -1) if axis in chosen else slice(None) for axis in range(input.ndim))])


@operation()
def roll(input: Tensor, shifts: Any, dims: Any = None) -> Tensor:
    """Elements moved along dims; those that leave at one end enter at the other."""
    if dims is None:
        return reshape(roll(reshape(input, -1), shifts, 0), input.shape)
    found = input
    if len(np.atleast_1d(shifts)) != len(np.atleast_1d(dims)):
        raise shape_error(f"roll by {shifts} along dims {dims}: as many shifts as dims are needed")
    pairs = zip(*(item if isinstance(item, list | tuple) else (item,) for item in (shifts, dims)), strict=True)
    for shift, dim in pairs:
        axis = dim_of(dim, input.ndim)
        length = input.shape[axis]
        if length:
            places = integers([(index - shift) % length for index in range(length)])
            found = Tensor(apply(op_named("Gather"), [found.expression, places], {"axis": axis}))
    return found


def _triangle(name: str, document: str, upper: int) -> None:
    def made(input: Tensor, diagonal: int = 0) -> Tensor:
        return Tensor(apply(op_named("Trilu"), [input.expression, integers(diagonal)], {"upper": upper}))

    made.__name__ = made.__qualname__ = name
    made.__doc__ = document
    operation()(made)


_triangle("tril", "The elements on and below a diagonal, zeros elsewhere.", 0)
_triangle("triu", "The elements on and above a diagonal, zeros elsewhere.", 1)


@method()
def to(self: Tensor, *target: Any, dtype: Any = None, device: Any = None, **options: Any) -> Tensor:
    """Convert to a dtype, a device, or those of another tensor; booleans after them are `non_blocking` and `copy`."""
    after = [item for item in target if isinstance(item, bool)]
    for item in target:
        if isinstance(item, bool):
            continue
        if isinstance(item, Tensor):
            dtype = item.dtype
        elif isinstance(item, str) and item.partition(":")[0] in ("cpu", "cuda", "mps"):
            device = item
        else:
            dtype = item
    check_device(device)
    wanted = self.dtype if dtype is None else named(dtype)
    if options.get("copy") or (len(after) > 1 and after[1]):
        self = identity(self)
    return self if wanted is self.dtype else Tensor(cast(self.expression, wanted))


@method()
def type_as(self: Tensor, other: Tensor) -> Tensor:
    """Convert to the dtype of another tensor."""
    return to(self, other.dtype)


@method()
def cpu(self: Tensor) -> Tensor:
    """The tensor itself: it is on the CPU."""
    return self


def _conversion(name: str, dtype: str) -> None:
    def made(self: Tensor, memory_format: Any = None) -> Tensor:
        return to(self, named(dtype))

    made.__doc__ = f"Convert to {dtype}."
    method(name)(made)


for _name in ("float", "double", "half", "bfloat16", "long", "int", "short", "byte", "char", "bool"):
    _conversion(_name, {"int": "i32", "char": "i8", "bool": "bool"}.get(_name, _name))
