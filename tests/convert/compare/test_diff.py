"""Comparing models: the numbers are numpy's, every status is reached, and chunks of any cut give the same answer."""

import math

import candle_convert as cc
import ml_dtypes
import numpy as np
import pytest
from candle_convert.convert.inspect import tensor_distance, tensor_values
from candle_convert.convert.open.detect_format import formats
from candle_convert.runtime.ir.graph import Graph
from candle_convert.runtime.tensor.dtype import DTYPES
from candle_convert.runtime.tensor.storage import Held
from candle_convert.runtime.tensor.stored_tensor import StoredTensor

RANDOM = np.random.default_rng(5)
WRITABLE = [format for format in formats() if format.layout is not None and not (format.graphs or format.architecture)]


def graph(**arrays):
    """A graph of numpy arrays."""
    return Graph(weights={name: StoredTensor.of(np.asarray(array)) for name, array in arrays.items()})


def only(a, b, **options):
    """The row of the single tensor of both sides."""
    (row,) = cc.diff(graph(x=a), graph(x=b), **options)
    return row


A = RANDOM.standard_normal((40, 50)).astype(np.float32)
B = (A + RANDOM.standard_normal(A.shape) * 0.01).astype(np.float16)


@pytest.mark.parametrize("chunk", [64, 1000, 1 << 20])
def test_the_numbers_are_numpys(monkeypatch, chunk):
    monkeypatch.setattr(tensor_distance, "CHUNK", chunk)
    row = only(A, B, atol=0.02)
    a, b = A.astype(np.float64), B.astype(np.float64)
    assert row.max_abs == np.abs(a - b).max()
    assert row.max_rel == pytest.approx((np.abs(a - b) / np.abs(a)).max())
    assert row.mean_abs == pytest.approx(np.abs(a - b).mean())
    assert row.cosine == pytest.approx((a * b).sum() / np.linalg.norm(a) / np.linalg.norm(b))
    assert row.snr_db == pytest.approx(10 * math.log10((a**2).sum() / ((a - b) ** 2).sum()))
    assert row.different == (a != b).sum()
    assert row.distance.outside == (~np.isclose(a, b, rtol=0, atol=0.02)).sum()


def test_a_tolerance_decides_like_numpy():
    for atol, rtol in ((0, 0), (0.1, 0), (0, 10.0), (0.01, 0.01), (0.05, 0.001)):
        same = np.allclose(A.astype(float), B.astype(float), rtol=rtol, atol=atol)
        assert cc.diff(graph(x=A), graph(x=B), atol=atol, rtol=rtol).same == same


NAN, INF = math.nan, math.inf
STATUSES = [
    ([1.0, 2.0], [1.0, 2.0], {}, "equal"),
    ([0.0, 1.0], [-0.0, 1.0], {}, "equal"),
    ([NAN, INF, -INF], [NAN, INF, -INF], {}, "equal"),
    ([1.0, NAN], [1.0, 2.0], {"atol": 9.0}, "differs"),
    ([1.0, INF], [1.0, -INF], {"atol": 9.0}, "differs"),
    ([1.0, 2.0], [1.0, 2.5], {"atol": 0.5}, "close"),
    ([1.0, 2.0], [1.0, 2.5], {"atol": 0.4}, "differs"),
    ([1.0, 2.0], np.array([1.0, 2.0], ml_dtypes.bfloat16), {}, "dtype"),
    ([1.0, 2.0], np.array([1.0, 2.0], ml_dtypes.bfloat16), {"atol": 1e-9}, "equal"),
    ([1.0, 2.0], [[1.0, 2.0]], {}, "shape"),
    ([1.0, 2.0], [3.0, 2.0], {"values": False}, "not-compared"),
    ([1.0, 2.0], np.array([3, 4], np.int32), {"values": False}, "dtype"),
    (np.array([2**62 + 1]), np.array([2**62]), {}, "differs"),
    (np.array([2**64 - 1], np.uint64), np.array([-1]), {}, "differs"),
    (np.array([True, False]), np.array([1, 0], np.int8), {"atol": 1e-9}, "equal"),
    (np.array([1 + 2j]), np.array([1 - 2j]), {}, "differs"),
    (np.zeros((0, 3)), np.zeros((0, 3)), {}, "equal"),
    (3.0, 3.0, {}, "equal"),
    (np.array([1, -2, 7], ml_dtypes.int4)[:2], np.array([1, -2], ml_dtypes.int4), {}, "equal"),
]


