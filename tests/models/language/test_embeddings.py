"""Decoders that take embeddings in place of ids, and positions of several axes, against transformers."""

import candle_convert as cc
import numpy as np
import pytest
import torch
from candle_convert.convert.load.bind import bind_model, build_graph
from candle_convert.models.generation.decoder_tasks import EMBED_TOKENS, FROM_EMBEDS
from candle_convert.runtime.contract.architecture import Config
from candle_convert.runtime.session import Session
from candle_convert.tests.builders.decoder_cases import decoder
from candle_convert.tests.builders.image_checkpoints import randomized, saved
from candle_convert.tests.builders.rwkv_checkpoints import VOCABULARY, weights_of, write
from candle_convert.tests.oracles.transformers import difference, made, transformers

TOLERANCE = 3e-5
CASES = ("llama", "gemma3", "granite", "deepseek_v3", "gpt2", "bloom")
"""Without a scale of embeddings, with one, with a norm or positions behind them, with an index of tokens."""
QWEN2_VL = {
    "vocab_size": 96, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "rope_theta": 10000.0,
}  # fmt: skip


def fed(graph, length, batch, **values):
    """What a graph with growing caches takes for a first run over `length` tokens."""
    found = {
        "attention_mask": np.ones((batch, length), np.int64),
        "position_ids": np.tile(np.arange(length), (batch, 1)),
        **values,
    }
    for value in graph.inputs:
        if value.name.startswith("past"):
            shape = [{"batch_size": batch}.get(dim, 0) if isinstance(dim, str) else dim for dim in value.shape]
            found[value.name] = np.zeros(shape, np.float32)
    return {value.name: found[value.name] for value in graph.inputs}


def embedded(model, ids):
    """The embeddings of ids, f32 [batch, length, hidden]."""
    return Session(build_graph(model, EMBED_TOKENS)).run(["inputs_embeds"], {"input_ids": ids})[0]


def computed(model, embeds, output="logits", **values):
    """What the decoder's graph computes of embeddings."""
    graph = build_graph(model, FROM_EMBEDS, fixed=False)
    batch, length, _ = embeds.shape
    return Session(graph).run([output], fed(graph, length, batch, inputs_embeds=embeds, **values))[0]


@pytest.mark.parametrize("name", CASES)
def test_embeddings_of_ids_give_the_logits_of_the_ids(name, tmp_path):
    reference = made(decoder(name), 0, tmp_path)
    ids = np.random.default_rng(0).integers(3, 96, (2, 9))
    with torch.no_grad():
        expected = reference(torch.from_numpy(ids)).logits.numpy()
    model = bind_model(cc.open(tmp_path))
    assert difference(computed(model, embedded(model, ids)), expected) < TOLERANCE


def test_embeddings_that_no_token_has(tmp_path):
    reference = made(decoder("llama"), 0, tmp_path)
    embeds = np.random.default_rng(0).standard_normal((2, 9, 64)).astype(np.float32)
    with torch.no_grad():
        expected = reference(inputs_embeds=torch.from_numpy(embeds)).logits.numpy()
    assert difference(computed(bind_model(cc.open(tmp_path)), embeds), expected) < TOLERANCE


@pytest.mark.parametrize(
    ("kind", "model_type", "axes"),
    [
        ("Qwen2VLTextModel", "qwen2_vl_text", (0, 0, 1, 1, 1, 2, 2, 2)),
        ("Qwen3VLTextModel", "qwen3_vl_text", (0, 1, 2, 0, 1, 2, 0, 0)),
    ],
)
def test_positions_of_three_axes(kind, model_type, axes, tmp_path):
    """Qwen2-VL rotates runs of pairs by time, height and width, Qwen3-VL every third one."""
    cls = getattr(transformers(), kind)
    rope = {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 10000.0}
    rope |= {"mrope_interleaved": True, "mrope_section": [4, 2, 2]} if model_type == "qwen3_vl_text" else {}
    settings = {**QWEN2_VL, "rope_scaling": rope, "rope_parameters": rope, "head_dim": 16}
    reference = randomized(cls(cls.config_class(**settings)))
    saved(reference, tmp_path)
    rng = np.random.default_rng(0)
    embeds = rng.standard_normal((2, 9, 64)).astype(np.float32)
    positions = rng.integers(0, 30, (3, 2, 9)).cumsum(-1)
    with torch.no_grad():
        expected = reference(
            inputs_embeds=torch.from_numpy(embeds), position_ids=torch.from_numpy(positions), use_cache=False
        ).last_hidden_state.numpy()
    model = bind_model(cc.open(tmp_path))
    model.config.values["position_axes"] = list(axes)
    graph = build_graph(model, FROM_EMBEDS, fixed=False)
    assert next(value for value in graph.inputs if value.name == "position_ids").shape[0] == 3
    assert difference(computed(model, embeds, "last_hidden_state", position_ids=positions), expected) < TOLERANCE


def test_axes_that_are_not_one_for_each_pair(tmp_path):
    made(decoder("llama"), 0, tmp_path)
    model = bind_model(cc.open(tmp_path))
    model.config.values["position_axes"] = [0, 1]
    with pytest.raises(cc.Error, match="an axis for each rotated pair"):
        build_graph(model, FROM_EMBEDS)


def test_ids_keep_positions_of_one_axis(tmp_path):
    made(decoder("llama"), 0, tmp_path)
    model = bind_model(cc.open(tmp_path))
    plain = [(value.name, value.shape) for value in build_graph(model).inputs]
    model = type(model)(
        model.architecture, model.names, Config({**model.config.values, "position_axes": [0, 1]}), model.weights,
        model.source,
    )  # fmt: skip
    assert [(value.name, value.shape) for value in build_graph(model).inputs] == plain


@pytest.mark.parametrize("version", [6, 7])
def test_embeddings_of_recurrent_models(version, tmp_path):
    write(tmp_path, version, weights_of(version, version), "fla" if version == 7 else "hf")
    model = bind_model(cc.open(tmp_path))
    ids = np.random.default_rng(0).integers(3, VOCABULARY, (2, 9))
    expected = cc.models.load(tmp_path)(input_ids=ids)["logits"]
    assert difference(computed(model, embedded(model, ids)), expected) < TOLERANCE
