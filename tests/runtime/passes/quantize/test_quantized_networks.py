"""Quantized networks: onnxruntime and the runtime agree on the written file, close to the float model."""

import numpy as np
import onnx
import pytest
from candle_convert.convert.open.open_model import open_model
from candle_convert.convert.quantize.calibration.activation_range import METHODS, Observed
from candle_convert.convert.write.conversion_options import Options
from candle_convert.convert.write.pipeline import execute
from candle_convert.convert.write.plan import plan_graph
from candle_convert.runtime.contract.format import ReadOptions
from candle_convert.runtime.ir.shape_inference import infer
from candle_convert.runtime.passes.pattern.replace_nodes import graphs
from candle_convert.runtime.passes.pattern.verify import check
from candle_convert.runtime.passes.precision.half import HalfPrecision
from candle_convert.runtime.passes.quantize.dynamic_int8 import DynamicInt8
from candle_convert.runtime.passes.quantize.static_qdq_int8 import StaticInt8
from candle_convert.runtime.passes.quantize.weight_only import WeightOnly
from candle_convert.runtime.session import Session
from candle_convert.runtime.tensor.dtype import DTYPES
from candle_convert.tests.builders.networks import NETWORKS, Net, value
from candle_convert.tests.oracles.exact_onnxruntime import exact_session


def opened(name, folder):
    build, samples = NETWORKS[name]
    path = folder / f"{name}.onnx"
    onnx.save(build(), path)
    return path, samples()


def read_graph(path):
    graph = open_model(str(path), ReadOptions())
    infer(graph)
    return graph


def snr(expected, found):
    noise = sum(float(((a.astype(np.float64) - b) ** 2).sum()) for a, b in zip(expected, found, strict=True))
    power = sum(float((a.astype(np.float64) ** 2).sum()) for a in expected)
    return np.inf if not noise else 10 * np.log10(power / noise)


def ort(path, feeds, level="ORT_ENABLE_ALL"):
    session = exact_session(path, level)
    return [session.run(None, feed) for feed in feeds]


def test_subgraphs_use_one_copy_of_a_weight(tmp_path):
    for change, count in ((WeightOnly(4, 16), 4), (DynamicInt8(), 6), (StaticInt8({"x": (-3, 3), "a1": (0, 3)}), 12)):
        path, _ = opened("branching", tmp_path)
        graph = read_graph(path)
        assert change.run(graph)
        check(graph)
        assert set(change.changed) == {"outer", "inside"}
        assert not {"outer", "inside"} & {name for inner in graphs(graph) for name in inner.weights}
        assert sum(len(inner.weights) for inner in graphs(graph)) == count


def proven(name, folder, make, least, close):
    """Quantize, write, and run here and in onnxruntime; the quantized graph."""
    path, feeds = opened(name, folder)
    graph = read_graph(path)
    change = make(graph, feeds)
    check(graph)
    assert change.run(graph)
    check(graph)
    out = folder / "out.onnx"
    execute(plan_graph(graph, out, Options(), [str(path)]))
    onnx.checker.check_model(
        str(out), full_check="com.microsoft" not in {item.domain for item in onnx.load(out).opset_import}
    )
    expected = ort(path, feeds)
    session = Session(read_graph(out))
    ours = [session.run(None, feed) for feed in feeds]
    plain, fused = ort(out, feeds, "ORT_DISABLE_ALL"), ort(out, feeds)
    for index in range(len(expected[0])):
        reference, mine, other = ([run[index] for run in runs] for runs in (expected, ours, plain))
        assert snr(reference, mine) >= least
        assert snr(reference, [run[index] for run in fused]) >= least
        assert snr(other, mine) >= close
    return onnx.load(out), change


def ranges(graph, feeds, method="minmax"):
    seen = {}
    session = Session(graph)
    floats = {
        value.name
        for value in (*graph.inputs, *(value for node in graph.nodes for value in node.outputs))
        if value.dtype is DTYPES["f32"]
    }

    def look(name, array):
        if name in floats:
            seen.setdefault(name, Observed()).add(array)

    for feed in feeds:
        for name, array in feed.items():
            look(name, array)
        session.run_with_taps(feed, "", look)
    return {name: METHODS[method](value) for name, value in seen.items()}


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize(("bits", "block", "least"), [(4, 16, 12), (4, 32, 11), (8, 64, 33), (8, 256, 30)])
@pytest.mark.parametrize("form", ["nbits", "qdq"])
def test_weight_only(bits, block, least, form, symmetric, tmp_path):
    model, change = proven(
        "encoder", tmp_path, lambda graph, feeds: WeightOnly(bits, block, symmetric, form), least, 55
    )
    assert len(change.changed) == (14 if block <= 64 else 13)
    kinds = {node.op_type for node in model.graph.node}
    assert {"nbits": "MatMulNBits", "qdq": "DequantizeLinear"}[form] in kinds


