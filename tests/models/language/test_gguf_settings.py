"""Every optional setting of every architecture in GGUF files: a checkpoint with a telling value is computed by libllama
as by transformers, or is refused or noted with its effect before it is written."""

import contextlib
from dataclasses import replace

import candle_convert as cc
import numpy as np
import pytest
from candle_convert import models
from candle_convert.runtime.base.errors import FormatError, UnsupportedError
from candle_convert.runtime.contract.weight_binding import architectures
from candle_convert.tests.builders.gguf_cases import built, one_of_each
from candle_convert.tests.oracles.libllama import NAME, Libllama
from candle_convert.tests.oracles.transformers import difference, transformers

torch = pytest.importorskip("torch")

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
EPSILON, FLIP, ACTIVATION = (0.05,), (True, False), ("relu", "gelu", "silu")
SETTINGS = {
    "rope_theta": (300.0,),
    "rope_scaling": (
        {"rope_type": "linear", "factor": 4.0},
        {"rope_type": "dynamic", "factor": 4.0},
        YARN,
        {**YARN, "attention_factor": 1.3},
        {**YARN, "mscale": 0.7, "mscale_all_dim": 0.9},
        {**YARN, "original_max_position_embeddings": 4096, "beta_fast": 8.0, "beta_slow": 4.0},
        {**YARN, "original_max_position_embeddings": 4096, "truncate": False},
        {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
         "original_max_position_embeddings": 16},
    ),
    "partial_rotary_factor": (0.25,),
    **dict.fromkeys(("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps"), EPSILON),
    **dict.fromkeys(("hidden_act", "hidden_activation", "activation_function"), ACTIVATION),
    "sliding_window": (4, 5, 16), "attention_window_size": (5,), "attn_logit_softcapping": (2.0,),
    "final_logit_softcapping": (2.0,), "query_pre_attn_scalar": (40,), "attention_multiplier": (0.2,),
    "embedding_multiplier": (2.5,), "residual_multiplier": (0.6,), "logits_scaling": (3.0,), "logit_scale": (0.3,),
    "key_multiplier": (0.3,), "lm_head_multiplier": (0.3,), "clip_qkv": (0.3,), "rope_local_base_freq": (100.0,),
    "head_dim": (24,),
    "norm_topk_prob": FLIP, "routed_scaling_factor": (2.5,), "num_experts_per_tok": (1, 3), "topk_group": (1,),
    "n_group": (2,), "first_k_dense_replace": (0, 2), "decoder_sparse_step": (2,), "mlp_only_layers": ([1],),
    "use_parallel_residual": FLIP, "tie_word_embeddings": FLIP, "attention_bias": FLIP, "mlp_bias": (True,),
    "use_bias": FLIP, "use_qkv_bias": FLIP, "use_qk_norm": FLIP, "qk_layernorm": FLIP, "no_rope_layer_interval": (2,),
    "floor_scale": (8,), "attn_scale": (0.5,), "attn_temperature_tuning": (False,), "attention_chunk_size": (8,),
    "apply_residual_connection_post_layernorm": (True,), "scale_attn_weights": (False,), "parallel_attn": FLIP,
    "multi_query": FLIP, "new_decoder_architecture": FLIP, "alibi": FLIP, "bias": (True,), "swiglu_limit": (3.0,),
    "scale_attn_by_inverse_layer_idx": (True,), "mamba_conv_bias": FLIP, "mamba_proj_bias": (True,),
    "mamba_rms_norm": FLIP, "mamba_norm_before_gate": (True,), "use_conv_bias": FLIP, "num_kv_shared_layers": (1, 2),
    "altup_num_inputs": (2,), "hidden_size_per_layer_input": (4, 128),
    "rope_interleave": (False,), "activation_sparsity_pattern": (0.5, [0.57] * 4), "conv_bias": FLIP,
    "use_bidirectional_attention": (True,), "no_rope_layers": ([1, 0, 1],), "swiglu_alpha": (1.2,),
    "lm_head_bias": FLIP, "qkv_bias": FLIP, "attention_out_bias": FLIP, "interleave_moe_layer_step": (2,),
    "mixer_rms_eps": EPSILON, "position_embedding_type": ("nope", "rope"), "attention_in_multiplier": (0.4,),
    "attention_out_multiplier": (0.4,), "ssm_in_multiplier": (0.4,), "ssm_out_multiplier": (0.4,),
    "mlp_multipliers": ([0.5, 0.7],), "ssm_multipliers": ([0.5, 0.6, 0.7, 0.8, 0.9],), "projectors_bias": (True,),
    "num_ln_in_parallel_attn": (1, 2), "attention_k_eq_v": FLIP, "use_double_wide_mlp": (True,),
    "altup_active_idx": (1,), "altup_coef_clip": (0.1,), "altup_correct_scale": (False,), "no_bias": (False,),
    "attn_config": ({"softmax_scale": 0.5}, {"clip_qkv": 0.3}),
    "time_step_limit": ([0.0, 0.2],), "n_shared_experts": (2,), "max_window_layers": (1,),
    "layer_types": (["full_attention", "sliding_attention", "full_attention"],), "sliding_window_pattern": ("LG", 2),
    "expert_layer_period": (1,), "attn_layer_period": (3,), "use_sliding_window": FLIP,
}  # fmt: skip
"""Telling values by the key of config.json; a model has those that transformers' configuration has."""
WITH = {
    "sliding_window": {"use_sliding_window": True, "max_window_layers": 0},
    "max_window_layers": {"use_sliding_window": True, "sliding_window": 5},
    "layer_types": {"sliding_window": 5, "use_sliding_window": True}, "use_sliding_window": {"sliding_window": 5},
    "sliding_window_pattern": {"sliding_window": 5}, "topk_group": {"n_group": 2},
}  # fmt: skip
"""Keys that go with another."""
WITHOUT = {
    "sliding_window": ("layer_types",), "max_window_layers": ("layer_types",),
    "sliding_window_pattern": ("layer_types",), "rope_scaling": ("rope_parameters",),
}  # fmt: skip
"""Keys that another takes the place of."""
OURS, BOUND, TELLING = 1e-4, 2e-3, 1e-2
"""libllama computes GELU by a table of f16."""


