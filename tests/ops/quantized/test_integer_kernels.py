"""Native products of bytes: exactly the NumPy functions' integers, with VNNI and without; quantizing and back."""

import numpy as np
import pytest
from candle_convert.ops.quantized import conv_integer_kernel, matmul_integer_kernel
from candle_convert.runtime.ir.op import Example
from candle_convert.runtime.jit import isa
from candle_convert.tests.oracles.native_vs_numpy import natively

TYPES = [np.uint8, np.int8]


def whole(rng, dtype, *shape):
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max + 1, shape).astype(dtype)


def way_of(path):
    """The name of a way if the processor has the instructions; tiles are emulated otherwise, and AVX-VNNI's are also
    among those of AVX-512."""
    variants = dict(isa.INTEGERS.variants)
    narrow = {"avx512vnni", "avx512vl"} if path == "AVX-VNNI" else variants[path]
    if variants[path] <= isa.features() or narrow <= isa.features():
        return path
    if path != "AMX":
        pytest.skip("the processor has no such instructions")
    return "emulated"


@pytest.fixture(params=dict(isa.INTEGERS.variants))
def path(request, monkeypatch):
    """Each way to multiply bytes that the processor has."""
    way = way_of(request.param)
    monkeypatch.setattr(
        matmul_integer_kernel.product,
        "__defaults__",
        (matmul_integer_kernel.product_by(way), matmul_integer_kernel.column_product_by(way)),
    )
    monkeypatch.setattr(
        conv_integer_kernel.launch_convolution, "__defaults__", (conv_integer_kernel.window_kernel(way), way)
    )


@pytest.mark.parametrize("left", TYPES)
@pytest.mark.parametrize("right", TYPES)
@pytest.mark.parametrize(
    ("rows", "depth", "columns"), [(1, 1, 1), (3, 7, 33), (130, 70, 31), (17, 128, 96), (107, 200, 1)]
)
def test_matmul_integer(path, left, right, rows, depth, columns):
    rng = np.random.default_rng(rows)
    a, b = whole(rng, left, rows, depth), whole(rng, right, depth, columns)
    natively("MatMulInteger", Example((a, b), {}), 21, rtol=0, atol=0, constant=[1])
    natively(
        "MatMulInteger",
        Example((a, b, whole(rng, left), whole(rng, right, columns)), {}),
        21,
        rtol=0,
        atol=0,
        constant=[1, 3],
    )


@pytest.mark.parametrize("left", TYPES)
@pytest.mark.parametrize("right", TYPES)
def test_qlinear_matmul(path, left, right):
    rng = np.random.default_rng(1)
    a, b = whole(rng, left, 2, 30, 50), whole(rng, right, 50, 40)
    scales = rng.uniform(0.01, 0.1, 40).astype(np.float32)
    inputs = (
        a,
        np.float32(0.03),
        whole(rng, left),
        b,
        scales,
        whole(rng, right, 40),
        np.float32(1.1),
        whole(rng, left),
    )
    natively("QLinearMatMul", Example(tuple(map(np.asarray, inputs)), {}), 21, rtol=0, atol=0, constant=[3, 4, 5])


def test_products_with_real_results(path):
    rng = np.random.default_rng(2)
    b, scales, bias = (
        whole(rng, np.int8, 50, 40),
        rng.uniform(0.01, 0.1, 40).astype(np.float32),
        rng.normal(size=40).astype(np.float32),
    )
    a = rng.normal(size=(3, 20, 50)).astype(np.float32)
    zeros = whole(rng, np.int8, 40)
    natively(
        "DynamicQuantizeMatMul",
        Example((a, b, scales, zeros, bias), {}),
        None,
        "com.microsoft",
        rtol=1e-6,
        atol=1e-5,
        constant=[1, 2, 3, 4],
    )
    inputs = (whole(rng, np.uint8, 20, 50), b, np.float32(0.1), scales, np.uint8(7), zeros, bias)
    example = Example(tuple(map(np.asarray, inputs)), {})
    natively("MatMulIntegerToFloat", example, None, "com.microsoft", rtol=1e-6, atol=1e-5, constant=[1, 3, 5, 6])


