"""cuBLASLt matrix products, with a column-major BLAS in NumPy in place of the library."""

import candle_convert.formats.containers.onnx.reader as onnx_graph
import candle_convert.ops.linalg.gemv_cuda as gemv_cuda
import candle_convert.runtime.cuda.matmul.cublaslt as blas
import ml_dtypes
import numpy as np
from candle_convert.runtime.cuda.memory.transfer import address, aligned_address
from candle_convert.runtime.session import Session
from candle_convert.tests.builders.block_weights import linear, weight
from candle_convert.tests.oracles.blas_layout import by_columns
from onnx import helper, numpy_helper

CALLS = []


def computed(product, blocks, arguments, stream=0):
    """What the library computes, from the arguments of its launch."""
    kinds = {"bfloat16": ml_dtypes.bfloat16}
    assert 0 <= aligned_address(arguments[3]) - address(arguments[3]) <= arguments[3].nbytes - blas.WORKSPACE
    assert aligned_address(arguments[3]) % 256 == 0
    a, b, c, _, *bias = (np.asarray(item._ary if hasattr(item, "_ary") else item) for item in arguments)
    a, b = (item.view(kinds.get(product.dtype, product.dtype)) for item in (a, b))
    c = c.view(kinds.get(product.result, product.result))
    asked = product.problem
    found = by_columns(b, asked.first, asked.count).astype(np.float64) @ by_columns(
        a, asked.second, asked.count
    ).astype(np.float64)
    if bias:
        found = found + bias[0].view(c.dtype).astype(np.float64)[:, None]
    by_columns(c, asked.third, asked.count)[...] = found
    CALLS.append((product.title, asked.count, bool(bias)))


def one_node(op, arrays, weights, **attributes):
    """A graph of one node over inputs and weights."""
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in arrays.items()
    ]
    kind = next(iter(arrays.values())).dtype
    node = helper.make_node(op, [*arrays, *weights], ["y"], **attributes)
    output = helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(kind), None)
    held = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph([node], op, inputs, [output], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), arrays


def numbers(*shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


CASES = {
    "rows": (one_node("MatMul", {"x": numbers(2, 5, 4)}, {"w": numbers(4, 6)}), 1),
    "stacks": (one_node("MatMul", {"x": numbers(2, 3, 5, 4), "w": numbers(2, 3, 4, 6, seed=1)}, {}), 6),
    "f16": (one_node("MatMul", {"x": numbers(5, 4, dtype=np.float16)}, {"w": numbers(4, 6, dtype=np.float16)}), 1),
    "transposed": (one_node("Gemm", {"x": numbers(4, 5)}, {"w": numbers(6, 4)}, transA=1, transB=1), 1),
    "bias": (one_node("Gemm", {"x": numbers(5, 4)}, {"w": numbers(6, 4), "b": numbers(6)}, transB=1), 1),
    "pointwise": (one_node("Conv", {"x": numbers(2, 4, 5, 3)}, {"w": numbers(6, 4, 1, 1)}), 2),
}


def decoded():
    """Rows by a quantized weight, of which some rows are decoded after others."""
    gemv_cuda.DECODED_BYTES = 4 * 64 * 5
    tensor, numbers = weight("q4_0", (12, 64))
    x = np.random.default_rng(0).standard_normal((7, 64)).astype(np.float32)
    CALLS.clear()
    (found,) = Session(linear(tensor), device="cuda", activations="f32").run(None, {"x": x})
    assert len(CALLS) == 3
    np.testing.assert_allclose(found, x @ numbers.T, rtol=1e-5, atol=1e-5)


def main():
    blas.available = blas.Product.known = lambda *product: True
    blas.Product.launch = computed
    for name, ((model, fed), count) in CASES.items():
        CALLS.clear()
        found = Session(onnx_graph.graph_of(model), device="cuda").run(None, fed)
        expected = Session(onnx_graph.graph_of(model), native=False).run(None, fed)
        assert [call[1:] for call in CALLS] == [(count, name == "bias")], (name, CALLS)
        bound = 2e-3 if fed["x"].dtype == np.float16 else 1e-5
        np.testing.assert_allclose(
            found[0].astype(np.float32), expected[0].astype(np.float32), rtol=bound, atol=bound, err_msg=name
        )
    decoded()
    print(len(CASES))


if __name__ == "__main__":
    main()