@pytest.mark.parametrize(("a", "b", "options", "status"), STATUSES)
def test_statuses(a, b, options, status):
    row = only(a, b, **options)
    assert row.status == status
    assert cc.diff(graph(x=a), graph(x=b), **options).same == (status in ("equal", "close", "not-compared"))


def test_large_integers_are_compared_exactly():
    row = only(np.array([2**62 + 1, 5]), np.array([2**62, 5]))
    assert (row.max_abs, row.different) == (1.0, 1)
    assert only([0.0, 1.0], [-0.0, 1.0]).equal_bits is False


def test_quantized_weights_are_compared_as_numbers():
    dtype = DTYPES["q8_0"]
    blocks = np.concatenate([np.float16([0.5]).view(np.uint8), np.arange(32, dtype=np.uint8)])
    quantized = Graph(weights={"x": StoredTensor(dtype, (32,), Held(blocks.tobytes()))})
    assert cc.diff(quantized, quantized).rows[0].equal_bits
    (row,) = cc.diff(quantized, graph(x=np.arange(32, dtype=np.float32) / 2))
    assert (row.status, row.max_abs, row.snr_db) == ("dtype", 0.0, math.inf)
    assert cc.diff(quantized, graph(x=np.arange(32) / 2 + 0.25), atol=0.25).same


def test_names_can_be_chosen_and_renamed():
    a, b = graph(**{"model.x": [1.0], "model.y": [2.0], "extra": [0.0]}), graph(x=[1.0], y=[3.0], new=[0.0])
    found = cc.diff(a, b, rename=[(r"^model\.", "")])
    assert {row.name: row.status for row in found} == {"x": "equal", "y": "differs", "extra": "only-a", "new": "only-b"}
    assert cc.diff(a, b, rename=[(r"^model\.", "")], include=["^x$"]).same
    assert cc.diff(a, b, rename=[(r"^model\.", "")], exclude=["y", "extra", "new"]).same
    assert set(a.weights) == {"model.x", "model.y", "extra"}


def test_metadata_and_files_count_unless_left_out():
    a, b = graph(x=[1.0]), graph(x=[1.0])
    a.metadata, b.metadata = {"same": 1, "gone": "x", "ids": np.arange(3)}, {"same": 1, "ids": np.arange(1, 4)}
    a.attachments, b.attachments = (
        {"config.json": Held(b"{}"), "same": Held(b"1")},
        {"config.json": Held(b"[]"), "same": Held(b"1")},
    )
    found = cc.diff(a, b)
    assert [(change.name, change.status) for change in found.metadata] == [("gone", "only-a"), ("ids", "differs")]
    assert [(change.name, change.status) for change in found.files] == [("config.json", "differs")]
    assert not found.same
    assert cc.diff(a, b, metadata=False).same


@pytest.mark.parametrize("other", WRITABLE, ids=lambda format: format.name)
def test_a_model_equals_itself_in_every_format(tmp_path, other):
    arrays = {"a.weight": A, "b.bias": A[0].astype(np.float16)}
    cc.save_file(arrays, tmp_path / "a.safetensors")
    path = tmp_path / f"b{other.suffixes[0]}"
    cc.convert(tmp_path / "a.safetensors", path, to=other.name)
    found = cc.diff(tmp_path / "a.safetensors", path, metadata=False)
    assert found.same
    assert {row.name: (row.status, row.equal_bits) for row in found} == {
        "a.weight": ("equal", True),
        "b.bias": ("equal", True),
    }
    arrays["a.weight"] = A + 1
    cc.save_file(arrays, tmp_path / "a.safetensors")
    assert [row.name for row in cc.diff(tmp_path / "a.safetensors", path, metadata=False).differing] == ["a.weight"]


@pytest.mark.parametrize("shape", [(7,), (5, 6), (3, 4, 5), (2, 30, 3), (40, 3, 1), ()])
def test_parts_of_a_tensor_are_numpys_slices(monkeypatch, shape):
    monkeypatch.setattr(tensor_values, "CHUNK", 64)
    array = RANDOM.standard_normal(shape).astype(np.float32)
    tensor = StoredTensor.of(array)
    for _ in range(60):
        bounds = [
            [None if RANDOM.random() < 0.3 else int(RANDOM.integers(-n - 1, n + 2)) for _ in range(2)] for n in shape
        ]
        index = tuple(slice(*pair, int(RANDOM.choice([1, 1, 2, -1, -2, 3]))) for pair in bounds)
        found = [
            np.zeros(0, np.float32),
            *tensor_values.parts(tensor, [range(n)[at] for n, at in zip(shape, index, strict=True)]),
        ]
        assert np.array_equal(np.concatenate(found), array[index].reshape(-1))