def test_blocks_with_a_bias_of_one_element(tmp_path):
    """MatMulNBits takes no bias that broadcasts."""
    x = onnx.helper.make_tensor_value_info("x", 1, [2, 16])
    y = onnx.helper.make_tensor_value_info("y", 1, [2, 3])
    w = np.random.default_rng(0).standard_normal((16, 3), np.float32)
    weights = [onnx.numpy_helper.from_array(array, name) for name, array in (("w", w), ("b", np.ones(1, np.float32)))]
    node = onnx.helper.make_node("Gemm", ["x", "w", "b"], ["y"])
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "g", [x], [y], weights), ir_version=10)
    model.opset_import[0].version = 21
    onnx.save(model, tmp_path / "net.onnx")
    graph = read_graph(tmp_path / "net.onnx")
    WeightOnly(8, 16).run(graph)
    execute(plan_graph(graph, tmp_path / "int8.onnx", Options()), None)
    feeds = [{"x": np.random.default_rng(1).standard_normal((2, 16), np.float32)}]
    assert snr(ort(tmp_path / "net.onnx", feeds)[0], ort(tmp_path / "int8.onnx", feeds)[0]) > 30


TABLES = {
    "normal": (1, 96, 0),
    "odd width": (1, 77, 0),
    "negative axis": (1, 45, -2),
    "near the largest": (65504, 40, 0),
    "small": (2e-3, 40, 0),
    "below all scales": (2e-6, 40, 0),
}
"""Largest magnitude of the rows, their width, and the axis of the lookup."""


def looked_up(folder, table, axis):
    """A lookup in a table whose rows are int8, as onnxruntime computes it, and the pass."""
    kind = onnx.helper.np_dtype_to_tensor_dtype(table.dtype)
    ids = onnx.helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, [2, 3])
    y = onnx.helper.make_tensor_value_info("y", kind, [2, 3, table.shape[1]])
    weights = [onnx.numpy_helper.from_array(table, "table")]
    node = onnx.helper.make_node("Gather", ["table", "ids"], ["y"], axis=axis)
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "g", [ids], [y], weights), ir_version=10)
    model.opset_import[0].version = 21
    onnx.save(model, folder / "net.onnx")
    graph = read_graph(folder / "net.onnx")
    change = WeightOnly(4, 32, tables="rows")
    change.run(graph)
    check(graph)
    execute(plan_graph(graph, folder / "rows.onnx", Options()), None)
    onnx.checker.check_model(str(folder / "rows.onnx"), full_check=True)
    return ort(folder / "rows.onnx", [{"ids": IDS}])[0][0], change


IDS = np.array([[0, 3, 1], [2, 5, 4]])


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("name", TABLES)
def test_tables_of_rows(name, dtype, tmp_path):
    largest, columns, axis = TABLES[name]
    table = np.random.default_rng(0).uniform(-1, 1, (6, columns))
    table[:, 7] = [1, -1, 1, -1, 1, -1]
    table[4] = 0
    table = (table * largest).astype(dtype)
    found, change = looked_up(tmp_path, table, axis)
    assert change.changed == ["table"]
    assert found.dtype == dtype
    bounds = np.abs(table).max(axis=1, keepdims=True) / 250 + np.finfo(dtype).smallest_normal / 2
    assert (np.abs(found.astype(np.float64) - table[IDS]) <= bounds.astype(np.float64)[IDS]).all()


def test_narrow_tables_stay(tmp_path):
    """A scale would be most of a row."""
    table = np.random.default_rng(0).standard_normal((6, 12), np.float32)
    found, change = looked_up(tmp_path, table, 0)
    assert not change.changed
    assert np.array_equal(found, table[IDS])


