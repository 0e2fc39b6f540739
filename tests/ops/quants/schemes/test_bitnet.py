"""BitNet checkpoints, packed, in floats and rounded on reading, against the layers of transformers."""

import gc
import json
import weakref

import candle_convert as cc
import numpy as np
import pytest
import torch
from candle_convert import models
from candle_convert.tests.oracles.transformers import cases, difference, expected, made, transformers
from safetensors.torch import load_file, save_file

CASE = cases("BitNetForCausalLM", "bitnet", ternary={"hidden_act": "relu2", "tie_word_embeddings": True})[0]
IDS = np.array([[5, 17, 3, 88, 41, 9, 23, 70]])
INPUTS = 0.05
"""Logits differ by the inputs of layers, which transformers rounds to 8 bits."""


@pytest.fixture(autouse=True)
def interpreted():
    """transformers compiles its functions, which needs a C++ compiler."""
    with torch.compiler.set_stance("force_eager"):
        yield


def written(folder, form, layer, mode="offline"):
    """A checkpoint in one of the forms."""
    from transformers.integrations.bitnet import pack_weights

    made(CASE, 0, folder)
    tensors = {}
    for name, weight in load_file(folder / "model.safetensors").items():
        if form == "online" or not name.endswith("_proj.weight"):
            tensors[name] = weight.bfloat16() if name.endswith("_proj.weight") else weight
            continue
        scale = weight.abs().mean()
        ternary = (weight / scale).round().clamp(-1, 1)
        tensors[name] = pack_weights(ternary.clone()) if form == "packed" else ternary
        tensors[f"{name}_scale"] = (scale if layer == "autobitlinear" else 1 / scale).reshape(1).bfloat16()
    save_file(tensors, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    stated = {"quant_method": "bitnet", "linear_class": layer, "quantization_mode": mode}
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": stated}))


@pytest.mark.parametrize(
    ("form", "layer", "mode"),
    [
        ("packed", "bitlinear", "offline"),
        ("packed", "autobitlinear", "offline"),
        ("floats", "autobitlinear", "offline"),
        ("online", "autobitlinear", "online"),
    ],
)
def test_as_transformers(form, layer, mode, tmp_path):
    written(tmp_path, form, layer, mode)
    graph = cc.open(tmp_path)
    assert [note.code for note in graph.notes] == ["W-PREQUANTIZED"]
    reference = (
        transformers()
        .BitNetForCausalLM.from_pretrained(tmp_path, dtype=torch.float32, attn_implementation="eager")
        .eval()
    )
    want = expected(reference, IDS, None)
    assert difference(models.load(tmp_path, threads=1, activations="f32").logits(IDS), want) <= INPUTS
    # the weights alone, to which a layer with the identity as input comes
    for name, module in reference.named_modules():
        if name.endswith("_proj"):
            with torch.no_grad():
                matrix = module(torch.eye(module.in_features)).T.numpy()
            found = graph[f"{name}.weight"].numpy()
            assert np.allclose(found, matrix, rtol=1e-6, atol=0), name
            assert np.array_equal(graph[f"{name}.weight"][3:-2].numpy(), found[3:-2])


@pytest.mark.parametrize(
    ("said", "code"), [({"linear_class": "other"}, "E-PACKED-KIND"), ({"use_rms_norm": True}, "E-PACKED-KIND")]
)
def test_other_layers_are_refused(said, code, tmp_path):
    written(tmp_path, "packed", "bitlinear")
    config = json.loads((tmp_path / "config.json").read_text())
    config["quantization_config"] |= said
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(cc.UnsupportedError, match=code):
        cc.open(tmp_path)


def test_scales_that_are_zero_are_refused(tmp_path):
    written(tmp_path, "packed", "bitlinear")
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["model.layers.0.mlp.up_proj.weight_scale"].zero_()
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(cc.FormatError, match="E-PACKED"):
        cc.open(tmp_path)


def test_a_model_is_freed(tmp_path):
    written(tmp_path, "online", "autobitlinear", "online")
    graph = cc.open(tmp_path)
    name = next(name for name in graph.weights if name.endswith("q_proj.weight"))
    assert graph.weights[name].numpy().any()
    source = weakref.ref(graph.weights["model.embed_tokens.weight"].storage.source)
    assert source() is not None
    del graph
    gc.collect()
    assert source() is None
