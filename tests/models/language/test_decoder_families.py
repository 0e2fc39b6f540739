"""Single families of decoders: older layouts, missing rows, blocks of experts, published attention, caches."""

import json
from dataclasses import replace

import candle_convert as cc
import numpy as np
import pytest
from candle_convert import models
from candle_convert.convert.load.bind import bind_model, build_graph
from candle_convert.models.generation.language_model import LanguageModel
from candle_convert.runtime.base.errors import FormatError, UnsupportedError, UsageError
from candle_convert.runtime.contract.architecture import GGUF
from candle_convert.runtime.contract.weight_binding import config_keys, unbind
from candle_convert.runtime.ir.graph import Graph
from candle_convert.tests.builders.decoder_cases import decoder, written_chatglm
from candle_convert.tests.builders.decoders.phimoe import LONGROPE
from candle_convert.tests.oracles.transformers import Case, cases, converted, difference, expected, made, texts


def test_keys_and_values_of_older_gguf_files_and_layers_that_guess_further_tokens(tmp_path):
    """Older files have the matrix of keys and values whole, and lengths of whole keys; neither they nor newer ones need
    more than the layers."""
    case = decoder("deepseek_v3")
    reference = made(case, 2, tmp_path)
    ids, mask = texts(case, 2, reference)["left padding"]
    read = bind_model(cc.open(tmp_path))
    weights = unbind(read.architecture, read.config, read.weights, GGUF)
    for i in range(3):
        del weights[f"blk.{i}.attn_k_b.weight"], weights[f"blk.{i}.attn_v_b.weight"]
        weights[f"blk.{i}.attn_kv_b.weight"] = read.source.weights[f"model.layers.{i}.self_attn.kv_b_proj.weight"]
    weights["blk.3.attn_norm.weight"] = weights["blk.2.attn_norm.weight"]
    said = config_keys(read.architecture, GGUF, read.config) | {"general.architecture": "deepseek2"}
    said |= {"deepseek2.attention.key_length": said.pop("deepseek2.attention.key_length_mla"),
             "deepseek2.attention.value_length": said.pop("deepseek2.attention.value_length_mla")}  # fmt: skip
    graph = Graph(metadata=said, weights=weights)
    assert (
        difference(
            LanguageModel(build_graph(bind_model(graph)), threads=1).logits(ids, mask),
            expected(reference, ids, mask),
            mask,
        )
        <= case.tolerance
    )


@pytest.mark.parametrize(
    ("name", "weight"),
    [
        ("glm", "mlp.gate_up_proj"),
        ("deepseek_v3", "self_attn.kv_b_proj"),
        ("gpt_neox", "attention.query_key_value"),
        ("gpt_oss", "mlp.experts.down_proj_bias"),
    ],
)
def test_rows_that_are_not_there_are_told(name, weight, tmp_path):
    made(decoder(name), 0, tmp_path)
    graph = cc.open(tmp_path)
    short = next(each for each in graph.weights if weight in each and ".2." in each)
    graph.weights[short] = graph.weights[short][1:]
    with pytest.raises(FormatError, match=r"(does|do) not fit"):
        bind_model(graph)


def test_gguf_files_cannot_say_where_gates_are_clamped(tmp_path):
    made(decoder("clamped"), 0, tmp_path)
    with pytest.raises(UnsupportedError, match="swiglu_limit"):
        converted(bind_model(cc.open(tmp_path)), GGUF)


