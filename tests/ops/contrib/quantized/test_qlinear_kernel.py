"""Native operators on codes: sums, products, concatenations and functions of bytes, and the largest of bytes, as NumPy
and onnxruntime say."""

import numpy as np
import onnxruntime
import pytest
from candle_convert.runtime.ir.op import Example
from candle_convert.runtime.ir.registry import operator
from candle_convert.tests.builders.single_node import ONNXRUNTIME_OPSET, model
from candle_convert.tests.oracles.native_vs_numpy import natively

TYPES = [np.uint8, np.int8]
CONTRIB = "com.microsoft"


def codes(dtype, *shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8).view(dtype)


def alike(name, inputs, attributes, constant, domain=CONTRIB, opset=None):
    """The native result is NumPy's and onnxruntime's, to the bit."""
    example = Example(tuple(map(np.asarray, inputs)), attributes)
    found = natively(name, example, opset, domain, rtol=0, atol=0, constant=constant)
    made, feeds = model(operator(name, domain), example, opset)
    made.ir_version = 10
    for imported in made.opset_import:
        imported.version = min(imported.version, ONNXRUNTIME_OPSET)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    expected = onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(
        None, feeds
    )
    np.testing.assert_array_equal(found[0], expected[0])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", ["QLinearAdd", "QLinearMul"])
def test_all_pairs_of_codes(name, dtype):
    one, other = (grid.reshape(-1).astype(np.uint8).view(dtype) for grid in np.meshgrid(np.arange(256), np.arange(256)))
    rng = np.random.default_rng(3)
    for _ in range(3):
        steps, zeros = rng.uniform(0.01, 0.2, 3).astype(np.float32), codes(dtype, 3, seed=rng.integers(100))
        alike(
            name,
            (one[5:], steps[0], zeros[0], other[5:], steps[1], zeros[1], steps[2], zeros[2]),
            {},
            [1, 2, 4, 5, 6, 7],
        )


@pytest.mark.parametrize("name", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize("shape", [(2, 5, 7, 9), (5, 1, 1), (1, 1, 1, 9), (1,), (2, 5, 1, 1), (1, 5, 7, 9)])
def test_factors_that_repeat(name, shape):
    a, b = codes(np.uint8, 2, 5, 7, 9), codes(np.uint8, *shape, seed=1)
    rest = np.float32(0.07), np.uint8(9), np.float32(0.11), np.uint8(20)
    alike(name, (a, np.float32(0.1), np.uint8(3), b, *rest), {}, [1, 2, 4, 5, 6, 7])
    alike(name, (b, np.float32(0.1), np.uint8(3), a, *rest), {}, [1, 2, 4, 5, 6, 7])


@pytest.mark.parametrize("name", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize("dtype", TYPES)
def test_long_rows_beside_one_byte(name, dtype):
    a, b = codes(dtype, 2, 3, 83, 61), codes(dtype, 2, 3, 1, 1, seed=1)
    rest = np.float32(0.07), dtype(9), np.float32(0.11), dtype(20)
    alike(name, (a, np.float32(0.1), dtype(3), b, *rest), {}, [1, 2, 4, 5, 6, 7])
    alike(name, (b, np.float32(0.1), dtype(3), a, *rest), {}, [1, 2, 4, 5, 6, 7])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(2, 5, 7, 9), (1, 3, 112, 90), (3, 4, 200)])
def test_averages(dtype, shape):
    x, scales = codes(dtype, *shape), (np.float32(0.1), np.float32(0.003))
    inputs = tuple(map(np.asarray, (x, scales[0], dtype(3), scales[1], dtype(20))))
    (found,) = natively(
        "QLinearGlobalAveragePool", Example(inputs, {}), None, CONTRIB, rtol=0, atol=1, constant=[1, 2, 3, 4]
    )
    mean = (x.astype(np.float64) - 3).mean(tuple(range(2, x.ndim)), keepdims=True) * 0.1 / 0.003 + 20
    info = np.iinfo(dtype)
    assert np.abs(found - np.clip(mean, info.min, info.max)).max() <= 0.501


@pytest.mark.parametrize("dtype", TYPES)
def test_tables(dtype):
    a, one, other = codes(dtype, 2, 5, 7), (np.float32(0.1), dtype(3)), (np.float32(0.07), dtype(9))
    alike("QLinearConcat", (*other, a, *one, a[:, :2], *other), {"axis": 1}, [0, 1, 3, 4, 6, 7])
    alike("QLinearSigmoid", (a, *one, np.float32(0.004), dtype(0)), {}, [1, 2, 3, 4])
    alike("QLinearLeakyRelu", (a, *one, *other), {"alpha": 0.3}, [1, 2, 3, 4])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("attributes", [
    {"kernel_shape": [3, 3], "strides": [2, 2]}, {"kernel_shape": [3, 2], "pads": [1, 1, 1, 0]},
    {"kernel_shape": [2, 3], "strides": [2, 3], "dilations": [2, 1]},
    {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1, "pads": [1, 1, 1, 1]},
])  # fmt: skip
def test_largest(dtype, attributes):
    alike("MaxPool", (codes(dtype, 2, 5, 17, 39),), attributes, [], "", 17)
