"""Weights are read when they are needed, and held only in the layout that kernels take."""

import gc
import os

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.runtime.base.errors import FileAccessError
from candle_convert.runtime.base.gc_pause import unsearched
from candle_convert.runtime.base.huge_pages import HugePages
from candle_convert.runtime.tensor.scaled import scaled_rows
from candle_convert.runtime.tensor.stored_tensor import StoredTensor
from candle_convert.runtime.tensor.weight_array import LazyWeight, weight
from safetensors.numpy import save_file

LENGTH = 256


@pytest.fixture
def model(tmp_path):
    """A product and a convolution, and the numbers of both."""
    onnx = pytest.importorskip("onnx")
    from onnx import helper, numpy_helper

    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(LENGTH, LENGTH)).astype(np.float32)
    kernels = rng.normal(size=(LENGTH, 64, 3, 3)).astype(np.float32)
    norm = [rng.uniform(0.5, 2, LENGTH).astype(np.float32) for _ in range(4)]
    names = ["scale", "offset", "mean", "variance"]
    nodes = [
        helper.make_node("MatMul", ["x", "matrix"], ["y"]),
        helper.make_node("Conv", ["image", "kernels"], ["z"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["z", *names], ["normed"]),
        *[helper.make_node("Relu", ["y" if index == 0 else f"y{index}"], [f"y{index + 1}"]) for index in range(6)],
    ]  # fmt: skip
    weights = [
        numpy_helper.from_array(array, name)
        for name, array in zip(["matrix", "kernels", *names], [matrix, kernels, *norm], strict=True)
    ]
    inputs = [
        helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["rows", LENGTH]),
        helper.make_tensor_value_info("image", onnx.TensorProto.FLOAT, [1, 64, "height", "width"]),
    ]
    outputs = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in ("y6", "normed")]
    graph = helper.make_graph(nodes, "g", inputs, outputs, weights)
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)
    return path


def fed(rows, length):
    rng = np.random.default_rng(rows)
    return {
        "x": rng.normal(size=(rows, LENGTH)).astype(np.float32),
        "image": rng.normal(size=(1, 64, length, length)).astype(np.float32),
    }


def test_what_is_packed_is_not_held_as_well(model):
    onnxruntime = pytest.importorskip("onnxruntime")
    session, oracle = (
        cc.InferenceSession(model),
        onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]),
    )
    for feeds in (fed(8, 20), fed(1, 7), fed(100, 33)):
        for found, expected in zip(session.run(None, feeds), oracle.run(None, feeds), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-3, atol=2e-3)
    unread = [weight for weight in session._session.program.region.weights.values() if isinstance(weight, LazyWeight)]
    assert len(unread) == 2
    assert all(weight._array is None for weight in unread)


def test_a_cast_weight_is_computed_when_it_is_read(tmp_path):
    """Not held next to what kernels make of it."""
    kernels = np.random.default_rng(0).normal(size=(LENGTH, 64, 3, 3)).astype(np.float16)
    save_file({"kernels": kernels}, tmp_path / "w.safetensors")
    made = weight(cc.open(tmp_path / "w.safetensors")["kernels"].cast("f32"), HugePages())
    assert isinstance(made, LazyWeight)
    np.testing.assert_array_equal(made.without_caching(), kernels.astype(np.float32))
    assert made._array is None


def test_a_file_that_was_written_to_is_refused(model):
    session = cc.InferenceSession(model)
    os.utime(model, ns=(1, 1))
    with pytest.raises(FileAccessError) as caught:
        session.run(None, fed(8, 20))
    assert caught.value.code == "E-IO-CHANGED"


def test_a_file_in_its_place_changes_nothing(model, tmp_path):
    feeds = fed(8, 20)
    expected = cc.InferenceSession(model).run(None, feeds)
    session = cc.InferenceSession(model)
    other = tmp_path / "other"
    other.write_bytes(b"something else")
    other.replace(model)
    for found, before in zip(session.run(None, feeds), expected, strict=True):
        np.testing.assert_array_equal(found, before)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_are_scaled_wherever_they_are_read(dtype):
    rng = np.random.default_rng(1)
    values, factors = rng.normal(size=(7, 3, 5)).astype(dtype), rng.normal(size=7).astype(dtype)
    made = scaled_rows(StoredTensor.of(values), factors)
    expected = (values * factors.reshape(-1, 1, 1)).tobytes()
    np.testing.assert_array_equal(made.numpy(), values * factors.reshape(-1, 1, 1))
    for start, stop in ((0, 1), (3, 61), (60, 120), (len(expected) - 5, len(expected)), (0, len(expected))):
        assert bytes(made.storage.read(start, stop)) == expected[start:stop]


def test_garbage_is_looked_for_afterwards():
    assert gc.isenabled()
    assert unsearched(gc.isenabled)() is False
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError):
        unsearched(lambda: 1 / 0)()
    assert gc.isenabled()


def test_rows_of_a_weight_that_is_not_read_yet_are_looked_up_by_an_index_that_the_plan_knows(tmp_path):
    """The index decides a condition too, so that a plan is made for its value."""
    onnx, onnxruntime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    from onnx import numpy_helper, parser

    made = parser.parse_model("""<ir_version: 8, opset_import: ["" : 20]>
    g (int64[1] index) => (float[1, 128] y) {
      row = Gather (table, index)
      three = Constant <value = int64[1] {3}> ()
      small = Less (index, three)
      scalar = Squeeze (small)
      y = If (scalar) <then_branch = a () => (float[1, 128] p) { p = Neg (row) },
                       else_branch = b () => (float[1, 128] q) { q = Exp (row) }>
    }""")
    table = np.random.default_rng(0).normal(size=(LENGTH, 128)).astype(np.float32)
    made.graph.initializer.append(numpy_helper.from_array(table, "table"))
    path = tmp_path / "m.onnx"
    onnx.save(made, path)
    session, oracle = cc.InferenceSession(path), onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for index in (2, 200, 3):
        feeds = {"index": np.array([index])}
        np.testing.assert_allclose(session.run(None, feeds)[0], oracle.run(None, feeds)[0], rtol=1e-6)
