"""onnxruntime's quantized operators against onnxruntime."""

import numpy as np
import pytest
from candle_convert.runtime.base.errors import FormatError
from candle_convert.runtime.ir.op import Example
from candle_convert.tests.oracles.onnxruntime import compared, ours, single

RNG = np.random.default_rng(17)
MS = "com.microsoft"


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def codes(kind, *shape, low=0, high=120):
    return RNG.integers(low, high, shape).astype(kind)


def some_scales(*shape):
    return RNG.uniform(0.01, 0.05, shape).astype(np.float32)


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
def test_dynamic_products(kind):
    b, x = codes(kind, 40, 6), normal(2, 5, 40)
    close = {"domain": MS, "rtol": 1e-4, "atol": 1e-3}
    one, each = (np.float32(0.03), kind(60)), (some_scales(6), codes(kind, 6))
    compared("DynamicQuantizeMatMul", x, b, *one, normal(6), constant=[1, 2, 3], **close)
    compared("DynamicQuantizeMatMul", x, b, *each, constant=[1, 2, 3], **close)
    a, step = codes(np.uint8, 2, 5, 40, high=256), np.float32(0.1)
    for scale, zero, *bias in ((*one, normal(6)), each):
        given = a, b, step, scale, np.uint8(33), zero, *bias
        compared("MatMulIntegerToFloat", *given, constant=[1, 3, 5], **close)
    compared("MatMulIntegerToFloat", a, b, step, one[0], constant=[1, 3], **close)


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("transposed", [(0, 0), (1, 1), (0, 1)], ids=str)
def test_qgemm(kind, transposed):
    a = codes(np.uint8, *((9, 4) if transposed[0] else (4, 9)), high=256)
    info = np.iinfo(kind)
    b = codes(kind, *((6, 9) if transposed[1] else (9, 6)), low=info.min, high=info.max + 1)
    attributes = {"domain": MS, "transA": transposed[0], "transB": transposed[1], "rtol": 1e-4, "atol": 1e-3, "off": 1}
    attributes["constant"] = range(1, 9)
    given = a, np.float32(0.02), np.uint8(50), b
    bias = RNG.integers(-500, 500, 6).astype(np.int32)
    compared("QGemm", *given, np.float32(0.03), kind(40), bias, np.float32(0.1), np.uint8(100), alpha=0.6, **attributes)
    compared("QGemm", *given, some_scales(6), codes(kind, 6), bias[None], np.float32(0.1), np.uint8(100), **attributes)
    compared("QGemm", *given, np.float32(0.03), kind(40), **attributes)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("channels", [False, True])
@pytest.mark.parametrize(
    "options", [{}, {"input_forget": 1}, {"clip": 0.4}, {"activations": ["HardSigmoid", "Softsign", "Relu"]}], ids=str
)
def test_dynamic_lstm(direction, kind, channels, options):
    count = 2 if direction == "bidirectional" else 1
    if channels and kind is np.uint8:
        return
    low = 0 if kind is np.uint8 else -100
    w, r = codes(kind, count, 7, 20, low=low), codes(kind, count, 5, 20, low=low)
    shape = (count, 20) if channels else (count,)
    zeros = [np.zeros(shape, kind)] * 2 if channels else [codes(kind, count, high=60), codes(kind, count, high=60)]
    options = {key: value * count if isinstance(value, list) else value for key, value in options.items()}
    factors = some_scales(*shape), zeros[0], some_scales(*shape), zeros[1]
    states = normal(count, 3, 5), normal(count, 3, 5)
    close = {
        "domain": MS,
        "hidden_size": 5,
        "direction": direction,
        "outputs": 3,
        "rtol": 2e-3,
        "atol": 2e-3,
        "constant": [1, 2, 8, 9, 10, 11],
        **options,
    }
    compared("DynamicQuantizeLSTM", normal(6, 3, 7), w, r, normal(count, 40), None, *states, None, *factors, **close)
    if "input_forget" not in options:
        compared(
            "DynamicQuantizeLSTM",
            normal(6, 3, 7),
            w,
            r,
            normal(count, 40),
            None,
            None,
            None,
            normal(count, 15),
            *factors,
            **close,
        )


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zeros", [False, True])
def test_tables_of_bytes(bits, zeros):
    each = 8 // bits
    data, scales = codes(np.uint8, 9, 64 // each, high=256), some_scales(9, 4)
    zero = codes(np.uint8, 9, -(-4 // each), high=256) if zeros else None
    indices = np.array([[0, 8, -1], [3, 4, -9]])
    compared(
        "GatherBlockQuantized",
        data,
        indices,
        scales,
        zero,
        domain=MS,
        bits=bits,
        block_size=16,
        quantize_axis=1,
        gather_axis=0,
    )


def test_indices_that_do_not_exist_give_zeros():
    data, scales = codes(np.uint8, 9, 32), some_scales(9, 2)
    attributes = {"bits": 8, "block_size": 16}
    (found,) = ours(
        *single("GatherBlockQuantized", Example((data, np.array([9, 0, -10]), scales), attributes), domain=MS)
    )
    assert (found[[0, 2]] == 0).all()
    assert (found[1] != 0).any()
    with pytest.raises(FormatError):
        ours(*single("GatherBlockQuantized", Example((data, np.array([0]), some_scales(9, 3)), attributes), domain=MS))