@pytest.mark.parametrize("back", [True, False])
def test_qgemm(path, back):
    rng = np.random.default_rng(3)
    inputs = [
        whole(rng, np.uint8, 20, 50),
        np.float32(0.1),
        np.uint8(20),
        whole(rng, np.int8, 40, 50),
        np.float32(0.05),
        np.int8(3),
    ]
    inputs += [rng.integers(-900, 900, 40).astype(np.int32), *([np.float32(9), np.uint8(100)] if back else [])]
    example = Example(tuple(map(np.asarray, inputs)), {"transB": 1, "alpha": 0.7})
    natively("QGemm", example, None, "com.microsoft", rtol=1e-6, atol=1e-6, constant=[3, 4, 5, 6])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_quantize_and_dequantize(dtype, axis):
    rng = np.random.default_rng(4)
    x = rng.normal(0, 3, (5, 70, 9)).astype(np.float32)
    x[0, 0, :3] = np.nan, np.inf, -np.inf
    shape = () if axis is None else (x.shape[axis],)
    scale, zero = np.asarray(rng.uniform(0.01, 0.1, shape)).astype(np.float32), whole(rng, dtype, *shape)
    attributes = {} if axis is None else {"axis": axis}
    natively("QuantizeLinear", Example((x, scale, zero), attributes), 21, rtol=0, atol=0)
    natively("DequantizeLinear", Example((whole(rng, dtype, 5, 70, 9), scale, zero), attributes), 21, rtol=0, atol=0)
    counts = rng.integers(-(2**31), 2**31, (5, 70, 9)).astype(np.int32)
    natively("DequantizeLinear", Example((counts, scale), attributes), 21, rtol=0, atol=0)


@pytest.mark.parametrize(
    "x", [np.zeros(40), np.linspace(-3, 9, 50000), np.linspace(1, 2, 77), -np.ones(5), np.array([1, np.nan, 3])]
)
def test_dynamic_quantize_linear(x):
    natively("DynamicQuantizeLinear", Example((x.astype(np.float32),), {}, 3), 21, rtol=0, atol=0)


def windows(rng, left, right):
    """A convolution of bytes: input, kernel, attributes."""
    spatial, groups = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    channels, outputs = int(rng.choice([1, 1, 3, 4, 9])), int(rng.integers(1, 20))
    kernel, strides, dilations = ([int(item) for item in rng.integers(1, most, spatial)] for most in (4, 3, 3))
    sizes = [
        int(rng.integers((length - 1) * step + 1, 40 if spatial < 3 else 9))
        for length, step in zip(kernel, dilations, strict=True)
    ]
    pads = [int(item) for item in rng.integers(0, 2, 2 * spatial)]
    attributes = {"group": groups, "strides": strides, "dilations": dilations, "pads": pads}
    return (
        whole(rng, left, 2, groups * channels, *sizes),
        whole(rng, right, groups * outputs, channels, *kernel),
        attributes,
    )


@pytest.mark.parametrize("left", TYPES)
@pytest.mark.parametrize("right", TYPES)
def test_convolutions(left, right, path):
    rng = np.random.default_rng(5)
    for _ in range(6):
        x, w, attributes = windows(rng, left, right)
        natively("ConvInteger", Example((x, w), attributes), 21, rtol=0, atol=0, constant=[1])
        zeros = whole(rng, right, len(w))
        natively(
            "ConvInteger", Example((x, w, whole(rng, left), zeros), attributes), 21, rtol=0, atol=0, constant=[1, 3]
        )
        scales, bias = (
            rng.uniform(0.001, 0.01, len(w)).astype(np.float32),
            rng.integers(-999, 999, len(w)).astype(np.int32),
        )
        inputs = (x, np.float32(0.03), whole(rng, left), w, scales, zeros, np.float32(0.2), whole(rng, left), bias)
        natively(
            "QLinearConv", Example(tuple(map(np.asarray, inputs)), attributes), 21, rtol=0, atol=0, constant=[3, 4, 5]
        )


@pytest.mark.parametrize("left", TYPES)
@pytest.mark.parametrize("right", TYPES)
@pytest.mark.parametrize(
    ("x", "w", "attributes"),
    [
        ((2, 9, 11, 13), (64, 9, 3, 3), {"pads": [1, 1, 1, 1]}),
        ((1, 16, 20, 30), (62, 16, 1, 1), {}),
        ((2, 10, 7, 7), (64, 5, 1, 1), {"group": 2}),
        ((1, 3, 33, 41), (32, 3, 5, 5), {"strides": [2, 2], "pads": [2, 2, 2, 2]}),
        ((1, 6, 3, 500), (31, 6, 2, 3), {"dilations": [1, 2]}),
        ((1, 5, 4, 5, 6), (32, 5, 2, 2, 2), {"strides": [1, 2, 1]}),
        ((1, 4, 25), (30, 4, 3), {"strides": [2]}),
    ],
)
def test_convolutions_that_read_windows_where_they_are(monkeypatch, left, right, x, w, attributes):
    monkeypatch.setattr(conv_integer_kernel, "is_faster", lambda outputs, quads, lengths: True)
    rng = np.random.default_rng(7)
    scales, bias = rng.uniform(0.0005, 0.002, w[0]).astype(np.float32), rng.integers(-999, 999, w[0]).astype(np.int32)
    zeros = np.full(w[0], 128 if right is np.uint8 else 0, right)
    inputs = (
        whole(rng, left, *x),
        np.float32(0.03),
        whole(rng, left),
        whole(rng, right, *w),
        scales,
        zeros,
        np.float32(0.2),
        whole(rng, left),
        bias,
    )
    natively("QLinearConv", Example(tuple(map(np.asarray, inputs)), attributes), 21, rtol=0, atol=0, constant=[3, 4, 5])


