"""Models from files: weights that stay in the file, and what is said of files that are no model."""

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.convert.load.memory_map import mapped
from candle_convert.runtime.tensor.storage import Mapped, Region
from candle_convert.runtime.tensor.weight_array import load_weight


def test_weights_are_not_copied(tmp_path):
    big = np.random.default_rng(0).standard_normal((256, 256), np.float32)
    cc.save_file({"big": big, "half": big.astype(np.float16), "small": big[:2]}, tmp_path / "m.gguf")
    graph = mapped(cc.open(tmp_path / "m.gguf"))
    kinds = {name: type(tensor.storage) for name, tensor in graph.weights.items()}
    assert kinds == {"big": Mapped, "half": Mapped, "small": Region}
    whole = np.frombuffer(graph.weights["big"].storage.data, np.uint8)
    for name in ("big", "half"):
        array = load_weight(graph.weights[name])
        np.testing.assert_array_equal(array, big.astype(array.dtype))
    assert np.shares_memory(load_weight(graph.weights["big"]), whole)
    assert graph.weights["big"].storage.key == cc.open(tmp_path / "m.gguf").weights["big"].storage.key


def test_a_file_that_became_shorter_is_told(tmp_path):
    cc.save_file({"big": np.ones((256, 256), np.float32)}, tmp_path / "m.gguf")
    graph = cc.open(tmp_path / "m.gguf")
    with open(tmp_path / "m.gguf", "r+b") as file:
        file.truncate(1000)
    with pytest.raises(cc.FileAccessError, match="shorter"):
        mapped(graph)
