"""Casts between all element types of ONNX: values, rounding, saturation, texts."""

import ml_dtypes
import numpy as np
import pytest
from candle_convert.ops.cast.conversion_rules import cast_to
from candle_convert.runtime.tensor.dtype import BY_ONNX, DTYPES, STRING

NAMES = [dtype.name for dtype in BY_ONNX.values() if not dtype.name.startswith("c")]


@pytest.mark.parametrize("source", NAMES)
def test_casts_between_all_types(source):
    """Small integers and halves go from any type to any other and come back as that type has them."""
    floats = np.array([0, 0.5, 1, 1.5], np.float32)
    whole = np.array([0, 1, 1, 1], np.float32)
    x = cast_to(floats, BY_ONNX[onnx_number(source)], round_mode="nearest")
    for name in NAMES:
        wanted = BY_ONNX[onnx_number(name)]
        got = cast_to(x, wanted)
        assert got.dtype == (np.dtype(object) if wanted is STRING else wanted.as_numpy())
        assert got.shape == (4,)
        expected = (
            whole
            if {"int", "uint", "bool"} & {wanted.kind, BY_ONNX[onnx_number(source)].kind}
            and "f8_e8m0" not in (name, source)
            else None
        )
        if expected is not None and name != "bool" and source not in ("bool", "string"):
            np.testing.assert_array_equal(cast_to(got, DTYPES["f32"])[:3], [0, 0, 1])


def onnx_number(name):
    return next(number for number, dtype in BY_ONNX.items() if dtype.name == name)


@pytest.mark.parametrize("name", ["f8_e4m3", "f8_e5m2", "f8_e4m3fnuz", "f8_e5m2fnuz"])
def test_casts_to_eight_bits_round_as_torch(name):
    import torch

    values = np.random.default_rng(5).normal(size=20000).astype(np.float32) * np.exp2(
        np.arange(20000) % 24 - 12
    ).astype(np.float32)
    theirs = torch.from_numpy(values).to(getattr(torch, DTYPES[name].torch)).float().numpy()
    ours = cast_to(values, DTYPES[name], saturate=False).astype(np.float32)
    inside = np.isfinite(theirs) & np.isfinite(ours)
    assert inside.mean() > 0.85
    np.testing.assert_array_equal(ours[inside], theirs[inside])
    largest = float(ml_dtypes.finfo(DTYPES[name].as_numpy()).max)
    saturated = cast_to(np.array([np.inf, -np.inf, np.nan, 1e9, -1e9], np.float32), DTYPES[name]).astype(np.float32)
    np.testing.assert_array_equal(saturated, [largest, -largest, np.nan, largest, -largest])


POWERS = [("up", [0, 1, 2, 2, 4]), ("down", [0, 1, 1, 1, 2]), ("nearest", [0, 1, 1, 2, 4])]


@pytest.mark.parametrize(("mode", "expected"), POWERS)
def test_casts_to_powers_of_two(mode, expected):
    got = cast_to(np.array([0, 1, 1.2, 1.5, 3.1], np.float32), DTYPES["f8_e8m0"], round_mode=mode).astype(np.float32)
    np.testing.assert_array_equal(got[1:], expected[1:])


TEXTS = [
    (["1", "-2.5", "+INF", "nan", "1e3"], "f32", [1, -2.5, np.inf, np.nan, 1000]),
    (["1", "-2", "300", "100.5"], "i32", [1, -2, 300, 100]),
    (["9223372036854775807", "-9223372036854775808"], "i64", [2**63 - 1, -(2**63)]),
    (["18446744073709551615"], "u64", [2**64 - 1]),
    (["3", "-1"], "i4", [3, -1]),
    (["0", "2"], "bool", [False, True]),
    (["0.3", "448"], "f8_e4m3", [0.3125, 448]),
]


@pytest.mark.parametrize(("texts", "name", "expected"), TEXTS, ids=[row[1] for row in TEXTS])
def test_casts_from_texts(texts, name, expected):
    got = cast_to(np.array(texts, object), DTYPES[name])
    assert got.dtype == DTYPES[name].as_numpy()
    np.testing.assert_array_equal(
        got.astype(object) if name == "u64" else got.astype(np.int64 if name == "i64" else np.float32), expected
    )


def test_casts_to_texts():
    assert cast_to(np.array([1.5, np.nan, np.inf, -np.inf], np.float32), STRING).tolist() == [
        "1.5",
        "NaN",
        "INF",
        "-INF",
    ]
    assert cast_to(np.array([-3, 7]), STRING).tolist() == ["-3", "7"]


def test_integers_out_of_range_keep_their_low_bits():
    assert cast_to(np.array([200, -1, 65537]), DTYPES["i8"]).tolist() == [-56, -1, 1]
    assert cast_to(np.array([17, -1]), DTYPES["u4"]).astype(int).tolist() == [1, 15]
