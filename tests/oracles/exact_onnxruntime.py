"""onnxruntime sessions that multiply integers exactly on every processor.

Without VNNI, onnxruntime adds pairs of u8 x i8 products with saturation at 16 bits. Its option
``session.x64quantprecision`` turns constant i8 weights into u8, whose sums are exact; that is an optimization of level
``ORT_ENABLE_EXTENDED``. Source: onnxruntime_session_options_config_keys.h.
"""

import functools

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

PRODUCTS = {
    "ConvInteger", "DynamicQuantizeLSTM", "DynamicQuantizeMatMul", "MatMulInteger", "MatMulIntegerToFloat", "QGemm",
    "QLinearConv", "QLinearMatMul",
}  # fmt: skip
"""Operators whose constant i8 operands become u8."""


def exact_session(model, level="ORT_DISABLE_ALL", threads=0):
    """A session of a model, or of the file at a path, for the CPU. Where products of the model saturate, `level` is
    raised to the one that makes them exact; products of i8 with i8 are exact at any."""
    model = model if isinstance(model, onnx.ModelProto) else onnx.load(model)
    if not saturates() or _signed(model):
        return _session(model, level, threads)
    if level == "ORT_DISABLE_ALL" and any(node.op_type in PRODUCTS for node in _nodes(model.graph)):
        level = "ORT_ENABLE_EXTENDED"
    return _session(model, level, threads, precise=True)


@functools.cache
def saturates():
    """Whether a u8 x i8 product of onnxruntime differs from the integers' on this processor."""
    a, b = np.full((1, 4), 255, np.uint8), np.full((4, 1), 127, np.int8)
    inputs = [helper.make_tensor_value_info("a", TensorProto.UINT8, a.shape)]
    inputs.append(helper.make_tensor_value_info("b", TensorProto.INT8, b.shape))
    y = helper.make_tensor_value_info("y", TensorProto.INT32, (1, 1))
    graph = helper.make_graph([helper.make_node("MatMulInteger", ["a", "b"], ["y"])], "product", inputs, [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 10)], ir_version=10)
    (found,) = _session(model, "ORT_DISABLE_ALL", 1).run(None, {"a": a, "b": b})
    return bool(found != a.astype(np.int32) @ b.astype(np.int32))


def _nodes(graph):
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _nodes(attribute.g)


def _signed(model):
    """Whether the model has a QLinearConv or QLinearMatMul of i8, for which onnxruntime has no u8 weights."""
    types = {item.name: item.data_type for item in model.graph.initializer}
    nodes = (node for node in model.graph.node if node.op_type in ("QLinearConv", "QLinearMatMul"))
    return any(types.get(node.input[2]) == TensorProto.INT8 for node in nodes)


def _session(model, level, threads, precise=False):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.intra_op_num_threads, options.log_severity_level = threads, 4
    if precise:
        options.add_session_config_entry("session.x64quantprecision", "1")
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
