"""Quantization operators: old opsets, element types, saturation and exact sums against onnxruntime, the reference
evaluator and integers."""

import ml_dtypes
import numpy as np
import pytest
from candle_convert.ops.quantized.exact_integer_matmul import exact_matmul
from candle_convert.ops.quantized.quantize_linear import dequantize_linear, quantize_linear
from candle_convert.runtime.base.errors import FormatError
from candle_convert.runtime.ir.op import Example
from candle_convert.runtime.tensor.dtype import BY_ONNX
from candle_convert.tests.oracles.onnxruntime import compared, ours, single
from onnx.reference import ReferenceEvaluator

RNG = np.random.default_rng(5)
SPECIAL = np.array(
    [[0.5, 1.5, 2.5, -0.5, -2.5], [np.inf, -np.inf, 1e30, -1e30, 0.0], [300, -300, 127.5, -128.5, 254.5]], np.float32
)
OUTPUTS = [2, 3, 4, 5, 17, 18, 19, 20, 21, 22, 23, 25, 26]


def codes(kind, *shape):
    """Any of the integers."""
    return RNG.integers(np.iinfo(kind).min, np.iinfo(kind).max + 1, shape).astype(kind)


@pytest.mark.parametrize("opset", [10, 13, 19, 21, 23, 25])
@pytest.mark.parametrize("zero", [np.uint8(7), np.int8(-3)])
def test_quantize_and_dequantize_of_every_opset(opset, zero):
    for scale in [np.float32(1), np.float32(0.37)]:
        compared("QuantizeLinear", SPECIAL, scale, zero, opset=opset)
        compared("DequantizeLinear", RNG.integers(0, 100, (2, 5, 3)).astype(zero.dtype), scale, zero, opset=opset)
    compared("QuantizeLinear", SPECIAL, np.float32(0.9), opset=opset)


@pytest.mark.parametrize("opset", [13, 19, 21, 23])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("kind", [np.uint8, np.int8])
def test_one_scale_for_each_index(opset, axis, kind):
    x = RNG.normal(size=(3, 4, 5)).astype(np.float32)
    scale = RNG.uniform(0.01, 0.1, x.shape[axis]).astype(np.float32)
    zero = RNG.integers(0, 50, x.shape[axis]).astype(kind)
    (codes,) = compared("QuantizeLinear", x, scale, zero, opset=opset, axis=axis)
    compared("DequantizeLinear", codes, scale, zero, opset=opset, axis=axis)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("kind", [np.uint8, np.int8, np.uint16, np.int16])
def test_one_scale_for_each_block(axis, kind):
    x = RNG.normal(size=(4, 6, 5)).astype(np.float32)
    shape = list(x.shape)
    shape[axis] = -(-shape[axis] // 2)
    scale, zero = RNG.uniform(0.01, 0.1, shape).astype(np.float32), RNG.integers(0, 50, shape).astype(kind)
    (codes,) = compared("QuantizeLinear", x, scale, zero, opset=21, axis=axis, block_size=2)
    compared("DequantizeLinear", codes, scale, zero, opset=21, axis=axis, block_size=2)


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16, np.float32])
@pytest.mark.parametrize("number", OUTPUTS)
def test_every_element_type_against_the_reference(number, kind):
    x = np.concatenate([SPECIAL.ravel(), RNG.normal(size=301).astype(np.float32) * 20])
    with np.errstate(over="ignore"):
        x = x.astype(kind)
    scale = np.asarray(0.25, kind)
    for saturate in (0, 1) if 17 <= number <= 20 else (1,):
        made, feeds = single("QuantizeLinear", Example((x, scale), {"output_dtype": number, "saturate": saturate}))
        with np.errstate(all="ignore"):
            (expected,) = ReferenceEvaluator(made).run(None, feeds)
        (codes,) = ours(made, feeds)
        assert codes.dtype == expected.dtype == BY_ONNX[number].as_numpy()
        steady = slice(None) if 17 <= number <= 23 and number not in (21, 22) else np.abs(x.astype(np.float32)) < 1e6
        np.testing.assert_array_equal(codes[steady].astype(np.float32), expected[steady].astype(np.float32))
        made, feeds = single("DequantizeLinear", Example((codes, scale), {}))
        (expected,) = ReferenceEvaluator(made).run(None, feeds)
        np.testing.assert_array_equal(ours(made, feeds)[0].astype(np.float32), expected.astype(np.float32))


@pytest.mark.parametrize("number", [17, 18, 19, 20])
@pytest.mark.parametrize("saturate", [0, 1])
def test_small_floats_as_onnxruntime_has_them(number, saturate):
    zero = np.zeros((), BY_ONNX[number].as_numpy())
    (codes,) = compared(
        "QuantizeLinear",
        np.append(SPECIAL.ravel(), [1e5, -700, np.nan]).astype(np.float32),
        np.float32(0.7),
        zero,
        opset=19,
        saturate=saturate,
    )
    compared("DequantizeLinear", codes, np.float32(0.7), zero, opset=19)


def test_nan_becomes_the_lowest_value():
    for zero in (np.array(3, np.uint8), np.array(3, np.int8)):
        assert (
            quantize_linear.compute(np.array([np.nan], np.float32), np.float32(1), zero)[0] == np.iinfo(zero.dtype).min
        )