@pytest.mark.parametrize(
    ("x", "w", "attributes"),
    [
        ((2, 9, 11, 13), (37, 9, 3, 3), {"pads": [1, 1, 1, 1]}),
        ((1, 69, 7, 7), (40, 69, 1, 1), {}),
        ((1, 3, 33, 41), (16, 3, 5, 5), {"strides": [2, 2], "pads": [2, 1, 2, 2]}),
        ((2, 30, 9, 8), (34, 15, 3, 2), {"group": 2, "dilations": [2, 3], "pads": [0, 1, 1, 0]}),
        ((1, 6, 3, 700), (33, 6, 2, 3), {"strides": [1, 3]}),
        ((1, 6, 3, 540), (3, 6, 1, 1), {}),
        ((1, 5, 40, 30), (20, 5, 1, 1), {"strides": [2, 1]}),
        ((1, 4, 600), (30, 4, 3), {"strides": [2]}),
        ((1, 15, 1, 1), (50, 15, 1, 1), {}),
    ],
)
def test_convolutions_by_tiles(monkeypatch, x, w, attributes):
    others = conv_integer_kernel.launch_convolution.__defaults__[:-1]
    monkeypatch.setattr(conv_integer_kernel.launch_convolution, "__defaults__", (*others, way_of("AMX")))
    rng = np.random.default_rng(11)
    scales = rng.uniform(0.0005, 0.002, w[0]).astype(np.float32)
    bias, table = rng.integers(-999, 999, w[0]).astype(np.int32), whole(rng, np.uint8, 256)
    for left, right in zip(TYPES, TYPES[::-1], strict=True):
        zeros = np.full(w[0], 128 if right is np.uint8 else 0, right)
        inputs = (whole(rng, left, *x), np.float32(0.03), whole(rng, left), whole(rng, right, *w), scales)
        inputs = tuple(map(np.asarray, (*inputs, zeros, np.float32(0.2), whole(rng, left), bias)))
        natively("QLinearConv", Example(inputs, attributes), 21, rtol=0, atol=0, constant=[3, 4, 5])
        looked_up = Example((*inputs, table), attributes)
        natively("QLinearConvLookup", looked_up, 1, "candle", rtol=0, atol=0, constant=range(1, 10))


DEPTHWISE = [
    ((2, 5, 7, 7), (5, 5), {"pads": [2, 2, 2, 2]}),
    ((1, 6, 14, 14), (3, 3), {"pads": [1, 1, 1, 1]}),
    ((1, 4, 9, 8), (3, 5), {"pads": [0, 2, 2, 2]}),
    ((1, 3, 112, 96), (3, 3), {"pads": [1, 1, 1, 1]}),
    ((1, 3, 57, 56), (7, 7), {"pads": [3, 3, 3, 3]}),
    ((2, 5, 1, 1), (3, 3), {"pads": [1, 1, 1, 1]}),
    ((1, 7, 5, 13), (3, 3), {"pads": [1, 1, 1, 1]}),
    ((1, 3, 5, 14), (3, 3), {"pads": [1, 1, 1, 1]}),
    ((1, 1, 6, 17), (3, 3), {}),
    ((1, 3, 31, 2), (5, 5), {"pads": [2, 2, 2, 2], "strides": [2, 2]}),
    ((1, 4, 33, 35), (5, 5), {"pads": [1, 2, 1, 2], "strides": [2, 2]}),
    ((2, 3, 15, 9), (3, 3), {"pads": [0, 0, 1, 1], "strides": [1, 2]}),
    ((1, 3, 9, 40), (2, 1), {"strides": [2, 1]}),
    ((1, 2, 300), (9,), {"pads": [4, 4]}),
    ((1, 2, 20, 70), (2, 3), {"dilations": [2, 3]}),
]
"""Input, kernel and attributes of depthwise convolutions."""


