"""Models from files: weights that stay in the file, and what is said of files that are no model."""

from pathlib import Path

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.convert.load.memory_map import mapped
from candle_convert.runtime.tensor.storage import Mapped, Region
from candle_convert.runtime.tensor.weight_array import load_weight, release_pages
from safetensors.numpy import save_file


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


def test_weights_that_lie_as_their_dtype_needs_are_not_copied(tmp_path):
    big = np.random.default_rng(0).standard_normal((256, 256), np.float32)
    save_file({"a": big[0, :1].copy(), "big": big}, tmp_path / "m.safetensors")
    weight = cc.open(tmp_path / "m.safetensors").weights["big"]
    assert weight.storage.offset % 8 == 4
    tensor = mapped(cc.open(tmp_path / "m.safetensors")).weights["big"]
    assert isinstance(tensor.storage, Mapped)
    np.testing.assert_array_equal(load_weight(tensor), big)


def resident():
    """Bytes of files that are in this process's memory."""
    rows = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(rows["RssFile"].split()[0]) * 1024


def test_pages_of_a_file_are_given_back_and_filled_again(tmp_path):
    big = np.random.default_rng(0).standard_normal((2048, 2048), np.float32)
    cc.save_file({"big": big, "other": big}, tmp_path / "m.gguf")
    weights = mapped(cc.open(tmp_path / "m.gguf")).weights
    arrays = [load_weight(weights[name]) for name in ("big", "other")]
    assert all((array == big).all() for array in arrays)
    before = resident()
    release_pages(arrays[0])
    assert before - resident() > 0.9 * big.nbytes
    np.testing.assert_array_equal(arrays[0], big)
    held = big.copy()
    release_pages(held)
    np.testing.assert_array_equal(held, big)


def test_a_file_that_became_shorter_is_told(tmp_path):
    cc.save_file({"big": np.ones((256, 256), np.float32)}, tmp_path / "m.gguf")
    graph = cc.open(tmp_path / "m.gguf")
    with open(tmp_path / "m.gguf", "r+b") as file:
        file.truncate(1000)
    with pytest.raises(cc.FileAccessError, match="shorter"):
        mapped(graph)


def test_weights_of_an_adapter_say_how_they_are_used(tmp_path):
    path = tmp_path / "adapter_model.safetensors"
    cc.save_file({"base_model.model.layers.0.q.lora_A.weight": np.zeros((2, 4), np.float32)}, path)
    with pytest.raises(cc.Error, match=f"LoRA adapter.*candle-convert MODEL OUT --lora {tmp_path}"):
        cc.models.load(path)


def test_a_network_of_several_rows_of_ids_is_not_a_language_model(tmp_path):
    """The second stage of MetaVoice: codebooks stand before the length."""
    onnx = pytest.importorskip("onnx")
    ids = onnx.helper.make_tensor_value_info("input_ids", onnx.TensorProto.INT64, ["batch", 2, "length"])
    logits = onnx.helper.make_tensor_value_info("logits.0", onnx.TensorProto.INT64, ["batch", 2, "length"])
    nodes = [onnx.helper.make_node("Identity", ["input_ids"], ["logits.0"])]
    opset = [onnx.helper.make_opsetid("", 17)]
    made = onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", [ids], [logits]), opset_imports=opset)
    onnx.save(made, tmp_path / "model.onnx")
    with pytest.raises(cc.UsageError, match=r"E-ONNX-TASK.*input_ids to logits\.0"):
        cc.models.load(tmp_path / "model.onnx", threads=1)
