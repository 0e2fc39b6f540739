"""Data sets of files that are there are those that Keras reads; nothing is downloaded."""

import gzip
import os

import candle_convert as cc
import numpy as np
import pytest
from candle_convert import keras as ours
from candle_convert.tests.oracles.real_keras import keras as keras

RNG = np.random.default_rng(0)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of Keras for both libraries."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".keras" / "datasets" / "fashion-mnist").mkdir(parents=True)
    return tmp_path / ".keras" / "datasets"


def same(found, expected):
    for mine, theirs in zip(found, expected, strict=True):
        for one, other in zip(mine, theirs, strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)


def test_mnist(tmp_path):
    digits = RNG.integers(0, 256, (7, 28, 28), np.uint8)
    classes = np.arange(7, dtype=np.uint8)
    arrays = {"x_train": digits[:5], "y_train": classes[:5], "x_test": digits[5:], "y_test": classes[5:]}
    np.savez(tmp_path / "mnist.npz", **arrays)
    (x, y), (x_test, y_test) = ours.datasets.mnist.load_data(tmp_path / "mnist.npz")
    for name, each in zip(arrays, (x, y, x_test, y_test), strict=True):
        np.testing.assert_array_equal(each, arrays[name])


def test_a_missing_file_is_not_downloaded(folder):
    with pytest.raises(cc.Error, match=r"Download https://.*mnist\.npz to .*datasets"):
        ours.datasets.mnist.load_data()
    (folder / "mnist.npz").write_bytes(b"PK")
    with pytest.raises(cc.Error, match="not an npz file"):
        ours.datasets.mnist.load_data()
    np.savez(folder / "mnist.npz", x_train=np.array([{}], object))
    with pytest.raises(cc.Error, match="not an npz file"):
        ours.datasets.mnist.load_data()


def test_fashion_mnist(folder):
    expected = []
    for name, count in (("train", 4), ("t10k", 3)):
        x, y = RNG.integers(0, 256, (count, 28, 28), np.uint8), RNG.integers(0, 10, count, np.uint8)
        expected.append((x, y))
        for kind, header, each in (("images-idx3", 16, x), ("labels-idx1", 8, y)):
            content = gzip.compress(bytes(header) + each.tobytes())
            (folder / "fashion-mnist" / f"{name}-{kind}-ubyte.gz").write_bytes(content)
    same(ours.datasets.fashion_mnist.load_data(), expected)
    (folder / "fashion-mnist" / "train-labels-idx1-ubyte.gz").write_bytes(b"none")
    with pytest.raises(cc.Error, match="not an IDX file"):
        ours.datasets.fashion_mnist.load_data()


@pytest.mark.parametrize("name", ["boston_housing", "california_housing"])
def test_rows_are_in_keras_order(name, tmp_path, monkeypatch):
    from keras.src.datasets import boston_housing, california_housing

    path = os.fspath(tmp_path / f"{name}.npz")
    np.savez(path, x=RNG.normal(size=(50, 4)).astype(np.float32), y=RNG.normal(size=50).astype(np.float32))
    module = {"boston_housing": boston_housing, "california_housing": california_housing}[name]
    monkeypatch.setattr(module, "get_file", lambda *arguments, **options: path)
    options = {"test_split": 0.3, "seed": 5}
    same(getattr(ours.datasets, name).load_data(path=path, **options), module.load_data(path=path, **options))
