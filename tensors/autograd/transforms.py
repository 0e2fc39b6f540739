"""Functions of functions: gradients, Jacobians and batches, by the names of `torch.func`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ...runtime.base.errors import UsageError, UsageValueError
from ...runtime.base.units import counted
from ..core.grad_mode import GRAD_MODE, set_grad_enabled
from ..core.nested import flattened, mapped, restored
from ..core.registry import function
from ..core.tensor import Tensor
from ..operations.creation import zeros_like
from ..operations.joining import stack
from ..operations.operands import dim_of
from .functional import gradients, value_and_grad
from .jacobians import jacobian, stand_ins
from .jacobians import jvp as jvp_of

__all__ = ["grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "vjp", "vmap"]
CODE = "E-TENSOR-FUNC"


def grad_and_value(func: Callable[..., Any], argnums: Any = 0, has_aux: bool = False) -> Callable[..., Any]:
    """A function of the same arguments that returns the gradient and the value."""
    both = value_and_grad(func, argnums, has_aux)

    @functools.wraps(func)
    def swapped(*arguments: Any, **options: Any) -> Any:
        value, found = both(*arguments, **options)
        return found, value

    return swapped


def jacrev(
    func: Callable[..., Any], argnums: Any = 0, *, has_aux: bool = False, chunk_size: Any = None
) -> Callable[..., Any]:
    """A function of the same arguments that returns the derivatives of all elements of its result by all elements of
    the arguments `argnums`: tensors, or lists, tuples and dictionaries of tensors. It can be differentiated again.

    Args:
        has_aux: the function returns a pair, of which the second member is returned as it is.
        chunk_size: PyTorch's number of rows at once, without effect.
    """
    several = not isinstance(argnums, int)
    chosen = tuple(argnums) if not isinstance(argnums, int) else (argnums,)

    @functools.wraps(func)
    def differentiated(*arguments: Any, **options: Any) -> Any:
        sources: list[Tensor] = []
        structure = flattened([arguments[n] for n in chosen], sources)
        kept: list[Any] = []
        shapes: list[Any] = []

        def of_tensors(*given: Tensor) -> tuple[Tensor, ...]:
            every = list(arguments)
            for n, each in zip(chosen, restored(structure, iter(given)), strict=True):
                every[n] = each
            result = func(*every, **options)
            if has_aux:
                result, aux = result
                kept.append(aux)
            parts: list[Tensor] = []
            shapes.append(flattened(result, parts))
            return tuple(parts)

        with set_grad_enabled(True):
            marked = tuple([source if source.requires_grad else source.detach().requires_grad_() for source in sources])
            rows = jacobian(of_tensors, marked, create_graph=True)
        tracked = any(source.requires_grad for source in sources)
        by_result = []
        for row in rows:
            row = row if tracked else tuple([each.detach() for each in row])
            members = restored(structure, iter(row))
            by_result.append(tuple(members) if several else members[0])
        found = restored(shapes[0], iter(by_result))  # type: ignore[arg-type] # anything in place of tensors
        return (found, kept[0]) if has_aux else found

    return differentiated


jacfwd = jacrev
"""The same derivatives; they are computed from the results to the arguments either way."""


def hessian(func: Callable[..., Any], argnums: Any = 0) -> Callable[..., Any]:
    """A function of the same arguments that returns the second derivatives."""
    return jacrev(jacrev(func, argnums), argnums)


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """The result, and a function of tensors of its structure that returns their product with the Jacobian, a tuple
    with a member for each argument; with `has_aux` what else the function returns, too."""
    sources: list[Tensor] = []
    structure = flattened(primals, sources)
    tracked = GRAD_MODE.enabled and any(each.requires_grad for each in sources)
    with set_grad_enabled(True):
        marked = list(stand_ins(sources, tracked))
        result = func(*restored(structure, iter(marked)))
    aux = None
    if has_aux:
        result, aux = result
    outputs: list[Tensor] = []
    flattened(result, outputs)

    def pulled(cotangents: Any) -> Any:
        weights: list[Tensor] = []
        flattened(cotangents, weights)
        if [each.shape for each in weights] != [each.shape for each in outputs]:
            raise UsageError(CODE, None, "the argument of vjp's function does not have the shapes of the result")
        with set_grad_enabled(True):
            total = zeros_like(outputs[0].sum().real)
            for one, by in zip(outputs, weights, strict=True):
                total = total + (one * by.conj()).sum().real
        again = tracked or (GRAD_MODE.enabled and any(each.requires_grad for each in weights))
        found = gradients(total, marked, None, again) if total.requires_grad else [None] * len(marked)
        parts = [zeros_like(s) if each is None else each for s, each in zip(marked, found, strict=True)]
        return tuple(restored(structure, iter(parts)))

    shown = result
    if not tracked:
        shown = mapped(result, lambda each: each.detach() if isinstance(each, Tensor) else each)
    return (shown, pulled, aux) if has_aux else (shown, pulled)


def jvp(func: Callable[..., Any], primals: tuple[Any, ...], tangents: tuple[Any, ...], *, has_aux: bool = False) -> Any:
    """The result, and the product of the Jacobian with `tangents`, of the structure of `primals`."""
    tracked = GRAD_MODE.enabled and any(each.requires_grad for each in (*primals, *tangents))
    if has_aux:
        aux: list[Any] = []

        def first(*given: Any) -> Any:
            result, other = func(*given)
            aux.append(other)
            return result

        return (*jvp_of(first, tuple(primals), tuple(tangents), tracked), aux[0])
    return jvp_of(func, tuple(primals), tuple(tangents), tracked)


@function()
def vmap(
    func: Callable[..., Any], in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error", *, chunk_size: Any = None
) -> Callable[..., Any]:
    """A function that applies another one to each item along a dim of its arguments, and stacks the results.

    The function is called for each item, so that it may do anything that it does alone; a call costs as many times that
    as there are items.

    Args:
        in_dims: the dim of each argument, one number for all, or one for each; None for arguments that are not mapped.
            An argument may be a list, tuple or dictionary of tensors.
        out_dims: where the new dim of the results is.
        randomness: PyTorch's choice; each item draws numbers of its own.
        chunk_size: PyTorch's number of items at once, without effect.

    Raises UsageError for arguments of different lengths.
    """

    @functools.wraps(func)
    def batched(*arguments: Any, **options: Any) -> Any:
        dims = (in_dims,) * len(arguments) if in_dims is None or isinstance(in_dims, int) else tuple(in_dims)
        if len(dims) != len(arguments):
            raise UsageError(CODE, None, f"vmap has {len(dims)} in_dims for {counted(len(arguments), 'argument')}")
        lengths: set[int] = set()

        def note(tensor: Tensor, place: int) -> None:
            lengths.add(tensor.shape[dim_of(place, tensor.ndim) if tensor.ndim else _no_dim(tensor)])

        for argument, dim in zip(arguments, dims, strict=True):
            _each(argument, dim, note)
        _each(options, 0, note)
        if len(lengths) != 1:
            what = "no dim that is mapped over" if not lengths else f"dims of lengths {sorted(lengths)}"
            raise UsageError(CODE, None, f"arguments of vmap have {what}", hint="See in_dims")
        (count,) = lengths
        results, structures = [], []
        for item in range(count):
            given = [
                _each(argument, dim, functools.partial(_selected, item))
                for argument, dim in zip(arguments, dims, strict=True)
            ]
            named = _each(options, 0, functools.partial(_selected, item))
            parts: list[Tensor] = []
            structures.append(flattened(func(*given, **named), parts))
            results.append(parts)
        if not results:
            raise UsageError(CODE, None, "vmap over a dim of length 0")
        places = out_dims if isinstance(out_dims, tuple) else (out_dims,) * len(results[0])
        stacked = [stack(list(each), place) for each, place in zip(zip(*results, strict=True), places, strict=True)]
        return restored(structures[0], iter(stacked))

    return batched


def _no_dim(tensor: Tensor) -> int:
    why = f"vmap over a tensor {tensor.expression.type}, which has no dims"
    raise UsageValueError(CODE, None, why, hint="Pass in_dims=None for it")


def _selected(item: int, tensor: Tensor, dim: int) -> Tensor:
    return tensor.select(dim, item)


def _each(item: Any, dims: Any, change: Callable[[Tensor, int], Any]) -> Any:
    """An argument with its tensors changed, which are mapped over `dims`: one for all, or a structure of them."""
    if dims is None:
        return item
    if isinstance(dims, int):
        return mapped(item, lambda each: change(each, dims) if isinstance(each, Tensor) else each)
    if isinstance(item, dict):
        return {name: _each(each, dims[name], change) for name, each in item.items()}
    return type(item)([_each(each, dim, change) for each, dim in zip(item, dims, strict=True)])
