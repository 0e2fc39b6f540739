"""Element-wise operations, promotion and broadcasting: dtypes, shapes and values are torch's."""

import itertools

import candle_convert as cc
import pytest
import torch
from candle_convert.tests.oracles.torch_tensors import TORCH_NAMES, compare, evaluated, example

UNARY = [
    "exp", "log", "sqrt", "reciprocal", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh",
    "acosh", "atanh", "sigmoid", "erf", "floor", "ceil", "round", "neg", "abs", "sign", "logical_not", "square",
    "rsqrt", "trunc", "frac", "log1p", "log2", "log10", "expm1", "exp2", "erfc", "isnan", "isinf", "isfinite",
    "bitwise_not", "positive", "deg2rad", "rad2deg", "relu",
]  # fmt: skip
BINARY = [
    "a + b", "a - b", "a * b", "a / b", "a == b", "a != b", "a < b", "a <= b", "a > b", "a >= b", "a & b", "a | b",
    "a ^ b", "m.maximum(a, b)", "m.minimum(a, b)", "m.logical_and(a, b)", "m.logical_or(a, b)", "m.logical_xor(a, b)",
    "m.where(a > b, a, b)", "m.atan2(a, b)", "m.hypot(a, b)", "m.clamp(a, min=b)", "m.add(a, b, alpha=3)",
]  # fmt: skip
DIVISION = ["a // b", "a % b", "m.fmod(a, b)", "m.div(a, b, rounding_mode='trunc')"]
SCALAR = [
    "a + 1", "1 - a", "a * 2.5", "a / 2", "3 / a", "a ** 2", "a ** 3", "a.abs() ** 0.5", "2 ** a", "2.0 ** a", "a > 1",
    "a == 2", "a + True", "a // 2", "a % 3", "-7 // (a * a + 1)", "a % -3", "a.clamp(-1, 2)", "a.clamp(max=1.5)",
    "a - 1.0", "m.where(a > 0, a, 0)", "m.where(a > 0, 1.5, a)", "a.float()", "a.double()", "a.half()", "a.long()",
    "a.int()", "a.bool()", "a.to(m.float16)", "a.type_as(m.zeros(1, dtype=m.float64))",
]  # fmt: skip
SHAPES = [((2, 3), (3,)), ((2, 1, 3), (4, 1)), ((), (3,)), ((2, 3), ()), ((0, 3), (1, 3)), ((3,), (3,))]
FLOATS = ["f32", "f64", "f16", "bf16"]


def both(expression, values):
    """Compares results; where torch refuses operands, ours has to; what torch has no code for is not compared."""
    try:
        theirs = evaluated(expression, torch, values)
    except NotImplementedError:
        return
    except (RuntimeError, TypeError):
        with pytest.raises((cc.Error, TypeError)):
            evaluated(expression, cc, values)
        return
    compare(theirs, evaluated(expression, cc, values))


@pytest.mark.parametrize("dtype", TORCH_NAMES)
@pytest.mark.parametrize("name", UNARY)
def test_unary(name, dtype):
    both(f"m.{name}(a)", {"a": example((3, 5), dtype)})


@pytest.mark.sampled(7)
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize(("first", "second"), list(itertools.product(TORCH_NAMES, repeat=2)))
@pytest.mark.parametrize("expression", BINARY)
def test_binary(expression, first, second, shapes):
    both(expression, {"a": example(shapes[0], first), "b": example(shapes[1], second, 1)})


@pytest.mark.sampled(3)
@pytest.mark.parametrize("shapes", SHAPES[:3], ids=str)
@pytest.mark.parametrize(("first", "second"), list(itertools.product(TORCH_NAMES, repeat=2)))
@pytest.mark.parametrize("expression", DIVISION)
def test_division(expression, first, second, shapes):
    divisor = example(shapes[1], second, 1)
    both(
        expression, {"a": example(shapes[0], first), "b": torch.where(divisor == 0, torch.ones_like(divisor), divisor)}
    )


@pytest.mark.parametrize("shape", [(3, 4), ()], ids=str)
@pytest.mark.parametrize("dtype", TORCH_NAMES)
@pytest.mark.parametrize("expression", SCALAR)
def test_scalars(expression, dtype, shape):
    both(expression, {"a": example(shape, dtype)})
