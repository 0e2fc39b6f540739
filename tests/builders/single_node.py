"""Models of one node made from an operator example, and their outputs in onnxruntime and the ONNX reference."""

import re
import zlib

import ml_dtypes
import numpy as np
import onnx
from candle_convert.runtime.tensor.dtype import DTYPES, of_numpy
from onnx import helper, numpy_helper

ONNXRUNTIME_OPSET = 26
NEWEST_OPSET = onnx.defs.onnx_opset_version()
NEWEST = {"": NEWEST_OPSET, "ai.onnx.ml": 5, "com.microsoft": 1, "ai.onnx.preview": 1, "ai.onnx.preview.training": 1}


def made_up(text, position=0):
    """Values for a text such as ``f32[2,3]``: asymmetric, the same on every run, small enough for exact sums."""
    name, dims = re.fullmatch(r"(\w+)\[([\d,]*)\]", text).groups()
    shape = tuple(int(dim) for dim in dims.split(",") if dim)
    rng = np.random.default_rng(zlib.crc32(f"{text} {position}".encode()))
    if name == "string":
        return np.array([f"word {item}" for item in rng.integers(0, 9, int(np.prod(shape)))], object).reshape(shape)
    dtype = DTYPES[name]
    if dtype.kind == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.kind == "float":
        return rng.normal(size=shape).astype(np.float32).astype(dtype.as_numpy())
    low, high = (
        {2: (-2, 2), 4: (-8, 8)}.get(dtype.bits, (-20, 20))
        if dtype.kind == "int"
        else {2: (0, 4), 4: (0, 16)}.get(dtype.bits, (0, 40))
    )
    return rng.integers(low, high, shape).astype(dtype.as_numpy())


def arrays(example):
    """The example's inputs: arrays, lists of arrays, None."""

    def array(item, position):
        if item is None or isinstance(item, np.ndarray):
            return item
        if isinstance(item, str):
            return made_up(item, position)
        if (
            isinstance(item, list)
            and item
            and isinstance(item[0], np.ndarray | str)
            and not isinstance(item[0], np.generic)
        ):
            return [array(part, index) for index, part in enumerate(item)]
        return np.asarray(item)

    return [array(item, position) for position, item in enumerate(example.inputs)]


def element(array):
    """The ONNX element type of an array."""
    return onnx.TensorProto.STRING if array.dtype.kind in "OUT" else of_numpy(array.dtype).onnx


def tensor(array, name):
    """An array as a TensorProto, sub-byte and f8 types included."""
    if array.dtype.kind in "OUT":
        return helper.make_tensor(
            name, onnx.TensorProto.STRING, array.shape, [str(item).encode() for item in array.reshape(-1)]
        )
    return numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)


def described(name, value):
    """A ValueInfoProto for an input value."""
    if isinstance(value, list):
        ranks = {array.ndim for array in value}
        inner = helper.make_tensor_type_proto(element(value[0]), [None] * ranks.pop() if len(ranks) == 1 else None)
        return helper.make_value_info(name, helper.make_sequence_type_proto(inner))
    return helper.make_tensor_value_info(name, element(value), value.shape)


def model(operator, example, opset=None, constant=False):
    """A model of one node. `constant` makes initializers of its tensors."""
    values = arrays(example)
    names = ["" if value is None else f"x{index}" for index, value in enumerate(values)]
    attributes = {
        key: tensor(value, key) if isinstance(value, np.ndarray) else value
        for key, value in example.attributes.items()
        if value is not None
    }
    outputs = [f"y{index}" for index in range(example.outputs)]
    node = helper.make_node(operator.name, names, outputs, domain=operator.domain, **attributes)
    pairs = [(name, value) for name, value in zip(names, values, strict=True) if value is not None]
    held = [tensor(value, name) for name, value in pairs if constant and not isinstance(value, list)]
    free = [described(name, value) for name, value in pairs if not constant or isinstance(value, list)]
    graph = helper.make_graph([node], "one", free, [onnx.ValueInfoProto(name=name) for name in outputs], held)
    opsets = [helper.make_opsetid("", opset or NEWEST_OPSET)]
    if operator.domain:
        # The newest opset deprecates some operators, which onnxruntime then does not run.
        version = max(3, operator.since) if operator.domain == "ai.onnx.ml" else NEWEST.get(operator.domain, 1)
        opsets.append(helper.make_opsetid(operator.domain, version))
    made = helper.make_model(graph, opset_imports=opsets, ir_version=10 if opset else onnx.IR_VERSION)
    feeds = {name: value for name, value in pairs if not constant or isinstance(value, list)}
    return made, feeds


def with_constants(made, feeds, positions):
    """The model with the inputs at these positions as initializers, and the other feeds."""
    names = {f"x{position}" for position in positions} & feeds.keys()
    model = onnx.ModelProto()
    model.CopyFrom(made)
    model.graph.initializer.extend(tensor(feeds[name], name) for name in sorted(names))
    kept = [item for item in model.graph.input if item.name not in names]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    return model, {name: value for name, value in feeds.items() if name not in names}


def with_onnxruntime(operator, example):
    """Outputs of onnxruntime, or the reason why it does not run this."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    made, feeds = model(operator, example, ONNXRUNTIME_OPSET)
    if operator.domain == "" and operator.since > ONNXRUNTIME_OPSET:
        return f"opset {operator.since} is newer than onnxruntime's"
    for value in feeds.values():
        for array in value if isinstance(value, list) else [value]:
            if array.dtype.kind == "V" or array.dtype in (ml_dtypes.bfloat16, ml_dtypes.int4, ml_dtypes.uint4):
                return f"numpy cannot hand {array.dtype} to onnxruntime"
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    try:
        session = onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return session.run(None, feeds)
    except Exception as error:  # onnxruntime raises classes of its own for every kind of refusal
        return str(error).splitlines()[0]


def with_reference(operator, example):
    """Outputs of the ONNX reference evaluator, or the reason why it does not run this."""
    from onnx.reference import ReferenceEvaluator

    made, feeds = model(operator, example)
    try:
        return ReferenceEvaluator(made).run(None, feeds)
    except Exception as error:  # it raises whatever its NumPy code meets
        return f"{type(error).__name__}: {error}"
