"""Native rotary embedding and caches that are written to, against the NumPy functions; what is out of range is refused
as there."""

import candle_convert.formats.containers.onnx.reader as onnx_graph
import numpy as np
import pytest
from candle_convert.runtime.base.errors import FormatError, UsageError
from candle_convert.runtime.ir.op import Example
from candle_convert.runtime.session import Session
from candle_convert.tests.oracles.native_vs_numpy import natively
from onnx import TensorProto, helper


def rotary(rng, dtype, size, half, interleaved, positions):
    cos, sin = (rng.normal(size=(9, half) if positions is not None else (2, 5, half)).astype(dtype) for _ in range(2))
    x = rng.normal(size=(2, 5, 3 * size)).astype(dtype)
    inputs = (x, cos, sin) if positions is None else (x, cos, sin, positions)
    return Example(inputs, {"num_heads": 3, "interleaved": interleaved, "rotary_embedding_dim": 2 * half})


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize(("size", "half"), [(64, 32), (80, 20), (33, 7)])
@pytest.mark.parametrize(("dtype", "rough"), [(np.float32, 1e-5), (np.float16, 3e-3)])
def test_rotary_embedding(dtype, rough, size, half, interleaved):
    rng = np.random.default_rng(half)
    for positions in (None, rng.integers(0, 9, (2, 5))):
        natively("RotaryEmbedding", rotary(rng, dtype, size, half, interleaved, positions), 24, rtol=rough, atol=rough)


@pytest.mark.parametrize("position", [-1, 9])
def test_positions_outside_of_the_caches_are_refused(position):
    rng = np.random.default_rng(0)
    inputs = rotary(rng, np.float32, 8, 4, 0, np.zeros((2, 5), np.int64))
    session = Session(onnx_graph.graph_of(model_of("RotaryEmbedding", inputs, 24)), native=True)
    feeds = {f"x{index}": array for index, array in enumerate(inputs.inputs)}
    whole = session.run(None, feeds)[0]
    feeds["x3"] = np.full((2, 5), position)
    with pytest.raises(FormatError, match="positions"):
        session.run(None, feeds)
    feeds["x3"] = inputs.inputs[3]
    np.testing.assert_array_equal(session.run(None, feeds)[0], whole)


def model_of(name, example, opset):
    from candle_convert.runtime.ir.registry import operator
    from candle_convert.tests.builders.single_node import model

    return model(operator(name), example, opset)[0]


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8])
@pytest.mark.parametrize(("axis", "mode"), [(-2, "linear"), (1, "circular"), (2, "linear"), (3, "circular")])
def test_tensor_scatter(dtype, axis, mode):
    rng = np.random.default_rng(1)
    past, shape = rng.integers(-9, 9, (2, 7, 8, 9)).astype(dtype), [2, 7, 8, 9]
    shape[axis] = 3
    natively(
        "TensorScatter",
        Example((past, rng.integers(-9, 9, shape).astype(dtype), np.array([1, 4])), {"axis": axis, "mode": mode}),
        24,
    )


def two_steps(twice):
    """A cache that the graph makes and writes to, read again where `twice`."""
    nodes = [
        helper.make_node("Add", ["past", "past"], ["cache"]),
        helper.make_node("TensorScatter", ["cache", "new", "at"], ["present"]),
    ]
    nodes += [helper.make_node("Sub", ["present", "cache" if twice else "past"], ["y"])]
    floats = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("past", [1, 2, 6, 4]), ("new", [1, 2, 2, 4]))
    ]
    at = helper.make_tensor_value_info("at", TensorProto.INT64, [1])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2, 6, 4])
    return helper.make_model(
        helper.make_graph(nodes, "two", [*floats, at], [y]), opset_imports=[helper.make_opsetid("", 24)], ir_version=11
    )


@pytest.mark.parametrize("twice", [False, True])
def test_a_cache_is_written_in_place_where_nothing_else_reads_it(twice):
    rng = np.random.default_rng(2)
    feeds = {
        "past": rng.normal(size=(1, 2, 6, 4)).astype("f4"),
        "new": rng.normal(size=(1, 2, 2, 4)).astype("f4"),
        "at": np.array([3]),
    }
    expected = Session(onnx_graph.graph_of(two_steps(twice)), native=False).run(None, feeds)[0]
    session = Session(onnx_graph.graph_of(two_steps(twice)), native=True)
    np.testing.assert_array_equal(session.run(None, feeds)[0], expected)
    scatter = next(launch for launch, node in session.program.plans[0].launches if node.op.name == "TensorScatter")
    assert (scatter.arguments[0] is scatter.arguments[3]) != twice
    feeds["at"] = np.array([5])
    with pytest.raises(UsageError, match="outside of the cache"):
        session.run(None, feeds)
