"""Printing tensors: slices, statistics and the text are numpy's, and only the rows asked for are read."""

import json

import candle_convert as cc
import ml_dtypes
import numpy as np
import pytest
from candle_convert.convert.cli.main import run
from candle_convert.convert.inspect import tensor_values
from candle_convert.convert.inspect.selection import select
from candle_convert.convert.inspect.statistics import statistics
from candle_convert.runtime.ir.graph import Graph
from candle_convert.runtime.tensor.dtype import F32
from candle_convert.runtime.tensor.storage import Derived
from candle_convert.runtime.tensor.stored_tensor import StoredTensor

RANDOM = np.random.default_rng(3)
W = RANDOM.standard_normal((12, 9, 40)).astype(np.float32)
ARRAYS = {
    "w": W,
    "scalar": np.float32(2.5),
    "bf16": W[0].astype(ml_dtypes.bfloat16),
    "ids": np.array([2**62 + 1, -3, 0]),
    "u8": np.arange(9, dtype=np.uint8),
    "f8": np.arange(8, dtype=np.float32).astype(ml_dtypes.float8_e4m3fn),
    "odd[0]": np.ones(3, np.float32),
    "special": np.array([np.nan, np.inf, -np.inf, 0, 1, -1], np.float32),
    "empty": np.zeros((0, 3), np.float32),
    "complex": np.array([3 + 4j, 0], np.complex64),
    "flags": np.array([True, False]),
}


@pytest.fixture
def path(tmp_path):
    cc.save_file(ARRAYS, tmp_path / "m.safetensors")
    return tmp_path / "m.safetensors"


SLICES = [
    "",
    "[0]",
    "[-1]",
    "[2:5]",
    "[::3]",
    "[::-2]",
    "[..., -1]",
    "[1:3,:5]",
    "[0,1,2]",
    "[:, 2:4, ::7]",
    "[5:2]",
    "[0, ..., 3]",
    "[...]",
]


@pytest.mark.parametrize("index", SLICES)
def test_slices_are_numpys(monkeypatch, index):
    monkeypatch.setattr(tensor_values, "CHUNK", 512)
    wanted = eval(f"W{index}") if index else W
    selection = select(Graph(weights={"w": StoredTensor.of(W)}), "w" + index)
    assert selection.shape == wanted.shape
    assert np.array_equal(selection.values(), wanted)


@pytest.mark.parametrize(
    "index",
    ["[12]", "[-13]", "[0,0,0,0]", "[..., ...]", "[::0]", "[a]", "[1:2:3:4]", "[99999999999999999999]", "[--1]"],
)
def test_slices_that_do_not_fit_are_refused(path, index):
    with pytest.raises(cc.UsageError):
        select(cc.open(path), "w" + index)
    assert run(["print", str(path), "w" + index]) == 2


@pytest.mark.parametrize("name", ["w", "w[3]", "bf16", "u8", "special", "w[..., ::3]", "complex"])
def test_statistics_are_numpys(monkeypatch, name):
    monkeypatch.setattr(tensor_values, "CHUNK", 256)
    selection = select(
        Graph(weights={name: StoredTensor.of(np.asarray(array)) for name, array in ARRAYS.items()}), name
    )
    values = selection.values()
    values = np.abs(values.astype(np.complex128)) if values.dtype.kind == "c" else values.astype(np.float64)
    finite, found = values[np.isfinite(values)], statistics(selection)
    assert (found.count, found.finite, found.nan) == (values.size, finite.size, np.isnan(values).sum())
    assert (found.inf, found.zeros) == (np.isinf(values).sum(), (values == 0).sum())
    assert (found.min, found.max) == (finite.min(), finite.max())
    assert (found.mean, found.std) == (pytest.approx(finite.mean()), pytest.approx(finite.std()))
    assert sum(found.counts) == finite.size
    assert np.abs(np.array(found.counts) - np.histogram(finite, len(found.counts))[0]).sum() <= 2


def test_large_integers_keep_their_ends():
    found = statistics(select(Graph(weights={"ids": StoredTensor.of(ARRAYS["ids"])}), "ids"))
    assert (found.min, found.max) == (-3, 2**62 + 1)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("name", ["w", "w[1]", "u8", "scalar", "empty", "flags"])
def test_text_is_numpys(path, capsys, monkeypatch, name, full):
    monkeypatch.setenv("COLUMNS", "75")
    assert run(["print", str(path), name, "--no-stats", *(["--full"] if full else [])]) == 0
    with np.printoptions(precision=4, threshold=10**9 if full else 1000):
        wanted = np.array2string(select(cc.open(path), name).values(), max_line_width=75)
    assert capsys.readouterr().out.split("\n", 1)[1].rstrip() == wanted


def test_only_the_rows_asked_for_are_read(monkeypatch):
    monkeypatch.setattr(tensor_values, "CHUNK", 1 << 12)
    reads = []

    def read(start, stop):
        reads.append((start, stop))
        return bytes(stop - start)

    graph = Graph(weights={"x": StoredTensor(F32, (10**9, 8), Derived(32 * 10**9, 4, read))})
    selection = select(graph, "x[500:600, :2]")
    assert statistics(selection).zeros == 200
    assert all(start >= 500 * 32 and stop <= 600 * 32 for start, stop in reads)
    reads.clear()
    assert select(graph, "x").edges(1000).shape == (7, 7)
    assert sum(stop - start for start, stop in reads) < 1 << 12
    with pytest.raises(cc.LimitError):
        select(graph, "x").values()


def test_a_name_with_brackets_is_a_name_first(path):
    assert select(cc.open(path), "odd[0]").shape == (3,)
    assert select(cc.open(path), "odd[0][1]").shape == ()
    with pytest.raises(cc.UsageError, match="Did you mean 'scalar'"):
        select(cc.open(path), "scaler")


@pytest.mark.parametrize("name", ARRAYS)
def test_saved_and_json_values_are_the_tensors(path, tmp_path, capsys, name):
    assert run(["print", str(path), name, "--save", str(tmp_path / "x.npy"), "--json", "--full"]) == 0
    printed = json.loads(capsys.readouterr().out, parse_constant=lambda text: pytest.fail(f"{text} is no JSON"))
    wanted = np.asarray(ARRAYS[name])
    assert np.array_equal(
        np.load(tmp_path / "x.npy"),
        wanted.astype(wanted.dtype if wanted.dtype.kind in "biufc" else np.float32),
        equal_nan=True,
    )
    found = np.array(printed["values"], np.int64 if wanted.dtype.kind in "iub" else float)
    if wanted.dtype.kind == "c":
        found = found.view(complex)[..., 0]
    assert np.array_equal(found.reshape(wanted.shape), wanted, equal_nan=wanted.dtype.kind == "f")
    assert run(["print", str(path), name, "--save", str(tmp_path / "x.npy")]) == 5
    assert sorted(file.name for file in tmp_path.iterdir()) == ["m.safetensors", "x.npy"]
