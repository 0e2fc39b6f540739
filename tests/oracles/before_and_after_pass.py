"""Compares a graph before and after a pass: in our session, and in onnxruntime as read and as written."""

import candle_convert as cc
import numpy as np
import onnx
import onnxruntime
from candle_convert.convert.write.pipeline import execute
from candle_convert.convert.write.plan import plan_graph
from candle_convert.formats.containers.onnx.reader import graph_of
from candle_convert.runtime.passes.pattern.verify import check
from candle_convert.runtime.passes.simplification import Simplify
from candle_convert.runtime.session import Session
from onnx import TensorProto, checker, helper, numpy_helper

ELEMENTS = {
    "f32": TensorProto.FLOAT,
    "f16": TensorProto.FLOAT16,
    "f64": TensorProto.DOUBLE,
    "i64": TensorProto.INT64,
    "bool": TensorProto.BOOL,
    "i8": TensorProto.INT8,
    "u8": TensorProto.UINT8,
}
NUMPY = {
    "f32": np.float32,
    "f16": np.float16,
    "f64": np.float64,
    "i64": np.int64,
    "bool": np.bool_,
    "i8": np.int8,
    "u8": np.uint8,
}
NEWEST = 26
"""The last opset that onnxruntime runs."""


class Net:
    """Collects nodes and constants; `add` gives the name of what it adds."""

    def __init__(self, seed=0):
        self.rng = np.random.default_rng(seed)
        self.nodes, self.weights = [], []

    def constant(self, array, dtype=np.float32):
        name = f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array, dtype), name))
        return name

    def integers(self, *items):
        return self.constant(np.array(items, np.int64), np.int64)

    def normal(self, *shape, dtype=np.float32, scale=1.0):
        return self.constant(self.rng.normal(size=shape) * scale, dtype)

    def add(self, operator, *inputs, name=None, outputs=1, **attributes):
        made = (
            [name or f"v{len(self.nodes)}"]
            if outputs == 1
            else [f"v{len(self.nodes)}_{index}" for index in range(outputs)]
        )
        inputs = [self.constant(item) if isinstance(item, float) else item for item in inputs]
        self.nodes.append(helper.make_node(operator, inputs, made, **attributes))
        return made[0] if outputs == 1 else made

    def model(self, feeds, outputs, opset=18, dims=None):
        """A checked model that takes arrays like `feeds`; `dims` names dimensions of inputs."""
        declared = [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(array.dtype), (dims or {}).get(name, array.shape)
            )
            for name, array in feeds.items()
        ]
        made = helper.make_graph(
            self.nodes, "net", declared, [helper.make_empty_tensor_value_info(name) for name in outputs], self.weights
        )
        model = helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
        inferred = onnx.shape_inference.infer_shapes(model)
        known = {item.name: item for item in (*inferred.graph.value_info, *inferred.graph.output)}
        for index, name in enumerate(outputs):
            model.graph.output[index].CopyFrom(known[name])
        checker.check_model(model)
        return model


def in_onnxruntime(model, feeds):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    data = model if isinstance(model, str) else model.SerializeToString()
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"]).run(None, feeds)


def operators(graph):
    """Names of the operators, in order of the alphabet."""
    return sorted(node.op.name for node in graph.nodes)


def rewritten(model, feeds, tmp_path, *, rtol=1e-4, atol=1e-5, opset=None, written=True, **options):
    """The graph simplified, after comparing all outputs: ours before and after, onnxruntime's of the model and of the
    file that is written."""
    expected = in_onnxruntime(model, feeds)
    source = tmp_path / "before.onnx"
    onnx.save(model, source)
    plain = Session(graph_of(model), native=False, simplify=False).run(None, feeds)
    graph = cc.open(source)
    Simplify(opset=NEWEST if opset is None else opset, **options).run(graph)
    check(graph)
    found = [plain, Session(graph, native=False, simplify=False).run(None, feeds)]
    if written:
        execute(plan_graph(graph, tmp_path / "after.onnx", cc.Options(force=True), [source]))
        onnx.checker.check_model(str(tmp_path / "after.onnx"), full_check=True)
        found.append(in_onnxruntime(str(tmp_path / "after.onnx"), feeds))
    for outputs in found:
        for one, other in zip(outputs, expected, strict=True):
            assert one.dtype == other.dtype
            assert one.shape == other.shape
            np.testing.assert_allclose(one.astype(np.float64), other.astype(np.float64), rtol=rtol, atol=atol)
    return graph
