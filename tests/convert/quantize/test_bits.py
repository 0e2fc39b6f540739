"""`cc.quantize(..., bits=)`: the type follows from the output's format; onnxruntime, gguf and cosines are oracles."""

import candle_convert as cc
import gguf
import numpy as np
import onnxruntime
import pytest
from candle_convert import models
from candle_convert.tests.builders.packaged_models import minilm

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


@pytest.mark.parametrize("options", [{"bits": 5}, {"bits": 8, "recipe": "q4_0"}])
def test_other_numbers_are_refused(options, tmp_path):
    with pytest.raises(cc.UsageError, match="E-OPTION"):
        cc.quantize(minilm(), tmp_path / "m.gguf", **options)
