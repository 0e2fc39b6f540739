"""`cc.quantize(..., bits=)`: the type follows from the output's format; onnxruntime, gguf and cosines are oracles."""

import json

import candle_convert as cc
import gguf
import numpy as np
import onnx
import onnxruntime
import pytest
import safetensors.torch
import torch
from candle_convert import models
from candle_convert.tests.builders.packaged_models import minilm
from candle_convert.tests.oracles.exact_onnxruntime import exact_session

TEXTS = ["A man is eating food.", "The stock market fell sharply."]


@pytest.fixture(scope="module")
def vectors():
    return models.load(minilm(), threads=1).embed(TEXTS)


def cosines(path, vectors):
    """The cosine of each text's vectors before and after."""
    return np.sum(models.load(path, threads=1).embed(TEXTS) * vectors, axis=-1)


@pytest.mark.parametrize(("bits", "kind", "least"), [(8, "Q8_0", 0.999), (4, "Q4_K", 0.9)])
def test_gguf(bits, kind, least, vectors, tmp_path):
    cc.quantize(minilm(), tmp_path / "m.gguf", bits=bits)
    kinds = {tensor.tensor_type.name for tensor in gguf.GGUFReader(tmp_path / "m.gguf").tensors}
    assert kind in kinds
    assert (cosines(tmp_path / "m.gguf", vectors) > least).all()


@pytest.mark.parametrize(("bits", "operator", "least"), [(8, "DynamicQuantizeLinear", 0.98), (4, "MatMulNBits", 0.95)])
def test_onnx(bits, operator, least, vectors, tmp_path):
    cc.quantize(minilm(), tmp_path / "network", bits=bits, to="onnx")
    (file,) = (tmp_path / "network" / "onnx").glob("*.onnx")
    assert any(node.op.name == operator for node in cc.open(file).nodes)
    onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    assert (cosines(tmp_path / "network", vectors) > least).all()
    cc.convert(minilm(), tmp_path / "plain", to="onnx")
    cc.quantize(tmp_path / "plain" / "model.onnx", tmp_path / "q.onnx", bits=bits)
    assert any(node.op.name == operator for node in cc.open(tmp_path / "q.onnx").nodes)


@pytest.mark.parametrize("output", ["folder", "m.gguf", "m.onnx", "m.quantized", "q8.model"])
def test_candles_names_write_a_directory_or_a_file(output, vectors, tmp_path):
    """The result is at the path that was named, also where its suffix names no format: the file is GGUF then."""
    device = cc.Device.cpu()
    cc.quantize(model_path=minilm(), output_path=tmp_path / output, bits=8, device=device)
    (path,) = tmp_path.iterdir()
    assert path.name == output
    if output == "m.onnx":
        onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        assert any(node.op.name == "DynamicQuantizeLinear" for node in cc.open(path).nodes)
    else:
        assert (cosines(path, vectors) > 0.999).all()


@pytest.mark.parametrize("output", ["m.safetensors", "m.pt", "m.npz", "folder"])
def test_other_formats_hold_rows_of_integers_as_bitsandbytes_has_them(output, vectors, tmp_path):
    path = tmp_path / output
    cc.quantize(model_path=minilm(), output_path=path, bits=8, **({"to": "safetensors"} if output == "folder" else {}))
    name = "encoder.layer.0.attention.self.query"
    if output == "folder":
        assert (cosines(path, vectors) > 0.998).all()
        assert json.loads((path / "config.json").read_text())["quantization_config"]["load_in_8bit"] is True
        path /= "model.safetensors"
    stored = {
        ".pt": lambda: torch.load(path, weights_only=True),
        ".npz": lambda: {
            key: torch.from_numpy(value) for key, value in np.load(path).items() if name in key or "word" in key
        },
    }.get(path.suffix, lambda: safetensors.torch.load_file(path))()
    weight = torch.from_numpy(cc.open(minilm())[f"{name}.weight"].numpy().astype("float32"))
    largest = weight.abs().amax(1)
    assert torch.equal(stored[f"{name}.SCB"], largest)
    assert torch.equal(stored[f"{name}.weight"], torch.round(weight * (127 / largest[:, None])).to(torch.int8))
    assert stored["embeddings.word_embeddings.weight"].is_floating_point()
    read = torch.from_numpy(cc.open(path)[f"{name}.weight"].numpy())
    torch.testing.assert_close(read, stored[f"{name}.weight"] * largest[:, None] / 127)
    with pytest.raises(cc.UsageError, match="cannot hold weights of 4 bits"):
        cc.quantize(minilm(), tmp_path / "m4.safetensors", bits=4)


