"""Passes over weights: selection, renaming, casts with their audits, tied names."""

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.runtime.ir.graph import Graph
from candle_convert.runtime.passes.precision.cast_weights import Cast
from candle_convert.runtime.passes.weights.select import Select
from candle_convert.runtime.passes.weights.tied import Tied
from candle_convert.runtime.tensor.stored_tensor import StoredTensor


def _graph(**arrays):
    return Graph(
        weights={name.replace("__", "."): StoredTensor.of(np.asarray(array)) for name, array in arrays.items()}
    )


def _numbers(count=3):
    return np.arange(count, dtype=np.float32)


@pytest.mark.parametrize(
    ("select", "names"),
    [
        (Select(), ["a.weight", "a.bias", "b.weight"]),
        (Select(include=("weight$",)), ["a.weight", "b.weight"]),
        (Select(exclude=("^a",)), ["b.weight"]),
        (Select(include=("a", "b"), exclude=("bias",)), ["a.weight", "b.weight"]),
        (Select(rename=((r"^a\.(.*)", r"x.\1"), ("weight", "w"))), ["x.w", "x.bias", "b.w"]),
        (Select(names=(("a.bias", "shift"),), rename=(("^a", "c"),)), ["c.weight", "shift", "b.weight"]),
    ],
)
def test_select(select, names):
    graph = _graph(a__weight=_numbers(), a__bias=_numbers(), b__weight=_numbers())
    changed = select.run(graph)
    assert list(graph.weights) == names
    assert changed == (names != ["a.weight", "a.bias", "b.weight"])


@pytest.mark.parametrize(
    ("select", "code"),
    [
        (Select(include=("zzz",)), "E-SELECT-NONE"),
        (Select(include=("(",)), "E-PATTERN"),
        (Select(rename=(("a", r"\9"),)), "E-PATTERN"),
        (Select(rename=(("^.*$", "same"),)), "E-SELECT-TWICE"),
        (Select(names=(("nothing", "x"),)), "E-SELECT-MAP"),
    ],
)
def test_select_refuses(select, code):
    with pytest.raises(cc.UsageError) as caught:
        select.run(_graph(a=_numbers(), b=_numbers()))
    assert caught.value.code == code


def _dtypes(graph):
    return {name: tensor.dtype.name for name, tensor in graph.weights.items()}


@pytest.mark.parametrize(
    ("cast", "dtypes"),
    [
        (Cast(), {"m": "f32", "v": "f32", "i": "i64"}),
        (Cast("f16"), {"m": "f16", "v": "f16", "i": "i64"}),
        (Cast("auto"), {"m": "bf16", "v": "f32", "i": "i64"}),
        (Cast("f16", (("^m$", "f32"), ("i", "i32"))), {"m": "f32", "v": "f16", "i": "i32"}),
    ],
)
def test_cast_chooses(cast, dtypes):
    graph = _graph(m=_numbers(4).reshape(2, 2), v=_numbers(), i=np.arange(3))
    cast.run(graph)
    assert _dtypes(graph) == dtypes


def test_auto_keeps_half_precision():
    graph = _graph(m=_numbers(4).reshape(2, 2).astype(np.float16), n=_numbers(4).reshape(2, 2))
    Cast("auto").run(graph)
    assert _dtypes(graph) == {"m": "f16", "n": "f16"}


@pytest.mark.parametrize("nan", ["error", "warn", "keep"])
def test_nan_policies(nan):
    values = _numbers(1000)
    values[700] = np.nan
    graph = _graph(x=values)
    cast = Cast("f16", nan=nan)
    cast.run(graph)
    if nan == "error":
        with pytest.raises(cc.FormatError, match="element 700"):
            graph["x"].raw()
    else:
        assert np.isnan(graph["x"].numpy()).sum() == cast.audits[0].nans == 1


@pytest.mark.parametrize(("dtype", "lost"), [("f16", 2), ("bf16", 0), ("f8_e4m3", 3), ("f32", 0)])
def test_overflows_are_counted_once(dtype, lost):
    graph = _graph(x=np.array([1.0, 70000.0, -1e30, np.inf, 500.0], np.float64))
    cast = Cast(dtype)
    cast.run(graph)
    for _ in range(2):
        for _ in graph["x"].chunks(8):
            pass
    assert cast.audits[0].overflows == lost


@pytest.mark.parametrize(("values", "dtype"), [([1, 2**31], "i32"), ([-1], "u8"), ([300], "i8")])
def test_integers_out_of_range_are_an_error(values, dtype):
    graph = _graph(x=np.array(values))
    Cast(rules=(("x", dtype),)).run(graph)
    with pytest.raises(cc.FormatError, match="E-CAST-RANGE"):
        graph["x"].raw()


@pytest.mark.parametrize(("values", "dtype"), [([1.5], "i32"), ([1j], "f32"), ([2], "bool"), ([1.0], "bool")])
def test_casts_that_change_the_meaning_are_refused(values, dtype):
    with pytest.raises(cc.UnsupportedError, match="E-CAST-KIND"):
        Cast(rules=(("x", dtype),)).run(_graph(x=np.array(values)))


def test_an_unknown_dtype_is_a_usage_error():
    with pytest.raises(cc.UsageError, match="E-DTYPE-NAME"):
        Cast("f17").run(_graph(x=_numbers()))


@pytest.mark.parametrize(("policy", "names"), [("clone", ["a", "b", "c"]), ("dedupe", ["a", "c"])])
def test_tied(tmp_path, policy, names):
    cc.save_file({"a": _numbers(), "c": _numbers()}, tmp_path / "x.safetensors")
    graph = cc.open(tmp_path / "x.safetensors")
    graph.weights = {"a": graph["a"], "b": graph["a"], "c": graph["c"]}
    assert Tied(policy).run(graph)
    assert list(graph.weights) == names
    assert [note.code for note in graph.notes] == ["W-TIED"]
    assert graph.metadata == ({"b": "a"} if policy == "dedupe" else {})
    graph.weights["b"] = graph["a"]
    with pytest.raises(cc.UnsafeFileError, match="E-TIED"):
        Tied("error").run(graph)
