"""Fusion of 2- and 4-bit weights with DequantizeLinear: fused operators match onnx's reference."""

import ml_dtypes
import numpy as np
import pytest
from candle_convert.formats.containers.onnx.reader import graph_of
from candle_convert.runtime.passes.quantize.int4_dequantize_fusion import FuseInt4Dequantize
from candle_convert.runtime.session import Session
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

RNG = np.random.default_rng(0)
ROWS = np.array([[3, 0], [6, 6]])
PRODUCT, TABLE = ["MatMulNBits"], ["Gather", "DequantizeLinear"]


def codes(kind, *shape):
    low = 0 if kind.startswith("u") else -8
    return RNG.integers(low, low + 16, shape).astype(getattr(ml_dtypes, kind))


def scales(*shape):
    return RNG.random(shape).astype(np.float32)


def case(kind, shape, scale, operator, quantized, attributes=None, bias=None, transposed=False):
    """A model of one weight, and what it is fed."""
    weight, spread, *zeros = codes(kind, *shape), scales(*scale), *([codes(kind, *scale)] if kind == "uint4" else [])
    held = {"w": weight, "s": spread, **({"z": zeros[0]} if zeros else {}), **({"b": bias} if bias is not None else {})}
    nodes = [helper.make_node("DequantizeLinear", [name for name in "wsz" if name in held], ["real"], **quantized)]
    last = "real"
    if transposed:
        nodes, last = [*nodes, helper.make_node("Transpose", ["real"], ["transposed"], perm=[1, 0])], "transposed"
    depth = shape[1] if transposed or (attributes or {}).get("transB") else shape[0]
    x = ROWS if operator == "Gather" else RNG.standard_normal((3, depth)).astype(np.float32)
    inputs = [last, "x"] if operator == "Gather" else ["x", last, *(["b"] if bias is not None else [])]
    nodes.append(helper.make_node(operator, inputs, ["y"], **(attributes or {})))
    kind_of_x = TensorProto.INT64 if operator == "Gather" else TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "one",
        [helper.make_tensor_value_info("x", kind_of_x, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in held.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)]), {"x": x}


BLOCKS = {"axis": 0, "block_size": 16}
CASES = {
    "blocks of signed": (case("int4", (40, 5), (3, 5), "MatMul", BLOCKS), PRODUCT),
    "blocks with zero points": (case("uint4", (40, 5), (3, 5), "MatMul", BLOCKS), PRODUCT),
    "a scale for each column": (case("int4", (33, 6), (6,), "MatMul", {"axis": 1}), PRODUCT),
    "one scale": (case("uint4", (20, 3), (), "MatMul", {}), PRODUCT),
    "transposed by Gemm, a bias": (
        case("uint4", (6, 40), (6, 3), "Gemm", {"axis": 1, "block_size": 16}, {"transB": 1}, scales(6)),
        PRODUCT,
    ),
    "transposed": (case("int4", (6, 40), (6, 3), "MatMul", {"axis": -1, "block_size": 16}, transposed=True), PRODUCT),
    "a table in blocks": (case("uint4", (7, 20), (7, 3), "Gather", {"axis": 1, "block_size": 8}), TABLE),
    "a table with one scale": (case("int4", (7, 20), (), "Gather", {}), TABLE),
    "a scale for each row": (case("int4", (20, 3), (20,), "MatMul", {"axis": 0}), ["DequantizeLinear", "MatMul"]),
    "blocks of columns": (
        case("int4", (20, 8), (20, 2), "MatMul", {"axis": 1, "block_size": 4}),
        ["DequantizeLinear", "MatMul"],
    ),
    "a table of scales": (case("int4", (7, 20), (7,), "Gather", {"axis": 0}), ["DequantizeLinear", "Gather"]),
    "a scaled product": (case("int4", (20, 8), (), "Gemm", {}, {"alpha": 2.0}), ["DequantizeLinear", "Gemm"]),
}


@pytest.mark.parametrize("name", CASES)
def test_codes_are_read_as_they_are(name):
    (model, fed), wanted = CASES[name]
    graph = graph_of(model)
    assert FuseInt4Dequantize().run(graph) == (wanted in (PRODUCT, TABLE))
    assert {node.op.name for node in graph.nodes} == set(wanted)
    assert sum(held.nbytes for held in graph.weights.values()) < 700
    (expected,) = ReferenceEvaluator(model).run(None, fed)
    np.testing.assert_allclose(Session(graph, native=False).run(None, fed)[0], expected, rtol=1e-5, atol=1e-5)