@pytest.mark.parametrize("weight", ["int8", "uint8"])
@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize(("name", "least"), [("encoder", 28), ("classifier", 28), ("recurrent", 25), ("branching", 30)])
def test_dynamic(name, least, per_channel, weight, tmp_path):
    model, change = proven(name, tmp_path, lambda graph, feeds: DynamicInt8(weight, per_channel), least, 35)
    assert change.changed
    kinds = {node.op_type for node in model.graph.node}
    assert {
        "encoder": "MatMulInteger",
        "classifier": "ConvInteger",
        "recurrent": "DynamicQuantizeLSTM",
        "branching": "If",
    }[name] in kinds


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("activation", "weight", "per_channel"),
    [("uint8", "int8", True), ("int8", "int8", False), ("uint8", "uint8", False)],
)
@pytest.mark.parametrize(("name", "least"), [("encoder", 15), ("classifier", 17)])
def test_static(name, least, activation, weight, per_channel, method, tmp_path):
    def make(graph, feeds):
        return StaticInt8(ranges(graph, feeds, method), activation, weight, per_channel)

    _model, change = proven(name, tmp_path, make, least, 25)
    assert len(change.changed) == {"encoder": 13, "classifier": 5}[name]


@pytest.mark.filterwarnings("error")
def test_a_bias_that_no_step_reaches_stays(tmp_path):
    """The input is zero in all samples, so that its step is the smallest: the bias overflows in units of steps."""
    x, y = (onnx.helper.make_tensor_value_info(name, 1, [1, 2, 4, 4]) for name in "xy")
    arrays = {"w": np.full((2, 2, 1, 1), 0.5, np.float32), "b": np.array([1, -2], np.float32)}
    weights = [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()]
    node = onnx.helper.make_node("Conv", ["x", "w", "b"], ["y"])
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "g", [x], [y], weights), ir_version=10)
    model.opset_import[0].version = 21
    onnx.save(model, tmp_path / "net.onnx")
    graph = read_graph(tmp_path / "net.onnx")
    StaticInt8({"x": (0.0, 0.0)}).run(graph)
    execute(plan_graph(graph, tmp_path / "int8.onnx", Options()), None)
    feeds = [{"x": np.zeros((1, 2, 4, 4), np.float32)}]
    for (right,), (found,) in zip(ort(tmp_path / "net.onnx", feeds), ort(tmp_path / "int8.onnx", feeds), strict=True):
        np.testing.assert_allclose(found, right, atol=1e-6)


def test_what_floats_read_stays(tmp_path):
    net = Net(4)
    x = net.add("MatMul", "x", net.weight(12, 8))
    near = net.add("MatMul", x, net.weight(3, 8, 8, name="stack"))
    kept = net.add("Concat", near, net.add("Add", x, near), axis=-1)
    read = net.add("Concat", near, x, axis=-1)
    net.add("Softmax", kept, name="shares")
    net.add("MatMul", read, net.weight(16, 5), name="scores")
    outputs = [value("shares", onnx.TensorProto.FLOAT, 3, 4, 16), value("scores", onnx.TensorProto.FLOAT, 3, 4, 5)]
    path = tmp_path / "net.onnx"
    onnx.save(net.model([value("x", onnx.TensorProto.FLOAT, 3, 4, 12)], outputs), path)
    feeds, graph = [{"x": net.rng.normal(size=(3, 4, 12)).astype(np.float32)}], read_graph(path)
    change = StaticInt8(ranges(graph, feeds))
    assert change.run(graph)
    makers = {node.outputs[0].name: [each.producer for each in node.inputs] for node in graph.nodes}
    assert all(maker.op.name != "DequantizeLinear" for maker in makers[kept])
    assert all(maker.op.name == "DequantizeLinear" for maker in makers[read])
    out = tmp_path / "out.onnx"
    execute(plan_graph(graph, out, Options(), [str(path)]))
    [expected], [plain] = ort(path, feeds), ort(out, feeds, "ORT_DISABLE_ALL")
    found = Session(read_graph(out)).run(None, feeds[0])
    for reference, mine, other in zip(expected, found, plain, strict=True):
        assert snr([reference], [mine]) >= 30
        assert snr([other], [mine]) >= 45


@pytest.mark.parametrize(("name", "least"), [("encoder", 50), ("classifier", 50), ("recurrent", 50), ("branching", 50)])
def test_half(name, least, tmp_path):
    model, _change = proven(name, tmp_path, lambda graph, feeds: HalfPrecision(DTYPES["f16"]), least, 45)
    widened = {node.input[0] for node in model.graph.node if node.op_type == "Cast"}
    assert {output for node in model.graph.node for output in node.output if "/half" in output} <= widened
    inner = [attribute.g for node in model.graph.node for attribute in node.attribute]
    kinds = {item.data_type for part in (model.graph, *inner) for item in part.initializer}
    assert onnx.TensorProto.FLOAT not in kinds
    assert onnx.TensorProto.FLOAT16 in kinds
