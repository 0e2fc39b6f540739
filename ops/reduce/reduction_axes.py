"""Shared parts of reductions: the axes input, its attribute form in older opsets, kept dimensions, shapes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from ...runtime.base.units import counted
from ...runtime.ir.builder import Builder
from ...runtime.ir.graph import Dim, Node
from ...runtime.ir.op import Example, Op, Trait, op, upgrade
from ...runtime.ir.shape_inference import Inference
from ...runtime.plan.kernel_api import BaseStep
from ...runtime.plan.rows import Described, Fold, Output, Rows, found
from ..rules.precision import widened
from ..rules.shape_rules import model_error

Reduce = Callable[[np.ndarray, tuple[int, ...], bool], np.ndarray]
"""From an array, the axes (none of them: element by element) and whether they stay as dims of length 1, to the reduced
array."""


def reduction(
    name: str,
    since: int,
    *examples: Example,
    types: str,
    folds: Sequence[Fold],
    fractions: bool = False,
    axes_since: int = 18,
    data: Callable[[Sequence[int]], int] | None = None,
    traits: Iterable[Trait] = (),
) -> Callable[[Reduce], Op]:
    """Declare a reduction.

    Args:
        folds: of each row, the last one called ``found``; fractions: whether those of integers are computed in f64.
        axes_since: the opset that made an input of the axes.
        data: the same of ints, for shape arithmetic.
    """

    def made(reduce: Reduce) -> Op:
        def compute(
            x: np.ndarray, axes: np.ndarray | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
        ) -> np.ndarray:
            with np.errstate(all="ignore"):
                found = reduce(x, _axes(name, x, axes, noop_with_empty_axes), bool(keepdims))
            return np.asarray(found).astype(x.dtype, copy=False)

        compute.__doc__ = reduce.__doc__
        rows = functools.partial(reduced_rows, folds, fractions)
        operator = op(
            name,
            since=since,
            types=types,
            infer=functools.partial(reduced, data=data),
            rows=rows,
            examples=examples,
            traits=(Trait.REDUCTION, *traits),
        )(widened(compute))
        upgrade(operator, below=axes_since)(axes_were_an_attribute)
        return operator

    return made


def reduced_rows(folds: Sequence[Fold], fractions: bool, step: BaseStep) -> Described:
    """Folds along axes that are constants."""
    x, axes = step.inputs[0], step.constant(1)
    assert x is not None
    if axes is None and len(step.inputs) > 1 and step.inputs[1] is not None:
        return "its axes are not constants"
    if axes is None or not axes.size:
        chosen = [] if step.attributes["noop_with_empty_axes"] else list(range(len(x.shape)))
    else:
        chosen = [int(axis) for axis in axes.reshape(-1)]
    return Rows(x.shape, chosen, {"x": x}, folds, [Output(found, step.output(), per_row=True)], fractions=fractions)


def _axes(name: str, x: np.ndarray, axes: np.ndarray | None, noop: int) -> tuple[int, ...]:
    if axes is None or not axes.size:
        return () if noop else tuple(range(x.ndim))
    for axis in axes.reshape(-1).tolist():
        if not -x.ndim <= axis < x.ndim:
            raise model_error(
                f"{name} has an axis outside of its input", "E-OP-AXIS", expected=f"below {x.ndim}", found=axis
            )
    return tuple(sorted({int(axis) % x.ndim for axis in axes.reshape(-1)}))


def reduced(node: Inference, data: Callable[[Sequence[int]], int] | None = None) -> None:
    """The input's shape with the axes taken out, or as ones; unknown where axes are computed and dims are not kept."""
    shape, dtype = node.shape(0), node.dtype(0)
    if shape is None:
        whole = (
            node.value(1) is None and not node.attributes["keepdims"] and not node.attributes["noop_with_empty_axes"]
        )
        node.set(0, dtype, () if whole else None)
        return
    chosen = node.array(1) if node.value(1) is not None else np.zeros(0, np.int64)
    if chosen is None:
        single = node.shape(1) == (1,) and bool(shape)  # several might name the same axis twice
        known_rank = len(shape) if node.attributes["keepdims"] else len(shape) - 1 if single else None
        node.set(0, dtype, None if known_rank is None else [None] * known_rank)
        return
    wanted = [int(axis) for axis in chosen.reshape(-1)]
    if any(not -len(shape) <= axis < len(shape) for axis in wanted):
        node.fail(f"axes {wanted} do not exist in {counted(len(shape), 'dim')}")
    taken = {axis % len(shape) for axis in wanted}
    if not wanted and not node.attributes["noop_with_empty_axes"]:
        taken = set(range(len(shape)))
    left: list[Dim] = [
        1 if index in taken else dim
        for index, dim in enumerate(shape)
        if node.attributes["keepdims"] or index not in taken
    ]
    known = node.data(0)
    if data is not None and known and taken == {0} and all(isinstance(item, int) for item in known):
        node.set(0, dtype, left, data=[data([item for item in known if isinstance(item, int)])])
    else:
        node.set(0, dtype, left)


def axes_were_an_attribute(node: Node, build: Builder) -> None:
    """The axes became an input in opset 18, those of ReduceSum in opset 13."""
    axes = node.attributes.pop("axes", None)
    if axes:
        node.inputs.append(build.constant(axes))


def mean_over(x: np.ndarray, axes: int | Sequence[int], keepdims: bool = True) -> np.ndarray:
    """The mean over axes; NaN without elements, without NumPy's warning."""
    axes = axes if isinstance(axes, int) else tuple(axes)
    if x.size:
        return np.asarray(np.mean(x, axes, keepdims=keepdims))
    kind = x.dtype if x.dtype.kind == "f" else np.dtype(np.float64)
    return np.full_like(np.sum(x, axes, keepdims=keepdims), np.nan, dtype=kind)