def test_experts_of_gpt_oss_stay_blocks(tmp_path):
    """The published files have experts in MXFP4, two numbers of a row in a byte; GGUF files have blocks of the same
    values."""
    from safetensors.numpy import load_file, save_file

    case = decoder("gpt_oss")
    made(case, 0, tmp_path)
    rng, weights = np.random.default_rng(0), load_file(tmp_path / "model.safetensors")
    levels = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
    for name in [name for name in weights if name.endswith(("gate_up_proj", "down_proj"))]:
        experts, inner, out = weights.pop(name).shape
        codes = rng.integers(0, 16, (experts, out, inner // 32, 32), dtype=np.uint8)
        scales = rng.integers(118, 124, (experts, out, inner // 32), dtype=np.uint8)
        values = levels[codes] * np.exp2(scales.astype(np.float32) - 127)[..., None]
        weights |= {
            f"{name}_blocks": codes[..., ::2] | codes[..., 1::2] << 4,
            f"{name}_scales": scales,
            name: values.reshape(experts, out, inner),
        }
    wanted = {name: weights.pop(name) for name in list(weights) if name.endswith("_proj")}
    save_file(weights, tmp_path / "model.safetensors")
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"quantization_config": {"quant_method": "mxfp4"}}))
    read = bind_model(cc.open(tmp_path))
    gguf = unbind(read.architecture, read.config, read.weights, GGUF)
    for part, name, turn in (("gate", "gate_up", 0), ("up", "gate_up", 1), ("down", "down", None)):
        found, want = gguf[f"blk.1.ffn_{part}_exps.weight"], wanted[f"model.layers.1.mlp.experts.{name}_proj"]
        assert found.dtype.name == "mxfp4"
        assert np.array_equal(found.dequantize().numpy(), want if turn is None else want[:, turn::2])
    assert np.isfinite(LanguageModel(build_graph(read), threads=1).logits([[5, 6, 7]])).all()


def test_falcon_rw_as_the_attention_that_it_was_published_with(tmp_path):
    """transformers' eager attention adds ALiBi twice."""
    config = {
        "alibi": True,
        "bias": True,
        "multi_query": False,
        "parallel_attn": False,
        "num_kv_heads": None,
        "model_type": "falcon",
    }
    case = Case("falcon_rw", "FalconForCausalLM", {"architectures": ["FalconForCausalLM"], **config}, attention="sdpa")
    reference = made(case, 0, tmp_path)
    model = models.load(tmp_path, threads=1)
    for variant, (ids, mask) in texts(case, 0, reference).items():
        assert difference(model.logits(ids, mask), expected(reference, ids, mask), mask) <= case.tolerance, variant


def test_chatglm_layout(tmp_path):
    """The layout of ChatGLM's own files computes the same as that of transformers."""
    case, reference = written_chatglm(tmp_path)
    model = bind_model(cc.open(tmp_path))
    ids, mask = texts(case, 0, reference)["left padding"]
    assert (
        difference(LanguageModel(build_graph(model), threads=1).logits(ids, mask), expected(reference, ids, mask), mask)
        <= case.tolerance
    )
    gguf = unbind(model.architecture, model.config, model.weights, GGUF)
    assert gguf["blk.0.attn_qkv.weight"].shape == (128, 64)
    cc.convert(tmp_path, tmp_path / "model.gguf")
    written = models.load(tmp_path / "model.gguf", threads=1)
    assert difference(written.logits(ids, mask), expected(reference, ids, mask), mask) <= case.tolerance


def test_hidden_states_of_a_model_that_says_it_is_for_tokens(tmp_path):
    """Models of embeddings have the class of those of tokens."""
    import torch

    case = cases("Qwen3ForCausalLM", "qwen3", embedding={"head_dim": 32, "tie_word_embeddings": True})[0]
    reference = made(case, 0, tmp_path)
    ids, mask = texts(case, 0, reference)["left padding"]
    with torch.no_grad():
        places = torch.tensor(np.maximum(mask.cumsum(1) - 1, 0))
        want = reference.model(
            input_ids=torch.tensor(ids), attention_mask=torch.tensor(mask), position_ids=places
        ).last_hidden_state.numpy()
    for task in ("hidden", "feature-extraction"):
        got = models.load(tmp_path, threads=1, task=task).logits(ids, mask)
        assert difference(got[:, -1], want[:, -1]) <= case.tolerance
    for task in ("nothing", "classification", "text-classification"):
        with pytest.raises(UsageError, match="does not support the task"):
            models.load(tmp_path, threads=1, task=task)


def test_sinks_leave_the_cache_where_it_is(tmp_path):
    made(decoder("gpt_oss"), 0, tmp_path)
    graph = build_graph(bind_model(cc.open(tmp_path)))
    attentions = [node for node in graph.nodes if node.op.name == "AttentionWithSinks"]
    assert len(attentions) == 3
    assert all(value.producer.op.name == "TensorScatter" for node in attentions for value in node.inputs[1:3])
    model = LanguageModel(graph, threads=1)
    cache = model.start(1)
    model.advance(np.array([[5, 9, 11]]), cache)
    states = dict(cache.states)
    model.advance(np.array([[7]]), cache)
    assert all(cache.states[name] is array for name, array in states.items() if "key_values" in name)


def test_long_factors_of_phimoe(tmp_path):
    """Beyond the original context transformers scales by `long_mscale`, but keeps the short factors; the code that the
    model was published with takes the long ones."""
    case = decoder("phimoe")
    scaling = LONGROPE | {"original_max_position_embeddings": 16, "short_mscale": 1.1}
    as_published = scaling | {"short_factor": scaling["long_factor"]}
    reference = made(replace(case, config={**case.config, "rope_scaling": as_published}), 0, tmp_path)
    ids = np.random.default_rng(0).integers(3, 96, (1, 40))
    want = expected(reference, ids, None)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"rope_scaling": scaling}))
    model = models.load(tmp_path, threads=1)
    assert difference(model.logits(ids), want) <= case.tolerance
    assert difference(model.logits(ids[:, :9]), expected(reference, ids[:, :9], None)) > case.tolerance
