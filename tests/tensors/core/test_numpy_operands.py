"""NumPy's scalars and arrays beside tensors: the result is a tensor, of the dtype that torch gives."""

import operator

import candle_convert as cc
import numpy as np
import pytest
import torch
from candle_convert.runtime.base.errors import UsageError
from candle_convert.tests.oracles.torch_tensors import TORCH_NAMES

SCALARS = [
    np.float16(2), np.float32(2.5), np.float64(np.sqrt(2.0)), np.int8(2), np.int32(3), np.int64(2), np.uint8(2),
    np.bool_(True),
]  # fmt: skip
ARITHMETIC = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow"]
COMPARISONS = ["lt", "le", "gt", "ge", "eq", "ne"]
BITS = ["and_", "or_", "xor", "lshift", "rshift"]


def both(name, scalar, values, left):
    call = getattr(operator, name)
    theirs, ours = torch.tensor(values), cc.tensor(values)
    return (call(scalar, theirs), call(scalar, ours)) if left else (call(theirs, scalar), call(ours, scalar))


@pytest.mark.parametrize("left", [True, False], ids=["left", "right"])
@pytest.mark.parametrize("scalar", SCALARS, ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("name", ARITHMETIC + COMPARISONS)
def test_scalars(name, scalar, left):
    theirs, ours = both(name, scalar, [3.0, 2.0, -1.5], left)
    assert isinstance(ours, cc.Tensor)
    assert str(theirs.dtype) == f"torch.{TORCH_NAMES[ours.dtype.name]}"
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-6)


@pytest.mark.parametrize("scalar", [np.int64(2), np.int8(3), np.uint8(2)], ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("name", BITS)
def test_bits(name, scalar):
    theirs, ours = both(name, scalar, [3, 2, 6], True)
    assert isinstance(ours, cc.Tensor)
    assert ours.tolist() == theirs.tolist()


@pytest.mark.parametrize("array", [np.array(2.0), np.array([1.0, 2.0]), np.array([1, 2])], ids=["0-d", "f64", "i64"])
@pytest.mark.parametrize("name", [*ARITHMETIC, "lt", "ge", "eq"])
def test_arrays(name, array):
    ours = getattr(operator, name)(array, cc.tensor([3.0, 2.0], dtype="f64"))
    assert isinstance(ours, cc.Tensor)
    np.testing.assert_allclose(ours.numpy(), getattr(operator, name)(array, np.array([3.0, 2.0])))


def test_gradients_flow():
    x = cc.tensor([1.0, 2.0], requires_grad=True)
    (np.sqrt(2.0) * x + np.float64(1)).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.sqrt(2.0), rtol=1e-6)


@pytest.mark.parametrize("call", [
    np.sqrt, np.exp, np.negative, lambda x: np.maximum(x, 2), lambda x: np.maximum(2, x), lambda x: np.add(x, x),
    np.round, np.cumsum, lambda x: np.clip(x, 1, 2), lambda x: np.reshape(x, (2, 2)), np.add.reduce,
])  # fmt: skip
def test_functions_of_numpy_give_tensors(call):
    ours, theirs = (call(module.tensor([1.0, 4.0, 9.0, 2.5])) for module in (cc, torch))
    assert isinstance(ours, cc.Tensor)
    assert ours.dtype.name == "f32"
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-6)


def test_functions_of_numpy_record_no_gradients():
    with pytest.raises(UsageError, match="which NumPy does not record"):
        np.sqrt(cc.tensor([1.0], requires_grad=True))