@pytest.mark.sampled(13)
@pytest.mark.parametrize("left", TYPES)
@pytest.mark.parametrize("right", TYPES)
@pytest.mark.parametrize(("x", "w", "attributes"), DEPTHWISE)
def test_depthwise_convolutions(path, left, right, x, w, attributes):
    rng = np.random.default_rng(9)
    outputs, attributes = 2 * x[1], {"group": x[1], **attributes}
    scales = rng.uniform(0.001, 0.02, outputs).astype(np.float32)
    bias = rng.integers(-999, 999, outputs).astype(np.int32)
    zeros, kernels = np.full(outputs, 128 if right is np.uint8 else 0, right), whole(rng, right, outputs, 1, *w)
    natively(
        "ConvInteger",
        Example((whole(rng, left, *x), kernels, whole(rng, left), zeros), attributes),
        21,
        rtol=0,
        atol=0,
        constant=[1, 3],
    )
    inputs = (
        whole(rng, left, *x),
        np.float32(0.03),
        whole(rng, left),
        kernels,
        scales,
        zeros,
        np.float32(0.2),
        whole(rng, left),
        bias,
    )
    for constant in ([3, 4, 5], list(range(1, 9))):
        natively(
            "QLinearConv", Example(tuple(map(np.asarray, inputs)), attributes), 21, rtol=0, atol=0, constant=constant
        )


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize(("sizes", "kernel"), [((9, 1), (3, 1)), ((9, 1), (5, 1)), ((7, 9, 1), (1, 3, 1))], ids=str)
def test_windows_along_an_axis_that_is_not_the_last(dtype, groups, sizes, kernel):
    """Axes of one element are left out of the windows, also behind others; kernels have them in their shape."""
    rng = np.random.default_rng(12)
    scales, zeros = rng.uniform(0.001, 0.02, 6).astype(np.float32), np.zeros(6, np.int8)
    x, w = whole(rng, dtype, 2, groups, *sizes), whole(rng, np.int8, 6, 1, *kernel)
    inputs = (x, np.float32(0.03), whole(rng, dtype), w, scales, zeros, np.float32(0.2), whole(rng, dtype))
    example = Example(tuple(map(np.asarray, inputs)), {"group": groups})
    natively("QLinearConv", example, 21, rtol=0, atol=0, constant=[3, 4, 5])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    ("shape", "attributes"),
    [
        ((2, 3, 9, 7), {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
        ((1, 4, 12, 35), {"kernel_shape": [3, 3], "strides": [2, 2]}),
        ((1, 2, 8, 131), {"kernel_shape": [2, 4], "strides": [1, 2], "pads": [0, 1, 1, 2]}),
        ((1, 2, 150), {"kernel_shape": [5], "strides": [3]}),
        ((1, 2, 20, 70), {"kernel_shape": [2, 3], "dilations": [2, 3]}),
        ((1, 1, 6, 66), {"kernel_shape": [2, 2], "strides": [2, 2]}),
    ],
)
def test_largest_bytes(dtype, shape, attributes):
    natively("MaxPool", Example((whole(np.random.default_rng(6), dtype, *shape),), attributes), 22, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("count", [1, 63, 64, 130, 9000])
def test_lookup_of_bytes(dtype, count):
    rng = np.random.default_rng(count)
    x, table = whole(rng, dtype, 2, count), whole(rng, TYPES[count % 2], 256)
    (found,) = natively("LookupBytes", Example((x, table), {}), 1, "candle", rtol=0, atol=0, constant=[1])
    np.testing.assert_array_equal(found, [[table[code % 256] for code in row] for row in x.astype(int)])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    ("x", "w", "attributes"),
    [
        ((1, 6, 7, 7), (6, 1, 3, 3), {"group": 6, "pads": [1, 1, 1, 1]}),
        ((1, 6, 20, 35), (6, 1, 3, 3), {"group": 6, "strides": [2, 2]}),
        ((1, 6, 9, 9), (6, 1, 3, 3), {"group": 6, "dilations": [2, 2]}),
        ((2, 20, 9, 7), (64, 20, 3, 3), {"pads": [1, 1, 1, 1]}),
        ((1, 5, 11, 7), (9, 5, 1, 1), {}),
    ],
)
def test_convolutions_with_tables(dtype, x, w, attributes):
    rng = np.random.default_rng(8)
    scales = rng.uniform(0.002, 0.005, w[0]).astype(np.float32)
    inputs = (whole(rng, dtype, *x), np.float32(0.03), whole(rng, dtype), whole(rng, np.int8, *w), scales)
    results = (np.zeros(w[0], np.int8), np.float32(0.2), whole(rng, dtype), rng.integers(-9, 9, w[0]).astype(np.int32))
    example = Example((*map(np.asarray, (*inputs, *results)), whole(rng, np.uint8, 256)), attributes)
    natively("QLinearConvLookup", example, 1, "candle", rtol=0, atol=0, constant=range(1, 10))
