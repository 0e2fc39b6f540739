"""Native element-wise operators of every dtype against the NumPy functions: integers, narrow floats, casts, powers;
threads change nothing."""

import ml_dtypes
import numpy as np
import pytest
from candle_convert.runtime.ir.op import case
from candle_convert.tests.oracles.native_vs_numpy import natively

RNG = np.random.default_rng(11)
HALVES = [(np.float16, 2e-3), (ml_dtypes.bfloat16, 2e-2)]


def floats(*shape, dtype=np.float32):
    return RNG.normal(size=shape).astype(dtype)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("dtype", "rtol"), [*HALVES, (np.float64, 1e-12)])
@pytest.mark.parametrize("shape", [(7, 5), (70, 90)])
def test_other_floats(dtype, rtol, shape):
    x, row = floats(*shape, dtype=dtype), floats(shape[-1], dtype=dtype)
    for name in ("Add", "Mul", "Max", "Less"):
        natively(name, case(x, row), rtol=rtol, atol=rtol / 10)
    for name in ("Exp", "Tanh", "Relu", "Sigmoid", "Gelu"):
        natively(name, case(x), rtol=rtol, atol=rtol / 10)
    natively("Clip", case(x, np.array(-0.5, dtype), np.array(0.3, dtype)), rtol=rtol)
    natively("Where", case(x > 0, x, row), rtol=0, atol=0)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.int8, np.uint8])
@pytest.mark.parametrize("shape", [(7, 5), (70, 90)])
def test_integers(dtype, shape):
    low = 0 if dtype is np.uint8 else -20
    x, y = RNG.integers(low, 20, shape).astype(dtype), RNG.integers(low // 4, 6, shape[-1]).astype(dtype)
    for name in ("Div", "Mod", "Add", "Mul", "Sub", "Max"):
        natively(name, case(x, y), rtol=0, atol=0)
    natively("Mod", case(x, y, fmod=1), rtol=0, atol=0)
    natively("Clip", case(x, None, np.array(3, dtype)), rtol=0, atol=0)
    natively("Sign", case(x), rtol=0, atol=0)
    if dtype in (np.int32, np.int64):  # the others are not the definition's
        natively("Pow", case(x, np.array(2, dtype)), rtol=0, atol=0, constant=(1,))


def test_quotients_at_the_ends():
    least = np.iinfo(np.int64).min
    natively("Div", case(np.array([least, least, 5, -5]), np.array([-1, 0, 0, 3])), rtol=0, atol=0)
    natively("Mod", case(np.array([least, least, 5, -5]), np.array([-1, 0, 0, 3])), rtol=0, atol=0)


@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint32, np.int16])
def test_shifts(direction, dtype):
    x = RNG.integers(0, 100, (5, 9)).astype(dtype)
    natively("BitShift", case(x, np.arange(9).astype(dtype), direction=direction), rtol=0, atol=0)


TYPES = [
    np.float32,
    np.float64,
    np.float16,
    ml_dtypes.bfloat16,
    np.int64,
    np.int32,
    np.int16,
    np.int8,
    np.uint8,
    np.uint16,
    np.uint32,
    np.bool_,
]
PYTHON = {(np.dtype(np.float64), np.dtype(dtype)) for dtype in (np.float16, ml_dtypes.bfloat16)}


@pytest.mark.parametrize(
    ("source", "target"),
    [(one, TYPES[(index + far) % len(TYPES)]) for index, one in enumerate(TYPES) for far in (1, 5)],
)
def test_casts(source, target):
    from candle_convert.runtime.tensor.dtype import of_numpy

    if (np.dtype(source), np.dtype(target)) in PYTHON:
        return
    x = (floats(3, 40) * 30).astype(np.float64)
    x = (np.abs(x) if np.dtype(source).kind == "u" else x).astype(source)
    natively("Cast", case(x, to=of_numpy(np.dtype(target)).onnx), rtol=0, atol=0)


@pytest.mark.parametrize("target", [6, 7, 3, 2])
def test_floats_that_no_integer_holds(target):
    x = np.array([np.nan, np.inf, -np.inf, 3e9, -3e9, 300.7, -300.7, -0.5], np.float32)
    natively("Cast", case(x[3:] if target == 7 else x, to=target), rtol=0, atol=0)


@pytest.mark.parametrize("exponent", [2, 3, 0.5, -1, 1, 2.5])
def test_powers(exponent):
    x = np.abs(floats(30, 200)) + 0.1
    natively("Pow", case(x, np.array(exponent, np.float32)), constant=(1,))
    natively("Pow", case(x, np.full(200, exponent, np.float32)))


def test_gelus():
    x, bias = floats(30, 200), floats(200)
    natively("BiasGelu", case(x, bias), domain="com.microsoft")
    natively("FastGelu", case(x, bias), domain="com.microsoft")
    natively("FastGelu", case(x), domain="com.microsoft")
    natively("QuickGelu", case(x, alpha=1.3), domain="com.microsoft")
    natively("Mean", case(x, x * 2, x - 1))


def test_f16_chains_round_between_operators():
    import onnx
    from candle_convert.formats.containers.onnx.reader import graph_of
    from candle_convert.runtime.session import Session
    from onnx import helper

    names = ["Exp", "Sqrt", "Neg", "Sigmoid"]
    nodes = [helper.make_node(name, [f"v{index}"], [f"v{index + 1}"]) for index, name in enumerate(names)]
    nodes.append(helper.make_node("Add", ["v4", "v1"], ["y"]))
    inputs = [helper.make_tensor_value_info("v0", 10, [70, 90])]
    graph = helper.make_graph(nodes, "g", inputs, [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    feeds = {"v0": floats(70, 90, dtype=np.float16)}
    found, right = (Session(graph_of(model), native=native).run(None, feeds)[0] for native in (True, False))
    np.testing.assert_allclose(found.astype(np.float32), right.astype(np.float32), rtol=1e-3)
    assert (found == right).mean() > 0.98