def changed(case):
    """The case with each setting that transformers' configuration of it has: key, and the other case."""
    known = {**getattr(transformers(), case.cls).config_class().to_dict(), **case.config}
    known |= dict.fromkeys(("rope_theta", "rope_scaling"), 0) if known.get("rope_parameters") else {}
    for key, values in SETTINGS.items():
        for value in values if key in known else ():
            kept = {name: stated for name, stated in case.config.items() if name not in WITHOUT.get(key, ())}
            yield key, replace(case, config={**kept, key: value, **WITH.get(key, {})})


def outcome(case, folder, ids, want):
    """What becomes of a checkpoint in a GGUF file: what refuses it before it is written, or the differences of our
    logits and libllama's to those of transformers; of libllama's, None if it does not load the file. Of a setting that
    is noted as lost, libllama's to ours; of what libllama is noted to compute otherwise, ours alone."""
    kind = case.config["model_type"]
    arch = next(each.gguf[0] for each in architectures() if kind in each.model_types)
    keys = {"tokenizer.ggml.model": "no_vocab", f"{arch}.vocab_size": np.uint32(want.shape[-1])}
    path = folder / "model.gguf"
    try:
        report = cc.convert(folder / "model", path, metadata=keys)
    except (FormatError, UnsupportedError) as error:
        assert not path.exists()
        return f"{error.code} {error.why}"
    notes = {note.code for note in report.notes}
    read = models.load(path, threads=1).logits(ids)
    if "W-GGUF-SETTING" in notes:
        want = read
    ours = difference(read, want)
    if not NAME or "W-GGUF-LLAMA-CPP" in notes:
        return ours, 0.0
    try:
        theirs = Libllama(path)
    except AssertionError:
        return ours, None
    logits = np.stack([theirs.advance([token]) for token in ids[0]])[None]
    theirs.close()
    return ours, difference(logits, want)


@pytest.mark.sampled(13)
@pytest.mark.parametrize("case", one_of_each(), ids=lambda case: case.config["model_type"])
def test_settings_are_computed_or_said(case, tmp_path):
    base, wrong = built(case, tmp_path / "base"), {}
    for number, (key, other) in enumerate(changed(case)):
        folder = tmp_path / str(number)
        found = built(other, folder / "model")
        if found is None:
            continue
        if difference(found[1], base[1]) < TELLING:  # a key that transformers does not read, or that changes little
            with contextlib.suppress(FormatError):
                ours = difference(models.load(folder / "model", threads=1).logits(found[0]), found[1])
                if ours > OURS:
                    wrong[f"{key} {other.config.get(key)}"] = ours
            continue
        result = outcome(other, folder, *found)
        if isinstance(result, str):
            continue
        ours, theirs = result
        if ours > OURS or theirs is None or theirs > BOUND:
            wrong[f"{key} {other.config.get(key)}"] = result
    assert not wrong
