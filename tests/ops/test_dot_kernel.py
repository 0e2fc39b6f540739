"""Products of many rows of activations with the whole numbers of blocks, against NumPy's integers and gguf-py's decoders."""

import gguf
import numpy as np
import pytest
from candle_convert.ops.math import dot_kernel
from candle_convert.ops.quants import codecs
from candle_convert.ops.quants.products import codes
from candle_convert.runtime.build import Builder
from candle_convert.runtime.dtype import DTYPES, F32
from candle_convert.runtime.graph import Graph, Value
from candle_convert.runtime.session import Session
from candle_convert.runtime.storage import Held
from candle_convert.runtime.tensor import Tensor

ONES = {
    "q4_0": [0], "q4_1": [0, 2], "q5_0": [0], "q5_1": [0, 2], "q8_0": [0], "q2_k": [80, 82], "q3_k": [108], "q4_k": [0, 2], "q5_k": [0, 2],
    "q6_k": [208], "iq4_nl": [0], "iq4_xs": [0], "mxfp4": [],
}
"""Where half-precision scales are in a block."""
WHOLE = [name for name in ONES if dot_kernel.available(name)]


def whole_weight(name, rows, columns):
    """A tensor of random codes whose scales of half precision are 1, and its numbers, which are whole."""
    dtype = DTYPES[name]
    data = np.random.default_rng(0).integers(0, 256, (rows, dtype.nbytes(columns)), dtype=np.uint8)
    blocks = data.reshape(-1, dtype.block_nbytes)
    for at in ONES[name]:
        blocks[:, at : at + 2] = np.frombuffer(np.float16(1).tobytes(), np.uint8)
    if name == "mxfp4":
        blocks[:, 0] = 128
    numbers = gguf.quants.dequantize(data, gguf.GGMLQuantizationType(dtype.ggml)).reshape(rows, columns)
    assert (numbers == np.rint(numbers)).all()
    return Tensor(dtype, (rows, columns), Held(data.tobytes())), numbers.astype(np.int64)


def whole_rows(rows, columns):
    """Rows of whole numbers that rounding leaves alone: 127 is the largest of each run."""
    rng = np.random.default_rng(1)
    x = rng.integers(-3, 4, (rows, columns // 32, 32))
    x[:, :, 5] = 127 * rng.choice([-1, 1], x.shape[:2])
    return x.reshape(rows, columns)


def linear(tensor, **options):
    graph = Graph()
    x = graph.values["x"] = Value("x", F32, ("n", tensor.shape[1]))
    value = graph.values["weight"] = Value("weight", tensor.dtype, tensor.shape)
    graph.inputs, graph.weights["weight"] = [x], tensor
    build = Builder(graph)
    graph.outputs = [build.add("MatMul", [x, build.add("Transpose", [value], {"perm": [1, 0]})])]
    return Session(graph, native=True, activations="q8", **options)


def test_every_type_of_codes_is_tested():
    assert set(ONES) == set(codes()) <= {dtype.name for dtype in codecs()}


@pytest.mark.parametrize("name", WHOLE)
def test_whole_numbers_are_multiplied_exactly(name):
    tensor, numbers = whole_weight(name, 75, 256)
    session = linear(tensor)
    for rows in (5, 9, 11, 12, 27):
        x = whole_rows(rows, 256)
        np.testing.assert_array_equal(session.run(None, {"x": x.astype(np.float32)})[0], (x @ numbers.T).astype(np.float32))


@pytest.mark.parametrize(("rows", "count", "columns"), [(9, 31, 1056), (800, 33, 64), (40, 256, 32)])
def test_many_rows_and_long_rows(rows, count, columns):
    if not WHOLE:
        pytest.skip("this processor does not multiply bytes")
    tensor, numbers = whole_weight("q8_0", count, columns)
    x = whole_rows(rows, columns)
    one, three = (linear(tensor, threads=threads).run(None, {"x": x.astype(np.float32)})[0] for threads in (1, 3))
    np.testing.assert_array_equal(one, (x @ numbers.T).astype(np.float32))
    np.testing.assert_array_equal(three, one)
