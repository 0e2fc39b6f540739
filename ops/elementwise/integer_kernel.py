"""Native integer operators whose rule differs from floats: Div, Mod, Pow, Sign, Clip, BitShift."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.plan.elementwise_fusion import FUNCTIONS
from ...runtime.plan.kernel_api import Apply, Buffer, Chain, Planned, Step, native
from . import elementwise_kernel
from .arithmetic import div, mod, pow_
from .logic import bit_shift
from .piecewise_activation import clip
from .unary import sign

INTEGERS = frozenset(np.dtype(name) for name in ("int64", "int32", "int16", "int8", "uint32", "uint16", "uint8"))
"""Integer dtypes whose values i64 holds."""
I64 = np.dtype(np.int64)


def _quotient(a: Any, b: Any) -> Any:
    x, y = np.int64(a), np.int64(b)
    if y == 0:
        return np.int64(0)
    if y == -1:
        return -x
    below = x // y
    return below + 1 if below < 0 and below * y != x else below


def _rest(a: Any, b: Any) -> Any:
    x, y = np.int64(a), np.int64(b)
    return np.int64(0) if y in (0, -1) else x - x // y * y


def _rest_of_first(a: Any, b: Any) -> Any:
    x, y = np.int64(a), np.int64(b)
    if y in (0, -1):
        return np.int64(0)
    rest = x - x // y * y
    return rest - y if rest != 0 and (rest < 0) != (x < 0) else rest


def _sign(a: Any) -> Any:
    x = np.int64(a)
    return np.int64(x > 0) - np.int64(x < 0)


def _clipped(a: Any, low: Any, high: Any) -> Any:
    x = max(np.int64(a), np.int64(low))
    return min(x, np.int64(high))


def _shifted_left(a: Any, b: Any, bits: int) -> Any:
    x, y = np.int64(a), np.int64(b)
    return x << y if 0 <= y < bits else np.int64(0)


def _shifted_right(a: Any, b: Any, bits: int) -> Any:
    x, y = np.int64(a), np.int64(b)
    return x >> (y if 0 <= y < bits else np.int64(63))


FUNCTIONS |= {
    "Div:int": _quotient,
    "Mod:0": _rest,
    "Mod:1": _rest_of_first,
    "Sign:int": _sign,
    "Clip:int": _clipped,
    "Shift:LEFT": _shifted_left,
    "Shift:RIGHT": _shifted_right,
}


def _chain(step: Step, key: str, operands: list[Buffer], numbers: tuple[float, ...] = ()) -> Chain:
    output = step.output()
    return Chain((Apply(key, tuple(operands), numbers, I64, output.dtype),), output)


def _given(step: Step) -> list[Buffer] | None:
    """The inputs, when all are integers of one dtype."""
    given = [item for item in step.inputs if item is not None]
    return (
        given
        if len(given) == len(step.inputs) and given[0].dtype in INTEGERS and len({item.dtype for item in given}) == 1
        else None
    )


FLOATS = {clip: elementwise_kernel.plan_clip, pow_: elementwise_kernel.plan_pow}
"""Operator -> its planner for floats, if that is not the one for all operators with a scalar function."""


def _other(step: Step) -> Planned:
    return FLOATS.get(step.node.op, elementwise_kernel.plan_elementwise)(step)


@native(div, mod, sign, bit_shift)
def plan_integers(step: Step) -> Planned:
    """Plan integers, whose overflow and division have rules of their own."""
    given = _given(step)
    operator = step.node.op
    if given is None:
        return None if operator is bit_shift else _other(step)
    if operator is bit_shift:
        key = f"Shift:{step.attributes['direction']}"
        return _chain(step, key, given, (8 * given[0].dtype.itemsize,)) if key in FUNCTIONS else None
    key = f"Mod:{int(bool(step.attributes['fmod']))}" if operator is mod else f"{operator.name}:int"
    return _chain(step, key, given)


@native(clip)
def plan_clip(step: Step) -> Planned:
    """Clip integers; an absent bound is the dtype's limit."""
    x = step.inputs[0]
    if x is None or x.dtype not in INTEGERS:
        return _other(step)
    ends = np.iinfo(x.dtype)
    bounds = []
    for index, value in ((1, ends.min), (2, ends.max)):
        bound = step.inputs[index] if index < len(step.inputs) else None
        bounds.append(bound.view(()) if bound is not None else step.constant_buffer(np.full((), value, x.dtype)))
    return _chain(step, "Clip:int", [x, *bounds])


@native(pow_)
def plan_pow(step: Step) -> Planned:
    """Plan squares of integers; NumPy computes other powers."""
    x, known = step.inputs[0], step.constant(1)
    if x is None or x.dtype not in INTEGERS:
        return _other(step)
    square = known is not None and known.size == 1 and len(known.shape) <= len(x.shape) and known.reshape(-1)[0] == 2
    return Chain((Apply(".Mul", (x, x), (), I64, x.dtype),), step.output()) if square else None
