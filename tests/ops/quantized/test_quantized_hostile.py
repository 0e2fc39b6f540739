"""Quantized nodes that contradict themselves: zero points of another dtype than the codes, blocks that cannot be."""

import candle_convert as cc
import numpy as np
import onnx
import pytest
from candle_convert.formats.containers.onnx.reader import graph_of
from candle_convert.runtime.ir.shape_inference import infer
from candle_convert.runtime.session import Session
from onnx import TensorProto, helper, numpy_helper

MS = "com.microsoft"
CODES, SIGNED = np.zeros((4, 8), np.uint8), np.zeros((4, 8), np.int8)
SCALE = np.ones((4, 4), np.float32)
HOSTILE = [
    ("zero-point-of-another-dtype", "DequantizeLinear", "", [SIGNED, np.float32(1), np.uint8(0)], {}),
    (
        "zero-point-and-output-dtype",
        "QuantizeLinear",
        "",
        [np.ones(4, np.float32), np.float32(1), np.uint8(0)],
        {"output_dtype": TensorProto.INT8},
    ),
    ("zero-point-of-a-product", "MatMulInteger", "", [CODES, CODES.T, np.int8(0)], {}),
    (
        "zero-point-of-a-convolution",
        "ConvInteger",
        "",
        [CODES[None, None], CODES[None, None, :2, :2], np.uint8(0), np.int8(0)],
        {},
    ),
    ("block-of-minus-one", "DequantizeLinear", "", [CODES, SCALE], {"axis": 1, "block_size": -1}),
    ("block-and-scale-disagree", "DequantizeLinear", "", [CODES, SCALE], {"axis": 1, "block_size": 3}),
    (
        "block-0-of-nbits",
        "MatMulNBits",
        MS,
        [np.ones((2, 32), np.float32), np.zeros((4, 1, 16), np.uint8), np.ones(4, np.float32)],
        {"K": 32, "N": 4, "bits": 4, "block_size": 0},
    ),
    (
        "block-of-minus-16-of-nbits",
        "MatMulNBits",
        MS,
        [np.ones((2, 32), np.float32), np.zeros((4, 1, 16), np.uint8), np.ones(4, np.float32)],
        {"K": 32, "N": 4, "bits": 4, "block_size": -16},
    ),
    (
        "bits-0-of-nbits",
        "MatMulNBits",
        MS,
        [np.ones((2, 32), np.float32), np.zeros((4, 1, 16), np.uint8), np.ones(4, np.float32)],
        {"K": 32, "N": 4, "bits": 0, "block_size": 32},
    ),
    (
        "block-0-of-gather",
        "GatherBlockQuantized",
        MS,
        [np.zeros((4, 16), np.uint8), np.zeros(2, np.int64), np.ones((4, 1), np.float32)],
        {"block_size": 0, "bits": 4},
    ),
]


@pytest.mark.parametrize("run", [False, True])
@pytest.mark.parametrize(
    ("name", "operator", "domain", "inputs", "attributes"), HOSTILE, ids=[f"92-{row[0]}" for row in HOSTILE]
)
def test_refused(name, operator, domain, inputs, attributes, run):
    names = [f"i{index}" for index in range(len(inputs))]
    node = helper.make_node(operator, names, ["y"], domain=domain, **attributes)
    arrays = [np.asarray(item) for item in inputs]
    described = [helper.make_tensor_value_info("i0", helper.np_dtype_to_tensor_dtype(arrays[0].dtype), arrays[0].shape)]
    weights = [numpy_helper.from_array(array, name) for name, array in zip(names[1:], arrays[1:], strict=True)]
    inner = helper.make_graph([node], "g", described, [onnx.ValueInfoProto(name="y")], weights)
    graph = graph_of(helper.make_model(inner, opset_imports=[helper.make_opsetid("", 23), helper.make_opsetid(MS, 1)]))
    act = (lambda: Session(graph).run(None, {"i0": arrays[0]})) if run else (lambda: infer(graph))
    with pytest.raises(cc.Error) as caught:
        act()
    assert caught.value.exit_code in (2, 3, 4), caught.value