@pytest.mark.parametrize(
    "x",
    [
        RNG.normal(size=(3, 50)),
        RNG.uniform(1, 9, 40),
        -RNG.uniform(1, 9, 40),
        np.zeros(5),
        [2.5],
        [-1e-30, 0],
        np.zeros((0, 3)),
    ],
)
def test_dynamic_scales(x):
    x = np.asarray(x, np.float32)
    if x.size:
        compared("DynamicQuantizeLinear", x, opset=11, outputs=3)
    else:
        made, feeds = single("DynamicQuantizeLinear", Example((x,), {}, 3))
        assert [item.tolist() for item in ours(made, feeds)] == [[], 1.0, 0]


@pytest.mark.parametrize("left", [np.uint8, np.int8])
@pytest.mark.parametrize("right", [np.uint8, np.int8])
def test_products_of_integers(left, right):
    a, b = codes(left, 2, 7, 700), codes(right, 700, 9)
    for zero in (right(101), RNG.integers(0, 99, 9).astype(right)):
        (found,) = compared("MatMulInteger", a, b, left(100), zero, opset=10, constant=[1, 3])
        expected = (a.astype(np.int64) - 100) @ (b.astype(np.int64) - zero.astype(np.int64))
        np.testing.assert_array_equal(found, expected)
    (found,) = ours(*single("MatMulInteger", Example((a, b, RNG.integers(0, 99, 7).astype(left), right(9)), {})))
    assert found.dtype == np.int32
    made, feeds = single("MatMulInteger", Example((a[0], b, RNG.integers(0, 99, 7).astype(left), right(9)), {}))
    expected = (a[0].astype(np.int64) - feeds["x2"].astype(np.int64)[:, None]) @ (b.astype(np.int64) - 9)
    assert (ours(made, feeds)[0] == expected).all()


def test_sums_that_f32_cannot_hold_are_exact_and_wrap():
    for depth, largest in ((60000, 255), (500, 9000)):
        a, b = np.full((2, depth), largest, np.float32), np.full((depth, 3), largest - 1, np.float32)
        expected = (a.astype(np.int64) @ b.astype(np.int64)).astype(np.int32)
        assert (exact_matmul(a, b) == expected).all()
        assert (exact_matmul(a[0], b[:, 0]) == expected[0, 0]).all()


@pytest.mark.parametrize("x", [np.uint8, np.int8])
@pytest.mark.parametrize("w", [np.uint8, np.int8])
@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"pads": [1, 2, 0, 1], "strides": [2, 1]},
        {"group": 2, "dilations": [1, 2]},
        {"auto_pad": "SAME_UPPER", "strides": [2, 3]},
    ],
)
def test_quantized_convolutions(x, w, attributes):
    if x is np.int8 and w is np.uint8:
        return
    groups = attributes.get("group", 1)
    image, kernel = codes(x, 2, 4, 9, 8), codes(w, 6, 4 // groups, 3, 3)
    scales = RNG.uniform(0.01, 0.05, 6).astype(np.float32)
    bias = RNG.integers(-2000, 2000, 6).astype(np.int32)
    zero = np.full(6, 0 if w is np.int8 else 30, w)
    if w is np.int8:
        given = image, np.float32(0.1), x(20), kernel, scales, zero, np.float32(1.7), x(90), bias
        compared("QLinearConv", *given, opset=10, off=1, constant=range(1, 9), **attributes)
    given = image, np.float32(0.1), x(20), kernel, np.float32(0.03), zero[0], np.float32(1.7), x(90)
    compared("QLinearConv", *given, opset=10, off=1, constant=range(1, 8), **attributes)
    if x is np.uint8:
        compared("ConvInteger", image, kernel, x(0), zero[0], opset=10, constant=[1, 2, 3], **attributes)


def test_convolutions_that_f32_cannot_hold_are_exact():
    image, kernel = np.full((1, 300, 2, 2), 255, np.uint8), np.full((2, 300, 2, 2), 253, np.uint8)
    assert (ours(*single("ConvInteger", Example((image, kernel), {})))[0] == 1200 * 255 * 253).all()


@pytest.mark.parametrize(("left", "right"), [(np.uint8, np.uint8), (np.uint8, np.int8), (np.int8, np.int8)])
def test_quantized_products(left, right):
    a, b = codes(left, 3, 5, 40), codes(right, 40, 6)
    start, end = (np.float32(0.1), left(5)), (np.float32(9), left(70))
    given = a, *start, b, np.float32(0.05), right(60), *end
    compared("QLinearMatMul", *given, opset=10, off=1, constant=range(1, 8))
    scales = RNG.uniform(0.01, 0.1, 6).astype(np.float32)
    given = a, *start, b, scales, np.full(6, 60, right), *end
    compared("QLinearMatMul", *given, opset=21, off=1, constant=range(1, 8))


@pytest.mark.parametrize("scale", [np.ones(4, np.float32), np.ones((2, 3, 1), np.float32)])
def test_scales_that_do_not_fit_are_refused(scale):
    with pytest.raises(FormatError) as caught:
        dequantize_linear.compute(np.zeros((2, 3, 2), np.uint8), scale)
    assert caught.value.code == "E-OP-SHAPE"


def test_element_types_that_contradict_each_other_are_refused():
    with pytest.raises(FormatError):
        quantize_linear.compute(np.zeros(2, np.float32), np.float32(1), np.array(0, np.uint8), output_dtype=3)
    with pytest.raises(FormatError):
        dequantize_linear.compute(np.zeros(2, np.uint8), np.float32(1), np.array(0, np.int8))
