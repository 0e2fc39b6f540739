"""Native element-wise operators: every operator with a `scalar` function, for the dtypes that its text is right for."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...runtime.fusion import FUNCTIONS, Apply, Chain, parameters
from ...runtime.launch import PLANNERS, Buffer, Planned, Step, View, native
from ...runtime.registry import operators
from .activation import clip
from .cast import cast
from .sigmoid import gelu
from .unary import identity

FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
INTEGERS = tuple(np.dtype(name) for name in ("int64", "int32", "int16", "int8", "uint8"))
BOOL = np.dtype(np.bool_)
INTEGER_OPERATORS = frozenset(
    (
        *("Add", "Sub", "Mul", "Neg", "Abs", "Max", "Min", "Sum", "Where", "Relu", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"),
        *("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot"),
    )
)
"""Operators whose scalar function means the same for integers of the machine."""
BOOL_OPERATORS = frozenset(["And", "Or", "Xor", "Not", "Equal", "Where"])
PLAIN = frozenset((*FLOATS, *INTEGERS, BOOL))


def _operand(value: float, like: Buffer, step: Step) -> Buffer:
    return step.held(np.full((), value, like.dtype))


def fits(name: str, inputs: list[Buffer]) -> bool:
    """Whether the scalar function of an operator is right for these inputs."""
    values = [item for item in inputs if not (name == "Where" and item is inputs[0])]
    kinds = {item.dtype for item in values}
    if len(kinds) != 1:
        return False
    kind = kinds.pop()
    return kind in FLOATS or (kind in INTEGERS and name in INTEGER_OPERATORS) or (kind == BOOL and name in BOOL_OPERATORS)


def plan_elementwise(step: Step) -> Planned:
    """A chain of one operator; operators of any number of inputs apply their function again and again."""
    operator = step.node.op
    function = operator.scalar
    inputs = [item for item in step.inputs if item is not None]
    if function is None or len(inputs) != len(step.inputs) or not inputs or not fits(operator.name, inputs):
        return None
    names = parameters(function)
    attributes = [step.attributes.get(name) for name in names if name in step.attributes]
    elements = len(names) - len(attributes)
    if not all(isinstance(item, int | float) for item in attributes):
        return None
    numbers = tuple(float(item) for item in attributes if item is not None)
    compute = inputs[-1].dtype
    output = step.output()
    if len(inputs) == elements:
        return Chain((Apply(_key(step), tuple(inputs), numbers, compute, output.dtype),), output)
    if elements != 2 or numbers:
        return None
    if len(inputs) == 1:
        return View(inputs[0])
    rows = [Apply(_key(step), (inputs[0], inputs[1]), (), compute, output.dtype)]
    rows += [Apply(_key(step), (None, item), (), compute, output.dtype) for item in inputs[2:]]
    return Chain(tuple(rows), output) if all(item.shape == output.shape for item in inputs) else None


def _key(step: Step) -> str:
    return f"{step.node.op.domain}.{step.node.op.name}"


@native(identity)
def plan_identity(step: Step) -> Planned:
    """The input itself."""
    return View(step.inputs[0]) if step.inputs[0] is not None else None


@native(clip)
def plan_clip(step: Step) -> Planned:
    """A missing bound is an infinite one."""
    x = step.inputs[0]
    assert x is not None
    if x.dtype not in FLOATS:
        return None
    bounds = [
        step.inputs[index].view(()) if index < len(step.inputs) and step.inputs[index] is not None else _operand(sign * math.inf, x, step)  # type: ignore[union-attr]
        for index, sign in ((1, -1), (2, 1))
    ]
    output = step.output()
    return Chain((Apply(".Clip", (x, *bounds), (), x.dtype, x.dtype),), output)


SQRT_HALF = math.sqrt(0.5)
SQRT_2_OVER_PI = math.sqrt(2 / math.pi)


def _gelu(x: float) -> float:
    return 0.5 * x * (1 + math.erf(x * SQRT_HALF))


def _gelu_by_tanh(x: float) -> float:
    return 0.5 * x * (1 + math.tanh(SQRT_2_OVER_PI * (x + 0.044715 * x * x * x)))


def _same(x: Any) -> Any:
    return x


FUNCTIONS |= {"Gelu:none": _gelu, "Gelu:tanh": _gelu_by_tanh, "Cast": _same}


@native(gelu)
def plan_gelu(step: Step) -> Planned:
    """Either formula."""
    x, key = step.inputs[0], f"Gelu:{step.attributes['approximate']}"
    if x is None or x.dtype not in FLOATS or key not in FUNCTIONS:
        return None
    return Chain((Apply(key, (x,), (), x.dtype, x.dtype),), step.output())


@native(cast)
def plan_cast(step: Step) -> Planned:
    """Conversions between machine types; floats that no integer can hold are left to NumPy's ways, so those are not taken."""
    x = step.inputs[0]
    result = step.results[0]
    if x is None or result is None or x.dtype not in PLAIN or result[0] not in PLAIN:
        return None
    if x.dtype == result[0]:
        return View(x)
    if x.dtype.kind == "f" and result[0].kind in "iu" and result[0].itemsize < 4:
        return None
    return Chain((Apply("Cast", (x,), (), x.dtype, result[0]),), step.output())


def _register(planner: Callable[[Step], Planned]) -> None:
    for (domain, name), operator in operators().items():
        if operator.scalar is not None:
            FUNCTIONS.setdefault(f"{domain}.{name}", operator.scalar)
            PLANNERS.setdefault(operator, planner)


_register(plan_elementwise)
