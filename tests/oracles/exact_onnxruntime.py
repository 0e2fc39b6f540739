"""onnxruntime sessions that multiply integers exactly on every processor.

Without VNNI, onnxruntime adds pairs of u8 x i8 products with saturation at 16 bits; sums of u8 x u8 are exact. Constant
i8 operands, and those that are quantized for one product, therefore become u8, with a zero point that is larger by 128.
Where onnxruntime itself fuses products of
bytes, its option ``session.x64quantprecision`` does the same. Source: onnxruntime_session_options_config_keys.h.
"""

import functools

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

PRODUCTS = {
    "ConvInteger": [(0, 1, 3)],
    "MatMulInteger": [(0, 1, 3)],
    "QLinearConv": [(0, 3, 5)],
    "QLinearMatMul": [(0, 3, 5)],
    "QGemm": [(0, 3, 5)],
    "MatMulIntegerToFloat": [(0, 1, 5)],
    "DynamicQuantizeMatMul": [(None, 1, 3)],
    "DynamicQuantizeLSTM": [(None, 1, 9), (None, 2, 11)],
}
"""Positions of the activation, of the weight it is multiplied with and of the weight's zero point."""


def exact_session(model, level="ORT_DISABLE_ALL", threads=0):
    """A session of a model, or of the file at a path, for the CPU."""
    model = model if isinstance(model, onnx.ModelProto) else onnx.load(model)
    if not saturates():
        return _session(model, level, threads)
    return _session(unsigned(model), level, threads, precise=level != "ORT_DISABLE_ALL" and not _signed(model))


def unsigned(model):
    """The model with its i8 weights that multiply u8 activations as u8: constants, and what is quantized for them."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    inferred = onnx.shape_inference.infer_shapes(made) if made.ByteSize() < onnx.checker.MAXIMUM_PROTOBUF else made
    _make_unsigned(made.graph, inferred.graph, {}, set())
    return made


def _make_unsigned(graph, inferred, constants, signed):
    """Rewrite the products of a graph and of those in it.

    Args:
        inferred: the same graph with its values' types.
        constants: initializers of the graphs around it.
        signed: names of their values of type i8.
    """
    constants = constants | {item.name: item for item in graph.initializer}
    values = (*inferred.input, *inferred.value_info, *inferred.output)
    signed = signed | {value.name for value in values if value.type.tensor_type.elem_type == TensorProto.INT8}
    for node, known in zip(graph.node, inferred.node, strict=True):
        for activation, weight, zero in PRODUCTS.get(node.op_type, ()):
            names = [*node.input, *[""] * (zero + 1 - len(node.input))]
            operand, point = constants.get(names[weight]), constants.get(names[zero])
            if operand is None:
                _quantize_unsigned(graph, node, weight, zero, constants)
                continue
            if operand.data_type != TensorProto.INT8 or (names[zero] and point is None):
                continue
            if activation is not None and names[activation] in signed:
                continue
            for position, item in ((weight, operand), (zero, point)):
                codes = np.zeros((), np.int8) if item is None else numpy_helper.to_array(item)
                names[position] = _shifted(graph, f"{names[weight]}/{position}/u8", codes)
            node.input[:] = names
        for attribute, same in zip(node.attribute, known.attribute, strict=True):
            if attribute.type == onnx.AttributeProto.GRAPH:
                _make_unsigned(attribute.g, same.g, constants, signed)


def _shifted(graph, name, codes):
    """The name of an initializer of i8 codes as u8."""
    if name not in {made.name for made in graph.initializer}:
        graph.initializer.append(numpy_helper.from_array((codes.astype(np.int16) + 128).astype(np.uint8), name))
    return name


def _quantize_unsigned(graph, node, weight, zero, constants):
    """Let QuantizeLinear make u8 codes for a product that alone reads its i8 codes."""
    name = node.input[weight]
    maker = next((each for each in graph.node if name in each.output), None)
    readers = sum(name in each.input for each in graph.node) + sum(name == each.name for each in graph.output)
    if maker is None or maker.op_type != "QuantizeLinear" or len(maker.input) < 3 or readers != 1:
        return
    point = constants.get(maker.input[2])
    same = node.input[zero : zero + 1] == maker.input[2:3]
    if same and point is not None and point.data_type == TensorProto.INT8:
        maker.input[2] = node.input[zero] = _shifted(graph, f"{name}/u8", numpy_helper.to_array(point))


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
