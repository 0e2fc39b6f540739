"""Native element-wise operators, generated from their `scalar` functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...runtime.plan.elementwise_fusion import FUNCTIONS, NARROW, parameters
from ...runtime.plan.kernel_api import Apply, Buffer, Chain, Planned, Step, View, native, native_by_element
from .arithmetic import pow_
from .exponential_activation import gelu
from .piecewise_activation import clip
from .unary import identity
from .variadic import mean

F32 = np.dtype(np.float32)
FLOATS = (F32, np.dtype(np.float64))
INTEGERS = tuple(np.dtype(name) for name in ("int64", "int32", "int16", "int8", "uint8"))
BOOL = np.dtype(np.bool_)
INTEGER_OPERATORS = frozenset(
    (
        *(
            "Add",
            "Sub",
            "Mul",
            "Neg",
            "Abs",
            "Max",
            "Min",
            "Sum",
            "Where",
            "Relu",
            "Equal",
            "Less",
            "LessOrEqual",
            "Greater",
            "GreaterOrEqual",
        ),
        *("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot"),
    )
)
"""Operators whose scalar function means the same for integers of the machine."""
MOST_INPUTS = 8
"""Inputs that one kernel takes in; there is one to compile for each number of them."""
BOOL_OPERATORS = frozenset(["And", "Or", "Xor", "Not", "Equal", "Where"])


def floating(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype's elements are numbers with a fraction, narrow ones included."""
    return dtype in FLOATS or dtype.name in NARROW


def computed(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype that elements are computed in."""
    return F32 if dtype.name in NARROW else dtype


def _operand(value: float, like: Buffer, step: Step) -> Buffer:
    return step.constant_buffer(np.full((), value, like.dtype))


def fits(name: str, inputs: list[Buffer]) -> bool:
    """Whether the scalar function of an operator is right for these inputs."""
    values = [item for item in inputs if not (name == "Where" and item is inputs[0])]
    kinds = {item.dtype for item in values}
    if len(kinds) != 1:
        return False
    kind = kinds.pop()
    return (
        floating(kind) or (kind in INTEGERS and name in INTEGER_OPERATORS) or (kind == BOOL and name in BOOL_OPERATORS)
    )


@native_by_element
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
    compute = computed(inputs[-1].dtype)
    output = step.output()
    if len(inputs) == elements:
        return Chain((Apply(_key(step), tuple(inputs), numbers, compute, output.dtype),), output)
    if elements != 2 or numbers:
        return None
    if len(inputs) == 1:
        return View(inputs[0])
    return _repeated(step, _key(step), inputs) if all(item.shape == output.shape for item in inputs) else None


def _repeated(step: Step, key: str, inputs: Sequence[Buffer], *behind: Apply) -> list[Chain]:
    """A function of two applied from input to input, a few of them in each kernel, and operators after it; rounded
    once."""
    output = step.output()
    wide = computed(output.dtype)
    total = (
        output if output.dtype == wide else step.scratch(output.count * wide.itemsize).view(output.shape, dtype=wide)
    )
    rows = [
        Apply(key, (inputs[0], inputs[1]), (), wide, wide),
        *(Apply(key, (None, item), (), wide, wide) for item in inputs[2:]),
    ]
    groups = [rows[start : start + MOST_INPUTS] for start in range(0, len(rows), MOST_INPUTS)]
    for group in groups[1:]:
        group[0] = replace(group[0], operands=(total, group[0].operands[1]))
    groups[-1] += behind
    groups[-1][-1] = replace(groups[-1][-1], result=output.dtype)
    return [*(Chain(tuple(group), total) for group in groups[:-1]), Chain(tuple(groups[-1]), output)]


def _key(step: Step) -> str:
    return f"{step.node.op.domain}.{step.node.op.name}"


@native(identity)
def plan_identity(step: Step) -> Planned:
    """Return the input itself."""
    return View(step.inputs[0]) if step.inputs[0] is not None else None


@native(clip)
def plan_clip(step: Step) -> Planned:
    """Clip; an absent bound is infinite."""
    x = step.inputs[0]
    assert x is not None
    if not floating(x.dtype):
        return None
    bounds = [
        step.inputs[index].view(())  # type: ignore[union-attr]
        if index < len(step.inputs) and step.inputs[index] is not None
        else _operand(sign * math.inf, x, step)
        for index, sign in ((1, -1), (2, 1))
    ]
    output = step.output()
    return Chain((Apply(".Clip", (x, *bounds), (), computed(x.dtype), x.dtype),), output)


SQRT_HALF = math.sqrt(0.5)
SQRT_2_OVER_PI = math.sqrt(2 / math.pi)


def _gelu(x: float) -> float:
    return 0.5 * x * (1 + math.erf(x * SQRT_HALF))


def _gelu_by_tanh(x: float) -> float:
    return 0.5 * x * (1 + math.tanh(SQRT_2_OVER_PI * (x + 0.044715 * x * x * x)))


def _tripled(x: float) -> float:
    return x * x * x


FUNCTIONS |= {"Gelu:none": _gelu, "Gelu:tanh": _gelu_by_tanh, "Cube": _tripled}


def one_by_one(step: Step, key: str, *operands: Buffer | None, numbers: tuple[float, ...] = ()) -> Apply:
    """A function whose result has the dtype of the first output."""
    result = step.results[0]
    assert result is not None
    return Apply(key, operands, numbers, computed(result[0]), result[0])


@native(gelu)
def plan_gelu(step: Step) -> Planned:
    """Plan the exact and the tanh formula."""
    x, key = step.inputs[0], f"Gelu:{step.attributes.get('approximate', 'none')}"
    if x is None or not floating(x.dtype) or key not in FUNCTIONS:
        return None
    return Chain((one_by_one(step, key, x),), step.output())


@native(mean)
def plan_mean(step: Step) -> Planned:
    """Sum the inputs, then divide."""
    inputs = [item for item in step.inputs if item is not None]
    output = step.output()
    if not floating(output.dtype) or any(item.shape != output.shape for item in inputs) or len(inputs) < 2:
        return None
    count = step.constant_buffer(np.full((), len(inputs), computed(output.dtype)))
    return _repeated(step, ".Add", inputs, one_by_one(step, ".Div", None, count))


@native(pow_)
def plan_pow(step: Step) -> Planned:
    """Plan powers; squares, cubes and square roots have kernels of their own."""
    x, y = step.inputs
    known = step.constant(1)
    if x is None or y is None or not floating(x.dtype):
        return None
    if known is None or known.size != 1 or len(known.shape) > len(x.shape):
        return plan_elementwise(step)
    exponent = float(known.reshape(-1)[0])
    special = {1.0: ".Identity", 3.0: "Cube", 0.5: ".Sqrt", -1.0: ".Reciprocal"}.get(exponent)
    if exponent == 2:
        return Chain((one_by_one(step, ".Mul", x, x),), step.output())
    if special is not None:
        return Chain((one_by_one(step, special, x),), step.output())
    return Chain((one_by_one(step, ".Pow", x, _operand(exponent, x, step)),), step.output())
