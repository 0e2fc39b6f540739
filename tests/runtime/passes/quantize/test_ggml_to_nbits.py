"""Quantized models as ONNX: onnxruntime's operators on repacked codes match the dequantized weights."""

import candle_convert as cc
import numpy as np
import onnx
import pytest
from candle_convert import models
from candle_convert.tests.oracles.transformers import BASE, Case, made

ort = pytest.importorskip("onnxruntime")
CASE = Case(
    "qwen2",
    "Qwen2ForCausalLM",
    {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "tie_word_embeddings": True},
    base={**BASE, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 1},
)
MIXTRAL = Case(
    "mixtral",
    "MixtralForCausalLM",
    {
        "architectures": ["MixtralForCausalLM"],
        "model_type": "mixtral",
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
    },
    base=CASE.base,
)
BITS = {
    "q4_0": 4,
    "q4_1": 4,
    "q5_0": 8,
    "q5_1": 8,
    "q8_0": 8,
    "q2_k": 4,
    "q3_k": 4,
    "q4_k": 4,
    "q5_k": 8,
    "q6_k": 8,
    "iq4_nl": 8,
    "iq4_xs": 8,
    "mxfp4": 8,
    "nvfp4": 8,
}
IDS = np.array([[5, 17, 3, 88, 41, 9, 23, 70]])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("blocks")
    for case in (CASE, MIXTRAL):
        made(case, 0, folder / case.name)
    return folder


def logits(path):
    """Of onnxruntime, from the whole text at once."""
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    feeds = {"input_ids": IDS, "attention_mask": np.ones_like(IDS), "position_ids": np.arange(IDS.shape[1])[None]}
    for given in session.get_inputs():
        if given.name.startswith("past_"):
            shape = [
                1 if at == 0 else length if isinstance(length, int) else 0 for at, length in enumerate(given.shape)
            ]
            feeds[given.name] = np.zeros(shape, np.float32)
    return session.run([session.get_outputs()[0].name], feeds)[0]


@pytest.mark.parametrize("name", BITS)
def test_onnxruntime_multiplies_with_the_codes(folder, tmp_path, name):
    cc.quantize(folder / "qwen2", tmp_path / "q.gguf", cc.Recipe(name, pure=True))
    cc.convert(tmp_path / "q.gguf", tmp_path / "q.onnx")
    graph = onnx.load(tmp_path / "q.onnx").graph
    assert not [
        tensor.name
        for tensor in graph.initializer
        if len(tensor.dims) == 2 and tensor.name.startswith(("layers", "embed"))
    ]
    nodes = graph.node
    products = [node for node in nodes if node.op_type == "MatMulNBits"]
    assert len(products) == 8
    assert {attribute.i for node in products for attribute in node.attribute if attribute.name == "bits"} == {
        BITS[name]
    }
    assert [node.op_type for node in nodes].count("GatherBlockQuantized") == 1
    want = models.load(tmp_path / "q.gguf").logits(IDS)
    assert np.abs(logits(tmp_path / "q.onnx") - want).max() <= 3e-5 * np.abs(want).max()


def test_a_dtype_that_is_asked_for_is_given(folder, tmp_path):
    cc.quantize(folder / "qwen2", tmp_path / "q.gguf", "Q4_0")
    cc.convert(tmp_path / "q.gguf", tmp_path / "q.onnx", dtype="f32")
    assert "MatMulNBits" not in {node.op_type for node in onnx.load(tmp_path / "q.onnx").graph.node}


def test_experts_and_types_without_operators_are_dequantized_and_told(folder, tmp_path):
    cc.quantize(folder / "mixtral", tmp_path / "q.gguf", "Q4_0")
    report = cc.convert(tmp_path / "q.gguf", tmp_path / "q.onnx")
    assert [note.message for note in report.notes if note.code == "W-DEQUANTIZED"] == [
        "3 weights are dequantized from q4_0 to f32 (864.00 KiB to 6.00 MiB): ONNX has no operators for what they are "
        "used for"
    ]
    want = models.load(tmp_path / "q.gguf").logits(IDS)
    assert np.abs(logits(tmp_path / "q.onnx") - want).max() <= 3e-5 * np.abs(want).max()
