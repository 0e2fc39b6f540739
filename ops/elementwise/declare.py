"""Declaration of element-wise operators, folding of shape arithmetic, and the broadcasting of the oldest opsets.

A `scalar` function takes one element of each input, and then attributes, whose names its parameters have. It is exact
for Python floats; integers that need another rule (Div, Mod, Pow) have it in `compute` only.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ...runtime.base.errors import UsageError
from ...runtime.ir.builder import Builder
from ...runtime.ir.graph import Dim, Node, Value
from ...runtime.ir.op import Compute, Example, Infer, Op, Rule, Trait, op, upgrade
from ...runtime.ir.shape_inference import Inference, Shape
from ..rules.precision import widened
from ..rules.shape_rules import broadcast, broadcast_all, same_as_input

INT64 = range(-(2**63), 2**63)


def quiet(compute: Compute) -> Compute:
    """Infinities and NaN are results, not reasons to warn."""

    @functools.wraps(compute)
    def silent(*inputs: Any, **attributes: Any) -> Any:
        with np.errstate(all="ignore"):
            return compute(*inputs, **attributes)

    return silent


def fitting(name: str) -> Callable[[Compute], Compute]:
    """NumPy's complaint about shapes that do not go together becomes ours."""

    def made(compute: Compute) -> Compute:
        @functools.wraps(compute)
        def checked(*inputs: Any, **attributes: Any) -> Any:
            try:
                return compute(*inputs, **attributes)
            except ValueError as error:
                shapes = ", ".join(str(item.shape) for item in inputs if isinstance(item, np.ndarray))
                why = f"{name} of shapes {shapes} is not possible"
                raise UsageError("E-OP-SHAPE", None, why, hint="Compare them with the model's") from error

        return checked

    return made


def truth(node: Inference) -> None:
    """Output 0 is bool and has the shape that all inputs broadcast to."""
    from ...runtime.tensor.dtype import BOOL

    shape: Shape | None = ()
    for index in range(len(node)):
        shape = broadcast(shape, node.shape(index))
    refuse_mismatched(node)
    node.set(0, BOOL, shape)


def refuse_mismatched(node: Inference) -> None:
    """Refuse inputs with lengths that cannot be broadcast to each other."""
    shapes = list(
        dict.fromkeys(shape for shape in (node.shape(index) for index in range(len(node))) if shape is not None)
    )
    if len(shapes) < 2:
        return
    for axis in range(1, max((len(shape) for shape in shapes), default=0) + 1):
        lengths = {shape[-axis] for shape in shapes if len(shape) >= axis and isinstance(shape[-axis], int)} - {1}
        if len(lengths) > 1:
            node.fail(f"shapes {', '.join(map(str, shapes))} do not broadcast to one")


def broadcast_to_one(node: Inference) -> None:
    """Output 0 has the dtype of input 0 and the shape that all inputs broadcast to."""
    refuse_mismatched(node)
    broadcast_all(node)


def elementwise(
    name: str,
    since: int,
    *examples: Example,
    types: str,
    scalar: Callable[..., Any] | None,
    infer: Infer = same_as_input,
    lower: Rule | None = None,
    traits: Iterable[Trait] = (),
) -> Callable[[Compute], Op]:
    """Declare an operator that works element by element; narrow floats are computed in f32."""

    def made(compute: Compute) -> Op:
        declared = op(
            name, since=since, types=types, infer=infer, examples=examples, scalar=scalar, lower=lower, traits=traits
        )
        operator = declared(fitting(name)(quiet(widened(compute))))
        upgrade(operator, below=6)(forget_consumed_inputs)
        return operator

    return made


def binary(
    name: str,
    since: int,
    *examples: Example,
    types: str,
    scalar: Callable[..., Any] | None,
    infer: Infer = broadcast_to_one,
    traits: Iterable[Trait] = (),
) -> Callable[[Compute], Op]:
    """Declare an element-wise operator of two inputs whose second one had an axis before opset 7."""

    def made(compute: Compute) -> Op:
        operator = elementwise(name, since, *examples, types=types, scalar=scalar, infer=infer, traits=traits)(compute)
        upgrade(operator, below=7)(place_by_axis)
        return operator

    return made


def forget_consumed_inputs(node: Node, build: Builder) -> None:
    """Before opset 6 a node said which inputs it may overwrite."""
    node.attributes.pop("consumed_inputs", None)


def place_by_axis(node: Node, build: Builder) -> None:
    """Before opset 7 the dims of the second input could stand for those of the first one from `axis` on."""
    axis = node.attributes.pop("axis", None)
    broadcasts = node.attributes.pop("broadcast", 0)
    first, second = node.inputs
    if axis is None or not broadcasts or first is None or second is None:
        return
    node.inputs[1] = build.add("Reshape", [second, _with_ones_behind(first, second, axis, build)])
    build.keep(node)


def _with_ones_behind(first: Value, second: Value, axis: int, build: Builder) -> Value:
    """The shape of `second`, followed by as many ones as `first` has dims after those that it stands for."""
    shape = build.add("Shape", [second])
    if first.shape is not None and second.shape is not None:
        start = axis + len(first.shape) if axis < 0 else axis
        return build.add(
            "Concat", [shape, build.constant([1] * (len(first.shape) - start - len(second.shape)))], {"axis": 0}
        )
    rank = build.constant(0) if axis < 0 else build.add("Size", [build.add("Shape", [first])])
    behind = build.add("Sub", [build.add("Sub", [rank, build.constant(axis)]), build.add("Size", [shape])])
    ones = build.add(
        "ConstantOfShape", [build.add("Reshape", [behind, build.constant([1])])], {"value": np.array([1], np.int64)}
    )
    return build.add("Concat", [shape, ones], {"axis": 0})


def followed(
    rule: Infer, function: Callable[..., int], known: Callable[[Sequence[Dim]], Dim] = lambda items: None
) -> Infer:
    """`rule`, and elements of integer tensors as `function` makes them of ints; `known` may say more where some are not
    ints."""

    def inferred(node: Inference) -> None:
        rule(node)
        dtype = node.dtype(0)
        if dtype is None or dtype.kind not in ("int", "uint", "bool"):
            return
        columns = [node.data(index) for index in range(len(node))]
        if any(column is None for column in columns):
            return
        count = max((len(column) for column in columns if column is not None and len(column) != 1), default=1)
        if any(column is not None and len(column) not in (1, count) for column in columns):
            return
        rows = [
            [column[index if len(column) == count else 0] for column in columns if column is not None]
            for index in range(count)
        ]
        node.set(0, None, None, data=[_element(function, known, row) for row in rows])

    return inferred


def _element(function: Callable[..., int], known: Callable[[Sequence[Dim]], Dim], row: Sequence[Dim]) -> Dim:
    if not all(isinstance(item, int) for item in row):
        return known(row)
    try:
        found = int(function(*row))
    except (ArithmeticError, ValueError):
        return None
    return found if found in INT64 else None
