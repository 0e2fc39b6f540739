"""GLM, DeepSeek, gpt-oss and others: against transformers padded, past windows and contexts, token by token, through GGUF's names and back."""

import json

import candle_convert as cc
import numpy as np
import pytest
from candle_convert import models
from candle_convert.convert.modelling import built, modelled
from candle_convert.models.language.model import LanguageModel
from candle_convert.runtime.arch import GGUF, HF
from candle_convert.runtime.binding import described, unbind
from candle_convert.runtime.errors import FormatError, UnsupportedError, UsageError
from candle_convert.runtime.graph import Graph
from checkpoints import Case, cases, converted, difference, expected, made, texts

GLM = {"partial_rotary_factor": 0.5, "attention_bias": (True, False), "head_dim": 16}
YARN = {"type": "yarn", "factor": 8, "original_max_position_embeddings": 16, "beta_fast": 32, "beta_slow": 1}
EXPERTS = {"n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 48, "first_k_dense_replace": 1}
DEEPSEEK = {
    **EXPERTS, "n_shared_experts": (1, 2), "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": (8, 16), "v_head_dim": 24,
    "num_key_value_heads": 4, "rms_norm_eps": 1e-6, "num_nextn_predict_layers": 0,
}  # fmt: skip
OSS = {
    "attention_bias": True, "head_dim": 32, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"], "sliding_window": 8,
    "num_local_experts": (4, 6), "num_experts_per_tok": 2, "rope_theta": 150000,
}  # fmt: skip
CASES = [
    *cases("GlmForCausalLM", "glm", glm=GLM),
    *cases("Glm4ForCausalLM", "glm4", glm4={**GLM, "head_dim": (16, 32)}),
    *cases("Glm4MoeForCausalLM", "glm4_moe", glm4_moe={
        **GLM, **EXPERTS, "n_shared_experts": 1, "n_group": 1, "topk_group": 1, "routed_scaling_factor": 1.5, "norm_topk_prob": True,
        "use_qk_norm": (True, False), "num_nextn_predict_layers": 0}),
    *cases("DeepseekV2ForCausalLM", "deepseek_v2", deepseek_v2_lite={**DEEPSEEK, "q_lora_rank": None, "topk_method": "greedy", "rope_scaling": {
        **YARN, "mscale": 0.707, "mscale_all_dim": 0.707}}, deepseek_v2={**DEEPSEEK, "q_lora_rank": 24, "topk_method": "group_limited_greedy",
                                                                         "n_group": 4, "topk_group": 2, "routed_scaling_factor": 16.0}),
    *cases("GptOssForCausalLM", "gpt_oss", gpt_oss={**OSS, "rope_scaling": {**YARN, "truncate": True}}),
    *cases("ArceeForCausalLM", "arcee", arcee={"hidden_act": "relu2", "head_dim": 32}),
    *cases("SeedOssForCausalLM", "seed_oss", seed_oss={"attention_bias": True, "attention_out_bias": False, "head_dim": 32}),
    *cases("GPTNeoXForCausalLM", "gpt_neox", gpt_neox={"rotary_pct": 0.25, "use_parallel_residual": (True, False), "tie_word_embeddings": False}),
    *cases("CohereForCausalLM", "cohere", cohere={"use_qk_norm": (True, False), "logit_scale": 0.25, "tie_word_embeddings": True}),
    *cases("Cohere2ForCausalLM", "cohere2", cohere2={
        "sliding_window": 8, "sliding_window_pattern": 4, "logit_scale": 0.25, "tie_word_embeddings": True, "head_dim": 16, "num_hidden_layers": 4}),
    *cases("Ministral3ForCausalLM", "ministral3", ministral3={"head_dim": 32, "sliding_window": None, "rope_parameters": {
        **YARN, "rope_type": "yarn", "rope_theta": 1e6, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1}}),
    *cases("DeepseekV3ForCausalLM", "deepseek_v3", deepseek_v3={
        **DEEPSEEK, "q_lora_rank": 24, "scoring_func": "sigmoid", "topk_method": "noaux_tc", "n_group": 4, "topk_group": 2, "norm_topk_prob": True,
        "routed_scaling_factor": 2.5, "rope_scaling": {**YARN, "mscale": 1.0, "mscale_all_dim": 1.0}}),
]  # fmt: skip

CLAMPED = cases("GptOssForCausalLM", "gpt_oss", clamped={**OSS, "rope_scaling": {**YARN, "truncate": False}, "swiglu_limit": 0.7})


@pytest.mark.parametrize("case", [*CASES, *CLAMPED], ids=lambda case: case.name)
def test_as_transformers(case, tmp_path):
    reference = made(case, 0, tmp_path)
    model = models.load(tmp_path, threads=1)
    for variant, (ids, mask) in texts(case, 0, reference).items():
        assert difference(model.logits(ids, mask), expected(reference, ids, mask), mask) <= case.tolerance, variant


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_token_by_token_through_other_names(case, tmp_path):
    reference = made(case, 1, tmp_path)
    ids, mask = texts(case, 1, reference)["left padding"]
    want = expected(reference, ids, mask)
    read = modelled(cc.open(tmp_path))
    there = converted(read, GGUF)
    back = unbind(there.architecture, there.config, there.weights, HF)
    assert back.keys() <= read.source.weights.keys()
    for name, tensor in back.items():
        assert np.array_equal(tensor.cast("f32").numpy(), read.source.weights[name].cast("f32").numpy()), name
    model = LanguageModel(built(converted(there, HF)), threads=1)
    first, cache = model.step(ids[:, :7], mask=mask[:, :7])
    steps = [first]
    for at in range(7, ids.shape[1]):
        step, cache = model.step(ids[:, at : at + 1], cache, mask[:, at : at + 1])
        steps.append(step)
    assert difference(np.concatenate(steps, axis=1), want, mask) <= case.tolerance


def test_keys_and_values_of_older_gguf_files_and_layers_that_guess_further_tokens(tmp_path):
    """Older files have the matrix of keys and values whole, and lengths of whole keys; neither they nor newer ones need more than the layers."""
    case = next(case for case in CASES if case.name == "deepseek_v3")
    reference = made(case, 2, tmp_path)
    ids, mask = texts(case, 2, reference)["left padding"]
    read = modelled(cc.open(tmp_path))
    weights = unbind(read.architecture, read.config, read.weights, GGUF)
    for i in range(3):
        del weights[f"blk.{i}.attn_k_b.weight"], weights[f"blk.{i}.attn_v_b.weight"]
        weights[f"blk.{i}.attn_kv_b.weight"] = read.source.weights[f"model.layers.{i}.self_attn.kv_b_proj.weight"]
    weights["blk.3.attn_norm.weight"] = weights["blk.2.attn_norm.weight"]
    said = described(read.architecture, GGUF, read.config) | {"general.architecture": "deepseek2"}
    said |= {"deepseek2.attention.key_length": said.pop("deepseek2.attention.key_length_mla"),
             "deepseek2.attention.value_length": said.pop("deepseek2.attention.value_length_mla")}  # fmt: skip
    graph = Graph(metadata=said, weights=weights)
    assert difference(LanguageModel(built(modelled(graph)), threads=1).logits(ids, mask), expected(reference, ids, mask), mask) <= case.tolerance


@pytest.mark.parametrize(("name", "weight"), [
    ("glm", "mlp.gate_up_proj"), ("deepseek_v3", "self_attn.kv_b_proj"),
    ("gpt_neox", "attention.query_key_value"), ("gpt_oss", "mlp.experts.down_proj_bias"),
])
def test_rows_that_are_not_there_are_told(name, weight, tmp_path):
    made(next(case for case in CASES if case.name == name), 0, tmp_path)
    graph = cc.open(tmp_path)
    short = next(each for each in graph.weights if weight in each and ".2." in each)
    graph.weights[short] = graph.weights[short][1:]
    with pytest.raises(FormatError, match="do not fit"):
        modelled(graph)


def test_gguf_files_cannot_say_where_gates_are_clamped(tmp_path):
    made(CLAMPED[0], 0, tmp_path)
    with pytest.raises(UnsupportedError, match="swiglu_limit"):
        converted(modelled(cc.open(tmp_path)), GGUF)


def test_experts_of_gpt_oss_stay_blocks(tmp_path):
    """The published files have experts in MXFP4, two numbers of a row in a byte; GGUF files have blocks of the same values."""
    from safetensors.numpy import load_file, save_file

    case = next(case for case in CASES if case.name == "gpt_oss")
    made(case, 0, tmp_path)
    rng, weights = np.random.default_rng(0), load_file(tmp_path / "model.safetensors")
    levels = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
    for name in [name for name in weights if name.endswith(("gate_up_proj", "down_proj"))]:
        experts, inner, out = weights.pop(name).shape
        codes = rng.integers(0, 16, (experts, out, inner // 32, 32), dtype=np.uint8)
        scales = rng.integers(118, 124, (experts, out, inner // 32), dtype=np.uint8)
        values = levels[codes] * np.exp2(scales.astype(np.float32) - 127)[..., None]
        weights |= {f"{name}_blocks": codes[..., ::2] | codes[..., 1::2] << 4, f"{name}_scales": scales, name: values.reshape(experts, out, inner)}
    wanted = {name: weights.pop(name) for name in list(weights) if name.endswith("_proj")}
    save_file(weights, tmp_path / "model.safetensors")
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"quantization_config": {"quant_method": "mxfp4"}}))
    read = modelled(cc.open(tmp_path))
    gguf = unbind(read.architecture, read.config, read.weights, GGUF)
    for part, name, turn in (("gate", "gate_up", 0), ("up", "gate_up", 1), ("down", "down", None)):
        found, want = gguf[f"blk.1.ffn_{part}_exps.weight"], wanted[f"model.layers.1.mlp.experts.{name}_proj"]
        assert found.dtype.name == "mxfp4"
        assert np.array_equal(found.dequantize().numpy(), want if turn is None else want[:, turn::2])
    assert np.isfinite(LanguageModel(built(read), threads=1).logits([[5, 6, 7]])).all()


def test_falcon_rw_as_the_attention_that_it_was_published_with(tmp_path):
    """transformers' eager attention adds ALiBi twice."""
    config = {"alibi": True, "bias": True, "multi_query": False, "parallel_attn": False, "num_kv_heads": None, "model_type": "falcon"}
    case = Case("falcon_rw", "FalconForCausalLM", {"architectures": ["FalconForCausalLM"], **config}, attention="sdpa")
    reference = made(case, 0, tmp_path)
    model = models.load(tmp_path, threads=1)
    for variant, (ids, mask) in texts(case, 0, reference).items():
        assert difference(model.logits(ids, mask), expected(reference, ids, mask), mask) <= case.tolerance, variant


def written_chatglm(folder):
    """Write a GLM in the layout of ChatGLM's own files; the case and the model of transformers."""
    from safetensors.numpy import load_file, save_file

    case = cases("GlmForCausalLM", "glm", chatglm={**GLM, "attention_bias": True, "rope_theta": 500000.0, "rms_norm_eps": 1e-5})[0]
    reference = made(case, 0, folder)
    theirs = load_file(folder / "model.safetensors")
    renamed = {"embed_tokens": "embedding.word_embeddings", "norm": "encoder.final_layernorm", "o_proj": "self_attention.dense",
               "gate_up_proj": "mlp.dense_h_to_4h", "down_proj": "mlp.dense_4h_to_h", "lm_head": "output_layer"}  # fmt: skip
    files = {}
    for name, array in theirs.items():
        *path, part, kind = name.removeprefix("model.").split(".")
        place = f"encoder.layers.{path[1]}." if path else ""
        if part in ("q_proj", "k_proj", "v_proj"):
            files.setdefault(f"transformer.{place}self_attention.query_key_value.{kind}", {})[part] = array
        else:
            files[f"transformer.{place}{renamed.get(part, part)}.{kind}"] = array
    whole = {name: np.concatenate([value[part] for part in ("q_proj", "k_proj", "v_proj")]) if isinstance(value, dict) else value
             for name, value in files.items()}  # fmt: skip
    save_file(whole, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({
        "model_type": "chatglm", "architectures": ["ChatGLMModel"], "add_qkv_bias": True, "ffn_hidden_size": 96, "hidden_size": 64, "kv_channels": 16,
        "layernorm_epsilon": 1e-5, "multi_query_attention": True, "multi_query_group_num": 2, "num_attention_heads": 4, "num_layers": 3,
        "padded_vocab_size": 96, "rope_ratio": 50, "seq_length": 64, "rmsnorm": True}))  # fmt: skip
    return case, reference


def test_chatglm_layout(tmp_path):
    """The layout of ChatGLM's own files computes the same as that of transformers."""
    case, reference = written_chatglm(tmp_path)
    model = modelled(cc.open(tmp_path))
    ids, mask = texts(case, 0, reference)["left padding"]
    assert difference(LanguageModel(built(model), threads=1).logits(ids, mask), expected(reference, ids, mask), mask) <= case.tolerance
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
        want = reference.model(input_ids=torch.tensor(ids), attention_mask=torch.tensor(mask), position_ids=places).last_hidden_state.numpy()
    got = models.load(tmp_path, threads=1, task="hidden").logits(ids, mask)
    assert difference(got[:, -1], want[:, -1]) <= case.tolerance
    for task in ("nothing", "classification"):
        with pytest.raises(UsageError, match="does not support the task"):
            models.load(tmp_path, threads=1, task=task)


def test_sinks_leave_the_cache_where_it_is(tmp_path):
    made(next(case for case in CASES if case.name == "gpt_oss"), 0, tmp_path)
    graph = built(modelled(cc.open(tmp_path)))
    attentions = [node for node in graph.nodes if node.op.name == "AttentionWithSinks"]
    assert len(attentions) == 3
    assert all(value.producer.op.name == "TensorScatter" for node in attentions for value in node.inputs[1:3])
    model = LanguageModel(graph, threads=1)
    cache = model.start(1)
    model.advance(np.array([[5, 9, 11]]), cache)
    states = dict(cache.states)
    model.advance(np.array([[7]]), cache)
    assert all(cache.states[name] is array for name, array in states.items() if "key_values" in name)
