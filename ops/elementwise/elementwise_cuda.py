"""Element-wise operators on the device, generated from their `scalar` functions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...runtime.cuda.element.element import compute_dtype
from ...runtime.cuda.element.small_dtypes import SMALL
from ...runtime.cuda.kernel.elementwise import chain_step, elementwise_chain, unchanged
from ...runtime.cuda.plan.kernel_api import Planned, Step, cuda, cuda_by_element
from ...runtime.ir.registry import onnx
from ...runtime.plan.elementwise_fusion import FUNCTIONS, parameters
from ...runtime.plan.kernel_api import Chain, View
from ..cast.cast import cast, cast_like
from .arithmetic import div, mod, pow_
from .elementwise_kernel import BOOL_OPERATORS, INTEGER_OPERATORS
from .exponential_activation import gelu
from .logic import bit_shift
from .piecewise_activation import clip, shrink
from .unary import identity, sign

F32, F64 = np.dtype(np.float32), np.dtype(np.float64)


def fits(name: str, kinds: set[np.dtype[Any]]) -> bool:
    """Whether the scalar function of an operator is right for elements of these dtypes."""
    if len(kinds) != 1:
        return False
    kind = compute_dtype(kinds.pop()).kind
    return kind == "f" or (kind in "iu" and name in INTEGER_OPERATORS) or (kind == "b" and name in BOOL_OPERATORS)


@cuda_by_element
def on_device(step: Step) -> Planned:
    """A chain of one operator; operators of any number of inputs apply their function again and again."""
    operator = step.node.op
    function = operator.scalar
    assert function is not None
    inputs = [item for item in step.inputs if item is not None]
    values = inputs[1:] if operator is onnx.Where else inputs
    if len(inputs) != len(step.inputs) or not fits(operator.name, {item.dtype for item in values}):
        return f"its scalar function does not support {', '.join(sorted({str(item.dtype) for item in values}))}"
    names = parameters(function)
    numbers = [float(step.attributes[name]) for name in names if name in step.attributes]
    elements = len(names) - len(numbers)
    compute = compute_dtype(values[-1].dtype)
    output = step.output()
    if len(inputs) == elements:
        return elementwise_chain(function, inputs, output, *numbers, compute=compute)
    if len(inputs) == 1:
        return View(inputs[0])
    steps = [chain_step(function, inputs[:2], output.dtype, compute=compute)]
    steps += [chain_step(function, (None, item), output.dtype, compute=compute) for item in inputs[2:]]
    return Chain(tuple(steps), output)


@cuda(identity)
def identity_on_device(step: Step) -> Planned:
    """Return the input itself."""
    return View(step.input(0))


@cuda(sign)
def sign_on_device(step: Step) -> Planned:
    """Plan floats and integers."""
    return (
        elementwise_chain(sign.scalar, [step.input(0)], step.output()) if sign.scalar is not None else on_device(step)
    )


def _quotient(a: int, b: int) -> int:
    return 0 if b == 0 else abs(a) // abs(b) if (a < 0) == (b < 0) else -(abs(a) // abs(b))


def _rest(a: int, b: int, fmod: int) -> int:
    if b == 0:
        return 0
    rest = abs(a) % abs(b) if a >= 0 else -(abs(a) % abs(b))
    return rest + b if fmod == 0 and rest != 0 and (rest < 0) != (b < 0) else rest


def _float_rest(a: float, b: float, fmod: int) -> float:
    """`_mod` of the CPU, where ``%`` is the C library's fmod; the device's ``%`` subtracts a product, which is NaN for
    an infinite `b`."""
    rest = math.copysign(math.fmod(abs(a), abs(b)), a)
    if fmod:
        return rest
    if rest == 0:
        return math.copysign(rest, b)
    return rest + b if (rest < 0) != (b < 0) else rest


def _whole_power(x: int, y: int) -> int:
    power, factor, left = 1, x, y
    while left > 0:
        if left % 2 == 1:
            power *= factor
        factor *= factor
        left //= 2
    return power if y >= 0 else 1 if x == 1 else (1 if y % 2 == 0 else -1) if x == -1 else 0


def _left(x: int, y: int, bits: int) -> int:
    return x << y if y >= 0 and y < bits else x * 0


def _right(x: int, y: int, bits: int) -> int:
    return x >> y if y >= 0 and y < bits else -1 if x < 0 else 0


@cuda(div)
def div_on_device(step: Step) -> Planned:
    """Divide; integer quotients are rounded toward zero."""
    if compute_dtype(step.input(0).dtype).kind in "iu":
        return elementwise_chain(_quotient, [step.input(0), step.input(1)], step.output())
    return on_device(step)


@cuda(mod)
def mod_on_device(step: Step) -> Planned:
    """Compute remainders; an integer modulo zero is zero."""
    rest = _rest if compute_dtype(step.input(0).dtype).kind in "iu" else _float_rest
    return elementwise_chain(rest, [step.input(0), step.input(1)], step.output(), step.attributes["fmod"])


@cuda(pow_)
def pow_on_device(step: Step) -> Planned:
    """Raise integers by repeated squaring; mixed dtypes are computed as floats."""
    x, y = step.input(0), step.input(1)
    kinds = compute_dtype(x.dtype).kind, compute_dtype(y.dtype).kind
    if kinds[0] in "iu" and kinds[1] in "iu":
        return elementwise_chain(_whole_power, [x, y], step.output())
    assert pow_.scalar is not None
    wide = np.dtype(np.float64) if kinds[0] != "f" or x.dtype.itemsize == 8 else np.dtype(np.float32)
    return elementwise_chain(pow_.scalar, [x, y], step.output(), compute=wide)


@cuda(bit_shift)
def shift_on_device(step: Step) -> Planned:
    """Shift bits of unsigned integers."""
    moved = _left if step.attributes["direction"] == "LEFT" else _right
    return elementwise_chain(moved, [step.input(0), step.input(1)], step.output(), 8 * step.output().dtype.itemsize)


def _low(x: float, low: float) -> float:
    return low if x < low else x


def _high(x: float, high: float) -> float:
    return high if x > high else x


@cuda(clip)
def clip_on_device(step: Step) -> Planned:
    """Clip; an absent bound does not limit."""
    x, low, high, y = step.input(0), step.optional_input(1), step.optional_input(2), step.output()
    steps = []
    if low is not None:
        steps.append(chain_step(_low, [x, low.view(())], y.dtype))
    if high is not None:
        steps.append(chain_step(_high, [None if steps else x, high.view(())], y.dtype, compute=compute_dtype(x.dtype)))
    return Chain(tuple(steps), y) if steps else View(x)


@cuda(shrink)
def shrink_on_device(step: Step) -> Planned:
    """Shrink; integers are computed in f64 and truncated."""
    x, given = step.input(0), step.attributes
    if compute_dtype(x.dtype).kind not in "iu":
        return on_device(step)
    assert shrink.scalar is not None
    return elementwise_chain(shrink.scalar, [x], step.output(), given["bias"], given["lambd"], compute=F64)


@cuda(gelu)
def gelu_on_device(step: Step) -> Planned:
    """Plan the exact and the tanh formula."""
    return elementwise_chain(FUNCTIONS[f"Gelu:{step.attributes['approximate']}"], [step.input(0)], step.output())


def _within(x: float, largest: float) -> float:
    return largest if x > largest else -largest if x < -largest else x


@cuda(cast, cast_like)
def cast_on_device(step: Step) -> Planned:
    """Plan conversions between dtypes of kernels."""
    x, y = step.input(0), step.output()
    if x.dtype == y.dtype:
        return View(x)
    if y.dtype.name == "float8_e8m0fnu":
        return "rounding to float8e8m0 is supported on the CPU only"
    small = SMALL.get(y.dtype.name)
    if small is None or not step.attributes["saturate"]:
        return elementwise_chain(unchanged, [x], y)
    return elementwise_chain(_within, [x], y, small.largest, compute=F64 if x.dtype == F64 else F32)