def test_formats_of_rows_refuse_other_sources(tmp_path):
    cc.quantize(minilm(), tmp_path / "m.gguf", bits=8)
    with pytest.raises(cc.Error, match="E-QUANT-AGAIN"):
        cc.quantize(tmp_path / "m.gguf", tmp_path / "m.pt", bits=8)
    cc.save_file({"a": cc.zeros(3, 4)}, tmp_path / "a.safetensors")
    with pytest.raises(cc.Error, match="E-QUANT-NOTHING"):
        cc.quantize(tmp_path / "a.safetensors", tmp_path / "m.pt", bits=8)


def test_a_model_and_an_output_are_given_once(tmp_path):
    for options in ({}, {"model_path": "a", "output_path": "b"}):
        with pytest.raises(cc.UsageError, match="either"):
            cc.quantize("a", **options)


@pytest.mark.parametrize("options", [{"bits": 5}, {"bits": 8, "recipe": "q4_0"}])
def test_other_numbers_are_refused(options, tmp_path):
    with pytest.raises(cc.UsageError, match="E-OPTION"):
        cc.quantize(minilm(), tmp_path / "m.gguf", **options)


@pytest.fixture
def stored(tmp_path):
    """A network of two products, the first of which has bytes as its weight."""
    random = np.random.default_rng(3)
    arrays = {
        "codes": random.integers(-127, 128, (32, 48)).astype(np.int8),
        "scale": np.array(0.01, np.float32),
        "float": random.standard_normal((48, 64)).astype(np.float32),
    }
    nodes = [
        onnx.helper.make_node("DequantizeLinear", ["codes", "scale"], ["w"]),
        onnx.helper.make_node("MatMul", ["x", "w"], ["h"], name="first"),
        onnx.helper.make_node("MatMul", ["h", "float"], ["y"], name="second"),
    ]
    feeds = [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 32])]
    results = [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", 64])]
    weights = [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()]
    graph = onnx.helper.make_graph(nodes, "g", feeds, results, weights)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
    onnx.save(model, tmp_path / "stored.onnx")
    return tmp_path / "stored.onnx"


def notes(report):
    return [note.message for note in report.notes if note.code == "W-ONNX-STORED"]


def kinds(path):
    return sorted(node.op_type for node in onnx.load(path).graph.node)


def output(path):
    x = np.random.default_rng(4).standard_normal((5, 32)).astype(np.float32)
    return exact_session(path).run(None, {"x": x})[0]


def test_weights_that_are_quantized_already(stored, tmp_path):
    kept = cc.quantize(stored, tmp_path / "kept.onnx", bits=8)
    assert notes(kept) == ["1 weight keeps stored codes, such as 'w' (i8)"]
    with pytest.raises(cc.UnsafeFileError, match="E-QUANT-AGAIN"):
        cc.quantize(stored, tmp_path / "again.onnx", bits=4)
    again = cc.quantize(stored, tmp_path / "again.onnx", bits=4, allow_requantize=True)
    assert (notes(again), kinds(tmp_path / "again.onnx")) == ([], ["MatMulNBits"] * 2)
    right = output(stored)
    for name, least in (("kept", 0.02), ("again", 0.2)):
        assert 0 < np.abs(output(tmp_path / f"{name}.onnx") - right).max() < least * np.abs(right).max()


def test_variants_of_weights_that_are_quantized_already(stored, tmp_path):
    kept = cc.convert(stored, tmp_path / "kept", to="onnx", dtypes=("q8",))
    assert notes(kept) == ["q8: 1 weight keeps stored codes, such as 'w' (i8)"]
    with pytest.raises(cc.UnsafeFileError, match="E-QUANT-AGAIN"):
        cc.convert(stored, tmp_path / "again", to="onnx", dtypes=("q4",))
    cc.convert(stored, tmp_path / "again", to="onnx", dtypes=("q4",), allow_requantize=True)
    (path,) = (tmp_path / "again" / "onnx").glob("*_q4.onnx")
    assert kinds(path) == ["MatMulNBits"] * 2


def test_recipes_take_the_same_argument(tmp_path):
    cc.quantize(minilm(), tmp_path / "m.gguf", "q8_0")
    with pytest.raises(cc.UnsafeFileError, match="E-QUANT-AGAIN"):
        cc.quantize(tmp_path / "m.gguf", tmp_path / "again.gguf", bits=4)
    cc.quantize(tmp_path / "m.gguf", tmp_path / "again.gguf", bits=4, allow_requantize=True)
    assert "Q4_K" in {tensor.tensor_type.name for tensor in gguf.GGUFReader(tmp_path / "again.gguf").tensors}
