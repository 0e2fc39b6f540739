"""all-MiniLM-L6-v2, 91 MB of trained f32 weights: through every container and back, quantized, and as an ONNX graph
that embeds sentences."""

import warnings

import candle_convert as cc
import gguf
import numpy as np
import onnxruntime
import pytest
from candle_convert.convert.cli.main import run
from candle_convert.runtime.tensor.dtype import DTYPES
from candle_convert.tests.oracles import libggml
from safetensors.numpy import load_file

SENTENCES = ["A man is eating food.", "Someone eats a meal.", "The stock market fell sharply."]


def of_gguf(path):
    return {tensor.name: tensor.data for tensor in gguf.GGUFReader(path).tensors}


def of_pytorch(path):
    torch = pytest.importorskip("torch")
    return {name: tensor.numpy() for name, tensor in torch.load(path, weights_only=True).items()}


def of_npz(path):
    """What is not a tensor lies beside them."""
    return {name: array for name, array in np.load(path).items() if not name.startswith("__metadata__")}


READERS = {"npz": of_npz, "pth": of_pytorch}


def gguf_name(name):
    """What llama.cpp calls a weight; its converter leaves the pooler out, which its classifiers call cls."""
    stem, _, kind = name.rpartition(".")
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.BERT, 6)
    return f"{'cls' if stem == 'pooler.dense' else names.get_name(stem)}.{kind}"


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert (found[name].dtype, found[name].shape, found[name].tobytes()) == (
            array.dtype,
            array.shape,
            array.tobytes(),
        ), name


@pytest.mark.parametrize("suffix", READERS)
def test_weights_go_out_and_come_back(minilm, tmp_path, suffix):
    source, out, back = minilm / "model.safetensors", tmp_path / f"m.{suffix}", tmp_path / "back.safetensors"
    cc.convert(source, out, weights_only=True)
    expected = load_file(source)
    assert_same(READERS[suffix](out), expected)
    cc.convert(out, back)
    assert_same(load_file(back), expected)
    assert cc.hash(source) == cc.hash(out) == cc.hash(back)


def test_gguf_has_the_weights_by_the_names_of_llama_cpp(minilm, tmp_path):
    cc.convert(minilm / "model.safetensors", tmp_path / "m.gguf", weights_only=True)
    weights = load_file(minilm / "model.safetensors")
    weights.pop("embeddings.position_ids")
    assert_same(of_gguf(tmp_path / "m.gguf"), {gguf_name(name): array for name, array in weights.items()})


@pytest.mark.skipif(libggml.NAME is None, reason="xllamacpp is not installed")
def test_quantized_weights_are_libggmls(minilm, tmp_path):
    library, kind = libggml.load(), DTYPES["q8_0"]
    cc.quantize(minilm / "model.safetensors", tmp_path / "q.gguf", "q8_0", weights_only=True)
    weights = load_file(minilm / "model.safetensors")
    weights.pop("embeddings.position_ids")
    weights = {gguf_name(name): array for name, array in weights.items()}
    quantized = [tensor for tensor in gguf.GGUFReader(tmp_path / "q.gguf").tensors if tensor.tensor_type.name == "Q8_0"]
    assert len(quantized) == 6 * 6 + 2, "the matrices of six layers, and embeddings; what is small stays in f32"
    for tensor in quantized:
        array = weights[tensor.name]
        assert tensor.data.tobytes() == library.encode(kind, array).tobytes(), tensor.name
        steps = np.abs(array.reshape(-1, 32)).max(-1, keepdims=True) / 127
        error = np.abs(library.decode(kind, np.array(tensor.data)).reshape(-1, 32) - array.reshape(-1, 32))
        assert (error <= steps * (0.5 + 127 * 2.0**-11)).all(), "half a step, and what f16 takes from the step"


@pytest.fixture(scope="module")
def exported(minilm, tmp_path_factory):
    """(ONNX file, the feeds of three sentences, their embeddings by transformers)."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")

    class Embedding(torch.nn.Module):
        """The mean over tokens, of length one."""

        def __init__(self, model):
            super().__init__()
            self.model = model

        def forward(self, ids, mask):
            weights = mask[..., None].float()
            total = (self.model(input_ids=ids, attention_mask=mask).last_hidden_state * weights).sum(1)
            return torch.nn.functional.normalize(total / weights.sum(1), dim=-1)

    model = Embedding(transformers.AutoModel.from_pretrained(minilm, attn_implementation="eager")).eval()
    tokens = transformers.AutoTokenizer.from_pretrained(minilm)(SENTENCES, padding=True, return_tensors="pt")
    ids, mask = tokens["input_ids"], tokens["attention_mask"]
    path = tmp_path_factory.mktemp("exported") / "minilm.onnx"
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        axes = {name: {0: "batch", 1: "length"} for name in ("ids", "mask")}
        torch.onnx.export(
            model,
            (ids, mask),
            str(path),
            dynamo=False,
            opset_version=17,
            input_names=["ids", "mask"],
            dynamic_axes=axes,
        )
        return path, {"ids": ids.numpy(), "mask": mask.numpy()}, model(ids, mask).numpy()


def test_weights_of_the_graph_are_the_models(exported, minilm, tmp_path):
    """Transposed where a product takes them so."""
    cc.convert(exported[0], tmp_path / "m.safetensors")
    found, expected = load_file(tmp_path / "m.safetensors"), load_file(minilm / "model.safetensors")
    trained = {array.tobytes() for array in expected.values()} | {
        array.T.tobytes() for array in expected.values() if array.ndim == 2
    }
    large = [array for array in found.values() if array.size > 1000]
    assert sum(array.size for array in large) > 22_000_000
    assert all(array.tobytes() in trained for array in large)


def test_sentences_have_the_embeddings_of_transformers(exported):
    path, feeds, expected = exported
    (found,) = cc.InferenceSession(str(path)).run(None, feeds)
    np.testing.assert_allclose(found, expected, atol=2e-6)
    alike, unlike = found[0] @ found[1], found[0] @ found[2]
    assert alike > 0.7
    assert unlike < 0.1


def test_embeddings_of_eight_bits_are_onnxruntimes(exported, tmp_path):
    """Weights and activations in int8: the graph that is written gives the same embeddings here and there, still those
    of the sentences."""
    path, feeds, expected = exported
    target = str(tmp_path / "q.onnx")
    assert run(["quantize", str(path), target, "int8", "-q"]) == 0
    (found,), (theirs,) = (
        cc.InferenceSession(target).run(None, feeds),
        onnxruntime.InferenceSession(target).run(None, feeds),
    )
    assert (np.sum(found * theirs, axis=-1) > 0.999).all()
    assert (np.sum(found * expected, axis=-1) > 0.95).all()
