"""Compares single nodes at any opset with onnxruntime, fed with every element type."""

import ctypes

import candle_convert.formats.containers.onnx.reader as onnx_graph
import numpy as np
import onnxruntime
from candle_convert.runtime.ir.op import Example
from candle_convert.runtime.ir.registry import operator
from candle_convert.runtime.session import Session
from candle_convert.runtime.tensor.dtype import BY_ONNX
from candle_convert.tests.builders.single_node import element, model, with_constants
from candle_convert.tests.oracles.exact_onnxruntime import exact_session

onnxruntime.set_default_logger_severity(4)
RAW = ("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")


def single(name, example, opset=None, domain=""):
    """A one-node model and its feeds."""
    return model(operator(name, domain), example, opset)


def ours(made, feeds):
    """Outputs of our session."""
    return Session(onnx_graph.graph_of(made)).run(None, feeds)


def theirs(made, feeds):
    """Outputs of onnxruntime on one thread without optimizations; element types that numpy lacks go in and out as raw
    memory."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
    values = {}
    for name, array in feeds.items():
        if array.dtype.name in RAW:
            held = np.ascontiguousarray(array).view(np.uint16 if array.dtype.itemsize == 2 else np.uint8)
            values[name] = onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(held, element(array))
        else:
            values[name] = onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array).reshape(array.shape))
    return [
        as_array(value)
        for value in session.run_with_ort_values([output.name for output in session.get_outputs()], values)
    ]


def as_array(value):
    """An OrtValue as an array of the numpy or ml_dtypes type."""
    kind = BY_ONNX[value.element_type()].as_numpy()
    if kind.name not in RAW:
        return value.numpy()
    shape = tuple(value.shape())
    return np.frombuffer(ctypes.string_at(value.data_ptr(), int(np.prod(shape)) * kind.itemsize), kind).reshape(shape)


def compared(name, *inputs, opset=None, domain="", outputs=1, rtol=1e-5, atol=1e-6, off=0, constant=(), **attributes):
    """Ours against onnxruntime's. `off`: how far integers may be apart, for results that are rounded sums. `constant`:
    positions of i8 weights with their scales and zero points, which onnxruntime multiplies exactly if they are
    initializers."""
    made, feeds = single(name, Example(inputs, attributes, outputs), opset or (21 if domain else None), domain)
    found = ours(made, feeds)
    if constant:
        made, feeds = with_constants(made, feeds, constant)
        expected = exact_session(made, threads=1).run(None, feeds)
    else:
        expected = theirs(made, feeds)
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        if one.dtype.kind in "iub":
            assert np.abs(one.astype(np.int64) - other.astype(np.int64)).max(initial=0) <= off
        else:
            np.testing.assert_allclose(one.astype(np.float64), other.astype(np.float64), rtol=rtol, atol=atol)
    return found


__all__ = ["compared", "ours", "single", "theirs"]
